/* SPDX-License-Identifier: MIT */
/*
 * Merging a bio into a request that waits: who may (3.2), in which direction
 * (3.3), and what limits say (3.4).
 */
#include "blk/internal.h"

#define NOT_REFUSED REFUSED_NR

bool
rq_mergeable(const struct request *rq)
{
	if (rq->op == REQ_OP_FLUSH || rq->op == REQ_OP_WRITE_ZEROES)
		return false;
	if (rq->flags & (REQ_NOMERGE | REQ_PREFLUSH | REQ_FUA))
		return false;
	return (rq->rq_flags & (RQF_STARTED | RQF_FLUSH_SEQ)) == 0;
}

static bool
bio_mergeable(const struct bio *bio)
{
	return (bio->flags & (REQ_NOMERGE | REQ_PREFLUSH | REQ_FUA)) == 0;
}

bool
rq_merge_ok(const struct request *rq, const struct bio *bio)
{
	if (!rq_mergeable(rq) || !bio_mergeable(bio))
		return false;
	if (rq->op != bio->op)
		return false;
	return rq->prio == bio->prio ||
	       !rq->hctx->queue->profile->ioprio_must_match;
}

enum merge
rq_try_merge(const struct request *rq, const struct bio *bio)
{
	if (rq->op == REQ_OP_DISCARD &&
	    rq->hctx->queue->limits.max_discard_segments > 1)
		return DISCARD_MERGE;
	if (rq->pos + rq->bytes == bio->pos)
		return BACK_MERGE;
	if (bio->pos + bio->bytes == rq->pos)
		return FRONT_MERGE;
	return NO_MERGE;
}

/*
 * bio_will_gap(): would the virt boundary be violated at the seam?  `first`
 * is the bio that the request would start with.
 */
static bool
seam_gap(const struct queue *q, const struct bio *first, const struct bio *prev,
    const struct bio *next)
{
	struct bvec_iter it = { 0 }, next_it = { 0 };
	struct bvec head = { 0 }, a = { 0 }, b = { 0 };

	if (q->limits.virt_boundary_mask == 0 || prev->nr_bv == 0)
		return false;
	bio_next_bvec(first, &it, &head);
	if ((head.phys & (PAGE_SIZE - 1) & q->limits.virt_boundary_mask) != 0)
		return true;
	bio_last_bvec(prev, &a);
	bio_next_bvec(next, &next_it, &b);
	if (bvec_phys_mergeable(&q->limits, &a, &b))
		return false;
	return bvec_gap(q, &a, &b);
}

static uint64_t
sectors(uint64_t bytes)
{
	return (bytes + SECTOR_SIZE - 1) >> SECTOR_SHIFT;
}

/* It sticks: nothing merges with it any more. */
static enum refusal
refuse_for_good(struct request *rq, enum refusal cause)
{
	rq->flags |= REQ_NOMERGE;
	return cause;
}

/* ll_back_merge_fn(), ll_front_merge_fn(): does a limit refuse? */
static enum refusal
check_limits(struct request *rq, const struct bio *bio, uint64_t pos)
{
	const struct queue *q = rq->hctx->queue;
	sector_t sector = pos >> SECTOR_SHIFT;
	unsigned segs = bio->nr_segs;

	if (rq->op == REQ_OP_DISCARD && !q->profile->discard_adds_segments)
		segs = 0;
	if (sectors(rq->bytes + bio->bytes) >
	    queue_max_sectors(q, rq->op, sector))
		return refuse_for_good(rq, queue_chunk_limits(q, rq->op, sector)
					       ? REFUSED_CHUNK
					       : REFUSED_SIZE);
	if (rq->nr_segs + segs > q->limits.max_segments)
		return refuse_for_good(rq, REFUSED_SEGMENTS);
	rq->nr_segs += segs;
	return NOT_REFUSED;
}

/* ioprio_best(): of two classes; none counts as best effort */
static uint8_t
better_prio(uint8_t a, uint8_t b)
{
	uint8_t class_a = a == IOPRIO_NONE ? IOPRIO_BE : a;
	uint8_t class_b = b == IOPRIO_NONE ? IOPRIO_BE : b;

	return class_b < class_a ? b : a;
}

static enum refusal
back_merge(struct request *rq, struct bio *bio)
{
	const struct bio *first = STAILQ_FIRST(&rq->bios);
	enum refusal cause;

	if (seam_gap(rq->hctx->queue, first, rq_last_bio(rq), bio))
		return REFUSED_GAP;
	cause = check_limits(rq, bio, rq->pos);
	if (cause == NOT_REFUSED)
		STAILQ_INSERT_TAIL(&rq->bios, bio, link);
	return cause;
}

static enum refusal
front_merge(struct request *rq, struct bio *bio)
{
	const struct bio *first = STAILQ_FIRST(&rq->bios);
	enum refusal cause;

	if (seam_gap(rq->hctx->queue, bio, bio, first))
		return REFUSED_GAP;
	cause = check_limits(rq, bio, bio->pos);
	if (cause == NOT_REFUSED) {
		STAILQ_INSERT_HEAD(&rq->bios, bio, link);
		rq->pos = bio->pos;
	}
	return cause;
}

/* bio_attempt_discard_merge(): one more range, wherever it lies */
static enum refusal
discard_merge(struct request *rq, struct bio *bio)
{
	const struct limits *lim = &rq->hctx->queue->limits;

	if (sectors(rq->bytes + bio->bytes) > lim->max_discard_sectors)
		return refuse_for_good(rq, REFUSED_SIZE);
	if (rq->nr_segs >= lim->max_discard_segments)
		return refuse_for_good(rq, REFUSED_SEGMENTS);
	rq->nr_segs++;
	STAILQ_INSERT_TAIL(&rq->bios, bio, link);
	return NOT_REFUSED;
}

/* It fits, but the request does not merge. */
static void
note_unmergeable(
    const struct request *rq, const struct bio *bio, struct ctx *ctx)
{
	if (rq->op != bio->op || rq_try_merge(rq, bio) == NO_MERGE)
		return;
	stat_refuse(ctx, rq_mergeable(rq) ? REFUSED_PRIORITY : REFUSED_CLOSED);
}

enum merge_result
rq_attempt_merge(
    struct request *rq, struct bio *bio, struct ctx *ctx, uint64_t now)
{
	enum refusal cause = NOT_REFUSED;
	enum merge how;

	if (!rq_merge_ok(rq, bio)) {
		note_unmergeable(rq, bio, ctx);
		return MERGE_NONE;
	}
	how = rq_try_merge(rq, bio);
	switch (how) {
	case NO_MERGE: return MERGE_NONE;
	case BACK_MERGE: cause = back_merge(rq, bio); break;
	case FRONT_MERGE: cause = front_merge(rq, bio); break;
	case DISCARD_MERGE: cause = discard_merge(rq, bio); break;
	}
	if (cause != NOT_REFUSED) {
		stat_refuse(ctx, cause);
		return MERGE_FAILED;
	}
	if (how != DISCARD_MERGE) /* which the kernel does not trace */
		trace_bio(ctx,
		    how == BACK_MERGE ? TRACE_BACKMERGE : TRACE_FRONTMERGE, bio,
		    now);
	rq->bytes += bio->bytes;
	rq->prio = better_prio(rq->prio, bio->prio);
	if (rq->rq_flags & RQF_IO_STAT)
		stat_merge(ctx, rq->op, now);
	return MERGE_OK;
}

/* attempt_merge(): may these two be one request at all? */
static bool
rqs_merge_ok(const struct request *rq, const struct request *next)
{
	const struct queue *q = rq->hctx->queue;

	if (!rq_mergeable(rq) || !rq_mergeable(next) || rq->op != next->op)
		return false;
	return rq->prio == next->prio || !q->profile->ioprio_must_match;
}

/* A discard of ranges that need not be adjacent? */
static bool
is_multi_range(const struct request *rq)
{
	return rq->op == REQ_OP_DISCARD &&
	       rq->hctx->queue->limits.max_discard_segments > 1;
}

/* blk_try_req_merge(), and ll_merge_requests_fn() or its like for discards */
static bool
rqs_fit(const struct request *rq, const struct request *next)
{
	const struct queue *q = rq->hctx->queue;
	const struct limits *lim = &q->limits;
	uint64_t total = sectors(rq->bytes + next->bytes);
	const struct bio *first = STAILQ_FIRST(&rq->bios);

	if (is_multi_range(rq))
		return rq->nr_segs + next->nr_segs <=
			   lim->max_discard_segments &&
		       total <= lim->max_discard_sectors;
	return rq->pos + rq->bytes == next->pos &&
	       !seam_gap(
		   q, first, rq_last_bio(rq), STAILQ_FIRST(&next->bios)) &&
	       total <= queue_max_sectors(q, rq->op, rq_sector(rq));
}

/*
 * 4.14: does the first bio of `next` go on in the segment that `rq` ends in?
 * Its seam is one segment then, if it is not too long for one.
 */
static bool
seam_is_one_segment(const struct request *rq, const struct request *next)
{
	const struct limits *lim = &rq->hctx->queue->limits;
	const struct bio *last = rq_last_bio(rq);
	const struct bio *first = STAILQ_FIRST(&next->bios);
	struct bvec_iter it = { 0 };
	uint64_t front, back, other;
	struct bvec a, b;

	if (last->nr_bv == 0 || first->nr_bv == 0)
		return true; /* blk_phys_contig_segment(): no data */
	bio_last_bvec(last, &a);
	bio_next_bvec(first, &it, &b);
	bio_edge_segments(last, lim, &other, &back);
	bio_edge_segments(first, lim, &front, &other);
	return bvec_phys_mergeable(lim, &a, &b) &&
	       back + front <= lim->max_segment_size;
}

bool
rq_merge_next(
    struct request *rq, struct request *next, struct cpu *cpu, uint64_t now)
{
	const struct queue *q = rq->hctx->queue;
	unsigned segs, max;

	if (!rqs_merge_ok(rq, next) || !rqs_fit(rq, next))
		return false;
	segs = rq->nr_segs + next->nr_segs;
	if (q->profile->seam_saves_segment && !is_multi_range(rq) &&
	    seam_is_one_segment(rq, next))
		segs--;
	max = q->limits.max_segments;
	if (rq->op == REQ_OP_DISCARD && !q->profile->discard_adds_segments)
		max = q->limits.max_discard_segments;
	if (segs > max)
		return false;
	rq->nr_segs = segs;
	if (q->profile->request_merges_count)
		trace_rq(q->ctx[cpu->id], TRACE_BACKMERGE, next, now);
	STAILQ_CONCAT(&rq->bios, &next->bios);
	rq->bytes += next->bytes;
	rq->prio = better_prio(rq->prio, next->prio);
	if (next->start_ns < rq->start_ns)
		rq->start_ns = next->start_ns;
	stat_merge_request(q->ctx[cpu->id], next, now);
	return true;
}

/* May the bvec go into the scatter-gather entry that ends with prev? */
static bool
sg_joins(const struct limits *lim, const struct bvec *prev,
    const struct bvec *bv, uint64_t sg_len)
{
	return sg_len + bv->len <= lim->max_segment_size &&
	       bvec_phys_mergeable(lim, prev, bv);
}

unsigned
rq_sg_entries(const struct request *rq)
{
	const struct queue *q = rq->hctx->queue;
	const struct limits *lim = &q->limits;
	const struct bio *bio;
	struct bvec bv, prev = { 0 };
	uint64_t sg_len = 0, done, seg;
	unsigned nr = 0;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		struct bvec_iter it = { 0 };

		while (bio_next_bvec(bio, &it, &bv)) {
			/* runs were joined when they were added to the bio */
			bool may_join =
			    prev.len > 0 && (it.idx == 1 || !q->conf.multipage);

			if (may_join && sg_joins(lim, &prev, &bv, sg_len)) {
				sg_len += bv.len;
				prev = bv;
				continue;
			}
			for (done = 0; done < bv.len; done += seg) {
				seg = segment_max(lim, bv.phys + done);
				if (seg > bv.len - done)
					seg = bv.len - done;
				sg_len = seg;
				nr++;
			}
			prev = bv;
		}
	}
	return nr;
}
