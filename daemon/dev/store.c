/* SPDX-License-Identifier: MIT */
/*
 * A tree of pages, 512 to a node, as high as the size needs:
 *
 *	root -> node -> node -> page
 *
 * A node is a page of the pool too, filled with atomic pointers; a link is
 * the place of such a pointer (or of the root), and the page that holds a link
 * is its node.  Nodes and pages appear with one compare-and-swap of a link
 * and leave with another; then they are retired, so that whoever found them
 * in this turn (base/epoch.h) may still look at them.
 *
 * Of a node, the meta word counts the links in use.  With the last one it
 * turns DEAD: nothing may be linked in it any more, and it is unlinked.
 *
 * Of a page, the meta word says:
 *
 *	 31    30 .... 23  22 ....... 13  12 ........ 0
 *	DEAD   valid: a    writers: cpus  pins: replies
 *	       bit for     changing it    that show it
 *	       512 bytes   in place
 *
 * - Bytes that are not valid are zero, so a read need not know.
 * - A page in the tree has a valid bit.  With its last one, it leaves.
 * - Who changes a page becomes a writer, which no page with a pin allows.
 * - A page with a pin is replaced: who wants to change it pins it as well,
 *   waits until the writers of before are gone, and has a page that nobody
 *   changes.  The copy, changed, takes its link, if it is still there.
 * - Once it is unlinked a page turns DEAD: no writer and no pin may be added,
 *   and the last pin that goes retires it.  Who replaces it keeps his pin
 *   until then.  So it is only behind a discard of the whole page, or a write
 *   of it that brought another page, that a writer may slip in before; he found
 *   the page before it was unlinked, and his write counts as done before.
 * - A write may bring its data in pages that the pool has lent.  One that is
 *   written whole takes the link, as a copy would, and so does one that comes
 *   in parts, with the last of them: until then its own meta word, which nobody
 *   else uses, remembers in the valid bits which sectors were written.
 *
 * A snapshot has nodes of its own, and the pages of the store that it was made
 * of.  Such a page is SHARED: DEAD, with all writers there can be, so that
 * nobody changes it, and a pin for each tree that has it.  It may be pinned as
 * long as there is a pin: who found it in a tree may have come too late.  With
 * his next change of it a store gets a page of its own.
 *
 * Nobody waits for another but the one who replaces, for a copy of at most a
 * page by each writer; all the others look again when they lost a race.
 */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define NODE_SHIFT 9
#define NODE_LINKS (1u << NODE_SHIFT)
#define MAX_HEIGHT 6u /* 54 bits; 2^63 bytes have 51 bits of pages */

#define PIN         1u
#define PINS        0x00001fffu
#define WRITER      0x00002000u
#define WRITERS     0x007fe000u
#define VALID       0x7f800000u
#define VALID_SHIFT 23
#define DEAD        0x80000000u

#define SHARED (DEAD | WRITERS)

#define MAX_SHOWN (PINS - STORE_MAX_CPUS) /* the rest: who replaces */
#define MAX_SPIN  100u /* rounds before others get the processor */

#define PREFETCH_LINES 16u /* then the hardware has understood */

_Static_assert(WRITERS / WRITER == STORE_MAX_CPUS + 1, "a writer a cpu");

struct node {
	_Atomic(void *) link[NODE_LINKS];
};

struct store {
	struct page_pool *pool;
	uint64_t size;
	int64_t max_pages;
	uint32_t blocksize;
	unsigned height;                       /* levels of nodes */
	_Alignas(64) _Atomic(void *) root;     /* read by all, always */
	_Alignas(64) _Atomic int64_t nr_pages; /* nodes, too */
	_Atomic int64_t nr_valid;              /* of 512 bytes */
};

/* The way to a page, or to where there is no way on. */
struct path {
	uint64_t index; /* of the page */
	unsigned level; /* of its last link: 0 for a page's */
	_Atomic(void *) *link[MAX_HEIGHT + 1]; /* by level; the root's is top */
};

/* A change of one page. */
struct change {
	uint64_t index;
	unsigned offset;
	unsigned len;
	const char *data; /* NULL: zeros */
	char *lent;       /* the data's page; may take the place of the other */
	uint32_t set;     /* valid bits */
	uint32_t clear;
};

/*
 * Never written, so the kernel shows one page of zeros all over it and no
 * memory is used.
 */
static char zeros[STORE_ZEROS_SIZE] __attribute__((aligned(PAGE_SIZE)));

/*
 * The bytes of users.  Accesses that overlap race here, and may: a function
 * of its own, for tests/tsan.supp.
 */
static __attribute__((noinline)) void
move_data(void *to, const void *from, size_t len)
{
	if (from != NULL)
		memcpy(to, from, len);
	else
		memset(to, 0, len);
}

/* ------------------------------------------------------------- accounts */

static void
count_valid(struct store *s, uint32_t more, uint32_t less)
{
	int nr =
	    __builtin_popcount(more & VALID) - __builtin_popcount(less & VALID);

	if (nr != 0)
		atomic_fetch_add_explicit(
		    &s->nr_valid, nr, memory_order_relaxed);
}

/* Count a page: `lent`, or, when that is NULL, one of the pool's. */
static void *
take_page(struct store *s, struct cpu *cpu, unsigned flags, void *lent)
{
	void *page = NULL;

	if (atomic_fetch_add(&s->nr_pages, 1) < s->max_pages ||
	    (flags & PAGE_EXEMPT)) {
		if (lent == NULL)
			page = page_alloc(s->pool, cpu, flags);
		else if (page_charge(s->pool, flags))
			page = lent;
	}
	if (page == NULL)
		atomic_fetch_sub(&s->nr_pages, 1);
	return page;
}

/* Nobody else has seen it. */
static void
give_page(struct store *s, struct cpu *cpu, void *page, void *lent)
{
	atomic_fetch_sub(&s->nr_pages, 1);
	if (page == lent)
		page_uncharge(s->pool);
	else
		page_free(s->pool, cpu, page);
}

static bool
is_shared(uint32_t meta)
{
	return (meta & SHARED) == SHARED;
}

/*
 * It was unlinked, and counts no more.  Without a cpu nobody looks at it, but
 * for one that another store has had, too.
 */
static void
drop_page(struct page_pool *pool, struct cpu *cpu, void *page)
{
	if (cpu == NULL && !is_shared(atomic_load(page_meta(page)))) {
		page_free(pool, NULL, page);
		return;
	}
	page_uncharge(pool);
	page_retire(pool, cpu, &page, 1);
}

/* ----------------------------------------------------------------- tree */

static _Atomic(void *) *
node_link(void *node, uint64_t index, unsigned level)
{
	return &((struct node *)node)
		    ->link[index >> level * NODE_SHIFT & (NODE_LINKS - 1)];
}

/* The page that this lies in: of a link, its node. */
static void *
page_of(const volatile void *p)
{
	return (void *)((uintptr_t)p & ~(uintptr_t)(PAGE_SIZE - 1));
}

/* The page, or NULL and where the way ends. */
static void *
find(struct store *s, uint64_t index, struct path *path)
{
	unsigned level = s->height;
	_Atomic(void *) *link = &s->root;
	void *child;

	path->index = index;
	for (;;) {
		path->link[level] = link;
		child = atomic_load(link);
		if (level == 0 || child == NULL)
			break;
		level--;
		link = node_link(child, index, level);
	}
	path->level = level;
	return child;
}

/* Where the page ends, or the hole, that find() found for pos; at most end. */
static uint64_t
found_end(
    const struct store *s, const struct path *path, uint64_t pos, uint64_t end)
{
	unsigned shift = PAGE_SHIFT + path->level * NODE_SHIFT;
	uint64_t next;

	if (path->level == s->height)
		return end;
	next = ((pos >> shift) + 1) << shift;
	return next < end ? next : end;
}

/* Count one more link in the node of this one.  False: the node is dead. */
static bool
node_hold(_Atomic(void *) *link)
{
	page_meta_t *meta = page_meta(page_of(link));
	uint32_t old = atomic_load(meta);

	do {
		if (old == DEAD)
			return false;
	} while (!atomic_compare_exchange_weak(meta, &old, old + 1));
	return true;
}

static void node_unlink(
    struct store *s, struct cpu *cpu, const struct path *path, unsigned level);

/* The path's link of this level is not in use any more. */
static void
node_put(
    struct store *s, struct cpu *cpu, const struct path *path, unsigned level)
{
	page_meta_t *meta;
	uint32_t old, new;

	if (level == s->height)
		return; /* the root is in no node */
	meta = page_meta(page_of(path->link[level]));
	old = atomic_load(meta);
	do {
		new = old == 1 ? DEAD : old - 1;
	} while (!atomic_compare_exchange_weak(meta, &old, new));
	if (new == DEAD)
		node_unlink(s, cpu, path, level);
}

/* The node of the path's link is dead: whoever gets here first unlinks it. */
static void
node_unlink(
    struct store *s, struct cpu *cpu, const struct path *path, unsigned level)
{
	void *node = page_of(path->link[level]), *expected = node;

	if (!atomic_compare_exchange_strong(
		path->link[level + 1], &expected, NULL))
		return;
	atomic_fetch_sub(&s->nr_pages, 1);
	drop_page(s->pool, cpu, node);
	node_put(s, cpu, path, level + 1);
}

/*
 * Link a page where find() found none.  The nodes that are missing come
 * first, one in the other and the page in the last: all of it appears at
 * once, and no node is ever empty.  0, -ENOSPC, or -EAGAIN: somebody else was
 * there; the page is not linked then.
 */
static int
link_page(struct store *s, struct cpu *cpu, const struct path *path, void *page,
    unsigned flags)
{
	_Atomic(void *) *link = path->link[path->level];
	void *child = page, *node, *expected = NULL;
	int err = -EAGAIN;
	unsigned level;

	for (level = 0; level < path->level; level++) {
		node = take_page(s, cpu, PAGE_ZEROED | flags, NULL);
		if (node == NULL) {
			err = -ENOSPC;
			goto fail;
		}
		atomic_init(node_link(node, path->index, level), child);
		atomic_init(page_meta(node), 1);
		child = node;
	}

	if (level < s->height && !node_hold(link)) {
		node_unlink(s, cpu, path, level);
		goto fail;
	}
	if (atomic_compare_exchange_strong(link, &expected, child))
		return 0;
	node_put(s, cpu, path, level);
fail:
	while (level-- > 0) {
		node = child;
		child = *node_link(node, path->index, level);
		give_page(s, cpu, node, NULL);
	}
	return err;
}

/* ---------------------------------------------------------------- pages */

/* 0, -EAGAIN: dead, look again; or -EBUSY: it has `max` pins. */
static int
page_pin(void *page, uint32_t max)
{
	page_meta_t *meta = page_meta(page);
	uint32_t old = atomic_load(meta);

	do {
		if ((old & DEAD) && !(is_shared(old) && (old & PINS) > 0))
			return -EAGAIN;
		if ((old & PINS) >= max)
			return -EBUSY;
	} while (!atomic_compare_exchange_weak(meta, &old, old + PIN));
	return 0;
}

static void
page_unpin(struct page_pool *pool, struct cpu *cpu, void *page)
{
	uint32_t old = atomic_fetch_sub(page_meta(page), PIN);

	if ((old & DEAD) && (old & PINS) == PIN)
		drop_page(pool, cpu, page);
}

/*
 * It was unlinked: the store has done with it.  True: nobody has it pinned, and
 * no other store has it.
 */
static bool
page_kill(struct store *s, void *page)
{
	uint32_t old = atomic_fetch_or(page_meta(page), DEAD);

	count_valid(s, 0, old);
	atomic_fetch_sub(&s->nr_pages, 1);
	if (!is_shared(old))
		return (old & PINS) == 0;
	old = atomic_fetch_sub(page_meta(page), PIN); /* the tree's */
	return (old & PINS) == PIN;
}

/* Put `new` in the place of a page, or nothing.  False: it lost its place. */
static bool
page_replace(struct store *s, struct cpu *cpu, const struct path *path,
    void *page, void *new)
{
	void *expected = page;

	if (!atomic_compare_exchange_strong(path->link[0], &expected, new))
		return false;
	if (new == NULL)
		node_put(s, cpu, path, 0);
	if (page_kill(s, page))
		drop_page(s->pool, cpu, page);
	return true;
}

/*
 * Become a writer, with these blocks valid.  Alone: no other writer is there,
 * and none will come (for which a pin serves).  False: it cannot be now.
 */
static bool
page_enter(struct store *s, void *page, uint32_t set, bool alone)
{
	page_meta_t *meta = page_meta(page);
	uint32_t never = alone ? DEAD | PINS | WRITERS : DEAD | PINS;
	uint32_t more = alone ? WRITER + PIN : WRITER;
	uint32_t old = atomic_load(meta);

	do {
		if (old & never)
			return false;
	} while (!atomic_compare_exchange_weak(meta, &old, (old | set) + more));
	if (set & ~old)
		count_valid(s, set & ~old, 0);
	return true;
}

static void
page_leave(struct store *s, struct cpu *cpu, void *page, bool alone)
{
	atomic_fetch_sub(page_meta(page), WRITER);
	if (alone)
		page_unpin(s->pool, cpu, page);
}

/* The page is ours alone: these blocks, which are zero now, are not valid. */
static void
page_invalidate(struct store *s, struct cpu *cpu, const struct path *path,
    void *page, uint32_t clear)
{
	uint32_t old = atomic_fetch_and(page_meta(page), ~clear);

	if (!(old & DEAD)) /* else page_kill() counted */
		count_valid(s, 0, old & clear);
	if ((old & VALID & ~clear) == 0)
		page_replace(s, cpu, path, page, NULL);
}

/* A first page.  0, -ENOSPC or -EAGAIN. */
static int
change_hole(struct store *s, struct cpu *cpu, const struct path *path,
    const struct change *c)
{
	bool whole = c->len == PAGE_SIZE && c->data != NULL;
	char *page;
	int err;

	if (c->set == 0)
		return 0; /* zeros already */
	page = take_page(s, cpu, whole ? 0 : PAGE_ZEROED, c->lent);
	if (page == NULL)
		return -ENOSPC;
	if (c->data != NULL && page != c->lent)
		move_data(page + c->offset, c->data, c->len);
	atomic_init(page_meta(page), c->set);

	err = link_page(s, cpu, path, page, 0);
	if (err != 0)
		give_page(s, cpu, page, c->lent);
	else
		count_valid(s, c->set, 0);
	return err;
}

/* We are writers of the page, and leave it. */
static void
change_in_place(struct store *s, struct cpu *cpu, const struct path *path,
    char *page, const struct change *c)
{
	move_data(page + c->offset, c->data, c->len);
	if (c->clear != 0)
		page_invalidate(s, cpu, path, page, c->clear);
	page_leave(s, cpu, page, c->clear != 0);
}

/*
 * What a page becomes by a change, in another page.  NULL: out of memory; the
 * limits let it pass: else a full disk could not be written over while it is
 * read.  What is pinned is bounded elsewhere; what is shared is not, so the
 * pool's limit holds, while the store's counts it already.
 */
static char *
changed_page(struct store *s, struct cpu *cpu, const char *page, bool shared,
    const struct change *c)
{
	unsigned end = c->offset + c->len;
	char *new;

	if (c->lent != NULL) {
		move_data(c->lent, page, c->offset);
		move_data(c->lent + end, page + end, PAGE_SIZE - end);
		return c->lent;
	}
	new = page_alloc(s->pool, cpu, shared ? 0 : PAGE_EXEMPT);
	if (new == NULL)
		return NULL;
	atomic_fetch_add(&s->nr_pages, 1);
	move_data(new, page, PAGE_SIZE);
	move_data(new + c->offset, c->data, c->len);
	return new;
}

/*
 * Replace the page: it is pinned, or was (or is in the hands of other
 * writers); or the change brings a page.
 */
static int
change_copy(struct store *s, struct cpu *cpu, const struct path *path,
    char *page, const struct change *c)
{
	uint32_t meta;
	char *new = NULL;
	unsigned spin;
	int err = -EAGAIN;
	bool shared;

	if (page_pin(page, PINS) != 0)
		return -EAGAIN;
	for (spin = 0; (meta = *page_meta(page)) & WRITERS; spin++) {
		if (is_shared(meta))
			break;
		if (spin >= MAX_SPIN)
			sched_yield();
	}
	shared = is_shared(meta);

	meta = ((meta | c->set) & ~c->clear) & VALID;
	if (meta != 0) {
		new = changed_page(s, cpu, page, shared, c);
		if (new == NULL) {
			err = -ENOSPC;
			goto out;
		}
		atomic_init(page_meta(new), meta);
	}
	if (page_replace(s, cpu, path, page, new)) {
		count_valid(s, meta, 0);
		err = 0;
	} else if (c->lent == NULL && new != NULL) {
		give_page(s, cpu, new, NULL);
	}
out:
	page_unpin(s->pool, cpu, page);
	if (err == 0 && c->lent != NULL) /* now that the other counts no more */
		take_page(s, cpu, PAGE_EXEMPT, c->lent);
	return err;
}

/* 0 or -ENOSPC. */
static int
change_page(struct store *s, struct cpu *cpu, const struct change *c)
{
	struct path path;
	char *page;
	int err;

	do {
		page = find(s, c->index, &path);
		if (page == NULL) {
			err = change_hole(s, cpu, &path, c);
		} else if (page_enter(s, page, c->set, c->clear != 0)) {
			change_in_place(s, cpu, &path, page, c);
			return 0;
		} else {
			err = change_copy(s, cpu, &path, page, c);
		}
	} while (err == -EAGAIN);
	return err;
}

/* ------------------------------------------------------------- adopting */

#define MAX_GONE 64u

/* What became of pages that others took the places of. */
struct adoption {
	struct path path; /* to the last one */
	int more_valid;
	void *gone[MAX_GONE]; /* to be retired together */
	unsigned nr_gone;
};

static void
adoption_begin(struct adoption *a)
{
	a->path.level = UINT32_MAX; /* to nowhere */
	a->nr_gone = 0;
	a->more_valid = 0;
}

/* Account for it: the costs are those of a few atomic adds for all. */
static void
adoption_settle(struct store *s, struct cpu *cpu, struct adoption *a)
{
	if (a->nr_gone > 0)
		page_retire(s->pool, cpu, a->gone, a->nr_gone);
	if (a->more_valid != 0)
		atomic_fetch_add_explicit(
		    &s->nr_valid, a->more_valid, memory_order_relaxed);
	a->nr_gone = 0;
	a->more_valid = 0;
}

/* find(), from the place of the page before. */
static void *
adoption_find(struct store *s, struct adoption *a, uint64_t index)
{
	struct path *p = &a->path;
	void *page;

	if (p->level == 0 && s->height > 0 && p->index + 1 == index &&
	    index % NODE_LINKS != 0) {
		p->index = index;
		page = atomic_load(++p->link[0]);
		if (page != NULL)
			return page;
	}
	return find(s, index, p);
}

/* It took the place of one that others have, too. */
static void
adopt_shared(struct store *s, struct cpu *cpu, struct adoption *a, void *old)
{
	uint32_t meta = atomic_load(page_meta(old));

	a->more_valid += __builtin_popcount(VALID & ~meta);
	page_unpin(s->pool, cpu, old);
}

/*
 * A lent page that holds all of its data becomes page `index`: 0 or
 * -ENOSPC.  It takes over the accounts of the one whose place it takes.
 * Writers of that found it before, so what they do counts as done before;
 * pins keep it, as they do.
 */
static int
adopt_page(struct store *s, struct cpu *cpu, struct adoption *a,
    const struct change *c)
{
	bool shared;
	uint32_t meta;
	void *old, *found;
	int err;

	atomic_store_explicit(page_meta(c->lent), VALID, memory_order_relaxed);
	old = adoption_find(s, a, c->index);
	for (;;) {
		if (old == NULL) {
			err = change_hole(s, cpu, &a->path, c);
			if (err != -EAGAIN)
				return err;
			old = find(s, c->index, &a->path);
			continue;
		}
		shared = is_shared(atomic_load(page_meta(old)));
		if (shared && !page_charge(s->pool, 0))
			return -ENOSPC;
		found = old;
		if (atomic_compare_exchange_strong(
			a->path.link[0], &found, c->lent))
			break;
		if (shared)
			page_uncharge(s->pool);
		old = find(s, c->index, &a->path);
	}
	if (shared) {
		adopt_shared(s, cpu, a, old);
		return 0;
	}
	meta = atomic_fetch_or(page_meta(old), DEAD);
	a->more_valid += __builtin_popcount(VALID & ~meta);
	if (meta & PINS)
		page_charge(s->pool, PAGE_EXEMPT); /* both are in use */
	else
		a->gone[a->nr_gone++] = old;
	if (a->nr_gone == MAX_GONE)
		adoption_settle(s, cpu, a);
	return 0;
}

/* --------------------------------------------------------------- ranges */

static void
assert_range(const struct store *s, uint64_t pos, uint64_t len)
{
	assert(pos <= s->size);
	assert(len <= s->size - pos);
}

static uint64_t
round_down(uint64_t pos, uint64_t unit)
{
	return pos & ~(unit - 1);
}

static uint64_t
round_up(uint64_t pos, uint64_t unit)
{
	return round_down(pos + unit - 1, unit);
}

/* Valid bits of a range in a page. */
static uint32_t
valid_bits(uint64_t from, uint64_t to)
{
	if (to <= from)
		return 0;
	return ((1u << to / SECTOR_SIZE) - (1u << from / SECTOR_SIZE))
	       << VALID_SHIFT;
}

/* Of the sectors that are all in the range. */
static uint32_t
sectors_covered(unsigned offset, unsigned len)
{
	return valid_bits(round_up(offset, SECTOR_SIZE),
	    round_down(offset + len, SECTOR_SIZE));
}

/* Of the blocks that have a byte in the range. */
static uint32_t
blocks_touched(const struct store *s, unsigned offset, unsigned len)
{
	return valid_bits(round_down(offset, s->blocksize),
	    round_up(offset + len, s->blocksize));
}

/* Of the blocks that are all in the range. */
static uint32_t
blocks_covered(const struct store *s, unsigned offset, unsigned len)
{
	return valid_bits(round_up(offset, s->blocksize),
	    round_down(offset + len, s->blocksize));
}

/* The part of a range that lies in its first page. */
static struct change
first_change(uint64_t pos, uint64_t end)
{
	unsigned offset = pos % PAGE_SIZE, room = PAGE_SIZE - offset;

	return (struct change){
		.index = pos >> PAGE_SHIFT,
		.offset = offset,
		.len = end - pos < room ? (unsigned)(end - pos) : room,
	};
}

/* data NULL: zeros */
static int
change_range(struct store *s, struct cpu *cpu, uint64_t pos, const char *data,
    uint64_t len)
{
	uint64_t end = pos + len;
	struct change c;
	int err;

	assert_range(s, pos, len);
	while (pos < end) {
		c = first_change(pos, end);
		c.set = blocks_touched(s, c.offset, c.len);
		c.data = data;
		err = change_page(s, cpu, &c);
		if (err != 0)
			return err;
		pos += c.len;
		if (data != NULL)
			data += c.len;
	}
	return 0;
}

int
store_write(struct store *s, struct cpu *cpu, uint64_t pos, const char *data,
    uint64_t len)
{
	return change_range(s, cpu, pos, data, len);
}

/*
 * A part of a page.  Where a write is split within a page, the page comes in
 * parts: with the last one it may take its place, like those that are written
 * whole.  Else the store's pages, which lay side by side as the lent ones
 * do, would scatter.  The low bits of the entry say which sectors were
 * written; parts may be written at once, by different cpus.
 */
static int
write_part(struct store *s, struct cpu *cpu, struct change *c, void **entry)
{
	char *lent = *entry, *page;
	uint32_t part = sectors_covered(c->offset, c->len);
	uint32_t old = atomic_load(page_meta(lent));
	struct path path;
	int err;

	c->data = lent + c->offset;
	page = find(s, c->index, &path);
	if (page != NULL && ((old | part) & VALID) == VALID &&
	    !is_shared(atomic_load(page_meta(page)))) {
		c->lent = lent;
		err = change_copy(s, cpu, &path, page, c);
		if (err == 0)
			*entry = NULL;
		if (err != -EAGAIN)
			return err;
		c->lent = NULL;
	}
	err = change_page(s, cpu, c);
	if (err == 0)
		atomic_fetch_or(page_meta(lent), part);
	return err;
}

int
store_write_pages(
    struct store *s, struct cpu *cpu, uint64_t pos, void **page, uint64_t len)
{
	uint64_t end = pos + len;
	struct adoption a;
	struct change c;
	int err = 0;

	assert_range(s, pos, len);
	adoption_begin(&a);
	for (; err == 0 && pos < end; pos += c.len, page++) {
		c = first_change(pos, end);
		if (c.len == PAGE_SIZE) {
			c.lent = *page;
			c.data = c.lent;
			c.set = VALID;
			err = adopt_page(s, cpu, &a, &c);
			if (err == 0)
				*page = NULL;
		} else {
			c.set = blocks_touched(s, c.offset, c.len);
			err = write_part(s, cpu, &c, page);
		}
	}
	adoption_settle(s, cpu, &a);
	return err;
}

int
store_zero(struct store *s, struct cpu *cpu, uint64_t pos, uint64_t len)
{
	return change_range(s, cpu, pos, NULL, len);
}

int
store_discard(struct store *s, struct cpu *cpu, uint64_t pos, uint64_t len)
{
	uint64_t end = pos + len;
	struct change c;
	struct path path;
	void *page;
	int err = 0;

	assert_range(s, pos, len);
	if (end == s->size)
		end = round_up(end, PAGE_SIZE); /* nothing is behind it */
	while (pos < end) {
		page = find(s, pos >> PAGE_SHIFT, &path);
		c = first_change(pos, end);
		if (page == NULL) {
			pos = found_end(s, &path, pos, end);
			continue;
		}
		if (c.len == PAGE_SIZE) {
			if (!page_replace(s, cpu, &path, page, NULL))
				continue; /* there is another by now */
		} else {
			c.clear = blocks_covered(s, c.offset, c.len);
			if (change_page(s, cpu, &c) != 0)
				err = -ENOSPC;
		}
		pos += c.len;
	}
	return err;
}

bool
store_read(
    struct store *s, struct cpu *cpu, uint64_t pos, char *data, uint64_t len)
{
	uint64_t end = pos + len, next;
	bool found = false;
	struct path path;
	const char *page;

	(void)cpu; /* its epoch keeps the pages */
	assert_range(s, pos, len);
	while (pos < end) {
		page = find(s, pos >> PAGE_SHIFT, &path);
		next = found_end(s, &path, pos, end);
		if (page != NULL) {
			page += pos % PAGE_SIZE;
			found = true;
		}
		move_data(data, page, next - pos);
		data += next - pos;
		pos = next;
	}
	return found;
}

void
store_prefetch(struct store *s, uint64_t pos, bool data)
{
	uint64_t index = pos >> PAGE_SHIFT;
	unsigned level = s->height, i;
	_Atomic(void *) *link = &s->root;
	char *page;

	for (; level > 0; link = node_link(page, index, --level)) {
		page = atomic_load(link);
		if (page == NULL)
			return;
	}
	if (!data) {
		__builtin_prefetch((void *)link);
		return;
	}
	page = atomic_load(link);
	if (page == NULL)
		return;
	__builtin_prefetch((void *)page_meta(page));
	page += pos % PAGE_SIZE;
	for (i = 0; i < PREFETCH_LINES; i++)
		__builtin_prefetch(page + i * (size_t)CACHE_LINE_SIZE);
}

bool
store_extent(struct store *s, struct cpu *cpu, uint64_t pos, uint64_t *len,
    unsigned *steps)
{
	uint64_t at = pos, end = pos + *len, next;
	bool data, answer = false;
	struct path path;
	uint32_t valid;
	void *page;

	(void)cpu;
	assert(*len > 0);
	assert(*steps > 0);
	assert_range(s, pos, *len);
	for (; *steps > 0 && at < end; (*steps)--) {
		page = find(s, at >> PAGE_SHIFT, &path);
		next = found_end(s, &path, at, end);
		data = false;
		if (page != NULL) {
			valid = (*page_meta(page) & VALID) >> VALID_SHIFT;
			data = valid >> at % PAGE_SIZE / SECTOR_SIZE & 1;
			if (valid != VALID >> VALID_SHIFT)
				next =
				    round_down(at, SECTOR_SIZE) + SECTOR_SIZE;
		}
		if (at == pos)
			answer = data;
		if (data != answer)
			break;
		at = next < end ? next : end;
	}
	*len = at - pos;
	return answer;
}

/* ---------------------------------------------------------------- pins */

const void *
store_zeros(void)
{
	return zeros;
}

/* Of the zeros that end with this piece, how many more are there? */
static size_t
zeros_left(const struct iovec *iov)
{
	const char *base = iov->iov_base;

	if (base < zeros || base >= zeros + sizeof(zeros))
		return 0;
	return (size_t)(zeros + sizeof(zeros) - base) - iov->iov_len;
}

/*
 * A hole of `len` bytes behind the *nr pieces there are.  Returns how much of
 * it found room.
 */
static uint64_t
show_hole(struct iovec *iov, unsigned *nr, unsigned max, uint64_t len)
{
	uint64_t done = 0, n;

	while (done < len) {
		n = *nr > 0 ? zeros_left(&iov[*nr - 1]) : 0;
		if (n == 0) {
			if (*nr == max)
				break;
			iov[(*nr)++] = (struct iovec){ .iov_base = zeros };
			n = sizeof(zeros);
		}
		if (n > len - done)
			n = len - done;
		iov[*nr - 1].iov_len += n;
		done += n;
	}
	return done;
}

/* The same for a part of a page: 0 and it is pinned, -EAGAIN or -EBUSY. */
static int
show_page(struct iovec *iov, unsigned *nr, unsigned max, char *base, size_t len)
{
	struct iovec *last = *nr > 0 ? &iov[*nr - 1] : NULL;
	bool joins =
	    last != NULL && (char *)last->iov_base + last->iov_len == base;
	int err;

	if (!joins && *nr == max)
		return -EBUSY;
	err = page_pin(page_of(base), MAX_SHOWN);
	if (err != 0)
		return err;
	if (joins)
		last->iov_len += len;
	else
		iov[(*nr)++] =
		    (struct iovec){ .iov_base = base, .iov_len = len };
	return 0;
}

unsigned
store_pin(struct store *s, struct cpu *cpu, uint64_t pos, uint64_t len,
    struct iovec *iov, unsigned max, uint64_t *done)
{
	uint64_t at = pos, end = pos + len, n, room;
	unsigned nr = 0;
	struct path path;
	char *page;
	int err;

	(void)cpu;
	assert_range(s, pos, len);
	while (at < end) {
		page = find(s, at >> PAGE_SHIFT, &path);
		n = found_end(s, &path, at, end) - at;
		if (page == NULL) {
			room = show_hole(iov, &nr, max, n);
			at += room;
			if (room < n)
				break;
			continue;
		}
		err = show_page(iov, &nr, max, page + at % PAGE_SIZE, n);
		if (err == -EBUSY)
			break;
		if (err == 0)
			at += n;
	}
	*done = at - pos;
	return nr;
}

void
store_unpin(struct page_pool *pool, struct cpu *cpu, const struct iovec *iov,
    unsigned nr)
{
	char *page, *end;
	unsigned i;

	for (i = 0; i < nr; i++) {
		page = page_of(iov[i].iov_base);
		end = (char *)iov[i].iov_base + iov[i].iov_len;
		if (page >= zeros && page < zeros + sizeof(zeros))
			continue;
		for (; page < end; page += PAGE_SIZE)
			page_unpin(pool, cpu, page);
	}
}

/* --------------------------------------------------------------- images */

/*
 * An image is a page with a pin of its keeper's.  It may be one of the tree,
 * which the pin keeps as it is; or it has left the tree, or never been there:
 * DEAD.  Of a dead page with no other pin the keeper is the only one who will
 * ever ask for it, and may change it.
 */
static bool
image_is_alone(const void *image)
{
	uint32_t meta = atomic_load(page_meta(image));

	return (meta & (DEAD | WRITERS | PINS)) == (DEAD | PIN);
}

/* A copy of a page, NULL for zeros; the limits let it pass.  NULL: no memory.
 */
static void *
image_copy(struct store *s, struct cpu *cpu, const void *page)
{
	void *image = page_alloc(s->pool, cpu, PAGE_EXEMPT);
	uint32_t valid = 0;

	if (image == NULL)
		return NULL;
	if (page != NULL)
		valid = atomic_load(page_meta(page)) & VALID;
	move_data(image, page, PAGE_SIZE);
	atomic_store(page_meta(image), DEAD | PIN | valid);
	return image;
}

int
store_keep(struct store *s, struct cpu *cpu, uint64_t index, void **image)
{
	struct path path;
	void *page;
	int err;

	do {
		page = find(s, index, &path);
		err = page != NULL ? page_pin(page, MAX_SHOWN) : 0;
	} while (err == -EAGAIN);
	if (err == -EBUSY)
		page = image_copy(s, cpu, page);
	*image = page;
	return err == -EBUSY && page == NULL ? -ENOMEM : 0;
}

void
store_unkeep(struct page_pool *pool, struct cpu *cpu, void *image)
{
	if (image != NULL)
		page_unpin(pool, cpu, image);
}

int
store_amend_from(struct store *s, struct cpu *cpu, uint64_t pos, unsigned len,
    const void *from, void **image)
{
	unsigned offset = pos % PAGE_SIZE;
	uint32_t valid = 0, set, clear;
	const char *page = from;
	char *own = *image;

	assert(offset + len <= PAGE_SIZE);
	if (page == own)
		return 0;
	if (own == NULL || !image_is_alone(own)) {
		own = image_copy(s, cpu, *image);
		if (own == NULL)
			return -ENOMEM;
		store_unkeep(s->pool, cpu, *image);
		*image = own;
	}
	if (page != NULL)
		valid = atomic_load(page_meta(page)) & VALID;
	move_data(own + offset, page != NULL ? page + offset : NULL, len);
	set = blocks_touched(s, offset, len) & valid;
	clear = blocks_covered(s, offset, len) & ~valid;
	atomic_store(
	    page_meta(own), (atomic_load(page_meta(own)) & ~clear) | set);
	return 0;
}

int
store_amend(
    struct store *s, struct cpu *cpu, uint64_t pos, unsigned len, void **image)
{
	struct path path;

	return store_amend_from(
	    s, cpu, pos, len, find(s, pos >> PAGE_SHIFT, &path), image);
}

int
store_revert(struct store *s, struct cpu *cpu, uint64_t index, void *image)
{
	void *page, *new = NULL;
	struct path path;
	uint32_t valid = 0;
	int err = 0;

	page = find(s, index, &path);
	if (page == image)
		goto out;
	if (image != NULL)
		valid = atomic_load(page_meta(image)) & VALID;
	if (valid != 0) {
		new = take_page(s, cpu, PAGE_EXEMPT, NULL);
		if (new == NULL)
			return -ENOMEM;
		move_data(new, image, PAGE_SIZE);
		atomic_store(page_meta(new), valid);
	}
	if (page != NULL)
		page_replace(s, cpu, &path, page, new);
	else if (new != NULL)
		err = link_page(s, cpu, &path, new, PAGE_EXEMPT);
	if (err != 0) {
		give_page(s, cpu, new, NULL);
		return -ENOMEM;
	}
	count_valid(s, valid, 0);
out:
	store_unkeep(s->pool, cpu, image);
	return 0;
}

/* ---------------------------------------------------------------- store */

struct store *
store_new(
    struct page_pool *pool, uint64_t size, uint32_t blocksize, uint64_t limit)
{
	uint64_t last = (size - 1) >> PAGE_SHIFT;
	struct store *s;

	assert(size > 0);
	assert(size <= STORE_MAX_SIZE);
	assert(blocksize >= SECTOR_SIZE);
	assert(blocksize <= PAGE_SIZE);
	assert((blocksize & (blocksize - 1)) == 0);

	s = aligned_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->pool = pool;
	s->size = size;
	store_limit(s, limit);
	s->blocksize = blocksize;
	for (; last != 0; last >>= NODE_SHIFT)
		s->height++;
	return s;
}

static void
free_tree(struct store *s, struct cpu *cpu, void *child, unsigned level)
{
	struct node *node = child;
	unsigned i;
	bool shared;

	if (child == NULL)
		return;
	if (level > 0) {
		for (i = 0; i < NODE_LINKS; i++)
			free_tree(s, cpu, node->link[i], level - 1);
		page_free(s->pool, cpu, node);
		return;
	}
	shared = is_shared(atomic_load(page_meta(child)));
	if (!page_kill(s, child))
		return;
	if (shared)
		drop_page(s->pool, cpu, child);
	else
		page_free(s->pool, cpu, child);
}

void
store_free(struct store *s, struct cpu *cpu)
{
	if (s == NULL)
		return;
	free_tree(s, cpu, s->root, s->height);
	free(s);
}

/*
 * One more tree has the page.  -EBUSY: it has all the pins that it can bear.
 */
static int
page_share(struct store *s, void *page)
{
	page_meta_t *meta = page_meta(page);
	uint32_t old = atomic_load(meta), new;

	do {
		if ((old & PINS) >= MAX_SHOWN)
			return -EBUSY;
		assert(is_shared(old) || !(old & (DEAD | WRITERS)));
		new = is_shared(old) ? old + PIN : (old | SHARED) + 2 * PIN;
	} while (!atomic_compare_exchange_weak(meta, &old, new));
	atomic_fetch_add(&s->nr_pages, 1);
	count_valid(s, old, 0);
	return 0;
}

/* A tree of the same pages; as far as it came, if it fails. */
static int
share_tree(struct store *s, void *from, unsigned level, void **to)
{
	struct node *node = from, *copy;
	uint32_t nr = 0;
	void *child;
	int ret = 0;

	*to = NULL;
	if (from == NULL)
		return 0;
	if (level == 0) {
		ret = page_share(s, from);
		*to = ret == 0 ? from : NULL;
		return ret;
	}
	copy = take_page(s, NULL, PAGE_ZEROED, NULL);
	if (copy == NULL)
		return -ENOSPC;
	*to = copy;
	for (unsigned i = 0; ret == 0 && i < NODE_LINKS; i++) {
		ret = share_tree(s, node->link[i], level - 1, &child);
		atomic_init(&copy->link[i], child);
		nr += child != NULL;
	}
	atomic_init(page_meta(copy), nr);
	return ret;
}

int
store_snapshot(struct store *of, struct store **out)
{
	struct store *s = aligned_calloc(1, sizeof(*s));
	void *root;
	int ret;

	if (s == NULL)
		return -ENOMEM;
	s->pool = of->pool;
	s->size = of->size;
	s->max_pages = of->max_pages;
	s->blocksize = of->blocksize;
	s->height = of->height;
	ret = share_tree(s, of->root, of->height, &root);
	atomic_init(&s->root, root);
	if (ret != 0) {
		store_free(s, NULL);
		return ret;
	}
	*out = s;
	return 0;
}

/* Every block that holds data counts as a whole. */
static void
make_blocks_valid(struct store *s, void *child, unsigned level)
{
	struct node *node = child;
	uint32_t meta, more = 0;
	unsigned offset;

	if (child == NULL)
		return;
	if (level > 0) {
		for (unsigned i = 0; i < NODE_LINKS; i++)
			make_blocks_valid(s, node->link[i], level - 1);
		return;
	}
	meta = atomic_load(page_meta(child));
	if (is_shared(meta)) /* by the other's blocks, too */
		return;
	for (offset = 0; offset < PAGE_SIZE; offset += s->blocksize) {
		uint32_t block = blocks_touched(s, offset, s->blocksize);

		if (meta & block)
			more |= block & ~meta;
	}
	count_valid(s, more, 0);
	atomic_store(page_meta(child), meta | more);
}

int
store_resize(struct store *s, uint64_t size, uint32_t blocksize)
{
	uint64_t pages = ((size - 1) >> PAGE_SHIFT) >> s->height * NODE_SHIFT;
	bool larger = blocksize > s->blocksize;
	void *node;

	for (; pages != 0; pages >>= NODE_SHIFT) {
		if (s->root != NULL) {
			/* few, and no fault of who asks for a larger size */
			node =
			    take_page(s, NULL, PAGE_ZEROED | PAGE_EXEMPT, NULL);
			if (node == NULL)
				return -ENOMEM;
			atomic_init(node_link(node, 0, 0), s->root);
			atomic_init(page_meta(node), 1);
			s->root = node;
		}
		s->height++;
	}
	s->size = size;
	s->blocksize = blocksize;
	if (larger)
		make_blocks_valid(s, s->root, s->height);
	return 0;
}

void
store_limit(struct store *s, uint64_t limit)
{
	s->max_pages = limit != 0 ? (int64_t)(limit / PAGE_SIZE) : INT64_MAX;
}

uint64_t
store_blocks(const struct store *s)
{
	int64_t nr = s->nr_valid;

	/* a block may be given back before it was counted */
	return nr > 0 ? (uint64_t)nr / (s->blocksize / SECTOR_SIZE) : 0;
}

uint64_t
store_memory(const struct store *s)
{
	int64_t nr = s->nr_pages;

	/* a page may be given back before the one for it was counted */
	return nr > 0 ? (uint64_t)nr * PAGE_SIZE : 0;
}
