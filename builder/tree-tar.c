/* SPDX-License-Identifier: Apache-2.0 */
/* Changed files as a tar, for an appliance; a file's other names as hard links (tree-send.c). */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>

#include "tree-private.h"

#define BUFFER_BYTES ((size_t)256 * 1024)
/* Of data in one file; behind the last of them, holes are written like data. */
#define EXTENTS_MAX 65536

DEFINE_CLEANUP(entry, struct archive_entry *, archive_entry_free)
#define CLEANUP_ENTRY CLEANUP(cleanup_entry)

struct writer {
	struct tree_sink sink; /* first */
	struct archive *archive;
	int fd;
	bool failed; /* then nothing is written any more: no end mark, nobody takes it for whole */
	char *buffer;
	const char *zeros; /* as long as the buffer */
};

static int archive_fail(struct writer *w, const char *path, struct error *err)
{
	const char *why = archive_error_string(w->archive);

	return error_set(err, "cannot write '%s' to the tar: %s", path,
	                 why ? why : "unknown error");
}

static int write_header(struct writer *w, struct archive_entry *entry, const char *path,
                        struct error *err)
{
	/* a warning: the name is no UTF-8, and was written byte for byte */
	return archive_write_header(w->archive, entry) < ARCHIVE_WARN ? archive_fail(w, path, err)
	                                                              : 0;
}

static int write_data(struct writer *w, const char *data, size_t size, const char *path,
                      struct error *err)
{
	return archive_write_data(w->archive, data, size) != (la_ssize_t)size
	               ? archive_fail(w, path, err)
	               : 0;
}

/* Where the next data is, at or behind 'from'. A file system that knows no holes has it all. */
static void next_data(int fd, off_t from, off_t size, off_t *ret_begin, off_t *ret_end)
{
	off_t begin = lseek(fd, from, SEEK_DATA), end;

	if (begin < 0 && errno == ENXIO)
		begin = size;
	if (begin < from)
		begin = from;
	end = begin < size ? lseek(fd, begin, SEEK_HOLE) : size;
	*ret_begin = begin < size ? begin : size;
	*ret_end = end > begin && end < size ? end : size;
}

/*
 * Of a sparse file the archive gets a map, and libarchive drops the holes from what it is
 * given. So the map is what counts afterwards, not what the file is then.
 */
static void add_map(struct archive_entry *entry, int fd, off_t size)
{
	off_t at = 0, begin, end;
	size_t count = 0;

	next_data(fd, 0, size, &begin, &end);
	if (begin == 0 && end == size)
		return;
	for (; at < size; at = end) {
		next_data(fd, at, size, &begin, &end);
		if (++count == EXTENTS_MAX)
			end = size;
		archive_entry_sparse_add_entry(entry, begin, end - begin);
	}
}

static int write_extent(struct writer *w, int fd, off_t at, off_t end, const char *path,
                        struct error *err)
{
	while (at < end) {
		off_t left = end - at;
		ssize_t n = pread(fd, w->buffer,
		                  left < (off_t)BUFFER_BYTES ? (size_t)left : BUFFER_BYTES, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read '%s' from the sandbox's tree",
			                   path);
		if (n == 0)
			return error_set(err, "'%s' in the sandbox's tree shrank while it was read",
			                 path);
		if (write_data(w, w->buffer, (size_t)n, path, err) < 0)
			return -1;
		at += n;
	}
	return 0;
}

static int write_hole(struct writer *w, off_t at, off_t end, const char *path, struct error *err)
{
	while (at < end) {
		off_t left = end - at;
		size_t n = left < (off_t)BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;

		if (write_data(w, w->zeros, n, path, err) < 0)
			return -1;
		at += (off_t)n;
	}
	return 0;
}

static int write_content(struct writer *w, struct archive_entry *map, int fd, off_t size,
                         const char *path, struct error *err)
{
	la_int64_t begin, length;
	off_t at = 0;

	if (archive_entry_sparse_reset(map) == 0)
		return write_extent(w, fd, 0, size, path, err);
	while (archive_entry_sparse_next(map, &begin, &length) == ARCHIVE_OK) {
		if (write_hole(w, at, begin, path, err) < 0 ||
		    write_extent(w, fd, begin, begin + length, path, err) < 0)
			return -1;
		at = begin + length;
	}
	return write_hole(w, at, size, path, err);
}

static int put_regular(struct writer *w, struct archive_entry *entry, const struct tree_node *node,
                       struct error *err)
{
	CLEANUP_ENTRY struct archive_entry *map = NULL;
	off_t size = (off_t)node->size_bytes;

	if (node->same_as) {
		archive_entry_copy_hardlink(entry, node->same_as + 1);
		return write_header(w, entry, node->path, err);
	}
	archive_entry_set_size(entry, size);
	add_map(entry, node->fd, size);
	map = archive_entry_clone(entry); /* writing the header uses the map up */
	if (write_header(w, entry, node->path, err) < 0)
		return -1;
	return write_content(w, map, node->fd, size, node->path, err);
}

static int put(struct tree_sink *sink, const struct tree_node *node, struct error *err)
{
	struct writer *w = (struct writer *)sink;
	CLEANUP_ENTRY struct archive_entry *entry = archive_entry_new();

	archive_entry_copy_pathname(entry, node->path[1] ? node->path + 1 : ".");
	archive_entry_set_filetype(entry, node->mode & S_IFMT);
	archive_entry_set_perm(entry, node->mode & 07777);
	archive_entry_set_mtime(entry, node->mtime_s, (long)node->mtime_ns);
	archive_entry_set_uid(entry, node->uid);
	archive_entry_set_gid(entry, node->gid);
	for (size_t i = 0; i < node->xattr_count; i++)
		archive_entry_xattr_add_entry(entry, node->xattrs[i].name, node->xattrs[i].value,
		                              node->xattrs[i].size);
	if (S_ISREG(node->mode))
		return put_regular(w, entry, node, err);
	if (node->link_target)
		archive_entry_copy_symlink(entry, node->link_target);
	return write_header(w, entry, node->path, err);
}

static la_ssize_t write_out(struct archive *archive, void *opaque, const void *data, size_t size)
{
	const struct writer *w = opaque;
	ssize_t n;

	if (w->failed)
		return (la_ssize_t)size;
	do {
		n = write(w->fd, data, size);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		archive_set_error(archive, errno, "%s", strerror(errno));
	return n;
}

static int write_all(struct writer *w, const struct tree *tree, const struct strv *changed,
                     struct error *err)
{
	/* only the attribute header that GNU tar reads, and no padding of megabytes */
	if (archive_write_set_format_pax(w->archive) != ARCHIVE_OK ||
	    archive_write_set_options(w->archive, "xattrheader=SCHILY") != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(w->archive, (int)BUFFER_BYTES) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(w->archive, 1) != ARCHIVE_OK ||
	    archive_write_open(w->archive, w, NULL, write_out, NULL) != ARCHIVE_OK)
		return archive_fail(w, tree->dir, err);
	if (tree_send(tree, changed, &w->sink, err) < 0)
		return -1;
	return archive_write_close(w->archive) != ARCHIVE_OK ? archive_fail(w, tree->dir, err) : 0;
}

int tree_write_tar(const struct tree *tree, const struct strv *changed, int fd, struct error *err)
{
	/* libarchive converts names from the locale's encoding; the guest's are bytes, mostly
	 * UTF-8. Set for this thread only. */
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
	CLEANUP_FREE char *zeros = mem_alloc(BUFFER_BYTES);
	struct writer w = {
		.sink.put = put, .archive = archive_write_new(), .fd = fd, .zeros = zeros};
	int result;

	w.buffer = mem_alloc(BUFFER_BYTES);
	result = write_all(&w, tree, changed, err);
	w.failed = result < 0;
	archive_write_free(w.archive);
	free(w.buffer);
	if (utf8) {
		uselocale(before);
		freelocale(utf8);
	}
	return result < 0 ? error_prefix(err, "cannot pack the changes of '%s'", tree->dir) : 0;
}
