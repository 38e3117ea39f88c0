/* SPDX-License-Identifier: MIT */
/* Models of what was measured. */
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
#include <unistd.h>

#include "ctl/ctl.h"

#define NR_DRAWS 100000u
#define BLOCK    4096u

static struct dist
parse(const char *text)
{
	struct dist d;
	char err[400];

	if (dist_parse(&d, "model", text, err, sizeof(err)) != 0)
		fail_msg("%s", err);
	return d;
}

static int
by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* What fio would report of a device with such a model. */
static struct measured
measured(const char *model, uint64_t bytes, uint64_t seed)
{
	static const double percent[] = { 1, 5, 10, 20, 30, 40, 50, 60, 70, 80,
		90, 95, 99, 99.5, 99.9, 99.95, 99.99 };
	struct dist d = parse(model);
	struct measured m = { STAT_READ, bytes, NR_DRAWS, 0, {} };
	struct rng r = rng_stream(seed, 1);
	uint64_t *x = malloc(NR_DRAWS * sizeof(*x));

	assert_non_null(x);
	for (unsigned i = 0; i < NR_DRAWS; i++)
		x[i] = dist_draw(&d, &r) + dist_bytes(&d, bytes);
	qsort(x, NR_DRAWS, sizeof(*x), by_value);
	for (size_t i = 0; i < sizeof(percent) / sizeof(percent[0]); i++)
		m.point[m.nr_points++] = (struct dist_point){
			(uint32_t)(percent[i] * DIST_PERCENT + 0.5),
			x[(size_t)(percent[i] / 100 * NR_DRAWS)],
		};
	free(x);
	return m;
}

static void
check_same(const struct dist *d, const char *model, uint64_t bytes)
{
	struct dist want = parse(model);

	for (unsigned i = 0; i < FIT_NR; i++) {
		double u = fit_percent[i] / 100;
		double a = (double)(dist_at(d, u) + dist_bytes(d, bytes));
		double b =
		    (double)(dist_at(&want, u) + dist_bytes(&want, bytes));

		if (fabs(a / b - 1) > 0.1)
			fail_msg("%s: p%g: %f", model, fit_percent[i], a / b);
	}
}

/* Measured, calibrated and measured again: p50 to p99.9 within 10 %. */
static void
what_was_drawn_is_found_again(void **state)
{
	static const char *const models[][2] = {
		{ "constant 80us", "constant" },
		{ "uniform 50us 120us", "uniform" },
		{ "normal mean=100us stddev=20us", "normal" },
		{ "exponential mean=80us", "exponential" },
		{ "lognormal p50=80us p99=700us", "lognormal" },
		{ "pareto p50=80us p99=3ms", "pareto" },
		{ "table 0=10us 60=20us 61=900us 99=1ms 100=1100us", "table" },
	};
	struct measured m;
	struct fit fit;
	char *text;
	size_t len;
	FILE *out;

	(void)state;
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		m = measured(models[i][0], BLOCK, 5);
		assert_int_equal(fit_model(&m, 1, NULL, &fit), 0);
		assert_true(fit.worst < FIT_GOOD);
		check_same(&fit.dist, models[i][0], 0);
		out = open_memstream(&text, &len);
		dist_print(&fit.dist, out);
		fclose(out);
		if (strncmp(text, models[i][1], strlen(models[i][1])) != 0)
			fail_msg("%s: %s", models[i][0], text);
		free(text);
	}
}

static void
a_table_is_near_whatever_it_was(void **state)
{
	struct measured m = measured("pareto p50=80us p99=1ms", BLOCK, 6);
	struct fit fit;

	(void)state;
	assert_int_equal(fit_model(&m, 1, "table", &fit), 0);
	assert_true(fit.worst < 0.001);
}

static void
a_kind_that_was_asked_for_tells_how_far_it_is_off(void **state)
{
	struct measured m = measured("lognormal p50=80us p99=1ms", BLOCK, 7);
	struct fit fit;

	(void)state;
	assert_int_equal(fit_model(&m, 1, "constant", &fit), 0);
	assert_true(fit.worst > 0.5);
	for (unsigned i = 0; i < FIT_NR; i++) {
		double was = (double)fit.measured_ns[i];

		assert_true(
		    fabs(fit.error[i] -
			 fabs((double)fit.model_ns[i] - was) / was) < 1e-9);
	}
}

static void
sizes_give_a_time_by_the_byte(void **state)
{
	static const char *const model =
	    "lognormal p50=80us p99=300us + 10us/4k";
	struct measured m[3];
	struct fit fit;

	(void)state;
	m[0] = measured(model, BLOCK, 1);
	m[1] = measured(model, 4 * BLOCK, 2);
	m[2] = measured(model, 32 * BLOCK, 3);
	m[2].nr /= 2;
	assert_int_equal(fit_model(m, 3, NULL, &fit), 0);
	assert_in_range(fit.dist.size_ns, 9800, 10200);
	assert_int_equal(fit.dist.size_bytes, BLOCK);
	check_same(&fit.dist, model, BLOCK);
	check_same(&fit.dist, model, 32 * BLOCK);
	/* larger ones that are sooner say nothing */
	m[2] = measured("constant 1us", 32 * BLOCK, 3);
	assert_int_equal(fit_model(m, 3, "table", &fit), 0);
	assert_int_equal(fit.dist.size_bytes, 0);
}

static void
few_samples_do_not_tell_of_the_rare(void **state)
{
	struct measured m = measured("uniform 50us 120us", BLOCK, 1);
	struct fit fit;

	(void)state;
	m.nr = 500;
	assert_int_equal(fit_model(&m, 1, NULL, &fit), 0);
	assert_false(isnan(fit.error[2]));
	assert_true(isnan(fit.error[3]));
}

static void
nothing_is_no_model(void **state)
{
	struct measured m = { .nr = 0 };
	struct fit fit;

	(void)state;
	assert_int_equal(fit_model(NULL, 0, NULL, &fit), -EINVAL);
	assert_int_equal(fit_model(&m, 1, NULL, &fit), -EINVAL);
	m = measured("constant 0ns", BLOCK, 1);
	assert_int_equal(fit_model(&m, 1, "lognormal", &fit), -EINVAL);
}

/* ---- attributes that name a file */

static void
attribute(const char *name, const char *kind, const char *path,
    const char *more, const char *want, int error)
{
	char value[200], err[400] = "", *text;
	int ret;

	snprintf(value, sizeof(value), "%s %s%s", kind, path, more);
	ret = fit_attribute(name, value, &text, err, sizeof(err));
	assert_int_equal(ret, error);
	if (ret != 0 && strstr(err, want) == NULL)
		fail_msg("%s: %s", value, err);
	if (ret == 0 && want == NULL)
		assert_null(text);
	if (ret == 0 && want != NULL)
		assert_string_equal(text, want);
	free(text);
}

static void
an_attribute_takes_a_file_as_a_table(void **state)
{
	static const char json[] =
	    "{\"jobs\":[{\"read\":{\"total_ios\":1000,\"io_bytes\":4096000,"
	    "\"clat_ns\":{\"min\":10000,\"max\":90000,\"percentile\":"
	    "{\"50.000000\":20000,\"99.000000\":80000}}}}]}";
	char path[] = "/tmp/nullb-fit-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, json, sizeof(json) - 1), sizeof(json) - 1);
	close(fd);
	attribute("latency.read", "fio", path, "",
	    "table 0=10us 50=20us 99=80us 100=90us", 0);
	attribute("latency.write", "fio", path, " read",
	    "table 0=10us 50=20us 99=80us 100=90us", 0);
	attribute(
	    "latency.write", "fio", path, "", "no latencies of write", -EINVAL);
	attribute("latency.read", "constant", "80us", "", NULL, 0);
	attribute("description", "fio", path, "", NULL, 0);
	attribute("latency.read", "fio", "-", "", "a regular file", -EINVAL);
	attribute("latency.read", "trace", "/dev/zero", "", "a regular file",
	    -EINVAL);
	unlink(path);
	attribute("latency.read", "fio", path, "", "No such file", -EINVAL);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_drawn_is_found_again),
		cmocka_unit_test(a_table_is_near_whatever_it_was),
		cmocka_unit_test(
		    a_kind_that_was_asked_for_tells_how_far_it_is_off),
		cmocka_unit_test(sizes_give_a_time_by_the_byte),
		cmocka_unit_test(few_samples_do_not_tell_of_the_rare),
		cmocka_unit_test(nothing_is_no_model),
		cmocka_unit_test(an_attribute_takes_a_file_as_a_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
