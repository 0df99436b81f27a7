/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmdline.h"
#include "initramfs.h"
#include "proof.h"

#define TEXT_MAX_BYTES (4UL * 1024 * 1024)

int proof_file(struct findings *f, struct rootfs *root, const char *id, const char *path,
               const char *text, struct error *err)
{
	static const char cure[] = "build the image again; nothing may change the file after us";
	CLEANUP_FREE void *found = NULL;
	struct rootfs_stat st;
	size_t size;
	int there = rootfs_lstat(root, path, &st, err);

	if (there < 0)
		return -1;
	if (there == 0 || !S_ISREG(st.mode)) {
		finding_bad(f, id, cure, "'%s' is %s", path,
		            there ? "not a regular file" : "missing");
		return 0;
	}
	if (rootfs_read(root, path, TEXT_MAX_BYTES, &found, &size, err) < 0)
		return -1;
	if (size != strlen(text) || memcmp(found, text, size) != 0)
		finding_bad(f, id, cure, "'%s' differs from what was written", path);
	else if ((st.mode & 0444) != 0444)
		finding_bad(f, id, cure, "'%s' is not readable for all (mode %04o)", path,
		            st.mode & 07777);
	else
		finding_ok(f, id, "'%s' stands as it was written", path);
	return 0;
}

int proof_builtin(struct findings *f, const struct modules *m, struct error *err)
{
	CLEANUP_STRV struct strv claimants = {0};
	CLEANUP_STRV struct strv builtin = {0};

	if (modules_claimants(m, &claimants, &builtin, err) < 0)
		return -1;
	for (size_t i = 0; i < builtin.count; i++)
		if (!modules_is_nvidia_driver(builtin.items[i]))
			finding_bad(
				f, "modules.builtin", "use a kernel that has it as a module",
				"kernel %s has '%s' built in, which claims NVIDIA display devices and "
				"cannot be blocked",
				m->kver, builtin.items[i]);
	return 0;
}

int proof_modules(struct findings *f, const struct modules *m, const char *where,
                  const struct strv *blocked, struct error *err)
{
	static const char cure[] = "see what else in modprobe.d names the module, and build again";
	CLEANUP_STRV struct strv loadable = {0};
	CLEANUP_FREE char *names = NULL;
	bool clean = true;

	if (modules_loadable_by_alias(m, &loadable, err) < 0)
		return -1;
	names = strv_join(&loadable, ", ");
	if (loadable.count) {
		finding_bad(f, "modules.alias", cure,
		            "kernel %s, %s: an NVIDIA display device would load %s", m->kver, where,
		            names);
		clean = false;
	}
	for (size_t i = 0; i < blocked->count; i++) {
		int loads = modules_loadable_by_name(m, blocked->items[i], err);

		if (loads < 0)
			return -1;
		if (loads == 0)
			continue;
		finding_bad(f, "modules.name", cure, "kernel %s, %s: 'modprobe %s' would load it",
		            m->kver, where, blocked->items[i]);
		clean = false;
	}
	if (clean)
		finding_ok(f, "modules.blocked", "kernel %s, %s: nothing can claim an NVIDIA card",
		           m->kver, where);
	return 0;
}

/* modprobe.d files and module indexes for the oracle. */
static bool keep_members(void *opaque, const char *path, uint64_t size_bytes)
{
	return modules_keep(opaque, path, size_bytes);
}

static int read_initramfs(struct initramfs *ret, const struct proof_initramfs *p, struct error *err)
{
	CLEANUP_FREE char *copy = str_format("%s/image", p->scratch);
	CLEANUP_CLOSE int fd = open(copy, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return error_errno(err, errno, "cannot make '%s'", copy);
	unlink(copy);
	if (rootfs_copy_out(p->root, p->kernel->initramfs, fd, err) < 0)
		return -1;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return error_errno(err, errno, "cannot read '%s'", copy);
	return initramfs_read_file(ret, fd, p->kernel->initramfs, keep_members, NULL, err);
}

static void check_block(struct findings *f, const struct proof_initramfs *p,
                        const struct initramfs *i)
{
	static const char cure[] = "rebuild this kernel's initramfs";
	const struct initramfs_member *m = initramfs_find(i, p->block_path + 1);
	size_t size = strlen(p->block_text);

	if (!m)
		finding_bad(f, "initramfs.block", cure, "'%s': does not hold '%s'",
		            p->kernel->initramfs, p->block_path);
	else if (!m->data || m->size_bytes != size || memcmp(m->data, p->block_text, size) != 0)
		finding_bad(f, "initramfs.block", cure, "'%s': its '%s' differs from the image's",
		            p->kernel->initramfs, p->block_path);
	else
		finding_ok(f, "initramfs.block", "'%s': holds '%s' byte for byte",
		           p->kernel->initramfs, p->block_path);
}

static const char *root_module(const struct guest *guest)
{
	const char *type = guest->mounts[0].volume->type;

	return type ? type : "ext4";
}

static void check_driver(struct findings *f, const struct proof_initramfs *p,
                         const struct initramfs *i, const struct modules *world, const char *name)
{
	bool builtin = false;

	if (initramfs_find_module(i, name))
		finding_ok(f, "initramfs.driver", "'%s': has '%s'", p->kernel->initramfs, name);
	else if (modules_have(world, name, &builtin) && builtin)
		finding_ok(f, "initramfs.driver", "kernel %s: has '%s' built in",
		           p->kernel->version, name);
	else if (!modules_have(world, name, &builtin))
		finding_note(f, "initramfs.driver", "kernel %s: has no '%s' at all",
		             p->kernel->version, name);
	else
		finding_bad(f, "initramfs.driver", "set MODULES=most in the image's initramfs.conf",
		            "'%s': lacks '%s': the image does not find its root disk everywhere",
		            p->kernel->initramfs, name);
}

/* The initramfs was made for this kernel and no other (the appliance's, the build host's). */
static void check_version(struct findings *f, const struct proof_initramfs *p,
                          const struct initramfs *i)
{
	CLEANUP_STRV struct strv others = {0};
	bool own = false;

	for (size_t n = 0; n < i->count; n++) {
		const char *at = strstr(i->members[n].path, "lib/modules/");
		size_t length;

		if (!at)
			continue;
		at += strlen("lib/modules/");
		length = strcspn(at, "/");
		if (length == strlen(p->kernel->version) &&
		    strncmp(at, p->kernel->version, length) == 0) {
			own = true;
		} else if (length && at[length] == '/') {
			CLEANUP_FREE char *other = mem_copy(at, length);

			if (!strv_has(&others, other))
				strv_add(&others, other);
		}
	}
	for (size_t n = 0; n < others.count; n++)
		finding_bad(f, "initramfs.version", "rebuild it for its own kernel version",
		            "'%s': holds modules of another kernel, '%s'", p->kernel->initramfs,
		            others.items[n]);
	if (!own)
		finding_bad(f, "initramfs.version", "rebuild it for its own kernel version",
		            "'%s': holds no modules of kernel %s", p->kernel->initramfs,
		            p->kernel->version);
}

static void check_size(struct findings *f, const struct proof_initramfs *p,
                       const struct initramfs *i)
{
	static const char *const gpu[] = {"nouveau", "nova_core", "nvidia", "nvidia_drm", "amdgpu"};
	CLEANUP_FREE char *after = str_size(p->kernel->initramfs_bytes);
	CLEANUP_FREE char *before = str_size(p->bytes_before);

	if (p->bytes_before)
		finding_ok(f, "initramfs.size", "'%s': %s, was %s", p->kernel->initramfs, after,
		           before);
	else
		finding_note(f, "initramfs.size", "'%s': %s, there was none before",
		             p->kernel->initramfs, after);
	for (size_t n = 0; n < sizeof(gpu) / sizeof(gpu[0]); n++)
		if (initramfs_find_module(i, gpu[n]))
			finding_bad(
				f, "initramfs.gpu-module",
				"take it out of /etc/initramfs-tools/modules and of hooks",
				"'%s': carries the GPU module '%s', which fills /boot and loads early",
				p->kernel->initramfs, gpu[n]);
}

/*
 * A root that fstab wants checked (its sixth field is not 0) is checked by the initramfs, if the
 * program for its type is in it; initramfs-tools leaves it out with a warning if it cannot tell
 * the type.
 */
static int check_fsck(struct findings *f, const struct proof_initramfs *p,
                      const struct initramfs *i, struct error *err)
{
	CLEANUP_FREE char *program = str_format("sbin/fsck.%s", root_module(p->guest));
	CLEANUP_FREE char *in_root = str_format("/%s", program);
	CLEANUP_FREE void *text = NULL;
	CLEANUP_STRV struct strv lines = {0};
	bool wanted = false;

	if (!rootfs_exists(p->root, "/etc/fstab") || !rootfs_exists(p->root, in_root))
		return 0;
	if (rootfs_read(p->root, "/etc/fstab", TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	lines = strv_split(text, "\n");
	for (size_t n = 0; n < lines.count; n++) {
		CLEANUP_STRV struct strv fields = strv_split(lines.items[n], " \t");

		if (fields.count >= 6 && *fields.items[0] != '#' && str_equal(fields.items[1], "/"))
			wanted = strcmp(fields.items[5], "0") != 0;
	}
	if (!wanted)
		return 0;
	if (initramfs_find(i, program))
		finding_ok(f, "initramfs.fsck", "'%s': has '%s'", p->kernel->initramfs, program);
	else
		finding_bad(f, "initramfs.fsck", "rebuild this kernel's initramfs; see the log",
		            "'%s': lacks '%s', so that the root is never checked",
		            p->kernel->initramfs, program);
	return 0;
}

static int check_drivers(struct findings *f, const struct proof_initramfs *p,
                         const struct initramfs *i, struct error *err)
{
	const char *const names[] = {"virtio_blk", "virtio_scsi", "nvme", root_module(p->guest)};
	CLEANUP_FREE char *scratch = str_format("%s/root", p->scratch);
	CLEANUP_MODULES struct modules world = {0};

	if (mkdir(scratch, 0700) < 0)
		return error_errno(err, errno, "cannot make the directory '%s'", scratch);
	if (modules_from_rootfs(&world, p->root, p->kernel->version, scratch, err) < 0)
		return -1;
	for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
		check_driver(f, p, i, &world, names[n]);
	return 0;
}

int proof_initramfs(struct findings *f, const struct proof_initramfs *p, struct error *err)
{
	CLEANUP_INITRAMFS struct initramfs i = {0};
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_ERROR struct error damaged = ERROR_INIT;
	CLEANUP_FREE char *where = str_format("'%s'", p->kernel->initramfs);
	CLEANUP_FREE char *scratch = str_format("%s/early", p->scratch);

	if (!p->kernel->has_initramfs) {
		finding_bad(f, "initramfs.present", "run the initramfs stage",
		            "kernel %s has no initramfs: '%s' is missing", p->kernel->version,
		            p->kernel->initramfs);
		return 0;
	}
	if (read_initramfs(&i, p, &damaged) < 0) {
		finding_bad(f, "initramfs.whole", "rebuild this kernel's initramfs", "%s",
		            damaged.message);
		return 0;
	}
	check_block(f, p, &i);
	check_version(f, p, &i);
	check_size(f, p, &i);
	if (mkdir(scratch, 0700) < 0)
		return error_errno(err, errno, "cannot make the directory '%s'", scratch);
	if (modules_from_initramfs(&m, &i, p->kernel->version, scratch, err) < 0 ||
	    proof_modules(f, &m, where, p->blocked, err) < 0)
		return -1;
	if (check_fsck(f, p, &i, err) < 0)
		return -1;
	return check_drivers(f, p, &i, err);
}
