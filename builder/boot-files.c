/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a run of the boot test needs, all in the work directory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "boot-internal.h"
#include "export.h"

#define VARS_MAX_BYTES  (16 << 20)
#define WORK_NEED_BYTES (UINT64_C(512) << 20)

int boot_files_check_space(const char *dir, struct error *err)
{
	struct statvfs fs;
	uint64_t free_bytes;

	if (statvfs(dir, &fs) < 0) {
		error_errno(err, errno, "cannot use the work directory '%s'", dir);
		return error_code(err, EXIT_HOST);
	}
	free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (free_bytes < WORK_NEED_BYTES) {
		CLEANUP_FREE char *have = str_size(free_bytes);
		CLEANUP_FREE char *need = str_size(WORK_NEED_BYTES);

		error_set(err, "cannot run the boot test in '%s': %s free, %s needed", dir, have,
		          need);
		return error_code(err, EXIT_HOST);
	}
	return 0;
}

/* OVMF writes to its variables. */
static int copy_vars(const char *from, const char *to, struct error *err)
{
	CLEANUP_CLOSE int in = open(from, O_RDONLY | O_CLOEXEC);
	CLEANUP_CLOSE int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CLEANUP_FREE char *data = mem_alloc(VARS_MAX_BYTES);
	ssize_t size = in >= 0 && out >= 0 ? read(in, data, VARS_MAX_BYTES) : -1;

	if (size < 0)
		return error_errno(err, errno, "cannot copy '%s' to '%s'", from, to);
	if (size == 0 || size == VARS_MAX_BYTES)
		return error_set(err, "cannot copy '%s' to '%s': not a file of variables", from,
		                 to);
	if (write(out, data, (size_t)size) != size)
		return error_errno(err, errno, "cannot copy '%s' to '%s'", from, to);
	return 0;
}

int boot_files_make(struct boot_files *f, const struct boot_options *o, const char *nonce,
                    unsigned settle_s, struct error *err)
{
	f->overlay = str_format("%s/boot-%s.qcow2", o->work_dir, nonce);
	f->seed = str_format("%s/boot-%s.iso", o->work_dir, nonce);
	if (boot_firmware_is_uefi(o->firmware)) {
		CLEANUP_FREE char *template = NULL;

		if (boot_recipe_firmware(o->firmware, &f->code, &template, err) < 0)
			return -1;
		f->vars = str_format("%s/boot-%s.vars", o->work_dir, nonce);
		if (copy_vars(template, f->vars, err) < 0)
			return error_code(err, EXIT_HOST);
	}
	if (boot_seed_write(f->seed, o->data_dir, nonce, settle_s, o->driver, err) < 0)
		return error_code(err, EXIT_HOST);
	if (export_overlay(f->overlay, o->image, o->format, o->log, err) < 0)
		return error_code(err, EXIT_HOST);
	return 0;
}

static void remove_file(char *path)
{
	if (path)
		unlink(path);
	free(path);
}

void boot_files_remove(struct boot_files *f)
{
	remove_file(f->overlay);
	remove_file(f->seed);
	remove_file(f->vars);
	free(f->code);
}
