/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "compare/compare.h"

#define NR(array) (sizeof(array) / sizeof((array)[0]))
/* A sample that is not freed. */
#define SAMPLE(...)                                            \
	(&(struct sample){ .value = (double[]){ __VA_ARGS__ }, \
	    .nr = NR(((double[]){ __VA_ARGS__ })) })

static void
assert_near(double a, double b, double by)
{
	if (!(fabs(a - b) <= by))
		fail_msg("%.12g is not %.12g", a, b);
}

/* Both ways round it is the same. */
static void
assert_welch(
    const struct sample *a, const struct sample *b, double p, double by)
{
	assert_near(sample_welch(a, b), p, by);
	assert_near(sample_welch(b, a), p, by);
}

static void
assert_ranks(
    const struct sample *a, const struct sample *b, double p, double by)
{
	assert_near(sample_mann_whitney(a, b), p, by);
	assert_near(sample_mann_whitney(b, a), p, by);
}

static void
keeps_values_in_their_order(void **state)
{
	struct sample s = {};

	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(sample_add(&s, 1000 - i), 0);
	assert_int_equal(s.nr, 1000);
	assert_int_equal(sample_count(&s), 1000);
	for (int i = 0; i < 1000; i++)
		assert_true(s.value[i] == 1000 - i);
	sample_fini(&s);
	assert_null(s.value);
	assert_int_equal(s.nr, 0);
	sample_fini(&s);
}

/* 2 4 4 4 5 5 7 9: mean 5, squares 9+1+1+1+0+0+4+16 = 32, of 7 */
static void
tells_mean_and_spread(void **state)
{
	struct sample *s = SAMPLE(2, 4, 4, 4, 5, 5, 7, 9);

	(void)state;
	assert_true(sample_mean(s) == 5);
	assert_near(sample_stddev(s), sqrt(32. / 7), 1e-15);
	/* added up as doubles, they have a mean that is not quite 0.1 */
	assert_true(sample_stddev(SAMPLE(0.1, 0.1, 0.1)) == 0);
	assert_true(sample_stddev(SAMPLE(7)) == 0);
	assert_true(sample_mean(SAMPLE(7)) == 7);
}

/* R's type 7: 1 2 4 8, h = 3p */
static void
finds_quantiles_between_ranks(void **state)
{
	struct sample *s = SAMPLE(8, 1, 4, 2);

	(void)state;
	assert_true(sample_quantile(s, 0) == 1);
	assert_true(sample_quantile(s, 0.25) == 1.75);
	assert_true(sample_quantile(s, 0.5) == 3);
	assert_true(sample_quantile(s, 0.75) == 5);
	assert_true(sample_quantile(s, 1) == 8);
	assert_true(sample_quantile(s, -1) == 1);
	assert_true(sample_quantile(s, 2) == 8);
	assert_true(sample_quantile(s, NAN) == 1);
	assert_true(sample_quantile(SAMPLE(3, 3, 3), 0.3) == 3);
}

static void
does_not_count_a_run_without_a_value(void **state)
{
	struct sample *s = SAMPLE(NAN, 1, INFINITY, 3, -INFINITY);
	struct sample none = {};

	(void)state;
	assert_int_equal(sample_count(s), 2);
	assert_true(sample_mean(s) == 2);
	assert_near(sample_stddev(s), M_SQRT2, 1e-15);
	assert_true(sample_quantile(s, 1) == 3);
	assert_welch(
	    s, SAMPLE(5, 7), sample_welch(SAMPLE(1, 3), SAMPLE(5, 7)), 0);
	assert_ranks(s, SAMPLE(5, 7), 2. / 6, 1e-12);
	assert_false(
	    sample_lkp_differs(SAMPLE(NAN, NAN, NAN), SAMPLE(1, 1, 1)));
	assert_true(sample_mean(&none) == 0);
	assert_true(sample_stddev(&none) == 0);
	assert_true(sample_quantile(&none, 0.5) == 0);
}

static void
does_not_overflow(void **state)
{
	struct sample *s = SAMPLE(DBL_MAX, DBL_MAX, -DBL_MAX, -DBL_MAX);
	struct sample *small = SAMPLE(5e-324, 1e-323, 1.5e-323);

	(void)state;
	assert_true(sample_mean(s) == 0);
	/* 2 / sqrt(3) of it is more than a double holds */
	assert_true(isinf(sample_stddev(s)));
	assert_near(
	    sample_stddev(SAMPLE(1e300, 3e300)) / 1e300, M_SQRT2, 1e-12);
	assert_true(sample_quantile(s, 0.5) == 0);
	assert_near(sample_welch(s, s), 1, 0);
	assert_true(sample_welch(s, small) > 0.9);
	assert_true(isfinite(sample_mann_whitney(s, small)));
	assert_true(sample_welch(small, SAMPLE(1, 2, 3)) < 0.1);
}

/*
 * With two degrees of freedom the two-sided p is 1 - t / sqrt(t^2 + 2).
 *
 * 1 3 beside 5 7: both variances are 2, t = 4 / sqrt(2/2 + 2/2) = sqrt(8), and
 * df = (1 + 1)^2 / (1/1 + 1/1) = 2: p = 1 - sqrt(8 / 10) = 0.105573.
 */
static void
welch_is_as_worked_out_by_hand(void **state)
{
	(void)state;
	assert_welch(SAMPLE(1, 3), SAMPLE(5, 7), 1 - sqrt(0.8), 1e-12);
	/* as a table of t has it: t = 1 at 8 degrees */
	assert_welch(
	    SAMPLE(1, 2, 3, 4, 5), SAMPLE(6, 5, 4, 3, 2), 0.346594, 1e-6);
}

/* R: t.test(extra ~ group, data = sleep): t = -1.8608, df = 17.776 */
static struct sample *
sleep_1(void)
{
	static double value[] = { 0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0,
		2 };
	static struct sample s = { .value = value, .nr = NR(value) };

	return &s;
}

static struct sample *
sleep_2(void)
{
	static double value[] = { 1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6,
		3.4 };
	static struct sample s = { .value = value, .nr = NR(value) };

	return &s;
}

static void
welch_agrees_with_r(void **state)
{
	(void)state;
	assert_welch(sleep_1(), sleep_2(), 0.07939, 0.000005);
}

/*
 * 4 4 4 beside 6 8 10: the variances are 0 and 4, t = 4 / sqrt(4 / 3), so
 * t^2 = 12, and df = 2 are those of the second: p = 1 - sqrt(12 / 14).
 */
static void
welch_takes_the_spread_of_one_side(void **state)
{
	(void)state;
	assert_welch(
	    SAMPLE(4, 4, 4), SAMPLE(6, 8, 10), 1 - sqrt(12. / 14), 1e-12);
}

/* 2 * (1/2)^6, 2 * (1/2)^12; of 2 and 6: 2 * (1/4)^2 * (3/4)^6 */
static void
welch_says_how_probable_two_constants_are(void **state)
{
	(void)state;
	assert_welch(SAMPLE(1, 1, 1), SAMPLE(2, 2, 2), 1. / 32, 1e-15);
	assert_welch(SAMPLE(1, 1, 1, 1, 1, 1), SAMPLE(9, 9, 9, 9, 9, 9),
	    1. / 2048, 1e-15);
	assert_welch(
	    SAMPLE(1, 1), SAMPLE(0, 0, 0, 0, 0, 0), 729. / 32768, 1e-12);
	assert_welch(SAMPLE(5, 5, 5), SAMPLE(5, 5), 1, 0);
	/* they are the same but for how they were added up */
	assert_welch(SAMPLE(0.3, 0.3), SAMPLE(0.1 + 0.2, 0.1 + 0.2), 1, 0);
}

static void
fewer_than_two_values_prove_nothing(void **state)
{
	struct sample none = {};

	(void)state;
	assert_welch(&none, &none, 1, 0);
	assert_welch(SAMPLE(1), SAMPLE(100, 101, 102), 1, 0);
	assert_welch(SAMPLE(1, NAN), SAMPLE(100, 101, 102), 1, 0);
	assert_ranks(&none, SAMPLE(1, 2), 1, 0);
	assert_ranks(SAMPLE(1), SAMPLE(100, 101, 102), 1, 0);
	assert_false(sample_lkp_differs(&none, SAMPLE(1, 2, 3)));
	assert_false(sample_lkp_differs(SAMPLE(1, 2, 3), &none));
}

/*
 * Three and three values have 20 orders.  All of one side first: 1 of them has
 * U = 0, and 1 U = 1 (the last of one and the first of the other changed over):
 * two-sided 2/20 and 4/20.
 */
static void
ranks_are_counted_by_hand(void **state)
{
	(void)state;
	assert_ranks(SAMPLE(1, 2, 3), SAMPLE(4, 5, 6), 0.1, 1e-15);
	assert_ranks(SAMPLE(1, 2, 4), SAMPLE(3, 5, 6), 0.2, 1e-15);
	/* half of 9 pairs cannot be won: both sides of the middle are 1 */
	assert_ranks(SAMPLE(1, 4, 5), SAMPLE(2, 3, 6), 1, 1e-15);
	/* 6 and 6: 924 orders */
	assert_ranks(SAMPLE(1, 2, 3, 4, 5, 6), SAMPLE(17, 12, 13, 14, 15, 16),
	    2. / 924, 1e-15);
	assert_near(mann_whitney_least(3, 3), 0.1, 1e-15);
	assert_near(mann_whitney_least(6, 6), 2. / 924, 1e-15);
	assert_near(mann_whitney_least(2, 5), 2. / 21, 1e-15);
	assert_true(mann_whitney_least(0, 0) == 1);
}

/*
 * From the manual of R's wilcox.test: permeability constants, W = 35, exact,
 * one-sided p = 0.1272; and the sleep data (W = 25.5, ties, two-sided).
 */
static void
ranks_agree_with_r(void **state)
{
	struct sample *x =
	    SAMPLE(0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46);
	struct sample *y = SAMPLE(1.15, 0.88, 0.90, 0.74, 1.21);

	(void)state;
	assert_ranks(x, y, 2 * 0.1272, 0.0001);
	assert_ranks(sleep_1(), sleep_2(), 0.06933, 0.000005);
}

/* airquality: wilcox.test(Ozone ~ Month, Month %in% c(5, 8)): W = 127.5 */
static void
ranks_agree_with_r_where_values_are_missing(void **state)
{
	struct sample *may = SAMPLE(41, 36, 12, 18, NAN, 28, 23, 19, 8, NAN, 7,
	    16, 11, 14, 18, 14, 34, 6, 30, 11, 1, 11, 4, 32, NAN, NAN, NAN, 23,
	    45, 115, 37);
	struct sample *august = SAMPLE(39, 9, 16, 78, 35, 66, 122, 89, 110, NAN,
	    NAN, 44, 28, 65, NAN, 22, 59, 23, 31, 44, 21, 9, NAN, 45, 168, 73,
	    NAN, 76, 118, 84, 85);

	(void)state;
	assert_ranks(may, august, 0.0001208, 0.00000005);
}

/* Where counting ends the normal distribution goes on. */
static void
ranks_of_many_are_approximated(void **state)
{
	struct sample a = {}, b = {};
	double p_exact, p_many;

	(void)state;
	for (int i = 0; i < 25; i++) {
		sample_add(&a, 2 * i);
		sample_add(&b, 2 * i + 9);
	}
	p_exact = sample_mann_whitney(&a, &b);
	sample_add(&a, 24.5);
	p_many = sample_mann_whitney(&a, &b);
	assert_near(sample_mann_whitney(&b, &a), p_many, 1e-12);
	assert_true(p_exact > 0.01 && p_exact < 0.06);
	assert_near(p_many, p_exact, 0.01);
	sample_fini(&a);
	sample_fini(&b);
}

static void
ranks_that_are_all_tied_prove_nothing(void **state)
{
	(void)state;
	assert_ranks(SAMPLE(1, 1, 1), SAMPLE(1, 1, 1), 1, 0);
	assert_true(
	    sample_mann_whitney(SAMPLE(1, 1, 1), SAMPLE(2, 2, 2)) < 0.1);
}

static void
assert_lkp(const struct sample *a, const struct sample *b, bool differs)
{
	assert_int_equal(sample_lkp_differs(a, b), differs);
	assert_int_equal(sample_lkp_differs(b, a), differs);
}

/* The lowest above the other's middle, the middle above the other's highest. */
static void
lkp_compares_the_middle_with_the_ends(void **state)
{
	(void)state;
	assert_lkp(SAMPLE(10, 20, 30), SAMPLE(25, 35, 45), true);
	assert_lkp(SAMPLE(10, 20, 30), SAMPLE(20, 35, 45), false);
	assert_lkp(SAMPLE(10, 20, 30), SAMPLE(25, 30, 45), false);
	assert_lkp(SAMPLE(10, 20, 30), SAMPLE(21, 31, 32), true);
	/* of an even number the middle is the upper one */
	assert_lkp(SAMPLE(10, 20, 25, 30), SAMPLE(24, 35, 35, 45), false);
	assert_lkp(SAMPLE(10, 20, 25, 30), SAMPLE(26, 29, 35, 45), true);
}

static void
lkp_wants_three_runs_of_a_side_and_a_percent(void **state)
{
	(void)state;
	assert_lkp(SAMPLE(1, 2), SAMPLE(11, 12), false);
	assert_lkp(SAMPLE(1, 2, 3), SAMPLE(11), true);
	assert_lkp(SAMPLE(1000, 1000, 1000), SAMPLE(1010, 1010, 1010), false);
	assert_lkp(SAMPLE(1000, 1000, 1000), SAMPLE(1011, 1011, 1011), true);
	assert_lkp(SAMPLE(0, 0, 0), SAMPLE(1, 1, 1), true);
}

/* One of 32 is left out at either end. */
static void
lkp_leaves_out_the_ends_of_many(void **state)
{
	struct sample a = {}, b = {};

	(void)state;
	for (int i = 0; i < 32; i++) {
		sample_add(&a, 100 + i);
		sample_add(&b, i == 0 ? 1 : 200 + i);
	}
	assert_lkp(&a, &b, true);
	b.value[1] = 1;
	assert_lkp(&a, &b, false);
	sample_fini(&a);
	sample_fini(&b);
}

/* Three at most; one beside a base of three. */
static void
lkp_leaves_out_few(void **state)
{
	struct sample a = {}, b = {};

	(void)state;
	for (int i = 0; i < 160; i++) {
		sample_add(&a, 100);
		sample_add(&b, i < 3 ? 1 : 200);
	}
	assert_lkp(&a, &b, true);
	b.value[3] = 1; /* a fourth; 160 / 32 would be five */
	assert_lkp(&a, &b, false);
	a.nr = 3;
	b.nr = 64;
	b.value[2] = b.value[3] = 200;
	assert_false(sample_lkp_differs(&a, &b));
	a.nr = 4;
	assert_true(sample_lkp_differs(&a, &b));
	sample_fini(&a);
	sample_fini(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_values_in_their_order),
		cmocka_unit_test(tells_mean_and_spread),
		cmocka_unit_test(finds_quantiles_between_ranks),
		cmocka_unit_test(does_not_count_a_run_without_a_value),
		cmocka_unit_test(does_not_overflow),
		cmocka_unit_test(welch_is_as_worked_out_by_hand),
		cmocka_unit_test(welch_agrees_with_r),
		cmocka_unit_test(welch_takes_the_spread_of_one_side),
		cmocka_unit_test(welch_says_how_probable_two_constants_are),
		cmocka_unit_test(fewer_than_two_values_prove_nothing),
		cmocka_unit_test(ranks_are_counted_by_hand),
		cmocka_unit_test(ranks_agree_with_r),
		cmocka_unit_test(ranks_agree_with_r_where_values_are_missing),
		cmocka_unit_test(ranks_of_many_are_approximated),
		cmocka_unit_test(ranks_that_are_all_tied_prove_nothing),
		cmocka_unit_test(lkp_compares_the_middle_with_the_ends),
		cmocka_unit_test(lkp_wants_three_runs_of_a_side_and_a_percent),
		cmocka_unit_test(lkp_leaves_out_the_ends_of_many),
		cmocka_unit_test(lkp_leaves_out_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
