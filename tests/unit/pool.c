/* SPDX-License-Identifier: MIT */
/* Memory that is used again. */
#include "client.h"

static void
test_reuses(void **state)
{
	struct nbd_pool *p = nbd_pool_new();
	struct chunk *c;
	void *obj;
	int kind;

	(void)state;
	for (kind = 0; kind < POOL_KINDS; kind++) {
		obj = pool_get(p, kind);
		assert_non_null(obj);
		assert_int_equal((uintptr_t)obj % 64, 0);
		pool_put(p, kind, obj);
		assert_ptr_equal(pool_get(p, kind), obj);
		pool_put(p, kind, obj);
	}
	c = chunk_new(p, NBD_CHUNK);
	assert_int_equal(c->size, NBD_CHUNK);
	assert_int_equal((uintptr_t)c->data % 64, 0);
	c->refs = 0;
	chunk_free(p, c);
	assert_ptr_equal(chunk_new(p, NBD_CHUNK - 1), c);
	c->refs = 0;
	chunk_free(p, c);
	nbd_pool_free(p);
	nbd_pool_free(NULL);
}

static void
test_sizes(void **state)
{
	struct nbd_pool *p = nbd_pool_new();
	struct chunk *c;
	size_t size;

	(void)state;
	for (size = 1; size <= NBD_MAX_PAYLOAD; size = 2 * size + size / 3) {
		c = chunk_new(p, size);
		assert_true(c->size >= size);
		assert_true(c->size < 2 * size || c->size == 128 << 10);
		memset(c->data, 'x', size < 1000000 ? c->size : 1);
		c->refs = 0;
		chunk_free(p, c);
	}
	nbd_pool_free(p);
}

static void
test_keeps_little(void **state)
{
	struct nbd_pool *p = nbd_pool_new();
	struct chunk *c[20];
	static void *obj[20000];
	unsigned i;

	(void)state;
	for (i = 0; i < 20; i++)
		c[i] = chunk_new(p, 8 << 20);
	for (i = 0; i < 20; i++) {
		c[i]->refs = 0;
		chunk_free(p, c[i]);
	}
	assert_true(p->chunk_bytes <= 32 << 20);
	for (i = 0; i < 20000; i++)
		obj[i] = pool_get(p, POOL_TABLE);
	for (i = 0; i < 20000; i++)
		pool_put(p, POOL_TABLE, obj[i]);
	assert_true(p->free[POOL_TABLE].nr * sizeof(struct table) <=
		    (4 << 20) + sizeof(struct table));
	nbd_pool_free(p);
}

static void
test_heap_when_there_is_none(void **state)
{
	struct chunk *c = chunk_new(NULL, 100);
	struct nbd_pool *p = nbd_pool_new();
	void *obj = pool_get(NULL, POOL_BLOCK);

	(void)state;
	assert_int_equal(c->size, 100);
	pool_put(p, POOL_BLOCK, obj); /* it may be taken over */
	c->refs = 0;
	chunk_free(p, c);
	pool_put(NULL, POOL_BLOCK, NULL);
	nbd_pool_free(p);
}

#define CASE(sentence, function)                     \
	{                                            \
		sentence, function, NULL, NULL, NULL \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("gives out what was given back last", test_reuses),
		CASE("makes chunks of the next power of two", test_sizes),
		CASE("keeps no more than its bound", test_keeps_little),
		CASE("leaves it to the heap where there is no pool",
		    test_heap_when_there_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
