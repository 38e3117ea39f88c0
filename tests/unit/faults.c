/* SPDX-License-Identifier: MIT */
/* The rules of a disk as an attribute; what they do is in fault.c. */
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

static void
reads_back_as_it_was_set(void **state)
{
	struct disk_conf a, b;
	char text[512];

	(void)state;
	attr_init(disk_attrs, &a);
	attr_init(disk_attrs, &b);
	attr_set(disk_attrs, &a, "faults", "op=READ", false, err, sizeof(err));
	attr_set(disk_attrs, &a, "faults", "add,op=WRITE,times=2", false, err,
	    sizeof(err));
	for (size_t i = 0;; i++) {
		FILE *out = fmemopen(text, sizeof(text), "w");
		bool more = faults_object.item(a.faults, i, out);

		fclose(out);
		if (!more)
			break;
		assert_int_equal(attr_set(disk_attrs, &b, "faults", text, false,
				     err, sizeof(err)),
		    0);
	}
	assert_true(faults_object.same(a.faults, b.faults));
	assert_int_equal(attr_set(disk_attrs, &b, "faults", "remove,id=1",
			     false, err, sizeof(err)),
	    0);
	assert_false(faults_object.same(a.faults, b.faults));
	attr_copy(disk_attrs, &b, &a);
	assert_true(faults_object.same(a.faults, b.faults));
	assert_int_equal(faults_last_id(b.faults), 2);
	attr_fini(disk_attrs, &a);
	attr_fini(disk_attrs, &b);
}

static int
set(struct faults *f, const char *value)
{
	err[0] = '\0';
	return faults_object.set(f, value, err, sizeof(err));
}

static void
takes_rules_and_commands(void **state)
{
	static const struct {
		const char *value;
		int ret;
		const char *says;
	} steps[] = {
		{ "op=READ", 0, "" },
		{ "add,op=WRITE", 0, "" },
		{ "add", 0, "" },
		{ "", -EINVAL,
		    "faults: \"\": allowed: a rule, remove,id=N, removeall, "
		    "release[,id=N]" },
		{ "add,op=WROTE", -EINVAL,
		    "faults: \"add,op=WROTE\": op: \"WROTE\": allowed: READ, "
		    "WRITE, FLUSH, DISCARD, WRITE_ZEROES, or several with | "
		    "between" },
		{ "remove", -EINVAL,
		    "faults: \"remove\": allowed: remove,id=N" },
		{ "remove,2", -EINVAL,
		    "faults: \"remove,2\": allowed: remove,id=N" },
		{ "remove,id=x", -EINVAL,
		    "faults: \"remove,id=x\": allowed: remove,id=N" },
		{ "remove,id=4", -ENOENT,
		    "faults: \"remove,id=4\": no such rule" },
		{ "remove,id=2", 0, "" },
		{ "remove,id=2", -ENOENT,
		    "faults: \"remove,id=2\": no such rule" },
		{ "release", 0, "" },
		{ "release,id=3", 0, "" },
		{ "release,3", -EINVAL,
		    "faults: \"release,3\": allowed: release,id=N" },
		{ "removeall,id=1", -EINVAL,
		    "faults: \"removeall,id=1\": allowed: removeall" },
		{ "removed", -EINVAL,
		    "faults: \"removed\": removed: no such key; allowed: op, "
		    "start, nr_sectors, chance, probability, every, after, "
		    "times, action, status, errno, delay, at, offset, bit, "
		    "shift, keep" },
	};
	struct faults *f = faults_object.new();
	struct fault_info info;

	(void)state;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		assert_int_equal(set(f, steps[i].value), steps[i].ret);
		assert_string_equal(err, steps[i].says);
	}
	assert_true(faults_info(f, 0, &info));
	assert_int_equal(info.id, 3);
	assert_true(faults_info(f, 1, &info));
	assert_int_equal(info.id, 1);
	assert_false(faults_info(f, 2, &info));
	assert_int_equal(set(f, "removeall"), 0);
	assert_false(faults_info(f, 0, &info));
	assert_int_equal(set(f, "op=READ"), 0);
	assert_int_equal(faults_last_id(f), 4); /* no number comes twice */
	faults_object.free(f);
	faults_object.free(NULL);
}

static void
shows_rules_and_what_they_did(void **state)
{
	struct faults *f = faults_object.new();
	char text[512] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	(void)state;
	set(f, "op=READ,status=MEDIUM");
	set(f, "op=WRITE,delay=1ms");
	faults_object.show(f, out);
	fclose(out);
	assert_string_equal(text,
	    "id=2,hits=0,seen=0,hung=0 op=WRITE,action=delay,delay=1000000\n"
	    "id=1,hits=0,seen=0,hung=0 op=READ,status=MEDIUM");
	faults_object.free(f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_back_as_it_was_set),
		cmocka_unit_test(takes_rules_and_commands),
		cmocka_unit_test(shows_rules_and_what_they_did),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
