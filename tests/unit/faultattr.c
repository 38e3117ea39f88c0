/* SPDX-License-Identifier: MIT */
/* null_blk's fault attributes (1.9): how they read, and when they hit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/fault.h"

static char err[512];

static struct fault_attr *
attr_of(const char *text)
{
	struct fault_attr *a = fault_timeout_object.new();

	fault_attr_seed(a, rng_stream(1, 1));
	if (fault_timeout_object.set(a, text, err, sizeof(err)) != 0)
		fail_msg("%s", err);
	return a;
}

static const char *
reads(const struct fault_attr *a)
{
	static char text[128];
	FILE *out;

	memset(text, 0, sizeof(text));
	out = fmemopen(text, sizeof(text), "w");
	fault_timeout_object.show(a, out);
	fclose(out);
	return text;
}

/* The calls that hit, of the first 20, counted from 1. */
static const char *
hits_of(const char *text)
{
	static char out[128];
	struct fault_attr *a = attr_of(text);
	size_t len = 0;

	out[0] = '\0';
	for (int i = 1; i <= 20; i++)
		if (fault_attr_hits(a))
			len += (size_t)snprintf(
			    out + len, sizeof(out) - len, "%d ", i);
	fault_timeout_object.free(a);
	return out;
}

static void
decides_in_the_kernels_order(void **state)
{
	(void)state;
	assert_string_equal(hits_of("1,100,0,3"), "1 2 3 ");
	assert_string_equal(hits_of("1,0,0,-1"), "");
	assert_string_equal(hits_of("1,100,0,0"), "");
	assert_string_equal(hits_of("0,100,0,2"), "1 2 ");
	assert_string_equal(hits_of("5,100,0,-1"), "5 10 15 20 ");
	/* space goes down to 1, a step a call, and none of them counts */
	assert_string_equal(hits_of("1,100,1,2"), "1 2 ");
	assert_string_equal(hits_of("1,100,4,2"), "4 5 ");
	assert_string_equal(hits_of("3,100,4,2"), "6 9 ");
	assert_string_equal(hits_of("1,200,0,1"), "1 ");
	assert_string_equal(hits_of(""), "");
}

static void
hits_as_often_as_probable(void **state)
{
	struct fault_attr *a = attr_of("1,30,0,-1");
	unsigned nr = 0;

	(void)state;
	for (unsigned i = 0; i < 100000; i++)
		nr += fault_attr_hits(a);
	assert_in_range(nr, 29000, 31000);
	fault_timeout_object.free(a);
}

static void
reads_and_refuses(void **state)
{
	static const char *const bad[] = { "1", "1,2,3", "1,2,3,4,5", "a,1,1,1",
		"1,-1,0,0", "1,1,1,2147483648", "1,,0,0", ",,,",
		"99999999999999999999,1,1,1",
		"00000000000000000000000000000000000000000000000000000000000000"
		"000000000000000000000000001,1,1,1" };
	struct fault_attr *a = attr_of("1,50,2,-1\n"), *copy;

	(void)state;
	assert_string_equal(reads(a), "1,50,2,-1");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(
		    fault_requeue_object.set(a, bad[i], err, sizeof(err)),
		    -EINVAL);
		assert_non_null(strstr(err, "requeue: \""));
		assert_string_equal(reads(a), "1,50,2,-1");
	}
	copy = fault_timeout_object.copy(a);
	assert_true(fault_timeout_object.same(a, copy));
	assert_int_equal(fault_timeout_object.set(a, "", err, sizeof(err)), 0);
	assert_string_equal(reads(a), "");
	assert_false(fault_timeout_object.same(a, copy));
	assert_false(fault_timeout_object.item(a, 0, stderr));
	fault_timeout_object.free(a);
	fault_timeout_object.free(copy);
	fault_timeout_object.free(NULL);
}

/* A write to one of the kernel's files; what is not named stays. */
static void
takes_some_of_the_numbers(void **state)
{
	struct fault_attr *a = attr_of("");

	(void)state;
	assert_int_equal(
	    fault_timeout_object.set(a, "probability=50\n", err, sizeof(err)),
	    0);
	assert_string_equal(reads(a), "1,50,0,1");
	assert_int_equal(
	    fault_timeout_object.set(a, "times=-1,space=3", err, sizeof(err)),
	    0);
	assert_string_equal(reads(a), "1,50,3,-1");
	assert_int_equal(
	    fault_timeout_object.set(a, "interval=2", err, sizeof(err)), 0);
	assert_string_equal(reads(a), "2,50,3,-1");
	assert_int_equal(
	    fault_timeout_object.set(a, "space=1,odd=2", err, sizeof(err)),
	    -EINVAL);
	assert_int_equal(
	    fault_timeout_object.set(a, "space=1,2", err, sizeof(err)),
	    -EINVAL);
	assert_int_equal(
	    fault_timeout_object.set(a, "=1", err, sizeof(err)), -EINVAL);
	assert_int_equal(
	    fault_timeout_object.set(a, "times=2147483648", err, sizeof(err)),
	    -ERANGE);
	assert_string_equal(reads(a), "2,50,3,-1");
	fault_timeout_object.free(a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decides_in_the_kernels_order),
		cmocka_unit_test(hits_as_often_as_probable),
		cmocka_unit_test(reads_and_refuses),
		cmocka_unit_test(takes_some_of_the_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
