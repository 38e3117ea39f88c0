/* SPDX-License-Identifier: MIT */
#include "pipe/harness.h"

#define MSEC 1000000u

static struct harness h;
static struct request *held[8];
static unsigned nr_held;
static bool is_busy;

static int
hold_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)now;
	if (is_busy)
		return -EBUSY;
	rq_moved(rq, cpu);
	held[nr_held++] = rq;
	return 0;
}

static const struct queue_ops hold_ops = { .queue_rq = hold_queue_rq };

static void
open_host(const char *kernel, unsigned nr_cpus, unsigned nr_hw_queues)
{
	struct queue_conf conf = h_conf(profile_find(kernel));

	memset(&h, 0, sizeof(h));
	nr_held = 0;
	h.now = 1000 * MSEC;
	h.phys = 1ull << 40;
	h.machine = machine_new(nr_cpus, NULL, NULL);
	h.cpu = &h.machine->cpu[0];
	conf.nr_hw_queues = nr_hw_queues;
	conf.limits.max_discard_sectors = 1 << 20;
	assert_int_equal(
	    queue_new(&h.queue, h.machine, &hold_ops, &h, &conf), 0);
	plug_init(&h.plug);
}

static void
open_holding(const char *kernel)
{
	open_host(kernel, 1, 1);
}

static void
close_holding(void)
{
	queue_free(h.queue);
	machine_free(h.machine);
}

/* A write of 8 sectors that takes `ms`. */
static void
one_write(unsigned ms)
{
	struct bio *bio = h_bio(&h, REQ_OP_WRITE, 0);

	add_contig(&h, bio, 8);
	assert_int_equal(queue_submit(h.queue, h.cpu, NULL, bio, h.now), 0);
	h.now += ms * (uint64_t)MSEC;
	rq_complete(held[--nr_held], h.cpu, h.now);
}

static struct queue_stat
now_read(void)
{
	struct queue_stat st;

	stat_read(h.queue, &st, h.now);
	return st;
}

static void
counts_time_as_its_age_does(void **state)
{
	/* one write of 7 ms, 93 ms of nothing, one of 100 ms (6.2) */
	static const struct {
		const char *kernel;
		unsigned hz, ticks, io_ticks, in_queue;
	} want[] = {
		/* jiffies of 10 ms: 7 ms from the start of one is none */
		{ "4.14", 100, 100, 100, 100 },
		/* +1 jiffy (4 ms) at each start, the rest at each end: the
		 * first write: 4 + 4; the second: 4 + 100 */
		{ "5.4", 250, 107, 112, 107 },
		/* in whole jiffies since the stamp: 4 (of 7), then 100 */
		{ "6.1", 250, 107, 104, 107 },
		{ "6.12", 250, 107, 104, 107 },
	};
	unsigned i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		struct queue_stat st;

		open_holding(want[i].kernel);
		one_write(7);
		h.now += 93 * MSEC;
		one_write(100);
		st = now_read();
		assert_int_equal(st.ios[STAT_WRITE], 2);
		assert_int_equal(st.ticks_ms[STAT_WRITE], want[i].ticks);
		assert_int_equal(st.io_ticks_ms, want[i].io_ticks);
		assert_int_equal(st.in_queue_ms, want[i].in_queue);
		close_holding();
	}
}

static void
samples_requests_in_the_driver_in_4_14(void **state)
{
	struct queue_stat st;
	unsigned i;

	(void)state; /* 6.2: in_queue grows by the requests in flight */
	open_holding("4.14");
	for (i = 0; i < 3; i++) {
		struct bio *bio = h_bio(&h, REQ_OP_READ, i * 100);

		add_contig(&h, bio, 8);
		queue_submit(h.queue, h.cpu, NULL, bio, h.now);
	}
	h.now += 50 * MSEC;
	st = now_read();
	assert_int_equal(st.in_flight, 3);
	assert_int_equal(st.io_ticks_ms, 50);
	assert_int_equal(st.in_queue_ms, 150);
	while (nr_held > 0)
		rq_complete(held[--nr_held], h.cpu, h.now);
	close_holding();
}

static void
counts_what_is_plugged_as_in_flight_since_5(void **state)
{
	struct queue_stat st;
	unsigned i;

	(void)state; /* 6.1: field 9 */
	for (i = 0; i < 2; i++) {
		struct bio *bio;

		open_holding(i == 0 ? "4.14" : "6.12");
		bio = h_bio(&h, REQ_OP_READ, 0);
		add_contig(&h, bio, 8);
		queue_submit(h.queue, h.cpu, &h.plug, bio, h.now);
		st = now_read();
		assert_int_equal(st.in_flight, i == 0 ? 0 : 1);
		assert_int_equal(st.inflight_rw[0], 0);
		plug_flush(&h.plug, h.cpu, h.now);
		st = now_read();
		assert_int_equal(st.in_flight, 1);
		assert_int_equal(st.inflight_rw[0], 1);
		assert_int_equal(st.inflight_rw[1], 0);
		rq_complete(held[--nr_held], h.cpu, h.now);
		st = now_read();
		assert_int_equal(st.in_flight, 0);
		assert_int_equal(st.inflight_rw[0], 0);
		close_holding();
	}
}

static void
counts_a_discard_as_a_write_in_4_14_only(void **state)
{
	struct queue_stat st;
	unsigned i;

	(void)state; /* 6.1 */
	for (i = 0; i < 2; i++) {
		struct bio *bio;

		open_holding(i == 0 ? "4.14" : "5.4");
		bio = h_bio(&h, REQ_OP_DISCARD, 0);
		bio->bytes = 64 * 512;
		queue_submit(h.queue, h.cpu, NULL, bio, h.now);
		rq_complete(held[--nr_held], h.cpu, h.now);
		st = now_read();
		assert_int_equal(st.ios[STAT_WRITE], i == 0 ? 1 : 0);
		assert_int_equal(st.ios[STAT_DISCARD], i == 0 ? 0 : 1);
		assert_int_equal(
		    st.sectors[i == 0 ? STAT_WRITE : STAT_DISCARD], 64);
		close_holding();
	}
}

static void
shows_11_15_or_17_fields_in_sysfs_form(void **state)
{
	static const struct {
		const char *kernel, *line;
	} want[] = {
		{ "4.14", "       0        0        0        0 "
			  "       1        0        8       10 "
			  "       0       10       10\n" },
		{ "5.4", "       0        0        0        0 "
			 "       1        0        8       12 "
			 "       0       16       12 "
			 "       0        0        0        0\n" },
		{ "6.12", "       0        0        0        0 "
			  "       1        0        8       12 "
			  "       0       12       12 "
			  "       0        0        0        0 "
			  "       0        0\n" },
	};
	unsigned i;

	(void)state; /* 6.1; the form is that of ref/ */
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		struct queue_stat st;
		char *text;
		size_t len;
		FILE *f;

		open_holding(want[i].kernel);
		one_write(12);
		st = now_read();
		f = open_memstream(&text, &len);
		stat_show(h.queue, &st, f);
		fclose(f);
		assert_string_equal(text, want[i].line);
		free(text);
		close_holding();
	}
}

static void
prints_times_in_32_bits(void **state)
{
	struct queue_stat st = { 0 };
	char *text;
	size_t len;
	FILE *f;

	(void)state; /* 6.1: wrap! */
	open_holding("6.12");
	st.ticks_ms[STAT_READ] = (1ull << 32) + 5;
	f = open_memstream(&text, &len);
	stat_show(h.queue, &st, f);
	fclose(f);
	assert_non_null(strstr(text, "       0        0        0        5 "));
	free(text);
	close_holding();
}

/* So many of a histogram's values are like this one. */
static uint64_t
like(const struct hist *hist, uint64_t value)
{
	return hist_get(hist, hist_index(value));
}

static void
counts_bvecs_before_the_split_and_segments_after_it(void **state)
{
	struct queue_stat st;
	struct bio *bio;

	(void)state; /* T12: 256 bvecs, two requests of 128 segments */
	open_holding("6.12");
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_scat(&h, bio, 2048);
	h_submit(&h, bio);
	st = now_read();
	assert_int_equal(hist_count(&st.bvecs), 1);
	assert_int_equal(like(&st.bvecs, 256), 1);
	assert_int_equal(hist_sum(&st.bvecs), 256);
	assert_int_equal(hist_count(&st.segments), 0);
	while (nr_held > 0)
		rq_complete(held[--nr_held], h.cpu, h.now);
	st = now_read();
	assert_int_equal(hist_count(&st.bvecs), 1);
	assert_int_equal(hist_count(&st.segments), 2);
	assert_int_equal(like(&st.segments, 128), 2);
	assert_int_equal(hist_sum(&st.segments), 256);
	assert_int_equal(like(&st.request_sectors, 1024), 2);
	assert_int_equal(hist_sum(&st.request_sectors), 2048);
	assert_int_equal(st.splits[SPLIT_SEGMENTS], 1);
	assert_int_equal(st.refused[REFUSED_CLOSED], 0); /* no plug */
	close_holding();
}

static void
counts_nothing_where_iostats_is_off(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct queue_stat st, none = { 0 };

	(void)state;
	conf.iostats = false;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 4000);
	rw(&h, REQ_OP_WRITE, 4000, 8);
	h_finish(&h);
	st = h_stat(&h);
	assert_memory_equal(&st, &none, sizeof(st));
	h_close(&h);
}

static void
bio_on(unsigned cpu, enum req_op op, sector_t sector)
{
	struct bio *bio = h_bio(&h, op, sector);

	add_contig(&h, bio, 8);
	assert_int_equal(
	    queue_submit(h.queue, &h.machine->cpu[cpu], NULL, bio, h.now), 0);
}

static struct queue_stat
read_hctx(unsigned i)
{
	struct queue_stat st;

	stat_read_hctx(h.queue->hctx[i], &st);
	return st;
}

static void
tells_hardware_queues_apart(void **state)
{
	struct queue_stat st;
	struct cpu *cpu;
	unsigned i;

	(void)state; /* cpus 0 and 2 map to the first, 1 to the second */
	open_host("6.12", 3, 2);
	cpu = h.machine->cpu;
	bio_on(0, REQ_OP_READ, 0);
	bio_on(2, REQ_OP_WRITE, 100);
	is_busy = true;
	bio_on(1, REQ_OP_WRITE, 200);
	is_busy = false;
	st = read_hctx(0);
	assert_int_equal(st.in_flight, 2);
	assert_int_equal(st.inflight_rw[0], 1);
	assert_int_equal(st.inflight_rw[1], 1);
	st = read_hctx(1);
	assert_int_equal(st.in_flight, 1);
	assert_int_equal(st.inflight_rw[1], 0);

	/* a cpu of the first one runs the second */
	queue_run(h.queue, &cpu[2], h.now);
	assert_int_equal(nr_held, 3);
	st = read_hctx(1);
	assert_int_equal(st.inflight_rw[1], 1);
	st = now_read();
	assert_int_equal(st.inflight_rw[0], 1);
	assert_int_equal(st.inflight_rw[1], 2);
	rq_complete_softirq(held[--nr_held], &cpu[2]);
	assert_int_equal(read_hctx(0).inflight_rw[1], 1);
	assert_int_equal(read_hctx(1).inflight_rw[1], 0);
	while (nr_held > 0)
		rq_complete(held[--nr_held], &cpu[0], h.now);
	for (i = 0; i < 6; i++)
		cpu_run(&cpu[i % 3], h.now);
	assert_int_equal(h.nr_ended, 3);
	for (i = 0; i < 2; i++) {
		st = read_hctx(i);
		assert_int_equal(st.in_flight, 0);
		assert_int_equal(st.inflight_rw[0] + st.inflight_rw[1], 0);
		assert_int_equal(st.ios[STAT_READ], i == 0 ? 1 : 0);
		assert_int_equal(st.ios[STAT_WRITE], 1);
		assert_int_equal(hist_count(&st.segments), i == 0 ? 2 : 1);
		assert_int_equal(st.io_ticks_ms, 0);
	}
	close_holding();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_time_as_its_age_does),
		cmocka_unit_test(samples_requests_in_the_driver_in_4_14),
		cmocka_unit_test(counts_what_is_plugged_as_in_flight_since_5),
		cmocka_unit_test(counts_a_discard_as_a_write_in_4_14_only),
		cmocka_unit_test(shows_11_15_or_17_fields_in_sysfs_form),
		cmocka_unit_test(prints_times_in_32_bits),
		cmocka_unit_test(
		    counts_bvecs_before_the_split_and_segments_after_it),
		cmocka_unit_test(counts_nothing_where_iostats_is_off),
		cmocka_unit_test(tells_hardware_queues_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
