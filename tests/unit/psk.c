/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl.h"

static char path[64]; /* of the file that a test writes */
static char *said;    /* about it, without its name */

static int
setup(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/tmp/nullbd-psk-%d", getpid());
	return 0;
}

static struct psk_file *
read_path(const char *at)
{
	char *all = NULL, *p;
	size_t len;
	FILE *errors = open_memstream(&all, &len);
	struct psk_file *f = psk_read(at, errors);

	fclose(errors);
	free(said);
	said = calloc(1, len + 1);
	for (p = all; *p != '\0';) { /* each line begins with the path */
		assert_memory_equal(p, at, strlen(at));
		p += strlen(at);
		strncat(said, p, strcspn(p, "\n") + 1);
		p += strcspn(p, "\n") + 1;
	}
	free(all);
	assert_int_equal(f == NULL, *said != '\0');
	return f;
}

static struct psk_file *
read_text(const char *text)
{
	FILE *out = fopen(path, "w");
	struct psk_file *f;

	assert_non_null(out);
	fputs(text, out);
	fclose(out);
	f = read_path(path);
	unlink(path);
	return f;
}

static void
expect_key(const struct psk_file *f, const char *user, const char *key)
{
	const struct psk *psk = psk_find(f, user, strlen(user));

	assert_non_null(psk);
	assert_int_equal(psk->key_len, strlen(key));
	assert_memory_equal(psk->key, key, strlen(key));
}

static void
finds_the_key_of_each_user(void **state)
{
	struct psk_file *f = read_text("carol:636172\n"
				       "alice:616c696365\n"
				       "\n"
				       "bob:424F42\n"
				       "al:6C\n"
				       "a:b:2d");

	(void)state;
	assert_non_null(f);
	expect_key(f, "alice", "alice");
	expect_key(f, "bob", "BOB");
	expect_key(f, "carol", "car");
	expect_key(f, "al", "l");
	expect_key(f, "a:b", "-");
	psk_free(f);
}

static void
finds_nobody_else(void **state)
{
	struct psk_file *f = read_text("alice:00\n");
	char name[1000] = "alice";

	(void)state;
	assert_non_null(psk_find(f, name, 5));
	assert_null(psk_find(f, name, 6)); /* with a NUL */
	assert_null(psk_find(f, name, 4));
	assert_null(psk_find(f, name, 0));
	assert_null(psk_find(f, "Alice", 5));
	assert_null(psk_find(f, "bob", 3));
	assert_null(psk_find(f, name, sizeof(name)));
	psk_free(f);
	psk_free(NULL);
}

static void
a_user_may_be_bytes(void **state)
{
	struct psk_file *f = read_text("#003aff:01\n");
	const struct psk *psk = psk_find(f, "\0:\xff", 3);

	(void)state;
	assert_non_null(psk);
	assert_int_equal(psk->key_len, 1);
	assert_int_equal(psk->key[0], 1);
	psk_free(f);
}

static void
a_user_and_a_key_have_a_limit(void **state)
{
	char text[2000], user[130], key[1030];
	struct psk_file *f;

	(void)state;
	memset(user, 'u', sizeof(user));
	memset(key, '7', sizeof(key));
	snprintf(text, sizeof(text), "%.128s:%.1024s\n", user, key);
	f = read_text(text);
	assert_non_null(f);
	assert_int_equal(psk_find(f, user, 128)->key_len, 512);
	assert_int_equal(psk_find(f, user, 128)->key[511], 0x77);
	psk_free(f);
	snprintf(text, sizeof(text), "%.129s:77\n", user);
	assert_null(read_text(text));
	assert_non_null(strstr(said, ":1: bad user"));
	snprintf(text, sizeof(text), "u:%.1026s\n", key);
	assert_null(read_text(text));
	assert_non_null(strstr(said, ":1: bad key"));
}

static void
tells_each_line_that_is_wrong(void **state)
{
	(void)state;
	assert_null(read_text("alice\n"
			      "bob:\n"
			      "carol:0\n"
			      "dave:0g\n"
			      "good:00\n"
			      ":00\n"
			      "#:00\n"
			      "#1:00\n"));
	assert_string_equal(said,
	    ":1: no key; allowed: USER:HEXKEY\n"
	    ":2: bad key; allowed: hexadecimal digits of 1 to 512 bytes\n"
	    ":3: bad key; allowed: hexadecimal digits of 1 to 512 bytes\n"
	    ":4: bad key; allowed: hexadecimal digits of 1 to 512 bytes\n"
	    ":6: bad user; allowed: 1 to 128 bytes, or # and their "
	    "hexadecimal digits\n"
	    ":7: bad user; allowed: 1 to 128 bytes, or # and their "
	    "hexadecimal digits\n"
	    ":8: bad user; allowed: 1 to 128 bytes, or # and their "
	    "hexadecimal digits\n");
}

static void
complains_of_ten_lines_at_most(void **state)
{
	char text[2001] = "";
	unsigned lines = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		strcat(text, "x\n");
	assert_null(read_text(text));
	for (const char *p = said; *p != '\0'; p++)
		lines += *p == '\n';
	assert_int_equal(lines, 10);
}

static void
refuses_a_user_with_two_keys(void **state)
{
	(void)state;
	assert_null(read_text("alice:01\nbob:02\nalice:03\n"));
	assert_string_equal(said, ":3: the same user as in line 1\n");
	assert_null(read_text("b:01\n#62:02\n"));
	assert_string_equal(said, ":2: the same user as in line 1\n");
}

static void
refuses_what_is_no_file_of_keys(void **state)
{
	(void)state;
	assert_null(read_text(""));
	assert_string_equal(said, ": no key in it\n");
	assert_null(read_text("\n\n"));
	assert_string_equal(said, ": no key in it\n");
	assert_null(read_path("/no/such/file"));
	assert_string_equal(said, ": No such file or directory\n");
	assert_null(read_path("/tmp"));
	assert_string_equal(said, ": cannot be read: Is a directory\n");
}

static void
finds_one_among_many(void **state)
{
	char *text = malloc(1 << 20), *p = text, name[16];
	struct psk_file *f;

	(void)state;
	for (unsigned i = 0; i < 5000; i++)
		p += sprintf(p, "user%u:%08x\n", i * 7919 % 5000, i);
	f = read_text(text);
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "user%u", i * 7919 % 5000);
		const struct psk *psk = psk_find(f, name, strlen(name));

		assert_non_null(psk);
		assert_int_equal(psk->key[2] << 8 | psk->key[3], i);
	}
	psk_free(f);
	free(text);
}

static int
teardown(void **state)
{
	(void)state;
	free(said);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_the_key_of_each_user),
		cmocka_unit_test(finds_nobody_else),
		cmocka_unit_test(a_user_may_be_bytes),
		cmocka_unit_test(a_user_and_a_key_have_a_limit),
		cmocka_unit_test(tells_each_line_that_is_wrong),
		cmocka_unit_test(complains_of_ten_lines_at_most),
		cmocka_unit_test(refuses_a_user_with_two_keys),
		cmocka_unit_test(refuses_what_is_no_file_of_keys),
		cmocka_unit_test(finds_one_among_many),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
