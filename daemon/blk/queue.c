/* SPDX-License-Identifier: MIT */
/*
 * A request queue, and the path of a bio through it: split, merge or a request
 * of its own, plug or driver.
 *
 *	bio -> split -> [plug? elevator? software queue?] merged, or
 *	               request -> plug, or hctx.c
 */
#include "blk/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ life cycle */

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

static void
ctx_free(struct ctx *ctx)
{
	if (ctx == NULL)
		return;
	free(ctx->latency);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
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
	ctx->latency = calloc(STAT_NR, sizeof(ctx->latency[0]));
	if (ctx->latency == NULL) {
		ctx_free(ctx);
		return NULL;
	}
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
	for (i = 0; q->ctx != NULL && i < q->machine->nr_cpus; i++)
		ctx_free(q->ctx[i]);
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
	atomic_store(&q->leaving, false);
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
	struct rq_pool *pool = calloc(nr, sizeof(*pool));
	struct elevator *e = NULL;
	int ret = -ENOMEM;

	if (pool == NULL || elevator_new(&e, q, conf->elevator) != 0)
		goto out;
	for (i = 0; i < nr; i++)
		if (rq_pool_init(&pool[i], q->hctx[i], conf,
			nr_requests_of(conf),
			q->conf.shared_tags && i > 0 ? pool : NULL) != 0)
			goto out;
	for (i = 0; i < nr; i++) {
		struct rq_pool old = q->hctx[i]->pool;

		q->hctx[i]->pool = pool[i];
		pool[i] = old;
	}
	elevator_free(q->elevator);
	q->elevator = e;
	e = NULL;
	ret = 0;
out:
	elevator_free(e);
	for (i = 0; pool != NULL && i < nr; i++)
		rq_pool_fini(&pool[i]);
	free(pool);
	return ret;
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
	for (unsigned i = 0; i < q->conf.nr_hw_queues; i++)
		hctx_limit_tags(q->hctx[i]);
	if (q->elevator != NULL)
		elevator_configure(q->elevator);
	return 0;
}

void
queue_leave(struct queue *q)
{
	assert(queue_frozen(q));
	atomic_store(&q->leaving, true);
	q->leave_call = machine_call(q->machine);
}

bool
queue_left(const struct queue *q)
{
	return queue_leaving(q) && machine_heard(q->machine, q->leave_call);
}

/* Hardware queues [from, to). */
static void
free_hctxs(struct hctx **hctx, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		hctx_free(hctx[i]);
}

int
queue_resize(struct queue *q, unsigned nr)
{
	unsigned old = q->conf.nr_hw_queues, kept = nr < old ? nr : old, i;
	struct hctx **hctx;

	assert(queue_left(q));
	if (nr == 0 || nr > BLK_MAX_HW_QUEUES)
		return -EINVAL;
	hctx = calloc(nr, sizeof(struct hctx *));
	if (hctx == NULL)
		return -ENOMEM;
	memcpy(hctx, q->hctx, kept * sizeof(struct hctx *));
	for (i = kept; i < nr; i++)
		if ((hctx[i] = hctx_new(q, i)) == NULL) {
			free_hctxs(hctx, kept, i);
			free(hctx);
			return -ENOMEM;
		}
	stat_settle(q);
	free_hctxs(q->hctx, kept, old);
	free(q->hctx);
	q->hctx = hctx;
	q->conf.nr_hw_queues = nr;
	for (i = 0; i < q->machine->nr_cpus; i++)
		q->ctx[i]->hctx = hctx[i % nr];
	return 0;
}

void
queue_expire(struct queue *q, int error)
{
	atomic_store(&q->expires, error);
	machine_call(q->machine);
}

/* ------------------------------------------------------------- submission */

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
	if (ctx->queue->conf.nomerges == 2 || ctx->queue->conf.bio_based)
		return false;
	if (bio->flags & (REQ_NOMERGE | REQ_PREFLUSH | REQ_FUA))
		return false;
	if (plug != NULL && plug_merge(plug, bio, ctx, now))
		return true;
	if (ctx->queue->elevator != NULL)
		return elevator_merge(ctx->queue->elevator, bio, ctx, now);
	return sw_queue_merge(ctx, bio, now);
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
		hctx_insert(rq, cpu, now);
		return;
	}
	if (q->conf.plug_mode == PLUG_CALL) {
		struct request_list list = TAILQ_HEAD_INITIALIZER(list);

		plug_call(plug, q, cpu, now);
		TAILQ_INSERT_TAIL(&list, rq, link);
		hctx_insert_list(&list, cpu, now);
		return;
	}
	if (!limited) {
		plug_add(plug, rq, cpu, now);
		return;
	}
	rq = plug_swap(plug, rq);
	if (rq != NULL)
		hctx_insert(rq, cpu, now);
}

/* blk_check_zone_append(): one that would be split has no one place to go. */
static int
check_append(const struct queue *q, const struct bio *bio)
{
	const struct limits *lim = &q->limits;

	if (!lim->zoned)
		return -EOPNOTSUPP;
	if ((bio->pos & (SECTOR_SIZE - 1)) != 0 ||
	    (bio->pos >> SECTOR_SHIFT) % lim->chunk_sectors != 0 ||
	    bio->bytes > (uint64_t)lim->max_append_sectors << SECTOR_SHIFT)
		return -EIO;
	return 0;
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
		if (q->limits.zoned) /* two halves are not a zone */
			bio->flags |= REQ_NOMERGE;
		if (q->limits.max_discard_sectors > 0)
			return false;
		error = -EOPNOTSUPP;
		break;
	case REQ_OP_WRITE_ZEROES:
		if (q->limits.max_write_zeroes_sectors > 0)
			return false;
		error = -EOPNOTSUPP;
		break;
	case REQ_OP_WRITE:
		if ((bio->flags & REQ_APPEND) == 0)
			return false;
		bio->flags |= REQ_NOMERGE;
		error = check_append(q, bio);
		if (error == 0)
			return false;
		break;
	case REQ_OP_READ:
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

/* A request of its own, on its way: 0; or -EAGAIN: there is no tag for it. */
static int
submit_piece(struct ctx *ctx, struct plug *plug, struct bio *piece,
    struct cpu *cpu, uint64_t now)
{
	const struct queue_conf *conf = &ctx->queue->conf;
	struct request *rq = rq_get(ctx, plug, piece, cpu, now);

	if (rq == NULL)
		return -EAGAIN;
	rq_init(rq, ctx, piece, now);
	trace_bio(ctx, TRACE_GETRQ, piece, now);
	if (conf->bio_based) {
		hctx_insert(rq, cpu, now);
		return 0;
	}
	if (conf->iostats) {
		rq->rq_flags |= RQF_IO_STAT;
		stat_start(rq, now);
	}
	rq_submit(rq, plug, cpu, now);
	return 0;
}

/* What is done once a bio; true: that was all. */
static bool
begins(struct queue *q, struct ctx *ctx, struct bio *bio, struct cpu *cpu,
    uint64_t now)
{
	if (queue_runs_in_worker(q))
		cpu_run_hctxs(cpu, now);
	bio->cpu = cpu;
	if (ends_at_once(q, bio, cpu, now))
		return true;
	if (!q->conf.bio_based)
		stat_bio(ctx, bio);
	trace_bio(ctx, TRACE_QUEUE, bio, now);
	return false;
}

/*
 * blk_mq_plug(), from 5.3 to 6.9: writes to zones are not plugged, for a plug
 * may be emptied in any order.
 */
static bool
keeps_order(const struct queue *q, const struct bio *bio)
{
	return q->limits.zoned && bio->op == REQ_OP_WRITE;
}

/*
 * Nor does a piece of one go before what was split off before it has moved: on
 * another cpu it might come first.  (Kernels lock the zone: in mq-deadline from
 * 4.16 on, for all schedulers from 6.10 on.)
 */
static bool
comes_too_early(const struct bio *bio, const struct bio *piece)
{
	const struct bio *before;

	STAILQ_FOREACH(before, &bio->pieces, link_piece)
		if (before != piece &&
		    !atomic_load_explicit(&before->moved, memory_order_acquire))
			return true;
	return false;
}

int
queue_submit(struct queue *q, struct cpu *cpu, struct plug *plug,
    struct bio *bio, uint64_t now)
{
	struct ctx *ctx = q->ctx[cpu->id];
	struct bio *piece = bio->waits;
	bool waited = piece != NULL, fresh = !waited, last;
	bool ordered;

	if (fresh && queue_freezing(q)) { /* nothing of it may be looked at */
		if (plug != NULL)
			plug_flush_blocked(plug, cpu, now);
		return -EAGAIN;
	}
	if (fresh && begins(q, ctx, bio, cpu, now))
		return 0;
	ordered = keeps_order(q, bio);
	if (q->conf.plug_mode == PLUG_EACH || ordered)
		plug = NULL;
	bio->waits = NULL;
	do {
		if (fresh) {
			piece = next_piece(q, ctx, bio, cpu, now);
			if (piece == NULL) {
				bio_endio(bio, -ENOMEM, cpu, now);
				break;
			}
		}
		last = piece == bio;
		if ((ordered && comes_too_early(bio, piece)) ||
		    (!(fresh && merge(ctx, plug, piece, now)) &&
			submit_piece(ctx, plug, piece, cpu, now) != 0)) {
			bio->waits = piece;
			if (!waited)
				atomic_fetch_add(&q->nr_waits, 1);
			return -EAGAIN;
		}
		fresh = true;
	} while (!last); /* after the last piece the bio may be gone */
	if (waited)
		atomic_fetch_sub(&q->nr_waits, 1);
	return 0;
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

/* ---------------------------------------------------------------- the rest */

void
queue_run(struct queue *q, struct cpu *cpu, uint64_t now)
{
	unsigned i;

	for (i = 0; i < q->conf.nr_hw_queues; i++)
		hctx_run(q->hctx[i], cpu, now);
}

unsigned
queue_tags_in_use(const struct queue *q)
{
	unsigned i, nr = 0, bitmaps = queue_nr_bitmaps(q);

	for (i = 0; i < bitmaps; i++) {
		const struct hctx *hctx = q->hctx[i];

		nr += tags_in_use(hctx->pool.sched_tags != NULL
				      ? hctx->pool.sched_tags
				      : hctx->tags);
	}
	return nr;
}
