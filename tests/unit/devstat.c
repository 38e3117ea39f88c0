/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compare/compare.h"

/* One device's answers. */
static const char device[] =
    "{\"stat\":{\"sample\":{\"io_ticks_ms\":10,\"in_queue_ms\":20,"
    "\"read\":{\"ios\":75,\"merges\":25,\"sectors\":600,\"ticks_ms\":30},"
    "\"write\":{\"ios\":0,\"merges\":0,\"sectors\":0,\"ticks_ms\":0}}},"
    "\"segments\":{\"segments\":{"
    "\"bvecs_per_bio\":{\"count\":100,\"sum\":400},"
    "\"segments_per_request\":{\"count\":75,\"sum\":150,"
    "\"buckets\":[{\"from\":1,\"to\":1,\"count\":50},"
    "{\"from\":2,\"to\":3,\"count\":25}]},"
    "\"sectors_per_request\":{\"count\":75,\"sum\":600,"
    "\"buckets\":[{\"from\":8,\"to\":15,\"count\":75}]},"
    "\"splits\":{\"size\":3,\"chunk\":0,\"segments\":1,\"gap\":0},"
    "\"refused_merges\":{\"closed\":2}}}}";

static double
value(const struct figures *f, const char *name)
{
	const struct figure *figure = figures_find(f, name);

	assert_non_null(figure);
	assert_int_equal(figure->side[SIDE_BASE].nr, 1);
	return figure->side[SIDE_BASE].value[0];
}

static void
adds_up_the_devices(void **state)
{
	json_t *one = json_loads(device, 0, NULL), *devices;
	struct run run = { .side = SIDE_BASE };
	struct figures f = {};

	(void)state;
	assert_non_null(one);
	devices = json_pack("[OO]", one, one);
	assert_int_equal(devstat_read(devices, &f, &run), 0);
	assert_float_equal(value(&f, "stat.read.ios"), 150, 1e-9);
	assert_float_equal(value(&f, "stat.read.sectors"), 1200, 1e-9);
	assert_float_equal(value(&f, "stat.read.merge_share"), 25, 1e-9);
	assert_float_equal(value(&f, "stat.read.kib_per_request"), 4, 1e-9);
	/* what there was nothing of is there, too */
	assert_float_equal(value(&f, "stat.write.merge_share"), 0, 1e-9);
	assert_float_equal(value(&f, "stat.discard.ios"), 0, 1e-9);
	assert_float_equal(value(&f, "stat.io_ticks_ms"), 20, 1e-9);
	assert_float_equal(value(&f, "segments.bvecs_per_bio"), 4, 1e-9);
	assert_float_equal(value(&f, "segments.segments_per_request"), 2, 1e-9);
	assert_float_equal(value(&f, "splits.size"), 6, 1e-9);
	assert_float_equal(value(&f, "refused_merges.closed"), 4, 1e-9);
	assert_int_equal(run.segments.nr, 2);
	assert_int_equal(run.segments.count[0], 100);
	assert_int_equal(run.segments.count[1], 50);
	assert_float_equal(run.sectors.upto[0], 15, 1e-9);
	run_fini(&run);
	figures_fini(&f);
	json_decref(devices);
	json_decref(one);
}

static void
counts_nothing_of_no_device(void **state)
{
	json_t *devices = json_array();
	struct run run = {};
	struct figures f = {};

	(void)state;
	assert_int_equal(devstat_read(devices, &f, &run), 0);
	assert_float_equal(value(&f, "stat.read.merge_share"), 0, 1e-9);
	assert_int_equal(run.sectors.nr, 0);
	figures_fini(&f);
	json_decref(devices);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		{ "adds up the devices", adds_up_the_devices, NULL, NULL,
		    NULL },
		{ "counts nothing of no device", counts_nothing_of_no_device,
		    NULL, NULL, NULL },
	};

	return cmocka_run_group_tests_name(
	    "what the devices did", tests, NULL, NULL);
}
