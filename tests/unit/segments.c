/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "host.h"

#define NOW UINT64_C(2000000)

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;
static struct plug plug;
static char memory[64 * PAGE_SIZE];

static void
open_disk(const char *settings)
{
	machine = host_new(1);
	turn(&machine->cpu[0]);
	pool = page_pool_new(machine, 0);
	disk = host_disk(machine, pool, settings);
	plug_init(&plug);
}

static void
close_disk(void)
{
	rest(pool, &machine->cpu[0]);
	disk_free(disk);
	page_pool_free(pool);
	machine_free(machine);
}

static void
end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	bio_release(bio, cpu);
	free(bio->priv); /* the table: bio->bv is what is left of it */
	free(bio);
}

/* Write pages, of which none are adjacent, under the plug. */
static void
write_pages(sector_t sector, unsigned nr)
{
	struct bvec *bv = calloc(nr, sizeof(*bv));
	struct bio *bio = malloc(sizeof(*bio));

	bio_init(bio, REQ_OP_WRITE, sector << SECTOR_SHIFT, bv, nr);
	bio->end_io = end_io;
	bio->priv = bv;
	assert_int_equal(bio_add_payload(bio, true, 1 << 30, 0, 0, memory,
			     nr * (uint64_t)PAGE_SIZE),
	    nr * (uint64_t)PAGE_SIZE);
	assert_int_equal(
	    queue_submit(disk->queue, &machine->cpu[0], &plug, bio, NOW), 0);
}

static void
all_end(void)
{
	plug_flush(&plug, &machine->cpu[0], NOW);
	cpu_run(&machine->cpu[0], NOW);
}

/*
 * 64 pages: 31, 31 and 2 of them are a request (248 sectors of 255), the
 * last of which finds the one before it closed; then a page that joins the
 * last.
 */
static void
some_io(void)
{
	write_pages(0, 64);
	write_pages(512, 1);
	all_end();
}

static char *
printed(json_t *json)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(segments_print(json, out), 0);
	fclose(out);
	return text;
}

static void
packs_raw_numbers(void **state)
{
	json_t *json, *hist, *b;
	json_int_t from, to, count;

	(void)state;
	open_disk("blocksize=4096");
	some_io();
	json = segments_pack(disk, NOW);
	hist = json_object_get(json, "bvecs_per_bio");
	assert_int_equal(json_integer_value(json_object_get(hist, "count")), 2);
	assert_int_equal(json_integer_value(json_object_get(hist, "sum")), 65);
	b = json_object_get(hist, "buckets");
	assert_int_equal(json_array_size(b), 2); /* 1, 64: the empty are left */
	assert_int_equal(json_unpack(json_array_get(b, 1), "{s:I, s:I, s:I}",
			     "from", &from, "to", &to, "count", &count),
	    0);
	assert_int_equal(from, 64);
	assert_int_equal(to, 127);
	assert_int_equal(count, 1);
	hist = json_object_get(json, "segments_per_request");
	assert_int_equal(json_integer_value(json_object_get(hist, "sum")), 65);
	hist = json_object_get(json, "sectors_per_request");
	assert_int_equal(json_integer_value(json_object_get(hist, "count")), 3);
	assert_int_equal(json_integer_value(json_object_get(hist, "sum")), 520);
	b = json_object_get(json, "splits");
	assert_int_equal(json_object_size(b), SPLIT_NR);
	assert_int_equal(json_integer_value(json_object_get(b, "size")), 2);
	b = json_object_get(json, "refused_merges");
	assert_int_equal(json_object_size(b), REFUSED_NR);
	assert_int_equal(json_integer_value(json_object_get(b, "closed")), 1);
	json_decref(json);
	close_disk();
}

static void
prints_tables(void **state)
{
	json_t *json;
	char *text;

	(void)state;
	open_disk("blocksize=4096 kernel=6.1");
	some_io();
	json = segments_pack(disk, NOW);
	text = printed(json);
	assert_string_equal(text,
	    "nullb0: kernel 6.1, multi-page bvecs, page_order 0; a request has "
	    "at most\n"
	    "248 sectors, in 128 segments of 65536 bytes\n"
	    "\n"
	    "bvecs of a bio, as it was submitted: 2, 32.50 on average\n"
	    "                1            1  50.00% ###############\n"
	    "              2-3            0   0.00%\n"
	    "              4-7            0   0.00%\n"
	    "             8-15            0   0.00%\n"
	    "            16-31            0   0.00%\n"
	    "            32-63            0   0.00%\n"
	    "           64-127            1  50.00% ###############\n"
	    "\n"
	    "segments of a request: 3, 21.67 on average\n"
	    "              2-3            1  33.33% ##########\n"
	    "              4-7            0   0.00%\n"
	    "             8-15            0   0.00%\n"
	    "            16-31            2  66.67% ####################\n"
	    "\n"
	    "sectors of a request: 3, 173.33 on average\n"
	    "            16-31            1  33.33% ##########\n"
	    "            32-63            0   0.00%\n"
	    "           64-127            0   0.00%\n"
	    "          128-255            2  66.67% ####################\n"
	    "\n"
	    "because of           size      chunk   segments        gap     "
	    "closed   priority\n"
	    "splits                  2          0          0          0     "
	    "     -          -\n"
	    "refused merges          0          0          0          0     "
	    "     1          0\n");
	free(text);
	json_decref(json);
	close_disk();
}

static void
says_that_nothing_is_counted_where_nothing_is(void **state)
{
	json_t *json;
	char *text;

	(void)state;
	open_disk("iostats=0 kernel=4.14");
	some_io();
	json = segments_pack(disk, NOW);
	text = printed(json);
	assert_non_null(strstr(text, "single-page bvecs"));
	assert_non_null(strstr(text, "\niostats is off: nothing is counted\n"));
	assert_non_null(strstr(text, "\nsegments of a request: 0\n\n"));
	assert_null(strstr(text, "nan"));
	free(text);
	json_decref(json);
	close_disk();
}

static void
refuses_to_print_something_else(void **state)
{
	static const char *members[] = { "name", "max_sectors", "bvecs_per_bio",
		"sectors_per_request", "splits", "refused_merges" };
	FILE *out = fopen("/dev/null", "w");
	json_t *json;

	(void)state;
	assert_int_equal(segments_print(NULL, out), -EINVAL);
	open_disk("");
	some_io();
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		json = segments_pack(disk, NOW);
		json_object_set_new(json, members[i], json_true());
		assert_int_equal(segments_print(json, out), -EINVAL);
		json_decref(json);
	}
	json = segments_pack(disk, NOW);
	json_array_append_new(
	    json_object_get(json_object_get(json, "bvecs_per_bio"), "buckets"),
	    json_true());
	assert_int_equal(segments_print(json, out), -EINVAL);
	json_decref(json);
	close_disk();
	fclose(out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packs_raw_numbers),
		cmocka_unit_test(prints_tables),
		cmocka_unit_test(says_that_nothing_is_counted_where_nothing_is),
		cmocka_unit_test(refuses_to_print_something_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
