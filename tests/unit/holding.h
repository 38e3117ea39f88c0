/* SPDX-License-Identifier: MIT */
/* A driver that holds what it gets until it is told to let go. */
#ifndef UNIT_HOLDING_H
#define UNIT_HOLDING_H

#include "pipe/harness.h"

static struct harness h;

static struct request *held[64];
static unsigned nr_held;

static inline int
hold_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)now;
	rq_moved(rq, cpu);
	held[nr_held++] = rq;
	return 0;
}

static inline void
let_go(struct cpu *cpu, uint64_t now)
{
	struct request *rq = held[0];

	memmove(held, held + 1, --nr_held * sizeof(held[0]));
	rq_complete(rq, cpu, now);
}

static const struct queue_ops hold_ops = { .queue_rq = hold_queue_rq };

static inline void
open_holding(unsigned depth, unsigned nr_cpus, const char *kernel)
{
	struct queue_conf conf = h_conf(profile_find(kernel));

	memset(&h, 0, sizeof(h));
	nr_held = 0;
	conf.depth = depth;
	h.machine = machine_new(nr_cpus, NULL, NULL);
	h.cpu = &h.machine->cpu[0];
	h.phys = 1ull << 40;
	assert_int_equal(
	    queue_new(&h.queue, h.machine, &hold_ops, &h, &conf), 0);
	plug_init(&h.plug);
}

static inline void
close_holding(void)
{
	while (nr_held > 0)
		let_go(held[0]->ctx->cpu, h.now);
	assert_int_equal(h.nr_ended, h.nr_submitted);
	assert_int_equal(queue_tags_in_use(h.queue), 0);
	queue_free(h.queue);
	machine_free(h.machine);
}

static inline struct bio *
write_bio(sector_t sector, uint64_t nr)
{
	struct bio *bio = h_bio(&h, REQ_OP_WRITE, sector);

	add_contig(&h, bio, nr);
	h.nr_submitted++;
	return bio;
}

#endif
