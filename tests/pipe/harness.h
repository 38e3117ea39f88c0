/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the block layer share: a host with one CPU, a queue, a
 * driver that writes down what it is given, and a clock that moves only when
 * a test says so.
 *
 *	h_open -> h_plug -> rw, h_submit ... -> h_finish -> expect_... ->
 *h_close
 *
 * The expected values come from the notes on the block layer (their sections
 * and examples are cited), never from what the code happens to do.
 */
#ifndef PIPE_HARNESS_H
#define PIPE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blk/internal.h"

#define MAX_SEEN      4096
#define MAX_HELD      64
#define MAX_TURNS     100000u /* of a wait that should end */
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* A request as the driver saw it. */
struct seen {
	const struct queue *queue;
	uint8_t op;
	uint8_t prio;
	uint16_t flags;
	sector_t sector;
	uint64_t nr_sectors;
	unsigned nr_segs;
	unsigned nr_sg;
	unsigned nr_bios;
};

struct harness {
	const struct profile *profile;
	struct machine *machine;
	struct cpu *cpu;
	struct queue *queue;
	struct plug plug;
	struct plug *open; /* &plug, or NULL: none is open */
	uint64_t now;
	uint64_t phys; /* where the next bio's pages are */
	bool hold;     /* the driver keeps what it gets, until h_drain() */
	struct request *held[MAX_HELD];
	unsigned nr_held;
	bool busy;        /* the driver has no room */
	unsigned nr_busy; /* how often it said so */

	struct seen seen[MAX_SEEN];
	unsigned nr_seen;
	unsigned burst[MAX_SEEN]; /* requests up to each commit */
	unsigned nr_bursts;
	unsigned in_burst; /* since the last commit */

	unsigned nr_submitted;
	unsigned nr_ended;
	int error; /* the last bio's that had one */
};

/* A bio with the largest table there is. */
struct test_bio {
	struct bio bio;
	struct harness *harness;
	struct bvec bv[BIO_MAX_VECS];
};

/*
 * The memory of every write: its contents are nobody's business here.  Data
 * that is contiguous for the device is so for us: a bvec has one base.
 */
static char h_memory[2 * BIO_MAX_VECS * PAGE_SIZE];

/* ------------------------------------------------------------ the driver */

static inline void
h_see(struct harness *h, const struct request *rq)
{
	struct seen *s = &h->seen[h->nr_seen];
	const struct bio *bio;
	uint64_t pos = rq->pos, bytes = 0;

	assert_in_range(h->nr_seen, 0, MAX_SEEN - 1);
	assert_int_equal(rq->pos % SECTOR_SIZE, 0);
	assert_int_equal(rq->bytes % SECTOR_SIZE, 0);
	*s = (struct seen){
		.queue = rq->hctx->queue,
		.op = rq->op,
		.prio = rq->prio,
		.flags = rq->flags,
		.sector = rq_sector(rq),
		.nr_sectors = rq->bytes / SECTOR_SIZE,
		.nr_segs = rq->nr_segs,
		.nr_sg = rq_sg_entries(rq),
	};
	STAILQ_FOREACH(bio, &rq->bios, link) {
		s->nr_bios++;
		if (rq->op != REQ_OP_DISCARD)
			assert_int_equal(bio->pos, pos);
		pos += bio->bytes;
		bytes += bio->bytes;
	}
	assert_int_equal(bytes, rq->bytes);
	h->nr_seen++;
	h->in_burst++;
}

static inline int
h_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct harness *h = rq->hctx->queue->driver;

	if (h->busy) {
		h->nr_busy++;
		return -EBUSY;
	}
	h_see(h, rq);
	rq_moved(rq, cpu);
	if (h->hold) {
		assert_in_range(h->nr_held, 0, MAX_HELD - 1);
		h->held[h->nr_held++] = rq;
		return 0;
	}
	rq_complete(rq, cpu, now);
	return 0;
}

static inline void
h_commit(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	struct harness *h = hctx->queue->driver;

	(void)cpu;
	(void)now;
	if (h->in_burst == 0)
		return;
	h->burst[h->nr_bursts++] = h->in_burst;
	h->in_burst = 0;
}

static const struct queue_ops h_ops = {
	.queue_rq = h_queue_rq,
	.commit = h_commit,
};

/* -------------------------------------------------------------- the host */

/* The defaults of the worked examples (section 9). */
static inline struct queue_conf
h_conf(const struct profile *profile)
{
	struct queue_conf conf = {
		.profile = profile,
		.nr_hw_queues = 1,
		.depth = 256,
		.multipage = profile->multipage,
		.iostats = true,
		.deadline = {
			.read_expire_ms = 500,
			.write_expire_ms = 5000,
			.prio_aging_expire_ms = 10000,
			.writes_starved = 2,
			.fifo_batch = 16,
			.front_merges = true,
		},
	};

	limits_init(&conf.limits);
	conf.limits.logical_block_size = 512;
	conf.limits.physical_block_size = 512;
	conf.limits.max_sectors = 2560;
	conf.limits.max_segments = 128;
	conf.limits.max_segment_size = 65536;
	conf.limits.seg_boundary_mask = 0xffffffff;
	conf.limits.virt_boundary_mask = 0;
	conf.limits.chunk_sectors = 0;
	return conf;
}

static inline void
h_open(struct harness *h, const struct queue_conf *conf)
{
	memset(h, 0, sizeof(*h));
	h->profile = conf->profile;
	h->now = 1000000000;
	h->phys = 1ull << 40;
	h->machine = machine_new(1, NULL, NULL);
	assert_non_null(h->machine);
	h->cpu = &h->machine->cpu[0];
	assert_int_equal(queue_new(&h->queue, h->machine, &h_ops, h, conf), 0);
	plug_init(&h->plug);
}

static inline void
h_plug(struct harness *h)
{
	h->open = &h->plug;
}

/* The driver has room again: all that waits comes to its end. */
static inline void
h_drain(struct harness *h)
{
	unsigned turn, i;

	h->busy = h->hold = false;
	for (i = 0; i < h->nr_held; i++)
		rq_complete(h->held[i], h->cpu, h->now);
	h->nr_held = 0;
	for (turn = 0; turn < MAX_TURNS; turn++) {
		cpu_run(h->cpu, h->now);
		if (h->nr_ended == h->nr_submitted)
			break;
		h->now += 1000;
		queue_run(h->queue, h->cpu, h->now);
	}
	assert_int_equal(h->nr_ended, h->nr_submitted);
	assert_int_equal(queue_tags_in_use(h->queue), 0);
}

/* Close the plug, if one is open. */
static inline void
h_flush(struct harness *h)
{
	if (h->open != NULL)
		plug_flush(h->open, h->cpu, h->now);
	h->open = NULL;
	assert_int_equal(h->plug.nr, 0);
	assert_true(TAILQ_EMPTY(&h->plug.list));
}

/* The task is done, and the device with it. */
static inline void
h_finish(struct harness *h)
{
	h_flush(h);
	h_drain(h);
}

static inline void
h_close(struct harness *h)
{
	h_finish(h);
	queue_free(h->queue);
	machine_free(h->machine);
}

/* The statistics; in_flight is 0, since all has ended. */
static inline struct queue_stat
h_stat(struct harness *h)
{
	struct queue_stat st;

	stat_read(h->queue, &st, h->now);
	assert_int_equal(st.in_flight, 0);
	return st;
}

/* --------------------------------------------------------------- the bios */

static inline void
h_end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct test_bio *tb = bio->priv;

	(void)now;
	tb->harness->nr_ended++;
	if (bio->error != 0)
		tb->harness->error = bio->error;
	bio_release(bio, cpu);
	free(tb);
}

static inline struct bio *
h_bio(struct harness *h, enum req_op op, sector_t sector)
{
	struct test_bio *tb = calloc(1, sizeof(*tb));

	assert_non_null(tb);
	bio_init(&tb->bio, op, sector * SECTOR_SIZE, tb->bv, BIO_MAX_VECS);
	tb->harness = h;
	tb->bio.end_io = h_end_io;
	tb->bio.priv = tb;
	return &tb->bio;
}

/* A read takes what the driver has; a write brings its memory. */
static inline void *
h_base(const struct bio *bio, uint64_t offset)
{
	return bio->op == REQ_OP_READ ? NULL : h_memory + offset;
}

/*
 * Add data whose first page is at `phys` and whose pages are `stride` bytes
 * apart: PAGE_SIZE makes them contiguous, more makes none adjacent.
 */
static inline void
add_pages(struct harness *h, struct bio *bio, uint64_t phys, uint64_t stride,
    uint64_t nr_sectors)
{
	uint64_t left = nr_sectors * SECTOR_SIZE, offset = 0;
	uint32_t len;

	for (; left > 0; left -= len, offset += stride) {
		len = left < PAGE_SIZE ? (uint32_t)left : PAGE_SIZE;
		assert_true(bio_add(bio, h->queue->conf.multipage,
		    phys + offset, h_base(bio, offset), len));
	}
}

/* A place that touches no other bio's memory. */
static inline uint64_t
h_new_phys(struct harness *h)
{
	h->phys += 1ull << 24;
	return h->phys;
}

static inline void
add_contig(struct harness *h, struct bio *bio, uint64_t nr_sectors)
{
	add_pages(h, bio, h_new_phys(h), PAGE_SIZE, nr_sectors);
}

static inline void
add_scat(struct harness *h, struct bio *bio, uint64_t nr_sectors)
{
	add_pages(h, bio, h_new_phys(h), 2 * PAGE_SIZE, nr_sectors);
}

static inline int
h_try_submit(struct harness *h, struct bio *bio)
{
	h->now += 1000;
	return queue_submit(h->queue, h->cpu, h->open, bio, h->now);
}

/* There are tags plenty. */
static inline void
h_submit(struct harness *h, struct bio *bio)
{
	h->nr_submitted++;
	assert_int_equal(h_try_submit(h, bio), 0);
}

/* Submit one I/O in contiguous pages. */
static inline void
rw(struct harness *h, enum req_op op, sector_t sector, uint64_t nr_sectors)
{
	struct bio *bio = h_bio(h, op, sector);

	add_contig(h, bio, nr_sectors);
	h_submit(h, bio);
}

/* The same in pages of which none are adjacent. */
static inline void
rw_scat(struct harness *h, enum req_op op, sector_t sector, uint64_t nr_sectors)
{
	struct bio *bio = h_bio(h, op, sector);

	add_scat(h, bio, nr_sectors);
	h_submit(h, bio);
}

/* Discard, write zeroes: a range without data. */
static inline void
range(struct harness *h, enum req_op op, sector_t sector, uint64_t nr_sectors)
{
	struct bio *bio = h_bio(h, op, sector);

	bio->bytes = nr_sectors * SECTOR_SIZE;
	h_submit(h, bio);
}

/* -------------------------------------------------- what is expected of it */

#define ANY (-1)

enum {
	MERGEABLE = 0,
	NM = 1
}; /* REQ_NOMERGE, the notes' NM */

struct want {
	sector_t sector;
	uint64_t nr_sectors;
	int nr_segs; /* or ANY */
	int nomerge; /* NM, MERGEABLE or ANY */
};

static inline int
by_sector(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	return x->sector < y->sector ? -1 : x->sector > y->sector;
}

static inline void
print_seen(const struct harness *h)
{
	const struct seen *s;
	unsigned i;

	for (i = 0; i < h->nr_seen; i++) {
		s = &h->seen[i];
		print_error("  the driver saw op %u [%llu,%llu) %u segs%s\n",
		    s->op, (unsigned long long)s->sector,
		    (unsigned long long)s->nr_sectors, s->nr_segs,
		    s->flags & REQ_NOMERGE ? " NM" : "");
	}
}

static inline bool
is_wanted(const struct seen *s, const struct want *w)
{
	if (s->sector != w->sector || s->nr_sectors != w->nr_sectors)
		return false;
	if (w->nr_segs != ANY && s->nr_segs != (unsigned)w->nr_segs)
		return false;
	if (w->nomerge == ANY)
		return true;
	return !!(s->flags & REQ_NOMERGE) == (w->nomerge == NM);
}

/* The driver saw these, in whatever order; `w` is in order of sector. */
static inline void
expect_requests(const struct harness *h, unsigned nr, const struct want *w)
{
	struct seen sorted[MAX_SEEN];
	unsigned i;

	if (h->nr_seen != nr) {
		print_seen(h);
		assert_int_equal(h->nr_seen, nr);
	}
	memcpy(sorted, h->seen, nr * sizeof(*sorted));
	qsort(sorted, nr, sizeof(*sorted), by_sector);
	for (i = 0; i < nr; i++) {
		assert_true(sorted[i].nr_sg <= sorted[i].nr_segs);
		if (is_wanted(&sorted[i], &w[i]))
			continue;
		print_seen(h);
		print_error("  expected [%llu,%llu) %d segs, nomerge %d\n",
		    (unsigned long long)w[i].sector,
		    (unsigned long long)w[i].nr_sectors, w[i].nr_segs,
		    w[i].nomerge);
		fail();
	}
}

#define EXPECT_REQUESTS(h, ...)                                           \
	expect_requests(h,                                                \
	    sizeof((struct want[]){ __VA_ARGS__ }) / sizeof(struct want), \
	    (struct want[]){ __VA_ARGS__ })

/* The driver saw the requests that start at these, in this order. */
static inline void
expect_order(const struct harness *h, unsigned nr, const sector_t *sector)
{
	unsigned i;

	assert_int_equal(h->nr_seen, nr);
	for (i = 0; i < nr; i++)
		assert_int_equal(h->seen[i].sector, sector[i]);
}

#define EXPECT_ORDER(h, ...)                                        \
	expect_order(h,                                             \
	    sizeof((sector_t[]){ __VA_ARGS__ }) / sizeof(sector_t), \
	    (sector_t[]){ __VA_ARGS__ })

/* The requests came in bursts of these sizes. */
static inline void
expect_bursts(const struct harness *h, unsigned nr, const unsigned *burst)
{
	unsigned i;

	assert_int_equal(h->in_burst, 0);
	if (h->nr_bursts != nr)
		for (i = 0; i < h->nr_bursts; i++)
			print_error("  burst of %u\n", h->burst[i]);
	assert_int_equal(h->nr_bursts, nr);
	for (i = 0; i < nr; i++)
		assert_int_equal(h->burst[i], burst[i]);
}

#define EXPECT_BURSTS(h, ...)                                       \
	expect_bursts(h,                                            \
	    sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned), \
	    (unsigned[]){ __VA_ARGS__ })

static inline void
expect_counts(
    struct harness *h, enum stat_group group, uint64_t ios, uint64_t merges)
{
	struct queue_stat st = h_stat(h);

	assert_int_equal(st.ios[group], ios);
	assert_int_equal(st.merges[group], merges);
}

static inline void
expect_splits(struct harness *h, uint64_t size, uint64_t segments, uint64_t gap)
{
	struct queue_stat st = h_stat(h);

	assert_int_equal(st.splits[SPLIT_SIZE], size);
	assert_int_equal(st.splits[SPLIT_SEGMENTS], segments);
	assert_int_equal(st.splits[SPLIT_GAP], gap);
}

static inline void
expect_chunk_splits(struct harness *h, uint64_t nr)
{
	struct queue_stat st = h_stat(h);

	assert_int_equal(st.splits[SPLIT_CHUNK], nr);
}

/* So many refusals for this cause, and none for another. */
static inline void
expect_refused(struct harness *h, enum refusal cause, uint64_t nr)
{
	struct queue_stat st = h_stat(h);
	unsigned i;

	for (i = 0; i < REFUSED_NR; i++)
		assert_int_equal(st.refused[i], i == cause ? nr : 0);
}

/* ---------------------------------------------------------------- chance */

struct chance {
	uint64_t state;
};

/* splitmix64 */
static inline uint64_t
chance_next(struct chance *c)
{
	uint64_t z = c->state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* 0 to n - 1 */
static inline uint64_t
chance_below(struct chance *c, uint64_t n)
{
	return (uint64_t)((unsigned __int128)chance_next(c) * n >> 64);
}

static inline uint64_t
chance_between(struct chance *c, uint64_t lo, uint64_t hi)
{
	return lo + chance_below(c, hi - lo + 1);
}

/* True `percent` times in a hundred. */
static inline bool
chance_of(struct chance *c, unsigned percent)
{
	return chance_below(c, 100) < percent;
}

static inline uint64_t
env_number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s != NULL && *s != '\0' ? strtoull(s, NULL, 0) : otherwise;
}

/* ------------------------------------------------ one test, each profile */

struct example {
	const char *name;          /* "T5 a 1 MiB read ..." */
	void (*run)(void **state); /* *state is the profile */
};

/* Run each example under each profile; the number of those that failed. */
static inline int
run_examples(const char *group, const struct example *examples)
{
	const struct profile *p;
	const struct example *e;
	struct CMUnitTest *tests;
	size_t nr = 0, i = 0;
	char *name;
	int failed;

	for (p = profiles; p->name != NULL; p++)
		for (e = examples; e->name != NULL; e++)
			nr++;
	tests = calloc(nr, sizeof(*tests));
	if (tests == NULL)
		return 1;
	for (e = examples; e->name != NULL; e++)
		for (p = profiles; p->name != NULL; p++, i++) {
			if (asprintf(&name, "%s (%s)", e->name, p->name) < 0)
				return 1;
			tests[i].name = name;
			tests[i].test_func = e->run;
			tests[i].initial_state = (void *)(uintptr_t)p;
		}
	failed = _cmocka_run_group_tests(group, tests, nr, NULL, NULL);
	for (i = 0; i < nr; i++)
		free((char *)(uintptr_t)tests[i].name);
	free(tests);
	return failed;
}

#endif
