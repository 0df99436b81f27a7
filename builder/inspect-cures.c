/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person does about a point. The proof's own cures speak to who builds an image; here the
 * image may be anyone's, and the first answer is to build from it. docs/inspect.md has the same
 * ids.
 */
#include <string.h>

#include "inspect-internal.h"

struct cure {
	const char *id;
	const char *text;
};

static const struct cure cures[] = {
	{"boot.types", "put a boot loader on it, or start from an image that boots"},
	{"boot.uefi-loader",
         "for VMs of boot type UEFI: install the distribution's EFI loader in it"},
	{"boot.secure-boot",
         "for VMs of boot type UEFI with Secure Boot: the distribution's signed shim as "
         "EFI/BOOT/BOOTX64.EFI, its signed GRUB and kernel"},
	{"build.refused", "see what the message names; 'inspect' has judged the rest"},
	{"kernel.present",
         "install a kernel; if /boot is a partition of its own, fstab must name it"},
	{"kernel.modules", "install the kernel's modules, or remove the kernel"},
	{"modules.alias",
         "'gpuimg build' blocks it; by hand: 'blacklist' and 'install NAME /bin/false' lines in a file "
         "/etc/modprobe.d/NAME.conf, and every initramfs anew"},
	{"modules.name",
         "'gpuimg build' blocks it; by hand: a line 'install NAME /bin/false' in a file "
         "/etc/modprobe.d/NAME.conf, and every initramfs anew"},
	{"initramfs.present",
         "'gpuimg build' makes it; by hand: run the image's own generator for it"},
	{"cmdline.param",
         "'gpuimg build' adds it to every entry; by hand: where this image's loader takes it from, and "
         "the entries written anew. Not wanted here: --no-nocrs, --no-realloc, --no-module-blacklist"},
	{"cmdline.hotplug",
         "on platforms that plug memory in: leave it out (--no-nocrs, see docs/kernel-parameters.md)"},
	{"uki.signed", "build from an image with unsigned UKIs, or give the build the key"},
	{"initramfs.rescue", "boot it for rescue only, or remove it"},
	{"driver.host",
         "leave it as the one driver of the node, or remove it; never install another one over it"},
	{"driver.dkms", "'dkms remove' it where modules shall stay as they are"},
	{"driver.kernels",
         "install the modules for each kernel, or remove the kernels without them"},
	{"driver.versions", "install one version of the driver for all kernels"},
	{"driver.modules",
         "install the driver whole for that kernel, and run depmod for it; never mix two of them"},
	{"driver.firmware",
         "install the driver's firmware (firmware-nvidia-gsp, nvidia-firmware-…) of the same version"},
	{"driver.userspace",
         "install nvidia-smi, libcuda and libnvidia-ml of the modules' version, and no other's"},
	{"driver.loadable",
         "see the 'install' lines of modprobe.d; on Debian 'update-alternatives --display glx'"},
	{"driver.version", "install the driver anew"},
	{"driver.cdi", "remove it: a node makes its own (nvidia-cdi-refresh.service)"},
	{"initramfs.gpu-driver",
         "take it out of the initramfs generator's configuration, and make the initramfs anew"},
	{"containerd.runtime",
         "'gpuimg build --containerd-runtime nvidia' gives it; by hand: the section in the schema of the "
         "file's version, with runtime_type (docs/containerd.md)"},
	{"containerd.cgroup", "give the runtime the options of runc, SystemdCgroup above all"},
	{"containerd.cdi",
         "remove it: devices and paths are those of the machine that it was made on, and the runtime makes "
         "what it needs on each node"},
	{"containerd.binary", "install nvidia-container-toolkit in the image"},
	{"containerd.unread", "add the file to 'imports' of /etc/containerd/config.toml"},
	{"containerd.schema", "write the section in the schema of the main file's version"},
	{"containerd.cri-disabled", "take 'cri' out of disabled_plugins"},
	{"cloud-init.missing", "install cloud-init, if nodes shall take user-data"},
	{"cloud-init.disabled", "remove the file, if nodes shall take user-data"},
	{"cloud-init.datasources", "name the platform's datasource in datasource_list"},
	{"identity.machine-id",
         "'gpuimg build' seals it; by hand: truncate /etc/machine-id to 0 bytes"},
	{"identity.host-keys", "'gpuimg build' seals it; by hand: remove /etc/ssh/ssh_host_*"},
	{"identity.token",
         "remove it, have the token revoked, and deliver tokens at first boot (cloud-init)"},
	{"fstab.root", "name the root file system by its own UUID in /etc/fstab"},
	{"modprobe.text",
         "write the file with LF alone at the end of lines, and no byte-order mark"},
	{"modprobe.later",
         "'gpuimg build' arranges it; by hand: the block in /usr/lib/modprobe.d too, or in "
         "install_items of a file in /etc/dracut.conf.d, and the modules in omit_drivers"},
	{"cmdline.later",
         "'gpuimg build' adds it there too; by hand: in the place that is named, as the last that "
         "says something of it"},
	{"leak",
         "see what wrote it: a disk by its letter is found on one kind of machine only, and files of a "
         "build have no use on a node"},
};

const char *inspect_cure(const char *id)
{
	for (size_t i = 0; i < sizeof(cures) / sizeof(cures[0]); i++)
		if (strcmp(cures[i].id, id) == 0)
			return cures[i].text;
	return NULL;
}

void inspect_set_cures(struct findings *f)
{
	for (size_t i = 0; i < f->count; i++) {
		const char *text = inspect_cure(f->items[i].id);

		if (!text || f->items[i].verdict == FINDING_OK)
			continue;
		free(f->items[i].cure);
		f->items[i].cure = str_copy(text);
	}
}
