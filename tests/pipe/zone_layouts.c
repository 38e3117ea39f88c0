/* SPDX-License-Identifier: MIT */
/*
 * The zone layouts that fio's t/zbd/run-tests-against-nullb makes of null_blk:
 * zones of 1 MiB, or of 4 with a capacity of 3; none, a tenth, or two thirds of
 * them conventional; no limit, or a limit of open zones, of active ones, or of
 * both; and a device without zones.  Each is written through, as many zones at
 * a time as it allows, read, and reset.
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

#include "unit/host.h"

#define MIB      (1024u * 1024u)
#define NR_ZONES 48u
#define LIMIT    8u
#define MANY     12u /* at a time where there is no limit */
#define IO       (192u * 1024)

static struct machine *machine;
static struct page_pool *pool;
static struct cpu *cpu;
static struct disk *disk;

struct layout {
	unsigned size, capacity; /* MiB of a zone */
	unsigned conv;           /* per cent */
	unsigned max_open, max_active;
};

static void
io_ended(struct bio *bio, struct cpu *c, uint64_t now)
{
	(void)c;
	(void)now;
	*(bool *)bio->priv = true;
}

static int
doio(enum req_op op, uint64_t pos, uint64_t bytes, char *base)
{
	struct bvec bv[BIO_MAX_VECS];
	bool ended = false;
	uint64_t now = 1, next;
	struct bio bio;
	int error;

	bio_init(&bio, op, pos, bv, BIO_MAX_VECS);
	bio.end_io = io_ended;
	bio.priv = &ended;
	if (base != NULL)
		assert_int_equal(bio_add_payload(&bio, true, UINT64_C(1) << 40,
				     9, 0, base, bytes),
		    bytes);
	else
		bio.bytes = bytes;
	while (queue_submit(disk->queue, cpu, NULL, &bio, now) != 0)
		cpu_run(cpu, ++now);
	while (!ended) {
		next = cpu_run(cpu, now);
		if (next != CPU_NO_DEADLINE)
			now = next;
	}
	error = bio.error;
	bio_release(&bio, cpu);
	return error;
}

/* What is written at pos, a byte for all of an I/O. */
static char
byte_at(uint64_t pos)
{
	return (char)(pos / IO % 251 + 1);
}

static int
write_at(uint64_t pos, uint64_t bytes)
{
	static char data[IO];

	memset(data, byte_at(pos), bytes);
	return doio(REQ_OP_WRITE, pos, bytes, data);
}

/* The next I/O of a zone; false: it is full. */
static bool
write_next(unsigned i)
{
	struct zone_info z;
	uint64_t left;
	int error;

	zones_info(disk->zones, i, &z);
	left = z.start + z.capacity - z.wp;
	if (z.cond == ZONE_FULL || left == 0)
		return false;
	error = write_at(z.wp, least(left, IO));
	if (error != 0)
		fail_msg("zone %u at %llu: %d", i,
		    (unsigned long long)(z.wp - z.start), error);
	return true;
}

/* All that can be read of a zone holds what was written. */
static void
read_zone(unsigned i)
{
	static char data[IO];
	struct zone_info z;
	uint64_t pos, n;
	char wanted;

	zones_info(disk->zones, i, &z);
	for (pos = z.start; pos < z.start + z.len; pos += n) {
		n = least(IO, z.start + z.len - pos);
		if (pos < z.start + z.capacity)
			n = least(n, z.start + z.capacity - pos);
		assert_int_equal(doio(REQ_OP_READ, pos, n, data), 0);
		wanted = (char)0xff;
		if (pos < z.start + z.capacity)
			wanted = byte_at(pos);
		if (data[0] != wanted || memcmp(data, data + 1, n - 1) != 0)
			fail_msg("zone %u: %llu holds 0x%x", i,
			    (unsigned long long)pos, (unsigned char)data[0]);
	}
}

/* With as many zones open as may be: what of one more? */
static void
ask_for_one_more(const struct layout *l, unsigned next)
{
	struct zone_info z;
	int error;

	zones_info(disk->zones, next, &z);
	error = write_at(z.start, 4096);
	if (l->max_active != 0 && l->max_open == 0) {
		assert_int_equal(error, -EOVERFLOW);
		return;
	}
	assert_int_equal(error, 0); /* one that was open is closed for it */
	assert_int_equal(doio(REQ_OP_DISCARD, z.start, z.len, NULL), 0);
}

/* From the first sequential zone on, `at_once` of them together. */
static void
write_through(const struct layout *l, unsigned first)
{
	unsigned nr = zones_nr(disk->zones), from, to, i;
	unsigned at_once = MANY;
	struct zone_info z;
	bool more;

	/* with all active that may be, null_blk opens none that was closed */
	if (l->max_active != 0)
		at_once = l->max_active;
	if (l->max_open != 0)
		at_once = l->max_open;
	for (from = first; from < nr; from = to) {
		to = (unsigned)least(from + at_once, nr);
		for (more = true; more;) {
			more = false;
			for (i = from; i < to; i++)
				more |= write_next(i);
			zones_info(disk->zones, to - 1, &z);
			if (from == first && to < nr && z.cond != ZONE_FULL)
				ask_for_one_more(l, to);
		}
	}
}

/* Conventional ones from behind. */
static void
write_backwards(unsigned nr_conv, uint64_t zone)
{
	for (uint64_t pos = nr_conv * zone; pos > 0;) {
		uint64_t start = (pos - 1) / zone * zone;
		uint64_t at = start + (pos - 1 - start) / IO * IO;

		assert_int_equal(write_at(at, pos - at), 0);
		pos = at;
	}
}

static void
run_layout(const struct layout *l, const char *more)
{
	char settings[512];
	unsigned nr_conv = NR_ZONES * l->conv / 100;
	struct queue_stat st;

	snprintf(settings, sizeof(settings),
	    "size=%u blocksize=4096 completion_nsec=0 memory_backed=1 zoned=1 "
	    "zone_size=%u zone_capacity=%u zone_nr_conv=%u zone_max_open=%u "
	    "zone_max_active=%u%s",
	    NR_ZONES * l->size, l->size, l->capacity, nr_conv, l->max_open,
	    l->max_active, more);
	disk = host_disk(machine, pool, settings);
	assert_int_equal(zones_nr(disk->zones), NR_ZONES);
	assert_int_equal(disk->conf.zone_nr_conv, nr_conv);
	assert_int_equal(disk->conf.zone_max_open, l->max_open);
	assert_int_equal(disk->conf.zone_max_active, l->max_active);
	write_backwards(nr_conv, l->size * (uint64_t)MIB);
	write_through(l, nr_conv);
	for (unsigned i = 0; i < NR_ZONES; i++) {
		struct zone_info z;

		zones_info(disk->zones, i, &z);
		assert_int_equal(z.cond, i < nr_conv ? ZONE_NOT_WP : ZONE_FULL);
		read_zone(i);
	}
	assert_int_equal(
	    zones_manage(disk->zones, ZONE_RESET, 0, disk_size(disk)), 0);
	while (zones_sweep(disk, cpu))
		;
	assert_int_equal(store_blocks(disk->store),
	    nr_conv * (uint64_t)l->size * MIB / 4096);
	stat_read(disk->queue, &st, 1);
	assert_int_equal(st.in_flight, 0);
	disk_free(disk);
	/* memory that was given up may be used again */
	rest(pool, cpu);
	turn(cpu);
}

static void
all_layouts(const char *more)
{
	static const unsigned conv[] = { 0, 10, 66 };
	static const struct {
		unsigned open, active;
	} limits[] = { { 0, 0 }, { LIMIT, 0 }, { 0, LIMIT },
		{ LIMIT / 2, LIMIT } };
	unsigned nr = 0;

	for (unsigned shape = 0; shape < 2; shape++)
		for (unsigned c = 0; c < 3; c++)
			for (unsigned k = 0; k < 4; k++, nr++) {
				struct layout l = {
					.size = shape ? 4 : 1,
					.capacity = shape ? 3 : 1,
					.conv = conv[c],
					.max_open = limits[k].open,
					.max_active = limits[k].active,
				};

				run_layout(&l, more);
			}
	assert_int_equal(nr, 24);
}

static void
each_layout_is_written_through(void **state)
{
	(void)state;
	all_layouts("");
}

static void
with_mq_deadline_a_timer_and_few_tags_too(void **state)
{
	(void)state;
	all_layouts(" scheduler=mq-deadline irqmode=2 hw_queue_depth=2");
}

/* The 25th. */
static void
without_zones_nothing_is_said_of_them(void **state)
{
	(void)state;
	disk = host_disk(machine, pool,
	    "size=16 blocksize=4096 memory_backed=1 zone_size=1 "
	    "zone_max_open=1");
	assert_null(disk->zones);
	assert_int_equal(write_at(8 * MIB, 4096), 0);
	assert_int_equal(write_at(0, 4096), 0);
	disk_free(disk);
}

static int
setup(void **state)
{
	(void)state;
	machine = host_new(1);
	cpu = &machine->cpu[0];
	turn(cpu);
	pool = page_pool_new(machine, 0);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	epoch_leave(&machine->epoch, 0);
	page_pool_free(pool);
	machine_free(machine);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_layout_is_written_through),
		cmocka_unit_test(with_mq_deadline_a_timer_and_few_tags_too),
		cmocka_unit_test(without_zones_nothing_is_said_of_them),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
