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
#include "lib/counted.h"

#define MAX_CASES 128u

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
	struct queue_conf conf = h_conf(profile_find(row->kernel));
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

static enum req_op
op_of(char c)
{
	switch (c) {
	case 'R': return REQ_OP_READ;
	case 'W': return REQ_OP_WRITE;
	case 'D': return REQ_OP_DISCARD;
	default: return REQ_OP_FLUSH;
	}
}

static void
submit_io(struct harness *h, const struct io *io, bool fua)
{
	enum req_op op = op_of(io->op);
	bool alone = h->open == NULL && queue_plugs_alone(h->queue, op);
	struct bio *bio;

	if (alone)
		h_plug(h);
	switch (op) {
	case REQ_OP_FLUSH:
	case REQ_OP_DISCARD: range(h, op, io->sector, io->nr_sectors); break;
	default:
		bio = h_bio(h, op, io->sector);
		if (fua && op == REQ_OP_WRITE)
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
	const struct workload *w = workload_find(row->workload);
	struct harness *h = calloc(1, sizeof(*h));
	uint64_t got[NR_COUNTERS];
	struct queue_stat st;
	unsigned i;

	assert_non_null(h);
	h_open(h, &conf);
	run_workload(h, w);
	st = h_stat(h);
	for (i = 0; i < NR_COUNTERS; i++) {
		const uint64_t *counter[] = { st.ios, st.merges, st.sectors };

		got[i] = counter[i % 3][i / 3];
	}
	h_close(h);
	free(h);
	return counted_wrong(row, got);
}

static void
counts_as_the_kernel(void **state)
{
	const char *setting = *state;
	unsigned i, nr_rows, nr = 0, wrong = 0;
	const struct row *rows = counted_rows(&nr_rows);

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
	unsigned i, nr_rows;
	const struct row *rows = counted_rows(&nr_rows);
	size_t nr = 0;

	for (i = 0; i < nr_rows; i++) {
		if (nr > 0 && strcmp(tests[nr - 1].name, rows[i].setting) == 0)
			continue; /* the rows are in order */
		if (nr == MAX_CASES)
			abort();
		tests[nr++] = (struct CMUnitTest){
			.name = rows[i].setting,
			.test_func = counts_as_the_kernel,
			.initial_state = (void *)(uintptr_t)rows[i].setting,
		};
	}
	return _cmocka_run_group_tests("counters", tests, nr, NULL, NULL);
}
