/* SPDX-License-Identifier: MIT */
/*
 * A comparison as a table, as the lkp tools print theirs:
 *
 *	            base                            other
 *	        %stddev     %change             %stddev
 *	              \         |                     \
 *	   1920140 ± 0.1%     +43.5%     2755159 ± 0.4%  fio.write.bw (KiB/s)
 *
 * with a tenth of a percent of spread, for a difference of 1% is looked for.
 * Then in words, and for other programs as CSV (RFC 4180) and JSON.
 */
#include "compare/compare.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const side_name[NR_SIDES] = { "base", "other" };
static const char *const better_name[] = {
	[BETTER_NEITHER] = "neither",
	[BETTER_HIGHER] = "higher",
	[BETTER_LOWER] = "lower",
};
static const char *const method_name[] = {
	[METHOD_WELCH] = "welch",
	[METHOD_MANN_WHITNEY] = "mann-whitney",
	[METHOD_LKP] = "lkp",
};
static const char *const outcome_name[] = {
	[OUTCOME_NONE] = "no difference",
	[OUTCOME_BETTER] = "better",
	[OUTCOME_WORSE] = "worse",
	[OUTCOME_MIXED] = "mixed",
	[OUTCOME_FEW] = "too few runs",
};

/* ---- texts */

/* A name is whatever a file is called: what would move a cursor is not. */
static void
print_plain(FILE *out, const char *text)
{
	for (; text != NULL && *text != '\0'; text++)
		fputc(iscntrl((unsigned char)*text) ? '?' : *text, out);
}

/* 12.34, 1920140, 7.315e+08: at most 10 columns. */
void
table_number(double x, char text[TABLE_TEXT])
{
	double size = fabs(x);

	if (!isfinite(x))
		snprintf(text, TABLE_TEXT, "-");
	else if (size > 1e8)
		snprintf(text, TABLE_TEXT, "%.*g", size < 1e99 ? 4 : 3, x);
	else if (size >= 1000)
		snprintf(text, TABLE_TEXT, "%.0f", x);
	else if (size >= 0.1 || size == 0)
		snprintf(text, TABLE_TEXT, "%.2f", x);
	else
		snprintf(text, TABLE_TEXT, "%.3g", x);
}

/* Of its mean, in percent: 4 columns; "-" when it has none. */
void
table_spread(const struct sample *s, char text[TABLE_TEXT])
{
	double mean = fabs(sample_mean(s)), percent;

	percent = sample_stddev(s) > 0 ? 100 * sample_stddev(s) / mean : 0;
	if (sample_count(s) < 2 || !isfinite(percent))
		snprintf(text, TABLE_TEXT, "   -");
	else if (percent < 99.95)
		snprintf(text, TABLE_TEXT, "%4.1f", percent);
	else
		snprintf(text, TABLE_TEXT, "%4.0f", fmin(percent, 9999));
}

void
table_change(double change, char text[TABLE_TEXT])
{
	double percent = 100 * change;

	if (!isfinite(percent))
		snprintf(text, TABLE_TEXT, "-");
	else if (fabs(percent) < 100000)
		snprintf(text, TABLE_TEXT, "%+.1f%%", percent);
	else
		snprintf(text, TABLE_TEXT, "%+.2g%%", percent);
}

void
table_p(double p, char text[TABLE_TEXT])
{
	if (isnan(p))
		snprintf(text, TABLE_TEXT, "-");
	else if (p < 0.0001)
		snprintf(text, TABLE_TEXT, "<0.0001");
	else
		snprintf(text, TABLE_TEXT, "%.4f", p);
}

/* ---- the table */

static void
print_side(FILE *out, const struct sample *s)
{
	char mean[TABLE_TEXT], spread[TABLE_TEXT];

	if (sample_count(s) == 0) {
		fprintf(out, "%10s %6s", "-", "");
		return;
	}
	table_number(sample_mean(s), mean);
	table_spread(s, spread);
	fprintf(out, "%10s \302\261%s%%", mean, spread);
}

static void
print_row(FILE *out, const struct figure *f, enum method method, bool all)
{
	char change[TABLE_TEXT], p[TABLE_TEXT];

	table_change(f->change, change);
	print_side(out, &f->side[SIDE_BASE]);
	fprintf(out, "  %10s  ", change);
	print_side(out, &f->side[SIDE_OTHER]);
	table_p(f->p, p);
	if (all && method == METHOD_LKP)
		snprintf(p, sizeof(p), "%s", f->differs ? "changed" : "-");
	if (all)
		fprintf(out, "  %7s", p);
	fputs("  ", out);
	print_plain(out, f->name);
	if (f->unit[0] != '\0') {
		fputs(" (", out);
		print_plain(out, f->unit);
		fputs(")", out);
	}
	fputc('\n', out);
}

static void
print_head(FILE *out, const struct comparison *c, bool all)
{
	static const char *const what[NR_SIDES] = { "base:  ", "other: " };

	for (unsigned side = 0; side < NR_SIDES; side++) {
		fputs(what[side], out);
		print_plain(out, c->label[side]);
		fputc('\n', out);
	}
	fputs("job:   ", out);
	print_plain(out, c->job_name);
	fprintf(out, ", %u round%s%s\n", c->nr_rounds,
	    c->nr_rounds == 1 ? "" : "s", c->cut_short ? ", cut short" : "");
	for (size_t i = 0; i < c->nr_notes; i++) {
		fputs("note:  ", out);
		print_plain(out, c->notes[i]);
		fputc('\n', out);
	}
	fprintf(out, "\n%17s%31s\n", "base", "other");
	fprintf(out, "%17s  %10s  %17s%s\n", "%stddev", "%change", "%stddev",
	    !all                              ? ""
	    : c->verdict.method == METHOD_LKP ? "      lkp"
					      : "        p");
	fprintf(out, "%14s  %9s  %18s\n", "\\", "|", "\\");
}

/* "1 headline figure", "3 others" */
static void
print_count(FILE *out, size_t nr, const char *what)
{
	fprintf(out, "%zu %s%s", nr, what, nr == 1 ? "" : "s");
}

static void
print_method(FILE *out, const struct comparison *c)
{
	const struct verdict *v = &c->verdict;
	size_t left = c->figures.nr - v->nr_tested[0] - v->nr_tested[1];

	fputc('\n', out);
	if (v->method == METHOD_LKP)
		fputs("test: the lkp tools' rule, which has no p and is not "
		      "corrected:\n      ",
		    out);
	else
		fprintf(out,
		    "test: %s, two-sided; a difference is p < %g after Holm's "
		    "correction:\n      ",
		    v->method == METHOD_WELCH ? "Welch's t"
					      : "Mann-Whitney's U",
		    v->alpha);
	print_count(out, v->nr_tested[0], "headline figure");
	fputs(" to decide, and ", out);
	print_count(out, v->nr_tested[1], "other");
	fputs(v->method == METHOD_LKP ? " to explain"
				      : " to explain, a family each",
	    out);
	if (left > 0)
		fprintf(out,
		    ";\n      %zu not tested: constant, or too few runs", left);
	fputc('\n', out);
}

void
table_print(FILE *out, const struct comparison *c, bool all)
{
	size_t nr = 0;

	print_head(out, c, all);
	for (size_t i = 0; i < c->figures.nr; i++) {
		if (!all && !c->figures.figure[i].differs)
			continue;
		print_row(out, &c->figures.figure[i], c->verdict.method, all);
		nr++;
	}
	if (nr == 0)
		fputs(c->figures.nr == 0 ? "nothing was measured\n"
					 : "nothing differs\n",
		    out);
	print_method(out, c);
}

/* ---- the verdict */

/* Headline figures that went this way: 1 for better, -1 for worse. */
static void
print_deciding(FILE *out, const struct comparison *c, int direction)
{
	const char *separator = "";
	char change[TABLE_TEXT];
	const struct figure *f;

	for (size_t i = 0; i < c->figures.nr; i++) {
		f = &c->figures.figure[i];
		if (!f->headline || !f->differs ||
		    figure_direction(f) != direction)
			continue;
		fputs(separator, out);
		print_plain(out, f->name);
		table_change(f->change, change);
		if (change[0] != '-' || change[1] != '\0')
			fprintf(out, " %s", change);
		separator = ", ";
	}
}

static size_t
runs_of(const struct figure *f)
{
	size_t a = sample_count(&f->side[SIDE_BASE]);
	size_t b = sample_count(&f->side[SIDE_OTHER]);

	return a < b ? a : b;
}

static void
print_none(FILE *out, const struct verdict *v)
{
	const struct figure *f = v->decisive;

	fputs("no difference that these runs can show", out);
	if (f == NULL || v->runs_needed == 0)
		return;
	fprintf(out, "; one of %.1f%% of ", 100 * v->difference);
	print_plain(out, f->name);
	if (v->runs_needed <= runs_of(f))
		fprintf(out, " would have shown, with about %zu runs a side",
		    v->runs_needed);
	else
		fprintf(
		    out, " would need about %zu runs a side", v->runs_needed);
}

static void
print_few(FILE *out, const struct verdict *v)
{
	if (v->decisive == NULL)
		fputs("no answer: no headline figure was measured", out);
	else if (v->runs_needed != 0)
		fprintf(out,
		    "too few runs for any answer; about %zu a side would "
		    "give one",
		    v->runs_needed);
	else
		fprintf(out, "too few runs for any answer: at least %u a side",
		    v->method == METHOD_LKP ? 3u : 2u);
}

void
table_verdict(FILE *out, const struct comparison *c)
{
	switch (c->verdict.outcome) {
	case OUTCOME_NONE: print_none(out, &c->verdict); break;
	case OUTCOME_BETTER:
		fputs("better: ", out);
		print_deciding(out, c, 1);
		break;
	case OUTCOME_WORSE:
		fputs("worse: ", out);
		print_deciding(out, c, -1);
		break;
	case OUTCOME_MIXED:
		fputs("mixed: better: ", out);
		print_deciding(out, c, 1);
		fputs("; worse: ", out);
		print_deciding(out, c, -1);
		break;
	case OUTCOME_FEW: print_few(out, &c->verdict); break;
	}
	fputc('\n', out);
}

/* ---- CSV */

static void
csv_text(FILE *out, const char *text)
{
	if (text[strcspn(text, ",\"\r\n")] == '\0') {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text != '\0'; text++)
		fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
	fputc('"', out);
}

/* An empty field: there is none. */
static void
csv_number(FILE *out, double x)
{
	fputc(',', out);
	if (isfinite(x))
		fprintf(out, "%.17g", x);
}

static void
csv_side(FILE *out, const struct sample *s)
{
	size_t nr = sample_count(s);

	csv_number(out, nr > 0 ? sample_mean(s) : NAN);
	csv_number(out, nr > 1 ? sample_stddev(s) : NAN);
	fprintf(out, ",%zu", nr);
}

static void
csv_row(FILE *out, const struct figure *f, const size_t nr_values[NR_SIDES])
{
	const struct sample *s;

	csv_text(out, f->name);
	fputc(',', out);
	csv_text(out, f->unit);
	fprintf(
	    out, ",%s,%s", better_name[f->better], f->headline ? "yes" : "no");
	csv_side(out, &f->side[SIDE_BASE]);
	csv_side(out, &f->side[SIDE_OTHER]);
	csv_number(out, f->change);
	csv_number(out, f->p_alone);
	csv_number(out, f->p);
	fprintf(out, ",%s", f->differs ? "yes" : "no");
	for (unsigned side = 0; side < NR_SIDES; side++) {
		s = &f->side[side];
		for (size_t i = 0; i < nr_values[side]; i++)
			csv_number(out, i < s->nr ? s->value[i] : NAN);
	}
	fputs("\r\n", out);
}

void
table_csv(FILE *out, const struct comparison *c)
{
	size_t nr[NR_SIDES] = { 0 }, has;

	for (size_t i = 0; i < c->figures.nr; i++)
		for (unsigned side = 0; side < NR_SIDES; side++) {
			has = c->figures.figure[i].side[side].nr;
			nr[side] = has > nr[side] ? has : nr[side];
		}
	fputs("name,unit,better,headline,base_mean,base_stddev,base_runs,"
	      "other_mean,other_stddev,other_runs,change,p_alone,p,differs",
	    out);
	for (unsigned side = 0; side < NR_SIDES; side++)
		for (size_t i = 0; i < nr[side]; i++)
			fprintf(out, ",%s_%zu", side_name[side], i + 1);
	fputs("\r\n", out);
	for (size_t i = 0; i < c->figures.nr; i++)
		csv_row(out, &c->figures.figure[i], nr);
}

/* ---- JSON: what has no memory is NULL, and makes all of it so */

static void
put(json_t *to, const char *key, json_t *value, bool *ok)
{
	if (json_object_set_new(to, key, value) != 0)
		*ok = false;
}

static void
append(json_t *to, json_t *value, bool *ok)
{
	if (json_array_append_new(to, value) != 0)
		*ok = false;
}

/* A configuration may hold any bytes; JSON holds UTF-8. */
static json_t *
json_text(const char *text)
{
	json_t *value;
	char *copy;

	if (text == NULL)
		return json_null();
	value = json_string(text);
	if (value != NULL)
		return value;
	copy = strdup(text);
	if (copy == NULL)
		return NULL;
	for (char *at = copy; *at != '\0'; at++)
		if (!isascii((unsigned char)*at))
			*at = '?';
	value = json_string(copy);
	free(copy);
	return value;
}

static json_t *
json_number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static json_t *
json_count(uint64_t nr)
{
	return nr <= LLONG_MAX ? json_integer((json_int_t)nr)
			       : json_real((double)nr);
}

static json_t *
json_numbers(const double *value, size_t nr, bool *ok)
{
	json_t *to = json_array();

	for (size_t i = 0; i < nr; i++)
		append(to, json_number(value[i]), ok);
	return to;
}

static json_t *
json_counts(const uint64_t *count, size_t nr, bool *ok)
{
	json_t *to = json_array();

	for (size_t i = 0; i < nr; i++)
		append(to, json_count(count[i]), ok);
	return to;
}

static json_t *
json_sample(const struct sample *s, bool *ok)
{
	json_t *to = json_object();
	size_t nr = sample_count(s);

	put(to, "mean", json_number(nr > 0 ? sample_mean(s) : NAN), ok);
	put(to, "stddev", json_number(nr > 1 ? sample_stddev(s) : NAN), ok);
	put(to, "values", json_numbers(s->value, s->nr, ok), ok);
	return to;
}

static json_t *
json_figure(const struct figure *f, bool *ok)
{
	json_t *to = json_object();

	put(to, "name", json_text(f->name), ok);
	put(to, "unit", json_text(f->unit), ok);
	put(to, "better", json_text(better_name[f->better]), ok);
	put(to, "headline", json_boolean(f->headline), ok);
	for (unsigned side = 0; side < NR_SIDES; side++)
		put(to, side_name[side], json_sample(&f->side[side], ok), ok);
	put(to, "change", json_number(f->change), ok);
	put(to, "p_alone", json_number(f->p_alone), ok);
	put(to, "p", json_number(f->p), ok);
	put(to, "differs", json_boolean(f->differs), ok);
	return to;
}

static json_t *
json_buckets(const struct buckets *b, bool *ok)
{
	json_t *to = json_object();

	put(to, "upto", json_numbers(b->upto, b->nr, ok), ok);
	put(to, "count", json_counts(b->count, b->nr, ok), ok);
	return to;
}

static json_t *
json_run(const struct run *r, bool *ok)
{
	static const char *const op_name[NR_RUN_OPS] = { "read", "write",
		"trim" };
	json_t *to = json_object(), *of = json_object();

	put(to, "side", json_text(side_name[r->side]), ok);
	put(to, "round", json_integer(r->round), ok);
	put(to, "warm_up", json_boolean(r->warm_up), ok);
	for (unsigned op = 0; op < NR_RUN_OPS; op++)
		put(of, op_name[op], json_buckets(&r->clat_ns[op], ok), ok);
	put(to, "clat_ns", of, ok);
	of = json_object();
	put(of, "at", json_numbers(r->iops.at, r->iops.nr, ok), ok);
	put(of, "value", json_numbers(r->iops.value, r->iops.nr, ok), ok);
	put(to, "iops", of, ok);
	put(to, "sectors", json_buckets(&r->sectors, ok), ok);
	put(to, "segments", json_buckets(&r->segments, ok), ok);
	return to;
}

static json_t *
json_heat(const struct heat *h, bool *ok)
{
	json_t *to, *rows;

	if (h == NULL)
		return json_null();
	to = json_object();
	rows = json_array();
	for (unsigned row = 0; row < HEAT_ROWS; row++)
		append(rows, json_counts(h->count[row], HEAT_COLUMNS, ok), ok);
	put(to, "seconds", json_number(h->seconds), ok);
	put(to, "bytes", json_count(h->bytes), ok);
	put(to, "count", rows, ok);
	return to;
}

static json_t *
json_side(const struct comparison *c, enum side side, bool *ok)
{
	json_t *to = json_object();

	put(to, "label", json_text(c->label[side]), ok);
	put(to, "config", json_text(c->config[side]), ok);
	put(to, "heat", json_heat(c->heat[side], ok), ok);
	return to;
}

static json_t *
json_verdict(const struct comparison *c, bool *ok)
{
	const struct verdict *v = &c->verdict;
	json_t *to = json_object();
	char *text = NULL;
	size_t len;
	FILE *words = open_memstream(&text, &len);

	if (words != NULL) {
		table_verdict(words, c);
		fclose(words);
	}
	if (text != NULL)
		text[strcspn(text, "\n")] = '\0';
	*ok = *ok && text != NULL;
	put(to, "outcome", json_text(outcome_name[v->outcome]), ok);
	put(to, "text", json_text(text), ok);
	free(text);
	put(to, "method", json_text(method_name[v->method]), ok);
	put(to, "correction",
	    json_text(v->method == METHOD_LKP ? NULL : "holm"), ok);
	put(to, "alpha", json_number(v->alpha), ok);
	put(to, "tested_headline", json_count(v->nr_tested[0]), ok);
	put(to, "tested_others", json_count(v->nr_tested[1]), ok);
	put(to, "decisive",
	    json_text(v->decisive != NULL ? v->decisive->name : NULL), ok);
	put(to, "difference", json_number(v->difference), ok);
	put(to, "runs_needed",
	    v->runs_needed != 0 ? json_count(v->runs_needed) : json_null(), ok);
	return to;
}

json_t *
table_json(const struct comparison *c)
{
	json_t *to = json_object(), *list;
	bool ok = true;

	put(to, "date", json_text(c->date), &ok);
	put(to, "machine", json_text(c->machine), &ok);
	put(to, "versions", json_text(c->versions), &ok);
	put(to, "job_name", json_text(c->job_name), &ok);
	put(to, "job", json_text(c->job), &ok);
	put(to, "rounds", json_integer(c->nr_rounds), &ok);
	put(to, "cut_short", json_boolean(c->cut_short), &ok);
	for (unsigned side = 0; side < NR_SIDES; side++)
		put(to, side_name[side], json_side(c, side, &ok), &ok);
	list = json_array();
	for (size_t i = 0; i < c->nr_notes; i++)
		append(list, json_text(c->notes[i]), &ok);
	put(to, "notes", list, &ok);
	put(to, "verdict", json_verdict(c, &ok), &ok);
	list = json_array();
	for (size_t i = 0; i < c->figures.nr; i++)
		append(list, json_figure(&c->figures.figure[i], &ok), &ok);
	put(to, "figures", list, &ok);
	list = json_array();
	for (size_t i = 0; i < c->nr_runs; i++)
		append(list, json_run(&c->run[i], &ok), &ok);
	put(to, "runs", list, &ok);
	if (ok)
		return to;
	json_decref(to);
	return NULL;
}
