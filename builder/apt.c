/* SPDX-License-Identifier: Apache-2.0 */
/* The session: opened, given its sources, and taken out of the image again. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "apt-internal.h"
#include "deb-file.h"

#define DEBS_DIR     APT_DIR "/debs"
#define PIN_PRIORITY 999 /* before all others, yet no downgrade of what is installed */

static int make_dirs(struct apt *apt, struct error *err)
{
	static const char *const dirs[] = {"",
	                                   "/lists",
	                                   "/lists/partial",
	                                   "/cache",
	                                   "/cache/archives",
	                                   "/cache/archives/partial",
	                                   "/keys",
	                                   "/bin",
	                                   "/sources.list.d"};

	if (rootfs_remove(apt->root, APT_DIR, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
		CLEANUP_FREE char *path = str_format(APT_DIR "%s", dirs[i]);

		if (rootfs_mkdir(apt->root, path, 0755, err) < 0)
			return -1;
	}
	return 0;
}

static int read_sources(struct apt *apt, const struct apt_options *o, struct error *err)
{
	CLEANUP_APT_MIRRORS struct apt_mirrors mirrors = {0};

	if (apt_mirrors_parse(&mirrors, o->mirrors, err) < 0)
		return -1;
	if (!o->network) {
		if (!o->repositories || o->repositories->count == 0)
			return 0;
		error_set(err, "the repository '%s' needs the network", o->repositories->items[0]);
		return error_code(err, EXIT_USAGE);
	}
	if (apt_sources_read(&apt->sources, apt->root, err) < 0)
		return -1;
	apt_sources_judge(&apt->sources, o->guest->id);
	apt_sources_rewrite(&apt->sources, &mirrors);
	return 0;
}

static int put_session(struct apt *apt, const struct apt_options *o, const struct apt_proxies *p,
                       struct error *err)
{
	if (make_dirs(apt, err) < 0 || apt_put_conf(apt, p, err) < 0 || apt_copy_pins(apt, err) < 0)
		return -1;
	for (size_t i = 0; o->repositories && i < o->repositories->count; i++)
		if (apt_add_repository(apt, o->repositories->items[i], err) < 0)
			return -1;
	return apt_check_conf(apt, err);
}

int apt_open(struct apt **ret, const struct apt_options *options, struct error *err)
{
	CLEANUP_APT struct apt *apt = mem_alloc(sizeof(*apt));
	CLEANUP_ERROR struct error second = ERROR_INIT;
	struct apt_proxies proxies;

	*apt = (struct apt){.root = options->root,
	                    .log = options->log,
	                    .work_dir = str_copy(options->work_dir),
	                    .network = options->network};
	if (!rootfs_exists(apt->root, "/usr/bin/apt-get") ||
	    !rootfs_exists(apt->root, "/usr/bin/dpkg")) {
		error_set(err, "the image has no apt, so packages cannot be installed in it");
		return error_code(err, EXIT_INPUT);
	}
	if (apt_find_proxies(&proxies, options->network ? options->proxy : NULL, err) < 0 ||
	    read_sources(apt, options, err) < 0)
		return -1;
	apt_set_env(apt, &proxies);
	if (put_session(apt, options, &proxies, err) < 0) {
		error_prefix(err, "cannot set up the image's apt for the build");
		if (apt_close(apt, &second) < 0)
			log_warn(apt->log, "%s, ignoring", second.message);
		return -1;
	}
	*ret = STEAL(apt);
	return 0;
}

static int copy_deb(struct apt *apt, const char *host_dir, const struct deb_file *deb,
                    const char *name, struct error *err)
{
	CLEANUP_FREE char *from = str_format("%s/%s", host_dir, deb->name);
	CLEANUP_FREE char *to = str_format("%s/%s", DEBS_DIR, name);
	CLEANUP_CLOSE int fd = open(from, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "cannot read '%s'", from);
	return rootfs_copy_in(apt->root, to, fd, 0644, err);
}

/* Files get names of ours: what stands in a name, apt may take for an escape. */
static int put_debs(struct apt *apt, const char *host_dir, struct deb_file *debs, size_t count,
                    struct strv *ret_digests, struct error *err)
{
	CLEANUP_FREE char *index = NULL;

	if (rootfs_mkdir(apt->root, DEBS_DIR, 0755, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		char *name = str_format("%zu.deb", i);

		if (copy_deb(apt, host_dir, &debs[i], name, err) < 0) {
			free(name);
			return -1;
		}
		if (ret_digests)
			strv_addf(ret_digests, "%s  %s", debs[i].sha256, debs[i].name);
		free(debs[i].name);
		debs[i].name = name;
	}
	index = deb_dir_index(debs, count);
	return apt_write_text(apt, DEBS_DIR "/Packages", index, err);
}

int apt_add_debs(struct apt *apt, const char *host_dir, struct strv *ret_digests, struct error *err)
{
	CLEANUP_APT_SOURCES struct apt_sources one = {0};
	struct deb_file *debs = NULL;
	size_t count = 0;
	int result;

	if (apt->has_debs) {
		error_set(err, "there is a directory of packages already, '%s' would be the second",
		          host_dir);
		return error_code(err, EXIT_USAGE);
	}
	if (deb_dir_read(&debs, &count, host_dir, err) < 0)
		return -1;
	result = put_debs(apt, host_dir, debs, count, ret_digests, err);
	deb_dir_free(debs, count);
	if (result < 0)
		return error_prefix(err, "cannot take the packages of '%s'", host_dir);
	if (apt_sources_parse(&one, "deb [trusted=yes] copy:" DEBS_DIR " ./", "ours", err) < 0)
		return -1;
	apt_sources_add(&apt->sources, one.items);
	apt->has_debs = true;
	return 0;
}

int apt_pin(struct apt *apt, const char *package_glob, const char *version_glob, struct error *err)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		"+-.~:*?";
	CLEANUP_FREE char *stanza = NULL;

	if (!*package_glob || package_glob[strspn(package_glob, allowed)] || !*version_glob ||
	    version_glob[strspn(version_glob, allowed)])
		return error_set(err, "cannot pin packages '%s' at versions '%s': no such pattern",
		                 package_glob, version_glob);
	stanza = str_format("Package: %s\nPin: version %s\nPin-Priority: %d\n\n", package_glob,
	                    version_glob, PIN_PRIORITY);
	apt_append(&apt->preferences, stanza);
	return apt_write_text(apt, APT_DIR "/preferences", apt->preferences, err);
}

int apt_update(struct apt *apt, struct error *err)
{
	CLEANUP_STRV struct strv argv = strv_split("apt-get -q update", " ");
	CLEANUP_FREE char *lines = apt_sources_lines(&apt->sources);
	CLEANUP_FREE char *stanzas = apt_sources_stanzas(&apt->sources);
	CLEANUP_APT_RUN struct apt_run run = {.network = true, .timeout_ms = APT_UPDATE_MS};

	if (apt->sources.count == 0) {
		error_set(err, "cannot download package lists: the image names no package sources");
		error_hint(err, "name one with --apt-repository, or packages by a directory");
		return error_code(err, EXIT_INPUT);
	}
	if (apt_write_text(apt, APT_DIR "/sources.list", lines, err) < 0 ||
	    apt_write_text(apt, APT_DIR "/sources.list.d/gpuimg.sources", stanzas, err) < 0 ||
	    apt_run(apt, &argv, &run, err) < 0)
		return -1;
	return run.exit == 0 ? 0 : apt_run_failed(&run, "download package lists", err);
}

int apt_stub(struct apt *apt, const char *program, const char *script, struct error *err)
{
	CLEANUP_FREE char *path = str_format(APT_DIR "/bin/%s", program);

	if (strchr(program, '/') || *program == '.' || !*program)
		return error_set(err, "'%s' is not the name of a program", program);
	return rootfs_write(apt->root, path, script, strlen(script), 0755, err);
}

int apt_close(struct apt *apt, struct error *err)
{
	int policy = apt_restore_policy(apt, err);

	if (policy < 0 || rootfs_remove(apt->root, APT_DIR, err) < 0)
		return error_prefix(err, "cannot take the build's apt settings out of the image");
	return 0;
}

void apt_free(struct apt *apt)
{
	if (!apt)
		return;
	apt_sources_free(&apt->sources);
	strv_free(&apt->env);
	free(apt->work_dir);
	free(apt->preferences);
	free(apt);
}
