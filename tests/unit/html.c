/* SPDX-License-Identifier: MIT */
/*
 * With two arguments it tests nothing, but writes the page of that kind into a
 * file, for a browser to look at (wire/html.sh).
 */
#include "comparison.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#define MAX_PAGE  (1u << 20)
#define MAX_DEPTH 64

static const struct made usual = { .nr_rounds = 8,
	.nr_ops = 2,
	.nr_buckets = 300,
	.nr_points = 60,
	.slower = 1.1,
	.traced = true };

/* ---- what holds of every page */

static bool
starts(const char *at, const char *with)
{
	return strncasecmp(at, with, strlen(with)) == 0;
}

static bool
has_no_end(const char *tag)
{
	return starts(tag, "meta") || starts(tag, "wbr") ||
	       starts(tag, "!doctype");
}

/* Elements end in the order they should; what they are called is plain. */
static void
check_elements(const char *page)
{
	const char *open[MAX_DEPTH], *at = page, *name, *end;
	unsigned depth = 0;
	size_t len;

	while ((at = strchr(at, '<')) != NULL) {
		end = strchr(at, '>');
		assert_non_null(end);
		name = at + 1 + (at[1] == '/');
		len = strspn(name, "!abcdefghijklmnopqrstuvwxyzDOCTYPE123456");
		assert_true(len > 0);
		if (at[1] == '/') {
			assert_true(depth > 0);
			depth--;
			assert_memory_equal(open[depth], name, len);
			assert_int_equal(name[len], '>');
		} else if (end[-1] != '/' && !has_no_end(name)) {
			assert_true(depth < MAX_DEPTH);
			open[depth++] = name;
		}
		at = end + 1;
	}
	assert_int_equal(depth, 0);
}

/* Coordinates are numbers, and nothing is less than nothing wide. */
static void
check_attributes(const char *page)
{
	const char *at = page, *v, *end;

	while ((at = strstr(at, "=\"")) != NULL) {
		v = at + 2;
		end = strchr(v, '"');
		assert_non_null(end);
		if (isdigit((unsigned char)*v) || *v == '-' || *v == 'M' ||
		    *v == 'i' || *v == 'n')
			for (; v < end; v++) {
				assert_false(starts(v, "nan"));
				assert_false(starts(v, "inf\""));
				assert_false(starts(v, "inf "));
			}
		if (at - page >= 6 &&
		    (starts(at - 5, "width=") || starts(at - 6, "height=")))
			assert_int_not_equal(at[2], '-');
		at = end + 1;
	}
}

/* Nothing is fetched, and nothing runs. */
static void
check_alone(const char *page)
{
	static const char xmlns[] = "xmlns=\"http://www.w3.org/2000/svg\"";
	static const char *const never[] = { "<script", "<link", "<iframe",
		"<object", "<embed", "<img", "<base", "<form", "@import",
		"url(", " src=", "href=", "srcset=", " onload=", " onerror=",
		"http-equiv" };
	const char *at;

	for (at = page; (at = strstr(at, "://")) != NULL; at++)
		assert_memory_equal(
		    at - strlen("xmlns=\"http"), xmlns, strlen(xmlns));
	for (at = page; (at = strchr(at, '<')) != NULL; at++) {
		size_t len = strcspn(at, ">");

		for (unsigned i = 0; i < sizeof(never) / sizeof(*never); i++)
			for (size_t k = 0; k < len; k++)
				assert_false(starts(at + k, never[i]));
	}
	at = strstr(page, "<style>");
	assert_non_null(at);
	for (; !starts(at, "</style>"); at++) {
		assert_false(starts(at, "@import"));
		assert_false(starts(at, "url("));
	}
}

/* As long as its lead byte says, shortest form, no surrogate; or 0. */
static unsigned
utf8_length(const unsigned char *s)
{
	unsigned len = *s < 0x80   ? 1
		       : *s < 0xc2 ? 0
		       : *s < 0xe0 ? 2
		       : *s < 0xf0 ? 3
		       : *s < 0xf5 ? 4
				   : 0;

	for (unsigned i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

static void
check_characters(const char *page)
{
	const unsigned char *s = (const unsigned char *)page;
	unsigned len;

	for (; *s != '\0'; s += len) {
		len = utf8_length(s);
		if (len == 0)
			fail_msg("no UTF-8: %.40s", (const char *)s);
		assert_false(
		    (*s < 0x20 && *s != '\n' && *s != '\t') || *s == 0x7f);
	}
}

/* The caller frees it. */
static char *
page_of(const struct comparison *c)
{
	char *page;
	size_t len;
	FILE *out = open_memstream(&page, &len);

	assert_non_null(out);
	assert_int_equal(html_write(out, c), 0);
	assert_int_equal(fclose(out), 0);
	assert_int_equal(strlen(page), len);
	if (len >= MAX_PAGE)
		fail_msg("a page of %zu bytes", len);
	check_characters(page);
	check_elements(page);
	check_attributes(page);
	check_alone(page);
	assert_true(starts(page, "<!DOCTYPE html>\n"));
	return page;
}

static unsigned
count(const char *page, const char *what)
{
	unsigned nr = 0;

	for (; (page = strstr(page, what)) != NULL; page += strlen(what))
		nr++;
	return nr;
}

/* Without the places where a name may go on in the next line. */
static void
join(char *page)
{
	char *to = page;

	while (*page != '\0') {
		if (starts(page, "<wbr>"))
			page += strlen("<wbr>");
		else
			*to++ = *page++;
	}
	*to = '\0';
}

static void
assert_has(const char *page, const char *what)
{
	if (strstr(page, what) == NULL)
		fail_msg("nothing about %s", what);
}

/* ---- kinds of them */

static void
make_usual(struct comparison *c)
{
	comparison_make(c, &usual);
}

static void
make_large(struct comparison *c)
{
	struct made m = usual;

	m.nr_rounds = 40;
	m.nr_ops = 3;
	m.nr_buckets = 2000;
	m.nr_points = 3600;
	comparison_make(c, &m);
}

static void
make_one(struct comparison *c)
{
	struct made m = usual;

	m.nr_rounds = 1;
	comparison_make(c, &m);
}

/* ^C before the first run has ended */
static void
make_empty(struct comparison *c)
{
	struct made m = {};

	comparison_make(c, &m);
	c->cut_short = true;
}

static void
make_hostile(struct comparison *c)
{
	char **text[] = { &c->label[0], &c->label[1], &c->config[0],
		&c->config[1], &c->job_name, &c->job, &c->date, &c->machine,
		&c->versions };

	comparison_make(c, &usual);
	for (unsigned i = 0; i < sizeof(text) / sizeof(*text); i++) {
		free(*text[i]);
		*text[i] = strdup(HOSTILE);
	}
	assert_int_equal(comparison_note(c, "%s", HOSTILE), 0);
	for (unsigned i = 0; i < 4; i++)
		for (enum side side = 0; side < NR_SIDES; side++)
			made_figure(c, side, HOSTILE, HOSTILE, BETTER_LOWER,
			    true, 5 * side + i);
	c->verdict = figures_judge(&c->figures, METHOD_WELCH, ALPHA_DEFAULT);
}

static const struct kind {
	const char *name;
	void (*make)(struct comparison *c);
} kinds[] = {
	{ "usual", make_usual },
	{ "large", make_large },
	{ "one", make_one },
	{ "empty", make_empty },
	{ "hostile", make_hostile },
	{},
};

static char *
page_of_kind(void (*make)(struct comparison *c))
{
	struct comparison c;
	char *page;

	make(&c);
	page = page_of(&c);
	comparison_fini(&c);
	return page;
}

/* ---- cases */

static void
has_all_that_was_compared(void **state)
{
	static const char *const says[] = { "multipage-off.conf",
		"multipage-on.conf", "report-a.fio", "2026-11-30T14:05:09",
		"2 CPUs", "nullbd 0.1.0, fio-3.33", "numjobs=8",
		"ioengine=libaio became", "kernel = 4.14", "fio.iops",
		"fio.read.clat.p99.99", "fio.majf", "stat.write.merges",
		"fio.bw (KiB/s)" };
	struct comparison c;
	char *page, *words;
	size_t len;
	FILE *out = open_memstream(&words, &len);

	(void)state;
	make_usual(&c);
	page = page_of(&c);
	join(page);
	for (unsigned i = 0; i < sizeof(says) / sizeof(*says); i++)
		assert_has(page, says[i]);
	/* the verdict comes before any figure, and says what the table says */
	table_verdict(out, &c);
	fclose(out);
	words[strcspn(words, "<>&\"'\n")] = '\0';
	assert_true(strlen(words) > 10);
	assert_true(starts(words, "worse: fio.iops -"));
	assert_has(page, words);
	assert_true(strstr(page, words) < strstr(page, "<table"));
	free(words);
	free(page);
	comparison_fini(&c);
}

static void
shows_a_picture_of_each_kind(void **state)
{
	char *page = page_of_kind(make_usual);

	(void)state;
	/* 6 headline figures, 2 operations, IOPS, 2 histograms, 2 heat maps */
	assert_int_equal(count(page, "<svg "), 13);
	assert_int_equal(count(page, "</title>"), 13 + 1);
	/* a dot a run and figure and side; the warm-up is none */
	assert_int_equal(count(page, "<circle "), 6 * 2 * 8);
	assert_has(page, "99.99</text>");
	/* its style has both, and paper */
	assert_has(page, "prefers-color-scheme:dark");
	assert_has(page, "@media print");
	free(page);
}

static void
says_nothing_of_a_trace_that_is_not_there(void **state)
{
	struct made m = usual;
	struct comparison c;
	char *page;

	(void)state;
	m.traced = false;
	comparison_make(&c, &m);
	page = page_of(&c);
	assert_null(strstr(page, "Where the I/O went"));
	assert_int_equal(count(page, "<svg "), 11);
	free(page);
	comparison_fini(&c);
}

static void
text_stays_text(void **state)
{
	char *page = page_of_kind(make_hostile);

	(void)state;
	assert_has(page, "&lt;img src=x onerror=alert(1)&gt;");
	assert_has(page, "&amp;amp;&quot;");
	assert_int_equal(count(page, "<style"), 1);
	assert_int_equal(count(page, "</body>"), 1);
	free(page);
}

static void
text_that_is_no_utf8_is_shown(void **state)
{
	static const char *const odd[] = { "\xfc", "\xc3", "\xe2\x82",
		"\xf0\x9f\x92", "\xc0\xaf", "\xed\xa0\x80", "\xff\xfe", "\x80",
		"\xf5\x80\x80\x80" };
	struct comparison c;
	char *page;

	(void)state;
	for (unsigned i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		comparison_make(&c, &(struct made){});
		assert_int_equal(comparison_note(&c, "f%s;g", odd[i]), 0);
		assert_int_equal(comparison_note(&c, "\u00fcber \u20ac"), 0);
		page = page_of(&c);
		assert_has(page, ";g");
		assert_has(page, "\u00fcber \u20ac");
		free(page);
		comparison_fini(&c);
	}
}

static void
forty_long_rounds_are_less_than_a_mebibyte(void **state)
{
	char *page = page_of_kind(make_large);

	(void)state;
	assert_int_equal(count(page, "<circle "), 8 * 2 * 40);
	assert_true(count(page, " thin many\"") >= 80);
	free(page);
}

static void
texts_without_end_are_cut(void **state)
{
	const size_t len = 1 << 20;
	char *page, *text = malloc(len + 1);
	struct comparison c;

	(void)state;
	assert_non_null(text);
	for (unsigned lines = 0; lines < 2; lines++) {
		comparison_make(&c, &usual);
		memset(text, '<', len);
		for (size_t i = 0; lines && i < len; i += 40)
			text[i] = '\n';
		text[len] = '\0';
		free(c.job);
		free(c.config[SIDE_OTHER]);
		c.job = strdup(text);
		c.config[SIDE_OTHER] = strdup(text);
		page = page_of(&c);
		assert_has(page, "and more");
		free(page);
		comparison_fini(&c);
	}
	free(text);
}

static void
nothing_was_run(void **state)
{
	char *page = page_of_kind(make_empty);

	(void)state;
	assert_has(page, "cut short");
	assert_has(page, "multipage-on.conf");
	assert_int_equal(count(page, "<circle "), 0);
	free(page);
}

static void
nothing_is_known(void **state)
{
	struct comparison c = {};
	char *page = page_of(&c);

	(void)state;
	assert_int_equal(count(page, "(null)"), 0);
	free(page);
}

static void
one_run_is_a_page(void **state)
{
	char *page = page_of_kind(make_one);

	(void)state;
	assert_int_equal(count(page, "<circle "), 6 * 2);
	free(page);
}

/* The point that the last <path class="line base"> ends at. */
static void
last_point(const char *page, double *x, double *y)
{
	const char *at = page, *next, *end;

	while ((next = strstr(at, "class=\"line base\"")) != NULL)
		at = next + 1;
	end = strstr(at, "\"/>");
	while (*end != 'L')
		end--;
	assert_int_equal(sscanf(end, "L%lf %lf", x, y), 2);
}

static void
a_curve_ends_where_its_axis_does(void **state)
{
	static const double longest[] = { 2e6, 9e9 };
	struct comparison c;
	double x[2], y[2];
	struct buckets *b;
	char *page;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		make_one(&c);
		b = &c.run[2].clat_ns[RUN_WRITE];
		assert_int_equal(c.run[2].side, SIDE_BASE);
		assert_false(c.run[2].warm_up);
		/* a step to 99.99 that is too small to be drawn alone */
		b->nr = 3;
		b->upto[0] = 1e5;
		b->count[0] = 99989980;
		b->upto[1] = 1e6;
		b->count[1] = 100;
		b->upto[2] = longest[i];
		b->count[2] = 9920;
		page = page_of(&c);
		last_point(page, &x[i], &y[i]);
		free(page);
		comparison_fini(&c);
	}
	/* what is longer than that changes nothing */
	assert_true(fabs(x[1] - x[0]) < .2);
	assert_true(fabs(y[1] - y[0]) < .2);
}

static void
a_warm_up_is_in_no_picture(void **state)
{
	char *without = page_of_kind(make_usual), *with;
	struct comparison c;
	struct run *r;

	(void)state;
	make_usual(&c);
	for (size_t i = 0; i < c.nr_runs; i++) {
		r = &c.run[i];
		if (!r->warm_up)
			continue;
		for (size_t k = 0; k < r->iops.nr; k++)
			r->iops.value[k] *= 9;
		for (size_t k = 0; k < r->clat_ns[0].nr; k++)
			r->clat_ns[0].upto[k] *= 9;
		r->sectors.count[0] += 1000000;
		r->segments.count[3] += 1000000;
	}
	with = page_of(&c);
	assert_true(strcmp(with, without) == 0);
	free(with);
	free(without);
	comparison_fini(&c);
}

static void
one_side_only(void **state)
{
	struct comparison c;
	char *page;

	(void)state;
	make_usual(&c);
	for (size_t i = 0; i < c.figures.nr; i++)
		c.figures.figure[i].side[SIDE_OTHER].nr = 0;
	for (size_t i = 0; i < c.nr_runs; i++) {
		if (c.run[i].side != SIDE_OTHER)
			continue;
		run_fini(&c.run[i]);
		c.run[i].warm_up = true;
	}
	free(c.heat[SIDE_OTHER]);
	c.heat[SIDE_OTHER] = NULL;
	c.cut_short = true;
	c.verdict = figures_judge(&c.figures, METHOD_WELCH, ALPHA_DEFAULT);
	page = page_of(&c);
	assert_has(page, "cut short");
	assert_int_equal(count(page, "<circle "), 6 * 8);
	free(page);
	comparison_fini(&c);
}

static void
values_that_are_none(void **state)
{
	static const double odd[] = { NAN, INFINITY, -INFINITY, 0, -5, 1e300 };
	struct comparison c;
	const char *at, *tick;
	struct run *r;
	char *page;

	(void)state;
	for (unsigned i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		make_usual(&c);
		for (size_t k = 0; k < c.figures.nr; k++)
			for (size_t n = 0; n < usual.nr_rounds; n += 1 + k % 3)
				c.figures.figure[k].side[k % 2].value[n] =
				    odd[i];
		for (size_t k = 0; k < c.nr_runs; k++) {
			r = &c.run[k];
			r->iops.value[k % r->iops.nr] = odd[i];
			r->iops.at[(k + 7) % r->iops.nr] = odd[i];
			/* counts of nothing */
			memset(r->clat_ns[0].count, 0,
			    r->clat_ns[0].nr * sizeof(*r->clat_ns[0].count));
			memset(r->segments.count, 0,
			    r->segments.nr * sizeof(*r->segments.count));
			r->sectors.count[0] = UINT64_MAX;
		}
		c.verdict =
		    figures_judge(&c.figures, METHOD_WELCH, ALPHA_DEFAULT);
		page = page_of(&c);
		/* the others are where they were: 0 to 59 seconds */
		at = strstr(page, "IOPS over time</h2>");
		assert_non_null(at);
		if (!isfinite(odd[i])) {
			tick = strstr(at, ">50</text>");
			assert_non_null(tick);
			assert_true(tick < strstr(at, "</figure>"));
		}
		free(page);
		comparison_fini(&c);
	}
}

/* the text of the n-th <pre>; the caller frees it */
static char *
listing_of(const char *page, unsigned n)
{
	const char *at = page;

	for (; n > 0; n--) {
		at = strstr(at, "<pre");
		assert_non_null(at);
		at = strchr(at, '>') + 1;
	}
	return strndup(at, (size_t)(strstr(at, "</pre>") - at));
}

static void
lines_that_differ_are_marked(void **state)
{
	char *page = page_of_kind(make_usual), *base, *other;

	(void)state;
	base = listing_of(page, 1);
	other = listing_of(page, 2);
	assert_has(base, "<mark>multipage = 0</mark>");
	assert_has(base, "<mark># One page a bvec.</mark>");
	assert_int_equal(count(base, "<mark>"), 2);
	assert_has(other, "<mark>multipage = 1</mark>");
	assert_has(other, "<mark>max_sectors_kb = 1280</mark>");
	assert_int_equal(count(other, "<mark>"), 3);
	assert_int_equal(count(page, "<mark>"), 5);
	free(base);
	free(other);
	free(page);
}

static void
says_when_it_cannot_be_written(void **state)
{
	FILE *full = fopen("/dev/full", "w");
	struct comparison c;

	(void)state;
	assert_non_null(full);
	make_usual(&c);
	assert_true(html_write(full, &c) < 0);
	comparison_fini(&c);
	fclose(full);
}

static void
is_the_same_each_time(void **state)
{
	char *first = page_of_kind(make_usual);
	char *second = page_of_kind(make_usual);

	(void)state;
	assert_true(strcmp(first, second) == 0);
	free(first);
	free(second);
}

static int
write_kind(const char *name, const char *path)
{
	struct comparison c;
	FILE *out;
	int ret;

	for (const struct kind *k = kinds; k->name != NULL; k++) {
		if (strcmp(k->name, name) != 0)
			continue;
		out = fopen(path, "w");
		if (out == NULL) {
			perror(path);
			return 1;
		}
		k->make(&c);
		ret = html_write(out, &c);
		comparison_fini(&c);
		return fclose(out) != 0 || ret != 0;
	}
	fprintf(stderr, "%s: no such kind\n", name);
	return 1;
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(has_all_that_was_compared),
		cmocka_unit_test(shows_a_picture_of_each_kind),
		cmocka_unit_test(says_nothing_of_a_trace_that_is_not_there),
		cmocka_unit_test(text_stays_text),
		cmocka_unit_test(text_that_is_no_utf8_is_shown),
		cmocka_unit_test(forty_long_rounds_are_less_than_a_mebibyte),
		cmocka_unit_test(texts_without_end_are_cut),
		cmocka_unit_test(nothing_was_run),
		cmocka_unit_test(nothing_is_known),
		cmocka_unit_test(one_run_is_a_page),
		cmocka_unit_test(a_curve_ends_where_its_axis_does),
		cmocka_unit_test(a_warm_up_is_in_no_picture),
		cmocka_unit_test(one_side_only),
		cmocka_unit_test(values_that_are_none),
		cmocka_unit_test(lines_that_differ_are_marked),
		cmocka_unit_test(says_when_it_cannot_be_written),
		cmocka_unit_test(is_the_same_each_time),
	};

	if (argc == 3)
		return write_kind(argv[1], argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
