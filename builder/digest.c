/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "digest.h"
#include "str.h"

#define PIECE_BYTES 65536

DEFINE_CLEANUP(digest_context, EVP_MD_CTX *, EVP_MD_CTX_free)
#define CLEANUP_DIGEST_CONTEXT CLEANUP(cleanup_digest_context)

char *digest_hex(const unsigned char *digest, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	char *hex = mem_alloc(2 * size + 1);

	for (size_t i = 0; i < size; i++) {
		hex[2 * i] = digits[digest[i] >> 4];
		hex[2 * i + 1] = digits[digest[i] & 15];
	}
	return hex;
}

char *digest_memory(const void *data, size_t size)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned length = 0;

	/* SHA-256 is in every provider set-up, so what can fail here is memory. */
	if (EVP_Digest(size ? data : "", size, digest, &length, EVP_sha256(), NULL) != 1) {
		fputs("gpuimg: libcrypto cannot compute SHA-256\n", stderr);
		abort();
	}
	return digest_hex(digest, length);
}

/* The three that upstreams publish; a name from a checksum file goes no further than this. */
static const EVP_MD *find_algorithm(const char *name)
{
	if (strcmp(name, "SHA256") == 0)
		return EVP_sha256();
	if (strcmp(name, "SHA512") == 0)
		return EVP_sha512();
	if (strcmp(name, "SHA1") == 0)
		return EVP_sha1();
	return NULL;
}

static int open_regular(const char *path, int *ret, struct error *err)
{
	/* O_NONBLOCK: a FIFO must not hold us here. */
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open '%s' for its digest", path);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot digest '%s': not a regular file", path);
	}
	*ret = steal_fd(&fd);
	return 0;
}

static int digest_all(EVP_MD_CTX *context, int fd, const char *path, const atomic_bool *stop,
                      struct error *err)
{
	CLEANUP_FREE unsigned char *piece = mem_alloc(PIECE_BYTES);

	for (;;) {
		ssize_t n = read(fd, piece, PIECE_BYTES);

		if (stop && atomic_load(stop))
			return error_set(err, "the digest of '%s' is needed no more", path);
		if (n == 0)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read '%s' for its digest", path);
		if (EVP_DigestUpdate(context, piece, (size_t)n) != 1)
			return error_set(err, "cannot digest '%s': libcrypto failed", path);
	}
}

static int digest_open(int fd, const char *path, const char *algorithm, const atomic_bool *stop,
                       char **ret_hex, struct error *err)
{
	CLEANUP_DIGEST_CONTEXT EVP_MD_CTX *context = EVP_MD_CTX_new();
	const EVP_MD *type = find_algorithm(algorithm);
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned length = 0;

	if (!type)
		return error_set(err, "cannot digest '%s': unknown algorithm '%s'", path,
		                 algorithm);
	if (!context || EVP_DigestInit_ex(context, type, NULL) != 1) {
		error_code(err, EXIT_HOST);
		return error_set(err, "cannot digest '%s': libcrypto refuses %s", path, algorithm);
	}
	if (digest_all(context, fd, path, stop, err) < 0)
		return -1;
	if (EVP_DigestFinal_ex(context, digest, &length) != 1)
		return error_set(err, "cannot digest '%s': libcrypto failed", path);
	*ret_hex = digest_hex(digest, length);
	return 0;
}

int digest_file_until(const char *path, const char *algorithm, const atomic_bool *stop,
                      char **ret_hex, struct error *err)
{
	CLEANUP_CLOSE int fd = -1;

	if (open_regular(path, &fd, err) < 0)
		return -1;
	return digest_open(fd, path, algorithm, stop, ret_hex, err);
}

int digest_file(const char *path, const char *algorithm, char **ret_hex, struct error *err)
{
	return digest_file_until(path, algorithm, NULL, ret_hex, err);
}

int digest_fd(int fd, const char *name, char **ret_hex, struct error *err)
{
	return digest_open(fd, name, "SHA256", NULL, ret_hex, err);
}
