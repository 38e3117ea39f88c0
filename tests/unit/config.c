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

static char err[512];

static void
makes_nullb0_when_nothing_is_asked_for(void **state)
{
	struct config c;

	(void)state; /* as modprobe null_blk does */
	assert_int_equal(config_init(&c), 0);
	assert_int_equal(config_finish(&c), 0);
	assert_int_equal(c.nr_devices, 1);
	assert_string_equal(STAILQ_FIRST(&c.devices)->name, "nullb0");
	config_fini(&c);

	config_init(&c);
	c.wants_none = true;
	assert_int_equal(config_finish(&c), 0);
	assert_int_equal(c.nr_devices, 0);
	config_fini(&c);
}

static void
gives_each_device_the_defaults_that_it_does_not_override(void **state)
{
	struct device *a, *b;
	struct config c;

	(void)state;
	config_init(&c);
	a = config_add(&c, "a", "test", err, sizeof(err));
	device_set(a, "size", "5", err, sizeof(err));
	/* said later, and for all of them nevertheless */
	device_set(&c.defaults, "size", "7", err, sizeof(err));
	device_set(&c.defaults, "description", "text", err, sizeof(err));
	b = config_add(&c, "b", "test", err, sizeof(err));
	device_set(b, "description", "own", err, sizeof(err));
	assert_int_equal(config_finish(&c), 0);
	assert_int_equal(a->conf.size, 5 << 20);
	assert_int_equal(b->conf.size, 7 << 20);
	assert_string_equal(a->conf.description, "text");
	assert_string_equal(b->conf.description, "own");
	assert_int_equal(a->conf.index, 0);
	assert_int_equal(b->conf.index, 1);
	config_fini(&c);
}

static void
refuses_names_that_cannot_be(void **state)
{
	static const char *bad[] = { "", "a/b", "a]", ".", "..", " a", "a ",
		"a\nb", "\xff", "nullbd", "defaults",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	struct config c;

	(void)state;
	config_init(&c);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_null(config_add(&c, bad[i], "test", err, sizeof(err)));
	assert_string_equal(err,
	    "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": a name of 32 bytes; "
	    "allowed: at most 31");
	/* the kernel's longest (DISK_NAME_LEN), and one that is not ASCII */
	assert_non_null(config_add(
	    &c, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "test", err, sizeof(err)));
	assert_non_null(
	    config_add(&c, "gr\xc3\xbc\xc3\x9f", "test", err, sizeof(err)));
	assert_null(config_add(
	    &c, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "again", err, sizeof(err)));
	assert_string_equal(err,
	    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: there is one already, from test");
	config_fini(&c);
}

static void
bounds_the_number_of_devices(void **state)
{
	struct config c;
	char name[32];

	(void)state;
	config_init(&c);
	for (unsigned i = 0; i < CONFIG_MAX_DEVICES; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		assert_non_null(config_add(&c, name, "test", err, sizeof(err)));
	}
	assert_null(config_add(&c, "more", "test", err, sizeof(err)));
	config_fini(&c);
}

static char *
checked(const struct config *c, int want)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(config_check(c, 2, out), want);
	fclose(out);
	return text;
}

static void
reports_what_power_on_would_refuse_with_its_place(void **state)
{
	struct device *d;
	struct config c;
	char *text;

	(void)state;
	config_init(&c);
	d = config_add(&c, "a", "x.conf:3", err, sizeof(err));
	device_set(d, "blocksize", "1000", err, sizeof(err));
	config_add(&c, "b", "x.conf:7", err, sizeof(err));
	d = config_add(&c, "c", "x.conf:9", err, sizeof(err));
	device_set(d, "queue_mode", "1", err, sizeof(err));
	config_finish(&c);
	text = checked(&c, -EINVAL);
	assert_string_equal(text,
	    "x.conf:3: a: blocksize: 1000: allowed: a power of two from 512 to "
	    "4096\n"
	    "x.conf:9: c: queue_mode: 1: the legacy path is no longer "
	    "available; allowed: 0 (bio), 2 (mq)\n");
	free(text);
	config_fini(&c);
}

static void
refuses_names_that_two_devices_have(void **state)
{
	struct device *a, *b, *none;
	struct config c;
	char *text;

	(void)state;
	config_init(&c);
	a = config_add(&c, "a", "x.conf:1", err, sizeof(err));
	b = config_add(&c, "b", "x.conf:2", err, sizeof(err));
	device_set(a, "export_names", "first", err, sizeof(err));
	device_set(a, "export_names", "b", err, sizeof(err));
	device_set(b, "export_names", "second", err, sizeof(err));
	device_set(b, "export_names", "first", err, sizeof(err));
	device_set(b, "export_names", "second", err, sizeof(err));
	config_finish(&c);
	text = checked(&c, -EINVAL);
	assert_string_equal(text,
	    "x.conf:1: a: export_names: \"b\": is a name of b already\n"
	    "x.conf:2: b: export_names: \"first\": is a name of a already\n"
	    "x.conf:2: b: export_names: \"second\": is a name of b already\n");
	free(text);
	assert_ptr_equal(config_find_export(&c, "b"), a); /* the first */
	assert_ptr_equal(config_find_export(&c, "second"), b);
	none = config_find_export(&c, "third");
	assert_null(none);
	/* bytes that no text has */
	assert_int_equal(
	    device_set(a, "export_names", "\xff", err, sizeof(err)), -EINVAL);
	assert_int_equal(
	    device_set(a, "export_names", "", err, sizeof(err)), 0);
	assert_ptr_equal(config_find_export(&c, "first"), b);
	config_fini(&c);
}

static void
refuses_a_default_export_that_is_none(void **state)
{
	static const struct {
		const char *name, *said;
	} cases[] = {
		{ "a", "" },
		{ "alias", "" },
		{ "none", "" },
		{ "", "" },
		{ "nope",
		    "default_export: \"nope\": no such device; allowed: the "
		    "name of a device, none\n" },
		{ "off",
		    "default_export: \"off\": the power is off; allowed: the "
		    "name of a device, none\n" },
	};
	struct device *d;
	struct config c;
	char *text;

	(void)state;
	config_init(&c);
	d = config_add(&c, "a", "test", err, sizeof(err));
	device_set(d, "export_names", "alias", err, sizeof(err));
	d = config_add(&c, "off", "test", err, sizeof(err));
	device_set(d, "power", "0", err, sizeof(err));
	config_finish(&c);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		config_set(
		    &c, "default_export", cases[i].name, err, sizeof(err));
		text = checked(&c, *cases[i].said != '\0' ? -EINVAL : 0);
		assert_string_equal(text, cases[i].said);
		free(text);
	}
	config_fini(&c);
}

static void
knows_whether_a_place_was_asked_for(void **state)
{
	static const char *const settings[][2] = { { "listen", "/s" },
		{ "port", "10809" }, { "address", "::1" } };
	struct config c;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		config_init(&c);
		config_set(&c, "control", "/c", err, sizeof(err));
		assert_false(config_names_place(&c));
		config_set(
		    &c, settings[i][0], settings[i][1], err, sizeof(err));
		assert_true(config_names_place(&c));
		config_fini(&c);
	}
}

static char *
printed(const struct config *c)
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	config_print(c, 2, out);
	fclose(out);
	return text;
}

static void
prints_what_reads_back_as_the_same(void **state)
{
	static const char *descriptions[] = { "plain", "\"quoted\"",
		"a ; no comment", "back\\slash; \"", " blanks ",
		"; semicolon" };
	char path[] = "/tmp/nullbd-test-XXXXXX", name[32];
	struct config c, again;
	struct device *d;
	char *text, *text_again;
	int fd = mkstemp(path);

	(void)state;
	config_init(&c);
	config_set(&c, "listen", "/run/a.sock", err, sizeof(err));
	config_set(&c, "listen", "[::1]:10", err, sizeof(err));
	config_set(&c, "workers", "3", err, sizeof(err));
	config_set(&c, "memory_limit", "1G", err, sizeof(err));
	config_set(&c, "default_export", "alias 1;x", err, sizeof(err));
	for (size_t i = 0; i < sizeof(descriptions) / sizeof(char *); i++) {
		snprintf(name, sizeof(name), "disk %zu", i);
		d = config_add(&c, name, "test", err, sizeof(err));
		device_set(d, "description", descriptions[i], err, sizeof(err));
		snprintf(name, sizeof(name), "alias %zu;x", i);
		device_set(d, "export_names", name, err, sizeof(err));
		device_set(d, "size", "999936B", err, sizeof(err));
		device_set(d, "irqmode", "3", err, sizeof(err));
		device_set(d, "badblocks", "+100-999", err, sizeof(err));
		device_set(d, "badblocks", "-200-209", err, sizeof(err));
		device_set(d, "kernel", "5.4", err, sizeof(err));
		device_set(d, "multipage_bvec", "0", err, sizeof(err));
		/* as nobody asked: 255 sectors are no number of KiB */
		device_set(d, "max_sectors_kb", "0", err, sizeof(err));
	}
	assert_int_equal(config_finish(&c), 0);
	text = printed(&c);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);

	config_init(&again);
	assert_int_equal(config_ini(&again, path, stderr), 0);
	assert_int_equal(config_finish(&again), 0);
	text_again = printed(&again);
	assert_string_equal(text, text_again);
	/* in force: irqmode is clamped; what nobody asked for is a comment */
	assert_non_null(strstr(text, "\nirqmode = 2\n"));
	assert_non_null(strstr(text, "\n; queue/max_sectors_kb = 127\n"));
	/* what has become of it, not what was done */
	assert_non_null(
	    strstr(text, "\nbadblocks = +100-199\nbadblocks = +210-999\n"));
	d = STAILQ_FIRST(&again.devices);
	for (size_t i = 0; d != NULL; i++, d = STAILQ_NEXT(d, link)) {
		assert_string_equal(d->conf.description, descriptions[i]);
		assert_int_equal(d->conf.size, 999936);
		assert_int_equal(d->conf.max_sectors_kb, 0);
	}
	unlink(path);
	free(text);
	free(text_again);
	config_fini(&again);
	config_fini(&c);
}

static void
takes_quotes_away_only_where_they_are_whole(void **state)
{
	static const struct {
		const char *in, *out; /* out NULL: refused */
	} cases[] = {
		{ "plain \"x\"", "plain \"x\"" },
		{ "\"\"", "" },
		{ "\"a, b\"", "a, b" },
		{ "\"a \\\"b\\\" \\\\ \\;\"", "a \"b\" \\ ;" },
		{ "\"", NULL },
		{ "\"a", NULL },
		{ "\"a\\", NULL },
		{ "\"a\\\"", NULL },
		{ "\"a\"b", NULL },
	};
	char text[64];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		strcpy(text, cases[i].in);
		assert_int_equal(unquote(text), cases[i].out != NULL);
		if (cases[i].out != NULL)
			assert_string_equal(text, cases[i].out);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(makes_nullb0_when_nothing_is_asked_for),
		cmocka_unit_test(
		    gives_each_device_the_defaults_that_it_does_not_override),
		cmocka_unit_test(refuses_names_that_cannot_be),
		cmocka_unit_test(bounds_the_number_of_devices),
		cmocka_unit_test(
		    reports_what_power_on_would_refuse_with_its_place),
		cmocka_unit_test(refuses_names_that_two_devices_have),
		cmocka_unit_test(refuses_a_default_export_that_is_none),
		cmocka_unit_test(knows_whether_a_place_was_asked_for),
		cmocka_unit_test(prints_what_reads_back_as_the_same),
		cmocka_unit_test(takes_quotes_away_only_where_they_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
