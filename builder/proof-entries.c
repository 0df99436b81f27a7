/* SPDX-License-Identifier: Apache-2.0 */
/* The proof's points about boot entries and what they boot. */
#include <string.h>

#include "cmdline.h"
#include "param-places.h"
#include "proof-internal.h"

static const char FILES_CURE[] = "write the boot entries anew";

static const char *param_cure(const struct boot_entry *e)
{
	switch (e->source) {
	case BOOT_GRUB:
		return "see which file of /etc/default/grub.d or /etc/grub.d sets it";
	case BOOT_BLS:
		return "edit its 'options' line, and /etc/kernel/cmdline for later kernels";
	case BOOT_UKI:
		return "edit /etc/kernel/cmdline, and build it anew with ukify";
	}
	return "";
}

static void check_param(struct findings *f, const struct boot_entry *e, const char *name,
                        const char *param)
{
	CLEANUP_FREE char *why = NULL;
	CLEANUP_FREE char *against = cmdline_contradiction(&e->args, param);
	size_t times = cmdline_count(&e->args, param);

	if (!cmdline_holds(&e->args, param, &why))
		finding_bad(f, "cmdline.param", param_cure(e), "%s: '%s' is not in effect: %s",
		            name, param, why ? why : "missing");
	else if (times > 1)
		finding_bad(f, "cmdline.param", param_cure(e), "%s: holds '%s' %zu times", name,
		            param, times);
	else
		finding_ok(f, "cmdline.param", "%s: '%s'", name, param);
	if (against && !why)
		finding_note(f, "cmdline.conflict",
		             "%s: '%s' says the opposite of '%s', which the kernel takes", name,
		             against, param);
}

/* What a base has of its own and a person should know. */
static void check_others(struct findings *f, const struct boot_entry *e, const char *name)
{
	size_t lists = 0;

	for (size_t i = 0; i < e->args.count; i++) {
		lists += str_starts(e->args.items[i], "module_blacklist=") ||
		         str_starts(e->args.items[i], "module-blacklist=");
		if (param_is_machine_id(e->args.items[i]))
			finding_bad(f, "cmdline.machine-id", "take it out of the entry",
			            "%s: '%s' gives all nodes one identity, whatever "
			            "'/etc/machine-id' says",
			            name, e->args.items[i]);
	}
	if (lists > 1)
		finding_note(f, "cmdline.conflict",
		             "%s: has 'module_blacklist=' %zu times, and the kernel takes the last",
		             name, lists);
	if (strv_has(&e->args, "nomodeset"))
		finding_note(
			f, "cmdline.conflict",
			"%s: 'nomodeset' keeps DRM drivers, nvidia-drm too, from setting modes",
			name);
}

static bool is_removed(const char *arg, const struct strv *removed)
{
	CLEANUP_STRV struct strv one = {0};
	const struct cmdline_edit edit = {.remove = *removed};
	CLEANUP_FREE char *left = NULL;

	strv_add(&one, arg);
	cmdline_apply(&one, &edit);
	left = cmdline_join(&one);
	return strcmp(left, arg) != 0;
}

/* Ubuntu's GRUB_FORCE_PARTUUID writes two entries into one: without an initramfs, and with it. */
static const struct boot_entry *find_like(const struct bootchain *chain, const struct boot_entry *e,
                                          bool same_initrds, bool same_title)
{
	for (size_t i = 0; i < chain->count; i++) {
		const struct boot_entry *other = &chain->entries[i];

		if (other->source == e->source && str_equal(other->kernel, e->kernel) &&
		    other->recovery == e->recovery &&
		    (!same_initrds || (other->initrds.count == 0) == (e->initrds.count == 0)) &&
		    (!same_title ||
		     (str_equal(other->title, e->title) && str_equal(other->file, e->file))))
			return other;
	}
	return NULL;
}

/* The base's entry of the same kernel and kind; of several, the one that is called the same, since
 * a person may have written one beside those of grub-mkconfig. */
static const struct boot_entry *find_same(const struct bootchain *chain, const struct boot_entry *e)
{
	const struct boot_entry *found = find_like(chain, e, true, true);

	if (!found)
		found = find_like(chain, e, true, false);
	return found ? found : find_like(chain, e, false, false);
}

/* Merged into one list, so it does not stand as it stood. */
static bool is_merged(const char *arg)
{
	return str_starts(arg, "module_blacklist=") || str_starts(arg, "modprobe.blacklist=");
}

bool proof_names_root(const struct guest *guest, const char *arg)
{
	const struct volume *v = guest->mounts[0].volume;
	CLEANUP_FREE char *mapped = v->lv ? disk_mapper_name(v->lv) : NULL;
	const struct {
		const char *prefix, *value;
	} forms[] = {{"root=UUID=", v->uuid},
	             {"root=/dev/disk/by-uuid/", v->uuid},
	             {"root=PARTUUID=", v->partuuid},
	             {"root=/dev/disk/by-partuuid/", v->partuuid},
	             {"root=LABEL=", v->label},
	             {"root=/dev/disk/by-label/", v->label},
	             {"root=PARTLABEL=", v->partlabel},
	             {"root=/dev/disk/by-partlabel/", v->partlabel},
	             {"root=", v->lv},
	             {"root=", mapped}};
	CLEANUP_STRV struct strv words = {0};

	/* root="UUID=…" is the same */
	strv_add(&words, arg);
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		CLEANUP_FREE char *want =
			forms[i].value ? str_format("%s%s", forms[i].prefix + strlen("root="),
		                                    forms[i].value)
				       : NULL;
		CLEANUP_FREE char *value = cmdline_value(&words, "root");

		if (want && value && strcasecmp(want, value) == 0)
			return true;
	}
	return false;
}

/* GRUB writes root= in another form where a kernel got its first initramfs: by UUID, since
 * the kernel alone cannot find a file system by that. */
static bool has_same_root(const struct guest *guest, const struct boot_entry *e, const char *was)
{
	if (!proof_names_root(guest, was))
		return false;
	for (size_t i = 0; i < e->args.count; i++)
		if (proof_names_root(guest, e->args.items[i]))
			return true;
	return false;
}

static void check_kept(struct findings *f, const struct guest *guest, const struct boot_entry *e,
                       const char *name, const struct boot_entry *was, const struct strv *removed)
{
	bool all = true;

	for (size_t i = 0; i < was->args.count; i++) {
		const char *arg = was->args.items[i];

		if (strv_has(&e->args, arg) || is_removed(arg, removed) ||
		    param_is_machine_id(arg) ||
		    (is_merged(arg) && cmdline_holds(&e->args, arg, NULL)) || *arg == '$' ||
		    has_same_root(guest, e, arg))
			continue;
		finding_bad(f, "cmdline.kept", param_cure(e), "%s: lost '%s', which the base had",
		            name, arg);
		all = false;
	}
	if (all)
		finding_ok(f, "cmdline.kept", "%s: keeps what the base had", name);
}

/* Device letters differ between machines; another file system's name leads nowhere. */
static void check_root(struct findings *f, const struct guest *guest, const struct boot_entry *e,
                       const char *name)
{
	CLEANUP_FREE char *root = cmdline_value(&e->args, "root");
	CLEANUP_FREE char *arg = root ? str_format("root=%s", root) : NULL;
	CLEANUP_FREE char *flags = cmdline_value(&e->args, "rootflags");
	const char *subvol = flags ? strstr(flags, "subvol=") : NULL;
	const char *want = guest->mounts[0].subvol;

	if (!root || strcmp(root, "gpt-auto") == 0)
		finding_note(f, "cmdline.root", "%s: names no root; systemd finds it by its type",
		             name);
	else if (proof_names_root(guest, arg))
		finding_ok(f, "cmdline.root", "%s: '%s' is the image's root", name, arg);
	else if (str_starts(root, "/dev/") && !str_starts(root, "/dev/disk/") &&
	         !str_starts(root, "/dev/mapper/"))
		finding_note(f, "cmdline.root",
		             "%s: '%s' holds on machines that call the disk so only", name, arg);
	else
		finding_bad(f, "cmdline.root", "name the root file system by its UUID",
		            "%s: '%s' is not on the image's disk", name, arg);
	if (!subvol || !want)
		return;
	subvol += strlen("subvol=");
	subvol += *subvol == '/';
	if (strncmp(subvol, want, strlen(want)) != 0 ||
	    (subvol[strlen(want)] != '\0' && subvol[strlen(want)] != ','))
		finding_bad(f, "cmdline.root", "name the root's subvolume in rootflags=",
		            "%s: 'rootflags=%s', and the root is on '%s'", name, flags, want);
}

static bool same_file(struct rootfs *root, const char *path, const char *other)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *real = NULL;

	rootfs_resolve(root, path, true, &real, &ignored);
	return str_equal(real, other);
}

/* Whether the entry loads the initramfs of its kernel that was proven. */
static bool loads_initramfs(struct rootfs *root, const struct boot_entry *e,
                            const struct guest_kernel *k)
{
	for (size_t i = 0; i < e->initrds.count; i++)
		if (same_file(root, e->initrds.items[i], k->initramfs))
			return true;
	return false;
}

/* The kernel alone finds a root by partition or device name; modules that udev then loads are
 * under the root file system's modprobe.d. */
static void check_no_initramfs(struct findings *f, const struct boot_entry *e, const char *name)
{
	CLEANUP_FREE char *root = cmdline_value(&e->args, "root");

	if (root &&
	    (str_starts(root, "PARTUUID=") || str_starts(root, "PARTLABEL=") ||
	     str_starts(root, "/dev/")) &&
	    !str_starts(root, "/dev/disk/") && !str_starts(root, "/dev/mapper/"))
		finding_note(
			f, "cmdline.no-initramfs",
			"%s: boots without an initramfs (as GRUB_FORCE_PARTUUID asks for): the "
			"root file system's modprobe.d and module_blacklist= hold",
			name);
	else
		finding_bad(f, "cmdline.files", FILES_CURE, "%s: loads no initramfs", name);
}

/* A copy beside the entry (an ESP) is proven by itself; another kernel's file is wrong. */
static const struct guest_kernel *other_kernel(struct rootfs *root, const struct guest *guest,
                                               const struct boot_entry *e,
                                               const struct guest_kernel *k)
{
	for (size_t i = 0; i < guest->kernel_count; i++)
		if (&guest->kernels[i] != k && loads_initramfs(root, e, &guest->kernels[i]))
			return &guest->kernels[i];
	return NULL;
}

static void check_initramfs(struct findings *f, struct rootfs *root, const struct guest *guest,
                            const struct boot_entry *e, const char *name,
                            const struct guest_kernel *k)
{
	const struct guest_kernel *other;

	if (e->source == BOOT_UKI) {
		if (!e->embedded_initrd)
			check_no_initramfs(f, e, name);
		return;
	}
	if (e->initrds.count == 0) {
		check_no_initramfs(f, e, name);
		return;
	}
	if (loads_initramfs(root, e, k))
		return;
	other = other_kernel(root, guest, e, k);
	if (other)
		finding_bad(f, "cmdline.files", FILES_CURE,
		            "%s: boots kernel %s with the initramfs of %s", name, k->version,
		            other->version);
	else if (e->source == BOOT_GRUB || !bootchain_initramfs(e))
		finding_bad(f, "cmdline.files", FILES_CURE, "%s: does not load '%s'", name,
		            k->initramfs);
}

static void check_file(struct findings *f, struct rootfs *root, const char *name, const char *path,
                       const char *what)
{
	if (!rootfs_exists(root, path))
		finding_bad(f, "cmdline.files", FILES_CURE, "%s: its %s '%s' does not exist", name,
		            what, path);
}

static void check_files(struct findings *f, struct rootfs *root, const struct guest *guest,
                        const struct boot_entry *e, const char *name)
{
	const struct guest_kernel *k = bootchain_kernel(e, root, guest);

	check_file(f, root, name, e->kernel, "kernel");
	for (size_t i = 0; i < e->initrds.count; i++)
		check_file(f, root, name, e->initrds.items[i], "initramfs");
	if (k)
		check_initramfs(f, root, guest, e, name, k);
	else
		finding_bad(f, "cmdline.files", "remove the entry, or put its kernel into /boot",
		            "%s: boots '%s', which is none of the kernels that were proven", name,
		            e->kernel);
}

static void check_coverage(struct findings *f, struct rootfs *root, const struct guest *guest,
                           const struct bootchain *chain)
{
	if (chain->count == 0)
		finding_bad(f, "cmdline.coverage", FILES_CURE, "the image has no boot entry");
	for (size_t k = 0; k < guest->kernel_count; k++) {
		bool found = false;

		for (size_t i = 0; i < chain->count && !found; i++)
			found = bootchain_kernel(&chain->entries[i], root, guest) ==
			        &guest->kernels[k];
		if (!found && !guest->kernels[k].rescue)
			finding_bad(f, "cmdline.coverage", FILES_CURE,
			            "kernel %s has no boot entry", guest->kernels[k].version);
	}
}

/*
 * On the ESP, shim's GRUB reads a small grub.cfg that leads to the real one. grub-mkconfig written
 * over it cuts the image off from all later updates. Enterprise Linux up to 8 has the real one
 * there.
 */
static void check_stubs(struct findings *f, struct rootfs *root, const struct guest *guest,
                        const struct bootchain *chain)
{
	static const char cure[] = "reinstall the package that owns it (grub-efi-amd64-signed, "
				   "grub2-efi-x64, shim), or write it by hand: search, configfile";
	bool old_el = guest->is_el && guest->version_id && strtol(guest->version_id, NULL, 10) < 9;

	for (size_t i = 0; i < chain->stub_count; i++) {
		const struct boot_stub *s = &chain->stubs[i];
		CLEANUP_FREE char *why = proof_stub_target(root, guest, s->path);

		if (s->has_entries && !old_el && chain->grub_cfg)
			finding_bad(f, "esp.stub", cure,
			            "'%s' has boot entries of its own, so that '%s' is never read",
			            s->path, chain->grub_cfg);
		else if (!s->leads_on && !s->has_entries)
			finding_bad(f, "esp.stub", cure,
			            "'%s' leads to no other grub.cfg and has no entry", s->path);
		else if (!s->has_entries && why)
			finding_bad(f, "esp.stub", cure, "'%s' %s", s->path, why);
		else
			finding_ok(f, "esp.stub", "'%s' is what it shall be", s->path);
	}
}

int proof_entries(struct findings *f, struct rootfs *root, const struct guest *guest,
                  const struct bootchain *after, const struct bootchain *before,
                  const struct strv *params, const struct strv *removed, struct error *err)
{
	(void)err;
	for (size_t i = 0; i < after->unreadable.count; i++)
		finding_bad(f, "cmdline.unreadable", "mend or remove the file", "%s",
		            after->unreadable.items[i]);
	for (size_t i = 0; i < after->count; i++) {
		const struct boot_entry *e = &after->entries[i];
		const struct boot_entry *was = before ? find_same(before, e) : NULL;
		CLEANUP_FREE char *name = bootchain_entry_name(e);

		if (bootchain_is_memory_test(e)) {
			finding_note(f, "cmdline.other", "%s boots no Linux", name);
			continue;
		}
		for (size_t j = 0; j < params->count; j++)
			check_param(f, e, name, params->items[j]);
		check_others(f, e, name);
		check_root(f, guest, e, name);
		check_files(f, root, guest, e, name);
		if (was)
			check_kept(f, guest, e, name, was, removed);
	}
	check_coverage(f, root, guest, after);
	check_stubs(f, root, guest, after);
	return 0;
}
