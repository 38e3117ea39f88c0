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
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/blktrace.h"
#include "ctl/ctl.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define HEAD          sizeof(struct blktrace_record)
#define NOTE          (HEAD + 16) /* that says who a task is */

static struct blktrace b;
static char out[BLKTRACE_MAX_EVENT + BLKTRACE_MAX_TEXT];

static int
setup(void **state)
{
	(void)state;
	return blktrace_init(&b, "conn", 259, 3, 4);
}

static int
teardown(void **state)
{
	(void)state;
	blktrace_fini(&b);
	return 0;
}

static struct blktrace_record
record_at(size_t offset)
{
	struct blktrace_record r;

	memcpy(&r, out + offset, sizeof(r));
	return r;
}

/* ---- each action, byte by byte (section 7) */

/* An event, and what of its record the tables below do not say. */
static const struct trace_event model = {
	.ns = UINT64_C(0x1122334455667788),
	.sector = UINT64_C(0x0102030405060708),
	.bytes = 0x1000,
	.task = 5,
	.cpu = 2,
	.op = REQ_OP_WRITE,
};

static void
assert_record(const struct trace_event *e, uint32_t action,
    const unsigned char *payload, size_t len)
{
	/* little-endian, as the machines that run this are */
	unsigned char want[HEAD] = {
		0x07, 0x74, 0x61, 0x65,                         /* magic */
		1, 0, 0, 0,                                     /* sequence */
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* time */
		8, 7, 6, 5, 4, 3, 2, 1,                         /* sector */
		0x00, 0x10, 0, 0,                               /* bytes */
		0, 0, 0, 0,                                     /* action */
		5, 0, 0, 0,                                     /* pid */
		0x03, 0x00, 0x30, 0x10, /* device: 259 << 20 | 3 */
		2, 0, 0, 0,             /* cpu */
		0, 0,                   /* error */
		(unsigned char)len, 0,  /* payload */
	};
	size_t used;

	memcpy(want + 28, &action, sizeof(action));
	if (e->sector == 0)
		memset(want + 16, 0, 12);
	want[44] = (unsigned char)-e->error;
	b.sequence[2] = 0;
	b.introduced[5] = 0;
	used = blktrace_event(&b, e, out);
	assert_int_equal(used, NOTE + HEAD + len);
	assert_memory_equal(out + NOTE, want, HEAD);
	if (len > 0)
		assert_memory_equal(out + NOTE + HEAD, payload, len);
}

static void
writes_each_action_as_the_kernel_does(void **state)
{
	static const struct {
		enum trace_action action;
		bool request;
		uint32_t want;
	} t[] = {
		{ TRACE_QUEUE, false, 0x00120001 },
		{ TRACE_BACKMERGE, false, 0x00120002 },
		{ TRACE_BACKMERGE, true, 0x01120002 },
		{ TRACE_FRONTMERGE, false, 0x00120003 },
		{ TRACE_GETRQ, false, 0x00120004 },
		{ TRACE_REQUEUE, true, 0x01220006 },
		{ TRACE_ISSUE, true, 0x01420007 },
		{ TRACE_COMPLETE, true, 0x01820008 },
		{ TRACE_INSERT, true, 0x0112000c },
	};
	unsigned i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(t); i++) {
		struct trace_event e = model;

		e.action = (uint8_t)t[i].action;
		e.request = t[i].request;
		assert_record(&e, t[i].want, NULL, 0);
	}
}

static void
writes_payloads_big_endian(void **state)
{
	static const unsigned char nr[] = { 0, 0, 0, 0, 0, 0, 0, 9 };
	static const unsigned char rest[] = { 1, 2, 3, 4, 5, 6, 7, 0x10 };
	struct trace_event e = model;

	(void)state;
	e.action = TRACE_SPLIT; /* of no category but its direction */
	e.extra = UINT64_C(0x0102030405060710);
	assert_record(&e, 0x0002000d, rest, sizeof(rest));
	e.op = REQ_OP_READ;
	e.sector = e.bytes = 0;
	e.extra = 0;
	e.action = TRACE_PLUG;
	assert_record(&e, 0x00110009, NULL, 0);
	e.extra = 9;
	e.action = TRACE_UNPLUG;
	assert_record(&e, 0x0011000a, nr, sizeof(nr));
	e.action = TRACE_UNPLUG_TIMER;
	assert_record(&e, 0x0011000b, nr, sizeof(nr));
}

static void
writes_what_kind_of_io_it_is(void **state)
{
	static const struct {
		enum req_op op;
		uint16_t flags;
		bool request;
		uint32_t want; /* but for the action */
	} t[] = {
		{ REQ_OP_READ, 0, false, 0x00110000 },
		{ REQ_OP_READ, REQ_SYNC, false, 0x00190000 },
		{ REQ_OP_WRITE, 0, false, 0x00120000 },
		{ REQ_OP_WRITE, REQ_SYNC, false, 0x001a0000 },
		{ REQ_OP_WRITE, REQ_SYNC | REQ_FUA, false, 0x801a0000 },
		{ REQ_OP_WRITE, REQ_PREFLUSH, false, 0x00160000 },
		{ REQ_OP_WRITE, REQ_NOMERGE, false, 0x00120000 },
		{ REQ_OP_WRITE_ZEROES, REQ_NOUNMAP, false, 0x00120000 },
		{ REQ_OP_DISCARD, 0, false, 0x20120000 },
		/* "FW", and what the device gets: "FN" */
		{ REQ_OP_FLUSH, 0, false, 0x00160000 },
		{ REQ_OP_FLUSH, 0, true, 0x01150000 },
	};
	unsigned i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(t); i++) {
		struct trace_event e = model;

		e.action = TRACE_QUEUE;
		e.op = (uint8_t)t[i].op;
		e.flags = t[i].flags;
		e.request = t[i].request;
		assert_record(&e, t[i].want | TRACE_QUEUE, NULL, 0);
	}
}

static void
writes_an_error_as_a_positive_errno(void **state)
{
	struct trace_event e = model;

	(void)state;
	e.action = TRACE_COMPLETE;
	e.request = true;
	e.error = -EIO;
	assert_record(&e, 0x01820008, NULL, 0);
}

/* ---- the stream */

static void
introduces_each_task_once(void **state)
{
	static const uint32_t tasks[] = { 7, 7, 8, 7, UINT32_MAX, 0, 0, 8 };
	static const char *const comms[] = { "conn 7", NULL, "conn 8", NULL,
		"conn 4294967295", "nullbd", NULL, NULL };
	struct blktrace_record r;
	unsigned i;

	(void)state;
	memset(b.introduced, 0, sizeof(b.introduced));
	for (i = 0; i < ARRAY_SIZE(tasks); i++) {
		struct trace_event e = model;
		size_t len;

		e.action = TRACE_QUEUE;
		e.task = tasks[i];
		len = blktrace_event(&b, &e, out);
		assert_int_equal(len, HEAD + (comms[i] != NULL ? NOTE : 0));
		if (comms[i] == NULL)
			continue;
		r = record_at(0);
		assert_int_equal(r.action, BLKTRACE_NOTIFY);
		assert_int_equal(r.sequence, 0);
		assert_int_equal(r.pid, tasks[i]);
		assert_int_equal(r.cpu, e.cpu);
		assert_int_equal(r.time, e.ns);
		assert_int_equal(r.pdu_len, 16);
		assert_string_equal(out + HEAD, comms[i]);
	}
}

static void
introduces_a_task_again_rather_than_remember_all(void **state)
{
	struct trace_event e = model;

	(void)state;
	e.action = TRACE_QUEUE;
	e.task = 9;
	blktrace_event(&b, &e, out);
	assert_int_equal(blktrace_event(&b, &e, out), HEAD);
	e.task = 9 + BLKTRACE_TASKS;
	assert_int_equal(blktrace_event(&b, &e, out), NOTE + HEAD);
	e.task = 9;
	assert_int_equal(blktrace_event(&b, &e, out), NOTE + HEAD);
}

static void
counts_the_records_of_each_cpu(void **state)
{
	struct trace_event e = model;
	unsigned i;

	(void)state;
	memset(b.sequence, 0, 4 * sizeof(*b.sequence));
	e.action = TRACE_QUEUE;
	blktrace_event(&b, &e, out);
	for (i = 0; i < 10; i++) {
		e.cpu = i % 2;
		blktrace_event(&b, &e, out);
		assert_int_equal(record_at(0).sequence, i / 2 + 1);
	}
}

static void
writes_messages_and_clips_them(void **state)
{
	char text[BLKTRACE_MAX_TEXT + 50];
	struct blktrace_record r;

	(void)state;
	assert_int_equal(
	    blktrace_message(&b, 1, 77, "3 events", out), HEAD + 8);
	r = record_at(0);
	assert_int_equal(r.action, BLKTRACE_NOTIFY | BLKTRACE_NOTE_MESSAGE);
	assert_int_equal(r.cpu, 1);
	assert_int_equal(r.time, 77);
	assert_int_equal(r.pdu_len, 8);
	assert_memory_equal(out + HEAD, "3 events", 8);
	assert_true(blktrace_valid(&r));
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(
	    blktrace_message(&b, 1, 77, text, out), HEAD + BLKTRACE_MAX_TEXT);
}

static void
knows_a_record_from_other_bytes(void **state)
{
	struct blktrace_record r = { .magic = 0x65617407, .cpu = 3 };

	(void)state;
	assert_true(blktrace_valid(&r));
	r.magic = 0x65617406;
	assert_false(blktrace_valid(&r));
	r.magic = 0x07746165; /* another byte order */
	assert_false(blktrace_valid(&r));
	r.magic = 0x65617407;
	r.cpu = BLKTRACE_MAX_CPUS;
	assert_false(blktrace_valid(&r));
}

/* ---- files */

static char dir[] = "/tmp/nullb-blktrace-XXXXXX";
static char base[64];

static int
setup_dir(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(base, sizeof(base), "%s/t", dir);
	return 0;
}

static const char *
file_name(unsigned cpu)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s.blktrace.%u", base, cpu);
	return path;
}

static int
teardown_dir(void **state)
{
	unsigned cpu;

	(void)state;
	for (cpu = 0; cpu < 8; cpu++)
		unlink(file_name(cpu));
	return rmdir(dir);
}

static off_t
size_of(unsigned cpu)
{
	struct stat st;

	return stat(file_name(cpu), &st) == 0 ? st.st_size : -1;
}

static void
keeps_a_file_for_each_cpu(void **state)
{
	struct tracefile *t;
	char err[200] = "";

	(void)state;
	t = tracefile_new(base, 4, err, sizeof(err));
	assert_non_null(t);
	assert_int_equal(tracefile_write(t, 2, "abc", 3), 0);
	assert_int_equal(tracefile_write(t, 0, "defgh", 5), 0);
	assert_int_equal(tracefile_flush(t), 0);
	assert_int_equal(size_of(0), 5);
	assert_int_equal(size_of(1), 0); /* or blkparse would end here */
	assert_int_equal(size_of(2), 3);
	assert_int_equal(size_of(3), 0);
	assert_int_equal(size_of(4), -1);
	tracefile_free(t);
}

static void
leaves_nothing_of_an_earlier_trace(void **state)
{
	struct tracefile *t;
	char err[200] = "";

	(void)state;
	t = tracefile_new(base, 2, err, sizeof(err));
	assert_non_null(t);
	assert_int_equal(size_of(0), 0);
	assert_int_equal(size_of(1), 0);
	assert_int_equal(size_of(2), -1);
	assert_int_equal(size_of(3), -1);
	tracefile_free(t);
}

static void
refuses_files_that_another_trace_writes(void **state)
{
	struct tracefile *t;
	char err[200] = "";

	(void)state;
	t = tracefile_new(base, 2, err, sizeof(err));
	assert_non_null(t);
	tracefile_write(t, 0, "abc", 3);
	tracefile_flush(t);
	assert_null(tracefile_new(base, 2, err, sizeof(err)));
	assert_non_null(strstr(err, "t.blktrace.0: another trace"));
	assert_int_equal(size_of(0), 3);
	tracefile_free(t);
	t = tracefile_new(base, 2, err, sizeof(err));
	assert_non_null(t);
	tracefile_free(t);
}

static void
says_which_file_cannot_be_made(void **state)
{
	char err[200] = "";

	(void)state;
	assert_null(tracefile_new("/nowhere/t", 2, err, sizeof(err)));
	assert_string_equal(
	    err, "/nowhere/t.blktrace.0: No such file or directory");
}

static void
says_when_there_is_no_room(void **state)
{
	struct tracefile *t;
	char err[200] = "";

	(void)state;
	unlink(file_name(1));
	assert_int_equal(symlink("/dev/full", file_name(1)), 0);
	t = tracefile_new(base, 2, err, sizeof(err));
	assert_non_null(t);
	assert_int_equal(tracefile_write(t, 1, "abc", 3), 0);
	assert_int_equal(tracefile_flush(t), -ENOSPC);
	tracefile_free(t);
}

int
main(void)
{
	const struct CMUnitTest records[] = {
		cmocka_unit_test(writes_each_action_as_the_kernel_does),
		cmocka_unit_test(writes_payloads_big_endian),
		cmocka_unit_test(writes_what_kind_of_io_it_is),
		cmocka_unit_test(writes_an_error_as_a_positive_errno),
		cmocka_unit_test(introduces_each_task_once),
		cmocka_unit_test(
		    introduces_a_task_again_rather_than_remember_all),
		cmocka_unit_test(counts_the_records_of_each_cpu),
		cmocka_unit_test(writes_messages_and_clips_them),
		cmocka_unit_test(knows_a_record_from_other_bytes),
	};
	const struct CMUnitTest files[] = {
		cmocka_unit_test(keeps_a_file_for_each_cpu),
		cmocka_unit_test(leaves_nothing_of_an_earlier_trace),
		cmocka_unit_test(refuses_files_that_another_trace_writes),
		cmocka_unit_test(says_which_file_cannot_be_made),
		cmocka_unit_test(says_when_there_is_no_room),
	};
	int failed = cmocka_run_group_tests(records, setup, teardown);

	return failed + cmocka_run_group_tests(files, setup_dir, teardown_dir);
}
