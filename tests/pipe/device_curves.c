/* SPDX-License-Identifier: MIT */
/*
 * What the devices in conf/devices/ give: a table above each in its file, made
 * by a closed loop in simulated time.  Without arguments: are the tables still
 * true?  With --update they are made anew (make device-curves).
 */
#include <errno.h>
#include <glob.h>

#include "ctl/ctl.h"
#include "lib/closed.h"

#define FILES     "conf/devices/*.conf"
#define NR        20000u
#define MAX_DEPTH 128u
#define BAR       24u
#define WINDOW    64u /* writes: are they quick? */

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

/* A device of its own for each: credits and buffers are as new. */
static struct closed_result
run(const struct device *dev, const struct closed_job *job)
{
	struct closed_result r;
	struct closed c;
	char err[512];

	closed_open(&c);
	if (attr_copy(disk_attrs, &c.disk->set, &dev->conf) != 0)
		die(dev->name, "no memory");
	/* zones would refuse writes at random, and take no time */
	c.disk->set.zoned = false;
	c.disk->set.memory_backed = false;
	if (closed_on(&c, err, sizeof(err)) != 0)
		die(dev->name, err);
	r = closed_run(&c, job);
	closed_close(&c);
	return r;
}

static struct closed_result
run_random(const struct device *dev, enum req_op op, unsigned depth)
{
	struct closed_result r = run(dev, &(struct closed_job){ .op = op,
					      .random = true,
					      .bytes = 4096,
					      .depth = depth,
					      .nr = NR });

	free(r.ns);
	return r;
}

static unsigned
max_depth(const struct device *dev)
{
	uint32_t tags = dev->conf.hw_queue_depth;

	return tags < MAX_DEPTH ? tags : MAX_DEPTH;
}

static void
print_depths(const struct device *dev, FILE *out)
{
	struct closed_result r[8], w;
	unsigned nr = 0, depth, bar;
	double most = 0;

	fprintf(out,
	    "#: 4 KiB at random   reads                        writes\n"
	    "#: depth      IOPS   mean us    p99 us      IOPS   mean us"
	    "    p99 us  reads\n");
	for (depth = 1; depth <= max_depth(dev); depth *= 2) {
		r[nr] = run_random(dev, REQ_OP_READ, depth);
		if (r[nr].iops > most)
			most = r[nr].iops;
		nr++;
	}
	for (unsigned i = 0; i < nr; i++) {
		w = run_random(dev, REQ_OP_WRITE, 1u << i);
		bar = (unsigned)(r[i].iops / most * BAR + 0.5);
		fprintf(out,
		    "#: %5u %9.0f %9.0f %9.0f %9.0f %9.0f %9.0f  %.*s\n",
		    1u << i, r[i].iops, r[i].mean_us, r[i].p99_us, w.iops,
		    w.mean_us, w.p99_us, (int)(bar > 0 ? bar : 1),
		    "########################");
	}
}

static double
mean(const uint64_t *ns, unsigned nr)
{
	double sum = 0;

	for (unsigned i = 0; i < nr; i++)
		sum += (double)ns[i];
	return sum / nr;
}

/*
 * After how many writes each takes much longer, and for good: stalls pass.
 * r->nr: they never do.
 */
static unsigned
find_cliff(const struct closed_result *r)
{
	double quick = mean(r->ns, WINDOW), m;
	unsigned cliff = 0;

	for (unsigned i = WINDOW; i + WINDOW <= r->nr / 4; i += WINDOW) {
		m = mean(r->ns + i, WINDOW);
		quick = m < quick ? m : quick;
	}
	for (unsigned i = 0; i + WINDOW <= r->nr; i += WINDOW)
		if (mean(r->ns + i, WINDOW) < 1.25 * quick)
			cliff = i + WINDOW;
	return cliff + 2 * WINDOW < r->nr ? cliff : r->nr;
}

/* By Little's law, of writes of 128 KiB. */
static double
rate(const uint64_t *ns, unsigned nr, unsigned depth)
{
	return depth / (mean(ns, nr) / 1e9) / 8;
}

static void
print_streams(const struct device *dev, FILE *out)
{
	unsigned depth = max_depth(dev) < 4 ? max_depth(dev) : 4, cliff;
	uint64_t bytes = 4 * dev->conf.parts.wbuf_size;
	struct closed_job job = {
		.op = REQ_OP_READ, .bytes = 131072, .depth = depth, .nr = NR / 4
	};
	struct closed_result r = run(dev, &job), w;

	fprintf(out,
	    "#: 128 KiB in order at depth %u: reads %.0f MiB/s, writes ", depth,
	    r.mbps);
	free(r.ns);
	job.op = REQ_OP_WRITE;
	if (bytes / job.bytes > job.nr)
		job.nr = (unsigned)(bytes / job.bytes);
	w = run(dev, &job);
	cliff = find_cliff(&w);
	if (cliff == w.nr)
		fprintf(out, "%.0f MiB/s\n", w.mbps);
	else
		fprintf(out, "%.0f MiB/s,\n#: from %u MiB on %.0f MiB/s\n",
		    rate(w.ns, cliff, depth), cliff / 8,
		    rate(w.ns + cliff + WINDOW, w.nr - cliff - WINDOW, depth));
	free(w.ns);
}

/* The device whose section begins with this line, or NULL. */
static const struct device *
section(const struct config *c, const char *line)
{
	char name[DISK_NAME_LEN];

	if (sscanf(line, "[%31[^]]]", name) != 1)
		return NULL;
	return config_find(c, name);
}

/* The file as it should be. */
static void
print_file(const char *path, FILE *out)
{
	FILE *in = fopen(path, "r");
	const struct device *dev;
	struct config c;
	char *line = NULL;
	size_t size = 0;

	if (in == NULL)
		die(path, strerror(errno));
	if (config_init(&c) != 0 || config_ini(&c, path, stderr) != 0 ||
	    config_finish(&c) != 0 || config_check(&c, 1, stderr) != 0)
		die(path, "is refused");
	while (getline(&line, &size, in) > 0) {
		if (strncmp(line, "#:", 2) == 0)
			continue;
		dev = section(&c, line);
		if (dev != NULL) {
			print_depths(dev, out);
			print_streams(dev, out);
		}
		fputs(line, out);
	}
	free(line);
	fclose(in);
	config_fini(&c);
}

static char *
read_file(const char *path)
{
	FILE *in = fopen(path, "r");
	char *text = NULL;
	size_t size = 0;

	if (in == NULL || getdelim(&text, &size, '\0', in) < 0)
		die(path, "cannot be read");
	fclose(in);
	return text;
}

/* 0: it is as it should be, or is now. */
static int
look_at(const char *path, bool update)
{
	char *is = read_file(path), *should = NULL;
	size_t size;
	FILE *out = open_memstream(&should, &size);
	int ret = 0;

	print_file(path, out);
	fclose(out);
	if (strcmp(is, should) != 0 && update) {
		out = fopen(path, "w");
		if (out == NULL || fputs(should, out) < 0 || fclose(out) != 0)
			die(path, strerror(errno));
	} else if (strcmp(is, should) != 0) {
		fprintf(stderr,
		    "%s: its table is not true any more: make device-curves "
		    "gives\n%s",
		    path, should);
		ret = 1;
	}
	free(is);
	free(should);
	return ret;
}

int
main(int argc, char **argv)
{
	bool update = argc == 2 && strcmp(argv[1], "--update") == 0;
	int ret = 0;
	glob_t g;

	if (argc > 1 && !update) {
		fprintf(stderr, "usage: device_curves [--update]\n");
		return 2;
	}
	if (glob(FILES, 0, NULL, &g) != 0)
		die(FILES, "there are none");
	for (size_t i = 0; i < g.gl_pathc; i++)
		ret |= look_at(g.gl_pathv[i], update);
	globfree(&g);
	return ret;
}
