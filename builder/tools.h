/* SPDX-License-Identifier: Apache-2.0 */
/* Which programs of the host, and which processor, a result was made with. */
#ifndef GPUIMG_TOOLS_H
#define GPUIMG_TOOLS_H

/* First line of 'PROGRAM --version'; NULL if it does not say. Owned by the caller. */
char *tools_version(const char *program);
/* Vendor, family, model, stepping and microcode of the first processor, as in /proc/cpuinfo;
 * "" if they cannot be read. Owned by the caller. */
char *tools_cpu(void);

#endif
