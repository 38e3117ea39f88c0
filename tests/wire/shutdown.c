/* SPDX-License-Identifier: MIT */
/*
 * The daemon's own end: with requests in flight, with clients that negotiate,
 * write, read or do nothing.  daemon_ended() sees to the exit status, the time
 * and the sockets.
 */
#include "../lib/wire.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NR(a)  (sizeof(a) / sizeof(*(a)))
#define DEVICE "nullb0:size=64M,memory_backed=1"

static void
terminate(struct daemon *d)
{
	kill(d->pid, SIGTERM);
}

static void
make_reads(struct op *ops, size_t n, uint8_t *got)
{
	memset(ops, 0, n * sizeof(*ops));
	for (size_t i = 0; i < n; i++) {
		ops[i].type = CMD_READ;
		ops[i].offset = i * 64 * KiB;
		ops[i].length = 4096;
		ops[i].got = got + i * 4096;
	}
}

/* Wait until the requests are the device's: one was or is in flight. */
static void
wait_until_taken(struct daemon *d)
{
	for (int i = 0; i < 500; i++) {
		if (daemon_stat(d, "nullb0", 9) > 0 ||
		    daemon_stat(d, "nullb0", 1) > 0)
			return;
		daemon_assert_alive(d);
		sleep_ms(10);
	}
	wire_fail("the requests do not arrive");
}

static void
ends_when_idle(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct daemon *d = daemon_start(DEVICE, NULL);
		struct wire *w = NULL;

		if (i)
			w = wire_open(d, "", false);
		if (i > 1)
			wire_assert_served(wire_open(d, "", false), 0);
		terminate(d);
		if (w)
			wire_expect_eof(w);
		assert_in_range(daemon_ended(d), 0, 2000);
	}
}

static void
ends_on_sigint_too(void **state)
{
	struct daemon *d = daemon_start(DEVICE, NULL);

	(void)state;
	kill(d->pid, SIGINT);
	assert_int_equal(daemon_wait(d, DAEMON_STOP_MS), 0);
	assert_int_not_equal(access(d->sock, F_OK), 0);
	assert_int_not_equal(access(d->control, F_OK), 0);
}

/* Each is finished or answered ESHUTDOWN, then the connection ends. */
static void
answers_what_is_in_flight(void **state)
{
	static const char *const specs[] = {
		"nullb0:size=64M,memory_backed=1,irqmode=0",
		"nullb0:size=64M,memory_backed=1,irqmode=1",
		"nullb0:size=64M,memory_backed=1,irqmode=2,"
		"completion_nsec=300000000",
		"nullb0:size=64M,memory_backed=1,irqmode=2,hw_queue_depth=1,"
		"completion_nsec=20000000",
		"nullb0:size=64M,memory_backed=1,irqmode=2,"
		"completion_nsec=3600000000000",
	};
	struct op ops[128];
	uint8_t *got = xmalloc(NR(ops) * 4096);

	(void)state;
	for (size_t s = 0; s < NR(specs); s++) {
		struct daemon *d = daemon_start(specs[s], NULL);
		struct wire *w = wire_open(d, "", false);
		size_t finished = 0, refused = 0;
		int ms;

		make_reads(ops, NR(ops), got);
		batch_send(w, ops, NR(ops));
		wait_until_taken(d);
		terminate(d);
		batch_collect_eof(w, ops, NR(ops));
		for (size_t i = 0; i < NR(ops); i++) {
			if (!ops[i].answered)
				wire_fail("%s: request %zu is not answered",
				    specs[s], i);
			if (ops[i].error && ops[i].error != E_SHUTDOWN)
				wire_fail(
				    "%s: error %u", specs[s], ops[i].error);
			finished += !ops[i].error;
			refused += ops[i].error == E_SHUTDOWN;
		}
		ms = daemon_ended(d);
		print_message("%zu finished, %zu refused, exit %d ms later\n",
		    finished, refused, ms);
	}
	free(got);
}

static void
refuses_what_comes_later(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M,memory_backed=1,"
					"irqmode=2,completion_nsec=1000000000",
	    NULL);
	struct wire *w = wire_open(d, "", false);
	uint8_t got[4096 * 4], buf[REQUEST_SIZE + 512] = { 0 };
	struct op ops[4];
	bool eof;

	(void)state;
	make_reads(ops, 4, got);
	batch_send(w, ops, 4);
	wait_until_taken(d);
	terminate(d);
	sleep_ms(50);
	/* the connection is being ended: refused, or already deaf */
	put_request(buf, 0, CMD_WRITE, 1000, 0, 512);
	wire_try_send(w, buf, sizeof(buf), 500);
	for (;;) {
		uint8_t head[REPLY_SIZE];

		if (wire_drain(w, head, REPLY_SIZE, 4000, &eof) < REPLY_SIZE)
			break;
		assert_int_equal(get32(head), MAGIC_SIMPLE);
		if (get64(head + 8) == 1000)
			assert_int_equal(get32(head + 4), E_SHUTDOWN);
		else if (!get32(head + 4))
			wire_recv(w, got, 4096);
		else
			assert_int_equal(get32(head + 4), E_SHUTDOWN);
	}
	assert_true(eof);
	daemon_ended(d);
}

/* N21 is a SHOULD: an end instead of an answer is borne, another is not. */
static void
refuses_options_that_come_later(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M,irqmode=2,"
					"completion_nsec=1000000000",
	    NULL);
	struct wire *busy = wire_open(d, "", false);
	struct wire *a = wire_unix(d->sock), *b = wire_unix(d->sock);
	uint8_t option[OPT_HEADER], head[OPT_REPLY_HEADER], got[4096];
	struct op op;
	bool eof;

	(void)state;
	wire_greeting(a);
	wire_flags(a, 3);
	wire_assert_options_in_step(a);
	wire_greeting(b);
	wire_flags(b, 3);
	wire_assert_options_in_step(b);
	make_reads(&op, 1, got);
	batch_send(busy, &op, 1);
	wait_until_taken(d);
	terminate(d);
	sleep_ms(50);
	put_option(option, OPT_LIST, NULL, 0);
	wire_try_send(a, option, sizeof(option), 500);
	if (wire_drain(a, head, sizeof(head), 4000, &eof) == sizeof(head))
		assert_int_equal(get32(head + 12), REP_ERR_SHUTDOWN);
	else
		assert_true(eof);
	print_message(
	    "LIST while shutting down: %s\n", eof ? "the end" : "SHUTDOWN");
	put_option(option, OPT_ABORT, NULL, 0);
	wire_try_send(b, option, sizeof(option), 500);
	if (wire_drain(b, head, sizeof(head), 4000, &eof) == sizeof(head))
		assert_int_equal(get32(head + 12), REP_ACK);
	else
		assert_true(eof);
	daemon_ended(d);
}

/* Whoever is connected, whatever he is doing: it ends in time. */
static void
ends_whatever_its_clients_do(void **state)
{
	struct daemon *d = daemon_start(
	    "--workers", "2", "nullb0:size=64M,memory_backed=1", NULL);
	struct wire *w;
	uint8_t *buf = xmalloc(64 * REQUEST_SIZE), *p = buf;

	(void)state;
	wire_unix(d->sock); /* does not even read the greeting */
	w = wire_unix(d->sock);
	wire_greeting(w);
	wire_send(w, "\0\0", 2); /* half its flags */
	w = wire_unix(d->sock);
	wire_greeting(w);
	wire_flags(w, 3);
	wire_send(w, "IHAVE", 5);    /* half an option */
	w = wire_open(d, "", false); /* idle */
	w = wire_open(d, "", false);
	wire_send(w, "\x25\x60", 2); /* half a header */
	w = wire_open(d, "", false);
	wire_request(w, 0, CMD_WRITE, 1, 0, 1 * MiB);
	wire_send(w, buf, 100); /* half a payload */
	w = wire_open(d, "", false);
	for (uint64_t i = 0; i < 64; i++)
		p = put_request(p, 0, CMD_READ, i, 0, 1 * MiB);
	for (int i = 0; i < 20; i++) /* reads that are not read */
		wire_try_send(w, buf, 64 * REQUEST_SIZE, 50);
	free(buf);
	print_message("it takes %d ms\n", daemon_stop(d));
}

/* A write that was answered before is there; the others are whole or not. */
static void
writes_in_flight_are_whole_or_refused(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M,memory_backed=1,"
					"irqmode=2,completion_nsec=100000000",
	    NULL);
	struct wire *w = wire_open(d, "", false);
	uint8_t *data = xmalloc(64 * 4096);
	struct op ops[64] = { { 0 } };

	(void)state;
	fill(data, 64 * 4096, 1);
	for (uint32_t i = 0; i < 64; i++) {
		ops[i].type = CMD_WRITE;
		ops[i].offset = i * 64 * KiB;
		ops[i].length = 4096;
		ops[i].data = data + i * 4096;
	}
	batch_send(w, ops, 64);
	terminate(d);
	batch_collect_eof(w, ops, 64);
	for (size_t i = 0; i < 64; i++)
		if (ops[i].answered && ops[i].error)
			assert_int_equal(ops[i].error, E_SHUTDOWN);
	daemon_ended(d);
	free(data);
}

static void
a_second_signal_ends_at_once(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M,irqmode=2,"
					"completion_nsec=3600000000000",
	    NULL);
	struct wire *w = wire_open(d, "", false);
	uint64_t start_ns;

	(void)state;
	wire_request(w, 0, CMD_READ, 1, 0, 512);
	wait_until_taken(d);
	start_ns = now_ns();
	terminate(d);
	while (daemon_alive(d) && now_ns() - start_ns < 900000000) {
		sleep_ms(100); /* the same moment would be the same signal */
		terminate(d);
	}
	assert_int_equal(daemon_wait(d, 1000), 1);
	assert_in_range((now_ns() - start_ns) / 1000000, 0, 1000);
	assert_int_not_equal(access(d->sock, F_OK), 0);
}

/* Two at once, and what is in flight: is it finished for all that? */
static bool
finishes_after_two(void)
{
	struct daemon *d = daemon_start("nullb0:size=64M,irqmode=2,"
					"completion_nsec=300000000",
	    NULL);
	struct wire *w = wire_open(d, "", false);
	struct op op;
	uint8_t got[4096];

	make_reads(&op, 1, got);
	batch_send(w, &op, 1);
	wait_until_taken(d);
	terminate(d);
	kill(d->pid, SIGINT);
	batch_collect_eof(w, &op, 1);
	return daemon_wait(d, DAEMON_STOP_MS) == 0 && op.answered && !op.error;
}

/* As timeout(1) sends them.  A machine that is busy may part them for once. */
static void
two_signals_of_a_moment_are_one(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		if (finishes_after_two())
			return;
	wire_fail("what was in flight is dropped");
}

/* Half an option gets the time that a request in flight gets, not all. */
static void
half_an_option_holds_nobody_up(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M", NULL);
	struct wire *w = wire_unix(d->sock);
	uint64_t start_ns;

	(void)state;
	wire_greeting(w);
	wire_flags(w, HS_FIXED);
	wire_send(w, "IHAVEOPT", 8);
	sleep_ms(50);
	start_ns = now_ns();
	terminate(d);
	wire_expect_eof(w);
	daemon_ended(d);
	assert_in_range((now_ns() - start_ns) / 1000000, 0, 3500);
}

static void
accepts_nobody_while_ending(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M,irqmode=2,"
					"completion_nsec=500000000",
	    NULL);
	struct wire *w = wire_open(d, "", false);
	uint8_t buf[18];

	(void)state;
	wire_request(w, 0, CMD_READ, 1, 0, 512);
	wait_until_taken(d);
	terminate(d);
	sleep_ms(100);
	/* refused, or accepted and shut again; but not served */
	if (daemon_alive(d) && wire_can_connect(d->sock)) {
		struct wire *late = wire_unix(d->sock);
		bool eof;

		wire_drain(late, buf, sizeof(buf), 4000, &eof);
		if (!eof) {
			wire_flags(late, 3);
			wire_expect_eof(late);
		}
	}
	daemon_ended(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N162", "ends when idle", ends_when_idle),
		CASE("N162", "ends on SIGINT too", ends_on_sigint_too),
		CASE("N162", "finishes or refuses what is in flight",
		    answers_what_is_in_flight),
		CASE("N162", "refuses requests that come later",
		    refuses_what_comes_later),
		CASE("N21", "refuses options that come later",
		    refuses_options_that_come_later),
		CASE("N21 N162", "half an option holds nobody up",
		    half_an_option_holds_nobody_up),
		CASE("N162 N165", "ends in time whatever its clients do",
		    ends_whatever_its_clients_do),
		CASE("N162 N139", "writes in flight are whole or refused",
		    writes_in_flight_are_whole_or_refused),
		CASE("N162", "a second signal ends it at once",
		    a_second_signal_ends_at_once),
		CASE("N162", "two signals of a moment are one",
		    two_signals_of_a_moment_are_one),
		CASE("N162", "serves nobody new while it ends",
		    accepts_nobody_while_ending),
	};

	return cmocka_run_group_tests_name("shutdown", tests, NULL, NULL);
}
