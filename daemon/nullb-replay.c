/* SPDX-License-Identifier: MIT */
/*
 * nullb-replay: what would this kernel's block layer make of that I/O?  A
 * recording is told to the simulated block layer, in-process and without
 * waiting, and its counters are printed; of several kernels side by side.  And
 * what would a device hold at any point of a crash log?  That is written to an
 * image.
 *
 * Exit status: 0 done; 1 the recording is bad, or an I/O failed; 2 wrong usage.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "ctl/crashread.h"
#include "ctl/ctl.h"
#include "dev/crashlog.h"
#include "replay.h"

#define MAX_KERNELS 16u
#define MAX_BATCH   (1u << 20)

enum {
	EXIT_DONE,
	EXIT_BAD,
	EXIT_USAGE
};

/* What was asked for. */
struct args {
	struct disk_conf disk;
	const struct profile *kernel[MAX_KERNELS];
	unsigned nr_kernels;
	unsigned batch;
	const char *device;
	const char *trace;
	bool closed;
	bool json;
	/* of a crash log; NULL: not asked for */
	const char *image;
	struct crash_until until;
	bool list;
};

/* ---- output */

/* What the table of several kernels has, a row each. */
static const struct counter {
	const char *name;
	size_t offset; /* in struct queue_stat */
} counters[] = {
#define COUNTER(n, field)                                                 \
	{                                                                 \
		.name = (n), .offset = offsetof(struct queue_stat, field) \
	}
	COUNTER("read_ios", ios[STAT_READ]),
	COUNTER("read_merges", merges[STAT_READ]),
	COUNTER("read_sectors", sectors[STAT_READ]),
	COUNTER("write_ios", ios[STAT_WRITE]),
	COUNTER("write_merges", merges[STAT_WRITE]),
	COUNTER("write_sectors", sectors[STAT_WRITE]),
	COUNTER("discard_ios", ios[STAT_DISCARD]),
	COUNTER("discard_merges", merges[STAT_DISCARD]),
	COUNTER("discard_sectors", sectors[STAT_DISCARD]),
	COUNTER("flush_ios", ios[STAT_FLUSH]),
	COUNTER("splits_size", splits[SPLIT_SIZE]),
	COUNTER("splits_segments", splits[SPLIT_SEGMENTS]),
	COUNTER("splits_chunk", splits[SPLIT_CHUNK]),
	COUNTER("splits_gap", splits[SPLIT_GAP]),
	COUNTER("segments", segments.sum),
	{},
#undef COUNTER
};

static void
print_table(const struct args *a, const struct sample *sample)
{
	const char *at;

	printf("%-15s", "kernel");
	for (unsigned i = 0; i < a->nr_kernels; i++)
		printf(" %12s", a->kernel[i]->name);
	putchar('\n');
	for (const struct counter *c = counters; c->name != NULL; c++) {
		printf("%-15s", c->name);
		for (unsigned i = 0; i < a->nr_kernels; i++) {
			at = (const char *)&sample[i].stat + c->offset;
			printf(
			    " %12" PRIu64, *(const uint64_t *)(const void *)at);
		}
		putchar('\n');
	}
}

/* {"recording":"t","ios":4096,"ignored":0,"kernels":{"6.12":{...}}} */
static int
print_json(
    const struct args *a, const struct iolog *log, const struct sample *sample)
{
	json_t *kernels = json_object(), *all;
	int bad = 0;

	for (unsigned i = 0; i < a->nr_kernels; i++) {
		json_t *one = sample_pack(&sample[i]);

		bad |= segments_add(one, &sample[i].stat);
		bad |= json_object_set_new(kernels, a->kernel[i]->name, one);
	}
	all = json_pack("{s:s, s:s, s:I, s:I, s:o}", "recording", log->path,
	    "device", log->device, "ios", (json_int_t)log->nr, "ignored",
	    (json_int_t)log->nr_ignored, "kernels", kernels);
	if (all == NULL || bad != 0) {
		json_decref(all);
		fprintf(stderr,
		    "nullb-replay: %s: not UTF-8, or out of memory\n",
		    log->path);
		return EXIT_BAD;
	}
	json_dumpf(all, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(all);
	return EXIT_DONE;
}

/* ---- the replay */

static int
replay_kernel(
    struct args *a, const struct iolog *log, unsigned i, struct sample *out)
{
	const struct replay_conf conf = {
		.disk = &a->disk,
		.batch = a->batch,
		.trace = a->trace,
		.closed = a->closed,
	};
	FILE *stat = a->nr_kernels == 1 && !a->json ? stdout : NULL;
	char err[2 * CTL_MAX_ERROR];
	int ret;

	a->disk.kernel = a->kernel[i];
	ret = replay_run(log, &conf, out, stat, err, sizeof(err));
	if (ret == 0)
		return EXIT_DONE;
	fprintf(stderr, "nullb-replay: %s\n", err);
	return ret == -EINVAL ? EXIT_USAGE : EXIT_BAD;
}

static int
replay(struct args *a, const char *path)
{
	struct sample sample[MAX_KERNELS];
	struct iolog *log = iolog_read(path, a->device, log_errors());
	int status = EXIT_DONE;

	if (log == NULL)
		return EXIT_BAD;
	if (log->nr_ignored > 0)
		fprintf(stderr,
		    "nullb-replay: %s: %" PRIu64 " I/Os of other devices than "
		    "%s are ignored; --device picks another\n",
		    path, log->nr_ignored, log->device);
	for (unsigned i = 0; i < a->nr_kernels && status == EXIT_DONE; i++)
		status = replay_kernel(a, log, i, &sample[i]);
	if (status == EXIT_DONE && a->json)
		status = print_json(a, log, sample);
	else if (status == EXIT_DONE && a->nr_kernels > 1)
		print_table(a, sample);
	iolog_free(log);
	return status;
}

/* ---- a crash log */

static void
print_entry(const struct crash_entry *e)
{
	static const struct {
		uint64_t flag;
		const char *name;
	} kinds[] = {
		{ CRASH_MARK, "mark" },
		{ CRASH_FLUSH, "flush" },
		{ CRASH_DISCARD, "discard" },
		{ CRASH_FUA, "fua" },
		{ 0, "write" },
	};
	const char *at = e->mark;
	unsigned i = 0;

	while (kinds[i].flag != 0 && (e->flags & kinds[i].flag) == 0)
		i++;
	printf("%8" PRIu64 " %-7s", e->nr, kinds[i].name);
	if (e->flags & CRASH_MARK)
		putchar(' ');
	for (; *at != '\0'; at++) /* whoever wrote it */
		putchar(iscntrl((unsigned char)*at) ? '?' : *at);
	if (e->len > 0)
		printf(" %" PRIu64 " + %" PRIu64, e->pos >> SECTOR_SHIFT,
		    e->len >> SECTOR_SHIFT);
	putchar('\n');
}

static int
list_entries(struct crash_reader *r, char *err, size_t errlen)
{
	struct crash_entry e;
	int ret;

	while ((ret = crashread_next(r, &e, err, errlen)) > 0)
		print_entry(&e);
	return ret;
}

static int
write_image(
    const struct args *a, struct crash_reader *r, char *err, size_t errlen)
{
	int image, ret;

	image = open(a->image, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (image < 0)
		return refuse(err, errlen, -errno, "--image: %s: %s", a->image,
		    strerror(errno));
	ret = crashread_replay(r, &a->until, image, err, errlen);
	if (close(image) != 0 && ret == 0)
		ret = refuse(err, errlen, -errno, "--image: %s: %s", a->image,
		    strerror(errno));
	printf("%" PRIu64 " of %" PRIu64 " entries\n", r->nr, r->nr_entries);
	return ret;
}

static int
replay_crash(const struct args *a, const char *path)
{
	char err[2 * CTL_MAX_ERROR];
	struct crash_reader r;
	int ret = crashread_open(&r, path, err, sizeof(err));

	if (ret == 0 && a->list)
		ret = list_entries(&r, err, sizeof(err));
	else if (ret == 0)
		ret = write_image(a, &r, err, sizeof(err));
	crashread_close(&r);
	if (ret == 0)
		return EXIT_DONE;
	fprintf(stderr, "nullb-replay: %s\n", err);
	return EXIT_BAD;
}

/* ---- the command line */

static void
usage(FILE *out)
{
	fputs(
	    "usage: nullb-replay [OPTION]... FILE\n"
	    "       nullb-replay --image IMAGE [--until WHERE] CRASH_LOG\n"
	    "       nullb-replay --list CRASH_LOG\n\n"
	    "What the simulated block layer makes of recorded I/O.  FILE is "
	    "what blkparse\n"
	    "prints, a file of blktrace, NAME of its NAME.blktrace.0, .1, "
	    "..., or an iolog\n"
	    "of fio; - is the standard input.\n\n"
	    "  --kernel PROFILE       whose block layer; several are compared\n"
	    "  --batch N              a plug around every N I/Os of a task, as "
	    "io_submit\n"
	    "                         of N; default 1\n"
	    "  --set ATTRIBUTE=VALUE  a setting of the device, as nullbd has "
	    "it\n"
	    "  --device DEVICE        whose I/Os: MAJOR,MINOR, or the file's "
	    "name in an\n"
	    "                         iolog; default the first one's\n"
	    "  --closed               a batch comes when the one before has "
	    "ended, not at\n"
	    "                         its recorded time\n"
	    "  --trace FILE           write what happened as blktrace does, "
	    "to\n"
	    "                         FILE.blktrace.0; of one kernel\n"
	    "  --json                 print all counters as JSON\n"
	    "  --image IMAGE          write to this file what the entries of "
	    "a crash log\n"
	    "                         have written and discarded\n"
	    "  --until WHERE          the last of them: a number, flush:N, "
	    "the text of a\n"
	    "                         mark (or mark:TEXT), or end\n"
	    "  --list                 print the entries of a crash log\n"
	    "  --help, --version\n\n"
	    "Exit status: 0 done; 1 the recording is bad, or an I/O failed; 2 "
	    "wrong usage.\n",
	    out);
}

static void
bad_usage(void)
{
	usage(stderr);
	exit(EXIT_USAGE);
}

static void
refuse_usage(const char *what)
{
	fprintf(stderr, "nullb-replay: %s\n", what);
	exit(EXIT_USAGE);
}

static void
set(struct args *a, const char *name, const char *value)
{
	char err[CTL_MAX_ERROR];

	if (disk_conf_set(&a->disk, name, value, err, sizeof(err)) != 0)
		refuse_usage(err);
}

/* ATTRIBUTE=VALUE */
static void
take_setting(struct args *a, char *text)
{
	char *value = strchr(text, '=');

	if (value == NULL)
		refuse_usage("--set: allowed: ATTRIBUTE=VALUE");
	*value++ = '\0';
	set(a, text, value);
}

static void
take_kernel(struct args *a, const char *name)
{
	if (a->nr_kernels == MAX_KERNELS)
		refuse_usage("--kernel: more than 16");
	set(a, "kernel", name);
	a->kernel[a->nr_kernels++] = a->disk.kernel;
}

static void
take_batch(struct args *a, const char *text)
{
	uint64_t n;

	if (uint_parse(text, NULL, &n) != 0 || n == 0 || n > MAX_BATCH) {
		fprintf(stderr,
		    "nullb-replay: --batch: \"%s\": allowed: 1 to %u\n", text,
		    MAX_BATCH);
		exit(EXIT_USAGE);
	}
	a->batch = (unsigned)n;
}

static void
take_until(struct args *a, const char *text)
{
	char err[CTL_MAX_ERROR];

	if (crash_until_parse(text, &a->until, err, sizeof(err)) != 0)
		refuse_usage(err);
}

/* The name of the recording. */
static const char *
parse(int argc, char **argv, struct args *a)
{
	enum {
		OPT_KERNEL = 256,
		OPT_BATCH,
		OPT_SET,
		OPT_DEVICE,
		OPT_CLOSED,
		OPT_TRACE,
		OPT_JSON,
		OPT_IMAGE,
		OPT_UNTIL,
		OPT_LIST,
		OPT_HELP,
		OPT_VERSION
	};
	static const struct option options[] = {
		{ "kernel", required_argument, NULL, OPT_KERNEL },
		{ "batch", required_argument, NULL, OPT_BATCH },
		{ "set", required_argument, NULL, OPT_SET },
		{ "device", required_argument, NULL, OPT_DEVICE },
		{ "closed", no_argument, NULL, OPT_CLOSED },
		{ "trace", required_argument, NULL, OPT_TRACE },
		{ "json", no_argument, NULL, OPT_JSON },
		{ "image", required_argument, NULL, OPT_IMAGE },
		{ "until", required_argument, NULL, OPT_UNTIL },
		{ "list", no_argument, NULL, OPT_LIST },
		{ "help", no_argument, NULL, OPT_HELP },
		{ "version", no_argument, NULL, OPT_VERSION },
		{},
	};
	bool until = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (opt) {
		case OPT_KERNEL: take_kernel(a, optarg); break;
		case OPT_BATCH: take_batch(a, optarg); break;
		case OPT_SET: take_setting(a, optarg); break;
		case OPT_DEVICE: a->device = optarg; break;
		case OPT_CLOSED: a->closed = true; break;
		case OPT_TRACE: a->trace = optarg; break;
		case OPT_JSON: a->json = true; break;
		case OPT_IMAGE: a->image = optarg; break;
		case OPT_UNTIL:
			take_until(a, optarg);
			until = true;
			break;
		case OPT_LIST: a->list = true; break;
		case OPT_HELP: usage(stdout); exit(EXIT_DONE);
		case OPT_VERSION:
			printf("nullb-replay %s\n", NULLBD_VERSION);
			exit(EXIT_DONE);
		default: bad_usage();
		}
	if (argc - optind != 1)
		bad_usage();
	if (until && a->image == NULL)
		refuse_usage("--until: only with --image");
	if (a->list && a->image != NULL)
		refuse_usage("--list: not with --image");
	if ((a->list || a->image != NULL) &&
	    (a->nr_kernels > 0 || a->trace != NULL || a->device != NULL ||
		a->closed || a->json || a->batch != 1))
		refuse_usage("--list, --image: with no option but --until");
	if (a->trace != NULL && a->nr_kernels > 1)
		refuse_usage("--trace: of one kernel at a time");
	if (a->nr_kernels == 0)
		a->kernel[a->nr_kernels++] = a->disk.kernel;
	return argv[optind];
}

int
main(int argc, char **argv)
{
	struct args a = { .batch = 1, .until.entries = UINT64_MAX };
	const char *path;
	int status;

	argv[0] = program_invocation_short_name; /* as getopt() has it */
	log_init("nullb-replay", false);
	if (attr_init(disk_attrs, &a.disk) != 0) {
		fputs("nullb-replay: out of memory\n", stderr);
		return EXIT_BAD;
	}
	path = parse(argc, argv, &a);
	status = a.list || a.image != NULL ? replay_crash(&a, path)
					   : replay(&a, path);
	attr_fini(disk_attrs, &a.disk);
	if (fflush(stdout) != 0) {
		fprintf(stderr, "nullb-replay: standard output: %s\n",
		    strerror(errno));
		return EXIT_BAD;
	}
	return status;
}
