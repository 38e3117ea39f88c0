/* SPDX-License-Identifier: MIT */
#include "pipe/harness.h"

#define DELAY 1000000u

static struct harness h;
static uint64_t delay;

static int
timer_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct harness *hh = rq->hctx->queue->driver;

	(void)now;
	h_see(hh, rq);
	rq_moved(rq, cpu);
	rq_complete_after(rq, cpu, delay);
	return 0;
}

static int
softirq_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct harness *hh = rq->hctx->queue->driver;

	(void)now;
	h_see(hh, rq);
	rq_complete_softirq(rq, cpu);
	return 0;
}

static void
open_with(int (*queue_rq)(struct request *, struct cpu *, uint64_t))
{
	static struct queue_ops ops;
	struct queue_conf conf = h_conf(profile_find("6.12"));

	ops = (struct queue_ops){ .queue_rq = queue_rq };
	memset(&h, 0, sizeof(h));
	h.now = 1000;
	h.phys = 1ull << 40;
	h.machine = machine_new(1, NULL, NULL);
	h.cpu = &h.machine->cpu[0];
	assert_int_equal(queue_new(&h.queue, h.machine, &ops, &h, &conf), 0);
	plug_init(&h.plug);
}

static void
ends_each_request_its_own_time_after_it_was_issued(void **state)
{
	uint64_t first, second;
	unsigned i;

	(void)state; /* null_blk 1.3: a timer a request, they overlap */
	open_with(timer_queue_rq);
	delay = DELAY;
	for (i = 0; i < 64; i++)
		rw(&h, REQ_OP_READ, i * 100, 8);
	first = cpu_run(h.cpu, 10000);
	assert_int_equal(first, 10000 + DELAY);
	rw(&h, REQ_OP_READ, 90000, 8);
	assert_int_equal(cpu_run(h.cpu, 20000), first);
	assert_int_equal(cpu_run(h.cpu, first - 1), first);
	assert_int_equal(h.nr_ended, 0);
	second = cpu_run(h.cpu, first);
	assert_int_equal(h.nr_ended, 64);
	assert_int_equal(second, 20000 + DELAY);
	assert_int_equal(cpu_run(h.cpu, second), CPU_NO_DEADLINE);
	assert_int_equal(h.nr_ended, 65);
	queue_free(h.queue);
	machine_free(h.machine);
}

static void
ends_softirq_requests_at_the_next_run(void **state)
{
	(void)state;
	open_with(softirq_queue_rq);
	rw(&h, REQ_OP_READ, 0, 8);
	assert_int_equal(h.nr_ended, 0);
	assert_int_equal(cpu_run(h.cpu, 2000), CPU_NO_DEADLINE);
	assert_int_equal(h.nr_ended, 1);
	queue_free(h.queue);
	machine_free(h.machine);
}

static void
ends_a_request_without_delay_in_the_same_run(void **state)
{
	(void)state;
	open_with(timer_queue_rq);
	delay = 0;
	rw(&h, REQ_OP_READ, 0, 8);
	assert_int_equal(cpu_run(h.cpu, 2000), CPU_NO_DEADLINE);
	assert_int_equal(h.nr_ended, 1);
	queue_free(h.queue);
	machine_free(h.machine);
}

static bool is_busy;

static int
busy_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	if (is_busy)
		return -EBUSY;
	h_see(rq->hctx->queue->driver, rq);
	rq_moved(rq, cpu);
	rq_complete(rq, cpu, now);
	return 0;
}

static void
comes_back_to_a_driver_that_was_busy_with_nothing_in_flight(void **state)
{
	uint64_t next;

	(void)
	    state; /* BLK_MQ_RESOURCE_DELAY: no request ends, so none reruns */
	open_with(busy_queue_rq);
	is_busy = true;
	rw(&h, REQ_OP_READ, 0, 8);
	next = cpu_run(h.cpu, h.now);
	assert_true(next > h.now);
	assert_true(next <= h.now + BLK_MQ_RESOURCE_DELAY);
	next = cpu_run(h.cpu, next); /* still busy: later again */
	assert_int_not_equal(next, CPU_NO_DEADLINE);
	is_busy = false;
	assert_int_equal(cpu_run(h.cpu, next), CPU_NO_DEADLINE);
	assert_int_equal(h.nr_ended, 1);
	queue_free(h.queue);
	machine_free(h.machine);
}

static void
ends_what_waits_when_told_to(void **state)
{
	(void)state; /* N162 */
	open_with(timer_queue_rq);
	delay = DELAY;
	rw(&h, REQ_OP_READ, 0, 8);
	rw(&h, REQ_OP_READ, 100, 8);
	cpu_run(h.cpu, 1000);
	assert_int_equal(h.nr_ended, 0);
	cpu_expire(h.cpu, -ESHUTDOWN, 2000);
	assert_int_equal(h.nr_ended, 2);
	assert_int_equal(h.error, -ESHUTDOWN);
	assert_int_equal(cpu_run(h.cpu, 3000), CPU_NO_DEADLINE);
	queue_free(h.queue);
	machine_free(h.machine);
}

static void
a_delay_beyond_all_time_is_not_an_early_end(void **state)
{
	(void)state;
	open_with(timer_queue_rq);
	delay = UINT64_MAX;
	rw(&h, REQ_OP_READ, 0, 8);
	cpu_run(h.cpu, 1000);
	assert_int_equal(h.nr_ended, 0);
	cpu_expire(h.cpu, -EIO, 1000);
	queue_free(h.queue);
	machine_free(h.machine);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    ends_each_request_its_own_time_after_it_was_issued),
		cmocka_unit_test(ends_softirq_requests_at_the_next_run),
		cmocka_unit_test(ends_a_request_without_delay_in_the_same_run),
		cmocka_unit_test(
		    comes_back_to_a_driver_that_was_busy_with_nothing_in_flight),
		cmocka_unit_test(ends_what_waits_when_told_to),
		cmocka_unit_test(a_delay_beyond_all_time_is_not_an_early_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
