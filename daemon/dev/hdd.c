/* SPDX-License-Identifier: MIT */
/*
 * A rotating disk: how long its arm and its platter take.
 *
 *	seek        up to a third of the way as a + b * sqrt(distance), for the
 *	            arm speeds up and slows down; beyond that linear, at full
 *	            speed.  Tracks next to each other cost nothing: a switch of
 *	            heads is in the rate, as data sheets have it.
 *	rotation    the platter is where the time says it is
 *	transfer    16 zones, from the outer rate to the inner one; a track is
 *	            what passes in a turn
 *	read-ahead  behind a read the head goes on reading, until there is
 *	            something else to do or the buffer is full
 *
 * Nothing here keeps time or waits: it says when a request that the arm begins
 * with is done, and where the arm is then.  Who goes first is up to parts.c.
 */
#include <math.h>

#include "base/util.h"
#include "dev/dev.h"

#define NR_ZONES 16u
#define NEAR_NS  1000u /* a gap between sectors: the head is still in time */

/* Where tracks begin, and how long they are. */
struct zone {
	uint64_t start;
	double track; /* bytes */
};

void
hdd_init(struct hdd *h, const struct hdd_conf *c, uint64_t size)
{
	*h = (struct hdd){
		.conf = *c,
		.size = size,
		.turn_ns = UINT64_C(60000000000) / c->rpm,
	};
}

static struct zone
zone_of(const struct hdd *h, uint64_t pos)
{
	uint64_t zone_size = h->size / NR_ZONES + 1, i = pos / zone_size;
	double outer = h->conf.mbps, inner = h->conf.inner_mbps, mbps;

	mbps = outer - (outer - inner) * (double)i / (NR_ZONES - 1);
	return (struct zone){
		.start = i * zone_size,
		.track = mbps * (1 << 20) * (double)h->turn_ns / 1e9,
	};
}

static uint64_t
transfer_ns(const struct hdd *h, uint64_t pos, uint64_t bytes)
{
	struct zone z = zone_of(h, pos);

	return (uint64_t)((double)bytes / z.track * (double)h->turn_ns);
}

uint64_t
hdd_seek(const struct hdd *h, uint64_t from, uint64_t to)
{
	uint64_t way = from < to ? to - from : from - to;
	double track = (double)h->conf.track_ns, seek = (double)h->conf.seek_ns;
	double stroke = (double)h->conf.stroke_ns, x;

	if ((double)way < zone_of(h, to).track)
		return 0;
	x = 3.0 * (double)way / (double)h->size;
	if (x < 1)
		return (uint64_t)(track + (seek - track) * sqrt(x));
	return (uint64_t)(seek + (stroke - seek) * (x - 1) / 2);
}

/* Until this byte comes by. */
static uint64_t
rotation_ns(const struct hdd *h, uint64_t at, uint64_t pos)
{
	struct zone z = zone_of(h, pos);
	double tracks = (double)(pos - z.start) / z.track;
	uint64_t angle =
	    (uint64_t)((tracks - floor(tracks)) * (double)h->turn_ns);
	uint64_t wait = (angle + h->turn_ns - at % h->turn_ns) % h->turn_ns;

	return wait + NEAR_NS >= h->turn_ns ? 0 : wait;
}

/* How far the head has read ahead by then. */
static uint64_t
ahead_at(const struct hdd *h, uint64_t at)
{
	const struct hdd_ahead *a = &h->ahead;
	double bytes;

	if (at <= a->ns)
		return a->from;
	bytes = (double)(at - a->ns) / (double)h->turn_ns *
		zone_of(h, a->from).track;
	return bytes < (double)(a->limit - a->from) ? a->from + (uint64_t)bytes
						    : a->limit;
}

static uint64_t
head_at(const struct hdd *h, uint64_t at)
{
	return h->ahead.on ? ahead_at(h, at) : h->pos;
}

/* Is it in the buffer, or sooner there than the arm could be? */
static bool
is_ahead(const struct hdd *h, uint64_t at, uint64_t pos)
{
	return h->ahead.on && pos >= h->ahead.first &&
	       (double)pos <= (double)ahead_at(h, at) + zone_of(h, pos).track;
}

/* The buffer has room for what lies behind `end`, since that was taken. */
static void
slide(struct hdd *h, uint64_t at, uint64_t end)
{
	struct hdd_ahead *a = &h->ahead;

	if (ahead_at(h, at) == a->limit) { /* it has stopped, and begins anew */
		a->from = a->limit;
		a->ns = at + rotation_ns(h, at, a->limit);
	}
	if (end + h->conf.cache > a->limit)
		a->limit = least(end + h->conf.cache, h->size);
	if (end > h->conf.cache && end - h->conf.cache > a->first)
		a->first = end - h->conf.cache;
}

static uint64_t
read_ahead(struct hdd *h, uint64_t at, uint64_t pos, uint64_t bytes)
{
	uint64_t end = pos + bytes, done;

	slide(h, at, end);
	if (end <= h->ahead.from)
		return at;
	done = h->ahead.ns + transfer_ns(h, h->ahead.from, end - h->ahead.from);
	return done > at ? done : at;
}

static uint64_t
move_arm(struct hdd *h, uint64_t at, uint64_t pos, uint64_t bytes)
{
	at += hdd_seek(h, head_at(h, at), pos);
	at += rotation_ns(h, at, pos) + transfer_ns(h, pos, bytes);
	h->pos = pos + bytes;
	return at;
}

uint64_t
hdd_serve(struct hdd *h, uint64_t at, bool reads, uint64_t pos, uint64_t bytes)
{
	uint64_t end = pos + bytes;

	if (reads && is_ahead(h, at, pos)) {
		h->free_ns = read_ahead(h, at, pos, bytes);
		return h->free_ns;
	}
	h->free_ns = move_arm(h, at, pos, bytes);
	h->ahead = (struct hdd_ahead){
		.on = reads && h->conf.cache > 0,
		.first = pos,
		.from = end,
		.ns = h->free_ns,
		.limit = least(end + h->conf.cache, h->size),
	};
	return h->free_ns;
}
