/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkmod answers, as modprobe on the node will: it finds the module of an alias, drops what is
 * blacklisted and knows install lines. It gets copies of the guest's files, made safe before:
 * its index reader trusts every offset in them, and its configuration reader prints what it
 * does not understand to stderr. And it reads the /proc/cmdline of this host, which must not
 * count for the guest: see guest_blacklists().
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <libkmod.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "modules.h"

#define MAX_CONFIG_BYTES (1U << 20)
#define MAX_CONFIG_FILES 4096
#define MAX_INDEX_BYTES  (16U << 20)
#define MAX_KEY_LENGTH   4096
#define MAX_INDEX_DEPTH  1024
#define MAX_INDEX_TEXT   (UINT64_C(256) << 20)

/* An L4 both ways (a board may be a VGA controller when a display is enabled), then Kepler,
 * Pascal, Volta, Turing, Ampere, Hopper and Blackwell boards of data centres. */
const char *const modules_gpu_aliases[] = {
	"pci:v000010DEd000027B8sv000010DEsd000016CAbc03sc02i00", /* L4 */
	"pci:v000010DEd000027B8sv000010DEsd000016CAbc03sc00i00",
	"pci:v000010DEd0000102Dsv000010DEsd0000106Cbc03sc02i00", /* K80 */
	"pci:v000010DEd00001B38sv000010DEsd000011D9bc03sc02i00", /* P40 */
	"pci:v000010DEd00001DB6sv000010DEsd0000124Abc03sc02i00", /* V100 */
	"pci:v000010DEd00001EB8sv000010DEsd000012A2bc03sc02i00", /* T4 */
	"pci:v000010DEd000020B2sv000010DEsd00001463bc03sc02i00", /* A100 */
	"pci:v000010DEd000026B9sv000010DEsd00001851bc03sc02i00", /* L40S */
	"pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00", /* H100 */
	"pci:v000010DEd00002901sv000010DEsd00001999bc03sc02i00", /* B200 */
	"pci:v000010DEd00002684sv000010DEsd0000165Bbc03sc00i00", /* RTX 4090 */
	NULL,
};

/* kmod's order: a file hides those of the same name in the directories after its own. /run is
 * not here: it is empty when a system starts. */
static const char *const config_paths[] = {
	"etc/modprobe.d",
	"usr/local/lib/modprobe.d",
	"usr/lib/modprobe.d",
	"lib/modprobe.d",
};

static const char *const index_names[] = {
	"modules.dep",
	"modules.dep.bin",
	"modules.alias",
	"modules.alias.bin",
	"modules.builtin",
	"modules.builtin.bin",
	"modules.builtin.modinfo",
	"modules.builtin.alias.bin",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* For kernels without modules.builtin.modinfo (before 5.2), where only names are known. */
static const char *const known_claimants[] = {"nouveau", "nova_core", "nvidiafb", "rivafb"};

DEFINE_CLEANUP(kmod_modules, struct kmod_list *, kmod_module_unref_list)
#define CLEANUP_KMOD_LIST CLEANUP(cleanup_kmod_modules)

/* Two contexts over the same indexes: with the guest's configuration, and with none. */
struct oracle {
	struct kmod_ctx *guest, *none;
};

static void oracle_close(struct oracle *o)
{
	kmod_unref(o->guest);
	kmod_unref(o->none);
}
#define CLEANUP_ORACLE CLEANUP(oracle_close)

static char *normal_name(const char *name)
{
	char *copy = str_copy(name);

	for (char *c = copy; *c; c++)
		if (*c == '-')
			*c = '_';
	return copy;
}

/* --- Copies into the scratch directory ------------------------------------------------- */

static int make_dirs(const char *path, struct error *err)
{
	CLEANUP_FREE char *part = str_copy(path);

	for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(part, 0700) < 0 && errno != EEXIST)
			return error_errno(err, errno, "cannot make the directory '%s'", part);
		*slash = '/';
	}
	if (mkdir(part, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make the directory '%s'", part);
	return 0;
}

static int put_file(const char *dir, const char *name, const void *data, size_t size,
                    struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);
	CLEANUP_CLOSE int fd =
		open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return error_errno(err, errno, "cannot make '%s'", path);
	for (size_t done = 0; done < size;) {
		ssize_t n = write(fd, (const char *)data + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot write '%s'", path);
		done += (size_t)n;
	}
	return 0;
}

/* The node reference of a modules.*.bin: flags above, offset below (kmod's libkmod-index.c). */
#define NODE_PREFIX 0x80000000U
#define NODE_VALUES 0x40000000U
#define NODE_CHILDS 0x20000000U
#define NODE_OFFSET 0x0fffffffU

struct index_walk {
	const uint8_t *data;
	size_t size;
	uint64_t nodes; /* visited so far */
	uint64_t text;  /* what a dump of all keys would be long */
};

static bool walk_u32(const struct index_walk *w, size_t *at, uint32_t *ret)
{
	const uint8_t *p = w->data + *at;

	if (*at > w->size || w->size - *at < 4)
		return false;
	*ret = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
	*at += 4;
	return true;
}

/* Steps over a string with its NUL. */
static bool walk_string(const struct index_walk *w, size_t *at, size_t *ret_length)
{
	size_t length;

	if (*at >= w->size)
		return false;
	length = strnlen((const char *)w->data + *at, w->size - *at);
	*at += length + 1;
	*ret_length = length;
	return *at <= w->size;
}

static bool walk_values(struct index_walk *w, size_t at, size_t key_length)
{
	uint32_t count, priority;
	size_t length;

	if (!walk_u32(w, &at, &count))
		return false;
	for (; count > 0; count--) {
		if (!walk_u32(w, &at, &priority) || !walk_string(w, &at, &length))
			return false;
		w->text += key_length + length;
		if (w->text > MAX_INDEX_TEXT)
			return false;
	}
	return true;
}

/* Everything that libkmod could reach from this node lies inside the file, and is a tree. */
static bool walk_node(struct index_walk *w, uint32_t node, size_t key_length, unsigned depth)
{
	size_t at = node & NODE_OFFSET, length = 0, children;
	unsigned first = 0, count = 0;

	if (at == 0)
		return true; /* no child for this byte */
	if (++w->nodes > w->size || depth > MAX_INDEX_DEPTH)
		return false;
	if (node & NODE_PREFIX && !walk_string(w, &at, &length))
		return false;
	key_length += length;
	if (key_length > MAX_KEY_LENGTH)
		return false;
	if (node & NODE_CHILDS) {
		if (at > w->size || w->size - at < 2 || w->data[at] > w->data[at + 1] ||
		    w->data[at + 1] > 127)
			return false;
		first = w->data[at];
		count = w->data[at + 1] - first + 1U;
		at += 2;
	}
	children = at;
	if (node & NODE_VALUES && !walk_values(w, at + 4 * (size_t)count, key_length))
		return false;
	for (unsigned i = 0; i < count; i++) {
		uint32_t child;

		if (!walk_u32(w, &children, &child) ||
		    !walk_node(w, child, key_length + 1, depth + 1))
			return false;
	}
	return true;
}

static bool index_is_sound(const void *data, size_t size)
{
	struct index_walk w = {.data = data, .size = size};
	size_t at = 0;
	uint32_t magic, version, root;

	return walk_u32(&w, &at, &magic) && walk_u32(&w, &at, &version) &&
	       walk_u32(&w, &at, &root) && magic == 0xb007f457 && version >> 16 == 2 &&
	       walk_node(&w, root, 0, 0);
}

static int put_index(const struct modules *m, const char *name, const char *from, const void *data,
                     size_t size, struct error *err)
{
	/* depmod leaves modules.builtin.alias.bin empty where there is no modinfo. */
	if (str_ends(name, ".bin") && size == 0)
		return 0;
	if (str_ends(name, ".bin") && !index_is_sound(data, size)) {
		error_code(err, EXIT_INPUT);
		error_set(err, "cannot use the module index '%s': it is damaged", from);
		return error_hint(err, "run 'depmod %s' in the image", m->kver);
	}
	return put_file(m->dir, name, data, size, err);
}

/* A copy of the token at *line, which moves behind it; NULL if there is none. */
static char *take_token(const char **line)
{
	const char *start = *line + strspn(*line, " \t");
	size_t length = strcspn(start, " \t");

	*line = start + length;
	return length ? mem_copy(start, length) : NULL;
}

static bool brackets_match(const char *s)
{
	for (; *s; s++) {
		if (*s == ']')
			return false;
		if (*s == '[' && !(s = strchr(s, ']')))
			return false;
	}
	return true;
}

/* Whether libkmod takes the line, and it matters here (options and softdeps do not). */
static bool line_counts(const char *line)
{
	CLEANUP_FREE char *keyword = take_token(&line);
	CLEANUP_FREE char *name = take_token(&line);
	CLEANUP_FREE char *third = take_token(&line);

	if (!keyword || !name || !brackets_match(name))
		return false;
	if (strcmp(keyword, "blacklist") == 0)
		return true;
	if (strcmp(keyword, "install") == 0)
		return third;
	return strcmp(keyword, "alias") == 0 && third && brackets_match(third);
}

/*
 * The lines of a modprobe.d file that libkmod will understand, one per line of text. A
 * backslash takes the meaning from the byte after it, a newline included; so it is written twice.
 */
static void write_sound_lines(FILE *out, const char *text, size_t size)
{
	CLEANUP_FREE char *line = mem_alloc(size + 1);
	size_t length = 0;

	for (size_t i = 0; i <= size; i++) {
		bool escaped = i + 1 < size && text[i] == '\\';

		if (escaped)
			i++;
		if (i < size && (escaped || text[i] != '\n')) {
			if (!escaped || text[i] != '\n')
				line[length++] = text[i];
			continue;
		}
		line[length] = '\0';
		length = 0;
		if (!line_counts(line))
			continue;
		for (const char *c = line; *c; c++) {
			if (*c == '\\')
				fputc('\\', out);
			fputc(*c, out);
		}
		fputc('\n', out);
	}
}

static int put_config(const char *dir, const char *name, const char *text, size_t size,
                      struct error *err)
{
	CLEANUP_FREE char *sound = NULL;
	size_t sound_size = 0;
	FILE *out = open_memstream(&sound, &sound_size);

	if (!out)
		return error_errno(err, errno, "cannot copy '%s/%s'", dir, name);
	write_sound_lines(out, text, size);
	if (fclose(out) != 0)
		return error_errno(err, errno, "cannot copy '%s/%s'", dir, name);
	return put_file(dir, name, sound, sound_size, err);
}

/* The empty world: its directories, and no configuration yet. A new one at every call, since
 * a scratch directory may serve for a root and for its initramfs. */
static int world_open(struct modules *m, const char *kver, const char *scratch, char **ret_top,
                      struct error *err)
{
	CLEANUP_FREE char *top = str_format("%s/modules-XXXXXX", scratch);

	if (!*kver || strchr(kver, '/') || kver[0] == '.') {
		CLEANUP_FREE char *shown = str_printable(kver, 100);

		error_code(err, EXIT_INPUT);
		return error_set(err, "'%s' cannot be the version of a kernel", shown);
	}
	if (!mkdtemp(top))
		return error_errno(err, errno, "cannot make a directory in '%s'", scratch);
	m->dir = str_format("%s/lib/modules/%s", top, kver);
	m->kver = str_copy(kver);
	*ret_top = STEAL(top);
	return make_dirs(m->dir, err);
}

static int too_many_files(const char *where, struct error *err)
{
	error_code(err, EXIT_INPUT);
	return error_set(err, "cannot read '%s': more than %d files", where, MAX_CONFIG_FILES);
}

static int copy_index(const struct modules *m, struct rootfs *r, const char *name,
                      struct error *err)
{
	CLEANUP_FREE char *path = str_format("/lib/modules/%s/%s", m->kver, name);
	CLEANUP_FREE void *data = NULL;
	struct rootfs_stat st;
	size_t size = 0;
	int there = rootfs_stat(r, path, &st, err);

	if (there <= 0)
		return there;
	if (!S_ISREG(st.mode)) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot read '%s': not a regular file", path);
	}
	if (rootfs_read(r, path, MAX_INDEX_BYTES, &data, &size, err) < 0)
		return -1;
	return put_index(m, name, path, data, size, err);
}

/* One file of modprobe.d. A link to nowhere or to /dev/null counts as an empty file, which
 * hides those of its name in later directories: a documented way to switch one off. */
static int copy_config(struct rootfs *r, const char *from_dir, const char *name, const char *to_dir,
                       struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/%s", from_dir, name);
	CLEANUP_FREE void *data = NULL;
	struct rootfs_stat st;
	size_t size = 0;
	int there = rootfs_stat(r, path, &st, err);

	if (there < 0)
		return -1;
	if (there == 0 || (!S_ISREG(st.mode) && !S_ISDIR(st.mode)))
		return put_file(to_dir, name, NULL, 0, err);
	if (S_ISDIR(st.mode))
		return 0;
	if (rootfs_read(r, path, MAX_CONFIG_BYTES, &data, &size, err) < 0)
		return -1;
	return put_config(to_dir, name, data, size, err);
}

static bool is_config_name(const char *name)
{
	return str_ends(name, ".conf") && name[0] != '.' && !strchr(name, '/');
}

static int copy_config_dir(struct modules *m, struct rootfs *r, const char *top, const char *dir,
                           struct strv *seen, struct error *err)
{
	CLEANUP_FREE char *to = str_format("%s/%s", top, dir), *path = str_format("/%s", dir);
	CLEANUP_FREE char *real = NULL;
	CLEANUP_STRV struct strv names = {0};
	int there = rootfs_resolve(r, path, true, &real, err);

	/* On a merged /usr two of them are one. */
	if (there <= 0 || strv_has(seen, real))
		return there < 0 ? -1 : 0;
	strv_add(seen, real);
	if (!rootfs_is_dir(r, real))
		return 0;
	if (rootfs_list(r, real, &names, err) < 0 || make_dirs(to, err) < 0)
		return -1;
	if (names.count > MAX_CONFIG_FILES)
		return too_many_files(path, err);
	for (size_t i = 0; i < names.count; i++)
		if (is_config_name(names.items[i]) &&
		    copy_config(r, real, names.items[i], to, err) < 0)
			return -1;
	strv_add(&m->config_dirs, to);
	return 0;
}

static bool have_file(const struct modules *m, const char *name)
{
	CLEANUP_FREE char *path = str_format("%s/%s", m->dir, name);

	return access(path, F_OK) == 0;
}

static int fill_from_rootfs(struct modules *m, struct rootfs *r, const char *top, struct error *err)
{
	CLEANUP_STRV struct strv seen = {0};

	for (size_t i = 0; i < COUNT(index_names); i++)
		if (copy_index(m, r, index_names[i], err) < 0)
			return -1;
	if (!have_file(m, "modules.dep") && !have_file(m, "modules.dep.bin")) {
		error_code(err, EXIT_INPUT);
		error_set(err,
		          "kernel %s has no module index: '/lib/modules/%s/modules.dep' is missing",
		          m->kver, m->kver);
		return error_hint(err, "run 'depmod %s' in the image", m->kver);
	}
	for (size_t i = 0; i < COUNT(config_paths); i++)
		if (copy_config_dir(m, r, top, config_paths[i], &seen, err) < 0)
			return -1;
	return 0;
}

int modules_from_rootfs(struct modules *ret, struct rootfs *r, const char *kver,
                        const char *scratch, struct error *err)
{
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_FREE char *top = NULL;

	if (world_open(&m, kver, scratch, &top, err) < 0 || fill_from_rootfs(&m, r, top, err) < 0)
		return -1;
	*ret = m;
	m = (struct modules){0};
	return 0;
}

/* Links in modprobe.d may lead anywhere inside the archive, so files are judged by their name. */
bool modules_keep(void *opaque, const char *path, uint64_t size_bytes)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	(void)opaque;
	if (is_config_name(name))
		return size_bytes <= MAX_CONFIG_BYTES;
	if (!str_starts(name, "modules.") || size_bytes > MAX_INDEX_BYTES)
		return false;
	for (size_t i = 0; i < COUNT(index_names); i++)
		if (strcmp(name, index_names[i]) == 0)
			return true;
	return false;
}

static int need_data(const struct initramfs_member *m, struct error *err)
{
	CLEANUP_FREE char *shown = NULL;

	if (m->data || m->size_bytes == 0)
		return 0;
	shown = str_printable(m->path, 200);
	error_code(err, EXIT_INPUT);
	return error_set(err, "cannot use '%s' of the initramfs: its content was not read", shown);
}

static int take_index(const struct modules *m, const struct initramfs *i, const char *name,
                      struct error *err)
{
	CLEANUP_FREE char *path = str_format("lib/modules/%s/%s", m->kver, name);
	CLEANUP_FREE char *usr = str_format("usr/%s", path);
	const struct initramfs_member *found = initramfs_find_target(i, path);

	if (!found)
		found = initramfs_find_target(i, usr);
	if (!found)
		return 0;
	if (!S_ISREG(found->mode)) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot use '%s' of the initramfs: not a regular file", path);
	}
	if (need_data(found, err) < 0)
		return -1;
	return put_index(m, name, path, found->data, found->size_bytes, err);
}

static int take_config(const struct initramfs *i, const char *dir, const char *name, const char *to,
                       struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);
	const struct initramfs_member *m = initramfs_find(i, path);

	if (!m)
		return 0;
	m = initramfs_find_target(i, path);
	if (m && S_ISDIR(m->mode))
		return 0;
	if (!m || !S_ISREG(m->mode))
		return put_file(to, name, NULL, 0, err);
	if (need_data(m, err) < 0)
		return -1;
	return put_config(to, name, (const char *)m->data, m->size_bytes, err);
}

/* All file names that a modprobe.d file can have here, each once. */
static int list_config_names(const struct initramfs *i, struct strv *ret, struct error *err)
{
	CLEANUP_STRV struct strv all = {0};

	for (size_t n = 0; n < i->count; n++) {
		const char *slash = strrchr(i->members[n].path, '/');

		if (slash && is_config_name(slash + 1))
			strv_add(&all, slash + 1);
	}
	strv_sort(&all);
	for (size_t n = 0; n < all.count; n++)
		if (n == 0 || strcmp(all.items[n], all.items[n - 1]) != 0)
			strv_add(ret, all.items[n]);
	if (ret->count > MAX_CONFIG_FILES)
		return too_many_files("the initramfs", err);
	return 0;
}

static int fill_from_initramfs(struct modules *m, const struct initramfs *i, const char *top,
                               struct error *err)
{
	const struct initramfs_member *seen[COUNT(config_paths)] = {NULL};
	CLEANUP_STRV struct strv names = {0};

	for (size_t n = 0; n < COUNT(index_names); n++)
		if (take_index(m, i, index_names[n], err) < 0)
			return -1;
	if (list_config_names(i, &names, err) < 0)
		return -1;
	for (size_t d = 0; d < COUNT(config_paths); d++) {
		CLEANUP_FREE char *to = str_format("%s/%s", top, config_paths[d]);
		bool again = false;

		seen[d] = initramfs_find_target(i, config_paths[d]);
		for (size_t e = 0; e < d; e++)
			again |= seen[e] == seen[d];
		if (!seen[d] || again)
			continue;
		if (make_dirs(to, err) < 0)
			return -1;
		for (size_t n = 0; n < names.count; n++)
			if (take_config(i, config_paths[d], names.items[n], to, err) < 0)
				return -1;
		strv_add(&m->config_dirs, to);
	}
	return 0;
}

int modules_from_initramfs(struct modules *ret, const struct initramfs *i, const char *kver,
                           const char *scratch, struct error *err)
{
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_FREE char *top = NULL;

	if (world_open(&m, kver, scratch, &top, err) < 0 ||
	    fill_from_initramfs(&m, i, top, err) < 0)
		return -1;
	*ret = m;
	m = (struct modules){0};
	return 0;
}

void modules_free(struct modules *m)
{
	free(m->dir);
	free(m->kver);
	strv_free(&m->config_dirs);
	*m = (struct modules){0};
}

/* --- The oracle ------------------------------------------------------------------------- */

static void ignore_log(void *data, int priority, const char *file, int line, const char *fn,
                       const char *format, va_list args)
{
	(void)data;
	(void)priority;
	(void)file;
	(void)line;
	(void)fn;
	(void)format;
	(void)args;
}

static int oracle_open(struct oracle *ret, const struct modules *m, struct error *err)
{
	/* Not NULL: that would stand for this host's own directories. */
	static const char *const no_config[] = {NULL};
	const char *const *config =
		m->config_dirs.count ? (const char *const *)m->config_dirs.items : no_config;

	ret->guest = kmod_new(m->dir, config);
	ret->none = kmod_new(m->dir, no_config);
	if (!ret->guest || !ret->none)
		return error_set(err, "cannot open the modules of '%s' with libkmod", m->dir);
	kmod_set_log_fn(ret->guest, ignore_log, NULL);
	kmod_set_log_fn(ret->none, ignore_log, NULL);
	return 0;
}

static size_t count_blacklists(struct kmod_ctx *ctx, const char *name)
{
	struct kmod_config_iter *iter = kmod_config_get_blacklists(ctx);
	size_t count = 0;

	while (kmod_config_iter_next(iter))
		count += strcmp(kmod_config_iter_get_key(iter), name) == 0;
	kmod_config_iter_free_iter(iter);
	return count;
}

/* What both contexts have comes from modprobe.blacklist= on this host's command line. */
static bool guest_blacklists(const struct oracle *o, const char *name)
{
	return count_blacklists(o->guest, name) > count_blacklists(o->none, name);
}

/*
 * Whether an install line loads nothing: true, false, ":" or exit, alone or with plain
 * arguments or a comment. Any other command may load the module (modprobe -i), and counts so.
 * With CRLF the shell does not even find the program.
 */
static bool command_is_inert(const char *command)
{
	static const char *const words[] = {"false", "true", ":", "exit"};
	CLEANUP_FREE char *copy = str_copy(command);
	char *word = str_trim(copy), *rest = word + strcspn(word, " \t");

	if (*rest)
		*rest++ = '\0';
	rest += strspn(rest, " \t");
	if (*rest != '#' && strpbrk(rest, ";&|`$<>(){}\"'\\\n\r"))
		return false;
	if (word[0] == '/')
		word = strrchr(word, '/') + 1;
	for (size_t i = 0; i < COUNT(words); i++)
		if (strcmp(word, words[i]) == 0)
			return true;
	return false;
}

static FILE *open_text(const struct modules *m, const char *name)
{
	CLEANUP_FREE char *path = str_format("%s/%s", m->dir, name);

	return fopen(path, "re");
}

/* Whether modules.dep or modules.builtin has a line for the module. */
static bool list_has(const struct modules *m, const char *file, const char *name)
{
	CLEANUP_FCLOSE FILE *f = open_text(m, file);
	CLEANUP_FREE char *line = NULL;
	size_t capacity = 0;
	bool found = false;

	while (f && !found && getline(&line, &capacity, f) > 0) {
		CLEANUP_FREE char *module = NULL;
		char *base, *ko;

		line[strcspn(line, ":\n")] = '\0';
		base = strrchr(line, '/') ? strrchr(line, '/') + 1 : line;
		ko = strstr(base, ".ko");
		if (!ko)
			continue;
		*ko = '\0';
		module = normal_name(base);
		found = strcmp(module, name) == 0;
	}
	return found;
}

/* The same from the binary indexes, for images that carry nothing else. */
static bool index_has(const struct modules *m, const char *name, bool *ret_builtin)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_ORACLE struct oracle o = {0};
	CLEANUP_KMOD_LIST struct kmod_list *list = NULL, *files = NULL;
	struct kmod_list *item;
	bool found = false;

	if (oracle_open(&o, m, &ignored) < 0 ||
	    kmod_module_new_from_lookup(o.none, name, &list) < 0)
		return false;
	*ret_builtin = list &&
	               kmod_module_apply_filter(o.none, KMOD_FILTER_BUILTIN, list, &files) == 0 &&
	               !files;
	kmod_list_foreach(item, list)
	{
		struct kmod_module *module = kmod_module_get_module(item);

		found |= strcmp(kmod_module_get_name(module), name) == 0 &&
		         (*ret_builtin || kmod_module_get_path(module));
		kmod_module_unref(module);
	}
	*ret_builtin &= found;
	return found;
}

bool modules_have(const struct modules *m, const char *name, bool *ret_builtin)
{
	CLEANUP_FREE char *normal = normal_name(name);
	bool builtin = false, found = false;

	if (list_has(m, "modules.builtin", normal))
		builtin = found = true;
	else if (have_file(m, "modules.dep"))
		found = list_has(m, "modules.dep", normal);
	if (!found)
		found = index_has(m, normal, &builtin);
	if (ret_builtin)
		*ret_builtin = builtin;
	return found;
}

bool modules_is_nvidia_driver(const char *name)
{
	CLEANUP_FREE char *normal = normal_name(name);

	return strcmp(normal, "nvidia") == 0 || str_starts(normal, "nvidia_");
}

/* What one lookup is about. */
struct question {
	const struct modules *m;
	const struct oracle *oracle;
	const char *asked; /* an alias or a name */
	bool use_blacklist;
};

/* Whether this module, found for the question, would be loaded. */
static bool would_load(const struct question *q, const char *name, const char *install)
{
	bool builtin = false;

	if (q->use_blacklist && guest_blacklists(q->oracle, name))
		return false;
	if (install && command_is_inert(install))
		return false;
	/* 'alias … off' gives a module of that name; a built-in one is there already. */
	return modules_have(q->m, name, &builtin) && !builtin;
}

static bool is_same_module(const char *asked, const char *name)
{
	CLEANUP_FREE char *normal = normal_name(asked);

	return strcmp(normal, name) == 0;
}

/* modprobe leaves a module that it found by an alias alone if it is blacklisted, with or
 * without -b; the blacklist does not count for a module asked for by its own name. */
static void add_loadable(struct question *q, struct kmod_module *module, struct strv *ret)
{
	const char *name = kmod_module_get_name(module);

	q->use_blacklist = !is_same_module(q->asked, name);
	if (would_load(q, name, kmod_module_get_install_commands(module)) && !strv_has(ret, name))
		strv_add(ret, name);
}

static void add_loadable_named(struct question *q, const char *name, struct strv *ret)
{
	struct kmod_module *module = NULL;

	if (kmod_module_new_from_name(q->oracle->guest, name, &module) < 0)
		return;
	add_loadable(q, module, ret);
	kmod_module_unref(module);
}

/* By text, for images without modules.alias.bin (busybox reads no binary index). */
static void add_loadable_by_text(struct question *q, struct strv *ret)
{
	CLEANUP_FCLOSE FILE *f = open_text(q->m, "modules.alias");
	CLEANUP_FREE char *line = NULL;
	size_t capacity = 0;

	if (modules_have(q->m, q->asked, NULL))
		add_loadable_named(q, q->asked, ret);
	while (f && getline(&line, &capacity, f) > 0) {
		char pattern[256], name[256];

		if (sscanf(line, "alias %255s %255s", pattern, name) == 2 &&
		    fnmatch(pattern, q->asked, 0) == 0)
			add_loadable_named(q, name, ret);
	}
}

static int lookup_loadable(const struct modules *m, const struct oracle *o, const char *asked,
                           struct strv *ret, struct error *err)
{
	CLEANUP_KMOD_LIST struct kmod_list *list = NULL;
	struct question q = {.m = m, .oracle = o, .asked = asked};
	struct kmod_list *item;
	int rc = kmod_module_new_from_lookup(o->guest, asked, &list);

	if (rc < 0 && rc != -ENOSYS && rc != -ENOENT)
		return error_errno(err, -rc, "cannot look '%s' up in '%s'", asked, m->dir);
	kmod_list_foreach(item, list)
	{
		struct kmod_module *module = kmod_module_get_module(item);

		add_loadable(&q, module, ret);
		kmod_module_unref(module);
	}
	if (!list && !have_file(m, "modules.alias.bin"))
		add_loadable_by_text(&q, ret);
	return 0;
}

int modules_loadable_by_alias(const struct modules *m, struct strv *ret, struct error *err)
{
	CLEANUP_ORACLE struct oracle o = {0};
	CLEANUP_STRV struct strv all = {0};

	if (oracle_open(&o, m, err) < 0)
		return -1;
	for (size_t i = 0; modules_gpu_aliases[i]; i++)
		if (lookup_loadable(m, &o, modules_gpu_aliases[i], &all, err) < 0)
			return -1;
	strv_sort(&all);
	for (size_t i = 0; i < all.count; i++)
		if (!modules_is_nvidia_driver(all.items[i]))
			strv_add(ret, all.items[i]);
	return 0;
}

int modules_loadable_by_name(const struct modules *m, const char *name, struct error *err)
{
	CLEANUP_ORACLE struct oracle o = {0};
	CLEANUP_STRV struct strv loadable = {0};
	CLEANUP_FREE char *normal = normal_name(name);

	if (oracle_open(&o, m, err) < 0 || lookup_loadable(m, &o, normal, &loadable, err) < 0)
		return -1;
	return strv_has(&loadable, normal);
}

/* --- Claimants -------------------------------------------------------------------------- */

/* The same card from a vendor that does not exist. */
static bool matches_any_vendor(const char *pattern, const char *alias)
{
	CLEANUP_FREE char *other = str_copy(alias);

	memcpy(other + strlen("pci:v"), "0000FFFE", 8);
	return fnmatch(pattern, other, 0) == 0;
}

/*
 * Whether the pattern is for NVIDIA's display devices. Either it names vendor and class (any
 * device: a driver may list single boards), or it matches one of our boards and would not
 * match the same board of another vendor: nova_core's first versions took every function of
 * the vendor. Patterns for a class of any vendor are not about NVIDIA; those for one device id
 * of the vendor without a class are its chipsets' network, disk and sound controllers.
 */
static bool is_display_pattern(const char *pattern)
{
	if (str_starts(pattern, "pci:v000010DE") && strstr(pattern, "bc03"))
		return true;
	for (size_t i = 0; modules_gpu_aliases[i]; i++)
		if (fnmatch(pattern, modules_gpu_aliases[i], 0) == 0 &&
		    !matches_any_vendor(pattern, modules_gpu_aliases[i]))
			return true;
	return false;
}

static void add_claimant(struct strv *to, const char *pattern, const char *name)
{
	CLEANUP_FREE char *normal = normal_name(name);

	if (str_starts(pattern, "pci:") && strlen(pattern) <= 255 && is_display_pattern(pattern) &&
	    !strv_has(to, normal))
		strv_add(to, normal);
}

/* Lines "alias PATTERN MODULE", as in modules.alias and in the dump of an index. */
static void add_claimants_from(FILE *f, struct strv *to)
{
	CLEANUP_FREE char *line = NULL;
	size_t capacity = 0;

	while (f && getline(&line, &capacity, f) > 0) {
		char pattern[256], name[256];

		if (sscanf(line, "alias %255s %255s", pattern, name) == 2)
			add_claimant(to, pattern, name);
	}
}

static int add_claimants_of_index(const struct oracle *o, enum kmod_index type, struct strv *to,
                                  struct error *err)
{
	CLEANUP_CLOSE int fd = memfd_create("aliases", MFD_CLOEXEC);
	CLEANUP_FCLOSE FILE *f = NULL;
	int rc;

	if (fd < 0)
		return error_errno(err, errno, "cannot make a file in memory");
	rc = kmod_dump_index(o->none, type, fd);
	if (rc == -ENOSYS || rc == -ENOENT)
		return 0;
	if (rc < 0)
		return error_errno(err, -rc, "cannot list the module aliases with libkmod");
	if (lseek(fd, 0, SEEK_SET) < 0 || !(f = fdopen(fd, "re")))
		return error_errno(err, errno, "cannot read the module aliases back");
	(void)steal_fd(&fd);
	add_claimants_from(f, to);
	return 0;
}

/* modules.builtin.modinfo: "nouveau.alias=pci:…", each ended by a NUL. */
static void add_claimants_of_modinfo(const struct modules *m, struct strv *to)
{
	CLEANUP_FCLOSE FILE *f = open_text(m, "modules.builtin.modinfo");
	CLEANUP_FREE char *entry = NULL;
	size_t capacity = 0;

	while (f && getdelim(&entry, &capacity, '\0', f) > 0) {
		char *alias = strstr(entry, ".alias=");

		if (!alias || alias != strchr(entry, '.'))
			continue;
		*alias = '\0';
		add_claimant(to, alias + strlen(".alias="), entry);
	}
}

int modules_claimants(const struct modules *m, struct strv *ret, struct strv *ret_builtin,
                      struct error *err)
{
	CLEANUP_ORACLE struct oracle o = {0};
	CLEANUP_STRV struct strv all = {0}, builtin = {0};
	CLEANUP_FCLOSE FILE *text = open_text(m, "modules.alias");

	if (oracle_open(&o, m, err) < 0 ||
	    add_claimants_of_index(&o, KMOD_INDEX_MODULES_ALIAS, &all, err) < 0 ||
	    add_claimants_of_index(&o, KMOD_INDEX_MODULES_BUILTIN_ALIAS, &builtin, err) < 0)
		return -1;
	add_claimants_from(text, &all);
	add_claimants_of_modinfo(m, &builtin);
	for (size_t i = 0; i < COUNT(known_claimants); i++)
		if (list_has(m, "modules.builtin", known_claimants[i]) &&
		    !strv_has(&builtin, known_claimants[i]))
			strv_add(&builtin, known_claimants[i]);
	strv_sort(&all);
	strv_sort(&builtin);
	strv_add_all(ret, &all);
	if (ret_builtin)
		strv_add_all(ret_builtin, &builtin);
	return 0;
}
