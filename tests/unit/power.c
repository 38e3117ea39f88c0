/* SPDX-License-Identifier: MIT */
/* What of a disk stays when its power goes, and what its queue does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unit/host.h"

#define NR_CPUS 2u

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;
static char err[512];

static void
open_disk(const char *settings)
{
	machine = host_new(NR_CPUS);
	pool = page_pool_new(machine, 64 << 20);
	disk = host_disk(machine, pool, settings);
}

static void
close_disk(void)
{
	for (unsigned i = 0; i < NR_CPUS; i++)
		rest(pool, &machine->cpu[i]);
	disk_free(disk);
	page_pool_free(pool);
	machine_free(machine);
}

static void
set(const char *name, const char *value)
{
	if (disk_set(disk, name, value, 1, err, sizeof(err)) != 0)
		fail_msg("%s", err);
}

/* As a loop does: each cpu has a turn. */
static void
run_cpus(uint64_t now)
{
	for (unsigned i = 0; i < NR_CPUS; i++)
		cpu_run(&machine->cpu[i], now);
}

static void
off(void)
{
	int ret, turns = 0;

	disk_power_down(disk, 1);
	while ((ret = disk_power_off(disk)) == -EINPROGRESS && turns++ < 9)
		run_cpus(1);
	assert_int_equal(ret, 0);
	assert_null(disk->queue);
	assert_null(disk->store);
}

static void
on(void)
{
	if (disk_power_on(disk, 1, err, sizeof(err)) != 0)
		fail_msg("%s", err);
}

static void
on_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	*(int *)bio->priv = bio->error == 0 ? 1 : bio->error;
	bio_release(bio, cpu);
}

static int
submit(struct bio *bio)
{
	struct cpu *cpu = machine->cpu;
	static int result;

	result = 0;
	bio->end_io = on_end;
	bio->priv = &result;
	turn(cpu);
	assert_int_equal(queue_submit(disk->queue, cpu, NULL, bio, 1), 0);
	cpu_run(cpu, 1);
	epoch_leave(&machine->epoch, cpu->id);
	return result;
}

static int
io_flush(void)
{
	static struct bio bio;

	bio_init(&bio, REQ_OP_FLUSH, 0, NULL, 0);
	return submit(&bio);
}

/* Of 512 bytes; returns 1 when it has ended well, 0: it has not. */
static int
io(enum req_op op, uint64_t pos, char *data)
{
	static struct bio bio;

	bio_init(&bio, op, pos, NULL, 0);
	bio_add(&bio, true, 4096, data, 512);
	return submit(&bio);
}

static void
write_byte(uint64_t pos, char byte)
{
	char data[512];

	memset(data, byte, sizeof(data));
	assert_int_equal(io(REQ_OP_WRITE, pos, data), 1);
}

static char
read_byte(uint64_t pos)
{
	char data[512] = "?";

	assert_int_equal(io(REQ_OP_READ, pos, data), 1);
	return data[511];
}

static void
keeps_data_and_bad_blocks(void **state)
{
	char data[512];

	(void)state; /* 1.1: freed only at rmdir */
	open_disk("memory_backed=1 size=1 badblocks=+8-8");
	write_byte(0, 'a');
	off();
	assert_false(disk_shown(disk)->power);
	on();
	assert_true(disk_shown(disk)->power);
	assert_int_equal(read_byte(0), 'a');
	assert_int_equal(io(REQ_OP_READ, 8 * 512, data), -EIO);
	off();
	close_disk();
}

static void
loses_what_is_not_flushed(void **state)
{
	(void)state; /* 1.1, 1.5: null_blk's way to cut the power */
	open_disk("memory_backed=1 size=1 cache_size=64K");
	write_byte(0, 'a');
	assert_int_equal(io_flush(), 1);
	write_byte(0, 'b');
	write_byte(8192, 'c');
	assert_int_equal(read_byte(0), 'b');
	off();
	on();
	assert_int_equal(read_byte(0), 'a');
	assert_int_equal(read_byte(8192), 0);
	off();
	close_disk();
}

static void
keeps_data_of_any_size_that_reaches_it(void **state)
{
	(void)state;
	open_disk("memory_backed=1 size=2");
	write_byte(0, 'a');
	write_byte((2 << 20) - 512, 'z');
	off();
	set("size", "1");
	set("blocksize", "4096");
	on();
	assert_int_equal(disk_size(disk), 1 << 20);
	off();
	set("blocksize", "512");
	set("size", "1048576");
	on();
	assert_int_equal(read_byte(0), 'a');
	assert_int_equal(read_byte((2 << 20) - 512), 'z');
	assert_int_equal(read_byte(1ull << 39), 0);
	off();
	close_disk();
}

static void
keeps_data_while_it_is_not_memory_backed(void **state)
{
	(void)state; /* as null_blk, whose tree of pages stays */
	open_disk("memory_backed=1 size=1");
	write_byte(0, 'a');
	off();
	set("memory_backed", "0");
	on();
	assert_int_equal(read_byte(0), 0);
	off();
	set("memory_backed", "1");
	on();
	assert_int_equal(read_byte(0), 'a');
	off();
	close_disk();
}

static void
goes_on_and_off_again_without_a_word(void **state)
{
	(void)state; /* 1.1: 1->1 and 0->0 are silent successes */
	open_disk("size=1");
	on();
	off();
	assert_int_equal(disk_power_off(disk), 0);
	on();
	on();
	off();
	close_disk();
}

static void
stays_off_with_its_settings_when_they_are_refused(void **state)
{
	(void)state; /* 1.1: on failure the settings are kept */
	open_disk("memory_backed=1 size=1");
	write_byte(0, 'a');
	off();
	set("blocksize", "1000");
	assert_int_equal(disk_power_on(disk, 1, err, sizeof(err)), -EINVAL);
	assert_null(disk->queue);
	assert_null(disk->store);
	assert_false(disk_shown(disk)->power);
	assert_int_equal(disk_shown(disk)->blocksize, 1000);
	set("blocksize", "1024");
	on();
	assert_int_equal(disk->queue->limits.logical_block_size, 1024);
	off();
	close_disk();
}

static void
is_unlocked_while_it_is_off(void **state)
{
	(void)state;
	open_disk("size=1");
	assert_int_equal(
	    disk_set(disk, "size", "2", 1, err, sizeof(err)), -EBUSY);
	off();
	set("size", "2");
	on();
	assert_int_equal(disk_size(disk), 2 << 20);
	off();
	close_disk();
}

static void
is_not_set_while_it_goes_off(void **state)
{
	(void)state;
	open_disk("size=1");
	disk_power_down(disk, 1);
	assert_int_equal(
	    disk_set(disk, "mbps", "2", 1, err, sizeof(err)), -EBUSY);
	assert_string_equal(err, "mbps: the power is going off");
	off();
	set("mbps", "2");
	close_disk();
}

static void
waits_for_what_is_in_flight(void **state)
{
	char data[512];

	(void)state;
	open_disk("size=1 irqmode=2 completion_nsec=1000");
	assert_int_equal(io(REQ_OP_READ, 0, data), 0);
	disk_power_down(disk, 1);
	for (unsigned i = 0; i < 9; i++) {
		assert_int_equal(disk_power_off(disk), -EINPROGRESS);
		run_cpus(900);
	}
	run_cpus(1001);
	off();
	close_disk();
}

static void
lets_go_what_mbps_holds_back(void **state)
{
	char data[512];
	int i;

	(void)state;
	open_disk("size=1024 mbps=1");
	for (i = 0; i < 1000 && io(REQ_OP_READ, 0, data) == 1; i++)
		;
	assert_true(i < 1000); /* now one waits */
	disk_power_down(disk, 1);
	run_cpus(1);
	off();
	close_disk();
}

static void
waits_for_a_change_that_was_begun(void **state)
{
	(void)state;
	open_disk("size=1");
	assert_int_equal(
	    disk_set(disk, "nomerges", "1", 1, err, sizeof(err)), -EINPROGRESS);
	disk_power_down(disk, 1);
	assert_int_equal(disk_power_off(disk), -EBUSY);
	assert_int_equal(disk_settle(disk, 1, err, sizeof(err)), 0);
	off();
	on();
	assert_int_equal(disk->conf.nomerges, 1);
	off();
	close_disk();
}

static void
mbps_holds_nothing_back_after_a_change_either(void **state)
{
	char data[512];
	int i;

	(void)state;
	open_disk("size=1024 mbps=1");
	assert_int_equal(
	    disk_set(disk, "nomerges", "1", 1, err, sizeof(err)), -EINPROGRESS);
	disk_power_down(disk, 1);
	assert_int_equal(disk_settle(disk, 1, err, sizeof(err)), 0);
	for (i = 0; i < 3000 && io(REQ_OP_READ, 0, data) == 1; i++)
		;
	assert_int_equal(i, 3000);
	off();
	on();
	for (i = 0; i < 3000 && io(REQ_OP_READ, 0, data) == 1; i++)
		;
	assert_true(i < 3000); /* again it does */
	off();
	close_disk();
}

/* As settle() of a daemon, whose cpus run. */
static int
settle(const char *name, const char *value)
{
	int ret = disk_set(disk, name, value, 1, err, sizeof(err));

	for (unsigned i = 0; i < 9 && ret == -EINPROGRESS; i++) {
		ret = disk_settle(disk, 1, err, sizeof(err));
		run_cpus(1);
	}
	return ret;
}

static void
has_other_hardware_queues_while_it_is_on(void **state)
{
	(void)state; /* 1.2: 0 or more than there are CPUs is refused */
	open_disk("size=1 memory_backed=1");
	assert_int_equal(settle("submit_queues", "2"), 0);
	assert_int_equal(disk->conf.submit_queues, 2);
	assert_int_equal(disk->queue->conf.nr_hw_queues, 2);
	assert_ptr_equal(disk->queue->ctx[1]->hctx, disk->queue->hctx[1]);
	write_byte(0, 'a');
	assert_int_equal(settle("submit_queues", "3"), -EINVAL);
	assert_int_equal(settle("submit_queues", "0"), -EINVAL);
	assert_int_equal(disk->conf.submit_queues, 2);
	assert_int_equal(settle("scheduler", "mq-deadline"), 0);
	assert_int_equal(settle("submit_queues", "1"), 0);
	assert_int_equal(disk->queue->conf.nr_hw_queues, 1);
	assert_ptr_equal(disk->queue->ctx[1]->hctx, disk->queue->hctx[0]);
	assert_int_equal(read_byte(0), 'a');
	off();
	close_disk();
}

static void
changes_though_queues_were_clamped(void **state)
{
	(void)state; /* at power-on: what is set stays as it was */
	open_disk("size=1 submit_queues=9 poll_queues=9");
	assert_int_equal(settle("nomerges", "1"), 0);
	assert_int_equal(disk->conf.submit_queues, NR_CPUS);
	off();
	close_disk();
	open_disk("size=1 use_per_node_hctx=1");
	assert_int_equal(settle("submit_queues", "2"), -EINVAL);
	assert_int_equal(settle("submit_queues", "1"), 0);
	off();
	close_disk();
}

static void
takes_poll_queues_as_null_blk_does(void **state)
{
	(void)state; /* 1.2: at most the module parameter's, which is 1 */
	open_disk("size=1 poll_queues=3");
	assert_int_equal(disk->conf.poll_queues, 1);
	assert_int_equal(settle("poll_queues", "2"), -EINVAL);
	assert_int_equal(settle("poll_queues", "0"), 0);
	assert_int_equal(disk->conf.poll_queues, 0);
	off();
	close_disk();
}

static void
has_a_hardware_queue_for_the_one_node_there_is(void **state)
{
	(void)state;
	open_disk("size=1 use_per_node_hctx=1 submit_queues=2");
	assert_int_equal(disk->conf.submit_queues, 1);
	off();
	close_disk();
}

static void
has_as_many_tags_as_the_bitmap_is_for(void **state)
{
	(void)state;
	open_disk("size=1 submit_queues=2 hw_queue_depth=8 "
		  "shared_tag_bitmap=1");
	assert_int_equal(queue_nr_bitmaps(disk->queue), 1);
	off();
	set("shared_tag_bitmap", "0");
	on();
	assert_int_equal(queue_nr_bitmaps(disk->queue), 2);
	off();
	close_disk();
}

static void
has_less_memory_or_more_while_it_is_on(void **state)
{
	char data[512] = "x";

	(void)state;
	open_disk("size=1 memory_backed=1");
	write_byte(0, 'a');
	assert_int_equal(settle("memory_limit", "8192"), 0);
	write_byte(512, 'b');
	assert_int_equal(io(REQ_OP_WRITE, 65536, data), -ENOSPC);
	assert_int_equal(settle("memory_limit", "0"), 0);
	write_byte(65536, 'c');
	off();
	close_disk();
}

static void
begins_with_data_that_it_is_given(void **state)
{
	char data[512], got[512];
	struct store *store;

	(void)state;
	open_disk("size=1 memory_backed=1");
	off();
	store_free(disk_take_store(disk), NULL);
	memset(data, 0x44, sizeof(data));
	store = store_new(pool, 4096, 512, 0);
	assert_int_equal(store_write(store, NULL, 512, data, 512), 0);
	disk_give_store(disk, store, NULL);
	on(); /* of another size */
	assert_int_equal(io(REQ_OP_READ, 512, got), 1);
	assert_memory_equal(got, data, 512);
	assert_int_equal(io(REQ_OP_READ, 4096, got), 1);
	assert_int_equal(got[0], 0);
	off();
	close_disk();
}

static void
gives_its_data_away_to_be_freed(void **state)
{
	struct store *s;

	(void)state;
	open_disk("size=1 memory_backed=1");
	write_byte(0, 'a');
	off();
	s = disk_take_store(disk);
	assert_non_null(s);
	store_free(s, NULL);
	assert_int_equal(page_pool_used(pool), 0);
	assert_null(disk_take_store(disk));
	on();
	assert_int_equal(read_byte(0), 0);
	off();
	close_disk();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_data_and_bad_blocks),
		cmocka_unit_test(loses_what_is_not_flushed),
		cmocka_unit_test(keeps_data_of_any_size_that_reaches_it),
		cmocka_unit_test(keeps_data_while_it_is_not_memory_backed),
		cmocka_unit_test(goes_on_and_off_again_without_a_word),
		cmocka_unit_test(
		    stays_off_with_its_settings_when_they_are_refused),
		cmocka_unit_test(is_unlocked_while_it_is_off),
		cmocka_unit_test(is_not_set_while_it_goes_off),
		cmocka_unit_test(waits_for_what_is_in_flight),
		cmocka_unit_test(lets_go_what_mbps_holds_back),
		cmocka_unit_test(waits_for_a_change_that_was_begun),
		cmocka_unit_test(mbps_holds_nothing_back_after_a_change_either),
		cmocka_unit_test(has_other_hardware_queues_while_it_is_on),
		cmocka_unit_test(changes_though_queues_were_clamped),
		cmocka_unit_test(takes_poll_queues_as_null_blk_does),
		cmocka_unit_test(
		    has_a_hardware_queue_for_the_one_node_there_is),
		cmocka_unit_test(has_as_many_tags_as_the_bitmap_is_for),
		cmocka_unit_test(has_less_memory_or_more_while_it_is_on),
		cmocka_unit_test(begins_with_data_that_it_is_given),
		cmocka_unit_test(gives_its_data_away_to_be_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
