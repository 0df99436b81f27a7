/* SPDX-License-Identifier: Apache-2.0 */
/* What a name in the tree gets besides its content, from whatever source. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "tree-private.h"

int tree_place_fail(const struct tree_place *p, struct error *err)
{
	return error_errno(err, errno, "cannot make '%s' in the sandbox's tree", p->path);
}

int tree_place_refuse(const char *path, const char *why, struct error *err)
{
	error_set(err, "cannot copy '%s' out of the image: %s", path, why);
	return error_code(err, EXIT_INPUT);
}

int tree_place_set_owner(const struct tree_place *p, struct error *err)
{
	uint32_t uid, gid;

	if (!tree_id_to_host(p->st.uid, &uid) || !tree_id_to_host(p->st.gid, &gid)) {
		error_set(err,
		          "cannot copy '%s' out of the image: its owner %u:%u is outside the ids "
		          "that the sandbox maps (0 to %u)",
		          p->path, p->st.uid, p->st.gid, TREE_UID_COUNT - 1);
		error_hint(err, "--exec=appliance needs no such mapping");
		return error_code(err, EXIT_INPUT);
	}
	if (p->fd >= 0 ? fchown(p->fd, uid, gid) < 0
	               : fchownat(p->dir_fd, p->name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return tree_place_fail(p, err);
	return 0;
}

int tree_place_set_xattr(const struct tree_place *p, const struct rootfs_xattr *xattr,
                         struct log *log, uint64_t *lost, struct error *err)
{
	if (tree_xattr_set(p->dir_fd, p->name, xattr) == 0)
		return 0;
	if (errno != ENOTSUP && errno != EPERM && errno != ENOSPC)
		return error_errno(err, errno, "cannot set '%s' of '%s'", xattr->name, p->path);
	log_detail(log, "'%s': this host cannot keep '%s', ignoring", p->path, xattr->name);
	(*lost)++;
	return 0;
}

static int set_times(const struct tree_place *p)
{
	const struct timespec time = {.tv_sec = p->st.mtime_s, .tv_nsec = p->st.mtime_ns};
	const struct timespec times[2] = {time, time};

	return p->fd >= 0 ? futimens(p->fd, times)
	                  : utimensat(p->dir_fd, p->name, times, AT_SYMLINK_NOFOLLOW);
}

static int stat_place(const struct tree_place *p, struct stat *ret)
{
	return p->fd >= 0 ? fstat(p->fd, ret)
	                  : fstatat(p->dir_fd, p->name, ret, AT_SYMLINK_NOFOLLOW);
}

/* The mode only if it is not right yet, which the umask and chown decide. */
int tree_place_finish(const struct tree_place *p, struct stat *ret, struct error *err)
{
	if (set_times(p) < 0 || stat_place(p, ret) < 0)
		return tree_place_fail(p, err);
	if (S_ISLNK(ret->st_mode) || (ret->st_mode & 07777) == (p->st.mode & 07777))
		return 0;
	if ((p->fd >= 0 ? fchmod(p->fd, p->st.mode & 07777)
	                : fchmodat(p->dir_fd, p->name, p->st.mode & 07777, 0)) < 0 ||
	    stat_place(p, ret) < 0)
		return tree_place_fail(p, err);
	return 0;
}
