/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all nodes of one image would share though each should have its own: machine-id, host keys;
 * and licence tokens, which are credentials and belong on no image at all.
 */
#include <string.h>
#include <sys/stat.h>

#include "inspect-internal.h"
#include "json-text.h"
#include "selinux-labels.h"

#define MACHINE_ID        "/etc/machine-id"
#define DBUS_MACHINE_ID   "/var/lib/dbus/machine-id"
#define SEARCH_DEPTH_MAX  8
#define SEARCH_FILES_MAX  20000 /* looked at, in all places together */
#define IDENTITY_FILE_MAX 4096

struct search {
	struct inspect *in;
	struct strv found;
	size_t looked_at;
	bool cut; /* a bound was met */
};

/* "set", "uninitialized", "empty", "link", "missing" or "unreadable". */
static const char *machine_id_state(struct inspect *in, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *text = NULL;
	struct rootfs_stat st;
	int there = rootfs_lstat(in->root, path, &st, &ignored);

	if (there <= 0)
		return there < 0 ? "unreadable" : "missing";
	if (S_ISLNK(st.mode))
		return "link";
	text = inspect_read(in, path, IDENTITY_FILE_MAX);
	if (!text)
		return "unreadable";
	if (strcmp(str_trim(text), "uninitialized") == 0)
		return "uninitialized";
	return *str_trim(text) ? "set" : "empty";
}

static void tell(struct inspect *in, bool sealed, const char *id, const char *what)
{
	finding_lack(&in->findings, sealed, id, NULL, "%s", what);
}

static void judge_machine_id(struct inspect *in, bool sealed, const char *state, const char *dbus)
{
	if (strcmp(state, "set") == 0)
		tell(in, sealed, "identity.machine-id",
		     "'" MACHINE_ID
		     "' is set: all nodes of this image get one id, and one DHCP lease");
	else if (strcmp(dbus, "set") == 0)
		tell(in, sealed, "identity.machine-id",
		     "'" DBUS_MACHINE_ID
		     "' is set, and becomes the machine-id of all nodes of this "
		     "image");
	else
		finding_ok(&in->findings, "identity.machine-id",
		           "'" MACHINE_ID "' is %s: each node "
		           "gets an id of its own",
		           state);
}

static void find_host_keys(struct inspect *in, struct strv *ret)
{
	CLEANUP_STRV struct strv names = inspect_list(in, "/etc/ssh");

	for (size_t i = 0; i < names.count; i++)
		if (str_starts(names.items[i], "ssh_host_") && str_ends(names.items[i], "_key"))
			strv_addf(ret, "/etc/ssh/%s", names.items[i]);
}

static void search(struct search *s, const char *dir, int depth)
{
	CLEANUP_STRV struct strv names = inspect_list(s->in, dir);

	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names.items[i]);
		struct rootfs_stat st;

		if (++s->looked_at > SEARCH_FILES_MAX) {
			s->cut = true;
			return;
		}
		if (rootfs_lstat(s->in->root, path, &st, &ignored) != 1)
			continue;
		if (S_ISREG(st.mode) && str_ends(path, ".tok"))
			strv_add(&s->found, path);
		else if (S_ISDIR(st.mode) && depth >= SEARCH_DEPTH_MAX)
			s->cut = true;
		else if (S_ISDIR(st.mode))
			search(s, path, depth + 1);
	}
}

/* Where the licence client looks, where people put files down; the likeliest first. */
static void find_tokens(struct inspect *in, struct strv *ret)
{
	static const char *const dirs[] = {"/etc/nvidia", "/root", "/home", "/tmp",
	                                   "/var/tmp",    "/etc",  "/opt",  "/srv"};
	struct search s = {.in = in};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && !s.cut; i++)
		search(&s, dirs[i], 1);
	for (size_t i = 0; i < s.found.count; i++)
		if (!strv_has(ret, s.found.items[i]))
			strv_add(ret, s.found.items[i]);
	strv_free(&s.found);
	if (s.cut)
		finding_note(&in->findings, "inspect.search",
		             "not every directory was searched for licence tokens: too many files");
	for (size_t i = 0; i < ret->count; i++)
		finding_bad(
			&in->findings, "identity.token", NULL,
			"'%s' is a licence token: whoever has the image can draw licences with it",
			ret->items[i]);
}

void inspect_identity(struct inspect *in, bool sealed)
{
	const char *state = machine_id_state(in, MACHINE_ID);
	const char *dbus = machine_id_state(in, DBUS_MACHINE_ID);
	CLEANUP_STRV struct strv keys = {0};
	CLEANUP_STRV struct strv tokens = {0};

	judge_machine_id(in, sealed, state, dbus);
	find_host_keys(in, &keys);
	if (keys.count) {
		CLEANUP_FREE char *what = str_format(
			"SSH host keys ('%s'%s) are on the image: all nodes would have the same",
			keys.items[0], keys.count > 1 ? "…" : "");

		tell(in, sealed, "identity.host-keys", what);
	} else {
		finding_ok(&in->findings, "identity.host-keys",
		           "no SSH host keys are on the image");
	}
	find_tokens(in, &tokens);
	json_object_set_new(in->facts, "identity",
	                    json_pack("{s:s, s:s, s:o, s:o}", "machine_id", state,
	                              "dbus_machine_id", dbus, "ssh_host_keys",
	                              json_text_list(&keys), "licence_tokens",
	                              json_text_list(&tokens)));
}

void inspect_selinux(struct inspect *in)
{
	static const char *const names[] = {
		[SELINUX_NONE] = "none",
		[SELINUX_DISABLED] = "disabled",
		[SELINUX_PERMISSIVE] = "permissive",
		[SELINUX_ENFORCING] = "enforcing",
	};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	enum selinux_mode mode = SELINUX_NONE;

	if (selinux_read_mode(&mode, in->root, &err) < 0) {
		finding_note(&in->findings, "inspect.unread", "%s", err.message);
		json_object_set_new(in->facts, "selinux", json_null());
		return;
	}
	json_object_set_new(in->facts, "selinux", json_string(names[mode]));
}
