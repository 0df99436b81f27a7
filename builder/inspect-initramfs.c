/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every initramfs that something boots, judged by what the booted system would do with it, since
 * nobody says what file a foreign image should hold.
 */
#include "inspect-internal.h"
#include "json-text.h"
#include "proof.h"

struct look {
	const struct findings *findings;
	json_t *list;
};

/* What the points since 'first' say of the block: true, false, or null where it was not come to. */
static json_t *is_blocked(const struct findings *f, size_t first)
{
	bool known = false;

	for (size_t i = first; i < f->count; i++) {
		if (!str_starts(f->items[i].id, "modules."))
			continue;
		known = true;
		if (f->items[i].verdict == FINDING_BAD)
			return json_false();
	}
	return known ? json_true() : json_null();
}

static void list_it(void *opaque, const char *version, const char *file, size_t first)
{
	struct look *l = opaque;

	json_array_append_new(l->list,
	                      json_pack("{s:o, s:o, s:o}", "kernel", json_text(version), "file",
	                                json_text(file), "blocks", is_blocked(l->findings, first)));
}

int inspect_initramfs(struct inspect *in, const struct strv *blocked, struct error *err)
{
	struct look l = {.findings = &in->findings, .list = json_array()};
	CLEANUP_FREE char *scratch = NULL;
	const struct strv none = {0};

	json_object_set_new(in->facts, "initramfs", l.list);
	scratch = inspect_scratch(in, "initramfs", err);
	if (!scratch)
		return -1;
	const struct proof_all_initramfs all = {
		.like = {.root = in->root,
	                 .guest = in->guest,
	                 .block_paths = &none,
	                 .blocked = blocked,
	                 .scratch = scratch,
	                 .inspect = true},
		.chain = &in->chain,
		.judged = list_it,
		.opaque = &l,
	};

	return proof_every_initramfs(&in->findings, &all, err);
}
