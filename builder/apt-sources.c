/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image's own sources.list(5). An entry keeps its options as they stand; only what is changed
 * is taken apart, so that apt of any version finds the words that it knows.
 */
#include <string.h>
#include <strings.h>

#include "apt-internal.h"

#define SOURCES_DIR    "/etc/apt/sources.list.d"
#define SOURCES_LIST   "/etc/apt/sources.list"
#define FILE_MAX_BYTES ((size_t)1 << 20)
#define MAX_FILES      512
#define MAX_SOURCES    4096
#define BLANKS         " \t\r\n"

void apt_source_free(struct apt_source *s)
{
	strv_free(&s->uris);
	strv_free(&s->suites);
	strv_free(&s->components);
	free(s->signed_by);
	free(s->rest);
	*s = (struct apt_source){0};
}

void apt_sources_free(struct apt_sources *sources)
{
	for (size_t i = 0; i < sources->count; i++)
		apt_source_free(&sources->items[i]);
	free(sources->items);
	*sources = (struct apt_sources){0};
}

void apt_sources_add(struct apt_sources *sources, struct apt_source *source)
{
	sources->items = mem_grow(sources->items, sources->count + 1, sizeof(*sources->items));
	sources->items[sources->count++] = *source;
	*source = (struct apt_source){0};
}

static int refuse(struct error *err, const char *path, size_t line, const char *why)
{
	error_set(err, "cannot read the package sources in '%s', line %zu: %s", path, line, why);
	return error_code(err, EXIT_INPUT);
}

/* cdrom: asks for a disc, which the image has not. */
static void drop_cdroms(struct strv *uris)
{
	for (size_t i = uris->count; i-- > 0;)
		if (strncasecmp(uris->items[i], "cdrom:", 6) == 0)
			strv_remove(uris, i);
}

static int add_if_used(struct apt_sources *sources, struct apt_source *source, const char *path,
                       size_t line, struct error *err)
{
	if (sources->count >= MAX_SOURCES)
		return refuse(err, path, line, "the image has more than 4096 sources");
	drop_cdroms(&source->uris);
	if (source->uris.count > 0)
		apt_sources_add(sources, source);
	return 0;
}

/* The value of "signed-by=" among the options of a line. */
static char *option_signed_by(const char *options)
{
	CLEANUP_STRV struct strv words = strv_split(options, BLANKS);

	for (size_t i = 0; i < words.count; i++)
		if (strncasecmp(words.items[i], "signed-by=", 10) == 0)
			return str_copy(words.items[i] + 10);
	return NULL;
}

/* A '#' begins a comment, but not inside of [ ]. */
static void cut_comment(char *line)
{
	bool bracket = false;

	for (; *line; line++) {
		if (*line == '[')
			bracket = true;
		else if (*line == ']')
			bracket = false;
		else if (*line == '#' && !bracket)
			*line = '\0';
		if (!*line)
			return;
	}
}

/* "deb [options] uri suite component…", blanks at both ends gone. NULL, or what is wrong. */
static const char *parse_line(struct apt_source *ret, char *line)
{
	char *at = line + strcspn(line, BLANKS);
	CLEANUP_STRV struct strv words = {0};

	at += strspn(at, BLANKS);
	if (*at == '[') {
		char *end = strchr(at, ']');

		if (!end)
			return "a '[' without its ']'";
		*end = '\0';
		ret->rest = str_copy(str_trim(at + 1));
		ret->signed_by = option_signed_by(ret->rest);
		at = end + 1;
	}
	words = strv_split(at, BLANKS);
	if (words.count < 2)
		return "an entry without a URI and a suite";
	if (words.count == 2 && !str_ends(words.items[1], "/"))
		return "an entry without components";
	strv_add(&ret->uris, words.items[0]);
	strv_add(&ret->suites, words.items[1]);
	for (size_t i = 2; i < words.count; i++)
		strv_add(&ret->components, words.items[i]);
	return NULL;
}

static int parse_list(struct apt_sources *sources, char *text, const char *path, struct error *err)
{
	char *save = text;
	size_t number = 0;

	while (save) {
		CLEANUP_APT_SOURCE struct apt_source source = {0};
		char *line = strsep(&save, "\n");
		const char *wrong;

		number++;
		cut_comment(line);
		line = str_trim(line);
		if (strncmp(line, "deb", 3) != 0 || !strchr(BLANKS "[", line[3]) || !line[3]) {
			if (*line && strncmp(line, "deb-src", 7) != 0)
				return refuse(err, path, number, "an entry of an unknown type");
			continue;
		}
		/* "deb [a=b] cdrom:[A disc's name]/ …": blanks in the URI */
		if (strstr(line, "cdrom:"))
			continue;
		wrong = parse_line(&source, line);
		if (wrong)
			return refuse(err, path, number, wrong);
		if (add_if_used(sources, &source, path, number, err) < 0)
			return -1;
	}
	return 0;
}

struct stanza {
	struct apt_source source;
	struct strv types;
	bool disabled, any;
	size_t line;
};

static void stanza_free(struct stanza *s)
{
	apt_source_free(&s->source);
	strv_free(&s->types);
	*s = (struct stanza){0};
}

static bool is_no(const char *value)
{
	static const char *const words[] = {"no", "false", "without", "off", "disable", "0"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcasecmp(value, words[i]) == 0)
			return true;
	return false;
}

void apt_append(char **text, const char *more)
{
	char *all = str_format("%s%s", *text ? *text : "", more);

	free(*text);
	*text = all;
}

/* One field, of which 'raw' is all lines, whole, and 'value' what stands behind the colon. */
static void stanza_field(struct stanza *s, const char *name, const char *value, const char *raw)
{
	CLEANUP_FREE char *copy = str_copy(value);
	struct strv *lists[] = {&s->types, &s->source.uris, &s->source.suites,
	                        &s->source.components};
	static const char *const names[] = {"Types", "URIs", "Suites", "Components"};

	s->any = true;
	for (size_t i = 0; i < 4; i++) {
		if (strcasecmp(name, names[i]) == 0) {
			strv_free(lists[i]);
			*lists[i] = strv_split(value, BLANKS);
			return;
		}
	}
	if (strcasecmp(name, "Enabled") == 0) {
		s->disabled = is_no(str_trim(copy));
		return;
	}
	if (strcasecmp(name, "Signed-By") == 0) {
		free(s->source.signed_by);
		s->source.signed_by = str_copy(str_trim(copy));
	}
	apt_append(&s->source.rest, raw);
}

static int stanza_end(struct apt_sources *sources, struct stanza *s, const char *path,
                      struct error *err)
{
	const struct apt_source *source = &s->source;
	bool flat = true;

	if (!s->any || s->disabled || (s->types.count > 0 && !strv_has(&s->types, "deb")))
		return 0;
	if (s->types.count == 0)
		return refuse(err, path, s->line, "a stanza without Types");
	if (source->uris.count == 0 || source->suites.count == 0)
		return refuse(err, path, s->line, "a stanza without URIs and Suites");
	for (size_t i = 0; i < source->suites.count; i++)
		flat = flat && str_ends(source->suites.items[i], "/");
	if (!flat && source->components.count == 0)
		return refuse(err, path, s->line, "a stanza without Components");
	s->source.deb822 = true;
	return add_if_used(sources, &s->source, path, s->line, err);
}

/* All lines of the field that begins here, without comments between them; *at is moved on. */
static char *take_field(const char **at, size_t *number)
{
	char *raw = NULL;

	do {
		size_t length = strcspn(*at, "\n");
		CLEANUP_FREE char *line = str_format("%.*s\n", (int)length, *at);

		if (*line != '#')
			apt_append(&raw, line);
		*at += length + ((*at)[length] == '\n');
		++*number;
	} while (**at == ' ' || **at == '\t' || (**at == '#' && raw));
	return raw;
}

static bool is_blank_line(const char *at)
{
	at += strspn(at, " \t\r");
	return *at == '\n' || !*at;
}

static int parse_stanza(struct apt_sources *sources, const char **at, size_t *number,
                        const char *path, struct error *err)
{
	struct stanza s CLEANUP(stanza_free) = {.line = *number};

	while (**at && !is_blank_line(*at)) {
		CLEANUP_FREE char *raw = NULL;
		CLEANUP_FREE char *name = NULL;
		size_t length;

		if (**at == '#') {
			*at += strcspn(*at, "\n");
			*at += **at == '\n';
			++*number;
			continue;
		}
		length = strcspn(*at, ":\n");
		if ((*at)[length] != ':' || length == 0 || **at == ' ' || **at == '\t')
			return refuse(err, path, *number, "a line that is no field");
		name = mem_copy(*at, length);
		raw = take_field(at, number);
		stanza_field(&s, str_trim(name), raw + length + 1, raw);
	}
	return stanza_end(sources, &s, path, err);
}

static int parse_deb822(struct apt_sources *sources, const char *text, const char *path,
                        struct error *err)
{
	size_t number = 1;

	while (*text) {
		if (!is_blank_line(text)) {
			if (parse_stanza(sources, &text, &number, path, err) < 0)
				return -1;
			continue;
		}
		text += strcspn(text, "\n");
		text += *text == '\n';
		number++;
	}
	return 0;
}

int apt_sources_parse(struct apt_sources *sources, const char *text, const char *path,
                      struct error *err)
{
	CLEANUP_FREE char *copy = str_copy(text);

	return str_ends(path, ".sources") ? parse_deb822(sources, copy, path, err)
	                                  : parse_list(sources, copy, path, err);
}

static int read_file(struct apt_sources *sources, struct rootfs *root, const char *path,
                     struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	size_t size = 0;

	if (!rootfs_exists(root, path))
		return 0; /* a link to nowhere is none to apt either */
	if (rootfs_read(root, path, FILE_MAX_BYTES, &text, &size, err) < 0) {
		error_prefix(err, "cannot read the image's package sources");
		return error_code(err, EXIT_INPUT);
	}
	if (memchr(text, '\0', size))
		return refuse(err, path, 1, "it is no text");
	return apt_sources_parse(sources, text, path, err);
}

/* apt looks at no others. */
static bool is_source_file(const char *name)
{
	static const char known[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_-.";

	return *name != '.' && !name[strspn(name, known)] &&
	       (str_ends(name, ".list") || str_ends(name, ".sources"));
}

int apt_sources_read(struct apt_sources *sources, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (read_file(sources, root, SOURCES_LIST, err) < 0 ||
	    rootfs_list(root, SOURCES_DIR, &names, err) < 0)
		return -1;
	if (names.count > MAX_FILES)
		return refuse(err, SOURCES_DIR, 0, "more than 512 files");
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", SOURCES_DIR, names.items[i]);

		if (is_source_file(names.items[i]) && read_file(sources, root, path, err) < 0)
			return -1;
	}
	return 0;
}
