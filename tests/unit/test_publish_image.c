/* SPDX-License-Identifier: Apache-2.0 */
/* The image that is published: digests, refusals, what its manifest and sums say. */
#include <openssl/evp.h>

#include "builder/digest.h"
#include "disk-fixture.h"
#include "publish/publish.h"
#include "tap.h"

#define ALL (DIGEST_MD5 | DIGEST_SHA512 | DIGEST_PARTS | DIGEST_LAYER)

static char *hex_of(const char *algorithm, const void *a, size_t a_size, const void *b,
                    size_t b_size, const void *c, size_t c_size)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	unsigned char value[EVP_MAX_MD_SIZE];
	unsigned length = 0;
	char *hex;

	EVP_DigestInit_ex(context, EVP_get_digestbyname(algorithm), NULL);
	EVP_DigestUpdate(context, a, a_size);
	EVP_DigestUpdate(context, b, b_size);
	EVP_DigestUpdate(context, c, c_size);
	EVP_DigestFinal_ex(context, value, &length);
	EVP_MD_CTX_free(context);
	hex = mem_alloc(2 * (size_t)length + 1);
	for (unsigned i = 0; i < length; i++)
		snprintf(hex + 2 * (size_t)i, 3, "%02x", value[i]);
	return hex;
}

/* A qcow2 of more than two parts, the last of them a broken one. */
static void make_image(const char *path)
{
	const uint64_t size = 40 * MIB + 12345;
	CLEANUP_FREE char *noise = mem_alloc(MIB);

	make_file("disk.raw", 64 * MIB);
	run_with("label: gpt\nsize=1M, type=21686148-6449-6E6F-744E-656564454649\n"
	         "type=0FC63DAF-8483-4772-8E79-3D69D8477DE4\n",
	         "sfdisk", "-q", "disk.raw");
	put("disk.raw", 0, "\xeb\x63\x90", 3); /* boot code, which BIOS wants */
	run("qemu-img", "convert", "-q", "-O", "qcow2", "disk.raw", path);
	for (size_t i = 0; i < MIB; i++)
		noise[i] = (char)(i * 31 + i / 251);
	for (uint64_t at = file_size(path); at + MIB < size; at += MIB)
		put(path, at, noise, MIB);
	if (truncate(path, (off_t)size) < 0)
		fixture_fail(path, NULL);
}

static int open_image(struct publish_image *ret, const char *path, unsigned wanted,
                      struct error *err)
{
	return publish_image_open(ret, path, NULL, NULL, wanted, NULL, err);
}

static void check_digests(const struct publish_image *i, const char *bytes)
{
	CLEANUP_FREE char *sha256 = hex_of("SHA256", bytes, i->size_bytes, NULL, 0, NULL, 0);
	CLEANUP_FREE char *sha512 = hex_of("SHA512", bytes, i->size_bytes, NULL, 0, NULL, 0);
	CLEANUP_FREE char *md5 = hex_of("MD5", bytes, i->size_bytes, NULL, 0, NULL, 0);
	CLEANUP_FREE char *layer = hex_of("SHA256", i->tar_head, i->tar_head_size, bytes,
	                                  i->size_bytes, i->tar_tail, i->tar_tail_size);
	CLEANUP_FREE char *first = hex_of("MD5", bytes, i->part_bytes, NULL, 0, NULL, 0);
	CLEANUP_FREE char *last = hex_of("SHA256", bytes + 2 * i->part_bytes,
	                                 i->size_bytes - 2 * i->part_bytes, NULL, 0, NULL, 0);

	check_str(i->sha256, sha256, "SHA-256 is right");
	check_str(i->sha512, sha512, "SHA-512 is right");
	check_str(i->md5, md5, "MD5 is right");
	check_str(i->layer_sha256, layer, "the layer's SHA-256 is right");
	check(i->part_bytes == 16 * MIB && i->part_md5.count == 3 && i->part_sha256.count == 3,
	      "there are three parts");
	check_str(i->part_md5.items[0], first, "the first part's MD5 is right");
	check_str(i->part_sha256.items[2], last, "the last, shorter part's SHA-256 is right");
}

static void test_digests(void)
{
	CLEANUP_PUBLISH_IMAGE struct publish_image all = {.fd = -1};
	CLEANUP_PUBLISH_IMAGE struct publish_image one = {.fd = -1};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *bytes = NULL;
	int result;

	result = open_image(&all, "node.qcow2", ALL, &err);
	check(result == 0, "an image is opened: %s", err.message ? err.message : "good");
	bytes = mem_alloc(all.size_bytes);
	get("node.qcow2", 0, bytes, all.size_bytes);
	check_digests(&all, bytes);
	check(all.virtual_bytes == 64 * MIB, "its virtual size is the header's");
	check(strv_has(&all.boot_types, "bios") && all.boot_types.count == 1,
	      "without a manifest its partitions tell how it boots");
	check_str(all.name, "node", "its name is the file's");
	check(strncmp(all.version, all.sha256, 12) == 0 && strlen(all.version) == 12,
	      "its version is made from the digest");
	check(open_image(&one, "node.qcow2", 0, &err) == 0 && one.sha256 && !one.md5 &&
	              !one.sha512 && !one.layer_sha256 && one.part_md5.count == 0,
	      "what nobody asks for is not made");
}

static void refused(const char *path, const char *name, const char *version, enum exit_code code,
                    const char *part, const char *what)
{
	CLEANUP_PUBLISH_IMAGE struct publish_image i = {.fd = -1};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	int result = publish_image_open(&i, path, name, version, 0, NULL, &err);

	check(result == -1 && error_exit_code(&err) == code && strstr(err.message, part),
	      "%s is refused: %s", what, err.message ? err.message : "not at all");
}

static void test_refusals(void)
{
	static const unsigned char dirty[] = {0, 0, 0, 0, 0, 0, 0, 1};
	static const unsigned char corrupt[] = {0, 0, 0, 0, 0, 0, 0, 2};

	refused("none.qcow2", NULL, NULL, EXIT_INPUT, "none.qcow2", "a missing file");
	refused(".", "x", NULL, EXIT_INPUT, "regular", "a directory");
	make_file("raw.qcow2", MIB);
	refused("raw.qcow2", NULL, NULL, EXIT_INPUT, "raw.qcow2", "a raw image");
	run("qemu-img", "create", "-q", "-f", "qcow2", "-b", "node.qcow2", "-F", "qcow2",
	    "over.qcow2");
	refused("over.qcow2", NULL, NULL, EXIT_INPUT, "over.qcow2", "an overlay");
	run("qemu-img", "create", "-q", "-f", "qcow2", "-o", "data_file=data.raw", "ext.qcow2",
	    "1M");
	refused("ext.qcow2", NULL, NULL, EXIT_INPUT, "ext.qcow2",
	        "one with a data file of its own");
	run("qemu-img", "create", "-q", "-f", "qcow2", "bits.qcow2", "1M");
	put("bits.qcow2", 72, dirty, sizeof(dirty));
	refused("bits.qcow2", NULL, NULL, EXIT_INPUT, "bits.qcow2", "a dirty one");
	put("bits.qcow2", 72, corrupt, sizeof(corrupt));
	refused("bits.qcow2", NULL, NULL, EXIT_INPUT, "bits.qcow2", "a corrupt one");
	refused("node.qcow2", "../up", NULL, EXIT_USAGE, "name", "a name that leads elsewhere");
	refused("node.qcow2", "a/b", NULL, EXIT_USAGE, "name", "a name with a slash");
	refused("node.qcow2", NULL, "1 0", EXIT_USAGE, "version", "a version with a blank");
	refused("node.qcow2", NULL, "", EXIT_USAGE, "version", "an empty version");
}

static void write_text(const char *path, const char *text)
{
	unlink(path);
	put(path, 0, text, strlen(text));
}

static void test_manifest(const char *sha256)
{
	CLEANUP_PUBLISH_IMAGE struct publish_image i = {.fd = -1};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *good = str_format(
		"{\"image\": {\"sha256\": \"%s\", \"boot_types\": [\"bios\", \"uefi\", "
		"\"uefi-secure-boot\"]},"
		" \"base\": {\"arch\": \"aarch64\", \"os_id\": \"debian\", \"os_version_id\": "
		"\"13\"}}",
		sha256);

	write_text("node.manifest.json", good);
	check(open_image(&i, "node.qcow2", 0, &err) == 0 && i.boot_types.count == 3 &&
	              strv_has(&i.boot_types, "uefi") &&
	              strv_has(&i.boot_types, "uefi-secure-boot"),
	      "boot types are the manifest's");
	check_str(i.arch, "arm64", "so is the architecture, as clouds name it");
	check_str(i.os_distro, "debian", "and the distribution");
	write_text("node.manifest.json", "{\"image\": {\"sha256\": \"00\"}}");
	refused("node.qcow2", NULL, NULL, EXIT_INPUT, "node.manifest.json",
	        "an image of another manifest");
	write_text("node.manifest.json", "{");
	refused("node.qcow2", NULL, NULL, EXIT_INPUT, "node.manifest.json", "a broken manifest");
	make_file("node.manifest.json", 17 * MIB);
	refused("node.qcow2", NULL, NULL, EXIT_INPUT, "File too large", "one that has no end");
	unlink("node.manifest.json");
	if (mkfifo("node.manifest.json", 0600) < 0)
		fixture_fail("node.manifest.json", NULL);
	refused("node.qcow2", NULL, NULL, EXIT_INPUT, "node.manifest.json",
	        "one that nobody ever writes to");
	unlink("node.manifest.json");
}

/* What a guest says of itself is printed into YAML for others. */
static void test_words(const char *sha256)
{
	CLEANUP_PUBLISH_IMAGE struct publish_image i = {.fd = -1};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *evil =
		str_format("{\"image\": {\"sha256\": \"%s\", \"boot_types\": [\"bios\"]},"
	                   " \"base\": {\"arch\": \"a: [\", \"os_id\": \"debian\\nurl: x\", "
	                   "\"os_version_id\": \"12\\\" x\"}}",
	                   sha256);

	write_text("node.manifest.json", evil);
	check(open_image(&i, "node.qcow2", 0, &err) == 0, "a manifest of a strange guest is read");
	check_str(i.arch, "amd64", "an architecture that is no word is none");
	check_str(i.os_distro, "linux", "nor is such a distribution");
	check_str(i.os_version, "", "nor such a version");
	unlink("node.manifest.json");
}

static void test_sums(const char *sha256)
{
	CLEANUP_PUBLISH_IMAGE struct publish_image i = {.fd = -1};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *good = str_format("%s  node.qcow2\n", sha256);
	CLEANUP_FREE char *bad = str_copy(good);

	write_text("SHA256SUMS", good);
	check(open_image(&i, "node.qcow2", 0, &err) == 0, "an image with right sums is taken");
	bad[0] = bad[0] == '0' ? '1' : '0';
	write_text("SHA256SUMS", bad);
	refused("node.qcow2", NULL, NULL, EXIT_INPUT, "SHA256SUMS", "one with other sums");
	unlink("SHA256SUMS");
}

static void test_change(void)
{
	CLEANUP_PUBLISH_IMAGE struct publish_image i = {.fd = -1};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	run("cp", "node.qcow2", "copy.qcow2");
	check(open_image(&i, "copy.qcow2", 0, &err) == 0 && publish_image_check(&i, &err) == 0,
	      "a file that nobody touches is unchanged");
	put("copy.qcow2", 30 * MIB, "x", 1);
	check(publish_image_check(&i, &err) == -1 && error_exit_code(&err) == EXIT_INPUT,
	      "one that was written to is not");
	publish_image_free(&i);
	error_free(&err);
	check(open_image(&i, "copy.qcow2", 0, &err) == 0, "it is opened anew");
	run("cp", "node.qcow2", "other.qcow2");
	rename("other.qcow2", "copy.qcow2");
	check(publish_image_check(&i, &err) == -1 && error_exit_code(&err) == EXIT_INPUT,
	      "one that was replaced is not, either");
}

int main(void)
{
	static const char *const programs[] = {"qemu-img", "sfdisk", "cp", NULL};
	CLEANUP_PUBLISH_IMAGE struct publish_image i = {.fd = -1};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	fixture_begin(programs);
	make_image("node.qcow2");
	test_digests();
	test_refusals();
	if (open_image(&i, "node.qcow2", 0, &err) < 0)
		fixture_fail("open the image", err.message);
	test_manifest(i.sha256);
	test_words(i.sha256);
	test_sums(i.sha256);
	test_change();
	return tap_done();
}
