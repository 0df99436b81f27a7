/* SPDX-License-Identifier: Apache-2.0 */
/* The containerDisk's layer, read back by libarchive and by GNU tar. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/str.h"
#include "publish/layer.h"
#include "tap.h"

#define GIB (1024ull * 1024 * 1024)

struct layer {
	void *head, *tail;
	size_t head_size, tail_size;
};

static void layer_free(struct layer *l)
{
	free(l->head);
	free(l->tail);
}

static struct layer make(const char *name, uint64_t size)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct layer l = {0};

	if (layer_make(name, size, &l.head, &l.head_size, &l.tail, &l.tail_size, &err) < 0)
		printf("Bail out! %s\n", err.message);
	return l;
}

/* A sparse file of head, 'size' zeros and tail: as it goes over the wire. */
static void write_layer(const char *path, const struct layer *l, uint64_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || pwrite(fd, l->head, l->head_size, 0) != (ssize_t)l->head_size ||
	    pwrite(fd, l->tail, l->tail_size, (off_t)(l->head_size + size)) !=
	            (ssize_t)l->tail_size)
		printf("Bail out! cannot write %s\n", path);
	if (fd >= 0)
		close(fd);
}

static void check_entry(struct archive_entry *e, const char *path, unsigned type, uint64_t size)
{
	check_str(archive_entry_pathname(e), path, "the layer holds %s", path);
	check(archive_entry_filetype(e) == type && (uint64_t)archive_entry_size(e) == size,
	      "%s is of the right kind and size", path);
	check(archive_entry_uid(e) == 107 && archive_entry_gid(e) == 107,
	      "%s belongs to KubeVirt's qemu user", path);
	check(archive_entry_mtime(e) == 0, "%s has a fixed time", path);
}

static void read_layer(const char *file, const char *path, uint64_t size)
{
	struct archive *a = archive_read_new();
	struct archive_entry *e;

	archive_read_support_format_tar(a);
	if (archive_read_open_filename(a, file, 65536) != ARCHIVE_OK)
		printf("Bail out! %s\n", archive_error_string(a));
	check(archive_read_next_header(a, &e) == ARCHIVE_OK, "there is a first entry");
	check_entry(e, "disk/", AE_IFDIR, 0);
	check(archive_read_next_header(a, &e) == ARCHIVE_OK, "there is a second entry");
	check_entry(e, path, AE_IFREG, size);
	check(archive_read_next_header(a, &e) == ARCHIVE_EOF, "there is no third one");
	archive_read_free(a);
}

static void test_small(void)
{
	const uint64_t size = 3 * 512 + 7;
	struct layer l = make("node", size);

	write_layer("small.tar", &l, size);
	read_layer("small.tar", "disk/node.qcow2", size);
	check(l.head_size == 1024, "a small image has two plain ustar headers, and no more");
	check((l.head_size + size + l.tail_size) % 512 == 0, "the archive is of whole blocks");
	layer_free(&l);
	unlink("small.tar");
}

static void test_limit(void)
{
	struct layer below = make("node", 8 * GIB - 1), above = make("node", 8 * GIB);

	check(below.head_size == 1024, "one byte below 8 GiB is still plain ustar");
	check(above.head_size > 1024, "8 GiB need a pax record");
	check(memmem(above.head, above.head_size, "size=8589934592\n", 16) != NULL,
	      "which tells the size");
	layer_free(&below);
	layer_free(&above);
}

static void test_large(void)
{
	const uint64_t size = 9 * GIB + 1;
	struct layer l = make("large", size);
	char line[256] = "";
	FILE *tar;
	bool seen = false;

	write_layer("large.tar", &l, size);
	read_layer("large.tar", "disk/large.qcow2", size);
	tar = popen("tar --numeric-owner -tvf large.tar 2>&1", "re");
	while (tar && fgets(line, sizeof(line), tar))
		seen |= strstr(line, "107/107") && strstr(line, " 9663676417 ") &&
		        strstr(line, "disk/large.qcow2");
	check(tar && pclose(tar) == 0 && seen, "GNU tar reads a layer of 9 GiB and one byte");
	layer_free(&l);
	unlink("large.tar");
}

static void test_same(void)
{
	struct layer a = make("node", 12345), b = make("node", 12345);

	check(a.head_size == b.head_size && memcmp(a.head, b.head, a.head_size) == 0,
	      "the same name and size give the same bytes");
	layer_free(&a);
	layer_free(&b);
}

int main(void)
{
	char dir[] = "/tmp/gpuimg-layer-XXXXXX";

	if (!mkdtemp(dir) || chdir(dir) < 0) {
		printf("Bail out! no directory\n");
		return 1;
	}
	test_small();
	test_limit();
	test_large();
	test_same();
	rmdir(dir);
	return tap_done();
}
