/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "toml-internal.h"

/* Bytes that match: 'd' stands for a digit, everything else for itself; 0 if not all do. */
static size_t match(const char *s, const char *shape)
{
	size_t i;

	for (i = 0; shape[i]; i++)
		if (shape[i] == 'd' ? !isdigit((unsigned char)s[i]) : s[i] != shape[i])
			return 0;
	return i;
}

/* Digits with single '_' between them. */
static size_t match_digits(const char *s, const char *digits)
{
	size_t n = 0;

	for (;;) {
		size_t more = strspn(s + n, digits);

		if (more == 0)
			return 0;
		n += more;
		if (s[n] != '_')
			return n;
		n++;
	}
}

static bool two_digits_at_most(const char *s, int max)
{
	return (s[0] - '0') * 10 + s[1] - '0' <= max;
}

static size_t match_date(const char *s)
{
	if (match(s, "dddd-dd-dd") && two_digits_at_most(s + 5, 12) &&
	    two_digits_at_most(s + 8, 31) && !match(s + 5, "00") && !match(s + 8, "00"))
		return 10;
	return 0;
}

static size_t match_time(const char *s)
{
	size_t n = match(s, "dd:dd:dd");

	if (n == 0 || !two_digits_at_most(s, 23) || !two_digits_at_most(s + 3, 59) ||
	    !two_digits_at_most(s + 6, 60))
		return 0;
	if (s[n] == '.' && isdigit((unsigned char)s[n + 1]))
		n += 1 + strspn(s + n + 1, "0123456789");
	return n;
}

static size_t match_offset(const char *s)
{
	if (*s == 'Z' || *s == 'z')
		return 1;
	if ((*s != '+' && *s != '-') || !match(s + 1, "dd:dd") || !two_digits_at_most(s + 1, 23) ||
	    !two_digits_at_most(s + 4, 59))
		return 0;
	return 6;
}

/* A date, a time, or both, which may have an offset. */
static size_t match_moment(const char *s)
{
	size_t date = match_date(s), time;

	if (date == 0)
		return match_time(s);
	if (!s[date] || !strchr("Tt ", s[date]))
		return date;
	time = match_time(s + date + 1);
	if (time == 0)
		return s[date] == ' ' ? date : 0;
	return date + 1 + time + match_offset(s + date + 1 + time);
}

static size_t match_decimal(const char *s)
{
	if (*s == '0')
		return 1;
	return match_digits(s, "0123456789");
}

static size_t match_prefixed(const char *s)
{
	const char *digits = str_starts(s, "0x")   ? "0123456789abcdefABCDEF"
	                     : str_starts(s, "0o") ? "01234567"
	                     : str_starts(s, "0b") ? "01"
	                                           : NULL;
	size_t n = digits ? match_digits(s + 2, digits) : 0;

	return n ? n + 2 : 0;
}

/* Bytes of the fraction and of the exponent; 0: there is none, or it is not right. */
static size_t match_fraction(const char *s)
{
	size_t fraction = *s == '.' ? match_digits(s + 1, "0123456789") : 0, digits;

	if (*s == '.' && fraction == 0)
		return 0;
	s += fraction ? fraction + 1 : 0;
	fraction += fraction != 0;
	if (*s != 'e' && *s != 'E')
		return fraction;
	s++;
	digits = match_digits(s + (*s == '+' || *s == '-'), "0123456789");
	return digits ? fraction + 1 + (*s == '+' || *s == '-') + digits : 0;
}

static size_t match_number(const char *s, enum toml_type *ret)
{
	size_t sign = *s == '+' || *s == '-', n = match_prefixed(s), more;

	*ret = TOML_INTEGER;
	if (n > 0)
		return n;
	if (match(s + sign, "inf") || match(s + sign, "nan")) {
		*ret = TOML_FLOAT;
		return sign + 3;
	}
	n = match_decimal(s + sign);
	more = n ? match_fraction(s + sign + n) : 0;
	*ret = more ? TOML_FLOAT : TOML_INTEGER;
	return n ? sign + n + more : 0;
}

static size_t match_scalar(const char *s, enum toml_type *ret)
{
	size_t n = str_starts(s, "true") ? 4 : str_starts(s, "false") ? 5 : 0;

	*ret = TOML_BOOL;
	if (n > 0)
		return n;
	n = match_moment(s);
	*ret = TOML_DATE;
	return n ? n : match_number(s, ret);
}

char *toml_plain_number(const char *text)
{
	char *plain = str_copy(text), *to = plain;

	for (const char *from = text; *from; from++)
		if (*from != '_')
			*to++ = *from;
	*to = '\0';
	return plain;
}

int toml_integer(const char *text, long long *ret)
{
	CLEANUP_FREE char *plain = toml_plain_number(text);
	int base = 10;

	if (plain[0] == '0' && plain[1])
		base = plain[1] == 'x' ? 16 : plain[1] == 'o' ? 8 : 2;
	errno = 0;
	*ret = strtoll(plain + (base == 10 ? 0 : 2), NULL, base);
	return errno ? -1 : 0;
}

int toml_read_scalar(struct toml_reader *r, struct toml_node *node)
{
	const char *s = r->text + r->at;
	size_t length = match_scalar(s, &node->type);
	long long number;

	if (length == 0 || (s[length] && !strchr(" \t\r\n,]}#", s[length])))
		return toml_refuse(r, "'%.*s' is no value", (int)strcspn(s, " \t\r\n,]}#"), s);
	node->text = mem_copy(s, length);
	/* Python's and Go's readers take 64 bits, and what is larger fails there. */
	if (node->type == TOML_INTEGER && toml_integer(node->text, &number) < 0)
		return toml_refuse(r, "'%s' does not fit in 64 bits", node->text);
	r->at += length;
	return 0;
}
