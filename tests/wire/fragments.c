/* SPDX-License-Identifier: MIT */
/*
 * One recorded session in every fragmentation, and cut off after each of its
 * bytes: what was whole is answered and done, what was not is neither.
 */
#include "../lib/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_REPLIES (64 * KiB)

static struct daemon *nullbd;
static int port;
static struct recorded rec;
/* What the server says to the handshake, and how far after each option. */
static uint8_t replies[MAX_REPLIES];
static size_t reply_end[RECORDED_OPTIONS];
static uint8_t before[RECORDED_REGION]; /* the region, before each run */

static int
start(void **state)
{
	char text[16];

	(void)state;
	port = wire_free_port("127.0.0.1");
	snprintf(text, sizeof(text), "%d", port);
	nullbd = daemon_start("-p", text, "-a", "127.0.0.1",
	    "nullb0:size=64M,memory_backed=1,discard=1",
	    "timer:size=64M,memory_backed=1,discard=1,irqmode=2,"
	    "completion_nsec=20000",
	    "second:size=1M", NULL);
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
connection(bool tcp)
{
	return tcp ? wire_tcp("127.0.0.1", port) : wire_unix(nullbd->sock);
}

/* Record the session and what its handshake is answered with. */
static void
record(const char *export)
{
	struct wire *w = wire_unix(nullbd->sock);
	struct opt_reply *r = xmalloc(sizeof(*r));
	size_t n = 0, from = 0;

	recorded_make(&rec, export);
	wire_recv(w, replies, 18);
	n = 18;
	for (size_t i = 0; i < rec.nr_options; i++) {
		wire_send(w, rec.bytes + from, rec.option_end[i] - from);
		from = rec.option_end[i];
		do {
			if (!i)
				break;
			wire_opt_reply(w, rec.option[i], r);
			if (n + OPT_REPLY_HEADER + r->len > MAX_REPLIES)
				abort();
			uint8_t *p = put32(
			    put64(replies + n, MAGIC_OPT_REPLY), r->option);
			p = put32(put32(p, r->type), r->len);
			memcpy(p, r->data, r->len);
			n += OPT_REPLY_HEADER + r->len;
		} while (r->type == REP_INFO || r->type == REP_SERVER);
		reply_end[i] = n;
	}
	assert_int_equal(r->type, REP_ACK);
	free(r);
	wire_close(w);
	fill(before, sizeof(before), 1234);
}

/* The first `len` bytes were sent and then the end: check all that comes. */
static void
check_answers(struct wire *w, size_t len, bool all)
{
	size_t options = recorded_whole_options(&rec, len);
	size_t ops = recorded_whole_ops(&rec, len), answered;
	size_t want = options ? reply_end[options - 1] : 18;
	static uint8_t got[MAX_REPLIES];
	uint8_t junk;
	bool eof;

	wire_recv(w, got, want);
	assert_same(got, replies, want, "the handshake");
	for (size_t i = 0; i < rec.nr_ops; i++)
		rec.ops[i].answered = false;
	if (options < rec.nr_options) {
		if (wire_drain(w, &junk, 1, WIRE_TIMEOUT_MS, &eof) || !eof)
			wire_fail(
			    "cut after %zu: no end, or more than that", len);
		return;
	}
	answered = batch_collect_eof(w, rec.ops, rec.nr_ops);
	for (size_t i = 0; i < rec.nr_ops; i++) {
		struct op *op = &rec.ops[i];

		if (op->answered && i >= ops)
			wire_fail(
			    "cut after %zu: request %zu is answered", len, i);
		if (op->type == CMD_DISC || i >= ops)
			continue;
		if (all && !op->answered)
			wire_fail("cut after %zu: request %zu is not answered "
				  "(%zu of %zu are)",
			    len, i, answered, ops);
		if (op->answered && op->error != rec.want_error[i])
			wire_fail("request %zu: error %u, want %u", i,
			    op->error, rec.want_error[i]);
	}
}

/* What the whole requests did is there, and nothing else. */
static void
check_region(struct wire *other, size_t len)
{
	uint8_t want[RECORDED_REGION], got[RECORDED_REGION];
	char text[64];

	memcpy(want, before, sizeof(want));
	recorded_apply(&rec, recorded_whole_ops(&rec, len), want);
	assert_int_equal(wire_read(other, got, 0, sizeof(got)), 0);
	snprintf(text, sizeof(text), "cut after %zu: the region", len);
	assert_same(got, want, sizeof(got), text);
}

static void
reset_region(struct wire *other)
{
	assert_int_equal(wire_write(other, before, 0, sizeof(before)), 0);
}

static void
fragmented(const char *export, bool tcp, size_t piece, unsigned pause_us)
{
	struct wire *other, *w;

	record(export);
	other = wire_open(nullbd, export, false);
	reset_region(other);
	w = connection(tcp);
	for (size_t i = 0; i < rec.len; i += piece) {
		wire_send(w, rec.bytes + i,
		    rec.len - i < piece ? rec.len - i : piece);
		if (pause_us)
			usleep(pause_us);
	}
	check_answers(w, rec.len, true);
	check_region(other, rec.len);
	wire_close(w);
	wire_close(other);
}

static void
one_byte_at_a_time(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		fragmented("nullb0", tcp, 1, 0);
		fragmented("nullb0", tcp, 1, 100);
		fragmented("timer", tcp, 1, 50);
	}
}

static void
pieces_of_every_size(void **state)
{
	(void)state;
	for (size_t piece = 2; piece < 600; piece += piece < 64 ? 1 : 29) {
		fragmented("nullb0", piece & 1, piece, 20);
		fragmented("timer", piece & 1, piece, 0);
	}
	fragmented("nullb0", true, sizeof(rec.bytes), 0);
}

static void
two_pieces_cut_anywhere(void **state)
{
	struct wire *other;

	(void)state;
	record("nullb0");
	other = wire_open(nullbd, "nullb0", false);
	for (size_t cut = 1; cut < rec.len; cut += 3) {
		struct wire *w = connection(cut & 1);

		reset_region(other);
		wire_send(w, rec.bytes, cut);
		usleep(100);
		wire_send(w, rec.bytes + cut, rec.len - cut);
		check_answers(w, rec.len, true);
		check_region(other, rec.len);
		wire_close(w);
	}
}

static void
cut_anywhere_half_closed(void **state)
{
	unsigned fds;
	struct wire *other;

	(void)state;
	for (int timer = 0; timer < 2; timer++) {
		const char *export = timer ? "timer" : "nullb0";

		record(export);
		other = wire_open(nullbd, export, false);
		fds = daemon_fds(nullbd);
		for (size_t len = 0; len < rec.len; len += timer ? 5 : 1) {
			struct wire *w = connection(len & 1);

			reset_region(other);
			wire_send(w, rec.bytes, len);
			wire_half_close(w);
			check_answers(w, len, true);
			check_region(other, len);
			wire_close(w);
		}
		daemon_settle(nullbd, fds);
		wire_close(other);
	}
}

/* Closed outright: what was whole may be done or not, but whole; what was
 * not whole is not done. */
static void
cut_anywhere_closed(void **state)
{
	struct wire *other;
	unsigned fds;

	(void)state;
	record("nullb0");
	other = wire_open(nullbd, "nullb0", false);
	wire_assert_served(other, 1 * MiB);
	fds = daemon_fds(nullbd);
	for (size_t len = 0; len < rec.len; len++) {
		struct wire *w = connection(len % 3);

		wire_send(w, rec.bytes, len);
		if (len % 5 == 0)
			wire_reset(w);
		else
			wire_close(w);
		if (len % 64 == 0)
			wire_assert_served(other, 1 * MiB);
	}
	daemon_settle(nullbd, fds);
	wire_assert_served(other, 1 * MiB);
	assert_int_equal(daemon_stat(nullbd, "nullb0", 9), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N7 N18 N110", "a session that comes a byte at a time",
		    one_byte_at_a_time),
		CASE("N18 N110 N156", "a session in pieces of every size",
		    pieces_of_every_size),
		CASE("N18 N110 N156", "a session in two pieces, cut anywhere",
		    two_pieces_cut_anywhere),
		CASE("N163 N164",
		    "cut anywhere and half closed: what was whole"
		    " is answered, the rest not done",
		    cut_anywhere_half_closed),
		CASE("N8 N163", "cut anywhere and closed: nothing is left",
		    cut_anywhere_closed),
	};

	return cmocka_run_group_tests_name("fragments", tests, start, stop);
}
