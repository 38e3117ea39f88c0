/* SPDX-License-Identifier: MIT */
/*
 * How much of a bio may go as one request: sections 2.1 to 2.6.  There are
 * two counters of segments, as there were two ages: one walks runs of pages
 * (multipage), one walks page by page and joins what touches (single-page).
 */
#include "blk/internal.h"

#include <assert.h>

void
limits_init(struct limits *lim)
{
	*lim = (struct limits){
		.logical_block_size = SECTOR_SIZE,
		.physical_block_size = SECTOR_SIZE,
		.max_sectors = BLK_SAFE_MAX_SECTORS,
		.max_segments = 128,
		.max_segment_size = 65536,
		.seg_boundary_mask = UINT32_MAX,
		.max_discard_segments = 1,
	};
}

static uint32_t
round_down(uint32_t n, uint32_t to)
{
	return n - n % to;
}

/* Sectors left in the chunk from `sector` on. */
static uint32_t
chunk_left(const struct limits *lim, sector_t sector)
{
	return lim->chunk_sectors - (uint32_t)(sector % lim->chunk_sectors);
}

bool
queue_chunk_limits(const struct queue *q, enum req_op op, sector_t sector)
{
	const struct limits *lim = &q->limits;

	return lim->chunk_sectors != 0 &&
	       (op == REQ_OP_READ || op == REQ_OP_WRITE) &&
	       chunk_left(lim, sector) < lim->max_sectors;
}

uint32_t
queue_max_sectors(const struct queue *q, enum req_op op, sector_t sector)
{
	const struct limits *lim = &q->limits;

	if (op == REQ_OP_DISCARD)
		return lim->max_discard_sectors;
	if (op == REQ_OP_WRITE_ZEROES)
		return lim->max_write_zeroes_sectors;
	if (queue_chunk_limits(q, op, sector))
		return chunk_left(lim, sector);
	return lim->max_sectors;
}

/* get_max_io_size(): sectors of the largest first piece (2.2). */
static uint32_t
max_io_sectors(const struct bio *bio, const struct queue *q)
{
	const struct limits *lim = &q->limits;
	sector_t sector = bio->pos >> SECTOR_SHIFT;
	uint32_t lbs = lim->logical_block_size >> SECTOR_SHIFT;
	uint32_t pbs = lim->physical_block_size >> SECTOR_SHIFT;
	uint32_t max = queue_max_sectors(q, bio->op, sector), start, end;

	if (q->profile->split_to_physical_block) {
		start = (uint32_t)(sector & (pbs - 1));
		end = round_down(start + max, pbs);
		if (end > start)
			return end - start;
	}
	/* a chunk may leave less than a block to a bio that starts unaligned */
	return max > lbs ? round_down(max, lbs) : max;
}

/* The same in bytes: a position within a sector makes its first one short. */
static uint64_t
max_io_bytes(const struct bio *bio, const struct queue *q)
{
	return ((uint64_t)max_io_sectors(bio, q) << SECTOR_SHIFT) -
	       (bio->pos & (SECTOR_SIZE - 1));
}

static uint32_t
page_offset(const struct bvec *bv)
{
	return (uint32_t)(bv->phys & (PAGE_SIZE - 1));
}

bool
bvec_gap(const struct queue *q, const struct bvec *a, const struct bvec *b)
{
	uint64_t mask = q->limits.virt_boundary_mask;
	uint64_t starts = page_offset(b);

	if (mask == 0)
		return false;
	if (!q->profile->gap_any_offset)
		starts &= mask;
	return starts != 0 || ((page_offset(a) + a->len) & mask) != 0;
}

static bool
same_window(const struct limits *lim, uint64_t first, uint64_t last)
{
	return (first | lim->seg_boundary_mask) ==
	       (last | lim->seg_boundary_mask);
}

bool
bvec_phys_mergeable(
    const struct limits *lim, const struct bvec *a, const struct bvec *b)
{
	return a->phys + a->len == b->phys &&
	       same_window(lim, a->phys, b->phys + b->len - 1);
}

/* What the walk over the bvecs has taken so far. */
struct taken {
	uint64_t bytes;
	unsigned segs;
	enum split_cause cause; /* of the split, if there is one */
};

uint64_t
segment_max(const struct limits *lim, uint64_t phys)
{
	uint64_t window = lim->seg_boundary_mask -
			  (phys & lim->seg_boundary_mask); /* less one */

	if (window >= lim->max_segment_size)
		return lim->max_segment_size;
	return window + 1;
}

/* bvec_split_segs(): take what fits of a run; false if that is not all. */
static bool
take_run(struct taken *t, const struct limits *lim, const struct bvec *bv,
    uint64_t max_bytes)
{
	uint64_t room = max_bytes - t->bytes, done = 0, seg;
	uint64_t len = bv->len < room ? bv->len : room;

	while (done < len && t->segs < lim->max_segments) {
		seg = segment_max(lim, bv->phys + done);
		if (seg > len - done)
			seg = len - done;
		t->segs++;
		done += seg;
		if (((page_offset(bv) + done) & lim->virt_boundary_mask) != 0)
			break;
	}
	t->bytes += done;
	if (done == bv->len)
		return true;
	if (done == room)
		t->cause = SPLIT_SIZE;
	else if (t->segs == lim->max_segments)
		t->cause = SPLIT_SEGMENTS;
	else
		t->cause = SPLIT_GAP;
	return false;
}

/* bio_split_rw_at() (2.3) */
static bool
take_runs(struct taken *t, const struct bio *bio, const struct queue *q,
    uint64_t max_bytes)
{
	const struct limits *lim = &q->limits;
	struct bvec_iter it = { 0 };
	struct bvec bv, prev = { 0 };

	while (bio_next_bvec(bio, &it, &bv)) {
		if (prev.len > 0 && bvec_gap(q, &prev, &bv)) {
			t->cause = SPLIT_GAP;
			return false;
		}
		if (t->segs < lim->max_segments &&
		    t->bytes + bv.len <= max_bytes &&
		    page_offset(&bv) + bv.len <= PAGE_SIZE) {
			t->segs++;
			t->bytes += bv.len;
		} else if (!take_run(t, lim, &bv, max_bytes)) {
			return false;
		}
		prev = bv;
	}
	return true;
}

/* 4.14's blk_bio_segment_split() (2.4) */
static bool
take_pages(struct taken *t, const struct bio *bio, const struct queue *q,
    uint64_t max_bytes)
{
	const struct limits *lim = &q->limits;
	struct bvec_iter it = { 0 };
	struct bvec bv, prev = { 0 };
	uint64_t seg = 0;

	while (bio_next_bvec(bio, &it, &bv)) {
		if (prev.len > 0 && bvec_gap(q, &prev, &bv)) {
			t->cause = SPLIT_GAP;
			return false;
		}
		if (t->bytes + bv.len > max_bytes) {
			/* the part that fits counts as one more segment */
			if (t->segs < lim->max_segments &&
			    t->bytes < max_bytes) {
				t->segs++;
				t->bytes = max_bytes;
			}
			t->cause = SPLIT_SIZE;
			return false;
		}
		if (prev.len > 0 && seg + bv.len <= lim->max_segment_size &&
		    bvec_phys_mergeable(lim, &prev, &bv)) {
			seg += bv.len;
		} else if (t->segs == lim->max_segments) {
			t->cause = SPLIT_SEGMENTS;
			return false;
		} else {
			t->segs++;
			seg = bv.len;
		}
		t->bytes += bv.len;
		prev = bv;
	}
	return true;
}

void
bio_edge_segments(const struct bio *bio, const struct limits *lim,
    uint64_t *front, uint64_t *back)
{
	struct bvec_iter it = { 0 };
	struct bvec bv, prev = { 0 };

	*front = *back = 0;
	while (bio_next_bvec(bio, &it, &bv)) {
		if (prev.len > 0 && *back + bv.len <= lim->max_segment_size &&
		    bvec_phys_mergeable(lim, &prev, &bv)) {
			*back += bv.len;
		} else {
			if (*front == 0)
				*front = *back;
			*back = bv.len;
		}
		prev = bv;
	}
	if (*front == 0)
		*front = *back;
}

static uint64_t
read_write_fits(const struct bio *bio, const struct queue *q, unsigned *nr_segs,
    enum split_cause *cause)
{
	const struct limits *lim = &q->limits;
	uint64_t max_bytes = max_io_bytes(bio, q), end;
	struct taken t = { 0 };
	bool whole;

	whole = q->conf.multipage ? take_runs(&t, bio, q, max_bytes)
				  : take_pages(&t, bio, q, max_bytes);
	*nr_segs = t.segs;
	*cause = t.cause;
	if (whole)
		return bio->bytes;
	if (t.cause == SPLIT_SIZE &&
	    queue_chunk_limits(q, bio->op, bio->pos >> SECTOR_SHIFT))
		*cause = SPLIT_CHUNK;
	assert(t.bytes > 0);
	end = (bio->pos + t.bytes) & ~(uint64_t)(lim->logical_block_size - 1);
	/* a gap within the first block leaves nothing to round down to */
	return end > bio->pos ? end - bio->pos : t.bytes;
}

/* bio_split_discard() (2.6) */
static uint64_t
discard_fits(const struct bio *bio, const struct queue *q)
{
	const struct limits *lim = &q->limits;
	uint64_t granularity = lim->discard_granularity >> SECTOR_SHIFT;
	uint64_t max, over;

	if (lim->zoned) /* cut between zones */
		granularity = lim->chunk_sectors;
	if (granularity == 0)
		granularity = 1;
	max = lim->max_discard_sectors - lim->max_discard_sectors % granularity;
	if (max == 0 || bio->bytes <= max << SECTOR_SHIFT)
		return bio->bytes;
	over = (bio->pos >> SECTOR_SHIFT) + max -
	       (lim->discard_alignment >> SECTOR_SHIFT) % granularity;
	over %= granularity;
	if (max > over)
		max -= over;
	return (max << SECTOR_SHIFT) - (bio->pos & (SECTOR_SIZE - 1));
}

static uint64_t
write_zeroes_fits(const struct bio *bio, const struct queue *q)
{
	uint64_t max = max_io_bytes(bio, q);

	return bio->bytes < max ? bio->bytes : max;
}

/* 6.12's bio_may_need_split(): one bvec in one page needs no look (2.3). */
static bool
is_one_page(const struct bio *bio)
{
	return bio->nr_bv == 1 && bio->parent == NULL &&
	       STAILQ_EMPTY(&bio->pieces) &&
	       page_offset(bio->bv) + bio->bv->len <= PAGE_SIZE;
}

uint64_t
bio_fits(const struct bio *bio, const struct queue *q, unsigned *nr_segs,
    enum split_cause *cause)
{
	*cause = SPLIT_SIZE;
	*nr_segs = 1;
	switch ((enum req_op)bio->op) {
	case REQ_OP_READ:
	case REQ_OP_WRITE:
		if (q->profile->split_skips_one_page &&
		    q->limits.chunk_sectors == 0 && is_one_page(bio))
			return bio->bytes;
		return read_write_fits(bio, q, nr_segs, cause);
	case REQ_OP_DISCARD: return discard_fits(bio, q);
	case REQ_OP_WRITE_ZEROES:
		*nr_segs = q->profile->write_zeroes_segment ? 1 : 0;
		return write_zeroes_fits(bio, q);
	case REQ_OP_FLUSH:
	case REQ_OP_NR: break;
	}
	*nr_segs = 0;
	return bio->bytes;
}
