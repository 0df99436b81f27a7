/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/pci_regs.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake-gpu.h"
#include "str.h"

#define CONFIG_BYTES 256
/* QEMU sends at most 8 descriptors in a message, and 192 bytes (tables of guest memory). */
#define MESSAGE_FDS       16
#define MESSAGE_MAX_BYTES 256

#define PMC_BOOT_0 0U

/* MPQemuCmd, as numbered since QEMU 6.0. */
enum command {
	COMMAND_SYNC_MEMORY = 0,
	COMMAND_RETURN = 1,
	COMMAND_CONFIG_WRITE = 2,
	COMMAND_CONFIG_READ = 3,
	COMMAND_BAR_WRITE = 4,
	COMMAND_BAR_READ = 5,
	COMMAND_SET_IRQ = 6,
	COMMAND_RESET = 7,
};

struct header {
	int command;
	size_t size;
};

struct config_access {
	uint32_t address;
	uint32_t value;
	int length;
};

struct bar_access {
	uint64_t address; /* guest physical */
	uint64_t value;
	uint32_t size;
	bool memory;
};

struct fake_gpu {
	int fd;
	pthread_t thread;
	pthread_mutex_t lock; /* for what stands below */
	bool firmware_done;
	struct fake_gpu_counts counts;
	/* The thread's own. */
	uint8_t config[CONFIG_BYTES];
	uint8_t writable[CONFIG_BYTES]; /* mask of the bits that the guest may change */
};

static void put(uint8_t *at, uint32_t value, size_t length)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (uint8_t)(value >> (8 * i));
}

static uint32_t get(const uint8_t *at, size_t length)
{
	uint32_t value = 0;

	for (size_t i = 0; i < length; i++)
		value |= (uint32_t)at[i] << (8 * i);
	return value;
}

static void config_init(struct fake_gpu *gpu)
{
	uint8_t *config = gpu->config;

	put(config + PCI_VENDOR_ID, 0x10de, 2);
	put(config + PCI_DEVICE_ID, 0x27b8, 2);
	put(config + PCI_REVISION_ID, 0xa1, 1);
	put(config + PCI_CLASS_DEVICE, 0x0302, 2);
	put(config + PCI_SUBSYSTEM_VENDOR_ID, 0x10de, 2);
	put(config + PCI_SUBSYSTEM_ID, 0x16ca, 2);
	put(config + PCI_INTERRUPT_PIN, 1, 1);
	put(gpu->writable + PCI_COMMAND, 0x0547, 2);
	put(gpu->writable + PCI_CACHE_LINE_SIZE, 0xff, 1);
	put(gpu->writable + PCI_LATENCY_TIMER, 0xff, 1);
	put(gpu->writable + PCI_BASE_ADDRESS_0, ~(FAKE_GPU_BAR0_BYTES - 1), 4);
	put(gpu->writable + PCI_INTERRUPT_LINE, 0xff, 1);
}

static bool config_access_fits(const struct config_access *a)
{
	return (a->length == 1 || a->length == 2 || a->length == 4) &&
	       a->address <= CONFIG_BYTES - (uint32_t)a->length;
}

static void config_write(struct fake_gpu *gpu, const struct config_access *a)
{
	uint8_t value[4];

	if (!config_access_fits(a))
		return;
	put(value, a->value, (size_t)a->length);
	for (int i = 0; i < a->length; i++) {
		uint8_t *at = &gpu->config[a->address + (uint32_t)i];
		uint8_t mask = gpu->writable[a->address + (uint32_t)i];

		*at = (uint8_t)((*at & ~mask) | (value[i] & mask));
	}
}

static uint64_t config_read(const struct fake_gpu *gpu, const struct config_access *a)
{
	/* What a bus answers where nothing is; the extended space is such a place. */
	if (!config_access_fits(a))
		return UINT32_MAX;
	return get(gpu->config + a->address, (size_t)a->length);
}

static void count(struct fake_gpu *gpu, bool write)
{
	struct fake_gpu_counts *c = &gpu->counts;

	pthread_mutex_lock(&gpu->lock);
	if (write)
		(*(gpu->firmware_done ? &c->writes : &c->firmware_writes))++;
	else
		(*(gpu->firmware_done ? &c->reads : &c->firmware_reads))++;
	pthread_mutex_unlock(&gpu->lock);
}

static uint64_t bar_read(struct fake_gpu *gpu, const struct bar_access *a)
{
	uint64_t offset = a->address - get(gpu->config + PCI_BASE_ADDRESS_0, 4);

	count(gpu, false);
	return offset == PMC_BOOT_0 ? FAKE_GPU_BOOT_0 : 0;
}

static int answer(struct fake_gpu *gpu, uint64_t value)
{
	struct {
		struct header header;
		uint64_t value;
	} reply = {{COMMAND_RETURN, sizeof(value)}, value};
	ssize_t n;

	do {
		n = send(gpu->fd, &reply, sizeof(reply), MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(reply) ? 0 : -1;
}

/* QEMU offers the guest's memory and interrupts as descriptors; this card uses neither. */
static void close_received(struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		size_t fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < fds; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			close(fd);
		}
	}
}

/* All of 'size' bytes, or -1 at the end of the connection. */
static int receive(int fd, void *data, size_t size)
{
	size_t done = 0;

	while (done < size) {
		_Alignas(struct cmsghdr) char control[CMSG_SPACE(MESSAGE_FDS * sizeof(int))];
		struct iovec part = {(char *)data + done, size - done};
		struct msghdr message = {.msg_iov = &part,
		                         .msg_iovlen = 1,
		                         .msg_control = control,
		                         .msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		close_received(&message);
		done += (size_t)n;
	}
	return 0;
}

static int serve(struct fake_gpu *gpu, const struct header *header, const uint8_t *payload)
{
	struct config_access config = {0};
	struct bar_access bar = {0};

	memcpy(&config, payload, sizeof(config));
	memcpy(&bar, payload, sizeof(bar));
	switch (header->command) {
	case COMMAND_SYNC_MEMORY:
	case COMMAND_SET_IRQ:
		return 0;
	case COMMAND_CONFIG_WRITE:
		config_write(gpu, &config);
		return answer(gpu, 0);
	case COMMAND_CONFIG_READ:
		return answer(gpu, config_read(gpu, &config));
	case COMMAND_BAR_WRITE:
		count(gpu, true);
		return answer(gpu, 0);
	case COMMAND_BAR_READ:
		return answer(gpu, bar_read(gpu, &bar));
	case COMMAND_RESET:
		put(gpu->config + PCI_COMMAND, 0, 2);
		put(gpu->config + PCI_BASE_ADDRESS_0, 0, 4);
		return answer(gpu, 0);
	default:
		return -1; /* not the protocol that we know: hang up */
	}
}

static void *run(void *opaque)
{
	struct fake_gpu *gpu = opaque;

	for (;;) {
		struct header header;
		uint8_t payload[MESSAGE_MAX_BYTES] = {0};

		if (receive(gpu->fd, &header, sizeof(header)) < 0)
			break;
		if (header.size > sizeof(payload) || receive(gpu->fd, payload, header.size) < 0 ||
		    serve(gpu, &header, payload) < 0)
			break;
	}
	shutdown(gpu->fd, SHUT_RDWR);
	return NULL;
}

/* The thread must not take the signals that are meant for the program. */
static int start_thread(struct fake_gpu *gpu)
{
	sigset_t all, before;
	int errnum;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	errnum = pthread_create(&gpu->thread, NULL, run, gpu);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return errnum;
}

int fake_gpu_start(struct fake_gpu **ret, int *ret_fd, struct error *err)
{
	struct fake_gpu *gpu;
	int pair[2], errnum;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return error_errno(err, errno, "cannot make a socket for the emulated card");
	gpu = mem_alloc(sizeof(*gpu));
	gpu->fd = pair[0];
	pthread_mutex_init(&gpu->lock, NULL);
	config_init(gpu);
	errnum = start_thread(gpu);
	if (errnum) {
		close(pair[0]);
		close(pair[1]);
		pthread_mutex_destroy(&gpu->lock);
		free(gpu);
		return error_errno(err, errnum, "cannot start the emulated card");
	}
	*ret = gpu;
	*ret_fd = pair[1];
	return 0;
}

void fake_gpu_firmware_done(struct fake_gpu *gpu)
{
	pthread_mutex_lock(&gpu->lock);
	gpu->firmware_done = true;
	pthread_mutex_unlock(&gpu->lock);
}

struct fake_gpu_counts fake_gpu_counts(struct fake_gpu *gpu)
{
	struct fake_gpu_counts counts;

	pthread_mutex_lock(&gpu->lock);
	counts = gpu->counts;
	pthread_mutex_unlock(&gpu->lock);
	return counts;
}

void fake_gpu_stop(struct fake_gpu *gpu)
{
	if (!gpu)
		return;
	shutdown(gpu->fd, SHUT_RDWR);
	pthread_join(gpu->thread, NULL);
	close(gpu->fd);
	pthread_mutex_destroy(&gpu->lock);
	free(gpu);
}
