/* SPDX-License-Identifier: Apache-2.0 */
/* One initramfs, opened: what the kernel would unpack and udev would find there. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "generator.h"
#include "initramfs.h"
#include "proof-internal.h"

#define TEXT_MAX_BYTES (4UL * 1024 * 1024)

/* What is looked at, and what it is called in findings. */
struct subject {
	const struct proof_initramfs *p;
	const struct generator *generator; /* NULL: one that we do not know */
	const char *name;
	struct initramfs initramfs;
};

/* modprobe.d files and module indexes for the oracle. */
static bool keep_members(void *opaque, const char *path, uint64_t size_bytes)
{
	return modules_keep(opaque, path, size_bytes);
}

static int read_copy(struct subject *s, struct error *err)
{
	CLEANUP_CLOSE int fd =
		rootfs_open_copy(s->p->root, s->p->kernel->initramfs, s->p->scratch, err);

	if (fd < 0)
		return -1;
	return initramfs_read_file(&s->initramfs, fd, s->name, keep_members, NULL, err);
}

static int read_subject(struct subject *s, struct error *err)
{
	if (!s->p->name)
		return read_copy(s, err);
	if (lseek(s->p->fd, 0, SEEK_SET) < 0)
		return error_errno(err, errno, "cannot read '%s'", s->name);
	return initramfs_read_file(&s->initramfs, s->p->fd, s->name, keep_members, NULL, err);
}

static void check_block(struct findings *f, const struct subject *s, const char *path)
{
	static const char cure[] = "rebuild this kernel's initramfs";
	const struct initramfs_member *m = initramfs_find(&s->initramfs, path + 1);
	const char *text = s->p->block_text;
	size_t size = strlen(text);

	if (!m)
		finding_bad(f, "initramfs.block", cure, "'%s': does not hold '%s'", s->name, path);
	else if (!m->data || m->size_bytes != size || memcmp(m->data, text, size) != 0)
		finding_bad(f, "initramfs.block", cure, "'%s': its '%s' differs from the image's",
		            s->name, path);
	else
		finding_ok(f, "initramfs.block", "'%s': holds '%s' byte for byte", s->name, path);
}

static void check_blocks(struct findings *f, const struct subject *s)
{
	for (size_t i = 0; s->p->block_text && i < s->p->block_paths->count; i++)
		check_block(f, s, s->p->block_paths->items[i]);
}

/* The initramfs was made for this kernel and no other (the appliance's, the build host's). */
static void check_version(struct findings *f, const struct subject *s)
{
	static const char cure[] = "rebuild it for its own kernel version";
	const char *version = s->p->kernel->version;
	CLEANUP_STRV struct strv others = {0};
	bool own = false;

	for (size_t n = 0; n < s->initramfs.count; n++) {
		const char *at = strstr(s->initramfs.members[n].path, "lib/modules/");
		size_t length;

		if (!at)
			continue;
		at += strlen("lib/modules/");
		length = strcspn(at, "/");
		if (length == strlen(version) && strncmp(at, version, length) == 0) {
			own = true;
		} else if (length && at[length] == '/') {
			CLEANUP_FREE char *other = mem_copy(at, length);

			if (!strv_has(&others, other))
				strv_add(&others, other);
		}
	}
	for (size_t n = 0; n < others.count; n++)
		finding_bad(f, "initramfs.version", cure,
		            "'%s': holds modules of another kernel, '%s'", s->name,
		            others.items[n]);
	if (!own)
		finding_bad(f, "initramfs.version", cure, "'%s': holds no modules of kernel %s",
		            s->name, version);
}

static void check_size(struct findings *f, const struct subject *s)
{
	CLEANUP_FREE char *after = str_size(s->p->kernel->initramfs_bytes);
	CLEANUP_FREE char *before = str_size(s->p->bytes_before);

	if (s->p->bytes_before)
		finding_ok(f, "initramfs.size", "'%s': %s, was %s", s->name, after, before);
	else
		finding_note(f, "initramfs.size", "'%s': %s, there was none before", s->name,
		             after);
}

static const char *cure_gpu(const struct subject *s)
{
	return s->generator ? s->generator->cure_gpu
	                    : "leave it out of what the initramfs generator copies";
}

static void check_gpu_modules(struct findings *f, const struct subject *s)
{
	static const char *const gpu[] = {"nouveau", "nova_core", "amdgpu"};

	for (size_t n = 0; n < sizeof(gpu) / sizeof(gpu[0]); n++) {
		if (!initramfs_find_module(&s->initramfs, gpu[n]))
			continue;
		/* Whether one of them could take the card is the oracle's to say. */
		if (s->p->inspect)
			finding_note(f, "initramfs.gpu-module",
			             "'%s': carries the GPU module '%s', which fills /boot",
			             s->name, gpu[n]);
		else
			finding_bad(
				f, "initramfs.gpu-module", cure_gpu(s),
				"'%s': carries the GPU module '%s', which fills /boot and loads early",
				s->name, gpu[n]);
	}
}

static bool is_gpu_driver(const char *path)
{
	CLEANUP_FREE char *name = modules_file_name(path);

	return name && modules_is_nvidia_driver(name) && !strstr(path, "drivers/platform/");
}

/*
 * NVIDIA's driver, under whatever names. It has 100 MiB and more, so that /boot fills up at the
 * next kernel; it starts before its firmware can be found; and an initramfs keeps it when the
 * driver is changed, which ends in two versions at once.
 */
static void check_gpu_driver(struct findings *f, const struct subject *s)
{
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE char *all = NULL, *size = NULL;
	uint64_t bytes = 0;

	for (size_t i = 0; i < s->initramfs.count; i++) {
		const struct initramfs_member *m = &s->initramfs.members[i];

		if (!S_ISREG(m->mode) || !is_gpu_driver(m->path) ||
		    initramfs_find(&s->initramfs, m->path) != m)
			continue;
		strv_add(&names, strrchr(m->path, '/') ? strrchr(m->path, '/') + 1 : m->path);
		bytes += m->size_bytes;
	}
	if (names.count == 0)
		return;
	all = strv_join(&names, ", ");
	size = str_size(bytes);
	finding_bad(f, "initramfs.gpu-driver", cure_gpu(s),
	            "'%s': carries NVIDIA's driver, %s of modules: %s", s->name, size, all);
}

/* Whether fstab's sixth field for the root is not 0. */
static int root_wants_fsck(bool *ret, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	CLEANUP_STRV struct strv lines = {0};

	*ret = false;
	if (!rootfs_exists(root, "/etc/fstab"))
		return 0;
	if (rootfs_read(root, "/etc/fstab", TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	lines = strv_split(text, "\n");
	for (size_t n = 0; n < lines.count; n++) {
		CLEANUP_STRV struct strv fields = strv_split(lines.items[n], " \t");

		if (fields.count >= 6 && *fields.items[0] != '#' && str_equal(fields.items[1], "/"))
			*ret = strcmp(fields.items[5], "0") != 0;
	}
	return 0;
}

/*
 * A root that fstab wants checked is checked by the initramfs, if the program for its type is in
 * it; initramfs-tools leaves it out with a warning if it cannot tell the type. dracut takes all
 * that there are, but a person may have told it not to ("nofscks"): then systemd does it later, as
 * long as the root is first mounted read-only. XFS and btrfs have programs that do nothing.
 */
static int check_fsck(struct findings *f, const struct subject *s, struct error *err)
{
	const char *type = s->p->guest->mounts[0].volume->type;
	CLEANUP_FREE char *program = str_format("sbin/fsck.%s", type ? type : "ext4");
	CLEANUP_FREE char *in_root = str_format("/%s", program);
	bool wanted;

	if (str_equal(type, "xfs") || str_equal(type, "btrfs") ||
	    !rootfs_exists(s->p->root, in_root))
		return 0;
	if (root_wants_fsck(&wanted, s->p->root, err) < 0)
		return -1;
	if (!wanted)
		return 0;
	if (initramfs_find(&s->initramfs, program))
		finding_ok(f, "initramfs.fsck", "'%s': has '%s'", s->name, program);
	else if (s->generator && s->generator->must_fsck)
		finding_bad(f, "initramfs.fsck", "rebuild this kernel's initramfs; see the log",
		            "'%s': lacks '%s', so that the root is never checked", s->name,
		            program);
	else
		finding_note(f, "initramfs.fsck",
		             "'%s': lacks '%s': the root is checked after it, and only if it is "
		             "mounted read-only at first",
		             s->name, program);
	return 0;
}

static const char *cure_drivers(const struct subject *s)
{
	return s->generator ? s->generator->cure_drivers
	                    : "have the initramfs generator make it for all hardware";
}

static void check_driver(struct findings *f, const struct subject *s, const struct modules *world,
                         const char *name)
{
	bool builtin = false;

	if (initramfs_find_module(&s->initramfs, name))
		finding_ok(f, "initramfs.driver", "'%s': has '%s'", s->name, name);
	else if (modules_have(world, name, &builtin) && builtin)
		finding_ok(f, "initramfs.driver", "kernel %s: has '%s' built in",
		           s->p->kernel->version, name);
	else if (!modules_have(world, name, &builtin))
		finding_note(f, "initramfs.driver", "kernel %s: has no '%s' at all",
		             s->p->kernel->version, name);
	else
		finding_bad(f, "initramfs.driver", cure_drivers(s),
		            "'%s': lacks '%s': the image does not find its root disk everywhere",
		            s->name, name);
}

/* What finds a root on a logical volume. */
static void check_lvm(struct findings *f, const struct subject *s)
{
	static const char *const places[] = {"sbin/lvm", "usr/sbin/lvm", "usr/bin/lvm"};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (initramfs_find_target(&s->initramfs, places[i])) {
			finding_ok(f, "initramfs.lvm", "'%s': has '%s'", s->name, places[i]);
			return;
		}
	finding_bad(f, "initramfs.lvm", "install lvm2 in the image, and rebuild the initramfs",
	            "'%s': has no program 'lvm', and the root is a logical volume", s->name);
}

static int check_drivers(struct findings *f, const struct subject *s, struct error *err)
{
	CLEANUP_FREE char *scratch = str_format("%s/root", s->p->scratch);
	CLEANUP_ERROR struct error no_modules = ERROR_INIT;
	const char *names[GENERATOR_DRIVERS_MAX];
	CLEANUP_MODULES struct modules world = {0};

	if (mkdir(scratch, 0700) < 0)
		return error_errno(err, errno, "cannot make the directory '%s'", scratch);
	/* A kernel without modules has a point of its own there. */
	if (modules_from_rootfs(&world, s->p->root, s->p->kernel->version, scratch, &no_modules) <
	    0)
		return s->p->inspect && no_modules.code == EXIT_INPUT
		               ? 0
		               : error_take(err, &no_modules);
	generator_drivers(names, s->p->guest);
	for (size_t n = 0; names[n]; n++)
		check_driver(f, s, &world, names[n]);
	if (s->p->guest->mounts[0].volume->lv)
		check_lvm(f, s);
	return 0;
}

static int check_loadable(struct findings *f, const struct subject *s, struct error *err)
{
	CLEANUP_ERROR struct error damaged = ERROR_INIT;
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_FREE char *where = str_format("'%s'", s->name);
	CLEANUP_FREE char *scratch = str_format("%s/early", s->p->scratch);

	if (mkdir(scratch, 0700) < 0)
		return error_errno(err, errno, "cannot make the directory '%s'", scratch);
	if (modules_from_initramfs(&m, &s->initramfs, s->p->kernel->version, scratch, &damaged) <
	    0) {
		if (damaged.code != EXIT_INPUT)
			return error_take(err, &damaged);
		finding_bad(f, "initramfs.whole", "rebuild this kernel's initramfs", "'%s': %s",
		            s->name, damaged.message);
		return 0;
	}
	return proof_modules(f, &m, where, s->p->blocked, err);
}

static void check_texts(struct findings *f, const struct subject *s)
{
	CLEANUP_FREE char *where = str_format("'%s'", s->name);

	for (size_t i = 0; i < s->initramfs.count; i++) {
		const struct initramfs_member *m = &s->initramfs.members[i];

		if (m->data && strstr(m->path, "modprobe.d/"))
			proof_modprobe_text(f, where, m->path, m->data, m->size_bytes);
	}
}

static int check_all(struct findings *f, const struct subject *s, struct error *err)
{
	check_blocks(f, s);
	check_version(f, s);
	check_gpu_modules(f, s);
	check_gpu_driver(f, s);
	check_texts(f, s);
	if (!s->p->inspect && !s->p->name)
		check_size(f, s);
	if (check_loadable(f, s, err) < 0 || check_fsck(f, s, err) < 0)
		return -1;
	return check_drivers(f, s, err);
}

int proof_initramfs(struct findings *f, const struct proof_initramfs *p, struct error *err)
{
	CLEANUP_ERROR struct error damaged = ERROR_INIT;
	struct subject s = {.p = p,
	                    .generator = generator_find(p->guest->generator),
	                    .name = p->name ? p->name : p->kernel->initramfs};
	int result = 0;

	if (!p->name && !p->kernel->has_initramfs) {
		finding_bad(f, "initramfs.present", "run the initramfs stage",
		            "kernel %s has no initramfs: '%s' is missing", p->kernel->version,
		            p->kernel->initramfs);
		return 0;
	}
	if (read_subject(&s, &damaged) < 0)
		finding_bad(f, "initramfs.whole", "rebuild this kernel's initramfs", "%s",
		            damaged.message);
	else
		result = check_all(f, &s, err);
	initramfs_free(&s.initramfs);
	return result;
}
