/* SPDX-License-Identifier: MIT */
/*
 * How long a real device took: percentiles of each operation and size, out of
 * what fio reports (JSON, JSON+), or from pairs of D and C events of a trace.
 */
#include "ctl/ctl.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE   (64u << 20) /* of fio's, bytes */
#define MAX_GROUPS 256u        /* of one operation and size */

/* Percentiles that are kept of samples, as fio prints them. */
static const uint32_t kept[] = { 1000000, 5000000, 10000000, 20000000, 30000000,
	40000000, 50000000, 60000000, 70000000, 80000000, 90000000, 95000000,
	99000000, 99500000, 99900000, 99950000, 99990000 };
#define NR_KEPT (sizeof(kept) / sizeof(kept[0]))

/* So many took so long. */
struct bin {
	uint64_t ns, nr;
};

static void
complain(FILE *errors, const char *path, const char *what)
{
	fprintf(errors, "%s: %s\n", path, what);
}

/* One more group; NULL: too many, or no memory. */
static struct measured *
add_group(struct measurement *m)
{
	struct measured *of;

	if (m->nr == MAX_GROUPS)
		return NULL;
	of = realloc(m->of, (m->nr + 1) * sizeof(*of));
	if (of == NULL)
		return NULL;
	m->of = of;
	of += m->nr++;
	*of = (struct measured){};
	return of;
}

/* Ascending: what is not, as fio rounds, is left out. */
static void
add_point(struct measured *of, uint32_t percent, uint64_t ns)
{
	struct dist_point *p = of->point + of->nr_points;

	if (of->nr_points == DIST_MAX_POINTS)
		return;
	if (ns > DIST_MAX_NS)
		ns = DIST_MAX_NS;
	if (of->nr_points > 0 && p[-1].percent >= percent)
		return;
	if (of->nr_points > 0 && p[-1].ns > ns)
		ns = p[-1].ns;
	*p = (struct dist_point){ percent, ns };
	of->nr_points++;
}

/* ---- samples, sorted, to points */

/* The percentiles that so many samples can tell of. */
static void
points_of_bins(struct measured *of, const struct bin *bin, size_t nr)
{
	uint64_t seen = 0;
	size_t at = 0;

	of->nr = 0;
	for (size_t i = 0; i < nr; i++)
		of->nr += bin[i].nr;
	if (nr == 0 || of->nr == 0)
		return;
	add_point(of, 0, bin[0].ns);
	for (size_t i = 0; i < NR_KEPT; i++) {
		double want = (double)of->nr * kept[i] / (100 * DIST_PERCENT);

		if ((double)of->nr - want < 1)
			break;
		while (at + 1 < nr && (double)(seen + bin[at].nr) < want)
			seen += bin[at++].nr;
		add_point(of, kept[i], bin[at].ns);
	}
	add_point(of, 100 * DIST_PERCENT, bin[nr - 1].ns);
}

static int
by_ns(const void *a, const void *b)
{
	const struct bin *x = a, *y = b;

	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

/* ---- fio */

static uint64_t
number(const json_t *json, const char *name)
{
	double v = json_number_value(json_object_get(json, name));

	return v > 0 && v < 1e18 ? (uint64_t)v : 0;
}

/* Its histogram, "bins", of JSON+. */
static int
take_bins(struct measured *of, json_t *bins)
{
	struct bin *bin = calloc(json_object_size(bins), sizeof(*bin));
	const char *key;
	json_t *value;
	size_t nr = 0;

	if (bin == NULL)
		return -ENOMEM;
	json_object_foreach(bins, key, value) {
		bin[nr].ns = strtoull(key, NULL, 10);
		bin[nr++].nr = (uint64_t)json_integer_value(value);
	}
	qsort(bin, nr, sizeof(*bin), by_ns);
	points_of_bins(of, bin, nr);
	free(bin);
	return 0;
}

static int
by_percent(const void *a, const void *b)
{
	const struct dist_point *x = a, *y = b;

	return x->percent < y->percent ? -1 : x->percent > y->percent;
}

/* Its "percentile", whose keys are "99.900000". */
static void
take_percentiles(struct measured *of, json_t *percentiles)
{
	struct dist_point point[DIST_MAX_POINTS] = {};
	const char *key;
	json_t *value;
	size_t nr = 0;

	json_object_foreach(percentiles, key, value) {
		uint32_t percent;

		if (nr == DIST_MAX_POINTS || dist_percent(key, &percent) != 0)
			continue;
		point[nr].percent = percent;
		point[nr++].ns = (uint64_t)json_integer_value(value);
	}
	qsort(point, nr, sizeof(*point), by_percent);
	for (size_t i = 0; i < nr; i++) {
		double above = (double)(100 * DIST_PERCENT - point[i].percent) /
			       (100 * DIST_PERCENT);

		if (above * (double)of->nr >= 1) /* else it is the largest */
			add_point(of, point[i].percent, point[i].ns);
	}
}

/* A direction of a job: "read", "write", "trim", "sync". */
static int
take_direction(
    struct measurement *m, const json_t *job, const char *name, unsigned group)
{
	const json_t *dir = json_object_get(job, name);
	uint64_t nr = number(dir, "total_ios");
	const json_t *ns = json_object_get(dir, "clat_ns");
	json_t *bins, *percentiles;
	struct measured *of;

	if (nr == 0)
		return 0;
	if (ns == NULL)
		ns = json_object_get(dir, "lat_ns");
	bins = json_object_get(ns, "bins");
	percentiles = json_object_get(ns, "percentile");
	if (json_object_size(bins) == 0 && json_object_size(percentiles) == 0)
		return 0;
	of = add_group(m);
	if (of == NULL)
		return -ENOMEM;
	of->group = group;
	of->nr = nr;
	of->bytes = number(dir, "io_bytes") / nr;
	if (json_object_size(bins) > 0)
		return take_bins(of, bins);
	add_point(of, 0, number(ns, "min"));
	take_percentiles(of, percentiles);
	add_point(of, 100 * DIST_PERCENT, number(ns, "max"));
	return 0;
}

static int
take_jobs(struct measurement *m, const json_t *root)
{
	const json_t *jobs = json_object_get(root, "jobs"), *job;
	size_t i;
	int ret = 0;

	json_array_foreach(jobs, i, job) {
		ret = take_direction(m, job, "read", STAT_READ);
		if (ret == 0)
			ret = take_direction(m, job, "write", STAT_WRITE);
		if (ret == 0)
			ret = take_direction(m, job, "trim", STAT_DISCARD);
		if (ret == 0)
			ret = take_direction(m, job, "sync", STAT_FLUSH);
		if (ret != 0)
			break;
	}
	return ret;
}

/* Warnings stand before what fio prints. */
static void
skip_warnings(FILE *f)
{
	int c = getc(f);

	while (c != EOF && c != '{') {
		while (c != EOF && c != '\n')
			c = getc(f);
		c = getc(f);
	}
	ungetc(c, f);
}

static char *
read_whole(FILE *f, size_t *len)
{
	char *text = NULL, buf[65536];
	FILE *out = open_memstream(&text, len);
	size_t n;
	uint64_t all = 0;

	if (out == NULL)
		return NULL;
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0 && all <= MAX_FILE) {
		fwrite(buf, 1, n, out);
		all += n;
	}
	if (fclose(out) == 0 && all <= MAX_FILE && !ferror(f))
		return text;
	free(text);
	return NULL;
}

static int
read_fio(struct measurement *m, const char *path, FILE *f, FILE *errors)
{
	json_error_t error;
	json_t *root = NULL;
	char *text;
	size_t len;
	int ret;

	skip_warnings(f);
	text = read_whole(f, &len);
	if (text == NULL) {
		complain(errors, path, "cannot be read, or more than 64 MiB");
		return -EINVAL;
	}
	root = json_loadb(text, len, JSON_DISABLE_EOF_CHECK, &error);
	free(text);
	if (root == NULL) {
		fprintf(errors, "%s:%d: not JSON: %s\n", path, error.line,
		    error.text);
		return -EINVAL;
	}
	ret = take_jobs(m, root);
	json_decref(root);
	return ret;
}

/* ---- a trace */

struct served {
	uint64_t ns, bytes;
	enum stat_group group;
};

static enum stat_group
group_of(const struct iolog_io *io)
{
	switch ((enum req_op)io->op) {
	case REQ_OP_READ: return STAT_READ;
	case REQ_OP_DISCARD: return STAT_DISCARD;
	case REQ_OP_FLUSH: return STAT_FLUSH;
	case REQ_OP_WRITE:
	case REQ_OP_WRITE_ZEROES:
	case REQ_OP_NR: break;
	}
	return STAT_WRITE;
}

/* What is of one place and operation follows one another, in time. */
static int
by_place(const void *a, const void *b)
{
	const struct iolog_io *x = a, *y = b;

	if (x->op != y->op)
		return x->op < y->op ? -1 : 1;
	if (x->pos != y->pos)
		return x->pos < y->pos ? -1 : 1;
	if (x->ns != y->ns)
		return x->ns < y->ns ? -1 : 1;
	return x->ended - y->ended;
}

/*
 * Of a trace, to be freed; *nr of them.  NULL: no memory.  A C belongs to the
 * D before it: of two Ds the first was put back.
 */
static struct served *
served_of(const struct iolog *log, size_t *nr)
{
	struct served *out = calloc(log->nr, sizeof(*out));
	const struct iolog_io *d, *c;

	*nr = 0;
	if (out == NULL)
		return NULL;
	qsort(log->io, log->nr, sizeof(*log->io), by_place);
	for (size_t i = 1; i < log->nr; i++) {
		d = &log->io[i - 1];
		c = &log->io[i];
		if (!d->ended && c->ended && d->op == c->op && d->pos == c->pos)
			out[(*nr)++] = (struct served){ c->ns - d->ns, d->bytes,
				group_of(d) };
	}
	return out;
}

static int
by_kind(const void *a, const void *b)
{
	const struct served *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

/* Of one kind, ascending. */
static int
take_samples(struct measurement *m, const struct served *s, size_t nr)
{
	struct measured *of = add_group(m);
	struct bin *bin;

	if (of == NULL)
		return m->nr == MAX_GROUPS ? 0 : -ENOMEM;
	bin = calloc(nr, sizeof(*bin));
	if (bin == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++)
		bin[i] = (struct bin){ s[i].ns, 1 };
	of->group = s->group;
	of->bytes = s->bytes;
	points_of_bins(of, bin, nr);
	free(bin);
	return 0;
}

static int
read_trace(
    struct measurement *m, const char *path, const char *device, FILE *errors)
{
	struct iolog *log = iolog_read_service(path, device, errors);
	size_t nr = 0, from = 0;
	struct served *s;
	int ret = 0;

	if (log == NULL)
		return -EINVAL;
	s = served_of(log, &nr);
	iolog_free(log);
	if (s == NULL)
		return -ENOMEM;
	qsort(s, nr, sizeof(*s), by_kind);
	for (size_t i = 1; ret == 0 && i <= nr; i++)
		if (i == nr || s[i].group != s[from].group ||
		    s[i].bytes != s[from].bytes) {
			ret = take_samples(m, s + from, i - from);
			from = i;
		}
	free(s);
	return ret;
}

/* ---- either */

/* As fio prints JSON: a brace, or "fio: " and a warning before it. */
static bool
is_json(FILE *f)
{
	int c;

	while (isspace(c = getc(f)))
		;
	ungetc(c, f);
	return c == '{' || c == 'f';
}

static int
read_path(
    struct measurement *m, const char *path, const char *device, FILE *errors)
{
	bool is_stdin = strcmp(path, "-") == 0;
	FILE *f = is_stdin ? stdin : fopen(path, "re");
	int ret = 0;

	if (f != NULL && is_json(f)) {
		ret = read_fio(m, path, f, errors);
		if (!is_stdin)
			fclose(f);
		return ret;
	}
	if (f != NULL && !is_stdin)
		fclose(f);
	return read_trace(m, path, device, errors);
}

static int
by_group(const void *a, const void *b)
{
	const struct measured *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

struct measurement *
measure_read(const char *path, const char *device, FILE *errors)
{
	struct measurement *m = calloc(1, sizeof(*m));
	int ret = -ENOMEM;

	if (m != NULL)
		ret = read_path(m, path, device, errors);
	if (ret == 0 && m->nr == 0) {
		complain(errors, path,
		    "no latencies in it: allowed: what fio prints with "
		    "--output-format=json, a trace with D and C events");
		ret = -EINVAL;
	}
	if (ret == -ENOMEM)
		complain(errors, path, "out of memory, or too many sizes");
	if (ret == 0) {
		qsort(m->of, m->nr, sizeof(*m->of), by_group);
		return m;
	}
	measure_free(m);
	return NULL;
}

void
measure_free(struct measurement *m)
{
	if (m == NULL)
		return;
	free(m->of);
	free(m);
}

void
measure_shift(struct measurement *m, enum stat_group g, int64_t ns)
{
	for (size_t i = 0; i < m->nr; i++)
		for (unsigned j = 0; j < m->of[i].nr_points; j++) {
			struct dist_point *p = &m->of[i].point[j];
			int64_t t = (int64_t)p->ns + ns;

			if (m->of[i].group == g)
				p->ns = t > 0 ? (uint64_t)t : 0;
		}
}
