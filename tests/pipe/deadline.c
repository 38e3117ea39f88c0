/* SPDX-License-Identifier: MIT */
/*
 * mq-deadline (section 5 of the notes) and the merging that goes on in an
 * elevator (3.5, 3.6), under each profile.
 *
 * Sectors are chosen so that nothing merges unless the case is about that.
 */
#include "elevator.h"

static void
open_deadline(struct harness *h, void **state, unsigned fifo_batch,
    unsigned writes_starved)
{
	struct queue_conf conf = e_conf(*state);

	conf.deadline.fifo_batch = fifo_batch;
	conf.deadline.writes_starved = writes_starved;
	h_open(h, &conf);
}

/* Which of these an age has. */
static const char *
by_age(const struct harness *h, const char *p414, const char *p54,
    const char *p61, const char *p612)
{
	const char *const which[] = { p414, p54, p61, p612 };

	return which[age(h->profile)];
}

/* -------------------------------------------------------------- the order */

/*
 * Section 5, the example.  Behind the two of e_block() all ages begin at the
 * head of the FIFO, so that 6.12 does as 4.14 does.
 */
static void
example_in_turn(void **state)
{
	struct harness h;

	open_deadline(&h, state, 2, 1);
	e_block(&h);
	e_put(&h, "W100 W200 R1000 R500 R700");
	h_finish(&h);
	EXPECT_SERVED(&h, "R1000 W100 W200 R500 R700");
	h_close(&h);
}

/*
 * The same from a plug, nothing dispatched before.  6.12 begins with a write,
 * at or above sector 0.  4.14's plug hands on in order of sectors: R500 is the
 * first of the reads, and after R500 R700 writes have starved.
 */
static void
example_from_a_plug(void **state)
{
	struct harness h;

	open_deadline(&h, state, 2, 1);
	h_plug(&h);
	e_put(&h, "W100 W200 R1000 R500 R700");
	assert_int_equal(h.nr_seen, 0);
	h_finish(&h);
	EXPECT_ALL(&h,
	    by_age(&h, "R500 R700 W100 W200 R1000", "R1000 W100 W200 R500 R700",
		"R1000 W100 W200 R500 R700", "W100 W200 R500 R700 R1000"));
	h_close(&h);
}

/*
 * 5: 4.14 and 5.4 forget where they were when the direction changes; 6.1
 * remembers the successor of each direction, 6.12 the sector.
 */
static void
remembers_directions(void **state)
{
	struct harness h;

	open_deadline(&h, state, 1, 1);
	e_block(&h);
	e_put(&h, "R200 R100 R300 W10 W20");
	h_finish(&h);
	EXPECT_SERVED(
	    &h, by_age(&h, "R200 W10 R100 W20 R300", "R200 W10 R100 W20 R300",
		    "R200 W10 R300 W20 R100", "R200 W10 R300 W20 R100"));
	h_close(&h);

	/* 6.12 begins at sector 0 of each */
	open_deadline(&h, state, 1, 1);
	h_plug(&h);
	e_put(&h, "R200 R100 R300 W10 W20");
	h_finish(&h);
	EXPECT_ALL(
	    &h, by_age(&h, "R100 W10 R200 W20 R300", "R200 W10 R100 W20 R300",
		    "R200 W10 R300 W20 R100", "W10 R100 W20 R200 R300"));
	h_close(&h);
}

/* How often `n` reads come before a write (5b). */
static void
starves_writes(void **state)
{
	static const struct {
		unsigned writes_starved;
		const char *order;
	} want[] = {
		{ 0, "W10 W20 W30 R100 R200 R300 R400 R500 R600" },
		{ 1, "R100 W10 R200 W20 R300 W30 R400 R500 R600" },
		{ 2, "R100 R200 W10 R300 R400 W20 R500 R600 W30" },
		{ 5, "R100 R200 R300 R400 R500 W10 R600 W20 W30" },
	};
	struct harness h;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(want); i++) {
		open_deadline(&h, state, 1, want[i].writes_starved);
		e_block(&h);
		e_put(&h, "R100 W10 R200 W20 R300 W30 R400 R500 R600");
		h_finish(&h);
		EXPECT_SERVED(&h, want[i].order);
		h_close(&h);
	}
}

/* Choosing writes because no read is there resets `starved`, too (5b). */
static void
starved_resets(void **state)
{
	struct harness h;

	open_deadline(&h, state, 1, 2);
	e_block(&h);
	e_put(&h, "R100 W10 W20 W30 W40");
	e_end(&h); /* the second blocker is in the driver, R100 has left */
	e_end(&h); /* R100; no read is left: W10 has left, starved is 0 */
	EXPECT_SERVED(&h, "R100");
	e_put(&h, "R300 R400 R500");
	h_finish(&h);
	EXPECT_SERVED(&h, "R100 W10 R300 R400 W20 R500 W30 W40");
	h_close(&h);
}

/* Batches of 16, two of reads before one of writes, the rests at the end. */
static void
batches(void **state)
{
	static const struct {
		enum req_op op;
		unsigned first, nr;
	} runs[] = {
		{ REQ_OP_READ, 0, 16 },   /* starved: 1 */
		{ REQ_OP_READ, 16, 16 },  /* 2 */
		{ REQ_OP_WRITE, 0, 16 },  /* 0 */
		{ REQ_OP_READ, 32, 8 },   /* the end of the tree */
		{ REQ_OP_WRITE, 16, 24 }, /* two batches */
	};
	struct harness h;
	unsigned i, j, at = NR_BLOCKERS;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	for (i = 0; i < 40; i++) {
		rw(&h, REQ_OP_READ, 1000 + 10 * i, 8);
		rw(&h, REQ_OP_WRITE, 5000 + 10 * i, 8);
	}
	h_finish(&h);
	assert_int_equal(h.nr_seen, NR_BLOCKERS + 80);
	for (i = 0; i < ARRAY_SIZE(runs); i++)
		for (j = 0; j < runs[i].nr; j++, at++) {
			assert_int_equal(h.seen[at].op, runs[i].op);
			assert_int_equal(h.seen[at].sector,
			    (runs[i].op == REQ_OP_READ ? 1000 : 5000) +
				10 * (runs[i].first + j));
		}
	assert_int_equal(at, h.nr_seen);
	h_close(&h);
}

/*
 * 5a: up to 6.1 a batch goes on with what was the successor when the last one
 * left; R400 was not there then.  6.12 goes on at or above that one's sector.
 */
static void
goes_on_above(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "R100 R300 R500");
	e_end(&h);
	e_end(&h); /* R100 is in the driver, R300 has left the elevator */
	EXPECT_SERVED(&h, "R100");
	e_put(&h, "R400 R200");
	h_finish(&h);
	EXPECT_SERVED(&h,
	    by_age(&h, "R100 R300 R500 R400 R200", "R100 R300 R500 R400 R200",
		"R100 R300 R500 R400 R200", "R100 R300 R400 R500 R200"));
	h_close(&h);
}

/* 5a: "at" as well: 6.12 goes on with another request of the same sector. */
static void
goes_on_at(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "R100 R300 R500");
	e_end(&h);
	e_end(&h);
	e_put(&h, "R300+4");
	h_finish(&h);
	EXPECT_SERVED(
	    &h, by_age(&h, "R100 R300 R500 R300+4", "R100 R300 R500 R300+4",
		    "R100 R300 R500 R300+4", "R100 R300 R300+4 R500"));
	h_close(&h);
}

/* Two requests of one sector are served in the order they came. */
static void
same_sector(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "R100 R300+1 R300+2 R300+3 R500");
	h_finish(&h);
	EXPECT_SERVED(&h, "R100 R300+1 R300+2 R300+3 R500");
	h_close(&h);
}

/* 5c: at the end of the tree a batch ends, and the direction is chosen anew. */
static void
end_of_the_tree(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 1);
	e_block(&h);
	e_put(&h, "R500 R600 R100 W10 W20");
	h_finish(&h);
	EXPECT_SERVED(&h, "R500 R600 W10 W20 R100");
	h_close(&h);
}

/* A batch that is in its direction alone goes on after fifo_batch. */
static void
one_direction(void **state)
{
	struct harness h;

	open_deadline(&h, state, 2, 2);
	e_block(&h);
	e_put(&h, "W300 W100 W200 W400 W500");
	h_finish(&h);
	EXPECT_SERVED(&h, "W300 W400 W500 W100 W200");
	h_close(&h);
}

/* 5: discards, and write zeroes, are writes. */
static void
discards_are_writes(void **state)
{
	struct harness h;

	open_deadline(&h, state, 1, 1);
	e_block(&h);
	e_put(&h, "D100 R500 R600 Z300");
	h_finish(&h);
	EXPECT_SERVED(&h, "R500 D100 R600 Z300");
	h_close(&h);

	open_deadline(&h, state, 16, 1); /* in one tree */
	e_block(&h);
	e_put(&h, "W100 W300 D200 Z150");
	h_finish(&h);
	EXPECT_SERVED(&h, "W100 Z150 D200 W300");
	h_close(&h);
}

/* ------------------------------------------------------------- the expiry */

/*
 * Of `op`: the second one, at sector 500, is the head of the FIFO when the
 * first has left; the order of sectors has 200 and 300 before it.
 */
static void
expiry(void **state, const struct queue_conf *conf, enum req_op op,
    uint64_t expire_ns, int64_t after, const char *want)
{
	struct harness h;
	uint64_t then;

	(void)state;
	h_open(&h, conf);
	e_block(&h);
	rw(&h, op, 100, 8);
	rw(&h, op, 500, 8);
	then = h.now;
	rw(&h, op, 200, 8);
	rw(&h, op, 300, 8);
	h.now = then + expire_ns + (uint64_t)after;
	h_finish(&h);
	EXPECT_SERVED(&h, want);
	h_close(&h);
}

static void
expires_reads(void **state)
{
	struct queue_conf conf = e_conf(*state);
	const char *sorted = "R100 R200 R300 R500";
	const char *fifo = "R100 R500 R200 R300";

	conf.deadline.fifo_batch = 1;
	expiry(state, &conf, REQ_OP_READ, 500 * MS, -1, sorted);
	expiry(state, &conf, REQ_OP_READ, 500 * MS, 0, fifo);
	expiry(state, &conf, REQ_OP_READ, 500 * MS, 10 * (int64_t)MS, fifo);
	conf.deadline.read_expire_ms = 20;
	expiry(state, &conf, REQ_OP_READ, 20 * MS, -1, sorted);
	expiry(state, &conf, REQ_OP_READ, 20 * MS, 0, fifo);
	conf.deadline.read_expire_ms = 0; /* first come, first served */
	expiry(state, &conf, REQ_OP_READ, 0, 3000, fifo);
}

static void
expires_writes(void **state)
{
	struct queue_conf conf = e_conf(*state);
	const char *sorted = "W100 W200 W300 W500";
	const char *fifo = "W100 W500 W200 W300";

	conf.deadline.fifo_batch = 1;
	expiry(state, &conf, REQ_OP_WRITE, 5000 * MS, -1, sorted);
	expiry(state, &conf, REQ_OP_WRITE, 5000 * MS, 0, fifo);
	expiry(state, &conf, REQ_OP_WRITE, 5000 * MS, 10 * (int64_t)MS, fifo);
	conf.deadline.write_expire_ms = 70;
	expiry(state, &conf, REQ_OP_WRITE, 70 * MS, -1, sorted);
	expiry(state, &conf, REQ_OP_WRITE, 70 * MS, 0, fifo);
}

/* 5: "soft; only looked at between batches". */
static void
expires_between_batches(void **state)
{
	struct queue_conf conf = e_conf(*state);

	expiry(state, &conf, REQ_OP_READ, 500 * MS, 1000 * (int64_t)MS,
	    "R100 R200 R300 R500");
	conf.deadline.fifo_batch = 2;
	expiry(state, &conf, REQ_OP_READ, 500 * MS, 1000 * (int64_t)MS,
	    "R100 R200 R500 R300");
}

/* 5b comes before 5c: an expired write waits until writes have starved. */
static void
expiry_waits_for_its_turn(void **state)
{
	struct harness h;

	open_deadline(&h, state, 1, 2);
	e_block(&h);
	e_put(&h, "W100 R200 R300 R400");
	h.now += 60000 * MS;
	h_finish(&h);
	EXPECT_SERVED(&h, "R200 R300 W100 R400");
	h_close(&h);
}

/* ------------------------------------------------------------- priorities */

/* 5: RT, then BE and none, then IDLE, from 6.1 on. */
static void
classes_in_order(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put_as(&h, IOPRIO_IDLE, "R100");
	e_put_as(&h, IOPRIO_NONE, "R200");
	e_put_as(&h, IOPRIO_RT, "R400");
	e_put_as(&h, IOPRIO_BE, "R300");
	h_finish(&h);
	EXPECT_SERVED(&h, age(h.profile) <= P54 ? "R100 R200 R300 R400"
						: "R400 R200 R300 R100");
	h_close(&h);

	/* a write of a better class goes before a read */
	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put_as(&h, IOPRIO_BE, "R100");
	e_put_as(&h, IOPRIO_RT, "W200");
	h_finish(&h);
	EXPECT_SERVED(&h, age(h.profile) <= P54 ? "R100 W200" : "W200 R100");
	h_close(&h);
}

/*
 * 5(2): a class waits while a better one has anything queued or in flight, and
 * goes as soon as that has ended, nobody having to ask.
 */
static void
classes_wait(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.depth = 8;
	h_open(&h, &conf);
	h.hold = true;
	e_put_as(&h, IOPRIO_RT, "R100 R200");
	e_put_as(&h, IOPRIO_IDLE, "R300");
	e_put_as(&h, IOPRIO_BE, "W400 R500");
	if (age(h.profile) <= P54) {
		EXPECT_ALL(&h, "R100 R200 R300 W400 R500");
		h_close(&h);
		return;
	}
	EXPECT_ALL(&h, "R100 R200");
	e_put_as(&h, IOPRIO_RT, "R600"); /* its own class need not wait */
	EXPECT_ALL(&h, "R100 R200 R600");
	e_end(&h);
	e_end(&h);
	EXPECT_ALL(&h, "R100 R200 R600");
	e_end(&h);
	assert_int_equal(h.nr_seen, 5); /* both of BE */
	assert_int_equal(h.nr_held, 2);
	e_end(&h);
	assert_int_equal(h.nr_seen, 5);
	e_end(&h);
	assert_int_equal(h.nr_seen, 6);
	assert_int_equal(h.seen[5].sector, 300);
	h_close(&h);
}

/* A request that was absorbed counts for its class no more. */
static void
classes_forget_the_absorbed(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put_as(&h, IOPRIO_RT, "W0 W16 W8"); /* one */
	e_put_as(&h, IOPRIO_IDLE, "W1000");
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+24 W1000");
	h_close(&h);
}

/* 5(1): after prio_aging_expire a lower class goes before a higher. */
static void
aging(void **state, uint32_t expire_ms, int64_t after, const char *want)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	uint64_t then;

	conf.deadline.prio_aging_expire_ms = expire_ms;
	h_open(&h, &conf);
	e_block_as(&h, IOPRIO_RT);
	e_put_as(&h, IOPRIO_BE, "R100");
	then = h.now;
	e_put_as(&h, IOPRIO_RT, "R200");
	h.now = then + expire_ms * MS + (uint64_t)after;
	h_finish(&h);
	EXPECT_SERVED(&h, age(h.profile) <= P54 ? "R100 R200" : want);
	h_close(&h);
}

static void
ages(void **state)
{
	const char *by_class = "R200 R100", *by_age_of_it = "R100 R200";

	aging(state, 10000, -1, by_class);
	aging(state, 10000, 0, by_age_of_it); /* !time_after(start, latest) */
	aging(state, 10000, 10 * (int64_t)MS, by_age_of_it);
	aging(state, 300, -1, by_class);
	aging(state, 300, 10 * (int64_t)MS, by_age_of_it);
}

/* Of the aged, BE before IDLE, and both before RT. */
static void
ages_of_three(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block_as(&h, IOPRIO_RT);
	e_put_as(&h, IOPRIO_IDLE, "R300");
	e_put_as(&h, IOPRIO_BE, "R100");
	e_put_as(&h, IOPRIO_RT, "R200");
	h.now += 20000 * MS;
	h_finish(&h);
	EXPECT_SERVED(
	    &h, age(h.profile) <= P54 ? "R300 R100 R200" : "R100 R300 R200");
	h_close(&h);
}

/*
 * The driver has one of a better class and does not end it.  The queue comes
 * back to what has aged in the elevator, as a dispatch that yields nothing
 * while there is work runs the queue again after BLK_MQ_BUDGET_DELAY.
 */
static void
ages_without_being_asked(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	uint64_t then, next;
	unsigned i;

	conf.depth = 8;
	h_open(&h, &conf);
	h.hold = true;
	e_put_as(&h, IOPRIO_RT, "R100");
	e_put_as(&h, IOPRIO_IDLE, "R200");
	then = h.now;
	for (i = 0; i < MAX_TURNS && h.nr_seen == 1; i++) {
		next = cpu_run(h.cpu, h.now);
		if (next == CPU_NO_DEADLINE)
			break;
		h.now = next;
	}
	EXPECT_ALL(&h, "R100 R200");
	if (age(h.profile) >= P61)
		assert_in_range(h.now - then, 10000 * MS, 10000 * MS + 10 * MS);
	h_close(&h);
}

/* --------------------------------------------------- merging with a bio */

/* Plugs of their own: their bios find nothing to merge with. */
struct tasks {
	struct plug plug[5];
};

static void
tasks_flush(struct harness *h, struct tasks *t)
{
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(t->plug); i++)
		plug_flush(&t->plug[i], h->cpu, h->now);
}

static void
tasks_put(struct harness *h, struct tasks *t, const char *const *what)
{
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(t->plug); i++)
		plug_init(&t->plug[i]);
	for (i = 0; what[i] != NULL; i++)
		e_put_in(h, &t->plug[i], what[i]);
	tasks_flush(h, t);
}

/* The writes counted are these and the one of e_block(). */
static void
expect_writes(struct harness *h, uint64_t ios, uint64_t merges)
{
	expect_counts(h, STAT_WRITE, ios + 1, merges);
}

/* 3.5: merges of requests count from 6.1 on. */
static uint64_t
counted(const struct harness *h, uint64_t bio_merges, uint64_t request_merges)
{
	return bio_merges + (age(h->profile) >= P61 ? request_merges : 0);
}

/* T19: what stays is in flight; 4.14 counts what the driver has (6.2). */
static void
t19(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct queue_stat st;
	struct harness h;

	for (conf.nomerges = 0; conf.nomerges <= 1; conf.nomerges++) {
		h_open(&h, &conf);
		e_block(&h);
		e_put(&h, "W0 W16");
		stat_read(h.queue, &st, h.now);
		assert_int_equal(st.in_flight, age(h.profile) == P414 ? 1 : 4);
		e_put(&h, "W8");
		stat_read(h.queue, &st, h.now);
		assert_int_equal(st.in_flight, age(h.profile) == P414 ? 1 : 3);
		assert_int_equal(queue_tags_in_use(h.queue), 3);
		h_finish(&h);
		EXPECT_SERVED(&h, "W0+24");
		assert_int_equal(h.seen[2].nr_bios, 3);
		assert_int_equal(h.seen[2].nr_segs, 3);
		expect_writes(&h, 1, counted(&h, 1, 1));
		assert_int_equal(h_stat(&h).sectors[STAT_WRITE], 24 + 8);
		h_close(&h);
	}
}

/* T20: what 6.1 does not find in the plug the elevator finds (3.5). */
static void
t20(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	h_plug(&h);
	e_put(&h, "R0 W100 R8 W108");
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 16, 2, MERGEABLE }, { 100, 16, 2, MERGEABLE });
	expect_counts(&h, STAT_READ, 1, 1);
	expect_counts(&h, STAT_WRITE, 1, 1);
	h_close(&h);
}

/* 3.6: the hash finds an end anywhere, the tree a start. */
static void
hash_finds_ends(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "W100 W200 W300 W400 W308 W208 W316");
	e_put(&h, "R416 R200 R408 R192"); /* the other direction */
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 100, 8, 1, MERGEABLE }, { 192, 16, 2, MERGEABLE },
	    { 200, 16, 2, MERGEABLE }, { 300, 24, 3, MERGEABLE },
	    { 400, 8, 1, MERGEABLE }, { 408, 16, 2, MERGEABLE },
	    { FAR, 8, 1, MERGEABLE }, { FAR + 1000, 8, 1, MERGEABLE });
	expect_writes(&h, 4, 3);
	expect_counts(&h, STAT_READ, 3, 2);
	h_close(&h);
}

/* 5: front_merges=0 turns off the tree; the one-hit cache still may. */
static void
front_merges(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W100 W300 W292 W92");
	h_finish(&h);
	EXPECT_SERVED(&h, "W92+16 W292+16");
	expect_writes(&h, 2, 2);
	h_close(&h);

	conf.deadline.front_merges = false;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W100 W300 W292 W92");
	h_finish(&h);
	EXPECT_SERVED(&h, "W92+16 W292 W300");
	expect_writes(&h, 3, 1);
	h_close(&h);
}

/* 3.6: nomerges=1 leaves the one-hit cache alone, 2 nothing. */
static void
nomerges(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.nomerges = 1;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W100 W300 W308 W292 W92 W108");
	h_finish(&h);
	EXPECT_SERVED(&h, "W92+24 W292 W300 W308");
	expect_writes(&h, 4, 2);
	h_close(&h);

	conf.nomerges = 2;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W100 W108 W116");
	h_finish(&h);
	EXPECT_SERVED(&h, "W100 W108 W116");
	expect_writes(&h, 3, 0);
	h_close(&h);
}

/*
 * 5: the cache is the first hashed one if it was empty, the survivor after a
 * merge.  Without front_merges it alone is found from its front.
 */
static void
cache_follows_merges(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.deadline.front_merges = false;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W100 W300");
	e_put(&h, "W308"); /* by the hash: now it is this one */
	e_put(&h, "W292"); /* in front of it */
	e_put(&h, "W92");  /* not found */
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 92, 8, 1, MERGEABLE }, { 100, 8, 1, MERGEABLE },
	    { 292, 24, 3, MERGEABLE }, { FAR, 8, 1, MERGEABLE },
	    { FAR + 1000, 8, 1, MERGEABLE });
	h_close(&h);
}

/* 5: it is cleared when that request leaves; the next that comes takes it. */
static void
cache_is_cleared(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.deadline.front_merges = false;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W100 W300");
	e_end(&h);         /* W100 leaves */
	e_put(&h, "W92");  /* too late, but the cache's next */
	e_put(&h, "W292"); /* not found */
	e_put(&h, "W84");  /* found */
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 84, 16, 2, MERGEABLE }, { 100, 8, 1, MERGEABLE },
	    { 292, 8, 1, MERGEABLE }, { 300, 8, 1, MERGEABLE },
	    { FAR, 8, 1, MERGEABLE }, { FAR + 1000, 8, 1, MERGEABLE });
	h_close(&h);
}

/*
 * req_set_nomerge(): a request that a limit has closed (3.4) is the cache no
 * more; the next that is hashed is.
 */
static void
cache_is_cleared_with_a_refusal(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.nomerges = 1; /* the cache alone */
	conf.limits.max_sectors = 24;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W100+16 W116+16 W132");
	h_finish(&h);
	EXPECT_SERVED(&h, "W100+16 W116+24");
	h_close(&h);
}

/* 3.7: what the driver has, or will have next, takes no bio. */
static void
dispatched_ones_stay_as_they_are(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	rw(&h, REQ_OP_READ, FAR + 8, 8);
	rw(&h, REQ_OP_WRITE, FAR + 1008, 8);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { FAR, 8, 1, MERGEABLE },
	    { FAR + 8, 8, 1, MERGEABLE }, { FAR + 1000, 8, 1, MERGEABLE },
	    { FAR + 1008, 8, 1, MERGEABLE });
	h_close(&h);
}

/* 2.5, 3.7: heads of a split stay alone, the rest takes what follows. */
static void
split_heads(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.limits.max_sectors = 16;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W92 W100+40 W140");
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 92, 8, 1, ANY }, { 100, 16, ANY, NM },
	    { 116, 16, ANY, NM }, { 132, 16, 2, MERGEABLE },
	    { FAR, 8, 1, MERGEABLE }, { FAR + 1000, 8, 1, MERGEABLE });
	expect_writes(&h, 4, 1);
	h_close(&h);
}

/* T25, 3.7: write zeroes never merge; T24: discards of many ranges do. */
static void
other_ops(void **state)
{
	struct queue_conf conf = e_conf(*state);
	enum stat_group group = age(*state) == P414 ? STAT_WRITE : STAT_DISCARD;
	struct harness h;

	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "Z0 Z8 Z16");
	h_finish(&h);
	EXPECT_SERVED(&h, "Z0 Z8 Z16");
	expect_writes(&h, 3, 0);
	h_close(&h);

	conf.limits.max_discard_segments = 1;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "D100 D50 D0 D8 D108");
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 16, ANY, MERGEABLE },
	    { 50, 8, ANY, MERGEABLE }, { 100, 16, ANY, MERGEABLE },
	    { FAR, 8, 1, MERGEABLE }, { FAR + 1000, 8, 1, MERGEABLE });
	expect_counts(&h, group, group == STAT_WRITE ? 4 : 3, 2);
	h_close(&h);

	conf.limits.max_discard_segments = 256; /* no adjacency required */
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "D0 D100 D50");
	h_finish(&h);
	EXPECT_SERVED(&h, "D0+24");
	assert_int_equal(h.seen[2].nr_bios, 3);
	expect_counts(&h, group, group == STAT_WRITE ? 2 : 1, 2);
	h_close(&h);

	conf.limits.max_discard_segments = 2; /* sticky (3.4) */
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "D0 D100 D50");
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 16, ANY, NM }, { 50, 8, ANY, MERGEABLE },
	    { FAR, 8, 1, MERGEABLE }, { FAR + 1000, 8, 1, MERGEABLE });
	h_close(&h);
}

/*
 * 3.5: two requests of one range each are two ranges, more than there may be,
 * as blk_rq_get_max_segments() of 6.1 has it.
 */
static void
discard_requests(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.limits.max_discard_segments = 1;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "D0 D16 D8");
	h_finish(&h);
	if (age(h.profile) >= P61)
		EXPECT_SERVED(&h, "D0+16 D16");
	h_close(&h);
}

/*
 * 3.4: ranges(rq) < max_discard_segments.  Two that came together at insertion
 * are two ranges, adjacent or not.
 */
static void
discard_ranges(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	struct tasks t;

	conf.limits.max_discard_segments = 2;
	h_open(&h, &conf);
	e_block(&h);
	tasks_put(&h, &t, (const char *const[]){ "D0", "D8", NULL });
	e_put(&h, "D100");
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 16, 2, NM }, { 100, 8, 1, MERGEABLE },
	    { FAR, 8, 1, MERGEABLE }, { FAR + 1000, 8, 1, MERGEABLE });
	h_close(&h);
}

/* T31: in 4.14 the request takes the better priority. */
static void
priorities_keep_apart(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put_as(&h, IOPRIO_BE, "W0");
	e_put_as(&h, IOPRIO_RT, "W8");
	h_finish(&h);
	if (age(h.profile) == P414) {
		EXPECT_SERVED(&h, "W0+16");
		assert_int_equal(h.seen[2].prio, IOPRIO_RT);
	} else {
		EXPECT_SERVED(&h, age(h.profile) == P54 ? "W0 W8" : "W8 W0");
	}
	h_close(&h);

	/* 3.5: nor do requests merge then */
	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put_as(&h, IOPRIO_BE, "W0");
	e_put_as(&h, IOPRIO_RT, "W16");
	e_put_as(&h, IOPRIO_BE, "W8");
	h_finish(&h);
	if (age(h.profile) == P414) {
		EXPECT_SERVED(&h, "W0+24");
		assert_int_equal(h.seen[2].prio, IOPRIO_RT);
	} else {
		EXPECT_SERVED(
		    &h, age(h.profile) == P54 ? "W0+16 W16" : "W16 W0+16");
	}
	h_close(&h);
}

/* ----------------------------------------------- merging of two requests */

/* 3.5: after a back merge the successor is tried, */
static void
merges_the_successor(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "W1000 W0 W16 W8"); /* the cache is W1000: by the hash */
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 24, 3, MERGEABLE }, { 1000, 8, 1, MERGEABLE },
	    { FAR, 8, 1, MERGEABLE }, { FAR + 1000, 8, 1, MERGEABLE });
	expect_writes(&h, 2, counted(&h, 1, 1));
	h_close(&h);
}

/* after a front merge the predecessor. */
static void
merges_the_predecessor(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "W16 W0 W8"); /* the cache, W16, is tried first */
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+24");
	expect_writes(&h, 1, counted(&h, 1, 1));
	h_close(&h);
}

/* The survivor may be appended to, and prepended to, as any other. */
static void
merges_with_the_survivor(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "W100 W116 W108 W124 W92 W500 W132 W84");
	h_finish(&h);
	EXPECT_SERVED(&h, "W84+56 W500");
	expect_writes(&h, 2, counted(&h, 5, 1));
	h_close(&h);
}

/*
 * 3.5: at insertion W16 is appended to W8, found by its end, and the result to
 * W0.
 */
static void
merges_a_chain(void **state)
{
	static const char *const what[] = { "W1000", "W8", "W0", "W16", NULL };
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	struct tasks t;

	h_open(&h, &conf);
	e_block(&h);
	tasks_put(&h, &t, what);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 24, 3, MERGEABLE }, { 1000, 8, 1, MERGEABLE },
	    { FAR, 8, 1, MERGEABLE }, { FAR + 1000, 8, 1, MERGEABLE });
	expect_writes(&h, 2, counted(&h, 0, 2));
	h_close(&h);

	conf.nomerges = 1; /* no hash */
	h_open(&h, &conf);
	e_block(&h);
	tasks_put(&h, &t, what);
	h_finish(&h);
	EXPECT_SERVED(&h, "W1000 W8 W16 W0");
	expect_writes(&h, 4, 0);
	h_close(&h);
}

/*
 * 3.5: the cache is tried first, and that is all then: W16 stays although it
 * follows.  Only the end of a request takes another at insertion: W92 stays.
 */
static void
merges_with_the_cache_at_insertion(void **state)
{
	static const char *const follows[] = { "W0", "W16", "W8", NULL };
	static const char *const precedes[] = { "W100", "W92", NULL };
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	struct tasks t;

	for (conf.nomerges = 0; conf.nomerges <= 2; conf.nomerges++) {
		h_open(&h, &conf);
		e_block(&h);
		tasks_put(&h, &t, follows);
		h_finish(&h);
		EXPECT_SERVED(
		    &h, conf.nomerges < 2 ? "W0+16 W16" : "W0 W8 W16");
		expect_writes(&h, conf.nomerges < 2 ? 2 : 3,
		    conf.nomerges < 2 ? counted(&h, 0, 1) : 0);
		h_close(&h);

		h_open(&h, &conf);
		e_block(&h);
		tasks_put(&h, &t, precedes);
		h_finish(&h);
		EXPECT_SERVED(&h, "W100 W92");
		h_close(&h);
	}
}

/* -------------------------------------------- limits of what two may be */

/* W0 W16 W8, the latter two in memory at these places. */
static void
three_in_memory(
    struct harness *h, uint64_t phys8, uint64_t phys16, uint32_t bytes16)
{
	struct bio *bio;

	rw(h, REQ_OP_WRITE, 0, 8);
	bio = h_bio(h, REQ_OP_WRITE, 16);
	assert_true(
	    bio_add(bio, h->profile->multipage, phys16, h_memory, bytes16));
	h_submit(h, bio);
	bio = h_bio(h, REQ_OP_WRITE, 8);
	assert_true(
	    bio_add(bio, h->profile->multipage, phys8, h_memory, PAGE_SIZE));
	h_submit(h, bio);
}

/* 3.5: sectors <= max. */
static void
requests_of_max_sectors(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.limits.max_sectors = 24;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W0 W16 W8");
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+24");
	h_close(&h);

	conf.limits.max_sectors = 23;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W0 W16 W8");
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+16 W16");
	expect_writes(&h, 2, 1);
	h_close(&h);
}

/* 3.4: no request crosses a chunk. */
static void
requests_of_a_chunk(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.limits.chunk_sectors = 16;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W0 W16 W8 W24");
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+16 W16+16");
	expect_writes(&h, 2, 2);
	h_close(&h);
}

/* 3.5: the sum of their segments; 4.14 saves one where memory touches. */
static void
requests_of_max_segments(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	uint64_t phys;

	conf.limits.max_segments = 2;
	h_open(&h, &conf);
	e_block(&h);
	phys = h_new_phys(&h);
	three_in_memory(&h, phys, phys + 4 * PAGE_SIZE, PAGE_SIZE);
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+16 W16");
	h_close(&h);

	h_open(&h, &conf);
	e_block(&h);
	phys = h_new_phys(&h);
	three_in_memory(&h, phys, phys + PAGE_SIZE, PAGE_SIZE);
	h_finish(&h);
	if (age(h.profile) == P414) {
		EXPECT_SERVED(&h, "W0+24");
		assert_int_equal(h.seen[2].nr_segs, 2);
	} else {
		EXPECT_SERVED(&h, "W0+16 W16");
	}
	h_close(&h);

	conf.limits.max_segment_size = 2 * PAGE_SIZE - 512; /* of the seam */
	h_open(&h, &conf);
	e_block(&h);
	phys = h_new_phys(&h);
	three_in_memory(&h, phys, phys + PAGE_SIZE, PAGE_SIZE);
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+16 W16");
	h_close(&h);

	conf.limits.max_segments = 3;
	h_open(&h, &conf);
	e_block(&h);
	phys = h_new_phys(&h);
	three_in_memory(&h, phys, phys + 4 * PAGE_SIZE, PAGE_SIZE);
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+24");
	assert_int_equal(h.seen[2].nr_segs, 3);
	h_close(&h);
}

/* 3.5: the gap test. */
static void
requests_with_a_gap(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	uint64_t phys;

	conf.limits.virt_boundary_mask = 0;
	h_open(&h, &conf);
	e_block(&h);
	phys = h_new_phys(&h);
	three_in_memory(&h, phys, phys + 4 * PAGE_SIZE + 512, 512);
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+17");
	h_close(&h);

	conf.limits.virt_boundary_mask = 4095;
	h_open(&h, &conf);
	e_block(&h);
	phys = h_new_phys(&h);
	three_in_memory(&h, phys, phys + 4 * PAGE_SIZE + 512, 512);
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+16 W16+1");
	h_close(&h);
}

/* A refusal between two requests is not sticky: they take bios after it. */
static void
requests_refuse_but_not_for_good(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.limits.max_sectors = 32;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W0 W16+24 W8"); /* 16 + 24 > 32 */
	e_put(&h, "W40 W1000");
	h_finish(&h);
	EXPECT_SERVED(&h, "W0+16 W16+32 W1000");
	h_close(&h);
}

/* -------------------------------------------------- what a survivor bears */

/*
 * 5: R516 came first; R500, which came last, absorbs it and goes where it was
 * in the FIFO, before R1000.
 */
static void
inherits_the_position(void **state)
{
	struct harness h;

	open_deadline(&h, state, 1, 2);
	e_block(&h);
	e_put(&h, "R516 R1000 R500 R508");
	h_finish(&h);
	EXPECT_SERVED(&h, "R500+24 R1000");
	h_close(&h);

	/* the other way round it stays where it is */
	open_deadline(&h, state, 1, 2);
	e_block(&h);
	e_put(&h, "R500 R1000 R516 R508");
	h_finish(&h);
	EXPECT_SERVED(&h, "R500+24 R1000");
	h_close(&h);

	/* and a later one does not pull it back */
	open_deadline(&h, state, 1, 2);
	e_block(&h);
	e_put(&h, "R1000 R500 R516 R508");
	h_finish(&h);
	EXPECT_SERVED(&h, "R1000 R500+24");
	h_close(&h);
}

/* 5: and expires when it would have. */
static void
inherits_the_deadline(void **state)
{
	struct harness h;
	uint64_t then;
	int64_t after;

	for (after = -1; after <= 0; after++) {
		open_deadline(&h, state, 1, 2);
		e_block(&h);
		e_put(&h, "R100 R516");
		then = h.now;
		h.now += 400 * MS;
		e_put(&h, "R200 R500 R508");
		h.now = then + 500 * MS + (uint64_t)after;
		h_finish(&h);
		EXPECT_SERVED(
		    &h, after < 0 ? "R100 R200 R500+24" : "R100 R500+24 R200");
		h_close(&h);
	}
}

/* A bio that merges does not make its request younger. */
static void
keeps_its_deadline(void **state)
{
	struct harness h;
	uint64_t then;
	int64_t after;

	for (after = -1; after <= 0; after++) {
		open_deadline(&h, state, 1, 2);
		e_block(&h);
		e_put(&h, "R100 R500");
		then = h.now;
		h.now += 400 * MS;
		e_put(&h, "R200 R508 R492");
		h.now = then + 500 * MS + (uint64_t)after;
		h_finish(&h);
		EXPECT_SERVED(
		    &h, after < 0 ? "R100 R200 R492+24" : "R100 R492+24 R200");
		h_close(&h);
	}
}

/* 3.5: "the survivor keeps the older start time". */
static void
keeps_its_start(void **state)
{
	struct harness h;
	struct queue_stat st;
	uint64_t then;

	open_deadline(&h, state, 1, 2);
	e_block(&h); /* its read and write */
	then = h.now;
	rw(&h, REQ_OP_READ, 516, 8);
	h.now = then + 100 * MS;
	e_put(&h, "R500 R508");
	h.now = then + 200 * MS;
	h_finish(&h);
	EXPECT_SERVED(&h, "R500+24");
	st = h_stat(&h);
	/* the read of e_block() and this one: 200 ms each */
	assert_in_range(st.ticks_ms[STAT_READ], 399, 401);
	h_close(&h);
}

/* 5: a front merge moves a request in the tree to where it begins. */
static void
front_merge_moves_it(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "R100 R500 R490+2 R484+16");
	h_finish(&h);
	EXPECT_SERVED(&h, "R100 R484+24 R490+2");
	h_close(&h);
}

/*
 * dd_request_merged(): it moves in the tree, but is the successor still; a
 * batch does not pass it over.
 */
static void
front_merge_of_the_successor(void **state)
{
	struct harness h;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "R100 R300 R500 R700");
	e_end(&h);
	e_end(&h); /* R100 is in the driver, R300 has left, R500 is next */
	e_put(&h, "R492");
	h_finish(&h);
	EXPECT_SERVED(&h, "R100 R300 R492+16 R700");
	h_close(&h);
}

/* ------------------------------------------------------- tags and requests */

/* Submit until it is refused; that one is given up. */
static unsigned
fill(struct harness *h, enum req_op op, sector_t sector)
{
	struct bio *bio;
	unsigned nr;

	for (nr = 0;; nr++, sector += 100) {
		bio = e_bio(h, op, sector, 8);
		h->nr_submitted++;
		if (h_try_submit(h, bio) != 0)
			break;
	}
	queue_drop(h->queue, h->cpu, bio, -EINTR, h->now);
	assert_int_equal(h->error, -EINTR);
	return nr;
}

/* 5: async_depth is for all but reads, from 6.1 on. */
static void
async_depth(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	unsigned writes, reads;

	conf.nr_requests = 16;
	conf.deadline.async_depth = 5;
	h_open(&h, &conf);
	h.hold = true;
	writes = age(h.profile) <= P54 ? 16 : 5;
	assert_int_equal(fill(&h, REQ_OP_WRITE, 0), writes);
	reads = fill(&h, REQ_OP_READ, 100000);
	assert_int_equal(writes + reads, 16);
	assert_int_equal(fill(&h, REQ_OP_WRITE, 200000), 0);
	h_finish(&h);
	assert_int_equal(h.nr_seen, 16);
	h_close(&h);
}

/* 5: by default it is nr_requests, and these are twice the tags (2.1). */
static void
twice_the_tags(void **state)
{
	static const struct {
		unsigned depth, nr_requests, want;
	} cases[] = {
		{ 4, 0, 8 },
		{ 64, 0, 128 },
		{ 128, 0, 256 },
		{ 1000, 0, 256 }, /* 2 * BLKDEV_DEFAULT_RQ */
		{ 4, 3, 3 },
		{ 4, 30, 30 },
		{ 4, 2048, 2048 },
	};
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		conf.depth = cases[i].depth;
		conf.nr_requests = cases[i].nr_requests;
		h_open(&h, &conf);
		h.busy = true;
		assert_int_equal(fill(&h, REQ_OP_WRITE, 0), cases[i].want);
		assert_int_equal(queue_tags_in_use(h.queue), cases[i].want);
		h_finish(&h);
		assert_int_equal(h.nr_seen, cases[i].want);
		h_close(&h);
	}
}

/* More requests than tags: all are served, in order, a few at a time. */
static void
fewer_tags_than_requests(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	unsigned i, depth;

	for (depth = 1; depth <= 4; depth++) {
		conf.depth = depth;
		h_open(&h, &conf);
		h.hold = true;
		for (i = 0; i < 40; i++)
			rw(&h, REQ_OP_WRITE, 100 * i, 8);
		while (h.nr_held > 0) {
			assert_int_equal(h.nr_held,
			    40 - h.nr_ended < depth ? 40 - h.nr_ended : depth);
			e_end(&h);
		}
		assert_int_equal(h.nr_ended, 40);
		assert_int_equal(h.nr_seen, 40);
		for (i = 0; i < 40; i++)
			assert_int_equal(h.seen[i].sector, 100 * i);
		h_close(&h);
	}
}

/* A driver that is busy loses nothing and stays first. */
static void
busy_driver(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	conf.depth = 64;
	h_open(&h, &conf);
	h.busy = true;
	e_put(&h, "W900"); /* on the dispatch list */
	e_put(&h, "W300 W100 W200 W308");
	assert_int_equal(h.nr_seen, 0);
	assert_true(h.nr_busy > 0);
	h_finish(&h);
	/* from its head on: nothing is above 900 */
	EXPECT_ALL(&h, "W900 W300+16 W100 W200");
	h_close(&h);
}

/* ------------------------------------------------- flushes, other disks */

/*
 * W W+FUA W with a cache: nothing merges with FUA (T21), and who asked for a
 * flush or FUA counts for its class no more when it has ended.
 */
static void
flush_and_fua(void **state, bool fua)
{
	static const uint16_t flags[] = { 0, REQ_FUA, 0, REQ_PREFLUSH,
		REQ_PREFLUSH | REQ_FUA, 0 };
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	struct bio *bio;
	unsigned i, nr_flushes = 0;

	conf.limits.write_cache = true;
	conf.limits.fua = fua;
	conf.depth = 4;
	h_open(&h, &conf);
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		bio = e_bio(&h, REQ_OP_WRITE, 8 * i, 8);
		bio->flags |= flags[i];
		bio->prio = IOPRIO_RT;
		h_submit(&h, bio);
	}
	e_put_as(&h, IOPRIO_RT, "F0");
	cpu_run(h.cpu, h.now);
	queue_run(h.queue, h.cpu, h.now);
	assert_int_equal(h.nr_ended, h.nr_submitted);
	e_put_as(&h, IOPRIO_IDLE, "R1000");
	cpu_run(h.cpu, h.now);
	assert_int_equal(h.nr_ended, h.nr_submitted);
	for (i = 0; i < h.nr_seen; i++) {
		if (h.seen[i].op == REQ_OP_FLUSH)
			nr_flushes++;
		else
			assert_int_equal(h.seen[i].nr_sectors, 8);
	}
	/* PREFLUSH twice, the empty one, after FUA where the device has none */
	assert_int_equal(nr_flushes, fua ? 3 : 5);
	assert_int_equal(h.nr_seen, nr_flushes + 7);
	h_close(&h);
}

static void
flush_with_fua(void **state)
{
	flush_and_fua(state, true);
}

static void
flush_without_fua(void **state)
{
	flush_and_fua(state, false);
}

/* The same while requests wait in the elevator; nothing is lost. */
static void
flush_beside_others(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	struct bio *bio;
	unsigned i, data = 0, flush1 = 0, flush2 = 0;

	conf.limits.write_cache = true;
	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W0 W16");
	bio = e_bio(&h, REQ_OP_WRITE, 8, 8);
	bio->flags |= REQ_PREFLUSH | REQ_FUA;
	h_submit(&h, bio);
	e_put(&h, "W24");
	h_finish(&h);
	for (i = NR_BLOCKERS; i < h.nr_seen; i++) {
		if (h.seen[i].op == REQ_OP_WRITE && h.seen[i].sector == 8) {
			assert_int_equal(h.seen[i].nr_sectors, 8);
			data = i;
		} else if (h.seen[i].op == REQ_OP_FLUSH) {
			if (flush1 == 0)
				flush1 = i;
			else
				flush2 = i;
		}
	}
	assert_true(flush1 > 0);
	assert_true(data > flush1);
	assert_true(flush2 > data);
	/* W0, W[16,16), the one in between */
	assert_int_equal(h.nr_seen, NR_BLOCKERS + 3 + 2);
	h_close(&h);
}

/* One plug, two disks, one of which has no elevator. */
static void
two_disks(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	struct queue *none, *own;
	char *seen;
	unsigned i;
	static const sector_t sectors[] = { 300, 100, 400, 200, 500 };

	conf.depth = 64;
	h_open(&h, &conf);
	conf.elevator = NULL;
	conf.nr_requests = 0;
	assert_int_equal(queue_new(&none, h.machine, &h_ops, &h, &conf), 0);
	own = h.queue;
	h_plug(&h);
	for (i = 0; i < ARRAY_SIZE(sectors); i++) {
		h.queue = own;
		rw(&h, REQ_OP_WRITE, sectors[i], 8);
		h.queue = none;
		rw(&h, REQ_OP_WRITE, sectors[i], 8);
	}
	assert_int_equal(h.nr_seen, 0);
	h.queue = own;
	h_finish(&h);
	assert_int_equal(queue_tags_in_use(none), 0);

	/*
	 * 4.1: up to 5.4 they come sorted.  5: 6.1 begins at the FIFO's head,
	 * 6.12 at or above 0.
	 */
	seen = e_seen_of(&h, own, 0);
	assert_string_equal(seen, age(h.profile) == P61
				      ? "W300 W400 W500 W100 W200"
				      : "W100 W200 W300 W400 W500");
	free(seen);
	/* 4.1: sorted, from 6.1's grouped path in their order, as in 6.12 */
	seen = e_seen_of(&h, none, 0);
	assert_string_equal(seen, age(h.profile) <= P54
				      ? "W100 W200 W300 W400 W500"
				      : "W300 W100 W400 W200 W500");
	free(seen);
	queue_free(none);
	h_close(&h);
}

/*
 * What the elevator kept in a request is no more when the driver has it: it may
 * end it after a while.  R300 leaves with another at its left in the tree.
 */
static void
ends_later(void **state)
{
	struct harness h;
	unsigned i;

	open_deadline(&h, state, 16, 2);
	e_block(&h);
	e_put(&h, "R300 R100 R500 R200 R400 W0 W16");
	while (h.nr_held > 0) {
		struct request *rq = h.held[--h.nr_held];

		rq_complete_after(rq, h.cpu, 1000);
		for (i = 0; i < 2; i++, h.now += 1000)
			cpu_run(h.cpu, h.now);
	}
	assert_int_equal(h.nr_ended, h.nr_submitted);
	assert_int_equal(h.cpu->deadlines.nr, 0);
	h_close(&h);
}

/* kyber and bfq are known, but not to be had. */
static void
others_are_refused(void **state)
{
	static const char *const names[] = { "kyber", "bfq" };
	struct queue_conf conf = e_conf(*state);
	const struct elevator_type *e;
	struct machine *m = machine_new(1, NULL, NULL);
	struct queue *q = NULL;
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		e = elevator_find(names[i]);
		assert_non_null(e);
		if (e->available)
			continue;
		conf.elevator = e;
		assert_int_equal(
		    queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
		assert_null(q);
	}
	conf = e_conf(*state);
	conf.nr_requests = BLK_MAX_SCHED_RQ + 1;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
	machine_free(m);
}

static const struct example examples[] = {
	{ "5 serves the example, as they come", example_in_turn },
	{ "5 serves the example from a plug", example_from_a_plug },
	{ "5 remembers where it was in each direction from 6.1 on",
	    remembers_directions },
	{ "5 lets writes starve for so many batches of reads", starves_writes },
	{ "5 counts anew after writes that nobody held back", starved_resets },
	{ "5 serves in batches of 16", batches },
	{ "5 goes on above the last sector, or at the successor",
	    goes_on_above },
	{ "5 goes on at the last sector in 6.12", goes_on_at },
	{ "5 serves those of one sector as they came", same_sector },
	{ "5 begins a batch at the end of the tree", end_of_the_tree },
	{ "5 goes on in the one direction there is", one_direction },
	{ "5 takes discards and write zeroes for writes", discards_are_writes },
	{ "5 serves reads that have expired", expires_reads },
	{ "5 serves writes that have expired", expires_writes },
	{ "5 looks at expiry between batches", expires_between_batches },
	{ "5 lets an expired write starve", expiry_waits_for_its_turn },
	{ "5 serves better classes first from 6.1 on", classes_in_order },
	{ "5 lets a class wait for what a better one has in flight",
	    classes_wait },
	{ "5 forgets absorbed requests of a class",
	    classes_forget_the_absorbed },
	{ "5 serves a lower class that has aged", ages },
	{ "5 serves the aged of two classes before the third", ages_of_three },
	{ "5 comes back to what has aged", ages_without_being_asked },
	{ "T19 merges three writes in the elevator", t19 },
	{ "T20 merges what the plug did not see", t20 },
	{ "3.6 finds a request by its end and by its start", hash_finds_ends },
	{ "3.6 heeds front_merges, save for the one-hit cache", front_merges },
	{ "3.6 heeds nomerges, save for the one-hit cache", nomerges },
	{ "5 has the survivor of a merge as its one-hit cache",
	    cache_follows_merges },
	{ "5 clears the one-hit cache when that request leaves",
	    cache_is_cleared },
	{ "3.4 clears the one-hit cache when a limit closes that request",
	    cache_is_cleared_with_a_refusal },
	{ "3.7 merges nothing with what was dispatched",
	    dispatched_ones_stay_as_they_are },
	{ "2.5 merges nothing with the heads of a split", split_heads },
	{ "3.3 merges discards, never write zeroes", other_ops },
	{ "3.4 counts the ranges of discards that merge at insertion",
	    discard_ranges },
	{ "3.5 merges no requests that discard a range each",
	    discard_requests },
	{ "T31 merges priorities in 4.14 alone", priorities_keep_apart },
	{ "3.5 merges with the successor", merges_the_successor },
	{ "3.5 merges with the predecessor", merges_the_predecessor },
	{ "3.5 goes on to merge with the survivor", merges_with_the_survivor },
	{ "3.5 merges a chain at insertion", merges_a_chain },
	{ "3.5 merges with the one-hit cache at insertion, and that is all",
	    merges_with_the_cache_at_insertion },
	{ "3.5 merges requests up to max_sectors", requests_of_max_sectors },
	{ "3.4 merges requests up to a chunk's end", requests_of_a_chunk },
	{ "3.5 merges requests up to max_segments", requests_of_max_segments },
	{ "3.5 merges no requests with a gap between", requests_with_a_gap },
	{ "3.5 refuses to merge requests, but not for good",
	    requests_refuse_but_not_for_good },
	{ "5 gives a survivor the earlier place in the FIFO",
	    inherits_the_position },
	{ "5 gives a survivor the earlier deadline", inherits_the_deadline },
	{ "5 keeps the deadline when bios merge", keeps_its_deadline },
	{ "3.5 gives a survivor the older start", keeps_its_start },
	{ "5 finds a request where a front merge put it",
	    front_merge_moves_it },
	{ "5 goes on with a successor that a bio was put in front of",
	    front_merge_of_the_successor },
	{ "5 lets writes have async_depth requests from 6.1 on", async_depth },
	{ "5 has twice as many requests as tags", twice_the_tags },
	{ "serves more requests than there are tags",
	    fewer_tags_than_requests },
	{ "keeps what a busy driver refused first", busy_driver },
	{ "3.7 flushes beside the elevator, the device has FUA",
	    flush_with_fua },
	{ "3.7 flushes beside the elevator, the device has no FUA",
	    flush_without_fua },
	{ "3.7 flushes while others wait in the elevator",
	    flush_beside_others },
	{ "4.1 hands one plug on to two disks, one without an elevator",
	    two_disks },
	{ "refuses what it does not have", others_are_refused },
	{ "ends after a while what the elevator had", ends_later }, {}
};

int
main(void)
{
	return run_examples("mq-deadline", examples);
}
