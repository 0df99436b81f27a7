/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "builder/json-text.h"
#include "publish/layout.h"

#define INDEX_SCHEMA 1

char *layout_file(const struct publish_image *i)
{
	return str_format("%s/%s/%s/%s.qcow2", i->name, i->version, i->sha256, i->name);
}

char *layout_sums(const struct publish_image *i)
{
	return str_format("%s/%s/%s/SHA256SUMS", i->name, i->version, i->sha256);
}

char *layout_index(const struct publish_image *i)
{
	return str_format("%s/index.json", i->name);
}

char *layout_sums_text(const struct publish_image *i)
{
	return str_format("%s  %s.qcow2\n", i->sha256, i->name);
}

bool layout_sums_match(const struct publish_image *i, const char *text)
{
	CLEANUP_FREE char *line = str_format("%s  %s.qcow2", i->sha256, i->name);
	CLEANUP_STRV struct strv lines = strv_split(text, "\r\n");

	return strv_has(&lines, line);
}

/* *ret: an object with "versions", to be json_decref()ed. */
static int parse(const char *text, json_t **ret, struct error *err)
{
	json_error_t why;
	json_t *index = text ? json_loads(text, 0, &why)
	                     : json_pack("{s:i, s:{}}", "schema", INDEX_SCHEMA, "versions");

	if (json_integer_value(json_object_get(index, "schema")) == INDEX_SCHEMA &&
	    json_is_object(json_object_get(index, "versions"))) {
		*ret = index;
		return 0;
	}
	error_set(err, "its index.json is not one of ours%s%s", index ? "" : ": ",
	          index ? "" : why.text);
	error_hint(err, "publish under another name or prefix, or take that file away");
	json_decref(index);
	return error_code(err, EXIT_INPUT);
}

int layout_index_look(const struct publish_image *i, const char *text, enum layout_index_state *ret,
                      struct error *err)
{
	json_t *index;
	const json_t *entry;

	if (parse(text, &index, err) < 0)
		return -1;
	entry = json_object_get(json_object_get(index, "versions"), i->version);
	*ret = !entry ? INDEX_ABSENT
	       : str_equal(json_string_value(json_object_get(entry, "sha256")), i->sha256)
	               ? INDEX_SAME
	               : INDEX_DIFFERENT;
	json_decref(index);
	return 0;
}

int layout_index_merge(const struct publish_image *i, const char *text, char **ret,
                       struct error *err)
{
	CLEANUP_FREE char *file = layout_file(i);
	CLEANUP_FREE char *lines = NULL;
	json_t *index;

	if (parse(text, &index, err) < 0)
		return -1;
	json_object_set_new(json_object_get(index, "versions"), i->version,
	                    json_pack("{s:o, s:o, s:I, s:I, s:o, s:o}", "file", json_text(file),
	                              "sha256", json_text(i->sha256), "size",
	                              (json_int_t)i->size_bytes, "virtual_size",
	                              (json_int_t)i->virtual_bytes, "boot_types",
	                              json_text_list(&i->boot_types), "arch", json_text(i->arch)));
	lines = json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS);
	json_decref(index);
	if (!lines)
		return error_set(err, "cannot write the index: a value is not UTF-8");
	*ret = str_format("%s\n", lines);
	return 0;
}

int layout_look(struct publish_job *job, const char *index, const char *sums, bool whole,
                enum publish_found *ret, struct error *err)
{
	enum layout_index_state state;

	if (layout_index_look(job->image, index, &state, err) < 0)
		return -1;
	if (state == INDEX_DIFFERENT)
		*ret = FOUND_DIFFERENT;
	else if (state == INDEX_SAME && whole && sums && layout_sums_match(job->image, sums))
		*ret = FOUND_SAME;
	else
		*ret = whole ? FOUND_PARTIAL : FOUND_ABSENT;
	if (*ret == FOUND_SAME)
		job->verified = str_copy("recorded hash");
	return 0;
}
