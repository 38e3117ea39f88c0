/* SPDX-License-Identifier: MIT */
/* Requests: tags that are short, and where they end. */
#include "unit/holding.h"

static void
gives_a_bio_back_when_no_tag_is_free_and_takes_it_later(void **state)
{
	struct bio *bio;

	(void)state;
	open_holding(1, 1, "6.12");
	assert_int_equal(h_try_submit(&h, write_bio(0, 8)), 0);
	bio = write_bio(100, 8);
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_false(cpu_tag_freed(h.cpu));
	let_go(h.cpu, h.now);
	assert_true(cpu_tag_freed(h.cpu));
	assert_false(cpu_tag_freed(h.cpu));
	assert_int_equal(h_try_submit(&h, bio), 0);
	assert_int_equal(nr_held, 1);
	close_holding();
}

static unsigned woken;

static void
on_wake(void *arg, unsigned cpu)
{
	(void)arg;
	woken |= 1u << cpu;
}

static void
wakes_the_cpu_that_waits_for_a_tag_of_a_shared_hardware_queue(void **state)
{
	struct bio *bio;

	(void)state; /* DESIGN, Threads */
	open_holding(1, 2, "6.12");
	h.machine->wake = on_wake;
	woken = 0;
	assert_int_equal(h_try_submit(&h, write_bio(0, 8)), 0);
	bio = write_bio(100, 8);
	h.cpu = &h.machine->cpu[1];
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(woken, 0);
	let_go(&h.machine->cpu[0], h.now);
	assert_int_equal(woken, 2);
	assert_int_equal(h_try_submit(&h, bio), 0);
	close_holding();
}

static void
ends_a_request_on_the_cpu_that_submitted_it(void **state)
{
	(void)state; /* DESIGN, Threads: completion on the submitting CPU */
	open_holding(4, 2, "6.12");
	h.machine->wake = on_wake;
	woken = 0;
	assert_int_equal(h_try_submit(&h, write_bio(0, 8)), 0);
	let_go(&h.machine->cpu[1], h.now); /* the other one completes it */
	assert_int_equal(h.nr_ended, 0);
	assert_int_equal(woken, 1);
	cpu_run(&h.machine->cpu[1], h.now);
	assert_int_equal(h.nr_ended, 0);
	cpu_run(&h.machine->cpu[0], h.now);
	assert_int_equal(h.nr_ended, 1);
	close_holding();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    gives_a_bio_back_when_no_tag_is_free_and_takes_it_later),
		cmocka_unit_test(
		    wakes_the_cpu_that_waits_for_a_tag_of_a_shared_hardware_queue),
		cmocka_unit_test(ends_a_request_on_the_cpu_that_submitted_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
