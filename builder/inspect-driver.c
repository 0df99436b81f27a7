/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a driver of NVIDIA's is on the image already, by any of the ways that people put it
 * there (driver-facts.h), and whether it holds together (proof-driver.h): as the profile wants it,
 * or, where it wants none, in itself.
 */
#include <string.h>

#include "inspect-internal.h"
#include "proof-driver.h"

static char *versions_of(const struct driver_facts *facts)
{
	CLEANUP_STRV struct strv versions = {0};

	for (size_t i = 0; i < facts->module_count; i++) {
		const char *version = facts->modules[i].info.version;

		version = version ? version : "unknown";
		if (!strv_has(&versions, version))
			strv_add(&versions, version);
	}
	return versions.count ? strv_join(&versions, ", ") : NULL;
}

static void tell_driver(struct inspect *in, const struct driver_facts *facts)
{
	CLEANUP_STRV struct strv parts = {0};
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *versions = versions_of(facts);

	if (versions)
		strv_addf(&parts, "kernel modules (%s)", versions);
	if (facts->smi.count)
		strv_addf(&parts, "'%s'", facts->smi.items[0]);
	if (facts->packages.count)
		strv_addf(&parts, "%zu packages ('%s'%s)", facts->packages.count,
		          facts->packages.items[0], facts->packages.count > 1 ? "…" : "");
	if (facts->run_installers.count)
		strv_add(&parts, "the .run installer's 'nvidia-uninstall'");
	if (!parts.count && facts->libraries.count)
		strv_addf(&parts, "'%s'", strchr(facts->libraries.items[0], ' ') + 1);
	text = strv_join(&parts, ", ");
	if (parts.count)
		finding_note(&in->findings, "driver.host",
		             "a driver of NVIDIA's is on the image: %s", text);
}

int inspect_driver(struct inspect *in, const struct inspect_want *want, struct error *err)
{
	static const struct driver_want nothing = {.may_be_registered = true};
	CLEANUP_FREE char *scratch = inspect_scratch(in, "driver", err);
	CLEANUP_DRIVER_FACTS struct driver_facts facts = {0};

	if (!scratch || driver_facts_read(&facts, in->root, in->guest, &in->packages, err) < 0)
		return -1;
	json_object_set_new(in->facts, "driver", driver_facts_json(&facts));
	if (!want->driver || !want->driver->required)
		tell_driver(in, &facts);
	return proof_driver(&in->findings, in->root, in->guest, &facts,
	                    want->driver ? want->driver : &nothing, scratch, err);
}
