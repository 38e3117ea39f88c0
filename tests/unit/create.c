/* SPDX-License-Identifier: MIT */
/* Devices that are made at run time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "ctl/ctl.h"

static struct config c;
static struct device *made;
static char err[CTL_MAX_ERROR];

/* nullb0, also known as disk, and these defaults: "name=value" or NULL. */
static void
open_config(const char *defaults)
{
	assert_int_equal(config_init(&c), 0);
	assert_int_equal(
	    config_spec(&c, "nullb0:export_names=disk", err, sizeof(err)), 0);
	if (defaults != NULL)
		assert_int_equal(
		    device_set(&c.defaults, "size", defaults, err, sizeof(err)),
		    0);
	assert_int_equal(config_finish(&c), 0);
}

/* 'attributes' is JSON, or NULL. */
static int
create(const char *name, const char *attributes)
{
	json_t *json = NULL;
	int ret;

	if (attributes != NULL) {
		json = json_loads(attributes, 0, NULL);
		assert_non_null(json);
	}
	err[0] = '\0';
	made = NULL;
	ret = config_create(&c, name, json, &made, err, sizeof(err));
	json_decref(json);
	return ret;
}

/* It is refused so, and nothing has come of it. */
static void
refused(const char *name, const char *attributes, int error, const char *why)
{
	unsigned before = c.nr_devices;

	assert_int_equal(create(name, attributes), error);
	assert_string_equal(err, why);
	assert_int_equal(c.nr_devices, before);
	assert_null(made);
}

static void
makes_a_device_of_attributes_and_defaults(void **state)
{
	(void)state; /* 1.1: from the values of the module's parameters */
	open_config("8");
	assert_int_equal(create("nullb1", NULL), 0);
	assert_int_equal(made->conf.size, 8 << 20);
	assert_true(made->conf.power);
	assert_true(made->at_run_time);
	assert_ptr_equal(config_find(&c, "nullb1"), made);
	assert_int_equal(
	    create("nullb2", "{\"size\":\"16\",\"power\":\"0\"}"), 0);
	assert_int_equal(made->conf.size, 16 << 20);
	assert_false(made->conf.power);
	assert_int_equal(c.nr_devices, 3);
	config_drop(&c, made);
	assert_null(config_find(&c, "nullb2"));
	config_fini(&c);
}

static void
takes_several_values_of_what_may_be_repeated(void **state)
{
	(void)state;
	open_config(NULL);
	assert_int_equal(create("nullb1", "{\"export_names\":[\"a\",\"b\"],"
					  "\"badblocks\":[\"+1-2\",\"+8-9\"]}"),
	    0);
	assert_string_equal(made->conf.export_names[1], "b");
	assert_null(made->conf.export_names[2]);
	config_fini(&c);
}

static void
refuses_names_that_are_taken(void **state)
{
	(void)state;
	open_config(NULL);
	refused("nullb0", NULL, -EEXIST, "there is one already");
	refused("disk", NULL, -EEXIST, "is a name of nullb0 already");
	refused("nullb1", "{\"export_names\":\"nullb0\"}", -EEXIST,
	    "export_names: \"nullb0\": is a name of nullb0 already");
	refused("nullb1", "{\"export_names\":[\"x\",\"disk\"]}", -EEXIST,
	    "export_names: \"disk\": is a name of nullb0 already");
	config_fini(&c);
}

static void
refuses_names_that_no_device_may_have(void **state)
{
	(void)state;
	open_config(NULL);
	refused("", NULL, -EINVAL, "a device without a name");
	refused("12345678901234567890123456789012", NULL, -EINVAL,
	    "\"12345678901234567890123456789012\": a name of 32 bytes; "
	    "allowed: at most 31");
	assert_int_equal(create("a/b", NULL), -EINVAL);
	assert_int_equal(create("nullbd", NULL), -EINVAL);
	assert_int_equal(create("1234567890123456789012345678901", NULL), 0);
	config_fini(&c);
}

static void
refuses_attributes_and_makes_nothing(void **state)
{
	(void)state;
	open_config(NULL);
	assert_int_equal(create("nullb1", "{\"nope\":\"1\"}"), -ENOENT);
	assert_int_equal(create("nullb1", "{\"blocking\":\"x\"}"), -EINVAL);
	refused("nullb1", "{\"size\":1}", -EINVAL,
	    "size: allowed: a string, or an array of strings");
	refused("nullb1", "{\"size\":[\"1\",[]]}", -EINVAL,
	    "size: allowed: strings");
	assert_int_equal(c.nr_devices, 1);
	config_fini(&c);
}

static void
is_not_missed_in_files_that_never_had_it(void **state)
{
	struct config next;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	(void)state;
	open_config(NULL);
	assert_int_equal(create("nullb1", NULL), 0);
	assert_int_equal(config_again(&c, &next, out), 0);
	assert_null(config_find(&next, "nullb1"));
	assert_int_equal(config_compare(&c, &next, out), 0);
	config_fini(&next);
	fclose(out);
	assert_string_equal(text, "");
	free(text);
	config_fini(&c);
}

static void
a_snapshot_has_the_settings_but_what_is_its_own(void **state)
{
	struct disk of = {};

	(void)state;
	open_config(NULL);
	assert_int_equal(attr_init(disk_attrs, &of.set), 0);
	assert_int_equal(
	    attr_set(disk_attrs, &of.set, "size", "8", false, err, sizeof(err)),
	    0);
	for (unsigned i = 0; i < 4; i++) {
		static const char *const own[] = { "backing", "trace", "fill",
			"export_names" };

		assert_int_equal(attr_set(disk_attrs, &of.set, own[i], "mine",
				     false, err, sizeof(err)),
		    0);
	}
	assert_int_equal(
	    config_snapshot(&c, "nullb0", &of, &made, err, sizeof(err)),
	    -EEXIST);
	assert_int_equal(
	    config_snapshot(&c, "disk", &of, &made, err, sizeof(err)), -EEXIST);
	assert_string_equal(err, "is a name of nullb0 already");
	assert_int_equal(
	    config_snapshot(&c, "copy", &of, &made, err, sizeof(err)), 0);
	assert_ptr_equal(config_find(&c, "copy"), made);
	assert_int_equal(made->conf.size, 8 << 20);
	assert_null(made->conf.backing);
	assert_null(made->conf.trace);
	assert_null(made->conf.fill);
	assert_null(made->conf.export_names);
	attr_fini(disk_attrs, &of.set);
	config_fini(&c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(makes_a_device_of_attributes_and_defaults),
		cmocka_unit_test(takes_several_values_of_what_may_be_repeated),
		cmocka_unit_test(refuses_names_that_are_taken),
		cmocka_unit_test(refuses_names_that_no_device_may_have),
		cmocka_unit_test(refuses_attributes_and_makes_nothing),
		cmocka_unit_test(is_not_missed_in_files_that_never_had_it),
		cmocka_unit_test(
		    a_snapshot_has_the_settings_but_what_is_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
