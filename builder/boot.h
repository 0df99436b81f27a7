/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Smoke boot of an image under QEMU with a large-BAR device, in a firmware that offers a
 * reachable or an unreachable window for it, beside a card that looks like an NVIDIA GPU.
 * The image is untrusted and not touched: it boots on a throw-away overlay.
 */
#ifndef GPUIMG_BOOT_H
#define GPUIMG_BOOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "log.h"
#include "str.h"

enum boot_firmware { FIRMWARE_BIOS, FIRMWARE_UEFI, FIRMWARE_UEFI_SECURE_BOOT };
#define FIRMWARE_COUNT 3
enum boot_window { WINDOW_UNREACHABLE, WINDOW_REACHABLE };
/* Each fact is one of these; unseen ones are told, never taken for good. */
enum fact { FACT_UNSEEN, FACT_NO, FACT_YES };

struct boot_options {
	const char *image;
	const char *format; /* QEMU's word; the caller has checked the file */
	enum boot_firmware firmware;
	enum boot_window window;
	uint64_t bar_bytes;       /* power of two, 1 MiB … 512 GiB; default 32 GiB */
	uint64_t memory_bytes;    /* default 2 GiB */
	unsigned timeout_s;       /* 0: default by accelerator */
	bool kvm;                 /* what accel_probe() said */
	bool early_only;          /* stop once the early facts are in (a control needs no more) */
	bool driver;              /* the image has NVIDIA's driver: try to load it */
	const char *console_path; /* the console log is kept here; NULL: in work_dir */
	const char *work_dir;     /* for overlay, seed, sockets; must exist */
	const char *data_dir;     /* holds boot/smoke/, what the guest is given to run */
	struct log *log;
};

/* What the guest tells of NVIDIA's driver, at its end; JSON null where nobody asked. */
struct boot_driver {
	bool asked;
	enum fact loaded;         /* the module stands in /proc/modules, after "modprobe nvidia" */
	enum fact no_card;        /* its code ran, and found no card that answers */
	char *exit_code;          /* of modprobe: "0", "1", "none within 120 s"; NULL: unseen */
	char *message;            /* of modprobe */
	char *module;             /* what "nvidia" comes to by install lines and aliases */
	char *version, *vermagic; /* of that module's file, by modinfo */
	struct strv modules;      /* in /proc/modules, of names that start with "nvidia" */
	struct strv devices;      /* /dev/nvidia... */
	struct strv kernel_lines; /* the kernel's own, the last ones */
	struct strv unit_lines;   /* "UNIT: LINE", of the driver's units that failed */
	char *smi; /* nvidia-smi's exit code and message; NULL: it is not there, or unseen */
};

struct boot_facts {
	enum boot_firmware firmware; /* what was asked for, so that a pair can be judged */
	enum boot_window window;
	bool early_only;
	char *ended; /* how the run ended, for people: "all facts are in" */
	/* The guest's own word, from its kernel or the firmware's variable SecureBoot. */
	enum fact secure_boot;
	char *lockdown; /* of the kernel: "none", "integrity", "confidentiality"; NULL: unseen */
	char *refusal;  /* who stopped the chain, in its own words; NULL: nobody */
	enum fact kernel_started; /* a kernel, or what runs on one, was heard on the console */
	enum fact userspace;      /* cloud-init ran our seed (early frame came whole) */
	enum fact booted;         /* the late frame came too; without cloud-init: a login prompt */
	enum fact window_dropped; /* "ignored, not CPU addressable" */
	enum fact bar_assigned;   /* the large BAR is assigned where the CPU reaches it */
	char *bar_address;        /* "0x800000000-0xfffffffff", or NULL */
	char *bar_message;        /* the kernel's own line about it */
	enum fact nouveau_loaded; /* nouveau, nova_core… in /proc/modules */
	/* modprobe -b of the L4's alias names it, and the kernel's module_blacklist= does not */
	enum fact nouveau_loadable_by_alias;
	enum fact nouveau_loadable_by_name; /* the same for a bare modprobe NAME */
	enum fact nouveau_exists; /* the kernel has the module at all: else the control is void */
	enum fact card_probed;    /* BAR0 of the NVIDIA-like card was read by the guest */
	uint64_t card_reads;
	enum fact disk_ok;   /* the root file system takes a write, no I/O error on the console */
	enum fact nic_ok;    /* a NIC has a global address */
	enum fact serial_ok; /* kernel or userspace was heard on ttyS0 */
	struct strv failed_units; /* systemd units in state failed at the end */
	struct boot_driver driver;
	char *cmdline;    /* /proc/cmdline; NULL: unseen (the console's "Command line:" then) */
	char *machine_id; /* of this boot */
	struct strv host_keys; /* fingerprints of the SSH host keys of this boot */
	char *kernel;          /* uname -r */
	double seconds;        /* until the verdict */
	char *accelerator, *firmware_version;
	struct strv unseen; /* which facts could not be seen, and why, one line each */
};

/* "bios", "uefi", "uefi-secure-boot": in options, reports and manifests. */
const char *boot_firmware_name(enum boot_firmware f);
/* -1: it is none of them. */
int boot_firmware_from_name(enum boot_firmware *ret, const char *name);
bool boot_firmware_is_uefi(enum boot_firmware f);

/*
 * The UEFI firmware of this host and the template of its variables; for Secure Boot, one that
 * guards them by SMM, and variables in which Microsoft's keys are enrolled.
 */
int boot_recipe_firmware(enum boot_firmware firmware, char **ret_code, char **ret_vars,
                         struct error *err);

/* What 'ended' begins with where the guest fell silent half-way and stayed so. */
#define BOOT_STALLED "the guest said nothing more for"

/*
 * Boots and gathers. An error is for what kept the test from running (QEMU, firmware, space:
 * EXIT_HOST; the guest never printing a byte is a fact, not an error). Tells its phase by
 * log_step_progress(); the step is the caller's.
 */
int boot_run(const struct boot_options *options, struct boot_facts *ret, struct error *err);
void boot_facts_free(struct boot_facts *f);
json_t *boot_facts_json(const struct boot_facts *f);
/* What boot_facts_json() made; an error if anything is missing or of another type. */
int boot_facts_from_json(struct boot_facts *ret, const json_t *facts, struct error *err);

/*
 * In the firmware with Secure Boot the guest itself must say that it is on: else a run that would
 * have passed is VOID. A chain that Secure Boot stopped FAILED, and that is the only reason told.
 */
enum verdict { VERDICT_PASSED, VERDICT_FAILED, VERDICT_VOID };
const char *verdict_name(enum verdict v);

/* Whether the driver's module loads: all of it, or as far as a machine without the card lets it. */
bool boot_driver_runs(const struct boot_driver *d);
/* Whether the unit fails for lack of a card that answers: told, and held against no image. */
bool boot_driver_excuses(const struct boot_driver *d, const char *unit);

/*
 * With a driver asked for, its module must load, or stop for nothing but the lack of a card that
 * answers; reads of the card are then nvidia's, as long as nouveau is seen to stay away.
 *
 * expect_params: parameters that /proc/cmdline must hold (cmdline_holds). reasons: one line
 * for each point that failed, or is told and changes no verdict. For a built image alone: every
 * failed unit counts, but those that boot_driver_excuses().
 */
enum verdict boot_judge(const struct boot_facts *built, const struct strv *expect_params,
                        struct strv *ret_reasons);
/*
 * The pair: base must show the failure (BAR unassigned, nouveau loadable or probing the card),
 * else VOID with the reason; no nouveau in the kernel voids that fact alone, told by a reason
 * that changes no verdict. In the reachable window the base need not fail. Failed units that
 * the base did not have count against the built image; a base that was not run to its end has
 * shown none. A built image that fails is FAILED even where the control is void.
 */
enum verdict boot_judge_pair(const struct boot_facts *base, const struct boot_facts *built,
                             const struct strv *expect_params, struct strv *ret_reasons);

#endif
