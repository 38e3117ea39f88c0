/* SPDX-License-Identifier: MIT */
/*
 * A closed loop in simulated time: so many requests are under way on a disk,
 * and each that ends is followed by the next at once.  No time passes but what
 * the disk takes.
 *
 *	closed_open -> closed_set ... -> closed_on -> closed_run ... ->
 *	closed_close
 */
#ifndef LIB_CLOSED_H
#define LIB_CLOSED_H

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "dev/dev.h"

#define CLOSED_MAX_DEPTH 256u
#define CLOSED_MAX_BYTES (1u << 20)

/* What is asked for. */
struct closed_job {
	enum req_op op;
	bool random; /* else one after the other, from `first` on */
	uint64_t first;
	uint32_t bytes; /* of each, at most CLOSED_MAX_BYTES */
	unsigned depth;
	unsigned nr;      /* requests in all */
	unsigned warm_up; /* of them, which do not count */
};

/* What came of it. */
struct closed_result {
	uint64_t *ns; /* how long each took, as they ended; free() it */
	unsigned nr;
	double seconds; /* in which those ended */
	double iops;
	double mbps; /* MiB/s */
	double mean_us, p99_us;
};

struct closed {
	struct machine *machine;
	struct page_pool *pool;
	struct disk *disk;
	uint64_t now;
	struct rng rng;
	int error; /* that requests end with */
	/* the job */
	struct closed_job job;
	struct closed_result *out;
	unsigned begun, ended;
	uint64_t next, since;
};

struct closed_io {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	struct closed *closed;
	uint64_t begun;
};

static char closed_memory[CLOSED_MAX_BYTES];

/* A disk that nobody but this cpu uses, or so many. */
static inline void
closed_open_cpus(struct closed *c, unsigned nr_cpus)
{
	*c = (struct closed){ .now = UINT64_C(10000000000), .rng = { 1 } };
	c->machine = machine_new(nr_cpus, NULL, NULL);
	c->pool = page_pool_new(c->machine, 0);
	for (unsigned i = 0; i < nr_cpus; i++)
		epoch_enter(&c->machine->epoch, i);
	c->disk = disk_new("nullb0", c->machine, c->pool);
}

static inline void
closed_open(struct closed *c)
{
	closed_open_cpus(c, 1);
}

/* 0, or what it complains. */
static inline int
closed_set(struct closed *c, const char *name, const char *value, char *err,
    size_t errlen)
{
	return attr_set(
	    disk_attrs, &c->disk->set, name, value, false, err, errlen);
}

static inline int
closed_on(struct closed *c, char *err, size_t errlen)
{
	return disk_power_on(c->disk, c->now, err, errlen);
}

static inline void
closed_close(struct closed *c)
{
	disk_free(c->disk);
	for (unsigned i = 0; i < c->machine->nr_cpus; i++)
		epoch_leave(&c->machine->epoch, i);
	page_pool_free(c->pool);
	machine_free(c->machine);
}

static inline uint64_t
closed_place(struct closed *c)
{
	uint64_t bytes = c->job.bytes, size = disk_size(c->disk), pos = c->next;

	if (c->job.random)
		return rng_below(&c->rng, size / bytes) * bytes;
	c->next += bytes;
	if (c->next + bytes > size)
		c->next = 0;
	return pos;
}

static inline void
closed_ended(struct bio *bio, struct cpu *cpu, uint64_t when);

static inline void
closed_begin(struct closed *c, struct closed_io *io)
{
	uint64_t pos = closed_place(c);
	int ret;

	bio_init(&io->bio, c->job.op, pos, io->bv, BIO_MAX_VECS);
	io->bio.end_io = closed_ended;
	io->bio.priv = io;
	io->closed = c;
	io->begun = c->now;
	(void)bio_add_payload(&io->bio, true, UINT64_C(1) << 40, 9, 0,
	    closed_memory, c->job.bytes);
	assert(io->bio.bytes == c->job.bytes);
	c->begun++;
	ret = queue_submit(
	    c->disk->queue, &c->machine->cpu[0], NULL, &io->bio, c->now);
	assert(ret == 0);
	(void)ret;
}

static inline void
closed_ended(struct bio *bio, struct cpu *cpu, uint64_t when)
{
	struct closed_io *io = bio->priv;
	struct closed *c = io->closed;

	assert(bio->error == c->error);
	c->now = when;
	if (++c->ended == c->job.warm_up)
		c->since = when;
	if (c->ended > c->job.warm_up)
		c->out->ns[c->out->nr++] = when - io->begun;
	bio_release(&io->bio, cpu);
	if (c->begun < c->job.nr)
		closed_begin(c, io);
	else
		free(io);
}

static inline int
closed_by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static inline struct closed_result
closed_run(struct closed *c, const struct closed_job *job)
{
	struct closed_result r = {};
	uint64_t *sorted, next, sum = 0;
	struct closed_io *io;

	assert(job->depth <= CLOSED_MAX_DEPTH);
	r.ns = calloc(job->nr, sizeof(*r.ns));
	sorted = calloc(job->nr, sizeof(*sorted));
	c->job = *job;
	c->out = &r;
	c->begun = c->ended = 0;
	c->next = job->first;
	c->since = c->now;
	for (unsigned i = 0; i < job->depth && c->begun < job->nr; i++) {
		io = calloc(1, sizeof(*io));
		closed_begin(c, io);
	}
	while (c->ended < job->nr) {
		next = cpu_run(&c->machine->cpu[0], c->now);
		if (c->ended == job->nr)
			break;
		assert(next != CPU_NO_DEADLINE);
		if (next > c->now)
			c->now = next;
	}
	memcpy(sorted, r.ns, r.nr * sizeof(*sorted));
	qsort(sorted, r.nr, sizeof(*sorted), closed_by_value);
	for (unsigned i = 0; i < r.nr; i++)
		sum += sorted[i];
	r.seconds = (double)(c->now - c->since) / 1e9;
	r.iops = r.nr / r.seconds;
	r.mbps = r.iops * job->bytes / (1 << 20);
	r.mean_us = (double)sum / r.nr / 1e3;
	r.p99_us = (double)sorted[r.nr * 99ul / 100] / 1e3;
	free(sorted);
	return r;
}

#endif
