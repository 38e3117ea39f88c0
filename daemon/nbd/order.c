/* SPDX-License-Identifier: MIT */
/*
 * The order of effects: what overlaps a part whose data has not moved yet
 * waits for it, unless both read.  Hardly anything ever overlaps, so the
 * usual question is answered by a few bits: a bit for each page, modulo
 * ORDER_BITS, that a tracked part touches.  Bits are not taken back one by
 * one; they are made anew when they say yes, or when many parts have come.
 *
 * Where there are zones, what is written next in one comes after what was
 * written before: a change touches all of its zones.
 */
#include "nbd/session.h"

#include <assert.h>

#define MIN_MARKS 256u /* so many bits set are one in sixteen */

void
order_init(struct order *o)
{
	memset(o, 0, sizeof(*o));
	TAILQ_INIT(&o->parts);
	o->max_marks = MIN_MARKS;
}

static uint64_t
zone_start(const struct order *o, uint64_t pos)
{
	return o->zone_bytes != 0 ? pos - pos % o->zone_bytes : pos;
}

static uint64_t
zone_end(const struct order *o, uint64_t end)
{
	return o->zone_bytes != 0 ? zone_start(o, end - 1) + o->zone_bytes
				  : end;
}

/* The bits of a part: were any set?  `set` sets them. */
static bool
mark(struct order *o, const struct part *p, bool set)
{
	bool changes = p->bio.op != REQ_OP_READ;
	uint64_t page =
	    (changes ? zone_start(o, p->pos) : p->pos) >> PAGE_SHIFT;
	uint64_t last =
	    ((changes ? zone_end(o, p->end) : p->end) - 1) >> PAGE_SHIFT;
	uint64_t nr = last - page + 1;
	uint64_t found = 0;

	assert(p->end > p->pos);
	if (nr > ORDER_BITS)
		nr = ORDER_BITS;
	while (nr > 0) {
		uint64_t *word = &o->bits[page / 64 % (ORDER_BITS / 64)];
		unsigned bit = page % 64;
		unsigned n = nr < 64 - bit ? (unsigned)nr : 64 - bit;
		uint64_t mask;

		assert(n > 0);
		assert(n <= 64);
		mask = (~UINT64_C(0) >> (64 - n)) << bit;
		found |= *word & mask;
		if (set)
			*word |= mask;
		page += n;
		nr -= n;
	}
	return found != 0;
}

static void
unlink_part(struct order *o, struct part *p)
{
	TAILQ_REMOVE(&o->parts, p, link);
	p->tracked = false;
	if (p->bio.op != REQ_OP_READ)
		o->nr_changes--;
}

/* Let go what has moved, and make the bits of what has not. */
static void
settle(struct order *o)
{
	struct part *p, *next;

	memset(o->bits, 0, sizeof(o->bits));
	o->nr_marks = 0;
	for (p = TAILQ_FIRST(&o->parts); p != NULL; p = next) {
		next = TAILQ_NEXT(p, link);
		if (bio_moved(&p->bio)) {
			unlink_part(o, p);
			continue;
		}
		mark(o, p, true);
		o->nr_marks++;
	}
	o->max_marks = MIN_MARKS + 2 * o->nr_marks;
}

bool
order_overlap(
    const struct order *o, const struct part *p, uint64_t pos, uint64_t end)
{
	if (p->bio.op == REQ_OP_READ || p->pos == p->end)
		return p->pos < end && pos < p->end;
	return zone_start(o, p->pos) < zone_end(o, end) &&
	       zone_start(o, pos) < zone_end(o, p->end);
}

static bool
conflict(const struct order *o, const struct part *a, const struct part *b)
{
	if (a->bio.op != REQ_OP_READ)
		return order_overlap(o, b, a->pos, a->end);
	return b->bio.op != REQ_OP_READ && order_overlap(o, a, b->pos, b->end);
}

bool
order_allows(struct order *o, const struct part *p)
{
	const struct part *earlier;

	if (TAILQ_EMPTY(&o->parts) || p->pos == p->end)
		return true;
	if (o->nr_changes == 0 && p->bio.op == REQ_OP_READ)
		return true;
	if (!mark(o, p, false))
		return true;
	settle(o);
	TAILQ_FOREACH(earlier, &o->parts, link)
		if (conflict(o, earlier, p))
			return false;
	return true;
}

void
order_add(struct order *o, struct part *p)
{
	if (p->pos == p->end)
		return; /* a flush overlaps nothing */
	if (o->nr_marks >= o->max_marks ||
	    (o->nr_marks > 0 && TAILQ_EMPTY(&o->parts)))
		settle(o);
	TAILQ_INSERT_TAIL(&o->parts, p, link);
	p->tracked = true;
	if (p->bio.op != REQ_OP_READ)
		o->nr_changes++;
	mark(o, p, true);
	o->nr_marks++;
}

void
order_remove(struct order *o, struct part *p)
{
	if (p->tracked)
		unlink_part(o, p);
}
