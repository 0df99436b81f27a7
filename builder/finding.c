/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "finding.h"
#include "json-text.h"
#include "str.h"

static void add(struct findings *f, enum finding_verdict verdict, const char *id, const char *cure,
                const char *format, va_list args)
{
	CLEANUP_FREE char *text = str_vformat(format, args);

	f->items = mem_grow(f->items, f->count + 1, sizeof(*f->items));
	f->items[f->count++] = (struct finding){
		.verdict = verdict,
		.id = str_copy(id),
		.what = str_printable(text, 2000), /* it may quote the guest */
		.cure = str_copy(cure),
	};
	if (verdict == FINDING_BAD)
		f->bad++;
}

void finding_ok(struct findings *f, const char *id, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(f, FINDING_OK, id, NULL, format, args);
	va_end(args);
}

void finding_note(struct findings *f, const char *id, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(f, FINDING_NOTE, id, NULL, format, args);
	va_end(args);
}

void finding_bad(struct findings *f, const char *id, const char *cure, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(f, FINDING_BAD, id, cure, format, args);
	va_end(args);
}

void finding_vlack(struct findings *f, bool wanted, const char *id, const char *cure,
                   const char *format, va_list args)
{
	add(f, wanted ? FINDING_BAD : FINDING_NOTE, id, wanted ? cure : NULL, format, args);
}

void finding_lack(struct findings *f, bool wanted, const char *id, const char *cure,
                  const char *format, ...)
{
	va_list args;

	va_start(args, format);
	finding_vlack(f, wanted, id, cure, format, args);
	va_end(args);
}

json_t *findings_json(const struct findings *f)
{
	static const char *const names[] = {"ok", "note", "bad"};
	json_t *list = json_array();

	for (size_t i = 0; i < f->count; i++) {
		const struct finding *item = &f->items[i];
		json_t *object = json_pack("{s:s, s:o, s:o}", "verdict", names[item->verdict], "id",
		                           json_text(item->id), "what", json_text(item->what));

		if (item->cure)
			json_object_set_new(object, "cure", json_text(item->cure));
		json_array_append_new(list, object);
	}
	return list;
}

void findings_log(const struct findings *f, struct log *log)
{
	for (size_t i = 0; i < f->count; i++) {
		const struct finding *item = &f->items[i];

		if (item->verdict == FINDING_BAD)
			log_warn(log, "%s: %s%s%s", item->id, item->what,
			         item->cure ? "; cure: " : "", item->cure ? item->cure : "");
		else if (item->verdict == FINDING_NOTE)
			log_note(log, "%s: %s", item->id, item->what);
		else
			log_detail(log, "%s: %s", item->id, item->what);
	}
}

void findings_free(struct findings *f)
{
	for (size_t i = 0; i < f->count; i++) {
		free(f->items[i].id);
		free(f->items[i].what);
		free(f->items[i].cure);
	}
	free(f->items);
	*f = (struct findings){0};
}
