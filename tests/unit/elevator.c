/* SPDX-License-Identifier: MIT */
#include "pipe/harness.h"

static void
names_every_scheduler_and_explains_it(void **state)
{
	static const char *names[] = { "none", "mq-deadline", "kyber", "bfq" };
	unsigned i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		const struct elevator_type *e = elevator_find(names[i]);

		assert_non_null(e);
		assert_string_equal(e->name, names[i]);
		assert_true(strlen(e->help) > 10);
	}
	assert_true(elevator_find("none")->available);
	assert_null(elevator_find("cfq"));
	assert_null(elevator_find(""));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_every_scheduler_and_explains_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
