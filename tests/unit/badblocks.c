/* SPDX-License-Identifier: MIT */
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

#define KIB    1024u
#define MIB    (1024u * KIB)
#define SECTOR 512u

static struct machine *machine;
static struct cpu *cpu;
static struct page_pool *pool;
static struct disk *disk;
static char err[256];

/* ---------------------------------------------------------- the attribute */

/* As it reads, a comma for a newline; of many the number and the last two. */
static const char *
reads(const struct badblocks *b)
{
	static char text[16 * KIB], shown[17 * KIB];
	unsigned nr = 0;
	char *c, *last = text, *before = text;
	FILE *out;

	memset(text, 0, sizeof(text));
	out = fmemopen(text, sizeof(text), "w");
	badblocks_object.show(b, out);
	fclose(out);
	for (c = text; *c != '\0'; c++)
		if (*c == '\n') {
			*c = ',';
			before = last;
			last = c + 1;
			nr++;
		}
	if (++nr <= 10)
		return text;
	snprintf(shown, sizeof(shown), "...%u,%s", nr, before);
	return shown;
}

static int
set(struct badblocks *b, const char *text)
{
	err[0] = '\0';
	return badblocks_set(b, text, err, sizeof(err));
}

/* "5\n" in the recording is a newline. */
static void
unescape(char *s)
{
	char *newline = strstr(s, "\\n");

	if (newline != NULL)
		strcpy(newline, "\n");
}

static void
answers_as_the_kernel_does(void **state)
{
	FILE *f = fopen("tests/data/badblocks.tsv", "r");
	struct badblocks *b = badblocks_new();
	char line[1024], *rest, *value, *error;
	int ret, rows = 0;

	(void)state;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (*line == '#')
			continue;
		line[strcspn(line, "\n")] = '\0';
		rest = line;
		value = strsep(&rest, "\t");
		error = strsep(&rest, "\t");
		unescape(value);
		ret = set(b, value);
		if (strcmp(ret == 0 ? "OK" : strerrorname_np(-ret), error) != 0)
			fail_msg("%s: %d, not %s", value, ret, error);
		if (strcmp(reads(b), rest) != 0)
			fail_msg("%s: %s, not %s", value, reads(b), rest);
		assert_int_equal(err[0] != '\0', ret != 0);
		rows++;
	}
	fclose(f);
	assert_true(rows > 30);
	badblocks_free(b);
}

static void
refuses_sectors_that_no_disk_has(void **state)
{
	struct badblocks *b = badblocks_new();

	(void)state; /* the kernel wraps them around */
	assert_int_equal(
	    set(b, "+18446744073709551615-18446744073709551615"), -ERANGE);
	assert_int_equal(set(b, "+0-18446744073709551614"), -ERANGE);
	assert_int_equal(set(b, "+0-18446744073709551616"), -ERANGE);
	assert_string_equal(err,
	    "badblocks: \"+0-18446744073709551616\": out of range, allowed: "
	    "+START-END to add or -START-END to remove sectors of 512 bytes, "
	    "up to 18014398509481983");
	assert_int_equal(set(b, "+0-18014398509481984"), -ERANGE);
	assert_int_equal(set(b, "+18014398509481983-18014398509481983"), 0);
	assert_string_equal(reads(b), "18014398509481983 1");
	/* all there are, where it removes none */
	assert_int_equal(set(b, "-0-18446744073709551615"), 0);
	assert_string_equal(reads(b), "");
	assert_int_equal(
	    set(b, "-18446744073709551615-18446744073709551615"), 0);
	badblocks_free(b);
}

static void
joins_what_touches_as_far_as_a_record_goes(void **state)
{
	static const struct {
		const char *text, *reads;
	} steps[] = {
		{ "+10-19", "10 10" },
		{ "+30-39", "10 10,30 10" },
		{ "+15-34", "10 30" }, /* over both */
		{ "+12-13", "10 30" }, /* inside */
		{ "+5-9", "5 35" },
		{ "+0-3", "0 4,5 35" },
		{ "+4-4", "0 40" },
		{ "+600-700", "0 40,600 101" },
		{ "+40-599", "0 512,512 189" },
		{ "+2000-2099", "0 512,512 189,2000 100" },
		{ "+1500-2200", "0 512,512 189,1500 500,2000 201" },
		{ "-512-4000", "0 512" },
		{ "-511-511", "0 511" },
		{ "-0-0", "1 510" },
	};
	struct badblocks *b = badblocks_new();

	(void)state;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		assert_int_equal(set(b, steps[i].text), 0);
		if (strcmp(reads(b), steps[i].reads) != 0)
			fail_msg("%s: %s", steps[i].text, reads(b));
	}
	badblocks_free(b);
}

static void
set_one(struct badblocks *b, uint64_t sector, int error)
{
	char text[64];

	snprintf(text, sizeof(text), "+%llu-%llu", (unsigned long long)sector,
	    (unsigned long long)sector);
	assert_int_equal(set(b, text), error);
}

static void
what_does_not_fit_changes_nothing(void **state)
{
	struct badblocks *b = badblocks_new();

	(void)state;
	for (unsigned i = 0; i < 511; i++)
		set_one(b, i * 4, 0);
	assert_int_equal(set(b, "+10000-10000"), 0);
	set_one(b, 20000, -EINVAL); /* 512 records */
	assert_string_equal(err,
	    "badblocks: \"+20000-20000\": does not fit, allowed: 512 ranges "
	    "of at most 512 sectors");
	assert_string_equal(reads(b), "...512,2040 1,10000 1");
	set_one(b, 10001, 0); /* it joins one */
	assert_string_equal(reads(b), "...512,2040 1,10000 2");
	assert_int_equal(set(b, "+10002-10002"), 0);
	assert_int_equal(set(b, "-10001-10001"), -EINVAL); /* a split */
	assert_string_equal(reads(b), "...512,2040 1,10000 3");
	assert_int_equal(set(b, "+9000-10600"), -EINVAL); /* not even a part */
	assert_string_equal(reads(b), "...512,2040 1,10000 3");
	assert_int_equal(set(b, "+0-1023"), 0); /* fewer than before */
	assert_string_equal(reads(b), "...258,2040 1,10000 3");
	badblocks_free(b);
	b = badblocks_new();
	assert_int_equal(set(b, "+0-262143"), 0); /* all it holds */
	assert_string_equal(reads(b), "...512,261120 512,261632 512");
	assert_int_equal(set(b, "+262144-262144"), -EINVAL);
	badblocks_free(b);
}

/* Against one flag a sector. */
static void
is_a_set_of_sectors(void **state)
{
	enum {
		NR = 4096
	};
	static bool bad[NR];
	struct badblocks *b = badblocks_new(), *copy;
	char text[64], *shown = NULL;
	size_t len;

	(void)state;
	srand(7);
	memset(bad, 0, sizeof(bad));
	for (unsigned i = 0; i < 5000; i++) {
		unsigned from = (unsigned)rand() % NR;
		unsigned to = from + (unsigned)rand() % (i % 3 ? 20 : 1500);
		bool add = rand() % 2;
		uint64_t start, nr, last = 0;
		FILE *out;
		char *p;
		int n;

		if (to >= NR)
			to = NR - 1;
		snprintf(
		    text, sizeof(text), "%c%u-%u", add ? '+' : '-', from, to);
		assert_int_equal(set(b, text), 0);
		memset(bad + from, add, to - from + 1);
		out = open_memstream(&shown, &len);
		badblocks_object.show(b, out);
		fclose(out);
		for (p = shown; sscanf(p, "%lu %lu%n", &start, &nr, &n) == 2;
		     p += n) {
			assert_in_range(nr, 1, 512);
			assert_true(last == 0 || start >= last);
			for (; last < start; last++)
				assert_false(bad[last]);
			for (; last < start + nr; last++)
				assert_true(bad[last]);
		}
		for (; last < NR; last++)
			assert_false(bad[last]);
		free(shown);
	}
	copy = badblocks_object.copy(b);
	assert_true(badblocks_object.same(b, copy));
	assert_int_equal(set(copy, "-0-4095"), 0);
	assert_false(badblocks_object.same(b, copy));
	for (size_t i = 0;; i++) { /* and its values make it anew */
		FILE *out = fmemopen(text, sizeof(text), "w");
		bool more = badblocks_object.item(b, i, out);

		fclose(out);
		if (!more)
			break;
		assert_int_equal(set(copy, text), 0);
	}
	for (unsigned i = 0; i < NR; i++) {
		uint64_t one = SECTOR;

		assert_int_equal(
		    badblocks_extent(copy, SECTOR, i * SECTOR, &one), bad[i]);
	}
	badblocks_free(copy);
	badblocks_free(b);
}

static void
tells_blocks_and_how_far_it_holds(void **state)
{
	struct badblocks *b = badblocks_new();
	uint64_t len;

	(void)state;
	len = 100;
	assert_false(badblocks_extent(b, 4096, 7, &len));
	assert_int_equal(len, 100);
	set(b, "+101-101");
	set(b, "+120-130");
	len = MIB;
	assert_false(badblocks_extent(b, SECTOR, 0, &len));
	assert_int_equal(len, 101 * SECTOR);
	len = MIB;
	assert_true(badblocks_extent(b, SECTOR, 101 * SECTOR + 5, &len));
	assert_int_equal(len, SECTOR - 5);
	len = MIB; /* a block with a bad sector is bad */
	assert_false(badblocks_extent(b, 4096, 1000, &len));
	assert_int_equal(len, 96 * SECTOR - 1000);
	len = MIB;
	assert_true(badblocks_extent(b, 4096, 96 * SECTOR, &len));
	assert_int_equal(len, 4096);
	len = MIB;
	assert_true(badblocks_extent(b, 4096, 103 * SECTOR, &len));
	assert_int_equal(len, SECTOR);
	len = MIB;
	assert_false(badblocks_extent(b, 4096, 104 * SECTOR, &len));
	assert_int_equal(len, 16 * SECTOR);
	len = MIB;
	assert_true(badblocks_extent(b, 4096, 121 * SECTOR, &len));
	assert_int_equal(len, 15 * SECTOR);
	len = MIB;
	assert_false(badblocks_extent(b, 4096, 136 * SECTOR, &len));
	assert_int_equal(len, MIB);
	badblocks_free(b);
}

/* ---------------------------------------------------------------- the I/O */

struct io {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	bool ended;
};

static void
open_disk(const char *settings)
{
	machine = host_new(1);
	cpu = &machine->cpu[0];
	epoch_enter(&machine->epoch, 0);
	pool = page_pool_new(machine, 256 * MIB);
	disk = host_disk(machine, pool, settings);
}

static void
close_disk(void)
{
	disk_free(disk);
	epoch_leave(&machine->epoch, 0);
	page_pool_free(pool);
	machine_free(machine);
}

static int
live(const char *name, const char *value)
{
	err[0] = '\0';
	return disk_set(disk, name, value, 1, err, sizeof(err));
}

static void
io_ended(struct bio *bio, struct cpu *c, uint64_t now)
{
	(void)c;
	(void)now;
	((struct io *)bio->priv)->ended = true;
}

/* In sectors; all at once, as one bio. */
static int
doio(enum req_op op, uint64_t sector, uint64_t nr, void *base)
{
	struct io *io = calloc(1, sizeof(*io));
	uint64_t now = 2000000, next;
	int error;

	bio_init(&io->bio, op, sector * SECTOR, io->bv, BIO_MAX_VECS);
	io->bio.end_io = io_ended;
	io->bio.priv = io;
	if (op == REQ_OP_READ || op == REQ_OP_WRITE)
		assert_int_equal(
		    bio_add_payload(&io->bio, true, UINT64_C(1) << 40, 9, 0,
			base, nr * SECTOR),
		    nr * SECTOR);
	else
		io->bio.bytes = nr * SECTOR;
	if (op == REQ_OP_FLUSH)
		io->bio.flags = REQ_PREFLUSH;
	assert_int_equal(
	    queue_submit(disk->queue, cpu, NULL, &io->bio, now), 0);
	while (!io->ended) {
		next = cpu_run(cpu, now);
		if (next != CPU_NO_DEADLINE)
			now = next;
	}
	error = io->bio.error;
	bio_release(&io->bio, cpu);
	free(io);
	return error;
}

static int
write_byte(uint64_t sector, uint64_t nr, char byte)
{
	char *data = malloc(nr * SECTOR);
	int error;

	memset(data, byte, nr * SECTOR);
	error = doio(REQ_OP_WRITE, sector, nr, data);
	free(data);
	return error;
}

/* All of it is this. */
static void
assert_holds(uint64_t sector, uint64_t nr, char byte)
{
	char *data = malloc(nr * SECTOR);

	(void)store_read(disk->store, cpu, sector * SECTOR, data, nr * SECTOR);
	for (uint64_t i = 0; i < nr * SECTOR; i++)
		if (data[i] != byte)
			fail_msg("sector %llu holds 0x%x, not 0x%x",
			    (unsigned long long)(sector + i / SECTOR),
			    (unsigned char)data[i], (unsigned char)byte);
	free(data);
}

/* As recorded: sectors 100 to 107 are bad. */
static void
fails_what_touches_one_and_nothing_else(void **state)
{
	static const struct {
		uint64_t sector, nr;
		int error;
	} at[] = { { 96, 4, 0 }, { 96, 8, -EIO }, { 99, 1, 0 },
		{ 100, 1, -EIO }, { 104, 8, -EIO }, { 107, 1, -EIO },
		{ 108, 1, 0 }, { 108, 8, 0 }, { 0, 128, -EIO },
		{ 96, 128, -EIO }, { 512, 8, 0 } };
	static const char *const settings[] = { "size=64 memory_backed=1",
		"size=64", "size=64 memory_backed=1 queue_mode=0 kernel=6.1",
		"size=64 irqmode=2", "size=64 irqmode=0 memory_backed=1" };
	char data[128 * SECTOR];

	(void)state;
	for (size_t s = 0; s < sizeof(settings) / sizeof(*settings); s++) {
		open_disk(settings[s]);
		assert_int_equal(live("badblocks", "+100-107"), 0);
		for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
			assert_int_equal(
			    write_byte(at[i].sector, at[i].nr, 0x33),
			    at[i].error);
			assert_int_equal(
			    doio(REQ_OP_READ, at[i].sector, at[i].nr, data),
			    at[i].error);
			assert_int_equal(
			    doio(REQ_OP_READ, at[i].sector, at[i].nr, NULL),
			    at[i].error);
		}
		assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, NULL), 0);
		assert_int_equal(live("badblocks", "+512-519"), 0);
		assert_int_equal(write_byte(512, 8, 1), -EIO);
		assert_int_equal(live("badblocks", "-100-107"), 0);
		assert_int_equal(write_byte(100, 8, 1), 0);
		close_disk();
	}
}

static void
a_request_that_fails_moves_nothing_and_others_do(void **state)
{
	(void)state; /* 512 KiB are five requests; the first is hit */
	open_disk("size=64 memory_backed=1");
	write_byte(0, 255, 0x33);
	live("badblocks", "+100-107");
	assert_int_equal(write_byte(0, 1024, 0x44), -EIO);
	assert_holds(0, 255, 0x33);
	assert_holds(255, 1024 - 255, 0x44);
	close_disk();
}

static void
fails_discards_and_zeroes_as_well(void **state)
{
	(void)state;
	open_disk("size=64 memory_backed=1 discard=1 "
		  "write_zeroes_max_bytes=1048576");
	write_byte(0, 255, 0x33);
	live("badblocks", "+100-107");
	assert_int_equal(doio(REQ_OP_DISCARD, 96, 32, NULL), -EIO);
	assert_int_equal(doio(REQ_OP_WRITE_ZEROES, 96, 32, NULL), -EIO);
	assert_holds(0, 255, 0x33);
	assert_int_equal(doio(REQ_OP_DISCARD, 128, 32, NULL), 0);
	assert_int_equal(doio(REQ_OP_WRITE_ZEROES, 64, 32, NULL), 0);
	assert_holds(128, 32, 0);
	assert_holds(64, 32, 0);
	close_disk();
}

static void
once_the_range_that_was_hit_is_good_again(void **state)
{
	(void)state;
	open_disk("size=64 memory_backed=1 badblocks=+90-120 "
		  "badblocks=+122-130 badblocks=+1000-2000");
	assert_int_equal(write_byte(100, 8, 1), -EIO);
	assert_int_equal(live("badblocks_once", "1"), 0);
	assert_int_equal(write_byte(100, 30, 1), -EIO); /* two: the first */
	assert_string_equal(
	    reads(disk->conf.badblocks), "122 9,1000 512,1512 489");
	assert_int_equal(write_byte(100, 22, 1), 0);
	assert_int_equal(doio(REQ_OP_READ, 1999, 1, NULL), -EIO);
	assert_string_equal(reads(disk->conf.badblocks), "122 9,1000 512");
	assert_int_equal(live("badblocks_once", "0"), 0);
	assert_int_equal(write_byte(1000, 1, 1), -EIO);
	assert_int_equal(write_byte(1000, 1, 1), -EIO);
	close_disk();
}

static void
in_part_what_is_before_is_written_in_whole_blocks(void **state)
{
	(void)state;
	open_disk("size=64 memory_backed=1 discard=1 badblocks=+100-107 "
		  "badblocks_partial_io=1 write_zeroes_max_bytes=1048576");
	assert_int_equal(write_byte(90, 30, 0x55), -EIO);
	assert_holds(90, 10, 0x55);
	assert_holds(100, 20, 0);
	assert_int_equal(write_byte(103, 2, 0x55), -EIO); /* it begins bad */
	assert_int_equal(write_byte(105, 20, 0x55), -EIO);
	assert_holds(100, 25, 0);
	assert_int_equal(doio(REQ_OP_DISCARD, 96, 32, NULL), -EIO);
	assert_holds(90, 6, 0x55);
	assert_holds(96, 4, 0);
	assert_int_equal(doio(REQ_OP_WRITE_ZEROES, 93, 32, NULL), -EIO);
	assert_holds(90, 3, 0x55);
	assert_holds(93, 7, 0);
	assert_int_equal(live("badblocks_partial_io", "0"), 0);
	assert_int_equal(write_byte(90, 30, 0x66), -EIO);
	assert_holds(90, 3, 0x55);
	close_disk();
	open_disk("size=64 memory_backed=1 blocksize=4096 badblocks=+101-102 "
		  "badblocks_partial_io=1");
	assert_int_equal(write_byte(88, 32, 0x55), -EIO);
	assert_holds(88, 8, 0x55); /* 96 to 103 is the block */
	assert_holds(96, 24, 0);
	assert_int_equal(doio(REQ_OP_READ, 88, 32, NULL), -EIO);
	close_disk();
}

/* Two bios of one request: the second is hit, in its middle. */
static void
in_part_goes_by_the_request_not_the_bio(void **state)
{
	static char data[2][32 * SECTOR];
	struct io *io[2];
	struct plug plug;

	(void)state;
	open_disk("size=64 memory_backed=1 badblocks=+40-40 "
		  "badblocks_partial_io=1");
	memset(data, 0x77, sizeof(data));
	plug_init(&plug);
	for (unsigned i = 0; i < 2; i++) {
		io[i] = calloc(1, sizeof(*io[i]));
		bio_init(&io[i]->bio, REQ_OP_WRITE, i * 32 * SECTOR, io[i]->bv,
		    BIO_MAX_VECS);
		bio_add_payload(&io[i]->bio, true,
		    (UINT64_C(1) << 40) + i * MIB, 9, 0, data[i], 32 * SECTOR);
		io[i]->bio.end_io = io_ended;
		io[i]->bio.priv = io[i];
		assert_int_equal(
		    queue_submit(disk->queue, cpu, &plug, &io[i]->bio, 1), 0);
	}
	plug_flush(&plug, cpu, 1);
	cpu_run(cpu, 1);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(io[i]->ended);
		assert_int_equal(io[i]->bio.error, -EIO);
		assert_int_equal(io[i]->bio.bytes, 32 * SECTOR);
		bio_release(&io[i]->bio, cpu);
		free(io[i]);
	}
	assert_holds(0, 40, 0x77);
	assert_holds(40, 24, 0);
	close_disk();
}

/* A change waits for nothing; while another does, too. */
static void
changes_live_and_refuses_with_a_sentence(void **state)
{
	(void)state;
	open_disk("size=64");
	assert_int_equal(live("badblocks", "5-6"), -EINVAL);
	assert_string_equal(err,
	    "badblocks: \"5-6\": allowed: +START-END to add or -START-END to "
	    "remove sectors of 512 bytes, up to 18014398509481983");
	assert_int_equal(live("badblocks", ""), -EINVAL);
	assert_int_equal(live("nomerges", "1"), -EINPROGRESS);
	assert_int_equal(live("badblocks", "+5-6"), 0);
	assert_int_equal(live("badblocks_once", "1"), 0);
	assert_string_equal(reads(disk->set.badblocks), "5 2");
	assert_true(disk->set.badblocks == disk->conf.badblocks);
	close_disk();
}

static void *
write_all(void *arg)
{
	for (unsigned i = 0; i < 20000; i++)
		(void)write_byte(i % 600, 4, 1);
	return arg;
}

static void
threads_look_while_it_changes(void **state)
{
	char text[64];
	pthread_t thread;
	uint64_t len;

	(void)state;
	open_disk("size=64 memory_backed=1");
	assert_int_equal(pthread_create(&thread, NULL, write_all, NULL), 0);
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(text, sizeof(text), "%c%u-%u", i % 2 ? '-' : '+',
		    i % 600, i % 600 + 20);
		assert_int_equal(live("badblocks", text), 0);
		if (i % 64 == 0)
			live("badblocks_once", i % 128 ? "1" : "0");
		len = MIB;
		(void)badblocks_extent(disk->conf.badblocks, SECTOR, 0, &len);
		assert_true(len > 0);
	}
	pthread_join(thread, NULL);
	close_disk();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_as_the_kernel_does),
		cmocka_unit_test(refuses_sectors_that_no_disk_has),
		cmocka_unit_test(joins_what_touches_as_far_as_a_record_goes),
		cmocka_unit_test(what_does_not_fit_changes_nothing),
		cmocka_unit_test(is_a_set_of_sectors),
		cmocka_unit_test(tells_blocks_and_how_far_it_holds),
		cmocka_unit_test(fails_what_touches_one_and_nothing_else),
		cmocka_unit_test(
		    a_request_that_fails_moves_nothing_and_others_do),
		cmocka_unit_test(fails_discards_and_zeroes_as_well),
		cmocka_unit_test(once_the_range_that_was_hit_is_good_again),
		cmocka_unit_test(
		    in_part_what_is_before_is_written_in_whole_blocks),
		cmocka_unit_test(in_part_goes_by_the_request_not_the_bio),
		cmocka_unit_test(changes_live_and_refuses_with_a_sentence),
		cmocka_unit_test(threads_look_while_it_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
