/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "blk/internal.h"

static void
hands_out_each_tag_once(void **state)
{
	static const unsigned depths[] = { 1, 2, 63, 64, 65, 1000, 10240 };
	unsigned i, j;

	(void)state;
	for (i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
		struct tags *t = tags_new(depths[i]);
		char *seen = calloc(1, depths[i]);

		for (j = 0; j < depths[i]; j++) {
			int tag = tags_get(t);

			assert_in_range(tag, 0, depths[i] - 1);
			assert_int_equal(seen[tag], 0);
			seen[tag] = 1;
		}
		assert_int_equal(tags_get(t), -1);
		assert_int_equal(tags_in_use(t), depths[i]);
		tags_put(t, (int)depths[i] / 2);
		assert_int_equal(tags_get(t), depths[i] / 2);
		free(seen);
		tags_free(t);
	}
}

static void
keeps_to_the_limit_that_nr_requests_sets(void **state)
{
	struct tags *t = tags_new(128);
	unsigned i;

	(void)state;
	tags_limit(t, 70);
	for (i = 0; i < 70; i++)
		assert_in_range(tags_get(t), 0, 69);
	assert_int_equal(tags_get(t), -1);
	tags_limit(t, 128);
	assert_int_equal(tags_get(t), 70);
	tags_free(t);
}

static void
keeps_some_tags_for_others(void **state)
{
	struct tags *t = tags_new(128);
	unsigned i;

	(void)state; /* async_depth */
	for (i = 0; i < 5; i++)
		assert_in_range(tags_get_below(t, 5), 0, 4);
	assert_int_equal(tags_get_below(t, 5), -1);
	assert_int_equal(tags_get(t), 5);
	tags_free(t);
}

#define THREADS 4
#define ROUNDS  20000

static struct tags *shared;
static _Atomic int holder[100];

static void *
take_and_give(void *arg)
{
	int i, tag;

	(void)arg;
	for (i = 0; i < ROUNDS; i++) {
		while ((tag = tags_get(shared)) < 0)
			sched_yield();
		if (atomic_fetch_add(&holder[tag], 1) != 0)
			return "a tag had two holders";
		atomic_fetch_sub(&holder[tag], 1);
		tags_put(shared, tag);
	}
	return NULL;
}

static void
is_safe_between_threads(void **state)
{
	pthread_t thread[THREADS];
	void *fault;
	int i;

	(void)state;
	shared = tags_new(3);
	for (i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, take_and_give, NULL);
	for (i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &fault);
		assert_null(fault);
	}
	assert_int_equal(tags_in_use(shared), 0);
	tags_free(shared);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hands_out_each_tag_once),
		cmocka_unit_test(keeps_to_the_limit_that_nr_requests_sets),
		cmocka_unit_test(keeps_some_tags_for_others),
		cmocka_unit_test(is_safe_between_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
