/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"

static char *text;
static size_t len;

/* A picture of 100 x 100 pixels, from 10 to 110, of 0 to 10 each way. */
static struct svg
drawing(void)
{
	struct svg s = { .left = 10,
		.top = 10,
		.width = 100,
		.height = 100,
		.x = { .from = 0, .to = 10 },
		.y = { .from = 0, .to = 10 } };

	free(text);
	text = NULL;
	s.out = open_memstream(&text, &len);
	assert_non_null(s.out);
	return s;
}

static unsigned
count(const char *what)
{
	const char *p = text;
	unsigned nr = 0;

	while ((p = strstr(p, what)) != NULL) {
		nr++;
		p++;
	}
	return nr;
}

static void
escapes_what_html_takes_for_its_own(void **state)
{
	struct svg s = drawing();

	(void)state;
	svg_text(s.out, "<a href=\"x\">'&'\n\x01\x7f\xc3\xa9");
	svg_text(s.out, NULL);
	fclose(s.out);
	assert_string_equal(
	    text, "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;\n??\xc3\xa9");
}

static void
draws_points_where_they_belong(void **state)
{
	static const double x[] = { 0, 5, NAN, 10, 20 };
	static const double y[] = { 0, 5, 5, 10, 20 };
	struct svg s = drawing();

	(void)state;
	svg_line(&s, "base", x, y, 5);
	fclose(s.out);
	/* up is less; what is beyond is at the edge, and no point twice */
	assert_string_equal(text,
	    "<path class=\"line base\" d=\"M10.0 110.0L60.0 60.0L110.0 10.0"
	    "L110.0 10.0\"/>\n");
}

static void
leaves_out_points_on_the_last_one(void **state)
{
	double x[10001], y[10001];
	struct svg s = drawing();
	unsigned i;

	(void)state;
	for (i = 0; i <= 10000; i++) {
		x[i] = i / 1000.;
		y[i] = 5;
	}
	svg_line(&s, "base", x, y, 10001);
	fclose(s.out);
	assert_in_range(count("L"), 100, 126);
	assert_int_equal(count("L110.0 60.0"), 1);
}

static void
draws_nothing_of_no_points(void **state)
{
	struct svg s = drawing();
	struct sample none = {};
	struct heat *h = calloc(1, sizeof(*h));
	double nan = NAN;

	(void)state;
	svg_line(&s, "base", NULL, NULL, 0);
	svg_line(&s, "base", &nan, &nan, 1);
	svg_box(&s, "base", &none, 50);
	svg_heat(&s, h);
	fclose(s.out);
	assert_int_equal(len, 0);
	free(h);
}

static void
numbers_its_axes(void **state)
{
	struct svg s = drawing();

	(void)state;
	svg_axis_y(&s, "things");
	s.y = (struct svg_axis){
		.from = 900, .to = 2000000, .is_log = true, .is_time = true
	};
	svg_axis_y(&s, "time");
	fclose(s.out);
	assert_int_equal(count(">0</text>"), 1);
	assert_int_equal(count(">2</text>"), 1);
	assert_int_equal(count(">10</text>"), 1);
	assert_int_equal(count(">1 us</text>"), 1);
	assert_int_equal(count(">1 ms</text>"), 1);
	assert_int_equal(count(">10 ms</text>"), 0);
	assert_int_equal(count(">things</text>"), 1);
}

static void
fits_any_values(void **state)
{
	static const double range[][2] = { { 0, 0 }, { 5, 5 }, { -3, -3 },
		{ NAN, 1 }, { 2, 1 }, { INFINITY, -INFINITY }, { 0, 1e300 },
		{ 1e-300, 2e-300 }, { 1e15, 1e15 + 1 } };
	struct svg s = drawing();
	struct svg_axis a = {};
	unsigned i;

	(void)state;
	for (i = 0; i < 2 * sizeof(range) / sizeof(*range); i++) {
		a = (struct svg_axis){ .is_log = i % 2 };
		svg_axis_fit(&a, range[i / 2][0], range[i / 2][1]);
		assert_true(isfinite(a.from));
		assert_true(isfinite(a.to));
		assert_true(a.from < a.to);
		s.x = s.y = a;
		svg_axis_x(&s, ""); /* and ends */
		svg_axis_y(&s, "");
	}
	fclose(s.out);
	assert_int_equal(count("nan"), 0);
	assert_int_equal(count("inf"), 0);
}

static void
makes_what_is_hot_dark(void **state)
{
	struct svg s = drawing();
	struct heat *h = calloc(1, sizeof(*h));

	(void)state;
	assert_int_equal(svg_heat_level(0, 100), 0);
	assert_int_equal(svg_heat_level(1, 1000000), 1);
	assert_int_equal(svg_heat_level(25, 100), 3);
	assert_int_equal(svg_heat_level(100, 100), SVG_HEAT_LEVELS);
	h->count[0][0] = h->count[0][1] = 100;
	h->count[3][HEAT_COLUMNS - 1] = 1;
	svg_heat(&s, h);
	fclose(s.out);
	/* neighbours are one piece; the first row is at the bottom */
	assert_int_equal(count("M"), 2);
	assert_int_equal(count("M10.0 108.4h2.1v1.6h-2.1z"), 1);
	free(h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		{ "escapes what HTML takes for its own",
		    escapes_what_html_takes_for_its_own, NULL, NULL, NULL },
		{ "draws points where they belong",
		    draws_points_where_they_belong, NULL, NULL, NULL },
		{ "leaves out points on the last one",
		    leaves_out_points_on_the_last_one, NULL, NULL, NULL },
		{ "draws nothing of no points", draws_nothing_of_no_points,
		    NULL, NULL, NULL },
		{ "numbers its axes", numbers_its_axes, NULL, NULL, NULL },
		{ "fits any values", fits_any_values, NULL, NULL, NULL },
		{ "makes what is hot dark", makes_what_is_hot_dark, NULL, NULL,
		    NULL },
	};
	int ret = cmocka_run_group_tests_name("pictures", tests, NULL, NULL);

	free(text);
	return ret;
}
