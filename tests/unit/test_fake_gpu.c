/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "builder/fake-gpu.h"
#include "tests/unit/tap.h"

/* QEMU's side of the protocol. */
enum { SYNC_MEMORY, RETURN, CONFIG_WRITE, CONFIG_READ, BAR_WRITE, BAR_READ, SET_IRQ, RESET };

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
	uint64_t address;
	uint64_t value;
	uint32_t size;
	bool memory;
};

#define HUNG_UP UINT64_MAX

static void tell(int fd, int command, const void *payload, size_t size)
{
	struct header header = {command, size};

	if (send(fd, &header, sizeof(header), MSG_NOSIGNAL) < 0 ||
	    (size && send(fd, payload, size, MSG_NOSIGNAL) < 0))
		printf("# send: %s\n", strerror(errno));
}

static uint64_t ask(int fd, int command, const void *payload, size_t size)
{
	struct {
		struct header header;
		uint64_t value;
	} reply;
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	tell(fd, command, payload, size);
	if (poll(&wait, 1, 5000) != 1 ||
	    recv(fd, &reply, sizeof(reply), MSG_WAITALL) != (ssize_t)sizeof(reply))
		return HUNG_UP;
	return reply.header.command == RETURN && reply.header.size == 8 ? reply.value : HUNG_UP;
}

static uint64_t config_read(int fd, uint32_t address, int length)
{
	struct config_access a = {address, 0, length};

	return ask(fd, CONFIG_READ, &a, sizeof(a));
}

static void config_write(int fd, uint32_t address, uint32_t value, int length)
{
	struct config_access a = {address, value, length};

	ask(fd, CONFIG_WRITE, &a, sizeof(a));
}

static uint64_t bar(int fd, int command, uint64_t address)
{
	struct bar_access a = {address, 0, 4, true};

	return ask(fd, command, &a, sizeof(a));
}

static void test_identity(int fd)
{
	check(config_read(fd, PCI_VENDOR_ID, 4) == 0x27b810de, "the card is 10de:27b8");
	check(config_read(fd, PCI_SUBSYSTEM_VENDOR_ID, 4) == 0x16ca10de, "of subsystem 10de:16ca");
	check(config_read(fd, PCI_CLASS_REVISION, 4) == 0x030200a1, "a 3D controller, revision a1");
	config_write(fd, PCI_VENDOR_ID, 0, 4);
	check(config_read(fd, PCI_VENDOR_ID, 2) == 0x10de, "its identity cannot be written");
	check(config_read(fd, 300, 4) == UINT32_MAX, "beyond its configuration space is nothing");
	check(config_read(fd, 254, 4) == UINT32_MAX, "nor across the end of it");
	check(config_read(fd, 0, -1) == UINT32_MAX && config_read(fd, 0, 3) == UINT32_MAX,
	      "odd lengths are answered as nothing");
	check(config_read(fd, UINT32_MAX, 1) == UINT32_MAX, "nor does the highest address wrap");
}

static void test_sizing(int fd)
{
	for (uint32_t at = PCI_BASE_ADDRESS_0; at <= PCI_CARDBUS_CIS; at += 4) {
		bool first = at == PCI_BASE_ADDRESS_0;

		config_write(fd, at, UINT32_MAX, 4);
		check(config_read(fd, at, 4) == (first ? 0xff000000 : 0),
		      "register 0x%x sizes as %s", at, first ? "16 MiB" : "absent");
	}
}

static void test_counts(int fd, struct fake_gpu *gpu)
{
	struct fake_gpu_counts c;

	config_write(fd, PCI_BASE_ADDRESS_0, 0xfd000000, 4);
	check(bar(fd, BAR_READ, 0xfd000000) == 0x194000a1, "BOOT_0 names an AD104");
	check(bar(fd, BAR_READ, 0xfd000004) == 0, "its neighbour reads as zero");
	bar(fd, BAR_WRITE, 0xfd101000);
	c = fake_gpu_counts(gpu);
	check(c.firmware_reads == 2 && c.firmware_writes == 1 && c.reads == 0 && c.writes == 0,
	      "accesses before the system starts are the firmware's");
	fake_gpu_firmware_done(gpu);
	bar(fd, BAR_READ, 0xfd000000);
	c = fake_gpu_counts(gpu);
	check(c.firmware_reads == 2 && c.reads == 1, "later ones are the system's");
	check(ask(fd, RESET, NULL, 0) == 0 && config_read(fd, PCI_BASE_ADDRESS_0, 4) == 0,
	      "a reset takes the BAR's address away");
}

/* As QEMU does it: a message without a reply, descriptors at its header. */
static void test_descriptors(int fd)
{
	struct header header = {SET_IRQ, 0};
	struct iovec part = {&header, sizeof(header)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct msghdr message = {.msg_iov = &part,
	                         .msg_iovlen = 1,
	                         .msg_control = control,
	                         .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	int ends[2];
	char byte;

	if (!check(pipe(ends) == 0, "a pipe to send"))
		return;
	*c = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(c), &ends[1], sizeof(int));
	check(sendmsg(fd, &message, 0) > 0, "a descriptor is sent");
	close(ends[1]);
	config_read(fd, 0, 2);
	check(read(ends[0], &byte, 1) == 0, "the card has closed the descriptor that it got");
	close(ends[0]);
}

static void test_sync_memory(int fd)
{
	char tables[192] = {0};

	tell(fd, SYNC_MEMORY, tables, sizeof(tables));
	check(config_read(fd, PCI_VENDOR_ID, 2) == 0x10de, "tables of memory get no reply");
}

static void test_bad_message(const char *what, int command, size_t size)
{
	struct error err = ERROR_INIT;
	struct fake_gpu *gpu = NULL;
	struct header header = {command, size};
	int fd = -1;
	char byte;

	if (fake_gpu_start(&gpu, &fd, &err) < 0) {
		check(false, "the card starts");
		error_free(&err);
		return;
	}
	send(fd, &header, sizeof(header), MSG_NOSIGNAL);
	check(recv(fd, &byte, 1, 0) == 0, "%s makes the card hang up", what);
	close(fd);
	fake_gpu_stop(gpu);
}

int main(void)
{
	struct error err = ERROR_INIT;
	struct fake_gpu *gpu = NULL;
	int fd = -1;

	if (!check(fake_gpu_start(&gpu, &fd, &err) == 0, "the card starts"))
		return tap_done();
	check(fcntl(fd, F_GETFD) & FD_CLOEXEC, "no child gets its socket by accident");
	test_identity(fd);
	test_sizing(fd);
	test_counts(fd, gpu);
	test_descriptors(fd);
	test_sync_memory(fd);
	fake_gpu_stop(gpu);
	check(ask(fd, CONFIG_READ, NULL, 0) == HUNG_UP, "a stopped card answers no more");
	close(fd);
	test_bad_message("an unknown command", 99, 0);
	test_bad_message("a message of four gigabytes", SYNC_MEMORY, (size_t)4 << 30);
	fake_gpu_stop(NULL);
	return tap_done();
}
