/* SPDX-License-Identifier: MIT */
/*
 * Pages come from slabs of 2 MiB, aligned to their size, so that a page's
 * address leads to what is known about it:
 *
 *	0    12K                                                        2M
 *	+----+----+----+----+----+----+----+----+----+----+- - - - -+----+
 *	|slab| page page page page page page page page page         page |
 *	+----+----+----+----+----+----+----+----+----+----+- - - - -+----+
 *
 * and take this way:
 *
 *	                       lent
 *	                      ^    \
 *	                     v      v
 *	slab -> hand (of a cpu) -> in use -> retired -> slab
 *	  lock   ^                             |   lock
 *	         '-----------------------------'
 *
 * A cpu's hand is refilled with the lowest free pages of a slab, lowest on
 * top, so that what is written together lies together.  The lock is taken
 * once for BATCH pages.  What the cpu itself has retired comes back into its
 * hand, as far as there is room: who writes data over and over takes no lock.
 *
 * The limit counts the pages in use.  Retired ones are not: whoever gives
 * pages up at the limit may take as many at once, though nobody can have the
 * memory of the former yet.  Theirs comes on top, for a turn of every loop.
 *
 * Free pages are clean (fresh from the system: zeros, no memory behind them)
 * or dirty.  Some dirty ones are kept, so that discarding and writing in
 * turns costs no page faults; beyond that, runs of free pages go back to the
 * system, and slabs that are wholly free.
 */
#include "dev/dev.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/util.h"

#define SLAB_SIZE   (2u << 20)
#define SLAB_PAGES  (SLAB_SIZE / PAGE_SIZE)
#define SLAB_FIRST  3u /* pages before it hold the struct slab */
#define SLAB_USABLE (SLAB_PAGES - SLAB_FIRST)

#define BATCH       64u         /* pages moved under one lock */
#define MAX_RECLAIM (4 * BATCH) /* the same, where there is a backlog */
/* A cpu's: four writes of 1 MiB.  Twice as many made no difference. */
#define HAND_PAGES 1024u
#define RING_PAGES 1024u /* retired by it; a power of two */

/*
 * What is kept though it could go back to the system, on top of the limit:
 * free pages in slabs, so many and as many as a 64th of those in use.  (Two
 * clients that write 1 MiB at random in 1 GiB get a quarter less without the
 * latter.)
 */
#define MAX_DIRTY  1024u
#define DIRTY_PART (64u * PAGE_SIZE) /* of page_pool_used() */
#define TRIM_STEP  64u /* pages freed in a slab before we look again */
#define MIN_RUN    8u  /* free pages in a row: a madvise() takes 6 us */
#define MAX_EMPTY  2u  /* slabs */

/* The meta word of a page in a slab that is free and not clean. */
#define DIRTY 1u

struct slab {
	TAILQ_ENTRY(slab) link; /* pool's full, or partial */
	unsigned nr_free;
	unsigned nr_dirty;              /* of the free ones */
	unsigned trim_at;               /* so many dirty: look for runs */
	uint64_t free[SLAB_PAGES / 64]; /* a bit each */
	page_meta_t meta[SLAB_PAGES];
	void *next[SLAB_PAGES]; /* of a retired page: the next in its list */
	uint64_t stamp[SLAB_PAGES]; /* of a retired page: its epoch */
};
_Static_assert(sizeof(struct slab) <= SLAB_FIRST * PAGE_SIZE, "slab header");
TAILQ_HEAD(slab_list, slab);

/* Retired pages, oldest first.  Readers may look at them: links lie beside. */
struct retired {
	void *first;
	void *last;
	unsigned nr;
};

/* Those of a cpu, oldest first: a ring, for links and stamps are far away. */
struct ring {
	unsigned first, nr;
	struct {
		void *page;
		uint64_t stamp;
	} entry[RING_PAGES];
};

/* What a cpu keeps. */
struct hand {
	_Alignas(64) unsigned nr;
	void *page[HAND_PAGES]; /* free */
	struct ring retired;
};

struct page_pool {
	struct epoch *epoch;
	uint64_t limit; /* in bytes, as it was given */
	int64_t max_pages;
	struct hand *hand;                        /* by cpu */
	_Alignas(64) _Atomic int64_t used;        /* pages; no retired ones */
	_Alignas(64) _Atomic uint64_t nr_retired; /* of `retired` */
	pthread_mutex_t lock; /* of all that follows, and of the slabs */
	struct retired retired;
	struct slab_list full;
	struct slab_list partial; /* have free pages; empty ones last */
	unsigned nr_empty;        /* slabs */
	uint64_t nr_dirty;        /* free pages in slabs */
};

static struct slab *
slab_of(const void *page)
{
	return (struct slab *)((uintptr_t)page & ~(uintptr_t)(SLAB_SIZE - 1));
}

static unsigned
slab_index(const void *page)
{
	return (uintptr_t)page / PAGE_SIZE % SLAB_PAGES;
}

static char *
slab_page(struct slab *slab, unsigned i)
{
	return (char *)slab + i * PAGE_SIZE;
}

static bool
slab_has_free(const struct slab *slab, unsigned i)
{
	return slab->free[i / 64] >> i % 64 & 1;
}

/* No other cpu has the page. */
static void
set_meta(struct slab *slab, unsigned i, uint32_t meta)
{
	atomic_store_explicit(&slab->meta[i], meta, memory_order_relaxed);
}

page_meta_t *
page_meta(const void *page)
{
	return &slab_of(page)->meta[slab_index(page)];
}

/* -------------------------------------------------------------- retired */

static void
retired_add(struct retired *list, void *page)
{
	slab_of(page)->next[slab_index(page)] = NULL;
	if (list->first == NULL)
		list->first = page;
	else
		slab_of(list->last)->next[slab_index(list->last)] = page;
	list->last = page;
	list->nr++;
}

/* The oldest, when its stamp is below `safe`; else NULL. */
static void *
retired_take(struct retired *list, uint64_t safe)
{
	void *page = list->first;

	if (page == NULL || slab_of(page)->stamp[slab_index(page)] >= safe)
		return NULL;
	list->first = slab_of(page)->next[slab_index(page)];
	list->nr--;
	return page;
}

/* All of `from` goes behind `to`. */
static void
retired_join(struct retired *to, struct ring *from)
{
	unsigned i;
	void *page;

	for (; from->nr > 0; from->nr--) {
		i = from->first++ % RING_PAGES;
		page = from->entry[i].page;
		slab_of(page)->stamp[slab_index(page)] = from->entry[i].stamp;
		retired_add(to, page);
	}
}

/* How many, from the oldest on, have a stamp below `safe`? */
static unsigned
ring_safe(const struct ring *r, uint64_t safe)
{
	unsigned nr = 0;

	while (
	    nr < r->nr && r->entry[(r->first + nr) % RING_PAGES].stamp < safe)
		nr++;
	return nr;
}

/* ---------------------------------------------------------------- slabs */

/* A fresh slab, among the partial ones.  NULL when out of memory. */
static struct slab *
slab_new(struct page_pool *p)
{
	struct slab *slab;
	char *map, *end;
	unsigned i;

	/*
	 * The system maps downwards: with the last aligned 2 MiB of each
	 * mapping, slab joins slab and all of them are few mappings to it.
	 */
	map = mmap(NULL, 2 * SLAB_SIZE, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	end = map + 2 * SLAB_SIZE;
	slab = slab_of(end - SLAB_SIZE);
	if ((char *)slab > map)
		munmap(map, (size_t)((char *)slab - map));
	if ((char *)slab + SLAB_SIZE < end)
		munmap((char *)slab + SLAB_SIZE,
		    (size_t)(end - (char *)slab - SLAB_SIZE));

	/*
	 * One huge page, until its first trim: copying to and from 4 KiB
	 * anywhere in 256 MiB takes a third less (TLB).
	 */
	madvise(slab, SLAB_SIZE, MADV_HUGEPAGE);

	for (i = SLAB_FIRST; i < SLAB_PAGES; i++)
		slab->free[i / 64] |= UINT64_C(1) << i % 64;
	slab->nr_free = SLAB_USABLE;
	slab->trim_at = TRIM_STEP;
	TAILQ_INSERT_HEAD(&p->partial, slab, link);
	p->nr_empty++;
	return slab;
}

/* Take up to `max` pages, in ascending order.  Returns how many. */
static unsigned
slab_take(struct page_pool *p, struct slab *slab, void **page, unsigned max)
{
	unsigned nr = 0, i = 0, nr_dirty = 0;

	if (slab->nr_free == SLAB_USABLE)
		p->nr_empty--;
	while (nr < max && i < SLAB_PAGES / 64) {
		if (slab->free[i] == 0) {
			i++;
			continue;
		}
		page[nr] = slab_page(
		    slab, i * 64 + (unsigned)__builtin_ctzll(slab->free[i]));
		slab->free[i] &= slab->free[i] - 1;
		nr_dirty += *page_meta(page[nr]) == DIRTY;
		nr++;
	}
	slab->nr_free -= nr;
	slab->nr_dirty -= nr_dirty;
	p->nr_dirty -= nr_dirty;
	if (slab->trim_at > slab->nr_dirty + TRIM_STEP)
		slab->trim_at = slab->nr_dirty + TRIM_STEP;
	if (slab->nr_free == 0) {
		TAILQ_REMOVE(&p->partial, slab, link);
		TAILQ_INSERT_HEAD(&p->full, slab, link);
	}
	return nr;
}

/* Give the memory of long runs of free pages back to the system. */
static void
slab_trim(struct page_pool *p, struct slab *slab)
{
	unsigned i, end, nr_dirty;

	/* a huge page would come back into the holes that are made now */
	madvise(slab, SLAB_SIZE, MADV_NOHUGEPAGE);
	for (i = SLAB_FIRST; i < SLAB_PAGES; i = end + 1) {
		nr_dirty = 0;
		for (end = i; end < SLAB_PAGES; end++) {
			if (!slab_has_free(slab, end))
				break;
			nr_dirty += slab->meta[end] == DIRTY;
		}
		if (nr_dirty == 0 || end - i < MIN_RUN ||
		    madvise(slab_page(slab, i), (end - i) * PAGE_SIZE,
			MADV_DONTNEED) != 0)
			continue;
		slab->nr_dirty -= nr_dirty;
		p->nr_dirty -= nr_dirty;
		for (; i < end; i++)
			set_meta(slab, i, 0);
	}
	slab->trim_at = slab->nr_dirty + TRIM_STEP;
}

/* All its pages are free: keep it for later, or let it go. */
static void
slab_emptied(struct page_pool *p, struct slab *slab)
{
	unsigned nr_dirty = slab->nr_dirty;

	TAILQ_REMOVE(&p->partial, slab, link);
	if (p->nr_empty >= MAX_EMPTY && munmap(slab, SLAB_SIZE) == 0) {
		p->nr_dirty -= nr_dirty;
		return;
	}
	TAILQ_INSERT_TAIL(&p->partial, slab, link);
	p->nr_empty++;
}

/* A page comes home.  Its slab may be gone afterwards. */
static void
slab_put(struct page_pool *p, void *page)
{
	struct slab *slab = slab_of(page);
	unsigned i = slab_index(page);

	if (slab->nr_free == 0) {
		TAILQ_REMOVE(&p->full, slab, link);
		TAILQ_INSERT_HEAD(&p->partial, slab, link);
	}
	set_meta(slab, i, DIRTY);
	slab->free[i / 64] |= UINT64_C(1) << i % 64;
	slab->nr_free++;
	slab->nr_dirty++;
	p->nr_dirty++;
	if (slab->nr_dirty >= slab->trim_at &&
	    p->nr_dirty > MAX_DIRTY + page_pool_used(p) / DIRTY_PART)
		slab_trim(p, slab);
	if (slab->nr_free == SLAB_USABLE)
		slab_emptied(p, slab);
}

/* ----------------------------------------------------------------- pool */

struct page_pool *
page_pool_new(struct machine *m, uint64_t limit)
{
	struct page_pool *p;

	assert(m->nr_cpus <= STORE_MAX_CPUS);
	p = aligned_calloc(1, sizeof(*p));
	if (p == NULL)
		return NULL;
	p->epoch = &m->epoch;
	p->limit = limit;
	p->max_pages = limit != 0 ? (int64_t)(limit / PAGE_SIZE) : INT64_MAX;
	pthread_mutex_init(&p->lock, NULL);
	TAILQ_INIT(&p->full);
	TAILQ_INIT(&p->partial);

	p->hand = aligned_calloc(m->nr_cpus, sizeof(*p->hand));
	if (p->hand == NULL) {
		page_pool_free(p);
		return NULL;
	}
	return p;
}

void
page_pool_free(struct page_pool *p)
{
	struct slab *slab;

	if (p == NULL)
		return;
	assert(p->used == 0);

	TAILQ_CONCAT(&p->partial, &p->full, link);
	while ((slab = TAILQ_FIRST(&p->partial)) != NULL) {
		TAILQ_REMOVE(&p->partial, slab, link);
		munmap(slab, SLAB_SIZE);
	}
	pthread_mutex_destroy(&p->lock);
	free(p->hand);
	free(p);
}

/* Its own retired pages that are safe by now, into the hand; oldest on top. */
static void
hand_reuse(struct page_pool *p, struct hand *hand)
{
	struct ring *r = &hand->retired;
	unsigned nr, i;

	if (r->nr == 0)
		return;
	nr = ring_safe(r, epoch_safe(p->epoch));
	if (nr > HAND_PAGES - hand->nr)
		nr = HAND_PAGES - hand->nr;
	for (i = nr; i > 0; i--)
		hand->page[hand->nr++] =
		    r->entry[(r->first + i - 1) % RING_PAGES].page;
	r->first += nr;
	r->nr -= nr;
}

/* Retired pages that are safe by now go home.  Returns how many. */
static unsigned
reclaim(struct page_pool *p, struct hand *hand)
{
	uint64_t safe = epoch_safe(p->epoch);
	unsigned nr = 0;
	void *page;

	pthread_mutex_lock(&p->lock);
	retired_join(&p->retired, &hand->retired);
	while (nr < MAX_RECLAIM) {
		page = retired_take(&p->retired, safe);
		if (page == NULL)
			break;
		slab_put(p, page);
		nr++;
	}
	p->nr_retired = p->retired.nr;
	pthread_mutex_unlock(&p->lock);
	return nr;
}

bool
page_pool_idle(struct page_pool *p, struct cpu *cpu)
{
	struct hand *hand = &p->hand[cpu->id];

	hand_reuse(p, hand);
	if (hand->retired.nr <= RING_PAGES / 2 && p->nr_retired == 0)
		return false;
	return reclaim(p, hand) == MAX_RECLAIM;
}

/*
 * Fresh pages get their memory in one call: 1.2 us a page where a fault each
 * takes 1.8 (Linux 6.18 in a virtual machine).  Old kernels refuse; then they
 * fault.
 */
static void
populate(void *const *page, unsigned nr)
{
	char *first = page[0], *last = page[nr - 1];

	if (last - first == (nr - 1) * (ptrdiff_t)PAGE_SIZE)
		madvise(first, nr * PAGE_SIZE, MADV_POPULATE_WRITE);
}

/* Put up to BATCH pages in an empty hand.  False when out of memory. */
static bool
refill(struct page_pool *p, struct hand *hand)
{
	void *page[BATCH];
	struct slab *slab;
	unsigned nr = 0, i, nr_clean = 0;

	pthread_mutex_lock(&p->lock);
	while (nr < BATCH) {
		slab = TAILQ_FIRST(&p->partial);
		if (slab == NULL && nr == 0)
			slab = slab_new(p);
		if (slab == NULL)
			break;
		nr += slab_take(p, slab, page + nr, BATCH - nr);
	}
	pthread_mutex_unlock(&p->lock);
	if (nr == 0)
		return false;

	for (i = 0; i < nr; i++) {
		hand->page[nr - 1 - i] = page[i];
		nr_clean += *page_meta(page[i]) != DIRTY;
	}
	hand->nr = nr;
	if (nr_clean > 0)
		populate(page, nr);
	return true;
}

bool
page_charge(struct page_pool *p, unsigned flags)
{
	if (atomic_fetch_add(&p->used, 1) < p->max_pages ||
	    (flags & PAGE_EXEMPT))
		return true;
	page_uncharge(p);
	return false;
}

void
page_uncharge(struct page_pool *p)
{
	atomic_fetch_sub(&p->used, 1);
}

/* The top of the hand; NULL when out of memory. */
static void *
hand_take(struct page_pool *p, struct hand *hand)
{
	/* rather than more memory, what may come home by now */
	if (hand->nr == 0)
		hand_reuse(p, hand);
	if (hand->nr == 0 && p->nr_retired >= BATCH)
		reclaim(p, hand);
	if (hand->nr == 0 && !refill(p, hand))
		return NULL;
	return hand->page[--hand->nr];
}

/* A page that nobody else can see. */
static void
hand_put(struct page_pool *p, struct hand *hand, void *page)
{
	if (hand->nr == HAND_PAGES) {
		pthread_mutex_lock(&p->lock);
		while (hand->nr > HAND_PAGES - BATCH)
			slab_put(p, hand->page[--hand->nr]);
		pthread_mutex_unlock(&p->lock);
	}
	atomic_store_explicit(page_meta(page), DIRTY, memory_order_relaxed);
	hand->page[hand->nr++] = page;
}

unsigned
page_lend(struct page_pool *p, struct cpu *cpu, void **page, unsigned nr)
{
	struct hand *hand = &p->hand[cpu->id];
	unsigned i;

	for (i = 0; i < nr; i++) {
		page[i] = hand_take(p, hand);
		if (page[i] == NULL)
			break;
		atomic_store_explicit(
		    page_meta(page[i]), 0, memory_order_relaxed);
	}
	return i;
}

void
page_return(
    struct page_pool *p, struct cpu *cpu, void *const *page, unsigned nr)
{
	/* backwards: the lowest on top again */
	while (nr-- > 0)
		if (page[nr] != NULL)
			hand_put(p, &p->hand[cpu->id], page[nr]);
}

/* For who is no cpu, and has no hand. */
static void *
slabs_take(struct page_pool *p)
{
	struct slab *slab;
	void *page = NULL;

	pthread_mutex_lock(&p->lock);
	slab = TAILQ_FIRST(&p->partial);
	if (slab == NULL)
		slab = slab_new(p);
	if (slab != NULL)
		slab_take(p, slab, &page, 1);
	pthread_mutex_unlock(&p->lock);
	return page;
}

static void
slabs_put(struct page_pool *p, void *page)
{
	pthread_mutex_lock(&p->lock);
	slab_put(p, page);
	pthread_mutex_unlock(&p->lock);
}

void *
page_alloc(struct page_pool *p, struct cpu *cpu, unsigned flags)
{
	page_meta_t *meta;
	void *page;

	if (!page_charge(p, flags))
		return NULL;
	page = cpu != NULL ? hand_take(p, &p->hand[cpu->id]) : slabs_take(p);
	if (page == NULL) {
		page_uncharge(p);
		return NULL;
	}
	meta = page_meta(page);
	if ((flags & PAGE_ZEROED) && *meta != 0)
		memset(page, 0, PAGE_SIZE);
	atomic_store_explicit(meta, 0, memory_order_relaxed);
	return page;
}

void
page_free(struct page_pool *p, struct cpu *cpu, void *page)
{
	page_uncharge(p);
	if (cpu != NULL)
		hand_put(p, &p->hand[cpu->id], page);
	else
		slabs_put(p, page);
}

/* For who has no ring: behind what the cpus have retired. */
static void
retire_at_once(
    struct page_pool *p, void *const *page, unsigned nr, uint64_t stamp)
{
	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < nr; i++) {
		assert(*page_meta(page[i]) != 0);
		slab_of(page[i])->stamp[slab_index(page[i])] = stamp;
		retired_add(&p->retired, page[i]);
	}
	p->nr_retired = p->retired.nr;
	pthread_mutex_unlock(&p->lock);
}

void
page_retire(
    struct page_pool *p, struct cpu *cpu, void *const *page, unsigned nr)
{
	uint64_t stamp = epoch_retire(p->epoch);
	struct hand *hand;
	struct ring *r;
	unsigned i, at;

	if (cpu == NULL) {
		retire_at_once(p, page, nr, stamp);
		return;
	}
	hand = &p->hand[cpu->id];
	r = &hand->retired;
	for (i = 0; i < nr; i++) {
		assert(*page_meta(page[i]) != 0);
		if (r->nr == RING_PAGES)
			reclaim(p, hand);
		at = (r->first + r->nr++) % RING_PAGES;
		r->entry[at].page = page[i];
		r->entry[at].stamp = stamp;
	}
}

uint64_t
page_pool_used(const struct page_pool *p)
{
	int64_t nr = p->used;

	/* a page may be given back before the one for it was counted */
	return nr > 0 ? (uint64_t)nr * PAGE_SIZE : 0;
}

uint64_t
page_pool_limit(const struct page_pool *p)
{
	return p->limit;
}
