/* SPDX-License-Identifier: Apache-2.0 */
/* Time for deadlines: it never jumps, and counts from no date (CLOCK_MONOTONIC). */
#ifndef GPUIMG_CLOCK_H
#define GPUIMG_CLOCK_H

#include <stdint.h>

int64_t clock_ms(void);

#endif
