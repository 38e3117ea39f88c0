/* SPDX-License-Identifier: MIT */
/*
 * A histogram of times in nanoseconds, fine enough for percentiles: as fio's,
 * each power of two is divided evenly.  One writer counts, anyone reads, and a
 * sum of several is made when it is asked for, as in base/hist.h.
 *
 *	bucket	0 ... 31	32 ... 63	64 ... 95	...
 *	ns	1 each		1 each		2 each		...
 *
 * So a value is known to 1/32 of itself, and the middle of its bucket is off by
 * 1/64 at most.
 */
#ifndef BASE_LATENCY_H
#define BASE_LATENCY_H

#include <stdatomic.h>
#include <stdint.h>

#define LATENCY_BITS    5u
#define LATENCY_MAX_LOG 42u /* more than 73 minutes is as long as that */
#define LATENCY_BUCKETS ((LATENCY_MAX_LOG - LATENCY_BITS + 1) << LATENCY_BITS)

struct latency {
	_Atomic uint64_t sum; /* of the times */
	_Atomic uint64_t bucket[LATENCY_BUCKETS];
};

static inline unsigned
latency_index(uint64_t ns)
{
	unsigned shift;

	if (ns >> LATENCY_MAX_LOG != 0)
		return LATENCY_BUCKETS - 1;
	if (ns >> LATENCY_BITS == 0)
		return (unsigned)ns;
	shift = 63 - (unsigned)__builtin_clzll(ns) - LATENCY_BITS;
	return (shift << LATENCY_BITS) + (unsigned)(ns >> shift);
}

/* The least time of a bucket, or the first that none has. */
static inline uint64_t
latency_from(unsigned bucket)
{
	unsigned shift = bucket >> LATENCY_BITS;

	if (shift == 0)
		return bucket;
	shift--;
	return (uint64_t)(bucket - (shift << LATENCY_BITS)) << shift;
}

static inline uint64_t
latency_get(const struct latency *l, unsigned bucket)
{
	return atomic_load_explicit(&l->bucket[bucket], memory_order_relaxed);
}

static inline uint64_t
latency_sum(const struct latency *l)
{
	return atomic_load_explicit(&l->sum, memory_order_relaxed);
}

/* Count `nr` times of one bucket that make `sum`.  The writer only. */
static inline void
latency_put(struct latency *l, unsigned bucket, uint64_t nr, uint64_t sum)
{
	atomic_store_explicit(&l->bucket[bucket], latency_get(l, bucket) + nr,
	    memory_order_relaxed);
	atomic_store_explicit(
	    &l->sum, latency_sum(l) + sum, memory_order_relaxed);
}

/* Count a time.  The writer only. */
static inline void
latency_add(struct latency *l, uint64_t ns)
{
	latency_put(l, latency_index(ns), 1, ns);
}

/* Add all that `from` has counted, or take it away: it was part of it. */
void latency_merge(struct latency *to, const struct latency *from);
void latency_take(struct latency *to, const struct latency *from);

uint64_t latency_count(const struct latency *l);
/* 0 of none. */
double latency_mean(const struct latency *l);
/*
 * The time that `percent` (0 to 100) of them do not exceed: the middle of its
 * bucket.  0 of none.
 */
uint64_t latency_percentile(const struct latency *l, double percent);

#endif
