/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repositories that the image does not have itself, and their keys. A pinned key is looked at by
 * the host's GnuPG before anything of the repository is asked for, and what is given to apt are the
 * very bytes that were looked at.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "apt-internal.h"
#include "download.h"
#include "fd.h"
#include "proc.h"
#include "tree.h"

#define KEY_MAX_BYTES ((size_t)1 << 20)
#define GPG_MS        60000
#define KEY_RETRIES   3
#define KEY_STALL_S   30
#define ARMOR         "-----BEGIN PGP "

static int usage(struct error *err, const char *format, const char *value)
{
	CLEANUP_FREE char *shown = str_printable(value, 300);

	error_set(err, format, shown);
	return error_code(err, EXIT_USAGE);
}

bool apt_url_is_sane(const char *url)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		"-._~:/?@!$&()*+,=%[]";
	const char *host = str_starts(url, "http://")    ? url + 7
	                   : str_starts(url, "https://") ? url + 8
	                                                 : "";

	return *host && *host != '/' && strlen(url) < 2048 && !url[strspn(url, allowed)];
}

static bool is_word(const char *s)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		"-._~+/";

	return *s && !s[strspn(s, allowed)];
}

static int read_key(const char *path, void **ret, size_t *ret_size, struct error *err)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CLEANUP_FREE char *data = mem_alloc(KEY_MAX_BYTES + 1);
	struct stat st;
	size_t size = 0;
	ssize_t n = 1;

	if (fd < 0 || fstat(fd, &st) < 0) {
		error_errno(err, errno, "cannot read the key file '%s'", path);
		return error_code(err, EXIT_USAGE);
	}
	while (S_ISREG(st.st_mode) && n > 0 && size <= KEY_MAX_BYTES) {
		n = read(fd, data + size, KEY_MAX_BYTES + 1 - size);
		if (n < 0)
			return error_errno(err, errno, "cannot read the key file '%s'", path);
		size += (size_t)n;
	}
	if (size == 0 || size > KEY_MAX_BYTES)
		return usage(err, "'%s' is no key file: empty, or larger than 1 MiB", path);
	*ret = STEAL(data);
	*ret_size = size;
	return 0;
}

static bool is_armored(const void *data, size_t size)
{
	return memmem(data, size, ARMOR, sizeof(ARMOR) - 1) != NULL;
}

/* apt tells the kinds apart by their endings; *ret is the path in the image. */
static int put_key(struct apt *apt, const void *data, size_t size, bool armored, char **ret,
                   struct error *err)
{
	CLEANUP_FREE char *path =
		str_format(APT_DIR "/keys/%u.%s", apt->key_count++, armored ? "asc" : "gpg");

	if (rootfs_write(apt->root, path, data, size, 0644, err) < 0)
		return -1;
	*ret = STEAL(path);
	return 0;
}

/* The options of a line, without signed-by; those that make a signature optional are refused. */
static int check_options(const struct apt_source *s, char **ret, struct error *err)
{
	CLEANUP_STRV struct strv words = strv_split(s->rest ? s->rest : "", " \t");

	for (size_t i = words.count; i-- > 0;) {
		const char *word = words.items[i];

		if (strncasecmp(word, "trusted", 7) == 0 || strncasecmp(word, "allow-", 6) == 0)
			return usage(err, "the option '%s' takes the signature from a repository",
			             word);
		if (strncasecmp(word, "signed-by", 9) == 0)
			strv_remove(&words, i);
	}
	*ret = strv_join(&words, " ");
	return 0;
}

static int check_repository(const struct apt_source *s, const char *line, struct error *err)
{
	if (!apt_url_is_sane(s->uris.items[0]))
		return usage(err, "'%s' is not the URL of a repository", s->uris.items[0]);
	for (size_t i = 0; i < s->components.count; i++)
		if (!is_word(s->components.items[i]))
			return usage(err, "'%s' is no component", s->components.items[i]);
	if (!is_word(s->suites.items[0]))
		return usage(err, "'%s' is no suite", s->suites.items[0]);
	if (!s->signed_by || s->signed_by[0] != '/') {
		usage(err, "the repository '%s' comes without its key", line);
		return error_hint(err,
		                  "deb [signed-by=/path/of/this/host/key.asc] URL SUITE COMPONENT");
	}
	return 0;
}

static int parse_repository(struct apt_sources *ret, const char *line, struct error *err)
{
	CLEANUP_ERROR struct error wrong = ERROR_INIT;

	if (!strchr(line, '\n') && apt_sources_parse(ret, line, "an option", &wrong) == 0 &&
	    ret->count == 1)
		return 0;
	usage(err, "'%s' is no line of sources.list(5)", line);
	return error_hint(err, "deb [signed-by=/path/of/this/host/key.asc] URL SUITE COMPONENT");
}

int apt_add_repository(struct apt *apt, const char *line, struct error *err)
{
	CLEANUP_APT_SOURCES struct apt_sources parsed = {0};
	CLEANUP_FREE char *options = NULL;
	CLEANUP_FREE char *path = NULL;
	CLEANUP_FREE void *key = NULL;
	struct apt_source *s;
	size_t size = 0;

	if (parse_repository(&parsed, line, err) < 0)
		return -1;
	s = parsed.items;
	if (check_repository(s, line, err) < 0 || check_options(s, &options, err) < 0 ||
	    read_key(s->signed_by, &key, &size, err) < 0 ||
	    put_key(apt, key, size, is_armored(key, size), &path, err) < 0)
		return -1;
	free(s->rest);
	s->rest = str_format("signed-by=%s%s%s", path, *options ? " " : "", options);
	apt_sources_replace(&apt->sources, s);
	apt_sources_add(&apt->sources, s);
	return 0;
}

static bool is_fingerprint(const char *s)
{
	return strlen(s) == 40 && !s[strspn(s, "0123456789abcdefABCDEF")];
}

/* Field n of a line of gpg's, from 1 on; owned by the caller. */
static char *colon_field(const char *line, unsigned n)
{
	while (--n > 0 && *line) {
		line += strcspn(line, ":");
		line += *line == ':';
	}
	return mem_copy(line, strcspn(line, ":"));
}

static int refuse_key(struct error *err, const char *name, const char *why)
{
	error_set(err, "cannot take the key '%s': %s", name, why);
	return error_code(err, EXIT_INPUT);
}

int apt_key_judge(const char *colons, const char *fingerprint, const char *name, struct error *err)
{
	CLEANUP_STRV struct strv lines = strv_split(colons, "\r\n");
	CLEANUP_FREE char *found = NULL;
	CLEANUP_FREE char *state = NULL;
	CLEANUP_FREE char *why = NULL;
	size_t keys = 0;

	for (size_t i = 0; i < lines.count; i++) {
		if (str_starts(lines.items[i], "pub:") && keys++ == 0)
			state = colon_field(lines.items[i], 2);
		if (str_starts(lines.items[i], "fpr:") && keys == 1 && !found)
			found = colon_field(lines.items[i], 10);
	}
	if (keys != 1 || !found)
		return refuse_key(err, name,
		                  keys > 1 ? "it holds more than one primary key"
		                           : "it holds no public key");
	if (fingerprint && strcasecmp(found, fingerprint) != 0) {
		CLEANUP_FREE char *shown = str_printable(found, 80);

		why = str_format("its fingerprint is %s, and %s was asked for", shown, fingerprint);
		return refuse_key(err, name, why);
	}
	if (str_equal(state, "r") || str_equal(state, "e"))
		return refuse_key(err, name, *state == 'r' ? "it is revoked" : "it has expired");
	return 0;
}

static int run_gpg(const char *home, const char *const *more, struct log *log, char **ret,
                   struct error *err)
{
	const char *argv[16] = {"gpg",       "--batch", "--no-options", "--no-autostart",
	                        "--homedir", home};
	const struct proc_options options = {.log = log, .timeout_ms = GPG_MS};
	size_t n = 6;

	while (*more && n + 1 < sizeof(argv) / sizeof(*argv))
		argv[n++] = *more++;
	return proc_run(argv, &options, ret, KEY_MAX_BYTES, err);
}

static int dearmor(const char *path, const char *home, const char *to, struct log *log,
                   struct error *err)
{
	const char *const argv[] = {"--output", to, "--dearmor", path, NULL};
	CLEANUP_FREE char *text = NULL;

	if (run_gpg(home, argv, log, &text, err) == 0)
		return 0;
	error_prefix(err, "cannot read the key '%s'", path);
	return error_code(err, EXIT_INPUT);
}

static int check_in(const char *home, const char *path, const char *fingerprint, struct log *log,
                    void **ret_key, size_t *ret_size, struct error *err)
{
	CLEANUP_FREE char *plain = str_format("%s/key.gpg", home);
	const char *const show[] = {"--with-colons", "--show-keys", plain, NULL};
	CLEANUP_FREE void *data = NULL;
	CLEANUP_FREE char *colons = NULL;
	CLEANUP_CLOSE int fd = -1;
	size_t size = 0;

	if (read_key(path, &data, &size, err) < 0)
		return -1;
	if (is_armored(data, size)) {
		free(steal_ptr(&data));
		if (dearmor(path, home, plain, log, err) < 0 ||
		    read_key(plain, &data, &size, err) < 0)
			return -1;
	} else {
		fd = open(plain, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 || fd_write_all(fd, data, size) < 0)
			return error_errno(err, errno, "cannot write '%s'", plain);
	}
	if (run_gpg(home, show, log, &colons, err) < 0) {
		error_prefix(err, "cannot read the key '%s'", path);
		return error_code(err, EXIT_INPUT);
	}
	if (apt_key_judge(colons, fingerprint, path, err) < 0)
		return -1;
	*ret_key = STEAL(data);
	*ret_size = size;
	return 0;
}

int apt_key_check(const char *path, const char *fingerprint, const char *work_dir, struct log *log,
                  void **ret_key, size_t *ret_size, struct error *err)
{
	CLEANUP_FREE char *home = str_format("%s/gpg.XXXXXX", work_dir);
	CLEANUP_ERROR struct error second = ERROR_INIT;
	int result;

	if (fingerprint && !is_fingerprint(fingerprint))
		return usage(err, "'%s' is no fingerprint of a key: 40 hex digits", fingerprint);
	if (!proc_have("gpg")) {
		error_set(err, "cannot check the key '%s': this host has no 'gpg'", path);
		error_hint(err, "install the package gpg");
		return error_code(err, EXIT_HOST);
	}
	if (!mkdtemp(home))
		return error_errno(err, errno, "cannot make a directory in '%s'", work_dir);
	result = check_in(home, path, fingerprint, log, ret_key, ret_size, err);
	if (tree_remove(home, &second) < 0)
		log_warn(log, "%s, ignoring", second.message);
	return result;
}

/* Where a key comes from unsigned, nothing but its fingerprint speaks for it; that is asked for. */
static bool may_fetch(const char *url)
{
	return apt_url_is_sane(url) &&
	       (str_starts(url, "https://") || str_starts(url, "http://127.0.0.1:") ||
	        str_starts(url, "http://127.0.0.1/") || str_starts(url, "http://localhost:") ||
	        str_starts(url, "http://localhost/") || str_starts(url, "http://[::1]"));
}

static int fetch_key(struct apt *apt, const char *url, char **ret_path, struct error *err)
{
	const struct download from = {.url = url,
	                              .retries = KEY_RETRIES,
	                              .stall_timeout_s = KEY_STALL_S,
	                              .log = apt->log};
	CLEANUP_FREE char *path = str_format("%s/key-%u", apt->work_dir, apt->key_count);
	CLEANUP_FREE char *text = NULL;
	CLEANUP_CLOSE int fd = -1;

	if (!may_fetch(url))
		return usage(err, "'%s' is no URL that a key may come from: https only", url);
	if (download_text(&from, KEY_MAX_BYTES, &text, err) < 0)
		return error_prefix(err, "cannot fetch a repository's key");
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
		return error_errno(err, errno, "cannot write '%s'", path);
	*ret_path = STEAL(path);
	return 0;
}

static int add_pinned(struct apt *apt, const struct apt_pinned *r, const char *key_path,
                      struct error *err)
{
	CLEANUP_APT_SOURCES struct apt_sources one = {0};
	CLEANUP_FREE char *key_in_image = NULL;
	CLEANUP_FREE char *line = NULL;
	CLEANUP_FREE void *key = NULL;
	size_t size = 0;

	if (apt_key_check(key_path, r->fingerprint, apt->work_dir, apt->log, &key, &size, err) <
	            0 ||
	    put_key(apt, key, size, false, &key_in_image, err) < 0)
		return -1;
	line = str_format("deb [signed-by=%s] %s %s %s", key_in_image, r->url, r->suite,
	                  r->components ? r->components : "");
	if (apt_sources_parse(&one, line, "a pinned repository", err) < 0)
		return -1;
	apt_sources_replace(&apt->sources, one.items);
	apt_sources_add(&apt->sources, one.items);
	return 0;
}

static int check_pinned(const struct apt *apt, const struct apt_pinned *r, struct error *err)
{
	CLEANUP_STRV struct strv components = strv_split(r->components ? r->components : "", " ");

	if (!apt->network)
		return usage(err, "the repository '%s' needs the network", r->url);
	if (!apt_url_is_sane(r->url))
		return usage(err, "'%s' is not the URL of a repository", r->url);
	if (!is_word(r->suite) || str_ends(r->suite, "/") != (components.count == 0))
		return usage(err, "'%s' is no suite, or lacks its components", r->suite);
	for (size_t i = 0; i < components.count; i++)
		if (!is_word(components.items[i]))
			return usage(err, "'%s' is no component", components.items[i]);
	if (!r->key_path && !r->fingerprint)
		return usage(err, "the repository '%s' comes without the fingerprint of its key",
		             r->url);
	if (!r->key_path && !r->key_url)
		return usage(err, "the repository '%s' comes without its key", r->url);
	return 0;
}

int apt_add_pinned(struct apt *apt, const struct apt_pinned *repository, struct error *err)
{
	CLEANUP_FREE char *fetched = NULL;
	const char *path = repository->key_path;
	int result;

	if (check_pinned(apt, repository, err) < 0 ||
	    (!path && fetch_key(apt, repository->key_url, &fetched, err) < 0))
		return -1;
	result = add_pinned(apt, repository, path ? path : fetched, err);
	if (fetched)
		unlink(fetched);
	return result < 0 && fetched ? error_prefix(err, "the key of '%s'", repository->key_url)
	                             : result;
}
