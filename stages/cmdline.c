/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmdline: a 32 GiB BAR behind a window that the CPU cannot address stays unassigned; 'pci=nocrs
 * pci=realloc' lets the kernel place it where the CPU reaches it. They go wherever this image takes
 * parameters from (param-places.h). For grub-mkconfig of Debian and Ubuntu that is a drop-in of
 * /etc/default/grub.d that edits what all others assigned: it must come last, and it adds to
 * GRUB_CMDLINE_LINUX, which recovery entries get too.
 */
#include <stdlib.h>
#include <string.h>

#include "builder/cmdline.h"
#include "builder/data.h"
#include "builder/proof.h"
#include "stages/stages.h"

#define DROPIN_DIR  "/etc/default/grub.d"
#define DROPIN_NAME "gpuimg.cfg"
#define DROPIN_DATA "boot/grub.d/zz-gpuimg.cfg"

/* Ours under any number of leading z: "zz-gpuimg.cfg", "zzz-gpuimg.cfg"… */
static bool is_ours(const char *name)
{
	size_t z = strspn(name, "z");

	return z >= 2 && strcmp(name + z, "-" DROPIN_NAME) == 0;
}

/*
 * The first name with enough z to sort after all others, in the byte order of dash and in
 * the letter order that bash uses in other locales.
 */
static char *last_name(const struct strv *names)
{
	CLEANUP_FREE char *z = str_copy("zz");

	for (;;) {
		CLEANUP_FREE char *name = str_format("%s-" DROPIN_NAME, z);
		bool last = true;

		for (size_t i = 0; i < names->count; i++)
			if (!is_ours(names->items[i]) && str_ends(names->items[i], ".cfg") &&
			    (strcmp(names->items[i], name) >= 0 ||
			     strcasecmp(names->items[i], name) >= 0))
				last = false;
		if (last || strlen(z) > 64)
			return STEAL(name);
		char *more = str_format("%sz", z);

		free(z);
		z = more;
	}
}

/* Parameters that we add by ourselves, as the options say. */
static void default_params(struct build *b)
{
	if (b->options->nocrs)
		strv_add(&b->params, "pci=nocrs");
	if (b->options->realloc)
		strv_add(&b->params, "pci=realloc");
	for (size_t i = 0; i < b->options->cmdline.add.count; i++)
		if (!strv_has(&b->params, b->options->cmdline.add.items[i]))
			strv_add(&b->params, b->options->cmdline.add.items[i]);
}

/*
 * One parameter of ours against what an entry of the base has of its own. Ours go into
 * GRUB_CMDLINE_LINUX, so what stands in GRUB_CMDLINE_LINUX_DEFAULT comes later and wins; only
 * of pci=nocrs and pci=use_crs the kernel takes nocrs in either order.
 */
static int check_conflict(struct build *b, const struct boot_entry *e, const struct strv *args,
                          const char *param, struct error *err)
{
	CLEANUP_FREE char *against = cmdline_contradiction(args, param);
	CLEANUP_FREE char *raw = bootchain_entry_name(e);
	CLEANUP_FREE char *name = str_printable(raw, 300);

	if (!against)
		return 0;
	if (e->source != BOOT_GRUB || strcmp(param, "pci=nocrs") == 0) {
		log_warn(b->log,
		         "the base's %s has '%s', which says the opposite of '%s'; ours wins", name,
		         against, param);
		return 0;
	}
	error_set(err, "the base's %s has '%s', which cancels '%s'", name, against, param);
	error_hint(err, "pass --cmdline-remove=%s, or leave ours out (--no-realloc)", against);
	return error_code(err, EXIT_INPUT);
}

static void tell_nomodeset(struct build *b)
{
	for (size_t i = 0; i < b->before.count; i++)
		if (strv_has(&b->before.entries[i].args, "nomodeset")) {
			log_warn(b->log,
			         "the base boots with 'nomodeset', which keeps nvidia-drm from "
			         "setting modes; --cmdline-remove=nomodeset takes it away");
			return;
		}
}

/* What the base has of its own and what would stand against ours, told before anything runs. */
static int check_conflicts(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->before.count; i++) {
		const struct boot_entry *e = &b->before.entries[i];
		CLEANUP_STRV struct strv args = {0};

		strv_add_all(&args, &e->args);
		cmdline_apply(&args,
		              &(const struct cmdline_edit){.remove = b->options->cmdline.remove});
		for (size_t j = 0; j < b->params.count; j++)
			if (check_conflict(b, e, &args, b->params.items[j], err) < 0)
				return -1;
	}
	return 0;
}

/* Boot loaders that we do not know take their entries from places of their own. */
static int refuse_loader(struct build *b, struct error *err)
{
	static const char *const known[] = {"/boot/extlinux/extlinux.conf",
	                                    "/boot/syslinux/syslinux.cfg", "/etc/lilo.conf",
	                                    "/boot/refind_linux.conf", "/boot/zipl"};
	const char *found = NULL;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !found; i++)
		if (rootfs_exists(b->base_root, known[i]))
			found = known[i];
	if (found)
		error_set(err, "the image boots by a loader that is not supported: '%s'", found);
	else
		error_set(err, "the image has no boot entry in any place that we know: grub.cfg, "
		               "loader/entries, EFI/Linux");
	error_hint(err, "use a base that boots by GRUB, systemd-boot or a unified kernel image; if "
	                "/boot or the ESP is a partition of its own, /etc/fstab must name it");
	return error_code(err, EXIT_INPUT);
}

static int choose_dropin(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE char *name = NULL;

	if (rootfs_list(b->base_root, DROPIN_DIR, &names, err) < 0)
		return -1;
	name = last_name(&names);
	b->dropin_path = str_format(DROPIN_DIR "/%s", name);
	return 0;
}

static int cmdline_check(struct build *b, struct error *err)
{
	default_params(b);
	if (param_places_find(&b->places, b->base_root, &b->before, err) < 0)
		return -1;
	if (b->before.count == 0 && !b->places.mkconfig)
		return refuse_loader(b, err);
	if (param_places_check(&b->places, b->base_root, err) < 0 ||
	    (b->places.dropin && choose_dropin(b, err) < 0))
		return -1;
	tell_nomodeset(b);
	return check_conflicts(b, err);
}

/* Sets the value of one "name='…'" line of the drop-in. The value has passed
 * cmdline_check_token, so it holds nothing that single quotes do not hold. */
static char *set_line(const char *text, const char *name, const char *value)
{
	CLEANUP_FREE char *head = str_format("\n%s='", name);
	const char *at = strstr(text, head);
	const char *end = at ? strchr(at + 1, '\n') : NULL;

	if (!end)
		return str_copy(text);
	return str_format("%.*s%s%s'%s", (int)(at - text), text, head, value, end);
}

static char *dropin_text(const struct build *b, const char *shipped)
{
	CLEANUP_FREE char *add = strv_join(&b->params, " ");
	CLEANUP_FREE char *remove = strv_join(&b->options->cmdline.remove, " ");
	CLEANUP_FREE char *names = strv_join(&b->blocked, ",");
	CLEANUP_FREE char *one = set_line(shipped, "gpuimg_add", add);
	CLEANUP_FREE char *two = set_line(one, "gpuimg_remove", remove);

	return set_line(two, "gpuimg_blacklist", b->options->module_blacklist ? names : "");
}

static int put_dropin(struct build *b, struct error *err)
{
	CLEANUP_FREE char *shipped = NULL;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_STRV struct strv names = {0};

	if (data_read(b->data_dir, DROPIN_DATA, &shipped, err) < 0 ||
	    rootfs_list(b->root, DROPIN_DIR, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format(DROPIN_DIR "/%s", names.items[i]);

		if (is_ours(names.items[i]) && rootfs_remove(b->root, path, err) < 0)
			return -1;
	}
	text = dropin_text(b, shipped);
	b->dropin_text = str_copy(text);
	return rootfs_write(b->root, b->dropin_path, text, strlen(text), 0644, err);
}

static int cmdline_apply_stage(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv wanted = build_wanted_params(b);
	const struct cmdline_edit edit = {.add = wanted, .remove = b->options->cmdline.remove};

	if (b->places.dropin && put_dropin(b, err) < 0)
		return -1;
	return param_places_apply(&b->places, b->root, &b->before, &edit, b->log, err);
}

static int cmdline_verify(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv wanted = build_wanted_params(b);

	if (b->places.dropin && proof_file(&b->findings, b->result_root, "cmdline.dropin",
	                                   b->dropin_path, b->dropin_text, err) < 0)
		return -1;
	if (proof_places(&b->findings, &b->places, b->result_root, &wanted, err) < 0)
		return -1;
	return proof_entries(&b->findings, b->result_root, b->result_guest, &b->after, &b->before,
	                     &wanted, &b->options->cmdline.remove, err);
}

const struct stage stage_cmdline = {
	.name = "cmdline",
	.summary = "add the kernel parameters that make a large BAR reachable",
	.check = cmdline_check,
	.apply = cmdline_apply_stage,
	.verify = cmdline_verify,
};
