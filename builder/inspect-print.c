/* SPDX-License-Identifier: Apache-2.0 */
/* For people: what the image is, subject by subject, then what holds and what does not. */
#include <stdarg.h>
#include <string.h>

#include "cmdline.h"
#include "inspect-internal.h"

#define LINE_MAX_BYTES 4000

/* One line under its subject. It quotes the guest, so only what prints is printed. */
static void say(FILE *to, const char *subject, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void say(FILE *to, const char *subject, const char *format, ...)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *shown = NULL;
	va_list args;

	va_start(args, format);
	text = str_vformat(format, args);
	va_end(args);
	shown = str_printable(text, LINE_MAX_BYTES);
	fprintf(to, "%-11s %s\n", subject, shown);
}

/* The strings of a list of the facts, joined; NULL: it is empty. */
static char *joined(const json_t *list)
{
	CLEANUP_STRV struct strv words = {0};
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		if (json_is_string(item))
			strv_add(&words, json_string_value(item));
	}
	return words.count ? strv_join(&words, ", ") : NULL;
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static void print_image(const struct inspect *in, FILE *to)
{
	CLEANUP_FREE char *file = str_size(in->info.file_bytes);
	CLEANUP_FREE char *size = str_size(in->info.virtual_bytes);
	bool qcow2 = in->info.format == IMAGE_QCOW2;

	say(to, "image", "'%s': %s%s%s%s, a file of %s, a disk of %s%s", in->path,
	    image_format_name(in->info.format), qcow2 ? " (" : "",
	    qcow2 ? in->info.compression : "", qcow2 ? ")" : "", file, size,
	    in->info.snapshots ? ", with internal snapshots" : "");
}

static const struct guest_mount *mount_of(const struct inspect *in, const struct volume *v)
{
	for (size_t i = 0; i < in->guest->mount_count; i++)
		if (in->guest->mounts[i].volume == v)
			return &in->guest->mounts[i];
	return NULL;
}

static void print_disk(const struct inspect *in, FILE *to)
{
	const char *table = disk_table(in->disk);
	bool bios = disk_boots_bios(in->disk);
	bool uefi = disk_boots_uefi(in->disk) &&
	            json_is_true(json_object_get(in->facts, "uefi_loader"));

	say(to, "disk", "%s; boots with %s", table ? table : "no partition table",
	    bios && uefi ? "BIOS and UEFI"
	    : bios       ? "BIOS"
	    : uefi       ? "UEFI"
	                 : "neither BIOS nor UEFI");
	for (size_t i = 0; i < disk_volume_count(in->disk); i++) {
		const struct volume *v = disk_volume(in->disk, i);
		const struct guest_mount *m = mount_of(in, v);
		CLEANUP_FREE char *size = str_size(v->size_bytes);
		CLEANUP_FREE char *number = str_format("%d", v->number);

		say(to, "", "%3s  %10s  %s%s%s%s%s", v->lv ? v->lv : number, size,
		    v->type ? v->type : "nothing known", m ? ", at " : "", m ? m->path : "",
		    m && m->subvol ? ", subvolume " : "", m && m->subvol ? m->subvol : "");
	}
}

static void print_system(const struct inspect *in, FILE *to)
{
	const struct guest *g = in->guest;
	const char *selinux = text_of(in->facts, "selinux");

	say(to, "system", "%s (%s %s), %s, %zu packages, SELinux %s", g->pretty_name, g->id,
	    g->version_id ? g->version_id : "", g->arch, in->packages.count,
	    selinux ? selinux : "unknown");
	say(to, "generator", "%s", g->generator);
}

static void print_kernels(const struct inspect *in, FILE *to)
{
	const json_t *item;
	size_t i;

	for (i = 0; i < in->guest->kernel_count; i++)
		if (in->guest->kernels[i].rescue)
			say(to, "kernel", "%s: for rescue", in->guest->kernels[i].version);
	json_array_foreach(json_object_get(in->facts, "modules"), i, item)
	{
		CLEANUP_FREE char *claims = joined(json_object_get(item, "claimed_by"));
		CLEANUP_FREE char *builtin = joined(json_object_get(item, "claimed_by_builtin"));
		CLEANUP_FREE char *loads = joined(json_object_get(item, "would_load"));

		say(to, "kernel",
		    "%s: an NVIDIA card is claimed by %s%s%s; the root file system %s%s",
		    text_of(item, "version"), claims ? claims : "no module",
		    builtin ? ", built in: " : "", builtin ? builtin : "",
		    loads ? "would load " : "loads none of them", loads ? loads : "");
	}
	json_array_foreach(json_object_get(in->facts, "initramfs"), i, item)
	{
		const json_t *blocks = json_object_get(item, "blocks");

		say(to, "initramfs", "'%s': %s", text_of(item, "file"),
		    json_is_true(blocks)    ? "loads nothing for an NVIDIA card"
		    : json_is_false(blocks) ? "would load a module for an NVIDIA card"
		                            : "not known what it loads");
	}
}

static void print_loaders(const struct inspect *in, FILE *to)
{
	const struct bootchain *c = &in->chain;
	CLEANUP_FREE char *bls = strv_join(&c->bls_dirs, ", ");
	CLEANUP_FREE char *uki = strv_join(&c->uki_dirs, ", ");

	if (c->grub_cfg)
		say(to, "loader", "GRUB, '%s'%s", c->grub_cfg,
		    c->grub_reads_bls ? ", which reads BLS entries" : "");
	if (c->systemd_boot)
		say(to, "loader", "systemd-boot, '%s'", c->systemd_boot);
	if (c->bls_dirs.count)
		say(to, "", "BLS entries in %s", bls);
	if (c->uki_dirs.count)
		say(to, "", "unified kernel images in %s", uki);
	if (!c->grub_cfg && !c->systemd_boot && !c->uki_dirs.count)
		say(to, "loader", "none that is known");
	for (size_t i = 0; i < c->count; i++) {
		CLEANUP_FREE char *name = bootchain_entry_name(&c->entries[i]);
		CLEANUP_FREE char *line = cmdline_join(&c->entries[i].args);

		say(to, "", "%s%s: %s", name, c->entries[i].recovery ? ", recovery" : "", line);
	}
}

static void print_driver(const struct inspect *in, FILE *to)
{
	const json_t *driver = json_object_get(in->facts, "driver");
	CLEANUP_FREE char *packages = joined(json_object_get(driver, "packages"));
	CLEANUP_FREE char *smi = joined(json_object_get(driver, "nvidia_smi"));
	CLEANUP_FREE char *run = joined(json_object_get(driver, "run_installer"));
	CLEANUP_FREE char *dkms = joined(json_object_get(driver, "dkms"));
	const json_t *modules = json_object_get(driver, "modules");
	const json_t *item;
	size_t i;

	if (!packages && !smi && !run && !json_array_size(modules))
		say(to, "driver", "none of NVIDIA's");
	if (packages)
		say(to, "driver", "packages %s", packages);
	if (smi || run)
		say(to, "driver", "%s%s%s", smi ? smi : "", smi && run ? ", " : "", run ? run : "");
	json_array_foreach(modules, i, item)
	{
		const char *version = text_of(item, "version");

		say(to, "driver", "'%s', version %s", text_of(item, "file"),
		    version ? version : "unknown");
	}
	if (dkms)
		say(to, "DKMS", "%s", dkms);
}

static void print_services(const struct inspect *in, FILE *to)
{
	const json_t *containerd = json_object_get(in->facts, "containerd");
	const json_t *cloud = json_object_get(in->facts, "cloud_init");
	CLEANUP_FREE char *sources = joined(json_object_get(cloud, "datasource_list"));
	CLEANUP_STRV struct strv runtimes = {0};
	CLEANUP_FREE char *names = NULL;
	const char *version = text_of(containerd, "version");
	const json_t *item;
	size_t i;

	json_array_foreach(json_object_get(containerd, "runtimes"), i, item)
	{
		const char *name = text_of(item, "name");

		if (name && !strv_has(&runtimes, name))
			strv_add(&runtimes, name);
	}
	names = strv_join(&runtimes, ", ");
	if (text_of(containerd, "from"))
		say(to, "containerd", "%s (%s); runtimes named in its configuration: %s",
		    version ? version : "of unknown version", text_of(containerd, "from"),
		    runtimes.count ? names : "none");
	else
		say(to, "containerd", "none");
	version = text_of(cloud, "version");
	if (json_is_true(json_object_get(cloud, "installed")))
		say(to, "cloud-init", "%s; datasources: %s",
		    version ? version : "of unknown version",
		    sources ? sources : "its own default");
	else
		say(to, "cloud-init", "none");
}

static void print_identity(const struct inspect *in, FILE *to)
{
	const json_t *identity = json_object_get(in->facts, "identity");

	say(to, "identity", "machine-id %s; SSH host keys: %zu; licence tokens: %zu",
	    text_of(identity, "machine_id"),
	    json_array_size(json_object_get(identity, "ssh_host_keys")),
	    json_array_size(json_object_get(identity, "licence_tokens")));
}

void inspect_print_facts(const struct inspect *in, FILE *to)
{
	print_image(in, to);
	print_disk(in, to);
	print_system(in, to);
	print_kernels(in, to);
	print_loaders(in, to);
	print_driver(in, to);
	print_services(in, to);
	print_identity(in, to);
}

static size_t count_verdict(const struct findings *f, enum finding_verdict verdict)
{
	size_t count = 0;

	for (size_t i = 0; i < f->count; i++)
		count += f->items[i].verdict == verdict;
	return count;
}

void inspect_print(const struct inspect *in)
{
	const struct findings *f = &in->findings;
	const char *profile = text_of(json_object_get(in->facts, "wanted"), "profile");

	inspect_print_facts(in, stdout);
	putchar('\n');
	inspect_print_findings(in, FINDING_BAD, stdout);
	inspect_print_findings(in, FINDING_NOTE, stdout);
	if (in->verbose)
		inspect_print_findings(in, FINDING_OK, stdout);
	printf("\n%s%s%s: %zu points hold, %zu do not, %zu notes\n",
	       f->bad ? "does not hold" : "holds", profile ? " for profile " : "",
	       profile ? profile : "", count_verdict(f, FINDING_OK), f->bad,
	       count_verdict(f, FINDING_NOTE));
}
