/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other parts keep in the cache directory: fetched bases (fetch.h), bases that make-base
 * made, the accelerator's record, libguestfs' appliance, remembered digests. Nothing is removed
 * that somebody makes or reads now: a file's maker holds NAME.lock, and QEMU locks the images that
 * it has open. Lock files stay, since taking one away from under a waiting process would race.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "cache-internal.h"
#include "tree.h"

#define APPLIANCE      "appliance.d"
#define BLOCK_BYTES    512
#define JUST_BUILT_S   60
#define PARTIAL_SUFFIX ".part"

DEFINE_CLEANUP(closedir, DIR *, closedir)
#define CLEANUP_DIR CLEANUP(cleanup_closedir)

/* Beside NAME; none is an item of its own. */
static const char *const companions[] = {".sha256", ".part", ".part.from"};

static void add(struct cache_items *list, const char *kind, const char *dir, const char *name,
                const struct stat *st)
{
	struct cache_item *item = cache_items_add(list);

	item->kind = str_copy(kind);
	item->key = str_copy(name);
	item->path = str_format("%s/%s", dir, name);
	item->size_bytes = (uint64_t)st->st_blocks * BLOCK_BYTES;
	item->used = st->st_mtime;
}

static void add_file(struct cache_items *list, const char *kind, const char *dir, const char *name)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);
	struct stat st;

	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode))
		add(list, kind, dir, name, &st);
}

static bool is_made_base(const char *name)
{
	return str_ends(name, ".qcow2") || str_ends(name, ".tar.zst") || str_ends(name, ".new");
}

/* A link may lead to what is not ours to list, let alone to remove. */
static DIR *open_real_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

/* A download that did not come to its end counts too; beside a whole one it goes with that. */
static bool is_fetched(const char *name)
{
	return (str_starts(name, "sha256-") || str_starts(name, "sha512-")) &&
	       (!strchr(name, '.') || str_ends(name, PARTIAL_SUFFIX));
}

static bool is_memo(const char *name)
{
	return str_equal(name, CACHE_DIGESTS);
}

static void list_files(struct cache_items *list, const char *kind, const char *dir_path,
                       bool (*wanted)(const char *name))
{
	CLEANUP_DIR DIR *dir = open_real_dir(dir_path);
	size_t before = list->count;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (wanted(entry->d_name))
			add_file(list, kind, dir_path, entry->d_name);
	cache_items_sort(list, before);
}

static uint64_t sum_dir(const char *path)
{
	CLEANUP_DIR DIR *dir = open_real_dir(path);
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat st;

	while (dir && (entry = readdir(dir)))
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_blocks * BLOCK_BYTES;
	return bytes;
}

/* libguestfs: .guestfs-UID/appliance.d with kernel, initrd, root, each touched at every use. */
static void list_appliances(struct cache_items *list, const char *dir_path)
{
	CLEANUP_DIR DIR *dir = opendir(dir_path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		CLEANUP_FREE char *path = NULL;
		CLEANUP_FREE char *root = NULL;
		CLEANUP_FREE char *parent = NULL;
		struct stat parent_st, st, root_st;

		if (!str_starts(entry->d_name, ".guestfs-"))
			continue;
		parent = str_format("%s/%s", dir_path, entry->d_name);
		path = str_format("%s/" APPLIANCE, parent);
		root = str_format("%s/root", path);
		if (lstat(parent, &parent_st) < 0 || !S_ISDIR(parent_st.st_mode) ||
		    lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		add(list, "appliance", parent, APPLIANCE, &st);
		list->items[list->count - 1].size_bytes = sum_dir(path);
		if (lstat(root, &root_st) == 0)
			list->items[list->count - 1].used = root_st.st_mtime;
	}
}

void cache_list_shelf(const char *dir, struct cache_items *ret)
{
	CLEANUP_FREE char *bases = str_format("%s/bases", dir);
	CLEANUP_FREE char *downloads = str_format("%s/downloads", dir);
	CLEANUP_FREE char *results = str_format("%s/results", dir);

	list_files(ret, "base", downloads, is_fetched);
	list_files(ret, "made-base", bases, is_made_base);
	add_file(ret, "made-base", dir, "default-base.qcow2");
	list_appliances(ret, dir);
	add_file(ret, "accelerator", dir, "accel.json");
	list_files(ret, "digests", results, is_memo);
}

/* --- Removal --- */

/* QEMU (and supermin) lock by fcntl(), where a question needs no right to write. */
static bool has_record_lock(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/*
 * 1: *ret holds the lock, or there is no such file (-1), 0: somebody else holds it, -1.
 */
static int try_lock(int *ret, const char *path, struct error *err)
{
	CLEANUP_CLOSE int fd =
		open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return 1;
	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	if (has_record_lock(fd))
		return 0;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno == EWOULDBLOCK)
			return 0;
		return error_errno(err, errno, "cannot lock '%s'", path);
	}
	*ret = steal_fd(&fd);
	return 1;
}

static int remove_file(const char *path, struct error *err)
{
	if (unlink(path) == 0 || errno == ENOENT)
		return 0;
	return error_errno(err, errno, "cannot remove '%s'", path);
}

/* "NAME.new" and "NAME.part" are made under NAME's lock. */
static char *stem_of(const char *path)
{
	size_t length = strlen(path);

	if (str_ends(path, ".new"))
		length -= strlen(".new");
	else if (str_ends(path, PARTIAL_SUFFIX))
		length -= strlen(PARTIAL_SUFFIX);
	return mem_copy(path, length);
}

static int remove_files(const struct cache_item *item, struct error *err)
{
	CLEANUP_FREE char *stem = stem_of(item->path);
	CLEANUP_FREE char *lock_path = str_format("%s.lock", stem);
	CLEANUP_CLOSE int maker = -1, reader = -1;
	int free_now = try_lock(&maker, lock_path, err);

	if (free_now == 1)
		free_now = try_lock(&reader, item->path, err);
	if (free_now <= 0)
		return free_now;
	if (remove_file(item->path, err) < 0)
		return -1;
	/* What was half made has none; those beside it are the whole one's. */
	if (str_ends(item->path, ".new"))
		return 1;
	for (size_t i = 0; i < sizeof(companions) / sizeof(companions[0]); i++) {
		CLEANUP_FREE char *path = str_format("%s%s", stem, companions[i]);

		if (remove_file(path, err) < 0)
			return -1;
	}
	return 1;
}

/* supermin makes it under the lock, and QEMU opens it a moment later. */
static int remove_appliance(const struct cache_item *item, struct error *err)
{
	CLEANUP_FREE char *parent =
		mem_copy(item->path, strlen(item->path) - strlen("/" APPLIANCE));
	CLEANUP_FREE char *lock_path = str_format("%s/lock", parent);
	CLEANUP_FREE char *root = str_format("%s/root", item->path);
	CLEANUP_CLOSE int maker = open(lock_path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP_CLOSE int reader = -1;
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct stat st;
	int free_now;

	if (maker >= 0 && fcntl(maker, F_OFD_SETLK, &lock) < 0)
		return 0;
	if (lstat(root, &st) == 0 && st.st_mtime > time(NULL) - JUST_BUILT_S)
		return 0;
	free_now = try_lock(&reader, root, err);
	if (free_now <= 0)
		return free_now;
	return tree_remove(item->path, err) < 0 ? -1 : 1;
}

int cache_remove_from_shelf(const struct cache_item *item, struct error *err)
{
	int result = str_equal(item->kind, "appliance") ? remove_appliance(item, err)
	                                                : remove_files(item, err);

	return result < 0 ? error_code(err, EXIT_HOST) : result;
}
