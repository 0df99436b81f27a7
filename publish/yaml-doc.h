/* SPDX-License-Identifier: Apache-2.0 */
/* A YAML document as libyaml reads it, and what both of our readers ask of one: the text of a
 * node, a member of a mapping, a complaint with the line. Nodes are borrowed from the document. */
#ifndef GPUIMG_PUBLISH_YAML_DOC_H
#define GPUIMG_PUBLISH_YAML_DOC_H

#include <yaml.h>

#include "builder/error.h"

struct yaml_doc {
	const char *path; /* for messages; borrowed */
	yaml_document_t document;
};

/* EXIT_USAGE: it is no YAML. yaml_doc_free() only after success. */
int yaml_doc_load(struct yaml_doc *ret, const char *text, const char *path, struct error *err);
void yaml_doc_free(struct yaml_doc *doc);
/* Sets "PATH:LINE: …" and EXIT_USAGE. node NULL: the first line. */
int yaml_doc_complain(const struct yaml_doc *doc, const yaml_node_t *node, struct error *err,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
yaml_node_t *yaml_doc_root(struct yaml_doc *doc); /* NULL: it is empty */
yaml_node_t *yaml_doc_node(struct yaml_doc *doc, int index);
/* Of a scalar; NULL: the node is none, or NULL. */
const char *yaml_doc_text(const yaml_node_t *node);
/* The value under a name; NULL: it is not there, or 'map' is no mapping. */
yaml_node_t *yaml_doc_member(struct yaml_doc *doc, const yaml_node_t *map, const char *name);

#endif
