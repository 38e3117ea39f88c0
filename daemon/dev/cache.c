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
 * A disk with a backing needs no images: its file is what there is after a
 * power cut, and the cache knows which pages it has not (backing.c).  What is
 * forgotten is written there first.
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
	void *image; /* NULL: a hole, or the file has it */
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

/* The file of a backing has its page, as it is now.  0 or -errno. */
static int
write_page(struct disk *d, struct cpu *cpu, const struct dirty_page *p)
{
	uint64_t pos = p->index << PAGE_SHIFT, len = disk_size(d) - pos;

	return backing_put(d, cpu, pos, len < PAGE_SIZE ? len : PAGE_SIZE);
}

/* The oldest goes.  0 or -errno: it stays, as it could not be written. */
static int
expel(struct disk *d, struct cpu *cpu)
{
	struct dirty_page *p = d->cache.dirty;
	int ret = d->backing != NULL ? write_page(d, cpu, p) : 0;

	if (ret == 0)
		forget(&d->cache, d->pool, cpu, p);
	return ret;
}

/* They go, until there is room for one. */
static int
make_room(struct disk *d, struct cpu *cpu)
{
	struct cache *c = &d->cache;
	uint64_t max = atomic_load(&c->max_pages);
	int ret = 0;

	/* what was freed is out of the table, NOLINTNEXTLINE(*-unix.Malloc) */
	while (ret == 0 && c->dirty != NULL && HASH_COUNT(c->dirty) >= max)
		ret = expel(d, cpu);
	return ret;
}

/*
 * A page will be written.  Without memory for its image it is as if the cache
 * had written it at once.  0 or -errno: a full cache could not be written.
 */
static int
hold(struct disk *d, struct cpu *cpu, uint64_t index)
{
	struct cache *c = &d->cache;
	struct dirty_page *p = find(c, index);
	int ret;

	if (p != NULL)
		return 0;
	ret = make_room(d, cpu);
	if (ret != 0)
		return ret;
	p = malloc(sizeof(*p));
	if (p == NULL)
		return 0;
	p->index = index;
	p->image = NULL;
	if (d->backing == NULL &&
	    store_keep(d->store, cpu, index, &p->image) != 0) {
		free(p);
		return 0;
	}
	HASH_ADD(hh, c->dirty, index, sizeof(p->index), p);
	if (p->index == NO_INDEX) {
		store_unkeep(d->pool, cpu, p->image);
		free(p);
	}
	return 0;
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

/* ---- of a disk with a backing */

/*
 * Those that there are; the lock is let go in between, as others write.  Who
 * flushes meanwhile finds those that are not in the file yet, and sees to them
 * as well.
 */
int
cache_write_back(struct disk *d, struct cpu *cpu)
{
	struct cache *c = &d->cache;
	uint64_t nr;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	for (nr = HASH_COUNT(c->dirty); ret == 0 && nr > 0; nr--) {
		if (c->dirty == NULL)
			break;
		ret = expel(d, cpu);
		pthread_mutex_unlock(&c->lock);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

int
cache_spill(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t len)
{
	struct cache *c = &d->cache;
	uint64_t end = pos + len, next;
	int ret = 0;

	if (!cache_is_on(d))
		return backing_put(d, cpu, pos, len);
	pthread_mutex_lock(&c->lock);
	for (; ret == 0 && pos < end; pos = next) {
		next = ((pos >> PAGE_SHIFT) + 1) << PAGE_SHIFT;
		if (next > end)
			next = end;
		if (find(c, pos >> PAGE_SHIFT) == NULL)
			ret = backing_put(d, cpu, pos, next - pos);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

/* ---- the stages */

/* It has been set to nothing: what it holds is written. */
static int
turn_off(struct disk *d, struct cpu *cpu)
{
	struct cache *c = &d->cache;
	int ret;

	pthread_mutex_lock(&c->lock);
	ret = make_room(d, cpu);
	if (ret == 0)
		atomic_store(&c->is_on, false);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

bool
cache_is_on(const struct disk *d)
{
	return atomic_load_explicit(&d->cache.is_on, memory_order_relaxed);
}

static int
hold_range(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t end)
{
	uint64_t index, last = (end - 1) >> PAGE_SHIFT;
	int ret = 0;

	pthread_mutex_lock(&d->cache.lock);
	for (index = pos >> PAGE_SHIFT; ret == 0 && index <= last; index++)
		ret = hold(d, cpu, index);
	pthread_mutex_unlock(&d->cache.lock);
	return ret;
}

static int
flush(struct disk *d, struct cpu *cpu)
{
	if (d->backing != NULL)
		return cache_write_back(d, cpu);
	cache_flush(&d->cache, d->pool, cpu);
	return 0;
}

enum verdict
cache_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	int ret = 0;

	(void)now;
	if (!cache_is_on(d))
		return STAGE_NEXT;
	if (atomic_load(&d->cache.max_pages) == 0)
		ret = turn_off(d, cpu);
	else if (rq->op == REQ_OP_FLUSH)
		ret = flush(d, cpu);
	else if (rq->op == REQ_OP_WRITE && !(rq->flags & REQ_FUA))
		ret = hold_range(d, cpu, rq->pos, rq->pos + rq->bytes);
	if (ret == 0)
		return STAGE_NEXT;
	rq->error = ret;
	return STAGE_END;
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

	if (!cache_is_on(d) || d->backing != NULL)
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
