/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests/image/containerd.bats: sets a root directory's containerd up as the stage 'containerd'
 * does, in the sandbox, without a disk around it.
 *
 *   containerd-try --tar=FILE DIR
 *
 * unpacks a root, with the owners that the sandbox wants.
 *
 *   containerd-try [--default] [--data-dir=D] DIR
 *
 * Prints "KEY<tab>VALUE" lines; the dump after goes to DIR.dump. Exit codes as gpuimg's.
 */
#include <errno.h>
#include <string.h>

#include "builder/containerd.h"
#include "builder/packages.h"
#include "try-root.h"

#define ROOT_MAX_BYTES (4UL * 1024 * 1024 * 1024)

struct asked {
	const char *dir, *tar, *data_dir;
	bool make_default;
};

static int write_dump(const struct asked *a, const char *text, struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s.dump", a->dir);
	FILE *f = fopen(path, "we");

	if (!f)
		return error_errno(err, errno, "cannot write '%s'", path);
	fputs(text ? text : "", f);
	if (fclose(f) != 0)
		return error_errno(err, errno, "cannot write '%s'", path);
	return 0;
}

static void print_all(const char *key, const struct strv *values)
{
	for (size_t i = 0; i < values->count; i++)
		printf("%s\t%s\n", key, values->items[i]);
}

static int set_up(const struct asked *a, struct rootfs *root, struct log *log, struct error *err)
{
	CLEANUP_STRV struct strv packages = {0};
	CLEANUP(containerd_free) struct containerd c = {0};
	CLEANUP_CONTAINERD_RESULT struct containerd_result r = {0};
	struct containerd_setup setup = {
		.root = root, .containerd = &c, .make_default = a->make_default, .log = log};
	int found;

	if (packages_read(&packages, root, err) < 0)
		return -1;
	found = containerd_find(&c, root, &packages, true, log, err);
	if (found < 0)
		return -1;
	if (!found)
		return containerd_none(root, err);
	printf("version\t%s\nmajor\t%d.%d\nconfig\t%s\n", c.version ? c.version : "unknown",
	       c.major, c.minor, c.config_path);
	fflush(stdout);
	if (containerd_set_up(&r, &setup, err) < 0 || containerd_look_again(&r, &setup, err) < 0)
		return -1;
	printf("by\t%s\n", r.by);
	print_all("edited", &r.edited);
	print_all("note", &r.notes);
	print_all("file", &r.files);
	return write_dump(a, r.dump, err);
}

static int run(const struct asked *a, struct log *log, struct error *err)
{
	CLEANUP_TRY_ROOT struct try_root in = {0};

	if (a->tar)
		return try_root_unpack(&in, a->tar, ROOT_MAX_BYTES, a->dir, NULL, err);
	if (sandbox_check_host(a->dir, err) < 0 ||
	    try_root_open(&in, a->dir, a->data_dir, log, err) < 0)
		return -1;
	return set_up(a, in.root, log, err);
}

int main(int argc, char **argv)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct asked a = {.data_dir = "."};
	struct log *log = NULL;
	int code = EXIT_OK;

	for (int i = 1; i < argc; i++) {
		if (str_starts(argv[i], "--tar="))
			a.tar = strchr(argv[i], '=') + 1;
		else if (str_starts(argv[i], "--data-dir="))
			a.data_dir = strchr(argv[i], '=') + 1;
		else if (strcmp(argv[i], "--default") == 0)
			a.make_default = true;
		else
			a.dir = argv[i];
	}
	if (!a.dir) {
		fputs("usage: containerd-try [--tar=FILE] [--default] [--data-dir=D] DIR\n",
		      stderr);
		return EXIT_USAGE;
	}
	if (log_open(&log, NULL, LOG_VERBOSE, &err) < 0 || run(&a, log, &err) < 0) {
		error_print(&err, log);
		code = (int)error_exit_code(&err);
	}
	log_close(log);
	return code;
}
