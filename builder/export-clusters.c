/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread plans and writes, in the order of the disk; the others read and compress. What they
 * do in one go (a job) is cut by the plan alone, so the bytes of the new file do not depend on
 * their number.
 */
#include <sched.h>
#include <string.h>

#include "export-internal.h"
#include "qcow2-writer.h"
#include "str.h"

#define JOB_BYTES     ((size_t)512 << 10) /* of results; more if a cluster has more */
#define JOB_ITEMS     1024
#define MAX_THREADS   16
#define JOBS_A_THREAD 2
#define MEMORY_BYTES  ((size_t)48 << 20) /* that threads and their jobs may use together */
#define THREAD_BYTES  ((size_t)3 << 19)  /* zlib's and zstd's own, and the stack that is used */

enum item_kind { ITEM_TAKEN, ITEM_COMPRESSED, ITEM_PLAIN, ITEM_ZERO };

struct item {
	uint64_t index; /* of the cluster in the new image */
	enum item_kind kind;
	size_t at;      /* where its bytes begin in the job's data */
	uint32_t bytes; /* of them */
	size_t piece, piece_count;
};

struct job {
	unsigned char *data;
	struct item *items;
	size_t count;
	struct pieces pieces;
	size_t used;   /* of data */
	uint64_t next; /* cluster behind the job: for the progress */
	const struct exporter *exporter;
};

struct exporter {
	struct content *content;
	const struct export_options *options;
	struct export_stats *stats;
	enum compression compression;
	size_t cluster_bytes;
	size_t data_bytes; /* of a job */
	struct qcow2_writer *writer;
	uint64_t next; /* cluster to plan */
};

struct worker {
	struct codec *codec;
	unsigned char *scratch; /* for reading; afterwards for what a cluster is compressed to */
};

static void *job_new(void *opaque)
{
	const struct exporter *e = opaque;
	struct job *job = mem_alloc(sizeof(*job));

	job->exporter = e;
	job->data = mem_alloc(e->data_bytes);
	job->items = mem_alloc(JOB_ITEMS * sizeof(*job->items));
	return job;
}

static void job_free(void *opaque)
{
	struct job *job = opaque;

	free(job->data);
	free(job->items);
	free(job->pieces.items);
	free(job);
}

static void *worker_new(void *opaque)
{
	const struct exporter *e = opaque;
	struct worker *w = mem_alloc(sizeof(*w));

	w->codec = codec_new();
	w->scratch = mem_alloc(content_scratch_bytes(e->content));
	return w;
}

static void worker_free(void *state)
{
	struct worker *w = state;

	codec_free(w->codec);
	free(w->scratch);
	free(w);
}

/* Clusters that stand one behind the other in the base are read in one go. Returns their number. */
static size_t read_taken(struct job *job, size_t first, int *ret_rc, struct error *err)
{
	const struct piece *p = &job->pieces.items[job->items[first].piece];
	size_t size = job->items[first].bytes, i;

	for (i = first + 1; i < job->count && job->items[i].kind == ITEM_TAKEN; i++) {
		const struct piece *next = &job->pieces.items[job->items[i].piece];

		if (next->cluster.offset != p->cluster.offset + size)
			break;
		size += job->items[i].bytes;
	}
	*ret_rc = read_exactly(p->source->fd, job->data + job->items[first].at, size,
	                       p->cluster.offset, err);
	if (*ret_rc < 0) {
		error_code(err, EXIT_INPUT);
		error_prefix(err, "cannot read image '%s'", p->source->path);
	}
	return i - first;
}

static bool is_zero(const unsigned char *data, size_t size)
{
	return data[0] == 0 && memcmp(data, data + 1, size - 1) == 0;
}

static int make_cluster(struct job *job, struct item *item, struct worker *w, struct error *err)
{
	const struct exporter *e = job->exporter;
	unsigned char *data = job->data + item->at;
	size_t packed = 0;

	if (content_read(job->pieces.items + item->piece, item->piece_count, w->codec, w->scratch,
	                 data, e->cluster_bytes, err) < 0)
		return -1;
	if (is_zero(data, e->cluster_bytes)) {
		item->kind = ITEM_ZERO;
		return 0;
	}
	if (codec_compress(w->codec, e->compression, data, e->cluster_bytes, w->scratch,
	                   e->cluster_bytes - 1, &packed, err) < 0)
		return -1;
	item->kind = packed ? ITEM_COMPRESSED : ITEM_PLAIN;
	item->bytes = (uint32_t)(packed ? packed : e->cluster_bytes);
	if (packed)
		memcpy(data, w->scratch, packed);
	return 0;
}

static int run_job(void *opaque, void *state, struct error *err)
{
	struct job *job = opaque;
	size_t i = 0;
	int rc = 0;

	while (i < job->count && rc == 0) {
		if (job->items[i].kind == ITEM_TAKEN)
			i += read_taken(job, i, &rc, err);
		else
			rc = make_cluster(job, &job->items[i++], state, err);
	}
	return rc;
}

/* Whether the base's compressed cluster can be taken over as it is. One that is larger than a
 * cluster is no work of QEMU's: it is read and compressed anew. */
static bool can_take(const struct exporter *e, enum content_kind kind, const struct piece *piece)
{
	return kind == CONTENT_STORED && !e->options->compact &&
	       piece->source->compression == e->compression &&
	       piece->cluster.own_bytes <= e->cluster_bytes &&
	       piece->cluster.own_bytes <= qcow2_writer_max_compressed(e->writer);
}

static int plan_item(struct exporter *e, struct job *job, struct error *err)
{
	struct item item = {.index = e->next, .at = job->used, .piece = job->pieces.count};
	enum content_kind kind;

	if (content_plan(e->content, e->next, &job->pieces, &kind, &e->next, err) < 0)
		return -1;
	if (kind == CONTENT_NOTHING)
		return 0;
	item.piece_count = job->pieces.count - item.piece;
	item.kind = ITEM_PLAIN;
	item.bytes = (uint32_t)e->cluster_bytes;
	if (can_take(e, kind, &job->pieces.items[item.piece])) {
		item.kind = ITEM_TAKEN;
		item.bytes = job->pieces.items[item.piece].cluster.own_bytes;
	}
	job->used += item.bytes;
	job->items[job->count++] = item;
	return 0;
}

/* An empty job: nothing is left. */
static int plan_job(struct exporter *e, struct job *job, struct error *err)
{
	job->count = job->used = job->pieces.count = 0;
	while (e->next < e->content->cluster_count && job->count < JOB_ITEMS &&
	       (job->count == 0 || job->used + e->cluster_bytes <= e->data_bytes))
		if (plan_item(e, job, err) < 0)
			return -1;
	job->next = e->next < e->content->cluster_count ? e->next : e->content->cluster_count;
	return 0;
}

static int write_item(struct exporter *e, const struct job *job, const struct item *item,
                      struct error *err)
{
	const unsigned char *data = job->data + item->at;

	if (item->kind == ITEM_ZERO)
		return 0;
	if (item->kind == ITEM_PLAIN) {
		e->stats->plain++;
		return qcow2_writer_plain(e->writer, item->index, data, err);
	}
	if (item->kind == ITEM_TAKEN)
		e->stats->taken_over++;
	else
		e->stats->compressed++;
	return qcow2_writer_compressed(e->writer, item->index, data, item->bytes, err);
}

/* *ret_more: a job came out of the ring. */
static int write_oldest(struct exporter *e, struct ring *ring, bool *ret_more, struct error *err)
{
	void *taken;
	const struct job *job;

	if (ring_take(ring, &taken, err) < 0)
		return -1;
	*ret_more = taken != NULL;
	if (!taken)
		return 0;
	job = taken;
	for (size_t i = 0; i < job->count; i++)
		if (write_item(e, job, &job->items[i], err) < 0)
			return -1;
	log_step_progress(e->options->log, (double)job->next / (double)e->content->cluster_count,
	                  NULL);
	return 0;
}

static int copy_clusters(struct exporter *e, struct ring *ring, struct error *err)
{
	bool more = true;

	while (e->next < e->content->cluster_count) {
		struct job *job = ring_free_job(ring);

		if (!job && write_oldest(e, ring, &more, err) < 0)
			return -1;
		if (!job)
			continue;
		if (plan_job(e, job, err) < 0)
			return -1;
		if (job->count)
			ring_post(ring);
	}
	while (more)
		if (write_oldest(e, ring, &more, err) < 0)
			return -1;
	return 0;
}

static unsigned count_threads(const struct exporter *e)
{
	size_t each = THREAD_BYTES + content_scratch_bytes(e->content) +
	              JOBS_A_THREAD * (e->data_bytes + JOB_ITEMS * sizeof(struct item));
	cpu_set_t set;
	size_t count = sched_getaffinity(0, sizeof(set), &set) == 0 ? (size_t)CPU_COUNT(&set) : 1;

	if (count > MAX_THREADS)
		count = MAX_THREADS;
	if (count > MEMORY_BYTES / each)
		count = MEMORY_BYTES / each;
	return count ? (unsigned)count : 1;
}

int export_clusters(struct content *c, const struct export_options *options,
                    enum compression compression, unsigned threads, struct export_stats *stats,
                    struct error *err)
{
	const struct qcow2_layout layout = {
		.virtual_bytes = c->virtual_bytes,
		.cluster_bits = c->cluster_bits,
		.compression_type = compression == COMPRESSION_ZSTD,
	};
	struct exporter e = {
		.content = c,
		.options = options,
		.stats = stats,
		.compression = compression,
		.cluster_bytes = (size_t)1 << c->cluster_bits,
	};
	const struct ring_work work = {
		.job_new = job_new,
		.job_free = job_free,
		.thread_new = worker_new,
		.thread_free = worker_free,
		.run = run_job,
		.opaque = &e,
	};
	CLEANUP_QCOW2_WRITER struct qcow2_writer *writer = NULL;
	CLEANUP_RING struct ring *ring = NULL;

	e.data_bytes = e.cluster_bytes > JOB_BYTES ? e.cluster_bytes : JOB_BYTES;
	if (threads == 0)
		threads = count_threads(&e);
	if (qcow2_writer_open(&writer, options->to, &layout, err) < 0)
		return -1;
	e.writer = writer;
	if (ring_open(&ring, &work, threads, (size_t)threads * JOBS_A_THREAD, err) < 0)
		return -1;
	if (copy_clusters(&e, ring, err) < 0)
		return -1;
	return qcow2_writer_finish(writer, &stats->bytes, err);
}
