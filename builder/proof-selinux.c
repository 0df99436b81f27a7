/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "proof-selinux.h"
#include "selinux-labels.h"

#define ID    "selinux.label"
#define LABEL "security.selinux"
#define RELABEL                                                                                    \
	"make the empty file " SELINUX_AUTORELABEL " in the image: then " SELINUX_RELABEL_COST

/* *ret stays NULL where it has none. */
static int read_label(char **ret, struct rootfs *root, const char *path, struct error *err)
{
	struct rootfs_xattr *xattrs = NULL;
	size_t count = 0;

	if (root->ops->xattrs(root, path, &xattrs, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count && !*ret; i++)
		if (str_equal(xattrs[i].name, LABEL))
			*ret = mem_copy(xattrs[i].value,
			                xattrs[i].size); /* with a NUL or without */
	rootfs_xattrs_free(xattrs, count);
	return 0;
}

/* "system_u:object_r:etc_t:s0": the third field, up to the next ':'. NULL: it has none. */
static char *type_of(const char *label)
{
	const char *role = strchr(label, ':');
	const char *type = role ? strchr(role + 1, ':') : NULL;

	return type ? mem_copy(type + 1, strcspn(type + 1, ":")) : NULL;
}

/* As restorecon(8) compares: user and role are those of who made the file. */
static bool same_type(const char *a, const char *b)
{
	CLEANUP_FREE char *x = type_of(a);
	CLEANUP_FREE char *y = type_of(b);

	return x && y && str_equal(x, y);
}

static int prove_path(struct findings *f, struct rootfs *root, struct selinux_labels *labels,
                      const char *path, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	CLEANUP_FREE char *want = NULL;
	CLEANUP_FREE char *has = NULL;
	CLEANUP_FREE char *shown = NULL;
	struct rootfs_stat st;
	int found = rootfs_resolve(root, path, false, &real, err);

	if (found == 1)
		found = root->ops->lstat(root, real, &st, err);
	if (found != 1)
		return found; /* that it is missing is told by the point that wants it */
	if (selinux_labels_find(&want, labels, real, st.mode, err) < 0 ||
	    read_label(&has, root, real, err) < 0)
		return -1;
	shown = has ? str_printable(has, 200) : NULL;
	if (!want)
		finding_ok(f, ID, "'%s': the policy gives it no label", path);
	else if (!has)
		finding_bad(f, ID, RELABEL, "'%s': has no SELinux label, the policy wants '%s'",
		            path, want);
	else if (!same_type(has, want))
		finding_bad(f, ID, RELABEL,
		            "'%s': has the SELinux label '%s', the policy wants '%s'", path, shown,
		            want);
	else
		finding_ok(f, ID, "'%s': has the SELinux label '%s'", path, shown);
	return 0;
}

static int prove_paths(struct findings *f, struct rootfs *root, struct selinux_labels *labels,
                       const struct strv *paths, struct error *err)
{
	if (!root->ops->xattrs) {
		finding_note(f, ID, "labels cannot be read here (%s)", root->ops->name);
		return 0;
	}
	for (size_t i = 0; i < paths->count; i++)
		if (prove_path(f, root, labels, paths->items[i], err) < 0)
			return -1;
	return 0;
}

int proof_selinux(struct findings *f, struct rootfs *root, const struct strv *paths,
                  const char *scratch, struct error *err)
{
	CLEANUP_SELINUX_LABELS struct selinux_labels *labels = NULL;
	CLEANUP_ERROR struct error unreadable = ERROR_INIT;
	enum selinux_mode mode;
	int known = selinux_read_mode(&mode, root, &unreadable);

	if (known == 0 && (mode == SELINUX_NONE || mode == SELINUX_DISABLED)) {
		finding_ok(f, ID, "SELinux is not in use: files need no labels");
		return 0;
	}
	if (rootfs_exists(root, SELINUX_AUTORELABEL)) {
		finding_note(f, ID, "'%s' is there: %s", SELINUX_AUTORELABEL, SELINUX_RELABEL_COST);
		return 0;
	}
	if (known < 0 || selinux_labels_open(&labels, root, scratch, &unreadable) < 0) {
		finding_bad(f, ID, RELABEL, "%s, and no file can be compared with it",
		            unreadable.message);
		return 0;
	}
	return prove_paths(f, root, labels, paths, err);
}
