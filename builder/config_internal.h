/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the configuration reader: file (config.c), events, schema. */
#ifndef GPUIMG_CONFIG_INTERNAL_H
#define GPUIMG_CONFIG_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"
#include "error.h"

#define CONFIG_SHOWN_LENGTH 60 /* of a key or value in a message */

/* config_events.c: fills config->values from a NUL-terminated text. */
int config_parse(struct config *config, const struct config_key *keys, const char *text,
                 size_t size, struct error *err);

/* config_schema.c: what the caller's table of keys says. */
const struct config_key *config_find_key(const struct config_key *keys, const char *path);
/* Whether keys begin with 'path' and a dot. */
bool config_is_section(const struct config_key *keys, const char *path);
bool config_is_allowed(const struct config_key *key, const char *text);
bool config_fits_type(enum config_type type, const char *text, bool plain);
bool config_is_null(const char *text, bool plain);
const char *config_type_words(enum config_type type); /* "true or false" */
/* Hints at the known key or section that resembles 'path' most, if any does. */
int config_suggest(const struct config_key *keys, const char *path, struct error *err);

#endif
