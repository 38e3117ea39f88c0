/* SPDX-License-Identifier: MIT */
/*
 * Who is connected, as the control socket tells it, and how one is kicked
 * without a trace in the others.
 */
#include "../lib/wire.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NR(a)   (sizeof(a) / sizeof(*(a)))
#define DEVICE  "nullb0:size=64M,memory_backed=1"
#define MAX_ALL 65536

/* All that "clients" answers. */
static const char *
ask_clients(struct daemon *d)
{
	static char answer[MAX_ALL];

	if (!daemon_ask(d, "{\"command\":\"clients\"}", answer, MAX_ALL) ||
	    !strstr(answer, "\"ok\":true"))
		wire_fail("clients: %s", answer);
	return answer;
}

/* How often `text` is in it. */
static unsigned
count(const char *answer, const char *text)
{
	unsigned nr = 0;

	while ((answer = strstr(answer, text)) != NULL) {
		answer += strlen(text);
		nr++;
	}
	return nr;
}

/* Wait until `text` is in there so many times. */
static void
wait_for(struct daemon *d, const char *text, unsigned nr)
{
	for (int i = 0; i < 1000; i++) {
		if (count(ask_clients(d), text) == nr)
			return;
		sleep_ms(5);
	}
	wire_fail("not %u times '%s': %s", nr, text, ask_clients(d));
}

/* The id of the n-th one, from 0 on; 0: there is none. */
static unsigned
id_of(struct daemon *d, unsigned n)
{
	const char *at = ask_clients(d);

	for (at = strstr(at, "\"id\":"); at != NULL && n > 0; n--)
		at = strstr(at + 1, "\"id\":");
	return at != NULL ? (unsigned)strtoul(at + 5, NULL, 10) : 0;
}

static bool
kick(struct daemon *d, unsigned id)
{
	char request[64], answer[256], want[64];

	snprintf(
	    request, sizeof(request), "{\"command\":\"kick\",\"id\":%u}", id);
	if (!daemon_ask(d, request, answer, sizeof(answer)))
		wire_fail("kick: no answer");
	if (strstr(answer, "\"ok\":true"))
		return true;
	snprintf(want, sizeof(want), "\"kick: %u: no such client\"", id);
	if (!strstr(answer, "\"ENOENT\"") || !strstr(answer, want))
		wire_fail("kick: %s", answer);
	return false;
}

static void
tells_who_is_connected(void **state)
{
	struct daemon *d = daemon_start("--workers", "2", "-p", "0", DEVICE,
	    "b:size=1M,export_names=alias", NULL);
	char who[96];
	struct wire *w[3];

	(void)state;
	assert_int_equal(count(ask_clients(d), "\"id\":"), 0);
	w[0] = wire_unix(d->sock);
	wire_greeting(w[0]);
	wait_for(d, "\"id\":", 1);
	snprintf(who, sizeof(who), "\"peer\":\"unix\",\"pid\":%d,\"uid\":%u,",
	    (int)getpid(), getuid());
	assert_int_equal(count(ask_clients(d), who), 1);
	assert_int_equal(
	    count(ask_clients(d), "\"export\":null,\"loop\":null,"
				  "\"phase\":\"handshake\",\"requests\":0,"),
	    1);

	/* they spread over the loops; what they agreed on is known */
	w[1] = wire_open(d, "", true);
	w[2] = wire_open(d, "alias", false);
	wait_for(d, "\"phase\":\"transmission\"", 2);
	assert_int_equal(count(ask_clients(d), "\"loop\":0,"), 1);
	assert_int_equal(count(ask_clients(d), "\"loop\":1,"), 1);
	assert_int_equal(count(ask_clients(d), "\"export\":\"nullb0\""), 1);
	assert_int_equal(count(ask_clients(d), "\"export\":\"b\""), 1);
	assert_int_equal(count(ask_clients(d),
			     "\"features\":[\"no_zeroes\",\"block_size\"]"),
	    1);
	assert_int_equal(
	    count(ask_clients(d), "\"features\":[\"no_zeroes\"]"), 1);

	for (int i = 0; i < 3; i++)
		wire_close(w[i]);
	wait_for(d, "\"id\":", 0);
	daemon_stop(d);
}

static void
counts_requests_that_wait(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M,irqmode=2,"
					"hw_queue_depth=4,"
					"completion_nsec=300000000",
	    NULL);
	struct wire *w = wire_open(d, "", false);
	struct op ops[8] = { 0 };
	uint8_t *got = xmalloc(8 * 512);

	(void)state;
	for (size_t i = 0; i < NR(ops); i++) {
		ops[i].type = CMD_READ;
		ops[i].offset = i * MiB;
		ops[i].length = 512;
		ops[i].got = got + i * 512;
	}
	batch_send(w, ops, NR(ops));
	wait_for(d, "\"requests\":8,", 1); /* with or without a tag */
	batch_collect(w, ops, NR(ops));
	batch_assert_ok(ops, NR(ops));
	wait_for(d, "\"requests\":0,", 1);
	free(got);
	daemon_stop(d);
}

/* In each phase, with requests in flight and with answers that nobody reads. */
static void
kicks_whatever_a_client_does(void **state)
{
	struct daemon *d = daemon_start("--workers", "2", DEVICE,
	    "slow:size=64M,irqmode=2,completion_nsec=3600000000000", NULL);
	struct wire *stays = wire_open(d, "", false), *w[6];
	uint8_t *buf = xmalloc(64 * REQUEST_SIZE), *p = buf;
	unsigned id[7], mine = id_of(d, 0), fds;

	(void)state;
	wire_assert_served(stays, 0);
	fds = daemon_fds(d);
	w[0] = wire_unix(d->sock); /* does not even read the greeting */
	w[1] = wire_unix(d->sock);
	wire_greeting(w[1]);
	wire_flags(w[1], 3);
	wire_send(w[1], "IHAVE", 5);   /* half an option */
	w[2] = wire_open(d, "", true); /* idle */
	w[3] = wire_open(d, "", false);
	wire_request(w[3], 0, CMD_WRITE, 1, 0, 1 * MiB);
	wire_send(w[3], buf, 100); /* half a payload */
	w[4] = wire_open(d, "slow", false);
	wire_request(w[4], 0, CMD_READ, 1, 0, 512); /* for an hour */
	w[5] = wire_open(d, "", false);
	for (uint64_t i = 0; i < 64; i++)
		p = put_request(p, 0, CMD_READ, i, 0, 1 * MiB);
	for (int i = 0; i < 4; i++) /* reads that are not read */
		wire_try_send(w[5], buf, 64 * REQUEST_SIZE, 50);
	wait_for(d, "\"id\":", 7);
	while (daemon_stat(d, "slow", 9) < 1)
		daemon_assert_alive(d); /* the device has it */
	for (unsigned n = 0; n < 7; n++)
		id[n] = id_of(d, n);
	for (unsigned n = 0; n < 7; n++)
		if (id[n] != mine)
			assert_true(kick(d, id[n]));
	for (size_t i = 0; i < NR(w); i++) {
		bool eof = false;

		/* what was on its way may still come, then it ends */
		for (int k = 0; k < 1000 && !eof; k++)
			wire_drain(w[i], buf, 64 * REQUEST_SIZE, 5000, &eof);
		if (!eof)
			wire_fail("client %zu is still connected", i);
	}
	/* the one with a bio that takes an hour is a ghost until then */
	wait_for(d, "\"id\":", 2);
	assert_int_equal(count(ask_clients(d), "\"phase\":\"closing\""), 1);
	for (size_t i = 0; i < NR(w); i++)
		wire_close(w[i]);
	daemon_settle(d, fds + 1);
	wire_assert_served(stays, 4096);
	wire_close(stays);
	wait_for(d, "\"id\":", 1);
	free(buf);
	daemon_stop(d);
}

static void
refuses_to_kick_nobody(void **state)
{
	struct daemon *d = daemon_start(DEVICE, NULL);
	struct wire *w = wire_open(d, "", false);
	unsigned id = id_of(d, 0);

	(void)state;
	assert_false(kick(d, id + 1));
	assert_false(kick(d, UINT32_MAX));
	wire_assert_served(w, 0);
	wire_close(w);
	wait_for(d, "\"id\":", 0);
	assert_false(kick(d, id));
	daemon_stop(d);
}

/*
 * A process that comes, reads and goes, again and again; whatever happens to
 * its connection is fine.
 */
_Noreturn static void
come_and_go(struct daemon *d, uint64_t seed)
{
	uint8_t out[128], in[REPLY_SIZE + 4096], *p;

	alarm(20);
	for (;;) {
		struct wire *w = wire_unix(d->sock);
		uint64_t nr = rng_below(&seed, 40);
		bool eof;

		wire_drain(w, in, 18, 2000, &eof);
		p = put32(out, 3);
		p = put_option(p, OPT_EXPORT_NAME, "", 0);
		wire_try_send(w, out, (size_t)(p - out), 500);
		if (!eof)
			wire_drain(w, in, 10, 2000, &eof);
		for (uint64_t i = 0; i < nr && !eof; i++) {
			p = put_request(out, 0, CMD_READ, i, 0, 4096);
			wire_try_send(w, out, (size_t)(p - out), 500);
			wire_drain(w, in, sizeof(in), 2000, &eof);
		}
		wire_close(w);
	}
}

static void
disturbs_nobody_else(void **state)
{
	struct daemon *d = daemon_start(
	    "--workers", "3", "nullb0:size=64M,memory_backed=1", NULL);
	struct wire *w[3];
	unsigned mine[3], nr_kicked = 0;
	uint64_t end = now_ns() + 2000000000, seed = wire_seed();
	unsigned fds;
	pid_t child[4];

	(void)state;
	for (int i = 0; i < 3; i++) {
		w[i] = wire_open(d, "", false);
		mine[i] = id_of(d, (unsigned)i);
	}
	fds = daemon_fds(d);
	fflush(NULL);
	for (size_t i = 0; i < NR(child); i++) {
		child[i] = fork();
		if (child[i] == 0)
			come_and_go(d, seed + i);
	}
	while (now_ns() < end) {
		unsigned id = id_of(d, 3 + (unsigned)rng_below(&seed, 4));

		if (id != 0 && id != mine[0] && id != mine[1] && id != mine[2])
			nr_kicked += kick(d, id);
		wire_assert_served(w[nr_kicked % 3], 4096 * (seed % 1024));
	}
	print_message("%u were kicked\n", nr_kicked);
	assert_true(nr_kicked > 20);
	for (size_t i = 0; i < NR(child); i++)
		kill(child[i], SIGKILL);
	for (size_t i = 0; i < NR(child); i++)
		waitpid(child[i], NULL, 0);
	wait_for(d, "\"id\":", 3);
	daemon_settle(d, fds);
	for (int i = 0; i < 3; i++)
		wire_assert_served(w[i], 0);
	daemon_stop(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("clients", "tells who is connected",
		    tells_who_is_connected),
		CASE("clients", "counts requests that wait",
		    counts_requests_that_wait),
		CASE("clients N165", "kicks a client whatever it does",
		    kicks_whatever_a_client_does),
		CASE("clients", "refuses to kick nobody",
		    refuses_to_kick_nobody),
		CASE("clients", "a kick disturbs nobody else",
		    disturbs_nobody_else),
	};

	return cmocka_run_group_tests_name("clients", tests, NULL, NULL);
}
