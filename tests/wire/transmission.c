/* SPDX-License-Identifier: MIT */
/*
 * Commands one at a time: how requests are parsed, which errors they get and
 * what they do to the data: sections 11 to 13 of the spec.
 */
#include "../lib/wire.h"

#include <stdlib.h>
#include <string.h>

#define NR(a) (sizeof(a) / sizeof(*(a)))
#define SIZE  (64ull * MiB)

static struct daemon *nullbd;

/* What the flags of a device may be. */
static const char *const devices[] = { "full", "plain", "notrim", "big", "wz" };

static int
start(void **state)
{
	(void)state;
	nullbd = daemon_start("full:size=64M,memory_backed=1,discard=1",
	    "plain:size=64M", "notrim:size=64M,memory_backed=1",
	    "big:size=64M,memory_backed=1,discard=1,blocksize=4096",
	    "wz:size=64M,memory_backed=1,write_zeroes_max_bytes=1M",
	    "ro:size=64M,memory_backed=1,discard=1,ro=1",
	    "small:size=64M,memory_backed=1,memory_limit=1M", NULL);
	nullbd->shared = true;
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	daemon_stop(nullbd);
	return 0;
}

/*
 * Any command.  A WRITE's payload is made of DISC requests: a server that
 * does not pass over it whole takes them for commands and leaves.
 */
static uint32_t
command(struct wire *w, uint16_t flags, uint16_t type, uint64_t offset,
    uint32_t length)
{
	uint64_t cookie = w->next_cookie++;
	uint32_t error;

	wire_request(w, flags, type, cookie, offset, length);
	if (type == CMD_WRITE && length) {
		uint8_t *trap = xmalloc(length + REQUEST_SIZE);

		for (uint32_t i = 0; i < length; i += REQUEST_SIZE)
			put_request(trap + i, 0, CMD_DISC, 0, 0, 0);
		wire_send(w, trap, length);
		free(trap);
	}
	error = wire_reply(w, cookie);
	if (type == CMD_READ && !error) {
		uint8_t *data = xmalloc(length);

		wire_recv(w, data, length);
		free(data);
	}
	return error;
}

static void
expect(struct wire *w, uint16_t flags, uint16_t type, uint64_t offset,
    uint32_t length, uint32_t want)
{
	uint32_t error = command(w, flags, type, offset, length);

	if (error != want)
		wire_fail("command %u, flags 0x%x, offset 0x%llx, length 0x%x:"
			  " error %u, want %u",
		    type, flags, (unsigned long long)offset, length, error,
		    want);
}

static bool
offers(const struct wire *w, uint16_t type)
{
	switch (type) {
	case CMD_READ:
	case CMD_WRITE: return true;
	case CMD_FLUSH: return w->tx_flags & TX_FLUSH;
	case CMD_TRIM: return w->tx_flags & TX_TRIM;
	case CMD_CACHE: return w->tx_flags & TX_CACHE;
	case CMD_WRITE_ZEROES: return w->tx_flags & TX_WRITE_ZEROES;
	default: return false;
	}
}

/* ---------------------------------------------------------------- parsing */

static void
drops_wrong_magic(void **state)
{
	static const uint32_t wrong[] = { 0, 0x13956025, 0x25609514, 0x12560953,
		0x96744668, 0x67446698, 0x668e33ef, 0x21e41c71, 0x25609512,
		0xa5609513, 0xffffffff };

	(void)state;
	for (size_t i = 0; i < NR(wrong); i++) {
		struct wire *w = wire_open(nullbd, "full", false);
		uint8_t buf[REQUEST_SIZE];

		wire_assert_served(w, 0);
		put_request(buf, 0, CMD_READ, 1, 0, 512);
		put32(buf, wrong[i]);
		wire_send(w, buf, sizeof(buf));
		wire_expect_eof(w);
		wire_close(w);
	}
}

/* What came before is answered, what comes after is not looked at. */
static void
wrong_magic_after_good_requests(void **state)
{
	struct wire *w = wire_open(nullbd, "full", false);
	uint8_t buf[4 * REQUEST_SIZE], *p = buf, reply[16 + 512];
	bool eof;

	(void)state;
	fill(reply, 512, 1);
	assert_int_equal(wire_write(w, reply, 0, 512), 0);
	p = put_request(p, 0, CMD_READ, 1, 0, 512);
	p = put_request(p, 0, CMD_READ, 2, 0, 512);
	p[-28] = 0;
	p = put_request(p, 0, CMD_WRITE_ZEROES, 3, 0, 512);
	p = put_request(p, 0, CMD_READ, 4, 0, 512);
	wire_send(w, buf, sizeof(buf));
	if (wire_drain(w, reply, sizeof(reply), 3000, &eof)) {
		assert_int_equal(get64(reply + 8), 1);
		wire_expect_eof(w);
	}
	w = wire_open(nullbd, "full", false);
	assert_int_equal(wire_read(w, reply, 0, 512), 0);
	fill(buf, 16, 1);
	assert_memory_equal(reply, buf, 16);
}

static void
echoes_cookies(void **state)
{
	static const uint64_t cookies[] = { 0, 1, 0xffffffff, 0x100000000,
		~0ULL, 1ULL << 63, 0x0123456789abcdef, 0x6744669800000000,
		0x2560951325609513, 0x00007f1234567890 };
	struct wire *w = wire_open(nullbd, "full", false);
	uint64_t rng = 1;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		uint64_t cookie =
		    (size_t)i < NR(cookies) ? cookies[i] : rng_next(&rng);
		uint8_t data[512];

		wire_request(w, 0, CMD_READ, cookie, 0, 512);
		assert_int_equal(wire_reply(w, cookie), 0);
		wire_recv(w, data, 512);
		wire_request(w, 0, 77, cookie, 0, 0);
		assert_int_equal(wire_reply(w, cookie), E_INVAL);
	}
}

/* The same cookie many times in flight: each is answered. */
static void
bears_duplicate_cookies(void **state)
{
	struct wire *w = wire_open(nullbd, "full", false);
	uint8_t buf[200 * REQUEST_SIZE], *p = buf, data[200 * 512];

	(void)state;
	fill(data, sizeof(data), 9);
	assert_int_equal(wire_write(w, data, 0, sizeof(data)), 0);
	for (int i = 0; i < 200; i++)
		p = put_request(p, 0, CMD_READ, 7, (uint64_t)i * 512, 512);
	wire_send(w, buf, sizeof(buf));
	for (int i = 0; i < 200; i++) {
		assert_int_equal(wire_reply(w, 7), 0);
		wire_recv(w, data, 512);
	}
	wire_assert_served(w, 0);
}

static void
reuses_a_cookie_at_once(void **state)
{
	struct wire *w = wire_open(nullbd, "full", false);

	(void)state;
	for (int i = 0; i < 500; i++) {
		uint8_t data[512];

		wire_request(w, 0, CMD_WRITE, 5, 0, 512);
		memset(data, i, sizeof(data));
		wire_send(w, data, 512);
		assert_int_equal(wire_reply(w, 5), 0);
		wire_request(w, 0, CMD_READ, 5, 0, 512);
		assert_int_equal(wire_reply(w, 5), 0);
		wire_recv(w, data, 512);
		assert_int_equal(data[0], (uint8_t)i);
		assert_int_equal(data[511], (uint8_t)i);
	}
}

static void
reassembles_requests(void **state)
{
	struct wire *w = wire_open(nullbd, "full", false);
	uint8_t buf[REQUEST_SIZE + 600], want[600], got[600];

	(void)state;
	for (size_t cut = 1; cut < sizeof(buf); cut += cut < 40 ? 1 : 37) {
		fill(want, sizeof(want), cut);
		put_request(buf, 0, CMD_WRITE, cut, 1024, sizeof(want));
		memcpy(buf + REQUEST_SIZE, want, sizeof(want));
		wire_send(w, buf, cut);
		sleep_ms(1);
		wire_send(w, buf + cut, sizeof(buf) - cut);
		assert_int_equal(wire_reply(w, cut), 0);
		put_request(buf, 0, CMD_READ, cut, 1024, sizeof(got));
		wire_send(w, buf, cut < 28 ? cut : 27);
		sleep_ms(1);
		wire_send(
		    w, buf + (cut < 28 ? cut : 27), 28 - (cut < 28 ? cut : 27));
		assert_int_equal(wire_reply(w, cut), 0);
		wire_recv(w, got, sizeof(got));
		assert_same(got, want, sizeof(got), "a request in two pieces");
	}
}

static void
unknown_commands(void **state)
{
	static const uint16_t types[] = { 7, 8, 9, 10, 100, 0x100, 0x101,
		0x7fff, 0x8000, 0x8001, 0xffff };
	static const uint32_t lengths[] = { 0, 1, 512, 1 * MiB, 0xffffffff };

	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d], false);

		for (size_t i = 0; i < NR(types); i++)
			for (size_t k = 0; k < NR(lengths); k++)
				expect(w, 0, types[i], 0, lengths[k], E_INVAL);
		assert_int_equal(command(w, 0, CMD_READ, 0, 512), 0);
		wire_close(w);
	}
}

/* Which of the 16 flags go with which command. */
static bool
flag_is_legal(const struct wire *w, uint16_t type, uint16_t flag)
{
	switch (flag) {
	case CMD_FUA: return w->tx_flags & TX_FUA;
	case CMD_NO_HOLE: return type == CMD_WRITE_ZEROES;
	case CMD_FAST_ZERO:
		return type == CMD_WRITE_ZEROES && w->tx_flags & TX_FAST_ZERO;
	default: return false; /* DF, REQ_ONE, PAYLOAD_LEN, all others */
	}
}

static void
flags_of_commands(void **state)
{
	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d], false);

		for (uint16_t type = 0; type < 12; type++) {
			if (type == CMD_DISC)
				continue;
			for (int bit = 0; bit < 16; bit++) {
				uint16_t flag = (uint16_t)(1 << bit);
				uint32_t len = type == CMD_FLUSH ? 0 : 4096;
				uint64_t offset = type == CMD_FLUSH ? 0 : 8192;
				bool legal = offers(w, type) &&
					     flag_is_legal(w, type, flag);

				if (legal && flag == CMD_FAST_ZERO)
					continue; /* has a case of its own */
				expect(w, flag, type, offset, len,
				    legal ? 0 : E_INVAL);
			}
		}
		expect(w, 0xffff, CMD_WRITE, 0, 70000, E_INVAL);
		expect(w, 0xffff, CMD_READ, 0, 70000, E_INVAL);
		expect(w, 0, CMD_READ, 0, 4096, 0);
		wire_close(w);
	}
}

static void
fua_goes_with_every_command(void **state)
{
	static const uint16_t types[] = { CMD_READ, CMD_WRITE, CMD_FLUSH,
		CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES };
	struct wire *w = wire_open(nullbd, "full", false);

	(void)state;
	for (size_t i = 0; i < NR(types); i++) {
		if (!offers(w, types[i]))
			continue;
		expect(w, CMD_FUA, types[i], 0,
		    types[i] == CMD_FLUSH ? 0 : 4096,
		    w->tx_flags & TX_FUA ? 0 : E_INVAL);
	}
	wire_assert_served(w, 0);
	wire_request(w, CMD_FUA, CMD_DISC, 1, 0, 0);
	wire_expect_eof(w);
}

/* Bad writes of every size that could be buffered or passed over. */
static void
drains_bad_writes(void **state)
{
	static const uint32_t lengths[] = { 1, 27, 28, 29, 511, 512, 4096,
		65535, 65536, 65537, 1 * MiB, 4 * MiB + 5, 33 * MiB };
	struct wire *w = wire_open(nullbd, "full", false);
	uint8_t before[4096], after[4096];

	(void)state;
	fill(before, sizeof(before), 3);
	assert_int_equal(wire_write(w, before, SIZE - 4096, 4096), 0);
	for (size_t i = 0; i < NR(lengths); i++) {
		uint32_t n = lengths[i];

		expect(w, 0x40, CMD_WRITE, 0, n, E_INVAL);
		expect(w, CMD_DF, CMD_WRITE, 0, n, E_INVAL);
		expect(w, 0, CMD_WRITE, SIZE, n, E_NOSPC);
		expect(w, 0, CMD_WRITE, SIZE - n + 1, n, E_NOSPC);
		expect(w, 0, CMD_WRITE, ~0ULL - n, n, E_NOSPC);
		assert_int_equal(wire_read(w, after, SIZE - 4096, 4096), 0);
		assert_same(after, before, 4096, "a refused write");
	}
}

/* Many at once, good ones between them. */
static void
drains_bad_writes_in_a_pipeline(void **state)
{
	struct wire *w = wire_open(nullbd, "full", false);
	enum {
		N = 300
	};
	struct op *ops = calloc(N, sizeof(*ops));
	uint8_t *data = xmalloc(N * 5000), *got = xmalloc(N * 5000);
	uint64_t rng = 5;

	(void)state;
	fill(data, N * 5000, 5);
	for (size_t i = 0; i < N; i++) {
		ops[i].type = i % 2 ? CMD_WRITE : CMD_READ;
		ops[i].offset = i / 2 * 5000;
		ops[i].length = 5000;
		ops[i].data = data + i / 2 * 5000;
		ops[i].got = got;
		if (i % 4 == 1) {
			ops[i].offset += rng_below(&rng, 2) ? SIZE : 1ULL << 63;
			ops[i].length = (uint32_t)rng_below(&rng, 5000) + 1;
		} else if (i % 4 == 0) {
			ops[i].flags = 0x8000;
		}
	}
	batch_run(w, ops, N, 0);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(ops[i].error, i % 4 == 1   ? E_NOSPC
					       : i % 4 == 0 ? E_INVAL
							    : 0);
	for (size_t i = 3; i < N; i += 4) {
		assert_int_equal(wire_read(w, got, i / 2 * 5000, 5000), 0);
		assert_same(got, data + i / 2 * 5000, 5000, "a good write");
	}
	free(got);
	free(data);
	free(ops);
}

static void
range_checks_do_not_overflow(void **state)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
	} bad[] = {
		{ SIZE, 512 },
		{ SIZE - 512, 1024 },
		{ SIZE - 1, 2 },
		{ SIZE + 512, 512 },
		{ 1ULL << 32, 512 },
		{ 1ULL << 63, 512 },
		{ (1ULL << 63) - 512, 512 },
		{ (1ULL << 63) - 512, 1024 },
		{ 0 - 512ULL, 512 },
		{ 0 - 256ULL, 512 },
		{ 0 - 1ULL, 1 },
		{ 0 - 1ULL, 2 },
		{ 0 - 512ULL, 64 * MiB },
		{ 1, 64 * MiB },
		{ SIZE - 4096, 1 * MiB },
	};
	static const uint16_t types[] = { CMD_READ, CMD_WRITE, CMD_TRIM,
		CMD_CACHE, CMD_WRITE_ZEROES };

	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d], false);
		uint8_t *zeros = xmalloc(4096);

		memset(zeros, 0, 4096);
		for (size_t t = 0; t < NR(types); t++) {
			uint16_t type = types[t];
			uint32_t want =
			    type == CMD_WRITE || type == CMD_WRITE_ZEROES
				? E_NOSPC
				: E_INVAL;

			if (!offers(w, type))
				want = E_INVAL;
			for (size_t i = 0; i < NR(bad); i++)
				expect(w, 0, type, bad[i].offset, bad[i].length,
				    want);
			if (type == CMD_WRITE)
				continue;
			expect(w, 0, type, SIZE, 0xffffffff, want);
			expect(w, 0, type, 0, 0xffffffff, want);
			expect(w, 0, type, 0 - 512ULL, 0xffffffff, want);
			expect(w, 0, type, 1ULL << 63, 0xfffffe00, want);
		}
		/* and the last bytes that are there are served */
		expect(w, 0, CMD_READ, SIZE - 4096, 4096, 0);
		assert_int_equal(wire_write(w, zeros, SIZE - 4096, 4096), 0);
		free(zeros);
		wire_close(w);
	}
}

static void
read_only_refuses_changes(void **state)
{
	struct wire *w = wire_open(nullbd, "ro", false);

	(void)state;
	assert_true(w->tx_flags & TX_READ_ONLY);
	expect(w, 0, CMD_WRITE, 0, 4096, E_PERM);
	expect(w, 0, CMD_WRITE, 0, 1 * MiB, E_PERM);
	expect(w, 0, CMD_WRITE_ZEROES, 0, 4096,
	    offers(w, CMD_WRITE_ZEROES) ? E_PERM : E_INVAL);
	expect(w, 0, CMD_TRIM, 0, 4096, offers(w, CMD_TRIM) ? E_PERM : E_INVAL);
	expect(w, 0, CMD_READ, 0, 4096, 0);
	assert_true(command(w, 0, CMD_WRITE, SIZE, 4096));
	expect(w, 0, CMD_READ, 0, 4096, 0);
	if (offers(w, CMD_FLUSH))
		expect(w, 0, CMD_FLUSH, 0, 0, 0);
}

static void
zero_length(void **state)
{
	static const uint64_t offsets[] = { 0, 512, 1000, SIZE - 1, SIZE };
	static const uint16_t types[] = { CMD_READ, CMD_WRITE, CMD_TRIM };

	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d], false);

		for (size_t i = 0; i < NR(offsets); i++) {
			for (size_t t = 0; t < NR(types); t++)
				if (offers(w, types[t]))
					expect(
					    w, 0, types[t], offsets[i], 0, 0);
			command(w, 0, CMD_WRITE_ZEROES, offsets[i], 0);
			command(w, 0, CMD_CACHE, offsets[i], 0);
		}
		/* outside: any answer, but an answer */
		for (uint16_t type = 0; type < 8; type++)
			if (type != CMD_DISC)
				for (int i = 0; i < 3; i++)
					command(w, 0, type,
					    i == 0   ? SIZE + 1
					    : i == 1 ? 1ULL << 63
						     : ~0ULL,
					    0);
		expect(w, 0, CMD_READ, 0, 512, 0);
		wire_close(w);
	}
}

static void
refuses_what_is_not_offered(void **state)
{
	static const uint16_t types[] = { CMD_FLUSH, CMD_TRIM,
		CMD_WRITE_ZEROES };
	int refused = 0;

	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d], false);

		for (size_t t = 0; t < NR(types); t++) {
			if (offers(w, types[t]))
				continue;
			expect(w, 0, types[t], 0, 4096, E_INVAL);
			expect(w, 0, types[t], 0, 0xfffffe00, E_INVAL);
			expect(w, CMD_FUA, types[t], 0, 4096, E_INVAL);
			refused++;
		}
		if (!offers(w, CMD_CACHE)) {
			/* N143: some clients send it unadvertised */
			uint32_t error = command(w, 0, CMD_CACHE, 0, 4096);

			assert_true(!error || error == E_INVAL);
		}
		expect(w, 0, CMD_READ, 0, 512, 0);
		wire_close(w);
	}
	assert_int_not_equal(refused, 0); /* TRIM of plain, notrim, wz */
}

/* --------------------------------------------------------------- replies */

/* A failed read has no payload: the next reply follows at once. */
static void
failed_reads_have_no_payload(void **state)
{
	struct wire *w = wire_open(nullbd, "full", false);
	uint8_t buf[100 * REQUEST_SIZE], *p = buf, want[512], got[512];
	int good = 0;

	(void)state;
	fill(want, sizeof(want), 4);
	assert_int_equal(wire_write(w, want, 0, 512), 0);
	for (uint64_t i = 0; i < 100; i++)
		p = put_request(p, 0, CMD_READ, i, i % 3 ? SIZE : 0, 512);
	wire_send(w, buf, sizeof(buf));
	for (int i = 0; i < 100; i++) {
		uint8_t head[REPLY_SIZE];

		wire_recv(w, head, sizeof(head));
		assert_int_equal(get32(head), MAGIC_SIMPLE);
		if (get64(head + 8) % 3) {
			assert_int_equal(get32(head + 4), E_INVAL);
			continue;
		}
		assert_int_equal(get32(head + 4), 0);
		wire_recv(w, got, sizeof(got));
		assert_memory_equal(got, want, sizeof(got));
		good++;
	}
	assert_int_equal(good, 34);
	wire_assert_served(w, 0);
}

/* --------------------------------------------------------------- commands */

static void
writes_are_applied_before_the_reply(void **state)
{
	static const uint32_t lengths[] = { 512, 4096, 65536, 130560, 131072,
		1 * MiB, 3 * MiB + 512 };
	struct wire *a = wire_open(nullbd, "full", false);
	struct wire *b = wire_open(nullbd, "full", false);
	uint8_t *want = xmalloc(4 * MiB), *got = xmalloc(4 * MiB);

	(void)state;
	for (size_t i = 0; i < NR(lengths); i++) {
		uint64_t cookie = 1000 + i;

		fill(want, lengths[i], i);
		wire_request(a, i & 1 && a->tx_flags & TX_FUA ? CMD_FUA : 0,
		    CMD_WRITE, cookie, 512 * i, lengths[i]);
		wire_send(a, want, lengths[i]);
		assert_int_equal(wire_reply(a, cookie), 0);
		assert_int_equal(wire_read(b, got, 512 * i, lengths[i]), 0);
		assert_same(
		    got, want, lengths[i], "through another connection");
		assert_int_equal(wire_read(a, got, 512 * i, lengths[i]), 0);
		assert_same(got, want, lengths[i], "through the same");
	}
	free(got);
	free(want);
}

static void
unwritten_data_reads_as_zeros(void **state)
{
	uint8_t *got = xmalloc(1 * MiB);

	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d], false);

		memset(got, 0xff, 1 * MiB);
		assert_int_equal(wire_read(w, got, 32 * MiB, 1 * MiB), 0);
		assert_true(all_zero(got, 1 * MiB));
		wire_close(w);
	}
	free(got);
}

static void
without_memory_writes_are_dropped(void **state)
{
	struct wire *w = wire_open(nullbd, "plain", false);
	uint8_t *data = xmalloc(1 * MiB);

	(void)state;
	for (uint32_t n = 1; n <= 1 * MiB; n *= 4) {
		memset(data, 0xaa, n);
		assert_int_equal(wire_write(w, data, 0, n), 0);
		assert_int_equal(wire_read(w, data, 0, n), 0);
		assert_true(all_zero(data, n));
	}
	free(data);
}

static void
flush_takes_no_range(void **state)
{
	struct wire *w = wire_open(nullbd, "full", false);

	(void)state;
	if (!offers(w, CMD_FLUSH)) {
		expect(w, 0, CMD_FLUSH, 0, 0, E_INVAL);
		return;
	}
	expect(w, 0, CMD_FLUSH, 0, 0, 0);
	/* reserved: accepted or refused, but nothing else */
	for (int i = 0; i < 3; i++) {
		uint32_t error = command(w, 0, CMD_FLUSH,
		    i == 0   ? SIZE
		    : i == 1 ? ~0ULL
			     : 0,
		    i == 2 ? ~0u : 0);

		assert_true(!error || error == E_INVAL);
	}
	wire_assert_served(w, 0);
}

static void
flush_covers_other_connections(void **state)
{
	struct wire *a = wire_open(nullbd, "full", false);
	struct wire *b = wire_open(nullbd, "full", false);
	struct wire *c = wire_open(nullbd, "full", false);
	uint8_t want[8192], got[8192];

	(void)state;
	assert_true(a->tx_flags & TX_MULTI_CONN);
	for (uint64_t i = 0; i < 200; i++) {
		fill(want, sizeof(want), i);
		assert_int_equal(wire_write(a, want, i * 512, sizeof(want)), 0);
		if (offers(b, CMD_FLUSH))
			expect(b, 0, CMD_FLUSH, 0, 0, 0);
		assert_int_equal(wire_read(c, got, i * 512, sizeof(got)), 0);
		assert_same(got, want, sizeof(got), "after a flush elsewhere");
	}
}

/* TRIM may do less than asked, never more, and what it left is stable. */
static void
trim_stays_inside(void **state)
{
	static const char *const trimmed[] = { "full", "big" };
	static const struct {
		uint32_t offset, length;
	} ranges[] = { { 0, 512 }, { 512, 512 }, { 4096, 4096 }, { 1, 1 },
		{ 511, 2 }, { 100, 9000 }, { 4095, 4098 }, { 4096, 1 },
		{ 8191, 1 }, { 0, 65536 }, { 65535, 1 }, { 512, 65024 },
		{ 3 * 4096 + 7, 2 * 4096 } };
	uint8_t *want = xmalloc(65536), *got = xmalloc(65536);
	uint8_t *again = xmalloc(65536);

	(void)state;
	for (size_t d = 0; d < 2; d++) {
		struct wire *w = wire_open(nullbd, trimmed[d], false);

		assert_true(w->tx_flags & TX_TRIM);
		for (size_t i = 0; i < NR(ranges); i++) {
			uint32_t o = ranges[i].offset, n = ranges[i].length;

			fill(want, 65536, i);
			assert_int_equal(wire_write(w, want, 0, 65536), 0);
			expect(w, i & 1 && w->tx_flags & TX_FUA ? CMD_FUA : 0,
			    CMD_TRIM, o, n, 0);
			assert_int_equal(wire_read(w, got, 0, 65536), 0);
			assert_same(got, want, o, "before a trim");
			assert_same(got + o + n, want + o + n, 65536 - o - n,
			    "after a trim");
			for (uint32_t k = o; k < o + n; k++)
				if (got[k] && got[k] != want[k])
					wire_fail("trimmed data are neither "
						  "old nor zero");
			assert_int_equal(wire_read(w, again, 0, 65536), 0);
			assert_same(again, got, 65536, "read twice");
		}
		/* whole blocks are given up: dev.h, the store */
		expect(w, 0, CMD_TRIM, 0, 65536, 0);
		assert_int_equal(wire_read(w, got, 0, 65536), 0);
		assert_true(all_zero(got, 65536));
		wire_close(w);
	}
	free(again);
	free(got);
	free(want);
}

static void
write_zeroes_stays_inside(void **state)
{
	static const struct {
		uint32_t offset, length;
	} ranges[] = { { 0, 512 }, { 512, 4096 }, { 4096, 4096 }, { 1, 1 },
		{ 511, 2 }, { 100, 9000 }, { 4095, 4098 }, { 4096, 1 },
		{ 8191, 1 }, { 0, 65536 }, { 65535, 1 }, { 512, 65024 },
		{ 3 * 4096 + 7, 2 * 4096 } };
	static const uint16_t flags[] = { 0, CMD_NO_HOLE, CMD_FUA,
		CMD_FUA | CMD_NO_HOLE };
	uint8_t *want = xmalloc(65536), *got = xmalloc(65536);

	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d], false);

		if (!offers(w, CMD_WRITE_ZEROES) || d == 1) {
			wire_close(w);
			continue;
		}
		for (size_t i = 0; i < NR(ranges) * NR(flags); i++) {
			uint32_t o = ranges[i / NR(flags)].offset;
			uint32_t n = ranges[i / NR(flags)].length;
			uint16_t flag = flags[i % NR(flags)];

			if (!(w->tx_flags & TX_FUA))
				flag &= CMD_NO_HOLE;
			fill(want, 65536, i);
			assert_int_equal(wire_write(w, want, 0, 65536), 0);
			expect(w, flag, CMD_WRITE_ZEROES, o, n, 0);
			memset(want + o, 0, n);
			assert_int_equal(wire_read(w, got, 0, 65536), 0);
			assert_same(got, want, 65536, "write zeroes");
		}
		wire_close(w);
	}
	free(got);
	free(want);
}

static void
fast_zero_is_fast_or_refused(void **state)
{
	uint8_t want[65536], got[65536];

	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d], false);
		bool can = !strcmp(devices[d], "wz");
		uint32_t error;

		if (!(w->tx_flags & TX_FAST_ZERO)) {
			expect(w, CMD_FAST_ZERO, CMD_WRITE_ZEROES, 0, 4096,
			    E_INVAL);
			wire_close(w);
			continue;
		}
		fill(want, sizeof(want), d);
		assert_int_equal(wire_write(w, want, 0, sizeof(want)), 0);
		error = command(w, CMD_FAST_ZERO, CMD_WRITE_ZEROES, 4096, 8192);
		if (error != (can ? 0 : E_NOTSUP))
			wire_fail("%s: FAST_ZERO: error %u", devices[d], error);
		if (!error)
			memset(want + 4096, 0, 8192);
		assert_int_equal(wire_read(w, got, 0, sizeof(got)), 0);
		if (strcmp(devices[d], "plain"))
			assert_same(got, want, sizeof(got), "FAST_ZERO");
		/* without the flag never ENOTSUP */
		expect(w, 0, CMD_WRITE_ZEROES, 4096, 8192, 0);
		expect(w, CMD_NO_HOLE, CMD_WRITE_ZEROES, 4096, 8192, 0);
		/* outside the device it is the range that is wrong */
		error = command(w, CMD_FAST_ZERO, CMD_WRITE_ZEROES, SIZE, 4096);
		assert_true(error == E_NOSPC || error == E_NOTSUP);
		wire_close(w);
	}
}

static void
cache_changes_nothing(void **state)
{
	struct wire *w = wire_open(nullbd, "full", false);
	uint8_t want[65536], got[65536];

	(void)state;
	if (!offers(w, CMD_CACHE)) {
		print_message("CACHE is not offered\n");
		skip();
	}
	fill(want, sizeof(want), 6);
	assert_int_equal(wire_write(w, want, 0, sizeof(want)), 0);
	expect(w, 0, CMD_CACHE, 0, sizeof(want), 0);
	expect(w, 0, CMD_CACHE, 512, 512, 0);
	expect(w, 0, CMD_CACHE, 0, (uint32_t)SIZE, 0);
	expect(w, CMD_NO_HOLE, CMD_CACHE, 0, 512, E_INVAL);
	expect(w, 0, CMD_CACHE, SIZE, 512, E_INVAL);
	assert_int_equal(wire_read(w, got, 0, sizeof(got)), 0);
	assert_same(got, want, sizeof(got), "CACHE");
}

/* DESIGN, Store: a full memory is ENOSPC, never a crash. */
static void
memory_limit_is_enospc(void **state)
{
	struct wire *w = wire_open(nullbd, "small", false);
	struct wire *other = wire_open(nullbd, "full", false);
	uint8_t *data = xmalloc(1 * MiB), *got = xmalloc(64 * KiB);
	uint32_t error = 0;
	uint64_t written = 0;

	(void)state;
	fill(data, 1 * MiB, 1);
	while (!error && written < SIZE) {
		error = wire_write(w, data, written, 64 * KiB);
		if (!error)
			written += 64 * KiB;
	}
	assert_int_equal(error, E_NOSPC);
	assert_in_range(written, 256 * KiB, 1 * MiB);
	/* what was acknowledged is there, reads go on */
	assert_int_equal(wire_read(w, got, 0, 64 * KiB), 0);
	assert_same(got, data, 64 * KiB, "before the memory was full");
	assert_int_equal(wire_write(w, data, 32 * MiB, 1 * MiB), E_NOSPC);
	wire_assert_served(other, 0);
	/* overwriting needs no more */
	assert_int_equal(wire_write(w, data + 5, 0, 64 * KiB), 0);
	assert_int_equal(wire_read(w, got, 0, 64 * KiB), 0);
	assert_same(got, data + 5, 64 * KiB, "overwritten");
	free(got);
	free(data);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N108", "drops a client whose request has another magic",
		    drops_wrong_magic),
		CASE("N108", "nothing behind a wrong magic is done",
		    wrong_magic_after_good_requests),
		CASE("N109 N123", "echoes any cookie", echoes_cookies),
		CASE("N109", "answers a cookie as often as it is in flight",
		    bears_duplicate_cookies),
		CASE("N109 N167", "a cookie may be used again at once",
		    reuses_a_cookie_at_once),
		CASE("N110", "reassembles requests cut anywhere",
		    reassembles_requests),
		CASE("N112 N153 N159 N181",
		    "unknown commands are EINVAL without a payload",
		    unknown_commands),
		CASE("N113 N115", "flags that do not go with a command: EINVAL",
		    flags_of_commands),
		CASE("N114 N157", "FUA goes with every command",
		    fua_goes_with_every_command),
		CASE("N111 N117", "passes over the payload of refused writes",
		    drains_bad_writes),
		CASE("N111 N123", "and does so in a pipeline, in step",
		    drains_bad_writes_in_a_pipeline),
		CASE("N116 N117", "range checks do not overflow",
		    range_checks_do_not_overflow),
		CASE("N118 N111", "a read-only device refuses changes: EPERM",
		    read_only_refuses_changes),
		CASE("N119", "a length of zero is answered", zero_length),
		CASE("N122 N143", "commands that are not offered are EINVAL",
		    refuses_what_is_not_offered),
		CASE("N123 N124", "a failed read has no payload",
		    failed_reads_have_no_payload),
		CASE("N139 N160", "a write is applied before its reply",
		    writes_are_applied_before_the_reply),
		CASE("N139", "unwritten data reads as zeros",
		    unwritten_data_reads_as_zeros),
		CASE("N139", "without memory writes are dropped",
		    without_memory_writes_are_dropped),
		CASE("N140", "FLUSH has no range", flush_takes_no_range),
		CASE("N140 N160", "FLUSH on one connection, read on another",
		    flush_covers_other_connections),
		CASE("N141 N142", "TRIM changes nothing outside its range",
		    trim_stays_inside),
		CASE("N144", "WRITE_ZEROES zeroes its range and no more",
		    write_zeroes_stays_inside),
		CASE("N145 N121", "FAST_ZERO is fast, or ENOTSUP and no change",
		    fast_zero_is_fast_or_refused),
		CASE("N143", "CACHE changes nothing", cache_changes_nothing),
		CASE("N121", "memory_limit is ENOSPC and harms nobody else",
		    memory_limit_is_enospc),
	};

	return cmocka_run_group_tests_name("transmission", tests, start, stop);
}
