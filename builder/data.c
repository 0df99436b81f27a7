/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data.h"
#include "str.h"

#define DATA_MAX_BYTES (1024UL * 1024)
#define LANDMARK       "boot/modprobe.d/gpuimg-gpu-block.conf"

static bool has(const char *dir, const char *name)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);

	return access(path, R_OK) == 0;
}

/* build/gpuimg lies in the source tree: its parent's parent holds boot/. */
static char *source_tree(void)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	for (int i = 0; i < 2 && n > 0; i++) {
		path[n] = '\0';
		char *slash = strrchr(path, '/');

		n = slash ? slash - path : 0;
	}
	return n > 0 ? mem_copy(path, (size_t)n) : NULL;
}

int data_find_dir(char **ret, const char *wish, struct error *err)
{
	CLEANUP_FREE char *tree = source_tree();
	const char *places[] = {wish ? wish : getenv("GPUIMG_DATA_DIR"), tree, GPUIMG_DATADIR};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (places[i] && has(places[i], LANDMARK)) {
			*ret = str_copy(places[i]);
			return 0;
		}
		if (i == 0 && places[0])
			break; /* an explicit wish is not replaced by another place */
	}
	error_set(err, "cannot find our data files ('%s' below '%s')", LANDMARK,
	          places[0] ? places[0] : GPUIMG_DATADIR);
	error_hint(err, "run from the source tree, or pass --data-dir=DIR");
	return error_code(err, EXIT_HOST);
}

int data_read(const char *data_dir, const char *name, char **ret, struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/%s", data_dir, name);
	CLEANUP_FCLOSE FILE *file = fopen(path, "re");
	CLEANUP_FREE char *text = mem_alloc(DATA_MAX_BYTES + 1);
	size_t size;

	if (!file) {
		error_errno(err, errno, "cannot read '%s'", path);
		return error_hint(err, "run from the source tree, or pass --data-dir=DIR");
	}
	size = fread(text, 1, DATA_MAX_BYTES, file);
	if (ferror(file) || !feof(file))
		return error_set(err, "cannot read '%s' whole", path);
	*ret = mem_copy(text, size);
	return 0;
}

char *data_sandbox_parent(const char *data_dir)
{
	return has(data_dir, "sandbox/grub-probe.sh") ? str_copy(data_dir)
	                                              : str_format("%s/builder", data_dir);
}

char *data_make_base(const char *data_dir)
{
	return has(data_dir, "tools/make-base.sh") ? str_format("%s/tools/make-base.sh", data_dir)
	                                           : str_format("%s/make-base.sh", data_dir);
}

int data_list(const char *dir, struct strv *ret, struct error *err)
{
	struct dirent **found = NULL;
	int count = scandir(dir, &found, NULL, NULL);

	if (count < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot list '%s'", dir);
	for (int i = 0; i < count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, found[i]->d_name);
		struct stat st;

		if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
			strv_add(ret, found[i]->d_name);
		free(found[i]);
	}
	free(found);
	strv_sort(ret);
	return 0;
}
