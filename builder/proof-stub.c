/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small grub.cfg on an ESP, as distributions write it: a search for a file system by its UUID,
 * "set prefix=(…)/DIRECTORY", "configfile $prefix/grub.cfg". If the file system is not there, or
 * the directory has no grub.cfg, GRUB stops at its prompt.
 */
#include <string.h>

#include "proof-internal.h"

#define STUB_MAX_BYTES (1024UL * 1024)

/* The UUID that a line searches for, or NULL. Borrowed from the words. */
static const char *searched_uuid(const struct strv *words)
{
	const char *found = NULL;
	bool by_uuid = false;

	if (words->count >= 2 && strcmp(words->items[0], "search.fs_uuid") == 0)
		return words->items[1];
	if (words->count < 2 || strcmp(words->items[0], "search") != 0)
		return NULL;
	for (size_t i = 1; i < words->count; i++) {
		const char *word = words->items[i];

		if (strcmp(word, "--fs-uuid") == 0 || strcmp(word, "-u") == 0)
			by_uuid = true;
		else if (strcmp(word, "--set") == 0)
			i++; /* "--set=root" as a rule, and a variable's name may follow */
		else if (*word != '-')
			found = word;
	}
	return by_uuid ? found : NULL;
}

static const struct guest_mount *find_uuid(const struct guest *guest, const char *uuid)
{
	for (size_t i = 0; i < guest->mount_count; i++)
		if (guest->mounts[i].volume->uuid &&
		    strcasecmp(guest->mounts[i].volume->uuid, uuid) == 0)
			return &guest->mounts[i];
	return NULL;
}

static void drop_quotes(char *line)
{
	char *to = line;

	for (const char *from = line; *from; from++)
		if (*from != '\'' && *from != '"')
			*to++ = *from;
	*to = '\0';
}

/* The one argument of a command, or NULL. */
static const char *argument_of(const struct strv *words, const char *command)
{
	return words->count == 2 && strcmp(words->items[0], command) == 0 ? words->items[1] : NULL;
}

/* "/boot/grub" of "prefix=($root)/boot/grub", or NULL. */
static const char *prefix_path(const struct strv *words)
{
	const char *value = argument_of(words, "set");
	const char *end;

	if (!value || !str_starts(value, "prefix=("))
		return NULL;
	end = strchr(value, ')');
	return end && end[1] == '/' ? end + 1 : NULL;
}

struct stub {
	char *uuid, *prefix;
	bool uses_prefix; /* "configfile $prefix/grub.cfg" */
};

static void read_stub(struct stub *s, const char *text)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\r\n;");

	for (size_t i = 0; i < lines.count; i++) {
		CLEANUP_STRV struct strv words = {0};

		drop_quotes(lines.items[i]);
		words = strv_split(lines.items[i], " \t");
		if (searched_uuid(&words)) {
			free(s->uuid);
			s->uuid = str_copy(searched_uuid(&words));
		} else if (prefix_path(&words)) {
			free(s->prefix);
			s->prefix = str_copy(prefix_path(&words));
		} else if (argument_of(&words, "configfile")) {
			const char *file = argument_of(&words, "configfile");

			s->uses_prefix = str_equal(file, "$prefix/grub.cfg") ||
			                 str_equal(file, "${prefix}/grub.cfg");
		}
	}
}

/* A variable's value is not known here. */
static bool is_plain(const char *word)
{
	return word && !strpbrk(word, "$(){}");
}

char *proof_stub_target(struct rootfs *root, const struct guest *guest, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE void *text = NULL;
	const struct guest_mount *mount;
	struct stub s = {0};
	char *why = NULL;

	if (rootfs_read(root, path, STUB_MAX_BYTES, &text, NULL, &ignored) < 0)
		return NULL; /* that is told of the file itself */
	read_stub(&s, text);
	mount = is_plain(s.uuid) ? find_uuid(guest, s.uuid) : NULL;
	if (is_plain(s.uuid) && !mount) {
		why = str_format("searches for the file system '%s', which is none of the image's",
		                 s.uuid);
	} else if (mount && s.uses_prefix && is_plain(s.prefix)) {
		CLEANUP_FREE char *there = str_format("%s/.", mount->path);
		CLEANUP_FREE char *dir = bootchain_guest_path(guest, there, s.prefix);
		CLEANUP_FREE char *file = str_format("%s/grub.cfg", dir);

		if (!rootfs_exists(root, file))
			why = str_format("leads to '%s', which is not there", file);
	}
	free(s.uuid);
	free(s.prefix);
	return why;
}
