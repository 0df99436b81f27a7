/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <guestfs.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "appliance-internal.h"

#define UMOUNT_TRIES             8
#define UMOUNT_PAUSE_MS          500
#define DEFAULT_LAUNCH_TIMEOUT_S 180
#define DEFAULT_MEMORY_MIB       1024

#define WRITE_S  900
#define TRIM_S   600
#define FINISH_S 300

static int silent_error(struct error *err, const char *attempted, unsigned seconds)
{
	error_set(err, "%s in the appliance: it did not answer in %u s", attempted, seconds);
	error_code(err, EXIT_HOST);
	return error_hint(err, "the log has the appliance's own messages; a host that is very busy "
	                       "may be too slow for it");
}

int appliance_error(struct error *err, struct appliance *a, const char *attempted)
{
	const char *why = guestfs_last_error(a->g);
	CLEANUP_FREE char *shown = str_printable(why ? why : "unknown error", 1000);
	unsigned seconds;

	if (appliance_is_silent(a, &seconds))
		return silent_error(err, attempted, seconds);
	return error_set(err, "%s in the appliance: %s", attempted, shown);
}

/* libguestfs' own messages: to the log, never to the screen. */
static void on_event(guestfs_h *g, void *opaque, uint64_t event, int handle, int flags,
                     const char *buffer, size_t size, const uint64_t *array, size_t array_size)
{
	struct appliance *a = opaque;

	(void)g, (void)event, (void)handle, (void)flags, (void)array, (void)array_size;
	pthread_mutex_lock(&a->lock);
	log_raw(a->log, buffer, size);
	pthread_mutex_unlock(&a->lock);
}

static int configure(struct appliance *a, const struct appliance_options *o, struct error *err)
{
	char force_tcg[] = "force_tcg";
	char *settings[] = {o->kvm ? NULL : force_tcg, NULL};

	guestfs_set_error_handler(a->g, NULL, NULL);
	guestfs_set_event_callback(
		a->g, on_event,
		GUESTFS_EVENT_APPLIANCE | GUESTFS_EVENT_LIBRARY | GUESTFS_EVENT_WARNING, 0, a);
	if (guestfs_set_backend(a->g, "direct") < 0 ||
	    guestfs_set_backend_settings(a->g, settings) < 0 ||
	    guestfs_set_memsize(a->g, o->memory_mib ? (int)o->memory_mib : DEFAULT_MEMORY_MIB) <
	            0 ||
	    guestfs_set_smp(a->g, 2) < 0 || guestfs_set_network(a->g, o->network) < 0 ||
	    guestfs_set_pgroup(a->g, 1) < 0 || guestfs_set_tmpdir(a->g, o->work_dir) < 0 ||
	    (o->cache_dir && guestfs_set_cachedir(a->g, o->cache_dir) < 0) ||
	    guestfs_add_drive_opts(a->g, o->image, GUESTFS_ADD_DRIVE_OPTS_FORMAT, o->format,
	                           GUESTFS_ADD_DRIVE_OPTS_READONLY, (int)o->read_only,
	                           GUESTFS_ADD_DRIVE_OPTS_DISCARD,
	                           o->read_only ? "disable" : "besteffort",
	                           GUESTFS_ADD_DRIVE_OPTS_CACHEMODE, "unsafe", -1) < 0)
		return appliance_error(err, a, "cannot configure libguestfs");
	return 0;
}

static void *launch_thread(void *opaque)
{
	struct appliance *a = opaque;
	const char *why = NULL;
	pid_t qemu = 0;
	int result;

	/* Error handler and last error are each thread's own. */
	guestfs_set_error_handler(a->g, NULL, NULL);
	result = guestfs_launch(a->g);
	if (result < 0)
		why = guestfs_last_error(a->g);
	else
		qemu = guestfs_get_pid(a->g);
	pthread_mutex_lock(&a->lock);
	a->launch_error = why ? str_copy(why) : NULL;
	a->qemu = qemu;
	a->launched = result == 0 ? 1 : -1;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

int appliance_start(struct appliance **ret, const struct appliance_options *options,
                    struct error *err)
{
	struct appliance *a = mem_alloc(sizeof(*a));
	pthread_condattr_t attributes;

	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&a->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	a->log = options->log;
	a->timeout_s =
		options->launch_timeout_s ? options->launch_timeout_s : DEFAULT_LAUNCH_TIMEOUT_S;
	clock_gettime(CLOCK_MONOTONIC, &a->started);
	/* Not closed at exit: a failed build may end while the launch still goes on. */
	a->g = guestfs_create_flags(GUESTFS_CREATE_NO_CLOSE_ON_EXIT);
	if (!a->g) {
		error_set(err, "cannot create a libguestfs handle");
	} else if (configure(a, options, err) == 0) {
		if (appliance_watchdog_start(a) == 0 &&
		    pthread_create(&a->thread, NULL, launch_thread, a) == 0) {
			a->thread_runs = true;
			*ret = a;
			return 0;
		}
		error_set(err, "cannot start a thread for the appliance");
	}
	appliance_close(a);
	return -1;
}

static int launch_failed(struct appliance *a, struct error *err)
{
	CLEANUP_ERROR struct error unreadable = ERROR_INIT;
	CLEANUP_FREE char *kernel = NULL;
	CLEANUP_FREE char *shown =
		str_printable(a->launch_error ? a->launch_error : "unknown error", 1000);

	error_set(err, "cannot start the libguestfs appliance: %s", shown);
	error_code(err, EXIT_HOST);
	/* Ubuntu keeps /boot/vmlinuz-* at 0600: supermin then says no more than "exit status 1". */
	if (accel_host_kernel(&kernel, &unreadable) < 0) {
		error_prefix(err, "%s", unreadable.message);
		if (unreadable.hint)
			error_hint(err, "%s", unreadable.hint);
	}
	return error_hint(err, "run 'gpuimg doctor'; the log has the appliance's own messages");
}

int appliance_wait(struct appliance *a, struct error *err)
{
	struct timespec deadline = a->started;
	int launched, waited = 0;

	deadline.tv_sec += a->timeout_s;
	pthread_mutex_lock(&a->lock);
	while (!a->launched && waited == 0)
		waited = pthread_cond_timedwait(&a->changed, &a->lock, &deadline);
	launched = a->launched;
	pthread_mutex_unlock(&a->lock);
	if (!launched) {
		error_set(err, "the libguestfs appliance did not start in %u s", a->timeout_s);
		error_code(err, EXIT_HOST);
		return error_hint(err, "run 'gpuimg doctor'; GPUIMG_ACCEL=tcg goes without KVM");
	}
	if (a->thread_runs) {
		pthread_join(a->thread, NULL);
		a->thread_runs = false;
	}
	return launched > 0 ? 0 : launch_failed(a, err);
}

void appliance_close(struct appliance *a)
{
	if (!a)
		return;
	/* A launch cannot be called off: its thread and handle are left to the end of the
	 * process, and its QEMU to the supervisor; but the log is about to go. */
	if (a->thread_runs) {
		pthread_mutex_lock(&a->lock);
		bool runs = !a->launched;
		a->log = NULL;
		pthread_mutex_unlock(&a->lock);
		if (runs)
			return;
		pthread_join(a->thread, NULL);
	}
	if (a->g) {
		appliance_watch(a, FINISH_S);
		guestfs_close(a->g);
		appliance_unwatch(a);
	}
	appliance_watchdog_end(a);
	free(a->launch_error);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

char *appliance_device(const struct volume *volume)
{
	if (volume->lv)
		return str_copy(volume->lv);
	return volume->number ? str_format("/dev/sda%d", volume->number) : str_copy("/dev/sda");
}

int appliance_mount_options(struct appliance *a, const struct volume *volume, const char *options,
                            const char *path, struct error *err)
{
	CLEANUP_FREE char *device = appliance_device(volume);
	CLEANUP_FREE char *name = volume_name(volume);
	CLEANUP_FREE char *what = str_format("cannot mount %s at '%s'", name, path);
	int result = 0;

	if (appliance_wait(a, err) < 0)
		return -1;
	appliance_watch(a, APPLIANCE_MOUNT_S);
	if (strcmp(path, "/") != 0)
		result = guestfs_mkdir_p(a->g, path);
	if (result == 0)
		result = guestfs_mount_options(a->g, options, device, path);
	appliance_unwatch(a);
	return result < 0 ? appliance_error(err, a, what) : 0;
}

/* What is on an ESP is the firmware's and root's business, as distributions mount it. */
static const char *default_options(const struct volume *volume)
{
	return str_equal(volume->type, "vfat") ? "umask=0077" : "";
}

int appliance_mount(struct appliance *a, const struct volume *volume, const char *path,
                    struct error *err)
{
	return appliance_mount_options(a, volume, default_options(volume), path, err);
}

int appliance_mount_guest(struct appliance *a, const struct guest_mount *mount, struct error *err)
{
	CLEANUP_FREE char *options = NULL;

	if (!mount->subvol)
		return appliance_mount(a, mount->volume, mount->path, err);
	options = *mount->subvol ? str_format("subvol=%s", mount->subvol) : str_copy("subvolid=5");
	return appliance_mount_options(a, mount->volume, options, mount->path, err);
}

int appliance_umount_all(struct appliance *a, struct error *err)
{
	int result;

	if (appliance_wait(a, err) < 0)
		return -1;
	appliance_watch(a, APPLIANCE_MOUNT_S);
	result = guestfs_umount_all(a->g);
	appliance_unwatch(a);
	return result < 0 ? appliance_error(err, a, "cannot unmount") : 0;
}

int appliance_remove(struct appliance *a, const struct strv *paths, struct error *err)
{
	int result = 0;

	appliance_watch(a, WRITE_S);
	for (size_t i = 0; i < paths->count && result == 0; i++)
		result = guestfs_rm_rf(a->g, paths->items[i]);
	appliance_unwatch(a);
	return result < 0 ? appliance_error(err, a, "cannot remove a file") : 0;
}

int appliance_tar_in(struct appliance *a, int fd, struct error *err)
{
	CLEANUP_FREE char *path = str_format("/dev/fd/%d", fd);

	int result;

	/* Without ACLS: they are among the extended attributes, and GNU tar would then set them
	 * once more, from the mode. */
	appliance_watch(a, WRITE_S);
	result = guestfs_tar_in_opts(a->g, path, "/", GUESTFS_TAR_IN_OPTS_XATTRS, 1, -1);
	appliance_unwatch(a);
	return result < 0 ? appliance_error(err, a, "cannot write the changed files back") : 0;
}

int appliance_trim(struct appliance *a, const struct guest *guest, struct error *err)
{
	int result = 0;

	appliance_watch(a, TRIM_S);
	for (size_t i = 0; i < guest->mount_count && result == 0; i++) {
		const struct guest_mount *m = &guest->mounts[i];

		if (strcmp(m->volume->type ? m->volume->type : "", "vfat") != 0)
			result = guestfs_fstrim(a->g, m->path, -1);
	}
	appliance_unwatch(a);
	return result < 0 ? appliance_error(err, a, "cannot give free space back (fstrim)") : 0;
}

/*
 * What a command of the image left running keeps /dev busy: timeout(1) of busybox looks only once
 * a second whether its program still lives. What stays longer is a reason to fail.
 */
static int umount_patiently(struct appliance *a)
{
	for (int i = 0; i < UMOUNT_TRIES; i++) {
		if (guestfs_umount_all(a->g) == 0)
			return 0;
		poll(NULL, 0, UMOUNT_PAUSE_MS);
	}
	return guestfs_umount_all(a->g);
}

int appliance_finish(struct appliance *a, struct error *err)
{
	int result = 0;
	unsigned seconds;

	appliance_watch(a, FINISH_S);
	if (guestfs_sync(a->g) < 0 || umount_patiently(a) < 0 || guestfs_shutdown(a->g) < 0)
		result = -1;
	appliance_unwatch(a);
	if (result < 0 || appliance_is_silent(a, &seconds))
		return appliance_error(err, a, "cannot flush the image");
	return 0;
}

char *appliance_version(void)
{
	guestfs_h *g = guestfs_create_flags(GUESTFS_CREATE_NO_CLOSE_ON_EXIT);
	struct guestfs_version *v = g ? guestfs_version(g) : NULL;
	char *text = v ? str_format("%lld.%lld.%lld%s", (long long)v->major, (long long)v->minor,
	                            (long long)v->release, v->extra)
	               : NULL;

	if (v)
		guestfs_free_version(v);
	if (g)
		guestfs_close(g);
	return text;
}
