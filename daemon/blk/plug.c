/* SPDX-License-Identifier: MIT */
/*
 * The plug: what a task gathers before it hands on (section 4).  It is where
 * nearly all merging happens on a device that is not busy.
 *
 *	oldest                                        newest
 *	[rq] -> [rq] -> [rq] -> ... (at most plug_max) -> [rq] <- bio?
 */
#include "blk/internal.h"

void
plug_init(struct plug *plug)
{
	TAILQ_INIT(&plug->list);
	plug->nr = 0;
	plug->multiple_queues = false;
	plug->to_run = NULL;
}

/* ----------------------------------------------------- who has a plug */

unsigned
queue_plug_min(const struct queue *q)
{
	switch (q->conf.plug_mode) {
	case PLUG_EACH: break;
	case PLUG_CALL: return 1;
	case PLUG_TASK: return q->profile->aio_plug_min;
	}
	return 0;
}

bool
queue_plugs_alone(const struct queue *q, enum req_op op)
{
	if (q->conf.plug_mode != PLUG_TASK)
		return false;
	/* blkdev_issue_discard() has one in every age */
	return op == REQ_OP_DISCARD ||
	       (op == REQ_OP_WRITE && q->profile->write_opens_plug);
}

bool
plugs_limited(const struct queue *q)
{
	if (q->conf.nr_hw_queues == 1)
		return false;
	if (q->profile->plug_limited == PLUG_LIMITED_NONROT)
		return !q->limits.rotational && q->ops->commit == NULL;
	return q->profile->plug_limited == PLUG_LIMITED;
}

/* ---------------------------------------------------------------- merging */

static struct request *
newest(const struct plug *plug)
{
	return TAILQ_LAST(&plug->list, request_list);
}

/* 4.14, 5.4: newest to oldest, on past a candidate that fails. */
static bool
merge_with_any(
    struct plug *plug, struct bio *bio, struct ctx *ctx, uint64_t now)
{
	struct request *rq;

	TAILQ_FOREACH_REVERSE(rq, &plug->list, request_list, link) {
		if (rq->hctx->queue != ctx->queue)
			continue;
		if (rq_attempt_merge(rq, bio, ctx, now) == MERGE_OK)
			return true;
	}
	return false;
}

/*
 * Since 5.16: one attempt, with the newest request; if that is another
 * queue's and there are several in the plug, with the nearest of this queue
 * from the newest on (6.1), or the first from the oldest (6.12).
 */
static bool
merge_with_one(
    struct plug *plug, struct bio *bio, struct ctx *ctx, uint64_t now)
{
	struct request *rq = newest(plug);

	if (rq == NULL)
		return false;
	if (rq->hctx->queue != ctx->queue) {
		if (!plug->multiple_queues)
			return false;
		if (ctx->queue->profile->plug_search_oldest) {
			TAILQ_FOREACH(rq, &plug->list, link)
				if (rq->hctx->queue == ctx->queue)
					break;
		} else {
			while (rq != NULL && rq->hctx->queue != ctx->queue)
				rq = TAILQ_PREV(rq, request_list, link);
		}
		if (rq == NULL)
			return false;
	}
	return rq_attempt_merge(rq, bio, ctx, now) == MERGE_OK;
}

bool
plug_merge(struct plug *plug, struct bio *bio, struct ctx *ctx, uint64_t now)
{
	if (ctx->queue->profile->plug_scan_all)
		return merge_with_any(plug, bio, ctx, now);
	return merge_with_one(plug, bio, ctx, now);
}

static unsigned
nr_of_queue(const struct plug *plug, const struct queue *q)
{
	const struct request *rq;
	unsigned nr = 0;

	TAILQ_FOREACH(rq, &plug->list, link)
		if (rq->hctx->queue == q)
			nr++;
	return nr;
}

/* Must the plug be emptied before one more request of q (4.1)? */
static bool
is_full(const struct plug *plug, const struct queue *q)
{
	const struct profile *p = q->profile;
	const struct request *tested;
	unsigned nr = plug->nr;
	unsigned max = plug->multiple_queues ? p->plug_max_multi : p->plug_max;

	if (p->plug_count_by_queue && plug->multiple_queues)
		nr = nr_of_queue(plug, q);
	if (nr == 0)
		return false;
	if (nr >= max)
		return true;
	if (p->plug_flush_heeds_nomerges && q->conf.nomerges == 2)
		return false;
	tested = p->plug_flush_test == FLUSH_TESTS_OLDEST
		     ? TAILQ_FIRST(&plug->list)
		     : newest(plug);
	return tested->bytes >= BLK_PLUG_FLUSH_SIZE;
}

/* Order in a sorted plug: by software queue, then sector. */
static bool
goes_before(const struct request *a, const struct request *b)
{
	if (a->ctx != b->ctx)
		return (uintptr_t)a->ctx < (uintptr_t)b->ctx;
	return a->pos < b->pos;
}

/* By insertion: a plug is short, and often in order already. */
static void
list_sort(struct request_list *list)
{
	struct request_list out = TAILQ_HEAD_INITIALIZER(out);
	struct request *rq, *at;

	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		TAILQ_FOREACH_REVERSE(at, &out, request_list, link)
			if (!goes_before(rq, at))
				break;
		if (at != NULL)
			TAILQ_INSERT_AFTER(&out, at, rq, link);
		else
			TAILQ_INSERT_HEAD(&out, rq, link);
	}
	TAILQ_CONCAT(list, &out, link);
}

static void
list_reverse(struct request_list *list)
{
	struct request_list out = TAILQ_HEAD_INITIALIZER(out);
	struct request *rq;

	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		TAILQ_INSERT_HEAD(&out, rq, link);
	}
	TAILQ_CONCAT(list, &out, link);
}

/* PLUG_CALL: the queue holds what was gathered. */
static void
run_called(struct plug *plug, struct cpu *cpu, uint64_t now)
{
	struct queue *q = plug->to_run;

	plug->to_run = NULL;
	if (q != NULL)
		queue_run(q, cpu, now);
}

void
plug_call(struct plug *plug, struct queue *q, struct cpu *cpu, uint64_t now)
{
	if (plug->to_run != q)
		run_called(plug, cpu, now);
	plug->to_run = q;
}

/* Those of one hardware queue, in order. */
static void
hand_on(struct request_list *list, struct cpu *cpu, uint64_t now, bool blocked)
{
	const struct request *rq, *first = TAILQ_FIRST(list);
	struct ctx *ctx = first->hctx->queue->ctx[cpu->id];
	unsigned nr = 0;

	TAILQ_FOREACH(rq, list, link)
		nr++;
	trace_plug(
	    ctx, blocked ? TRACE_UNPLUG_TIMER : TRACE_UNPLUG, first, nr, now);
	if (blocked) /* they go to a worker */
		hctx_insert_and_run(list, cpu, now);
	else
		hctx_issue_list(list, cpu, now);
}

/*
 * blk_mq_flush_plug_list().  `blocked`: the task goes to sleep for a tag, so
 * the requests take the way of a worker and keep their order (4.1).
 */
static void
flush(struct plug *plug, struct cpu *cpu, uint64_t now, bool blocked)
{
	struct request_list list = TAILQ_HEAD_INITIALIZER(list);
	const struct profile *p;
	unsigned nr = plug->nr;

	run_called(plug, cpu, now);
	if (nr == 0)
		return;
	TAILQ_CONCAT(&list, &plug->list, link);
	plug->nr = 0;
	p = TAILQ_FIRST(&list)->hctx->queue->profile;
	if (p->plug_order == PLUG_SORTED ||
	    (p->plug_order == PLUG_SORTED_IF_MULTI && nr > 2 &&
		plug->multiple_queues))
		list_sort(&list);
	if (!plug->multiple_queues) {
		if (p->plug_order == PLUG_NEWEST_FIRST && !blocked &&
		    TAILQ_FIRST(&list)->hctx->queue->elevator == NULL)
			list_reverse(&list);
		hand_on(&list, cpu, now, blocked);
		return;
	}
	while (!TAILQ_EMPTY(&list)) {
		struct request_list group = TAILQ_HEAD_INITIALIZER(group);

		requests_take_group(&list, &group);
		hand_on(&group, cpu, now, blocked);
	}
}

void
plug_flush(struct plug *plug, struct cpu *cpu, uint64_t now)
{
	flush(plug, cpu, now, false);
	plug->multiple_queues = false;
}

void
plug_flush_blocked(struct plug *plug, struct cpu *cpu, uint64_t now)
{
	flush(plug, cpu, now, true);
}

void
plug_flush_alone(
    struct plug *plug, enum req_op op, struct cpu *cpu, uint64_t now)
{
	flush(plug, cpu, now, op == REQ_OP_DISCARD);
	plug->multiple_queues = false;
}

static void
append(struct plug *plug, struct request *rq)
{
	const struct request *last = newest(plug);

	if (last != NULL && last->hctx->queue != rq->hctx->queue)
		plug->multiple_queues = true;
	TAILQ_INSERT_TAIL(&plug->list, rq, link);
	plug->nr++;
}

void
plug_add(struct plug *plug, struct request *rq, struct cpu *cpu, uint64_t now)
{
	if (is_full(plug, rq->hctx->queue))
		flush(plug, cpu, now, false);
	if (plug->nr == 0)
		trace_plug(
		    rq->hctx->queue->ctx[cpu->id], TRACE_PLUG, rq, 0, now);
	append(plug, rq);
}

struct request *
plug_swap(struct plug *plug, struct request *rq)
{
	struct request *held;

	TAILQ_FOREACH(held, &plug->list, link)
		if (held->hctx->queue == rq->hctx->queue)
			break;
	if (held != NULL) {
		TAILQ_REMOVE(&plug->list, held, link);
		plug->nr--;
	}
	append(plug, rq);
	return held;
}
