/* SPDX-License-Identifier: Apache-2.0 */
/*
 * user: the user's own files and scripts, in the order of the command line, uploads first. A
 * script is put into the image, run there as root, and taken away again; one that fails
 * fails the build.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "builder/digest.h"
#include "builder/generator.h"
#include "stages/stages.h"

#define SCRIPT_DIR       "/var/tmp/gpuimg-run"
#define UPLOAD_MAX_BYTES (256UL * 1024 * 1024)
#define SCRIPT_TIMEOUT_S 3600

/* "SRC:DST" in two; DST is absolute. */
static int split_upload(const char *upload, char **ret_from, char **ret_to, struct error *err)
{
	const char *colon = strrchr(upload, ':');

	if (!colon || colon == upload || colon[1] != '/') {
		error_set(err, "cannot upload '%s': not of the form SRC:/DST", upload);
		error_hint(err,
		           "give a file of this host, a colon, and an absolute path of the image");
		return error_code(err, EXIT_USAGE);
	}
	*ret_from = mem_copy(upload, (size_t)(colon - upload));
	*ret_to = str_copy(colon + 1);
	return 0;
}

static int read_host_file(const char *path, void **ret, size_t *ret_size, mode_t *ret_mode,
                          struct error *err)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CLEANUP_FREE char *data = NULL;
	struct stat st;
	size_t size = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, "cannot read '%s': not a regular file", path);
	if ((uint64_t)st.st_size > UPLOAD_MAX_BYTES)
		return error_set(err, "cannot read '%s': larger than %lu MiB", path,
		                 UPLOAD_MAX_BYTES >> 20);
	data = mem_alloc((size_t)st.st_size + 1);
	while (size < (size_t)st.st_size) {
		ssize_t n = read(fd, data + size, (size_t)st.st_size - size);

		if (n < 0)
			return error_errno(err, errno, "cannot read '%s'", path);
		if (n == 0)
			break;
		size += (size_t)n;
	}
	*ret = STEAL(data);
	*ret_size = size;
	*ret_mode = st.st_mode;
	return 0;
}

static int check_host_file(const char *path, struct error *err)
{
	struct stat st;

	if (stat(path, &st) < 0) {
		error_errno(err, errno, "cannot read '%s'", path);
		return error_code(err, EXIT_USAGE);
	}
	if (!S_ISREG(st.st_mode) || access(path, R_OK) < 0) {
		error_set(err, "cannot read '%s': not a readable regular file", path);
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

/* Inputs of the build like any other: the manifest names their digests. */
static int record(struct build *b, const char *path, struct error *err)
{
	CLEANUP_FREE char *digest = NULL;

	if (check_host_file(path, err) < 0 || digest_file(path, "SHA256", &digest, err) < 0)
		return -1;
	strv_addf(&b->user_digests, "%s  %s", digest, path);
	return 0;
}

/* What goes in is what was digested: a file may have been changed since. */
static int check_recorded(const struct build *b, const char *path, const void *data, size_t size,
                          struct error *err)
{
	CLEANUP_FREE char *digest = digest_memory(data, size);
	CLEANUP_FREE char *line = str_format("%s  %s", digest, path);

	if (strv_has(&b->user_digests, line))
		return 0;
	error_set(err, "'%s' was changed while the build ran", path);
	error_hint(err, "build again");
	return error_code(err, EXIT_INPUT);
}

static int user_check(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->options->upload.count; i++) {
		CLEANUP_FREE char *from = NULL;
		CLEANUP_FREE char *to = NULL;

		if (split_upload(b->options->upload.items[i], &from, &to, err) < 0 ||
		    record(b, from, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < b->options->run.count; i++)
		if (record(b, b->options->run.items[i], err) < 0)
			return -1;
	return 0;
}

static int upload(struct build *b, const char *spec, struct error *err)
{
	CLEANUP_FREE char *from = NULL;
	CLEANUP_FREE char *to = NULL;
	CLEANUP_FREE void *data = NULL;
	size_t size;
	mode_t mode;

	if (split_upload(spec, &from, &to, err) < 0 ||
	    read_host_file(from, &data, &size, &mode, err) < 0 ||
	    check_recorded(b, from, data, size, err) < 0 ||
	    rootfs_write(b->root, to, data, size, mode & 0111 ? 0755 : 0644, err) < 0)
		return error_prefix(err, "cannot upload '%s'", spec);
	log_note(b->log, "uploaded '%s' to '%s'", from, to);
	return 0;
}

static int run_script(struct build *b, const char *path, struct error *err)
{
	static const char inside[] = SCRIPT_DIR "/script";
	const char *const argv[] = {inside, NULL};
	struct guest_command command = {
		.argv = argv,
		.timeout_ms = SCRIPT_TIMEOUT_S * 1000u,
		.network = b->options->network,
	};
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE void *data = NULL;
	size_t size;
	mode_t mode;
	int result;

	if (read_host_file(path, &data, &size, &mode, err) < 0 ||
	    check_recorded(b, path, data, size, err) < 0 ||
	    rootfs_write(b->root, inside, data, size, 0700, err) < 0)
		return -1;
	log_note(b->log, "runs '%s' in the image", path);
	result = rootfs_run(b->root, &command, err);
	if (result < 0) {
		error_prefix(err, "script '%s'", path);
		error_hint(err, "it runs as root inside the image%s",
		           b->options->network ? "" : ", without network (see --network)");
	}
	if (rootfs_remove(b->root, SCRIPT_DIR, result < 0 ? &ignored : err) < 0)
		return -1;
	return result;
}

static int run_scripts(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->options->run.count; i++)
		if (run_script(b, b->options->run.items[i], err) < 0)
			return -1;
	return 0;
}

/* A script may install a kernel, whose hooks run the generator: it is told what we tell it. */
static int run_with_temporary(struct build *b, struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	const struct generator *g = generator_find(b->guest->generator);
	const char *temporary = NULL;
	int result;

	if (generator_put_temporary(&temporary, g, b->guest, b->root, err) < 0)
		return -1;
	result = run_scripts(b, err);
	if (temporary && rootfs_remove(b->root, temporary, result < 0 ? &ignored : err) < 0)
		return -1;
	return result;
}

static int user_apply(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->options->upload.count; i++)
		if (upload(b, b->options->upload.items[i], err) < 0)
			return -1;
	return b->options->run.count ? run_with_temporary(b, err) : 0;
}

const struct stage stage_user = {
	.name = "user",
	.summary = "the user's own files and scripts (--upload, --run)",
	.check = user_check,
	.apply = user_apply,
};
