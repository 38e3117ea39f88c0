/* SPDX-License-Identifier: MIT */
/*
 * What /sys/block/X/stat says (section 6): counters a cpu, summed when read,
 * and one stamp a disk for io_ticks, the time the disk was not idle.
 */
#include "blk/internal.h"

#include <errno.h>
#include <stdlib.h>

#define NSEC_PER_MSEC 1000000u
#define NSEC_PER_SEC  1000000000u

/* Shared by the ctxs of a queue. */
struct disk_stat {
	_Alignas(64) _Atomic uint64_t stamp; /* jiffies */
	_Atomic uint64_t next_ns;  /* when the jiffy after it begins */
	_Atomic uint64_t io_ticks; /* jiffies */
	_Atomic uint64_t in_queue; /* jiffies, where it is sampled */
};

int
stat_new(struct queue *q)
{
	q->stat = aligned_calloc(1, sizeof(*q->stat));
	return q->stat != NULL ? 0 : -ENOMEM;
}

void
stat_free(struct queue *q)
{
	free(q->stat);
}

/* A counter with one writer: others only read it, so no locked add. */
static void
add(_Atomic uint64_t *counter, uint64_t n)
{
	uint64_t old = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, old + n, memory_order_relaxed);
}

static uint64_t
get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static uint64_t
jiffies(const struct queue *q, uint64_t now)
{
	return now / (NSEC_PER_SEC / q->profile->hz);
}

static int
rw_of(enum req_op op)
{
	return op == REQ_OP_READ ? 0 : 1;
}

static enum stat_group
group_of(const struct queue *q, enum req_op op)
{
	switch (op) {
	case REQ_OP_READ: return STAT_READ;
	case REQ_OP_DISCARD:
		return q->profile->discard_is_write ? STAT_WRITE : STAT_DISCARD;
	case REQ_OP_WRITE:
	case REQ_OP_WRITE_ZEROES:
	case REQ_OP_FLUSH:
	case REQ_OP_NR: break;
	}
	return STAT_WRITE;
}

/* Is it one of those that are asked about: all, or those of a hctx? */
static bool
is_of(const struct ctx *ctx, const struct hctx *of)
{
	return of == NULL || ctx->hctx == of;
}

/* Requests that are set up and have not ended. */
static uint64_t
in_flight(const struct queue *q, const struct hctx *of, int rw)
{
	uint64_t up = 0, down = 0;
	unsigned i;

	/* ends first: what begins meanwhile is not counted twice */
	for (i = 0; i < q->machine->nr_cpus; i++)
		if (is_of(q->ctx[i], of))
			down += get(&q->ctx[i]->stat.ended[rw]) +
				get(&q->ctx[i]->stat.absorbed[rw]);
	for (i = 0; i < q->machine->nr_cpus; i++)
		if (is_of(q->ctx[i], of))
			up += get(&q->ctx[i]->stat.begun[rw]);
	return up > down ? up - down : 0;
}

/* Requests that the driver has. */
static uint64_t
in_driver(const struct queue *q, const struct hctx *of, int rw)
{
	uint64_t up = 0, down = 0;
	unsigned i;

	for (i = 0; i < q->machine->nr_cpus; i++)
		if (is_of(q->ctx[i], of))
			down += get(&q->ctx[i]->stat.completed[rw]);
	for (i = 0; i < q->conf.nr_hw_queues; i++)
		if (of == NULL || q->hctx[i] == of)
			down += get(&q->hctx[i]->completed[rw]);
	for (i = 0; i < q->machine->nr_cpus; i++)
		if (is_of(q->ctx[i], of))
			up += get(&q->ctx[i]->stat.issued[rw]);
	for (i = 0; i < q->conf.nr_hw_queues; i++)
		if (of == NULL || q->hctx[i] == of)
			up += get(&q->hctx[i]->issued[rw]);
	return up > down ? up - down : 0;
}

/* Field 9, as the profile has it. */
static uint64_t
in_flight_both(const struct queue *q, const struct hctx *of)
{
	if (q->profile->inflight_started_only)
		return in_driver(q, of, 0) + in_driver(q, of, 1);
	return in_flight(q, of, 0) + in_flight(q, of, 1);
}

/*
 * part_round_stats() of 4.14, update_io_ticks() since: advance the stamp to
 * this jiffy and count the time since then as busy, if it was (6.2).
 */
static void
update_io_ticks(struct queue *q, uint64_t now, bool end)
{
	struct disk_stat *ds = q->stat;
	uint64_t jiffy, stamp, nr;

	/* nearly always: and it saves the division */
	if (now < get(&ds->next_ns))
		return;
	jiffy = jiffies(q, now);
	stamp = get(&ds->stamp);
	if (jiffy <= stamp)
		return;
	if (!atomic_compare_exchange_strong(&ds->stamp, &stamp, jiffy))
		return; /* another cpu has counted this jiffy */
	atomic_store(
	    &ds->next_ns, (jiffy + 1) * (NSEC_PER_SEC / q->profile->hz));
	switch (q->profile->io_ticks) {
	case IO_TICKS_SAMPLED:
		nr = in_flight_both(q, NULL);
		if (nr == 0)
			return;
		atomic_fetch_add(&ds->in_queue, nr * (jiffy - stamp));
		break;
	case IO_TICKS_START_ADDS_ONE:
		if (!end)
			stamp = jiffy - 1;
		break;
	case IO_TICKS_PRECISE:
		if (!end && in_flight_both(q, NULL) == 0)
			return;
		break;
	}
	atomic_fetch_add(&ds->io_ticks, jiffy - stamp);
}

void
stat_start(struct request *rq, uint64_t now)
{
	struct queue *q = rq->hctx->queue;

	update_io_ticks(q, now, false);
	add(&rq->ctx->stat.begun[rw_of(rq->op)], 1);
}

void
stat_merge(struct ctx *ctx, enum req_op op, uint64_t now)
{
	struct queue *q = ctx->queue;

	if (q->profile->io_ticks != IO_TICKS_PRECISE)
		update_io_ticks(q, now, false);
	add(&ctx->stat.merges[group_of(q, op)], 1);
}

/* A cpu that serves another hardware queue is not the only one to count. */
void
stat_issue(struct request *rq, struct cpu *cpu)
{
	struct ctx *ctx = rq->hctx->queue->ctx[cpu->id];
	int rw = rw_of(rq->op);

	if (ctx->hctx == rq->hctx)
		add(&ctx->stat.issued[rw], 1);
	else
		atomic_fetch_add(&rq->hctx->issued[rw], 1);
}

void
stat_unissue(struct request *rq, struct cpu *cpu)
{
	struct ctx *ctx = rq->hctx->queue->ctx[cpu->id];
	int rw = rw_of(rq->op);

	if (ctx->hctx == rq->hctx)
		add(&ctx->stat.completed[rw], 1);
	else
		atomic_fetch_add(&rq->hctx->completed[rw], 1);
}

/* What the driver has had was counted where it was then. */
void
stat_settle(struct queue *q)
{
	for (int rw = 0; rw < 2; rw++) {
		for (unsigned i = 0; i < q->machine->nr_cpus; i++) {
			atomic_store(&q->ctx[i]->stat.issued[rw], 0);
			atomic_store(&q->ctx[i]->stat.completed[rw], 0);
		}
		for (unsigned i = 0; i < q->conf.nr_hw_queues; i++) {
			atomic_store(&q->hctx[i]->issued[rw], 0);
			atomic_store(&q->hctx[i]->completed[rw], 0);
		}
	}
}

void
stat_bio(struct ctx *ctx, const struct bio *bio)
{
	if (ctx->queue->conf.iostats)
		hist_add(&ctx->stat.bvecs, bio->nr_bv);
}

void
stat_split(struct ctx *ctx, enum split_cause cause)
{
	if (ctx->queue->conf.iostats)
		add(&ctx->stat.splits[cause], 1);
}

void
stat_refuse(struct ctx *ctx, enum refusal cause)
{
	if (ctx->queue->conf.iostats)
		add(&ctx->stat.refused[cause], 1);
}

void
stat_merge_request(struct ctx *ctx, const struct request *next, uint64_t now)
{
	const struct queue *q = ctx->queue;

	if ((next->rq_flags & RQF_IO_STAT) == 0)
		return;
	if (q->profile->request_merges_count)
		stat_merge(ctx, next->op, now);
	/* of the hardware queue where it began, which another cpu may have */
	atomic_fetch_add_explicit(&next->ctx->stat.absorbed[rw_of(next->op)], 1,
	    memory_order_relaxed);
}

/* How long the request took, in the profile's clock. */
static uint64_t
duration_ns(const struct request *rq, uint64_t now)
{
	const struct queue *q = rq->hctx->queue;

	if (now < rq->start_ns)
		return 0;
	if (!q->profile->ticks_in_jiffies)
		return now - rq->start_ns;
	return (jiffies(q, now) - jiffies(q, rq->start_ns)) *
	       (NSEC_PER_SEC / q->profile->hz);
}

void
stat_end(struct request *rq, uint64_t now)
{
	struct queue *q = rq->hctx->queue;
	struct ctx_stat *st = &rq->ctx->stat;
	enum stat_group g = group_of(q, rq->op);

	update_io_ticks(q, now, true);
	add(&st->sectors[g], rq->bytes >> SECTOR_SHIFT);
	add(&st->ios[g], 1);
	add(&st->ticks_ns[g], duration_ns(rq, now));
	latency_add(
	    &rq->ctx->latency[g], now > rq->start_ns ? now - rq->start_ns : 0);
	hist_add(&st->segments, rq->nr_segs);
	hist_add(&st->request_sectors, rq->bytes >> SECTOR_SHIFT);
	add(&st->ended[rw_of(rq->op)], 1);
}

/* blk_account_io_flush(): one that the device got, whoever waited for it */
void
stat_flush(struct request *flush, uint64_t now)
{
	struct ctx_stat *st = &flush->ctx->stat;

	add(&st->ios[STAT_FLUSH], 1);
	add(&st->ticks_ns[STAT_FLUSH], duration_ns(flush, now));
	latency_add(&flush->ctx->latency[STAT_FLUSH],
	    now > flush->start_ns ? now - flush->start_ns : 0);
}

/* What a cpu has counted; ticks in ns. */
static void
sum_ctx(const struct ctx_stat *st, struct queue_stat *out,
    uint64_t ticks_ns[STAT_NR])
{
	unsigned i;

	for (i = 0; i < STAT_NR; i++) {
		out->ios[i] += get(&st->ios[i]);
		out->merges[i] += get(&st->merges[i]);
		out->sectors[i] += get(&st->sectors[i]);
		ticks_ns[i] += get(&st->ticks_ns[i]);
	}
	for (i = 0; i < SPLIT_NR; i++)
		out->splits[i] += get(&st->splits[i]);
	for (i = 0; i < REFUSED_NR; i++)
		out->refused[i] += get(&st->refused[i]);
	hist_merge(&out->bvecs, &st->bvecs);
	hist_merge(&out->segments, &st->segments);
	hist_merge(&out->request_sectors, &st->request_sectors);
}

/* All that is a cpu's: of all of them, or of those of a hctx. */
static void
read_ctxs(const struct queue *q, const struct hctx *of, struct queue_stat *out)
{
	uint64_t ticks_ns[STAT_NR] = { 0 }, sum = 0;
	unsigned i;

	*out = (struct queue_stat){ 0 };
	out->in_flight = in_flight_both(q, of);
	for (i = 0; i < 2; i++)
		out->inflight_rw[i] = in_driver(q, of, (int)i);
	for (i = 0; i < q->machine->nr_cpus; i++)
		if (is_of(q->ctx[i], of))
			sum_ctx(&q->ctx[i]->stat, out, ticks_ns);
	for (i = 0; i < STAT_NR; i++) {
		out->ticks_ms[i] = ticks_ns[i] / NSEC_PER_MSEC;
		if (i != STAT_FLUSH || q->profile->stat_fields == 17)
			sum += ticks_ns[i];
	}
	if (!q->profile->in_queue_sampled)
		out->in_queue_ms = sum / NSEC_PER_MSEC;
}

void
stat_read(struct queue *q, struct queue_stat *out, uint64_t now)
{
	unsigned hz = q->profile->hz;

	read_ctxs(q, NULL, out);
	if (out->in_flight > 0)
		update_io_ticks(q, now, true);
	out->io_ticks_ms = get(&q->stat->io_ticks) * 1000 / hz;
	if (q->profile->in_queue_sampled)
		out->in_queue_ms = get(&q->stat->in_queue) * 1000 / hz;
}

void
stat_read_hctx(const struct hctx *hctx, struct queue_stat *out)
{
	read_ctxs(hctx->queue, hctx, out);
}

void
stat_latency(const struct queue *q, enum stat_group g, struct latency *out)
{
	unsigned i;

	*out = (struct latency){};
	for (i = 0; i < q->machine->nr_cpus; i++)
		latency_merge(out, &q->ctx[i]->latency[g]);
}

/* Four fields of a group; the times are printed as 32 bits (6.1). */
static void
show_group(const struct queue_stat *st, enum stat_group g, FILE *out)
{
	fprintf(out, "%8llu %8llu %8llu %8u", (unsigned long long)st->ios[g],
	    (unsigned long long)st->merges[g],
	    (unsigned long long)st->sectors[g], (uint32_t)st->ticks_ms[g]);
}

void
stat_show(const struct queue *q, const struct queue_stat *st, FILE *out)
{
	unsigned fields = q->profile->stat_fields;

	show_group(st, STAT_READ, out);
	fputc(' ', out);
	show_group(st, STAT_WRITE, out);
	fprintf(out, " %8u %8u %8u", (uint32_t)st->in_flight,
	    (uint32_t)st->io_ticks_ms, (uint32_t)st->in_queue_ms);
	if (fields >= 15) {
		fputc(' ', out);
		show_group(st, STAT_DISCARD, out);
	}
	if (fields >= 17)
		fprintf(out, " %8llu %8u",
		    (unsigned long long)st->ios[STAT_FLUSH],
		    (uint32_t)st->ticks_ms[STAT_FLUSH]);
	fputc('\n', out);
}
