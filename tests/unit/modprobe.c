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

static char path[64]; /* of the file that a test writes */

static int
setup(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/tmp/nullbd-modprobe-%d.conf", getpid());
	return 0;
}

/* Read the text as a file; what was said, with "F" for its path. */
static char *
read_text(struct config *c, const char *text, int want)
{
	FILE *f = fopen(path, "w"), *errors;
	char *said, *at;
	size_t n;

	fputs(text, f);
	fclose(f);
	errors = open_memstream(&said, &n);
	assert_int_equal(config_init(c), 0);
	if (config_modprobe(c, path, errors) != want) {
		fclose(errors);
		fail_msg("%s", said);
	}
	fclose(errors);
	unlink(path);
	while ((at = strstr(said, path)) != NULL) {
		*at = 'F';
		memmove(
		    at + 1, at + strlen(path), strlen(at + strlen(path)) + 1);
	}
	return said;
}

static void
makes_the_devices_that_modprobe_makes(void **state)
{
	struct config c;
	struct device *d;
	char *said = read_text(&c,
	    "# null_blk for the lab\n"
	    "alias foo null_blk\n"
	    "options loop max_loop=8\n"
	    "options null_blk nr_devices=2 gb=0x4 \\\n"
	    "	bs=4096\n"
	    "options null-blk memory-backed completion_nsec=\"80000\" "
	    "no_sched=2 "
	    "discard=Y submit_queues=010\n",
	    0);

	(void)state;
	assert_string_equal(said, "");
	assert_int_equal(c.nr_devices, 2);
	d = STAILQ_FIRST(&c.devices);
	assert_string_equal(d->name, "nullb0");
	assert_int_equal(d->conf.size, UINT64_C(4) << 30);
	assert_int_equal(d->conf.blocksize, 4096);
	assert_true(d->conf.memory_backed);
	assert_true(d->conf.discard);
	assert_true(d->conf.no_sched);
	assert_int_equal(d->conf.completion_nsec, 80000);
	assert_int_equal(d->conf.submit_queues, 8);
	d = STAILQ_NEXT(d, link);
	assert_string_equal(d->name, "nullb1");
	assert_int_equal(d->conf.blocksize, 4096);
	free(said);
	config_fini(&c);
}

static void
makes_one_device_without_options_and_none_when_told(void **state)
{
	struct config c;

	(void)state;
	free(read_text(&c, "", 0));
	assert_int_equal(c.nr_devices, 1);
	config_fini(&c);
	free(read_text(&c, "options null_blk nr_devices=0", 0));
	config_finish(&c);
	assert_int_equal(c.nr_devices, 0);
	config_fini(&c);
}

static void
refuses_what_the_module_refuses(void **state)
{
	struct config c;
	char *said = read_text(&c,
	    "options null_blk irqmode=3\n"
	    "options null_blk queue_mode=3\n"
	    "options null_blk \\\n"
	    "  memory_backed=maybe\n"
	    "options null_blk size=4 gb\n"
	    "options null_blk gb=5000000000 hw_queue_depth=-1 nr_devices=-1\n"
	    "options\n",
	    -EINVAL);

	(void)state;
	assert_string_equal(said,
	    "F:1: null_blk: '3' invalid for parameter 'irqmode' (EINVAL)\n"
	    "F:2: null_blk: '3' invalid for parameter 'queue_mode' (EINVAL)\n"
	    "F:3: null_blk: 'maybe' invalid for parameter 'memory_backed' "
	    "(EINVAL)\n"
	    "F:5: null_blk: unknown parameter 'size'\n"
	    "F:5: null_blk: '' invalid for parameter 'gb' (EINVAL)\n"
	    "F:6: null_blk: '5000000000' invalid for parameter 'gb' (ERANGE)\n"
	    "F:6: hw_queue_depth: \"-1\": allowed: a number\n"
	    "F:6: null_blk: '-1' invalid for parameter 'nr_devices' (EINVAL)\n"
	    "F:7: options of which module?\n");
	assert_int_equal(c.nr_devices, 0);
	free(said);
	config_fini(&c);
}

static void
clamps_bs_to_a_page_and_says_so(void **state)
{
	struct config c;
	char *said = read_text(&c, "options null_blk bs=8192\n", 0);

	(void)state;
	assert_string_equal(
	    said, "F:1: note: bs: 8192: more than a page; 4096 taken\n");
	assert_int_equal(STAILQ_FIRST(&c.devices)->conf.blocksize, 4096);
	free(said);
	config_fini(&c);
}

static void
takes_every_parameter_that_there_is(void **state)
{
	struct config c;
	char *said;

	(void)state;
	said = read_text(&c,
	    "options null_blk shared_tags=0 home_node=-1 poll_queues=1 "
	    "mbps=0\n",
	    0);
	assert_string_equal(said, "");
	free(said);
	config_fini(&c);
	said = read_text(&c, "options null_blk timeout=1,50,0 \n", -EINVAL);
	assert_non_null(strstr(said, "F:1: timeout: \"1,50,0\": allowed: "));
	free(said);
	config_fini(&c);
	free(read_text(&c, "options null_blk timeout=1,50,0,-1 requeue=\n", 0));
	config_fini(&c);
	said = read_text(&c,
	    "options null_blk gb=1 zoned zone_size=4 zone_capacity=3 "
	    "zone_nr_conv=2 zone_max_open=3 zone_max_active=4 zone_full=1 "
	    "zone_append_max_sectors=8\n",
	    0);
	assert_string_equal(said, "");
	assert_true(STAILQ_FIRST(&c.devices)->conf.zoned);
	assert_int_equal(STAILQ_FIRST(&c.devices)->conf.zone_capacity, 3 << 20);
	free(said);
	config_fini(&c);
}

static void
takes_a_node_only_if_it_is_there(void **state)
{
	struct config c;
	char *said;

	(void)state; /* 1.2: else it is an error message, and -1 */
	said = read_text(&c, "options null_blk home_node=-1\n", 0);
	assert_string_equal(said, "");
	assert_int_equal(STAILQ_FIRST(&c.devices)->conf.home_node, UINT32_MAX);
	free(said);
	config_fini(&c);
	said = read_text(&c, "options null_blk home_node=0\n", 0);
	assert_int_equal(STAILQ_FIRST(&c.devices)->conf.home_node, 0);
	free(said);
	config_fini(&c);
	said = read_text(&c, "options null_blk home_node=3\n", 0);
	assert_string_equal(
	    said, "F:1: note: home_node: 3: there is no such node; -1 taken\n");
	assert_int_equal(STAILQ_FIRST(&c.devices)->conf.home_node, UINT32_MAX);
	free(said);
	config_fini(&c);
}

static void
refuses_names_that_are_taken_and_too_many(void **state)
{
	struct config c;
	char *said;

	(void)state;
	said = read_text(&c, "options null_blk nr_devices=4097\n", -EINVAL);
	assert_non_null(strstr(said, "at most 4096 devices"));
	free(said);
	config_fini(&c);
}

/* Try to read what is there at the path; what was said. */
static char *
read_path(const char *at)
{
	struct config c;
	char *said;
	size_t n;
	FILE *errors = open_memstream(&said, &n);

	assert_int_equal(config_init(&c), 0);
	assert_true(config_modprobe(&c, at, errors) < 0);
	assert_int_equal(c.nr_devices, 0);
	fclose(errors);
	config_fini(&c);
	return said;
}

static void
makes_no_devices_of_a_file_it_cannot_read(void **state)
{
	static const struct {
		const char *path, *said;
	} at[] = {
		{ "/nowhere/at.all", "No such file or directory\n" },
		{ "/tmp", "cannot be read: Is a directory\n" },
		{ "/proc/self/mem", "cannot be read: Input/output error\n" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		char *said = read_path(at[i].path);

		assert_memory_equal(said, at[i].path, strlen(at[i].path));
		assert_string_equal(said + strlen(at[i].path) + 2, at[i].said);
		free(said);
	}
}

static void
gives_up_on_a_line_without_end(void **state)
{
	static char zeros[5000];
	char *said = read_path("/dev/zero");
	FILE *f;

	(void)state;
	assert_string_equal(
	    said, "/dev/zero:1: a line longer than 16384 bytes\n");
	free(said);

	f = fopen(path, "w");
	assert_int_equal(fwrite(zeros, 1, sizeof(zeros), f), sizeof(zeros));
	fclose(f);
	said = read_path(path);
	unlink(path);
	assert_non_null(strstr(said, ":1: a byte 0 in the line\n"));
	free(said);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(makes_the_devices_that_modprobe_makes),
		cmocka_unit_test(
		    makes_one_device_without_options_and_none_when_told),
		cmocka_unit_test(refuses_what_the_module_refuses),
		cmocka_unit_test(clamps_bs_to_a_page_and_says_so),
		cmocka_unit_test(takes_every_parameter_that_there_is),
		cmocka_unit_test(takes_a_node_only_if_it_is_there),
		cmocka_unit_test(refuses_names_that_are_taken_and_too_many),
		cmocka_unit_test(makes_no_devices_of_a_file_it_cannot_read),
		cmocka_unit_test(gives_up_on_a_line_without_end),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
