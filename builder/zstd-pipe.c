/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include <zstd.h>

#include "fd.h"
#include "str.h"
#include "zstd-pipe.h"

#define PIPE_BYTES (1 << 20)

struct zstd_pipe {
	pthread_t thread;
	int our_fd, its_fd; /* ends of the pipe */
	int file_fd;        /* borrowed */
	int level;
	char *name;
	int result; /* the thread's, as is 'err' */
	struct error err;
};

static int zstd_fail(const struct zstd_pipe *p, size_t code, struct error *err)
{
	return error_set(err, "cannot (un)pack '%s' with zstd: %s", p->name,
	                 ZSTD_getErrorName(code));
}

/* 0: the end. */
static ssize_t read_some(int fd, void *to, size_t size)
{
	ssize_t n;

	do {
		n = read(fd, to, size);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* Of one piece; at the end (an empty one) all that zstd still holds. */
static int compress_piece(struct zstd_pipe *p, ZSTD_CCtx *context, ZSTD_inBuffer *in,
                          ZSTD_outBuffer *out, struct error *err)
{
	const ZSTD_EndDirective how = in->size ? ZSTD_e_continue : ZSTD_e_end;
	size_t left;

	do {
		out->pos = 0;
		left = ZSTD_compressStream2(context, out, in, how);
		if (ZSTD_isError(left))
			return zstd_fail(p, left, err);
		if (fd_write_all(p->file_fd, out->dst, out->pos) < 0)
			return error_errno(err, errno, "cannot write '%s'", p->name);
	} while (in->size ? in->pos < in->size : left > 0);
	return 0;
}

/* A writer must not meet a pipe that nobody reads: after a failure the rest is read, too. */
static void *compress(void *opaque)
{
	struct zstd_pipe *p = opaque;
	ZSTD_CCtx *context = ZSTD_createCCtx();
	CLEANUP_FREE char *data = mem_alloc(ZSTD_CStreamInSize());
	ZSTD_outBuffer out = {.size = ZSTD_CStreamOutSize()};
	ZSTD_inBuffer in;
	ssize_t n;

	out.dst = mem_alloc(out.size);
	ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, p->level);
	ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
	do {
		n = read_some(p->its_fd, data, ZSTD_CStreamInSize());
		if (n < 0 && p->result == 0)
			p->result = error_errno(&p->err, errno, "cannot read what '%s' is to hold",
			                        p->name);
		in = (ZSTD_inBuffer){.src = data, .size = n > 0 ? (size_t)n : 0};
		if (p->result == 0)
			p->result = compress_piece(p, context, &in, &out, &p->err);
	} while (n > 0);
	free(out.dst);
	ZSTD_freeCCtx(context);
	return NULL;
}

/* 1: our end is closed, nobody wants more. */
static int expand_piece(struct zstd_pipe *p, ZSTD_DCtx *context, ZSTD_inBuffer *in,
                        ZSTD_outBuffer *out, size_t *ret_wants, struct error *err)
{
	do {
		out->pos = 0;
		*ret_wants = ZSTD_decompressStream(context, out, in);
		if (ZSTD_isError(*ret_wants))
			return zstd_fail(p, *ret_wants, err);
		if (fd_write_all(p->its_fd, out->dst, out->pos) < 0)
			return errno == EPIPE
			               ? 1
			               : error_errno(err, errno, "cannot hand on '%s'", p->name);
	} while (in->pos < in->size || out->pos == out->size);
	return 0;
}

static int expand_all(struct zstd_pipe *p, ZSTD_DCtx *context, ZSTD_outBuffer *out,
                      struct error *err)
{
	CLEANUP_FREE char *data = mem_alloc(ZSTD_DStreamInSize());
	size_t wants = 1; /* of a frame that has not ended; an empty file is none */
	ZSTD_inBuffer in;
	ssize_t n;
	int result;

	while ((n = read_some(p->file_fd, data, ZSTD_DStreamInSize())) > 0) {
		in = (ZSTD_inBuffer){.src = data, .size = (size_t)n};
		result = expand_piece(p, context, &in, out, &wants, err);
		if (result != 0)
			return result < 0 ? -1 : 0;
	}
	if (n < 0)
		return error_errno(err, errno, "cannot read '%s'", p->name);
	return wants ? error_set(err, "'%s' ends too early", p->name) : 0;
}

static void *expand(void *opaque)
{
	struct zstd_pipe *p = opaque;
	ZSTD_DCtx *context = ZSTD_createDCtx();
	ZSTD_outBuffer out = {.size = ZSTD_DStreamOutSize()};

	out.dst = mem_alloc(out.size);
	p->result = expand_all(p, context, &out, &p->err);
	free(out.dst);
	ZSTD_freeDCtx(context);
	close(steal_fd(&p->its_fd)); /* the reader sees the end */
	return NULL;
}

/* Signals are for the thread that waits for them; a reader that went away is an error to write. */
static int start(struct zstd_pipe *p, void *(*run)(void *), struct error *err)
{
	sigset_t all, before;
	int failed;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&p->thread, NULL, run, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!failed)
		return 0;
	return error_errno(err, failed, "cannot start a thread that (un)packs '%s'", p->name);
}

static void pipe_free(struct zstd_pipe *p)
{
	cleanup_close(&p->our_fd);
	cleanup_close(&p->its_fd);
	error_free(&p->err);
	free(p->name);
	free(p);
}

static int open_pipe(struct zstd_pipe **ret, int file_fd, int level, const char *name,
                     struct error *err)
{
	const bool packs = level != 0;
	struct zstd_pipe *p;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	fcntl(fds[0], F_SETPIPE_SZ, PIPE_BYTES); /* fewer turns; without it works as well */
	p = mem_alloc(sizeof(*p));
	*p = (struct zstd_pipe){.our_fd = fds[packs ? 1 : 0],
	                        .its_fd = fds[packs ? 0 : 1],
	                        .file_fd = file_fd,
	                        .level = level,
	                        .name = str_copy(name)};
	if (start(p, packs ? compress : expand, err) < 0) {
		pipe_free(p);
		return -1;
	}
	*ret = p;
	return 0;
}

int zstd_pipe_compress(struct zstd_pipe **ret, int to, int level, const char *name,
                       struct error *err)
{
	return open_pipe(ret, to, level, name, err);
}

int zstd_pipe_expand(struct zstd_pipe **ret, int from, const char *name, struct error *err)
{
	return open_pipe(ret, from, 0, name, err);
}

int zstd_pipe_fd(const struct zstd_pipe *p)
{
	return p->our_fd;
}

int zstd_pipe_end(struct zstd_pipe *p, struct error *err)
{
	int result;

	close(steal_fd(&p->our_fd));
	pthread_join(p->thread, NULL);
	result = p->result < 0 ? error_take(err, &p->err) : 0;
	pipe_free(p);
	return result;
}
