/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "builder/str.h"
#include "publish/layer.h"

#define QEMU_ID   107 /* of KubeVirt's qemu user */
#define TAR_BLOCK ((size_t)512)
#define TAR_END   (2 * TAR_BLOCK)
#define HEAD_MAX  65536u

struct head {
	unsigned char *data;
	size_t size;
	bool whole; /* what comes now is no part of it */
};

static la_ssize_t keep(struct archive *a, void *opaque, const void *data, size_t size)
{
	struct head *head = opaque;

	if (head->whole)
		return -1;
	if (size > HEAD_MAX - head->size) {
		archive_set_error(a, EFBIG, "a header is too long");
		return -1;
	}
	memcpy(head->data + head->size, data, size);
	head->size += size;
	return (la_ssize_t)size;
}

static int add(struct archive *a, const char *path, unsigned type, unsigned mode,
               uint64_t size_bytes)
{
	struct archive_entry *entry = archive_entry_new();
	int result;

	archive_entry_set_pathname(entry, path);
	archive_entry_set_filetype(entry, type);
	archive_entry_set_perm(entry, (__LA_MODE_T)mode);
	archive_entry_set_uid(entry, QEMU_ID);
	archive_entry_set_gid(entry, QEMU_ID);
	archive_entry_set_mtime(entry, 0, 0);
	archive_entry_set_size(entry, (la_int64_t)size_bytes);
	result = archive_write_header(a, entry);
	archive_entry_free(entry);
	return result;
}

/* The archive is given up before the file's content: what was written until then is the head. */
static int write_head(struct head *head, const char *path, uint64_t size_bytes, struct error *err)
{
	struct archive *a = archive_write_new();
	int result = -1;

	/* A size of 8 GiB and more needs a pax record; else it is a plain ustar header. */
	archive_write_set_format_pax_restricted(a);
	archive_write_set_bytes_per_block(a, 0);
	if (archive_write_open(a, head, NULL, keep, NULL) == ARCHIVE_OK &&
	    add(a, "disk/", AE_IFDIR, 0755, 0) == ARCHIVE_OK &&
	    add(a, path, AE_IFREG, 0440, size_bytes) == ARCHIVE_OK)
		result = 0;
	else
		error_set(err, "cannot make the layer's header: %s", archive_error_string(a));
	head->whole = true; /* closing writes what is missing of the entry: to nowhere */
	archive_write_free(a);
	return result;
}

int layer_make(const char *name, uint64_t size_bytes, void **ret_head, size_t *ret_head_size,
               void **ret_tail, size_t *ret_tail_size, struct error *err)
{
	CLEANUP_FREE char *path = str_format("disk/%s.qcow2", name);
	struct head head = {.data = mem_alloc(HEAD_MAX)};
	size_t padding = (TAR_BLOCK - (size_t)(size_bytes % TAR_BLOCK)) % TAR_BLOCK;

	if (write_head(&head, path, size_bytes, err) < 0) {
		free(head.data);
		return -1;
	}
	*ret_head = head.data;
	*ret_head_size = head.size;
	*ret_tail_size = padding + TAR_END;
	*ret_tail = mem_alloc(*ret_tail_size);
	return 0;
}
