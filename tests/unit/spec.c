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

#include "ctl/ctl.h"

static struct config config;
static char err[512];

static int
setup(void **state)
{
	(void)state;
	return config_init(&config);
}

static int
teardown(void **state)
{
	(void)state;
	config_fini(&config);
	return 0;
}

static int
spec(const char *text)
{
	err[0] = '\0';
	return config_spec(&config, text, err, sizeof(err));
}

static void
takes_a_name_alone(void **state)
{
	(void)state;
	assert_int_equal(spec("nullb0"), 0);
	assert_int_equal(spec("with blank and \xc3\xbc"), 0);
	assert_int_equal(config.nr_devices, 2);
	assert_non_null(config_find(&config, "nullb0"));
}

static void
takes_attributes_behind_a_colon(void **state)
{
	struct disk_conf *c;

	(void)state; /* the example of DESIGN's command line */
	assert_int_equal(spec("nullb0:size=4G,memory_backed=1,irqmode=2,"
			      "completion_nsec=80000,queue/nomerges=2"),
	    0);
	c = &config_find(&config, "nullb0")->conf;
	assert_int_equal(c->size, UINT64_C(4) << 30);
	assert_true(c->memory_backed);
	assert_int_equal(c->irqmode, 2);
	assert_int_equal(c->completion_nsec, 80000);
	assert_int_equal(c->nomerges, 2);
}

static void
takes_a_comma_in_double_quotes(void **state)
{
	(void)state;
	assert_int_equal(
	    spec("a:description=\"one, \\\"two\\\": three\",size=1"), 0);
	assert_string_equal(
	    config_find(&config, "a")->conf.description, "one, \"two\": three");
	assert_int_equal(config_find(&config, "a")->conf.size, 1 << 20);
	assert_int_equal(spec("b:description=a:b=c"), 0);
	assert_string_equal(
	    config_find(&config, "b")->conf.description, "a:b=c");
}

static void
names_the_device_and_what_is_wrong(void **state)
{
	static const struct {
		const char *text, *error;
	} bad[] = {
		{ "", "a device without a name" },
		{ ":size=1", "a device without a name" },
		{ "irqmode=2",
		    "\"irqmode=2\": a setting, of which device? allowed: "
		    "NAME:ATTRIBUTE=VALUE, as in nullb0:irqmode=2" },
		{ "nr_devices=4",
		    "\"nr_devices=4\": a setting, of which device? allowed: "
		    "NAME:ATTRIBUTE=VALUE, as in nullb0:nr_devices=4" },
		{ "a:", "a: \"\": allowed: attribute=value" },
		{ "b:size=1,", "b: \"\": allowed: attribute=value" },
		{ "c:size=1,,ro=1", "c: \"\": allowed: attribute=value" },
		{ "d:ro", "d: \"ro\": allowed: attribute=value" },
		{ "e:page_order=10",
		    "e: page_order: \"10\": out of range, allowed: a number "
		    "from 0 to 9" },
		{ "f:description=\"open,size=1",
		    "f: description: a quote that is not closed, or not at the "
		    "end" },
		{ "e", "e: there is one already, from command line" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_not_equal(spec(bad[i].text), 0);
		assert_string_equal(err, bad[i].error);
	}
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(takes_a_name_alone),
		CASE(takes_attributes_behind_a_colon),
		CASE(takes_a_comma_in_double_quotes),
		CASE(names_the_device_and_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
