/* SPDX-License-Identifier: MIT */
/*
 * A histogram of whole numbers in powers of two: one writer counts, anyone
 * reads at any time, a sum of several is made when it is asked for.
 *
 *	bucket	0	1	2	3	...	23
 *	values	0	1	2-3	4-7		4194304 and more
 *
 * What is full stands out: a limit that is a power of two is the first value
 * of its bucket.
 */
#ifndef BASE_HIST_H
#define BASE_HIST_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#define HIST_BUCKETS 24u

struct hist {
	_Atomic uint64_t sum; /* of the values */
	_Atomic uint64_t bucket[HIST_BUCKETS];
};

static inline unsigned
hist_index(uint64_t value)
{
	unsigned bits = value != 0 ? 64 - (unsigned)__builtin_clzll(value) : 0;

	return bits < HIST_BUCKETS ? bits : HIST_BUCKETS - 1;
}

/* The least value of a bucket. */
static inline uint64_t
hist_from(unsigned bucket)
{
	return bucket != 0 ? UINT64_C(1) << (bucket - 1) : 0;
}

static inline uint64_t
hist_get(const struct hist *h, unsigned bucket)
{
	return atomic_load_explicit(&h->bucket[bucket], memory_order_relaxed);
}

static inline uint64_t
hist_sum(const struct hist *h)
{
	return atomic_load_explicit(&h->sum, memory_order_relaxed);
}

/* Count `nr` values that make `sum`, all of one bucket.  The writer only. */
static inline void
hist_put(struct hist *h, unsigned bucket, uint64_t nr, uint64_t sum)
{
	/* with one writer there is no need for a locked add */
	atomic_store_explicit(
	    &h->bucket[bucket], hist_get(h, bucket) + nr, memory_order_relaxed);
	atomic_store_explicit(&h->sum, hist_sum(h) + sum, memory_order_relaxed);
}

/* Count a value.  The writer only. */
static inline void
hist_add(struct hist *h, uint64_t value)
{
	hist_put(h, hist_index(value), 1, value);
}

/* Add all that `from` has counted. */
void hist_merge(struct hist *to, const struct hist *from);

/* How many values it has counted; and their mean, 0 of none. */
uint64_t hist_count(const struct hist *h);
double hist_mean(const struct hist *h);

/*
 * A line for each bucket from the first to the last that counted any: its
 * values, how many, their share and a bar.
 */
void hist_print(const struct hist *h, FILE *out);

#endif
