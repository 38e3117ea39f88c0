/* SPDX-License-Identifier: MIT */
/*
 * Live settings: a queue is frozen, changed and thawed (blk_mq_freeze_queue(),
 * blk.h has the contract), under each profile.
 */
#include "elevator.h"

/* A bio that is refused while the queue is being frozen. */
static struct bio *
refused(struct harness *h, enum req_op op, sector_t sector, uint64_t nr)
{
	struct bio *bio = e_bio(h, op, sector, nr);

	h->nr_submitted++;
	assert_int_equal(h_try_submit(h, bio), -EAGAIN);
	return bio;
}

/* Frozen, changed, thawed, with nothing on its way. */
static void
update(struct harness *h, const struct queue_conf *conf)
{
	queue_freeze(h->queue);
	assert_true(queue_frozen(h->queue));
	assert_int_equal(queue_update(h->queue, conf), 0);
	queue_thaw(h->queue);
}

static void
set_elevator(struct queue_conf *conf, const char *name)
{
	conf->elevator = elevator_find(name);
	assert_non_null(conf->elevator);
	conf->nr_requests = 0;
}

/* Reads and writes that merge, forth and back. */
static void
use(struct harness *h)
{
	unsigned nr = h->nr_seen;

	h_plug(h);
	e_put(h, "W100 W108 R500 R508 W1000+256 W50");
	h_finish(h);
	assert_in_range(h->nr_seen - nr, 4, 6);
	assert_int_equal(h->error, 0);
}

/* -------------------------------------------------------------- the freeze */

static void
refuses_while_freezing(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;

	h_open(&h, &conf);
	h.hold = true;
	rw(&h, REQ_OP_WRITE, 0, 8);
	assert_false(queue_freezing(h.queue));
	queue_freeze(h.queue);
	assert_true(queue_freezing(h.queue));
	assert_false(queue_frozen(h.queue)); /* one is in flight */
	bio = refused(&h, REQ_OP_READ, 100, 8);
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(h.nr_seen, 1);
	assert_int_equal(h.nr_ended, 0);
	e_end(&h);
	assert_int_equal(h.nr_ended, 1);
	assert_true(queue_frozen(h.queue));
	assert_true(queue_frozen(h.queue)); /* and stays so */
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	queue_thaw(h.queue);
	assert_false(queue_freezing(h.queue));
	assert_int_equal(h_try_submit(&h, bio), 0);
	h_finish(&h);
	EXPECT_ALL(&h, "W0 R100");
	h_close(&h);
}

/* A bio that the plug could merge is refused as well; the plug is flushed. */
static void
flushes_the_plug(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;
	unsigned pass;

	for (pass = 0; pass < 2; pass++) {
		h_open(&h, &conf);
		h_plug(&h);
		rw(&h, REQ_OP_WRITE, 0, 8);
		assert_int_equal(h.nr_seen, 0);
		queue_freeze(h.queue);
		assert_false(queue_frozen(h.queue));
		bio = refused(&h, REQ_OP_WRITE, 8, 8);
		assert_true(plug_is_empty(&h.plug));
		cpu_run(h.cpu, h.now);
		assert_int_equal(h.nr_seen, 1);
		assert_int_equal(h.nr_ended, 1);
		assert_true(queue_frozen(h.queue));
		queue_thaw(h.queue);
		assert_int_equal(h_try_submit(&h, bio), 0);
		h_finish(&h);
		EXPECT_ALL(&h, "W0 W8");
		h_close(&h);
		conf = e_conf(*state); /* and with an elevator */
	}
}

/* What waits in the elevator comes to its end. */
static void
empties_the_elevator(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W100 W300 R200 R208");
	queue_freeze(h.queue);
	while (h.nr_held > 0) {
		assert_false(queue_frozen(h.queue));
		e_end(&h);
	}
	assert_true(queue_frozen(h.queue));
	assert_int_equal(h.nr_ended, h.nr_submitted);
	queue_thaw(h.queue);
	use(&h);
	h_close(&h);
}

/* The same of a software queue, whose driver was busy. */
static void
empties_the_software_queue(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	unsigned i;

	h_open(&h, &conf);
	h.busy = true;
	e_put(&h, "W100 W300 R200");
	queue_freeze(h.queue);
	assert_false(queue_frozen(h.queue));
	h.busy = false;
	/* BLK_MQ_RESOURCE_DELAY: it comes back without being asked */
	for (i = 0; i < 10; i++) {
		h.now += BLK_MQ_RESOURCE_DELAY;
		cpu_run(h.cpu, h.now);
	}
	assert_int_equal(h.nr_ended, 3);
	assert_true(queue_frozen(h.queue));
	queue_thaw(h.queue);
	h_close(&h);
}

static unsigned woken;

static void
on_wake(void *arg, unsigned cpu)
{
	(void)arg;
	woken |= 1u << cpu;
}

/* queue_thaw() wakes all cpus. */
static void
wakes_all(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct machine *m = machine_new(3, on_wake, NULL);
	struct queue *q;

	assert_non_null(m);
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), 0);
	queue_freeze(q);
	assert_true(queue_frozen(q));
	woken = 0;
	queue_thaw(q);
	assert_int_equal(woken, 7);
	queue_free(q);
	machine_free(m);
}

/* ------------------------------------------------------------- the change */

/* none, mq-deadline, none, and the data path works after each. */
static void
switches_elevators(void **state)
{
	static const char *const names[] = { "none", "mq-deadline", "none",
		"mq-deadline", "mq-deadline", "none" };
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	unsigned i, from;
	char *seen;

	conf.deadline.fifo_batch = 1;
	set_elevator(&conf, "none");
	h_open(&h, &conf);
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		set_elevator(&conf, names[i]);
		update(&h, &conf);
		use(&h);
		assert_int_equal(
		    h.queue->elevator != NULL, conf.elevator->ops != NULL);
	}
	for (i = 0; i < 2; i++) {
		set_elevator(&conf, i == 0 ? "mq-deadline" : "none");
		conf.nr_requests = i == 0 ? 64 : 0;
		conf.depth = 1;
		update(&h, &conf);
		if (i == 1)
			break;
		from = h.nr_seen;
		e_block(&h);
		e_put(&h, "W300 W100 R400 W292 W108");
		h_finish(&h);
		seen = e_seen_of(&h, NULL, from + NR_BLOCKERS);
		assert_string_equal(seen, "R400 W292+16 W100+16");
		free(seen);
	}
	use(&h);
	h_close(&h);
}

/*
 * What one elevator knew the next does not: the one-hit cache, the last
 * sector, `starved`.
 */
static void
begins_anew(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	char *seen;
	unsigned from;

	conf.deadline.fifo_batch = 1;
	conf.deadline.writes_starved = 1;
	conf.depth = 64;
	h_open(&h, &conf);
	h_plug(&h);
	e_put(&h, "R100 R200 W300");
	h_finish(&h);
	set_elevator(&conf, "none");
	update(&h, &conf);
	set_elevator(&conf, "mq-deadline");
	conf.nr_requests = 64;
	update(&h, &conf);
	from = h.nr_seen;
	h_plug(&h);
	e_put(&h, "R150 W20 W10 R50");
	h_finish(&h);
	seen = e_seen_of(&h, NULL, from);
	switch (age(h.profile)) {
	/* sorted by the plug */
	case P414: assert_string_equal(seen, "R50 W10 R150 W20"); break;
	case P612: assert_string_equal(seen, "W10 R50 W20 R150"); break;
	default: assert_string_equal(seen, "R150 W20 R50 W10"); break;
	}
	free(seen);
	h_close(&h);
}

/* How many bios are taken before one is refused. */
static unsigned
room(struct harness *h)
{
	struct bio *bio;
	unsigned nr;

	h->busy = true;
	for (nr = 0;; nr++) {
		bio = e_bio(h, REQ_OP_WRITE, 100 * nr, 8);
		h->nr_submitted++;
		if (h_try_submit(h, bio) != 0)
			break;
	}
	queue_drop(h->queue, h->cpu, bio, -EINTR, h->now);
	h_finish(h);
	assert_int_equal(h->error, -EINTR);
	h->error = 0;
	return nr;
}

static void
changes_nr_requests(void **state)
{
	static const unsigned nrs[] = { 0, 3, 16, 5, 1, 16 };
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	unsigned i;

	conf.depth = 16;
	h_open(&h, &conf);
	for (i = 0; i < ARRAY_SIZE(nrs); i++) {
		conf.nr_requests = nrs[i];
		update(&h, &conf);
		assert_int_equal(room(&h), nrs[i] == 0 ? 16 : nrs[i]);
	}
	conf.nr_requests = 17; /* than there are tags */
	queue_freeze(h.queue);
	assert_int_equal(queue_update(h.queue, &conf), -EINVAL);
	queue_thaw(h.queue);
	assert_int_equal(room(&h), 16);
	h_close(&h);
}

static void
changes_nr_requests_of_an_elevator(void **state)
{
	static const unsigned nrs[] = { 0, 3, 100, 5, 1, 2048, 16 };
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	unsigned i;

	conf.depth = 16;
	h_open(&h, &conf);
	for (i = 0; i < ARRAY_SIZE(nrs); i++) {
		conf.nr_requests = nrs[i];
		update(&h, &conf);
		assert_int_equal(room(&h), nrs[i] == 0 ? 32 : nrs[i]);
		h.nr_seen = 0;
	}
	conf.nr_requests = BLK_MAX_SCHED_RQ + 1;
	queue_freeze(h.queue);
	assert_int_equal(queue_update(h.queue, &conf), -EINVAL);
	queue_thaw(h.queue);
	assert_int_equal(room(&h), 16); /* nothing was changed */
	set_elevator(&conf, "none");
	update(&h, &conf);
	assert_int_equal(room(&h), 16); /* its tags */
	h_close(&h);
}

/* -EINVAL: nothing was changed, not even the rest of it. */
static void
changes_nothing_when_it_refuses(void **state)
{
	struct queue_conf conf = e_conf(*state), bad;
	struct harness h;

	h_open(&h, &conf);
	bad = conf;
	bad.limits.max_sectors = 8;
	bad.nomerges = 2;
	bad.nr_requests = BLK_MAX_SCHED_RQ + 1;
	queue_freeze(h.queue);
	assert_true(queue_frozen(h.queue));
	assert_int_equal(queue_update(h.queue, &bad), -EINVAL);
	queue_thaw(h.queue);
	e_block(&h);
	e_put(&h, "W100+16 W116");
	h_finish(&h);
	EXPECT_SERVED(&h, "W100+24");
	h_close(&h);
}

/* A plugged write comes as these requests. */
static void
comes_as(struct harness *h, const char *what, const char *want)
{
	unsigned from = h->nr_seen;
	char *seen;

	h_plug(h);
	e_put(h, what);
	h_finish(h);
	seen = e_seen_of(h, NULL, from);
	assert_string_equal(seen, want);
	free(seen);
}

static void
changes_limits(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	unsigned pass;
	bool reversed;

	conf.depth = 64;
	for (pass = 0; pass < 2; pass++) {
		h_open(&h, &conf);
		/* 6.1 issues the plug of the none newest first (4.1) */
		reversed = pass == 1 && age(h.profile) == P61;
		comes_as(&h, "W0+32", "W0+32");
		conf.limits.max_sectors = 16;
		update(&h, &conf);
		comes_as(
		    &h, "W0+32", reversed ? "W16+16 W0+16" : "W0+16 W16+16");
		conf.limits.max_sectors = 2560;
		conf.limits.chunk_sectors = 16;
		update(&h, &conf);
		comes_as(&h, "W24+16", reversed ? "W32 W24" : "W24 W32");
		conf.limits.chunk_sectors = 0;
		update(&h, &conf);
		comes_as(&h, "W24+16 W40", "W24+24");
		h_close(&h);
		set_elevator(&conf, "none");
	}
}

/* nomerges, plug_mode, and the tunables of the elevator. */
static void
changes_settings(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	uint64_t then;
	char *seen;
	unsigned from;

	h_open(&h, &conf);
	conf.nomerges = 2;
	update(&h, &conf);
	e_block(&h);
	e_put(&h, "W100 W108");
	h_finish(&h);
	EXPECT_SERVED(&h, "W100 W108");

	conf.nomerges = 0;
	conf.plug_mode = PLUG_EACH;
	update(&h, &conf);
	h_plug(&h);
	from = h.nr_seen;
	e_put(&h, "W100");
	cpu_run(h.cpu, h.now);
	assert_int_equal(h.nr_seen, from + 1);
	h_finish(&h);

	conf.plug_mode = PLUG_TASK;
	conf.deadline.fifo_batch = 1;
	conf.deadline.writes_starved = 0;
	conf.deadline.read_expire_ms = 10;
	conf.deadline.front_merges = false;
	update(&h, &conf);
	from = h.nr_seen;
	e_block(&h);
	e_put(&h, "R100 R500");
	then = h.now;
	e_put(&h, "R200 W700 W600 W592");
	h.now = then + 10 * MS;
	h_finish(&h);
	seen = e_seen_of(&h, NULL, from + NR_BLOCKERS);
	assert_string_equal(seen, "W700 W600 W592 R100 R500 R200");
	free(seen);

	conf.iostats = false;
	update(&h, &conf);
	from = (unsigned)h_stat(&h).ios[STAT_READ];
	e_put(&h, "R100 R500");
	h_finish(&h);
	assert_int_equal(h_stat(&h).ios[STAT_READ], from);
	h_close(&h);
}

/*
 * An elevator that goes takes its settings with it, and the statistics stay
 * what they were.
 */
static void
keeps_its_counts(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;

	h_open(&h, &conf);
	e_block(&h);
	e_put(&h, "W0 W8 R100");
	h_finish(&h);
	expect_counts(&h, STAT_WRITE, 2, 1);
	expect_counts(&h, STAT_READ, 2, 0);
	set_elevator(&conf, "none");
	update(&h, &conf);
	expect_counts(&h, STAT_WRITE, 2, 1);
	e_put(&h, "W0");
	h_finish(&h);
	expect_counts(&h, STAT_WRITE, 3, 1);
	h_close(&h);
}

/* --------------------------------------------------------------- the drop */

static void
drops_a_refused_bio(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;

	h_open(&h, &conf);
	queue_freeze(h.queue);
	bio = refused(&h, REQ_OP_WRITE, 0, 8);
	queue_drop(h.queue, h.cpu, bio, -ESHUTDOWN, h.now);
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h.error, -ESHUTDOWN);
	assert_true(queue_frozen(h.queue));
	queue_thaw(h.queue);
	h.error = 0;
	use(&h);
	h_close(&h);
}

/*
 * A bio of three pieces, of which the first is in the driver: it is dropped,
 * and ends when that one has.
 */
static void
drops_half_a_bio(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;
	unsigned pass;

	for (pass = 0; pass < 2; pass++) {
		conf.depth = 1;
		conf.nr_requests = 1;
		conf.limits.max_sectors = 16;
		h_open(&h, &conf);
		h.hold = true;
		bio = refused(&h, REQ_OP_WRITE, 0, 40);
		assert_int_equal(h.nr_held, 1);
		queue_drop(h.queue, h.cpu, bio, -EINTR, h.now);
		assert_int_equal(h.nr_ended, 0);
		e_end(&h);
		assert_int_equal(h.nr_ended, 1);
		assert_int_equal(h.error, -EINTR);
		EXPECT_ALL(&h, "W0+16");
		queue_freeze(h.queue);
		assert_true(queue_frozen(h.queue)); /* no half is held */
		queue_thaw(h.queue);
		h.error = 0;
		h.hold = false;
		e_put(&h, "W100");
		h_finish(&h);
		EXPECT_ALL(&h, "W0+16 W100");
		h_close(&h);
		conf = e_conf(*state);
	}
}

/* The same when its pieces that were on their way have ended before. */
static void
drops_what_has_ended(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;

	conf.depth = 1;
	conf.limits.max_sectors = 16;
	h_open(&h, &conf);
	h.hold = true;
	bio = refused(&h, REQ_OP_WRITE, 0, 40);
	e_end(&h);
	assert_int_equal(h.nr_ended, 0);
	assert_int_equal(h.nr_held, 0);
	queue_drop(h.queue, h.cpu, bio, -EINTR, h.now);
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h.error, -EINTR);
	h_close(&h);
}

/*
 * Half of a bio is in the queue when it is being frozen: what is in flight
 * ends.  Either the rest is let in, as it had entered before, or it waits; the
 * bio ends once, with all its data, and the queue is not frozen while it holds
 * half of one.
 */
static void
freezes_with_half_a_bio(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;
	unsigned pass, turn;
	int err;

	for (pass = 0; pass < 2; pass++) {
		conf.depth = 1;
		conf.nr_requests = 1;
		conf.limits.max_sectors = 16;
		h_open(&h, &conf);
		h.hold = true;
		bio = refused(&h, REQ_OP_WRITE, 0, 40);
		queue_freeze(h.queue);
		assert_false(queue_frozen(h.queue));
		for (turn = 0; turn < 10; turn++) {
			e_end(&h);
			assert_false(queue_frozen(h.queue));
			err = h_try_submit(&h, bio);
			if (err == 0)
				break;
			assert_int_equal(err, -EAGAIN);
		}
		assert_int_equal(turn, 1);
		assert_int_equal(h.nr_ended, 0);
		e_end(&h);
		assert_int_equal(h.nr_ended, 1);
		assert_int_equal(h.error, 0);
		assert_true(queue_frozen(h.queue));
		queue_thaw(h.queue);
		EXPECT_ALL(&h, "W0+16 W16+16 W32");
		h_close(&h);
		conf = e_conf(*state);
	}
}

/* The same, dropped while the queue is being frozen. */
static void
drops_half_a_bio_while_freezing(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	struct bio *bio;

	conf.nr_requests = 2;
	conf.limits.max_sectors = 16;
	h_open(&h, &conf);
	h.hold = true;
	bio = refused(&h, REQ_OP_READ, 0, 80);
	queue_freeze(h.queue);
	queue_drop(h.queue, h.cpu, bio, -EIO, h.now);
	assert_false(queue_frozen(h.queue));
	assert_int_equal(h.nr_ended, 0);
	e_end(&h);
	assert_int_equal(h.nr_ended, 0);
	e_end(&h);
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h.error, -EIO);
	assert_true(queue_frozen(h.queue));
	queue_thaw(h.queue);
	h_close(&h);
}

/* An empty flush and FUA are held at the door as anything else. */
static void
refuses_flushes(void **state)
{
	struct queue_conf conf = e_conf(*state);
	struct harness h;
	struct bio *flush, *fua;

	conf.limits.write_cache = true;
	conf.depth = 4;
	h_open(&h, &conf);
	h.hold = true;
	flush = e_bio(&h, REQ_OP_FLUSH, 0, 0);
	h_submit(&h, flush);
	assert_int_equal(h.nr_held, 1);
	queue_freeze(h.queue);
	assert_false(queue_frozen(h.queue));
	flush = refused(&h, REQ_OP_FLUSH, 0, 0);
	fua = e_bio(&h, REQ_OP_WRITE, 0, 8);
	fua->flags |= REQ_FUA | REQ_PREFLUSH;
	h.nr_submitted++;
	assert_int_equal(h_try_submit(&h, fua), -EAGAIN);
	e_end(&h);
	assert_int_equal(h.nr_ended, 1);
	assert_true(queue_frozen(h.queue));
	queue_thaw(h.queue);
	assert_int_equal(h_try_submit(&h, flush), 0);
	assert_int_equal(h_try_submit(&h, fua), 0);
	h_finish(&h);
	h_close(&h);
}

static const struct example examples[] = { { "refuses bios until it is thawed",
					       refuses_while_freezing },
	{ "flushes the plug of a bio it refuses", flushes_the_plug },
	{ "is frozen when the elevator is empty", empties_the_elevator },
	{ "is frozen when the software queue is empty",
	    empties_the_software_queue },
	{ "wakes every cpu when it is thawed", wakes_all },
	{ "goes from none to mq-deadline and back", switches_elevators },
	{ "begins anew with a new elevator", begins_anew },
	{ "takes more and fewer requests", changes_nr_requests },
	{ "takes more and fewer requests with an elevator",
	    changes_nr_requests_of_an_elevator },
	{ "changes nothing when it refuses a change",
	    changes_nothing_when_it_refuses },
	{ "heeds new limits", changes_limits },
	{ "heeds new settings", changes_settings },
	{ "keeps its counts over a change", keeps_its_counts },
	{ "drops a bio that was refused", drops_a_refused_bio },
	{ "drops a bio of which half is on its way", drops_half_a_bio },
	{ "drops a bio of which half has ended", drops_what_has_ended },
	{ "is not frozen while it has half a bio", freezes_with_half_a_bio },
	{ "drops half a bio while it is being frozen",
	    drops_half_a_bio_while_freezing },
	{ "refuses flushes, too, while it is being frozen", refuses_flushes },
	{} };

int
main(void)
{
	return run_examples("freeze", examples);
}
