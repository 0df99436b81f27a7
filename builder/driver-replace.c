/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "driver-command.h"
#include "driver-hold.h"
#include "driver-kernel.h"
#include "driver-replace.h"
#include "driver-run.h"
#include "packages.h"

#define UNINSTALL_MS   (10 * 60 * 1000)
#define UNINSTALL_LOG  "/var/tmp/gpuimg-uninstall.log"
#define DPKG_INFO      "/var/lib/dpkg/info"
#define LIST_MAX_BYTES (64UL * 1024 * 1024)
#define SHOWN_MAX      6

/* --- what is there --- */

/* The first few of them, and how many more. */
static char *some_of(const struct strv *all)
{
	CLEANUP_STRV struct strv few = {0};

	for (size_t i = 0; i < all->count && i < SHOWN_MAX; i++)
		strv_take(&few, str_printable(all->items[i], 200));
	if (all->count > SHOWN_MAX)
		strv_addf(&few, "%zu more", all->count - SHOWN_MAX);
	return strv_join(&few, ", ");
}

static void add_part(struct strv *parts, const char *what, const struct strv *found)
{
	CLEANUP_FREE char *names = found->count ? some_of(found) : NULL;

	if (names)
		strv_addf(parts, "%s %s", what, names);
}

/* "nvidia_current 535.261.03 for 6.1.0-40-amd64" */
static void list_modules(struct strv *ret, const struct driver_facts *facts)
{
	for (size_t i = 0; i < facts->module_count; i++) {
		const struct driver_module *m = &facts->modules[i];

		strv_addf(ret, "%s %s for %s", m->name,
		          m->info.version ? m->info.version : "(unread)", m->kernel);
	}
}

/* DKMS may know modules of others too. */
static void list_registered(struct strv *ret, const struct driver_facts *facts)
{
	for (size_t i = 0; i < facts->dkms.count; i++)
		if (driver_facts_is_dkms(facts->dkms.items[i]))
			strv_add(ret, facts->dkms.items[i]);
}

/* In the order in which a reader can do something about it. */
static char *describe(const struct driver_facts *facts)
{
	CLEANUP_STRV struct strv parts = {0};
	CLEANUP_STRV struct strv modules = {0};
	CLEANUP_STRV struct strv registered = {0};

	list_modules(&modules, facts);
	list_registered(&registered, facts);
	add_part(&parts, "packages", &facts->packages);
	add_part(&parts, "installed by", &facts->run_installers);
	add_part(&parts, "modules", &modules);
	add_part(&parts, "registered with DKMS", &registered);
	add_part(&parts, "libraries", &facts->libraries);
	add_part(&parts, "programs", &facts->smi);
	return strv_join(&parts, "; ");
}

/* Of the first that says one: modules, libraries ("VERSION PATH"), then packages, of which some
 * have versions of their own. */
static char *version_of(const struct driver_facts *facts)
{
	CLEANUP_FREE char *library = NULL;

	for (size_t i = 0; i < facts->module_count; i++)
		if (facts->modules[i].info.version)
			return str_printable(facts->modules[i].info.version, 64);
	if (facts->libraries.count) {
		library = mem_copy(facts->libraries.items[0],
		                   strcspn(facts->libraries.items[0], " "));
		return str_printable(library, 64);
	}
	for (size_t i = 0; i < facts->packages.count; i++) {
		const char *equals = strchr(facts->packages.items[i], '=');

		if (equals)
			return driver_upstream_version(equals + 1);
	}
	return NULL;
}

int driver_refuse_existing(const struct driver_facts *facts, struct error *err)
{
	CLEANUP_FREE char *what = NULL;
	CLEANUP_FREE char *version = NULL;

	if (!driver_facts_any(facts))
		return 0;
	what = describe(facts);
	version = version_of(facts);
	error_set(err, "the image has an NVIDIA driver already%s%s: %s",
	          version ? ", version " : "", version ? version : "", what);
	error_hint(err, "take it out with --replace-driver, or leave it as it is: build without "
	                "--driver-branch");
	return error_code(err, EXIT_INPUT);
}

/* --- packages --- */

static void names_of(struct strv *ret, const struct strv *packages)
{
	for (size_t i = 0; i < packages->count; i++)
		strv_take(ret, mem_copy(packages->items[i], strcspn(packages->items[i], "=")));
}

/* apt removes no package that is on hold. Only the driver's own: a kernel stays held. */
static int lift_holds(struct rootfs *root, const struct strv *names, const struct strv *held,
                      struct error *err)
{
	CLEANUP_STRV struct strv ours = {0};

	for (size_t i = 0; i < held->count; i++)
		if (strv_has(names, held->items[i]))
			strv_add(&ours, held->items[i]);
	return driver_unhold(root, &ours, err);
}

static int remove_packages(struct rootfs *root, const struct driver_facts *facts, struct apt *apt,
                           struct log *log, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE char *list = NULL;

	if (facts->packages.count == 0)
		return 0;
	if (!apt)
		return error_set(err, "the driver's packages cannot be removed without apt");
	names_of(&names, &facts->packages);
	list = strv_join(&names, " ");
	log_detail(log, "purges %s", list);
	if (lift_holds(root, &names, &facts->held, err) < 0 || apt_purge(apt, &names, err) < 0)
		return error_prefix(err, "cannot take out the driver's packages");
	return 0;
}

/* --- a .run installation --- */

/* nvidia-uninstall is nvidia-installer under another name; one of them is enough. */
static const char *find_uninstaller(const struct driver_facts *facts)
{
	for (size_t i = 0; i < facts->run_installers.count; i++)
		if (str_ends(facts->run_installers.items[i], "/nvidia-uninstall"))
			return facts->run_installers.items[i];
	return facts->run_installers.count ? facts->run_installers.items[0] : NULL;
}

static int uninstaller_argv(struct strv *ret, struct rootfs *root, const char *program,
                            struct log *log, struct error *err)
{
	const char *const ask[] = {program, "--advanced-options", NULL};
	CLEANUP_FREE char *help = NULL;
	int status;

	if (driver_command(root, ask, NULL, UNINSTALL_MS, log, &help, &status, err) < 0)
		return -1;
	strv_add(ret, program);
	if (!str_ends(program, "/nvidia-uninstall"))
		strv_add(ret, "--uninstall");
	strv_add(ret, "--silent");
	strv_add(ret, "--log-file-name=" UNINSTALL_LOG);
	/* what is loaded is the build machine's */
	if (driver_run_offers(help, "--skip-module-unload"))
		strv_add(ret, "--skip-module-unload");
	return 0;
}

static int run_uninstaller(struct rootfs *root, const char *program, struct log *log,
                           struct error *err)
{
	CLEANUP_STRV struct strv argv = {0};
	CLEANUP_FREE char *output = NULL;
	CLEANUP_FREE char *tail = NULL;
	int status;

	if (uninstaller_argv(&argv, root, program, log, err) < 0 ||
	    driver_command(root, (const char *const *)argv.items, NULL, UNINSTALL_MS, log, &output,
	                   &status, err) < 0)
		return -1;
	if (status == 0)
		return 0;
	tail = driver_log_file_tail(root, UNINSTALL_LOG);
	return error_set(err, "'%s' failed (exit %d)%s", program, status, tail);
}

static int remove_run(struct rootfs *root, const struct driver_facts *facts, struct log *log,
                      struct error *err)
{
	const char *program = find_uninstaller(facts);
	CLEANUP_ERROR struct error late = ERROR_INIT;
	int result;

	if (!program || !rootfs_exists(root, program))
		return 0;
	log_detail(log, "runs '%s'", program);
	result = run_uninstaller(root, program, log, err);
	if (rootfs_remove(root, UNINSTALL_LOG, &late) < 0 && result == 0)
		return error_take(err, &late);
	return result;
}

/* --- what nobody owns --- */

/* dpkg's lists have names as packages do: "/lib/modules/…" and "/usr/lib/modules/…" may be the
 * same. */
static bool list_has(const char *list, const char *path)
{
	const char *other = str_starts(path, "/usr/") ? path + 4 : NULL;
	CLEANUP_FREE char *line = str_format("\n%s\n", path);
	CLEANUP_FREE char *short_line = other ? str_format("\n%s\n", other) : NULL;
	CLEANUP_FREE char *long_line = other ? NULL : str_format("\n/usr%s\n", path);

	return strstr(list, line) || (short_line && strstr(list, short_line)) ||
	       (long_line && strstr(list, long_line));
}

/* An error if a package has one of these files: to delete it would break the package. */
static int check_list(struct rootfs *root, const char *name, const struct strv *paths,
                      struct error *err)
{
	CLEANUP_FREE char *list_path = str_format(DPKG_INFO "/%s", name);
	CLEANUP_FREE char *list = NULL;
	void *text = NULL;

	if (rootfs_read(root, list_path, LIST_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	list = str_format("\n%s", (const char *)text);
	free(text);
	for (size_t i = 0; i < paths->count; i++)
		if (list_has(list, paths->items[i])) {
			error_set(err,
			          "'%s' is of the package '%.*s', which is not known to be part of "
			          "a driver",
			          paths->items[i], (int)(strlen(name) - strlen(".list")), name);
			error_hint(err, "remove that package from the base");
			return error_code(err, EXIT_INPUT);
		}
	return 0;
}

static int check_owners(struct rootfs *root, const struct strv *paths, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (paths->count == 0 || !rootfs_is_dir(root, DPKG_INFO))
		return 0;
	if (rootfs_list(root, DPKG_INFO, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++)
		if (str_ends(names.items[i], ".list") &&
		    check_list(root, names.items[i], paths, err) < 0)
			return -1;
	return 0;
}

/* Links beside a file that lead to it by its name: libcuda.so.1, nvidia-uninstall. */
static int remove_links(struct rootfs *root, const char *path, struct error *err)
{
	const char *name = strrchr(path, '/') + 1;
	CLEANUP_FREE char *dir = mem_copy(path, (size_t)(name - path));
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *link = str_format("%s%s", dir, names.items[i]);
		CLEANUP_FREE char *target = NULL;
		struct rootfs_stat st;
		int found = rootfs_lstat(root, link, &st, err);

		if (found < 0 ||
		    (found && S_ISLNK(st.mode) && rootfs_readlink(root, link, &target, err) < 0))
			return -1;
		if (str_equal(target, name) && rootfs_remove(root, link, err) < 0)
			return -1;
	}
	return 0;
}

static void list_leftovers(struct strv *ret, const struct driver_facts *facts)
{
	for (size_t i = 0; i < facts->module_count; i++)
		strv_add(ret, facts->modules[i].file);
	for (size_t i = 0; i < facts->libraries.count; i++) {
		const char *path = strchr(facts->libraries.items[i], '/');

		if (path)
			strv_add(ret, path);
	}
	strv_add_all(ret, &facts->smi);
	strv_add_all(ret, &facts->run_installers);
}

static int remove_leftovers(struct rootfs *root, const struct driver_facts *facts, struct log *log,
                            struct error *err)
{
	CLEANUP_STRV struct strv paths = {0};

	list_leftovers(&paths, facts);
	if (check_owners(root, &paths, err) < 0)
		return -1;
	for (size_t i = 0; i < paths.count; i++) {
		log_detail(log, "deletes '%s', which no package has", paths.items[i]);
		if (remove_links(root, paths.items[i], err) < 0 ||
		    rootfs_remove(root, paths.items[i], err) < 0)
			return -1;
	}
	return 0;
}

/* The sources' package has done it already, if there was one. What else DKMS knows stays. */
static int forget_registered(struct rootfs *root, const struct driver_facts *facts,
                             struct error *err)
{
	for (size_t i = 0; i < facts->dkms.count; i++) {
		const char *entry = facts->dkms.items[i];
		CLEANUP_FREE char *dir =
			str_format("/var/lib/dkms/%.*s", (int)strcspn(entry, "/"), entry);

		if (driver_facts_is_dkms(entry) && rootfs_remove(root, dir, err) < 0)
			return -1;
	}
	return 0;
}

/* --- all of it --- */

static int read_again(struct driver_facts *ret, struct rootfs *root, const struct guest *guest,
                      struct error *err)
{
	CLEANUP_STRV struct strv packages = {0};

	if (packages_read(&packages, root, err) < 0)
		return -1;
	return driver_facts_read(ret, root, guest, &packages, err);
}

/* Both were made from what is gone now. */
static int update_indexes(struct rootfs *root, const struct guest *guest, struct error *err)
{
	static const char *const ldconfig[] = {"ldconfig", NULL};

	for (size_t i = 0; i < guest->kernel_count; i++)
		if (!guest->kernels[i].rescue &&
		    driver_kernel_depmod(root, guest->kernels[i].version, err) < 0)
			return -1;
	return rootfs_run(root, &(struct guest_command){.argv = ldconfig}, err);
}

static int check_gone(struct rootfs *root, const struct guest *guest, struct error *err)
{
	CLEANUP_DRIVER_FACTS struct driver_facts left = {0};
	CLEANUP_FREE char *what = NULL;

	if (read_again(&left, root, guest, err) < 0)
		return -1;
	if (!driver_facts_any(&left))
		return 0;
	what = describe(&left);
	error_set(err, "the driver that was there could not be taken out wholly; left are: %s",
	          what);
	return error_hint(err, "remove it from the base by hand");
}

int driver_remove_existing(struct rootfs *root, const struct guest *guest,
                           const struct driver_facts *facts, struct apt *apt, struct log *log,
                           struct error *err)
{
	CLEANUP_DRIVER_FACTS struct driver_facts left = {0};

	if (remove_run(root, facts, log, err) < 0 ||
	    remove_packages(root, facts, apt, log, err) < 0 ||
	    forget_registered(root, facts, err) < 0)
		return -1;
	if (read_again(&left, root, guest, err) < 0 ||
	    remove_leftovers(root, &left, log, err) < 0 || update_indexes(root, guest, err) < 0)
		return -1;
	return check_gone(root, guest, err);
}
