/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"

static void
fill(struct buckets *b)
{
	b->upto = calloc(3, sizeof(*b->upto));
	b->count = calloc(3, sizeof(*b->count));
	b->nr = 3;
}

static void
fill_run(struct run *r)
{
	for (unsigned op = 0; op < NR_RUN_OPS; op++)
		fill(&r->clat_ns[op]);
	r->iops.at = calloc(2, sizeof(double));
	r->iops.value = calloc(2, sizeof(double));
	r->iops.nr = 2;
	fill(&r->sectors);
	fill(&r->segments);
}

static void
a_run_ends_empty_and_may_end_twice(void **state)
{
	struct run r = { .round = 3 };

	(void)state;
	fill_run(&r);
	run_fini(&r);
	assert_null(r.clat_ns[RUN_TRIM].upto);
	assert_int_equal(r.iops.nr, 0);
	assert_null(r.segments.count);
	run_fini(&r);
}

static void
notes_are_kept_in_their_order(void **state)
{
	struct comparison c = {};

	(void)state;
	assert_int_equal(
	    comparison_note(&c, "%s became %s", "libaio", "nbd"), 0);
	for (int i = 1; i < 100; i++)
		assert_int_equal(comparison_note(&c, "note %d", i), 0);
	assert_int_equal(c.nr_notes, 100);
	assert_string_equal(c.notes[0], "libaio became nbd");
	assert_string_equal(c.notes[99], "note 99");
	comparison_fini(&c);
}

/* What is left over here, the sanitizer finds. */
static void
a_comparison_ends_with_all_it_holds(void **state)
{
	struct comparison c = {
		.label = { strdup("a"), strdup("b") },
		.config = { strdup("[a]"), strdup("[b]") },
		.job_name = strdup("job"),
		.job = strdup("[job]"),
		.date = strdup("2026-12-01"),
		.machine = strdup("Linux"),
		.versions = strdup("0.1"),
		.run = calloc(2, sizeof(struct run)),
		.nr_runs = 2,
		.heat = { calloc(1, sizeof(struct heat)), NULL },
	};

	(void)state;
	fill_run(&c.run[0]);
	fill_run(&c.run[1]);
	assert_int_equal(comparison_note(&c, "a note"), 0);
	assert_int_equal(figures_add(&c.figures, SIDE_BASE, "iops", "",
			     BETTER_HIGHER, true, 1),
	    0);
	comparison_fini(&c);
	assert_null(c.label[SIDE_OTHER]);
	assert_null(c.notes);
	assert_null(c.run);
	assert_int_equal(c.figures.nr, 0);
	comparison_fini(&c);
}

static void
a_comparison_that_did_not_begin_ends(void **state)
{
	struct comparison c = {};

	(void)state;
	comparison_fini(&c);
	assert_int_equal(c.nr_runs, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_ends_empty_and_may_end_twice),
		cmocka_unit_test(notes_are_kept_in_their_order),
		cmocka_unit_test(a_comparison_ends_with_all_it_holds),
		cmocka_unit_test(a_comparison_that_did_not_begin_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
