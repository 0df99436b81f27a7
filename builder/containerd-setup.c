/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives containerd the runtime "nvidia", and proves it: what containerd itself says of its
 * configuration before and after. All that is or may be touched is kept aside first, so that a
 * failure leaves nothing.
 */
#include <string.h>

#include "containerd-config-internal.h"
#include "containerd-internal.h"

#define CTK_TIMEOUT_MS 60000u
#define CTK_MAX_BYTES  (256UL * 1024)

/* One call of containerd_set_up(). */
struct job {
	const struct containerd_setup *setup;
	const struct containerd *c;
	struct rootfs *root;
	struct containerd_files files; /* as they were */
	struct containerd_dump before;
	struct strv options; /* of runc in effect */
	struct containerd_runtime runtime;
	struct containerd_edits edits;
	bool raised; /* see raise_version() */
	struct containerd_snapshot snapshot;
	char *dump; /* after */
};

static void job_free(struct job *j)
{
	containerd_files_free(&j->files);
	containerd_dump_free(&j->before);
	strv_free(&j->options);
	containerd_edits_free(&j->edits);
	containerd_snapshot_free(&j->snapshot);
	free(j->dump);
}

/* --- Before --- */

/* 1.6 takes a file of version 3 without a word, and ignores what it says of the CRI plugin. */
static int check_schema(const struct job *j, struct error *err)
{
	if (j->c->major != 1 || j->files.version <= 2)
		return 0;
	error_set(err, "'%s' is of version %d, and containerd %s knows no version above 2",
	          j->files.main_path, j->files.version, j->c->version);
	error_hint(err, "write it in version 2, or give the image containerd 2");
	return error_code(err, EXIT_INPUT);
}

/*
 * 2.x loads a file without a version, but does not bring what such a file says of the CRI plugin
 * into its own schema: it is ignored. Where there is nothing of that, the file gets a version that
 * is not ignored.
 */
static int raise_version(struct job *j, struct error *err)
{
	struct containerd_file *main_file = j->files.count ? &j->files.items[0] : NULL;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *name = NULL;
	struct toml *toml = NULL;

	if (j->c->major < 2 || !main_file || main_file->version > 1)
		return 0;
	if (main_file->version == 1 || toml_find(&main_file->toml->root, "plugins", NULL)) {
		error_set(err,
		          "'%s' is of version 1, and containerd %s ignores what it says of plugins",
		          j->files.main_path, j->c->version);
		error_hint(err, "write it in version 2 or 3 ('containerd config migrate')");
		return error_code(err, EXIT_INPUT);
	}
	text = str_format("version = 2\n%s", main_file->text);
	name = str_format("'%s'", main_file->path);
	if (toml_parse(&toml, text, name, err) < 0)
		return -1;
	toml_free(main_file->toml);
	main_file->toml = toml;
	free(main_file->text);
	main_file->text = STEAL(text);
	main_file->version = j->files.version = 2;
	j->raised = true;
	return 0;
}

/* The raised version goes with the edits of the main file, if there are any. */
static void add_raised(struct job *j)
{
	struct containerd_edits *edits = &j->edits;
	const struct containerd_file *main_file = &j->files.items[0];
	bool edited = false;

	if (!j->raised)
		return;
	for (size_t i = 0; i < edits->count; i++)
		edited = edited || strcmp(edits->items[i].path, main_file->real_path) == 0;
	strv_addf(
		&edits->notes,
		"'%s' says version = 2 now: without it containerd %s would take the file for one of "
		"version 1, and ignore what it says of plugins",
		main_file->path, j->c->version);
	if (edited)
		return;
	edits->items = mem_grow(edits->items, edits->count + 1, sizeof(*edits->items));
	edits->items[edits->count++] = (struct containerd_edit){
		.path = str_copy(main_file->real_path), .text = str_copy(main_file->text)};
}

static int read_before(struct job *j, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	bool disabled = containerd_cri_disabled(&j->files);

	if (check_schema(j, err) < 0)
		return -1;
	if ((disabled ? containerd_run_dump_with_cri(&text, j->root, j->c, &j->files, err)
	              : containerd_run_dump(&text, j->root, j->c, err)) < 0) {
		error_hint(err, "mend the configuration first: containerd would not start with it");
		return error_code(err, EXIT_INPUT);
	}
	if (containerd_dump_parse(&j->before, text, err) < 0)
		return error_prefix(err, "what the image's containerd says of '%s'",
		                    j->c->config_path);
	if (j->before.cri)
		j->options = containerd_dump_model(&j->before);
	return 0;
}

/* --- What may be touched --- */

/* A directory of its own, as /etc/containerd is and /etc is not. */
static bool is_own_dir(const char *dir)
{
	return *dir == '/' && strchr(dir + 1, '/');
}

static int add_place(struct job *j, const char *path, struct strv *places, struct error *err)
{
	CLEANUP_FREE char *real = NULL;

	if (rootfs_resolve_new(j->root, path, &real, err) < 0)
		return -1;
	if (!strv_has(places, real))
		strv_add(places, real);
	return 0;
}

/* A file that is to be made, and the first directory on its way that has to be. */
static int add_new(struct job *j, const char *path, struct strv *places, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	CLEANUP_FREE char *missing = NULL;

	if (rootfs_resolve_new(j->root, path, &real, err) < 0)
		return -1;
	for (char *slash = strrchr(real, '/'); slash > real; slash = strrchr(real, '/')) {
		*slash = '\0';
		if (rootfs_exists(j->root, real))
			break;
		free(missing);
		missing = str_copy(real);
	}
	if (missing && !strv_has(places, missing))
		strv_add(places, missing);
	return add_place(j, path, places, err);
}

/* Where nvidia-ctk writes what it likes: a configuration is small. */
static int add_usual_dir(struct job *j, struct strv *places, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	CLEANUP_FREE char *dir = NULL;

	if (rootfs_resolve_new(j->root, CONTAINERD_MAIN_PATH, &real, err) < 0)
		return -1;
	dir = containerd_dir_of(real);
	if (is_own_dir(dir))
		strv_add(places, dir);
	return add_place(j, CONTAINERD_MAIN_PATH, places, err);
}

static int take_snapshot(struct job *j, struct error *err)
{
	CLEANUP_STRV struct strv places = {0};

	if (add_usual_dir(j, &places, err) < 0 || add_new(j, j->c->config_path, &places, err) < 0)
		return -1;
	for (size_t i = 0; i < j->files.count; i++)
		if (add_place(j, j->files.items[i].path, &places, err) < 0)
			return -1;
	for (size_t i = 0; i < j->edits.count; i++)
		if (add_new(j, j->edits.items[i].path, &places, err) < 0)
			return -1;
	return containerd_snapshot_take(&j->snapshot, j->root, &places, err);
}

/* An error on the way back counts more than the one that led there. */
static int take_back(struct job *j, struct error *err)
{
	CLEANUP_ERROR struct error first = ERROR_INIT;

	error_take(&first, err);
	if (containerd_snapshot_restore(&j->snapshot, err) < 0)
		return -1;
	error_take(err, &first);
	return -1;
}

/* --- After --- */

/* What containerd says now, and what of it is not as it shall be. */
static int judge(struct job *j, struct strv *ret_complaints, struct error *err)
{
	CLEANUP_CONTAINERD_DUMP struct containerd_dump after = {0};
	CLEANUP_FREE char *text = NULL;

	if (containerd_run_dump(&text, j->root, j->c, err) < 0 ||
	    containerd_dump_parse(&after, text, err) < 0)
		return -1;
	containerd_dump_judge(&j->before, &after, &j->runtime, ret_complaints);
	free(j->dump);
	j->dump = STEAL(text);
	return 0;
}

/* 1: nothing is to be done. */
static int is_there_already(struct job *j, struct error *err)
{
	CLEANUP_STRV struct strv complaints = {0};

	if (j->edits.count || containerd_cri_disabled(&j->files))
		return 0;
	if (judge(j, &complaints, err) < 0)
		return -1;
	return complaints.count ? containerd_not_so(j->c, &complaints, err) : 1;
}

/* --- By nvidia-ctk --- */

static int run_ctk(struct job *j, struct error *err)
{
	CLEANUP_FREE char *name = str_format("--nvidia-runtime-name=%s", j->runtime.name);
	CLEANUP_FREE char *config = str_format("--config=%s", j->c->config_path);
	CLEANUP_FREE char *binary = str_format("--nvidia-runtime-path=%s", j->c->runtime_binary);
	CLEANUP_FREE char *output = NULL;
	const char *const argv[] = {j->c->ctk,   "runtime",
	                            "configure", "--runtime=containerd",
	                            config,      name,
	                            binary,      j->setup->make_default ? "--set-as-default" : NULL,
	                            NULL};
	const struct guest_command command = {.argv = argv,
	                                      .timeout_ms = CTK_TIMEOUT_MS,
	                                      .ret_stdout = &output,
	                                      .max_bytes = CTK_MAX_BYTES};

	return rootfs_run(j->root, &command, err);
}

/* 1: it did, and the proof holds; 0: it did not, and nothing of it is left. */
static int try_ctk(struct job *j, struct error *err)
{
	CLEANUP_ERROR struct error failed = ERROR_INIT;
	CLEANUP_STRV struct strv complaints = {0};
	CLEANUP_FREE char *why = NULL;

	if (j->raised)
		return 0; /* it would find a file without a version */
	if (!containerd_ctk_is_good(j->c, &j->files, &why)) {
		log_detail(j->setup->log, "nvidia-ctk is not used: %s", why);
		return 0;
	}
	if (run_ctk(j, &failed) == 0 && judge(j, &complaints, &failed) == 0 && !complaints.count)
		return 1;
	why = failed.message ? str_copy(failed.message) : strv_join(&complaints, "; ");
	log_note(j->setup->log, "what nvidia-ctk %s did is taken back: %s", j->c->ctk_version, why);
	return containerd_snapshot_restore(&j->snapshot, err);
}

/* --- By ourselves --- */

static int apply_edits(struct job *j, struct error *err)
{
	for (size_t i = 0; i < j->edits.count; i++) {
		const struct containerd_edit *edit = &j->edits.items[i];
		CLEANUP_FREE char *real = NULL;
		struct rootfs_stat st;
		int found;

		if (rootfs_resolve_new(j->root, edit->path, &real, err) < 0)
			return -1;
		found = rootfs_lstat(j->root, real, &st, err);
		if (found < 0 || rootfs_write(j->root, real, edit->text, strlen(edit->text),
		                              found ? st.mode & 07777 : 0644, err) < 0)
			return -1;
	}
	return 0;
}

static int do_edits(struct job *j, struct error *err)
{
	CLEANUP_STRV struct strv complaints = {0};

	if (apply_edits(j, err) < 0)
		return take_back(j, err);
	if (judge(j, &complaints, err) < 0) {
		error_code(err, EXIT_PROOF);
		return take_back(j, err);
	}
	if (!complaints.count)
		return 0;
	containerd_not_so(j->c, &complaints, err);
	return take_back(j, err);
}

/* --- What was done --- */

static void give_result(struct containerd_result *ret, struct containerd_result *from)
{
	*ret = *from;
	*from = (struct containerd_result){0};
}

static int finish(struct job *j, const char *by, struct containerd_result *ret, struct error *err)
{
	CLEANUP_CONTAINERD_RESULT struct containerd_result r = {0};
	CLEANUP_STRV struct strv changes = {0};
	CLEANUP_FREE char *edited = NULL;
	bool ours = strcmp(by, "gpuimg") == 0;

	if (containerd_add_digests(&r.files, j->root, j->c->config_path, j->c->globs, err) < 0 ||
	    containerd_snapshot_changes(&j->snapshot, &changes, err) < 0)
		return take_back(j, err);
	for (size_t i = 0; i < changes.count; i++)
		if (!rootfs_is_dir(j->root, changes.items[i]))
			strv_add(&r.edited, changes.items[i]);
	if (ours)
		strv_add_all(&r.notes, &j->edits.notes);
	containerd_note_others(&r.notes, j->root);
	edited = strv_join(&r.edited, "', '");
	if (r.edited.count)
		log_note(j->setup->log, "containerd %s has the runtime '%s', by %s: '%s'",
		         j->c->version ? j->c->version : "", j->runtime.name, by, edited);
	else
		log_note(j->setup->log, "containerd %s had the runtime '%s' already",
		         j->c->version ? j->c->version : "", j->runtime.name);
	for (size_t i = 0; i < r.notes.count; i++)
		log_note(j->setup->log, "containerd: %s", r.notes.items[i]);
	r.by = str_copy(by);
	r.binary = str_copy(j->runtime.binary);
	r.main_path = str_copy(j->c->config_path);
	r.globs = j->c->globs;
	r.dump = STEAL(j->dump);
	give_result(ret, &r);
	return 0;
}

static int set_up_plain(struct job *j, struct containerd_result *ret, struct error *err)
{
	CLEANUP_FREE char *by_ctk = str_format("nvidia-ctk %s", j->c->ctk_version);
	int done;

	j->files.globs = j->c->globs;
	if (containerd_files_read(&j->files, j->root, j->c->config_path, err) < 0 ||
	    read_before(j, err) < 0)
		return -1;
	j->runtime = (struct containerd_runtime){.name = CONTAINERD_RUNTIME_NAME,
	                                         .binary = j->c->runtime_binary,
	                                         .options = &j->options,
	                                         .make_default = j->setup->make_default};
	if (raise_version(j, err) < 0 || containerd_plan_edits(&j->edits, &j->files, j->c->major,
	                                                       j->c->minor, &j->runtime, err) < 0)
		return -1;
	add_raised(j);
	if (take_snapshot(j, err) < 0)
		return -1;
	done = is_there_already(j, err);
	if (done < 0)
		return -1;
	if (done)
		return finish(j, "the image", ret, err);
	done = try_ctk(j, err);
	if (done < 0)
		return -1;
	if (done)
		return finish(j, by_ctk, ret, err);
	return do_edits(j, err) < 0 ? -1 : finish(j, "gpuimg", ret, err);
}

int containerd_set_up(struct containerd_result *ret, const struct containerd_setup *setup,
                      struct error *err)
{
	CLEANUP(job_free)
	struct job j = {.setup = setup, .c = setup->containerd, .root = setup->root};

	if (!j.c->runtime_binary) {
		error_set(err, "the image has no '" CONTAINERD_RUNTIME_PROGRAM "'");
		error_hint(err, "install the package nvidia-container-toolkit in it");
		return error_code(err, EXIT_INPUT);
	}
	if (containerd_check(j.c, j.root, setup->make_default, err) < 0)
		return -1;
	return j.c->manager == CONTAINERD_PLAIN ? set_up_plain(&j, ret, err)
	                                        : containerd_managed_set_up(ret, setup, err);
}
