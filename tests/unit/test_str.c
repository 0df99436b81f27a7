/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "builder/str.h"
#include "tap.h"

static void test_sizes(void)
{
	static const struct {
		const char *text;
		int result;
		uint64_t bytes;
	} cases[] = {
		{"0", 0, 0},
		{"65536", 0, 65536},
		{"32G", 0, 32ull << 30},
		{"512m", 0, 512ull << 20},
		{"1KiB", 0, 1024},
		{"1T", 0, 1ull << 40},
		{"", -1, 0},
		{"-1", -1, 0},
		{" 1", -1, 0},
		{"1X", -1, 0},
		{"1GG", -1, 0},
		{"0x10", -1, 0},
		{"99999999999999999999", -1, 0},
		{"16777216T", -1, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t bytes = 0;
		int result = str_parse_size(cases[i].text, &bytes);

		check(result == cases[i].result && bytes == cases[i].bytes, "'%s' is %s",
		      cases[i].text, cases[i].result ? "no size" : "a size");
	}
}

static void test_numbers(void)
{
	uint64_t n = 7;

	check(str_parse_uint("600", 86400, &n) == 0 && n == 600, "a number within its bound");
	check(str_parse_uint("86401", 86400, &n) < 0 && n == 600, "one beyond it leaves the value");
	check(str_parse_uint("1 ", 10, &n) < 0, "a blank after a number is no number");
	check(str_parse_uint("+1", 10, &n) < 0, "a sign is no number");
}

static void test_printable(void)
{
	char *plain = str_printable("caf\xc3\xa9 /boot", 100);
	char *control = str_printable("a\x1b[31mb\nc", 100);
	char *broken = str_printable("x\xff\xc3", 100);
	char *overlong =
		str_printable("x\xe0\x80\x80\xed\xa0\x80\xf4\x90\x80\x80\xf0\x9f\x98\x80y", 100);
	char *c1 = str_printable("x\xc2\x9by", 100);
	char *cut = str_printable("abcdef", 3);

	check_str(plain, "caf\xc3\xa9 /boot", "UTF-8 stays");
	check_str(control, "a?[31mb?c", "control bytes of a guest never reach the terminal");
	check_str(broken, "x??", "bytes that are not UTF-8 are replaced");
	check_str(overlong, "x??????????\xf0\x9f\x98\x80y",
	          "so are overlong forms, surrogates and what is beyond U+10FFFF");
	check_str(c1, "x?y", "C1 control characters are replaced");
	check_str(cut, "abc", "the length is bounded");
	free(plain);
	free(control);
	free(broken);
	free(overlong);
	free(c1);
	free(cut);
}

static void test_lists(void)
{
	CLEANUP_STRV struct strv v = strv_split("b a  c,a", " ,");
	CLEANUP_FREE char *joined = NULL;

	check(v.count == 4 && v.items[4] == NULL, "empty fields are dropped, NULL ends the list");
	strv_sort(&v);
	strv_remove(&v, 0);
	joined = strv_join(&v, "-");
	check_str(joined, "a-b-c", "sorted, one removed, joined");
	check(strv_has(&v, "c") && !strv_has(&v, "d"), "what is in it is found");
	check(str_ends("x.qcow2", ".qcow2") && !str_ends("w2", ".qcow2"), "ends are compared");
}

int main(void)
{
	test_sizes();
	test_numbers();
	test_printable();
	test_lists();
	return tap_done();
}
