/* SPDX-License-Identifier: Apache-2.0 */
/* Paths, mounts, and what becomes of what stands under a path already. */
#include <string.h>

#include "extfs-write-internal.h"
#include "str.h"

#define FAST_LINK_MAX 59 /* what fits into the inode with its NUL */

/* A path on its volume, taken apart. */
struct place {
	struct write_volume *vol;
	const char *path;  /* all of it, for messages */
	const char *below; /* on the volume: "" or "/a/b" */
	char *name;        /* the last component; NULL: the root of the volume */
	struct extfs_node parent, node;
	bool exists; /* then node is filled */
};

static void place_free(struct place *p)
{
	free(p->name);
}

#define CLEANUP_PLACE __attribute__((cleanup(place_free)))

static struct write_volume *find_volume(const struct extfs_writer *w, const char *path,
                                        const char **ret_below)
{
	struct write_volume *best = NULL;

	for (size_t i = 0; i < w->count; i++) {
		const char *below = extfs_path_below(w->volumes[i]->path, path);

		if (!below || (best && strlen(w->volumes[i]->path) < strlen(best->path)))
			continue;
		best = w->volumes[i];
		*ret_below = below;
	}
	return best;
}

/* The path itself, or something below it, is a mount point. */
static bool holds_mount(const struct extfs_writer *w, const char *path)
{
	for (size_t i = 0; i < w->count; i++)
		if (extfs_path_below(path, w->volumes[i]->path))
			return true;
	return false;
}

static bool is_plain(const char *path)
{
	size_t length = strlen(path);

	return path[0] == '/' && !strstr(path, "//") && !strstr(path, "/./") &&
	       !strstr(path, "/../") && !str_ends(path, "/.") && !str_ends(path, "/..") &&
	       (length == 1 || path[length - 1] != '/');
}

/* Without the part that is looked up: 'below' must be one of a volume. */
static int find_parent(struct place *p, struct error *err)
{
	const char *slash = strrchr(p->below, '/');
	CLEANUP_FREE char *parent = NULL;
	int found;

	if (!slash || !slash[1])
		return 0;
	parent = mem_copy(p->below, (size_t)(slash - p->below));
	found = extfs_find(p->vol->v, parent, &p->parent, err);
	if (found < 0)
		return -1;
	if (!found || !LINUX_S_ISDIR(p->parent.inode.i_mode))
		return 0;
	p->parent.path = p->path;
	p->name = str_copy(slash + 1);
	return 0;
}

static int find_place(const struct extfs_writer *w, const char *path, struct place *ret,
                      struct error *err)
{
	int found;

	*ret = (struct place){.path = path};
	if (!is_plain(path))
		return error_set(err, "cannot write '%s' to the image: not a plain absolute path",
		                 path);
	ret->vol = find_volume(w, path, &ret->below);
	if (!ret->vol)
		return error_set(err, "cannot write '%s' to the image: no file system is mounted",
		                 path);
	if (find_parent(ret, err) < 0)
		return -1;
	found = extfs_find(ret->vol->v, ret->below, &ret->node, err);
	ret->node.path = path;
	ret->exists = found > 0;
	return found < 0 ? -1 : 0;
}

static bool is_root(const struct place *p)
{
	return !p->below[0] || !p->below[1];
}

static int remove_place(const struct extfs_writer *w, struct place *p, struct error *err)
{
	if (!p->exists)
		return 0;
	if (is_root(p) || holds_mount(w, p->path))
		return extfs_refuse(p->vol->v, "a file system is mounted there or below", "remove",
		                    p->path, err);
	if (dir_remove(p->vol, p->parent.number, p->name, &p->node, err) < 0)
		return -1;
	p->exists = false;
	return 0;
}

static int write_link(struct edit *e, const struct tree_node *node, struct error *err)
{
	size_t length = strlen(node->link_target);

	if (length == 0)
		return extfs_refuse(e->vol->v, "a link to nothing is not possible", "write",
		                    e->path, err);
	if (length > FAST_LINK_MAX)
		return content_from_memory(e, node->link_target, length, err);
	e->inode->i_flags &= ~(uint32_t)EXT4_EXTENTS_FL;
	memcpy(e->inode->i_block, node->link_target, length);
	e->inode->i_size = (uint32_t)length;
	return 0;
}

/* What is behind a new inode. */
static int write_content(struct edit *e, ext2_ino_t parent, const struct tree_node *node,
                         struct error *err)
{
	bool has_blocks = !LINUX_S_ISFIFO(node->mode);

	if (has_blocks && ext2fs_has_feature_extents(e->vol->v->fs->super))
		e->inode->i_flags |= EXT4_EXTENTS_FL;
	if (LINUX_S_ISDIR(node->mode))
		e->inode->i_links_count = 2;
	/* Checksums of what follows are made from the inode as the disk has it. */
	if (edit_store(e, err) < 0)
		return -1;
	if (LINUX_S_ISREG(node->mode))
		return content_from_fd(e, node, err);
	if (LINUX_S_ISDIR(node->mode))
		return dir_fill(e, parent, err);
	return LINUX_S_ISLNK(node->mode) ? write_link(e, node, err) : 0;
}

static int create(struct place *p, const struct tree_node *node, struct error *err)
{
	CLEANUP_EDIT struct edit e = {0};
	bool is_dir = LINUX_S_ISDIR(node->mode);

	if (!p->name)
		return extfs_refuse(p->vol->v, "its directory does not exist", "write", p->path,
		                    err);
	if (edit_create(&e, p->vol, p->parent.number, node->mode, p->path, err) < 0 ||
	    write_content(&e, p->parent.number, node, err) < 0 ||
	    edit_set_attributes(&e, node, err) < 0 ||
	    dir_add(p->vol, p->parent.number, p->name, e.number, node->mode, p->path, err) < 0)
		return -1;
	return dir_touch(p->vol, p->parent.number, is_dir ? 1 : 0, node, p->path, err);
}

/* A directory that stays, or a file that has this name only: the inode is used again. */
static int replace(struct place *p, const struct tree_node *node, struct error *err)
{
	CLEANUP_EDIT struct edit e = {0};

	if (edit_open(&e, p->vol, p->node.number, p->path, err) < 0)
		return -1;
	if (!LINUX_S_ISDIR(node->mode) &&
	    (edit_reset(&e, err) < 0 || write_content(&e, p->parent.number, node, err) < 0))
		return -1;
	return edit_set_attributes(&e, node, err);
}

static bool is_replaced(const struct place *p, const struct tree_node *node)
{
	if (!p->exists || (p->node.inode.i_mode & LINUX_S_IFMT) != (node->mode & LINUX_S_IFMT))
		return false;
	return LINUX_S_ISDIR(node->mode) ||
	       (LINUX_S_ISREG(node->mode) && p->node.inode.i_links_count == 1 &&
	        !(p->node.inode.i_flags & EXT4_EA_INODE_FL));
}

/* 1: linked, 0: it must be copied (another file system, or too many names), -1: error. */
static int link_to(const struct extfs_writer *w, struct place *p, const struct tree_node *node,
                   struct error *err)
{
	CLEANUP_PLACE struct place first = {0};
	CLEANUP_EDIT struct edit e = {0};

	if (find_place(w, node->same_as, &first, err) < 0)
		return -1;
	if (!first.exists || first.vol != p->vol || !p->name ||
	    LINUX_S_ISDIR(first.node.inode.i_mode) ||
	    first.node.inode.i_links_count >= EXTFS_LINKS_MAX)
		return 0;
	if (p->exists && p->node.number == first.node.number)
		return 1;
	if (remove_place(w, p, err) < 0 ||
	    edit_open(&e, p->vol, first.node.number, p->path, err) < 0)
		return -1;
	e.inode->i_links_count++;
	if (edit_store(&e, err) < 0 ||
	    dir_add(p->vol, p->parent.number, p->name, e.number, e.inode->i_mode, p->path, err) < 0)
		return -1;
	return dir_touch(p->vol, p->parent.number, 0, node, p->path, err) < 0 ? -1 : 1;
}

/* The newest file's time is also that of the file system's last change. */
static void note_time(ext2_filsys fs, const struct tree_node *node)
{
	if (node->mtime_s > (int64_t)fs->now && node->mtime_s <= INT32_MAX)
		fs->now = (time_t)node->mtime_s;
}

static int check_node(const struct tree_node *node, struct error *err)
{
	bool known = LINUX_S_ISREG(node->mode) || LINUX_S_ISDIR(node->mode) ||
	             LINUX_S_ISLNK(node->mode) || LINUX_S_ISFIFO(node->mode);

	if (known && (!LINUX_S_ISLNK(node->mode) || node->link_target) &&
	    (!LINUX_S_ISREG(node->mode) || node->fd >= 0 || node->same_as))
		return 0;
	return error_set(err, "cannot write '%s' to the image: mode 0%o is not understood",
	                 node->path, node->mode);
}

int extfs_writer_put(struct tree_sink *sink, const struct tree_node *node, struct error *err)
{
	const struct extfs_writer *w = (struct extfs_writer *)sink;
	CLEANUP_PLACE struct place p = {0};
	int linked = 0;

	if (check_node(node, err) < 0 || find_place(w, node->path, &p, err) < 0)
		return -1;
	note_time(p.vol->v->fs, node);
	if (node->same_as)
		linked = link_to(w, &p, node, err);
	if (linked != 0)
		return linked < 0 ? -1 : 0;
	if (LINUX_S_ISREG(node->mode) && node->fd < 0)
		return extfs_refuse(p.vol->v, "it cannot be a link to the other name of its file",
		                    "write", node->path, err);
	if (is_replaced(&p, node))
		return replace(&p, node, err);
	return remove_place(w, &p, err) < 0 ? -1 : create(&p, node, err);
}

struct tree_sink *extfs_writer_sink(struct extfs_writer *w)
{
	return &w->sink;
}

int extfs_writer_remove(struct extfs_writer *w, const char *path, struct error *err)
{
	CLEANUP_PLACE struct place p = {0};

	return find_place(w, path, &p, err) < 0 ? -1 : remove_place(w, &p, err);
}

int extfs_writer_check_mount(const struct extfs_writer *w, const char *path, struct error *err)
{
	CLEANUP_PLACE struct place p = {0};

	if (w->count == 0) {
		if (strcmp(path, "/") == 0)
			return 0;
		return error_set(err, "cannot mount a file system at '%s': none is at '/'", path);
	}
	if (find_place(w, path, &p, err) < 0)
		return -1;
	if (is_root(&p) || !p.exists || !LINUX_S_ISDIR(p.node.inode.i_mode))
		return extfs_refuse(p.vol->v, "not a directory, or a mount point already",
		                    "mount a file system at", path, err);
	return 0;
}
