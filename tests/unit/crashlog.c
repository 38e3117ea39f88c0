/* SPDX-License-Identifier: MIT */
/*
 * The record of what changes a disk, in the format of dm-log-writes: what is
 * in it up to any entry is what the disk had then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "dev/crashlog.h"
#include "unit/host.h"

#define NR_CPUS  2u
#define SIZE     (256u << 10) /* of the disk */
#define MAX_IO   (32u << 10)
#define LOG_SIZE (8u << 20)
#define STEPS    200u
#define SEED     20141120u

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;
static struct crash_log crash_log;

/* ---- its file is an array, which fails on request */

static struct {
	char data[LOG_SIZE];
	uint64_t end;
	int error;
} file;

static int
file_write(void *arg, const struct iovec *iov, unsigned nr, uint64_t pos)
{
	assert_ptr_equal(arg, &file);
	if (file.error != 0)
		return file.error;
	for (unsigned i = 0; i < nr; i++) {
		assert_true(pos + iov[i].iov_len <= sizeof(file.data));
		memcpy(file.data + pos, iov[i].iov_base, iov[i].iov_len);
		pos += iov[i].iov_len;
	}
	if (pos > file.end)
		file.end = pos;
	return 0;
}

static uint64_t
nr_entries(void)
{
	struct crash_log_super s;

	memcpy(&s, file.data, sizeof(s));
	assert_int_equal(le64toh(s.magic), 0x6a736677736872);
	assert_int_equal(le64toh(s.version), 1);
	assert_int_equal(le32toh(s.sectorsize), 512);
	return le64toh(s.nr_entries);
}

/* The one at *at, and on to the next. */
static struct crash_log_entry
next_entry(uint64_t *at, const char **data)
{
	struct crash_log_entry e;

	assert_int_equal(*at % CRASH_LOG_SECTOR, 0);
	memcpy(&e, file.data + *at, sizeof(e));
	e.sector = le64toh(e.sector);
	e.nr_sectors = le64toh(e.nr_sectors);
	e.flags = le64toh(e.flags);
	e.data_len = le64toh(e.data_len);
	*data = e.flags & CRASH_MARK ? file.data + *at + sizeof(e)
				     : file.data + *at + CRASH_LOG_SECTOR;
	*at += CRASH_LOG_SECTOR;
	if (!(e.flags & (CRASH_MARK | CRASH_DISCARD)))
		*at += e.nr_sectors * CRASH_LOG_SECTOR;
	assert_true(*at <= file.end);
	return e;
}

/* ---- a disk, and I/O that is done when the call returns */

static void
disk_open(const char *settings)
{
	char all[256];

	machine = host_new(NR_CPUS);
	pool = page_pool_new(machine, 0);
	for (unsigned i = 0; i < NR_CPUS; i++)
		turn(&machine->cpu[i]);
	snprintf(all, sizeof(all),
	    "memory_backed=1 discard=1 size=256K irqmode=0 "
	    "queue/write_zeroes_max_bytes=1M %s",
	    settings);
	disk = host_disk(machine, pool, all);
	memset(&file, 0, sizeof(file));
	assert_int_equal(crash_log_init(&crash_log, file_write, &file), 0);
	disk_log_crash(disk, &crash_log);
}

static void
disk_close(void)
{
	disk_log_crash(disk, NULL);
	crash_log_fini(&crash_log);
	for (unsigned i = 0; i < NR_CPUS; i++)
		rest(pool, &machine->cpu[i]);
	disk_free(disk);
	page_pool_free(pool);
	machine_free(machine);
}

static void
on_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	*(int *)bio->priv = bio->error == 0 ? 1 : bio->error;
	bio_release(bio, cpu);
}

/* 1, or -errno. */
static int
doio(enum req_op op, unsigned flags, uint64_t pos, char *data, uint64_t len)
{
	struct cpu *cpu = &machine->cpu[0];
	static struct bvec bv[BIO_MAX_VECS];
	struct bio bio;
	int result = 0;

	bio_init(&bio, op, pos, bv, BIO_MAX_VECS);
	bio.flags = (uint16_t)flags;
	bio.end_io = on_end;
	bio.priv = &result;
	if (data != NULL)
		assert_int_equal(bio_add_payload(&bio, true, UINT64_C(1) << 40,
				     9, 0, data, len),
		    len);
	else
		bio.bytes = len;
	assert_int_equal(queue_submit(disk->queue, cpu, NULL, &bio, 1), 0);
	for (unsigned i = 0; i < 9 && result == 0; i++)
		cpu_run(cpu, 1);
	return result;
}

static void
put(uint64_t pos, uint64_t len, char byte, unsigned flags)
{
	static char data[MAX_IO];

	memset(data, byte, len);
	assert_int_equal(doio(REQ_OP_WRITE, flags, pos, data, len), 1);
}

/* ---- cases */

static void
is_what_dm_log_writes_writes(void **state)
{
	struct crash_log_entry e;
	uint64_t at = CRASH_LOG_SECTOR;
	const char *data;
	char err[128];

	(void)state;
	disk_open("cache_size=1M");
	assert_int_equal(nr_entries(), 0);
	put(4096, 1024, 'a', 0);
	put(0, 512, 'b', REQ_FUA);
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, NULL, 0), 1);
	assert_int_equal(doio(REQ_OP_DISCARD, 0, 4096, NULL, 4096), 1);
	assert_int_equal(doio(REQ_OP_WRITE_ZEROES, 0, 0, NULL, 512), 1);
	assert_int_equal(disk_mark(disk, "here", err, sizeof(err)), 0);
	assert_int_equal(nr_entries(), 6);
	e = next_entry(&at, &data);
	assert_int_equal(e.sector, 8);
	assert_int_equal(e.nr_sectors, 2);
	assert_int_equal(e.flags, 0);
	assert_int_equal(e.data_len, 0);
	assert_int_equal(data[0], 'a');
	assert_int_equal(data[1023], 'a');
	e = next_entry(&at, &data);
	assert_int_equal(e.flags, 2);
	assert_int_equal(e.nr_sectors, 1);
	assert_int_equal(data[511], 'b');
	e = next_entry(&at, &data);
	assert_int_equal(e.flags, 1);
	assert_int_equal(e.nr_sectors, 0);
	e = next_entry(&at, &data);
	assert_int_equal(e.flags, 4);
	assert_int_equal(e.sector, 8);
	assert_int_equal(e.nr_sectors, 8);
	e = next_entry(&at, &data);
	assert_int_equal(e.flags, 4);
	assert_int_equal(e.nr_sectors, 1);
	e = next_entry(&at, &data);
	assert_int_equal(e.flags, 8);
	assert_int_equal(e.data_len, 4);
	assert_string_equal(data, "here");
	assert_int_equal(at, file.end);
	disk_close();
}

static void
reads_are_not_in_it(void **state)
{
	char data[512];

	(void)state;
	disk_open("");
	assert_int_equal(doio(REQ_OP_READ, 0, 0, data, sizeof(data)), 1);
	assert_int_equal(nr_entries(), 0);
	disk_close();
}

static void
a_mark_has_a_length(void **state)
{
	char text[CRASH_MAX_MARK + 2], err[128];

	(void)state;
	disk_open("");
	memset(text, 'm', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(disk_mark(disk, text, err, sizeof(err)), -EINVAL);
	assert_string_equal(err, "mark: 480 bytes: allowed: 1 to 479");
	assert_int_equal(disk_mark(disk, "", err, sizeof(err)), -EINVAL);
	assert_int_equal(nr_entries(), 0);
	text[CRASH_MAX_MARK] = '\0';
	assert_int_equal(disk_mark(disk, text, err, sizeof(err)), 0);
	assert_int_equal(nr_entries(), 1);
	disk_log_crash(disk, NULL);
	assert_int_equal(disk_mark(disk, "m", err, sizeof(err)), -ENOENT);
	assert_string_equal(err, "mark: it has no crash_log");
	disk_close();
}

/* Never one that lacks something: nothing is written any more then. */
static void
it_ends_when_it_cannot_be_written(void **state)
{
	char data[512] = "", err[128];

	(void)state;
	disk_open("cache_size=1M");
	put(0, 512, 'a', 0);
	file.error = -ENOSPC;
	assert_int_equal(doio(REQ_OP_WRITE, 0, 0, data, 512), -ENOSPC);
	file.error = 0;
	assert_int_equal(doio(REQ_OP_WRITE, 0, 0, data, 512), -ENOSPC);
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, NULL, 0), -ENOSPC);
	assert_int_equal(doio(REQ_OP_DISCARD, 0, 0, NULL, 512), -ENOSPC);
	assert_int_equal(disk_mark(disk, "m", err, sizeof(err)), -ENOSPC);
	assert_int_equal(doio(REQ_OP_READ, 0, 0, data, 512), 1);
	assert_int_equal(nr_entries(), 1);
	disk_close();
}

static void
is_refused_where_there_is_no_data(void **state)
{
	static const struct {
		const char *name, *value, *error;
	} wrong[] = {
		{ "memory_backed", "0",
		    "crash_log: \"x\": allowed: none, unless memory_backed" },
		{ "zoned", "1",
		    "crash_log: \"x\": allowed: none, as zoned is set" },
	};
	struct disk_conf set, conf;
	struct queue_conf queue;
	char err[256];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(attr_init(disk_attrs, &set), 0);
		assert_int_equal(attr_set(disk_attrs, &set, "memory_backed",
				     "1", false, err, sizeof(err)),
		    0);
		assert_int_equal(attr_set(disk_attrs, &set, "crash_log", "x",
				     false, err, sizeof(err)),
		    0);
		assert_int_equal(attr_set(disk_attrs, &set, wrong[i].name,
				     wrong[i].value, false, err, sizeof(err)),
		    0);
		assert_int_equal(
		    disk_check(&set, 1, &conf, &queue, err, sizeof(err)),
		    -EINVAL);
		assert_string_equal(err, wrong[i].error);
		attr_fini(disk_attrs, &set);
	}
}

/* ---- at random: replayed up to any entry it is what the disk had then */

static char had[STEPS + 1][SIZE]; /* after each step */
static uint64_t after[STEPS + 1]; /* how many entries there were */

static void
random_step(struct rng *rng)
{
	uint64_t pos = rng_below(rng, SIZE / 512) * 512;
	uint64_t len = 512 * (1 + rng_below(rng, MAX_IO / 512));
	uint64_t what = rng_below(rng, 16);

	if (len > SIZE - pos)
		len = SIZE - pos;
	if (what == 0)
		assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, NULL, 0), 1);
	else if (what <= 2)
		assert_int_equal(doio(REQ_OP_DISCARD, 0, pos, NULL, len), 1);
	else if (what == 3)
		assert_int_equal(
		    doio(REQ_OP_WRITE_ZEROES, 0, pos, NULL, len), 1);
	else
		put(pos, len, (char)(1 + rng_below(rng, 120)),
		    what == 4 ? REQ_FUA : 0);
}

static void
up_to_any_entry_it_is_what_there_was(void **state)
{
	struct rng rng = rng_stream(SEED, 1);
	uint64_t at = CRASH_LOG_SECTOR, nr = 0;
	static char image[SIZE];
	const char *data;

	(void)state;
	disk_open("cache_size=1M max_sectors=16");
	for (unsigned i = 1; i <= STEPS; i++) {
		random_step(&rng);
		after[i] = nr_entries();
		(void)store_read(
		    disk->store, &machine->cpu[0], 0, had[i], SIZE);
	}
	assert_true(after[STEPS] > STEPS); /* large ones were split */
	for (unsigned i = 1; i <= STEPS; i++) {
		for (; nr < after[i]; nr++) {
			struct crash_log_entry e = next_entry(&at, &data);
			uint64_t pos = e.sector * 512, len = e.nr_sectors * 512;

			assert_true(pos + len <= SIZE);
			if (e.flags & CRASH_DISCARD)
				memset(image + pos, 0, len);
			else
				memcpy(image + pos, data, len);
		}
		assert_memory_equal(image, had[i], SIZE);
	}
	assert_int_equal(at, file.end);
	disk_close();
}

/* ---- a discard that is no longer what there is */

/* The image that all entries make. */
static const char *
replayed(void)
{
	uint64_t at = CRASH_LOG_SECTOR, nr = nr_entries();
	static char image[SIZE];
	struct crash_log_entry e;
	const char *data;

	memset(image, 0, SIZE);
	for (; nr > 0; nr--) {
		e = next_entry(&at, &data);
		if (e.flags & CRASH_DISCARD)
			memset(image + e.sector * 512, 0, e.nr_sectors * 512);
		else
			memcpy(
			    image + e.sector * 512, data, e.nr_sectors * 512);
	}
	assert_int_equal(at, file.end);
	return image;
}

static void
is_what_there_is(void)
{
	static char now[SIZE];

	(void)store_read(disk->store, &machine->cpu[0], 0, now, SIZE);
	assert_memory_equal(replayed(), now, SIZE);
}

/* Discarded, then written and recorded by another cpu, then recorded. */
static void
a_discard_takes_back_no_later_write(void **state)
{
	struct bio bio = { .op = REQ_OP_DISCARD, .bytes = SIZE };
	struct request rq = { .op = REQ_OP_DISCARD, .bytes = SIZE };
	uint64_t nr;

	(void)state;
	disk_open("");
	STAILQ_INIT(&rq.bios);
	STAILQ_INSERT_TAIL(&rq.bios, &bio, link);
	put(0, 4096, 'a', 0);
	assert_int_equal(
	    store_discard(disk->store, &machine->cpu[0], 0, SIZE), 0);
	put(5 * 4096 + 512, 1024, 'b', 0);
	put(SIZE - 4096, 4096, 'c', 0);
	nr = nr_entries();
	assert_int_equal(
	    crash_log_stage(disk, &rq, &machine->cpu[0], 0), STAGE_NEXT);
	assert_true(nr_entries() > nr);
	assert_int_equal(replayed()[5 * 4096 + 512], 'b');
	assert_int_equal(replayed()[0], 0);
	is_what_there_is();
	disk_close();
}

/* Memory for some of its pages, and then none. */
static void
a_write_that_failed_may_be_half_there(void **state)
{
	static char data[MAX_IO];
	uint64_t pos = 0;

	(void)state;
	disk_open("memory_limit=84K");
	memset(data, 'a', sizeof(data));
	while (doio(REQ_OP_WRITE, 0, pos, data, sizeof(data)) == 1)
		pos += sizeof(data);
	assert_true(
	    store_read(disk->store, &machine->cpu[0], pos, data, sizeof(data)));
	assert_int_equal(data[0], 'a');
	assert_int_equal(data[sizeof(data) - 1], 0);
	is_what_there_is();
	disk_close();
}

/* ---- several cpus at once: each entry is whole */

#define ROUNDS 500u

static void *
client(void *arg)
{
	struct cpu *cpu = arg;
	char data[4096];

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct request rq = {
			.op = i % 9 == 0 ? REQ_OP_FLUSH : REQ_OP_WRITE,
			.pos = cpu->id * 4096,
			.bytes = i % 9 == 0 ? 0 : 4096,
		};
		struct bio bio = {
			.op = rq.op, .pos = rq.pos, .bytes = rq.bytes
		};

		turn(cpu);
		STAILQ_INIT(&rq.bios);
		STAILQ_INSERT_TAIL(&rq.bios, &bio, link);
		memset(data, 1 + (int)(i % 100), sizeof(data));
		if (rq.op == REQ_OP_WRITE)
			assert_int_equal(store_write(disk->store, cpu, rq.pos,
					     data, sizeof(data)),
			    0);
		assert_int_equal(
		    crash_log_stage(disk, &rq, cpu, 0), STAGE_NEXT);
		rest(pool, cpu);
	}
	return NULL;
}

static void
cpus_take_turns(void **state)
{
	uint64_t at = CRASH_LOG_SECTOR, nr[NR_CPUS] = {};
	pthread_t thread[NR_CPUS];
	const char *data;

	(void)state;
	disk_open("");
	for (unsigned i = 0; i < NR_CPUS; i++)
		assert_int_equal(
		    pthread_create(&thread[i], NULL, client, &machine->cpu[i]),
		    0);
	for (unsigned i = 0; i < NR_CPUS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(nr_entries(), NR_CPUS * ROUNDS);
	for (unsigned i = 0; i < NR_CPUS * ROUNDS; i++) {
		struct crash_log_entry e = next_entry(&at, &data);

		if (e.flags & CRASH_FLUSH)
			continue;
		assert_int_equal(e.sector % 8, 0);
		assert_true(e.sector / 8 < NR_CPUS);
		nr[e.sector / 8]++;
		for (unsigned k = 1; k < 4096; k++)
			assert_int_equal(data[k], data[0]);
	}
	assert_int_equal(nr[0], nr[1]);
	for (unsigned i = 0; i < NR_CPUS; i++)
		turn(&machine->cpu[i]);
	disk_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_what_dm_log_writes_writes),
		cmocka_unit_test(reads_are_not_in_it),
		cmocka_unit_test(a_mark_has_a_length),
		cmocka_unit_test(it_ends_when_it_cannot_be_written),
		cmocka_unit_test(is_refused_where_there_is_no_data),
		cmocka_unit_test(up_to_any_entry_it_is_what_there_was),
		cmocka_unit_test(a_discard_takes_back_no_later_write),
		cmocka_unit_test(a_write_that_failed_may_be_half_there),
		cmocka_unit_test(cpus_take_turns),
	};

	return cmocka_run_group_tests_name("crashlog", tests, NULL, NULL);
}
