/* SPDX-License-Identifier: Apache-2.0 */
/* Where DKMS keeps the key that it signs modules with (framework.conf, and its defaults by
 * distribution). */
#include <stdlib.h>
#include <string.h>

#include "driver-dkms.h"

#define CONF_FILE      "/etc/dkms/framework.conf"
#define CONF_DIR       "/etc/dkms/framework.conf.d"
#define CONF_MAX_BYTES (1024UL * 1024)

/* Ubuntu's are made by update-secureboot-policy, which DKMS calls. */
static const char *const default_keys[] = {"/var/lib/dkms/mok.key",
                                           "/var/lib/shim-signed/mok/MOK.priv", NULL};
static const char *const default_certificates[] = {"/var/lib/dkms/mok.pub",
                                                   "/var/lib/shim-signed/mok/MOK.der", NULL};

/* The value of 'name="/path"' in a shell's words, where it is a plain path. NULL: none. */
static char *plain_path(char *line, const char *name)
{
	char *at = str_trim(line);
	size_t length = strlen(name);

	if (strncmp(at, name, length) != 0 || at[length] != '=')
		return NULL;
	at += length + 1;
	at += *at == '"' || *at == '\'';
	length = strcspn(at, "\"' \t#$`");
	return *at == '/' && at[length] != '$' && at[length] != '`' ? mem_copy(at, length) : NULL;
}

/* Names that a configuration of the image gives; what cannot be read names none. */
static void add_configured(struct strv *ret, struct rootfs *root, const char *path,
                           const char *name)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv lines = {0};
	void *text = NULL;

	if (!rootfs_exists(root, path) ||
	    rootfs_read(root, path, CONF_MAX_BYTES, &text, NULL, &ignored) < 0)
		return;
	lines = strv_split(text, "\r\n");
	free(text);
	for (size_t i = 0; i < lines.count; i++) {
		char *value = plain_path(lines.items[i], name);

		if (value)
			strv_take(ret, value);
	}
}

static void find_paths(struct strv *ret, struct rootfs *root, const char *const *defaults,
                       const char *name)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv files = {0};

	for (; *defaults; defaults++)
		strv_add(ret, *defaults);
	add_configured(ret, root, CONF_FILE, name);
	if (rootfs_list(root, CONF_DIR, &files, &ignored) < 0)
		return;
	for (size_t i = 0; i < files.count; i++) {
		CLEANUP_FREE char *path = str_format(CONF_DIR "/%s", files.items[i]);

		if (str_ends(path, ".conf"))
			add_configured(ret, root, path, name);
	}
}

/* Never more than a file, whatever a configuration of the image names. */
static int remove_file(struct rootfs *root, const char *path, struct error *err)
{
	struct rootfs_stat st;
	int found = rootfs_lstat(root, path, &st, err);

	if (found <= 0)
		return found;
	return S_ISREG(st.mode) ? rootfs_remove(root, path, err) : 0;
}

bool driver_dkms_has_key(struct rootfs *root)
{
	CLEANUP_STRV struct strv keys = {0};

	find_paths(&keys, root, default_keys, "mok_signing_key");
	for (size_t i = 0; i < keys.count; i++)
		if (rootfs_exists(root, keys.items[i]))
			return true;
	return false;
}

int driver_dkms_drop_key(struct rootfs *root, bool had_key, struct log *log, struct error *err)
{
	CLEANUP_STRV struct strv paths = {0};

	if (had_key || !driver_dkms_has_key(root))
		return 0;
	find_paths(&paths, root, default_keys, "mok_signing_key");
	find_paths(&paths, root, default_certificates, "mok_certificate");
	for (size_t i = 0; i < paths.count; i++)
		if (remove_file(root, paths.items[i], err) < 0)
			return -1;
	log_note(log, "the key that DKMS made to sign modules with is not kept: where Secure Boot "
	              "is on, sign them with one of your own");
	return 0;
}
