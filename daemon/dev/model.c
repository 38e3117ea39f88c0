/* SPDX-License-Identifier: MIT */
/*
 * What the device does with a request.  It walks the stages in the order of
 * the table, which is the order of the physics: each may let it pass, end it,
 * put it off or lose it.  The last one moves the data.  Those that let it pass
 * then hear, in reverse, what came of it, and the request completes as irqmode
 * has it, now or later.
 */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* What a read was answered with, until its reply is sent. */
struct pins {
	struct page_pool *pool; /* whose pages they are; */
	char *copy;             /* or else the memory that they lie in */
	unsigned nr, max;
	unsigned nr_ones; /* the last ones: nobody's pages */
	struct iovec iov[];
};

/* ---- the store stage */

/*
 * In how many pieces a read can come: a piece ends where a page of the store
 * does, and where a bvec does.  Of the bvecs in its table a bio may cover few:
 * it shares the table with those that are split off the same.
 */
static unsigned
max_pieces(const struct bio *bio)
{
	struct bvec_iter it = {};
	uint64_t pos = bio->pos, nr = 0;
	struct bvec bv;

	for (; bio_next_bvec(bio, &it, &bv); pos += bv.len)
		nr += (pos % PAGE_SIZE + bv.len - 1) / PAGE_SIZE + 1;
	return (unsigned)nr + 1; /* where a write pointer cuts one */
}

static struct pins *
pins_new(struct disk *d, const struct bio *bio)
{
	unsigned max = max_pieces(bio);
	struct pins *pins;

	pins = malloc(sizeof(*pins) + max * sizeof(pins->iov[0]));
	if (pins == NULL)
		return NULL;
	pins->pool = d->pool;
	pins->copy = NULL;
	pins->nr = 0;
	pins->nr_ones = 0;
	pins->max = max;
	return pins;
}

static void
pins_free(struct pins *pins, struct cpu *cpu)
{
	if (pins->copy == NULL)
		store_unpin(
		    pins->pool, cpu, pins->iov, pins->nr - pins->nr_ones);
	free(pins->copy);
	free(pins);
}

/* bio->unpin: the reply was sent. */
static void
unpin(struct bio *bio, struct cpu *cpu)
{
	pins_free(container_of(bio->iov, struct pins, iov), cpu);
}

static void
add_piece(struct pins *pins, const void *base, uint64_t len)
{
	assert(pins->nr < pins->max);
	pins->iov[pins->nr++] = (struct iovec){ (void *)base, len };
}

/* A disk without memory reads as zeros: point at those there are. */
static void
add_zeros(struct pins *pins, uint64_t len)
{
	for (; len > STORE_ZEROS_SIZE; len -= STORE_ZEROS_SIZE)
		add_piece(pins, store_zeros(), STORE_ZEROS_SIZE);
	add_piece(pins, store_zeros(), len);
}

/* Beyond the write pointer of a zone: null_fill_pattern(). */
static const unsigned char ones[16 * PAGE_SIZE] = {
	[0 ... 16 * PAGE_SIZE - 1] = 0xff,
};

static void
add_ones(struct pins *pins, uint64_t len)
{
	uint64_t n;

	for (; len > 0; len -= n) {
		n = len < sizeof(ones) ? len : sizeof(ones);
		add_piece(pins, ones, n);
		pins->nr_ones++;
	}
}

/* How much of a read the store answers: all of it, but for zones. */
static uint64_t
bytes_stored(const struct disk *d, const struct bio *bio)
{
	if (d->zones == NULL || d->store == NULL)
		return bio->bytes;
	return zones_readable(d->zones, bio->pos, bio->bytes);
}

/* pin_bvecs() with zones: up to the write pointer. */
static bool
pin_zoned(
    struct pins *pins, struct disk *d, const struct bio *bio, struct cpu *cpu)
{
	uint64_t pos = bio->pos, left = bytes_stored(d, bio), n, done;
	struct bvec_iter it = {};
	struct bvec bv;

	for (; bio_next_bvec(bio, &it, &bv); pos += bv.len, left -= n) {
		n = least(left, bv.len);
		done = 0;
		if (n > 0)
			pins->nr += store_pin(d->store, cpu, pos, n,
			    pins->iov + pins->nr, pins->max - pins->nr, &done);
		if (done < n)
			return false;
		add_ones(pins, bv.len - n);
	}
	return true;
}

/*
 * Point at the store's own memory.  Pieces are made per bvec and never joined
 * across two: so the iovecs of the reply are what multipage bvecs, or single
 * pages, make of it.  False: a page has all the pins it can bear.
 */
static bool
pin_bvecs(
    struct pins *pins, struct disk *d, const struct bio *bio, struct cpu *cpu)
{
	struct bvec_iter it = {};
	uint64_t pos = bio->pos, done;
	struct bvec bv;

	for (; bio_next_bvec(bio, &it, &bv); pos += bv.len) {
		if (d->store == NULL) {
			add_zeros(pins, bv.len);
			continue;
		}
		pins->nr += store_pin(d->store, cpu, pos, bv.len,
		    pins->iov + pins->nr, pins->max - pins->nr, &done);
		if (done < bv.len)
			return false;
	}
	return true;
}

/* The same data in memory of our own, in a piece a bvec. */
static bool
copy_bvecs(
    struct pins *pins, struct disk *d, const struct bio *bio, struct cpu *cpu)
{
	struct bvec_iter it = {};
	uint64_t stored = bytes_stored(d, bio);
	struct bvec bv;
	char *to;

	store_unpin(pins->pool, cpu, pins->iov, pins->nr - pins->nr_ones);
	pins->nr = 0;
	pins->nr_ones = 0;
	to = pins->copy = malloc(bio->bytes);
	if (to == NULL)
		return false;
	(void)store_read(d->store, cpu, bio->pos, to, stored);
	memset(to + stored, 0xff, bio->bytes - stored);
	for (; bio_next_bvec(bio, &it, &bv); to += bv.len)
		add_piece(pins, to, bv.len);
	return true;
}

bool
read_unshare(struct bio *bio, struct cpu *cpu)
{
	struct pins *pins = container_of(bio->iov, struct pins, iov);
	struct bvec_iter it = {};
	struct bvec bv;
	char *copy, *to;

	if (pins->copy != NULL)
		return true;
	copy = to = malloc(bio->bytes);
	if (copy == NULL)
		return false;
	for (unsigned i = 0; i < pins->nr; i++) {
		memcpy(to, pins->iov[i].iov_base, pins->iov[i].iov_len);
		to += pins->iov[i].iov_len;
	}
	store_unpin(pins->pool, cpu, pins->iov, pins->nr - pins->nr_ones);
	pins->copy = copy;
	pins->nr = 0;
	pins->nr_ones = 0;
	for (to = copy; bio_next_bvec(bio, &it, &bv); to += bv.len)
		add_piece(pins, to, bv.len);
	bio->nr_iov = pins->nr;
	return true;
}

static int
read_pinned(struct disk *d, struct bio *bio, struct cpu *cpu)
{
	struct pins *pins = pins_new(d, bio);
	bool zoned = d->zones != NULL && d->store != NULL, pinned;

	if (pins == NULL)
		return -ENOMEM;
	pinned =
	    zoned ? pin_zoned(pins, d, bio, cpu) : pin_bvecs(pins, d, bio, cpu);
	if (!pinned && !copy_bvecs(pins, d, bio, cpu)) {
		pins_free(pins, cpu);
		return -ENOMEM;
	}
	bio->iov = pins->iov;
	bio->nr_iov = pins->nr;
	bio->unpin = unpin;
	return 0;
}

/* The same of a read that has memory of its own: not in the way of others. */
static __attribute__((noinline)) void
fill_ones(const struct disk *d, struct bio *bio)
{
	uint64_t left = bytes_stored(d, bio), n;
	struct bvec_iter it = {};
	struct bvec bv;

	if (left == bio->bytes)
		return;
	for (; bio_next_bvec(bio, &it, &bv); left -= n) {
		n = least(left, bv.len);
		memset(bv.base + n, 0xff, bv.len - n);
	}
	bio->hole = false;
}

static void
read_copied(struct disk *d, struct bio *bio, struct cpu *cpu)
{
	struct bvec_iter it = {};
	uint64_t pos = bio->pos;
	bool hole = d->store != NULL;
	struct bvec bv;

	while (bio_next_bvec(bio, &it, &bv)) {
		assert(bv.base != NULL);
		if (d->store == NULL)
			memset(bv.base, 0, bv.len);
		else if (store_read(d->store, cpu, pos, bv.base, bv.len))
			hole = false;
		pos += bv.len;
	}
	bio->hole = hole;
	if (d->zones != NULL)
		fill_ones(d, bio);
}

/* A bio's bvecs all have memory, or none has. */
static int
read_bio(struct disk *d, struct bio *bio, struct cpu *cpu)
{
	if (bio->nr_bv > 0 && bio->bv->base == NULL)
		return read_pinned(d, bio, cpu);
	read_copied(d, bio, cpu);
	return 0;
}

static int
write_bio(struct disk *d, const struct bio *bio, struct cpu *cpu)
{
	struct bvec_iter it = {};
	uint64_t pos = bio->pos;
	struct bvec bv;
	int ret = 0;

	if (d->store == NULL)
		return 0;
	if (bio->lent != NULL)
		return store_write_pages(d->store, cpu, bio->pos,
		    bio->lent + ((bio->pos >> PAGE_SHIFT) - bio->first_page),
		    bio->bytes);
	while (ret == 0 && bio_next_bvec(bio, &it, &bv)) {
		ret = store_write(d->store, cpu, pos, bv.base, bv.len);
		pos += bv.len;
	}
	return ret;
}

/* A hint: without memory to change part of a pinned page some data stays. */
static int
discard_bio(struct disk *d, const struct bio *bio, struct cpu *cpu)
{
	if (d->store != NULL)
		(void)store_discard(d->store, cpu, bio->pos, bio->bytes);
	return 0;
}

static int
zero_bio(struct disk *d, const struct bio *bio, struct cpu *cpu)
{
	if (d->store == NULL)
		return 0;
	if ((bio->flags & REQ_NOUNMAP) == 0)
		return store_discard(d->store, cpu, bio->pos, bio->bytes);
	return store_zero(d->store, cpu, bio->pos, bio->bytes);
}

static int
move_bio(struct disk *d, struct bio *bio, struct cpu *cpu)
{
	switch ((enum req_op)bio->op) {
	case REQ_OP_READ: return read_bio(d, bio, cpu);
	case REQ_OP_WRITE: return write_bio(d, bio, cpu);
	case REQ_OP_DISCARD: return discard_bio(d, bio, cpu);
	case REQ_OP_WRITE_ZEROES: return zero_bio(d, bio, cpu);
	case REQ_OP_FLUSH:
	case REQ_OP_NR: break;
	}
	return 0;
}

/* As in null_blk, the first error ends the request with all of its bios. */
static enum verdict
store_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct bio *bio;

	(void)now;
	STAILQ_FOREACH(bio, &rq->bios, link) {
		rq->error = move_bio(d, bio, cpu);
		if (rq->error == 0)
			continue;
		crash_log_failed(d, rq, cpu);
		return STAGE_END;
	}
	return STAGE_NEXT;
}

const struct stage stages[] = {
	{ .name = "fault", .is_on = fault_is_on, .run = fault_stage },
	{ .name = "throttle", .is_on = throttle_is_on, .run = throttle_stage },
	{ .name = "zone",
	    .is_on = zone_is_on,
	    .run = zone_stage,
	    .done = zone_done },
	{ .name = "badblocks",
	    .is_on = badblocks_is_on,
	    .run = badblocks_stage },
	{ .name = "power", .is_on = power_may_go, .run = power_stage },
	{ .name = "cache", .is_on = cache_is_on, .run = cache_stage },
	{ .name = "store", .run = store_stage },
	{ .name = "through", .is_on = cache_is_on, .run = cache_through_stage },
	{ .name = "crash_log",
	    .is_on = crash_log_is_on,
	    .run = crash_log_stage },
	{ .name = "backing", .is_on = backing_is_on, .run = backing_stage },
	{},
};
#define NR_STAGES   (sizeof(stages) / sizeof(stages[0]) - 1)
#define FAULT_STAGE (1u << 0)

void
stages_choose(struct disk *d)
{
	unsigned on = 0;

	for (unsigned i = 0; i < NR_STAGES; i++)
		if (stages[i].is_on == NULL || stages[i].is_on(d))
			on |= 1u << i;
	atomic_store(&d->stages_on, on);
}

/* ---- the driver */

static enum verdict walk_cut(unsigned first, struct disk *d, struct request *rq,
    struct cpu *cpu, uint64_t now, uint64_t *moved);
static enum verdict walk_altered(unsigned first, struct disk *d,
    struct request *rq, struct cpu *cpu, uint64_t now, uint64_t *moved);

/* Those of `passed` have let it pass: they hear what came of it. */
static void
tell_stages(unsigned passed, struct disk *d, struct request *rq, uint64_t moved)
{
	for (unsigned i = NR_STAGES; i-- > 0;)
		if ((passed >> i & 1) && stages[i].done != NULL)
			stages[i].done(d, rq, moved);
}

/* A request that a fault has begun with is its own until it ends. */
static unsigned
stages_of(const struct disk *d, const struct request *rq)
{
	unsigned on = atomic_load_explicit(&d->stages_on, memory_order_relaxed);

	return rq->priv != NULL ? on | FAULT_STAGE : on;
}

/*
 * From stage `first` on.  *moved: bytes whose data has moved.  Those that have
 * nothing to do cost nothing: seven of them, asked, were 170 instructions.
 */
static enum verdict
walk_stages(unsigned first, struct disk *d, struct request *rq, struct cpu *cpu,
    uint64_t now, uint64_t *moved)
{
	unsigned all = stages_of(d, rq) >> first << first, left, i = 0;
	enum verdict v = STAGE_NEXT;

	for (left = all; left != 0; left &= left - 1) {
		i = (unsigned)__builtin_ctz(left);
		v = stages[i].run(d, rq, cpu, now);
		if (v != STAGE_NEXT)
			break;
	}
	*moved = v == STAGE_NEXT || v == STAGE_HELD ? rq->bytes : 0;
	if (v == STAGE_CUT)
		v = walk_cut(i + 1, d, rq, cpu, now, moved);
	else if (v == STAGE_ALTERED)
		v = walk_altered(i + 1, d, rq, cpu, now, moved);
	if (d->zones != NULL)
		tell_stages(all & ~left, d, rq, *moved);
	return v;
}

/* The rest of the stages sees a shorter request; then it is whole again. */
static enum verdict
walk_cut(unsigned first, struct disk *d, struct request *rq, struct cpu *cpu,
    uint64_t now, uint64_t *moved)
{
	struct bio *bio = STAILQ_FIRST(&rq->bios);
	uint64_t left = rq->cut, bytes = rq->bytes, bio_bytes;
	int error = rq->error;
	struct bio *next;
	enum verdict v;

	assert(left > 0);
	assert(left < bytes);
	for (; left > bio->bytes; bio = STAILQ_NEXT(bio, link))
		left -= bio->bytes;
	next = STAILQ_NEXT(bio, link);
	bio_bytes = bio->bytes;
	STAILQ_NEXT(bio, link) = NULL;
	bio->bytes = left;
	rq->bytes = rq->cut;
	v = walk_stages(first, d, rq, cpu, now, moved);
	rq->bytes = bytes;
	bio->bytes = bio_bytes;
	STAILQ_NEXT(bio, link) = next;
	if (v == STAGE_REQUEUE || v == STAGE_LOST)
		return v;
	if (v == STAGE_NEXT || v == STAGE_HELD || rq->error == 0)
		rq->error = error;
	return STAGE_END;
}

/* The rest of the stages sees another request. */
static enum verdict
walk_altered(unsigned first, struct disk *d, struct request *rq,
    struct cpu *cpu, uint64_t now, uint64_t *moved)
{
	enum verdict v = STAGE_END;

	rq->error = fault_alter(rq);
	*moved = 0;
	if (rq->error == 0)
		v = walk_stages(first, d, rq, cpu, now, moved);
	fault_restore(rq);
	return v;
}

/*
 * A model of its latency makes it late, and so do the parts of the device that
 * others use, or a fault, whatever irqmode is; a fault's delay comes on top.
 * False: irqmode alone decides.
 */
static __attribute__((noinline)) bool
completes_late(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	uint64_t delay_ns = 0, usual_ns = 0;
	bool has_model;

	if (rq->priv != NULL && !fault_end(d, rq, cpu, &delay_ns))
		return true; /* it hangs */
	if (d->parts != NULL) {
		parts_serve(d, rq, cpu, now, delay_ns);
		return true;
	}
	has_model = timing_after(d, rq, cpu, now, &usual_ns);
	if (!has_model && delay_ns == 0)
		return false;
	if (!has_model && d->conf.irqmode == NULL_IRQ_TIMER)
		usual_ns = d->conf.completion_nsec;
	if (usual_ns > UINT64_MAX - delay_ns)
		usual_ns = UINT64_MAX - delay_ns;
	rq_complete_after(rq, cpu, usual_ns + delay_ns);
	return true;
}

static void
complete(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	if ((rq->priv != NULL || disk_timing(d) != NULL || d->parts != NULL) &&
	    completes_late(d, rq, cpu, now))
		return;
	switch (d->conf.irqmode) {
	case NULL_IRQ_NONE: rq_complete(rq, cpu, now); return;
	case NULL_IRQ_SOFTIRQ: rq_complete_softirq(rq, cpu); return;
	default: rq_complete_after(rq, cpu, d->conf.completion_nsec); return;
	}
}

static int
disk_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct disk *d = rq->ctx->queue->driver;
	uint64_t moved;
	enum verdict v = walk_stages(0, d, rq, cpu, now, &moved);

	if (v == STAGE_REQUEUE)
		return -EBUSY;
	if (v == STAGE_LOST)
		return 0;
	rq_moved(rq, cpu);
	if (v == STAGE_HELD)
		d->backing->ops->hold(d->backing->file, rq);
	else
		complete(d, rq, cpu, now);
	return 0;
}

static void
disk_prepare(const struct request *rq, bool next)
{
	const struct disk *d = rq->hctx->queue->driver;
	const struct bio *bio = STAILQ_FIRST(&rq->bios);

	if (rq->bytes > 0 && bio->lent == NULL)
		store_prefetch(d->store, rq->pos, next);
}

static unsigned
disk_lend_pages(struct queue *q, struct cpu *cpu, void **page, unsigned nr)
{
	const struct disk *d = q->driver;

	return page_lend(d->pool, cpu, page, nr);
}

static void
disk_return_pages(
    struct queue *q, struct cpu *cpu, void *const *page, unsigned nr)
{
	const struct disk *d = q->driver;

	page_return(d->pool, cpu, page, nr);
}

static void
disk_abandon(struct queue *q)
{
	fault_abandon(q->driver);
}

/* Who has marked it hears of its end: the parts, or the cache (power.c). */
static void
disk_ended(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct disk *d = rq->ctx->queue->driver;

	rq->rq_flags &= (uint16_t)~RQF_TELL;
	if (d->parts != NULL)
		parts_ended(d->parts, rq, cpu, now);
	if (disk_is_dead(&d->cut))
		power_ended(d, rq);
}

const struct queue_ops disk_queue_ops = {
	.queue_rq = disk_queue_rq,
	.ended = disk_ended,
	.abandon = disk_abandon,
};

const struct queue_ops disk_store_queue_ops = {
	.lend_pages = disk_lend_pages,
	.return_pages = disk_return_pages,
	.queue_rq = disk_queue_rq,
	.prepare = disk_prepare,
	.ended = disk_ended,
	.abandon = disk_abandon,
};
