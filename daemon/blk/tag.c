/* SPDX-License-Identifier: MIT */
/*
 * The tags of a hardware queue: a bitmap that any thread may take from.  The
 * lowest free tag first, so that few requests stay warm when the depth is
 * not used.
 */
#include "blk/internal.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#define WORD_BITS 64u

struct tags {
	unsigned refs; /* hardware queues that have them */
	unsigned nr;
	_Atomic unsigned limit;
	_Atomic uint64_t word[]; /* a bit is set while the tag is taken */
};

struct tags *
tags_new(unsigned nr)
{
	unsigned words = (nr + WORD_BITS - 1) / WORD_BITS;
	struct tags *t;

	assert(nr > 0);
	t = calloc(1, sizeof(*t) + words * sizeof(t->word[0]));
	if (t == NULL)
		return NULL;
	t->refs = 1;
	t->nr = nr;
	atomic_init(&t->limit, nr);
	return t;
}

struct tags *
tags_share(struct tags *t)
{
	t->refs++;
	return t;
}

void
tags_free(struct tags *t)
{
	if (t != NULL && --t->refs == 0)
		free(t);
}

/* The bits of word i that may be used. */
static uint64_t
usable(unsigned limit, unsigned i)
{
	unsigned left = limit - i * WORD_BITS;

	return left >= WORD_BITS ? UINT64_MAX : (UINT64_C(1) << left) - 1;
}

int
tags_get(struct tags *t)
{
	return tags_get_below(t, UINT_MAX);
}

int
tags_get_below(struct tags *t, unsigned max)
{
	unsigned limit = atomic_load_explicit(&t->limit, memory_order_relaxed);
	unsigned i;

	if (limit > max)
		limit = max;

	for (i = 0; i * WORD_BITS < limit; i++) {
		uint64_t mask = usable(limit, i);
		/* in order: who noted that it waits must see what is free */
		uint64_t old = atomic_load(&t->word[i]);

		while ((~old & mask) != 0) {
			unsigned bit = (unsigned)__builtin_ctzll(~old & mask);

			if (atomic_compare_exchange_weak(
				&t->word[i], &old, old | UINT64_C(1) << bit))
				return (int)(i * WORD_BITS + bit);
		}
	}
	return -1;
}

void
tags_put(struct tags *t, int tag)
{
	uint64_t bit = UINT64_C(1) << ((unsigned)tag % WORD_BITS);
	uint64_t old;

	old = atomic_fetch_and(&t->word[(unsigned)tag / WORD_BITS], ~bit);
	assert((old & bit) != 0);
	(void)old;
}

void
tags_limit(struct tags *t, unsigned nr)
{
	assert(nr > 0);
	assert(nr <= t->nr);
	atomic_store(&t->limit, nr);
}

unsigned
tags_in_use(const struct tags *t)
{
	unsigned i, nr = 0;

	for (i = 0; i * WORD_BITS < t->nr; i++)
		nr += (unsigned)__builtin_popcountll(atomic_load(&t->word[i]));
	return nr;
}
