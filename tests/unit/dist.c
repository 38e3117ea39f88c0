/* SPDX-License-Identifier: MIT */
/* Distributions: what is drawn, and how they are written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dist.h"

#define NR_DRAWS 100000u
#define NR_SEEDS 3u

static struct dist
parse(const char *text)
{
	struct dist d;
	char err[400];

	if (dist_parse(&d, "latency", text, err, sizeof(err)) != 0)
		fail_msg("%s", err);
	return d;
}

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double *
draw(const struct dist *d, uint64_t seed)
{
	struct rng r = rng_stream(seed, 1);
	double *x = malloc(NR_DRAWS * sizeof(*x));

	assert_non_null(x);
	for (unsigned i = 0; i < NR_DRAWS; i++)
		x[i] = (double)dist_draw(d, &r);
	qsort(x, NR_DRAWS, sizeof(*x), by_value);
	return x;
}

/*
 * The largest distance of what was drawn from a cdf, which is continuous but
 * where the negative became 0: there only the last of them counts.
 */
static double
distance(const double *x, double (*cdf)(double ns))
{
	double most = 0, f;

	for (unsigned i = 0; i < NR_DRAWS; i++) {
		if (x[i] <= 0 && i + 1 < NR_DRAWS && x[i + 1] <= 0)
			continue;
		f = cdf(x[i]);
		most = fmax(most, fabs((i + 1.0) / NR_DRAWS - f));
		if (x[i] > 0)
			most = fmax(most, f - (double)i / NR_DRAWS);
	}
	return most;
}

/* ---- the stated distributions, written down once more */

static double
phi(double z)
{
	return erfc(-z / sqrt(2)) / 2;
}

#define Z99 2.3263478740408408 /* of a normal */
#define Z10 (-1.2815515655446004)

static double
uniform_cdf(double ns)
{
	return ns < 50e3 ? 0 : ns > 120e3 ? 1 : (ns - 50e3) / 70e3;
}

static double
normal_cdf(double ns)
{
	return phi((ns - 100e3) / 10e3);
}

/* p10=50us p99=200us */
static double
normal_fit_cdf(double ns)
{
	double sigma = 150e3 / (Z99 - Z10);

	return phi((ns - (50e3 - sigma * Z10)) / sigma);
}

static double
exponential_cdf(double ns)
{
	return 1 - exp(-ns / 80e3);
}

/* p50=80us: the mean is 80us / ln 2 */
static double
exponential_fit_cdf(double ns)
{
	return 1 - exp2(-ns / 80e3);
}

/* p50=80us p99=400us: from b on, 80 = b + m ln 2, 400 = b + m ln 100 */
static double
exponential_from_cdf(double ns)
{
	double m = 320e3 / (log(100) - log(2)), b = 80e3 - m * log(2);

	return ns < b ? 0 : 1 - exp(-(ns - b) / m);
}

static double
lognormal_cdf(double ns)
{
	return ns <= 0 ? 0 : phi(log(ns / 80e3) / (log(5) / Z99));
}

/* 1 - (x0 / ns)^alpha, a half of all above 80us, and a hundredth above 1ms */
static double
pareto_cdf(double ns)
{
	double alpha = log(50) / log(1e6 / 80e3), x0 = 80e3 / exp2(1 / alpha);

	return ns < x0 ? 0 : 1 - pow(x0 / ns, alpha);
}

static double
table_cdf(double ns)
{
	if (ns < 60e3)
		return 0;
	if (ns < 80e3)
		return 0.5 * (ns - 60e3) / 20e3;
	if (ns < 200e3)
		return 0.5 + 0.49 * (ns - 80e3) / 120e3;
	return ns < 1e6 ? 0.99 + 0.01 * (ns - 200e3) / 800e3 : 1;
}

static const struct {
	const char *text;
	double (*cdf)(double ns);
} known[] = {
	{ "uniform 50us 120us", uniform_cdf },
	{ "uniform p10=57us p90=113us", uniform_cdf },
	{ "normal mean=100us stddev=10us", normal_cdf },
	{ "normal p10=50us p99=200us min=0", normal_fit_cdf },
	{ "exponential mean=80us", exponential_cdf },
	{ "exponential p50=80us", exponential_fit_cdf },
	{ "exponential p50=80us p99=400us", exponential_from_cdf },
	{ "lognormal p50=80us p99=400us", lognormal_cdf },
	{ "pareto p50=80us p99=1ms", pareto_cdf },
	{ "table 0=60us 50=80us 99=200us 100=1ms", table_cdf },
};
#define NR_KNOWN (sizeof(known) / sizeof(known[0]))

/* Kolmogorov-Smirnov at 1 %: the seeds are given, so that it fails or not. */
static void
draws_fit_the_stated_distribution(void **state)
{
	double allowed = 1.63 / sqrt(NR_DRAWS), has, *x;
	struct dist d;

	(void)state;
	for (size_t i = 0; i < NR_KNOWN; i++) {
		d = parse(known[i].text);
		for (uint64_t seed = 1; seed <= NR_SEEDS; seed++) {
			x = draw(&d, seed);
			has = distance(x, known[i].cdf);
			free(x);
			if (has > allowed)
				fail_msg("%s, seed %u: %f, allowed %f",
				    known[i].text, (unsigned)seed, has,
				    allowed);
		}
	}
}

/* The test can fail: a deviation of a tenth less is seen. */
static void
another_distribution_does_not_fit(void **state)
{
	struct dist d = parse("normal mean=100us stddev=9us");
	double *x = draw(&d, 1);

	(void)state;
	assert_true(distance(x, normal_cdf) > 1.63 / sqrt(NR_DRAWS));
	free(x);
}

static void
near(uint64_t ns, double want)
{
	if (fabs((double)ns - want) > 1 + want * 1e-6)
		fail_msg("%lu, not %f", (unsigned long)ns, want);
}

static void
percentiles_are_those_that_were_stated(void **state)
{
	struct dist d;

	(void)state;
	d = parse("lognormal p10=20us p99.9=5ms");
	near(dist_at(&d, 0.1), 20e3);
	near(dist_at(&d, 0.999), 5e6);
	d = parse("pareto p50=80us p99=1ms");
	near(dist_at(&d, 0.5), 80e3);
	near(dist_at(&d, 0.99), 1e6);
	d = parse("exponential p90=3ms");
	near(dist_at(&d, 0.9), 3e6);
	d = parse("constant 80us");
	near(dist_at(&d, 0.001), 80e3);
	near(dist_at(&d, 0.999), 80e3);
	d = parse("table 1=60us 50=80us 99=200us 99.9=1ms");
	near(dist_at(&d, 0.001), 60e3);
	near(dist_at(&d, 0.255), 70e3);
	near(dist_at(&d, 0.99), 200e3);
	near(dist_at(&d, 0.9945), 600e3);
	near(dist_at(&d, 0.9999), 1e6);
}

static void
what_would_be_negative_is_0(void **state)
{
	struct dist d = parse("normal mean=10us stddev=10us");
	double *x = draw(&d, 1);
	unsigned zeros = 0;

	(void)state;
	while (x[zeros] <= 0)
		zeros++;
	free(x);
	/* a normal has 15.87 % below its mean less its deviation */
	assert_in_range(zeros, 15400, 16350);
}

static void
limits_cut_off(void **state)
{
	struct dist d = parse("pareto p50=80us p99=1ms min=70us max=2ms");
	double *x = draw(&d, 1);

	(void)state;
	assert_true(x[0] >= 70e3 && x[1] <= 70e3);
	assert_true(x[NR_DRAWS - 1] <= 2e6 && x[NR_DRAWS - 2] >= 2e6);
	free(x);
	/* nothing takes longer than an hour, however unlikely it is */
	d = parse("pareto p50=3599s p99=3600s");
	d.scale = 100;
	assert_true(dist_at(&d, 1 - 0x1p-52) == DIST_MAX_NS);
}

static void
bytes_add_up(void **state)
{
	struct dist d = parse("constant 80us + 2us/4k");

	(void)state;
	assert_int_equal(dist_bytes(&d, 4096), 2000);
	assert_int_equal(dist_bytes(&d, 512), 250);
	assert_int_equal(dist_bytes(&d, UINT64_C(1) << 20), 512000);
	assert_true(dist_bytes(&d, UINT64_MAX) == DIST_MAX_NS);
	d = parse("constant 80us");
	assert_int_equal(dist_bytes(&d, 4096), 0);
}

static void
reads_the_same_what_it_prints(void **state)
{
	static const char *const same[] = {
		"constant 80us",
		"constant 0ns",
		"uniform 50us 120us",
		"uniform p10=50us p90=120us",
		"normal mean=100us stddev=10us",
		"normal p50=100us p99=123456ns",
		"exponential mean=80us",
		"exponential p50=80us",
		"exponential p50=80us p99=400us",
		"lognormal p50=80us p99=400us",
		"lognormal p0.000001=1ns p99.999999=3600s",
		"pareto p50=80us p99=1ms min=10us max=2s",
		"pareto p50=80us p99=1ms max=2s + 1us/4k",
		"table 1=60us 50=80us 99=200us 99.9=1ms + 1500ns/512",
	};
	static const char *const others[][2] = {
		{ "80us", "constant 80us" },
		{ "0.08ms", "constant 80us" },
		{ "1500", "constant 1500ns" },
		{ " lognormal  p50.00=80us  p99=0.4ms ",
		    "lognormal p50=80us p99=400us" },
		{ "constant 80us +1us/4096", "constant 80us + 1us/4k" },
	};
	struct dist d, again;
	char *text;
	size_t len, nr = sizeof(same) / sizeof(same[0]);
	const char *in, *want;

	(void)state;
	for (size_t i = 0; i < nr + sizeof(others) / sizeof(others[0]); i++) {
		FILE *out = open_memstream(&text, &len);

		in = i < nr ? same[i] : others[i - nr][0];
		want = i < nr ? same[i] : others[i - nr][1];
		d = parse(in);
		dist_print(&d, out);
		fclose(out);
		assert_string_equal(text, want);
		again = parse(text);
		assert_true(dist_same(&d, &again));
		free(text);
	}
	d = parse("constant 80us");
	again = parse("constant 81us");
	assert_false(dist_same(&d, &again));
}

static void
refuses_what_is_not_a_distribution(void **state)
{
	static const struct {
		const char *text, *says;
		int error;
	} bad[] = {
		{ "", "allowed: constant, uniform", -EINVAL },
		{ "zipf 3", "latency: \"zipf 3\": allowed: ", -EINVAL },
		{ "constant", "allowed: constant 80us", -EINVAL },
		{ "constant 80us 90us", "allowed: constant 80us", -EINVAL },
		{ "constant p50=80us", "allowed: constant 80us", -EINVAL },
		{ "constant 80 us", "allowed", -EINVAL },
		{ "constant -80us", "allowed", -EINVAL },
		{ "constant 80us,", "allowed", -EINVAL },
		{ "constant 1e3us", "allowed", -EINVAL },
		{ "constant 1.us", "allowed", -EINVAL },
		{ "constant nan", "allowed", -EINVAL },
		{ "constant 3601s", "out of range", -ERANGE },
		{ "constant 99999999999999999999999s", "range", -ERANGE },
		{ "uniform 120us 50us", "uniform 50us 120us", -EINVAL },
		{ "uniform 120us", "uniform 50us 120us", -EINVAL },
		{ "normal mean=100us", "stddev=10us", -EINVAL },
		{ "normal stddev=100us mean=3us", "stddev=10us", -EINVAL },
		{ "normal mean=1us p99=3us", "stddev=10us", -EINVAL },
		{ "normal p99=3us mean=1us", "stddev=10us", -EINVAL },
		{ "exponential mean=1us stddev=1us", "mean=80us", -EINVAL },
		{ "exponential p100=1us", "mean=80us", -EINVAL },
		{ "lognormal p50=80us", "two percentiles", -EINVAL },
		{ "lognormal p50=0 p99=1ms", "above 0", -EINVAL },
		{ "lognormal p0=1us p99=1ms", "lognormal", -EINVAL },
		{ "lognormal p50=1us p100=1ms", "lognormal", -EINVAL },
		{ "lognormal p50=1us p50=2us", "lognormal", -EINVAL },
		{ "lognormal p99=80us p50=1ms", "lognormal", -EINVAL },
		{ "lognormal p50=2us p99=1us", "lognormal", -EINVAL },
		{ "lognormal p50=1us p99=2us p99.9=3us", "two", -EINVAL },
		{ "lognormal p=1us p99=2us", "two", -EINVAL },
		{ "lognormal p101=1us p99=2us", "out of range", -ERANGE },
		{ "table", "up to 32", -EINVAL },
		{ "table 50=80us 40=90us", "ascending", -EINVAL },
		{ "table 50=80us 60=70us", "ascending", -EINVAL },
		{ "table p50=80us", "up to 32", -EINVAL },
		{ "constant 80us +", "+ 2us/4k", -EINVAL },
		{ "constant 80us + 1us", "+ 2us/4k", -EINVAL },
		{ "constant 80us + 1us/0", "range", -ERANGE },
		{ "constant 80us + 1us/4k + 1us/4k", "+ 2us/4k", -EINVAL },
		{ "constant 80us min=2us max=1us", "min=", -EINVAL },
		{ "constant 80us\001", "characters", -EINVAL },
	};
	struct dist d;
	char err[400], *many = calloc(1, DIST_MAX_TEXT + 2);

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int ret =
		    dist_parse(&d, "latency", bad[i].text, err, sizeof(err));

		if (ret != bad[i].error || strstr(err, bad[i].says) == NULL)
			fail_msg("\"%s\": %d: %s", bad[i].text, ret, err);
	}
	memset(many, '1', DIST_MAX_TEXT + 1);
	assert_int_equal(
	    dist_parse(&d, "latency", many, err, sizeof(err)), -EINVAL);
	strcpy(many, "table");
	for (unsigned i = 1; i <= DIST_MAX_POINTS + 1; i++)
		snprintf(many + strlen(many), 20, " %u=1us", i);
	assert_int_equal(
	    dist_parse(&d, "latency", many, err, sizeof(err)), -EINVAL);
	free(many);
}

/* Text of words that mean something, put together without sense. */
static void
no_text_does_harm(void **state)
{
	static const char *const words[] = { "constant", "uniform", "normal",
		"lognormal", "table", "p50=", "80us", "p99", "=", "1ms", "+",
		"/", "4k", " ", "mean=", "50=", "99.9=", ".", "3600s", "min=" };
	struct rng r = rng_stream(11, 1);
	struct dist d;
	char text[200], err[400];

	(void)state;
	for (unsigned i = 0; i < 50000; i++) {
		text[0] = '\0';
		for (uint64_t n = 1 + rng_below(&r, 9); n > 0; n--)
			strcat(strcat(text,
				   words[rng_below(
				       &r, sizeof(words) / sizeof(words[0]))]),
			    rng_below(&r, 3) > 0 ? " " : "");
		if (dist_parse(&d, "latency", text, err, sizeof(err)) == 0) {
			assert_true(dist_draw(&d, &r) <= DIST_MAX_NS);
			assert_true(dist_at(&d, 0x1p-53) >= d.min_ns);
		}
	}
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(draws_fit_the_stated_distribution),
		cmocka_unit_test(another_distribution_does_not_fit),
		cmocka_unit_test(percentiles_are_those_that_were_stated),
		cmocka_unit_test(what_would_be_negative_is_0),
		cmocka_unit_test(limits_cut_off),
		cmocka_unit_test(bytes_add_up),
		cmocka_unit_test(reads_the_same_what_it_prints),
		cmocka_unit_test(refuses_what_is_not_a_distribution),
		cmocka_unit_test(no_text_does_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
