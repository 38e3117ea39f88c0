/* SPDX-License-Identifier: MIT */
/* How a power cut is asked for, and what is said of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>

#include "ctl/ctl.h"

static char err[256];

static int
parse(const char *text, struct cut_conf *c)
{
	json_t *request = json_loads(text, 0, NULL);
	int ret;

	assert_non_null(request);
	err[0] = '\0';
	ret = cut_parse(request, 7, c, err, sizeof(err));
	json_decref(request);
	return ret;
}

static void
all_is_lost_at_once_unless_it_says_so(void **state)
{
	struct cut_conf c, other;

	(void)state;
	assert_int_equal(parse("{}", &c), 0);
	assert_int_equal(c.lose, CUT_ALL);
	assert_int_equal(c.tear, 0);
	assert_int_equal(c.at, 0);
	assert_false(c.on);
	assert_int_not_equal(c.seed, 0); /* it is told, to repeat the run */
	assert_int_equal(parse("{}", &other), 0);
	assert_int_equal(other.seed, c.seed); /* of the time alone */
}

static void
each_member_is_taken(void **state)
{
	struct cut_conf c;

	(void)state;
	assert_int_equal(parse("{\"lose\":\"random\",\"tear\":\"512\","
			       "\"seed\":3,\"at\":9,\"on\":true}",
			     &c),
	    0);
	assert_int_equal(c.lose, CUT_RANDOM);
	assert_int_equal(c.tear, 512);
	assert_int_equal(c.seed, 3);
	assert_int_equal(c.at, 9);
	assert_true(c.on);
	assert_int_equal(parse("{\"lose\":\"ordered\",\"tear\":\"4096\","
			       "\"seed\":9223372036854775807,\"on\":false}",
			     &c),
	    0);
	assert_int_equal(c.lose, CUT_ORDERED);
	assert_int_equal(c.tear, 4096);
	assert_int_equal(c.seed, INT64_MAX);
	assert_false(c.on);
	assert_int_equal(parse("{\"lose\":\"all\",\"tear\":\"none\"}", &c), 0);
	assert_int_equal(c.lose, CUT_ALL);
	assert_int_equal(c.tear, 0);
}

static void
what_is_wrong_is_named(void **state)
{
	static const struct {
		const char *request, *error;
	} wrong[] = {
		{ "{\"lose\":\"some\"}",
		    "lose: \"some\": allowed: all, random, ordered" },
		{ "{\"lose\":1}",
		    "lose: not a string; allowed: all, random, ordered" },
		{ "{\"tear\":\"1024\"}",
		    "tear: \"1024\": allowed: none, 512, 4096" },
		{ "{\"tear\":512}",
		    "tear: not a string; allowed: none, 512, 4096" },
		{ "{\"seed\":0}", "seed: allowed: a number from 1 to "
				  "9223372036854775807" },
		{ "{\"seed\":\"x\"}", "seed: allowed: a number from 1 to "
				      "9223372036854775807" },
		{ "{\"at\":-1}", "at: allowed: a number from 1 to "
				 "9223372036854775807" },
		{ "{\"at\":1.5}", "at: allowed: a number from 1 to "
				  "9223372036854775807" },
		{ "{\"on\":1}", "on: allowed: true, false" },
	};
	struct cut_conf c;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(parse(wrong[i].request, &c), -EINVAL);
		assert_string_equal(err, wrong[i].error);
	}
}

static void
its_outcome_is_told(void **state)
{
	static const struct cut_report report = {
		.writes = 12,
		.lost = 7,
		.torn = 1,
		.seed = 42,
	};
	json_t *told = cut_pack(&report), *want;

	(void)state;
	want = json_loads(
	    "{\"writes\":12,\"lost\":7,\"torn\":1,\"seed\":42}", 0, NULL);
	assert_true(json_equal(told, want));
	json_decref(told);
	json_decref(want);
}

static void
what_went_wrong_is_told(void **state)
{
	struct cut_report report = { .error = -ENOSPC };
	json_t *told = cut_pack(&report);

	(void)state;
	assert_string_equal(json_string_value(json_object_get(told, "error")),
	    "No space left on device");
	json_decref(told);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_is_lost_at_once_unless_it_says_so),
		cmocka_unit_test(each_member_is_taken),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(what_went_wrong_is_told),
		cmocka_unit_test(its_outcome_is_told),
	};

	return cmocka_run_group_tests_name("cut", tests, NULL, NULL);
}
