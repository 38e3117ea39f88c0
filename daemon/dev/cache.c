/* SPDX-License-Identifier: MIT */
/*
 * The volatile cache, turned around: the store holds what reads see, so that
 * they need not ask, and the cache keeps of each page that was written and not
 * flushed what it was before (an image, see store_keep()).  A flush forgets
 * the images; a power cut puts them back.
 *
 *	write         keep an image, unless there is one; then the store
 *	write, FUA    the store; then those bytes of the image, if there is one
 *	discard       the same: it passes the cache by, as in null_blk
 *	flush         forget all images
 *	a full cache  forget the oldest: its page was written
 *
 * An image has all that was flushed, or written through, before it was made,
 * since the page has.  And it may have more: nobody was promised that what was
 * not flushed is lost.  So a write that is half way in while another cpu
 * flushes, or makes the image, does no harm.
 *
 * Unlike null_blk's, it holds what is written over again, too: there a page
 * that the store has already is written at once.
 */
#include "dev/dev.h"

#include <errno.h>
#include <stdlib.h>

/* uthash tells of no memory by a macro: the page that it did not take is this.
 */
#define NO_INDEX                  UINT64_MAX
#define HASH_NONFATAL_OOM         1
#define uthash_nonfatal_oom(page) ((page)->index = NO_INDEX)
#include <uthash.h>

struct dirty_page {
	uint64_t index;
	void *image;
	UT_hash_handle hh;
};

void
cache_init(struct cache *c)
{
	*c = (struct cache){};
	pthread_mutex_init(&c->lock, NULL);
}

void
cache_fini(struct cache *c)
{
	pthread_mutex_destroy(&c->lock);
}

uint64_t
cache_used(struct cache *c)
{
	uint64_t nr;

	pthread_mutex_lock(&c->lock);
	nr = HASH_COUNT(c->dirty);
	pthread_mutex_unlock(&c->lock);
	return nr * PAGE_SIZE;
}

/* ---- under the lock */

static struct dirty_page *
find(struct cache *c, uint64_t index)
{
	struct dirty_page *p;

	HASH_FIND(hh, c->dirty, &index, sizeof(index), p);
	return p;
}

static void
forget(struct cache *c, struct page_pool *pool, struct cpu *cpu,
    struct dirty_page *p)
{
	HASH_DEL(c->dirty, p);
	store_unkeep(pool, cpu, p->image);
	free(p);
}

/* The oldest go, until there is room for one. */
static void
make_room(struct cache *c, struct page_pool *pool, struct cpu *cpu)
{
	uint64_t max = atomic_load(&c->max_pages);

	/* what was freed is out of the table, NOLINTNEXTLINE(*-unix.Malloc) */
	while (c->dirty != NULL && HASH_COUNT(c->dirty) >= max)
		forget(c, pool, cpu, c->dirty);
}

/*
 * A page will be written.  Without memory for its image it is as if the cache
 * had written it at once.
 */
static void
hold(struct cache *c, struct store *s, struct page_pool *pool, struct cpu *cpu,
    uint64_t index)
{
	struct dirty_page *p = find(c, index);

	if (p != NULL)
		return;
	make_room(c, pool, cpu);
	p = malloc(sizeof(*p));
	if (p == NULL)
		return;
	p->index = index;
	if (store_keep(s, cpu, index, &p->image) != 0) {
		free(p);
		return;
	}
	HASH_ADD(hh, c->dirty, index, sizeof(p->index), p);
	if (p->index == NO_INDEX) {
		store_unkeep(pool, cpu, p->image);
		free(p);
	}
}

/*
 * The part of a range that lies in this page was written past the cache.
 * False: there is no memory to remember that.
 */
static bool
pass(struct store *s, struct cpu *cpu, struct dirty_page *p, uint64_t pos,
    uint64_t end)
{
	uint64_t from = p->index << PAGE_SHIFT, to = from + PAGE_SIZE;

	if (from < pos)
		from = pos;
	if (to > end)
		to = end;
	return from >= to ||
	       store_amend(s, cpu, from, (unsigned)(to - from), &p->image) == 0;
}

/* Of those in the range, whichever is less: its pages, or all that there are.
 */
static bool
pass_range(struct cache *c, struct store *s, struct cpu *cpu, uint64_t pos,
    uint64_t end)
{
	uint64_t index = pos >> PAGE_SHIFT, last = (end - 1) >> PAGE_SHIFT;
	struct dirty_page *p;
	bool ok = true;

	if (last - index >= HASH_COUNT(c->dirty)) {
		for (p = c->dirty; ok && p != NULL; p = p->hh.next)
			ok = pass(s, cpu, p, pos, end);
		return ok;
	}
	for (; ok && index <= last; index++) {
		p = find(c, index);
		ok = p == NULL || pass(s, cpu, p, pos, end);
	}
	return ok;
}

/* ---- all of it */

/* Forget them all: the oldest, and the others behind it. */
static struct dirty_page *
take_all(struct cache *c)
{
	struct dirty_page *first;

	pthread_mutex_lock(&c->lock);
	first = c->dirty;
	HASH_CLEAR(hh, c->dirty);
	pthread_mutex_unlock(&c->lock);
	return first;
}

void
cache_flush(struct cache *c, struct page_pool *pool, struct cpu *cpu)
{
	struct dirty_page *p, *next;

	for (p = take_all(c); p != NULL; p = next) {
		next = p->hh.next;
		store_unkeep(pool, cpu, p->image);
		free(p);
	}
}

/* A cpu does the work, with the next request: it has a hand of pages. */
void
cache_resize(struct cache *c, uint64_t bytes)
{
	atomic_store(
	    &c->max_pages, (bytes >> PAGE_SHIFT) + (bytes % PAGE_SIZE != 0));
	if (bytes > 0)
		atomic_store(&c->is_on, true);
}

int
cache_cut(
    struct cache *c, struct store *s, struct page_pool *pool, struct cpu *cpu)
{
	struct dirty_page *p, *next;
	int err = 0;

	if (atomic_load(&c->max_pages) == 0) {
		cache_flush(c, pool, cpu); /* it was when it went off */
		return 0;
	}
	for (p = take_all(c); p != NULL; p = next) {
		next = p->hh.next;
		if (store_revert(s, cpu, p->index, p->image) != 0) {
			store_unkeep(pool, cpu, p->image);
			err = -ENOMEM;
		}
		free(p);
	}
	return err;
}

/* ---- the stages */

/* It has been set to nothing: what it holds is written. */
static void
turn_off(struct cache *c, struct page_pool *pool, struct cpu *cpu)
{
	pthread_mutex_lock(&c->lock);
	make_room(c, pool, cpu);
	atomic_store(&c->is_on, false);
	pthread_mutex_unlock(&c->lock);
}

bool
cache_is_on(const struct disk *d)
{
	return atomic_load_explicit(&d->cache.is_on, memory_order_relaxed);
}

static void
hold_range(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t end)
{
	uint64_t index, last = (end - 1) >> PAGE_SHIFT;

	pthread_mutex_lock(&d->cache.lock);
	for (index = pos >> PAGE_SHIFT; index <= last; index++)
		hold(&d->cache, d->store, d->pool, cpu, index);
	pthread_mutex_unlock(&d->cache.lock);
}

enum verdict
cache_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct cache *c = &d->cache;

	(void)now;
	if (!cache_is_on(d))
		return STAGE_NEXT;
	if (atomic_load(&c->max_pages) == 0)
		turn_off(c, d->pool, cpu);
	else if (rq->op == REQ_OP_FLUSH)
		cache_flush(c, d->pool, cpu);
	else if (rq->op == REQ_OP_WRITE && !(rq->flags & REQ_FUA))
		hold_range(d, cpu, rq->pos, rq->pos + rq->bytes);
	return STAGE_NEXT;
}

static bool
passes_by(const struct request *rq)
{
	switch ((enum req_op)rq->op) {
	case REQ_OP_WRITE: return (rq->flags & REQ_FUA) != 0;
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES: return true;
	case REQ_OP_READ:
	case REQ_OP_FLUSH:
	case REQ_OP_NR: break;
	}
	return false;
}

/* Without memory it is as if the cache had written all that it holds. */
void
cache_pass(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t len)
{
	struct cache *c = &d->cache;
	bool ok;

	if (!cache_is_on(d))
		return;
	pthread_mutex_lock(&c->lock);
	ok = pass_range(c, d->store, cpu, pos, pos + len);
	pthread_mutex_unlock(&c->lock);
	if (!ok)
		cache_flush(c, d->pool, cpu);
}

/* A discard may have ranges apart from each other: bio by bio. */
enum verdict
cache_through_stage(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	const struct bio *bio;

	(void)now;
	if (!cache_is_on(d) || !passes_by(rq))
		return STAGE_NEXT;
	STAILQ_FOREACH(bio, &rq->bios, link)
		cache_pass(d, cpu, bio->pos, bio->bytes);
	return STAGE_NEXT;
}
