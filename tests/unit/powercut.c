/* SPDX-License-Identifier: MIT */
/*
 * Power cuts at random: what is there afterwards is what some fate of each
 * write explains, and no other.  Each sector says which write it is of, so what
 * is found tells of a write that it was there in a sector (nothing later was),
 * or not there; and the rules are about writes:
 *
 *	flushed, or FUA, and answered    there
 *	not in flight                    there as a whole, or not at all
 *	in flight                        the same; or torn at units
 *	--lose all                       only what is torn is there
 *	--lose ordered                   none is there behind one that is not
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
#include "unit/host.h"

#define NR_CPUS 2u
/*
 * Of the disk: few, so that writes overlap; but so many that seldom a page is
 * written so often that its first writes become one.
 */
#define SECTORS    1024u
#define MAX_IO     24u
#define MAX_EVENTS 128u
#define NR_CASES   1000u
#define SEED       20260401u
#define LATENCY    1000u /* ns */

enum finding {
	UNKNOWN,
	THERE,
	NOT_THERE
};

/* A request that changes something, in the order in which they came. */
struct event {
	uint64_t stamp; /* what its sectors say; 0: a discard */
	unsigned sector, sectors;
	bool through; /* there once it is answered: it never is lost */
	bool in_flight;
	enum finding found[MAX_IO];
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	char data[MAX_IO][SECTOR_SIZE];
	int result; /* 1: it ended well, -errno; 0: it has not ended */
};

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;
static uint64_t now, stamp;
static struct rng rng;

/* One case. */
static uint64_t base[SECTORS]; /* what they said before it */
static struct event events[MAX_EVENTS];
static unsigned nr_events;
static struct cut_conf conf;
static bool cached;

/* All of them together: each of it has to happen. */
static struct {
	unsigned there, lost, torn, torn_through, cut_at;
} seen;

static void
on_end(struct bio *bio, struct cpu *cpu, uint64_t when)
{
	(void)when;
	*(int *)bio->priv = bio->error == 0 ? 1 : bio->error;
	bio_release(bio, cpu);
}

static void
run_cpus(void)
{
	for (unsigned i = 0; i < NR_CPUS; i++) {
		cpu_run(&machine->cpu[i], now);
		rest(pool, &machine->cpu[i]);
		turn(&machine->cpu[i]);
	}
}

static void
start(struct bio *bio, int *result)
{
	struct cpu *cpu = &machine->cpu[rng_below(&rng, NR_CPUS)];

	*result = 0;
	bio->end_io = on_end;
	bio->priv = result;
	assert_int_equal(queue_submit(disk->queue, cpu, NULL, bio, now), 0);
	cpu_run(cpu, now);
}

static void
put_stamp(char sector[SECTOR_SIZE], uint64_t value)
{
	for (size_t i = 0; i < SECTOR_SIZE; i += sizeof(value))
		memcpy(sector + i, &value, sizeof(value));
}

static uint64_t
stamp_of(const char sector[SECTOR_SIZE])
{
	uint64_t value;

	memcpy(&value, sector, sizeof(value));
	for (size_t i = 0; i < SECTOR_SIZE; i += sizeof(value))
		assert_memory_equal(sector + i, &value, sizeof(value));
	return value;
}

/* A request with an effect: it has begun. */
static struct event *
change_at(enum req_op op, unsigned flags, unsigned sector, unsigned sectors)
{
	struct event *e = &events[nr_events++];
	uint64_t bytes;

	assert_true(nr_events <= MAX_EVENTS);
	*e = (struct event){
		.through = !cached || (flags & REQ_FUA) || op != REQ_OP_WRITE,
	};
	e->sectors = sectors;
	e->sector = sector;
	e->stamp = op == REQ_OP_WRITE ? ++stamp : 0;
	bytes = e->sectors * SECTOR_SIZE;
	bio_init(&e->bio, op, e->sector * SECTOR_SIZE, e->bv, BIO_MAX_VECS);
	e->bio.flags = (uint16_t)flags;
	if (op == REQ_OP_WRITE) {
		for (unsigned i = 0; i < e->sectors; i++)
			put_stamp(e->data[i], e->stamp);
		assert_int_equal(
		    bio_add_payload(&e->bio, true, UINT64_C(1) << 40, 9, 0,
			e->data[0], bytes),
		    bytes);
	} else {
		e->bio.bytes = bytes;
	}
	start(&e->bio, &e->result);
	return e;
}

static struct event *
change(enum req_op op, unsigned flags)
{
	unsigned nr = 1 + (unsigned)rng_below(&rng, MAX_IO);

	return change_at(
	    op, flags, (unsigned)rng_below(&rng, SECTORS - nr + 1), nr);
}

/* All that came before it is there now. */
static int
flush(void)
{
	struct bio bio;
	int result;

	bio_init(&bio, REQ_OP_FLUSH, 0, NULL, 0);
	start(&bio, &result);
	for (unsigned i = 0; i < 9 && result == 0; i++) {
		now += LATENCY;
		run_cpus();
	}
	assert_int_not_equal(result, 0);
	return result;
}

static void
finish(struct event *e)
{
	for (unsigned i = 0; i < 9 && e->result == 0; i++) {
		now += LATENCY;
		run_cpus();
	}
	assert_int_not_equal(e->result, 0);
}

static void
apply_to_base(const struct event *e)
{
	for (unsigned i = 0; i < e->sectors; i++)
		base[e->sector + i] = e->stamp;
}

static void
read_all(uint64_t *says)
{
	static char data[SECTORS][SECTOR_SIZE];
	struct bvec bv[BIO_MAX_VECS];
	struct bio bio;
	int result;

	bio_init(&bio, REQ_OP_READ, 0, bv, BIO_MAX_VECS);
	assert_int_equal(bio_add_payload(&bio, true, UINT64_C(1) << 40, 9, 0,
			     data[0], sizeof(data)),
	    sizeof(data));
	start(&bio, &result);
	for (unsigned i = 0; i < 9 && result == 0; i++) {
		now += LATENCY;
		run_cpus();
	}
	assert_int_equal(result, 1);
	for (unsigned i = 0; i < SECTORS; i++)
		says[i] = stamp_of(data[i]);
}

/* ---- what a sector tells */

static bool
covers(const struct event *e, unsigned sector)
{
	return sector >= e->sector && sector < e->sector + e->sectors;
}

static void
find(struct event *e, unsigned sector, enum finding f)
{
	e->found[sector - e->sector] = f;
}

/* From the newest back to the one that it is of: that one is there. */
static void
look_at(unsigned sector, uint64_t says)
{
	for (unsigned i = nr_events; i-- > 0;) {
		struct event *e = &events[i];

		if (!covers(e, sector))
			continue;
		find(e, sector, e->stamp == says ? THERE : NOT_THERE);
		if (e->stamp == says)
			return;
		if (e->through && !e->in_flight)
			fail_msg("sector %u says %u: lost what was written "
				 "through, %u",
			    sector, (unsigned)says, (unsigned)e->stamp);
	}
	if (says != base[sector])
		fail_msg("sector %u says %u, which nobody wrote there", sector,
		    (unsigned)says);
}

/* ---- what that makes of a write */

static bool
has(const struct event *e, enum finding f)
{
	for (unsigned i = 0; i < e->sectors; i++)
		if (e->found[i] == f)
			return true;
	return false;
}

/* Its first sectors are there, up to a unit's end, and the others not. */
static void
check_torn(const struct event *e)
{
	unsigned unit = conf.tear / SECTOR_SIZE, i = e->sectors;
	unsigned first_lost = 0, last_there = 0;

	assert_true(e->in_flight);
	assert_int_not_equal(conf.tear, 0);
	while (i-- > 0)
		if (e->found[i] == NOT_THERE)
			first_lost = e->sector + i;
	for (i = 0; i < e->sectors; i++)
		if (e->found[i] == THERE)
			last_there = e->sector + i;
	assert_true(last_there < first_lost);
	assert_int_not_equal(last_there / unit, first_lost / unit);
	seen.torn++;
	seen.torn_through += e->through;
}

static void
check_events(void)
{
	bool broke = false; /* one is not there, or not all of it */

	for (unsigned i = 0; i < nr_events; i++) {
		struct event *e = &events[i];
		bool there = has(e, THERE), lost = has(e, NOT_THERE);

		/* zeros may have been there before */
		if ((e->through && !e->in_flight) || e->stamp == 0)
			continue;
		if (there && lost)
			check_torn(e);
		seen.lost += lost;
		if (e->through) /* it may have been there, or not yet */
			continue;
		seen.there += there;
		if (conf.lose == CUT_ALL && there)
			assert_true(e->in_flight && conf.tear != 0);
		if (conf.lose == CUT_ORDERED && there)
			assert_false(broke);
		broke |= lost;
	}
}

/* ---- a case */

static void
on_last(void *arg, struct disk *d)
{
	assert_ptr_equal(arg, &conf);
	assert_ptr_equal(d, disk);
	seen.cut_at++;
}

/* One more; false: the power is gone. */
static bool
step(bool in_flight)
{
	uint64_t what = rng_below(&rng, 20);
	struct event *e;

	if (what == 0 && !in_flight) {
		if (flush() != 1)
			return false;
		for (unsigned i = 0; i < nr_events; i++)
			apply_to_base(&events[i]);
		nr_events = 0;
		return true;
	}
	if (what <= 2)
		e = change(REQ_OP_DISCARD, 0);
	else
		e = change(REQ_OP_WRITE, what <= 4 ? REQ_FUA : 0);
	if (!in_flight)
		finish(e);
	return !disk_is_dead(&disk->cut);
}

static void
cut(void)
{
	int ret, turns = 0;

	if (!disk_is_dead(&disk->cut)) {
		conf.at = 0;
		disk_cut(disk, &conf, NULL, NULL);
	}
	for (unsigned i = 0; i < nr_events; i++)
		events[i].in_flight = events[i].result != 1;
	disk_power_down(disk, now);
	queue_expire(disk->queue, -ENOMEDIUM);
	while ((ret = disk_power_off(disk)) == -EINPROGRESS && turns++ < 9)
		run_cpus();
	assert_int_equal(ret, 0);
	assert_int_equal(cache_used(&disk->cache), 0);
	assert_int_equal(disk->cut.report.error, 0);
	assert_int_equal(disk->cut.report.seed, conf.seed);
	for (unsigned i = 0; i < nr_events; i++)
		assert_int_not_equal(events[i].result, 0); /* it has ended */
}

static void
run_case(unsigned nr)
{
	static const uint32_t tears[] = { 0, 512, 4096 };
	unsigned done = (unsigned)rng_below(&rng, 30);
	unsigned flying = (unsigned)rng_below(&rng, 12);
	uint64_t says[SECTORS];
	char err[256];
	bool on = true;

	conf = (struct cut_conf){
		.lose = (enum cut_lose)(nr % 3),
		.tear = tears[nr / 3 % 3],
		.seed = nr + 1,
		.at = nr / 9 % 2 != 0 ? 1 + rng_below(&rng, 30) : 0,
	};
	nr_events = 0;
	if (conf.at != 0) {
		assert_int_equal(
		    disk_can_cut(disk, &conf, err, sizeof(err)), 0);
		disk_cut(disk, &conf, on_last, &conf);
	}
	while (on && done-- > 0)
		on = step(false);
	while (on && flying-- > 0)
		on = step(true);
	cut();
	if (disk_power_on(disk, now, err, sizeof(err)) != 0)
		fail_msg("%s", err);
	read_all(says);
	for (unsigned i = 0; i < SECTORS; i++)
		look_at(i, says[i]);
	check_events();
	memcpy(base, says, sizeof(base));
}

static void
begin(const char *settings)
{
	char all[256];

	rng = rng_stream(SEED, 1);
	now = 2000000;
	machine = host_new(NR_CPUS);
	pool = page_pool_new(machine, 0);
	for (unsigned i = 0; i < NR_CPUS; i++)
		turn(&machine->cpu[i]);
	snprintf(all, sizeof(all),
	    "memory_backed=1 discard=1 size=512K irqmode=2 "
	    "completion_nsec=%u %s",
	    LATENCY, settings);
	disk = host_disk(machine, pool, all);
}

static void
end(void)
{
	for (unsigned i = 0; i < NR_CPUS; i++)
		rest(pool, &machine->cpu[i]);
	disk_free(disk);
	assert_int_equal(page_pool_used(pool), 0);
	page_pool_free(pool);
	machine_free(machine);
}

static void
run(const char *settings, bool has_cache)
{
	memset(base, 0, sizeof(base));
	memset(&seen, 0, sizeof(seen));
	cached = has_cache;
	begin(settings);
	for (unsigned i = 0; i < NR_CASES; i++)
		run_case(i);
	print_message("%s: %u there, %u lost, %u torn; %u came at a request\n",
	    settings, seen.there, seen.lost, seen.torn, seen.cut_at);
	assert_true(seen.lost > 0);
	assert_true(seen.torn > 0);
	assert_true(seen.torn_through > 0);
	assert_true(seen.cut_at > 0);
	end();
}

static void
nothing_else_is_there(void **state)
{
	(void)state;
	run("cache_size=1M", true);
	assert_true(seen.there > 0);
}

static void
nor_without_a_cache(void **state)
{
	(void)state; /* but for what it comes with all was written at once */
	run("cache_size=0", false);
}

/* ---- two cpus write to a page */

#define OTHERS 3u /* its sector there */

/* A cpu that was half way in with its write comes to move the data. */
static void
on_last_with_another(void *arg, struct disk *d)
{
	char data[SECTOR_SIZE];

	on_last(arg, d);
	put_stamp(data, ++stamp);
	assert_int_equal(store_write(d->store, &machine->cpu[1],
			     OTHERS * SECTOR_SIZE, data, sizeof(data)),
	    0);
}

/* One that the cache has held; it ended before the cut. */
static void
hold_another(void)
{
	struct request rq = {
		.op = REQ_OP_WRITE,
		.pos = OTHERS * SECTOR_SIZE,
		.bytes = SECTOR_SIZE,
	};

	assert_int_equal(cache_hold(disk, &rq, &machine->cpu[1]), 0);
}

/* Lost is what came later, or both: then nothing is said of the other. */
static void
cut_between_two(enum cut_lose lose, uint64_t seed)
{
	uint64_t says[SECTORS], others;
	char err[256];

	conf = (struct cut_conf){ .lose = lose, .seed = seed, .at = 1 };
	nr_events = 0;
	if (cached)
		hold_another();
	disk_cut(disk, &conf, on_last_with_another, &conf);
	change_at(REQ_OP_WRITE, 0, OTHERS + 1, 1);
	others = stamp;
	cut();
	assert_int_equal(disk->cut.report.writes, cached ? 2 : 1);
	if (disk_power_on(disk, now, err, sizeof(err)) != 0)
		fail_msg("%s", err);
	read_all(says);
	if (disk->cut.report.lost < disk->cut.report.writes || !cached)
		assert_int_equal(says[OTHERS], others);
	seen.lost += disk->cut.report.lost == 1;
}

static void
run_between_two(const char *settings, bool has_cache, enum cut_lose lose)
{
	memset(&seen, 0, sizeof(seen));
	cached = has_cache;
	begin(settings);
	for (unsigned i = 0; i < 20; i++)
		cut_between_two(lose, i + 1);
	assert_true(seen.lost > 0);
	end();
}

static void
what_another_cpu_writes_into_the_page_is_not_undone(void **state)
{
	(void)state;
	run_between_two("cache_size=0", false, CUT_ALL);
	run_between_two("cache_size=1M", true, CUT_ORDERED);
}

/* Whatever it was about: it has begun before, and ends after. */
static void
nobody_is_told_once_it_is_gone(void **state)
{
	static const unsigned flags[] = { 0, REQ_FUA };
	char err[256];

	(void)state;
	begin("cache_size=1M");
	for (unsigned i = 0; i < 4; i++) {
		struct event *e, *last;

		conf = (struct cut_conf){ .seed = 1, .at = 2 };
		nr_events = 0;
		disk_cut(disk, &conf, on_last, &conf);
		e = change_at(
		    i < 2 ? REQ_OP_WRITE : REQ_OP_DISCARD, flags[i % 2], 0, 8);
		assert_int_equal(e->result, 0);
		last = change_at(REQ_OP_WRITE, 0, 64, 8);
		finish(e);
		assert_int_equal(e->result, -ENOMEDIUM);
		finish(last);
		assert_int_equal(last->result, -ENOMEDIUM);
		cut();
		assert_int_equal(disk_power_on(disk, now, err, sizeof(err)), 0);
	}
	end();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_else_is_there),
		cmocka_unit_test(nor_without_a_cache),
		cmocka_unit_test(
		    what_another_cpu_writes_into_the_page_is_not_undone),
		cmocka_unit_test(nobody_is_told_once_it_is_gone),
	};

	return cmocka_run_group_tests_name("powercut", tests, NULL, NULL);
}
