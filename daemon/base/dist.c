/* SPDX-License-Identifier: MIT */
/*
 * Distributions.  Each is drawn by its quantile function at one uniform
 * number, so that the same seed gives the same, whatever the kind:
 *
 *	base + scale * z(u), or exp() of it
 *
 * where z is what tells one kind from the other.  Two percentiles are then two
 * linear equations.
 */
#include "base/dist.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/attr.h"

#define MAX_DIGITS 9u /* behind the point of a time */
#define MAX_SIZE   (UINT64_C(1) << 30)

struct dist_kind {
	const char *name;
	double (*z)(double u);
	bool is_log;       /* of the logarithm of the time */
	unsigned min, max; /* points */
	bool has_mean;
	bool is_bounded; /* 0 % and 100 % are points, too */
	const char *allowed;
};

/* ---- the kinds */

static double
z_uniform(double u)
{
	return u;
}

static double
z_exponential(double u)
{
	return -log1p(-u);
}

/* P. J. Acklam's rational approximation; its relative error is 1.2e-9. */
static double
z_normal(double u)
{
	static const double a[] = { -3.969683028665376e+01,
		2.209460984245205e+02, -2.759285104469687e+02,
		1.383577518672690e+02, -3.066479806614716e+01,
		2.506628277459239e+00 };
	static const double b[] = { -5.447609879822406e+01,
		1.615858368580409e+02, -1.556989798598866e+02,
		6.680131188771972e+01, -1.328068155288572e+01 };
	static const double c[] = { -7.784894002430293e-03,
		-3.223964580411365e-01, -2.400758277161838e+00,
		-2.549732539343734e+00, 4.374664141464968e+00,
		2.938163982698783e+00 };
	static const double d[] = { 7.784695709041462e-03,
		3.224671290700398e-01, 2.445134137142996e+00,
		3.754408661907416e+00 };
	double q, r, tail = u < 0.5 ? u : 1 - u;

	if (tail < 0.02425) {
		q = sqrt(-2 * log(tail));
		r = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) *
			    q +
			c[5]) /
		    ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
		return u < 0.5 ? r : -r;
	}
	q = u - 0.5;
	r = q * q;
	return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r +
		   a[5]) *
	       q /
	       (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r +
		   1);
}

/* The simplest first: nullb-calibrate tries them in this order. */
static const struct dist_kind kinds[] = {
	{ .name = "constant", .min = 1, .max = 1, .allowed = "constant 80us" },
	{ .name = "uniform",
	    .z = z_uniform,
	    .min = 2,
	    .max = 2,
	    .is_bounded = true,
	    .allowed = "uniform 50us 120us, or two percentiles: p10=50us "
		       "p90=120us" },
	{ .name = "normal",
	    .z = z_normal,
	    .min = 2,
	    .max = 2,
	    .has_mean = true,
	    .allowed = "normal mean=100us stddev=10us, or two percentiles: "
		       "p50=100us p99=123us" },
	{ .name = "exponential",
	    .z = z_exponential,
	    .min = 1,
	    .max = 2,
	    .has_mean = true,
	    .allowed = "exponential mean=80us, or one percentile or two: "
		       "p50=80us" },
	{ .name = "lognormal",
	    .z = z_normal,
	    .is_log = true,
	    .min = 2,
	    .max = 2,
	    .allowed = "lognormal with two percentiles above 0: p50=80us "
		       "p99=400us" },
	{ .name = "pareto",
	    .z = z_exponential,
	    .is_log = true,
	    .min = 2,
	    .max = 2,
	    .allowed = "pareto with two percentiles above 0: p50=80us "
		       "p99=1ms" },
	{ .name = "table",
	    .min = 1,
	    .max = DIST_MAX_POINTS,
	    .is_bounded = true,
	    .allowed = "table with up to 32 percent=time, both ascending: "
		       "1=60us 50=80us 99.9=1ms" },
	{},
};

const char *
dist_kind_name(unsigned i)
{
	return i < sizeof(kinds) / sizeof(kinds[0]) ? kinds[i].name : NULL;
}

static const struct dist_kind *
kind_find(const char *name)
{
	for (const struct dist_kind *k = kinds; k->name != NULL; k++)
		if (strcmp(k->name, name) == 0)
			return k;
	return NULL;
}

static bool
is_kind(const struct dist *d, const char *name)
{
	return strcmp(d->kind->name, name) == 0;
}

/* ---- numbers */

static const struct scale {
	const char *name;
	uint64_t ns;
} scales[] = {
	{ "s", 1000000000 },
	{ "ms", 1000000 },
	{ "us", 1000 },
	{ "ns", 1 },
	{},
};

/* "12.5" times what `one` is; *p is left behind it. */
static int
decimal(const char **p, uint64_t one, uint64_t max, uint64_t *out)
{
	uint64_t v = 0, part = one;
	unsigned digits = 0;

	if (**p < '0' || **p > '9')
		return -EINVAL;
	for (; **p >= '0' && **p <= '9'; (*p)++) {
		v = v * 10 + (uint64_t)(**p - '0');
		if (v > max / one)
			return -ERANGE;
	}
	v *= one;
	if (**p == '.') {
		for ((*p)++; **p >= '0' && **p <= '9'; (*p)++) {
			if (++digits > MAX_DIGITS)
				return -EINVAL;
			v += (uint64_t)(**p - '0') * part / 10;
			part /= 10;
		}
		if (digits == 0)
			return -EINVAL;
	}
	if (v > max)
		return -ERANGE;
	*out = v;
	return 0;
}

int
dist_time(const char *text, uint64_t *ns)
{
	size_t len = strspn(text, "0123456789.");
	const struct scale *s = scales;
	const char *p = text;
	int ret;

	if (text[len] == '\0')
		return strchr(text, '.') != NULL
			   ? -EINVAL
			   : decimal(&p, 1, DIST_MAX_NS, ns);
	while (s->name != NULL && strcmp(s->name, text + len) != 0)
		s++;
	if (s->name == NULL)
		return -EINVAL;
	ret = decimal(&p, s->ns, DIST_MAX_NS, ns);
	return ret == 0 && p != text + len ? -EINVAL : ret;
}

int
dist_percent(const char *text, uint32_t *percent)
{
	uint64_t v = 0;
	int ret = decimal(&text, DIST_PERCENT, 100 * DIST_PERCENT, &v);

	if (ret == 0 && *text != '\0')
		return -EINVAL;
	*percent = (uint32_t)v;
	return ret;
}

void
dist_print_time(uint64_t ns, FILE *out)
{
	const struct scale *s = scales;

	while (ns % s->ns != 0)
		s++;
	if (ns == 0)
		s = scales + 3;
	fprintf(out, "%" PRIu64 "%s", ns / s->ns, s->name);
}

void
dist_print_percent(uint32_t percent, FILE *out)
{
	char part[8];
	size_t len;

	fprintf(out, "%" PRIu32, percent / DIST_PERCENT);
	snprintf(part, sizeof(part), ".%06" PRIu32, percent % DIST_PERCENT);
	for (len = strlen(part); part[len - 1] == '0'; len--)
		;
	if (len > 1)
		fprintf(out, "%.*s", (int)len, part);
}

/* ---- from points to what is drawn from */

static double
share(uint32_t percent)
{
	return (double)percent / (100.0 * DIST_PERCENT);
}

/* Both ascend, and are where the kind can have them. */
static bool
points_fit(const struct dist *d)
{
	const struct dist_kind *k = d->kind;

	if (d->nr < k->min || d->nr > k->max)
		return false;
	for (unsigned i = 0; i < d->nr; i++) {
		const struct dist_point *p = &d->point[i];

		if (p->percent > 100 * DIST_PERCENT || p->ns > DIST_MAX_NS)
			return false;
		if (!k->is_bounded && k->z != NULL &&
		    (p->percent == 0 || p->percent == 100 * DIST_PERCENT))
			return false;
		if (k->is_log && p->ns == 0)
			return false;
		if (i > 0 && (p->percent <= p[-1].percent || p->ns < p[-1].ns))
			return false;
	}
	return true;
}

static int
solve(struct dist *d)
{
	const struct dist_kind *k = d->kind;
	double z0, z1, t0, t1;

	if (d->by_mean) {
		d->base = is_kind(d, "normal") ? (double)d->point[0].ns : 0;
		d->scale = (double)d->point[d->nr - 1].ns;
		return 0;
	}
	if (!points_fit(d))
		return -EINVAL;
	if (k->z == NULL)
		return 0;
	z1 = k->z(share(d->point[d->nr - 1].percent));
	t1 = (double)d->point[d->nr - 1].ns;
	z0 = t0 = 0;
	if (d->nr > 1) {
		z0 = k->z(share(d->point[0].percent));
		t0 = (double)d->point[0].ns;
	}
	if (k->is_log) {
		t0 = log(t0);
		t1 = log(t1);
	}
	d->scale = (t1 - t0) / (z1 - z0);
	d->base = t0 - d->scale * z0;
	return 0;
}

int
dist_fit(struct dist *d, const char *kind, const struct dist_point *point,
    unsigned nr)
{
	*d = (struct dist){ .max_ns = DIST_MAX_NS };
	d->kind = kind_find(kind);
	if (d->kind == NULL || nr > DIST_MAX_POINTS)
		return -EINVAL;
	memcpy(d->point, point, nr * sizeof(*point));
	d->nr = nr;
	return solve(d);
}

/* ---- text */

/* The next word; NULL: no more. */
static char *
next_word(char **rest)
{
	char *word;

	while ((word = strsep(rest, " ")) != NULL)
		if (*word != '\0')
			return word;
	return NULL;
}

/* "2us/4k" */
static int
parse_size(struct dist *d, char *word)
{
	char *size = strchr(word, '/');
	uint64_t bytes = 0;
	int ret;

	if (size == NULL || d->size_bytes != 0)
		return -EINVAL;
	*size++ = '\0';
	ret = dist_time(word, &d->size_ns);
	if (ret == 0)
		ret = uint_parse(size, &unit_bytes, &bytes);
	if (ret == 0 && (bytes == 0 || bytes > MAX_SIZE))
		ret = -ERANGE;
	d->size_bytes = bytes;
	return ret;
}

/* One more point, in order. */
static int
add_point(struct dist *d, const char *percent, const char *time)
{
	struct dist_point p = {};
	int ret;

	if (d->by_mean || d->nr == d->kind->max)
		return -EINVAL;
	ret = dist_percent(percent, &p.percent);
	if (ret == 0)
		ret = dist_time(time, &p.ns);
	d->point[d->nr++] = p;
	return ret;
}

/* What is no percentile: the one time of a constant, the two of a uniform. */
static int
add_bare(struct dist *d, const char *word)
{
	const char *percent = d->nr == 0 ? "0" : "100";

	if (is_kind(d, "constant"))
		percent = "50";
	else if (!is_kind(d, "uniform"))
		return -EINVAL;
	return add_point(d, percent, word);
}

static int
add_mean(struct dist *d, const char *name, const char *time)
{
	bool is_mean = strcmp(name, "mean") == 0;

	if (!d->kind->has_mean || d->nr != (is_mean ? 0 : 1) ||
	    (!is_mean && !is_kind(d, "normal")))
		return -EINVAL;
	d->by_mean = true;
	return dist_time(time, &d->point[d->nr++].ns);
}

static int
add_value(struct dist *d, char *word)
{
	char *value = strchr(word, '=');

	if (value == NULL)
		return add_bare(d, word);
	*value++ = '\0';
	if (strcmp(word, "min") == 0)
		return dist_time(value, &d->min_ns);
	if (strcmp(word, "max") == 0)
		return dist_time(value, &d->max_ns);
	if (strcmp(word, "mean") == 0 || strcmp(word, "stddev") == 0)
		return add_mean(d, word, value);
	if (is_kind(d, "table"))
		return add_point(d, word, value);
	if (*word != 'p' || is_kind(d, "constant"))
		return -EINVAL;
	return add_point(d, word + 1, value);
}

/* Of the words that follow the kind's name. */
static int
parse_values(struct dist *d, char *rest)
{
	char *word;
	int ret = 0;

	while (ret == 0 && (word = next_word(&rest)) != NULL) {
		if (*word != '+') {
			ret = add_value(d, word);
			continue;
		}
		word = word[1] != '\0' ? word + 1 : next_word(&rest);
		ret = word != NULL ? parse_size(d, word) : -EINVAL;
	}
	if (ret == 0 && d->by_mean && is_kind(d, "normal") && d->nr != 2)
		ret = -EINVAL;
	if (ret == 0 && d->min_ns > d->max_ns)
		ret = -EINVAL;
	return ret == 0 ? solve(d) : ret;
}

int
dist_parse(struct dist *d, const char *what, const char *text, char *err,
    size_t errlen)
{
	char copy[DIST_MAX_TEXT + 1], *rest = copy, *word;
	uint64_t ns;
	int ret;

	*d = (struct dist){ .max_ns = DIST_MAX_NS };
	if (strlen(text) > DIST_MAX_TEXT || !text_valid(text))
		return refuse(err, errlen, -EINVAL,
		    "%s: \"%.40s\": allowed: at most %u characters that can "
		    "be printed",
		    what, text, DIST_MAX_TEXT);
	strcpy(copy, text);
	word = next_word(&rest);
	d->kind = word != NULL ? kind_find(word) : NULL;
	if (d->kind == NULL && word != NULL && dist_time(word, &ns) == 0) {
		d->kind = kinds; /* "80us" */
		strcpy(copy, text);
		rest = copy;
	}
	if (d->kind == NULL)
		return refuse(err, errlen, -EINVAL,
		    "%s: \"%.60s\": allowed: constant, uniform, normal, "
		    "exponential, lognormal, pareto or table, and its values: "
		    "lognormal p50=80us p99=400us",
		    what, text);
	ret = parse_values(d, rest);
	if (ret == 0)
		return 0;
	return refuse(err, errlen, ret,
	    "%s: \"%.120s\": %sallowed: %s; then min=, max= and + 2us/4k; a "
	    "time is at most 3600s",
	    what, text, ret == -ERANGE ? "out of range, " : "",
	    d->kind->allowed);
}

static void
print_points(const struct dist *d, FILE *out)
{
	bool bare = is_kind(d, "constant") ||
		    (is_kind(d, "uniform") && d->point[0].percent == 0 &&
			d->point[1].percent == 100 * DIST_PERCENT);

	for (unsigned i = 0; i < d->nr; i++) {
		fputc(' ', out);
		if (!bare) {
			fputs(is_kind(d, "table") ? "" : "p", out);
			dist_print_percent(d->point[i].percent, out);
			fputc('=', out);
		}
		dist_print_time(d->point[i].ns, out);
	}
}

static void
print_word(const char *name, uint64_t ns, FILE *out)
{
	fputs(name, out);
	dist_print_time(ns, out);
}

void
dist_print(const struct dist *d, FILE *out)
{
	if (d->kind == NULL)
		return;
	fputs(d->kind->name, out);
	if (d->by_mean)
		print_word(" mean=", d->point[0].ns, out);
	if (d->by_mean && d->nr == 2)
		print_word(" stddev=", d->point[1].ns, out);
	if (!d->by_mean)
		print_points(d, out);
	if (d->min_ns != 0)
		print_word(" min=", d->min_ns, out);
	if (d->max_ns != DIST_MAX_NS)
		print_word(" max=", d->max_ns, out);
	if (d->size_bytes == 0)
		return;
	print_word(" + ", d->size_ns, out);
	if (d->size_bytes % 1024 == 0)
		fprintf(out, "/%" PRIu64 "k", d->size_bytes / 1024);
	else
		fprintf(out, "/%" PRIu64, d->size_bytes);
}

bool
dist_same(const struct dist *a, const struct dist *b)
{
	if (a->kind != b->kind || a->nr != b->nr || a->by_mean != b->by_mean ||
	    a->min_ns != b->min_ns || a->max_ns != b->max_ns ||
	    a->size_ns != b->size_ns || a->size_bytes != b->size_bytes)
		return false;
	for (unsigned i = 0; i < a->nr; i++)
		if (a->point[i].percent != b->point[i].percent ||
		    a->point[i].ns != b->point[i].ns)
			return false;
	return true;
}

/* ---- drawing */

static double
at_points(const struct dist *d, double percent)
{
	const struct dist_point *p = d->point, *end = p + d->nr - 1;
	double part;

	if (percent <= p->percent)
		return (double)p->ns;
	while (p < end && percent > p[1].percent)
		p++;
	if (p == end)
		return (double)p->ns;
	part = (percent - p->percent) / (p[1].percent - p->percent);
	return (double)p->ns + part * (double)(p[1].ns - p->ns);
}

uint64_t
dist_at(const struct dist *d, double u)
{
	const struct dist_kind *k = d->kind;
	double t;

	if (k->z == NULL)
		t = at_points(d, u * 100 * DIST_PERCENT);
	else
		t = d->base + d->scale * k->z(u);
	if (k->is_log)
		t = exp(t);
	if (!(t > (double)d->min_ns))
		return d->min_ns;
	if (t >= (double)d->max_ns)
		return d->max_ns;
	return (uint64_t)(t + 0.5);
}

uint64_t
dist_draw(const struct dist *d, struct rng *r)
{
	/* 53 bits, and never 0 or 1 */
	double u = ((double)(rng_next(r) >> 12) + 0.5) * 0x1p-52;

	return dist_at(d, u);
}

uint64_t
dist_bytes(const struct dist *d, uint64_t bytes)
{
	unsigned __int128 ns;

	if (d->size_bytes == 0)
		return 0;
	ns = (unsigned __int128)d->size_ns * bytes / d->size_bytes;
	return ns < DIST_MAX_NS ? (uint64_t)ns : DIST_MAX_NS;
}
