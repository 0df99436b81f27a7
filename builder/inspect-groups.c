/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings for people: one line per problem. The proof says one thing of each entry and each
 * parameter; here "entry 'a': 'x' is missing" and "entry 'b': 'x' is missing" become one line
 * that names both, and so do several words of one sentence that is said of the same entries.
 */
#include <string.h>

#include "inspect-internal.h"

#define SHOWN_SUBJECTS 6
#define SHOWN_WORDS    12

enum subject_kind { NOTHING, ENTRY, KERNEL, INITRAMFS, PLACE };

/* What a sentence is about: its text begins with "name: ". */
struct subject {
	enum subject_kind kind;
	char *name;
};

struct subjects {
	struct subject *items;
	size_t count;
};

struct group {
	const struct finding *first;
	enum subject_kind kind;
	char *before, *after; /* of the quoted word; 'after' NULL: there is none */
	struct strv words;
	struct strv about;
	bool merged; /* into another one */
	bool lacks;  /* the words are what is not there */
};

struct groups {
	struct group *items;
	size_t count;
};

/* Findings are made printable when they are written down, so names are too. */
static void add_subject(struct subjects *s, enum subject_kind kind, char *name)
{
	CLEANUP_FREE char *owned = name;
	CLEANUP_FREE char *shown = str_printable(owned, 2000);

	for (size_t i = 0; i < s->count; i++)
		if (strcmp(s->items[i].name, shown) == 0)
			return;
	s->items = mem_grow(s->items, s->count + 1, sizeof(*s->items));
	s->items[s->count++] = (struct subject){.kind = kind, .name = STEAL(shown)};
}

static struct subjects find_subjects(const struct inspect *in)
{
	const json_t *files = json_object_get(in->facts, "initramfs");
	struct subjects s = {0};
	const json_t *item;
	size_t i;

	for (i = 0; i < in->chain.count; i++)
		add_subject(&s, ENTRY, bootchain_entry_name(&in->chain.entries[i]));
	for (i = 0; i < in->guest->kernel_count; i++)
		add_subject(
			&s, PLACE,
			str_format("kernel %s, root file system", in->guest->kernels[i].version));
	json_array_foreach(files, i, item)
	{
		const char *file = json_string_value(json_object_get(item, "file"));
		const char *kernel = json_string_value(json_object_get(item, "kernel"));

		add_subject(&s, INITRAMFS, str_format("'%s'", file));
		add_subject(&s, PLACE, str_format("kernel %s, '%s'", kernel, file));
	}
	return s;
}

/* The one with the longest name: a title may hold another one's. */
static const struct subject *subject_of(const struct subjects *s, const char *what)
{
	const struct subject *found = NULL;
	size_t longest = 0;

	for (size_t i = 0; i < s->count; i++) {
		size_t length = strlen(s->items[i].name);

		if (length > longest && strncmp(what, s->items[i].name, length) == 0 &&
		    strncmp(what + length, ": ", 2) == 0) {
			found = &s->items[i];
			longest = length;
		}
	}
	return found;
}

/* What is simply not there has a reason that differs from word to word: "'pci=nocrs' is missing",
 * "there is no 'module_blacklist='". To a person it is one sentence. */
static void unite_missing(struct group *g)
{
	static const char head[] = " is not in effect: ";
	const char *why = g->after && str_starts(g->after, head) ? g->after + strlen(head) : NULL;

	if (!why || strcmp(g->first->id, "cmdline.param") != 0 ||
	    !(str_ends(why, "missing") || str_starts(why, "there is no ")))
		return;
	free(g->before);
	free(g->after);
	g->before = str_copy("");
	g->after = str_copy("");
	g->lacks = true;
}

/* Splits a sentence around its first quoted word. */
static void split(struct group *g, const char *text)
{
	const char *open = strchr(text, '\'');
	const char *end = open ? strchr(open + 1, '\'') : NULL;

	if (!end) {
		g->before = str_copy(text);
		return;
	}
	g->before = mem_copy(text, (size_t)(open - text));
	g->after = str_copy(end + 1);
	strv_take(&g->words, mem_copy(open, (size_t)(end - open + 1)));
	unite_missing(g);
}

static bool same_list(const struct strv *a, const struct strv *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (strcmp(a->items[i], b->items[i]) != 0)
			return false;
	return true;
}

static bool same_sentence(const struct group *a, const struct group *b)
{
	return a->kind == b->kind && a->lacks == b->lacks &&
	       strcmp(a->first->id, b->first->id) == 0 &&
	       str_equal(a->first->cure, b->first->cure) && str_equal(a->before, b->before) &&
	       str_equal(a->after, b->after);
}

static void free_group(struct group *g)
{
	free(g->before);
	free(g->after);
	strv_free(&g->words);
	strv_free(&g->about);
}

static void add_finding(struct groups *all, const struct subjects *s, const struct finding *f)
{
	const struct subject *about = subject_of(s, f->what);
	struct group new = {.first = f, .kind = about ? about->kind : NOTHING};

	split(&new, about ? f->what + strlen(about->name) + 2 : f->what);
	if (about)
		strv_add(&new.about, about->name);
	for (size_t i = 0; about && i < all->count; i++) {
		struct group *g = &all->items[i];

		if (!same_sentence(g, &new) || !same_list(&g->words, &new.words))
			continue;
		if (!strv_has(&g->about, about->name))
			strv_add(&g->about, about->name);
		free_group(&new);
		return;
	}
	all->items = mem_grow(all->items, all->count + 1, sizeof(*all->items));
	all->items[all->count++] = new;
}

/* Groups that differ in the quoted word only. */
static void merge_words(struct groups *all)
{
	for (size_t i = 0; i < all->count; i++) {
		struct group *g = &all->items[i];

		for (size_t j = i + 1; j < all->count && g->after && !g->merged; j++) {
			struct group *other = &all->items[j];

			if (g->kind == NOTHING || other->merged || !same_sentence(g, other) ||
			    !same_list(&g->about, &other->about))
				continue;
			strv_add_all(&g->words, &other->words);
			other->merged = true;
		}
	}
}

/* What keeps a node from booting comes before what keeps its GPU from working. */
static size_t rank(const char *id)
{
	static const char *const order[] = {
		"kernel.",          "initramfs.present", "initramfs.whole", "cmdline.files",
		"cmdline.coverage", "cmdline.root",      "boot.",           "esp.",
		"initramfs.driver", "initramfs.version", "modules.",        "initramfs.",
		"cmdline.",         "driver.",           "identity."};
	size_t i = 0;

	while (i < sizeof(order) / sizeof(order[0]) && !str_starts(id, order[i]))
		i++;
	return i;
}

static size_t total_of(const struct subjects *s, enum subject_kind kind)
{
	size_t total = 0;

	for (size_t i = 0; i < s->count; i++)
		total += s->items[i].kind == kind;
	return total;
}

static char *join_some(const struct strv *v, size_t most, const char *between)
{
	struct strv some = {.items = v->items, .count = v->count < most ? v->count : most};
	CLEANUP_FREE char *text = strv_join(&some, between);

	if (v->count <= most)
		return STEAL(text);
	return str_format("%s%sand %zu more", text, between, v->count - most);
}

/* "all 4 entries", "3 of 4 entries (…; …)", "entry 'a'" */
static char *about_text(const struct group *g, const struct subjects *s)
{
	static const char *const plural[] = {[ENTRY] = "entries",
	                                     [KERNEL] = "kernels",
	                                     [INITRAMFS] = "initramfs files",
	                                     [PLACE] = "places"};
	size_t total = total_of(s, g->kind);
	CLEANUP_FREE char *names = join_some(&g->about, SHOWN_SUBJECTS, "; ");

	if (g->about.count == 0)
		return str_copy("");
	if (g->about.count == 1)
		return STEAL(names);
	if (g->about.count == total && g->kind == ENTRY)
		return str_format("all %zu %s", total, plural[g->kind]);
	if (g->about.count == total)
		return str_format("all %zu %s (%s)", total, plural[g->kind], names);
	return str_format("%zu of %zu %s (%s)", g->about.count, total, plural[g->kind], names);
}

static void print_group(const struct group *g, const struct subjects *s, FILE *to)
{
	static const char *const marks[] = {"ok", "note", "BAD"};
	CLEANUP_FREE char *about = about_text(g, s);
	CLEANUP_FREE char *words = join_some(&g->words, SHOWN_WORDS, ", ");

	const char *between = g->about.count == 0  ? ""
	                      : !g->lacks          ? ": "
	                      : g->about.count > 1 ? " lack "
	                                           : " lacks ";

	fprintf(to, "%-4s  %-20s %s%s%s%s%s\n", marks[g->first->verdict], g->first->id, about,
	        between, g->before, words, g->after ? g->after : "");
}

/* Once below all lines that it is for. */
static void print_cure(const struct group *g, const struct group *next, FILE *to)
{
	if (g && g->first->cure && (!next || !str_equal(g->first->cure, next->first->cure)))
		fprintf(to, "      %-20s cure: %s\n", "", g->first->cure);
}

static void print_all(const struct groups *all, const struct subjects *s, FILE *to)
{
	const struct group *last = NULL;
	size_t seen = 0;

	for (size_t r = 0; seen < all->count; r++)
		for (size_t i = 0; i < all->count; i++) {
			const struct group *g = &all->items[i];

			if (rank(g->first->id) != r)
				continue;
			seen++;
			if (g->merged)
				continue;
			print_cure(last, g, to);
			print_group(g, s, to);
			last = g;
		}
	print_cure(last, NULL, to);
}

void inspect_print_findings(const struct inspect *in, enum finding_verdict verdict, FILE *to)
{
	struct subjects s = find_subjects(in);
	struct groups all = {0};

	for (size_t i = 0; i < in->findings.count; i++)
		if (in->findings.items[i].verdict == verdict)
			add_finding(&all, &s, &in->findings.items[i]);
	merge_words(&all);
	print_all(&all, &s, to);
	for (size_t i = 0; i < all.count; i++)
		free_group(&all.items[i]);
	for (size_t i = 0; i < s.count; i++)
		free(s.items[i].name);
	free(all.items);
	free(s.items);
}
