/* SPDX-License-Identifier: MIT */
/*
 * What real kernels counted, told again by the simulator: each row of
 * tests/data/counters.tsv is a workload (workloads.txt) on a null_blk of Linux
 * 6.1 or 6.12 on one CPU, and every figure has to be the same.  model.tsv has
 * what an independent model counts for kernels that were not recorded.
 *
 * A case is a kernel, a device and a setting of its queue, over all the
 * workloads that were recorded with it.
 */
#include "harness.h"

#include <ctype.h>

#define MAX_IOS     5000u /* of a workload */
#define MAX_FIELDS  16u
#define NR_COUNTERS 10u
#define MAX_CASES   128u

/* ------------------------------------------------------------- workloads */

struct io {
	enum req_op op;
	sector_t sector;
	unsigned nr_sectors;
	bool last; /* of its batch */
};

struct workload {
	char name[64];
	bool fua;
	unsigned nr;
	struct io io[MAX_IOS];
};

static FILE *
open_data(const char *name)
{
	const char *dir = getenv("NULLB_DATA");
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir != NULL ? dir : "tests/data",
	    name);
	f = fopen(path, "r");
	if (f == NULL) {
		fprintf(stderr, "%s: %s (run from the top folder)\n", path,
		    strerror(errno));
		exit(1);
	}
	return f;
}

static enum req_op
op_of(char c)
{
	switch (c) {
	case 'R': return REQ_OP_READ;
	case 'W': return REQ_OP_WRITE;
	case 'D': return REQ_OP_DISCARD;
	case 'F': return REQ_OP_FLUSH;
	}
	fail_msg("workloads.txt: operation %c", c);
	return REQ_OP_NR;
}

static void
add_io(struct workload *w, const struct io *io, unsigned batch)
{
	assert_in_range(w->nr, 0, MAX_IOS - 1);
	w->io[w->nr++] = *io;
	if (batch > 0 && w->nr % batch == 0)
		w->io[w->nr - 1].last = true;
}

/* "W 512 8", or "W 512 8 64": so many that follow, upwards or down. */
static void
add_line(struct workload *w, const char *line, unsigned batch)
{
	unsigned long long sector = 0;
	unsigned nr_sectors = 0;
	struct io io = {};
	int count = 1;
	char op;

	if (line[0] == '-') {
		w->io[w->nr - 1].last = true;
		return;
	}
	assert_true(sscanf(line, "%c %llu %u %d", &op, &sector, &nr_sectors,
			&count) >= 1);
	io.op = op_of(op);
	io.sector = sector;
	io.nr_sectors = nr_sectors;
	for (int i = 0; i < abs(count); i++) {
		add_io(w, &io, batch);
		io.sector += count > 0 ? nr_sectors : -(sector_t)nr_sectors;
	}
}

static struct workload *
load_workload(const char *name)
{
	struct workload *w = calloc(1, sizeof(*w));
	FILE *f = open_data("workloads.txt");
	char line[512], fua[8];
	bool found = false;
	unsigned batch = 0;

	assert_non_null(w);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (line[0] == '#')
			continue;
		if (line[0] != '=') {
			if (found)
				add_line(w, line, batch);
			continue;
		}
		if (found)
			break;
		fua[0] = '\0';
		assert_true(
		    sscanf(line, "= %63s %u %7s", w->name, &batch, fua) >= 2);
		found = strcmp(w->name, name) == 0;
		w->fua = strcmp(fua, "fua") == 0;
	}
	fclose(f);
	if (!found)
		fail_msg("workloads.txt: no %s", name);
	w->io[w->nr - 1].last = true;
	return w;
}

/* ------------------------------------------------------------------ rows */

struct row {
	const struct profile *profile;
	char setting[128];  /* kernel, scheduler, nomerges, sectors, device */
	char scheduler[64]; /* "mq-deadline,fifo_batch=1" */
	unsigned nomerges;
	unsigned max_sectors;
	char device[16];
	char workload[64];
	uint64_t want[NR_COUNTERS];
};

static const char *const counter_names[NR_COUNTERS] = { "read ios",
	"read merges", "read sectors", "write ios", "write merges",
	"write sectors", "discard ios", "discard merges", "discard sectors",
	"flush ios" };

static struct row *rows;
static unsigned nr_rows;

static void
parse_row(struct row *row, char *line)
{
	char *field[MAX_FIELDS], *rest = line;
	unsigned i;

	for (i = 0; i < MAX_FIELDS; i++) {
		field[i] = strsep(&rest, "\t\n");
		if (field[i] == NULL)
			abort();
	}
	row->profile = profile_find(field[0]);
	snprintf(row->scheduler, sizeof(row->scheduler), "%s", field[1]);
	row->nomerges = (unsigned)atoi(field[2]);
	row->max_sectors = (unsigned)atoi(field[3]);
	snprintf(row->device, sizeof(row->device), "%s", field[4]);
	snprintf(row->workload, sizeof(row->workload), "%s", field[5]);
	snprintf(row->setting, sizeof(row->setting),
	    "%s, %s, nomerges %s, %s sectors, %s", field[0], field[1], field[2],
	    field[3], field[4]);
	for (i = 0; i < NR_COUNTERS; i++)
		row->want[i] = strtoull(field[6 + i], NULL, 10);
}

static void
load_rows(const char *name)
{
	FILE *f = open_data(name);
	char line[512];

	while (fgets(line, sizeof(line), f) != NULL) {
		if (line[0] == '#')
			continue;
		rows = realloc(rows, (nr_rows + 1) * sizeof(*rows));
		if (rows == NULL)
			abort();
		parse_row(&rows[nr_rows++], line);
	}
	fclose(f);
}

/* -------------------------------------------------------------- a device */

static void
set_tunable(struct deadline_conf *d, const char *setting)
{
	unsigned value;
	char name[32];

	if (sscanf(setting, "%31[^=]=%u", name, &value) != 2)
		abort();
	if (strcmp(name, "fifo_batch") == 0)
		d->fifo_batch = value;
	else if (strcmp(name, "writes_starved") == 0)
		d->writes_starved = value;
	else if (strcmp(name, "front_merges") == 0)
		d->front_merges = value != 0;
	else
		abort();
}

/* null_blk's own limits, and what the row says. */
static struct queue_conf
conf_of(const struct row *row)
{
	struct queue_conf conf = h_conf(row->profile);
	char scheduler[64], *tunable = scheduler, *name;

	snprintf(scheduler, sizeof(scheduler), "%s", row->scheduler);
	name = strsep(&tunable, ",");
	conf.elevator = elevator_find(name);
	if (tunable != NULL)
		set_tunable(&conf.deadline, tunable);
	conf.depth = 64;
	conf.nomerges = row->nomerges;
	conf.blocking = strcmp(row->device, "null") != 0;
	conf.limits.max_sectors = row->max_sectors;
	conf.limits.write_cache = strcmp(row->device, "cache") == 0;
	conf.limits.fua = conf.limits.write_cache;
	conf.limits.max_discard_sectors =
	    conf.blocking ? UINT32_MAX >> SECTOR_SHIFT : 0;
	conf.limits.discard_granularity = 512;
	return conf;
}

static void
submit_io(struct harness *h, const struct io *io, bool fua)
{
	bool alone = h->open == NULL && queue_plugs_alone(h->queue, io->op);
	struct bio *bio;

	if (alone)
		h_plug(h);
	switch (io->op) {
	case REQ_OP_FLUSH:
	case REQ_OP_DISCARD:
		range(h, io->op, io->sector, io->nr_sectors);
		break;
	default:
		bio = h_bio(h, io->op, io->sector);
		if (fua && io->op == REQ_OP_WRITE)
			bio->flags = REQ_FUA;
		add_scat(h, bio, io->nr_sectors);
		h_submit(h, bio);
	}
	if (alone)
		h_flush(h);
}

/* One batch after another, each when all before it has ended. */
static void
run_workload(struct harness *h, const struct workload *w)
{
	unsigned i, first, min = queue_plug_min(h->queue);

	for (first = 0; first < w->nr; first = i) {
		for (i = first; !w->io[i].last; i++)
			;
		i++;
		if (i - first >= min)
			h_plug(h);
		for (unsigned j = first; j < i; j++)
			submit_io(h, &w->io[j], w->fua);
		h_finish(h);
		h->nr_seen = 0;
		h->nr_bursts = 0;
	}
}

/* How many of its counters are not as the kernel's were. */
static unsigned
nr_wrong(const struct row *row)
{
	struct queue_conf conf = conf_of(row);
	struct workload *w = load_workload(row->workload);
	struct harness *h = calloc(1, sizeof(*h));
	uint64_t got[NR_COUNTERS];
	struct queue_stat st;
	unsigned i, nr = 0;

	assert_non_null(h);
	h_open(h, &conf);
	run_workload(h, w);
	st = h_stat(h);
	for (i = 0; i < NR_COUNTERS; i++) {
		unsigned group = i / 3;
		const uint64_t *counter[] = { st.ios, st.merges, st.sectors };

		got[i] = counter[i % 3][group];
		if (got[i] == row->want[i])
			continue;
		print_error("%s: %s: %s %llu, the kernel's %llu\n",
		    row->setting, row->workload, counter_names[i],
		    (unsigned long long)got[i],
		    (unsigned long long)row->want[i]);
		nr++;
	}
	h_close(h);
	free(h);
	free(w);
	return nr;
}

static void
counts_as_the_kernel(void **state)
{
	const char *setting = *state;
	unsigned i, nr = 0, wrong = 0;

	for (i = 0; i < nr_rows; i++) {
		if (strcmp(rows[i].setting, setting) != 0)
			continue;
		wrong += nr_wrong(&rows[i]);
		nr++;
	}
	assert_int_not_equal(nr, 0);
	assert_int_equal(wrong, 0);
}

int
main(void)
{
	static struct CMUnitTest tests[MAX_CASES];
	size_t nr = 0;
	unsigned i;

	load_rows("counters.tsv");
	load_rows("model.tsv");
	for (i = 0; i < nr_rows; i++) {
		if (nr > 0 && strcmp(tests[nr - 1].name, rows[i].setting) == 0)
			continue; /* the rows are in order */
		if (nr == MAX_CASES)
			abort();
		tests[nr++] = (struct CMUnitTest){
			.name = rows[i].setting,
			.test_func = counts_as_the_kernel,
			.initial_state = rows[i].setting,
		};
	}
	i = (unsigned)_cmocka_run_group_tests(
	    "counters", tests, nr, NULL, NULL);
	free(rows);
	return (int)i;
}
