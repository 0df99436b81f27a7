/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of the image's packages. Downloads come first and alone have the network: what a
 * package's scripts would fetch is no part of a package. While scripts run, policy-rc.d says no to
 * every start of a service (invoke-rc.d(8), deb-systemd-invoke(1p)).
 */
#include <string.h>

#include "apt-internal.h"

#define POLICY       "/usr/sbin/policy-rc.d"
#define POLICY_SAVED "/usr/sbin/.policy-rc.d.gpuimg-saved"

static const char policy_script[] = "#!/bin/sh\nexit 101\n";

/* The image's own is moved aside, not copied: so it stays what it is, be it a link. */
static int put_policy(struct apt *apt, struct error *err)
{
	struct rootfs_stat st;
	int found = rootfs_lstat(apt->root, POLICY, &st, err);
	int saved = found < 0 ? -1 : rootfs_lstat(apt->root, POLICY_SAVED, &st, err);

	if (found < 0 || saved < 0 ||
	    (found == 1 && saved == 0 && rootfs_rename(apt->root, POLICY, POLICY_SAVED, err) < 0))
		return -1;
	return rootfs_write(apt->root, POLICY, policy_script, strlen(policy_script), 0755, err);
}

/* 1: ours stands there, 0: something else, or nothing */
static int is_our_policy(struct apt *apt, struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	struct rootfs_stat st;
	int found = rootfs_lstat(apt->root, POLICY, &st, err);

	if (found <= 0)
		return found;
	if (!S_ISREG(st.mode) || st.size_bytes != strlen(policy_script))
		return 0;
	if (rootfs_read(apt->root, POLICY, sizeof(policy_script), &text, NULL, err) < 0)
		return -1;
	return str_equal(text, policy_script);
}

int apt_restore_policy(struct apt *apt, struct error *err)
{
	struct rootfs_stat st;
	int ours = is_our_policy(apt, err);
	int there = ours < 0 ? -1 : rootfs_lstat(apt->root, POLICY, &st, err);
	int saved = there < 0 ? -1 : rootfs_lstat(apt->root, POLICY_SAVED, &st, err);

	if (saved < 0)
		return -1;
	if (ours && rootfs_remove(apt->root, POLICY, err) < 0)
		return -1;
	/* a package that was installed brought its own */
	if (there && !ours)
		return saved ? rootfs_remove(apt->root, POLICY_SAVED, err) : 0;
	return saved ? rootfs_rename(apt->root, POLICY_SAVED, POLICY, err) : 0;
}

static char *what_of(const char *verb, const struct strv *names)
{
	CLEANUP_FREE char *joined = strv_join(names, " ");
	CLEANUP_FREE char *shown = str_printable(joined, 300);

	return str_format("%s %s", verb, shown);
}

static int run_or_fail(struct apt *apt, const struct strv *argv, bool network, const char *what,
                       struct error *err)
{
	CLEANUP_APT_RUN struct apt_run run = {.network = network, .timeout_ms = APT_INSTALL_MS};

	if (apt_run(apt, argv, &run, err) < 0)
		return error_prefix(err, "cannot %s", what);
	return run.exit == 0 ? 0 : apt_run_failed(&run, what, err);
}

static int run_with_policy(struct apt *apt, const struct strv *argv, const char *what,
                           struct error *err)
{
	CLEANUP_ERROR struct error second = ERROR_INIT;
	int result = put_policy(apt, err);

	if (result == 0)
		result = run_or_fail(apt, argv, false, what, err);
	if (apt_restore_policy(apt, &second) == 0)
		return result;
	error_prefix(&second, "cannot put back the image's '%s'", POLICY);
	if (result == 0)
		return error_take(err, &second);
	log_warn(apt->log, "%s", second.message);
	return -1;
}

/* Half installed, half configured, triggers that wait: dpkg names them all. */
static int audit(struct apt *apt, const char *what, struct error *err)
{
	CLEANUP_STRV struct strv argv = strv_split("dpkg --audit", " ");
	CLEANUP_APT_RUN struct apt_run run = {.timeout_ms = APT_QUERY_MS};
	CLEANUP_FREE char *shown = NULL;

	if (apt_run(apt, &argv, &run, err) < 0)
		return -1;
	if (run.exit == 0 && !*str_trim(run.output))
		return 0;
	shown = str_printable(run.output, 1000);
	return error_set(err, "cannot %s: packages are left in between; dpkg --audit says: %s",
	                 what, shown);
}

static struct strv install_argv(const char *option, const struct strv *names)
{
	struct strv argv = strv_split("apt-get -q -y --no-install-recommends", " ");

	strv_add(&argv, option);
	strv_add(&argv, "install");
	strv_add(&argv, "--");
	strv_add_all(&argv, names);
	return argv;
}

int apt_install(struct apt *apt, const struct strv *install, struct error *err)
{
	CLEANUP_STRV struct strv download = install_argv("--download-only", install);
	CLEANUP_STRV struct strv argv = install_argv("--no-download", install);
	CLEANUP_FREE char *to_download = what_of("download", install);
	CLEANUP_FREE char *to_install = what_of("install", install);

	if (apt_check_names(install, true, err) < 0)
		return -1;
	if (install->count == 0)
		return 0;
	if (run_or_fail(apt, &download, true, to_download, err) < 0 ||
	    run_with_policy(apt, &argv, to_install, err) < 0)
		return -1;
	return audit(apt, to_install, err);
}

/* Names that a simulated run takes away. */
static int ask_removed(struct apt *apt, const struct strv *argv, const char *what, struct strv *ret,
                       struct error *err)
{
	CLEANUP_APT_RUN struct apt_run run = {.timeout_ms = APT_QUERY_MS};
	CLEANUP_APT_TRANSACTION struct apt_transaction t = {0};

	if (apt_run(apt, argv, &run, err) < 0)
		return -1;
	if (run.exit != 0)
		return apt_run_failed(&run, what, err);
	if (apt_parse_simulation(run.output, &t, err) < 0)
		return -1;
	for (size_t i = 0; i < t.count; i++)
		if (t.items[i].removed)
			strv_add(ret, t.items[i].name);
	return 0;
}

/*
 * autoremove would take along what nobody needed before either, a kernel perhaps: only what these
 * packages leave without a purpose may go.
 */
int apt_purge(struct apt *apt, const struct strv *packages, struct error *err)
{
	CLEANUP_STRV struct strv before = {0};
	CLEANUP_STRV struct strv all = {0};
	CLEANUP_STRV struct strv ask = strv_split("apt-get -q -s -y autoremove", " ");
	CLEANUP_STRV struct strv ask_all =
		strv_split("apt-get -q -s -y --autoremove --purge remove --", " ");
	CLEANUP_STRV struct strv argv =
		strv_split("apt-get -q -y --no-autoremove --purge remove --", " ");
	CLEANUP_FREE char *what = what_of("remove", packages);

	if (apt_check_names(packages, false, err) < 0)
		return -1;
	if (packages->count == 0)
		return 0;
	strv_add_all(&ask_all, packages);
	if (ask_removed(apt, &ask, what, &before, err) < 0 ||
	    ask_removed(apt, &ask_all, what, &all, err) < 0)
		return -1;
	strv_add_all(&argv, packages);
	for (size_t i = 0; i < all.count; i++)
		if (!strv_has(&before, all.items[i]) && !strv_has(packages, all.items[i]))
			strv_add(&argv, all.items[i]);
	if (run_with_policy(apt, &argv, what, err) < 0)
		return -1;
	return audit(apt, what, err);
}
