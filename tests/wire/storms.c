/* SPDX-License-Identifier: MIT */
/*
 * Clients by the hundred and the thousand: silent, gone at once, all with
 * something in flight; and one that reads so slowly that it might as well not.
 */
#include "../lib/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define NR(a) (sizeof(a) / sizeof(*(a)))

static const enum wire_mode modes[] = { WIRE_SIMPLE, WIRE_STRUCTURED,
	WIRE_EXTENDED };

/* ----------------------------------------------------------------- silent */

/* Connected, or on the way there, or nobody takes it in: no matter. */
static int
connect_and_forget(int port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		wire_fail("socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) &&
	    errno != EINPROGRESS)
		wire_fail("connect: %s", strerror(errno));
	return fd;
}

/* 64 places, and silent clients who want all of them again and again. */
static void
silent_clients_give_way(void **state)
{
	enum {
		LIMIT = 64,
		SILENT = 200, /* at a time */
		ROUNDS = 15
	};
	struct daemon *d = daemon_new();
	const char *conf;
	char text[256], tcp[16];
	int fds[SILENT], port = wire_free_port("127.0.0.1");
	struct wire *served, *late;
	uint64_t start_ns;
	unsigned before;
	double cpu;

	(void)state;
	snprintf(text, sizeof(text),
	    "[nullbd]\nmax_connections = %d\n"
	    "handshake_seconds = 1\n"
	    "[nullb0]\nsize = 64M\n"
	    "memory_backed = 1\n",
	    LIMIT);
	conf = daemon_config(d, text);
	snprintf(tcp, sizeof(tcp), "%d", port);
	daemon_exec(
	    d, (const char *const[]){ "-c", conf, "-U", d->sock, "--control",
		   d->control, "-p", tcp, "-a", "127.0.0.1", NULL });
	daemon_ready(d, d->sock);
	served = wire_open(d, "", false);
	wire_assert_served(served, 0);
	before = daemon_fds(d);
	/* 3000 of them; those inside are served all the time */
	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < SILENT; i++)
			fds[i] = connect_and_forget(port);
		wire_assert_served(served, (uint64_t)r * 4096);
		assert_in_range(daemon_fds(d), 0, before + LIMIT + 2);
		for (int i = 0; i < SILENT && r < ROUNDS - 1; i++)
			close(fds[i]);
	}
	/* the last ones stay, and their seconds pass: 64 of them at a time */
	start_ns = now_ns();
	cpu = daemon_cpu(d);
	late = wire_tcp("127.0.0.1", port);
	wire_go(late, "", false);
	wire_assert_served(late, 0);
	print_message("a client behind %d silent ones waits %llu ms\n", SILENT,
	    (unsigned long long)(now_ns() - start_ns) / 1000000);
	assert_in_range((now_ns() - start_ns) / 1000000, 0,
	    1000 * (SILENT / LIMIT + 2) + 2000);
	if (!daemon_sanitized(d))
		assert_true(daemon_cpu(d) - cpu < 1);
	assert_in_range(daemon_log_size(d), 0, 200000);
	wire_assert_served(served, 0);
	for (int i = 0; i < SILENT; i++)
		close(fds[i]);
	wire_close(late);
	daemon_settle(d, before);
	wire_close(served);
	daemon_stop(d);
}

/* ------------------------------------------------------------------ resets */

/* How far it comes before it is gone. */
static void
go_as_far_as(struct wire *w, enum wire_mode mode, int stage)
{
	uint8_t buf[256], data[64], *p = buf;
	uint32_t len = put_info(data, "nullb0", NULL, 0);
	bool eof;

	if (stage == 0)
		return;
	p = put32(p, HS_FIXED | HS_NO_ZEROES);
	if (mode)
		p = put_option(p,
		    mode == WIRE_EXTENDED ? OPT_EXTENDED_HEADERS
					  : OPT_STRUCTURED_REPLY,
		    NULL, 0);
	p = put_option(p, OPT_GO, data, len);
	if (mode == WIRE_EXTENDED)
		p = put_ext_request(p, CMD_PAYLOAD_LEN, CMD_WRITE, 1, 0, 4096);
	else
		p = put_request(p, 0, CMD_WRITE, 1, 0, 4096);
	/* all of it at once, cut somewhere */
	wire_try_send(w, buf, (size_t)(p - buf) * (unsigned)stage / 8, 1000);
	if (stage & 1)
		wire_drain(w, buf, 18, 100, &eof);
}

static void
resets_leave_nothing(void **state)
{
	struct daemon *d = daemon_new();
	int port = wire_free_port("127.0.0.1");
	uint64_t rss = 0, rng = wire_seed();
	struct wire *served;
	char tcp[16];
	unsigned fds;

	(void)state;
	snprintf(tcp, sizeof(tcp), "%d", port);
	daemon_exec(d, (const char *const[]){ "-U", d->sock, "--control",
			   d->control, "-p", tcp, "-a", "127.0.0.1",
			   "nullb0:size=64M,memory_backed=1", NULL });
	daemon_ready(d, d->sock);
	served = wire_open(d, "", false);
	fds = daemon_fds(d);
	for (int i = 0; i < 4000; i++) {
		struct wire *w =
		    i % 2 ? wire_tcp("127.0.0.1", port) : wire_unix(d->sock);

		go_as_far_as(w, modes[i % 3], (int)rng_below(&rng, 9));
		wire_reset(w);
		if (i % 100 == 0)
			wire_assert_served(served, 8192);
		if (i == 1000)
			rss = daemon_rss(d);
	}
	daemon_settle(d, fds);
	if (!daemon_sanitized(d))
		assert_in_range(daemon_rss(d), 0, rss + 1 * MiB);
	assert_in_range(daemon_log_size(d), 0, 200000);
	wire_assert_served(served, 8192);
	wire_close(served);
	daemon_stop(d);
}

static void
five_thousand_sessions_leave_nothing(void **state)
{
	struct daemon *d =
	    daemon_start("nullb0:size=64M,memory_backed=1,discard=1", NULL);
	struct wire *served = wire_open(d, "", false);
	unsigned fds = daemon_fds(d);
	uint64_t rss = 0;
	uint8_t got[4096];

	(void)state;
	for (int i = 0; i < 5000; i++) {
		struct wire *w = wire_open_mode(d, "nullb0", modes[i % 3],
		    i % 3 && i % 2 ? WANT_STATUS | WANT_BLOCK_SIZE : 0);

		if (i % 5 == 0)
			assert_int_equal(wire_read(w, got, 0, sizeof(got)), 0);
		wire_request(w, 0, CMD_DISC, 1, 0, 0);
		if (i % 2)
			wire_expect_eof(w);
		wire_close(w);
		if (i == 1000) {
			daemon_settle(d, fds);
			rss = daemon_rss(d);
		}
	}
	daemon_settle(d, fds);
	print_message("4000 more sessions: %lld KiB more\n",
	    ((long long)daemon_rss(d) - (long long)rss) / 1024);
	if (!daemon_sanitized(d))
		assert_in_range(daemon_rss(d), 0, rss + 512 * KiB);
	wire_assert_served(served, 0);
	wire_close(served);
	daemon_stop(d);
}

/* ------------------------------------------------------------------- many */

/* Room for so many descriptors here, and in the daemon that is started. */
static void
need_files(rlim_t n)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_max < n) {
		print_message(
		    "%lu file descriptors are too many\n", (unsigned long)n);
		skip();
	}
	if (r.rlim_cur < n) {
		r.rlim_cur = n;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
	}
}

static void
a_thousand_connections_are_answered(void **state)
{
	enum {
		N = 1000
	};
	static struct wire *w[N];
	static struct answer answer[N];
	struct daemon *d;
	uint8_t *got = xmalloc(N * 4096ul), want[4096];
	uint64_t start_ns;

	(void)state;
	need_files(N + 100);
	d = daemon_start("nullb0:size=64M,memory_backed=1,irqmode=2,"
			 "completion_nsec=300000000,hw_queue_depth=1024",
	    NULL);
	w[0] = wire_open(d, "", false);
	for (uint32_t i = 0; i < N; i++) {
		fill(want, sizeof(want), i);
		wire_request(w[0], 0, CMD_WRITE, i, i * 4096, 4096);
		wire_send(w[0], want, 4096);
	}
	for (uint32_t i = 0; i < N; i++) {
		uint8_t reply[REPLY_SIZE];

		wire_recv(w[0], reply, sizeof(reply));
		assert_int_equal(get32(reply + 4), 0);
	}
	for (size_t i = 1; i < N; i++)
		w[i] = wire_open_mode(d, "", modes[i % 3], 0);
	start_ns = now_ns();
	for (size_t i = 0; i < N; i++) {
		answer_init(&answer[i], w[i], 0, CMD_READ, i, i * 4096, 4096);
		answer[i].got = got + i * 4096;
		wire_request(w[i], 0, CMD_READ, i, i * 4096, 4096);
	}
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(wire_answer(w[i], &answer[i]), 0);
		answer_fini(&answer[i]);
		fill(want, sizeof(want), i);
		assert_same(got + i * 4096, want, 4096, "its own block");
	}
	print_message("1000 connections: all answered after %llu ms\n",
	    (unsigned long long)(now_ns() - start_ns) / 1000000);
	/* they did wait side by side: one by one it is 5 minutes */
	assert_in_range((now_ns() - start_ns) / 1000000, 300, 8000);
	wire_close(NULL);
	daemon_stop(d);
	free(got);
}

/* ------------------------------------------------------------ slow reader */

static int
by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The median of some reads, in ns. */
static uint64_t
median_read_ns(struct wire *w)
{
	enum {
		N = 400
	};
	uint64_t took[N];
	uint8_t got[4096];

	for (size_t i = 0; i < N; i++) {
		uint64_t start_ns = now_ns();

		assert_int_equal(wire_read(w, got, i * 4096, 4096), 0);
		took[i] = now_ns() - start_ns;
	}
	qsort(took, N, sizeof(*took), by_value);
	return took[N / 2];
}

/* Another's median while it is there, as parts of a hundred of that alone. */
static uint64_t
percent_beside_slow_reader(struct daemon *d, enum wire_mode mode)
{
	enum {
		ROUNDS = 9
	};
	struct wire *w = wire_open_mode(d, "", mode, 0);
	uint64_t alone[ROUNDS], beside[ROUNDS];
	uint8_t junk[1024];

	for (size_t r = 0; r < ROUNDS; r++) {
		struct wire *slow;
		bool eof;

		alone[r] = median_read_ns(w);
		slow = wire_open_mode(d, "", mode, 0);
		/* 64 MiB in its queue, of which it reads 1 KiB now and then */
		for (uint64_t i = 0; i < 64; i++)
			wire_request(slow, 0, CMD_READ, i, 0, 1 * MiB);
		wire_drain(slow, junk, sizeof(junk), 1000, &eof);
		assert_false(eof);
		beside[r] = median_read_ns(w);
		wire_drain(slow, junk, sizeof(junk), 1000, &eof);
		assert_false(eof);
		wire_close(slow);
	}
	wire_close(w);
	qsort(alone, ROUNDS, sizeof(*alone), by_value);
	qsort(beside, ROUNDS, sizeof(*beside), by_value);
	print_message("%s: alone %llu ns, beside it %llu ns\n",
	    wire_mode_name(mode), (unsigned long long)alone[ROUNDS / 2],
	    (unsigned long long)beside[ROUNDS / 2]);
	return beside[ROUNDS / 2] * 100 / alone[ROUNDS / 2];
}

/*
 * A few percent are noise; what waits for the other, or polls for it, takes
 * several times as long.
 */
static void
a_slow_reader_slows_nobody(void **state)
{
	struct daemon *d = daemon_start(
	    "--workers", "1", "nullb0:size=64M,memory_backed=1", NULL);
	uint8_t *data = xmalloc(2 * MiB);

	(void)state;
	fill(data, 2 * MiB, 1);
	wire_write(wire_open(d, "", false), data, 0, 2 * MiB);
	free(data);
	for (size_t m = 0; m < NR(modes); m++) {
		int try = 0;

		while (percent_beside_slow_reader(d, modes[m]) > 150)
			if (++try == 4)
				wire_fail("%s: a slow reader slows others",
				    wire_mode_name(modes[m]));
	}
	daemon_stop(d);
}

/* And while nobody else is there nothing is done for it. */
static void
a_slow_reader_costs_nothing(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M", NULL);

	(void)state;
	for (size_t m = 0; m < NR(modes); m++) {
		struct wire *w = wire_open_mode(d, "", modes[m], 0);
		double cpu;

		for (uint64_t i = 0; i < 64; i++)
			wire_request(w, 0, CMD_READ, i, 0, 1 * MiB);
		sleep_ms(300);
		cpu = daemon_cpu(d);
		for (int i = 0; i < 10; i++) { /* a KiB, a tenth of a second */
			uint8_t junk[1024];

			wire_recv(w, junk, sizeof(junk));
			sleep_ms(100);
		}
		if (daemon_cpu(d) - cpu > 0.25)
			wire_fail("%s: it takes %.2f s of a CPU",
			    wire_mode_name(modes[m]), daemon_cpu(d) - cpu);
		wire_close(w);
	}
	daemon_stop(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N23", "3000 silent clients give way",
		    silent_clients_give_way),
		CASE("N8 N163", "4000 resets leave nothing behind",
		    resets_leave_nothing),
		CASE("N8 N156", "5000 sessions leave nothing behind",
		    five_thousand_sessions_leave_nothing),
		CASE("N137 N160", "1000 connections with a request each",
		    a_thousand_connections_are_answered),
		CASE("N165", "a slow reader slows nobody",
		    a_slow_reader_slows_nobody),
		CASE("N165", "and costs nothing", a_slow_reader_costs_nothing),
	};

	return cmocka_run_group_tests_name("storms", tests, NULL, NULL);
}
