/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs an apt session in a root of a tar, in the sandbox, step by step as its arguments say, and
 * prints what came of it: for tests/image/apt.bats, which makes roots of several releases.
 *
 *   apt-try ROOT.tar WORK-DIR [OPTION...] STEP...
 *
 * WORK-DIR/tree is made from the tar, WORK-DIR/log is the log. The session is closed at the end,
 * also after a step that failed; then every path that differs from before the session is printed.
 */
#include <string.h>

#include "builder/apt.h"
#include "builder/driver-hold.h"
#include "try-root.h"

#define TREE_MAX_BYTES ((uint64_t)8 << 30)

struct session {
	struct strv mirrors, repositories;
	const char *proxy;
	bool offline;
	struct try_root in;
	struct apt *apt;
	struct log *log;
};

static int do_versions(struct session *s, const char *arg, struct error *err)
{
	struct apt_version *versions = NULL;
	size_t count = 0;

	if (apt_versions(s->apt, arg, &versions, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		CLEANUP_FREE char *depends = strv_join(&versions[i].depends, "; ");

		printf("version %s %s (%s) %s\n", arg, versions[i].version, depends,
		       versions[i].description);
	}
	printf("versions %s %zu\n", arg, count);
	apt_versions_free(versions, count);
	return 0;
}

static int do_names(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (apt_names(s->apt, arg, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++)
		printf("name %s\n", names.items[i]);
	return 0;
}

static int do_simulate(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_STRV struct strv names = strv_split(arg, ",");
	CLEANUP_APT_TRANSACTION struct apt_transaction t = {0};

	if (apt_simulate(s->apt, &names, &t, err) < 0)
		return -1;
	for (size_t i = 0; i < t.count; i++)
		printf("item %s %s from %s %llu %s\n", t.items[i].name,
		       t.items[i].removed ? "(removed)" : t.items[i].version,
		       t.items[i].old_version ? t.items[i].old_version : "(new)",
		       (unsigned long long)t.items[i].download_bytes,
		       t.items[i].sha256 ? t.items[i].sha256 : "-");
	printf("transaction %zu %llu %llu\n", t.count, (unsigned long long)t.download_bytes,
	       (unsigned long long)t.installed_bytes);
	return 0;
}

static int do_install(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_STRV struct strv names = strv_split(arg, ",");

	return apt_install(s->apt, &names, err);
}

static int do_purge(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_STRV struct strv names = strv_split(arg, ",");

	return apt_purge(s->apt, &names, err);
}

static int do_hold(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_STRV struct strv names = strv_split(arg, ",");

	return driver_hold(s->in.root, &names, err);
}

static int do_components(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_STRV struct strv names = strv_split(arg, ",");

	return apt_add_components(s->apt, &names, err);
}

static int do_debs(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_STRV struct strv digests = {0};

	if (apt_add_debs(s->apt, arg, &digests, err) < 0)
		return -1;
	for (size_t i = 0; i < digests.count; i++)
		printf("deb %s\n", digests.items[i]);
	return 0;
}

/* URL,SUITE,COMPONENTS,FINGERPRINT,KEY: a path or a URL; components may be empty */
static int do_pinned(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_FREE char *copy = str_copy(arg);
	char *fields[5] = {0}, *save = copy;
	bool url;

	for (int i = 0; i < 5 && save; i++)
		fields[i] = strsep(&save, ",");
	if (!fields[4])
		return error_set(err, "--pinned wants five fields");
	url = strstr(fields[4], "://") != NULL;
	return apt_add_pinned(s->apt,
	                      &(struct apt_pinned){.url = fields[0],
	                                           .suite = fields[1],
	                                           .components = *fields[2] ? fields[2] : NULL,
	                                           .fingerprint = fields[3],
	                                           .key_url = url ? fields[4] : NULL,
	                                           .key_path = url ? NULL : fields[4]},
	                      err);
}

/* GLOB,VERSIONS */
static int do_pin(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_STRV struct strv words = strv_split(arg, ",");

	if (words.count != 2)
		return error_set(err, "--pin wants two words");
	return apt_pin(s->apt, words.items[0], words.items[1], err);
}

/* A stub that tells of its calls in /stub-ran. */
static int do_stub(struct session *s, const char *arg, struct error *err)
{
	return apt_stub(s->apt, arg, "#!/bin/sh\necho \"$0 $*\" >>/stub-ran\n", err);
}

static int do_update(struct session *s, const char *arg, struct error *err)
{
	(void)arg;
	return apt_update(s->apt, err);
}

static int do_cat(struct session *s, const char *arg, struct error *err)
{
	CLEANUP_FREE void *text = NULL;

	if (rootfs_read(s->in.root, arg, 1 << 20, &text, NULL, err) < 0)
		return -1;
	fputs(text, stdout);
	return 0;
}

struct step {
	const char *name;
	bool has_value;
	int (*run)(struct session *s, const char *value, struct error *err);
};

static const struct step steps[] = {
	{"--components", true, do_components},
	{"--pinned", true, do_pinned},
	{"--debs", true, do_debs},
	{"--pin", true, do_pin},
	{"--stub", true, do_stub},
	{"--update", false, do_update},
	{"--versions", true, do_versions},
	{"--names", true, do_names},
	{"--simulate", true, do_simulate},
	{"--install", true, do_install},
	{"--purge", true, do_purge},
	{"--hold", true, do_hold},
	{"--cat", true, do_cat},
};

static int run_step(struct session *s, const char *arg, struct error *err)
{
	const char *equals = strchr(arg, '=');
	size_t length = equals ? (size_t)(equals - arg) : strlen(arg);

	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		if (strlen(steps[i].name) == length && strncmp(arg, steps[i].name, length) == 0 &&
		    steps[i].has_value == (equals != NULL))
			return steps[i].run(s, equals ? equals + 1 : NULL, err);
	error_set(err, "unknown step '%s'", arg);
	return error_code(err, EXIT_USAGE);
}

static bool take_option(struct session *s, const char *arg)
{
	if (str_starts(arg, "--mirror="))
		strv_add(&s->mirrors, arg + 9);
	else if (str_starts(arg, "--repository="))
		strv_add(&s->repositories, arg + 13);
	else if (str_starts(arg, "--proxy="))
		s->proxy = arg + 8;
	else if (str_equal(arg, "--offline"))
		s->offline = true;
	else
		return false;
	return true;
}

static int make_tree(struct session *s, const char *tar, const char *work_dir, struct error *err)
{
	CLEANUP_FREE char *dir = str_format("%s/tree", work_dir);

	if (try_root_unpack(&s->in, tar, TREE_MAX_BYTES, dir, s->log, err) < 0)
		return -1;
	return try_root_open(&s->in, dir, "builder", s->log, err);
}

static int run_all(struct session *s, const char *work_dir, char **args, struct error *err)
{
	const struct guest guest = {.id = (char[]){"debian"}};
	const struct apt_options options = {.root = s->in.root,
	                                    .guest = &guest,
	                                    .mirrors = &s->mirrors,
	                                    .repositories = &s->repositories,
	                                    .proxy = s->proxy,
	                                    .network = !s->offline,
	                                    .work_dir = work_dir,
	                                    .log = s->log};
	CLEANUP_ERROR struct error second = ERROR_INIT;
	int result = apt_open(&s->apt, &options, err);

	if (result < 0)
		return -1;
	while (result == 0 && *args)
		result = run_step(s, *args++, err);
	if (apt_close(s->apt, &second) < 0)
		return result < 0 ? -1 : error_take(err, &second);
	return result;
}

static int print_changes(struct session *s, struct error *err)
{
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_STRV struct strv removed = {0};

	if (tree_changes(s->in.tree, &changed, &removed, err) < 0)
		return -1;
	for (size_t i = 0; i < changed.count; i++)
		printf("changed %s\n", changed.items[i]);
	for (size_t i = 0; i < removed.count; i++)
		printf("removed %s\n", removed.items[i]);
	return 0;
}

static int open_log(struct log **ret, const char *work_dir, struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/log", work_dir);

	return log_open(ret, path, LOG_NORMAL, err);
}

int main(int argc, char **argv)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error second = ERROR_INIT;
	struct session s = {0};
	char **args = argv + 3;
	enum exit_code code = EXIT_OK;

	if (argc < 3)
		return EXIT_USAGE;
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (*args && take_option(&s, *args))
		args++;
	if (open_log(&s.log, argv[2], &err) < 0 || make_tree(&s, argv[1], argv[2], &err) < 0 ||
	    run_all(&s, argv[2], args, &err) < 0) {
		code = error_exit_code(&err);
		error_print(&err, s.log);
	}
	if (s.in.tree && print_changes(&s, &second) < 0)
		error_print(&second, s.log);
	apt_free(s.apt);
	try_root_free(&s.in);
	strv_free(&s.mirrors);
	strv_free(&s.repositories);
	log_close(s.log);
	return (int)code;
}
