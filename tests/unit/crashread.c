/* SPDX-License-Identifier: MIT */
/* Crash logs are read to the end, or to where they are damaged, and replayed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "ctl/crashread.h"
#include "dev/crashlog.h"

#define SEED  20141120u
#define TRIES 3000u /* damaged files */

static char path[64], image_path[64], err[512];

/* ---- a log, put together by hand */

static struct {
	char data[1 << 20];
	uint64_t len, nr;
	uint32_t sectorsize;
} made;

static void
put_super(void)
{
	const struct crash_log_super s = {
		.magic = htole64(UINT64_C(0x6a736677736872)),
		.version = htole64(1),
		.nr_entries = htole64(made.nr),
		.sectorsize = htole32(made.sectorsize),
	};

	memcpy(made.data, &s, sizeof(s));
}

static void
begin(uint32_t sectorsize)
{
	memset(&made, 0, sizeof(made));
	made.sectorsize = sectorsize;
	made.len = sectorsize;
	put_super();
}

/* byte: what a write consists of; text: of a mark */
static void
add(uint64_t sector, uint64_t nr, uint64_t flags, char byte, const char *text)
{
	const struct crash_log_entry e = {
		.sector = htole64(sector),
		.nr_sectors = htole64(nr),
		.flags = htole64(flags),
		.data_len = htole64(text != NULL ? strlen(text) : 0),
	};

	memcpy(made.data + made.len, &e, sizeof(e));
	if (text != NULL)
		memcpy(made.data + made.len + sizeof(e), text, strlen(text));
	made.len += made.sectorsize;
	if (!(flags & (CRASH_DISCARD | CRASH_MARK))) {
		memset(made.data + made.len, byte, nr * made.sectorsize);
		made.len += nr * made.sectorsize;
	}
	made.nr++;
	put_super();
}

static void
save(uint64_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, made.data, len), len);
	close(fd);
}

/* Sectors 0 to 7: a, mark, b over it, flush, a hole in it, flush, c, mark. */
static void
make_log(uint32_t sectorsize)
{
	begin(sectorsize);
	add(0, 8, 0, 'a', NULL);
	add(0, 0, CRASH_MARK, 0, "one");
	add(2, 2, CRASH_FUA, 'b', NULL);
	add(0, 0, CRASH_FLUSH, 0, NULL);
	add(3, 2, CRASH_DISCARD, 0, NULL);
	add(0, 0, CRASH_FLUSH, 0, NULL);
	add(7, 3, 0, 'c', NULL);
	add(0, 0, CRASH_MARK, 0, "two");
	save(made.len);
}

/* ---- the image */

/* A letter a sector: what it is made of, '.' zeros. */
static const char *
image(uint32_t sectorsize)
{
	static char text[64];
	static char data[65536];
	int fd = open(image_path, O_RDONLY);
	unsigned nr = 0;

	assert_true(fd >= 0);
	while (read(fd, data, sectorsize) == (ssize_t)sectorsize) {
		for (uint32_t i = 1; i < sectorsize; i++)
			assert_int_equal(data[i], data[0]);
		text[nr++] = data[0] == 0 ? '.' : data[0];
	}
	text[nr] = '\0';
	close(fd);
	return text;
}

/* What it is replayed up to there; the number of entries in *nr. */
static int
replay(const char *until, uint64_t *nr)
{
	struct crash_reader r;
	struct crash_until u;
	int fd, ret;

	assert_int_equal(crash_until_parse(until, &u, err, sizeof(err)), 0);
	ret = crashread_open(&r, path, err, sizeof(err));
	if (ret != 0)
		return ret;
	fd = open(image_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	ret = crashread_replay(&r, &u, fd, err, sizeof(err));
	*nr = r.nr;
	close(fd);
	crashread_close(&r);
	return ret;
}

static void
goes_to_any_entry_mark_or_flush(void **state)
{
	static const struct {
		const char *until, *image;
		uint64_t nr;
	} want[] = {
		{ "0", "", 0 },
		{ "1", "aaaaaaaa", 1 },
		{ "one", "aaaaaaaa", 2 },
		{ "3", "aabbaaaa", 3 },
		{ "flush:1", "aabbaaaa", 4 },
		{ "flush:2", "aab..aaa", 6 },
		{ "mark:two", "aab..aaccc", 8 },
		{ "8", "aab..aaccc", 8 },
		{ "end", "aab..aaccc", 8 },
	};
	static const uint32_t sizes[] = { 512, 4096 };
	uint64_t nr;

	(void)state;
	for (size_t s = 0; s < 2; s++) {
		make_log(sizes[s]);
		for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
			assert_int_equal(replay(want[i].until, &nr), 0);
			assert_int_equal(nr, want[i].nr);
			assert_string_equal(image(sizes[s]), want[i].image);
		}
	}
}

static void
says_what_is_not_there(void **state)
{
	uint64_t nr;

	(void)state;
	make_log(512);
	assert_int_equal(replay("three", &nr), -ENOENT);
	assert_non_null(strstr(err, "8 entries, and no mark \"three\""));
	assert_int_equal(replay("flush:4", &nr), -ENOENT);
	assert_non_null(
	    strstr(err, "8 entries, and 2 flushes fewer than that"));
	assert_int_equal(replay("9", &nr), -ENOENT);
	assert_non_null(strstr(err, "there are 8 entries"));
	assert_int_equal(nr, 8);
}

static void
refuses_other_places_to_stop(void **state)
{
	static const char *const wrong[] = { "", "flush:", "flush:0", "flush:x",
		"mark:", "flush:-1" };
	struct crash_until u;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(
		    crash_until_parse(wrong[i], &u, err, sizeof(err)), -EINVAL);
		assert_non_null(strstr(err, "allowed: a number of entries"));
	}
	assert_int_equal(
	    crash_until_parse("mark:flush", &u, err, sizeof(err)), 0);
	assert_string_equal(u.mark, "flush");
	assert_int_equal(
	    crash_until_parse("mark:flush:1", &u, err, sizeof(err)), 0);
	assert_string_equal(u.mark, "flush:1");
	assert_int_equal(crash_until_parse("mark:12", &u, err, sizeof(err)), 0);
	assert_string_equal(u.mark, "12");
}

static void
refuses_what_is_no_crash_log(void **state)
{
	struct crash_reader r;

	(void)state;
	make_log(512);
	made.data[0] ^= 1;
	save(made.len);
	assert_int_equal(crashread_open(&r, path, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "not a crash log"));
	make_log(512);
	made.data[8] = 2;
	save(made.len);
	assert_int_equal(crashread_open(&r, path, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "of version 2; allowed: 1"));
	make_log(512);
	made.sectorsize = 513;
	put_super();
	save(made.len);
	assert_int_equal(crashread_open(&r, path, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "sectors of 513 bytes; allowed: a power"));
	save(20);
	assert_int_equal(crashread_open(&r, path, err, sizeof(err)), -EINVAL);
	unlink(path);
	assert_int_equal(crashread_open(&r, path, err, sizeof(err)), -ENOENT);
}

/* As kill -9, or a full file system, leaves it: what is whole is done. */
static void
ends_where_the_file_does(void **state)
{
	uint64_t nr;

	(void)state;
	make_log(512);
	for (uint64_t len = 512; len < made.len; len += 100) {
		save(len);
		assert_int_equal(replay("end", &nr), -EINVAL);
		assert_non_null(strstr(err, "or the file ends in it"));
		assert_true(nr < 8);
	}
	save(made.len - 400); /* in a mark's sector, behind its text */
	assert_int_equal(replay("end", &nr), -EINVAL);
	assert_int_equal(nr, 7);
	assert_string_equal(image(512), "aab..aaccc");
}

static void
believes_no_length(void **state)
{
	static const struct {
		uint64_t sector, nr, flags, data_len;
	} wrong[] = {
		{ 0, UINT64_MAX, 0, 0 },
		{ 0, UINT64_MAX / 512, 0, 0 },
		{ 0, INT64_MAX / 512, 0, 0 },
		{ 0, 100, 0, 0 },
		{ UINT64_MAX, 1, 0, 0 },
		{ INT64_MAX / 512, 2, CRASH_DISCARD, 0 },
		{ 0, UINT64_MAX, CRASH_DISCARD, 0 },
		{ 0, 0, CRASH_MARK, 481 }, /* into the next sector */
		{ 0, 0, CRASH_MARK, 512 },
		{ 0, 0, CRASH_MARK, UINT64_MAX },
		{ 0, 1, CRASH_MARK, 3 },
	};
	uint64_t nr;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const struct crash_log_entry e = {
			.sector = htole64(wrong[i].sector),
			.nr_sectors = htole64(wrong[i].nr),
			.flags = htole64(wrong[i].flags),
			.data_len = htole64(wrong[i].data_len),
		};

		begin(512);
		add(0, 1, 0, 'a', NULL);
		memcpy(made.data + made.len, &e, sizeof(e));
		made.len += 2048;
		made.nr++;
		put_super();
		save(made.len);
		assert_int_equal(replay("end", &nr), -EINVAL);
		assert_int_equal(nr, 1);
		assert_string_equal(image(512), "a");
	}
}

/* A kernel's has what is left of a sector, which may have 4096 bytes. */
static void
marks_are_as_long_as_a_sector(void **state)
{
	static const uint32_t sizes[] = { 512, 4096 };
	char text[4096], until[4200];
	uint64_t nr;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		memset(text, 'm', sizeof(text));
		text[sizes[i] - sizeof(struct crash_log_entry)] = '\0';
		begin(sizes[i]);
		add(0, 1, 0, 'a', NULL);
		add(0, 0, CRASH_MARK, 0, text);
		add(0, 1, 0, 'b', NULL);
		save(made.len);
		snprintf(until, sizeof(until), "mark:%s", text);
		assert_int_equal(replay(until, &nr), 0);
		assert_int_equal(nr, 2);
		assert_string_equal(image(sizes[i]), "a");
	}
}

static void
the_log_itself_is_no_image(void **state)
{
	const struct crash_until all = { .entries = UINT64_MAX };
	struct crash_reader r;
	int fd;

	(void)state;
	make_log(512);
	assert_int_equal(crashread_open(&r, path, err, sizeof(err)), 0);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(
	    crashread_replay(&r, &all, fd, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "another file than the log"));
	close(fd);
	crashread_close(&r);
	assert_int_equal(replay("end", &(uint64_t){ 0 }), 0);
}

/* Whatever is there: it ends, and the image has no more than the file. */
static void
damage_does_no_harm(void **state)
{
	struct rng rng = rng_stream(SEED, 1);
	unsigned ends = 0, refused = 0;
	struct crash_reader r;
	struct crash_entry e;
	int ret;

	(void)state;
	for (unsigned i = 0; i < TRIES; i++) {
		make_log(512);
		for (unsigned k = 0; k < 3; k++) {
			/* heads of entries more than data */
			uint64_t at = rng_below(&rng, made.len);

			if (k > 0)
				at = at / 512 * 512 + rng_below(&rng, 32);
			made.data[at] ^= (char)(1u << rng_below(&rng, 8));
		}
		save(rng_below(&rng, 4) == 0 ? rng_below(&rng, made.len)
					     : made.len);
		ret = crashread_open(&r, path, err, sizeof(err));
		if (ret == 0)
			while ((ret = crashread_next(
				    &r, &e, err, sizeof(err))) > 0)
				assert_true(e.flags & CRASH_DISCARD ||
					    e.len <= made.len);
		ends += ret == 0;
		refused += ret != 0;
		crashread_close(&r);
	}
	assert_true(ends > 0);
	assert_true(refused > 0);
}

static int
end(void **state)
{
	(void)state;
	unlink(path);
	unlink(image_path);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goes_to_any_entry_mark_or_flush),
		cmocka_unit_test(says_what_is_not_there),
		cmocka_unit_test(refuses_other_places_to_stop),
		cmocka_unit_test(refuses_what_is_no_crash_log),
		cmocka_unit_test(ends_where_the_file_does),
		cmocka_unit_test(believes_no_length),
		cmocka_unit_test(marks_are_as_long_as_a_sector),
		cmocka_unit_test(the_log_itself_is_no_image),
		cmocka_unit_test(damage_does_no_harm),
	};

	snprintf(path, sizeof(path), "/tmp/nullb-crash-%d", (int)getpid());
	snprintf(image_path, sizeof(image_path), "/tmp/nullb-crash-%d.img",
	    (int)getpid());
	return cmocka_run_group_tests_name("crashread", tests, NULL, end);
}
