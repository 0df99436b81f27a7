/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each kernel has of the driver: a node boots any of them, after an update mostly another one
 * than the build looked at.
 */
#include <string.h>

#include "modules.h"
#include "proof-driver-internal.h"

static const char *const needed[] = {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"};

/* A kernel with modules of the driver. */
struct subject {
	const struct driver_proof *p;
	const char *version;
};

static const struct driver_module *find_module(const struct subject *s, const char *role)
{
	const struct driver_facts *facts = s->p->facts;

	for (size_t i = 0; i < facts->module_count; i++)
		if (strcmp(facts->modules[i].kernel, s->version) == 0 &&
		    strcmp(driver_module_role(&facts->modules[i]), role) == 0)
			return &facts->modules[i];
	return NULL;
}

static bool has_modules(const struct driver_facts *facts, const char *version)
{
	for (size_t i = 0; i < facts->module_count; i++)
		if (strcmp(facts->modules[i].kernel, version) == 0)
			return true;
	return false;
}

/* The four that a node loads. */
static void check_complete(const struct subject *s)
{
	CLEANUP_STRV struct strv missing = {0};
	CLEANUP_FREE char *all = NULL;

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!find_module(s, needed[i]))
			strv_add(&missing, needed[i]);
	all = strv_join(&missing, ", ");
	if (missing.count)
		proof_driver_lacks(s->p, "driver.modules", "install the driver whole for it",
		                   "kernel %s has a part of the driver only; it lacks %s",
		                   s->version, all);
	else
		finding_ok(s->p->f, "driver.modules", "kernel %s has all modules of the driver",
		           s->version);
}

/* On EL, weak-updates has links to another kernel's modules, which this one takes for its symbols'
 * versions; the kernel then compares no more than what follows the version. */
static void check_vermagic(const struct subject *s, const struct driver_module *m)
{
	const char *magic = m->info.vermagic ? m->info.vermagic : "";
	size_t length = strcspn(magic, " ");

	if ((length == strlen(s->version) && strncmp(magic, s->version, length) == 0) ||
	    strstr(m->file, "/weak-updates/"))
		finding_ok(s->p->f, "driver.vermagic", "'%s' is for kernel %s", m->file,
		           s->version);
	else
		finding_bad(s->p->f, "driver.vermagic", "build the module for this kernel",
		            "'%s' cannot be loaded by kernel %s: it was built for '%.*s'", m->file,
		            s->version, (int)length, magic);
}

static void check_signed(const struct subject *s, const struct driver_module *m)
{
	static const char cure[] =
		"take modules that the distribution has signed (linux-modules-nvidia-…)";
	const struct module_info *info = &m->info;

	if (!s->p->want->require_signed)
		return;
	if (!info->has_signature)
		finding_bad(s->p->f, "driver.signed", cure, "'%s' is not signed", m->file);
	else if (!info->signer)
		finding_bad(s->p->f, "driver.signed", cure,
		            "'%s' is signed, but it does not say by whom", m->file);
	else if (strstr(info->signer, PROOF_DRIVER_SIGNER) ||
	         strstr(info->signer, PROOF_DRIVER_SIGNER_UBUNTU))
		finding_bad(s->p->f, "driver.signed", cure,
		            "'%s' is signed by '%s', a key that no node trusts by itself", m->file,
		            info->signer);
	else
		finding_ok(s->p->f, "driver.signed", "'%s' is signed by '%s'", m->file,
		           info->signer);
}

/* By the core's and modeset's licence: nvidia_uvm has the free one in both. */
static void check_flavour(const struct subject *s, const struct driver_module *m)
{
	const char *role = driver_module_role(m);
	const char *license = m->info.license ? m->info.license : "none";
	enum driver_flavour flavour;

	if (!s->p->want->flavour ||
	    (strcmp(role, "nvidia") != 0 && strcmp(role, "nvidia_modeset") != 0))
		return;
	flavour = strcmp(license, "NVIDIA") == 0 ? DRIVER_PROPRIETARY : DRIVER_OPEN;
	if (m->info.license && flavour == *s->p->want->flavour)
		finding_ok(s->p->f, "driver.flavour", "'%s' is %s (license %s)", m->file,
		           driver_flavour_name(flavour), license);
	else
		finding_bad(s->p->f, "driver.flavour", "bake the other flavour",
		            "'%s' is not %s: its license is %s", m->file,
		            driver_flavour_name(*s->p->want->flavour), license);
}

static void check_module(const struct subject *s, const struct driver_module *m)
{
	if (!m->listed)
		finding_bad(s->p->f, "driver.modules", "run depmod for this kernel",
		            "kernel %s would not find '%s': modules.dep does not name it",
		            s->version, m->file);
	if (m->unread) {
		finding_bad(s->p->f, "driver.modules", "install the driver for this kernel anew",
		            "'%s' is missing, damaged, or no kernel module", m->file);
		return;
	}
	check_vermagic(s, m);
	check_flavour(s, m);
	check_signed(s, m);
}

/* Firmware that the kernel's modules ask for. The open modules do nothing without it. */
static void check_firmware(const struct subject *s)
{
	const struct strv *missing = &s->p->facts->firmware_missing;
	const struct driver_module *core = find_module(s, "nvidia");
	size_t length = strlen(s->version);
	bool complete = true;

	for (size_t i = 0; i < missing->count; i++) {
		const char *line = missing->items[i];

		if (strncmp(line, s->version, length) != 0 || line[length] != ' ')
			continue;
		complete = false;
		proof_driver_lacks(
			s->p, "driver.firmware",
			"install the driver's firmware (firmware-nvidia-gsp, "
			"nvidia-firmware-…) of the same version",
			"kernel %s: the driver asks for '/lib/firmware/%s', which is not "
			"there",
			s->version, line + length + 1);
	}
	if (complete && core && core->info.firmware.count)
		finding_ok(s->p->f, "driver.firmware",
		           "kernel %s: all %zu firmware files that the driver asks for are there",
		           s->version, core->info.firmware.count);
}

/* Whether one of the names is a module of this kernel's with the role. */
static bool has_role(const struct subject *s, const struct strv *names, const char *role)
{
	const struct driver_facts *facts = s->p->facts;

	for (size_t i = 0; i < facts->module_count; i++) {
		const struct driver_module *m = &facts->modules[i];

		if (strcmp(m->kernel, s->version) == 0 && strv_has(names, m->name) &&
		    strcmp(driver_module_role(m), role) == 0)
			return true;
	}
	return false;
}

static int check_loads(const struct subject *s, const struct modules *world, const char *role,
                       struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE char *all = NULL;

	if (modules_loaded_for(world, role, &names, err) < 0)
		return error_prefix(err, "kernel '%s'", s->version);
	all = strv_join(&names, ", ");
	if (has_role(s, &names, role))
		finding_ok(s->p->f, "driver.loadable", "kernel %s: 'modprobe %s' loads %s",
		           s->version, role, all);
	else
		proof_driver_lacks(s->p, "driver.loadable",
		                   "see the 'install' lines of modprobe.d, and on Debian "
		                   "'update-alternatives --display glx'",
		                   "kernel %s: 'modprobe %s' loads %s", s->version, role,
		                   names.count ? all : "nothing");
	return 0;
}

/* By what the root file system holds of modules.dep and modprobe.d. */
static int check_loadable(const struct subject *s, struct error *err)
{
	CLEANUP_ERROR struct error damaged = ERROR_INIT;
	CLEANUP_MODULES struct modules world = {0};

	if (modules_from_rootfs(&world, s->p->root, s->version, s->p->scratch, &damaged) < 0) {
		if (damaged.code != EXIT_INPUT)
			return error_take(err, &damaged);
		proof_driver_lacks(s->p, "driver.loadable", "run depmod for this kernel", "%s",
		                   damaged.message);
		return 0;
	}
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (find_module(s, needed[i]) && check_loads(s, &world, needed[i], err) < 0)
			return -1;
	return 0;
}

static int check_kernel(const struct subject *s, struct error *err)
{
	const struct driver_facts *facts = s->p->facts;

	check_complete(s);
	for (size_t i = 0; i < facts->module_count; i++)
		if (strcmp(facts->modules[i].kernel, s->version) == 0)
			check_module(s, &facts->modules[i]);
	check_firmware(s);
	return check_loadable(s, err);
}

/* A kernel without modules is bad beside others with them, even if nobody wants a driver. */
static void check_without(const struct driver_proof *p, const char *version)
{
	static const char cure[] =
		"install the modules for each kernel, or remove the kernels without them";

	if (p->facts->module_count)
		finding_bad(p->f, "driver.kernels", cure,
		            "kernel %s has no modules of NVIDIA's, and kernel %s has", version,
		            p->facts->modules[0].kernel);
	else if (p->want->required)
		finding_bad(p->f, "driver.kernels", cure, "kernel %s has no modules of NVIDIA's",
		            version);
}

int proof_driver_kernels(const struct driver_proof *p, struct error *err)
{
	for (size_t i = 0; i < p->guest->kernel_count; i++) {
		const struct guest_kernel *k = &p->guest->kernels[i];
		const struct subject s = {.p = p, .version = k->version};

		if (k->rescue)
			continue;
		if (!has_modules(p->facts, k->version))
			check_without(p, k->version);
		else if (check_kernel(&s, err) < 0)
			return -1;
	}
	return 0;
}
