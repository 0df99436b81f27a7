/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "str.h"
#include "sums.h"

#define SHA256_DIGITS 64
#define SHA512_DIGITS 128

struct found {
	char *sha256, *sha512;
	size_t lines;      /* that have a checksum, of whatever file */
	const char *first; /* a name, for the message */
};

static void found_release(struct found *f)
{
	free(f->sha256);
	free(f->sha512);
}

#define CLEANUP_FOUND CLEANUP(found_release)

char *sums_parse_hex(const char *s, size_t digits)
{
	char *hex;

	if (strlen(s) != digits || strspn(s, "0123456789abcdefABCDEF") != digits)
		return NULL;
	hex = str_copy(s);
	for (char *p = hex; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	return hex;
}

/* "SHA256 (name) = hash": cuts the line into its parts. */
static bool split_bsd(char *line, char **ret_name, char **ret_hex)
{
	char *open = strstr(line, " ("), *close = NULL;

	if (!open || (!str_starts(line, "SHA256 (") && !str_starts(line, "SHA512 (")))
		return false;
	/* The name may hold anything, ") = " too: the last one counts. */
	for (char *p = strstr(open, ") = "); p; p = strstr(p + 1, ") = "))
		close = p;
	if (!close)
		return false;
	*close = '\0';
	*ret_name = open + 2;
	*ret_hex = close + 4;
	return true;
}

/* "hash  name" or "hash *name", or the hash alone: then the name is empty. */
static bool split_gnu(char *line, char **ret_name, char **ret_hex)
{
	char *end = line + strcspn(line, " \t");

	*ret_hex = line;
	*ret_name = end;
	if (!*end)
		return true;
	*end++ = '\0';
	end += strspn(end, " \t");
	*ret_name = *end == '*' ? end + 1 : end;
	return true;
}

static bool names_path(const char *name, const char *path)
{
	CLEANUP_FREE char *tail = NULL;

	while (str_starts(name, "./"))
		name += 2;
	tail = str_format("/%s", name);
	return *name && (str_ends(path, tail) || str_equal(path, name));
}

static int keep(char **where, char *hex, const char *name, struct error *err)
{
	CLEANUP_FREE char *mine = hex;

	if (*where && !str_equal(*where, hex)) {
		CLEANUP_FREE char *shown = str_printable(name, 200);

		return error_set(err, "it has two different checksums for '%s'", shown);
	}
	if (!*where)
		*where = STEAL(mine);
	return 0;
}

static int read_line(struct found *f, char *line, const char *path, struct error *err)
{
	char *name = NULL, *hex = NULL, *sha256, *sha512;

	if (!split_bsd(line, &name, &hex))
		split_gnu(line, &name, &hex);
	sha256 = sums_parse_hex(hex, SHA256_DIGITS);
	sha512 = sums_parse_hex(hex, SHA512_DIGITS);
	if (!sha256 && !sha512)
		return 0;
	f->lines++;
	if (!f->first)
		f->first = name;
	if (!names_path(name, path) && *name) {
		free(sha256);
		free(sha512);
		return 0;
	}
	return sha256 ? keep(&f->sha256, sha256, name, err) : keep(&f->sha512, sha512, name, err);
}

/* A bare hash speaks for the file only if nothing else stands in the sums. */
static bool has_bare_among_others(const char *text)
{
	CLEANUP_STRV struct strv words = strv_split(text, " \t\r\n");
	size_t hashes = 0;

	for (size_t i = 0; i < words.count; i++)
		hashes += strlen(words.items[i]) >= SHA256_DIGITS;
	return words.count > 1 || hashes != 1;
}

static int not_found(const struct found *f, const char *path, struct error *err)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	CLEANUP_FREE char *shown = str_printable(name, 200);
	CLEANUP_FREE char *other = str_printable(f->first ? f->first : "", 200);

	if (f->lines == 0)
		return error_set(err, "it has no SHA-256 or SHA-512 checksum at all");
	error_hint(err, "is it the right file of sums? it names '%s'", other);
	return error_set(err, "it has no checksum for '%s', only for %zu other files", shown,
	                 f->lines);
}

int sums_find(const char *text, const char *path, const char **ret_algorithm, char **ret_hex,
              struct error *err)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\r\n");
	CLEANUP_FOUND struct found f = {0};
	bool mixed = has_bare_among_others(text);

	for (size_t i = 0; i < lines.count; i++) {
		char *line = str_trim(lines.items[i]);

		if (mixed && !strpbrk(line, " \t"))
			continue;
		if (read_line(&f, line, path, err) < 0)
			return -1;
	}
	if (!f.sha256 && !f.sha512)
		return not_found(&f, path, err);
	if (f.sha256) {
		*ret_algorithm = "SHA256";
		*ret_hex = STEAL(f.sha256);
	} else {
		*ret_algorithm = "SHA512";
		*ret_hex = STEAL(f.sha512);
	}
	return 0;
}
