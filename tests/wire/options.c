/* SPDX-License-Identifier: MIT */
/*
 * The options: their framing, EXPORT_NAME, ABORT, LIST, STARTTLS as a server
 * without TLS has to refuse it, INFO and GO: sections 2 to 7 of the spec.
 */
#include "../lib/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR(a) (sizeof(a) / sizeof(*(a)))

static struct daemon *nullbd;
static const char *const names[] = { "nullb0", "second", "third" };
static const uint64_t sizes[] = { 64 * MiB, 1024 * MiB, 8 * MiB };

static int
start(void **state)
{
	(void)state;
	nullbd = daemon_start("nullb0:size=64M,memory_backed=1,discard=1",
	    "second:size=1G", "third:size=8M,blocksize=4096,memory_backed=1",
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

static struct wire *
negotiating(uint32_t flags)
{
	struct wire *w = wire_unix(nullbd->sock);

	wire_greeting(w);
	wire_flags(w, flags);
	return w;
}

/* ---------------------------------------------------------------- framing */

static void
drops_wrong_magic(void **state)
{
	static const uint64_t wrong[] = { 0, MAGIC_NBD, MAGIC_OPT_REPLY,
		MAGIC_IHAVEOPT ^ 1, MAGIC_IHAVEOPT ^ 1ULL << 63,
		0x0000420281861253, 0x54504f4556414849, ~0ULL };

	(void)state;
	for (size_t i = 0; i < NR(wrong); i++) {
		struct wire *w = negotiating(HS_FIXED);
		uint8_t buf[16];

		put32(put32(put64(buf, wrong[i]), OPT_LIST), 0);
		wire_send(w, buf, sizeof(buf));
		wire_expect_eof(w);
		wire_close(w);
	}
}

static void
refuses_unknown_options(void **state)
{
	static const uint32_t options[] = { 0, 4, 12, 13, 255, 256, 0x7654321,
		0x7fffffff, 0x80000000, 0x80000007, 0xfffffffe, 0xffffffff };
	static const uint32_t lengths[] = { 0, 1, 4, 4096, 65535, 65536, 65537,
		100 * KiB };
	uint8_t *data = xmalloc(100 * KiB);
	struct wire *w = negotiating(HS_FIXED);

	(void)state;
	/* what would be options, if it were not data */
	for (size_t i = 0; i + OPT_HEADER <= 100 * KiB; i += OPT_HEADER)
		put_option(data + i, OPT_ABORT, NULL, 0);
	for (size_t i = 0; i < NR(options); i++) {
		for (size_t k = 0; k < NR(lengths); k++)
			assert_int_equal(
			    wire_option_result(w, options[i], data, lengths[k]),
			    REP_ERR_UNSUP);
		wire_assert_options_in_step(w);
	}
	assert_int_equal(wire_info(w, OPT_GO, "nullb0", NULL, 0), REP_ACK);
	wire_assert_served(w, 0);
	free(data);
}

/* A header that promises more than anybody wants to hear. */
static void
hangs_up_on_endless_options(void **state)
{
	static const uint32_t options[] = { OPT_EXPORT_NAME, OPT_ABORT,
		OPT_LIST, OPT_STARTTLS, OPT_INFO, OPT_GO, 99 };
	static const uint32_t lengths[] = { 0xffffffff, 0x80000000,
		0x7fffffff };
	uint64_t rss = daemon_rss(nullbd);

	(void)state;
	for (size_t i = 0; i < NR(options); i++) {
		for (size_t k = 0; k < NR(lengths); k++) {
			struct wire *w = negotiating(HS_FIXED);
			uint8_t buf[OPT_HEADER];

			put32(put32(put64(buf, MAGIC_IHAVEOPT), options[i]),
			    lengths[k]);
			wire_send(w, buf, sizeof(buf));
			wire_expect_eof(w);
			wire_close(w);
		}
	}
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0, rss + 8 * MiB);
}

/* Every option with 1 MiB of data: an answer and in step, or a hang-up. */
static void
bears_large_options(void **state)
{
	static const uint32_t options[] = { OPT_ABORT, OPT_LIST, OPT_STARTTLS,
		OPT_INFO, OPT_GO, OPT_STRUCTURED_REPLY, OPT_SET_META, 99 };
	static const uint32_t len = 1 * MiB;
	uint8_t *data = xmalloc(OPT_HEADER + len);
	uint8_t head[OPT_REPLY_HEADER];

	(void)state;
	memset(data, 'x', OPT_HEADER + len);
	for (size_t i = 0; i < NR(options); i++) {
		struct wire *w = negotiating(HS_FIXED);
		struct opt_reply *r;
		bool eof;

		put32(put32(put64(data, MAGIC_IHAVEOPT), options[i]), len);
		wire_try_send(w, data, OPT_HEADER + len, WIRE_TIMEOUT_MS);
		if (!wire_drain(w, head, sizeof(head), 3000, &eof)) {
			assert_true(eof);
			wire_close(w);
			continue;
		}
		assert_int_equal(get32(head + 8), options[i]);
		if (options[i] == OPT_ABORT)
			assert_int_equal(get32(head + 12), REP_ACK);
		else
			assert_true(get32(head + 12) >= 0x80000000);
		r = xmalloc(sizeof(*r));
		wire_recv(w, r->data, get32(head + 16));
		free(r);
		if (options[i] != OPT_ABORT)
			wire_assert_options_in_step(w);
		wire_close(w);
	}
	free(data);
}

static void
answers_pipelined_options_in_order(void **state)
{
	static const uint32_t options[] = { OPT_LIST, OPT_INFO, 77,
		OPT_STARTTLS, OPT_LIST, OPT_INFO, OPT_STRUCTURED_REPLY,
		OPT_LIST, OPT_ABORT };
	struct wire *w = negotiating(HS_FIXED);
	struct opt_reply *r = xmalloc(sizeof(*r));
	uint8_t buf[1024], info[64], *p = buf;
	uint32_t len = put_info(info, "second", NULL, 0);

	(void)state;
	for (size_t i = 0; i < NR(options); i++)
		p = put_option(
		    p, options[i], info, options[i] == OPT_INFO ? len : 0);
	wire_send(w, buf, (size_t)(p - buf));
	for (size_t i = 0; i < NR(options); i++) {
		do
			wire_opt_reply(w, options[i], r);
		while (r->type == REP_SERVER || r->type == REP_INFO);
		if (options[i] == 77 || options[i] == OPT_STARTTLS)
			assert_true(r->type >= 0x80000000);
		else
			assert_int_equal(r->type, REP_ACK);
	}
	free(r);
}

static void
reassembles_options(void **state)
{
	struct wire *w = negotiating(HS_FIXED);
	uint8_t buf[256], info[64], *p = buf;
	static const uint16_t infos[] = { INFO_BLOCK_SIZE, INFO_NAME };
	uint32_t len = put_info(info, "third", infos, 2);
	struct opt_reply *r = xmalloc(sizeof(*r));

	(void)state;
	p = put_option(p, 99, "abcde", 5);
	p = put_option(p, OPT_GO, info, len);
	wire_send_pieces(w, buf, (size_t)(p - buf), 1);
	wire_opt_reply(w, 99, r);
	assert_int_equal(r->type, REP_ERR_UNSUP);
	do
		wire_opt_reply(w, OPT_GO, r);
	while (r->type == REP_INFO);
	assert_int_equal(r->type, REP_ACK);
	wire_assert_served(w, 0);
	free(r);
}

static void
refuses_without_hanging_up(void **state)
{
	struct wire *w = negotiating(HS_FIXED);

	(void)state;
	for (int i = 0; i < 24; i++) {
		assert_int_equal(
		    wire_option_result(w, 99, "x", 1), REP_ERR_UNSUP);
		assert_int_equal(
		    wire_info(w, OPT_GO, "no such", NULL, 0), REP_ERR_UNKNOWN);
		assert_int_equal(
		    wire_option_result(w, OPT_LIST, "x", 1), REP_ERR_INVALID);
	}
	assert_int_equal(wire_info(w, OPT_GO, "nullb0", NULL, 0), REP_ACK);
	wire_assert_served(w, 0);
}

/* Options without end: answered or hung up on, and nothing piles up. */
static void
bears_many_options(void **state)
{
	struct wire *w = negotiating(HS_FIXED);
	struct wire *other = wire_open(nullbd, "", false);
	uint64_t rss = daemon_rss(nullbd);
	uint8_t option[OPT_HEADER], buf[4096];
	bool eof = false;
	int i;

	(void)state;
	put_option(option, 99, NULL, 0);
	for (i = 0; i < 20000 && !eof; i++) {
		if (wire_try_send(w, option, sizeof(option), 1000) <
		    sizeof(option))
			break;
		if (wire_drain(w, buf, OPT_REPLY_HEADER, 3000, &eof) == 20 &&
		    get32(buf + 16))
			wire_drain(w, buf, get32(buf + 16), 3000, &eof);
	}
	print_message("%d options were answered\n", i);
	assert_in_range(i, 32, 20000);
	wire_assert_served(other, 0);
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0, rss + 8 * MiB);
}

/* ------------------------------------------------------------ EXPORT_NAME */

static void
enters_by_name(void **state)
{
	(void)state;
	for (uint32_t flags = 0; flags < 4; flags++) {
		for (size_t i = 0; i < NR(names); i++) {
			struct wire *w = negotiating(flags);
			size_t n = flags & HS_NO_ZEROES ? 10 : 134;
			uint8_t buf[134];

			wire_option(w, OPT_EXPORT_NAME, names[i],
			    (uint32_t)strlen(names[i]));
			wire_recv(w, buf, n);
			assert_int_equal(get64(buf), sizes[i]);
			assert_true(get16(buf + 8) & TX_HAS_FLAGS);
			assert_true(all_zero(buf + 10, n - 10));
			wire_expect_silence(w, 20);
			assert_int_equal(wire_read(w, buf, 0, 1), 0);
			wire_close(w);
		}
	}
}

static void
enters_default_by_empty_name(void **state)
{
	struct wire *w = negotiating(3);
	uint8_t buf[10];

	(void)state;
	wire_option(w, OPT_EXPORT_NAME, NULL, 0);
	wire_recv(w, buf, 10);
	assert_int_equal(get64(buf), sizes[0]);
	wire_assert_served(w, 0);
}

static void
closes_on_unknown_name(void **state)
{
	static const char *const unknown[] = { "nullb", "nullb00", "nullb1",
		"NULLB0", "/", "/nullb0", "nullb0/", " nullb0", "nullb0 ",
		"../../etc/passwd", "./nullb0", "a name with spaces", "%s%n",
		"\xc3\xa4\xc3\xb6", "\xff\xfe", "default" };

	(void)state;
	for (size_t i = 0; i < NR(unknown); i++) {
		struct wire *w = negotiating(3);

		wire_option(w, OPT_EXPORT_NAME, unknown[i],
		    (uint32_t)strlen(unknown[i]));
		wire_expect_eof(w);
		wire_close(w);
	}
}

static void
closes_on_odd_names(void **state)
{
	static const uint32_t lengths[] = { 4096, 4097, 5000, 65536, 1 * MiB };
	uint8_t *name = xmalloc(1 * MiB);

	(void)state;
	memset(name, 'n', 1 * MiB);
	for (size_t i = 0; i < NR(lengths); i++) {
		struct wire *w = negotiating(3);
		uint8_t head[OPT_HEADER];

		put32(put32(put64(head, MAGIC_IHAVEOPT), OPT_EXPORT_NAME),
		    lengths[i]);
		wire_send(w, head, sizeof(head));
		wire_try_send(w, name, lengths[i], 3000);
		wire_expect_eof(w);
		wire_close(w);
	}
	for (int i = 0; i < 2; i++) {
		struct wire *w = negotiating(3);

		wire_option(
		    w, OPT_EXPORT_NAME, i ? "\0" : "nullb0\0", i ? 1 : 7);
		wire_expect_eof(w);
		wire_close(w);
	}
	free(name);
}

/* ------------------------------------------------------------------ ABORT */

static void
acks_abort(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct wire *w = negotiating(HS_FIXED);
		uint8_t *data = xmalloc(100 * KiB);
		static const uint32_t lengths[] = { 0, 5, 100 * KiB };
		uint8_t buf[1];
		bool eof;

		memset(data, 'x', 100 * KiB);
		assert_int_equal(
		    wire_option_result(w, OPT_ABORT, data, lengths[i]),
		    REP_ACK);
		/* it may close now or wait for us, but has no more to say */
		assert_int_equal(wire_drain(w, buf, 1, 100, &eof), 0);
		wire_half_close(w);
		wire_expect_eof(w);
		wire_close(w);
		free(data);
	}
}

static void
bears_abort_without_reading(void **state)
{
	struct wire *other = wire_open(nullbd, "", false);
	unsigned fds = daemon_fds(nullbd);
	uint8_t buf[64], *p;

	(void)state;
	p = put_option(put32(buf, 3), OPT_LIST, NULL, 0);
	p = put_option(p, OPT_ABORT, NULL, 0);
	for (int i = 0; i < 300; i++) {
		struct wire *w = wire_unix(nullbd->sock);

		wire_send(w, buf, (size_t)(p - buf));
		wire_reset(w);
	}
	wire_assert_served(other, 0);
	daemon_settle(nullbd, fds);
}

/* ------------------------------------------------------------------- LIST */

static void
lists_all_exports(void **state)
{
	struct opt_reply *r = xmalloc(sizeof(*r));

	(void)state;
	for (int round = 0; round < 2; round++) {
		struct wire *w = negotiating(HS_FIXED);
		bool seen[NR(names)] = { false };

		for (int again = 0; again <= round; again++) {
			memset(seen, 0, sizeof(seen));
			wire_option(w, OPT_LIST, NULL, 0);
			for (;;) {
				bool known = false;
				uint32_t len;

				wire_opt_reply(w, OPT_LIST, r);
				if (r->type == REP_ACK)
					break;
				assert_int_equal(r->type, REP_SERVER);
				assert_in_range(r->len, 4, 4 + 2 * 4096);
				len = get32(r->data);
				assert_in_range(len, 0, r->len - 4);
				assert_in_range(r->len - 4 - len, 0, 4096);
				for (size_t i = 0; i < NR(names); i++) {
					if (len != strlen(names[i]) ||
					    memcmp(r->data + 4, names[i], len))
						continue;
					assert_false(seen[i]);
					seen[i] = known = true;
				}
				assert_true(known || !len);
			}
			for (size_t i = 0; i < NR(names); i++)
				assert_true(seen[i]);
		}
		wire_close(w);
	}
	free(r);
}

static void
refuses_list_with_data(void **state)
{
	static const uint32_t lengths[] = { 1, 4, 16, 4096, 65536, 100 * KiB };
	struct wire *w = negotiating(HS_FIXED);
	uint8_t *data = xmalloc(100 * KiB);

	(void)state;
	memset(data, 0, 100 * KiB);
	for (size_t i = 0; i < NR(lengths); i++) {
		assert_int_equal(
		    wire_option_result(w, OPT_LIST, data, lengths[i]),
		    REP_ERR_INVALID);
		wire_assert_options_in_step(w);
	}
	free(data);
}

/* --------------------------------------------------------------- STARTTLS */

static void
refuses_starttls(void **state)
{
	struct wire *w = negotiating(HS_FIXED);
	uint32_t type = wire_option_result(w, OPT_STARTTLS, NULL, 0);

	(void)state;
	assert_true(type == REP_ERR_POLICY || type == REP_ERR_UNSUP ||
		    type == REP_ERR_PLATFORM);
	wire_assert_options_in_step(w);
	type = wire_option_result(w, OPT_STARTTLS, "client hello", 12);
	assert_true(type == REP_ERR_INVALID || type == REP_ERR_POLICY ||
		    type == REP_ERR_UNSUP || type == REP_ERR_PLATFORM);
	wire_assert_options_in_step(w);
	assert_int_equal(wire_info(w, OPT_GO, "", NULL, 0), REP_ACK);
	wire_assert_served(w, 0);
}

static void
never_asks_for_tls(void **state)
{
	struct wire *w = negotiating(HS_FIXED);

	(void)state;
	for (uint32_t option = 3; option < 20; option++) {
		uint8_t data[64];
		uint32_t len = put_info(data, "no such", NULL, 0);

		assert_int_not_equal(
		    wire_option_result(w, option, NULL, 0), REP_ERR_TLS_REQD);
		assert_int_not_equal(
		    wire_option_result(w, option, data, len), REP_ERR_TLS_REQD);
	}
}

/* ------------------------------------------------------------ INFO and GO */

/* Data of INFO or GO that is not what it says. */
struct malformed {
	const char *what;
	uint32_t len;      /* of the option */
	uint32_t name_len; /* as written, when len >= 4 */
	int name;          /* bytes of name that do follow */
	int count;         /* -1: no count follows */
	int infos;         /* how many do follow */
};

static const struct malformed malformed[] = {
	{ "nothing", 0, 0, 0, -1, 0 },
	{ "one byte", 1, 0, 0, -1, 0 },
	{ "three bytes", 3, 0, 0, -1, 0 },
	{ "only a name length", 4, 0, 0, -1, 0 },
	{ "half a count", 5, 0, 0, -1, 0 },
	{ "name, but no count", 10, 6, 6, -1, 0 },
	{ "name, half a count", 11, 6, 6, -1, 0 },
	{ "name one too long", 12, 7, 6, 0, 0 },
	{ "name two too long", 12, 8, 6, 0, 0 },
	{ "name far too long", 12, 1000, 6, 0, 0 },
	{ "name length 2^31", 12, 0x80000000, 6, 0, 0 },
	{ "name length that wraps to 0", 12, 0xfffffffa, 6, 0, 0 },
	{ "name length that wraps to the option's", 12, 0x00000006u - 12u, 6, 0,
	    0 },
	{ "name length -4", 12, 0xfffffffc, 6, 0, 0 },
	{ "name length -2", 12, 0xfffffffe, 6, 0, 0 },
	{ "name length -1", 12, 0xffffffff, 6, 0, 0 },
	{ "name length -1, nothing else", 4, 0xffffffff, 0, -1, 0 },
	{ "count 1, no info", 12, 6, 6, 1, 0 },
	{ "count 2, one info", 14, 6, 6, 2, 1 },
	{ "count 65535, no info", 12, 6, 6, 65535, 0 },
	{ "count 32768, no info", 12, 6, 6, 32768, 0 },
	{ "count 0, one info", 14, 6, 6, 0, 1 },
	{ "count 1, three infos", 18, 6, 6, 1, 3 },
	{ "an odd byte behind", 13, 6, 6, 0, 0 },
	{ "an info and a byte behind", 15, 6, 6, 1, 1 },
	{ "name too short by one", 12, 5, 6, 0, 0 },
	{ "100 KiB behind", 100 * KiB, 6, 6, 0, 0 },
};

static void
refuse_malformed(uint32_t option)
{
	uint8_t *data = xmalloc(100 * KiB);
	struct wire *w = negotiating(HS_FIXED);

	for (size_t i = 0; i < NR(malformed); i++) {
		const struct malformed *m = &malformed[i];
		uint8_t *p = data;
		uint32_t type;

		memset(data, 0, 100 * KiB);
		p = put32(p, m->name_len);
		memcpy(p, "nullb0", (size_t)m->name);
		p += m->name;
		if (m->count >= 0)
			p = put16(p, (uint16_t)m->count);
		for (int k = 0; k < m->infos; k++)
			p = put16(p, INFO_BLOCK_SIZE);
		w->tx_flags = 0;
		type = wire_option_result(w, option, data, m->len);
		if (type != REP_ERR_INVALID &&
		    !(type == REP_ERR_TOO_BIG && m->len > 4096))
			wire_fail("%s: 0x%x instead of INVALID", m->what, type);
		if (w->tx_flags)
			wire_fail("%s: REP_INFO before the error", m->what);
		wire_assert_options_in_step(w);
	}
	assert_int_equal(wire_info(w, OPT_GO, "nullb0", NULL, 0), REP_ACK);
	wire_assert_served(w, 0);
	free(data);
}

static void
refuses_malformed_info(void **state)
{
	(void)state;
	refuse_malformed(OPT_INFO);
}

static void
refuses_malformed_go(void **state)
{
	(void)state;
	refuse_malformed(OPT_GO);
}

static void
refuses_odd_names(void **state)
{
	char *name = xmalloc(10000);
	struct wire *w = negotiating(HS_FIXED);

	(void)state;
	for (uint32_t option = OPT_INFO; option <= OPT_GO; option++) {
		uint8_t data[32], *p;
		uint32_t type;

		memset(name, 'n', 10000);
		name[4096] = 0;
		assert_int_equal(
		    wire_info(w, option, name, NULL, 0), REP_ERR_UNKNOWN);
		name[4096] = 'n';
		name[4097] = 0;
		type = wire_info(w, option, name, NULL, 0);
		assert_true(type == REP_ERR_INVALID || type == REP_ERR_TOO_BIG);
		name[4097] = 'n';
		name[9999] = 0;
		type = wire_info(w, option, name, NULL, 0);
		assert_true(type == REP_ERR_INVALID || type == REP_ERR_TOO_BIG);

		p = put32(data, 7);
		memcpy(p, "nullb0\0", 7);
		p = put16(p + 7, 0);
		assert_int_equal(
		    wire_option_result(w, option, data, (uint32_t)(p - data)),
		    REP_ERR_INVALID);
		p = put32(data, 7);
		memcpy(p, "nul\0lb0", 7);
		p = put16(p + 7, 0);
		assert_int_equal(
		    wire_option_result(w, option, data, (uint32_t)(p - data)),
		    REP_ERR_INVALID);
		wire_assert_options_in_step(w);
	}
	free(name);
}

static void
always_tells_the_export(void **state)
{
	(void)state;
	for (size_t i = 0; i < NR(names); i++) {
		struct wire *w = negotiating(HS_FIXED);
		uint16_t flags;

		assert_int_equal(
		    wire_info(w, OPT_INFO, names[i], NULL, 0), REP_ACK);
		assert_int_equal(w->size, sizes[i]);
		flags = w->tx_flags;
		assert_int_equal(
		    wire_info(w, OPT_GO, names[i], NULL, 0), REP_ACK);
		assert_int_equal(w->size, sizes[i]);
		assert_int_equal(w->tx_flags, flags);
		wire_close(w);
	}
}

static void
flags_tell_what_it_can(void **state)
{
	struct wire *w = wire_open(nullbd, "nullb0", false);

	(void)state;
	assert_true(w->tx_flags & TX_HAS_FLAGS);
	assert_true(w->tx_flags & TX_TRIM); /* memory_backed and discard */
	assert_true(w->tx_flags & TX_MULTI_CONN);
	assert_true(w->tx_flags & TX_WRITE_ZEROES);
	assert_false(w->tx_flags & (TX_READ_ONLY | TX_DF | TX_RESIZE));
	assert_false(w->tx_flags & 0xf000);
	w = wire_open(nullbd, "second", false);
	assert_false(w->tx_flags & TX_TRIM); /* neither */
	assert_true(w->tx_flags & TX_MULTI_CONN);
	w = wire_open(nullbd, "third", false);
	assert_false(w->tx_flags & TX_TRIM); /* no discard */
	for (size_t i = 0; i < NR(names); i++) {
		w = wire_open(nullbd, names[i], false);
		if (w->tx_flags & TX_FAST_ZERO)
			assert_true(w->tx_flags & TX_WRITE_ZEROES);
	}
}

static void
ignores_unknown_infos(void **state)
{
	static const uint16_t infos[] = { 17, 0xffff, INFO_BLOCK_SIZE, 0x8000,
		4, INFO_EXPORT, 99 };
	struct wire *w = negotiating(HS_FIXED);
	uint16_t *many = xmalloc(65535 * sizeof(*many));
	uint32_t type;

	(void)state;
	assert_int_equal(wire_info(w, OPT_INFO, "third", infos, 7), REP_ACK);
	assert_int_equal(w->min, 4096);
	for (int i = 0; i < 65535; i++)
		many[i] = (uint16_t)(i % 20000 + 100);
	/* 1000 kinds fit anywhere; 65535 may be too much for a server */
	assert_int_equal(wire_info(w, OPT_INFO, "third", many, 1000), REP_ACK);
	type = wire_info(w, OPT_INFO, "third", many, 65535);
	assert_true(type == REP_ACK || type == REP_ERR_TOO_BIG ||
		    type == REP_ERR_INVALID);
	wire_assert_options_in_step(w);
	assert_int_equal(wire_info(w, OPT_GO, "third", infos, 7), REP_ACK);
	assert_int_equal(w->min, 4096);
	wire_assert_served(w, 0);
	free(many);
}

static void
bears_duplicate_infos(void **state)
{
	static const uint16_t infos[] = { INFO_BLOCK_SIZE, INFO_BLOCK_SIZE,
		INFO_NAME, INFO_EXPORT, INFO_NAME, INFO_EXPORT };
	struct wire *w = negotiating(HS_FIXED);
	uint32_t type = wire_info(w, OPT_INFO, "nullb0", infos, 6);

	(void)state;
	assert_true(type == REP_ACK || type == REP_ERR_INVALID);
	assert_int_equal(wire_info(w, OPT_GO, "nullb0", infos, 1), REP_ACK);
	wire_assert_served(w, 0);
}

/* All replies to an option, put in order: to compare two of them. */
struct replies {
	int nr;
	struct {
		uint32_t type, len;
		uint8_t data[512];
	} reply[16];
};

static int
compare_replies(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(((struct replies *)0)->reply[0]));
}

static void
collect_replies(struct wire *w, uint32_t option, const char *name,
    const uint16_t *infos, uint16_t nr, struct replies *out)
{
	struct opt_reply *r = xmalloc(sizeof(*r));
	uint8_t data[512];
	uint32_t len = put_info(data, name, infos, nr);

	memset(out, 0, sizeof(*out));
	wire_option(w, option, data, len);
	do {
		wire_opt_reply(w, option, r);
		assert_in_range(r->len, 0, 512);
		assert_in_range(out->nr, 0, 15);
		out->reply[out->nr].type = r->type;
		out->reply[out->nr].len = r->len;
		memcpy(out->reply[out->nr].data, r->data, r->len);
		out->nr++;
	} while (r->type == REP_INFO);
	qsort(out->reply, (size_t)out->nr, sizeof(out->reply[0]),
	    compare_replies);
	free(r);
}

static void
tells_name_and_description(void **state)
{
	static const uint16_t infos[] = { INFO_NAME, INFO_DESCRIPTION };

	(void)state;
	for (int i = -1; i < (int)NR(names); i++) {
		struct wire *w = negotiating(HS_FIXED);
		struct replies all;
		const char *asked = i < 0 ? "" : names[i];

		collect_replies(w, OPT_INFO, asked, infos, 2, &all);
		for (int k = 0; k < all.nr; k++) {
			const uint8_t *p = all.reply[k].data;
			uint32_t len = all.reply[k].len - 2;

			if (all.reply[k].type != REP_INFO)
				continue;
			if (get16(p) == INFO_DESCRIPTION)
				assert_in_range(len, 1, 4096);
			if (get16(p) != INFO_NAME)
				continue;
			if (i < 0 && !len) /* "" is a name too */
				continue;
			asked = names[i < 0 ? 0 : i];
			assert_int_equal(len, strlen(asked));
			assert_memory_equal(p + 2, asked, len);
		}
		wire_close(w);
	}
}

static void
info_and_go_agree(void **state)
{
	static const uint16_t infos[] = { INFO_BLOCK_SIZE, INFO_NAME,
		INFO_DESCRIPTION, INFO_EXPORT };

	(void)state;
	for (uint16_t nr = 0; nr <= 4; nr++) {
		for (int i = -1; i < (int)NR(names); i++) {
			struct wire *w = negotiating(HS_FIXED);
			const char *name = i < 0 ? "" : names[i];
			struct replies info, go;

			collect_replies(w, OPT_INFO, name, infos, nr, &info);
			collect_replies(w, OPT_GO, name, infos, nr, &go);
			assert_int_equal(info.nr, go.nr);
			assert_memory_equal(&info, &go, sizeof(go));
			wire_close(w);
		}
	}
}

static void
unknown_export_leaves_it_negotiating(void **state)
{
	static const char *const unknown[] = { "nullb", "nullb00", "nullb1",
		"../nullb0", "/nullb0", "with space", "\xc3\xa9", "%s%s%s%n" };
	static const uint16_t infos[] = { INFO_BLOCK_SIZE, INFO_NAME };
	struct wire *w = negotiating(HS_FIXED);

	(void)state;
	for (size_t i = 0; i < NR(unknown); i++) {
		assert_int_equal(wire_info(w, OPT_INFO, unknown[i], infos, 2),
		    REP_ERR_UNKNOWN);
		assert_int_equal(wire_info(w, OPT_GO, unknown[i], infos, 2),
		    REP_ERR_UNKNOWN);
		assert_int_equal(w->min, 0);
		wire_assert_options_in_step(w);
	}
	assert_int_equal(wire_info(w, OPT_GO, "third", NULL, 0), REP_ACK);
	assert_int_equal(w->size, 8 * MiB);
	wire_assert_served(w, 0);
}

/* N87: we serve those byte-exactly, so nobody is forced to ask. */
static void
never_requires_block_sizes(void **state)
{
	(void)state;
	for (size_t i = 0; i < NR(names); i++) {
		struct wire *w = negotiating(HS_FIXED);

		assert_int_equal(
		    wire_info(w, OPT_INFO, names[i], NULL, 0), REP_ACK);
		assert_int_equal(
		    wire_info(w, OPT_GO, names[i], NULL, 0), REP_ACK);
		wire_close(w);
	}
}

static void
info_leaves_nothing_behind(void **state)
{
	struct wire *other = wire_open(nullbd, "", false);
	unsigned fds = daemon_fds(nullbd);
	struct wire *w = negotiating(HS_FIXED);
	uint64_t rss = daemon_rss(nullbd);

	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(wire_info(w, OPT_INFO,
				     names[(size_t)i % NR(names)], NULL, 0),
		    REP_ACK);
	wire_assert_served(other, 0);
	assert_int_equal(wire_option_result(w, OPT_ABORT, NULL, 0), REP_ACK);
	wire_close(w);
	for (int i = 0; i < 500; i++) {
		w = negotiating(HS_FIXED);
		assert_int_equal(
		    wire_info(w, OPT_INFO, "nullb0", NULL, 0), REP_ACK);
		if (i & 1)
			assert_int_equal(
			    wire_option_result(w, OPT_ABORT, NULL, 0), REP_ACK);
		wire_close(w);
	}
	daemon_settle(nullbd, fds);
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0, rss + 4 * MiB);
	wire_assert_served(wire_open(nullbd, "nullb0", false), 0);
}

static void
never_pads_go(void **state)
{
	(void)state;
	for (uint32_t flags = HS_FIXED; flags <= 3; flags += 2) {
		struct wire *w = negotiating(flags);

		assert_int_equal(
		    wire_info(w, OPT_GO, "nullb0", NULL, 0), REP_ACK);
		wire_expect_silence(w, 50);
		wire_assert_served(w, 0);
		wire_close(w);
	}
}

static void
takes_commands_behind_go(void **state)
{
	static const uint32_t payload = 256 * KiB;
	uint8_t *buf = xmalloc(512 + payload), *data = xmalloc(payload);
	struct opt_reply *r = xmalloc(sizeof(*r));

	(void)state;
	for (int by_name = 0; by_name < 2; by_name++) {
		struct wire *w = wire_unix(nullbd->sock);
		uint8_t info[64], entry[10], *p;
		uint32_t len = put_info(info, "nullb0", NULL, 0);

		fill(data, payload, 7 + (uint64_t)by_name);
		p = put32(buf, 3);
		if (by_name)
			p = put_option(p, OPT_EXPORT_NAME, "nullb0", 6);
		else
			p = put_option(p, OPT_GO, info, len);
		p = put_request(p, 0, CMD_WRITE, 1, 4096, payload);
		memcpy(p, data, payload);
		p += payload;
		p = put_request(p, 0, CMD_READ, 2, 4096, payload);
		wire_send(w, buf, (size_t)(p - buf));
		wire_greeting(w);
		if (by_name)
			wire_recv(w, entry, 10);
		else
			do
				wire_opt_reply(w, OPT_GO, r);
			while (r->type == REP_INFO);
		assert_int_equal(wire_reply(w, 1), 0);
		assert_int_equal(wire_reply(w, 2), 0);
		wire_recv(w, buf, payload);
		assert_same(buf, data, payload, "commands behind GO");
		wire_close(w);
	}
	free(r);
	free(data);
	free(buf);
}

static void
empty_name_is_the_first_device(void **state)
{
	struct wire *w = negotiating(HS_FIXED);

	(void)state;
	assert_int_equal(wire_info(w, OPT_INFO, "", NULL, 0), REP_ACK);
	assert_int_equal(w->size, sizes[0]);
	assert_int_equal(wire_info(w, OPT_GO, "", NULL, 0), REP_ACK);
	assert_int_equal(w->size, sizes[0]);
	wire_assert_served(w, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N12", "drops a client whose option has another magic",
		    drops_wrong_magic),
		CASE("N13 N14 N15 N17",
		    "refuses unknown options, echoes them,"
		    " passes over their data",
		    refuses_unknown_options),
		CASE("N16", "hangs up on an option that promises 2 GiB",
		    hangs_up_on_endless_options),
		CASE("N16 N17",
		    "answers 1 MiB of option data in step or hangs up",
		    bears_large_options),
		CASE("N18 N75", "answers pipelined options in their order",
		    answers_pipelined_options_in_order),
		CASE("N18", "reassembles options sent a byte at a time",
		    reassembles_options),
		CASE("N20", "a refused client is not hung up on",
		    refuses_without_hanging_up),
		CASE("N22", "bears 20000 options", bears_many_options),
		CASE("N24 N26",
		    "EXPORT_NAME enters each export, with zeroes or"
		    " without",
		    enters_by_name),
		CASE("N26", "EXPORT_NAME with an empty name enters the first",
		    enters_default_by_empty_name),
		CASE("N25 N26",
		    "EXPORT_NAME of an unknown name closes silently",
		    closes_on_unknown_name),
		CASE("N25 N27",
		    "EXPORT_NAME too long or with NUL closes silently",
		    closes_on_odd_names),
		CASE("N31 N32", "ABORT is acknowledged, with data too",
		    acks_abort),
		CASE("N33", "a client may leave without reading ABORT's reply",
		    bears_abort_without_reading),
		CASE("N35 N38 N39 N41",
		    "LIST names every export once, each time",
		    lists_all_exports),
		CASE("N36", "LIST with data is INVALID, the data passed over",
		    refuses_list_with_data),
		CASE("N42 N43", "STARTTLS is refused, with data too",
		    refuses_starttls),
		CASE("N42", "nothing is answered with TLS_REQD",
		    never_asks_for_tls),
		CASE("N59 N61", "INFO whose lengths disagree is INVALID",
		    refuses_malformed_info),
		CASE("N59 N72", "GO whose lengths disagree is INVALID",
		    refuses_malformed_go),
		CASE("N60 N67", "names too long or with NUL are refused",
		    refuses_odd_names),
		CASE("N61 N62", "INFO and GO tell size and flags unasked",
		    always_tells_the_export),
		CASE("N62 N79", "the flags are those of the device",
		    flags_tell_what_it_can),
		CASE("N63", "unknown kinds of information are passed over",
		    ignores_unknown_infos),
		CASE("N63", "the same information may be asked for twice",
		    bears_duplicate_infos),
		CASE("N64 N65",
		    "NAME is the export's, a DESCRIPTION never empty",
		    tells_name_and_description),
		CASE("N69", "INFO and GO tell the same", info_and_go_agree),
		CASE("N67 N72", "UNKNOWN leaves the session negotiating",
		    unknown_export_leaves_it_negotiating),
		CASE("N68 N87", "nobody is required to ask for block sizes",
		    never_requires_block_sizes),
		CASE("N70", "1000 INFOs leave nothing behind",
		    info_leaves_nothing_behind),
		CASE("N71", "GO is never followed by zeroes", never_pads_go),
		CASE("N73", "commands in GO's segment are commands",
		    takes_commands_behind_go),
		CASE("N74", "the empty name is the first device",
		    empty_name_is_the_first_device),
	};

	return cmocka_run_group_tests_name("options", tests, start, stop);
}
