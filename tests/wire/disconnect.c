/* SPDX-License-Identifier: MIT */
/*
 * Clients that leave: politely, halfway, in the middle of a payload, by being
 * killed; and clients that stay and do not read.  Sections 13 and 14 of the
 * spec.
 */
#include "../lib/wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NR(a) (sizeof(a) / sizeof(*(a)))

static struct daemon *nullbd;
static int port;

static const char *const devices[] = { "none", "soft", "timer" };

static int
start(void **state)
{
	char text[16];

	(void)state;
	port = wire_free_port("127.0.0.1");
	snprintf(text, sizeof(text), "%d", port);
	nullbd = daemon_start("-p", text, "-a", "127.0.0.1", "--workers", "2",
	    "none:size=256M,memory_backed=1,irqmode=0",
	    "soft:size=256M,memory_backed=1,irqmode=1",
	    "timer:size=256M,memory_backed=1,irqmode=2,"
	    "completion_nsec=20000000",
	    "one:size=64M,memory_backed=1,irqmode=2,hw_queue_depth=1,"
	    "completion_nsec=1000000",
	    "null:size=250G", NULL);
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
tcp_open(const char *name)
{
	struct wire *w = wire_tcp("127.0.0.1", port);

	wire_go(w, name, false);
	return w;
}

static struct wire *
open_any(const char *name, bool tcp)
{
	return tcp ? tcp_open(name) : wire_open(nullbd, name, false);
}

/* Reads and writes, apart from each other, and a DISC at the end if asked. */
static void
make_ops(struct op *ops, size_t n, uint8_t *data, uint8_t *got, bool disc)
{
	memset(ops, 0, n * sizeof(*ops));
	for (size_t i = 0; i < n; i++) {
		ops[i].type = i % 2 ? CMD_WRITE : CMD_READ;
		ops[i].offset = i * 64 * KiB;
		ops[i].length = 4096;
		ops[i].data = data + i * 4096;
		ops[i].got = got + i * 4096;
	}
	if (disc) {
		ops[n - 1].type = CMD_DISC;
		ops[n - 1].offset = 0;
		ops[n - 1].length = 0;
	}
}

static void
nothing_in_flight(void)
{
	uint64_t end = now_ns() + 3000000000;
	static const char *const all[] = { "none", "soft", "timer", "one",
		"null" };

	for (size_t i = 0; i < NR(all); i++) {
		long long n;

		while ((n = daemon_stat(nullbd, all[i], 9)) != 0) {
			daemon_assert_alive(nullbd);
			if (now_ns() > end)
				wire_fail("%s: %lld requests are in flight",
				    all[i], n);
			sleep_ms(20);
		}
	}
}

/* ------------------------------------------------------------------- DISC */

static void
disc_waits_for_what_is_in_flight(void **state)
{
	struct op ops[65];
	uint8_t *data = xmalloc(65 * 4096), *got = xmalloc(65 * 4096);
	uint8_t check[4096];

	(void)state;
	for (size_t d = 0; d < 2 * NR(devices); d++) {
		const char *name = devices[d / 2];
		struct wire *w = open_any(name, d & 1);

		fill(data, 65 * 4096, d);
		make_ops(ops, 65, data, got, true);
		batch_send(w, ops, 65);
		assert_int_equal(batch_collect_eof(w, ops, 65), 64);
		batch_assert_ok(ops, 65);
		wire_close(w);
		w = open_any(name, d & 1);
		for (size_t i = 1; i < 64; i += 2) {
			assert_int_equal(
			    wire_read(w, check, ops[i].offset, 4096), 0);
			assert_same(check, ops[i].data, 4096, "before DISC");
		}
		wire_close(w);
	}
	free(got);
	free(data);
}

static void
disc_takes_any_form(void **state)
{
	static const struct {
		uint16_t flags;
		uint64_t offset;
		uint32_t length;
	} forms[] = { { 0, 0, 0 }, { 1, 0, 0 }, { 0xffff, 0, 0 },
		{ 0x40, 0, 0 }, { 0, 1, 1 }, { 0, ~0ULL, ~0u },
		{ 0xffff, 1ULL << 63, 512 } };

	(void)state;
	for (size_t i = 0; i < NR(forms); i++) {
		struct wire *w = open_any("soft", i & 1);

		wire_assert_served(w, 0);
		wire_request(w, forms[i].flags, CMD_DISC, 1, forms[i].offset,
		    forms[i].length);
		wire_expect_eof(w);
		wire_close(w);
	}
}

/* Behind DISC: garbage, good requests, much of both. */
static void
nothing_behind_disc_is_looked_at(void **state)
{
	uint8_t *buf = xmalloc(1 * MiB), *p, keep[512], got[512];

	(void)state;
	for (int i = 0; i < 8; i++) {
		const char *name = devices[i % 3];
		struct wire *other = wire_open(nullbd, name, false);
		struct wire *w = open_any(name, i & 4);

		fill(keep, sizeof(keep), (uint64_t)i);
		assert_int_equal(wire_write(other, keep, 0, 512), 0);
		memset(buf, 0x5a, 1 * MiB);
		p = put_request(buf, 0, CMD_READ, 5, 0, 512);
		p = put_request(p, 0, CMD_DISC, 6, 0, 0);
		if (i & 1)
			put_request(p, 0, CMD_WRITE, 7, 0, 512);
		/* what it does not take is its affair */
		wire_try_send(w, buf, i & 2 ? 1 * MiB : 1000, 1000);
		assert_int_equal(wire_reply(w, 5), 0);
		wire_recv(w, got, 512);
		assert_memory_equal(got, keep, 512);
		wire_expect_eof(w);
		assert_int_equal(wire_read(other, got, 0, 512), 0);
		assert_memory_equal(got, keep, 512);
		wire_close(w);
		wire_close(other);
	}
	free(buf);
}

/* ------------------------------------------------------------- half closed */

static void
half_closed_clients_get_their_answers(void **state)
{
	struct op ops[64];
	uint8_t *data = xmalloc(64 * 4096), *got = xmalloc(64 * 4096);

	(void)state;
	for (size_t d = 0; d < 2 * NR(devices); d++) {
		struct wire *w = open_any(devices[d / 2], d & 1);

		fill(data, 64 * 4096, d);
		make_ops(ops, 64, data, got, false);
		batch_send(w, ops, 64);
		wire_half_close(w);
		assert_int_equal(batch_collect_eof(w, ops, 64), 64);
		batch_assert_ok(ops, 64);
		wire_close(w);
	}
	free(got);
	free(data);
	nothing_in_flight();
}

/* More than the server takes at once, then the end, then reading. */
static void
half_closed_with_a_backlog(void **state)
{
	enum {
		N = 3000
	};
	struct op *ops = calloc(N, sizeof(*ops));
	uint8_t *got = xmalloc(N * 4096);

	(void)state;
	for (int d = 0; d < 2; d++) {
		struct wire *w = open_any(d ? "one" : "soft", d);

		for (size_t i = 0; i < N; i++) {
			memset(&ops[i], 0, sizeof(*ops));
			ops[i].type = CMD_READ;
			ops[i].offset = i % 512 * 8192;
			ops[i].length = d ? 512 : 4096;
			ops[i].got = got + i * 4096;
		}
		/* what fits in the socket's buffers waits there */
		batch_send(w, ops, 1500);
		wire_half_close(w);
		sleep_ms(50);
		assert_int_equal(batch_collect_eof(w, ops, 1500), 1500);
		batch_assert_ok(ops, 1500);
		wire_close(w);
	}
	free(got);
	free(ops);
}

static void
half_closed_in_the_middle(void **state)
{
	uint8_t buf[4096 + 2 * REQUEST_SIZE], keep[4096], got[4096], *p;

	(void)state;
	for (size_t cut = 1; cut < 4096 + 28; cut += cut < 28 ? 1 : 509) {
		struct wire *other = wire_open(nullbd, "timer", false);
		struct wire *w = open_any("timer", cut & 1);

		fill(keep, sizeof(keep), cut);
		assert_int_equal(wire_write(other, keep, 0, 4096), 0);
		p = put_request(buf, 0, CMD_READ, 1, 0, 512);
		p = put_request(p, 0, CMD_WRITE, 2, 0, 4096);
		memset(p, 0xee, 4096);
		wire_send(w, buf, REQUEST_SIZE + cut);
		wire_half_close(w);
		assert_int_equal(wire_reply(w, 1), 0);
		wire_recv(w, got, 512);
		assert_same(got, keep, 512, "the whole request");
		wire_expect_eof(w);
		assert_int_equal(wire_read(other, got, 0, 4096), 0);
		assert_same(got, keep, 4096, "under a partial write");
		wire_close(w);
		wire_close(other);
	}
}

static void
half_closed_while_negotiating(void **state)
{
	(void)state;
	for (int i = 0; i < 6; i++) {
		struct wire *w = i & 1 ? wire_tcp("127.0.0.1", port)
				       : wire_unix(nullbd->sock);

		wire_greeting(w);
		if (i >= 2)
			wire_flags(w, 3);
		if (i >= 4)
			wire_option(w, OPT_LIST, NULL, 0);
		wire_half_close(w);
		if (i >= 4) {
			struct opt_reply *r = xmalloc(sizeof(*r));

			do
				wire_opt_reply(w, OPT_LIST, r);
			while (r->type == REP_SERVER);
			assert_int_equal(r->type, REP_ACK);
			free(r);
		}
		wire_expect_eof(w);
		wire_close(w);
	}
}

/* -------------------------------------------------------------- cut short */

/* In the payload of a write of `length`, after `part` bytes of it. */
static void
cut_in_payload(
    const char *name, bool tcp, int how, uint32_t length, uint32_t part)
{
	struct wire *other = wire_open(nullbd, name, false);
	uint8_t *keep = xmalloc(length), *got = xmalloc(length);
	unsigned fds;
	struct wire *w;

	fill(keep, length, part);
	assert_int_equal(wire_write(other, keep, 1 * MiB, length), 0);
	fds = daemon_fds(nullbd);
	w = open_any(name, tcp);
	wire_request(w, 0, CMD_WRITE, 1, 1 * MiB, length);
	memset(got, 0xee, length);
	wire_send(w, got, part);
	if (how == 2)
		sleep_ms(5);
	if (how == 0)
		wire_close(w);
	else
		wire_reset(w);
	daemon_settle(nullbd, fds);
	assert_int_equal(wire_read(other, got, 1 * MiB, length), 0);
	assert_same(got, keep, length, "under a partial write");
	wire_close(other);
	free(got);
	free(keep);
}

static void
a_partial_write_is_not_applied(void **state)
{
	static const uint32_t lengths[] = { 512, 4096, 65536, 200000, 1 * MiB,
		8 * MiB };

	(void)state;
	for (size_t i = 0; i < NR(lengths); i++) {
		uint32_t n = lengths[i];
		const uint32_t parts[] = { 0, 1, 511, n / 2, n - 512, n - 1 };

		for (size_t k = 0; k < NR(parts); k++)
			cut_in_payload(devices[(i + k) % 3], k & 1,
			    (int)(i + k) % 3, n, parts[k]);
	}
}

/* The kernel closes for a client that is killed. */
static void
a_killed_client_is_forgotten(void **state)
{
	struct wire *other = wire_open(nullbd, "soft", false);
	unsigned fds = daemon_fds(nullbd);
	uint8_t keep[4096], got[4096];

	(void)state;
	fill(keep, sizeof(keep), 8);
	for (int i = 0; i < 20; i++) {
		int ready[2];
		char byte;
		pid_t pid;

		assert_int_equal(wire_write(other, keep, 0, 4096), 0);
		assert_int_equal(pipe(ready), 0);
		fflush(NULL);
		pid = fork();
		if (!pid) {
			struct wire *w = open_any("soft", i & 1);
			uint8_t junk[512] = { 1 };

			for (uint64_t k = 0; k < 100; k++)
				wire_request(w, 0, CMD_READ, k, 0, 65536);
			wire_request(w, 0, CMD_WRITE, 1, 0, 4096);
			wire_send(w, junk, (size_t)i * 25);
			_exit(write(ready[1], "", 1) == 1 && pause());
		}
		assert_int_equal(read(ready[0], &byte, 1), 1);
		close(ready[0]);
		close(ready[1]);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		assert_int_equal(wire_read(other, got, 0, 4096), 0);
		assert_same(got, keep, 4096, "under a partial write");
	}
	daemon_settle(nullbd, fds);
	nothing_in_flight();
}

static void
replies_left_unread(void **state)
{
	struct wire *other = wire_open(nullbd, "none", false);
	unsigned fds = daemon_fds(nullbd);

	(void)state;
	for (int i = 0; i < 24; i++) {
		struct wire *w = open_any(devices[i % 3], i & 1);

		for (uint64_t k = 0; k < 64; k++)
			wire_request(w, 0, CMD_READ, k, k * MiB, 1 * MiB);
		sleep_ms(i % 5);
		if (i & 2)
			wire_reset(w);
		else
			wire_close(w);
		wire_assert_served(other, 0);
	}
	daemon_settle(nullbd, fds);
	nothing_in_flight();
}

/* More asked for than may be in flight, and gone before it is answered. */
static void
leaves_with_all_it_may_have_in_flight(void **state)
{
	static const struct {
		uint32_t n, length;
	} kinds[] = { { 1, 64 * MiB }, { 64, 1 * MiB }, { 65, 1 * MiB },
		{ 1000, 128 * KiB }, { 1100, 512 } };
	uint8_t *buf = xmalloc(1100 * REQUEST_SIZE);
	unsigned fds = daemon_fds(nullbd);

	(void)state;
	for (size_t k = 0; k < NR(kinds); k++) {
		for (int i = 0; i < 6; i++) {
			struct wire *w = open_any(devices[i % 3], i & 1);
			uint8_t *p = buf;

			for (uint32_t r = 0; r < kinds[k].n; r++)
				p = put_request(p, 0, CMD_READ, r,
				    r % 128ull * MiB, kinds[k].length);
			wire_send(w, buf, (size_t)(p - buf));
			sleep_ms(5);
			if (i < 3)
				wire_close(w);
			else
				wire_reset(w);
		}
		print_message("%u reads of %u\n", kinds[k].n, kinds[k].length);
		daemon_settle(nullbd, fds);
	}
	free(buf);
	nothing_in_flight();
}

/* The tags of a dead client's requests come back. */
static void
a_dead_client_gives_its_tags_back(void **state)
{
	unsigned fds = daemon_fds(nullbd);
	uint64_t start_ns;
	struct wire *w;

	(void)state;
	for (int i = 0; i < 10; i++) {
		uint8_t buf[1000 * REQUEST_SIZE], *p = buf;

		w = open_any("one", i & 1);
		for (uint64_t k = 0; k < 1000; k++)
			p = put_request(p, 0, CMD_READ, k, k * 8192, 512);
		wire_send(w, buf, sizeof(buf));
		sleep_ms(3);
		wire_reset(w);
	}
	/* 10000 of 1 ms each on one tag are dropped, not done */
	start_ns = now_ns();
	w = wire_open(nullbd, "one", false);
	wire_assert_served(w, 0);
	assert_in_range((now_ns() - start_ns) / 1000000, 0, 3000);
	wire_close(w);
	daemon_settle(nullbd, fds);
	nothing_in_flight();
}

static void
comings_and_goings(void **state)
{
	struct wire *other = wire_open(nullbd, "soft", false);
	unsigned fds = daemon_fds(nullbd);
	uint64_t rss, rng = wire_seed();

	(void)state;
	wire_assert_served(other, 0);
	for (int i = 0; i < 200; i++)
		wire_close(open_any("soft", i & 1));
	daemon_settle(nullbd, fds);
	rss = daemon_rss(nullbd);
	for (int i = 0; i < 2000; i++) {
		struct wire *w = open_any(devices[rng_below(&rng, 3)], i & 1);
		uint64_t n = rng_below(&rng, 4);

		for (uint64_t k = 0; k < n; k++)
			wire_request(w, 0, CMD_READ, k, 0, 4096);
		if (rng_below(&rng, 2))
			wire_request(w, 0, CMD_DISC, 9, 0, 0);
		if (rng_below(&rng, 2))
			wire_reset(w);
		else
			wire_close(w);
	}
	daemon_settle(nullbd, fds);
	wire_assert_served(other, 0);
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0, rss + 8 * MiB);
	nothing_in_flight();
}

/* ------------------------------------------------------- who does not read */

/* Let it ask for as much as it can without reading: bytes it could send. */
static size_t
flood(struct wire *w, const void *pattern, size_t n, size_t most)
{
	size_t sent = 0, k;

	do {
		k = wire_try_send(w, pattern, n, 150);
		sent += k;
	} while (k == n && sent < most);
	return sent;
}

static void
a_client_that_does_not_read_is_bounded(void **state)
{
	enum {
		N = 6,
		BATCH = 64
	};
	struct wire *other = wire_open(nullbd, "none", false);
	struct wire *w[N];
	uint8_t *data = xmalloc(1 * MiB), *buf, *p;
	unsigned fds = daemon_fds(nullbd);
	uint64_t rss;

	(void)state;
	for (uint64_t i = 0; i < 64; i++) { /* stored, so the rest is queues */
		fill(data, 1 * MiB, i);
		assert_int_equal(wire_write(other, data, i * MiB, 1 * MiB), 0);
	}
	rss = daemon_rss(nullbd);
	buf = p = xmalloc(BATCH * REQUEST_SIZE);
	for (uint64_t i = 0; i < BATCH; i++)
		p = put_request(p, 0, CMD_READ, i, i * MiB, 1 * MiB);
	for (int i = 0; i < N; i++) {
		uint64_t start_ns;
		size_t sent;

		w[i] = open_any("none", i & 1);
		sent = flood(w[i], buf, BATCH * REQUEST_SIZE, 64 * MiB);
		assert_in_range(sent, BATCH * REQUEST_SIZE, 32 * MiB);
		start_ns = now_ns();
		for (int k = 0; k < 50; k++)
			wire_assert_served(other, 100 * MiB);
		assert_in_range((now_ns() - start_ns) / 1000000, 0, 2000);
	}
	/* nbd.h: 64 MiB in flight a connection, and some for its buffers */
	if (!daemon_sanitized(nullbd))
		assert_in_range(
		    daemon_rss(nullbd), 0, rss + N * (64ull + 16) * MiB);
	/* pinned pages are replaced, not waited for; memory stays bounded */
	for (uint64_t i = 0; i < 64; i++) {
		fill(data, 1 * MiB, i + 1000);
		assert_int_equal(wire_write(other, data, i * MiB, 1 * MiB), 0);
	}
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0,
		    rss + N * (64ull + 16) * MiB + 128 * MiB);
	for (int i = 0; i < N; i++)
		wire_close(w[i]);
	daemon_settle(nullbd, fds);
	free(buf);
	free(data);
	nothing_in_flight();
}

/* Errors are replies too. */
static void
unread_errors_are_bounded(void **state)
{
	struct wire *other = wire_open(nullbd, "none", false);
	uint64_t rss = daemon_rss(nullbd);
	uint8_t *buf = xmalloc(1024 * REQUEST_SIZE), *p = buf;

	(void)state;
	for (uint64_t i = 0; i < 1024; i++)
		p = put_request(p, 0, i & 1 ? CMD_READ : 99, i, ~0ULL, 512);
	for (int i = 0; i < 4; i++) {
		struct wire *w = open_any("null", i & 1);
		size_t sent = flood(w, buf, 1024 * REQUEST_SIZE, 256 * MiB);

		/* the sockets' buffers both ways, and what it keeps */
		assert_in_range(sent, 0, 64 * MiB);
		wire_assert_served(other, 0);
	}
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0, rss + 64 * MiB);
	free(buf);
}

/* Once it reads, everything is there and in step. */
static void
a_late_reader_gets_everything(void **state)
{
	enum {
		N = 200
	};
	uint8_t *want = xmalloc(4 * MiB), *got = xmalloc(N * 256ul * KiB);

	(void)state;
	fill(want, 4 * MiB, 3);
	for (int d = 0; d < 4; d++) {
		struct op ops[N] = { { 0 } };
		struct wire *w = open_any(devices[d % 3], d & 1);

		assert_int_equal(wire_write(w, want, 0, 4 * MiB), 0);
		for (uint32_t i = 0; i < N; i++) {
			ops[i].type = CMD_READ;
			ops[i].offset = i % 15 * 256 * KiB + i * 8;
			ops[i].length = 256 * KiB;
			ops[i].got = got + i * 256ul * KiB;
		}
		batch_send(w, ops, N);
		sleep_ms(300);
		batch_collect(w, ops, N);
		batch_assert_ok(ops, N);
		for (uint32_t i = 0; i < N; i++)
			assert_same(ops[i].got, want + ops[i].offset, 256 * KiB,
			    "read late");
		wire_assert_served(w, 0);
		wire_close(w);
	}
	free(got);
	free(want);
}

/* A promise of 64 MiB costs nothing until they come. */
static void
promised_payloads_cost_little(void **state)
{
	enum {
		N = 32
	};
	struct wire *other = wire_open(nullbd, "none", false);
	uint64_t rss = daemon_rss(nullbd);
	struct wire *w[N];

	(void)state;
	for (int i = 0; i < N; i++) {
		w[i] = open_any("soft", i & 1);
		wire_request(w[i], 0, CMD_WRITE, 1, 0, 64 * MiB);
		wire_send(w[i], "x", 1);
	}
	wire_assert_served(other, 0);
	sleep_ms(50);
	if (!daemon_sanitized(nullbd))
		assert_in_range(daemon_rss(nullbd), 0, rss + 64 * MiB);
	for (int i = 0; i < N; i++)
		wire_close(w[i]);
}

/* Slow writers of large payloads, one byte now and then, beside a fast one. */
static void
a_slow_writer_harms_nobody(void **state)
{
	struct wire *other = wire_open(nullbd, "soft", false);
	struct wire *slow[8];
	uint64_t start_ns;

	(void)state;
	for (int i = 0; i < 8; i++) {
		slow[i] = open_any("soft", i & 1);
		wire_request(slow[i], 0, CMD_WRITE, 1, 64 * MiB, 4096);
	}
	start_ns = now_ns();
	for (int k = 0; k < 200; k++) {
		for (int i = 0; i < 8; i++)
			wire_send(slow[i], "y", 1);
		wire_assert_served(other, 0);
	}
	assert_in_range((now_ns() - start_ns) / 1000000, 0, 3000);
}

/* TCP tells its state by segments of its own: urgent data, half a header. */
static void
urgent_data_harms_nobody(void **state)
{
	struct wire *w = tcp_open("soft"), *other = tcp_open("soft");

	(void)state;
	send(w->fd, "!", 1, MSG_OOB | MSG_NOSIGNAL);
	wire_request(w, 0, CMD_READ, 1, 0, 512);
	wire_assert_served(other, 0);
	wire_close(w);
	wire_assert_served(other, 0);
}

/* N108: at once, whatever is in flight. */
static void
hangs_up_at_once_with_requests_in_flight(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M,irqmode=2,"
					"completion_nsec=5000000000",
	    NULL);
	struct wire *w = wire_open(d, "", false);
	uint8_t zeros[32] = { 0 };
	uint64_t start_ns;

	(void)state;
	wire_request(w, 0, CMD_READ, 1, 0, 512);
	start_ns = now_ns();
	wire_send(w, zeros, sizeof(zeros));
	wire_expect_eof(w);
	assert_in_range((now_ns() - start_ns) / 1000000, 0, 3000);
	daemon_stop(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N156", "DISC waits for the answers of what is in flight",
		    disc_waits_for_what_is_in_flight),
		CASE("N156 N157", "DISC closes whatever its fields say",
		    disc_takes_any_form),
		CASE("N158", "nothing behind DISC is looked at",
		    nothing_behind_disc_is_looked_at),
		CASE("N164", "a half-closed client gets its answers",
		    half_closed_clients_get_their_answers),
		CASE("N164", "and so it does with a backlog",
		    half_closed_with_a_backlog),
		CASE("N163 N164", "half closed in the middle of a write",
		    half_closed_in_the_middle),
		CASE("N8 N164", "half closed while negotiating",
		    half_closed_while_negotiating),
		CASE("N163", "a partial write is not applied",
		    a_partial_write_is_not_applied),
		CASE("N163", "a client that was killed is forgotten",
		    a_killed_client_is_forgotten),
		CASE("N163", "replies may be left unread", replies_left_unread),
		CASE("N163 N165",
		    "a client leaves with all it may have in flight",
		    leaves_with_all_it_may_have_in_flight),
		CASE("N163", "a dead client gives its tags back",
		    a_dead_client_gives_its_tags_back),
		CASE("N8 N163", "2000 comings and goings leave nothing behind",
		    comings_and_goings),
		CASE("N165", "a client that does not read is bounded",
		    a_client_that_does_not_read_is_bounded),
		CASE("N165", "errors that are not read are bounded",
		    unread_errors_are_bounded),
		CASE("N165", "who reads late gets everything",
		    a_late_reader_gets_everything),
		CASE("N165 N89", "promised payloads cost little",
		    promised_payloads_cost_little),
		CASE("N165 N110", "slow writers harm nobody",
		    a_slow_writer_harms_nobody),
		CASE("N165", "urgent data harms nobody else",
		    urgent_data_harms_nobody),
		CASE("N108", "hangs up at once with requests in flight",
		    hangs_up_at_once_with_requests_in_flight),
	};

	return cmocka_run_group_tests_name("disconnect", tests, start, stop);
}
