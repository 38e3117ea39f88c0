/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compare/compare.h"

static void
keeps_buckets_in_order_and_adds_up_equal_ones(void **state)
{
	static const double upto[] = { 5, 1, 3, 5, 2, 4, 1 };
	struct buckets b = {};
	unsigned i;

	(void)state;
	for (i = 0; i < 7; i++)
		assert_int_equal(buckets_add(&b, upto[i], i + 1), 0);
	assert_int_equal(b.nr, 5);
	for (i = 0; i < 5; i++)
		assert_true(b.upto[i] == i + 1);
	assert_int_equal(b.count[0], 2 + 7);
	assert_int_equal(b.count[1], 5);
	assert_int_equal(b.count[4], 1 + 4);
	buckets_fini(&b);
	assert_int_equal(b.nr, 0);
}

static void
takes_percentiles_as_fio_does(void **state)
{
	struct buckets b = {};

	(void)state;
	assert_true(buckets_quantile(&b, .5) == 0);
	assert_int_equal(buckets_add(&b, 10, 98), 0);
	assert_int_equal(buckets_add(&b, 20, 1), 0);
	assert_int_equal(buckets_add(&b, 30, 1), 0);
	assert_true(buckets_quantile(&b, .5) == 10);
	assert_true(buckets_quantile(&b, .98) == 10);
	assert_true(buckets_quantile(&b, .99) == 20);
	assert_true(buckets_quantile(&b, .999) == 30);
	assert_true(buckets_quantile(&b, 1) == 30);
	buckets_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		{ "keeps buckets in order, and adds up equal ones",
		    keeps_buckets_in_order_and_adds_up_equal_ones, NULL, NULL,
		    NULL },
		{ "takes percentiles as fio does",
		    takes_percentiles_as_fio_does, NULL, NULL, NULL },
	};

	return cmocka_run_group_tests_name("buckets", tests, NULL, NULL);
}
