/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QEMU's command lines. What makes the window unreachable: room for memory hot-plug right up to
 * the end of what 40 address bits reach, behind which both firmwares put the 64-bit window. That
 * needs an Intel-vendor CPU with 40 bits, which newer firmware does not trust (SeaBIOS 1.16.3,
 * OVMF 202211): with AMD's vendor id, or other widths, they put the window below the limit.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "boot-internal.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
/* Below this the BAR would find a place before the limit, whatever maxmem says. */
#define UNREACHABLE_MIN_BAR (16 * GIB)
#define MAX_BAR             (512 * GIB)
#define MIN_MEMORY          (256 * MIB)
#define MAX_MEMORY          (512 * GIB)

static bool unreachable(const struct boot_options *o)
{
	return o->window == WINDOW_UNREACHABLE;
}

static bool uefi(const struct boot_options *o)
{
	return boot_firmware_is_uefi(o->firmware);
}

static bool secure_boot(const struct boot_options *o)
{
	return o->firmware == FIRMWARE_UEFI_SECURE_BOOT;
}

static int usage(struct error *err)
{
	return error_code(err, EXIT_USAGE);
}

int boot_recipe_check(const struct boot_options *o, struct error *err)
{
	CLEANUP_FREE char *bar = str_size(o->bar_bytes);

	if (o->bar_bytes < MIB || o->bar_bytes > MAX_BAR || o->bar_bytes & (o->bar_bytes - 1)) {
		error_set(err,
		          "cannot emulate a BAR of %s: a power of two from 1 MiB to 512 GiB "
		          "is needed",
		          bar);
		return usage(err);
	}
	if (unreachable(o) && o->bar_bytes < UNREACHABLE_MIN_BAR) {
		error_set(err, "cannot put a BAR of %s out of the CPU's reach", bar);
		error_hint(err, "16 GiB or more do not fit below the limit; the GPUs that fail in "
		                "the field have such BARs");
		return usage(err);
	}
	if (o->memory_bytes < MIN_MEMORY || o->memory_bytes > MAX_MEMORY) {
		error_set(err,
		          "cannot boot with %" PRIu64 " MiB of memory: 256 MiB to 512 GiB "
		          "are possible",
		          o->memory_bytes / MIB);
		return usage(err);
	}
	return 0;
}

struct firmware_files {
	const char *code;
	const char *vars;
};

static const struct firmware_files known_uefi[] = {
	{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},
	{"/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"},
	{"/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"},
	{"/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"},
	{"/usr/share/qemu/ovmf-x86_64-code.bin", "/usr/share/qemu/ovmf-x86_64-vars.bin"},
	{NULL, NULL},
};

/*
 * Debian and Ubuntu, Fedora and EL, openSUSE, Gentoo: variables with Microsoft's keys. Arch has the
 * firmware only; its variables are empty, and with them Secure Boot is off.
 */
static const struct firmware_files known_secure_boot[] = {
	{"/usr/share/OVMF/OVMF_CODE_4M.ms.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"},
	{"/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd"},
	{"/usr/share/OVMF/OVMF_CODE.secboot.fd", "/usr/share/OVMF/OVMF_VARS.ms.fd"},
	{"/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", "/usr/share/edk2/ovmf/OVMF_VARS.secboot.fd"},
	{"/usr/share/qemu/ovmf-x86_64-smm-ms-code.bin",
         "/usr/share/qemu/ovmf-x86_64-smm-ms-vars.bin"},
	{"/usr/share/edk2-ovmf/OVMF_CODE.secboot.fd", "/usr/share/edk2-ovmf/OVMF_VARS.secboot.fd"},
	{NULL, NULL},
};

int boot_recipe_firmware(enum boot_firmware firmware, char **ret_code, char **ret_vars,
                         struct error *err)
{
	bool secure = firmware == FIRMWARE_UEFI_SECURE_BOOT;
	const struct firmware_files *known = secure ? known_secure_boot : known_uefi;

	for (const struct firmware_files *f = known; f->code; f++) {
		if (access(f->code, R_OK) < 0 || access(f->vars, R_OK) < 0)
			continue;
		*ret_code = str_copy(f->code);
		*ret_vars = str_copy(f->vars);
		return 0;
	}
	if (secure)
		error_set(err,
		          "cannot boot with Secure Boot: no firmware with Microsoft's keys, such "
		          "as '%s' with '%s', on this host",
		          known->code, known->vars);
	else
		error_set(err, "cannot boot with UEFI: no firmware such as '%s' on this host",
		          known->code);
	error_hint(err, "install the package 'ovmf' (Debian, Ubuntu), 'edk2-ovmf' (Fedora, EL) or "
	                "'qemu-ovmf-x86_64' (openSUSE)");
	return error_code(err, EXIT_HOST);
}

/* In QEMU's option strings a comma in a value is written twice. */
static char *quoted(const char *value)
{
	char *text = mem_alloc(2 * strlen(value) + 1), *out = text;

	for (; *value; value++) {
		if (*value == ',')
			*out++ = ',';
		*out++ = *value;
	}
	return text;
}

static void add(struct strv *argv, const char *option, const char *value)
{
	strv_add(argv, option);
	strv_add(argv, value);
}

static void add_drive(struct strv *argv, const char *id, const char *path, const char *rest)
{
	CLEANUP_FREE char *file = quoted(path);

	strv_add(argv, "-drive");
	strv_addf(argv, "if=none,id=%s,file=%s,%s", id, file, rest);
}

static void add_pflash(struct strv *argv, int unit, const char *path, const char *rest)
{
	CLEANUP_FREE char *file = quoted(path);

	strv_add(argv, "-drive");
	strv_addf(argv, "if=pflash,unit=%d,format=raw,file=%s%s", unit, file, rest);
}

static void add_machine(struct strv *argv, const struct boot_options *o,
                        const struct boot_files *files)
{
	/* The fake card's protocol shares guest memory by descriptor: it must have one. */
	strv_add(argv, "-object");
	strv_addf(argv, "memory-backend-memfd,id=ram0,size=%" PRIu64 "M", o->memory_bytes / MIB);
	strv_add(argv, "-machine");
	strv_addf(argv, "%s%s,memory-backend=ram0", uefi(o) ? "q35" : "pc",
	          secure_boot(o) ? ",smm=on" : "");
	strv_add(argv, "-cpu");
	/* Under KVM a model takes the host's vendor id, unless it is named. */
	strv_addf(argv, "SandyBridge,vendor=GenuineIntel,phys-bits=%d", BOOT_PHYS_BITS);
	strv_add(argv, "-m");
	strv_addf(argv, "%" PRIu64 "M%s", o->memory_bytes / MIB,
	          unreachable(o) ? ",slots=8,maxmem=1000G" : "");
	add(argv, "-smp", "2");
	if (!uefi(o))
		return;
	if (secure_boot(o)) {
		/* Only SMM may write the variables, keys among them: not the guest's system. */
		add(argv, "-global", "driver=cfi.pflash01,property=secure,value=on");
		add(argv, "-global",
		    "ICH9-LPC.disable_s3=1"); /* nobody sleeps; SMM would take part */
	}
	if (unreachable(o)) /* or QEMU finds that its own hole for PCI passes the limit */
		add(argv, "-global", "q35-pcihost.pci-hole64-size=2G");
	if (!unreachable(o)) {
		/* OVMF does not trust 40 bits of Intel, and falls back on a hole of 32 GiB. */
		strv_add(argv, "-fw_cfg");
		strv_addf(argv, "name=opt/ovmf/X-PciMmio64Mb,string=%" PRIu64,
		          2 * (o->bar_bytes < 32 * GIB ? 32 * GIB : o->bar_bytes) / MIB);
	}
	add_pflash(argv, 0, files->code, ",readonly=on");
	add_pflash(argv, 1, files->vars, "");
}

/*
 * OVMF drives virtio devices itself, and hangs where their own 64-bit BARs lie behind the
 * unreachable window too. The older virtio interface has none; SeaBIOS uses it by itself.
 */
static const char *virtio_mode(const struct boot_options *o)
{
	return uefi(o) ? ",disable-modern=on,disable-legacy=off" : "";
}

static void add_devices(struct strv *argv, const struct boot_options *o,
                        const struct boot_files *files, int gpu_fd)
{
	const char *mode = virtio_mode(o);

	/* werror: with a full disk QEMU would stop the guest, and nobody is there to go on. */
	add_drive(argv, "disk0", files->overlay, "format=qcow2,cache=unsafe,werror=report");
	strv_add(argv, "-device");
	strv_addf(argv, "virtio-blk-pci,drive=disk0,bootindex=1%s", mode);
	add_drive(argv, "seed0", files->seed, "format=raw,readonly=on");
	strv_add(argv, "-device");
	strv_addf(argv, "virtio-blk-pci,drive=seed0%s", mode);
	add(argv, "-netdev", "user,id=net0,restrict=on");
	strv_add(argv, "-device");
	strv_addf(argv, "virtio-net-pci,netdev=net0,romfile=%s", mode);
	add(argv, "-object", "rng-random,id=rng0,filename=/dev/urandom");
	strv_add(argv, "-device");
	strv_addf(argv, "virtio-rng-pci,rng=rng0%s", mode);
	strv_add(argv, "-device");
	strv_addf(argv, "pci-testdev,membar=%" PRIu64 "M", o->bar_bytes / MIB);
	if (gpu_fd < 0)
		return;
	strv_add(argv, "-device");
	strv_addf(argv, "x-pci-proxy-dev,id=gpu0,fd=%d", gpu_fd);
}

struct strv boot_recipe_argv(const struct boot_options *o, const struct boot_files *files,
                             int gpu_fd, bool sandbox)
{
	struct strv argv = {0};

	strv_add(&argv, "qemu-system-x86_64");
	add(&argv, "-name", "gpuimg-boot");
	strv_add(&argv, "-nodefaults");
	strv_add(&argv, "-no-user-config");
	strv_add(&argv, "-no-reboot");
	add(&argv, "-display", "none");
	if (sandbox)
		add(&argv, "-sandbox",
		    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
	add(&argv, "-accel", o->kvm ? "kvm" : "tcg,thread=multi");
	add_machine(&argv, o, files);
	add(&argv, "-chardev", "stdio,id=console0,signal=off");
	add(&argv, "-serial", "chardev:console0");
	/* For cloud-init's ds-identify, which runs before every disk may have been found. */
	add(&argv, "-smbios", "type=1,serial=ds=nocloud");
	add_devices(&argv, o, files, gpu_fd);
	return argv;
}
