/* SPDX-License-Identifier: MIT */
/*
 * The volatile cache, turned around: the store holds what reads see, so that
 * they need not ask, and the cache keeps of each page what it was before each
 * write that was not flushed (an image, see store_keep()).  A flush forgets
 * the images; a power cut goes back to them.
 *
 *	write         keep an image of each page; then the store
 *	write, FUA    the store; then those bytes of the images that there are
 *	discard       the same: it passes the cache by, as in null_blk
 *	flush         forget all images
 *	a full cache  forget the oldest: that write is there
 *
 * The images of a page are a history.  So a power cut may lose any of the
 * writes and keep the others: what is lost is undone, from the newest write
 * back, but for bytes that a newer one has, which is kept.
 *
 * An image has all that was flushed, or written through, before it was made,
 * since the page has.  And it may have more, or lack what another cpu is just
 * writing elsewhere in the page: only bytes of its own write are taken from it.
 * So a write that is half way in while another cpu flushes, or makes an image,
 * does no harm.
 *
 * The file of a disk with a backing has what there is after a power cut that
 * loses all; what is forgotten is written there first (backing.c).
 *
 * Unlike null_blk's, it holds what is written over again, too: there a page
 * that the store has already is written at once.
 */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"

/* uthash tells of no memory by a macro: the page that it did not take is this.
 */
#define NO_INDEX                  UINT64_MAX
#define HASH_NONFATAL_OOM         1
#define uthash_nonfatal_oom(page) ((page)->index = NO_INDEX)
#include <uthash.h>

/*
 * What is written over and over between two flushes does not have a long
 * history: of a page with so many images the oldest write is one with the next,
 * as in a cache where that has taken its place.
 */
#define IMAGES_A_PAGE 4u
/* But where that cannot be, so many, for each page that it holds and some. */
#define MAX_A_PAGE 8u
#define SOME_PAGES 16u

/* A page before a write to it. */
struct image {
	TAILQ_ENTRY(image) order;  /* in cache->order */
	STAILQ_ENTRY(image) later; /* in page->images */
	struct dirty_page *page;
	uint64_t write; /* which one: others have its number in their pages */
	uint16_t from, to; /* bytes of the page that it wrote, */
	uint16_t kept_to;  /* at a power cut: that are there; from: none */
	bool in_flight;    /* the same: it had not ended */
	void *data;        /* NULL: a hole */
};

struct dirty_page {
	uint64_t index;
	STAILQ_HEAD(image_list, image) images; /* the oldest first */
	unsigned nr_images;
	UT_hash_handle hh;
};

void
cache_init(struct cache *c)
{
	*c = (struct cache){};
	TAILQ_INIT(&c->order);
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

/* Where a page begins and how much of it there is: the disk may end in it. */
static uint64_t
page_bytes(const struct disk *d, const struct dirty_page *p, uint64_t *len)
{
	uint64_t pos = p->index << PAGE_SHIFT;

	*len = least(PAGE_SIZE, disk_size(d) - pos);
	return pos;
}

/* The page goes with its last image. */
static void
forget(
    struct cache *c, struct page_pool *pool, struct cpu *cpu, struct image *i)
{
	struct dirty_page *p = i->page;

	assert(i == STAILQ_FIRST(&p->images));
	STAILQ_REMOVE_HEAD(&p->images, later);
	TAILQ_REMOVE(&c->order, i, order);
	c->nr_images--;
	p->nr_images--;
	store_unkeep(pool, cpu, i->data);
	free(i);
	if (!STAILQ_EMPTY(&p->images))
		return;
	HASH_DEL(c->dirty, p);
	free(p);
}

static void
forget_page(struct cache *c, struct page_pool *pool, struct cpu *cpu,
    struct dirty_page *p)
{
	struct image *i = STAILQ_FIRST(&p->images), *next;

	for (; i != NULL; i = next) { /* the page goes with the last */
		next = STAILQ_NEXT(i, later);
		forget(c, pool, cpu, i);
	}
}

/* The file of a backing has its page, as it is now.  0 or -errno. */
static int
write_page(struct disk *d, struct cpu *cpu, const struct dirty_page *p)
{
	uint64_t len, pos = page_bytes(d, p, &len);

	return backing_put(d, cpu, pos, len);
}

/* The same, as it was after the oldest write that the cache knows of. */
static int
write_oldest(struct disk *d, struct cpu *cpu, const struct image *i)
{
	const struct image *next = STAILQ_NEXT(i, later);
	uint64_t len, pos = page_bytes(d, i->page, &len);

	if (next == NULL)
		return backing_put(d, cpu, pos, len);
	return backing_put_page(d, pos, next->data, len);
}

/* The oldest goes.  0 or -errno: it stays, as it could not be written. */
static int
expel(struct disk *d, struct cpu *cpu)
{
	struct image *i = TAILQ_FIRST(&d->cache.order);
	int ret = d->backing != NULL ? write_oldest(d, cpu, i) : 0;

	if (ret == 0)
		/* what was is on no list, NOLINTNEXTLINE(*-unix.Malloc) */
		forget(&d->cache, d->pool, cpu, i);
	return ret;
}

/* Is there room for another write, and, with `new`, to another page? */
static bool
has_room(const struct cache *c, bool new)
{
	uint64_t max = atomic_load(&c->max_pages);

	return HASH_COUNT(c->dirty) + new <= max &&
	       c->nr_images / MAX_A_PAGE < HASH_COUNT(c->dirty) + SOME_PAGES;
}

/* They go, until there is room for a write to this page, or none is left. */
static int
make_room(struct disk *d, struct cpu *cpu, uint64_t index)
{
	struct cache *c = &d->cache;
	int ret = 0;

	while (ret == 0 && c->dirty != NULL &&
	       !has_room(c, find(c, index) == NULL))
		ret = expel(d, cpu);
	return ret;
}

/* All of them go.  The same. */
static int
expel_all(struct disk *d, struct cpu *cpu)
{
	int ret = 0;

	while (ret == 0 && d->cache.dirty != NULL)
		ret = expel(d, cpu);
	return ret;
}

/* The page, which may be new.  NULL: no memory. */
static struct dirty_page *
find_or_add(struct cache *c, uint64_t index)
{
	struct dirty_page *p = find(c, index);

	if (p != NULL)
		return p;
	p = malloc(sizeof(*p));
	if (p == NULL)
		return NULL;
	p->index = index;
	p->nr_images = 0;
	STAILQ_INIT(&p->images);
	HASH_ADD(hh, c->dirty, index, sizeof(p->index), p);
	if (p->index != NO_INDEX)
		return p;
	free(p);
	return NULL;
}

/*
 * The oldest write of the page is one with the next, if together they are one
 * range.
 */
static void
join_oldest(struct disk *d, struct cpu *cpu, struct dirty_page *p)
{
	struct image *i = STAILQ_FIRST(&p->images);
	struct image *next = STAILQ_NEXT(i, later);
	uint64_t pos = (p->index << PAGE_SHIFT) + i->from;
	void *data;

	if (next->from > i->to || i->from > next->to)
		return;
	if (i->to - i->from == PAGE_SIZE) { /* nothing of the other is left */
		data = next->data;
		next->data = i->data;
		i->data = data;
	} else if (store_amend_from(d->store, cpu, pos,
		       (unsigned)(i->to - i->from), i->data,
		       &next->data) != 0) {
		return;
	}
	next->from = i->from < next->from ? i->from : next->from;
	next->to = i->to > next->to ? i->to : next->to;
	next->kept_to = next->to;
	forget(&d->cache, d->pool, cpu, i);
}

/*
 * A page will be written.  Without memory for its image the cache knows nothing
 * of this write: it is there at once, or what is lost before it takes it along.
 */
static void
hold(
    struct disk *d, struct cpu *cpu, uint64_t index, uint64_t pos, uint64_t end)
{
	uint64_t start = index << PAGE_SHIFT;
	struct cache *c = &d->cache;
	struct image *i = malloc(sizeof(*i));
	struct dirty_page *p = find_or_add(c, index);

	if (p == NULL || i == NULL ||
	    store_keep(d->store, cpu, index, &i->data) != 0) {
		free(i);
		if (p != NULL && STAILQ_EMPTY(&p->images)) {
			HASH_DEL(c->dirty, p);
			free(p);
		}
		return;
	}
	i->page = p;
	i->write = c->nr_writes;
	i->from = (uint16_t)(pos > start ? pos - start : 0);
	i->to = (uint16_t)least(PAGE_SIZE, end - start);
	i->kept_to = i->to;
	i->in_flight = false;
	STAILQ_INSERT_TAIL(&p->images, i, later);
	TAILQ_INSERT_TAIL(&c->order, i, order);
	c->nr_images++;
	p->nr_images++;
	if (p->nr_images > IMAGES_A_PAGE)
		join_oldest(d, cpu, p);
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
	struct image *i;

	if (from < pos)
		from = pos;
	if (to > end)
		to = end;
	if (from >= to)
		return true;
	STAILQ_FOREACH(i, &p->images, later)
		if (store_amend(
			s, cpu, from, (unsigned)(to - from), &i->data) != 0)
			return false;
	return true;
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

/* So many that they are not freed under the lock. */
void
cache_flush(struct cache *c, struct page_pool *pool, struct cpu *cpu)
{
	struct image_order order = TAILQ_HEAD_INITIALIZER(order);
	struct dirty_page *p, *next_page;
	struct image *i;

	pthread_mutex_lock(&c->lock);
	TAILQ_CONCAT(&order, &c->order, order);
	c->nr_images = 0;
	p = c->dirty;
	HASH_CLEAR(hh, c->dirty);
	pthread_mutex_unlock(&c->lock);
	for (; p != NULL; p = next_page) {
		next_page = p->hh.next;
		free(p);
	}
	while ((i = TAILQ_FIRST(&order)) != NULL) {
		TAILQ_REMOVE(&order, i, order);
		store_unkeep(pool, cpu, i->data);
		free(i);
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

/* ---- a power cut: no cpu is there any more */

static uint64_t
count_writes(const struct cache *c)
{
	uint64_t nr = 0, last = UINT64_MAX;
	const struct image *i;

	TAILQ_FOREACH(i, &c->order, order) {
		nr += i->write != last;
		last = i->write;
	}
	return nr;
}

/* What there is to decide of each write. */
struct fate {
	const struct cut_conf *conf;
	struct rng rng;
	uint64_t nr;    /* the one it is about, in order */
	uint64_t first; /* CUT_ORDERED: the first that is lost */
	bool is_off;    /* but for what is in flight, all was written by then */
};

/* Is it to be there, or to be lost?  Each draws once, whatever becomes of it.
 */
static bool
survives(struct fate *f, const struct image *i)
{
	bool heads = rng_next(&f->rng) >> 63;

	if (f->is_off && !i->in_flight)
		return true;
	switch (f->conf->lose) {
	case CUT_ALL: return false;
	case CUT_RANDOM: return heads;
	case CUT_ORDERED: return f->nr < f->first;
	}
	return false;
}

/* In flight, it may have begun: but for those behind the first that is lost. */
static bool
may_tear(const struct fate *f, const struct image *i)
{
	return f->conf->tear != 0 && i->in_flight &&
	       (f->conf->lose != CUT_ORDERED || f->nr == f->first);
}

/* Up to which byte of the disk a write that ends there is done. */
static uint64_t
tear(struct fate *f, uint64_t pos, uint64_t end)
{
	uint64_t unit = f->conf->tear, first = pos / unit;
	uint64_t nr = (end + unit - 1) / unit - first;
	uint64_t done = rng_below(&f->rng, nr + 1);

	return least(end, (first + done) * unit);
}

static uint64_t
pos_of(const struct image *i)
{
	return (i->page->index << PAGE_SHIFT) + i->from;
}

static uint64_t
end_of(const struct image *i)
{
	return (i->page->index << PAGE_SHIFT) + i->to;
}

/* That of one write, which has this image and those behind it.  The next. */
static struct image *
decide(struct fate *f, struct image *first, struct cut_report *r)
{
	uint64_t pos = pos_of(first), end = 0, done;
	struct image *i = first;

	for (; i != NULL && i->write == first->write; i = TAILQ_NEXT(i, order))
		end = end_of(i);
	done = survives(f, first) ? end : pos;
	if (may_tear(f, first))
		done = tear(f, pos, end);
	f->nr++;
	r->writes++;
	r->lost += done <= pos;
	r->torn += done > pos && done < end;
	for (i = first; i != NULL && i->write == first->write;
	     i = TAILQ_NEXT(i, order)) {
		pos = pos_of(i);
		if (done <= pos)
			i->kept_to = i->from;
		else if (done < end_of(i))
			i->kept_to = (uint16_t)(i->from + (done - pos));
	}
	return i;
}

static bool
is_kept(const struct image *i)
{
	return i->kept_to == i->to;
}

static bool
stays(const struct dirty_page *p)
{
	const struct image *i;

	STAILQ_FOREACH(i, &p->images, later)
		if (!is_kept(i))
			return false;
	return true;
}

/* The newest first, from now on. */
static void
turn_around(struct image_list *images)
{
	struct image_list all = STAILQ_HEAD_INITIALIZER(all);
	struct image *i;

	STAILQ_CONCAT(&all, images);
	while ((i = STAILQ_FIRST(&all)) != NULL) {
		STAILQ_REMOVE_HEAD(&all, later);
		STAILQ_INSERT_HEAD(images, i, later);
	}
}

/* Once `older` is undone, it makes no difference whether `i` was. */
static bool
is_covered(const struct image *i, const struct image *older)
{
	return older != NULL && older->kept_to == older->from &&
	       older->from <= i->kept_to && older->to >= i->to;
}

/*
 * What is lost of this write is in the page again as it was before, but for
 * bytes that a newer one has, which is kept.  0 or -ENOMEM.
 */
static int
undo(struct disk *d, struct image *i, const char *newer, void **page)
{
	uint64_t start = i->page->index << PAGE_SHIFT;
	size_t at = i->kept_to, end;
	const char *next;
	int ret = 0;

	if (i->to - at == PAGE_SIZE && !memchr(newer, 1, PAGE_SIZE)) {
		store_unkeep(d->pool, NULL, *page);
		*page = i->data;
		i->data = NULL;
		return 0;
	}
	for (; ret == 0 && at < i->to; at = end) {
		next = memchr(newer + at, newer[at] ^ 1, i->to - at);
		end = next != NULL ? (size_t)(next - newer) : i->to;
		if (newer[at] == 0)
			ret = store_amend_from(d->store, NULL, start + at,
			    (unsigned)(end - at), i->data, page);
	}
	return ret;
}

/*
 * From the newest write back.  Only bytes that it wrote are undone: another cpu
 * may have written others after the image was made, and not be in it.
 * 0, or -ENOMEM: it has all that was written.
 */
static int
cut_page(struct disk *d, struct dirty_page *p)
{
	char newer[PAGE_SIZE] = {}; /* 1: there, and not to be undone */
	struct image *i;
	void *page;
	int ret;

	if (stays(p))
		return 0;
	turn_around(&p->images);
	ret = store_keep(d->store, NULL, p->index, &page);
	if (ret != 0)
		return ret;
	STAILQ_FOREACH(i, &p->images, later) {
		memset(newer + i->from, 1, (size_t)(i->kept_to - i->from));
		if (ret == 0 && !is_covered(i, STAILQ_NEXT(i, later)))
			ret = undo(d, i, newer, &page);
	}
	if (ret == 0)
		ret = store_revert(d->store, NULL, p->index, page);
	if (ret != 0)
		store_unkeep(d->pool, NULL, page);
	return ret;
}

/* Did anything of it survive? */
static bool
has_more(const struct dirty_page *p)
{
	const struct image *i;

	STAILQ_FOREACH(i, &p->images, later)
		if (i->kept_to > i->from)
			return true;
	return false;
}

int
cache_cut(struct disk *d, const struct cut_conf *conf, struct cut_report *r)
{
	struct cache *c = &d->cache;
	struct fate f = { .conf = conf, .rng = rng_stream(conf->seed, 0) };
	struct image *i = TAILQ_FIRST(&c->order);
	struct dirty_page *p, *next;
	int ret = 0, err;

	*r = (struct cut_report){ .seed = conf->seed };
	f.is_off = atomic_load(&c->max_pages) == 0;
	if (conf->lose == CUT_ORDERED)
		f.first = rng_below(&f.rng, count_writes(c) + 1);
	while (i != NULL)
		i = decide(&f, i, r);
	for (p = c->dirty; p != NULL; p = next) {
		next = p->hh.next;
		err = cut_page(d, p);
		if (err == 0 && d->backing != NULL && has_more(p))
			err = write_page(d, NULL, p);
		if (err != 0)
			ret = err;
		forget_page(c, d->pool, NULL, p);
	}
	return ret;
}

/* They are among the last, and each has its number. */
void
cache_in_flight(struct cache *c, const struct request *rq)
{
	struct image *i;

	pthread_mutex_lock(&c->lock);
	TAILQ_FOREACH_REVERSE(i, &c->order, image_order, order) {
		if (i->write < rq->ticket)
			break;
		if (i->write == rq->ticket)
			i->in_flight = true;
	}
	pthread_mutex_unlock(&c->lock);
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
	struct dirty_page *p;
	uint64_t nr;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	for (nr = HASH_COUNT(c->dirty); ret == 0 && nr > 0; nr--) {
		p = c->dirty;
		if (p == NULL)
			break;
		ret = write_page(d, cpu, p);
		if (ret == 0)
			forget_page(c, d->pool, cpu, p);
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
	ret = expel_all(d, cpu);
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

/* 0 or -errno: a full cache could not be written. */
int
cache_hold(struct disk *d, struct request *rq, struct cpu *cpu)
{
	uint64_t pos = rq->pos, end = pos + rq->bytes, index;
	struct cache *c = &d->cache;
	int ret = 0;

	pthread_mutex_lock(&c->lock);
	if (!cache_is_on(d) && !disk_is_dead(&d->cut)) {
		pthread_mutex_unlock(&c->lock); /* another has turned it off */
		return 0;
	}
	rq->ticket = ++c->nr_writes;
	rq->rq_flags |= RQF_TELL | RQF_HELD;
	for (index = pos >> PAGE_SHIFT;
	     ret == 0 && index <= (end - 1) >> PAGE_SHIFT; index++) {
		if (cache_is_on(d))
			ret = make_room(d, cpu, index);
		if (ret == 0)
			hold(d, cpu, index, pos, end);
	}
	pthread_mutex_unlock(&c->lock);
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
	else if (rq->op == REQ_OP_WRITE && !(rq->flags & REQ_FUA) &&
		 !(rq->rq_flags & RQF_HELD)) /* else power.c had it do that */
		ret = cache_hold(d, rq, cpu);
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

	if (!cache_is_on(d))
		return;
	pthread_mutex_lock(&c->lock);
	ok = pass_range(c, d->store, cpu, pos, pos + len);
	pthread_mutex_unlock(&c->lock);
	if (!ok && d->backing == NULL)
		cache_flush(c, d->pool, cpu);
	else if (!ok)
		(void)cache_write_back(d, cpu);
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
