/* SPDX-License-Identifier: MIT */
/*
 * A comparison that nobody ran: as many rounds, buckets and points as a test
 * of what shows them asks for, the same numbers each time.
 */
#ifndef TESTS_UNIT_COMPARISON_H
#define TESTS_UNIT_COMPARISON_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compare/compare.h"
#include "compare/heat.h"

struct made {
	unsigned nr_rounds;  /* a side; the first one is a warm-up, too */
	unsigned nr_ops;     /* read, then write, then trim */
	unsigned nr_buckets; /* of latency, an operation */
	unsigned nr_points;  /* of IOPS over time */
	double slower;       /* other's latency beside base's */
	bool traced;
};

/* Text that says so when it comes out as anything but text. */
#define HOSTILE                                                                \
	"</pre></title></style></script><script>document.title='bad'</script>" \
	"<img src=x onerror=alert(1)>&amp;\"'\x01\x1b[31m]]>-->"

/* 0 to 1 */
static inline double
made_chance(struct rng *r)
{
	return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* A bell, about: the sum of twelve. */
static inline double
made_bell(struct rng *r)
{
	double sum = -6;

	for (unsigned i = 0; i < 12; i++)
		sum += made_chance(r);
	return sum;
}

static inline void
made_figure(struct comparison *c, enum side side, const char *name,
    const char *unit, enum better better, bool headline, double value)
{
	assert_int_equal(
	    figures_add(&c->figures, side, name, unit, better, headline, value),
	    0);
}

/* Latencies from 20 us to 8 ms: the buckets are the same for all, as fio's. */
static inline struct buckets
made_latency(unsigned nr, double factor, struct rng *r)
{
	struct buckets b = { calloc(nr, sizeof(*b.upto)),
		calloc(nr, sizeof(*b.count)), nr };
	double x;

	assert_true(nr == 0 || (b.upto != NULL && b.count != NULL));
	for (unsigned i = 0; i < nr; i++) {
		x = (double)i / nr;
		b.upto[i] = floor(20e3 * pow(400, x)) + i;
		x -= .2 + log(factor) / log(400);
		b.count[i] = (uint64_t)(1e6 * exp(-30 * x * x) *
					(1 + .1 * made_chance(r))) +
			     1;
	}
	return b;
}

static inline struct series
made_series(unsigned nr, double level, struct rng *r)
{
	struct series s = { .at = calloc(nr, sizeof(*s.at)),
		.value = calloc(nr, sizeof(*s.value)),
		.nr = nr,
		.nr_whole = nr };

	assert_true(nr == 0 || (s.at != NULL && s.value != NULL));
	for (unsigned i = 0; i < nr; i++) {
		s.at[i] = i;
		s.value[i] = level * (1 + .03 * made_bell(r));
		if (i % 97 == 96)
			s.value[i] *= .6;
	}
	return s;
}

/* Powers of two from `first`, the weight in the middle. */
static inline struct buckets
made_powers(unsigned nr, double first, double middle, struct rng *r)
{
	struct buckets b = { calloc(nr, sizeof(*b.upto)),
		calloc(nr, sizeof(*b.count)), nr };

	assert_non_null(b.upto);
	assert_non_null(b.count);
	for (unsigned i = 0; i < nr; i++) {
		b.upto[i] = first * pow(2, i);
		b.count[i] = (uint64_t)(9e5 * exp(-.3 * pow(i - middle, 2)) *
					(1 + .05 * made_chance(r)));
	}
	return b;
}

/* One pass from one end to the other, and places all over. */
static inline struct heat *
made_heat(enum side side, struct rng *r)
{
	struct heat *h = calloc(1, sizeof(*h));
	unsigned row, column;

	assert_non_null(h);
	h->seconds = 30;
	h->bytes = UINT64_C(250) << 30;
	for (column = 0; column < HEAT_COLUMNS; column++) {
		row = column * HEAT_ROWS / HEAT_COLUMNS;
		h->count[row][column] = 40 << 20;
		for (unsigned i = 0; i < (side == SIDE_BASE ? 24 : 6); i++)
			h->count[rng_below(r, HEAT_ROWS)][column] +=
			    (rng_below(r, 256) + 1) << 12;
	}
	return h;
}

static inline void
made_figures(struct comparison *c, enum side side, unsigned nr_ops,
    double slower, struct rng *r)
{
	static const char *const op[] = { "read", "write", "trim" };
	static const char *const p[] = { "p50", "p99", "p99.9", "p99.99" };
	double f = side == SIDE_BASE ? 1 : slower, mean;
	double iops = 61000 / f * (1 + .008 * made_bell(r));
	char name[64];

	made_figure(c, side, "fio.iops", "", BETTER_HIGHER, true, iops);
	made_figure(
	    c, side, "fio.bw", "KiB/s", BETTER_HIGHER, true, iops * 11.2);
	for (unsigned o = 0; o < nr_ops; o++) {
		mean = 210 * f * (1 + o * .4) * (1 + .01 * made_bell(r));
		snprintf(name, sizeof(name), "fio.%s.clat.mean", op[o]);
		made_figure(c, side, name, "us", BETTER_LOWER, true, mean);
		for (unsigned i = 0; i < 4; i++) {
			snprintf(
			    name, sizeof(name), "fio.%s.clat.%s", op[o], p[i]);
			made_figure(c, side, name, "us", BETTER_LOWER, i == 1,
			    mean * pow(2.2, i) * (1 + .03 * made_bell(r)));
		}
		snprintf(name, sizeof(name), "stat.%s.merges", op[o]);
		made_figure(c, side, name, "", BETTER_NEITHER, false,
		    floor(9000 * (1 + .02 * made_bell(r))));
	}
	made_figure(c, side, "fio.cpu.sys", "%", BETTER_LOWER, false,
	    24 + made_bell(r));
	made_figure(c, side, "fio.majf", "", BETTER_NEITHER, false, 0);
	made_figure(c, side, "daemon.cpu_ms", "ms", BETTER_LOWER, false,
	    8100 * f * (1 + .02 * made_bell(r)));
}

static inline void
made_run(struct run *run, enum side side, const struct made *m, struct rng *r)
{
	double f = side == SIDE_BASE ? 1 : m->slower;
	double luck = 1 + .01 * made_bell(r);

	for (unsigned op = 0; op < m->nr_ops; op++)
		run->clat_ns[op] =
		    made_latency(m->nr_buckets, f * luck * (1 + op * .4), r);
	run->iops = made_series(m->nr_points, 61000 / f / luck, r);
	run->sectors = made_powers(9, 1, side == SIDE_BASE ? 4 : 5, r);
	run->segments = made_powers(7, 1, side == SIDE_BASE ? 2 : 4, r);
}

/* The end of it is comparison_fini(). */
static inline void
comparison_make(struct comparison *c, const struct made *m)
{
	struct rng r = rng_stream(7, 7);
	struct run *run;
	enum side side;

	*c = (struct comparison){
		.label = { strdup("multipage-off.conf"),
		    strdup("multipage-on.conf") },
		.config = { strdup("# One page a bvec.\n[nullb0]\n"
				   "kernel = 4.14\nmultipage = 0\n"
				   "size = 250G\ncompletion_nsec = 10000\n"),
		    strdup("# Bvecs of many pages.\n[nullb0]\n"
			   "kernel = 4.14\nmultipage = 1\n"
			   "size = 250G\ncompletion_nsec = 10000\n"
			   "max_sectors_kb = 1280\n") },
		.job_name = strdup("report-a.fio"),
		.job = strdup("[global]\nioengine=nbd\nrw=randrw:2\n"
			      "bssplit=512/20:1k/16:2k/9:4k/12:8k/19:16k/10:"
			      "32k/8:64k/4\niodepth=64\n\n[fiotest]\n"
			      "numjobs=8\n"),
		.date = strdup("2026-11-30T14:05:09+01:00"),
		.machine = strdup("Linux 6.1.0-38-amd64, 2 CPUs"),
		.versions = strdup("nullbd 0.1.0, fio-3.33"),
		.nr_rounds = m->nr_rounds,
	};
	assert_int_equal(
	    comparison_note(c, "report-a.fio:3: ioengine=libaio became "
			       "ioengine=nbd"),
	    0);
	if (m->nr_rounds > 0)
		c->run = calloc(m->nr_rounds + 1, NR_SIDES * sizeof(*c->run));
	for (unsigned round = 0; round <= m->nr_rounds; round++) {
		if (m->nr_rounds == 0)
			break;
		for (side = 0; side < NR_SIDES; side++) {
			run = &c->run[c->nr_runs++];
			run->side = side;
			run->round = round;
			run->warm_up = round == 0;
			made_run(run, side, m, &r);
			if (!run->warm_up)
				made_figures(c, side, m->nr_ops, m->slower, &r);
		}
	}
	for (side = 0; side < NR_SIDES && m->traced; side++)
		c->heat[side] = made_heat(side, &r);
	c->verdict = figures_judge(&c->figures, METHOD_WELCH, ALPHA_DEFAULT);
}

#endif
