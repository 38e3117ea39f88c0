/* SPDX-License-Identifier: MIT */
/* The output: one stream of bytes, sent in any portions (N123 to N128). */
#include "client.h"

static struct client *
transmission(void)
{
	struct client *c = client_new(NULL);

	client_go(c, false);
	return c;
}

static void
test_headers_join(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };
	struct iovec iov[64];
	unsigned i;

	(void)state;
	c->deaf = true;
	for (i = 0; i < 100; i++)
		add_write(&b, i, 4096 * i, 512, 'j');
	client_send(c, &b);
	assert_int_equal(nbd_out(c->session, iov, 64), 1);
	assert_int_equal(iov[0].iov_len, 1600);
	c->deaf = false;
	client_receive(c);
	for (i = 0; i < 100; i++)
		expect_reply(c, i, 0, 0);
	expect_no_more(c);
	assert_int_equal(c->session->nr_blocks, 0);
	client_free(c);
}

/* A read that is long enough is answered from where the driver has it. */
static void
test_pinned(void **state)
{
	struct client *c = transmission();
	struct iovec iov[64];

	(void)state;
	c->deaf = true;
	client_request(c, NBD_CMD_READ, 0, 1, 0, NBD_READ_COPY);
	assert_int_equal(c->fake.nr_pinned, 1);
	assert_int_equal(nbd_in_flight(c->session), 0);
	client_request(c, NBD_CMD_READ, 0, 2, 0, NBD_READ_COPY - 1);
	assert_int_equal(c->fake.nr_pinned, 1);
	assert_int_equal(nbd_out(c->session, iov, 64), 3);
	assert_int_equal(iov[0].iov_len, 16);
	assert_int_equal(iov[1].iov_len, NBD_READ_COPY);
	assert_int_equal(iov[2].iov_len, 16 + NBD_READ_COPY - 1);
	nbd_sent(c->session, 16 + NBD_READ_COPY - 1);
	assert_int_equal(c->fake.nr_pinned, 1);
	nbd_sent(c->session, 1);
	assert_int_equal(c->fake.nr_pinned, 0);
	assert_true(c->session->held > 0);
	nbd_sent(c->session, 16 + NBD_READ_COPY - 1);
	assert_int_equal(c->session->held, 0);
	assert_int_equal(nbd_out(c->session, iov, 64), 0);
	client_free(c);
}

/* What a read shows is what was there when it was served. */
static void
test_reads_keep_their_time(void **state)
{
	struct client *c = transmission();

	(void)state;
	client_write(c, 1, 0, 8192, 'a');
	expect_reply(c, 1, 0, 0);
	c->deaf = true;
	client_request(c, NBD_CMD_READ, 0, 2, 0, 8192);
	client_write(c, 3, 0, 8192, 'b');
	c->deaf = false;
	client_settle(c);
	expect_data(expect_reply(c, 2, 0, 8192), 'a', 8192);
	expect_reply(c, 3, 0, 0);
	client_free(c);
}

/* Splits cut a bio; its pieces come out in order, in whatever portions. */
static void
test_pieces_after_splits(void **state)
{
	static const size_t steps[] = { 1, 15, 16, 17, 4095, 100000, SIZE_MAX };
	static const unsigned pieces[] = { 100, 4096, 1 << 20 };
	struct world w = world_default();
	char *data = malloc(1 << 20);
	unsigned i, j;

	(void)state;
	w.limits.max_sectors = 16;
	for (i = 0; i < 1 << 20; i++)
		data[i] = (char)(i * 2654435761u >> 24);
	for (i = 0; i < 7; i++)
		for (j = 0; j < 3; j++) {
			struct client *c = client_new(&w);

			client_go(c, false);
			memcpy(c->fake.data, data, 1 << 20);
			c->out_step = steps[i];
			c->fake.piece = pieces[j];
			client_request(c, NBD_CMD_READ, 0, 9, 5000, 100000);
			assert_memory_equal(
			    expect_reply(c, 9, 0, 100000), data + 5000, 100000);
			expect_no_more(c);
			assert_true(c->fake.nr_log > 10);
			client_free(c);
		}
	free(data);
}

/* The first error of a command's bios is its reply, without data (N124). */
static void
test_errors(void **state)
{
	static const struct {
		int error;
		uint32_t wire;
	} errors[] = {
		{ -EPERM, NBD_EPERM },
		{ -EROFS, NBD_EPERM },
		{ -EIO, NBD_EIO },
		{ -ENOMEM, NBD_ENOMEM },
		{ -EINVAL, NBD_EINVAL },
		{ -ENOSPC, NBD_ENOSPC },
		{ -EDQUOT, NBD_ENOSPC },
		{ -EFBIG, NBD_ENOSPC },
		{ -EOVERFLOW, NBD_EIO },
		{ -ETOOMANYREFS, NBD_EIO },
		{ -ESHUTDOWN, NBD_ESHUTDOWN },
		{ -EOPNOTSUPP, NBD_EINVAL },
		{ -ETIMEDOUT, NBD_EIO },
		{ -EREMOTEIO, NBD_EIO },
		{ -12345, NBD_EIO },
	};
	struct client *c = transmission();
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		c->fake.error = errors[i].error;
		client_request(c, NBD_CMD_READ, 0, i, 0, 512);
		expect_reply(c, i, errors[i].wire, 0);
		client_request(c, NBD_CMD_READ, 0, i, 0, 1 << 20);
		expect_reply(c, i, errors[i].wire, 0);
		client_write(c, i, 0, 5000, 'e');
		expect_reply(c, i, errors[i].wire, 0);
	}
	c->fake.error = 0;
	client_request(c, NBD_CMD_READ, 0, 1, 0, 512);
	expect_reply(c, 1, 0, 512);
	expect_no_more(c);
	client_free(c);
}

static void
test_replies_in_order_of_completion(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };
	struct request *rq;

	(void)state;
	c->fake.end = FAKE_HELD;
	add_request(&b, NBD_CMD_READ, 0, 1, 0, 8192);
	add_request(&b, NBD_CMD_READ, 0, 2, 1 << 20, 512);
	add_request(&b, NBD_CMD_READ, 0, 3, 2 << 20, 8192);
	client_send(c, &b);
	rq = TAILQ_LAST(&c->fake.held, request_list);
	TAILQ_REMOVE(&c->fake.held, rq, link);
	TAILQ_INSERT_HEAD(&c->fake.held, rq, link);
	fake_release(c, 3);
	client_settle(c);
	expect_reply(c, 3, 0, 8192);
	expect_reply(c, 1, 0, 8192);
	expect_reply(c, 2, 0, 512);
	client_free(c);
}

/* Wake is called when output appears, not for each reply. */
static void
test_wakes_once(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	c->fake.end = FAKE_HELD;
	for (i = 0; i < 10; i++)
		add_request(&b, NBD_CMD_READ, 0, i, 65536 * i, 512);
	client_send(c, &b);
	c->nr_wakes = 0;
	fake_release(c, 4);
	assert_int_equal(c->nr_wakes, 1);
	client_settle(c);
	fake_release(c, 1);
	assert_int_equal(c->nr_wakes, 2);
	client_free(c);
}

static void
test_many_blocks(void **state)
{
	struct client *c = transmission();
	struct bytes b = { 0 };
	unsigned i, n;
	uint32_t seed = 7;

	(void)state;
	c->deaf = true;
	for (i = 0; i < 1000; i++)
		if (i % 3 == 0)
			add_request(&b, NBD_CMD_READ, 0, i, 512 * i, 5000);
		else
			add_write(&b, i, 2 << 20, 300, 'b');
	client_send(c, &b);
	c->deaf = false;
	while (c->session->sent < c->session->appended) {
		seed = seed * 1103515245 + 12345;
		c->out_step = 1 + (seed >> 8) % 3000;
		client_receive(c);
	}
	client_settle(c);
	for (i = 0, n = 0; i < 1000; i++)
		n += get_be64(
			 expect_reply(c, i, 0, i % 3 == 0 ? 5000 : 0) - 8) == i;
	assert_int_equal(n, 1000);
	expect_no_more(c);
	assert_int_equal(c->session->held, 0);
	client_free(c);
}

/* ---------------------------------------------------------------- chunks */

static struct client *
chunks_begin(void)
{
	struct client *c = client_new(NULL);

	c->fake.sparse = true;
	c->export[0].zeros = fake_zeros;
	c->export[0].zeros_size = sizeof(fake_zeros);
	client_speak(c, NULL);
	return c;
}

static void
expect_data_chunk(struct client *c, uint64_t cookie, uint64_t offset,
    uint64_t pos, uint64_t size, char fill, bool last)
{
	uint64_t len;
	const char *p =
	    expect_chunk(c, cookie, offset, NBD_CHUNK_OFFSET_DATA, last, &len);

	assert_true(get_be64(p) == pos);
	assert_int_equal(len, 8 + size);
	expect_data(p + 8, fill, size);
}

static void
expect_hole_chunk(struct client *c, uint64_t cookie, uint64_t offset,
    uint64_t pos, uint32_t size, bool last)
{
	uint64_t len;
	const char *p =
	    expect_chunk(c, cookie, offset, NBD_CHUNK_OFFSET_HOLE, last, &len);

	assert_int_equal(len, 12); /* N129 */
	assert_true(get_be64(p) == pos);
	assert_int_equal(get_be32(p + 8), size);
}

static void
reads_in_chunks(void)
{
	struct client *c = chunks_begin();
	uint64_t len;
	const char *p;

	client_write(c, 1, 16384, 8192, 'd');
	client_write(c, 2, 65536, 32768, 'e');
	expect_success(c, 1, 16384);
	expect_success(c, 2, 65536);
	/* short: a hole, or one run of data */
	client_request(c, NBD_CMD_READ, 0, 3, 0, 4096);
	expect_hole_chunk(c, 3, 0, 0, 4096, true);
	client_request(c, NBD_CMD_READ, 0, 4, 16384, 8192);
	expect_data_chunk(c, 4, 16384, 16384, 8192, 'd', true);
	client_request(c, NBD_CMD_READ, 0, 5, 12288, 8192);
	p = expect_chunk(c, 5, 12288, NBD_CHUNK_OFFSET_DATA, true, &len);
	assert_int_equal(len, 8 + 8192);
	expect_data(p + 8, 0, 4096);
	expect_data(p + 8 + 4096, 'd', 4096);
	/* long: as they lie */
	client_request(c, NBD_CMD_READ, 0, 6, 8192, 131072);
	expect_hole_chunk(c, 6, 8192, 8192, 8192, false);
	expect_data_chunk(c, 6, 8192, 16384, 8192, 'd', false);
	expect_hole_chunk(c, 6, 8192, 24576, 40960, false);
	expect_data_chunk(c, 6, 8192, 65536, 32768, 'e', false);
	expect_hole_chunk(c, 6, 8192, 98304, 40960, true);
	client_request(c, NBD_CMD_READ, 0, 7, 1 << 20, 1 << 20);
	expect_hole_chunk(c, 7, 1 << 20, 1 << 20, 1 << 20, true);
	/* none of it: N120 */
	client_request(c, NBD_CMD_READ, 0, 8, 0, 0);
	expect_chunk(c, 8, 0, NBD_CHUNK_NONE, true, &len);
	assert_int_equal(len, 0);
	expect_no_more(c);
	assert_int_equal(c->session->held, 0);
	client_free(c);
}

static void
test_chunks(void **state)
{
	(void)state;
	in_both(reads_in_chunks);
}

static void
reads_do_not_fragment(void)
{
	struct client *c = chunks_begin();
	static const uint32_t lens[] = { 512, 65536, 1 << 20 };
	unsigned i;

	for (i = 0; i < 3; i++) {
		client_request(
		    c, NBD_CMD_READ, NBD_CMD_FLAG_DF, i, 4096, lens[i]);
		expect_data_chunk(c, i, 4096, 4096, lens[i], 0, true);
	}
	client_request(c, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_DF, 9, 0, 512);
	expect_failure(c, 9, 0, NBD_EINVAL, NULL); /* N115 */
	client_free(c);
}

static void
test_df(void **state)
{
	(void)state;
	in_both(reads_do_not_fragment);
}

/* A device whose holes are to be read: its data is sent. */
static void
reads_zeros_of_null(void)
{
	struct client *c = chunks_begin();

	c->export[0].zeros = NULL;
	client_request(c, NBD_CMD_READ, 0, 1, 0, 4096);
	expect_data_chunk(c, 1, 0, 0, 4096, 0, true);
	client_request(c, NBD_CMD_READ, 0, 2, 0, 1 << 20);
	expect_data_chunk(c, 2, 0, 0, 1 << 20, 0, true);
	client_free(c);
}

static void
test_null(void **state)
{
	(void)state;
	in_both(reads_zeros_of_null);
}

static void
errors_in_chunks(void)
{
	struct client *c = chunks_begin();
	uint64_t at = 8192;
	const char *text;

	client_request(c, NBD_CMD_READ, 0, 1, FAKE_SIZE, 512);
	text = expect_failure(c, 1, FAKE_SIZE, NBD_EINVAL, NULL); /* N126 */
	assert_string_equal(text, "READ of 512 bytes at 8388608: "
				  "not within the export");
	client_write(c, 2, FAKE_SIZE - 512, 1024, 'x');
	expect_failure(c, 2, FAKE_SIZE - 512, NBD_ENOSPC, NULL);
	client_request(c, 4711, 0, 3, 0, 0);
	text = expect_failure(c, 3, 0, NBD_EINVAL, NULL);
	assert_string_equal(text, "command 4711: no such command");
	c->fake.error = -EIO;
	client_request(c, NBD_CMD_READ, 0, 4, 8192, 4096);
	text = expect_failure(c, 4, 8192, NBD_EIO, &at);
	assert_string_equal(
	    text, "READ of 4096 bytes at 8192: Input/output error");
	client_request(c, NBD_CMD_READ, 0, 5, 8192, 1 << 20);
	expect_failure(c, 5, 8192, NBD_EIO, &at);
	client_write(c, 6, 8192, 4096, 'x');
	expect_failure(c, 6, 8192, NBD_EIO, &at);
	c->fake.error = -ETOOMANYREFS; /* what Linux calls those of zones */
	client_write(c, 7, 8192, 4096, 'x');
	text = expect_failure(c, 7, 8192, NBD_EIO, &at);
	assert_string_equal(
	    text, "WRITE of 4096 bytes at 8192: Too many open zones");
	c->fake.error = -EOVERFLOW;
	client_write(c, 8, 8192, 4096, 'x');
	text = expect_failure(c, 8, 8192, NBD_EIO, &at);
	assert_string_equal(
	    text, "WRITE of 4096 bytes at 8192: Too many active zones");
	client_request(c, NBD_CMD_TRIM, 0, 7, 8192, 4096);
	expect_failure(c, 7, 8192, NBD_EIO, &at);
	client_request(
	    c, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, 9, 8192, 4096);
	expect_failure(c, 9, 8192, NBD_ENOTSUP, &at); /* N145 */
	expect_no_more(c);
	assert_int_equal(c->session->held, 0);
	client_free(c);
}

static void
test_chunk_errors(void **state)
{
	(void)state;
	in_both(errors_in_chunks);
}

static void
flush_fails(void)
{
	struct world w = world_default();
	struct client *c;

	w.limits.write_cache = true;
	c = client_new(&w);
	client_speak(c, NULL);
	c->fake.error = -EIO;
	client_request(c, NBD_CMD_FLUSH, 0, 1, 0, 0);
	expect_failure(c, 1, 0, NBD_EIO, NULL);
	client_request(c, NBD_CMD_FLUSH, 0, 2, 8192, 4096);
	expect_failure(c, 2, 8192, NBD_EIO, NULL);
	expect_no_more(c);
	client_free(c);
}

static void
test_flush_fails_nowhere(void **state)
{
	(void)state;
	in_both(flush_fails);
}

/* With a simple client none of it is seen. */
static void
test_simple_sees_no_holes(void **state)
{
	struct client *c = chunks_begin();
	uint32_t len;

	(void)state;
	for (len = 4096; len <= 1 << 20; len *= 16) {
		client_request(c, NBD_CMD_READ, 0, len, 0, len);
		expect_data(expect_reply(c, len, 0, len), 0, len);
	}
	client_request(c, NBD_CMD_READ, NBD_CMD_FLAG_DF, 1, 0, 512);
	expect_reply(c, 1, NBD_EINVAL, 0);
	expect_no_more(c);
	client_free(c);
}

#define CASE(sentence, function)                     \
	{                                            \
		sentence, function, NULL, NULL, NULL \
	}

/*
 * The device says when to hang up: what was answered before still goes out,
 * then so much of this reply, and nothing behind it.
 */
static void
test_hangs_up_in_a_reply(void **state)
{
	static const struct {
		enum bio_hang_up when;
		uint16_t type;
		uint32_t len;
		size_t comes; /* of the reply */
	} at[] = {
		{ HANG_UP_BEFORE, NBD_CMD_READ, 4096, 0 },
		{ HANG_UP_BEFORE, NBD_CMD_WRITE, 4096, 0 },
		{ HANG_UP_EARLY, NBD_CMD_READ, 4096, 8 },
		{ HANG_UP_EARLY, NBD_CMD_READ, 100000, 8 },
		{ HANG_UP_EARLY, NBD_CMD_WRITE, 4096, 8 },
		{ HANG_UP_HALFWAY, NBD_CMD_READ, 4096, 8 + 2048 },
		{ HANG_UP_HALFWAY, NBD_CMD_READ, 100000, 8 + 50000 },
		{ HANG_UP_HALFWAY, NBD_CMD_WRITE, 4096, 8 },
	};
	static const size_t steps[] = { 1, 15, 16, 4000, SIZE_MAX };

	(void)state;
	for (unsigned i = 0; i < 8 * 5; i++) {
		unsigned k = i / 5;
		struct client *c = transmission();
		struct bytes b = { 0 };

		c->out_step = steps[i % 5];
		c->fake.hang_up = at[k].when;
		c->fake.hang_up_pos = 8192;
		add_write(&b, 1, 0, 512, 'a');
		if (at[k].type == NBD_CMD_WRITE)
			add_write(&b, 2, 8192, at[k].len, 'b');
		else
			add_request(&b, NBD_CMD_READ, 0, 2, 8192, at[k].len);
		add_write(&b, 3, 0, 512, 'c');
		client_push(c, b.p, b.len);
		bytes_free(&b);
		client_settle(c);
		expect_reply(c, 1, 0, 0);
		assert_int_equal(c->in.len - c->in_pos, at[k].comes);
		assert_int_equal(c->error, -ECONNABORTED);
		assert_string_equal(
		    nbd_error(c->session), "the device hangs up");
		assert_true(nbd_done(c->session));
		assert_int_equal(c->session->nr_commands, 0);
		client_free(c);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("sends adjacent headers as one iovec (N123)",
		    test_headers_join),
		CASE("holds what a read pins until it was sent", test_pinned),
		CASE("shows what was there when a read was served",
		    test_reads_keep_their_time),
		CASE("sends the pieces of a split read in order, in any "
		     "portions (N110)",
		    test_pieces_after_splits),
		CASE("chooses the NBD error, and sends no data with it "
		     "(N121, N124)",
		    test_errors),
		CASE("replies in order of completion (N137)",
		    test_replies_in_order_of_completion),
		CASE(
		    "wakes once for what can be sent at once", test_wakes_once),
		CASE("keeps a long backlog in order", test_many_blocks),
		CASE("reads in chunks of data and holes (N77, N120, N126 to "
		     "N130, N171)",
		    test_chunks),
		CASE("sends one chunk of data with DF (N131)", test_df),
		CASE("moves the bytes of a device without memory", test_null),
		CASE("says what is wrong, and where (N126, N133, N134)",
		    test_chunk_errors),
		CASE("names no place where a flush failed, whatever its "
		     "reserved fields say (N134, N140)",
		    test_flush_fails_nowhere),
		CASE("shows no hole to a simple client (N123)",
		    test_simple_sees_no_holes),
		CASE("hangs up in a reply where the device says so",
		    test_hangs_up_in_a_reply),
	};

	return RUN_BOTH_WAYS(tests);
}
