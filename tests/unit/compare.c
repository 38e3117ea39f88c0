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

static char err[512];

/* "a:size=5 b:ro=1": devices from "x.conf:1" on. */
static void
make(struct config *c, const char *devices)
{
	char *copy = strdup(devices), *rest = copy, *name, *item, *value;
	char where[32];
	struct device *d;
	unsigned line = 1;

	config_init(c);
	c->wants_none = true;
	while ((item = strsep(&rest, " ")) != NULL && *item != '\0') {
		name = strsep(&item, ":");
		snprintf(where, sizeof(where), "x.conf:%u", line++);
		d = config_add(c, name, where, err, sizeof(err));
		assert_non_null(d);
		while (item != NULL) {
			name = strsep(&item, ",");
			value = strchr(name, '=');
			*value++ = '\0';
			assert_int_equal(
			    device_set(d, name, value, err, sizeof(err)), 0);
		}
	}
	assert_int_equal(config_finish(c), 0);
	free(copy);
}

static void
assert_differences(
    const struct config *now, const struct config *next, const char *want)
{
	unsigned nr = 0;
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	for (const char *s = want; (s = strchr(s, '\n')) != NULL; s++)
		nr++;
	assert_int_equal(config_compare(now, next, out), nr);
	fclose(out);
	assert_string_equal(text, want);
	free(text);
}

static void
says_nothing_when_all_is_the_same(void **state)
{
	static const char devices[] =
	    "a:size=5,export_names=x,export_names=y b:description=text";
	struct config now, next;

	(void)state;
	make(&now, devices);
	make(&next, devices);
	/* said or left alone: the value counts */
	device_set(config_find(&next, "b"), "irqmode", "1", err, sizeof(err));
	assert_differences(&now, &next, "");
	config_fini(&now);
	config_fini(&next);
}

static void
tells_what_a_restart_would_change(void **state)
{
	struct config now, next;

	(void)state;
	make(&now,
	    "a:size=999936B,export_names=x,badblocks=+1-2,badblocks=+5-5 "
	    "b:description=old gone");
	make(&next, "new b:scheduler=mq-deadline,kernel=5.4 "
		    "a:size=5,export_names=x,export_names=y");
	config_set(&now, "listen", "/a", err, sizeof(err));
	config_set(&next, "listen", "/a", err, sizeof(err));
	config_set(&next, "listen", "/b", err, sizeof(err));
	config_set(&next, "workers", "2", err, sizeof(err));
	assert_differences(&now, &next,
	    "[nullbd]: listen: was \"/a\", is \"/a /b\": needs a restart\n"
	    "[nullbd]: workers: was \"0\", is \"2\": needs a restart\n"
	    "x.conf:3: a: size: was \"999936B\", is \"5\": needs a restart\n"
	    "x.conf:3: a: badblocks: was \"1 2, 5 1\", is \"\": needs a "
	    "restart\n"
	    "x.conf:3: a: export_names: was \"x\", is \"x y\": needs a "
	    "restart\n"
	    "x.conf:2: b: queue/scheduler: was \"none\", is \"mq-deadline\": "
	    "needs a restart\n"
	    "x.conf:2: b: kernel: was \"6.12\", is \"5.4\": needs a restart\n"
	    "x.conf:2: b: description: was \"old\", is \"\": needs a restart\n"
	    "gone: is gone, but stays until a restart\n");
	config_fini(&now);
	config_fini(&next);
}

static char *
checked(const struct config *now, const struct config *next, int want)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(config_check_new(now, next, out), want);
	fclose(out);
	return text;
}

/* Those that are gone from the files have their names nevertheless. */
static void
refuses_names_that_are_in_use(void **state)
{
	struct config now, next;
	char *said;

	(void)state;
	make(&now, "a:export_names=x b:export_names=y");
	make(&next, "a c:export_names=x,export_names=z x y d:export_names=b");
	said = checked(&now, &next, -EINVAL);
	assert_string_equal(said,
	    "x.conf:2: c: export_names: \"x\": is a name of a already\n"
	    "x.conf:3: x: is a name of a already\n"
	    "x.conf:4: y: is a name of b already\n"
	    "x.conf:5: d: export_names: \"b\": is a name of b already\n");
	free(said);
	config_fini(&next);
	make(&next, "c:export_names=z b:export_names=q");
	said = checked(&now, &next, 0);
	assert_string_equal(said, "");
	free(said);
	config_fini(&next);
	config_fini(&now);
}

static void
counts_those_that_stay(void **state)
{
	struct config now, next;
	char name[32], *said;

	(void)state;
	make(&now, "");
	make(&next, "");
	for (unsigned i = 0; i < CONFIG_MAX_DEVICES; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		config_add(
		    i < 4 ? &now : &next, name, "test", err, sizeof(err));
	}
	said = checked(&now, &next, 0);
	free(said);
	config_add(&now, "one", "test", err, sizeof(err));
	said = checked(&now, &next, -ENOSPC);
	assert_string_equal(said,
	    "4097 devices, with those that stay until a restart; allowed: at "
	    "most 4096\n");
	free(said);
	config_fini(&now);
	config_fini(&next);
}

static void
moves_a_device_over(void **state)
{
	struct config now, next;
	struct device *d;

	(void)state;
	make(&now, "a b");
	make(&next, "a new:size=7 c");
	d = config_find(&next, "new");
	config_adopt(&now, &next, d);
	assert_ptr_equal(config_find(&now, "new"), d);
	assert_null(config_find(&next, "new"));
	assert_int_equal(now.nr_devices, 3);
	assert_int_equal(next.nr_devices, 2);
	config_fini(&next);
	assert_int_equal(d->conf.size, 7 << 20);
	config_fini(&now);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(says_nothing_when_all_is_the_same),
		cmocka_unit_test(tells_what_a_restart_would_change),
		cmocka_unit_test(refuses_names_that_are_in_use),
		cmocka_unit_test(counts_those_that_stay),
		cmocka_unit_test(moves_a_device_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
