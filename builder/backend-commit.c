/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox's changes on their way to the overlay: in user space where that can be. */
#include <string.h>

#include "backend-internal.h"
#include "extfs-write.h"
#include "extfs.h"

static int pack_changes(struct build *b, const void *opaque, int fd, struct error *err)
{
	return tree_write_tar(b->tree, opaque, fd, err);
}

static int unpack_changes(struct build *b, const void *opaque, int fd, struct error *err)
{
	(void)opaque;
	return appliance_tar_in(b->appliance, fd, err);
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

/*
 * A FAT's top directory stays, whatever became of it in the tree, and with it what a removal of
 * the whole directory would have taken along. That it only got another mode is no loss.
 */
static void spare_mounts(const struct build *b, struct changes *c)
{
	CLEANUP_STRV struct strv mounts = {0};
	CLEANUP_STRV struct strv dropped = {0};

	for (size_t i = 1; i < b->guest->mount_count; i++)
		if (guest_mount_is_fat(&b->guest->mounts[i]))
			strv_add(&mounts, b->guest->mounts[i].path);
	for (size_t i = c->changed.count; i-- > 0;)
		if (strv_has(&mounts, c->changed.items[i]) &&
		    !strv_has(&c->removed, c->changed.items[i]))
			strv_remove(&c->changed, i);
	tree_spare_mounts(&mounts, &c->changed, &c->removed, &dropped);
	for (size_t i = 0; i < dropped.count; i++) {
		CLEANUP_FREE char *shown = str_printable(dropped.items[i], 300);

		log_warn(b->log,
		         "'%s' was removed or replaced, and a FAT file system is mounted there or "
		         "below, ignoring",
		         shown);
	}
}

static int collect(const struct build *b, struct changes *c, struct error *err)
{
	if (tree_changes(b->tree, &c->changed, &c->removed, err) < 0 ||
	    (strv_has(&b->options->stages, "seal") && add_stale_tmp(b, &c->removed, err) < 0) ||
	    backend_split_fat(b, c, err) < 0)
		return -1;
	spare_mounts(b, c);
	log_detail(b->log, "%zu files changed, %zu removed; on FAT %zu and %zu", c->changed.count,
	           c->removed.count, c->fat_changed.count, c->fat_removed.count);
	return 0;
}

/* Where libext2fs here does not know all that the file system has, or there is none of ext. */
static int commit_by_appliance(struct build *b, const struct changes *c, struct error *err)
{
	const struct tar_way way = {
		.pack = pack_changes, .unpack = unpack_changes, .opaque = &c->changed};

	log_step_progress(b->log, -1, "waits for the appliance");
	if (backend_start_appliance(b, err) < 0 || backend_mount(b, c, err) < 0)
		return -1;
	log_step_progress(b->log, -1, "writes the changed files");
	if (appliance_remove(b->appliance, &c->removed, err) < 0 ||
	    (c->changed.count && backend_move_tar(b, &way, err) < 0) ||
	    backend_write_fat(b, c, err) < 0)
		return -1;
	log_step_progress(b->log, -1, "gives free space back");
	return backend_finish_appliance(b, err);
}

/* 1: not for us, and nothing was written. FAT file systems that nothing changes stay out of it. */
static int mount_for_writing(struct build *b, struct extfs_writer *w, const struct changes *c,
                             struct error *err)
{
	for (size_t i = 0; i < b->guest->mount_count; i++) {
		const struct guest_mount *m = &b->guest->mounts[i];
		CLEANUP_FREE char *reason = NULL;
		int result;

		if (guest_mount_is_fat(m) && !backend_touches_fat(c, m))
			continue;
		if (extfs_supports(m->volume))
			result = extfs_writer_mount(w, m->path, m->volume, &reason, err);
		else
			result = 1;
		if (result == 1)
			log_note(b->log, "'%s' is written by the appliance: %s", m->path,
			         reason ? reason : m->volume->type);
		if (result != 0)
			return result;
	}
	return 0;
}

static int write_changes(const struct build *b, struct extfs_writer *w, const struct changes *c,
                         struct error *err)
{
	for (size_t i = 0; i < c->removed.count; i++)
		if (extfs_writer_remove(w, c->removed.items[i], err) < 0)
			return -1;
	if (tree_send(b->tree, &c->changed, extfs_writer_sink(w), err) < 0 ||
	    extfs_writer_trim(w, err) < 0)
		return -1;
	return extfs_writer_finish(w, err);
}

/* 1 as above. */
static int commit_in_user_space(struct build *b, const struct changes *c, struct error *err)
{
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_EXTFS_WRITER struct extfs_writer *w = NULL;
	int result;

	if (disk_open_writable(&disk, b->overlay, err) < 0 || extfs_writer_new(&w, disk, err) < 0)
		return -1;
	result = mount_for_writing(b, w, c, err);
	if (result != 0)
		return result;
	if (write_changes(b, w, c, err) < 0)
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
	rootfs_close(STEAL(b->root));
	tree_free(STEAL(b->tree));
	rootfs_close(STEAL(b->filler));
	b->tree_remover_running = pthread_create(&b->tree_remover, NULL, remove_tree, b) == 0;
}

int backend_sandbox_commit(struct build *b, struct error *err)
{
	CLEANUP_SELINUX_LABELS struct selinux_labels *labels = NULL;
	CLEANUP_CHANGES struct changes c = {0};
	int result;

	if (backend_set_labeler(b, &labels, err) < 0 || collect(b, &c, err) < 0)
		return -1;
	if (b->clamp_times)
		tree_clamp_times(b->tree, b->source_date_epoch);
	result = commit_in_user_space(b, &c, err);
	if (result == 1)
		result = commit_by_appliance(b, &c, err);
	if (result < 0)
		return -1;
	usage_look(b->usage);
	close_tree(b);
	sandbox_free(STEAL(b->sandbox_handle));
	return 0;
}
