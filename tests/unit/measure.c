/* SPDX-License-Identifier: MIT */
/* What fio reports, and traces, as percentiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl.h"

/* Read it; NULL: it must be refused, with these words. */
static struct measurement *
take(const char *content, const char *complaint)
{
	char path[] = "/tmp/nullb-measure-XXXXXX", *said = NULL;
	int fd = mkstemp(path);
	struct measurement *m;
	size_t len, all = strlen(content);
	FILE *errors = open_memstream(&said, &len);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, all), all);
	close(fd);
	m = measure_read(path, NULL, errors);
	fclose(errors);
	unlink(path);
	if (complaint == NULL && m == NULL)
		fail_msg("%s", said);
	if (complaint != NULL && (m != NULL || strstr(said, complaint) == NULL))
		fail_msg("\"%s\" is not \"%s\"", said, complaint);
	free(said);
	return m;
}

static void
check_point(const struct measured *of, unsigned i, double percent, uint64_t ns)
{
	assert_true(i < of->nr_points);
	assert_int_equal(of->point[i].percent, percent * DIST_PERCENT + 0.5);
	assert_int_equal(of->point[i].ns, ns);
}

#define JOB(dir, ios, bytes, ns) \
	"{\"" dir "\":{\"total_ios\":" ios ",\"io_bytes\":" bytes "," ns "}}"
#define NS(name, percentiles)                                                  \
	"\"" name "\":{\"min\":1000,\"max\":9000,\"percentile\":{" percentiles \
	"}}"

static void
reads_the_percentiles_of_fio(void **state)
{
	struct measurement *m;

	(void)state;
	m = take(
	    "fio: some warning\n{\"jobs\":[" JOB("write", "200", "13107200",
		NS("clat_ns",
		    "\"50.000000\":2000,\"99.900000\":8000")) "," JOB("read",
		"2000", "8192000",
		NS("clat_ns",
		    "\"99.900000\":8000,\"50.000000\":2000")) "," JOB("sync",
		"9", "0", NS("lat_ns", "\"50.000000\":5000")) "]}\ntrailing",
	    NULL);
	assert_int_equal(m->nr, 3);
	assert_int_equal(m->of[0].group, STAT_READ);
	assert_int_equal(m->of[0].bytes, 4096);
	assert_int_equal(m->of[0].nr, 2000);
	assert_int_equal(m->of[0].nr_points, 4);
	check_point(&m->of[0], 0, 0, 1000);
	check_point(&m->of[0], 1, 50, 2000);
	check_point(&m->of[0], 2, 99.9, 8000);
	check_point(&m->of[0], 3, 100, 9000);
	/* 200 do not tell of one in 1000 */
	assert_int_equal(m->of[1].group, STAT_WRITE);
	assert_int_equal(m->of[1].bytes, 65536);
	assert_int_equal(m->of[1].nr_points, 3);
	assert_int_equal(m->of[2].group, STAT_FLUSH);
	measure_shift(m, STAT_READ, -1500);
	check_point(&m->of[0], 0, 0, 0);
	check_point(&m->of[0], 1, 50, 500);
	check_point(&m->of[1], 0, 0, 1000);
	measure_free(m);
}

static void
reads_the_histogram_of_fio(void **state)
{
	struct measurement *m;

	(void)state;
	m = take(
	    "{\"jobs\":[" JOB("trim", "100", "409600",
		"\"clat_ns\":{\"bins\":{\"30\":40,\"20\":50,\"500\":10}}") "]}",
	    NULL);
	assert_int_equal(m->nr, 1);
	assert_int_equal(m->of[0].group, STAT_DISCARD);
	check_point(&m->of[0], 0, 0, 20);
	check_point(&m->of[0], 7, 50, 20);
	check_point(&m->of[0], 8, 60, 30);
	check_point(&m->of[0], 11, 90, 30);
	check_point(&m->of[0], 12, 95, 500);
	check_point(&m->of[0], 14, 100, 500);
	measure_free(m);
}

static void
reads_the_time_from_d_to_c_of_a_trace(void **state)
{
	struct measurement *m;

	(void)state;
	m = take(
	    "8,0 0 1 0.000000100 7 Q R 8 + 8 [fio]\n"
	    "8,0 0 2 0.000001000 7 D R 8 + 8 [fio]\n"
	    "8,0 0 3 0.000002000 7 D R 16 + 8 [fio]\n"
	    "8,0 0 4 0.000002500 7 D W 8 + 16 [fio]\n"
	    "8,0 0 5 0.000005000 0 C R 16 + 8 [0]\n"
	    "8,0 0 6 0.000006000 0 C W 8 + 16 [0]\n"
	    "8,0 0 7 0.000008000 0 C R 8 + 8 [0]\n"
	    "8,0 0 8 0.000009000 0 C R 24 + 8 [0]\n"  /* its D is not there */
	    "8,0 0 9 0.000009500 7 D R 32 + 8 [0]\n", /* nor its C */
	    NULL);
	assert_int_equal(m->nr, 2);
	assert_int_equal(m->of[0].group, STAT_READ);
	assert_int_equal(m->of[0].bytes, 4096);
	assert_int_equal(m->of[0].nr, 2);
	check_point(&m->of[0], 0, 0, 3000);
	assert_int_equal(m->of[0].point[m->of[0].nr_points - 1].ns, 7000);
	assert_int_equal(m->of[1].group, STAT_WRITE);
	assert_int_equal(m->of[1].bytes, 8192);
	check_point(&m->of[1], 0, 0, 3500);
	measure_free(m);
}

static void
refuses_what_tells_no_latencies(void **state)
{
	(void)state;
	take("", "empty");
	take("{", "not JSON");
	take("{}", "no latencies in it");
	take("[1]", "not a recording");
	take("{\"jobs\":3}", "no latencies");
	take("{\"jobs\":[{\"read\":7},null]}", "no latencies");
	take("{\"jobs\":[" JOB("read", "5", "5", "\"clat_ns\":{}") "]}",
	    "no latencies");
	take("{\"jobs\":[" JOB(
		 "read", "-5", "1e300", NS("clat_ns", "\"50.0\":1")) "]}",
	    "no latencies");
	take("8,0 0 1 0.000000100 7 Q R 8 + 8 [fio]\n", "no I/O");
	take("8,0 0 1 0.000000100 7 D R 8 + 8 [fio]\n", "no latencies");
	take("hello\n", "not a recording");
	assert_null(measure_read("/nonexistent", NULL, tmpfile()));
}

/* Numbers that fio would not print do no harm. */
static void
takes_odd_numbers(void **state)
{
	struct measurement *m;

	(void)state;
	m = take("{\"jobs\":[" JOB("read", "1000", "0",
		     NS("clat_ns", "\"50.0\":-7,\"60\":99999999999999999,"
				   "\"x\":3,\"70\":5,\"101\":1")) "]}",
	    NULL);
	for (unsigned i = 1; i < m->of[0].nr_points; i++) {
		assert_true(m->of[0].point[i].ns >= m->of[0].point[i - 1].ns);
		assert_true(m->of[0].point[i].ns <= DIST_MAX_NS);
	}
	measure_free(m);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_the_percentiles_of_fio),
		cmocka_unit_test(reads_the_histogram_of_fio),
		cmocka_unit_test(reads_the_time_from_d_to_c_of_a_trace),
		cmocka_unit_test(refuses_what_tells_no_latencies),
		cmocka_unit_test(takes_odd_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
