/* SPDX-License-Identifier: MIT */
/*
 * Flush and FUA on a device with a volatile cache (6.2; the kernel's
 * blk-flush.c).  A request that asks for it goes through up to three steps:
 *
 *	preflush -> data -> postflush (FUA on a device that has none)
 *
 * Those that wait for a flush share one: while it runs, the next ones gather
 * on the other list.
 *
 *	list[0]  wait for the flush that the device has
 *	list[1]  wait for the next one
 */
#include "blk/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define NSEC_PER_SEC       1000000000u
#define PENDING_TIMEOUT_NS (5 * (uint64_t)NSEC_PER_SEC) /* then don't wait */

enum {
	STEP_PREFLUSH = 1,
	STEP_DATA = 2,
	STEP_POSTFLUSH = 4,
	STEP_ALL = 7
};

struct flush_queue {
	pthread_mutex_t lock;
	struct request_list list[2];
	unsigned pending;  /* the list that gathers */
	bool running;      /* list[!pending] waits for what the device has */
	unsigned nr_data;  /* requests in their data step */
	uint64_t since;    /* the oldest pending one */
	struct request rq; /* the flush that the device gets */
};

int
flush_queue_new(struct hctx *hctx)
{
	struct flush_queue *fq = calloc(1, sizeof(*fq));

	if (fq == NULL)
		return -ENOMEM;
	pthread_mutex_init(&fq->lock, NULL);
	TAILQ_INIT(&fq->list[0]);
	TAILQ_INIT(&fq->list[1]);
	fq->rq.hctx = hctx;
	hctx->flush = fq;
	return 0;
}

void
flush_queue_free(struct hctx *hctx)
{
	struct flush_queue *fq = hctx->flush;

	if (fq == NULL)
		return;
	assert(!fq->running);
	assert(TAILQ_EMPTY(&fq->list[fq->pending]));
	pthread_mutex_destroy(&fq->lock);
	free(fq);
}

/* blk_kick_flush(): is it time to send one?  Under the lock. */
static bool
kick(struct flush_queue *fq, struct ctx *ctx, uint64_t now)
{
	struct request *first = TAILQ_FIRST(&fq->list[fq->pending]);

	if (fq->running || first == NULL)
		return false;
	/* what is in its data step may soon want the same flush */
	if (fq->nr_data > 0 && now < fq->since + PENDING_TIMEOUT_NS)
		return false;
	fq->running = true;
	fq->pending ^= 1;
	fq->rq.ctx = ctx;
	fq->rq.op = REQ_OP_FLUSH;
	fq->rq.flags = 0;
	fq->rq.rq_flags = RQF_FLUSH; /* not in flight for the statistics */
	fq->rq.pos = 0;
	fq->rq.bytes = 0;
	fq->rq.nr_segs = 0;
	fq->rq.tag = first->internal_tag < 0 ? first->tag : -1; /* borrowed */
	fq->rq.internal_tag = first->internal_tag;
	fq->rq.error = 0;
	fq->rq.start_ns = now;
	fq->rq.priv = NULL;
	STAILQ_INIT(&fq->rq.bios);
	return true;
}

/*
 * blk_flush_complete_seq(): `done` steps are behind it; on to the next.  Under
 * the lock.  What is to be issued, or ended, is put on a list for after it.
 */
static void
advance(struct flush_queue *fq, struct request *rq, unsigned done, uint64_t now,
    struct request_list *issue, struct request_list *end)
{
	rq->flush_steps |= (uint8_t)done;
	if (rq->error != 0)
		rq->flush_steps = STEP_ALL;
	if ((rq->flush_steps & STEP_PREFLUSH) == 0 ||
	    (rq->flush_steps & (STEP_DATA | STEP_POSTFLUSH)) == STEP_DATA) {
		if (TAILQ_EMPTY(&fq->list[fq->pending]))
			fq->since = now;
		TAILQ_INSERT_TAIL(&fq->list[fq->pending], rq, link);
	} else if ((rq->flush_steps & STEP_DATA) == 0) {
		fq->nr_data++;
		TAILQ_INSERT_TAIL(issue, rq, link);
	} else {
		rq->rq_flags &= (uint16_t)~RQF_FLUSH_SEQ;
		TAILQ_INSERT_TAIL(end, rq, link);
	}
}

/* After the lock: what advance() and kick() decided. */
static void
act(struct flush_queue *fq, bool send, struct request_list *issue,
    struct request_list *end, struct cpu *cpu, uint64_t now)
{
	struct request *rq;

	while ((rq = TAILQ_FIRST(issue)) != NULL) {
		TAILQ_REMOVE(issue, rq, link);
		hctx_insert(rq, cpu, now);
	}
	if (send)
		hctx_insert(&fq->rq, cpu, now);
	while ((rq = TAILQ_FIRST(end)) != NULL) {
		TAILQ_REMOVE(end, rq, link);
		rq_complete(rq, cpu, now);
	}
}

enum flush_insert
flush_insert(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct request_list issue = TAILQ_HEAD_INITIALIZER(issue);
	struct request_list end = TAILQ_HEAD_INITIALIZER(end);
	struct flush_queue *fq = rq->hctx->flush;
	const struct queue *q = rq->hctx->queue;
	unsigned steps = rq->bytes > 0 ? STEP_DATA : 0;
	bool send;

	if (rq->op == REQ_OP_FLUSH || (rq->flags & REQ_PREFLUSH))
		steps |= STEP_PREFLUSH;
	if ((rq->flags & REQ_FUA) && !q->limits.fua) {
		steps |= STEP_POSTFLUSH;
		rq->flags &= (uint16_t)~REQ_FUA;
		rq->flags |= REQ_NOMERGE;
	}
	rq->flags &= (uint16_t)~REQ_PREFLUSH;
	if (steps == STEP_DATA)
		return FLUSH_PLAIN; /* the device does FUA itself */
	rq->rq_flags |= RQF_FLUSH_SEQ;
	rq->flush_steps = (uint8_t)(STEP_ALL & ~steps);
	pthread_mutex_lock(&fq->lock);
	if (steps == (STEP_DATA | STEP_POSTFLUSH)) {
		fq->nr_data++;
		pthread_mutex_unlock(&fq->lock);
		return FLUSH_PLAIN; /* the rest comes when its data is done */
	}
	advance(fq, rq, 0, now, &issue, &end);
	send = kick(fq, rq->ctx, now);
	pthread_mutex_unlock(&fq->lock);
	act(fq, send, &issue, &end, cpu, now);
	return FLUSH_TAKEN;
}

bool
flush_given_up(const struct request *flush)
{
	struct flush_queue *fq = flush->hctx->flush;
	const struct request *rq;
	bool all = true;

	pthread_mutex_lock(&fq->lock);
	TAILQ_FOREACH(rq, &fq->list[fq->pending ^ 1], link)
		all &= bios_given_up(&rq->bios);
	pthread_mutex_unlock(&fq->lock);
	return all;
}

void
flush_data_end(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct request_list issue = TAILQ_HEAD_INITIALIZER(issue);
	struct request_list end = TAILQ_HEAD_INITIALIZER(end);
	struct flush_queue *fq = rq->hctx->flush;
	struct ctx *ctx = rq->ctx;
	bool send;

	pthread_mutex_lock(&fq->lock);
	fq->nr_data--;
	advance(fq, rq, STEP_DATA, now, &issue, &end);
	send = kick(fq, ctx, now);
	pthread_mutex_unlock(&fq->lock);
	act(fq, send, &issue, &end, cpu, now);
}

void
flush_end(struct request *flush, struct cpu *cpu, uint64_t now)
{
	struct request_list issue = TAILQ_HEAD_INITIALIZER(issue);
	struct request_list end = TAILQ_HEAD_INITIALIZER(end);
	struct request_list served = TAILQ_HEAD_INITIALIZER(served);
	struct flush_queue *fq = flush->hctx->flush;
	struct ctx *ctx = flush->ctx;
	struct request *rq;
	unsigned step;
	bool send;

	if (flush->hctx->queue->conf.iostats)
		stat_flush(flush, now);
	pthread_mutex_lock(&fq->lock);
	fq->running = false;
	TAILQ_CONCAT(&served, &fq->list[fq->pending ^ 1], link);
	while ((rq = TAILQ_FIRST(&served)) != NULL) {
		TAILQ_REMOVE(&served, rq, link);
		if (flush->error != 0)
			rq->error = flush->error;
		step = (rq->flush_steps & STEP_PREFLUSH) == 0 ? STEP_PREFLUSH
							      : STEP_POSTFLUSH;
		advance(fq, rq, step, now, &issue, &end);
	}
	send = kick(fq, ctx, now);
	pthread_mutex_unlock(&fq->lock);
	act(fq, send, &issue, &end, cpu, now);
}
