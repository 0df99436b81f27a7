/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rootfs backend. Content is read in runs of clusters, as long as the disk has them. FAT
 * knows neither owners nor permissions: those are what mount(8) gives by default.
 */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "fatfs-internal.h"
#include "str.h"

#define PIECE_BYTES ((uint32_t)4 << 20)

struct fatfs {
	struct rootfs rootfs; /* first */
	struct fat_volume *volume;
};

static const struct fat_volume *volume_of(struct rootfs *r)
{
	return ((struct fatfs *)r)->volume;
}

/* As fat_find(), where missing is an error. */
static int must_find(struct rootfs *r, const char *path, struct fat_node *ret, struct error *err)
{
	const struct fat_volume *v = volume_of(r);
	int found = fat_find(v, path, ret, err);

	if (found == 0)
		return fat_refuse(v, "no such file or directory", "find", path, err);
	return found < 0 ? -1 : 0;
}

/* The disk keeps local time of an unknown zone: taken as UTC. */
static int64_t mtime_of(const struct fat_node *node)
{
	struct tm tm = {
		.tm_sec = (node->time & 0x1f) * 2,
		.tm_min = node->time >> 5 & 0x3f,
		.tm_hour = node->time >> 11,
		.tm_mday = node->date & 0x1f ? node->date & 0x1f : 1,
		.tm_mon = node->date >> 5 & 0x0f ? (node->date >> 5 & 0x0f) - 1 : 0,
		.tm_year = 80 + (node->date >> 9),
	};

	return node->is_root ? 0 : timegm(&tm);
}

static int fat_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret, struct error *err)
{
	struct fat_node node;
	int found = fat_find(volume_of(r), path, &node, err);

	if (found <= 0)
		return found;
	*ret = (struct rootfs_stat){
		.mode = node.is_dir ? S_IFDIR | 0755 : S_IFREG | 0644,
		.size_bytes = node.is_dir ? 0 : node.size_bytes,
		.mtime_s = mtime_of(&node),
		.inode = node.position,
		.device = 1,
	};
	return 1;
}

/* Nothing is a link; who asks anyhow is told so. */
static int fat_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	struct fat_node node;

	(void)ret;
	if (must_find(r, path, &node, err) < 0)
		return -1;
	return fat_refuse(volume_of(r), "not a symbolic link", "read the link", path, err);
}

static int fat_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	struct fat_node node;

	return must_find(r, path, &node, err) < 0 ? -1
	                                          : fat_names(volume_of(r), &node, path, ret, err);
}

/* A file while it is read. */
struct content {
	struct fat_chain chain;
	uint64_t left; /* bytes */
};

static void content_end(struct content *c)
{
	fat_chain_end(&c->chain);
}

#define CLEANUP_CONTENT CLEANUP(content_end)

/* Where the next bytes of the file are: 1, 0 (this was all), -1. */
static int next_piece(struct content *c, uint64_t *ret_offset, size_t *ret_size, struct error *err)
{
	const struct fat_volume *v = c->chain.volume;
	uint64_t clusters = (c->left + v->cluster_bytes - 1) / v->cluster_bytes;
	uint32_t at_most = PIECE_BYTES / v->cluster_bytes, first, count;
	int more;

	if (c->left == 0)
		return 0;
	more = fat_chain_run(&c->chain, clusters < at_most ? (uint32_t)clusters : at_most, &first,
	                     &count, err);
	if (more == 0)
		return fat_refuse(v, "its chain of clusters ends before its size", "read",
		                  c->chain.path, err);
	if (more < 0)
		return -1;
	*ret_offset = fat_cluster_offset(v, first);
	*ret_size = (size_t)count * v->cluster_bytes;
	if (*ret_size > c->left)
		*ret_size = (size_t)c->left;
	c->left -= *ret_size;
	return 1;
}

/* A regular file whose size is possible. */
static int find_file(struct rootfs *r, const char *path, struct fat_node *ret, struct error *err)
{
	const struct fat_volume *v = volume_of(r);

	if (must_find(r, path, ret, err) < 0)
		return -1;
	if (ret->is_dir)
		return fat_refuse(v, "not a regular file", "read", path, err);
	if (ret->size_bytes > (uint64_t)v->cluster_count * v->cluster_bytes)
		return fat_refuse(v, "it is larger than the file system", "read", path, err);
	return 0;
}

static int fat_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                    size_t *ret_size, struct error *err)
{
	const struct fat_volume *v = volume_of(r);
	CLEANUP_FREE char *data = NULL;
	struct fat_node node;
	size_t done = 0, size = 0;
	uint64_t offset = 0;
	int more;

	if (find_file(r, path, &node, err) < 0)
		return -1;
	if (node.size_bytes > max_bytes) {
		CLEANUP_FREE char *reason =
			str_format("it has %u bytes, more than %zu", node.size_bytes, max_bytes);

		return fat_refuse(v, reason, "read", path, err);
	}
	struct content c CLEANUP_CONTENT = {
		fat_chain_begin(v, node.cluster, path),
		node.size_bytes,
	};
	data = mem_alloc((size_t)node.size_bytes + 1);
	while ((more = next_piece(&c, &offset, &size, err)) > 0) {
		if (fat_volume_read(v, data + done, size, offset, err) < 0)
			return -1;
		done += size;
	}
	if (more < 0)
		return -1;
	*ret = STEAL(data);
	if (ret_size)
		*ret_size = done;
	return 0;
}

static int write_all(int fd, const char *data, size_t size, uint64_t offset, const char *path,
                     struct error *err)
{
	while (size > 0) {
		ssize_t n = pwrite(fd, data, size, (off_t)offset);

		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot write a copy of '%s'", path);
		if (n > 0) {
			data += n;
			size -= (size_t)n;
			offset += (uint64_t)n;
		}
	}
	return 0;
}

static int fat_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	const struct fat_volume *v = volume_of(r);
	CLEANUP_FREE char *buffer = NULL;
	struct fat_node node;
	uint64_t offset = 0, done = 0;
	size_t size = 0;
	int more;

	if (find_file(r, path, &node, err) < 0)
		return -1;
	struct content c CLEANUP_CONTENT = {
		fat_chain_begin(v, node.cluster, path),
		node.size_bytes,
	};
	buffer = mem_alloc(node.size_bytes < PIECE_BYTES ? node.size_bytes + 1 : PIECE_BYTES);
	while ((more = next_piece(&c, &offset, &size, err)) > 0) {
		if (fat_volume_read(v, buffer, size, offset, err) < 0 ||
		    write_all(fd, buffer, size, done, path, err) < 0)
			return -1;
		done += size;
	}
	return more;
}

static int fat_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                       uint64_t *ret_size_bytes, struct error *err)
{
	const struct fat_volume *v = volume_of(r);
	struct fat_node node;
	uint32_t clusters;

	if (must_find(r, path, &node, err) < 0 || fat_count_free(v, &clusters, err) < 0)
		return -1;
	*ret_free_bytes = (uint64_t)clusters * v->cluster_bytes;
	*ret_size_bytes = (uint64_t)v->cluster_count * v->cluster_bytes;
	return 0;
}

static void fat_close(struct rootfs *r)
{
	fat_volume_close(((struct fatfs *)r)->volume);
	free(r);
}

static const struct rootfs_ops fat_ops = {
	.name = "fat",
	.lstat = fat_lstat,
	.readlink = fat_readlink,
	.list = fat_list,
	.read = fat_read,
	.copy_out = fat_copy_out,
	.statvfs = fat_statvfs,
	.close = fat_close,
};

int fatfs_open_source(struct rootfs **ret, const struct fat_source *source, const char *name,
                      struct error *err)
{
	struct fat_volume *v = NULL;
	struct fatfs *x;

	if (fat_volume_open(&v, source, name, err) < 0)
		return -1;
	x = mem_alloc(sizeof(*x));
	x->rootfs.ops = &fat_ops;
	x->volume = v;
	*ret = &x->rootfs;
	return 0;
}
