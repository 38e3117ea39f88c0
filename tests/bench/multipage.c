/* SPDX-License-Identifier: MIT */
/*
 * What multipage bvecs change, in numbers: the same I/O with single-page and
 * with multipage bvecs, on a memory-backed disk, in this process: no socket,
 * no loop.  Bios are made and cut as the daemon does (daemon/nbd/command.c),
 * each I/O under a plug of its own, at random places, so that no two I/Os
 * merge.
 *
 *	for each set of limits, page_order and size of an I/O:
 *		rounds of:  single-page write, read; multipage write, read
 *
 * Counts are exact, and scaled to a GiB.  CPU time is the median of the
 * rounds; a ratio is the median of the ratios of each round, so that what
 * slows the machine for a while slows both sides of it.
 *
 *	multipage [ROUNDS]
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dev/dev.h"
#include "nbd/session.h"

#define MIB        (1u << 20)
#define AREA       (64u * MIB) /* written and read once a round */
#define TO_GIB     ((1024u * MIB) / AREA)
#define MAX_IO     (16u * MIB)
#define ROUNDS     15u
#define MAX_ROUNDS 101u

enum mode {
	SINGLE,
	MULTI,
	MODE_NR
};

/* Limits that real drivers have. */
static const struct limit_set {
	const char *title;
	const char *max_sectors; /* null_blk's attribute */
} limit_sets[] = {
	{ "null_blk's limits: 255 sectors, 128 segments of 64 KiB", "0" },
	{ "limits of a larger device: 2560 sectors, 128 segments of 64 KiB",
	    "2560" },
	{},
};

static const unsigned orders[] = { 0, 2, 4, 9 };
static const uint32_t sizes[] = { 4096, 4 * 4096, 16 * 4096, 64 * 4096, MIB,
	4 * MIB, 16 * MIB };

/* Its bios, as many as the smallest table makes of the largest I/O. */
struct part_bio {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
};

static struct host {
	struct machine *machine;
	struct cpu *cpu;
	struct page_pool *pool;
	struct plug plug;
	char *payload;
	struct part_bio part[MAX_IO / PAGE_SIZE / BIO_MAX_VECS];
	unsigned nr_ended;
	uint64_t phys;
	uint64_t now;
} host;

/* One side of a comparison. */
struct side {
	struct queue_stat before, after; /* the first round of writes */
	double cpu_ms[2][MAX_ROUNDS];    /* written, read; a GiB */
};

static void
die(const char *what)
{
	fprintf(stderr, "multipage: %s\n", what);
	exit(1);
}

/* ---------------------------------------------------------------- an I/O */

static void
end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	assert(bio->error == 0);
	bio_release(bio, cpu);
	host.nr_ended++;
}

/*
 * As start_read() and start_write() do: a short read has memory, a long one
 * takes what the driver has; a bio whose table is full is followed by another.
 */
static void
do_io(
    struct disk *d, enum req_op op, uint64_t pos, uint32_t len, unsigned order)
{
	bool multipage = d->queue->conf.multipage;
	bool has_base = op == REQ_OP_WRITE || len < NBD_READ_COPY;
	uint64_t done = 0;
	unsigned nr = 0;

	host.nr_ended = 0;
	while (done < len) {
		struct part_bio *p = &host.part[nr++];

		bio_init(&p->bio, op, pos + done, p->bv, BIO_MAX_VECS);
		p->bio.end_io = end_io;
		done += bio_add_payload(&p->bio, multipage, host.phys, order,
		    done >> PAGE_SHIFT, has_base ? host.payload + done : NULL,
		    len - done);
		if (queue_submit(
			d->queue, host.cpu, &host.plug, &p->bio, host.now) != 0)
			die("no tag is free");
	}
	plug_flush(&host.plug, host.cpu, host.now);
	cpu_run(host.cpu, host.now);
	assert(host.nr_ended == nr);
	host.phys += pages_span(order, len >> PAGE_SHIFT);
	host.now += 1000;
}

/* The area once, in an order that is mixed but the same for both sides. */
static void
pass(struct disk *d, enum req_op op, uint32_t len, unsigned order)
{
	uint32_t nr = AREA / len, i;

	/* an odd step reaches every place of a power of two */
	for (i = 0; i < nr; i++)
		do_io(d, op, (uint64_t)(i * 40503u % nr) * len, len, order);
}

/* What a loop does between its turns, and is not part of an I/O. */
static void
rest(void)
{
	epoch_leave(&host.machine->epoch, host.cpu->id);
	while (page_pool_idle(host.pool, host.cpu))
		;
	epoch_enter(&host.machine->epoch, host.cpu->id);
}

static double
cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static double
timed_pass(struct disk *d, enum req_op op, uint32_t len, unsigned order)
{
	double start = cpu_ms();

	pass(d, op, len, order);
	start = cpu_ms() - start;
	rest();
	return start * TO_GIB;
}

/* -------------------------------------------------------------- a figure */

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double
median(const double *value, unsigned nr)
{
	double sorted[MAX_ROUNDS];

	memcpy(sorted, value, nr * sizeof(*value));
	qsort(sorted, nr, sizeof(*sorted), by_value);
	return sorted[nr / 2];
}

static void
print_times(const struct side side[MODE_NR], unsigned rw, unsigned rounds)
{
	double ratio[MAX_ROUNDS];

	for (unsigned i = 0; i < rounds; i++)
		ratio[i] =
		    side[SINGLE].cpu_ms[rw][i] / side[MULTI].cpu_ms[rw][i];
	printf(" %.0f : %.0f, %.2f |", median(side[SINGLE].cpu_ms[rw], rounds),
	    median(side[MULTI].cpu_ms[rw], rounds), median(ratio, rounds));
}

/* single : multi of a GiB, or one number where they are equal */
static void
print_counts(uint64_t single, uint64_t multi)
{
	single *= TO_GIB;
	multi *= TO_GIB;
	if (single == multi)
		printf(" %llu |", (unsigned long long)single);
	else
		printf(" %llu : %llu |", (unsigned long long)single,
		    (unsigned long long)multi);
}

enum figure {
	BIOS,
	BVECS,
	SEGMENTS,
	SPLITS,
	REQUESTS,
	FIGURE_NR
};

static uint64_t
figure_of(const struct queue_stat *st, enum figure f)
{
	uint64_t splits = 0;

	switch (f) {
	case BIOS: return hist_count(&st->bvecs);
	case BVECS: return hist_sum(&st->bvecs);
	case SEGMENTS: return hist_sum(&st->segments);
	case SPLITS:
		for (unsigned i = 0; i < SPLIT_NR; i++)
			splits += st->splits[i];
		return splits;
	case REQUESTS: return hist_count(&st->segments);
	case FIGURE_NR: break;
	}
	return 0;
}

static void
print_row(const struct side side[MODE_NR], unsigned order, uint32_t len,
    unsigned rounds)
{
	uint64_t n[MODE_NR];

	if (len < MIB)
		printf("| %u | %u KiB |", order, len >> 10);
	else
		printf("| %u | %u MiB |", order, len >> 20);
	for (enum figure f = BIOS; f < FIGURE_NR; f++) {
		for (unsigned m = SINGLE; m < MODE_NR; m++)
			n[m] = figure_of(&side[m].after, f) -
			       figure_of(&side[m].before, f);
		print_counts(n[SINGLE], n[MULTI]);
	}
	print_times(side, 0, rounds);
	print_times(side, 1, rounds);
	putchar('\n');
}

/*
 * One disk plays both sides: of two disks the one whose pages lay better was
 * 3% ahead where both did the same.
 */
static void
compare(struct disk *d, unsigned order, uint32_t len, unsigned rounds)
{
	static struct side side[MODE_NR];

	for (unsigned r = 0; r < rounds; r++)
		for (unsigned i = 0; i < MODE_NR; i++) {
			/* who goes first takes turns */
			unsigned mode = (i + r) % MODE_NR;
			struct side *s = &side[mode];

			d->queue->conf.multipage = mode == MULTI;
			stat_read(d->queue, &s->before, host.now);
			s->cpu_ms[0][r] =
			    timed_pass(d, REQ_OP_WRITE, len, order);
			stat_read(d->queue, &s->after, host.now);
			s->cpu_ms[1][r] =
			    timed_pass(d, REQ_OP_READ, len, order);
		}
	print_row(side, order, len, rounds);
	fflush(stdout);
}

/* ------------------------------------------------------------- the whole */

static struct disk *
disk_open(const struct limit_set *limits)
{
	const char *settings[][2] = {
		{ "size", "64" }, /* MiB: the area */
		{ "memory_backed", "1" },
		{ "irqmode", "0" },
		{ "kernel", "4.14" }, /* report A's, before and after */
		{ "max_sectors", limits->max_sectors },
	};
	struct disk *d = disk_new("nullb0", host.machine, host.pool);
	char err[256] = "out of memory";

	if (d == NULL)
		die(err);
	for (unsigned i = 0; i < sizeof(settings) / sizeof(*settings); i++)
		if (attr_set(disk_attrs, &d->set, settings[i][0],
			settings[i][1], false, err, sizeof(err)) != 0)
			die(err);
	if (disk_power_on(d, host.now, err, sizeof(err)) != 0)
		die(err);
	assert(disk_size(d) == AREA);
	return d;
}

static void
run(const struct limit_set *limits, unsigned rounds)
{
	struct disk *d = disk_open(limits);

	printf("**%s**\n\n", limits->title);
	printf("| page_order | I/O | bios | bvecs | segments | splits "
	       "| requests | CPU ms, written | CPU ms, read |\n");
	printf("|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
	pass(d, REQ_OP_WRITE, MIB, 0); /* its memory */
	for (unsigned o = 0; o < sizeof(orders) / sizeof(*orders); o++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			compare(d, orders[o], sizes[i], rounds);
	putchar('\n');
	rest();
	disk_free(d);
}

int
main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : ROUNDS;

	if (rounds == 0 || rounds > MAX_ROUNDS)
		die("ROUNDS is 1 to 101");
	host.machine = machine_new(1, NULL, NULL);
	host.payload = aligned_alloc(PAGE_SIZE, MAX_IO);
	if (host.machine == NULL || host.payload == NULL)
		die("out of memory");
	memset(host.payload, 0x5a, MAX_IO);
	host.cpu = &host.machine->cpu[0];
	host.pool = page_pool_new(host.machine, 0);
	host.phys = UINT64_C(1) << 40;
	host.now = 1000000;
	plug_init(&host.plug);
	epoch_enter(&host.machine->epoch, 0);
	printf("A GiB, single-page : multipage (one number where both are the "
	       "same); CPU time\nis the median of %u rounds, with the median "
	       "ratio of the two.\n\n",
	    rounds);
	for (const struct limit_set *l = limit_sets; l->title != NULL; l++)
		run(l, rounds);
	epoch_leave(&host.machine->epoch, 0);
	page_pool_free(host.pool);
	machine_free(host.machine);
	free(host.payload);
	return 0;
}
