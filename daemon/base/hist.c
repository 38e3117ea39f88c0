/* SPDX-License-Identifier: MIT */
/* What is done with a histogram when it is read. */
#include "base/hist.h"

#include <inttypes.h>

#define BAR_WIDTH  30
#define RANGE_SIZE 44 /* two numbers of 64 bits */

void
hist_merge(struct hist *to, const struct hist *from)
{
	unsigned i;

	hist_put(to, 0, 0, hist_sum(from));
	for (i = 0; i < HIST_BUCKETS; i++)
		hist_put(to, i, hist_get(from, i), 0);
}

uint64_t
hist_count(const struct hist *h)
{
	uint64_t nr = 0;
	unsigned i;

	for (i = 0; i < HIST_BUCKETS; i++)
		nr += hist_get(h, i);
	return nr;
}

double
hist_mean(const struct hist *h)
{
	uint64_t nr = hist_count(h);

	return nr != 0 ? (double)hist_sum(h) / (double)nr : 0;
}

/* "4-7", "1", "4194304+" */
static void
range_print(unsigned bucket, char *text, size_t size)
{
	uint64_t from = hist_from(bucket);

	if (bucket == HIST_BUCKETS - 1)
		snprintf(text, size, "%" PRIu64 "+", from);
	else if (bucket < 2)
		snprintf(text, size, "%" PRIu64, from);
	else
		snprintf(text, size, "%" PRIu64 "-%" PRIu64, from,
		    hist_from(bucket + 1) - 1);
}

static void
bucket_print(const struct hist *h, unsigned bucket, uint64_t all, FILE *out)
{
	static const char bar[BAR_WIDTH + 1] = "##############################";
	double share = (double)hist_get(h, bucket) / (double)all;
	int width = (int)(share * BAR_WIDTH + 0.5);
	char range[RANGE_SIZE];

	range_print(bucket, range, sizeof(range));
	fprintf(out, "%17s %12" PRIu64 " %6.2f%%%s%.*s\n", range,
	    hist_get(h, bucket), 100 * share, width > 0 ? " " : "", width, bar);
}

void
hist_print(const struct hist *h, FILE *out)
{
	unsigned first = 0, last = HIST_BUCKETS, i;
	uint64_t all = hist_count(h);

	if (all == 0)
		return;
	while (hist_get(h, first) == 0)
		first++;
	while (hist_get(h, last - 1) == 0)
		last--;
	for (i = first; i < last; i++)
		bucket_print(h, i, all, out);
}
