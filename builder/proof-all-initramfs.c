/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every initramfs that something boots: the one of each kernel, copies on an ESP that systemd-boot
 * loads, and the .initrd sections of UKIs.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fd.h"
#include "proof.h"
#include "uki.h"

struct all {
	struct findings *f;
	const struct proof_all_initramfs *wish;
	struct strv seen; /* files that were judged */
};

static uint64_t bytes_before(const struct proof_all_initramfs *w, const char *version)
{
	for (size_t i = 0; i < w->before_count; i++)
		if (strcmp(w->before[i].version, version) == 0)
			return w->before[i].initramfs_bytes;
	return 0;
}

/* fd: of a UKI's section, named 'name'; -1: a file of the root's. */
static int judge(struct all *a, const struct guest_kernel *k, int fd, const char *name,
                 struct error *err)
{
	const struct proof_all_initramfs *w = a->wish;
	CLEANUP_FREE char *scratch = str_format("%s/initramfs-%zu", w->like.scratch, a->seen.count);
	struct proof_initramfs p = w->like;
	size_t first = a->f->count;

	strv_add(&a->seen, name);
	if (mkdir(scratch, 0700) < 0)
		return error_errno(err, errno, "cannot make the directory '%s'", scratch);
	p.kernel = k;
	p.scratch = scratch;
	p.bytes_before = bytes_before(w, k->version);
	p.fd = fd;
	p.name = fd < 0 ? NULL : name;
	if (proof_initramfs(a->f, &p, err) < 0)
		return -1;
	if (w->judged)
		w->judged(w->opaque, k->version, name, first);
	return 0;
}

/* The section's bytes in a file without a name, or -1. */
static int copy_section(const struct all *a, const char *path, struct error *err)
{
	const struct proof_initramfs *like = &a->wish->like;
	CLEANUP_CLOSE int from = rootfs_open_copy(like->root, path, like->scratch, err);
	CLEANUP_CLOSE int to = -1;
	CLEANUP_UKI struct uki u = {0};
	const struct uki_section *section;

	if (from < 0 || uki_read(&u, from, path, err) < 0)
		return -1;
	section = uki_find(&u, ".initrd");
	if (!section)
		return error_set(err, "'%s' has no .initrd section any more", path);
	to = fd_temporary(like->scratch);
	if (to < 0)
		return error_errno(err, errno, "cannot make a temporary file in '%s'",
		                   like->scratch);
	return uki_copy(section, from, to, path, err) < 0 ? -1 : steal_fd(&to);
}

/* The kernel that the entry boots; one that the root file system does not know has its version
 * from the entry, and no modules there. */
static int judge_uki(struct all *a, const struct boot_entry *e, struct error *err)
{
	const struct proof_initramfs *like = &a->wish->like;
	const struct guest_kernel *known = bootchain_kernel(e, like->root, like->guest);
	CLEANUP_FREE char *name = str_format("%s (.initrd)", e->file);
	CLEANUP_CLOSE int fd = -1;
	struct guest_kernel k = {
		.version = known ? known->version : e->version,
		.image = e->file,
		.initramfs = name,
		.has_initramfs = true,
	};

	if (strv_has(&a->seen, name))
		return 0;
	if (!k.version) {
		finding_note(a->f, "uki.version",
		             "'%s' does not say which kernel is in it: its initramfs was not "
		             "judged",
		             e->file);
		return 0;
	}
	fd = copy_section(a, e->file, err);
	if (fd < 0)
		return -1;
	return judge(a, &k, fd, name, err);
}

/* An initramfs that an entry loads and that is not its kernel's own file: a copy on the ESP. */
static int judge_copy(struct all *a, const struct boot_entry *e, struct error *err)
{
	const struct proof_initramfs *like = &a->wish->like;
	const struct guest_kernel *known = bootchain_kernel(e, like->root, like->guest);
	const char *path = bootchain_initramfs(e);
	CLEANUP_FREE char *real = NULL;
	struct rootfs_stat st;

	if (!known || known->rescue || !path)
		return 0;
	if (rootfs_resolve(like->root, path, true, &real, err) < 0)
		return -1;
	if (!real || strv_has(&a->seen, real) || rootfs_stat(like->root, real, &st, err) != 1 ||
	    !S_ISREG(st.mode))
		return 0; /* the points about entries tell what is missing */
	const struct guest_kernel k = {
		.version = known->version,
		.image = known->image,
		.initramfs = real,
		.has_initramfs = true,
		.initramfs_bytes = st.size_bytes,
	};

	return judge(a, &k, -1, real, err);
}

/* Whether the kernel gets an initramfs from elsewhere than its own file, which is missing. */
static bool has_another(const struct all *a, const struct guest_kernel *k)
{
	const struct proof_initramfs *like = &a->wish->like;
	const struct bootchain *c = a->wish->chain;

	for (size_t i = 0; i < c->count; i++)
		if (bootchain_kernel(&c->entries[i], like->root, like->guest) == k &&
		    (c->entries[i].embedded_initrd ||
		     (bootchain_initramfs(&c->entries[i]) &&
		      rootfs_exists(like->root, bootchain_initramfs(&c->entries[i])))))
			return true;
	return false;
}

static int judge_kernel(struct all *a, const struct guest_kernel *k, struct error *err)
{
	CLEANUP_FREE char *real = NULL;

	if (k->rescue) {
		finding_note(a->f, "initramfs.rescue",
		             "'%s' is a rescue kernel's, which no build and no update makes anew: "
		             "only the kernel parameters keep the card free when it is booted",
		             k->initramfs);
		return 0;
	}
	if (!k->has_initramfs && has_another(a, k))
		return 0;
	if (judge(a, k, -1, k->initramfs, err) < 0)
		return -1;
	/* Entries name it by any path; this is the file that they mean. */
	if (rootfs_resolve(a->wish->like.root, k->initramfs, true, &real, err) < 0)
		return -1;
	if (real && !strv_has(&a->seen, real))
		strv_add(&a->seen, real);
	return 0;
}

static int judge_all(struct all *a, struct error *err)
{
	const struct guest *g = a->wish->like.guest;
	const struct bootchain *c = a->wish->chain;

	for (size_t i = 0; i < g->kernel_count; i++)
		if (judge_kernel(a, &g->kernels[i], err) < 0)
			return -1;
	for (size_t i = 0; i < c->count; i++)
		if (c->entries[i].embedded_initrd ? judge_uki(a, &c->entries[i], err) < 0
		                                  : judge_copy(a, &c->entries[i], err) < 0)
			return -1;
	return 0;
}

int proof_every_initramfs(struct findings *f, const struct proof_all_initramfs *w,
                          struct error *err)
{
	struct all a = {.f = f, .wish = w};
	int result = judge_all(&a, err);

	strv_free(&a.seen);
	return result;
}
