/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys. Every field is written with its length before it, and every value with its type, so that
 * two different lists of inputs never give the same bytes.
 */
#include <string.h>

#include "cache-internal.h"
#include "digest.h"

#define SHOWN_BYTES 200
#define PROGRAM     "/proc/self/exe"

enum value_type {
	TYPE_NONE = '0',
	TYPE_TEXT = 't',
	TYPE_INT = 'i',
	TYPE_LIST = 'l',
	TYPE_FILE = 'f'
};

static void append(struct cache_key *key, const void *data, size_t size)
{
	key->bytes = mem_grow(key->bytes, key->size + size, 1);
	if (size)
		memcpy(key->bytes + key->size, data, size);
	key->size += size;
}

static void append_number(struct cache_key *key, uint64_t number)
{
	unsigned char bytes[8];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(number >> (8 * i));
	append(key, bytes, sizeof(bytes));
}

static void append_text(struct cache_key *key, const char *text)
{
	append_number(key, strlen(text));
	append(key, text, strlen(text));
}

static void append_head(struct cache_key *key, const char *name, enum value_type type)
{
	const char letter = (char)type;

	append_text(key, name);
	append(key, &letter, 1);
}

static json_t *shown_text(const char *value)
{
	CLEANUP_FREE char *text = value ? str_printable(value, SHOWN_BYTES) : NULL;
	json_t *json = text ? json_string(text) : NULL;

	return json ? json : json_null();
}

/* A name that comes twice gets a number: people shall see both. */
static void show(struct cache_key *key, const char *name, json_t *value)
{
	CLEANUP_FREE char *shown = str_printable(name, SHOWN_BYTES);
	CLEANUP_FREE char *numbered = str_copy(shown);

	for (unsigned i = 2; json_object_get(key->inputs, numbered); i++) {
		free(numbered);
		numbered = str_format("%s (%u)", shown, i);
	}
	json_object_set_new(key->inputs, numbered, value);
}

/* After the digest was asked for, one more input would be part of no name. */
static bool is_open(struct cache_key *key, const char *name)
{
	if (!key->hex)
		return true;
	free(key->unusable);
	key->unusable = str_format("input '%s' came after the key was made", name);
	return false;
}

struct cache_key *cache_key_new(const char *kind)
{
	struct cache_key *key = mem_alloc(sizeof(*key));
	CLEANUP_ERROR struct error err = ERROR_INIT;

	key->kind = str_copy(kind);
	key->inputs = json_object();
	append_text(key, kind);
	cache_key_add_int(key, "cache_format", CACHE_FORMAT);
	/* A program that does not know itself could take what another one made. */
	if (cache_key_add_file(key, "program", PROGRAM, &err) < 0)
		key->unusable = str_copy(err.message);
	if (!cache_good_kind(kind)) {
		free(key->unusable);
		key->unusable = str_format("'%s' is not the name of a kind", kind);
	}
	return key;
}

void cache_key_free(struct cache_key *key)
{
	if (!key)
		return;
	json_decref(key->inputs);
	free(key->kind);
	free(key->bytes);
	free(key->hex);
	free(key->unusable);
	free(key);
}

void cache_key_add(struct cache_key *key, const char *name, const char *value)
{
	if (!is_open(key, name))
		return;
	append_head(key, name, value ? TYPE_TEXT : TYPE_NONE);
	if (value)
		append_text(key, value);
	show(key, name, shown_text(value));
}

void cache_key_add_int(struct cache_key *key, const char *name, int64_t value)
{
	if (!is_open(key, name))
		return;
	append_head(key, name, TYPE_INT);
	append_number(key, (uint64_t)value);
	show(key, name, json_integer(value));
}

void cache_key_add_list(struct cache_key *key, const char *name, const struct strv *values)
{
	CLEANUP_FREE char *joined = NULL;

	if (!is_open(key, name))
		return;
	append_head(key, name, TYPE_LIST);
	append_number(key, values->count);
	for (size_t i = 0; i < values->count; i++)
		append_text(key, values->items[i]);
	joined = strv_join(values, " ");
	show(key, name, shown_text(joined));
}

int cache_key_add_file(struct cache_key *key, const char *name, const char *path, struct error *err)
{
	CLEANUP_FREE char *hex = NULL;
	CLEANUP_FREE char *shown = NULL;

	if (digest_file(path, "SHA256", &hex, err) < 0)
		return -1;
	if (!is_open(key, name))
		return 0;
	append_head(key, name, TYPE_FILE);
	append_text(key, hex);
	shown = str_format("sha256:%s", hex);
	show(key, name, shown_text(shown));
	return 0;
}

const char *cache_key_hex(struct cache_key *key)
{
	if (!key->hex)
		key->hex = digest_memory(key->bytes, key->size);
	return key->hex;
}

char *cache_file_name(struct cache_key *key, const char *suffix)
{
	return str_format("%s.%s", cache_key_hex(key), suffix);
}
