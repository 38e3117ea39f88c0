/* SPDX-License-Identifier: MIT */
/* The path of a bio: split, refused, ended at once; freezing. */
#include "unit/holding.h"

static void
goes_on_in_the_middle_of_a_split_bio(void **state)
{
	struct bio *bio;
	struct queue_stat st;

	(void)state; /* 2.5: pieces in ascending order, none twice */
	open_holding(1, 1, "6.12");
	bio = write_bio(0, 2560 * 2 + 8);
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(rq_sector(held[0]), 0);
	let_go(h.cpu, h.now);
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(rq_sector(held[0]), 2560);
	let_go(h.cpu, h.now);
	assert_int_equal(h.nr_ended, 0);
	assert_int_equal(h_try_submit(&h, bio), 0);
	assert_int_equal(rq_sector(held[0]), 5120);
	assert_int_equal(held[0]->bytes, 8 * 512);
	let_go(h.cpu, h.now);
	assert_int_equal(h.nr_ended, 1);
	stat_read(h.queue, &st, h.now);
	assert_int_equal(st.ios[STAT_WRITE], 3);
	assert_int_equal(st.sectors[STAT_WRITE], 5128);
	assert_int_equal(st.splits[SPLIT_SIZE], 2);
	close_holding();
}

static void
ends_flushes_and_strips_fua_without_a_volatile_cache(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct bio *bio;

	(void)state; /* 3.7 */
	h_open(&h, &conf);
	h_submit(&h, h_bio(&h, REQ_OP_FLUSH, 0));
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h.nr_seen, 0);
	bio = h_bio(&h, REQ_OP_WRITE, 0);
	bio->flags = REQ_FUA;
	add_contig(&h, bio, 8);
	h_submit(&h, bio);
	assert_int_equal(h.nr_seen, 1);
	assert_int_equal(h.seen[0].flags & REQ_FUA, 0);
	h_close(&h);
}

static void
refuses_what_the_device_does_not_offer(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));

	(void)state; /* 2.1: max_discard_sectors 0 = no discard */
	h_open(&h, &conf);
	range(&h, REQ_OP_DISCARD, 0, 8);
	assert_int_equal(h.error, -EOPNOTSUPP);
	h.error = 0;
	range(&h, REQ_OP_WRITE_ZEROES, 0, 8);
	assert_int_equal(h.error, -EOPNOTSUPP);
	assert_int_equal(h.nr_seen, 0);
	h_close(&h);
}

static void
neither_splits_merges_nor_counts_on_the_bio_path(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.1"));
	struct queue_stat st;

	(void)state; /* null_blk's queue_mode=0 */
	conf.bio_based = true;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 4000);
	rw(&h, REQ_OP_WRITE, 4000, 8);
	assert_int_equal(h.nr_seen, 2);
	assert_int_equal(h.seen[0].nr_sectors, 4000);
	h_finish(&h);
	stat_read(h.queue, &st, h.now);
	assert_int_equal(st.ios[STAT_WRITE], 0);
	assert_int_equal(st.merges[STAT_WRITE], 0);
	h_close(&h);
}

static void
refuses_a_configuration_that_makes_no_sense(void **state)
{
	struct queue_conf good = h_conf(profile_find("6.12")), conf;
	struct machine *m = machine_new(1, NULL, NULL);
	struct queue *q = NULL;

	(void)state;
	conf = good;
	conf.depth = 0;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
	conf = good;
	conf.depth = BLK_MAX_DEPTH + 1;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
	conf = good;
	conf.nr_hw_queues = 0;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
	conf = good;
	conf.nr_requests = conf.depth + 1;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
	assert_null(q);
	queue_free(NULL);
	machine_free(m);
}

static bool freezes_early;

/* A piece has ended, the next one is to come. */
static void
look_at_the_freeze(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	(void)cpu;
	(void)now;
	if (queue_freezing(hctx->queue) && h.nr_ended < h.nr_submitted)
		freezes_early |= queue_frozen(hctx->queue);
}

static void
is_not_frozen_in_the_middle_of_a_bio(void **state)
{
	static const struct queue_ops ops = {
		.queue_rq = h_queue_rq,
		.commit = look_at_the_freeze,
	};
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct bio *bio;

	(void)state;
	conf.depth = 1;
	conf.limits.max_sectors = 8;
	h_open(&h, &conf);
	queue_free(h.queue);
	assert_int_equal(queue_new(&h.queue, h.machine, &ops, &h, &conf), 0);
	h.hold = true;
	rw(&h, REQ_OP_WRITE, 1000, 8);
	bio = h_bio(&h, REQ_OP_WRITE, 0);
	add_contig(&h, bio, 24); /* three pieces */
	h.nr_submitted++;
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	queue_freeze(h.queue);
	assert_false(queue_frozen(h.queue));
	h.hold = false;
	rq_complete(h.held[0], h.cpu, h.now);
	h.nr_held = 0;
	assert_false(queue_frozen(h.queue));
	freezes_early = false;
	assert_int_equal(h_try_submit(&h, bio), 0); /* it is let through */
	assert_int_equal(h.nr_ended, 2);
	assert_false(freezes_early);
	assert_true(queue_frozen(h.queue));
	assert_true(queue_frozen(h.queue)); /* and stays so */
	queue_thaw(h.queue);
	h_close(&h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goes_on_in_the_middle_of_a_split_bio),
		cmocka_unit_test(
		    ends_flushes_and_strips_fua_without_a_volatile_cache),
		cmocka_unit_test(refuses_what_the_device_does_not_offer),
		cmocka_unit_test(
		    neither_splits_merges_nor_counts_on_the_bio_path),
		cmocka_unit_test(refuses_a_configuration_that_makes_no_sense),
		cmocka_unit_test(is_not_frozen_in_the_middle_of_a_bio),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
