/* SPDX-License-Identifier: Apache-2.0 */
/* Removal of what a guest may have made: no link is followed, and no depth is too deep. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "tree-private.h"

/* What removal carries down: directories that lie too deep are first moved up to 'top'. */
struct removal {
	int top_fd;
	unsigned moved;
};

static int remove_level(struct removal *m, int dir_fd, const char *name, unsigned depth);

static int move_up(struct removal *m, int dir_fd, const char *name)
{
	CLEANUP_FREE char *up = str_format(".gpuimg-%ld-deep-%u", (long)getpid(), m->moved++);

	return renameat(dir_fd, name, m->top_fd, up);
}

static int remove_content(struct removal *m, int fd, unsigned depth)
{
	const struct dirent *entry;
	DIR *dir = fdopendir(fd);
	int result = 0;

	if (!dir) {
		close(fd);
		return -1;
	}
	while (result == 0 && (entry = readdir(dir)))
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			result = remove_level(m, dirfd(dir), entry->d_name, depth + 1);
	closedir(dir);
	return result;
}

static int remove_level(struct removal *m, int dir_fd, const char *name, unsigned depth)
{
	int fd;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno == EBUSY)
		return -1; /* something is mounted here: not ours to empty */
	if (depth >= TREE_DEPTH_MAX)
		return move_up(m, dir_fd, name);
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || remove_content(m, fd, depth) < 0)
		return -1;
	return unlinkat(dir_fd, name, AT_REMOVEDIR);
}

int tree_remove_at(int dir_fd, const char *name)
{
	struct removal m = {.top_fd = dir_fd};

	if (remove_level(&m, dir_fd, name, 0) < 0)
		return -1;
	for (unsigned i = 0; i < m.moved; i++) {
		CLEANUP_FREE char *up = str_format(".gpuimg-%ld-deep-%u", (long)getpid(), i);

		if (remove_level(&m, dir_fd, up, 0) < 0)
			return -1;
	}
	return 0;
}

int tree_remove(const char *dir, struct error *err)
{
	CLEANUP_FREE char *copy = str_copy(dir);
	CLEANUP_CLOSE int parent = -1;
	char *slash;

	while ((slash = strrchr(copy, '/')) && slash != copy && !slash[1])
		*slash = '\0';
	if (slash)
		*slash = '\0';
	parent = open(!slash ? "." : *copy ? copy : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0 && errno == ENOENT)
		return 0;
	if (parent < 0 || tree_remove_at(parent, slash ? slash + 1 : copy) < 0)
		return error_errno(err, errno, "cannot remove '%s'", dir);
	return 0;
}
