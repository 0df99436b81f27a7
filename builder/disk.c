/* SPDX-License-Identifier: Apache-2.0 */
/*
 * qemu-nbd is started by proc.h and not by libnbd, since only so its words can be caught for
 * our message, and its life is bound to ours. Everything on the socket is asynchronous under
 * a deadline: a server that hangs (a dead NFS mount below it) must not hang us.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "disk-internal.h"
#include "str.h"

#define DEADLINE_MS        60000
#define RETRY_MS           10
#define REQUEST_BYTES      ((size_t)1 << 20)
#define REQUESTS_IN_FLIGHT 4
#define BATCH_BYTES        (REQUEST_BYTES * REQUESTS_IN_FLIGHT)
#define REASON_BYTES       2048

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int left_ms(int64_t deadline_ms)
{
	int64_t left = deadline_ms - now_ms();

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
 * force-share: others may have the image open; nobody's lock fails us, and we take none.
 */
static int server_source(const char *path, const char *format, bool allow_backing, char **ret,
                         struct error *err)
{
	json_t *source = json_pack("{s:s, s:b, s:b, s:{s:s, s:s}}", "driver", format, "read-only",
	                           1, "force-share", 1, "file", "driver", "file", "filename", path);
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
	const char *const argv[] = {"qemu-nbd",  "--read-only", "--socket",
	                            socket_path, source,        NULL};
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
		if (left_ms(deadline_ms) == 0)
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
		int left = left_ms(deadline_ms);

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
	int64_t deadline_ms = now_ms() + DEADLINE_MS;
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

int disk_open(struct disk **ret, const char *path, const char *format, bool allow_backing,
              struct error *err)
{
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_FREE char *source = NULL;

	if (check_file(path, err) < 0 ||
	    server_source(path, format, allow_backing, &source, err) < 0)
		return -1;
	disk = mem_alloc(sizeof(*disk));
	disk->path = str_copy(path);
	disk->server_output = -1;
	pthread_mutex_init(&disk->lock, NULL);
	if (serve(disk, source, err) < 0)
		return -1;
	*ret = STEAL(disk);
	return 0;
}

/* Also forgets all requests under way, so their buffers are free again. */
static void drop_connection(struct disk *disk)
{
	if (disk->nbd)
		nbd_close(disk->nbd);
	disk->nbd = NULL;
	proc_kill(&disk->server);
}

void disk_close(struct disk *disk)
{
	if (!disk)
		return;
	drop_connection(disk);
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
		int left = left_ms(deadline_ms);

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

static int read_failed(struct disk *disk, enum answer answer, size_t size, uint64_t offset_bytes,
                       struct error *err)
{
	error_set(err, "cannot read %zu bytes at byte %llu of image '%s': %s", size,
	          (unsigned long long)offset_bytes, disk->path,
	          answer == ANSWER_ERROR ? "input/output error"
	                                 : "qemu-nbd ended, or did not answer in time");
	if (answer == ANSWER_NONE) {
		drop_connection(disk);
		return error_code(err, EXIT_HOST);
	}
	error_hint(err, "see what 'qemu-img check' says of the image");
	return error_code(err, EXIT_INPUT);
}

/* At most BATCH_BYTES, as requests side by side: QEMU decompresses them in parallel. */
static enum answer read_batch(struct disk *disk, char *buffer, size_t size, uint64_t offset_bytes)
{
	int64_t deadline_ms = now_ms() + DEADLINE_MS;
	int64_t cookies[REQUESTS_IN_FLIGHT];
	enum answer worst = ANSWER_OK;
	size_t count = 0;

	if (!disk->nbd)
		return ANSWER_NONE;
	for (size_t at = 0; at < size; at += REQUEST_BYTES) {
		size_t n = size - at < REQUEST_BYTES ? size - at : REQUEST_BYTES;

		cookies[count] = nbd_aio_pread(disk->nbd, buffer + at, n, offset_bytes + at,
		                               NBD_NULL_COMPLETION, 0);
		if (cookies[count++] < 0)
			return ANSWER_NONE;
	}
	for (size_t i = 0; i < count && worst != ANSWER_NONE; i++) {
		enum answer answer = await(disk->nbd, cookies[i], deadline_ms);

		worst = answer > worst ? answer : worst;
	}
	return worst;
}

int disk_read(struct disk *disk, void *buffer, size_t size, uint64_t offset_bytes,
              struct error *err)
{
	enum answer answer = ANSWER_OK;
	int result = 0;

	if (offset_bytes > disk->size_bytes || size > disk->size_bytes - offset_bytes) {
		error_set(err, "cannot read %zu bytes at byte %llu of image '%s': it ends at %llu",
		          size, (unsigned long long)offset_bytes, disk->path,
		          (unsigned long long)disk->size_bytes);
		return error_code(err, EXIT_INPUT);
	}
	pthread_mutex_lock(&disk->lock);
	for (size_t at = 0, n; at < size && answer == ANSWER_OK; at += n) {
		n = size - at < BATCH_BYTES ? size - at : BATCH_BYTES;
		answer = read_batch(disk, (char *)buffer + at, n, offset_bytes + at);
		if (answer != ANSWER_OK)
			result = read_failed(disk, answer, n, offset_bytes + at, err);
	}
	pthread_mutex_unlock(&disk->lock);
	return result;
}

const char *disk_table(const struct disk *disk)
{
	return disk->table;
}

size_t disk_volume_count(const struct disk *disk)
{
	return disk->volume_count;
}

const struct volume *disk_volume(const struct disk *disk, size_t index)
{
	return index < disk->volume_count ? &disk->volumes[index] : NULL;
}

static const char *volume_field(const struct volume *v, const char *key, size_t length)
{
	const struct {
		const char *key, *value;
	} fields[] = {{"UUID", v->uuid},
	              {"LABEL", v->label},
	              {"PARTUUID", v->partuuid},
	              {"PARTLABEL", v->partlabel}};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (strlen(fields[i].key) == length && strncasecmp(fields[i].key, key, length) == 0)
			return fields[i].value;
	return NULL;
}

/* fstab(5) allows the value in double quotes. */
static char *tag_value(const char *text)
{
	size_t length = strlen(text);

	if (length >= 2 && text[0] == '"' && text[length - 1] == '"')
		return mem_copy(text + 1, length - 2);
	return str_copy(text);
}

const struct volume *disk_find_volume(const struct disk *disk, const char *tag)
{
	const char *equals = strchr(tag, '=');
	CLEANUP_FREE char *value = equals ? tag_value(equals + 1) : NULL;
	const struct volume *other_case = NULL;

	if (!value || !*value)
		return NULL;
	for (size_t i = 0; i < disk->volume_count; i++) {
		const struct volume *v = &disk->volumes[i];
		const char *have = volume_field(v, tag, (size_t)(equals - tag));

		if (have && strcmp(have, value) == 0)
			return v;
		if (have && !other_case && strcasecmp(have, value) == 0)
			other_case = v;
	}
	return other_case;
}

bool disk_boots_bios(const struct disk *disk)
{
	return disk->boots_bios;
}

bool disk_boots_uefi(const struct disk *disk)
{
	return disk->boots_uefi;
}
