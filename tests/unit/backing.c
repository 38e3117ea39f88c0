/* SPDX-License-Identifier: MIT */
/*
 * What goes to the file of a disk, and when: here it is an array, which fails
 * and is slow on request.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "dev/dev.h"
#include "host.h"

#define NR_CPUS  2
#define SIZE     (1u << 20)
#define SECTORS  (SIZE / SECTOR_SIZE)
#define STEPS    20000u
#define MAX_IO   64u /* sectors */
#define MAX_HELD 4u
#define SEED     19700101u

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;
static struct backing backing;
static uint64_t now;

/* ---- the file */

static struct {
	char data[SIZE];
	int error; /* of what comes next */
	unsigned nr_writes, nr_punches, nr_syncs;
	struct request *held[MAX_HELD];
	unsigned nr_held;
} file;

static int
file_write(void *arg, const struct iovec *iov, unsigned nr, uint64_t pos)
{
	assert_ptr_equal(arg, &file);
	if (file.error != 0)
		return file.error;
	file.nr_writes++;
	for (unsigned i = 0; i < nr; i++) {
		assert_true(pos + iov[i].iov_len <= SIZE);
		memcpy(file.data + pos, iov[i].iov_base, iov[i].iov_len);
		pos += iov[i].iov_len;
	}
	return 0;
}

static int
file_punch(void *arg, uint64_t pos, uint64_t len)
{
	assert_ptr_equal(arg, &file);
	assert_true(pos + len <= SIZE);
	if (file.error != 0)
		return file.error;
	file.nr_punches++;
	memset(file.data + pos, 0, len);
	return 0;
}

static int
file_sync(void *arg)
{
	assert_ptr_equal(arg, &file);
	file.nr_syncs++;
	return file.error;
}

static void
file_hold(void *arg, struct request *rq)
{
	assert_ptr_equal(arg, &file);
	assert_true(file.nr_held < MAX_HELD);
	file.held[file.nr_held++] = rq;
}

static const struct backing_ops ops = {
	.write = file_write,
	.punch = file_punch,
	.sync = file_sync,
	.hold = file_hold,
};

/* It is safe now, or not. */
static void
let_go(int error)
{
	for (unsigned i = 0; i < file.nr_held; i++) {
		file.held[i]->error = error;
		rq_complete_posted(file.held[i]);
	}
	file.nr_held = 0;
}

/* ---- a disk, and I/O */

struct io {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	char data[MAX_IO * SECTOR_SIZE];
	bool ended;
};

static void
disk_open(const char *settings)
{
	static const char always[] = "memory_backed=1 discard=1 size=1 "
				     "queue/write_zeroes_max_bytes=1M "
				     "backing=file power=0";
	char all[512], err[256], *rest = all, *name, *value;

	machine = host_new(NR_CPUS);
	for (unsigned i = 0; i < NR_CPUS; i++)
		turn(&machine->cpu[i]);
	pool = page_pool_new(machine, 0);
	memset(&file, 0, sizeof(file));
	backing_init(&backing, &ops, &file);
	disk = disk_new("nullb0", machine, pool);
	snprintf(all, sizeof(all), "%s %s", always, settings);
	while ((value = strsep(&rest, " ")) != NULL && *value != '\0') {
		name = strsep(&value, "=");
		assert_int_equal(attr_set(disk_attrs, &disk->set, name, value,
				     false, err, sizeof(err)),
		    0);
	}
	/* whoever powers it on has the file */
	assert_int_equal(
	    disk_power_on(disk, 1000000, err, sizeof(err)), -EOPNOTSUPP);
	assert_string_equal(err, "backing: \"file\": nobody here keeps data in "
				 "a file; allowed: none");
	disk_give_store(disk, store_new(pool, SIZE, 512, 0), &backing);
	if (disk_power_on(disk, 1000000, err, sizeof(err)) != 0)
		fail_msg("%s", err);
	now = 2000000;
}

static void
disk_close(void)
{
	disk_free(disk);
	backing_fini(&backing);
	for (unsigned i = 0; i < NR_CPUS; i++)
		rest(pool, &machine->cpu[i]);
	assert_int_equal(page_pool_used(pool), 0);
	page_pool_free(pool);
	machine_free(machine);
}

static void
io_ended(struct bio *bio, struct cpu *cpu, uint64_t when)
{
	struct io *io = bio->priv;

	(void)cpu;
	(void)when;
	io->ended = true;
}

static struct io *
submit(enum req_op op, unsigned flags, uint64_t sector, uint64_t sectors,
    char fill)
{
	uint64_t len = sectors * SECTOR_SIZE;
	struct io *io = calloc(1, sizeof(*io));

	assert_non_null(io);
	memset(io->data, fill, sizeof(io->data));
	bio_init(&io->bio, op, sector * SECTOR_SIZE, io->bv, BIO_MAX_VECS);
	io->bio.flags = (uint16_t)flags;
	io->bio.end_io = io_ended;
	io->bio.priv = io;
	if (op == REQ_OP_READ || op == REQ_OP_WRITE)
		assert_int_equal(bio_add_payload(&io->bio, true,
				     UINT64_C(1) << 40, 9, 0, io->data, len),
		    len);
	else
		io->bio.bytes = len;
	assert_int_equal(
	    queue_submit(disk->queue, &machine->cpu[0], NULL, &io->bio, now),
	    0);
	return io;
}

static void
run(void)
{
	for (unsigned i = 0; i < NR_CPUS; i++)
		(void)cpu_run(&machine->cpu[i], now);
}

static int
finish(struct io *io)
{
	int error;

	for (run(); !io->ended; run())
		let_go(0);
	error = io->bio.error;
	bio_release(&io->bio, &machine->cpu[0]);
	free(io);
	return error;
}

static int
doio(enum req_op op, unsigned flags, uint64_t sector, uint64_t sectors,
    char fill)
{
	return finish(submit(op, flags, sector, sectors, fill));
}

static int
put(uint64_t sector, uint64_t sectors, char fill)
{
	return doio(REQ_OP_WRITE, 0, sector, sectors, fill);
}

/* What the file has of a sector, all of it. */
static char
kept(uint64_t sector)
{
	const char *data = file.data + sector * SECTOR_SIZE;

	for (unsigned i = 1; i < SECTOR_SIZE; i++)
		assert_int_equal(data[i], data[0]);
	return data[0];
}

/* ---- a case each */

static void
what_is_answered_is_in_the_file(void **state)
{
	(void)state;
	disk_open("");
	assert_int_equal(put(3, 20, 'a'), 0);
	assert_int_equal(kept(2), 0);
	assert_int_equal(kept(3), 'a');
	assert_int_equal(kept(22), 'a');
	assert_int_equal(kept(23), 0);
	assert_int_equal(file.nr_writes, 1); /* its pages lay side by side */
	assert_int_equal(file.nr_syncs, 0);
	disk_close();
}

static void
holes_are_punched(void **state)
{
	(void)state;
	disk_open("");
	assert_int_equal(put(0, 48, 'a'), 0);
	assert_int_equal(doio(REQ_OP_DISCARD, 0, 4, 24, 0), 0);
	assert_int_equal(kept(3), 'a');
	assert_int_equal(kept(4), 0);
	assert_int_equal(kept(27), 0);
	assert_int_equal(kept(28), 'a');
	assert_int_equal(file.nr_punches, 1); /* two pages at once */
	assert_int_equal(doio(REQ_OP_WRITE_ZEROES, REQ_NOUNMAP, 32, 8, 0), 0);
	assert_int_equal(kept(32), 0);
	assert_int_equal(file.nr_punches, 1); /* it keeps its blocks */
	disk_close();
}

static void
a_flush_ends_when_it_is_safe(void **state)
{
	struct io *flush, *fua;

	(void)state;
	disk_open("");
	flush = submit(REQ_OP_FLUSH, 0, 0, 0, 0);
	run();
	assert_false(flush->ended);
	assert_int_equal(file.nr_held, 1);
	let_go(-EIO);
	assert_int_equal(finish(flush), -EIO);

	fua = submit(REQ_OP_WRITE, REQ_FUA, 0, 1, 'f');
	run();
	assert_false(fua->ended);
	assert_int_equal(kept(0), 'f');
	assert_int_equal(file.nr_held, 1);
	assert_int_equal(finish(fua), 0);
	disk_close();
}

/* Its end is the fault's: it is made safe before. */
static void
a_fault_waits_for_it(void **state)
{
	(void)state;
	disk_open("faults=op=FLUSH,action=delay,delay=1us");
	assert_int_equal(file.nr_syncs, 0);
	struct io *flush = submit(REQ_OP_FLUSH, 0, 0, 0, 0);

	run();
	assert_int_equal(file.nr_held, 0);
	assert_int_equal(file.nr_syncs, 1);
	assert_false(flush->ended);
	now += 2000;
	run();
	assert_true(flush->ended);
	assert_int_equal(finish(flush), 0);
	disk_close();
}

static void
its_error_is_that_of_the_write(void **state)
{
	(void)state;
	disk_open("");
	file.error = -ENOSPC;
	assert_int_equal(put(0, 1, 'a'), -ENOSPC);
	assert_int_equal(doio(REQ_OP_DISCARD, 0, 0, 8, 0), -ENOSPC);
	file.error = 0;
	assert_int_equal(put(0, 1, 'b'), 0);
	assert_int_equal(kept(0), 'b');
	disk_close();
}

static void
the_cache_is_not_in_it(void **state)
{
	(void)state;
	disk_open("cache_size=64K");
	assert_int_equal(put(0, 16, 'a'), 0);
	assert_int_equal(kept(0), 0);
	assert_int_equal(doio(REQ_OP_WRITE, REQ_FUA, 2, 1, 'f'), 0);
	assert_int_equal(kept(1), 0);
	assert_int_equal(kept(2), 'f');
	assert_int_equal(kept(3), 0);
	assert_int_equal(doio(REQ_OP_DISCARD, 0, 8, 4, 0), 0);
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, 0, 0), 0);
	assert_int_equal(cache_used(&disk->cache), 0);
	assert_int_equal(kept(0), 'a');
	assert_int_equal(kept(2), 'f');
	assert_int_equal(kept(8), 0);
	assert_int_equal(kept(12), 'a');
	disk_close();
}

static void
a_full_cache_is_written_or_takes_no_more(void **state)
{
	(void)state;
	disk_open("cache_size=16K");
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(put(i * 8, 1, 'a'), 0);
	assert_int_equal(kept(8), 'a');
	assert_int_equal(kept(16), 0);
	file.error = -ENOSPC;
	assert_int_equal(put(100, 1, 'b'), -ENOSPC);
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, 0, 0), -ENOSPC);
	assert_int_equal(cache_used(&disk->cache), 4 * PAGE_SIZE);
	file.error = 0;
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, 0, 0), 0);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(kept(i * 8), 'a');
	disk_close();
}

/* Somebody flushed between the two steps of a write: it goes there itself. */
static void
what_the_cache_has_lost_is_written(void **state)
{
	struct cpu *cpu;

	(void)state;
	disk_open("cache_size=64K");
	cpu = &machine->cpu[0];
	assert_int_equal(put(0, 8, 'a'), 0);
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, 0, 0), 0);
	assert_int_equal(put(8, 8, 'b'), 0);
	turn(cpu);
	assert_int_equal(store_write(disk->store, cpu, 0, "mine", 4), 0);
	assert_int_equal(cache_spill(disk, cpu, 0, 2 * PAGE_SIZE), 0);
	assert_memory_equal(file.data, "mine", 4);
	assert_int_equal(kept(8), 0); /* it holds that */
	disk_close();
}

static void
with_the_power_the_cache_is_lost(void **state)
{
	(void)state;
	disk_open("cache_size=64K");
	assert_int_equal(put(0, 1, 'a'), 0);
	disk_power_drop(disk);
	assert_int_equal(kept(0), 0);
	assert_int_equal(cache_used(&disk->cache), 0);
	disk_close();
}

/* ---- all of it at random, against a model */

static struct {
	char now[SECTORS], safe[SECTORS];
	bool loose[SECTORS]; /* written since it was safe */
} model;

static void
model_safe(uint64_t sector, uint64_t sectors)
{
	memcpy(model.safe + sector, model.now + sector, sectors);
	memset(model.loose + sector, 0, sectors);
}

static void
step(struct rng *rng)
{
	uint64_t sector = rng_below(rng, SECTORS);
	uint64_t sectors = 1 + rng_below(rng, MAX_IO);
	uint64_t what = rng_below(rng, 20);
	char fill = (char)(1 + rng_below(rng, 120));

	if (sectors > SECTORS - sector)
		sectors = SECTORS - sector;
	if (what == 0) {
		assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, 0, 0), 0);
		model_safe(0, SECTORS);
	} else if (what <= 2) {
		assert_int_equal(
		    doio(REQ_OP_DISCARD, 0, sector, sectors, 0), 0);
		memset(model.now + sector, 0, sectors);
		model_safe(sector, sectors);
	} else if (what <= 4) {
		assert_int_equal(
		    doio(REQ_OP_WRITE, REQ_FUA, sector, sectors, fill), 0);
		memset(model.now + sector, fill, sectors);
		model_safe(sector, sectors);
	} else {
		assert_int_equal(put(sector, sectors, fill), 0);
		memset(model.now + sector, fill, sectors);
		memset(model.loose + sector, 1, sectors);
	}
}

static void
the_file_has_what_is_safe(void **state)
{
	struct rng rng = rng_stream(SEED, 1);

	(void)state;
	disk_open("cache_size=64K");
	memset(&model, 0, sizeof(model));
	for (unsigned i = 0; i < STEPS; i++) {
		step(&rng);
		if (i % 64 != 0)
			continue;
		for (unsigned s = 0; s < SECTORS; s++)
			if (!model.loose[s])
				assert_int_equal(kept(s), model.safe[s]);
	}
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, 0, 0), 0);
	for (unsigned s = 0; s < SECTORS; s++)
		assert_int_equal(kept(s), model.now[s]);
	disk_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_answered_is_in_the_file),
		cmocka_unit_test(holes_are_punched),
		cmocka_unit_test(a_flush_ends_when_it_is_safe),
		cmocka_unit_test(a_fault_waits_for_it),
		cmocka_unit_test(its_error_is_that_of_the_write),
		cmocka_unit_test(the_cache_is_not_in_it),
		cmocka_unit_test(a_full_cache_is_written_or_takes_no_more),
		cmocka_unit_test(what_the_cache_has_lost_is_written),
		cmocka_unit_test(with_the_power_the_cache_is_lost),
		cmocka_unit_test(the_file_has_what_is_safe),
	};

	return cmocka_run_group_tests_name("backing", tests, NULL, NULL);
}
