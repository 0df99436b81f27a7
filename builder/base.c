/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "base.h"
#include "cache.h"
#include "data.h"
#include "fetch.h"
#include "pipeline.h"
#include "proc.h"

#define MAKE_BASE_TIMEOUT_MS (3600u * 1000)

/* The maker's lines are its steps. */
static void on_maker_line(void *opaque, const char *line)
{
	log_step_progress(opaque, -1, line);
}

/* No base given: the project's own small Debian, from the machine's own mirror. */
static int make_base(struct build *b, struct error *err)
{
	CLEANUP_FREE char *script = data_make_base(b->data_dir);
	CLEANUP_FREE char *cache = str_format("%s/bases", b->options->cache_dir);
	CLEANUP_FREE char *path = str_format("%s/default-base.qcow2", b->options->cache_dir);
	const char *const argv[] = {"bash", script, "--cache-dir", cache, "--output", path, NULL};
	const struct proc_options options = {
		.log = b->log,
		.timeout_ms = MAKE_BASE_TIMEOUT_MS,
		.on_line = on_maker_line,
		.opaque = b->log,
	};

	if (proc_run(argv, &options, NULL, 0, err) < 0) {
		error_prefix(err, "cannot make the default base");
		return error_hint(err, "name a base image, or see 'gpuimg make-base --help'");
	}
	b->base_path = STEAL(path);
	return 0;
}

static int fetch(struct build *b, struct error *err)
{
	const struct options *o = b->options;
	CLEANUP_FREE char *cache = str_format("%s/downloads", o->cache_dir);
	const struct fetch_options options = {
		.url = o->base,
		.sha256 = o->base_sha256,
		.sums_url = o->base_sums,
		.cache_dir = cache,
		.log = b->log,
	};
	CLEANUP_FREE char *digest = NULL;

	if (fetch_base(&options, &b->base_path, &digest, err) < 0)
		return -1;
	if (str_starts(digest, "sha256:"))
		b->base_digest = str_copy(digest + strlen("sha256:"));
	return 0;
}

static int get(struct build *b, struct error *err)
{
	const char *base = b->options->base;
	int result;

	if (base && !fetch_is_url(base)) {
		b->base_path = str_copy(base);
		return 0;
	}
	result = base ? build_step(b, "fetch", "fetch the base", fetch, err)
	              : build_step(b, "base", "make the default base, or take it from the cache",
	                           make_base, err);
	if (result < 0)
		return -1;
	b->base_hold_fd = cache_hold(b->base_path);
	return 0;
}

int base_get(struct build *b, struct error *err)
{
	if (get(b, err) < 0)
		return -1;
	/* What cannot be looked at is refused by the preflight, in its words. */
	if (stat(b->base_path, &b->base_stat) < 0)
		b->base_stat = (struct stat){0};
	return 0;
}

int base_check_same(const struct build *b, struct error *err)
{
	const struct stat *then = &b->base_stat;
	struct stat now;

	if (stat(b->base_path, &now) == 0 && now.st_dev == then->st_dev &&
	    now.st_ino == then->st_ino && now.st_size == then->st_size &&
	    now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
	    now.st_mtim.tv_nsec == then->st_mtim.tv_nsec &&
	    now.st_ctim.tv_sec == then->st_ctim.tv_sec &&
	    now.st_ctim.tv_nsec == then->st_ctim.tv_nsec)
		return 0;
	error_set(err, "base '%s': the file was changed or replaced while the build ran",
	          b->base_path);
	error_hint(err, "build again, from a copy that nobody else writes");
	return error_code(err, EXIT_INPUT);
}
