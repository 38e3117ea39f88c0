/* SPDX-License-Identifier: MIT */
/*
 * What holds for every sequence of I/Os (section 9 of the notes, properties a
 * to f), tried on random ones: limits, page layouts, operations, priorities,
 * nomerges, depths, one disk or two under one plug, a driver that is busy now
 * and then, that completes at once, later or in another order, and that fails
 * some requests.
 *
 * A sequence is made from the seed and its number alone:
 *
 *	NULLB_SEED=n	another seed (it is printed)
 *	NULLB_ONLY=n	only sequence n
 *	NULLB_LONG=1	a million sequences a profile
 */
#include "harness.h"

#define SEED         20251u
#define NR_SEQUENCES 20000u
#define NR_LONG      1000000u

#define MAX_QUEUES     2
#define MAX_ROUND      24 /* bios in flight */
#define MAX_IN_DRIVER  512
#define DISK_BYTES     (4u << 20)
#define ARENA_BYTES    (8u << 20) /* the payloads of a round */
#define MAX_IO_SECTORS 600u
#define MAX_FRAGMENTS  BIO_MAX_VECS

/* ------------------------------------------------------------ the failure */

/* Which sequence this is, for the one who wants to see it again. */
static struct {
	uint64_t seed;
	uint64_t number;
	const char *profile;
} where;

static void
complain(const char *what, const char *file, int line)
{
	print_error("NULLB_SEED=%llu NULLB_ONLY=%llu, profile %s: %s\n",
	    (unsigned long long)where.seed, (unsigned long long)where.number,
	    where.profile, what);
	_fail(file, line);
}

static inline void
hold(bool ok, const char *what, const char *file, int line)
{
	if (!ok)
		complain(what, file, line);
}

/* Cheaper than assert_true(), and it names the sequence. */
#define HOLDS(ok) hold((ok), #ok, __FILE__, __LINE__)

static struct chance
chance_of_sequence(uint64_t number, uint64_t what)
{
	struct chance c = { where.seed ^ what << 56 };

	c.state = chance_next(&c) + number;
	c.state = chance_next(&c);
	return c;
}

/* -------------------------------------------------------------- the world */

enum completion {
	AT_ONCE,
	SOFTIRQ,
	AFTER,
	HELD,
	ANY_WAY
};

struct disk {
	struct queue *queue;
	char *data;
	/* what the driver saw */
	uint64_t nr_requests;
	uint64_t nr_bios;    /* in them */
	uint64_t nr_segs;    /* in them */
	uint64_t nr_flushes; /* begun */
	uint64_t nr_flushed; /* done */
	bool preflush_data;  /* some bio had both */
	uint64_t nr_empty;   /* flushes that were submitted */
	uint64_t sectors[STAT_NR];
	/* what was submitted */
	uint64_t submitted;
	uint64_t submitted_bvecs;
	uint64_t submitted_bytes[STAT_NR];
	uint8_t *tag_used; /* by hctx * depth + tag */
};

struct world;

/* A bio, and what it should do. */
struct io {
	struct bio bio;
	struct world *world;
	struct disk *disk;
	unsigned number; /* in its round */
	enum req_op op;
	uint16_t flags;
	uint8_t prio;
	uint64_t pos;
	uint64_t bytes;
	char *memory;          /* NULL: none, or a read that has none */
	uint64_t flushes;      /* begun when it was submitted */
	uint64_t flushes_then; /* begun when its data was done */
	bool ended;
	bool failed; /* a request that had part of it did */
	int error;
	struct bvec bv[BIO_MAX_VECS];
};

struct world {
	struct chance chance;
	const struct profile *profile;
	struct machine *machine;
	struct cpu *cpu;
	struct disk disk[MAX_QUEUES];
	unsigned nr_disks;
	struct plug plug;
	uint64_t now;

	bool in_bytes; /* positions are no multiples of 512 */
	bool caches;   /* flush and FUA mean something */
	enum completion completion;
	unsigned busy_percent;
	unsigned error_percent;
	struct request *held[MAX_IN_DRIVER];
	unsigned nr_held;

	struct io io[MAX_ROUND];
	unsigned nr_io;
	unsigned nr_ended;
	char *arena;
	size_t arena_used;

	/* what happened at all: a test of nothing proves nothing */
	uint64_t nr_again;
	uint64_t nr_busy;
	uint64_t nr_failed;
	uint64_t nr_merges;
	uint64_t nr_front; /* bios that came before the first of a request */
	uint64_t nr_splits[SPLIT_NR];
	uint64_t nr_refused[REFUSED_NR];
	uint64_t nr_ops[REQ_OP_NR];
};

static bool
has_data(enum req_op op)
{
	return op == REQ_OP_READ || op == REQ_OP_WRITE;
}

/* 6.1 */
static enum stat_group
group_of(const struct world *w, enum req_op op)
{
	switch (op) {
	case REQ_OP_READ: return STAT_READ;
	case REQ_OP_DISCARD:
		return strcmp(w->profile->name, "4.14") == 0 ? STAT_WRITE
							     : STAT_DISCARD;
	default: return STAT_WRITE;
	}
}

static struct io *
owner(const struct bio *bio)
{
	while (bio->parent != NULL)
		bio = bio->parent;
	return bio->priv;
}

/* ---------------------------------------------- what holds for a request */

static uint64_t
min_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Do two pieces of memory touch where the hardware may join them (2.7)? */
static bool
joins(const struct limits *lim, const struct bvec *a, const struct bvec *b)
{
	uint64_t mask = lim->seg_boundary_mask;

	return a->phys + a->len == b->phys &&
	       (a->phys | mask) == ((b->phys + b->len - 1) | mask);
}

/* The fewest segments in which a run of memory can go. */
static uint64_t
min_segments(const struct limits *lim, uint64_t phys, uint64_t len)
{
	uint64_t n = 0, s;

	while (len > 0) {
		s = lim->seg_boundary_mask - (phys & lim->seg_boundary_mask);
		s = min_of(min_of(s, len - 1) + 1, lim->max_segment_size);
		phys += s;
		len -= s;
		n++;
	}
	return n;
}

/* Of a request's data: its runs of memory, and no gap between them (c). */
static uint64_t
walk_memory(const struct request *rq, const struct limits *lim)
{
	uint64_t mask = lim->virt_boundary_mask;
	uint64_t start = 0, len = 0, nr = 0, bytes = 0;
	struct bvec bv, prev = {};
	struct bvec_iter it;
	const struct bio *bio;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		it = (struct bvec_iter){};
		while (bio_next_bvec(bio, &it, &bv)) {
			HOLDS(bv.len > 0);
			if (bytes > 0 && !joins(lim, &prev, &bv)) {
				HOLDS(((prev.phys + prev.len) & mask) == 0);
				HOLDS((bv.phys & mask) == 0);
			}
			if (len > 0 && start + len != bv.phys) {
				nr += min_segments(lim, start, len);
				len = 0;
			}
			if (len == 0)
				start = bv.phys;
			len += bv.len;
			bytes += bv.len;
			prev = bv;
		}
	}
	HOLDS(bytes == rq->bytes);
	return nr + min_segments(lim, start, len);
}

/* Property (c) and (f): the limits of reads and writes. */
static void
check_data_limits(const struct world *w, const struct request *rq)
{
	const struct limits *lim = &rq->hctx->queue->conf.limits;
	uint64_t chunk = (uint64_t)lim->chunk_sectors * SECTOR_SIZE;
	uint64_t fewest = walk_memory(rq, lim);

	HOLDS(rq->bytes <= (uint64_t)lim->max_sectors * SECTOR_SIZE);
	HOLDS(rq->nr_segs <= lim->max_segments);
	HOLDS(rq_sg_entries(rq) <= rq->nr_segs);
	HOLDS(rq_sg_entries(rq) >= fewest);
	if (chunk > 0)
		HOLDS(rq->pos / chunk == (rq->pos + rq->bytes - 1) / chunk);
	if (!w->in_bytes) {
		HOLDS(rq->pos % lim->logical_block_size == 0);
		HOLDS(rq->bytes % lim->logical_block_size == 0);
	}
}

static void
check_limits(const struct world *w, const struct request *rq, unsigned nr_bios)
{
	const struct limits *lim = &rq->hctx->queue->conf.limits;

	switch (rq->op) {
	case REQ_OP_READ:
	case REQ_OP_WRITE: check_data_limits(w, rq); break;
	case REQ_OP_DISCARD:
		HOLDS(rq->bytes >> SECTOR_SHIFT <= lim->max_discard_sectors);
		if (lim->max_discard_segments > 1)
			HOLDS(nr_bios <= lim->max_discard_segments);
		break;
	case REQ_OP_WRITE_ZEROES:
		HOLDS(
		    rq->bytes >> SECTOR_SHIFT <= lim->max_write_zeroes_sectors);
		break;
	default: break;
	}
}

/* Which bios may share a request (3.2, 3.7). */
static unsigned
check_bios(struct world *w, const struct request *rq)
{
	const struct queue_conf *conf = &rq->hctx->queue->conf;
	bool anywhere =
	    rq->op == REQ_OP_DISCARD && conf->limits.max_discard_segments > 1;
	const struct bio *bio, *first = STAILQ_FIRST(&rq->bios);
	uint64_t pos = rq->pos, bytes = 0;
	unsigned nr = 0, number = 0;
	bool alone = rq->op == REQ_OP_WRITE_ZEROES || conf->nomerges == 2;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		HOLDS(bio->op == rq->op);
		HOLDS(anywhere || bio->pos == pos);
		if (strcmp(w->profile->name, "4.14") != 0)
			HOLDS(bio->prio == first->prio);
		if (bio->parent != NULL) /* the head of a split (2.5) */
			alone = true;
		if (w->caches && owner(bio)->flags & (REQ_FUA | REQ_PREFLUSH))
			alone = true;
		if (nr > 0 && owner(bio)->number < number)
			w->nr_front++;
		number = owner(bio)->number;
		pos += bio->bytes;
		bytes += bio->bytes;
		nr++;
	}
	HOLDS(bytes == rq->bytes);
	HOLDS(nr > 0);
	HOLDS(!alone || nr == 1);
	return nr;
}

/* ------------------------------------------------------------ the driver */

static void
move_data(struct disk *d, const struct request *rq)
{
	const struct bio *bio;
	struct bvec_iter it;
	struct bvec bv;
	char *at;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		HOLDS(bio->pos + bio->bytes <= DISK_BYTES);
		at = d->data + bio->pos;
		if (!has_data(rq->op)) {
			memset(at, 0, bio->bytes);
			continue;
		}
		it = (struct bvec_iter){};
		for (; bio_next_bvec(bio, &it, &bv); at += bv.len) {
			if (bv.base == NULL)
				continue;
			if (rq->op == REQ_OP_READ)
				memcpy(bv.base, at, bv.len);
			else
				memcpy(at, bv.base, bv.len);
		}
	}
}

/* An error for some, data for the others. */
static void
serve(struct world *w, struct disk *d, struct request *rq)
{
	struct bio *bio;

	rq->error = 0;
	if (chance_of(&w->chance, w->error_percent)) {
		rq->error = -EIO;
		w->nr_failed++;
		STAILQ_FOREACH(bio, &rq->bios, link) {
			owner(bio)->failed = true;
		}
		return;
	}
	move_data(d, rq);
	rq_moved(rq, w->cpu);
}

static uint8_t *
tag_of(struct disk *d, const struct request *rq)
{
	HOLDS(rq->tag >= 0);
	HOLDS((unsigned)rq->tag < d->queue->conf.depth);
	if (d->queue->conf.nr_requests > 0)
		HOLDS((unsigned)rq->tag < d->queue->conf.nr_requests);
	return &d->tag_used[rq->hctx->index * d->queue->conf.depth +
			    (unsigned)rq->tag];
}

static void
complete(struct world *w, struct request *rq, enum completion how)
{
	struct disk *d = rq->hctx->queue->driver;
	const struct bio *bio;

	*tag_of(d, rq) = 0;
	if (rq->op == REQ_OP_FLUSH)
		d->nr_flushed++;
	else
		STAILQ_FOREACH(bio, &rq->bios, link) {
			owner(bio)->flushes_then = d->nr_flushes;
		}
	switch (how) {
	case SOFTIRQ: rq_complete_softirq(rq, w->cpu); break;
	case AFTER:
		rq_complete_after(rq, w->cpu, chance_below(&w->chance, 20000));
		break;
	default: rq_complete(rq, w->cpu, w->now); break;
	}
}

/*
 * Where a cache is: a flush has been done before the data of a PREFLUSH, and
 * FUA is the device's if it can.
 */
static void
check_flags(
    const struct world *w, const struct disk *d, const struct request *rq)
{
	const struct io *io = owner(STAILQ_FIRST(&rq->bios));
	bool fua = w->caches && io->flags & REQ_FUA;

	HOLDS(!(rq->flags & REQ_PREFLUSH));
	HOLDS(!!(rq->flags & REQ_FUA) == (fua && d->queue->conf.limits.fua));
	if (w->caches && io->flags & REQ_PREFLUSH)
		HOLDS(d->nr_flushed > io->flushes);
}

/* After it a flush has been sent that began late enough. */
static void
check_flushed(const struct io *io)
{
	const struct disk *d = io->disk;

	if (io->failed || !io->world->caches)
		return;
	if (io->op == REQ_OP_FLUSH || io->flags & REQ_PREFLUSH)
		HOLDS(d->nr_flushed > io->flushes);
	if (io->flags & REQ_FUA && !d->queue->conf.limits.fua)
		HOLDS(d->nr_flushed > io->flushes_then);
}

static struct world *world; /* the driver's */

static int
driver_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct disk *d = rq->hctx->queue->driver;
	struct world *w = world;
	enum completion how = w->completion;
	unsigned nr;

	(void)now;
	HOLDS(cpu == w->cpu);
	if (chance_of(&w->chance, w->busy_percent)) {
		w->nr_busy++;
		return -EBUSY;
	}
	HOLDS(*tag_of(d, rq) == 0);
	*tag_of(d, rq) = 1;
	if (rq->op == REQ_OP_FLUSH) {
		d->nr_flushes++;
	} else {
		nr = check_bios(w, rq);
		check_limits(w, rq, nr);
		d->nr_requests++;
		d->nr_bios += nr;
		d->nr_segs += rq->nr_segs;
		d->sectors[group_of(w, rq->op)] += rq->bytes >> SECTOR_SHIFT;
		check_flags(w, d, rq);
		serve(w, d, rq);
	}
	if (how == ANY_WAY)
		how = (enum completion)chance_below(&w->chance, ANY_WAY);
	if (how == HELD && w->nr_held < MAX_IN_DRIVER)
		w->held[w->nr_held++] = rq;
	else
		complete(w, rq, how);
	return 0;
}

static const struct queue_ops driver_ops = { .queue_rq = driver_queue_rq };

/* --------------------------------------------------------------- the task */

/* Time passes, some of what is held completes, in whatever order. */
static void
turn(struct world *w, bool all)
{
	struct request *rq;
	uint64_t deadline;
	unsigned i;

	while (w->nr_held > 0 && (all || chance_of(&w->chance, 70))) {
		i = (unsigned)chance_below(&w->chance, w->nr_held);
		rq = w->held[i];
		w->held[i] = w->held[--w->nr_held];
		complete(w, rq, AT_ONCE);
	}
	w->now += 1 + chance_below(&w->chance, 5000);
	deadline = cpu_run(w->cpu, w->now);
	if (deadline != CPU_NO_DEADLINE) {
		HOLDS(deadline > w->now);
		w->now = deadline;
		cpu_run(w->cpu, w->now);
	}
	for (i = 0; i < w->nr_disks; i++)
		queue_run(w->disk[i].queue, w->cpu, w->now);
}

static void
io_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct io *io = bio->priv;

	HOLDS(now <= io->world->now);
	check_flushed(io);
	HOLDS(!io->ended);
	io->ended = true;
	io->error = bio->error;
	io->world->nr_ended++;
	if (io->op != REQ_OP_FLUSH && !io->failed)
		HOLDS(bio_moved(bio));
	bio_release(bio, cpu);
	/* it is the submitter's again, who may forget it */
	memset(bio, 0x5a, sizeof(*bio));
}

static void
submit(struct world *w, struct plug *plug, struct io *io)
{
	unsigned tries;
	int res;

	io->disk->submitted++;
	io->disk->submitted_bvecs += io->bio.nr_bv;
	io->flushes = io->disk->nr_flushes;
	for (tries = 0; tries < MAX_TURNS; tries++) {
		w->now += 1 + chance_below(&w->chance, 300);
		res = queue_submit(
		    io->disk->queue, w->cpu, plug, &io->bio, w->now);
		if (res == 0)
			return;
		HOLDS(res == -EAGAIN);
		w->nr_again++;
		HOLDS(plug == NULL || plug->nr == 0);
		turn(w, false);
	}
	complain("no tag became free", __FILE__, __LINE__);
}

/* All ends; the driver is never busy any more. */
static void
drain(struct world *w)
{
	unsigned turns;

	w->busy_percent = 0;
	for (turns = 0; turns < MAX_TURNS; turns++) {
		if (w->nr_ended == w->nr_io)
			break;
		turn(w, true);
	}
	HOLDS(w->nr_ended == w->nr_io);
}

/* ---------------------------------------------------------------- its I/O */

/* Mark each sector, so that it can be told from all others. */
static void
stamp(struct world *w, char *p, uint64_t bytes)
{
	uint64_t i, v;

	for (i = 0; i + sizeof(v) <= bytes; i += SECTOR_SIZE) {
		v = chance_next(&w->chance) | 1;
		memcpy(p + i, &v, sizeof(v));
	}
}

/* Where the next page of memory is. */
static uint64_t next_phys = 1ull << 32;

/*
 * Pages in runs of random length; with `small` some that are only partly
 * used.  Returns the bytes that found a place in the table.
 */
static uint64_t
add_memory(struct chance *c, struct bio *bio, bool multipage, char *memory,
    uint64_t bytes, bool small)
{
	unsigned order = (unsigned)chance_below(c, 7);
	uint64_t phys = 0, done = 0, offset, run = 0;
	uint32_t len;

	for (; done < bytes; done += len) {
		if (run == 0) {
			next_phys += (2 + chance_below(c, 8)) * PAGE_SIZE;
			phys = next_phys;
			run = chance_between(c, 1, 1ull << order);
			next_phys += run * PAGE_SIZE;
		}
		run--;
		offset = 0;
		len = PAGE_SIZE;
		if (small && chance_of(c, 40)) {
			offset = chance_below(c, 8) * SECTOR_SIZE;
			len = (uint32_t)(chance_between(
					     c, 1, 8 - offset / SECTOR_SIZE) *
					 SECTOR_SIZE);
		}
		len = (uint32_t)min_of(len, bytes - done);
		if (!bio_add(bio, multipage, phys + offset,
			memory != NULL ? memory + done : NULL, len))
			break;
		phys += PAGE_SIZE;
	}
	return done;
}

static enum req_op
random_op(struct world *w, const struct limits *lim)
{
	uint64_t dice = chance_below(&w->chance, 100);

	if (dice < 6 && lim->max_discard_sectors > 0)
		return REQ_OP_DISCARD;
	if (dice >= 6 && dice < 10 && lim->max_write_zeroes_sectors > 0)
		return REQ_OP_WRITE_ZEROES;
	if (dice >= 10 && dice < 14 && w->caches)
		return REQ_OP_FLUSH;
	return dice % 2 ? REQ_OP_READ : REQ_OP_WRITE;
}

static uint64_t
random_sectors(struct chance *c)
{
	uint64_t dice = chance_below(c, 100);

	if (dice < 60)
		return chance_between(c, 1, 8);
	if (dice < 80)
		return 8;
	if (dice < 95)
		return chance_between(c, 1, 64);
	return chance_between(c, 1, MAX_IO_SECTORS);
}

/* Mostly beside an earlier one, so that there is much to merge. */
static uint64_t
random_pos(struct world *w, const struct disk *d, uint64_t bytes, uint64_t unit)
{
	uint64_t dice = chance_below(&w->chance, 100);
	const struct io *other;

	if (w->nr_io > 0 && dice < 65) {
		other = &w->io[chance_of(&w->chance, 60)
				   ? w->nr_io - 1
				   : chance_below(&w->chance, w->nr_io)];
		if (other->disk == d && dice < 48)
			return other->pos + other->bytes;
		if (other->disk == d && other->pos >= bytes)
			return other->pos - bytes;
	}
	return chance_below(&w->chance, DISK_BYTES / unit) * unit;
}

/* In flight together they must not overlap: their order is no promise. */
static bool
is_free(
    const struct world *w, const struct disk *d, uint64_t pos, uint64_t bytes)
{
	unsigned i;

	if (pos + bytes > DISK_BYTES)
		return false;
	for (i = 0; i < w->nr_io; i++) {
		const struct io *io = &w->io[i];

		if (io->disk == d && io->pos < pos + bytes &&
		    pos < io->pos + io->bytes)
			return false;
	}
	return true;
}

static void
random_flags(struct world *w, struct io *io)
{
	if (chance_of(&w->chance, 10))
		io->prio =
		    (uint8_t)chance_between(&w->chance, IOPRIO_RT, IOPRIO_IDLE);
	if (io->op == REQ_OP_WRITE && chance_of(&w->chance, 5))
		io->flags |= REQ_FUA;
	if (io->op == REQ_OP_WRITE && w->caches && chance_of(&w->chance, 3))
		io->flags |= REQ_PREFLUSH;
	if (chance_of(&w->chance, 20))
		io->flags |= REQ_SYNC;
}

static void
prepare_memory(struct world *w, struct io *io)
{
	const struct queue_conf *conf = &io->disk->queue->conf;
	bool small = !w->in_bytes && conf->limits.logical_block_size == 512 &&
		     chance_of(&w->chance, 30);
	uint64_t unit = w->in_bytes ? 1 : conf->limits.logical_block_size;

	io->memory = w->arena + w->arena_used;
	if (io->op == REQ_OP_READ && chance_of(&w->chance, 10))
		io->memory = NULL;
	io->bytes = add_memory(&w->chance, &io->bio, conf->multipage,
	    io->memory, io->bytes, small);
	HOLDS(io->bytes == io->bio.bytes);
	HOLDS(io->bytes % unit == 0);
	w->arena_used += io->bytes;
	if (io->memory != NULL)
		stamp(w, io->memory, io->bytes);
}

/* The next I/O, or NULL when the dice gave one that overlaps. */
static struct io *
random_io(struct world *w)
{
	struct io *io = &w->io[w->nr_io];
	struct disk *d = &w->disk[chance_below(&w->chance, w->nr_disks)];
	const struct limits *lim = &d->queue->conf.limits;
	uint64_t unit = w->in_bytes ? 1 : lim->logical_block_size;
	uint64_t bytes, pos = 0;
	enum req_op op = random_op(w, lim);

	bytes = random_sectors(&w->chance) * SECTOR_SIZE;
	if (w->in_bytes)
		bytes -= chance_below(&w->chance, SECTOR_SIZE);
	bytes = (bytes + unit - 1) / unit * unit;
	if (op == REQ_OP_FLUSH)
		bytes = 0;
	else
		pos = random_pos(w, d, bytes, unit);
	if (!is_free(w, d, pos, bytes) || w->arena_used + bytes > ARENA_BYTES)
		return NULL;
	io->world = w;
	io->disk = d;
	io->number = w->nr_io;
	io->op = op;
	io->flags = 0;
	io->prio = IOPRIO_NONE;
	io->pos = pos;
	io->bytes = bytes;
	io->memory = NULL;
	io->ended = io->failed = false;
	random_flags(w, io);
	bio_init(&io->bio, op, pos, io->bv, BIO_MAX_VECS);
	io->bio.flags = io->flags;
	io->bio.prio = io->prio;
	io->bio.end_io = io_end;
	io->bio.priv = io;
	if (has_data(op))
		prepare_memory(w, io);
	else
		io->bio.bytes = bytes;
	if (op == REQ_OP_DISCARD || op == REQ_OP_WRITE_ZEROES)
		stamp(w, d->data + pos, bytes);
	d->submitted_bytes[group_of(w, op)] += io->bytes;
	w->nr_io++;
	w->nr_ops[op]++;
	if (op == REQ_OP_FLUSH)
		d->nr_empty++;
	else if (io->flags & REQ_PREFLUSH)
		d->preflush_data = true;
	return io;
}

static bool
is_zero(const char *p, uint64_t bytes)
{
	return bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
}

/* Property (e): the data of every bio is where it should be. */
static void
check_io(const struct io *io)
{
	HOLDS(io->ended);
	HOLDS((io->error != 0) == io->failed);
	if (io->failed || io->op == REQ_OP_FLUSH)
		return;
	if (!has_data(io->op))
		HOLDS(is_zero(io->disk->data + io->pos, io->bytes));
	else if (io->memory != NULL)
		HOLDS(memcmp(io->disk->data + io->pos, io->memory, io->bytes) ==
		      0);
}

/* ------------------------------------------------------------ the queues */

static void
random_limits(struct world *w, struct limits *lim)
{
	static const uint32_t max_sectors[] = { 8, 16, 64, 128, 255, 256,
		2560 };
	static const uint32_t segment_size[] = { 4096, 5120, 8192, 65536,
		1u << 20 };
	static const uint64_t boundary[] = { 0xfff, 0x1fff, 0xffff,
		0xffffffff };
	struct chance *c = &w->chance;

	limits_init(lim);
	if (!w->in_bytes && chance_of(c, 25))
		lim->logical_block_size = chance_of(c, 50) ? 4096 : 1024;
	lim->physical_block_size = lim->logical_block_size;
	if (chance_of(c, 25))
		lim->physical_block_size = 4096;
	lim->max_sectors = max_sectors[chance_below(c, 7)];
	if (chance_of(c, 20))
		lim->max_sectors = (uint32_t)chance_between(c, 8, 300);
	lim->max_segments =
	    chance_of(c, 50) ? 128 : (uint32_t)chance_between(c, 1, 16);
	lim->max_segment_size = segment_size[chance_below(c, 5)];
	lim->seg_boundary_mask =
	    chance_of(c, 60) ? 0xffffffff : boundary[chance_below(c, 4)];
	lim->virt_boundary_mask = 0;
	if (!w->in_bytes && chance_of(c, 20))
		lim->virt_boundary_mask = 4095;
	lim->chunk_sectors = 0;
	if (!w->in_bytes && chance_of(c, 25))
		lim->chunk_sectors = 8u << chance_below(c, 6);
	if (lim->chunk_sectors && w->profile->stat_fields == 17 &&
	    chance_of(c, 30))
		lim->chunk_sectors *= 3; /* 2.1: any value in 6.x */
	if (!w->in_bytes && chance_of(c, 50)) {
		lim->max_discard_sectors =
		    (uint32_t)chance_between(c, 1, 40) * 8;
		lim->max_discard_segments =
		    chance_of(c, 50) ? 1 : (uint32_t)chance_between(c, 2, 8);
		lim->discard_granularity = lim->logical_block_size;
		lim->max_write_zeroes_sectors =
		    (uint32_t)chance_between(c, 1, 40) * 8;
	}
	lim->write_cache = w->caches;
	lim->fua = w->caches && chance_of(c, 50);
}

static void
open_disk(struct world *w, struct disk *d)
{
	struct chance *c = &w->chance;
	struct queue_conf conf = {
		.profile = w->profile,
		.nr_hw_queues = 1,
		.multipage = w->profile->multipage,
		.iostats = true,
	};
	char *data = d->data;

	random_limits(w, &conf.limits);
	conf.depth = (unsigned)chance_between(c, 1, chance_of(c, 30) ? 4 : 64);
	if (chance_of(c, 20))
		conf.nr_requests = (unsigned)chance_between(c, 1, conf.depth);
	if (chance_of(c, 20))
		conf.nr_hw_queues = (unsigned)chance_between(c, 2, 4);
	if (chance_of(c, 20))
		conf.nomerges = (unsigned)chance_between(c, 1, 2);
	if (chance_of(c, 20))
		conf.multipage = !conf.multipage;
	if (chance_of(c, 5))
		conf.iostats = false;
	*d = (struct disk){ .data = data };
	d->tag_used = calloc(conf.depth, conf.nr_hw_queues);
	HOLDS(d->tag_used != NULL);
	HOLDS(queue_new(&d->queue, w->machine, &driver_ops, d, &conf) == 0);
}

/* The histograms count what the counters do (a, b). */
static void
check_histograms(const struct disk *d, const struct queue_stat *st)
{
	uint64_t ios = 0, sectors = 0;
	unsigned g;

	for (g = 0; g < STAT_FLUSH; g++) {
		ios += st->ios[g];
		sectors += st->sectors[g];
	}
	HOLDS(hist_count(&st->segments) == ios);
	HOLDS(hist_sum(&st->segments) == d->nr_segs);
	HOLDS(hist_count(&st->request_sectors) == ios);
	HOLDS(hist_sum(&st->request_sectors) == sectors);
	HOLDS(hist_count(&st->bvecs) == d->submitted);
	HOLDS(hist_sum(&st->bvecs) == d->submitted_bvecs);
}

/* All that is counted for a hardware queue makes what the disk counts. */
static void
check_hctxs(const struct disk *d, const struct queue_stat *st)
{
	struct queue_stat one;
	uint64_t ios = 0, segs = 0;
	unsigned i, g;

	for (i = 0; i < d->queue->conf.nr_hw_queues; i++) {
		stat_read_hctx(d->queue->hctx[i], &one);
		HOLDS(one.in_flight == 0);
		HOLDS(one.inflight_rw[0] == 0);
		HOLDS(one.inflight_rw[1] == 0);
		for (g = 0; g < STAT_NR; g++)
			ios += one.ios[g];
		segs += hist_sum(&one.segments);
	}
	for (g = 0; g < STAT_NR; g++)
		ios -= st->ios[g];
	HOLDS(ios == 0);
	HOLDS(segs == hist_sum(&st->segments));
}

/* Properties (a) and (b), and that nothing is left. */
static void
check_disk(struct world *w, struct disk *d)
{
	uint64_t bios = d->submitted, ios = 0, merges = 0, splits = 0;
	struct queue_stat st;
	unsigned g;

	HOLDS(queue_tags_in_use(d->queue) == 0);
	stat_read(d->queue, &st, w->now);
	HOLDS(st.in_flight == 0);
	HOLDS(st.inflight_rw[0] == 0);
	HOLDS(st.inflight_rw[1] == 0);
	for (g = 0; g < SPLIT_NR; g++) {
		splits += st.splits[g];
		w->nr_splits[g] += st.splits[g];
	}
	for (g = 0; g < REFUSED_NR; g++)
		w->nr_refused[g] += st.refused[g];
	for (g = 0; g < STAT_FLUSH; g++) {
		ios += st.ios[g];
		merges += st.merges[g];
	}
	w->nr_merges += merges;
	if (!d->queue->conf.iostats) {
		HOLDS(ios == 0);
		HOLDS(merges == 0);
		HOLDS(hist_count(&st.bvecs) == 0);
		return;
	}
	check_histograms(d, &st);
	check_hctxs(d, &st);
	for (g = 0; g < STAT_FLUSH && !w->in_bytes; g++) {
		HOLDS(st.sectors[g] == d->sectors[g]);
		HOLDS(st.sectors[g] == d->submitted_bytes[g] / SECTOR_SIZE);
	}
	HOLDS(merges == d->nr_bios - d->nr_requests);
	if (w->profile->stat_fields == 17)
		HOLDS(st.ios[STAT_FLUSH] == d->nr_flushes);
	if (d->preflush_data) /* of which 6.2 does not say enough */
		return;
	if (w->caches) { /* an empty flush is a write, too (6.2) */
		HOLDS(ios == d->nr_requests + d->nr_empty);
		return;
	}
	HOLDS(bios + splits == ios + merges);
	HOLDS(ios == d->nr_requests);
	HOLDS(bios + splits == d->nr_bios);
}

static void
close_disk(struct disk *d)
{
	queue_free(d->queue);
	free(d->tag_used);
}

/* ----------------------------------------------------------- a sequence */

static void
play_round(struct world *w)
{
	unsigned nr = (unsigned)chance_between(&w->chance, 1, MAX_ROUND);
	struct plug *plug = chance_of(&w->chance, 80) ? &w->plug : NULL;
	struct io *io;
	unsigned i;

	w->nr_io = w->nr_ended = 0;
	w->arena_used = 0;
	while (nr-- > 0) {
		io = random_io(w);
		if (io == NULL)
			continue;
		submit(w, plug, io);
		if (chance_of(&w->chance, 10))
			turn(w, false);
		if (plug != NULL && chance_of(&w->chance, 5))
			plug_flush(plug, w->cpu, w->now);
	}
	plug_flush(&w->plug, w->cpu, w->now);
	HOLDS(w->plug.nr == 0);
	drain(w);
	for (i = 0; i < w->nr_io; i++)
		check_io(&w->io[i]);
}

static void
play_sequence(struct world *w, uint64_t number)
{
	unsigned i, rounds, busy;

	where.number = number;
	w->chance = chance_of_sequence(number, 1);
	w->in_bytes = chance_of(&w->chance, 10);
	w->completion = (enum completion)chance_below(&w->chance, ANY_WAY + 1);
	busy = chance_of(&w->chance, 40)
		   ? (unsigned)chance_between(&w->chance, 1, 60)
		   : 0;
	w->error_percent = chance_of(&w->chance, 10) ? 10 : 0;
	w->nr_disks = chance_of(&w->chance, 15) ? 2 : 1;
	w->nr_held = 0;
	plug_init(&w->plug);
	for (i = 0; i < w->nr_disks; i++)
		open_disk(w, &w->disk[i]);
	rounds = (unsigned)chance_between(&w->chance, 1, 2);
	while (rounds-- > 0) {
		w->busy_percent = busy;
		play_round(w);
	}
	for (i = 0; i < w->nr_disks; i++) {
		check_disk(w, &w->disk[i]);
		close_disk(&w->disk[i]);
	}
}

static uint64_t
nr_sequences(void)
{
	return env_number("NULLB_LONG", 0) ? NR_LONG : NR_SEQUENCES;
}

/* Call `play` for each sequence, or for the one that is asked for. */
static void
for_sequences(
    struct world *w, uint64_t nr, void (*play)(struct world *, uint64_t))
{
	uint64_t i, only = env_number("NULLB_ONLY", UINT64_MAX);

	if (only != UINT64_MAX) {
		play(w, only);
		return;
	}
	for (i = 0; i < nr; i++)
		play(w, i);
}

/* Nothing of what the sequences are to try was left out. */
static void
check_variety(const struct world *w)
{
	unsigned i;

	HOLDS(w->nr_again > 0);
	HOLDS(w->nr_busy > 0);
	HOLDS(w->nr_failed > 0);
	HOLDS(w->nr_merges > 0);
	HOLDS(w->nr_front > 0);
	for (i = 0; i < SPLIT_NR; i++)
		HOLDS(w->nr_splits[i] > 0);
	for (i = 0; i < REFUSED_NR; i++)
		HOLDS(w->nr_refused[i] > 0 ||
		      (i == REFUSED_PRIORITY &&
			  strcmp(w->profile->name, "4.14") == 0));
	for (i = 0; i < REQ_OP_NR; i++)
		HOLDS(w->nr_ops[i] > 0 || (i == REQ_OP_FLUSH && !w->caches));
}

static void
with_world(const struct profile *p, bool caches, uint64_t nr,
    void (*play)(struct world *, uint64_t))
{
	struct world *w = calloc(1, sizeof(*w));
	unsigned i;

	assert_non_null(w);
	world = w;
	where.profile = p->name;
	w->profile = p;
	w->caches = caches;
	w->now = 1000000000;
	w->machine = machine_new(1, NULL, NULL);
	assert_non_null(w->machine);
	w->cpu = &w->machine->cpu[0];
	w->arena = calloc(1, ARENA_BYTES);
	assert_non_null(w->arena);
	for (i = 0; i < MAX_QUEUES; i++) {
		w->disk[i].data = calloc(1, DISK_BYTES);
		assert_non_null(w->disk[i].data);
	}
	for_sequences(w, nr, play);
	if (play == play_sequence && getenv("NULLB_ONLY") == NULL)
		check_variety(w);
	for (i = 0; i < MAX_QUEUES; i++)
		free(w->disk[i].data);
	free(w->arena);
	machine_free(w->machine);
	free(w);
}

static void
properties(void **state)
{
	with_world(*state, false, nr_sequences(), play_sequence);
}

static void
properties_with_cache(void **state)
{
	with_world(*state, true, nr_sequences() / 4, play_sequence);
}

/* ------------------------------------------------------- property (d) */

/* The same memory under single-page and multipage bvecs. */
static void
compare_segments(struct world *w, struct queue *single, struct queue *multi)
{
	static struct bvec sbv[BIO_MAX_VECS], mbv[BIO_MAX_VECS];
	uint64_t bytes = random_sectors(&w->chance) * SECTOR_SIZE;
	bool small = chance_of(&w->chance, 30);
	struct chance again = w->chance;
	uint64_t phys = next_phys;
	unsigned ssegs, msegs;
	uint64_t sfit, mfit;
	struct bio s, m;

	bio_init(&s, REQ_OP_READ, 0, sbv, BIO_MAX_VECS);
	bio_init(&m, REQ_OP_READ, 0, mbv, BIO_MAX_VECS);
	bytes = add_memory(&again, &s, false, NULL, bytes, small);
	next_phys = phys; /* the same dice, the same addresses */
	HOLDS(add_memory(&w->chance, &m, true, NULL, bytes, small) == bytes);
	HOLDS(m.nr_bv <= s.nr_bv);
	sfit = bio_fits(&s, single, &ssegs, &(enum split_cause){ 0 });
	mfit = bio_fits(&m, multi, &msegs, &(enum split_cause){ 0 });
	if (sfit == mfit)
		HOLDS(msegs <= ssegs);
	HOLDS(ssegs <= single->conf.limits.max_segments);
	HOLDS(msegs <= multi->conf.limits.max_segments);
	HOLDS(sfit <= s.bytes);
	HOLDS(mfit <= m.bytes);
}

static void
play_segments(struct world *w, uint64_t number)
{
	struct queue *single, *multi;
	struct queue_conf conf = {
		.profile = profile_find("4.14"),
		.nr_hw_queues = 1,
		.depth = 1,
	};
	unsigned i;

	where.number = number;
	w->chance = chance_of_sequence(number, 2);
	random_limits(w, &conf.limits);
	conf.limits.logical_block_size = 512;
	conf.limits.physical_block_size = 512;
	if (chance_of(&w->chance, 50)) {
		/* nothing is cut: the whole of it compares */
		conf.limits.max_segments = 65535;
		conf.limits.max_sectors = 1u << 20;
		conf.limits.virt_boundary_mask = 0;
		conf.limits.chunk_sectors = 0;
	}
	HOLDS(queue_new(&single, w->machine, &driver_ops, NULL, &conf) == 0);
	conf.profile = w->profile;
	conf.multipage = true;
	HOLDS(queue_new(&multi, w->machine, &driver_ops, NULL, &conf) == 0);
	for (i = 0; i < 20; i++)
		compare_segments(w, single, multi);
	queue_free(single);
	queue_free(multi);
}

static void
fewer_segments(void **state)
{
	with_world(*state, false, nr_sequences() / 10, play_segments);
}

/* --------------------------------------------------- a model of the plug */

/*
 * Reads and writes that need no split, one disk, a driver that is never busy:
 * then the rules of 3.2 to 3.6 and 4.1 say exactly which requests the driver
 * sees, in which bursts and (but for equal sectors) in which order.
 */
struct model_rq {
	uint8_t op;
	uint8_t prio;
	bool nomerge;
	sector_t sector;
	uint64_t nr_sectors;
	unsigned nr_segs;
	unsigned nr_bios;
};

#define MAX_MODEL 256

struct model {
	const struct limits *lim;
	bool scan_all;
	bool newest_first; /* handed on */
	bool sorted;
	bool tests_oldest;
	bool prio_matters;
	unsigned max;
	unsigned nomerges;
	bool size_flush;
	uint64_t refused[REFUSED_NR];
	struct model_rq plug[MAX_MODEL];
	unsigned nr_plug;
	struct model_rq out[MAX_MODEL];
	unsigned nr_out;
	unsigned burst[MAX_MODEL];
	unsigned nr_bursts;
};

/* What the driver saw. */
static struct {
	struct model_rq rq[MAX_MODEL];
	unsigned nr;
	unsigned burst[MAX_MODEL];
	unsigned nr_bursts;
	unsigned in_burst;
	unsigned nr_ended;
} saw;

static int
by_place(const void *a, const void *b)
{
	const struct model_rq *x = a, *y = b;

	if (x->sector != y->sector)
		return x->sector < y->sector ? -1 : 1;
	if (x->nr_sectors != y->nr_sectors)
		return x->nr_sectors < y->nr_sectors ? -1 : 1;
	if (x->op != y->op)
		return x->op - y->op;
	if (x->prio != y->prio)
		return x->prio - y->prio;
	if (x->nomerge != y->nomerge)
		return x->nomerge - y->nomerge;
	return (int)x->nr_bios - (int)y->nr_bios;
}

static void
model_flush(struct model *m)
{
	unsigned i;

	if (m->nr_plug == 0)
		return;
	if (m->sorted)
		qsort(m->plug, m->nr_plug, sizeof(*m->plug), by_place);
	for (i = 0; i < m->nr_plug; i++)
		m->out[m->nr_out++] =
		    m->plug[m->newest_first ? m->nr_plug - 1 - i : i];
	m->burst[m->nr_bursts++] = m->nr_plug;
	m->nr_plug = 0;
}

/* 3.4: what a request that starts here may grow to */
static uint64_t
model_max(const struct model *m, sector_t sector)
{
	uint64_t max = m->lim->max_sectors, chunk = m->lim->chunk_sectors;

	return chunk == 0 ? max : min_of(max, chunk - sector % chunk);
}

/* 3.2 to 3.4: one candidate.  1: merged, 0: not adjacent, -1: refused. */
static int
model_try(struct model *m, struct model_rq *rq, const struct model_rq *bio)
{
	bool back = rq->sector + rq->nr_sectors == bio->sector;
	bool front = bio->sector + bio->nr_sectors == rq->sector;
	uint64_t max;

	if (rq->op != bio->op || !(back || front))
		return 0;
	if (rq->nomerge || (m->prio_matters && rq->prio != bio->prio)) {
		m->refused[rq->nomerge ? REFUSED_CLOSED : REFUSED_PRIORITY]++;
		return 0;
	}
	max = model_max(m, back ? rq->sector : bio->sector);
	if (rq->nr_sectors + bio->nr_sectors > max) {
		m->refused[max < m->lim->max_sectors ? REFUSED_CHUNK
						     : REFUSED_SIZE]++;
		rq->nomerge = true;
		return -1;
	}
	if (rq->nr_segs + bio->nr_segs > m->lim->max_segments) {
		m->refused[REFUSED_SEGMENTS]++;
		rq->nomerge = true;
		return -1;
	}
	if (!back)
		rq->sector = bio->sector;
	rq->nr_sectors += bio->nr_sectors;
	rq->nr_segs += bio->nr_segs;
	rq->nr_bios++;
	if (bio->prio < rq->prio)
		rq->prio = bio->prio;
	return 1;
}

static void
model_submit(struct model *m, const struct model_rq *bio)
{
	unsigned i;

	for (i = m->nr_plug; i > 0 && m->nomerges != 2; i--) {
		if (model_try(m, &m->plug[i - 1], bio) == 1)
			return;
		if (!m->scan_all)
			break;
	}
	if (m->nr_plug >= m->max ||
	    (m->nr_plug > 0 && m->size_flush &&
		m->plug[m->tests_oldest ? 0 : m->nr_plug - 1].nr_sectors >=
		    256))
		model_flush(m);
	m->plug[m->nr_plug++] = *bio;
}

static int
model_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct model_rq *r = &saw.rq[saw.nr++];
	const struct bio *bio;

	HOLDS(saw.nr <= MAX_MODEL);
	*r = (struct model_rq){
		.op = rq->op,
		.prio = rq->prio,
		.nomerge = rq->flags & REQ_NOMERGE,
		.sector = rq_sector(rq),
		.nr_sectors = rq->bytes / SECTOR_SIZE,
		.nr_segs = rq->nr_segs,
	};
	STAILQ_FOREACH(bio, &rq->bios, link) {
		r->nr_bios++;
	}
	saw.in_burst++;
	rq_moved(rq, cpu);
	rq_complete(rq, cpu, now);
	return 0;
}

static void
model_commit(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	(void)hctx;
	(void)cpu;
	(void)now;
	if (saw.in_burst > 0)
		saw.burst[saw.nr_bursts++] = saw.in_burst;
	saw.in_burst = 0;
}

static const struct queue_ops model_ops = {
	.queue_rq = model_queue_rq,
	.commit = model_commit,
};

static void
model_end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	HOLDS(bio->error == 0);
	saw.nr_ended++;
	bio_release(bio, cpu);
}

/* Section 10, by name: the profile's own table is what is tested. */
static void
model_init(struct model *m, const struct queue_conf *conf)
{
	const char *name = conf->profile->name;
	bool old = strcmp(name, "4.14") == 0 || strcmp(name, "5.4") == 0;

	memset(m, 0, sizeof(*m));
	m->lim = &conf->limits;
	m->scan_all = old;
	m->max = old ? 16 : 32;
	m->sorted = strcmp(name, "4.14") == 0;
	m->newest_first = strcmp(name, "6.1") == 0;
	m->tests_oldest = strcmp(name, "6.12") == 0;
	m->prio_matters = strcmp(name, "4.14") != 0;
	m->nomerges = conf->nomerges;
	m->size_flush = old || conf->nomerges != 2;
}

static void
model_bio(struct world *w, const struct model *m, struct model_rq *bio,
    const struct model_rq *earlier, unsigned nr)
{
	struct chance *c = &w->chance;
	const struct model_rq *e;
	uint64_t dice = chance_below(c, 100);

	*bio = (struct model_rq){ .nr_bios = 1 };
	bio->op = chance_of(c, 80) ? REQ_OP_WRITE : REQ_OP_READ;
	bio->prio = chance_of(c, 90) ? IOPRIO_BE : IOPRIO_RT;
	bio->nr_sectors =
	    min_of(chance_of(c, 95) ? chance_between(c, 1, 40) : 256,
		m->lim->max_sectors);
	bio->sector = chance_below(c, 1u << 20);
	if (nr > 0 && dice < 70) {
		e = &earlier[chance_of(c, 60) ? nr - 1 : chance_below(c, nr)];
		if (dice < 45)
			bio->sector = e->sector + e->nr_sectors;
		else if (e->sector >= bio->nr_sectors)
			bio->sector = e->sector - bio->nr_sectors;
		if (chance_of(c, 80))
			bio->op = e->op;
	}
	/* no splits: not beyond the chunk, nor more pages than segments */
	bio->nr_sectors = min_of(bio->nr_sectors, model_max(m, bio->sector));
	bio->nr_sectors =
	    min_of(bio->nr_sectors, (uint64_t)m->lim->max_segments * 8);
	bio->nr_segs = (unsigned)((bio->nr_sectors + 7) / 8);
}

static void
compare_with_model(struct model *m, const struct queue_stat *st)
{
	unsigned i, b, at = 0;

	for (i = 0; i < REFUSED_NR; i++)
		HOLDS(st->refused[i] == m->refused[i]);

	HOLDS(saw.in_burst == 0);
	HOLDS(saw.nr == m->nr_out);
	HOLDS(saw.nr_bursts == m->nr_bursts);
	for (b = 0; b < m->nr_bursts; at += m->burst[b++]) {
		HOLDS(saw.burst[b] == m->burst[b]);
		if (!m->sorted)
			continue;
		for (i = at + 1; i < at + m->burst[b]; i++)
			HOLDS(saw.rq[i - 1].sector <= saw.rq[i].sector);
		qsort(&saw.rq[at], m->burst[b], sizeof(*saw.rq), by_place);
	}
	for (i = 0; i < m->nr_out; i++) {
		HOLDS(by_place(&saw.rq[i], &m->out[i]) == 0);
		HOLDS(saw.rq[i].nr_segs == m->out[i].nr_segs);
	}
}

static void
play_model(struct world *w, uint64_t number)
{
	static const uint32_t max_sectors[] = { 64, 255, 256, 2560 };
	static struct bio bio[MAX_MODEL];
	static struct bvec bv[MAX_MODEL][40];
	static struct model m;
	struct model_rq earlier[MAX_MODEL], *e;
	struct queue_conf conf = h_conf(w->profile);
	struct queue_stat st;
	struct queue *q;
	unsigned i, nr, page;

	where.number = number;
	w->chance = chance_of_sequence(number, 3);
	conf.limits.max_sectors = max_sectors[chance_below(&w->chance, 4)];
	if (chance_of(&w->chance, 30))
		conf.limits.max_segments =
		    (uint32_t)chance_between(&w->chance, 1, 12);
	if (chance_of(&w->chance, 30))
		conf.limits.chunk_sectors = 128;
	if (chance_of(&w->chance, 20))
		conf.nomerges = (unsigned)chance_between(&w->chance, 1, 2);
	conf.depth = 64;
	model_init(&m, &conf);
	memset(&saw, 0, sizeof(saw));
	HOLDS(queue_new(&q, w->machine, &model_ops, NULL, &conf) == 0);
	plug_init(&w->plug);
	nr = (unsigned)chance_between(&w->chance, 1, 100);
	for (i = 0; i < nr; i++) {
		e = &earlier[i];
		model_bio(w, &m, e, earlier, i);
		bio_init(&bio[i], e->op, e->sector * SECTOR_SIZE, bv[i], 40);
		for (page = 0; page < e->nr_segs; page++)
			HOLDS(bio_add(&bio[i], conf.multipage,
			    (1ull << 40) + (40 * i + page) * 2 * PAGE_SIZE,
			    h_memory,
			    page + 1 < e->nr_segs
				? PAGE_SIZE
				: (uint32_t)(e->nr_sectors - 8 * page) *
				      SECTOR_SIZE));
		bio[i].prio = e->prio;
		bio[i].end_io = model_end_io;
		w->now += 1000;
		HOLDS(queue_submit(q, w->cpu, &w->plug, &bio[i], w->now) == 0);
		model_submit(&m, e);
		HOLDS(w->plug.nr == m.nr_plug);
		HOLDS(saw.nr == m.nr_out);
	}
	plug_flush(&w->plug, w->cpu, w->now);
	cpu_run(w->cpu, w->now);
	model_flush(&m);
	HOLDS(saw.nr_ended == nr);
	stat_read(q, &st, w->now);
	compare_with_model(&m, &st);
	queue_free(q);
}

static void
follows_the_model(void **state)
{
	with_world(*state, false, nr_sequences() / 4, play_model);
}

static const struct example examples[] = {
	{ "(a, b, c, e, f) hold for random sequences", properties },
	{ "(a, b, c, e, f) hold for them where a cache is",
	    properties_with_cache },
	{ "(d) multipage bvecs never need more segments", fewer_segments },
	{ "3, 4: requests and bursts are those of a model", follows_the_model },
	{}
};

int
main(void)
{
	where.seed = env_number("NULLB_SEED", SEED);
	print_message("NULLB_SEED=%llu\n", (unsigned long long)where.seed);
	return run_examples("properties", examples);
}
