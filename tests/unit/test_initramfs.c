/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The archives are made here, header by header, so that each fault has a place of its own; the
 * compressions come from libarchive's writers, lz4's legacy format from four bytes and literals,
 * and all of them once more from the programs that image builders run.
 */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/initramfs.h"
#include "builder/proc.h"
#include "builder/str.h"
#include "tap.h"

struct blob {
	uint8_t *data;
	size_t size;
};

static void blob_free(struct blob *b)
{
	free(b->data);
	*b = (struct blob){0};
}
#define CLEANUP_BLOB CLEANUP(blob_free)

static void blob_add(struct blob *b, const void *data, size_t size)
{
	b->data = mem_grow(b->data, b->size + size, 1);
	if (size)
		memcpy(b->data + b->size, data, size);
	b->size += size;
}

static void blob_zeros(struct blob *b, size_t size)
{
	static const uint8_t zeros[512];

	blob_add(b, zeros, size);
}

struct node {
	const char *path;
	uint32_t mode;
	const void *data; /* or the target of a link */
	size_t size;
	uint32_t inode, links; /* 0: 1 */
};

static void add_node(struct blob *b, const struct node *n)
{
	CLEANUP_FREE char *header = str_format(
		"070701%08X%08X%08X%08X%08X%08X%08zX%08X%08X%08X%08X%08zX%08X", n->inode, n->mode,
		0, 0, n->links ? n->links : 1, 0, n->size, 8, 1, 0, 0, strlen(n->path) + 1, 0);

	blob_add(b, header, 110);
	blob_add(b, n->path, strlen(n->path) + 1);
	blob_zeros(b, -b->size & 3);
	blob_add(b, n->data, n->size);
	blob_zeros(b, -b->size & 3);
}

static void add_file(struct blob *b, const char *path, const char *text)
{
	add_node(b,
	         &(struct node){.path = path, .mode = 0100644, .data = text, .size = strlen(text)});
}

static void add_dir(struct blob *b, const char *path)
{
	add_node(b, &(struct node){.path = path, .mode = 040755});
}

static void add_link(struct blob *b, const char *path, const char *target)
{
	add_node(b, &(struct node){
			    .path = path, .mode = 0120777, .data = target, .size = strlen(target)});
}

/* The end record, as short as the kernel takes it: without padding. */
static void add_end(struct blob *b)
{
	add_node(b, &(struct node){.path = "TRAILER!!!"});
	b->size -= 3;
}

/* What cpio writes: padded to 512. */
static void add_padded_end(struct blob *b)
{
	add_end(b);
	blob_zeros(b, -b->size & 511);
}

static struct blob make_small(const char *text)
{
	struct blob b = {0};

	add_dir(&b, ".");
	add_dir(&b, "etc");
	add_file(&b, "etc/a.conf", text);
	add_link(&b, "init", "etc/a.conf");
	add_padded_end(&b);
	return b;
}

static struct blob make_early(void)
{
	struct blob b = {0};

	add_dir(&b, "kernel");
	add_dir(&b, "kernel/x86");
	add_file(&b, "kernel/x86/microcode.bin", "microcode");
	add_padded_end(&b);
	return b;
}

static struct blob compress(const struct blob *in, int (*add_filter)(struct archive *a))
{
	struct archive *a = archive_write_new();
	struct archive_entry *entry = archive_entry_new();
	struct blob out = {0};
	size_t capacity = in->size + 65536, used = 0;

	out.data = mem_alloc(capacity);
	archive_entry_set_pathname(entry, "x");
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_write_set_bytes_in_last_block(a, 1);
	if (archive_write_set_format_raw(a) != ARCHIVE_OK || add_filter(a) != ARCHIVE_OK ||
	    archive_write_open_memory(a, out.data, capacity, &used) != ARCHIVE_OK ||
	    archive_write_header(a, entry) != ARCHIVE_OK ||
	    archive_write_data(a, in->data, in->size) != (la_ssize_t)in->size ||
	    archive_write_close(a) != ARCHIVE_OK)
		abort();
	archive_entry_free(entry);
	archive_write_free(a);
	out.size = used;
	return out;
}

/* lz4's legacy format: a magic, then chunks with their length; here of literals only. */
static struct blob compress_lz4_legacy(const struct blob *in)
{
	static const uint8_t magic[] = {0x02, 0x21, 0x4c, 0x18};
	struct blob out = {0}, block = {0};
	uint8_t length[4];
	size_t left = in->size - 15;

	blob_add(&block, "\xf0", 1);
	for (; left >= 255; left -= 255)
		blob_add(&block, "\xff", 1);
	blob_add(&block, &(uint8_t){(uint8_t)left}, 1);
	blob_add(&block, in->data, in->size);
	for (size_t i = 0; i < 4; i++)
		length[i] = (uint8_t)(block.size >> (8 * i));
	blob_add(&out, magic, 4);
	blob_add(&out, length, 4);
	blob_add(&out, block.data, block.size);
	blob_free(&block);
	return out;
}

struct compression {
	const char *name;
	int (*filter)(struct archive *a);
};

static const struct compression compressions[] = {
	{"gzip", archive_write_add_filter_gzip}, {"xz", archive_write_add_filter_xz},
	{"lzma", archive_write_add_filter_lzma}, {"bzip2", archive_write_add_filter_bzip2},
	{"zstd", archive_write_add_filter_zstd}, {"lz4", NULL},
};

#define COMPRESSIONS (sizeof(compressions) / sizeof(compressions[0]))

static struct blob compress_as(size_t which, const struct blob *in)
{
	if (!compressions[which].filter)
		return compress_lz4_legacy(in);
	return compress(in, compressions[which].filter);
}

static bool keep_all(void *opaque, const char *path, uint64_t size_bytes)
{
	(void)opaque;
	(void)path;
	(void)size_bytes;
	return true;
}

static bool keep_named(void *opaque, const char *path, uint64_t size_bytes)
{
	(void)size_bytes;
	return strcmp(path, opaque) == 0;
}

/* Reads a copy that ends where the heap block ends, so that a sanitizer sees every step over. */
static int read_blob(struct initramfs *ret, const struct blob *b, size_t size, struct error *err)
{
	CLEANUP_FREE uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	if (size)
		memcpy(copy, b->data, size);
	return initramfs_read_memory(ret, copy, size, "test.img", keep_all, NULL, err);
}

static bool has_text(const struct initramfs *i, const char *path, const char *text)
{
	const struct initramfs_member *m = initramfs_find_target(i, path);

	return m && m->data && m->size_bytes == strlen(text) &&
	       strcmp((const char *)m->data, text) == 0;
}

static void check_refused(const struct blob *b, const char *word, const char *sentence)
{
	CLEANUP_INITRAMFS struct initramfs i = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int rc = read_blob(&i, b, b->size, &err);
	bool good = rc == -1 && err.message && strstr(err.message, word) &&
	            strstr(err.message, "test.img") && error_exit_code(&err) == EXIT_INPUT;

	check(good && !i.members && !i.by_path, "%s", sentence);
	if (!good)
		printf("# %s\n", err.message ? err.message : "accepted");
}

static void test_plain(void)
{
	CLEANUP_BLOB struct blob b = make_small("options x\n");
	CLEANUP_INITRAMFS struct initramfs i = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const struct initramfs_member *m;

	check(read_blob(&i, &b, b.size, &err) == 0, "a plain archive is read");
	check(i.count == 4 && i.archive_count == 1, "it has its four members in one archive");
	check_str(i.compressions.items[0], "none", "it is told to be without compression");
	check_str(i.members[0].path, ".", "the top directory keeps its name");
	check(has_text(&i, "etc/a.conf", "options x\n"), "content is kept, with a NUL after it");
	check(has_text(&i, "/etc/../etc/./a.conf", "options x\n"),
	      "a path is found however it is written");
	m = initramfs_find(&i, "init");
	check_str(m ? m->link : NULL, "etc/a.conf", "a link in the last place is not followed");
	check(has_text(&i, "init", "options x\n"), "find_target follows it");
	check(!initramfs_find(&i, "etc/b.conf") && !initramfs_find(&i, "") &&
	              !initramfs_find(&i, "etc/a.conf/x"),
	      "what is not there is not found");
	check(i.expanded_bytes > 400 && i.expanded_bytes <= b.size, "expanded bytes are counted");
}

static void test_keep(void)
{
	CLEANUP_BLOB struct blob b = make_small("text");
	CLEANUP_INITRAMFS struct initramfs none = {0}, one = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char name[] = "etc/a.conf";

	check(initramfs_read_memory(&none, b.data, b.size, "x", NULL, NULL, &err) == 0 &&
	              none.count == 4 && !none.members[2].data && none.members[2].size_bytes == 4,
	      "without a keep function no content is held");
	check(initramfs_read_memory(&one, b.data, b.size, "x", keep_named, name, &err) == 0 &&
	              has_text(&one, "etc/a.conf", "text"),
	      "the keep function gets its argument and the path");
}

static void test_compressions(void)
{
	for (size_t c = 0; c < COMPRESSIONS; c++) {
		CLEANUP_BLOB struct blob early = make_early(), small = make_small("main\n");
		CLEANUP_BLOB struct blob b = {0}, packed = compress_as(c, &small);
		CLEANUP_INITRAMFS struct initramfs i = {0};
		CLEANUP_ERROR struct error err = ERROR_INIT;

		blob_add(&b, early.data, early.size);
		blob_zeros(&b, 300);
		blob_add(&b, packed.data, packed.size);
		check(read_blob(&i, &b, b.size, &err) == 0,
		      "%s: microcode, padding and the main archive are read", compressions[c].name);
		if (err.message)
			printf("# %s\n", err.message);
		check(i.archive_count == 2 && i.count == 7 && i.members[3].archive == 1,
		      "%s: members know their archive", compressions[c].name);
		check_str(i.archive_count == 2 ? i.compressions.items[1] : NULL,
		          compressions[c].name, "%s: it is named", compressions[c].name);
		check(has_text(&i, "kernel/x86/microcode.bin", "microcode") &&
		              has_text(&i, "init", "main\n"),
		      "%s: both contents are there", compressions[c].name);
	}
}

/* Each compression followed by each other one: where the first ends must be found exactly. */
static void test_sequences(void)
{
	for (size_t first = 0; first < COMPRESSIONS; first++) {
		bool good = true;

		for (size_t second = 0; second < COMPRESSIONS; second++) {
			CLEANUP_BLOB struct blob one = make_small("one"), two = make_small("two");
			CLEANUP_BLOB struct blob b = compress_as(first, &one);
			CLEANUP_BLOB struct blob packed = compress_as(second, &two);
			CLEANUP_INITRAMFS struct initramfs i = {0};
			CLEANUP_ERROR struct error err = ERROR_INIT;

			/* lz4 needs a zero word to end; the others end by themselves. */
			blob_zeros(&b, first == COMPRESSIONS - 1 && second != first ? 5 : 0);
			blob_add(&b, packed.data, packed.size);
			blob_zeros(&b, -b.size & 3);
			blob_add(&b, one.data, one.size);
			/* ... and at the end a plain one, which lz4 would take for a chunk */
			if (second == COMPRESSIONS - 1)
				b.size -= one.size;
			if (read_blob(&i, &b, b.size, &err) < 0 ||
			    !has_text(&i, "init", second == COMPRESSIONS - 1 ? "two" : "one")) {
				printf("# then %s: %s\n", compressions[second].name,
				       err.message ? err.message : "wrong content");
				good = false;
			}
		}
		check(good, "%s: archives of every kind can follow", compressions[first].name);
	}
}

/*
 * Cut at every length. Legal ends are those where a whole archive and nothing but zeros stand
 * before the cut.
 */
static size_t count_accepted(const struct blob *b, size_t legal_from, size_t legal_to,
                             size_t *ret_wrong)
{
	size_t accepted = 0;

	for (size_t size = 0; size < b->size; size++) {
		CLEANUP_INITRAMFS struct initramfs i = {0};
		CLEANUP_ERROR struct error err = ERROR_INIT;
		bool legal = size >= legal_from && size <= legal_to;
		bool read = read_blob(&i, b, size, &err) == 0;

		accepted += read;
		if (read != legal || (!read && error_exit_code(&err) != EXIT_INPUT)) {
			printf("# cut at %zu of %zu: %s\n", size, b->size,
			       read ? "accepted" : err.message);
			(*ret_wrong)++;
		}
	}
	return accepted;
}

static void test_cuts(void)
{
	CLEANUP_BLOB struct blob small = make_small("text\n"), unpadded = {0};
	size_t end, wrong = 0;

	add_dir(&unpadded, ".");
	add_dir(&unpadded, "etc");
	add_file(&unpadded, "etc/a.conf", "text\n");
	add_link(&unpadded, "init", "etc/a.conf");
	add_end(&unpadded);
	end = unpadded.size;
	count_accepted(&unpadded, SIZE_MAX, 0, &wrong);
	check(wrong == 0, "plain: every cut before the end of the end record is an error");
	wrong = 0;
	check(count_accepted(&small, end, small.size, &wrong) == small.size - end && wrong == 0,
	      "plain: cuts in the padding behind the end record are legal, all others are not");
	for (size_t c = 0; c < COMPRESSIONS; c++) {
		CLEANUP_BLOB struct blob packed = compress_as(c, &small);

		wrong = 0;
		count_accepted(&packed, SIZE_MAX, 0, &wrong);
		check(wrong == 0, "%s: every cut of %zu is an error", compressions[c].name,
		      packed.size);
	}
}

static void test_cuts_of_two(void)
{
	for (size_t c = 0; c < COMPRESSIONS; c++) {
		CLEANUP_BLOB struct blob b = {0}, small = make_small("text\n");
		CLEANUP_BLOB struct blob packed = compress_as(c, &small);
		size_t end, wrong = 0;

		add_file(&b, "microcode", "x");
		add_end(&b);
		end = b.size;
		blob_zeros(&b, 64);
		blob_add(&b, packed.data, packed.size);
		count_accepted(&b, end, end + 64, &wrong);
		check(wrong == 0, "microcode and %s: only a cut between the two is legal",
		      compressions[c].name);
	}
}

/* One flipped bit is an error, or changes nothing that is told; it never crashes. libarchive
 * writes zstd without a checksum; lzma and lz4 legacy have none. */
static void test_damage(void)
{
	static const char *const checked[] = {"gzip", "xz", "bzip2"};

	for (size_t c = 0; c < COMPRESSIONS; c++) {
		CLEANUP_BLOB struct blob small = make_small("some text of the file\n");
		CLEANUP_BLOB struct blob packed = compress_as(c, &small);
		size_t changed = 0;
		bool has_checksum = false;

		for (size_t n = 0; n < sizeof(checked) / sizeof(checked[0]); n++)
			has_checksum |= strcmp(compressions[c].name, checked[n]) == 0;
		for (size_t bit = 0; bit < packed.size * 8; bit++) {
			CLEANUP_INITRAMFS struct initramfs i = {0};
			CLEANUP_ERROR struct error err = ERROR_INIT;

			packed.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
			if (read_blob(&i, &packed, packed.size, &err) == 0 &&
			    !has_text(&i, "etc/a.conf", "some text of the file\n"))
				changed++;
			packed.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		if (has_checksum)
			check(changed == 0, "%s: no flipped bit changes the content unnoticed",
			      compressions[c].name);
		else
			check(true, "%s: no flipped bit crashes the reader", compressions[c].name);
	}
}

static void test_refusals(void)
{
	CLEANUP_BLOB struct blob empty = {0}, zeros = {0}, garbage = {0}, after = make_small("x");
	CLEANUP_BLOB struct blob small = make_small("x"), odd = make_small("x"), frame = {0};
	CLEANUP_BLOB struct blob nested = {0}, once = {0}, inner = {0}, nothing = {0};

	check_refused(&empty, "it is empty", "an empty file is refused");
	blob_zeros(&zeros, 512);
	check_refused(&zeros, "nothing but zeros", "zeros alone are refused");
	blob_add(&garbage, "#!/bin/sh\nexit 0\n", 17);
	check_refused(&garbage, "is not an initramfs", "a shell script is refused");
	blob_add(&after, "garbage", 7);
	check_refused(&after, "garbage after archive 1", "garbage behind the archive is refused");
	blob_zeros(&odd, 2);
	blob_add(&odd, small.data, small.size);
	check_refused(&odd, "garbage after", "an archive off the 4-byte boundary is refused");
	frame = compress(&small, archive_write_add_filter_lz4);
	check_refused(&frame, "only lz4",
	              "the lz4 frame format, which the kernel does not read, is refused by name");
	once = compress(&small, archive_write_add_filter_zstd);
	nested = compress(&once, archive_write_add_filter_zstd);
	check_refused(&nested, "header", "a doubly compressed archive is refused");
	blob_add(&inner, small.data, small.size);
	blob_add(&inner, "junk", 4);
	blob_free(&once);
	once = compress(&inner, archive_write_add_filter_gzip);
	check_refused(&once, "garbage at byte",
	              "garbage behind an archive inside the compression is refused");
	blob_zeros(&nothing, 100);
	blob_free(&once);
	once = compress(&nothing, archive_write_add_filter_xz);
	check_refused(&once, "holds no cpio archive", "a compressed nothing is refused");
}

static void test_headers(void)
{
	CLEANUP_BLOB struct blob odc = {0}, binary = {0}, hex = make_small("x"), name = {0};
	CLEANUP_BLOB struct blob fat_dir = {0}, huge = {0}, lzo = {0};
	CLEANUP_FREE char *long_name = mem_alloc(5001);

	blob_add(&odc, "070707000000", 12);
	blob_zeros(&odc, 200);
	check_refused(&odc, "old portable cpio", "the odc format is refused by name");
	blob_add(&binary, "\xc7\x71\0\0\0\0", 6);
	check_refused(&binary, "old binary cpio", "the binary format is refused by name");
	blob_add(&lzo, "\x89LZO\0\r\n\x1a\n", 9);
	check_refused(&lzo, "does not read lzo", "lzo is refused by name");
	hex.data[20] = 'x';
	check_refused(&hex, "damaged cpio header", "a header with other than digits is refused");
	memset(long_name, 'a', 5000);
	add_file(&name, long_name, "x");
	add_end(&name);
	check_refused(&name, "name of 5001 bytes", "a name longer than PATH_MAX is refused");
	add_node(&fat_dir, &(struct node){.path = "d", .mode = 040755, .data = "x", .size = 1});
	add_end(&fat_dir);
	check_refused(&fat_dir, "content where no file is", "a directory with content is refused");
	add_file(&huge, "huge", "x");
	memcpy(huge.data + 54, "10000000", 8);
	check_refused(&huge, "truncated in huge", "a member that claims 256 MiB is truncated");
	memcpy(huge.data + 54, "FFFFFFFF", 8);
	check_refused(&huge, "more than 536870912 bytes",
	              "a member of 4 GiB that shall be kept is refused before its content");
}

static void test_later_wins(void)
{
	CLEANUP_BLOB struct blob b = make_small("first");
	CLEANUP_INITRAMFS struct initramfs i = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	add_file(&b, "./etc/a.conf", "second");
	add_file(&b, "/etc/a.conf", "third");
	add_link(&b, "init", "etc");
	add_end(&b);
	check(read_blob(&i, &b, b.size, &err) == 0 && i.count == 7, "both archives are read");
	check(has_text(&i, "etc/a.conf", "third"), "of the same path the last one wins");
	check(has_text(&i, "init/a.conf", "third"), "a later link takes the place of an earlier");
	check_str(i.members[4].path, "etc/a.conf", "a leading './' is taken off");
	check_str(i.members[5].path, "etc/a.conf", "a leading '/' is taken off");
}

static void test_hard_links(void)
{
	CLEANUP_BLOB struct blob b = {0};
	CLEANUP_INITRAMFS struct initramfs all = {0}, first = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char name[] = "a";

	add_node(&b, &(struct node){.path = "a", .mode = 0100644, .inode = 7, .links = 3});
	add_node(&b, &(struct node){.path = "other", .mode = 0100644, .inode = 8, .links = 2});
	add_node(&b, &(struct node){.path = "b", .mode = 0100644, .inode = 7, .links = 3});
	add_node(&b, &(struct node){.path = "c",
	                            .mode = 0100644,
	                            .data = "data",
	                            .size = 4,
	                            .inode = 7,
	                            .links = 3});
	add_end(&b);
	blob_zeros(&b, -b.size & 3);
	/* The same number in another archive is another file: the kernel forgets at the end. */
	add_node(&b, &(struct node){.path = "d", .mode = 0100644, .inode = 7, .links = 2});
	add_end(&b);
	check(read_blob(&all, &b, b.size, &err) == 0 && has_text(&all, "a", "data") &&
	              has_text(&all, "b", "data") && has_text(&all, "c", "data"),
	      "all names of a hard-linked file have the content that came with the last");
	check(all.members[1].size_bytes == 0 && all.members[4].size_bytes == 0,
	      "other files, and the same inode in the next archive, stay empty");
	check(initramfs_read_memory(&first, b.data, b.size, "x", keep_named, name, &err) == 0 &&
	              has_text(&first, "a", "data") && !first.members[3].data &&
	              first.members[3].size_bytes == 4,
	      "content asked for under the first name only is held there only");
}

static void test_usr_merge(void)
{
	CLEANUP_BLOB struct blob b = {0};
	CLEANUP_INITRAMFS struct initramfs i = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const struct initramfs_member *m;

	add_link(&b, "lib", "usr/lib");
	add_dir(&b, "usr");
	add_dir(&b, "usr/lib");
	add_dir(&b, "usr/lib/modules");
	add_dir(&b, "usr/lib/modules/6.1");
	add_file(&b, "usr/lib/modules/6.1/virtio_blk.ko.xz", "xz");
	add_file(&b, "lib/modules/6.1/nvme-core.ko.zst", "zst");
	add_file(&b, "usr/lib/modules/6.1/virtio_blk.ko.old", "old");
	add_file(&b, "usr/lib/nouveau.ko", "elsewhere");
	add_file(&b, "missing/file", "nowhere");
	add_link(&b, "usr/lib/abs", "/usr/lib/modules");
	add_link(&b, "usr/lib/up", "../../../lib/abs");
	add_link(&b, "circle", "circle2");
	add_link(&b, "circle2", "circle");
	add_link(&b, "usr/lib/modules/6.1/e1000e.ko", "../kernel/e1000e.ko");
	add_end(&b);
	check(read_blob(&i, &b, b.size, &err) == 0, "an archive with a merged /usr is read");
	check(has_text(&i, "lib/modules/6.1/virtio_blk.ko.xz", "xz"),
	      "a link in the place of a directory is followed");
	check(has_text(&i, "usr/lib/modules/6.1/nvme-core.ko.zst", "zst"),
	      "a member written through such a link is found at its real place");
	check(has_text(&i, "lib/up/6.1/virtio_blk.ko.xz", "xz"),
	      "absolute links and '..' past the top stay inside the archive");
	check(!initramfs_find_target(&i, "circle") && !initramfs_find(&i, "circle/x"),
	      "links in a circle lead nowhere");
	check(!initramfs_find(&i, "missing/file"),
	      "a file whose directory is missing is not there, as the kernel drops it");
	m = initramfs_find_module(&i, "virtio-blk");
	check_str(m ? m->path : NULL, "usr/lib/modules/6.1/virtio_blk.ko.xz",
	          "a module is found by name, with - for _ and with .xz");
	m = initramfs_find_module(&i, "nvme_core");
	check_str(m ? m->path : NULL, "lib/modules/6.1/nvme-core.ko.zst",
	          "a module is found by name, with _ for - and with .zst");
	check(initramfs_find_module(&i, "e1000e"), "a module that is a link is found");
	check(!initramfs_find_module(&i, "nouveau") && !initramfs_find_module(&i, "virtio") &&
	              !initramfs_find_module(&i, "nvme"),
	      "files elsewhere and names that only begin so are not modules");
}

static void test_file(const char *dir)
{
	CLEANUP_BLOB struct blob small = make_small("text");
	CLEANUP_INITRAMFS struct initramfs i = {0}, none = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = str_format("%s/img", dir);
	CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CLEANUP_CLOSE int dir_fd = open(dir, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || dir_fd < 0 || write(fd, small.data, small.size) != (ssize_t)small.size)
		abort();
	check(initramfs_read_file(&i, fd, path, keep_all, NULL, &err) == 0 &&
	              has_text(&i, "init", "text"),
	      "a file is read from its beginning, wherever the descriptor stands");
	if (ftruncate(fd, (off_t)(1LL << 30) + 1) < 0)
		abort();
	check(initramfs_read_file(&none, fd, path, NULL, NULL, &err) < 0 &&
	              strstr(err.message, "larger than 1 GiB"),
	      "a file of more than 1 GiB is refused");
	error_free(&err);
	check(initramfs_read_file(&none, dir_fd, dir, NULL, NULL, &err) < 0 &&
	              strstr(err.message, "not a regular file"),
	      "a directory is refused");
	unlink(path);
}

/* A large member through every decompressor's inner buffers, made by the programs themselves. */
static void test_program(const char *dir, const char *compression, const char *const *argv)
{
	CLEANUP_FREE char *in = str_format("%s/large", dir), *out = str_format("%s/large.out", dir);
	CLEANUP_INITRAMFS struct initramfs i = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int in_fd = open(in, O_RDONLY | O_CLOEXEC);
	CLEANUP_CLOSE int out_fd = open(out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct proc_options options = {.timeout_ms = 60000, .stdin_fd = in_fd};
	struct proc p = {0};
	int status = -1;

	if (!proc_have(argv[0])) {
		check(true, "%s by '%s' # SKIP no such program", compression, argv[0]);
		return;
	}
	if (proc_start(&p, argv, &options, out_fd, -1, &err) < 0 ||
	    proc_wait(&p, 60000, &status, &err) != 1 || status != 0) {
		check(false, "'%s' runs", argv[0]);
		proc_kill(&p);
		return;
	}
	check(initramfs_read_file(&i, out_fd, out, NULL, NULL, &err) == 0 && i.count == 2 &&
	              i.members[0].size_bytes == 3000000 &&
	              strcmp(i.compressions.items[0], compression) == 0 &&
	              initramfs_find(&i, "last"),
	      "%s by '%s %s' is read", compression, argv[0], argv[1]);
	if (err.message)
		printf("# %s\n", err.message);
	unlink(out);
}

static void test_programs(const char *dir)
{
	static const char *const gzip[] = {"gzip", "-9n", NULL};
	static const char *const xz[] = {"xz", "--check=crc32", "--block-size=1000000", NULL};
	static const char *const xz_plain[] = {"xz", "-0", NULL};
	static const char *const xz_x86[] = {"xz", "--x86", "--lzma2=preset=1", NULL};
	static const char *const lzma[] = {"lzma", "-1", NULL};
	static const char *const bzip2[] = {"bzip2", "-1", NULL};
	static const char *const zstd[] = {"zstd", "-q", "-c", NULL};
	static const char *const zstd_bare[] = {"zstd", "--no-check", "-q", "-19", NULL};
	static const char *const lz4[] = {"lz4", "-l", "-q", "-9", NULL};
	CLEANUP_FREE char *path = str_format("%s/large", dir);
	CLEANUP_FREE char *noise = mem_alloc(3000000);
	CLEANUP_BLOB struct blob b = {0};
	uint32_t state = 1;
	FILE *f = fopen(path, "we");

	for (size_t i = 0; i < 3000000; i++) {
		state = state * 1664525 + 1013904223;
		noise[i] = (char)(i & 4096 ? state >> 24 : i >> 6);
	}
	add_node(&b,
	         &(struct node){.path = "large", .mode = 0100644, .data = noise, .size = 3000000});
	add_file(&b, "last", "x");
	add_padded_end(&b);
	if (!f || fwrite(b.data, 1, b.size, f) != b.size || fclose(f) != 0)
		abort();
	test_program(dir, "gzip", gzip);
	test_program(dir, "xz", xz);
	test_program(dir, "xz", xz_plain);
	test_program(dir, "xz", xz_x86);
	test_program(dir, "lzma", lzma);
	test_program(dir, "bzip2", bzip2);
	test_program(dir, "zstd", zstd);
	test_program(dir, "zstd", zstd_bare);
	test_program(dir, "lz4", lz4);
	unlink(path);
}

/* What this host boots from, if it can be read. */
static void test_host(void)
{
	glob_t found = {0};

	if (glob("/boot/init*", 0, NULL, &found) != 0)
		check(true, "the host's own initramfs is read # SKIP none here");
	for (size_t n = 0; n < found.gl_pathc; n++) {
		CLEANUP_INITRAMFS struct initramfs i = {0};
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_CLOSE int fd = open(found.gl_pathv[n], O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			continue;
		check(initramfs_read_file(&i, fd, found.gl_pathv[n], NULL, NULL, &err) == 0 &&
		              initramfs_find_target(&i, "init"),
		      "the host's own '%s' is read and has an init", found.gl_pathv[n]);
		if (err.message)
			printf("# %s\n", err.message);
	}
	globfree(&found);
}

int main(void)
{
	char dir[] = "/tmp/gpuimg-initramfs-XXXXXX";

	if (!mkdtemp(dir))
		return 1;
	test_plain();
	test_keep();
	test_compressions();
	test_sequences();
	test_cuts();
	test_cuts_of_two();
	test_damage();
	test_refusals();
	test_headers();
	test_later_wins();
	test_hard_links();
	test_usr_merge();
	test_file(dir);
	test_programs(dir);
	test_host();
	rmdir(dir);
	return tap_done();
}
