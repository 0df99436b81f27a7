/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a configuration file, and hands out what was read from it. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "config.h"
#include "config_internal.h"

#define MAX_FILE_BYTES 1048576

static int check_text(const char *path, const char *text, size_t size, struct error *err)
{
	if (memchr(text, '\0', size))
		return error_set(err, "cannot read configuration '%s': it is not a text file",
		                 path);
	return 0;
}

static int load(const char *path, char **ret, size_t *ret_size, struct error *err)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	CLEANUP_FREE char *text = NULL;
	struct stat st;
	size_t size = 0;

	if (fd < 0)
		return error_errno(err, errno, "cannot open configuration '%s'", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return error_set(err, "cannot read configuration '%s': not a regular file", path);
	text = mem_alloc(MAX_FILE_BYTES + 2);
	while (size <= MAX_FILE_BYTES) {
		ssize_t n = read(fd, text + size, MAX_FILE_BYTES + 1 - size);

		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot read configuration '%s'", path);
		if (n == 0)
			break;
		size += n > 0 ? (size_t)n : 0;
	}
	if (size > MAX_FILE_BYTES)
		return error_set(err, "cannot read configuration '%s': more than 1 MiB", path);
	if (check_text(path, text, size, err) < 0)
		return -1;
	*ret = STEAL(text);
	*ret_size = size;
	return 0;
}

int config_read(struct config **ret, const char *path, const struct config_key *keys,
                struct error *err)
{
	CLEANUP_CONFIG struct config *config = mem_alloc(sizeof(*config));
	CLEANUP_FREE char *text = NULL;
	size_t size = 0;

	config->path = str_copy(path);
	if (load(path, &text, &size, err) < 0 || config_parse(config, keys, text, size, err) < 0)
		return error_code(err, EXIT_USAGE);
	*ret = STEAL(config);
	return 0;
}

void config_free(struct config *config)
{
	if (!config)
		return;
	for (size_t i = 0; i < config->count; i++)
		strv_free(&config->values[i].values);
	free(config->values);
	free(config->path);
	free(config);
}

const struct config_value *config_find(const struct config *config, const char *key_path)
{
	for (size_t i = 0; i < config->count; i++)
		if (str_equal(config->values[i].key->path, key_path))
			return &config->values[i];
	return NULL;
}

const char *config_string(const struct config *config, const char *key_path)
{
	const struct config_value *value = config_find(config, key_path);

	return value && value->values.count ? value->values.items[0] : NULL;
}

const struct strv *config_list(const struct config *config, const char *key_path)
{
	const struct config_value *value = config_find(config, key_path);

	return value ? &value->values : NULL;
}

bool config_bool(const struct config *config, const char *key_path, bool *ret)
{
	const char *text = config_string(config, key_path);

	if (text)
		*ret = str_equal(text, "true");
	return text != NULL;
}

bool config_size(const struct config *config, const char *key_path, uint64_t *ret_bytes)
{
	const char *text = config_string(config, key_path);

	return text && str_parse_size(text, ret_bytes) == 0;
}

bool config_uint(const struct config *config, const char *key_path, uint64_t *ret)
{
	const char *text = config_string(config, key_path);

	return text && str_parse_uint(text, UINT64_MAX, ret) == 0;
}

int config_error(const struct config *config, const struct config_value *value, struct error *err,
                 const char *format, ...)
{
	va_list args;
	CLEANUP_FREE char *what = NULL;

	va_start(args, format);
	what = str_vformat(format, args);
	va_end(args);
	error_code(err, EXIT_USAGE);
	return error_set(err, "%s:%d:%d: '%s': %s", config->path, value->line, value->column,
	                 value->key->path, what);
}
