/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text between two tags of a small XML reply, as S3 servers send: no attributes are read,
 * namespaces and order do not matter, and servers differ in how they quote. Not an XML reader.
 */
#ifndef GPUIMG_PUBLISH_XML_TAGS_H
#define GPUIMG_PUBLISH_XML_TAGS_H

/* The content of the first <name> at or behind *at, entities replaced; *at (may be NULL) goes
 * behind it. NULL: there is none. Owned by the caller. */
char *xml_tag(const char *text, const char *name, const char **at);

#endif
