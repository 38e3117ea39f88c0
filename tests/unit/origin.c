/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl.h"

static char err[512], path[] = "/tmp/nullbd-test-XXXXXX";

static int
setup(void **state)
{
	(void)state;
	strcpy(path + strlen(path) - 6, "XXXXXX");
	close(mkstemp(path));
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

static void
write_file(const char *text)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	fclose(f);
}

/* Read again: what is said of it. */
static char *
again(const struct config *c, struct config *out, int want)
{
	char *text;
	size_t len;
	FILE *said = open_memstream(&text, &len);

	assert_int_equal(config_again(c, out, said), want);
	fclose(said);
	return text;
}

static void
makes_the_same_again_when_nothing_has_changed(void **state)
{
	struct config c, out;
	char *said;

	(void)state;
	write_file("[nullbd]\nlisten = /a\n[defaults]\nsize = 5\n[a]\n[b]\n");
	config_init(&c);
	config_set(&c, "listen", "/first", err, sizeof(err));
	config_remember(&c, ORIGIN_SETTING, "listen", "/first");
	assert_int_equal(config_ini(&c, path, stderr), 0);
	assert_int_equal(config_spec(&c, "c:size=7,ro=1", err, sizeof(err)), 0);
	config_set(&c, "workers", "3", err, sizeof(err));
	config_remember(&c, ORIGIN_SETTING, "workers", "3");
	assert_int_equal(config_finish(&c), 0);
	said = again(&c, &out, 0);
	assert_string_equal(said, "");
	free(said);
	assert_int_equal(out.nr_devices, 3);
	assert_string_equal(out.daemon.listen[0], "/first");
	assert_string_equal(out.daemon.listen[1], "/a");
	assert_null(out.daemon.listen[2]);
	assert_int_equal(out.daemon.workers, 3);
	assert_int_equal(config_find(&out, "a")->conf.size, 5 << 20);
	assert_int_equal(config_find(&out, "c")->conf.size, 7 << 20);
	assert_true(config_find(&out, "c")->conf.ro);
	/* it can be made again of this one, too */
	config_fini(&c);
	said = again(&out, &c, 0);
	assert_int_equal(c.nr_devices, 3);
	free(said);
	config_fini(&out);
	config_fini(&c);
}

static void
takes_what_a_file_says_by_now(void **state)
{
	struct config c, out;
	char *said;

	(void)state;
	write_file("options null_blk nr_devices=1\n");
	config_init(&c);
	assert_int_equal(config_modprobe(&c, path, stderr), 0);
	config_finish(&c);
	assert_int_equal(c.nr_devices, 1);
	write_file("options null_blk nr_devices=3 bs=4096\n");
	said = again(&c, &out, 0);
	assert_int_equal(out.nr_devices, 3);
	assert_int_equal(config_find(&out, "nullb0")->conf.blocksize, 4096);
	free(said);
	config_fini(&out);
	config_fini(&c);
}

/* All of the faults, and nothing that must be freed. */
static void
reports_every_fault_of_every_step(void **state)
{
	struct config c, out;
	char *said, want[512];

	(void)state;
	write_file("[a]\n");
	config_init(&c);
	config_ini(&c, path, stderr);
	config_spec(&c, "b", err, sizeof(err));
	config_finish(&c);
	write_file("[a]\nsize = big\n[b]\ncolour = red\n");
	said = again(&c, &out, -EINVAL);
	snprintf(want, sizeof(want),
	    "%s:4: colour: no such attribute (nullbctl help lists them)\n"
	    "b: there is one already, from %s:3\n",
	    path, path);
	assert_non_null(strstr(said, ":2: size: \"big\": "));
	assert_non_null(strstr(said, want));
	free(said);
	unlink(path);
	said = again(&c, &out, -EINVAL);
	snprintf(want, sizeof(want), "%s: No such file or directory\n", path);
	assert_string_equal(said, want);
	free(said);
	config_fini(&c);
}

static void
knows_whether_there_are_files(void **state)
{
	struct config c;

	(void)state;
	config_init(&c);
	config_spec(&c, "a", err, sizeof(err));
	config_remember(&c, ORIGIN_SETTING, "workers", "1");
	assert_false(config_has_files(&c));
	config_ini(&c, path, stderr);
	assert_true(config_has_files(&c));
	config_forget(&c);
	assert_false(config_has_files(&c));
	config_modprobe(&c, path, stderr);
	assert_true(config_has_files(&c));
	config_fini(&c);
}

#define CASE(function) \
	cmocka_unit_test_setup_teardown(function, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(makes_the_same_again_when_nothing_has_changed),
		CASE(takes_what_a_file_says_by_now),
		CASE(reports_every_fault_of_every_step),
		CASE(knows_whether_there_are_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
