/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seed volume: user-data and meta-data for cloud-init's NoCloud datasource, from templates
 * that are data (boot/smoke/), on an ISO 9660 volume labelled "cidata".
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>

#include "boot-internal.h"

#define TEMPLATE_MAX_BYTES 65536

DEFINE_CLEANUP(archive_write, struct archive *, archive_write_free)
DEFINE_CLEANUP(archive_entry, struct archive_entry *, archive_entry_free)

static int read_template(const char *data_dir, const char *name, char **ret, struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/boot/smoke/%s", data_dir, name);
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CLEANUP_FREE char *text = mem_alloc(TEMPLATE_MAX_BYTES + 2);
	ssize_t size = fd >= 0 ? read(fd, text, TEMPLATE_MAX_BYTES + 1) : -1;

	if (size < 0) {
		error_errno(err, errno, "cannot read the boot test's '%s'", path);
		return error_hint(err, "run from the source tree, or pass --data-dir=DIR");
	}
	if (size == 0 || size > TEMPLATE_MAX_BYTES)
		return error_set(err, "the boot test's '%s' is empty or larger than %d bytes", path,
		                 TEMPLATE_MAX_BYTES);
	*ret = STEAL(text);
	return 0;
}

/* Every 'what' in *text becomes 'with'. */
static void replace_all(char **text, const char *what, const char *with)
{
	CLEANUP_STRV struct strv parts = {0};
	char *at = *text, *next;

	for (; (next = strstr(at, what)); at = next + strlen(what))
		strv_take(&parts, mem_copy(at, (size_t)(next - at)));
	strv_add(&parts, at);
	free(*text);
	*text = strv_join(&parts, with);
}

/* YAML reads JSON strings as they are: no indenting, no quoting rules of a third kind. */
static char *json_quoted(const char *text)
{
	json_t *string = json_string(text);
	char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;

	json_decref(string);
	return quoted;
}

static int user_data(const char *data_dir, const char *nonce, unsigned settle_s, bool driver,
                     char **ret, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *script = NULL;
	CLEANUP_FREE char *quoted = NULL;
	CLEANUP_FREE char *settle = str_format("%u", settle_s);

	if (read_template(data_dir, "user-data", &text, err) < 0 ||
	    read_template(data_dir, "facts.sh", &script, err) < 0)
		return -1;
	quoted = json_quoted(script);
	if (!quoted)
		return error_set(err, "the boot test's 'facts.sh' is not UTF-8");
	/* The script last: the other names may stand in it. */
	replace_all(&text, "@NONCE@", nonce);
	replace_all(&text, "@SETTLE@", settle);
	replace_all(&text, "@MODALIAS@", FAKE_GPU_MODALIAS);
	replace_all(&text, "@DRIVER@", driver ? "nvidia" : "");
	replace_all(&text, "@SCRIPT@", quoted);
	*ret = STEAL(text);
	return 0;
}

static int add_file(struct archive *a, const char *name, const char *text)
{
	CLEANUP(cleanup_archive_entry) struct archive_entry *entry = archive_entry_new();
	size_t size = strlen(text);

	archive_entry_set_pathname(entry, name);
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_perm(entry, 0444);
	archive_entry_set_size(entry, (la_int64_t)size);
	archive_entry_set_mtime(entry, 0, 0);
	if (archive_write_header(a, entry) != ARCHIVE_OK)
		return -1;
	return archive_write_data(a, text, size) == (la_ssize_t)size ? 0 : -1;
}

static int write_iso(int fd, const char *meta, const char *user)
{
	CLEANUP(cleanup_archive_write) struct archive *a = archive_write_new();

	if (archive_write_set_format_iso9660(a) != ARCHIVE_OK ||
	    archive_write_set_options(a, "volume-id=cidata,joliet,rockridge=useful") !=
	            ARCHIVE_OK ||
	    archive_write_add_filter_none(a) != ARCHIVE_OK ||
	    archive_write_open_fd(a, fd) != ARCHIVE_OK || add_file(a, "meta-data", meta) < 0 ||
	    add_file(a, "user-data", user) < 0)
		return -1;
	return archive_write_close(a) == ARCHIVE_OK ? 0 : -1;
}

int boot_seed_write(const char *path, const char *data_dir, const char *nonce, unsigned settle_s,
                    bool driver, struct error *err)
{
	CLEANUP_FREE char *meta = NULL;
	CLEANUP_FREE char *user = NULL;
	CLEANUP_CLOSE int fd = -1;

	if (read_template(data_dir, "meta-data", &meta, err) < 0 ||
	    user_data(data_dir, nonce, settle_s, driver, &user, err) < 0)
		return -1;
	replace_all(&meta, "@NONCE@", nonce);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(err, errno, "cannot make the seed volume '%s'", path);
	errno = 0;
	if (write_iso(fd, meta, user) < 0)
		return error_errno(err, errno ? errno : EIO, "cannot write the seed volume '%s'",
		                   path);
	return 0;
}
