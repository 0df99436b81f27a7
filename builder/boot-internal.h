/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the boot test share, and nobody else needs: the frames in which a guest
 * tells its facts, the console that they arrive on, the seed that makes the guest tell them,
 * and QEMU's command line.
 */
#ifndef GPUIMG_BOOT_INTERNAL_H
#define GPUIMG_BOOT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boot.h"
#include "error.h"
#include "fake-gpu.h"
#include "str.h"

/* --- Frames (boot-frame.c) --- */

enum frame_phase { FRAME_EARLY, FRAME_LATE };
#define FRAME_PHASES 2

/*
 * A fact is sent as lines of
 *	GPUIMG-<nonce> <early|late> <number> <key> <piece of base64> <cksum of these four> ;
 * and a frame ends with number 0, key "end", the count of its lines in place of the piece.
 * Every frame is sent twice: a line that a kernel message broke in one stands in the other.
 */
struct frames;

struct frames *frames_new(const char *nonce);
void frames_free(struct frames *f);
/* Any line of the console; what is not ours, or is broken, is left aside. Whether one was ours. */
bool frames_line(struct frames *f, const char *line);
bool frames_whole(const struct frames *f, enum frame_phase phase);
/* The value of a fact, of a whole frame; NULL if the guest did not tell it. Owned by the caller. */
char *frames_value(const struct frames *f, enum frame_phase phase, const char *key);
/* The CRC of POSIX cksum. */
uint32_t frames_cksum(const void *data, size_t size);

/* --- The console (boot-console.c) --- */

enum boot_phase { PHASE_FIRMWARE, PHASE_KERNEL, PHASE_INITRAMFS, PHASE_USERSPACE, PHASE_DONE };

/* What the kernel's own lines say. */
struct console_seen {
	enum boot_phase phase;
	bool kernel; /* one runs: its lines, a frame or a login prompt came */
	bool banner; /* its very first lines came: a quiet kernel does not say them */
	bool panic;
	bool login;      /* a login prompt */
	bool cloud_done; /* cloud-init says that it has finished */
	bool power_off, restart;
	bool window_dropped;
	bool nouveau;       /* nouveau or nova spoke up about a device */
	struct strv nvidia; /* lines of NVIDIA's driver, the last ones */
	bool disk_error;    /* the kernel told of a block device or file system that fails */
	enum fact bar_assigned;
	char *bar_address;
	char *bar_message;
	char *panic_message;
	char *disk_message;
	char *kernel_version;
	char *cmdline;
	char *firmware_version;
	enum fact secure_boot; /* by the kernel's own line */
	char *refusal; /* whom Secure Boot made refuse something, and in which words; or NULL */
	bool refusal_goes_on; /* that one went on after it, or the firmware took another way */
	bool nothing_boots;   /* the firmware has tried all it knows */
};

struct console;

/* phys_bits: of the guest's CPU; an address beyond is not reachable. */
struct console *console_new(const char *nonce, uint64_t bar_bytes, unsigned phys_bits);
void console_free(struct console *c);
void console_feed(struct console *c, const char *data, size_t size);
const struct console_seen *console_seen(const struct console *c);
const struct frames *console_frames(const struct console *c);
/* Whether one of the texts stands in it; 'marks' ends with NULL. */
bool line_has_one_of(const char *line, const char *const *marks);
/* A piece of the kernel's [start-end] pair: whether it is the large BAR, where the CPU reaches. */
bool console_range_good(const struct console *c, uint64_t start, uint64_t end);

/* --- Secure Boot (boot-secure.c) --- */

/* Any line, or the piece of one: before a kernel runs its loaders speak, then the kernel itself. */
void secure_boot_line(struct console_seen *seen, const char *line);
/* Whether the last refusal is one that stops the chain, as far as was heard. */
bool secure_boot_stopped(const struct console_seen *seen);
/* Whether firmware and loaders that refused something have had time for another way. */
bool secure_boot_gave_up(const struct console_seen *seen, int64_t since_ms, int64_t silent_ms,
                         bool kvm);
/* Of a firmware with Secure Boot: whether the guest said that it is on; a reason if not. */
bool secure_boot_shown(const struct boot_facts *f, struct strv *reasons);

/* --- From the console to facts (boot-facts.c) --- */

/* What is known beside the console. */
struct boot_end {
	const char *how; /* how the run ended, for people */
	bool early_only;
	bool driver;      /* the guest was to try NVIDIA's driver */
	bool secure_boot; /* the firmware was to have it on */
	bool has_card;    /* this QEMU can carry the NVIDIA-like card */
	struct fake_gpu_counts card;
};

/* Fills all but firmware, window, seconds and accelerator. */
void boot_facts_gather(const struct console *c, const struct boot_end *end, struct boot_facts *ret);

/* --- NVIDIA's driver (boot-driver.c) --- */

/* All of 'ret', from the late frame; the kernel's lines of the console stand in without one. */
void boot_driver_gather(const struct console *c, struct boot_driver *ret);
void boot_driver_free(struct boot_driver *d);
/* kernel: that runs, or NULL. One line in 'reasons' for each point that failed. */
void boot_driver_judge(const struct boot_driver *d, const char *kernel, struct strv *reasons);

/* --- The seed (boot-seed.c) --- */

/*
 * Writes the NoCloud volume (ISO 9660, label "cidata") to a new file 'path'. settle_s: how long
 * the guest may take to come to rest before it tells its late facts. driver: it tries NVIDIA's.
 */
int boot_seed_write(const char *path, const char *data_dir, const char *nonce, unsigned settle_s,
                    bool driver, struct error *err);

/* --- The files of one run (boot-files.c) --- */

struct boot_files {
	char *overlay;
	char *seed;
	char *vars; /* our own copy of the firmware's variables; NULL with BIOS */
	char *code; /* the firmware; NULL with BIOS */
};

int boot_files_check_space(const char *work_dir, struct error *err);
/* After an error too, boot_files_remove() removes what was made. */
int boot_files_make(struct boot_files *f, const struct boot_options *o, const char *nonce,
                    unsigned settle_s, struct error *err);
void boot_files_remove(struct boot_files *f);

/* --- QEMU's command line (boot-recipe.c) --- */

#define BOOT_PHYS_BITS 40 /* of the guest's CPU, in every recipe */

/* Refuses what no recipe can show, before anything runs. */
int boot_recipe_check(const struct boot_options *o, struct error *err);
/* gpu_fd: QEMU's end of the fake card's socket, -1 for none; sandbox: this QEMU has -sandbox. */
struct strv boot_recipe_argv(const struct boot_options *o, const struct boot_files *files,
                             int gpu_fd, bool sandbox);

#endif
