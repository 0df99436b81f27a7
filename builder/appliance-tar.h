/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trees and single files between a running appliance and descriptors. */
#ifndef GPUIMG_APPLIANCE_TAR_H
#define GPUIMG_APPLIANCE_TAR_H

#include <stdint.h>

#include "appliance.h"

/*
 * Packs all that is mounted as a pax tar into the descriptor, a pipe or a file: owners as numbers,
 * extended attributes (labels and ACLs among them); what /proc, /sys, /dev, /run and /tmp hold is
 * left out. It may take as long as it likes, but not be silent. A reader that went away is an error
 * that says so with EPIPE's text (SIGPIPE must be ignored).
 */
int appliance_tar_out(struct appliance *a, int fd, struct error *err);

/* For file systems that keep no owners, modes and links (FAT). A file's directory must exist; what
 * was there under its name is replaced. */
int appliance_put_dir(struct appliance *a, const char *path, struct error *err);
int appliance_put_file(struct appliance *a, const char *path, int fd, int64_t mtime_s,
                       struct error *err);
/* Of the file system that the path is on; what a file takes is a multiple of the cluster. */
int appliance_free_space(struct appliance *a, const char *path, uint64_t *ret_free_bytes,
                         uint64_t *ret_cluster_bytes, struct error *err);

#endif
