/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compare/compare.h"

#define NR(array) (sizeof(array) / sizeof((array)[0]))
#define SAMPLE(...)                                   \
	{                                             \
		.value = (double[]){ __VA_ARGS__ },   \
		.nr = NR(((double[]){ __VA_ARGS__ })) \
	}

static char *
printed(const struct figure *f, unsigned width, unsigned height)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	plot_print(out, f, width, height);
	fclose(out);
	return text;
}

static void
assert_plot(
    const struct figure *f, unsigned width, unsigned height, const char *want)
{
	char *text = printed(f, width, height);

	assert_string_equal(text, want);
	free(text);
}

static size_t
count(const char *text, char c)
{
	size_t nr = 0;

	for (; *text != '\0'; text++)
		nr += *text == c;
	return nr;
}

/* Rows between the title and the legend, all of them this wide. */
static void
assert_rows(const char *text, unsigned width, unsigned height)
{
	const char *line = strchr(text, '\n') + 1, *end;
	unsigned rows = 0;

	for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		if (strstr(line, " * base") != NULL &&
		    strstr(line, " * base") < end)
			break;
		assert_int_equal(end - line, width);
		rows++;
	}
	assert_int_equal(rows, height);
}

static void
shows_both_sides_run_by_run(void **state)
{
	struct figure f = {
		.name = "fio.write.iops",
		.unit = "",
		.side = { SAMPLE(1920, 1930, 1910, 1925),
		    SAMPLE(2755, 2740, 2760, 1925) },
	};

	(void)state;
	assert_plot(&f, 50, 10,
	    "                  fio.write.iops\n"
	    "       3000 +------------------------------------+\n"
	    "            O                       O            |\n"
	    "            |           O                        |\n"
	    "       2500 +                                    +\n"
	    "            |                                    |\n"
	    "            |                                    |\n"
	    "       2000 *           *                        #\n"
	    "            |                       *            |\n"
	    "            |                                    |\n"
	    "       1500 +------------------------------------+\n"
	    "            * base  O other  # both\n");
}

static void
one_run_is_in_the_middle(void **state)
{
	struct figure f = {
		.name = "lat",
		.unit = "us",
		.side = { SAMPLE(5), SAMPLE(7) },
	};

	(void)state;
	assert_plot(&f, 40, 7,
	    "                lat (us)\n"
	    "          7 +-------------O------------+\n"
	    "            |                          |\n"
	    "            |                          |\n"
	    "          6 +                          +\n"
	    "            |                          |\n"
	    "            |                          |\n"
	    "          5 +-------------*------------+\n"
	    "            * base  O other  # both\n");
}

/* Where a run has no value there is a gap. */
static void
equal_values_are_a_line_in_the_middle(void **state)
{
	struct figure f = {
		.name = "ios",
		.unit = "",
		.side = { SAMPLE(1e6, 1e6, 1e6), SAMPLE(1e6, NAN, INFINITY) },
	};

	(void)state;
	assert_plot(&f, 40, 7,
	    "                  ios\n"
	    "   1.05e+06 +--------------------------+\n"
	    "            |                          |\n"
	    "            |                          |\n"
	    "      1e+06 #            *             *\n"
	    "            |                          |\n"
	    "            |                          |\n"
	    "    9.5e+05 +--------------------------+\n"
	    "            * base  O other  # both\n");
}

static void
says_when_no_run_has_a_value(void **state)
{
	struct figure f = {
		.name = "lat",
		.unit = "",
		.side = { SAMPLE(NAN, INFINITY), { .nr = 0 } },
	};

	(void)state;
	assert_plot(&f, 40, 7,
	    "                  lat\n"
	    "            no run has a value\n");
}

/* Neighbours at the axis are not the same, however near they are. */
static void
tells_near_values_apart(void **state)
{
	struct figure f = {
		.name = "near",
		.unit = "",
		.side = { SAMPLE(1000000, 1000001), SAMPLE(1000003, 1000002) },
	};
	char *text;

	(void)state;
	text = printed(&f, 40, 7);
	assert_non_null(strstr(text, "    1000004 +--"));
	assert_non_null(strstr(text, "    1000002 +"));
	assert_non_null(strstr(text, "    1000000 *--"));
	free(text);
	/* but not what only rounding does */
	f.side[SIDE_BASE].value[0] = f.side[SIDE_BASE].value[1] = 1;
	f.side[SIDE_OTHER].value[0] = f.side[SIDE_OTHER].value[1] =
	    1 + DBL_EPSILON;
	text = printed(&f, 40, 7);
	assert_non_null(strstr(text, "        1.1 +--"));
	free(text);
}

static void
more_runs_than_columns_share_them(void **state)
{
	struct figure f = { .name = "many", .unit = "" };
	char *text;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		sample_add(&f.side[SIDE_BASE], 100 + i % 7);
		sample_add(&f.side[SIDE_OTHER], 200 + i % 7);
	}
	text = printed(&f, 60, 12);
	assert_rows(text, 60, 12);
	assert_true(count(text, '*') > 48);
	assert_true(count(text, 'O') > 48);
	free(text);
	sample_fini(&f.side[SIDE_BASE]);
	sample_fini(&f.side[SIDE_OTHER]);
}

/* A row too many, a mark beside the grid: the sanitizer sees the latter. */
static void
is_as_large_as_asked_whatever_the_values(void **state)
{
	static const double hostile[] = { NAN, INFINITY, -INFINITY, DBL_MAX,
		-DBL_MAX, 0, -0.0, DBL_MIN, 5e-324, 1, -1, 1 + DBL_EPSILON,
		1e18, 1e18 + 256, 123456789.123 };
	struct rng r = rng_stream(4, 0);
	char *text;

	(void)state;
	for (unsigned n = 0; n < 2000; n++) {
		double value[8];
		struct figure f = { .name = "f", .unit = "" };
		size_t finite = 0;

		for (unsigned i = 0; i < 8; i++) {
			value[i] = hostile[rng_below(&r, NR(hostile))];
			finite += isfinite(value[i]) != 0;
		}
		f.side[SIDE_BASE].value = value;
		f.side[SIDE_BASE].nr = 4;
		f.side[SIDE_OTHER].value = value + 4;
		f.side[SIDE_OTHER].nr = 4;
		text = printed(&f, 60, 4 + n % 20);
		if (finite > 0)
			assert_rows(text, 60, 4 + n % 20);
		assert_null(strstr(text, "inf"));
		assert_null(strstr(text, "nan"));
		free(text);
	}
}

static void
has_a_least_and_a_largest_size(void **state)
{
	struct figure f = {
		.name = "a name that is longer than the plot\n is wide",
		.unit = "",
		.side = { SAMPLE(1, 2), SAMPLE(3, 4) },
	};
	char *text;

	(void)state;
	text = printed(&f, 0, 0);
	assert_memory_equal(
	    text, "a name that is longer than the plot? is", 39);
	assert_rows(text, 24, 4);
	free(text);
	text = printed(&f, UINT32_MAX, UINT32_MAX);
	assert_rows(text, 400, 100);
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shows_both_sides_run_by_run),
		cmocka_unit_test(one_run_is_in_the_middle),
		cmocka_unit_test(equal_values_are_a_line_in_the_middle),
		cmocka_unit_test(says_when_no_run_has_a_value),
		cmocka_unit_test(tells_near_values_apart),
		cmocka_unit_test(more_runs_than_columns_share_them),
		cmocka_unit_test(is_as_large_as_asked_whatever_the_values),
		cmocka_unit_test(has_a_least_and_a_largest_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
