/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <selinux/label.h>
#include <selinux/selinux.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "fd.h"
#include "selinux-labels.h"

#define CONFIG_PATH      "/etc/selinux/config"
#define DEFAULT_TYPE     "targeted"
#define CONFIG_BYTES_MAX ((size_t)64 * 1024)
/* the largest policies have less than 1 MiB of them */
#define CONTEXTS_BYTES_MAX ((size_t)16 << 20)
#define PATH_MAX_BYTES     4096
#define BLANKS             " \t\r\v\f"

struct selinux_labels {
	struct selabel_handle *handle;
};

/* /etc/selinux/config */
struct config {
	enum selinux_mode mode;
	char *type;
};

/* False: a word that libselinux does not know either; what follows one is of no account. */
static bool parse_mode(enum selinux_mode *ret, const char *word)
{
	static const struct {
		const char *word;
		enum selinux_mode mode;
	} modes[] = {{"enforcing", SELINUX_ENFORCING},
	             {"permissive", SELINUX_PERMISSIVE},
	             {"disabled", SELINUX_DISABLED}};

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		if (strncasecmp(word, modes[i].word, strlen(modes[i].word)) == 0) {
			*ret = modes[i].mode;
			return true;
		}
	return false;
}

/*
 * As libselinux reads it at boot: the first mode counts, at the begin of a line only, and of types
 * the last one. Without a mode the policy is loaded and not enforced.
 */
static void parse_config(struct config *c, const char *text)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\n");
	bool has_mode = false;

	c->mode = SELINUX_PERMISSIVE;
	for (size_t i = 0; i < lines.count; i++) {
		const char *line = lines.items[i];

		if (str_starts(line, "SELINUX=")) {
			line += strlen("SELINUX=");
			line += strspn(line, BLANKS);
			has_mode = has_mode || parse_mode(&c->mode, line);
			continue;
		}
		line = str_trim(lines.items[i]);
		if (str_starts(line, "SELINUXTYPE=")) {
			line += strlen("SELINUXTYPE=");
			free(c->type);
			c->type = str_copy(line + strspn(line, BLANKS));
		}
	}
}

/* 1: there is a policy, and 'ret' is filled; 0: there is none, -1: error. */
static int read_config(struct config *ret, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *dir = NULL;

	*ret = (struct config){.mode = SELINUX_DISABLED};
	if (!rootfs_exists(root, CONFIG_PATH))
		return 0;
	if (rootfs_read(root, CONFIG_PATH, CONFIG_BYTES_MAX, (void **)&text, NULL, err) < 0)
		return -1;
	parse_config(ret, text);
	if (!ret->type)
		ret->type = str_copy(DEFAULT_TYPE);
	if (!*ret->type || strchr(ret->type, '/') || ret->type[0] == '.') {
		CLEANUP_FREE char *shown = str_printable(ret->type, 100);

		error_set(err, "'%s' names the policy '%s', which is no directory's name",
		          CONFIG_PATH, shown);
		return error_code(err, EXIT_INPUT);
	}
	dir = str_format("/etc/selinux/%s", ret->type);
	return rootfs_is_dir(root, dir) ? 1 : 0;
}

int selinux_read_mode(enum selinux_mode *ret, struct rootfs *root, struct error *err)
{
	struct config c;
	int found = read_config(&c, root, err);

	if (found >= 0)
		*ret = found ? c.mode : SELINUX_NONE;
	free(c.type);
	return found < 0 ? -1 : 0;
}

/*
 * A compiled one would be mapped and trusted by libselinux, under whatever name it comes; only
 * text is parsed.
 */
static bool is_text(const unsigned char *data, size_t size)
{
	static const unsigned char compiled[] = {0x8a, 0xff, 0x7c, 0xf9};
	static const unsigned char swapped[] = {0xf9, 0x7c, 0xff, 0x8a};

	if (size >= 4 && (memcmp(data, compiled, 4) == 0 || memcmp(data, swapped, 4) == 0))
		return false;
	return !memchr(data, '\0', size);
}

static int save(const char *path, const void *data, size_t size, struct error *err)
{
	CLEANUP_CLOSE int fd =
		open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0 || fd_write_all(fd, data, size) < 0)
		return error_errno(err, errno, "cannot write '%s'", path);
	return 0;
}

static int copy_contexts(struct rootfs *root, const char *from, const char *to, bool must,
                         struct error *err)
{
	CLEANUP_FREE void *data = NULL;
	size_t size = 0;

	if (!must && !rootfs_exists(root, from))
		return unlink(to) < 0 && errno != ENOENT
		               ? error_errno(err, errno, "cannot remove '%s'", to)
		               : 0;
	if (rootfs_read(root, from, CONTEXTS_BYTES_MAX, &data, &size, err) < 0)
		return -1;
	if (!is_text(data, size)) {
		error_set(err, "cannot read '%s' of the image: it is no text", from);
		return error_code(err, EXIT_INPUT);
	}
	return save(to, data, size, err);
}

/* What libselinux reads beside the main file, by these very names. */
static int copy_all(struct rootfs *root, const char *type, const char *scratch, struct error *err)
{
	static const char *const ends[] = {"", ".homedirs", ".local", ".subs", ".subs_dist"};

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		CLEANUP_FREE char *from =
			str_format("/etc/selinux/%s/contexts/files/file_contexts%s", type, ends[i]);
		CLEANUP_FREE char *to = str_format("%s/file_contexts%s", scratch, ends[i]);

		if (copy_contexts(root, from, to, i == 0, err) < 0)
			return -1;
	}
	return 0;
}

/* libselinux prints by itself otherwise. */
static int say_nothing(int type, const char *format, ...)
{
	(void)type;
	(void)format;
	return 0;
}

static struct selabel_handle *open_contexts(const char *path)
{
	const struct selinux_opt options[] = {{SELABEL_OPT_PATH, path}};

	selinux_set_callback(SELINUX_CB_LOG, (union selinux_callback){.func_log = say_nothing});
	return selabel_open(SELABEL_CTX_FILE, options, 1);
}

static int open_policy(struct selinux_labels **ret, struct rootfs *root, const char *type,
                       const char *scratch, struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/file_contexts", scratch);
	struct selabel_handle *handle;

	if (copy_all(root, type, scratch, err) < 0)
		return -1;
	handle = open_contexts(path);
	if (!handle) {
		error_errno(err, errno,
		            "cannot parse '/etc/selinux/%s/contexts/files/file_contexts'", type);
		return error_code(err, EXIT_INPUT);
	}
	*ret = mem_alloc(sizeof(**ret));
	(*ret)->handle = handle;
	return 0;
}

int selinux_labels_open(struct selinux_labels **ret, struct rootfs *root, const char *scratch,
                        struct error *err)
{
	struct config c;
	int found = read_config(&c, root, err);
	int result = found < 0 ? -1 : 0;

	*ret = NULL;
	if (found == 1 && c.mode != SELINUX_DISABLED)
		result = open_policy(ret, root, c.type, scratch, err);
	free(c.type);
	return result < 0 ? error_prefix(err, "cannot read the image's SELinux policy") : 0;
}

void selinux_labels_free(struct selinux_labels *labels)
{
	if (!labels)
		return;
	selabel_close(labels->handle);
	free(labels);
}

int selinux_labels_find(char **ret, struct selinux_labels *labels, const char *path, uint32_t mode,
                        struct error *err)
{
	CLEANUP_FREE char *shown = NULL;
	char *label = NULL;

	*ret = NULL;
	errno = ENAMETOOLONG;
	/* libselinux copies a path to a buffer of this size where it replaces its begin */
	if (strlen(path) < PATH_MAX_BYTES) {
		errno = 0; /* which it leaves alone where a pattern cannot be compiled */
		if (selabel_lookup_raw(labels->handle, &label, path, (int)mode) == 0) {
			*ret = str_copy(label);
			freecon(label);
			return 0;
		}
		if (errno == ENOENT)
			return 0; /* no line fits, or its label is <<none>> */
	}
	if (errno == 0)
		errno = EINVAL;
	shown = str_printable(path, 300);
	return error_errno(err, errno, "cannot find the SELinux label of '%s'", shown);
}
