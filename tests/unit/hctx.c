/* SPDX-License-Identifier: MIT */
/* Hardware queues: a busy driver, batches, which cpu has which. */
#include "unit/holding.h"

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

/* blk_mq_stop_hw_queues(), blk_mq_start_stopped_hw_queues() */
static void
offers_nothing_before_the_time_the_driver_said(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	uint64_t busy_until, until;

	(void)state;
	h_open(&h, &conf);
	h.busy = true;
	rw(&h, REQ_OP_WRITE, 0, 8);
	/* looked at after BLK_MQ_RESOURCE_DELAY, for it was busy before */
	busy_until = cpu_run(h.cpu, h.now);
	until = h.now + 20 * BLK_MQ_RESOURCE_DELAY;
	hctx_stop(h.queue->hctx[0], until, h.now);
	h.nr_busy = 0;
	rw(&h, REQ_OP_WRITE, 100, 8);
	queue_run(h.queue, h.cpu, h.now);
	assert_int_equal(cpu_run(h.cpu, h.now), busy_until);
	h.now = busy_until;
	assert_int_equal(cpu_run(h.cpu, h.now), until);
	assert_int_equal(cpu_run(h.cpu, until - 1), until);
	assert_int_equal(h.nr_busy, 0);
	h.busy = false;
	h.now = until;
	assert_int_equal(cpu_run(h.cpu, h.now), CPU_NO_DEADLINE);
	assert_int_equal(h.nr_seen, 2);
	assert_int_equal(h.seen[0].sector, 0);
	h_close(&h);
}

static void
goes_on_when_the_driver_says_so_or_at_the_earlier_time(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	uint64_t until;
	struct hctx *hctx;

	(void)state;
	h_open(&h, &conf);
	hctx = h.queue->hctx[0];
	until = h.now + 50000;
	hctx_stop(hctx, until, h.now);
	hctx_stop(hctx, until + 9000, h.now);
	rw(&h, REQ_OP_WRITE, 0, 8);
	assert_int_equal(cpu_run(h.cpu, h.now), until);
	hctx_stop(hctx, until - 9000, h.now);
	rw(&h, REQ_OP_WRITE, 100, 8);
	assert_int_equal(cpu_run(h.cpu, h.now), until - 9000);
	assert_int_equal(h.nr_seen, 0);
	queue_restart(h.queue);
	assert_int_equal(cpu_run(h.cpu, h.now), CPU_NO_DEADLINE);
	assert_int_equal(h.nr_seen, 2);
	hctx_stop(hctx, h.now + 5000, h.now);
	h.now += 6000; /* that time has come, and counts no more */
	until = h.now + 50000;
	hctx_stop(hctx, until, h.now);
	rw(&h, REQ_OP_WRITE, 200, 8);
	assert_int_equal(cpu_run(h.cpu, h.now), until);
	assert_int_equal(h.nr_seen, 2);
	h.now = until;
	rw(&h, REQ_OP_WRITE, 300, 8);
	cpu_run(h.cpu, h.now);
	assert_int_equal(h.nr_seen, 4);
	h_close(&h);
}

static unsigned nr_prepared;
static struct {
	sector_t sector;
	bool next;
} prepared[8];

static void
note_prepare(const struct request *rq, bool next)
{
	assert_false(rq->rq_flags & RQF_STARTED);
	assert_in_range(nr_prepared, 0, 7);
	prepared[nr_prepared].sector = rq_sector(rq);
	prepared[nr_prepared++].next = next;
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
	assert_int_equal(nr_prepared, 4 + 3);
	for (i = 0; i < 4; i++) {
		assert_int_equal(prepared[i].sector, h.seen[i].sector);
		assert_false(prepared[i].next);
	}
	for (i = 0; i < 3; i++) {
		assert_int_equal(prepared[4 + i].sector, h.seen[i + 1].sector);
		assert_true(prepared[4 + i].next);
	}
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loses_nothing_when_the_driver_is_busy),
		cmocka_unit_test(
		    offers_nothing_before_the_time_the_driver_said),
		cmocka_unit_test(
		    goes_on_when_the_driver_says_so_or_at_the_earlier_time),
		cmocka_unit_test(runs_a_queue_again_when_a_request_of_it_ends),
		cmocka_unit_test(tells_the_driver_what_comes_next_in_a_batch),
		cmocka_unit_test(spreads_cpus_over_hardware_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
