/* SPDX-License-Identifier: Apache-2.0 */
/* What the sources have: answers of apt-cache(8), read as text, in the C locale. */
#include <ctype.h>
#include <regex.h>
#include <string.h>

#include "apt-internal.h"
#include "deb-file.h"

#define LOWER_DIGITS "abcdefghijklmnopqrstuvwxyz0123456789"

static bool is_name(const char *name, size_t length)
{
	CLEANUP_FREE char *copy = mem_copy(name, length);

	/* "name-" would be a removal */
	return length > 1 && strchr(LOWER_DIGITS, *copy) && copy[length - 1] != '-' &&
	       !copy[strspn(copy, LOWER_DIGITS "+.-")];
}

static bool is_version(const char *version)
{
	return isdigit((unsigned char)*version) &&
	       !version[strspn(version, LOWER_DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZ.+-:~")];
}

int apt_check_names(const struct strv *names, bool versions, struct error *err)
{
	for (size_t i = 0; i < names->count; i++) {
		const char *name = names->items[i];
		size_t length = strcspn(name, "=");
		CLEANUP_FREE char *shown = NULL;

		if (is_name(name, length) &&
		    (!name[length] || (versions && is_version(name + length + 1))))
			continue;
		shown = str_printable(name, 200);
		error_set(err, "'%s' is not the name of a package", shown);
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

char *apt_next_stanza(const char **at)
{
	const char *begin = *at + strspn(*at, "\n");
	const char *end = strstr(begin, "\n\n");
	size_t length = end ? (size_t)(end - begin) + 1 : strlen(begin);

	*at = begin + length;
	return length > 0 ? mem_copy(begin, length) : NULL;
}

void apt_parse_policy(const char *text, char **ret_candidate, struct strv *ret_table)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\n");

	*ret_candidate = NULL;
	for (size_t i = 0; i < lines.count; i++) {
		const char *line = lines.items[i];
		CLEANUP_FREE char *version = NULL;

		if (str_starts(line, "  Candidate: ") && !str_equal(line + 13, "(none)") &&
		    !*ret_candidate)
			*ret_candidate = str_copy(line + 13);
		/* sources are indented further */
		if ((!str_starts(line, "     ") && !str_starts(line, " *** ")) || line[5] == ' ')
			continue;
		version = mem_copy(line + 5, strcspn(line + 5, " "));
		if (!strv_has(ret_table, version))
			strv_add(ret_table, version);
	}
}

static void split_depends(struct strv *ret, const char *value)
{
	CLEANUP_STRV struct strv parts = strv_split(value, ",");

	for (size_t i = 0; i < parts.count; i++) {
		const char *part = str_trim(parts.items[i]);

		if (*part)
			strv_add(ret, part);
	}
}

static void version_free(struct apt_version *v)
{
	free(v->version);
	strv_free(&v->depends);
	free(v->description);
	*v = (struct apt_version){0};
}

/* Of what only dpkg's record has, apt can install nothing. */
static bool is_version_of(const char *stanza, const char *version)
{
	CLEANUP_FREE char *its = deb_field(stanza, "Version", false);
	CLEANUP_FREE char *status = deb_field(stanza, "Status", false);

	return !status && str_equal(its, version);
}

static struct apt_version read_version(const char *stanza, const char *version)
{
	CLEANUP_FREE char *depends = deb_field(stanza, "Depends", true);
	CLEANUP_FREE char *before = deb_field(stanza, "Pre-Depends", true);
	struct apt_version v = {.version = str_copy(version),
	                        .description = deb_field(stanza, "Description", false)};

	if (!v.description)
		v.description = deb_field(stanza, "Description-en", false);
	if (!v.description)
		v.description = str_copy("");
	split_depends(&v.depends, depends ? depends : "");
	split_depends(&v.depends, before ? before : "");
	return v;
}

static bool take_version(struct apt_version *ret, const char *show, const char *version)
{
	const char *at = show;
	char *stanza;
	bool found = false;

	while (!found && (stanza = apt_next_stanza(&at))) {
		found = is_version_of(stanza, version);
		if (found)
			*ret = read_version(stanza, version);
		free(stanza);
	}
	return found;
}

void apt_parse_versions(const char *show, const char *candidate, const struct strv *table,
                        struct apt_version **ret, size_t *ret_count)
{
	struct apt_version *versions = NULL;
	size_t count = 0;

	/* the candidate, and then all others in the table's order, which is newest first */
	for (size_t i = 0; candidate && i < table->count + 1; i++) {
		const char *version = i == 0 ? candidate : table->items[i - 1];
		struct apt_version found;

		if ((i > 0 && str_equal(version, candidate)) ||
		    !take_version(&found, show, version))
			continue;
		versions = mem_grow(versions, count + 1, sizeof(*versions));
		versions[count++] = found;
	}
	*ret = versions;
	*ret_count = count;
}

int apt_versions(struct apt *apt, const char *package, struct apt_version **ret, size_t *ret_count,
                 struct error *err)
{
	char *name[] = {(char *)(uintptr_t)package, NULL};
	CLEANUP_STRV struct strv argv = strv_split("apt-cache policy --", " ");
	CLEANUP_STRV struct strv table = {0};
	CLEANUP_FREE char *policy = NULL;
	CLEANUP_FREE char *show = NULL;
	CLEANUP_FREE char *candidate = NULL;

	if (apt_check_names(&(struct strv){.items = name, .count = 1}, false, err) < 0)
		return -1;
	strv_add(&argv, package);
	if (apt_capture(apt, &argv, &policy, err) < 0)
		return error_prefix(err, "cannot ask for the versions of '%s'", package);
	apt_parse_policy(policy, &candidate, &table);
	*ret = NULL;
	*ret_count = 0;
	if (!candidate)
		return 0;
	strv_free(&argv);
	argv = strv_split("apt-cache show --all-versions --", " ");
	strv_add(&argv, package);
	if (apt_capture(apt, &argv, &show, err) < 0)
		return error_prefix(err, "cannot ask for the versions of '%s'", package);
	apt_parse_versions(show, candidate, &table, ret, ret_count);
	return 0;
}

void apt_versions_free(struct apt_version *versions, size_t count)
{
	for (size_t i = 0; i < count; i++)
		version_free(&versions[i]);
	free(versions);
}

int apt_names(struct apt *apt, const char *pattern, struct strv *ret, struct error *err)
{
	CLEANUP_STRV struct strv argv = strv_split("apt-cache pkgnames", " ");
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE char *text = NULL;
	regex_t regex;

	if (apt_capture(apt, &argv, &text, err) < 0)
		return error_prefix(err, "cannot ask for the names of packages");
	if (regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0)
		return error_set(err, "'%s' is no regular expression", pattern);
	names = strv_split(text, "\n");
	for (size_t i = 0; i < names.count; i++)
		if (is_name(names.items[i], strlen(names.items[i])) &&
		    regexec(&regex, names.items[i], 0, NULL, 0) == 0)
			strv_add(ret, names.items[i]);
	regfree(&regex);
	strv_sort(ret);
	return 0;
}
