/* SPDX-License-Identifier: Apache-2.0 */
/* The proof: every stage looks at the exported file, never at the working copy. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "digest.h"
#include "packages.h"
#include "pipeline.h"

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
	return bootchain_read(&b->after, b->result_root, err);
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

/* Reads the exported image, not the working copy. */
int build_prove(struct build *b, struct error *err)
{
	if (read_result(b, err) < 0) {
		err->code = EXIT_PROOF; /* it is our own file that was refused, not an input */
		return error_prefix(err, "cannot read the exported image back");
	}
	for (size_t i = 0; stages[i]; i++)
		if (build_has_stage(b, stages[i]) && stages[i]->verify &&
		    stages[i]->verify(b, err) < 0) {
			err->code = EXIT_PROOF;
			return error_prefix(err, "stage '%s', verify", stages[i]->name);
		}
	if (digest_initramfs(b, err) < 0)
		return -1;
	findings_log(&b->findings, b->log);
	if (b->findings.bad == 0)
		return 0;
	error_set(err, "the proof failed: %zu of %zu points do not hold", b->findings.bad,
	          b->findings.count);
	error_hint(err, "each one is named above with its cure");
	return error_code(err, EXIT_PROOF);
}
