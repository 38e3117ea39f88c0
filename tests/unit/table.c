/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"

static char *
printed(const struct comparison *c, bool all)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	table_print(out, c, all);
	fclose(out);
	return text;
}

static char *
verdict_of(const struct comparison *c)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	table_verdict(out, c);
	fclose(out);
	return text;
}

static char *
csv_of(const struct comparison *c)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	table_csv(out, c);
	fclose(out);
	return text;
}

static void
assert_printed(const struct comparison *c, bool all, const char *want)
{
	char *text = printed(c, all);

	assert_string_equal(text, want);
	free(text);
}

static void
assert_verdict(const struct comparison *c, const char *want)
{
	char *text = verdict_of(c);

	assert_string_equal(text, want);
	free(text);
}

static void
begin(struct comparison *c, const char *base, const char *other)
{
	*c = (struct comparison){
		.label = { strdup(base), strdup(other) },
		.job_name = strdup("msync-mt"),
		.nr_rounds = 6,
	};
}

/* Six runs a side: by so much above their mean, and as much below. */
static void
add(struct comparison *c, const char *name, const char *unit,
    enum better better, bool headline, double base, double other, double by)
{
	double spread;

	for (unsigned run = 0; run < 6; run++) {
		spread = run % 2 == 0 ? 1 + by : 1 - by;
		figures_add(&c->figures, SIDE_BASE, name, unit, better,
		    headline, base * spread);
		figures_add(&c->figures, SIDE_OTHER, name, unit, better,
		    headline, other * spread);
	}
}

static void
judge(struct comparison *c, enum method method)
{
	c->verdict = figures_judge(&c->figures, method, ALPHA_DEFAULT);
}

/* spec/experiments.md: report B; its spread is by * sqrt(6 / 5). */
static void
report_b(struct comparison *c)
{
	begin(c, "base.conf", "other.conf");
	add(c, "vm-scalability.throughput", "KiB/s", BETTER_HIGHER, true,
	    1920140, 2755159, 0.001);
	add(c, "vm-scalability.time.file_system_outputs", "", BETTER_NEITHER,
	    false, 7.315e8, 1.039e9, 0.002);
	add(c, "vm-scalability.time.user_time", "s", BETTER_NEITHER, false,
	    448.56, 657.67, 0.03);
	add(c, "same", "", BETTER_NEITHER, false, 100, 100, 0.1);
	add(c, "zero", "", BETTER_NEITHER, false, 0, 0, 0);
	add(c, "new", "", BETTER_NEITHER, false, 0, 12, 0);
	add(c, "tiny", "s", BETTER_NEITHER, false, 0.00123, 0.00246, 0.001);
	add(c, "gone", "", BETTER_NEITHER, false, NAN, 5, 0);
}

static void
reads_as_lkp_prints_it(void **state)
{
	struct comparison c;

	(void)state;
	report_b(&c);
	comparison_note(&c, "filename=/dev/nullb0 became uri=nbd+unix:///");
	judge(&c, METHOD_WELCH);
	assert_printed(&c, false,
	    "base:  base.conf\n"
	    "other: other.conf\n"
	    "job:   msync-mt, 6 rounds\n"
	    "note:  filename=/dev/nullb0 became uri=nbd+unix:///\n"
	    "\n"
	    "             base                          other\n"
	    "          %stddev     %change            %stddev\n"
	    "             \\          |                   \\\n"
	    "   1920140 ± 0.1%      +43.5%     2755159 ± 0.1%  "
	    "vm-scalability.throughput (KiB/s)\n"
	    " 7.315e+08 ± 0.2%      +42.0%   1.039e+09 ± 0.2%  "
	    "vm-scalability.time.file_system_outputs\n"
	    "    448.56 ± 3.3%      +46.6%      657.67 ± 3.3%  "
	    "vm-scalability.time.user_time (s)\n"
	    "      0.00 ± 0.0%           -       12.00 ± 0.0%  new\n"
	    "   0.00123 ± 0.1%     +100.0%     0.00246 ± 0.1%  tiny (s)\n"
	    "\n"
	    "test: Welch's t, two-sided; a difference is p < 0.01 after "
	    "Holm's correction:\n"
	    "      1 headline figure to decide, and 5 others to explain, a "
	    "family each;\n"
	    "      2 not tested: constant, or too few runs\n");
	comparison_fini(&c);
}

/*
 * All of the one side are larger, so U = 36, 18 more than half; but values
 * are tied, by threes: z = 17.5 / sqrt(36 / 12 * (13 - 4 * 24 / (12 * 11))), or
 * 2.884, whose p is 0.0039.  By sixes: 17.5 / sqrt(3 * (13 - 2 * 210 / 132)),
 * or 3.224, p is 0.00126; and times 5, and times 4, which Holm's correction
 * does.
 */
static void
all_of_it_has_a_p(void **state)
{
	struct comparison c;

	(void)state;
	report_b(&c);
	c.nr_rounds = 1;
	c.cut_short = true;
	judge(&c, METHOD_MANN_WHITNEY);
	assert_printed(&c, true,
	    "base:  base.conf\n"
	    "other: other.conf\n"
	    "job:   msync-mt, 1 round, cut short\n"
	    "\n"
	    "             base                          other\n"
	    "          %stddev     %change            %stddev        p\n"
	    "             \\          |                   \\\n"
	    "   1920140 ± 0.1%      +43.5%     2755159 ± 0.1%   0.0039  "
	    "vm-scalability.throughput (KiB/s)\n"
	    " 7.315e+08 ± 0.2%      +42.0%   1.039e+09 ± 0.2%   0.0157  "
	    "vm-scalability.time.file_system_outputs\n"
	    "    448.56 ± 3.3%      +46.6%      657.67 ± 3.3%   0.0157  "
	    "vm-scalability.time.user_time (s)\n"
	    "    100.00 ±11.0%       +0.0%      100.00 ±11.0%   1.0000  "
	    "same\n"
	    "      0.00 ± 0.0%       +0.0%        0.00 ± 0.0%        -  "
	    "zero\n"
	    "      0.00 ± 0.0%           -       12.00 ± 0.0%   0.0063  "
	    "new\n"
	    "   0.00123 ± 0.1%     +100.0%     0.00246 ± 0.1%   0.0157  "
	    "tiny (s)\n"
	    "         -                  -        5.00 ± 0.0%        -  "
	    "gone\n"
	    "\n"
	    "test: Mann-Whitney's U, two-sided; a difference is p < 0.01 "
	    "after Holm's correction:\n"
	    "      1 headline figure to decide, and 5 others to explain, a "
	    "family each;\n"
	    "      2 not tested: constant, or too few runs\n");
	comparison_fini(&c);
}

static void
lkp_rule_is_named_as_no_test(void **state)
{
	struct comparison c;

	(void)state;
	begin(&c, "a", "b");
	add(&c, "iops", "", BETTER_HIGHER, true, 100, 120, 0.01);
	add(&c, "lat", "us", BETTER_LOWER, true, 100, 100, 0.01);
	judge(&c, METHOD_LKP);
	assert_printed(&c, true,
	    "base:  a\n"
	    "other: b\n"
	    "job:   msync-mt, 6 rounds\n"
	    "\n"
	    "             base                          other\n"
	    "          %stddev     %change            %stddev      lkp\n"
	    "             \\          |                   \\\n"
	    "    100.00 ± 1.1%      +20.0%      120.00 ± 1.1%  changed  "
	    "iops\n"
	    "    100.00 ± 1.1%       +0.0%      100.00 ± 1.1%        -  "
	    "lat (us)\n"
	    "\n"
	    "test: the lkp tools' rule, which has no p and is not "
	    "corrected:\n"
	    "      2 headline figures to decide, and 0 others to explain\n");
	assert_verdict(&c, "better: iops +20.0%\n");
	comparison_fini(&c);
}

/* Where the columns are, counted in characters. */
static size_t
column_of_name(const char *line)
{
	size_t column = 0;

	for (const char *at = line; *at != '\0' && *at != '@'; at++)
		column += ((unsigned char)*at & 0xc0) != 0x80;
	return column;
}

static void
columns_stay_where_they_are(void **state)
{
	static const double value[] = { 0, 1, -1, 999.996, -999.996, 1e8, -1e8,
		123456789, -7.3151e8, 1e-9, -1.234e-300, DBL_MAX, -DBL_MAX,
		5e-324, 0.0999, 1e99, -1e100 };
	const size_t nr = sizeof(value) / sizeof(value[0]);
	struct comparison c;
	char *text, *line, *rest;
	size_t rows = 0;
	char name[300];

	(void)state;
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	begin(&c, name, name);
	for (size_t i = 0; i < nr; i++)
		for (size_t j = 0; j < nr; j++) {
			snprintf(name, sizeof(name), "@%zu.%zu", i, j);
			add(&c, name, "", BETTER_NEITHER, false, value[i],
			    value[j], 0.5 * (double)(j % 3));
		}
	memset(name, '@', sizeof(name) - 1);
	add(&c, name, "", BETTER_NEITHER, false, 1, 2, 0);
	judge(&c, METHOD_WELCH);
	rest = text = printed(&c, true);
	while ((line = strsep(&rest, "\n")) != NULL) {
		if (strchr(line, '@') == NULL)
			continue;
		assert_int_equal(column_of_name(line), 59);
		rows++;
	}
	assert_int_equal(rows, nr * nr + 1);
	free(text);
	comparison_fini(&c);
}

static void
names_do_not_move_the_cursor(void **state)
{
	struct comparison c;
	char *text;

	(void)state;
	begin(&c, "a\033[2Jb\nc", "x\ry");
	add(&c, "i\no\tps", "\a", BETTER_HIGHER, true, 1, 2, 0);
	comparison_note(&c, "one\ntwo");
	judge(&c, METHOD_WELCH);
	text = printed(&c, false);
	assert_non_null(strstr(text, "base:  a?[2Jb?c\n"));
	assert_non_null(strstr(text, "other: x?y\n"));
	assert_non_null(strstr(text, "  i?o?ps (?)\n"));
	assert_non_null(strstr(text, "note:  one?two\n"));
	free(text);
	assert_verdict(&c, "better: i?o?ps +100.0%\n");
	comparison_fini(&c);
}

static void
nothing_is_a_table_too(void **state)
{
	struct comparison c = {};
	json_t *json;
	char *text;

	(void)state;
	judge(&c, METHOD_WELCH);
	text = printed(&c, true);
	assert_non_null(strstr(text, "\nnothing was measured\n"));
	free(text);
	assert_verdict(&c, "no answer: no headline figure was measured\n");
	text = csv_of(&c);
	assert_non_null(strstr(text, ",differs\r\n"));
	free(text);
	json = table_json(&c);
	assert_non_null(json);
	assert_int_equal(json_array_size(json_object_get(json, "figures")), 0);
	assert_true(json_is_null(json_object_get(json, "date")));
	json_decref(json);
	add(&c, "iops", "", BETTER_HIGHER, true, 1, 1, 0);
	judge(&c, METHOD_WELCH);
	text = printed(&c, false);
	assert_non_null(strstr(text, "\nnothing differs\n"));
	free(text);
	comparison_fini(&c);
}

static void
says_what_decided(void **state)
{
	struct comparison c;

	(void)state;
	begin(&c, "a", "b");
	add(&c, "iops", "", BETTER_HIGHER, true, 100, 90, 0.01);
	add(&c, "lat", "us", BETTER_LOWER, true, 100, 111, 0.01);
	add(&c, "bw", "", BETTER_HIGHER, true, 100, 100, 0.01);
	add(&c, "merges", "", BETTER_HIGHER, false, 100, 500, 0.01);
	judge(&c, METHOD_WELCH);
	assert_verdict(&c, "worse: iops -10.0%, lat +11.0%\n");
	add(&c, "p99", "us", BETTER_LOWER, true, 100, 50, 0.01);
	/* of nothing it is no percentage */
	add(&c, "errors", "", BETTER_LOWER, true, 0, 50, 0.01);
	judge(&c, METHOD_WELCH);
	assert_verdict(&c,
	    "mixed: better: p99 -50.0%; worse: iops -10.0%, lat +11.0%, "
	    "errors\n");
	comparison_fini(&c);
}

/*
 * Both have a spread of 4% * sqrt(6 / 5) = 4.38%, and 2% is seen: its square is
 * 4.80 times smaller.  2 * (2.576 + 0.842)^2 * 4.8 = 112, and t's one or two.
 * With 0.22% the effect of 1% is 4.56 of it: 2 * ((4.604 + 0.941) / 4.56)^2 is
 * 2.95, by the t of 4 degrees.
 */
static void
says_how_many_runs_would_tell(void **state)
{
	struct comparison c;

	(void)state;
	begin(&c, "a", "b");
	add(&c, "iops", "", BETTER_HIGHER, true, 100, 102, 0.04);
	judge(&c, METHOD_WELCH);
	assert_in_range(c.verdict.runs_needed, 112, 116);
	c.verdict.runs_needed = 114;
	assert_verdict(&c,
	    "no difference that these runs can show; one of 2.0% of iops "
	    "would need about 114 runs a side\n");
	comparison_fini(&c);
	begin(&c, "a", "b");
	add(&c, "iops", "", BETTER_HIGHER, true, 100, 100.1, 0.002);
	judge(&c, METHOD_WELCH);
	assert_verdict(&c,
	    "no difference that these runs can show; one of 1.0% of iops "
	    "would have shown, with about 3 runs a side\n");
	comparison_fini(&c);
}

static void
says_when_there_are_too_few(void **state)
{
	struct comparison c;

	(void)state;
	begin(&c, "a", "b");
	figures_add(&c.figures, SIDE_BASE, "x", "", BETTER_HIGHER, true, 1);
	judge(&c, METHOD_WELCH);
	assert_verdict(&c, "too few runs for any answer: at least 2 a side\n");
	judge(&c, METHOD_LKP);
	assert_verdict(&c, "too few runs for any answer: at least 3 a side\n");
	for (int i = 0; i < 3; i++) {
		figures_add(&c.figures, SIDE_BASE, "x", "", BETTER_HIGHER, true,
		    10 + i);
		figures_add(&c.figures, SIDE_OTHER, "x", "", BETTER_HIGHER,
		    true, 900 + i);
	}
	judge(&c, METHOD_MANN_WHITNEY);
	assert_verdict(
	    &c, "too few runs for any answer; about 5 a side would give one\n");
	comparison_fini(&c);
}

static void
csv_is_quoted_and_holds_each_run(void **state)
{
	struct comparison c;
	char *text;

	(void)state;
	begin(&c, "a", "b");
	figures_add(
	    &c.figures, SIDE_BASE, "plain", "us", BETTER_LOWER, true, 1.5);
	figures_add(
	    &c.figures, SIDE_BASE, "plain", "us", BETTER_LOWER, true, NAN);
	figures_add(
	    &c.figures, SIDE_BASE, "plain", "us", BETTER_LOWER, true, 2.5);
	figures_add(
	    &c.figures, SIDE_OTHER, "plain", "us", BETTER_LOWER, true, 4);
	figures_add(&c.figures, SIDE_OTHER, "a \"b\",\nc", "", BETTER_NEITHER,
	    false, 0.1);
	judge(&c, METHOD_WELCH);
	text = csv_of(&c);
	assert_string_equal(text,
	    "name,unit,better,headline,base_mean,base_stddev,base_runs,"
	    "other_mean,other_stddev,other_runs,change,p_alone,p,differs,"
	    "base_1,base_2,base_3,other_1\r\n"
	    "plain,us,lower,yes,2,0.70710678118654757,2,4,,1,1,,,no,"
	    "1.5,,2.5,4\r\n"
	    "\"a \"\"b\"\",\nc\",,neither,no,,,0,0.10000000000000001,,1,,,,no,"
	    ",,,0.10000000000000001\r\n");
	free(text);
	comparison_fini(&c);
}

static const json_t *
at(const json_t *json, const char *key)
{
	json_t *value = json_object_get(json, key);

	if (value == NULL)
		fail_msg("no %s", key);
	return value;
}

static void
add_run(struct comparison *c)
{
	struct run *r = calloc(1, sizeof(*r));
	struct buckets *b = &r->clat_ns[RUN_WRITE];

	*r = (struct run){ .side = SIDE_OTHER, .round = 2, .warm_up = true };
	b->upto = calloc(2, sizeof(double));
	b->count = calloc(2, sizeof(uint64_t));
	b->nr = 2;
	b->upto[0] = 1000;
	b->upto[1] = INFINITY;
	b->count[0] = 7;
	b->count[1] = UINT64_MAX;
	r->iops.at = calloc(1, sizeof(double));
	r->iops.value = calloc(1, sizeof(double));
	r->iops.nr = 1;
	r->iops.at[0] = 0.5;
	r->iops.value[0] = 1000;
	c->run = r;
	c->nr_runs = 1;
}

static void
json_holds_all_of_it(void **state)
{
	const json_t *f, *v, *run, *values;
	struct comparison c;
	json_t *json;
	char *text;

	(void)state;
	report_b(&c);
	c.job = strdup("[job]\nrw=read\n");
	c.date = strdup("2026-12-01T12:00:00Z");
	c.config[SIDE_BASE] = strdup("# caf\351, as Latin-1 has it\n");
	c.config[SIDE_OTHER] = strdup("# caf\303\251\n");
	c.heat[SIDE_OTHER] = calloc(1, sizeof(struct heat));
	c.heat[SIDE_OTHER]->count[1][2] = 4096;
	c.heat[SIDE_OTHER]->bytes = 1 << 20;
	add_run(&c);
	comparison_note(&c, "a note");
	judge(&c, METHOD_WELCH);
	json = table_json(&c);
	assert_non_null(json);

	v = at(json, "verdict");
	assert_string_equal(json_string_value(at(v, "outcome")), "better");
	assert_string_equal(json_string_value(at(v, "text")),
	    "better: vm-scalability.throughput +43.5%");
	assert_string_equal(json_string_value(at(v, "method")), "welch");
	assert_string_equal(json_string_value(at(v, "correction")), "holm");
	assert_int_equal(json_integer_value(at(v, "tested_headline")), 1);
	assert_int_equal(json_integer_value(at(v, "tested_others")), 5);

	assert_int_equal(json_array_size(at(json, "figures")), 8);
	f = json_array_get(at(json, "figures"), 0);
	assert_string_equal(
	    json_string_value(at(f, "name")), "vm-scalability.throughput");
	assert_true(json_is_true(at(f, "headline")));
	values = at(at(f, "other"), "values");
	assert_int_equal(json_array_size(values), 6);
	assert_true(json_real_value(json_array_get(values, 1)) ==
		    2755159 * (1 - 0.001));
	f = json_array_get(at(json, "figures"), 7);
	assert_true(json_is_null(at(f, "p")));
	assert_true(
	    json_is_null(json_array_get(at(at(f, "base"), "values"), 0)));

	assert_string_equal(json_string_value(at(at(json, "base"), "config")),
	    "# caf?, as Latin-1 has it\n");
	assert_string_equal(json_string_value(at(at(json, "other"), "config")),
	    "# caf\303\251\n");
	assert_true(json_is_null(at(at(json, "base"), "heat")));
	values = at(at(at(json, "other"), "heat"), "count");
	assert_int_equal(
	    json_integer_value(json_array_get(json_array_get(values, 1), 2)),
	    4096);

	run = json_array_get(at(json, "runs"), 0);
	assert_string_equal(json_string_value(at(run, "side")), "other");
	assert_true(json_is_true(at(run, "warm_up")));
	values = at(at(run, "clat_ns"), "write");
	assert_int_equal(
	    json_integer_value(json_array_get(at(values, "count"), 0)), 7);
	assert_true(
	    json_real_value(json_array_get(at(values, "count"), 1)) == 0x1p64);
	assert_true(json_is_null(json_array_get(at(values, "upto"), 1)));
	assert_int_equal(json_array_size(at(json, "notes")), 1);

	/* what is written is read again */
	text = json_dumps(json, 0);
	assert_non_null(text);
	json_decref(json);
	json = json_loads(text, 0, NULL);
	assert_non_null(json);
	json_decref(json);
	free(text);
	comparison_fini(&c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_as_lkp_prints_it),
		cmocka_unit_test(all_of_it_has_a_p),
		cmocka_unit_test(lkp_rule_is_named_as_no_test),
		cmocka_unit_test(columns_stay_where_they_are),
		cmocka_unit_test(names_do_not_move_the_cursor),
		cmocka_unit_test(nothing_is_a_table_too),
		cmocka_unit_test(says_what_decided),
		cmocka_unit_test(says_how_many_runs_would_tell),
		cmocka_unit_test(says_when_there_are_too_few),
		cmocka_unit_test(csv_is_quoted_and_holds_each_run),
		cmocka_unit_test(json_holds_all_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
