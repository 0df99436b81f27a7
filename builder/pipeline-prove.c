/* SPDX-License-Identifier: Apache-2.0 */
/* The proof: every stage looks at the exported file, never at the working copy. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest.h"
#include "generator.h"
#include "packages.h"
#include "pipeline.h"
#include "proof-selinux.h"

#define ENTRY_MAX_BYTES (4UL * 1024 * 1024)

static int read_result(struct build *b, struct error *err)
{
	struct image_info info;

	if (image_check(&info, b->result_path, err) < 0 ||
	    disk_open(&b->result_disk, b->result_path, "qcow2", false, err) < 0 ||
	    disk_probe(b->result_disk, err) < 0 ||
	    build_open_guest(b, b->result_disk, "qcow2", &b->result_reader, &b->result_guest,
	                     &b->result_root, err) < 0)
		return -1;
	if (packages_read(&b->packages_after, b->result_root, err) < 0)
		return -1;
	return build_read_chain(b, &b->after, b->result_root, b->result_guest, err);
}

static int digest_initramfs(struct build *b, struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/digest", b->work_dir);

	for (size_t i = 0; i < b->result_guest->kernel_count; i++) {
		CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		char *digest = NULL;

		if (fd < 0)
			return error_errno(err, errno, "cannot make '%s'", path);
		if (!b->result_guest->kernels[i].has_initramfs) {
			strv_add(&b->initramfs_digests, "");
			continue;
		}
		if (rootfs_copy_out(b->result_root, b->result_guest->kernels[i].initramfs, fd,
		                    err) < 0 ||
		    digest_file(path, "SHA256", &digest, err) < 0)
			return -1;
		strv_take(&b->initramfs_digests, digest);
	}
	unlink(path);
	return 0;
}

/* FAT has no labels. */
static void add_path(const struct build *b, struct strv *paths, const char *path)
{
	if (path && !strv_has(paths, path) &&
	    !guest_mount_is_fat(guest_mount_of(b->result_guest, path)))
		strv_add(paths, path);
}

/* Of entries, some are as the base had them. */
static bool has_changed(const struct build *b, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE void *before = NULL;
	CLEANUP_FREE void *after = NULL;
	size_t before_size, after_size;

	if (rootfs_read(b->base_root, path, ENTRY_MAX_BYTES, &before, &before_size, &ignored) < 0 ||
	    rootfs_read(b->result_root, path, ENTRY_MAX_BYTES, &after, &after_size, &ignored) < 0)
		return true;
	return before_size != after_size || memcmp(before, after, before_size) != 0;
}

/* What our stages wrote, or had written. */
static struct strv written_paths(const struct build *b)
{
	struct strv paths = {0};

	strv_add_all(&paths, &b->block_paths);
	add_path(b, &paths, b->dropin_path);
	if (b->places.kernel_cmdline)
		add_path(b, &paths, KERNEL_CMDLINE_PATH);
	if (b->places.default_grub)
		add_path(b, &paths, DEFAULT_GRUB_PATH);
	for (size_t i = 0; i < b->result_guest->kernel_count; i++)
		if (!b->result_guest->kernels[i].rescue)
			add_path(b, &paths, b->result_guest->kernels[i].initramfs);
	for (size_t i = 0; i < b->after.count; i++)
		if (has_changed(b, b->after.entries[i].file))
			add_path(b, &paths, b->after.entries[i].file);
	return paths;
}

static int prove_labels(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv paths = written_paths(b);
	CLEANUP_FREE char *scratch = str_format("%s/labels", b->work_dir);

	if (mkdir(scratch, 0700) < 0)
		return error_errno(err, errno, "cannot make the directory '%s'", scratch);
	return proof_selinux(&b->findings, b->result_root, &paths, scratch, err);
}

/* What is refused here is our own file, not an input; but a host may fail here too. */
static int not_proven(struct error *err)
{
	if (err->code != EXIT_HOST)
		err->code = EXIT_PROOF;
	return -1;
}

/*
 * Every initramfs has a copy of the block. Where no stage makes it anew, a script of the user's may
 * have done so; else the old one stays, with what it had.
 */
static bool is_proven(const struct build *b, const struct stage *s)
{
	return build_has_stage(b, s) ||
	       (str_equal(s->name, "initramfs") && strv_has(&b->options->stages, "modprobe"));
}

/* Reads the exported image, not the working copy. */
int build_prove(struct build *b, struct error *err)
{
	if (read_result(b, err) < 0) {
		not_proven(err);
		return error_prefix(err, "cannot read the exported image back");
	}
	for (size_t i = 0; stages[i]; i++)
		if (is_proven(b, stages[i]) && stages[i]->verify && stages[i]->verify(b, err) < 0) {
			not_proven(err);
			return error_prefix(err, "stage '%s', verify", stages[i]->name);
		}
	if (prove_labels(b, err) < 0 || digest_initramfs(b, err) < 0)
		return not_proven(err);
	b->has_uefi_loader = guest_has_uefi_loader(b->result_guest, b->result_root);
	build_close_readers(b);
	findings_log(&b->findings, b->log);
	if (b->findings.bad == 0)
		return 0;
	error_set(err, "the proof failed: %zu of %zu points do not hold", b->findings.bad,
	          b->findings.count);
	error_hint(err, "each one is named above with its cure");
	return error_code(err, EXIT_PROOF);
}
