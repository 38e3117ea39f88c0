/* SPDX-License-Identifier: MIT */
/*
 * nullb-compare: two configurations, one load, and is the difference real?  fio
 * runs the same job on both in turn, in the order ABBA so that a machine that
 * gets slower or faster favours neither; what was counted in the runs is
 * compared, and is printed with how sure that is.
 *
 * Exit status: 0 done; 1 something failed; 2 wrong usage; with --exit-code 3,
 * the other configuration is worse.
 */
#include <sys/stat.h>
#include <sys/utsname.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "base/log.h"
#include "bench.h"

#define DEFAULT_ROUNDS  8u
#define MAX_ROUNDS      1000u
#define DEFAULT_WARM_UP 1u
#define MAX_RUNTIME     86400u
#define TRACE_S         10u
#define MAX_TEXT        (16u << 20) /* bytes of a file that is read whole */
#define MAX_INCLUDES    16u         /* one in the other */
#define MAX_PLOTS       16u
#define PLOT_WIDTH      64u
#define PLOT_HEIGHT     12u

enum {
	EXIT_WORSE = 3
};

enum format {
	FORMAT_TEXT,
	FORMAT_JSON,
	FORMAT_CSV
};

/* What was asked for. */
struct args {
	const char *conf[NR_SIDES];
	const char *job;
	unsigned rounds, warm_up;
	unsigned runtime_s; /* 0: as the job says */
	enum method method;
	double alpha;
	enum format format;
	const char *values; /* NULL: fio is to run */
	const char *report; /* NULL: no page */
	const char *plot[MAX_PLOTS];
	unsigned nr_plots;
	bool all;
	bool traces;
	bool verbose;
	bool tells; /* by its exit status, too */
};

/* What is done so far, for who looks on. */
struct progress {
	const struct args *args;
	unsigned nr_runs; /* done, of */
	unsigned max_runs;
	double seconds; /* that those took */
	bool shows;
	bool verbose;
};

/* ---- usage */

static void
usage(FILE *out)
{
	fputs(
	    "usage: nullb-compare [OPTION]... BASE.conf OTHER.conf JOB.fio\n"
	    "       nullb-compare [OPTION]... --values FILE\n"
	    "\n"
	    "Run a fio job on a daemon with each configuration in turn, and\n"
	    "print what differs, and whether that is more than chance; or say\n"
	    "that of values that were measured otherwise.\n"
	    "\n"
	    "  -r, --rounds N       runs a side, 1 to 1000; default 8\n"
	    "  -w, --warm-up N      runs a side before those, not counted; "
	    "default 1\n"
	    "  -t, --runtime SECONDS\n"
	    "                       of each run, whatever the job says\n"
	    "  -a, --all            print figures that do not differ, too\n"
	    "  -m, --method NAME    welch (Welch's t test, the default),\n"
	    "                       mann-whitney (ranks), or lkp (that of the\n"
	    "                       lkp tools: no probability)\n"
	    "      --alpha P        how often equal configurations may be "
	    "told\n"
	    "                       to differ: default 0.01\n"
	    "  -p, --plot FIGURE    plot its runs, in ASCII; as often as you\n"
	    "                       like; default: the headline figures that\n"
	    "                       differ, or the first\n"
	    "      --json, --csv    print that instead, with all runs\n"
	    "      --report FILE    write a page, in HTML, with pictures\n"
	    "      --trace          and what the I/O touched, of one more run\n"
	    "                       a side\n"
	    "      --values FILE    of lines SIDE FIGURE VALUE [UNIT] "
	    "[higher|lower],\n"
	    "                       where SIDE is base or other\n"
	    "      --keep           keep what fio and the daemons have "
	    "written\n"
	    "      --exit-code      exit with 3 when the other is worse\n"
	    "  -v, --verbose        a line for each run\n"
	    "  -h, --help           print this\n"
	    "  -V, --version        print the version\n"
	    "\n"
	    "A job may name /dev/nullb0 and libaio: it is told where to go "
	    "instead.\n"
	    "^C ends the run that goes on, and prints what there is.\n"
	    "\n"
	    "Exit status: 0 done; 1 something failed; 2 wrong usage.\n",
	    out);
}

__attribute__((format(printf, 1, 2), noreturn)) static void
misused(const char *fmt, ...)
{
	va_list ap;

	fputs("nullb-compare: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs(" (--help)\n", stderr);
	exit(EXIT_USAGE);
}

static unsigned
count_of(const char *option, const char *text, unsigned min, unsigned max)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 ||
	    n < min || n > max)
		misused(
		    "--%s: \"%s\": allowed: %u to %u", option, text, min, max);
	return (unsigned)n;
}

static double
alpha_of(const char *text)
{
	char *end;
	double p = strtod(text, &end);

	if (end == text || *end != '\0' || !(p > 0 && p < 1))
		misused(
		    "--alpha: \"%s\": allowed: more than 0, less than 1", text);
	return p;
}

static enum method
method_of(const char *text)
{
	static const char *const name[] = {
		[METHOD_WELCH] = "welch",
		[METHOD_MANN_WHITNEY] = "mann-whitney",
		[METHOD_LKP] = "lkp",
	};
	unsigned i;

	for (i = 0; i < sizeof(name) / sizeof(*name); i++)
		if (strcmp(text, name[i]) == 0)
			return (enum method)i;
	misused("--method: \"%s\": allowed: welch, mann-whitney, lkp", text);
}

enum {
	OPT_ALPHA = 256,
	OPT_JSON,
	OPT_CSV,
	OPT_REPORT,
	OPT_TRACE,
	OPT_VALUES,
	OPT_KEEP,
	OPT_EXIT_CODE,
};

static const struct option options[] = {
	{ "rounds", required_argument, NULL, 'r' },
	{ "warm-up", required_argument, NULL, 'w' },
	{ "runtime", required_argument, NULL, 't' },
	{ "all", no_argument, NULL, 'a' },
	{ "method", required_argument, NULL, 'm' },
	{ "alpha", required_argument, NULL, OPT_ALPHA },
	{ "plot", required_argument, NULL, 'p' },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "csv", no_argument, NULL, OPT_CSV },
	{ "report", required_argument, NULL, OPT_REPORT },
	{ "trace", no_argument, NULL, OPT_TRACE },
	{ "values", required_argument, NULL, OPT_VALUES },
	{ "keep", no_argument, NULL, OPT_KEEP },
	{ "exit-code", no_argument, NULL, OPT_EXIT_CODE },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{},
};

static void
add_plot(struct args *a, const char *figure)
{
	if (a->nr_plots == MAX_PLOTS)
		misused("--plot: more than %u", MAX_PLOTS);
	a->plot[a->nr_plots++] = figure;
}

static void
parse_args(struct args *a, int argc, char **argv)
{
	int c;

	*a = (struct args){
		.rounds = DEFAULT_ROUNDS,
		.warm_up = DEFAULT_WARM_UP,
		.alpha = ALPHA_DEFAULT,
	};
	while ((c = getopt_long(argc, argv, "r:w:t:am:p:vhV", options, NULL)) !=
	       -1) {
		switch (c) {
		case 'r':
			a->rounds = count_of("rounds", optarg, 1, MAX_ROUNDS);
			break;
		case 'w':
			a->warm_up = count_of("warm-up", optarg, 0, MAX_ROUNDS);
			break;
		case 't':
			a->runtime_s =
			    count_of("runtime", optarg, 1, MAX_RUNTIME);
			break;
		case 'a': a->all = true; break;
		case 'm': a->method = method_of(optarg); break;
		case 'p': add_plot(a, optarg); break;
		case 'v': a->verbose = true; break;
		case OPT_ALPHA: a->alpha = alpha_of(optarg); break;
		case OPT_JSON: a->format = FORMAT_JSON; break;
		case OPT_CSV: a->format = FORMAT_CSV; break;
		case OPT_REPORT: a->report = optarg; break;
		case OPT_TRACE: a->traces = true; break;
		case OPT_VALUES: a->values = optarg; break;
		case OPT_KEEP: bench.keeps = true; break;
		case OPT_EXIT_CODE: a->tells = true; break;
		case 'h': usage(stdout); exit(EXIT_DONE);
		case 'V':
			puts("nullb-compare " NULLBD_VERSION);
			exit(EXIT_DONE);
		default: fputs("(--help)\n", stderr); exit(EXIT_USAGE);
		}
	}
	if (a->traces && a->report == NULL)
		misused("--trace: it is for a page: --report says where");
	if (a->values != NULL) {
		if (argc != optind || a->traces)
			misused("--values: nothing is run: no configurations, "
				"no job, no --trace");
		return;
	}
	if (argc - optind != 3)
		misused("two configurations and a job are needed, not %d files",
		    argc - optind);
	a->conf[SIDE_BASE] = argv[optind];
	a->conf[SIDE_OTHER] = argv[optind + 1];
	a->job = argv[optind + 2];
}

/* ---- texts */

static void *
checked(void *p)
{
	if (p == NULL)
		die("out of memory");
	return p;
}

static char *
read_text(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text;
	size_t len;

	if (f == NULL)
		die("%s: %s", path, strerror(errno));
	text = checked(malloc(MAX_TEXT + 1));
	len = fread(text, 1, MAX_TEXT + 1, f);
	if (ferror(f))
		die("%s: %s", path, strerror(errno));
	fclose(f);
	if (len > MAX_TEXT)
		die("%s: more than %u bytes", path, MAX_TEXT);
	if (memchr(text, '\0', len) != NULL)
		die("%s: a byte 0: it is no text", path);
	text[len] = '\0';
	return checked(realloc(text, len + 1));
}

/* "include FILE": as fio looks for it: here, or else beside the job file. */
static char *
include_path(const char *line, size_t len, const char *job)
{
	const char *slash = strrchr(job, '/');
	char *name, *path;

	while (len > 0 && strchr(" \t\r", *line) != NULL)
		line++, len--;
	len = strcspn(line, ";#\n") < len ? strcspn(line, ";#\n") : len;
	while (len > 0 && strchr(" \t\r", line[len - 1]) != NULL)
		len--;
	name = checked(strndup(line, len));
	if (access(name, F_OK) == 0 || slash == NULL)
		return name;
	if (asprintf(&path, "%.*s/%s", (int)(slash - job), job, name) < 0)
		die("out of memory");
	free(name);
	return path;
}

/* With what it includes in its place. */
static void
copy_job(FILE *out, const char *path, unsigned depth)
{
	char *text = read_text(path), *line, *included;
	size_t len, blanks;

	if (depth > MAX_INCLUDES)
		die("%s: more than %u files that include one another", path,
		    MAX_INCLUDES);
	for (line = text; *line != '\0'; line += len + (line[len] == '\n')) {
		len = strcspn(line, "\n");
		blanks = strspn(line, " \t");
		if (strncmp(line + blanks, "include", 7) != 0 ||
		    strchr(" \t", line[blanks + 7]) == NULL ||
		    blanks + 7 >= len) {
			fprintf(out, "%.*s\n", (int)len, line);
			continue;
		}
		included =
		    include_path(line + blanks + 7, len - blanks - 7, path);
		copy_job(out, included, depth + 1);
		free(included);
	}
	free(text);
}

static char *
read_job(const char *path)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = checked(open_memstream(&text, &len));

	copy_job(out, path, 0);
	if (fclose(out) != 0)
		die("out of memory");
	return text;
}

static char *
machine_text(void)
{
	struct utsname u;
	char *text;

	uname(&u);
	if (asprintf(&text, "%s %s, %s, %ld CPUs", u.sysname, u.release,
		u.machine, sysconf(_SC_NPROCESSORS_ONLN)) < 0)
		die("out of memory");
	return text;
}

static char *
versions_text(void)
{
	char *fio = checked(bench_fio_version()), *text;

	if (asprintf(&text, "nullbd %s, %s", NULLBD_VERSION, fio) < 0)
		die("out of memory");
	free(fio);
	return text;
}

static char *
date_text(void)
{
	time_t now = time(NULL);
	struct tm tm;
	char text[32];

	strftime(text, sizeof(text), "%FT%T%z", localtime_r(&now, &tm));
	return checked(strdup(text));
}

/* ---- the sides */

/* The job as this side runs it, in a file; the base's is what is shown. */
static void
write_job(struct bench_side *s, const struct args *a, const char *job,
    const char *name, struct comparison *c, enum side side)
{
	struct target target[BENCH_MAX_DEVICES];
	char *text, *error;
	size_t i;
	FILE *f;
	int ret;

	for (i = 0; i < s->nr_devices; i++) {
		target[i].name = s->device[i];
		target[i].uri = s->uri[i];
	}
	ret = jobfile_rewrite(job, target, s->nr_devices, a->runtime_s, &text,
	    side == SIDE_BASE ? c : NULL, &error);
	if (ret == -EINVAL)
		die("%s, with %s: %s", a->job, s->conf, error);
	if (ret != 0)
		die("out of memory");
	s->job = bench_path(name);
	f = fopen(s->job, "w");
	if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0)
		die("%s: %s", s->job, strerror(errno));
	if (side == SIDE_BASE)
		c->job = text;
	else
		free(text);
}

/* It is read for each run: what gives its text once will not do. */
static void
check_conf(const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		die("%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		die("%s: not a regular file, and it is read for each run",
		    path);
}

static void
begin(struct comparison *c, struct bench_side *s, const struct args *a)
{
	static const char *const name[] = { "base.fio", "other.fio" };
	char *job = read_job(a->job);
	unsigned i;

	*c = (struct comparison){
		.job_name = checked(strdup(a->job)),
		.date = date_text(),
		.machine = machine_text(),
		.versions = versions_text(),
	};
	for (i = 0; i < NR_SIDES; i++) {
		s[i].conf = a->conf[i];
		check_conf(a->conf[i]);
		c->label[i] = checked(strdup(a->conf[i]));
		c->config[i] = read_text(a->conf[i]);
		bench_devices(&s[i]);
		write_job(&s[i], a, job, name[i], c, (enum side)i);
	}
	free(job);
}

/* ---- rounds */

/* "1 h 2 min", "40 s" */
static void
print_time(FILE *out, double seconds)
{
	unsigned long s = (unsigned long)(seconds + .5);

	if (s >= 3600)
		fprintf(out, "%lu h %lu min", s / 3600, s / 60 % 60);
	else if (s >= 60)
		fprintf(out, "%lu min %lu s", s / 60, s % 60);
	else
		fprintf(out, "%lu s", s);
}

/* One line, again and again. */
static void
on_tick(void *arg, double seconds)
{
	const struct progress *p = arg;
	unsigned left = p->max_runs - p->nr_runs;
	double mean = p->nr_runs > 0 ? p->seconds / p->nr_runs : seconds;

	if (!p->shows)
		return;
	fprintf(stderr, "\r\033[Krun %u of %u, %.0f s", p->nr_runs + 1,
	    p->max_runs, seconds);
	if (p->nr_runs > 0) {
		fputs("; left: ", stderr);
		print_time(stderr, fmax(left * mean - seconds, 0));
	}
	fflush(stderr);
}

static void
end_line(const struct progress *p)
{
	if (p->shows)
		fputs("\r\033[K", stderr);
}

static void
report_run(const struct progress *p, const struct comparison *c,
    const struct run *run, const struct figures *f)
{
	const struct figure *iops = figures_find(f, "fio.iops");
	const struct sample *s = &iops->side[run->side];

	if (!p->verbose)
		return;
	end_line(p);
	fprintf(stderr, "run %u of %u: %s: %.0f IOPS%s\n", p->nr_runs + 1,
	    p->max_runs, c->label[run->side], s->value[s->nr - 1],
	    run->warm_up ? " (warm-up)" : "");
}

static struct run *
new_run(struct comparison *c)
{
	c->run = checked(reallocarray(c->run, c->nr_runs + 1, sizeof(*c->run)));
	c->run[c->nr_runs] = (struct run){};
	return &c->run[c->nr_runs];
}

/* After the first run: hours of them are not to be lost for a name. */
static void
check_plots(const struct figures *f, const struct args *a)
{
	unsigned i;

	for (i = 0; i < a->nr_plots; i++) {
		if (figures_find(f, a->plot[i]) != NULL)
			continue;
		fprintf(stderr,
		    "nullb-compare: --plot: %s: no such figure; "
		    "they are:",
		    a->plot[i]);
		for (i = 0; i < f->nr; i++)
			fprintf(stderr, " %s", f->figure[i].name);
		fputc('\n', stderr);
		exit(EXIT_USAGE);
	}
}

/* False: it was stopped. */
static bool
run_once(struct comparison *c, const struct bench_side *s, enum side side,
    unsigned round, bool warm_up, struct progress *p)
{
	struct figures dropped = {};
	struct figures *f = warm_up ? &dropped : &c->figures;
	struct run *run = new_run(c);
	struct timespec t[2];
	bool done;

	run->side = side;
	run->round = round;
	run->warm_up = warm_up;
	clock_gettime(CLOCK_MONOTONIC, &t[0]);
	done = bench_run(&s[side], f, run, on_tick, p);
	clock_gettime(CLOCK_MONOTONIC, &t[1]);
	if (done) {
		if (p->nr_runs == 0)
			check_plots(f, p->args);
		report_run(p, c, run, f);
		c->nr_runs++;
		p->nr_runs++;
		p->seconds += (double)(t[1].tv_sec - t[0].tv_sec) +
			      (double)(t[1].tv_nsec - t[0].tv_nsec) / 1e9;
	}
	figures_fini(&dropped);
	return done;
}

/* A round is one run of each; every second one begins with the other. */
static void
run_rounds(
    struct comparison *c, const struct bench_side *s, const struct args *a)
{
	struct progress p = {
		.args = a,
		.max_runs = 2 * (a->warm_up + a->rounds),
		.shows = isatty(STDERR_FILENO),
		.verbose = a->verbose,
	};
	unsigned i, side;
	bool warm_up;

	for (i = 0; i < p.max_runs; i++) {
		warm_up = i < 2 * a->warm_up;
		side = (i + (i / 2)) % 2; /* 0 1 1 0 0 1 1 0 */
		if (!run_once(c, s, (enum side)side,
			warm_up ? i / 2 : i / 2 - a->warm_up, warm_up, &p))
			break;
		if (!warm_up && i % 2 == 1)
			c->nr_rounds++;
	}
	c->cut_short = i < p.max_runs;
	end_line(&p);
}

static const char *
first_device(const struct bench_side *s, const char *job)
{
	size_t i;

	for (i = 0; i < s->nr_devices; i++)
		if (strstr(job, s->uri[i]) != NULL)
			return s->device[i];
	return s->device[0];
}

static void
trace_sides(
    struct comparison *c, const struct bench_side *s, const struct args *a)
{
	unsigned i;
	char *job;

	for (i = 0; i < NR_SIDES && a->traces && !c->cut_short; i++) {
		job = read_text(s[i].job);
		c->heat[i] =
		    bench_trace(&s[i], first_device(&s[i], job), TRACE_S);
		free(job);
		if (c->heat[i] == NULL && bench_stopped)
			c->cut_short = true;
		else if (c->heat[i] == NULL)
			comparison_note(c, "there is no trace of %s: it failed",
			    c->label[i]);
	}
}

/* ---- output */

/* Before hours of runs are lost for a path.  What is there stays until then. */
static void
check_report(const char *path)
{
	FILE *f = path != NULL ? fopen(path, "a") : NULL;

	if (path == NULL)
		return;
	if (f == NULL || fclose(f) != 0)
		die("--report: %s: %s", path, strerror(errno));
}

static void
write_report(const struct comparison *c, const char *path)
{
	FILE *f = fopen(path, "w");
	int ret;

	if (f == NULL)
		die("--report: %s: %s", path, strerror(errno));
	ret = html_write(f, c);
	if (fclose(f) != 0 && ret == 0)
		ret = -errno;
	if (ret != 0)
		die("--report: %s: %s", path, strerror(-ret));
}

static void
plot(const struct figure *f)
{
	putchar('\n');
	plot_print(stdout, f, PLOT_WIDTH, PLOT_HEIGHT);
}

/* Those that were asked for, or that tell most. */
static void
print_plots(const struct comparison *c, const struct args *a)
{
	const struct figures *f = &c->figures;
	const struct figure *first = NULL, *asked;
	unsigned nr = 0, i;

	for (i = 0; i < a->nr_plots; i++) {
		asked = figures_find(f, a->plot[i]);
		if (asked != NULL) /* else only the warm-up had it */
			plot(asked);
	}
	if (a->nr_plots > 0)
		return;
	for (i = 0; i < f->nr; i++) {
		if (!f->figure[i].headline)
			continue;
		if (first == NULL)
			first = &f->figure[i];
		if (f->figure[i].differs && nr++ < 2)
			plot(&f->figure[i]);
	}
	if (nr == 0 && first != NULL)
		plot(first);
}

static void
print_text(const struct comparison *c, const struct args *a)
{
	table_print(stdout, c, a->all);
	print_plots(c, a);
	putchar('\n');
	table_verdict(stdout, c);
}

static void
print_json(const struct comparison *c)
{
	json_t *json = checked(table_json(c));

	json_dumpf(json, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(json);
}

/* Somebody else has measured. */
static void
take_values(struct comparison *c, const char *path)
{
	FILE *f = fopen(path, "r");
	char *error = NULL;
	unsigned i;
	size_t k;
	int ret;

	if (f == NULL)
		die("%s: %s", path, strerror(errno));
	*c = (struct comparison){
		.job_name = checked(strdup(path)),
		.date = date_text(),
	};
	ret = values_read(f, &c->figures, &error);
	if (ret != 0)
		die("%s: %s", path, error != NULL ? error : strerror(-ret));
	fclose(f);
	for (i = 0; i < NR_SIDES; i++)
		c->label[i] =
		    checked(strdup(i == SIDE_BASE ? "base" : "other"));
	for (k = 0; k < c->figures.nr; k++)
		if (c->figures.figure[k].side[SIDE_BASE].nr > c->nr_rounds)
			c->nr_rounds =
			    (unsigned)c->figures.figure[k].side[SIDE_BASE].nr;
}

/* fio runs, on both. */
static void
run_both(struct comparison *c, const struct args *a)
{
	struct bench_side side[NR_SIDES] = {};

	begin(c, side, a);
	run_rounds(c, side, a);
	if (c->figures.nr == 0)
		die("stopped before a run that counts was done");
	trace_sides(c, side, a);
	bench_side_fini(&side[SIDE_BASE]);
	bench_side_fini(&side[SIDE_OTHER]);
}

int
main(int argc, char **argv)
{
	struct comparison c;
	struct args a;
	bool worse;

	argv[0] = program_invocation_short_name; /* as getopt() has it */
	log_init("nullb-compare", false);
	parse_args(&a, argc, argv);
	check_report(a.report);
	if (a.values != NULL) {
		take_values(&c, a.values);
		check_plots(&c.figures, &a);
	} else {
		bench_init();
		run_both(&c, &a);
	}
	c.verdict = figures_judge(&c.figures, a.method, a.alpha);
	switch (a.format) {
	case FORMAT_TEXT: print_text(&c, &a); break;
	case FORMAT_JSON: print_json(&c); break;
	case FORMAT_CSV: table_csv(stdout, &c); break;
	}
	if (fflush(stdout) != 0)
		die("standard output: %s", strerror(errno));
	if (a.report != NULL)
		write_report(&c, a.report);
	worse = c.verdict.outcome == OUTCOME_WORSE;
	comparison_fini(&c);
	return a.tells && worse ? EXIT_WORSE : EXIT_DONE;
}
