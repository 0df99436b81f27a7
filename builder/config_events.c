/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libyaml's events, walked by a small recursive reader: mappings become dotted paths, and only
 * paths of the table get a value. YAML's surprises (anchors, tags, "no" as a boolean, a key
 * given twice where the last one wins) are refused, since a typo in a build's configuration
 * must not become an image that merely looks right.
 */
#include <string.h>
#include <yaml.h>

#include "config_internal.h"
#include "str.h"

#define MAX_DEPTH 8
#define MAX_ITEMS 4096

struct reader {
	yaml_parser_t parser;
	const struct config_key *keys;
	struct config *config;
	const char *text;
	struct strv sections; /* mappings that were seen, as dotted paths */
	struct error *err;
};

static void reader_release(struct reader *r)
{
	yaml_parser_delete(&r->parser);
	strv_free(&r->sections);
}

static void event_release(yaml_event_t *event)
{
	yaml_event_delete(event);
}

#define CLEANUP_READER CLEANUP(reader_release)
#define CLEANUP_EVENT  CLEANUP(event_release)

/* The message is set; puts "path:line:column: " before it. */
static int at(struct reader *r, yaml_mark_t mark)
{
	error_code(r->err, EXIT_USAGE);
	error_prefix(r->err, "%s:%zu:%zu", r->config->path, mark.line + 1, mark.column + 1);
	return -1;
}

/* Whether the line with this number begins with a tab, or has one in its indentation. */
static bool is_tab_indented(const char *text, size_t line)
{
	while (line-- && text) {
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	return text && text[strspn(text, " ")] == '\t';
}

static int syntax_error(struct reader *r)
{
	const yaml_parser_t *p = &r->parser;

	if (p->error == YAML_READER_ERROR) {
		error_code(r->err, EXIT_USAGE);
		error_hint(r->err, "save the file as UTF-8");
		return error_set(r->err, "%s: byte %zu is not valid UTF-8 text (%s)",
		                 r->config->path, p->problem_offset, p->problem);
	}
	if (is_tab_indented(r->text, p->problem_mark.line))
		error_hint(r->err, "a tab cannot indent a line in YAML; use spaces");
	error_set(r->err, "%s", p->problem ? p->problem : "not YAML");
	if (p->context)
		error_prefix(r->err, "%s", p->context);
	return at(r, p->problem_mark);
}

static int refuse_extras(struct reader *r, const yaml_event_t *event)
{
	const yaml_char_t *anchor = NULL, *tag = NULL;

	if (event->type == YAML_ALIAS_EVENT)
		anchor = event->data.alias.anchor;
	if (event->type == YAML_SCALAR_EVENT) {
		anchor = event->data.scalar.anchor;
		tag = event->data.scalar.tag;
	} else if (event->type == YAML_SEQUENCE_START_EVENT) {
		anchor = event->data.sequence_start.anchor;
		tag = event->data.sequence_start.tag;
	} else if (event->type == YAML_MAPPING_START_EVENT) {
		anchor = event->data.mapping_start.anchor;
		tag = event->data.mapping_start.tag;
	}
	if (!anchor && !tag)
		return 0;
	error_hint(r->err, "write the value out; if it begins with &, * or !, put it in quotes");
	error_set(r->err, "anchors, aliases and tags are not supported here: '%s'",
	          (const char *)(anchor ? anchor : tag));
	return at(r, event->start_mark);
}

static int next_event(struct reader *r, yaml_event_t *event)
{
	yaml_event_delete(event);
	if (!yaml_parser_parse(&r->parser, event)) {
		memset(event, 0, sizeof(*event));
		return syntax_error(r);
	}
	return refuse_extras(r, event);
}

/* Copies a scalar's text; what no option can mean is refused here, for keys and values alike. */
static int scalar_text(struct reader *r, const yaml_event_t *event, char **ret)
{
	const char *text = (const char *)event->data.scalar.value;
	size_t length = event->data.scalar.length;

	for (size_t i = 0; i < length; i++) {
		if ((unsigned char)text[i] >= 0x20 && text[i] != 0x7f)
			continue;
		error_set(r->err, text[i] == '\n' ? "the value has more than one line"
		                                  : "the value has a control character");
		return at(r, event->start_mark);
	}
	*ret = mem_copy(text, length);
	return 0;
}

/* One scalar for 'value': its only one, or an item of its list. */
static int add_scalar(struct reader *r, struct config_value *value, const yaml_event_t *event)
{
	const struct config_key *key = value->key;
	bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *shown = NULL;

	if (scalar_text(r, event, &text) < 0)
		return -1;
	shown = str_printable(text, CONFIG_SHOWN_LENGTH);
	if (config_is_null(text, plain)) {
		error_hint(r->err, "give it a value, or remove the line");
		error_set(r->err, "'%s' has no value; expected %s", key->path,
		          config_type_words(key->type));
		return at(r, event->start_mark);
	}
	if (!config_fits_type(key->type, text, plain)) {
		error_set(r->err, "'%s' is '%s'; expected %s", key->path, shown,
		          config_type_words(key->type));
		return at(r, event->start_mark);
	}
	if (!config_is_allowed(key, text)) {
		error_set(r->err, "'%s' is '%s'; expected one of %s", key->path, shown,
		          key->allowed);
		return at(r, event->start_mark);
	}
	strv_take(&value->values, STEAL(text));
	return 0;
}

static int wrong_shape(struct reader *r, const struct config_key *key, const yaml_event_t *event)
{
	const char *what = event->type == YAML_MAPPING_START_EVENT    ? "a mapping"
	                   : event->type == YAML_SEQUENCE_START_EVENT ? "a list"
	                                                              : "a single value";

	error_set(r->err, "'%s' is %s; expected %s", key->path, what, config_type_words(key->type));
	return at(r, event->start_mark);
}

static int read_items(struct reader *r, struct config_value *value)
{
	for (;;) {
		CLEANUP_EVENT yaml_event_t event = {0};

		if (next_event(r, &event) < 0)
			return -1;
		if (event.type == YAML_SEQUENCE_END_EVENT)
			return 0;
		if (event.type != YAML_SCALAR_EVENT) {
			error_set(r->err, "an item of '%s' is not a single value",
			          value->key->path);
			return at(r, event.start_mark);
		}
		if (value->values.count >= MAX_ITEMS) {
			error_set(r->err, "'%s' has more than %d items", value->key->path,
			          MAX_ITEMS);
			return at(r, event.start_mark);
		}
		if (add_scalar(r, value, &event) < 0)
			return -1;
	}
}

/* The value of a known key, of which 'event' is the begin. */
static int read_value(struct reader *r, const struct config_key *key, const yaml_event_t *event)
{
	struct config *c = r->config;
	struct config_value *value;

	c->values = mem_grow(c->values, c->count + 1, sizeof(*c->values));
	value = &c->values[c->count++];
	*value = (struct config_value){
		.key = key,
		.line = (int)event->start_mark.line + 1,
		.column = (int)event->start_mark.column + 1,
	};
	if (key->type == CONFIG_LIST && event->type == YAML_SEQUENCE_START_EVENT)
		return read_items(r, value);
	if (key->type == CONFIG_LIST && event->type == YAML_SCALAR_EVENT &&
	    !config_is_null((const char *)event->data.scalar.value,
	                    event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE))
		return wrong_shape(r, key, event);
	if (event->type == YAML_SCALAR_EVENT)
		return add_scalar(r, value, event);
	return wrong_shape(r, key, event);
}

static int given_twice(struct reader *r, const char *path, yaml_mark_t mark)
{
	const struct config_value *first = config_find(r->config, path);

	if (first)
		error_set(r->err, "'%s' is given twice, first in line %d", path, first->line);
	else
		error_set(r->err, "'%s' is given twice", path);
	return at(r, mark);
}

static int read_mapping(struct reader *r, const char *prefix, int depth);

/* A section: a mapping whose keys begin with 'path'. */
static int read_section(struct reader *r, const char *path, const yaml_event_t *event, int depth)
{
	if (event->type != YAML_MAPPING_START_EVENT) {
		error_set(r->err, "'%s' is a section: it holds keys, not a value", path);
		return at(r, event->start_mark);
	}
	if (strv_has(&r->sections, path))
		return given_twice(r, path, event->start_mark);
	strv_add(&r->sections, path);
	if (depth >= MAX_DEPTH) {
		error_set(r->err, "mappings are nested more than %d deep", MAX_DEPTH);
		return at(r, event->start_mark);
	}
	return read_mapping(r, path, depth + 1);
}

static int read_pair(struct reader *r, const char *prefix, const yaml_event_t *key_event, int depth)
{
	CLEANUP_EVENT yaml_event_t event = {0};
	CLEANUP_FREE char *name = NULL;
	CLEANUP_FREE char *path = NULL;
	const struct config_key *key;

	if (key_event->type != YAML_SCALAR_EVENT) {
		error_set(r->err, "a key must be a single word");
		return at(r, key_event->start_mark);
	}
	if (scalar_text(r, key_event, &name) < 0)
		return -1;
	path = prefix ? str_format("%s.%s", prefix, name) : str_copy(name);
	key = config_find_key(r->keys, path);
	/* A dot inside a key would name a nested one by the back door. */
	if (strchr(name, '.') || (!key && !config_is_section(r->keys, path))) {
		CLEANUP_FREE char *shown = str_printable(path, CONFIG_SHOWN_LENGTH);

		if (strchr(name, '.') && key)
			error_hint(r->err, "write one mapping inside the other, not a dot");
		config_suggest(r->keys, path, r->err);
		error_set(r->err, "unknown key '%s'", shown);
		return at(r, key_event->start_mark);
	}
	if (config_find(r->config, path))
		return given_twice(r, path, key_event->start_mark);
	if (next_event(r, &event) < 0)
		return -1;
	return key ? read_value(r, key, &event) : read_section(r, path, &event, depth);
}

static int read_mapping(struct reader *r, const char *prefix, int depth)
{
	for (;;) {
		CLEANUP_EVENT yaml_event_t event = {0};

		if (next_event(r, &event) < 0)
			return -1;
		if (event.type == YAML_MAPPING_END_EVENT)
			return 0;
		if (read_pair(r, prefix, &event, depth) < 0)
			return -1;
	}
}

static int read_document(struct reader *r)
{
	CLEANUP_EVENT yaml_event_t event = {0};

	if (next_event(r, &event) < 0)
		return -1;
	/* "---" and nothing more: an empty scalar. */
	if (event.type == YAML_SCALAR_EVENT && event.data.scalar.length == 0)
		return next_event(r, &event);
	if (event.type != YAML_MAPPING_START_EVENT) {
		error_hint(r->err, "the file is made of lines like 'name: value'");
		error_set(r->err, "the file must be a mapping of keys to values");
		return at(r, event.start_mark);
	}
	if (read_mapping(r, NULL, 0) < 0)
		return -1;
	return next_event(r, &event);
}

static int read_stream(struct reader *r)
{
	CLEANUP_EVENT yaml_event_t event = {0};

	if (next_event(r, &event) < 0 || next_event(r, &event) < 0)
		return -1;
	if (event.type == YAML_STREAM_END_EVENT)
		return 0;
	if (read_document(r) < 0 || next_event(r, &event) < 0)
		return -1;
	if (event.type != YAML_STREAM_END_EVENT) {
		error_set(r->err, "a second document begins here; one file holds one");
		return at(r, event.start_mark);
	}
	return 0;
}

int config_parse(struct config *config, const struct config_key *keys, const char *text,
                 size_t size, struct error *err)
{
	CLEANUP_READER struct reader r = {
		.keys = keys,
		.config = config,
		.text = text,
		.err = err,
	};

	if (!yaml_parser_initialize(&r.parser))
		return error_set(err, "cannot read configuration '%s': out of memory",
		                 config->path);
	/* Else libyaml guesses UTF-16 from the first bytes. */
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
	return read_stream(&r);
}
