/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "driver-command.h"

#define OUTPUT_MAX_BYTES (16UL * 1024 * 1024)
#define LOG_MAX_BYTES    (64UL * 1024 * 1024)
#define TAIL_LINES       15
#define LINE_MAX_LENGTH  300
#define EXIT_MARK        "\ngpuimg-exit "

/* The backends tell a failure, but not its number. Nothing of the image stands in this text. */
static const char script[] = "\"$@\" 2>&1; printf '\\ngpuimg-exit %d\\n' \"$?\"";

/* Cuts the mark off; what a program writes itself stands before it. */
static int take_status(char *output, int *ret, struct error *err)
{
	char *mark = NULL, *next = output;
	uint64_t status = 0;

	while ((next = strstr(next, EXIT_MARK)))
		mark = next++;
	if (!mark)
		return error_set(err, "its shell did not come to the end");
	if (str_parse_uint(str_trim(mark + strlen(EXIT_MARK)), 255, &status) < 0)
		return error_set(err, "its shell wrote no exit code");
	*mark = '\0';
	*ret = (int)status;
	return 0;
}

int driver_command(struct rootfs *root, const char *const *argv, const char *const *env,
                   unsigned timeout_ms, struct log *log, char **ret_output, int *ret_status,
                   struct error *err)
{
	CLEANUP_STRV struct strv shell = {0};
	CLEANUP_FREE char *output = NULL;
	struct guest_command c = {.env = env,
	                          .timeout_ms = timeout_ms,
	                          .ret_stdout = &output,
	                          .max_bytes = OUTPUT_MAX_BYTES};

	strv_add(&shell, "sh");
	strv_add(&shell, "-c");
	strv_add(&shell, script);
	strv_add(&shell, "sh");
	for (const char *const *arg = argv; *arg; arg++)
		strv_add(&shell, *arg);
	c.argv = (const char *const *)shell.items;
	if (rootfs_run(root, &c, err) < 0 || take_status(output, ret_status, err) < 0)
		return error_prefix(err, "cannot run '%s' in the image", argv[0]);
	log_raw(log, output, strlen(output));
	log_raw(log, "\n", 1);
	*ret_output = STEAL(output);
	return 0;
}

/* Where the last lines begin; a newline at the very end ends a line, and begins none. */
static const char *tail_of(const char *text)
{
	const char *at = text + strlen(text);
	unsigned lines = 0;

	while (at > text && (at[-1] == '\n' || at[-1] == '\r'))
		at--;
	for (; at > text; at--)
		if (at[-1] == '\n' && ++lines == TAIL_LINES)
			break;
	return at;
}

char *driver_log_tail(const char *text)
{
	CLEANUP_STRV struct strv lines = strv_split(tail_of(text), "\r\n");
	CLEANUP_STRV struct strv shown = {0};

	for (size_t i = 0; i < lines.count; i++) {
		CLEANUP_FREE char *line = str_printable(lines.items[i], LINE_MAX_LENGTH);

		strv_addf(&shown, "\n  | %s", line);
	}
	return strv_join(&shown, "");
}

char *driver_log_file_tail(struct rootfs *root, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	void *text = NULL;
	char *tail;

	if (!rootfs_exists(root, path) ||
	    rootfs_read(root, path, LOG_MAX_BYTES, &text, NULL, &ignored) < 0)
		return str_copy("");
	tail = driver_log_tail(text);
	free(text);
	return tail;
}

bool driver_log_says_full(const char *text)
{
	return strstr(text, "No space left on device") || strstr(text, "Disk quota exceeded");
}
