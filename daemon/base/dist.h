/* SPDX-License-Identifier: MIT */
/*
 * How long something takes: a distribution of times, as people write it.
 *
 *	constant 80us
 *	uniform 50us 120us
 *	normal mean=100us stddev=10us
 *	exponential mean=80us
 *	lognormal p50=80us p99=400us
 *	pareto p50=80us p99=1ms
 *	table 1=60us 50=80us 99=200us 99.9=1ms
 *
 * Any two percentiles fit all but a constant and a table; an exponential needs
 * one, and with two it does not begin at 0.  A table is linear between its
 * points, and flat before the first and behind the last.  What would be
 * negative is 0.  Behind that min=20us and max=50ms cut off, and "+ 2us/4k"
 * adds time by the byte.  Neither commas nor colons, so it needs no quotes.
 */
#ifndef BASE_DIST_H
#define BASE_DIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/rng.h"

#define DIST_PERCENT    1000000u                /* of dist_point */
#define DIST_MAX_NS     UINT64_C(3600000000000) /* an hour */
#define DIST_MAX_POINTS 32u
#define DIST_MAX_TEXT   1024u /* bytes */

struct dist_kind;

/* So many percent take at most so long. */
struct dist_point {
	uint32_t percent; /* in millionths of one */
	uint64_t ns;
};

struct dist {
	const struct dist_kind *kind; /* NULL: nothing was set */
	unsigned nr;                  /* points as they were written */
	struct dist_point point[DIST_MAX_POINTS];
	bool by_mean; /* point[0] is the mean, point[1] the deviation */
	uint64_t min_ns, max_ns;
	uint64_t size_ns, size_bytes; /* so long for each so many bytes */
	double base, scale;           /* what is drawn from */
};

/*
 * Fill it in.  `what` is whose it is, for the sentence.  0; or -EINVAL or
 * -ERANGE with a sentence, and it is not to be used.
 */
int dist_parse(struct dist *d, const char *what, const char *text, char *err,
    size_t errlen);
/*
 * The same from points, by the kind's name: percents and times ascend.  0 or
 * -EINVAL, -ERANGE: they do not fit.
 */
int dist_fit(struct dist *d, const char *kind, const struct dist_point *point,
    unsigned nr);
/* So that parsing it gives the same. */
void dist_print(const struct dist *d, FILE *out);
bool dist_same(const struct dist *a, const struct dist *b);

/* What a share u of all take at most, 0 < u < 1: without the bytes. */
uint64_t dist_at(const struct dist *d, double u);
/* One of them; it takes one number of r. */
uint64_t dist_draw(const struct dist *d, struct rng *r);
/* What so many bytes take beside that. */
uint64_t dist_bytes(const struct dist *d, uint64_t bytes);

/* "80us" or "1.5ms", a bare number is ns: 0, -EINVAL, -ERANGE. */
int dist_time(const char *text, uint64_t *ns);
/* "99.9", of 0 to 100: the same. */
int dist_percent(const char *text, uint32_t *percent);
/* As they are written. */
void dist_print_time(uint64_t ns, FILE *out);
void dist_print_percent(uint32_t percent, FILE *out);

/* The names of the kinds, the simplest first; NULL: no more. */
const char *dist_kind_name(unsigned i);

#endif
