/* SPDX-License-Identifier: Apache-2.0 */
/* SELinux labels of what a build writes, where the image has a policy. */
#include <errno.h>
#include <sys/stat.h>

#include "backend-internal.h"

static int label_path(void *opaque, const char *path, uint32_t mode, char **ret_label,
                      struct error *err)
{
	return selinux_labels_find(ret_label, opaque, path, mode, err);
}

static int order_relabel(struct build *b, const char *why, struct error *err)
{
	if (rootfs_exists(b->root, SELINUX_AUTORELABEL))
		return 0;
	log_warn(b->log, "SELinux: %s, so '%s' is made: %s", why, SELINUX_AUTORELABEL,
	         SELINUX_RELABEL_COST);
	return rootfs_write(b->root, SELINUX_AUTORELABEL, "", 0, 0644, err);
}

int backend_set_labeler(struct build *b, struct selinux_labels **ret, struct error *err)
{
	CLEANUP_FREE char *scratch = str_format("%s/selinux", b->work_dir);
	CLEANUP_ERROR struct error unreadable = ERROR_INIT;

	if (mkdir(scratch, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make '%s'", scratch);
	if (selinux_labels_open(ret, b->root, scratch, &unreadable) < 0)
		return order_relabel(b, unreadable.message, err);
	if (!*ret)
		return 0;
	log_detail(b->log, "new files get the labels of the image's SELinux policy");
	tree_set_labeler(b->tree, label_path, *ret);
	return 0;
}

int backend_relabel_later(struct build *b, struct error *err)
{
	CLEANUP_ERROR struct error unreadable = ERROR_INIT;
	enum selinux_mode mode;

	if (selinux_read_mode(&mode, b->root, &unreadable) < 0)
		return order_relabel(b, unreadable.message, err);
	if (mode == SELINUX_NONE || mode == SELINUX_DISABLED)
		return 0;
	return order_relabel(b, "the appliance writes files without labels", err);
}
