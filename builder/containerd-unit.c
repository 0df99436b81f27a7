/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command that a systemd service starts (systemd.unit(5), systemd.service(5)): the unit's file
 * in the directory that wins, then its drop-ins by their names. Specifiers and variables are not
 * followed.
 */
#include <string.h>
#include <sys/stat.h>

#include "containerd-internal.h"

#define DROPINS_MAX 128

/* Earlier ones win; /run is empty in an image. */
static const char *const unit_dirs[] = {"/etc/systemd/system", "/usr/local/lib/systemd/system",
                                        "/usr/lib/systemd/system", "/lib/systemd/system"};
#define UNIT_DIRS (sizeof(unit_dirs) / sizeof(unit_dirs[0]))

/* A unit that is linked to /dev/null, or empty, is masked. */
static bool is_masked(struct rootfs *root, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *target = NULL;
	struct rootfs_stat st = {0};

	if (rootfs_lstat(root, path, &st, &ignored) == 1 && S_ISLNK(st.mode))
		return rootfs_readlink(root, path, &target, &ignored) == 0 &&
		       str_equal(target, "/dev/null");
	return S_ISREG(st.mode) && st.size_bytes == 0;
}

static bool is_there(struct rootfs *root, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct rootfs_stat st;

	return rootfs_lstat(root, path, &st, &ignored) == 1;
}

/* Lines that end in a backslash go on in the next one. */
static void join_lines(char *text)
{
	for (char *p = text; (p = strstr(p, "\\\n"));)
		p[0] = p[1] = ' ';
}

/* The ExecStart= of one file's [Service]; an empty one takes back what was said before. */
static void take_commands(const char *text, char **command)
{
	CLEANUP_FREE char *joined = str_copy(text);
	CLEANUP_STRV struct strv lines = {0};
	bool service = false;

	join_lines(joined);
	lines = strv_split(joined, "\r\n");
	for (size_t i = 0; i < lines.count; i++) {
		const char *line = str_trim(lines.items[i]);
		CLEANUP_FREE char *value = NULL;

		if (*line == '[')
			service = strcmp(line, "[Service]") == 0;
		if (!service || !str_starts(line, "ExecStart"))
			continue;
		line += strlen("ExecStart");
		line += strspn(line, " \t");
		if (*line != '=')
			continue; /* ExecStartPre= */
		value = str_copy(line + 1);
		free(*command);
		*command = *str_trim(value) ? str_copy(str_trim(value)) : NULL;
	}
}

static char *take_word(const char **from)
{
	const char *p = *from + strspn(*from, " \t");
	CLEANUP_FREE char *word = mem_alloc(strlen(p) + 1);
	size_t length = 0;
	char quote = 0;

	if (!*p)
		return NULL;
	for (; *p && (quote || !strchr(" \t", *p)); p++) {
		if (quote && *p == quote)
			quote = '\0';
		else if (!quote && (*p == '"' || *p == '\''))
			quote = *p;
		else if (*p == '\\' && p[1])
			word[length++] = *++p;
		else
			word[length++] = *p;
	}
	*from = p;
	return STEAL(word);
}

static void split_command(const char *command, struct strv *ret)
{
	bool named = false;
	char *word;

	for (; *command && strchr("@-:+!|", *command); command++)
		named = named || *command == '@';
	while ((word = take_word(&command)))
		strv_take(ret, word);
	if (named && ret->count > 1)
		strv_remove(ret, 1); /* its argv[0] */
}

/* Paths of drop-ins in the order in which they count; of two with one name the first directory's.
 */
static int find_dropins(struct rootfs *root, const char *unit, struct strv *ret, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	for (size_t d = 0; d < UNIT_DIRS; d++) {
		CLEANUP_FREE char *dir = str_format("%s/%s.d", unit_dirs[d], unit);
		CLEANUP_STRV struct strv here = {0};

		if (rootfs_is_dir(root, dir) && rootfs_list(root, dir, &here, err) < 0)
			return -1;
		for (size_t i = 0; i < here.count && names.count < DROPINS_MAX; i++)
			if (str_ends(here.items[i], ".conf") && !strv_has(&names, here.items[i]))
				strv_add(&names, here.items[i]);
	}
	strv_sort(&names);
	for (size_t i = 0; i < names.count; i++)
		for (size_t d = 0; d < UNIT_DIRS; d++) {
			CLEANUP_FREE char *path =
				str_format("%s/%s.d/%s", unit_dirs[d], unit, names.items[i]);

			if (!is_there(root, path))
				continue;
			if (!is_masked(root, path))
				strv_add(ret, path);
			break;
		}
	return 0;
}

int containerd_unit_command(struct strv *ret, struct rootfs *root, const char *unit,
                            struct error *err)
{
	CLEANUP_STRV struct strv files = {0};
	CLEANUP_FREE char *command = NULL;

	for (size_t d = 0; d < UNIT_DIRS && !files.count; d++) {
		CLEANUP_FREE char *path = str_format("%s/%s", unit_dirs[d], unit);

		if (!is_there(root, path))
			continue;
		if (is_masked(root, path))
			return 0;
		strv_add(&files, path);
	}
	if (!files.count)
		return 0;
	if (find_dropins(root, unit, &files, err) < 0)
		return error_prefix(err, "the drop-ins of '%s'", unit);
	for (size_t i = 0; i < files.count; i++) {
		CLEANUP_FREE char *text = NULL;

		if (containerd_read_text(&text, root, files.items[i], err) < 0)
			return -1;
		if (text)
			take_commands(text, &command);
	}
	if (!command)
		return 0;
	split_command(command, ret);
	return ret->count > 0;
}
