/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tar of changes over a tree that is there: what an earlier build's packages came to. Members are
 * put into place as those of a whole root are (tree-untar.c); the index stays that of the base.
 */
#include <errno.h>
#include <sys/xattr.h>

#include "tree-untar.h"

int untar_drop_xattrs(const struct tree_place *p, struct error *err)
{
	struct rootfs_xattr *xattrs = NULL;
	size_t count = 0;
	int result = 0;

	if (tree_xattrs_get(p->dir_fd, p->name, &xattrs, &count) < 0)
		return error_errno(err, errno, "cannot read the extended attributes of '%s'",
		                   p->path);
	for (size_t i = 0; i < count && result == 0; i++)
		if (fremovexattr(p->fd, xattrs[i].name) < 0 && errno != ENODATA)
			result = error_errno(err, errno, "cannot take '%s' off '%s'",
			                     xattrs[i].name, p->path);
	rootfs_xattrs_free(xattrs, count);
	return result;
}

int tree_apply_tar(struct tree *tree, int fd, uint64_t max_bytes, struct error *err)
{
	struct untar u = {.tree = tree, .fd = fd, .max_bytes = max_bytes, .over_tree = true};
	int result = untar_members(&u, err);

	if (result == 0)
		result = untar_place_orphans(&u, err);
	if (result == 0)
		untar_set_dir_times(&u);
	untar_free(&u);
	if (result < 0)
		return error_prefix(err, "cannot unpack changes over '%s'", tree->dir);
	if (u.lost_xattrs)
		log_warn(tree->log, "%llu extended attributes cannot be kept in '%s', ignoring",
		         (unsigned long long)u.lost_xattrs, tree->dir);
	return 0;
}
