/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes between guest and host. Two kinds hold ids, which are shifted like
 * owners are. security.capability: a guest file has version 2, whose capabilities the kernel
 * honours only in the host's own user namespace; version 3 names the namespace by its root id.
 * POSIX ACLs: entries for named users and groups.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

#include "tree-private.h"

#define CAPABILITY       "security.capability"
#define CAP_VERSION_MASK 0xff000000u
#define CAP_VERSION_2    0x02000000u
#define CAP_VERSION_3    0x03000000u
#define CAP_SIZE_2       20
#define CAP_SIZE_3       24

#define ACL_HEADER_SIZE 4
#define ACL_ENTRY_SIZE  8 /* tag and permissions, 16 bits each, then the id */
#define ACL_NAMED_USER  0x02
#define ACL_NAMED_GROUP 0x08

#define NAMES_MAX ((size_t)64 * 1024) /* XATTR_LIST_MAX */

bool tree_id_to_guest(uint32_t host, uint32_t *ret_guest)
{
	*ret_guest = host - TREE_UID_BASE;
	return host >= TREE_UID_BASE && *ret_guest < TREE_UID_COUNT;
}

bool tree_id_to_host(uint32_t guest, uint32_t *ret_host)
{
	*ret_host = guest + TREE_UID_BASE;
	return guest < TREE_UID_COUNT;
}

static uint32_t get_le32(const void *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static void put_le32(void *at, uint32_t value)
{
	value = htole32(value);
	memcpy(at, &value, sizeof(value));
}

static bool is_acl(const char *name)
{
	return str_equal(name, "system.posix_acl_access") ||
	       str_equal(name, "system.posix_acl_default");
}

/* In place. False: an id outside the mapped range. What is no ACL is left to the kernel. */
static bool shift_acl(unsigned char *acl, size_t size, bool to_guest)
{
	for (size_t at = ACL_HEADER_SIZE; at + ACL_ENTRY_SIZE <= size; at += ACL_ENTRY_SIZE) {
		unsigned tag = acl[at] | (unsigned)acl[at + 1] << 8;
		uint32_t id = get_le32(acl + at + 4);

		if (tag != ACL_NAMED_USER && tag != ACL_NAMED_GROUP)
			continue;
		if (!(to_guest ? tree_id_to_guest(id, &id) : tree_id_to_host(id, &id)))
			return false;
		put_le32(acl + at + 4, id);
	}
	return true;
}

/* Into 'ret', CAP_SIZE_3 bytes; returns the new size, 0 for an id outside the mapped range. */
static size_t shift_capability(const unsigned char *caps, size_t size, bool to_guest,
                               unsigned char *ret)
{
	uint32_t magic = get_le32(caps);
	uint32_t root = size == CAP_SIZE_3 ? get_le32(caps + CAP_SIZE_2) : 0;

	memcpy(ret, caps, size);
	if (size == CAP_SIZE_2 && to_guest)
		return size; /* written by the host's root, not by the guest: nothing to shift */
	if (!(to_guest ? tree_id_to_guest(root, &root) : tree_id_to_host(root, &root)))
		return 0;
	if (to_guest && root == 0) {
		put_le32(ret, (magic & ~CAP_VERSION_MASK) | CAP_VERSION_2);
		return CAP_SIZE_2;
	}
	put_le32(ret, (magic & ~CAP_VERSION_MASK) | CAP_VERSION_3);
	put_le32(ret + CAP_SIZE_2, root);
	return CAP_SIZE_3;
}

static bool is_capability(const char *name, const void *value, size_t size)
{
	uint32_t version;

	if (!str_equal(name, CAPABILITY) || (size != CAP_SIZE_2 && size != CAP_SIZE_3))
		return false;
	version = get_le32(value) & CAP_VERSION_MASK;
	return version == (size == CAP_SIZE_2 ? CAP_VERSION_2 : CAP_VERSION_3);
}

/* Replaces the value by its shifted form. False: an id outside the mapped range. */
static bool shift_value(struct rootfs_xattr *xattr, bool to_guest)
{
	unsigned char caps[CAP_SIZE_3];

	if (is_acl(xattr->name))
		return shift_acl(xattr->value, xattr->size, to_guest);
	if (!is_capability(xattr->name, xattr->value, xattr->size))
		return true;
	xattr->size = shift_capability(xattr->value, xattr->size, to_guest, caps);
	free(xattr->value);
	xattr->value = mem_copy(caps, xattr->size);
	return xattr->size > 0;
}

/* The l*xattr calls have no *at form: a path by way of the open directory. */
static char *path_at(int dir_fd, const char *name)
{
	return str_format("/proc/self/fd/%d/%s", dir_fd, name);
}

/* Labels of an SELinux host are the host's own policy, not the guest's. */
static bool belongs_to_host(const char *name)
{
	return str_equal(name, "security.selinux") && access("/sys/fs/selinux/enforce", F_OK) == 0;
}

/* 1: got it, 0: it is not for the guest or just gone, -1 with errno. */
static int get_one(const char *path, const char *name, struct rootfs_xattr *ret)
{
	CLEANUP_FREE void *value = NULL;
	ssize_t size;

	if (belongs_to_host(name))
		return 0;
	size = lgetxattr(path, name, NULL, 0);
	if (size >= 0) {
		value = mem_alloc((size_t)size + 1);
		size = lgetxattr(path, name, value, (size_t)size);
	}
	if (size < 0)
		return errno == ENODATA ? 0 : -1;
	*ret = (struct rootfs_xattr){str_copy(name), STEAL(value), (size_t)size};
	if (shift_value(ret, true))
		return 1;
	free(ret->name);
	free(ret->value);
	errno = EINVAL;
	return -1;
}

int tree_xattrs_get(int dir_fd, const char *name, struct rootfs_xattr **ret, size_t *ret_count)
{
	CLEANUP_FREE char *path = path_at(dir_fd, name);
	CLEANUP_FREE char *names = NULL;
	struct rootfs_xattr *list = NULL;
	size_t count = 0;
	ssize_t size = llistxattr(path, NULL, 0);

	if (size > 0) {
		names = mem_alloc(NAMES_MAX + 1);
		size = llistxattr(path, names, NAMES_MAX);
	}
	if (size < 0 && errno != ENOTSUP)
		return -1;
	for (const char *n = names; size > 0 && n < names + size; n += strlen(n) + 1) {
		struct rootfs_xattr one;
		int got = get_one(path, n, &one);

		if (got < 0) {
			rootfs_xattrs_free(list, count);
			return -1;
		}
		if (got == 0)
			continue;
		list = mem_grow(list, count + 1, sizeof(*list));
		list[count++] = one;
	}
	*ret = list;
	*ret_count = count;
	return 0;
}

int tree_xattr_set(int dir_fd, const char *name, const struct rootfs_xattr *xattr)
{
	CLEANUP_FREE char *path = path_at(dir_fd, name);
	struct rootfs_xattr shifted = {xattr->name, mem_copy(xattr->value, xattr->size),
	                               xattr->size};
	int result = -1;

	if (belongs_to_host(xattr->name))
		result = 0; /* see tree_set_labeler() */
	else if (shift_value(&shifted, false))
		result = lsetxattr(path, shifted.name, shifted.value, shifted.size, 0);
	else
		errno = EINVAL;
	free(shifted.value);
	return result;
}
