/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an installation comes to, before it is done. Three questions: apt-get -s says what happens,
 * --print-uris with which files, and apt-cache show how large they are once unpacked.
 */
#include <ctype.h>
#include <string.h>

#include "apt-internal.h"
#include "deb-file.h"

#define MAX_ITEMS 20000

void apt_transaction_free(struct apt_transaction *t)
{
	for (size_t i = 0; i < t->count; i++) {
		free(t->items[i].name);
		free(t->items[i].version);
		free(t->items[i].old_version);
		free(t->items[i].sha256);
	}
	free(t->items);
	*t = (struct apt_transaction){0};
}

static struct apt_item *add_item(struct apt_transaction *t)
{
	t->items = mem_grow(t->items, t->count + 1, sizeof(*t->items));
	t->items[t->count] = (struct apt_item){0};
	return &t->items[t->count++];
}

/* What stands between 'open' and one of 'close' right at *at, which is moved on. NULL: not that. */
static char *take_between(const char **at, char open, const char *close)
{
	const char *begin = *at + strspn(*at, " ");
	size_t length;

	if (*begin != open)
		return NULL;
	length = strcspn(++begin, close);
	if (length == 0 || !begin[length])
		return NULL;
	*at = begin + length + 1;
	return mem_copy(begin, length);
}

/* "Inst NAME [OLD] (NEW ORIGIN [ARCH])", "Remv NAME [OLD]", "Purg NAME [OLD]" */
static bool parse_line(const char *line, struct apt_transaction *t)
{
	bool inst = str_starts(line, "Inst ");
	const char *at = line + 5;
	size_t length;
	CLEANUP_FREE char *old = NULL;
	CLEANUP_FREE char *new = NULL;
	struct apt_item *item;

	if (!inst && !str_starts(line, "Remv ") && !str_starts(line, "Purg "))
		return true;
	length = strcspn(at, " ");
	if (length == 0)
		return false;
	line = at;
	at += length;
	old = take_between(&at, '[', "]");
	new = inst ? take_between(&at, '(', " )") : NULL;
	if (inst ? !new : !old)
		return false;
	item = add_item(t);
	item->name = mem_copy(line, length);
	item->version = STEAL(new);
	item->old_version = STEAL(old);
	item->removed = !inst;
	return true;
}

static int by_name(const void *a, const void *b)
{
	const struct apt_item *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : (int)y->removed - (int)x->removed;
}

int apt_parse_simulation(const char *text, struct apt_transaction *ret, struct error *err)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\r\n");
	CLEANUP_APT_TRANSACTION struct apt_transaction t = {0};

	for (size_t i = 0; i < lines.count; i++) {
		CLEANUP_FREE char *shown = NULL;

		if (t.count < MAX_ITEMS && parse_line(lines.items[i], &t))
			continue;
		shown = str_printable(lines.items[i], 200);
		return error_set(err, "cannot read what apt would do: '%s'", shown);
	}
	if (t.count > 0)
		qsort(t.items, t.count, sizeof(*t.items), by_name);
	*ret = t;
	t = (struct apt_transaction){0};
	return 0;
}

/* A name as apt-get prints it may carry a foreign architecture: "libc6:i386". */
static bool is_called(const struct apt_item *item, const char *name, size_t length)
{
	return strncmp(item->name, name, length) == 0 &&
	       (!item->name[length] || item->name[length] == ':');
}

static struct apt_item *find_item(struct apt_transaction *t, const char *name, const char *version)
{
	for (size_t i = 0; i < t->count; i++)
		if (!t->items[i].removed && is_called(&t->items[i], name, strlen(name)) &&
		    str_equal(t->items[i].version, version))
			return &t->items[i];
	return NULL;
}

static bool is_sha256(const char *s)
{
	return strlen(s) == 64 && !s[strspn(s, "0123456789abcdef")];
}

static int hex_digit(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* In place: "1%3a2.0" */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		bool coded = s[0] == '%' && isxdigit((unsigned char)s[1]) &&
		             isxdigit((unsigned char)s[2]);

		*to = (char)(coded ? hex_digit(s[1]) << 4 | hex_digit(s[2]) : *s);
		s += coded ? 2 : 0;
	}
	*to = '\0';
}

/* "'URI' NAME_VERSION_ARCH.deb SIZE HASH" */
static void parse_uri(const char *line, struct apt_transaction *t)
{
	const char *end = strrchr(line, '\'');
	CLEANUP_STRV struct strv words = strv_split(end && end > line ? end + 1 : "", " ");
	CLEANUP_STRV struct strv parts = {0};
	struct apt_item *item;
	uint64_t size = 0;

	if (*line != '\'' || words.count < 2)
		return;
	parts = strv_split(words.items[0], "_");
	if (parts.count < 3 || str_parse_uint(words.items[1], (uint64_t)1 << 50, &size) < 0)
		return;
	unescape(parts.items[1]);
	item = find_item(t, parts.items[0], parts.items[1]);
	if (!item)
		return;
	item->download_bytes = size;
	if (words.count > 2 && str_starts(words.items[2], "SHA256:") &&
	    is_sha256(words.items[2] + 7) && !item->sha256)
		item->sha256 = str_copy(words.items[2] + 7);
}

void apt_parse_uris(const char *text, struct apt_transaction *t)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\r\n");

	for (size_t i = 0; i < lines.count; i++)
		parse_uri(lines.items[i], t);
}

static void take_stanza(const char *stanza, struct apt_transaction *t, bool *seen)
{
	CLEANUP_FREE char *name = deb_field(stanza, "Package", false);
	CLEANUP_FREE char *version = deb_field(stanza, "Version", false);
	CLEANUP_FREE char *sha256 = deb_field(stanza, "SHA256", false);
	CLEANUP_FREE char *size = deb_field(stanza, "Size", false);
	CLEANUP_FREE char *installed = deb_field(stanza, "Installed-Size", false);
	struct apt_item *item = name && version ? find_item(t, name, version) : NULL;
	uint64_t kib = 0;

	if (!item || seen[item - t->items])
		return;
	seen[item - t->items] = true;
	if (!item->sha256 && sha256 && is_sha256(sha256))
		item->sha256 = str_copy(sha256);
	if (item->download_bytes == 0 && size)
		str_parse_uint(size, (uint64_t)1 << 50, &item->download_bytes);
	if (installed && str_parse_uint(installed, (uint64_t)1 << 40, &kib) == 0)
		t->installed_bytes += kib * 1024;
}

void apt_parse_show(const char *text, struct apt_transaction *t)
{
	CLEANUP_FREE bool *seen = mem_alloc(t->count + 1);
	const char *at = text;
	char *stanza;

	while ((stanza = apt_next_stanza(&at))) {
		take_stanza(stanza, t, seen);
		free(stanza);
	}
	t->download_bytes = 0;
	for (size_t i = 0; i < t->count; i++)
		t->download_bytes += t->items[i].download_bytes;
}

static int ask_sizes(struct apt *apt, const struct strv *install, struct apt_transaction *t,
                     struct error *err)
{
	CLEANUP_STRV struct strv uris =
		strv_split("apt-get -qq -y --no-install-recommends --print-uris install --", " ");
	CLEANUP_STRV struct strv show = strv_split("apt-cache show --no-all-versions --", " ");
	CLEANUP_FREE char *uris_text = NULL;
	CLEANUP_FREE char *show_text = NULL;
	size_t before = show.count;

	strv_add_all(&uris, install);
	for (size_t i = 0; i < t->count; i++)
		if (!t->items[i].removed)
			strv_addf(&show, "%s=%s", t->items[i].name, t->items[i].version);
	if (show.count == before)
		return 0;
	if (apt_capture(apt, &uris, &uris_text, err) < 0 ||
	    apt_capture(apt, &show, &show_text, err) < 0)
		return error_prefix(err, "cannot ask how large packages are");
	apt_parse_uris(uris_text, t);
	apt_parse_show(show_text, t);
	return 0;
}

int apt_simulate(struct apt *apt, const struct strv *install, struct apt_transaction *ret,
                 struct error *err)
{
	CLEANUP_STRV struct strv argv =
		strv_split("apt-get -q -s -y --no-install-recommends install --", " ");
	CLEANUP_APT_RUN struct apt_run run = {.timeout_ms = APT_QUERY_MS};
	CLEANUP_APT_TRANSACTION struct apt_transaction t = {0};

	if (apt_check_names(install, true, err) < 0)
		return -1;
	strv_add_all(&argv, install);
	if (apt_run(apt, &argv, &run, err) < 0)
		return -1;
	if (run.exit != 0) {
		CLEANUP_FREE char *names = strv_join(install, " ");
		CLEANUP_FREE char *shown = str_printable(names, 300);
		CLEANUP_FREE char *what = str_format("install %s", shown);

		apt_run_failed(&run, what, err);
		return error_code(err, EXIT_INPUT);
	}
	if (apt_parse_simulation(run.output, &t, err) < 0 ||
	    (install->count > 0 && ask_sizes(apt, install, &t, err) < 0))
		return -1;
	*ret = t;
	t = (struct apt_transaction){0};
	return 0;
}
