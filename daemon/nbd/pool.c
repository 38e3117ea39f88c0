/* SPDX-License-Identifier: MIT */
/*
 * Memory that the sessions of a thread use again and again: what was given
 * back last is given out first, for it is in the cache.  What is kept is
 * bounded; the rest goes back to the heap.
 */
#include "nbd/session.h"

#include <assert.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h> /* what is kept is nobody's to look at */
#define HIDE(p, size) ASAN_POISON_MEMORY_REGION(p, size)
#define SHOW(p, size) ASAN_UNPOISON_MEMORY_REGION(p, size)
#else
#define HIDE(p, size) ((void)0)
#define SHOW(p, size) ((void)0)
#endif

#define MAX_KIND_BYTES  (4u << 20)
#define MAX_CHUNK_BYTES (32u << 20)

#define SMALLEST_CLASS (128u << 10)
#define ALIGNMENT      64u

static const size_t sizes[POOL_KINDS] = {
	[POOL_COMMAND] = sizeof(struct command),
	[POOL_PART] = sizeof(struct part),
	[POOL_TABLE] = sizeof(struct table),
	[POOL_BLOCK] = sizeof(struct block),
};

struct nbd_pool *
nbd_pool_new(void)
{
	return calloc(1, sizeof(struct nbd_pool));
}

void
nbd_pool_free(struct nbd_pool *p)
{
	struct pool_item *item;
	struct chunk *c;
	int i;

	if (p == NULL)
		return;
	for (i = 0; i < POOL_KINDS; i++)
		while ((item = p->free[i].first) != NULL) {
			p->free[i].first = item->next;
			free(item);
		}
	for (i = 0; i < POOL_CLASSES; i++)
		while ((c = p->chunks[i]) != NULL) {
			p->chunks[i] = c->next;
			free(c);
		}
	free(p);
}

static void *
alloc_aligned(size_t size)
{
	size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	return aligned_alloc(ALIGNMENT, size);
}

void *
pool_get(struct nbd_pool *p, enum pool_kind kind)
{
	struct pool_item *item = p != NULL ? p->free[kind].first : NULL;

	if (item == NULL)
		return alloc_aligned(sizes[kind]);
	p->free[kind].first = item->next;
	p->free[kind].nr--;
	SHOW(item, sizes[kind]);
	return item;
}

void
pool_put(struct nbd_pool *p, enum pool_kind kind, void *obj)
{
	struct pool_item *item = obj;

	if (obj == NULL)
		return;
	if (p == NULL ||
	    (p->free[kind].nr + 1) * sizes[kind] > MAX_KIND_BYTES) {
		free(obj);
		return;
	}
	item->next = p->free[kind].first;
	p->free[kind].first = item;
	p->free[kind].nr++;
	HIDE(item + 1, sizes[kind] - sizeof(*item));
}

/* The smallest class that `size` fits into, or POOL_CLASSES. */
static unsigned
class_of(size_t size)
{
	unsigned class = 0;

	while (class < POOL_CLASSES && (size_t)SMALLEST_CLASS << class < size)
		class ++;
	return class;
}

struct chunk *
chunk_new(struct nbd_pool *p, size_t size)
{
	unsigned class = class_of(size);
	struct chunk *c = NULL;

	if (p != NULL && class < POOL_CLASSES) {
		size = (size_t)SMALLEST_CLASS << class;
		c = p->chunks[class];
	}
	if (c != NULL) {
		p->chunks[class] = c->next;
		p->chunk_bytes -= size;
		SHOW(c->data, size);
	} else {
		c = alloc_aligned(sizeof(*c) + size);
		if (c == NULL)
			return NULL;
	}
	c->next = NULL;
	c->size = size;
	c->refs = 1;
	return c;
}

void
chunk_free(struct nbd_pool *p, struct chunk *c)
{
	unsigned class = class_of(c->size);

	assert(c->refs == 0);
	if (p == NULL || class == POOL_CLASSES ||
	    c->size != (size_t)SMALLEST_CLASS << class ||
	    p->chunk_bytes + c->size > MAX_CHUNK_BYTES) {
		free(c);
		return;
	}
	c->next = p->chunks[class];
	p->chunks[class] = c;
	p->chunk_bytes += c->size;
	HIDE(c->data, c->size);
}
