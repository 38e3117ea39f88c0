/* SPDX-License-Identifier: MIT */
/*
 * What the tests of mq-deadline share: a queue that has it, I/Os written as
 * "R100 W200+16 D0", and a way to keep them in the elevator.
 *
 * e_block() takes the only tag for a read that the driver keeps; then a write
 * leaves the elevator but finds no tag, as blk_mq_dispatch_rq_list() takes one
 * too many.  What follows stays in the elevator until h_finish() or e_end().
 */
#ifndef PIPE_ELEVATOR_H
#define PIPE_ELEVATOR_H

#include "harness.h"

#include <ctype.h>

#define MS 1000000ull

/*
 * Where the two of e_block() are: above all else, so that neither direction
 * finds a request at or above the one served last, or a successor of it: both
 * begin at the head of their FIFO, in every age.
 */
#define FAR         (1ull << 32)
#define NR_BLOCKERS 2u

enum age {
	P414,
	P54,
	P61,
	P612
};

static inline enum age
age(const struct profile *p)
{
	static const char *const name[] = { "4.14", "5.4", "6.1", "6.12" };
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(name); i++)
		if (strcmp(p->name, name[i]) == 0)
			return (enum age)i;
	fail_msg("an unknown profile: %s", p->name);
	return P612;
}

/* Section 5: the defaults of the tunables. */
static inline struct queue_conf
e_conf(const struct profile *profile)
{
	struct queue_conf conf = h_conf(profile);

	conf.elevator = elevator_find("mq-deadline");
	assert_non_null(conf.elevator);
	assert_non_null(conf.elevator->ops);
	conf.depth = 1;
	conf.nr_requests = 256;
	conf.limits.max_discard_sectors = 1u << 20;
	conf.limits.max_write_zeroes_sectors = 1u << 16;
	conf.deadline = (struct deadline_conf){
		.read_expire_ms = 500,
		.write_expire_ms = 5000,
		.prio_aging_expire_ms = 10000,
		.writes_starved = 2,
		.fifo_batch = 16,
		.async_depth = 0,
		.front_merges = true,
	};
	return conf;
}

/* ----------------------------------------------------------- I/Os in words */

static const char e_letter[REQ_OP_NR + 1] = "RWFDZ";

/* The next of "R100 W200+16"; NULL at the end. */
static inline const char *
e_parse(const char *s, enum req_op *op, sector_t *sector, uint64_t *nr)
{
	const char *at;
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	if (*s == '\0')
		return NULL;
	at = strchr(e_letter, *s);
	assert_non_null(at);
	*op = (enum req_op)(at - e_letter);
	*sector = strtoull(s + 1, &end, 10);
	assert_true(end != s + 1);
	*nr = 8;
	if (*end == '+')
		*nr = strtoull(end + 1, &end, 10);
	return end;
}

static inline struct bio *
e_bio(struct harness *h, enum req_op op, sector_t sector, uint64_t nr)
{
	struct bio *bio = h_bio(h, op, sector);

	if (op == REQ_OP_READ || op == REQ_OP_WRITE)
		add_contig(h, bio, nr);
	else if (op != REQ_OP_FLUSH)
		bio->bytes = nr * SECTOR_SIZE;
	return bio;
}

/* Submit these, with a priority. */
static inline void
e_put_as(struct harness *h, uint8_t prio, const char *what)
{
	enum req_op op;
	sector_t sector;
	uint64_t nr;
	struct bio *bio;

	while ((what = e_parse(what, &op, &sector, &nr)) != NULL) {
		bio = e_bio(h, op, sector, nr);
		bio->prio = prio;
		h_submit(h, bio);
	}
}

static inline void
e_put(struct harness *h, const char *what)
{
	e_put_as(h, IOPRIO_NONE, what);
}

/* Submit these through a plug of their own, which is left open. */
static inline void
e_put_in(struct harness *h, struct plug *plug, const char *what)
{
	struct plug *open = h->open;

	h->open = plug;
	e_put(h, what);
	h->open = open;
}

/* What the driver saw of a queue (NULL: any), from the nth request on. */
static inline char *
e_seen_of(const struct harness *h, const struct queue *q, unsigned from)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	const struct seen *s;
	const char *blank = "";
	unsigned i;

	assert_non_null(f);
	for (i = from; i < h->nr_seen; i++) {
		s = &h->seen[i];
		if (q != NULL && s->queue != q)
			continue;
		fprintf(f, "%s%c%llu", blank, e_letter[s->op],
		    (unsigned long long)s->sector);
		if (s->op != REQ_OP_FLUSH && s->nr_sectors != 8)
			fprintf(f, "+%llu", (unsigned long long)s->nr_sectors);
		blank = " ";
	}
	fclose(f);
	return text;
}

static inline void
e_expect_from(const struct harness *h, unsigned from, const char *want,
    const char *file, int line)
{
	char *seen = e_seen_of(h, NULL, from);

	_assert_string_equal(seen, want, file, line);
	free(seen);
}

/* All the driver saw, in this order; the same after the two of e_block(). */
#define EXPECT_ALL(h, want) e_expect_from((h), 0, (want), __FILE__, __LINE__)
#define EXPECT_SERVED(h, want) \
	e_expect_from((h), NR_BLOCKERS, (want), __FILE__, __LINE__)

/* ------------------------------------------------------ to and fro in time */

/* Needs depth 1. */
static inline void
e_block_as(struct harness *h, uint8_t prio)
{
	struct bio *bio;

	h->hold = true;
	bio = e_bio(h, REQ_OP_READ, FAR, 8);
	bio->prio = prio;
	h_submit(h, bio);
	assert_int_equal(h->nr_held, 1);
	bio = e_bio(h, REQ_OP_WRITE, FAR + 1000, 8);
	bio->prio = prio;
	h_submit(h, bio);
	assert_int_equal(h->nr_held, 1);
}

static inline void
e_block(struct harness *h)
{
	e_block_as(h, IOPRIO_NONE);
}

/* The driver ends the oldest of what it holds; what can come then, comes. */
static inline void
e_end(struct harness *h)
{
	struct request *rq = h->held[0];

	assert_true(h->nr_held > 0);
	h->nr_held--;
	memmove(h->held, h->held + 1, h->nr_held * sizeof(h->held[0]));
	rq_complete(rq, h->cpu, h->now);
	cpu_run(h->cpu, h->now);
}

#endif
