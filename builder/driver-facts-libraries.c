/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's two libraries that must be of the modules' version (NVML compares them at start), as
 * the dynamic linker would find them: by ld.so.conf(5) and its own directories. Debian keeps
 * several drivers below /usr/lib/ARCH/nvidia and leads the linker to one of them by links through
 * /etc/alternatives, so what counts is where a link ends.
 */
#include <fnmatch.h>
#include <string.h>

#include "driver-facts-internal.h"

#define CONF_MAX_BYTES (64UL * 1024)
#define FILES_MAX      256 /* of configuration; they may include each other */
#define DIRS_MAX       256

/* Where the linker looks. */
struct search {
	struct rootfs *root;
	struct strv dirs; /* real paths */
	size_t files;     /* of configuration that were read */
};

static const char *const own_dirs[] = {"/lib",
                                       "/usr/lib",
                                       "/lib64",
                                       "/usr/lib64",
                                       "/usr/lib/x86_64-linux-gnu",
                                       "/usr/lib/aarch64-linux-gnu",
                                       "/usr/lib/i386-linux-gnu",
                                       "/lib/x86_64-linux-gnu",
                                       "/lib/aarch64-linux-gnu",
                                       "/usr/local/lib"};

/* A "compat" directory has libraries of a newer driver for an older one's modules, by intent. */
static void add_dir(struct search *s, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *real = NULL;

	if (s->dirs.count < DIRS_MAX && *path == '/' && !str_ends(path, "/compat") &&
	    rootfs_resolve(s->root, path, true, &real, &ignored) == 1 && !strv_has(&s->dirs, real))
		strv_add(&s->dirs, real);
}

static void read_conf(struct search *s, const char *path);

/* "include ld.so.conf.d/" "*.conf", below /etc if it does not begin with "/". */
static void read_includes(struct search *s, const char *pattern)
{
	CLEANUP_FREE char *full =
		*pattern == '/' ? str_copy(pattern) : str_format("/etc/%s", pattern);
	char *slash = strrchr(full, '/');
	CLEANUP_STRV struct strv names = {0};

	*slash = '\0';
	names = driver_facts_list(s->root, *full ? full : "/");
	for (size_t i = 0; i < names.count; i++)
		if (fnmatch(slash + 1, names.items[i], FNM_PERIOD) == 0) {
			CLEANUP_FREE char *path = str_format("%s/%s", full, names.items[i]);

			read_conf(s, path);
		}
}

static void read_conf(struct search *s, const char *path)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_STRV struct strv lines = {0};

	if (s->files++ < FILES_MAX)
		text = driver_facts_text(s->root, path, CONF_MAX_BYTES);
	if (text)
		lines = strv_split(text, "\n");
	for (size_t i = 0; i < lines.count; i++) {
		CLEANUP_STRV struct strv words = {0};

		lines.items[i][strcspn(lines.items[i], "#")] = '\0';
		words = strv_split(lines.items[i], " \t\r:,=");
		if (words.count && strcmp(words.items[0], "include") == 0)
			for (size_t j = 1; j < words.count && s->files < FILES_MAX; j++)
				read_includes(s, words.items[j]);
		else if (words.count)
			add_dir(s, words.items[0]);
	}
}

/* "535.309.01" of "libcuda.so.535.309.01"; NULL: another file, or one that does not say. */
static const char *version_in(const char *name)
{
	static const char *const libraries[] = {"libcuda.so.", "libnvidia-ml.so."};

	for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
		const char *version = name + strlen(libraries[i]);

		if (!str_starts(name, libraries[i]))
			continue;
		/* "libcuda.so.1" is the name that programs ask for, and no version */
		return strspn(version, "0123456789.") == strlen(version) && strchr(version, '.')
		               ? version
		               : NULL;
	}
	return NULL;
}

static void find_in_dir(struct driver_facts *facts, struct rootfs *root, const char *dir)
{
	CLEANUP_STRV struct strv names = driver_facts_list(root, dir);

	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names.items[i]);
		CLEANUP_FREE char *real = NULL;
		CLEANUP_FREE char *line = NULL;
		const char *version;

		if (!str_starts(names.items[i], "libcuda.so") &&
		    !str_starts(names.items[i], "libnvidia-ml.so"))
			continue;
		if (rootfs_resolve(root, path, true, &real, &ignored) != 1 ||
		    !rootfs_is_file(root, real))
			continue;
		version = version_in(strrchr(real, '/') + 1);
		if (!version)
			continue;
		line = str_format("%s %s", version, real);
		if (!strv_has(&facts->libraries, line))
			strv_add(&facts->libraries, line);
	}
}

void driver_facts_libraries(struct driver_facts *facts, struct rootfs *root)
{
	struct search s = {.root = root};

	for (size_t i = 0; i < sizeof(own_dirs) / sizeof(own_dirs[0]); i++)
		add_dir(&s, own_dirs[i]);
	read_conf(&s, "/etc/ld.so.conf");
	for (size_t i = 0; i < s.dirs.count; i++)
		find_in_dir(facts, root, s.dirs.items[i]);
	strv_sort(&facts->libraries);
	strv_free(&s.dirs);
}
