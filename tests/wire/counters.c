/* SPDX-License-Identifier: MIT */
/*
 * What real kernels counted (tests/data), told to a daemon by an NBD client:
 * each row is a device, and all its counters have to be the kernel's.
 *
 * A batch of a row, which was one io_submit(), is sent at once and comes in as
 * many pieces as it likes: within plug_nsec they gather in one plug.  That
 * takes plug_nsec a batch, so many rows are told side by side: a batch of each
 * is sent, then all are awaited.
 *
 * With plug_nsec every batch has a plug; a kernel opens none for one or two
 * I/Os.  So what is submitted in ones and twos is told to devices without it.
 */
#include "../lib/counted.h"
#include "../lib/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR(a)        (sizeof(a) / sizeof(*(a)))
#define MAX_ROWS     128u /* of a daemon */
#define MAX_BATCHES  64u  /* of a row, where each takes PLUG_MS */
#define MAX_IO       (2 * MiB)
#define MAX_STORED   (64 * MiB) /* of a row */
#define PLUG_MIN     3u         /* so many I/Os open a plug, in 6.1 and 6.12 */
#define ONE_READ     (16 * KiB) /* comes in one piece for sure */
#define PLUG_MS      50
#define PLUG_LONG_MS 500

/*
 * All rows that can be told are with NULLB_LONG=1; else those of workloads
 * that were recorded under many settings.
 */
static const char *const subset[] = { "revwrite-4k-b64", "write-split-b32",
	"revwrite-16k-b16", "pctrand30-rw-4k-b32", "randrw-4k-2m-b64",
	"randrw4-split-b64", "seqwrite-20k-b16", "seqwrite-128k-qd8-b8",
	"dsync-randrw-4k-b16", "seqwrite-4k-b33",
	/* in ones and twos */
	"seqwrite-4k-b1", "seqread-4k-b2", "revwrite-4k-b2", "psync-rw-split",
	"psync-fsync1-4k", "dsync-4k-b1", "trim-1m-b4", "randtrim-64k-b32" };

/* A row that is being told. */
struct told {
	const struct row *row;
	const struct workload *work;
	struct wire *wire;
	unsigned at; /* the first I/O of the batch */
	unsigned nr; /* I/Os of it */
	struct op *ops;
};

static uint8_t payload[MAX_IO], taken[MAX_IO];

/* ------------------------------------------------------ what can be told */

static unsigned
batch_size(const struct workload *w, unsigned first)
{
	unsigned i = first;

	while (!w->io[i].last)
		i++;
	return i + 1 - first;
}

/* No plug can matter to it: it neither merges nor is split. */
static bool
is_alone(const struct workload *w, unsigned first, unsigned nr)
{
	return nr == 1 && w->io[first].nr_sectors <= 8;
}

/* Are all batches such as a plug is opened for? */
static bool
gathers(const struct workload *w)
{
	unsigned nr, nr_batches = 0;

	for (unsigned i = 0; i < w->nr; i += nr) {
		nr = batch_size(w, i);
		nr_batches += w->io[i].op != 'F'; /* that one has no plug */
		if (nr < PLUG_MIN && !is_alone(w, i, nr))
			return false;
	}
	return nr_batches <= MAX_BATCHES;
}

/*
 * Is none?  Two that come in pieces would have one, while the rest of the
 * second is on its way.
 */
static bool
never_gathers(const struct workload *w)
{
	unsigned nr, bytes;

	for (unsigned i = 0; i < w->nr; i += nr) {
		nr = batch_size(w, i);
		bytes =
		    (w->io[i].nr_sectors + w->io[i + nr - 1].nr_sectors) * 512;
		if (nr >= PLUG_MIN || (nr == 2 && bytes > ONE_READ))
			return false;
	}
	return true;
}

/*
 * Where I/Os of one batch overlap, the later one waits for the earlier one's
 * data, and both plugs and counters differ from a kernel's, which does not
 * care.
 */
static bool
overlaps(const struct workload *w)
{
	unsigned first = 0;

	for (unsigned i = 0; i < w->nr; i++) {
		const struct io *a = &w->io[i];

		if (i > 0 && w->io[i - 1].last)
			first = i;
		for (unsigned k = first; k < i; k++) {
			const struct io *b = &w->io[k];

			if ((a->op != 'R' || b->op != 'R') &&
			    a->sector < b->sector + b->nr_sectors &&
			    b->sector < a->sector + a->nr_sectors)
				return true;
		}
	}
	return false;
}

static bool
is_small(const struct workload *w)
{
	uint64_t stored = 0;

	for (unsigned i = 0; i < w->nr; i++) {
		if (w->io[i].nr_sectors * 512ull > MAX_IO && w->io[i].op != 'D')
			return false;
		if (w->io[i].op != 'D')
			stored += w->io[i].nr_sectors * 512ull;
	}
	return stored <= MAX_STORED;
}

static bool
is_chosen(const char *workload)
{
	const char *all = getenv("NULLB_LONG");

	if (all && *all && strcmp(all, "0"))
		return true;
	for (size_t i = 0; i < NR(subset); i++)
		if (!strcmp(subset[i], workload))
			return true;
	return false;
}

static bool
can_be_told(const struct row *r, bool plugged)
{
	const struct workload *w;

	if (!strcmp(r->device, "cache")) /* of which we have none yet */
		return false;
	if (!is_chosen(r->workload))
		return false;
	w = workload_find(r->workload);
	return is_small(w) && !overlaps(w) &&
	       (plugged ? gathers(w) : never_gathers(w));
}

/* --------------------------------------------------------------- a daemon */

/* null_blk's defaults, and what the row says. */
static void
print_device(FILE *out, unsigned i, const struct row *r, int plug_ms)
{
	char scheduler[64], *tunable = scheduler;

	snprintf(scheduler, sizeof(scheduler), "%s", r->scheduler);
	fprintf(out, "[r%u]\nkernel = %s\nqueue/scheduler = %s\n", i, r->kernel,
	    strsep(&tunable, ","));
	if (tunable)
		fprintf(out, "queue/iosched/%s\n", tunable);
	fprintf(out, "queue/nomerges = %u\nplug_nsec = %dms\n", r->nomerges,
	    plug_ms);
	if (r->max_sectors != 255)
		fprintf(out, "queue/max_sectors_kb = %u\n", r->max_sectors / 2);
	if (!strcmp(r->device, "mem"))
		fprintf(out, "memory_backed = 1\ndiscard = 1\n");
}

static struct daemon *
start(const struct row *const *rows, unsigned nr, int plug_ms)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-U", d->sock, "--control", d->control,
		"--workers", "1", "-c", NULL, NULL };
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	for (unsigned i = 0; i < nr; i++)
		print_device(out, i, rows[i], plug_ms);
	fclose(out);
	args[NR(args) - 2] = daemon_config(d, text);
	free(text);
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	return d;
}

/* ------------------------------------------------------------------ a row */

static void
make_op(struct op *op, const struct io *io, bool fua)
{
	*op = (struct op){
		.offset = io->sector * 512,
		.length = io->nr_sectors * 512,
		.data = payload,
		.got = taken,
	};
	switch (io->op) {
	case 'R': op->type = CMD_READ; break;
	case 'W':
		op->type = CMD_WRITE;
		op->flags = fua ? CMD_FUA : 0;
		break;
	case 'D': op->type = CMD_TRIM; break;
	default: op->type = CMD_FLUSH; break;
	}
}

/* False: it has been told. */
static bool
send_batch(struct told *t)
{
	t->at += t->nr;
	t->nr = 0;
	if (t->at == t->work->nr)
		return false;
	t->nr = batch_size(t->work, t->at);
	t->ops = realloc(t->ops, t->nr * sizeof(*t->ops));
	for (unsigned i = 0; i < t->nr; i++)
		make_op(&t->ops[i], &t->work->io[t->at + i], t->work->fua);
	batch_send(t->wire, t->ops, t->nr);
	return true;
}

static void
tell(struct told *told, unsigned nr)
{
	bool more = true;

	while (more) {
		more = false;
		for (unsigned i = 0; i < nr; i++)
			more |= send_batch(&told[i]);
		for (unsigned i = 0; i < nr; i++) {
			if (told[i].nr == 0)
				continue;
			batch_collect(told[i].wire, told[i].ops, told[i].nr);
			batch_assert_ok(told[i].ops, told[i].nr);
		}
	}
}

static unsigned
nr_wrong(struct daemon *d, unsigned i, const struct row *row)
{
	static const unsigned first[] = { 0, 4, 11, 15 }; /* of a group */
	long long fields[STAT_FIELDS];
	uint64_t got[NR_COUNTERS];
	char name[16];

	snprintf(name, sizeof(name), "r%u", i);
	assert_int_equal(daemon_stats(d, name, fields), STAT_FIELDS);
	for (unsigned k = 0; k < NR_COUNTERS; k++)
		got[k] = (uint64_t)fields[first[k / 3] + k % 3];
	return counted_wrong(row, got);
}

/* Those that are wrong are moved to the front: how many there are. */
static unsigned
tell_rows(const struct row **rows, unsigned nr, int plug_ms)
{
	struct daemon *d = start(rows, nr, plug_ms);
	struct told told[MAX_ROWS] = { { 0 } };
	unsigned wrong = 0;
	char name[16];

	for (unsigned i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "r%u", i);
		told[i].row = rows[i];
		told[i].work = workload_find(rows[i]->workload);
		told[i].wire = wire_open(d, name, false);
	}
	tell(told, nr);
	for (unsigned i = 0; i < nr; i++) {
		wire_close(told[i].wire);
		free(told[i].ops);
		if (nr_wrong(d, i, rows[i]))
			rows[wrong++] = rows[i];
	}
	daemon_stop(d);
	return wrong;
}

/*
 * Where nothing runs for longer than a plug is open, a batch comes in two
 * plugs, and the counters differ for that alone: so those that do get a second
 * chance, with a plug that is open ten times as long.
 */
static unsigned
tell_rows_twice(const struct row **rows, unsigned nr, bool plugged)
{
	unsigned wrong = tell_rows(rows, nr, plugged ? PLUG_MS : 0);

	if (wrong == 0)
		return 0;
	print_message("%u rows once more, with more time\n", wrong);
	return tell_rows(rows, wrong, plugged ? PLUG_LONG_MS : 0);
}

/* ------------------------------------------------------------------ cases */

struct rows_of {
	const char *kernel, *scheduler;
	bool plugged;
};

static void
counts_as_the_kernel(void **state)
{
	const struct rows_of *of = *state;
	const struct row *chosen[MAX_ROWS], *rows;
	unsigned nr_rows, nr = 0, total = 0, wrong = 0;
	size_t len = strlen(of->scheduler);

	rows = counted_rows(&nr_rows);
	for (unsigned i = 0; i < nr_rows; i++) {
		if (strcmp(rows[i].kernel, of->kernel) ||
		    strncmp(rows[i].scheduler, of->scheduler, len) ||
		    !can_be_told(&rows[i], of->plugged))
			continue;
		chosen[nr++] = &rows[i];
		total++;
		if (nr < MAX_ROWS)
			continue;
		wrong += tell_rows_twice(chosen, nr, of->plugged);
		nr = 0;
	}
	if (nr > 0)
		wrong += tell_rows_twice(chosen, nr, of->plugged);
	print_message("%u rows\n", total);
	assert_int_not_equal(total, 0);
	assert_int_equal(wrong, 0);
}

#define ROWS(k, s, p, sentence)                                \
	{                                                      \
		.name = k ", " s ": " sentence,                \
		.test_func = counts_as_the_kernel,             \
		.teardown_func = wire_teardown,                \
		.initial_state = &(struct rows_of){ k, s, p }, \
	}
#define PLUGGED(k, s) ROWS(k, s, true, "batches that gather in a plug")
#define ALONE(k, s)   ROWS(k, s, false, "ones and twos, which do not")

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PLUGGED("6.1", "none"),
		PLUGGED("6.1", "mq-deadline"),
		PLUGGED("6.12", "none"),
		PLUGGED("6.12", "mq-deadline"),
		ALONE("6.1", "none"),
		ALONE("6.1", "mq-deadline"),
		ALONE("6.12", "none"),
		ALONE("6.12", "mq-deadline"),
	};

	return cmocka_run_group_tests_name("counters", tests, NULL, NULL);
}
