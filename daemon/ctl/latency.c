/* SPDX-License-Identifier: MIT */
/*
 * How long requests take, from when they are set up until they end, as the
 * ticks of /sys/block/X/stat count it: as JSON over the control socket, and
 * from that the percentiles as fio prints them.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#define A_LINE 4u /* percentiles */

const char *const group_names[STAT_NR] = {
	[STAT_READ] = "read",
	[STAT_WRITE] = "write",
	[STAT_DISCARD] = "discard",
	[STAT_FLUSH] = "flush",
};

static const double percentiles[] = { 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90,
	95, 99, 99.5, 99.9, 99.95, 99.99 };
#define NR_PERCENTILES (sizeof(percentiles) / sizeof(percentiles[0]))

/* ---- to JSON */

/* Only the buckets that counted any. */
static json_t *
buckets_pack(const struct latency *l)
{
	json_t *buckets = json_array();
	int bad = 0;

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		if (latency_get(l, i) != 0)
			bad |= json_array_append_new(
			    buckets, json_pack("{s:I, s:I}", "from_ns",
					 (json_int_t)latency_from(i), "count",
					 (json_int_t)latency_get(l, i)));
	if (bad == 0)
		return buckets;
	json_decref(buckets);
	return NULL;
}

static json_t *
percentiles_pack(const struct latency *l)
{
	json_t *json = json_object();
	char name[16];
	int bad = 0;

	for (size_t i = 0; i < NR_PERCENTILES; i++) {
		snprintf(name, sizeof(name), "%.2f", percentiles[i]);
		bad |= json_object_set_new(json, name,
		    json_integer(
			(json_int_t)latency_percentile(l, percentiles[i])));
	}
	if (bad == 0)
		return json;
	json_decref(json);
	return NULL;
}

json_t *
latency_pack(const struct disk *d)
{
	struct latency *l = malloc(sizeof(*l));
	json_t *json = json_object();
	int bad = l == NULL;

	for (unsigned g = 0; bad == 0 && g < STAT_NR; g++) {
		stat_latency(d->queue, g, l);
		bad |= json_object_set_new(json, group_names[g],
		    json_pack("{s:I, s:I, s:o, s:o}", "count",
			(json_int_t)latency_count(l), "sum_ns",
			(json_int_t)latency_sum(l), "percentiles_ns",
			percentiles_pack(l), "buckets", buckets_pack(l)));
	}
	free(l);
	if (bad == 0)
		return json;
	json_decref(json);
	return NULL;
}

/* ---- to a person */

int
latency_unpack(json_t *json, enum stat_group g, struct latency *out)
{
	json_t *group = json_object_get(json, group_names[g]), *buckets, *b;
	json_int_t sum, from, count;
	size_t i;

	*out = (struct latency){};
	if (json_unpack(group, "{s:I, s:o}", "sum_ns", &sum, "buckets",
		&buckets) != 0 ||
	    !json_is_array(buckets))
		return -EINVAL;
	latency_put(out, 0, 0, (uint64_t)sum);
	json_array_foreach(buckets, i, b) {
		if (json_unpack(b, "{s:I, s:I}", "from_ns", &from, "count",
			&count) != 0)
			return -EINVAL;
		latency_put(
		    out, latency_index((uint64_t)from), (uint64_t)count, 0);
	}
	return 0;
}

/* As fio chooses: five digits are enough for the longest. */
static const struct scale {
	const char *name;
	uint64_t ns;
} scales[] = {
	{ "nsec", 1 },
	{ "usec", 1000 },
	{ "msec", 1000000 },
};

static const struct scale *
scale_for(uint64_t ns)
{
	const struct scale *s = scales;

	while (ns / s->ns > 99999 && s->ns < 1000000)
		s++;
	return s;
}

void
latency_print(enum stat_group g, const struct latency *l, FILE *out)
{
	const struct scale *s = scale_for(latency_percentile(l, 99.99));
	const char *before;

	fprintf(out, "  %s: %" PRIu64 ", avg=%.2f usec\n", group_names[g],
	    latency_count(l), latency_mean(l) / 1000);
	fprintf(out, "    lat percentiles (%s):\n", s->name);
	for (size_t i = 0; i < NR_PERCENTILES; i++) {
		before = i == 0 ? "     |" : i % A_LINE ? "," : ",\n     |";
		fprintf(out, "%s %5.2fth=[%5" PRIu64 "]", before,
		    percentiles[i],
		    latency_percentile(l, percentiles[i]) / s->ns);
	}
	fputc('\n', out);
}
