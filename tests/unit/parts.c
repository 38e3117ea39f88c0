/* SPDX-License-Identifier: MIT */
/* What requests wait for, in simulated time: against what can be reckoned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "lib/closed.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

static struct closed closed;

/* "a=1;b=2" */
static int
try_disk(unsigned nr_cpus, const char *settings, char *err, size_t errlen)
{
	char *copy = strdup(settings), *rest = copy, *name, *value;
	int ret = 0;

	closed_open_cpus(&closed, nr_cpus);
	while (ret == 0 && (value = strsep(&rest, ";")) != NULL &&
	       *value != '\0') {
		name = strsep(&value, "=");
		ret = closed_set(&closed, name, value, err, errlen);
	}
	free(copy);
	if (ret == 0)
		ret = closed_on(&closed, err, errlen);
	return ret;
}

static void
open_disk(const char *settings)
{
	char err[512];

	if (try_disk(1, settings, err, sizeof(err)) != 0)
		fail_msg("%s", err);
}

/* Of reads or writes, one after the other or at random. */
static struct closed_result
run(enum req_op op, bool random, uint32_t bytes, unsigned depth, unsigned nr)
{
	return closed_run(&closed, &(struct closed_job){ .op = op,
				       .random = random,
				       .bytes = bytes,
				       .depth = depth,
				       .nr = nr });
}

/* The same, when only the rate matters. */
static double
iops(enum req_op op, bool random, uint32_t bytes, unsigned depth, unsigned nr)
{
	struct closed_result r = run(op, random, bytes, depth, nr);

	free(r.ns);
	return r.iops;
}

static void
expect_near(double is, double should, double percent)
{
	if (is < should * (1 - percent / 100) ||
	    is > should * (1 + percent / 100))
		fail_msg("%g is not within %g %% of %g", is, percent, should);
}

static void
depth_raises_throughput_up_to_the_lanes(void **state)
{
	(void)state;
	open_disk("lanes=8;latency.read=constant 100us;hw_queue_depth=256");
	for (unsigned depth = 1; depth <= 256; depth *= 2) {
		unsigned busy = depth < 8 ? depth : 8;
		struct closed_result r =
		    run(REQ_OP_READ, true, 4096, depth, 4096);

		expect_near(r.iops, busy * 10000.0, 0.1);
		/* Little's law: depth = throughput * time, but for the end */
		expect_near(r.iops * r.mean_us / 1e6, depth, 7);
		free(r.ns);
	}
	closed_close(&closed);
}

static void
without_lanes_there_is_no_knee(void **state)
{
	(void)state;
	open_disk("latency.read=constant 100us;hw_queue_depth=256");
	expect_near(iops(REQ_OP_READ, true, 4096, 256, 4096), 2560000, 0.1);
	closed_close(&closed);
}

static void
without_latencies_completion_nsec_is_the_time_of_a_lane(void **state)
{
	(void)state;
	open_disk("lanes=2;irqmode=2;completion_nsec=50us");
	expect_near(iops(REQ_OP_READ, true, 4096, 16, 4000), 40000, 0.1);
	closed_close(&closed);
}

/* A stride of 8 stripes is always on the same lane; any other one is free. */
static void
stripes_that_lie_on_one_lane_wait_for_it(void **state)
{
	(void)state;
	open_disk("lanes=8;lanes.stripe=4096;latency.read=constant 100us;"
		  "size=1;max_sectors=64");
	/* 32 KiB: eight pieces, one on each lane, all at once */
	expect_near(iops(REQ_OP_READ, false, 32768, 1, 100), 10000, 0.1);
	/* and at depth they wait for each other */
	expect_near(iops(REQ_OP_READ, false, 32768, 8, 800), 10000, 0.1);
	closed_close(&closed);

	open_disk("lanes=8;latency.read=constant 100us;size=1;max_sectors=64");
	expect_near(iops(REQ_OP_READ, false, 32768, 8, 800), 80000, 0.1);
	closed_close(&closed);

	/* a disk of one stripe has one lane, whatever there are */
	open_disk("lanes=8;lanes.stripe=1M;latency.read=constant 100us;size=1");
	expect_near(iops(REQ_OP_READ, false, 4096, 8, 800), 10000, 0.1);
	closed_close(&closed);
}

/* By the birthday problem some lanes are idle while others have a queue. */
static void
random_stripes_do_not_keep_all_lanes_busy(void **state)
{
	double striped, any;

	(void)state;
	open_disk("lanes=8;lanes.stripe=4096;latency.read=constant 100us");
	striped = iops(REQ_OP_READ, true, 4096, 8, 20000);
	closed_close(&closed);
	open_disk("lanes=8;latency.read=constant 100us");
	any = iops(REQ_OP_READ, true, 4096, 8, 20000);
	closed_close(&closed);
	expect_near(any, 80000, 0.1);
	assert_true(striped < any * 0.75);
	assert_true(striped > any * 0.5);
}

static void
the_link_is_shared_by_all(void **state)
{
	(void)state;
	open_disk("link.mbps=1000;latency.read=constant 50us;"
		  "latency.write=constant 50us;max_sectors=2048");
	/* alone: its time, and that of its bytes */
	expect_near(iops(REQ_OP_READ, true, 131072, 1, 100), 1e6 / 175, 0.1);
	expect_near(iops(REQ_OP_WRITE, true, 131072, 1, 100), 1e6 / 175, 0.1);
	/* many: 1000 MiB/s, whatever the lanes could */
	expect_near(iops(REQ_OP_READ, true, 131072, 32, 8000), 8000, 0.5);
	expect_near(iops(REQ_OP_WRITE, true, 131072, 32, 8000), 8000, 0.5);
	closed_close(&closed);
}

static void
what_the_link_adds_takes_nobody_elses_time(void **state)
{
	(void)state;
	open_disk("lanes=2;link.read=100us;latency.read=constant 100us;"
		  "hw_queue_depth=64");
	expect_near(iops(REQ_OP_READ, true, 4096, 1, 100), 5000, 0.1);
	expect_near(iops(REQ_OP_READ, true, 4096, 2, 100), 10000, 0.1);
	expect_near(iops(REQ_OP_READ, true, 4096, 64, 6400), 20000, 1);
	closed_close(&closed);
}

/*
 * Writes of 64 KiB come each 62.5 us, 1000 MiB/s, and 200 MiB/s drain: 16 MiB
 * are full after 16 * 1000 / 800 = 20 MiB.
 */
static void
the_cliff_is_where_the_buffer_is_full(void **state)
{
	struct closed_result r;
	unsigned first = 0;

	(void)state;
	open_disk("wbuf.size=16M;wbuf.drain=200;latency.write=constant 62500ns;"
		  "max_sectors=2048");
	r = run(REQ_OP_WRITE, false, 65536, 1, 1000);
	while (first < r.nr && r.ns[first] == 62500)
		first++;
	expect_near(first, 320, 1);
	/* from there on its drain: 312.5 us each */
	for (unsigned i = first + 1; i < r.nr; i++)
		assert_in_range(r.ns[i], 312400, 312600);
	free(r.ns);
	/* and all of it is free again when it has drained */
	closed.now += 81 * MS;
	r = run(REQ_OP_WRITE, false, 65536, 1, 100);
	assert_int_equal(r.ns[99], 62500);
	free(r.ns);
	closed_close(&closed);
}

static struct closed_io *
submit(enum req_op op, unsigned flags, uint64_t bytes, uint64_t *ns)
{
	static struct closed_result r;
	struct closed_io *io = calloc(1, sizeof(*io));

	r = (struct closed_result){ .ns = ns };
	closed.out = &r;
	closed.job = (struct closed_job){ .nr = 0 };
	bio_init(&io->bio, op, 0, io->bv, BIO_MAX_VECS);
	io->bio.end_io = closed_ended;
	io->bio.priv = io;
	io->bio.flags = (uint16_t)flags;
	io->closed = &closed;
	io->begun = closed.now;
	if (op == REQ_OP_WRITE)
		assert_int_equal(
		    bio_add_payload(&io->bio, true, UINT64_C(1) << 40, 9, 0,
			closed_memory, bytes),
		    bytes);
	else
		io->bio.bytes = bytes;
	assert_int_equal(
	    queue_submit(closed.disk->queue, &closed.machine->cpu[0], NULL,
		&io->bio, closed.now),
	    0);
	return io;
}

static uint64_t
time_of(enum req_op op, unsigned flags, uint64_t bytes)
{
	uint64_t ns = UINT64_MAX, next;

	(void)submit(op, flags, bytes, &ns);
	for (;;) {
		next = cpu_run(&closed.machine->cpu[0], closed.now);
		if (ns != UINT64_MAX)
			return ns;
		assert_int_not_equal(next, CPU_NO_DEADLINE);
		closed.now = next;
	}
}

static void
a_flush_waits_for_the_buffer(void **state)
{
	(void)state;
	open_disk("wbuf.size=16M;wbuf.drain=200;cache_size=64;"
		  "memory_backed=1;max_sectors=2048;"
		  "latency.flush=constant 1ms");
	assert_int_equal(time_of(REQ_OP_WRITE, 0, 1 << 20), 0);
	assert_int_equal(time_of(REQ_OP_FLUSH, REQ_PREFLUSH, 0), 6 * MS);
	assert_int_equal(time_of(REQ_OP_FLUSH, REQ_PREFLUSH, 0), MS);
	/* what is not to stay in it waits for what is before it, too */
	assert_int_equal(time_of(REQ_OP_WRITE, 0, 1 << 20), 0);
	assert_int_equal(time_of(REQ_OP_WRITE, REQ_FUA, 1 << 20), 10 * MS);
	closed_close(&closed);
}

static void
a_flush_waits_for_lanes(void **state)
{
	uint64_t ns = UINT64_MAX;

	(void)state;
	open_disk("lanes=4;cache_size=64;memory_backed=1;"
		  "latency.write=constant 3ms;latency.flush=constant 1ms");
	(void)submit(REQ_OP_WRITE, 0, 4096, &ns);
	(void)cpu_run(&closed.machine->cpu[0], closed.now);
	closed.now += MS;
	/* two ms are left of the write */
	{
		uint64_t times[2] = {};

		(void)submit(REQ_OP_FLUSH, REQ_PREFLUSH, 0, times);
		while (times[1] == 0)
			closed.now =
			    cpu_run(&closed.machine->cpu[0], closed.now);
		assert_int_equal(times[0], 3 * MS); /* the write */
		assert_int_equal(times[1], 3 * MS); /* the flush: 2 and 1 */
	}
	closed_close(&closed);
}

static void
a_discard_takes_a_lane_however_long_it_is(void **state)
{
	(void)state;
	open_disk("lanes=4;lanes.stripe=4096;discard=1;memory_backed=1;size=64;"
		  "latency.discard=constant 1ms");
	assert_int_equal(time_of(REQ_OP_DISCARD, 0, 64 << 20), MS);
	closed_close(&closed);
}

/* 1000 credits and 100 a second, at no time at all. */
static void
credits_are_spent_and_earned_to_the_io(void **state)
{
	struct closed_result r;
	unsigned at_once = 0;

	(void)state;
	open_disk("cap.iops=100;burst.iops=1000000;burst.ios=1000;irqmode=0");
	r = run(REQ_OP_READ, true, 4096, 1, 1101);
	while (r.ns[at_once] <= US)
		at_once++;
	/* one goes for the last credit's sake; 0.1 are earned in 1 ms */
	assert_in_range(at_once, 1000, 1002);
	for (unsigned i = at_once + 1; i < r.nr; i++)
		assert_in_range(r.ns[i], 9999999, 10000001);
	free(r.ns);
	closed.now += 2500 * MS; /* 250 credits */
	r = run(REQ_OP_READ, true, 4096, 1, 300);
	for (at_once = 0; r.ns[at_once] <= US;)
		at_once++;
	assert_in_range(at_once, 249, 251);
	free(r.ns);
	closed.now += 3600000 * MS; /* no more than 1000 */
	r = run(REQ_OP_READ, true, 4096, 1, 1101);
	for (at_once = 0; r.ns[at_once] <= US;)
		at_once++;
	assert_in_range(at_once, 1000, 1002);
	free(r.ns);
	closed_close(&closed);
}

static void
bursts_have_a_rate_of_their_own(void **state)
{
	(void)state;
	open_disk("cap.iops=100;burst.iops=3000;burst.ios=54000;irqmode=0");
	expect_near(iops(REQ_OP_READ, true, 4096, 16, 30000), 3000, 0.1);
	closed_close(&closed);
	open_disk("cap.mbps=10;burst.mbps=100;burst.bytes=1G;irqmode=0;"
		  "max_sectors=2048");
	/* 800 MiB; then the rest, of 1024 MiB and what was earned */
	expect_near(iops(REQ_OP_READ, true, 1 << 20, 4, 800), 100, 1);
	(void)iops(REQ_OP_READ, true, 1 << 20, 4, 400);
	expect_near(iops(REQ_OP_READ, true, 1 << 20, 4, 100), 10, 5);
	closed_close(&closed);
}

static void
a_cap_holds_for_any_size(void **state)
{
	(void)state;
	/* gp3: both count, the one that is reached first */
	open_disk("cap.iops=3000;cap.mbps=125;latency.read=constant 500us;"
		  "max_sectors=2048;hw_queue_depth=64");
	expect_near(iops(REQ_OP_READ, true, 4096, 64, 30000), 3000, 0.5);
	expect_near(iops(REQ_OP_READ, true, 16384, 64, 30000), 3000, 0.5);
	expect_near(iops(REQ_OP_READ, true, 262144, 64, 5000), 500, 2);
	expect_near(iops(REQ_OP_READ, true, 4096, 1, 1000), 2000, 0.5);
	closed_close(&closed);
}

static void
the_same_requests_take_the_same_time(void **state)
{
	struct closed_result r[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		open_disk("seed=9;lanes=8;lanes.stripe=4096;link.mbps=1000;"
			  "latency.read=lognormal p50=80us p99=400us;"
			  "latency.spike=0.1% 5ms");
		r[i] = run(REQ_OP_READ, true, 4096, 16, 5000);
		closed_close(&closed);
	}
	assert_memory_equal(r[0].ns, r[1].ns, r[0].nr * sizeof(*r[0].ns));
	free(r[0].ns);
	free(r[1].ns);
}

static void
parts_are_as_new_when_the_power_comes_back(void **state)
{
	char err[200];

	(void)state;
	open_disk("cap.iops=10;burst.iops=1000000;burst.ios=100;irqmode=0");
	(void)iops(REQ_OP_READ, true, 4096, 1, 120);
	disk_power_drop(closed.disk);
	assert_int_equal(closed_on(&closed, err, sizeof(err)), 0);
	assert_true(iops(REQ_OP_READ, true, 4096, 1, 100) > 100000);
	closed_close(&closed);
}

static void
refused(const char *settings, const char *why)
{
	char err[512] = "";

	if (try_disk(1, settings, err, sizeof(err)) == 0)
		fail_msg("%s is taken", settings);
	if (strstr(err, why) == NULL)
		fail_msg("%s: says \"%s\"", settings, err);
	closed_close(&closed);
}

static void
what_does_not_fit_together_is_refused(void **state)
{
	(void)state;
	refused("lanes=1025", "lanes");
	refused("lanes.stripe=4096", "lanes.stripe: 4096: allowed: 0; with");
	refused("lanes=8;lanes.stripe=512", "at least 4096");
	refused("lanes=8;lanes.stripe=5000", "whole sectors");
	refused("wbuf.size=1M", "wbuf.drain: 0: allowed");
	refused("wbuf.drain=5", "wbuf.drain: 5: allowed: 0 without wbuf.size");
	refused("burst.iops=5", "burst.iops: 5: allowed: 0 without burst.ios");
	refused("burst.ios=5", "burst.iops: 0: allowed");
	refused("burst.iops=5;burst.ios=5", "more than cap.iops");
	refused("cap.iops=5;burst.iops=5;burst.ios=5", "it is 5");
	refused("cap.mbps=5;burst.mbps=5;burst.bytes=5M", "more than cap.mbps");
	refused("cap.iops=1;burst.iops=5;burst.ios=1000000000000", "ten years");
	refused("burst.bytes=5", "burst.mbps: 0: allowed");
	refused("hdd.rpm=50", "hdd.rpm: 50: allowed: 0, 1000 to 30000");
	refused("hdd.rpm=7200;lanes=1", "it has one arm");
	refused("hdd.rpm=7200;cap.iops=1", "it has one arm");
	refused("hdd.rpm=7200;hdd.seek=1", "hdd.seek: 1: allowed: hdd.track");
	refused("hdd.rpm=7200;hdd.mbps=50", "hdd.inner: 100: allowed");
}

/* Nothing wraps round: it is just never done. */
static void
times_beyond_all_time_do_not_come_back(void **state)
{
	uint64_t ns[2] = {};

	(void)state;
	open_disk("lanes=1;irqmode=2;completion_nsec=18446744073709551615;"
		  "link.write=1s");
	(void)submit(REQ_OP_WRITE, 0, 4096, ns);
	(void)submit(REQ_OP_WRITE, 0, 4096, ns);
	(void)cpu_run(&closed.machine->cpu[0], closed.now);
	(void)cpu_run(&closed.machine->cpu[0], closed.now + 3600000 * MS);
	assert_int_equal(ns[0], 0);
	cpu_expire(&closed.machine->cpu[0], 0, closed.now);
	closed_close(&closed);
}

/* A cpu with its own requests. */
struct worker {
	struct cpu *cpu;
	unsigned begun, ended;
};

static _Atomic uint64_t shared_clock;
static _Atomic unsigned all_ended;

static void
worker_ended(struct bio *bio, struct cpu *cpu, uint64_t when)
{
	struct closed_io *io = bio->priv;
	struct worker *w = (struct worker *)io->closed;

	(void)when;
	assert(w->cpu == cpu);
	w->ended++;
	atomic_fetch_add(&all_ended, 1);
	bio_release(bio, cpu);
	free(io);
}

static void *
work(void *arg)
{
	enum {
		NR = 3000
	};
	struct worker *w = arg;
	struct closed_io *io;
	uint64_t now;
	struct rng rng = { w->cpu->id };

	/* the other's requests may have been begun with here, and end here */
	while (atomic_load(&all_ended) < 2 * NR) {
		now = atomic_fetch_add(&shared_clock, 100 * US);
		for (; w->begun < NR && w->begun - w->ended < 16; w->begun++) {
			io = calloc(1, sizeof(*io));
			bio_init(&io->bio, REQ_OP_READ,
			    rng_below(&rng, 10000) * 4096, io->bv,
			    BIO_MAX_VECS);
			io->bio.end_io = worker_ended;
			io->bio.priv = io;
			io->closed = (struct closed *)w;
			(void)bio_add_payload(&io->bio, true, UINT64_C(1) << 40,
			    9, 0, closed_memory + w->cpu->id * 65536, 4096);
			assert(queue_submit(closed.disk->queue, w->cpu, NULL,
				   &io->bio, now) == 0);
		}
		(void)cpu_run(w->cpu, now);
	}
	return NULL;
}

static void
cpus_share_them(void **state)
{
	static const char *const disks[] = {
		"lanes=8;lanes.stripe=4096;latency.read=constant 80us;"
		"link.mbps=1000;cap.iops=30000;burst.iops=60000;"
		"burst.ios=100;latency.spike=1% 1ms;submit_queues=2",
		"hdd.rpm=7200;size=1T;submit_queues=2",
	};
	struct worker w[2];
	pthread_t thread[2];
	char err[512];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		if (try_disk(2, disks[i], err, sizeof(err)) != 0)
			fail_msg("%s", err);
		atomic_store(&shared_clock, closed.now);
		atomic_store(&all_ended, 0);
		for (unsigned j = 0; j < 2; j++) {
			w[j] = (struct worker){ &closed.machine->cpu[j], 0, 0 };
			pthread_create(&thread[j], NULL, work, &w[j]);
		}
		for (unsigned j = 0; j < 2; j++)
			pthread_join(thread[j], NULL);
		closed_close(&closed);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(depth_raises_throughput_up_to_the_lanes),
		cmocka_unit_test(without_lanes_there_is_no_knee),
		cmocka_unit_test(
		    without_latencies_completion_nsec_is_the_time_of_a_lane),
		cmocka_unit_test(stripes_that_lie_on_one_lane_wait_for_it),
		cmocka_unit_test(random_stripes_do_not_keep_all_lanes_busy),
		cmocka_unit_test(the_link_is_shared_by_all),
		cmocka_unit_test(what_the_link_adds_takes_nobody_elses_time),
		cmocka_unit_test(the_cliff_is_where_the_buffer_is_full),
		cmocka_unit_test(a_flush_waits_for_the_buffer),
		cmocka_unit_test(a_flush_waits_for_lanes),
		cmocka_unit_test(a_discard_takes_a_lane_however_long_it_is),
		cmocka_unit_test(credits_are_spent_and_earned_to_the_io),
		cmocka_unit_test(bursts_have_a_rate_of_their_own),
		cmocka_unit_test(a_cap_holds_for_any_size),
		cmocka_unit_test(the_same_requests_take_the_same_time),
		cmocka_unit_test(parts_are_as_new_when_the_power_comes_back),
		cmocka_unit_test(what_does_not_fit_together_is_refused),
		cmocka_unit_test(cpus_share_them),
		cmocka_unit_test(times_beyond_all_time_do_not_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
