/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* Run `say` with stderr in a pipe; what it wrote, in `out`. */
static void
caught(void (*say)(void), char *out, size_t len)
{
	int fds[2], saved = dup(2);
	ssize_t n;

	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], 2);
	say();
	fflush(stderr);
	dup2(saved, 2);
	close(fds[1]);
	n = read(fds[0], out, len - 1);
	out[n > 0 ? n : 0] = '\0';
	close(fds[0]);
	close(saved);
}

static void
say_each(void)
{
	log_warn("disk %d: full", 7);
	log_info("listening");
	log_debug("detail");
}

static void
says_one_line_an_event_and_details_only_when_asked(void **state)
{
	char out[512];

	(void)state;
	log_init("prog", false);
	caught(say_each, out, sizeof(out));
	assert_string_equal(
	    out, "prog: warning: disk 7: full\nprog: listening\n");
	log_init("prog", true);
	caught(say_each, out, sizeof(out));
	assert_non_null(strstr(out, "prog: debug: detail\n"));
}

static void
say_what_is_wrong(void)
{
	FILE *errors = log_errors();

	fprintf(errors, "a.conf:12: size: \"x\"\n%s: %s\n", "/none", "no file");
	fprintf(errors, "tls: off\n");
	fprintf(errors, "b:conf:1: a: b\nd:1\n");
}

static void
what_is_wrong_has_its_place_or_the_program_s_name(void **state)
{
	char out[512];

	(void)state;
	log_init("prog", false);
	caught(say_what_is_wrong, out, sizeof(out));
	assert_string_equal(out,
	    "a.conf:12: size: \"x\"\nprog: /none: no file\nprog: tls: off\n"
	    "prog: b:conf:1: a: b\nprog: d:1\n");
}

static void
say_much(void)
{
	static char text[5000];

	memset(text, 'x', sizeof(text) - 1);
	log_info("%s", text);
}

static void
cuts_a_line_that_is_too_long(void **state)
{
	char out[8192];

	(void)state;
	log_init("prog", false);
	caught(say_much, out, sizeof(out));
	assert_true(strlen(out) < 1100);
	assert_int_equal(out[strlen(out) - 1], '\n');
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    says_one_line_an_event_and_details_only_when_asked),
		cmocka_unit_test(
		    what_is_wrong_has_its_place_or_the_program_s_name),
		cmocka_unit_test(cuts_a_line_that_is_too_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
