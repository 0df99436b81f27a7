/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "driver-run.h"

#define HEAD_BYTES 65536
/* Of every driver for Linux; what follows is "ARCH VERSION" and maybe "-grid". */
#define LABEL "\nlabel=\"NVIDIA Accelerated Graphics Driver for Linux-"

static int refuse(const char *path, const char *why, struct error *err)
{
	error_set(err, "'%s' is no installer of an NVIDIA driver: %s", path, why);
	error_hint(err, "give the file as NVIDIA publishes it: NVIDIA-Linux-x86_64-VERSION.run");
	return error_code(err, EXIT_INPUT);
}

/* Its first bytes, as a string. */
static int read_first(const char *path, char *head, uint64_t *ret_size, struct error *err)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0) {
		error_errno(err, errno, "cannot open the driver's installer '%s'", path);
		return error_code(err, EXIT_INPUT);
	}
	if (!S_ISREG(st.st_mode))
		return refuse(path, "it is no regular file", err);
	do {
		n = pread(fd, head, HEAD_BYTES - 1, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return error_errno(err, errno, "cannot read '%s'", path);
	head[n] = '\0';
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

/* "535.104.05" up to what ends it, with at least one dot between numbers. */
static char *take_version(const char *at)
{
	size_t length = strspn(at, "0123456789.");
	const char *dot = memchr(at, '.', length);

	if (!dot || !isdigit((unsigned char)*at) || !isdigit((unsigned char)at[length - 1]) ||
	    !at[length] || !strchr("\"- ", at[length]))
		return NULL;
	return mem_copy(at, length);
}

int driver_run_read_head(struct driver_run_head *ret, const char *path, struct error *err)
{
	CLEANUP_FREE char *head = mem_alloc(HEAD_BYTES);
	CLEANUP_DRIVER_RUN_HEAD struct driver_run_head found = {0};
	const char *label;
	size_t length;

	if (read_first(path, head, &found.size_bytes, err) < 0)
		return -1;
	if (!str_starts(head, "#!"))
		return refuse(path, "it is no script", err);
	label = strstr(head, LABEL);
	if (!label)
		return refuse(path, "no label of such a driver stands in its head", err);
	label += strlen(LABEL);
	length = strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789_");
	if (length == 0 || label[length] != ' ')
		return refuse(path, "its label names no architecture", err);
	found.arch = mem_copy(label, length);
	found.version = take_version(label + length + 1);
	if (!found.version)
		return refuse(path, "its label names no version", err);
	*ret = (struct driver_run_head){.arch = STEAL(found.arch),
	                                .version = STEAL(found.version),
	                                .size_bytes = found.size_bytes};
	return 0;
}

void driver_run_head_free(struct driver_run_head *head)
{
	free(head->arch);
	free(head->version);
	*head = (struct driver_run_head){0};
}
