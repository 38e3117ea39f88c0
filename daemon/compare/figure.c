/* SPDX-License-Identifier: MIT */
/*
 * Which figures differ, and what that means.
 *
 * Dozens of figures are tested at once.  Each test alone would call chance a
 * difference with the probability alpha, so among fifty something would nearly
 * always "differ".  Holm's correction makes alpha the probability that any of
 * a family is called so: the smallest of m p's is multiplied by m, the next by
 * m - 1, and so on.  It holds however the figures hang together, and ours do:
 * IOPS, bandwidth and mean latency are nearly one.  (Hochberg's and Benjamini's
 * ask for more; Bonferroni's finds less.)
 *
 * There are two families.  The few headline figures decide the verdict, and so
 * they need not pay for the many that explain it.  What is constant, and the
 * same on both sides, is not a test that could fail: it is not counted.
 *
 * alpha is 0.01 by default, so of a hundred comparisons of a configuration with
 * itself one sees a difference.  That two equal ones get "no difference" in 19
 * of 20 runs is promised: with 0.05 two or more of twenty would fail in one
 * such series of four, with 0.01 in one of sixty, and some room is left for
 * what the tests take for granted and a machine does not do: spread that is
 * normal, runs that know nothing of each other.
 *
 * METHOD_LKP is no test.  It looks at how ranges lie, has no p, and nothing
 * corrects it: the more figures, the more of them "change" by chance.  Of two
 * equal sides with three runs each, of any spread but little, one figure in
 * five does.  A verdict by it says what a mail of the lkp robot would, no more.
 */
#include "compare/compare.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_cdf.h>

#define FIRST_ROOM     64u
#define POWER          0.8
#define LEAST_CHANGE   0.01       /* that is worth to be found */
#define MAX_RUNS       1e9        /* more are not worth a number */
#define RANKS_WORTH    (3 / M_PI) /* of what Welch's t makes of normal values */
#define LKP_RUNS       3u         /* that one side has to have */
#define LKP_EXPLAINING 0.1        /* change of what is no performance metric */

void
figures_fini(struct figures *f)
{
	for (size_t i = 0; i < f->nr; i++) {
		free(f->figure[i].name);
		free(f->figure[i].unit);
		sample_fini(&f->figure[i].side[SIDE_BASE]);
		sample_fini(&f->figure[i].side[SIDE_OTHER]);
	}
	free(f->figure);
	*f = (struct figures){};
}

static struct figure *
find(const struct figures *f, const char *name)
{
	for (size_t i = 0; i < f->nr; i++)
		if (strcmp(f->figure[i].name, name) == 0)
			return &f->figure[i];
	return NULL;
}

void
figures_put(struct adding *a, const char *unit, enum better better,
    bool headline, double value, const char *fmt, ...)
{
	char name[128];
	va_list ap;

	if (a->ret != 0)
		return;
	va_start(ap, fmt);
	vsnprintf(name, sizeof(name), fmt, ap);
	va_end(ap);
	a->ret = figures_add(
	    a->figures, a->side, name, unit, better, headline, value);
}

const struct figure *
figures_find(const struct figures *f, const char *name)
{
	return find(f, name);
}

/* One more; NULL: no memory. */
static struct figure *
make(struct figures *f, const char *name, const char *unit)
{
	size_t max = f->max != 0 ? 2 * f->max : FIRST_ROOM;
	struct figure *new;

	if (f->nr == f->max) {
		new = reallocarray(f->figure, max, sizeof(*new));
		if (new == NULL)
			return NULL;
		f->figure = new;
		f->max = max;
	}
	new = &f->figure[f->nr];
	*new = (struct figure){
		.name = strdup(name),
		.unit = strdup(unit),
		.p_alone = NAN,
		.p = NAN,
		.change = NAN,
	};
	if (new->name == NULL || new->unit == NULL) {
		free(new->name);
		free(new->unit);
		return NULL;
	}
	f->nr++;
	return new;
}

int
figures_add(struct figures *f, enum side side, const char *name,
    const char *unit, enum better better, bool headline, double value)
{
	struct figure *figure = find(f, name);

	if (figure == NULL) {
		figure = make(f, name, unit);
		if (figure == NULL)
			return -ENOMEM;
		figure->better = better;
		figure->headline = headline;
	}
	return sample_add(&figure->side[side], value);
}

/* ---- one figure */

static bool
has_runs(const struct figure *f, enum method method)
{
	size_t n = sample_count(&f->side[SIDE_BASE]);
	size_t m = sample_count(&f->side[SIDE_OTHER]);

	if (method == METHOD_LKP)
		return n > 0 && m > 0 && (n >= LKP_RUNS || m >= LKP_RUNS);
	return n >= 2 && m >= 2;
}

/* All values of both sides are the same. */
static bool
is_constant(const struct figure *f)
{
	const struct sample *s;
	double first = NAN;

	for (unsigned side = 0; side < NR_SIDES; side++) {
		s = &f->side[side];
		for (size_t i = 0; i < s->nr; i++) {
			if (!isfinite(s->value[i]))
				continue;
			if (isnan(first))
				first = s->value[i];
			if (s->value[i] != first)
				return false;
		}
	}
	return true;
}

static bool
is_tested(const struct figure *f, enum method method)
{
	return has_runs(f, method) && !is_constant(f);
}

static double
change_of(const struct figure *f)
{
	long double base = sample_mean(&f->side[SIDE_BASE]);
	long double other = sample_mean(&f->side[SIDE_OTHER]);

	if (sample_count(&f->side[SIDE_BASE]) == 0 ||
	    sample_count(&f->side[SIDE_OTHER]) == 0)
		return NAN;
	if (base == 0)
		return other == 0 ? 0 : NAN;
	return (double)((other - base) / fabsl(base));
}

static bool
changed_by_lkp(const struct figure *f)
{
	/* as reports of it do: the middle values' ratio, 1.1 and more */
	double base = sample_quantile(&f->side[SIDE_BASE], 0.5);
	double other = sample_quantile(&f->side[SIDE_OTHER], 0.5);
	double low = fmin(base, other), high = fmax(base, other);

	if (!sample_lkp_differs(&f->side[SIDE_BASE], &f->side[SIDE_OTHER]))
		return false;
	return f->headline || low <= 0 || high / low > 1 + LKP_EXPLAINING;
}

static void
test(struct figure *f, enum method method)
{
	const struct sample *a = &f->side[SIDE_BASE];
	const struct sample *b = &f->side[SIDE_OTHER];

	f->p_alone = f->p = NAN;
	f->differs = false;
	f->change = change_of(f);
	if (!is_tested(f, method))
		return;
	switch (method) {
	case METHOD_WELCH: f->p_alone = sample_welch(a, b); break;
	case METHOD_MANN_WHITNEY: f->p_alone = sample_mann_whitney(a, b); break;
	case METHOD_LKP: f->differs = changed_by_lkp(f); break;
	}
}

int
figure_direction(const struct figure *f)
{
	const struct sample *a = &f->side[SIDE_BASE];
	const struct sample *b = &f->side[SIDE_OTHER];
	double up = sample_mean(b) - sample_mean(a);
	int sign = (up > 0) - (up < 0);

	return f->better == BETTER_HIGHER  ? sign
	       : f->better == BETTER_LOWER ? -sign
					   : 0;
}

/* ---- a family of them */

/* The next one by p, then by place; NULL: `last` was the last. */
static struct figure *
next_by_p(struct figures *f, bool headline, const struct figure *last)
{
	struct figure *next = NULL, *at;

	for (size_t i = 0; i < f->nr; i++) {
		at = &f->figure[i];
		if (at->headline != headline || isnan(at->p_alone))
			continue;
		if (last != NULL &&
		    (at->p_alone < last->p_alone ||
			(at->p_alone == last->p_alone && at <= last)))
			continue;
		if (next == NULL || at->p_alone < next->p_alone)
			next = at;
	}
	return next;
}

static void
correct(struct figures *f, bool headline, size_t nr, double alpha)
{
	struct figure *at = NULL;
	double p = 0;

	for (; (at = next_by_p(f, headline, at)) != NULL; nr--) {
		p = fmax(p, fmin(1, (double)nr * at->p_alone));
		at->p = p;
		at->differs = p < alpha;
	}
}

/* ---- the verdict */

/* Does `a` say more than `b`?  A smaller p; else a larger change. */
static bool
says_more(const struct figure *a, const struct figure *b)
{
	if (b == NULL)
		return true;
	if (!isnan(a->p_alone) && !isnan(b->p_alone) &&
	    a->p_alone != b->p_alone)
		return a->p_alone < b->p_alone;
	if (isnan(a->p_alone) != isnan(b->p_alone))
		return isnan(b->p_alone);
	return fabs(a->change) > fabs(b->change);
}

/* Could any difference have shown, with so few runs of the headline figures? */
static bool
can_answer(const struct figures *f, const struct verdict *v)
{
	const struct figure *at;
	double least;

	for (size_t i = 0; i < f->nr; i++) {
		at = &f->figure[i];
		if (!at->headline || !has_runs(at, v->method))
			continue;
		if (v->method != METHOD_MANN_WHITNEY)
			return true;
		least = mann_whitney_least(sample_count(&at->side[SIDE_BASE]),
		    sample_count(&at->side[SIDE_OTHER]));
		if (least * fmax(1, (double)v->nr_tested[0]) < v->alpha)
			return true;
	}
	return false;
}

static void
decide(const struct figures *f, struct verdict *v)
{
	const struct figure *at, *seen = NULL, *any = NULL;
	bool better = false, worse = false;
	int direction;

	for (size_t i = 0; i < f->nr; i++) {
		at = &f->figure[i];
		if (!at->headline)
			continue;
		if (says_more(at, any))
			any = at;
		direction = at->differs ? figure_direction(at) : 0;
		if (direction == 0)
			continue;
		better |= direction > 0;
		worse |= direction < 0;
		if (says_more(at, seen))
			seen = at;
	}
	v->decisive = seen != NULL ? seen : any;
	if (better || worse)
		v->outcome = !worse    ? OUTCOME_BETTER
			     : !better ? OUTCOME_WORSE
				       : OUTCOME_MIXED;
	else
		v->outcome = can_answer(f, v) ? OUTCOME_NONE : OUTCOME_FEW;
}

/* ---- how many more */

/* Both sides' quantiles of t, for so many runs each. */
static double
quantiles(double nr, double alpha)
{
	double df = 2 * nr - 2;

	return gsl_cdf_tdist_Qinv(alpha / 2, df) +
	       gsl_cdf_tdist_Pinv(POWER, df);
}

size_t
runs_for(double difference, double stddev, double alpha)
{
	double effect = difference / stddev, nr, z;

	if (stddev == 0)
		return 2;
	z = gsl_cdf_ugaussian_Qinv(alpha / 2) + gsl_cdf_ugaussian_Pinv(POWER);
	nr = ceil(2 * (z / effect) * (z / effect));
	if (!(nr <= MAX_RUNS))
		return 0;
	nr = fmax(2, nr);
	/* more than by the normal distribution: by a run, or a few */
	while (nr < 2 * pow(quantiles(nr, alpha) / effect, 2))
		nr++;
	return (size_t)nr;
}

static void
look_ahead(struct verdict *v)
{
	const struct figure *f = v->decisive;
	double alpha = v->alpha / fmax(1, (double)v->nr_tested[0]);
	double base, a, b;

	v->difference = NAN;
	if (f == NULL || isnan(f->change))
		return;
	base = fabs(sample_mean(&f->side[SIDE_BASE]));
	a = sample_stddev(&f->side[SIDE_BASE]) / base;
	b = sample_stddev(&f->side[SIDE_OTHER]) / base;
	v->difference = fmax(fabs(f->change), LEAST_CHANGE);
	if (v->method == METHOD_LKP || !has_runs(f, v->method) || base == 0)
		return;
	v->runs_needed =
	    runs_for(v->difference, sqrt((a * a + b * b) / 2), alpha);
	if (v->method != METHOD_MANN_WHITNEY)
		return;
	v->runs_needed = (size_t)ceil((double)v->runs_needed / RANKS_WORTH);
	while (v->runs_needed > 0 &&
	       mann_whitney_least(v->runs_needed, v->runs_needed) >= alpha)
		v->runs_needed++;
}

struct verdict
figures_judge(struct figures *f, enum method method, double alpha)
{
	struct verdict v = { .method = method, .alpha = alpha };

	assert(alpha > 0);
	assert(alpha < 1);
	for (size_t i = 0; i < f->nr; i++) {
		test(&f->figure[i], method);
		if (is_tested(&f->figure[i], method))
			v.nr_tested[f->figure[i].headline ? 0 : 1]++;
	}
	correct(f, true, v.nr_tested[0], alpha);
	correct(f, false, v.nr_tested[1], alpha);
	decide(f, &v);
	look_ahead(&v);
	return v;
}
