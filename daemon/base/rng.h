/* SPDX-License-Identifier: MIT */
/*
 * Random numbers that a seed decides (splitmix64): who draws passes its own
 * generator, so that what others draw changes nothing for it.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
	uint64_t state;
};

/* Any 64 bits. */
static inline uint64_t
rng_next(struct rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* One of the generators that a seed has, by its number. */
static inline struct rng
rng_stream(uint64_t seed, uint64_t number)
{
	struct rng r = { seed };

	r.state = rng_next(&r) ^ number;
	r.state = rng_next(&r);
	return r;
}

/* 0 to n - 1; 0 when n is. */
static inline uint64_t
rng_below(struct rng *r, uint64_t n)
{
	return (uint64_t)((unsigned __int128)rng_next(r) * n >> 64);
}

#endif
