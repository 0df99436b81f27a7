/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/fd.h"
#include "builder/str.h"
#include "publish/secret.h"

void secret_free(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

static int cannot_read(const char *path, struct error *err)
{
	error_errno(err, errno, "cannot read '%s'", path);
	return error_code(err, EXIT_USAGE);
}

int secret_read_file(const char *path, size_t max_bytes, char **ret, bool *ret_open,
                     struct error *err)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CLEANUP_SECRET char *text = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return cannot_read(path, err);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max_bytes) {
		error_set(err, "cannot read '%s': %s", path,
		          S_ISREG(st.st_mode) ? "too large" : "not a regular file");
		return error_code(err, EXIT_USAGE);
	}
	if (fd_read_text(fd, max_bytes, &text) < 0)
		return cannot_read(path, err);
	*ret_open = st.st_mode & 0007;
	*ret = STEAL(text);
	return 0;
}

int secret_refuse_open(const char *path, struct error *err)
{
	error_set(err, "'%s' holds a secret, and everybody on this host can read it", path);
	error_hint(err, "chmod 600 '%s'", path);
	return error_code(err, EXIT_USAGE);
}
