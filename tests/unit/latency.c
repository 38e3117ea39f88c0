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
#include "host.h"

static void
buckets_follow_each_other(void **state)
{
	(void)state;
	assert_int_equal(latency_from(0), 0);
	for (unsigned i = 1; i < LATENCY_BUCKETS; i++) {
		uint64_t from = latency_from(i);

		assert_int_equal(latency_index(from), i);
		assert_int_equal(latency_index(from - 1), i - 1);
		/* known to 1/32 */
		assert_in_range(from - latency_from(i - 1), 1,
		    from / 32 > 1 ? from / 32 : 1);
	}
	assert_int_equal(latency_from(LATENCY_BUCKETS), UINT64_C(1) << 42);
	assert_int_equal(latency_index(UINT64_MAX), LATENCY_BUCKETS - 1);
}

static void
percentiles_are_those_of_the_values(void **state)
{
	struct latency *l = calloc(1, sizeof(*l));

	(void)state;
	assert_int_equal(latency_percentile(l, 50), 0);
	assert_true(latency_mean(l) == 0);
	for (uint64_t ns = 1; ns <= 100000; ns++)
		latency_add(l, ns);
	assert_int_equal(latency_count(l), 100000);
	assert_true(latency_mean(l) == 50000.5);
	for (double p = 0.01; p <= 100; p += 0.01) {
		double want = p * 1000, got = (double)latency_percentile(l, p);

		assert_true(got > want * 63 / 64 - 1);
		assert_true(got < want * 65 / 64 + 1);
	}
	assert_int_equal(latency_percentile(l, 0), 1);
	free(l);
}

/* 99 of a hundred are 10, one is 1000: no interpolation between them. */
static void
a_percentile_is_a_value_that_there_was(void **state)
{
	struct latency *l = calloc(1, sizeof(*l));

	(void)state;
	for (unsigned i = 0; i < 99; i++)
		latency_add(l, 10);
	latency_add(l, 1000);
	assert_int_equal(latency_percentile(l, 50), 10);
	assert_int_equal(latency_percentile(l, 99), 10);
	assert_in_range(latency_percentile(l, 99.1), 985, 1015);
	assert_in_range(latency_percentile(l, 100), 985, 1015);
	free(l);
}

static void
what_came_since_is_a_difference(void **state)
{
	struct latency *now = calloc(1, sizeof(*now));
	struct latency *before = calloc(1, sizeof(*before));

	(void)state;
	latency_add(before, 10);
	latency_add(before, 5000);
	latency_merge(now, before);
	latency_add(now, 5000);
	latency_add(now, 70);
	latency_take(now, before);
	assert_int_equal(latency_count(now), 2);
	assert_int_equal(latency_sum(now), 5070);
	assert_int_equal(latency_get(now, latency_index(10)), 0);
	assert_int_equal(latency_get(now, latency_index(70)), 1);
	free(now);
	free(before);
}

/* ---- of a disk, over the control socket, to a person */

static void
on_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	bio_release(bio, cpu);
	*(bool *)bio->priv = true;
}

static void
do_write(struct disk *d, struct cpu *cpu, uint64_t now)
{
	static char data[512];
	bool ended = false;
	struct bio bio;

	bio_init(&bio, REQ_OP_WRITE, 0, NULL, 0);
	bio_add(&bio, true, 4096, data, sizeof(data));
	bio.end_io = on_end;
	bio.priv = &ended;
	assert_int_equal(queue_submit(d->queue, cpu, NULL, &bio, now), 0);
	cpu_run(cpu, now);
	if (!ended)
		cpu_run(cpu, now + 50000);
	assert_true(ended);
}

static void
shows_what_a_disk_has_counted(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 0);
	struct latency *l = malloc(sizeof(*l));
	char text[4096] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");
	struct disk *d;
	json_t *json;

	(void)state;
	turn(m->cpu);
	d = host_disk(m, p, "size=1 irqmode=2 completion_nsec=50000");
	for (unsigned i = 0; i < 200; i++)
		do_write(d, m->cpu, 2000000 + 100000 * i);
	json = latency_pack(d);
	assert_non_null(json);
	for (unsigned g = 0; g < STAT_NR; g++) {
		assert_int_equal(latency_unpack(json, g, l), 0);
		assert_int_equal(latency_count(l), g == STAT_WRITE ? 200 : 0);
	}
	assert_int_equal(latency_unpack(json, STAT_WRITE, l), 0);
	assert_int_equal(latency_sum(l), 200 * 50000);
	assert_in_range(latency_percentile(l, 99.99), 49152, 50175);
	latency_print(STAT_WRITE, l, out);
	fclose(out);
	assert_string_equal(text,
	    "  write: 200, avg=50.00 usec\n"
	    "    lat percentiles (nsec):\n"
	    "     |  1.00th=[49663],  5.00th=[49663], 10.00th=[49663], "
	    "20.00th=[49663],\n"
	    "     | 30.00th=[49663], 40.00th=[49663], 50.00th=[49663], "
	    "60.00th=[49663],\n"
	    "     | 70.00th=[49663], 80.00th=[49663], 90.00th=[49663], "
	    "95.00th=[49663],\n"
	    "     | 99.00th=[49663], 99.50th=[49663], 99.90th=[49663], "
	    "99.95th=[49663],\n"
	    "     | 99.99th=[49663]\n");
	json_object_del(json, "write");
	assert_int_equal(latency_unpack(json, STAT_WRITE, l), -EINVAL);
	json_decref(json);
	free(l);
	disk_free(d);
	rest(p, m->cpu);
	page_pool_free(p);
	machine_free(m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_follow_each_other),
		cmocka_unit_test(percentiles_are_those_of_the_values),
		cmocka_unit_test(a_percentile_is_a_value_that_there_was),
		cmocka_unit_test(what_came_since_is_a_difference),
		cmocka_unit_test(shows_what_a_disk_has_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
