/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in FAT directories. Each entry has a short one, eight and three bytes in an old code
 * page; a long one in UTF-16 stands in slots before it. Both are shown in UTF-8. What could
 * mislead a reader ('/', control characters, half characters) is no name.
 */
#include <string.h>

#include "fatfs-internal.h"
#include "str.h"

/* Offsets in a slot of a long name. */
enum {
	LDIR_Ord = 0,
	LDIR_Type = 12,
	LDIR_Chksum = 13,
	LDIR_UNITS = 13, /* of UTF-16 in one slot */
	LDIR_SLOTS_MAX = 20,
	LDIR_ORD_LAST = 0x40, /* the slot with the name's end, which stands first */
};

/* Offsets in an entry, and what is kept in it of names in lower case. */
enum {
	DIR_Name = 0,
	DIR_Ext = 8,
	DIR_NTRes = 12,
	NAME_BYTES = 8,
	EXT_BYTES = 3,
	LOWER_NAME = 0x08,
	LOWER_EXT = 0x10,
};

/* The upper half of code page 437, Linux' default for short names. */
static const uint16_t code_page[128] = {
	0x00c7, 0x00fc, 0x00e9, 0x00e2, 0x00e4, 0x00e0, 0x00e5, 0x00e7, 0x00ea, 0x00eb, 0x00e8,
	0x00ef, 0x00ee, 0x00ec, 0x00c4, 0x00c5, 0x00c9, 0x00e6, 0x00c6, 0x00f4, 0x00f6, 0x00f2,
	0x00fb, 0x00f9, 0x00ff, 0x00d6, 0x00dc, 0x00a2, 0x00a3, 0x00a5, 0x20a7, 0x0192, 0x00e1,
	0x00ed, 0x00f3, 0x00fa, 0x00f1, 0x00d1, 0x00aa, 0x00ba, 0x00bf, 0x2310, 0x00ac, 0x00bd,
	0x00bc, 0x00a1, 0x00ab, 0x00bb, 0x2591, 0x2592, 0x2593, 0x2502, 0x2524, 0x2561, 0x2562,
	0x2556, 0x2555, 0x2563, 0x2551, 0x2557, 0x255d, 0x255c, 0x255b, 0x2510, 0x2514, 0x2534,
	0x252c, 0x251c, 0x2500, 0x253c, 0x255e, 0x255f, 0x255a, 0x2554, 0x2569, 0x2566, 0x2560,
	0x2550, 0x256c, 0x2567, 0x2568, 0x2564, 0x2565, 0x2559, 0x2558, 0x2552, 0x2553, 0x256b,
	0x256a, 0x2518, 0x250c, 0x2588, 0x2584, 0x258c, 0x2590, 0x2580, 0x03b1, 0x00df, 0x0393,
	0x03c0, 0x03a3, 0x03c3, 0x00b5, 0x03c4, 0x03a6, 0x0398, 0x03a9, 0x03b4, 0x221e, 0x03c6,
	0x03b5, 0x2229, 0x2261, 0x00b1, 0x2265, 0x2264, 0x2320, 0x2321, 0x00f7, 0x2248, 0x00b0,
	0x2219, 0x00b7, 0x221a, 0x207f, 0x00b2, 0x25a0, 0x00a0,
};

static unsigned char fold(char c)
{
	return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

int fat_name_compare(const char *a, const char *b)
{
	while (*a && fold(*a) == fold(*b)) {
		a++;
		b++;
	}
	return fold(*a) - fold(*b);
}

/* Puts a character behind 'out', which has room for four bytes; returns what comes behind it. */
static char *put_utf8(char *out, uint32_t c)
{
	static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
	unsigned bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	if (c < 0x80) {
		*out = (char)c;
		return out + 1;
	}
	for (unsigned i = bytes - 1; i > 0; i--, c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)(leads[bytes] | c);
	return out + bytes;
}

static const char *wrong_character(uint32_t c)
{
	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return "it holds a control character";
	if (c == '/')
		return "it holds '/'";
	return NULL;
}

static const char *wrong_name(const char *name)
{
	if (!*name)
		return "it is empty";
	return str_equal(name, ".") || str_equal(name, "..") ? "it is '.' or '..'" : NULL;
}

/* UTF-16 of 'count' units; NULL and why where it is no name. */
static char *from_utf16(const uint16_t *units, size_t count, const char **ret_wrong)
{
	CLEANUP_FREE char *name = mem_alloc(count * 3 + 2);
	char *end = name;

	for (size_t i = 0; i < count; i++) {
		uint32_t c = units[i];
		bool is_pair = c >= 0xd800 && c < 0xdc00 && i + 1 < count &&
		               units[i + 1] >= 0xdc00 && units[i + 1] < 0xe000;

		if (is_pair)
			c = 0x10000 + ((c - 0xd800) << 10) + (units[++i] - 0xdc00u);
		*ret_wrong = !is_pair && c >= 0xd800 && c < 0xe000 ? "it is no Unicode"
		                                                   : wrong_character(c);
		if (*ret_wrong)
			return NULL;
		end = put_utf8(end, c);
	}
	*ret_wrong = wrong_name(name);
	return *ret_wrong ? NULL : STEAL(name);
}

static void get_units(const uint8_t *slot, uint16_t *ret)
{
	static const uint8_t offsets[LDIR_UNITS] = {1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30};

	for (size_t i = 0; i < LDIR_UNITS; i++)
		ret[i] = fat_le16(slot + offsets[i]);
}

void fat_long_name_add(struct fat_long_name *n, const uint8_t *slot)
{
	unsigned number = slot[LDIR_Ord] & (LDIR_ORD_LAST - 1u);
	bool is_last = slot[LDIR_Ord] & LDIR_ORD_LAST;

	if (is_last)
		*n = (struct fat_long_name){
			.left = number + 1, .valid = true, .checksum = slot[LDIR_Chksum]};
	if (number == 0 || number > LDIR_SLOTS_MAX || number + 1 != n->left ||
	    slot[LDIR_Ord] & 0x80 || slot[LDIR_Type] != 0 || slot[LDIR_Chksum] != n->checksum)
		n->valid = false;
	if (!n->valid)
		return;
	n->left = number;
	get_units(slot, n->units + (size_t)(number - 1) * LDIR_UNITS);
}

static uint8_t checksum(const uint8_t *entry)
{
	uint8_t sum = 0;

	for (size_t i = 0; i < NAME_BYTES + EXT_BYTES; i++)
		sum = (uint8_t)((sum >> 1 | sum << 7) + entry[DIR_Name + i]);
	return sum;
}

char *fat_long_name_take(struct fat_long_name *n, const uint8_t *entry, const char **ret_wrong)
{
	bool fits = n->valid && n->left == 1 && n->checksum == checksum(entry);
	size_t count = 0, room = sizeof(n->units) / sizeof(n->units[0]);

	*ret_wrong = NULL;
	n->valid = false;
	if (!fits)
		return NULL;
	/* The units are zeroed where no slot was. */
	while (count < room && n->units[count] != 0)
		count++;
	if (count == 0 || count > FAT_NAME_UNITS_MAX)
		return NULL;
	return from_utf16(n->units, count, ret_wrong);
}

/* One part of a short name, without the blanks at its end. */
static size_t short_part(const uint8_t *bytes, size_t size, bool lower, uint16_t *ret)
{
	while (size > 0 && bytes[size - 1] == ' ')
		size--;
	for (size_t i = 0; i < size; i++)
		if (bytes[i] >= 0x80)
			ret[i] = code_page[bytes[i] - 0x80];
		else
			ret[i] = lower ? fold((char)bytes[i]) : bytes[i];
	return size;
}

char *fat_short_name(const uint8_t *entry, const char **ret_wrong)
{
	uint16_t units[NAME_BYTES + 1 + EXT_BYTES];
	uint8_t name[NAME_BYTES];
	size_t count, more;

	memcpy(name, entry + DIR_Name, sizeof(name));
	if (name[0] == 0x05) /* stands for the byte that marks deleted entries */
		name[0] = 0xe5;
	count = short_part(name, NAME_BYTES, entry[DIR_NTRes] & LOWER_NAME, units);
	more = short_part(entry + DIR_Ext, EXT_BYTES, entry[DIR_NTRes] & LOWER_EXT,
	                  units + count + 1);
	if (more > 0) {
		units[count] = '.';
		count += 1 + more;
	}
	return from_utf16(units, count, ret_wrong);
}
