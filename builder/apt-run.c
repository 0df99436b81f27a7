/* SPDX-License-Identifier: Apache-2.0 */
/* Runs apt's programs in the image, and finds in what they say the lines that tell why. */
#include <string.h>

#include "apt-internal.h"

#define OUTPUT_PATH      APT_DIR "/output"
#define STATUS_PATH      APT_DIR "/output.status"
#define TAIL_PATH        APT_DIR "/output.tail"
#define TAIL_MAX_BYTES   ((size_t)1 << 20)
#define MAX_REASONS      14
#define MAX_REASON_BYTES 300
#define LINES_BEFORE     6 /* of a script that failed */

/*
 * A program's output goes to the log as it comes and to a file that is read afterwards. No pipe:
 * what a package's script left running would keep it open.
 */
static const char run_script[] = "o=$1; shift\n"
				 ": >\"$o\"\n"
				 "tail -f \"$o\" &\n"
				 "\"$@\" >>\"$o\" 2>&1 </dev/null\n"
				 "echo $? >\"$o.status\"\n"
				 "tail -c 1048576 \"$o\" >\"$o.tail\"\n"
				 "sleep 0.1\n"
				 "kill $!\n"
				 "exit 0\n";

void apt_run_free(struct apt_run *run)
{
	free(run->output);
	run->output = NULL;
}

int apt_capture(struct apt *apt, const struct strv *argv, char **ret, struct error *err)
{
	const struct guest_command command = {
		.argv = (const char *const *)argv->items,
		.env = (const char *const *)apt->env.items,
		.timeout_ms = APT_QUERY_MS,
		.ret_stdout = ret,
		.max_bytes = APT_QUERY_BYTES,
	};

	return rootfs_run(apt->root, &command, err);
}

static int read_results(struct apt *apt, struct apt_run *run, struct error *err)
{
	CLEANUP_FREE void *status = NULL;
	void *output = NULL;
	uint64_t code = 0;

	if (rootfs_read(apt->root, STATUS_PATH, 16, &status, NULL, err) < 0)
		return -1;
	if (str_parse_uint(str_trim(status), 255, &code) < 0)
		return error_set(err, "'%s' in the image holds no exit code", STATUS_PATH);
	if (rootfs_read(apt->root, TAIL_PATH, TAIL_MAX_BYTES, &output, NULL, err) < 0)
		return -1;
	run->exit = (int)code;
	run->output = output;
	return 0;
}

int apt_run(struct apt *apt, const struct strv *argv, struct apt_run *run, struct error *err)
{
	CLEANUP_STRV struct strv all = {0};
	struct guest_command command = {
		.env = (const char *const *)apt->env.items,
		.timeout_ms = run->timeout_ms,
		.network = run->network && apt->network,
	};

	strv_add(&all, "sh");
	strv_add(&all, "-c");
	strv_add(&all, run_script);
	strv_add(&all, argv->items[0]);
	strv_add(&all, OUTPUT_PATH);
	strv_add_all(&all, argv);
	command.argv = (const char *const *)all.items;
	if (rootfs_remove(apt->root, STATUS_PATH, err) < 0 ||
	    rootfs_run(apt->root, &command, err) < 0)
		return error_prefix(err, "cannot run '%s'", argv->items[0]);
	return read_results(apt, run, err);
}

static bool is_error_line(const char *line)
{
	return str_starts(line, "E: ") || str_starts(line, "W: ") || str_starts(line, "Err:") ||
	       str_starts(line, "dpkg: error") || str_starts(line, "dpkg-deb: error");
}

static void add_reason(struct strv *reasons, const char *line)
{
	CLEANUP_FREE char *shown = str_printable(line, MAX_REASON_BYTES);

	if (reasons->count < MAX_REASONS && !strv_has(reasons, shown))
		strv_add(reasons, shown);
}

/* Unmet dependencies: from their headline to the first line that is not indented. */
static void add_unmet(struct strv *reasons, const struct strv *lines)
{
	for (size_t i = 0; i < lines->count; i++) {
		if (!strstr(lines->items[i], "unmet dependencies"))
			continue;
		add_reason(reasons, lines->items[i]);
		for (i++; i < lines->count && lines->items[i][0] == ' '; i++)
			add_reason(reasons, lines->items[i]);
		return;
	}
}

/* What a script said before dpkg gave up on its package. */
static void add_script_words(struct strv *reasons, const struct strv *lines)
{
	size_t at = 0;

	while (at < lines->count && !str_starts(lines->items[at], "dpkg: error processing"))
		at++;
	if (at == lines->count)
		return;
	for (size_t i = at > LINES_BEFORE ? at - LINES_BEFORE : 0; i < lines->count && i < at + 2;
	     i++)
		add_reason(reasons, lines->items[i]);
}

char *apt_reasons(const char *output)
{
	CLEANUP_STRV struct strv lines = strv_split(output, "\r\n");
	CLEANUP_STRV struct strv reasons = {0};
	size_t first;

	add_script_words(&reasons, &lines);
	add_unmet(&reasons, &lines);
	for (size_t i = 0; i < lines.count; i++) {
		if (!is_error_line(lines.items[i]))
			continue;
		add_reason(&reasons, lines.items[i]);
		/* indented below it stands why, as below "Err:1 http://host suite" */
		while (i + 1 < lines.count && lines.items[i + 1][0] == ' ')
			add_reason(&reasons, lines.items[++i]);
	}
	first = lines.count > LINES_BEFORE ? lines.count - LINES_BEFORE : 0;
	if (reasons.count == 0)
		for (size_t i = first; i < lines.count; i++)
			add_reason(&reasons, lines.items[i]);
	return strv_join(&reasons, "\n  | ");
}

struct meaning {
	const char *words;
	enum exit_code code;
	const char *hint;
};

/* The first that fits: a lost network also makes indexes 'not signed'. */
static const struct meaning meanings[] = {
	{"esolving", EXIT_HOST, "check this host's network, or name a proxy"},
	{"ould not connect", EXIT_HOST, "check this host's network, or name a proxy"},
	{"ould not resolve", EXIT_HOST, "check this host's network, or name a proxy"},
	{"Unable to connect", EXIT_HOST, "check this host's network, or name a proxy"},
	{"onnection failed", EXIT_HOST, "check this host's network, or name a proxy"},
	{"onnection timed out", EXIT_HOST, "check this host's network, or name a proxy"},
	{"etwork is unreachable", EXIT_HOST, "check this host's network, or name a proxy"},
	{"reading from server", EXIT_HOST, "check this host's network, or name a proxy"},
	{"onnection reset", EXIT_HOST, "check this host's network, or name a proxy"},
	{"onnection closed", EXIT_HOST, "check this host's network, or name a proxy"},
	{"Hash Sum mismatch", EXIT_BUILD,
         "the mirror is being changed, or something on the way changes files: build again later"},
	{"unexpected size", EXIT_BUILD,
         "the mirror is being changed, or something on the way changes files: build again later"},
	{"No space left", EXIT_HOST, "free some space on this host, or in the image"},
	{"NO_PUBKEY", EXIT_INPUT,
         "the key that is named for this repository is not the one that "
         "signed it"},
	{"Missing key", EXIT_INPUT,
         "the key that is named for this repository is not the one that "
         "signed it"},
	{"signature", EXIT_INPUT, NULL},
	{"is not signed", EXIT_INPUT, NULL},
	{"404 ", EXIT_INPUT,
         "the server does not have it: check the URL and the suite; a mirror may "
         "need --apt-mirror=security=URL of its own"},
	{"does not have a Release file", EXIT_INPUT, "check the URL and the suite"},
	{"is expired", EXIT_INPUT, "the mirror is out of date, or this host's clock is wrong"},
	{"unmet dependencies", EXIT_INPUT, NULL},
	{"Unable to locate package", EXIT_INPUT, NULL},
	{"has no installation candidate", EXIT_INPUT, NULL},
	{"was not found", EXIT_INPUT, NULL},
};

int apt_run_failed(const struct apt_run *run, const char *what, struct error *err)
{
	CLEANUP_FREE char *reasons = apt_reasons(run->output);

	error_set(err, "cannot %s: exit code %d%s%s", what, run->exit,
	          *reasons ? "; apt said:\n  | " : "", reasons);
	for (size_t i = 0; i < sizeof(meanings) / sizeof(*meanings); i++) {
		if (!strstr(reasons, meanings[i].words))
			continue;
		if (meanings[i].hint)
			error_hint(err, "%s", meanings[i].hint);
		return error_code(err, meanings[i].code);
	}
	return -1;
}
