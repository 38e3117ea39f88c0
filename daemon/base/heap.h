/* SPDX-License-Identifier: MIT */
/*
 * A heap of deadlines, intrusive: the node lives in what waits and knows its
 * own place, so that it can be taken out from the middle.  Four children a
 * node and the keys in the array itself: a large heap touches few cache lines.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
	size_t place; /* index in the heap + 1; 0 when in none */
};

struct heap_entry {
	uint64_t key;
	uint64_t seq; /* equal keys leave in the order they came */
	struct heap_node *node;
};

struct heap {
	struct heap_entry *entry;
	size_t nr;
	size_t max;
	uint64_t seq;
};

void heap_init(struct heap *h);
void heap_fini(struct heap *h);

/*
 * Room for `nr` nodes in all, so that heap_push() cannot fail.  0 or -ENOMEM.
 */
int heap_reserve(struct heap *h, size_t nr);

/* Add a node that is in no heap, under `key`.  0 or -ENOMEM. */
int heap_push(struct heap *h, struct heap_node *n, uint64_t key);

static inline bool
heap_empty(const struct heap *h)
{
	return h->nr == 0;
}

/* The smallest key; the heap is not empty. */
static inline uint64_t
heap_first_key(const struct heap *h)
{
	return h->entry[0].key;
}

/* The node under the smallest key, which stays; the heap is not empty. */
static inline struct heap_node *
heap_first(const struct heap *h)
{
	return h->entry[0].node;
}

/* Take a node out, wherever it stands; one that is in no heap is left alone. */
void heap_remove(struct heap *h, struct heap_node *n);

#endif
