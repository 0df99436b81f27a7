/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a proof found out, point by point: each with a stable id, a verdict, what was seen and,
 * where it does not hold, the cure.
 */
#ifndef GPUIMG_FINDING_H
#define GPUIMG_FINDING_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "log.h"

enum finding_verdict { FINDING_OK, FINDING_NOTE, FINDING_BAD };

struct finding {
	enum finding_verdict verdict;
	char *id;   /* "initramfs.block", "cmdline.param"… */
	char *what; /* "'/boot/initrd.img-6.1': holds /etc/modprobe.d/… byte for byte" */
	char *cure; /* NULL unless bad */
};

struct findings {
	struct finding *items;
	size_t count;
	size_t bad;
};

void finding_ok(struct findings *f, const char *id, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void finding_note(struct findings *f, const char *id, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void finding_bad(struct findings *f, const char *id, const char *cure, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* What is lacking: bad where it is wanted, else a note, without the cure. */
void finding_lack(struct findings *f, bool wanted, const char *id, const char *cure,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));
void finding_vlack(struct findings *f, bool wanted, const char *id, const char *cure,
                   const char *format, va_list args) __attribute__((format(printf, 5, 0)));
json_t *findings_json(const struct findings *f);
/* Bad ones as warnings, notes as notes, the rest as detail. */
void findings_log(const struct findings *f, struct log *log);
void findings_free(struct findings *f);

#endif
