/* SPDX-License-Identifier: MIT */
/*
 * What real kernels traced, told again by the simulator: from the Q lines of
 * tests/data/traces.txt, in their batches, all else must follow in the same
 * order: splits, requests, merges, plugs and what empties them, insertions.
 *
 * One difference is meant: 6.1 traces no U when it issues directly (4.1), and
 * we do.
 */
#include "harness.h"
#include "lib/counted.h"

#define MAX_LINE 64

struct trace_test {
	char name[128];
	const struct profile *profile;
	char scheduler[16];
	char device[8];
	long offset; /* of its lines in the file */
};

static struct trace_test tests[256];
static unsigned nr_tests;

/* ------------------------------------------------------------ what we trace */

/* blkparse's flags. */
static void
rwbs(const struct trace_event *e, char *out)
{
	bool asks = e->op == REQ_OP_FLUSH || (e->flags & REQ_PREFLUSH);

	if (asks)
		*out++ = 'F';
	if (e->op == REQ_OP_READ)
		*out++ = 'R';
	else
		*out++ = e->op == REQ_OP_DISCARD ? 'D' : 'W';
	if (e->flags & REQ_FUA)
		*out++ = 'F';
	if (e->flags & REQ_SYNC)
		*out++ = 'S';
	*out = '\0';
}

/* An event as the file has it; false: one that it does not have. */
static bool
event_line(const struct trace_test *t, const struct trace_event *e,
    char line[MAX_LINE])
{
	static const char letters[] = {
		[TRACE_QUEUE] = 'Q',
		[TRACE_BACKMERGE] = 'M',
		[TRACE_FRONTMERGE] = 'F',
		[TRACE_GETRQ] = 'G',
		[TRACE_PLUG] = 'P',
		[TRACE_UNPLUG] = 'U',
		[TRACE_UNPLUG_TIMER] = 'T',
		[TRACE_INSERT] = 'I',
		[TRACE_SPLIT] = 'X',
	};
	bool direct = strcmp(t->scheduler, "none") == 0;
	char letter = e->action < sizeof(letters) ? letters[e->action] : '\0';
	char flags[8];

	if (letter == '\0')
		return false;
	if (letter == 'P') {
		strcpy(line, "P");
		return true;
	}
	if (letter == 'U' || letter == 'T') {
		snprintf(line, MAX_LINE, "%c %llu", letter,
		    (unsigned long long)e->extra);
		return letter == 'T' || !direct ||
		       strcmp(t->profile->name, "6.1") != 0;
	}
	rwbs(e, flags);
	snprintf(line, MAX_LINE, "%c %s %llu %llu", letter, flags,
	    (unsigned long long)e->sector,
	    (unsigned long long)(letter == 'X' ? e->extra
					       : e->bytes >> SECTOR_SHIFT));
	return true;
}

/* ------------------------------------------------------------------ a trace */

static struct queue_conf
conf_of(const struct trace_test *t)
{
	struct queue_conf conf = h_conf(t->profile);

	conf.elevator = elevator_find(t->scheduler);
	conf.depth = 64;
	conf.blocking = strcmp(t->device, "null") != 0;
	conf.limits.max_sectors = 255;
	conf.limits.write_cache = strcmp(t->device, "cache") == 0;
	conf.limits.fua = conf.limits.write_cache;
	conf.limits.max_discard_sectors = UINT32_MAX >> SECTOR_SHIFT;
	return conf;
}

/* "Q WFS 0 8": the bio. */
static struct bio *
bio_of(struct harness *h, const char *line)
{
	unsigned long long sector, nr_sectors;
	char flags[8];
	enum req_op op = REQ_OP_WRITE;
	struct bio *bio;

	assert_int_equal(
	    sscanf(line, "Q %7s %llu %llu", flags, &sector, &nr_sectors), 3);
	if (flags[0] == 'R')
		op = REQ_OP_READ;
	else if (flags[0] == 'D')
		op = REQ_OP_DISCARD;
	else if (nr_sectors == 0)
		op = REQ_OP_FLUSH;
	bio = h_bio(h, op, sector);
	if (strchr(flags, 'S') != NULL)
		bio->flags |= REQ_SYNC;
	if (op == REQ_OP_WRITE && strchr(flags, 'F') != NULL)
		bio->flags |= REQ_FUA;
	if (op == REQ_OP_DISCARD)
		bio->bytes = nr_sectors * SECTOR_SIZE;
	else
		add_scat(h, bio, nr_sectors);
	return bio;
}

/* `waits`: the task sleeps until it has ended, whatever plug it has. */
static void
submit(struct harness *h, const char *line, bool waits)
{
	struct bio *bio = bio_of(h, line);
	enum req_op op = bio->op;
	bool alone = h->open == NULL && queue_plugs_alone(h->queue, bio->op);

	if (alone)
		h_plug(h);
	h_submit(h, bio);
	if (!alone)
		return;
	if (waits)
		plug_flush_blocked(h->open, h->cpu, h->now);
	plug_flush_alone(h->open, op, h->cpu, h->now);
	h_flush(h);
}

/* A line of the file; false: the trace is over. */
static bool
next_line(FILE *f, char line[MAX_LINE])
{
	if (fgets(line, MAX_LINE, f) == NULL || line[0] == '=')
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

/* Submit what the batch at the file's position has in Q lines. */
static bool
submit_batch(const struct trace_test *t, struct harness *h, FILE *f)
{
	long start = ftell(f);
	char line[MAX_LINE];
	unsigned nr = 0, min = queue_plug_min(h->queue);

	while (next_line(f, line) && line[0] != '-')
		nr += line[0] == 'Q';
	if (nr == 0)
		return false;
	fseek(f, start, SEEK_SET);
	if (nr >= min)
		h_plug(h);
	while (next_line(f, line) && line[0] != '-')
		if (line[0] == 'Q')
			submit(h, line, strstr(t->name, " psync-") != NULL);
	h_finish(h);
	h->nr_seen = 0;
	h->nr_bursts = 0;
	fseek(f, start, SEEK_SET);
	return true;
}

/* The events since are the lines of the batch. */
static void
compare_batch(const struct trace_test *t, struct harness *h, FILE *f)
{
	char want[MAX_LINE], got[MAX_LINE];
	struct trace_event e;

	while (trace_take(h->queue, 0, &e, 1) == 1) {
		if (!event_line(t, &e, got))
			continue;
		assert_true(next_line(f, want));
		if (strcmp(want, got) != 0)
			fail_msg("%s: traced \"%s\", the kernel \"%s\"",
			    t->name, got, want);
	}
	assert_true(next_line(f, want));
	if (strcmp(want, "-") != 0)
		fail_msg("%s: the kernel traced \"%s\" then", t->name, want);
}

static void
traces_as_the_kernel(void **state)
{
	const struct trace_test *t = *state;
	struct queue_conf conf = conf_of(t);
	struct harness *h = calloc(1, sizeof(*h));
	FILE *f = data_open("traces.txt");
	unsigned nr = 0;

	assert_non_null(h);
	fseek(f, t->offset, SEEK_SET);
	h_open(h, &conf);
	assert_int_equal(trace_start(h->queue, 1 << 14), 0);
	while (submit_batch(t, h, f)) {
		compare_batch(t, h, f);
		nr++;
	}
	assert_int_not_equal(nr, 0);
	assert_int_equal(trace_dropped(h->queue), 0);
	trace_stop(h->queue);
	h_close(h);
	free(h);
	fclose(f);
}

static void
find_traces(void)
{
	FILE *f = data_open("traces.txt");
	char line[256], kernel[8];
	struct trace_test *t;

	while (fgets(line, sizeof(line), f) != NULL) {
		if (line[0] != '=')
			continue;
		if (nr_tests == ARRAY_SIZE(tests))
			abort();
		t = &tests[nr_tests++];
		line[strcspn(line, "\n")] = '\0';
		snprintf(t->name, sizeof(t->name), "%.100s", line + 2);
		if (sscanf(line, "= %7s %15s %7s", kernel, t->scheduler,
			t->device) != 3)
			abort();
		t->profile = profile_find(kernel);
		t->offset = ftell(f);
	}
	fclose(f);
}

int
main(void)
{
	static struct CMUnitTest cases[ARRAY_SIZE(tests)];

	find_traces();
	for (unsigned i = 0; i < nr_tests; i++)
		cases[i] = (struct CMUnitTest){
			.name = tests[i].name,
			.test_func = traces_as_the_kernel,
			.initial_state = &tests[i],
		};
	return _cmocka_run_group_tests("traces", cases, nr_tests, NULL, NULL);
}
