/* SPDX-License-Identifier: Apache-2.0 */
/* What became of each location: the record for machines, the table for people. */
#include <stdio.h>
#include <string.h>

#include "builder/json-text.h"
#include "publish/run.h"

#define SCHEMA_VERSION 1

static json_t *time_text(time_t when)
{
	char text[32];
	struct tm tm;

	if (!when || !gmtime_r(&when, &tm) ||
	    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		return json_null();
	return json_string(text);
}

/* Ids keep their native type. */
static json_t *make_id(const struct publish_result *r)
{
	json_t *number = r->id && r->id_is_number ? json_loads(r->id, JSON_DECODE_ANY, NULL) : NULL;

	return number ? number : json_text(r->id);
}

static json_t *make_error(const struct publish_result *r)
{
	if (r->outcome != OUTCOME_FAILED)
		return json_null();
	return json_pack("{s:s, s:o, s:o}", "stage", r->stage, "message",
	                 json_text(r->error.message), "hint", json_text(r->error.hint));
}

static json_t *make_row(const struct publish_result *r)
{
	json_t *row = json_pack(
		"{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:b, s:o, s:o, s:o}", "target",
		json_text(r->where->target), "type", json_text(r->where->type), "location",
		json_text(r->where->location), "result", publish_outcome_name(r->outcome), "id",
		make_id(r), "ref", json_text(r->ref), "boot_type", json_text(r->boot_type),
		"verified", json_text(r->verified), "bytes_sent", (json_int_t)r->sent_bytes,
		"resumed_from", (json_int_t)r->resumed_from, "resumable",
		r->outcome == OUTCOME_FAILED && error_exit_code(&r->error) == EXIT_PUBLISH, "error",
		make_error(r), "started", time_text(r->started), "finished",
		time_text(r->finished));

	if (r->extra)
		json_object_update_missing(row, r->extra);
	if (r->leftovers.count)
		json_object_set_new(row, "leftovers", json_text_list(&r->leftovers));
	return row;
}

static json_t *make_image(const struct publish_image *image)
{
	const char *slash = strrchr(image->path, '/');

	return json_pack("{s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:{s:s, s:o, s:o}}",
	                 "name", json_text(image->name), "version", json_text(image->version),
	                 "file", json_text(slash ? slash + 1 : image->path), "size",
	                 (json_int_t)image->size_bytes, "virtual_size",
	                 (json_int_t)image->virtual_bytes, "sha256", json_text(image->sha256),
	                 "sha512", json_text(image->sha512), "md5", json_text(image->md5),
	                 "boot_types", json_text_list(&image->boot_types), "arch",
	                 json_text(image->arch), "os", "type", "linux", "distro",
	                 json_text(image->os_distro), "version", json_text(image->os_version));
}

json_t *publish_results_json(const struct publish_image *image,
                             const struct publish_result *results, size_t count)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(rows, make_row(&results[i]));
	return json_pack("{s:i, s:o, s:o}", "schema", SCHEMA_VERSION, "image", make_image(image),
	                 "results", rows);
}

static bool is_of(const json_t *record, const char *sha256)
{
	return str_equal(
		json_string_value(json_object_get(json_object_get(record, "image"), "sha256")),
		sha256);
}

static bool has_text(const json_t *row, const char *key, const char *text)
{
	return str_equal(json_string_value(json_object_get(row, key)), text);
}

static json_t *row_of(const json_t *record, const json_t *like)
{
	const char *target = json_string_value(json_object_get(like, "target"));
	const char *location = json_string_value(json_object_get(like, "location"));
	json_t *row;
	size_t index;

	json_array_foreach(json_object_get(record, "results"), index,
	                   row) if (has_text(row, "target", target) &&
	                            has_text(row, "location", location)) return row;
	return NULL;
}

void publish_results_keep(json_t *record, const json_t *earlier)
{
	json_t *rows = json_object_get(record, "results"), *row;
	size_t index;

	if (!is_of(earlier,
	           json_string_value(json_object_get(json_object_get(record, "image"), "sha256"))))
		return;
	json_array_foreach(rows, index, row)
	{
		json_t *old = row_of(earlier, row);

		if (has_text(row, "result", "skipped") && old)
			json_array_set(rows, index, old);
	}
}

static void print_failure(const struct publish_result *r)
{
	CLEANUP_FREE char *why = str_printable(r->error.message ? r->error.message : "", 400);

	printf("%-32s   in '%s': %s\n", "", r->stage, why);
	if (r->error.hint)
		printf("%-32s   %s\n", "", r->error.hint);
}

void publish_results_print(const struct publish_result *results, size_t count)
{
	printf("%-32s %-10s %-16s %s\n", "LOCATION", "RESULT", "VERIFIED", "REFERENCE");
	for (size_t i = 0; i < count; i++) {
		const struct publish_result *r = &results[i];
		CLEANUP_FREE char *name = str_format("%s/%s", r->where->target, r->where->location);
		CLEANUP_FREE char *ref = str_printable(r->ref ? r->ref : "-", 400);

		printf("%-32s %-10s %-16s %s\n", name, publish_outcome_name(r->outcome),
		       r->verified ? r->verified : "-", ref);
		if (r->outcome == OUTCOME_FAILED)
			print_failure(r);
		for (size_t j = 0; j < r->leftovers.count; j++) {
			CLEANUP_FREE char *line = str_printable(r->leftovers.items[j], 400);

			printf("%-32s   %s\n", "", line);
		}
	}
}
