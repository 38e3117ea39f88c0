/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "ctl/ctl.h"

static void
leaves_the_machine_some_of_its_memory(void **state)
{
	uint64_t total =
	    (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	(void)state;
	assert_true(memory_limit_auto() > 0);
	assert_true(memory_limit_auto() <= total - total / 8);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaves_the_machine_some_of_its_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
