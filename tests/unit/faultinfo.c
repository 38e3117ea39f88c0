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

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;

static int
setup(void **state)
{
	char err[256];

	(void)state;
	machine = machine_new(1, NULL, NULL);
	pool = page_pool_new(machine, 0);
	disk = disk_new("nullb0", machine, pool);
	if (disk_set(disk, "seed", "7", 1, err, sizeof(err)) != 0 ||
	    disk_power_on(disk, 1, err, sizeof(err)) != 0)
		return 1;
	for (int i = 0; i < 2; i++)
		if (disk_set(disk, "faults", "op=READ,times=3", 1, err,
			sizeof(err)) != 0)
			return 1;
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	disk_free(disk);
	page_pool_free(pool);
	machine_free(machine);
	return 0;
}

static char *
printed(json_t *json, int (*print)(json_t *json, FILE *out), int *ret)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	*ret = print(json, out);
	fclose(out);
	return text;
}

static void
packs_rules_and_prints_them(void **state)
{
	json_t *json = faults_pack(disk), *want;
	char *text;
	int ret;

	(void)state;
	want = json_loads("{\"seed\":7,\"rules\":["
			  "{\"id\":2,\"rule\":\"op=READ,times=3,status=IOERR\","
			  "\"hits\":0,\"seen\":0,\"hung\":0,\"spent\":false},"
			  "{\"id\":1,\"rule\":\"op=READ,times=3,status=IOERR\","
			  "\"hits\":0,\"seen\":0,\"hung\":0,\"spent\":false}]}",
	    0, NULL);
	assert_non_null(want);
	assert_true(json_equal(json, want));
	text = printed(json, faults_print, &ret);
	assert_int_equal(ret, 0);
	assert_string_equal(text,
	    "  ID       HITS       SEEN  HUNG SPENT RULE\n"
	    "   2          0          0     0    no "
	    "op=READ,times=3,status=IOERR\n"
	    "   1          0          0     0    no "
	    "op=READ,times=3,status=IOERR\n");
	free(text);
	json_decref(json);
	json_decref(want);
}

static void
packs_the_log_and_prints_it(void **state)
{
	json_t *json = faults_pack_log(disk);
	char *text;
	int ret;

	(void)state;
	text = printed(json, faults_print_log, &ret);
	assert_int_equal(ret, 0);
	assert_string_equal(text, "");
	assert_int_equal(json_integer_value(json_object_get(json, "seed")), 7);
	free(text);
	json_decref(json);
}

static void
prints_nothing_else(void **state)
{
	static const char *const other[] = { "{}", "[]", "{\"rules\":1}",
		"{\"rules\":[1]}", "{\"rules\":[{\"id\":1}]}" };
	char *text;
	int ret;

	(void)state;
	for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++) {
		json_t *json = json_loads(other[i], 0, NULL);

		text = printed(json, faults_print, &ret);
		assert_int_equal(ret, -EINVAL);
		free(text);
		text = printed(json, faults_print_log, &ret);
		assert_int_equal(ret, -EINVAL);
		free(text);
		json_decref(json);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packs_rules_and_prints_them),
		cmocka_unit_test(packs_the_log_and_prints_it),
		cmocka_unit_test(prints_nothing_else),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
