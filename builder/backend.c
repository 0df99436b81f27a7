/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend-internal.h"
#include "bake.h"
#include "pipeline.h"
#include "sandbox.h"

/*
 * The sandbox first, also where KVM works: its programs run as fast as the host's, it needs no
 * virtual machine for ext roots, and a build is the same on every host.
 */
int backend_choose(const struct backend **ret, struct build *b, struct error *err)
{
	CLEANUP_ERROR struct error no_sandbox = ERROR_INIT;
	enum exec_mode mode = b->options->exec;

	if (mode == EXEC_APPLIANCE || sandbox_check_host(b->work_dir, &no_sandbox) < 0) {
		if (mode == EXEC_SANDBOX) {
			error_take(err, &no_sandbox);
			return error_code(err, EXIT_HOST);
		}
		if (build_probe_accel(b, err) < 0)
			return -1;
		if (mode == EXEC_AUTO && !b->accel.kvm)
			log_warn(b->log,
			         "no sandbox (%s): the guest's programs run in the appliance "
			         "without KVM, which takes 10 minutes and more for each kernel",
			         no_sandbox.message);
		mode = EXEC_APPLIANCE;
	}
	b->sandbox = mode != EXEC_APPLIANCE;
	*ret = b->sandbox ? &backend_sandbox : &backend_appliance;
	log_detail(b->log, "guest programs run in the %s", (*ret)->name);
	return 0;
}

int backend_start_appliance(struct build *b, struct error *err)
{
	if (build_probe_accel(b, err) < 0)
		return -1;

	const struct appliance_options o = {
		.image = b->overlay,
		.format = "qcow2",
		.kvm = b->accel.kvm,
		.network = (b->options->network || bake_is_wanted(b)) && !b->sandbox,
		.work_dir = b->work_dir,
		.cache_dir = b->options->cache_dir,
		.log = b->log,
	};

	return appliance_start(&b->appliance, &o, err);
}

static bool is_at_or_below(const char *path, const char *dir)
{
	return str_equal(dir, "/") || str_equal(path, dir) || str_below(path, dir);
}

/* A FAT file system only if it, or one that is mounted below it, is needed. */
static bool is_wanted(const struct guest *guest, const struct guest_mount *m,
                      const struct changes *c)
{
	if (!c)
		return true;
	for (size_t i = 0; i < guest->mount_count; i++) {
		const struct guest_mount *below = &guest->mounts[i];

		if (is_at_or_below(below->path, m->path) &&
		    (!guest_mount_is_fat(below) || backend_touches_fat(c, below)))
			return true;
	}
	return false;
}

int backend_mount(struct build *b, const struct changes *c, struct error *err)
{
	for (size_t i = 0; i < b->guest->mount_count; i++)
		if (is_wanted(b->guest, &b->guest->mounts[i], c) &&
		    appliance_mount_guest(b->appliance, &b->guest->mounts[i], err) < 0)
			return -1;
	return 0;
}

int backend_finish_appliance(struct build *b, struct error *err)
{
	if (appliance_trim(b->appliance, b->guest, err) < 0 ||
	    appliance_finish(b->appliance, err) < 0)
		return -1;
	appliance_close(STEAL(b->appliance));
	return 0;
}
