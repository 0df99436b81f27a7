/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of the image whose exit code is a fact (DKMS, NVIDIA's installer), not just good or bad,
 * and what their logs say.
 */
#ifndef GPUIMG_DRIVER_COMMAND_H
#define GPUIMG_DRIVER_COMMAND_H

#include "error.h"
#include "log.h"
#include "rootfs.h"

/*
 * Runs it to its end, without network. *ret_status: its exit code, 128 + N for a signal;
 * *ret_output (owned by the caller): what it wrote to stdout and stderr, which goes to the log too.
 * env may be NULL. -1: it could not be run, or the time was over.
 */
int driver_command(struct rootfs *root, const char *const *argv, const char *const *env,
                   unsigned timeout_ms, struct log *log, char **ret_output, int *ret_status,
                   struct error *err);
/* The last lines of a log, printable, each as "\n  | LINE": to stand at the end of a message. ""
 * for an empty one. Owned by the caller. */
char *driver_log_tail(const char *text);
/* Of a log file of the image; "" if it cannot be read. */
char *driver_log_file_tail(struct rootfs *root, const char *path);
/* Whether a log complains that a file system is full. */
bool driver_log_says_full(const char *text);

#endif
