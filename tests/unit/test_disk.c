/* SPDX-License-Identifier: Apache-2.0 */
/* Disk images made here with sgdisk, sfdisk and mkfs programs, read back through disk.h. */
#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "builder/disk.h"
#include "tests/unit/disk-fixture.h"

#define SECTOR            512u
#define GIB               (1024 * MIB)
#define GPT_ENTRIES_BYTES ((size_t)128 * 128)

static struct disk *open_disk(const char *path, const char *format)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct disk *disk = NULL;

	if (disk_open(&disk, path, format, false, &err) < 0)
		fixture_fail("open a disk", err.message);
	return disk;
}

static struct disk *probed_disk(const char *path, const char *format)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct disk *disk = open_disk(path, format);

	if (!check(disk_probe(disk, &err) == 0, "the disk '%s' is understood", path))
		printf("# %s\n", err.message);
	return disk;
}

static const struct volume *numbered(const struct disk *disk, int number)
{
	static const struct volume none = {.number = -1};

	for (size_t i = 0; i < disk_volume_count(disk); i++)
		if (disk_volume(disk, i)->number == number)
			return disk_volume(disk, i);
	return &none;
}

/* Opening or probing must be refused, with 'part' in the message. */
static void check_refused(const char *path, const char *format, const char *part, const char *name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DISK struct disk *disk = NULL;
	bool failed = disk_open(&disk, path, format, false, &err) < 0 || disk_probe(disk, &err) < 0;

	check(failed && error_exit_code(&err) == EXIT_INPUT && contains(err.message, part) &&
	              contains(err.message, path),
	      "%s", name);
	if (disk)
		check(disk_volume_count(disk) == 0 && !disk_table(disk),
		      "and no volume is left of it");
}

static void check_truncated(const char *path, const char *part, const char *name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DISK struct disk *disk = open_disk(path, "raw");
	bool failed = disk_probe(disk, &err) < 0;

	check(failed && error_exit_code(&err) == EXIT_INPUT && contains(err.message, part) &&
	              contains(err.hint, "truncated"),
	      "%s", name);
}

static void test_open(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct disk *disk = NULL;

	check_refused("missing.img", "raw", "No such file", "a missing file is told with its name");
	if (mkfifo("fifo", 0600) < 0)
		fixture_fail("make a FIFO", NULL);
	check_refused("fifo", "raw", "not a regular file", "a FIFO is refused and not waited for");
	make_file("zeroes.img", MIB);
	check_refused("zeroes.img", "qcow2", "qcow2",
	              "what qemu-nbd says of a file that is no qcow2 is in the message");
	check_refused("zeroes.img", "no-such-format", "no-such-format",
	              "an unknown format is refused");
	make_file("bad\xff.img", MIB);
	check(disk_open(&disk, "bad\xff.img", "raw", false, &err) < 0 && !disk &&
	              contains(err.message, "UTF-8") && err.hint,
	      "a name that is not UTF-8 is refused, with a hint");
}

static void test_read(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE uint8_t *want = mem_alloc(10 * MIB), *got = mem_alloc(10 * MIB);
	CLEANUP_DISK struct disk *disk = NULL, *again = NULL;

	make_file("noise.img", 10 * MIB);
	put_noise("noise.img", 0, 9 * MIB, 1);
	get("noise.img", 0, want, 10 * MIB);
	convert("noise.img", "noise.qcow2");
	if (rename("noise.qcow2", "odd, \"name\" =json:.qcow2") < 0)
		fixture_fail("rename an image", NULL);
	disk = open_disk("odd, \"name\" =json:.qcow2", "qcow2");
	again = open_disk("odd, \"name\" =json:.qcow2", "qcow2");
	check_str(disk_path(disk), "odd, \"name\" =json:.qcow2",
	          "a name with commas, quotes and a protocol is a name");
	check(disk_size_bytes(disk) == 10 * MIB, "the size is the guest's");
	check(disk_read(disk, got, 10 * MIB, 0, &err) == 0 && memcmp(got, want, 10 * MIB) == 0,
	      "a large read gives the guest's bytes");
	check(disk_read(again, got, 700, 8 * MIB - 300, &err) == 0 &&
	              memcmp(got, want + 8 * MIB - 300, 700) == 0,
	      "a second reader of the same image reads at an odd place");
	check(disk_read(disk, got, 0, 10 * MIB, &err) == 0, "nothing can be read at the end");
	check(disk_read(disk, got, 2, 10 * MIB - 1, &err) < 0 &&
	              error_exit_code(&err) == EXIT_INPUT && contains(err.message, "ends at"),
	      "a read beyond the end is refused");
	check(disk_read(disk, got, 2, UINT64_MAX - 1, &err) < 0, "also where the sum overflows");
	check_refused("odd, \"name\" =json:.qcow2", "qcow2", "neither a partition table",
	              "a disk of noise is refused");
}

static void test_backing(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DISK struct disk *alone = NULL, *chain = NULL;
	uint8_t got[SECTOR], want[SECTOR], zero[SECTOR] = {0};

	get("noise.img", 4096, want, sizeof(want));
	run("qemu-img", "create", "-q", "-f", "qcow2", "-b", "noise.img", "-F", "raw",
	    "over.qcow2");
	alone = open_disk("over.qcow2", "qcow2");
	check(disk_read(alone, got, sizeof(got), 4096, &err) == 0 &&
	              memcmp(got, zero, sizeof(got)) == 0,
	      "the backing file that an image names is not read");
	check(disk_open(&chain, "over.qcow2", "qcow2", true, &err) == 0 &&
	              disk_read(chain, got, sizeof(got), 4096, &err) == 0 &&
	              memcmp(got, want, sizeof(got)) == 0,
	      "it is read where the chain is our own");
}

static void test_beside_writer(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_FREE char *socket_path = str_format("%s/writer", fixture_dir);
	const char *const argv[] = {"qemu-nbd",  "-f",         "qcow2", "-k",
	                            socket_path, "over.qcow2", NULL};
	const struct proc_options options = {0};
	struct proc writer = {0};
	int status;

	if (proc_start(&writer, argv, &options, -1, -1, &err) < 0)
		fixture_fail("start a writer", err.message);
	for (int i = 0; i < 500 && access(socket_path, F_OK) < 0; i++)
		proc_wait(&writer, 20, &status, &err);
	check(writer.pid && disk_open(&disk, "over.qcow2", "qcow2", false, &err) == 0,
	      "an image that QEMU has open for writing can be read beside it");
	proc_kill(&writer);
}

struct reader {
	struct disk *disk;
	const uint8_t *want;
	uint64_t seed;
	bool good;
};

static void *read_here_and_there(void *opaque)
{
	struct reader *reader = opaque;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	uint8_t got[5000], places[2 * 60];

	fill(places, sizeof(places), reader->seed);
	reader->good = true;
	for (size_t i = 0; i < sizeof(places); i += 2) {
		uint64_t offset = (uint64_t)(places[i] << 8 | places[i + 1]) * 150;

		if (disk_read(reader->disk, got, sizeof(got), offset, &err) < 0 ||
		    memcmp(got, reader->want + offset, sizeof(got)) != 0)
			reader->good = false;
	}
	return NULL;
}

static void test_threads(void)
{
	CLEANUP_FREE uint8_t *want = mem_alloc(10 * MIB);
	CLEANUP_DISK struct disk *disk = open_disk("noise.img", "raw");
	struct reader readers[4];
	pthread_t threads[4];
	bool good = true;

	get("noise.img", 0, want, 10 * MIB);
	for (size_t i = 0; i < 4; i++) {
		readers[i] = (struct reader){.disk = disk, .want = want, .seed = i + 7};
		pthread_create(&threads[i], NULL, read_here_and_there, &readers[i]);
	}
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		good = good && readers[i].good;
	}
	check(good, "four threads read at once and each gets its own bytes");
}

static size_t own_children(pid_t *ret, size_t max)
{
	CLEANUP_FREE char *path = str_format("/proc/self/task/%d/children", (int)getpid());
	CLEANUP_FCLOSE FILE *file = fopen(path, "re");
	size_t count = 0;

	while (file && count < max &&
	       fscanf(file, "%d", &ret[count]) == 1) /* NOLINT(cert-err34-c) */
		count++;
	return count;
}

static void test_server_dies(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct disk *disk = open_disk("noise.img", "raw");
	pid_t children[8];
	size_t count = own_children(children, 8);
	uint8_t got[16];

	check(count == 1, "an open disk has one process");
	if (count == 1)
		kill(children[0], SIGKILL);
	check(disk_read(disk, got, sizeof(got), 0, &err) < 0 &&
	              error_exit_code(&err) == EXIT_HOST && contains(err.message, "noise.img"),
	      "a server that was killed is an error of the host");
	check(disk_read(disk, got, sizeof(got), 0, &err) < 0, "and stays one");
	disk_close(disk);
	check(own_children(children, 8) == 0, "a closed disk leaves no process");
}

/* CRC-32 as GPT (start ~0, inverted) and LVM2 (own start, not inverted) use it. */
static uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
	}
	return crc;
}

static void put32(uint8_t *p, uint32_t value)
{
	value = htole32(value);
	memcpy(p, &value, sizeof(value));
}

static void put64(uint8_t *p, uint64_t value)
{
	value = htole64(value);
	memcpy(p, &value, sizeof(value));
}

/* What pvcreate writes, which wants a block device. */
static void put_lvm(const char *path, uint64_t offset)
{
	uint8_t label[SECTOR] = "LABELONE";
	struct {
		char type[8], uuid[32];
	} head = {"LVM2 001", "abcdefghijklmnopqrstuvwxyz012345"};

	put64(label + 8, 1);
	put32(label + 20, 32);
	memcpy(label + 24, &head, sizeof(head));
	put32(label + 16, crc32_of(0xf597a6cfu, label + 20, SECTOR - 20));
	put(path, offset + SECTOR, label, sizeof(label));
}

/* The superblock of mdadm at 4 KiB (metadata 1.2), which wants a block device too. */
static void put_raid(const char *path, uint64_t offset)
{
	uint8_t super[SECTOR] = {0};

	put32(super, 0xa92b4efcu);
	put32(super + 4, 1);
	memset(super + 16, 0x5a, 16);
	memcpy(super + 32, "host:data", sizeof("host:data"));
	put64(super + 144, 8);
	put(path, offset + 4096, super, sizeof(super));
}

static void make_ext4(const char *path, const char *size, const char *label)
{
	run("mke2fs", "-q", "-F", "-t", "ext4", "-L", label, "-U",
	    "11111111-2222-3333-4444-555555555555", path, size);
}

static void put_ext4(const char *path, uint64_t offset, const char *size, const char *label)
{
	make_ext4("part.img", size, label);
	put_file(path, offset, "part.img");
	unlink("part.img");
}

/* 1 BIOS boot, 2 ESP, 3 ext4, 4 LVM, 5 RAID, 6 empty; boot code in the MBR. */
static void make_gpt_disk(const char *path)
{
	make_file(path, 800 * MIB);
	run("sgdisk", "-o", "-n", "1:1M:+1M", "-t", "1:ef02", "-n", "2:2M:+300M", "-t", "2:ef00",
	    "-c", "2:efi part", "-n", "3:302M:+400M", "-c", "3:root", "-u",
	    "3:AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE", "-n", "4:702M:+8M", "-n", "5:710M:+8M", "-n",
	    "6:718M:+8M", path);
	put(path, 0, "\xeb\x63\x90", 3);
	make_file("part.img", 300 * MIB);
	run("mkfs.vfat", "-F", "32", "-s", "1", "-n", "EFI SYS", "-i", "1234abcd", "part.img");
	put_file(path, 2 * MIB, "part.img");
	put_ext4(path, 302 * MIB, "400M", "Root-FS");
	put_lvm(path, 702 * MIB);
	put_raid(path, 710 * MIB);
}

static void check_gpt_volumes(const struct disk *disk)
{
	const struct volume *root = numbered(disk, 3), *esp = numbered(disk, 2);

	check_str(disk_table(disk), "gpt", "its table is GPT");
	check(disk_volume_count(disk) == 6, "it has six volumes");
	check(root->offset_bytes == 302 * MIB && root->size_bytes == 400 * MIB,
	      "a volume's place is known");
	check_str(root->type, "ext4", "ext4 is recognised");
	check_str(root->usage, "filesystem", "as a file system");
	check_str(root->uuid, "11111111-2222-3333-4444-555555555555", "with its UUID");
	check_str(root->label, "Root-FS", "and its label");
	check_str(root->partlabel, "root", "the partition's name is known");
	check_str(root->partuuid, "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee",
	          "the partition's UUID is in lower case");
	check_str(root->parttype, "0fc63daf-8483-4772-8e79-3d69d8477de4", "and its type");
	check_str(esp->type, "vfat", "FAT is recognised");
	check_str(esp->label, "EFI SYS", "with the label in its far root directory");
	check_str(esp->uuid, "1234-ABCD", "and its serial number");
	check_str(numbered(disk, 4)->type, "LVM2_member", "LVM is recognised");
	check_str(numbered(disk, 4)->usage, "raid", "as no file system");
	check_str(numbered(disk, 5)->type, "linux_raid_member", "MD RAID is recognised");
	check(!numbered(disk, 6)->type && !numbered(disk, 6)->usage,
	      "an empty partition is nothing");
}

static void check_find(const struct disk *disk)
{
	const struct volume *root = numbered(disk, 3);

	check(disk_find_volume(disk, "UUID=11111111-2222-3333-4444-555555555555") == root,
	      "a volume is found by UUID");
	check(disk_find_volume(disk, "PARTUUID=AAAAAAAA-bbbb-4ccc-8ddd-EEEEEEEEEEEE") == root,
	      "by PARTUUID in any case");
	check(disk_find_volume(disk, "LABEL=\"Root-FS\"") == root, "by a quoted LABEL");
	check(disk_find_volume(disk, "PARTLABEL=efi part") == numbered(disk, 2), "by PARTLABEL");
	check(disk_find_volume(disk, "UUID=1234-abcd") == numbered(disk, 2),
	      "FAT's by UUID in lower case");
	check(!disk_find_volume(disk, "LABEL=") && !disk_find_volume(disk, "/dev/sda1") &&
	              !disk_find_volume(disk, "UUI=11111111-2222-3333-4444-555555555555") &&
	              !disk_find_volume(disk, "LABEL=none"),
	      "what names no volume finds none");
}

static void test_gpt(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DISK struct disk *disk = NULL;

	make_gpt_disk("gpt.img");
	convert("gpt.img", "gpt.qcow2");
	disk = probed_disk("gpt.qcow2", "qcow2");
	check_gpt_volumes(disk);
	check_find(disk);
	check(disk_boots_bios(disk), "boot code and a BIOS boot partition make it boot by BIOS");
	check(disk_boots_uefi(disk), "an ESP makes it boot by UEFI");
	check(disk_probe(disk, &err) == 0 && disk_volume_count(disk) == 6,
	      "it can be probed a second time");
}

static void test_boot_types(void)
{
	struct disk *disk;

	put("gpt.img", 0, "\0\0\0", 3);
	disk = probed_disk("gpt.img", "raw");
	check(!disk_boots_bios(disk), "without boot code it does not boot by BIOS");
	disk_close(disk);
	put("gpt.img", 0, "\xeb\x63\x90", 3);
	run("sgdisk", "-t", "1:8300", "-t", "2:8300", "gpt.img");
	disk = probed_disk("gpt.img", "raw");
	check(!disk_boots_bios(disk), "without a BIOS boot partition neither");
	check(!disk_boots_uefi(disk), "a FAT partition of another type is no ESP");
	disk_close(disk);
	run("sgdisk", "-A", "3:set:2", "-t", "6:ef00", "gpt.img");
	disk = probed_disk("gpt.img", "raw");
	check(disk_boots_bios(disk), "the legacy_boot flag makes it boot by BIOS");
	check(!disk_boots_uefi(disk), "an ESP without FAT does not make it boot by UEFI");
	disk_close(disk);
}

static void test_gpt_damage(void)
{
	CLEANUP_FREE uint8_t *zero = mem_alloc(MIB);
	uint64_t size = file_size("gpt.img");
	uint8_t entry_end[8], far_end[8];

	get("gpt.img", 2 * SECTOR + 40, entry_end, 8);
	put64(far_end, size / SECTOR);
	put("gpt.img", 2 * SECTOR + 40, far_end, 8);
	check_truncated("gpt.img", "partition 1 ends at sector",
	                "a partition one sector beyond the end is told");
	put("gpt.img", 2 * SECTOR + 40, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
	check_truncated("gpt.img", "partition 1 ends", "also the last sector that can be told");
	put("gpt.img", 2 * SECTOR + 40, entry_end, 8);
	put("gpt.img", size - SECTOR, zero, SECTOR);
	check_truncated("gpt.img", "backup header is missing", "a missing backup header is told");
	make_file("cut.img", size);
	put_file("cut.img", 0, "gpt.img");
	if (truncate("cut.img", (off_t)(size / 2)) < 0)
		fixture_fail("cut.img", NULL);
	check_truncated("cut.img", "backup header belongs at sector",
	                "a GPT disk cut in half is told");
	put("cut.img", SECTOR, zero, SECTOR);
	check_truncated("cut.img", "announces a GPT", "a GPT that is gone at both ends is told");
	put("gpt.img", SECTOR + 80, "\xff\xff\xff\xff", 4);
	put("gpt.img", size - SECTOR, "EFI PART", 8);
	check_refused("gpt.img", "raw", "4294967295 entries",
	              "a GPT with too many entries is refused");
}

/* 1 ext4 (boot), 2 ESP, 4 extended with 5 ext4, 6 swap and 7 LVM, far from each other. */
static void test_mbr(void)
{
	CLEANUP_DISK struct disk *disk = NULL;

	make_file("mbr.img", 900 * MIB);
	run_with("label: dos\nlabel-id: 0x12345678\nunit: sectors\n"
	         "1: start=2048, size=100MiB, type=83, bootable\n"
	         "2: start=300MiB, size=100MiB, type=ef\n"
	         "4: start=410MiB, size=480MiB, type=5\n"
	         "5: start=420MiB, size=60MiB, type=83\n"
	         "6: start=600MiB, size=40MiB, type=82\n"
	         "7: start=800MiB, size=20MiB, type=8e\n",
	         "sfdisk", "-q", "mbr.img");
	put("mbr.img", 0, "\xeb\x63\x90", 3);
	put_ext4("mbr.img", MIB, "100M", "boot");
	make_file("part.img", 100 * MIB);
	run("mkfs.vfat", "-n", "ESP", "part.img");
	put_file("mbr.img", 300 * MIB, "part.img");
	put_ext4("mbr.img", 420 * MIB, "60M", "logical");
	make_file("part.img", 40 * MIB);
	run("mkswap", "-q", "-L", "swappy", "part.img");
	put_file("mbr.img", 600 * MIB, "part.img");
	put_lvm("mbr.img", 800 * MIB);

	disk = probed_disk("mbr.img", "raw");
	check_str(disk_table(disk), "dos", "its table is MBR");
	check(disk_volume_count(disk) == 5, "the extended partition itself is no volume");
	check_str(numbered(disk, 1)->label, "boot", "the first primary partition is read");
	check_str(numbered(disk, 1)->parttype, "0x83", "an MBR type is told in hex");
	check_str(numbered(disk, 5)->label, "logical", "the first logical partition is read");
	check_str(numbered(disk, 5)->partuuid, "12345678-05", "with its PARTUUID");
	check_str(numbered(disk, 6)->label, "swappy", "the second logical partition is read");
	check_str(numbered(disk, 7)->type, "LVM2_member", "the last logical partition is read");
	check(disk_find_volume(disk, "partuuid=12345678-07") == numbered(disk, 7),
	      "and found by PARTUUID");
	check(disk_boots_bios(disk) && disk_boots_uefi(disk), "it boots by BIOS and by UEFI");
}

static void test_mbr_cut(void)
{
	if (truncate("mbr.img", (off_t)(810 * MIB)) < 0)
		fixture_fail("mbr.img", NULL);
	check_truncated("mbr.img", "ends beyond", "a logical partition beyond the end is told");
	if (truncate("mbr.img", (off_t)(50 * MIB)) < 0)
		fixture_fail("mbr.img", NULL);
	check_truncated("mbr.img", "ends beyond", "a primary partition beyond the end is told");
}

/* A chain of logical partitions that leads back to its start must end. */
static void test_mbr_loop(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DISK struct disk *disk = NULL;
	uint8_t link[SECTOR] = {0};

	make_file("loop.img", 64 * MIB);
	run_with("label: dos\n1: start=2048, size=60MiB, type=5\n5: start=4096, size=1MiB\n",
	         "sfdisk", "-q", "loop.img");
	get("loop.img", MIB, link, sizeof(link));
	link[446 + 16 + 4] = 0x05;
	put32(link + 446 + 16 + 8, 4096);
	put32(link + 446 + 16 + 12, 4096);
	put("loop.img", MIB, link, sizeof(link));
	put("loop.img", MIB + (uint64_t)4096 * SECTOR, link, sizeof(link));
	disk = open_disk("loop.img", "raw");
	check(disk_probe(disk, &err) < 0 || disk_volume_count(disk) < 256,
	      "a loop of logical partitions ends");
}

static void check_whole(const char *path, const char *type, const char *label)
{
	CLEANUP_DISK struct disk *disk = probed_disk(path, "raw");
	const struct volume *v = numbered(disk, 0);

	check(disk_volume_count(disk) == 1 && !disk_table(disk), "it is one volume without table");
	check_str(v->type, type, "%s is recognised", type);
	check_str(v->label, label, "with its label");
	check(v->size_bytes == disk_size_bytes(disk) && v->offset_bytes == 0, "on the whole disk");
}

static void test_whole_disks(void)
{
	make_ext4("ext4.img", "20M", "whole");
	check_whole("ext4.img", "ext4", "whole");
	make_file("xfs.img", 400 * MIB);
	if (fixture_have("mkfs.xfs", "xfs is recognised")) {
		run("mkfs.xfs", "-q", "-L", "xlabel", "xfs.img");
		check_whole("xfs.img", "xfs", "xlabel");
	}
	make_file("btrfs.img", 200 * MIB);
	if (fixture_have("mkfs.btrfs", "btrfs is recognised")) {
		run("mkfs.btrfs", "-q", "-L", "blabel", "btrfs.img");
		check_whole("btrfs.img", "btrfs", "blabel");
	}
	make_file("luks.img", 20 * MIB);
	if (fixture_have("cryptsetup", "LUKS is recognised")) {
		run_with("secret", "cryptsetup", "luksFormat", "-q", "--pbkdf", "pbkdf2",
		         "--pbkdf-force-iterations", "1000", "--label", "llabel", "luks.img", "-");
		check_whole("luks.img", "crypto_LUKS", "llabel");
	}
}

static void test_nothing(void)
{
	make_file("empty.img", 0);
	check_refused("empty.img", "raw", "too small", "an empty disk is refused");
	check_refused("zeroes.img", "raw", "neither a partition table",
	              "a disk of zeroes is refused");
	run_with("label: dos\n", "sfdisk", "-q", "zeroes.img");
	check_refused("zeroes.img", "raw", "empty", "an empty MBR is refused");
	make_file("zeroes.img", MIB);
	run("sgdisk", "-o", "zeroes.img");
	check_refused("zeroes.img", "raw", "('gpt') is empty", "an empty GPT is refused");
	put("zeroes.img", SECTOR + 16, "\0\0\0\0", 4);
	put("zeroes.img", MIB - SECTOR + 16, "\0\0\0\0", 4);
	check_refused("zeroes.img", "raw", "GPT is damaged",
	              "a GPT whose checksums are wrong is refused");
}

/* A header and its one entry as sgdisk would write them for a disk of 4096-byte sectors. */
static void put_gpt_header(const char *path, uint64_t lba, uint64_t other, uint64_t entries_lba,
                           const uint8_t *entries)
{
	uint8_t header[92] = "EFI PART";

	put32(header + 8, 0x10000);
	put32(header + 12, sizeof(header));
	put64(header + 24, lba);
	put64(header + 32, other);
	put64(header + 40, 6);
	put64(header + 48, file_size(path) / 4096 - 6);
	memset(header + 56, 0x77, 16);
	put64(header + 72, entries_lba);
	put32(header + 80, 128);
	put32(header + 84, 128);
	put32(header + 88, ~crc32_of(~0u, entries, GPT_ENTRIES_BYTES));
	put32(header + 16, ~crc32_of(~0u, header, sizeof(header)));
	put(path, lba * 4096, header, sizeof(header));
	put(path, entries_lba * 4096, entries, GPT_ENTRIES_BYTES);
}

static void test_large_sectors(void)
{
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_FREE uint8_t *entries = mem_alloc(GPT_ENTRIES_BYTES);
	uint64_t last = 100 * MIB / 4096 - 1;
	uint8_t mbr[SECTOR] = {0};

	make_file("4k.img", 100 * MIB);
	mbr[450] = 0xee;
	put32(mbr + 454, 1);
	put32(mbr + 458, (uint32_t)last);
	mbr[510] = 0x55;
	mbr[511] = 0xaa;
	put("4k.img", 0, mbr, sizeof(mbr));
	memset(entries, 0x11, 32);
	put64(entries + 32, 256);
	put64(entries + 40, 256 + 50 * MIB / 4096 - 1);
	put_gpt_header("4k.img", 1, last, 2, entries);
	put_gpt_header("4k.img", last, 1, last - 4, entries);
	put_ext4("4k.img", MIB, "50M", "four");
	disk = probed_disk("4k.img", "raw");
	check(disk_volume_count(disk) == 1 && disk_volume(disk, 0)->offset_bytes == MIB &&
	              disk_volume(disk, 0)->size_bytes == 50 * MIB,
	      "a GPT of 4096-byte sectors is read");
	check_str(disk_volume(disk, 0)->label, "four", "and what is in it");
}

static void test_huge(void)
{
	CLEANUP_DISK struct disk *disk = NULL;

	run("qemu-img", "create", "-q", "-f", "qcow2", "huge.qcow2", "8T");
	make_file("huge.img", 1024 * GIB);
	run("sgdisk", "-o", "-n", "1:900G:+50G", "-c", "1:far", "huge.img");
	put_ext4("huge.img", 900 * GIB, "50M", "far");
	disk = probed_disk("huge.img", "raw");
	check_str(numbered(disk, 1)->label, "far", "a volume far out on a huge disk is read");
	check_refused("huge.qcow2", "qcow2", "neither a partition table",
	              "a huge empty disk is refused");
}

static struct disk *open_overlay(const char *base, const char *overlay)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct disk *disk = NULL;

	run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, overlay);
	if (disk_open_writable(&disk, overlay, &err) < 0)
		fixture_fail("open an overlay", err.message);
	return disk;
}

static bool all_zero(const uint8_t *data, size_t size)
{
	return size == 0 || (data[0] == 0 && memcmp(data, data + 1, size - 1) == 0);
}

/* Every byte of the base is noise, so that nothing is zero but what was made so. */
static void test_write(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE uint8_t *data = mem_alloc(9 * MIB), *got = mem_alloc(9 * MIB);
	struct disk *disk;

	make_file("noise.img", 64 * MIB);
	put_noise("noise.img", 0, 64 * MIB, 1);
	convert("noise.img", "noise.qcow2");
	disk = open_overlay("noise.qcow2", "work.qcow2");
	fill(data, 9 * MIB, 2);
	check(disk_write(disk, data, 9 * MIB, 3 * MIB + 512, &err) == 0 &&
	              disk_read(disk, got, 9 * MIB, 3 * MIB + 512, &err) == 0 &&
	              memcmp(data, got, 9 * MIB) == 0,
	      "what is written to an overlay is read again");
	check(disk_trim(disk, 20 * MIB, 40 * MIB, &err) == 0 &&
	              disk_trim(disk, MIB, 5 * MIB, &err) == 0,
	      "clusters of the base and of the overlay can be trimmed");
	check(disk_write(disk, data, 2, 64 * MIB - 1, &err) < 0 && contains(err.message, "ends at"),
	      "nothing is written behind the end");
	check(disk_trim(disk, UINT64_MAX, 512, &err) < 0, "nor trimmed where the sum overflows");
	error_free(&err);
	check(disk_finish(disk, &err) == 0, "the overlay is finished");
	check(disk_read(disk, got, 512, 0, &err) < 0, "and the disk is of no more use");
	disk_close(disk);
	error_free(&err);

	run("qemu-img", "check", "-q", "work.qcow2");
	if (disk_open(&disk, "work.qcow2", "qcow2", true, &err) < 0)
		fixture_fail("open the overlay again", err.message);
	check(disk_read(disk, got, 2 * MIB, 3 * MIB + 512, &err) == 0 &&
	              memcmp(got, data, 2 * MIB - 512) == 0 && all_zero(got + 2 * MIB - 512, 512),
	      "after that others read it, with zeros where it was trimmed");
	check(disk_read(disk, got, 9 * MIB, 45 * MIB, &err) == 0 && all_zero(got, 9 * MIB),
	      "the base does not show through where it was trimmed");
	get("noise.img", 60 * MIB, data, MIB);
	check(disk_read(disk, got, MIB, 60 * MIB, &err) == 0 && memcmp(data, got, MIB) == 0,
	      "and does where it was not");
	disk_close(disk);
}

static void test_write_refused(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct disk *disk = open_disk("noise.qcow2", "qcow2");
	struct disk *second = NULL;
	pid_t children[8];

	check(disk_write(disk, "x", 1, 0, &err) < 0 && contains(err.message, "opened to be read"),
	      "a disk that was opened for reading is not written");
	check(disk_trim(disk, 65536, 0, &err) < 0 && disk_finish(disk, &err) < 0,
	      "nor trimmed or finished");
	disk_close(disk);
	error_free(&err);
	disk = open_overlay("noise.qcow2", "work.qcow2");
	check(disk_open_writable(&second, "work.qcow2", &err) < 0 && contains(err.message, "lock"),
	      "two writers of one overlay are one too many");
	error_free(&err);
	if (own_children(children, 8) == 1)
		kill(children[0], SIGKILL);
	check(disk_finish(disk, &err) < 0 && error_exit_code(&err) == EXIT_HOST,
	      "a server that was killed has not finished the overlay");
	disk_close(disk);
}

int main(void)
{
	fixture_begin((const char *const[]){"qemu-nbd", "qemu-img", "sgdisk", "sfdisk", "mke2fs",
	                                    "mkfs.vfat", "mkswap", NULL});
	test_open();
	test_read();
	test_backing();
	test_beside_writer();
	test_threads();
	test_server_dies();
	test_gpt();
	test_boot_types();
	test_gpt_damage();
	test_mbr();
	test_mbr_cut();
	test_mbr_loop();
	test_whole_disks();
	test_nothing();
	test_large_sectors();
	test_huge();
	test_write();
	test_write_refused();
	return tap_done();
}
