/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fd.h"
#include "proc.h"
#include "uki-build.h"
#include "uki.h"

#define PARTS_DIR       "/var/tmp/gpuimg-uki"
#define BUILD_TIMEOUT_S 600
#define SIGN_TIMEOUT_MS 120000

/* Sections that an administrator gave to ukify, and how it takes them again. */
static const struct {
	const char *section, *option;
} kept[] = {
	{".splash", "--splash="},         {".ucode", "--microcode="},
	{".dtb", "--devicetree="},        {".dtbauto", "--devicetree-auto="},
	{".hwids", "--section=.hwids:@"}, {".pcrpkey", "--pcrpkey="},
};

const char *uki_find_builder(struct rootfs *root)
{
	static const char *const paths[] = {"/usr/bin/ukify", "/usr/lib/systemd/ukify"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (rootfs_exists(root, paths[i]))
			return paths[i];
	return NULL;
}

static int read_old(struct uki *ret, int *ret_fd, struct rootfs *root, const char *path,
                    const char *scratch, struct error *err)
{
	CLEANUP_CLOSE int fd = rootfs_open_copy(root, path, scratch, err);

	if (fd < 0 || uki_read(ret, fd, path, err) < 0)
		return -1;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int refuse(struct error *err, const char *path, const char *why, const char *cure)
{
	error_set(err, "the unified kernel image '%s' cannot be built anew: %s", path, why);
	error_hint(err, "%s", cure);
	return error_code(err, EXIT_INPUT);
}

static bool has_several(const struct uki *u, const char *name)
{
	size_t found = 0;

	for (size_t i = 0; i < u->count; i++)
		found += strcmp(u->sections[i].name, name) == 0;
	return found > 1;
}

int uki_check_buildable(struct rootfs *root, const char *path, bool has_key, const char *scratch,
                        struct error *err)
{
	CLEANUP_UKI struct uki u = {0};
	CLEANUP_CLOSE int fd = -1;

	if (read_old(&u, &fd, root, path, scratch, err) < 0)
		return -1;
	if (u.is_signed && !has_key)
		return refuse(err, path, "it is signed, and its content is part of what is signed",
		              "give the key and its certificate with --uki-key and --uki-cert, or "
		              "use a base with GRUB or type 1 entries");
	if (uki_find(&u, ".pcrsig"))
		return refuse(err, path, "it holds a signed PCR policy of its content",
		              "use a base whose images are not bound to PCR values");
	if (has_several(&u, ".dtbauto"))
		return refuse(err, path, "it has several device trees to choose from",
		              "use a base with one device tree in each image");
	if (u.profiles)
		return refuse(err, path, "it has several profiles",
		              "use a base with one profile in each image");
	if (!uki_find_builder(root))
		return refuse(err, path, "the image has no ukify",
		              "install systemd-ukify in the base");
	return 0;
}

/* Takes a section out of the old UKI into the guest, for ukify to read. */
static int put_section(struct rootfs *root, const struct uki_job *job, const struct uki_section *s,
                       int from, const char *to, struct error *err)
{
	CLEANUP_CLOSE int fd = fd_temporary(job->scratch);

	if (fd < 0)
		return error_errno(err, errno, "cannot make a temporary file in '%s'",
		                   job->scratch);
	if (uki_copy(s, from, fd, job->path, err) < 0)
		return -1;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return error_errno(err, errno, "cannot read a temporary file");
	return rootfs_copy_in(root, to, fd, 0600, err);
}

static int put_parts(struct rootfs *root, const struct uki_job *job, struct strv *argv,
                     struct error *err)
{
	CLEANUP_UKI struct uki u = {0};
	CLEANUP_CLOSE int fd = -1;
	CLEANUP_FREE char *line = strv_join(job->args, " ");

	if (read_old(&u, &fd, root, job->path, job->scratch, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
		const struct uki_section *s = uki_find(&u, kept[i].section);
		CLEANUP_FREE char *to = str_format(PARTS_DIR "/part%zu", i);

		if (!s)
			continue;
		if (put_section(root, job, s, fd, to, err) < 0)
			return -1;
		strv_addf(argv, "%s%s", kept[i].option, to);
	}
	return rootfs_write(root, PARTS_DIR "/cmdline", line, strlen(line), 0600, err);
}

static int run_builder(struct rootfs *root, const struct uki_job *job, const char *output,
                       struct error *err)
{
	CLEANUP_FREE char *epoch =
		str_format("SOURCE_DATE_EPOCH=%lld", (long long)job->source_date_epoch);
	const char *const env[] = {epoch, "TMPDIR=/var/tmp", NULL};
	CLEANUP_STRV struct strv argv = {0};

	strv_add(&argv, uki_find_builder(root));
	strv_add(&argv, "build");
	strv_addf(&argv, "--linux=%s", job->kernel->image);
	strv_addf(&argv, "--initrd=%s", job->kernel->initramfs);
	strv_addf(&argv, "--uname=%s", job->kernel->version);
	strv_add(&argv, "--os-release=@/etc/os-release");
	strv_add(&argv, "--cmdline=@" PARTS_DIR "/cmdline");
	strv_addf(&argv, "--output=%s", output);
	if (put_parts(root, job, &argv, err) < 0)
		return -1;

	const struct guest_command command = {
		.argv = (const char *const *)argv.items,
		.env = env,
		.timeout_ms = BUILD_TIMEOUT_S * 1000u,
	};

	return rootfs_run(root, &command, err);
}

/* Only the host sees the key. */
static int sign(struct rootfs *root, const struct uki_job *job, const char *path, struct error *err)
{
	CLEANUP_FREE char *plain = str_format("%s/uki-plain.efi", job->scratch);
	CLEANUP_FREE char *made = str_format("%s/uki-signed.efi", job->scratch);
	const char *const argv[] = {"sbsign",   "--key", job->key, "--cert", job->cert,
	                            "--output", made,    plain,    NULL};
	const struct proc_options options = {.timeout_ms = SIGN_TIMEOUT_MS};
	CLEANUP_CLOSE int fd =
		open(plain, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	CLEANUP_CLOSE int signed_fd = -1;

	if (fd < 0)
		return error_errno(err, errno, "cannot make '%s'", plain);
	if (rootfs_copy_out(root, path, fd, err) < 0)
		return -1;
	if (proc_run(argv, &options, NULL, 0, err) < 0) {
		error_prefix(err, "cannot sign '%s'", job->path);
		return error_hint(err, "it takes sbsign of package sbsigntool, and a PEM key and "
		                       "certificate that belong together");
	}
	signed_fd = open(made, O_RDONLY | O_CLOEXEC);
	if (signed_fd < 0)
		return error_errno(err, errno, "sbsign made no '%s'", made);
	if (rootfs_copy_in(root, path, signed_fd, 0644, err) < 0)
		return -1;
	unlink(plain);
	unlink(made);
	return 0;
}

/* What was made must be what was asked for, before it takes the old one's place. */
static int check_made(struct rootfs *root, const struct uki_job *job, const char *path,
                      struct error *err)
{
	CLEANUP_UKI struct uki u = {0};
	CLEANUP_CLOSE int fd = -1;

	if (!rootfs_exists(root, path))
		return error_set(err, "ukify ended with exit code 0 without having written '%s'",
		                 path);
	if (read_old(&u, &fd, root, path, job->scratch, err) < 0)
		return -1;
	if (!uki_is_unified(&u) || !uki_find(&u, ".initrd") || !uki_find(&u, ".cmdline"))
		return error_set(err, "ukify wrote '%s' without kernel, initramfs or command line",
		                 path);
	if (job->key && !u.is_signed)
		return error_set(err, "sbsign ended with exit code 0 without having signed '%s'",
		                 path);
	return 0;
}

static int rebuild(struct rootfs *root, const struct uki_job *job, struct error *err)
{
	CLEANUP_FREE char *made = str_format("%s.gpuimg-new", job->path);

	if (rootfs_remove(root, made, err) < 0 || run_builder(root, job, made, err) < 0 ||
	    (job->key && sign(root, job, made, err) < 0) || check_made(root, job, made, err) < 0)
		return -1;
	return rootfs_rename(root, made, job->path, err);
}

int uki_rebuild(struct rootfs *root, const struct uki_job *job, struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	int result;

	if (rootfs_mkdir(root, PARTS_DIR, 0700, err) < 0)
		return -1;
	result = rebuild(root, job, err);
	if (rootfs_remove(root, PARTS_DIR, result < 0 ? &ignored : err) < 0)
		return -1;
	return result < 0 ? error_prefix(err, "unified kernel image '%s'", job->path) : 0;
}
