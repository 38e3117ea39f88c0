/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/heap.h"

#define NR 5000u

struct item {
	struct heap_node node;
	uint64_t key;
	bool in;
};

static void
leaves_in_order_of_keys_and_of_arrival(void **state)
{
	static struct item item[NR];
	struct heap h;
	uint64_t last_key = 0;
	struct item *it, *last = NULL;
	unsigned i;

	(void)state;
	heap_init(&h);
	srand(1);
	for (i = 0; i < NR; i++) {
		item[i] = (struct item){ .key = (uint64_t)rand() % 100 };
		assert_int_equal(heap_push(&h, &item[i].node, item[i].key), 0);
	}
	for (i = 0; i < NR; i++) {
		assert_false(heap_empty(&h));
		it = (struct item *)heap_first(&h);
		assert_int_equal(heap_first_key(&h), it->key);
		assert_true(it->key >= last_key);
		if (last != NULL && last->key == it->key)
			assert_true(it > last);
		last = it;
		last_key = it->key;
		heap_remove(&h, &it->node);
		assert_int_equal(it->node.place, 0);
	}
	assert_true(heap_empty(&h));
	heap_fini(&h);
}

static void
gives_up_nodes_from_the_middle(void **state)
{
	static struct item item[NR];
	struct heap h;
	uint64_t last_key = 0;
	unsigned i, left = NR;

	(void)state;
	heap_init(&h);
	srand(2);
	for (i = 0; i < NR; i++) {
		item[i] = (struct item){ .key = (uint64_t)rand(), .in = true };
		assert_int_equal(heap_push(&h, &item[i].node, item[i].key), 0);
	}
	for (i = 0; i < NR; i += 3) {
		heap_remove(&h, &item[i].node);
		heap_remove(&h, &item[i].node); /* no harm */
		item[i].in = false;
		left--;
	}
	for (; left > 0; left--) {
		struct item *it = (struct item *)heap_first(&h);

		assert_true(it->in);
		assert_true(it->key >= last_key);
		last_key = it->key;
		it->in = false;
		heap_remove(&h, &it->node);
	}
	assert_true(heap_empty(&h));
	heap_fini(&h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaves_in_order_of_keys_and_of_arrival),
		cmocka_unit_test(gives_up_nodes_from_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
