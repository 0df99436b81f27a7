/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <guestfs.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "appliance-internal.h"
#include "appliance-tar.h"
#include "fd.h"

#define PUMP_BYTES ((size_t)256 * 1024)
#define SILENCE_S  180 /* one large directory on a busy host without KVM */
#define FILE_S     600

/*
 * Stands between the appliance and the reader, so that only the appliance's silence counts, and
 * not the time that the reader takes for its own work.
 */
struct pump {
	struct appliance *a;
	int from, to;
	int errnum; /* of the writing; 0: all was passed on */
};

static ssize_t read_some(struct pump *p, char *buffer)
{
	ssize_t n;

	appliance_watch(p->a, SILENCE_S);
	do {
		n = read(p->from, buffer, PUMP_BYTES);
	} while (n < 0 && errno == EINTR);
	return n;
}

static void *pump_thread(void *opaque)
{
	struct pump *p = opaque;
	CLEANUP_FREE char *buffer = mem_alloc(PUMP_BYTES);
	ssize_t n;

	while ((n = read_some(p, buffer)) > 0) {
		appliance_unwatch(p->a);
		if (fd_write_all(p->to, buffer, (size_t)n) < 0) {
			p->errnum = errno;
			break;
		}
	}
	if (n < 0)
		p->errnum = errno;
	/* After a failure the appliance breaks off: nobody reads any more. It gets its time. */
	close(p->from);
	appliance_watch(p->a, SILENCE_S);
	return NULL;
}

static int pack(struct appliance *a, int fd)
{
	static const char *const excludes[] = {"./proc/*", "./sys/*", "./dev/*",
	                                       "./run/*",  "./tmp/*", NULL};
	CLEANUP_FREE char *path = str_format("/dev/fd/%d", fd);

	/* Error handler and last error are each thread's own. Without SELINUX and ACLS: both are
	 * among the extended attributes, and would come twice. */
	guestfs_set_error_handler(a->g, NULL, NULL);
	return guestfs_tar_out_opts(a->g, "/", path, GUESTFS_TAR_OUT_OPTS_NUMERICOWNER, 1,
	                            GUESTFS_TAR_OUT_OPTS_XATTRS, 1, GUESTFS_TAR_OUT_OPTS_EXCLUDES,
	                            excludes, -1);
}

int appliance_tar_out(struct appliance *a, int fd, struct error *err)
{
	struct pump p = {.a = a, .to = fd};
	pthread_t thread;
	int fds[2], result;

	if (appliance_wait(a, err) < 0)
		return -1;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	p.from = fds[0];
	if (pthread_create(&thread, NULL, pump_thread, &p) != 0) {
		close(fds[0]);
		close(fds[1]);
		return error_set(err, "cannot start a thread for the image's files");
	}
	result = pack(a, fds[1]);
	close(fds[1]);
	pthread_join(thread, NULL);
	appliance_unwatch(a);
	if (p.errnum)
		return error_errno(err, p.errnum, "cannot pass the image's files on");
	return result < 0 ? appliance_error(err, a, "cannot read the image's files") : 0;
}

static int put_failed(struct appliance *a, const char *path, struct error *err)
{
	CLEANUP_FREE char *shown = str_printable(path, 300);
	CLEANUP_FREE char *what = str_format("cannot write '%s'", shown);

	return appliance_error(err, a, what);
}

int appliance_put_dir(struct appliance *a, const char *path, struct error *err)
{
	int result;

	appliance_watch(a, FILE_S);
	result = guestfs_mkdir_p(a->g, path);
	appliance_unwatch(a);
	return result < 0 ? put_failed(a, path, err) : 0;
}

int appliance_put_file(struct appliance *a, const char *path, int fd, int64_t mtime_s,
                       struct error *err)
{
	CLEANUP_FREE char *from = str_format("/dev/fd/%d", fd);
	int result;

	appliance_watch(a, FILE_S);
	result = guestfs_rm_f(a->g, path);
	if (result == 0)
		result = guestfs_upload(a->g, from, path);
	if (result == 0)
		result = guestfs_utimens(a->g, path, mtime_s, 0, mtime_s, 0);
	appliance_unwatch(a);
	return result < 0 ? put_failed(a, path, err) : 0;
}

int appliance_free_space(struct appliance *a, const char *path, uint64_t *ret_free_bytes,
                         uint64_t *ret_cluster_bytes, struct error *err)
{
	CLEANUP_FREE char *what = str_format("cannot ask for the free space of '%s'", path);
	struct guestfs_statvfs *st;

	appliance_watch(a, FILE_S);
	st = guestfs_statvfs(a->g, path);
	appliance_unwatch(a);
	if (!st)
		return appliance_error(err, a, what);
	*ret_free_bytes = (uint64_t)st->bavail * (uint64_t)st->frsize;
	*ret_cluster_bytes = (uint64_t)st->frsize;
	guestfs_free_statvfs(st);
	return 0;
}
