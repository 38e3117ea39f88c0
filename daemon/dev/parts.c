/* SPDX-License-Identifier: MIT */
/*
 * The parts of a device that requests have to share, and so wait for:
 *
 *	caps -> link -> write buffer -> drain
 *	           '--> lanes
 *
 *	caps        so many I/Os and bytes a second, with credits to burst
 *	link        moves bytes, one after the other; a read's come back over it
 *	lanes       so many things at once; latency.* is how long one takes
 *	buffer      takes writes until it is full, then at its drain's pace;
 *	            without one they go to the lanes
 *
 * None of them has a queue.  Each knows when it is free, and a request is done
 * at max(now, free) + service, so all is said when it comes.  What is shared by
 * the byte is charged when a request comes, not when it gets there: a read that
 * will need the link in a millisecond leaves it to the write that needs it now.
 *
 * A rotating disk (hdd.c) has one part, its arm.  It takes requests not as they
 * come, but what it can have done soonest of those that wait: one is under way,
 * and the others are kept here until it ends; that is when the arm chooses.
 *
 * One lock a disk, and none if it has no such parts.
 */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/util.h"

#define NSEC        UINT64_C(1000000000)
#define STRIPE_MIN  4096u
#define MAX_WAIT_NS NSEC /* the arm passes over nobody for longer */

/* So many of something a second, one after the other. */
struct pace {
	uint64_t a_second; /* 0: there is no limit */
	int64_t credit_ns; /* so much of what was not used is saved up */
	int64_t free_ns;   /* all that was taken is done; */
	uint64_t rest;     /* and this share of a ns, in a_second-ths */
};

struct parts {
	pthread_mutex_t lock; /* of the rest */
	struct parts_conf conf;
	struct pace iops, mbps;             /* what credits accrue with, */
	struct pace burst_iops, burst_mbps; /* and how fast they go */
	struct pace link;
	struct pace drain;
	uint64_t wbuf_ns; /* a full buffer drains in */
	struct hdd hdd;
	struct request *moving;      /* the arm is at it */
	struct request_list waiting; /* for the arm, as they came */
	uint64_t lane[];             /* free at */
};

/* ---- settings */

/* A unit of the rates is so many credits. */
static int
check_cap(const char *what, uint32_t cap, uint32_t burst, uint64_t credits,
    const char *unit, uint64_t scale, char *err, size_t errlen)
{
	if ((burst == 0) != (credits == 0))
		return refuse(err, errlen, -EINVAL,
		    "burst.%s: %" PRIu32 ": allowed: 0 without burst.%s, more "
		    "than cap.%s with it",
		    what, burst, unit, what);
	if (burst != 0 && (cap == 0 || burst <= cap))
		return refuse(err, errlen, -EINVAL,
		    "burst.%s: %" PRIu32 ": allowed: 0, or more than cap.%s, "
		    "which is not 0 then (it is %" PRIu32 ")",
		    what, burst, what, cap);
	/* what is saved up in ten years is more than anybody waits for */
	if (burst != 0 && credits / scale / cap > 315360000)
		return refuse(err, errlen, -EINVAL,
		    "burst.%s: %" PRIu64 ": allowed: at most ten years of "
		    "cap.%s",
		    unit, credits, what);
	return 0;
}

static int
check_hdd(const struct disk_conf *d, char *err, size_t errlen)
{
	const struct parts_conf *c = &d->parts;
	const struct hdd_conf *h = &c->hdd;

	if (h->rpm == 0)
		return 0;
	if (h->rpm < 1000 || h->rpm > 30000)
		return refuse(err, errlen, -EINVAL,
		    "hdd.rpm: %" PRIu32 ": allowed: 0, 1000 to 30000", h->rpm);
	if (c->lanes != 0 || c->link_mbps != 0 || c->wbuf_size != 0 ||
	    c->cap_iops != 0 || c->cap_mbps != 0)
		return refuse(err, errlen, -EINVAL,
		    "hdd.rpm: %" PRIu32 ": allowed only without lanes, "
		    "link.mbps, wbuf and cap: it has one arm",
		    h->rpm);
	if (h->track_ns > h->seek_ns || h->seek_ns > h->stroke_ns)
		return refuse(err, errlen, -EINVAL,
		    "hdd.seek: %" PRIu64 ": allowed: hdd.track (%" PRIu64
		    ") to hdd.stroke (%" PRIu64 ")",
		    h->seek_ns, h->track_ns, h->stroke_ns);
	if (h->inner_mbps > h->mbps)
		return refuse(err, errlen, -EINVAL,
		    "hdd.inner: %" PRIu32
		    ": allowed: at most hdd.mbps (%" PRIu32 ")",
		    h->inner_mbps, h->mbps);
	return 0;
}

int
parts_check(const struct disk_conf *d, char *err, size_t errlen)
{
	const struct parts_conf *c = &d->parts;
	int ret;

	if (c->stripe != 0 && (c->lanes == 0 || c->stripe < STRIPE_MIN ||
				  c->stripe % SECTOR_SIZE != 0))
		return refuse(err, errlen, -EINVAL,
		    "lanes.stripe: %" PRIu64 ": allowed: 0; with lanes whole "
		    "sectors, at least %u",
		    c->stripe, STRIPE_MIN);
	if ((c->wbuf_size == 0) != (c->wbuf_drain == 0))
		return refuse(err, errlen, -EINVAL,
		    "wbuf.drain: %" PRIu32 ": allowed: 0 without wbuf.size, "
		    "else at least 1 (MiB/s)",
		    c->wbuf_drain);
	ret = check_cap("iops", c->cap_iops, c->burst_iops, c->burst_ios, "ios",
	    1, err, errlen);
	if (ret == 0)
		ret = check_cap("mbps", c->cap_mbps, c->burst_mbps,
		    c->burst_bytes, "bytes", 1 << 20, err, errlen);
	return ret == 0 ? check_hdd(d, err, errlen) : ret;
}

static bool
has_parts(const struct parts_conf *c)
{
	return c->lanes != 0 || c->link_mbps != 0 || c->link_read_ns != 0 ||
	       c->link_write_ns != 0 || c->wbuf_size != 0 || c->cap_iops != 0 ||
	       c->cap_mbps != 0 || c->hdd.rpm != 0;
}

/* Credits are full, and nothing was taken. */
static struct pace
pace_of(uint64_t a_second, uint64_t credits)
{
	struct pace p = { .a_second = a_second, .free_ns = INT64_MIN / 2 };

	if (a_second != 0)
		p.credit_ns =
		    (int64_t)((unsigned __int128)credits * NSEC / a_second);
	return p;
}

static uint64_t
mib(uint32_t mbps)
{
	return (uint64_t)mbps << 20;
}

int
parts_attach(struct disk *d)
{
	const struct parts_conf *c = &d->conf.parts;
	struct parts *p;

	if (!has_parts(c))
		return 0;
	p = calloc(1, sizeof(*p) + c->lanes * sizeof(p->lane[0]));
	if (p == NULL)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	p->conf = *c;
	p->iops = pace_of(c->cap_iops, c->burst_ios);
	p->mbps = pace_of(mib(c->cap_mbps), c->burst_bytes);
	p->burst_iops = pace_of(c->burst_iops, 0);
	p->burst_mbps = pace_of(mib(c->burst_mbps), 0);
	p->link = pace_of(mib(c->link_mbps), 0);
	p->drain = pace_of(mib(c->wbuf_drain), 0);
	p->wbuf_ns =
	    (uint64_t)pace_of(mib(c->wbuf_drain), c->wbuf_size).credit_ns;
	TAILQ_INIT(&p->waiting);
	if (c->hdd.rpm != 0)
		hdd_init(&p->hdd, &c->hdd, d->conf.size);
	d->parts = p;
	return 0;
}

void
parts_detach(struct disk *d)
{
	if (d->parts == NULL)
		return;
	pthread_mutex_destroy(&d->parts->lock);
	free(d->parts);
	d->parts = NULL;
}

/* ---- each part */

static uint64_t
later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* So much later, or in 584 years. */
static uint64_t
after(uint64_t at, uint64_t ns)
{
	return at > UINT64_MAX - ns ? UINT64_MAX : at + ns;
}

/* When what was taken is done; before `at` if that is long ago. */
static uint64_t
pace_free(const struct pace *p, uint64_t at)
{
	return p->free_ns > (int64_t)at ? (uint64_t)p->free_ns : at;
}

/*
 * Take n, at most 2^32, from `at` on: when it begins.  What was not used may
 * have been saved up, so that it goes on to be free in the past.
 */
static uint64_t
pace_take(struct pace *p, uint64_t at, uint64_t n)
{
	int64_t full = (int64_t)at - p->credit_ns;
	uint64_t begin;

	if (p->a_second == 0)
		return at;
	if (p->free_ns < full) {
		p->free_ns = full;
		p->rest = 0;
	}
	begin = pace_free(p, at);
	n = n * NSEC + p->rest;
	p->free_ns += (int64_t)(n / p->a_second);
	p->rest = n % p->a_second;
	return begin;
}

/* When it is done there. */
static uint64_t
use_lane(uint64_t *lane, uint64_t at, uint64_t service_ns)
{
	*lane = after(later(*lane, at), service_ns);
	return *lane;
}

static uint64_t *
free_lane(struct parts *p)
{
	uint64_t *best = &p->lane[0];

	for (uint32_t i = 1; i < p->conf.lanes; i++)
		if (p->lane[i] < *best)
			best = &p->lane[i];
	return best;
}

static uint64_t
lanes_idle(const struct parts *p, uint64_t at)
{
	for (uint32_t i = 0; i < p->conf.lanes; i++)
		at = later(at, p->lane[i]);
	return at;
}

/* ---- a request, and all that is looked at for it */

struct io {
	struct disk *disk;
	const struct timing *timing; /* NULL: completion_nsec */
	struct request *rq;
	struct cpu *cpu;
};

static uint64_t
service_ns(const struct io *io, uint64_t bytes)
{
	return timing_of(io->disk, io->timing, io->rq, io->cpu, bytes);
}

static bool
has_data(const struct request *rq)
{
	return rq->op == REQ_OP_READ || rq->op == REQ_OP_WRITE;
}

/* A stripe each is a piece, which takes its own time on the lane it lies on. */
static uint64_t
serve_striped(struct parts *p, const struct io *io, uint64_t at)
{
	uint64_t stripe = p->conf.stripe, pos = io->rq->pos, left, n;
	uint64_t done = at;

	for (left = io->rq->bytes; left > 0; left -= n, pos += n) {
		n = stripe - pos % stripe;
		if (n > left)
			n = left;
		done =
		    later(done, use_lane(&p->lane[pos / stripe % p->conf.lanes],
				    at, service_ns(io, n)));
	}
	return done;
}

/* What moves no data is one piece, however long. */
static uint64_t
serve_media(struct parts *p, const struct io *io, uint64_t at)
{
	const struct request *rq = io->rq;

	if (p->conf.lanes == 0)
		return after(at, service_ns(io, rq->bytes));
	if (p->conf.stripe != 0 && has_data(rq))
		return serve_striped(p, io, at);
	return use_lane(free_lane(p), at, service_ns(io, rq->bytes));
}

/* It drains from then on, and there is room when all but its size has. */
static uint64_t
serve_buffer(struct parts *p, const struct io *io, uint64_t at)
{
	uint64_t empty, done = at;

	(void)pace_take(&p->drain, at, io->rq->bytes);
	empty = pace_free(&p->drain, at);
	if (empty > p->wbuf_ns)
		done = later(at, empty - p->wbuf_ns);
	done = after(done, service_ns(io, io->rq->bytes));
	return io->rq->flags & REQ_FUA ? later(done, empty) : done;
}

static uint64_t
admit(struct parts *p, const struct request *rq, uint64_t at)
{
	uint64_t bytes = has_data(rq) ? rq->bytes : 0, begin;

	if (rq->op == REQ_OP_FLUSH)
		return at;
	begin = pace_take(&p->iops, at, 1);
	begin = later(begin, pace_take(&p->burst_iops, at, 1));
	begin = later(begin, pace_take(&p->mbps, at, bytes));
	return later(begin, pace_take(&p->burst_mbps, at, bytes));
}

/* When its data is over, if it could go now. */
static uint64_t
cross_link(struct parts *p, const struct request *rq, uint64_t at)
{
	(void)pace_take(&p->link, at, rq->bytes);
	return p->link.a_second != 0 ? pace_free(&p->link, at) : at;
}

static uint64_t
serve(struct parts *p, const struct io *io, uint64_t at)
{
	uint64_t over, begin = admit(p, io->rq, at);

	switch ((enum req_op)io->rq->op) {
	case REQ_OP_READ:
		/* by itself its data follows on the media; others may be first
		 */
		over = cross_link(p, io->rq, begin);
		if (p->link.a_second == 0)
			return serve_media(p, io, begin);
		begin = serve_media(p, io, begin);
		return later(over,
		    after(begin, io->rq->bytes * NSEC / p->link.a_second));
	case REQ_OP_WRITE:
		over = cross_link(p, io->rq, begin);
		return p->conf.wbuf_size != 0 ? serve_buffer(p, io, over)
					      : serve_media(p, io, over);
	case REQ_OP_FLUSH:
		begin = lanes_idle(p, pace_free(&p->drain, begin));
		return after(begin, service_ns(io, 0));
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES:
	case REQ_OP_NR: break;
	}
	return serve_media(p, io, begin);
}

/* ---- the arm */

/* delay_ns: what comes on top, and then all of it. */
static void
move(struct parts *p, struct request *rq, struct cpu *cpu, uint64_t at,
    uint64_t now)
{
	uint64_t done =
	    hdd_serve(&p->hdd, at, rq->op == REQ_OP_READ, rq->pos, rq->bytes);
	uint64_t more = after(done, rq->delay_ns);

	p->moving = rq;
	rq->rq_flags |= RQF_TELL;
	rq_complete_after(rq, cpu, more > now ? more - now : 0);
}

/* Whom it can have done soonest; but who has waited too long is the next. */
static struct request *
choose(const struct parts *p, uint64_t at, uint64_t now)
{
	struct request *rq, *best = TAILQ_FIRST(&p->waiting);
	uint64_t done, soonest = UINT64_MAX;
	uint32_t left = p->conf.hdd.queue;
	struct hdd h;

	if (best == NULL || now > best->start_ns + MAX_WAIT_NS)
		return best;
	TAILQ_FOREACH(rq, &p->waiting, link) {
		if (left-- == 0)
			break;
		h = p->hdd;
		done = hdd_serve(
		    &h, at, rq->op == REQ_OP_READ, rq->pos, rq->bytes);
		if (done < soonest) {
			soonest = done;
			best = rq;
		}
	}
	return best;
}

void
parts_ended(struct parts *p, struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct request *next;

	pthread_mutex_lock(&p->lock);
	if (p->moving != rq) {
		pthread_mutex_unlock(&p->lock);
		return;
	}
	p->moving = NULL;
	/* the arm has been free since then, however late this cpu is */
	next = choose(p, p->hdd.free_ns, now);
	if (next != NULL) {
		TAILQ_REMOVE(&p->waiting, next, link);
		move(p, next, cpu, p->hdd.free_ns, now);
	}
	pthread_mutex_unlock(&p->lock);
}

/* Only what has a place needs the arm; the rest is its electronics' business.
 */
static void
serve_hdd(struct parts *p, const struct io *io, uint64_t at, uint64_t now,
    uint64_t extra_ns)
{
	struct request *rq = io->rq;
	uint64_t delay_ns =
	    after(after(at - now, service_ns(io, rq->bytes)), extra_ns);

	if (!has_data(rq) && rq->op != REQ_OP_WRITE_ZEROES) {
		rq_complete_after(rq, io->cpu, delay_ns);
		return;
	}
	rq->delay_ns = delay_ns;
	if (p->moving != NULL)
		TAILQ_INSERT_TAIL(&p->waiting, rq, link);
	else
		move(p, rq, io->cpu, later(now, p->hdd.free_ns), now);
}

void
parts_serve(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now,
    uint64_t extra_ns)
{
	struct parts *p = d->parts;
	struct io io = { d, disk_timing(d), rq, cpu };
	uint64_t at = now, done;

	extra_ns =
	    after(extra_ns, rq->op == REQ_OP_READ ? p->conf.link_read_ns
						  : p->conf.link_write_ns);
	pthread_mutex_lock(&p->lock);
	if (io.timing != NULL)
		at = timing_begin(d, io.timing, cpu, now);
	if (p->conf.hdd.rpm != 0) {
		serve_hdd(p, &io, at, now, extra_ns);
	} else {
		done = serve(p, &io, at) - now;
		rq_complete_after(rq, cpu, after(done, extra_ns));
	}
	pthread_mutex_unlock(&p->lock);
}
