/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the server (disk-server.c): in pieces, several of them under way at a time, under
 * a deadline.
 */
#include <string.h>

#include "clock.h"
#include "disk-internal.h"
#include "str.h"

#define PIECE_BYTES      ((uint64_t)1 << 20)
#define TRIM_PIECE_BYTES ((uint64_t)1 << 30)
#define PIECES_IN_FLIGHT 4

static int open_disk(struct disk **ret, const char *path, const char *format, bool writable,
                     bool allow_backing, struct error *err)
{
	CLEANUP_DISK struct disk *disk = mem_alloc(sizeof(*disk));

	disk->path = str_copy(path);
	disk->writable = writable;
	disk->server_output = -1;
	pthread_mutex_init(&disk->lock, NULL);
	if (disk_serve(disk, format, allow_backing, err) < 0)
		return -1;
	*ret = STEAL(disk);
	return 0;
}

int disk_open(struct disk **ret, const char *path, const char *format, bool allow_backing,
              struct error *err)
{
	return open_disk(ret, path, format, false, allow_backing, err);
}

int disk_open_writable(struct disk **ret, const char *overlay, struct error *err)
{
	return open_disk(ret, overlay, "qcow2", true, true, err);
}

void disk_close(struct disk *disk)
{
	if (!disk)
		return;
	disk_drop_server(disk);
	if (disk->server_output >= 0)
		close(disk->server_output);
	pthread_mutex_destroy(&disk->lock);
	disk_forget_volumes(disk);
	free(disk->path);
	free(disk);
}

const char *disk_path(const struct disk *disk)
{
	return disk->path;
}

uint64_t disk_size_bytes(const struct disk *disk)
{
	return disk->size_bytes;
}

enum answer { ANSWER_OK, ANSWER_ERROR, ANSWER_NONE };

/* ANSWER_ERROR: the server told an error for this request; ANSWER_NONE: it is of no use more. */
static enum answer await(struct nbd_handle *nbd, int64_t cookie, int64_t deadline_ms)
{
	for (;;) {
		int done = nbd_aio_command_completed(nbd, (uint64_t)cookie);
		int left = disk_left_ms(deadline_ms);

		if (done > 0)
			return ANSWER_OK;
		if (nbd_aio_is_dead(nbd) || nbd_aio_is_closed(nbd) || (done == 0 && left == 0))
			return ANSWER_NONE;
		if (done < 0)
			return ANSWER_ERROR;
		if (nbd_poll(nbd, left) < 0)
			return ANSWER_NONE;
	}
}

enum verb { VERB_READ, VERB_WRITE, VERB_TRIM, VERB_FLUSH };

struct request {
	enum verb verb;
	void *data; /* to be filled, or (VERB_WRITE) only read */
	uint64_t size, offset_bytes;
};

static const char *verb_name(enum verb verb)
{
	const char *const names[] = {"read", "write", "trim", "flush"};

	return names[verb];
}

static int request_failed(struct disk *disk, enum answer answer, const struct request *r,
                          struct error *err)
{
	error_set(err, "cannot %s %llu bytes at byte %llu of image '%s': %s", verb_name(r->verb),
	          (unsigned long long)r->size, (unsigned long long)r->offset_bytes, disk->path,
	          answer == ANSWER_ERROR ? "input/output error"
	                                 : "qemu-nbd ended, or did not answer in time");
	if (answer == ANSWER_NONE) {
		disk_drop_server(disk);
		return error_code(err, EXIT_HOST);
	}
	if (r->verb != VERB_READ) {
		error_hint(err, "see whether the disk of the work directory is full");
		return error_code(err, EXIT_HOST);
	}
	error_hint(err, "see what 'qemu-img check' says of the image");
	return error_code(err, EXIT_INPUT);
}

/* A cookie to wait for, or -1. */
static int64_t submit(struct nbd_handle *nbd, const struct request *r)
{
	switch (r->verb) {
	case VERB_READ:
		return nbd_aio_pread(nbd, r->data, r->size, r->offset_bytes, NBD_NULL_COMPLETION,
		                     0);
	case VERB_WRITE:
		return nbd_aio_pwrite(nbd, r->data, r->size, r->offset_bytes, NBD_NULL_COMPLETION,
		                      0);
	case VERB_TRIM:
		return nbd_aio_trim(nbd, r->size, r->offset_bytes, NBD_NULL_COMPLETION, 0);
	default:
		return nbd_aio_flush(nbd, NBD_NULL_COMPLETION, 0);
	}
}

/* At most PIECES_IN_FLIGHT pieces, side by side: QEMU decompresses them in parallel. */
static enum answer transfer_batch(struct disk *disk, const struct request *all, uint64_t piece)
{
	int64_t deadline_ms = clock_ms() + DISK_DEADLINE_MS;
	int64_t cookies[PIECES_IN_FLIGHT];
	enum answer worst = ANSWER_OK;
	size_t count = 0;

	if (!disk->nbd)
		return ANSWER_NONE;
	for (uint64_t at = 0; at < all->size; at += piece) {
		struct request r = *all;

		r.data = all->data ? (char *)all->data + at : NULL;
		r.size = all->size - at < piece ? all->size - at : piece;
		r.offset_bytes += at;
		cookies[count] = submit(disk->nbd, &r);
		if (cookies[count++] < 0)
			return ANSWER_NONE;
	}
	for (size_t i = 0; i < count && worst != ANSWER_NONE; i++) {
		enum answer answer = await(disk->nbd, cookies[i], deadline_ms);

		worst = answer > worst ? answer : worst;
	}
	return worst;
}

static int check_range(const struct disk *disk, const struct request *r, struct error *err)
{
	if (r->verb != VERB_READ && !disk->writable)
		return error_set(err, "cannot %s image '%s': it was opened to be read",
		                 verb_name(r->verb), disk->path);
	if (r->offset_bytes <= disk->size_bytes && r->size <= disk->size_bytes - r->offset_bytes)
		return 0;
	error_set(err, "cannot %s %llu bytes at byte %llu of image '%s': it ends at %llu",
	          verb_name(r->verb), (unsigned long long)r->size,
	          (unsigned long long)r->offset_bytes, disk->path,
	          (unsigned long long)disk->size_bytes);
	return error_code(err, EXIT_INPUT);
}

static int transfer(struct disk *disk, const struct request *all, struct error *err)
{
	uint64_t piece = all->verb == VERB_TRIM ? TRIM_PIECE_BYTES : PIECE_BYTES;
	enum answer answer = ANSWER_OK;
	int result = 0;

	if (check_range(disk, all, err) < 0)
		return -1;
	pthread_mutex_lock(&disk->lock);
	for (uint64_t at = 0; at < all->size && answer == ANSWER_OK;) {
		struct request r = *all;

		r.data = all->data ? (char *)all->data + at : NULL;
		r.size = all->size - at < PIECES_IN_FLIGHT * piece ? all->size - at
		                                                   : PIECES_IN_FLIGHT * piece;
		r.offset_bytes += at;
		answer = transfer_batch(disk, &r, piece);
		if (answer != ANSWER_OK)
			result = request_failed(disk, answer, &r, err);
		at += r.size;
	}
	pthread_mutex_unlock(&disk->lock);
	return result;
}

int disk_read(struct disk *disk, void *buffer, size_t size, uint64_t offset_bytes,
              struct error *err)
{
	const struct request r = {VERB_READ, buffer, size, offset_bytes};

	return transfer(disk, &r, err);
}

int disk_write(struct disk *disk, const void *data, size_t size, uint64_t offset_bytes,
               struct error *err)
{
	const struct request r = {VERB_WRITE, (void *)data, size, offset_bytes};

	return transfer(disk, &r, err);
}

int disk_trim(struct disk *disk, uint64_t size_bytes, uint64_t offset_bytes, struct error *err)
{
	const struct request r = {VERB_TRIM, NULL, size_bytes, offset_bytes};

	return transfer(disk, &r, err);
}

static int flush(struct disk *disk, struct error *err)
{
	const struct request r = {.verb = VERB_FLUSH};
	int64_t deadline_ms = clock_ms() + DISK_DEADLINE_MS;
	int64_t cookie = disk->nbd ? submit(disk->nbd, &r) : -1;
	enum answer answer = cookie < 0 ? ANSWER_NONE : await(disk->nbd, cookie, deadline_ms);

	return answer == ANSWER_OK ? 0 : request_failed(disk, answer, &r, err);
}

int disk_finish(struct disk *disk, struct error *err)
{
	int result;

	if (!disk->writable)
		return error_set(err, "cannot finish image '%s': it was opened to be read",
		                 disk->path);
	pthread_mutex_lock(&disk->lock);
	result = flush(disk, err);
	if (result == 0)
		result = disk_end_server(disk, err);
	pthread_mutex_unlock(&disk->lock);
	return result;
}
