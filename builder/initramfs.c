/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads as the kernel does (init/initramfs.c): at each place there are zeros, a plain newc
 * archive on a 4-byte boundary, or a compressed stream that holds whole archives. Then every
 * member is put where unpacking would put it, so that a path can be looked up with its links.
 */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "initramfs-internal.h"
#include "str.h"

#define MAX_FILE_BYTES (UINT64_C(1) << 30)
#define MAX_TODO_BYTES 8192 /* of a path with its links put in */
#define MAX_LINKS      40
#define MAX_STEPS      UINT64_C(50000000) /* path components looked up for one image */
#define COUNT(array)   (sizeof(array) / sizeof((array)[0]))

/* Places in the tree 'by_path': what stands under a path after unpacking. */
struct place {
	char *path; /* without links, no leading slash */
	size_t member;
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return strcmp(x->path, y->path);
}

static void free_place(void *p)
{
	struct place *place = p;

	free(place->path);
	free(place);
}

static const struct initramfs_member *member_at(const struct initramfs *i, char *path)
{
	struct place key = {path, 0};
	struct place *const *found = tfind(&key, &i->by_path, compare_places);

	return found ? &i->members[(*found)->member] : NULL;
}

/* Takes the next component off the front of *rest; NULL at the end. */
static char *next_component(char **rest)
{
	char *start = *rest + strspn(*rest, "/");
	size_t length = strcspn(start, "/");

	if (length == 0)
		return NULL;
	*rest = start + length;
	if (**rest)
		*(*rest)++ = '\0';
	return start;
}

/* Appends a component to 'path' (of MAX_NAME_BYTES); ".." takes one away. False: too long. */
static bool step_path(char *path, const char *component)
{
	size_t length = strlen(path);

	if (strcmp(component, ".") == 0)
		return true;
	if (strcmp(component, "..") == 0) {
		char *slash = strrchr(path, '/');

		*(slash ? slash : path) = '\0';
		return true;
	}
	if (length + strlen(component) + 2 > MAX_NAME_BYTES)
		return false;
	if (length)
		path[length++] = '/';
	memcpy(path + length, component, strlen(component) + 1);
	return true;
}

/*
 * The path without links, as the kernel would find it in what is unpacked so far; "" is the
 * top. NULL: links in a circle, too long, or more steps than 'steps' has left.
 */
static char *resolve(const struct initramfs *i, const char *path, bool follow_last, uint64_t *steps)
{
	CLEANUP_FREE char *done = mem_alloc(MAX_NAME_BYTES);
	CLEANUP_FREE char *todo = str_copy(path);
	char *rest = todo, *component;
	size_t links = 0;

	while ((component = next_component(&rest))) {
		const struct initramfs_member *m;
		char *again;

		if (*steps == 0 || !step_path(done, component))
			return NULL;
		(*steps)--;
		if (!follow_last && !rest[strspn(rest, "/")])
			break;
		m = member_at(i, done);
		if (!m || !m->link)
			continue;
		if (++links > MAX_LINKS || strlen(m->link) + strlen(rest) > MAX_TODO_BYTES)
			return NULL;
		again = str_format("%s/%s", m->link, rest);
		step_path(done, "..");
		if (m->link[0] == '/')
			*done = '\0';
		free(todo);
		todo = rest = again;
	}
	return STEAL(done);
}

/* The kernel's own rootfs has /dev and /root before anything is unpacked. */
static bool is_directory(const struct initramfs *i, char *path)
{
	const struct initramfs_member *m = member_at(i, path);

	if (!*path)
		return true;
	if (!m)
		return strcmp(path, "dev") == 0 || strcmp(path, "root") == 0;
	return S_ISDIR(m->mode);
}

/* Puts one member where unpacking would put it; one whose directory is missing goes nowhere. */
static void place_member(struct initramfs *i, size_t index, uint64_t *steps)
{
	CLEANUP_FREE char *path = resolve(i, i->members[index].path, false, steps);
	CLEANUP_FREE char *parent = path ? str_copy(path) : NULL;
	struct place key = {path, index};
	struct place **found;

	if (!path || !*path)
		return;
	step_path(parent, "..");
	if (!is_directory(i, parent))
		return;
	found = tsearch(&key, &i->by_path, compare_places);
	if (!found)
		abort(); /* out of memory */
	if (*found == &key) {
		*found = mem_copy(&key, sizeof(key));
		path = NULL; /* given to the new place */
	}
	(*found)->member = index;
}

static int place_members(struct reader *r, struct error *err)
{
	uint64_t steps = MAX_STEPS;

	for (size_t i = 0; i < r->out->count; i++)
		place_member(r->out, i, &steps);
	if (steps == 0) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot read initramfs '%s': its links are too entangled",
		                 r->name);
	}
	return 0;
}

static int read_segments(struct reader *r, struct error *err)
{
	uint64_t at = 0;

	r->compression = "none";
	while (at < r->source->size) {
		uint8_t b = 0;

		if (initramfs_peek(r, at, &b, 1, err) < 0)
			return -1;
		if (b == 0)
			at++;
		else if (initramfs_read_segment(r, &at, err) < 0)
			return -1;
	}
	if (r->out->archive_count == 0) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "'%s' is not an initramfs: %s", r->name,
		                 r->source->size ? "nothing but zeros" : "it is empty");
	}
	return place_members(r, err);
}

static int read_source(struct initramfs *ret, struct source *source, const char *name,
                       initramfs_keep *keep, void *opaque, struct error *err)
{
	CLEANUP_INITRAMFS struct initramfs i = {0};
	struct reader r = {
		.out = &i, .name = name, .keep = keep, .opaque = opaque, .source = source};
	int rc = read_segments(&r, err);

	tdestroy(r.groups, free);
	free(r.linked);
	if (rc < 0)
		return -1;
	*ret = i;
	i = (struct initramfs){0};
	return 0;
}

int initramfs_read_file(struct initramfs *ret, int fd, const char *name, initramfs_keep *keep,
                        void *opaque, struct error *err)
{
	CLEANUP_FREE struct source *source = mem_alloc(sizeof(*source));
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read initramfs '%s'", name);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > MAX_FILE_BYTES) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot read initramfs '%s': %s", name,
		                 S_ISREG(st.st_mode) ? "larger than 1 GiB" : "not a regular file");
	}
	source->fd = fd;
	source->size = (uint64_t)st.st_size;
	return read_source(ret, source, name, keep, opaque, err);
}

int initramfs_read_memory(struct initramfs *ret, const void *data, size_t size, const char *name,
                          initramfs_keep *keep, void *opaque, struct error *err)
{
	CLEANUP_FREE struct source *source = mem_alloc(sizeof(*source));

	if (size > MAX_FILE_BYTES) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot read initramfs '%s': larger than 1 GiB", name);
	}
	source->fd = -1;
	source->memory = data;
	source->size = size;
	return read_source(ret, source, name, keep, opaque, err);
}

void initramfs_free(struct initramfs *i)
{
	for (size_t n = 0; n < i->count; n++) {
		free(i->members[n].path);
		free(i->members[n].link);
		free(i->members[n].data);
	}
	free(i->members);
	strv_free(&i->compressions);
	tdestroy(i->by_path, free_place);
	*i = (struct initramfs){0};
}

static const struct initramfs_member *find(const struct initramfs *i, const char *path,
                                           bool follow_last)
{
	uint64_t steps = MAX_NAME_BYTES * UINT64_C(41); /* each link, and the path itself */
	CLEANUP_FREE char *real = resolve(i, path, follow_last, &steps);

	return real && *real ? member_at(i, real) : NULL;
}

const struct initramfs_member *initramfs_find(const struct initramfs *i, const char *path)
{
	return find(i, path, false);
}

const struct initramfs_member *initramfs_find_target(const struct initramfs *i, const char *path)
{
	return find(i, path, true);
}

/* Whether the file name is that of the module, in any of the compressions that kmod reads. */
static bool is_module_file(const char *file, const char *name)
{
	static const char *const suffixes[] = {".ko",     ".ko.gz",  ".ko.xz",
	                                       ".ko.zst", ".ko.lz4", ".ko.bz2"};

	for (; *name; file++, name++)
		if (*file != *name &&
		    !((*file == '-' || *file == '_') && (*name == '-' || *name == '_')))
			return false;
	for (size_t i = 0; i < COUNT(suffixes); i++)
		if (strcmp(file, suffixes[i]) == 0)
			return true;
	return false;
}

const struct initramfs_member *initramfs_find_module(const struct initramfs *i, const char *name)
{
	const struct initramfs_member *members = i->members;

	for (size_t n = 0; n < i->count; n++) {
		const struct initramfs_member *m = &members[n], *found;
		const char *slash = strrchr(m->path, '/');

		if (!slash || !strstr(m->path, "lib/modules/") || !is_module_file(slash + 1, name))
			continue;
		found = initramfs_find(i, m->path);
		if (found && (S_ISREG(found->mode) || found->link))
			return found;
	}
	return NULL;
}
