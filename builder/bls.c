/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two programs read these files, and not alike: systemd-boot (src/boot: line_get_key_value) as the
 * specification says, GRUB's blscfg (read_entry, create_entry in Fedora's patches) with surprises
 * that cost parameters without a word. A proof has to read as the boot loader in charge does.
 */
#include <string.h>

#include "bls.h"
#include "cmdline.h"

#define MAX_TEXT_BYTES    ((size_t)64 << 10)
#define MAX_OPTIONS_BYTES ((size_t)16 << 10) /* what cmdline_split() looks at */
#define MAX_WORDS         4096

#define BLANKS "\t "

struct reading {
	struct bls_entry entry;
	const char *name;
	bool as_grub;
};

void bls_free(struct bls_entry *e)
{
	free(e->title);
	free(e->version);
	free(e->linux_path);
	free(e->efi);
	strv_free(&e->initrds);
	strv_free(&e->options);
	*e = (struct bls_entry){0};
}

static int refuse(struct error *err, const char *name, const char *why)
{
	error_set(err, "cannot read boot entry '%s': %s", name, why);
	return error_code(err, EXIT_INPUT);
}

static int add_options(struct reading *r, const char *value, struct error *err)
{
	CLEANUP_STRV struct strv words = {0};

	if (r->entry.options_lines++ > 0 && r->as_grub)
		return 0;
	if (strlen(value) > MAX_OPTIONS_BYTES)
		return refuse(err, r->name, "a line of options is longer than 16 KiB");
	words = cmdline_split(value);
	if (words.count > MAX_WORDS - r->entry.options.count)
		return refuse(err, r->name, "it has more than 4096 options");
	strv_add_all(&r->entry.options, &words);
	return 0;
}

/* Of a key given twice, GRUB finds the first one; systemd-boot keeps the last. */
static int set_field(const struct reading *r, char **field, const char *value)
{
	if (r->as_grub && *field)
		return 0;
	free(*field);
	*field = str_copy(value);
	return 0;
}

static int take_key(struct reading *r, const char *key, const char *value, struct error *err)
{
	struct bls_entry *e = &r->entry;
	CLEANUP_STRV struct strv words = {0};

	if (!*value)
		return 0;
	if (str_equal(key, "options"))
		return add_options(r, value, err);
	if (str_equal(key, "title"))
		return set_field(r, &e->title, value);
	if (str_equal(key, "version"))
		return set_field(r, &e->version, value);
	if (str_equal(key, "linux"))
		return set_field(r, &e->linux_path, value);
	if (str_equal(key, "efi") || str_equal(key, "uki"))
		return set_field(r, &e->efi, value);
	if (str_equal(key, "initrd")) {
		words = strv_split(value, BLANKS);
		strv_add_all(&e->initrds, &words);
	}
	return 0;
}

/* Ends the first line of *at and steps behind it; NULL at the end of the text. */
static char *next_line(char **at, const char *ends)
{
	char *line = *at, *end;

	if (!*line)
		return NULL;
	end = line + strcspn(line, ends);
	*at = *end ? end + 1 : end;
	*end = '\0';
	return line;
}

static void trim_end(char *s)
{
	size_t length = strlen(s);

	while (length > 0 && strchr(BLANKS, s[length - 1]))
		s[--length] = '\0';
}

static char *unquoted(char *value)
{
	size_t length = strlen(value);

	if (length < 2 || value[0] != '"' || value[length - 1] != '"')
		return value;
	value[length - 1] = '\0';
	return value + 1;
}

static int read_by_spec(struct reading *r, char *text, struct error *err)
{
	char *line;

	while ((line = next_line(&text, "\r\n"))) {
		char *key = line + strspn(line, BLANKS), *value;

		trim_end(key);
		value = key + strcspn(key, BLANKS);
		if (*key == '#' || !*value)
			continue;
		*value++ = '\0';
		if (take_key(r, key, unquoted(value + strspn(value, BLANKS)), err) < 0)
			return -1;
	}
	return 0;
}

static void drop_carriage_returns(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++)
		if (*from != '\r')
			*to++ = *from;
	*to = '\0';
}

static bool has_keys(const char *text)
{
	while (*text) {
		text += strspn(text, BLANKS "\n");
		if (*text && *text != '#')
			return true;
		text += strcspn(text, "\n");
	}
	return false;
}

/* The end of the key, or NULL where GRUB stops reading the file. */
static char *grub_separator(char *line)
{
	char *end = strchr(line, ' ');

	if (!end)
		end = strchr(line, '\t');
	return end && end[1] ? end : NULL;
}

static int read_by_grub(struct reading *r, char *text, struct error *err)
{
	char *line;

	drop_carriage_returns(text);
	for (int number = 1; (line = next_line(&text, "\n")); number++) {
		char *key = line + strspn(line, BLANKS), *value;

		if (*key == '#')
			continue;
		value = grub_separator(key);
		if (!value) {
			r->entry.grub_stops_at = has_keys(text) ? number : 0;
			return 0;
		}
		*value++ = '\0';
		value += strspn(value, BLANKS);
		trim_end(value);
		if (take_key(r, key, value, err) < 0)
			return -1;
	}
	return 0;
}

static int check_kernel(const struct reading *r, struct error *err)
{
	if (r->entry.linux_path || r->entry.efi)
		return 0;
	if (!r->entry.grub_stops_at)
		return refuse(err, r->name, "it has neither 'linux' nor 'efi'");
	refuse(err, r->name, "it has neither 'linux' nor 'efi' for GRUB");
	return error_hint(err, "GRUB stops reading at line %d, since it is not 'key value'",
	                  r->entry.grub_stops_at);
}

static int parse(struct reading *r, const char *text, size_t size, struct error *err)
{
	CLEANUP_FREE char *copy = NULL;

	if (size > MAX_TEXT_BYTES)
		return refuse(err, r->name, "it is larger than 64 KiB");
	if (size > 0 && memchr(text, '\0', size))
		return refuse(err, r->name, "it has a NUL byte");
	copy = mem_copy(text, size);
	if ((r->as_grub ? read_by_grub(r, copy, err) : read_by_spec(r, copy, err)) < 0)
		return -1;
	return check_kernel(r, err);
}

static int parse_to(struct bls_entry *ret, struct reading r, const char *text, size_t size,
                    struct error *err)
{
	if (parse(&r, text, size, err) < 0) {
		bls_free(&r.entry);
		return -1;
	}
	*ret = r.entry;
	return 0;
}

int bls_parse(struct bls_entry *ret, const char *text, size_t size, const char *name,
              struct error *err)
{
	return parse_to(ret, (struct reading){.name = name}, text, size, err);
}

int bls_parse_as_grub(struct bls_entry *ret, const char *text, size_t size, const char *name,
                      struct error *err)
{
	return parse_to(ret, (struct reading){.name = name, .as_grub = true}, text, size, err);
}
