/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of TOML 1.0 (toml.io/en/v1.0.0) that keeps where each thing stands, so that an edit
 * touches only the lines that it must: containerd's configuration is the user's file. It reads all
 * of the language's syntax, and refuses, with the line, what it does not understand or what no TOML
 * reader takes (a key defined twice, a table redefined). Debian has no C library for TOML. Bounded:
 * TOML_MAX_BYTES, TOML_MAX_DEPTH, TOML_MAX_NODES, TOML_MAX_PATH. A byte order mark in front is read
 * past. Refused though it is TOML: a NUL inside of a string (by \u0000), which no path or name can
 * have.
 */
#ifndef GPUIMG_TOML_H
#define GPUIMG_TOML_H

#include <stdbool.h>
#include <stddef.h>

#include "cleanup.h"
#include "error.h"
#include "str.h"

#define TOML_MAX_BYTES (1UL * 1024 * 1024)
#define TOML_MAX_DEPTH 64    /* of tables and arrays inside of each other */
#define TOML_MAX_NODES 16384 /* containerd's own defaults are some 400 */
#define TOML_MAX_PATH  4096  /* bytes of all keys from the root to a value */

enum toml_type {
	TOML_STRING,
	TOML_INTEGER,
	TOML_FLOAT,
	TOML_BOOL,
	TOML_DATE,
	TOML_ARRAY,
	TOML_TABLE
};

struct toml_node {
	enum toml_type type;
	char *key;  /* of this node in its table; NULL for items of arrays and for the root */
	char *text; /* of a string its value, of other scalars the words as they stand; else NULL */
	struct toml_node *children; /* of tables and arrays, in the order of the file */
	size_t count;
	/* Of a value: from its first byte to behind its last. Of a table with a header: the
	 * header's line, from '[' to behind its newline. Of one that has none (implied, or made by
	 * dots): both 0. */
	size_t begin, end;
	size_t body_end; /* of a table with a header: behind its last line of content, before blank
	                  * lines and comments that belong to the next header */
	bool has_header;
	bool is_inline;    /* a table or array in braces or brackets, and all tables inside of it */
	bool is_dotted;    /* a table made by a key with dots: "a.b = 1" makes a; its lines stand in
	                    * the    body of the nearest table around it that has a header, or of the
	                    * root
	                    */
	bool of_tables;    /* an array made by [[headers]]: its children are tables with headers */
	int line;          /* from 1 */
	unsigned depth;    /* of the root 0 */
	size_t path_bytes; /* of all keys down to here: bounded, so that toml_flatten is */
};

struct toml {
	char *text; /* a copy */
	struct toml_node root;
};

/* name: for messages, "'/etc/containerd/config.toml'". EXIT_INPUT: "NAME: line N: …". */
int toml_parse(struct toml **ret, const char *text, const char *name, struct error *err);
void toml_free(struct toml *toml);
DEFINE_CLEANUP(toml, struct toml *, toml_free)
#define CLEANUP_TOML CLEANUP(cleanup_toml)

/* A node by keys, NULL-terminated: toml_find(root, "plugins", "io.containerd.grpc.v1.cri", NULL).
 */
#define toml_find(node, ...) toml_find_path(node, (const char *const[]){__VA_ARGS__})
const struct toml_node *toml_find_path(const struct toml_node *node, const char *const *keys);
/* The child of a table by its key, or NULL. */
const struct toml_node *toml_child(const struct toml_node *table, const char *key);
/* A basic string with what must be escaped escaped, quotes included. Owned by the caller. */
char *toml_quote(const char *text);
/* The same for a key, without quotes if it needs none. */
char *toml_quote_key(const char *key);
/* A value in one line, however it is written. Owned by the caller. */
char *toml_show(const struct toml_node *node);
/* Every scalar as "plugins.\"a.b\".key = value", arrays as one line, sorted; equal files have equal
 * lists, however they are written. An empty table has no line, unless it is in an array. */
void toml_flatten(const struct toml_node *root, struct strv *ret);

#endif
