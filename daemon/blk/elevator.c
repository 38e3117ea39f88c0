/* SPDX-License-Identifier: MIT */
/*
 * What every I/O scheduler shares: requests are found by where they end, the
 * last one that something merged with is tried first, and requests that have
 * become adjacent are joined (3.5; the kernel's elevator.c, blk-mq-sched.c).
 *
 *	bio ----> one-hit cache -> hash of ends -> the scheduler's own search
 *	request -> the same, backwards only ----> add        take -> driver
 *
 * It belongs to the queue, so it has a lock: taken once a plug flush, once a
 * bio that merged with nothing in its plug, and once a request dispatched.
 */
#include "blk/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_BITS 6 /* ELV_HASH_BITS */

LIST_HEAD(request_bucket, request);

struct elevator {
	const struct elevator_ops *ops;
	struct queue *queue;
	void *data; /* the scheduler's */
	pthread_mutex_t lock;
	struct request *last_merge; /* the one-hit cache, or NULL */
	struct request_bucket by_end[1 << HASH_BITS];
};

const struct elevator_type elevators[] = {
	{
	    .name = "none",
	    .available = true,
	    .help = "no sorting: requests go to the device as they come",
	},
	{
	    .name = "mq-deadline",
	    .available = true,
	    .help = "sorted by sector in batches, with deadlines",
	    .ops = &deadline_ops,
	},
	{
	    .name = "kyber",
	    .help = "token depths from latency targets: not simulated",
	},
	{
	    .name = "bfq",
	    .help = "budget fair queueing: not simulated",
	},
	{},
};

const struct elevator_type *
elevator_find(const char *name)
{
	const struct elevator_type *e;

	for (e = elevators; e->name != NULL; e++)
		if (strcmp(e->name, name) == 0)
			return e;
	return NULL;
}

int
elevator_new(
    struct elevator **out, struct queue *q, const struct elevator_type *type)
{
	struct elevator *e;

	*out = NULL;
	if (type == NULL || type->ops == NULL)
		return 0;
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return -ENOMEM;
	e->ops = type->ops;
	e->queue = q;
	e->data = e->ops->new (q);
	if (e->data == NULL) {
		free(e);
		return -ENOMEM;
	}
	pthread_mutex_init(&e->lock, NULL);
	*out = e;
	return 0;
}

void
elevator_free(struct elevator *e)
{
	if (e == NULL)
		return;
	e->ops->free(e->data);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

void
elevator_configure(struct elevator *e)
{
	e->ops->configure(e->data, e->queue);
}

unsigned
elevator_depth(
    const struct elevator *e, const struct bio *bio, unsigned nr_requests)
{
	return e->ops->depth(e->data, bio, nr_requests);
}

void
elevator_finish(struct elevator *e, const struct request *rq)
{
	e->ops->finish(e->data, rq);
}

/* ------------------------------------------------- requests by their end */

static struct request_bucket *
bucket_of(struct elevator *e, uint64_t end)
{
	uint64_t hash = (end >> SECTOR_SHIFT) * UINT64_C(0x9e3779b97f4a7c15);

	return &e->by_end[hash >> (64 - HASH_BITS)];
}

static void
hash_add(struct elevator *e, struct request *rq)
{
	LIST_INSERT_HEAD(bucket_of(e, rq->pos + rq->bytes), rq, elv.by_end);
	rq->rq_flags |= RQF_HASHED;
}

static void
hash_remove(struct request *rq)
{
	if ((rq->rq_flags & RQF_HASHED) == 0)
		return;
	LIST_REMOVE(rq, elv.by_end);
	rq->rq_flags &= (uint16_t)~RQF_HASHED;
}

/* elv_rqhash_find(): what can't merge any more leaves the hash. */
static struct request *
hash_find(struct elevator *e, uint64_t end)
{
	struct request *rq, *next;

	for (rq = LIST_FIRST(bucket_of(e, end)); rq != NULL; rq = next) {
		next = LIST_NEXT(rq, elv.by_end);
		if (!rq_mergeable(rq))
			hash_remove(rq);
		else if (rq->pos + rq->bytes == end)
			return rq;
	}
	return NULL;
}

/* ------------------------------------------------------ requests that join */

/* It leaves the elevator: for the driver, or as a part of another. */
static void
forget(struct elevator *e, struct request *rq)
{
	hash_remove(rq);
	if (e->last_merge == rq)
		e->last_merge = NULL;
	rq->due = (struct heap_node){ 0 }; /* which was elv all the while */
	atomic_fetch_sub(&e->queue->nr_queued, 1);
}

/* elv_merge_requests(), elv_merged_request(): `rq` has grown. */
static void
has_grown(struct elevator *e, struct request *rq, bool at_its_end)
{
	if (at_its_end) {
		hash_remove(rq);
		hash_add(e, rq);
	}
	e->last_merge = rq;
}

/*
 * Append a request that is in the elevator to another that is: true, then
 * `next` goes to the list of those to free.
 */
static bool
join(struct elevator *e, struct request *rq, struct request *next,
    struct cpu *cpu, uint64_t now, struct request_list *absorbed)
{
	if (rq == NULL || next == NULL || !rq_merge_next(rq, next, cpu, now))
		return false;
	e->ops->absorb(e->data, rq, next);
	forget(e, next);
	has_grown(e, rq, true);
	TAILQ_INSERT_TAIL(absorbed, next, link);
	return true;
}

/* Without the lock. */
static void
free_absorbed(struct elevator *e, struct request_list *list, struct cpu *cpu)
{
	struct request *rq;

	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		if (rq->rq_flags & RQF_ELV)
			e->ops->finish(e->data, rq);
		rq_free(rq, cpu);
	}
}

/* -------------------------------------------------------- a bio that comes */

static bool
fits(const struct request *rq, const struct bio *bio)
{
	return rq != NULL && rq_merge_ok(rq, bio) &&
	       rq_try_merge(rq, bio) != NO_MERGE;
}

/*
 * elv_merge(): the request that the bio may join.  With nomerges=1 only the
 * one-hit cache is asked.
 */
static struct request *
find(struct elevator *e, const struct bio *bio)
{
	struct request *rq = e->last_merge;

	if (fits(rq, bio))
		return rq;
	if (e->queue->conf.nomerges != 0)
		return NULL;
	rq = hash_find(e, bio->pos);
	if (fits(rq, bio))
		return rq;
	rq = e->ops->find_front(e->data, bio);
	return fits(rq, bio) ? rq : NULL;
}

/* attempt_back_merge(), attempt_front_merge(): and now its neighbour? */
static void
after_merge(struct elevator *e, struct request *rq, enum merge how,
    struct cpu *cpu, uint64_t now, struct request_list *absorbed)
{
	bool joined = false;

	if (how == BACK_MERGE)
		joined = join(
		    e, rq, e->ops->latter(e->data, rq), cpu, now, absorbed);
	else if (how == FRONT_MERGE)
		joined = join(
		    e, e->ops->former(e->data, rq), rq, cpu, now, absorbed);
	if (joined)
		return;
	if (how == FRONT_MERGE)
		e->ops->reposition(e->data, rq);
	if (how != DISCARD_MERGE)
		has_grown(e, rq, how == BACK_MERGE);
}

bool
elevator_merge(
    struct elevator *e, struct bio *bio, struct ctx *ctx, uint64_t now)
{
	struct request_list absorbed = TAILQ_HEAD_INITIALIZER(absorbed);
	struct request *rq;
	enum merge how = NO_MERGE;
	bool merged = false;

	if (atomic_load(&e->queue->nr_queued) == 0)
		return false;
	pthread_mutex_lock(&e->lock);
	rq = find(e, bio);
	if (rq != NULL) {
		how = rq_try_merge(rq, bio);
		merged = rq_attempt_merge(rq, bio, ctx, now) == MERGE_OK;
	}
	if (merged)
		after_merge(e, rq, how, ctx->cpu, now, &absorbed);
	else if (rq != NULL && rq == e->last_merge && !rq_mergeable(rq))
		e->last_merge = NULL; /* req_set_nomerge() */
	pthread_mutex_unlock(&e->lock);
	free_absorbed(e, &absorbed, ctx->cpu);
	return merged;
}

/* ----------------------------------------------------- requests come and go */

/*
 * elv_attempt_insert_merge(): append the request, which is not in the elevator
 * yet, to one that is; and that one to the next that ends where it begins.
 */
static bool
insert_merge(struct elevator *e, struct request *rq, struct cpu *cpu,
    uint64_t now, struct request_list *absorbed)
{
	unsigned nomerges = e->queue->conf.nomerges;
	struct request *into = e->last_merge;
	bool cached;

	if (nomerges == 2)
		return false;
	cached = into != NULL && rq_merge_next(into, rq, cpu, now);
	if (!cached) {
		if (nomerges == 1)
			return false;
		into = hash_find(e, rq->pos);
		if (into == NULL || !rq_merge_next(into, rq, cpu, now))
			return false;
	}
	has_grown(e, into, true);
	TAILQ_INSERT_TAIL(absorbed, rq, link);
	while (!cached &&
	       join(e, hash_find(e, into->pos), into, cpu, now, absorbed))
		into = e->last_merge;
	return true;
}

static void
insert(
    struct elevator *e, struct request *rq, const struct cpu *cpu, uint64_t now)
{
	trace_rq(e->queue->ctx[cpu->id], TRACE_INSERT, rq, now);
	rq->rq_flags |= RQF_ELV;
	e->ops->add(e->data, rq, now);
	atomic_fetch_add(&e->queue->nr_queued, 1);
	if (!rq_mergeable(rq))
		return;
	hash_add(e, rq);
	if (e->last_merge == NULL)
		e->last_merge = rq;
}

void
elevator_insert(struct elevator *e, struct request_list *list, struct cpu *cpu,
    uint64_t now)
{
	struct request_list absorbed = TAILQ_HEAD_INITIALIZER(absorbed);
	struct request *rq;

	pthread_mutex_lock(&e->lock);
	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		if (!insert_merge(e, rq, cpu, now, &absorbed))
			insert(e, rq, cpu, now);
	}
	pthread_mutex_unlock(&e->lock);
	free_absorbed(e, &absorbed, cpu);
}

struct request *
elevator_take(struct elevator *e, uint64_t now)
{
	struct request *rq;

	if (atomic_load(&e->queue->nr_queued) == 0)
		return NULL;
	pthread_mutex_lock(&e->lock);
	rq = e->ops->take(e->data, now);
	if (rq != NULL) {
		forget(e, rq);
		rq->rq_flags |= RQF_STARTED;
	}
	pthread_mutex_unlock(&e->lock);
	return rq;
}
