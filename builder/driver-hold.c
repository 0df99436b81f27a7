/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "driver-hold.h"
#include "packages.h"

#define STANZA_MAX_BYTES (256UL * 1024)
#define HOLD_TIMEOUT_MS  120000u

static bool is_kernel_name(const char *name)
{
	static const char *const prefixes[] = {"linux-image-", "linux-headers-", "linux-modules-",
	                                       "linux-objects-", "linux-signatures-"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (str_starts(name, prefixes[i]))
			return true;
	return false;
}

/* "linux-generic", "linux-aws-hwe-24.04": nothing but a dependency on the newest kernel. */
static bool forwards_to_kernel(const char *name, const char *stanza)
{
	const char *depends = strstr(stanza, "\nDepends:");
	size_t length = depends ? strcspn(depends + 1, "\n") : 0;
	CLEANUP_FREE char *line = depends ? mem_copy(depends + 1, length) : str_copy("");

	return str_starts(name, "linux-") &&
	       (strstr(line, " linux-image-") || strstr(line, " linux-headers-"));
}

static void add_stanza(struct strv *ret, const char *stanza, const char *status)
{
	CLEANUP_FREE char *name = NULL;

	if (!str_starts(stanza, "Package: "))
		return;
	stanza += strlen("Package: ");
	name = mem_copy(stanza, strcspn(stanza, "\n"));
	if ((is_kernel_name(name) || forwards_to_kernel(name, stanza)) &&
	    packages_has(status, name) && !strv_has(ret, name))
		strv_add(ret, name);
}

void driver_hold_names(struct strv *ret, const struct driver_plan *plan, const char *status)
{
	for (size_t i = 0; i < plan->driver_packages.count; i++)
		if (!strv_has(ret, plan->driver_packages.items[i]))
			strv_add(ret, plan->driver_packages.items[i]);
	while (status && *status) {
		const char *end = strstr(status, "\n\n");
		size_t length = end ? (size_t)(end - status) : strlen(status);
		CLEANUP_FREE char *stanza =
			mem_copy(status, length < STANZA_MAX_BYTES ? length : STANZA_MAX_BYTES);
		CLEANUP_FREE char *whole = str_format("%s\n", stanza);

		add_stanza(ret, stanza, whole);
		status = end ? end + 2 : NULL;
	}
	strv_sort(ret);
}

/* deb-control(5): lower-case letters, digits, plus, minus, point, and no sign at the beginning. */
static bool is_package_name(const char *name)
{
	return *name && *name != '-' && *name != '+' && *name != '.' &&
	       name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789+-.")] == '\0';
}

/* Without apt's binary caches, which would stay behind in the image. */
static int mark(struct rootfs *root, const char *what, const struct strv *names, struct error *err)
{
	CLEANUP_STRV struct strv argv =
		strv_split("apt-mark -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=", " ");
	size_t fixed;

	strv_add(&argv, what);
	fixed = argv.count;
	for (size_t i = 0; i < names->count; i++)
		if (is_package_name(names->items[i]))
			strv_add(&argv, names->items[i]);

	const struct guest_command command = {
		.argv = (const char *const *)argv.items,
		.timeout_ms = HOLD_TIMEOUT_MS,
	};

	return argv.count > fixed ? rootfs_run(root, &command, err) : 0;
}

int driver_hold(struct rootfs *root, const struct strv *names, struct error *err)
{
	return mark(root, "hold", names, err) < 0
	               ? error_prefix(err, "cannot hold the packages of driver and kernels")
	               : 0;
}

int driver_unhold(struct rootfs *root, const struct strv *names, struct error *err)
{
	return mark(root, "unhold", names, err) < 0
	               ? error_prefix(err, "cannot lift the holds of the driver's packages")
	               : 0;
}

int driver_keep(struct rootfs *root, const struct strv *names, struct error *err)
{
	return mark(root, "manual", names, err) < 0
	               ? error_prefix(err,
	                              "cannot keep the packages that the driver is compiled with")
	               : 0;
}

char *driver_preferences_text(const struct strv *held, const struct strv *installed)
{
	CLEANUP_STRV struct strv parts = {0};

	strv_add(
		&parts,
		"# GPU node: the baked driver and the kernels that it was made for stay as they are.\n"
		"# Repositories forward retired branches to newer ones; modules fit one kernel.\n"
		"# On a node: apt-mark showhold; apt-cache policy PACKAGE shows priority 1001.\n");
	for (size_t i = 0; i < held->count; i++) {
		const char *version = packages_version(installed, held->items[i]);

		if (version)
			strv_addf(&parts, "\nPackage: %s\nPin: version %s\nPin-Priority: 1001\n",
			          held->items[i], version);
	}
	return strv_join(&parts, "");
}

/* Python regular expressions: of what names of packages hold, '+' and '.' mean something there. */
static char *escaped(const char *name)
{
	char *text = mem_alloc(3 * strlen(name) + 1), *to = text;

	for (; *name; name++) {
		if (*name == '.' || *name == '+') {
			*to++ = '\\';
			*to++ = '\\'; /* apt.conf takes one off */
		}
		*to++ = *name;
	}
	return text;
}

char *driver_unattended_text(const struct strv *held)
{
	CLEANUP_STRV struct strv lines = {0};

	strv_add(&lines,
	         "// GPU node: unattended-upgrades leaves the baked driver and its kernels alone.\n"
	         "// A driver or kernel that changes alone is a node with a dead GPU.\n"
	         "// On a node: unattended-upgrade --dry-run --debug names what it leaves out.\n"
	         "Unattended-Upgrade::Package-Blacklist {\n");
	for (size_t i = 0; i < held->count; i++) {
		CLEANUP_FREE char *name = escaped(held->items[i]);

		strv_addf(&lines, "\t\"^%s$\";\n", name);
	}
	strv_add(&lines, "};\n");
	return strv_join(&lines, "");
}
