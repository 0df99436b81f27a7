/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRI-O and Docker have runtimes in files of their own (/etc/crio/crio.conf.d,
 * /etc/docker/daemon.json), which are not written: nvidia-ctk does it, by a script of the user's.
 * They are told by name, so that nobody takes their pods and containers for set up.
 */
#include <string.h>

#include "containerd-internal.h"

struct other {
	const char *name; /* for people */
	const char *program;
	const char *file;   /* that has its runtimes; a file that names ours is told of no more */
	const char *script; /* what sets it up */
};

static const struct other others[] = {
	{"CRI-O", "crio", "/etc/crio/crio.conf.d/99-nvidia.toml",
         "nvidia-ctk runtime configure --runtime=crio "
         "--drop-in-config=/etc/crio/crio.conf.d/99-nvidia.toml"},
	{"Docker", "dockerd", "/etc/docker/daemon.json",
         "nvidia-ctk runtime configure --runtime=docker"},
};
#define OTHERS (sizeof(others) / sizeof(others[0]))

/* Its program, or its file where that alone is there; NULL: neither. Owned by the caller. */
static char *find_other(const struct other *o, struct rootfs *root)
{
	char *program = containerd_find_program(root, o->program);

	return program || !rootfs_is_file(root, o->file) ? program : str_copy(o->file);
}

int containerd_none(struct rootfs *root, struct error *err)
{
	for (size_t i = 0; i < OTHERS; i++) {
		CLEANUP_FREE char *found = find_other(&others[i], root);

		if (!found)
			continue;
		error_set(err,
		          "the image has %s ('%s') and no containerd: the runtime "
		          "'" CONTAINERD_RUNTIME_NAME "' is set up for containerd only",
		          others[i].name, found);
		error_hint(err, "leave --containerd-runtime out, and run '%s' by a script (--run)",
		           others[i].script);
		return error_code(err, EXIT_INPUT);
	}
	error_set(err, "the image has no containerd to give the runtime '" CONTAINERD_RUNTIME_NAME
	               "' to");
	error_hint(err,
	           "install containerd in the base (k0s, k3s and RKE2 are known too), or leave "
	           "--containerd-runtime out");
	return error_code(err, EXIT_INPUT);
}

static bool names_runtime(struct rootfs *root, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *text = NULL;

	return containerd_read_text(&text, root, path, &ignored) == 0 && text &&
	       strstr(text, CONTAINERD_RUNTIME_PROGRAM);
}

void containerd_note_others(struct strv *ret, struct rootfs *root)
{
	for (size_t i = 0; i < OTHERS; i++) {
		CLEANUP_FREE char *found = find_other(&others[i], root);

		if (found && !names_runtime(root, others[i].file))
			strv_addf(ret,
			          "%s ('%s') is not set up, containerd alone is: '%s' by a script "
			          "(--run) does it",
			          others[i].name, found, others[i].script);
	}
}
