/* SPDX-License-Identifier: MIT */
/*
 * Replies in chunks: sections 8 and 12 of the spec, and what sections 11 and
 * 13 say of them.  Where a case makes sense for both it is run with structured
 * replies and with extended headers.
 *
 * The form of each reply is checked as it is received (tests/lib/answer.c);
 * here is what there is to be in it.
 */
#include "../lib/wire.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define NR(a)    (sizeof(a) / sizeof(*(a)))
#define SIZE     (64ull * MiB)
#define REGION   (1 * MiB) /* of the layouts, at the start of a device */
#define SECTOR   512u
#define BLOCK    4096u
#define MANY     (32 * KiB) /* reads from here on tell every hole */
#define MAX_READ (64 * MiB)

static struct daemon *nullbd;

static const enum wire_mode modes[] = { WIRE_STRUCTURED, WIRE_EXTENDED };

static int
start(void **state)
{
	(void)state;
	nullbd = daemon_start("full:size=64M,memory_backed=1,discard=1",
	    "big:size=64M,memory_backed=1,discard=1,blocksize=4096",
	    "null:size=256M", "ro:size=64M,memory_backed=1,discard=1,ro=1",
	    "small:size=64M,memory_backed=1,memory_limit=1M",
	    "slow:size=64M,memory_backed=1,irqmode=2,completion_nsec=20000000",
	    NULL);
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

/* ------------------------------------------------------------ negotiation */

static void
refuses_data(void **state)
{
	static const uint32_t lengths[] = { 1, 4, 4096, 65536, 100 * KiB };
	uint8_t *data = xmalloc(100 * KiB);
	struct wire *w = wire_negotiate(nullbd, WIRE_SIMPLE);

	(void)state;
	for (size_t i = 0; i + OPT_HEADER <= 100 * KiB; i += OPT_HEADER)
		put_option(data + i, OPT_ABORT, NULL, 0);
	for (size_t i = 0; i < NR(lengths); i++) {
		assert_int_equal(wire_option_result(
				     w, OPT_STRUCTURED_REPLY, data, lengths[i]),
		    REP_ERR_INVALID);
		wire_assert_options_in_step(w);
	}
	/* so nothing was agreed */
	assert_int_equal(wire_info(w, OPT_GO, "full", NULL, 0), REP_ACK);
	assert_false(w->tx_flags & TX_DF);
	wire_assert_served(w, 0);
	free(data);
}

static void
may_be_asked_for_twice(void **state)
{
	struct wire *w = wire_negotiate(nullbd, WIRE_STRUCTURED);
	uint32_t type = wire_option_result(w, OPT_STRUCTURED_REPLY, NULL, 0);

	(void)state;
	assert_true(type == REP_ACK || type == REP_ERR_INVALID);
	wire_assert_options_in_step(w);
	assert_int_equal(wire_info(w, OPT_GO, "full", NULL, 0), REP_ACK);
	assert_true(w->tx_flags & TX_DF);
	wire_assert_served(w, 0);
}

/* The flags of an entry by name, the same session otherwise. */
static uint16_t
flags_by_name(enum wire_mode mode)
{
	struct wire *w = wire_negotiate(nullbd, mode);
	uint8_t entry[10];

	wire_option(w, OPT_EXPORT_NAME, "full", 4);
	wire_recv(w, entry, sizeof(entry));
	w->size = get64(entry);
	assert_int_equal(w->size, SIZE);
	wire_assert_served(w, 0);
	wire_close(w);
	return get16(entry + 8);
}

static void
df_is_offered_with_chunks_only(void **state)
{
	struct wire *w = wire_negotiate(nullbd, WIRE_SIMPLE);
	uint16_t plain;

	(void)state;
	assert_int_equal(wire_info(w, OPT_INFO, "full", NULL, 0), REP_ACK);
	plain = w->tx_flags;
	assert_false(plain & TX_DF);
	/* the same session learns of it */
	assert_int_equal(
	    wire_option_result(w, OPT_STRUCTURED_REPLY, NULL, 0), REP_ACK);
	assert_int_equal(wire_info(w, OPT_INFO, "full", NULL, 0), REP_ACK);
	assert_int_equal(w->tx_flags, plain | TX_DF);
	assert_int_equal(wire_info(w, OPT_GO, "full", NULL, 0), REP_ACK);
	assert_int_equal(w->tx_flags, plain | TX_DF);
	wire_close(w);
	for (size_t m = 0; m < NR(modes); m++) {
		w = wire_open_mode(nullbd, "full", modes[m], 0);
		assert_int_equal(w->tx_flags, plain | TX_DF);
		wire_close(w);
	}
	assert_int_equal(flags_by_name(WIRE_SIMPLE), plain);
	assert_int_equal(flags_by_name(WIRE_STRUCTURED), plain | TX_DF);
	/* another session has not heard of it */
	w = wire_open(nullbd, "full", false);
	assert_int_equal(w->tx_flags, plain);
	assert_int_equal(wire_cmd(w, CMD_DF, CMD_READ, 0, 512), E_INVAL);
	wire_assert_served(w, 0);
}

/* -------------------------------------------------------------- contents */

/* What was written of the region, sector by sector. */
struct model {
	uint8_t data[REGION];
	bool written[REGION / SECTOR];
};

static void
model_clear(struct model *m, struct wire *w)
{
	memset(m, 0, sizeof(*m));
	assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, REGION), 0);
}

static void
model_write(struct model *m, struct wire *w, uint32_t at, uint32_t length,
    uint64_t seed)
{
	fill(m->data + at, length, seed);
	for (uint32_t i = at / SECTOR; i <= (at + length - 1) / SECTOR; i++)
		m->written[i] = true;
	assert_int_equal(wire_write(w, m->data + at, at, length), 0);
}

/* Is anything of it written, seen in units of so many bytes? */
static bool
any_written(const struct model *m, uint64_t at, uint64_t length, uint32_t unit)
{
	uint64_t end = (at + length + unit - 1) / unit * unit;

	for (uint64_t i = at / unit * unit / SECTOR; i < end / SECTOR; i++)
		if (i < REGION / SECTOR && m->written[i])
			return true;
	return false;
}

/* How often it changes between written and not. */
static size_t
nr_changes(const struct model *m, uint64_t at, uint64_t length)
{
	size_t n = 0;

	for (uint64_t i = at / SECTOR + 1; i < (at + length) / SECTOR; i++)
		n += m->written[i] != m->written[i - 1];
	return n;
}

/* A read of MANY bytes tells every block that is a hole, a smaller one is one
 * chunk: a hole, if nothing in it was written. */
static void
check_pieces(const struct model *m, const struct answer *a)
{
	uint64_t first = (a->offset + BLOCK - 1) / BLOCK * BLOCK;

	for (size_t i = 0; i < a->nr_pieces; i++)
		if (a->piece[i].kind == PIECE_HOLE &&
		    any_written(
			m, a->piece[i].offset, a->piece[i].length, SECTOR))
			wire_fail("a hole where there are data");
	if (a->length < MANY) {
		assert_int_equal(a->nr_pieces, 1);
		if (any_written(m, a->offset, a->length, SECTOR))
			assert_int_equal(a->piece[0].kind, PIECE_DATA);
		else if (!any_written(m, a->offset, a->length, BLOCK))
			assert_int_equal(a->piece[0].kind, PIECE_HOLE);
		return;
	}
	for (uint64_t b = first; b + BLOCK <= a->offset + a->length; b += BLOCK)
		if (!any_written(m, b, BLOCK, BLOCK) &&
		    !answer_has_hole(a, b, BLOCK))
			wire_fail("%llu: nothing was written, and no hole is "
				  "told",
			    (unsigned long long)b);
	/* and no more chunks than there is to tell */
	assert_in_range(a->nr_pieces, 1,
	    nr_changes(m, a->offset, a->length) + 3 + a->length / (64 * KiB));
}

static void
check_read(struct wire *w, const struct model *m, uint16_t flags, uint64_t at,
    uint32_t length)
{
	static uint8_t got[REGION];
	struct answer a;

	memset(got, 0xee, length);
	assert_int_equal(
	    wire_ask(w, flags, CMD_READ, at, length, NULL, got, &a), 0);
	assert_same(got, m->data + at, length, "a read in chunks");
	if (flags & CMD_DF) {
		assert_int_equal(a.nr_pieces, 1);
		assert_int_equal(a.piece[0].kind, PIECE_DATA);
	} else {
		check_pieces(m, &a);
	}
	answer_fini(&a);
}

/* Layouts of any kind, read in any way. */
static void
reads_tell_data_and_holes(void **state)
{
	static const char *const names[] = { "full", "big" };
	uint64_t rng = wire_seed();
	struct model *m = xmalloc(sizeof(*m));

	(void)state;
	for (size_t i = 0; i < NR(modes) * NR(names) * 4; i++) {
		const char *name = names[i % 2];
		uint32_t unit = i % 2 ? BLOCK : SECTOR;
		struct wire *w =
		    wire_open_mode(nullbd, name, modes[i / 2 % 2], 0);

		model_clear(m, w);
		check_read(w, m, 0, 0, REGION);
		for (int k = 0; k < 40; k++) {
			uint32_t n = 1 + (uint32_t)rng_below(&rng, 8);
			uint32_t at =
			    (uint32_t)rng_below(&rng, REGION / unit - n);

			model_write(m, w, at * unit, n * unit, rng_next(&rng));
		}
		check_read(w, m, 0, 0, REGION);
		for (int k = 0; k < 200; k++) {
			uint32_t n = 1 + (uint32_t)rng_below(
					     &rng, k % 2 ? REGION : 2 * MANY);
			uint64_t at = rng_below(&rng, REGION - n + 1);

			if (k % 4) { /* else to the byte */
				n = (n + unit - 1) / unit * unit;
				at = at / unit * unit;
			}
			if (at + n > REGION)
				n = (uint32_t)(REGION - at);
			check_read(w, m, k % 8 == 7 ? CMD_DF : 0, at, n);
		}
		wire_close(w);
	}
	free(m);
}

/* Block by block in turn: as many pieces as there can be. */
static void
reads_tell_every_other_block(void **state)
{
	struct model *m = xmalloc(sizeof(*m));

	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "big", modes[i], WANT_BLOCK_SIZE);
		struct answer a;

		model_clear(m, w);
		for (uint32_t at = BLOCK; at < REGION; at += 2 * BLOCK)
			model_write(m, w, at, BLOCK, at);
		assert_int_equal(
		    wire_ask(w, 0, CMD_READ, 0, REGION, NULL, NULL, &a), 0);
		assert_int_equal(a.nr_pieces, REGION / BLOCK);
		answer_fini(&a);
		check_read(w, m, 0, 0, REGION);
		check_read(w, m, CMD_DF, 0, REGION);
		check_read(w, m, CMD_DF, BLOCK, 64 * KiB);
		wire_close(w);
	}
	free(m);
}

/* A whole device, written at its two ends only, and all of it. */
static void
reads_the_largest_payload(void **state)
{
	uint8_t *data = xmalloc(MAX_READ), *got = xmalloc(MAX_READ);

	(void)state;
	fill(data, MAX_READ, 3);
	for (size_t i = 0; i < 2 * NR(modes); i++) {
		struct wire *w = wire_open_mode(
		    nullbd, "full", modes[i / 2], i % 2 ? WANT_BLOCK_SIZE : 0);
		struct answer a;

		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, MAX_READ), 0);
		assert_int_equal(wire_write(w, data, 0, BLOCK), 0);
		assert_int_equal(
		    wire_write(w, data, MAX_READ - BLOCK, BLOCK), 0);
		assert_int_equal(
		    wire_ask(w, 0, CMD_READ, 0, MAX_READ, NULL, got, &a), 0);
		assert_true(answer_has_hole(&a, BLOCK, MAX_READ - 2 * BLOCK));
		assert_same(got, data, BLOCK, "the first block");
		assert_same(got + MAX_READ - BLOCK, data, BLOCK, "the last");
		assert_true(all_zero(got + BLOCK, MAX_READ - 2 * BLOCK));
		answer_fini(&a);

		assert_int_equal(wire_write(w, data, 0, MAX_READ), 0);
		for (int df = 0; df < 2; df++) {
			memset(got, 0, MAX_READ);
			assert_int_equal(wire_ask(w, df ? CMD_DF : 0, CMD_READ,
					     0, MAX_READ, NULL, got, &a),
			    0);
			assert_same(got, data, MAX_READ, "64 MiB of data");
			for (size_t k = 0; k < a.nr_pieces; k++)
				assert_int_equal(a.piece[k].kind, PIECE_DATA);
			answer_fini(&a);
		}
		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, MAX_READ), 0);
		wire_close(w);
	}
	free(got);
	free(data);
}

static void
without_memory_reads_are_data(void **state)
{
	static const uint32_t lengths[] = { 1, 512, 4096, 32 * KiB, 1 * MiB };
	uint8_t *got = xmalloc(1 * MiB);

	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w = wire_open_mode(nullbd, "null", modes[i], 0);

		for (size_t k = 0; k < NR(lengths); k++) {
			struct answer a;

			memset(got, 0xee, lengths[k]);
			assert_int_equal(
			    wire_ask(w, k % 2 ? CMD_DF : 0, CMD_READ, 512,
				lengths[k], NULL, got, &a),
			    0);
			assert_true(all_zero(got, lengths[k]));
			for (size_t p = 0; p < a.nr_pieces; p++)
				assert_int_equal(a.piece[p].kind, PIECE_DATA);
			answer_fini(&a);
		}
		wire_close(w);
	}
	free(got);
}

/* N120; what a server makes of other commands is its affair. */
static void
zero_length(void **state)
{
	static const uint64_t offsets[] = { 0, 512, SIZE };

	(void)state;
	for (size_t i = 0; i < NR(modes) * NR(offsets); i++) {
		struct wire *w = wire_open_mode(
		    nullbd, "full", modes[i / NR(offsets)], WANT_STATUS);
		uint64_t offset = offsets[i % NR(offsets)];
		struct answer a;

		for (uint16_t flags = 0; flags <= CMD_DF; flags += CMD_DF) {
			assert_int_equal(wire_ask(w, flags, CMD_READ, offset, 0,
					     NULL, NULL, &a),
			    0);
			assert_int_equal(a.nr_chunks, 1);
			answer_fini(&a);
		}
		assert_int_equal(wire_status(w, 0, offset, 0, &a), E_INVAL);
		answer_fini(&a);
		assert_int_equal(wire_cmd(w, 0, CMD_WRITE, offset, 0), 0);
		wire_cmd(w, 0, CMD_WRITE_ZEROES, offset, 0);
		wire_cmd(w, 0, CMD_TRIM, offset, 0);
		wire_cmd(w, 0, CMD_CACHE, offset, 0);
		wire_cmd(w, 0, CMD_READ, ~0ULL, 0);
		wire_assert_served(w, 0);
		wire_close(w);
	}
}

/* ----------------------------------------------------------------- errors */

/* A request that is to fail: with a chunk, and a text. */
static void
expect(struct wire *w, uint16_t flags, uint16_t type, uint64_t offset,
    uint64_t length, uint32_t want)
{
	uint8_t *payload = NULL;
	struct answer a;
	uint32_t error;

	if (type == CMD_WRITE) {
		payload = xmalloc(length + EXT_REQUEST_SIZE);
		for (size_t i = 0; i < length; i += REQUEST_SIZE)
			put_request(payload + i, 0, CMD_DISC, 0, 0, 0);
	}
	error = wire_ask(w, flags, type, offset, length, payload, NULL, &a);
	free(payload);
	if (error != want)
		wire_fail("%s: command %u, flags 0x%x, offset 0x%llx, length "
			  "0x%llx: error %u, want %u",
		    wire_mode_name(w->mode), type, flags,
		    (unsigned long long)offset, (unsigned long long)length,
		    error, want);
	if (error && (a.simple || !a.text || !*a.text))
		wire_fail("%s: command %u: error %u has no text",
		    wire_mode_name(w->mode), type, error);
	if (error && a.has_offset)
		wire_fail("command %u was refused, but at an offset", type);
	if (error)
		assert_int_equal(a.nr_pieces, 0);
	answer_fini(&a);
}

static void
errors_are_chunks(void **state)
{
	static const uint16_t types[] = { CMD_READ, CMD_WRITE, CMD_TRIM,
		CMD_WRITE_ZEROES, CMD_CACHE, CMD_BLOCK_STATUS };

	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w = wire_open_mode(
		    nullbd, "big", modes[i], WANT_BLOCK_SIZE | WANT_STATUS);

		for (size_t t = 0; t < NR(types); t++) {
			uint16_t type = types[t];
			bool writes =
			    type == CMD_WRITE || type == CMD_WRITE_ZEROES;
			uint32_t range = writes ? E_NOSPC : E_INVAL;

			if (type == CMD_CACHE && !(w->tx_flags & TX_CACHE))
				range = E_INVAL;
			expect(w, 0, type, 1, 4096, E_INVAL); /* N88 */
			expect(w, 0, type, 0, 512, E_INVAL);
			expect(w, 0, type, SIZE, 4096, range);
			expect(w, 0, type, SIZE - 4096, 8192, range);
			expect(w, 0, type, 1ULL << 63, 4096, range);
			expect(w, 0, type, 0 - 4096ULL, 4096, range);
			expect(w, 0, type, 0 - 4096ULL, 8192, range);
			for (uint16_t f = 0x40; f; f = (uint16_t)(f << 1))
				expect(w, f, type, 0, 4096, E_INVAL);
			if (type != CMD_READ)
				expect(w, CMD_DF, type, 0, 4096, E_INVAL);
			if (type != CMD_WRITE_ZEROES)
				expect(w, CMD_NO_HOLE, type, 0, 4096, E_INVAL);
			if (type != CMD_BLOCK_STATUS)
				expect(w, CMD_REQ_ONE, type, 0, 4096, E_INVAL);
		}
		for (uint16_t type = 8; type < 60000; type += 997)
			expect(w, 0, type, 0, 4096, E_INVAL);
		expect(w, 0, CMD_READ, 0, 4096, 0);
		wire_assert_served(w, 0);
		wire_close(w);
		w = wire_open_mode(nullbd, "null", modes[i], 0);
		expect(w, 0, CMD_READ, 0, MAX_READ + 4096, E_INVAL);
		expect(w, 0, CMD_WRITE, 0, MAX_READ + 4096, E_INVAL);
		expect(w, 0, CMD_READ, 0, 4096, 0);
		wire_close(w);
	}
}

static void
a_read_only_device_says_so(void **state)
{
	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w = wire_open_mode(nullbd, "ro", modes[i], 0);

		expect(w, 0, CMD_WRITE, 0, 4096, E_PERM);
		expect(w, 0, CMD_WRITE, 0, 1 * MiB, E_PERM);
		expect(w, 0, CMD_WRITE_ZEROES, 0, 4096, E_PERM);
		expect(w, 0, CMD_TRIM, 0, 4096, E_PERM);
		expect(w, 0, CMD_READ, 0, 4096, 0);
		wire_close(w);
	}
}

/* What the device itself fails, it fails somewhere. */
static void
faults_of_the_device_have_an_offset(void **state)
{
	static const uint32_t lengths[] = { 64 * KiB, 1 * MiB, 3 * MiB };
	uint8_t *data = xmalloc(3 * MiB);

	(void)state;
	fill(data, 3 * MiB, 1);
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w = wire_open_mode(nullbd, "small", modes[i], 0);
		uint8_t got[BLOCK];
		uint64_t at = 0;

		while (at < 2 * MiB && !wire_write(w, data, at, 64 * KiB))
			at += 64 * KiB;
		assert_in_range(at, 0, 1 * MiB);
		for (size_t k = 0; k < NR(lengths); k++) {
			struct answer a;

			assert_int_equal(wire_ask(w, 0, CMD_WRITE, 16 * MiB,
					     lengths[k], data, NULL, &a),
			    E_NOSPC);
			assert_true(a.has_offset);
			answer_fini(&a);
		}
		assert_int_equal(wire_read(w, got, 0, BLOCK), 0);
		assert_same(got, data, BLOCK, "what was written before");
		wire_close(w);
	}
	free(data);
}

static void
shutting_down_is_an_error_chunk(void **state)
{
	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct daemon *d = daemon_start("nullb0:size=64M,irqmode=2,"
						"completion_nsec=1000000000",
		    NULL);
		struct wire *w = wire_open_mode(d, "", modes[i], 0);
		struct answer first, second;
		uint64_t end = now_ns() + 5000000000;
		uint32_t error;

		answer_init(&first, w, 0, CMD_READ, 1, 0, 4096);
		answer_init(&second, w, 0, CMD_READ, 2, 4096, 4096);
		wire_request(w, 0, CMD_READ, 1, 0, 4096);
		while (daemon_stat(d, "nullb0", 9) != 1) {
			if (now_ns() > end)
				wire_fail("the request is not taken");
			sleep_ms(1);
		}
		assert_int_equal(kill(d->pid, SIGTERM), 0);
		sleep_ms(50);
		wire_request(w, 0, CMD_READ, 2, 4096, 4096);
		/* the later is refused at once, the first may end */
		assert_int_equal(wire_answer(w, &second), E_SHUTDOWN);
		error = wire_answer(w, &first);
		assert_true(!error || error == E_SHUTDOWN);
		answer_fini(&first);
		answer_fini(&second);
		wire_expect_eof(w);
		daemon_ended(d);
	}
}

/* ---------------------------------------------------------- many at a time */

/* Reads and writes of any size: each read sees what came before it. */
static void
make_pipeline(
    struct op *ops, size_t n, struct model *m, uint8_t *bytes, uint64_t *rng)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t len = SECTOR * (1 + (uint32_t)rng_below(rng, 200));
		uint64_t at = SECTOR * rng_below(rng, (REGION - len) / SECTOR);

		ops[i] = (struct op){ .offset = at, .length = len };
		switch (rng_below(rng, 8)) {
		case 0:
			ops[i].type = CMD_WRITE_ZEROES;
			memset(m->data + at, 0, len);
			continue;
		case 1:
			ops[i].type = CMD_READ;
			ops[i].offset += SIZE; /* outside */
			continue;
		case 2:
		case 3:
			fill(m->data + at, len, rng_next(rng));
			memcpy(bytes, m->data + at, len);
			ops[i].type = CMD_WRITE;
			break;
		case 4: ops[i].flags = CMD_DF; /* fall through */
		default:
			memcpy(bytes, m->data + at, len);
			ops[i].got = bytes + len;
		}
		ops[i].data = bytes;
		bytes += 2 * (size_t)len;
	}
}

static void
check_pipeline(const struct op *ops, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (ops[i].offset >= SIZE) {
			assert_int_equal(ops[i].error, E_INVAL);
			continue;
		}
		assert_int_equal(ops[i].error, 0);
		if (ops[i].type == CMD_READ)
			assert_same(ops[i].got, ops[i].data, ops[i].length,
			    "a read in a pipeline");
	}
}

static void
pipelines_stay_in_order(void **state)
{
	static const char *const names[] = { "full", "slow" };
	enum {
		N = 400
	};
	struct op *ops = calloc(N, sizeof(*ops));
	struct model *m = xmalloc(sizeof(*m));
	uint8_t *bytes = xmalloc(2ul * N * 200 * SECTOR);
	uint64_t rng = wire_seed();

	(void)state;
	for (size_t i = 0; i < NR(modes) * NR(names) * 2; i++) {
		struct wire *w =
		    wire_open_mode(nullbd, names[i % 2], modes[i / 2 % 2], 0);
		size_t piece = i < 4 ? 0 : 1000; /* and in bits */

		memset(m, 0, sizeof(*m));
		assert_int_equal(
		    wire_cmd(w, 0, CMD_WRITE_ZEROES, 0, REGION), 0);
		make_pipeline(ops, N, m, bytes, &rng);
		batch_run(w, ops, N, piece);
		check_pipeline(ops, N);
		wire_close(w);
	}
	free(bytes);
	free(m);
	free(ops);
}

/* Nothing is read for a while, then all of it, in whatever pieces. */
static void
replies_that_wait_are_whole(void **state)
{
	enum {
		N = 300,
		LEN = 256 * KiB
	};
	struct op *ops = calloc(N, sizeof(*ops));
	uint8_t *want = xmalloc(REGION), *got = xmalloc((size_t)N * LEN);

	(void)state;
	fill(want, REGION, 8);
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w = wire_open_mode(nullbd, "full", modes[i], 0);

		assert_int_equal(wire_write(w, want, 0, REGION), 0);
		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, 64 * KiB), 0);
		memset(want, 0, 64 * KiB);
		memset(got, 0xee, (size_t)N * LEN);
		for (size_t k = 0; k < N; k++)
			ops[k] = (struct op){ .type = CMD_READ,
				.offset = k % 97 * SECTOR,
				.length = LEN,
				.got = got + k * LEN };
		batch_send(w, ops, N);
		sleep_ms(200);
		batch_collect(w, ops, N);
		batch_assert_ok(ops, N);
		for (size_t k = 0; k < N; k++)
			assert_same(ops[k].got, want + ops[k].offset, LEN,
			    "a read that waited");
		wire_close(w);
	}
	free(got);
	free(want);
	free(ops);
}

/* N137: who needs no device need not wait for it. */
static void
answers_out_of_order(void **state)
{
	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w = wire_open_mode(nullbd, "slow", modes[i], 0);
		static uint8_t got[16 * 4096];
		struct op ops[17];
		int before = 0;

		for (size_t k = 0; k < 17; k++)
			ops[k] = (struct op){ .type = CMD_READ,
				.offset = k * 4096,
				.length = 4096,
				.got = got + k % 16 * 4096 };
		ops[16].offset = SIZE; /* refused at once */
		batch_run(w, ops, 17, 0);
		batch_assert_ok(ops, 16);
		assert_int_equal(ops[16].error, E_INVAL);
		for (size_t k = 0; k < 16; k++)
			before += ops[16].done_ns < ops[k].done_ns;
		assert_int_equal(before, 16);
		wire_close(w);
	}
}

/* Gone in the middle of a reply, or before it: nothing is left. */
static void
may_leave_in_the_middle_of_chunks(void **state)
{
	struct wire *other = wire_open(nullbd, "slow", false);
	unsigned fds = daemon_fds(nullbd);

	(void)state;
	for (int i = 0; i < 60; i++) {
		struct wire *w = wire_open_mode(
		    nullbd, i % 3 ? "full" : "slow", modes[i % 2], 0);
		uint8_t buf[20000];
		bool eof;

		for (uint64_t k = 0; k < 20; k++)
			wire_request(w, 0, CMD_READ, k, k * 4096, 1 * MiB);
		if (i % 4)
			wire_drain(w, buf, (size_t)i * 300, 200, &eof);
		wire_close(w);
	}
	wire_assert_served(other, 0);
	daemon_settle(nullbd, fds);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N76", "data with the option are INVALID, passed over",
		    refuses_data),
		CASE("N19", "may be asked for twice", may_be_asked_for_twice),
		CASE("N29 N77 N79 N115", "DF is offered with chunks only",
		    df_is_offered_with_chunks_only),
		CASE("N77 N126 N128 N129 N130 N131",
		    "reads tell data from holes", reads_tell_data_and_holes),
		CASE("N128 N129 N131", "every other block is a hole",
		    reads_tell_every_other_block),
		CASE("N92 N131 N135", "64 MiB are read at once",
		    reads_the_largest_payload),
		CASE("N128", "a device without memory has no holes",
		    without_memory_reads_are_data),
		CASE("N119 N120", "a length of zero is answered", zero_length),
		CASE("N88 N117 N121 N126 N133 N138",
		    "errors are chunks with a text", errors_are_chunks),
		CASE("N118 N133", "a read-only device says so",
		    a_read_only_device_says_so),
		CASE("N121 N133 N134",
		    "faults of the device tell where they are",
		    faults_of_the_device_have_an_offset),
		CASE("N126 N162", "ESHUTDOWN is a chunk, too",
		    shutting_down_is_an_error_chunk),
		CASE("N127 N132 N136 N139",
		    "in a pipeline each read sees what came before it",
		    pipelines_stay_in_order),
		CASE("N127 N136 N165", "replies that wait are whole",
		    replies_that_wait_are_whole),
		CASE("N137", "what is refused overtakes what is slow",
		    answers_out_of_order),
		CASE("N163", "a client may leave in the middle of chunks",
		    may_leave_in_the_middle_of_chunks),
	};

	return cmocka_run_group_tests_name("structured", tests, start, stop);
}
