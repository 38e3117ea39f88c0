/* SPDX-License-Identifier: MIT */
/*
 * Ways in which other servers once fell, or still do: each case is one, tried
 * in each mode in which it makes sense.  What was tried before chunks were
 * there is in the file of its section.
 */
#include "../lib/wire.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define NR(a) (sizeof(a) / sizeof(*(a)))
#define SIZE  (128ull * MiB)
#define HUGE  (16ull << 40)

static struct daemon *nullbd;

static const enum wire_mode modes[] = { WIRE_SIMPLE, WIRE_STRUCTURED,
	WIRE_EXTENDED };
static const enum wire_mode chunked[] = { WIRE_STRUCTURED, WIRE_EXTENDED };
static const char *const allocation = "base:allocation";

static int
start(void **state)
{
	(void)state;
	nullbd = daemon_start("nullb0:size=128M,memory_backed=1,discard=1",
	    "slow:size=128M,memory_backed=1,irqmode=2,completion_nsec=50000000",
	    "huge:size=16T,memory_backed=1,discard=1",
	    "odd:size=1049600B,memory_backed=1,blocksize=512", "null:size=250G",
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

/* nbdkit: INFO, then GO, opened the export twice (an assertion). */
static void
any_option_may_come_before_go(void **state)
{
	static const uint16_t infos[] = { INFO_BLOCK_SIZE, INFO_NAME };
	struct wire *other = wire_open(nullbd, "nullb0", false);
	unsigned fds = daemon_fds(nullbd);
	uint64_t rng = wire_seed(), rss = 0;

	(void)state;
	for (int i = 0; i < 400; i++) {
		enum wire_mode mode = modes[i % 3];
		struct wire *w = wire_negotiate(nullbd, mode);
		static const char *const names[] = { "nullb0", "slow", "" };

		for (int k = 0; k < 12; k++) {
			const char *name = names[rng_below(&rng, 3)];

			switch (rng_below(&rng, 5)) {
			case 0: wire_info(w, OPT_INFO, name, infos, 2); break;
			case 1:
				wire_meta(
				    w, OPT_SET_META, name, &allocation, 1);
				break;
			case 2:
				wire_meta(w, OPT_LIST_META, name, NULL, 0);
				break;
			case 3: wire_info(w, OPT_GO, "no such", NULL, 0); break;
			default: wire_assert_options_in_step(w);
			}
		}
		if (i % 4) {
			assert_int_equal(
			    wire_info(w, OPT_GO, "nullb0", NULL, 0), REP_ACK);
			wire_assert_served(w, 0);
		}
		wire_close(w);
		if (i == 100)
			rss = daemon_rss(nullbd);
	}
	daemon_settle(nullbd, fds);
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0, rss + 1 * MiB);
	wire_assert_served(other, 0);
}

/* nbd-server: INFO tells a size of 0; others: other flags than GO. */
static void
info_and_go_tell_the_same_in_each_mode(void **state)
{
	static const char *const names[] = { "nullb0", "slow", "huge", "odd",
		"null", "" };
	static const uint16_t info = INFO_BLOCK_SIZE;

	(void)state;
	for (size_t i = 0; i < NR(modes) * NR(names); i++) {
		struct wire *w = wire_negotiate(nullbd, modes[i % 3]);
		struct wire told;

		assert_int_equal(
		    wire_info(w, OPT_INFO, names[i / 3], &info, 1), REP_ACK);
		told = *w;
		assert_int_not_equal(told.size, 0);
		assert_int_equal(
		    wire_info(w, OPT_GO, names[i / 3], &info, 1), REP_ACK);
		assert_int_equal(w->size, told.size);
		assert_int_equal(w->tx_flags, told.tx_flags);
		assert_int_equal(w->min, told.min);
		assert_int_equal(w->pref, told.pref);
		assert_int_equal(w->max, told.max);
		assert_int_equal(!!(w->tx_flags & TX_DF), !!modes[i % 3]);
		wire_close(w);
	}
}

/* nbd-server takes NO_HOLE with READ. */
static void
flags_go_with_their_commands_in_each_mode(void **state)
{
	static const struct {
		uint16_t flag, type;
	} good[] = {
		{ CMD_NO_HOLE, CMD_WRITE_ZEROES },
		{ CMD_FAST_ZERO, CMD_WRITE_ZEROES },
		{ CMD_DF, CMD_READ },
		{ CMD_REQ_ONE, CMD_BLOCK_STATUS },
	};
	static const uint16_t types[] = { CMD_READ, CMD_TRIM, CMD_CACHE,
		CMD_WRITE_ZEROES, CMD_BLOCK_STATUS };

	(void)state;
	for (size_t i = 0; i < NR(chunked) * NR(types); i++) {
		uint16_t type = types[i / 2];
		struct wire *w = wire_open_mode(
		    nullbd, "nullb0", chunked[i % 2], WANT_STATUS);

		for (uint16_t f = CMD_FUA << 1; f; f = (uint16_t)(f << 1)) {
			bool legal = false;
			uint32_t error = wire_cmd(w, f, type, 0, 0);

			if (f == CMD_PAYLOAD_LEN)
				continue;
			for (size_t k = 0; k < NR(good); k++)
				legal |=
				    good[k].flag == f && good[k].type == type;
			if (!legal)
				assert_int_equal(error, E_INVAL);
			error = wire_cmd(w, f, type, 0, 4096);
			if (legal && f != CMD_FAST_ZERO)
				assert_int_equal(error, 0);
			if (!legal)
				assert_int_equal(error, E_INVAL);
		}
		wire_assert_served(w, 0);
		wire_close(w);
	}
}

/* qemu hangs up on a WRITE of more than 32 MiB. */
static void
payloads_are_served_in_each_mode(void **state)
{
	static const uint32_t lengths[] = { 32 * MiB, 32 * MiB + 512, 49865728,
		64 * MiB };
	uint8_t *want = xmalloc(64 * MiB), *got = xmalloc(64 * MiB);

	(void)state;
	fill(want, 64 * MiB, 1);
	for (size_t i = 0; i < NR(chunked) * NR(lengths); i++) {
		uint32_t n = lengths[i / 2];
		struct wire *w = wire_open_mode(nullbd, "nullb0",
		    chunked[i % 2], i & 4 ? WANT_BLOCK_SIZE : 0);

		memset(got, 0, n);
		assert_int_equal(wire_write(w, want, 512 * i, n), 0);
		assert_int_equal(wire_read(w, got, 512 * i, n), 0);
		assert_same(got, want, n, "a large payload");
		wire_assert_served(w, 0);
		wire_close(w);
	}
	free(got);
	free(want);
}

static void
larger_payloads_are_passed_over_in_each_mode(void **state)
{
	static const uint32_t lengths[] = { 64 * MiB + 512, 100 * MiB,
		128 * MiB };
	uint8_t *data = xmalloc(128 * MiB);

	(void)state;
	for (size_t i = 0; i < 128 * MiB; i += REQUEST_SIZE)
		if (i + REQUEST_SIZE <= 128 * MiB)
			put_request(data + i, 0, CMD_DISC, 0, 0, 0);
	for (size_t i = 0; i < NR(chunked); i++) {
		struct wire *w = wire_open_mode(nullbd, "null", chunked[i], 0);

		for (size_t k = 0; k < NR(lengths); k++) {
			uint32_t error =
			    wire_cmd(w, 0, CMD_READ, 0, lengths[k]);

			assert_int_equal(
			    wire_write(w, data, 0, lengths[k]), E_INVAL);
			assert_true(error == E_INVAL || error == E_OVERFLOW);
		}
		assert_int_equal(wire_cmd(w, 0, CMD_FLUSH, 0, 0), 0);
		wire_close(w);
	}
	free(data);
}

/* nbdkit: extents of almost 4 GiB, and a sum beyond it, were assertions. */
static void
extents_end_before_32_bits_do(void **state)
{
	static const uint64_t offsets[] = { 0, 1, 511, 512, 4096, 0xffffffff,
		1ull << 32, (1ull << 32) + 1, (1ull << 40) + 512,
		HUGE - 0xffffffff };
	static const uint32_t lengths[] = { 0xffffffff, 0xfffffe00, 0xfffff000,
		0x80000000, 0x7fffffff, 1, 511, 513 };

	(void)state;
	for (size_t i = 0; i < NR(chunked); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "huge", chunked[i], WANT_STATUS);

		for (size_t k = 0; k < NR(offsets) * NR(lengths) * 2; k++) {
			uint64_t offset = offsets[k / 2 / NR(lengths)];
			uint32_t length = lengths[k / 2 % NR(lengths)];
			struct answer a;

			assert_int_equal(wire_status(w, k % 2 ? CMD_REQ_ONE : 0,
					     offset, length, &a),
			    0);
			answer_fini(&a);
		}
		wire_close(w);
	}
}

/* qemu told of bytes beyond the end of an odd size. */
static void
nothing_is_told_beyond_an_odd_end(void **state)
{
	(void)state;
	for (size_t i = 0; i < NR(chunked); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "odd", chunked[i], WANT_STATUS);
		uint8_t data[512] = { 1 }, got[1024];
		struct answer a;

		assert_int_equal(wire_write(w, data, w->size - 512, 512), 0);
		assert_int_equal(wire_read(w, got, w->size - 1024, 1024), 0);
		assert_int_equal(got[512], 1);
		assert_int_equal(wire_status(w, 0, 0, w->size, &a), 0);
		answer_fini(&a);
		assert_int_equal(wire_status(w, 0, w->size - 513, 513, &a), 0);
		answer_fini(&a);
		assert_int_equal(wire_ask(w, 0, CMD_READ, w->size - 64 * KiB,
				     64 * KiB, NULL, NULL, &a),
		    0);
		answer_fini(&a);
		wire_close(w);
	}
}

/* Some hung up with replies, or the rest of one, unsent. */
static void
disc_and_half_close_wait_in_each_mode(void **state)
{
	enum {
		N = 40
	};
	static uint8_t data[N * 4096], got[N * 4096];
	struct op ops[N + 1];

	(void)state;
	for (size_t i = 0; i < NR(modes) * 2; i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "slow", modes[i / 2], 0);

		for (size_t k = 0; k < N; k++)
			ops[k] =
			    (struct op){ .type = k % 2 ? CMD_WRITE : CMD_READ,
				    .offset = k * 64 * KiB,
				    .length = 4096,
				    .data = data + k * 4096,
				    .got = got + k * 4096 };
		ops[7].offset = SIZE; /* fails */
		ops[8].offset = SIZE;
		ops[N] = (struct op){ .type = CMD_DISC };
		batch_send(w, ops, i % 2 ? N : N + 1);
		if (i % 2)
			wire_half_close(w);
		assert_int_equal(
		    batch_collect_eof(w, ops, i % 2 ? N : N + 1), N);
		for (size_t k = 0; k < N; k++)
			assert_int_equal(ops[k].error, k == 7   ? E_NOSPC
						       : k == 8 ? E_INVAL
								: 0);
		wire_close(w);
	}
}

/* qemu: a client that hung in negotiation kept the server from its end. */
static void
who_hangs_in_negotiation_delays_nothing(void **state)
{
	static const uint32_t options[] = { OPT_SET_META, OPT_LIST_META,
		OPT_STRUCTURED_REPLY, OPT_EXTENDED_HEADERS, OPT_GO };
	struct daemon *d =
	    daemon_start("nullb0:size=64M,memory_backed=1", NULL);
	struct wire *served = wire_open_mode(d, "", WIRE_EXTENDED, WANT_STATUS);

	(void)state;
	for (size_t i = 0; i < NR(modes) * NR(options); i++) {
		struct wire *w = wire_negotiate(d, modes[i % 3]);
		uint8_t head[OPT_HEADER];

		/* half of its data, or of its header */
		put32(put32(put64(head, MAGIC_IHAVEOPT), options[i / 3]), 99);
		wire_send(w, head, i % 2 ? sizeof(head) : 9);
	}
	wire_assert_served(served, 0);
	print_message("it takes %d ms\n", daemon_stop(d));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N69 N70 N103", "any option may come before GO",
		    any_option_may_come_before_go),
		CASE("N62 N69 N79", "INFO and GO tell the same in each mode",
		    info_and_go_tell_the_same_in_each_mode),
		CASE("N113 N115", "flags go with their commands in each mode",
		    flags_go_with_their_commands_in_each_mode),
		CASE("N81 N89 N92", "64 MiB are served in each mode",
		    payloads_are_served_in_each_mode),
		CASE("N89 N90 N135",
		    "larger payloads are passed over in each mode",
		    larger_payloads_are_passed_over_in_each_mode),
		CASE("N91 N152", "extents end before 32 bits do",
		    extents_end_before_32_bits_do),
		CASE("N85 N148 N154", "nothing is told beyond an odd end",
		    nothing_is_told_beyond_an_odd_end),
		CASE("N127 N156 N164",
		    "DISC and a half-closed client's end wait in each mode",
		    disc_and_half_close_wait_in_each_mode),
		CASE("N20 N162", "who hangs in negotiation delays no end",
		    who_hangs_in_negotiation_delays_nothing),
	};

	return cmocka_run_group_tests_name("faults", tests, start, stop);
}
