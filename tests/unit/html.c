/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"

static char *text;
static size_t len;

static void
write_html(const struct comparison *c)
{
	FILE *f;

	free(text);
	text = NULL;
	f = open_memstream(&text, &len);
	assert_non_null(f);
	assert_int_equal(html_write(f, c), 0);
	assert_int_equal(fclose(f), 0);
	assert_non_null(strstr(text, "<!DOCTYPE html>"));
	assert_non_null(strstr(text, "</body></html>\n"));
	/* nothing is fetched */
	assert_null(strstr(text, "src="));
	assert_null(strstr(text, "href="));
	assert_null(strstr(text, "url("));
	assert_null(strstr(text, "@import"));
	assert_null(strstr(text, "<script"));
	assert_null(strstr(text, "nan"));
}

static void
set(char **field, const char *value)
{
	*field = strdup(value);
	assert_non_null(*field);
}

static void
fill(struct comparison *c)
{
	unsigned i;

	*c = (struct comparison){};
	for (i = 0; i < NR_SIDES; i++) {
		set(&c->label[i], i ? "new.conf" : "old.conf");
		set(&c->config[i],
		    i ? "[nullb0]\nplug = plug\n" : "[nullb0]\nplug = each\n");
	}
	set(&c->job_name, "job.fio");
	set(&c->job, "[a]\nrw=read\n");
	set(&c->date, "2026-12-01T12:00:00+0000");
	set(&c->machine, "Linux");
	set(&c->versions, "fio");
}

/* A run of each side, with so much of everything. */
static void
add_runs(struct comparison *c, unsigned nr, unsigned buckets, unsigned points)
{
	struct run *r;
	unsigned i, k, op;

	c->run = calloc(nr, sizeof(*c->run));
	assert_non_null(c->run);
	for (i = 0; i < nr; i++) {
		r = &c->run[c->nr_runs++];
		r->side = (enum side)(i % 2);
		for (op = 0; op < NR_RUN_OPS; op++)
			for (k = 0; k < buckets; k++)
				assert_int_equal(
				    buckets_add(&r->clat_ns[op],
					1000 + 37. * k * k, 1 + buckets - k),
				    0);
		r->iops.at = calloc(points, sizeof(double));
		r->iops.value = calloc(points, sizeof(double));
		r->iops.nr = r->iops.nr_whole = points;
		for (k = 0; k < points; k++) {
			r->iops.at[k] = k;
			r->iops.value[k] = 1000 + (k * 7919 + i * 31) % 500;
		}
		assert_int_equal(buckets_add(&r->sectors, 8, 100), 0);
		assert_int_equal(buckets_add(&r->sectors, 255, 10), 0);
		assert_int_equal(buckets_add(&r->segments, 1, 110), 0);
		assert_int_equal(
		    figures_add(&c->figures, r->side, "fio.iops", "",
			BETTER_HIGHER, true, 1000 + i % 2 * 100 + i * 1e-3),
		    0);
		assert_int_equal(figures_add(&c->figures, r->side, "fio.ctx",
				     "", BETTER_NEITHER, false, 5),
		    0);
	}
	c->nr_rounds = nr / 2;
	c->verdict = figures_judge(&c->figures, METHOD_WELCH, ALPHA_DEFAULT);
}

static void
says_first_what_it_comes_to(void **state)
{
	struct comparison c;
	const char *verdict;

	(void)state;
	fill(&c);
	add_runs(&c, 10, 50, 20);
	write_html(&c);
	verdict = strstr(text, "<p class=\"verdict\">better: ");
	assert_non_null(verdict);
	assert_true(verdict < strstr(text, "<table>"));
	assert_non_null(strstr(text, "<td>fio.iops</td>"));
	assert_non_null(strstr(text, "<mark>plug = plug</mark>"));
	assert_null(strstr(text, "<mark>[nullb0]"));
	assert_non_null(strstr(text, "<figcaption>Reads</figcaption>"));
	/* nothing was traced */
	assert_null(strstr(text, "Where the I/O went"));
	comparison_fini(&c);
}

static void
takes_no_text_for_html(void **state)
{
	static const char evil[] = "</pre><script>alert(1)</script>&\"'";
	struct comparison c;
	unsigned i;

	(void)state;
	fill(&c);
	for (i = 0; i < NR_SIDES; i++) {
		free(c.label[i]);
		free(c.config[i]);
		set(&c.label[i], evil);
		set(&c.config[i], evil);
	}
	free(c.job);
	free(c.job_name);
	set(&c.job, evil);
	set(&c.job_name, evil);
	assert_int_equal(comparison_note(&c, "%s", evil), 0);
	assert_int_equal(figures_add(&c.figures, SIDE_BASE, evil, evil,
			     BETTER_HIGHER, true, 1),
	    0);
	c.verdict = figures_judge(&c.figures, METHOD_WELCH, ALPHA_DEFAULT);
	write_html(&c);
	assert_null(strstr(text, "<script"));
	assert_null(strstr(text, "alert(1)</"));
	comparison_fini(&c);
}

static void
writes_a_page_of_nothing(void **state)
{
	struct comparison c = {};

	(void)state;
	c.verdict = figures_judge(&c.figures, METHOD_WELCH, ALPHA_DEFAULT);
	write_html(&c);
	comparison_fini(&c);
}

static void
leaves_out_what_is_no_number(void **state)
{
	struct comparison c;

	(void)state;
	fill(&c);
	add_runs(&c, 2, 1, 1);
	c.run[0].iops.value[0] = NAN;
	c.run[1].iops.value[0] = INFINITY;
	assert_int_equal(figures_add(&c.figures, SIDE_BASE, "fio.bw", "",
			     BETTER_HIGHER, true, NAN),
	    0);
	c.verdict = figures_judge(&c.figures, METHOD_WELCH, ALPHA_DEFAULT);
	c.cut_short = true;
	write_html(&c);
	assert_non_null(strstr(text, "cut short"));
	comparison_fini(&c);
}

/* An hour of three operations, forty runs, and a trace. */
static void
stays_below_a_mebibyte(void **state)
{
	struct comparison c;
	unsigned i, k, side;

	(void)state;
	fill(&c);
	add_runs(&c, 40, 2000, 3600);
	for (side = 0; side < NR_SIDES; side++) {
		c.heat[side] = calloc(1, sizeof(struct heat));
		assert_non_null(c.heat[side]);
		c.heat[side]->seconds = 10;
		c.heat[side]->bytes = 1ull << 38;
		for (i = 0; i < HEAT_ROWS; i++)
			for (k = 0; k < HEAT_COLUMNS; k++)
				c.heat[side]->count[i][k] =
				    (i * 7919 + k * 104729) % 97;
	}
	write_html(&c);
	print_message("  %zu bytes\n", len);
	assert_in_range(len, 100000, 1 << 20);
	assert_non_null(strstr(text, "Where the I/O went"));
	comparison_fini(&c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		{ "says first what it comes to", says_first_what_it_comes_to,
		    NULL, NULL, NULL },
		{ "takes no text for HTML", takes_no_text_for_html, NULL, NULL,
		    NULL },
		{ "writes a page of nothing", writes_a_page_of_nothing, NULL,
		    NULL, NULL },
		{ "leaves out what is no number", leaves_out_what_is_no_number,
		    NULL, NULL, NULL },
		{ "stays below a MiB", stays_below_a_mebibyte, NULL, NULL,
		    NULL },
	};
	int ret = cmocka_run_group_tests_name("the page", tests, NULL, NULL);

	free(text);
	return ret;
}
