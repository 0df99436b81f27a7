/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index where no lock can be held: read, merged, written, and looked at again, since another
 * publisher may have written in between. Conditional writes are used where a server minds them, and
 * not relied on: of two S3 servers and nginx none does.
 */
#include "publish/layout.h"

#define TRIES_MAX 8
#define SETTLE_MS 700 /* longer than a reading and a writing of another publisher take */

int layout_index_look_again(const struct publish_job *job, const char *text,
                            enum layout_index_state *ret, struct error *err)
{
	if (layout_index_look(job->image, text, ret, err) < 0)
		return -1;
	if (*ret != INDEX_DIFFERENT || job->replace)
		return 0;
	error_set(err, "another publisher has just put version '%s' there with other content",
	          job->image->version);
	return error_code(err, EXIT_INPUT);
}

/* 1: it stands there; 0: it was written, or somebody was faster, so it has to be looked at again.
 */
static int try_once(struct publish_job *job, const struct layout_index_io *io, struct error *err)
{
	CLEANUP_FREE char *old = NULL;
	CLEANUP_FREE char *tag = NULL;
	CLEANUP_FREE char *text = NULL;
	enum layout_index_state state;

	if (io->get(job, &old, &tag, err) < 0 || layout_index_look_again(job, old, &state, err) < 0)
		return -1;
	if (state == INDEX_SAME)
		return 1;
	if (layout_index_merge(job->image, old, &text, err) < 0)
		return -1;
	return io->put(job, text, tag, err);
}

int layout_index_update(struct publish_job *job, const struct layout_index_io *io,
                        struct error *err)
{
	for (unsigned tries = 0; tries < TRIES_MAX; tries++) {
		int result = try_once(job, io, err);

		if (result != 0)
			return result < 0 ? -1 : 0;
		http_pause_ms(job->stop, SETTLE_MS + 30 * tries);
		if (publish_check_stop(job, err) < 0)
			return -1;
	}
	error_set(err, "the index does not keep what is written to it: others write all the time");
	return error_code(err, EXIT_PUBLISH);
}
