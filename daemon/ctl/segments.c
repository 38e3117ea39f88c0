/* SPDX-License-Identifier: MIT */
/*
 * What becomes of bvecs: how many a bio has, how many segments and sectors
 * the requests have that are made of it, why it was split, and why it did not
 * merge.  As JSON over the control socket, and from that as tables.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>

const char *const split_names[SPLIT_NR] = {
	[SPLIT_SIZE] = "size",
	[SPLIT_CHUNK] = "chunk",
	[SPLIT_SEGMENTS] = "segments",
	[SPLIT_GAP] = "gap",
};

const char *const refusal_names[REFUSED_NR] = {
	[REFUSED_SIZE] = "size",
	[REFUSED_CHUNK] = "chunk",
	[REFUSED_SEGMENTS] = "segments",
	[REFUSED_GAP] = "gap",
	[REFUSED_CLOSED] = "closed",
	[REFUSED_PRIORITY] = "priority",
};

/* The histograms: where they are, and what a person calls them. */
static const struct figure {
	const char *name;
	size_t offset; /* in struct queue_stat */
	const char *title;
} figures[] = {
	{ "bvecs_per_bio", offsetof(struct queue_stat, bvecs),
	    "bvecs of a bio, as it was submitted" },
	{ "segments_per_request", offsetof(struct queue_stat, segments),
	    "segments of a request" },
	{ "sectors_per_request", offsetof(struct queue_stat, request_sectors),
	    "sectors of a request" },
	{},
};

/* ---- to JSON */

static json_t *
bucket_pack(const struct hist *h, unsigned i)
{
	json_int_t from = (json_int_t)hist_from(i);
	json_int_t count = (json_int_t)hist_get(h, i);

	if (i == HIST_BUCKETS - 1)
		return json_pack("{s:I, s:I}", "from", from, "count", count);
	return json_pack("{s:I, s:I, s:I}", "from", from, "to",
	    (json_int_t)hist_from(i + 1) - 1, "count", count);
}

/* Only the buckets that counted any. */
static json_t *
hist_pack(const struct hist *h)
{
	json_t *buckets = json_array();
	int bad = 0;

	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		if (hist_get(h, i) != 0)
			bad |=
			    json_array_append_new(buckets, bucket_pack(h, i));
	if (bad != 0) {
		json_decref(buckets);
		return NULL;
	}
	return json_pack("{s:I, s:I, s:o}", "count", (json_int_t)hist_count(h),
	    "sum", (json_int_t)hist_sum(h), "buckets", buckets);
}

static json_t *
causes_pack(const char *const *names, const uint64_t *counts, unsigned nr)
{
	json_t *json = json_object();
	int bad = 0;

	for (unsigned i = 0; i < nr; i++)
		bad |= json_object_set_new(
		    json, names[i], json_integer((json_int_t)counts[i]));
	if (bad == 0)
		return json;
	json_decref(json);
	return NULL;
}

int
segments_add(json_t *json, const struct queue_stat *st)
{
	int bad = 0;

	for (const struct figure *f = figures; f->name != NULL; f++)
		bad |= json_object_set_new(json, f->name,
		    hist_pack(
			(const struct hist *)((const char *)st + f->offset)));
	bad |= json_object_set_new(
	    json, "splits", causes_pack(split_names, st->splits, SPLIT_NR));
	bad |= json_object_set_new(json, "refused_merges",
	    causes_pack(refusal_names, st->refused, REFUSED_NR));
	return bad;
}

json_t *
segments_pack(const struct disk *d, uint64_t now)
{
	const struct queue *q = d->queue;
	const struct limits *lim = &q->limits;
	struct queue_stat st;
	json_t *json;

	stat_read(d->queue, &st, now);
	json = json_pack("{s:s, s:s, s:b, s:i, s:b, s:I, s:I, s:I}", "name",
	    d->name, "kernel", q->profile->name, "multipage_bvec",
	    q->conf.multipage, "page_order", (int)d->conf.page_order, "iostats",
	    q->conf.iostats, "max_sectors", (json_int_t)lim->max_sectors,
	    "max_segments", (json_int_t)lim->max_segments, "max_segment_size",
	    (json_int_t)lim->max_segment_size);
	if (segments_add(json, &st) == 0)
		return json;
	json_decref(json);
	return NULL;
}

/* ---- to a person */

static int
hist_unpack(json_t *json, struct hist *out)
{
	json_int_t count, sum, from;
	json_t *buckets, *b;
	size_t i;

	*out = (struct hist){};
	if (json_unpack(json, "{s:I, s:o}", "sum", &sum, "buckets", &buckets) !=
		0 ||
	    !json_is_array(buckets))
		return -EINVAL;
	hist_put(out, 0, 0, (uint64_t)sum);
	json_array_foreach(buckets, i, b) {
		if (json_unpack(
			b, "{s:I, s:I}", "from", &from, "count", &count) != 0)
			return -EINVAL;
		hist_put(out, hist_index((uint64_t)from), (uint64_t)count, 0);
	}
	return 0;
}

static int
figure_print(const struct figure *f, json_t *json, FILE *out)
{
	struct hist h;
	int ret = hist_unpack(json_object_get(json, f->name), &h);

	if (ret != 0)
		return ret;
	fprintf(out, "\n%s: %" PRIu64, f->title, hist_count(&h));
	if (hist_count(&h) != 0)
		fprintf(out, ", %.2f on average", hist_mean(&h));
	fputc('\n', out);
	hist_print(&h, out);
	return 0;
}

/* A row of counts; a dash where this has no such cause. */
static int
causes_print(const char *title, json_t *causes, FILE *out)
{
	if (!json_is_object(causes))
		return -EINVAL;
	fprintf(out, "%-14s", title);
	for (unsigned i = 0; i < REFUSED_NR; i++) {
		json_t *count = json_object_get(causes, refusal_names[i]);

		if (count == NULL)
			fprintf(out, " %10s", "-");
		else
			fprintf(out, " %10" PRIu64,
			    (uint64_t)json_integer_value(count));
	}
	fputc('\n', out);
	return 0;
}

static int
head_print(json_t *json, FILE *out)
{
	const char *name, *kernel;
	json_int_t max_sectors, max_segments, max_segment_size;
	int multipage, page_order, iostats;

	if (json_unpack(json, "{s:s, s:s, s:b, s:i, s:b, s:I, s:I, s:I}",
		"name", &name, "kernel", &kernel, "multipage_bvec", &multipage,
		"page_order", &page_order, "iostats", &iostats, "max_sectors",
		&max_sectors, "max_segments", &max_segments, "max_segment_size",
		&max_segment_size) != 0)
		return -EINVAL;
	fprintf(out,
	    "%s: kernel %s, %s-page bvecs, page_order %d; a request has at "
	    "most\n"
	    "%" PRId64 " sectors, in %" PRId64 " segments of %" PRId64
	    " bytes\n",
	    name, kernel, multipage ? "multi" : "single", page_order,
	    (int64_t)max_sectors, (int64_t)max_segments,
	    (int64_t)max_segment_size);
	if (!iostats)
		fputs("iostats is off: nothing is counted\n", out);
	return 0;
}

int
segments_print(json_t *json, FILE *out)
{
	int ret = head_print(json, out);

	for (const struct figure *f = figures; ret == 0 && f->name != NULL; f++)
		ret = figure_print(f, json, out);
	if (ret != 0)
		return ret;
	fprintf(out, "\n%-14s", "because of");
	for (unsigned i = 0; i < REFUSED_NR; i++)
		fprintf(out, " %10s", refusal_names[i]);
	fputc('\n', out);
	ret = causes_print("splits", json_object_get(json, "splits"), out);
	if (ret != 0)
		return ret;
	return causes_print(
	    "refused merges", json_object_get(json, "refused_merges"), out);
}
