/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"

static int
read_text(const char *text, struct figures *f, char **error)
{
	FILE *in = fmemopen((char *)(uintptr_t)text, strlen(text), "r");
	int ret;

	assert_non_null(in);
	ret = values_read(in, f, error);
	fclose(in);
	return ret;
}

static void
reads_a_value_a_line(void **state)
{
	const struct figure *t, *s;
	struct figures f = {};
	char *error;

	(void)state;
	assert_int_equal(
	    read_text("# report B\n\n"
		      "base throughput 1920140 KiB/s higher # a run\n"
		      "other\tthroughput\t2755159\tKiB/s\thigher\n"
		      "base throughput 1920141 KiB/s higher\n"
		      "base sectors 1e3",
		&f, &error),
	    0);
	t = figures_find(&f, "throughput");
	assert_non_null(t);
	assert_string_equal(t->unit, "KiB/s");
	assert_true(t->headline);
	assert_int_equal(t->better, BETTER_HIGHER);
	assert_int_equal(t->side[SIDE_BASE].nr, 2);
	assert_true(t->side[SIDE_BASE].value[1] == 1920141);
	assert_true(t->side[SIDE_OTHER].value[0] == 2755159);
	s = figures_find(&f, "sectors");
	assert_non_null(s);
	assert_false(s->headline);
	assert_true(s->side[SIDE_BASE].value[0] == 1000);
	figures_fini(&f);
}

static void
expect_error(const char *text, const char *why)
{
	struct figures f = {};
	char *error;

	assert_int_equal(read_text(text, &f, &error), -EINVAL);
	assert_non_null(error);
	assert_string_equal(error, why);
	free(error);
	figures_fini(&f);
}

static void
says_what_is_wrong_with_a_line(void **state)
{
	static char line[5000];
	static const char needed[] =
	    "line 2: needed: base or other, a figure, its value, and perhaps a "
	    "unit, and higher or lower";

	(void)state;
	expect_error("base a 1\nbase a\n", needed);
	expect_error("base a 1\nbase a 1 b lower d\n", needed);
	expect_error("both a 1\n", "line 1: \"both\": allowed: base, other");
	expect_error("base a x\n", "line 1: a: \"x\" is not a number");
	expect_error("base a 1x\n", "line 1: a: \"1x\" is not a number");
	expect_error("base a inf\n", "line 1: a: \"inf\" is not a number");
	expect_error("# nothing\n", "no value in it");
	memset(line, 'x', sizeof(line) - 1);
	expect_error(line, "line 1: more than 4094 bytes");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		{ "reads a value a line", reads_a_value_a_line, NULL, NULL,
		    NULL },
		{ "says what is wrong with a line",
		    says_what_is_wrong_with_a_line, NULL, NULL, NULL },
	};

	return cmocka_run_group_tests_name(
	    "values of others", tests, NULL, NULL);
}
