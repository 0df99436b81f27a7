/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a firmware finds something to start, and what 'gpuimg build' would say. */
#include "inspect-internal.h"

/* Clouds refuse a VM whose boot type is not that of its image, so both are told. */
static void check_boot_types(struct inspect *in)
{
	struct findings *f = &in->findings;
	bool bios = disk_boots_bios(in->disk);
	bool esp = disk_boots_uefi(in->disk);
	bool uefi = esp && guest_has_uefi_loader(in->guest, in->root);

	json_object_set_new(in->facts, "uefi_loader", json_boolean(uefi));
	if (esp && !uefi && bios)
		finding_note(f, "boot.uefi-loader",
		             "the EFI system partition holds no boot loader: the image boots with "
		             "BIOS only");
	else if (esp && !uefi)
		finding_bad(f, "boot.types", NULL,
		            "the EFI system partition holds no boot loader, and nothing boots with "
		            "BIOS");
	else if (!bios && !uefi)
		finding_bad(f, "boot.types", NULL,
		            "the disk has neither boot code for BIOS nor an EFI system partition");
	else
		finding_ok(f, "boot.types", "the disk's layout boots with %s",
		           bios && uefi ? "BIOS and UEFI"
		           : bios       ? "BIOS"
		                        : "UEFI");
}

void inspect_layout(struct inspect *in)
{
	CLEANUP_ERROR struct error refusal = ERROR_INIT;

	check_boot_types(in);
	if (guest_check_supported(in->guest, in->root, &refusal) < 0)
		finding_note(&in->findings, "build.refused",
		             "'gpuimg build' refuses this image: %s", refusal.message);
}
