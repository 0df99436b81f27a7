/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seal: leaves the image as a distributor would, so that every node made from it gets an identity
 * of its own (one machine-id for all means one DHCP lease for all): empty machine-id, no host
 * keys, no cloud-init state, no logs, no caches. Free space is given back when the image
 * is written.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "builder/proof.h"
#include "stages/stages.h"

#define MACHINE_ID      "/etc/machine-id"
#define DBUS_MACHINE_ID "/var/lib/dbus/machine-id"
#define LOG_DEPTH_MAX   8

/* Directories whose content goes; the directories themselves stay. */
static const char *const emptied[] = {
	"/var/lib/cloud",          /* instance state: per-instance modules would not run again */
	"/var/lib/apt/lists",      /* package lists, outdated on the first day */
	"/var/cache/apt/archives", /* downloaded packages */
	"/var/lib/dhcp",           /* leases of the build */
	"/var/lib/NetworkManager", "/var/log/journal", "/var/tmp", "/tmp", NULL,
};

/* Single files of one machine's life. */
static const char *const removed[] = {
	"/var/lib/systemd/random-seed", /* entropy that all nodes would share */
	"/var/lib/systemd/credential.secret",
	"/var/cache/apt/pkgcache.bin",
	"/var/cache/apt/srcpkgcache.bin",
	"/root/.bash_history",
	"/etc/udev/rules.d/70-persistent-net.rules", /* binds a name to one NIC's address */
	NULL,
};

static int empty_dir(struct rootfs *root, const char *dir, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (!rootfs_is_dir(root, dir))
		return 0;
	if (rootfs_list(root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names.items[i]);

		/* apt wants it there, and refuses to work without. */
		if (strcmp(names.items[i], "partial") == 0 ? empty_dir(root, path, err) < 0
		                                           : rootfs_remove(root, path, err) < 0)
			return -1;
	}
	return 0;
}

/* Log files go; their directories stay, with owners and modes that services count on. */
static int remove_logs(struct rootfs *root, const char *dir, int depth, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (depth > LOG_DEPTH_MAX || rootfs_list(root, dir, &names, err) < 0)
		return depth > LOG_DEPTH_MAX ? error_set(err, "'%s' is nested too deep", dir) : -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names.items[i]);
		struct rootfs_stat st;

		if (rootfs_lstat(root, path, &st, err) != 1)
			return -1;
		if (S_ISDIR(st.mode) ? remove_logs(root, path, depth + 1, err) < 0
		                     : S_ISREG(st.mode) && rootfs_remove(root, path, err) < 0)
			return -1;
	}
	return 0;
}

/* Names in a directory that begin so and end so. */
static int remove_matching(struct rootfs *root, const char *dir, const char *prefix,
                           struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names.items[i]);

		if (str_starts(names.items[i], prefix) && rootfs_remove(root, path, err) < 0)
			return -1;
	}
	return 0;
}

/* Entropy that systemd-boot keeps on the ESP, and that all nodes would share too. */
static char *esp_seed(const struct build *b, size_t i)
{
	return str_format("%s/loader/random-seed", b->before.esps.items[i]);
}

static int remove_seeds(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->before.esps.count; i++) {
		CLEANUP_FREE char *path = esp_seed(b, i);

		if (rootfs_exists(b->root, path) && rootfs_remove(b->root, path, err) < 0)
			return -1;
	}
	return 0;
}

static int seal_machine_id(struct rootfs *root, struct error *err)
{
	struct rootfs_stat st;

	if (rootfs_write(root, MACHINE_ID, "", 0, 0444, err) < 0)
		return -1;
	/* A link to /etc/machine-id is right as it is; a copy would survive as every node's id. */
	if (rootfs_lstat(root, DBUS_MACHINE_ID, &st, err) == 1 && S_ISREG(st.mode))
		return rootfs_remove(root, DBUS_MACHINE_ID, err);
	return 0;
}

static int seal_apply(struct build *b, struct error *err)
{
	struct rootfs *root = b->root;

	for (size_t i = 0; emptied[i]; i++)
		if (empty_dir(root, emptied[i], err) < 0)
			return -1;
	for (size_t i = 0; removed[i]; i++)
		if (rootfs_remove(root, removed[i], err) < 0)
			return -1;
	if (rootfs_is_dir(root, "/var/log") && remove_logs(root, "/var/log", 0, err) < 0)
		return -1;
	if (remove_matching(root, "/etc/ssh", "ssh_host_", err) < 0 || remove_seeds(b, err) < 0)
		return -1;
	return seal_machine_id(root, err);
}

static int verify_empty(struct build *b, const char *dir, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	size_t left = 0;

	if (rootfs_list(b->result_root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++)
		left += strcmp(names.items[i], "partial") != 0 &&
		        strcmp(names.items[i], "lost+found") != 0;
	if (left)
		finding_bad(&b->findings, "seal.state", "rebuild with the seal stage",
		            "'%s' still holds %zu entries, '%s' among them", dir, left,
		            names.items[0]);
	else
		finding_ok(&b->findings, "seal.state", "'%s' is empty", dir);
	return 0;
}

static int verify_host_keys(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	bool found = false;

	if (rootfs_list(b->result_root, "/etc/ssh", &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		if (!str_starts(names.items[i], "ssh_host_"))
			continue;
		found = true;
		finding_bad(&b->findings, "seal.host-keys", "rebuild with the seal stage",
		            "'/etc/ssh/%s' is there: all nodes would share it", names.items[i]);
	}
	if (!found)
		finding_ok(&b->findings, "seal.host-keys", "no host key in '/etc/ssh'");
	return 0;
}

static int verify_gone(struct build *b, const char *path, struct error *err)
{
	struct rootfs_stat st;
	int there = rootfs_lstat(b->result_root, path, &st, err);

	if (there == 1)
		finding_bad(&b->findings, "seal.state", "rebuild with the seal stage",
		            "'%s' is still there", path);
	return there < 0 ? -1 : 0;
}

static int verify_removed(struct build *b, struct error *err)
{
	for (size_t i = 0; removed[i]; i++)
		if (verify_gone(b, removed[i], err) < 0)
			return -1;
	for (size_t i = 0; i < b->before.esps.count; i++) {
		CLEANUP_FREE char *path = esp_seed(b, i);

		if (verify_gone(b, path, err) < 0)
			return -1;
	}
	return 0;
}

/* The first log file that is left, or NULL. */
static int find_log(struct rootfs *root, const char *dir, int depth, char **ret, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (depth > LOG_DEPTH_MAX)
		return error_set(err, "'%s' is nested too deep", dir);
	if (rootfs_list(root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count && !*ret; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names.items[i]);
		struct rootfs_stat st;

		if (rootfs_lstat(root, path, &st, err) != 1)
			return -1;
		if (S_ISREG(st.mode))
			*ret = str_copy(path);
		else if (S_ISDIR(st.mode) && find_log(root, path, depth + 1, ret, err) < 0)
			return -1;
	}
	return 0;
}

static int verify_logs(struct build *b, struct error *err)
{
	CLEANUP_FREE char *left = NULL;

	if (rootfs_is_dir(b->result_root, "/var/log") &&
	    find_log(b->result_root, "/var/log", 0, &left, err) < 0)
		return -1;
	if (left)
		finding_bad(&b->findings, "seal.logs", "rebuild with the seal stage",
		            "'%s' is still there", left);
	else
		finding_ok(&b->findings, "seal.logs", "no log in '/var/log'");
	return 0;
}

static int verify_machine_id(struct build *b, struct error *err)
{
	struct rootfs_stat st;
	int there = rootfs_stat(b->result_root, MACHINE_ID, &st, err);

	if (there < 0)
		return -1;
	if (there == 1 && st.size_bytes == 0)
		finding_ok(&b->findings, "seal.machine-id", "'" MACHINE_ID "' is empty");
	else
		finding_bad(&b->findings, "seal.machine-id", "empty the file, do not remove it",
		            "'" MACHINE_ID "' is %s: nodes would share one identity",
		            there ? "not empty" : "missing");
	there = rootfs_lstat(b->result_root, DBUS_MACHINE_ID, &st, err);
	if (there < 0)
		return -1;
	if (there == 1 && S_ISREG(st.mode))
		finding_bad(&b->findings, "seal.machine-id", "remove it",
		            "'" DBUS_MACHINE_ID "' is a copy of its own");
	return 0;
}

static int seal_verify(struct build *b, struct error *err)
{
	for (size_t i = 0; emptied[i]; i++)
		if (verify_empty(b, emptied[i], err) < 0)
			return -1;
	if (verify_host_keys(b, err) < 0 || verify_removed(b, err) < 0 || verify_logs(b, err) < 0)
		return -1;
	return verify_machine_id(b, err);
}

const struct stage stage_seal = {
	.name = "seal",
	.summary = "no identity, state, logs or caches of the build",
	.apply = seal_apply,
	.verify = seal_verify,
};
