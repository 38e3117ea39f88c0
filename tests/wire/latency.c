/* SPDX-License-Identifier: MIT */
/*
 * irqmode=2 and real time: requests take completion_nsec, each for itself, and
 * what they take without it, which is the client's time for the most part and
 * differs by the machine.  It has other things to do, so a bound may be missed
 * twice.
 */
#include "../lib/wire.h"

#include <sys/socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 3
#define DEPTH 64

static struct daemon *nullbd;

static int
start(void **state)
{
	(void)state;
	nullbd = daemon_start(
	    "ms:size=64M,memory_backed=1,irqmode=2,completion_nsec=1000000",
	    "inline:size=64M,memory_backed=1,irqmode=0", NULL);
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

static int
compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double
quantile_us(uint64_t *ns, size_t n, double q)
{
	qsort(ns, n, sizeof(*ns), compare);
	return (double)ns[(size_t)(q * (double)(n - 1))] / 1000;
}

static void
skip_if_sanitized(void)
{
	if (daemon_sanitized(nullbd)) {
		print_message("a sanitizer's daemon keeps no time\n");
		skip();
	}
}

/* What many requests in flight took. */
struct many {
	double least_us, median_us;
	double whole_us; /* until the last of a batch was there, or 0 */
};

/* 64 sent together: when each comes, and when the last does. */
static struct many
batches_timed(const char *name)
{
	enum {
		ROUNDS = 100
	};
	uint8_t *got = xmalloc(DEPTH * 4096);
	uint64_t *each = calloc(ROUNDS * DEPTH, sizeof(*each));
	uint64_t last[ROUNDS];
	struct wire *w = wire_open(nullbd, name, false);
	struct many m;

	for (int r = 0; r < ROUNDS; r++) {
		struct op ops[DEPTH] = { { 0 } };
		uint64_t from_ns;

		for (size_t i = 0; i < DEPTH; i++) {
			ops[i].type = i & 1 ? CMD_WRITE : CMD_READ;
			ops[i].offset = i * 64 * KiB;
			ops[i].length = 4096;
			ops[i].got = got + i * 4096;
			ops[i].data = got + i * 4096;
		}
		from_ns = now_ns();
		batch_run(w, ops, DEPTH, 0);
		batch_assert_ok(ops, DEPTH);
		last[r] = 0;
		for (size_t i = 0; i < DEPTH; i++) {
			uint64_t took_ns = ops[i].done_ns - from_ns;

			each[(size_t)r * DEPTH + i] = took_ns;
			if (took_ns > last[r])
				last[r] = took_ns;
		}
	}
	m.least_us = quantile_us(each, ROUNDS * DEPTH, 0);
	m.median_us = quantile_us(each, ROUNDS * DEPTH, 0.5);
	m.whole_us = quantile_us(last, ROUNDS, 0.5);
	wire_close(w);
	free(each);
	free(got);
	return m;
}

/* 64 always in flight: a new one for each that comes back. */
static struct many
window_timed(const char *name)
{
	enum {
		N = 10000
	};
	uint64_t *sent = calloc(N, sizeof(*sent));
	uint64_t *took = calloc(N, sizeof(*took));
	struct wire *w = wire_open(nullbd, name, false);
	struct many m = { 0 };
	size_t next = 0;
	uint8_t got[4096];

	for (size_t done = 0; done < N; done++) {
		uint8_t head[REPLY_SIZE];
		uint64_t i;

		while (next < N && next < done + DEPTH) {
			sent[next] = now_ns();
			wire_request(w, 0, CMD_READ, next,
			    next * 7919 % 1000 * 64 * KiB, 4096);
			next++;
		}
		wire_recv(w, head, sizeof(head));
		wire_recv(w, got, sizeof(got));
		i = get64(head + 8);
		assert_in_range(i, 0, N - 1);
		took[i] = now_ns() - sent[i];
	}
	m.least_us = quantile_us(took, N, 0);
	m.median_us = quantile_us(took, N, 0.5);
	wire_close(w);
	free(took);
	free(sent);
	return m;
}

/*
 * A millisecond for all of them, not for one after the other.  The client's
 * time passes meanwhile, or it comes on top.
 */
static void
takes_a_millisecond(struct many timed(const char *name))
{
	struct many with = { 0 }, without;
	bool good = false;

	skip_if_sanitized();
	for (int try = 0; try < TRIES && !good; try++) {
		without = timed("inline");
		with = timed("ms");
		print_message("64 at once: median %.0f us, without %.0f us; "
			      "the last %.0f us, without %.0f us\n",
		    with.median_us, without.median_us, with.whole_us,
		    without.whole_us);
		assert_true(with.least_us >= 1000);
		good = with.median_us <= 1300 + without.median_us &&
		       with.whole_us <= 1600 + without.whole_us;
	}
	assert_true(good);
}

static void
a_batch_takes_a_millisecond(void **state)
{
	(void)state;
	takes_a_millisecond(batches_timed);
}

static void
a_window_takes_a_millisecond(void **state)
{
	(void)state;
	takes_a_millisecond(window_timed);
}

/*
 * `n` reads, one after the other, and how long each took.  We poll for the
 * reply: a client that sleeps is woken later the longer it has slept, by 20 us
 * and more on an idle virtual machine, and that is not the daemon's time.
 */
static void
reads_timed(struct wire *w, uint64_t *took, size_t n)
{
	uint8_t got[4096], byte;

	for (size_t i = 0; i < n; i++) {
		uint64_t from_ns = now_ns(), end_ns = from_ns + 1000000000;

		wire_request(
		    w, 0, CMD_READ, i, i % 100 * 64 * KiB, sizeof(got));
		while (recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
		       now_ns() < end_ns)
			;
		took[i] = now_ns() - from_ns;
		assert_int_equal(wire_reply(w, i), 0);
		wire_recv(w, got, sizeof(got));
	}
}

/*
 * One at a time, in turn fifty on a device with the delay and fifty on one
 * without, both on one loop: where the scheduler puts that thread decides
 * whether a request wakes it in 8 or in 60 us, and so decides it for both.
 */
static void
fifty_microseconds_are_fifty(void **state)
{
	enum {
		BLOCKS = 80,
		BLOCK = 50,
		WARM = 10,
		N = BLOCKS * (BLOCK - WARM)
	};
	uint64_t *with = calloc(N, sizeof(*with));
	uint64_t *without = calloc(N, sizeof(*without));
	double delta = 0;
	struct wire *slow, *fast;
	struct daemon *d;

	(void)state;
	skip_if_sanitized();
	d = daemon_start("--workers", "1",
	    "us50:size=64M,memory_backed=1,irqmode=2,completion_nsec=50000",
	    "inline:size=64M,memory_backed=1,irqmode=0", NULL);
	slow = wire_open(d, "us50", false);
	fast = wire_open(d, "inline", false);
	for (int try = 0; try < TRIES; try++) {
		for (size_t b = 0; b < BLOCKS; b++) {
			uint64_t took[BLOCK];
			size_t at = b * (BLOCK - WARM);

			reads_timed(fast, took, BLOCK);
			memcpy(without + at, took + WARM,
			    sizeof(took) - WARM * sizeof(*took));
			reads_timed(slow, took, BLOCK);
			memcpy(with + at, took + WARM,
			    sizeof(took) - WARM * sizeof(*took));
		}
		delta =
		    quantile_us(with, N, 0.5) - quantile_us(without, N, 0.5);
		print_message("50 us: median %.1f us, without %.1f us, "
			      "difference %.1f us; p99 %.1f and %.1f us\n",
		    quantile_us(with, N, 0.5), quantile_us(without, N, 0.5),
		    delta, quantile_us(with, N, 0.99),
		    quantile_us(without, N, 0.99));
		if (delta >= 40 && delta <= 60)
			break;
	}
	assert_true(delta >= 40);
	assert_true(delta <= 60);
	daemon_stop(d);
	free(without);
	free(with);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("latency",
		    "1 ms with 64 at once takes 1.0 to 1.3 ms, and the "
		    "client's time",
		    a_batch_takes_a_millisecond),
		CASE("latency", "1 ms with 64 always in flight, likewise",
		    a_window_takes_a_millisecond),
		CASE("latency", "50 us at depth 1 are 50 us, 10 more or less",
		    fifty_microseconds_are_fifty),
	};

	return cmocka_run_group_tests_name("latency", tests, start, stop);
}
