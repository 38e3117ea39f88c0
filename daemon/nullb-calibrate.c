/* SPDX-License-Identifier: MIT */
/*
 * nullb-calibrate: a device that was measured, as settings of one that is
 * simulated.  What fio reported, or a trace, becomes a model an operation, with
 * how far it is off.
 *
 * Exit status: 0 done; 1 the file is bad; 2 wrong usage.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ctl/ctl.h"

enum {
	EXIT_DONE,
	EXIT_BAD,
	EXIT_USAGE
};

/* What was asked for. */
struct args {
	const char *model; /* NULL: auto */
	const char *device;
	const char *baseline;
	uint64_t subtract_ns;
};

static void
print_row(const char *name, const uint64_t *ns)
{
	printf("#   %-9s", name);
	for (unsigned i = 0; i < FIT_NR; i++)
		printf(" %9.1fus", (double)ns[i] / 1000);
	putchar('\n');
}

/* The model as a setting, below how good it is. */
static void
print_fit(const struct measured *of, size_t nr, const struct fit *f)
{
	uint64_t samples = 0;

	for (size_t i = 0; i < nr; i++)
		samples += of[i].nr;
	printf("# %s: %" PRIu64 " requests, %zu size%s\n",
	    group_names[of->group], samples, nr, nr > 1 ? "s" : "");
	printf("#            ");
	for (unsigned i = 0; i < FIT_NR; i++) {
		char head[16];

		snprintf(head, sizeof(head), "p%g", fit_percent[i]);
		printf(" %11s", head);
	}
	putchar('\n');
	print_row("measured", f->measured_ns);
	print_row("model", f->model_ns);
	printf("#   error    ");
	for (unsigned i = 0; i < FIT_NR; i++)
		if (isnan(f->error[i]))
			printf(" %11s", "-");
		else
			printf(" %10.1f%%", 100 * f->error[i]);
	printf("\nlatency.%s = ", group_names[of->group]);
	dist_print(&f->dist, stdout);
	putchar('\n');
}

static int
print_group(const struct measured *of, size_t nr, const struct args *a)
{
	struct fit fit;

	if (fit_model(of, nr, a->model, &fit) != 0) {
		fprintf(stderr,
		    "nullb-calibrate: %s: --model %s does not go through what "
		    "was measured; auto does\n",
		    group_names[of->group], a->model);
		return EXIT_BAD;
	}
	print_fit(of, nr, &fit);
	return EXIT_DONE;
}

/* The median of the size of which there were most. */
static uint64_t
median_of(const struct measurement *m, enum stat_group g)
{
	const struct measured *most = NULL;
	struct dist d;

	for (size_t i = 0; i < m->nr; i++)
		if (m->of[i].group == g &&
		    (most == NULL || m->of[i].nr > most->nr))
			most = &m->of[i];
	if (most == NULL ||
	    dist_fit(&d, "table", most->point, most->nr_points) != 0)
		return 0;
	return dist_at(&d, 0.5);
}

/* Of each operation what it took on the way, and not on the device. */
static int
subtract(struct measurement *m, const struct args *a)
{
	struct measurement *base = NULL;

	if (a->baseline != NULL) {
		base = measure_read(a->baseline, NULL, log_errors());
		if (base == NULL)
			return EXIT_BAD;
	}
	for (unsigned g = 0; g < STAT_NR; g++) {
		uint64_t ns = a->subtract_ns;

		if (base != NULL)
			ns += median_of(base, g);
		measure_shift(m, g, -(int64_t)ns);
	}
	measure_free(base);
	return EXIT_DONE;
}

static int
calibrate(const struct args *a, const char *path)
{
	struct measurement *m = measure_read(path, a->device, log_errors());
	int status = EXIT_DONE;
	size_t from = 0;

	if (m == NULL)
		return EXIT_BAD;
	status = subtract(m, a);
	for (size_t i = 1; status == EXIT_DONE && i <= m->nr; i++)
		if (i == m->nr || m->of[i].group != m->of[from].group) {
			status = print_group(m->of + from, i - from, a);
			from = i;
		}
	measure_free(m);
	return status;
}

/* ---- the command line */

static void
usage(FILE *out)
{
	fputs(
	    "usage: nullb-calibrate [OPTION]... FILE\n\n"
	    "Print settings with which a simulated device takes as long as one "
	    "that was\n"
	    "measured.  FILE is what fio prints with --output-format=json or "
	    "json+, a trace\n"
	    "of blkparse, a file of blktrace, or NAME of its NAME.blktrace.0, "
	    ".1, ...; - is\n"
	    "the standard input.\n\n"
	    "  --model KIND     constant, uniform, normal, exponential, "
	    "lognormal, pareto,\n"
	    "                   table; or auto, the default: the first of "
	    "these that is\n"
	    "                   off by less than 10 % at p50, p90, p99 and "
	    "p99.9\n"
	    "  --subtract TIME  what each request took on its way to the "
	    "device: 20us\n"
	    "  --baseline FILE  the same measured, on a device that takes no "
	    "time: its\n"
	    "                   medians are subtracted\n"
	    "  --device DEVICE  whose requests of a trace: MAJOR,MINOR; "
	    "default the first\n"
	    "                   one's\n"
	    "  --help, --version\n\n"
	    "Exit status: 0 done; 1 the file is bad; 2 wrong usage.\n",
	    out);
}

static void
bad_usage(void)
{
	usage(stderr);
	exit(EXIT_USAGE);
}

static void
take_model(struct args *a, const char *name)
{
	const char *kind;

	a->model = NULL;
	if (strcmp(name, "auto") == 0)
		return;
	for (unsigned i = 0; (kind = dist_kind_name(i)) != NULL; i++)
		if (strcmp(kind, name) == 0) {
			a->model = kind;
			return;
		}
	fprintf(stderr,
	    "nullb-calibrate: --model: \"%.60s\": allowed: auto, constant, "
	    "uniform, normal, exponential, lognormal, pareto, table\n",
	    name);
	exit(EXIT_USAGE);
}

static void
take_subtract(struct args *a, const char *text)
{
	if (dist_time(text, &a->subtract_ns) == 0)
		return;
	fprintf(stderr,
	    "nullb-calibrate: --subtract: \"%.60s\": allowed: a time, 0 to "
	    "3600s: 20us\n",
	    text);
	exit(EXIT_USAGE);
}

/* The name of the file. */
static const char *
parse(int argc, char **argv, struct args *a)
{
	enum {
		OPT_MODEL = 256,
		OPT_SUBTRACT,
		OPT_BASELINE,
		OPT_DEVICE,
		OPT_HELP,
		OPT_VERSION
	};
	static const struct option options[] = {
		{ "model", required_argument, NULL, OPT_MODEL },
		{ "subtract", required_argument, NULL, OPT_SUBTRACT },
		{ "baseline", required_argument, NULL, OPT_BASELINE },
		{ "device", required_argument, NULL, OPT_DEVICE },
		{ "help", no_argument, NULL, OPT_HELP },
		{ "version", no_argument, NULL, OPT_VERSION },
		{},
	};
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (opt) {
		case OPT_MODEL: take_model(a, optarg); break;
		case OPT_SUBTRACT: take_subtract(a, optarg); break;
		case OPT_BASELINE: a->baseline = optarg; break;
		case OPT_DEVICE: a->device = optarg; break;
		case OPT_HELP: usage(stdout); exit(EXIT_DONE);
		case OPT_VERSION:
			printf("nullb-calibrate %s\n", NULLBD_VERSION);
			exit(EXIT_DONE);
		default: bad_usage();
		}
	if (argc - optind != 1)
		bad_usage();
	return argv[optind];
}

int
main(int argc, char **argv)
{
	struct args a = {};
	const char *path;
	int status;

	argv[0] = program_invocation_short_name; /* as getopt() has it */
	log_init("nullb-calibrate", false);
	path = parse(argc, argv, &a);
	status = calibrate(&a, path);
	if (fflush(stdout) != 0) {
		fprintf(stderr, "nullb-calibrate: standard output: %s\n",
		    strerror(errno));
		return EXIT_BAD;
	}
	return status;
}
