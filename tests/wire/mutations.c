/* SPDX-License-Identifier: MIT */
/*
 * 10,000 random mutations of a recorded session, eight connections at a time,
 * and a witness that must be served all the while.  What a mutant does to its
 * own device is its affair; the daemon has to live, to hang up when the mutant
 * has nothing more to say, and to forget it.
 *
 * NULLB_SEED repeats a run, NULLB_MUTATIONS=n changes the number.
 */
#include "../lib/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR(a)      (sizeof(a) / sizeof(*(a)))
#define TOGETHER   8
#define MUTATIONS  10000
#define MAX_MUTANT (24 * KiB)
#define DRAIN_MS   8000

static struct daemon *nullbd;
static uint64_t seed;
static struct recorded rec;

static int
start(void **state)
{
	(void)state;
	seed = wire_seed();
	/* no bit flip makes one name of the other */
	nullbd = daemon_start("victim:size=1M,memory_backed=1,discard=1",
	    "tardy:size=1M,memory_backed=1,discard=1,irqmode=2,"
	    "completion_nsec=300000,hw_queue_depth=4",
	    "witness:size=1M,memory_backed=1", NULL);
	nullbd->shared = true;
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	daemon_stop(nullbd); /* a leak is an exit status of LSan */
	return 0;
}

struct mutant {
	uint8_t bytes[MAX_MUTANT];
	size_t len;
};

/* Where a header begins: of an option or of a request. */
static size_t
pick_header(uint64_t *rng)
{
	size_t n = rec.nr_options + rec.nr_ops;
	size_t i = rng_below(rng, n);

	if (i < rec.nr_options)
		return i ? rec.option_end[i - 1] : 0;
	i -= rec.nr_options;
	return i ? rec.op_end[i - 1] : rec.option_end[rec.nr_options - 1];
}

static size_t
pick_place(const struct mutant *m, uint64_t *rng)
{
	size_t at = rng_below(rng, 3) ? pick_header(rng) + rng_below(rng, 32)
				      : rng_below(rng, m->len);

	return at < m->len ? at : m->len - 1;
}

static void
put_interesting(struct mutant *m, size_t at, uint64_t *rng)
{
	static const uint64_t values[] = { 0, 1, 2, 3, 4, 6, 7, 16, 28, 255,
		256, 511, 512, 513, 4095, 4096, 4097, 65535, 65536, 0x100000,
		0x100001, 0x2000000, 0x4000000, 0x4000001, 0x8000000, 0x8000001,
		0x7fffffff, 0x80000000, 0xfffffe00, 0xfffffffa, 0xffffffff,
		0x100000000, 1ULL << 62, 1ULL << 63, ~0ULL - 511, ~0ULL,
		MAGIC_IHAVEOPT, MAGIC_NBD, MAGIC_REQUEST, MAGIC_SIMPLE };
	uint64_t v = values[rng_below(rng, NR(values))];
	size_t width = 1u << rng_below(rng, 4);
	uint8_t buf[8];

	put64(buf, v);
	if (at + width > m->len)
		return;
	memcpy(m->bytes + at, buf + 8 - width, width);
}

static void
make_room(struct mutant *m, size_t at, size_t n)
{
	memmove(m->bytes + at + n, m->bytes + at, m->len - at);
	m->len += n;
}

static void
mutate(struct mutant *m, uint64_t *rng)
{
	size_t at = pick_place(m, rng), from = pick_place(m, rng);
	size_t n = 1 + rng_below(rng, rng_below(rng, 2) ? 40 : 8);
	uint8_t slice[64];

	if (m->len + n > MAX_MUTANT || at + n > m->len || from + n > m->len)
		return;
	memcpy(slice, m->bytes + from, n);
	switch (rng_below(rng, 10)) {
	case 0:
	case 1: m->bytes[at] ^= (uint8_t)(1u << rng_below(rng, 8)); break;
	case 2: m->bytes[at] = (uint8_t)rng_next(rng); break;
	case 3:
	case 4: put_interesting(m, at, rng); break;
	case 5: /* insert noise */
		make_room(m, at, n);
		fill(m->bytes + at, n, rng_next(rng));
		break;
	case 6: /* delete */
		memmove(m->bytes + at, m->bytes + at + n, m->len - at - n);
		m->len -= n;
		break;
	case 7: /* repeat a slice elsewhere */
		make_room(m, at, n);
		memcpy(m->bytes + at, slice, n);
		break;
	case 8: /* write it over another */
		memcpy(m->bytes + at, slice, n);
		break;
	default: /* a whole message, once more or out of order */
		from = pick_header(rng);
		n = REQUEST_SIZE;
		at = pick_header(rng);
		if (from + n > m->len || at > m->len || m->len + n > MAX_MUTANT)
			return;
		memcpy(slice, m->bytes + from, n);
		make_room(m, at, n);
		memcpy(m->bytes + at, slice, n);
	}
	if (!m->len)
		m->len = 1;
}

static void
mutant_make(struct mutant *m, uint64_t number, uint64_t *rng)
{
	*rng = seed * 1000003 + number;
	memcpy(m->bytes, rec.bytes, rec.len);
	m->len = rec.len;
	for (uint64_t k = 1 + rng_below(rng, 4); k; k--)
		mutate(m, rng);
	if (!rng_below(rng, 8))
		m->len = 1 + rng_below(rng, m->len);
}

/* How a mutant leaves. */
enum leave {
	HALF_CLOSE,
	CLOSE,
	RESET,
	LINGER
};

static struct wire *
mutant_send(const struct mutant *m, uint64_t *rng, enum leave *how)
{
	struct wire *w = wire_unix(nullbd->sock);
	size_t piece = rng_below(rng, 4) ? MAX_MUTANT : 1 + rng_below(rng, 500);
	uint64_t dice = rng_below(rng, 12);

	*how = dice < 8    ? HALF_CLOSE
	       : dice < 10 ? CLOSE
	       : dice < 11 ? RESET
			   : LINGER;
	for (size_t i = 0; i < m->len; i += piece) {
		size_t n = m->len - i < piece ? m->len - i : piece;

		if (wire_try_send(w, m->bytes + i, n, 1000) < n)
			break;
	}
	if (*how == HALF_CLOSE)
		wire_half_close(w);
	return w;
}

/* Its answers, to the end if it said that it has no more to say. */
static void
mutant_finish(struct wire *w, enum leave how, uint64_t number)
{
	static uint8_t buf[256 * KiB];
	uint64_t end = now_ns() + DRAIN_MS * 1000000ULL;
	bool eof = false;

	switch (how) {
	case HALF_CLOSE:
		while (!eof) {
			wire_drain(w, buf, sizeof(buf), 1000, &eof);
			if (!eof && now_ns() > end)
				wire_fail("mutant %llu of seed %llu is not "
					  "hung up on",
				    (unsigned long long)number,
				    (unsigned long long)seed);
		}
		wire_close(w);
		break;
	case LINGER:
		wire_drain(w, buf, sizeof(buf), 2, &eof);
		wire_close(w);
		break;
	case CLOSE: wire_close(w); break;
	case RESET: wire_reset(w); break;
	}
}

static void
send_mutants(struct wire *witness, uint64_t first, uint64_t n)
{
	static struct mutant m;

	for (uint64_t i = 0; i < n; i += TOGETHER) {
		struct wire *w[TOGETHER];
		enum leave how[TOGETHER];
		uint64_t rng;

		for (uint64_t k = 0; k < TOGETHER; k++) {
			uint64_t number = first + i + k;

			recorded_make(&rec, number & 1 ? "tardy" : "victim");
			mutant_make(&m, number, &rng);
			w[k] = mutant_send(&m, &rng, &how[k]);
		}
		if (i % (8 * TOGETHER) == 0) {
			uint64_t start_ns = now_ns();

			wire_assert_served(witness, i % 250 * 4096);
			assert_in_range(
			    (now_ns() - start_ns) / 1000000, 0, 2000);
		}
		for (uint64_t k = 0; k < TOGETHER; k++)
			mutant_finish(w[k], how[k], first + i + k);
		if (!daemon_alive(nullbd))
			wire_fail("the daemon dies of a mutant in %llu..%llu "
				  "of seed %llu",
			    (unsigned long long)(first + i),
			    (unsigned long long)(first + i + TOGETHER - 1),
			    (unsigned long long)seed);
	}
}

static void
survives_mutations(void **state)
{
	const char *env = getenv("NULLB_MUTATIONS");
	uint64_t n = env ? strtoull(env, NULL, 0) : MUTATIONS;
	struct wire *witness = wire_open(nullbd, "witness", false);
	uint64_t rss, slack = 16ull * MiB;
	unsigned fds = daemon_fds(nullbd);
	long log;

	(void)state;
	/* the first ones fill pools and the victims' memory */
	send_mutants(witness, 1ULL << 32, 1000);
	daemon_settle(nullbd, fds);
	rss = daemon_rss(nullbd);
	log = daemon_log_size(nullbd);
	if (daemon_sanitized(nullbd))
		slack = 300ull * MiB; /* its quarantine */

	send_mutants(witness, 0, n);

	daemon_settle(nullbd, fds);
	print_message("rss %llu KiB before, %llu KiB after; log %ld bytes a "
		      "mutant\n",
	    (unsigned long long)rss / 1024,
	    (unsigned long long)daemon_rss(nullbd) / 1024,
	    (daemon_log_size(nullbd) - log) / (long)n);
	assert_in_range(daemon_rss(nullbd), 0, rss + slack);
	assert_in_range(daemon_log_size(nullbd) - log, 0, n * 400);
	wire_assert_served(witness, 0);
	wire_assert_served(wire_open(nullbd, "victim", true), 0);
	assert_int_equal(daemon_stat(nullbd, "victim", 9), 0);
	assert_int_equal(daemon_stat(nullbd, "tardy", 9), 0);
	wire_assert_served(wire_open(nullbd, "tardy", true), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N12 N16 N59 N108 N111 N163 N165",
		    "10000 mutants of a session harm nobody",
		    survives_mutations),
	};

	return cmocka_run_group_tests_name("mutations", tests, start, stop);
}
