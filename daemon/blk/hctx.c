/* SPDX-License-Identifier: MIT */
/*
 * A hardware queue: what waits for the driver, where, and how it gets there.
 *
 *	            elevator (of the queue) ---,
 *	plug ------ software queues, one a cpu +--> tag -> driver
 *	      `---- straight ------------------+
 *	            dispatch list (first) -----'
 *
 * A software queue and a dispatch list hold requests only while the driver is
 * busy, or short of tags.
 */
#include "blk/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* The moving average of blk_mq_update_dispatch_busy(). */
#define BUSY_WEIGHT 8u
#define BUSY_FACTOR 4u

/* ------------------------------------------------------------ life cycle */

void
hctx_free(struct hctx *hctx)
{
	struct machine *m;
	unsigned i;

	if (hctx == NULL)
		return;
	m = hctx->queue->machine;
	assert(atomic_load(&hctx->nr_waiting) == 0);
	for (i = 0; hctx->rerun != NULL && i < m->nr_cpus; i++)
		cpu_rerun_cancel(&m->cpu[i], hctx);
	flush_queue_free(hctx);
	pthread_mutex_destroy(&hctx->lock);
	tags_free(hctx->tags);
	rq_pool_fini(&hctx->pool);
	free(hctx->rerun);
	free(hctx);
}

struct hctx *
hctx_new(struct queue *q, unsigned index)
{
	struct hctx *hctx = calloc(1, sizeof(*hctx));
	const struct hctx *first =
	    q->conf.shared_tags && index > 0 ? q->hctx[0] : NULL;

	if (hctx == NULL)
		return NULL;
	hctx->queue = q;
	hctx->index = index;
	hctx->shares_tags = q->conf.shared_tags;
	pthread_mutex_init(&hctx->lock, NULL);
	TAILQ_INIT(&hctx->dispatch);
	hctx->tags =
	    first != NULL ? tags_share(first->tags) : tags_new(q->conf.depth);
	hctx->rerun = calloc(q->machine->nr_cpus, sizeof(*hctx->rerun));
	if (hctx->tags == NULL || hctx->rerun == NULL ||
	    flush_queue_new(hctx) != 0 ||
	    rq_pool_init(&hctx->pool, hctx, &q->conf, q->conf.nr_requests,
		first != NULL ? &first->pool : NULL) != 0) {
		hctx_free(hctx);
		return NULL;
	}
	hctx_limit_tags(hctx);
	for (unsigned i = 0; i < q->machine->nr_cpus; i++)
		hctx->rerun[i].hctx = hctx;
	return hctx;
}

void
hctx_limit_tags(struct hctx *hctx)
{
	const struct queue_conf *conf = &hctx->queue->conf;

	/* with an elevator nr_requests are its own, and all tags are used */
	tags_limit(
	    hctx->tags, has_elevator(conf) ? conf->depth : conf->nr_requests);
}

/* ------------------------------------------------------- to the driver */

bool
hctx_has_work(const struct hctx *hctx)
{
	return atomic_load(&hctx->nr_waiting) > 0 ||
	       atomic_load(&hctx->queue->nr_queued) > 0;
}

static bool
is_stopped(const struct hctx *hctx, uint64_t now)
{
	return now <
	       atomic_load_explicit(&hctx->stopped_ns, memory_order_relaxed);
}

void
hctx_stop(struct hctx *hctx, uint64_t until, uint64_t now)
{
	uint64_t other = atomic_load(&hctx->stopped_ns);

	if (!is_stopped(hctx, now) || until < other)
		atomic_store(&hctx->stopped_ns, until);
}

void
queue_restart(struct queue *q)
{
	for (unsigned i = 0; i < q->conf.nr_hw_queues; i++)
		atomic_store(&q->hctx[i]->stopped_ns, 0);
	for (unsigned i = 0; i < q->machine->nr_cpus; i++)
		cpu_wake(&q->machine->cpu[i]);
}

/* blk_mq_update_dispatch_busy() */
static void
update_busy(struct hctx *hctx, bool busy)
{
	unsigned ewma = atomic_load_explicit(&hctx->busy, memory_order_relaxed);

	if (ewma == 0 && !busy)
		return;
	ewma *= BUSY_WEIGHT - 1;
	if (busy)
		ewma += 1 << BUSY_FACTOR;
	atomic_store_explicit(
	    &hctx->busy, ewma / BUSY_WEIGHT, memory_order_relaxed);
}

/*
 * 0; or the request is the caller's: -EBUSY, the driver has no room; -EAGAIN,
 * it has no tag.
 */
static int
issue(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct hctx *hctx = rq->hctx;
	struct ctx *ctx = hctx->queue->ctx[cpu->id];
	bool stat = rq->rq_flags & RQF_IO_STAT;
	int err;

	if (!rq_get_driver_tag(rq, cpu, now)) {
		update_busy(hctx, true);
		return -EAGAIN;
	}
	rq->rq_flags |= RQF_STARTED;
	if (stat)
		stat_issue(rq, cpu);
	trace_rq(ctx, TRACE_ISSUE, rq, now);
	err = hctx->queue->ops->queue_rq(rq, cpu, now);
	update_busy(hctx, err != 0);
	if (err == 0)
		return 0; /* it may have ended: rq is the driver's */
	assert(err == -EBUSY);
	trace_rq(ctx, TRACE_REQUEUE, rq, now);
	rq_put_driver_tag(rq);
	rq->rq_flags &= (uint16_t)~RQF_STARTED;
	if (stat)
		stat_unissue(rq, cpu);
	return err;
}

static void
commit(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	if (hctx->queue->ops->commit != NULL)
		hctx->queue->ops->commit(hctx, cpu, now);
}

/* blk_mq_request_bypass_insert(): to the dispatch list, which goes first. */
static void
dispatch_insert(struct hctx *hctx, struct request *rq)
{
	pthread_mutex_lock(&hctx->lock);
	TAILQ_INSERT_TAIL(&hctx->dispatch, rq, link);
	atomic_fetch_add(&hctx->nr_dispatch, 1);
	atomic_fetch_add(&hctx->nr_waiting, 1);
	pthread_mutex_unlock(&hctx->lock);
}

/* blk_mq_insert_requests(): to the end of the software queue. */
static void
ctx_insert(
    struct ctx *ctx, struct request *rq, const struct cpu *cpu, uint64_t now)
{
	trace_rq(ctx->queue->ctx[cpu->id], TRACE_INSERT, rq, now);
	pthread_mutex_lock(&ctx->lock);
	TAILQ_INSERT_TAIL(&ctx->list, rq, link);
	atomic_fetch_add(&ctx->nr_queued, 1);
	atomic_fetch_add(&ctx->hctx->nr_waiting, 1);
	pthread_mutex_unlock(&ctx->lock);
}

static void
ctx_insert_list(struct request_list *list, const struct cpu *cpu, uint64_t now)
{
	struct request *rq;

	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		ctx_insert(rq->ctx, rq, cpu, now);
	}
}

/* Take up to `max` requests, the oldest first. */
static void
ctx_take(struct ctx *ctx, struct request_list *out, unsigned max)
{
	struct request *rq;

	if (atomic_load_explicit(&ctx->nr_queued, memory_order_relaxed) == 0)
		return;
	pthread_mutex_lock(&ctx->lock);
	while (max-- > 0 && (rq = TAILQ_FIRST(&ctx->list)) != NULL) {
		TAILQ_REMOVE(&ctx->list, rq, link);
		TAILQ_INSERT_TAIL(out, rq, link);
		atomic_fetch_sub(&ctx->nr_queued, 1);
		atomic_fetch_sub(&ctx->hctx->nr_waiting, 1);
	}
	pthread_mutex_unlock(&ctx->lock);
}

/*
 * blk_mq_dispatch_rq_list(): false when the driver is busy; the rest goes to
 * the front of the dispatch list, in order.
 */
static bool
dispatch_list(
    struct hctx *hctx, struct request_list *list, struct cpu *cpu, uint64_t now)
{
	struct request *rq;
	unsigned left = 0;
	int err = 0;

	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		err = issue(rq, cpu, now);
		if (err != 0) {
			TAILQ_INSERT_HEAD(list, rq, link);
			break;
		}
	}
	commit(hctx, cpu, now);
	if (TAILQ_EMPTY(list))
		return true;
	TAILQ_FOREACH(rq, list, link)
		left++;
	pthread_mutex_lock(&hctx->lock);
	TAILQ_CONCAT(list, &hctx->dispatch, link);
	TAILQ_CONCAT(&hctx->dispatch, list, link);
	atomic_fetch_add(&hctx->nr_dispatch, left);
	atomic_fetch_add(&hctx->nr_waiting, left);
	pthread_mutex_unlock(&hctx->lock);
	/* who freed the last tag before it was there to see does not rerun it
	 */
	if (err == -EAGAIN && tags_in_use(hctx->tags) == 0)
		cpu_rerun(cpu, hctx);
	else
		cpu_rerun_later(cpu, hctx, now);
	return false;
}

/* blk_mq_do_dispatch_ctx(): one at a time, round robin over the cpus. */
static void
dispatch_round_robin(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	struct queue *q = hctx->queue;
	unsigned nr = q->machine->nr_cpus, empty = 0, i;

	while (empty < nr) {
		struct request_list one = TAILQ_HEAD_INITIALIZER(one);

		i = atomic_fetch_add(&hctx->next_ctx, 1) % nr;
		if (q->ctx[i]->hctx == hctx)
			ctx_take(q->ctx[i], &one, 1);
		if (TAILQ_EMPTY(&one)) {
			empty++;
			continue;
		}
		empty = 0;
		if (!dispatch_list(hctx, &one, cpu, now))
			return;
	}
}

/*
 * __blk_mq_do_dispatch_sched(): take from the elevator what the driver has
 * tags for, and one more: that one has left the elevator and waits on the
 * dispatch list.
 */
static void
take_batch(struct hctx *hctx, struct request_list *list, unsigned max,
    struct cpu *cpu, uint64_t now)
{
	struct elevator *e = hctx->queue->elevator;
	struct request *rq;

	while (max-- > 0 && atomic_load(&hctx->nr_dispatch) == 0) {
		rq = elevator_take(e, now);
		if (rq == NULL)
			return;
		TAILQ_INSERT_TAIL(list, rq, link);
		if (!rq_get_driver_tag(rq, cpu, now))
			return;
	}
}

/* blk_mq_do_dispatch_sched(): an elevator is the queue's, a list a hctx's. */
static void
dispatch_elevator(
    struct hctx *hctx, bool one_by_one, struct cpu *cpu, uint64_t now)
{
	unsigned max = one_by_one ? 1 : hctx->queue->conf.nr_requests;
	bool room = true;

	while (room) {
		struct request_list list = TAILQ_HEAD_INITIALIZER(list);

		take_batch(hctx, &list, max, cpu, now);
		if (TAILQ_EMPTY(&list)) {
			/* BLK_MQ_BUDGET_DELAY: what it holds back gets old */
			if (atomic_load(&hctx->queue->nr_queued) > 0)
				cpu_rerun_later(cpu, hctx, now);
			return;
		}
		while (!TAILQ_EMPTY(&list)) {
			struct request_list group =
			    TAILQ_HEAD_INITIALIZER(group);
			struct hctx *owner = TAILQ_FIRST(&list)->hctx;

			requests_take_group(&list, &group);
			room &= dispatch_list(owner, &group, cpu, now);
		}
	}
}

/* blk_mq_sched_dispatch_requests() (section 5) */
void
hctx_run(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	struct request_list list = TAILQ_HEAD_INITIALIZER(list);
	struct queue *q = hctx->queue;
	bool one_by_one;
	unsigned i, nr;

	if (!hctx_has_work(hctx))
		return;
	if (is_stopped(hctx, now)) {
		cpu_rerun_later(cpu, hctx, now);
		return;
	}
	pthread_mutex_lock(&hctx->lock);
	TAILQ_CONCAT(&list, &hctx->dispatch, link);
	nr = atomic_exchange(&hctx->nr_dispatch, 0);
	atomic_fetch_sub(&hctx->nr_waiting, nr);
	pthread_mutex_unlock(&hctx->lock);
	one_by_one = atomic_load(&hctx->busy) != 0;
	if (!TAILQ_EMPTY(&list)) {
		if (!dispatch_list(hctx, &list, cpu, now))
			return;
		one_by_one = true;
	}
	if (q->elevator != NULL) {
		dispatch_elevator(hctx, one_by_one, cpu, now);
		return;
	}
	if (one_by_one) {
		dispatch_round_robin(hctx, cpu, now);
		return;
	}
	for (i = 0; i < q->machine->nr_cpus; i++)
		if (q->ctx[i]->hctx == hctx)
			ctx_take(q->ctx[i], &list, UINT32_MAX);
	if (!TAILQ_EMPTY(&list))
		dispatch_list(hctx, &list, cpu, now);
}

/* ------------------------------------------------------------ what comes in */

void
hctx_insert_list(struct request_list *list, struct cpu *cpu, uint64_t now)
{
	struct elevator *e = TAILQ_FIRST(list)->hctx->queue->elevator;

	if (e != NULL)
		elevator_insert(e, list, cpu, now);
	else
		ctx_insert_list(list, cpu, now);
}

/* The driver wants nothing yet: an elevator does not look at software queues */
static void
keep_list(struct request_list *list, const struct cpu *cpu, uint64_t now)
{
	struct hctx *hctx = TAILQ_FIRST(list)->hctx;
	struct request *rq;

	if (hctx->queue->elevator == NULL) {
		ctx_insert_list(list, cpu, now);
		return;
	}
	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		dispatch_insert(hctx, rq);
	}
}

/*
 * blk_mq_plug_issue_direct(): each straight to the driver; once it is busy,
 * that request waits on the dispatch list and the rest in software queues.
 */
static void
issue_list(struct request_list *list, struct cpu *cpu, uint64_t now)
{
	struct hctx *hctx = TAILQ_FIRST(list)->hctx;
	const struct queue_ops *ops = hctx->queue->ops;
	struct request *rq, *next;
	bool busy = false;

	if (is_stopped(hctx, now)) {
		keep_list(list, cpu, now);
		hctx_run(hctx, cpu, now); /* at its time */
		return;
	}
	if (ops->prepare != NULL)
		TAILQ_FOREACH(rq, list, link)
			ops->prepare(rq, false);
	while (!busy && (rq = TAILQ_FIRST(list)) != NULL) {
		next = TAILQ_NEXT(rq, link);
		if (next != NULL && ops->prepare != NULL)
			ops->prepare(next, true);
		TAILQ_REMOVE(list, rq, link);
		busy = issue(rq, cpu, now) != 0;
		if (busy)
			dispatch_insert(hctx, rq);
	}
	commit(hctx, cpu, now);
	if (!busy)
		return;
	ctx_insert_list(list, cpu, now);
	hctx_run(hctx, cpu, now);
}

/*
 * blk_mq_run_hw_queue().  Up to 6.1 a worker does it where the driver may
 * sleep.  It takes the cpu from the task when that next allocates memory: at
 * its next bio, or once its call is over.
 */
static void
run_or_wake_worker(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	if (queue_runs_in_worker(hctx->queue))
		cpu_rerun(cpu, hctx);
	else
		hctx_run(hctx, cpu, now);
}

void
hctx_insert_and_run(struct request_list *list, struct cpu *cpu, uint64_t now)
{
	struct hctx *hctx = TAILQ_FIRST(list)->hctx;

	hctx_insert_list(list, cpu, now);
	run_or_wake_worker(hctx, cpu, now);
}

void
hctx_issue_list(struct request_list *list, struct cpu *cpu, uint64_t now)
{
	if (TAILQ_FIRST(list)->hctx->queue->elevator == NULL)
		issue_list(list, cpu, now);
	else
		hctx_insert_and_run(list, cpu, now);
}

/*
 * What flush.c takes through its steps does not wait in an elevator; nor does
 * FUA that the device does itself, in the ages in which no plug takes it.
 */
static bool
bypasses_elevator(const struct request *rq)
{
	return (rq->rq_flags & (RQF_FLUSH | RQF_FLUSH_SEQ)) != 0 ||
	       ((rq->flags & REQ_FUA) &&
		   !rq->hctx->queue->profile->plug_takes_fua);
}

void
hctx_insert(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct request_list list = TAILQ_HEAD_INITIALIZER(list);
	struct hctx *hctx = rq->hctx;
	bool one_queue = hctx->queue->conf.nr_hw_queues == 1;
	bool busy = one_queue && atomic_load_explicit(
				     &hctx->busy, memory_order_relaxed) != 0;

	TAILQ_INSERT_TAIL(&list, rq, link);
	if (hctx->queue->elevator != NULL && bypasses_elevator(rq))
		issue_list(&list, cpu, now);
	else if (busy)
		hctx_insert_and_run(&list, cpu, now);
	else
		hctx_issue_list(&list, cpu, now);
}
