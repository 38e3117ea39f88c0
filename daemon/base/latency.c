/* SPDX-License-Identifier: MIT */
/* What is done with a histogram of times when it is read. */
#include "base/latency.h"

void
latency_merge(struct latency *to, const struct latency *from)
{
	unsigned i;

	latency_put(to, 0, 0, latency_sum(from));
	for (i = 0; i < LATENCY_BUCKETS; i++)
		latency_put(to, i, latency_get(from, i), 0);
}

void
latency_take(struct latency *to, const struct latency *from)
{
	unsigned i;

	latency_put(to, 0, 0, -latency_sum(from));
	for (i = 0; i < LATENCY_BUCKETS; i++)
		latency_put(to, i, -latency_get(from, i), 0);
}

uint64_t
latency_count(const struct latency *l)
{
	uint64_t nr = 0;
	unsigned i;

	for (i = 0; i < LATENCY_BUCKETS; i++)
		nr += latency_get(l, i);
	return nr;
}

double
latency_mean(const struct latency *l)
{
	uint64_t nr = latency_count(l);

	return nr != 0 ? (double)latency_sum(l) / (double)nr : 0;
}

/* The bucket that has the nth of them, from 1 on. */
static unsigned
bucket_of(const struct latency *l, uint64_t nth)
{
	uint64_t seen = 0;
	unsigned i;

	for (i = 0; i < LATENCY_BUCKETS - 1; i++) {
		seen += latency_get(l, i);
		if (seen >= nth)
			break;
	}
	return i;
}

uint64_t
latency_percentile(const struct latency *l, double percent)
{
	uint64_t nr = latency_count(l), nth, from, to;
	double exactly = percent / 100 * (double)nr;
	unsigned i;

	if (nr == 0)
		return 0;
	nth = (uint64_t)exactly;
	if (nth == 0 || (double)nth < exactly)
		nth++;
	i = bucket_of(l, nth);
	from = latency_from(i);
	to = latency_from(i + 1);
	return from + (to - 1 - from) / 2;
}
