/* SPDX-License-Identifier: MIT */
#include "pipe/harness.h"

static struct harness h;

/* The order in which the driver sees four requests that never merge. */
static void
order_of(const char *kernel, sector_t out[4])
{
	static const sector_t in[] = { 300, 100, 400, 200 };
	struct queue_conf conf = h_conf(profile_find(kernel));
	unsigned i;

	h_open(&h, &conf);
	h_plug(&h);
	for (i = 0; i < 4; i++)
		rw(&h, REQ_OP_WRITE, in[i], 8);
	h_finish(&h);
	assert_int_equal(h.nr_seen, 4);
	for (i = 0; i < 4; i++)
		out[i] = h.seen[i].sector;
	h_close(&h);
}

static void
hands_on_in_the_order_of_its_age(void **state)
{
	static const struct {
		const char *kernel;
		sector_t order[4];
	} want[] = {
		{ "4.14", { 100, 200, 300, 400 } }, /* sorted */
		{ "5.4", { 300, 100, 400, 200 } },
		{ "6.1", { 200, 400, 100, 300 } }, /* newest first */
		{ "6.12", { 300, 100, 400, 200 } },
	};
	sector_t got[4];
	unsigned i;

	(void)state; /* 4.1 */
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		order_of(want[i].kernel, got);
		assert_memory_equal(got, want[i].order, sizeof(got));
	}
}

static void
keeps_its_order_when_the_task_must_sleep_for_a_tag(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.1"));
	unsigned i;

	(void)state; /* 4.1: from_schedule goes the grouped way */
	conf.depth = 4;
	h_open(&h, &conf);
	h_plug(&h);
	for (i = 0; i < 5; i++)
		rw(&h, REQ_OP_WRITE, i * 100, 8);
	h_finish(&h);
	for (i = 0; i < 5; i++)
		assert_int_equal(h.seen[i].sector, i * 100);
	h_close(&h);
}

static void
holds_one_request_a_queue_where_plugging_is_limited(void **state)
{
	struct queue_conf conf = h_conf(profile_find("4.14"));

	(void)state; /* 4.1: several hardware queues */
	conf.nr_hw_queues = 2;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 8);
	assert_int_equal(h.nr_seen, 0);
	rw(&h, REQ_OP_WRITE, 8, 8); /* merges with the one held */
	assert_int_equal(h.nr_seen, 0);
	rw(&h, REQ_OP_WRITE, 100, 8); /* pushes it out */
	assert_int_equal(h.nr_seen, 1);
	assert_int_equal(h.seen[0].nr_sectors, 16);
	h_flush(&h);
	assert_int_equal(h.nr_seen, 2);
	h_close(&h);
}

/* A second queue of the same host, driver and harness. */
static struct queue *
second_queue(const struct queue_conf *conf)
{
	struct queue *q;

	assert_int_equal(queue_new(&q, h.machine, &h_ops, &h, conf), 0);
	return q;
}

static void
submit_to(struct queue *q, sector_t sector)
{
	struct queue *own = h.queue;

	h.queue = q;
	rw(&h, REQ_OP_WRITE, sector, 8);
	h.queue = own;
}

static void
looks_past_other_queues_as_its_age_does(void **state)
{
	static const struct {
		const char *kernel;
		unsigned requests; /* of A0 B0 A8 A100 B8 A108 */
	} want[] = {
		{ "4.14", 3 }, /* A[0,16) B[0,16) A[100,16) */
		{ "5.4", 3 },
		/* 6.1: A8 is tried with A0 (nearest): yes; B8 with B0: yes;
		 * A108 with A100, the newest: yes */
		{ "6.1", 3 },
		/* 6.12: A8 goes to the first A from the head: yes; B8 to B0;
		 * A108 is tried with the tail, A100: yes */
		{ "6.12", 3 },
	};
	unsigned i;

	(void)state; /* 3.6 */
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		struct queue_conf conf = h_conf(profile_find(want[i].kernel));
		struct queue *b;

		h_open(&h, &conf);
		b = second_queue(&conf);
		h_plug(&h);
		submit_to(h.queue, 0);
		submit_to(b, 0);
		assert_true(h.plug.multiple_queues);
		submit_to(h.queue, 8);
		submit_to(h.queue, 100);
		submit_to(b, 8);
		submit_to(h.queue, 108);
		h_finish(&h);
		assert_int_equal(h.nr_seen, want[i].requests);
		assert_false(h.plug.multiple_queues);
		queue_free(b);
		h_close(&h);
	}
}

static void
searches_several_queues_from_the_head_since_6_12(void **state)
{
	unsigned i;

	(void)state; /* 3.6: A0 A100 B0, then A108: 6.1 nearest, 6.12 first */
	for (i = 0; i < 2; i++) {
		struct queue_conf conf =
		    h_conf(profile_find(i == 0 ? "6.1" : "6.12"));
		struct queue *b;
		unsigned seen;

		h_open(&h, &conf);
		b = second_queue(&conf);
		h_plug(&h);
		submit_to(h.queue, 0);
		submit_to(h.queue, 100);
		submit_to(b, 0);
		submit_to(h.queue, 108);
		h_finish(&h);
		seen = h.nr_seen;
		queue_free(b);
		h_close(&h);
		assert_int_equal(seen, i == 0 ? 3 : 4);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hands_on_in_the_order_of_its_age),
		cmocka_unit_test(
		    keeps_its_order_when_the_task_must_sleep_for_a_tag),
		cmocka_unit_test(
		    holds_one_request_a_queue_where_plugging_is_limited),
		cmocka_unit_test(looks_past_other_queues_as_its_age_does),
		cmocka_unit_test(
		    searches_several_queues_from_the_head_since_6_12),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
