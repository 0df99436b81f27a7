/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "deb-file.h"
#include "digest.h"

#define BLOCK_BYTES        65536
#define CONTROL_MAX_BYTES  ((size_t)1 << 20)  /* the file of that name */
#define MEMBER_MAX_BYTES   ((size_t)32 << 20) /* control.tar.*, packed */
#define UNPACKED_MAX_BYTES ((int64_t)64 << 20)
#define MAX_MEMBERS        64
#define MAX_CONTROL_FILES  4096
#define MAX_FILES_OF_DIR   100000

static void close_archive(struct archive *a)
{
	archive_read_free(a);
}

DEFINE_CLEANUP(archive, struct archive *, close_archive)
#define CLEANUP_ARCHIVE CLEANUP(cleanup_archive)

static int damaged(struct error *err, const char *path, const char *why)
{
	error_set(err, "cannot read the package '%s': %s", path, why);
	return error_code(err, EXIT_INPUT);
}

static int archive_damaged(struct error *err, const char *path, struct archive *a)
{
	return damaged(err, path, archive_error_string(a) ? archive_error_string(a) : "damaged");
}

/* The data of an entry; max_bytes 0: it is read and thrown away, to the end. */
static int read_entry(struct archive *a, size_t max_bytes, char **ret, size_t *ret_size,
                      const char *path, struct error *err)
{
	CLEANUP_FREE char *data = NULL;
	char block[BLOCK_BYTES];
	size_t size = 0;
	la_ssize_t n;

	while ((n = archive_read_data(a, block, sizeof(block))) > 0) {
		if (max_bytes == 0)
			continue;
		if ((size_t)n > max_bytes - size)
			return damaged(err, path, "a part of it is too large");
		data = mem_grow(data, size + (size_t)n + 1, 1);
		memcpy(data + size, block, (size_t)n);
		size += (size_t)n;
	}
	if (n < 0)
		return archive_damaged(err, path, a);
	if (max_bytes > 0) {
		*ret = data ? STEAL(data) : mem_alloc(1);
		(*ret)[size] = '\0';
		*ret_size = size;
	}
	return 0;
}

static bool is_control(const char *name)
{
	return str_equal(name, "./control") || str_equal(name, "control");
}

/* The file 'control' of control.tar, which is in memory. */
static int read_control(char **ret, const char *tar, size_t tar_size, const char *path,
                        struct error *err)
{
	CLEANUP_ARCHIVE struct archive *a = archive_read_new();
	struct archive_entry *entry;
	int64_t total = 0;
	size_t size = 0;
	int result;

	archive_read_support_format_tar(a);
	archive_read_support_filter_gzip(a);
	archive_read_support_filter_xz(a);
	archive_read_support_filter_zstd(a);
	if (archive_read_open_memory(a, tar, tar_size) != ARCHIVE_OK)
		return archive_damaged(err, path, a);
	for (int i = 0; i < MAX_CONTROL_FILES; i++) {
		result = archive_read_next_header(a, &entry);
		if (result == ARCHIVE_EOF)
			break;
		if (result < ARCHIVE_WARN)
			return archive_damaged(err, path, a);
		if (is_control(archive_entry_pathname(entry)) &&
		    archive_entry_filetype(entry) == AE_IFREG) {
			if (read_entry(a, CONTROL_MAX_BYTES, ret, &size, path, err) < 0)
				return -1;
			return strlen(*ret) == size
			               ? 0
			               : damaged(err, path, "its control file is no text");
		}
		total += archive_entry_size(entry);
		if (total > UNPACKED_MAX_BYTES)
			break;
	}
	return damaged(err, path, "it has no control file");
}

struct members {
	char *version; /* of debian-binary */
	char *control_tar;
	size_t control_size;
	bool has_data;
};

static void members_free(struct members *m)
{
	free(m->version);
	free(m->control_tar);
}

/* In the order of deb(5): debian-binary, control.tar.*, data.tar.*. All is read, to the last byte.
 */
static int take_member(struct members *m, struct archive *a, const char *name, const char *path,
                       struct error *err)
{
	size_t size = 0;

	if (!m->version) {
		if (!str_equal(name, "debian-binary"))
			return damaged(err, path,
			               "it is no package: no 'debian-binary' comes first");
		return read_entry(a, 64, &m->version, &size, path, err);
	}
	if (!m->control_tar && str_starts(name, "control.tar"))
		return read_entry(a, MEMBER_MAX_BYTES, &m->control_tar, &m->control_size, path,
		                  err);
	if (str_starts(name, "data.tar")) {
		if (!m->control_tar)
			return damaged(err, path, "its data come before its control files");
		m->has_data = true;
	}
	return read_entry(a, 0, NULL, NULL, path, err);
}

static int read_members(struct members *m, const char *path, struct error *err)
{
	CLEANUP_ARCHIVE struct archive *a = archive_read_new();
	struct archive_entry *entry;
	int result = ARCHIVE_OK;

	archive_read_support_format_ar(a);
	if (archive_read_open_filename(a, path, BLOCK_BYTES) != ARCHIVE_OK)
		return archive_damaged(err, path, a);
	for (int i = 0; i < MAX_MEMBERS; i++) {
		const char *name;

		result = archive_read_next_header(a, &entry);
		if (result == ARCHIVE_EOF)
			break;
		if (result < ARCHIVE_WARN)
			return archive_damaged(err, path, a);
		name = archive_entry_pathname(entry);
		if (take_member(m, a, name ? name : "", path, err) < 0)
			return -1;
	}
	if (!m->version || !str_starts(m->version, "2."))
		return damaged(err, path, "it is no package of format 2");
	if (!m->control_tar || !m->has_data)
		return damaged(err, path, "it ends too early");
	return 0;
}

/* One line of the stanza. Fields that an index adds would say something else of the file. */
static const char *check_line(const char *line, size_t length)
{
	static const char *const of_index[] = {
		"Filename:", "Size:", "SHA256:", "SHA512:", "SHA1:", "MD5sum:", "Status:"};
	const char *colon = memchr(line, ':', length);

	if (length == 0)
		return "its control file has more than one paragraph";
	if (*line == ' ' || *line == '\t')
		return NULL;
	if (!colon || colon == line)
		return "its control file has a line that is no field";
	for (size_t i = 0; i < sizeof(of_index) / sizeof(*of_index); i++)
		if (strncasecmp(line, of_index[i], strlen(of_index[i])) == 0)
			return "its control file has a field that only an index has";
	return NULL;
}

/* The lines that go on behind a field's first one, each without its indent. */
static char *join_folded(char *value, const char *rest)
{
	while (*rest == '\n' && (rest[1] == ' ' || rest[1] == '\t')) {
		size_t indent = strspn(rest + 1, " \t");
		size_t length = strcspn(rest + 1 + indent, "\n");
		char *longer = str_format("%s%s%.*s", value, *value ? " " : "", (int)length,
		                          rest + 1 + indent);

		free(value);
		value = longer;
		rest += 1 + indent + length;
	}
	return value;
}

char *deb_field(const char *stanza, const char *name, bool folded)
{
	size_t length = strlen(name);

	for (const char *line = stanza; line && *line;) {
		const char *end = strchr(line, '\n');

		if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
			const char *value = line + length + 1 + strspn(line + length + 1, " \t");
			char *first = mem_copy(value, strcspn(value, "\n"));
			size_t size = strlen(first);

			while (size > 0 && isspace((unsigned char)first[size - 1]))
				first[--size] = '\0';
			return folded ? join_folded(first, value + strcspn(value, "\n")) : first;
		}
		line = end ? end + 1 : NULL;
	}
	return NULL;
}

static bool is_only(const char *s, const char *more)
{
	CLEANUP_FREE char *allowed = str_format(
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%s", more);

	return s && *s && !s[strspn(s, allowed)];
}

/* Blank lines at both ends are no part of the stanza. */
static char *strip_control(const char *text)
{
	size_t length;

	text += strspn(text, "\n");
	length = strlen(text);
	while (length > 0 && strchr("\n \t", text[length - 1]))
		length--;
	return str_format("%.*s\n", (int)length, text);
}

static int check_control(struct deb_file *deb, const char *path, struct error *err)
{
	if (strchr(deb->control, '\r'))
		return damaged(err, path, "its control file has carriage returns");
	for (const char *line = deb->control; *line;) {
		size_t length = strcspn(line, "\n");
		const char *wrong = check_line(line, length);

		if (wrong)
			return damaged(err, path, wrong);
		line += length + 1;
	}
	deb->package = deb_field(deb->control, "Package", false);
	deb->version = deb_field(deb->control, "Version", false);
	deb->architecture = deb_field(deb->control, "Architecture", false);
	if (!is_only(deb->package, "+.-") || !is_only(deb->version, "+.-:~") ||
	    !is_only(deb->architecture, "-"))
		return damaged(err, path, "it has no valid Package, Version and Architecture");
	return 0;
}

void deb_file_free(struct deb_file *deb)
{
	free(deb->name);
	free(deb->package);
	free(deb->version);
	free(deb->architecture);
	free(deb->control);
	free(deb->sha256);
	*deb = (struct deb_file){0};
}

static int check_file(const char *path, uint64_t *ret_size, struct error *err)
{
	struct stat st;

	if (stat(path, &st) < 0) {
		error_errno(err, errno, "cannot read the package '%s'", path);
		return error_code(err, EXIT_INPUT);
	}
	if (!S_ISREG(st.st_mode))
		return damaged(err, path, "it is no regular file");
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

int deb_file_read(struct deb_file *ret, const char *path, struct error *err)
{
	struct members m CLEANUP(members_free) = {0};
	struct deb_file deb CLEANUP(deb_file_free) = {0};
	const char *slash = strrchr(path, '/');
	CLEANUP_FREE char *control = NULL;

	deb.name = str_copy(slash ? slash + 1 : path);
	if (!is_only(deb.name, "+.-_~:%@=,"))
		return damaged(err, path, "its name has characters that no package's file has");
	if (check_file(path, &deb.size_bytes, err) < 0 || read_members(&m, path, err) < 0 ||
	    read_control(&control, m.control_tar, m.control_size, path, err) < 0)
		return -1;
	deb.control = strip_control(control);
	if (check_control(&deb, path, err) < 0 || digest_file(path, "SHA256", &deb.sha256, err) < 0)
		return -1;
	*ret = deb;
	deb = (struct deb_file){0};
	return 0;
}

void deb_dir_free(struct deb_file *debs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		deb_file_free(&debs[i]);
	free(debs);
}

static int list_debs(struct strv *ret, const char *path, struct error *err)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;

	if (!dir) {
		error_errno(err, errno, "cannot read the directory of packages '%s'", path);
		return error_code(err, EXIT_INPUT);
	}
	while ((entry = readdir(dir)) && ret->count < MAX_FILES_OF_DIR)
		if (str_ends(entry->d_name, ".deb"))
			strv_add(ret, entry->d_name);
	closedir(dir);
	strv_sort(ret);
	if (ret->count > 0)
		return 0;
	error_set(err, "the directory '%s' has no .deb files", path);
	return error_code(err, EXIT_INPUT);
}

int deb_dir_read(struct deb_file **ret, size_t *ret_count, const char *dir, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	struct deb_file *debs;

	if (list_debs(&names, dir, err) < 0)
		return -1;
	debs = mem_grow(NULL, names.count, sizeof(*debs));
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names.items[i]);

		if (deb_file_read(&debs[i], path, err) < 0) {
			deb_dir_free(debs, i);
			return -1;
		}
	}
	*ret = debs;
	*ret_count = names.count;
	return 0;
}

char *deb_dir_index(const struct deb_file *debs, size_t count)
{
	CLEANUP_STRV struct strv stanzas = {0};

	for (size_t i = 0; i < count; i++)
		strv_addf(&stanzas, "%sFilename: ./%s\nSize: %llu\nSHA256: %s\n", debs[i].control,
		          debs[i].name, (unsigned long long)debs[i].size_bytes, debs[i].sha256);
	return strv_join(&stanzas, "\n");
}
