/* SPDX-License-Identifier: Apache-2.0 */
/* What results depend on: everything that could make another one is in the key. */
#include <ext2fs/ext2fs.h>
#include <zlib.h>
#include <zstd.h>

#include "bake.h"
#include "data.h"
#include "reuse-internal.h"
#include "reuse.h"
#include "tools.h"

static int add_data_files(struct cache_key *key, const char *parent, const char *name,
                          struct error *err)
{
	CLEANUP_FREE char *dir = str_format("%s/%s", parent, name);
	CLEANUP_STRV struct strv files = {0};

	if (data_list(dir, &files, err) < 0)
		return -1;
	for (size_t i = 0; i < files.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, files.items[i]);
		CLEANUP_FREE char *shown = str_format("data:%s/%s", name, files.items[i]);

		if (cache_key_add_file(key, shown, path, err) < 0)
			return -1;
	}
	return 0;
}

int reuse_add_sandbox(struct cache_key *key, const struct build *b, struct error *err)
{
	CLEANUP_FREE char *parent = data_sandbox_parent(b->data_dir);
	CLEANUP_FREE char *bwrap = tools_version("bwrap");
	CLEANUP_FREE char *cpu = tools_cpu();

	/* Microcode hooks look at the processor that they run on. */
	cache_key_add(key, "cpu", cpu);
	cache_key_add(key, "bwrap", bwrap);
	return b->sandbox ? add_data_files(key, parent, "sandbox", err) : 0;
}

/* Our own files that go into images. */
static int add_data(struct cache_key *key, const struct build *b, struct error *err)
{
	if (add_data_files(key, b->data_dir, "boot/modprobe.d", err) < 0 ||
	    add_data_files(key, b->data_dir, "boot/grub.d", err) < 0 ||
	    add_data_files(key, b->data_dir, "boot/initramfs-tools", err) < 0)
		return -1;
	return add_data_files(key, b->data_dir, "cloud-init", err);
}

static int add_file(struct cache_key *key, const char *name, const char *path, struct error *err)
{
	return path ? cache_key_add_file(key, name, path, err) : 0;
}

/* Packages and .run files themselves are in user_digests. */
static int add_driver(struct cache_key *key, const struct options *o, struct error *err)
{
	cache_key_add(key, "driver_branch", o->driver_branch);
	cache_key_add(key, "driver_flavour", driver_flavour_name(o->driver_flavour));
	cache_key_add_int(key, "driver_flavour_given", o->driver_flavour_given);
	cache_key_add(key, "driver_source", driver_source_name(o->driver_source));
	cache_key_add(key, "driver_path", o->driver_path);
	cache_key_add(key, "driver_repo", o->driver_repo);
	cache_key_add_list(key, "driver_extra", &o->driver_extra);
	cache_key_add_int(key, "require_signed", o->require_signed);
	cache_key_add_int(key, "replace_driver", o->replace_driver);
	cache_key_add_int(key, "allow_branch_forward", o->allow_branch_forward);
	cache_key_add_int(key, "dkms_unregister", o->dkms_unregister);
	cache_key_add_list(key, "apt_mirrors", &o->apt_mirrors);
	cache_key_add_list(key, "apt_repos", &o->apt_repos);
	cache_key_add(key, "containerd_runtime", o->containerd_runtime);
	cache_key_add_int(key, "default_runtime", o->default_runtime);
	cache_key_add(key, "toolkit_repo", o->toolkit_repo);
	return add_file(key, "driver_repo_key", o->driver_repo_key, err) < 0
	               ? -1
	               : add_file(key, "toolkit_key", o->toolkit_key, err);
}

int reuse_add_inputs(struct cache_key *key, const struct build *b, struct error *err)
{
	const struct options *o = b->options;

	cache_key_add(key, "base", b->base_digest);
	cache_key_add(key, "base_format", image_format_name(b->base_info.format));
	cache_key_add(key, "backend", b->sandbox ? "sandbox" : "appliance");
	cache_key_add_int(key, "source_date_epoch", b->source_date_epoch);
	cache_key_add_int(key, "clamp_times", b->clamp_times);
	cache_key_add_list(key, "stages", &o->stages);
	cache_key_add_list(key, "cmdline_add", &o->cmdline.add);
	cache_key_add_list(key, "cmdline_remove", &o->cmdline.remove);
	cache_key_add_int(key, "nocrs", o->nocrs);
	cache_key_add_int(key, "realloc", o->realloc);
	cache_key_add_int(key, "module_blacklist", o->module_blacklist);
	cache_key_add_list(key, "block", &o->block);
	cache_key_add_list(key, "upload", &o->upload);
	cache_key_add_list(key, "run", &o->run);
	cache_key_add_list(key, "user_digests", &b->user_digests);
	/* A key that is another one makes another signature, even of the same name. */
	if (add_file(key, "uki_key", o->uki_key, err) < 0 ||
	    add_file(key, "uki_cert", o->uki_cert, err) < 0 || add_driver(key, o, err) < 0)
		return -1;
	return reuse_add_sandbox(key, b, err) < 0 ? -1 : add_data(key, b, err);
}

/* Libraries that write the image; of a shared one, our own digest knows nothing. */
static void add_libraries(struct cache_key *key, const struct build *b)
{
	/* XFS, btrfs and LVM are written by it, also where the guest's programs run elsewhere. */
	bool uses_appliance = !b->sandbox || !guest_in_user_space(b->guest);
	CLEANUP_FREE char *appliance = uses_appliance ? appliance_version() : NULL;
	CLEANUP_FREE char *sbsign = b->options->uki_key ? tools_version("sbsign") : NULL;
	const char *ext2fs = NULL;

	ext2fs_get_library_version(&ext2fs, NULL);
	cache_key_add(key, "libext2fs", ext2fs);
	cache_key_add(key, "zlib", zlibVersion());
	cache_key_add(key, "libzstd", ZSTD_versionString());
	cache_key_add(key, "libguestfs", appliance);
	cache_key_add(key, "sbsign", sbsign);
}

int reuse_image_key(struct cache_key **ret, const struct build *b, struct error *err)
{
	CLEANUP_CACHE_KEY struct cache_key *key = cache_key_new("image");
	CLEANUP_FREE char *qemu = tools_version("qemu-img");

	add_libraries(key, b);

	cache_key_add(key, "compression", b->options->compression);
	cache_key_add_int(key, "compact", b->options->compact);
	cache_key_add(key, "qemu_img", qemu);
	if (reuse_add_inputs(key, b, err) < 0)
		return -1;
	*ret = STEAL(key);
	return 0;
}

bool build_uses_network_packages(const struct build *b)
{
	const struct options *o = b->options;
	const bool lacks_toolkit = !b->containerd.runtime_binary || b->toolkit_install.count > 0;

	if (!bake_is_online(b))
		return false;
	return o->driver_branch || (o->containerd_runtime && lacks_toolkit);
}
