/* SPDX-License-Identifier: MIT */
/*
 * Traces: a ring of events a cpu.  The cpu's thread writes, the thread that
 * traces takes, and neither waits for the other: what finds no room is
 * dropped, and counted.
 *
 *	         tail                        head
 *	| (taken) | event | event | event | event | free ... |
 *	          |<------------- at most limit ------------>|
 *
 * A cpu that has just seen that somebody traces may write after the trace was
 * stopped.  So a ring, once made, stays until the queue goes: nobody has to
 * wait until no cpu looks at it.  A trace that wants a larger one than there
 * is makes it; that is at least twice as large, so that all those of a cpu
 * together are less than twice the last.
 */
#include "blk/internal.h"

#include <errno.h>
#include <stdlib.h>

struct trace_ring {
	struct trace_ring *older; /* not written any more */
	struct trace_event *event;
	uint64_t size; /* a power of two */
	_Atomic uint64_t limit;

	/* The writer's. */
	_Alignas(64) _Atomic uint64_t head; /* events ever written */
	_Atomic uint64_t dropped;
	uint64_t tail_seen;
	uint64_t last_ns;

	/* The taker's. */
	_Alignas(64) _Atomic uint64_t tail; /* events ever taken */
	uint64_t dropped_before;            /* this trace began */
};

struct trace {
	bool running;
	struct trace_ring *ring[]; /* by cpu; NULL: none was needed yet */
};

int
trace_new(struct queue *q)
{
	q->trace =
	    calloc(1, sizeof(*q->trace) +
			  q->machine->nr_cpus * sizeof(struct trace_ring *));
	return q->trace != NULL ? 0 : -ENOMEM;
}

static void
ring_free(struct trace_ring *r)
{
	free(r->event);
	free(r);
}

void
trace_free(struct queue *q)
{
	struct trace_ring *r, *older;
	unsigned i;

	if (q->trace == NULL)
		return;
	for (i = 0; i < q->machine->nr_cpus; i++)
		for (r = q->trace->ring[i]; r != NULL; r = older) {
			older = r->older;
			ring_free(r);
		}
	free(q->trace);
}

/* ----------------------------------------------------------- who traces */

/* A ring of `size` events that takes the place of an older one. */
static struct trace_ring *
ring_new(uint64_t size, struct trace_ring *older)
{
	struct trace_ring *r = aligned_calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	/* its memory is the system's until it is written to */
	r->event = calloc(size, sizeof(*r->event));
	if (r->event == NULL) {
		free(r);
		return NULL;
	}
	r->size = size;
	r->older = older;
	return r;
}

/* What an earlier trace has left is skipped, not cleared: a cpu may write. */
static void
ring_begin(struct trace_ring *r, uint64_t limit)
{
	atomic_store_explicit(&r->limit, limit, memory_order_relaxed);
	atomic_store_explicit(&r->tail,
	    atomic_load_explicit(&r->head, memory_order_acquire),
	    memory_order_release);
	r->dropped_before =
	    atomic_load_explicit(&r->dropped, memory_order_relaxed);
}

static uint64_t
round_up(uint64_t nr)
{
	uint64_t size = 1;

	while (size < nr)
		size *= 2;
	return size;
}

int
trace_start(struct queue *q, unsigned nr)
{
	struct trace *t = q->trace;
	struct trace_ring *r;
	uint64_t limit = round_up(nr);
	unsigned i;

	if (t->running)
		return -EBUSY;
	for (i = 0; i < q->machine->nr_cpus; i++) {
		if (t->ring[i] != NULL && t->ring[i]->size >= limit)
			continue;
		r = ring_new(limit, t->ring[i]);
		if (r == NULL)
			return -ENOMEM;
		t->ring[i] = r;
	}
	for (i = 0; i < q->machine->nr_cpus; i++) {
		ring_begin(t->ring[i], limit);
		atomic_store_explicit(
		    &q->ctx[i]->ring, t->ring[i], memory_order_release);
	}
	t->running = true;
	return 0;
}

void
trace_stop(struct queue *q)
{
	unsigned i;

	for (i = 0; i < q->machine->nr_cpus; i++)
		atomic_store_explicit(
		    &q->ctx[i]->ring, NULL, memory_order_relaxed);
	q->trace->running = false;
}

size_t
trace_take(struct queue *q, unsigned cpu, struct trace_event *out, size_t max)
{
	struct trace_ring *r = q->trace->ring[cpu];
	uint64_t tail, nr, i;

	if (r == NULL)
		return 0;
	tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	nr = atomic_load_explicit(&r->head, memory_order_acquire) - tail;
	if (nr > max)
		nr = max;
	for (i = 0; i < nr; i++)
		out[i] = r->event[(tail + i) & (r->size - 1)];
	atomic_store_explicit(&r->tail, tail + nr, memory_order_release);
	return nr;
}

uint64_t
trace_dropped(const struct queue *q)
{
	const struct trace_ring *r;
	uint64_t nr = 0;
	unsigned i;

	for (i = 0; i < q->machine->nr_cpus; i++) {
		r = q->trace->ring[i];
		if (r == NULL)
			continue;
		nr += atomic_load_explicit(&r->dropped, memory_order_relaxed) -
		      r->dropped_before;
	}
	return nr;
}

/* ---------------------------------------------------------- who is traced */

static bool
ring_full(struct trace_ring *r, uint64_t head)
{
	uint64_t limit = atomic_load_explicit(&r->limit, memory_order_relaxed);

	if (head - r->tail_seen < limit)
		return false;
	/* the taker's cache line is looked at only when it has to be */
	r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
	return head - r->tail_seen >= limit;
}

static void
put(struct ctx *ctx, struct trace_event *e)
{
	struct trace_ring *r =
	    atomic_load_explicit(&ctx->ring, memory_order_acquire);
	uint64_t head;

	if (r == NULL)
		return; /* stopped since the hook looked */
	head = atomic_load_explicit(&r->head, memory_order_relaxed);
	if (ring_full(r, head)) {
		atomic_store_explicit(&r->dropped,
		    atomic_load_explicit(&r->dropped, memory_order_relaxed) + 1,
		    memory_order_relaxed);
		return;
	}
	/*
	 * Much happens at one `now`, and some of it at an older one; but
	 * blkrawverify wants each event to be later than the one before.
	 */
	if (e->ns <= r->last_ns)
		e->ns = r->last_ns + 1;
	r->last_ns = e->ns;
	e->cpu = (uint16_t)ctx->cpu->id;
	r->event[head & (r->size - 1)] = *e;
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

/* What a record has room for; a bio that has yet to be split may be larger. */
static uint32_t
clipped(uint64_t bytes)
{
	return bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
}

/* A flush that flush.c sends is no task's. */
static uint32_t
rq_task(const struct request *rq)
{
	const struct bio *bio = STAILQ_FIRST(&rq->bios);

	return bio != NULL ? bio->task : 0;
}

void
trace_put_bio(struct ctx *ctx, enum trace_action action, const struct bio *bio,
    uint64_t now)
{
	struct trace_event e = {
		.ns = now,
		.sector = bio->pos >> SECTOR_SHIFT,
		.bytes = clipped(bio->bytes),
		.task = bio->task,
		.flags = bio->op == REQ_OP_FLUSH ? bio->flags | REQ_SYNC
						 : bio->flags,
		.action = (uint8_t)action,
		.op = bio->op,
	};

	put(ctx, &e);
}

void
trace_put_split(struct ctx *ctx, const struct bio *piece,
    const struct bio *rest, uint64_t now)
{
	struct trace_event e = {
		.ns = now,
		.sector = piece->pos >> SECTOR_SHIFT,
		.extra = rest->pos >> SECTOR_SHIFT,
		.bytes = clipped(piece->bytes),
		.task = piece->task,
		.flags = piece->flags,
		.action = TRACE_SPLIT,
		.op = piece->op,
	};

	put(ctx, &e);
}

void
trace_put_rq(struct ctx *ctx, enum trace_action action,
    const struct request *rq, uint64_t now)
{
	/* blkdev_issue_flush(): a write that asks for a flush, and got it */
	bool asks = rq->op == REQ_OP_FLUSH && (rq->rq_flags & RQF_FLUSH) == 0;
	struct trace_event e = {
		.ns = now,
		.sector = rq_sector(rq),
		.bytes = clipped(rq->bytes),
		.task = rq_task(rq),
		.flags = asks ? rq->flags | REQ_SYNC : rq->flags,
		.action = (uint8_t)action,
		.op = asks ? REQ_OP_WRITE : rq->op,
		.request = true,
		.error = action == TRACE_COMPLETE ? rq->error : 0,
	};

	put(ctx, &e);
}

void
trace_put_plug(struct ctx *ctx, enum trace_action action,
    const struct request *rq, unsigned nr, uint64_t now)
{
	struct trace_event e = {
		.ns = now,
		.extra = nr,
		.task = rq_task(rq),
		.action = (uint8_t)action,
		.op = REQ_OP_READ,
	};

	put(ctx, &e);
}
