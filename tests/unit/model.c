/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"
#include "host.h"

#define KIB      1024u
#define MIB      (1024u * KIB)
#define DELAY_NS 80000u

static struct machine *machine;
static struct cpu *cpu;
static struct page_pool *pool;
static struct disk *disk;
static uint64_t now;

/* An I/O, and what became of it. */
struct io {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	bool ended;
	uint64_t ended_ns;
};

static void
disk_open(const char *settings)
{
	char *copy = strdup(settings), *rest = copy, *name, *value;
	char err[256];

	machine = machine_new(1, NULL, NULL);
	cpu = &machine->cpu[0];
	epoch_enter(&machine->epoch, 0);
	pool = page_pool_new(machine, 256 * MIB);
	disk = disk_new("nullb0", machine, pool);
	now = 1000000;
	while ((value = strsep(&rest, " ")) != NULL && *value != '\0') {
		name = strsep(&value, "=");
		if (attr_set(disk_attrs, &disk->set, name, value, false, err,
			sizeof(err)) != 0)
			fail_msg("%s", err);
	}
	free(copy);
	if (disk_power_on(disk, now, err, sizeof(err)) != 0)
		fail_msg("%s", err);
}

static void
disk_close(void)
{
	disk_free(disk);
	epoch_leave(&machine->epoch, 0);
	page_pool_free(pool);
	machine_free(machine);
}

static void
io_ended(struct bio *bio, struct cpu *c, uint64_t when)
{
	struct io *io = bio->priv;

	(void)c;
	io->ended = true;
	io->ended_ns = when;
}

/* Submit; base NULL: a read that takes what the store has. */
static struct io *
submit(enum req_op op, unsigned flags, uint64_t pos, void *base, uint64_t len)
{
	struct io *io = calloc(1, sizeof(*io));
	bool multipage = disk->queue->conf.multipage;

	bio_init(&io->bio, op, pos, io->bv, BIO_MAX_VECS);
	io->bio.flags = (uint16_t)flags;
	io->bio.end_io = io_ended;
	io->bio.priv = io;
	if (op == REQ_OP_READ || op == REQ_OP_WRITE)
		assert_int_equal(bio_add_payload(&io->bio, multipage,
				     UINT64_C(1) << 40, 9, 0, base, len),
		    len);
	else
		io->bio.bytes = len;
	assert_int_equal(
	    queue_submit(disk->queue, cpu, NULL, &io->bio, now), 0);
	return io;
}

static void
io_free(struct io *io)
{
	bio_release(&io->bio, cpu);
	free(io);
}

/* Do it all: its error. */
static int
doio(enum req_op op, unsigned flags, uint64_t pos, void *base, uint64_t len)
{
	struct io *io = submit(op, flags, pos, base, len);
	int error;

	while (!io->ended) {
		uint64_t next = cpu_run(cpu, now);

		if (next != CPU_NO_DEADLINE)
			now = next;
	}
	error = io->bio.error;
	io_free(io);
	return error;
}

static uint64_t
gather_one(const struct bio *bio, char *to)
{
	uint64_t len = 0;

	for (unsigned i = 0; i < bio->nr_iov; i++) {
		memcpy(to + len, bio->iov[i].iov_base, bio->iov[i].iov_len);
		len += bio->iov[i].iov_len;
	}
	return len;
}

/* What a read without memory of its own got: pieces that were split off go
 * first.  Returns the iovecs. */
static unsigned
gather(const struct bio *bio, char *to, uint64_t len)
{
	const struct bio *piece;
	unsigned nr = bio->nr_iov;
	uint64_t done = 0;

	STAILQ_FOREACH(piece, &bio->pieces, link_piece) {
		done += gather_one(piece, to + done);
		nr += piece->nr_iov;
	}
	done += gather_one(bio, to + done);
	assert_int_equal(done, len);
	return nr;
}

static char *
pattern(uint64_t len, unsigned seed)
{
	char *data = malloc(len);

	srand(seed);
	for (uint64_t i = 0; i < len; i++)
		data[i] = (char)rand();
	return data;
}

static bool
all_zero(const char *data, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		if (data[i] != 0)
			return false;
	return true;
}

static void
reads_what_was_written_wherever_it_starts(void **state)
{
	static const struct {
		uint64_t pos, len;
	} at[] = { { 0, 512 }, { 4096, 4096 }, { 1000, 5000 },
		{ 3 * MIB + 7, 300000 }, { 8 * MIB - 1, 1 } };
	static const char *kernels[] = { "4.14", "6.12" };
	char settings[64];

	(void)state;
	for (int k = 0; k < 2; k++) {
		snprintf(settings, sizeof(settings),
		    "memory_backed=1 size=8 irqmode=0 kernel=%s", kernels[k]);
		disk_open(settings);
		for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
			char *data = pattern(at[i].len, (unsigned)i);
			char *got = malloc(at[i].len);
			struct io *io;

			assert_int_equal(
			    doio(REQ_OP_WRITE, 0, at[i].pos, data, at[i].len),
			    0);
			assert_int_equal(
			    doio(REQ_OP_READ, 0, at[i].pos, got, at[i].len), 0);
			assert_memory_equal(got, data, at[i].len);
			memset(got, 0, at[i].len);
			io = submit(REQ_OP_READ, 0, at[i].pos, NULL, at[i].len);
			assert_true(io->ended);
			gather(&io->bio, got, at[i].len);
			assert_memory_equal(got, data, at[i].len);
			io_free(io);
			free(got);
			free(data);
		}
		disk_close();
	}
}

static void
answers_in_a_piece_a_page_or_a_run_as_bvecs_are(void **state)
{
	char *got = malloc(64 * KIB);
	struct io *io;

	(void)state; /* DESIGN: the two modes differ in real work */
	for (int mp = 0; mp < 2; mp++) {
		disk_open(mp ? "memory_backed=1 size=8 multipage_bvec=1 "
			       "irqmode=0"
			     : "memory_backed=1 size=8 multipage_bvec=0 "
			       "irqmode=0");
		io = submit(REQ_OP_READ, 0, 0, NULL, 64 * KIB);
		assert_int_equal(gather(&io->bio, got, 64 * KIB), mp ? 1 : 16);
		assert_true(all_zero(got, 64 * KIB));
		io_free(io);
		disk_close();
	}
	free(got);
}

static void
a_read_in_many_pieces_takes_memory_for_each_once(void **state)
{
	char *data = pattern(512 * KIB, 9), *got = malloc(512 * KIB);
	size_t before, taken;
	struct io *io;

	(void)state;
	disk_open("memory_backed=1 size=8 irqmode=0 multipage_bvec=0 "
		  "queue/chunk_sectors=1");
	assert_int_equal(doio(REQ_OP_WRITE, 0, 100, data, 512 * KIB), 0);
	before = mallinfo2().uordblks;
	io = submit(REQ_OP_READ, 0, 100, NULL, 512 * KIB);
	taken = mallinfo2().uordblks - before;
	gather(&io->bio, got, 512 * KIB);
	assert_memory_equal(got, data, 512 * KIB);
	io_free(io);
	disk_close();
	free(data);
	free(got);
	if (SANITIZED)
		skip();
	/* 1025 bios and a few iovecs for each, not for all that is behind it */
	assert_in_range(taken, 1, 1025 * (sizeof(struct bio) + 128));
}

static void
pinned_data_stays_when_it_is_written_over(void **state)
{
	char *old = pattern(32 * KIB, 1), *new = pattern(32 * KIB, 2);
	char *got = malloc(32 * KIB);
	struct io *io;

	(void)state;
	disk_open("memory_backed=1 size=8 irqmode=0 discard=1");
	doio(REQ_OP_WRITE, 0, 0, old, 32 * KIB);
	io = submit(REQ_OP_READ, 0, 0, NULL, 32 * KIB);
	doio(REQ_OP_WRITE, 0, 0, new, 32 * KIB);
	doio(REQ_OP_DISCARD, 0, 4096, NULL, 4096);
	gather(&io->bio, got, 32 * KIB);
	assert_memory_equal(got, old, 32 * KIB);
	io_free(io);
	doio(REQ_OP_READ, 0, 0, got, 32 * KIB);
	memset(new + 4096, 0, 4096);
	assert_memory_equal(got, new, 32 * KIB);
	disk_close();
	free(old);
	free(new);
	free(got);
}

static void
copies_when_a_page_can_bear_no_more_pins(void **state)
{
	enum {
		NR = 9000
	};
	char *data = pattern(8192, 3), got[8192];
	struct io **io = calloc(NR, sizeof(*io));
	unsigned copied = 0;

	(void)state;
	disk_open("memory_backed=1 size=8 irqmode=0");
	doio(REQ_OP_WRITE, 0, 0, data, 8192);
	for (unsigned i = 0; i < NR; i++) {
		io[i] = submit(REQ_OP_READ, 0, 0, NULL, 8192);
		if (io[i]->bio.iov[0].iov_base != io[0]->bio.iov[0].iov_base)
			copied++;
	}
	assert_true(copied > 0);
	assert_true(copied < NR / 2);
	for (unsigned i = 0; i < NR; i++) {
		gather(&io[i]->bio, got, 8192);
		assert_memory_equal(got, data, 8192);
		io_free(io[i]);
	}
	disk_close();
	free(io);
	free(data);
}

static void
drops_writes_and_reads_zeros_without_memory(void **state)
{
	char *data = pattern(3 * MIB, 4);
	struct io *io;

	(void)state;
	disk_open("irqmode=0 max_sectors=20000 max_sectors_kb=10000 "
		  "max_segment_size=4294967295");
	assert_int_equal(doio(REQ_OP_WRITE, 0, 512, data, MIB), 0);
	assert_null(disk->store);
	assert_int_equal(doio(REQ_OP_READ, 0, 0, data, MIB), 0);
	assert_true(all_zero(data, MIB));
	memset(data, 1, 3 * MIB);
	io = submit(REQ_OP_READ, 0, 0, NULL, 3 * MIB);
	gather(&io->bio, data, 3 * MIB);
	assert_true(all_zero(data, 3 * MIB));
	io_free(io);
	disk_close();
	free(data);
}

static void
gives_back_what_is_discarded_and_keeps_what_is_zeroed(void **state)
{
	char *data = pattern(64 * KIB, 5), *got = malloc(64 * KIB);

	(void)state;
	disk_open("memory_backed=1 size=8 irqmode=0 discard=1 "
		  "write_zeroes_max_bytes=1M");
	doio(REQ_OP_WRITE, 0, 0, data, 64 * KIB);
	assert_int_equal(store_blocks(disk->store), 128);
	assert_int_equal(doio(REQ_OP_DISCARD, 0, 0, NULL, 16 * KIB), 0);
	assert_int_equal(store_blocks(disk->store), 96);
	assert_int_equal(
	    doio(REQ_OP_WRITE_ZEROES, 0, 16 * KIB, NULL, 16 * KIB), 0);
	assert_int_equal(store_blocks(disk->store), 64);
	assert_int_equal(
	    doio(REQ_OP_WRITE_ZEROES, REQ_NOUNMAP, 32 * KIB, NULL, 16 * KIB),
	    0);
	assert_int_equal(store_blocks(disk->store), 64);
	assert_int_equal(doio(REQ_OP_FLUSH, REQ_PREFLUSH, 0, NULL, 0), 0);
	memset(data, 0, 48 * KIB);
	doio(REQ_OP_READ, 0, 0, got, 64 * KIB);
	assert_memory_equal(got, data, 64 * KIB);
	disk_close();
	free(got);
	free(data);
}

static void
discards_each_range_of_a_merged_request(void **state)
{
	char *data = pattern(64 * KIB, 6);
	struct plug plug;
	struct bio bio[2];
	struct io io[2];

	(void)state;
	disk_open("memory_backed=1 size=8 irqmode=0 discard=1 "
		  "max_discard_segments=8");
	doio(REQ_OP_WRITE, 0, 0, data, 64 * KIB);
	plug_init(&plug);
	for (int i = 0; i < 2; i++) {
		bio_init(
		    &bio[i], REQ_OP_DISCARD, (uint64_t)i * 32 * KIB, NULL, 0);
		bio[i].bytes = 4096;
		bio[i].end_io = io_ended;
		bio[i].priv = &io[i];
		assert_int_equal(
		    queue_submit(disk->queue, cpu, &plug, &bio[i], now), 0);
	}
	plug_flush(&plug, cpu, now);
	for (int i = 0; i < 2; i++)
		bio_release(&bio[i], cpu);
	assert_int_equal(store_blocks(disk->store), 128 - 16);
	disk_close();
	free(data);
}

static void
fails_a_write_that_memory_is_refused_for(void **state)
{
	char *data = pattern(MIB, 7);
	int error = 0;

	(void)state;
	disk_open("memory_backed=1 size=1000 memory_limit=2M irqmode=2");
	for (uint64_t pos = 0; pos < 16 * MIB && error == 0; pos += MIB)
		error = doio(REQ_OP_WRITE, 0, pos, data, MIB);
	assert_int_equal(error, -ENOSPC);
	assert_true(store_memory(disk->store) <= 2 * MIB);
	/* reads, and what has its memory already, go on */
	assert_int_equal(doio(REQ_OP_WRITE, 0, 0, data, 4096), 0);
	assert_int_equal(doio(REQ_OP_READ, 0, 0, data, MIB), 0);
	disk_close();
	free(data);
}

static void
completes_as_irqmode_says(void **state)
{
	char data[4096] = { 0 };
	struct io *io;

	(void)state; /* null_blk 1.3 */
	disk_open("irqmode=0");
	io = submit(REQ_OP_WRITE, 0, 0, data, sizeof(data));
	assert_true(io->ended);
	io_free(io);
	disk_close();

	disk_open("irqmode=1");
	io = submit(REQ_OP_WRITE, 0, 0, data, sizeof(data));
	assert_false(io->ended);
	assert_int_equal(cpu_run(cpu, now), CPU_NO_DEADLINE);
	assert_true(io->ended);
	io_free(io);
	disk_close();

	disk_open("irqmode=2 completion_nsec=80us");
	io = submit(REQ_OP_WRITE, 0, 0, data, sizeof(data));
	assert_int_equal(cpu_run(cpu, now), now + DELAY_NS);
	assert_false(io->ended);
	cpu_run(cpu, now + DELAY_NS - 1);
	assert_false(io->ended);
	cpu_run(cpu, now + DELAY_NS);
	assert_true(io->ended);
	io_free(io);
	disk_close();
}

static void
moves_the_data_at_dispatch_whenever_it_completes(void **state)
{
	char *data = pattern(4096, 8), got[4096];
	struct io *write, *read;

	(void)state;
	disk_open("memory_backed=1 size=8 irqmode=2 completion_nsec=1ms");
	write = submit(REQ_OP_WRITE, 0, 0, data, 4096);
	assert_true(bio_moved(&write->bio));
	assert_false(write->ended);
	read = submit(REQ_OP_READ, 0, 0, got, 4096);
	assert_memory_equal(got, data, 4096);
	cpu_run(cpu, now);
	cpu_run(cpu, now + 1000000);
	assert_true(write->ended);
	assert_true(read->ended);
	io_free(write);
	io_free(read);
	disk_close();
	free(data);
}

static void
names_its_stages_in_order(void **state)
{
	static const char *const order[] = { "fault", "throttle", "zone",
		"badblocks", "power", "cache", "store", "through", "crash_log",
		"backing" };
	size_t n = 0;

	(void)state;
	for (; stages[n].name != NULL; n++) {
		assert_in_range(n, 0, sizeof(order) / sizeof(order[0]) - 1);
		assert_string_equal(stages[n].name, order[n]);
		assert_non_null(stages[n].run);
	}
	assert_int_equal(n, sizeof(order) / sizeof(order[0]));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_what_was_written_wherever_it_starts),
		cmocka_unit_test(
		    answers_in_a_piece_a_page_or_a_run_as_bvecs_are),
		cmocka_unit_test(
		    a_read_in_many_pieces_takes_memory_for_each_once),
		cmocka_unit_test(pinned_data_stays_when_it_is_written_over),
		cmocka_unit_test(copies_when_a_page_can_bear_no_more_pins),
		cmocka_unit_test(drops_writes_and_reads_zeros_without_memory),
		cmocka_unit_test(
		    gives_back_what_is_discarded_and_keeps_what_is_zeroed),
		cmocka_unit_test(discards_each_range_of_a_merged_request),
		cmocka_unit_test(fails_a_write_that_memory_is_refused_for),
		cmocka_unit_test(completes_as_irqmode_says),
		cmocka_unit_test(
		    moves_the_data_at_dispatch_whenever_it_completes),
		cmocka_unit_test(names_its_stages_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
