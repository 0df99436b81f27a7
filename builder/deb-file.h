/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .deb files of a directory (deb(5): an ar archive with control.tar.*), and the index that makes a
 * repository of them (deb-control fields, Filename, Size, SHA256; as dpkg-scanpackages writes it,
 * which an image or a host need not have). Read through libarchive, bounded.
 */
#ifndef GPUIMG_DEB_FILE_H
#define GPUIMG_DEB_FILE_H

#include "error.h"
#include "str.h"

struct deb_file {
	char *name; /* of the file */
	char *package, *version, *architecture;
	char *control; /* the whole stanza, newline at its end */
	char *sha256;
	uint64_t size_bytes;
};

/* A field's value in a stanza, its further lines joined by a space if 'folded', else left out;
 * NULL: none. Owned by the caller. */
char *deb_field(const char *stanza, const char *name, bool folded);
int deb_file_read(struct deb_file *ret, const char *path, struct error *err);
void deb_file_free(struct deb_file *deb);
/* All *.deb of a directory, sorted by name. None at all, or one that is damaged: EXIT_INPUT. */
int deb_dir_read(struct deb_file **ret, size_t *ret_count, const char *dir, struct error *err);
void deb_dir_free(struct deb_file *debs, size_t count);
/* The text of Packages; Filename is "./NAME". Owned by the caller. */
char *deb_dir_index(const struct deb_file *debs, size_t count);

#endif
