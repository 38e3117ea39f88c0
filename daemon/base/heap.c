/* SPDX-License-Identifier: MIT */
#include "base/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define ARITY 4u

void
heap_init(struct heap *h)
{
	*h = (struct heap){ 0 };
}

void
heap_fini(struct heap *h)
{
	free(h->entry);
	*h = (struct heap){ 0 };
}

int
heap_reserve(struct heap *h, size_t nr)
{
	struct heap_entry *entry;
	size_t max = h->max > 0 ? h->max : 64;

	if (nr <= h->max)
		return 0;
	while (max < nr)
		max *= 2;
	entry = reallocarray(h->entry, max, sizeof(*entry));
	if (entry == NULL)
		return -ENOMEM;
	h->entry = entry;
	h->max = max;
	return 0;
}

static bool
before(const struct heap_entry *a, const struct heap_entry *b)
{
	return a->key != b->key ? a->key < b->key : a->seq < b->seq;
}

static void
put(struct heap *h, size_t i, struct heap_entry e)
{
	h->entry[i] = e;
	e.node->place = i + 1;
}

static void
sift_up(struct heap *h, size_t i, struct heap_entry e)
{
	while (i > 0) {
		size_t parent = (i - 1) / ARITY;

		if (!before(&e, &h->entry[parent]))
			break;
		put(h, i, h->entry[parent]);
		i = parent;
	}
	put(h, i, e);
}

static void
sift_down(struct heap *h, size_t i, struct heap_entry e)
{
	for (;;) {
		size_t first = i * ARITY + 1, least = first, c;

		if (first >= h->nr)
			break;
		for (c = first + 1; c < first + ARITY && c < h->nr; c++)
			if (before(&h->entry[c], &h->entry[least]))
				least = c;
		if (!before(&h->entry[least], &e))
			break;
		put(h, i, h->entry[least]);
		i = least;
	}
	put(h, i, e);
}

int
heap_push(struct heap *h, struct heap_node *n, uint64_t key)
{
	struct heap_entry e = { .key = key, .seq = h->seq, .node = n };
	int err;

	assert(n->place == 0);
	err = heap_reserve(h, h->nr + 1);
	if (err != 0)
		return err;
	h->seq++;
	sift_up(h, h->nr++, e);
	return 0;
}

void
heap_remove(struct heap *h, struct heap_node *n)
{
	struct heap_entry last;
	size_t i;

	if (n->place == 0)
		return;
	i = n->place - 1;
	assert(i < h->nr);
	assert(h->entry[i].node == n);
	n->place = 0;
	last = h->entry[--h->nr];
	if (last.node == n)
		return;
	if (i > 0 && before(&last, &h->entry[(i - 1) / ARITY]))
		sift_up(h, i, last);
	else
		sift_down(h, i, last);
}
