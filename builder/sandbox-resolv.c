/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's /etc/resolv.conf is a file, a link into /run that dangles here, a link to
 * anywhere, or missing. Programs in the sandbox shall find the host's; the image shall keep
 * its own. In the sandbox's own /run and /tmp, and over a file, the host's is simply bound. For
 * all else an empty file takes the entry's place for the time of the run.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "sandbox-private.h"

#define RESOLV_CONF    "/etc/resolv.conf"
#define HOST_MAX_BYTES ((size_t)64 * 1024)

/* A copy in memory: what bubblewrap binds need not be readable by the shifted ids. */
static int open_host_copy(struct log *log, struct error *err)
{
	CLEANUP_CLOSE int from = open(RESOLV_CONF, O_RDONLY | O_CLOEXEC);
	CLEANUP_CLOSE int to = memfd_create("resolv.conf", MFD_CLOEXEC);
	CLEANUP_FREE char *data = mem_alloc(HOST_MAX_BYTES);
	ssize_t size = from < 0 ? 0 : read(from, data, HOST_MAX_BYTES);

	if (from < 0)
		log_warn(log,
		         "this host has no '%s', name resolution may fail in the sandbox, "
		         "ignoring",
		         RESOLV_CONF);
	if (size < 0)
		return error_errno(err, errno, "cannot read the host's '%s'", RESOLV_CONF);
	if (to < 0 || write(to, data, (size_t)size) != size || lseek(to, 0, SEEK_SET) < 0)
		return error_errno(err, errno, "cannot copy the host's '%s'", RESOLV_CONF);
	return steal_fd(&to);
}

static bool in_own_tmpfs(const char *path)
{
	return path && (str_starts(path, "/run/") || str_starts(path, "/tmp/"));
}

static bool in_other_mount(const char *path)
{
	return str_starts(path, "/proc/") || str_starts(path, "/dev/") || str_starts(path, "/sys/");
}

static int remember(struct resolv *resolv, struct rootfs *tree, struct error *err)
{
	struct rootfs_stat st;
	int found = rootfs_lstat(tree, RESOLV_CONF, &st, err);

	if (found < 0)
		return -1;
	resolv->was_missing = found == 0;
	if (found == 0)
		return 0;
	if (S_ISLNK(st.mode))
		return rootfs_readlink(tree, RESOLV_CONF, &resolv->was_link, err);
	if (!S_ISREG(st.mode)) {
		error_set(err, "the image's '%s' is neither a file nor a link", RESOLV_CONF);
		return error_code(err, EXIT_INPUT);
	}
	resolv->was_inode = st.inode;
	return 0;
}

/* Where the host's file can be bound without a change of the tree; NULL: nowhere. */
static int find_bind_path(char **ret, struct rootfs *tree, struct error *err)
{
	CLEANUP_ERROR struct error loop = ERROR_INIT;
	CLEANUP_FREE char *end = NULL;
	struct rootfs_stat st;
	int found;

	*ret = NULL;
	if (rootfs_resolve_new(tree, RESOLV_CONF, &end, &loop) < 0 || !end)
		return 0; /* a link that leads nowhere at all */
	if (in_own_tmpfs(end)) {
		*ret = STEAL(end);
		return 0;
	}
	found = in_other_mount(end) ? 0 : rootfs_lstat(tree, end, &st, err);
	if (found == 1 && S_ISREG(st.mode))
		*ret = STEAL(end);
	return found < 0 ? -1 : 0;
}

static void forget(struct resolv *resolv)
{
	free(resolv->bind_path);
	free(resolv->was_link);
	if (resolv->data_fd >= 0)
		close(resolv->data_fd);
	*resolv = (struct resolv){.data_fd = -1};
}

static int prepare(struct resolv *resolv, struct rootfs *tree, struct log *log, struct error *err)
{
	resolv->data_fd = open_host_copy(log, err);
	if (resolv->data_fd < 0 || remember(resolv, tree, err) < 0 ||
	    find_bind_path(&resolv->bind_path, tree, err) < 0)
		return -1;
	if (resolv->bind_path)
		return 0;
	if (rootfs_write(tree, RESOLV_CONF, "", 0, 0644, err) < 0)
		return -1;
	if (rootfs_resolve(tree, RESOLV_CONF, false, &resolv->bind_path, err) < 0) {
		CLEANUP_ERROR struct error second = ERROR_INIT;

		resolv_restore(resolv, tree, &second);
		return -1;
	}
	return 0;
}

int resolv_prepare(struct resolv *ret, struct rootfs *tree, struct log *log, struct error *err)
{
	struct resolv resolv = {.data_fd = -1};

	if (prepare(&resolv, tree, log, err) < 0) {
		forget(&resolv);
		return error_prefix(err, "cannot give the sandbox name resolution");
	}
	*ret = resolv;
	return 0;
}

static int restore_link(const char *target, struct rootfs *tree, struct error *err)
{
	CLEANUP_FREE char *now = NULL;
	struct rootfs_stat st;
	int found = rootfs_lstat(tree, RESOLV_CONF, &st, err);

	if (found < 0)
		return -1;
	if (found == 1 && S_ISLNK(st.mode)) {
		if (rootfs_readlink(tree, RESOLV_CONF, &now, err) < 0)
			return -1;
		if (str_equal(now, target))
			return 0;
	}
	if (found == 1 && S_ISDIR(st.mode) && rootfs_remove(tree, RESOLV_CONF, err) < 0)
		return -1;
	return rootfs_symlink(tree, target, RESOLV_CONF, err);
}

/* It was bound over, which keeps a program from replacing it: only its directory could go. */
static int check_same_file(uint64_t inode, struct rootfs *tree, struct error *err)
{
	struct rootfs_stat st;
	int found = rootfs_lstat(tree, RESOLV_CONF, &st, err);

	if (found < 0)
		return -1;
	if (found == 1 && S_ISREG(st.mode) && st.inode == inode)
		return 0;
	return error_set(err, "a program in the sandbox took '/etc' away");
}

int resolv_restore(struct resolv *resolv, struct rootfs *tree, struct error *err)
{
	int result;

	if (resolv->was_link)
		result = restore_link(resolv->was_link, tree, err);
	else if (resolv->was_missing)
		result = rootfs_remove(tree, RESOLV_CONF, err);
	else
		result = check_same_file(resolv->was_inode, tree, err);
	forget(resolv);
	return result < 0 ? error_prefix(err, "cannot restore the image's '%s'", RESOLV_CONF) : 0;
}
