/* SPDX-License-Identifier: Apache-2.0 */
/*
 * initramfs-tools (Debian, Ubuntu). mkinitramfs itself is called: 'update-initramfs -u -k all'
 * skips a kernel that has no initramfs yet, and does nothing at all where update-initramfs.conf
 * says update_initramfs=no, both with exit code 0. It copies /etc/modprobe.d and /lib/modprobe.d.
 */
#include "generator-internal.h"

#define PROGRAM "/usr/sbin/mkinitramfs"
/* Sourced by mkinitramfs after its configuration, and not copied into the initramfs. */
#define HOOKS_DIR "/usr/share/initramfs-tools/conf-hooks.d"

static const char *find_program(struct rootfs *root)
{
	return rootfs_exists(root, PROGRAM) ? PROGRAM : NULL;
}

static void make_argv(struct strv *ret, struct rootfs *root, const char *program,
                      const char *version, const char *output)
{
	(void)root;
	strv_add(ret, program);
	strv_add(ret, "-o");
	strv_add(ret, output);
	strv_add(ret, version);
}

/*
 * The fsck hook asks the root's block device for its type. Where there is none (the sandbox), it
 * leaves fsck out with no more than a warning, and nodes would never check their root.
 */
static bool root_type_hook(const struct guest *guest, struct rootfs *root, const char **ret_path,
                           char **ret_text)
{
	const struct guest_mount *usr = guest_find_mount(guest, "/usr");
	const char *type = guest->mounts[0].volume->type;

	if (!type || !rootfs_is_dir(root, HOOKS_DIR))
		return false;
	*ret_path = HOOKS_DIR "/zz-gpuimg-root-type";
	*ret_text = str_format("# While the image is built: no block device can be asked.\n"
	                       "[ \"${FSTYPE:-auto}\" != auto ] || FSTYPE=%s%s%s\n",
	                       type, usr ? "," : "", usr ? usr->volume->type : "");
	return true;
}

/*
 * Nothing in its configuration leaves a module out, and hooks add some: framebuffer-nvidia
 * (Ubuntu's nvidia-kernel-common), plymouth's, which takes all of DRM, and a person's list in
 * /etc/initramfs-tools/modules. A hook in /etc runs after those of packages, in /usr/share.
 */
#define DROP_NAME "zz-gpuimg-no-driver"

static const char *const block_paths[] = {"/etc/modprobe.d/" GENERATOR_BLOCK_NAME, NULL};

const struct generator generator_initramfs_tools = {
	.name = "initramfs-tools",
	.package = "initramfs-tools-core",
	.find_program = find_program,
	.make_argv = make_argv,
	.drop_data = "boot/initramfs-tools/" DROP_NAME,
	.drop_path = "/etc/initramfs-tools/hooks/" DROP_NAME,
	.temporary = root_type_hook,
	.block_paths = block_paths,
	.cure_drivers = "set MODULES=most in the image's /etc/initramfs-tools/initramfs.conf",
	.cure_gpu = "take it out of /etc/initramfs-tools/modules and of hooks",
	.must_fsck = true,
};
