/* SPDX-License-Identifier: MIT */
/*
 * What C leaves to its users.
 */
#ifndef BASE_UTIL_H
#define BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define CACHE_LINE_SIZE 64u

/* The object that `ptr` points into, at this member. */
#define container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/*
 * calloc() for what has members on cache lines of their own.  free() it;
 * NULL when out of memory.
 */
static inline void *
aligned_calloc(size_t nr, size_t size)
{
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(nr, size, &bytes))
		return NULL;
	p = aligned_alloc(CACHE_LINE_SIZE, bytes);
	if (p != NULL)
		memset(p, 0, bytes);
	return p;
}

static inline uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline size_t
iov_bytes(const struct iovec *iov, int nr)
{
	size_t bytes = 0;

	while (nr-- > 0)
		bytes += iov[nr].iov_len;
	return bytes;
}

#endif
