/* SPDX-License-Identifier: Apache-2.0 */
/* What each boot entry gives the kernel, against what the profile wants. */
#include <string.h>

#include "cmdline.h"
#include "inspect-internal.h"
#include "param-places.h"
#include "proof-internal.h"

/* Memory that is plugged in above the BAR's new place is lost without a message (boot case 35). */
static void tell_hotplug(struct inspect *in)
{
	size_t with = 0;

	for (size_t i = 0; i < in->chain.count; i++)
		with += cmdline_pci_state(&in->chain.entries[i].args).nocrs;
	if (with)
		finding_note(
			&in->findings, "cmdline.hotplug",
			"'pci=nocrs' is in effect: on a platform with memory hot-plug, memory "
			"added where the kernel put the BAR (from 32 GiB on) is lost without a "
			"message");
}

/*
 * The initramfs mounts what root= says; fstab's line is what systemd then mounts anew, writable. If
 * that is no file system of the image's, it stays read-only.
 */
static void judge_fstab(struct inspect *in)
{
	CLEANUP_FREE char *text = inspect_read(in, "/etc/fstab", INSPECT_CONFIG_MAX_BYTES);
	CLEANUP_STRV struct strv lines = strv_split(text ? text : "", "\n");

	for (size_t i = 0; i < lines.count; i++) {
		CLEANUP_STRV struct strv fields = strv_split(lines.items[i], " \t");
		CLEANUP_FREE char *arg = NULL;

		if (fields.count < 2 || *fields.items[0] == '#' ||
		    strcmp(fields.items[1], "/") != 0 ||
		    (!strstr(fields.items[0], "UUID=") && !strstr(fields.items[0], "LABEL=")))
			continue;
		arg = str_format("root=%s", fields.items[0]);
		if (!proof_names_root(in->guest, arg))
			finding_bad(&in->findings, "fstab.root", NULL,
			            "'/etc/fstab' has '%s' for the root, which is not on the "
			            "image's disk: it stays read-only on a node",
			            fields.items[0]);
	}
}

/* A build needs the key of who signed it; a check of what is in it needs none. */
static void tell_signed(struct inspect *in, const struct boot_entry *e)
{
	CLEANUP_FREE char *name = bootchain_entry_name(e);

	if (e->is_signed)
		finding_note(&in->findings, "uki.signed",
		             "%s: is signed: its parameters cannot be changed without the key",
		             name);
}

/* Kernels that are installed later: their entries are written on the node. */
static int judge_later(struct inspect *in, const struct strv *params, struct error *err)
{
	CLEANUP_ERROR struct error unread = ERROR_INIT;
	struct param_places places;

	if (param_places_find(&places, in->root, &in->chain, &unread) < 0 ||
	    proof_places(&in->findings, &places, in->root, params, &unread) < 0) {
		finding_note(&in->findings, "inspect.unread", "%s", unread.message);
		return 0;
	}
	return places.dropin && places.mkconfig
	               ? proof_later_dropins(&in->findings, in->root, params, err)
	               : 0;
}

int inspect_entries(struct inspect *in, const struct inspect_want *want, const struct strv *blocked,
                    struct error *err)
{
	CLEANUP_STRV struct strv params = {0};
	const struct strv removed = {0};

	strv_add_all(&params, want->params);
	if (want->module_blacklist && blocked->count) {
		CLEANUP_FREE char *names = strv_join(blocked, ",");

		strv_addf(&params, "module_blacklist=%s", names);
	}
	if (proof_entries(&in->findings, in->root, in->guest, &in->chain, NULL, &params, &removed,
	                  err) < 0 ||
	    judge_later(in, &params, err) < 0)
		return -1;
	for (size_t i = 0; i < in->chain.count; i++)
		tell_signed(in, &in->chain.entries[i]);
	tell_hotplug(in);
	judge_fstab(in);
	return 0;
}
