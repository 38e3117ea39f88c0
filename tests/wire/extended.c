/* SPDX-License-Identifier: MIT */
/*
 * Extended headers: section 15 of the spec.  What they share with structured
 * replies is in structured.c and contexts.c, which run each case with both.
 */
#include "../lib/wire.h"

#include <stdlib.h>
#include <string.h>

#define NR(a)       (sizeof(a) / sizeof(*(a)))
#define SIZE        (64ull * MiB)
#define HUGE        (16ull << 40)
#define GiB         (1ull << 30)
#define BLOCK       4096u
#define MAX_PAYLOAD (64 * MiB)
#define MAX_DRAIN   (128 * MiB)

static struct daemon *nullbd;
static const char *const allocation = "base:allocation";

static int
start(void **state)
{
	(void)state;
	nullbd = daemon_start("full:size=64M,memory_backed=1,discard=1",
	    "huge:size=16T,memory_backed=1,discard=1,"
	    "write_zeroes_max_bytes=0xfffffe00",
	    "null:size=16T", NULL);
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

static struct wire *
enter(const char *name)
{
	return wire_open_mode(nullbd, name, WIRE_EXTENDED, WANT_STATUS);
}

/* ------------------------------------------------------------ negotiation */

static void
refuses_data(void **state)
{
	static const uint32_t lengths[] = { 1, 4, 4096, 100 * KiB };
	struct wire *w = wire_negotiate(nullbd, WIRE_SIMPLE);
	uint8_t *data = xmalloc(100 * KiB);

	(void)state;
	for (size_t i = 0; i + OPT_HEADER <= 100 * KiB; i += OPT_HEADER)
		put_option(data + i, OPT_ABORT, NULL, 0);
	for (size_t i = 0; i < NR(lengths); i++) {
		assert_int_equal(wire_option_result(
				     w, OPT_EXTENDED_HEADERS, data, lengths[i]),
		    REP_ERR_INVALID);
		wire_assert_options_in_step(w);
	}
	assert_int_equal(wire_info(w, OPT_GO, "full", NULL, 0), REP_ACK);
	wire_assert_served(w, 0); /* by compact headers */
	free(data);
}

/* Alone, after STRUCTURED_REPLY, twice: the same. */
static void
needs_no_structured_replies(void **state)
{
	uint32_t type;
	struct wire *w;

	(void)state;
	for (int i = 0; i < 3; i++) {
		w = wire_negotiate(
		    nullbd, i == 1 ? WIRE_STRUCTURED : WIRE_EXTENDED);
		if (i == 1)
			assert_int_equal(wire_option_result(
					     w, OPT_EXTENDED_HEADERS, NULL, 0),
			    REP_ACK);
		if (i == 2) {
			type = wire_option_result(
			    w, OPT_EXTENDED_HEADERS, NULL, 0);
			assert_true(type == REP_ACK || type == REP_ERR_INVALID);
		}
		assert_int_equal(
		    wire_info(w, OPT_GO, "full", NULL, 0), REP_ACK);
		assert_true(w->tx_flags & TX_DF);
		wire_assert_served(w, 0);
		wire_close(w);
	}
}

static void
structured_replies_come_too_late(void **state)
{
	struct wire *w = wire_negotiate(nullbd, WIRE_EXTENDED);
	struct answer a;

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
		    wire_option_result(w, OPT_STRUCTURED_REPLY, NULL, 0),
		    REP_ERR_EXT_HEADER);
		wire_assert_options_in_step(w);
	}
	/* with data it is wrong in two ways */
	assert_true(
	    wire_option_result(w, OPT_STRUCTURED_REPLY, "x", 1) >= 0x80000000);
	assert_int_equal(
	    wire_meta(w, OPT_SET_META, "full", &allocation, 1), REP_ACK);
	assert_int_equal(wire_info(w, OPT_GO, "full", NULL, 0), REP_ACK);
	assert_int_equal(wire_status(w, 0, 0, SIZE, &a), 0);
	answer_fini(&a);
	wire_assert_served(w, 0);
}

/* Nobody is required to have them. */
static void
compact_headers_are_enough(void **state)
{
	(void)state;
	for (int mode = WIRE_SIMPLE; mode <= WIRE_STRUCTURED; mode++) {
		struct wire *w = wire_negotiate(nullbd, (enum wire_mode)mode);

		if (mode)
			assert_int_equal(
			    wire_meta(w, OPT_SET_META, "full", &allocation, 1),
			    REP_ACK);
		assert_int_equal(wire_meta(w, OPT_LIST_META, "full",
				     &allocation, 1) == REP_ERR_EXT_HEADER,
		    0);
		assert_int_equal(
		    wire_info(w, OPT_GO, "full", NULL, 0), REP_ACK);
		assert_false(w->tx_flags & TX_STATUS_PAYLOAD);
		wire_assert_served(w, 0);
		wire_close(w);
	}
}

static void
export_name_is_not_for_them(void **state)
{
	struct wire *w = wire_negotiate(nullbd, WIRE_EXTENDED);

	(void)state;
	wire_option(w, OPT_EXPORT_NAME, "full", 4);
	wire_expect_eof(w);
}

/* ---------------------------------------------------------------- headers */

/* A magic of the other kind, and some of none. */
static void
drops_the_other_magic(void **state)
{
	static const uint32_t wrong[] = { MAGIC_REQUEST, 0, MAGIC_EXT_CHUNK,
		MAGIC_CHUNK, MAGIC_EXT + 1, MAGIC_EXT ^ 0x80000000,
		0x711ce421 };
	uint8_t buf[2 * EXT_REQUEST_SIZE] = { 0 };

	(void)state;
	for (size_t i = 0; i < NR(wrong); i++) {
		struct wire *w = enter("full");

		wire_assert_served(w, 0);
		put_ext_request(buf, 0, CMD_READ, 1, 0, 512);
		put32(buf, wrong[i]);
		wire_send(w, buf, EXT_REQUEST_SIZE);
		wire_expect_eof(w);
		wire_close(w);
	}
	for (int mode = WIRE_SIMPLE; mode <= WIRE_STRUCTURED; mode++) {
		struct wire *w =
		    wire_open_mode(nullbd, "full", (enum wire_mode)mode, 0);

		wire_assert_served(w, 0);
		put_ext_request(buf, 0, CMD_READ, 1, 0, 512);
		wire_send(w, buf, EXT_REQUEST_SIZE);
		wire_expect_eof(w);
		wire_close(w);
	}
}

/* Cut at each byte, and all bytes by themselves. */
static void
reassembles_requests(void **state)
{
	struct wire *w = enter("full");
	uint8_t buf[EXT_REQUEST_SIZE + 600], want[600], got[600];

	(void)state;
	for (size_t cut = 0; cut < sizeof(buf); cut += cut < 40 ? 1 : 59) {
		uint64_t cookie = 1000 + cut;
		struct answer a;

		answer_init(&a, w, CMD_PAYLOAD_LEN, CMD_WRITE, cookie, 1024,
		    sizeof(want));
		fill(want, sizeof(want), cut);
		put_ext_request(buf, CMD_PAYLOAD_LEN, CMD_WRITE, cookie, 1024,
		    sizeof(want));
		memcpy(buf + EXT_REQUEST_SIZE, want, sizeof(want));
		if (cut) {
			wire_send(w, buf, cut);
			sleep_ms(1);
			wire_send(w, buf + cut, sizeof(buf) - cut);
		} else {
			wire_send_pieces(w, buf, sizeof(buf), 1);
		}
		assert_int_equal(wire_answer(w, &a), 0);
		answer_fini(&a);
		assert_int_equal(wire_read(w, got, 1024, sizeof(got)), 0);
		assert_same(got, want, sizeof(got), "a request in pieces");
	}
}

static void
echoes_cookies(void **state)
{
	static const uint64_t cookies[] = { 0, ~0ULL, 1ULL << 63,
		0x21e41c716e8a278c, 0x0123456789abcdef };
	struct wire *w = enter("full");

	(void)state;
	for (size_t i = 0; i < NR(cookies); i++) {
		static const uint16_t types[] = { CMD_READ, CMD_FLUSH,
			CMD_BLOCK_STATUS, CMD_CACHE, 99 };

		for (size_t t = 0; t < NR(types); t++) {
			uint64_t offset = types[t] == CMD_FLUSH ? 0 : 8192;
			uint64_t length = types[t] == CMD_FLUSH ? 0 : 512;
			struct answer a;

			answer_init(
			    &a, w, 0, types[t], cookies[i], offset, length);
			wire_request(
			    w, 0, types[t], cookies[i], offset, length);
			wire_answer(w, &a);
			answer_fini(&a);
		}
	}
}

/* ----------------------------------------------------------- PAYLOAD_LEN */

/* Send a header and a payload of DISC requests: the error. */
static uint32_t
with_payload(struct wire *w, uint16_t flags, uint16_t type, uint64_t offset,
    uint64_t length)
{
	uint8_t *buf = xmalloc(2 * EXT_REQUEST_SIZE + length);
	uint64_t cookie = w->next_cookie++;
	struct answer a;
	uint32_t error;

	put_ext_request(buf, flags, type, cookie, offset, length);
	for (uint64_t i = 0; i < length; i += EXT_REQUEST_SIZE)
		put_ext_request(
		    buf + EXT_REQUEST_SIZE + i, 0, CMD_DISC, 0, 0, 0);
	answer_init(&a, w, flags, type, cookie, offset, length);
	wire_send(w, buf, EXT_REQUEST_SIZE + length);
	free(buf);
	error = wire_answer(w, &a);
	answer_fini(&a);
	return error;
}

static void
a_write_has_a_payload_anyway(void **state)
{
	static const uint32_t lengths[] = { 1, 31, 32, 33, 512, 4096, 70000 };
	struct wire *w = enter("full");
	uint8_t got[EXT_REQUEST_SIZE], want[EXT_REQUEST_SIZE];

	(void)state;
	put_ext_request(want, 0, CMD_DISC, 0, 0, 0);
	for (size_t i = 0; i < NR(lengths); i++) {
		for (uint16_t f = 0; f <= CMD_PAYLOAD_LEN;
		     f += CMD_PAYLOAD_LEN) {
			uint32_t n = lengths[i] < 32 ? lengths[i] : 32;

			assert_int_equal(
			    wire_cmd(w, 0, CMD_TRIM, 0, 128 * KiB), 0);
			assert_int_equal(
			    with_payload(w, f, CMD_WRITE, 0, lengths[i]), 0);
			assert_int_equal(wire_read(w, got, 0, n), 0);
			assert_same(got, want, n, "a write");
			/* refused, it is passed over */
			assert_int_equal(
			    with_payload(w, f, CMD_WRITE, SIZE, lengths[i]),
			    E_NOSPC);
			assert_int_equal(with_payload(w, f | 0x8000, CMD_WRITE,
					     0, lengths[i]),
			    E_INVAL);
		}
	}
	wire_assert_served(w, 0);
}

static void
passes_over_payloads_that_should_not_be(void **state)
{
	static const uint16_t types[] = { CMD_READ, CMD_FLUSH, CMD_TRIM,
		CMD_CACHE, CMD_WRITE_ZEROES, 8, 99, 0xffff };
	static const uint32_t lengths[] = { 1, 31, 32, 33, 512, 4096, 65536,
		1 * MiB, 33 * MiB, MAX_PAYLOAD };
	struct wire *w = enter("full");

	(void)state;
	for (size_t i = 0; i < NR(types); i++) {
		for (size_t k = 0; k < NR(lengths); k++) {
			uint32_t error = with_payload(
			    w, CMD_PAYLOAD_LEN, types[i], 0, lengths[k]);

			if (error != E_INVAL)
				wire_fail("command %u with a payload of %u: "
					  "error %u",
				    types[i], lengths[k], error);
		}
		/* nothing of it is a payload too */
		assert_int_equal(
		    with_payload(w, CMD_PAYLOAD_LEN, types[i], 0, 0), E_INVAL);
	}
	wire_assert_served(w, 0);
	wire_close(w);
	/* compact headers do not have the flag */
	for (int mode = WIRE_SIMPLE; mode <= WIRE_STRUCTURED; mode++) {
		w = wire_open_mode(nullbd, "full", (enum wire_mode)mode, 0);
		for (size_t i = 0; i < NR(types); i++)
			assert_int_equal(
			    wire_cmd(w, CMD_PAYLOAD_LEN, types[i], 0,
				types[i] == CMD_FLUSH ? 0 : 512),
			    E_INVAL);
		wire_assert_served(w, 0);
		wire_close(w);
	}
}

static void
hangs_up_on_endless_payloads(void **state)
{
	static const uint64_t lengths[] = { MAX_DRAIN + 1ull, GiB, 4 * GiB - 1,
		4 * GiB, 4 * GiB + 1, 4 * GiB + 512, 1ull << 63, ~0ULL - 511,
		~0ULL };
	static const uint16_t types[] = { CMD_WRITE, CMD_READ, CMD_TRIM,
		CMD_BLOCK_STATUS, 77 };
	struct wire *other = enter("huge");
	uint64_t rss = daemon_rss(nullbd);

	(void)state;
	for (size_t i = 0; i < NR(types) * NR(lengths); i++) {
		struct wire *w = enter("huge");
		uint8_t buf[EXT_REQUEST_SIZE], junk[8192] = { 0 };

		put_ext_request(buf, CMD_PAYLOAD_LEN, types[i % NR(types)], 1,
		    0, lengths[i / NR(types)]);
		wire_send(w, buf, sizeof(buf));
		wire_try_send(w, junk, sizeof(junk), 1000);
		wire_expect_eof(w);
		wire_close(w);
	}
	wire_assert_served(other, 0);
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0, rss + 8 * MiB);
}

/*
 * BLOCK_STATUS with a payload: the length to look at, and which contexts.
 * Where that is offered it works; where not, it is refused in step.
 */
static uint32_t
status_payload(struct wire *w, uint64_t offset, uint64_t effect,
    const uint32_t *ids, unsigned n, size_t extra)
{
	uint8_t buf[EXT_REQUEST_SIZE + 512], *p;
	size_t length = 8 + 4u * n + extra;
	uint64_t cookie = w->next_cookie++;
	struct answer a;
	uint32_t error;

	memset(buf, 0, sizeof(buf));
	p = put_ext_request(
	    buf, CMD_PAYLOAD_LEN, CMD_BLOCK_STATUS, cookie, offset, length);
	p = put64(p, effect);
	for (unsigned i = 0; i < n; i++)
		p = put32(p, ids[i]);
	answer_init(
	    &a, w, CMD_PAYLOAD_LEN, CMD_BLOCK_STATUS, cookie, offset, effect);
	wire_send(w, buf, EXT_REQUEST_SIZE + length);
	error = wire_answer(w, &a);
	answer_fini(&a);
	return error;
}

static void
status_of_chosen_contexts(void **state)
{
	struct wire *w = enter("full");
	uint32_t id = w->context[0].id;
	uint32_t twice[] = { id, id }, unknown[] = { id + 1 },
		 both[] = { id, id + 1 }, none = ~0u;
	bool offered = w->tx_flags & TX_STATUS_PAYLOAD;

	(void)state;
	print_message(
	    "BLOCK_STATUS_PAYLOAD is %soffered\n", offered ? "" : "not ");
	assert_int_equal(
	    status_payload(w, 0, SIZE, &id, 1, 0), offered ? 0 : E_INVAL);
	assert_int_equal(status_payload(w, BLOCK, SIZE - BLOCK, &id, 1, 0),
	    offered ? 0 : E_INVAL);
	assert_int_equal(status_payload(w, 0, SIZE, twice, 2, 0), E_INVAL);
	assert_int_equal(status_payload(w, 0, SIZE, unknown, 1, 0), E_INVAL);
	assert_int_equal(status_payload(w, 0, SIZE, both, 2, 0), E_INVAL);
	assert_int_equal(status_payload(w, 0, SIZE, &none, 1, 0), E_INVAL);
	for (size_t extra = 1; extra < 4; extra++)
		assert_int_equal(
		    status_payload(w, 0, SIZE, &id, 1, extra), E_INVAL);
	assert_int_equal(status_payload(w, 0, SIZE + 1, &id, 1, 0), E_INVAL);
	assert_int_equal(status_payload(w, 512, SIZE, &id, 1, 0), E_INVAL);
	assert_int_equal(status_payload(w, 512, ~0ULL, &id, 1, 0), E_INVAL);
	/* too short to say how far */
	for (uint64_t n = 0; n < 8; n++)
		assert_int_equal(
		    with_payload(w, CMD_PAYLOAD_LEN, CMD_BLOCK_STATUS, 0, n),
		    E_INVAL);
	assert_int_equal(
	    with_payload(w, CMD_PAYLOAD_LEN, CMD_BLOCK_STATUS, 0, 1 * MiB),
	    E_INVAL);
	wire_assert_served(w, 0);
	wire_close(w);
	/* it is offered where there are contexts only */
	w = wire_open_mode(nullbd, "full", WIRE_EXTENDED, 0);
	assert_false(w->tx_flags & TX_STATUS_PAYLOAD);
	assert_int_equal(status_payload(w, 0, SIZE, &id, 1, 0), E_INVAL);
	wire_assert_served(w, 0);
}

/* ---------------------------------------------------------------- 64 bits */

static void
range_checks_have_64_bits(void **state)
{
	static const struct {
		uint64_t offset, length;
	} bad[] = {
		{ 0, HUGE + 1 },
		{ 0, HUGE + 512 },
		{ 512, HUGE },
		{ HUGE - 512, 1024 },
		{ HUGE - 512, 4 * GiB },
		{ HUGE, 4 * GiB },
		{ 0, 1ULL << 63 },
		{ 0, ~0ULL },
		{ 0, 0 - 512ULL },
		{ 1, ~0ULL },
		{ 512, 0 - 512ULL },
		{ 4096, 0 - 4096ULL },
		{ 4096, 0 - 512ULL },
		{ 1ULL << 63, 1ULL << 63 },
		{ (1ULL << 63) + 4096, 1ULL << 63 },
		{ 0 - 512ULL, 512 },
		{ 0 - 512ULL, 0 - 512ULL },
	};
	static const uint16_t types[] = { CMD_TRIM, CMD_WRITE_ZEROES, CMD_CACHE,
		CMD_BLOCK_STATUS, CMD_READ };
	static const char *const names[] = { "huge", "null" };
	uint8_t got[512];

	(void)state;
	for (size_t d = 0; d < NR(names) * NR(types); d++) {
		struct wire *w = enter(names[d % 2]);
		uint16_t type = types[d / 2];
		bool offered = type == CMD_TRIM    ? w->tx_flags & TX_TRIM
			       : type == CMD_CACHE ? w->tx_flags & TX_CACHE
						   : true;

		for (size_t i = 0; i < NR(bad); i++) {
			uint32_t error =
			    wire_cmd(w, 0, type, bad[i].offset, bad[i].length);
			uint32_t want =
			    type == CMD_WRITE_ZEROES ? E_NOSPC : E_INVAL;

			if (!offered)
				want = E_INVAL;
			if (error != want &&
			    !(type == CMD_READ && error == E_OVERFLOW))
				wire_fail("command %u at 0x%llx of 0x%llx: "
					  "error %u",
				    type, (unsigned long long)bad[i].offset,
				    (unsigned long long)bad[i].length, error);
		}
		assert_int_equal(wire_read(w, got, 0, sizeof(got)), 0);
		wire_close(w);
	}
}

static void
reads_have_a_limit(void **state)
{
	static const uint64_t lengths[] = { MAX_PAYLOAD + 1ull,
		MAX_PAYLOAD + 512ull, GiB, 4 * GiB - 512, 4 * GiB,
		4 * GiB + 512, 4 * GiB + 4096, 1ull << 40, HUGE };
	struct wire *w = enter("huge");

	(void)state;
	for (size_t i = 0; i < NR(lengths) * 2; i++) {
		uint32_t error = wire_cmd(
		    w, i % 2 ? CMD_DF : 0, CMD_READ, 0, lengths[i / 2]);

		if (error != E_INVAL && error != E_OVERFLOW)
			wire_fail("READ of 0x%llx: error %u",
			    (unsigned long long)lengths[i / 2], error);
	}
	wire_assert_served(w, 0);
}

/* An effect that 32 bits cannot tell: what is inside, what is outside. */
static void
effects_are_64_bits_long(void **state)
{
	static const uint64_t lengths[] = { 4 * GiB, 4 * GiB + BLOCK,
		64 * GiB + BLOCK, HUGE - 3 * BLOCK };
	static const uint16_t types[] = { CMD_TRIM, CMD_WRITE_ZEROES };
	uint8_t data[BLOCK], got[BLOCK];
	struct wire *w = enter("huge");

	(void)state;
	fill(data, sizeof(data), 1);
	for (size_t i = 0; i < NR(types) * NR(lengths); i++) {
		uint64_t n = lengths[i / 2], from = 2 * BLOCK, end = from + n;
		const uint64_t inside[] = { from, from + n / 2 / BLOCK * BLOCK,
			from + 4 * GiB - BLOCK, end - BLOCK };
		const uint64_t outside[] = { from - BLOCK, end };
		struct answer a;

		for (size_t k = 0; k < NR(inside); k++)
			assert_int_equal(
			    wire_write(w, data, inside[k], BLOCK), 0);
		for (size_t k = 0; k < NR(outside); k++)
			assert_int_equal(
			    wire_write(w, data, outside[k], BLOCK), 0);
		assert_int_equal(wire_cmd(w, 0, types[i % 2], from, n), 0);
		for (size_t k = 0; k < NR(inside); k++) {
			assert_int_equal(
			    wire_read(w, got, inside[k], BLOCK), 0);
			assert_true(all_zero(got, BLOCK));
		}
		for (size_t k = 0; k < NR(outside); k++) {
			assert_int_equal(
			    wire_read(w, got, outside[k], BLOCK), 0);
			assert_same(got, data, BLOCK, "outside");
		}
		assert_int_equal(wire_status(w, 0, from, n, &a), 0);
		assert_int_equal(
		    a.status[0].extent[0].state, STATE_HOLE | STATE_ZERO);
		answer_fini(&a);
		if (w->tx_flags & TX_CACHE)
			assert_int_equal(wire_cmd(w, 0, CMD_CACHE, from, n), 0);
		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, HUGE), 0);
	}
}

/* A terabyte, told in one descriptor if there is nothing in it. */
static void
extents_are_64_bits_long(void **state)
{
	static const char *const names[] = { "huge", "null" };

	(void)state;
	for (size_t i = 0; i < NR(names); i++) {
		struct wire *w = enter(names[i]);
		struct answer a;

		if (w->tx_flags & TX_TRIM)
			assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, HUGE), 0);
		for (int one = 0; one < 2; one++) {
			assert_int_equal(
			    wire_status(w, one ? CMD_REQ_ONE : 0, 0, HUGE, &a),
			    0);
			assert_int_equal(a.status[0].nr, 1);
			assert_int_equal(a.status[0].extent[0].state,
			    STATE_HOLE | STATE_ZERO);
			assert_true(a.status[0].extent[0].length > 4 * GiB);
			answer_fini(&a);
		}
		assert_int_equal(wire_status(w, 0, HUGE - 512, 512, &a), 0);
		assert_int_equal(a.status[0].extent[0].length, 512);
		answer_fini(&a);
		wire_close(w);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N168", "data with the option are INVALID, passed over",
		    refuses_data),
		CASE("N168 N19", "they need no structured replies",
		    needs_no_structured_replies),
		CASE("N80 N179", "structured replies come too late after them",
		    structured_replies_come_too_late),
		CASE("N175 N179 N180", "compact headers are enough for all",
		    compact_headers_are_enough),
		CASE("N28", "EXPORT_NAME is not for them",
		    export_name_is_not_for_them),
		CASE("N108 N170", "drops a client with the other magic",
		    drops_the_other_magic),
		CASE("N110 N170", "reassembles requests cut anywhere",
		    reassembles_requests),
		CASE("N109 N171", "echoes any cookie", echoes_cookies),
		CASE("N111 N172", "a write has a payload, flag or not",
		    a_write_has_a_payload_anyway),
		CASE("N115 N173", "payloads that should not be are passed over",
		    passes_over_payloads_that_should_not_be),
		CASE("N173 N89", "hangs up on endless payloads",
		    hangs_up_on_endless_payloads),
		CASE("N174 N175", "a status of chosen contexts",
		    status_of_chosen_contexts),
		CASE("N116 N117 N176", "range checks have 64 bits",
		    range_checks_have_64_bits),
		CASE("N90 N177", "reads have a limit", reads_have_a_limit),
		CASE("N91 N176", "effects are 64 bits long",
		    effects_are_64_bits_long),
		CASE("N174 N176 N178", "and so are extents",
		    extents_are_64_bits_long),
	};

	return cmocka_run_group_tests_name("extended", tests, start, stop);
}
