/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of image.yaml and of profiles: a YAML file into a list of values, checked
 * against the caller's table of keys. It knows no option itself; the table is the schema:
 *
 *	static const struct config_key keys[] = {
 *		{"name", CONFIG_STRING, NULL},
 *		{"boot.firmware", CONFIG_STRING, "bios|uefi|both"},
 *		{"boot.memory", CONFIG_SIZE, NULL},
 *		{"boot.test", CONFIG_BOOL, NULL},
 *		{"cmdline.add", CONFIG_LIST, NULL},
 *		{0},
 *	};
 *
 *	if (config_read(&config, path, keys, err) < 0)
 *		return -1;
 *	options->name = str_copy(config_string(config, "name"));  // NULL: not in the file
 *	config_bool(config, "boot.test", &options->boot_test);    // left alone: not in the file
 *
 * A path with dots stands for nested mappings. Refused, with file:line:column: unknown keys
 * (with the nearest known one as hint), keys given twice, values of the wrong type or not
 * allowed, keys without a value, anchors, aliases, tags, more than one document, tabs as
 * indentation, what is not UTF-8, control characters and line ends inside values, files of
 * more than 1 MiB. An empty file, or one of comments only, has no values and is no error.
 * Anything that fails is EXIT_USAGE.
 */
#ifndef GPUIMG_CONFIG_H
#define GPUIMG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "error.h"
#include "str.h"

enum config_type {
	CONFIG_STRING, /* one scalar, plain or quoted: 24.04 stays "24.04" */
	CONFIG_BOOL,   /* true or false, not quoted */
	CONFIG_SIZE,   /* as str_parse_size: 4G, 512M, 65536 */
	CONFIG_UINT,   /* decimal */
	CONFIG_LIST,   /* a sequence of strings, [a, b] or one "- a" a line; may be empty */
};

struct config_key {
	const char *path; /* NULL ends the table */
	enum config_type type;
	const char *allowed; /* "a|b|c", for each item of a list too; NULL: any */
};

/* One key that the file has, in the file's order. Scalars have one item, never empty lists. */
struct config_value {
	const struct config_key *key; /* in the caller's table */
	struct strv values;
	int line, column; /* of the value, from 1 */
};

struct config {
	char *path;
	struct config_value *values;
	size_t count;
};

/* The table must outlive *ret. */
int config_read(struct config **ret, const char *path, const struct config_key *keys,
                struct error *err);
void config_free(struct config *config);
DEFINE_CLEANUP(config, struct config *, config_free)
#define CLEANUP_CONFIG CLEANUP(cleanup_config)

/* NULL: the file does not have it. */
const struct config_value *config_find(const struct config *config, const char *key_path);

/* Typed reading. Where the file has no such key, NULL or false, and *ret stays as it is. */
const char *config_string(const struct config *config, const char *key_path);
const struct strv *config_list(const struct config *config, const char *key_path);
bool config_bool(const struct config *config, const char *key_path, bool *ret);
bool config_size(const struct config *config, const char *key_path, uint64_t *ret_bytes);
bool config_uint(const struct config *config, const char *key_path, uint64_t *ret);

/* Says "path:line:column: key: <format>" for a value that the caller refuses; EXIT_USAGE. */
int config_error(const struct config *config, const struct config_value *value, struct error *err,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
