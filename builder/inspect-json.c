/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of it as JSON, schema INSPECT_SCHEMA_VERSION: docs/inspect.md. */
#include "cmdline.h"
#include "inspect-internal.h"
#include "json-text.h"

static json_t *count_json(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *image_json(const struct inspect *in)
{
	const struct image_info *i = &in->info;
	bool qcow2 = i->format == IMAGE_QCOW2;

	return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:b, s:i}", "path", json_text(in->path),
	                 "format", image_format_name(i->format), "file_bytes",
	                 count_json(i->file_bytes), "virtual_bytes", count_json(i->virtual_bytes),
	                 "compression", json_text(qcow2 ? i->compression : NULL), "cluster_bytes",
	                 qcow2 ? count_json(i->cluster_bytes) : json_null(), "dirty",
	                 i->dirty ? 1 : 0, "snapshots", (int)i->snapshots);
}

static json_t *volume_json(const struct volume *v)
{
	return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "number",
	                 v->number, "offset_bytes", count_json(v->offset_bytes), "size_bytes",
	                 count_json(v->size_bytes), "type", json_text(v->type), "usage",
	                 json_text(v->usage), "uuid", json_text(v->uuid), "label",
	                 json_text(v->label), "partuuid", json_text(v->partuuid), "partlabel",
	                 json_text(v->partlabel), "parttype", json_text(v->parttype), "lv",
	                 json_text(v->lv));
}

static json_t *disk_json(const struct inspect *in)
{
	json_t *volumes = json_array();

	for (size_t i = 0; i < disk_volume_count(in->disk); i++)
		json_array_append_new(volumes, volume_json(disk_volume(in->disk, i)));
	return json_pack("{s:o, s:o}", "table", json_text(disk_table(in->disk)), "volumes",
	                 volumes);
}

static json_t *boot_types_json(const struct inspect *in)
{
	json_t *types = json_array();

	if (disk_boots_bios(in->disk))
		json_array_append_new(types, json_string("bios"));
	if (disk_boots_uefi(in->disk) && json_is_true(json_object_get(in->facts, "uefi_loader")))
		json_array_append_new(types, json_string("uefi"));
	return types;
}

static json_t *mounts_json(const struct guest *g)
{
	json_t *list = json_array();

	for (size_t i = 0; i < g->mount_count; i++) {
		const struct guest_mount *m = &g->mounts[i];

		json_array_append_new(list,
		                      json_pack("{s:o, s:o, s:o, s:b, s:i, s:o}", "path",
		                                json_text(m->path), "type", json_text(m->type),
		                                "subvolume", json_text(m->subvol), "implicit",
		                                m->implicit ? 1 : 0, "volume", m->volume->number,
		                                "lv", json_text(m->volume->lv)));
	}
	return list;
}

static json_t *kernels_json(const struct guest *g)
{
	json_t *list = json_array();

	for (size_t i = 0; i < g->kernel_count; i++) {
		const struct guest_kernel *k = &g->kernels[i];

		json_array_append_new(
			list,
			json_pack("{s:o, s:o, s:o, s:o, s:b}", "version", json_text(k->version),
		                  "image", json_text(k->image), "initramfs",
		                  json_text(k->has_initramfs ? k->initramfs : NULL),
		                  "initramfs_bytes",
		                  k->has_initramfs ? count_json(k->initramfs_bytes) : json_null(),
		                  "rescue", k->rescue ? 1 : 0));
	}
	return list;
}

static json_t *loaders_json(const struct bootchain *c)
{
	return json_pack("{s:o, s:b, s:o, s:o, s:o, s:o, s:o}", "grub_cfg", json_text(c->grub_cfg),
	                 "grub_reads_bls", c->grub_reads_bls ? 1 : 0, "grubenv",
	                 json_text(c->grubenv), "bls_dirs", json_text_list(&c->bls_dirs),
	                 "uki_dirs", json_text_list(&c->uki_dirs), "systemd_boot",
	                 json_text(c->systemd_boot), "esps", json_text_list(&c->esps));
}

static json_t *entry_json(const struct boot_entry *e)
{
	static const char *const sources[] = {
		[BOOT_GRUB] = "grub", [BOOT_BLS] = "bls", [BOOT_UKI] = "uki"};
	CLEANUP_FREE char *line = cmdline_join(&e->args);

	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:b}", "source",
	                 sources[e->source], "file", json_text(e->file), "line",
	                 e->line ? json_integer(e->line) : json_null(), "title",
	                 json_text(e->title), "version", json_text(e->version), "kernel",
	                 json_text(e->kernel), "initrds", json_text_list(&e->initrds), "cmdline",
	                 json_text(line), "embedded_initrd", e->embedded_initrd ? 1 : 0, "signed",
	                 e->is_signed ? 1 : 0, "recovery", e->recovery ? 1 : 0, "xen",
	                 e->xen ? 1 : 0);
}

static json_t *entries_json(const struct bootchain *c)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->count; i++)
		json_array_append_new(list, entry_json(&c->entries[i]));
	return list;
}

static json_t *os_json(const struct guest *g)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:b}", "id", json_text(g->id), "version_id",
	                 json_text(g->version_id), "pretty_name", json_text(g->pretty_name), "arch",
	                 json_text(g->arch), "enterprise_linux", g->is_el ? 1 : 0);
}

json_t *inspect_json(const struct inspect *in)
{
	json_t *all = json_pack(
		"{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i}", "schema",
		INSPECT_SCHEMA_VERSION, "verdict", in->findings.bad ? "bad" : "ok", "image",
		image_json(in), "disk", disk_json(in), "boot_types", boot_types_json(in), "os",
		os_json(in->guest), "mounts", mounts_json(in->guest), "kernels",
		kernels_json(in->guest), "generator", json_text(in->guest->generator), "loaders",
		loaders_json(&in->chain), "entries", entries_json(&in->chain), "package_count",
		(int)in->packages.count);

	json_object_update(all, in->facts);
	json_object_set_new(all, "findings", findings_json(&in->findings));
	return all;
}
