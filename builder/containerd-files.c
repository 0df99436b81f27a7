/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What containerd loads: the main file, then what it imports, then what those import, each once
 * (LoadConfig in containerd's server/config).
 */
#include <string.h>

#include "containerd-config-internal.h"

#define MAX_TOTAL_BYTES (8UL * 1024 * 1024)

struct reading {
	struct containerd_files *files;
	struct rootfs *root;
	char *pending[CONTAINERD_MAX_FILES * 4];
	size_t count;
	size_t total_bytes;
	struct error *err;
};

static const char *const cri_names[] = {"cri",
                                        "io.containerd.grpc.v1.cri",
                                        "io.containerd.cri.v1.runtime",
                                        "io.containerd.cri.v1.images",
                                        "io.containerd.podsandbox.controller.v1.podsandbox",
                                        NULL};

const char *const *containerd_cri_names(void)
{
	return cri_names;
}

bool containerd_is_cri_name(const char *plugin)
{
	for (const char *const *name = cri_names; *name; name++)
		if (strcmp(plugin, *name) == 0)
			return true;
	return false;
}

const char *containerd_plugin_key(int version)
{
	return version <= 1 ? "cri" : cri_names[version == 2 ? 1 : 2];
}

static int refuse(struct reading *r, const char *path, const char *why)
{
	error_set(r->err, "cannot read containerd's configuration '%s': %s", path, why);
	return error_code(r->err, EXIT_INPUT);
}

static struct containerd_file *find_file(struct containerd_files *files, const char *path)
{
	for (size_t i = 0; i < files->count; i++)
		if (strcmp(files->items[i].path, path) == 0)
			return &files->items[i];
	return NULL;
}

static void free_file(struct containerd_file *file)
{
	toml_free(file->toml);
	free(file->path);
	free(file->real_path);
	free(file->text);
}

static int read_version(struct containerd_file *file, struct reading *r)
{
	const struct toml_node *node = toml_child(&file->toml->root, "version");
	CLEANUP_FREE char *shown = node ? toml_show(node) : NULL;
	uint64_t version = 0;

	if (!node)
		return 0;
	if (node->type != TOML_INTEGER || str_parse_uint(shown, 100, &version) < 0) {
		error_set(r->err, "'%s': line %d: version = %s is none that containerd has",
		          file->path, node->line, shown);
		return error_code(r->err, EXIT_INPUT);
	}
	file->version = (int)version;
	return 0;
}

static int read_file(struct containerd_file *file, struct reading *r)
{
	CLEANUP_FREE char *name = str_format("'%s'", file->path);
	struct rootfs_stat st = {0};
	size_t size = 0;
	void *text = NULL;
	int found = rootfs_stat(r->root, file->path, &st, r->err);

	if (found > 0 && !S_ISREG(st.mode))
		return refuse(r, file->path, "it is no regular file");
	if (found < 0 || rootfs_resolve_new(r->root, file->path, &file->real_path, r->err) < 0 ||
	    rootfs_read(r->root, file->path, TOML_MAX_BYTES, &text, &size, r->err) < 0) {
		error_prefix(r->err, "cannot read containerd's configuration");
		return error_code(r->err, EXIT_INPUT);
	}
	file->text = text;
	r->total_bytes += size;
	if (strlen(file->text) != size)
		return refuse(r, file->path, "it has a NUL in it");
	if (r->total_bytes > MAX_TOTAL_BYTES)
		return refuse(r, file->path, "it and the files before it are too large");
	if (toml_parse(&file->toml, file->text, name, r->err) < 0)
		return error_prefix(r->err, "cannot read containerd's configuration");
	return read_version(file, r);
}

static int add_pending(struct reading *r, const char *path)
{
	if (r->count == sizeof(r->pending) / sizeof(r->pending[0]))
		return refuse(r, path, "too many imports");
	r->pending[r->count++] = str_copy(path);
	return 0;
}

static int add_matches(struct reading *r, const char *pattern)
{
	CLEANUP_STRV struct strv found = {0};

	if (containerd_glob(&found, r->root, pattern, r->err) < 0)
		return -1;
	for (size_t i = 0; i < found.count; i++)
		if (add_pending(r, found.items[i]) < 0)
			return -1;
	return 0;
}

static int add_import(struct reading *r, const struct containerd_file *from, const char *import)
{
	CLEANUP_FREE char *dir = containerd_dir_of(from->path);
	CLEANUP_FREE char *path = containerd_clean_path(dir, import);
	CLEANUP_FREE char *old = NULL;
	enum containerd_globs globs = r->files->globs;

	if (!containerd_is_pattern(import))
		return add_pending(r, path);
	if (*import == '/')
		return add_matches(r, path);
	old = containerd_clean_path("/", import);
	if (globs != CONTAINERD_GLOBS_FROM_FILE && add_matches(r, old) < 0)
		return -1;
	return globs != CONTAINERD_GLOBS_FROM_ROOT ? add_matches(r, path) : 0;
}

static int add_imports(struct reading *r, const struct containerd_file *from)
{
	const struct toml_node *imports = toml_child(&from->toml->root, "imports");

	for (size_t i = 0; imports && i < imports->count; i++) {
		const struct toml_node *item = &imports->children[i];

		if (item->type != TOML_STRING)
			return refuse(r, from->path, "its imports are no list of strings");
		if (add_import(r, from, item->text) < 0)
			return -1;
	}
	if (imports && imports->type != TOML_ARRAY)
		return refuse(r, from->path, "its imports are no list of strings");
	return 0;
}

/* 1 or 0; -1: a link that leads nowhere, and the like. */
static int is_there(struct reading *r, const char *path)
{
	struct rootfs_stat st;
	int there = rootfs_stat(r->root, path, &st, r->err);

	if (there < 0) {
		error_prefix(r->err, "cannot read containerd's configuration");
		return error_code(r->err, EXIT_INPUT);
	}
	return there;
}

/* The next file that is waiting. */
static int load(struct reading *r, const char *path)
{
	struct containerd_files *files = r->files;
	struct containerd_file *file;
	int there;

	if (find_file(files, path))
		return 0;
	if (files->count == CONTAINERD_MAX_FILES)
		return refuse(r, path, "too many files are imported");
	there = is_there(r, path);
	if (there < 0)
		return -1;
	if (!there) {
		refuse(r, path, "it is imported, but missing");
		return error_hint(r->err,
		                  "containerd does not start then; take it out of 'imports', "
		                  "or put the file there");
	}
	files->items = mem_grow(files->items, files->count + 1, sizeof(*files->items));
	file = &files->items[files->count++];
	*file = (struct containerd_file){.path = str_copy(path)};
	if (read_file(file, r) < 0)
		return -1;
	return add_imports(r, file);
}

static int load_all(struct reading *r, const char *main_path)
{
	int rc = add_pending(r, main_path);

	for (size_t i = 0; rc == 0 && i < r->count; i++)
		rc = load(r, r->pending[i]);
	for (size_t i = 0; i < r->count; i++)
		free(r->pending[i]);
	return rc;
}

static int find_dormant(struct reading *r, const char *main_path)
{
	CLEANUP_FREE char *dir = containerd_dropin_dir(main_path);
	CLEANUP_FREE char *pattern = str_format("%s/*.toml", dir);
	CLEANUP_FREE char *own = str_format("%s/%s", dir, CONTAINERD_DROPIN_NAME);
	CLEANUP_STRV struct strv found = {0};

	if (containerd_glob(&found, r->root, pattern, r->err) < 0)
		return -1;
	for (size_t i = 0; i < found.count; i++)
		if (!find_file(r->files, found.items[i]) && strcmp(found.items[i], own) != 0)
			strv_add(&r->files->dormant, found.items[i]);
	return 0;
}

static void take_main(struct containerd_files *files)
{
	const struct containerd_file *file = &files->items[0];
	const struct toml_node *imports = toml_child(&file->toml->root, "imports");

	files->version = file->version ? file->version : 1;
	for (size_t i = 0; imports && i < imports->count; i++)
		strv_add(&files->imports, imports->children[i].text);
}

int containerd_files_read(struct containerd_files *ret, struct rootfs *root, const char *main_path,
                          struct error *err)
{
	CLEANUP_CONTAINERD_FILES struct containerd_files files = {.main_path = str_copy(main_path),
	                                                          .globs = ret->globs};
	struct reading r = {.files = &files, .root = root, .err = err};
	int there = is_there(&r, main_path);

	if (there < 0)
		return -1;
	files.main_exists = there;
	if (files.main_exists && load_all(&r, main_path) < 0)
		return -1;
	if (find_dormant(&r, main_path) < 0)
		return -1;
	if (files.main_exists)
		take_main(&files);
	*ret = files;
	files = (struct containerd_files){0};
	return 0;
}

void containerd_files_free(struct containerd_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		free_file(&files->items[i]);
	free(files->items);
	free(files->main_path);
	strv_free(&files->imports);
	strv_free(&files->dormant);
	*files = (struct containerd_files){0};
}

bool containerd_disables_cri(const struct toml *toml)
{
	const struct toml_node *list = toml_child(&toml->root, "disabled_plugins");

	for (size_t i = 0; list && i < list->count; i++)
		if (list->children[i].type == TOML_STRING &&
		    containerd_is_cri_name(list->children[i].text))
			return true;
	return false;
}

bool containerd_cri_disabled(const struct containerd_files *files)
{
	for (size_t i = 0; i < files->count; i++)
		if (containerd_disables_cri(files->items[i].toml))
			return true;
	return false;
}
