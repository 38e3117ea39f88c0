/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

#define SECOND UINT64_C(1000000000)

static const struct client clients[] = {
	{ .id = 7,
	    .peer = "unix",
	    .pid = 12,
	    .uid = 1000,
	    .export = "nullb0",
	    .loop = 1,
	    .phase = "transmission",
	    .nr_requests = 32,
	    .since_ns = SECOND,
	    .feature = { "no_zeroes", "block_size" } },
	{ .id = UINT32_MAX,
	    .peer = "[::1]:65535",
	    .pid = CLIENT_NOBODY,
	    .uid = CLIENT_NOBODY,
	    .loop = CLIENT_NOBODY,
	    .phase = "handshake",
	    .since_ns = 3 * SECOND },
};

static void
packs_what_there_is_and_null_for_the_rest(void **state)
{
	json_t *list = clients_pack(clients, 2, 3 * SECOND + 500000000), *want;

	(void)state;
	want = json_loads(
	    "[{\"id\":7,\"peer\":\"unix\",\"pid\":12,\"uid\":1000,"
	    "\"export\":\"nullb0\",\"loop\":1,\"phase\":\"transmission\","
	    "\"requests\":32,\"age_ns\":2500000000,"
	    "\"features\":[\"no_zeroes\",\"block_size\"]},"
	    "{\"id\":4294967295,\"peer\":\"[::1]:65535\",\"pid\":null,"
	    "\"uid\":null,\"export\":null,\"loop\":null,"
	    "\"phase\":\"handshake\",\"requests\":0,\"age_ns\":500000000,"
	    "\"features\":[]}]",
	    0, NULL);
	assert_non_null(want);
	assert_true(json_equal(list, want));
	json_decref(list);
	json_decref(want);
	/* the clock of another cpu may be behind */
	list = clients_pack(clients, 1, 0);
	assert_int_equal(json_integer_value(json_object_get(
			     json_array_get(list, 0), "age_ns")),
	    0);
	json_decref(list);
}

/* As the control socket carries it. */
static void
prints_a_table(void **state)
{
	json_t *list = clients_pack(clients, 2, 3 * SECOND + 500000000);
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	(void)state;
	assert_int_equal(clients_print(list, out), 0);
	fclose(out);
	assert_string_equal(text,
	    "ID     PEER                         EXPORT          LOOP "
	    "PHASE        REQUESTS       AGE FEATURES\n"
	    "7      unix, pid 12, uid 1000       nullb0             1 "
	    "transmission       32       2.5 no_zeroes,block_size\n"
	    "4294967295 [::1]:65535                  -               main "
	    "handshake           0       0.5 -\n");
	free(text);
	json_decref(list);
}

static void
refuses_to_print_anything_else(void **state)
{
	static const char *const bad[] = { "{}", "[1]", "[{}]", "null",
		"[{\"id\":\"7\"}]" };
	FILE *out = fopen("/dev/null", "w");

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		json_t *json = json_loads(bad[i], JSON_DECODE_ANY, NULL);

		assert_non_null(json);
		assert_int_equal(clients_print(json, out), -EINVAL);
		json_decref(json);
	}
	assert_int_equal(clients_print(NULL, out), -EINVAL);
	fclose(out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packs_what_there_is_and_null_for_the_rest),
		cmocka_unit_test(prints_a_table),
		cmocka_unit_test(refuses_to_print_anything_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
