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
	free(hctx->rqs);
	free(hctx->rerun);
	free(hctx);
}

static struct hctx *
hctx_new(struct queue *q, unsigned index)
{
	struct hctx *hctx = calloc(1, sizeof(*hctx));
	unsigned i, depth = q->conf.depth;

	if (hctx == NULL)
		return NULL;
	hctx->queue = q;
	hctx->index = index;
	pthread_mutex_init(&hctx->lock, NULL);
	TAILQ_INIT(&hctx->dispatch);
	hctx->tags = tags_new(depth);
	hctx->rqs = calloc(depth, sizeof(*hctx->rqs));
	hctx->rerun = calloc(q->machine->nr_cpus, sizeof(*hctx->rerun));
	if (hctx->tags == NULL || hctx->rqs == NULL || hctx->rerun == NULL ||
	    flush_queue_new(hctx) != 0) {
		hctx_free(hctx);
		return NULL;
	}
	tags_limit(hctx->tags, q->conf.nr_requests);
	for (i = 0; i < depth; i++) {
		hctx->rqs[i].hctx = hctx;
		hctx->rqs[i].tag = (int)i;
	}
	for (i = 0; i < q->machine->nr_cpus; i++)
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
	    conf->nr_requests > conf->depth || conf->limits.max_sectors == 0 ||
	    conf->limits.max_segments == 0)
		return -EINVAL;
	q = calloc(1, sizeof(*q));
	if (q == NULL)
		return -ENOMEM;
	q->ops = ops;
	q->driver = driver;
	q->machine = m;
	q->conf = *conf;
	if (q->conf.nr_requests == 0)
		q->conf.nr_requests = conf->depth;
	q->profile = conf->profile;
	q->limits = conf->limits;
	q->hctx = calloc(conf->nr_hw_queues, sizeof(struct hctx *));
	q->ctx = calloc(m->nr_cpus, sizeof(struct ctx *));
	if (q->hctx == NULL || q->ctx == NULL || stat_new(q) != 0)
		goto fail;
	for (i = 0; i < conf->nr_hw_queues; i++)
		if ((q->hctx[i] = hctx_new(q, i)) == NULL)
			goto fail;
	for (i = 0; i < m->nr_cpus; i++)
		if ((q->ctx[i] = ctx_new(q, i)) == NULL)
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
	stat_free(q);
	free(q);
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

void
rq_end(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct bio_list bios = STAILQ_HEAD_INITIALIZER(bios);
	struct hctx *hctx = rq->hctx;
	struct bio *bio;
	int error = rq->error;

	assert(rq->ctx->cpu == cpu);
	if (rq->rq_flags & RQF_FLUSH) {
		flush_end(rq, cpu, now);
		return;
	}
	if (rq->rq_flags & RQF_FLUSH_SEQ) {
		flush_data_end(rq, cpu, now);
		return;
	}
	if (rq->rq_flags & RQF_IO_STAT) {
		stat_end(rq, now);
		if ((rq->rq_flags & (RQF_STARTED | RQF_COMPLETE)) ==
		    RQF_STARTED)
			stat_unissue(rq, cpu);
	}
	STAILQ_CONCAT(&bios, &rq->bios);
	tags_put(hctx->tags, rq->tag);
	wake_waiters(hctx, cpu);
	if (atomic_load(&hctx->nr_waiting) > 0)
		cpu_rerun(cpu, hctx);
	while ((bio = STAILQ_FIRST(&bios)) != NULL) {
		STAILQ_REMOVE_HEAD(&bios, link);
		bio_endio(bio, error, cpu, now);
	}
}

void
rq_moved(struct request *rq, struct cpu *cpu)
{
	struct bio *bio;

	STAILQ_FOREACH(bio, &rq->bios, link)
		atomic_store_explicit(&bio->moved, true, memory_order_release);
	rq->rq_flags |= RQF_MOVED;
	if (rq->ctx->cpu != cpu)
		cpu_wake(rq->ctx->cpu); /* a task there may wait for it */
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

/* 0, or -EBUSY: the driver has no room and the request is the caller's. */
static int
issue(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct hctx *hctx = rq->hctx;
	bool stat = rq->rq_flags & RQF_IO_STAT;
	int err;

	rq->rq_flags |= RQF_STARTED;
	rq->issue_ns = now;
	if (stat)
		stat_issue(rq, cpu);
	err = hctx->queue->ops->queue_rq(rq, cpu, now);
	update_busy(hctx, err != 0);
	if (err == 0)
		return 0; /* it may have ended: rq is the driver's */
	assert(err == -EBUSY);
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
ctx_insert(struct ctx *ctx, struct request *rq)
{
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

	while ((rq = TAILQ_FIRST(list)) != NULL) {
		TAILQ_REMOVE(list, rq, link);
		if (issue(rq, cpu, now) != 0) {
			TAILQ_INSERT_HEAD(list, rq, link);
			break;
		}
	}
	commit(hctx, cpu, now);
	if (TAILQ_EMPTY(list))
		return true;
	TAILQ_FOREACH(rq, list, link)
		left++;
	cpu_rerun_later(cpu, hctx, now);
	pthread_mutex_lock(&hctx->lock);
	TAILQ_CONCAT(list, &hctx->dispatch, link);
	TAILQ_CONCAT(&hctx->dispatch, list, link);
	atomic_fetch_add(&hctx->nr_dispatch, left);
	atomic_fetch_add(&hctx->nr_waiting, left);
	pthread_mutex_unlock(&hctx->lock);
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

/* blk_mq_sched_dispatch_requests() with the scheduler none (section 5) */
void
hctx_run(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	struct request_list list = TAILQ_HEAD_INITIALIZER(list);
	struct queue *q = hctx->queue;
	bool one_by_one;
	unsigned i, nr;

	if (atomic_load(&hctx->nr_waiting) == 0)
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
void
queue_issue_list(struct request_list *list, struct cpu *cpu, uint64_t now)
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
		ctx_insert(rq->ctx, rq);
	}
	hctx_run(hctx, cpu, now);
}

void
rq_insert(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct request_list list = TAILQ_HEAD_INITIALIZER(list);
	struct hctx *hctx = rq->hctx;
	bool one_queue = hctx->queue->conf.nr_hw_queues == 1;

	if (one_queue &&
	    atomic_load_explicit(&hctx->busy, memory_order_relaxed) != 0) {
		ctx_insert(rq->ctx, rq);
		hctx_run(hctx, cpu, now);
		return;
	}
	TAILQ_INSERT_TAIL(&list, rq, link);
	queue_issue_list(&list, cpu, now);
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
	return sw_queue_merge(ctx, bio, now);
}

/*
 * A tag, or NULL: none is free even after the plug was flushed, and this cpu
 * is noted as waiting.
 */
static struct request *
rq_get(struct ctx *ctx, struct plug *plug, struct cpu *cpu, uint64_t now)
{
	struct hctx *hctx = ctx->hctx;
	int tag = tags_get(hctx->tags);

	if (tag < 0) {
		if (plug != NULL)
			plug_flush_blocked(plug, cpu, now);
		/* noted before the last look: no wake-up is missed */
		atomic_fetch_or(&hctx->waiters, UINT64_C(1) << cpu->id % 64);
		tag = tags_get(hctx->tags);
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

/* Does a plug hold one request of this queue only (4.1)? */
static bool
plugs_limited(const struct queue *q)
{
	if (q->conf.nr_hw_queues == 1)
		return false;
	if (q->profile->plug_limited == PLUG_LIMITED_NONROT)
		return !q->limits.rotational && q->ops->commit == NULL;
	return q->profile->plug_limited == PLUG_LIMITED;
}

/* A request that merged with nothing: into the plug, or on its way. */
static void
rq_submit(struct request *rq, struct plug *plug, struct cpu *cpu, uint64_t now)
{
	const struct queue *q = rq->hctx->queue;
	const struct profile *p = q->profile;
	bool flush = rq->op == REQ_OP_FLUSH ||
		     (rq->flags & (REQ_FUA | REQ_PREFLUSH)) != 0;
	bool limited = plugs_limited(q);

	if (flush && flush_insert(rq, cpu, now) == FLUSH_TAKEN)
		return;
	if ((flush && !p->plug_takes_fua) || (limited && q->conf.nomerges == 2))
		plug = NULL;
	if (plug == NULL) {
		rq_insert(rq, cpu, now);
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
next_piece(struct queue *q, struct ctx *ctx, struct bio *bio, struct cpu *cpu)
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
	}
	piece->nr_segs = nr_segs;
	return piece;
}

int
queue_submit(struct queue *q, struct cpu *cpu, struct plug *plug,
    struct bio *bio, uint64_t now)
{
	struct ctx *ctx = q->ctx[cpu->id];
	struct bio *piece = bio->waits;
	struct request *rq;
	bool last;

	if (piece == NULL && ends_at_once(q, bio, cpu, now))
		return 0;
	do {
		if (piece == NULL) {
			piece = next_piece(q, ctx, bio, cpu);
			if (piece == NULL) {
				bio_endio(bio, -ENOMEM, cpu, now);
				return 0;
			}
			last = piece == bio;
			if (!q->conf.bio_based && merge(ctx, plug, piece, now))
				goto next;
		}
		last = piece == bio;
		rq = rq_get(ctx, plug, cpu, now);
		if (rq == NULL) {
			bio->waits = piece;
			return -EAGAIN;
		}
		bio->waits = NULL;
		rq_init(rq, ctx, piece, now);
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
	return 0;
}

unsigned
queue_tags_in_use(const struct queue *q)
{
	unsigned i, nr = 0;

	for (i = 0; i < q->conf.nr_hw_queues; i++)
		nr += tags_in_use(q->hctx[i]->tags);
	return nr;
}
