/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k0s: a containerd inside of one program. It merges files of /etc/k0s/containerd.d into its own
 * CRI section since 1.27.1 (docs.k0sproject.io/stable/runtime), and since 1.36 imports them; in the
 * schema of the containerd that it is built with, which Go records in the program.
 */
#include <string.h>

#include "containerd-config-internal.h"
#include "containerd-internal.h"

#define K0S_DROPIN     CONTAINERD_K0S_DIR "/" CONTAINERD_DROPIN_NAME
#define HINT_BY_SCRIPT "write '" CONTAINERD_K0S_DIR "/nvidia.toml' by a script (--run)"

/* What its program tells of itself. */
struct k0s {
	int v[3];   /* its release; 0: it cannot be told */
	int schema; /* the version of it; 0: it cannot be told */
};

static bool is_from(const int v[3], int minor, int patch)
{
	return v[0] > 1 || (v[0] == 1 && (v[1] > minor || (v[1] == minor && v[2] >= patch)));
}

/* A module more may be another library's wish: containerd 2 came with 1.36. */
static int k0s_schema(const struct containerd_bytes *bytes, const int v[3])
{
	bool one = containerd_bytes_have(bytes, "\tgithub.com/containerd/containerd\tv1.");
	bool two = containerd_bytes_have(bytes, "\tgithub.com/containerd/containerd/v2\tv2.");

	if (one && two)
		return v[0] ? is_from(v, 36, 0) ? 3 : 2 : 0;
	return one ? 2 : two ? 3 : 0;
}

/* All 0 where the program is not there yet. Read anew for each check: a script may have put another
 * one there. */
static int k0s_read(struct k0s *ret, const struct containerd *c, struct rootfs *root,
                    struct error *err)
{
	CLEANUP_CONTAINERD_BYTES struct containerd_bytes bytes = {0};
	CLEANUP_FREE char *version = NULL;
	struct k0s k = {0};

	if (c->manager_program && containerd_bytes_read(&bytes, root, c->manager_program, err) < 0)
		return error_hint(err, HINT_BY_SCRIPT);
	version = containerd_version_before(&bytes, "+k0s.");
	if (version)
		containerd_version_numbers(version, k.v);
	k.schema = k0s_schema(&bytes, k.v);
	*ret = k;
	return 0;
}

/* Whether k0s takes the file for its own: by its first line. Before 1.30 it wrote an empty one in
 * front, which it does not take for its own any more since 1.36. */
static bool is_own(const char *text, const int v[3])
{
	static const char mark[] = "# k0s_managed=true";

	if (!is_from(v, 36, 0))
		text += strspn(text, "\r\n");
	return str_starts(text, mark) && strchr("\r\n", text[strlen(mark)]);
}

/* Drop-ins in the order of their names: each value for itself, the last one counts. */
static int k0s_dropins(struct containerd_files *ret, int version, const struct containerd *c,
                       struct rootfs *root, bool make_default, struct error *err)
{
	if (containerd_dropins_read(ret, root, CONTAINERD_K0S_DIR, CONTAINERD_DROPIN_NAME, err) < 0)
		return -1;
	ret->version = version;
	for (size_t i = 0; i < ret->count; i++) {
		struct containerd_file *file = &ret->items[i];

		if (file->version && file->version != version) {
			error_set(err, "'%s' is of version %d, and this k0s reads version %d",
			          file->path, file->version, version);
			return containerd_refuse(err, "write it in that version, or remove it");
		}
		file->version = version;
		if (strcmp(file->path, K0S_DROPIN) > 0 &&
		    containerd_dropin_check(file, c, make_default, err) < 0)
			return -1;
	}
	return 0;
}

int containerd_k0s_check(const struct containerd *c, struct rootfs *root, bool make_default,
                         struct error *err)
{
	CLEANUP_CONTAINERD_FILES struct containerd_files dropins = {0};
	CLEANUP_FREE char *text = NULL;
	struct k0s k;

	if (containerd_read_text(&text, root, c->config_path, err) < 0 ||
	    k0s_read(&k, c, root, err) < 0)
		return -1;
	if (text && !is_own(text, k.v)) {
		error_set(err,
		          "'%s' is not k0s's own any more, so that k0s merges no drop-in into it",
		          c->config_path);
		return containerd_refuse(
			err, "remove it, so that k0s writes it anew, or add the runtime to it "
			     "by hand");
	}
	if (!c->manager_program) {
		error_set(err,
		          "cannot tell which containerd k0s will bring: the image does not have "
		          "the program yet");
		return containerd_refuse(
			err, "put the k0s program into the image before, or " HINT_BY_SCRIPT);
	}
	if (!is_from(k.v, 27, 1)) {
		error_set(err, "'%s' is no k0s of 1.27.1 or later, which merges drop-ins",
		          c->manager_program);
		return containerd_refuse(err, "give the image a newer k0s");
	}
	if (k.schema)
		return k0s_dropins(&dropins, k.schema, c, root, make_default, err);
	error_set(err, "cannot tell which containerd '%s' brings", c->manager_program);
	return containerd_refuse(err, HINT_BY_SCRIPT);
}

static char *k0s_text(const struct containerd_setup *setup, int version, const struct strv *options)
{
	const char *key = containerd_plugin_key(version);
	CLEANUP_FREE char *binary = toml_quote(setup->containerd->runtime_binary);
	CLEANUP_FREE char *more = strv_join(options, "\n    ");

	return str_format(
		"# gpuimg: k0s merges this file into its own configuration of containerd.\n"
		"version = %d\n\n"
		"[plugins.\"%s\".containerd]\n%s"
		"  [plugins.\"%s\".containerd.runtimes." CONTAINERD_RUNTIME_NAME "]\n"
		"    runtime_type = \"" CONTAINERD_DEFAULT_RUNTIME_TYPE "\"\n"
		"  [plugins.\"%s\".containerd.runtimes." CONTAINERD_RUNTIME_NAME
		".options]\n    BinaryName = %s\n%s%s%s",
		version, key,
		setup->make_default ? "  default_runtime_name = \"" CONTAINERD_RUNTIME_NAME "\"\n"
				    : "",
		key, key, binary, *more ? "    " : "", more, *more ? "\n" : "");
}

int containerd_k0s_set_up(struct containerd_result *r, const struct containerd_setup *setup,
                          struct error *err)
{
	const struct containerd *c = setup->containerd;
	CLEANUP_CONTAINERD_FILES struct containerd_files dropins = {0};
	CLEANUP_CONTAINERD_LOOK struct containerd_look runc = {0};
	CLEANUP_FREE char *text = NULL;
	struct k0s k;

	if (k0s_read(&k, c, setup->root, err) < 0 ||
	    k0s_dropins(&dropins, k.schema, c, setup->root, setup->make_default, err) < 0)
		return -1;
	containerd_look_at(&runc, &dropins, 2, "runc"); /* k0s merges as 2.x does */
	text = k0s_text(setup, k.schema, &runc.options);
	if (rootfs_write(setup->root, K0S_DROPIN, text, strlen(text), 0644, err) < 0)
		return -1;
	r->by = str_copy("gpuimg");
	strv_add(&r->edited, K0S_DROPIN);
	strv_addf(&r->notes,
	          "'" K0S_DROPIN "' is in version %d, that of k0s's containerd, which cannot be "
	          "asked in the build",
	          k.schema);
	return containerd_add_digest(&r->files, setup->root, K0S_DROPIN, err);
}
