/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "builder/digest.h"
#include "publish/image-digest.h"

#define BLOCK_BYTES ((size_t)1024 * 1024)
#define BLOCKS      2 /* one is read while the other is digested */
#define DIGESTS_MAX 8

struct block {
	unsigned char *data;
	size_t size; /* 0: there is no more */
};

struct work {
	struct block blocks[BLOCKS];
	pthread_barrier_t turn; /* all digests, and the reader */
};

struct digester {
	struct image_digest *digest;
	struct work *work;
	EVP_MD_CTX *context;
	uint64_t in_part;
	bool failed;
};

static void begin(struct digester *d)
{
	const EVP_MD *md = EVP_get_digestbyname(d->digest->algorithm);

	if (!md || EVP_DigestInit_ex(d->context, md, NULL) != 1)
		d->failed = true;
	d->in_part = 0;
}

static void update(struct digester *d, const void *data, size_t size)
{
	if (size && EVP_DigestUpdate(d->context, data, size) != 1)
		d->failed = true;
}

static void finish(struct digester *d)
{
	unsigned char value[EVP_MAX_MD_SIZE];
	unsigned length = 0;

	if (EVP_DigestFinal_ex(d->context, value, &length) != 1)
		d->failed = true;
	strv_take(&d->digest->hex, digest_hex(value, length));
}

static void take_block(struct digester *d, const struct block *b)
{
	update(d, b->data, b->size);
	d->in_part += b->size;
	if (d->digest->part_bytes && d->in_part == d->digest->part_bytes) {
		finish(d);
		begin(d);
	}
}

static void *digest_thread(void *opaque)
{
	struct digester *d = opaque;

	begin(d);
	update(d, d->digest->head, d->digest->head_size);
	for (size_t i = 0;; i = (i + 1) % BLOCKS) {
		pthread_barrier_wait(&d->work->turn);
		if (d->work->blocks[i].size == 0)
			break;
		take_block(d, &d->work->blocks[i]);
	}
	update(d, d->digest->tail, d->digest->tail_size);
	if (!d->digest->part_bytes || d->in_part)
		finish(d);
	return NULL;
}

/* A whole block, or what is left. */
static int read_block(int fd, struct block *b, uint64_t offset, struct error *err)
{
	b->size = 0;
	while (b->size < BLOCK_BYTES) {
		ssize_t got = pread(fd, b->data + b->size, BLOCK_BYTES - b->size,
		                    (off_t)(offset + b->size));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			b->size = 0;
			return error_errno(err, errno, "cannot read the image");
		}
		if (got == 0)
			break;
		b->size += (size_t)got;
	}
	return 0;
}

/* Blocks go round: while the digests take one, the next one is read. An empty one is the last. */
static int read_all(struct work *work, int fd, uint64_t size_bytes,
                    void (*on_read)(void *, uint64_t), void *opaque, struct error *err)
{
	uint64_t done = 0;
	int result = 0;

	for (size_t i = 0;; i = (i + 1) % BLOCKS) {
		struct block *b = &work->blocks[i];

		b->size = 0;
		if (result == 0)
			result = read_block(fd, b, done, err);
		done += b->size;
		pthread_barrier_wait(&work->turn);
		if (b->size == 0)
			break;
		if (on_read)
			on_read(opaque, done);
	}
	if (result == 0 && done != size_bytes) {
		error_set(err, "the image changes while it is read");
		return error_code(err, EXIT_INPUT);
	}
	return result;
}

static bool make(struct digester *d, struct work *work, struct image_digest *digest)
{
	*d = (struct digester){.digest = digest, .work = work, .context = EVP_MD_CTX_new()};
	return d->context != NULL;
}

int image_digest_all(struct image_digest *digests, size_t count, int fd, uint64_t size_bytes,
                     void (*on_read)(void *opaque, uint64_t done), void *opaque, struct error *err)
{
	struct digester digesters[DIGESTS_MAX];
	pthread_t threads[DIGESTS_MAX];
	struct work work = {0};
	bool failed = false;
	int result;

	if (count > DIGESTS_MAX)
		return error_set(err, "too many digests at once");
	for (size_t i = 0; i < BLOCKS; i++)
		work.blocks[i].data = mem_alloc(BLOCK_BYTES);
	pthread_barrier_init(&work.turn, NULL, (unsigned)count + 1);
	for (size_t i = 0; i < count; i++)
		/* Without all of them the barrier would wait for ever: no way back from here. */
		if (!make(&digesters[i], &work, &digests[i]) ||
		    pthread_create(&threads[i], NULL, digest_thread, &digesters[i]) != 0) {
			fputs("gpuimg: error: cannot start a thread\n", stderr);
			_exit(EXIT_HOST);
		}
	result = read_all(&work, fd, size_bytes, on_read, opaque, err);
	for (size_t i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		EVP_MD_CTX_free(digesters[i].context);
		failed |= digesters[i].failed;
	}
	pthread_barrier_destroy(&work.turn);
	for (size_t i = 0; i < BLOCKS; i++)
		free(work.blocks[i].data);
	return result == 0 && failed ? error_set(err, "libcrypto cannot make a digest") : result;
}
