/* SPDX-License-Identifier: MIT */
#include "recording.h"

static const char text[] =
    "# blkparse -i t\n"
    "Input file t.blktrace.0 added\n"
    "254,0    1        1     3.000000000   211  Q   R 126486 + 4 [fio]\n"
    "254,0    1        2     3.000629693   211  G   R 126486 + 4 [fio]\n"
    "254,0    1        3     3.000651805   211  P   N [fio]\n"
    "254,0    1        0     3.000651805     0  m   N a message Q R 1 + 1\n"
    "  8,1    0        1     3.000700000   212  Q  WS 8 + 8 [a [b] c]\n"
    "254,0    1        4     3.000859679   211  Q  WS 126490 + 16 [fio]\n"
    "254,0    0        2     3.000800000   212  Q FWFSM 8 + 8 [dd]\n"
    "254,0    1        5     3.000900000   211  U   N [fio] 2\n"
    "254,0    1        6     3.000900001   211  Q FWS [sync]\n"
    "254,0    1        7     3.000900002   211  Q  FN [sync]\n"
    "254,0    1        8     3.000900003   211  Q   D 64 + 128 [fstrim]\n"
    "254,0    1        9     3.000900004   211  Q   N [x]\n"
    "254,0    1       10     3.000900005   211  Q   R 36 (12 00 00) [udev]\n"
    "254,0    1       11     3.000900006   211  A   R 1 + 1 <- (8,1) 1\n"
    "254,0    1       12     3.000900007   211  X   R 1 / 2 [fio]\n"
    "254,0    1       13     3.000900008     0  C   R 126486 + 4 [0]\n"
    "CPU1 (t):\n"
    " Reads Queued:         242,     2291KiB\t Writes Queued:         270\n"
    " Read depth:             1        \t Write depth:             1\n"
    " IO unplugs:            16        \t Timer unplugs:           0\n"
    "\n"
    "Throughput (R/W): 208373KiB/s / 191282KiB/s\n"
    "Events (t): 1826 entries\n"
    "Skips: 0 forward (0 -   0.0%)\n";

static void
reads_what_was_submitted(void **state)
{
	struct iolog *log = rec_read_text(text);

	(void)state;
	REC_EXPECT(log,
	    { .op = REQ_OP_READ,
		.pos = 126486 * 512,
		.bytes = 2048,
		.task = 211 },
	    { .op = REQ_OP_WRITE,
		.pos = 4096,
		.bytes = 4096,
		.ns = 800000,
		.flags = REQ_PREFLUSH | REQ_FUA | REQ_SYNC,
		.task = 212 },
	    { .op = REQ_OP_WRITE,
		.pos = 126490 * 512,
		.bytes = 8192,
		.ns = 859679,
		.flags = REQ_SYNC,
		.task = 211 },
	    { .op = REQ_OP_FLUSH,
		.ns = 900001,
		.flags = REQ_SYNC,
		.task = 211 },
	    { .op = REQ_OP_FLUSH, .ns = 900002, .task = 211 },
	    { .op = REQ_OP_DISCARD,
		.pos = 32768,
		.bytes = 65536,
		.ns = 900003,
		.task = 211 });
	assert_true(log->timed);
	assert_string_equal(log->device, "254,0");
	assert_int_equal(log->nr_ignored, 1);
	assert_int_equal(log->io[1].line, 9);
	iolog_free(log);
}

static void
picks_a_device(void **state)
{
	struct iolog *log = rec_read(text, sizeof(text) - 1, "8,1");

	(void)state;
	REC_EXPECT(log, { .op = REQ_OP_WRITE,
			    .pos = 4096,
			    .bytes = 4096,
			    .flags = REQ_SYNC,
			    .task = 212 });
	assert_int_equal(log->nr_ignored, 6);
	iolog_free(log);
	assert_null(rec_read(text, sizeof(text) - 1, "8,2"));
	assert_string_equal(rec_said, "FILE: no I/O in it of the device 8,2\n");
	assert_null(rec_read(text, sizeof(text) - 1, "sda"));
	assert_string_equal(rec_said,
	    "FILE: device: \"sda\": allowed: MAJOR,MINOR as in 8,0\n");
}

static void
names_what_is_wrong_with_a_line(void **state)
{
#define EVENT "not an event as blkparse prints it"
#define RWBS  "not what such an event does (RWBS)"
#define RANGE "not a sector + sectors"
	static const struct {
		const char *line;
		const char *what;
	} bad[] = {
		{ "hello", EVENT },
		{ "8 0 1 1 0.000000000 5 Q R 1 + 1 [x]", EVENT },
		{ "8, 0 1 1 0.000000000 5 Q R 1 + 1 [x]", EVENT },
		{ "8,1048576 1 1 0.000000000 5 Q R 1 + 1 [x]", EVENT },
		{ "8,0 1 1 0.0000 5 Q R 1 + 1 [x]", EVENT },
		{ "8,0 1 1 0. 000000000 5 Q R 1 + 1 [x]", EVENT },
		{ "8,0 1 1 99999999999.000000000 5 Q R 1 + 1 [x]", EVENT },
		{ "8,0 1 1 0.000000000", EVENT },
		{ "8,0 1 1 0.000000000 5", EVENT },
		{ "8,0 1 1 0.000000000 4294967296 Q R 1 + 1 [x]", EVENT },
		{ "8,0 1 1 0.000000000 5 Q", RWBS },
		{ "8,0 1 1 0.000000000 5 Q X 1 + 1 [x]", RWBS },
		{ "8,0 1 1 0.000000000 5 Q Rx 1 + 1 [x]", RWBS },
		{ "8,0 1 1 0.000000000 5 Q R 1 - 1 [x]", RANGE },
		{ "8,0 1 1 0.000000000 5 Q R 1 + x [x]", RANGE },
		{ "8,0 1 1 0.000000000 5 Q R 1 + 4294967296 [x]", RANGE },
		{ "8,0 1 1 0.000000000 5 Q R 99999999999999999 + 1", RANGE },
	};
	char lines[256], said[512];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(
		    lines, sizeof(lines), "# a comment\n%s\n", bad[i].line);
		snprintf(said, sizeof(said), "FILE:2: %s: \"%s\"\n",
		    bad[i].what, bad[i].line);
		rec_refuses_text(lines, said);
	}
	rec_refuses_text("8,0 1 1 0.000000000 5 Q R 18014398509481984 + 1 [x]",
	    "FILE:1: 512 bytes at 9223372036854775808: allowed: an end below "
	    "2^63\n");
	rec_refuses_text("8,0 1 1 0.000000000 5 Q R 0 + 8388608 [x]",
	    "FILE:1: 4294967296 bytes: allowed: at most 4294967295\n");
	rec_refuses("8,0 1\0", 6, "FILE:1: a byte 0 in the line\n");
}

static void
bears_every_change(void **state)
{
	(void)state;
	rec_mutate(text, sizeof(text) - 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_what_was_submitted),
		cmocka_unit_test(picks_a_device),
		cmocka_unit_test(names_what_is_wrong_with_a_line),
		cmocka_unit_test(bears_every_change),
	};

	return cmocka_run_group_tests_name("blkparse", tests, NULL, NULL);
}
