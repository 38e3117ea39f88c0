/* SPDX-License-Identifier: MIT */
/*
 * mq-deadline (section 5): batches of reads or of writes in order of sector,
 * begun where the last one ended, unless a request has waited for too long.
 *
 *	class   direction   by sector (tree)      by arrival (fifo)
 *	RT      read        [ 8  24  96 ]         24 -> 96 -> 8
 *	        write       [ ]
 *	BE ...
 *
 * A class is served when none above it has anything queued or in flight, or
 * when it has waited for prio_aging_expire.  Kernels before 5.14 know no
 * classes.  The ages differ in where a batch goes on (enum deadline_next).
 */
#include "blk/internal.h"

#include <limits.h>
#include <stdlib.h>

#define NSEC_PER_MSEC UINT64_C(1000000)

enum class {
	CLASS_RT,
	CLASS_BE, /* and those of no class */
	CLASS_IDLE,
	CLASS_NR
};

enum dir {
	DIR_READ,
	DIR_WRITE, /* and all that is no read */
	DIR_NR
};

RB_HEAD(request_tree, request);

struct by_class {
	struct request_tree tree[DIR_NR];
	struct request_list fifo[DIR_NR];
	struct request *next[DIR_NR]; /* DEADLINE_NEXT_OF_...: or NULL */
	uint64_t latest_pos[DIR_NR];  /* DEADLINE_NEXT_BY_POS: bytes */
	_Atomic unsigned nr_live;     /* queued, or not ended yet */
};

struct deadline {
	const struct profile *profile;
	struct deadline_conf conf;
	struct by_class class[CLASS_NR];
	enum dir last_dir;
	unsigned batching; /* requests in this batch so far */
	unsigned starved;  /* batches of reads since one of writes */
	uint64_t serial;
};

/* Equal positions in order of arrival, as the kernel's tree has them. */
static int
by_pos(const struct request *a, const struct request *b)
{
	if (a->pos != b->pos)
		return a->pos < b->pos ? -1 : 1;
	if (a->elv.serial != b->elv.serial)
		return a->elv.serial < b->elv.serial ? -1 : 1;
	return 0;
}

/* RB_GENERATE_STATIC() counts on a BSD's __unused */
RB_GENERATE_INTERNAL(
    request_tree, request, elv.by_pos, by_pos, __attribute__((unused)) static)

static enum dir
dir_of(enum req_op op)
{
	return op == REQ_OP_READ ? DIR_READ : DIR_WRITE;
}

static struct by_class *
class_of(struct deadline *d, uint8_t prio)
{
	if (!d->profile->deadline_classes)
		return &d->class[CLASS_BE];
	switch (prio) {
	case IOPRIO_RT: return &d->class[CLASS_RT];
	case IOPRIO_IDLE: return &d->class[CLASS_IDLE];
	default: return &d->class[CLASS_BE];
	}
}

static uint64_t
expire_ns(const struct deadline *d, enum dir dir)
{
	return NSEC_PER_MSEC * (dir == DIR_READ ? d->conf.read_expire_ms
						: d->conf.write_expire_ms);
}

/* ------------------------------------------------------------ life cycle */

static void
deadline_configure(void *data, const struct queue *q)
{
	struct deadline *d = data;

	d->conf = q->conf.deadline;
}

static void *
deadline_new(const struct queue *q)
{
	struct deadline *d = calloc(1, sizeof(*d));

	if (d == NULL)
		return NULL;
	d->profile = q->profile;
	d->last_dir = DIR_WRITE;
	for (unsigned c = 0; c < CLASS_NR; c++)
		for (unsigned dir = 0; dir < DIR_NR; dir++) {
			RB_INIT(&d->class[c].tree[dir]);
			TAILQ_INIT(&d->class[c].fifo[dir]);
		}
	deadline_configure(d, q);
	return d;
}

static void
deadline_free(void *data)
{
	free(data);
}

/* ---------------------------------------------------------------- queueing */

static void
deadline_add(void *data, struct request *rq, uint64_t now)
{
	struct deadline *d = data;
	struct by_class *c = class_of(d, rq->prio);
	enum dir dir = dir_of(rq->op);

	rq->elv.serial = d->serial++;
	rq->elv.fifo_ns = now + expire_ns(d, dir);
	RB_INSERT(request_tree, &c->tree[dir], rq);
	TAILQ_INSERT_TAIL(&c->fifo[dir], rq, link);
	atomic_fetch_add(&c->nr_live, 1);
}

/* deadline_del_rq_rb(): who wanted to go on there goes on behind it. */
static void
tree_remove(struct by_class *c, enum dir dir, struct request *rq)
{
	if (c->next[dir] == rq)
		c->next[dir] = RB_NEXT(request_tree, &c->tree[dir], rq);
	RB_REMOVE(request_tree, &c->tree[dir], rq);
}

static void
class_remove(struct by_class *c, enum dir dir, struct request *rq)
{
	tree_remove(c, dir, rq);
	TAILQ_REMOVE(&c->fifo[dir], rq, link);
}

static void
deadline_reposition(void *data, struct request *rq)
{
	struct by_class *c = class_of(data, rq->prio);
	enum dir dir = dir_of(rq->op);

	/* not tree_remove(): a batch that is to go on with it still is */
	RB_REMOVE(request_tree, &c->tree[dir], rq);
	RB_INSERT(request_tree, &c->tree[dir], rq);
}

/* dd_merged_requests(): the earlier deadline of the two, and its place. */
static void
deadline_absorb(void *data, struct request *into, struct request *rq)
{
	struct by_class *c = class_of(data, rq->prio);
	enum dir dir = dir_of(rq->op);

	if (rq->elv.fifo_ns < into->elv.fifo_ns) {
		TAILQ_REMOVE(&c->fifo[dir], into, link);
		TAILQ_INSERT_BEFORE(rq, into, link);
		into->elv.fifo_ns = rq->elv.fifo_ns;
	}
	class_remove(c, dir, rq);
}

static struct request *
deadline_former(void *data, struct request *rq)
{
	(void)data;
	return RB_PREV(request_tree, NULL, rq);
}

static struct request *
deadline_latter(void *data, struct request *rq)
{
	(void)data;
	return RB_NEXT(request_tree, NULL, rq);
}

/* The first request at `pos` or above. */
static struct request *
first_from(struct by_class *c, enum dir dir, uint64_t pos)
{
	struct request key;

	key.pos = pos;
	key.elv.serial = 0;
	return RB_NFIND(request_tree, &c->tree[dir], &key);
}

static struct request *
deadline_find_front(void *data, const struct bio *bio)
{
	struct deadline *d = data;
	uint64_t end = bio->pos + bio->bytes;
	struct request *rq;

	if (!d->conf.front_merges)
		return NULL;
	rq = first_from(class_of(d, bio->prio), dir_of(bio->op), end);
	return rq != NULL && rq->pos == end ? rq : NULL;
}

static void
deadline_finish(void *data, const struct request *rq)
{
	atomic_fetch_sub(&class_of(data, rq->prio)->nr_live, 1);
}

/* dd_limit_depth(): all but reads may not take every request there is. */
static unsigned
deadline_depth(const void *data, const struct bio *bio, unsigned nr_requests)
{
	const struct deadline *d = data;
	unsigned depth = d->conf.async_depth;

	if (!d->profile->deadline_classes || bio->op == REQ_OP_READ ||
	    depth == 0 || depth > nr_requests)
		return nr_requests;
	return depth;
}

/* ---------------------------------------------------------------- dispatch */

/* deadline_next_request(): where the direction goes on, or NULL. */
static struct request *
next_of(const struct deadline *d, struct by_class *c, enum dir dir)
{
	if (d->profile->deadline_next == DEADLINE_NEXT_BY_POS)
		return first_from(c, dir, c->latest_pos[dir]);
	return c->next[dir];
}

/* deadline_move_request(): out of the class, to be served. */
static void
move(struct deadline *d, struct by_class *c, enum dir dir, struct request *rq)
{
	if (d->profile->deadline_next == DEADLINE_NEXT_OF_LAST)
		c->next[!dir] = NULL;
	c->next[dir] = RB_NEXT(request_tree, NULL, rq);
	c->latest_pos[dir] = rq->pos;
	class_remove(c, dir, rq);
}

/* Which direction begins a batch?  False: nothing is queued. */
static bool
choose_dir(struct deadline *d, struct by_class *c, enum dir *dir)
{
	bool reads = !TAILQ_EMPTY(&c->fifo[DIR_READ]);
	bool writes = !TAILQ_EMPTY(&c->fifo[DIR_WRITE]);

	if (reads && !(writes && d->starved++ >= d->conf.writes_starved)) {
		*dir = DIR_READ;
		return true;
	}
	if (!writes)
		return false;
	d->starved = 0;
	*dir = DIR_WRITE;
	return true;
}

/* deadline_check_fifo(): has the oldest waited for too long? */
static bool
has_expired(const struct by_class *c, enum dir dir, uint64_t now)
{
	return TAILQ_FIRST(&c->fifo[dir])->elv.fifo_ns <= now;
}

/*
 * __dd_dispatch_request(): the next of a class, if it was queued for at least
 * `age_ns`.
 */
static struct request *
take_from(struct deadline *d, struct by_class *c, uint64_t now, uint64_t age_ns)
{
	enum dir dir = d->last_dir;
	struct request *rq = next_of(d, c, dir);

	if (rq == NULL || d->batching >= d->conf.fifo_batch) {
		if (!choose_dir(d, c, &dir))
			return NULL;
		rq = next_of(d, c, dir);
		if (rq == NULL || has_expired(c, dir, now))
			rq = TAILQ_FIRST(&c->fifo[dir]);
		d->last_dir = dir;
		d->batching = 0;
	}
	if (age_ns > 0 && rq->elv.fifo_ns + age_ns > now + expire_ns(d, dir))
		return NULL;
	d->batching++;
	move(d, c, dir, rq);
	return rq;
}

static bool
is_live(const struct by_class *c)
{
	return atomic_load(&c->nr_live) > 0;
}

/* dd_dispatch_prio_aged_requests(): a lower class has waited long enough. */
static struct request *
take_aged(struct deadline *d, uint64_t now)
{
	uint64_t age_ns = NSEC_PER_MSEC * d->conf.prio_aging_expire_ms;
	unsigned c, nr = 0;
	struct request *rq;

	for (c = 0; c < CLASS_NR; c++)
		nr += is_live(&d->class[c]);
	if (nr < 2)
		return NULL;
	for (c = CLASS_BE; c < CLASS_NR; c++) {
		rq = take_from(d, &d->class[c], now, age_ns);
		if (rq != NULL)
			return rq;
	}
	return NULL;
}

static struct request *
deadline_take(void *data, uint64_t now)
{
	struct deadline *d = data;
	struct request *rq;

	if (!d->profile->deadline_classes)
		return take_from(d, &d->class[CLASS_BE], now, 0);
	rq = take_aged(d, now);
	for (unsigned c = 0; rq == NULL && c < CLASS_NR; c++) {
		rq = take_from(d, &d->class[c], now, 0);
		if (is_live(&d->class[c]))
			break;
	}
	return rq;
}

const struct elevator_ops deadline_ops = {
	.new = deadline_new,
	.free = deadline_free,
	.configure = deadline_configure,
	.add = deadline_add,
	.take = deadline_take,
	.absorb = deadline_absorb,
	.reposition = deadline_reposition,
	.former = deadline_former,
	.latter = deadline_latter,
	.find_front = deadline_find_front,
	.finish = deadline_finish,
	.depth = deadline_depth,
};
