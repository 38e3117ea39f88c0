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

#define NS UINT64_C(1796101234000005678)

static char *
printed(const char *line, int *ret)
{
	json_t *json = json_loads(line, 0, NULL);
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(json);
	*ret = event_print(json, out);
	fclose(out);
	json_decref(json);
	return text;
}

/* As a line of JSON, and for a person. */
static void
assert_event(const struct event *e, const char *line, const char *text)
{
	char *got = event_line(e), *shown;
	int ret;

	assert_string_equal(got, line);
	shown = printed(got, &ret);
	assert_int_equal(ret, 0);
	assert_string_equal(shown, text);
	free(got);
	free(shown);
}

static void
tells_of_each_kind(void **state)
{
	static const struct {
		struct event event;
		const char *line, *text;
	} cases[] = {
		{ { .kind = EVENT_CREATED, .device = "nullb0", .by = "sysfs" },
		    "\"created\",\"device\":\"nullb0\",\"by\":\"sysfs\"}",
		    "created nullb0 by=sysfs" },
		{ { .kind = EVENT_REMOVED, .device = "nullb0" },
		    "\"removed\",\"device\":\"nullb0\"}", "removed nullb0" },
		{ { .kind = EVENT_POWER, .device = "nullb0", .on = true },
		    "\"power\",\"device\":\"nullb0\",\"power\":true}",
		    "power nullb0 power=1" },
		{ { .kind = EVENT_POWER_CUT,
		      .device = "nullb0",
		      .cut = { .writes = 12, .lost = 7, .seed = 42 } },
		    "\"power_cut\",\"device\":\"nullb0\",\"writes\":12,"
		    "\"lost\":7,\"torn\":0,\"seed\":42}",
		    "power_cut nullb0 writes=12 lost=7 torn=0 seed=42" },
		{ { .kind = EVENT_SET,
		      .device = "nullb0",
		      .name = "size",
		      .text = "4G",
		      .by = "control" },
		    "\"set\",\"device\":\"nullb0\",\"attribute\":\"size\","
		    "\"value\":\"4G\",\"by\":\"control\"}",
		    "set nullb0 attribute=size value=4G by=control" },
		{ { .kind = EVENT_CONNECTED, .id = 7, .name = "unix" },
		    "\"connected\",\"client\":7,\"peer\":\"unix\"}",
		    "connected client=7 peer=unix" },
		{ { .kind = EVENT_NEGOTIATED,
		      .device = "nullb0",
		      .id = 7,
		      .name = "[::1]:80",
		      .text = "other name" },
		    "\"negotiated\",\"device\":\"nullb0\",\"client\":7,"
		    "\"peer\":\"[::1]:80\",\"export\":\"other name\"}",
		    "negotiated nullb0 client=7 peer=[::1]:80 "
		    "export=\"other name\"" },
		{ { .kind = EVENT_GONE, .id = 7, .name = "unix" },
		    "\"gone\",\"client\":7,\"peer\":\"unix\"}",
		    "gone client=7 peer=unix" },
		{ { .kind = EVENT_KICKED, .id = 7, .name = "unix" },
		    "\"kicked\",\"client\":7,\"peer\":\"unix\"}",
		    "kicked client=7 peer=unix" },
		{ { .kind = EVENT_FAULT,
		      .device = "nullb0",
		      .id = 3,
		      .op = "WRITE",
		      .sector = 2048,
		      .nr_sectors = 8,
		      .action = "error" },
		    "\"fault\",\"device\":\"nullb0\",\"id\":3,\"op\":\"WRITE\","
		    "\"sector\":2048,\"nr_sectors\":8,\"action\":\"error\"}",
		    "fault nullb0 id=3 op=WRITE sector=2048 nr_sectors=8 "
		    "action=error" },
		{ { .kind = EVENT_SHUTDOWN }, "\"shutdown\"}", "shutdown" },
		{ { .kind = EVENT_DROPPED, .id = 12 },
		    "\"dropped\",\"count\":12}", "dropped count=12" },
	};
	char line[512], text[512];

	(void)state;
	assert_int_equal(sizeof(cases) / sizeof(*cases), EVENT_NR);
	for (size_t i = 0; i < EVENT_NR; i++) {
		struct event e = cases[i].event;

		e.seq = i + 1;
		e.ns = NS;
		snprintf(line, sizeof(line),
		    "{\"seq\":%zu,\"time_ns\":1796101234000005678,\"event\":"
		    "%s\n",
		    i + 1, cases[i].line);
		snprintf(text, sizeof(text), "2026-12-01T05:00:34.000005Z %s\n",
		    cases[i].text);
		assert_event(&e, line, text);
	}
}

static void
clips_a_text_between_two_characters(void **state)
{
	char out[6];

	(void)state;
	event_text(out, sizeof(out), "abcde");
	assert_string_equal(out, "abcde");
	event_text(out, sizeof(out), "abcdef");
	assert_string_equal(out, "abcde");
	event_text(out, sizeof(out), "abcd\xc3\xa9");
	assert_string_equal(out, "abcd");
	event_text(out, sizeof(out), "abc\xc3\xa9x");
	assert_string_equal(out, "abc\xc3\xa9");
	event_text(out, sizeof(out), "\x80\x80\x80\x80\x80\x80\x80");
	assert_string_equal(out, "");
	event_text(out, sizeof(out), "");
	assert_string_equal(out, "");
}

/* sysfs takes any bytes; a terminal is not to be steered by them. */
static void
shows_what_is_no_text(void **state)
{
	struct event e = {
		.kind = EVENT_SET,
		.device = "nullb0",
		.name = "description",
		.text = "\x1b[2J\xff",
		.by = "sysfs",
		.seq = 1,
	};
	struct event empty = e;

	(void)state;
	assert_event(&e,
	    "{\"seq\":1,\"time_ns\":0,\"event\":\"set\",\"device\":\"nullb0\","
	    "\"attribute\":\"description\",\"value\":\"\\u001B[2J?\","
	    "\"by\":\"sysfs\"}\n",
	    "1970-01-01T00:00:00.000000Z set nullb0 attribute=description "
	    "value=\"\\u001B[2J?\" by=sysfs\n");
	empty.text[0] = '\0';
	assert_event(&empty,
	    "{\"seq\":1,\"time_ns\":0,\"event\":\"set\",\"device\":\"nullb0\","
	    "\"attribute\":\"description\",\"value\":\"\",\"by\":\"sysfs\"}\n",
	    "1970-01-01T00:00:00.000000Z set nullb0 attribute=description "
	    "value=\"\" by=sysfs\n");
}

static void
prints_nothing_else(void **state)
{
	static const char *const other[] = { "{}", "[]", "{\"seq\":1}",
		"{\"seq\":1,\"time_ns\":1,\"event\":1}",
		"{\"seq\":1,\"time_ns\":-1,\"event\":\"x\"}",
		"{\"seq\":\"1\",\"time_ns\":1,\"event\":\"x\"}" };
	char *text;
	int ret;

	(void)state;
	for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++) {
		text = printed(other[i], &ret);
		assert_int_equal(ret, -EINVAL);
		assert_string_equal(text, "");
		free(text);
	}
	/* what a later daemon may tell */
	text = printed("{\"seq\":1,\"time_ns\":1,\"event\":\"new\",\"x\":[1],"
		       "\"y\":2}",
	    &ret);
	assert_int_equal(ret, 0);
	assert_string_equal(text, "1970-01-01T00:00:00.000000Z new y=2\n");
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_of_each_kind),
		cmocka_unit_test(clips_a_text_between_two_characters),
		cmocka_unit_test(shows_what_is_no_text),
		cmocka_unit_test(prints_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
