/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "host.h"

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;
static struct bio bio;

static void
open_disk(const char *settings)
{
	machine = host_new(5);
	turn(&machine->cpu[0]);
	pool = page_pool_new(machine, 0);
	disk = host_disk(machine, pool, settings);
}

static void
close_disk(void)
{
	rest(pool, &machine->cpu[0]);
	disk_free(disk);
	page_pool_free(pool);
	machine_free(machine);
}

static void
end_io(struct bio *b, struct cpu *cpu, uint64_t now)
{
	(void)now;
	bio_release(b, cpu);
}

/* A read on cpu 1 that the driver holds until the time is 1 s. */
static void
read_one(void)
{
	bio_init(&bio, REQ_OP_READ, 0, NULL, 0);
	bio_add(&bio, true, 1 << 30, NULL, PAGE_SIZE);
	bio.end_io = end_io;
	assert_int_equal(
	    queue_submit(disk->queue, &machine->cpu[1], NULL, &bio, 2000000),
	    0);
	cpu_run(&machine->cpu[1], 2000000);
}

static char *
printed(json_t *json)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(queueinfo_print(json, out), 0);
	fclose(out);
	return text;
}

/* Open a disk with these settings: its queue's text has this line. */
static void
assert_line(const char *settings, const char *line)
{
	json_t *json;
	char *text;

	open_disk(settings);
	json = queueinfo_pack(disk);
	text = printed(json);
	if (strstr(text, line) == NULL)
		fail_msg("%s: no \"%s\" in\n%s", settings, line, text);
	free(text);
	json_decref(json);
	close_disk();
}

static void
shows_the_limits_in_force_by_the_names_of_sysfs(void **state)
{
	(void)state;
	assert_line("", "/sys/block/nullb0/queue\n  scheduler              none"
			"\n  nomerges               0\n");
	assert_line("", "\n  max_sectors_kb         127\n");
	assert_line("", "\n  a request has at most 255 sectors\n");
	assert_line("max_segments=7", "\n  max_segments           7\n");
	assert_line("virt_boundary=1", "\n  virt_boundary_mask     4095\n");
}

static void
says_the_rules_of_each_age_of_the_plug(void **state)
{
	(void)state; /* 3.6, 4.1 */
	assert_line("kernel=4.14",
	    "\nthe plug of 4.14\n"
	    "  opens for      a batch of at least 1\n"
	    "  holds          requests of a queue, at most 16\n"
	    "  merges with    any of its requests, the newest first\n"
	    "  emptied when   the newest has 131072 bytes\n"
	    "  handed on      sorted by cpu and sector\n");
	assert_line("kernel=5.4",
	    "  handed on      oldest first; of several queues "
	    "sorted\n");
	assert_line("kernel=6.1",
	    "  opens for      a batch of at least 3\n"
	    "  holds          requests, at most 32; of several queues 64\n"
	    "  merges with    its newest request; of several queues, the "
	    "newest of the same\n"
	    "  emptied when   the newest has 131072 bytes\n"
	    "  handed on      newest first\n");
	assert_line("kernel=6.12",
	    "  merges with    its newest request; of several queues, the "
	    "oldest of the same\n"
	    "  emptied when   the oldest has 131072 bytes\n"
	    "  handed on      oldest first\n");
	assert_line("kernel=6.12 nomerges=2",
	    "  merges with    nothing: nomerges is 2\n"
	    "  handed on ");
	assert_line("kernel=4.14 submit_queues=2",
	    "  holds          requests of a queue, at most 1\n");
	assert_line("kernel=4.14 submit_queues=2 nomerges=2",
	    "  holds          requests of a queue, at most 0\n");
	assert_line("kernel=6.1 queue_mode=0", "\nno plug: queue_mode 0");
	assert_line("plug=each", "\nno plug: each I/O is started by itself\n");
	assert_line("plug=call", "\nno plug: I/O gathers on the queue");
}

static void
shows_a_scheduler_with_its_tunables(void **state)
{
	(void)state;
	assert_line("scheduler=mq-deadline iosched/fifo_batch=7",
	    "  iosched/fifo_batch     7\n");
	assert_line("scheduler=mq-deadline nr_requests=100",
	    "\nscheduler mq-deadline, 0 of 100 requests in use, 0 of them "
	    "queued; 0 of 64 tags in use\n");
}

static void
gives_each_hardware_queue_a_line(void **state)
{
	json_t *json, *hctx;
	char *text;

	(void)state; /* cpu i maps to hctx i mod 3 */
	open_disk("submit_queues=3 hw_queue_depth=10 irqmode=2 "
		  "completion_nsec=998000000");
	read_one();
	json = queueinfo_pack(disk);
	assert_int_equal(
	    json_integer_value(json_object_get(
		json_object_get(json, "scheduler"), "tags_in_use")),
	    1);
	hctx = json_array_get(json_object_get(json, "hardware_queues"), 1);
	assert_int_equal(json_array_size(json_object_get(hctx, "cpus")), 2);
	text = printed(json);
	assert_non_null(strstr(text,
	    "\nscheduler none, 1 of 30 tags in use\n"
	    "\n"
	    "HCTX  TAGS SOFTWARE DISPATCH INFLIGHT (R/W)        IOS     MERGES "
	    "     SECTORS CPUS\n"
	    "   0     0        0        0        0/0              0          0 "
	    "           0 0,3\n"
	    "   1     1        0        0        1/0              0          0 "
	    "           0 1,4\n"
	    "   2     0        0        0        0/0              0          0 "
	    "           0 2\n"));
	free(text);
	json_decref(json);

	cpu_run(&machine->cpu[1], 1000000000);
	json = queueinfo_pack(disk);
	text = printed(json);
	assert_non_null(strstr(text, "scheduler none, 0 of 30 tags in use\n"));
	assert_non_null(strstr(text,
	    "   1     0        0        0        0/0              1          0 "
	    "           8 1,4\n"));
	free(text);
	json_decref(json);
	close_disk();
	assert_line("submit_queues=1", " 0-4\n");
	assert_line("submit_queues=4", " 0,4\n");
}

static void
refuses_to_print_something_else(void **state)
{
	static const char *members[] = { "name", "scheduler", "plug" };
	FILE *out = fopen("/dev/null", "w");
	json_t *json;

	(void)state;
	assert_int_equal(queueinfo_print(NULL, out), -EINVAL);
	open_disk("");
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		json = queueinfo_pack(disk);
		json_object_set_new(json, members[i], json_true());
		assert_int_equal(queueinfo_print(json, out), -EINVAL);
		json_decref(json);
	}
	json = queueinfo_pack(disk);
	json_array_append_new(
	    json_object_get(json, "hardware_queues"), json_true());
	assert_int_equal(queueinfo_print(json, out), -EINVAL);
	json_decref(json);
	close_disk();
	fclose(out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    shows_the_limits_in_force_by_the_names_of_sysfs),
		cmocka_unit_test(says_the_rules_of_each_age_of_the_plug),
		cmocka_unit_test(shows_a_scheduler_with_its_tunables),
		cmocka_unit_test(gives_each_hardware_queue_a_line),
		cmocka_unit_test(refuses_to_print_something_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
