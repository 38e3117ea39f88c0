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

#include "dev/dev.h"

static char err[512];

static int
set(struct disk_conf *c, const char *name, const char *value)
{
	err[0] = '\0';
	return attr_set(disk_attrs, c, name, value, false, err, sizeof(err));
}

static char *
get(const struct disk_conf *c, const char *name)
{
	static char text[256];
	const struct attr *a = attr_find(disk_attrs, name);
	FILE *out;

	assert_non_null(a);
	text[0] = '\0'; /* fmemopen() leaves what nothing is written to */
	out = fmemopen(text, sizeof(text), "w");
	attr_get(a, c, out);
	fclose(out);
	return text;
}

static void
every_row_has_a_help_line_a_default_and_a_name_of_its_own(void **state)
{
	char full[64];

	(void)state;
	for (const struct attr *a = disk_attrs; a->name != NULL; a++) {
		size_t len = strlen(a->help);

		assert_true(len > 5);
		assert_int_not_equal(a->help[len - 1], '.');
		assert_non_null(a->group);
		if (a->type != ATTR_SHOWN && a->type != ATTR_TEXT &&
		    a->type != ATTR_LIST && a->type != ATTR_OBJECT)
			assert_non_null(a->def);
		for (const struct attr_choice *c = a->choices;
		     c != NULL && c->name != NULL; c++)
			assert_true(strlen(c->help) > 5);
		snprintf(full, sizeof(full), "%s%s", attr_prefix(a), a->name);
		if (attr_find(disk_attrs, full) != a)
			fail_msg("%s: twice in the table", full);
		if (a->alias.name != NULL &&
		    attr_find(disk_attrs, a->alias.name) != a)
			fail_msg("%s: an alias taken", a->alias.name);
	}
}

static void
what_get_prints_set_takes(void **state)
{
	struct disk_conf c, again;
	struct disk_conf objects;
	char value[256], full[64];

	(void)state;
	memset(&c, 0, sizeof(c)); /* the padding, too */
	memset(&again, 0, sizeof(again));
	assert_int_equal(attr_init(disk_attrs, &c), 0);
	assert_int_equal(attr_init(disk_attrs, &again), 0);
	for (const struct attr *a = disk_attrs; a->name != NULL; a++) {
		/* an empty list is not what setting adds to it */
		if (a->type == ATTR_SHOWN || a->type == ATTR_LIST ||
		    a->type == ATTR_OBJECT)
			continue;
		snprintf(full, sizeof(full), "%s%s", attr_prefix(a), a->name);
		if (a->def != NULL)
			assert_int_equal(set(&c, full, a->def), 0);
		strcpy(value, get(&c, full));
		if (a->def != NULL)
			assert_string_equal(value, a->def);
		assert_int_equal(set(&again, full, value), 0);
		assert_string_equal(get(&again, full), value);
	}
	objects = again;
	for (const struct attr *a = disk_attrs; a->name != NULL; a++)
		if (a->type == ATTR_OBJECT)
			memcpy((char *)&again + a->offset,
			    (char *)&c + a->offset, sizeof(void *));
	assert_memory_equal(&c, &again, sizeof(c));
	again = objects;
	attr_fini(disk_attrs, &again);
	attr_fini(disk_attrs, &c);
}

static void
every_choice_is_taken_by_name_and_by_number(void **state)
{
	struct disk_conf c;
	char number[32], full[64];

	(void)state;
	attr_init(disk_attrs, &c);
	for (const struct attr *a = disk_attrs; a->name != NULL; a++)
		for (const struct attr_choice *ch = a->choices;
		     ch != NULL && ch->name != NULL; ch++) {
			char by_name[64];

			snprintf(full, sizeof(full), "%s%s", attr_prefix(a),
			    a->name);
			assert_int_equal(set(&c, full, ch->name), 0);
			strcpy(by_name, get(&c, full));
			snprintf(number, sizeof(number), "%llu",
			    (unsigned long long)ch->value);
			assert_int_equal(set(&c, full, number), 0);
			assert_string_equal(get(&c, full), by_name);
		}
	assert_int_equal(set(&c, "irqmode", "timer"), 0);
	assert_string_equal(get(&c, "irqmode"), "2"); /* as null_blk prints */
	attr_fini(disk_attrs, &c);
}

/* The next line of a recording that is no comment, cut at its tabs. */
static bool
next_row(FILE *f, char *line, int size, char *field[4])
{
	do {
		if (fgets(line, size, f) == NULL)
			return false;
	} while (*line == '#');
	line[strcspn(line, "\n")] = '\0';
	for (int i = 0; i < 4; i++)
		field[i] = line != NULL ? strsep(&line, "\t") : NULL;
	return true;
}

/*
 * Where we differ from null_blk on purpose: sizes and byte counts may bear a
 * suffix, and a size beyond 2^63 - 512 bytes is refused when it is set.
 */
static bool
departs(const char *name, const char *value)
{
	bool mib = strcmp(name, "size") == 0 ||
		   strcmp(name, "zone_size") == 0 ||
		   strcmp(name, "zone_capacity") == 0;
	bool bytes = mib || strcmp(name, "blocksize") == 0 ||
		     strcmp(name, "zone_append_max_sectors") == 0;

	if (bytes && strcmp(value, "1k") == 0)
		return true;
	return mib && strlen(value) >= 19;
}

/* "5\n" in the recording is a newline. */
static void
unescape(char *s)
{
	char *to = s;

	for (; *s != '\0'; s++)
		if (s[0] == '\\' && s[1] == 'n') {
			*to++ = '\n';
			s++;
		} else {
			*to++ = *s;
		}
	*to = '\0';
}

static void
values_are_parsed_as_null_blk_parses_them(void **state)
{
	FILE *f = fopen("tests/data/attr-writes.tsv", "r");
	char line[256], *field[4], before[64];
	struct disk_conf c;
	int ret, rows = 0;

	(void)state;
	assert_non_null(f);
	attr_init(disk_attrs, &c);
	while (next_row(f, line, sizeof(line), field)) {
		if (departs(field[0], field[1]))
			continue;
		unescape(field[1]);
		strcpy(before, get(&c, field[0]));
		ret = set(&c, field[0], field[1]);
		if (strcmp(ret == 0 ? "OK" : strerrorname_np(-ret), field[2]) !=
		    0)
			fail_msg(
			    "%s=%s: %d (%s)", field[0], field[1], ret, err);
		assert_string_equal(
		    get(&c, field[0]), ret == 0 ? field[3] : before);
		rows++;
	}
	fclose(f);
	assert_true(rows > 400);
	assert_int_equal(set(&c, "size", "8796093022208"), -ERANGE);
	assert_int_equal(set(&c, "size", "1k"), 0);
	assert_int_equal(c.size, 1024);
	attr_fini(disk_attrs, &c);
}

static void
defaults_are_those_of_null_blk(void **state)
{
	FILE *f = fopen("tests/data/defaults.tsv", "r");
	char line[256], *field[4];
	struct disk_conf c;
	int rows = 0;

	(void)state;
	assert_non_null(f);
	attr_init(disk_attrs, &c);
	while (next_row(f, line, sizeof(line), field)) {
		if (strcmp(field[1], "-") != 0)
			continue;
		if (strcmp(get(&c, field[2]), field[3]) != 0)
			fail_msg("%s: %s", field[2], field[3]);
		rows++;
	}
	fclose(f);
	assert_true(rows >= 29);
	attr_fini(disk_attrs, &c);
}

static void
takes_module_names_and_the_prefix_of_the_queue(void **state)
{
	struct disk_conf c;

	(void)state;
	attr_init(disk_attrs, &c);
	assert_int_equal(set(&c, "gb", "4"), 0);
	assert_string_equal(get(&c, "size"), "4096");
	assert_int_equal(set(&c, "bs", "4096"), 0);
	assert_int_equal(c.blocksize, 4096);
	assert_int_equal(set(&c, "queue/nomerges", "2"), 0);
	assert_int_equal(c.nomerges, 2);
	assert_int_equal(set(&c, "nomerges", "0"), 0);
	assert_int_equal(set(&c, "queue/size", "1"), -ENOENT);
	/* fua is null_blk's; queue/fua says what came of it */
	assert_int_equal(set(&c, "fua", "0"), 0);
	assert_int_equal(set(&c, "queue/fua", "0"), -EACCES);
	attr_fini(disk_attrs, &c);
}

static void
refuses_a_scheduler_that_is_not_there_and_says_why(void **state)
{
	struct disk_conf c;

	(void)state;
	attr_init(disk_attrs, &c);
	assert_int_equal(set(&c, "scheduler", "none"), 0);
	assert_int_equal(set(&c, "scheduler", "noop"), -EINVAL);
	for (const struct elevator_type *e = elevators; e->name != NULL; e++) {
		if (e->available)
			continue;
		assert_int_equal(set(&c, "queue/scheduler", e->name), -EINVAL);
		assert_non_null(strstr(err, e->help));
	}
	assert_string_equal(c.scheduler->name, "none");
	attr_fini(disk_attrs, &c);
}

static void
takes_every_kernel_there_is(void **state)
{
	struct disk_conf c;

	(void)state;
	attr_init(disk_attrs, &c);
	for (const struct profile *p = profiles; p->name != NULL; p++) {
		assert_int_equal(set(&c, "kernel", p->name), 0);
		assert_ptr_equal(c.kernel, p);
	}
	assert_int_equal(set(&c, "kernel", "3.10"), -EINVAL);
	assert_non_null(strstr(err, "4.14, 5.4, 6.1, 6.12"));
	attr_fini(disk_attrs, &c);
}

/* As configfs' "features" since 6.15. */
static void
tells_the_features_of_null_blk(void **state)
{
	char text[2048] = "", *rest = text, *name, *last = NULL;
	FILE *out = fmemopen(text, sizeof(text), "w");
	size_t nr = 0;

	(void)state;
	disk_features(out);
	fclose(out);
	assert_int_equal(text[strlen(text) - 1], '\n');
	text[strlen(text) - 1] = '\0';
	for (; (name = strsep(&rest, ",")) != NULL; last = name, nr++) {
		assert_true(last == NULL || strcmp(last, name) < 0);
		assert_non_null(attr_find(disk_attrs, name));
	}
	assert_int_equal(nr, 37);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    every_row_has_a_help_line_a_default_and_a_name_of_its_own),
		cmocka_unit_test(what_get_prints_set_takes),
		cmocka_unit_test(every_choice_is_taken_by_name_and_by_number),
		cmocka_unit_test(values_are_parsed_as_null_blk_parses_them),
		cmocka_unit_test(defaults_are_those_of_null_blk),
		cmocka_unit_test(
		    takes_module_names_and_the_prefix_of_the_queue),
		cmocka_unit_test(
		    refuses_a_scheduler_that_is_not_there_and_says_why),
		cmocka_unit_test(takes_every_kernel_there_is),
		cmocka_unit_test(tells_the_features_of_null_blk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
