/* SPDX-License-Identifier: MIT */
/*
 * mbps over 10 s of a clock that moves only when nothing is left to do: how
 * long clients who always have I/O in flight take for 10 s worth of it, in
 * sizes below and far above what a tick allows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/host.h"

#define SECONDS 10u
#define DEPTH   32u
#define MAX_IO  (1u << 20)
#define NR_CPUS 2u

static char memory[MAX_IO];

struct client;

struct io {
	struct client *client;
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	bool begun; /* but not taken: no tag */
};

/* One a cpu. */
struct client {
	struct disk *disk;
	struct cpu *cpu;
	enum req_op op;
	uint64_t bs;
	uint64_t nr_left;  /* to submit */
	uint64_t ended_ns; /* the last one */
	struct io io[DEPTH];
	struct io *idle[DEPTH];
	unsigned nr_idle;
};

static void
io_ended(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct io *io = bio->priv;
	struct client *c = io->client;

	assert_int_equal(bio->error, 0);
	c->ended_ns = now;
	bio_release(bio, cpu);
	c->idle[c->nr_idle++] = io;
}

/* A bio that was not taken is to be submitted again as it is. */
static bool
io_submit(struct client *c, struct io *io, uint64_t now)
{
	struct bio *bio = &io->bio;
	uint64_t blocks = disk_size(c->disk) / c->bs;

	if (!io->begun) {
		bio_init(bio, c->op, c->nr_left * 7919 % blocks * c->bs, io->bv,
		    BIO_MAX_VECS);
		bio->end_io = io_ended;
		bio->priv = io;
		if (c->op == REQ_OP_DISCARD)
			bio->bytes = c->bs;
		else
			bio_add_payload(
			    bio, true, UINT64_C(1) << 40, 9, 0, memory, c->bs);
	}
	io->begun = queue_submit(c->disk->queue, c->cpu, NULL, bio, now) != 0;
	return !io->begun;
}

static void
client_submit(struct client *c, uint64_t now)
{
	struct io *io;

	while (c->nr_left > 0 && c->nr_idle > 0) {
		io = c->idle[--c->nr_idle];
		if (!io_submit(c, io, now)) {
			c->idle[c->nr_idle++] = io;
			return;
		}
		c->nr_left--;
	}
}

static struct client *
client_new(struct disk *d, unsigned cpu, enum req_op op, uint64_t bs,
    unsigned depth, uint64_t bytes)
{
	struct client *c = calloc(1, sizeof(*c));

	c->disk = d;
	c->cpu = &d->machine->cpu[cpu];
	c->op = op;
	c->bs = bs;
	c->nr_left = bytes / bs;
	for (unsigned i = 0; i < depth; i++) {
		c->io[i].client = c;
		c->idle[c->nr_idle++] = &c->io[i];
	}
	return c;
}

/* Until nobody has anything in flight any more. */
static void
run(struct client **c, unsigned nr, uint64_t now)
{
	uint64_t next, first;

	do {
		first = CPU_NO_DEADLINE;
		for (unsigned i = 0; i < nr; i++) {
			do {
				client_submit(c[i], now);
				next = cpu_run(c[i]->cpu, now);
			} while (cpu_tag_freed(c[i]->cpu));
			if (next < first)
				first = next;
		}
		assert_true(first > now);
		now = first;
	} while (first != CPU_NO_DEADLINE);
	for (unsigned i = 0; i < nr; i++)
		assert_int_equal(c[i]->nr_left, 0);
}

struct setup {
	const char *settings;
	enum req_op op;
	uint64_t bs;
	unsigned depth;
};

static double
rate_of(uint32_t mbps, const struct setup *s, unsigned nr)
{
	struct machine *m = host_new(NR_CPUS);
	struct page_pool *pool = page_pool_new(m, 0);
	struct client *c[NR_CPUS];
	struct disk *d;
	char settings[256];
	uint64_t start = 1000000, ended = 0;
	uint64_t bytes = (uint64_t)mbps * SECONDS << 20;

	snprintf(settings, sizeof(settings), "size=1024 mbps=%u %s", mbps,
	    s->settings);
	for (unsigned i = 0; i < NR_CPUS; i++)
		epoch_enter(&m->epoch, i);
	d = host_disk(m, pool, settings);
	for (unsigned i = 0; i < nr; i++)
		c[i] = client_new(d, i, s->op, s->bs, s->depth, bytes / nr);
	run(c, nr, start);
	for (unsigned i = 0; i < nr; i++) {
		if (c[i]->ended_ns > ended)
			ended = c[i]->ended_ns;
		free(c[i]);
	}
	disk_free(d);
	for (unsigned i = 0; i < NR_CPUS; i++)
		epoch_leave(&m->epoch, i);
	page_pool_free(pool);
	machine_free(m);
	return (double)mbps * SECONDS * 1e9 / (double)(ended - start);
}

static void
expect_rates(const struct setup *s, unsigned nr)
{
	for (uint32_t mbps = 1; mbps <= 1000; mbps *= 10) {
		double rate = rate_of(mbps, s, nr);

		if (rate < 0.97 * mbps || rate > 1.03 * mbps)
			fail_msg("mbps=%u %s bs=%u: %.3f", mbps, s->settings,
			    (unsigned)s->bs, rate);
	}
}

static void
holds_within_3_percent_at_4k(void **state)
{
	(void)state;
	expect_rates(&(struct setup){ "", REQ_OP_WRITE, 4096, 32 }, 1);
	expect_rates(&(struct setup){ "", REQ_OP_READ, 4096, 1 }, 1);
}

static void
holds_within_3_percent_at_1m(void **state)
{
	static const struct setup setups[] = {
		{ "", REQ_OP_WRITE, MAX_IO, 4 },
		{ "", REQ_OP_READ, MAX_IO, 1 },
		{ "max_sectors=2048", REQ_OP_WRITE, MAX_IO, 4 },
		{ "max_sectors=2048", REQ_OP_READ, MAX_IO, 1 },
		{ "scheduler=mq-deadline", REQ_OP_WRITE, MAX_IO, 4 },
		{ "hw_queue_depth=1", REQ_OP_WRITE, MAX_IO, 4 },
		{ "irqmode=2", REQ_OP_WRITE, MAX_IO, 4 },
		{ "kernel=6.1", REQ_OP_WRITE, MAX_IO, 4 },
		{ "kernel=6.1 queue_mode=0", REQ_OP_WRITE, MAX_IO, 4 },
		{ "memory_backed=1 discard=1", REQ_OP_DISCARD, MAX_IO, 4 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(setups) / sizeof(*setups); i++)
		expect_rates(&setups[i], 1);
}

/* The limit is the device's, whoever shares it. */
static void
holds_for_two_cpus_together(void **state)
{
	static const struct setup setups[] = {
		{ "submit_queues=2", REQ_OP_WRITE, MAX_IO, 4 },
		{ "submit_queues=2", REQ_OP_WRITE, 65536, 32 },
		{ "submit_queues=1", REQ_OP_WRITE, 65536, 32 },
		{ "submit_queues=2 scheduler=mq-deadline", REQ_OP_WRITE, 65536,
		    32 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(setups) / sizeof(*setups); i++)
		expect_rates(&setups[i], 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holds_within_3_percent_at_4k),
		cmocka_unit_test(holds_within_3_percent_at_1m),
		cmocka_unit_test(holds_for_two_cpus_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
