/* SPDX-License-Identifier: MIT */
/* mq-deadline by itself (section 5): requests in, requests out. */
#include "pipe/harness.h"

#define MS 1000000u

static struct harness h;
static struct request rqs[64];
static unsigned nr_rqs;
static void *data;

static void
open_with(const char *kernel, unsigned fifo_batch, unsigned writes_starved)
{
	struct queue_conf conf = h_conf(profile_find(kernel));

	conf.deadline.fifo_batch = fifo_batch;
	conf.deadline.writes_starved = writes_starved;
	h_open(&h, &conf);
	data = deadline_ops.new(h.queue);
	assert_non_null(data);
	nr_rqs = 0;
}

static void
close_it(void)
{
	deadline_ops.free(data);
	h_close(&h);
}

static struct request *
add(enum req_op op, sector_t sector, uint8_t prio, uint64_t now)
{
	struct request *rq = &rqs[nr_rqs++];

	*rq = (struct request){
		.op = (uint8_t)op,
		.prio = prio,
		.pos = sector * SECTOR_SIZE,
		.bytes = 8 * SECTOR_SIZE,
		.hctx = h.queue->hctx[0],
	};
	deadline_ops.add(data, rq, now);
	return rq;
}

/* The sector of the next one, which ends at once; or -1. */
static int64_t
next(uint64_t now)
{
	struct request *rq = deadline_ops.take(data, now);

	if (rq == NULL)
		return -1;
	deadline_ops.finish(data, rq);
	return (int64_t)rq_sector(rq);
}

static void
expect(unsigned nr, const int64_t *sectors, uint64_t now)
{
	for (unsigned i = 0; i < nr; i++)
		assert_int_equal(next(now), sectors[i]);
	assert_int_equal(next(now), -1);
}

static void
serves_the_example_as_each_age_does(void **state)
{
	static const int64_t by_pos[] = { 100, 200, 500, 700, 1000 };
	static const int64_t by_next[] = { 1000, 100, 200, 500, 700 };
	const struct profile *p;

	(void)state; /* the end of section 5 */
	for (p = profiles; p->name != NULL; p++) {
		bool modern = strcmp(p->name, "6.12") == 0;

		open_with(p->name, 2, 1);
		add(REQ_OP_WRITE, 100, 0, 0);
		add(REQ_OP_WRITE, 200, 0, 0);
		add(REQ_OP_READ, 1000, 0, 0);
		add(REQ_OP_READ, 500, 0, 0);
		add(REQ_OP_READ, 700, 0, 0);
		expect(5, modern ? by_pos : by_next, 0);
		close_it();
	}
}

static void
begins_a_batch_with_what_has_waited_too_long(void **state)
{
	static const int64_t late[] = { 900, 100, 200 };

	(void)state;
	open_with("6.12", 1, 2);
	add(REQ_OP_READ, 900, 0, 0);
	add(REQ_OP_READ, 100, 0, 1);
	add(REQ_OP_READ, 200, 0, 1);
	/* 500 ms after the first came, and not a nanosecond before */
	expect(3, late, 500 * MS);
	add(REQ_OP_READ, 900, 0, 0);
	add(REQ_OP_READ, 300, 0, 1);
	assert_int_equal(next(500 * MS - 1), 300);
	assert_int_equal(next(500 * MS), 900);
	close_it();
}

static void
serves_a_lower_class_when_none_above_is_live_or_it_is_old(void **state)
{
	struct request *rt;

	(void)state;
	open_with("6.1", 16, 2);
	add(REQ_OP_READ, 300, IOPRIO_IDLE, 0);
	add(REQ_OP_READ, 200, IOPRIO_NONE, 0);
	add(REQ_OP_READ, 100, IOPRIO_RT, 0);
	rt = deadline_ops.take(data, 0);
	assert_int_equal(rq_sector(rt), 100);
	assert_int_equal(next(0), -1); /* in flight counts */
	assert_int_equal(next(10000 * (uint64_t)MS - 1), -1);
	assert_int_equal(next(10000 * (uint64_t)MS), 200);
	deadline_ops.finish(data, rt);
	assert_int_equal(next(0), 300);
	close_it();
	/* 5.4 has no classes */
	open_with("5.4", 16, 2);
	add(REQ_OP_READ, 300, IOPRIO_IDLE, 0);
	add(REQ_OP_READ, 400, IOPRIO_RT, 0);
	assert_int_equal(next(0), 300);
	assert_int_equal(next(0), 400);
	close_it();
}

static void
a_survivor_takes_the_earlier_deadline_and_its_place(void **state)
{
	struct request *old, *into;

	(void)state;
	open_with("6.12", 1, 2);
	old = add(REQ_OP_READ, 108, 0, 0);
	add(REQ_OP_READ, 50, 0, 10);
	into = add(REQ_OP_READ, 100, 0, 20);
	deadline_ops.absorb(data, into, old);
	deadline_ops.finish(data, old);
	assert_int_equal(next(500 * MS), 100);
	assert_int_equal(next(0), 50);
	assert_int_equal(next(0), -1);
	close_it();
}

static void
finds_neighbours_and_fronts_by_position(void **state)
{
	struct request *a, *b;
	struct bio bio;

	(void)state;
	open_with("6.12", 16, 2);
	b = add(REQ_OP_WRITE, 200, 0, 0);
	a = add(REQ_OP_WRITE, 100, 0, 0);
	add(REQ_OP_READ, 150, 0, 0); /* another tree */
	assert_ptr_equal(deadline_ops.latter(data, a), b);
	assert_ptr_equal(deadline_ops.former(data, b), a);
	assert_null(deadline_ops.former(data, a));
	assert_null(deadline_ops.latter(data, b));
	bio_init(&bio, REQ_OP_WRITE, 192 * SECTOR_SIZE, NULL, 0);
	bio.bytes = 8 * SECTOR_SIZE;
	assert_ptr_equal(deadline_ops.find_front(data, &bio), b);
	bio.pos--;
	assert_null(deadline_ops.find_front(data, &bio));
	bio.pos++;
	bio.op = REQ_OP_READ;
	assert_null(deadline_ops.find_front(data, &bio));
	/* a front merge moves it */
	b->pos = 50 * SECTOR_SIZE;
	deadline_ops.reposition(data, b);
	assert_ptr_equal(deadline_ops.latter(data, b), a);
	while (next(0) >= 0)
		;
	close_it();
}

static void
keeps_requests_for_reads(void **state)
{
	struct bio r, w;

	(void)state;
	bio_init(&r, REQ_OP_READ, 0, NULL, 0);
	bio_init(&w, REQ_OP_WRITE, 0, NULL, 0);
	open_with("6.12", 16, 2);
	assert_int_equal(deadline_ops.depth(data, &w, 128), 128);
	h.queue->conf.deadline.async_depth = 5;
	deadline_ops.configure(data, h.queue);
	assert_int_equal(deadline_ops.depth(data, &w, 128), 5);
	assert_int_equal(deadline_ops.depth(data, &r, 128), 128);
	close_it();
	open_with("5.4", 16, 2);
	h.queue->conf.deadline.async_depth = 5;
	deadline_ops.configure(data, h.queue);
	assert_int_equal(deadline_ops.depth(data, &w, 128), 128);
	close_it();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(serves_the_example_as_each_age_does),
		cmocka_unit_test(begins_a_batch_with_what_has_waited_too_long),
		cmocka_unit_test(
		    serves_a_lower_class_when_none_above_is_live_or_it_is_old),
		cmocka_unit_test(
		    a_survivor_takes_the_earlier_deadline_and_its_place),
		cmocka_unit_test(finds_neighbours_and_fronts_by_position),
		cmocka_unit_test(keeps_requests_for_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
