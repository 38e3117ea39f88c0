/* SPDX-License-Identifier: MIT */
/*
 * What iostat and fio print of a disk, from two readings of its counters.
 * The columns of `iostat -x` are a table: the header, the line and the JSON
 * are made from it.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#define NAME_WIDTH 13

/* What happened between two samples. */
struct delta {
	double seconds;
	struct queue_stat stat;
};

static uint64_t
minus(uint64_t to, uint64_t from)
{
	return to > from ? to - from : 0;
}

static void
delta_init(struct delta *d, const struct sample *from, const struct sample *to)
{
	const struct queue_stat *a = &from->stat, *b = &to->stat;

	*d = (struct delta){
		.seconds = (double)minus(to->now_ns, from->now_ns) / 1e9,
		.stat.in_flight = b->in_flight,
		.stat.io_ticks_ms = minus(b->io_ticks_ms, a->io_ticks_ms),
		.stat.in_queue_ms = minus(b->in_queue_ms, a->in_queue_ms),
	};
	for (unsigned g = 0; g < STAT_NR; g++) {
		d->stat.ios[g] = minus(b->ios[g], a->ios[g]);
		d->stat.merges[g] = minus(b->merges[g], a->merges[g]);
		d->stat.sectors[g] = minus(b->sectors[g], a->sectors[g]);
		d->stat.ticks_ms[g] = minus(b->ticks_ms[g], a->ticks_ms[g]);
	}
}

/* a / b, and 0 where nothing happened */
static double
ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

/* ---- the columns (sysstat's rd_stats.c) */

static double
ios_a_second(const struct delta *d, enum stat_group g)
{
	return ratio((double)d->stat.ios[g], d->seconds);
}

static double
kib_a_second(const struct delta *d, enum stat_group g)
{
	return ratio((double)d->stat.sectors[g] / 2, d->seconds);
}

static double
merges_a_second(const struct delta *d, enum stat_group g)
{
	return ratio((double)d->stat.merges[g], d->seconds);
}

static double
merge_percent(const struct delta *d, enum stat_group g)
{
	double merges = (double)d->stat.merges[g];

	return ratio(100 * merges, merges + (double)d->stat.ios[g]);
}

static double
await_ms(const struct delta *d, enum stat_group g)
{
	return ratio((double)d->stat.ticks_ms[g], (double)d->stat.ios[g]);
}

static double
size_kib(const struct delta *d, enum stat_group g)
{
	return ratio((double)d->stat.sectors[g] / 2, (double)d->stat.ios[g]);
}

static double
queue_size(const struct delta *d, enum stat_group g)
{
	(void)g;
	return ratio((double)d->stat.in_queue_ms, d->seconds * 1000);
}

static double
util_percent(const struct delta *d, enum stat_group g)
{
	double util =
	    ratio(100 * (double)d->stat.io_ticks_ms, d->seconds * 1000);

	(void)g;
	return util < 100 ? util : 100;
}

struct column {
	const char *name;
	double (*value)(const struct delta *d, enum stat_group g);
	enum stat_group group;
	int width; /* with the blank before it */
};

static const struct column columns[] = {
	{ "r/s", ios_a_second, STAT_READ, 8 },
	{ "rkB/s", kib_a_second, STAT_READ, 10 },
	{ "rrqm/s", merges_a_second, STAT_READ, 9 },
	{ "%rrqm", merge_percent, STAT_READ, 7 },
	{ "r_await", await_ms, STAT_READ, 8 },
	{ "rareq-sz", size_kib, STAT_READ, 9 },
	{ "w/s", ios_a_second, STAT_WRITE, 8 },
	{ "wkB/s", kib_a_second, STAT_WRITE, 10 },
	{ "wrqm/s", merges_a_second, STAT_WRITE, 9 },
	{ "%wrqm", merge_percent, STAT_WRITE, 7 },
	{ "w_await", await_ms, STAT_WRITE, 8 },
	{ "wareq-sz", size_kib, STAT_WRITE, 9 },
	{ "d/s", ios_a_second, STAT_DISCARD, 8 },
	{ "dkB/s", kib_a_second, STAT_DISCARD, 10 },
	{ "drqm/s", merges_a_second, STAT_DISCARD, 9 },
	{ "%drqm", merge_percent, STAT_DISCARD, 7 },
	{ "d_await", await_ms, STAT_DISCARD, 8 },
	{ "dareq-sz", size_kib, STAT_DISCARD, 9 },
	{ "f/s", ios_a_second, STAT_FLUSH, 8 },
	{ "f_await", await_ms, STAT_FLUSH, 8 },
	{ "aqu-sz", queue_size, STAT_READ, 8 },
	{ "%util", util_percent, STAT_READ, 7 },
	{},
};

void
iostat_header(bool extended, FILE *out)
{
	fprintf(out, "%-*s", NAME_WIDTH, "Device");
	if (extended)
		for (const struct column *c = columns; c->name != NULL; c++)
			fprintf(out, "%*s", c->width, c->name);
	else
		fprintf(out, "%10s%13s%13s%13s%11s%11s%11s", "tps", "kB_read/s",
		    "kB_wrtn/s", "kB_dscd/s", "kB_read", "kB_wrtn", "kB_dscd");
	fputc('\n', out);
}

static void
short_line(const struct delta *d, FILE *out)
{
	static const enum stat_group groups[] = { STAT_READ, STAT_WRITE,
		STAT_DISCARD };
	double tps = 0;

	for (unsigned i = 0; i < 3; i++)
		tps += ios_a_second(d, groups[i]);
	fprintf(out, "%10.2f", tps);
	for (unsigned i = 0; i < 3; i++)
		fprintf(out, "%13.2f", kib_a_second(d, groups[i]));
	for (unsigned i = 0; i < 3; i++)
		fprintf(out, "%11" PRIu64, d->stat.sectors[groups[i]] / 2);
}

void
iostat_line(bool extended, const char *name, const struct sample *from,
    const struct sample *to, FILE *out)
{
	struct delta d;

	delta_init(&d, from, to);
	fprintf(out, "%-*s", NAME_WIDTH, name);
	if (extended)
		for (const struct column *c = columns; c->name != NULL; c++)
			fprintf(out, " %*.2f", c->width - 1,
			    c->value(&d, c->group));
	else
		short_line(&d, out);
	fputc('\n', out);
}

json_t *
iostat_json(const struct sample *from, const struct sample *to)
{
	json_t *json = json_object();
	struct delta d;
	int bad = 0;

	delta_init(&d, from, to);
	for (const struct column *c = columns; c->name != NULL; c++)
		bad |= json_object_set_new(
		    json, c->name, json_real(c->value(&d, c->group)));
	if (bad == 0)
		return json;
	json_decref(json);
	return NULL;
}

void
fio_line(bool sectors, const char *name, const struct sample *from,
    const struct sample *to, FILE *out)
{
	struct delta d;
	const struct queue_stat *st = &d.stat;

	delta_init(&d, from, to);
	fprintf(out, "  %s: ios=%" PRIu64 "/%" PRIu64, name, st->ios[STAT_READ],
	    st->ios[STAT_WRITE]);
	if (sectors)
		fprintf(out, ", sectors=%" PRIu64 "/%" PRIu64,
		    st->sectors[STAT_READ], st->sectors[STAT_WRITE]);
	fprintf(out,
	    ", merge=%" PRIu64 "/%" PRIu64 ", ticks=%" PRIu64 "/%" PRIu64
	    ", in_queue=%" PRIu64 ", util=%.2f%%",
	    st->merges[STAT_READ], st->merges[STAT_WRITE],
	    st->ticks_ms[STAT_READ], st->ticks_ms[STAT_WRITE], st->in_queue_ms,
	    util_percent(&d, STAT_READ));
}

/* ---- samples as JSON */

json_t *
sample_pack(const struct sample *s)
{
	const struct queue_stat *st = &s->stat;
	json_t *json;
	int bad = 0;

	json = json_pack("{s:I, s:I, s:[I,I], s:I, s:I}", "now_ns",
	    (json_int_t)s->now_ns, "in_flight", (json_int_t)st->in_flight,
	    "inflight", (json_int_t)st->inflight_rw[0],
	    (json_int_t)st->inflight_rw[1], "io_ticks_ms",
	    (json_int_t)st->io_ticks_ms, "in_queue_ms",
	    (json_int_t)st->in_queue_ms);
	for (unsigned g = 0; g < STAT_NR; g++)
		bad |= json_object_set_new(json, group_names[g],
		    json_pack("{s:I, s:I, s:I, s:I}", "ios",
			(json_int_t)st->ios[g], "merges",
			(json_int_t)st->merges[g], "sectors",
			(json_int_t)st->sectors[g], "ticks_ms",
			(json_int_t)st->ticks_ms[g]));
	if (bad == 0)
		return json;
	json_decref(json);
	return NULL;
}

int
sample_unpack(json_t *json, struct sample *out)
{
	json_int_t now, ticks, in_queue, v[4];

	*out = (struct sample){};
	if (json_unpack(json, "{s:I, s:I, s:I}", "now_ns", &now, "io_ticks_ms",
		&ticks, "in_queue_ms", &in_queue) != 0)
		return -EINVAL;
	out->now_ns = (uint64_t)now;
	out->stat.io_ticks_ms = (uint64_t)ticks;
	out->stat.in_queue_ms = (uint64_t)in_queue;
	for (unsigned g = 0; g < STAT_NR; g++) {
		if (json_unpack(json, "{s:{s:I, s:I, s:I, s:I}}",
			group_names[g], "ios", &v[0], "merges", &v[1],
			"sectors", &v[2], "ticks_ms", &v[3]) != 0)
			return -EINVAL;
		out->stat.ios[g] = (uint64_t)v[0];
		out->stat.merges[g] = (uint64_t)v[1];
		out->stat.sectors[g] = (uint64_t)v[2];
		out->stat.ticks_ms[g] = (uint64_t)v[3];
	}
	return 0;
}
