/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /etc/default/grub where no grub.d is read beside it (Enterprise Linux, Fedora, SUSE): the value
 * of one assignment is edited, since grubby and kernel hooks there look for that very line. It is a
 * shell file, but only plain assignments are understood; nothing is run.
 */
#ifndef GPUIMG_DEFAULT_GRUB_H
#define GPUIMG_DEFAULT_GRUB_H

#include "cmdline.h"
#include "error.h"
#include "str.h"

/*
 * Words of the value that 'name' has at the end (quotes and escapes taken off, what "+=" adds put
 * behind), empty if there is none. Error (EXIT_INPUT, with the line): a value with an expansion or
 * a command, an open quote, a here-document, an assignment that depends on a condition, a command
 * that may set it, unless a plain assignment comes later.
 */
int default_grub_get(struct strv *ret, const char *text, const char *name, const char *path,
                     struct error *err);
/*
 * The text with the last assignment of 'name' edited (added at the end, if there is none), in
 * double quotes as grubby writes it; every other byte stays, and all of them, if nothing is to do.
 * Words that double quotes do not hold ('"', '$', '`', '\') are escaped. If the last one is a "+=",
 * it becomes an assignment of the whole value. Twice gives the same as once. Errors as above.
 */
int default_grub_edit(char **ret, const char *text, const char *name,
                      const struct cmdline_edit *edit, const char *path, struct error *err);

#endif
