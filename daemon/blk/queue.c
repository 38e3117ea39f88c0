/* SPDX-License-Identifier: MIT */
/*
 * The path of a bio: split, merge or a request of its own, plug or driver;
 * and of a request: driver, completion, end.  A software queue and a dispatch
 * list hold requests only while the driver is busy.
 */
#include "blk/blk.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* The moving average of blk_mq_update_dispatch_busy(). */
#define BUSY_WEIGHT 8u
#define BUSY_FACTOR 4u

/* ------------------------------------------------------------ life cycle */

static void
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
	tags_free(hctx->sched_tags);
	free(hctx->rqs);
	free(hctx->rerun);
	free(hctx);
}

/* With what a hardware queue has its requests. */
struct hctx_requests {
	struct request *rqs;
	struct tags *sched_tags; /* NULL without an elevator */
};

static bool
has_elevator(const struct queue_conf *conf)
{
	return conf->elevator != NULL && conf->elevator->ops != NULL;
}

/* 0 or -ENOMEM: then there is nothing. */
static int
requests_new(struct hctx_requests *r, struct hctx *hctx,
    const struct queue_conf *conf, unsigned nr_requests)
{
	bool sched = has_elevator(conf);
	unsigned i, nr = sched ? nr_requests : conf->depth;

	r->sched_tags = sched ? tags_new(nr) : NULL;
	r->rqs = calloc(nr, sizeof(*r->rqs));
	if (r->rqs == NULL || (sched && r->sched_tags == NULL)) {
		tags_free(r->sched_tags);
		free(r->rqs);
		return -ENOMEM;
	}
	for (i = 0; i < nr; i++) {
		r->rqs[i].hctx = hctx;
		r->rqs[i].tag = sched ? -1 : (int)i;
		r->rqs[i].internal_tag = sched ? (int)i : -1;
	}
	return 0;
}

/* What it had goes back; nothing is in flight. */
static void
requests_take_over(
    struct hctx *hctx, struct hctx_requests *r, unsigned nr_requests)
{
	tags_free(hctx->sched_tags);
	free(hctx->rqs);
	hctx->rqs = r->rqs;
	hctx->sched_tags = r->sched_tags;
	tags_limit(hctx->tags,
	    hctx->sched_tags != NULL ? hctx->queue->conf.depth : nr_requests);
}

/* How many requests a hardware queue has, or 0: that many can't be (2.1). */
static unsigned
nr_requests_of(const struct queue_conf *conf)
{
	unsigned nr = conf->nr_requests;

	if (!has_elevator(conf))
		return nr == 0 ? conf->depth : nr <= conf->depth ? nr : 0;
	if (nr == 0)
		return 2 * (conf->depth < BLK_DEFAULT_RQ ? conf->depth
							 : BLK_DEFAULT_RQ);
	return nr <= BLK_MAX_SCHED_RQ ? nr : 0;
}

static struct hctx *
hctx_new(struct queue *q, unsigned index)
{
	struct hctx *hctx = calloc(1, sizeof(*hctx));
	struct hctx_requests rqs;

	if (hctx == NULL)
		return NULL;
	hctx->queue = q;
	hctx->index = index;
	pthread_mutex_init(&hctx->lock, NULL);
	TAILQ_INIT(&hctx->dispatch);
	hctx->tags = tags_new(q->conf.depth);
	hctx->rerun = calloc(q->machine->nr_cpus, sizeof(*hctx->rerun));
	if (hctx->tags == NULL || hctx->rerun == NULL ||
	    flush_queue_new(hctx) != 0 ||
	    requests_new(&rqs, hctx, &q->conf, q->conf.nr_requests) != 0) {
		hctx_free(hctx);
		return NULL;
	}
	requests_take_over(hctx, &rqs, q->conf.nr_requests);
	for (unsigned i = 0; i < q->machine->nr_cpus; i++)
		hctx->rerun[i].hctx = hctx;
	return hctx;
}

static struct ctx *
ctx_new(struct queue *q, unsigned cpu)
{
	struct ctx *ctx = aligned_calloc(1, sizeof(*ctx));

	if (ctx == NULL)
		return NULL;
	ctx->queue = q;
	ctx->cpu = &q->machine->cpu[cpu];
	ctx->hctx = q->hctx[cpu % q->conf.nr_hw_queues];
	pthread_mutex_init(&ctx->lock, NULL);
	TAILQ_INIT(&ctx->list);
	return ctx;
}

int
queue_new(struct queue **out, struct machine *m, const struct queue_ops *ops,
    void *driver, const struct queue_conf *conf)
{
	struct queue *q;
	unsigned i;

	if (conf->nr_hw_queues == 0 || conf->nr_hw_queues > BLK_MAX_HW_QUEUES ||
	    conf->depth == 0 || conf->depth > BLK_MAX_DEPTH ||
	    nr_requests_of(conf) == 0 || conf->limits.max_sectors == 0 ||
	    conf->limits.max_segments == 0)
		return -EINVAL;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		return -ENOMEM;
	q->ops = ops;
	q->driver = driver;
	q->machine = m;
	q->conf = *conf;
	q->conf.nr_requests = nr_requests_of(conf);
	q->profile = conf->profile;
	q->limits = conf->limits;
	q->hctx = calloc(conf->nr_hw_queues, sizeof(struct hctx *));
	q->ctx = calloc(m->nr_cpus, sizeof(struct ctx *));
	if (q->hctx == NULL || q->ctx == NULL || stat_new(q) != 0 ||
	    elevator_new(&q->elevator, q, conf->elevator) != 0)
		goto fail;
	for (i = 0; i < conf->nr_hw_queues; i++)
		if ((q->hctx[i] = hctx_new(q, i)) == NULL)
			goto fail;
	for (i = 0; i < m->nr_cpus; i++)
		if ((q->ctx[i] = ctx_new(q, i)) == NULL)
			goto fail;
	if (trace_new(q) != 0)
		goto fail;
	*out = q;
	return 0;
fail:
	queue_free(q);
	return -ENOMEM;
}

void
queue_free(struct queue *q)
{
	unsigned i;

	if (q == NULL)
		return;
	trace_free(q);
	for (i = 0; q->ctx != NULL && i < q->machine->nr_cpus; i++) {
		if (q->ctx[i] == NULL)
			continue;
		pthread_mutex_destroy(&q->ctx[i]->lock);
		free(q->ctx[i]);
	}
	for (i = 0; q->hctx != NULL && i < q->conf.nr_hw_queues; i++)
		hctx_free(q->hctx[i]);
	free(q->ctx);
	free(q->hctx);
	elevator_free(q->elevator);
	stat_free(q);
	free(q);
}

/* ---------------------------------------------------------------- freezing */

void
queue_freeze(struct queue *q)
{
	assert(!queue_freezing(q));
	atomic_store(&q->freezing, true);
	q->freeze = FREEZE_SEEN;
	q->freeze_stamp = epoch_retire(&q->machine->epoch);
}

/* Has every cpu been outside since the step began? */
static bool
freeze_step_over(const struct queue *q)
{
	return epoch_safe(&q->machine->epoch) > q->freeze_stamp;
}

bool
queue_frozen(struct queue *q)
{
	/* in this order: who waits may get a tag, but nobody begins to wait */
	if (q->freeze == FREEZE_SEEN && freeze_step_over(q) &&
	    atomic_load(&q->nr_waits) == 0 && queue_tags_in_use(q) == 0) {
		q->freeze = FREEZE_DRAINED;
		q->freeze_stamp = epoch_retire(&q->machine->epoch);
	}
	if (q->freeze == FREEZE_DRAINED && freeze_step_over(q))
		q->freeze = FREEZE_DONE;
	return q->freeze == FREEZE_DONE;
}

void
queue_thaw(struct queue *q)
{
	atomic_store(&q->freezing, false);
	for (unsigned i = 0; i < q->machine->nr_cpus; i++)
		cpu_wake(&q->machine->cpu[i]);
}

/* The parts that change in a running queue. */
static void
conf_take_over(struct queue *q, const struct queue_conf *conf)
{
	q->conf.limits = q->limits = conf->limits;
	q->conf.elevator = conf->elevator;
	q->conf.deadline = conf->deadline;
	q->conf.nr_requests = nr_requests_of(conf);
	q->conf.nomerges = conf->nomerges;
	q->conf.plug_mode = conf->plug_mode;
	q->conf.iostats = conf->iostats;
}

/* elevator_switch(): it and its requests, all new; 0 or -ENOMEM. */
static int
switch_elevator(struct queue *q, const struct queue_conf *conf)
{
	unsigned i, nr = q->conf.nr_hw_queues;
	struct hctx_requests *rqs = calloc(nr, sizeof(*rqs));
	struct elevator *e = NULL;

	if (rqs == NULL || elevator_new(&e, q, conf->elevator) != 0) {
		free(rqs);
		return -ENOMEM;
	}
	for (i = 0; i < nr; i++)
		if (requests_new(
			&rqs[i], q->hctx[i], conf, nr_requests_of(conf)) != 0)
			break;
	if (i < nr) {
		while (i-- > 0) {
			tags_free(rqs[i].sched_tags);
			free(rqs[i].rqs);
		}
		elevator_free(e);
		free(rqs);
		return -ENOMEM;
	}
	for (i = 0; i < nr; i++)
		requests_take_over(q->hctx[i], &rqs[i], nr_requests_of(conf));
	elevator_free(q->elevator);
	q->elevator = e;
	free(rqs);
	return 0;
}

int
queue_update(struct queue *q, const struct queue_conf *conf)
{
	unsigned nr_requests = nr_requests_of(conf);
	int ret = 0;

	assert(queue_frozen(q));
	if (nr_requests == 0 || conf->depth != q->conf.depth ||
	    conf->limits.max_sectors == 0 || conf->limits.max_segments == 0)
		return -EINVAL;
	if (conf->elevator != q->conf.elevator ||
	    nr_requests != q->conf.nr_requests)
		ret = switch_elevator(q, conf);
	if (ret != 0)
		return ret;
	conf_take_over(q, conf);
	if (q->elevator != NULL)
		elevator_configure(q->elevator);
	return 0;
}

/* ------------------------------------------------------- request: its end */

/* A tag is free again: who waits for one may try. */
static void
wake_waiters(struct hctx *hctx, struct cpu *cpu)
{
	struct machine *m = cpu->machine;
	uint64_t waiters = 0;
	unsigned i;

	cpu->tag_freed = true;
	if (atomic_load(&hctx->waiters) != 0)
		waiters = atomic_exchange(&hctx->waiters, 0);
	if (waiters == 0)
		return;
	for (i = 0; i < m->nr_cpus; i++)
		if (i != cpu->id && (waiters & (UINT64_C(1) << i % 64)) != 0)
			cpu_wake(&m->cpu[i]);
}

/*
 * blk_mq_put_driver_tag(): with an elevator the request, which has a tag of
 * its own, holds it only while the driver has it.
 */
static void
driver_tag_put(struct request *rq)
{
	if (rq->internal_tag < 0 || rq->tag < 0)
		return;
	tags_put(rq->hctx->tags, rq->tag);
	rq->tag = -1;
}

static bool
driver_tag_get(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct tags *tags = rq->hctx->tags;

	if (rq->tag < 0)
		rq->tag = tags_get(tags);
	/* the kernel's softirq would have run by now */
	if (rq->tag < 0 && cpu_run_softirq(cpu, now))
		rq->tag = tags_get(tags);
	return rq->tag >= 0;
}

void
rq_free(struct request *rq, struct cpu *cpu)
{
	struct hctx *hctx = rq->hctx;

	driver_tag_put(rq);
	if (rq->internal_tag >= 0)
		tags_put(hctx->sched_tags, rq->internal_tag);
	else
		tags_put(hctx->tags, rq->tag);
	wake_waiters(hctx, cpu);
}

/* Is there anything that a tag, or room in the driver, lets go on? */
static bool
has_work(const struct hctx *hctx)
{
	return atomic_load(&hctx->nr_waiting) > 0 ||
	       atomic_load(&hctx->queue->nr_queued) > 0;
}

/* Each bio ends on the cpu that submitted it. */
static void
end_bios(struct bio_list *bios, int error, struct cpu *cpu, uint64_t now)
{
	struct bio *bio;

	while ((bio = STAILQ_FIRST(bios)) != NULL) {
		STAILQ_REMOVE_HEAD(bios, link);
		if (bio->cpu == cpu)
			bio_endio(bio, error, cpu, now);
		else
			cpu_post_bio(bio, error);
	}
}

void
rq_end(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct bio_list bios = STAILQ_HEAD_INITIALIZER(bios);
	struct hctx *hctx = rq->hctx;
	int error = rq->error;

	assert(rq->ctx->cpu == cpu);
	if (rq->rq_flags & (RQF_FLUSH | RQF_FLUSH_SEQ)) {
		trace_rq(rq->ctx, TRACE_COMPLETE, rq, now);
		driver_tag_put(rq);
		if (rq->rq_flags & RQF_FLUSH)
			flush_end(rq, cpu, now);
		else
			flush_data_end(rq, cpu, now);
		if (has_work(hctx))
			cpu_rerun(cpu, hctx);
		return;
	}
	if (rq->rq_flags & RQF_IO_STAT) {
		stat_end(rq, now);
		if ((rq->rq_flags & (RQF_STARTED | RQF_COMPLETE)) ==
		    RQF_STARTED)
			stat_unissue(rq, cpu);
	}
	trace_rq(rq->ctx, TRACE_COMPLETE, rq, now);
	STAILQ_CONCAT(&bios, &rq->bios);
	if (rq->rq_flags & RQF_ELV)
		elevator_finish(hctx->queue->elevator, rq);
	rq_free(rq, cpu);
	if (has_work(hctx))
		cpu_rerun(cpu, hctx);
	end_bios(&bios, error, cpu, now);
}

void
rq_moved(struct request *rq, struct cpu *cpu)
{
	struct cpu *woken = cpu, *submitter;
	struct bio *bio;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		submitter = bio->cpu;
		atomic_store_explicit(&bio->moved, true, memory_order_release);
		if (submitter != woken)
			cpu_wake(submitter); /* a task there may wait for it */
		woken = submitter;
	}
	rq->rq_flags |= RQF_MOVED;
}

void
rq_complete(struct request *rq, struct cpu *cpu, uint64_t now)
{
	if ((rq->rq_flags & RQF_MOVED) == 0)
		rq_moved(rq, cpu);
	if (rq->ctx->cpu == cpu)
		rq_end(rq, cpu, now);
	else
		cpu_post(rq->ctx->cpu, rq);
}

void
rq_complete_softirq(struct request *rq, struct cpu *cpu)
{
	/* blk_mq_complete_request(): no longer in flight when it ends (6.2) */
	rq->rq_flags |= RQF_COMPLETE;
	if (rq->rq_flags & RQF_IO_STAT)
		stat_unissue(rq, cpu);
	TAILQ_INSERT_TAIL(&cpu->softirq, rq, link);
}

void
rq_complete_after(struct request *rq, struct cpu *cpu, uint64_t delay_ns)
{
	rq->delay_ns = delay_ns;
	TAILQ_INSERT_TAIL(&cpu->unarmed, rq, link);
}

/* ---------------------------------------------------- request: its issue */

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

	if (!driver_tag_get(rq, cpu, now)) {
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
	driver_tag_put(rq);
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

static bool
serves(const struct hctx *hctx, const struct ctx *ctx)
{
	return ctx->hctx == hctx;
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
		if (serves(hctx, q->ctx[i]))
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
		if (!driver_tag_get(rq, cpu, now))
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

	if (!has_work(hctx))
		return;
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
		if (serves(hctx, q->ctx[i]))
			ctx_take(q->ctx[i], &list, UINT32_MAX);
	if (!TAILQ_EMPTY(&list))
		dispatch_list(hctx, &list, cpu, now);
}

void
queue_run(struct queue *q, struct cpu *cpu, uint64_t now)
{
	unsigned i;

	for (i = 0; i < q->conf.nr_hw_queues; i++)
		hctx_run(q->hctx[i], cpu, now);
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

	while (!busy && (rq = TAILQ_FIRST(list)) != NULL) {
		next = TAILQ_NEXT(rq, link);
		if (next != NULL && ops->prepare != NULL)
			ops->prepare(next);
		TAILQ_REMOVE(list, rq, link);
		busy = issue(rq, cpu, now) != 0;
		if (busy)
			dispatch_insert(hctx, rq);
	}
	commit(hctx, cpu, now);
	if (!busy)
		return;
	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		ctx_insert(rq->ctx, rq, cpu, now);
	}
	hctx_run(hctx, cpu, now);
}

void
queue_insert_list(struct request_list *list, struct cpu *cpu, uint64_t now)
{
	struct elevator *e = TAILQ_FIRST(list)->hctx->queue->elevator;
	struct request *rq;

	if (e != NULL) {
		elevator_insert(e, list, cpu, now);
		return;
	}
	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		ctx_insert(rq->ctx, rq, cpu, now);
	}
}

/* Does a worker run it, as soon as it gets this cpu? */
static bool
runs_in_worker(const struct queue *q)
{
	return q->conf.blocking && q->profile->worker_runs_blocking;
}

/*
 * blk_mq_run_hw_queue().  Up to 6.1 a worker does it where the driver may
 * sleep.  It takes the cpu from the task when that next allocates memory: at
 * its next bio, or once its call is over.
 */
static void
run_or_wake_worker(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	if (runs_in_worker(hctx->queue))
		cpu_rerun(cpu, hctx);
	else
		hctx_run(hctx, cpu, now);
}

void
queue_issue_list(struct request_list *list, struct cpu *cpu, uint64_t now)
{
	struct hctx *hctx = TAILQ_FIRST(list)->hctx;

	if (hctx->queue->elevator == NULL) {
		issue_list(list, cpu, now);
		return;
	}
	queue_insert_list(list, cpu, now);
	run_or_wake_worker(hctx, cpu, now);
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
rq_insert(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct request_list list = TAILQ_HEAD_INITIALIZER(list);
	struct hctx *hctx = rq->hctx;
	bool one_queue = hctx->queue->conf.nr_hw_queues == 1;
	bool busy = one_queue && atomic_load_explicit(
				     &hctx->busy, memory_order_relaxed) != 0;

	TAILQ_INSERT_TAIL(&list, rq, link);
	if (hctx->queue->elevator != NULL && bypasses_elevator(rq)) {
		issue_list(&list, cpu, now);
	} else if (busy) {
		queue_insert_list(&list, cpu, now);
		run_or_wake_worker(hctx, cpu, now);
	} else {
		queue_issue_list(&list, cpu, now);
	}
}

/* ---------------------------------------------------------------- submit */

/* blk_bio_list_merge(): the newest few of this cpu's software queue. */
static bool
sw_queue_merge(struct ctx *ctx, struct bio *bio, uint64_t now)
{
	enum merge_result res = MERGE_NONE;
	struct request *rq;
	unsigned left = BLK_SW_QUEUE_LOOK_BACK;

	if (atomic_load_explicit(&ctx->nr_queued, memory_order_relaxed) == 0)
		return false;
	pthread_mutex_lock(&ctx->lock);
	TAILQ_FOREACH_REVERSE(rq, &ctx->list, request_list, link) {
		if (left-- == 0)
			break;
		res = rq_attempt_merge(rq, bio, ctx, now);
		if (res != MERGE_NONE)
			break; /* merged, or a limit refused: the search ends */
	}
	pthread_mutex_unlock(&ctx->lock);
	return res == MERGE_OK;
}

/* The attempts to merge, in their order (3.1). */
static bool
merge(struct ctx *ctx, struct plug *plug, struct bio *bio, uint64_t now)
{
	if (ctx->queue->conf.nomerges == 2)
		return false;
	if (bio->flags & (REQ_NOMERGE | REQ_PREFLUSH | REQ_FUA))
		return false;
	if (plug != NULL && plug_merge(plug, bio, ctx, now))
		return true;
	if (ctx->queue->elevator != NULL)
		return elevator_merge(ctx->queue->elevator, bio, ctx, now);
	return sw_queue_merge(ctx, bio, now);
}

/* A tag for a request of its own, or -1. */
static int
tag_get(const struct hctx *hctx, const struct bio *bio)
{
	const struct queue *q = hctx->queue;

	if (q->elevator == NULL)
		return tags_get(hctx->tags);
	return tags_get_below(hctx->sched_tags,
	    elevator_depth(q->elevator, bio, q->conf.nr_requests));
}

/*
 * A tag, or NULL: none is free even after the plug was flushed, and this cpu
 * is noted as waiting.
 */
static struct request *
rq_get(struct ctx *ctx, struct plug *plug, const struct bio *bio,
    struct cpu *cpu, uint64_t now)
{
	struct hctx *hctx = ctx->hctx;
	int tag = tag_get(hctx, bio);

	/* the kernel's softirq would have run by now */
	if (tag < 0 && cpu_run_softirq(cpu, now))
		tag = tag_get(hctx, bio);
	if (tag < 0) {
		if (plug != NULL)
			plug_flush_blocked(plug, cpu, now);
		/* while the task sleeps, workers and softirqs have the cpu */
		cpu_run_hctxs(cpu, now);
		cpu_run_softirq(cpu, now);
		/* noted before the last look: no wake-up is missed */
		atomic_fetch_or(&hctx->waiters, UINT64_C(1) << cpu->id % 64);
		tag = tag_get(hctx, bio);
	}
	return tag < 0 ? NULL : &hctx->rqs[tag];
}

static void
rq_init(struct request *rq, struct ctx *ctx, struct bio *bio, uint64_t now)
{
	STAILQ_INIT(&rq->bios);
	STAILQ_INSERT_TAIL(&rq->bios, bio, link);
	rq->ctx = ctx;
	rq->op = bio->op;
	rq->prio = bio->prio;
	rq->flags = bio->flags;
	rq->rq_flags = 0;
	rq->pos = bio->pos;
	rq->bytes = bio->bytes;
	rq->nr_segs = bio->nr_segs;
	rq->error = 0;
	rq->start_ns = now;
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

/* A bio that comes alone has a plug to itself, which only a trace shows. */
static void
trace_own_plug(const struct request *rq, const struct cpu *cpu, uint64_t now)
{
	const struct queue *q = rq->hctx->queue;
	struct ctx *ctx = q->ctx[cpu->id];

	if (!q->profile->bio_opens_plug || q->conf.plug_mode != PLUG_TASK)
		return;
	trace_plug(ctx, TRACE_PLUG, rq, 0, now);
	trace_plug(ctx, TRACE_UNPLUG, rq, 1, now);
}

/* A request that merged with nothing: into the plug, or on its way. */
static void
rq_submit(struct request *rq, struct plug *plug, struct cpu *cpu, uint64_t now)
{
	struct queue *q = rq->hctx->queue;
	const struct profile *p = q->profile;
	bool flush = rq->op == REQ_OP_FLUSH ||
		     (rq->flags & (REQ_FUA | REQ_PREFLUSH)) != 0;
	bool limited = plugs_limited(q);

	if (flush && flush_insert(rq, cpu, now) == FLUSH_TAKEN)
		return;
	if ((flush && !p->plug_takes_fua) || (limited && q->conf.nomerges == 2))
		plug = NULL;
	if (plug == NULL) {
		trace_own_plug(rq, cpu, now);
		rq_insert(rq, cpu, now);
		return;
	}
	if (q->conf.plug_mode == PLUG_CALL) {
		struct request_list list = TAILQ_HEAD_INITIALIZER(list);

		plug_call(plug, q, cpu, now);
		TAILQ_INSERT_TAIL(&list, rq, link);
		queue_insert_list(&list, cpu, now);
		return;
	}
	if (!limited) {
		plug_add(plug, rq, cpu, now);
		return;
	}
	rq = plug_swap(plug, rq);
	if (rq != NULL)
		rq_insert(rq, cpu, now);
}

/*
 * submit_bio_noacct(): what the device has no use for ends here.  True: the
 * bio was ended.
 */
static bool
ends_at_once(struct queue *q, struct bio *bio, struct cpu *cpu, uint64_t now)
{
	int error = 0;

	if (!q->limits.write_cache)
		bio->flags &= (uint16_t) ~(REQ_FUA | REQ_PREFLUSH);
	switch ((enum req_op)bio->op) {
	case REQ_OP_FLUSH:
		if (q->limits.write_cache)
			return false;
		break;
	case REQ_OP_DISCARD:
		if (q->limits.max_discard_sectors > 0)
			return false;
		error = -EOPNOTSUPP;
		break;
	case REQ_OP_WRITE_ZEROES:
		if (q->limits.max_write_zeroes_sectors > 0)
			return false;
		error = -EOPNOTSUPP;
		break;
	case REQ_OP_READ:
	case REQ_OP_WRITE:
	case REQ_OP_NR: return false;
	}
	atomic_store_explicit(&bio->moved, true, memory_order_relaxed);
	bio_endio(bio, error, cpu, now);
	return true;
}

/*
 * Split off what may go as one request: the bio itself, if that is all of it.
 * NULL: out of memory.
 */
static struct bio *
next_piece(struct queue *q, struct ctx *ctx, struct bio *bio, struct cpu *cpu,
    uint64_t now)
{
	enum split_cause cause;
	struct bio *piece = bio;
	unsigned nr_segs;
	uint64_t bytes;

	if (q->conf.bio_based)
		return bio;
	bytes = bio_fits(bio, q, &nr_segs, &cause);
	if (bytes < bio->bytes) {
		piece = bio_split(bio, bytes, cpu);
		if (piece == NULL)
			return NULL;
		stat_split(ctx, cause);
		trace_split(ctx, piece, bio, now);
	}
	piece->nr_segs = nr_segs;
	return piece;
}

void
queue_drop(
    struct queue *q, struct cpu *cpu, struct bio *bio, int error, uint64_t now)
{
	struct bio *piece = bio->waits;

	bio->waits = NULL;
	if (piece != NULL)
		atomic_fetch_sub(&q->nr_waits, 1);
	if (piece != NULL && piece != bio)
		bio_endio(piece, error, cpu, now);
	bio_endio(bio, error, cpu, now);
}

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

int
queue_submit(struct queue *q, struct cpu *cpu, struct plug *plug,
    struct bio *bio, uint64_t now)
{
	struct ctx *ctx = q->ctx[cpu->id];
	struct bio *piece = bio->waits;
	struct request *rq;
	bool last, waited = piece != NULL;

	if (piece == NULL) {
		if (runs_in_worker(q))
			cpu_run_hctxs(cpu, now);
		bio->cpu = cpu;
		if (queue_freezing(q)) {
			if (plug != NULL)
				plug_flush_blocked(plug, cpu, now);
			return -EAGAIN;
		}
		if (ends_at_once(q, bio, cpu, now))
			return 0;
		if (!q->conf.bio_based)
			stat_bio(ctx, bio);
		trace_bio(ctx, TRACE_QUEUE, bio, now);
	}
	if (q->conf.plug_mode == PLUG_EACH)
		plug = NULL;
	do {
		if (piece == NULL) {
			piece = next_piece(q, ctx, bio, cpu, now);
			if (piece == NULL) {
				bio_endio(bio, -ENOMEM, cpu, now);
				break;
			}
			last = piece == bio;
			if (!q->conf.bio_based && merge(ctx, plug, piece, now))
				goto next;
		}
		last = piece == bio;
		rq = rq_get(ctx, plug, piece, cpu, now);
		bio->waits = rq == NULL ? piece : NULL;
		if (rq == NULL) {
			if (!waited)
				atomic_fetch_add(&q->nr_waits, 1);
			return -EAGAIN;
		}
		rq_init(rq, ctx, piece, now);
		trace_bio(ctx, TRACE_GETRQ, piece, now);
		if (q->conf.bio_based) {
			rq_insert(rq, cpu, now);
		} else {
			if (q->conf.iostats) {
				rq->rq_flags |= RQF_IO_STAT;
				stat_start(rq, now);
			}
			rq_submit(rq, plug, cpu, now);
		}
	next:
		piece = NULL;
	} while (!last); /* after the last piece the bio may be gone */
	if (waited)
		atomic_fetch_sub(&q->nr_waits, 1);
	return 0;
}

unsigned
queue_tags_in_use(const struct queue *q)
{
	unsigned i, nr = 0;

	for (i = 0; i < q->conf.nr_hw_queues; i++) {
		const struct hctx *hctx = q->hctx[i];

		nr += tags_in_use(
		    hctx->sched_tags != NULL ? hctx->sched_tags : hctx->tags);
	}
	return nr;
}
