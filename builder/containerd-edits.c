/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which file gets what. Where the runtime is there already, it is mended where it stands. Else
 * containerd 1.x gets it in the file whose CRI section wins, since a drop-in would replace that
 * section; 2.x gets a drop-in, since it merges.
 */
#include <fnmatch.h>
#include <string.h>

#include "containerd-config-internal.h"
#include "toml-edit.h"

struct plan {
	const struct containerd_files *files;
	const struct containerd_runtime *runtime;
	int major, minor;
	int version; /* of the main file, as it is or shall be */
	/* Those whose CRI sections count, in the order in which they are merged. */
	const struct containerd_file *scope[CONTAINERD_MAX_FILES];
	size_t scope_count;
	struct containerd_edits *edits; /* room for all of them */
	struct error *err;
};

static const char main_head[] =
	"# gpuimg: there was no configuration; all that is not said here is "
	"containerd's default.\n"
	"# Without this file containerd would read no drop-ins.\n"
	"# On a node: containerd config dump\n";
static const char dropin_head[] =
	"# gpuimg: the runtime that gives containers their GPUs.\n"
	"# The version is that of the file that imports this one: containerd takes no other well.\n"
	"# On a node: containerd config dump\n";

static int newest_version(int major, int minor)
{
	if (major < 2)
		return 2;
	return major == 2 && minor < 3 ? 3 : 4;
}

static int version_of(const struct plan *p, const struct containerd_file *file)
{
	return file->version ? file->version : p->version;
}

static const struct toml_node *cri_of(const struct plan *p, const struct containerd_file *file)
{
	return toml_find(&file->toml->root, "plugins", containerd_plugin_key(version_of(p, file)),
	                 NULL);
}

/* In 1.x the last CRI section replaces those before it. */
static void find_scope(struct plan *p)
{
	for (size_t i = 0; i < p->files->count; i++) {
		const struct containerd_file *file = &p->files->items[i];

		if (p->major < 2 && i > 0 && !cri_of(p, file))
			continue;
		if (p->major < 2)
			p->scope_count = 0;
		p->scope[p->scope_count++] = file;
	}
}

/* The last file that has this below "containerd" of its CRI section, or NULL. */
static const struct containerd_file *last_with(const struct plan *p, const struct strv *path,
                                               const struct toml_node **ret_node)
{
	for (size_t i = p->scope_count; i-- > 0;) {
		const struct toml_node *cri = cri_of(p, p->scope[i]), *node;

		node = cri ? toml_find(cri, "containerd", NULL) : NULL;
		node = toml_find_path(node, (const char *const *)path->items);
		if (!node)
			continue;
		if (ret_node)
			*ret_node = node;
		return p->scope[i];
	}
	return NULL;
}

/* Whether what is in effect is this already. */
static bool holds(const struct plan *p, const struct containerd_leaf *leaf)
{
	const struct toml_node *node = NULL;
	CLEANUP_FREE char *value = NULL;

	if (!last_with(p, &leaf->path, &node))
		return false;
	value = toml_show(node);
	return strcmp(value, leaf->value) == 0;
}

/* The edit of a file, begun with this text if there is none yet. */
static struct containerd_edit *edit_of(struct plan *p, const char *path, const char *text,
                                       bool is_new)
{
	struct containerd_edits *edits = p->edits;
	struct containerd_edit *edit;

	for (size_t i = 0; i < edits->count; i++)
		if (strcmp(edits->items[i].path, path) == 0)
			return &edits->items[i];
	edit = &edits->items[edits->count++];
	*edit = (struct containerd_edit){str_copy(path), str_copy(text), is_new};
	return edit;
}

static struct containerd_edit *edit_file(struct plan *p, const struct containerd_file *file)
{
	return edit_of(p, file->real_path, file->text, false);
}

static int set_leaf(struct plan *p, struct containerd_edit *edit, int version,
                    const struct containerd_leaf *leaf)
{
	CLEANUP_FREE char *name = str_format("'%s'", edit->path);
	CLEANUP_STRV struct strv path = {0};

	strv_add(&path, "plugins");
	strv_add(&path, containerd_plugin_key(version));
	strv_add(&path, "containerd");
	strv_add_all(&path, &leaf->path);
	if (toml_set(&edit->text, &path, leaf->value, name, p->err) < 0)
		return error_hint(p->err, "write that part of the file with [headers], or add the "
		                          "runtime by hand");
	return 0;
}

static int set_leaves(struct plan *p, struct containerd_edit *edit, int version,
                      const struct containerd_leaves *leaves)
{
	for (size_t i = 0; i < leaves->count; i++)
		if (set_leaf(p, edit, version, &leaves->items[i]) < 0)
			return -1;
	return 0;
}

/* It is there: what is not as it shall be is set in the last file that has it. */
static int mend(struct plan *p, const struct containerd_file *file,
                const struct containerd_leaves *leaves)
{
	bool changed = false;

	for (size_t i = 0; i < leaves->count; i++) {
		if (holds(p, &leaves->items[i]))
			continue;
		if (set_leaf(p, edit_file(p, file), version_of(p, file), &leaves->items[i]) < 0)
			return -1;
		changed = true;
	}
	if (changed)
		strv_addf(&p->edits->notes,
		          "the runtime '%s' in '%s' was not as it must be, and is now",
		          p->runtime->name, file->path);
	return 0;
}

static char *new_text(const char *head, int version)
{
	return str_format("%sversion = %d\n", head, version);
}

/*
 * In 1.x a file that names any runtime drops containerd's default one, so it must name that too.
 * From 1.7 on containerd shows how it is sandboxed.
 */
static int add_runc(struct plan *p, struct containerd_edit *edit, int version)
{
	CLEANUP_STRV struct strv runtimes = strv_split("runtimes", " ");
	CLEANUP_CONTAINERD_LEAVES struct containerd_leaves leaves = {0};

	if (last_with(p, &runtimes, NULL))
		return 0;
	if (containerd_wanted(&leaves, p->runtime, true, p->err) < 0)
		return -1;
	if (p->minor >= 7)
		containerd_leaves_add(&leaves, "\"podsandbox\"", "runtimes", "runc", "sandbox_mode",
		                      NULL);
	strv_addf(&p->edits->notes,
	          "'%s' names containerd's default runtime 'runc' too, which would be dropped else",
	          edit->path);
	return set_leaves(p, edit, version, &leaves);
}

static int add_in_place(struct plan *p, const struct containerd_leaves *leaves)
{
	const struct containerd_file *file = p->scope_count ? p->scope[0] : NULL;
	int version = file ? version_of(p, file) : p->version;
	CLEANUP_FREE char *text = new_text(main_head, version);
	struct containerd_edit *edit =
		file ? edit_file(p, file) : edit_of(p, p->files->main_path, text, true);

	if (add_runc(p, edit, version) < 0)
		return -1;
	strv_addf(&p->edits->notes, "the runtime '%s' was added to '%s'", p->runtime->name,
	          edit->path);
	return set_leaves(p, edit, version, leaves);
}

/* The directory of an import of the main file that would read our drop-in, or NULL. */
static char *imported_dir(const struct plan *p)
{
	CLEANUP_FREE char *main_dir = containerd_dir_of(p->files->main_path);

	for (size_t i = 0; i < p->files->imports.count; i++) {
		const char *import = p->files->imports.items[i];
		CLEANUP_FREE char *path = containerd_clean_path(main_dir, import);
		CLEANUP_FREE char *dir = containerd_dir_of(path);

		if (containerd_is_pattern(import) && !strpbrk(dir, "*?[\\") &&
		    fnmatch(strrchr(path, '/') + 1, CONTAINERD_DROPIN_NAME, 0) == 0)
			return STEAL(dir);
	}
	return NULL;
}

/* The main file imports what is in the directory, or only our own file, if others are asleep there.
 */
static int import_dir(struct plan *p, const char *dir)
{
	bool alone = p->files->dormant.count > 0;
	CLEANUP_FREE char *import =
		str_format("%s/%s", dir, alone ? CONTAINERD_DROPIN_NAME : "*.toml");
	CLEANUP_FREE char *text = new_text(main_head, p->version);
	CLEANUP_FREE char *value = toml_quote(import);
	CLEANUP_STRV struct strv path = strv_split("imports", " ");
	struct containerd_edit *edit = p->files->main_exists
	                                       ? edit_file(p, &p->files->items[0])
	                                       : edit_of(p, p->files->main_path, text, true);
	CLEANUP_FREE char *name = str_format("'%s'", edit->path);

	if (toml_add_item(&edit->text, &path, value, name, p->err) < 0)
		return -1;
	strv_addf(&p->edits->notes, "'%s' imports '%s' now", edit->path, import);
	if (alone)
		strv_addf(&p->edits->notes,
		          "'%s' and what else is in there is read by nothing, and was left so",
		          p->files->dormant.items[0]);
	return 0;
}

static int add_dropin(struct plan *p, const struct containerd_leaves *leaves)
{
	CLEANUP_FREE char *dir = imported_dir(p), *text = new_text(dropin_head, p->version);
	CLEANUP_FREE char *path = NULL;
	struct containerd_edit *edit;

	if (!dir) {
		dir = containerd_dropin_dir(p->files->main_path);
		if (import_dir(p, dir) < 0)
			return -1;
	}
	path = str_format("%s/%s", dir, CONTAINERD_DROPIN_NAME);
	edit = edit_of(p, path, text, true);
	strv_addf(&p->edits->notes, "the runtime '%s' was added in the drop-in '%s'",
	          p->runtime->name, path);
	return set_leaves(p, edit, p->version, leaves);
}

static int plan_runtime(struct plan *p)
{
	CLEANUP_CONTAINERD_LEAVES struct containerd_leaves leaves = {0};
	CLEANUP_STRV struct strv path = {0};
	const struct containerd_file *file;

	if (containerd_wanted(&leaves, p->runtime, false, p->err) < 0)
		return -1;
	strv_add(&path, "runtimes");
	strv_add(&path, p->runtime->name);
	file = last_with(p, &path, NULL);
	if (file)
		return mend(p, file, &leaves);
	return p->major < 2 ? add_in_place(p, &leaves) : add_dropin(p, &leaves);
}

/* Where a default is named already, there; else beside the runtime. */
static int plan_default(struct plan *p)
{
	CLEANUP_CONTAINERD_LEAVES struct containerd_leaves leaves = {0};
	CLEANUP_STRV struct strv path = {0};
	CLEANUP_FREE char *value = toml_quote(p->runtime->name);
	const struct containerd_file *file;
	struct containerd_edit *edit;

	containerd_leaves_add(&leaves, value, "default_runtime_name", NULL);
	if (holds(p, &leaves.items[0]))
		return 0;
	strv_add(&path, "runtimes");
	strv_add(&path, p->runtime->name);
	file = last_with(p, &leaves.items[0].path, NULL);
	if (!file)
		file = last_with(p, &path, NULL);
	if (!file && p->major < 2 && p->scope_count)
		file = p->scope[0];
	if (file)
		edit = edit_file(p, file);
	else /* the last one that was begun is the new file that has the runtime */
		edit = &p->edits->items[p->edits->count - 1];
	strv_addf(&p->edits->notes, "'%s' is the default runtime now", p->runtime->name);
	return set_leaf(p, edit, file ? version_of(p, file) : p->version, &leaves.items[0]);
}

static bool lists(const struct containerd_file *file, const char *plugin)
{
	const struct toml_node *list = toml_child(&file->toml->root, "disabled_plugins");

	for (size_t i = 0; list && i < list->count; i++)
		if (list->children[i].type == TOML_STRING &&
		    strcmp(list->children[i].text, plugin) == 0)
			return true;
	return false;
}

static int enable_in(struct plan *p, const struct containerd_file *file)
{
	CLEANUP_STRV struct strv path = strv_split("disabled_plugins", " ");

	for (const char *const *name = containerd_cri_names(); *name; name++) {
		CLEANUP_FREE char *shown = str_format("'%s'", file->path);

		if (!lists(file, *name))
			continue;
		if (toml_remove_item(&edit_file(p, file)->text, &path, *name, shown, p->err) < 0)
			return error_prefix(p->err, "cannot enable the CRI plugin again");
		strv_addf(
			&p->edits->notes,
			"the CRI plugin was disabled in '%s' (\"%s\" in disabled_plugins), and is "
			"not any more",
			file->path, *name);
	}
	return 0;
}

static int check_version(struct plan *p)
{
	int newest = newest_version(p->major, p->minor);

	p->version = p->files->main_exists ? p->files->version : newest;
	if (p->major >= 1 && p->version <= newest)
		return 0;
	if (p->major < 1)
		error_set(p->err, "cannot edit '%s': the version of containerd is not known",
		          p->files->main_path);
	else
		error_set(p->err, "'%s' says version = %d, which containerd %d.%d does not read",
		          p->files->main_path, p->version, p->major, p->minor);
	return error_code(p->err, EXIT_INPUT);
}

/* 2.0 to 2.2 take the highest version for all of them and lose what the others say; 2.3 does not
 * start. */
static void note_versions(struct plan *p)
{
	for (size_t i = 1; p->major >= 2 && i < p->files->count; i++) {
		const struct containerd_file *file = &p->files->items[i];

		if (file->version > p->version)
			strv_addf(
				&p->edits->notes,
				"'%s' has version %d, higher than the %d of the file that imports it, "
				"which containerd takes ill",
				file->path, file->version, p->version);
	}
}

static int plan_all(struct plan *p)
{
	if (check_version(p) < 0)
		return -1;
	find_scope(p);
	note_versions(p);
	for (size_t i = 0; i < p->files->count; i++)
		if (enable_in(p, &p->files->items[i]) < 0)
			return -1;
	if (plan_runtime(p) < 0)
		return -1;
	return p->runtime->make_default ? plan_default(p) : 0;
}

int containerd_plan_edits(struct containerd_edits *ret, const struct containerd_files *files,
                          int major, int minor, const struct containerd_runtime *runtime,
                          struct error *err)
{
	CLEANUP_CONTAINERD_EDITS struct containerd_edits edits = {0};
	struct plan p = {.files = files,
	                 .runtime = runtime,
	                 .major = major,
	                 .minor = minor,
	                 .edits = &edits,
	                 .err = err};

	/* each file, a main file and a drop-in */
	edits.items = mem_alloc((files->count + 2) * sizeof(*edits.items));
	if (plan_all(&p) < 0)
		return -1;
	*ret = edits;
	edits = (struct containerd_edits){0};
	return 0;
}

void containerd_edits_free(struct containerd_edits *edits)
{
	for (size_t i = 0; i < edits->count; i++) {
		free(edits->items[i].path);
		free(edits->items[i].text);
	}
	free(edits->items);
	strv_free(&edits->notes);
	*edits = (struct containerd_edits){0};
}
