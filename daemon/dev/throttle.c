/* SPDX-License-Identifier: MIT */
/*
 * mbps: a budget of bytes that grows by ticks of 20 ms, as null_blk's.
 *
 *	               ticket of a request
 *	                       |
 *	0 ---- granted --------+-- charged --->   bytes, since ever
 *	          '- each tick -'
 *
 * There the budget is set anew with every tick, and a request that it does not
 * cover is charged and charged again: what is left of a tick is lost, and what
 * is larger than a tick never goes.  Here a request is charged once, when it
 * comes, and has a ticket: how many bytes were charged by then, its own with
 * them.  It goes when so many were granted.  So the rate is exact whatever the
 * sizes, and who came first goes first, be he large or small.
 *
 * What nobody asks for is not saved up: the budget is ahead by a tick at most.
 */
#include "dev/dev.h"

#define TICK_NS    20000000u
#define TICKS_SEC  (1000000000u / TICK_NS)
#define MAX_MISSED TICKS_SEC /* ticks that a late look makes up for */

static uint64_t
tick_bytes(uint32_t mbps)
{
	return (uint64_t)((1u << 20) / TICKS_SEC) * mbps; /* as mb_per_tick() */
}

void
throttle_init(struct throttle *t)
{
	*t = (struct throttle){};
	pthread_mutex_init(&t->lock, NULL);
}

void
throttle_fini(struct throttle *t)
{
	pthread_mutex_destroy(&t->lock);
}

/*
 * The ticks up to now.  Who waits has them all, for the time was his; else the
 * budget is full, and the next tick is one from now.
 */
static void
refill(struct throttle *t, uint32_t mbps, uint64_t now)
{
	uint64_t ticks;

	if (now < t->tick_ns + TICK_NS)
		return;
	if (t->charged <= t->granted) {
		t->granted = t->charged + tick_bytes(mbps);
		t->tick_ns = now;
		return;
	}
	ticks = (now - t->tick_ns) / TICK_NS;
	t->tick_ns += ticks * TICK_NS;
	if (ticks > MAX_MISSED)
		ticks = MAX_MISSED;
	t->granted += ticks * tick_bytes(mbps);
}

void
throttle_set(struct throttle *t, uint32_t mbps, uint64_t now)
{
	uint64_t full;
	uint32_t old;

	pthread_mutex_lock(&t->lock);
	old = atomic_load(&t->mbps);
	full = t->charged + tick_bytes(mbps);
	if (old != 0)
		refill(t, old, now);
	else
		t->tick_ns = now;
	if (old == 0 || t->granted > full)
		t->granted = full;
	atomic_store(&t->mbps, mbps);
	pthread_mutex_unlock(&t->lock);
}

/* When there will have been ticks enough for the ticket. */
static uint64_t
time_of(const struct throttle *t, uint32_t mbps, uint64_t ticket)
{
	uint64_t tick = tick_bytes(mbps), missing = ticket - t->granted;

	return t->tick_ns + (missing + tick - 1) / tick * TICK_NS;
}

/*
 * The hardware queue is stopped under the lock: a change of mbps that comes
 * just then starts it again.
 */
static bool
admit(struct throttle *t, struct request *rq, uint64_t now)
{
	uint32_t mbps;
	bool ok = true;

	pthread_mutex_lock(&t->lock);
	mbps = atomic_load(&t->mbps);
	if (mbps != 0) {
		refill(t, mbps, now);
		if (rq->ticket == 0)
			rq->ticket = t->charged += rq->bytes;
		ok = rq->ticket <= t->granted;
		if (!ok)
			hctx_stop(rq->hctx, time_of(t, mbps, rq->ticket), now);
	}
	pthread_mutex_unlock(&t->lock);
	return ok;
}

bool
throttle_is_on(const struct disk *d)
{
	return atomic_load(&d->throttle.mbps) != 0;
}

enum verdict
throttle_stage(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct throttle *t = &d->throttle;

	(void)cpu;
	if (atomic_load_explicit(&t->mbps, memory_order_relaxed) == 0 ||
	    rq->bytes == 0 || admit(t, rq, now))
		return STAGE_NEXT;
	return STAGE_REQUEUE;
}
