/* SPDX-License-Identifier: Apache-2.0 */
/* What was found on a disk, and by which of its names a volume is asked for. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "disk-internal.h"
#include "str.h"

#define GUID_ESP      "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
#define GUID_XBOOTLDR "bc13c2ff-59e6-4262-a352-b275fd6f7172"
#define MBR_TYPE_ESP  "0xef"

struct volume *disk_new_volume(struct disk *disk)
{
	struct volume *v = mem_alloc(sizeof(*v));

	disk->volumes = mem_grow(disk->volumes, disk->volume_count + 1, sizeof(struct volume *));
	disk->volumes[disk->volume_count++] = v;
	return v;
}

static void free_volume(struct volume *v)
{
	free(v->type);
	free(v->usage);
	free(v->uuid);
	free(v->label);
	free(v->partuuid);
	free(v->partlabel);
	free(v->parttype);
	free(v->lv);
	free(v);
}

void disk_forget_volumes(struct disk *disk)
{
	for (size_t i = 0; i < disk->volume_count; i++)
		free_volume(disk->volumes[i]);
	free(disk->volumes);
	free(disk->table);
	disk->volumes = NULL;
	disk->volume_count = 0;
	disk->table = NULL;
	disk->boots_bios = disk->boots_uefi = false;
}

static char *copy_or_null(const char *s)
{
	return s && *s ? str_copy(s) : NULL;
}

void disk_add_volume(struct disk *disk, const struct volume *volume)
{
	struct volume *v;

	for (size_t i = 0; i < disk->volume_count; i++)
		if (volume->lv && str_equal(disk->volumes[i]->lv, volume->lv))
			return;
	v = disk_new_volume(disk);
	v->number = volume->number;
	v->offset_bytes = volume->offset_bytes;
	v->size_bytes = volume->size_bytes;
	v->type = copy_or_null(volume->type);
	v->usage = copy_or_null(volume->usage);
	v->uuid = copy_or_null(volume->uuid);
	v->label = copy_or_null(volume->label);
	v->partuuid = copy_or_null(volume->partuuid);
	v->partlabel = copy_or_null(volume->partlabel);
	v->parttype = copy_or_null(volume->parttype);
	v->lv = copy_or_null(volume->lv);
}

const char *disk_table(const struct disk *disk)
{
	return disk->table;
}

size_t disk_volume_count(const struct disk *disk)
{
	return disk->volume_count;
}

const struct volume *disk_volume(const struct disk *disk, size_t index)
{
	return index < disk->volume_count ? disk->volumes[index] : NULL;
}

bool volume_is_esp(const struct volume *v)
{
	return str_equal(v->type, "vfat") &&
	       (str_equal(v->parttype, GUID_ESP) || str_equal(v->parttype, MBR_TYPE_ESP));
}

bool volume_is_xbootldr(const struct volume *v)
{
	return str_equal(v->parttype, GUID_XBOOTLDR);
}

char *volume_name(const struct volume *v)
{
	CLEANUP_FREE char *lv = v->lv ? str_printable(v->lv, 200) : NULL;
	const char *type = v->type ? v->type : "unknown content";

	if (lv)
		return str_format("logical volume '%s' (%s)", lv, type);
	if (v->number == 0)
		return str_format("the whole disk (%s)", type);
	return str_format("partition %d (%s)", v->number, type);
}

static const char *volume_field(const struct volume *v, const char *key)
{
	const struct {
		const char *key, *value;
	} fields[] = {{"UUID", v->uuid},
	              {"LABEL", v->label},
	              {"PARTUUID", v->partuuid},
	              {"PARTLABEL", v->partlabel}};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (strcasecmp(fields[i].key, key) == 0)
			return fields[i].value;
	return NULL;
}

static const struct volume *find_by_field(const struct disk *disk, const char *key,
                                          const char *value)
{
	const struct volume *other_case = NULL;

	for (size_t i = 0; *value && i < disk->volume_count; i++) {
		const struct volume *v = disk->volumes[i];
		const char *have = volume_field(v, key);

		if (have && strcmp(have, value) == 0)
			return v;
		if (have && !other_case && strcasecmp(have, value) == 0)
			other_case = v;
	}
	return other_case;
}

/* fstab(5) allows the value in double quotes. */
static char *tag_value(const char *text)
{
	size_t length = strlen(text);

	if (length >= 2 && text[0] == '"' && text[length - 1] == '"')
		return mem_copy(text + 1, length - 2);
	return str_copy(text);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* udev writes what it dares not put into a file's name as "\x20". */
static char *udev_decode(const char *text)
{
	char *result = str_copy(text), *out = result;

	for (const char *in = text; *in; in++) {
		if (in[0] == '\\' && in[1] == 'x' && hex_digit(in[2]) >= 0 &&
		    hex_digit(in[3]) >= 0) {
			*out++ = (char)(hex_digit(in[2]) << 4 | hex_digit(in[3]));
			in += 3;
		} else {
			*out++ = *in;
		}
	}
	*out = '\0';
	return result;
}

char *disk_mapper_name(const char *lv)
{
	const char *from = lv + strlen("/dev/");
	char *name = mem_alloc(strlen(lv) * 2 + sizeof("/dev/mapper/"));
	char *out = stpcpy(name, "/dev/mapper/");

	for (; *from; from++) {
		if (*from == '-')
			*out++ = '-';
		*out = *from;
		if (*out == '/')
			*out = '-';
		out++;
	}
	*out = '\0';
	return name;
}

static const struct volume *find_lv(const struct disk *disk, const char *path)
{
	for (size_t i = 0; i < disk->volume_count; i++) {
		const struct volume *v = disk->volumes[i];
		CLEANUP_FREE char *name = NULL;

		if (!v->lv || !str_starts(v->lv, "/dev/"))
			continue;
		if (strcmp(v->lv, path) == 0)
			return v;
		name = disk_mapper_name(v->lv);
		if (strcmp(name, path) == 0)
			return v;
	}
	return NULL;
}

static const struct volume *find_by_path(const struct disk *disk, const char *path)
{
	static const struct {
		const char *dir, *key;
	} links[] = {{"/dev/disk/by-uuid/", "UUID"},
	             {"/dev/disk/by-label/", "LABEL"},
	             {"/dev/disk/by-partuuid/", "PARTUUID"},
	             {"/dev/disk/by-partlabel/", "PARTLABEL"}};

	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (str_starts(path, links[i].dir)) {
			CLEANUP_FREE char *value = udev_decode(path + strlen(links[i].dir));

			return find_by_field(disk, links[i].key, value);
		}
	return find_lv(disk, path);
}

const struct volume *disk_find_volume(const struct disk *disk, const char *tag)
{
	const char *equals = strchr(tag, '=');
	CLEANUP_FREE char *key = NULL;
	CLEANUP_FREE char *value = NULL;

	if (tag[0] == '/')
		return find_by_path(disk, tag);
	if (!equals)
		return NULL;
	key = mem_copy(tag, (size_t)(equals - tag));
	value = tag_value(equals + 1);
	return find_by_field(disk, key, value);
}

bool disk_boots_bios(const struct disk *disk)
{
	return disk->boots_bios;
}

bool disk_boots_uefi(const struct disk *disk)
{
	return disk->boots_uefi;
}
