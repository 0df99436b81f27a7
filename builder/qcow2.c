/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a user hands us as a base is often not a disk image at all: a compressed download, an
 * HTML page with an error, a VMDK. Each of those gets a name and a cure here, since the raw
 * format would swallow every one of them. Nothing of QEMU sees the file before it has passed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "qcow2.h"
#include "qcow2_tables.h"
#include "str.h"

#define SNIFF_BYTES  36864 /* ISO 9660 has its mark at 32 KiB */
#define SECTOR_BYTES 512

struct signature {
	size_t offset;
	const char *bytes;
	size_t length;
	const char *what; /* "it is %s" */
	const char *cure; /* the hint */
};

#define MAGIC(s) (s), sizeof(s) - 1

static const char cure_convert[] = "convert it first: qemu-img convert -O qcow2 FILE base.qcow2";
static const char cure_archive[] = "take the disk image out of the archive, and pass that";
static const char cure_page[] =
	"open the address in a browser: the server sent a page instead of the image";

static const struct signature signatures[] = {
	{0, MAGIC("\x1f\x8b"), "a gzip compressed file", "unpack it first: gzip -dk FILE"},
	{0,
         MAGIC("\xfd"
               "7zXZ"),
         "an xz compressed file", "unpack it first: xz -dk FILE"},
	{0, MAGIC("\x28\xb5\x2f\xfd"), "a zstd compressed file", "unpack it first: zstd -d FILE"},
	{0, MAGIC("BZh"), "a bzip2 compressed file", "unpack it first: bzip2 -dk FILE"},
	{0, MAGIC("\x04\x22\x4d\x18"), "an lz4 compressed file", "unpack it first: lz4 -d FILE"},
	{0, MAGIC("PK\x03\x04"), "a zip archive", cure_archive},
	{0, MAGIC("PK\x05\x06"), "an empty zip archive", cure_archive},
	{0, MAGIC("7z\xbc\xaf\x27\x1c"), "a 7z archive", cure_archive},
	{0, MAGIC("Rar!\x1a\x07"), "a RAR archive", cure_archive},
	{0, MAGIC("!<arch>\n"), "an ar archive or Debian package", cure_archive},
	{257, MAGIC("ustar"), "a tar archive (an OVA is one, too)", cure_archive},
	{0, MAGIC("KDMV"), "a VMDK image", cure_convert},
	{0, MAGIC("COWD"), "a VMDK image (ESX)", cure_convert},
	{0, MAGIC("# Disk DescriptorFile"), "a VMDK descriptor", cure_convert},
	{0, MAGIC("vhdxfile"), "a VHDX image", cure_convert},
	{0, MAGIC("conectix"), "a VHD image", cure_convert},
	{64, MAGIC("\x7f\x10\xda\xbe"), "a VDI image", cure_convert},
	{0, MAGIC("QED\0"), "a QED image", cure_convert},
	{0, MAGIC("WithoutFreeSpace"), "a Parallels image", cure_convert},
	{0, MAGIC("WithouFreSpacExt"), "a Parallels image", cure_convert},
	{0, MAGIC("\x3a\xff\x26\xed"), "an Android sparse image", "unpack it first: simg2img"},
	{0, MAGIC("LUKS\xba\xbe"), "an encrypted (LUKS) image",
         "decrypt it first; gpuimg asks for no passphrase"},
	{32769, MAGIC("CD001"), "an ISO 9660 image, an installer or live CD",
         "pass a disk image of an installed system, as clouds use: qcow2 or raw"},
	{0,
         MAGIC("\x7f"
               "ELF"),
         "an ELF program", "pass a disk image: qcow2 or raw"},
};

const char *image_format_name(enum image_format format)
{
	return format == IMAGE_QCOW2 ? "qcow2" : "raw";
}

/* Opens without ever waiting: a FIFO has no size, and its open would hang without O_NONBLOCK. */
static int open_regular(const char *path, int *ret_fd, uint64_t *ret_bytes, struct error *err)
{
	CLEANUP_CLOSE int fd = -1;
	struct stat st;

	if (stat(path, &st) < 0) {
		if (errno == ENOENT)
			error_hint(err, "the base is a path or an http(s) URL");
		return error_errno(err, errno, "cannot find it");
	}
	if (S_ISDIR(st.st_mode))
		return error_set(err, "it is a directory");
	if (S_ISBLK(st.st_mode)) {
		error_hint(err,
		           "copy it first: qemu-img convert -f raw -O qcow2 DEVICE base.qcow2");
		return error_set(err, "it is a block device, not a file");
	}
	if (!S_ISREG(st.st_mode))
		return error_set(err, "it is not a regular file");
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return error_errno(err, errno, "cannot open it");
	/* The name may mean another file by now. */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return error_set(err, "it is not a regular file");
	if (st.st_size == 0) {
		error_hint(err, "the download or copy that made it has failed: get it again");
		return error_set(err, "it is empty");
	}
	*ret_bytes = (uint64_t)st.st_size;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static bool has_mark(const unsigned char *head, size_t size, const struct signature *s)
{
	return s->offset + s->length <= size && memcmp(head + s->offset, s->bytes, s->length) == 0;
}

/* Boot sectors, superblocks and zeros all have control bytes within the first sector. */
static bool is_text(const unsigned char *head, size_t size)
{
	if (size >= 2 && (memcmp(head, "\xff\xfe", 2) == 0 || memcmp(head, "\xfe\xff", 2) == 0))
		return true;
	for (size_t i = 0; i < size && i < SECTOR_BYTES; i++)
		if (head[i] < 0x20 && !strchr("\t\n\r\f\x1b", head[i]))
			return false;
	return memchr(head, '\0', size < SECTOR_BYTES ? size : SECTOR_BYTES) == NULL;
}

static int refuse_text(const unsigned char *head, size_t size, struct error *err)
{
	CLEANUP_FREE char *copy = mem_copy(head, size < SECTOR_BYTES ? size : SECTOR_BYTES);
	const char *start = str_trim(copy);

	if (strncasecmp(start, "<!doctype html", 14) == 0 || strncasecmp(start, "<html", 5) == 0) {
		error_hint(err, "%s", cure_page);
		return error_set(err, "it is an HTML page, not a disk image");
	}
	error_hint(err, "pass a disk image: qcow2 or raw");
	return error_set(err, "it is a text file, not a disk image");
}

/* VHD with a fixed size and Apple's DMG are raw data, but for a footer in the last sector. */
static int check_footer(int fd, uint64_t file_bytes, struct error *err)
{
	char footer[SECTOR_BYTES];

	if (file_bytes < sizeof(footer))
		return 0;
	if (read_exactly(fd, footer, sizeof(footer), file_bytes - sizeof(footer), err) < 0)
		return -1;
	if (memcmp(footer, "conectix", 8) == 0) {
		error_hint(err, "%s", cure_convert);
		return error_set(err, "it is a VHD image of fixed size");
	}
	if (memcmp(footer, "koly", 4) == 0) {
		error_hint(err, "%s", cure_convert);
		return error_set(err, "it is an Apple disk image (DMG)");
	}
	return 0;
}

static int check_raw(int fd, const unsigned char *head, size_t size, struct image_info *info,
                     struct error *err)
{
	for (size_t i = 0; i < sizeof(signatures) / sizeof(signatures[0]); i++) {
		if (!has_mark(head, size, &signatures[i]))
			continue;
		error_hint(err, "%s", signatures[i].cure);
		return error_set(err, "it is %s, not a qcow2 or raw disk image",
		                 signatures[i].what);
	}
	if (is_text(head, size))
		return refuse_text(head, size, err);
	if (check_footer(fd, info->file_bytes, err) < 0)
		return -1;
	if (info->file_bytes % SECTOR_BYTES) {
		error_hint(err, "it may be a download that broke off: get it again and compare "
		                "its checksum");
		return error_set(err,
		                 "it would be a raw image, but its size, %" PRIu64
		                 " bytes, is not a multiple of %d",
		                 info->file_bytes, SECTOR_BYTES);
	}
	info->format = IMAGE_RAW;
	info->virtual_bytes = info->file_bytes;
	return 0;
}

static int check_qcow2(int fd, struct image_info *info, struct error *err)
{
	struct qcow2 q = {.fd = fd, .file_bytes = info->file_bytes};

	if (qcow2_read_header(&q, err) < 0)
		return -1;
	info->format = IMAGE_QCOW2;
	info->virtual_bytes = q.virtual_bytes;
	info->version = q.version;
	info->cluster_bytes = UINT32_C(1) << q.cluster_bits;
	info->compression = q.compression_type ? "zstd" : "zlib";
	info->dirty = q.incompatible & QCOW2_DIRTY;
	info->snapshots = q.snapshot_count;
	return qcow2_check_tables(&q, info, err);
}

static int check_file(const char *path, struct image_info *info, struct error *err)
{
	CLEANUP_CLOSE int fd = -1;
	CLEANUP_FREE unsigned char *head = mem_alloc(SNIFF_BYTES);
	size_t size;

	if (open_regular(path, &fd, &info->file_bytes, err) < 0)
		return -1;
	size = info->file_bytes < SNIFF_BYTES ? info->file_bytes : SNIFF_BYTES;
	if (read_exactly(fd, head, size, 0, err) < 0)
		return -1;
	if (size >= 4 && memcmp(head, "QFI\xfb", 4) == 0)
		return check_qcow2(fd, info, err);
	return check_raw(fd, head, size, info, err);
}

int image_check(struct image_info *ret, const char *path, struct error *err)
{
	struct image_info info = {0};

	if (check_file(path, &info, err) < 0) {
		error_code(err, EXIT_INPUT);
		return error_prefix(err, "cannot use image '%s'", path);
	}
	*ret = info;
	return 0;
}
