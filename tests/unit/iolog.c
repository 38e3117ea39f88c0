/* SPDX-License-Identifier: MIT */
#include "recording.h"

static void
says_what_is_no_recording(void **state)
{
	static const char allowed[] =
	    "not a recording; allowed: what blkparse prints, a file of "
	    "blktrace, fio's iolog of version 2 or 3\n";
	char said[512];

	(void)state;
	rec_refuses_text("", "FILE: empty\n");
	snprintf(said, sizeof(said), "FILE: %s", allowed);
	rec_refuses_text("hello\n", said);
	rec_refuses_text("\177ELF", said);
	snprintf(said, sizeof(said), "FILE:1: %s", allowed);
	rec_refuses_text("fio version 1 iolog\n", said);
	rec_refuses_text("fio", said);
	rec_refuses_text("fio version 2 iolog\n", "FILE: no I/O in it\n");
	rec_refuses_text("fio version 2 iolog\na add\na open\na close\n",
	    "FILE: no I/O in it\n");
	assert_null(rec_read_path("/nonexistent/recording", NULL));
	assert_string_equal(
	    rec_said, "/nonexistent/recording: No such file or directory\n");
	assert_null(rec_read_path("/tmp", NULL));
	assert_string_equal(rec_said, "/tmp: Is a directory\n");
}

/* A pipe can take back one byte, no more. */
static void
reads_a_pipe(void **state)
{
	static const char text[] = "fio version 2 iolog\na write 0 512\n";
	struct iolog *log;
	int ends[2], saved = dup(STDIN_FILENO);

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], text, strlen(text)), strlen(text));
	close(ends[1]);
	assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
	close(ends[0]);
	log = rec_read_path("-", NULL);
	REC_EXPECT(
	    log, { .op = REQ_OP_WRITE, .bytes = 512, .flags = REQ_SYNC });
	iolog_free(log);
	dup2(saved, STDIN_FILENO);
	close(saved);
}

static void
puts_events_in_order_of_time(void **state)
{
	struct iolog *log =
	    rec_read_text("8,0 0 1 0.000000002 1 Q R 2 + 1 [x]\n"
			  "8,0 1 1 0.000000001 1 Q R 1 + 1 [x]\n"
			  "8,0 0 2 0.000000002 1 Q R 3 + 1 [x]\n");

	(void)state;
	REC_EXPECT(log, { .pos = 512, .bytes = 512, .task = 1 },
	    { .pos = 1024, .bytes = 512, .task = 1, .ns = 1 },
	    { .pos = 1536, .bytes = 512, .task = 1, .ns = 1 });
	iolog_free(log);
}

static void
frees_nothing(void **state)
{
	(void)state;
	iolog_free(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(says_what_is_no_recording),
		cmocka_unit_test(reads_a_pipe),
		cmocka_unit_test(puts_events_in_order_of_time),
		cmocka_unit_test(frees_nothing),
	};

	return cmocka_run_group_tests_name("iolog", tests, NULL, NULL);
}
