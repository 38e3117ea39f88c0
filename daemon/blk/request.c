/* SPDX-License-Identifier: MIT */
/*
 * A request: where it comes from, how it completes, where it ends.
 *
 *	rq_get, rq_init -> (plug, elevator, driver) -> rq_complete -> rq_end
 *
 * It ends on the cpu that it was submitted on, and so does each of its bios,
 * which a merge may have brought from others.
 */
#include "blk/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* ----------------------------------------------- those of a hardware queue */

int
rq_pool_init(struct rq_pool *pool, struct hctx *hctx,
    const struct queue_conf *conf, unsigned nr_requests,
    const struct rq_pool *first)
{
	bool sched = has_elevator(conf);
	unsigned i, nr = sched ? nr_requests : conf->depth;

	*pool = (struct rq_pool){ 0 };
	pool->rqs = calloc(nr, sizeof(*pool->rqs));
	if (sched)
		pool->sched_tags = first != NULL ? tags_share(first->sched_tags)
						 : tags_new(nr);
	if (pool->rqs == NULL || (sched && pool->sched_tags == NULL)) {
		rq_pool_fini(pool);
		return -ENOMEM;
	}
	for (i = 0; i < nr; i++) {
		pool->rqs[i].hctx = hctx;
		pool->rqs[i].tag = sched ? -1 : (int)i;
		pool->rqs[i].internal_tag = sched ? (int)i : -1;
	}
	return 0;
}

void
rq_pool_fini(struct rq_pool *pool)
{
	tags_free(pool->sched_tags);
	free(pool->rqs);
	*pool = (struct rq_pool){ 0 };
}

/* A tag for a request of its own, or -1. */
static int
tag_get(const struct hctx *hctx, const struct bio *bio)
{
	const struct queue *q = hctx->queue;

	if (q->elevator == NULL)
		return tags_get(hctx->tags);
	return tags_get_below(hctx->pool.sched_tags,
	    elevator_depth(q->elevator, bio, q->conf.nr_requests));
}

struct request *
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
	return tag < 0 ? NULL : &hctx->pool.rqs[tag];
}

void
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
	rq->ticket = 0;
	rq->priv = NULL;
}

void
requests_take_group(struct request_list *from, struct request_list *group)
{
	struct request *rq, *next;
	const struct hctx *hctx = TAILQ_FIRST(from)->hctx;

	for (rq = TAILQ_FIRST(from); rq != NULL; rq = next) {
		next = TAILQ_NEXT(rq, link);
		if (rq->hctx != hctx)
			continue;
		TAILQ_REMOVE(from, rq, link);
		TAILQ_INSERT_TAIL(group, rq, link);
	}
}

/* ---------------------------------------------------------- back, and free */

/* The cpus that wait for a tag of any hardware queue, for all are the same. */
static __attribute__((noinline)) uint64_t
waiters_of_all(const struct queue *q)
{
	uint64_t waiters = 0;

	for (unsigned i = 0; i < q->conf.nr_hw_queues; i++)
		if (atomic_load(&q->hctx[i]->waiters) != 0)
			waiters |= atomic_exchange(&q->hctx[i]->waiters, 0);
	return waiters;
}

/* A tag is free again: who waits for one may try. */
static void
wake_waiters(struct hctx *hctx, struct cpu *cpu)
{
	struct machine *m = cpu->machine;
	uint64_t waiters = 0;
	unsigned i;

	cpu->tag_freed = true;
	if (hctx->shares_tags)
		waiters = waiters_of_all(hctx->queue);
	else if (atomic_load(&hctx->waiters) != 0)
		waiters = atomic_exchange(&hctx->waiters, 0);
	if (waiters == 0)
		return;
	for (i = 0; i < m->nr_cpus; i++)
		if (i != cpu->id && (waiters & (UINT64_C(1) << i % 64)) != 0)
			cpu_wake(&m->cpu[i]);
}

static __attribute__((noinline)) void
rerun_all(const struct queue *q, struct cpu *cpu)
{
	for (unsigned i = 0; i < q->conf.nr_hw_queues; i++)
		if (hctx_has_work(q->hctx[i]))
			cpu_rerun(cpu, q->hctx[i]);
}

/* The same: what waits in a hardware queue may go on. */
static inline void
rerun_waiting(struct hctx *hctx, struct cpu *cpu)
{
	if (hctx->shares_tags)
		rerun_all(hctx->queue, cpu);
	else if (hctx_has_work(hctx))
		cpu_rerun(cpu, hctx);
}

void
rq_put_driver_tag(struct request *rq)
{
	if (rq->internal_tag < 0 || rq->tag < 0)
		return;
	tags_put(rq->hctx->tags, rq->tag);
	rq->tag = -1;
}

bool
rq_get_driver_tag(struct request *rq, struct cpu *cpu, uint64_t now)
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

	rq_put_driver_tag(rq);
	if (rq->internal_tag >= 0)
		tags_put(hctx->pool.sched_tags, rq->internal_tag);
	else
		tags_put(hctx->tags, rq->tag);
	wake_waiters(hctx, cpu);
}

/* ---------------------------------------------------------------- its end */

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
		rq_put_driver_tag(rq);
		if (rq->rq_flags & RQF_FLUSH)
			flush_end(rq, cpu, now);
		else
			flush_data_end(rq, cpu, now);
		rerun_waiting(hctx, cpu);
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
	rerun_waiting(hctx, cpu);
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
	if (rq->rq_flags & RQF_TELL)
		rq->ctx->queue->ops->ended(rq, cpu, now);
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

bool
bios_given_up(const struct bio_list *bios)
{
	const struct bio *bio;

	STAILQ_FOREACH(bio, bios, link)
		if (bio->given_up == NULL || !atomic_load(bio->given_up))
			return false;
	return true;
}

bool
rq_given_up(const struct request *rq)
{
	if (rq->rq_flags & RQF_FLUSH)
		return flush_given_up(rq);
	return bios_given_up(&rq->bios);
}

void
rq_complete_posted(struct request *rq)
{
	assert(rq->rq_flags & RQF_MOVED);
	cpu_post(rq->ctx->cpu, rq);
}
