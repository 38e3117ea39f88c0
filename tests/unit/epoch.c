/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/epoch.h"

static void
what_was_unlinked_is_safe_when_nobody_is_inside(void **state)
{
	struct epoch e;
	uint64_t stamp;

	(void)state;
	assert_int_equal(epoch_init(&e, 2), 0);
	stamp = epoch_retire(&e);
	assert_true(epoch_safe(&e) > stamp);
	epoch_fini(&e);
}

static void
a_reader_inside_holds_back_what_was_unlinked_since(void **state)
{
	struct epoch e;
	uint64_t before, since;

	(void)state;
	assert_int_equal(epoch_init(&e, 2), 0);
	before = epoch_retire(&e);
	epoch_enter(&e, 1);
	since = epoch_retire(&e);

	assert_true(epoch_safe(&e) > before);
	assert_false(epoch_safe(&e) > since);
	epoch_leave(&e, 1);
	assert_true(epoch_safe(&e) > since);
	epoch_fini(&e);
}

static void
entering_again_is_as_good_as_having_left(void **state)
{
	struct epoch e;
	uint64_t stamp;

	(void)state;
	assert_int_equal(epoch_init(&e, 1), 0);
	epoch_enter(&e, 0);
	stamp = epoch_retire(&e);
	assert_false(epoch_safe(&e) > stamp);
	epoch_enter(&e, 0);
	assert_true(epoch_safe(&e) > stamp);
	epoch_fini(&e);
}

static void
a_reader_that_came_later_holds_nothing_back(void **state)
{
	struct epoch e;
	uint64_t stamp;

	(void)state;
	assert_int_equal(epoch_init(&e, 2), 0);
	epoch_enter(&e, 0);
	stamp = epoch_retire(&e);
	epoch_enter(&e, 1);
	epoch_leave(&e, 0);
	assert_true(epoch_safe(&e) > stamp);
	epoch_fini(&e);
}

/*
 * Readers follow a pointer that a writer keeps exchanging.  Whatever they
 * find must be alive, and stay so until their turn ends.
 */

#define NR_READERS 2u
#define NR_THINGS  4u
#define NR_SWAPS   500u

struct thing {
	_Atomic bool alive;
	bool retired;
	uint64_t stamp;
};

struct world {
	struct epoch e;
	_Atomic(struct thing *) current;
	_Atomic bool over;
	_Atomic unsigned nr_dead_seen;
	_Atomic unsigned next_reader;
};

static void *
read_things(void *arg)
{
	struct world *w = arg;
	unsigned id = w->next_reader++, nr_turns = 0, look;
	struct thing *t;

	while (!w->over) {
		epoch_enter(&w->e, id);
		t = w->current;
		for (look = 0; look < 20; look++) {
			if (!t->alive)
				w->nr_dead_seen++;
		}
		if (++nr_turns % 3 == 0)
			epoch_leave(&w->e, id);
	}
	epoch_leave(&w->e, id);
	return NULL;
}

static struct thing *
find_reusable(struct epoch *e, struct thing *things)
{
	uint64_t safe = epoch_safe(e);
	unsigned i;

	for (i = 0; i < NR_THINGS; i++) {
		if (things[i].retired && things[i].stamp < safe)
			return &things[i];
	}
	return NULL;
}

static void
nobody_sees_what_was_reused(void **state)
{
	struct thing things[NR_THINGS] = {}, *new, *old;
	pthread_t thread[NR_READERS];
	struct world w = {};
	unsigned i;

	(void)state;
	assert_int_equal(epoch_init(&w.e, NR_READERS), 0);
	for (i = 1; i < NR_THINGS; i++)
		things[i].retired = true;
	things[0].alive = true;
	w.current = &things[0];
	for (i = 0; i < NR_READERS; i++)
		pthread_create(&thread[i], NULL, read_things, &w);

	for (i = 0; i < NR_SWAPS;) {
		new = find_reusable(&w.e, things);
		if (new == NULL) {
			sched_yield();
			continue;
		}
		new->alive = false; /* whoever still looks would see it */
		sched_yield();
		new->retired = false;
		new->alive = true;
		old = atomic_exchange(&w.current, new);
		old->retired = true;
		old->stamp = epoch_retire(&w.e);
		i++;
	}
	w.over = true;
	for (i = 0; i < NR_READERS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(w.nr_dead_seen, 0);
	epoch_fini(&w.e);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    what_was_unlinked_is_safe_when_nobody_is_inside),
		cmocka_unit_test(
		    a_reader_inside_holds_back_what_was_unlinked_since),
		cmocka_unit_test(entering_again_is_as_good_as_having_left),
		cmocka_unit_test(a_reader_that_came_later_holds_nothing_back),
		cmocka_unit_test(nobody_sees_what_was_reused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
