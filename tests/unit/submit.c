/* SPDX-License-Identifier: MIT */
/* The way to the block layer: plug, order, tags, zeroing. */
#include "client.h"

#define MIB (1u << 20)

static struct client *
transmission(const struct world *w)
{
	struct client *c = client_new(w);

	client_go(c, false);
	return c;
}

static void
expect_all(struct client *c, unsigned from, unsigned nr, size_t len)
{
	unsigned i;

	for (i = from; i < from + nr; i++)
		expect_reply(c, i, 0, len);
	expect_no_more(c);
}

static void
add_reads(struct bytes *b, unsigned from, unsigned nr)
{
	unsigned i;

	for (i = from; i < from + nr; i++)
		add_request(b, NBD_CMD_READ, 0, i, 4096 * i, 4096);
}

/* ------------------------------------------------------------------- plug */

static void
test_batches(void **state)
{
	static const struct {
		const char *kernel;
		unsigned nr, requests;
	} cases[] = {
		{ "6.12", 1, 1 },
		{ "6.12", 2, 2 },
		{ "6.12", 3, 1 },
		{ "5.4", 2, 2 },
		{ "5.4", 3, 1 },
		{ "4.14", 2, 1 },
	};
	unsigned i;

	(void)state;
	for (i = 0; i < 6; i++) {
		struct world w = world_default();
		struct client *c;
		struct bytes b = { 0 };

		w.kernel = cases[i].kernel;
		w.limits.max_sectors = 2560;
		c = transmission(&w);
		add_reads(&b, 0, cases[i].nr);
		client_send(c, &b);
		expect_all(c, 0, cases[i].nr, 4096);
		assert_int_equal(c->fake.nr_log, cases[i].requests);
		client_free(c);
	}
}

static void
test_plug_waits_for_the_rest(void **state)
{
	struct client *c = transmission(NULL);
	struct bytes b = { 0 }, rest = { 0 };

	(void)state;
	add_reads(&b, 0, 3);
	bytes_add(&rest, b.p + 28 + 20, 28 + 8);
	b.len = 28 + 20;
	client_send(c, &b);
	expect_no_more(c);
	assert_int_equal(c->fake.nr_log, 0);
	assert_null(c->session->in); /* the start is kept aside */
	assert_true(nbd_next(c->session) == c->now + NBD_PARTIAL_NSEC);
	client_send(c, &rest);
	expect_all(c, 0, 3, 4096);
	assert_int_equal(c->fake.nr_log, 1);
	assert_true(nbd_next(c->session) == NBD_NEVER);
	client_free(c);
}

/* A client that waits for an answer before it sends the rest is served. */
static void
test_plug_waits_not_long(void **state)
{
	struct client *c = transmission(NULL);
	struct bytes b = { 0 };

	(void)state;
	add_reads(&b, 0, 1);
	add_request(&b, NBD_CMD_WRITE, 0, 1, 0, 512);
	bytes_fill(&b, 'x', 511);
	client_send(c, &b);
	c->now += NBD_PARTIAL_NSEC - 1;
	client_settle(c);
	expect_no_more(c);
	c->now += 1;
	client_settle(c);
	expect_all(c, 0, 1, 4096);
	assert_true(nbd_next(c->session) == NBD_NEVER);
	bytes_fill(&b, 'x', 1);
	client_send(c, &b);
	expect_reply(c, 1, 0, 0);
	client_free(c);
}

static void
test_plug_nsec(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };

	(void)state;
	c->export[0].plug_nsec = 50000;
	client_go(c, false);
	add_reads(&b, 0, 1);
	client_send(c, &b);
	assert_true(nbd_next(c->session) == c->now + 50000);
	c->now += 30000;
	add_reads(&b, 1, 1);
	client_send(c, &b);
	expect_no_more(c);
	c->now += 20000;
	client_settle(c);
	expect_all(c, 0, 2, 4096);
	assert_int_equal(c->fake.nr_log, 1);
	/* nothing is gathered for a client that is gone */
	add_reads(&b, 2, 1);
	client_send(c, &b);
	expect_no_more(c);
	nbd_eof(c->session, c->now);
	client_settle(c);
	expect_all(c, 2, 1, 4096);
	assert_true(nbd_done(c->session));
	client_free(c);
}

/* Commands in the plug are not waited for before they are submitted. */
static void
test_limit_opens_plug(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	c->export[0].plug_nsec = UINT64_C(1) << 40;
	c->fake.end = FAKE_SOFTIRQ;
	client_go(c, false);
	for (i = 0; i < 2 * c->limits.max_requests; i++)
		add_request(&b, NBD_CMD_READ, 0, i, 0, 512);
	client_send(c, &b);
	assert_true(
	    c->in.len - c->in_pos >= (512 + 16) * c->limits.max_requests);
	client_free(c);
}

/* ------------------------------------------------------------------ order */

/* What is sent together is one batch, in however many reads it comes. */
static void
test_batch_around_a_large_write(void **state)
{
	struct client *c = transmission(NULL);
	struct bytes b = { 0 };
	unsigned i, round;

	(void)state;
	c->eager = true;
	for (round = 0; round < 3; round++) {
		unsigned before = c->fake.nr_log;

		b.len = 0;
		for (i = 0; i < 8; i++)
			add_request(&b, NBD_CMD_READ, 0, i, i * 4096, 4096);
		add_write(&b, 8, MIB, 64 << 10, 'w');
		for (i = 9; i < 40; i++)
			add_request(&b, NBD_CMD_READ, 0, i, i * 4096, 4096);
		client_send(c, &b);
		for (i = 0; i < 40; i++)
			expect_reply(c, i, 0, i == 8 ? 0 : 4096);
		/* 8 reads, the write, 31 reads */
		assert_int_equal(c->fake.nr_log - before, 3);
	}
	bytes_free(&b);
	client_free(c);
}

/* Reads are a batch still, after a large write, too. */
static void
test_batch_after_a_large_write(void **state)
{
	struct client *c = transmission(NULL);
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	add_write(&b, 1, 0, 256 << 10, 'w');
	client_push(c, b.p, 28);
	client_push(c, b.p + 28, b.len - 28);
	client_settle(c);
	expect_reply(c, 1, 0, 0);
	for (i = 0; i < 3; i++) { /* the first is read alone, at most */
		unsigned before = c->fake.nr_log, j;

		b.len = 0;
		for (j = 0; j < 16; j++)
			add_request(&b, NBD_CMD_READ, 0, j, j * 4096, 4096);
		client_send(c, &b);
		for (j = 0; j < 16; j++)
			expect_reply(c, j, 0, 4096);
		assert_in_range(c->fake.nr_log - before, 1, i == 0 ? 2 : 1);
	}
	bytes_free(&b);
	client_free(c);
}

static void
test_overlap_in_a_batch(void **state)
{
	struct client *c = transmission(NULL);
	struct bytes b = { 0 };

	(void)state;
	add_write(&b, 0, 0, 8192, 'a');
	add_request(&b, NBD_CMD_READ, 0, 1, 4096, 4096);
	add_write(&b, 2, 4000, 200, 'b');
	add_request(&b, NBD_CMD_READ, 0, 3, 4000, 4096);
	add_request(&b, NBD_CMD_TRIM, 0, 4, 0, 4096);
	add_request(&b, NBD_CMD_READ, 0, 5, 0, 8192);
	client_send(c, &b);
	expect_reply(c, 0, 0, 0);
	expect_data(expect_reply(c, 1, 0, 4096), 'a', 4096);
	expect_reply(c, 2, 0, 0);
	expect_data(expect_reply(c, 3, 0, 4096), 'b', 200);
	expect_data(c->in.p + c->in_pos - 3896, 'a', 3896);
	expect_reply(c, 4, 0, 0);
	expect_data(expect_reply(c, 5, 0, 8192), 0, 4096);
	expect_data(c->in.p + c->in_pos - 4096, 'b', 104);
	expect_no_more(c);
	client_free(c);
}

static void
test_overlap_waits_for_the_device(void **state)
{
	struct client *c = transmission(NULL);
	struct bytes b = { 0 };

	(void)state;
	c->fake.end = FAKE_HELD;
	c->fake.moves_later = true;
	add_write(&b, 0, 0, 4096, 'a');
	add_request(&b, NBD_CMD_READ, 0, 1, 8192, 512);  /* not the same */
	add_request(&b, NBD_CMD_READ, 0, 2, 512, 512);   /* waits */
	add_request(&b, NBD_CMD_READ, 0, 3, 16384, 512); /* behind it */
	client_send(c, &b);
	assert_int_equal(c->fake.nr_held, 2);
	assert_true(nbd_next(c->session) == NBD_STALLED);
	fake_release(c, 1);
	client_settle(c);
	expect_reply(c, 0, 0, 0);
	assert_int_equal(c->fake.nr_held, 3);
	assert_true(nbd_next(c->session) == NBD_NEVER);
	fake_release(c, 3);
	client_settle(c);
	expect_reply(c, 1, 0, 512);
	expect_data(expect_reply(c, 2, 0, 512), 'a', 512);
	expect_reply(c, 3, 0, 512);
	client_free(c);
}

/* It is enough that the data has moved: the reply may take its time. */
static void
test_moved_is_enough(void **state)
{
	struct client *c = transmission(NULL);
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	c->fake.end = FAKE_HELD;
	for (i = 0; i < 10; i++)
		add_write(&b, i, 0, 4096, (char)i);
	client_send(c, &b);
	assert_int_equal(c->fake.nr_held, 10);
	assert_true(nbd_next(c->session) == NBD_NEVER);
	assert_int_equal(c->fake.data[0], 9);
	client_free(c);
}

/* Whatever the device does, replies show the order of arrival. */
static void
test_random_order(void **state)
{
	static const struct {
		const char *kernel;
		unsigned depth;
	} worlds[] = { { "4.14", 64 }, { "5.4", 1 }, { "6.1", 7 },
		{ "6.12", 128 } };
	enum {
		NR = 3000,
		SPAN = 200000,
		MAX = 20000
	};
	static struct {
		uint32_t pos, len;
		char *data; /* what a read must show */
	} op[NR];
	static char model[SPAN + MAX];
	uint32_t seed = 1, i, r, w, answered;
	const char *p;

	(void)state;
	for (w = 0; w < 4; w++) {
		struct world world = world_default();
		struct client *c;
		struct bytes b = { 0 };

		world.kernel = worlds[w].kernel;
		world.depth = worlds[w].depth;
		world.single_page = w == 0;
		c = transmission(&world);
		memset(model, 0, sizeof(model));
		for (i = answered = 0; i < NR || answered < NR;) {
			r = seed = seed * 1664525 + 1013904223;
			if (r >> 28 == 0) {
				c->fake.end =
				    r >> 8 & 1 ? FAKE_HELD : FAKE_SOFTIRQ;
				c->fake.moves_later = r >> 9 & 1;
				c->fake.busy = r >> 10 & 1 && i < NR;
			}
			if (i < NR) {
				op[i].pos = (r >> 5) % SPAN;
				op[i].len = 1 + (r >> 8) % MAX;
				op[i].data = NULL;
				switch (r >> 29) {
				case 0:
					add_request(&b, NBD_CMD_TRIM, 0, i,
					    op[i].pos, op[i].len);
					memset(model + op[i].pos, 0, op[i].len);
					break;
				case 1:
				case 2:
				case 3:
					add_write(&b, i, op[i].pos, op[i].len,
					    (char)i);
					memset(model + op[i].pos, (char)i,
					    op[i].len);
					break;
				default:
					add_request(&b, NBD_CMD_READ, 0, i,
					    op[i].pos, op[i].len);
					op[i].data = malloc(op[i].len);
					memcpy(op[i].data, model + op[i].pos,
					    op[i].len);
				}
				i++;
			}
			if (i == NR || r % 16 == 0)
				client_send(c, &b);
			if (i == NR)
				c->fake.busy = false;
			if (r % 8 < 2 || i == NR) {
				fake_release(c, r >> 24);
				queue_run(c->queue, c->cpu, c->now);
				c->now += 100000;
				client_settle(c);
				/* stalled on what has moved meanwhile */
				client_settle(c);
			}
			while (c->in.len > c->in_pos) {
				r = (uint32_t)get_be64(c->in.p + c->in_pos + 8);
				assert_in_range(r, 0, NR - 1);
				p = expect_reply(
				    c, r, 0, op[r].data ? op[r].len : 0);
				if (op[r].data != NULL)
					assert_memory_equal(
					    p, op[r].data, op[r].len);
				free(op[r].data);
				op[r].data = NULL;
				answered++;
			}
		}
		assert_int_equal(answered, NR);
		assert_memory_equal(c->fake.data, model, sizeof(model));
		client_free(c);
	}
}

/* ------------------------------------------------------------------- tags */

static void
test_one_tag(void **state)
{
	struct world w = world_default();
	struct client *c;
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	w.depth = 1;
	w.limits.max_sectors = 8;
	c = transmission(&w);
	c->fake.end = FAKE_HELD;
	for (i = 0; i < 20; i++)
		add_request(&b, NBD_CMD_READ, 0, i, 16384 * i, 10000);
	client_send(c, &b);
	assert_int_equal(c->fake.nr_held, 1);
	assert_true(nbd_next(c->session) == NBD_STALLED);
	for (i = 0; i < 60; i++) { /* three pieces each */
		assert_int_equal(c->fake.nr_held, 1);
		fake_release(c, 1);
		client_turn(c);
		client_turn(c);
	}
	client_settle(c);
	expect_all(c, 0, 20, 10000);
	assert_true(nbd_next(c->session) == NBD_NEVER);
	client_free(c);
}

/* A client that goes while bios wait for tags, half submitted. */
static void
test_abort_while_stalled(void **state)
{
	unsigned released;

	(void)state;
	for (released = 0; released < 8; released++) {
		struct world w = world_default();
		struct client *c;
		struct bytes b = { 0 };
		unsigned i;

		w.depth = 2;
		w.limits.max_sectors = 8;
		c = transmission(&w);
		c->fake.end = FAKE_HELD;
		for (i = 0; i < 20; i++)
			add_request(&b, NBD_CMD_READ, 0, i, 16384 * i, 12288);
		client_send(c, &b);
		for (i = 0; i < released; i++) {
			fake_release(c, 1);
			client_turn(c);
		}
		nbd_abort(c->session, c->now);
		assert_in_range(nbd_in_flight(c->session), 1, 2);
		assert_false(nbd_done(c->session));
		c->woken = false;
		fake_release(c, UINT32_MAX);
		assert_true(c->woken);
		assert_int_equal(nbd_in_flight(c->session), 0);
		assert_true(nbd_done(c->session));
		client_free(c);
	}
}

/* ---------------------------------------------------------------- zeroing */

static void
test_zeroes_written(void **state)
{
	struct client *c = transmission(NULL);
	unsigned i;

	(void)state;
	client_write(c, 1, 0, 5 * MIB, 'z');
	expect_reply(c, 1, 0, 0);
	c->fake.nr_log = 0;
	client_request(
	    c, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE, 2, 1000, 3 * MIB);
	expect_reply(c, 2, 0, 0);
	expect_no_more(c);
	expect_data(c->fake.data, 'z', 1000);
	expect_data(c->fake.data + 1000, 0, 3 * MIB);
	expect_data(c->fake.data + 1000 + 3 * MIB, 'z', 2 * MIB - 1000);
	assert_true(c->fake.nr_log > 0);
	for (i = 0; i < c->fake.nr_log; i++) {
		assert_int_equal(c->fake.log[i].op, REQ_OP_WRITE);
		/* a page each, for the page is always the same */
		assert_true(
		    c->fake.log[i].nr_segs >= c->fake.log[i].bytes / PAGE_SIZE);
	}
	client_free(c);
}

/* 4 GiB: a few bios at a time, while others are served. */
static void
test_long_zeroing(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };
	unsigned turns = 0;

	(void)state;
	c->export[0].size = 1ull << 40;
	c->fake.end = FAKE_SOFTIRQ;
	client_go(c, true);
	add_request(&b, NBD_CMD_WRITE_ZEROES, 0, 1, 16 * MIB, 0xfffffe00);
	add_request(&b, NBD_CMD_READ, 0, 2, 0, 512);
	assert_int_equal(client_push(c, b.p, 0), 0);
	client_read(c, b.p, b.len);
	while (c->session->nr_commands > 0) {
		assert_true(c->session->nr_started <= NBD_STEP_BIOS + 1);
		assert_true(c->session->held <= NBD_CHUNK);
		client_turn(c);
		if (turns++ == 2) {
			expect_reply(c, 2, 0, 512);
			expect_no_more(c);
		}
	}
	client_settle(c);
	assert_true(turns > 500);
	expect_reply(c, 1, 0, 0);
	expect_no_more(c);
	bytes_free(&b);
	client_free(c);
}

static void
test_zeroing_and_overlap(void **state)
{
	static const enum fake_end ends[] = { FAKE_NOW, FAKE_SOFTIRQ };
	static const size_t lens[] = { 6 * MIB, 0, 0, 0, 4096, 0, 4096 };
	uint64_t cookie;
	unsigned i, j;
	const char *p;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct client *c = transmission(NULL);
		struct bytes b = { 0 };

		memset(c->fake.data, 'o', FAKE_SIZE);
		c->fake.end = ends[i];
		add_request(&b, NBD_CMD_READ, 0, 0, 0, 6 * MIB);
		add_request(&b, NBD_CMD_WRITE_ZEROES, 0, 1, 0, 6 * MIB);
		add_request(&b, NBD_CMD_WRITE_ZEROES, 0, 2, MIB, 7 * MIB);
		add_write(&b, 3, 5 * MIB + 7, 600, 'w');
		add_request(&b, NBD_CMD_READ, 0, 4, 5 * MIB, 4096);
		add_request(&b, NBD_CMD_WRITE_ZEROES, 0, 5, 0, 6 * MIB);
		add_request(&b, NBD_CMD_READ, 0, 6, 5 * MIB, 4096);
		client_send(c, &b);
		while (c->in.len - c->in_pos < 16 * 7 + 6ull * MIB + 2 * 4096)
			client_turn(c);
		for (j = 0; j < 7; j++) {
			cookie = get_be64(c->in.p + c->in_pos + 8);
			p = expect_reply(c, cookie, 0, lens[cookie]);
			if (cookie == 0)
				expect_data(p, 'o', 6 * MIB);
			if (cookie == 4)
				expect_data(p + 7, 'w', 600);
			if (cookie == 6)
				expect_data(p, 0, 4096);
		}
		expect_no_more(c);
		expect_data(c->fake.data, 0, FAKE_SIZE);
		client_free(c);
	}
}

static void
test_zeroing_fails(void **state)
{
	static const enum fake_end ends[] = { FAKE_NOW, FAKE_SOFTIRQ,
		FAKE_HELD };
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++) {
		struct client *c = client_new(NULL);
		struct bytes b = { 0 };

		c->export[0].size = 1ull << 40;
		client_go(c, true);
		c->fake.end = ends[i];
		c->fake.error = -ENOSPC;
		add_request(&b, NBD_CMD_WRITE_ZEROES, 0, 1, 0, 0xfffffe00);
		client_send(c, &b);
		while (c->session->nr_commands > 0) {
			fake_release(c, 1);
			client_turn(c);
		}
		client_settle(c);
		expect_reply(c, 1, NBD_ENOSPC, 0);
		expect_no_more(c);
		assert_true(c->fake.nr_log < 200);
		client_free(c);
	}
}

static void
test_abort_while_zeroing(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 12; i++) {
		struct world w = world_default();
		struct client *c;
		struct bytes b = { 0 };
		unsigned j;

		w.depth = i % 2 ? 3 : 256;
		c = client_new(&w);
		c->export[0].size = 1ull << 40;
		client_go(c, true);
		c->fake.end = i % 3 ? FAKE_HELD : FAKE_NOW;
		c->fake.moves_later = i % 4 == 2;
		for (j = 0; j < 3; j++)
			add_request(&b, NBD_CMD_WRITE_ZEROES, 0, j,
			    (uint64_t)j << 33, 0xfffffe00);
		add_request(&b, NBD_CMD_READ, 0, 9, 512, 512);
		client_read(c, b.p, b.len);
		for (j = 0; j < i; j++) {
			fake_release(c, 5);
			client_turn(c);
		}
		bytes_free(&b);
		nbd_abort(c->session, c->now);
		fake_release(c, UINT32_MAX);
		assert_true(nbd_done(c->session));
		assert_int_equal(c->session->nr_commands, 0);
		client_free(c);
	}
}

#define CASE(sentence, function)                     \
	{                                            \
		sentence, function, NULL, NULL, NULL \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("opens a plug for a batch, as the kernel's aio (T34)",
		    test_batches),
		CASE("keeps a batch together around a large write",
		    test_batch_around_a_large_write),
		CASE("goes on so after a large write",
		    test_batch_after_a_large_write),
		CASE("keeps the plug open while a request is partly there",
		    test_plug_waits_for_the_rest),
		CASE("closes it after a millisecond all the same",
		    test_plug_waits_not_long),
		CASE("keeps it open for plug_nsec", test_plug_nsec),
		CASE(
		    "closes it when a limit is reached", test_limit_opens_plug),
		CASE("keeps effects in order within a batch",
		    test_overlap_in_a_batch),
		CASE("holds back what overlaps a request the device still has",
		    test_overlap_waits_for_the_device),
		CASE("goes on once the data has moved", test_moved_is_enough),
		CASE("shows the order of arrival, whatever the device does",
		    test_random_order),
		CASE("gets along with a single tag", test_one_tag),
		CASE("ends with bios that are half submitted",
		    test_abort_while_stalled),
		CASE("writes zeros where zeroing is not offered (N144)",
		    test_zeroes_written),
		CASE("zeroes 4 GiB a little at a time, and serves others (N91)",
		    test_long_zeroing),
		CASE("keeps zeroing in order with what overlaps it",
		    test_zeroing_and_overlap),
		CASE("gives up a zeroing at its first error",
		    test_zeroing_fails),
		CASE("ends in the middle of a zeroing",
		    test_abort_while_zeroing),
	};

	return RUN_BOTH_WAYS(tests);
}
