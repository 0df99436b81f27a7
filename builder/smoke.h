/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boot test as build and boot use it: for each firmware, the image and (as the control) its
 * base, side by side under the same firmware; verdicts gathered to one.
 */
#ifndef GPUIMG_SMOKE_H
#define GPUIMG_SMOKE_H

#include <jansson.h>

#include "boot.h"
#include "cache.h"
#include "error.h"
#include "options.h"

struct smoke {
	const struct options *options;
	const char *image, *image_format;
	const char *control, *control_format; /* NULL: no pair */
	struct strv firmware;
	const struct strv *params; /* expected in /proc/cmdline */
	bool kvm;
	bool driver; /* the image (not the control) has NVIDIA's driver, which shall load */
	/* Boots are taken from here, those that passed are put there, by the SHA-256 of what was
	 * booted. A NULL digest: that one is booted in any case. */
	struct cache *cache; /* may be NULL */
	const char *image_sha256, *control_sha256;
	const char *work_dir, *data_dir;
	const char
		*console_prefix; /* "<prefix>.<firmware>.<role>.log" keep the consoles; or NULL */
	struct log *log;
};

/*
 * The worst verdict over all firmwares; *ret_report is the JSON for manifest and --json. The
 * image's console goes to the options' console file if they name one; with several firmwares
 * ".<firmware>" is added to that name. The console of a stalled first try is "<name>.stalled".
 */
int smoke_run(const struct smoke *s, enum verdict *ret_verdict, json_t **ret_report,
              struct error *err);
/* For people: a line for each firmware, with the BAR's address before and after, and one for the
 * driver. */
void smoke_print(const json_t *report, struct log *log);

#endif
