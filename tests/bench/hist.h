/* SPDX-License-Identifier: MIT */
/*
 * A histogram of nanoseconds on a logarithmic scale: 512 buckets an octave, so
 * a value is known to 0.2%. (The daemon has its own in base/; see wire.h for
 * why it is not used here.)
 */
#ifndef BENCH_HIST_H
#define BENCH_HIST_H

#include <stdint.h>
#include <string.h>

enum {
	HIST_BITS = 9,
	HIST_SUB = 1 << HIST_BITS,
	HIST_BUCKETS = (64 - HIST_BITS + 1) * HIST_SUB,
};

struct hist {
	uint64_t count;
	uint64_t sum;
	uint64_t buckets[HIST_BUCKETS];
};

static inline void
hist_reset(struct hist *h)
{
	memset(h, 0, sizeof(*h));
}

static inline unsigned
hist_index(uint64_t value)
{
	if (value < HIST_SUB)
		return (unsigned)value;

	unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HIST_BITS;

	return (shift + 1) * HIST_SUB + (unsigned)(value >> shift) - HIST_SUB;
}

/* The middle of a bucket. */
static inline double
hist_value(unsigned index)
{
	if (index < HIST_SUB)
		return index;

	unsigned shift = index / HIST_SUB - 1;
	double width = (double)(1ULL << shift);

	return (index % HIST_SUB + HIST_SUB + 0.5) * width;
}

static inline void
hist_add(struct hist *h, uint64_t value)
{
	h->count++;
	h->sum += value;
	h->buckets[hist_index(value)]++;
}

static inline void
hist_merge(struct hist *h, const struct hist *other)
{
	h->count += other->count;
	h->sum += other->sum;
	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		h->buckets[i] += other->buckets[i];
}

static inline double
hist_mean(const struct hist *h)
{
	return h->count ? (double)h->sum / (double)h->count : 0;
}

static inline double
hist_percentile(const struct hist *h, double share)
{
	double wanted = share * (double)h->count;
	uint64_t seen = 0;

	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		seen += h->buckets[i];
		if (h->buckets[i] && (double)seen >= wanted)
			return hist_value(i);
	}
	return 0;
}

#endif
