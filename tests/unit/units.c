/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

#define GIB (UINT64_C(1) << 30)

static uint64_t
number(const char *text, const struct unit *unit)
{
	uint64_t v = 12345;

	assert_int_equal(uint_parse(text, unit, &v), 0);
	return v;
}

static int
error(const char *text, const struct unit *unit)
{
	uint64_t v = 12345;
	int ret = uint_parse(text, unit, &v);

	assert_int_equal(v, 12345); /* unchanged */
	return ret;
}

static void
reads_numbers_as_kstrtoull_does(void **state)
{
	(void)state;
	assert_int_equal(number("0", NULL), 0);
	assert_int_equal(number("+5", NULL), 5);
	assert_int_equal(number("0x10", NULL), 16);
	assert_int_equal(number("0XfF", NULL), 255);
	assert_int_equal(number("010", NULL), 8);
	assert_int_equal(number("5\n", NULL), 5);
	assert_int_equal(number("18446744073709551615", NULL), UINT64_MAX);
	assert_int_equal(error("", NULL), -EINVAL);
	assert_int_equal(error("-1", NULL), -EINVAL);
	assert_int_equal(error("+-1", NULL), -EINVAL);
	assert_int_equal(error(" 5", NULL), -EINVAL);
	assert_int_equal(error("5 ", NULL), -EINVAL);
	assert_int_equal(error("5\n\n", NULL), -EINVAL);
	assert_int_equal(error("08", NULL), -EINVAL);
	assert_int_equal(error("0x", NULL), -EINVAL);
	assert_int_equal(error("0xg", NULL), -EINVAL);
	assert_int_equal(error("1.5", NULL), -EINVAL);
	assert_int_equal(error("18446744073709551616", NULL), -ERANGE);
	/* _kstrtoull() finds the overflow before the junk behind it */
	assert_int_equal(error("99999999999999999999x", NULL), -ERANGE);
}

static void
multiplies_by_the_unit_or_by_a_suffix(void **state)
{
	(void)state;
	assert_int_equal(number("4", &unit_mib), 4 << 20);
	assert_int_equal(number("4", &unit_gib), 4 * GIB);
	assert_int_equal(number("4G", &unit_mib), 4 * GIB);
	assert_int_equal(number("4GiB", &unit_mib), 4 * GIB);
	assert_int_equal(number("4g\n", &unit_mib), 4 * GIB);
	assert_int_equal(number("4k", &unit_bytes), 4096);
	assert_int_equal(number("0x10B", &unit_bytes), 0x10b); /* a digit */
	assert_int_equal(
	    number("9223372036854775296B", &unit_mib), INT64_MAX - 511);
	assert_int_equal(number("80us", &unit_ns), 80000);
	assert_int_equal(number("1ms", &unit_ns), 1000000);
	assert_int_equal(number("2s", &unit_ns), 2000000000);
	assert_int_equal(number("7", &unit_ns), 7);
	assert_int_equal(error("4G", &unit_ns), -EINVAL);
	assert_int_equal(error("4 G", &unit_mib), -EINVAL);
	assert_int_equal(error("4GG", &unit_mib), -EINVAL);
	assert_int_equal(error("4k", &unit_sectors), -EINVAL);
	assert_int_equal(error("4k", NULL), -EINVAL);
	assert_int_equal(error("17592186044416", &unit_mib), -ERANGE);
	assert_int_equal(error("16E", &unit_bytes), -ERANGE);
}

static void
prints_what_it_would_read_again(void **state)
{
	static const uint64_t values[] = { 0, 1, 511, 1 << 20, (1 << 20) + 512,
		INT64_MAX - 511, UINT64_MAX };
	const struct unit *units[] = { NULL, &unit_bytes, &unit_mib, &unit_gib,
		&unit_ns, &unit_kib };
	char *text;
	size_t len;
	FILE *out;

	(void)state;
	for (size_t u = 0; u < sizeof(units) / sizeof(*units); u++)
		for (size_t v = 0; v < sizeof(values) / sizeof(*values); v++) {
			out = open_memstream(&text, &len);
			uint_print(values[v], units[u], out);
			fclose(out);
			assert_int_equal(number(text, units[u]), values[v]);
			free(text);
		}
}

static void
an_int_may_have_a_minus(void **state)
{
	static const struct {
		const char *text;
		int ret;
		int64_t v;
	} known[] = {
		{ "0", 0, 0 },
		{ "-0", 0, 0 },
		{ "+7\n", 0, 7 },
		{ "-0x10", 0, -16 },
		{ "2147483647", 0, INT32_MAX },
		{ "-2147483648", 0, INT32_MIN },
		{ "2147483648", -ERANGE, 99 },
		{ "-2147483649", -ERANGE, 99 },
		{ "-99999999999999999999", -ERANGE, 99 },
		{ "-", -EINVAL, 99 },
		{ "--1", -EINVAL, 99 },
		{ "-+1", -EINVAL, 99 },
		{ "1k", -EINVAL, 99 },
		{ "", -EINVAL, 99 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		int64_t v = 99;

		assert_int_equal(int_parse(known[i].text, &v), known[i].ret);
		assert_int_equal(v, known[i].v);
	}
}

static void
short_ones_have_a_suffix_if_it_is_exact(void **state)
{
	static const struct {
		uint64_t v;
		const struct unit *unit;
		const char *text;
	} known[] = {
		{ 0, &unit_bytes, "0" },
		{ 512, &unit_bytes, "512" },
		{ 9999, &unit_bytes, "9999" },
		{ 65536, &unit_bytes, "64K" },
		{ 65537, &unit_bytes, "65537" },
		{ UINT64_C(1) << 40, &unit_bytes, "1T" },
		{ UINT64_C(1) << 30, &unit_mib, "1024" },
		{ UINT64_C(1) << 50, &unit_mib, "1P" },
		{ (UINT64_C(1) << 63) - (1 << 20), &unit_mib, "8796093022207" },
		{ 3600000000000, &unit_ns, "3600s" },
		{ INT32_MAX, &unit_kib, "2147483647" },
		{ 1000000, NULL, "1000000" },
	};
	char *text;
	size_t len;
	FILE *out;

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		out = open_memstream(&text, &len);
		uint_print_short(known[i].v, known[i].unit, out);
		fclose(out);
		assert_string_equal(text, known[i].text);
		assert_int_equal(number(text, known[i].unit), known[i].v);
		free(text);
	}
}

static void
reads_booleans_by_their_first_letters(void **state)
{
	static const char *yes[] = { "1", "y", "Yes", "t", "TRUE", "on", "oN",
		"1k" };
	static const char *no[] = { "0", "n", "No", "f", "False", "off", "oF",
		"0x10" };
	static const char *bad[] = { "", "2", "o", "okay", " 1", "-1", "abc" };
	bool b;

	(void)state;
	for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++) {
		b = false;
		assert_int_equal(bool_parse(yes[i], &b), 0);
		assert_true(b);
	}
	for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++) {
		b = true;
		assert_int_equal(bool_parse(no[i], &b), 0);
		assert_false(b);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(bool_parse(bad[i], &b), -EINVAL);
}

static void
knows_text_from_what_is_none(void **state)
{
	static const char *good[] = { "", "plain", "\xc3\xa4\xe2\x82\xac",
		"\xf0\x9f\x92\xbe", "\xf4\x8f\xbf\xbf", "\xee\x80\x80" };
	static const char *bad[] = {
		"a\nb", "\x7f", "\x1b[0m", /* control */
		"\xc2\x85",                /* control, of the second page */
		"\x80", "\xff", "\xc3", "\xe2\x82", "\xe2\x28\xa1", /* broken */
		"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", /* overlong */
		"\xed\xa0\x80",                                 /* surrogate */
		"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", /* beyond U+10FFFF */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_true(text_valid(good[i]));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(text_valid(bad[i]));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_numbers_as_kstrtoull_does),
		cmocka_unit_test(multiplies_by_the_unit_or_by_a_suffix),
		cmocka_unit_test(prints_what_it_would_read_again),
		cmocka_unit_test(an_int_may_have_a_minus),
		cmocka_unit_test(short_ones_have_a_suffix_if_it_is_exact),
		cmocka_unit_test(reads_booleans_by_their_first_letters),
		cmocka_unit_test(knows_text_from_what_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
