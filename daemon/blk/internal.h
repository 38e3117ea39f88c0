/* SPDX-License-Identifier: MIT */
/*
 * What the files of daemon/blk share, in the order of the path: nobody above
 * this floor needs it (tests look in here).
 *
 *	split -> plug, merge -> request -> elevator -> hctx (tag) -> cpu
 */
#ifndef BLK_INTERNAL_H
#define BLK_INTERNAL_H

#include "blk/blk.h"

/* --------------------------------------------------------------- split.c */

/*
 * How many bytes of the bio may go as one request, and in how many segments
 * (*nr_segs); the whole of it when it fits.  Sections 2.2 to 2.6.
 */
uint64_t bio_fits(const struct bio *bio, const struct queue *q,
    unsigned *nr_segs, enum split_cause *cause);

/*
 * Split: the first `bytes` become a piece of their own (REQ_NOMERGE), which
 * is returned; the bio is the rest and ends when both have (2.5).  NULL when
 * out of memory.
 */
struct bio *bio_split(struct bio *bio, uint64_t bytes, struct cpu *cpu);

/* Do the two touch physically, in one segment boundary window (2.7)? */
bool bvec_phys_mergeable(
    const struct limits *lim, const struct bvec *a, const struct bvec *b);
/* Would the virt boundary be violated between a and b (2.3)? */
bool
bvec_gap(const struct queue *q, const struct bvec *a, const struct bvec *b);
/*
 * bi_seg_front_size, bi_seg_back_size: bytes of the first and of the last
 * segment, as 4.14 counts them page by page (2.4).
 */
void bio_edge_segments(const struct bio *bio, const struct limits *lim,
    uint64_t *front, uint64_t *back);
/* get_max_segment_size(): bytes of the largest segment that starts there. */
uint64_t segment_max(const struct limits *lim, uint64_t phys);
/* max_sectors of `op` at a position, which a chunk may shorten (3.4). */
uint32_t
queue_max_sectors(const struct queue *q, enum req_op op, sector_t sector);
/* Is it a chunk that does? */
bool queue_chunk_limits(const struct queue *q, enum req_op op, sector_t sector);

/* ---------------------------------------------------------------- plug.c */

/* PLUG_CALL: the queue is to be run when the call ends */
void
plug_call(struct plug *plug, struct queue *q, struct cpu *cpu, uint64_t now);

/* The merge tier; the adding of a request that did not merge */
bool
plug_merge(struct plug *plug, struct bio *bio, struct ctx *ctx, uint64_t now);
void
plug_add(struct plug *plug, struct request *rq, struct cpu *cpu, uint64_t now);
/* The task is about to sleep for a tag */
void plug_flush_blocked(struct plug *plug, struct cpu *cpu, uint64_t now);
/* Limited plugging: hold this one; returns what was held of its queue */
struct request *plug_swap(struct plug *plug, struct request *rq);

/* --------------------------------------------------------------- merge.c */

enum merge {
	NO_MERGE,
	BACK_MERGE,
	FRONT_MERGE,
	DISCARD_MERGE
};
enum merge_result {
	MERGE_NONE,
	MERGE_OK,
	MERGE_FAILED
};

/* May anything merge with it (3.2)? */
bool rq_mergeable(const struct request *rq);
/* blk_rq_merge_ok(): may these two merge at all (3.2)? */
bool rq_merge_ok(const struct request *rq, const struct bio *bio);
/* blk_try_merge(): in which direction (3.3)? */
enum merge rq_try_merge(const struct request *rq, const struct bio *bio);
/*
 * blk_attempt_bio_merge(): MERGE_OK, the bio is the request's; MERGE_FAILED,
 * adjacent but a limit refuses (a size or segment limit leaves REQ_NOMERGE on
 * the request: sticky); MERGE_NONE, they don't fit together.
 */
enum merge_result rq_attempt_merge(
    struct request *rq, struct bio *bio, struct ctx *ctx, uint64_t now);
/*
 * attempt_merge(): append `next`, which begins where `rq` ends (or is one more
 * range of a discard): false, they stay two; true, next has no bios any more
 * and is the caller's to free (3.5).
 */
bool rq_merge_next(
    struct request *rq, struct request *next, struct cpu *cpu, uint64_t now);
/*
 * blk_rq_map_sg(): scatter-gather entries of a request (1.3): at most its
 * nr_segs.
 */
unsigned rq_sg_entries(const struct request *rq);

/* ------------------------------------------------------------- request.c */

static inline bool
has_elevator(const struct queue_conf *conf)
{
	return conf->elevator != NULL && conf->elevator->ops != NULL;
}

/*
 * `first` is that of the first hardware queue, which shares its tags, or NULL.
 * 0 or -ENOMEM: then there is nothing.  _fini: none of them is in use.
 */
int rq_pool_init(struct rq_pool *pool, struct hctx *hctx,
    const struct queue_conf *conf, unsigned nr_requests,
    const struct rq_pool *first);
void rq_pool_fini(struct rq_pool *pool);

/*
 * A request for the bio, or NULL: none is free even after the plug was flushed,
 * and this cpu is noted as waiting.
 */
struct request *rq_get(struct ctx *ctx, struct plug *plug,
    const struct bio *bio, struct cpu *cpu, uint64_t now);
void
rq_init(struct request *rq, struct ctx *ctx, struct bio *bio, uint64_t now);
/* It was absorbed by another, its bios are that one's. */
void rq_free(struct request *rq, struct cpu *cpu);
/*
 * blk_mq_get_driver_tag(), blk_mq_put_driver_tag(): with an elevator a request,
 * which has a tag of its own, holds one only while the driver has it.
 */
bool rq_get_driver_tag(struct request *rq, struct cpu *cpu, uint64_t now);
void rq_put_driver_tag(struct request *rq);
/* End it here and now; this is its cpu. */
void rq_end(struct request *rq, struct cpu *cpu, uint64_t now);
/* Have all of them been? */
bool bios_given_up(const struct bio_list *bios);

static inline struct bio *
rq_last_bio(const struct request *rq)
{
	/* <sys/queue.h> has no STAILQ_LAST here */
	return container_of(rq->bios.stqh_last, struct bio, link.stqe_next);
}

/* Take those of the oldest one's hardware queue, in order. */
void requests_take_group(struct request_list *from, struct request_list *group);

/* ---------------------------------------------------------------- hctx.c */

/* NULL when out of memory; _free: no cpu runs, NULL is fine. */
struct hctx *hctx_new(struct queue *q, unsigned index);
void hctx_free(struct hctx *hctx);
/* nr_requests has changed, or the elevator. */
void hctx_limit_tags(struct hctx *hctx);
/* Is there anything that a tag, or room in the driver, lets go on? */
bool hctx_has_work(const struct hctx *hctx);
/* blk_mq_run_hw_queue(): issue what waits in a hardware queue. */
void hctx_run(struct hctx *hctx, struct cpu *cpu, uint64_t now);
/* The rest: of one hardware queue.  Put a list to where it waits; */
void hctx_insert_list(struct request_list *list, struct cpu *cpu, uint64_t now);
/* and have it run, now or by a worker; */
void
hctx_insert_and_run(struct request_list *list, struct cpu *cpu, uint64_t now);
/* hand it on: to the elevator, or straight to the driver; */
void hctx_issue_list(struct request_list *list, struct cpu *cpu, uint64_t now);
/* a single one. */
void hctx_insert(struct request *rq, struct cpu *cpu, uint64_t now);

/* Does a worker run its hardware queues, as soon as it gets the cpu? */
static inline bool
queue_runs_in_worker(const struct queue *q)
{
	return q->conf.blocking && q->profile->worker_runs_blocking;
}

/* --------------------------------------------------------------- flush.c */

struct flush_queue;                     /* of a hctx */
int flush_queue_new(struct hctx *hctx); /* 0 or -ENOMEM */
void flush_queue_free(struct hctx *hctx);

enum flush_insert {
	FLUSH_PLAIN,
	FLUSH_TAKEN
};
/*
 * blk_insert_flush(): a request with FLUSH, PREFLUSH or FUA.  FLUSH_PLAIN: it
 * goes on as any other (its FUA is the device's business, or a flush follows
 * it); FLUSH_TAKEN: it comes back through rq_complete().
 */
enum flush_insert
flush_insert(struct request *rq, struct cpu *cpu, uint64_t now);
/* The data of a request with RQF_FLUSH_SEQ, or a flush, is done. */
void flush_data_end(struct request *rq, struct cpu *cpu, uint64_t now);
void flush_end(struct request *flush, struct cpu *cpu, uint64_t now);
/* Have all that wait for this flush, which the driver has, been given up? */
bool flush_given_up(const struct request *flush);

/* ------------------------------------------------------------ elevator.c */

/*
 * What an I/O scheduler does, one file each.  elevator.c finds what can merge
 * (by the end of a request; one-hit cache) and asks it for the rest, under the
 * elevator's lock.
 */
struct elevator_ops {
	void *(*new)(const struct queue *q); /* NULL: out of memory */
	void (*free)(void *data);
	/* The tunables in q->conf have changed. */
	void (*configure)(void *data, const struct queue *q);
	/* Queue a request. */
	void (*add)(void *data, struct request *rq, uint64_t now);
	/* The next for the driver, or NULL. */
	struct request *(*take)(void *data, uint64_t now);
	/* Take out one that became part of another, `into`. */
	void (*absorb)(void *data, struct request *into, struct request *rq);
	/* It begins at an earlier sector than when it was added. */
	void (*reposition)(void *data, struct request *rq);
	/* Those beside it in order of position, or NULL. */
	struct request *(*former)(void *data, struct request *rq);
	struct request *(*latter)(void *data, struct request *rq);
	/* A request that begins where the bio ends, or NULL. */
	struct request *(*find_front)(void *data, const struct bio *bio);
	/* One that was added has ended, or was absorbed.  Without the lock. */
	void (*finish)(void *data, const struct request *rq);
	/* Of nr_requests, how many may such bios use?  Without the lock. */
	unsigned (*depth)(
	    const void *data, const struct bio *bio, unsigned nr_requests);
};

/* 0 or -ENOMEM; *out is NULL for none. */
int elevator_new(
    struct elevator **out, struct queue *q, const struct elevator_type *type);
void elevator_free(struct elevator *e);
void elevator_configure(struct elevator *e);
/* blk_mq_sched_try_merge(): true, the bio is some request's. */
bool elevator_merge(
    struct elevator *e, struct bio *bio, struct ctx *ctx, uint64_t now);
/* Queue a list of requests, some of which merge with others on the way. */
void elevator_insert(struct elevator *e, struct request_list *list,
    struct cpu *cpu, uint64_t now);
struct request *elevator_take(struct elevator *e, uint64_t now);
void elevator_finish(struct elevator *e, const struct request *rq);
unsigned elevator_depth(
    const struct elevator *e, const struct bio *bio, unsigned nr_requests);

/* ------------------------------------------------------------ deadline.c */

extern const struct elevator_ops deadline_ops; /* mq-deadline (5) */

/* ----------------------------------------------------------------- tag.c */

struct tags *tags_new(unsigned nr);
/* The same for one more owner; the last tags_free() frees them. */
struct tags *tags_share(struct tags *t);
void tags_free(struct tags *t);
/* A free tag below the limit, or -1.  Any thread. */
int tags_get(struct tags *t);
/* The same below `max`, too: what may not use all of them. */
int tags_get_below(struct tags *t, unsigned max);
void tags_put(struct tags *t, int tag);
/* Use only the first `nr` (nr_requests). */
void tags_limit(struct tags *t, unsigned nr);

/* ---------------------------------------------------------------- stat.c */

int stat_new(struct queue *q);
void stat_free(struct queue *q);
void stat_start(struct request *rq, uint64_t now);
void stat_merge(struct ctx *ctx, enum req_op op, uint64_t now);
/* `next` became part of another request */
void
stat_merge_request(struct ctx *ctx, const struct request *next, uint64_t now);
void stat_end(struct request *rq, uint64_t now);
void stat_flush(struct request *flush, uint64_t now);
void stat_bio(struct ctx *ctx, const struct bio *bio);
void stat_split(struct ctx *ctx, enum split_cause cause);
void stat_refuse(struct ctx *ctx, enum refusal cause);
/* the driver has it; it has it no more: on the cpu that did so */
void stat_issue(struct request *rq, struct cpu *cpu);
void stat_unissue(struct request *rq, struct cpu *cpu);
/* Nothing is in flight, and cpus are about to map to other hctxs. */
void stat_settle(struct queue *q);

/* --------------------------------------------------------------- trace.c */

int trace_new(struct queue *q);
void trace_free(struct queue *q);

static inline bool
trace_is_on(const struct ctx *ctx)
{
	const struct trace_ring *ring =
	    atomic_load_explicit(&ctx->ring, memory_order_relaxed);

	return __builtin_expect(ring != NULL, 0);
}

/* What the hooks below do while somebody traces. */
void trace_put_bio(struct ctx *ctx, enum trace_action action,
    const struct bio *bio, uint64_t now);
void trace_put_split(struct ctx *ctx, const struct bio *piece,
    const struct bio *rest, uint64_t now);
void trace_put_rq(struct ctx *ctx, enum trace_action action,
    const struct request *rq, uint64_t now);
void trace_put_plug(struct ctx *ctx, enum trace_action action,
    const struct request *rq, unsigned nr, uint64_t now);

/*
 * On the thread of ctx's cpu, where it happens.  They
 * cost a load and a branch while nobody traces.
 */
static inline void
trace_bio(struct ctx *ctx, enum trace_action action, const struct bio *bio,
    uint64_t now)
{
	if (trace_is_on(ctx))
		trace_put_bio(ctx, action, bio, now);
}

/* `piece` is the head, `rest` what it was split off */
static inline void
trace_split(struct ctx *ctx, const struct bio *piece, const struct bio *rest,
    uint64_t now)
{
	if (trace_is_on(ctx))
		trace_put_split(ctx, piece, rest, now);
}

static inline void
trace_rq(struct ctx *ctx, enum trace_action action, const struct request *rq,
    uint64_t now)
{
	if (trace_is_on(ctx))
		trace_put_rq(ctx, action, rq, now);
}

/* P (nr 0), U and T, of the task whose request `rq` is */
static inline void
trace_plug(struct ctx *ctx, enum trace_action action, const struct request *rq,
    unsigned nr, uint64_t now)
{
	if (trace_is_on(ctx))
		trace_put_plug(ctx, action, rq, nr, now);
}

/* ----------------------------------------------------------------- cpu.c */

/* Any thread: the cpu is to end it; its own cpu is to end the bio; wake it. */
void cpu_post(struct cpu *to, struct request *rq);
void cpu_post_bio(struct bio *bio, int error);
void cpu_wake(struct cpu *cpu);
/*
 * A queue is leaving, or expires: every cpu is to look, in its next cpu_run().
 * Returns the number of the call.  Any thread.
 */
unsigned machine_call(struct machine *m);
/* Have all cpus done so? */
bool machine_heard(const struct machine *m, unsigned call);
void cpu_rerun(struct cpu *cpu, struct hctx *hctx);
/* End what is on the softirq list; false: nothing was. */
bool cpu_run_softirq(struct cpu *cpu, uint64_t now);
/* Run them now.  False: there were none. */
bool cpu_run_hctxs(struct cpu *cpu, uint64_t now);
/*
 * Come back to a driver that was busy, in any case: when it said, or else after
 * BLK_MQ_RESOURCE_DELAY.
 */
void cpu_rerun_later(struct cpu *cpu, struct hctx *hctx, uint64_t now);
void cpu_rerun_cancel(struct cpu *cpu, struct hctx *hctx);

#endif
