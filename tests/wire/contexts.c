/* SPDX-License-Identifier: MIT */
/*
 * Metadata contexts and BLOCK_STATUS: sections 10 and 13 of the spec.  Where a
 * case makes sense for both it is run with structured replies and with
 * extended headers.  The form of each status is checked as it is received
 * (tests/lib/answer.c).
 */
#include "../lib/wire.h"

#include <stdlib.h>
#include <string.h>

#define NR(a)       (sizeof(a) / sizeof(*(a)))
#define SIZE        (64ull * MiB)
#define HUGE        (16ull << 40)
#define BLOCK       4096u
#define REGION      (8 * MiB)
#define MAX_EXTENTS 1024u /* of a reply: nbd.h */
#define ALLOCATION  "base:allocation"
#define BADBLOCKS   "x-nullb:badblocks"
#define NOWHERE     (STATE_HOLE | STATE_ZERO)

static struct daemon *nullbd;

static const enum wire_mode modes[] = { WIRE_STRUCTURED, WIRE_EXTENDED };
static const char *const allocation = ALLOCATION;

static int
start(void **state)
{
	(void)state;
	nullbd = daemon_start(
	    "b512:size=64M,memory_backed=1,discard=1,blocksize=512",
	    "b4k:size=64M,memory_backed=1,discard=1,blocksize=4096",
	    "null:size=64M",
	    "wz:size=64M,memory_backed=1,discard=1,"
	    "write_zeroes_max_bytes=1M",
	    "huge:size=16T,memory_backed=1,discard=1,"
	    "write_zeroes_max_bytes=0xfffffe00",
	    "odd:size=1049600B,memory_backed=1,discard=1", NULL);
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

/* Enter by GO, whatever was selected. */
static void
go(struct wire *w, const char *name)
{
	assert_int_equal(wire_info(w, OPT_GO, name, NULL, 0), REP_ACK);
}

/* ------------------------------------------------------------ the options */

/* Data whose lengths disagree, made of the pieces of a good one. */
struct bad {
	const char *what;
	uint32_t name_len;
	uint32_t nr;
	uint32_t query_len;
	int cut;   /* bytes less at the end */
	int extra; /* or more */
};

static uint32_t
put_bad(uint8_t *p, const struct bad *b)
{
	uint8_t *start = p;

	p = put32(p, b->name_len);
	memcpy(p, "b512", 4);
	p = put32(put32(p + 4, b->nr), b->query_len);
	memcpy(p, ALLOCATION, 15);
	p += 15;
	memset(p, 0, 8);
	return (uint32_t)(p - start - b->cut + b->extra);
}

static void
refuses_lengths_that_disagree(void **state)
{
	static const struct bad bad[] = {
		{ "nothing at all", 4, 1, 15, 31, 0 },
		{ "half a name's length", 4, 1, 15, 29, 0 },
		{ "no name", 4, 1, 15, 27, 0 },
		{ "no count", 4, 1, 15, 23, 0 },
		{ "half a count", 4, 1, 15, 21, 0 },
		{ "no query", 4, 1, 15, 19, 0 },
		{ "half a query's length", 4, 1, 15, 17, 0 },
		{ "half a query", 4, 1, 15, 5, 0 },
		{ "a query that is cut", 4, 1, 16, 0, 0 },
		{ "a query of 1000", 4, 1, 1000, 10, 0 },
		{ "a query of 4 GiB", 4, 1, 0xffffffff, 0, 0 },
		{ "a query of 4 GiB less its own", 4, 1, 0xfffffffc, 0, 0 },
		{ "too many queries", 4, 2, 15, 0, 0 },
		{ "4 G queries", 4, 0xffffffff, 15, 0, 0 },
		{ "1 G queries", 4, 0x40000000, 15, 0, 0 },
		{ "too few queries", 4, 0, 15, 0, 0 },
		{ "bytes behind them", 4, 1, 15, 0, 4 },
		{ "a byte behind them", 4, 1, 15, 0, 1 },
		{ "a name of 4 GiB", 0xffffffff, 1, 15, 0, 0 },
		{ "a name of 4 GiB less 8", 0xfffffff8, 1, 15, 0, 0 },
		{ "a name that takes all", 27, 1, 15, 0, 0 },
		{ "a name that takes the count", 8, 1, 15, 0, 0 },
	};
	static const uint32_t options[] = { OPT_LIST_META, OPT_SET_META };
	uint8_t data[64];

	(void)state;
	for (size_t i = 0; i < NR(modes) * NR(options); i++) {
		struct wire *w = wire_negotiate(nullbd, modes[i / 2]);

		for (size_t k = 0; k < NR(bad); k++) {
			uint32_t len = put_bad(data, &bad[k]);
			uint32_t type =
			    wire_option_result(w, options[i % 2], data, len);

			if (type != REP_ERR_INVALID)
				wire_fail("%s: 0x%x", bad[k].what, type);
			wire_assert_options_in_step(w);
		}
		assert_int_equal(
		    wire_meta(w, OPT_SET_META, "b512", &allocation, 1),
		    REP_ACK);
		assert_int_equal(w->nr_contexts, 1);
		go(w, "b512");
		wire_assert_served(w, 0);
		wire_close(w);
	}
}

/* Longer than a name may be: passed over or refused, never taken. */
static void
bears_long_queries(void **state)
{
	static const size_t lengths[] = { 4096, 4097, 5000, 60000 };

	(void)state;
	for (size_t i = 0; i < NR(modes) * NR(lengths); i++) {
		size_t n = lengths[i / 2];
		struct wire *w = wire_negotiate(nullbd, modes[i % 2]);
		char *text = xmalloc(n + 1);
		const char *queries[] = { text, allocation };
		uint32_t type;

		memset(text, 'x', n);
		memcpy(text, ALLOCATION, 15);
		text[n] = 0;
		type = wire_meta(w, OPT_LIST_META, "b512", queries, 1);
		assert_true(type == REP_ACK || type == REP_ERR_INVALID ||
			    type == REP_ERR_TOO_BIG);
		assert_int_equal(w->nr_contexts, 0);
		type = wire_meta(w, OPT_SET_META, "b512", queries, 2);
		assert_true(type == REP_ACK || type == REP_ERR_INVALID ||
			    type == REP_ERR_TOO_BIG);
		assert_int_equal(w->nr_contexts, type == REP_ACK);
		wire_assert_options_in_step(w);
		free(text);
		wire_close(w);
	}
}

static void
needs_chunks(void **state)
{
	struct wire *w = wire_negotiate(nullbd, WIRE_SIMPLE);
	uint32_t type;
	struct answer a;

	(void)state;
	assert_int_equal(wire_meta(w, OPT_SET_META, "b512", &allocation, 1),
	    REP_ERR_INVALID);
	type = wire_meta(w, OPT_LIST_META, "b512", NULL, 0);
	assert_true(type == REP_ACK || type == REP_ERR_INVALID);
	wire_assert_options_in_step(w);
	/* what was refused stays so, though chunks come later */
	assert_int_equal(
	    wire_option_result(w, OPT_STRUCTURED_REPLY, NULL, 0), REP_ACK);
	go(w, "b512");
	assert_int_equal(wire_status(w, 0, 0, 4096, &a), E_INVAL);
	assert_false(a.simple);
	answer_fini(&a);
	wire_close(w);
	/* and in a session that has none at all */
	w = wire_open(nullbd, "b512", false);
	assert_int_equal(wire_cmd(w, 0, CMD_BLOCK_STATUS, 0, 4096), E_INVAL);
	wire_assert_served(w, 0);
}

/* Of a query: does LIST tell base:allocation, does SET select it? */
static void
queries_select_what_they_name(void **state)
{
	static const struct {
		const char *query[3];
		uint32_t nr;
		unsigned list, set;
		bool may_be_invalid;
	} rows[] = {
		{ { NULL }, 0, 2, 0, false }, /* and x-nullb:badblocks */
		{ { BADBLOCKS, ALLOCATION }, 2, 2, 2, false },
		{ { ALLOCATION }, 1, 1, 1, false },
		{ { "base:" }, 1, 1, 0, false },
		{ { ALLOCATION, ALLOCATION, ALLOCATION }, 3, 1, 1, false },
		{ { "base:", ALLOCATION }, 2, 1, 1, false },
		{ { "base:nothing", "x-null:", ALLOCATION }, 3, 1, 1, false },
		{ { "base:allocatio" }, 1, 0, 0, false },
		{ { "base:allocation2" }, 1, 0, 0, false },
		{ { "base:allocation:" }, 1, 0, 0, false },
		{ { "BASE:allocation" }, 1, 0, 0, false },
		{ { " base:allocation" }, 1, 0, 0, false },
		{ { "base:nothing" }, 1, 0, 0, false },
		{ { "x-nothing:here" }, 1, 0, 0, false },
		{ { "qemu:dirty-bitmap:b" }, 1, 0, 0, false },
		{ { "nbd-server:x" }, 1, 0, 0, false },
		{ { "base" }, 1, 0, 0, true },
		{ { "allocation" }, 1, 0, 0, true },
		{ { "" }, 1, 0, 0, true },
		{ { ":" }, 1, 0, 0, true },
		{ { "ba\xc3\xa9:x" }, 1, 0, 0, true },
	};

	(void)state;
	for (size_t i = 0; i < NR(modes) * NR(rows) * 2; i++) {
		size_t r = i / 4;
		uint32_t option = i % 2 ? OPT_SET_META : OPT_LIST_META;
		unsigned want = i % 2 ? rows[r].set : rows[r].list;
		struct wire *w = wire_negotiate(nullbd, modes[i / 2 % 2]);
		uint32_t type =
		    wire_meta(w, option, "b512", rows[r].query, rows[r].nr);

		if (type != REP_ACK &&
		    !(rows[r].may_be_invalid && type == REP_ERR_INVALID))
			wire_fail("query %zu: 0x%x", r, type);
		if (w->nr_contexts != want)
			wire_fail("option %u, query %zu: %u contexts, want %u",
			    option, r, w->nr_contexts, want);
		if (want)
			assert_string_equal(w->context[0].name, ALLOCATION);
		wire_assert_options_in_step(w);
		wire_close(w);
	}
}

static void
unknown_exports_are_unknown(void **state)
{
	char long_name[4098];

	(void)state;
	memset(long_name, 'n', sizeof(long_name) - 1);
	long_name[4096] = 0;
	for (size_t i = 0; i < NR(modes) * 2; i++) {
		uint32_t option = i % 2 ? OPT_SET_META : OPT_LIST_META;
		struct wire *w = wire_negotiate(nullbd, modes[i / 2]);
		uint32_t type;

		assert_int_equal(
		    wire_meta(w, option, "no such", &allocation, 1),
		    REP_ERR_UNKNOWN);
		/* 4096 bytes are a name; its error's text is checked, too */
		assert_int_equal(
		    wire_meta(w, option, long_name, &allocation, 1),
		    REP_ERR_UNKNOWN);
		long_name[4096] = 'n';
		long_name[4097] = 0;
		type = wire_meta(w, option, long_name, &allocation, 1);
		assert_true(type == REP_ERR_INVALID || type == REP_ERR_TOO_BIG);
		long_name[4096] = 0;
		/* the default export has contexts, too */
		assert_int_equal(
		    wire_meta(w, option, "", &allocation, 1), REP_ACK);
		assert_int_equal(w->nr_contexts, 1);
		wire_assert_options_in_step(w);
		wire_close(w);
	}
}

static void
bears_many_queries(void **state)
{
	enum {
		N = 3000
	};
	static const char *queries[N];

	(void)state;
	for (size_t i = 0; i < N; i++)
		queries[i] = i == N - 1 ? ALLOCATION : "x-any:thing";
	for (size_t i = 0; i < NR(modes) * 2; i++) {
		uint32_t option = i % 2 ? OPT_SET_META : OPT_LIST_META;
		struct wire *w = wire_negotiate(nullbd, modes[i / 2]);
		uint32_t n = 10;

		/* some number of them is enough */
		for (; n <= N; n = n * 10 > N && n < N ? N : n * 10) {
			uint32_t type =
			    wire_meta(w, option, "b512", queries + N - n, n);

			if (n <= 10
				? type != REP_ACK
				: type != REP_ACK && type != REP_ERR_TOO_BIG)
				wire_fail("%u queries: 0x%x", n, type);
			assert_int_equal(w->nr_contexts, type == REP_ACK);
			wire_assert_options_in_step(w);
		}
		assert_int_equal(
		    wire_meta(w, OPT_LIST_META, "b512", NULL, 0), REP_ACK);
		wire_close(w);
	}
}

/* How a selection ends: each row is what is done between SET and GO. */
static void
a_selection_is_of_the_last_set(void **state)
{
	enum what {
		NOTHING,
		INFO_SAME,
		INFO_OTHER,
		LIST_CONTEXTS,
		SET_AGAIN,
		OTHER_NAME,
		SET_NONE,
		SET_WILDCARD,
		SET_UNKNOWN_LEAF,
		SET_OTHER_EXPORT,
		SET_UNKNOWN_EXPORT,
		SET_MALFORMED,
		SET_EMPTY,
		NR_WHAT
	};
	static const char *const wildcard = "base:";
	static const char *const leaf = "base:other";

	(void)state;
	for (unsigned i = 0; i < NR(modes) * NR_WHAT; i++) {
		enum what what = i / 2;
		struct wire *w = wire_negotiate(nullbd, modes[i % 2]);
		uint32_t want = what < OTHER_NAME ? 0 : E_INVAL, type;
		struct context selected;
		struct answer a;

		type = wire_meta(w, OPT_SET_META, "b512", &allocation, 1);
		assert_int_equal(type, REP_ACK);
		assert_int_equal(w->nr_contexts, 1);
		selected = w->context[0];
		if (what == INFO_SAME)
			wire_info(w, OPT_INFO, "b512", NULL, 0);
		if (what == INFO_OTHER)
			wire_info(w, OPT_INFO, "b4k", NULL, 0);
		if (what == LIST_CONTEXTS)
			wire_meta(w, OPT_LIST_META, "b4k", NULL, 0);
		if (what == SET_AGAIN) {
			wire_meta(w, OPT_SET_META, "b512", &allocation, 1);
			selected = w->context[0];
		}
		if (what == SET_NONE)
			wire_meta(w, OPT_SET_META, "b512", NULL, 0);
		if (what == SET_WILDCARD)
			wire_meta(w, OPT_SET_META, "b512", &wildcard, 1);
		if (what == SET_UNKNOWN_LEAF)
			wire_meta(w, OPT_SET_META, "b512", &leaf, 1);
		if (what == SET_OTHER_EXPORT)
			wire_meta(w, OPT_SET_META, "b4k", &allocation, 1);
		if (what == SET_UNKNOWN_EXPORT)
			wire_meta(w, OPT_SET_META, "none", &allocation, 1);
		if (what == SET_MALFORMED)
			wire_option_result(w, OPT_SET_META, "\0\0\0\1", 4);
		if (what == SET_EMPTY)
			wire_option_result(w, OPT_SET_META, NULL, 0);
		w->nr_contexts = 1;
		w->context[0] = selected;
		go(w, what == OTHER_NAME ? "b4k" : "b512");
		if (wire_status(w, 0, 0, 4096, &a) != want)
			wire_fail("%s, row %u: BLOCK_STATUS: %u",
			    wire_mode_name(w->mode), what, a.error);
		answer_fini(&a);
		wire_assert_served(w, 0);
		wire_close(w);
	}
}

static void
a_selection_holds_for_entry_by_name(void **state)
{
	(void)state;
	for (int other = 0; other < 2; other++) {
		struct wire *w = wire_negotiate(nullbd, WIRE_STRUCTURED);
		uint8_t entry[10];
		struct answer a;

		assert_int_equal(
		    wire_meta(w, OPT_SET_META, "b512", &allocation, 1),
		    REP_ACK);
		wire_option(
		    w, OPT_EXPORT_NAME, other ? "b4k" : "b512", other ? 3 : 4);
		wire_recv(w, entry, sizeof(entry));
		w->size = get64(entry);
		assert_int_equal(
		    wire_status(w, 0, 0, 4096, &a), other ? E_INVAL : 0);
		answer_fini(&a);
		wire_close(w);
	}
}

/* ----------------------------------------------------------- BLOCK_STATUS */

/* The states of a range, asked for until all of it is told, block by block. */
static void
walk(struct wire *w, uint64_t offset, uint64_t length, uint32_t block,
    uint8_t *states)
{
	uint64_t end = offset + length;

	while (offset < end) {
		uint64_t at = offset;
		struct answer a;

		assert_int_equal(
		    wire_status(w, 0, offset, end - offset, &a), 0);
		assert_in_range(a.status[0].nr, 1, MAX_EXTENTS);
		for (size_t i = 0; i < a.status[0].nr; i++) {
			const struct extent *e = &a.status[0].extent[i];

			for (uint64_t n = 0; n < e->length && at < end;
			     n += block, at += block)
				*states++ = (uint8_t)e->state;
		}
		answer_fini(&a);
		if (at <= offset)
			wire_fail(
			    "no progress at %llu", (unsigned long long)offset);
		offset = at;
	}
}

static void
expect_states(struct wire *w, uint32_t block, const uint8_t *want, size_t n)
{
	uint8_t *got = xmalloc(n);

	walk(w, 0, n * block, block, got);
	for (size_t i = 0; i < n; i++)
		if (got[i] != want[i])
			wire_fail("%s: block %zu of %u: state %u, want %u",
			    wire_mode_name(w->mode), i, block, got[i], want[i]);
	free(got);
}

/* What was written, trimmed, zeroed at random is told to the block. */
static void
tells_what_was_written(void **state)
{
	static const struct {
		const char *name;
		uint32_t block;
	} devices[] = { { "b512", 512 }, { "b4k", 4096 } };
	enum {
		N = 2048
	};
	uint64_t rng = wire_seed();
	uint8_t *want = xmalloc(N), *data = xmalloc(64 * BLOCK);

	(void)state;
	fill(data, 64 * BLOCK, 1);
	for (size_t i = 0; i < NR(modes) * NR(devices); i++) {
		uint32_t block = devices[i % 2].block;
		struct wire *w = wire_open_mode(nullbd, devices[i % 2].name,
		    modes[i / 2], WANT_STATUS | WANT_BLOCK_SIZE);

		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, SIZE), 0);
		memset(want, NOWHERE, N);
		expect_states(w, block, want, N);
		for (int k = 0; k < 200; k++) {
			uint32_t n = 1 + (uint32_t)rng_below(&rng, 24);
			uint64_t at = rng_below(&rng, N - n);

			if (k % 4 == 3) {
				assert_int_equal(wire_cmd(w, 0, CMD_TRIM,
						     at * block, n * block),
				    0);
				memset(want + at, NOWHERE, n);
			} else {
				assert_int_equal(
				    wire_write(w, data, at * block, n * block),
				    0);
				memset(want + at, 0, n);
			}
			if (k % 20 == 0)
				expect_states(w, block, want, N);
		}
		expect_states(w, block, want, N);
		wire_close(w);
	}
	free(data);
	free(want);
}

static void
tells_what_was_zeroed(void **state)
{
	enum {
		N = 64
	};
	uint8_t data[16 * BLOCK], states[N];

	(void)state;
	fill(data, sizeof(data), 2);
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "wz", modes[i], WANT_STATUS);

		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, SIZE), 0);
		assert_int_equal(wire_write(w, data, 0, 16 * BLOCK), 0);
		assert_int_equal(
		    wire_cmd(w, 0, CMD_WRITE_ZEROES, 0, 4 * BLOCK), 0);
		/* allocated: over data, and where there were none */
		assert_int_equal(wire_cmd(w, CMD_NO_HOLE, CMD_WRITE_ZEROES,
				     8 * BLOCK, 4 * BLOCK),
		    0);
		assert_int_equal(wire_cmd(w, CMD_NO_HOLE, CMD_WRITE_ZEROES,
				     32 * BLOCK, 4 * BLOCK),
		    0);
		walk(w, 0, N * BLOCK, BLOCK, states);
		for (size_t b = 0; b < N; b++) {
			if ((b >= 8 && b < 12) || (b >= 32 && b < 36))
				assert_int_equal(states[b] & STATE_HOLE, 0);
			else if (b >= 4 && b < 16)
				assert_int_equal(states[b], 0);
			else
				assert_int_equal(states[b], NOWHERE);
		}
		wire_close(w);
	}
}

static void
a_device_without_memory_is_a_hole(void **state)
{
	uint8_t data[BLOCK] = { 1 };

	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "null", modes[i], WANT_STATUS);
		struct answer a;

		assert_int_equal(wire_write(w, data, 0, BLOCK), 0);
		assert_int_equal(wire_status(w, 0, 0, SIZE, &a), 0);
		assert_int_equal(a.status[0].nr, 1);
		assert_int_equal(a.status[0].extent[0].state, NOWHERE);
		assert_int_equal(a.status[0].extent[0].length, SIZE);
		answer_fini(&a);
		wire_close(w);
	}
}

/* What is told to be zero reads as zeros, what a read calls a hole is one. */
static void
agrees_with_reads(void **state)
{
	uint8_t *states = xmalloc(REGION / BLOCK), *got = xmalloc(REGION);
	uint8_t data[4 * BLOCK];
	uint64_t rng = wire_seed();

	(void)state;
	fill(data, sizeof(data), 4);
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "b4k", modes[i], WANT_STATUS);
		struct answer a;
		size_t holes = 0;

		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, REGION), 0);
		for (int k = 0; k < 300; k++)
			assert_int_equal(
			    wire_write(w, data,
				BLOCK * rng_below(&rng, REGION / BLOCK - 4),
				BLOCK * (1 + (uint32_t)rng_below(&rng, 4))),
			    0);
		walk(w, 0, REGION, BLOCK, states);
		assert_int_equal(
		    wire_ask(w, 0, CMD_READ, 0, REGION, NULL, got, &a), 0);
		for (size_t b = 0; b < REGION / BLOCK; b++) {
			bool hole = answer_has_hole(&a, b * BLOCK, BLOCK);

			assert_int_equal(hole, !!(states[b] & STATE_HOLE));
			if (states[b] & STATE_ZERO)
				assert_true(all_zero(got + b * BLOCK, BLOCK));
			holes += hole;
		}
		assert_in_range(holes, 1, REGION / BLOCK - 1);
		answer_fini(&a);
		wire_close(w);
	}
	free(got);
	free(states);
}

/* More changes than a reply has descriptors for. */
static void
tells_a_part_of_many_extents(void **state)
{
	uint8_t *data = xmalloc(BLOCK), *want = xmalloc(REGION / BLOCK);

	(void)state;
	fill(data, BLOCK, 5);
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "b4k", modes[i], WANT_STATUS);
		struct answer a;

		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, SIZE), 0);
		for (size_t b = 0; b < REGION / BLOCK; b++) {
			want[b] = b % 2 ? NOWHERE : 0;
			if (b % 2 == 0)
				assert_int_equal(
				    wire_write(w, data, b * BLOCK, BLOCK), 0);
		}
		assert_int_equal(wire_status(w, 0, 0, SIZE, &a), 0);
		assert_in_range(a.status[0].nr, 2, MAX_EXTENTS);
		answer_fini(&a);
		expect_states(w, BLOCK, want, REGION / BLOCK);
		/* in any part of it */
		for (uint64_t b = 1; b < 40; b++) {
			assert_int_equal(
			    wire_status(w, 0, b * BLOCK, 7 * BLOCK, &a), 0);
			assert_int_equal(a.status[0].nr, 7);
			assert_int_equal(a.status[0].extent[0].state, want[b]);
			assert_int_equal(a.status[0].extent[0].length, BLOCK);
			answer_fini(&a);
		}
		wire_close(w);
	}
	free(want);
	free(data);
}

static void
one_is_one(void **state)
{
	uint8_t data[BLOCK] = { 1 };

	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "b4k", modes[i], WANT_STATUS);
		static const uint32_t lengths[] = { BLOCK, 3 * BLOCK,
			16 * BLOCK };

		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, SIZE), 0);
		assert_int_equal(wire_write(w, data, 4 * BLOCK, BLOCK), 0);
		for (size_t k = 0; k < NR(lengths); k++) {
			struct answer a;

			assert_int_equal(
			    wire_status(w, CMD_REQ_ONE, 0, lengths[k], &a), 0);
			assert_int_equal(a.status[0].nr, 1);
			assert_int_equal(a.status[0].extent[0].state, NOWHERE);
			assert_int_equal(a.status[0].extent[0].length,
			    lengths[k] < 4 * BLOCK ? lengths[k] : 4 * BLOCK);
			answer_fini(&a);
		}
		wire_close(w);
	}
}

static void
ends_at_the_end(void **state)
{
	static const struct {
		const char *name;
		uint64_t size;
	} devices[] = { { "b512", SIZE }, { "null", SIZE }, { "huge", HUGE },
		{ "odd", 1049600 } };

	(void)state;
	for (size_t i = 0; i < NR(modes) * NR(devices); i++) {
		uint64_t size = devices[i / 2].size;
		struct wire *w = wire_open_mode(
		    nullbd, devices[i / 2].name, modes[i % 2], WANT_STATUS);
		const struct {
			uint64_t offset, length;
			uint32_t want;
		} rows[] = {
			{ size - 512, 512, 0 },
			{ size - 1, 1, 0 },
			{ 0, 1, 0 },
			{ 0, size < 0xfffffe00 ? size : 0xfffffe00, 0 },
			{ size - (size < 1u << 31 ? size : 1u << 31),
			    size < 1u << 31 ? size : 1u << 31, 0 },
			{ 1, size < 1u << 31 ? size - 1 : 1u << 31, 0 },
			{ size - 512, 513, E_INVAL },
			{ size - 512, 1024, E_INVAL },
			{ size, 512, E_INVAL },
			{ size, 0, E_INVAL },
			{ 0, 0, E_INVAL },
			{ size + 512, 512, E_INVAL },
			{ 1ULL << 63, 512, E_INVAL },
			{ 0 - 512ULL, 512, E_INVAL },
			{ 0 - 512ULL, 1024, E_INVAL },
			{ 512, 0xffffffff, size > 1ULL << 32 ? 0 : E_INVAL },
		};

		for (size_t k = 0; k < NR(rows); k++) {
			struct answer a;

			if (wire_status(w, 0, rows[k].offset, rows[k].length,
				&a) != rows[k].want)
				wire_fail("%s, %s, row %zu: error %u",
				    wire_mode_name(w->mode),
				    devices[i / 2].name, k, a.error);
			assert_false(a.error && (a.simple || !a.text));
			answer_fini(&a);
		}
		for (int one = 0; one < 2; one++) {
			struct answer a;

			assert_int_equal(
			    wire_status(w, one ? CMD_REQ_ONE | CMD_FUA : 0,
				size - 512, 512, &a),
			    0);
			assert_int_equal(a.status[0].extent[0].length, 512);
			answer_fini(&a);
		}
		wire_close(w);
	}
}

/* 16 TiB with a block at 5 TiB: extents of up to 32 bits, all of them. */
static void
walks_a_huge_device(void **state)
{
	static const uint64_t written = 5ull << 40;
	uint8_t data[BLOCK] = { 1 };

	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "huge", modes[i], WANT_STATUS);
		uint64_t at = 0, found = 0;
		unsigned steps = 0;

		assert_int_equal(wire_write(w, data, written, BLOCK), 0);
		while (at < HUGE) {
			uint64_t n = HUGE - at;
			struct answer a;

			if (w->mode != WIRE_EXTENDED && n > 0xfffff000)
				n = 0xfffff000;
			assert_int_equal(wire_status(w, 0, at, n, &a), 0);
			for (size_t k = 0; k < a.status[0].nr; k++) {
				const struct extent *e = &a.status[0].extent[k];

				assert_int_equal(e->length % 512, 0);
				if (e->state == 0 && at <= written &&
				    written + BLOCK <= at + e->length)
					found += e->length;
				else
					assert_int_equal(e->state, NOWHERE);
				at += e->length;
			}
			answer_fini(&a);
			assert_in_range(++steps, 0, 3 * (HUGE >> 32));
		}
		assert_int_equal(at, HUGE);
		assert_int_equal(found, BLOCK);
		wire_close(w);
	}
}

/* Many at once, among others: each is whole and its own. */
static void
many_at_once(void **state)
{
	enum {
		N = 600
	};
	struct op *ops = calloc(N, sizeof(*ops));
	uint8_t *data = xmalloc(64 * KiB), *got = xmalloc(64 * KiB);

	(void)state;
	fill(data, 64 * KiB, 6);
	for (size_t i = 0; i < NR(modes); i++) {
		struct wire *w =
		    wire_open_mode(nullbd, "b512", modes[i], WANT_STATUS);

		for (uint32_t k = 0; k < N; k++) {
			static const uint16_t types[] = { CMD_BLOCK_STATUS,
				CMD_WRITE, CMD_BLOCK_STATUS, CMD_READ, CMD_TRIM,
				CMD_BLOCK_STATUS };

			ops[k] = (struct op){ .type = types[k % NR(types)],
				.offset = k % 50 * 64 * KiB,
				.length = 64 * KiB,
				.data = data,
				.got = got };
			if (k % 12 == 0)
				ops[k].flags = CMD_REQ_ONE;
			if (ops[k].type == CMD_BLOCK_STATUS && k % 3 == 2)
				ops[k].length = SIZE - ops[k].offset;
		}
		batch_run(w, ops, N, i ? 0 : 777);
		batch_assert_ok(ops, N);
		wire_close(w);
	}
	free(got);
	free(data);
	free(ops);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N93", "lengths that disagree are INVALID, passed over",
		    refuses_lengths_that_disagree),
		CASE("N94 N107", "queries may be longer than names",
		    bears_long_queries),
		CASE("N95 N96 N153", "contexts go with chunks only",
		    needs_chunks),
		CASE("N97 N98 N99 N100 N101 N106",
		    "queries select what they name",
		    queries_select_what_they_name),
		CASE("N105 N107", "unknown exports are UNKNOWN",
		    unknown_exports_are_unknown),
		CASE("N104", "3000 queries", bears_many_queries),
		CASE("N98 N102 N103 N153",
		    "a selection is that of the last SET",
		    a_selection_is_of_the_last_set),
		CASE("N30 N103", "a selection holds for EXPORT_NAME, too",
		    a_selection_holds_for_entry_by_name),
		CASE("N146 N148 N149 N151 N155",
		    "tells what was written, to the block",
		    tells_what_was_written),
		CASE("N144 N155", "tells what was zeroed with NO_HOLE",
		    tells_what_was_zeroed),
		CASE("N155", "a device without memory is a hole",
		    a_device_without_memory_is_a_hole),
		CASE("N155 N129", "agrees with reads", agrees_with_reads),
		CASE("N149 N150", "tells a part of what are too many extents",
		    tells_a_part_of_many_extents),
		CASE("N147", "REQ_ONE is one", one_is_one),
		CASE("N116 N119 N148 N154", "ends at the end of the device",
		    ends_at_the_end),
		CASE("N149 N152", "16 TiB are walked through",
		    walks_a_huge_device),
		CASE("N136 N146", "many at once, among others", many_at_once),
	};

	return cmocka_run_group_tests_name("contexts", tests, start, stop);
}
