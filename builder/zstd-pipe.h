/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file compressed with zstd, behind a pipe: what is large goes through in pieces, and (un)packing
 * and compression each have a thread. One pipe is for one stream.
 */
#ifndef GPUIMG_ZSTD_PIPE_H
#define GPUIMG_ZSTD_PIPE_H

#include "cleanup.h"
#include "error.h"

struct zstd_pipe;

/* What is written to zstd_pipe_fd() goes to 'to', compressed, until zstd_pipe_end(). 'to' is
 * borrowed; 'name' is for messages. */
int zstd_pipe_compress(struct zstd_pipe **ret, int to, int level, const char *name,
                       struct error *err);
/* What 'from' holds is read from zstd_pipe_fd(). Its last byte comes out only if the whole of
 * 'from' was good, as long as zstd_pipe_end() says so. */
int zstd_pipe_expand(struct zstd_pipe **ret, int from, const char *name, struct error *err);
int zstd_pipe_fd(const struct zstd_pipe *p);
/* Closes our end, waits for the thread, and tells what it met. Always releases the pipe. */
int zstd_pipe_end(struct zstd_pipe *p, struct error *err);

#endif
