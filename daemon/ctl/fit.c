/* SPDX-License-Identifier: MIT */
/*
 * A model of what was measured.  Each kind goes through two percentiles, of
 * which some pairs are tried: the nearest is the one whose largest error at
 * p50, p90, p99 and p99.9 is least.  A table goes through them all.
 */
#include "ctl/ctl.h"

#include <sys/stat.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PERCENT(p)  ((uint32_t)((p)*DIST_PERCENT + 0.5))
#define BLOCK       4096u
#define MAX_SLOPE   1e9 /* ns a block */
#define SIGNIFICANT 10000u

const double fit_percent[FIT_NR] = { 50, 90, 99, 99.9 };

/* Through which two a kind may go. */
static const double pairs[][2] = { { 50, 99 }, { 50, 90 }, { 50, 99.9 },
	{ 10, 90 }, { 10, 99 }, { 1, 99 }, { 90, 99 }, { 90, 99.9 } };
#define NR_PAIRS (sizeof(pairs) / sizeof(pairs[0]))

/* ---- what was measured, as a distribution */

/* To four digits: more says nothing, and reads badly. */
static uint64_t
rounded(uint64_t ns)
{
	uint64_t unit = 1;

	while (ns / unit >= SIGNIFICANT)
		unit *= 10;
	return (ns + unit / 2) / unit * unit;
}

/* The size of which there were most. */
static const struct measured *
most_of(const struct measured *of, size_t nr)
{
	const struct measured *most = of;

	for (size_t i = 1; i < nr; i++)
		if (of[i].nr > most->nr)
			most = of + i;
	return most;
}

static int
as_dist(const struct measured *of, struct dist *out)
{
	return dist_fit(out, "table", of->point, of->nr_points);
}

/*
 * Nanoseconds that a block more takes: least squares through the medians of the
 * sizes, each as heavy as it is often.
 */
static double
slope_of(const struct measured *of, size_t nr)
{
	double w = 0, x = 0, y = 0, xx = 0, xy = 0, slope;
	struct dist d;

	for (size_t i = 0; i < nr; i++) {
		double n = (double)of[i].nr, size = (double)of[i].bytes / BLOCK;
		double median;

		if (as_dist(&of[i], &d) != 0)
			return 0;
		median = (double)dist_at(&d, 0.5);
		w += n;
		x += n * size;
		y += n * median;
		xx += n * size * size;
		xy += n * size * median;
	}
	slope = w * xx - x * x > 0 ? (w * xy - x * y) / (w * xx - x * x) : 0;
	return slope >= 1 && slope < MAX_SLOPE ? slope : 0;
}

/* What it takes beside its bytes. */
static void
take_off(struct measured *m, uint64_t ns)
{
	for (unsigned i = 0; i < m->nr_points; i++)
		m->point[i].ns = m->point[i].ns > ns ? m->point[i].ns - ns : 0;
}

/* ---- a kind */

static void
judge(struct fit *f, const struct dist *measured, uint64_t nr)
{
	f->worst = 0;
	for (unsigned i = 0; i < FIT_NR; i++) {
		double u = fit_percent[i] / 100;
		double was;

		f->measured_ns[i] = dist_at(measured, u);
		f->model_ns[i] = dist_at(&f->dist, u);
		f->error[i] = NAN;
		if ((1 - u) * (double)nr < 1)
			continue;
		was = (double)f->measured_ns[i];
		f->error[i] = fabs((double)f->model_ns[i] - was) / fmax(was, 1);
		f->worst = fmax(f->worst, f->error[i]);
	}
}

/* Through one pair.  0 or -EINVAL. */
static int
fit_pair(const struct measured *m, const struct dist *measured,
    const char *kind, const double *pair, struct fit *out)
{
	struct dist_point p[2] = {
		{ PERCENT(pair[0]), rounded(dist_at(measured, pair[0] / 100)) },
		{ PERCENT(pair[1]), rounded(dist_at(measured, pair[1] / 100)) },
	};
	unsigned nr = strcmp(kind, "constant") == 0 ? 1 : 2;

	if (dist_fit(&out->dist, kind, p, nr) != 0)
		return -EINVAL;
	judge(out, measured, m->nr);
	return 0;
}

static int
fit_table(
    const struct measured *m, const struct dist *measured, struct fit *out)
{
	struct measured r = *m;

	for (unsigned i = 0; i < r.nr_points; i++)
		r.point[i].ns = rounded(r.point[i].ns);
	if (as_dist(&r, &out->dist) != 0)
		return -EINVAL;
	judge(out, measured, m->nr);
	return 0;
}

static int
fit_kind(const struct measured *m, const struct dist *measured,
    const char *kind, struct fit *out)
{
	struct fit one;
	int ret = -EINVAL;

	if (strcmp(kind, "table") == 0)
		return fit_table(m, measured, out);
	for (size_t i = 0; i < NR_PAIRS; i++) {
		if (fit_pair(m, measured, kind, pairs[i], &one) != 0)
			continue;
		if (ret != 0 || one.worst < out->worst)
			*out = one;
		ret = 0;
	}
	return ret;
}

/* The simplest one that will do. */
static int
fit_any(const struct measured *m, const struct dist *measured, struct fit *out)
{
	const char *kind;

	for (unsigned i = 0; (kind = dist_kind_name(i)) != NULL; i++)
		if (fit_kind(m, measured, kind, out) == 0 &&
		    out->worst < FIT_GOOD)
			return 0;
	return fit_table(m, measured, out);
}

/* Both at the size that was measured, with what its bytes take. */
static void
add_bytes(struct fit *f, uint64_t ns)
{
	f->worst = 0;
	for (unsigned i = 0; i < FIT_NR; i++) {
		f->measured_ns[i] += ns;
		f->model_ns[i] += ns;
		if (isnan(f->error[i]))
			continue;
		f->error[i] =
		    fabs((double)f->model_ns[i] - (double)f->measured_ns[i]) /
		    fmax((double)f->measured_ns[i], 1);
		f->worst = fmax(f->worst, f->error[i]);
	}
}

int
fit_model(
    const struct measured *of, size_t nr, const char *kind, struct fit *out)
{
	struct measured m;
	struct dist measured, bytes = {};
	int ret;

	if (nr == 0)
		return -EINVAL;
	m = *most_of(of, nr);
	bytes.size_bytes = BLOCK;
	bytes.size_ns = rounded((uint64_t)slope_of(of, nr));
	take_off(&m, dist_bytes(&bytes, m.bytes));
	if (as_dist(&m, &measured) != 0)
		return -EINVAL;
	ret = kind != NULL ? fit_kind(&m, &measured, kind, out)
			   : fit_any(&m, &measured, out);
	if (ret != 0 || bytes.size_ns == 0)
		return ret;
	out->dist.size_ns = bytes.size_ns;
	out->dist.size_bytes = bytes.size_bytes;
	add_bytes(out, dist_bytes(&bytes, m.bytes));
	return 0;
}

/* ---- an attribute that names a file */

static const struct {
	const char *name;
	enum stat_group group;
} operations[] = {
	{ "read", STAT_READ },
	{ "write", STAT_WRITE },
	{ "discard", STAT_DISCARD },
	{ "trim", STAT_DISCARD },
	{ "flush", STAT_FLUSH },
	{ "sync", STAT_FLUSH },
	{},
};

static bool
operation(const char *name, enum stat_group *out)
{
	for (size_t i = 0; operations[i].name != NULL; i++)
		if (strcmp(operations[i].name, name) == 0) {
			*out = operations[i].group;
			return true;
		}
	return false;
}

/* "PATH" or "PATH read": *group is changed if it is said. */
static void
cut_operation(char *path, enum stat_group *group)
{
	char *last = strrchr(path, ' ');

	if (last != NULL && operation(last + 1, group))
		*last = '\0';
}

/* It is read at once, by who serves others meanwhile: it must not wait. */
static int
check_path(const char *path, FILE *errors)
{
	struct stat st;

	if (strcmp(path, "-") != 0 &&
	    (stat(path, &st) != 0 || S_ISREG(st.st_mode)))
		return 0;
	fprintf(errors, "\"%s\": allowed: a regular file\n", path);
	return -EINVAL;
}

static int
table_of(const char *path, enum stat_group group, char **text, FILE *errors)
{
	struct measurement *m = measure_read(path, NULL, errors);
	size_t from = 0, nr, len;
	struct fit fit;
	FILE *out;
	int ret;

	if (m == NULL)
		return -EINVAL;
	while (from < m->nr && m->of[from].group != group)
		from++;
	for (nr = 0; from + nr < m->nr && m->of[from + nr].group == group; nr++)
		;
	ret = fit_model(m->of + from, nr, "table", &fit);
	measure_free(m);
	if (ret != 0) {
		fprintf(errors, "%s: no latencies of %s in it\n", path,
		    group_names[group]);
		return ret;
	}
	out = open_memstream(text, &len);
	if (out == NULL)
		return -ENOMEM;
	dist_print(&fit.dist, out);
	return fclose(out) == 0 ? 0 : -ENOMEM;
}

int
fit_attribute(
    const char *name, const char *value, char **text, char *err, size_t errlen)
{
	const char *of = strncmp(name, "latency.", 8) == 0 ? name + 8 : "";
	char path[DIST_MAX_TEXT + 1], *why = NULL;
	enum stat_group group;
	size_t skip = 0, len;
	FILE *errors;
	int ret;

	*text = NULL;
	if (strncmp(value, "fio ", 4) == 0)
		skip = 4;
	if (strncmp(value, "trace ", 6) == 0)
		skip = 6;
	if (skip == 0 || !operation(of, &group) ||
	    strlen(value) >= sizeof(path))
		return 0;
	strcpy(path, value + skip);
	cut_operation(path, &group);
	errors = open_memstream(&why, &len);
	if (errors == NULL)
		return -ENOMEM;
	ret = check_path(path, errors);
	if (ret == 0)
		ret = table_of(path, group, text, errors);
	fclose(errors);
	if (ret != 0) {
		free(*text);
		*text = NULL;
		if (why != NULL)
			why[strcspn(why, "\n")] = '\0';
		refuse(err, errlen, ret, "%s: %s", name,
		    why != NULL ? why : "out of memory");
	}
	free(why);
	return ret;
}
