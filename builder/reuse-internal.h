/* SPDX-License-Identifier: Apache-2.0 */
/* What reuse.c, reuse-keys.c and transaction.c share; nobody else includes this. */
#ifndef GPUIMG_REUSE_INTERNAL_H
#define GPUIMG_REUSE_INTERNAL_H

#include <pthread.h>

#include "build.h"

/* One result on its way to the cache. */
struct pending {
	struct cache_key *key;
	char *path; /* in the work directory; removed at the end */
	json_t *meta;
};

/* The package transaction that is being made, until it is kept: see transaction.c. */
struct reuse_transaction {
	struct cache_key *key; /* NULL: there is nothing to keep */
	struct strv before;
};

struct reuse {
	bool usable; /* the changes are known, so an initramfs has a key */
	char *changes;
	struct reuse_transaction transaction;
	struct pending *items;
	size_t count;
	pthread_t thread;
	bool running;
};

/* The build's own, made when it is first asked for. */
struct reuse *reuse_of(struct build *b);
/* Takes over what 'p' holds, for the time after the proof. */
void reuse_add_pending(struct build *b, struct pending *p);
void reuse_pending_free(struct pending *p);
void reuse_transaction_free(struct reuse_transaction *t);

/* reuse-keys.c */
/* What shapes the guest's programs beside their own files. */
int reuse_add_sandbox(struct cache_key *key, const struct build *b, struct error *err);
/* All that the content of an image depends on, the base and what the user asks for. */
int reuse_add_inputs(struct cache_key *key, const struct build *b, struct error *err);
int reuse_image_key(struct cache_key **ret, const struct build *b, struct error *err);

#endif
