/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The targets file: targets by name, each with its type's settings and locations, secrets only by
 * the name of an environment variable or file. Read as a YAML document by libyaml; what no backend
 * knows is refused with its line.
 */
#include <string.h>
#include <sys/stat.h>

#include "publish/publish.h"
#include "publish/secret.h"
#include "publish/yaml-doc.h"

#define FILE_MAX_BYTES   (1024UL * 1024)
#define SECRET_MAX_BYTES (64UL * 1024)
#define LOCATIONS_MAX    1000

static const char *const target_keys[] = {"type", "locations", NULL};
static const char *const common_keys[] = {"boot_type", "ca_file", "?verify_tls", NULL};
static const char *const boot_types[] = {"bios", "uefi", "uefi-secure-boot", NULL};

struct reading {
	struct yaml_doc doc;
	struct publish_targets targets;
};

/* The entry of a key, with its mark; NULL: there is none. */
static const char *find_key(const char *const *list, const char *word)
{
	for (size_t i = 0; list && list[i]; i++)
		if (strcmp(list[i] + strspn(list[i], "!#?*"), word) == 0)
			return list[i];
	return NULL;
}

static bool is_in(const char *const *list, const char *word)
{
	return find_key(list, word) != NULL;
}

static bool is_plain(const yaml_node_t *node)
{
	return node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

/* true, false and whole numbers where they are not quoted; all else is text. */
static json_t *scalar_json(const yaml_node_t *node)
{
	const char *text = yaml_doc_text(node);
	uint64_t number;

	if (is_plain(node) && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0))
		return json_boolean(strcmp(text, "true") == 0);
	if (is_plain(node) && str_parse_uint(text, INT64_MAX, &number) == 0)
		return json_integer((json_int_t)number);
	return json_string(text);
}

/* Truth values in some versions of YAML, and words in others. */
static bool is_doubtful(const yaml_node_t *node)
{
	static const char *const words[] = {"yes", "no", "on", "off"};

	for (size_t i = 0; is_plain(node) && i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasecmp(yaml_doc_text(node), words[i]) == 0)
			return true;
	return is_plain(node) &&
	       (strcasecmp(yaml_doc_text(node), "true") == 0 ||
	        strcasecmp(yaml_doc_text(node), "false") == 0) &&
	       strcmp(yaml_doc_text(node), "true") != 0 &&
	       strcmp(yaml_doc_text(node), "false") != 0;
}

static int map_json(struct reading *r, const yaml_node_t *node, json_t **ret, struct error *err);

static int value_json(struct reading *r, const yaml_node_t *node, json_t **ret, struct error *err)
{
	if (node->type == YAML_MAPPING_NODE)
		return map_json(r, node, ret, err);
	if (node->type == YAML_SEQUENCE_NODE) {
		json_t *list = json_array();

		for (yaml_node_item_t *i = node->data.sequence.items.start;
		     i < node->data.sequence.items.top; i++) {
			const yaml_node_t *item = yaml_doc_node(&r->doc, *i);

			if (!yaml_doc_text(item)) {
				json_decref(list);
				return yaml_doc_complain(&r->doc, item, err,
				                         "a list holds texts only");
			}
			json_array_append_new(list, scalar_json(item));
		}
		*ret = list;
		return 0;
	}
	if (is_doubtful(node)) {
		yaml_doc_complain(&r->doc, node, err, "'%s' may be a word or a truth value",
		                  yaml_doc_text(node));
		error_hint(err, "write true or false, or put the word into quotes");
		return -1;
	}
	*ret = scalar_json(node);
	return *ret ? 0 : yaml_doc_complain(&r->doc, node, err, "not UTF-8");
}

/* A mapping of scalars: properties, tags, the place of a secret. */
static int map_json(struct reading *r, const yaml_node_t *node, json_t **ret, struct error *err)
{
	json_t *map = json_object();

	for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
	     p++) {
		const yaml_node_t *key = yaml_doc_node(&r->doc, p->key),
				  *value = yaml_doc_node(&r->doc, p->value);

		if (!yaml_doc_text(key) || !yaml_doc_text(value) ||
		    json_object_get(map, yaml_doc_text(key))) {
			json_decref(map);
			return yaml_doc_complain(&r->doc, key, err,
			                         "must be one text, under a key of its own");
		}
		json_object_set_new(map, yaml_doc_text(key), scalar_json(value));
	}
	*ret = map;
	return 0;
}

/* Whether it is there and everybody can read it: looked at before anything is read or sent, and
 * again when it is opened. */
static bool is_open_file(const char *path)
{
	struct stat st;

	return path && stat(path, &st) == 0 && (st.st_mode & 0007);
}

/* {env: NAME} or {file: PATH}: the value itself has no place in this file. */
static int take_secret(struct reading *r, struct publish_location *l, const char *key,
                       const yaml_node_t *node, struct error *err)
{
	json_t *place = NULL;

	if (node->type != YAML_MAPPING_NODE) {
		yaml_doc_complain(&r->doc, node, err,
		                  "'%s' is a secret: its value does not belong here", key);
		error_hint(err, "write '%s: {env: NAME}' or '%s: {file: PATH}'", key, key);
		return -1;
	}
	if (map_json(r, node, &place, err) < 0)
		return -1;
	if (json_object_size(place) != 1 || (!json_is_string(json_object_get(place, "env")) &&
	                                     !json_is_string(json_object_get(place, "file")))) {
		json_decref(place);
		return yaml_doc_complain(&r->doc, node, err,
		                         "'%s' must be {env: NAME} or {file: PATH}", key);
	}
	if (is_open_file(json_string_value(json_object_get(place, "file")))) {
		secret_refuse_open(json_string_value(json_object_get(place, "file")), err);
		json_decref(place);
		return error_prefix(err, "%s:%zu", r->doc.path, node->start_mark.line + 1);
	}
	json_object_set_new(l->secrets, key, place);
	return 0;
}

/* Whether a value is of the kind that its key's mark says; without one it is a text. */
static int check_kind(struct reading *r, const char *entry, const yaml_node_t *value,
                      const json_t *json, struct error *err)
{
	const char *text = yaml_doc_text(value), *key = entry + strspn(entry, "!#?*");
	bool is_text = json_is_string(json) || json_is_integer(json);
	uint64_t number;

	if (*entry == '*')
		return 0;
	if (*entry == '#' && (!is_text || str_parse_uint(text, INT64_MAX, &number) < 0))
		return yaml_doc_complain(&r->doc, value, err, "'%s' must be a whole number", key);
	if (*entry == '?' && !json_is_boolean(json))
		return yaml_doc_complain(&r->doc, value, err, "'%s' must be true or false", key);
	if (*entry != '?' && !is_text)
		return yaml_doc_complain(&r->doc, value, err, "'%s' must be one text", key);
	return 0;
}

static int take_pair(struct reading *r, struct publish_location *l, const struct publish_backend *b,
                     bool of_location, const yaml_node_t *key_node, const yaml_node_t *value,
                     struct error *err)
{
	const char *key = yaml_doc_text(key_node), *entry;
	json_t *json;

	if (!key)
		return yaml_doc_complain(&r->doc, key_node, err, "a key must be a text");
	if (is_in(b->secret_keys, key))
		return take_secret(r, l, key, value, err);
	if (is_in(target_keys, key))
		return of_location ? yaml_doc_complain(&r->doc, key_node, err,
		                                       "'%s' belongs to a target, not to one of "
		                                       "its locations",
		                                       key)
		                   : 0;
	entry = find_key(common_keys, key);
	if (!entry)
		entry = find_key(b->keys, key);
	if (!entry)
		return yaml_doc_complain(&r->doc, key_node, err,
		                         "a target of type '%s' has no key '%s'", b->type, key);
	if (value_json(r, value, &json, err) < 0)
		return -1;
	if (check_kind(r, entry, value, json, err) < 0) {
		json_decref(json);
		return -1;
	}
	if (json_is_integer(json)) { /* a bucket's name may be one: publish_number() reads it */
		json_decref(json);
		json = json_string(yaml_doc_text(value));
	}
	json_object_set_new(l->settings, key, json);
	return 0;
}

static int take_pairs(struct reading *r, struct publish_location *l,
                      const struct publish_backend *b, bool of_location, const yaml_node_t *map,
                      struct error *err)
{
	CLEANUP_STRV struct strv seen = {0};

	for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
	     p++) {
		const yaml_node_t *key = yaml_doc_node(&r->doc, p->key);

		if (yaml_doc_text(key) && strv_has(&seen, yaml_doc_text(key)))
			return yaml_doc_complain(&r->doc, key, err, "'%s' stands there twice",
			                         yaml_doc_text(key));
		if (take_pair(r, l, b, of_location, key, yaml_doc_node(&r->doc, p->value), err) < 0)
			return -1;
		strv_add(&seen, yaml_doc_text(key));
	}
	return 0;
}

static int check_needed(struct reading *r, struct publish_location *l,
                        const struct publish_backend *b, const yaml_node_t *node, struct error *err)
{
	const char *boot_type = publish_setting(l, "boot_type");

	for (size_t i = 0; b->keys[i]; i++)
		if (*b->keys[i] == '!' && !json_object_get(l->settings, b->keys[i] + 1))
			return yaml_doc_complain(&r->doc, node, err,
			                         "%s/%s: a target of type '%s' needs '%s'",
			                         l->target, l->location, b->type, b->keys[i] + 1);
	if (boot_type && !is_in(boot_types, boot_type))
		return yaml_doc_complain(&r->doc, node, err,
		                         "boot_type '%s' is none of bios, uefi, uefi-secure-boot",
		                         boot_type);
	l->boot_type = boot_type ? str_copy(boot_type) : NULL;
	return 0;
}

static bool is_name(const char *text)
{
	return *text && strlen(text) < 128 &&
	       !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	                          "._-")];
}

/* One location: the target's settings, and its own over them. */
static int add_location(struct reading *r, const char *target, const yaml_node_t *target_node,
                        const char *name, const yaml_node_t *own, struct error *err)
{
	const struct publish_backend *b =
		publish_backend_find(yaml_doc_text(yaml_doc_member(&r->doc, target_node, "type")));
	struct publish_location l = {.target = str_copy(target),
	                             .type = str_copy(b->type),
	                             .location = str_copy(name),
	                             .settings = json_object(),
	                             .secrets = json_object()};

	r->targets.items =
		mem_grow(r->targets.items, r->targets.count + 1, sizeof(*r->targets.items));
	r->targets.items[r->targets.count] = l;
	r->targets.count++; /* owned from here on, whatever fails */
	if (!is_name(name))
		return yaml_doc_complain(&r->doc, target_node, err, "'%s' is no name of a location",
		                         name);
	if (r->targets.count > LOCATIONS_MAX)
		return yaml_doc_complain(&r->doc, target_node, err, "more than %d locations",
		                         LOCATIONS_MAX);
	if (take_pairs(r, &r->targets.items[r->targets.count - 1], b, false, target_node, err) < 0)
		return -1;
	if (own && own->type != YAML_MAPPING_NODE && !str_equal(yaml_doc_text(own), ""))
		return yaml_doc_complain(&r->doc, own, err, "location '%s' must be a mapping",
		                         name);
	if (own && own->type == YAML_MAPPING_NODE &&
	    take_pairs(r, &r->targets.items[r->targets.count - 1], b, true, own, err) < 0)
		return -1;
	return check_needed(r, &r->targets.items[r->targets.count - 1], b, target_node, err);
}

static int add_locations(struct reading *r, const char *target, const yaml_node_t *node,
                         const yaml_node_t *locations, struct error *err)
{
	if (locations->type == YAML_SEQUENCE_NODE) {
		for (yaml_node_item_t *i = locations->data.sequence.items.start;
		     i < locations->data.sequence.items.top; i++) {
			const yaml_node_t *item = yaml_doc_node(&r->doc, *i);

			if (!yaml_doc_text(item))
				return yaml_doc_complain(&r->doc, item, err,
				                         "a location must be a name");
			if (add_location(r, target, node, yaml_doc_text(item), NULL, err) < 0)
				return -1;
		}
		return 0;
	}
	if (locations->type != YAML_MAPPING_NODE)
		return yaml_doc_complain(&r->doc, locations, err,
		                         "'locations' must be a list of names or a mapping");
	for (yaml_node_pair_t *p = locations->data.mapping.pairs.start;
	     p < locations->data.mapping.pairs.top; p++) {
		const yaml_node_t *key = yaml_doc_node(&r->doc, p->key);

		if (!yaml_doc_text(key))
			return yaml_doc_complain(&r->doc, key, err, "a location must have a name");
		if (add_location(r, target, node, yaml_doc_text(key),
		                 yaml_doc_node(&r->doc, p->value), err) < 0)
			return -1;
	}
	return 0;
}

static int add_target(struct reading *r, const yaml_node_t *key, const yaml_node_t *node,
                      struct error *err)
{
	const yaml_node_t *locations;
	const char *type;

	if (!yaml_doc_text(key) || !is_name(yaml_doc_text(key)))
		return yaml_doc_complain(&r->doc, key, err,
		                         "not a name of a target: letters, digits, '.', '_', '-'");
	if (node->type != YAML_MAPPING_NODE)
		return yaml_doc_complain(&r->doc, node, err, "target '%s' must be a mapping",
		                         yaml_doc_text(key));
	type = yaml_doc_text(yaml_doc_member(&r->doc, node, "type"));
	if (!type || !publish_backend_find(type)) {
		yaml_doc_complain(&r->doc, node, err, "target '%s': %s%s", yaml_doc_text(key),
		                  type ? "there is no type " : "'type' is missing",
		                  type ? type : "");
		error_hint(err, "dir, http, s3, oci, glance or vco");
		return -1;
	}
	locations = yaml_doc_member(&r->doc, node, "locations");
	return locations ? add_locations(r, yaml_doc_text(key), node, locations, err)
	                 : add_location(r, yaml_doc_text(key), node, "default", NULL, err);
}

static int check_twice(struct reading *r, const yaml_node_t *node, struct error *err)
{
	const struct publish_targets *t = &r->targets;

	for (size_t i = 0; i < t->count; i++)
		for (size_t j = i + 1; j < t->count; j++)
			if (str_equal(t->items[i].target, t->items[j].target) &&
			    str_equal(t->items[i].location, t->items[j].location))
				return yaml_doc_complain(&r->doc, node, err,
				                         "'%s/%s' stands there twice",
				                         t->items[i].target, t->items[i].location);
	return 0;
}

static int read_document(struct reading *r, struct error *err)
{
	const yaml_node_t *root = yaml_doc_root(&r->doc);
	const yaml_node_t *targets = yaml_doc_member(&r->doc, root, "targets");

	if (!targets || targets->type != YAML_MAPPING_NODE) {
		error_set(err, "%s: there is no mapping 'targets'", r->doc.path);
		error_hint(err, "docs/publish.md describes the file");
		return error_code(err, EXIT_USAGE);
	}
	for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
	     p++)
		if (!str_equal(yaml_doc_text(yaml_doc_node(&r->doc, p->key)), "targets"))
			return yaml_doc_complain(&r->doc, yaml_doc_node(&r->doc, p->key), err,
			                         "unknown key beside 'targets'");
	for (yaml_node_pair_t *p = targets->data.mapping.pairs.start;
	     p < targets->data.mapping.pairs.top; p++)
		if (add_target(r, yaml_doc_node(&r->doc, p->key), yaml_doc_node(&r->doc, p->value),
		               err) < 0)
			return -1;
	return check_twice(r, targets, err);
}

int publish_targets_read(struct publish_targets *ret, const char *path, struct error *err)
{
	struct reading r = {0};
	CLEANUP_FREE char *text = NULL;
	bool is_open;
	int result;

	if (secret_read_file(path, FILE_MAX_BYTES, &text, &is_open, err) < 0) {
		error_hint(err, "name the targets file with -t; docs/publish.md describes it");
		return -1;
	}
	if (yaml_doc_load(&r.doc, text, path, err) < 0)
		return -1;
	result = read_document(&r, err);
	yaml_doc_free(&r.doc);
	if (result < 0) {
		publish_targets_free(&r.targets);
		return -1;
	}
	*ret = r.targets;
	return 0;
}

void publish_targets_free(struct publish_targets *t)
{
	for (size_t i = 0; i < t->count; i++) {
		free(t->items[i].target);
		free(t->items[i].type);
		free(t->items[i].location);
		free(t->items[i].boot_type);
		json_decref(t->items[i].settings);
		json_decref(t->items[i].secrets);
	}
	free(t->items);
	*t = (struct publish_targets){0};
}

unsigned publish_targets_digests(const struct publish_targets *t)
{
	unsigned all = 0;

	for (size_t i = 0; i < t->count; i++)
		all |= publish_backend_find(t->items[i].type)->digests;
	return all;
}

const char *publish_setting(const struct publish_location *l, const char *key)
{
	return json_string_value(json_object_get(l->settings, key));
}

bool publish_flag(const struct publish_location *l, const char *key, bool otherwise)
{
	const json_t *value = json_object_get(l->settings, key);

	return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

uint64_t publish_number(const struct publish_location *l, const char *key, uint64_t otherwise)
{
	const char *text = publish_setting(l, key);
	uint64_t number;

	return text && str_parse_uint(text, INT64_MAX, &number) == 0 ? number : otherwise;
}

static int secret_file_text(const char *path, char **ret, struct error *err)
{
	CLEANUP_SECRET char *text = NULL;
	bool is_open;

	if (secret_read_file(path, SECRET_MAX_BYTES, &text, &is_open, err) < 0)
		return -1;
	if (is_open) {
		secret_refuse_open(path, err);
		return -1;
	}
	*ret = STEAL(text);
	return 0;
}

static int secret_text(const json_t *place, const char *key, char **ret, struct error *err)
{
	const char *name = json_string_value(json_object_get(place, "env"));
	const char *value = name ? getenv(name) : NULL;
	const char *path = json_string_value(json_object_get(place, "file"));

	if (!name)
		return secret_file_text(path, ret, err);
	if (!value || !*value) {
		error_set(err, "'%s' comes from the environment variable %s, which is not set", key,
		          name);
		return error_code(err, EXIT_USAGE);
	}
	*ret = str_copy(value);
	return 0;
}

int publish_secret(struct publish_job *job, const char *key, char **ret, struct error *err)
{
	const json_t *place = json_object_get(job->where->secrets, key);
	CLEANUP_FREE char *text = NULL;

	*ret = NULL;
	if (!place)
		return 0;
	if (secret_text(place, key, &text, err) < 0)
		return -1;
	text[strcspn(text, "\r\n")] = '\0';
	if (*text)
		strv_add(job->secrets, text);
	*ret = STEAL(text);
	return 0;
}
