/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "export.h"
#include "proc.h"
#include "str.h"

#define CONVERT_TIMEOUT_MS (3600u * 1000)
#define CREATE_TIMEOUT_MS  (60u * 1000)

/* qemu-img -p: "    (12.34/100%)" */
static void on_progress(void *opaque, const char *line)
{
	const char *at = strchr(line, '(');

	if (at)
		log_step_progress(opaque, strtod(at + 1, NULL) / 100, NULL);
}

/* Flushed before the rename that makes it the artifact: a full disk must show itself here. */
static int flush_file(const char *path, struct error *err)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int result = fd < 0 || fsync(fd) < 0 ? -1 : 0;
	int errnum = errno;

	if (fd >= 0 && close(fd) < 0 && result == 0) {
		errnum = errno;
		result = -1;
	}
	return result < 0 ? error_errno(err, errnum, "cannot write '%s'", path) : 0;
}

int export_image(const char *overlay, const char *to, const char *compression, struct log *log,
                 struct error *err)
{
	CLEANUP_STRV struct strv argv = {0};
	const struct proc_options options = {
		.log = log,
		.timeout_ms = CONVERT_TIMEOUT_MS,
		.on_line = on_progress,
		.opaque = log,
	};

	strv_add(&argv, "qemu-img");
	strv_add(&argv, "convert");
	strv_add(&argv, "-p");
	strv_add(&argv, "-f");
	strv_add(&argv, "qcow2");
	strv_add(&argv, "-O");
	strv_add(&argv, "qcow2");
	if (strcmp(compression, "none") != 0) {
		strv_add(&argv, "-c");
		strv_add(&argv, "-o");
		strv_addf(&argv, "compression_type=%s", compression);
	}
	strv_addf(&argv, "file:%s", overlay);
	strv_addf(&argv, "file:%s", to);
	if (proc_run((const char *const *)argv.items, &options, NULL, 0, err) < 0)
		return error_prefix(err, "cannot export the image to '%s'", to);
	return flush_file(to, err);
}

/* The backing file's name is stored in the overlay: as JSON, where no byte has a meaning. */
int export_overlay(const char *overlay, const char *base, const char *base_format, struct log *log,
                   struct error *err)
{
	CLEANUP_FREE char *real = realpath(base, NULL);
	CLEANUP_FREE char *encoded = NULL;
	CLEANUP_FREE char *backing = NULL;
	CLEANUP_FREE char *target = str_format("file:%s", overlay);
	json_t *node;
	const struct proc_options options = {.log = log, .timeout_ms = CREATE_TIMEOUT_MS};

	if (!real)
		return error_errno(err, errno, "cannot read '%s'", base);
	node = json_pack("{s:s, s:{s:s, s:s}}", "driver", base_format, "file", "driver", "file",
	                 "filename", real);
	encoded = node ? json_dumps(node, JSON_COMPACT) : NULL;
	json_decref(node);
	if (!encoded)
		return error_set(err, "cannot use '%s': its name is not UTF-8", base);
	backing = str_format("json:%s", encoded);
	const char *const argv[] = {"qemu-img",  "create", "-q",    "-f",   "qcow2", "-F",
	                            base_format, "-b",     backing, target, NULL};

	if (proc_run(argv, &options, NULL, 0, err) < 0)
		return error_prefix(err, "cannot make an overlay over '%s'", base);
	return 0;
}
