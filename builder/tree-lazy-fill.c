/* SPDX-License-Identifier: Apache-2.0 */
/* What the filling thread does to one file. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "fd.h"
#include "tree-lazy.h"

#define CAPABILITY     "security.capability"
#define CAPABILITY_MAX 64
#define AT_ONCE_BYTES  (4 << 20)
#define HOLE_BYTES     65536 /* of zeros: the source may have a hole there */
#define WRITER_TRIES   200   /* of a millisecond */

static int fill_fail(const char *path, struct error *err)
{
	return error_errno(err, errno, "cannot write '%s' in the sandbox's tree", path);
}

/* What a write takes from a file. */
struct kept {
	char capability[CAPABILITY_MAX];
	ssize_t capability_size;
	struct stat st;
};

/* The time first: who looks at the file meanwhile sees another one only for this moment. */
static int restore(int fd, const struct kept *kept)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, kept->st.st_mtim};

	if (futimens(fd, times) < 0)
		return -1;
	if (kept->capability_size > 0 &&
	    fsetxattr(fd, CAPABILITY, kept->capability, (size_t)kept->capability_size, 0) < 0)
		return -1;
	return (kept->st.st_mode & 06000) ? fchmod(fd, kept->st.st_mode & 07777) : 0;
}

static bool has_hole(const char *data, size_t size)
{
	static const char zeros[HOLE_BYTES];

	for (size_t at = 0; at + HOLE_BYTES <= size; at += HOLE_BYTES)
		if (memcmp(data + at, zeros, HOLE_BYTES) == 0)
			return true;
	return false;
}

/*
 * Most files, in one write: between that and restore() the file has the wrong mtime, and cp -p of
 * another program would take it over. 0: done, 1: not for this way, -1.
 */
static int write_at_once(struct rootfs *filler, int fd, const struct kept *kept, const char *path,
                         struct error *err)
{
	CLEANUP_FREE void *data = NULL;
	size_t size, wanted = (size_t)kept->st.st_size;

	if (filler->ops->read(filler, path, AT_ONCE_BYTES, &data, &size, err) < 0)
		return -1;
	if (has_hole(data, size))
		return 1;
	return fd_write_all(fd, data, size < wanted ? size : wanted) < 0 ? fill_fail(path, err) : 0;
}

/* Holes take no blocks; the last block is not all the file's. */
static uint64_t data_bytes(const struct stat *st)
{
	uint64_t bytes = (uint64_t)st->st_blocks * 512;

	return bytes < (uint64_t)st->st_size ? bytes : (uint64_t)st->st_size;
}

/* The descriptor for writing lives in here only: see tree-lazy.h. */
static int write_content(struct rootfs *filler, int event_fd, const struct tree_entry *entry,
                         const struct kept *kept, const char *path, struct error *err)
{
	CLEANUP_FREE char *link = str_format("/proc/self/fd/%d", event_fd);
	CLEANUP_CLOSE int fd = open(link, O_WRONLY | O_CLOEXEC);
	int result = 1;

	if (fd < 0)
		return fill_fail(path, err);
	if (entry->size_bytes <= AT_ONCE_BYTES)
		result = write_at_once(filler, fd, kept, path, err);
	if (result == 1 && kept->st.st_size > 0)
		result = filler->ops->copy_out(filler, path, fd, err);
	if (result < 0)
		return -1;
	if (kept->st.st_size != (off_t)entry->size_bytes && ftruncate(fd, kept->st.st_size) < 0)
		return fill_fail(path, err);
	return restore(fd, kept) < 0 ? fill_fail(path, err) : 0;
}

/* Whether others did something to it, before or while we filled it. */
static bool was_changed(const struct tree_entry *entry, const struct stat *before,
                        const struct stat *after)
{
	return tree_time_ns(&before->st_ctim) != entry->ctime_ns ||
	       before->st_mode != after->st_mode || before->st_uid != after->st_uid ||
	       before->st_gid != after->st_gid || before->st_nlink != after->st_nlink ||
	       before->st_size != after->st_size;
}

int lazy_fill_file(struct tree_fill **ret, struct rootfs *filler, int fd,
                   const struct tree_entry *entry, const char *path, struct error *err)
{
	CLEANUP_FREE struct tree_fill *fill = mem_alloc(sizeof(*fill));
	uint64_t hash_before;
	struct kept kept;
	struct stat after;

	kept.capability_size = fgetxattr(fd, CAPABILITY, kept.capability, CAPABILITY_MAX);
	if (fstat(fd, &kept.st) < 0 || tree_hash_xattrs(fd, &hash_before) < 0)
		return fill_fail(path, err);
	if (write_content(filler, fd, entry, &kept, path, err) < 0)
		return -1;
	if (fstat(fd, &after) < 0 || tree_hash_xattrs(fd, &fill->xattr_hash) < 0)
		return fill_fail(path, err);
	fill->bytes = data_bytes(&after);
	fill->ctime_ns = tree_time_ns(&after.st_ctim);
	fill->mtime_ns = tree_time_ns(&after.st_mtim);
	fill->links = after.st_nlink;
	fill->changed = was_changed(entry, &kept.st, &after) || hash_before != fill->xattr_hash;
	*ret = STEAL(fill);
	return 0;
}

/*
 * A child that some thread of ours forked while we filled a program has our descriptor for
 * writing until its exec, and until then nobody can exec the program. A read lease is refused
 * as long as somebody has the file open for writing; if that is the opener himself, we wait
 * in vain. Whoever breaks the lease sends a signal: to this thread, which blocks all.
 */
void lazy_await_writers(int fd)
{
	const struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = gettid()};

	if (fcntl(fd, F_SETOWN_EX, &owner) < 0)
		return;
	for (int i = 0; i < WRITER_TRIES; i++) {
		if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
			fcntl(fd, F_SETLEASE, F_UNLCK);
			return;
		}
		if (errno != EAGAIN)
			return; /* no leases on this file system */
		poll(NULL, 0, 1);
	}
}
