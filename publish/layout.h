/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an image lies below a directory, a web server's address or a bucket's prefix, the same for
 * 'dir', 'http' and 's3':
 *
 *	NAME/VERSION/SHA256/NAME.qcow2	found by its content: no publisher overwrites another
 *	NAME/VERSION/SHA256/SHA256SUMS	as sha256sum(1) reads it
 *	NAME/index.json			what there is, by version; set last
 */
#ifndef GPUIMG_PUBLISH_LAYOUT_H
#define GPUIMG_PUBLISH_LAYOUT_H

#include "publish/publish.h"

#define LAYOUT_INDEX_MAX_BYTES (4UL * 1024 * 1024)

/* Relative, without a leading '/'; owned by the caller. */
char *layout_file(const struct publish_image *image);
char *layout_sums(const struct publish_image *image);
char *layout_index(const struct publish_image *image);
/* Text of SHA256SUMS. */
char *layout_sums_text(const struct publish_image *image);
/* Whether such a text has this image's line. */
bool layout_sums_match(const struct publish_image *image, const char *text);

enum layout_index_state {
	INDEX_SAME, /* this version is in it, with this content */
	INDEX_ABSENT,
	INDEX_DIFFERENT, /* this version has other content */
};
/* text: of index.json, NULL if there is none. EXIT_INPUT: it is no index of ours. */
int layout_index_look(const struct publish_image *image, const char *text,
                      enum layout_index_state *ret, struct error *err);
/* The same before it is written: since we probed, another publisher may have put other content
 * under this version, which is EXIT_INPUT without --replace. */
int layout_index_look_again(const struct publish_job *job, const char *text,
                            enum layout_index_state *ret, struct error *err);
/* The index with this image in it, in the place of what its version had; what else it holds stays.
 * Owned by the caller. */
int layout_index_merge(const struct publish_image *image, const char *text, char **ret,
                       struct error *err);

/* What stands there, by the texts of index.json and SHA256SUMS (NULL: there is none) and by whether
 * the file is there with its length ('whole'). Sets job->verified of what is the same. */
int layout_look(struct publish_job *job, const char *index, const char *sums, bool whole,
                enum publish_found *ret, struct error *err);

/* How a backend reads and writes its index; *ret_text NULL: there is none. */
struct layout_index_io {
	int (*get)(struct publish_job *job, char **ret_text, char **ret_tag, struct error *err);
	/* Only in the place of what had this tag (NULL: of whatever stands there), as far as the
	 * server minds it; somebody else having been faster is no error. */
	int (*put)(struct publish_job *job, const char *text, const char *tag, struct error *err);
};
/* Puts the image into the index without a lock. EXIT_INPUT: meanwhile another publisher put other
 * content under this version. */
int layout_index_update(struct publish_job *job, const struct layout_index_io *io,
                        struct error *err);

#endif
