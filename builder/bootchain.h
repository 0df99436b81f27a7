/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every boot entry of an image, whatever holds it: grub.cfg and what it sources, Boot Loader
 * Specification entries (type 1), unified kernel images (type 2). Read from the image, for the
 * stages, for the proof, and for the comparison of before and after. Paths are the guest's own,
 * whatever the boot loader calls them.
 */
#ifndef GPUIMG_BOOTCHAIN_H
#define GPUIMG_BOOTCHAIN_H

#include <jansson.h>

#include "error.h"
#include "grubcfg.h"
#include "guest.h"
#include "rootfs.h"

enum boot_source { BOOT_GRUB, BOOT_BLS, BOOT_UKI };

struct boot_entry {
	enum boot_source source;
	char *file;           /* what holds it: grub.cfg, NAME.conf, NAME.efi */
	int line;             /* of grub.cfg; 0 else */
	char *title;          /* of an entry without one, its file's name */
	char *version;        /* of its kernel, where the entry says so; may be NULL */
	char *kernel;         /* of a UKI: the UKI itself */
	struct strv initrds;  /* of a UKI: none, its initramfs is a section */
	struct strv args;     /* what the kernel gets: $kernelopts and the like are put in */
	size_t own_args;      /* of a UKI: how many of 'args' are its own; addons add the rest */
	bool embedded_initrd; /* a UKI with an .initrd section */
	bool is_signed;       /* a UKI: what is in it cannot be changed without a key */
	bool uses_kernelopts; /* BLS: "$kernelopts" stands in its options */
	bool recovery;        /* "single", "recovery" or "rescue" among the args */
	bool xen;             /* the kernel is a module of the Xen hypervisor */
};

/* A grub.cfg on the ESP: shim's GRUB reads it first, and it shall only lead to the real one. */
struct boot_stub {
	char *path;
	bool leads_on;    /* has a configfile or normal command that names another grub.cfg */
	bool has_entries; /* of its own: written over by grub-mkconfig, or the only one (old EL) */
};

struct bootchain {
	struct boot_entry *entries;
	size_t count;
	/* Where entries come from; what is NULL or empty is not there. */
	char *grub_cfg;       /* "/boot/grub/grub.cfg", "/boot/grub2/grub.cfg" */
	bool grub_reads_bls;  /* by its blscfg command */
	char *grubenv;        /* path, if it is there */
	struct strv bls_dirs; /* "/boot/loader/entries", "/boot/efi/loader/entries" that are read */
	struct strv uki_dirs; /* "/boot/efi/EFI/Linux" */
	char *systemd_boot;   /* path of its program on the ESP */
	struct boot_stub *stubs;
	size_t stub_count;
	struct strv esps; /* where ESP and XBOOTLDR are mounted */
	/* Entries that boot loaders would read and that cannot be understood: why, with the path.
	 */
	struct strv unreadable;
};

/* work_dir: a directory of ours for copies of UKIs. A file that cannot be understood is no error,
 * but stands in 'unreadable'; no entry at all is none either. */
int bootchain_read(struct bootchain *ret, struct rootfs *root, const struct guest *guest,
                   const char *work_dir, struct error *err);
void bootchain_free(struct bootchain *chain);
#define CLEANUP_BOOTCHAIN CLEANUP(bootchain_free)
/*
 * The kernel of the guest that an entry boots, by its file or, for copies on an ESP and for UKIs,
 * by the version that the entry names; NULL: none of them.
 */
const struct guest_kernel *bootchain_kernel(const struct boot_entry *e, struct rootfs *root,
                                            const struct guest *guest);
/* The main initramfs among the entry's initrds, no microcode archive; NULL: none. Borrowed. */
const char *bootchain_initramfs(const struct boot_entry *e);
/* memtest86+ and its kin: no Linux. */
bool bootchain_is_memory_test(const struct boot_entry *e);
/* For messages: "entry 'TITLE' (line 12)", "entry '/boot/loader/entries/….conf'". Owned by the
 * caller; raw guest text, as all findings. */
char *bootchain_entry_name(const struct boot_entry *e);
/* What boots it, for people: "GRUB", "GRUB with BLS entries", "systemd-boot"… Owned by the caller.
 */
char *bootchain_loader_name(const struct bootchain *chain);
/* As it stands in the manifest and in what inspect prints (docs/manifest.md). */
json_t *bootchain_entry_json(const struct boot_entry *e);
/*
 * A path as a boot loader writes it ("/vmlinuz-…" where /boot is a file system of its own,
 * "/@rootfs/boot/vmlinuz-…" on btrfs) as a path of the guest's root; 'from': any path on the file
 * system that it counts from ("/boot/.", an entry's file). Owned by the caller.
 */
char *bootchain_guest_path(const struct guest *guest, const char *from, const char *loader_path);

#endif
