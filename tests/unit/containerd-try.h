/* SPDX-License-Identifier: Apache-2.0 */
/* A root that is a table in memory, its containerd found and set up; the releases that tests mean.
 */
#ifndef GPUIMG_TESTS_CONTAINERD_TRY_H
#define GPUIMG_TESTS_CONTAINERD_TRY_H

#include "builder/containerd-internal.h"
#include "fake-writable.h"
#include "tap.h"

#define V2 "plugins.\"io.containerd.grpc.v1.cri\".containerd"

struct found {
	struct containerd c;
	struct error err;
	int result;
};

static inline void found_free(struct found *f)
{
	containerd_free(&f->c);
	error_free(&f->err);
}
#define CLEANUP_FOUND CLEANUP(found_free)

static inline struct found look(struct fake_writable *w, const char *packages)
{
	struct found f = {.err = ERROR_INIT};
	CLEANUP_STRV struct strv list = strv_split(packages, " ");

	f.result = containerd_find(&f.c, &w->base, &list, true, NULL, &f.err);
	return f;
}

struct tried {
	struct found found;
	struct containerd_result result;
	struct error err;
	int code;
};

static inline void tried_free(struct tried *t)
{
	found_free(&t->found);
	containerd_result_free(&t->result);
	error_free(&t->err);
}
#define CLEANUP_TRIED CLEANUP(tried_free)

static inline struct tried try_with(struct fake_writable *w, const char *packages,
                                    bool make_default)
{
	struct tried t = {.err = ERROR_INIT, .code = -1};
	struct containerd_setup setup = {.root = &w->base, .make_default = make_default};

	t.found = look(w, packages);
	setup.containerd = &t.found.c;
	if (t.found.result == 1)
		t.code = containerd_set_up(&t.result, &setup, &t.err);
	if (t.code < 0)
		printf("# %s\n", t.err.message ? t.err.message : "not found");
	return t;
}

static inline struct tried try(struct fake_writable *w, bool make_default)
{
	return try_with(w, "containerd=1.7.24 nvidia-container-toolkit=1.20.0-1", make_default);
}

static inline bool is_refused(const struct tried *t, const char *part)
{
	return t->code < 0 && t->err.code == EXIT_INPUT && t->err.hint &&
	       strstr(t->err.message, part);
}

#endif
