/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "compare/compare.h"

#define SEED       9u
#define MANY       2000u /* simulated comparisons */
#define ROUNDS     6u
#define RANKED     8u /* rounds: 6 of 6 have no order that is rare enough */
#define HEADLINES  6u
#define EXPLAINING 12u

static void
assert_near(double a, double b, double by)
{
	if (!(fabs(a - b) <= by))
		fail_msg("%.12g is not %.12g", a, b);
}

/* So many runs a side that all have these values. */
static void
add_constant(struct figures *f, const char *name, enum better better,
    bool headline, unsigned nr, double base, double other)
{
	for (unsigned i = 0; i < nr; i++) {
		figures_add(f, SIDE_BASE, name, "", better, headline, base);
		figures_add(f, SIDE_OTHER, name, "", better, headline, other);
	}
}

static void
finds_a_figure_by_its_name(void **state)
{
	struct figures f = {};
	const struct figure *a;
	char name[16];

	(void)state;
	assert_null(figures_find(&f, "a"));
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		assert_int_equal(figures_add(&f, SIDE_BASE, name, "us",
				     BETTER_LOWER, i == 0, i),
		    0);
	}
	assert_int_equal(figures_add(&f, SIDE_OTHER, "f7", "ignored",
			     BETTER_HIGHER, true, 9),
	    0);
	assert_int_equal(f.nr, 500);
	a = figures_find(&f, "f7");
	assert_non_null(a);
	assert_string_equal(a->unit, "us");
	assert_int_equal(a->better, BETTER_LOWER);
	assert_false(a->headline);
	assert_int_equal(a->side[SIDE_BASE].nr, 1);
	assert_true(a->side[SIDE_OTHER].value[0] == 9);
	assert_null(figures_find(&f, "f500"));
	figures_fini(&f);
	figures_fini(&f);
}

/*
 * Two constants of n runs each have p = 2 / 4^n (sample.c): 5 runs 0.001953125,
 * 4 runs 0.0078125, 3 runs 0.03125.  Holm's: 3, 2 and 1 times that; and one
 * that is no larger than the one before has that one's.
 */
static void
corrects_by_holm_as_worked_out_by_hand(void **state)
{
	struct figures f = {};
	struct verdict v;

	(void)state;
	add_constant(&f, "three", BETTER_HIGHER, true, 3, 1, 2);
	add_constant(&f, "five", BETTER_HIGHER, true, 5, 1, 2);
	add_constant(&f, "four", BETTER_HIGHER, true, 4, 1, 2);
	v = figures_judge(&f, METHOD_WELCH, 0.01);
	assert_int_equal(v.nr_tested[0], 3);
	assert_near(figures_find(&f, "five")->p, 3 * 0.001953125, 1e-12);
	assert_near(figures_find(&f, "four")->p, 2 * 0.0078125, 1e-12);
	assert_near(figures_find(&f, "three")->p, 0.03125, 1e-12);
	assert_near(figures_find(&f, "three")->p_alone, 0.03125, 1e-12);
	assert_true(figures_find(&f, "five")->differs);
	assert_false(figures_find(&f, "four")->differs);
	assert_int_equal(v.outcome, OUTCOME_BETTER);
	assert_ptr_equal(v.decisive, figures_find(&f, "five"));

	add_constant(&f, "three again", BETTER_HIGHER, true, 3, 1, 2);
	figures_judge(&f, METHOD_WELCH, 0.01);
	assert_near(figures_find(&f, "five")->p, 4 * 0.001953125, 1e-12);
	assert_near(figures_find(&f, "four")->p, 3 * 0.0078125, 1e-12);
	assert_near(figures_find(&f, "three")->p, 2 * 0.03125, 1e-12);
	assert_near(figures_find(&f, "three again")->p, 2 * 0.03125, 1e-12);
	figures_fini(&f);
}

/* Hundreds that explain do not make the few that decide less certain. */
static void
tests_two_families(void **state)
{
	struct figures f = {};
	struct verdict v;
	char name[16];

	(void)state;
	add_constant(&f, "iops", BETTER_HIGHER, true, 5, 1, 2);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "stat%d", i);
		add_constant(&f, name, BETTER_NEITHER, false, 5, 1, 2);
	}
	v = figures_judge(&f, METHOD_WELCH, 0.01);
	assert_int_equal(v.nr_tested[0], 1);
	assert_int_equal(v.nr_tested[1], 100);
	assert_near(figures_find(&f, "iops")->p, 0.001953125, 1e-12);
	assert_near(figures_find(&f, "stat99")->p, 0.1953125, 1e-12);
	assert_int_equal(v.outcome, OUTCOME_BETTER);
	figures_fini(&f);
}

static void
does_not_count_what_cannot_differ(void **state)
{
	struct figures f = {};
	struct verdict v;

	(void)state;
	add_constant(&f, "iops", BETTER_HIGHER, true, 5, 1, 2);
	add_constant(&f, "zero", BETTER_HIGHER, true, 5, 0, 0);
	add_constant(&f, "nan", BETTER_HIGHER, true, 5, NAN, 1);
	add_constant(&f, "one run", BETTER_HIGHER, true, 1, 1, 2);
	figures_add(&f, SIDE_OTHER, "one side", "", BETTER_HIGHER, true, 1);
	v = figures_judge(&f, METHOD_WELCH, 0.01);
	assert_int_equal(v.nr_tested[0], 1);
	assert_near(figures_find(&f, "iops")->p, 0.001953125, 1e-12);
	assert_true(isnan(figures_find(&f, "zero")->p));
	assert_true(figures_find(&f, "zero")->change == 0);
	assert_true(isnan(figures_find(&f, "nan")->p));
	assert_true(isnan(figures_find(&f, "nan")->change));
	assert_true(isnan(figures_find(&f, "one run")->p));
	assert_true(figures_find(&f, "one run")->change == 1);
	assert_true(isnan(figures_find(&f, "one side")->change));
	figures_fini(&f);
}

static enum outcome
outcome_of(struct figures *f, enum method method)
{
	enum outcome outcome = figures_judge(f, method, 0.01).outcome;

	figures_fini(f);
	return outcome;
}

static void
says_better_by_what_is_better(void **state)
{
	struct figures f = {};

	(void)state;
	add_constant(&f, "iops", BETTER_HIGHER, true, 6, 100, 110);
	add_constant(&f, "lat", BETTER_LOWER, true, 6, 100, 90);
	assert_int_equal(outcome_of(&f, METHOD_WELCH), OUTCOME_BETTER);
	add_constant(&f, "iops", BETTER_HIGHER, true, 6, 100, 90);
	add_constant(&f, "lat", BETTER_LOWER, true, 6, 100, 110);
	assert_int_equal(outcome_of(&f, METHOD_WELCH), OUTCOME_WORSE);
	add_constant(&f, "iops", BETTER_HIGHER, true, 6, 100, 110);
	add_constant(&f, "lat", BETTER_LOWER, true, 6, 100, 110);
	assert_int_equal(outcome_of(&f, METHOD_WELCH), OUTCOME_MIXED);
	/* from below 0, and from 0 */
	add_constant(&f, "a", BETTER_HIGHER, true, 6, -100, -90);
	figures_judge(&f, METHOD_WELCH, 0.01);
	assert_near(figures_find(&f, "a")->change, 0.1, 1e-12);
	assert_int_equal(outcome_of(&f, METHOD_WELCH), OUTCOME_BETTER);
	add_constant(&f, "a", BETTER_LOWER, true, 6, 0, 1);
	assert_int_equal(outcome_of(&f, METHOD_WELCH), OUTCOME_WORSE);
}

/* Not by how much, but by how sure it is. */
static void
the_least_p_is_the_decisive_one(void **state)
{
	struct figures f = {};
	struct verdict v;

	(void)state;
	add_constant(&f, "much", BETTER_HIGHER, true, 5, 1, 9);
	add_constant(&f, "sure", BETTER_HIGHER, true, 8, 100, 110);
	add_constant(&f, "less", BETTER_HIGHER, true, 8, 100, 105);
	v = figures_judge(&f, METHOD_WELCH, 0.01);
	assert_ptr_equal(v.decisive, figures_find(&f, "sure"));
	/* without a p: by how much */
	v = figures_judge(&f, METHOD_LKP, 0.01);
	assert_ptr_equal(v.decisive, figures_find(&f, "much"));
	figures_fini(&f);
}

static void
what_explains_does_not_decide(void **state)
{
	struct figures f = {};
	struct verdict v;

	(void)state;
	add_constant(&f, "iops", BETTER_HIGHER, true, 6, 100, 100);
	add_constant(&f, "merges", BETTER_HIGHER, false, 6, 100, 900);
	add_constant(&f, "reads", BETTER_NEITHER, true, 6, 100, 900);
	v = figures_judge(&f, METHOD_WELCH, 0.01);
	assert_int_equal(v.outcome, OUTCOME_NONE);
	assert_true(figures_find(&f, "merges")->differs);
	assert_true(figures_find(&f, "reads")->differs);
	figures_fini(&f);
}

static void
says_when_runs_are_too_few(void **state)
{
	struct figures f = {};
	struct verdict v;

	(void)state;
	v = figures_judge(&f, METHOD_WELCH, 0.01);
	assert_int_equal(v.outcome, OUTCOME_FEW);
	assert_null(v.decisive);
	add_constant(&f, "iops", BETTER_HIGHER, true, 1, 1, 900);
	v = figures_judge(&f, METHOD_WELCH, 0.01);
	assert_int_equal(v.outcome, OUTCOME_FEW);
	assert_ptr_equal(v.decisive, figures_find(&f, "iops"));
	figures_fini(&f);
	/* three of three are apart by chance in a tenth of all cases */
	for (int i = 0; i < 3; i++) {
		figures_add(
		    &f, SIDE_BASE, "iops", "", BETTER_HIGHER, true, i + 100);
		figures_add(
		    &f, SIDE_OTHER, "iops", "", BETTER_HIGHER, true, i + 900);
	}
	v = figures_judge(&f, METHOD_MANN_WHITNEY, 0.01);
	assert_int_equal(v.outcome, OUTCOME_FEW);
	/* 2 of 252 orders is 0.008, of 70 0.03 */
	assert_int_equal(v.runs_needed, 5);
	assert_int_equal(outcome_of(&f, METHOD_WELCH), OUTCOME_BETTER);
	add_constant(&f, "iops", BETTER_HIGHER, true, 2, 1, 900);
	assert_int_equal(outcome_of(&f, METHOD_LKP), OUTCOME_FEW);
}

static void
lkp_has_no_p(void **state)
{
	struct figures f = {};
	struct verdict v;

	(void)state;
	add_constant(&f, "iops", BETTER_HIGHER, true, 3, 100, 105);
	add_constant(&f, "lat", BETTER_LOWER, true, 3, 100, 95);
	/* what does not decide has to change by a tenth */
	add_constant(&f, "merges", BETTER_NEITHER, false, 3, 100, 105);
	add_constant(&f, "splits", BETTER_NEITHER, false, 3, 100, 115);
	v = figures_judge(&f, METHOD_LKP, 0.01);
	assert_int_equal(v.outcome, OUTCOME_BETTER);
	assert_int_equal(v.nr_tested[0], 2);
	assert_int_equal(v.nr_tested[1], 2);
	assert_int_equal(v.runs_needed, 0);
	assert_true(isnan(figures_find(&f, "iops")->p));
	assert_false(figures_find(&f, "merges")->differs);
	assert_true(figures_find(&f, "splits")->differs);
	figures_fini(&f);
}

/*
 * Cohen, Statistical Power Analysis, table 2.4.1: alpha 0.05, two-sided, power
 * 0.80: d = 0.2, 0.5, 0.8, 1.0 need 393, 64, 26, 17 a side.
 */
static void
runs_needed_are_those_of_the_textbook(void **state)
{
	(void)state;
	assert_in_range(runs_for(0.2, 1, 0.05), 393, 394);
	assert_int_equal(runs_for(0.5, 1, 0.05), 64);
	assert_int_equal(runs_for(0.8, 1, 0.05), 26);
	assert_int_equal(runs_for(1.0, 1, 0.05), 17);
	assert_int_equal(runs_for(1, 0, 0.05), 2);
	assert_int_equal(runs_for(1e-9, 1, 0.05), 0);
	assert_int_equal(runs_for(1, INFINITY, 0.05), 0);
	assert_int_equal(runs_for(1, NAN, 0.05), 0);
}

/* Ranks of 6 and 6: 2 of 924, which five of a family make more than 1%. */
static void
more_figures_need_more_runs(void **state)
{
	struct figures f = {};
	struct verdict v;
	char name[16];

	(void)state;
	for (unsigned nr = 1; nr <= 5; nr++) {
		snprintf(name, sizeof(name), "f%u", nr);
		for (unsigned i = 0; i < 6; i++) {
			figures_add(&f, SIDE_BASE, name, "", BETTER_HIGHER,
			    true, 100 + i);
			figures_add(&f, SIDE_OTHER, name, "", BETTER_HIGHER,
			    true, 100.5 + i);
		}
		v = figures_judge(&f, METHOD_MANN_WHITNEY, 0.01);
		assert_int_equal(
		    v.outcome, nr < 5 ? OUTCOME_NONE : OUTCOME_FEW);
	}
	/* a stddev of 1.87, and 1% of 102.5: an effect of 0.548 */
	v = figures_judge(&f, METHOD_WELCH, 0.01);
	assert_int_equal(v.runs_needed, runs_for(1.025, sqrt(3.5), 0.01 / 5));
	assert_true(v.runs_needed > runs_for(1.025, sqrt(3.5), 0.01));
	figures_fini(&f);
}

/*
 * 99 and 101 beside 99.5 and 101.5: stddev sqrt(2), and 0.5% is seen, so it is
 * about 1% of 100.  The effect is 1 / sqrt(2): by the normal distribution
 * 2 * (2.5758 + 0.8416)^2 * 2 = 46.7 runs, and with t's one or two more.
 */
static void
tells_how_many_runs_would_show_a_percent(void **state)
{
	struct figures f = {};
	struct verdict v;

	(void)state;
	for (int i = -1; i <= 1; i += 2) {
		figures_add(
		    &f, SIDE_BASE, "a", "", BETTER_HIGHER, true, 100 + i);
		figures_add(
		    &f, SIDE_OTHER, "a", "", BETTER_HIGHER, true, 100.5 + i);
	}
	v = figures_judge(&f, METHOD_WELCH, 0.01);
	assert_int_equal(v.outcome, OUTCOME_NONE);
	assert_true(v.difference == 0.01);
	assert_in_range(v.runs_needed, 48, 50);
	/* ranks are worth 3/pi of it */
	v = figures_judge(&f, METHOD_MANN_WHITNEY, 0.01);
	assert_in_range(v.runs_needed, 50, 53);
	figures_fini(&f);
}

/* ---- what becomes of thousands of comparisons */

/* Box and Muller's. */
static double
normal(struct rng *r)
{
	double u = ((double)(rng_next(r) >> 11) + 0.5) * 0x1p-53;
	double v = (double)(rng_next(r) >> 11) * 0x1p-53;

	return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

enum noise {
	NOISE_NORMAL,
	NOISE_SKEWED,  /* log-normal: many quick runs and a slow one */
	NOISE_DRIFT,   /* autocorrelated, on a machine that warms up */
	NOISE_ROUNDED, /* of 1.5%, as fio's percentiles */
	NOISE_BLOCKS   /* NOISE_DRIFT, but base first and other then */
};

/*
 * What a figure does in the next run: 0 on average, of stddev about 1.
 * `before` is what it did in the last one.
 */
static double
noise(struct rng *r, enum noise kind, unsigned run, double *before)
{
	double x = normal(r);

	switch (kind) {
	case NOISE_SKEWED: return (exp(x) - exp(0.5)) / 2.16;
	case NOISE_DRIFT:
	case NOISE_BLOCKS:
		*before = 0.8 * *before + 0.6 * x;
		return *before + 0.1 * run;
	default: return x;
	}
}

/* The figures of a comparison, without values. */
static void
make_figures(struct figures *f)
{
	char name[16];

	for (unsigned i = 0; i < HEADLINES + EXPLAINING; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		figures_add(
		    f, SIDE_BASE, name, "", BETTER_HIGHER, i < HEADLINES, 0);
	}
}

/*
 * One comparison, in ABBA order.  Headline figures hang together, as IOPS and
 * latency do; what explains does not.  Its spread is 2%.
 */
static struct verdict
simulate(struct figures *f, struct rng *r, enum noise kind, enum method method,
    double shift)
{
	double before[1 + EXPLAINING], machine, value;
	unsigned rounds = method == METHOD_MANN_WHITNEY ? RANKED : ROUNDS;
	enum side side;

	for (unsigned i = 0; i <= EXPLAINING; i++)
		before[i] = normal(r);
	for (size_t i = 0; i < f->nr; i++)
		f->figure[i].side[SIDE_BASE].nr =
		    f->figure[i].side[SIDE_OTHER].nr = 0;
	for (unsigned run = 0; run < 2 * rounds; run++) {
		side = run % 4 == 1 || run % 4 == 2 ? SIDE_OTHER : SIDE_BASE;
		if (kind == NOISE_BLOCKS)
			side = run < rounds ? SIDE_BASE : SIDE_OTHER;
		machine = noise(r, kind, run, &before[EXPLAINING]);
		for (unsigned i = 0; i < HEADLINES + EXPLAINING; i++) {
			bool headline = i < HEADLINES;

			value = headline ? 0.9 * machine + 0.44 * normal(r)
					 : noise(r, kind, run,
					       &before[i - HEADLINES]);
			value = 1000 * (1 + 0.02 * value);
			if (side == SIDE_OTHER)
				value *= 1 + shift;
			if (kind == NOISE_ROUNDED)
				value = 15 * round(value / 15);
			sample_add(&f->figure[i].side[side], value);
		}
	}
	return figures_judge(f, method, ALPHA_DEFAULT);
}

/* How many of MANY see a difference; of what explains, too. */
static unsigned
count_seen(
    enum noise kind, enum method method, double shift, unsigned *explaining)
{
	struct rng r = rng_stream(SEED, kind);
	struct figures f = {};
	unsigned seen = 0;
	bool any;

	*explaining = 0;
	make_figures(&f);
	for (unsigned n = 0; n < MANY; n++) {
		seen += simulate(&f, &r, kind, method, shift).outcome !=
			OUTCOME_NONE;
		any = false;
		for (size_t i = 0; i < f.nr; i++)
			any |= !f.figure[i].headline && f.figure[i].differs;
		*explaining += any;
	}
	figures_fini(&f);
	print_message("seed %u noise %u method %u shift %g: %u of %u, what "
		      "explains: %u\n",
	    SEED, kind, method, shift, seen, MANY, *explaining);
	return seen;
}

/* 1% of 2000 is 20, give or take 4.5: more than 35 is no chance. */
static void
equal_sides_are_seldom_said_to_differ(void **state)
{
	unsigned explaining;

	(void)state;
	for (enum noise kind = NOISE_NORMAL; kind <= NOISE_ROUNDED; kind++) {
		assert_true(
		    count_seen(kind, METHOD_WELCH, 0, &explaining) <= 35);
		assert_true(explaining <= 35);
		assert_true(count_seen(kind, METHOD_MANN_WHITNEY, 0,
				&explaining) <= 35);
		assert_true(explaining <= 35);
	}
}

/* So runs take turns: one side after the other, the drift is a difference. */
static void
a_drift_is_one_when_sides_do_not_take_turns(void **state)
{
	unsigned explaining;

	(void)state;
	assert_true(
	    count_seen(NOISE_BLOCKS, METHOD_WELCH, 0, &explaining) > MANY / 10);
}

/* Without a correction they would be: 12 times 1% of what explains alone. */
static void
the_simulation_would_show_a_missing_correction(void **state)
{
	struct rng r = rng_stream(SEED, 0);
	struct figures f = {};
	unsigned seen = 0;
	bool any;

	(void)state;
	make_figures(&f);
	for (unsigned n = 0; n < MANY / 4; n++) {
		simulate(&f, &r, NOISE_NORMAL, METHOD_WELCH, 0);
		any = false;
		for (size_t i = 0; i < f.nr; i++)
			any |= f.figure[i].p_alone < ALPHA_DEFAULT;
		seen += any;
	}
	figures_fini(&f);
	assert_true(seen > MANY / 4 / 12);
}

/* A tenth, with a spread of 2%. */
static void
a_tenth_is_nearly_always_found(void **state)
{
	unsigned explaining;

	(void)state;
	assert_true(count_seen(NOISE_NORMAL, METHOD_WELCH, 0.1, &explaining) >=
		    MANY * 99 / 100);
	assert_true(count_seen(NOISE_ROUNDED, METHOD_WELCH, 0.1, &explaining) >=
		    MANY * 99 / 100);
	assert_true(count_seen(NOISE_DRIFT, METHOD_WELCH, 0.1, &explaining) >=
		    MANY * 95 / 100);
}

/* figure.c says how often lkp's rule does, with three runs: it is no test. */
static void
lkp_sees_changes_by_chance(void **state)
{
	struct rng r = rng_stream(SEED, 100);
	unsigned seen = 0;

	(void)state;
	for (unsigned n = 0; n < MANY; n++) {
		double value[6];
		struct sample a = { .value = value, .nr = 3 };
		struct sample b = { .value = value + 3, .nr = 3 };

		for (unsigned i = 0; i < 6; i++)
			value[i] = exp(10 * normal(&r));
		seen += sample_lkp_differs(&a, &b);
	}
	assert_in_range(seen, MANY / 5 - 60, MANY / 5 + 60);
}

static void
is_at_ease_with_any_numbers(void **state)
{
	static const double hostile[] = { NAN, INFINITY, -INFINITY, DBL_MAX,
		-DBL_MAX, 0, -0.0, DBL_MIN, 5e-324, 1, -1, 1e18 };
	struct rng r = rng_stream(SEED, 200);
	struct figures f = {};
	struct verdict v;
	char name[16];

	(void)state;
	for (unsigned n = 0; n < 300; n++) {
		for (unsigned i = 0; i < 60; i++) {
			snprintf(name, sizeof(name), "f%u",
			    (unsigned)rng_below(&r, 8));
			figures_add(&f, (enum side)rng_below(&r, NR_SIDES),
			    name, "", (enum better)rng_below(&r, 3),
			    rng_below(&r, 2) == 0,
			    hostile[rng_below(
				&r, sizeof(hostile) / sizeof(hostile[0]))]);
		}
		for (enum method m = METHOD_WELCH; m <= METHOD_LKP; m++) {
			v = figures_judge(&f, m, 0.01);
			assert_in_range(v.outcome, 0, OUTCOME_FEW);
			for (size_t i = 0; i < f.nr; i++)
				assert_true(
				    isnan(f.figure[i].p) ||
				    (f.figure[i].p >= f.figure[i].p_alone &&
					f.figure[i].p_alone >= 0 &&
					f.figure[i].p <= 1));
		}
		figures_fini(&f);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_a_figure_by_its_name),
		cmocka_unit_test(corrects_by_holm_as_worked_out_by_hand),
		cmocka_unit_test(tests_two_families),
		cmocka_unit_test(does_not_count_what_cannot_differ),
		cmocka_unit_test(says_better_by_what_is_better),
		cmocka_unit_test(the_least_p_is_the_decisive_one),
		cmocka_unit_test(what_explains_does_not_decide),
		cmocka_unit_test(says_when_runs_are_too_few),
		cmocka_unit_test(lkp_has_no_p),
		cmocka_unit_test(runs_needed_are_those_of_the_textbook),
		cmocka_unit_test(more_figures_need_more_runs),
		cmocka_unit_test(tells_how_many_runs_would_show_a_percent),
		cmocka_unit_test(equal_sides_are_seldom_said_to_differ),
		cmocka_unit_test(a_drift_is_one_when_sides_do_not_take_turns),
		cmocka_unit_test(
		    the_simulation_would_show_a_missing_correction),
		cmocka_unit_test(a_tenth_is_nearly_always_found),
		cmocka_unit_test(lkp_sees_changes_by_chance),
		cmocka_unit_test(is_at_ease_with_any_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
