/* SPDX-License-Identifier: MIT */
/*
 * Faults: rules of a disk that make requests fail, hang, or do something else
 * than they say, and null_blk's timeout and requeue.  A request is judged
 * once, when the device gets it first:
 *
 *	stage   judge -> log; then end it, cut it, alter it, or let it pass
 *	...     the other stages, the data moves
 *	end     flip a bit of what was read; delay it; or keep it: it hangs
 *
 * The newest rule that is about a request, and fires, decides, as in the
 * kernel's block/error-injection.c.  All that is drawn comes from the disk's
 * seed, each rule having its own stream of it.
 */
#include "dev/fault.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Streams of the seed that no rule has. */
enum {
	STREAM_TIMEOUT = 1 << 0,
	STREAM_REQUEUE = 1 << 1,
	STREAM_INIT_HCTX = 1 << 2
};
#define STREAM(n) (UINT64_C(1) << 63 | (n))

/* What was before fault_alter(). */
struct fault_original {
	struct bvec *bv;
	unsigned nr_bv;
	uint32_t skip;
	void **lent;
	struct bvec copy; /* of the data, in memory of its own */
};

/* Judged: nothing is wrong with it. */
static struct fault_hit no_hit;

/* --------------------------------------------------------------- judgement */

static bool
in_range(const struct fault_rule *r, const struct bio *bio)
{
	return bio->pos >> SECTOR_SHIFT <= r->last &&
	       (bio->pos + bio->bytes - 1) >> SECTOR_SHIFT >= r->start;
}

/* Of a discard of several ranges each. */
static bool
touches(const struct fault_rule *r, const struct request *rq)
{
	const struct bio *bio;

	if (!r->has_range)
		return true;
	if (rq->bytes == 0)
		return false;
	STAILQ_FOREACH(bio, &rq->bios, link)
		if (in_range(r, bio))
			return true;
	return false;
}

/* Is there what it would be done to? */
static bool
can_act(
    const struct disk *d, const struct fault_rule *r, const struct request *rq)
{
	uint64_t shift = (uint64_t)(r->shift * (int64_t)SECTOR_SIZE);
	const struct bio *bio;

	switch (r->action) {
	case FAULT_CORRUPT:
		return r->offset == FAULT_RANDOM || r->offset < rq->bytes;
	case FAULT_TORN:
		return r->keep == FAULT_RANDOM ||
		       r->keep * SECTOR_SIZE < rq->bytes;
	case FAULT_MISDIRECTED:
		STAILQ_FOREACH(bio, &rq->bios, link)
			if (bio->pos + shift > d->conf.size ||
			    bio->bytes > d->conf.size - (bio->pos + shift))
				return false;
		return true;
	case FAULT_ERROR:
	case FAULT_DELAY:
	case FAULT_HANG:
	case FAULT_DROP:
	case FAULT_LOST: break;
	}
	return true;
}

/* Under the lock. */
static bool
fires(const struct disk *d, struct fault_rule *r, const struct request *rq)
{
	if ((r->ops & 1u << rq->op) == 0 || !touches(r, rq) ||
	    !can_act(d, r, rq))
		return false;
	if (r->times > 0 && r->hits >= r->times)
		return false;
	if (++r->seen <= r->after || (r->seen - r->after) % r->every != 0)
		return false;
	if (r->chance > 1 && rng_below(&r->rng, r->chance) != 0)
		return false;
	return r->probability == FAULT_ALWAYS ||
	       rng_below(&r->rng, FAULT_ALWAYS) < r->probability;
}

/* How much of it is written: whole blocks, not all of them. */
static uint64_t
cut_of(const struct disk *d, struct fault_rule *r, const struct request *rq)
{
	if (r->keep != FAULT_RANDOM)
		return r->keep * SECTOR_SIZE;
	return rng_below(&r->rng, rq->bytes / d->conf.blocksize) *
	       d->conf.blocksize;
}

/* Under the lock. */
static void
hit_by_rule(const struct disk *d, struct fault_rule *r,
    const struct request *rq, struct fault_hit *hit)
{
	r->hits++;
	if (r->action != FAULT_HANG)
		r->done++;
	hit->acts = true;
	hit->id = r->id;
	hit->action = r->action;
	hit->error = r->status != NULL ? r->status->error : 0;
	hit->at = r->at;
	hit->delay_ns = r->delay_ns;
	hit->start = r->start;
	hit->last = r->last;
	hit->shift = r->shift * (int64_t)SECTOR_SIZE;
	if (r->action == FAULT_TORN)
		hit->cut = cut_of(d, r, rq);
	if (r->action == FAULT_CORRUPT) {
		hit->byte = r->offset != FAULT_RANDOM
				? r->offset
				: rng_below(&r->rng, rq->bytes);
		hit->bit =
		    (unsigned)(r->bit != FAULT_RANDOM ? r->bit
						      : rng_below(&r->rng, 8));
	}
	faults_log_hit(d->conf.faults, rq, hit, (uint8_t)r->action);
}

/* null_queue_rq(): dropped, and after a while it has timed out. */
static void
hit_by_timeout(
    struct faults *f, const struct request *rq, struct fault_hit *hit)
{
	hit->acts = true;
	hit->action = f->timeout_ns == 0 ? FAULT_HANG : FAULT_ERROR;
	hit->delay_ns = f->timeout_ns;
	hit->error = -ETIMEDOUT;
	faults_log_hit(f, rq, hit, FAULT_ENTRY_TIMEOUT);
}

/* It alternates between the core's busy path and the driver's own requeue. */
static void
hit_by_requeue(
    struct faults *f, const struct request *rq, struct fault_hit *hit)
{
	struct fault_hit none = { 0 };

	hit->returns = true;
	hit->at_once = f->requeues++ % 2 == 1;
	faults_log_hit(f, rq, &none, FAULT_ENTRY_REQUEUE);
}

static void
judge_by_rules(
    const struct disk *d, const struct request *rq, struct fault_hit *hit)
{
	struct fault_rule *r;

	TAILQ_FOREACH(r, &d->conf.faults->rules, link)
		if (fires(d, r, rq)) {
			hit_by_rule(d, r, rq, hit);
			return;
		}
}

static struct fault_seen
seen_of(const struct fault_hit *hit)
{
	return (struct fault_seen){
		.id = hit->id,
		.sector = hit->rq->pos >> SECTOR_SHIFT,
		.nr_sectors = hit->rq->bytes >> SECTOR_SHIFT,
		.op = fault_op_name(hit->rq->op),
		.action = fault_action_name(hit->action),
	};
}

/* A rule has hit, for who waits for it. */
static void
tell(const struct disk *d, const struct fault_seen *seen)
{
	const struct faults *f = d->conf.faults;

	if (seen->id != 0 && f->hook != NULL)
		f->hook(f->hook_arg, d, seen);
}

/*
 * What is to become of it; without memory to remember that, nothing.  null_blk
 * has no faults of its own where it has no requests.
 */
static struct fault_hit *
judge(const struct disk *d, struct request *rq)
{
	bool has_own = !d->queue->conf.bio_based;
	struct fault_hit hit = { .rq = rq }, *kept;
	struct fault_seen seen;
	struct faults *f = faults_lock(d->conf.faults);

	f->seq++;
	if (has_own && fault_attr_hits(d->conf.timeout))
		hit_by_timeout(f, rq, &hit);
	if (has_own && fault_attr_hits(d->conf.requeue))
		hit_by_requeue(f, rq, &hit);
	if (!hit.acts)
		judge_by_rules(d, rq, &hit);
	faults_unlock(f);
	if (!hit.acts && !hit.returns)
		return &no_hit;
	if (hit.action != FAULT_HANG) {
		seen = seen_of(&hit);
		tell(d, &seen);
	}
	kept = malloc(sizeof(*kept));
	if (kept == NULL)
		return &no_hit;
	*kept = hit;
	return kept;
}

/* ------------------------------------------------------------ what it does */

static void
mark_drops(const struct fault_hit *hit, struct request *rq)
{
	const struct fault_rule range = {
		.start = hit->start,
		.last = hit->last,
	};
	struct bio *bio;

	STAILQ_FOREACH(bio, &rq->bios, link)
		if (in_range(&range, bio))
			bio->hang_up = (uint8_t)hit->at;
}

static enum verdict
act(const struct fault_hit *hit, struct request *rq)
{
	switch (hit->action) {
	case FAULT_ERROR: rq->error = hit->error; return STAGE_END;
	case FAULT_DELAY:
	case FAULT_HANG:
		rq->error = hit->error;
		return hit->error != 0 ? STAGE_END : STAGE_NEXT;
	case FAULT_DROP: mark_drops(hit, rq); return STAGE_NEXT;
	case FAULT_CORRUPT:
		return rq->op == REQ_OP_READ ? STAGE_NEXT : STAGE_ALTERED;
	case FAULT_LOST: rq->error = 0; return STAGE_END;
	case FAULT_MISDIRECTED: return STAGE_ALTERED;
	case FAULT_TORN:
		rq->error = hit->error;
		rq->cut = hit->cut;
		return hit->cut > 0 ? STAGE_CUT : STAGE_END;
	}
	return STAGE_NEXT;
}

/* Judge it, if it was not, and do what came of it. */
static __attribute__((noinline)) enum verdict
run(struct disk *d, struct request *rq, uint64_t now)
{
	struct fault_hit *hit = rq->priv;

	if (hit == NULL)
		rq->priv = hit = judge(d, rq);
	if (hit->returns) {
		hit->returns = false;
		if (hit->at_once)
			hctx_stop(rq->hctx, now + 1, now);
		return STAGE_REQUEUE;
	}
	return hit->acts ? act(hit, rq) : STAGE_NEXT;
}

bool
fault_is_on(const struct disk *d)
{
	return atomic_load(&d->has_faults);
}

/* The slow part is by itself: saved registers were most of the cost. */
enum verdict
fault_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)cpu;
	if (rq->priv == NULL &&
	    !atomic_load_explicit(&d->has_faults, memory_order_relaxed))
		return STAGE_NEXT;
	return run(d, rq, now);
}

/* ---- something else than it says */

static void
gather(const struct bio *bio, char *to)
{
	struct bvec_iter it = {};
	uint64_t pos = bio->pos, end = bio->pos + bio->bytes, len;
	struct bvec bv;

	if (bio->lent == NULL) {
		for (; bio_next_bvec(bio, &it, &bv); to += bv.len)
			memcpy(to, bv.base, bv.len);
		return;
	}
	for (; pos < end; pos += len, to += len) {
		len = PAGE_SIZE - pos % PAGE_SIZE;
		if (len > end - pos)
			len = end - pos;
		memcpy(to,
		    (char *)bio->lent[(pos >> PAGE_SHIFT) - bio->first_page] +
			pos % PAGE_SIZE,
		    len);
	}
}

/* Give the bio data of its own, the same. */
static int
own_data(struct bio *bio, struct fault_original *o)
{
	o->copy.base = malloc(bio->bytes);
	if (o->copy.base == NULL)
		return -ENOMEM;
	o->copy.len = (uint32_t)bio->bytes;
	gather(bio, o->copy.base);
	bio->bv = &o->copy;
	bio->nr_bv = 1;
	bio->skip = 0;
	bio->lent = NULL;
	return 0;
}

/* Which byte of which bio is it?  Bytes of a request count on over its bios. */
static struct bio *
find_byte(const struct request *rq, uint64_t *byte)
{
	struct bio *bio;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		if (*byte < bio->bytes)
			break;
		*byte -= bio->bytes;
	}
	return bio;
}

static unsigned
count_bios(const struct request *rq)
{
	const struct bio *bio;
	unsigned nr = 0;

	STAILQ_FOREACH(bio, &rq->bios, link)
		nr++;
	return nr;
}

int
fault_alter(struct request *rq)
{
	struct fault_hit *hit = rq->priv;
	uint64_t byte = hit->byte;
	struct fault_original *o;
	struct bio *bio;
	int ret = 0;

	assert(!STAILQ_EMPTY(&rq->bios)); /* it is about data */
	o = hit->original = calloc(count_bios(rq), sizeof(*o));
	if (o == NULL)
		return -ENOMEM;
	rq->pos += (uint64_t)hit->shift;
	STAILQ_FOREACH(bio, &rq->bios, link) {
		*o = (struct fault_original){ bio->bv, bio->nr_bv, bio->skip,
			bio->lent, {} };
		if (ret == 0 && rq->op == REQ_OP_WRITE)
			ret = own_data(bio, o);
		bio->pos += (uint64_t)hit->shift;
		o++;
	}
	if (ret == 0 && hit->action == FAULT_CORRUPT) {
		bio = find_byte(rq, &byte);
		bio->bv->base[byte] ^= (char)(1u << hit->bit);
	}
	return ret;
}

void
fault_restore(struct request *rq)
{
	struct fault_hit *hit = rq->priv;
	struct fault_original *o = hit->original;
	struct bio *bio;

	if (o == NULL)
		return;
	/* an append has moved it to where it went */
	rq->pos -= (uint64_t)hit->shift;
	STAILQ_FOREACH(bio, &rq->bios, link) {
		bio->pos -= (uint64_t)hit->shift;
		bio->bv = o->bv;
		bio->nr_bv = o->nr_bv;
		bio->skip = o->skip;
		bio->lent = o->lent;
		free(o->copy.base);
		o++;
	}
	free(hit->original);
	hit->original = NULL;
}

static void
flip(struct iovec *iov, uint64_t byte, unsigned bit)
{
	for (; byte >= iov->iov_len; iov++)
		byte -= iov->iov_len;
	((char *)iov->iov_base)[byte] ^= (char)(1u << bit);
}

/* In the answer, never in the store. */
static int
flip_read(const struct fault_hit *hit, struct request *rq, struct cpu *cpu)
{
	struct bvec_iter it = {};
	uint64_t byte = hit->byte;
	struct bio *bio = find_byte(rq, &byte);
	struct bvec bv;

	if (bio->iov != NULL) {
		if (!read_unshare(bio, cpu))
			return -ENOMEM;
		flip(bio->iov, byte, hit->bit);
		return 0;
	}
	while (bio_next_bvec(bio, &it, &bv)) {
		assert(bv.base != NULL);
		if (byte < bv.len) {
			bv.base[byte] ^= (char)(1u << hit->bit);
			break;
		}
		byte -= bv.len;
	}
	bio->hole = false;
	return 0;
}

/* ---- its end */

/*
 * It hangs, unless nobody waits for it: then it ends with an error; or its rule
 * is gone: then as if that had let it go.
 */
static bool
hang(const struct disk *d, struct fault_hit *hit)
{
	struct fault_seen seen = seen_of(hit); /* it may be gone by then */
	struct faults *f = d->conf.faults;
	struct request *rq = hit->rq;
	struct fault_rule *r;
	uint64_t id = hit->id;
	bool forsaken, hangs;

	faults_lock(f);
	r = faults_find(f, id);
	forsaken = f->hurry || rq_given_up(rq);
	hangs = !forsaken && (r != NULL || id == 0);
	if (r != NULL)
		r->done++;
	if (hangs)
		TAILQ_INSERT_TAIL(&f->hung, hit, link);
	faults_unlock(f);
	if (forsaken)
		rq->error = -ESHUTDOWN;
	tell(d, &seen);
	return hangs;
}

bool
fault_end(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t *delay_ns)
{
	struct fault_hit *hit = rq->priv;

	rq->priv = NULL;
	if (hit == &no_hit)
		return true;
	if (hit->acts && hit->action == FAULT_HANG && hang(d, hit))
		return false; /* it may be gone by now */
	if (hit->acts && hit->action == FAULT_CORRUPT &&
	    rq->op == REQ_OP_READ && rq->error == 0)
		rq->error = flip_read(hit, rq, cpu);
	*delay_ns = hit->delay_ns;
	free(hit);
	return true;
}

void
fault_abandon(struct disk *d)
{
	faults_let_go_given_up(d->faults); /* d->conf may just be changing */
}

void
fault_hurry(struct disk *d)
{
	struct faults *f = faults_lock(d->set.faults);

	f->hurry = true;
	faults_unlock(f);
	faults_let_go(f, 0, -ESHUTDOWN);
}

/* ---------------------------------------------------------------- the disk */

void
fault_arm(struct disk *d)
{
	struct faults *f = faults_lock(d->conf.faults);
	bool has = f->nr_rules > 0 ||
		   atomic_load(&d->conf.timeout->probability) > 0 ||
		   atomic_load(&d->conf.requeue->probability) > 0;

	f->timeout_ns = d->conf.timeout_nsec;
	atomic_store(&d->has_faults, has);
	faults_unlock(f);
}

int
fault_power_on(struct disk *d, uint64_t now, char *err, size_t errlen)
{
	uint64_t seed = d->set.seed;
	struct faults *f = d->conf.faults;
	struct fault_rule *r;

	if (seed == 0)
		seed = rng_stream(now, (uint64_t)d->name[0]).state >> 32 | 1;
	d->conf.seed = seed;
	d->faults = f;
	faults_lock(f);
	f->seed = seed;
	f->seq = 0;
	f->requeues = 0;
	f->nr_log = 0;
	f->hurry = false;
	TAILQ_FOREACH(r, &f->rules, link)
		fault_rule_begin(r, seed);
	faults_unlock(f);
	fault_attr_seed(
	    d->conf.timeout, rng_stream(seed, STREAM(STREAM_TIMEOUT)));
	fault_attr_seed(
	    d->conf.requeue, rng_stream(seed, STREAM(STREAM_REQUEUE)));
	fault_attr_seed(
	    d->conf.init_hctx, rng_stream(seed, STREAM(STREAM_INIT_HCTX)));
	for (uint32_t i = 0; i < d->conf.submit_queues; i++)
		if (fault_attr_hits(d->conf.init_hctx))
			return refuse(err, errlen, -EFAULT,
			    "init_hctx: hardware queue %" PRIu32
			    " fails, as it was asked to",
			    i);
	return 0;
}
