/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "boot-internal.h"

#define MAX_PIECES      512
#define MAX_PIECE_CHARS 256
#define FIELDS          6 /* phase number key piece cksum ; */

static const char *const phase_names[FRAME_PHASES] = {"early", "late"};

struct piece {
	char *key; /* NULL: not here yet */
	char *data;
};

struct frame {
	struct piece pieces[MAX_PIECES]; /* number 1 stands at 0 */
	size_t count;                    /* that the end line told; 0: it did not come */
};

struct frames {
	char *mark; /* "GPUIMG-<nonce> " */
	struct frame frames[FRAME_PHASES];
};

struct frames *frames_new(const char *nonce)
{
	struct frames *f = mem_alloc(sizeof(*f));

	f->mark = str_format("GPUIMG-%s ", nonce);
	return f;
}

void frames_free(struct frames *f)
{
	if (!f)
		return;
	for (size_t phase = 0; phase < FRAME_PHASES; phase++) {
		for (size_t i = 0; i < MAX_PIECES; i++) {
			free(f->frames[phase].pieces[i].key);
			free(f->frames[phase].pieces[i].data);
		}
	}
	free(f->mark);
	free(f);
}

static uint32_t cksum_byte(uint32_t crc, uint8_t byte)
{
	crc ^= (uint32_t)byte << 24;
	for (int bit = 0; bit < 8; bit++)
		crc = crc & 0x80000000U ? (crc << 1) ^ 0x04c11db7U : crc << 1;
	return crc;
}

uint32_t frames_cksum(const void *data, size_t size)
{
	const uint8_t *bytes = data;
	uint32_t crc = 0;

	for (size_t i = 0; i < size; i++)
		crc = cksum_byte(crc, bytes[i]);
	for (size_t left = size; left; left >>= 8)
		crc = cksum_byte(crc, (uint8_t)left);
	return ~crc;
}

static struct frame *frame_by_name(struct frames *f, const char *name)
{
	for (size_t i = 0; i < FRAME_PHASES; i++)
		if (str_equal(name, phase_names[i]))
			return &f->frames[i];
	return NULL;
}

static void take_piece(struct frame *frame, const struct strv *fields, uint64_t number)
{
	struct piece *piece = &frame->pieces[number - 1];

	if (piece->key)
		return;
	piece->key = str_copy(fields->items[2]);
	piece->data = str_copy(fields->items[3]);
}

/* 'text' is what follows the mark: its six fields, and whatever the kernel put behind them. */
static bool take_line(struct frames *f, const char *text)
{
	CLEANUP_STRV struct strv fields = strv_split(text, " \r\n");
	CLEANUP_FREE char *signed_part = NULL;
	struct frame *frame;
	uint64_t number, sum, count;

	if (fields.count < FIELDS || !str_starts(fields.items[5], ";"))
		return false;
	signed_part = str_format("%s %s %s %s", fields.items[0], fields.items[1], fields.items[2],
	                         fields.items[3]);
	if (str_parse_uint(fields.items[4], UINT32_MAX, &sum) < 0 ||
	    frames_cksum(signed_part, strlen(signed_part)) != sum)
		return false;
	frame = frame_by_name(f, fields.items[0]);
	if (!frame || str_parse_uint(fields.items[1], MAX_PIECES, &number) < 0 ||
	    strlen(fields.items[3]) > MAX_PIECE_CHARS)
		return false;
	if (number > 0)
		take_piece(frame, &fields, number);
	else if (str_equal(fields.items[2], "end") &&
	         str_parse_uint(fields.items[3], MAX_PIECES, &count) == 0)
		frame->count = count;
	return true;
}

bool frames_line(struct frames *f, const char *line)
{
	const char *at = line;
	bool ours = false;

	while ((at = strstr(at, f->mark))) {
		at += strlen(f->mark);
		ours |= take_line(f, at);
	}
	return ours;
}

bool frames_whole(const struct frames *f, enum frame_phase phase)
{
	const struct frame *frame = &f->frames[phase];

	for (size_t i = 0; i < frame->count; i++)
		if (!frame->pieces[i].key)
			return false;
	return frame->count > 0;
}

static char *decode(const char *base64)
{
	size_t length = strlen(base64);
	CLEANUP_FREE unsigned char *data = mem_alloc(length / 4 * 3 + 1);
	int size;

	if (str_equal(base64, "="))
		return str_copy("");
	size = EVP_DecodeBlock(data, (const unsigned char *)base64, (int)length);
	if (size < 0)
		return NULL;
	/* Its zeros for the padding end the string just as well. */
	return mem_copy(data, (size_t)size);
}

char *frames_value(const struct frames *f, enum frame_phase phase, const char *key)
{
	const struct frame *frame = &f->frames[phase];
	CLEANUP_STRV struct strv pieces = {0};
	CLEANUP_FREE char *base64 = NULL;

	if (!frames_whole(f, phase))
		return NULL;
	for (size_t i = 0; i < frame->count; i++)
		if (str_equal(frame->pieces[i].key, key))
			strv_add(&pieces, frame->pieces[i].data);
	if (!pieces.count)
		return NULL;
	base64 = strv_join(&pieces, "");
	return decode(base64);
}
