/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "export-internal.h"
#include "proc.h"
#include "str.h"

#define CONVERT_TIMEOUT_MS (3600u * 1000)
#define CREATE_TIMEOUT_MS  (60u * 1000)
#define CONVERT_CLUSTER    (UINT64_C(64) << 10) /* QEMU's own choice */

/* qemu-img -p: "    (12.34/100%)" */
static void on_progress(void *opaque, const char *line)
{
	const char *at = strchr(line, '(');

	if (at)
		log_step_progress(opaque, strtod(at + 1, NULL) / 100, NULL);
}

/* Flushed before the rename that makes it the artifact: a full disk must show itself here. */
static int flush_file(const char *path, uint64_t *ret_bytes, struct error *err)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st = {0};
	int result = fd < 0 || fstat(fd, &st) < 0 || fsync(fd) < 0 ? -1 : 0;
	int errnum = errno;

	if (fd >= 0 && close(fd) < 0 && result == 0) {
		errnum = errno;
		result = -1;
	}
	*ret_bytes = (uint64_t)st.st_size;
	return result < 0 ? error_errno(err, errnum, "cannot write '%s'", path) : 0;
}

static int convert(const struct export_options *o, enum compression compression, struct error *err)
{
	CLEANUP_STRV struct strv argv = {0};
	const struct proc_options options = {
		.log = o->log,
		.timeout_ms = CONVERT_TIMEOUT_MS,
		.on_line = on_progress,
		.opaque = o->log,
	};

	strv_add(&argv, "qemu-img");
	strv_add(&argv, "convert");
	strv_add(&argv, "-p");
	strv_add(&argv, "-f");
	strv_add(&argv, "qcow2");
	strv_add(&argv, "-O");
	strv_add(&argv, "qcow2");
	if (compression != COMPRESSION_NONE) {
		strv_add(&argv, "-c");
		strv_add(&argv, "-o");
		strv_addf(&argv, "compression_type=%s", compression_name(compression));
	}
	strv_addf(&argv, "file:%s", o->overlay);
	strv_addf(&argv, "file:%s", o->to);
	return proc_run((const char *const *)argv.items, &options, NULL, 0, err);
}

/* The way for features that only QEMU knows. It would overwrite a file that is there. */
static int export_by_qemu(const struct export_options *o, enum compression compression,
                          struct export_stats *stats, struct error *err)
{
	int fd = open(o->to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	if (fd < 0)
		return error_errno(err, errno, "cannot create '%s'", o->to);
	close(fd);
	stats->method = "qemu-img";
	stats->cluster_bytes = CONVERT_CLUSTER;
	if (convert(o, compression, err) < 0 || flush_file(o->to, &stats->bytes, err) < 0) {
		unlink(o->to);
		return error_prefix(err, "cannot export the image to '%s'", o->to);
	}
	return 0;
}

/* NULL: as the base has it; zstd if nothing in the base is compressed. */
static int choose_compression(const struct export_options *o, struct content *c,
                              enum compression *ret, struct error *err)
{
	bool compressed = false;

	if (o->compression) {
		if (compression_parse(o->compression, ret) == 0)
			return 0;
		error_code(err, EXIT_USAGE);
		return error_set(err, "cannot export the image: '%s' is no compression",
		                 o->compression);
	}
	if (c->base.map && qcow2_map_has_compressed(c->base.map, &compressed, err) < 0)
		return -1;
	*ret = compressed ? c->base.compression : COMPRESSION_ZSTD;
	return 0;
}

static const char *unknown_feature(const struct content *c, const struct export_options *o,
                                   const char **ret_path)
{
	const char *feature = qcow2_map_unknown(c->overlay.map);

	*ret_path = o->overlay;
	if (feature || !c->base.map)
		return feature;
	*ret_path = o->base;
	return qcow2_map_unknown(c->base.map);
}

int export_with_threads(const struct export_options *options, unsigned threads,
                        struct export_stats *ret, struct error *err)
{
	CLEANUP_CONTENT struct content *c = NULL;
	struct export_stats stats = {.method = "clusters"};
	enum compression compression = COMPRESSION_NONE;
	const char *feature, *path;

	if (content_open(&c, options->overlay, options->base, options->base_format, err) < 0 ||
	    choose_compression(options, c, &compression, err) < 0)
		return -1;
	stats.compression = compression_name(compression);
	feature = unknown_feature(c, options, &path);
	if (feature) {
		log_note(options->log,
		         "image '%s' has %s: qemu-img converts it, which takes longer", path,
		         feature);
		if (export_by_qemu(options, compression, &stats, err) < 0)
			return -1;
	} else {
		stats.cluster_bytes = UINT64_C(1) << c->cluster_bits;
		if (export_clusters(c, options, compression, threads, &stats, err) < 0)
			return -1;
	}
	*ret = stats;
	return 0;
}

int export_image(const struct export_options *options, struct export_stats *ret, struct error *err)
{
	return export_with_threads(options, 0, ret, err);
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
