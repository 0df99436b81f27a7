/* SPDX-License-Identifier: Apache-2.0 */
/* The image that is published: what it is, its digests, and what its manifest says. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "builder/disk.h"
#include "builder/fd.h"
#include "builder/qcow2.h"
#include "builder/sums-file.h"
#include "builder/sums.h"
#include "publish/image-digest.h"
#include "publish/layer.h"
#include "publish/publish.h"

#define MIB              (1024ull * 1024)
#define PART_MIN_BYTES   (16 * MIB)
#define PARTS_WANTED_MAX 9000 /* S3 takes 10,000 */
#define VERSION_DIGITS   12
#define NAME_MAX_BYTES   128

#define MANIFEST_MAX_BYTES ((size_t)16 * 1024 * 1024)

/* It becomes a part of paths, object keys, tags and repositories. */
static bool is_name(const char *text)
{
	return *text && strlen(text) <= NAME_MAX_BYTES && *text != '.' && *text != '-' &&
	       !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	                          "._+-")];
}

static int check_name(const char *what, const char *text, struct error *err)
{
	if (is_name(text))
		return 0;
	error_set(err, "'%s' cannot be the %s of a published image", text, what);
	error_hint(err, "letters, digits, '.', '_', '+' and '-', at most %d; give one with --%s",
	           NAME_MAX_BYTES, what);
	return error_code(err, EXIT_USAGE);
}

static char *stem_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *stem = str_copy(slash ? slash + 1 : path);

	if (str_ends(stem, ".qcow2"))
		stem[strlen(stem) - strlen(".qcow2")] = '\0';
	return stem;
}

static char *beside(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	return slash ? str_format("%.*s/%s", (int)(slash - path), path, name) : str_copy(name);
}

static int check_format(struct publish_image *i, struct log *log, struct error *err)
{
	struct image_info info;

	if (image_check(&info, i->path, err) < 0)
		return -1;
	if (info.format != IMAGE_QCOW2 || info.dirty) {
		error_set(err, "cannot publish '%s': %s", i->path,
		          info.dirty ? "its reference counts are marked as not clean"
		                     : "not a qcow2 image");
		error_hint(err, info.dirty ? "qemu-img check -r all, or build it anew"
		                           : "qemu-img convert -O qcow2");
		return error_code(err, EXIT_INPUT);
	}
	if (info.snapshots)
		log_warn(log, "'%s' holds internal snapshots: they are published too", i->path);
	i->virtual_bytes = info.virtual_bytes;
	return 0;
}

static int open_file(struct publish_image *i, struct error *err)
{
	i->fd = open(i->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (i->fd < 0 || fstat(i->fd, &i->st) < 0) {
		error_errno(err, errno, "cannot read '%s'", i->path);
		return error_code(err, EXIT_INPUT);
	}
	if (!S_ISREG(i->st.st_mode)) {
		error_set(err, "cannot publish '%s': not a regular file", i->path);
		return error_code(err, EXIT_INPUT);
	}
	i->size_bytes = (uint64_t)i->st.st_size;
	i->part_bytes = (i->size_bytes / PARTS_WANTED_MAX / MIB + 1) * MIB;
	if (i->part_bytes < PART_MIN_BYTES)
		i->part_bytes = PART_MIN_BYTES;
	return 0;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

int publish_image_check(const struct publish_image *i, struct error *err)
{
	struct stat now, named;

	if (fstat(i->fd, &now) < 0 || stat(i->path, &named) < 0)
		return error_errno(err, errno, "cannot look at '%s'", i->path);
	if (now.st_size == i->st.st_size && same_time(&now.st_mtim, &i->st.st_mtim) &&
	    named.st_ino == i->st.st_ino && named.st_dev == i->st.st_dev)
		return 0;
	error_set(err, "'%s' was changed while it was published", i->path);
	error_hint(err, "wait until its build is done, then run again");
	return error_code(err, EXIT_INPUT);
}

struct reading {
	struct log *log;
	uint64_t size;
};

static void on_read(void *opaque, uint64_t done)
{
	const struct reading *r = opaque;

	log_step_progress(r->log, r->size ? (double)done / (double)r->size : 1, "digests");
}

static char *take_one(struct image_digest *d)
{
	char *hex = d->hex.count ? str_copy(d->hex.items[0]) : NULL;

	strv_free(&d->hex);
	return hex;
}

enum { FILE_SHA256, FILE_MD5, FILE_SHA512, PART_MD5, PART_SHA256, LAYER_SHA256, DIGEST_KINDS };

static int digest_all(struct publish_image *i, unsigned wanted, struct log *log, struct error *err)
{
	const struct image_digest all[DIGEST_KINDS] = {
		[FILE_SHA256] = {.algorithm = "SHA256"},
		[FILE_MD5] = {.algorithm = "MD5"},
		[FILE_SHA512] = {.algorithm = "SHA512"},
		[PART_MD5] = {.algorithm = "MD5", .part_bytes = i->part_bytes},
		[PART_SHA256] = {.algorithm = "SHA256", .part_bytes = i->part_bytes},
		[LAYER_SHA256] = {.algorithm = "SHA256",
	                          .head = i->tar_head,
	                          .head_size = i->tar_head_size,
	                          .tail = i->tar_tail,
	                          .tail_size = i->tar_tail_size},
	};
	static const unsigned needs[DIGEST_KINDS] = {
		0, DIGEST_MD5, DIGEST_SHA512, DIGEST_PARTS, DIGEST_PARTS, DIGEST_LAYER};
	struct image_digest digests[DIGEST_KINDS];
	size_t at[DIGEST_KINDS], count = 0;
	struct reading reading = {.log = log, .size = i->size_bytes};

	for (size_t k = 0; k < DIGEST_KINDS; k++) {
		at[k] = DIGEST_KINDS;
		if (needs[k] && !(wanted & needs[k]))
			continue;
		at[k] = count;
		digests[count++] = all[k];
	}
	if (image_digest_all(digests, count, i->fd, i->size_bytes, on_read, &reading, err) < 0) {
		for (size_t k = 0; k < count; k++)
			strv_free(&digests[k].hex);
		return -1;
	}
	i->sha256 = take_one(&digests[at[FILE_SHA256]]);
	i->md5 = at[FILE_MD5] < count ? take_one(&digests[at[FILE_MD5]]) : NULL;
	i->sha512 = at[FILE_SHA512] < count ? take_one(&digests[at[FILE_SHA512]]) : NULL;
	i->layer_sha256 = at[LAYER_SHA256] < count ? take_one(&digests[at[LAYER_SHA256]]) : NULL;
	if (at[PART_MD5] < count) {
		i->part_md5 = digests[at[PART_MD5]].hex;
		i->part_sha256 = digests[at[PART_SHA256]].hex;
	}
	return 0;
}

static int differs(const struct publish_image *i, const char *from, struct error *err)
{
	error_set(err, "'%s' is not the image that '%s' is about: other bytes", i->path, from);
	error_hint(err,
	           "build it anew, or take the record away if the image was changed on purpose");
	return error_code(err, EXIT_INPUT);
}

static const char *text_at(const json_t *object, const char *section, const char *key)
{
	return json_string_value(json_object_get(json_object_get(object, section), key));
}

/* *ret NULL: there is none. */
static int read_record(const char *path, size_t max, char **ret, struct error *err)
{
	if (fd_read_path(path, max, ret) == 0)
		return 0;
	error_errno(err, errno, "cannot read '%s'", path);
	return error_code(err, EXIT_INPUT);
}

static int read_manifest(struct publish_image *i, struct error *err)
{
	CLEANUP_FREE char *stem = stem_of(i->path);
	CLEANUP_FREE char *name = str_format("%s.manifest.json", stem);
	CLEANUP_FREE char *path = beside(i->path, name);
	CLEANUP_FREE char *text = NULL;
	const json_t *types;
	json_error_t why;

	if (read_record(path, MANIFEST_MAX_BYTES, &text, err) < 0)
		return -1;
	if (!text)
		return 0;
	i->manifest = json_loads(text, 0, &why);
	if (!i->manifest) {
		error_set(err, "cannot read '%s': %s", path, why.text);
		return error_code(err, EXIT_INPUT);
	}
	if (!str_equal(text_at(i->manifest, "image", "sha256"), i->sha256))
		return differs(i, path, err);
	types = json_object_get(json_object_get(i->manifest, "image"), "boot_types");
	for (size_t k = 0; k < json_array_size(types); k++)
		if (json_string_value(json_array_get(types, k)))
			strv_add(&i->boot_types, json_string_value(json_array_get(types, k)));
	return 0;
}

/* Beside an artifact of ours, or of somebody else who wrote its sum down. */
static int check_sums(const struct publish_image *i, struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *path = beside(i->path, SUMS_FILE_NAME);
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *hex = NULL;
	const char *algorithm;

	if (read_record(path, SUMS_FILE_MAX_BYTES, &text, err) < 0)
		return -1;
	if (!text)
		return 0;
	if (sums_find(text, i->path, &algorithm, &hex, &ignored) < 0 ||
	    !str_equal(algorithm, "SHA256") || str_equal(hex, i->sha256))
		return 0;
	return differs(i, path, err);
}

/* Of an image without a manifest of ours: what its partitions offer. */
static int probe_boot_types(struct publish_image *i, struct error *err)
{
	CLEANUP_DISK struct disk *disk = NULL;

	if (i->manifest)
		return 0;
	if (disk_open(&disk, i->path, "qcow2", false, err) < 0 || disk_probe(disk, err) < 0)
		return -1;
	if (disk_boots_bios(disk))
		strv_add(&i->boot_types, "bios");
	if (disk_boots_uefi(disk))
		strv_add(&i->boot_types, "uefi");
	return 0;
}

/* A guest's os-release says them, and they become words of YAML for consumers: what could be more
 * than a word there is none. */
static const char *word_at(const struct publish_image *i, const char *key)
{
	const char *text = text_at(i->manifest, "base", key);

	return text && is_name(text) ? text : NULL;
}

static void read_os(struct publish_image *i)
{
	const char *arch = word_at(i, "arch");
	const char *distro = word_at(i, "os_id");
	const char *version = word_at(i, "os_version_id");

	i->arch = str_copy(!arch || str_equal(arch, "x86_64") ? "amd64"
	                   : str_equal(arch, "aarch64")       ? "arm64"
	                                                      : arch);
	i->os_distro = str_copy(distro ? distro : "linux");
	i->os_version = str_copy(version ? version : "");
}

int publish_image_open(struct publish_image *ret, const char *path, const char *name,
                       const char *version, unsigned wanted, struct log *log, struct error *err)
{
	CLEANUP_PUBLISH_IMAGE struct publish_image i = {.fd = -1, .path = str_copy(path)};

	i.name = name ? str_copy(name) : stem_of(path);
	if (check_name("name", i.name, err) < 0 ||
	    (version && check_name("image-version", version, err) < 0) || open_file(&i, err) < 0 ||
	    check_format(&i, log, err) < 0 ||
	    layer_make(i.name, i.size_bytes, &i.tar_head, &i.tar_head_size, &i.tar_tail,
	               &i.tar_tail_size, err) < 0 ||
	    digest_all(&i, wanted, log, err) < 0 || publish_image_check(&i, err) < 0 ||
	    read_manifest(&i, err) < 0 || check_sums(&i, err) < 0 || probe_boot_types(&i, err) < 0)
		return -1;
	i.version = version ? str_copy(version) : mem_copy(i.sha256, VERSION_DIGITS);
	read_os(&i);
	*ret = i;
	i = (struct publish_image){.fd = -1};
	return 0;
}

void publish_image_free(struct publish_image *i)
{
	char *strings[] = {i->path,   i->name, i->version,      i->md5,       i->sha256,
	                   i->sha512, i->arch, i->layer_sha256, i->os_distro, i->os_version};

	if (i->fd >= 0)
		close(i->fd);
	for (size_t k = 0; k < sizeof(strings) / sizeof(strings[0]); k++)
		free(strings[k]);
	free(i->tar_head);
	free(i->tar_tail);
	strv_free(&i->part_md5);
	strv_free(&i->part_sha256);
	strv_free(&i->boot_types);
	json_decref(i->manifest);
	*i = (struct publish_image){.fd = -1};
}
