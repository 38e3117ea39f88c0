/* SPDX-License-Identifier: MIT */
#include "pipe/harness.h"

static void
names_every_scheduler_and_explains_it(void **state)
{
	static const char *names[] = { "none", "mq-deadline", "kyber", "bfq" };
	unsigned i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		const struct elevator_type *e = elevator_find(names[i]);

		assert_non_null(e);
		assert_string_equal(e->name, names[i]);
		assert_true(strlen(e->help) > 10);
	}
	assert_true(elevator_find("none")->available);
	assert_true(elevator_find("mq-deadline")->available);
	assert_false(elevator_find("kyber")->available);
	assert_false(elevator_find("bfq")->available);
	assert_null(elevator_find("cfq"));
	assert_null(elevator_find(""));
}

static struct harness h;

static void
open_with(const char *kernel, unsigned nomerges)
{
	struct queue_conf conf = h_conf(profile_find(kernel));

	conf.elevator = elevator_find("mq-deadline");
	conf.nomerges = nomerges;
	conf.depth = 1;
	conf.nr_requests = 64;
	h_open(&h, &conf);
	/* the driver has one request, and one waits for its tag */
	h.hold = true;
	rw(&h, REQ_OP_READ, 1000000, 8);
	rw(&h, REQ_OP_READ, 2000000, 8);
	assert_int_equal(atomic_load(&h.queue->nr_queued), 0);
}

static void
finish_with(uint64_t ios, uint64_t merges)
{
	h_finish(&h);
	expect_counts(&h, STAT_WRITE, ios, merges);
	h_close(&h);
}

static void
joins_what_has_become_adjacent(void **state)
{
	(void)state; /* T19 */
	open_with("6.12", 0);
	rw(&h, REQ_OP_WRITE, 0, 8);
	rw(&h, REQ_OP_WRITE, 16, 8);
	rw(&h, REQ_OP_WRITE, 8, 8);
	finish_with(1, 2);
	open_with("5.4", 0);
	rw(&h, REQ_OP_WRITE, 0, 8);
	rw(&h, REQ_OP_WRITE, 16, 8);
	rw(&h, REQ_OP_WRITE, 8, 8);
	finish_with(1, 1);
}

static void
asks_only_the_one_hit_cache_with_nomerges_1(void **state)
{
	(void)state; /* 3.6 */
	open_with("6.12", 1);
	rw(&h, REQ_OP_WRITE, 0, 8);
	rw(&h, REQ_OP_WRITE, 100, 8);
	rw(&h, REQ_OP_WRITE, 8, 8);   /* the cache has the first one */
	rw(&h, REQ_OP_WRITE, 108, 8); /* and never saw this */
	finish_with(3, 1);
	open_with("6.12", 2);
	rw(&h, REQ_OP_WRITE, 0, 8);
	rw(&h, REQ_OP_WRITE, 8, 8);
	finish_with(2, 0);
}

static void
chains_merges_when_a_request_is_inserted(void **state)
{
	(void)state; /* elv_attempt_insert_merge(): 16 joins 8, and they 0 */
	open_with("6.12", 0);
	rw(&h, REQ_OP_WRITE, 500, 8); /* the cache has this */
	h_plug(&h); /* where a read keeps each apart from the one before */
	rw(&h, REQ_OP_WRITE, 8, 8);
	rw(&h, REQ_OP_READ, 100, 8);
	rw(&h, REQ_OP_WRITE, 0, 8);
	rw(&h, REQ_OP_READ, 300, 8);
	rw(&h, REQ_OP_WRITE, 16, 8);
	h_flush(&h);
	finish_with(2, 2);
}

static void
leaves_a_busy_driver_alone_for_a_while(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));

	(void)state; /* nothing is in flight, so no end brings it back */
	conf.elevator = elevator_find("mq-deadline");
	h_open(&h, &conf);
	h.busy = true;
	rw(&h, REQ_OP_WRITE, 0, 8);
	assert_int_not_equal(cpu_run(h.cpu, h.now), CPU_NO_DEADLINE);
	assert_in_range(h.nr_busy, 1, 3);
	h_close(&h);
}

static int
timer_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)now;
	rq_moved(rq, cpu);
	rq_complete_after(rq, cpu, 1000);
	return 0;
}

static void
what_it_held_can_wait_for_a_timer(void **state)
{
	static const struct queue_ops ops = { .queue_rq = timer_queue_rq };
	struct queue_conf conf = h_conf(profile_find("6.12"));
	sector_t s;

	(void)state; /* a request has one place for both */
	conf.elevator = elevator_find("mq-deadline");
	h_open(&h, &conf);
	queue_free(h.queue);
	assert_int_equal(queue_new(&h.queue, h.machine, &ops, &h, &conf), 0);
	h_plug(&h);
	for (s = 0; s < 20; s++)
		rw(&h, REQ_OP_WRITE, 1000 * s, 8);
	h_finish(&h);
	expect_counts(&h, STAT_WRITE, 20, 0);
	h_close(&h);
}

/* Two cpus: what one of them submitted ends there, whatever it merged with. */
static void
a_bio_ends_on_its_own_cpu(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct bio *bio[2];
	unsigned i;

	(void)state;
	conf.elevator = elevator_find("mq-deadline");
	conf.depth = 1;
	conf.nr_requests = 64;
	h_open(&h, &conf);
	queue_free(h.queue);
	machine_free(h.machine);
	h.machine = machine_new(2, NULL, NULL);
	h.cpu = &h.machine->cpu[0];
	assert_int_equal(queue_new(&h.queue, h.machine, &h_ops, &h, &conf), 0);
	h.hold = true;
	rw(&h, REQ_OP_READ, 1000000, 8);
	rw(&h, REQ_OP_READ, 2000000, 8);
	for (i = 0; i < 2; i++) {
		bio[i] = h_bio(&h, REQ_OP_WRITE, 8 * i);
		add_contig(&h, bio[i], 8);
		h.nr_submitted++;
		assert_int_equal(queue_submit(h.queue, &h.machine->cpu[i], NULL,
				     bio[i], h.now),
		    0);
	}
	h.hold = false;
	rq_complete(h.held[0], h.cpu, h.now);
	h.nr_held = 0;
	cpu_run(h.cpu, h.now); /* the read, and the two writes in one */
	assert_int_equal(h.nr_seen, 3);
	assert_int_equal(h.seen[2].nr_bios, 2);
	assert_int_equal(h.nr_ended, 3);
	cpu_run(&h.machine->cpu[1], h.now);
	assert_int_equal(h.nr_ended, 4);
	h_close(&h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joins_what_has_become_adjacent),
		cmocka_unit_test(asks_only_the_one_hit_cache_with_nomerges_1),
		cmocka_unit_test(chains_merges_when_a_request_is_inserted),
		cmocka_unit_test(leaves_a_busy_driver_alone_for_a_while),
		cmocka_unit_test(what_it_held_can_wait_for_a_timer),
		cmocka_unit_test(a_bio_ends_on_its_own_cpu),
		cmocka_unit_test(names_every_scheduler_and_explains_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
