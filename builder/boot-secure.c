/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secure Boot in a boot test: who of the chain (firmware, shim, GRUB, systemd-boot) refused whom,
 * and whether the kernel says that it is on. What refuses and then waits for a key would cost the
 * whole deadline.
 */
#include <stdlib.h>
#include <string.h>

#include "boot-internal.h"

#define TEXT_MAX_BYTES 200

/* How long after a refusal: since it, and since the last byte of the console. */
#define TCG_SINCE_MS  90000
#define TCG_SILENT_MS 20000 /* GRUB says "Press any key", and goes on after 10 s */
#define KVM_SINCE_MS  40000
#define KVM_SILENT_MS 12000

/* What is said, and what it means. In the order of the chain; seen with OVMF 2022.11, shim 15.8
 * and GRUB 2.06 of Debian 12, or from the sources of shim, GRUB and systemd-boot. */
static const struct refusal {
	const char *marks[3]; /* one of them, and in the same line, behind it, */
	const char *also[3];  /* one of these; none: nothing */
	const char *meaning;
	bool goes_on; /* who says it does not stop there: what comes of it decides */
} refusals[] = {
	{{"BdsDxe: failed to "},
         {"Access Denied", "Security Violation"},
         "the firmware does not start the image's boot loader, which Microsoft's key has not "
         "signed: EFI/BOOT/BOOTX64.EFI must be the distribution's signed shim",
         false},
	{{"SBAT self-check failed"},
         {NULL},
         "the image's shim is revoked: a newer one is needed",
         false},
	{{"Verification failed"},
         {"Security Violation"},
         "shim does not start what it is to start (grubx64.efi beside it), which the "
         "distribution's key has not signed",
         false},
	{{"Security Policy Violation"},
         {NULL},
         "shim does not start what it is to start: its signature or its SBAT level is refused",
         false},
	{{"bad shim signature", "has invalid signature"},
         {NULL},
         "GRUB does not start the kernel, which the distribution's key has not signed",
         false},
	{{"shim_lock protocol not found"},
         {NULL},
         "GRUB was not started by shim, and starts no kernel then",
         false},
	{{"verification requested but nobody cares"},
         {NULL},
         "GRUB does not read a file that nobody has signed",
         true},
	{{"prohibited by secure boot policy"},
         {NULL},
         "GRUB does not do what its configuration asks for",
         true},
	{{"Error loading ", "Failed to execute "},
         {"ecurity violation", "ccess denied"},
         "systemd-boot does not start the kernel or unified kernel image, which no key of the "
         "machine or of shim has signed",
         false},
};

/* Where in the line it begins; NULL: the line does not say it. */
static const char *find_refusal(const struct refusal *r, const char *line)
{
	for (const char *const *mark = r->marks; *mark; mark++) {
		const char *at = strstr(line, *mark);

		if (at && (!*r->also || line_has_one_of(at, r->also)))
			return at;
	}
	return NULL;
}

/* From the mark to the end of the line, or to where a box is drawn. */
static char *words_of(const char *mark)
{
	CLEANUP_FREE char *words = NULL;
	size_t length = 0;

	while (mark[length] >= ' ' && mark[length] <= '~')
		length++;
	words = mem_copy(mark, length);
	return str_printable(str_trim(words), TEXT_MAX_BYTES);
}

static void refusal_line(struct console_seen *seen, const char *line)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		const char *at = find_refusal(&refusals[i], line);
		CLEANUP_FREE char *words = NULL;

		if (!at)
			continue;
		words = words_of(at);
		free(seen->refusal);
		seen->refusal = str_format("%s ('%s')", refusals[i].meaning, words);
		seen->refusal_goes_on = refusals[i].goes_on;
		return;
	}
}

/*
 * The firmware takes another boot option, so what it refused before has stopped nothing; but not
 * if that is a program of its own (its shell, from Fv(…)), which is no way into the image. A piece
 * of the line that does not reach the place says nothing yet.
 */
static void another_way_line(struct console_seen *seen, const char *line)
{
	static const char own[] = "\" from Fv(";
	const char *at = strstr(line, "BdsDxe: starting Boot");
	const char *from = at ? strstr(at, "\" from ") : NULL;

	if (!from || strlen(from) < strlen(own) || str_starts(from, own))
		return;
	seen->refusal_goes_on = true;
	seen->nothing_boots = false;
}

bool secure_boot_stopped(const struct console_seen *seen)
{
	return seen->refusal && !seen->refusal_goes_on && !seen->kernel;
}

void secure_boot_line(struct console_seen *seen, const char *line)
{
	if (!seen->kernel) {
		another_way_line(seen, line);
		if (!secure_boot_stopped(seen))
			refusal_line(seen, line);
		if (strstr(line, "BdsDxe: No bootable option or device was found"))
			seen->nothing_boots = true;
	} else if (strstr(line, "Secure boot enabled") ||
	           strstr(line, "Kernel is locked down from EFI Secure Boot")) {
		seen->secure_boot = FACT_YES;
	} else if (strstr(line, "Secure boot disabled") ||
	           strstr(line, "Secure boot could not be determined")) {
		seen->secure_boot = FACT_NO;
	}
}

bool secure_boot_gave_up(const struct console_seen *seen, int64_t since_ms, int64_t silent_ms,
                         bool kvm)
{
	if (!secure_boot_stopped(seen))
		return false;
	return seen->nothing_boots || since_ms >= (kvm ? KVM_SINCE_MS : TCG_SINCE_MS) ||
	       silent_ms >= (kvm ? KVM_SILENT_MS : TCG_SILENT_MS);
}

bool secure_boot_shown(const struct boot_facts *f, struct strv *reasons)
{
	if (f->firmware != FIRMWARE_UEFI_SECURE_BOOT || f->secure_boot == FACT_YES)
		return true;
	strv_addf(reasons, "%s, so this test proves nothing about it",
	          f->secure_boot == FACT_NO
	                  ? "Secure Boot is off in the image's guest"
	                  : "whether Secure Boot is on in the image's guest could not be seen");
	return false;
}
