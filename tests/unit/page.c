/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dev/dev.h"
#include "host.h"

static bool
is_zero(const char *page)
{
	unsigned i;

	for (i = 0; i < PAGE_SIZE; i++) {
		if (page[i] != 0)
			return false;
	}
	return true;
}

/* Retire one that was in use. */
static void
retire(struct page_pool *p, struct cpu *cpu, void *page)
{
	*page_meta(page) |= 1;
	page_uncharge(p);
	page_retire(p, cpu, &page, 1);
}

static void
a_zeroed_page_is_zero_whatever_was_in_it(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 0);
	char *page[300];
	unsigned round, i;

	(void)state;
	for (round = 0; round < 3; round++) {
		turn(m->cpu);
		for (i = 0; i < 300; i++) {
			page[i] = page_alloc(p, m->cpu, PAGE_ZEROED);
			assert_true(is_zero(page[i]));
			assert_int_equal(*page_meta(page[i]), 0);
			memset(page[i], 0xff, PAGE_SIZE);
			*page_meta(page[i]) = 0xffffffff;
		}
		for (i = 0; i < 300; i++) {
			if (i % 2 == 0)
				page_free(p, m->cpu, page[i]);
			else
				retire(p, m->cpu, page[i]);
		}
		rest(p, m->cpu);
	}
	page_pool_free(p);
	machine_free(m);
}

static void
pages_that_are_taken_together_lie_together(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 0);
	char *page, *last = NULL;
	unsigned i, nr_joined = 0;

	(void)state;
	for (i = 0; i < 5000; i++) {
		page = page_alloc(p, m->cpu, 0);
		assert_int_equal((uintptr_t)page % PAGE_SIZE, 0);
		nr_joined += page - last == PAGE_SIZE;
		last = page;
		retire(p, m->cpu, page);
	}
	assert_true(nr_joined > 4900);
	page_pool_free(p);
	machine_free(m);
}

static void
counts_every_page_until_it_is_given_up(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 1 << 30);
	void *a, *b;

	(void)state;
	assert_int_equal(page_pool_limit(p), 1 << 30);
	assert_int_equal(page_pool_used(p), 0);
	turn(m->cpu);
	a = page_alloc(p, m->cpu, 0);
	b = page_alloc(p, m->cpu, PAGE_ZEROED);
	assert_int_equal(page_pool_used(p), 2 * PAGE_SIZE);
	page_free(p, m->cpu, a);
	assert_int_equal(page_pool_used(p), PAGE_SIZE);
	retire(p, m->cpu, b);
	assert_int_equal(page_pool_used(p), 0);
	rest(p, m->cpu);
	assert_int_equal(page_pool_used(p), 0);
	page_pool_free(p);
	machine_free(m);
}

static void
refuses_pages_beyond_the_limit_until_one_is_back(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 10 * PAGE_SIZE + 1);
	void *page[10], *more;
	unsigned i;

	(void)state;
	turn(m->cpu);
	for (i = 0; i < 10; i++)
		assert_non_null(page[i] = page_alloc(p, m->cpu, 0));
	assert_null(page_alloc(p, m->cpu, 0));
	assert_int_equal(page_pool_used(p), 10 * PAGE_SIZE);

	page_free(p, m->cpu, page[0]);
	assert_non_null(page[0] = page_alloc(p, m->cpu, 0));
	assert_null(page_alloc(p, m->cpu, 0));

	/* retired: this very turn may look at it, and yet have another */
	retire(p, m->cpu, page[1]);
	assert_non_null(more = page_alloc(p, m->cpu, 0));
	assert_ptr_not_equal(more, page[1]);
	page[1] = more;
	assert_null(page_alloc(p, m->cpu, 0));
	assert_int_equal(page_pool_used(p), 10 * PAGE_SIZE);

	assert_non_null(more = page_alloc(p, m->cpu, PAGE_EXEMPT));
	assert_int_equal(page_pool_used(p), 11 * PAGE_SIZE);
	page_free(p, m->cpu, more);
	for (i = 0; i < 10; i++)
		page_free(p, m->cpu, page[i]);
	assert_int_equal(page_pool_used(p), 0);
	page_pool_free(p);
	machine_free(m);
}

static void
a_retired_page_is_not_used_while_somebody_may_look(void **state)
{
	struct machine *m = host_new(2);
	struct page_pool *p = page_pool_new(m, 0);
	char *page[600]; /* of two slabs, which the pool keeps */
	unsigned i;

	(void)state;
	turn(&m->cpu[0]);
	turn(&m->cpu[1]);
	for (i = 0; i < 600; i++) {
		turn(&m->cpu[0]);
		page[i] = page_alloc(p, &m->cpu[0], 0);
		assert_int_equal(*page_meta(page[i]), 0);
		*page_meta(page[i]) = 77;
		retire(p, &m->cpu[0], page[i]);
	}
	rest(p, &m->cpu[0]);
	assert_int_equal(page_pool_used(p), 0);
	for (i = 0; i < 600; i++)
		assert_int_equal(*page_meta(page[i]), 77);
	rest(p, &m->cpu[1]); /* what the other left behind, too */
	for (i = 0; i < 600; i++)
		assert_int_not_equal(*page_meta(page[i]), 77);
	page_pool_free(p);
	machine_free(m);
}

static void
free_slabs_go_back_to_the_system(void **state)
{
	struct page_pool *p;
	struct machine *m;
	unsigned nr = (128u << 20) / PAGE_SIZE, i;
	void **page;
	uint64_t before, full, after;

	(void)state;
	if (SANITIZED)
		skip();
	m = host_new(1);
	p = page_pool_new(m, 0);
	page = calloc(nr, sizeof(*page));
	assert_non_null(page);
	before = resident();
	turn(m->cpu);
	for (i = 0; i < nr; i++) {
		page[i] = page_alloc(p, m->cpu, 0);
		memset(page[i], 1, PAGE_SIZE);
	}
	full = resident();
	assert_true(full - before > 120u << 20);
	for (i = 0; i < nr; i++)
		retire(p, m->cpu, page[i]);
	rest(p, m->cpu);
	after = resident();
	assert_true(after < before + (16u << 20));
	free(page);
	page_pool_free(p);
	machine_free(m);
}

static void
holes_of_a_slab_go_back_to_the_system(void **state)
{
	struct page_pool *p;
	struct machine *m;
	unsigned nr = (128u << 20) / PAGE_SIZE, i;
	void **page;
	uint64_t full, after;

	(void)state;
	if (SANITIZED)
		skip();
	m = host_new(1);
	p = page_pool_new(m, 0);
	page = calloc(nr, sizeof(*page));
	assert_non_null(page);
	turn(m->cpu);
	for (i = 0; i < nr; i++) {
		page[i] = page_alloc(p, m->cpu, 0);
		memset(page[i], 1, PAGE_SIZE);
	}
	full = resident();
	for (i = 0; i < nr; i++) {
		if (i / 16 % 2 == 0)
			retire(p, m->cpu, page[i]);
	}
	rest(p, m->cpu);
	after = resident();
	/* of 64: a cpu has 4, the pool 4, and a slab some that it keeps */
	assert_true(full - after > 40u << 20);

	/* and what was given back is zero, not what it was */
	for (i = 0; i < nr; i++) {
		if (i / 16 % 2 == 0) {
			page[i] = page_alloc(p, m->cpu, PAGE_ZEROED);
			assert_true(is_zero(page[i]));
		}
		page_free(p, m->cpu, page[i]);
	}
	assert_int_equal(page_pool_used(p), 0);
	free(page);
	page_pool_free(p);
	machine_free(m);
}

static void
lent_pages_do_not_count_until_they_are_charged(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 10 * PAGE_SIZE);
	void *page[20];
	unsigned i;

	(void)state;
	turn(m->cpu);
	assert_int_equal(page_lend(p, m->cpu, page, 20), 20);
	for (i = 1; i < 20; i++) /* for one iovec */
		assert_ptr_equal(page[i], (char *)page[i - 1] + PAGE_SIZE);
	assert_int_equal(page_pool_used(p), 0);

	for (i = 0; i < 10; i++)
		assert_true(page_charge(p, 0));
	assert_false(page_charge(p, 0));
	assert_int_equal(page_pool_used(p), 10 * PAGE_SIZE);
	assert_true(page_charge(p, PAGE_EXEMPT));
	assert_int_equal(page_pool_used(p), 11 * PAGE_SIZE);
	page_uncharge(p);
	assert_false(page_charge(p, 0));
	for (i = 0; i < 10; i++)
		page_uncharge(p);

	page_return(p, m->cpu, page, 20);
	assert_int_equal(page_pool_used(p), 0);
	page_pool_free(p);
	machine_free(m);
}

static void
what_was_not_kept_of_lent_pages_comes_back(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 0);
	void *page[8], *again[8], *kept[2];
	unsigned i;

	(void)state;
	turn(m->cpu);
	assert_int_equal(page_lend(p, m->cpu, page, 8), 8);
	for (i = 0; i < 8; i++)
		memset(page[i], 0xee, PAGE_SIZE);
	assert_true(page_charge(p, 0) && page_charge(p, 0));
	kept[0] = page[3];
	kept[1] = page[6];
	page[3] = page[6] = NULL;
	page_return(p, m->cpu, page, 8);
	assert_int_equal(page_pool_used(p), 2 * PAGE_SIZE);

	assert_int_equal(page_lend(p, m->cpu, again, 6), 6);
	for (i = 0; i < 6; i++) /* in the same order */
		assert_ptr_equal(again[i], page[i + (i >= 3) + (i >= 5)]);
	page_return(p, m->cpu, again, 6);
	for (i = 0; i < 100; i++) /* what was received is nobody's data */
		assert_true(is_zero(page_alloc(p, m->cpu, PAGE_ZEROED)));
	for (i = 0; i < 100; i++)
		page_uncharge(p);

	for (i = 0; i < 2; i++)
		page_free(p, m->cpu, kept[i]);
	assert_int_equal(page_pool_used(p), 0);
	page_pool_free(p);
	machine_free(m);
}

/* More in a turn than a cpu can remember, and nothing is lost. */
static void
pages_retired_in_a_single_turn_all_come_back(void **state)
{
	enum {
		NR = 20000
	};
	struct page_pool *p;
	struct machine *m;
	uint64_t before = 0;
	unsigned i, round;
	void **page;

	(void)state;
	if (SANITIZED)
		skip();
	m = host_new(2);
	p = page_pool_new(m, 0);
	page = calloc(NR, sizeof(*page));
	assert_non_null(page);
	for (round = 0; round < 20; round++) {
		turn(&m->cpu[0]);
		turn(&m->cpu[1]);
		for (i = 0; i < NR; i++) {
			page[i] = page_alloc(p, &m->cpu[round % 2], 0);
			assert_int_equal(*page_meta(page[i]), 0);
			memset(page[i], 1, PAGE_SIZE);
			*page_meta(page[i]) = 77;
		}
		for (i = 0; i < NR; i++)
			page_uncharge(p);
		for (i = 0; i < NR; i += 100)
			page_retire(p, &m->cpu[round % 3 != 0], page + i, 100);
		assert_int_equal(page_pool_used(p), 0);
		for (i = 0; i < NR; i++)
			assert_int_equal(*page_meta(page[i]), 77);
		rest(p, &m->cpu[0]);
		rest(p, &m->cpu[1]);
		if (round == 1)
			before = resident();
	}
	assert_true(resident() < before + (16u << 20));
	free(page);
	page_pool_free(p);
	machine_free(m);
}

/* In a process of its own, which may have no more memory than it has. */
static int
exhaust(struct page_pool *p, struct cpu *cpu)
{
	struct rlimit lim = { .rlim_cur = 256u << 20, .rlim_max = 256u << 20 };
	uint64_t nr = 0;
	void *page, *last = NULL;

	if (setrlimit(RLIMIT_AS, &lim) != 0)
		return 1;
	while ((page = page_alloc(p, cpu, 0)) != NULL) {
		if (++nr > lim.rlim_cur / PAGE_SIZE)
			return 2;
		last = page;
	}
	if (nr == 0 || page_pool_used(p) != nr * PAGE_SIZE)
		return 3;
	page_free(p, cpu, last);
	if (page_alloc(p, cpu, PAGE_ZEROED) == NULL)
		return 4;
	return 0;
}

static void
without_memory_there_is_no_page_and_no_harm(void **state)
{
	struct page_pool *p;
	struct machine *m;
	int status = -1;
	pid_t pid;

	(void)state;
	if (SANITIZED)
		skip();
	m = host_new(1);
	p = page_pool_new(m, 0);
	pid = fork();
	if (pid == 0)
		_exit(exhaust(p, m->cpu));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	page_pool_free(p);
	machine_free(m);
}

/*
 * Each thread marks its pages as its own; a page in two hands would show.
 * Pages go round, so that one thread gives back what another took.
 */

#define NR_THREADS 4u
#define NR_SLOTS   512u
#define LEFT       0x100u /* the meta word of a page in a slot */
#define NR_ROUNDS  (SANITIZED ? 20000u : 100000u)

struct shared {
	struct machine *m;
	struct page_pool *p;
	_Atomic(void *) slot[NR_SLOTS];
	_Atomic unsigned next, nr_errors;
};

static void *
juggle(void *arg)
{
	struct shared *sh = arg;
	struct cpu *cpu = &sh->m->cpu[sh->next++];
	uint32_t mark = cpu->id + 1, rnd = mark;
	unsigned i;
	char *page;

	for (i = 0; i < NR_ROUNDS; i++) {
		if (i % 8 == 0)
			turn(cpu);
		if (i % 1000 == 0)
			rest(sh->p, cpu);
		rnd = rnd * 1664525 + 1013904223;
		page = page_alloc(sh->p, cpu, rnd & 1 << 20 ? PAGE_ZEROED : 0);
		if ((rnd & 1 << 20) && (page[0] != 0 || page[4095] != 0))
			sh->nr_errors++;
		if (atomic_fetch_add(page_meta(page), mark) != 0)
			sh->nr_errors++;
		memset(page, (int)mark, 8);
		page[4095] = 1;
		if (atomic_exchange(page_meta(page), LEFT) != mark ||
		    page[0] != (char)mark)
			sh->nr_errors++;
		page = atomic_exchange(&sh->slot[rnd >> 23], page);
		if (page != NULL && (rnd & 1 << 21))
			page_free(sh->p, cpu, page);
		else if (page != NULL)
			retire(sh->p, cpu, page);
	}
	rest(sh->p, cpu);
	return NULL;
}

static void
a_page_is_in_one_hand_only(void **state)
{
	static struct shared sh;
	pthread_t thread[NR_THREADS];
	unsigned i;

	(void)state;
	sh.m = host_new(NR_THREADS);
	sh.p = page_pool_new(sh.m, 0);
	for (i = 0; i < NR_THREADS; i++)
		pthread_create(&thread[i], NULL, juggle, &sh);
	for (i = 0; i < NR_THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(sh.nr_errors, 0);
	for (i = 0; i < NR_SLOTS; i++) {
		if (sh.slot[i] != NULL)
			page_free(sh.p, sh.m->cpu, sh.slot[i]);
	}
	rest(sh.p, sh.m->cpu);
	assert_int_equal(page_pool_used(sh.p), 0);
	page_pool_free(sh.p);
	machine_free(sh.m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_zeroed_page_is_zero_whatever_was_in_it),
		cmocka_unit_test(pages_that_are_taken_together_lie_together),
		cmocka_unit_test(counts_every_page_until_it_is_given_up),
		cmocka_unit_test(
		    refuses_pages_beyond_the_limit_until_one_is_back),
		cmocka_unit_test(
		    a_retired_page_is_not_used_while_somebody_may_look),
		cmocka_unit_test(free_slabs_go_back_to_the_system),
		cmocka_unit_test(holes_of_a_slab_go_back_to_the_system),
		cmocka_unit_test(
		    lent_pages_do_not_count_until_they_are_charged),
		cmocka_unit_test(what_was_not_kept_of_lent_pages_comes_back),
		cmocka_unit_test(pages_retired_in_a_single_turn_all_come_back),
		cmocka_unit_test(without_memory_there_is_no_page_and_no_harm),
		cmocka_unit_test(a_page_is_in_one_hand_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
