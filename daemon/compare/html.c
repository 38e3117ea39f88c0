/* SPDX-License-Identifier: MIT */
/*
 * A comparison as a page that needs nothing else: no script, no font, no
 * picture is fetched.  What people look for comes first: the verdict, what
 * differs, and the runs it is concluded from.  Base is blue and other orange
 * throughout, which colour-blind readers can tell apart, too.
 */
#include "compare/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH       720.0 /* of a picture; all of it scales */
#define LEFT        72.0
#define TOP         34.0
#define PLOT_HEIGHT 230.0
#define BOX_HEIGHT  104.0
#define MAX_CURVE   2048u  /* steps: more than there are pixels */
#define MAX_POINTS  20000u /* of all runs over time */
#define MAX_PLAIN   8u     /* runs that are drawn over each other as they are */
#define MAX_BARS    48u    /* of a histogram: the last takes what is above */
#define LAST_NINES  4.0    /* 99.99 */
#define MAX_TEXT    16384u /* bytes of a configuration or a job that is shown */

static const char *const side_name[NR_SIDES] = { "base", "other" };
static const char *const op_name[NR_RUN_OPS] = { "Reads", "Writes", "Trims" };

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f23;--soft:#57606a;"
    "--line:#d8dee4;--panel:#f6f8fa;--base:#0072b2;--other:#c4510a}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e3e6e9;"
    "--soft:#9aa4ae;--line:#353c43;--panel:#1d2125;--base:#56b4e9;"
    "--other:#f0a030}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:60rem;padding:1.5rem 1rem 4rem;"
    "background:var(--bg);color:var(--fg);"
    "font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}\n"
    "h1{font-size:1.5rem;line-height:1.25;margin:.2em 0 .6em}\n"
    "h2{font-size:1.15rem;margin:2.2em 0 .6em;padding-bottom:.25em;"
    "border-bottom:1px solid var(--line)}\n"
    "h3{font-size:1rem;margin:1em 0 .3em;font-weight:600}\n"
    "p,li{max-width:46rem}.soft,figcaption{color:var(--soft);"
    "font-size:.875rem}figcaption{margin:0 0 .3em}\n"
    ".verdict{background:var(--panel);border-left:4px solid var(--soft);"
    "padding:.8em 1em;font-size:1.1rem;max-width:none}"
    ".verdict::first-letter{text-transform:uppercase}\n"
    ".key span{margin-right:1.5em;display:inline-block}"
    ".base b{color:var(--base)}.other b{color:var(--other)}\n"
    ".facts{display:flex;flex-wrap:wrap;gap:.4rem 2rem;margin:0 0 1em;"
    "font-size:.875rem}dt{color:var(--soft)}dd{margin:0}\n"
    ".notes{padding-left:1.2em}\n"
    ".scroll{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-size:.875rem;"
    "font-variant-numeric:tabular-nums;width:100%}\n"
    "th,td{padding:.3em .7em;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--line)}\n"
    "th:first-child{text-align:left;padding-left:0}"
    "tbody th{font-weight:400;font-family:ui-monospace,monospace}\n"
    "thead th{color:var(--soft);font-weight:600}"
    "td.yes{font-weight:700}\n"
    "figure{margin:.6em 0 1.2em}.two{display:grid;gap:0 2rem;"
    "grid-template-columns:repeat(auto-fit,minmax(min(22rem,100%),1fr))}\n"
    ".two>*{min-width:0}\n"
    "pre{background:var(--panel);padding:.8em 1em;overflow-x:auto;"
    "font:.8125rem/1.5 ui-monospace,monospace;margin:.4em 0;"
    "overflow-wrap:normal}\n"
    "mark{background:none;color:inherit;font-weight:700;"
    "box-shadow:inset 3px 0 var(--mark);padding-left:.6em;"
    "margin-left:-.6em}.base{--mark:var(--base)}"
    ".other{--mark:var(--other)}\n"
    "summary{cursor:pointer;margin:.8em 0}\n"
    "svg{display:block;width:100%;height:auto}\n"
    "svg text{font:11px system-ui,sans-serif;fill:var(--soft)}\n"
    "svg path{vector-effect:non-scaling-stroke}\n"
    "svg .grid{stroke:var(--line)}svg .axis{stroke:var(--soft)}\n"
    "svg .line{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    "svg .thin{stroke-width:1.25}svg .many{stroke-width:1;opacity:.6}\n"
    "svg .line.base{stroke:var(--base)}svg .line.other{"
    "stroke:var(--other);stroke-dasharray:7 3}"
    "svg .line.other.thin{stroke-dasharray:none}\n"
    "svg .base{fill:var(--base)}svg .other{fill:var(--other)}"
    "svg .line.base,svg .line.other{fill:none}\n"
    "svg .box{fill-opacity:.25}svg .median{stroke:var(--fg);"
    "stroke-width:2}\n"
    "svg [class^=heat]{fill:var(--heat)}\n"
    "svg .heat1{opacity:.18}svg .heat2{opacity:.34}svg .heat3{opacity:.5}"
    "svg .heat4{opacity:.67}svg .heat5{opacity:.83}\n"
    ".base{--heat:var(--base)}.other{--heat:var(--other)}\n"
    /* a telephone: all of the table, and numbers that can be read */
    "@media(max-width:40rem){.wide svg text{font-size:20px}"
    "table{font-size:.75rem}th,td{padding:.35em .4em}"
    "td .soft{display:block;font-size:.7rem}"
    "tbody th{white-space:normal;overflow-wrap:break-word}}\n"
    "@media print{body{max-width:none;padding:0;font-size:10pt}"
    "h2,figcaption{break-after:avoid}figure,tr,pre{break-inside:avoid}"
    "pre{white-space:pre-wrap}"
    "details::details-content{content-visibility:visible;height:auto}}\n";

/* ---- what is around it */

static void
text(FILE *out, const char *before, const char *t, const char *after)
{
	fputs(before, out);
	svg_text(out, t);
	fputs(after, out);
}

/* A new section; a sentence says how to read it. */
static void
section(FILE *out, const char *title, const char *sentence)
{
	fprintf(
	    out, "<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", title, sentence);
}

/* What colours mean. */
static void
key(FILE *out, const struct comparison *c)
{
	unsigned i;

	fputs("<p class=\"key\">", out);
	for (i = 0; i < NR_SIDES; i++) {
		fprintf(out, "<span class=\"%s\"><b>&#9632; %s</b> ",
		    side_name[i], side_name[i]);
		text(out, "", c->label[i], "</span> ");
	}
	fputs("</p>\n", out);
}

static int
verdict(FILE *out, const struct comparison *c)
{
	char *words = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&words, &len);

	if (f == NULL)
		return -ENOMEM;
	table_verdict(f, c);
	if (fclose(f) != 0)
		return -ENOMEM;
	text(out, "<p class=\"verdict\">", words, "</p>\n");
	free(words);
	return 0;
}

static void
fact(FILE *out, const char *what, const char *t)
{
	if (t == NULL || *t == '\0')
		return;
	fprintf(out, "<div><dt>%s</dt>", what);
	text(out, "<dd>", t, "</dd></div>\n");
}

static int
head(FILE *out, const struct comparison *c)
{
	char rounds[48];
	size_t i;
	int ret;

	fputs(
	    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
	    "<meta name=\"viewport\" content=\"width=device-width,"
	    "initial-scale=1\">\n<title>",
	    out);
	text(out, "", c->label[SIDE_OTHER], " against ");
	text(out, "", c->label[SIDE_BASE], "</title>\n<style>\n");
	fprintf(out, "%s</style></head><body>\n<h1>", style);
	text(out, "", c->label[SIDE_OTHER], " against ");
	text(out, "", c->label[SIDE_BASE], "</h1>\n");
	ret = verdict(out, c);
	key(out, c);
	fputs("<dl class=\"facts\">\n", out);
	fact(out, "Job", c->job_name);
	snprintf(rounds, sizeof(rounds), "%u%s", c->nr_rounds,
	    c->cut_short ? ", cut short" : "");
	fact(out, "Rounds", rounds);
	fact(out, "Date", c->date);
	fact(out, "Machine", c->machine);
	fact(out, "Versions", c->versions);
	fputs("</dl>\n", out);
	if (c->nr_notes > 0)
		fputs("<ul class=\"soft notes\">\n", out);
	for (i = 0; i < c->nr_notes; i++)
		text(out, "<li>", c->notes[i], "</li>\n");
	if (c->nr_notes > 0)
		fputs("</ul>\n", out);
	return ret;
}

/* ---- the table */

/* fio.read.clat.p99: where there is no room it goes on after a dot */
static void
dotted(FILE *out, const char *name)
{
	char part[256];
	size_t nr;

	for (; *name != '\0'; name += nr) {
		nr = strcspn(name, ".");
		nr += name[nr] == '.';
		nr = nr < sizeof(part) ? nr : sizeof(part) - 1;
		memcpy(part, name, nr);
		part[nr] = '\0';
		text(out, "", part, name[nr] != '\0' ? "<wbr>" : "");
	}
}

static void
row(FILE *out, const struct figure *f)
{
	char number[TABLE_TEXT], spread[TABLE_TEXT];
	unsigned i;

	fputs("<tr><th scope=\"row\">", out);
	dotted(out, f->name);
	if (f->unit != NULL && f->unit[0] != '\0')
		text(out, " (", f->unit, ")");
	fputs("</th>", out);
	for (i = 0; i < NR_SIDES; i++) {
		table_number(sample_mean(&f->side[i]), number);
		table_spread(&f->side[i], spread);
		fprintf(out,
		    "<td>%s <span class=\"soft\">&plusmn; %s%%</span>"
		    "</td>",
		    number, spread);
	}
	table_change(f->change, number);
	fprintf(
	    out, "<td%s>%s</td>", f->differs ? " class=\"yes\"" : "", number);
	table_p(f->p, number);
	text(out, "<td>", number, "</td></tr>\n");
}

static bool
is_shown(const struct figure *f)
{
	return f->differs || f->headline;
}

/* Is there one that the short table has? */
static bool
shown(const struct figures *f)
{
	for (size_t i = 0; i < f->nr; i++)
		if (is_shown(&f->figure[i]))
			return true;
	return false;
}

/* Those that differ, or all. */
static void
table(FILE *out, const struct comparison *c, bool all)
{
	const struct figures *f = &c->figures;
	size_t i;

	fprintf(out,
	    "<div class=\"scroll\" tabindex=\"0\">"
	    "<table aria-label=\"%s\"><thead><tr>"
	    "<th scope=\"col\">figure</th><th scope=\"col\">base</th>"
	    "<th scope=\"col\">other</th><th scope=\"col\">change</th>"
	    "<th scope=\"col\">p</th></tr></thead><tbody>\n",
	    all ? "All figures" : "Headline figures, and those that differ");
	for (i = 0; i < f->nr; i++)
		if (all || is_shown(&f->figure[i]))
			row(out, &f->figure[i]);
	fputs("</tbody></table></div>\n", out);
}

static void
tables(FILE *out, const struct comparison *c)
{
	if (c->figures.nr == 0)
		return;
	section(out, "What differs",
	    "Mean of the runs and standard deviation of a run; a change that "
	    "is more than chance is bold. The headline figures, which decide, "
	    "are there in any case. p is corrected for how many are tested.");
	if (shown(&c->figures))
		table(out, c, false);
	fputs("<details><summary>All figures</summary>\n", out);
	table(out, c, true);
	fputs("</details>\n", out);
}

/* ---- the runs of the headline figures */

static void
box_plot(FILE *out, const struct figure *f)
{
	struct svg s = { .out = out,
		.left = 52,
		.top = 14,
		.width = WIDTH / 2 - 72,
		.height = BOX_HEIGHT - 36 };
	double from = INFINITY, to = -INFINITY;
	unsigned i;
	size_t k;

	for (i = 0; i < NR_SIDES; i++) {
		for (k = 0; k < f->side[i].nr; k++) {
			if (!isfinite(f->side[i].value[k]))
				continue;
			from = fmin(from, f->side[i].value[k]);
			to = fmax(to, f->side[i].value[k]);
		}
	}
	if (from > to)
		return;
	/* so that no dot is cut */
	svg_axis_fit(&s.x, from - (to - from) * .04, to + (to - from) * .04);
	text(out, "<figure><figcaption>", f->name, "");
	if (f->unit != NULL && f->unit[0] != '\0')
		text(out, ", ", f->unit, "");
	fputs("</figcaption>\n", out);
	svg_begin(&s, WIDTH / 2, BOX_HEIGHT, f->name);
	svg_axis_x(&s, NULL);
	for (i = 0; i < NR_SIDES; i++) {
		svg_label(
		    &s, s.left - 8, s.top + 20 + 34 * i, "end", side_name[i]);
		svg_box(&s, side_name[i], &f->side[i], s.top + 16 + 34 * i);
	}
	svg_end(&s);
	fputs("</figure>\n", out);
}

static void
boxes(FILE *out, const struct comparison *c)
{
	size_t nr = 0, i;

	for (i = 0; i < c->figures.nr; i++)
		nr += c->figures.figure[i].headline;
	if (nr == 0)
		return;
	section(out, "The runs",
	    "Each dot is a run, from the first above to the last below; the "
	    "box holds the middle half of them, and the stroke in it is the "
	    "median. The axes do not begin at 0.");
	fputs("<div class=\"two\">\n", out);
	for (i = 0; i < c->figures.nr; i++)
		if (c->figures.figure[i].headline)
			box_plot(out, &c->figures.figure[i]);
	fputs("</div>\n", out);
}

/* ---- percentiles of latency */

/* The same buckets of all runs of a side that count. */
static int
pool(const struct comparison *c, enum side side, struct buckets *all,
    const struct buckets *(*of)(const struct run *, unsigned), unsigned which)
{
	const struct buckets *b;
	size_t i, k;
	int ret;

	for (i = 0; i < c->nr_runs; i++) {
		if (c->run[i].side != side || c->run[i].warm_up)
			continue;
		b = of(&c->run[i], which);
		for (k = 0; k < b->nr; k++) {
			ret = buckets_add(all, b->upto[k], b->count[k]);
			if (ret != 0)
				return ret;
		}
	}
	return 0;
}

/* Is there anything to pool? */
static bool
has_any(const struct comparison *c,
    const struct buckets *(*of)(const struct run *, unsigned), unsigned which)
{
	for (size_t i = 0; i < c->nr_runs; i++)
		if (!c->run[i].warm_up && of(&c->run[i], which)->nr > 0)
			return true;
	return false;
}

static const struct buckets *
latencies(const struct run *r, unsigned op)
{
	return &r->clat_ns[op];
}

/* 90 is 1, 99 is 2: so many nines. */
static double
nines(double p)
{
	return -log10(fmax(1 - p, pow(10, -LAST_NINES)));
}

/* A latency holds from the share that is below it to the one it reaches. */
static void
curve(const struct svg *s, const char *class, const struct buckets *b)
{
	double x[2 * MAX_CURVE + 4], y[2 * MAX_CURVE + 4];
	double total = 0, below = 0, from = 0, to;
	size_t i, nr = 0;

	for (i = 0; i < b->nr; i++)
		total += (double)b->count[i];
	for (i = 0; i < b->nr && total > 0 && from < LAST_NINES; i++) {
		below += (double)b->count[i];
		to = nines(below / total);
		/* a step that nobody can see is part of the next one */
		if (to - from < LAST_NINES / MAX_CURVE && to < LAST_NINES &&
		    i + 1 < b->nr)
			continue;
		x[nr] = from;
		y[nr++] = b->upto[i];
		x[nr] = to;
		y[nr++] = b->upto[i];
		from = to;
	}
	svg_line(s, class, x, y, nr);
}

static void
percentile_plot(FILE *out, const char *op, const struct buckets side[NR_SIDES])
{
	static const struct {
		const char *name;
		double p;
	} tick[] = { { "0", 0 }, { "50", .5 }, { "90", .9 }, { "99", .99 },
		{ "99.9", .999 }, { "99.99", .9999 } };
	struct svg s = { .out = out,
		.left = LEFT,
		.top = TOP,
		.width = WIDTH - LEFT - 28,
		.height = PLOT_HEIGHT,
		.x = { .from = 0, .to = LAST_NINES },
		.y = { .is_log = true, .is_time = true } };
	double from = INFINITY, to = 0;
	char title[96];
	unsigned i;

	for (i = 0; i < NR_SIDES; i++) {
		if (side[i].nr == 0)
			continue;
		from = fmin(from, side[i].upto[0]);
		to = fmax(to, buckets_quantile(&side[i], .9999));
	}
	svg_axis_fit(&s.y, from * .9, to * 1.1);
	snprintf(title, sizeof(title),
	    "%s: percentiles of completion latency of base and other", op);
	fprintf(
	    out, "<figure class=\"wide\"><figcaption>%s</figcaption>\n", op);
	svg_begin(&s, WIDTH, TOP + PLOT_HEIGHT + 44, title);
	svg_axis_y(&s, "completion latency (clat)");
	for (i = 0; i < sizeof(tick) / sizeof(*tick); i++)
		svg_tick_x(&s, nines(tick[i].p), tick[i].name);
	svg_label(
	    &s, s.left + s.width, TOP + PLOT_HEIGHT + 36, "end", "percentile");
	for (i = 0; i < NR_SIDES; i++)
		curve(&s, side_name[i], &side[i]);
	svg_end(&s);
	fputs("</figure>\n", out);
}

static int
percentiles(FILE *out, const struct comparison *c)
{
	struct buckets side[NR_SIDES];
	unsigned op, i;
	int ret = 0;

	if (!has_any(c, latencies, RUN_READ) &&
	    !has_any(c, latencies, RUN_WRITE) &&
	    !has_any(c, latencies, RUN_TRIM))
		return 0;
	section(out, "Latency",
	    "Of all runs of a side together, by percentile: beyond each of 90, "
	    "99, 99.9 and 99.99 is a tenth of the I/Os that are beyond the one "
	    "before.");
	for (op = 0; op < NR_RUN_OPS && ret == 0; op++) {
		memset(side, 0, sizeof(side));
		for (i = 0; i < NR_SIDES && ret == 0; i++)
			ret = pool(c, (enum side)i, &side[i], latencies, op);
		if (ret == 0 && (side[0].nr > 0 || side[1].nr > 0))
			percentile_plot(out, op_name[op], side);
		for (i = 0; i < NR_SIDES; i++)
			buckets_fini(&side[i]);
	}
	return ret;
}

/* ---- IOPS over time */

/* Points are means of `group` neighbours, for the page has to stay small. */
static int
draw_runs(const struct svg *s, const struct comparison *c, size_t group)
{
	size_t i, k, nr;
	double *x, *y;
	const struct series *all;
	char class[32];

	for (i = 0; i < c->nr_runs; i++) {
		all = &c->run[i].iops;
		if (c->run[i].warm_up || all->nr_whole == 0)
			continue;
		x = calloc(all->nr_whole, sizeof(*x));
		y = calloc(all->nr_whole, sizeof(*y));
		if (x == NULL || y == NULL) {
			free(x);
			free(y);
			return -ENOMEM;
		}
		for (k = 0; k < all->nr_whole; k++) {
			nr = all->nr_whole - k / group * group;
			nr = nr < group ? nr : group;
			x[k / group] += all->at[k] / (double)nr;
			y[k / group] += all->value[k] / (double)nr;
		}
		/* many hide each other */
		snprintf(class, sizeof(class), "%s thin%s",
		    side_name[c->run[i].side],
		    c->nr_runs > MAX_PLAIN ? " many" : "");
		svg_line(s, class, x, y, (all->nr_whole - 1) / group + 1);
		free(x);
		free(y);
	}
	return 0;
}

static int
over_time(FILE *out, const struct comparison *c)
{
	struct svg s = { .out = out,
		.left = LEFT,
		.top = TOP,
		.width = WIDTH - LEFT - 28,
		.height = PLOT_HEIGHT };
	double seconds = 0, most = 0;
	const struct run *r;
	size_t nr_points = 0, group, i, k;
	char sentence[96];
	int ret;

	for (i = 0; i < c->nr_runs; i++) {
		r = &c->run[i];
		for (k = 0; k < r->iops.nr_whole && !r->warm_up; k++) {
			nr_points++;
			if (!isfinite(r->iops.at[k]) ||
			    !isfinite(r->iops.value[k]))
				continue;
			seconds = fmax(seconds, r->iops.at[k]);
			most = fmax(most, r->iops.value[k]);
		}
	}
	if (!(most > 0))
		return 0;
	group = nr_points / MAX_POINTS + 1;
	snprintf(sentence, sizeof(sentence),
	    group == 1 ? "Each line is a run."
		       : "Each line is a run, each point of it the mean of %zu "
			 "that were logged.",
	    group);
	section(out, "IOPS over time", sentence);
	svg_axis_fit(&s.x, 0, seconds);
	svg_axis_fit(&s.y, 0, most * 1.05);
	fputs("<figure class=\"wide\">\n", out);
	svg_begin(&s, WIDTH, TOP + PLOT_HEIGHT + 44,
	    "IOPS over time, each run of base and other");
	svg_axis_y(&s, "IOPS");
	svg_axis_x(&s, "seconds");
	ret = draw_runs(&s, c, group);
	svg_end(&s);
	fputs("</figure>\n", out);
	return ret;
}

/* ---- sizes and segments */

static const struct buckets *
requests(const struct run *r, unsigned segments)
{
	return segments ? &r->segments : &r->sectors;
}

struct bar {
	double upto;
	double share[NR_SIDES]; /* percent */
};

/* Buckets of both sides beside each other; what is too much is in the last. */
static unsigned
bars_of(const struct buckets side[NR_SIDES], struct bar bar[MAX_BARS])
{
	double total[NR_SIDES] = {}, next;
	size_t at[NR_SIDES] = {}, k;
	unsigned nr = 0, i;

	for (i = 0; i < NR_SIDES; i++)
		for (k = 0; k < side[i].nr; k++)
			total[i] += (double)side[i].count[k];
	for (;;) {
		next = INFINITY;
		for (i = 0; i < NR_SIDES; i++)
			if (at[i] < side[i].nr)
				next = fmin(next, side[i].upto[at[i]]);
		if (isinf(next))
			return nr;
		if (nr < MAX_BARS)
			bar[nr++] = (struct bar){};
		bar[nr - 1].upto = next;
		for (i = 0; i < NR_SIDES; i++)
			if (at[i] < side[i].nr && side[i].upto[at[i]] <= next)
				bar[nr - 1].share[i] +=
				    100 * (double)side[i].count[at[i]++] /
				    fmax(total[i], 1);
	}
}

static void
histogram(FILE *out, const char *what, const struct buckets side[NR_SIDES])
{
	struct svg s = { .out = out,
		.left = 46,
		.top = TOP,
		.width = WIDTH / 2 - 56,
		.height = PLOT_HEIGHT * .75 };
	struct bar bar[MAX_BARS];
	unsigned nr = bars_of(side, bar), i, k;
	double width = s.width / fmax(nr, 1), most = 1, x;
	char number[32];

	for (i = 0; i < nr; i++)
		for (k = 0; k < NR_SIDES; k++)
			most = fmax(most, bar[i].share[k]);
	svg_axis_fit(&s.y, 0, most);
	fprintf(out, "<figure><figcaption>%s</figcaption>\n", what);
	svg_begin(&s, WIDTH / 2, TOP + s.height + 24, what);
	svg_axis_y(&s, "% of requests");
	for (i = 0; i < nr; i++) {
		x = s.left + width * i;
		for (k = 0; k < NR_SIDES; k++)
			svg_bar(&s, side_name[k], x + width * (.1 + .4 * k),
			    width * .4, bar[i].share[k]);
		if (i % (1 + nr / 10) != 0)
			continue;
		snprintf(number, sizeof(number), "%.6g", bar[i].upto);
		svg_label(
		    &s, x + width / 2, s.top + s.height + 16, "middle", number);
	}
	svg_end(&s);
	fputs("</figure>\n", out);
}

static int
histograms(FILE *out, const struct comparison *c)
{
	static const char *const what[] = { "Sectors a request, up to",
		"Segments a request, up to" };
	struct buckets side[NR_SIDES];
	unsigned which, i;
	int ret = 0;

	if (!has_any(c, requests, 0) && !has_any(c, requests, 1))
		return 0;
	section(out, "Requests",
	    "As the device got them: after bios were split and merged.");
	fputs("<div class=\"two\">\n", out);
	for (which = 0; which < 2 && ret == 0; which++) {
		memset(side, 0, sizeof(side));
		for (i = 0; i < NR_SIDES && ret == 0; i++)
			ret = pool(c, (enum side)i, &side[i], requests, which);
		if (ret == 0 && (side[0].nr > 0 || side[1].nr > 0))
			histogram(out, what[which], side);
		for (i = 0; i < NR_SIDES; i++)
			buckets_fini(&side[i]);
	}
	fputs("</div>\n", out);
	return ret;
}

/* ---- what was touched */

static void
heat_map(FILE *out, const char *side, const struct heat *h)
{
	struct svg s = { .out = out,
		.left = 62,
		.top = TOP,
		.width = WIDTH / 2 - 74,
		.height = PLOT_HEIGHT };
	char title[64];

	svg_axis_fit(&s.x, 0, h->seconds);
	svg_axis_fit(&s.y, 0, (double)h->bytes);
	fprintf(out, "<figure class=\"%s\"><figcaption>%s</figcaption>\n", side,
	    side);
	snprintf(title, sizeof(title), "Where the I/O of %s went", side);
	svg_begin(&s, WIDTH / 2, TOP + PLOT_HEIGHT + 44, title);
	svg_axis_y(&s, "byte of the device");
	svg_axis_x(&s, "seconds");
	svg_heat(&s, h);
	svg_end(&s);
	fputs("</figure>\n", out);
}

static void
heat_maps(FILE *out, const struct comparison *c)
{
	unsigned i;

	if (c->heat[SIDE_BASE] == NULL && c->heat[SIDE_OTHER] == NULL)
		return;
	section(out, "Where the I/O went",
	    "Of one more run of each side, which was traced: the stronger the "
	    "colour, the more bytes.");
	fputs("<div class=\"two\">\n", out);
	for (i = 0; i < NR_SIDES; i++)
		if (c->heat[i] != NULL)
			heat_map(out, side_name[i], c->heat[i]);
	fputs("</div>\n", out);
}

/* ---- texts */

/* Is there such a line? */
static bool
has_line(const char *all, const char *line, size_t len)
{
	size_t n;

	for (; all != NULL && *all != '\0'; all += n + (all[n] == '\n')) {
		n = strcspn(all, "\n");
		if (n == len && memcmp(all, line, len) == 0)
			return true;
	}
	return false;
}

/* Lines that the other text does not have are marked. */
static int
listing(FILE *out, const char *t, const char *than)
{
	size_t left = MAX_TEXT, len, nr;
	bool marked;
	char *line;

	fputs("<pre tabindex=\"0\">", out);
	for (; t != NULL && *t != '\0' && left > 0; t += nr + (t[nr] == '\n')) {
		len = strcspn(t, "\n");
		nr = len < left ? len : left;
		left -= nr < left ? nr + 1 : nr;
		line = strndup(t, nr);
		if (line == NULL)
			return -ENOMEM;
		marked = than != NULL && len > 0 && !has_line(than, t, len);
		text(out, marked ? "<mark>" : "", line,
		    marked ? "</mark>\n" : "\n");
		free(line);
	}
	fprintf(
	    out, "%s</pre>\n", t != NULL && *t != '\0' ? "(and more)\n" : "");
	return 0;
}

static int
texts(FILE *out, const struct comparison *c)
{
	unsigned i;
	int ret = 0;

	section(out, "Configurations",
	    "Lines that the other one does not have are marked.");
	fputs("<div class=\"two\">\n", out);
	for (i = 0; i < NR_SIDES && ret == 0; i++) {
		fprintf(out, "<div class=\"%s\"><h3>%s: ", side_name[i],
		    side_name[i]);
		text(out, "", c->label[i], "</h3>\n");
		ret = listing(out, c->config[i], c->config[1 - i]);
		fputs("</div>\n", out);
	}
	fputs("</div>\n", out);
	if (ret != 0)
		return ret;
	section(out, "The job", "As the base ran it.");
	return listing(out, c->job, NULL);
}

int
html_write(FILE *out, const struct comparison *c)
{
	int ret = head(out, c);

	if (ret != 0)
		return ret;
	tables(out, c);
	boxes(out, c);
	ret = percentiles(out, c);
	if (ret != 0)
		return ret;
	ret = over_time(out, c);
	if (ret != 0)
		return ret;
	ret = histograms(out, c);
	if (ret != 0)
		return ret;
	heat_maps(out, c);
	ret = texts(out, c);
	if (ret != 0)
		return ret;
	fputs("</body></html>\n", out);
	return ferror(out) ? -EIO : 0;
}
