/* SPDX-License-Identifier: MIT */
/* null_blk's directories of fault injection (1.9), file by file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ctl/ctl.h"

static struct inject inject;
static char out[80];

static unsigned
file_of(const char *name)
{
	unsigned i = 0;

	while (strcmp(inject_file(i), name) != 0)
		i++;
	return i;
}

static int
echo(const char *value, const char *name)
{
	return inject_write(&inject, file_of(name), value, out, sizeof(out));
}

static const char *
cat(const struct disk_conf *conf, unsigned i, const char *name)
{
	static char text[64];
	FILE *f = fmemopen(text, sizeof(text), "w");

	inject_show(&inject, i, file_of(name), conf, f);
	fclose(f);
	return text;
}

static void
every_directory_has_an_attribute_that_is_no_file(void **state)
{
	const struct attr *a;
	unsigned nr = 0;

	(void)state;
	for (; inject_directory(nr) != NULL; nr++) {
		a = attr_find(disk_attrs, inject_attribute(nr));
		assert_non_null(a);
		assert_false(disk_attr_is_file(a));
	}
	assert_int_equal(nr, NR_INJECTS);
}

static void
four_files_are_numbers_of_the_attribute(void **state)
{
	struct disk_conf conf;
	char err[256];

	(void)state;
	inject_init(&inject);
	assert_int_equal(echo("0x32\n", "probability"), 0);
	assert_string_equal(out, "probability=50");
	assert_int_equal(echo("-1", "times"), 0);
	assert_string_equal(out, "times=-1");
	assert_int_equal(echo("18446744073709551615", "interval"), 0);
	assert_string_equal(out, "interval=18446744073709551615");
	assert_int_equal(echo("--1", "space"), -EINVAL);
	assert_int_equal(echo("2147483648", "space"), -ERANGE);
	assert_int_equal(attr_init(disk_attrs, &conf), 0);
	assert_string_equal(cat(&conf, 2, "times"), "1\n");
	assert_int_equal(attr_set(disk_attrs, &conf, inject_attribute(2),
			     "1,2,3,4", false, err, sizeof(err)),
	    0);
	assert_string_equal(cat(&conf, 2, "interval"), "1\n");
	assert_string_equal(cat(&conf, 2, "probability"), "2\n");
	assert_string_equal(cat(&conf, 2, "space"), "3\n");
	assert_string_equal(cat(&conf, 2, "times"), "4\n");
	assert_string_equal(cat(&conf, 1, "times"), "1\n");
	attr_fini(disk_attrs, &conf);
}

static void
the_others_are_only_kept(void **state)
{
	(void)state;
	inject_init(&inject);
	assert_string_equal(cat(NULL, 0, "verbose"), "2\n");
	assert_string_equal(
	    cat(NULL, 0, "verbose_ratelimit_interval_ms"), "5000\n");
	assert_string_equal(cat(NULL, 0, "verbose_ratelimit_burst"), "10\n");
	assert_int_equal(echo("0\n", "verbose"), 0);
	assert_string_equal(out, "");
	assert_string_equal(cat(NULL, 0, "verbose"), "0\n");
	assert_int_equal(
	    echo("4294967296", "verbose_ratelimit_burst"), -ERANGE);
	assert_int_equal(echo("N\n", "task-filter"), 0);
	assert_int_equal(echo("Y\n", "task-filter"), -EOPNOTSUPP);
	assert_string_equal(cat(NULL, 0, "task-filter"), "0\n");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    every_directory_has_an_attribute_that_is_no_file),
		cmocka_unit_test(four_files_are_numbers_of_the_attribute),
		cmocka_unit_test(the_others_are_only_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
