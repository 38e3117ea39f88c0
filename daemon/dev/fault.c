/* SPDX-License-Identifier: MIT */
/*
 * Faults: rules of a disk that make requests fail, hang, or do something else
 * than they say, and null_blk's timeout and requeue.  A request is judged
 * once, when the device gets it first:
 *
 *	stage   judge -> log; then end it, cut it, alter it, or let it pass
 *	...     the other stages, the data moves
 *	end     flip a bit of what was read; delay it; or keep it: it hangs
 *
 * The newest rule that is about a request, and fires, decides, as in the
 * kernel's block/error-injection.c.  All that is drawn comes from the disk's
 * seed, each rule having its own stream of it.
 */
#include "dev/fault.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES 256u
#define LOG_SIZE  1024u /* hits that are remembered */

/* Streams of the seed that no rule has. */
enum {
	STREAM_TIMEOUT = 1 << 0,
	STREAM_REQUEUE = 1 << 1,
	STREAM_INIT_HCTX = 1 << 2
};
#define STREAM(n) (UINT64_C(1) << 63 | (n))

/* What was before fault_alter(). */
struct original {
	uint64_t pos;
	struct bvec *bv;
	unsigned nr_bv;
	uint32_t skip;
	void **lent;
	struct bvec copy; /* of the data, in memory of its own */
};

/* What was decided about a request: rq->priv from then on. */
struct fault_hit {
	TAILQ_ENTRY(fault_hit) link; /* in faults->hung */
	struct request *rq;
	uint64_t id;  /* of the rule; 0: of none */
	bool returns; /* requeue: it goes back once, */
	bool at_once; /* and comes again at once */
	bool acts;    /* the rest means something */
	enum fault_action action;
	int error;
	enum bio_hang_up at;
	uint64_t delay_ns;
	uint64_t start, last; /* sectors */
	uint64_t cut;         /* bytes that are written */
	uint64_t byte;        /* of the request, whose bit is flipped */
	unsigned bit;
	int64_t shift; /* bytes */
	struct original *original;
};

/* Judged: nothing is wrong with it. */
static struct fault_hit no_hit;

/* A hit, for the log. */
struct fault_entry {
	uint64_t seq; /* the how-many-th request */
	uint64_t sector, nr_sectors;
	uint64_t id;
	uint64_t detail[2]; /* of the action */
	int error;
	uint8_t op;
	uint8_t action; /* enum fault_action, or */
};

enum {
	ENTRY_TIMEOUT = 100,
	ENTRY_REQUEUE
};

struct faults {
	pthread_mutex_t lock;
	TAILQ_HEAD(rule_list, fault_rule) rules; /* the newest first */
	unsigned nr_rules;
	uint64_t last_id;
	uint64_t seed;
	uint64_t seq;        /* requests judged */
	uint64_t timeout_ns; /* 0: for ever */
	unsigned requeues;
	bool hurry; /* nothing hangs any more */
	TAILQ_HEAD(hit_list, fault_hit) hung;
	struct fault_entry *log; /* a ring; NULL: no hit yet */
	uint64_t nr_log;         /* entries there ever were */
};

/* ------------------------------------------------------------ life cycle */

static void *
object_new(void)
{
	struct faults *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	pthread_mutex_init(&f->lock, NULL);
	TAILQ_INIT(&f->rules);
	TAILQ_INIT(&f->hung);
	return f;
}

/* Under the lock. */
static void
remove_rule(struct faults *f, struct fault_rule *r)
{
	TAILQ_REMOVE(&f->rules, r, link);
	f->nr_rules--;
	free(r);
}

static void
object_free(void *obj)
{
	struct faults *f = obj;

	if (f == NULL)
		return;
	assert(TAILQ_EMPTY(&f->hung));
	while (!TAILQ_EMPTY(&f->rules))
		remove_rule(f, TAILQ_FIRST(&f->rules));
	pthread_mutex_destroy(&f->lock);
	free(f->log);
	free(f);
}

/* The lock of a constant one changes. */
static struct faults *
lock(const struct faults *f)
{
	struct faults *mutable = (struct faults *)f;

	pthread_mutex_lock(&mutable->lock);
	return mutable;
}

static void
unlock(struct faults *f)
{
	pthread_mutex_unlock(&f->lock);
}

/* Under the lock: begin to count. */
static void
begin_rule(const struct faults *f, struct fault_rule *r)
{
	r->seen = 0;
	r->hits = 0;
	r->rng = rng_stream(f->seed, r->id);
}

static void *
object_copy(const void *obj)
{
	struct faults *from = lock(obj), *f = object_new();
	struct fault_rule *r, *copy = NULL;

	if (f != NULL)
		f->last_id = from->last_id;
	TAILQ_FOREACH(r, &from->rules, link) {
		copy = f != NULL ? malloc(sizeof(*copy)) : NULL;
		if (copy == NULL)
			break;
		*copy = *r;
		begin_rule(f, copy);
		TAILQ_INSERT_TAIL(&f->rules, copy, link);
		f->nr_rules++;
	}
	unlock(from);
	if (r == NULL)
		return f;
	object_free(f);
	return NULL;
}

static bool
object_same(const void *x, const void *y)
{
	struct faults *a, *b;
	struct fault_rule *r, *s;

	if (x == y)
		return true;
	a = lock(x);
	b = lock(y);
	r = TAILQ_FIRST(&a->rules);
	s = TAILQ_FIRST(&b->rules);
	while (r != NULL && s != NULL && fault_rule_same(r, s)) {
		r = TAILQ_NEXT(r, link);
		s = TAILQ_NEXT(s, link);
	}
	unlock(a);
	unlock(b);
	return r == NULL && s == NULL;
}

/* --------------------------------------------------------- commands: text */

static int
add(struct faults *f, const char *what, const char *text, char *err,
    size_t errlen)
{
	struct fault_rule *r = malloc(sizeof(*r));
	int ret;

	if (r == NULL)
		return refuse(err, errlen, -ENOMEM, "faults: no memory");
	ret = fault_rule_parse(r, what, text, err, errlen);
	lock(f);
	if (ret == 0 && f->nr_rules == MAX_RULES)
		ret = refuse(err, errlen, -ENOSPC,
		    "faults: there are %u rules already, allowed: no more",
		    MAX_RULES);
	if (ret == 0) {
		r->id = ++f->last_id;
		begin_rule(f, r);
		TAILQ_INSERT_HEAD(&f->rules, r, link);
		f->nr_rules++;
		r = NULL;
	}
	unlock(f);
	free(r);
	return ret;
}

/* Those of a rule that hang go on; 0: of all.  `error`: or end with that. */
static void
let_go(struct faults *f, uint64_t id, int error)
{
	struct hit_list list = TAILQ_HEAD_INITIALIZER(list);
	struct fault_hit *hit, *next;

	lock(f);
	for (hit = TAILQ_FIRST(&f->hung); hit != NULL; hit = next) {
		next = TAILQ_NEXT(hit, link);
		if (id != 0 && hit->id != id)
			continue;
		TAILQ_REMOVE(&f->hung, hit, link);
		TAILQ_INSERT_TAIL(&list, hit, link);
	}
	unlock(f);
	while ((hit = TAILQ_FIRST(&list)) != NULL) {
		TAILQ_REMOVE(&list, hit, link);
		if (error != 0)
			hit->rq->error = error;
		rq_complete_posted(hit->rq);
		free(hit);
	}
}

static struct fault_rule *
find(struct faults *f, uint64_t id)
{
	struct fault_rule *r;

	TAILQ_FOREACH(r, &f->rules, link)
		if (r->id == id)
			return r;
	return NULL;
}

static void
remove_all(struct faults *f)
{
	lock(f);
	while (!TAILQ_EMPTY(&f->rules))
		remove_rule(f, TAILQ_FIRST(&f->rules));
	unlock(f);
	let_go(f, 0, 0);
}

/* "id=N": a rule that there is. */
static int
parse_id(struct faults *f, const char *what, const char *text, uint64_t *id,
    char *err, size_t errlen)
{
	bool known;

	if (text == NULL || strncmp(text, "id=", 3) != 0 ||
	    uint_parse(text + 3, NULL, id) != 0)
		return refuse(err, errlen, -EINVAL,
		    "faults: \"%.60s\": allowed: %.*s,id=N", what,
		    (int)strcspn(what, ","), what);
	lock(f);
	known = find(f, *id) != NULL;
	unlock(f);
	if (!known)
		return refuse(err, errlen, -ENOENT,
		    "faults: \"%.60s\": no such rule", what);
	return 0;
}

static int
object_set(void *obj, const char *value, char *err, size_t errlen)
{
	size_t len = strcspn(value, ",");
	const char *rest = value[len] != '\0' ? value + len + 1 : NULL;
	struct faults *f = obj;
	uint64_t id = 0;
	int ret = 0;

	if (*value == '\0')
		return refuse(err, errlen, -EINVAL,
		    "faults: \"\": allowed: a rule, remove,id=N, removeall, "
		    "release[,id=N]");
	if (strcmp(value, "removeall") == 0) {
		remove_all(f);
	} else if (len == 6 && strncmp(value, "remove", len) == 0) {
		ret = parse_id(f, value, rest, &id, err, errlen);
		if (ret != 0)
			return ret;
		lock(f);
		remove_rule(f, find(f, id));
		unlock(f);
		let_go(f, id, 0);
	} else if (len == 7 && strncmp(value, "release", len) == 0) {
		if (rest != NULL)
			ret = parse_id(f, value, rest, &id, err, errlen);
		if (ret == 0)
			let_go(f, id, 0);
	} else if (strcmp(value, "add") == 0) {
		ret = add(f, value, "", err, errlen);
	} else if (len == 3 && strncmp(value, "add", len) == 0) {
		ret = add(f, value, rest, err, errlen);
	} else {
		ret = add(f, value, value, err, errlen);
	}
	return ret;
}

static unsigned
nr_hung(const struct faults *f, uint64_t id)
{
	const struct fault_hit *hit;
	unsigned nr = 0;

	TAILQ_FOREACH(hit, &f->hung, link)
		nr += hit->id == id;
	return nr;
}

static void
object_show(const void *obj, FILE *out)
{
	struct faults *f = lock(obj);
	const struct fault_rule *r;
	const char *before = "";

	TAILQ_FOREACH(r, &f->rules, link) {
		fprintf(out,
		    "%sid=%" PRIu64 ",hits=%" PRIu64 ",seen=%" PRIu64
		    ",hung=%u ",
		    before, r->id, r->hits, r->seen, nr_hung(f, r->id));
		fault_rule_print(r, out);
		before = "\n";
	}
	unlock(f);
}

/* The oldest first: that is how they are added. */
static bool
object_item(const void *obj, size_t i, FILE *out)
{
	struct faults *f = lock(obj);
	const struct fault_rule *r;

	TAILQ_FOREACH_REVERSE(r, &f->rules, rule_list, link)
		if (i-- == 0)
			break;
	if (r != NULL) {
		fputs("add,", out);
		fault_rule_print(r, out);
	}
	unlock(f);
	return r != NULL;
}

const struct attr_object faults_object = {
	.new = object_new,
	.free = object_free,
	.copy = object_copy,
	.same = object_same,
	.set = object_set,
	.show = object_show,
	.item = object_item,
};

bool
faults_info(const struct faults *faults, size_t i, struct fault_info *info)
{
	struct faults *f = lock(faults);
	const struct fault_rule *r;
	FILE *out = NULL;

	TAILQ_FOREACH(r, &f->rules, link)
		if (i-- == 0)
			break;
	if (r != NULL) {
		*info = (struct fault_info){
			.id = r->id,
			.hits = r->hits,
			.seen = r->seen,
			.hung = nr_hung(f, r->id),
			.spent = r->times > 0 && r->hits >= r->times,
		};
		out = fmemopen(info->rule, sizeof(info->rule), "w");
	}
	if (out != NULL) {
		fault_rule_print(r, out);
		fclose(out);
	}
	unlock(f);
	return r != NULL;
}

uint64_t
faults_last_id(const struct faults *faults)
{
	struct faults *f = lock(faults);
	uint64_t id = f->last_id;

	unlock(f);
	return id;
}

/* ---------------------------------------------------------------- the log */

/* Under the lock. */
static void
log_hit(struct faults *f, const struct request *rq, const struct fault_hit *hit,
    uint8_t action)
{
	struct fault_entry *e;

	if (f->log == NULL)
		f->log = calloc(LOG_SIZE, sizeof(*f->log));
	if (f->log == NULL)
		return;
	e = &f->log[f->nr_log++ % LOG_SIZE];
	*e = (struct fault_entry){
		.seq = f->seq,
		.op = rq->op,
		.sector = rq->pos >> SECTOR_SHIFT,
		.nr_sectors = rq->bytes >> SECTOR_SHIFT,
		.id = hit->id,
		.error = hit->error,
		.action = action,
	};
	if (action == FAULT_CORRUPT) {
		e->detail[0] = hit->byte;
		e->detail[1] = hit->bit;
	} else if (action == FAULT_TORN) {
		e->detail[0] = hit->cut;
	} else if (action == FAULT_MISDIRECTED) {
		e->detail[0] = (rq->pos + (uint64_t)hit->shift) >> SECTOR_SHIFT;
	}
}

static void
print_entry(const struct fault_entry *e, FILE *out)
{
	fprintf(out, "%" PRIu64 " %s %" PRIu64 "+%" PRIu64, e->seq,
	    fault_op_name(e->op), e->sector, e->nr_sectors);
	if (e->action == ENTRY_TIMEOUT || e->action == ENTRY_REQUEUE) {
		fputs(
		    e->action == ENTRY_TIMEOUT ? " timeout" : " requeue", out);
		return;
	}
	fprintf(out, " id=%" PRIu64 " %s", e->id, fault_action_name(e->action));
	if (e->action == FAULT_CORRUPT)
		fprintf(out, " byte %" PRIu64 " bit %" PRIu64, e->detail[0],
		    e->detail[1]);
	if (e->action == FAULT_TORN)
		fprintf(out, " after %" PRIu64 " bytes", e->detail[0]);
	if (e->action == FAULT_MISDIRECTED)
		fprintf(out, " to %" PRIu64, e->detail[0]);
	if (e->error != 0)
		fprintf(out, " %s", strerrorname_np(-e->error));
}

uint64_t
faults_log(const struct faults *faults, FILE *out)
{
	struct faults *f = lock(faults);
	uint64_t first = f->nr_log > LOG_SIZE ? f->nr_log - LOG_SIZE : 0;

	for (uint64_t i = first; i < f->nr_log; i++) {
		print_entry(&f->log[i % LOG_SIZE], out);
		fputc('\n', out);
	}
	unlock(f);
	return first;
}

/* --------------------------------------------------------------- judgement */

static bool
in_range(const struct fault_rule *r, const struct bio *bio)
{
	return bio->pos >> SECTOR_SHIFT <= r->last &&
	       (bio->pos + bio->bytes - 1) >> SECTOR_SHIFT >= r->start;
}

/* Of a discard of several ranges each. */
static bool
touches(const struct fault_rule *r, const struct request *rq)
{
	const struct bio *bio;

	if (!r->has_range)
		return true;
	if (rq->bytes == 0)
		return false;
	STAILQ_FOREACH(bio, &rq->bios, link)
		if (in_range(r, bio))
			return true;
	return false;
}

/* Is there what it would be done to? */
static bool
can_act(
    const struct disk *d, const struct fault_rule *r, const struct request *rq)
{
	uint64_t shift = (uint64_t)(r->shift * (int64_t)SECTOR_SIZE);
	const struct bio *bio;

	switch (r->action) {
	case FAULT_CORRUPT:
		return r->offset == FAULT_RANDOM || r->offset < rq->bytes;
	case FAULT_TORN:
		return r->keep == FAULT_RANDOM ||
		       r->keep * SECTOR_SIZE < rq->bytes;
	case FAULT_MISDIRECTED:
		STAILQ_FOREACH(bio, &rq->bios, link)
			if (bio->pos + shift > d->conf.size ||
			    bio->bytes > d->conf.size - (bio->pos + shift))
				return false;
		return true;
	case FAULT_ERROR:
	case FAULT_DELAY:
	case FAULT_HANG:
	case FAULT_DROP:
	case FAULT_LOST: break;
	}
	return true;
}

/* Under the lock. */
static bool
fires(const struct disk *d, struct fault_rule *r, const struct request *rq)
{
	if ((r->ops & 1u << rq->op) == 0 || !touches(r, rq) ||
	    !can_act(d, r, rq))
		return false;
	if (r->times > 0 && r->hits >= r->times)
		return false;
	if (++r->seen <= r->after || (r->seen - r->after) % r->every != 0)
		return false;
	if (r->chance > 1 && rng_below(&r->rng, r->chance) != 0)
		return false;
	return r->probability == FAULT_ALWAYS ||
	       rng_below(&r->rng, FAULT_ALWAYS) < r->probability;
}

/* How much of it is written: whole blocks, not all of them. */
static uint64_t
cut_of(const struct disk *d, struct fault_rule *r, const struct request *rq)
{
	if (r->keep != FAULT_RANDOM)
		return r->keep * SECTOR_SIZE;
	return rng_below(&r->rng, rq->bytes / d->conf.blocksize) *
	       d->conf.blocksize;
}

/* Under the lock. */
static void
hit_by_rule(const struct disk *d, struct fault_rule *r,
    const struct request *rq, struct fault_hit *hit)
{
	r->hits++;
	hit->acts = true;
	hit->id = r->id;
	hit->action = r->action;
	hit->error = r->status != NULL ? r->status->error : 0;
	hit->at = r->at;
	hit->delay_ns = r->delay_ns;
	hit->start = r->start;
	hit->last = r->last;
	hit->shift = r->shift * (int64_t)SECTOR_SIZE;
	if (r->action == FAULT_TORN)
		hit->cut = cut_of(d, r, rq);
	if (r->action == FAULT_CORRUPT) {
		hit->byte = r->offset != FAULT_RANDOM
				? r->offset
				: rng_below(&r->rng, rq->bytes);
		hit->bit =
		    (unsigned)(r->bit != FAULT_RANDOM ? r->bit
						      : rng_below(&r->rng, 8));
	}
	log_hit(d->conf.faults, rq, hit, (uint8_t)r->action);
}

/* null_queue_rq(): dropped, and after a while it has timed out. */
static void
hit_by_timeout(
    struct faults *f, const struct request *rq, struct fault_hit *hit)
{
	hit->acts = true;
	hit->action = f->timeout_ns == 0 ? FAULT_HANG : FAULT_ERROR;
	hit->delay_ns = f->timeout_ns;
	hit->error = -ETIMEDOUT;
	log_hit(f, rq, hit, ENTRY_TIMEOUT);
}

/* It alternates between the core's busy path and the driver's own requeue. */
static void
hit_by_requeue(
    struct faults *f, const struct request *rq, struct fault_hit *hit)
{
	struct fault_hit none = { 0 };

	hit->returns = true;
	hit->at_once = f->requeues++ % 2 == 1;
	log_hit(f, rq, &none, ENTRY_REQUEUE);
}

static void
judge_by_rules(
    const struct disk *d, const struct request *rq, struct fault_hit *hit)
{
	struct fault_rule *r;

	TAILQ_FOREACH(r, &d->conf.faults->rules, link)
		if (fires(d, r, rq)) {
			hit_by_rule(d, r, rq, hit);
			return;
		}
}

/* Null_blk has no faults of its own where it has no requests. */
static struct fault_hit *
judge(const struct disk *d, struct request *rq)
{
	struct fault_hit *hit = calloc(1, sizeof(*hit));
	bool has_own = !d->queue->conf.bio_based;
	struct faults *f = lock(d->conf.faults);

	f->seq++;
	if (hit != NULL) {
		hit->rq = rq;
		if (has_own && fault_attr_hits(d->conf.timeout))
			hit_by_timeout(f, rq, hit);
		if (has_own && fault_attr_hits(d->conf.requeue))
			hit_by_requeue(f, rq, hit);
		if (!hit->acts)
			judge_by_rules(d, rq, hit);
	}
	unlock(f);
	if (hit != NULL && (hit->acts || hit->returns))
		return hit;
	free(hit);
	return &no_hit;
}

/* ------------------------------------------------------------ what it does */

static void
mark_drops(const struct fault_hit *hit, struct request *rq)
{
	const struct fault_rule range = {
		.start = hit->start,
		.last = hit->last,
	};
	struct bio *bio;

	STAILQ_FOREACH(bio, &rq->bios, link)
		if (in_range(&range, bio))
			bio->hang_up = (uint8_t)hit->at;
}

static enum verdict
act(const struct fault_hit *hit, struct request *rq)
{
	switch (hit->action) {
	case FAULT_ERROR: rq->error = hit->error; return STAGE_END;
	case FAULT_DELAY:
	case FAULT_HANG:
		rq->error = hit->error;
		return hit->error != 0 ? STAGE_END : STAGE_NEXT;
	case FAULT_DROP: mark_drops(hit, rq); return STAGE_NEXT;
	case FAULT_CORRUPT:
		return rq->op == REQ_OP_READ ? STAGE_NEXT : STAGE_ALTERED;
	case FAULT_LOST: rq->error = 0; return STAGE_END;
	case FAULT_MISDIRECTED: return STAGE_ALTERED;
	case FAULT_TORN:
		rq->error = hit->error;
		rq->cut = hit->cut;
		return hit->cut > 0 ? STAGE_CUT : STAGE_END;
	}
	return STAGE_NEXT;
}

/* Judge it, if it was not, and do what came of it. */
static __attribute__((noinline)) enum verdict
run(struct disk *d, struct request *rq, uint64_t now)
{
	struct fault_hit *hit = rq->priv;

	if (hit == NULL)
		rq->priv = hit = judge(d, rq);
	if (hit->returns) {
		hit->returns = false;
		if (hit->at_once)
			hctx_stop(rq->hctx, now + 1, now);
		return STAGE_REQUEUE;
	}
	return hit->acts ? act(hit, rq) : STAGE_NEXT;
}

/* The slow part is by itself: saved registers were most of the cost. */
enum verdict
fault_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)cpu;
	if (rq->priv == NULL &&
	    !atomic_load_explicit(&d->has_faults, memory_order_relaxed))
		return STAGE_NEXT;
	return run(d, rq, now);
}

/* ---- something else than it says */

static void
gather(const struct bio *bio, char *to)
{
	struct bvec_iter it = {};
	uint64_t pos = bio->pos, end = bio->pos + bio->bytes, len;
	struct bvec bv;

	if (bio->lent == NULL) {
		for (; bio_next_bvec(bio, &it, &bv); to += bv.len)
			memcpy(to, bv.base, bv.len);
		return;
	}
	for (; pos < end; pos += len, to += len) {
		len = PAGE_SIZE - pos % PAGE_SIZE;
		if (len > end - pos)
			len = end - pos;
		memcpy(to,
		    (char *)bio->lent[(pos >> PAGE_SHIFT) - bio->first_page] +
			pos % PAGE_SIZE,
		    len);
	}
}

/* Give the bio data of its own, the same. */
static int
own_data(struct bio *bio, struct original *o)
{
	o->copy.base = malloc(bio->bytes);
	if (o->copy.base == NULL)
		return -ENOMEM;
	o->copy.len = (uint32_t)bio->bytes;
	gather(bio, o->copy.base);
	bio->bv = &o->copy;
	bio->nr_bv = 1;
	bio->skip = 0;
	bio->lent = NULL;
	return 0;
}

/* Which byte of which bio is it?  Bytes of a request count on over its bios. */
static struct bio *
find_byte(const struct request *rq, uint64_t *byte)
{
	struct bio *bio;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		if (*byte < bio->bytes)
			break;
		*byte -= bio->bytes;
	}
	return bio;
}

static unsigned
count_bios(const struct request *rq)
{
	const struct bio *bio;
	unsigned nr = 0;

	STAILQ_FOREACH(bio, &rq->bios, link)
		nr++;
	return nr;
}

int
fault_alter(struct request *rq)
{
	struct fault_hit *hit = rq->priv;
	uint64_t byte = hit->byte;
	struct original *o;
	struct bio *bio;
	int ret = 0;

	o = hit->original = calloc(count_bios(rq), sizeof(*o));
	if (o == NULL)
		return -ENOMEM;
	rq->pos += (uint64_t)hit->shift;
	STAILQ_FOREACH(bio, &rq->bios, link) {
		*o = (struct original){ bio->pos, bio->bv, bio->nr_bv,
			bio->skip, bio->lent, {} };
		if (ret == 0 && rq->op == REQ_OP_WRITE)
			ret = own_data(bio, o);
		bio->pos += (uint64_t)hit->shift;
		o++;
	}
	if (ret == 0 && hit->action == FAULT_CORRUPT) {
		bio = find_byte(rq, &byte);
		bio->bv->base[byte] ^= (char)(1u << hit->bit);
	}
	return ret;
}

void
fault_restore(struct request *rq)
{
	struct fault_hit *hit = rq->priv;
	struct original *o = hit->original;
	struct bio *bio;

	if (o == NULL)
		return;
	rq->pos -= (uint64_t)hit->shift;
	STAILQ_FOREACH(bio, &rq->bios, link) {
		bio->pos = o->pos;
		bio->bv = o->bv;
		bio->nr_bv = o->nr_bv;
		bio->skip = o->skip;
		bio->lent = o->lent;
		free(o->copy.base);
		o++;
	}
	free(hit->original);
	hit->original = NULL;
}

static void
flip(struct iovec *iov, uint64_t byte, unsigned bit)
{
	for (; byte >= iov->iov_len; iov++)
		byte -= iov->iov_len;
	((char *)iov->iov_base)[byte] ^= (char)(1u << bit);
}

/* In the answer, never in the store. */
static int
flip_read(const struct fault_hit *hit, struct request *rq, struct cpu *cpu)
{
	struct bvec_iter it = {};
	uint64_t byte = hit->byte;
	struct bio *bio = find_byte(rq, &byte);
	struct bvec bv;

	if (bio->iov != NULL) {
		if (!read_unshare(bio, cpu))
			return -ENOMEM;
		flip(bio->iov, byte, hit->bit);
		return 0;
	}
	while (bio_next_bvec(bio, &it, &bv)) {
		if (byte < bv.len) {
			bv.base[byte] ^= (char)(1u << hit->bit);
			break;
		}
		byte -= bv.len;
	}
	bio->hole = false;
	return 0;
}

/* ---- its end */

/* It hangs, unless nobody waits for it: then it ends with an error. */
static bool
hang(struct faults *f, struct fault_hit *hit)
{
	struct request *rq = hit->rq;
	bool hangs;

	lock(f);
	hangs = !f->hurry && !rq_given_up(rq);
	if (hangs)
		TAILQ_INSERT_TAIL(&f->hung, hit, link);
	unlock(f);
	if (!hangs)
		rq->error = -ESHUTDOWN;
	return hangs;
}

bool
fault_end(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t *delay_ns)
{
	struct fault_hit *hit = rq->priv;

	rq->priv = NULL;
	if (hit == &no_hit)
		return true;
	if (hit->acts && hit->action == FAULT_HANG && hang(d->conf.faults, hit))
		return false; /* it may be gone by now */
	if (hit->acts && hit->action == FAULT_CORRUPT &&
	    rq->op == REQ_OP_READ && rq->error == 0)
		rq->error = flip_read(hit, rq, cpu);
	*delay_ns = hit->delay_ns;
	free(hit);
	return true;
}

void
fault_abandon(struct disk *d)
{
	struct hit_list list = TAILQ_HEAD_INITIALIZER(list);
	struct faults *f = lock(d->conf.faults);
	struct fault_hit *hit, *next;

	for (hit = TAILQ_FIRST(&f->hung); hit != NULL; hit = next) {
		next = TAILQ_NEXT(hit, link);
		if (!rq_given_up(hit->rq))
			continue;
		TAILQ_REMOVE(&f->hung, hit, link);
		TAILQ_INSERT_TAIL(&list, hit, link);
	}
	unlock(f);
	while ((hit = TAILQ_FIRST(&list)) != NULL) {
		TAILQ_REMOVE(&list, hit, link);
		hit->rq->error = -ESHUTDOWN;
		rq_complete_posted(hit->rq);
		free(hit);
	}
}

void
fault_hurry(struct disk *d)
{
	struct faults *f = lock(d->set.faults);

	f->hurry = true;
	unlock(f);
	let_go(f, 0, -ESHUTDOWN);
}

/* ---------------------------------------------------------------- the disk */

void
fault_arm(struct disk *d)
{
	struct faults *f = lock(d->conf.faults);
	bool has = f->nr_rules > 0 ||
		   atomic_load(&d->conf.timeout->probability) > 0 ||
		   atomic_load(&d->conf.requeue->probability) > 0;

	f->timeout_ns = d->conf.timeout_nsec;
	atomic_store(&d->has_faults, has);
	unlock(f);
}

int
fault_power_on(struct disk *d, uint64_t now, char *err, size_t errlen)
{
	uint64_t seed = d->set.seed;
	struct faults *f = d->conf.faults;
	struct fault_rule *r;

	if (seed == 0)
		seed = rng_stream(now, (uint64_t)d->name[0]).state >> 32 | 1;
	d->conf.seed = seed;
	lock(f);
	f->seed = seed;
	f->seq = 0;
	f->requeues = 0;
	f->nr_log = 0;
	f->hurry = false;
	TAILQ_FOREACH(r, &f->rules, link)
		begin_rule(f, r);
	unlock(f);
	fault_attr_seed(
	    d->conf.timeout, rng_stream(seed, STREAM(STREAM_TIMEOUT)));
	fault_attr_seed(
	    d->conf.requeue, rng_stream(seed, STREAM(STREAM_REQUEUE)));
	fault_attr_seed(
	    d->conf.init_hctx, rng_stream(seed, STREAM(STREAM_INIT_HCTX)));
	for (uint32_t i = 0; i < d->conf.submit_queues; i++)
		if (fault_attr_hits(d->conf.init_hctx))
			return refuse(err, errlen, -EFAULT,
			    "init_hctx: hardware queue %" PRIu32
			    " fails, as it was asked to",
			    i);
	return 0;
}
