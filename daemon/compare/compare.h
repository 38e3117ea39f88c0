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

enum side {
	SIDE_BASE,
	SIDE_OTHER,
	NR_SIDES
};

/* -------------------------------------------------------------- sample.c */

/* The values of one figure, a run each, in the order of the runs. */
struct sample {
	double *value;
	size_t nr;
	size_t max; /* there is room for */
};

void sample_fini(struct sample *s);
/* 0 or -ENOMEM. */
int sample_add(struct sample *s, double value);
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
	double p;      /* corrected for how many are tested; NAN: no test */
	double change; /* other's mean beside base's: 0.1 is +10%; NAN */
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
const struct figure *figures_find(const struct figures *f, const char *name);

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
	size_t
	    nr_tested[2]; /* headline figures, and the others: two families */
	const struct figure *decisive; /* the headline figure it is about */
	/*
	 * How many runs a side would show a difference as large as what is
	 * seen (of 1% at least) of `decisive`, four times in five; 0: unknown.
	 */
	size_t runs_needed;
};

/*
 * Test all figures, each family's p corrected by Holm's method, and say what
 * it means.  alpha as 0.01.
 */
struct verdict
figures_judge(struct figures *f, enum method method, double alpha);

/* ----------------------------------------------------------------- run.c */

/* A histogram: buckets in rising order, empty ones may be left out. */
struct buckets {
	double *upto; /* the bucket's upper end */
	uint64_t *count;
	size_t nr;
};

struct series {
	double *at; /* seconds since the run began */
	double *value;
	size_t nr;
};

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
	struct buckets sectors;  /* a request's, at the device */
	struct buckets segments; /* a request's */
};

void run_fini(struct run *r);

/* What a traced run touched: a map of LBA (rows) and time (columns). */
#define HEAT_ROWS    64u
#define HEAT_COLUMNS 96u
struct heat {
	double seconds;                          /* that the columns are */
	uint64_t bytes;                          /* that the rows are */
	uint64_t count[HEAT_ROWS][HEAT_COLUMNS]; /* bytes touched */
};

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

/* ------------------------------------------------------------- fiojson.c */

/*
 * fio's JSON (--output-format=json+, of 3.30 and later) of one run: its figures
 * are added, and clat_ns of the run.  Several jobs are added up.  0, -ENOMEM,
 * or -EINVAL and *error, which the caller frees, says what is not there.
 */
int fiojson_read(
    const json_t *fio, struct figures *f, struct run *run, char **error);
/* A log of --write_iops_log with --log_avg_msec, several added up: 0 or
 * -errno. */
int fiojson_iops_log(FILE *log, double log_avg_s, struct series *iops);

/* ------------------------------------------------------------- devstat.c */

/*
 * What the daemon's devices did in a run: answers to stat and segments of all
 * of its devices, before and after it.  The same errors.
 */
int devstat_read(const json_t *before, const json_t *after, struct figures *f,
    struct run *run, char **error);

/* ------------------------------------------------------------- jobfile.c */

/* Where a device is served, and what kernels would call it. */
struct target {
	const char *name; /* nullb0: /dev/nullb0 */
	const char *uri;
};

/*
 * A fio job file for our devices: filename=/dev/NAME and ioengine=libaio and
 * the like become ioengine=nbd and uri=; what that engine cannot do is taken
 * out; a job that names no device is on the first target.  A note for each
 * change.  *out is the new text, which the caller frees.  0, -ENOMEM, or
 * -EINVAL and *error.
 */
int jobfile_rewrite(const char *text, const struct target *target, size_t nr,
    char **out, struct comparison *notes, char **error);

/* --------------------------------------------------------- table.c, plot.c */

/* As report B is laid out; `all`: what did not change significantly, too. */
void table_print(FILE *out, const struct comparison *c, bool all);
void table_csv(FILE *out, const struct comparison *c);
/* NULL: no memory. */
json_t *table_json(const struct comparison *c);
/* The last lines: better, worse, or none that these runs can show. */
void table_verdict(FILE *out, const struct comparison *c);
/* The runs of a figure in ASCII, as lkp prints them: '*' base, 'O' other. */
void
plot_print(FILE *out, const struct figure *f, unsigned width, unsigned height);

/* ---------------------------------------------------------------- page.c */

/* One HTML page that needs nothing else.  0 or -errno; nothing is fetched. */
int page_write(FILE *out, const struct comparison *c);

#endif
