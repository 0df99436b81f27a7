/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUIMG_STAGES_H
#define GPUIMG_STAGES_H

#include "builder/stage.h"

extern const struct stage stage_modprobe;
extern const struct stage stage_cmdline;
extern const struct stage stage_driver;
extern const struct stage stage_containerd;
extern const struct stage stage_user;
extern const struct stage stage_initramfs;
extern const struct stage stage_bootloader;
extern const struct stage stage_seal;

#endif
