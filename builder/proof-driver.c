/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as a whole: one version everywhere, its user-space part, what keeps it as it is. */
#include <string.h>

#include "driver-facts-internal.h"
#include "proof-driver-internal.h"

#define CDI_MAX_BYTES (4UL * 1024 * 1024)

void proof_driver_lacks(const struct driver_proof *p, const char *id, const char *cure,
                        const char *format, ...)
{
	va_list args;

	va_start(args, format);
	finding_vlack(p->f, p->want->required, id, cure, format, args);
	va_end(args);
}

/* Of the modules, each once. */
static struct strv module_versions(const struct driver_facts *facts)
{
	struct strv versions = {0};

	for (size_t i = 0; i < facts->module_count; i++) {
		const char *version = facts->modules[i].info.version;

		if (version && !strv_has(&versions, version))
			strv_add(&versions, version);
	}
	return versions;
}

/* What the user-space part has to be of: what is wanted, or the modules' own. */
static const char *right_version(const struct driver_proof *p, const struct strv *versions)
{
	if (p->want->version)
		return p->want->version;
	return versions->count == 1 ? versions->items[0] : NULL;
}

static void check_branch(const struct driver_proof *p, const char *version)
{
	CLEANUP_FREE char *branch = driver_branch_of(version);

	if (!p->want->branch)
		return;
	if (str_equal(branch, p->want->branch))
		finding_ok(p->f, "driver.branch", "NVIDIA's modules are of branch %s", branch);
	else
		finding_bad(p->f, "driver.branch", "bake the branch that is wanted",
		            "NVIDIA's modules are of version %s, not of branch %s", version,
		            p->want->branch);
}

static void check_versions(const struct driver_proof *p, const struct strv *versions)
{
	CLEANUP_FREE char *all = strv_join(versions, ", ");

	if (p->facts->module_count && !versions->count)
		proof_driver_lacks(p, "driver.version", "install the driver anew",
		                   "none of NVIDIA's modules says its version");
	if (versions->count > 1)
		finding_bad(p->f, "driver.versions", "install one version of the driver",
		            "NVIDIA's modules are of different versions: %s", all);
	for (size_t i = 0; i < versions->count; i++) {
		const char *version = versions->items[i];

		check_branch(p, version);
		if (p->want->version && strcmp(version, p->want->version) != 0)
			finding_bad(p->f, "driver.version", "bake the version that is wanted",
			            "NVIDIA's modules are of version %s, not %s", version,
			            p->want->version);
		else if (versions->count == 1)
			finding_ok(p->f, "driver.version",
			           "all of NVIDIA's modules are of version %s", version);
	}
}

/* One of the two libraries; lines of the facts are "VERSION PATH". */
static void check_library(const struct driver_proof *p, const char *library, const char *version)
{
	CLEANUP_FREE char *within = str_format("/%s.", library);
	bool found = false;

	for (size_t i = 0; i < p->facts->libraries.count; i++) {
		CLEANUP_FREE char *line = str_copy(p->facts->libraries.items[i]);
		char *path = strchr(line, ' ');

		if (!path || !strstr(path, within))
			continue;
		*path++ = '\0';
		found = true;
		if (version && strcmp(line, version) != 0)
			finding_bad(p->f, "driver.userspace",
			            "remove the libraries of the other driver",
			            "'%s' is not of the modules' version %s: NVML refuses to start",
			            path, version);
		else
			finding_ok(p->f, "driver.userspace", "'%s' is there", path);
	}
	if (!found && p->facts->module_count)
		proof_driver_lacks(p, "driver.userspace",
		                   "install the driver's user-space part of the same version",
		                   "the dynamic linker would find no %s of a driver", library);
}

static void check_userspace(const struct driver_proof *p, const char *version)
{
	check_library(p, "libcuda.so", version);
	check_library(p, "libnvidia-ml.so", version);
	if (p->facts->smi.count)
		finding_ok(p->f, "driver.userspace", "'%s' is there", p->facts->smi.items[0]);
	else if (p->facts->module_count)
		proof_driver_lacks(p, "driver.userspace",
		                   "install the driver's user-space part of the same version",
		                   "there is no program nvidia-smi");
}

static void check_holds(const struct driver_proof *p)
{
	CLEANUP_STRV struct strv missing = {0};
	CLEANUP_FREE char *all = NULL;

	if (!p->want->held)
		return;
	for (size_t i = 0; i < p->want->held->count; i++)
		if (!strv_has(&p->facts->held, p->want->held->items[i]))
			strv_add(&missing, p->want->held->items[i]);
	all = strv_join(&missing, ", ");
	if (missing.count)
		finding_bad(p->f, "driver.hold", "'apt-mark hold' them",
		            "an update would change what belongs to the driver: %s", all);
	else
		finding_ok(p->f, "driver.hold", "%zu packages of the driver are on hold",
		           p->want->held->count);
}

/* The sentence is the same for any that it has: each is built for each kernel that comes. */
static void check_dkms(const struct driver_proof *p)
{
	CLEANUP_FREE char *all = strv_join(&p->facts->dkms, ", ");
	bool ours = false;

	for (size_t i = 0; i < p->facts->dkms.count; i++)
		ours = ours || driver_facts_is_dkms(p->facts->dkms.items[i]);
	if (ours && p->want->required && !p->want->may_be_registered)
		finding_bad(p->f, "driver.dkms", "'dkms remove' it, the modules stay",
		            "DKMS still has %s registered, and builds it anew on a node", all);
	else if (p->facts->dkms.count)
		finding_note(p->f, "driver.dkms",
		             "DKMS has %s registered, and builds it anew for each kernel that is "
		             "installed on a node",
		             all);
}

/* A CDI spec has device numbers and UUIDs of one machine's cards. */
static void check_cdi(const struct driver_proof *p)
{
	CLEANUP_STRV struct strv names = driver_facts_list(p->root, "/etc/cdi");

	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format("/etc/cdi/%s", names.items[i]);
		CLEANUP_FREE char *text = driver_facts_text(p->root, path, CDI_MAX_BYTES);

		if (text && strstr(text, "nvidia.com/"))
			proof_driver_lacks(
				p, "driver.cdi", "remove it: a node makes its own",
				"'%s' describes the cards of another machine to containers", path);
	}
}

int proof_driver(struct findings *f, struct rootfs *root, const struct guest *guest,
                 const struct driver_facts *facts, const struct driver_want *want,
                 const char *scratch, struct error *err)
{
	const struct driver_proof p = {.f = f,
	                               .root = root,
	                               .guest = guest,
	                               .facts = facts,
	                               .want = want,
	                               .scratch = scratch};
	CLEANUP_STRV struct strv versions = module_versions(facts);

	check_cdi(&p);
	check_dkms(&p);
	if (!driver_facts_any(facts)) {
		if (want->required)
			finding_bad(f, "driver.present", "bake one: --driver-branch",
			            "there is no driver of NVIDIA's on the image");
		return 0;
	}
	finding_ok(f, "driver.present", "a driver of NVIDIA's is on the image");
	if (proof_driver_kernels(&p, err) < 0)
		return -1;
	check_versions(&p, &versions);
	check_userspace(&p, right_version(&p, &versions));
	check_holds(&p);
	return 0;
}
