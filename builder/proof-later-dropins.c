/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the next run of grub-mkconfig, which every new kernel brings, gives entries the
 * parameters. /etc/default/grub and grub.d are shell files, and nothing of the image is run here: a
 * parameter counts as given from the line on that assigns it to any variable at the file's top
 * level, and as lost again by a later line that assigns GRUB's variable without its old value, or
 * with something that cancels the parameter.
 */
#include <string.h>

#include "cmdline.h"
#include "param-places.h"
#include "proof.h"

#define DROPIN_DIR     DEFAULT_GRUB_PATH ".d"
#define TEXT_MAX_BYTES (1024UL * 1024)
#define FILES_MAX      1000
#define NAME_CHARS     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

/* One parameter on its way through the files. */
struct fate {
	const char *param;
	bool given;
	char *variable; /* of GRUB's, that it was given by */
	char *lost_in;  /* the file that took it away; NULL: none */
};

/* "NAME=VALUE" of a line, the quotes around the value taken off; false: the line is none. */
static bool take_assignment(const char *line, char **ret_name, char **ret_value)
{
	size_t length;
	bool more;

	if (str_starts(line, "export "))
		line += strlen("export ");
	length = strspn(line, NAME_CHARS);
	more = line[length] == '+';
	if (length == 0 || line[length + more] != '=')
		return false;
	*ret_name = mem_copy(line, length);
	line += length + more + 1;
	length = strlen(line);
	if (*line == '"' || *line == '\'') {
		const char *end = strrchr(line + 1, *line);

		line++;
		length = end ? (size_t)(end - line) : strlen(line);
	}
	/* What "+=" leaves is as good as a reference to the old value. */
	*ret_value = str_format("%s%.*s", more ? "$+ " : "", (int)length, line);
	return true;
}

/* Our own drop-in names the modules without the parameter's name. */
static struct strv value_words(const char *name, const char *value)
{
	CLEANUP_FREE char *line = strcmp(name, "gpuimg_blacklist") == 0
	                                  ? str_format("module_blacklist=%s", value)
	                                  : str_copy(value);

	return cmdline_split(line);
}

static bool keeps_old(const char *name, const char *value)
{
	CLEANUP_FREE char *plain = str_format("$%s", name);
	CLEANUP_FREE char *braced = str_format("${%s", name);

	return strstr(value, plain) || strstr(value, braced) || str_starts(value, "$+ ");
}

static void follow(struct fate *f, const char *name, const char *value, const char *path)
{
	CLEANUP_STRV struct strv words = value_words(name, value);
	CLEANUP_STRV struct strv both = {0};
	bool grubs = str_starts(name, "GRUB_CMDLINE_LINUX");

	if (cmdline_holds(&words, f->param, NULL)) {
		f->given = true;
		free(f->variable);
		f->variable = str_copy(grubs ? name : "GRUB_CMDLINE_LINUX");
		free(f->lost_in);
		f->lost_in = NULL;
		return;
	}
	if (!f->given || f->lost_in || !grubs)
		return;
	strv_add(&both, f->param);
	strv_add_all(&both, &words);
	if ((strcmp(name, f->variable) == 0 && !keeps_old(name, value)) ||
	    !cmdline_holds(&both, f->param, NULL))
		f->lost_in = str_copy(path);
}

static int follow_file(struct fate *fates, size_t count, struct rootfs *root, const char *path,
                       struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	CLEANUP_STRV struct strv lines = {0};

	if (rootfs_read(root, path, TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	lines = strv_split(text, "\n");
	for (size_t i = 0; i < lines.count; i++) {
		CLEANUP_FREE char *name = NULL;
		CLEANUP_FREE char *value = NULL;

		if (!take_assignment(lines.items[i], &name, &value))
			continue;
		for (size_t j = 0; j < count; j++)
			follow(&fates[j], name, value, path);
	}
	return 0;
}

/* In the order in which grub-mkconfig reads them. */
static int list_files(struct strv *ret, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	strv_add(ret, DEFAULT_GRUB_PATH);
	if (rootfs_is_dir(root, DROPIN_DIR) && rootfs_list(root, DROPIN_DIR, &names, err) < 0)
		return -1;
	strv_sort(&names);
	for (size_t i = 0; i < names.count && ret->count < FILES_MAX; i++)
		if (str_ends(names.items[i], ".cfg"))
			strv_addf(ret, DROPIN_DIR "/%s", names.items[i]);
	return 0;
}

static void tell(struct findings *f, const struct fate *fate)
{
	if (fate->lost_in)
		finding_bad(f, "cmdline.later", "mend that file, and run update-grub",
		            "'%s': takes '%s' away again: entries that are written anew, as for a "
		            "new kernel, lack it",
		            fate->lost_in, fate->param);
	else if (!fate->given)
		finding_bad(f, "cmdline.later",
		            "add it in /etc/default/grub.d, and run update-grub",
		            "'" DEFAULT_GRUB_PATH "' and its grub.d: do not give '%s': entries "
		            "that are written anew, as for a new kernel, lack it",
		            fate->param);
	else
		finding_ok(f, "cmdline.later", "'" DEFAULT_GRUB_PATH "' and its grub.d: '%s'",
		           fate->param);
}

static void free_fates(struct fate *fates, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(fates[i].variable);
		free(fates[i].lost_in);
	}
	free(fates);
}

int proof_later_dropins(struct findings *f, struct rootfs *root, const struct strv *params,
                        struct error *err)
{
	struct fate *fates = mem_alloc((params->count + 1) * sizeof(*fates));
	CLEANUP_STRV struct strv files = {0};
	int result = list_files(&files, root, err);

	for (size_t i = 0; i < params->count; i++)
		fates[i].param = params->items[i];
	for (size_t i = 0; result == 0 && i < files.count; i++)
		if (rootfs_is_file(root, files.items[i]))
			result = follow_file(fates, params->count, root, files.items[i], err);
	for (size_t i = 0; result == 0 && i < params->count; i++)
		tell(f, &fates[i]);
	free_fates(fates, params->count);
	return result;
}
