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

/* Two jobs, the second with three times the reads of the first. */
static const char two_jobs[] =
    "{\"jobs\":["
    "{\"jobname\":\"a\",\"error\":0,\"job_runtime\":1000,\"usr_cpu\":10.0,"
    "\"sys_cpu\":20,\"ctx\":100,\"majf\":1,\"minf\":2,"
    "\"read\":{\"total_ios\":100,\"iops\":100.0,\"bw_bytes\":409600,"
    "\"slat_ns\":{\"mean\":1000,\"N\":100},"
    "\"clat_ns\":{\"mean\":10000,\"N\":100,\"bins\":{\"9000\":98,\"50000\":2}},"
    "\"lat_ns\":{\"mean\":11000,\"N\":100}},"
    "\"write\":{\"total_ios\":0,\"iops\":0},\"trim\":{\"total_ios\":0},"
    "\"sync\":{\"total_ios\":4,\"lat_ns\":{\"mean\":7000,\"N\":4}}},"
    "{\"jobname\":\"b\",\"error\":0,\"job_runtime\":3000,\"usr_cpu\":30.0,"
    "\"sys_cpu\":40,\"ctx\":300,\"majf\":0,\"minf\":0,"
    "\"read\":{\"total_ios\":300,\"iops\":300.0,\"bw_bytes\":1228800,"
    "\"slat_ns\":{\"mean\":2000,\"N\":300},"
    "\"clat_ns\":{\"mean\":20000,\"N\":300,\"bins\":{\"20000\":299,"
    "\"50000\":1}},"
    "\"lat_ns\":{\"mean\":22000,\"N\":300}},"
    "\"write\":{\"total_ios\":0},\"trim\":{\"total_ios\":0},\"sync\":{}}]}";

static double
value(const struct figures *f, const char *name)
{
	const struct figure *figure = figures_find(f, name);

	assert_non_null(figure);
	assert_int_equal(figure->side[SIDE_OTHER].nr, 1);
	assert_int_equal(figure->side[SIDE_BASE].nr, 0);
	return figure->side[SIDE_OTHER].value[0];
}

static void
adds_up_the_jobs(void **state)
{
	json_t *fio = json_loads(two_jobs, 0, NULL);
	struct run run = { .side = SIDE_OTHER };
	struct figures f = {};
	char *error;

	(void)state;
	assert_non_null(fio);
	assert_int_equal(fiojson_read(fio, &f, &run, &error), 0);
	assert_float_equal(value(&f, "fio.iops"), 400, 1e-9);
	assert_float_equal(value(&f, "fio.bw"), 1600, 1e-9);
	assert_float_equal(value(&f, "fio.read.iops"), 400, 1e-9);
	/* (1000 * 100 + 2000 * 300) / 400 ns */
	assert_float_equal(value(&f, "fio.read.slat.mean"), 1.75, 1e-9);
	assert_float_equal(value(&f, "fio.read.clat.mean"), 17.5, 1e-9);
	assert_float_equal(value(&f, "fio.read.lat.mean"), 19.25, 1e-9);
	/* of 400: 98 at 9 us, 299 at 20, 3 at 50 */
	assert_float_equal(value(&f, "fio.read.clat.p50"), 20, 1e-9);
	assert_float_equal(value(&f, "fio.read.clat.p99"), 20, 1e-9);
	assert_float_equal(value(&f, "fio.read.clat.p99.9"), 50, 1e-9);
	assert_float_equal(value(&f, "fio.sync.lat.mean"), 7, 1e-9);
	/* (10 * 1 s + 30 * 3 s) / 4 s */
	assert_float_equal(value(&f, "fio.cpu.usr"), 25, 1e-9);
	assert_float_equal(value(&f, "fio.cpu.sys"), 35, 1e-9);
	assert_float_equal(value(&f, "fio.ctx"), 400, 1e-9);
	assert_float_equal(value(&f, "fio.ctx_per_io"), 1, 1e-9);
	assert_float_equal(run.ios, 400, 1e-9);
	/* nothing was written */
	assert_null(figures_find(&f, "fio.write.iops"));
	assert_int_equal(run.clat_ns[RUN_READ].nr, 3);
	assert_int_equal(run.clat_ns[RUN_WRITE].nr, 0);
	assert_true(figures_find(&f, "fio.iops")->headline);
	assert_int_equal(
	    figures_find(&f, "fio.read.lat.mean")->better, BETTER_LOWER);
	run_fini(&run);
	figures_fini(&f);
	json_decref(fio);
}

static void
expect_error(const char *text, const char *why)
{
	json_t *fio = json_loads(text, 0, NULL);
	struct run run = {};
	struct figures f = {};
	char *error;

	assert_non_null(fio);
	assert_int_equal(fiojson_read(fio, &f, &run, &error), -EINVAL);
	assert_string_equal(error, why);
	assert_int_equal(f.nr, 0);
	free(error);
	run_fini(&run);
	json_decref(fio);
}

static void
refuses_a_run_that_failed(void **state)
{
	(void)state;
	expect_error("{}", "fio's JSON has no jobs");
	expect_error("[]", "fio's JSON has no jobs");
	expect_error("{\"jobs\":[]}", "fio's JSON has no jobs");
	expect_error("{\"jobs\":[1]}", "fio has done no I/O");
	expect_error("{\"jobs\":[{\"jobname\":\"x\",\"error\":5}]}",
	    "fio's job x: Input/output error");
	expect_error("{\"jobs\":[{\"jobname\":\"x\",\"error\":84}]}",
	    "fio's job x: verify: this is not what was written");
	expect_error("{\"jobs\":[{\"jobname\":\"x\",\"error\":-1}]}",
	    "fio's job x: Input/output error");
	expect_error(
	    "{\"jobs\":[{\"read\":{\"total_ios\":0}}]}", "fio has done no I/O");
	expect_error(
	    "{\"jobs\":[{\"read\":{\"clat_ns\":{\"bins\":{\"x\":1}}}}]}",
	    "bins: \"x\" is not a latency");
	expect_error(
	    "{\"jobs\":[{\"read\":{\"clat_ns\":{\"bins\":{\"1\":-1}}}}]}",
	    "bins: \"1\" is not a latency");
}

static int
read_log(const char *text, struct series *s)
{
	FILE *f = fmemopen((char *)(uintptr_t)text, strlen(text), "r");
	int ret;

	assert_non_null(f);
	ret = fiojson_iops_log(f, .1, s);
	fclose(f);
	return ret;
}

static void
adds_up_logs_over_time(void **state)
{
	struct series s = {};

	(void)state;
	/* reads: 100 until 0.15 s, 300 until 0.2; writes 50 until 0.1 */
	assert_int_equal(
	    read_log(
		"150, 100, 0, 0, 0\n100, 50, 1, 0, 0\n199, 300, 0, 0, 0\n", &s),
	    0);
	assert_int_equal(s.nr, 2);
	assert_float_equal(s.at[0], .05, 1e-9);
	assert_float_equal(s.value[0], 150, 1e-6);
	/* half of it at 100, 0.049 s of 0.1 at 300 */
	assert_float_equal(s.value[1], 50 + 147, 1e-6);
	assert_int_equal(s.nr_whole, 1); /* the second is not all there */
	/* another job */
	assert_int_equal(read_log("100, 1000, 0, 0, 0\n", &s), 0);
	assert_float_equal(s.value[0], 1150, 1e-6);
	free(s.at);
	free(s.value);
}

static void
refuses_what_is_no_log(void **state)
{
	struct series s = {};

	(void)state;
	assert_int_equal(read_log("hello\n", &s), -EINVAL);
	assert_int_equal(read_log("1, 2, 9, 0, 0\n", &s), -EINVAL);
	assert_int_equal(read_log("1, nan, 0, 0, 0\n", &s), -EINVAL);
	assert_int_equal(read_log("99999999999999, 1, 0, 0, 0\n", &s), -EINVAL);
	assert_int_equal(s.nr, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		{ "adds up the jobs", adds_up_the_jobs, NULL, NULL, NULL },
		{ "refuses a run that failed", refuses_a_run_that_failed, NULL,
		    NULL, NULL },
		{ "adds up logs over time", adds_up_logs_over_time, NULL, NULL,
		    NULL },
		{ "refuses what is no log", refuses_what_is_no_log, NULL, NULL,
		    NULL },
	};

	return cmocka_run_group_tests_name("fio's JSON", tests, NULL, NULL);
}
