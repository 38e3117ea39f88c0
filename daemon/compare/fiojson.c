/* SPDX-License-Identifier: MIT */
/*
 * What fio says of one run.  Jobs are added up: rates and counts, means by how
 * many each is of, and latencies' histograms, of which the percentiles are
 * taken as fio does it.  (With group_reporting fio has added some up itself.)
 */
#include "compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_name[NR_RUN_OPS] = { "read", "write", "trim" };

/* Those of report A, and those that fio's text has. */
static const struct {
	const char *name;
	double p;
	bool headline;
} percentiles[] = { { "p50", .5, true }, { "p90", .9, false },
	{ "p99", .99, true }, { "p99.9", .999, false },
	{ "p99.99", .9999, false }, {} };

/* A mean of `nr` values; means of several jobs are weighed so. */
struct mean {
	double sum;
	double nr;
};

/* Of a direction, in all jobs. */
struct direction {
	double iops, bw, ios;
	struct mean slat_ns, clat_ns, lat_ns;
};

struct reading {
	struct figures *figures;
	struct direction dir[NR_RUN_OPS];
	double syncs;
	struct mean sync_ns;
	struct mean usr, sys; /* percent of a CPU, by the job's time */
	double ctx, majf, minf;
};

static double
number(const json_t *object, const char *member)
{
	return json_number_value(json_object_get(object, member));
}

static void
mean_add(struct mean *m, double mean, double nr)
{
	m->sum += mean * nr;
	m->nr += nr;
}

static void
mean_read(struct mean *m, const json_t *dir, const char *member)
{
	const json_t *lat = json_object_get(dir, member);

	mean_add(m, number(lat, "mean"), number(lat, "N"));
}

/* "bins": { "28288": 1, ... }: a latency in ns, and how many had it */
static int
bins_read(struct buckets *b, const json_t *bins, char **error)
{
	json_t *count;
	const char *key;
	char *end;
	double at;
	int ret;

	json_object_foreach((json_t *)(uintptr_t)bins, key, count) {
		at = strtod(key, &end);
		if (end == key || *end != '\0' || !(at >= 0) ||
		    !json_is_integer(count) || json_integer_value(count) < 0)
			return compare_error(
			    error, "bins: \"%s\" is not a latency", key);
		ret = buckets_add(b, at, (uint64_t)json_integer_value(count));
		if (ret != 0)
			return ret;
	}
	return 0;
}

/* ---- what was read becomes figures */

static int
direction_read(
    struct direction *d, const json_t *dir, struct buckets *clat, char **error)
{
	d->iops += number(dir, "iops");
	d->bw += number(dir, "bw_bytes") / 1024;
	d->ios += number(dir, "total_ios");
	mean_read(&d->slat_ns, dir, "slat_ns");
	mean_read(&d->clat_ns, dir, "clat_ns");
	mean_read(&d->lat_ns, dir, "lat_ns");
	return bins_read(clat,
	    json_object_get(json_object_get(dir, "clat_ns"), "bins"), error);
}

static const char *
error_text(json_int_t error)
{
	if (error == EILSEQ) /* fio's for that */
		return "verify: this is not what was written";
	return strerror(error > 0 && error < 4096 ? (int)error : EIO);
}

static int
job_read(struct reading *r, const json_t *job, struct run *run, char **error)
{
	const char *name = json_string_value(json_object_get(job, "jobname"));
	const json_t *dir, *sync = json_object_get(job, "sync");
	json_int_t failed = json_integer_value(json_object_get(job, "error"));
	double ms = number(job, "job_runtime");
	unsigned op;
	int ret;

	if (failed != 0)
		return compare_error(error, "fio's job %s: %s",
		    name != NULL ? name : "?", error_text(failed));
	for (op = 0; op < NR_RUN_OPS; op++) {
		dir = json_object_get(job, op_name[op]);
		ret =
		    direction_read(&r->dir[op], dir, &run->clat_ns[op], error);
		if (ret != 0)
			return ret;
	}
	r->syncs += number(sync, "total_ios");
	mean_read(&r->sync_ns, sync, "lat_ns");
	mean_add(&r->usr, number(job, "usr_cpu"), ms);
	mean_add(&r->sys, number(job, "sys_cpu"), ms);
	r->ctx += number(job, "ctx");
	r->majf += number(job, "majf");
	r->minf += number(job, "minf");
	return 0;
}

/* Nothing where fio was told not to measure it. */
static void
add_mean(struct adding *a, const struct mean *m, bool headline,
    const char *what, const char *kind)
{
	if (m->nr > 0)
		figures_put(a, "us", BETTER_LOWER, headline,
		    m->sum / m->nr / 1e3, "fio.%s.%s.mean", what, kind);
}

/*
 * How long an I/O takes is a headline as the mean, what all of them take; as
 * the median, which a machine that stalls now and then does not move; and as
 * p99, the worst that still are many.
 */
static void
add_direction(struct adding *a, const struct direction *d,
    const struct buckets *clat, const char *op)
{
	unsigned i;

	figures_put(a, "", BETTER_HIGHER, false, d->iops, "fio.%s.iops", op);
	figures_put(a, "KiB/s", BETTER_HIGHER, false, d->bw, "fio.%s.bw", op);
	add_mean(a, &d->slat_ns, false, op, "slat");
	add_mean(a, &d->clat_ns, false, op, "clat");
	add_mean(a, &d->lat_ns, true, op, "lat");
	for (i = 0; percentiles[i].name != NULL && clat->nr > 0; i++)
		figures_put(a, "us", BETTER_LOWER, percentiles[i].headline,
		    buckets_quantile(clat, percentiles[i].p) / 1e3,
		    "fio.%s.clat.%s", op, percentiles[i].name);
}

static int
add_figures(const struct reading *r, const struct run *run)
{
	struct adding a = { .figures = r->figures, .side = run->side };
	double iops = 0, bw = 0;
	unsigned op;

	for (op = 0; op < NR_RUN_OPS; op++) {
		iops += r->dir[op].iops;
		bw += r->dir[op].bw;
	}
	figures_put(&a, "", BETTER_HIGHER, true, iops, "fio.iops");
	figures_put(&a, "KiB/s", BETTER_HIGHER, true, bw, "fio.bw");
	for (op = 0; op < NR_RUN_OPS; op++)
		if (r->dir[op].ios > 0)
			add_direction(
			    &a, &r->dir[op], &run->clat_ns[op], op_name[op]);
	if (r->syncs > 0)
		add_mean(&a, &r->sync_ns, true, "sync", "lat");
	if (r->usr.nr > 0) {
		figures_put(&a, "%", BETTER_LOWER, false,
		    r->usr.sum / r->usr.nr, "fio.cpu.usr");
		figures_put(&a, "%", BETTER_LOWER, false,
		    r->sys.sum / r->sys.nr, "fio.cpu.sys");
	}
	figures_put(&a, "", BETTER_NEITHER, false, r->ctx, "fio.ctx");
	figures_put(
	    &a, "", BETTER_LOWER, false, r->ctx / run->ios, "fio.ctx_per_io");
	figures_put(&a, "", BETTER_NEITHER, false, r->majf, "fio.majf");
	figures_put(&a, "", BETTER_NEITHER, false, r->minf, "fio.minf");
	return a.ret;
}

int
fiojson_read(
    const json_t *fio, struct figures *f, struct run *run, char **error)
{
	const json_t *jobs = json_object_get(fio, "jobs"), *job;
	struct reading r = { .figures = f };
	size_t i;
	int ret;

	*error = NULL;
	run->ios = 0;
	if (!json_is_array(jobs) || json_array_size(jobs) == 0)
		return compare_error(error, "fio's JSON has no jobs");
	json_array_foreach(jobs, i, job) {
		ret = job_read(&r, job, run, error);
		if (ret != 0)
			return ret;
	}
	for (i = 0; i < NR_RUN_OPS; i++)
		run->ios += r.dir[i].ios;
	if (run->ios == 0)
		return compare_error(error, "fio has done no I/O");
	return add_figures(&r, run);
}

/* ---- logs */

/* Add a rate that held from one time to another, in bins of so many seconds. */
static int
series_add(struct series *s, double bin, double from, double to, double rate)
{
	/* what ends where a bin begins is not in that one */
	size_t last = (size_t)ceil(to / bin - 1e-6) - 1;
	size_t first = (size_t)(from / bin), i;
	double begin, end, *p;

	if (last >= SERIES_MAX)
		return -EINVAL;
	if (last >= s->nr) {
		p = realloc(s->value, (last + 1) * sizeof(*p));
		if (p == NULL)
			return -ENOMEM;
		s->value = p;
		p = realloc(s->at, (last + 1) * sizeof(*p));
		if (p == NULL)
			return -ENOMEM;
		s->at = p;
		for (; s->nr <= last; s->nr++) {
			s->at[s->nr] = ((double)s->nr + .5) * bin;
			s->value[s->nr] = 0;
		}
	}
	for (i = first; i <= last; i++) {
		begin = fmax(from, (double)i * bin);
		end = fmin(to, (double)(i + 1) * bin);
		s->value[i] += rate * (end - begin) / bin;
	}
	return 0;
}

/* The last points are of some logs only. */
static void
series_trim(struct series *s, double bin, double end)
{
	size_t whole = (size_t)(end / bin + 1e-6);

	if (s->nr_logs++ == 0 || whole < s->nr_whole)
		s->nr_whole = whole;
	s->nr_whole = s->nr_whole < s->nr ? s->nr_whole : s->nr;
}

/* A line: time in ms, a mean since the line before, direction, size, priority
 */
int
fiojson_iops_log(FILE *log, double bin, struct series *iops)
{
	double last[NR_RUN_OPS] = {}, end = 0;
	unsigned long long ms;
	double value, now;
	unsigned dir;
	char line[256];
	int ret;

	while (fgets(line, sizeof(line), log) != NULL) {
		if (sscanf(line, "%llu, %lf, %u", &ms, &value, &dir) != 3 ||
		    dir >= NR_RUN_OPS || !(value >= 0))
			return -EINVAL;
		now = (double)ms / 1e3;
		if (now <= last[dir])
			continue;
		ret = series_add(iops, bin, last[dir], now, value);
		if (ret != 0)
			return ret;
		last[dir] = now;
		end = fmax(end, now);
	}
	series_trim(iops, bin, end);
	return ferror(log) ? -EIO : 0;
}
