/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/source.h"

static char path[64]; /* of the file that a test writes */
static struct source src;
static char *said;
static size_t said_len;

static int
setup(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/tmp/nullbd-source-%d", getpid());
	return 0;
}

static void
open_path(const char *at, int want)
{
	FILE *errors = open_memstream(&said, &said_len);

	assert_int_equal(source_open(&src, at, errors), want);
}

static void
open_bytes(const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	assert_int_equal(fwrite(text, 1, len, f), len);
	fclose(f);
	open_path(path, 0);
	unlink(path);
}

/* It was complained so, behind the path, so many times. */
static void
assert_said(const char *at, const char *want, unsigned nr)
{
	fclose(src.errors);
	if (nr > 0) {
		assert_memory_equal(said, at, strlen(at));
		assert_string_equal(said + strlen(at), want);
	} else {
		assert_string_equal(said, "");
	}
	assert_int_equal(src.nr_errors, nr);
	free(said);
}

static void
assert_line(bool joins, unsigned line, const char *want)
{
	assert_string_equal(source_line(&src, joins), want);
	assert_int_equal(src.line, line);
}

static void
numbers_its_lines_joined_or_not(void **state)
{
	static const char text[] = "a\n\nb\\\nc\\\n\\\n\nd\\";

	(void)state;
	open_bytes(text, strlen(text));
	assert_line(false, 1, "a");
	assert_line(false, 2, "");
	assert_line(false, 3, "b\\");
	assert_line(false, 4, "c\\");
	source_close(&src);
	assert_said("", "", 0);

	open_bytes(text, strlen(text));
	assert_line(true, 1, "a");
	assert_line(true, 2, "");
	assert_line(true, 3, "bc");
	assert_line(true, 7, "d\\");
	assert_null(source_line(&src, true));
	source_close(&src);
	assert_said("", "", 0);
}

static void
takes_the_longest_line_and_no_longer(void **state)
{
	size_t len = SOURCE_MAX_LINE;
	char *text = malloc(2 * len + 4);

	(void)state;
	memset(text, 'x', 2 * len + 4);
	text[len] = '\n';
	text[2 * len + 1] = '\n';
	text[2 * len + 2] = '\n';
	open_bytes(text, 2 * len + 4);
	assert_int_equal(strlen(source_line(&src, false)), len);
	assert_int_equal(strlen(source_line(&src, false)), len);
	assert_line(false, 3, "");
	assert_line(false, 4, "x");
	assert_null(source_line(&src, false));
	source_close(&src);
	assert_said("", "", 0);

	text[len] = 'x';
	open_bytes(text, 2 * len);
	assert_null(source_line(&src, false));
	source_close(&src);
	assert_said(path, ":1: a line longer than 16384 bytes\n", 1);

	/* what is joined is one line */
	for (size_t i = 1; i < 2 * len; i += 64)
		memcpy(text + i, "\\\n", 2);
	open_bytes(text, 2 * len);
	assert_null(source_line(&src, true));
	source_close(&src);
	assert_said(path, ":1: a line longer than 16384 bytes\n", 1);
	free(text);
}

static void
refuses_bytes_0_and_goes_on(void **state)
{
	static const char text[] = "a\0b\nc\n\0\n\0";

	(void)state;
	open_bytes(text, sizeof(text) - 1);
	assert_line(false, 1, "");
	assert_line(false, 2, "c");
	assert_line(false, 3, "");
	assert_line(false, 4, "");
	assert_null(source_line(&src, false));
	source_close(&src);
	assert_int_equal(src.nr_errors, 3);
	fclose(src.errors);
	assert_non_null(strstr(said, ":4: a byte 0 in the line\n"));
	free(said);
}

static void
says_why_a_file_cannot_be_read(void **state)
{
	(void)state;
	open_path("/nowhere/at.all", -ENOENT);
	assert_said("/nowhere/at.all", ": No such file or directory\n", 1);
	open_path("/tmp", 0);
	assert_null(source_line(&src, false));
	source_close(&src);
	assert_said("/tmp", ": cannot be read: Is a directory\n", 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_its_lines_joined_or_not),
		cmocka_unit_test(takes_the_longest_line_and_no_longer),
		cmocka_unit_test(refuses_bytes_0_and_goes_on),
		cmocka_unit_test(says_why_a_file_cannot_be_read),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
