/* SPDX-License-Identifier: Apache-2.0 */
/* Facts as JSON and back: one table says how each field is called. */
#include <stddef.h>
#include <string.h>

#include "boot.h"
#include "json-text.h"

enum kind { TEXT, FACT, LIST, BOOLEAN, REAL, COUNT, FIRMWARE, WINDOW, DRIVER };

struct field {
	const char *name;
	enum kind kind;
	size_t offset;
};

#define FIELD(name, kind)                                                                          \
	{                                                                                          \
#name, kind, offsetof(struct boot_facts, name)                                     \
	}

static const struct field fields[] = {
	FIELD(firmware, FIRMWARE),
	FIELD(firmware_version, TEXT),
	FIELD(window, WINDOW),
	FIELD(accelerator, TEXT),
	FIELD(early_only, BOOLEAN),
	FIELD(seconds, REAL),
	FIELD(ended, TEXT),
	FIELD(kernel_started, FACT),
	FIELD(userspace, FACT),
	FIELD(booted, FACT),
	FIELD(secure_boot, FACT),
	FIELD(lockdown, TEXT),
	FIELD(refusal, TEXT),
	FIELD(kernel, TEXT),
	FIELD(cmdline, TEXT),
	FIELD(window_dropped, FACT),
	FIELD(bar_assigned, FACT),
	FIELD(bar_address, TEXT),
	FIELD(bar_message, TEXT),
	FIELD(nouveau_exists, FACT),
	FIELD(nouveau_loaded, FACT),
	FIELD(nouveau_loadable_by_alias, FACT),
	FIELD(nouveau_loadable_by_name, FACT),
	FIELD(card_probed, FACT),
	FIELD(card_reads, COUNT),
	FIELD(disk_ok, FACT),
	FIELD(nic_ok, FACT),
	FIELD(serial_ok, FACT),
	FIELD(failed_units, LIST),
	FIELD(driver, DRIVER),
	FIELD(machine_id, TEXT),
	FIELD(host_keys, LIST),
	FIELD(unseen, LIST),
};

#define DRIVER_FIELD(name, kind)                                                                   \
	{                                                                                          \
#name, kind, offsetof(struct boot_driver, name)                                    \
	}

static const struct field driver_fields[] = {
	DRIVER_FIELD(loaded, FACT),       DRIVER_FIELD(no_card, FACT),
	DRIVER_FIELD(exit_code, TEXT),    DRIVER_FIELD(message, TEXT),
	DRIVER_FIELD(module, TEXT),       DRIVER_FIELD(version, TEXT),
	DRIVER_FIELD(vermagic, TEXT),     DRIVER_FIELD(modules, LIST),
	DRIVER_FIELD(devices, LIST),      DRIVER_FIELD(smi, TEXT),
	DRIVER_FIELD(kernel_lines, LIST), DRIVER_FIELD(unit_lines, LIST),
};

#define COUNT_OF(table) (sizeof(table) / sizeof(*(table)))

static const char *const fact_names[] = {"unseen", "no", "yes"};
static const char *const firmware_names[FIRMWARE_COUNT] = {"bios", "uefi", "uefi-secure-boot"};
static const char *const window_names[] = {"unreachable", "reachable"};

const char *boot_firmware_name(enum boot_firmware f)
{
	return firmware_names[f];
}

int boot_firmware_from_name(enum boot_firmware *ret, const char *name)
{
	for (int i = 0; i < FIRMWARE_COUNT; i++) {
		if (strcmp(name, firmware_names[i]) != 0)
			continue;
		*ret = (enum boot_firmware)i;
		return 0;
	}
	return -1;
}

bool boot_firmware_is_uefi(enum boot_firmware f)
{
	return f != FIRMWARE_BIOS;
}

static json_t *fields_json(const struct field *table, size_t count, const void *base);

/* Null where nobody asked for a driver. */
static json_t *driver_json(const struct boot_driver *driver)
{
	return driver->asked ? fields_json(driver_fields, COUNT_OF(driver_fields), driver)
	                     : json_null();
}

static json_t *field_json(const struct field *f, const void *at)
{
	switch (f->kind) {
	case TEXT:
		return json_text(*(char *const *)at);
	case FACT:
		return json_string(fact_names[*(const enum fact *)at]);
	case LIST:
		return json_text_list(at);
	case BOOLEAN:
		return json_boolean(*(const bool *)at);
	case REAL:
		return json_real(*(const double *)at);
	case COUNT:
		return json_integer((json_int_t) * (const uint64_t *)at);
	case FIRMWARE:
		return json_string(boot_firmware_name(*(const enum boot_firmware *)at));
	case WINDOW:
		return json_string(window_names[*(const enum boot_window *)at]);
	case DRIVER:
		return driver_json(at);
	}
	return json_null();
}

static json_t *fields_json(const struct field *table, size_t count, const void *base)
{
	json_t *o = json_object();

	for (size_t i = 0; i < count; i++)
		json_object_set_new(o, table[i].name,
		                    field_json(&table[i], (const char *)base + table[i].offset));
	return o;
}

json_t *boot_facts_json(const struct boot_facts *facts)
{
	return fields_json(fields, COUNT_OF(fields), facts);
}

/* The index of a name; -1: it is none of them. */
static int name_index(const json_t *value, const char *const *names, int count)
{
	const char *text = json_string_value(value);

	for (int i = 0; text && i < count; i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	return -1;
}

static bool read_text(char **at, const json_t *value)
{
	if (json_is_string(value))
		*at = str_copy(json_string_value(value));
	return json_is_string(value) || json_is_null(value);
}

static bool read_list(struct strv *at, const json_t *value)
{
	for (size_t i = 0; i < json_array_size(value); i++) {
		const char *item = json_string_value(json_array_get(value, i));

		if (!item)
			return false;
		strv_add(at, item);
	}
	return json_is_array(value);
}

static const struct field *read_fields(const struct field *table, size_t count, void *base,
                                       const json_t *o);

static bool read_driver(struct boot_driver *at, const json_t *value)
{
	at->asked = json_is_object(value);
	return json_is_null(value) ||
	       (at->asked && !read_fields(driver_fields, COUNT_OF(driver_fields), at, value));
}

static bool read_field(const struct field *f, void *at, const json_t *value)
{
	int index;

	switch (f->kind) {
	case TEXT:
		return read_text(at, value);
	case FACT:
		index = name_index(value, fact_names, 3);
		*(enum fact *)at = index < 0 ? FACT_UNSEEN : (enum fact)index;
		return index >= 0;
	case LIST:
		return read_list(at, value);
	case BOOLEAN:
		*(bool *)at = json_is_true(value);
		return json_is_boolean(value);
	case REAL:
		*(double *)at = json_real_value(value);
		return json_is_real(value);
	case COUNT:
		*(uint64_t *)at = (uint64_t)json_integer_value(value);
		return json_is_integer(value);
	case FIRMWARE:
		return json_is_string(value) &&
		       boot_firmware_from_name(at, json_string_value(value)) == 0;
	case WINDOW:
		index = name_index(value, window_names, 2);
		*(enum boot_window *)at = index == 1 ? WINDOW_REACHABLE : WINDOW_UNREACHABLE;
		return index >= 0;
	case DRIVER:
		return read_driver(at, value);
	}
	return false;
}

/* The first field that 'o' lacks or has of another type; NULL: it has all. */
static const struct field *read_fields(const struct field *table, size_t count, void *base,
                                       const json_t *o)
{
	for (size_t i = 0; i < count; i++)
		if (!read_field(&table[i], (char *)base + table[i].offset,
		                json_object_get(o, table[i].name)))
			return &table[i];
	return NULL;
}

int boot_facts_from_json(struct boot_facts *ret, const json_t *json, struct error *err)
{
	struct boot_facts facts = {0};
	const struct field *bad = read_fields(fields, COUNT_OF(fields), &facts, json);

	if (bad) {
		boot_facts_free(&facts);
		return error_set(err, "the facts of a boot have no proper '%s'", bad->name);
	}
	*ret = facts;
	return 0;
}
