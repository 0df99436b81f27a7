/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: what this host has and lacks for a build, each finding with its cure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel.h"
#include "boot.h"
#include "command.h"
#include "data.h"
#include "finding.h"
#include "proc.h"
#include "sandbox.h"
#include "str.h"
#include "workdir.h"

#define WORK_SPACE_BYTES  (4ull * 1024 * 1024 * 1024)
#define CACHE_SPACE_BYTES (1ull * 1024 * 1024 * 1024)

static const struct {
	const char *program, *package, *what_for;
	bool needed;
} programs[] = {
	{"qemu-img", "qemu-utils", "export of images", true},
	{"qemu-nbd", "qemu-utils", "reading images", true},
	{"qemu-system-x86_64", "qemu-system-x86", "boot tests and the appliance", true},
	{"supermin", "supermin", "the libguestfs appliance", true},
	{"bwrap", "bubblewrap", "guest programs at native speed", false},
	{"mmdebstrap", "mmdebstrap", "the default base image", false},
};

static void check_programs(struct findings *f)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		CLEANUP_FREE char *cure =
			str_format("install the package '%s'", programs[i].package);

		if (proc_have(programs[i].program))
			finding_ok(f, "program", "'%s' is there (%s)", programs[i].program,
			           programs[i].what_for);
		else if (programs[i].needed)
			finding_bad(f, "program", cure, "'%s' is missing (%s)", programs[i].program,
			            programs[i].what_for);
		else
			finding_note(f, "program", "'%s' is missing (%s): %s", programs[i].program,
			             programs[i].what_for, cure);
	}
}

static void check_kernel(struct findings *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = NULL;

	if (accel_host_kernel(&path, &err) == 0)
		finding_ok(f, "kernel", "'%s' can be read (the appliance boots it)", path);
	else
		finding_bad(f, "kernel", err.hint, "%s", err.message);
}

static void check_accel(struct findings *f, const struct options *o, struct log *log)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct accel accel = {0};

	if (accel_probe(&accel, o->cache_dir, log, &err) < 0)
		finding_bad(f, "accelerator", err.hint, "%s", err.message);
	else if (accel.kvm)
		finding_ok(f, "accelerator", "KVM runs a Linux guest (%s)", accel.reason);
	else
		finding_note(
			f, "accelerator",
			"no KVM: %s%s; builds go on without, boots take about ten times longer",
			accel.reason,
			accel.remembered ? " (found out earlier in this boot of the host)" : "");
	accel_free(&accel);
}

static void check_sandbox(struct findings *f, const char *work_dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (sandbox_check_host(work_dir, &err) == 0)
		finding_ok(f, "sandbox", "bubblewrap with a user namespace of shifted ids works");
	else
		finding_note(f, "sandbox", "%s%s%s", err.message, err.hint ? "; cure: " : "",
		             err.hint ? err.hint : "");
}

static void check_space(struct findings *f, const char *what, const char *dir, uint64_t needed)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *have = str_size(workdir_free_bytes(dir));

	if (workdir_check_space(dir, needed, &err) < 0)
		finding_bad(f, "space", err.hint, "%s: %s", what, err.message);
	else
		finding_ok(f, "space", "%s '%s': %s free", what, dir, have);
}

static void check_ovmf(struct findings *f, enum boot_firmware firmware, const char *what_for)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *code = NULL;
	CLEANUP_FREE char *vars = NULL;

	if (boot_recipe_firmware(firmware, &code, &vars, &err) == 0)
		finding_ok(f, "firmware", "'%s' is there (%s)", code, what_for);
	else
		finding_note(f, "firmware", "%s; cure: %s", err.message, err.hint);
}

static void print_findings(const struct findings *f, const struct options *o)
{
	static const char *const marks[] = {"ok", "note", "BAD"};

	if (o->json) {
		json_t *report =
			json_pack("{s:b, s:o}", "fit", f->bad == 0, "findings", findings_json(f));
		CLEANUP_FREE char *text = json_dumps(report, JSON_INDENT(2));

		puts(text ? text : "null");
		json_decref(report);
		return;
	}
	for (size_t i = 0; i < f->count; i++) {
		printf("%-4s  %-12s %s\n", marks[f->items[i].verdict], f->items[i].id,
		       f->items[i].what);
		if (f->items[i].cure)
			printf("      %-12s cure: %s\n", "", f->items[i].cure);
	}
}

enum exit_code command_doctor(const struct options *o, struct error *err)
{
	const char *work_dir = o->work_dir ? o->work_dir : getenv("TMPDIR");
	CLEANUP_FREE char *data = NULL;
	struct findings f = {0};
	struct log *log = NULL;
	enum exit_code code;

	if (!work_dir || !*work_dir)
		work_dir = "/var/tmp";
	if (workdir_make_parents(o->cache_dir, err) < 0)
		return EXIT_HOST;
	if (log_open(&log, NULL, o->level, err) < 0 || data_find_dir(&data, o->data_dir, err) < 0)
		return error_exit_code(err);
	check_programs(&f);
	check_ovmf(&f, FIRMWARE_UEFI, "UEFI boot tests");
	check_ovmf(&f, FIRMWARE_UEFI_SECURE_BOOT, "boot tests with Secure Boot");
	check_kernel(&f);
	check_accel(&f, o, log);
	check_sandbox(&f, work_dir);
	check_space(&f, "work directory", work_dir, WORK_SPACE_BYTES);
	check_space(&f, "cache", o->cache_dir, CACHE_SPACE_BYTES);
	print_findings(&f, o);
	code = f.bad ? EXIT_HOST : EXIT_OK;
	findings_free(&f);
	log_close(log);
	return code;
}
