/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child that serves an image. qemu-nbd is started by proc.h and not by libnbd, since only so
 * its words can be caught for our message, and its life is bound to ours. Everything on the
 * socket is asynchronous under a deadline: a server that hangs (a dead NFS mount below it) must
 * not hang us.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "disk-internal.h"
#include "str.h"

#define RETRY_MS     10
#define REASON_BYTES 2048

int disk_left_ms(int64_t deadline_ms)
{
	int64_t left = deadline_ms - clock_ms();

	return left > 0 ? (int)left : 0;
}

/* A FIFO or a missing file is told here, in our words, and not by QEMU. */
static int check_file(const char *path, struct error *err)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		error_errno(err, errno, "cannot open image '%s'", path);
		return error_code(err, EXIT_INPUT);
	}
	if (!S_ISREG(st.st_mode)) {
		error_set(err, "cannot open image '%s': not a regular file", path);
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

/*
 * QEMU's json: pseudo-protocol: no part of the path can be taken for an option or a protocol.
 * "backing": null is what makes QEMU ignore the backing file that the header names.
 * force-share, for readers: others may have the image open; nobody's lock fails us, and we take
 * none. A writer takes QEMU's lock.
 */
static int server_source(const struct disk *disk, const char *format, bool allow_backing,
                         char **ret, struct error *err)
{
	const char *path = disk->path;
	json_t *source = json_pack("{s:s, s:b, s:b, s:{s:s, s:s}}", "driver", format, "read-only",
	                           !disk->writable, "force-share", !disk->writable, "file",
	                           "driver", "file", "filename", path);
	CLEANUP_FREE char *text = NULL;

	if (source && !allow_backing && str_equal(format, "qcow2"))
		json_object_set_new(source, "backing", json_null());
	text = source ? json_dumps(source, JSON_COMPACT) : NULL;
	json_decref(source);
	if (!text) {
		error_set(err, "cannot open image '%s': its name is not UTF-8", path);
		error_hint(err, "rename the file, or give it a link with a plain name");
		return error_code(err, EXIT_INPUT);
	}
	*ret = str_format("json:%s", text);
	return 0;
}

/* What qemu-nbd wrote, without its repetition of our json: source. */
static char *server_reason(const struct disk *disk)
{
	char text[REASON_BYTES + 1];
	ssize_t n = pread(disk->server_output, text, REASON_BYTES, 0);
	char *reason = text, *next;

	text[n > 0 ? n : 0] = '\0';
	while ((next = strstr(reason, "}': ")))
		reason = next + strlen("}': ");
	return str_printable(str_trim(reason), 600);
}

static int server_failed(const struct disk *disk, const char *how, struct error *err)
{
	CLEANUP_FREE char *reason = server_reason(disk);

	error_set(err, "cannot open image '%s': qemu-nbd %s%s%s", disk->path, how,
	          *reason ? ": " : "", reason);
	return error_code(err, EXIT_INPUT);
}

static int start_server(struct disk *disk, const char *source, const char *socket_path,
                        struct error *err)
{
	const char *const reader[] = {"qemu-nbd",  "--read-only", "--socket",
	                              socket_path, source,        NULL};
	/* The overlay is a work file that a crash of the host may take: no fsync for it. */
	const char *const writer[] = {"qemu-nbd",
	                              "--cache=unsafe",
	                              "--discard=unmap",
	                              "--detect-zeroes=unmap",
	                              "--socket",
	                              socket_path,
	                              source,
	                              NULL};
	const char *const *argv = disk->writable ? writer : reader;
	const struct proc_options options = {0};

	disk->server_output = memfd_create("qemu-nbd", MFD_CLOEXEC);
	if (disk->server_output < 0)
		return error_errno(err, errno, "cannot make a temporary file in memory");
	if (proc_start(&disk->server, argv, &options, -1, disk->server_output, err) == 0)
		return 0;
	error_prefix(err, "cannot open image '%s'", disk->path);
	return error_hint(err, "install qemu-nbd (package qemu-utils)");
}

/* 1: connected, 0: the server does not listen yet, -1: error. */
static int try_connect(const struct sockaddr_un *address, int *ret_fd, struct error *err)
{
	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return error_errno(err, errno, "cannot make a socket");
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0) {
		*ret_fd = steal_fd(&fd);
		return 1;
	}
	if (errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR)
		return 0;
	return error_errno(err, errno, "cannot connect to '%s'", address->sun_path);
}

static int connect_server(struct disk *disk, const char *socket_path, int64_t deadline_ms,
                          int *ret_fd, struct error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
	for (;;) {
		int status, ended, connected = try_connect(&address, ret_fd, err);

		if (connected != 0)
			return connected < 0 ? -1 : 0;
		ended = proc_wait(&disk->server, RETRY_MS, &status, err);
		if (ended < 0)
			return -1;
		if (ended > 0)
			return server_failed(disk, "refuses it", err);
		if (disk_left_ms(deadline_ms) == 0)
			return server_failed(disk, "did not start in time", err);
	}
}

static int handshake(struct disk *disk, int fd, int64_t deadline_ms, struct error *err)
{
	int64_t size;

	disk->nbd = nbd_create();
	if (!disk->nbd) {
		close(fd);
		return error_set(err, "cannot make an NBD handle: %s", nbd_get_error());
	}
	if (nbd_aio_connect_socket(disk->nbd, fd) < 0)
		return error_set(err, "cannot talk to qemu-nbd: %s", nbd_get_error());
	while (nbd_aio_is_connecting(disk->nbd) > 0) {
		int left = disk_left_ms(deadline_ms);

		if (left == 0)
			return server_failed(disk, "did not answer in time", err);
		if (nbd_poll(disk->nbd, left) < 0)
			break;
	}
	if (nbd_aio_is_ready(disk->nbd) <= 0)
		return server_failed(disk, "ended the connection", err);
	size = nbd_get_size(disk->nbd);
	if (size < 0)
		return error_set(err, "cannot ask for the size of image '%s': %s", disk->path,
		                 nbd_get_error());
	disk->size_bytes = (uint64_t)size;
	return 0;
}

/* A socket of our own in a directory that only we can enter; gone once we are connected. */
static int serve(struct disk *disk, const char *source, struct error *err)
{
	int64_t deadline_ms = clock_ms() + DISK_DEADLINE_MS;
	const char *tmp = getenv("TMPDIR");
	/* A socket's path has 107 bytes at most. */
	bool fits = tmp && *tmp == '/' && strlen(tmp) < 70;
	CLEANUP_FREE char *dir = str_format("%s/gpuimg-nbd-XXXXXX", fits ? tmp : "/tmp");
	CLEANUP_FREE char *socket_path = NULL;
	int fd = -1, result;

	if (!mkdtemp(dir)) {
		error_errno(err, errno, "cannot make a directory '%s'", dir);
		return error_code(err, EXIT_HOST);
	}
	socket_path = str_format("%s/socket", dir);
	result = start_server(disk, source, socket_path, err);
	if (result == 0)
		result = connect_server(disk, socket_path, deadline_ms, &fd, err);
	unlink(socket_path);
	rmdir(dir);
	return result < 0 ? -1 : handshake(disk, fd, deadline_ms, err);
}

int disk_serve(struct disk *disk, const char *format, bool allow_backing, struct error *err)
{
	CLEANUP_FREE char *source = NULL;

	if (check_file(disk->path, err) < 0 ||
	    server_source(disk, format, allow_backing, &source, err) < 0)
		return -1;
	return serve(disk, source, err);
}

/* Also forgets all requests under way, so their buffers are free again. */
void disk_drop_server(struct disk *disk)
{
	if (disk->nbd)
		nbd_close(disk->nbd);
	disk->nbd = NULL;
	proc_kill(&disk->server);
}

static int not_whole(struct disk *disk, const char *why, struct error *err)
{
	CLEANUP_FREE char *reason = server_reason(disk);

	disk_drop_server(disk);
	error_set(err, "cannot finish image '%s': qemu-nbd %s%s%s", disk->path, why,
	          *reason ? ": " : "", reason);
	return error_code(err, EXIT_HOST);
}

/* The server ends with its last client, and writes its tables on the way: so its end counts. */
int disk_end_server(struct disk *disk, struct error *err)
{
	int64_t deadline_ms = clock_ms() + DISK_DEADLINE_MS;
	int status, ended;

	if (nbd_aio_disconnect(disk->nbd, 0) < 0)
		return not_whole(disk, "did not take our farewell", err);
	while (!nbd_aio_is_closed(disk->nbd) && !nbd_aio_is_dead(disk->nbd)) {
		int left = disk_left_ms(deadline_ms);

		if (left == 0)
			return not_whole(disk, "did not end in time", err);
		if (nbd_poll(disk->nbd, left) < 0)
			break;
	}
	ended = proc_wait(&disk->server, (unsigned)disk_left_ms(deadline_ms), &status, err);
	if (ended < 0)
		return -1;
	if (ended == 0)
		return not_whole(disk, "did not end in time", err);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return not_whole(disk, "failed", err);
	disk_drop_server(disk);
	return 0;
}
