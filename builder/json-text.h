/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from outside as JSON. jansson takes well-formed UTF-8 only and answers anything else, and
 * NULL, with NULL: the value, or all of a json_pack(), would be missing without a word.
 */
#ifndef GPUIMG_JSON_TEXT_H
#define GPUIMG_JSON_TEXT_H

#include <jansson.h>

#include "str.h"

/* A string; null for NULL. Text that is not UTF-8 is shown as str_printable() shows it. */
json_t *json_text(const char *text);
/* An array with a string for each item. */
json_t *json_text_list(const struct strv *v);

#endif
