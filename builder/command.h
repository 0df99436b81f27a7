/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands, one file each. They return an exit code; what failed is in 'err'. */
#ifndef GPUIMG_COMMAND_H
#define GPUIMG_COMMAND_H

#include "error.h"
#include "options.h"

enum exit_code command_build(const struct options *o, struct error *err);
enum exit_code command_boot(const struct options *o, struct error *err);
enum exit_code command_cache(const struct options *o, struct error *err);
enum exit_code command_doctor(const struct options *o, struct error *err);
enum exit_code command_inspect(const struct options *o, struct error *err);
enum exit_code command_publish(const struct options *o, struct error *err);

#endif
