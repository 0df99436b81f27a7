/* SPDX-License-Identifier: Apache-2.0 */
/* What the value of an option does to struct options. */
#include <stdlib.h>
#include <string.h>

#include "options-internal.h"

#define COUNT_MAX 16

static bool is_allowed(const char *allowed, const char *value)
{
	CLEANUP_STRV struct strv words = strv_split(allowed, "|");

	return strv_has(&words, value);
}

static int set_size(uint64_t *field, const char *value, struct error *err)
{
	if (str_parse_size(value, field) < 0) {
		error_set(err, "'%s' is not a size", value);
		error_hint(err, "give a number with K, M, G or T: 32G");
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

static int set_seconds(unsigned *field, const char *value, struct error *err)
{
	uint64_t seconds;

	if (str_parse_uint(value, 86400, &seconds) < 0 || seconds == 0) {
		error_set(err, "'%s' is not a time in seconds (1 to 86400)", value);
		return error_code(err, EXIT_USAGE);
	}
	*field = (unsigned)seconds;
	return 0;
}

static int set_count(uint64_t *field, const char *value, struct error *err)
{
	if (str_parse_uint(value, COUNT_MAX, field) == 0 && *field > 0)
		return 0;
	error_set(err, "'%s' is not a number from 1 to %d", value, COUNT_MAX);
	return error_code(err, EXIT_USAGE);
}

/* The last one wins, as for a string; "both" and "all" are lists. */
static void set_firmware(struct strv *field, const char *value)
{
	bool all = strcmp(value, "all") == 0;

	strv_free(field);
	if (!all && strcmp(value, "both") != 0) {
		strv_add(field, value);
		return;
	}
	strv_add(field, "bios");
	strv_add(field, "uefi");
	if (all)
		strv_add(field, "uefi-secure-boot");
}

static enum driver_source parse_source(const char *value)
{
	static const enum driver_source all[] = {DRIVER_NVIDIA_REPO, DRIVER_RUN, DRIVER_DEBS};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(value, driver_source_name(all[i])) == 0)
			return all[i];
	return DRIVER_DISTRO;
}

static void set_flavour(struct options *o, const char *value)
{
	o->driver_flavour = strcmp(value, "open") == 0 ? DRIVER_OPEN : DRIVER_PROPRIETARY;
	o->driver_flavour_given = true;
}

void options_set_string(char **field, const char *value)
{
	free(*field);
	*field = str_copy(value);
}

int options_set(struct options *o, const struct option_row *row, const char *value,
                struct error *err)
{
	void *field = (char *)o + row->offset;

	if (row->allowed && !is_allowed(row->allowed, value)) {
		error_set(err, "'%s' is not one of %s", value, row->allowed);
		return error_code(err, EXIT_USAGE);
	}
	switch (row->kind) {
	case KIND_STRING:
		options_set_string(field, value);
		break;
	case KIND_LIST:
		strv_add(field, value);
		break;
	case KIND_ON:
		*(bool *)field = !value || strcmp(value, "true") == 0;
		break;
	case KIND_OFF:
		*(bool *)field = value && strcmp(value, "true") == 0;
		break;
	case KIND_SIZE:
		return set_size(field, value, err);
	case KIND_SECONDS:
		return set_seconds(field, value, err);
	case KIND_COUNT:
		return set_count(field, value, err);
	case KIND_EXEC:
		*(enum exec_mode *)field = strcmp(value, "auto") == 0        ? EXEC_AUTO
		                           : strcmp(value, "appliance") == 0 ? EXEC_APPLIANCE
		                                                             : EXEC_SANDBOX;
		break;
	case KIND_WINDOW:
		*(enum boot_window *)field =
			strcmp(value, "reachable") == 0 ? WINDOW_REACHABLE : WINDOW_UNREACHABLE;
		break;
	case KIND_FIRMWARE:
		set_firmware(field, value);
		break;
	case KIND_FLAVOUR:
		set_flavour(o, value);
		break;
	case KIND_SOURCE:
		*(enum driver_source *)field = parse_source(value);
		break;
	case KIND_DKMS:
		*(bool *)field = strcmp(value, "unregister") == 0;
		break;
	case KIND_SPECIAL:
		break;
	}
	return 0;
}
