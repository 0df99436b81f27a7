/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlays over bases of every kind, changed by qemu-io with a fixed seed, exported, and judged
 * by QEMU: 'qemu-img check' (no leak, no error) and 'qemu-img compare' with the overlay.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/export-internal.h"
#include "builder/proc.h"
#include "builder/qcow2-map.h"
#include "builder/qcow2-writer.h"
#include "builder/str.h"
#include "tests/unit/files.h"
#include "tests/unit/tap.h"

#define DISK_BYTES  (((size_t)10 << 20) + 2560) /* the last cluster is never whole */
#define SMALL_BYTES (((size_t)2 << 20) + 1536)
#define CHUNK_BYTES 32768

static int run_argv(const char *const *argv)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const struct proc_options options = {.timeout_ms = 120000};
	int rc = proc_run(argv, &options, NULL, 0, &err);

	if (rc < 0)
		printf("# %s\n", err.message);
	return rc;
}

#define try_run(...) run_argv((const char *const[]){__VA_ARGS__, NULL})

static uint64_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

static char *read_whole(const char *name, size_t *ret_size)
{
	CLEANUP_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *data;

	*ret_size = 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	data = mem_alloc((size_t)st.st_size + 1);
	if (read(fd, data, (size_t)st.st_size) == st.st_size)
		*ret_size = (size_t)st.st_size;
	return data;
}

static void patch(const char *name, uint64_t offset, const void *data, size_t size)
{
	CLEANUP_CLOSE int fd = open(name, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || pwrite(fd, data, size, (off_t)offset) != (ssize_t)size)
		printf("Bail out! cannot patch %s\n", name);
}

/* Bytes in which two files differ; UINT64_MAX if one cannot be read or the sizes differ. */
static uint64_t difference(const char *a, const char *b)
{
	size_t size_a, size_b;
	CLEANUP_FREE char *x = read_whole(a, &size_a);
	CLEANUP_FREE char *y = read_whole(b, &size_b);
	uint64_t count = 0;

	if (!x || !y || size_a == 0 || size_a != size_b)
		return UINT64_MAX;
	for (size_t i = 0; i < size_a; i++)
		count += x[i] != y[i];
	return count;
}

static uint64_t size_of(const char *name)
{
	struct stat st;

	return stat(name, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* A third noise, a third text, a third zeros, in chunks. */
static void make_raw(const char *name, size_t size, uint64_t seed)
{
	CLEANUP_FREE unsigned char *data = mem_alloc(size);

	for (size_t at = 0; at < size; at += CHUNK_BYTES) {
		size_t n = size - at < CHUNK_BYTES ? size - at : CHUNK_BYTES;
		uint64_t kind = at + CHUNK_BYTES >= size ? 1 : next_random(&seed) % 3;

		for (size_t i = 0; kind && i < n; i++)
			data[at + i] = kind == 1 ? "early boot "[(i + i / 97) % 11]
			                         : (unsigned char)next_random(&seed);
	}
	write_file(name, data, size);
}

/* 'options' as after qemu-img -o; NULL: the raw file itself is the base. */
static void make_base(const char *name, size_t bytes, const char *options, bool compressed)
{
	unlink(name);
	make_raw("raw", bytes, 7);
	if (!options) {
		make_raw(name, bytes, 7);
		/* and a hole */
		if (truncate(name, (off_t)bytes + (4 << 20)) < 0)
			printf("Bail out! cannot lengthen %s\n", name);
		return;
	}
	if (try_run("qemu-img", "convert", "-q", compressed ? "-c" : "-q", "-f", "raw", "-O",
	            "qcow2", "-o", options, "raw", name) < 0)
		printf("Bail out! cannot make %s\n", name);
}

static void make_overlay(const char *name, const char *base, const char *format)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	unlink(name);
	if (export_overlay(name, base, format, NULL, &err) < 0)
		printf("Bail out! %s\n", err.message);
}

static void one_change(struct strv *argv, uint64_t *state, size_t bytes)
{
	uint64_t at = next_random(state) % (bytes / 512) * 512;
	uint64_t n = (1 + next_random(state) % 400) * 512;
	uint64_t pattern = 1 + next_random(state) % 250;

	if (n > bytes - at)
		n = bytes - at;
	strv_add(argv, "-c");
	switch (next_random(state) % 6) {
	case 0:
		strv_addf(argv, "discard -q %ju %ju", (uintmax_t)at, (uintmax_t)n);
		break;
	case 1:
		strv_addf(argv, "discard -q %ju 256k", (uintmax_t)(at & ~UINT64_C(0xffff)));
		break;
	case 2:
		strv_addf(argv, "write -q -z %ju %ju", (uintmax_t)at, (uintmax_t)n);
		break;
	case 3:
		strv_addf(argv, "write -q -z -u %ju 128k", (uintmax_t)(at & ~UINT64_C(0xffff)));
		break;
	default:
		strv_addf(argv, "write -q -P %ju %ju %ju", (uintmax_t)pattern, (uintmax_t)at,
		          (uintmax_t)n);
	}
}

/* As a build leaves an overlay: writes of all sizes, trims, zeros. */
static void change_overlay(const char *name, size_t bytes, unsigned changes)
{
	CLEANUP_STRV struct strv argv = {0};
	uint64_t state = 42;

	strv_add(&argv, "qemu-io");
	strv_add(&argv, "-d");
	strv_add(&argv, "unmap");
	strv_add(&argv, "-f");
	strv_add(&argv, "qcow2");
	for (unsigned i = 0; i < changes; i++)
		one_change(&argv, &state, bytes - (256 << 10));
	strv_add(&argv, name);
	if (run_argv((const char *const *)argv.items) < 0)
		printf("Bail out! cannot change %s\n", name);
}

static int export_to(const char *to, const char *base, const char *format, const char *compression,
                     unsigned threads, struct export_stats *ret)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const struct export_options options = {
		.overlay = "overlay.qcow2",
		.base = base,
		.base_format = format,
		.to = to,
		.compression = compression,
	};

	unlink(to);
	if (export_with_threads(&options, threads, ret, &err) == 0)
		return 0;
	printf("# %s\n", err.message);
	return -1;
}

static bool sound(const char *name)
{
	return try_run("qemu-img", "check", "-q", "-f", "qcow2", name) == 0;
}

static bool same_disk(const char *a, const char *b)
{
	return try_run("qemu-img", "compare", "-q", "-f", "qcow2", "-F", "qcow2", a, b) == 0;
}

struct base_kind {
	const char *what;
	size_t bytes;
	const char *options; /* NULL: raw */
	bool compressed;
	const char *want; /* compression of the export; NULL: as it comes */
	const char *got;  /* what the new image has */
	uint64_t cluster_bytes;
	bool taken; /* clusters of the base can be taken over */
};

static const struct base_kind kinds[] = {
	{"a zlib base", DISK_BYTES, "compression_type=zlib", true, NULL, "zlib", 65536, true},
	{"a zstd base", DISK_BYTES, "compression_type=zstd", true, NULL, "zstd", 65536, true},
	{"a plain qcow2 base", DISK_BYTES, "compat=1.1", false, NULL, "zstd", 65536, false},
	{"a raw base", DISK_BYTES, NULL, false, NULL, "zstd", 65536, false},
	{"a zlib base in version 2", DISK_BYTES, "compat=0.10", true, NULL, "zlib", 65536, true},
	{"a zlib base with 4 KiB clusters", DISK_BYTES, "cluster_size=4k", true, NULL, "zlib", 4096,
         true},
	{"a zstd base with 512 B clusters", SMALL_BYTES, "cluster_size=512,compression_type=zstd",
         true, NULL, "zstd", 512, true},
	{"a zstd base with 256 KiB clusters", DISK_BYTES, "cluster_size=256k,compression_type=zstd",
         true, NULL, "zstd", 262144, true},
	{"a zlib base with 2 MiB clusters", 2 * DISK_BYTES, "cluster_size=2M", true, NULL, "zlib",
         2097152, true},
	{"a zlib base that becomes zstd", DISK_BYTES, "compression_type=zlib", true, "zstd", "zstd",
         65536, false},
	{"a zstd base that becomes zlib", DISK_BYTES, "compression_type=zstd", true, "zlib", "zlib",
         65536, false},
	{"a zstd base that becomes plain", DISK_BYTES, "compression_type=zstd", true, "none",
         "none", 65536, false},
	{"a raw base that stays plain", DISK_BYTES, NULL, false, "none", "none", 65536, false},
};

/* What qemu-img convert makes of the overlay, in the same clusters. */
static uint64_t qemus_size(const struct base_kind *kind)
{
	CLEANUP_FREE char *options = NULL;
	bool plain = str_equal(kind->got, "none");

	options = str_format("cluster_size=%ju,compression_type=%s", (uintmax_t)kind->cluster_bytes,
	                     plain ? "zlib" : kind->got);
	if (try_run("qemu-img", "convert", "-q", plain ? "-q" : "-c", "-f", "qcow2", "-O", "qcow2",
	            "-o", options, "overlay.qcow2", "qemu.qcow2") < 0)
		return 0;
	return size_of("qemu.qcow2");
}

static void check_stats(const struct base_kind *kind, const struct export_stats *stats)
{
	bool packs = !str_equal(kind->got, "none");

	check_str(stats->method, "clusters", "%s: clusters are copied by ourselves", kind->what);
	check_str(stats->compression, kind->got, "%s: the compression is the right one",
	          kind->what);
	check(stats->cluster_bytes == kind->cluster_bytes, "%s: the cluster size stays",
	      kind->what);
	/* A cluster that does not get smaller is all noise: large ones never are. */
	check((stats->taken_over > 0) == kind->taken && (stats->compressed > 0) == packs &&
	              (stats->plain > 0) == (kind->cluster_bytes <= 65536),
	      "%s: clusters come as expected (%ju taken over, %ju compressed, %ju plain)",
	      kind->what, (uintmax_t)stats->taken_over, (uintmax_t)stats->compressed,
	      (uintmax_t)stats->plain);
}

static void test_kind(const struct base_kind *kind)
{
	const char *format = kind->options ? "qcow2" : "raw";
	struct export_stats stats = {0}, other = {0};
	uint64_t theirs;

	make_base("base", kind->bytes, kind->options, kind->compressed);
	make_overlay("overlay.qcow2", "base", format);
	change_overlay("overlay.qcow2", kind->bytes, 25);
	if (!check(export_to("out.qcow2", "base", format, kind->want, 1, &stats) == 0,
	           "%s is exported", kind->what))
		return;
	check(sound("out.qcow2"), "%s: qemu-img check finds no error and no leak", kind->what);
	check(same_disk("overlay.qcow2", "out.qcow2"), "%s: the disk is the overlay's", kind->what);
	check_stats(kind, &stats);
	check(stats.bytes == size_of("out.qcow2"), "%s: the file has the size that is told",
	      kind->what);
	check(export_to("out4.qcow2", "base", format, kind->want, 4, &other) == 0 &&
	              difference("out.qcow2", "out4.qcow2") == 0,
	      "%s: four threads write the same bytes as one", kind->what);
	theirs = qemus_size(kind);
	/* QEMU's last cluster is data and may be cut short; ours is one of refcounts. */
	check(theirs && stats.bytes <= theirs + theirs / 20 + kind->cluster_bytes,
	      "%s: the file is no larger than QEMU's (%ju and %ju)", kind->what,
	      (uintmax_t)stats.bytes, (uintmax_t)theirs);
}

static void make_zlib_pair(void)
{
	make_base("base", DISK_BYTES, "compression_type=zlib", true);
	make_overlay("overlay.qcow2", "base", "qcow2");
}

/* The base's first compressed cluster, from index 'from' on; its index. */
static uint64_t find_compressed(uint64_t from, struct qcow2_cluster *ret)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_QCOW2_MAP struct qcow2_map *m = NULL;

	if (qcow2_map_open(&m, "base", false, &err) < 0)
		return UINT64_MAX;
	for (uint64_t i = from; i < DISK_BYTES / 65536; i++)
		if (qcow2_map_lookup(m, i, ret, &err) == 0 && ret->kind == QCOW2_COMPRESSED)
			return i;
	printf("Bail out! no compressed cluster\n");
	return UINT64_MAX;
}

/* Nothing inflates what the overlay does not touch: a flipped byte arrives as it is. */
static void test_taken_over(void)
{
	struct export_stats stats;
	struct qcow2_cluster cluster = {0};
	unsigned char byte;
	int fd;

	make_zlib_pair();
	find_compressed(10, &cluster);
	check(export_to("good.qcow2", "base", "qcow2", NULL, 2, &stats) == 0 &&
	              stats.compressed == 0,
	      "an overlay without changes leaves nothing to compress");
	check(cluster.own_bytes > 0 && cluster.own_bytes <= cluster.bytes,
	      "the map finds a cluster's own bytes");
	fd = open("base", O_RDONLY | O_CLOEXEC);
	check(pread(fd, &byte, 1, (off_t)cluster.offset + 100) == 1, "a byte of it can be read");
	close(fd);
	byte ^= 0xff;
	patch("base", cluster.offset + 100, &byte, 1);
	check(export_to("bad.qcow2", "base", "qcow2", NULL, 2, &stats) == 0 &&
	              difference("good.qcow2", "bad.qcow2") == 1,
	      "compressed clusters are taken over byte by byte, damage included");
}

static int export_error(const char *to, struct error *err)
{
	struct export_stats stats;
	const struct export_options options = {
		.overlay = "overlay.qcow2",
		.base = "base",
		.base_format = "qcow2",
		.to = to,
	};

	return export_image(&options, &stats, err);
}

static void test_damaged_cluster(const char *compression)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *write = NULL;
	CLEANUP_FREE char *option = str_format("compression_type=%s", compression);
	struct qcow2_cluster cluster = {0};
	unsigned char junk[64];
	uint64_t index;

	memset(junk, 0xee, sizeof(junk));
	make_base("base", DISK_BYTES, option, true);
	make_overlay("overlay.qcow2", "base", "qcow2");
	index = find_compressed(20, &cluster);
	/* QEMU copies the base's cluster into a write that is not whole; so it is damaged later,
	 * and smaller clusters in the overlay leave some of it visible. */
	unlink("overlay.qcow2");
	try_run("qemu-img", "create", "-q", "-f", "qcow2", "-o", "cluster_size=4k", "-b", "base",
	        "-F", "qcow2", "overlay.qcow2");
	write = str_format("write -q -P 9 %ju 4k", (uintmax_t)index * 65536);
	try_run("qemu-io", "-f", "qcow2", "-c", write, "overlay.qcow2");
	patch("base", cluster.offset, junk, sizeof(junk));
	unlink("out.qcow2");
	check(export_error("out.qcow2", &err) < 0 && err.message &&
	              strstr(err.message, "cannot read image 'base'") &&
	              strstr(err.message, compression) && err.code == EXIT_INPUT,
	      "a damaged %s cluster that must be read is an error with the base's path (%s)",
	      compression, err.message ? err.message : "none");
	check(access("out.qcow2", F_OK) < 0, "and no file stays behind");
}

static void test_existing_file(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	make_zlib_pair();
	write_file("out.qcow2", "mine", 4);
	check(export_error("out.qcow2", &err) < 0 && strstr(err.message, "'out.qcow2'"),
	      "a file that is there is not overwritten");
	check(size_of("out.qcow2") == 4, "nor removed");
}

static void test_full_disk(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct rlimit before, small = {.rlim_cur = 1 << 20};
	int rc;

	make_zlib_pair();
	unlink("out.qcow2");
	getrlimit(RLIMIT_FSIZE, &before);
	small.rlim_max = before.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	rc = export_error("out.qcow2", &err);
	setrlimit(RLIMIT_FSIZE, &before);
	check(rc < 0 && strstr(err.message, "cannot write 'out.qcow2'"),
	      "a write that fails is an error with the path");
	check(access("out.qcow2", F_OK) < 0, "what was written is removed then");
}

static void test_other_sizes(void)
{
	struct export_stats stats;
	static const char *const sizes[] = {"14M", "6291968"};

	for (size_t i = 0; i < 2; i++) {
		make_zlib_pair();
		unlink("overlay.qcow2");
		try_run("qemu-img", "create", "-q", "-f", "qcow2", "-b", "base", "-F", "qcow2",
		        "overlay.qcow2", sizes[i]);
		change_overlay("overlay.qcow2", 6 << 20, 10);
		check(export_to("out.qcow2", "base", "qcow2", NULL, 2, &stats) == 0 &&
		              sound("out.qcow2") && same_disk("overlay.qcow2", "out.qcow2"),
		      "an overlay of another size than its base (%s) is exported", sizes[i]);
	}
}

static void test_base_with_history(void)
{
	struct export_stats stats;
	const unsigned char dirty = 1;

	make_base("base", DISK_BYTES, "compression_type=zlib,lazy_refcounts=on", true);
	try_run("qemu-img", "snapshot", "-c", "before", "base");
	try_run("qemu-io", "-f", "qcow2", "-c", "write -q -P 5 1M 300k", "base");
	patch("base", 79, &dirty, 1);
	make_overlay("overlay.qcow2", "base", "qcow2");
	change_overlay("overlay.qcow2", DISK_BYTES, 10);
	check(export_to("out.qcow2", "base", "qcow2", NULL, 2, &stats) == 0 &&
	              str_equal(stats.method, "clusters") && sound("out.qcow2") &&
	              same_disk("overlay.qcow2", "out.qcow2"),
	      "snapshots and dirty refcounts of a base do not matter");
}

static void test_compact(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct export_stats stats = {0};
	const struct export_options options = {
		.overlay = "overlay.qcow2",
		.base = "base",
		.base_format = "qcow2",
		.to = "out.qcow2",
		.compact = true,
	};

	make_zlib_pair();
	change_overlay("overlay.qcow2", DISK_BYTES, 10);
	unlink("out.qcow2");
	check(export_image(&options, &stats, &err) == 0 && stats.taken_over == 0 &&
	              stats.compressed > 0 && sound("out.qcow2") &&
	              same_disk("overlay.qcow2", "out.qcow2"),
	      "a compact export takes nothing over and holds the same disk");
}

/* An export is itself a base: nothing may grow from build to build. */
static void test_again(void)
{
	struct export_stats first = {0}, second = {0};

	make_base("base", DISK_BYTES, "cluster_size=4k", true); /* five L2 tables */
	make_overlay("overlay.qcow2", "base", "qcow2");
	change_overlay("overlay.qcow2", DISK_BYTES, 25);
	export_to("base2", "base", "qcow2", NULL, 2, &first);
	make_overlay("overlay.qcow2", "base2", "qcow2");
	check(export_to("out.qcow2", "base2", "qcow2", NULL, 2, &second) == 0 &&
	              second.compressed == 0 && difference("base2", "out.qcow2") == 0,
	      "the export of an unchanged export has the same bytes (%ju, %ju)",
	      (uintmax_t)first.bytes, (uintmax_t)second.bytes);
}

/* 2 TiB, of which three spots have data, in the base and over it. */
static void test_sparse(bool raw)
{
	struct export_stats stats = {0};
	const char *format = raw ? "raw" : "qcow2";

	unlink("base");
	unlink("overlay.qcow2");
	try_run("qemu-img", "create", "-q", "-f", format, "base", "2T");
	try_run("qemu-io", "-f", format, "-c", "write -q -P 1 700G 64k", "-c",
	        "write -q -P 2 1200G 1M", "base");
	make_overlay("overlay.qcow2", "base", format);
	try_run("qemu-io", "-f", "qcow2", "-c", "write -q -P 3 3G 64k", "-c",
	        "write -q -P 4 1200G 64k", "overlay.qcow2");
	check(export_to("out.qcow2", "base", format, NULL, 2, &stats) == 0 &&
	              stats.compressed == 18 && stats.bytes < 1 << 20 && sound("out.qcow2") &&
	              same_disk("overlay.qcow2", "out.qcow2"),
	      "a sparse disk of 2 TiB over a %s base costs its data", format);
}

static void test_fallback(void)
{
	struct export_stats stats = {0};

	make_base("base", DISK_BYTES, "extended_l2=on", false);
	make_overlay("overlay.qcow2", "base", "qcow2");
	change_overlay("overlay.qcow2", DISK_BYTES, 10);
	check(export_to("out.qcow2", "base", "qcow2", NULL, 2, &stats) == 0 &&
	              same_disk("overlay.qcow2", "out.qcow2"),
	      "a base with subclusters is exported");
	check_str(stats.method, "qemu-img", "by qemu-img");
	check(stats.bytes == size_of("out.qcow2"), "whose size is told");
}

static void test_unknown_compression(void)
{
	struct export_stats stats;

	make_zlib_pair();
	check(export_to("out.qcow2", "base", "qcow2", "lzma", 1, &stats) < 0,
	      "an unknown compression is refused");
}

static void test_map_damage(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const unsigned char far[8] = {0x80, 0x7f, 0xff, 0, 0, 0, 0, 0};
	unsigned char l1[8];
	int fd;

	make_zlib_pair();
	fd = open("base", O_RDONLY | O_CLOEXEC);
	check(pread(fd, l1, 8, 40) == 8, "the place of the L1 table can be read");
	close(fd);
	patch("base", qcow2_be64(l1), far, sizeof(far));
	unlink("out.qcow2");
	check(export_error("out.qcow2", &err) < 0 && strstr(err.message, "image 'base'") &&
	              err.code == EXIT_INPUT,
	      "an L2 table behind the end of the file is an error (%s)",
	      err.message ? err.message : "none");
}

/* Files that hold tables alone: QEMU counts references without reading the data. */
static bool writes(uint32_t cluster_bits, uint64_t clusters, uint32_t step, bool plain_between)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_QCOW2_WRITER struct qcow2_writer *w = NULL;
	CLEANUP_FREE unsigned char *data = mem_alloc((size_t)1 << cluster_bits);
	const struct qcow2_layout layout = {clusters << cluster_bits, cluster_bits, 1};
	uint64_t bytes = 0;
	int rc;

	memset(data, 7, (size_t)1 << cluster_bits);
	unlink("w.qcow2");
	rc = qcow2_writer_open(&w, "w.qcow2", &layout, &err);
	for (uint64_t i = 0; i < clusters && rc == 0; i += step) {
		if (plain_between && i % 1000)
			rc = qcow2_writer_plain(w, i, data, &err);
		else
			rc = qcow2_writer_compressed(w, i, data, 16, &err);
	}
	if (rc < 0 || qcow2_writer_finish(w, &bytes, &err) < 0) {
		printf("# %s\n", err.message);
		return false;
	}
	return bytes == size_of("w.qcow2") && sound("w.qcow2");
}

static void test_writer(void)
{
	check(writes(21, 70000, 1, false),
	      "more compressed clusters than a refcount holds do not share a cluster");
	check(writes(9, 5000, 1, true), "blocks of refcounts are written as they get full");
	check(writes(9, 8 << 20, 60000, true), "an L1 table may be longer than a refcount block");
	check(writes(9, 100000, 1, true), "a refcount table may be longer than a cluster");
	check(writes(16, 1, 2, true), "an image of one cluster is sound");
	check(writes(16, 200000, 8192, true), "one cluster in each L2 table is sound");
}

static void test_writer_order(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_QCOW2_WRITER struct qcow2_writer *w = NULL;
	const struct qcow2_layout layout = {10 << 16, 16, 0};
	static const char data[65536] = "x";

	unlink("w.qcow2");
	check(qcow2_writer_open(&w, "w.qcow2", &layout, &err) == 0 &&
	              qcow2_writer_plain(w, 5, data, &err) == 0 &&
	              qcow2_writer_plain(w, 5, data, &err) < 0,
	      "a cluster is not written twice");
	check(qcow2_writer_plain(w, 10, data, &err) < 0, "nor behind the end of the disk");
}

int main(void)
{
	char dir[] = "/tmp/test-export-XXXXXX";

	if (!mkdtemp(dir) || chdir(dir) < 0) {
		printf("Bail out! no work directory\n");
		return 1;
	}
	if (!proc_have("qemu-img") || !proc_have("qemu-io")) {
		check(true, "export # SKIP qemu-img and qemu-io are needed");
	} else {
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			test_kind(&kinds[i]);
		test_taken_over();
		test_damaged_cluster("zlib");
		test_damaged_cluster("zstd");
		test_existing_file();
		test_full_disk();
		test_other_sizes();
		test_base_with_history();
		test_compact();
		test_again();
		test_sparse(false);
		test_sparse(true);
		test_fallback();
		test_unknown_compression();
		test_map_damage();
		test_writer();
		test_writer_order();
	}
	if (chdir("/") == 0)
		try_run("rm", "-rf", dir);
	return tap_done();
}
