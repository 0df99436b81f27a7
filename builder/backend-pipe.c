/* SPDX-License-Identifier: Apache-2.0 */
/* A tar on its way between tree and appliance: packed by a thread while it is unpacked, so that it
 * is never a file. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "backend-internal.h"

struct packing {
	struct build *b;
	const struct tar_way *way;
	int fd;
	int result;
	struct error err;
};

static void *pack_thread(void *opaque)
{
	struct packing *p = opaque;

	p->result = p->way->pack(p->b, p->way->opaque, p->fd, &p->err);
	close(p->fd);
	return NULL;
}

int backend_move_tar(struct build *b, const struct tar_way *way, struct error *err)
{
	struct packing p = {.b = b, .way = way, .err = ERROR_INIT};
	pthread_t thread;
	int fds[2], result;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	p.fd = fds[1];
	if (pthread_create(&thread, NULL, pack_thread, &p) != 0) {
		close(fds[0]);
		close(fds[1]);
		return error_set(err, "cannot start a thread that packs the files");
	}
	result = way->unpack(b, way->opaque, fds[0], err);
	close(fds[0]); /* a packer that still runs gets EPIPE */
	pthread_join(thread, NULL);
	/* A tar that was cut off is told by the packer's reason, not by what the unpacker makes of
	 * it; but that the pipe broke was the unpacker's doing. */
	if (p.result < 0 && (result == 0 || !strstr(p.err.message, strerror(EPIPE))))
		result = error_take(err, &p.err);
	error_free(&p.err);
	return result;
}
