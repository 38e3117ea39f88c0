/* SPDX-License-Identifier: MIT */
/*
 * The three ages of report C (4.2 of the notes): each I/O started by itself
 * (before 2.6.33), the queue run once a call (2.6.33), the task's plug.  Each
 * under every profile: they say how bios gather, the profile says the rest.
 *
 * A call is h_plug(), bios, h_flush().
 */
#include "elevator.h"

static const enum plug_mode modes[] = { PLUG_EACH, PLUG_CALL, PLUG_TASK };

static struct queue_conf
conf_of(void **state, enum plug_mode mode, bool elevator)
{
	struct queue_conf conf = e_conf(*state);

	conf.plug_mode = mode;
	conf.depth = 256;
	if (!elevator) {
		conf.elevator = NULL;
		conf.nr_requests = 0;
	}
	return conf;
}

/* "The queue is run for every 4 KiB I/O, so that none could merge." */
static void
each_merges_nothing(void **state)
{
	struct queue_conf conf;
	struct harness h;
	unsigned i, elevator;

	for (elevator = 0; elevator < 2; elevator++) {
		conf = conf_of(state, PLUG_EACH, elevator);
		h_open(&h, &conf);
		h_plug(&h);
		for (i = 0; i < 16; i++) {
			rw(&h, REQ_OP_WRITE, 8 * i, 8);
			assert_int_equal(h.nr_seen, i + 1);
			assert_true(plug_is_empty(&h.plug));
		}
		h_finish(&h);
		assert_int_equal(h.nr_seen, 16);
		expect_counts(&h, STAT_WRITE, 16, 0);
		h_close(&h);
	}
}

/* On a device that is busy they wait, and merge (3.6). */
static void
each_merges_on_a_busy_device(void **state)
{
	struct queue_conf conf = conf_of(state, PLUG_EACH, false);
	struct harness h;

	h_open(&h, &conf);
	h.busy = true;
	h_plug(&h);
	e_put(&h, "W1000 W0 W8 W16");
	h_finish(&h);
	EXPECT_ALL(&h, "W1000 W0+24");
	h_close(&h);

	conf = conf_of(state, PLUG_EACH, true);
	conf.depth = 1;
	h_open(&h, &conf);
	e_block(&h);
	h_plug(&h);
	e_put(&h, "W0 W8 W16");
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+24");
	h_close(&h);
}

/* 4.2: adjacent I/Os of one call merge; the queue runs when it ends. */
static void
call_merges(void **state)
{
	struct queue_conf conf;
	struct harness h;
	unsigned i, elevator;

	for (elevator = 0; elevator < 2; elevator++) {
		conf = conf_of(state, PLUG_CALL, elevator);
		h_open(&h, &conf);
		h_plug(&h);
		for (i = 0; i < 16; i++)
			rw(&h, REQ_OP_WRITE, 8 * i, 8);
		assert_int_equal(h.nr_seen, 0);
		assert_false(plug_is_empty(&h.plug));
		plug_flush(&h.plug, h.cpu, h.now);
		assert_true(plug_is_empty(&h.plug));
		assert_int_equal(h.nr_seen, 1);
		h_finish(&h);
		EXPECT_REQUESTS(&h, { 0, 128, 16, MERGEABLE });
		expect_counts(&h, STAT_WRITE, 1, 15);
		h_close(&h);
	}
}

/* A call that is not a batch: nothing is held back. */
static void
call_without_a_plug(void **state)
{
	struct queue_conf conf;
	struct harness h;
	unsigned elevator;

	for (elevator = 0; elevator < 2; elevator++) {
		conf = conf_of(state, PLUG_CALL, elevator);
		h_open(&h, &conf);
		rw(&h, REQ_OP_WRITE, 0, 8);
		assert_int_equal(h.nr_seen, 1);
		rw(&h, REQ_OP_WRITE, 8, 8);
		assert_int_equal(h.nr_seen, 2);
		h_close(&h);
	}
}

/*
 * 3.6: at most the eight newest of the software queue are looked at: w0 to w8,
 * then one that follows w0, the ninth newest; w1, the eighth, is in sight.
 */
static void
call_looks_at_eight(void **state)
{
	struct queue_conf conf = conf_of(state, PLUG_CALL, false);
	struct harness h;
	unsigned i, nth;

	for (nth = 0; nth <= 1; nth++) {
		h_open(&h, &conf);
		h_plug(&h);
		for (i = 0; i < 9; i++)
			rw(&h, REQ_OP_WRITE, 1000 * i, 8);
		rw(&h, REQ_OP_WRITE, 1000 * nth + 8, 8);
		assert_int_equal(h.nr_seen, 0);
		h_finish(&h);
		expect_counts(&h, STAT_WRITE, nth == 0 ? 10 : 9, nth);
		h_close(&h);
	}
	/* the elevator's hash has no such border */
	conf = conf_of(state, PLUG_CALL, true);
	h_open(&h, &conf);
	h_plug(&h);
	for (i = 0; i < 9; i++)
		rw(&h, REQ_OP_WRITE, 1000 * i, 8);
	rw(&h, REQ_OP_WRITE, 8, 8);
	h_finish(&h);
	expect_counts(&h, STAT_WRITE, 9, 1);
	h_close(&h);
}

/* Without an elevator they leave as they came (5), with one sorted. */
static void
call_order(void **state)
{
	struct queue_conf conf = conf_of(state, PLUG_CALL, false);
	struct harness h;

	h_open(&h, &conf);
	h_plug(&h);
	e_put(&h, "W300 W100 W400 W200 R50");
	h_finish(&h);
	EXPECT_ALL(&h, "W300 W100 W400 W200 R50");
	h_close(&h);

	/* 5: the FIFO's head, its successors; 6.12: a write above 0 */
	conf = conf_of(state, PLUG_CALL, true);
	h_open(&h, &conf);
	h_plug(&h);
	e_put(&h, "W300 W100 W400 W200 R50");
	assert_int_equal(h.nr_seen, 0);
	h_finish(&h);
	EXPECT_ALL(&h, age(h.profile) == P612 ? "W100 W200 W300 W400 R50"
					      : "R50 W300 W400 W100 W200");
	h_close(&h);
}

/* The elevator merges at both ends and joins what touches (T19). */
static void
call_in_the_elevator(void **state)
{
	struct queue_conf conf = conf_of(state, PLUG_CALL, true);
	struct harness h;

	h_open(&h, &conf);
	h_plug(&h);
	e_put(&h, "W0 W16 W8 R500 R492");
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 24, 3, MERGEABLE }, { 492, 16, 2, MERGEABLE });
	expect_counts(&h, STAT_WRITE, 1, age(h.profile) >= P61 ? 2 : 1);
	expect_counts(&h, STAT_READ, 1, 1);
	h_close(&h);
}

/* 3.6: nomerges 2 has no merges anywhere, 1 leaves the software queue. */
static void
call_heeds_nomerges(void **state)
{
	struct queue_conf conf = conf_of(state, PLUG_CALL, false);
	struct harness h;

	for (conf.nomerges = 1; conf.nomerges <= 2; conf.nomerges++) {
		h_open(&h, &conf);
		h_plug(&h);
		e_put(&h, "W0 W8 W16");
		h_finish(&h);
		EXPECT_ALL(&h, conf.nomerges == 1 ? "W0+24" : "W0 W8 W16");
		h_close(&h);
	}
}

/* What a busy device left behind is run with the call. */
static void
call_on_a_busy_device(void **state)
{
	struct queue_conf conf = conf_of(state, PLUG_CALL, false);
	struct harness h;

	h_open(&h, &conf);
	h.busy = true;
	h_plug(&h);
	e_put(&h, "W1000 W0");
	plug_flush(&h.plug, h.cpu, h.now);
	assert_int_equal(h.nr_seen, 0);
	e_put(&h, "W8 W500");
	h.busy = false;
	plug_flush(&h.plug, h.cpu, h.now);
	cpu_run(h.cpu, h.now);
	assert_int_equal(h.nr_ended, 4);
	assert_int_equal(h.seen[0].sector, 1000);
	h_close(&h);
}

/* A call of more I/Os than tags is let go in parts. */
static void
call_of_more_than_tags(void **state)
{
	struct queue_conf conf;
	struct harness h;
	struct bio *bio;
	unsigned i, turn, elevator;

	for (elevator = 0; elevator < 2; elevator++) {
		conf = conf_of(state, PLUG_CALL, elevator);
		conf.depth = 4;
		conf.nr_requests = 4;
		h_open(&h, &conf);
		h_plug(&h);
		for (i = 0; i < 10; i++) {
			bio = e_bio(&h, REQ_OP_WRITE, 100 * i, 8);
			h.nr_submitted++;
			for (turn = 0; h_try_submit(&h, bio) != 0; turn++) {
				assert_true(turn < 10);
				cpu_run(h.cpu, h.now);
			}
		}
		assert_in_range(h.nr_seen, 4, 9);
		h_finish(&h);
		assert_int_equal(h.nr_seen, 10);
		for (i = 0; i < 10; i++)
			assert_int_equal(h.seen[i].sector, 100 * i);
		h_close(&h);
	}
}

/*
 * The one that waited for a tag, while the call was let go, is one of the call
 * still: it leaves when that ends, nobody else having to run the queue.
 */
static void
call_goes_on_after_a_tag(void **state)
{
	struct queue_conf conf;
	struct harness h;
	unsigned elevator;

	for (elevator = 0; elevator < 2; elevator++) {
		conf = conf_of(state, PLUG_CALL, elevator);
		conf.depth = 1;
		conf.nr_requests = 1;
		h_open(&h, &conf);
		h_plug(&h);
		e_put(&h, "W0 W100");
		plug_flush(&h.plug, h.cpu, h.now);
		cpu_run(h.cpu, h.now);
		assert_int_equal(h.nr_ended, 2);
		EXPECT_ALL(&h, "W0 W100");
		h_close(&h);
	}
}

/* Several queues in one call: each is run, at its end at the latest. */
static void
call_of_three_disks(void **state)
{
	struct queue_conf conf;
	struct harness h;
	struct queue *q[3];
	unsigned i, elevator;

	for (elevator = 0; elevator < 2; elevator++) {
		conf = conf_of(state, PLUG_CALL, elevator);
		h_open(&h, &conf);
		q[0] = h.queue;
		for (i = 1; i < 3; i++)
			assert_int_equal(
			    queue_new(&q[i], h.machine, &h_ops, &h, &conf), 0);
		h_plug(&h);
		for (i = 0; i < 12; i++) {
			h.queue = q[i % 3];
			rw(&h, REQ_OP_WRITE, 100 * i, 8);
		}
		plug_flush(&h.plug, h.cpu, h.now);
		assert_true(plug_is_empty(&h.plug));
		cpu_run(h.cpu, h.now);
		assert_int_equal(h.nr_seen, 12);
		assert_int_equal(h.nr_ended, 12);
		h.queue = q[0];
		h_flush(&h);
		queue_free(q[1]);
		queue_free(q[2]);
		h_close(&h);
	}
}

/* One plug for a disk of each mode. */
static void
modes_side_by_side(void **state)
{
	struct queue_conf conf;
	struct harness h;
	struct queue *q[ARRAY_SIZE(modes)];
	unsigned i, j;

	conf = conf_of(state, modes[0], false);
	h_open(&h, &conf);
	q[0] = h.queue;
	for (i = 1; i < ARRAY_SIZE(modes); i++) {
		conf = conf_of(state, modes[i], false);
		assert_int_equal(
		    queue_new(&q[i], h.machine, &h_ops, &h, &conf), 0);
	}
	h_plug(&h);
	for (i = 0; i < ARRAY_SIZE(modes); i++)
		for (j = 0; j < 4; j++) {
			h.queue = q[i];
			rw(&h, REQ_OP_WRITE, 8 * j, 8);
		}
	h.queue = q[0];
	h_finish(&h);
	assert_int_equal(h.nr_seen, 4 + 1 + 1);
	queue_free(q[1]);
	queue_free(q[2]);
	h_close(&h);
}

/* `nr` adjacent I/Os, or none of them, in calls of 16; the requests. */
static uint64_t
requests_of(void **state, enum plug_mode mode, bool elevator, bool adjacent)
{
	struct queue_conf conf = conf_of(state, mode, elevator);
	struct chance c = { 42 };
	struct harness h;
	uint64_t ios;
	unsigned i;

	h_open(&h, &conf);
	for (i = 0; i < 256; i++) {
		if (i % 16 == 0)
			h_plug(&h);
		rw(&h, REQ_OP_READ,
		    adjacent ? 8 * i : 16 * chance_below(&c, 1u << 30), 8);
		if (i % 16 == 15)
			h_finish(&h);
	}
	h_finish(&h);
	ios = h_stat(&h).ios[STAT_READ];
	assert_int_equal(h_stat(&h).merges[STAT_READ], 256 - ios);
	assert_int_equal(h.nr_seen, ios);
	h_close(&h);
	return ios;
}

/* 4.2: "Gain exists only for mergeable (adjacent) I/Os, none for random." */
static void
gains_where_adjacent(void **state)
{
	unsigned elevator;

	for (elevator = 0; elevator < 2; elevator++) {
		assert_int_equal(
		    requests_of(state, PLUG_EACH, elevator, true), 256);
		assert_int_equal(
		    requests_of(state, PLUG_CALL, elevator, true), 16);
		assert_int_equal(
		    requests_of(state, PLUG_TASK, elevator, true), 16);
		assert_int_equal(
		    requests_of(state, PLUG_EACH, elevator, false), 256);
		assert_int_equal(
		    requests_of(state, PLUG_CALL, elevator, false), 256);
		assert_int_equal(
		    requests_of(state, PLUG_TASK, elevator, false), 256);
	}
}

/*
 * 4.1: a task's plug is let go at 16 or 32 requests; a call of the queue's has
 * no such border.
 */
static void
call_has_no_border(void **state)
{
	struct queue_conf conf = conf_of(state, PLUG_CALL, false);
	struct harness h;
	unsigned i;

	h_open(&h, &conf);
	h_plug(&h);
	for (i = 0; i < 100; i++)
		rw(&h, REQ_OP_WRITE, 1000 * i, i == 0 ? 256 : 8);
	assert_int_equal(h.nr_seen, 0);
	h_finish(&h);
	assert_int_equal(h.nr_seen, 100);
	EXPECT_BURSTS(&h, 100);
	h_close(&h);
}

/* A split bio's pieces go the way of their mode. */
static void
splits(void **state)
{
	struct queue_conf conf;
	struct harness h;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		conf = conf_of(state, modes[i], false);
		conf.limits.max_sectors = 16;
		h_open(&h, &conf);
		h_plug(&h);
		e_put(&h, "W0+40 W40");
		assert_int_equal(h.nr_seen, modes[i] == PLUG_EACH ? 4 : 0);
		h_finish(&h);
		if (modes[i] == PLUG_EACH)
			EXPECT_REQUESTS(&h, { 0, 16, ANY, NM },
			    { 16, 16, ANY, NM }, { 32, 8, ANY, MERGEABLE },
			    { 40, 8, ANY, MERGEABLE });
		else
			EXPECT_REQUESTS(&h, { 0, 16, ANY, NM },
			    { 16, 16, ANY, NM }, { 32, 16, ANY, MERGEABLE });
		h_close(&h);
	}
}

static const struct example examples[] = {
	{ "4.2 each: merges nothing on an idle device", each_merges_nothing },
	{ "4.2 each: merges what waits for a busy device",
	    each_merges_on_a_busy_device },
	{ "4.2 call: merges what is adjacent in a call", call_merges },
	{ "4.2 call: holds nothing back outside of one", call_without_a_plug },
	{ "3.6 call: looks at the eight newest", call_looks_at_eight },
	{ "5 call: leaves as it came, or as the elevator has it", call_order },
	{ "3.5 call: merges requests in the elevator", call_in_the_elevator },
	{ "3.6 call: heeds nomerges", call_heeds_nomerges },
	{ "4.2 call: runs what a busy device left", call_on_a_busy_device },
	{ "4.2 call: goes in parts when tags are few", call_of_more_than_tags },
	{ "4.2 call: goes on when a tag was waited for",
	    call_goes_on_after_a_tag },
	{ "4.2 call: runs every queue of it", call_of_three_disks },
	{ "4.2 keeps apart disks of different modes", modes_side_by_side },
	{ "4.2 gains with adjacent I/Os alone", gains_where_adjacent },
	{ "4.2 call: has no border of requests or size", call_has_no_border },
	{ "2.5 sends the pieces of a split the way of the mode", splits }, {}
};

int
main(void)
{
	return run_examples("batching", examples);
}
