/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "proc.h"
#include "str.h"
#include "tools.h"

#define VERSION_TIMEOUT_MS 20000
#define OUTPUT_MAX_BYTES   65536

char *tools_version(const char *program)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *out = NULL;
	const char *const argv[] = {program, "--version", NULL};
	const struct proc_options options = {.timeout_ms = VERSION_TIMEOUT_MS};

	if (proc_run(argv, &options, &out, OUTPUT_MAX_BYTES, &ignored) < 0)
		return NULL;
	out[strcspn(out, "\n")] = '\0';
	return STEAL(out);
}

char *tools_cpu(void)
{
	static const char *const wanted[] = {"vendor_id", "cpu family", "model", "stepping",
	                                     "microcode"};
	CLEANUP_FCLOSE FILE *file = fopen("/proc/cpuinfo", "re");
	CLEANUP_STRV struct strv found = {0};
	char line[1024];

	/* An empty line ends the first processor. */
	while (file && fgets(line, sizeof(line), file) && *line != '\n') {
		size_t name = strcspn(line, "\t:");

		line[strcspn(line, "\n")] = '\0';
		for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
			if (strlen(wanted[i]) == name && strncmp(line, wanted[i], name) == 0)
				strv_add(&found, line);
	}
	return strv_join(&found, ";");
}
