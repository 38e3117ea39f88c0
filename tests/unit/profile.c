/* SPDX-License-Identifier: MIT */
#include "pipe/harness.h"

static void
the_table_says_what_section_10_says(void **state)
{
	static const struct {
		const char *name;
		bool multipage;
		unsigned plug_max, plug_multi;
		bool scan_all;
		unsigned aio_min, fields;
		bool prio, pbs, rq_merges;
	} want[] = {
		{ "4.14", false, 16, 16, true, 1, 11, false, false, false },
		{ "5.4", true, 16, 16, true, 3, 15, true, true, false },
		{ "6.1", true, 32, 64, false, 3, 17, true, true, true },
		{ "6.12", true, 32, 64, false, 3, 17, true, true, true },
	};
	unsigned i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(want); i++) {
		const struct profile *p = profile_find(want[i].name);

		assert_non_null(p);
		assert_int_equal(p->multipage, want[i].multipage);
		assert_int_equal(p->plug_max, want[i].plug_max);
		assert_int_equal(p->plug_max_multi, want[i].plug_multi);
		assert_int_equal(p->plug_scan_all, want[i].scan_all);
		assert_int_equal(p->aio_plug_min, want[i].aio_min);
		assert_int_equal(p->stat_fields, want[i].fields);
		assert_int_equal(p->ioprio_must_match, want[i].prio);
		assert_int_equal(p->split_to_physical_block, want[i].pbs);
		assert_int_equal(p->request_merges_count, want[i].rq_merges);
		assert_true(1000000000 % p->hz == 0);
	}
	assert_null(profiles[ARRAY_SIZE(want)].name);
}

static void
knows_no_other_name(void **state)
{
	(void)state;
	assert_null(profile_find(""));
	assert_null(profile_find("6"));
	assert_null(profile_find("6.13"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_says_what_section_10_says),
		cmocka_unit_test(knows_no_other_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
