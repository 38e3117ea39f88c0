/* SPDX-License-Identifier: MIT */
/*
 * A daemon among clients of every kind for as long as you like: soak SECONDS.
 *
 * Each client is a process, which connects, does something and leaves, again
 * and again.  Those that are honest own a region of a device and know what is
 * in it; the others send garbage, halves, promises, or do not read.  At the
 * end nobody has seen a fault, the daemon has its files and its memory back
 * where they were, exits with 0, and its sanitizer has nothing to say.
 *
 * Memory: compared are the moments at which the devices are empty and nobody
 * is connected, after a tenth of the time and at the end.  What an allocator
 * keeps differs from time to time: GROWTH bytes are allowed, and GROWTH_SAN
 * under a sanitizer, which keeps what is freed (ASan's quarantine, the shadow
 * of TSan).  A leak of a hundred bytes a session exceeds it in ten minutes.
 */
#include "../lib/wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NR(a)      (sizeof(a) / sizeof(*(a)))
#define BLOCK      4096u
#define REGION     (1 * MiB) /* of an honest client */
#define BLOCKS     (REGION / BLOCK)
#define MAX_OPS    64u
#define NR_HONEST  6u /* on each kind of device, three */
#define NR_ODD     8u
#define GROWTH     (8 * MiB)
#define GROWTH_SAN (192 * MiB)
#define SIZE       (64 * MiB)

static const char *const devices[] = { "none", "soft", "timer" };

/* ------------------------------------------------------------ the clients */

struct client {
	struct daemon d; /* where it is, not ours */
	int port, metrics;
	uint64_t rng;
	const char *device;
	uint64_t base; /* of its region */
	uint8_t data[REGION];
	bool used[BLOCKS];
	uint8_t bytes[MAX_OPS * 32 * BLOCK]; /* of the requests of a batch */
	unsigned nr_sessions;
};

static bool
one_in(struct client *c, uint64_t n)
{
	return rng_below(&c->rng, n) == 0;
}

static struct wire *
enter(struct client *c, unsigned want)
{
	static const enum wire_mode modes[] = { WIRE_SIMPLE, WIRE_STRUCTURED,
		WIRE_EXTENDED };
	enum wire_mode mode = modes[rng_below(&c->rng, NR(modes))];

	if (mode == WIRE_SIMPLE)
		want &= WANT_BLOCK_SIZE;
	return wire_open_mode(&c->d, c->device, mode, want);
}

/* Politely, or not; the other side may be gone, or take nothing. */
static void
leave(struct client *c, struct wire *w)
{
	uint8_t disc[EXT_REQUEST_SIZE];
	size_t n = REQUEST_SIZE;

	put_request(disc, 0, CMD_DISC, 0, 0, 0);
	if (w->mode == WIRE_EXTENDED) {
		put_ext_request(disc, 0, CMD_DISC, 0, 0, 0);
		n = EXT_REQUEST_SIZE;
	}
	switch (rng_below(&c->rng, 3)) {
	case 0: wire_try_send(w, disc, n, 0); /* fall through */
	case 1: wire_close(w); return;
	default: wire_reset(w);
	}
}

/* One request to the own region, and what it does to it. */
static void
make_op(struct client *c, struct op *op, uint8_t *bytes)
{
	uint64_t n = 1 + rng_below(&c->rng, 16);
	uint64_t b = rng_below(&c->rng, BLOCKS - n + 1);
	size_t len = n * BLOCK;

	*op = (struct op){ .offset = c->base + b * BLOCK, .length = len };
	switch (rng_below(&c->rng, 6)) {
	case 0:
		op->type = CMD_TRIM;
		memset(c->data + b * BLOCK, 0, len);
		memset(c->used + b, 0, n);
		return;
	case 1:
		op->type = CMD_WRITE_ZEROES;
		op->flags = one_in(c, 2) ? CMD_NO_HOLE : 0;
		memset(c->data + b * BLOCK, 0, len);
		return;
	case 2:
	case 3:
		op->type = CMD_WRITE;
		op->flags = one_in(c, 8) ? CMD_FUA : 0;
		fill(c->data + b * BLOCK, len, rng_next(&c->rng));
		memset(c->used + b, 1, n);
		memcpy(bytes, c->data + b * BLOCK, len);
		op->data = bytes;
		return;
	default:
		op->type = CMD_READ;
		memcpy(bytes, c->data + b * BLOCK, len);
		op->data = bytes; /* what it is to bring */
		op->got = bytes + len;
	}
}

static size_t
make_batch(struct client *c, struct op *ops)
{
	size_t n = 1 + rng_below(&c->rng, MAX_OPS);

	for (size_t i = 0; i < n; i++)
		make_op(c, &ops[i], c->bytes + i * 32 * BLOCK);
	return n;
}

static void
check_batch(const struct op *ops, size_t n)
{
	batch_assert_ok(ops, n);
	for (size_t i = 0; i < n; i++)
		if (ops[i].type == CMD_READ)
			assert_same(ops[i].got, ops[i].data, ops[i].length,
			    "a read of a batch");
}

/* A block that has data is none of a hole. */
static void
check_status(struct client *c, struct wire *w)
{
	uint64_t at = c->base, end = c->base + REGION;

	while (at < end) {
		uint64_t from = at;
		struct answer a;

		assert_int_equal(wire_status(w, 0, at, end - at, &a), 0);
		for (size_t i = 0; i < a.status[0].nr; i++) {
			const struct extent *e = &a.status[0].extent[i];

			for (uint64_t b = 0; b < e->length && at < end;
			     b += BLOCK, at += BLOCK)
				if (e->state & STATE_HOLE &&
				    c->used[(at - c->base) / BLOCK] &&
				    !all_zero(c->data + (at - c->base), BLOCK))
					wire_fail("data are told to be a hole");
		}
		answer_fini(&a);
		if (at == from)
			wire_fail("BLOCK_STATUS tells nothing");
	}
}

/* Nobody knows what is there: from now on it is known. */
static void
rewrite(struct client *c, struct wire *w)
{
	fill(c->data, REGION, rng_next(&c->rng));
	memset(c->used, 1, sizeof(c->used));
	assert_int_equal(wire_write(w, c->data, c->base, REGION), 0);
}

static void
honest_session(struct client *c)
{
	static uint8_t got[REGION];
	struct op ops[MAX_OPS];
	struct wire *w = enter(c, (one_in(c, 2) ? WANT_STATUS : 0) |
				      (one_in(c, 2) ? WANT_BLOCK_SIZE : 0));
	size_t n;

	if (!c->nr_sessions)
		rewrite(c, w);
	for (uint64_t i = rng_below(&c->rng, 8); i > 0; i--) {
		n = make_batch(c, ops);
		batch_run(w, ops, n, one_in(c, 4) ? 5000 : 0);
		check_batch(ops, n);
	}
	if (w->nr_contexts)
		check_status(c, w);
	assert_int_equal(wire_read(w, got, c->base, REGION), 0);
	assert_same(got, c->data, REGION, "the region");
	if (!one_in(c, 6)) {
		leave(c, w);
		return;
	}
	/* with all in flight; what becomes of it nobody knows */
	n = make_batch(c, ops);
	batch_send(w, ops, n);
	leave(c, w);
	sleep_ms(300); /* what was submitted is done by then */
	w = enter(c, 0);
	rewrite(c, w);
	leave(c, w);
}

static void
send_garbage(struct client *c)
{
	static uint8_t junk[64 * KiB];
	struct wire *w = one_in(c, 2) ? wire_unix(c->d.sock)
				      : wire_tcp("127.0.0.1", c->port);
	bool eof;

	fill(junk, sizeof(junk), rng_next(&c->rng));
	if (one_in(c, 2)) /* its flags are good, then */
		put32(junk, HS_FIXED | HS_NO_ZEROES);
	if (one_in(c, 2))
		put64(junk + 4, MAGIC_IHAVEOPT);
	wire_try_send(w, junk, rng_below(&c->rng, sizeof(junk)), 50);
	wire_drain(w, junk, sizeof(junk), 20, &eof);
	leave(c, w);
}

/* A whole session, with some of its bytes changed. */
static void
send_a_mutant(struct client *c)
{
	static struct recorded r;
	static uint8_t junk[64 * KiB];
	struct wire *w = wire_unix(c->d.sock);
	bool eof;

	recorded_make(&r, "scratch");
	for (uint64_t i = rng_below(&c->rng, 4); i > 0; i--)
		r.bytes[rng_below(&c->rng, r.len)] = (uint8_t)rng_next(&c->rng);
	wire_try_send(w, r.bytes, rng_below(&c->rng, r.len + 1), 100);
	wire_drain(w, junk, sizeof(junk), 20, &eof);
	leave(c, w);
}

/* A promise of much, of which little comes. */
static void
send_half_requests(struct client *c)
{
	struct wire *w = enter(c, 0);
	uint8_t junk[8192] = { 0 };
	uint32_t n = (uint32_t)rng_below(&c->rng, 40 * MiB) + 1;

	c->device = "scratch";
	for (int i = 0; i < 3; i++)
		wire_request(w, 0, CMD_READ, (uint64_t)i, 0, BLOCK);
	wire_request(w, 0, CMD_WRITE, 9, 0, n);
	wire_try_send(w, junk,
	    rng_below(&c->rng, n < sizeof(junk) ? n : sizeof(junk)), 50);
	sleep_ms((int)rng_below(&c->rng, 100));
	leave(c, w);
}

static void
read_nothing(struct client *c)
{
	struct wire *w = enter(c, WANT_STATUS);
	uint8_t buf[4096];
	bool eof;

	for (uint64_t i = 0; i < 100; i++) {
		uint8_t request[EXT_REQUEST_SIZE];
		size_t n =
		    w->mode == WIRE_EXTENDED ? EXT_REQUEST_SIZE : REQUEST_SIZE;
		uint64_t at = rng_below(&c->rng, 8) * MiB;

		if (w->mode == WIRE_EXTENDED)
			put_ext_request(request, 0, CMD_READ, i, at, 1 * MiB);
		else
			put_request(request, 0, CMD_READ, i, at, 1 * MiB);
		if (wire_try_send(w, request, n, 1) < n)
			break;
	}
	for (uint64_t i = rng_below(&c->rng, 10); i > 0; i--) {
		wire_drain(w, buf, sizeof(buf), 20, &eof);
		sleep_ms((int)rng_below(&c->rng, 50));
	}
	leave(c, w);
}

static void
stop_anywhere(struct client *c)
{
	struct wire *w = one_in(c, 2) ? wire_unix(c->d.sock)
				      : wire_tcp("127.0.0.1", c->port);
	uint8_t buf[512], data[64], *p = put32(buf, HS_FIXED | HS_NO_ZEROES);
	uint32_t len = put_info(data, "scratch", NULL, 0);

	p = put_option(p, OPT_STRUCTURED_REPLY, NULL, 0);
	p = put_option(p, OPT_INFO, data, len);
	p = put_option(p, OPT_GO, data, len);
	p = put_request(p, 0, CMD_READ, 1, 0, 1 * MiB);
	wire_try_send(w, buf, rng_below(&c->rng, (uint64_t)(p - buf) + 1), 50);
	sleep_ms((int)rng_below(&c->rng, 30));
	leave(c, w);
}

static void
ask_for_statistics(struct client *c)
{
	char answer[4096];

	for (size_t i = 0; i < NR(devices); i++)
		if (daemon_stat(&c->d, devices[i], 1) < 0)
			wire_fail("no statistics of %s", devices[i]);
	daemon_ask(&c->d, "{\"command\":\"iostat\"}", answer, sizeof(answer));
	daemon_ask(&c->d, "garbage", answer, sizeof(answer));
	sleep_ms(20);
}

/* All of a request, or a part of it, or something like it. */
static void
scrape(struct client *c)
{
	static const char request[] =
	    "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
	static uint8_t answer[256 * KiB];
	struct wire *w = wire_tcp("127.0.0.1", c->metrics);
	uint8_t bytes[sizeof(request)];
	size_t len = sizeof(request) - 1;
	bool eof;

	memcpy(bytes, request, len);
	if (one_in(c, 3))
		bytes[rng_below(&c->rng, len)] = (uint8_t)rng_next(&c->rng);
	if (one_in(c, 3))
		len = rng_below(&c->rng, len);
	wire_try_send(w, bytes, len, 50);
	if (!one_in(c, 4))
		wire_drain(w, answer, sizeof(answer), 50, &eof);
	leave(c, w);
}

/* Of events, which others cause; sometimes without reading them. */
static void
watch(struct client *c)
{
	static const char request[] = "{\"command\":\"watch\"}\n";
	static uint8_t events[64 * KiB];
	struct wire *w = wire_unix(c->d.control);
	bool eof;

	wire_try_send(w, (const uint8_t *)request, sizeof(request) - 1, 50);
	for (uint64_t i = rng_below(&c->rng, 20); i > 0; i--)
		if (one_in(c, 2))
			sleep_ms(50);
		else
			wire_drain(w, events, sizeof(events), 50, &eof);
	leave(c, w);
}

static void (*const odd[])(struct client *c) = { send_garbage, send_a_mutant,
	send_half_requests, read_nothing, stop_anywhere, ask_for_statistics,
	scrape, watch };

/* soak --client DIRECTORY PORT METRICS NUMBER SEED SECONDS */
static int
client_main(char **argv)
{
	struct client *c = calloc(1, sizeof(*c));
	unsigned number = (unsigned)atoi(argv[3]);
	uint64_t end;

	if (!c)
		abort();
	snprintf(c->d.sock, sizeof(c->d.sock), "%s/sock", argv[0]);
	snprintf(c->d.control, sizeof(c->d.control), "%s/control", argv[0]);
	c->port = atoi(argv[1]);
	c->metrics = atoi(argv[2]);
	c->rng = strtoull(argv[4], NULL, 0) + number;
	c->device = devices[number % NR(devices)];
	c->base = (16 + (uint64_t)number) * REGION;
	end = now_ns() + strtoull(argv[5], NULL, 0) * 1000000000;
	for (; now_ns() < end; c->nr_sessions++) {
		if (number < NR_HONEST) {
			honest_session(c);
		} else {
			c->device = one_in(c, 2) ? "scratch" : "timer";
			odd[(number - NR_HONEST + c->nr_sessions / 50) %
			    NR(odd)](c);
			/* to annoy, not to take all there is of the CPU */
			sleep_ms(20);
		}
	}
	printf("client %u: %u sessions\n", number, c->nr_sessions);
	free(c);
	return 0;
}

/* ------------------------------------------------------------- the parent */

static char *self;
static int seconds;
static int port, metrics;

static pid_t
start_client(struct daemon *d, unsigned number, uint64_t seed, int secs)
{
	char port_text[16], metrics_text[16], number_text[16], seed_text[32];
	char secs_text[16];
	pid_t pid;

	snprintf(port_text, sizeof(port_text), "%d", port);
	snprintf(metrics_text, sizeof(metrics_text), "%d", metrics);
	snprintf(number_text, sizeof(number_text), "%u", number);
	snprintf(
	    seed_text, sizeof(seed_text), "%llu", (unsigned long long)seed);
	snprintf(secs_text, sizeof(secs_text), "%d", secs);
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		wire_fail("fork: %s", strerror(errno));
	if (pid)
		return pid;
	execl("/proc/self/exe", self, "--client", d->dir, port_text,
	    metrics_text, number_text, seed_text, secs_text, (char *)NULL);
	_exit(127);
}

/* All of them for so long: nobody may have seen a fault. */
static void
run_clients(struct daemon *d, uint64_t seed, int secs)
{
	pid_t pid[NR_HONEST + NR_ODD];
	int bad = 0, status;

	for (unsigned i = 0; i < NR(pid); i++)
		pid[i] = start_client(d, i, seed + 1000 * i, secs);
	for (unsigned i = 0; i < NR(pid); i++) {
		waitpid(pid[i], &status, 0);
		if (status) {
			print_error("client %u: status 0x%x\n", i, status);
			bad++;
		}
	}
	if (bad)
		wire_fail("%d clients have seen a fault", bad);
}

/* Nothing in the devices, nobody connected: what it takes then. */
static uint64_t
rss_at_rest(struct daemon *d, unsigned fds)
{
	for (size_t i = 0; i <= NR(devices); i++) {
		struct wire *w = wire_open(
		    d, i < NR(devices) ? devices[i] : "scratch", false);

		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, SIZE), 0);
		wire_close(w);
	}
	daemon_settle(d, fds);
	sleep_ms(500);
	return daemon_rss(d);
}

static void
survives(void **state)
{
	struct daemon *d = daemon_new();
	char tcp[16], http[32], lines[2048];
	uint64_t seed = wire_seed(), before, after, allowed;
	int warm = seconds / 10 > 3 ? seconds / 10 : 3;
	unsigned fds;

	(void)state;
	port = wire_free_port("127.0.0.1");
	metrics = wire_free_port("127.0.0.1");
	snprintf(tcp, sizeof(tcp), "%d", port);
	snprintf(http, sizeof(http), "127.0.0.1:%d", metrics);
	snprintf(lines, sizeof(lines),
	    "[nullbd]\nhandshake_seconds = 2\nworkers = 2\n"
	    "[defaults]\nsize = 64M\nmemory_backed = 1\ndiscard = 1\n"
	    "[none]\nirqmode = 0\n[soft]\nirqmode = 1\nblocksize = 4096\n"
	    "[timer]\nirqmode = 2\ncompletion_nsec = 100000\n"
	    "scheduler = mq-deadline\nwrite_zeroes_max_bytes = 1M\n"
	    "[scratch]\nmemory_limit = 8M\n");
	daemon_exec(d, (const char *const[]){ "-c", daemon_config(d, lines),
			   "-U", d->sock, "--control", d->control, "-p", tcp,
			   "-a", "127.0.0.1", "--metrics", http, NULL });
	daemon_ready(d, d->sock);
	sleep_ms(100);
	fds = daemon_fds(d);
	run_clients(d, seed, warm);
	before = rss_at_rest(d, fds);
	run_clients(d, seed + 1, seconds - warm > 1 ? seconds - warm : 1);
	after = rss_at_rest(d, fds);
	allowed = daemon_sanitized(d) ? GROWTH_SAN : GROWTH;
	print_message("memory at rest: %llu MiB after %d s, %llu MiB at the "
		      "end; %llu MiB more are allowed\n",
	    (unsigned long long)before / MiB, warm,
	    (unsigned long long)after / MiB, (unsigned long long)allowed / MiB);
	assert_in_range(after, 0, before + allowed);
	if (daemon_log_has(d, "Sanitizer"))
		wire_fail("the sanitizer has something to say");
	daemon_stop(d);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(
		    "N8 N163 N165", "survives clients of every kind", survives),
	};

	signal(SIGPIPE, SIG_IGN);
	self = argv[0];
	if (argc == 8 && !strcmp(argv[1], "--client"))
		return client_main(argv + 2);
	seconds = argc == 2 ? atoi(argv[1]) : 0;
	if (seconds <= 0) {
		fprintf(stderr, "usage: %s SECONDS\n", argv[0]);
		return 2;
	}
	return cmocka_run_group_tests_name("soak", tests, NULL, NULL);
}
