/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <string.h>

#include "builder/str.h"
#include "publish/yaml-doc.h"

int yaml_doc_load(struct yaml_doc *ret, const char *text, const char *path, struct error *err)
{
	yaml_parser_t parser;
	int result = 0;

	ret->path = path;
	yaml_parser_initialize(&parser);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
	if (!yaml_parser_load(&parser, &ret->document)) {
		error_set(err, "%s:%zu: %s", path, parser.problem_mark.line + 1,
		          parser.problem ? parser.problem : "no YAML");
		result = error_code(err, EXIT_USAGE);
	}
	yaml_parser_delete(&parser);
	return result;
}

void yaml_doc_free(struct yaml_doc *doc)
{
	yaml_document_delete(&doc->document);
}

int yaml_doc_complain(const struct yaml_doc *doc, const yaml_node_t *node, struct error *err,
                      const char *format, ...)
{
	CLEANUP_FREE char *what = NULL;
	va_list args;

	va_start(args, format);
	what = str_vformat(format, args);
	va_end(args);
	error_set(err, "%s:%zu: %s", doc->path, node ? node->start_mark.line + 1 : 1, what);
	return error_code(err, EXIT_USAGE);
}

yaml_node_t *yaml_doc_root(struct yaml_doc *doc)
{
	return yaml_document_get_root_node(&doc->document);
}

yaml_node_t *yaml_doc_node(struct yaml_doc *doc, int index)
{
	return yaml_document_get_node(&doc->document, index);
}

const char *yaml_doc_text(const yaml_node_t *node)
{
	return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value
	                                              : NULL;
}

yaml_node_t *yaml_doc_member(struct yaml_doc *doc, const yaml_node_t *map, const char *name)
{
	if (!map || map->type != YAML_MAPPING_NODE)
		return NULL;
	for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
	     p++)
		if (str_equal(yaml_doc_text(yaml_doc_node(doc, p->key)), name))
			return yaml_doc_node(doc, p->value);
	return NULL;
}
