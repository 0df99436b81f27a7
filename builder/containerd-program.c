/* SPDX-License-Identifier: Apache-2.0 */
/* Where a guest's programs are, and of which version: from packages, from the program's bytes, or
 * from itself. */
#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "containerd-internal.h"

#define PROGRAM_MAX_BYTES (512UL * 1024 * 1024)
#define VERSION_LETTERS   "0123456789abcdefghijklmnopqrstuvwxyz.+~-"
#define VERSION_MAX       64
#define ASK_TIMEOUT_MS    20000u
#define ASK_MAX_BYTES     4096
#define OPT_DIRECTORIES   32

bool containerd_is_program(struct rootfs *root, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct rootfs_stat st;

	return rootfs_stat(root, path, &st, &ignored) == 1 && S_ISREG(st.mode) && (st.mode & 0111);
}

/* Below /opt each product has a directory of its own. */
static char *find_in_opt(struct rootfs *root, const char *name)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};

	if (!rootfs_is_dir(root, "/opt") || rootfs_list(root, "/opt", &names, &ignored) < 0)
		return NULL;
	for (size_t i = 0; i < names.count && i < OPT_DIRECTORIES; i++) {
		CLEANUP_FREE char *path = str_format("/opt/%s/bin/%s", names.items[i], name);

		if (containerd_is_program(root, path))
			return STEAL(path);
	}
	return NULL;
}

char *containerd_find_program(struct rootfs *root, const char *name)
{
	static const char *const dirs[] = {"/usr/bin",        "/usr/local/bin",       "/usr/sbin",
	                                   "/usr/local/sbin", CONTAINERD_TOOLKIT_DIR, "/opt/bin"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dirs[i], name);

		if (containerd_is_program(root, path))
			return STEAL(path);
	}
	return find_in_opt(root, name);
}

int containerd_bytes_read(struct containerd_bytes *ret, struct rootfs *root, const char *path,
                          struct error *err)
{
	void *data = NULL;
	size_t size;

	if (!containerd_is_program(root, path)) {
		error_set(err, "cannot tell what '%s' is: it is not there, or no program", path);
		return error_code(err, EXIT_INPUT);
	}
	if (rootfs_read(root, path, PROGRAM_MAX_BYTES, &data, &size, err) < 0)
		return error_prefix(err, "cannot tell which release '%s' is", path);
	*ret = (struct containerd_bytes){data, size};
	return 0;
}

void containerd_bytes_free(struct containerd_bytes *bytes)
{
	free(bytes->data);
	*bytes = (struct containerd_bytes){0};
}

char *containerd_version_behind(const struct containerd_bytes *bytes, const char *mark)
{
	const char *data = bytes->data;
	const char *at = data ? memmem(data, bytes->size, mark, strlen(mark)) : NULL;
	size_t length;

	if (!at)
		return NULL;
	at += strlen(mark);
	length = strspn(at, VERSION_LETTERS); /* a NUL ends the data */
	return length > 0 && length < VERSION_MAX ? mem_copy(at, length) : NULL;
}

char *containerd_version_before(const struct containerd_bytes *bytes, const char *mark)
{
	const char *data = bytes->data;
	const char *from = data;

	while (from) {
		size_t left = bytes->size - (size_t)(from - data);
		const char *end = memmem(from, left, mark, strlen(mark));
		const char *at = end;

		while (at && at > data && end - at < VERSION_MAX &&
		       (isdigit((unsigned char)at[-1]) || at[-1] == '.'))
			at--;
		if (at && end > at && isdigit((unsigned char)*at))
			return mem_copy(at, (size_t)(end - at));
		from = end ? end + strlen(mark) : NULL;
	}
	return NULL;
}

bool containerd_bytes_have(const struct containerd_bytes *bytes, const char *text)
{
	return bytes->data && memmem(bytes->data, bytes->size, text, strlen(text));
}

char *containerd_ask_version(struct rootfs *root, const char *program)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	const char *const argv[] = {program, "--version", NULL};
	CLEANUP_FREE char *text = NULL;
	CLEANUP_STRV struct strv words = {0};
	const struct guest_command command = {.argv = argv,
	                                      .timeout_ms = ASK_TIMEOUT_MS,
	                                      .ret_stdout = &text,
	                                      .max_bytes = ASK_MAX_BYTES};

	if (!root->ops->run || rootfs_run(root, &command, &ignored) < 0)
		return NULL;
	words = strv_split(text, " \t\r\n");
	for (size_t i = 0; i < words.count; i++) {
		const char *word = words.items[i] + (*words.items[i] == 'v');
		int ignored_numbers[3];

		if (strspn(word, VERSION_LETTERS) == strlen(word) && strlen(word) < VERSION_MAX &&
		    containerd_version_numbers(word, ignored_numbers))
			return str_copy(word);
	}
	return NULL;
}

bool containerd_version_numbers(const char *version, int ret[3])
{
	const char *epoch = strchr(version, ':');
	const char *at = epoch ? epoch + 1 : version;
	int numbers[3] = {0};
	int count = 0;

	while (count < 3 && isdigit((unsigned char)*at)) {
		size_t length = strspn(at, "0123456789");
		CLEANUP_FREE char *digits = mem_copy(at, length);
		uint64_t number;

		if (str_parse_uint(digits, 99999, &number) < 0)
			return false;
		numbers[count++] = (int)number;
		at += length;
		if (*at != '.')
			break;
		at++;
	}
	if (count < 2)
		return false;
	memcpy(ret, numbers, sizeof(numbers));
	return true;
}

int containerd_read_text(char **ret, struct rootfs *root, const char *path, struct error *err)
{
	struct rootfs_stat st;
	void *text = NULL;
	int found = rootfs_stat(root, path, &st, err);

	if (found < 0)
		return -1;
	if (found == 0)
		return 0;
	if (!S_ISREG(st.mode)) {
		error_set(err, "cannot read '%s': not a regular file", path);
		return error_code(err, EXIT_INPUT);
	}
	if (rootfs_read(root, path, CONTAINERD_TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	free(*ret);
	*ret = text;
	return 0;
}
