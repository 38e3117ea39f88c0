/* SPDX-License-Identifier: MIT */
/* The path of bios and requests: tags, a busy driver, several cpus. */
#include "pipe/harness.h"

static struct harness h;

/* A driver that holds what it gets until told to let go. */
static struct request *held[64];
static unsigned nr_held;

static int
hold_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)now;
	rq_moved(rq, cpu);
	held[nr_held++] = rq;
	return 0;
}

static void
let_go(struct cpu *cpu, uint64_t now)
{
	struct request *rq = held[0];

	memmove(held, held + 1, --nr_held * sizeof(held[0]));
	rq_complete(rq, cpu, now);
}

static const struct queue_ops hold_ops = { .queue_rq = hold_queue_rq };

static void
open_holding(unsigned depth, unsigned nr_cpus, const char *kernel)
{
	struct queue_conf conf = h_conf(profile_find(kernel));

	memset(&h, 0, sizeof(h));
	nr_held = 0;
	conf.depth = depth;
	h.machine = machine_new(nr_cpus, NULL, NULL);
	h.cpu = &h.machine->cpu[0];
	h.phys = 1ull << 40;
	assert_int_equal(
	    queue_new(&h.queue, h.machine, &hold_ops, &h, &conf), 0);
	plug_init(&h.plug);
}

static void
close_holding(void)
{
	while (nr_held > 0)
		let_go(held[0]->ctx->cpu, h.now);
	assert_int_equal(h.nr_ended, h.nr_submitted);
	assert_int_equal(queue_tags_in_use(h.queue), 0);
	queue_free(h.queue);
	machine_free(h.machine);
}

static struct bio *
write_bio(sector_t sector, uint64_t nr)
{
	struct bio *bio = h_bio(&h, REQ_OP_WRITE, sector);

	add_contig(&h, bio, nr);
	h.nr_submitted++;
	return bio;
}

static void
gives_a_bio_back_when_no_tag_is_free_and_takes_it_later(void **state)
{
	struct bio *bio;

	(void)state;
	open_holding(1, 1, "6.12");
	assert_int_equal(h_try_submit(&h, write_bio(0, 8)), 0);
	bio = write_bio(100, 8);
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_false(cpu_tag_freed(h.cpu));
	let_go(h.cpu, h.now);
	assert_true(cpu_tag_freed(h.cpu));
	assert_false(cpu_tag_freed(h.cpu));
	assert_int_equal(h_try_submit(&h, bio), 0);
	assert_int_equal(nr_held, 1);
	close_holding();
}

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

static unsigned woken;

static void
on_wake(void *arg, unsigned cpu)
{
	(void)arg;
	woken |= 1u << cpu;
}

static void
wakes_the_cpu_that_waits_for_a_tag_of_a_shared_hardware_queue(void **state)
{
	struct bio *bio;

	(void)state; /* DESIGN, Threads */
	open_holding(1, 2, "6.12");
	h.machine->wake = on_wake;
	woken = 0;
	assert_int_equal(h_try_submit(&h, write_bio(0, 8)), 0);
	bio = write_bio(100, 8);
	h.cpu = &h.machine->cpu[1];
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(woken, 0);
	let_go(&h.machine->cpu[0], h.now);
	assert_int_equal(woken, 2);
	assert_int_equal(h_try_submit(&h, bio), 0);
	close_holding();
}

static void
ends_a_request_on_the_cpu_that_submitted_it(void **state)
{
	(void)state; /* DESIGN, Threads: completion on the submitting CPU */
	open_holding(4, 2, "6.12");
	h.machine->wake = on_wake;
	woken = 0;
	assert_int_equal(h_try_submit(&h, write_bio(0, 8)), 0);
	let_go(&h.machine->cpu[1], h.now); /* the other one completes it */
	assert_int_equal(h.nr_ended, 0);
	assert_int_equal(woken, 1);
	cpu_run(&h.machine->cpu[1], h.now);
	assert_int_equal(h.nr_ended, 0);
	cpu_run(&h.machine->cpu[0], h.now);
	assert_int_equal(h.nr_ended, 1);
	close_holding();
}

static void
loses_nothing_when_the_driver_is_busy(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	unsigned i;

	(void)state; /* 5: the dispatch list first, then the software queue */
	h_open(&h, &conf);
	h.busy = true;
	for (i = 0; i < 20; i++)
		rw(&h, REQ_OP_WRITE, i * 100, 8);
	assert_int_equal(h.nr_seen, 0);
	assert_int_equal(atomic_load(&h.queue->hctx[0]->nr_waiting), 20);
	h.busy = false;
	queue_run(h.queue, h.cpu, h.now);
	assert_int_equal(h.nr_seen, 20);
	for (i = 0; i < 20; i++) /* in their order */
		assert_int_equal(h.seen[i].sector, i * 100);
	assert_int_equal(atomic_load(&h.queue->hctx[0]->nr_waiting), 0);
	h_close(&h);
}

static void
runs_a_queue_again_when_a_request_of_it_ends(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));

	(void)state; /* blk_mq_sched_restart() */
	h_open(&h, &conf);
	h.busy = true;
	rw(&h, REQ_OP_WRITE, 0, 8);
	h.busy = false;
	rw(&h, REQ_OP_WRITE, 100, 8); /* takes what waits with it */
	cpu_run(h.cpu, h.now);
	assert_int_equal(h.nr_ended, 2);
	h_close(&h);
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

static unsigned nr_prepared;
static sector_t prepared[8];

static void
note_prepare(const struct request *rq)
{
	assert_false(rq->rq_flags & RQF_STARTED);
	prepared[nr_prepared++] = rq_sector(rq);
}

static void
tells_the_driver_what_comes_next_in_a_batch(void **state)
{
	static const struct queue_ops ops = {
		.queue_rq = h_queue_rq,
		.commit = h_commit,
		.prepare = note_prepare,
	};
	struct queue_conf conf = h_conf(profile_find("6.12"));
	unsigned i;

	(void)state;
	h_open(&h, &conf);
	queue_free(h.queue);
	assert_int_equal(queue_new(&h.queue, h.machine, &ops, &h, &conf), 0);
	nr_prepared = 0;
	h_plug(&h);
	for (i = 0; i < 4; i++)
		rw(&h, REQ_OP_READ, i * 100, 8);
	h_finish(&h);
	assert_int_equal(nr_prepared, 3);
	for (i = 0; i < 3; i++)
		assert_int_equal(prepared[i], h.seen[i + 1].sector);
	h_close(&h);
}

static void
spreads_cpus_over_hardware_queues(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	unsigned i;

	(void)state; /* DESIGN, Threads: loop i to hctx i mod submit_queues */
	memset(&h, 0, sizeof(h));
	conf.nr_hw_queues = 2;
	h.machine = machine_new(5, NULL, NULL);
	assert_int_equal(queue_new(&h.queue, h.machine, &h_ops, &h, &conf), 0);
	for (i = 0; i < 5; i++)
		assert_int_equal(queue_ctx(h.queue, i)->hctx->index, i % 2);
	queue_free(h.queue);
	machine_free(h.machine);
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
		cmocka_unit_test(is_not_frozen_in_the_middle_of_a_bio),
		cmocka_unit_test(
		    gives_a_bio_back_when_no_tag_is_free_and_takes_it_later),
		cmocka_unit_test(goes_on_in_the_middle_of_a_split_bio),
		cmocka_unit_test(
		    wakes_the_cpu_that_waits_for_a_tag_of_a_shared_hardware_queue),
		cmocka_unit_test(ends_a_request_on_the_cpu_that_submitted_it),
		cmocka_unit_test(loses_nothing_when_the_driver_is_busy),
		cmocka_unit_test(runs_a_queue_again_when_a_request_of_it_ends),
		cmocka_unit_test(
		    ends_flushes_and_strips_fua_without_a_volatile_cache),
		cmocka_unit_test(refuses_what_the_device_does_not_offer),
		cmocka_unit_test(
		    neither_splits_merges_nor_counts_on_the_bio_path),
		cmocka_unit_test(tells_the_driver_what_comes_next_in_a_batch),
		cmocka_unit_test(spreads_cpus_over_hardware_queues),
		cmocka_unit_test(refuses_a_configuration_that_makes_no_sense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
