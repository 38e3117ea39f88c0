/* SPDX-License-Identifier: MIT */
/* Sizes: of blocks, of payloads, of effects: section 9 of the spec. */
#include "../lib/wire.h"

#include <stdlib.h>
#include <string.h>

#define NR(a) (sizeof(a) / sizeof(*(a)))
#define SIZE  (256ull * MiB)

static struct daemon *nullbd;

static const struct {
	const char *name;
	uint32_t blocksize;
} devices[] = { { "b512", 512 }, { "b1k", 1024 }, { "b2k", 2048 },
	{ "b4k", 4096 } };

static int
start(void **state)
{
	(void)state;
	nullbd = daemon_start(
	    "b512:size=256M,memory_backed=1,discard=1,blocksize=512",
	    "b1k:size=256M,memory_backed=1,discard=1,blocksize=1024",
	    "b2k:size=256M,memory_backed=1,discard=1,blocksize=2048",
	    "b4k:size=256M,memory_backed=1,discard=1,blocksize=4096",
	    "null:size=250G",
	    "vast:size=9223372036854775296B,memory_backed=1,discard=1,"
	    "write_zeroes_max_bytes=0xfffffe00",
	    "data:size=16G,memory_backed=1,discard=1",
	    "phys:size=64M,blocksize=512,physical_block_size=4096",
	    "tiny:size=4096B,memory_backed=1", NULL);
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

static bool
power_of_two(uint32_t v)
{
	return v && !(v & (v - 1));
}

static void
announces_sane_block_sizes(void **state)
{
	static const char *const all[] = { "b512", "b1k", "b2k", "b4k", "null",
		"vast", "phys", "tiny" };

	(void)state;
	for (size_t i = 0; i < NR(all); i++) {
		struct wire *w = wire_open(nullbd, all[i], true);

		assert_true(power_of_two(w->min));
		assert_in_range(w->min, 1, 65536);
		assert_true(power_of_two(w->pref));
		assert_true(w->pref >= w->min);
		assert_true(w->pref >= 512);
		assert_true(w->max >= w->pref);
		assert_int_equal(w->max, 64 * MiB);
		assert_int_equal(w->size % w->min, 0);
		wire_close(w);
	}
	for (size_t i = 0; i < NR(devices); i++) {
		struct wire *w = wire_open(nullbd, devices[i].name, true);

		assert_int_equal(w->min, devices[i].blocksize);
		wire_close(w);
	}
}

static void
tells_block_sizes_to_who_asks(void **state)
{
	struct wire *w = wire_open(nullbd, "b4k", false);

	(void)state;
	/* unasked it may tell them or not, but not wrong ones */
	assert_true(!w->min || w->min == 4096);
	w = wire_open(nullbd, "b4k", true);
	assert_int_equal(w->min, 4096);
}

static uint32_t
bad_write(struct wire *w, uint64_t offset, uint32_t length)
{
	uint64_t cookie = w->next_cookie++;
	uint8_t *trap = xmalloc(length + REQUEST_SIZE);

	for (uint32_t i = 0; i < length; i += REQUEST_SIZE)
		put_request(trap + i, 0, CMD_DISC, 0, 0, 0);
	wire_request(w, 0, CMD_WRITE, cookie, offset, length);
	wire_send(w, trap, length);
	free(trap);
	return wire_reply(w, cookie);
}

/* Who asked for the block sizes has to keep them. */
static void
refuses_unaligned_requests(void **state)
{
	static const uint16_t types[] = { CMD_READ, CMD_WRITE, CMD_TRIM,
		CMD_WRITE_ZEROES, CMD_CACHE };
	uint8_t *want = xmalloc(64 * KiB), *got = xmalloc(64 * KiB);

	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d].name, true);
		uint32_t b = devices[d].blocksize;
		const struct {
			uint32_t offset, length;
		} bad[] = { { 1, b }, { b / 2, b }, { 0, b + 1 }, { 0, b - 1 },
			{ 0, 1 }, { b, b / 2 }, { b / 2, b / 2 }, { b - 1, 1 },
			{ 3, 8 * b - 3 }, { b + 1, 7 * b - 1 } };

		fill(want, 64 * KiB, d);
		assert_int_equal(wire_write(w, want, 0, 64 * KiB), 0);
		for (size_t i = 0; i < NR(bad); i++) {
			for (size_t t = 0; t < NR(types); t++) {
				uint32_t error =
				    types[t] == CMD_WRITE
					? bad_write(
					      w, bad[i].offset, bad[i].length)
					: wire_cmd(w, 0, types[t],
					      bad[i].offset, bad[i].length);

				if (error != E_INVAL)
					wire_fail("%s: command %u at %u of %u:"
						  " error %u",
					    devices[d].name, types[t],
					    bad[i].offset, bad[i].length,
					    error);
			}
		}
		assert_int_equal(wire_read(w, got, 0, 64 * KiB), 0);
		assert_same(got, want, 64 * KiB, "after refused requests");
		/* the kernel's smallest and other multiples are served */
		assert_int_equal(wire_read(w, got, b, b), 0);
		assert_int_equal(wire_write(w, want, 3 * b, 5 * b), 0);
		wire_close(w);
	}
	free(got);
	free(want);
}

/* Who never asked is served to the byte. */
static void
serves_unaligned_requests(void **state)
{
	enum {
		AREA = 128 * KiB
	};
	uint8_t *want = xmalloc(AREA), *got = xmalloc(AREA);
	uint8_t *data = xmalloc(AREA);
	uint64_t rng = wire_seed();

	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_open(nullbd, devices[d].name, false);

		fill(want, AREA, d);
		assert_int_equal(wire_write(w, want, 0, AREA), 0);
		for (int i = 0; i < 400; i++) {
			uint32_t n = 1 + (uint32_t)rng_below(
					     &rng, i % 3 ? 3 * 4096 : 700);
			uint32_t at = (uint32_t)rng_below(&rng, AREA - n + 1);

			switch (rng_below(&rng, 3)) {
			case 0:
				fill(data, n, rng_next(&rng));
				memcpy(want + at, data, n);
				assert_int_equal(wire_write(w, data, at, n), 0);
				break;
			case 1:
				assert_int_equal(wire_read(w, got, at, n), 0);
				assert_same(got, want + at, n, "unaligned");
				break;
			default:
				memset(want + at, 0, n);
				assert_int_equal(
				    wire_cmd(w, 0, CMD_WRITE_ZEROES, at, n), 0);
			}
		}
		assert_int_equal(wire_read(w, got, 0, AREA), 0);
		assert_same(got, want, AREA, devices[d].name);
		/* the very end */
		assert_int_equal(wire_write(w, want, SIZE - 3, 3), 0);
		assert_int_equal(wire_read(w, got, SIZE - 3, 3), 0);
		assert_memory_equal(got, want, 3);
		wire_close(w);
	}
	free(data);
	free(got);
	free(want);
}

static void
unaligned_for_plain_newstyle_clients(void **state)
{
	(void)state;
	for (size_t d = 0; d < NR(devices); d++) {
		struct wire *w = wire_unix(nullbd->sock);
		uint8_t entry[134], data[700], got[700];

		wire_greeting(w);
		wire_flags(w, 0);
		wire_option(w, OPT_EXPORT_NAME, devices[d].name,
		    (uint32_t)strlen(devices[d].name));
		wire_recv(w, entry, sizeof(entry));
		fill(data, sizeof(data), d);
		assert_int_equal(wire_write(w, data, 333, 700), 0);
		assert_int_equal(wire_read(w, got, 333, 700), 0);
		assert_memory_equal(got, data, 700);
		wire_close(w);
	}
}

/* All that a client may assume, and all that is announced. */
static void
serves_payloads_to_the_maximum(void **state)
{
	static const uint32_t lengths[] = { 1 * MiB, 32 * MiB, 33554432 + 512,
		49865728, 64 * MiB - 512, 64 * MiB };
	uint8_t *want = xmalloc(64 * MiB), *got = xmalloc(64 * MiB);

	(void)state;
	fill(want, 64 * MiB, 77);
	for (size_t i = 0; i < NR(lengths); i++) {
		struct wire *w = wire_open(nullbd, "b512", i & 1);
		uint32_t n = lengths[i];

		assert_int_equal(wire_write(w, want, 512 * i, n), 0);
		memset(got, 0, n);
		assert_int_equal(wire_read(w, got, 512 * i, n), 0);
		assert_same(got, want, n, "a large payload");
		wire_close(w);
	}
	free(got);
	free(want);
}

/* Four of the largest at once, on one connection. */
static void
pipelines_the_largest_payloads(void **state)
{
	uint8_t *want = xmalloc(64 * MiB), *got = xmalloc(128ul * MiB);
	struct wire *w = wire_open(nullbd, "b4k", true);
	struct op ops[6] = { { 0 } };

	(void)state;
	fill(want, 64 * MiB, 78);
	for (uint32_t i = 0; i < 6; i++) {
		ops[i].type = i % 3 == 2 ? CMD_READ : CMD_WRITE;
		ops[i].offset = (uint64_t)i * 8 * MiB;
		ops[i].length = 64 * MiB;
		ops[i].data = want;
		ops[i].got = got + (i / 3) * 64ul * MiB;
	}
	batch_run(w, ops, 6, 0);
	batch_assert_ok(ops, 6);
	/* op 2 reads at 16 MiB: what op 1 wrote at 8 MiB */
	assert_same(got, want + 8 * MiB, 56ul * MiB, "the first read");
	assert_same(
	    got + 64ul * MiB, want + 8 * MiB, 56ul * MiB, "the second read");
	free(got);
	free(want);
}

/* Whatever is in flight before it: a large write gets its turn. */
static void
a_large_write_gets_its_turn(void **state)
{
	static const struct {
		uint16_t type;
		uint32_t length;
	} before[] = {
		{ CMD_READ, 512 },
		{ CMD_READ, 4096 },
		{ CMD_READ, 1 * MiB },
		{ CMD_READ, 64 * MiB },
		{ CMD_WRITE, 4096 },
		{ CMD_WRITE, 64 * MiB },
	};
	static const uint32_t lengths[] = { 4096, 64 * MiB };
	uint8_t *data = xmalloc(64 * MiB), *got = xmalloc(64 * MiB);

	(void)state;
	fill(data, 64 * MiB, 4);
	for (size_t i = 0; i < NR(before); i++) {
		for (size_t k = 0; k < NR(lengths); k++) {
			struct wire *w = wire_open(nullbd, "b512", false);
			struct op ops[3] = {
				{ .type = before[i].type,
				    .length = before[i].length },
				{ .type = CMD_WRITE, .length = lengths[k] },
				{ .type = CMD_READ, .length = 4096 },
			};

			for (int o = 0; o < 3; o++) {
				ops[o].data = data;
				ops[o].got = got;
			}
			print_message("command %u of %u, write of %u\n",
			    before[i].type, before[i].length, lengths[k]);
			batch_run(w, ops, 3, 0);
			batch_assert_ok(ops, 3);
			assert_same(got, data, 4096, "the last read");
			wire_close(w);
		}
	}
	free(got);
	free(data);
}

static void
refuses_larger_payloads_in_step(void **state)
{
	static const uint32_t lengths[] = { 64 * MiB + 512, 65 * MiB, 100 * MiB,
		128 * MiB };
	struct wire *w = wire_open(nullbd, "b512", false);
	uint8_t before[4096], after[4096];

	(void)state;
	fill(before, sizeof(before), 5);
	assert_int_equal(wire_write(w, before, 0, 4096), 0);
	for (size_t i = 0; i < NR(lengths); i++) {
		assert_int_equal(
		    wire_cmd(w, 0, CMD_READ, 0, lengths[i]), E_INVAL);
		assert_int_equal(bad_write(w, 0, lengths[i]), E_INVAL);
		assert_int_equal(wire_read(w, after, 0, 4096), 0);
		assert_same(after, before, 4096, "after a payload too large");
	}
	assert_int_equal(wire_cmd(w, 0, CMD_READ, 0, 0xffffffff), E_INVAL);
	assert_int_equal(wire_cmd(w, 0, CMD_READ, 0, 0xfffffe00), E_INVAL);
	wire_assert_served(w, 0);
}

/* 128 MiB are passed over, twice as much is an attack. */
static void
hangs_up_on_endless_writes(void **state)
{
	static const uint32_t lengths[] = { 128 * MiB + 512, 256 * MiB,
		0x7fffffff, 0x80000000, 0xffffffff };
	struct wire *other = wire_open(nullbd, "b4k", false);
	uint64_t rss = daemon_rss(nullbd);
	uint8_t junk[4096] = { 0 };

	(void)state;
	for (size_t i = 0; i < NR(lengths); i++) {
		struct wire *w = wire_open(nullbd, "b512", false);

		wire_request(w, 0, CMD_WRITE, 1, 0, lengths[i]);
		wire_try_send(w, junk, sizeof(junk), 1000);
		wire_expect_eof(w);
		wire_close(w);
	}
	wire_assert_served(other, 0);
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0, rss + 8 * MiB);
}

/* The largest effects that the kernel sends. */
static void
bears_effects_larger_than_payloads(void **state)
{
	static const char *const names[] = { "null", "vast" };
	static const uint16_t types[] = { CMD_TRIM, CMD_WRITE_ZEROES,
		CMD_CACHE };
	static const uint32_t lengths[] = { 65 * MiB, 0x80000000, 0xfffffe00,
		0xfffff000 };
	uint8_t got[512];

	(void)state;
	for (size_t d = 0; d < NR(names); d++) {
		struct wire *w = wire_open(nullbd, names[d], true);
		uint64_t rss = daemon_rss(nullbd);

		for (size_t t = 0; t < NR(types); t++) {
			for (size_t i = 0; i < NR(lengths); i++) {
				uint32_t error = wire_cmd(
				    w, 0, types[t], i * 4096, lengths[i]);
				bool offered =
				    types[t] == CMD_TRIM ? w->tx_flags & TX_TRIM
				    : types[t] == CMD_CACHE
					? w->tx_flags & TX_CACHE
					: w->tx_flags & TX_WRITE_ZEROES;

				if (offered ? error != 0 && error != E_OVERFLOW
					    : error != E_INVAL)
					wire_fail("%s: command %u of %u: "
						  "error %u",
					    names[d], types[t], lengths[i],
					    error);
				if (error == E_OVERFLOW)
					print_message("%s: command %u of 0x%x:"
						      " EOVERFLOW\n",
					    names[d], types[t], lengths[i]);
			}
		}
		/* zeroes cost no memory where there were no data */
		if (!daemon_sanitized(nullbd))
			assert_in_range(daemon_rss(nullbd), 0, rss + 64 * MiB);
		assert_int_equal(wire_read(w, got, 0, sizeof(got)), 0);
		wire_close(w);
	}
}

/* Zero a gibibyte, and let others read meanwhile: do they wait for it? */
static bool
others_wait_for_zeroing(struct wire *w, struct wire *const *other, int n)
{
	uint64_t start_ns = now_ns(), worst_ns = 0, done_ns;
	uint8_t got[512], head[REPLY_SIZE];
	bool eof = false;
	size_t have = 0;

	wire_request(w, 0, CMD_WRITE_ZEROES, 1, 0, 1024 * MiB);
	do {
		for (int i = 0; i < n; i++) {
			uint64_t from_ns = now_ns();

			assert_int_equal(wire_read(other[i], got, 0, 512), 0);
			from_ns = now_ns() - from_ns;
			if (from_ns > worst_ns)
				worst_ns = from_ns;
		}
		have += wire_drain(w, head + have, REPLY_SIZE - have, 1, &eof);
	} while (have < REPLY_SIZE && !eof);
	done_ns = now_ns() - start_ns;
	assert_int_equal(have, REPLY_SIZE);
	assert_true(!get32(head + 4) || get32(head + 4) == E_OVERFLOW);
	print_message("1 GiB of zeros: %llu ms, others wait %llu ms at most\n",
	    (unsigned long long)done_ns / 1000000,
	    (unsigned long long)worst_ns / 1000000);
	wire_cmd(w, 0, CMD_TRIM, 0, 1024 * MiB);
	return worst_ns > 100000000 && worst_ns > done_ns / 3;
}

/*
 * A gibibyte of zeros takes its time where they are written as data (without
 * write_zeroes_max_bytes, as null_blk has it).  Others do not wait for it; on
 * a busy machine they may once or twice wait for something else.
 */
static void
a_large_effect_harms_nobody(void **state)
{
	static const char *const names[] = { "data", "b512", "data", "null" };
	struct wire *w = wire_open(nullbd, "data", false), *other[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		other[i] = wire_open(nullbd, names[i], false);
	for (int try = 0; try < 5; try++)
		if (!others_wait_for_zeroing(w, other, 4))
			return;
	wire_fail("others wait for it");
}

static void
large_effects_do_their_work(void **state)
{
	static const uint16_t types[] = { CMD_TRIM, CMD_WRITE_ZEROES };
	struct wire *w = wire_open(nullbd, "vast", false);
	uint8_t data[4096], got[4096];
	static const uint64_t base = 512ull * 1024 * MiB;

	(void)state;
	for (int t = 0; t < 2; t++) {
		uint64_t inside[] = { base, base + 1024ull * MiB,
			base + 0xfffffe00u - 4096 };
		uint64_t outside[] = { base - 4096, base + 0xfffffe00u };

		fill(data, sizeof(data), (uint64_t)t);
		for (size_t i = 0; i < NR(inside); i++)
			assert_int_equal(
			    wire_write(w, data, inside[i], 4096), 0);
		for (size_t i = 0; i < NR(outside); i++)
			assert_int_equal(
			    wire_write(w, data, outside[i], 4096), 0);
		if (wire_cmd(w, 0, types[t], base, 0xfffffe00)) {
			print_message("command %u: refused\n", types[t]);
			continue;
		}
		for (size_t i = 0; i < NR(inside); i++) {
			assert_int_equal(wire_read(w, got, inside[i], 4096), 0);
			assert_true(all_zero(got, 4096));
		}
		for (size_t i = 0; i < NR(outside); i++) {
			assert_int_equal(
			    wire_read(w, got, outside[i], 4096), 0);
			assert_same(got, data, 4096, "outside");
		}
	}
}

/* 2^63 - 512 bytes: the sum of a good offset and length is 2^63 - 512. */
static void
serves_the_largest_device(void **state)
{
	static const uint64_t end = (1ULL << 63) - 512;
	static const uint64_t offsets[] = { 0, 1ULL << 32, 1ULL << 41,
		1ULL << 62, end - 4096 };
	struct wire *w = wire_open(nullbd, "vast", true);
	uint8_t data[4096], got[4096];

	(void)state;
	assert_true(w->size == end);
	for (size_t i = 0; i < NR(offsets); i++) {
		fill(data, sizeof(data), i);
		assert_int_equal(wire_write(w, data, offsets[i], 4096), 0);
	}
	for (size_t i = 0; i < NR(offsets); i++) {
		fill(data, sizeof(data), i);
		assert_int_equal(wire_read(w, got, offsets[i], 4096), 0);
		assert_same(got, data, 4096, "far away");
	}
	assert_int_equal(wire_read(w, got, end - 512, 512), 0);
	assert_int_equal(wire_cmd(w, 0, CMD_READ, end - 512, 1024), E_INVAL);
	assert_int_equal(wire_cmd(w, 0, CMD_READ, end, 512), E_INVAL);
	assert_int_equal(wire_cmd(w, 0, CMD_READ, 1ULL << 63, 512), E_INVAL);
	assert_int_equal(bad_write(w, end - 512, 1024), E_NOSPC);
	assert_int_equal(bad_write(w, end, 512), E_NOSPC);
	assert_int_equal(bad_write(w, ~0ULL - 511, 512), E_NOSPC);
	assert_int_equal(wire_cmd(w, 0, CMD_TRIM, end - 4096, 8192), E_INVAL);
	assert_int_equal(wire_cmd(w, 0, CMD_TRIM, end - 4096, 4096), 0);
	assert_int_equal(wire_read(w, got, end - 4096, 4096), 0);
	assert_true(all_zero(got, 4096));
}

static void
serves_the_smallest_device(void **state)
{
	struct wire *w = wire_open(nullbd, "tiny", true);
	uint8_t data[8192] = { 0 };

	(void)state;
	assert_int_equal(w->size, 4096);
	assert_int_equal(wire_write(w, data, 0, 4096), 0);
	assert_int_equal(bad_write(w, 0, 8192), E_NOSPC);
	assert_int_equal(wire_cmd(w, 0, CMD_READ, 0, 8192), E_INVAL);
	assert_int_equal(wire_read(w, data, 0, 4096), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N66 N82 N83 N84 N85",
		    "announces block sizes that are sane",
		    announces_sane_block_sizes),
		CASE("N81 N86", "tells the block sizes to who asks",
		    tells_block_sizes_to_who_asks),
		CASE("N88 N111", "who asked has to align: EINVAL otherwise",
		    refuses_unaligned_requests),
		CASE("N87 N81", "who did not ask is served to the byte",
		    serves_unaligned_requests),
		CASE("N87", "plain newstyle clients are served to the byte",
		    unaligned_for_plain_newstyle_clients),
		CASE("N81 N89", "serves payloads up to 64 MiB",
		    serves_payloads_to_the_maximum),
		CASE("N89", "serves six payloads of 64 MiB at once",
		    pipelines_the_largest_payloads),
		CASE("N89 N81",
		    "a large write gets its turn behind any request",
		    a_large_write_gets_its_turn),
		CASE("N90 N89", "larger payloads are passed over: EINVAL",
		    refuses_larger_payloads_in_step),
		CASE("N89", "hangs up on payloads above 128 MiB",
		    hangs_up_on_endless_writes),
		CASE("N91", "effects of almost 4 GiB are no attack",
		    bears_effects_larger_than_payloads),
		CASE("N91 N165", "an effect of 1 GiB harms nobody else",
		    a_large_effect_harms_nobody),
		CASE("N91 N144", "effects of almost 4 GiB are exact",
		    large_effects_do_their_work),
		CASE("N116 N62",
		    "serves a device of 2^63 - 512 bytes to its end",
		    serves_the_largest_device),
		CASE("N85", "serves a device of 4096 bytes",
		    serves_the_smallest_device),
	};

	return cmocka_run_group_tests_name("limits", tests, start, stop);
}
