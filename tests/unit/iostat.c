/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

/* Two seconds of a disk. */
static const struct sample before = {
	.now_ns = 1000000000,
	.stat = {
		.ios = { 100, 50, 7, 1 },
		.merges = { 10, 0, 0, 0 },
		.sectors = { 800, 400, 0, 0 },
		.ticks_ms = { 100, 60, 1, 1 },
		.io_ticks_ms = 500,
		.in_queue_ms = 900,
	},
};

static const struct sample after = {
	.now_ns = 3000000000,
	.stat = {
		.ios = { 300, 50, 9, 5 },
		.merges = { 110, 0, 0, 0 },
		.sectors = { 8800, 400, 2048, 0 },
		.ticks_ms = { 500, 60, 3, 9 },
		.io_ticks_ms = 1500,
		.in_queue_ms = 4900,
	},
};

static char *text;
static size_t len;

static FILE *
writing(void)
{
	free(text);
	text = NULL;
	return open_memstream(&text, &len);
}

static void
prints_the_columns_of_iostat_x(void **state)
{
	FILE *out = writing();

	(void)state; /* block layer notes, 6.3; the form is sysstat's */
	iostat_header(true, out);
	iostat_line(true, "nullb0", &before, &after, out);
	fclose(out);
	assert_string_equal(text,
	    "Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz"
	    "     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz"
	    "     d/s     dkB/s   drqm/s  %drqm d_await dareq-sz"
	    "     f/s f_await  aqu-sz  %util\n"
	    "nullb0         100.00   2000.00    50.00  33.33    2.00    20.00"
	    "    0.00      0.00     0.00   0.00    0.00     0.00"
	    "    1.00    512.00     0.00   0.00    1.00   512.00"
	    "    2.00    2.00    2.00  50.00\n");
}

static void
prints_the_short_form(void **state)
{
	FILE *out = writing();

	(void)state;
	iostat_header(false, out);
	iostat_line(false, "nullb0", &before, &after, out);
	fclose(out);
	assert_string_equal(text,
	    "Device              tps    kB_read/s    kB_wrtn/s    kB_dscd/s"
	    "    kB_read    kB_wrtn    kB_dscd\n"
	    "nullb0           101.00      2000.00         0.00       512.00"
	    "       4000          0       1024\n");
}

static void
prints_zeros_where_nothing_happened(void **state)
{
	FILE *out = writing();

	(void)state;
	iostat_line(true, "nullb0", &after, &after, out);
	/* a counter that went back, as after a restart, is none */
	iostat_line(true, "nullb0", &after, &before, out);
	fclose(out);
	assert_null(strstr(text, "nan"));
	assert_null(strstr(text, "inf"));
	assert_null(strstr(text, "-"));
}

static void
prints_the_line_of_fio(void **state)
{
	struct sample busy = after;
	FILE *out = writing();

	(void)state; /* block layer notes, 6.4 */
	fio_line(false, "nullb0", &before, &after, out);
	fclose(out);
	assert_string_equal(text, "  nullb0: ios=200/0, merge=100/0, "
				  "ticks=400/0, in_queue=4000, util=50.00%");
	busy.stat.io_ticks_ms = 99999; /* capped */
	out = writing();
	fio_line(false, "nullb0", &before, &busy, out);
	fclose(out);
	assert_non_null(strstr(text, "util=100.00%"));
	out = writing(); /* since 3.36 */
	fio_line(true, "nullb0", &before, &after, out);
	fclose(out);
	assert_string_equal(text,
	    "  nullb0: ios=200/0, sectors=8000/0, merge=100/0, "
	    "ticks=400/0, in_queue=4000, util=50.00%");
}

static void
names_columns_in_json(void **state)
{
	json_t *json = iostat_json(&before, &after);

	(void)state;
	assert_true(json_real_value(json_object_get(json, "r_await")) == 2.0);
	assert_true(json_real_value(json_object_get(json, "%util")) == 50.0);
	assert_int_equal(json_object_size(json), 22);
	json_decref(json);
}

static void
a_sample_survives_json(void **state)
{
	json_t *json = sample_pack(&after);
	struct sample s;

	(void)state;
	assert_int_equal(sample_unpack(json, &s), 0);
	assert_memory_equal(&s, &after, sizeof(s));
	json_object_set_new(json, "write", json_string("x"));
	assert_int_equal(sample_unpack(json, &s), -EINVAL);
	json_object_del(json, "now_ns");
	assert_int_equal(sample_unpack(json, &s), -EINVAL);
	assert_int_equal(sample_unpack(NULL, &s), -EINVAL);
	json_decref(json);
}

static int
teardown(void **state)
{
	(void)state;
	free(text);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prints_the_columns_of_iostat_x),
		cmocka_unit_test(prints_the_short_form),
		cmocka_unit_test(prints_zeros_where_nothing_happened),
		cmocka_unit_test(prints_the_line_of_fio),
		cmocka_unit_test(names_columns_in_json),
		cmocka_unit_test(a_sample_survives_json),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
