/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/nearest.h"

static const char *
nearest_of(const char *given, const char *const *names)
{
	struct nearest n = { .given = given };

	for (; *names != NULL; names++)
		nearest_try(&n, *names);
	return n.name;
}

static const char *const attributes[] = { "size", "memory_backed",
	"memory_limit", "blocksize", "hw_queue_depth", "irqmode", "op", NULL };

static void
finds_what_was_meant(void **state)
{
	static const char *const known[][2] = {
		{ "memory_backd", "memory_backed" },
		{ "memroy_limit", "memory_limit" },
		{ "memory-backed", "memory_backed" },
		{ "Memory_Backed", "memory_backed" },
		{ "bloksize", "blocksize" },
		{ "block_size", "blocksize" },
		{ "irq_mode", "irqmode" },
		{ "sise", "size" },
		{ "opp", "op" },
		{ "queue_depth", "hw_queue_depth" },
		{ "memory", "memory_backed" },
		{ "blocksizes", "blocksize" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		assert_string_equal(
		    nearest_of(known[i][0], attributes), known[i][1]);
}

static void
of_what_is_far_off_it_says_nothing(void **state)
{
	static const char *const far[] = { "", "o", "colour", "nope", "sz",
		"xxxx_backed", "depthhw_queue_" };

	(void)state;
	for (size_t i = 0; i < sizeof(far) / sizeof(*far); i++)
		assert_null(nearest_of(far[i], attributes));
}

static void
no_length_does_harm(void **state)
{
	char name[100];
	struct nearest n = { .given = name };

	(void)state;
	for (size_t len = 0; len < sizeof(name); len++) {
		memset(name, 'x', len);
		name[len] = '\0';
		n.name = NULL;
		nearest_try(&n, name);
		nearest_try(&n, "size");
		if (len >= 1 && len <= 48)
			assert_ptr_equal(n.name, name);
		if (len > 48)
			assert_null(n.name);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_what_was_meant),
		cmocka_unit_test(of_what_is_far_off_it_says_nothing),
		cmocka_unit_test(no_length_does_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
