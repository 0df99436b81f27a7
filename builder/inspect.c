/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the points, and what all subjects use. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "inspect-internal.h"
#include "json-text.h"
#include "packages.h"
#include "proof.h"

char *inspect_read(struct inspect *in, const char *path, size_t max_bytes)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	void *text = NULL;

	if (!rootfs_is_file(in->root, path))
		return NULL;
	if (rootfs_read(in->root, path, max_bytes, &text, NULL, &err) == 0)
		return text;
	finding_note(&in->findings, "inspect.unread", "%s", err.message);
	return NULL;
}

struct strv inspect_list(struct inspect *in, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct strv names = {0};

	if (!rootfs_is_dir(in->root, path))
		return names;
	if (rootfs_list(in->root, path, &names, &err) < 0)
		finding_note(&in->findings, "inspect.unread", "%s", err.message);
	return names;
}

char *inspect_scratch(const struct inspect *in, const char *name, struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/inspect-%s", in->work_dir, name);

	if (mkdir(path, 0700) < 0) {
		error_errno(err, errno, "cannot make the directory '%s'", path);
		return NULL;
	}
	return STEAL(path);
}

static json_t *wanted_json(const struct inspect_want *want)
{
	return json_pack("{s:o, s:o, s:o, s:b, s:b}", "profile", json_text(want->profile),
	                 "parameters", json_text_list(want->params), "modules",
	                 json_text_list(want->blocked), "module_blacklist", want->module_blacklist,
	                 "sealed", want->sealed);
}

int inspect_run(struct inspect *in, const struct inspect_want *want, struct error *err)
{
	CLEANUP_STRV struct strv blocked = {0};

	in->facts = json_object();
	json_object_set_new(in->facts, "wanted", wanted_json(want));
	inspect_layout(in);
	inspect_secure_boot(in);
	if (inspect_kernels(in, want, &blocked, err) < 0 ||
	    inspect_initramfs(in, &blocked, err) < 0 ||
	    inspect_entries(in, want, &blocked, err) < 0 ||
	    proof_leaks(&in->findings, in->root, NULL, err) < 0)
		return -1;
	if (inspect_driver(in, want, err) < 0)
		return -1;
	inspect_containerd(in, want);
	inspect_cloud_init(in);
	inspect_identity(in, want->sealed);
	inspect_selinux(in);
	inspect_set_cures(&in->findings);
	return 0;
}

void inspect_free(struct inspect *in)
{
	findings_free(&in->findings);
	json_decref(in->facts);
	in->facts = NULL;
}
