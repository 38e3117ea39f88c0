/* SPDX-License-Identifier: MIT */
/* mbps, request by request; over 10 s: tests/pipe/throttle.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/host.h"

#define MS   UINT64_C(1000000)
#define TICK (20 * MS)
#define KIB  1024u
#define MIB  (1024u * KIB)
/* what mbps=1 gives a tick: 20,971 bytes */
#define START UINT64_C(1000000)

static char memory[MIB];
static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;
static uint64_t now;

struct io {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	bool ended;
	uint64_t ended_ns;
};

static void
open_disk(const char *settings)
{
	machine = host_new(2);
	pool = page_pool_new(machine, 0);
	epoch_enter(&machine->epoch, 0);
	epoch_enter(&machine->epoch, 1);
	disk = host_disk(machine, pool, settings);
	now = START;
}

static void
close_disk(void)
{
	disk_free(disk);
	epoch_leave(&machine->epoch, 0);
	epoch_leave(&machine->epoch, 1);
	page_pool_free(pool);
	machine_free(machine);
}

static void
io_ended(struct bio *bio, struct cpu *cpu, uint64_t when)
{
	struct io *io = bio->priv;

	(void)cpu;
	io->ended = true;
	io->ended_ns = when;
}

static struct io *
submit(unsigned cpu, enum req_op op, uint64_t pos, uint64_t len)
{
	struct io *io = calloc(1, sizeof(*io));

	bio_init(&io->bio, op, pos, io->bv, BIO_MAX_VECS);
	io->bio.end_io = io_ended;
	io->bio.priv = io;
	if (op == REQ_OP_READ || op == REQ_OP_WRITE)
		assert_int_equal(bio_add_payload(&io->bio, true,
				     UINT64_C(1) << 40, 9, 0, memory, len),
		    len);
	else
		io->bio.bytes = len;
	if (op == REQ_OP_FLUSH)
		io->bio.flags = REQ_PREFLUSH;
	assert_int_equal(
	    queue_submit(disk->queue, &machine->cpu[cpu], NULL, &io->bio, now),
	    0);
	return io;
}

static uint64_t
run_cpus(void)
{
	uint64_t a = cpu_run(&machine->cpu[0], now);
	uint64_t b = cpu_run(&machine->cpu[1], now);

	return a < b ? a : b;
}

static void
run_until(uint64_t end)
{
	uint64_t next;

	while ((next = run_cpus()) <= end)
		now = next;
	now = end;
}

/* When it ended, after now. */
static uint64_t
wait_for(struct io *io)
{
	uint64_t start = now;

	while (!io->ended) {
		uint64_t next = run_cpus();

		if (!io->ended)
			assert_int_not_equal(next, CPU_NO_DEADLINE);
		if (next != CPU_NO_DEADLINE)
			now = next;
	}
	return io->ended_ns - start;
}

static void
io_free(struct io *io)
{
	assert_true(io->ended);
	assert_int_equal(io->bio.error, 0);
	bio_release(&io->bio, io->bio.cpu);
	free(io);
}

static uint64_t
time_of(enum req_op op, uint64_t len)
{
	struct io *io = submit(0, op, 0, len);
	uint64_t ns = wait_for(io);

	io_free(io);
	return ns;
}

static void
a_large_request_takes_the_time_of_its_bytes(void **state)
{
	static const char *const settings[] = {
		"mbps=1",                  /* nine requests */
		"mbps=1 max_sectors=2048", /* one: null_blk's hangs for ever */
		"mbps=1 max_sectors=2048 scheduler=mq-deadline",
		"mbps=1 kernel=6.1 queue_mode=0",
	};
	uint64_t ns;

	(void)state;
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		open_disk(settings[i]);
		/* 50 ticks give 26 bytes less; and the first is there */
		assert_int_equal(time_of(REQ_OP_WRITE, MIB), 1000 * MS);
		ns = time_of(REQ_OP_READ, MIB);
		assert_in_range(ns, 980 * MS, 1000 * MS);
		close_disk();
	}
}

static void
a_tick_goes_at_once_and_not_more(void **state)
{
	struct io *io[6];

	(void)state; /* 20,971 bytes: five of 4 KiB, and 491 towards the next */
	open_disk("mbps=1");
	for (unsigned i = 0; i < 6; i++)
		io[i] = submit(0, REQ_OP_WRITE, i * MIB, 4096);
	run_cpus();
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(io[i]->ended, i < 5);
	assert_int_equal(wait_for(io[5]), TICK);
	for (unsigned i = 0; i < 6; i++)
		io_free(io[i]);
	close_disk();
}

static void
what_nobody_used_is_not_saved_up(void **state)
{
	(void)state;
	open_disk("mbps=1");
	assert_int_equal(time_of(REQ_OP_WRITE, 4096), 0);
	now += 3600 * 1000 * MS;
	assert_int_equal(time_of(REQ_OP_WRITE, 20480), 0);
	/* 491 of the tick are left: ten ticks are 209,710 */
	assert_int_equal(time_of(REQ_OP_WRITE, 205 * KIB), 10 * TICK);
	close_disk();
}

static void
the_time_of_a_late_look_is_not_lost_to_who_waits(void **state)
{
	struct io *io[2];

	(void)state;
	open_disk("mbps=1 nomerges=2");
	io[0] = submit(0, REQ_OP_WRITE, 0, 20 * KIB);
	io[1] = submit(0, REQ_OP_WRITE, MIB, 20 * KIB);
	now += 5 * TICK + 1;
	run_cpus();
	io_free(io[0]);
	io_free(io[1]);
	assert_int_equal(time_of(REQ_OP_WRITE, 80 * KIB), 0);
	close_disk();
}

static void
all_that_moves_or_discards_counts_and_a_flush_does_not(void **state)
{
	static const enum req_op ops[] = { REQ_OP_READ, REQ_OP_WRITE,
		REQ_OP_DISCARD, REQ_OP_WRITE_ZEROES };

	(void)state;
	open_disk("mbps=1 memory_backed=1 discard=1 "
		  "queue/write_zeroes_max_bytes=1048576");
	for (unsigned i = 0; i < 4; i++) {
		now += 1000 * MS;
		time_of(ops[i], 16 * KIB);
		assert_int_equal(time_of(ops[i], 16 * KIB), TICK);
	}
	assert_int_equal(time_of(REQ_OP_FLUSH, 0), 0);
	close_disk();
}

/* Two hardware queues: the large one came first, the small ones never end. */
static void
small_requests_do_not_starve_a_large_one(void **state)
{
	struct io *large, *small, *next;
	uint64_t start;

	(void)state;
	open_disk("mbps=1 submit_queues=2 max_sectors=2048 nomerges=2");
	small = submit(0, REQ_OP_WRITE, 0, 16 * KIB);
	next = submit(0, REQ_OP_WRITE, 64 * KIB, 16 * KIB);
	large = submit(1, REQ_OP_WRITE, 64 * MIB, MIB);
	start = now;
	while (!large->ended) {
		if (small->ended) {
			io_free(small);
			small = next;
			next = submit(0, REQ_OP_WRITE, 0, 16 * KIB);
		}
		now = run_cpus();
		assert_true(now < start + 1100 * MS);
	}
	wait_for(small);
	wait_for(next);
	io_free(small);
	io_free(next);
	io_free(large);
	close_disk();
}

/* What waits is not offered to the driver again and again. */
static void
looks_again_when_it_is_time(void **state)
{
	struct io *io;
	unsigned turns = 0;

	(void)state;
	open_disk("mbps=1 max_sectors=2048");
	io = submit(0, REQ_OP_WRITE, 0, MIB);
	while (!io->ended) {
		now = run_cpus();
		turns++;
	}
	assert_int_equal(turns, 2);
	io_free(io);
	close_disk();
}

static int
set(const char *name, const char *value)
{
	char err[256];
	int ret = disk_set(disk, name, value, now, err, sizeof(err));

	if (ret != 0 && ret != -EINPROGRESS)
		print_message("%s\n", err);
	return ret;
}

static void
a_change_is_in_force_for_those_who_wait(void **state)
{
	struct io *io;

	(void)state;
	open_disk("mbps=1 max_sectors=2048");
	io = submit(0, REQ_OP_WRITE, 0, MIB);
	run_until(START + 100 * MS);
	assert_false(io->ended);
	assert_int_equal(set("mbps", "10"), 0); /* at once, without a freeze */
	/* 6 ticks of 20,971 are there; 5 of 209,710 do the rest */
	assert_int_equal(wait_for(io), 5 * TICK);
	io_free(io);
	now += 1000 * MS;
	io = submit(0, REQ_OP_WRITE, 0, MIB);
	run_until(now + 20 * MS);
	assert_int_equal(set("mbps", "1"), 0); /* slower, too */
	assert_in_range(wait_for(io), 500 * MS, 700 * MS);
	io_free(io);
	io = submit(0, REQ_OP_WRITE, 0, MIB);
	run_cpus();
	assert_int_equal(set("mbps", "0"), 0);
	assert_int_equal(wait_for(io), 0);
	io_free(io);
	close_disk();
}

static void
a_lower_limit_keeps_nothing_of_the_higher(void **state)
{
	(void)state;
	open_disk("mbps=40960");
	assert_int_equal(set("mbps", "1"), 0);
	assert_int_equal(time_of(REQ_OP_WRITE, MIB), 1000 * MS);
	assert_int_equal(set("mbps", "0"), 0);
	assert_int_equal(set("mbps", "1"), 0);
	assert_int_equal(time_of(REQ_OP_WRITE, MIB), 1000 * MS);
	close_disk();
}

static void
does_not_wait_for_another_change_nor_undoes_it(void **state)
{
	char err[256];
	struct io *io;
	int ret;

	(void)state;
	open_disk("mbps=1 max_sectors=2048");
	io = submit(0, REQ_OP_WRITE, 0, MIB);
	run_cpus();
	assert_int_equal(set("nomerges", "2"), -EINPROGRESS);
	assert_int_equal(set("mbps", "1000"), 0);
	wait_for(io);
	io_free(io);
	epoch_leave(&machine->epoch, 0);
	epoch_leave(&machine->epoch, 1);
	while ((ret = disk_settle(disk, now, err, sizeof(err))) == -EINPROGRESS)
		now += MS;
	assert_int_equal(ret, 0);
	epoch_enter(&machine->epoch, 0);
	epoch_enter(&machine->epoch, 1);
	assert_int_equal(disk->conf.mbps, 1000);
	assert_int_equal(disk->set.mbps, 1000);
	assert_int_equal(disk->conf.nomerges, 2);
	close_disk();
}

static void
what_waits_goes_at_once_when_the_disk_goes(void **state)
{
	struct io *io[64];

	(void)state;
	open_disk("mbps=1 nomerges=2");
	for (unsigned i = 0; i < 64; i++)
		io[i] = submit(i % 2, REQ_OP_WRITE, i * MIB, 64 * KIB);
	run_until(START + 50 * MS);
	assert_false(io[63]->ended);
	disk_hurry(disk, now);
	run_cpus();
	for (unsigned i = 0; i < 64; i++)
		io_free(io[i]);
	close_disk();
}

static void
is_refused_or_clamped_as_null_blk_has_it(void **state)
{
	(void)state;
	open_disk("mbps=4294967295");
	assert_int_equal(disk->conf.mbps, 40960);
	assert_int_equal(set("mbps", "50000"), 0);
	assert_int_equal(disk->conf.mbps, 40960);
	assert_int_equal(disk->set.mbps, 50000);
	assert_int_equal(set("mbps", "-1"), -EINVAL);
	assert_int_equal(disk->conf.mbps, 40960);
	close_disk();
}

/* Two threads under a limit that a third changes. */
static void *
use_cpu(void *arg)
{
	unsigned id = *(unsigned *)arg;
	struct cpu *cpu = &machine->cpu[id];
	uint64_t when = START;

	for (unsigned i = 0; i < 2000; i++) {
		struct io *io = calloc(1, sizeof(*io));

		bio_init(
		    &io->bio, REQ_OP_WRITE, i % 64 * MIB, io->bv, BIO_MAX_VECS);
		bio_add_payload(
		    &io->bio, true, UINT64_C(1) << 40, 9, 0, memory, 256 * KIB);
		io->bio.end_io = io_ended;
		io->bio.priv = io;
		while (
		    queue_submit(disk->queue, cpu, NULL, &io->bio, when) != 0) {
			when += MS;
			cpu_run(cpu, when);
		}
		while (!io->ended) {
			when += MS;
			cpu_run(cpu, when);
		}
		io_free(io);
	}
	return NULL;
}

static void
threads_share_it_while_it_changes(void **state)
{
	static const char *const mbps[] = { "1", "1000", "0", "40", "7" };
	unsigned id[2] = { 0, 1 };
	pthread_t thread[2];
	char err[256];

	(void)state;
	open_disk("mbps=10 submit_queues=2");
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(
		    pthread_create(&thread[i], NULL, use_cpu, &id[i]), 0);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(disk_set(disk, "mbps", mbps[i % 5], START, err,
				     sizeof(err)),
		    0);
	disk_hurry(disk, START);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(queue_tags_in_use(disk->queue), 0);
	close_disk();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_large_request_takes_the_time_of_its_bytes),
		cmocka_unit_test(a_tick_goes_at_once_and_not_more),
		cmocka_unit_test(what_nobody_used_is_not_saved_up),
		cmocka_unit_test(
		    the_time_of_a_late_look_is_not_lost_to_who_waits),
		cmocka_unit_test(
		    all_that_moves_or_discards_counts_and_a_flush_does_not),
		cmocka_unit_test(small_requests_do_not_starve_a_large_one),
		cmocka_unit_test(looks_again_when_it_is_time),
		cmocka_unit_test(a_change_is_in_force_for_those_who_wait),
		cmocka_unit_test(a_lower_limit_keeps_nothing_of_the_higher),
		cmocka_unit_test(
		    does_not_wait_for_another_change_nor_undoes_it),
		cmocka_unit_test(what_waits_goes_at_once_when_the_disk_goes),
		cmocka_unit_test(is_refused_or_clamped_as_null_blk_has_it),
		cmocka_unit_test(threads_share_it_while_it_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
