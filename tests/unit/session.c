/* SPDX-License-Identifier: MIT */
/*
 * A session as a whole: fragments, truncations, mutations, limits, ends
 * (N110, N156 to N165).
 */
#include "client.h"
#include "host.h"

#define MIB (1u << 20)

static struct client *
transmission(void)
{
	struct client *c = client_new(NULL);

	client_go(c, false);
	return c;
}

/* Memory of the pool's kinds runs out: this many more are given. */
static unsigned memory_left = UINT32_MAX;

void *
aligned_alloc(size_t alignment, size_t size)
{
	void *p;

	if (memory_left == 0)
		return NULL;
	memory_left--;
	return posix_memalign(&p, alignment, size) == 0 ? p : NULL;
}

/* Sanitized a part must do, and less the second time: all takes minutes. */
static unsigned
stride(void)
{
	if (!SANITIZED)
		return 1;
	return fake_lends ? 35 : 14;
}

/* --------------------------------------------------- a recorded session */

#define COOKIES 106u

static uint32_t read_len[COOKIES]; /* of the read with that cookie */

static void
record_read(struct bytes *b, uint64_t cookie, uint64_t pos, uint32_t len)
{
	add_request(b, NBD_CMD_READ, 0, cookie, pos, len);
	read_len[cookie] = len;
}

/* A bit of everything, right and wrong, as the client `speaks`. */
static void
record(struct bytes *b)
{
	unsigned i;

	bytes_be(b, 3, 4);
	if (speaks & NBD_FEATURE_STRUCTURED)
		add_option(b, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
	if (speaks & NBD_FEATURE_EXTENDED)
		add_option(b, NBD_OPT_EXTENDED_HEADERS, NULL, 0);
	add_option(b, 0x7654321, "data that nobody wants", 22);
	add_option(b, NBD_OPT_LIST, NULL, 0);
	add_option(b, NBD_OPT_LIST, "x", 1);
	add_option(b, NBD_OPT_STRUCTURED_REPLY, "x", 1);
	add_option(b, NBD_OPT_STARTTLS, NULL, 0);
	add_info(
	    b, NBD_OPT_INFO, "disk", NBD_INFO_NAME, NBD_INFO_BLOCK_SIZE, -1);
	add_option(b, NBD_OPT_GO, "\0\0\0\7disk", 8);
	add_info(b, NBD_OPT_GO, "nope", -1);
	add_info(b, NBD_OPT_GO, "disk", NBD_INFO_DESCRIPTION, -1);
	for (i = 0; i < 6; i++) {
		add_write(b, 10 * i, 3000 * i, 5000 + 100 * i, (char)('a' + i));
		record_read(b, 10 * i + 1, 2000 * i, 700);
		record_read(b, 10 * i + 2, 100, 9000 * i);
		add_request(b, 77, 0, 10 * i + 3, 0, 0);
		add_request(b, NBD_CMD_WRITE, 0x8000, 10 * i + 4, 0, 600);
		bytes_fill(b, '%', 600);
		add_request(b, NBD_CMD_FLUSH, 0, 10 * i + 5, 0, 0);
	}
	add_request(b, NBD_CMD_TRIM, 0, 100, 4096, 8192);
	add_request(b, NBD_CMD_WRITE_ZEROES, 2, 101, 15000, 3000);
	add_write(b, 102, 50000, 70000, 'L');
	add_request(b, NBD_CMD_CACHE, 0, 103, 0, 512);
	record_read(b, 104, 0, 130000);
	add_request(b, NBD_CMD_DISC, 0, 105, 0, 0);
	bytes_fill(b, '!', 100);
}

/* What came of it: replies may overtake each other, chunks those of others. */
struct outcome {
	size_t handshake; /* bytes */
	unsigned nr;      /* whole replies */
	struct bytes reply[COOKIES];
	bool done[COOKIES];
};

/* A simple reply, or a chunk of one; *last: it is the end of it. */
static size_t
reply_size(const char *p, uint64_t cookie, bool *last)
{
	*last = true;
	if (get_be32(p) == NBD_SIMPLE_REPLY_MAGIC)
		return 16 + (get_be32(p + 4) == 0 ? read_len[cookie] : 0);
	*last = (get_be16(p + 4) & NBD_CHUNK_DONE) != 0;
	if (get_be32(p) == NBD_CHUNK_MAGIC)
		return 20 + get_be32(p + 16);
	assert_int_equal(get_be32(p), NBD_EXT_REPLY_MAGIC);
	return 32 + get_be64(p + 24);
}

static void
outcome_free(struct outcome *o)
{
	unsigned i;

	for (i = 0; i < COOKIES; i++)
		bytes_free(&o->reply[i]);
}

static void
outcome_get(struct outcome *o, struct client *c)
{
	const char *p;
	uint64_t i;
	size_t len;
	bool last;

	memset(o, 0, sizeof(*o));
	c->in_pos = 18;
	while (c->in.len - c->in_pos >= 20 &&
	       get_be64(c->in.p + c->in_pos) == NBD_REP_MAGIC) {
		p = expect_bytes(c, 20);
		expect_bytes(c, get_be32(p + 16));
	}
	o->handshake = c->in_pos;
	while (c->in.len > c->in_pos) {
		p = expect_bytes(c, 16);
		i = get_be64(p + 8);
		assert_in_range(i, 0, COOKIES - 1);
		assert_false(o->done[i]);
		len = reply_size(p, i, &last);
		expect_bytes(c, len - 16);
		bytes_add(&o->reply[i], p, len);
		o->done[i] = last;
		o->nr += last;
	}
}

/* All of it, or, of a client that went, a part. */
static void
expect_outcome(struct client *c, struct client *whole, bool all)
{
	static struct outcome a, b;
	unsigned i;

	outcome_get(&a, c);
	outcome_get(&b, whole);
	assert_true(a.handshake <= b.handshake);
	assert_memory_equal(c->in.p, whole->in.p, a.handshake);
	if (all)
		assert_int_equal(a.nr, b.nr);
	for (i = 0; i < COOKIES; i++) {
		if (!a.done[i])
			continue;
		assert_int_equal(a.reply[i].len, b.reply[i].len);
		assert_memory_equal(a.reply[i].p, b.reply[i].p, a.reply[i].len);
	}
	outcome_free(&a);
	outcome_free(&b);
}

static const unsigned ways[] = { 0, NBD_FEATURE_STRUCTURED,
	NBD_FEATURE_EXTENDED };

/* Each way to speak has its turn. */
static void
in_each_kind(void (*test)(unsigned stride))
{
	unsigned i;

	for (i = 0; i < 3; i++) {
		speaks = ways[i];
		test(i == 0 ? 1 : 11);
	}
	speaks = 0;
}

/* Send it in pieces, whatever comes of it; its output stays in c->in. */
static void
replay(struct client *c, const char *data, size_t len)
{
	size_t done = client_push(c, data, len);

	assert_true(done == len || !nbd_listens(c->session));
	client_settle(c);
	c->now += NBD_PARTIAL_NSEC;
	client_settle(c);
}

static void
fragments(unsigned sparse)
{
	static const size_t steps[] = { 1, 2, 3, 7, 27, 28, 29, 1000, 4096,
		65536 };
	struct client *whole = client_new(NULL);
	struct bytes b = { 0 };
	unsigned i;

	(void)sparse;
	record(&b);
	replay(whole, b.p, b.len);
	assert_true(nbd_done(whole->session));
	assert_true(whole->in.len > 130000);
	for (i = 0; i < 20; i++) {
		struct client *c = client_new(NULL);

		c->step = steps[i % 10];
		c->out_step = i < 10 ? SIZE_MAX : steps[i % 10];
		c->fake.end = i % 2 ? FAKE_NOW : FAKE_SOFTIRQ;
		replay(c, b.p, b.len);
		assert_true(nbd_done(c->session));
		expect_outcome(c, whole, true);
		assert_memory_equal(c->fake.data, whole->fake.data, 200000);
		client_free(c);
	}
	client_free(whole);
	bytes_free(&b);
}

static void
test_fragments(void **state)
{
	(void)state;
	in_each_kind(fragments);
}

/* As before, but two portions, cut at each byte of the shorter part of it. */
static void
every_cut(unsigned sparse)
{
	struct client *whole = client_new(NULL), *c = client_new(NULL);
	struct bytes b = { 0 };
	size_t cut, max;

	record(&b);
	replay(whole, b.p, b.len);
	max = 12000;
	for (cut = 1; cut < max; cut += stride() * sparse) {
		client_disconnect(c);
		client_connect(c);
		memset(c->fake.data, 0, 200000);
		client_push(c, b.p, cut);
		client_push(c, b.p + cut, b.len - cut);
		client_settle(c);
		assert_true(nbd_done(c->session));
		expect_outcome(c, whole, true);
	}
	client_free(whole);
	client_free(c);
	bytes_free(&b);
}

static void
test_every_cut(void **state)
{
	(void)state;
	in_each_kind(every_cut);
}

/* The client goes at any byte: by EOF it still gets what it asked for. */
static void
truncations(unsigned sparse)
{
	struct client *c = client_new(NULL), *whole = client_new(NULL);
	struct bytes b = { 0 };
	size_t len;

	record(&b);
	replay(whole, b.p, b.len);
	for (len = 0; len < b.len;
	     len += stride() * sparse * (len < 20000 ? 1 : 31)) {
		client_disconnect(c);
		client_connect(c);
		c->fake.end = len % 3;
		replay(c, b.p, len);
		if (len % 2) {
			nbd_eof(c->session, c->now);
			fake_release(c, UINT32_MAX);
			client_settle(c);
			while (c->fake.nr_held > 0) {
				fake_release(c, UINT32_MAX);
				client_settle(c);
			}
			assert_true(nbd_done(c->session));
			assert_int_equal(c->session->held, 0);
			if (c->in.len >= 18)
				expect_outcome(c, whole, false);
		}
		memset(c->fake.data, 0, 200000);
	}
	client_free(c);
	client_free(whole);
	bytes_free(&b);
}

static void
test_truncations(void **state)
{
	(void)state;
	in_each_kind(truncations);
}

static void
test_partial_write_is_not_applied(void **state)
{
	static const uint32_t lens[] = { 512, 60000, 300000 };
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++) {
		struct client *c = transmission();
		struct bytes b = { 0 };

		add_write(&b, 1, 0, lens[i], 'p');
		b.len--;
		client_send(c, &b);
		c->now += NBD_PARTIAL_NSEC;
		client_settle(c);
		nbd_eof(c->session, c->now);
		assert_true(nbd_done(c->session));
		assert_int_equal(c->session->held, 0);
		expect_no_more(c);
		assert_int_equal(c->fake.nr_log, 0);
		client_free(c);
	}
}

/* No crash, no leak, and no more memory than the bounds say. */
static void
mutations(unsigned sparse)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };
	uint32_t seed = 20241130, i, j, n;
	size_t pos;
	char *m;

	print_message("seed %u\n", seed);
	record(&b);
	m = malloc(b.len);
	for (i = 0; i < 10000; i += stride() * (1 + sparse / 4)) {
		memcpy(m, b.p, b.len);
		seed = seed * 1664525 + 1013904223;
		n = 1 + seed / 7 % 8;
		for (j = 0; j < n; j++) {
			seed = seed * 1664525 + 1013904223;
			/* most of it, in the part that is not payload */
			pos = (seed >> 8) % (seed % 4 ? 1000 : b.len);
			seed = seed * 1664525 + 1013904223;
			switch (seed >> 30) {
			case 0: m[pos] ^= (char)(1 << (seed >> 8) % 8); break;
			case 1: m[pos] = (char)(seed >> 8); break;
			case 2: m[pos] = (char)0xff; break;
			case 3:
				pos %= b.len - 64;
				memmove(m + pos, m + pos + 1 + (seed >> 8) % 32,
				    30);
			}
		}
		client_disconnect(c);
		client_connect(c);
		c->step = seed % 3 ? SIZE_MAX : 1 + (seed >> 4) % 5000;
		c->fake.end = seed % 5 % 3;
		client_push(c, m, b.len);
		client_settle(c);
		if (c->error != 0)
			assert_true(nbd_error(c->session)[0] != '\0');
		assert_true(
		    c->max_held <= c->limits.max_bytes + NBD_MAX_PAYLOAD);
	}
	free(m);
	client_free(c);
	bytes_free(&b);
}

static void
test_mutations(void **state)
{
	(void)state;
	in_each_kind(mutations);
}

/* Wherever memory runs out: ENOMEM, or the end; never a crash, nor a leak. */
static void
test_out_of_memory(void **state)
{
	struct bytes b = { 0 };
	unsigned n, nr_failed = 0;

	(void)state;
	record(&b);
	for (n = 0; n < 200; n++) {
		struct client *c = client_new(NULL);

		c->fake.end = n % 3;
		c->step = n % 2 ? 3000 : SIZE_MAX;
		memory_left = n / 2;
		client_push(c, b.p, b.len);
		memory_left = UINT32_MAX;
		client_settle(c);
		nr_failed += c->error == -ENOMEM;
		client_free(c);
	}
	assert_true(nr_failed > 0);
	bytes_free(&b);
}

/* ----------------------------------------------------------------- limits */

static void
test_idle_holds_nothing(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };
	struct iovec iov[2];
	unsigned i;

	(void)state;
	for (i = 0; i < 28; i++) { /* with the start of a header */
		assert_null(c->session->in);
		assert_int_equal(c->session->held, 0);
		assert_int_equal(c->session->nr_blocks, 0);
		/* a read that finds nothing changes nothing */
		assert_int_equal(nbd_want(c->session, iov, 2), 1);
		assert_int_equal(iov[0].iov_len, NBD_CHUNK - i);
		client_got(c, 0);
		add_request(&b, NBD_CMD_READ, 0, 1, 0, 512);
		memmove(b.p, b.p + i, 1);
		b.len = 1;
		client_send(c, &b);
	}
	client_settle(c);
	expect_reply(c, 1, 0, 512);
	client_free(c);
}

/* What cannot go on does not read on. */
static void
test_requests_are_bounded(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };
	unsigned i, n = 0;
	size_t done;

	(void)state;
	c->fake.end = FAKE_SOFTIRQ;
	for (i = 0; i < 3 * c->limits.max_requests; i++)
		add_request(&b, NBD_CMD_READ, 0, i, 4096 * (i % 1024), 512);
	client_read(c, b.p, b.len);
	done = b.len; /* all of it is in the chunk */
	assert_int_equal(c->session->nr_commands, c->limits.max_requests);
	assert_false(nbd_listens(c->session));
	assert_true(done <= NBD_CHUNK);
	while (c->session->nr_commands > 0 || c->woken) {
		client_turn(c);
		assert_true(c->session->nr_commands <= c->limits.max_requests);
	}
	while (c->in.len > c->in_pos)
		expect_reply(c, n++, 0, 512);
	assert_int_equal(n, 3 * c->limits.max_requests);
	assert_true(nbd_listens(c->session));
	bytes_free(&b);
	client_free(c);
}

static void
test_bytes_are_bounded(void **state)
{
	struct world w = world_default();
	struct client *c;
	struct bytes b = { 0 };
	size_t done;
	unsigned i;

	(void)state;
	w.depth = 10000;
	c = client_new(&w);
	c->export[0].size = 1ull << 40;
	client_go(c, true);
	c->fake.end = FAKE_HELD;
	for (i = 0; i < 100; i++)
		add_write(&b, i, (uint64_t)i << 24, MIB, 'm');
	done = client_push(c, b.p, b.len);
	assert_in_range(done, 63 * MIB, 66 * MIB);
	assert_true(c->max_held <= c->limits.max_bytes + 2 * MIB);
	assert_false(nbd_listens(c->session));
	c->fake.end = FAKE_NOW;
	fake_release(c, UINT32_MAX);
	client_settle(c);
	done += client_push(c, b.p + done, b.len - done);
	assert_int_equal(done, b.len);
	for (i = 0; i < 100; i++)
		expect_reply(c, i, 0, 0);
	bytes_free(&b);
	client_free(c);
}

/* A few bytes of each chunk hold the whole of it. */
static void
test_pinned_chunks_count(void **state)
{
	struct world w = world_default();
	struct client *c;
	struct bytes b = { 0 };
	unsigned i, j;

	(void)state;
	w.depth = 10000;
	c = client_new(&w);
	client_go(c, true);
	c->fake.end = FAKE_HELD;
	for (i = 0; i < 500; i++) {
		add_write(&b, i, 512 * i, 512, 'h');
		for (j = 0; j < 3; j++) { /* refused: they are not held */
			add_request(&b, NBD_CMD_WRITE, 0x8000, 9, 0, 80000);
			bytes_fill(&b, 'h', 80000);
		}
		if (client_push(c, b.p, b.len) < b.len)
			break;
		b.len = 0;
	}
	assert_in_range(i, 200, 300);
	assert_true(c->max_held <= c->limits.max_bytes + 2 * NBD_CHUNK);
	bytes_free(&b);
	client_free(c);
}

/* A client that reads nothing stops being listened to, and recovers. */
static void
test_slow_reader(void **state)
{
	static const struct {
		uint16_t type;
		uint32_t len, nr;
	} kinds[] = { { 99, 0, 20000 }, { NBD_CMD_READ, 1, 20000 },
		{ NBD_CMD_READ, 4096, 20000 }, { NBD_CMD_READ, MIB, 100 } };
	unsigned i, j;

	(void)state;
	for (i = 0; i < 4; i++) {
		struct client *c = transmission();
		struct bytes b = { 0 };
		size_t done, data_len;

		for (j = 0; j < kinds[i].nr; j++)
			add_request(&b, kinds[i].type, 0, j, 0, kinds[i].len);
		c->deaf = true;
		done = client_push(c, b.p, b.len);
		assert_false(nbd_listens(c->session));
		assert_true(done <= 2 * NBD_CHUNK);
		assert_true(c->session->nr_commands <= c->limits.max_requests);
		assert_true(c->max_held <= c->limits.max_bytes + 2 * MIB);
		assert_true(c->session->nr_blocks * 4096 <=
			    NBD_MAX_UNSENT + 32 * c->limits.max_requests);
		c->deaf = false;
		client_settle(c);
		assert_int_equal(
		    client_push(c, b.p + done, b.len - done), b.len - done);
		data_len = kinds[i].type == NBD_CMD_READ ? kinds[i].len : 0;
		for (j = 0; j < kinds[i].nr; j++)
			expect_reply(c, j, kinds[i].type == 99 ? NBD_EINVAL : 0,
			    data_len);
		expect_no_more(c);
		assert_true(nbd_listens(c->session));
		bytes_free(&b);
		client_free(c);
	}
}

/* ------------------------------------------------------------------- ends */

static void
test_disc(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };

	(void)state;
	c->fake.end = FAKE_HELD;
	add_request(&b, NBD_CMD_READ, 0, 1, 0, 8192);
	add_request(&b, NBD_CMD_DISC, 0xffff, 2, 77, 99); /* N157 */
	add_request(&b, NBD_CMD_READ, 0, 3, 0, 512);
	client_send(c, &b);
	assert_false(nbd_listens(c->session));
	assert_false(nbd_done(c->session));
	c->deaf = true;
	fake_release(c, 1);
	client_settle(c);
	assert_false(nbd_done(c->session));
	c->deaf = false;
	client_receive(c);
	expect_reply(c, 1, 0, 8192);
	expect_no_more(c);
	assert_true(nbd_done(c->session));
	client_free(c);
}

static void
test_half_close(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	c->fake.end = FAKE_SOFTIRQ;
	for (i = 0; i < 2 * c->limits.max_requests; i++)
		add_request(&b, NBD_CMD_READ, 0, i, 0, 512);
	bytes_add(&b, "half", 4);
	client_read(c, b.p, b.len);
	nbd_eof(c->session, c->now);
	assert_false(nbd_done(c->session));
	client_settle(c);
	for (i = 0; i < 2 * c->limits.max_requests; i++)
		expect_reply(c, i, 0, 512);
	assert_true(nbd_done(c->session));
	bytes_free(&b);
	client_free(c);
}

static void
test_shutdown(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };

	(void)state;
	c->fake.end = FAKE_HELD;
	client_request(c, NBD_CMD_READ, 0, 1, 0, 512);
	nbd_shutdown(c->session);
	assert_true(c->woken);
	client_settle(c);
	add_request(&b, NBD_CMD_READ, 0, 2, 0, 512);
	add_write(&b, 3, 0, 100000, 's');
	add_request(&b, NBD_CMD_FLUSH, 0, 4, 0, 0);
	client_send(c, &b);
	expect_reply(c, 2, NBD_ESHUTDOWN, 0);
	expect_reply(c, 3, NBD_ESHUTDOWN, 0);
	expect_reply(c, 4, NBD_ESHUTDOWN, 0);
	assert_false(nbd_done(c->session));
	fake_release(c, 1);
	client_settle(c);
	expect_reply(c, 1, 0, 512);
	assert_true(nbd_done(c->session));
	client_free(c);

	c = transmission();
	nbd_shutdown(c->session); /* idle: it is over */
	assert_true(nbd_done(c->session));
	client_free(c);
}

static void
test_abort_in_flight(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };
	struct iovec iov[2];
	unsigned i;

	(void)state;
	c->fake.end = FAKE_HELD;
	for (i = 0; i < 40; i++) {
		add_request(&b, NBD_CMD_READ, 0, i, 8192 * i, 8192);
		add_write(&b, i, 8192 * i + (1 << 20), 3000, 'x');
	}
	client_send(c, &b);
	fake_release(c, 10);
	assert_true(c->session->sent < c->session->appended);
	nbd_abort(c->session, c->now);
	c->woken = false;
	assert_int_equal(nbd_out(c->session, iov, 2), 0);
	assert_int_equal(nbd_want(c->session, iov, 2), 0);
	assert_int_equal(nbd_got(c->session, 0, false, c->now), 0);
	assert_int_equal(nbd_in_flight(c->session), 70);
	assert_false(nbd_done(c->session));
	fake_release(c, 69);
	assert_false(c->woken);
	fake_release(c, 1);
	assert_true(c->woken);
	assert_true(nbd_done(c->session));
	assert_int_equal(c->session->held, 0);
	client_free(c);
}

/* What is in an open plug when the client goes is not lost in it. */
static void
test_abort_with_plug(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };

	(void)state;
	add_request(&b, NBD_CMD_READ, 0, 1, 0, 8192);
	add_write(&b, 2, 0, 1000, 'x');
	b.len -= 1;
	client_send(c, &b);
	assert_int_equal(nbd_in_flight(c->session), 1);
	nbd_abort(c->session, c->now);
	assert_int_equal(nbd_in_flight(c->session), 0);
	assert_true(nbd_next(c->session) == NBD_NEVER);
	client_free(c);
}

/* What is told of it to others. */
static void
test_what_is_told(void **state)
{
	struct client *c = client_new(NULL);

	(void)state;
	assert_int_equal(nbd_features(c->session), 0);
	assert_int_equal(nbd_requests(c->session), 0);
	client_go(c, true);
	assert_true(nbd_features(c->session) & NBD_FEATURE_BLOCK_SIZE);
	c->fake.end = FAKE_HELD;
	for (uint64_t i = 0; i < 3; i++)
		client_request(c, NBD_CMD_READ, 0, i, i * 8192, 4096);
	assert_int_equal(nbd_requests(c->session), 3);
	nbd_abort(c->session, c->now);
	fake_release(c, 3);
	assert_int_equal(nbd_requests(c->session), 0);
	client_free(c);

	c = transmission();
	assert_false(nbd_features(c->session) & NBD_FEATURE_BLOCK_SIZE);
	client_free(c);
}

/* Who frees a session is not woken for it any more. */
static void
test_free_wakes_nobody(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	c->export[0].plug_nsec = 1000000;
	client_go(c, false);
	c->fake.end = FAKE_HELD;
	for (i = 0; i < 1500; i++) /* blocked, and stalled for a tag */
		add_request(&b, NBD_CMD_READ, 0, i, 8192 * i, 512);
	client_read(c, b.p, b.len);
	bytes_free(&b);
	assert_true(nbd_next(c->session) == NBD_STALLED);
	fake_release(c, UINT32_MAX);
	c->woken = false;
	c->session->woken = false;
	nbd_session_free(c->session);
	c->session = NULL;
	assert_false(c->woken);
	client_free(c);
}

/* A protocol error hangs up; what was in flight ends silently. */
static void
test_error_in_flight(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };

	(void)state;
	c->fake.end = FAKE_HELD;
	client_request(c, NBD_CMD_READ, 0, 1, 0, 8192);
	bytes_fill(&b, 'G', 28);
	client_send(c, &b);
	assert_int_equal(c->error, -EPROTO);
	assert_false(nbd_done(c->session));
	fake_release(c, 1);
	assert_true(nbd_done(c->session));
	client_settle(c);
	expect_no_more(c);
	assert_int_equal(nbd_got(c->session, 0, false, c->now), -EPROTO);
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
		CASE("answers the same in whatever fragments (N7, N75, N110)",
		    test_fragments),
		CASE("answers the same wherever it is cut (N110)",
		    test_every_cut),
		CASE("ends wherever the client goes (N8, N163)",
		    test_truncations),
		CASE("does not apply a write that is not all there (N163)",
		    test_partial_write_is_not_applied),
		CASE("survives 10,000 mutations in bounded memory",
		    test_mutations),
		CASE("survives the end of memory", test_out_of_memory),
		CASE("holds no buffer while it is idle",
		    test_idle_holds_nothing),
		CASE(
		    "bounds the requests in flight", test_requests_are_bounded),
		CASE("bounds the bytes in flight", test_bytes_are_bounded),
		CASE("bounds the chunks that small writes hold",
		    test_pinned_chunks_count),
		CASE("stops listening to a client that does not (N165)",
		    test_slow_reader),
		CASE("finishes what is in flight at DISC (N156 to N158)",
		    test_disc),
		CASE("answers everything after a half-close (N164)",
		    test_half_close),
		CASE("answers ESHUTDOWN while shutting down (N162)",
		    test_shutdown),
		CASE("ends silently when the client is gone",
		    test_abort_in_flight),
		CASE("empties its plug when the client is gone",
		    test_abort_with_plug),
		CASE("tells what was agreed on, and what is unanswered",
		    test_what_is_told),
		CASE("wakes nobody when it is freed", test_free_wakes_nobody),
		CASE("hangs up on an error with bios in flight (N108)",
		    test_error_in_flight),
	};

	return RUN_BOTH_WAYS(tests);
}
