/* SPDX-License-Identifier: MIT */
/* Histograms of any buckets: of several jobs, or several devices, added up. */
#include "compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BUCKETS (1u << 20)

void
buckets_fini(struct buckets *b)
{
	free(b->upto);
	free(b->count);
	memset(b, 0, sizeof(*b));
}

int
buckets_add(struct buckets *b, double upto, uint64_t count)
{
	size_t i = b->nr, max;
	uint64_t *c;
	double *u;

	while (i > 0 && b->upto[i - 1] > upto) /* most come in order */
		i--;
	if (i > 0 && b->upto[i - 1] == upto) {
		b->count[i - 1] += count;
		return 0;
	}
	if (b->nr == MAX_BUCKETS)
		return -ENOMEM;
	if ((b->nr & (b->nr - 1)) == 0) { /* a power of two is full */
		max = b->nr > 0 ? 2 * b->nr : 1;
		u = realloc(b->upto, max * sizeof(*u));
		if (u == NULL)
			return -ENOMEM;
		b->upto = u;
		c = realloc(b->count, max * sizeof(*c));
		if (c == NULL)
			return -ENOMEM;
		b->count = c;
	}
	memmove(&b->upto[i + 1], &b->upto[i], (b->nr - i) * sizeof(*b->upto));
	memmove(
	    &b->count[i + 1], &b->count[i], (b->nr - i) * sizeof(*b->count));
	b->upto[i] = upto;
	b->count[i] = count;
	b->nr++;
	return 0;
}

double
buckets_quantile(const struct buckets *b, double p)
{
	double total = 0, sum = 0;
	size_t i;

	for (i = 0; i < b->nr; i++)
		total += (double)b->count[i];
	for (i = 0; i < b->nr; i++) {
		sum += (double)b->count[i];
		if (sum >= ceil(p * total))
			break;
	}
	if (b->nr == 0)
		return 0;
	return b->upto[i < b->nr ? i : b->nr - 1];
}
