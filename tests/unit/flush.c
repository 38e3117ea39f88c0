/* SPDX-License-Identifier: MIT */
#include "pipe/harness.h"

static struct harness h;
static struct request *held[16];
static unsigned nr_held;

static int
hold_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)now;
	h_see(rq->hctx->queue->driver, rq);
	rq_moved(rq, cpu);
	held[nr_held++] = rq;
	return 0;
}

static const struct queue_ops hold_ops = { .queue_rq = hold_queue_rq };

/* The oldest request that the device has is done. */
static void
complete(int error)
{
	struct request *rq = held[0];

	memmove(held, held + 1, --nr_held * sizeof(held[0]));
	rq->error = error;
	rq_complete(rq, h.cpu, h.now);
}

static void
open_cached(bool fua)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));

	memset(&h, 0, sizeof(h));
	nr_held = 0;
	h.now = 1000000000;
	h.phys = 1ull << 40;
	conf.limits.write_cache = true;
	conf.limits.fua = fua;
	h.machine = machine_new(1, NULL, NULL);
	h.cpu = &h.machine->cpu[0];
	assert_int_equal(
	    queue_new(&h.queue, h.machine, &hold_ops, &h, &conf), 0);
	plug_init(&h.plug);
}

static void
close_cached(void)
{
	assert_int_equal(nr_held, 0);
	assert_int_equal(h.nr_ended, h.nr_submitted);
	assert_int_equal(queue_tags_in_use(h.queue), 0);
	assert_int_equal(h_stat(&h).in_flight, 0);
	queue_free(h.queue);
	machine_free(h.machine);
}

static void
write_with(unsigned flags, sector_t sector)
{
	struct bio *bio = h_bio(&h, REQ_OP_WRITE, sector);

	bio->flags = (uint16_t)flags;
	add_contig(&h, bio, 8);
	h_submit(&h, bio);
}

static void
one_flush_serves_all_that_wait(void **state)
{
	unsigned i;

	(void)state; /* 6.2: one device flush can serve several */
	open_cached(true);
	range(&h, REQ_OP_FLUSH, 0, 0);
	assert_int_equal(nr_held, 1);
	for (i = 0; i < 5; i++) /* these came too late for the first one */
		range(&h, REQ_OP_FLUSH, 0, 0);
	assert_int_equal(nr_held, 1);
	complete(0);
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(nr_held, 1);
	complete(0);
	assert_int_equal(h.nr_ended, 6);
	assert_int_equal(h_stat(&h).ios[STAT_FLUSH], 2);
	assert_int_equal(h_stat(&h).ios[STAT_WRITE], 6);
	close_cached();
}

static void
a_preflush_goes_before_the_data_and_a_postflush_after_it(void **state)
{
	(void)state;
	open_cached(false);
	write_with(REQ_PREFLUSH | REQ_FUA, 0);
	assert_int_equal(held[0]->op, REQ_OP_FLUSH);
	complete(0);
	assert_int_equal(held[0]->op, REQ_OP_WRITE);
	assert_int_equal(held[0]->flags & REQ_FUA, 0);
	complete(0);
	assert_int_equal(held[0]->op, REQ_OP_FLUSH);
	assert_int_equal(h.nr_ended, 0);
	complete(0);
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h_stat(&h).sectors[STAT_WRITE], 8);
	close_cached();
}

static void
a_flush_waits_for_data_that_will_want_one_too(void **state)
{
	(void)state; /* blk_kick_flush(): they share it */
	open_cached(false);
	write_with(REQ_FUA, 0);
	range(&h, REQ_OP_FLUSH, 0, 0);
	assert_int_equal(nr_held, 1);
	complete(0); /* the data: now both wait for one flush */
	assert_int_equal(nr_held, 1);
	assert_int_equal(held[0]->op, REQ_OP_FLUSH);
	complete(0);
	assert_int_equal(h.nr_ended, 2);
	assert_int_equal(h_stat(&h).ios[STAT_FLUSH], 1);
	close_cached();
}

static void
a_failed_flush_fails_those_that_it_served(void **state)
{
	(void)state;
	open_cached(true);
	range(&h, REQ_OP_FLUSH, 0, 0);
	complete(-EIO);
	assert_int_equal(h.error, -EIO);
	h.error = 0;
	write_with(REQ_PREFLUSH, 0); /* its data is not sent */
	complete(-EIO);
	assert_int_equal(h.error, -EIO);
	assert_int_equal(nr_held, 0);
	close_cached();
}

static void
fua_is_left_to_a_device_that_has_it(void **state)
{
	(void)state;
	open_cached(true);
	write_with(REQ_FUA, 0);
	assert_int_equal(nr_held, 1);
	assert_int_not_equal(held[0]->flags & REQ_FUA, 0);
	complete(0);
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h_stat(&h).ios[STAT_FLUSH], 0);
	close_cached();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_flush_serves_all_that_wait),
		cmocka_unit_test(
		    a_preflush_goes_before_the_data_and_a_postflush_after_it),
		cmocka_unit_test(a_flush_waits_for_data_that_will_want_one_too),
		cmocka_unit_test(a_failed_flush_fails_those_that_it_served),
		cmocka_unit_test(fua_is_left_to_a_device_that_has_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
