/* SPDX-License-Identifier: MIT */
/*
 * What nullb-compare knows: two sides, base and other, that ran the same load
 * some times each; what was counted in each run; and whether a difference is
 * more than chance.  Nothing here starts a process, or asks for the time: it
 * knows texts, numbers and JSON.
 *
 *   job file -> load   fio's JSON, the daemon's JSON -> run
 *   runs -> figures -> verdict -> table, plots, JSON, CSV, a page
 */
#ifndef COMPARE_H
#define COMPARE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "compare/heat.h"

enum side {
	SIDE_BASE,
	SIDE_OTHER,
	NR_SIDES
};

/* -------------------------------------------------------------- sample.c */

/*
 * The values of one figure, a run each, in the order of the runs.  One that is
 * not finite is a run without a value: it keeps its place, nothing counts it.
 */
struct sample {
	double *value;
	size_t nr;
	size_t max; /* there is room for */
};

void sample_fini(struct sample *s);
/* 0 or -ENOMEM. */
int sample_add(struct sample *s, double value);
/* How many are finite. */
size_t sample_count(const struct sample *s);
/* 0 of none. */
double sample_mean(const struct sample *s);
/* Of a population that these are drawn from (n - 1); 0 of fewer than two. */
double sample_stddev(const struct sample *s);
/* p of 0 to 1, linear between ranks; 0 of none. */
double sample_quantile(const struct sample *s, double p);

/* How it is decided that two samples differ. */
enum method {
	METHOD_WELCH,        /* Welch's t: the default */
	METHOD_MANN_WHITNEY, /* ranks; exact for small samples without ties */
	METHOD_LKP,          /* the rule of the lkp tools: no p */
};

/*
 * The probability, two-sided, that samples of the same population differ so
 * much: 1 when either has fewer than two values.
 */
double sample_welch(const struct sample *a, const struct sample *b);
double sample_mann_whitney(const struct sample *a, const struct sample *b);
/* The least that the latter can be, of so many without ties. */
double mann_whitney_least(size_t n, size_t m);
/* `a` is the base. */
bool sample_lkp_differs(const struct sample *a, const struct sample *b);

/* -------------------------------------------------------------- figure.c */

enum better {
	BETTER_NEITHER,
	BETTER_HIGHER,
	BETTER_LOWER
};

/*
 * Something that is counted or measured in each run.  Headline figures (all
 * that the job did: IOPS, bandwidth, mean latency, a percentile or two) decide
 * the verdict; the others explain it.
 */
struct figure {
	char *name; /* as fio.read.clat_ns.p99, stat.write.merges */
	char *unit; /* "us", "KiB/s", "" */
	enum better better;
	bool headline;
	struct sample side[NR_SIDES];
	/* figures_judge() */
	double p_alone; /* as if no other were tested; NAN: no test */
	double p;       /* corrected for how many are tested; NAN: no test */
	double change;  /* other's mean beside base's: 0.1 is +10%; NAN */
	bool differs;
};

struct figures {
	struct figure *figure; /* in the order of their first value */
	size_t nr;
	size_t max;
};

void figures_fini(struct figures *f);
/*
 * One run's value of a figure, which is made when there is none of that name.
 * 0 or -ENOMEM.
 */
int figures_add(struct figures *f, enum side side, const char *name,
    const char *unit, enum better better, bool headline, double value);
/* Values of one run of a side: once one is not taken, no other is. */
struct adding {
	struct figures *figures;
	enum side side;
	int ret; /* 0 or -ENOMEM */
};

/* The name is formatted. */
void figures_put(struct adding *a, const char *unit, enum better better,
    bool headline, double value, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
const struct figure *figures_find(const struct figures *f, const char *name);
/* 1: other's mean is the better one, -1: the worse; 0: neither. */
int figure_direction(const struct figure *f);

enum outcome {
	OUTCOME_NONE,   /* no difference that these runs can show */
	OUTCOME_BETTER, /* other is */
	OUTCOME_WORSE,
	OUTCOME_MIXED, /* better here, worse there */
	OUTCOME_FEW,   /* too few runs for any answer */
};

struct verdict {
	enum outcome outcome;
	enum method method;
	double alpha; /* what p has to be below */
	/* headline figures, and the others: two families */
	size_t nr_tested[2];
	/* the headline figure it is about; NULL: there is none */
	const struct figure *decisive;
	double difference; /* what is seen of it, 0.01 at least; NAN: unknown */
	/*
	 * How many runs a side would show such a difference of `decisive`, four
	 * times in five; 0: unknown, or more than 1e9.
	 */
	size_t runs_needed;
};

/*
 * Test all figures, each family's p corrected by Holm's method, and say what
 * it means.  alpha as ALPHA_DEFAULT: more than 0, less than 1.  `decisive`
 * points into the figures: judge again when some were added.
 */
#define ALPHA_DEFAULT 0.01
struct verdict
figures_judge(struct figures *f, enum method method, double alpha);
/*
 * How many runs a side show a difference of two means, four times in five, when
 * single runs have this stddev (of the same unit): 0 when more than 1e9.
 */
size_t runs_for(double difference, double stddev, double alpha);

/* ------------------------------------------------------------- buckets.c */

/* A histogram: buckets in rising order, empty ones may be left out. */
struct buckets {
	double *upto; /* the bucket's upper end */
	uint64_t *count;
	size_t nr;
};

void buckets_fini(struct buckets *b);
/* More in that bucket: 0 or -ENOMEM. */
int buckets_add(struct buckets *b, double upto, uint64_t count);
/* As fio takes a percentile: the bucket that p of 0 to 1 lies in; 0 of none. */
double buckets_quantile(const struct buckets *b, double p);

/* ----------------------------------------------------------------- run.c */

#define SERIES_MAX 100000u /* points */

struct series {
	double *at; /* seconds since the run began */
	double *value;
	size_t nr;
	size_t nr_whole; /* of them are of all jobs, and of all their time */
	unsigned nr_logs;
};

void series_fini(struct series *s);

enum {
	RUN_READ,
	RUN_WRITE,
	RUN_TRIM,
	NR_RUN_OPS
};

/* One run of the load on one side: what a picture needs; figures have the
 * rest. */
struct run {
	enum side side;
	unsigned round;
	bool warm_up; /* its figures do not count */
	struct buckets clat_ns[NR_RUN_OPS];
	struct series iops;      /* all operations */
	double ios;              /* that fio has done, of all operations */
	struct buckets sectors;  /* a request's, at the device */
	struct buckets segments; /* a request's */
};

void run_fini(struct run *r);

/* A whole comparison: what is printed, in any form. */
struct comparison {
	char *label[NR_SIDES];  /* names of the configurations' files */
	char *config[NR_SIDES]; /* their texts */
	char *job_name;
	char *job;    /* its text, as it was run */
	char **notes; /* what was changed in it, what went wrong: sentences */
	size_t nr_notes;
	char *date;     /* ISO 8601 */
	char *machine;  /* kernel, CPUs */
	char *versions; /* nullbd's, fio's */
	unsigned nr_rounds;
	bool cut_short; /* by ^C */
	struct figures figures;
	struct verdict verdict;
	struct run *run;
	size_t nr_runs;
	struct heat *heat[NR_SIDES]; /* NULL: not traced */
};

void comparison_fini(struct comparison *c);
/* 0 or -ENOMEM. */
int comparison_note(struct comparison *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * What is wrong with a file, in words, into *error, which the caller frees:
 * -EINVAL; or -ENOMEM, and *error is NULL.
 */
int compare_error(char **error, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ------------------------------------------------------------- fiojson.c */

/*
 * fio's JSON (--output-format=json+, of 3.30 and later) of one run: its figures
 * are added, and clat_ns of the run.  Several jobs are added up.  0, -ENOMEM,
 * or -EINVAL and *error, which the caller frees, says what is not there.
 */
int fiojson_read(
    const json_t *fio, struct figures *f, struct run *run, char **error);
/*
 * A log of a job's --write_iops_log with --log_avg_msec is added to a series,
 * whose points are `bin` seconds apart, SERIES_MAX of them at most.  0, -EINVAL
 * (it is none, or longer), -EIO or -ENOMEM.
 */
int fiojson_iops_log(FILE *log, double bin, struct series *iops);

/* ------------------------------------------------------------- devstat.c */

/*
 * What the daemon's devices did in a run: an array, an object a device, whose
 * members `stat` and `segments` are the daemon's answers to these commands.
 * 0 or -ENOMEM.
 */
int devstat_read(const json_t *devices, struct figures *f, struct run *run);

/* -------------------------------------------------------------- values.c */

/*
 * Figures of a text, SIDE FIGURE VALUE [UNIT] [higher|lower] a line; headlines
 * are those with the last.  0, -ENOMEM, -errno of the file, or -EINVAL and
 * *error, which the caller frees.
 */
int values_read(FILE *in, struct figures *f, char **error);

/* ------------------------------------------------------------- jobfile.c */

/* Where a device is served, and what kernels would call it. */
struct target {
	const char *name; /* nullb0: /dev/nullb0 */
	const char *uri;
};

/*
 * A fio job file for our devices: filename=/dev/NAME and ioengine=libaio and
 * the like become ioengine=nbd and uri=; what that engine cannot do is left
 * out; a job that names no file is on the first target, and another name is the
 * next target that is left.  runtime_s of 0: as the job has it.  A note for
 * each change; notes may be NULL.  *out is the new text, which the caller
 * frees.  0, -ENOMEM, or -EINVAL and *error, which it frees, too.
 */
int jobfile_rewrite(const char *text, const struct target *target, size_t nr,
    unsigned runtime_s, char **out, struct comparison *notes, char **error);

/* --------------------------------------------------------- table.c, plot.c */

/* As a table prints them; "-" for what is none. */
#define TABLE_TEXT 32
void table_number(double x, char text[TABLE_TEXT]);
void table_spread(const struct sample *s, char text[TABLE_TEXT]); /* percent */
void table_change(double change, char text[TABLE_TEXT]);
void table_p(double p, char text[TABLE_TEXT]);

/*
 * As report B is laid out, with labels, notes, and the test that was used;
 * `all`: what did not change significantly, too, and each one's p.
 */
void table_print(FILE *out, const struct comparison *c, bool all);
void table_csv(FILE *out, const struct comparison *c);
/* NULL: no memory. */
json_t *table_json(const struct comparison *c);
/* The last lines: better, worse, or none that these runs can show. */
void table_verdict(FILE *out, const struct comparison *c);
/*
 * The runs of a figure in ASCII, as lkp prints them: '*' base, 'O' other, '#'
 * both.  In so many columns (24 to 400), with so many rows between title and
 * legend (4 to 100).
 */
void
plot_print(FILE *out, const struct figure *f, unsigned width, unsigned height);

/* ----------------------------------------------------------------- svg.c */

struct svg_axis {
	double from, to;
	bool is_log;
	bool is_time; /* of ns */
};

/* A picture, and where in it the data is. */
struct svg {
	FILE *out;
	double left, top, width, height;
	struct svg_axis x, y;
};

/*
 * A text in HTML or SVG; NULL is none.  A byte that is no UTF-8, or a character
 * that no page may have, is shown as a question mark.
 */
void svg_text(FILE *out, const char *text);
/* From the least to the largest value, with some room when they are equal. */
void svg_axis_fit(struct svg_axis *a, double from, double to);
void
svg_begin(const struct svg *s, double width, double height, const char *title);
void svg_end(const struct svg *s);
/* anchor: start, middle, end */
void svg_label(const struct svg *s, double x, double y, const char *anchor,
    const char *text);
/* Lines and numbers; a label says what they are (NULL: along x, none). */
void svg_axis_y(const struct svg *s, const char *label);
void svg_axis_x(const struct svg *s, const char *label);
void svg_tick_x(const struct svg *s, double v, const char *text);
/* Points that are on the last one are left out. */
void svg_line(const struct svg *s, const char *class, const double *x,
    const double *y, size_t nr);
/* From the bottom to a value; x and width in pixels. */
void svg_bar(
    const struct svg *s, const char *class, double x, double width, double to);
/* The runs of a figure along x; y in pixels. */
void svg_box(
    const struct svg *s, const char *class, const struct sample *v, double y);
#define SVG_HEAT_LEVELS 6u
/* Darkness, 1 to SVG_HEAT_LEVELS; 0: nothing. */
unsigned svg_heat_level(uint64_t count, uint64_t max);
void svg_heat(const struct svg *s, const struct heat *h);

/* ---------------------------------------------------------------- html.c */

/* One HTML page that needs nothing else.  0 or -errno; nothing is fetched. */
int html_write(FILE *out, const struct comparison *c);

#endif
