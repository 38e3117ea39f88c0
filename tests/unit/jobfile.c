/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compare/compare.h"

static const struct target two[] = { { "nullb0", "nbd+unix:///nullb0?s" },
	{ "fast", "nbd+unix:///fast?s" } };

/* Rewritten for the two devices: what comes out, and the notes. */
static void
expect(const char *in, const char *out, const char *notes)
{
	struct comparison c = {};
	char *text, *error, all[4096] = "";
	size_t i;

	assert_int_equal(jobfile_rewrite(in, two, 2, 0, &text, &c, &error), 0);
	assert_null(error);
	assert_string_equal(text, out);
	for (i = 0; i < c.nr_notes; i++) {
		strcat(all, c.notes[i]);
		strcat(all, "\n");
	}
	assert_string_equal(all, notes);
	free(text);
	comparison_fini(&c);
}

static void
expect_error(const char *in, const char *why)
{
	char *text, *error;

	assert_int_equal(
	    jobfile_rewrite(in, two, 2, 0, &text, NULL, &error), -EINVAL);
	assert_null(text);
	assert_non_null(error);
	assert_string_equal(error, why);
	free(error);
}

static void
sends_a_kernels_job_to_the_device(void **state)
{
	(void)state;
	expect("; a comment\n[global]\nioengine=libaio\n direct = 1\n"
	       "filename=/dev/nullb0\n\n[a]\nrw=randread\n",
	    "; a comment\n[global]\n direct = 1\n\n"
	    "[a]\nrw=randread\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n",
	    "ioengine=libaio became nbd\n"
	    "/dev/nullb0 is the device nullb0\n");
}

static void
takes_the_last_line_without_its_newline(void **state)
{
	(void)state;
	expect("[a]\nioengine=nbd\nuri=nbd://host/fast",
	    "[a]\nioengine=nbd\nuri=nbd+unix:///fast?s\n", "");
}

static void
lets_another_global_section_hold_for_what_follows(void **state)
{
	(void)state;
	expect("[global]\nioengine=psync\nfilename=/dev/nullb0\n[a]\nrw=read\n"
	       "[global]\nfilename=/dev/fast\n[b]\nrw=write\n",
	    "[global]\n[a]\nrw=read\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n"
	    "[global]\n[b]\nrw=write\nioengine=nbd\nuri=nbd+unix:///fast?s\n",
	    "ioengine=psync became nbd\n"
	    "/dev/nullb0 is the device nullb0\n"
	    "/dev/fast is the device fast\n");
}

static void
gives_other_names_the_devices_in_turn(void **state)
{
	(void)state;
	expect("[global]\nioengine=io_uring\n[a]\nfilename=/dev/sda\n"
	       "[b]\nfilename=/dev/sdb\n[c]\nfilename=/dev/sda\n",
	    "[global]\n[a]\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n"
	    "[b]\nioengine=nbd\nuri=nbd+unix:///fast?s\n"
	    "[c]\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n",
	    "ioengine=io_uring became nbd\n"
	    "/dev/sda is the device nullb0\n"
	    "/dev/sdb is the device fast\n");
}

static void
makes_a_job_of_each_file_of_a_list(void **state)
{
	(void)state;
	expect("[a]\nioengine=sync\nfilename=/dev/nullb0:/dev/fast\nrw=read\n",
	    "[a.nullb0]\nrw=read\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n"
	    "[a.fast]\nrw=read\nioengine=nbd\nuri=nbd+unix:///fast?s\n",
	    "ioengine=sync became nbd\n"
	    "/dev/nullb0 is the device nullb0\n"
	    "/dev/fast is the device fast\n"
	    "job a has several files: each has a job of its own, and what the "
	    "job says of depth and size is each one's\n");
	/* a colon that is part of a name */
	expect("[a]\nioengine=sync\nfilename=/dev/by\\:path\n",
	    "[a]\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n",
	    "ioengine=sync became nbd\n/dev/by:path is the device nullb0\n");
}

static void
puts_a_job_without_a_file_on_the_first(void **state)
{
	(void)state;
	expect("[a]\nrw=read\n",
	    "[a]\nrw=read\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n",
	    "ioengine=psync, which fio takes when none is named, became nbd\n"
	    "job a names no file: it is on nullb0\n");
}

static void
leaves_out_what_nbd_cannot_do(void **state)
{
	(void)state;
	expect("[a]\nioengine=io_uring\nfilename=/dev/fast\nfixedbufs\n"
	       "hipri=1\nregisterfiles\nbs=4k\n",
	    "[a]\nbs=4k\nioengine=nbd\nuri=nbd+unix:///fast?s\n",
	    "fixedbufs is left out: it has no meaning for ioengine=nbd\n"
	    "hipri is left out: it has no meaning for ioengine=nbd\n"
	    "registerfiles is left out: it has no meaning for ioengine=nbd\n"
	    "ioengine=io_uring became nbd\n"
	    "/dev/fast is the device fast\n");
}

static void
leaves_jobs_that_do_no_io_alone(void **state)
{
	(void)state;
	expect("[burn]\nioengine=cpuio\ncpuload=50\n",
	    "[burn]\ncpuload=50\nioengine=cpuio\n", "");
}

static void
replaces_variables_as_fio_does(void **state)
{
	(void)state;
	assert_int_equal(setenv("JOBFILE_DEVICE", "/dev/fast", 1), 0);
	unsetenv("JOBFILE_NOTHING");
	expect("[a]\nioengine=sync\nfilename=${JOBFILE_DEVICE}\n",
	    "[a]\nioengine=nbd\nuri=nbd+unix:///fast?s\n",
	    "ioengine=sync became nbd\n/dev/fast is the device fast\n");
	expect("[a]\nioengine=sync\nfilename=${JOBFILE_NOTHING}\n",
	    "[a]\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n",
	    "ioengine=sync became nbd\n"
	    "${JOBFILE_NOTHING} is the device nullb0\n");
}

static void
reads_lines_and_names_as_fio_does(void **state)
{
	(void)state;
	assert_int_equal(setenv("JOBFILE_ENGINE", "libaio", 1), 0);
	expect(" [a] ; not b\n\tioengine = ${JOBFILE_ENGINE} # a kernel's\n"
	       "filename=/dev/fast;slow\nrw=read ; kept\n",
	    "[a]\nrw=read ; kept\nioengine=nbd\nuri=nbd+unix:///fast?s\n",
	    "ioengine=libaio became nbd\n/dev/fast is the device fast\n");
	expect("[a]b]\nioengine=nbd\nuri=nbd://host/fas%74?x\n",
	    "[a]b]\nioengine=nbd\nuri=nbd+unix:///fast?s\n", "");
}

static void
leaves_out_what_would_change_the_log_that_is_read(void **state)
{
	(void)state;
	expect("[a]\nioengine=nbd\nuri=nbd:///\nlog_unix_epoch=1\n"
	       "per_job_logs=0\nlog_offset=1\n",
	    "[a]\nlog_offset=1\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n",
	    "log_unix_epoch is left out: the log of IOPS is made for the "
	    "comparison\n"
	    "per_job_logs is left out: the log of IOPS is made for the "
	    "comparison\n");
}

static void
takes_the_time_from_who_asks(void **state)
{
	char *text, *error;

	(void)state;
	assert_int_equal(
	    jobfile_rewrite(
		"[a]\nioengine=nbd\nuri=nbd:///\nruntime=600\ntime_based\n",
		two, 2, 3, &text, NULL, &error),
	    0);
	assert_string_equal(text,
	    "[global]\ntime_based=1\nruntime=3\n"
	    "[a]\nioengine=nbd\nuri=nbd+unix:///nullb0?s\n");
	free(text);
}

static void
refuses_what_it_cannot_send_there(void **state)
{
	static char line[6000];

	(void)state;
	expect_error("[a]\nioengine=sync\nfilename=/dev/nullb7\n",
	    "/dev/nullb7: no such device; the devices are: nullb0, fast");
	expect_error("[a]\nioengine=sync\nfilename=x:y:z\n",
	    "z: no device is left to stand for it; the devices are: nullb0, "
	    "fast");
	expect_error("[a]\nioengine=rados\n",
	    "job a: ioengine=rados does no I/O on a block device, or this does "
	    "not know it");
	expect_error("include other.fio\n[a]\n",
	    "include other.fio: the file is not read");
	expect_error("", "no job: a line such as [name] begins one");
	expect_error(
	    "[global]\nbs=4k\n", "no job: a line such as [name] begins one");
	memset(line, 'x', sizeof(line) - 1);
	expect_error(line, "line 1: more than 4095 bytes");
}

static void
survives_odd_text(void **state)
{
	(void)state;
	expect("[a]\n=\n===\n[]\n]\n[b\n\t\n",
	    "[a]\n=\n===\n[]\n]\n[b\n\t\nioengine=nbd\n"
	    "uri=nbd+unix:///nullb0?s\n",
	    "ioengine=psync, which fio takes when none is named, became nbd\n"
	    "job a names no file: it is on nullb0\n");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		{ "sends a kernel's job to the device",
		    sends_a_kernels_job_to_the_device, NULL, NULL, NULL },
		{ "takes the last line without its newline",
		    takes_the_last_line_without_its_newline, NULL, NULL, NULL },
		{ "lets another [global] hold for what follows",
		    lets_another_global_section_hold_for_what_follows, NULL,
		    NULL, NULL },
		{ "gives other names the devices in turn",
		    gives_other_names_the_devices_in_turn, NULL, NULL, NULL },
		{ "makes a job of each file of a list",
		    makes_a_job_of_each_file_of_a_list, NULL, NULL, NULL },
		{ "puts a job without a file on the first device",
		    puts_a_job_without_a_file_on_the_first, NULL, NULL, NULL },
		{ "leaves out what NBD cannot do",
		    leaves_out_what_nbd_cannot_do, NULL, NULL, NULL },
		{ "leaves jobs that do no I/O alone",
		    leaves_jobs_that_do_no_io_alone, NULL, NULL, NULL },
		{ "replaces variables as fio does",
		    replaces_variables_as_fio_does, NULL, NULL, NULL },
		{ "reads lines and names as fio does",
		    reads_lines_and_names_as_fio_does, NULL, NULL, NULL },
		{ "leaves out what would change the log that is read",
		    leaves_out_what_would_change_the_log_that_is_read, NULL,
		    NULL, NULL },
		{ "takes the time from who asks", takes_the_time_from_who_asks,
		    NULL, NULL, NULL },
		{ "refuses what it cannot send there",
		    refuses_what_it_cannot_send_there, NULL, NULL, NULL },
		{ "survives odd text", survives_odd_text, NULL, NULL, NULL },
	};

	return cmocka_run_group_tests_name("job files", tests, NULL, NULL);
}
