/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part that all backends share: links are resolved here, one component at a time and
 * inside the guest, so that a backend only ever sees paths without links.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "fd.h"
#include "rootfs.h"

#define LINKS_MAX 40 /* as the kernel's MAXSYMLINKS */

void rootfs_xattrs_free(struct rootfs_xattr *xattrs, size_t count)
{
	for (size_t i = 0; xattrs && i < count; i++) {
		free(xattrs[i].name);
		free(xattrs[i].value);
	}
	free(xattrs);
}

void rootfs_close(struct rootfs *r)
{
	if (r && r->ops->close)
		r->ops->close(r);
}

/* The walk along a path: where it stands, and the components still to go. */
struct walk {
	struct rootfs *r;
	const char *path; /* as asked, for messages */
	bool follow_last;
	bool missing_fits; /* a missing directory on the way is taken as it is named */
	unsigned links;
	char *here;       /* without links; "" is the root */
	bool here_exists; /* then 'st' is what it is */
	struct rootfs_stat st;
	struct strv todo; /* the next component stands last */
};

static void walk_free(struct walk *w)
{
	free(w->here);
	strv_free(&w->todo);
}

static void walk_push(struct walk *w, const char *path)
{
	CLEANUP_STRV struct strv parts = strv_split(path, "/");

	for (size_t i = parts.count; i > 0; i--)
		strv_add(&w->todo, parts.items[i - 1]);
}

/* All steps: 1 to go on, 0 when the path cannot exist, -1. */
static int walk_stat_here(struct walk *w, struct error *err)
{
	int found = w->r->ops->lstat(w->r, *w->here ? w->here : "/", &w->st, err);

	w->here_exists = found == 1;
	return found < 0 ? -1 : 1;
}

static int walk_up(struct walk *w, struct error *err)
{
	char *slash = strrchr(w->here, '/');

	if (!w->here_exists)
		return 0;
	if (slash)
		*slash = '\0';
	return walk_stat_here(w, err);
}

static int walk_link(struct walk *w, struct error *err)
{
	CLEANUP_FREE char *target = NULL;

	if (++w->links > LINKS_MAX)
		return error_errno(err, ELOOP, "cannot follow '%s' in the image", w->path);
	if (w->r->ops->readlink(w->r, w->here, &target, err) < 0)
		return -1;
	if (!*target)
		return 0;
	walk_push(w, target);
	*(*target == '/' ? w->here : strrchr(w->here, '/')) = '\0';
	return walk_stat_here(w, err);
}

static int walk_down(struct walk *w, const char *name, struct error *err)
{
	char *next;

	if (w->here_exists ? !S_ISDIR(w->st.mode) : !w->missing_fits)
		return 0;
	next = str_format("%s/%s", w->here, name);
	free(w->here);
	w->here = next;
	if (!w->here_exists)
		return 1; /* below a missing directory */
	if (walk_stat_here(w, err) < 0)
		return -1;
	if (!w->here_exists || !S_ISLNK(w->st.mode) || (w->todo.count == 0 && !w->follow_last))
		return 1;
	return walk_link(w, err);
}

static int walk_step(struct walk *w, struct error *err)
{
	CLEANUP_FREE char *name = str_copy(w->todo.items[w->todo.count - 1]);

	strv_remove(&w->todo, w->todo.count - 1);
	if (str_equal(name, "."))
		return w->here_exists && !S_ISDIR(w->st.mode) ? 0 : 1;
	if (str_equal(name, ".."))
		return walk_up(w, err);
	return walk_down(w, name, err);
}

static int walk_run(struct walk *w, struct error *err)
{
	int going;

	w->here = str_copy("");
	walk_push(w, w->path);
	if (str_ends(w->path, "/"))
		w->follow_last = true;
	going = walk_stat_here(w, err);
	while (going == 1 && w->todo.count > 0)
		going = walk_step(w, err);
	if (going < 0)
		return error_prefix(err, "cannot look up '%s' in the image", w->path);
	return going;
}

/* As rootfs_resolve; ret_st (may be NULL) is filled when the path exists. */
static int resolve(struct rootfs *r, const char *path, bool follow_last, bool missing_fits,
                   char **ret_path, struct rootfs_stat *ret_st, struct error *err)
{
	struct walk w CLEANUP(walk_free) = {
		.r = r, .path = path, .follow_last = follow_last, .missing_fits = missing_fits};
	int going = walk_run(&w, err);

	if (going <= 0)
		return going;
	if (w.here_exists && ret_st)
		*ret_st = w.st;
	if (ret_path && *w.here)
		*ret_path = STEAL(w.here);
	else if (ret_path)
		*ret_path = str_copy("/");
	return w.here_exists ? 1 : 0;
}

int rootfs_resolve(struct rootfs *r, const char *path, bool follow_last, char **ret_path,
                   struct error *err)
{
	return resolve(r, path, follow_last, false, ret_path, NULL, err);
}

int rootfs_resolve_new(struct rootfs *r, const char *path, char **ret_path, struct error *err)
{
	return resolve(r, path, true, true, ret_path, NULL, err);
}

int rootfs_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret, struct error *err)
{
	return resolve(r, path, false, false, NULL, ret, err);
}

int rootfs_stat(struct rootfs *r, const char *path, struct rootfs_stat *ret, struct error *err)
{
	return resolve(r, path, true, false, NULL, ret, err);
}

bool rootfs_exists(struct rootfs *r, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct rootfs_stat st = {0};

	return rootfs_stat(r, path, &st, &ignored) == 1;
}

bool rootfs_is_dir(struct rootfs *r, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct rootfs_stat st = {0};

	return rootfs_stat(r, path, &st, &ignored) == 1 && S_ISDIR(st.mode);
}

bool rootfs_is_file(struct rootfs *r, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct rootfs_stat st = {0};

	return rootfs_stat(r, path, &st, &ignored) == 1 && S_ISREG(st.mode);
}

int rootfs_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	struct rootfs_stat st = {0};
	int found = resolve(r, path, false, false, &real, &st, err);

	if (found < 0)
		return -1;
	if (found == 0)
		return error_errno(err, ENOENT, "cannot read the link '%s' in the image", path);
	if (!S_ISLNK(st.mode))
		return error_set(err, "cannot read the link '%s' in the image: it is no link",
		                 path);
	return r->ops->readlink(r, real, ret, err);
}

int rootfs_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	CLEANUP_STRV struct strv names = {0};
	struct rootfs_stat st = {0};
	int found = resolve(r, path, true, false, &real, &st, err);

	if (found < 0)
		return -1;
	if (found == 1 && !S_ISDIR(st.mode))
		return error_errno(err, ENOTDIR, "cannot list '%s' in the image", path);
	if (found == 1 && r->ops->list(r, real, &names, err) < 0)
		return -1;
	for (size_t i = names.count; i > 0; i--)
		if (str_equal(names.items[i - 1], ".") || str_equal(names.items[i - 1], ".."))
			strv_remove(&names, i - 1);
	strv_sort(&names);
	*ret = names;
	names = (struct strv){0};
	return 0;
}

/* The end of all links, which must be a regular file: a FIFO or device would block for ever. */
static int resolve_regular(struct rootfs *r, const char *path, char **ret, struct rootfs_stat *st,
                           struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	int found = resolve(r, path, true, false, &real, st, err);

	if (found < 0)
		return -1;
	if (found == 0)
		return error_errno(err, ENOENT, "cannot read '%s' in the image", path);
	if (S_ISDIR(st->mode))
		return error_errno(err, EISDIR, "cannot read '%s' in the image", path);
	if (!S_ISREG(st->mode))
		return error_set(err, "cannot read '%s' in the image: it is no regular file", path);
	*ret = STEAL(real);
	return 0;
}

int rootfs_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret, size_t *ret_size,
                struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	struct rootfs_stat st = {0};
	size_t size = 0;

	if (resolve_regular(r, path, &real, &st, err) < 0)
		return -1;
	if (st.size_bytes > max_bytes) {
		error_set(err, "cannot read '%s' in the image: it is larger than %zu bytes", path,
		          max_bytes);
		return error_code(err, EXIT_INPUT);
	}
	if (r->ops->read(r, real, max_bytes, ret, &size, err) < 0)
		return -1;
	if (ret_size)
		*ret_size = size;
	return 0;
}

int rootfs_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	struct rootfs_stat st = {0};

	if (resolve_regular(r, path, &real, &st, err) < 0)
		return -1;
	return r->ops->copy_out(r, real, fd, err);
}

int rootfs_open_copy(struct rootfs *r, const char *path, const char *dir, struct error *err)
{
	CLEANUP_CLOSE int fd = fd_temporary(dir);

	if (fd < 0)
		return error_errno(err, errno, "cannot make a temporary file in '%s'", dir);
	if (rootfs_copy_out(r, path, fd, err) < 0)
		return -1;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return error_errno(err, errno, "cannot read the copy of '%s'", path);
	return steal_fd(&fd);
}

int rootfs_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                   uint64_t *ret_size_bytes, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	int found = resolve(r, path, true, false, &real, NULL, err);

	if (found < 0)
		return -1;
	if (found == 0)
		return error_errno(err, ENOENT,
		                   "cannot ask for the free space at '%s' in the image", path);
	return r->ops->statvfs(r, real, ret_free_bytes, ret_size_bytes, err);
}

int rootfs_run(struct rootfs *r, const struct guest_command *command, struct error *err)
{
	if (r->ops->run)
		return r->ops->run(r, command, err);
	return error_set(err, "cannot run '%s': nothing here runs programs of the image (%s)",
	                 command->argv[0], r->ops->name);
}
