/* SPDX-License-Identifier: MIT */
#include "recording.h"

static const char v2[] = "fio version 2 iolog\n"
			 "/dev/a add\n"
			 "/dev/a open\n"
			 "/dev/a write 4096 512\n"
			 "/dev/a read 0 1048576\n"
			 "/dev/a wait 500 0\n"
			 "/dev/a trim 8192 4096\n"
			 "/dev/a sync 0 0\n"
			 "/dev/a wait 100\n"
			 "/dev/a datasync\n"
			 "\n"
			 "/dev/a sync_file_range 0 4096\n"
			 "/dev/a write 0 512\n"
			 "/dev/a close\n";

static const char v3[] = "fio version 3 iolog\n"
			 "2 /dev/a add\n"
			 "57 /dev/a open\n"
			 "63 /dev/a write 61440 4096\n"
			 "176 /dev/a read 61440 4096\n"
			 "170 /dev/a trim 61440 4096\n"
			 "480 /dev/a sync 61440 0\n"
			 "490 /dev/a close\n";

static void
reads_version_2(void **state)
{
	struct iolog *log = rec_read_text(v2);

	(void)state;
	REC_EXPECT(log,
	    { .op = REQ_OP_WRITE,
		.pos = 4096,
		.bytes = 512,
		.flags = REQ_SYNC },
	    { .op = REQ_OP_READ, .pos = 0, .bytes = 1 << 20 },
	    { .op = REQ_OP_DISCARD,
		.flags = REQ_SYNC,
		.alone = true,
		.pos = 8192,
		.bytes = 4096,
		.ns = 500000,
		.first = true },
	    { .op = REQ_OP_FLUSH,
		.flags = REQ_SYNC,
		.ns = 500000,
		.alone = true },
	    { .op = REQ_OP_FLUSH,
		.flags = REQ_SYNC,
		.ns = 600000,
		.first = true,
		.alone = true },
	    { .op = REQ_OP_WRITE,
		.bytes = 512,
		.ns = 600000,
		.flags = REQ_SYNC });
	assert_false(log->timed);
	assert_string_equal(log->device, "/dev/a");
	assert_int_equal(log->io[1].line, 5);
	iolog_free(log);
}

static void
reads_version_3(void **state)
{
	struct iolog *log = rec_read_text(v3);

	(void)state;
	REC_EXPECT(log,
	    { .op = REQ_OP_WRITE,
		.pos = 61440,
		.bytes = 4096,
		.flags = REQ_SYNC },
	    { .op = REQ_OP_READ, .pos = 61440, .bytes = 4096, .ns = 113000 },
	    { .op = REQ_OP_DISCARD,
		.flags = REQ_SYNC,
		.alone = true,
		.pos = 61440,
		.bytes = 4096,
		.ns = 113000 },
	    { .op = REQ_OP_FLUSH,
		.flags = REQ_SYNC,
		.ns = 417000,
		.alone = true });
	assert_true(log->timed);
	iolog_free(log);
}

static void
picks_a_file(void **state)
{
	static const char text[] = "fio version 2 iolog\n"
				   "a write 0 512\n"
				   "b write 512 512\n"
				   "b write 1024 512\n";
	struct iolog *log = rec_read_text(text);

	(void)state;
	REC_EXPECT(
	    log, { .op = REQ_OP_WRITE, .bytes = 512, .flags = REQ_SYNC });
	assert_int_equal(log->nr_ignored, 2);
	iolog_free(log);
	log = rec_read(text, strlen(text), "b");
	assert_int_equal(log->nr, 2);
	assert_int_equal(log->nr_ignored, 1);
	assert_string_equal(log->device, "b");
	iolog_free(log);
	assert_null(rec_read(text, strlen(text), "c"));
	assert_string_equal(rec_said, "FILE: no I/O in it of the device c\n");
}

static void
names_what_is_wrong_with_a_line(void **state)
{
	static const struct {
		const char *line;
		const char *said;
	} bad[] = {
		{ "2 a write 0 512",
		    "action: \"a\": allowed: add, open, close, read, write, "
		    "trim, sync, datasync, sync_file_range, wait" },
		{ "a", "action: \"\": allowed: add, open, close, read, write, "
		       "trim, sync, datasync, sync_file_range, wait" },
		{ "a add 1", "a file and an action: no numbers follow" },
		{ "a write 0",
		    "a file and an action: an offset and a length follow, and "
		    "no more" },
		{ "a write 0 512 1",
		    "a file and an action: an offset and a length follow, and "
		    "no more" },
		{ "a write 0 512 1 2 3",
		    "a file and an action: an offset and a length follow, and "
		    "no more" },
		{ "a write 0x200 512",
		    "offset: \"0x200\": allowed: a decimal number below 2^64" },
		{ "a write -1 512",
		    "offset: \"-1\": allowed: a decimal number below 2^64" },
		{ "a write 0 18446744073709551616",
		    "length: \"18446744073709551616\": allowed: a decimal "
		    "number below 2^64" },
		{ "a write 0 0", "length: \"0\": allowed: at least 1" },
		{ "a write 9223372036854775807 1",
		    "1 bytes at 9223372036854775807: allowed: an end below "
		    "2^63" },
		{ "a write 0 4294967296",
		    "4294967296 bytes: allowed: at most 4294967295" },
		{ "a wait x",
		    "wait: \"x\": allowed: a decimal number below 2^64" },
		{ "a wait 18446744073709551615",
		    "wait: \"18446744073709551615\": allowed: 146 years in "
		    "all" },
	};
	char text[256], said[512];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text),
		    "fio version 2 iolog\na read 0 512\n%s\na read 0 512\n",
		    bad[i].line);
		snprintf(said, sizeof(said), "FILE:3: %s\n", bad[i].said);
		rec_refuses_text(text, said);
	}
	rec_refuses_text("fio version 3 iolog\nx a read 0 512\n",
	    "FILE:2: time: \"x\": allowed: a decimal number below 2^64\n");
	rec_refuses_text("fio version 3 iolog\n99999999999999999 a add\n",
	    "FILE:2: time: \"99999999999999999\": allowed: at most 146 "
	    "years\n");
	rec_refuses_text("fio version 3 iolog\n1 a wait 5\n",
	    "FILE:2: action: \"wait\": allowed: only in version 2\n");
	rec_refuses(
	    "fio version 2 iolog\na\0b", 23, "FILE:2: a byte 0 in the line\n");
}

/* Windows' line ends, no newline at the end, blanks: as sscanf() has them. */
static void
takes_any_blanks(void **state)
{
	struct iolog *log =
	    rec_read_text("fio version 2 iolog\n  a \t write  0 512 \r");

	(void)state;
	REC_EXPECT(
	    log, { .op = REQ_OP_WRITE, .bytes = 512, .flags = REQ_SYNC });
	iolog_free(log);
}

static void
bears_every_change_of_version_2(void **state)
{
	(void)state;
	rec_mutate(v2, sizeof(v2) - 1);
}

static void
bears_every_change_of_version_3(void **state)
{
	(void)state;
	rec_mutate(v3, sizeof(v3) - 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_version_2),
		cmocka_unit_test(reads_version_3),
		cmocka_unit_test(picks_a_file),
		cmocka_unit_test(names_what_is_wrong_with_a_line),
		cmocka_unit_test(takes_any_blanks),
		cmocka_unit_test(bears_every_change_of_version_2),
		cmocka_unit_test(bears_every_change_of_version_3),
	};

	return cmocka_run_group_tests_name("fiolog", tests, NULL, NULL);
}
