/* SPDX-License-Identifier: Apache-2.0 */
#include "open-guest.h"

int open_guest_probe(const struct open_guest *o, struct error *err)
{
	if (*o->accel_known)
		return 0;
	if (accel_probe(o->accel, o->cache_dir, o->log, err) < 0)
		return -1;
	*o->accel_known = true;
	if (!o->accel->kvm)
		log_note(o->log, "no KVM: %s; going on without", o->accel->reason);
	return 0;
}

int open_guest(struct guest **ret, struct rootfs **ret_root, struct appliance **ret_reader,
               struct disk *disk, const struct open_guest *o, struct error *err)
{
	struct appliance_options options = {
		.image = disk_path(disk),
		.format = o->format,
		.read_only = true,
		.work_dir = o->work_dir,
		.cache_dir = o->cache_dir,
		.log = o->log,
	};
	int result = guest_open(ret, ret_root, disk, NULL, err);

	if (result != 1)
		return result;
	if (open_guest_probe(o, err) < 0)
		return -1;
	options.kvm = o->accel->kvm;
	log_detail(o->log, "a file system that only the appliance reads: one is started");
	if (appliance_start(ret_reader, &options, err) < 0)
		return -1;
	return guest_open(ret, ret_root, disk, *ret_reader, err);
}
