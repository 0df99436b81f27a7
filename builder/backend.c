/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "data.h"
#include "extfs-write.h"
#include "extfs.h"
#include "pipeline.h"
#include "sandbox.h"
#include "tree.h"

/*
 * A root that only the appliance reads would be copied file by file through it: longer than what
 * the sandbox saves.
 */
static int check_sandbox(const struct build *b, struct error *err)
{
	const struct volume *root = b->guest->mounts[0].volume;

	if (sandbox_check_host(b->work_dir, err) < 0)
		return -1;
	if (extfs_supports(root))
		return 0;
	error_set(err, "the sandbox takes its copy from an ext4 root, and this one is on %s",
	          root->type);
	error_hint(err, "use --exec=appliance, best on a host with KVM");
	return error_code(err, EXIT_HOST);
}

/*
 * The sandbox first, also where KVM works: its programs run as fast as the host's, it needs no
 * virtual machine, and a build is the same on every host.
 */
int backend_choose(const struct backend **ret, struct build *b, struct error *err)
{
	CLEANUP_ERROR struct error no_sandbox = ERROR_INIT;
	enum exec_mode mode = b->options->exec;

	if (mode == EXEC_APPLIANCE || check_sandbox(b, &no_sandbox) < 0) {
		if (mode == EXEC_SANDBOX) {
			error_take(err, &no_sandbox);
			return error_code(err, EXIT_HOST);
		}
		if (build_probe_accel(b, err) < 0)
			return -1;
		if (mode == EXEC_AUTO && !b->accel.kvm)
			log_warn(b->log,
			         "no sandbox (%s): the guest's programs run in the appliance "
			         "without KVM, which takes 10 minutes and more for each kernel",
			         no_sandbox.message);
		mode = EXEC_APPLIANCE;
	}
	b->sandbox = mode != EXEC_APPLIANCE;
	*ret = b->sandbox ? &backend_sandbox : &backend_appliance;
	log_detail(b->log, "guest programs run in the %s", (*ret)->name);
	return 0;
}

static int start_appliance(struct build *b, struct error *err)
{
	if (build_probe_accel(b, err) < 0)
		return -1;

	const struct appliance_options o = {
		.image = b->overlay,
		.format = "qcow2",
		.kvm = b->accel.kvm,
		.network = b->options->network && !b->sandbox,
		.work_dir = b->work_dir,
		.cache_dir = b->options->cache_dir,
		.log = b->log,
	};

	return appliance_start(&b->appliance, &o, err);
}

static int mount_all(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->guest->mount_count; i++)
		if (appliance_mount(b->appliance, b->guest->mounts[i].volume,
		                    b->guest->mounts[i].path, err) < 0)
			return -1;
	return 0;
}

static int finish(struct build *b, struct error *err)
{
	if (appliance_trim(b->appliance, b->guest, err) < 0 ||
	    appliance_finish(b->appliance, err) < 0)
		return -1;
	appliance_close(STEAL(b->appliance));
	return 0;
}

static int appliance_open(struct build *b, struct error *err)
{
	if (start_appliance(b, err) < 0 || mount_all(b, err) < 0)
		return -1;
	return appliance_rootfs(&b->root, b->appliance, err);
}

static int appliance_commit(struct build *b, struct error *err)
{
	rootfs_close(STEAL(b->root));
	return finish(b, err);
}

const struct backend backend_appliance = {
	.name = "appliance",
	.open = appliance_open,
	.commit = appliance_commit,
};

static const char *grub_fs(const char *type)
{
	return str_starts(type, "ext") ? "ext2" : type;
}

static void fill_devices(struct sandbox_devices *d, const struct build *b)
{
	const struct guest_mount *root = &b->guest->mounts[0];
	const struct guest_mount *boot = guest_find_mount(b->guest, "/boot");

	d->root_uuid = root->volume->uuid;
	d->root_fs = grub_fs(root->volume->type);
	d->root_partuuid = root->volume->partuuid;
	if (boot) {
		d->boot_uuid = boot->volume->uuid;
		d->boot_fs = grub_fs(boot->volume->type);
		d->boot_partuuid = boot->volume->partuuid;
	}
	d->partmap = str_equal(disk_table(b->base_disk), "gpt") ? "gpt" : "msdos";
}

/* Guest programs read a small part of their root: the rest of it is never copied. */
static int sandbox_open(struct build *b, struct error *err)
{
	CLEANUP_FREE char *data_parent = data_sandbox_parent(b->data_dir);
	struct sandbox_options o = {.data_dir = data_parent, .devices = &b->devices, .log = b->log};

	b->tree_dir = str_format("%s/tree", b->work_dir);
	o.dir = b->tree_dir;
	fill_devices(&b->devices, b);
	if (guest_open_again(&b->filler, b->guest, b->base_disk, err) < 0 ||
	    tree_extract_lazy(&b->tree, b->base_root, b->filler, b->tree_dir, b->log, err) < 0 ||
	    sandbox_new(&b->sandbox_handle, &o, err) < 0)
		return -1;
	return tree_rootfs(&b->root, b->tree_dir, b->sandbox_handle, err);
}

/* The tar is made by a thread while the appliance unpacks it, so that it is never a file. */
struct tar_job {
	const struct tree *tree;
	const struct strv *changed;
	int fd;
	int result;
	struct error err;
};

static void *tar_thread(void *opaque)
{
	struct tar_job *job = opaque;

	job->result = tree_write_tar(job->tree, job->changed, job->fd, &job->err);
	close(job->fd);
	return NULL;
}

static int send_changes(struct build *b, const struct strv *changed, struct error *err)
{
	struct tar_job job = {.tree = b->tree, .changed = changed, .err = ERROR_INIT};
	pthread_t thread;
	int fds[2], result;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	job.fd = fds[1];
	if (pthread_create(&thread, NULL, tar_thread, &job) != 0) {
		close(fds[0]);
		close(fds[1]);
		return error_set(err, "cannot start a thread for the changed files");
	}
	result = appliance_tar_in(b->appliance, fds[0], err);
	close(fds[0]); /* a writer that still runs gets EPIPE */
	pthread_join(thread, NULL);
	/* A tar that we cut off is told by our reason, not by what tar makes of it; but that the
	 * pipe broke was tar's doing. */
	if (job.result < 0 && (result == 0 || !strstr(job.err.message, strerror(EPIPE))))
		result = error_take(err, &job.err);
	error_free(&job.err);
	return result;
}

/* What the tree leaves out on purpose, the image may still hold. */
static int add_stale_tmp(const struct build *b, struct strv *removed, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(b->base_root, "/tmp", &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++)
		strv_addf(removed, "/tmp/%s", names.items[i]);
	return 0;
}

/* The tree is made of ext file systems only: a directory that is a mount point of another one
 * is empty there, and what becomes of it says nothing about that one's files. */
static void spare_mounts(const struct build *b, struct strv *changed, struct strv *removed)
{
	CLEANUP_STRV struct strv mounts = {0};
	CLEANUP_STRV struct strv dropped = {0};
	const struct guest *guest = b->guest;

	for (size_t i = 1; i < guest->mount_count; i++)
		if (!extfs_supports(guest->mounts[i].volume))
			strv_add(&mounts, guest->mounts[i].path);
	tree_spare_mounts(&mounts, changed, removed, &dropped);
	for (size_t i = 0; i < dropped.count; i++) {
		CLEANUP_FREE char *shown = str_printable(dropped.items[i], 300);

		log_warn(b->log,
		         "'%s' was changed at a mount point of a file system that the sandbox "
		         "does not hold, ignoring",
		         shown);
	}
}

/* Where libext2fs here does not know all that the file system has. */
static int commit_by_appliance(struct build *b, const struct strv *changed,
                               const struct strv *removed, struct error *err)
{
	log_step_progress(b->log, -1, "waits for the appliance");
	if (start_appliance(b, err) < 0 || mount_all(b, err) < 0)
		return -1;
	log_step_progress(b->log, -1, "writes the changed files");
	if (appliance_remove(b->appliance, removed, err) < 0 || send_changes(b, changed, err) < 0)
		return -1;
	log_step_progress(b->log, -1, "gives free space back");
	return finish(b, err);
}

/* 1: not for libext2fs, and nothing was written. */
static int mount_for_writing(struct build *b, struct extfs_writer *w, struct error *err)
{
	for (size_t i = 0; i < b->guest->mount_count; i++) {
		const struct guest_mount *m = &b->guest->mounts[i];
		CLEANUP_FREE char *reason = NULL;
		int result;

		if (!extfs_supports(m->volume))
			continue; /* the tree does not hold it: see spare_mounts() */
		result = extfs_writer_mount(w, m->path, m->volume, &reason, err);
		if (result == 1)
			log_note(b->log, "'%s' is written by the appliance: %s", m->path, reason);
		if (result != 0)
			return result;
	}
	return 0;
}

static int write_changes(const struct build *b, struct extfs_writer *w, const struct strv *changed,
                         const struct strv *removed, struct error *err)
{
	for (size_t i = 0; i < removed->count; i++)
		if (extfs_writer_remove(w, removed->items[i], err) < 0)
			return -1;
	if (tree_send(b->tree, changed, extfs_writer_sink(w), err) < 0 ||
	    extfs_writer_trim(w, err) < 0)
		return -1;
	return extfs_writer_finish(w, err);
}

/* 1 as above. */
static int commit_in_user_space(struct build *b, const struct strv *changed,
                                const struct strv *removed, struct error *err)
{
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_EXTFS_WRITER struct extfs_writer *w = NULL;
	int result;

	if (disk_open_writable(&disk, b->overlay, err) < 0 || extfs_writer_new(&w, disk, err) < 0)
		return -1;
	result = mount_for_writing(b, w, err);
	if (result != 0)
		return result;
	if (write_changes(b, w, changed, removed, err) < 0)
		return -1;
	extfs_writer_free(STEAL(w));
	return disk_finish(disk, err);
}

static void *remove_tree(void *opaque)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT; /* the work directory goes in the end */
	const struct build *b = opaque;

	tree_remove(b->tree_dir, &ignored);
	return NULL;
}

/* Its space is needed no more; beside the export, which does not need it. */
static void close_tree(struct build *b)
{
	tree_free(STEAL(b->tree));
	rootfs_close(STEAL(b->filler));
	b->tree_remover_running = pthread_create(&b->tree_remover, NULL, remove_tree, b) == 0;
}

static int sandbox_commit(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_STRV struct strv removed = {0};
	int result;

	rootfs_close(STEAL(b->root));
	sandbox_free(STEAL(b->sandbox_handle));
	if (tree_changes(b->tree, &changed, &removed, err) < 0 ||
	    (strv_has(&b->options->stages, "seal") && add_stale_tmp(b, &removed, err) < 0))
		return -1;
	spare_mounts(b, &changed, &removed);
	log_detail(b->log, "%zu files changed, %zu removed", changed.count, removed.count);
	if (b->clamp_times)
		tree_clamp_times(b->tree, b->source_date_epoch);
	result = commit_in_user_space(b, &changed, &removed, err);
	if (result == 1)
		result = commit_by_appliance(b, &changed, &removed, err);
	if (result < 0)
		return -1;
	usage_look(b->usage);
	close_tree(b);
	return 0;
}

const struct backend backend_sandbox = {
	.name = "sandbox",
	.open = sandbox_open,
	.commit = sandbox_commit,
};
