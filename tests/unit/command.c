/* SPDX-License-Identifier: MIT */
/* Requests: framing, refusals, the bios they become (N108 to N145). */
#include "client.h"

#define MIB (1u << 20)

static struct client *
transmission(bool agree)
{
	struct client *c = client_new(NULL);

	client_go(c, agree);
	return c;
}

/* The session still knows where a request begins. */
static void
expect_in_step(struct client *c)
{
	expect_no_more(c);
	client_request(c, NBD_CMD_READ, 0, 0x1234, FAKE_SIZE - 512, 512);
	expect_reply(c, 0x1234, 0, 512);
	expect_no_more(c);
	assert_int_equal(c->error, 0);
	assert_int_equal(c->session->held, 0);
	assert_int_equal(c->session->nr_commands, 0);
}

/* --------------------------------------------------------------- framing */

static void
test_wrong_magic(void **state)
{
	struct client *c = transmission(false);
	struct bytes b = { 0 };

	(void)state;
	add_request(&b, NBD_CMD_READ, 0, 1, 0, 512);
	b.p[0] ^= 1;
	client_send(c, &b);
	assert_int_equal(c->error, -EPROTO);
	assert_true(nbd_done(c->session));
	assert_non_null(strstr(nbd_error(c->session), "magic"));
	expect_no_more(c);
	client_free(c);
}

/* With a driver that lends pages, whatever the others have. */
static struct client *
lending(unsigned max_lent)
{
	bool before = fake_lends;
	struct client *c;

	fake_lends = true;
	c = transmission(false);
	fake_lends = before;
	c->fake.max_lent = max_lent;
	return c;
}

static void
test_lent_pages(void **state)
{
	struct client *c = lending(UINT32_MAX);
	struct bytes b = { 0 };

	(void)state;
	c->step = 28; /* a header, then nothing yet */
	c->fake.end = FAKE_HELD;
	add_write(&b, 1, 512, MIB, 'w');
	client_push(c, b.p, 28);
	assert_in_range(c->fake.nr_lent, 1, 65); /* not 257 */
	/* who promises much has not taken it */
	assert_int_equal(c->session->held, c->fake.nr_lent * PAGE_SIZE);
	c->step = SIZE_MAX;
	client_push(c, b.p + 28, b.len - 28);
	/* but those at the ends and where it is split: it has a part there */
	assert_in_range(c->fake.nr_lent, 2, 2 + MIB / (255 * 512));
	assert_int_equal(c->fake.nr_kept + c->fake.nr_lent, 257);
	assert_int_equal(c->session->held, MIB + PAGE_SIZE);
	fake_release(c, UINT32_MAX);
	client_settle(c);
	expect_reply(c, 1, 0, 0);
	assert_int_equal(c->fake.data[511], 0);
	assert_int_equal(c->fake.data[512], 'w');
	assert_int_equal(c->fake.data[511 + MIB], 'w');
	assert_int_equal(c->fake.data[512 + MIB], 0);
	c->fake.end = FAKE_NOW;
	expect_in_step(c);
	bytes_free(&b);
	client_free(c);
}

static void
test_no_pages_to_lend(void **state)
{
	static const unsigned max[] = { 0, 1, 64, 65, 200 };
	unsigned i;

	(void)state;
	for (i = 0; i < 5; i++) {
		struct client *c = lending(max[i]);
		struct bytes b = { 0 };

		/* none at all: elsewhere; none any more: refused */
		add_write(&b, 1, 4096, MIB, 'x');
		client_push(c, b.p, 28);
		client_push(c, b.p + 28, b.len - 28);
		client_settle(c);
		bytes_free(&b);
		expect_reply(c, 1, i == 0 ? 0 : NBD_ENOMEM, 0);
		assert_int_equal(c->fake.data[4096], i == 0 ? 'x' : 0);
		assert_int_equal(c->fake.nr_lent, 0);
		expect_in_step(c);
		client_free(c);
	}
}

static void
test_cookies(void **state)
{
	static const uint64_t cookies[] = { 0, UINT64_MAX, 0x0102030405060708,
		7, 7, 7 };
	struct client *c = transmission(false);
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	c->fake.end = FAKE_HELD;
	for (i = 0; i < 6; i++)
		add_request(&b, NBD_CMD_READ, 0, cookies[i], 8192 * i, 512);
	client_send(c, &b);
	expect_no_more(c);
	assert_int_equal(c->fake.nr_held, 6);
	fake_release(c, 6);
	client_settle(c);
	for (i = 0; i < 6; i++)
		expect_reply(c, cookies[i], 0, 512);
	c->fake.end = FAKE_NOW;
	client_request(c, NBD_CMD_READ, 0, 7, 0, 512); /* N167 */
	expect_reply(c, 7, 0, 512);
	expect_in_step(c);
	client_free(c);
}

static void
test_unknown_commands(void **state)
{
	static const uint16_t types[] = { 7, 8, 9, 255, 256, 0x8000, 0xffff };
	struct client *c = transmission(false);
	unsigned i;

	(void)state;
	for (i = 0; i < 7; i++) {
		/* its length is no payload */
		client_request(c, types[i], 0, i, 0, 0xffffffff);
		expect_reply(c, i, NBD_EINVAL, 0);
	}
	expect_in_step(c);
	client_free(c);
}

static void
test_flags(void **state)
{
	/* FUA is legal everywhere, NO_HOLE and FAST_ZERO with zeroes */
	struct client *c = transmission(false);
	uint16_t type, legal;
	unsigned bit;

	(void)state;
	for (type = NBD_CMD_READ; type <= NBD_CMD_WRITE_ZEROES; type++) {
		if (type == NBD_CMD_DISC)
			continue;
		for (bit = 0; bit < 16; bit++) {
			struct bytes b = { 0 };
			uint32_t error = NBD_EINVAL;

			legal = NBD_CMD_FLAG_FUA;
			if (type == NBD_CMD_WRITE_ZEROES)
				legal |= NBD_CMD_FLAG_NO_HOLE;
			if (legal & 1u << bit)
				error = 0;
			else if (type == NBD_CMD_WRITE_ZEROES && bit == 4)
				error = NBD_ENOTSUP; /* allowed, not faster */
			add_request(
			    &b, type, (uint16_t)(1u << bit), bit, 512, 512);
			if (type == NBD_CMD_WRITE)
				bytes_fill(&b, 0, 512);
			client_send(c, &b);
			expect_reply(
			    c, bit, error, type == NBD_CMD_READ ? 512 : 0);
		}
	}
	expect_in_step(c);
	client_free(c);
}

/* ---------------------------------------------------------------- ranges */

static void
test_ranges(void **state)
{
	static const struct {
		uint16_t type;
		uint32_t error;
	} types[] = {
		{ NBD_CMD_READ, NBD_EINVAL },
		{ NBD_CMD_TRIM, NBD_EINVAL },
		{ NBD_CMD_CACHE, NBD_EINVAL },
		{ NBD_CMD_WRITE, NBD_ENOSPC },
		{ NBD_CMD_WRITE_ZEROES, NBD_ENOSPC },
	};
	static const uint64_t offsets[] = { FAKE_SIZE, FAKE_SIZE - 511,
		1ull << 63, UINT64_MAX - 511, UINT64_MAX - 255, UINT64_MAX };
	struct client *c = transmission(false);
	unsigned i, j;

	(void)state;
	for (i = 0; i < 5; i++)
		for (j = 0; j < 6; j++) {
			struct bytes b = { 0 };

			add_request(&b, types[i].type, 0, j, offsets[j], 512);
			if (types[i].type == NBD_CMD_WRITE)
				bytes_fill(&b, 'x', 512);
			client_send(c, &b);
			expect_reply(c, j, types[i].error, 0);
		}
	assert_int_equal(c->fake.nr_log, 0);
	expect_in_step(c);
	client_free(c);
}

static void
test_read_only(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };

	(void)state;
	c->export[0].read_only = true;
	client_go(c, false);
	add_write(&b, 1, 0, 70000, 'x');
	add_request(&b, NBD_CMD_WRITE_ZEROES, 0, 2, 0, 512);
	add_request(&b, NBD_CMD_TRIM, 0, 3, 0, 512);
	add_request(&b, NBD_CMD_FLUSH, 0, 4, 0, 0);
	client_send(c, &b);
	expect_reply(c, 1, NBD_EPERM, 0);
	expect_reply(c, 2, NBD_EPERM, 0);
	expect_reply(c, 3, NBD_EPERM, 0);
	expect_reply(c, 4, 0, 0);
	assert_int_equal(c->fake.nr_log, 0);
	expect_in_step(c);
	client_free(c);
}

static void
test_zero_length(void **state)
{
	struct client *c = transmission(true);
	uint16_t type;

	(void)state;
	for (type = NBD_CMD_READ; type <= NBD_CMD_BLOCK_STATUS; type++) {
		if (type == NBD_CMD_DISC)
			continue;
		client_request(c, type, 0, type, 512, 0);
		expect_reply(
		    c, type, type == NBD_CMD_BLOCK_STATUS ? NBD_EINVAL : 0, 0);
	}
	expect_in_step(c);
	client_free(c);
}

static void
test_unadvertised(void **state)
{
	struct client *c = client_new(NULL);

	(void)state;
	c->export[0].can_trim = false;
	client_go(c, false);
	client_request(c, NBD_CMD_TRIM, 0, 1, 0, 512);
	expect_reply(c, 1, NBD_EINVAL, 0);
	expect_in_step(c);
	client_free(c);
}

static void
test_unaligned(void **state)
{
	struct client *c = transmission(true);
	static const uint16_t types[] = { NBD_CMD_READ, NBD_CMD_TRIM,
		NBD_CMD_CACHE, NBD_CMD_WRITE_ZEROES };
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++) {
		client_request(c, types[i], 0, 1, 1, 512);
		expect_reply(c, 1, NBD_EINVAL, 0);
		client_request(c, types[i], 0, 2, 512, 513);
		expect_reply(c, 2, NBD_EINVAL, 0);
	}
	add_write(&b, 3, 100, 1, 'x');
	client_send(c, &b);
	expect_reply(c, 3, NBD_EINVAL, 0);
	expect_in_step(c);
	client_free(c);
}

/* Any byte, of a client that has not agreed to a block size. */
static void
test_byte_exact(void **state)
{
	struct client *c = transmission(false);
	uint32_t seed = 1, i, pos, len;
	char *model = calloc(1, 100000);
	const char *p;

	(void)state;
	for (i = 0; i < 300; i++) {
		seed = seed * 1103515245 + 12345;
		pos = (seed >> 8) % 90000;
		len = 1 + (seed >> 3) % 10000;
		client_write(c, i, pos, len, (char)(i + 1));
		expect_reply(c, i, 0, 0);
		memset(model + pos, (char)(i + 1), len);
		client_request(c, NBD_CMD_READ, 0, i, pos / 2, len);
		p = expect_reply(c, i, 0, len);
		assert_memory_equal(p, model + pos / 2, len);
	}
	expect_in_step(c);
	client_free(c);
	free(model);
}

/* -------------------------------------------------------------- payloads */

static void
test_refused_payload(void **state)
{
	struct client *c = transmission(false);
	struct bytes b = { 0 };

	(void)state;
	add_request(&b, NBD_CMD_WRITE, NBD_CMD_FLAG_DF, 1, 0, 300000);
	bytes_fill(&b, 0x25, 300000); /* looks like a magic */
	add_request(&b, NBD_CMD_WRITE, 0, 2, FAKE_SIZE, 1);
	bytes_fill(&b, 0x25, 1);
	add_request(&b, NBD_CMD_FLUSH, 0, 3, 0, 0);
	client_send(c, &b);
	expect_reply(c, 1, NBD_EINVAL, 0);
	expect_reply(c, 2, NBD_ENOSPC, 0);
	expect_reply(c, 3, 0, 0);
	assert_true(c->max_held <= NBD_CHUNK);
	expect_in_step(c);
	client_free(c);
}

static void
test_too_large(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 }, payload = { 0 };
	unsigned i;

	(void)state;
	c->export[0].size = 1ull << 40;
	client_go(c, false);
	client_request(c, NBD_CMD_READ, 0, 1, 0, NBD_MAX_PAYLOAD + 1);
	expect_reply(c, 1, NBD_EINVAL, 0);
	client_request(c, NBD_CMD_READ, 0, 2, 0, 0xffffffff);
	expect_reply(c, 2, NBD_EINVAL, 0);
	add_request(&b, NBD_CMD_WRITE, 0, 3, 0, NBD_MAX_PAYLOAD + MIB);
	client_send(c, &b);
	bytes_fill(&payload, 'x', MIB);
	for (i = 0; i < NBD_MAX_PAYLOAD / MIB + 1; i++) {
		expect_no_more(c);
		assert_int_equal(client_push(c, payload.p, MIB), MIB);
	}
	expect_reply(c, 3, NBD_EINVAL, 0);
	assert_true(c->max_held <= NBD_CHUNK);
	client_request(c, NBD_CMD_READ, 0, 4, 0, 512);
	expect_reply(c, 4, 0, 512);
	add_request(&b, NBD_CMD_WRITE, 0, 5, 0, NBD_MAX_DRAIN + 1);
	client_send(c, &b);
	assert_int_equal(c->error, -EPROTO);
	bytes_free(&payload);
	client_free(c);
}

/* Its length, and where in the buffer the payload ends, make no difference. */
static void
test_write_sizes(void **state)
{
	static const uint32_t lens[] = { 1, 512, 4095, 4096, 4097, 65535, 65536,
		65537, 262143, 262144, 262145, 3 * MIB };
	static const size_t steps[] = { SIZE_MAX, 100000, 4099 };
	struct client *c = transmission(false);
	unsigned i, j;
	uint64_t cookie = 0;

	(void)state;
	for (j = 0; j < 3; j++) {
		struct bytes b = { 0 };

		c->step = steps[j];
		for (i = 0; i < 12; i++) {
			add_write(
			    &b, cookie + 2 * i, i, lens[i], (char)(i + j));
			add_request(&b, NBD_CMD_READ, 0, cookie + 2 * i + 1, i,
			    lens[i]);
		}
		client_send(c, &b);
		for (i = 0; i < 12; i++) {
			expect_reply(c, cookie++, 0, 0);
			expect_data(expect_reply(c, cookie++, 0, lens[i]),
			    (char)(i + j), lens[i]);
		}
		expect_in_step(c);
	}
	client_free(c);
}

static void
test_largest_read_and_write(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };
	const char *p;

	(void)state;
	c->export[0].size = 1ull << 40;
	client_go(c, true);
	add_write(&b, 1, 0, NBD_MAX_PAYLOAD, 'l');
	client_send(c, &b);
	expect_reply(c, 1, 0, 0);
	client_request(c, NBD_CMD_READ, 0, 2, 0, NBD_MAX_PAYLOAD);
	p = expect_reply(c, 2, 0, NBD_MAX_PAYLOAD);
	expect_data(p, 'l', FAKE_SIZE);
	expect_data(p + FAKE_SIZE, 0, NBD_MAX_PAYLOAD - FAKE_SIZE);
	expect_no_more(c);
	client_free(c);
}

/* -------------------------------------------------------- other commands */

static void
test_flush_and_cache(void **state)
{
	struct world w = world_default();
	struct client *c;

	(void)state;
	w.limits.write_cache = true;
	w.limits.fua = true;
	c = client_new(&w);
	client_go(c, true);
	client_request(c, NBD_CMD_FLUSH, 0, 1, 0, 0);
	expect_reply(c, 1, 0, 0);
	client_request(c, NBD_CMD_FLUSH, NBD_CMD_FLAG_FUA, 2, 77, 99);
	expect_reply(c, 2, 0, 0);
	assert_int_equal(c->fake.nr_log, 2);
	assert_int_equal(c->fake.log[0].op, REQ_OP_FLUSH);
	client_request(c, NBD_CMD_CACHE, 0, 3, 0, FAKE_SIZE);
	expect_reply(c, 3, 0, 0);
	assert_int_equal(c->fake.nr_log, 2);
	client_free(c);
}

static void
test_fua(void **state)
{
	struct world w = world_default();
	struct client *c;
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	w.limits.write_cache = true;
	w.limits.fua = true;
	w.limits.max_write_zeroes_sectors = 1 << 20;
	c = client_new(&w);
	client_go(c, true);
	add_request(&b, NBD_CMD_WRITE, NBD_CMD_FLAG_FUA, 1, 0, 512);
	bytes_fill(&b, 'f', 512);
	add_request(&b, NBD_CMD_TRIM, NBD_CMD_FLAG_FUA, 2, 4096, 512);
	add_request(&b, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FUA, 3, 8192, 512);
	add_request(&b, NBD_CMD_READ, NBD_CMD_FLAG_FUA, 4, 16384, 512);
	client_send(c, &b);
	for (i = 1; i < 5; i++)
		expect_reply(c, i, 0, i == 4 ? 512 : 0);
	assert_int_equal(c->fake.nr_log, 4);
	for (i = 0; i < 4; i++)
		assert_int_equal(
		    c->fake.log[i].flags & REQ_FUA, i < 3 ? REQ_FUA : 0);
	client_free(c);
}

static void
test_trim(void **state)
{
	struct client *c = client_new(NULL);

	(void)state;
	c->export[0].size = 1ull << 40;
	client_go(c, true);
	client_write(c, 1, 0, 8192, 't');
	expect_reply(c, 1, 0, 0);
	client_request(c, NBD_CMD_TRIM, 0, 2, 4096, 0xfffffe00); /* N91 */
	expect_reply(c, 2, 0, 0);
	client_request(c, NBD_CMD_READ, 0, 3, 0, 8192);
	expect_data(expect_reply(c, 3, 0, 8192), 't', 4096);
	expect_data(c->in.p + c->in_pos - 4096, 0, 4096);
	assert_int_equal(c->fake.log[1].op, REQ_OP_DISCARD);
	assert_int_equal(c->fake.log[1].pos, 4096);
	expect_in_step(c);
	client_free(c);
}

static void
test_write_zeroes_offered(void **state)
{
	struct world w = world_default();
	struct client *c;

	(void)state;
	w.limits.max_write_zeroes_sectors = UINT32_MAX >> SECTOR_SHIFT;
	c = client_new(&w);
	c->export[0].size = 1ull << 40;
	client_go(c, true);
	client_write(c, 1, 0, 8192, 'z');
	expect_reply(c, 1, 0, 0);
	client_request(c, NBD_CMD_WRITE_ZEROES,
	    NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO, 2, 0, 4096);
	expect_reply(c, 2, 0, 0);
	assert_int_equal(c->fake.log[1].op, REQ_OP_WRITE_ZEROES);
	assert_int_equal(c->fake.log[1].flags & REQ_NOUNMAP, REQ_NOUNMAP);
	client_request(c, NBD_CMD_WRITE_ZEROES, 0, 3, 1 << 20, 0xfffffe00);
	expect_reply(c, 3, 0, 0);
	assert_int_equal(c->fake.log[2].flags & REQ_NOUNMAP, 0);
	client_request(c, NBD_CMD_READ, 0, 4, 0, 8192);
	expect_data(expect_reply(c, 4, 0, 8192), 0, 4096);
	expect_data(c->in.p + c->in_pos - 4096, 'z', 4096);
	client_free(c);
}

static void
test_fast_zero_refused(void **state)
{
	struct client *c = transmission(true);

	(void)state;
	client_write(c, 1, 0, 4096, 'q');
	expect_reply(c, 1, 0, 0);
	client_request(
	    c, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, 2, 0, 4096);
	expect_reply(c, 2, NBD_ENOTSUP, 0);
	client_request(c, NBD_CMD_READ, 0, 3, 0, 4096);
	expect_data(expect_reply(c, 3, 0, 4096), 'q', 4096);
	client_free(c);
}

/* ------------------------------------------------------------------ bios */

/* T11: 512 pages that are contiguous. */
static void
test_huge_page(void **state)
{
	struct world w = world_default();
	struct client *c;

	(void)state;
	w.page_order = 9;
	w.limits.max_sectors = 2560;
	c = client_new(&w);
	client_go(c, true);
	client_request(c, NBD_CMD_READ, 0, 1, 0, 2 * MIB);
	expect_reply(c, 1, 0, 2 * MIB);
	assert_int_equal(c->fake.nr_log, 2);
	assert_int_equal(c->fake.log[0].bytes, 2560 * 512);
	assert_int_equal(c->fake.log[0].nr_segs, 20);
	assert_int_equal(c->fake.log[1].nr_segs, 12);
	client_free(c);

	w.single_page = true;
	w.kernel = "4.14";
	c = client_new(&w);
	client_go(c, true);
	client_request(c, NBD_CMD_READ, 0, 1, 0, 2 * MIB);
	expect_reply(c, 1, 0, 2 * MIB);
	assert_int_equal(c->fake.nr_log, 2);
	assert_int_equal(c->fake.log[0].bytes, 2048 * 512);
	assert_int_equal(c->fake.log[0].nr_segs, 16);
	assert_int_equal(c->fake.log[1].nr_segs, 16);
	client_free(c);
}

/* No payload touches the one before it, whatever the page order. */
static void
test_layouts_are_apart(void **state)
{
	struct world w = world_default();
	unsigned order;

	(void)state;
	for (order = 0; order <= 9; order++) {
		struct client *c;
		struct bytes b = { 0 };
		unsigned i;

		w.page_order = order;
		w.limits.max_sectors = 2560;
		c = client_new(&w);
		client_go(c, true);
		for (i = 0; i < 4; i++)
			add_request(&b, NBD_CMD_READ, 0, i, 16384 * i, 16384);
		client_send(c, &b);
		for (i = 0; i < 4; i++)
			expect_reply(c, i, 0, 16384);
		assert_int_equal(c->fake.nr_log, 1);
		assert_int_equal(c->fake.log[0].nr_bios, 4);
		assert_int_equal(c->fake.log[0].nr_segs, order == 0   ? 16
							 : order == 1 ? 8
								      : 4);
		client_free(c);
	}
}

static void
test_task(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };
	struct request *rq;

	(void)state;
	nbd_set_task(c->session, 42);
	client_go(c, false);
	c->fake.end = FAKE_HELD;
	add_request(&b, NBD_CMD_READ, 0, 1, 0, 512);
	add_write(&b, 2, 1 << 20, 16384, 'x');
	add_request(&b, NBD_CMD_TRIM, 0, 3, 1 << 21, 4096);
	client_send(c, &b);
	assert_int_equal(c->fake.nr_held, 3);
	TAILQ_FOREACH(rq, &c->fake.held, link)
		assert_int_equal(STAILQ_FIRST(&rq->bios)->task, 42);
	fake_release(c, UINT32_MAX);
	client_free(c);
}

/* -------------------------------------------------------- extended headers */

static struct client *
extended(const struct world *w, uint64_t size)
{
	struct client *c = client_new(w);

	c->export[0].size = size;
	speaks = NBD_FEATURE_EXTENDED;
	client_speak(c, NULL);
	return c;
}

static void
extended_end(struct client *c)
{
	expect_no_more(c);
	assert_int_equal(c->session->held, 0);
	client_free(c);
	speaks = 0;
}

static void
test_extended(void **state)
{
	static const uint32_t lens[] = { 1, 512, 40000, 300000 };
	struct client *c = extended(NULL, FAKE_SIZE);
	struct bytes b = { 0 };
	const char *p;
	uint64_t len;
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++) {
		add_write(&b, UINT64_MAX - i, 1000 + i, lens[i], 'e');
		client_send(c, &b);
		expect_success(c, UINT64_MAX - i, 1000 + i);
		client_request(c, NBD_CMD_READ, 0, i, 1000 + i, lens[i]);
		p = expect_chunk(
		    c, i, 1000 + i, NBD_CHUNK_OFFSET_DATA, true, &len);
		assert_int_equal(len, 8 + lens[i]);
		expect_data(p + 8, 'e', lens[i]);
	}
	client_request(c, NBD_CMD_FLUSH, 0, 9, 0, 0);
	expect_success(c, 9, 0);
	extended_end(c);
}

/* N172: a write has payload, says it so or not; N173: others may not. */
static void
test_payload_flag(void **state)
{
	static const uint32_t lens[] = { 0, 1, 100, 40000, 300000, 1 << 20 };
	static const uint16_t types[] = { NBD_CMD_READ, NBD_CMD_FLUSH,
		NBD_CMD_TRIM, NBD_CMD_CACHE, NBD_CMD_WRITE_ZEROES,
		NBD_CMD_BLOCK_STATUS, 99 };
	struct client *c = extended(NULL, FAKE_SIZE);
	struct bytes b = { 0 };
	unsigned i, k;

	(void)state;
	bytes_be(&b, NBD_EXT_REQUEST_MAGIC, 4);
	bytes_be(&b, 0, 2);
	bytes_be(&b, NBD_CMD_WRITE, 2);
	bytes_be(&b, 1, 8);
	bytes_be(&b, 0, 8);
	bytes_be(&b, 512, 8);
	bytes_fill(&b, 'w', 512);
	client_send(c, &b);
	expect_success(c, 1, 0);
	for (k = 0; k < 7; k++)
		for (i = 0; i < 6; i++) {
			add_request(&b, types[k], NBD_CMD_FLAG_PAYLOAD_LEN, 2,
			    0, lens[i]);
			bytes_be(&b, NBD_EXT_REQUEST_MAGIC, lens[i] ? 1 : 0);
			bytes_fill(&b, '%', lens[i] ? lens[i] - 1 : 0);
			client_send(c, &b);
			expect_failure(c, 2, 0, NBD_EINVAL, NULL);
		}
	assert_int_equal(c->error, 0);
	extended_end(c);
}

/* N176, N177: lengths beyond 32 bits, which do not wrap. */
static void
test_long_effects(void **state)
{
	static const uint64_t beyond[] = { UINT64_C(1) << 63, UINT64_MAX,
		UINT64_MAX - 511, (UINT64_C(1) << 40) + 1 };
	static const struct {
		uint16_t type;
		uint32_t error;
	} cmds[] = {
		{ NBD_CMD_READ, NBD_EINVAL },
		{ NBD_CMD_TRIM, NBD_EINVAL },
		{ NBD_CMD_CACHE, NBD_EINVAL },
		{ NBD_CMD_WRITE_ZEROES, NBD_ENOSPC },
	};
	struct world w = world_default();
	struct client *c;
	unsigned i, k;
	uint64_t pos;

	(void)state;
	w.limits.max_write_zeroes_sectors = UINT32_MAX >> SECTOR_SHIFT;
	c = extended(&w, UINT64_C(1) << 40);
	for (k = 0; k < 4; k++)
		for (i = 0; i < 4; i++) {
			client_request(c, cmds[k].type, 0, 1, 512, beyond[i]);
			expect_failure(c, 1, 512, cmds[k].error, NULL);
		}
	client_request(c, NBD_CMD_READ, 0, 1, 0, UINT64_C(1) << 32);
	expect_failure(c, 1, 0, NBD_EINVAL, NULL);
	client_request(c, NBD_CMD_CACHE, 0, 1, 0, UINT64_C(1) << 40);
	expect_success(c, 1, 0);
	assert_int_equal(c->fake.nr_log, 0);
	for (k = 0; k < 2; k++) {
		c->fake.nr_log = 0;
		client_request(c, k ? NBD_CMD_WRITE_ZEROES : NBD_CMD_TRIM, 0, 1,
		    4096, UINT64_C(1) << 36);
		expect_success(c, 1, 4096);
		pos = 4096;
		for (i = 0; i < c->fake.nr_log; i++) {
			assert_int_equal(c->fake.log[i].op,
			    k ? REQ_OP_WRITE_ZEROES : REQ_OP_DISCARD);
			assert_true(c->fake.log[i].pos == pos);
			assert_true(c->fake.log[i].bytes <= UINT32_MAX);
			pos += c->fake.log[i].bytes;
		}
		assert_true(pos == 4096 + (UINT64_C(1) << 36));
	}
	extended_end(c);
}

/* A trim of many steps lets others pass, and keeps them in order. */
static void
test_long_trim_in_order(void **state)
{
	struct client *c = extended(NULL, UINT64_C(1) << 40);
	unsigned i, last_trim = 0, write = 0;
	struct bytes b = { 0 };

	(void)state;
	c->fake.end = FAKE_HELD;
	c->fake.moves_later = true;
	add_request(&b, NBD_CMD_TRIM, 0, 1, 0, UINT64_C(1) << 36);
	add_write(&b, 2, UINT64_C(1) << 37, 512, 'w'); /* beside it */
	add_write(&b, 3, 0, 512, 'w');                 /* at its beginning */
	add_write(&b, 4, UINT64_C(1) << 35, 512, 'w'); /* in what is left */
	client_send(c, &b);
	assert_true(c->session->nr_started <= NBD_STEP_BIOS + 2);
	while (c->fake.nr_held > 0) {
		fake_release(c, 1);
		client_settle(c);
	}
	assert_int_equal(c->fake.data[0], 'w'); /* written after the trim */
	for (i = 0; i < c->fake.nr_log; i++) {
		const struct fake_entry *e = &c->fake.log[i];

		if (e->op == REQ_OP_DISCARD && e->pos <= UINT64_C(1) << 35)
			last_trim = i;
		if (e->op == REQ_OP_WRITE && e->pos == UINT64_C(1) << 35)
			write = i;
	}
	assert_true(write > last_trim);
	client_free(c);
	/* the client goes in the middle of it */
	c = extended(NULL, UINT64_C(1) << 40);
	c->fake.end = FAKE_HELD;
	client_request(c, NBD_CMD_TRIM, 0, 1, 0, UINT64_C(1) << 36);
	assert_true(c->fake.nr_held > 0);
	client_free(c);
	speaks = 0;
}

/* A client that ends, and may be gone, is not served for days. */
static void
test_last_steps(void **state)
{
	struct client *c = extended(NULL, INT64_MAX);
	uint64_t len;

	(void)state;
	c->fake.end = FAKE_HELD;
	client_request(c, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE, 1, 0,
	    UINT64_C(1) << 62);
	assert_int_equal(c->fake.nr_held > 0, 1);
	nbd_eof(c->session, c->now);
	fake_release(c, UINT32_MAX);
	client_settle(c);
	assert_int_equal(c->fake.nr_held, 0);
	assert_true(nbd_done(c->session));
	expect_chunk(c, 1, 0, NBD_CHUNK_ERROR_OFFSET, true, &len);
	client_free(c);
	/* what ends soon is finished: N164 */
	c = extended(NULL, INT64_MAX);
	c->fake.end = FAKE_HELD;
	client_request(c, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_NO_HOLE, 1, 0,
	    UINT64_C(1) << 24);
	nbd_eof(c->session, c->now);
	while (c->fake.nr_held > 0) {
		fake_release(c, UINT32_MAX);
		client_settle(c);
	}
	expect_success(c, 1, 0);
	assert_true(nbd_done(c->session));
	extended_end(c);
}

static void
test_wrong_form(void **state)
{
	struct client *c = extended(NULL, FAKE_SIZE);
	struct bytes b = { 0 };

	(void)state;
	speaks = 0;
	add_request(&b, NBD_CMD_READ, 0, 1, 0, 512);
	bytes_be(&b, 0, 4);
	client_send(c, &b);
	assert_int_equal(c->error, -EPROTO); /* N170 */
	client_free(c);
	c = client_new(NULL);
	client_speak(c, NULL);
	speaks = NBD_FEATURE_EXTENDED;
	add_request(&b, NBD_CMD_READ, 0, 1, 0, 512);
	client_send(c, &b);
	assert_int_equal(c->error, -EPROTO); /* N108 */
	client_free(c);
	/* a payload that nobody wants to drain */
	c = extended(NULL, FAKE_SIZE);
	add_request(&b, NBD_CMD_TRIM, NBD_CMD_FLAG_PAYLOAD_LEN, 1, 0,
	    UINT64_C(1) << 62);
	client_send(c, &b);
	assert_int_equal(c->error, -EPROTO); /* N173 */
	client_free(c);
	speaks = 0;
}

/* Nobody's share, and everybody's. */
static void
test_total(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	c->limits.max_total = 4 << 20;
	client_go(c, false);
	c->deaf = true;
	atomic_store(&c->limits.total, 4 << 20); /* others have it all */
	for (i = 0; i < 3; i++)
		add_request(&b, NBD_CMD_READ, 0, i, 0, 65536);
	client_push(c, b.p, b.len);
	assert_int_equal(c->session->nr_commands, 1); /* one at a time */
	assert_false(nbd_listens(c->session));
	assert_true(nbd_next(c->session) > c->now);
	assert_true(nbd_next(c->session) < c->now + 10000000);
	c->now += 10000000;
	client_turn(c);
	assert_int_equal(c->session->nr_commands, 1);
	atomic_fetch_sub(&c->limits.total, 4 << 20); /* they are done */
	c->now += 10000000;
	client_settle(c);
	assert_int_equal(c->session->nr_commands, 3);
	c->deaf = false;
	client_settle(c);
	for (i = 0; i < 3; i++)
		expect_reply(c, i, 0, 65536);
	/* what would take it beyond twice of it is refused, in step */
	atomic_fetch_add(&c->limits.total, 5 << 20);
	client_write(c, 8, 0, 4 << 20, 'x');
	expect_reply(c, 8, NBD_ENOMEM, 0);
	client_write(c, 9, 0, 2 << 20, 'x');
	expect_reply(c, 9, 0, 0);
	atomic_fetch_sub(&c->limits.total, 5 << 20);
	client_write(c, 10, 0, 8 << 20, 'x');
	expect_reply(c, 10, 0, 0);
	expect_no_more(c);
	bytes_free(&b);
	client_disconnect(c);
	assert_int_equal(atomic_load(&c->limits.total), 0);
	client_free(c);
}

#define CASE(sentence, function)                     \
	{                                            \
		sentence, function, NULL, NULL, NULL \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("hangs up on a wrong request magic (N108)",
		    test_wrong_magic),
		CASE("echoes cookies, duplicates too (N109, N167)",
		    test_cookies),
		CASE("answers unknown commands EINVAL (N112, N119, N122, N159)",
		    test_unknown_commands),
		CASE("receives large payloads into the driver's pages",
		    test_lent_pages),
		CASE("does without them, or refuses the write",
		    test_no_pages_to_lend),
		CASE("refuses flags that the command has not (N113 to N115)",
		    test_flags),
		CASE(
		    "checks ranges without overflow (N116, N117)", test_ranges),
		CASE("changes nothing on a read-only export (N118)",
		    test_read_only),
		CASE("serves requests of no length (N119)", test_zero_length),
		CASE("refuses TRIM where it is not offered (N122)",
		    test_unadvertised),
		CASE("refuses unaligned requests once agreed (N88)",
		    test_unaligned),
		CASE("serves any byte to a client that never asked (N87, "
		     "N141, N163)",
		    test_byte_exact),
		CASE("skips the payload of a refused write (N111)",
		    test_refused_payload),
		CASE("drains what is too large, or hangs up (N89, N90)",
		    test_too_large),
		CASE("takes payloads of any size in reads of any size (N110)",
		    test_write_sizes),
		CASE("serves the largest payload it advertises (N84)",
		    test_largest_read_and_write),
		CASE("flushes, and takes CACHE as advice (N140, N143)",
		    test_flush_and_cache),
		CASE("hands FUA to what changes data (N114, N139, N142)",
		    test_fua),
		CASE("trims exactly, up to 4 GiB (N91, N141)", test_trim),
		CASE("hands zeroing to a device that offers it (N144)",
		    test_write_zeroes_offered),
		CASE("answers FAST_ZERO at once where it is slow (N145)",
		    test_fast_zero_refused),
		CASE("builds bios from bvecs as a kernel of that age does "
		     "(T11)",
		    test_huge_page),
		CASE("keeps payloads physically apart", test_layouts_are_apart),
		CASE("says in each bio whose it is", test_task),
		CASE("speaks with extended headers (N170 to N172)",
		    test_extended),
		CASE("drains a payload that a command cannot have (N172, N173)",
		    test_payload_flag),
		CASE("does not wrap on lengths of 64 bits (N176, N177)",
		    test_long_effects),
		CASE("keeps a trim of many steps in order (N176)",
		    test_long_trim_in_order),
		CASE("finishes what a client that has ended asked for, if that "
		     "ends (N164)",
		    test_last_steps),
		CASE("hangs up on the other form of request (N108, N170, N173)",
		    test_wrong_form),
		CASE("bounds what all sessions hold", test_total),
	};

	return RUN_BOTH_WAYS(tests);
}
