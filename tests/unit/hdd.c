/* SPDX-License-Identifier: MIT */
/* A rotating disk, in simulated time: against what can be reckoned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>

#include "lib/closed.h"

#define MS UINT64_C(1000000)
#define DISK                                                  \
	"size=1T;hdd.rpm=7200;hdd.seek=8500000;hdd.mbps=200;" \
	"hdd.inner=100;max_sectors=2048;hw_queue_depth=64;irqmode=0;"
#define TURN   (60e9 / 7200)
#define TRACK  1e6
#define SEEK   8.5e6
#define STROKE 18e6

static struct closed closed;

static void
open_disk(const char *more)
{
	char settings[400], *rest = settings, *name, *value, err[400];

	snprintf(settings, sizeof(settings), "%s%s", DISK, more);
	closed_open(&closed);
	while ((value = strsep(&rest, ";")) != NULL && *value != '\0') {
		name = strsep(&value, "=");
		if (closed_set(&closed, name, value, err, sizeof(err)) != 0)
			fail_msg("%s", err);
	}
	if (closed_on(&closed, err, sizeof(err)) != 0)
		fail_msg("%s", err);
}

static struct closed_result
run(const struct closed_job *job)
{
	struct closed_result r = closed_run(&closed, job);

	free(r.ns);
	return r;
}

static struct closed_result
run_random(enum req_op op, unsigned depth, unsigned nr)
{
	return run(&(struct closed_job){ .op = op,
	    .random = true,
	    .bytes = 4096,
	    .depth = depth,
	    .nr = nr });
}

static void
expect_near(double is, double should, double percent)
{
	if (is < should * (1 - percent / 100) ||
	    is > should * (1 + percent / 100))
		fail_msg("%g is not within %g %% of %g", is, percent, should);
}

static struct hdd
a_disk(void)
{
	static const struct hdd_conf conf = {
		.rpm = 7200,
		.track_ns = 1000000,
		.seek_ns = 8500000,
		.stroke_ns = 18000000,
		.mbps = 200,
		.inner_mbps = 100,
		.cache = 1 << 20,
		.queue = 32,
	};
	struct hdd h;

	hdd_init(&h, &conf, UINT64_C(1) << 40);
	return h;
}

static void
seeks_are_what_its_data_sheet_says(void **state)
{
	struct hdd h = a_disk();
	uint64_t size = h.size, last = 0, ns;

	(void)state;
	assert_int_equal(hdd_seek(&h, size / 2, size / 2), 0);
	assert_int_equal(hdd_seek(&h, size / 2, size / 2 + 4096), 0);
	expect_near((double)hdd_seek(&h, 0, 4 << 20), TRACK, 5);
	expect_near((double)hdd_seek(&h, 0, size / 3), SEEK, 0.1);
	expect_near((double)hdd_seek(&h, size, 0), STROKE, 0.1);
	/* short ones by the root: a ninth of that way in a third of the time
	 */
	expect_near((double)hdd_seek(&h, 0, size / 27) - TRACK,
	    (SEEK - TRACK) / 3, 0.1);
	for (unsigned i = 1; i <= 100; i++, last = ns) {
		ns = hdd_seek(&h, 0, size / 100 * i);
		assert_true(ns > last);
		assert_int_equal(ns, hdd_seek(&h, size / 100 * i, 0));
	}
}

/* The mean over two places at random: the density of a distance x is 2(1-x). */
static double
mean_seek(void)
{
	double sum = 0, x, ns;

	for (unsigned i = 0; i < 100000; i++) {
		x = (i + 0.5) / 100000;
		ns = x < 1 / 3.0 ? TRACK + (SEEK - TRACK) * sqrt(3 * x)
				 : SEEK + (STROKE - SEEK) * (3 * x - 1) / 2;
		sum += 2 * (1 - x) * ns / 100000;
	}
	return sum;
}

static void
a_random_read_takes_a_seek_and_half_a_turn(void **state)
{
	(void)state;
	open_disk("");
	expect_near(run_random(REQ_OP_READ, 1, 20000).mean_us,
	    (mean_seek() + TURN / 2) / 1e3, 1);
	closed_close(&closed);
}

static void
what_its_electronics_take_comes_on_top(void **state)
{
	(void)state;
	open_disk("latency.read=constant 200us;link.read=100us");
	expect_near(run_random(REQ_OP_READ, 1, 20000).mean_us,
	    (mean_seek() + TURN / 2) / 1e3 + 300, 1);
	closed_close(&closed);
}

static double
stream(enum req_op op, uint64_t first, unsigned depth)
{
	return run(&(struct closed_job){ .op = op,
		       .first = first,
		       .bytes = 131072,
		       .depth = depth,
		       .nr = 4000,
		       .warm_up = 10 })
	    .mbps;
}

static void
a_stream_comes_at_the_rate_of_its_zone(void **state)
{
	(void)state;
	open_disk("hdd.cache=4M");
	expect_near(stream(REQ_OP_READ, 0, 1), 200, 1);
	expect_near(stream(REQ_OP_READ, 0, 4), 200, 1);
	expect_near(
	    stream(REQ_OP_READ, (UINT64_C(1) << 40) - (1 << 30), 1), 100, 1);
	expect_near(stream(REQ_OP_WRITE, 0, 4), 200, 1);
	closed_close(&closed);
}

/* Time for a host that takes a while between a request and the next. */
static double
stream_slowly(const char *more, enum req_op op, uint64_t pause_ns)
{
	struct closed_result r;
	uint64_t sum = 0;

	open_disk(more);
	for (unsigned i = 0; i < 500; i++) {
		r = closed_run(&closed, &(struct closed_job){ .op = op,
					    .first = i * UINT64_C(131072),
					    .bytes = 131072,
					    .depth = 1,
					    .nr = 1 });
		if (i > 0)
			sum += r.ns[0];
		free(r.ns);
		closed.now += pause_ns;
	}
	closed_close(&closed);
	return (double)sum / 499;
}

static void
reading_ahead_saves_the_turn_that_writing_costs(void **state)
{
	double transfer = 131072 / (200.0 * (1 << 20)) * 1e9; /* 625 us */

	(void)state;
	/* what passed while the host was busy is in the buffer */
	expect_near(
	    stream_slowly("", REQ_OP_READ, 100000), transfer - 100000, 2);
	/* a slow host finds it there, but where that was full and stopped */
	assert_true(stream_slowly("", REQ_OP_READ, 2 * MS) < TURN / 20);
	/* without one it is just past */
	expect_near(stream_slowly("hdd.cache=0", REQ_OP_READ, 100000),
	    TURN - 100000 + transfer, 2);
	expect_near(stream_slowly("", REQ_OP_WRITE, 100000),
	    TURN - 100000 + transfer, 2);
}

static void
a_full_buffer_costs_a_turn(void **state)
{
	uint64_t start = UINT64_C(1) << 30;
	struct hdd h = a_disk();
	uint64_t at = hdd_serve(&h, MS, true, start, 131072), done;

	(void)state;
	at += 1000 * MS; /* 1 MiB is read ahead, and it has stopped */
	done = hdd_serve(&h, at, true, start + 131072, 1 << 20);
	assert_int_equal(done, at);
	done = hdd_serve(&h, at, true, start + 131072 + (1 << 20), 131072);
	assert_true(done > at + 625000 - 10000);
	assert_true((double)done < (double)at + TURN + 700000);
}

/* Three or more to choose from, and the arm goes less far. */
static void
depth_makes_ways_shorter(void **state)
{
	double iops[4], fifo;

	(void)state;
	open_disk("");
	iops[0] = run_random(REQ_OP_READ, 1, 4000).iops;
	iops[1] = run_random(REQ_OP_READ, 4, 4000).iops;
	iops[2] = run_random(REQ_OP_READ, 32, 8000).iops;
	closed_close(&closed);
	open_disk("hdd.queue=1");
	fifo = run_random(REQ_OP_READ, 32, 4000).iops;
	closed_close(&closed);
	print_message("depth 1: %.0f, 4: %.0f, 32: %.0f, as they come: %.0f\n",
	    iops[0], iops[1], iops[2], fifo);
	assert_true(iops[1] > 1.2 * iops[0]);
	assert_true(iops[2] > 2 * iops[0]);
	assert_true(iops[2] < 4 * iops[0]);
	expect_near(fifo, iops[0], 3);
}

/* The nearest one first would leave it for ever. */
static void
nobody_waits_for_ever(void **state)
{
	struct closed_result r;
	uint64_t longest = 0;

	(void)state;
	open_disk("hdd.queue=1024;hw_queue_depth=256");
	r = closed_run(&closed, &(struct closed_job){ .op = REQ_OP_READ,
				    .random = true,
				    .bytes = 4096,
				    .depth = 256,
				    .nr = 5000 });
	for (unsigned i = 0; i < r.nr; i++)
		if (r.ns[i] > longest)
			longest = r.ns[i];
	free(r.ns);
	closed_close(&closed);
	/* a second; then it is in line with others who have waited as long */
	assert_true(longest < 4000 * MS);
}

static void
the_same_requests_take_the_same_time(void **state)
{
	struct closed_result r[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_disk("");
		r[i] = closed_run(
		    &closed, &(struct closed_job){ .op = REQ_OP_WRITE,
				 .random = true,
				 .bytes = 4096,
				 .depth = 16,
				 .nr = 2000 });
		closed_close(&closed);
	}
	assert_memory_equal(r[0].ns, r[1].ns, r[0].nr * sizeof(*r[0].ns));
	free(r[0].ns);
	free(r[1].ns);
}

/* 32, one of which is under way. */
static struct closed_result
let_some_wait(void)
{
	struct closed_result r = { .ns = calloc(32, sizeof(*r.ns)) };

	open_disk("");
	closed.job = (struct closed_job){ .op = REQ_OP_READ,
		.random = true,
		.bytes = 4096,
		.depth = 32,
		.nr = 32 };
	closed.ended = closed.begun = 0;
	for (unsigned i = 0; i < 32; i++)
		closed_begin(&closed, calloc(1, sizeof(struct closed_io)));
	(void)cpu_run(&closed.machine->cpu[0], closed.now);
	assert_int_equal(closed.ended, 0);
	return r;
}

/* The daemon ends. */
static void
all_that_wait_expire_with_the_cpu(void **state)
{
	struct closed_result r = let_some_wait();

	(void)state;
	closed.out = &r;
	closed.error = -ESHUTDOWN;
	cpu_expire(&closed.machine->cpu[0], -ESHUTDOWN, closed.now);
	assert_int_equal(closed.ended, 32);
	free(r.ns);
	closed_close(&closed);
}

/* The power goes off, and nobody wants to wait. */
static void
all_that_wait_expire_with_the_disk(void **state)
{
	struct closed_result r = let_some_wait();

	(void)state;
	closed.out = &r;
	closed.error = -ESHUTDOWN;
	queue_expire(closed.disk->queue, -ESHUTDOWN);
	assert_int_equal(
	    cpu_run(&closed.machine->cpu[0], closed.now), CPU_NO_DEADLINE);
	assert_int_equal(closed.ended, 32);
	free(r.ns);
	closed_close(&closed);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seeks_are_what_its_data_sheet_says),
		cmocka_unit_test(a_random_read_takes_a_seek_and_half_a_turn),
		cmocka_unit_test(what_its_electronics_take_comes_on_top),
		cmocka_unit_test(a_stream_comes_at_the_rate_of_its_zone),
		cmocka_unit_test(
		    reading_ahead_saves_the_turn_that_writing_costs),
		cmocka_unit_test(a_full_buffer_costs_a_turn),
		cmocka_unit_test(depth_makes_ways_shorter),
		cmocka_unit_test(nobody_waits_for_ever),
		cmocka_unit_test(the_same_requests_take_the_same_time),
		cmocka_unit_test(all_that_wait_expire_with_the_cpu),
		cmocka_unit_test(all_that_wait_expire_with_the_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
