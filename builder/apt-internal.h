/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the apt module share. */
#ifndef GPUIMG_APT_INTERNAL_H
#define GPUIMG_APT_INTERNAL_H

#include "apt.h"

/* A line of sources.list(5), or a stanza of a .sources file. */
struct apt_source {
	bool deb822;
	struct strv uris, suites, components;
	char *signed_by; /* as it stands, or NULL */
	char *rest; /* options of the line, without brackets; or the stanza's other fields, whole
	             * lines. Signed-By is among them. NULL: none */
	bool own;   /* an archive of the distribution */
};

struct apt_sources {
	struct apt_source *items;
	size_t count;
};

struct apt_mirrors {
	char *all, *security; /* may be NULL */
};

struct apt {
	struct rootfs *root;
	struct log *log;
	char *work_dir;
	bool network;
	struct strv env; /* of all programs that we run */
	struct apt_sources sources;
	unsigned key_count;
	char *preferences; /* of apt_pin(); NULL: none */
	bool has_debs;
};

/* --- apt-conf.c --- */
/* The option's proxy is for both; else those of our environment, under their common names. */
struct apt_proxies {
	const char *http, *https, *none;
};
int apt_find_proxies(struct apt_proxies *ret, const char *option, struct error *err);
/* The environment of all that the session runs. */
void apt_set_env(struct apt *apt, const struct apt_proxies *proxies);
int apt_put_conf(struct apt *apt, const struct apt_proxies *proxies, struct error *err);
/* The image's own preferences, into the session. */
int apt_copy_pins(struct apt *apt, struct error *err);
/* Whether our settings hold against those of the image. */
int apt_check_conf(struct apt *apt, struct error *err);
int apt_write_text(struct apt *apt, const char *path, const char *text, struct error *err);

/* --- apt-sources.c --- */
void apt_source_free(struct apt_source *source);
void apt_sources_free(struct apt_sources *sources);
#define CLEANUP_APT_SOURCE  CLEANUP(apt_source_free)
#define CLEANUP_APT_SOURCES CLEANUP(apt_sources_free)
/* Adds what the text holds; 'path' is for messages, its ending tells the kind. */
int apt_sources_parse(struct apt_sources *sources, const char *text, const char *path,
                      struct error *err);
/* All source files of the image. */
int apt_sources_read(struct apt_sources *sources, struct rootfs *root, struct error *err);
/* Takes ownership of what the source holds. */
void apt_sources_add(struct apt_sources *sources, struct apt_source *source);
/* A text that grows; NULL is an empty one. */
void apt_append(char **text, const char *more);

/* --- apt-mirrors.c --- */
/* Sets 'own'. */
void apt_sources_judge(struct apt_sources *sources, const char *distribution);
int apt_mirrors_parse(struct apt_mirrors *ret, const struct strv *options, struct error *err);
void apt_mirrors_free(struct apt_mirrors *mirrors);
#define CLEANUP_APT_MIRRORS CLEANUP(apt_mirrors_free)
void apt_sources_rewrite(struct apt_sources *sources, const struct apt_mirrors *mirrors);
/* Takes out entries that say the same URI and suite as this one. */
void apt_sources_replace(struct apt_sources *sources, const struct apt_source *by);
/* The texts of a .list and of a .sources file; owned by the caller. */
char *apt_sources_lines(const struct apt_sources *sources);
char *apt_sources_stanzas(const struct apt_sources *sources);

/* --- apt-keys.c --- */
/* An http(s) URL with nothing in it that would end a word or a string of apt's files. */
bool apt_url_is_sane(const char *url);
int apt_add_repository(struct apt *apt, const char *line, struct error *err);
/* Checks a key file of this host; *ret_key: the key's own bytes, dearmored. */
int apt_key_check(const char *path, const char *fingerprint, const char *work_dir, struct log *log,
                  void **ret_key, size_t *ret_size, struct error *err);
/* From the output of gpg --with-colons --show-keys. 'name' is for messages. */
int apt_key_judge(const char *colons, const char *fingerprint, const char *name, struct error *err);

/* --- apt-run.c --- */
#define APT_QUERY_MS    (5 * 60 * 1000)
#define APT_UPDATE_MS   (10 * 60 * 1000)
#define APT_INSTALL_MS  (60 * 60 * 1000)
#define APT_QUERY_BYTES ((size_t)64 << 20)

/* What a program writes to stdout; its stderr goes to the log. A non-zero exit is an error. */
int apt_capture(struct apt *apt, const struct strv *argv, char **ret, struct error *err);
struct apt_run {
	bool network;
	unsigned timeout_ms;
	char *output; /* stdout and stderr, the last MiB of it */
	int exit;
};
/* Runs to the end, whatever the exit code; the log sees the lines as they come. */
int apt_run(struct apt *apt, const struct strv *argv, struct apt_run *run, struct error *err);
void apt_run_free(struct apt_run *run);
#define CLEANUP_APT_RUN CLEANUP(apt_run_free)
/* "cannot WHAT: " with apt's own words, the exit code that they mean, and a hint. */
int apt_run_failed(const struct apt_run *run, const char *what, struct error *err);
/* The lines of an output that say why it failed. */
char *apt_reasons(const char *output);

/* --- apt-query.c --- */
/* "NAME" or "NAME=VERSION", and nothing that apt could take for something else. */
int apt_check_names(const struct strv *names, bool versions, struct error *err);
/* The next paragraph, as a copy, or NULL at the end. */
char *apt_next_stanza(const char **at);
/* From apt-cache policy: the candidate (NULL: none) and the version table. */
void apt_parse_policy(const char *text, char **ret_candidate, struct strv *ret_table);
/* From apt-cache show and the table. */
void apt_parse_versions(const char *show, const char *candidate, const struct strv *table,
                        struct apt_version **ret, size_t *ret_count);

/* --- apt-transaction.c --- */
int apt_parse_simulation(const char *text, struct apt_transaction *ret, struct error *err);
void apt_parse_uris(const char *text, struct apt_transaction *t);
void apt_parse_show(const char *text, struct apt_transaction *t);

/* --- apt-install.c --- */
/* Also undone by apt_close(), if a failure left it. */
int apt_restore_policy(struct apt *apt, struct error *err);

#endif
