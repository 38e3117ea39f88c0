/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hist.h"

/* What hist_print() prints; the caller frees it. */
static char *
printed(const struct hist *h)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	hist_print(h, out);
	fclose(out);
	return text;
}

static void
a_bucket_ends_before_a_power_of_two(void **state)
{
	unsigned i;

	(void)state;
	assert_int_equal(hist_index(0), 0);
	assert_int_equal(hist_from(0), 0);
	for (i = 1; i < HIST_BUCKETS; i++) {
		assert_int_equal(hist_index(hist_from(i)), i);
		assert_int_equal(hist_index(hist_from(i) - 1), i - 1);
	}
	assert_int_equal(hist_index(UINT64_MAX), HIST_BUCKETS - 1);
}

static void
counts_values_with_their_sum(void **state)
{
	struct hist h = {};

	(void)state;
	assert_int_equal(hist_count(&h), 0);
	assert_true(hist_mean(&h) == 0);
	hist_add(&h, 0);
	hist_add(&h, 255);
	hist_add(&h, 256);
	hist_add(&h, 257);
	assert_int_equal(hist_count(&h), 4);
	assert_int_equal(hist_sum(&h), 768);
	assert_true(hist_mean(&h) == 192);
	assert_int_equal(hist_get(&h, hist_index(0)), 1);
	assert_int_equal(hist_get(&h, hist_index(255)), 1);
	assert_int_equal(hist_get(&h, hist_index(256)), 2);
}

static void
merges_what_several_counted(void **state)
{
	struct hist a = {}, b = {}, all = {};
	uint64_t i;

	(void)state;
	for (i = 0; i < 1000; i++)
		hist_add(i % 3 == 0 ? &a : &b, i);
	hist_merge(&all, &a);
	hist_merge(&all, &b);
	assert_int_equal(hist_count(&all), 1000);
	assert_int_equal(hist_sum(&all), 999 * 1000 / 2);
	for (i = 0; i < HIST_BUCKETS; i++)
		assert_int_equal(hist_get(&all, (unsigned)i),
		    hist_get(&a, (unsigned)i) + hist_get(&b, (unsigned)i));
}

static void
prints_from_the_first_to_the_last_that_counted(void **state)
{
	struct hist h = {};
	char *text;

	(void)state;
	text = printed(&h);
	assert_string_equal(text, "");
	free(text);
	hist_add(&h, 1);
	hist_put(&h, hist_index(4), 3, 16);
	text = printed(&h);
	assert_string_equal(text,
	    "                1            1  25.00% ########\n"
	    "              2-3            0   0.00%\n"
	    "              4-7            3  75.00% "
	    "#######################\n");
	free(text);
}

static void
prints_the_ends_of_the_scale(void **state)
{
	struct hist h = {};
	char *text;

	(void)state;
	hist_add(&h, 0);
	hist_add(&h, UINT64_MAX);
	text = printed(&h);
	assert_non_null(
	    strstr(text, "                0            1  50.00% "));
	assert_non_null(
	    strstr(text, "         4194304+            1  50.00% "));
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bucket_ends_before_a_power_of_two),
		cmocka_unit_test(counts_values_with_their_sum),
		cmocka_unit_test(merges_what_several_counted),
		cmocka_unit_test(
		    prints_from_the_first_to_the_last_that_counted),
		cmocka_unit_test(prints_the_ends_of_the_scale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
