/* SPDX-License-Identifier: MIT */
/*
 * The values of one figure on one side, and whether two of them differ.
 *
 * A value that is not finite is a run that has none: it keeps its place, so
 * that a plot shows a gap there, and no statistic counts it.  Sums are long
 * doubles: a square of any double fits.
 *
 * Samples are a few dozen runs, so ranks are counted pair by pair: nothing is
 * copied or sorted, and nothing here can fail.
 */
#include "compare/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include <gsl/gsl_cdf.h>

#define FIRST_ROOM 16u
#define MAX_EXACT  25u /* values a side: C(50, 25) is exact in a double */
/* Means that are this close differ by how they were rounded. */
#define ROUNDING 1e-12

void
sample_fini(struct sample *s)
{
	free(s->value);
	*s = (struct sample){};
}

int
sample_add(struct sample *s, double value)
{
	size_t max = s->max != 0 ? 2 * s->max : FIRST_ROOM;
	double *p;

	if (s->nr == s->max) {
		p = reallocarray(s->value, max, sizeof(*p));
		if (p == NULL)
			return -ENOMEM;
		s->value = p;
		s->max = max;
	}
	s->value[s->nr++] = value;
	return 0;
}

size_t
sample_count(const struct sample *s)
{
	size_t nr = 0;

	for (size_t i = 0; i < s->nr; i++)
		nr += isfinite(s->value[i]);
	return nr;
}

static long double
mean_of(const struct sample *s)
{
	size_t nr = sample_count(s);
	long double sum = 0;

	for (size_t i = 0; i < s->nr; i++)
		if (isfinite(s->value[i]))
			sum += s->value[i];
	return nr != 0 ? sum / nr : 0;
}

/*
 * Of a population that these are drawn from.  Of equal doubles it is exactly 0:
 * a long double holds the sum of 2048 of them.
 */
static long double
variance_of(const struct sample *s)
{
	long double mean = mean_of(s), sum = 0, d;
	size_t nr = sample_count(s);

	for (size_t i = 0; i < s->nr; i++) {
		if (!isfinite(s->value[i]))
			continue;
		d = s->value[i] - mean;
		sum += d * d;
	}
	return nr < 2 ? 0 : sum / (nr - 1);
}

double
sample_mean(const struct sample *s)
{
	return (double)mean_of(s);
}

double
sample_stddev(const struct sample *s)
{
	return (double)sqrtl(variance_of(s));
}

/* The value of a rank, from 0, among those that are finite. */
static double
value_of_rank(const struct sample *s, size_t rank)
{
	size_t below, equal;

	for (size_t i = 0; i < s->nr; i++) {
		if (!isfinite(s->value[i]))
			continue;
		below = equal = 0;
		for (size_t j = 0; j < s->nr; j++) {
			below +=
			    isfinite(s->value[j]) && s->value[j] < s->value[i];
			equal += s->value[j] == s->value[i];
		}
		if (below <= rank && rank < below + equal)
			return s->value[i];
	}
	return 0;
}

double
sample_quantile(const struct sample *s, double p)
{
	size_t nr = sample_count(s), rank;
	long double at, low, high;

	if (nr == 0)
		return 0;
	at = (p > 0 ? fminl(p, 1) : 0) * (nr - 1);
	rank = (size_t)at;
	low = value_of_rank(s, rank);
	high = rank + 1 < nr ? value_of_rank(s, rank + 1) : low;
	return (double)(low + (at - rank) * (high - low));
}

/* ---- Welch's t */

/*
 * Neither has any spread, so there is no t: as counters that are the same in
 * each run, or percentiles, which fio rounds to 1.5%.  How probable is it that
 * two samples of one population are constant, and not the same?  They would
 * have to be drawn from two of its values, and at most so probable is that,
 * whatever these values' shares:
 *
 *	2 q^n (1 - q)^m  with  q = n / (n + m), where it is largest
 *
 * 3 and 3 runs: 0.03; 6 and 6: 0.0005.
 */
static double
both_constant(size_t n, size_t m)
{
	double x = (double)n, y = (double)m;

	return fmin(1, 2 * pow(x / (x + y), x) * pow(y / (x + y), y));
}

/*
 * The degrees of freedom are Satterthwaite's.  When one side has no spread all
 * of it is the other's, and so are they: n - 1.
 */
double
sample_welch(const struct sample *a, const struct sample *b)
{
	size_t n = sample_count(a), m = sample_count(b);
	long double d = fabsl(mean_of(a) - mean_of(b));
	long double va, vb, df;

	if (n < 2 || m < 2)
		return 1;
	if (d <= ROUNDING * fmaxl(fabsl(mean_of(a)), fabsl(mean_of(b))))
		return 1;
	va = variance_of(a) / n;
	vb = variance_of(b) / m;
	if (va + vb == 0)
		return both_constant(n, m);
	df = (va + vb) / (va * (va / (va + vb)) / (n - 1) +
			     vb * (vb / (va + vb)) / (m - 1));
	return fmin(
	    1, 2 * gsl_cdf_tdist_Q((double)(d / sqrtl(va + vb)), (double)df));
}

/* ---- Mann-Whitney */

/* In how many pairs `a` is the larger one; a tie is half. */
static double
pairs_won(const struct sample *a, const struct sample *b)
{
	double won = 0;

	for (size_t i = 0; i < a->nr; i++)
		for (size_t j = 0; j < b->nr; j++) {
			if (!isfinite(a->value[i]) || !isfinite(b->value[j]))
				continue;
			won += a->value[i] > b->value[j]    ? 1
			       : a->value[i] == b->value[j] ? 0.5
							    : 0;
		}
	return won;
}

static size_t
count_equal(const struct sample *s, double value)
{
	size_t nr = 0;

	for (size_t i = 0; i < s->nr; i++)
		nr += s->value[i] == value;
	return nr;
}

/* Sum of t^3 - t over groups of t that are equal: t^2 - 1 for each in it. */
static double
sum_ties(const struct sample *of, const struct sample *other)
{
	double sum = 0, t;

	for (size_t i = 0; i < of->nr; i++) {
		if (!isfinite(of->value[i]))
			continue;
		t = (double)(count_equal(of, of->value[i]) +
			     count_equal(other, of->value[i]));
		sum += t * t - 1;
	}
	return sum;
}

/*
 * In how many orders of n and m values at most u pairs are won, of all orders:
 * by the generating function of U, whose coefficients are those of
 *
 *	product over i = 1..n of (1 - q^(m + i)) / (1 - q^i)
 */
static double
exact(size_t n, size_t m, size_t u)
{
	double count[MAX_EXACT * MAX_EXACT + 1] = { 1 };
	size_t last = n * m;
	double below = 0, all = 0;

	for (size_t i = 1; i <= n; i++) {
		for (size_t k = last; k >= m + i; k--)
			count[k] -= count[k - m - i];
		for (size_t k = i; k <= last; k++)
			count[k] += count[k - i];
	}
	for (size_t k = 0; k <= last; k++) {
		all += count[k];
		below += k <= u ? count[k] : 0;
	}
	return below / all;
}

/* By the normal distribution, with corrections for ties and continuity. */
static double
approximate(double n, double m, double u, double ties)
{
	double all = n + m, z;
	double variance = n * m / 12 * (all + 1 - ties / (all * (all - 1)));

	if (variance <= 0)
		return 1;
	z = fmax(0, fabs(u - n * m / 2) - 0.5) / sqrt(variance);
	return fmin(1, 2 * gsl_cdf_ugaussian_Q(z));
}

double
sample_mann_whitney(const struct sample *a, const struct sample *b)
{
	size_t n = sample_count(a), m = sample_count(b);
	double u, ties;

	if (n < 2 || m < 2)
		return 1;
	u = pairs_won(a, b);
	ties = sum_ties(a, b) + sum_ties(b, a);
	if (ties > 0 || n > MAX_EXACT || m > MAX_EXACT)
		return approximate((double)n, (double)m, u, ties);
	u = fmin(u, (double)(n * m) - u);
	return fmin(1, 2 * exact(n, m, (size_t)u));
}

double
mann_whitney_least(size_t n, size_t m)
{
	double orders = 1;

	for (size_t i = 1; i <= n; i++)
		orders *= (double)(m + i) / (double)i;
	return fmin(1, 2 / orders);
}

/* ---- the rule of the lkp tools */

#define LKP_RUNS      3u   /* that one side has to have */
#define LKP_MARGIN    32u  /* one in so many is left out at either end, */
#define LKP_MAX_LEFT  3u   /* so many at most, */
#define LKP_LEFT_FEW  1u   /* and so many of a base of few */
#define LKP_MIN_RATIO 1.01 /* of what they call means */

/* What lkp calls the mean is the middle one of the sorted values. */
struct lkp {
	double min;
	double mean;
	double max;
};

static struct lkp
lkp_of(const struct sample *s, size_t max_left)
{
	size_t nr = sample_count(s), left = nr / LKP_MARGIN;

	if (left > max_left)
		left = max_left;
	return (struct lkp){
		.min = value_of_rank(s, left),
		.mean = value_of_rank(s, left + (nr - 2 * left) / 2),
		.max = value_of_rank(s, nr - 1 - left),
	};
}

/*
 * lkp-tests, lib/stats.rb and lib/changed_stat.rb: a stat has changed when the
 * lowest run of the one lies above the middle of the other, and the middle of
 * the one above the highest run of the other; and when their ratio is more
 * than 1.01.  (1.1 for what it does not list as a performance metric: that is
 * figures_judge()'s part.)
 */
static bool
lies_above(const struct lkp *high, const struct lkp *low)
{
	if (high->min <= low->mean || high->mean <= low->max)
		return false;
	/* as lkp does it: a ratio to 0 or less is a large one */
	return low->mean <= 0 || high->mean / low->mean > LKP_MIN_RATIO;
}

bool
sample_lkp_differs(const struct sample *a, const struct sample *b)
{
	size_t n = sample_count(a), m = sample_count(b);
	struct lkp la, lb;

	if (n == 0 || m == 0 || (n < LKP_RUNS && m < LKP_RUNS))
		return false;
	la = lkp_of(a, LKP_MAX_LEFT);
	lb = lkp_of(b, n <= LKP_RUNS ? LKP_LEFT_FEW : LKP_MAX_LEFT);
	return lies_above(&la, &lb) || lies_above(&lb, &la);
}
