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

#include "base/attr.h"

/* A table of a few rows, with every kind of field. */

struct fruit {
	const char *name;
	int weight;
};

static const struct fruit fruits[] = { { "apple", 1 }, { "pear", 2 }, {} };

struct thing {
	bool flag;
	uint32_t mode;
	uint64_t size;
	char *label;
	char **paths;
	const struct fruit *fruit;
	uint32_t live;
	int *sum;
};

static int
no_pears(const char *value, char *err, size_t errlen)
{
	if (strcmp(value, "pear") != 0)
		return 0;
	return refuse(err, errlen, -EINVAL, "fruit: \"pear\": out of season");
}

static void
show_twice(const void *obj, FILE *out)
{
	fprintf(out, "%u", ((const struct thing *)obj)->mode * 2);
}

/* An object: a sum, to which each value is added. */
static void *
sum_new(void)
{
	return calloc(1, sizeof(int));
}

static void *
sum_copy(const void *obj)
{
	int *sum = sum_new();

	*sum = *(const int *)obj;
	return sum;
}

static bool
sum_same(const void *x, const void *y)
{
	return *(const int *)x == *(const int *)y;
}

static int
sum_set(void *obj, const char *value, char *why, size_t len)
{
	if (atoi(value) == 0)
		return refuse(why, len, -EINVAL, "sum: \"%s\": no", value);
	*(int *)obj += atoi(value);
	return 0;
}

static void
sum_show(const void *obj, FILE *out)
{
	fprintf(out, "%d", *(const int *)obj);
}

static const struct attr_object sum_object = {
	.new = sum_new,
	.free = free,
	.copy = sum_copy,
	.same = sum_same,
	.set = sum_set,
	.show = sum_show,
};

static const struct attr_choice modes[] = {
	{ "low", 1, "slowly" },
	{ "high", 3, "at once" },
	{},
};

static const struct attr_group plain = { .title = "plain ones" };
static const struct attr_group named = {
	.title = "named ones",
	.prefix = "q/",
	.prints_names = true,
};

#define THING(f) ATTR_FIELD(struct thing, f)

static const struct attr table[] = {
	{ THING(flag), .group = &plain, .def = "1", .help = "a flag" },
	{ THING(mode), .group = &plain, .def = "high", .choices = modes,
	    .help = "how" },
	{ THING(size), .group = &plain, .def = "16", .unit = &unit_mib,
	    .max = 1 << 30, .alias = { "gb", &unit_gib }, .help = "how much" },
	{ THING(label), .group = &plain, .max = 8, .help = "what it says" },
	{ THING(paths), .group = &plain, .alias = { "path" },
	    .help = "where to" },
	{ THING(fruit), .group = &named, .def = "apple", ATTR_ROWS(fruits),
	    .check = no_pears, .help = "which one" },
	{ THING(live), .group = &named, .def = "2", .min = 1, .max = 9,
	    .live = true, .help = "changes at any time" },
	{ .name = "mode",
	    .type = ATTR_SHOWN,
	    .group = &named,
	    .show = show_twice,
	    .help = "twice the mode" },
	{ .name = "sum",
	    .type = ATTR_OBJECT,
	    .offset = offsetof(struct thing, sum),
	    .object = &sum_object,
	    .group = &named,
	    .live = true,
	    .help = "adds up" },
	{},
};

static char err[256];

static int
set(struct thing *t, const char *name, const char *value)
{
	err[0] = '\0';
	return attr_set(table, t, name, value, false, err, sizeof(err));
}

static char *
get(const struct thing *t, const char *name)
{
	static char text[256];
	FILE *out;

	text[0] = '\0'; /* fmemopen() leaves what nothing is written to */
	out = fmemopen(text, sizeof(text), "w");

	attr_get(attr_find(table, name), t, out);
	fclose(out);
	return text;
}

static void
starts_from_the_defaults(void **state)
{
	struct thing t;

	(void)state;
	memset(&t, 0xff, sizeof(t));
	assert_int_equal(attr_init(table, &t), 0);
	assert_true(t.flag);
	assert_int_equal(t.mode, 3);
	assert_int_equal(t.size, 16 << 20);
	assert_null(t.label);
	assert_null(t.paths);
	assert_ptr_equal(t.fruit, &fruits[0]);
	assert_int_equal(t.live, 2);
	attr_fini(table, &t);
}

static void
finds_a_row_by_name_full_name_and_alias(void **state)
{
	(void)state;
	assert_int_equal(attr_count(table), 9);
	assert_ptr_equal(attr_find(table, "size"), &table[2]);
	assert_ptr_equal(attr_find(table, "gb"), &table[2]);
	assert_ptr_equal(attr_find(table, "fruit"), &table[5]);
	assert_ptr_equal(attr_find(table, "q/fruit"), &table[5]);
	/* two of one name: bare it is the first one's */
	assert_ptr_equal(attr_find(table, "mode"), &table[1]);
	assert_ptr_equal(attr_find(table, "q/mode"), &table[7]);
	assert_null(attr_find(table, "q/size"));
	assert_null(attr_find(table, ""));
}

static void
prints_numbers_or_names_as_the_group_has_it(void **state)
{
	struct thing t;

	(void)state;
	attr_init(table, &t);
	assert_string_equal(get(&t, "mode"), "3");
	assert_int_equal(set(&t, "mode", "low"), 0);
	assert_string_equal(get(&t, "mode"), "1");
	assert_int_equal(set(&t, "mode", "2"), 0); /* a number without name */
	assert_string_equal(get(&t, "mode"), "2");
	assert_string_equal(get(&t, "q/mode"), "4");
	assert_string_equal(get(&t, "fruit"), "apple");
	assert_string_equal(get(&t, "size"), "16");
	assert_int_equal(set(&t, "size", "1000B"), 0);
	assert_string_equal(get(&t, "size"), "1000B");
	assert_int_equal(set(&t, "gb", "1"), 0);
	assert_string_equal(get(&t, "size"), "1024");
	attr_fini(table, &t);
}

static void
owns_its_texts_and_lists(void **state)
{
	struct thing t, copy;

	(void)state;
	attr_init(table, &t);
	attr_init(table, &copy);
	assert_int_equal(set(&t, "label", "one"), 0);
	assert_int_equal(set(&t, "label", "two"), 0);
	assert_string_equal(t.label, "two");
	assert_int_equal(set(&t, "path", "/a"), 0);
	assert_int_equal(set(&t, "paths", "/b"), 0);
	assert_string_equal(get(&t, "paths"), "/a /b");
	assert_int_equal(attr_copy(table, &copy, &t), 0);
	assert_int_equal(set(&t, "label", ""), 0);
	assert_null(t.label);
	attr_fini(table, &t);
	assert_string_equal(copy.label, "two");
	assert_string_equal(get(&copy, "paths"), "/a /b");
	assert_null(copy.paths[2]);
	assert_int_equal(set(&copy, "paths", ""), 0);
	assert_null(copy.paths);
	assert_string_equal(get(&copy, "paths"), "");
	attr_fini(table, &copy);
}

static void
leaves_the_object_as_it_was_on_any_error(void **state)
{
	static const struct {
		const char *name, *value;
		int error;
	} bad[] = {
		{ "flag", "maybe", -EINVAL },
		{ "mode", "", -EINVAL },
		{ "mode", "4294967296", -ERANGE },
		{ "size", "-1", -EINVAL },
		{ "size", "1025", -ERANGE },
		{ "size", "18446744073709551615", -ERANGE },
		{ "label", "nine bytes", -ERANGE },
		{ "label", "\xff", -EINVAL },
		{ "label", "a\nb", -EINVAL },
		{ "fruit", "plum", -EINVAL },
		{ "fruit", "pear", -EINVAL },
		{ "live", "0", -ERANGE },
		{ "live", "10", -ERANGE },
		{ "q/mode", "1", -EACCES },
		{ "nothing", "1", -ENOENT },
	};
	struct thing t, before;

	(void)state;
	attr_init(table, &t);
	before = t;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(
		    set(&t, bad[i].name, bad[i].value), bad[i].error);
		assert_memory_equal(&t, &before, sizeof(t));
		assert_non_null(strstr(err, bad[i].name));
	}
	attr_fini(table, &t);
}

static void
says_what_was_wrong_and_what_is_allowed(void **state)
{
	struct thing t;

	(void)state;
	attr_init(table, &t);
	set(&t, "mode", "fast");
	assert_string_equal(err, "mode: \"fast\": allowed: low (1), high (3)");
	set(&t, "live", "12");
	assert_string_equal(
	    err, "q/live: \"12\": out of range, allowed: a number from 1 to 9");
	set(&t, "size", "big");
	assert_string_equal(err,
	    "size: \"big\": allowed: a number of MiB from 0 to 1024, or with "
	    "a suffix: B K M G T P E");
	set(&t, "colour", "1");
	assert_string_equal(
	    err, "colour: no such attribute (nullbctl help lists them)");
	set(&t, "q/liev", "1");
	assert_string_equal(err, "q/liev: no such attribute; is it live?");
	set(&t, "fruit", "plum");
	assert_string_equal(err, "q/fruit: \"plum\": allowed: apple");
	set(&t, "fruit", "pear");
	assert_string_equal(err, "fruit: \"pear\": out of season");
	set(&t, "q/mode", "1");
	assert_string_equal(err, "q/mode: read only");
	attr_fini(table, &t);
}

static void
survives_a_buffer_that_is_too_small_for_the_sentence(void **state)
{
	struct thing t;
	char tiny[4] = "xyz";

	(void)state;
	attr_init(table, &t);
	assert_int_equal(
	    attr_set(table, &t, "mode", "fast", false, tiny, 3), -EINVAL);
	assert_string_equal(tiny, "mo");
	assert_int_equal(tiny[3], '\0');
	assert_int_equal(
	    attr_set(table, &t, "mode", "fast", false, NULL, 0), -EINVAL);
	attr_fini(table, &t);
}

static void
changes_only_live_rows_of_what_is_in_use(void **state)
{
	struct thing t;

	(void)state;
	attr_init(table, &t);
	assert_int_equal(
	    attr_set(table, &t, "size", "1", true, err, sizeof(err)), -EBUSY);
	assert_int_equal(
	    attr_set(table, &t, "live", "5", true, err, sizeof(err)), 0);
	assert_int_equal(t.live, 5);
	assert_int_equal(
	    attr_set(table, &t, "live", "0", true, err, sizeof(err)), -ERANGE);
	assert_int_equal(t.live, 5);
	attr_fini(table, &t);
}

static char *
printed(void (*print)(const struct attr *, FILE *))
{
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	print(table, out);
	fclose(out);
	return text;
}

static void
explains_every_row_and_choice_from_the_table(void **state)
{
	void (*prints[])(
	    const struct attr *, FILE *) = { attr_usage, attr_man };

	(void)state;
	for (int i = 0; i < 2; i++) {
		char *text = printed(prints[i]);

		for (const struct attr *a = table; a->name != NULL; a++) {
			assert_non_null(strstr(text, a->name));
			assert_non_null(strstr(text, a->help + 1));
			if (a->def != NULL)
				assert_non_null(strstr(text, a->def));
		}
		for (const struct attr_choice *c = modes; c->name; c++)
			assert_non_null(strstr(text, c->help + 1));
		assert_non_null(strstr(text, "lain ones"));
		assert_non_null(strstr(text, "apple"));
		assert_null(strstr(text, "pear"));
		free(text);
	}
}

static void
tells_whether_a_value_is_the_same(void **state)
{
	static const struct {
		const char *name, *value;
	} changes[] = { { "flag", "0" }, { "mode", "low" }, { "size", "17" },
		{ "label", "text" }, { "paths", "/a" }, { "paths", "/b" },
		{ "live", "3" }, { "sum", "4" } };
	const struct attr *a;
	struct thing x, y;

	(void)state;
	attr_init(table, &x);
	attr_init(table, &y);
	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		a = attr_find(table, changes[i].name);
		assert_true(attr_same(a, &x, &y));
		attr_set(table, &x, changes[i].name, changes[i].value, false,
		    err, sizeof(err));
		assert_false(attr_same(a, &x, &y));
		assert_false(attr_same(a, &y, &x));
		/* of its own, in another place */
		attr_copy_one(a, &y, &x);
		assert_true(attr_same(a, &x, &y));
	}
	/* one more, or one otherwise */
	a = attr_find(table, "paths");
	attr_set(table, &x, "paths", "/c", false, err, sizeof(err));
	assert_false(attr_same(a, &x, &y));
	attr_set(table, &y, "paths", "/d", false, err, sizeof(err));
	assert_false(attr_same(a, &x, &y));
	a = attr_find(table, "fruit");
	assert_true(attr_same(a, &x, &y));
	x.fruit = &fruits[1];
	assert_false(attr_same(a, &x, &y));
	attr_fini(table, &x);
	attr_fini(table, &y);
}

static void
changes_an_object_in_place(void **state)
{
	struct thing t, copy;
	int *sum;

	(void)state;
	attr_init(table, &t);
	attr_init(table, &copy);
	assert_string_equal(get(&t, "sum"), "0");
	sum = t.sum;
	assert_int_equal(set(&t, "sum", "3"), 0);
	assert_int_equal(
	    attr_set(table, &t, "sum", "4", true, err, sizeof(err)), 0);
	assert_ptr_equal(t.sum, sum); /* others may look at it */
	assert_string_equal(get(&t, "sum"), "7");
	assert_int_equal(set(&t, "sum", "x"), -EINVAL);
	assert_string_equal(err, "sum: \"x\": no");
	assert_string_equal(get(&t, "sum"), "7");
	assert_int_equal(attr_copy(table, &copy, &t), 0);
	assert_ptr_not_equal(copy.sum, sum);
	assert_int_equal(set(&t, "sum", "1"), 0);
	assert_string_equal(get(&copy, "sum"), "7");
	attr_fini(table, &t);
	assert_null(t.sum);
	attr_fini(table, &copy);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(starts_from_the_defaults),
		cmocka_unit_test(tells_whether_a_value_is_the_same),
		cmocka_unit_test(finds_a_row_by_name_full_name_and_alias),
		cmocka_unit_test(prints_numbers_or_names_as_the_group_has_it),
		cmocka_unit_test(owns_its_texts_and_lists),
		cmocka_unit_test(changes_an_object_in_place),
		cmocka_unit_test(leaves_the_object_as_it_was_on_any_error),
		cmocka_unit_test(says_what_was_wrong_and_what_is_allowed),
		cmocka_unit_test(
		    survives_a_buffer_that_is_too_small_for_the_sentence),
		cmocka_unit_test(changes_only_live_rows_of_what_is_in_use),
		cmocka_unit_test(explains_every_row_and_choice_from_the_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
