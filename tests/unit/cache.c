/* SPDX-License-Identifier: MIT */
/*
 * The volatile cache: what is still there after a power cut (null_blk's
 * semantics: 1.5, 6.2).
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

#include "dev/dev.h"
#include "host.h"

#define NR_CPUS 2
#define SECTORS 2048u /* of the disk: 1 MiB */
/* Sanitizers look at the code, and need not see each state. */
#define STEPS  (THREADS_SANITIZED ? 5000u : SANITIZED ? 10000u : 100000u)
#define MAX_IO 64u /* sectors */
#define SEED   20170814u

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;
static uint64_t now;

/* ---- a disk, and I/O that is done when the call returns */

struct io {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	bool ended;
};

static void
disk_open(const char *settings)
{
	char all[256];

	machine = host_new(NR_CPUS);
	for (unsigned i = 0; i < NR_CPUS; i++)
		turn(&machine->cpu[i]);
	pool = page_pool_new(machine, 0);
	snprintf(
	    all, sizeof(all), "memory_backed=1 discard=1 size=1 %s", settings);
	disk = host_disk(machine, pool, all);
	now = 2000000;
}

static void
disk_close(void)
{
	disk_free(disk);
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
submit(struct cpu *cpu, enum req_op op, unsigned flags, uint64_t sector,
    void *base, uint64_t sectors)
{
	uint64_t len = sectors * SECTOR_SIZE;
	struct io *io = calloc(1, sizeof(*io));

	assert_non_null(io);
	bio_init(&io->bio, op, sector * SECTOR_SIZE, io->bv, BIO_MAX_VECS);
	io->bio.flags = (uint16_t)flags;
	io->bio.end_io = io_ended;
	io->bio.priv = io;
	if (op == REQ_OP_READ || op == REQ_OP_WRITE)
		assert_int_equal(bio_add_payload(&io->bio, true,
				     UINT64_C(1) << 40, 9, 0, base, len),
		    len);
	else
		io->bio.bytes = len;
	assert_int_equal(
	    queue_submit(disk->queue, cpu, NULL, &io->bio, now), 0);
	return io;
}

/* Until it ends, wherever it runs.  Its error. */
static int
finish(struct io *io, struct cpu *cpu)
{
	uint64_t next, first;
	int error;

	while (!io->ended) {
		first = CPU_NO_DEADLINE;
		for (unsigned i = 0; i < NR_CPUS; i++) {
			next = cpu_run(&machine->cpu[i], now);
			if (next < first)
				first = next;
		}
		if (!io->ended && first != CPU_NO_DEADLINE && first > now)
			now = first;
	}
	error = io->bio.error;
	bio_release(&io->bio, cpu);
	free(io);
	return error;
}

static void
doio(enum req_op op, unsigned flags, uint64_t sector, void *base,
    uint64_t sectors)
{
	struct cpu *cpu = &machine->cpu[0];

	assert_int_equal(
	    finish(submit(cpu, op, flags, sector, base, sectors), cpu), 0);
}

/* Sectors that all say `stamp`. */
static void
put(uint64_t sector, uint64_t sectors, uint64_t stamp, unsigned flags)
{
	uint64_t data[MAX_IO][SECTOR_SIZE / sizeof(uint64_t)];

	for (uint64_t i = 0; i < sectors; i++)
		for (size_t k = 0; k < SECTOR_SIZE / sizeof(uint64_t); k++)
			data[i][k] = stamp;
	doio(REQ_OP_WRITE, flags, sector, data, sectors);
}

static void
flush(void)
{
	doio(REQ_OP_FLUSH, 0, 0, NULL, 0);
}

/* What the sector says, all of it. */
static uint64_t
get(uint64_t sector)
{
	uint64_t data[SECTOR_SIZE / sizeof(uint64_t)];

	doio(REQ_OP_READ, 0, sector, data, 1);
	for (size_t k = 1; k < SECTOR_SIZE / sizeof(uint64_t); k++)
		assert_int_equal(data[k], data[0]);
	return data[0];
}

static void
cut(void)
{
	static const struct cut_conf all = { .lose = CUT_ALL };
	struct cut_report report;

	assert_int_equal(cache_cut(disk, &all, &report), 0);
	assert_int_equal(
	    report.lost, disk->cache.max_pages > 0 ? report.writes : 0);
	assert_int_equal(cache_used(&disk->cache), 0);
}

/* ---- a case each */

static void
what_was_not_flushed_is_lost(void **state)
{
	(void)state;
	disk_open("cache_size=64K");
	put(0, 8, 1, 0);
	flush();
	put(0, 4, 2, 0);
	put(100, 1, 3, 0);
	assert_int_equal(get(0), 2);
	assert_int_equal(get(100), 3);
	assert_int_equal(cache_used(&disk->cache), 2 * PAGE_SIZE);
	cut();
	assert_int_equal(get(0), 1); /* written over what was flushed: 1.5 */
	assert_int_equal(get(7), 1);
	assert_int_equal(get(100), 0);
	assert_int_equal(store_blocks(disk->store), 8);
	disk_close();
}

static void
what_was_flushed_stays(void **state)
{
	(void)state;
	disk_open("cache_size=64K");
	put(0, 16, 1, 0);
	assert_int_equal(cache_used(&disk->cache), 2 * PAGE_SIZE);
	flush();
	assert_int_equal(cache_used(&disk->cache), 0);
	cut();
	assert_int_equal(get(0), 1);
	assert_int_equal(get(15), 1);
	disk_close();
}

/* FUA is of its own sectors: those beside them in the page stay volatile. */
static void
fua_passes_the_cache_by(void **state)
{
	(void)state;
	disk_open("cache_size=64K");
	put(0, 8, 1, 0);
	put(2, 2, 2, REQ_FUA);
	put(3, 1, 3, 0);
	cut();
	assert_int_equal(get(1), 0);
	assert_int_equal(get(2), 2);
	assert_int_equal(get(3), 2);
	assert_int_equal(get(4), 0);
	assert_int_equal(store_blocks(disk->store), 2);
	disk_close();
}

/* 1.5: the block layer makes a write and a flush of it. */
static void
without_fua_it_flushes(void **state)
{
	(void)state;
	disk_open("cache_size=64K fua=0");
	put(0, 8, 1, 0);
	put(100, 1, 2, REQ_FUA);
	assert_int_equal(cache_used(&disk->cache), 0);
	cut();
	assert_int_equal(get(0), 1);
	assert_int_equal(get(100), 2);
	disk_close();
}

static void
discards_are_not_cached(void **state)
{
	(void)state;
	disk_open("cache_size=64K queue/write_zeroes_max_bytes=1M");
	put(0, 32, 1, 0);
	flush();
	put(0, 8, 2, 0);
	doio(REQ_OP_DISCARD, 0, 4, NULL, 8);
	doio(REQ_OP_WRITE_ZEROES, 0, 16, NULL, 1);
	cut();
	assert_int_equal(get(3), 1);
	assert_int_equal(get(4), 0);
	assert_int_equal(get(11), 0);
	assert_int_equal(get(12), 1);
	assert_int_equal(get(16), 0);
	disk_close();
}

static void
a_full_cache_writes_the_oldest(void **state)
{
	(void)state;
	disk_open("cache_size=16K");
	for (unsigned i = 0; i < 6; i++)
		put(i * 8, 1, i + 1, 0);
	put(3 * 8, 1, 7, 0); /* no page more */
	assert_int_equal(cache_used(&disk->cache), 4 * PAGE_SIZE);
	cut();
	assert_int_equal(get(0), 1);
	assert_int_equal(get(8), 2);
	for (unsigned i = 2; i < 6; i++)
		assert_int_equal(get(i * 8), 0);
	disk_close();
}

/*
 * However large the cache is, and however often the same is written; and it is
 * lost all the same, and nothing else is not.
 */
static void
a_history_has_an_end(void **state)
{
	static const unsigned lens[] = { 8, 3 };
	uint64_t before;

	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		disk_open("cache_size=1G");
		put(0, 8, 7, 0);
		flush();
		for (unsigned i = 1; i < 8; i++)
			put(i * 8, 8, 1, 0);
		before = page_pool_used(pool);
		for (unsigned i = 2; i < 2000; i++) {
			put(i % 6, lens[k], i, 0);
			rest(pool, &machine->cpu[0]);
			turn(&machine->cpu[0]);
		}
		assert_true(page_pool_used(pool) < before + 20 * PAGE_SIZE);
		assert_int_equal(cache_used(&disk->cache), 8 * PAGE_SIZE);
		cut();
		for (unsigned i = 0; i < 64; i++)
			assert_int_equal(get(i), i < 8 ? 7 : 0);
		disk_close();
	}
}

/* More than the cache holds, in one write. */
static void
a_write_may_be_larger(void **state)
{
	(void)state;
	disk_open("cache_size=16K max_sectors=64");
	put(0, 64, 1, 0);
	assert_int_equal(cache_used(&disk->cache), 4 * PAGE_SIZE);
	cut();
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(get(i), i < 32 ? 1 : 0);
	disk_close();
}

static void
set(const char *value)
{
	char err[256];
	int ret = disk_set(disk, "cache_size", value, now, err, sizeof(err));

	while (ret == -EINPROGRESS) {
		for (unsigned i = 0; i < NR_CPUS; i++) {
			rest(pool, &machine->cpu[i]);
			turn(&machine->cpu[i]);
		}
		ret = disk_settle(disk, now, err, sizeof(err));
	}
	if (ret != 0)
		fail_msg("%s", err);
}

static void
its_size_changes_live(void **state)
{
	(void)state;
	disk_open("");
	put(0, 1, 1, 0);
	cut();
	assert_int_equal(get(0), 1); /* there was none */
	set("64K");
	put(0, 1, 2, 0);
	put(8, 1, 2, 0);
	put(16, 1, 2, 0);
	set("8K");
	put(24, 1, 2, 0);
	assert_int_equal(cache_used(&disk->cache), 2 * PAGE_SIZE);
	cut();
	assert_int_equal(get(0), 2);
	assert_int_equal(get(8), 2);
	assert_int_equal(get(16), 0);
	put(16, 1, 3, 0);
	set("0");
	cut();
	assert_int_equal(get(16), 3); /* written when it went off */
	put(16, 1, 4, 0);
	cut();
	assert_int_equal(get(16), 4);
	disk_close();
}

static void
shown(const struct disk *d, const char *name, char *text, size_t len)
{
	FILE *out = fmemopen(text, len, "w");

	assert_non_null(out);
	attr_get(attr_find(disk_attrs, name), &d->conf, out);
	fclose(out);
}

/* 1.2; and what 6.12 says of queue/write_cache and queue/fua. */
static void
is_none_without_memory(void **state)
{
	static const struct {
		const char *settings, *cache, *fua;
	} want[] = {
		{ "cache_size=1", "write through", "0" },
		{ "memory_backed=1", "write through", "0" },
		{ "memory_backed=1 cache_size=1", "write back", "1" },
		{ "memory_backed=1 cache_size=1 fua=0", "write back", "0" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct machine *m = host_new(1);
		struct page_pool *p = page_pool_new(m, 0);
		char settings[128], text[32];
		struct disk *d;

		turn(m->cpu);
		snprintf(
		    settings, sizeof(settings), "size=1 %s", want[i].settings);
		d = host_disk(m, p, settings);
		shown(d, "queue/write_cache", text, sizeof(text));
		assert_string_equal(text, want[i].cache);
		shown(d, "queue/fua", text, sizeof(text));
		assert_string_equal(text, want[i].fua);
		assert_int_equal(
		    d->queue->limits.write_cache, want[i].cache[6] == 'b');
		disk_free(d);
		rest(p, m->cpu);
		page_pool_free(p);
		machine_free(m);
	}
}

/* A reply that is not sent yet shows what was there, whatever happens. */
static void
a_reply_keeps_what_it_shows(void **state)
{
	struct cpu *cpu = &machine->cpu[0];
	struct io *io;

	(void)state;
	disk_open("cache_size=64K irqmode=0");
	cpu = &machine->cpu[0];
	put(0, 8, 1, 0);
	io = submit(cpu, REQ_OP_READ, 0, 0, NULL, 8);
	assert_true(io->ended);
	put(0, 8, 2, 0);
	put(0, 2, 3, REQ_FUA);
	cut();
	assert_int_equal(get(0), 3);
	assert_int_equal(get(2), 0);
	assert_int_equal(*(uint64_t *)io->bio.iov[0].iov_base, 1);
	assert_int_equal(finish(io, cpu), 0);
	disk_close();
}

/* ---- a model, and 100,000 steps against it */

#define MAX_MAYBE 16u

/* What a sector may say after a power cut: the first if all is lost. */
struct expected {
	uint64_t maybe[MAX_MAYBE];
	unsigned nr;
};

static struct expected expected[SECTORS];
static bool exact; /* nothing is written before it is flushed */
static unsigned nr_lost;

static void
now_durable(uint64_t sector)
{
	struct expected *e = &expected[sector];

	e->maybe[0] = e->maybe[e->nr - 1];
	e->nr = 1;
}

static void
now_says(uint64_t sector, uint64_t stamp)
{
	struct expected *e = &expected[sector];

	if (e->nr == MAX_MAYBE) { /* forget one in the middle */
		memmove(&e->maybe[1], &e->maybe[2],
		    (MAX_MAYBE - 2) * sizeof(e->maybe[0]));
		e->nr--;
	}
	e->maybe[e->nr++] = stamp;
}

static void
check_sector(uint64_t sector)
{
	const struct expected *e = &expected[sector];

	if (get(sector) != e->maybe[e->nr - 1])
		fail_msg(
		    "sector %u is not as it was written", (unsigned)sector);
}

static void
check_after_cut(void)
{
	uint64_t block = disk->conf.blocksize / SECTOR_SIZE, written = 0;

	for (uint64_t i = 0; i < SECTORS; i++) {
		struct expected *e = &expected[i];
		uint64_t got = get(i);
		unsigned k = 0;

		nr_lost += got != e->maybe[e->nr - 1];
		while (k < e->nr && e->maybe[k] != got)
			k++;
		if (k == e->nr && e->nr < MAX_MAYBE)
			fail_msg("sector %u says %u, which it cannot",
			    (unsigned)i, (unsigned)got);
		if (exact && got != e->maybe[0])
			fail_msg("sector %u says %u, not %u", (unsigned)i,
			    (unsigned)got, (unsigned)e->maybe[0]);
		e->maybe[0] = got;
		e->nr = 1;
		written += got != 0;
	}
	assert_int_equal(store_blocks(disk->store), written / block);
}

static void
step(uint64_t stamp, uint64_t block)
{
	uint64_t len = block * (1 + (uint64_t)rand() % (MAX_IO / block));
	uint64_t at =
	    block * ((uint64_t)rand() % ((SECTORS - len) / block + 1));
	int dice = rand() % 1000;

	if (dice < 450) {
		put(at, len, stamp, 0);
		for (uint64_t i = at; i < at + len; i++)
			now_says(i, stamp);
	} else if (dice < 600) {
		put(at, len, stamp, REQ_FUA);
		for (uint64_t i = at; i < at + len; i++) {
			now_says(i, stamp);
			now_durable(i);
		}
		for (uint64_t i = 0; !disk->conf.fua && i < SECTORS; i++)
			now_durable(i);
	} else if (dice < 680) {
		doio(dice < 640 ? REQ_OP_DISCARD : REQ_OP_WRITE_ZEROES, 0, at,
		    NULL, len);
		for (uint64_t i = at; i < at + len; i++) {
			now_says(i, 0);
			now_durable(i);
		}
	} else if (dice < 720) {
		flush();
		for (uint64_t i = 0; i < SECTORS; i++)
			now_durable(i);
	} else if (dice < 990) {
		check_sector((uint64_t)rand() % SECTORS);
	} else {
		cut();
		check_after_cut();
	}
}

static void
run_model(const char *settings, unsigned steps, bool is_exact)
{
	unsigned seed = SEED;

	if (getenv("NULLB_SEED") != NULL)
		seed = (unsigned)strtoul(getenv("NULLB_SEED"), NULL, 0);
	print_message("%s: NULLB_SEED=%u\n", settings, seed);
	srand(seed);
	exact = is_exact;
	nr_lost = 0;
	disk_open(settings);
	for (unsigned i = 0; i < SECTORS; i++)
		expected[i] = (struct expected){ .nr = 1 };
	for (unsigned i = 1; i <= steps; i++) {
		step(i, disk->conf.blocksize / SECTOR_SIZE);
		/* replies go, and what they showed */
		for (unsigned k = 0; i % 16 == 0 && k < NR_CPUS; k++) {
			rest(pool, &machine->cpu[k]);
			turn(&machine->cpu[k]);
		}
	}
	assert_true(nr_lost > 0); /* else this has tried nothing */
	disk_close();
}

#define MODEL "queue/write_zeroes_max_bytes=1M irqmode=0 "

static void
never_loses_a_durable_write(void **state)
{
	(void)state;
	run_model(MODEL "cache_size=64K", STEPS, false);
}

static void
loses_all_that_is_not_flushed(void **state)
{
	(void)state;
	run_model(MODEL "cache_size=2M", STEPS, true);
}

static void
neither_in_other_shapes(void **state)
{
	(void)state;
	run_model(MODEL "cache_size=2M blocksize=4096", STEPS / 5, true);
	run_model(MODEL "cache_size=2M fua=0", STEPS / 5, true);
	run_model(MODEL "cache_size=4K kernel=4.14", STEPS / 5, false);
	run_model(MODEL "cache_size=2M queue/scheduler=mq-deadline "
			"submit_queues=2",
	    STEPS / 5, true);
	run_model(
	    MODEL "cache_size=2M kernel=6.1 queue_mode=0", STEPS / 5, true);
}

/* ---- two cpus at once, in each other's pages */

#define ROUNDS 3000u

static void *
client(void *arg)
{
	struct cpu *cpu = arg;
	uint64_t data[16][SECTOR_SIZE / sizeof(uint64_t)];
	uint64_t durable = 0, at = cpu->id; /* every other sector is mine */
	unsigned seed = SEED + cpu->id;

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		struct request rq = {
			.op = i % 7 == 0 ? REQ_OP_FLUSH : REQ_OP_WRITE,
			.flags = i % 3 == 0 ? REQ_FUA : 0,
			.pos = at * SECTOR_SIZE,
			.bytes = SECTOR_SIZE,
		};
		struct bio bio = {
			.op = rq.op, .pos = rq.pos, .bytes = SECTOR_SIZE
		};

		turn(cpu);
		STAILQ_INIT(&rq.bios);
		STAILQ_INSERT_TAIL(&rq.bios, &bio, link);
		cache_stage(disk, &rq, cpu, 0);
		if (rq.op == REQ_OP_WRITE) {
			for (size_t k = 0; k < SECTOR_SIZE / 8; k++)
				data[0][k] = i;
			assert_int_equal(store_write(disk->store, cpu, rq.pos,
					     (char *)data[0], SECTOR_SIZE),
			    0);
		}
		cache_through_stage(disk, &rq, cpu, 0);
		if (rq.op == REQ_OP_FLUSH || (rq.flags & REQ_FUA))
			durable = rq.op == REQ_OP_FLUSH ? i - 1 : i;
		if (rand_r(&seed) % 16 == 0)
			rest(pool, cpu);
	}
	rest(pool, cpu);
	return (void *)(uintptr_t)durable;
}

static void
two_cpus_keep_each_others_promises(void **state)
{
	void *durable[NR_CPUS];
	pthread_t thread[NR_CPUS];

	(void)state;
	disk_open("cache_size=8K");
	for (unsigned i = 0; i < NR_CPUS; i++)
		assert_int_equal(
		    pthread_create(&thread[i], NULL, client, &machine->cpu[i]),
		    0);
	for (unsigned i = 0; i < NR_CPUS; i++)
		pthread_join(thread[i], &durable[i]);
	for (unsigned i = 0; i < NR_CPUS; i++)
		turn(&machine->cpu[i]);
	cut();
	for (unsigned i = 0; i < NR_CPUS; i++)
		assert_in_range(get(i), (uintptr_t)durable[i], ROUNDS);
	disk_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_not_flushed_is_lost),
		cmocka_unit_test(what_was_flushed_stays),
		cmocka_unit_test(fua_passes_the_cache_by),
		cmocka_unit_test(without_fua_it_flushes),
		cmocka_unit_test(discards_are_not_cached),
		cmocka_unit_test(a_full_cache_writes_the_oldest),
		cmocka_unit_test(a_history_has_an_end),
		cmocka_unit_test(a_write_may_be_larger),
		cmocka_unit_test(its_size_changes_live),
		cmocka_unit_test(is_none_without_memory),
		cmocka_unit_test(a_reply_keeps_what_it_shows),
		cmocka_unit_test(never_loses_a_durable_write),
		cmocka_unit_test(loses_all_that_is_not_flushed),
		cmocka_unit_test(neither_in_other_shapes),
		cmocka_unit_test(two_cpus_keep_each_others_promises),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
