/* SPDX-License-Identifier: MIT */
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

#define NR_CPUS 2u /* as the machine of the recordings */

static struct machine *machine;
static struct page_pool *pool;
static char err[512];

static int
setup(void **state)
{
	(void)state;
	machine = machine_new(NR_CPUS, NULL, NULL);
	pool = page_pool_new(machine, 64 << 20);
	return machine == NULL || pool == NULL;
}

static int
teardown(void **state)
{
	(void)state;
	page_pool_free(pool);
	machine_free(machine);
	return 0;
}

/* A disk with settings "a=1 b=2", on if they allow it: *ret says. */
static struct disk *
disk_with(const char *settings, int *ret)
{
	struct disk *d = disk_new("nullb0", machine, pool);
	char *copy = strdup(settings), *rest = copy, *name, *value;

	assert_non_null(d);
	while ((value = strsep(&rest, " ")) != NULL && *value != '\0') {
		name = strsep(&value, "=");
		if (attr_set(disk_attrs, &d->set, name, value, false, err,
			sizeof(err)) != 0)
			fail_msg("%s", err);
	}
	free(copy);
	err[0] = '\0';
	*ret = disk_power_on(d, 1000, err, sizeof(err));
	return d;
}

static struct disk *
disk_on(const char *settings)
{
	int ret;
	struct disk *d = disk_with(settings, &ret);

	if (ret != 0)
		fail_msg("%s: %s", settings, err);
	return d;
}

/* Settings that power-on refuses, with this sentence. */
static void
assert_refused(const char *settings, const char *sentence)
{
	int ret;
	struct disk *d = disk_with(settings, &ret);

	assert_int_equal(ret, -EINVAL);
	assert_string_equal(err, sentence);
	assert_null(d->queue);
	disk_free(d);
}

static char *
get(const struct disk *d, const char *name)
{
	static char text[256];
	FILE *out;

	text[0] = '\0'; /* fmemopen() leaves what nothing is written to */
	out = fmemopen(text, sizeof(text), "w");

	assert_non_null(attr_find(disk_attrs, name));
	attr_get(attr_find(disk_attrs, name), disk_shown(d), out);
	fclose(out);
	return text;
}

static bool
next_row(FILE *f, char *line, int size, char *field[4])
{
	do {
		if (fgets(line, size, f) == NULL)
			return false;
	} while (*line == '#');
	line[strcspn(line, "\n")] = '\0';
	for (int i = 0; i < 4; i++)
		field[i] = line != NULL ? strsep(&line, "\t") : NULL;
	return true;
}

/*
 * Where we differ on purpose: a blocksize of 0 and a size beyond 2^63 - 512
 * are refused, and 6.1 raises a max_sectors below a page where 6.12, and we
 * for every age, refuse it.
 */
static bool
departs(const char *kernel, const char *settings)
{
	if (strcmp(settings, "blocksize=0") == 0 ||
	    strcmp(settings, "size=8796093022208") == 0 ||
	    strcmp(settings, "size=17592186044415") == 0)
		return true;
	return strcmp(kernel, "6.1") == 0 &&
	       (strncmp(settings, "max_sectors=1", 14) == 0 ||
		   strncmp(settings, "max_sectors=7", 13) == 0);
}

static void
assert_reads(const struct disk *d, char *pairs, const char *settings)
{
	char *value, *name;
	char sectors[32];

	snprintf(sectors, sizeof(sectors), "%llu",
	    (unsigned long long)(disk_size(d) >> SECTOR_SHIFT));
	while ((value = strsep(&pairs, " ")) != NULL) {
		name = strsep(&value, "=");
		if (strcmp(name, "sectors") == 0) {
			assert_string_equal(sectors, value);
			continue;
		}
		for (char *s = value; *s != '\0'; s++)
			if (*s == '_')
				*s = ' ';
		if (strcmp(get(d, name), value) != 0)
			fail_msg("%s: %s reads %s, not %s", settings, name,
			    get(d, name), value);
	}
}

static void
makes_of_settings_what_null_blk_makes_of_them(void **state)
{
	FILE *f = fopen("tests/data/power-on.tsv", "r");
	char line[1024], *field[4], settings[256];
	int ret, rows = 0;

	(void)state;
	assert_non_null(f);
	while (next_row(f, line, sizeof(line), field)) {
		struct disk *d;

		if (departs(field[0], field[1]))
			continue;
		snprintf(settings, sizeof(settings), "kernel=%s %s", field[0],
		    field[1]);
		d = disk_with(settings, &ret);
		if (strcmp(ret == 0 ? "OK" : strerrorname_np(-ret), field[2]) !=
		    0)
			fail_msg("%s: %d (%s)", settings, ret, err);
		if (ret == 0)
			assert_reads(d, field[3], settings);
		disk_free(d);
		rows++;
	}
	fclose(f);
	assert_true(rows > 65);
}

static void
shows_the_queue_that_sysfs_shows(void **state)
{
	FILE *f = fopen("tests/data/defaults.tsv", "r");
	char line[1024], *field[4], settings[256];
	int rows = 0;

	(void)state;
	assert_non_null(f);
	while (next_row(f, line, sizeof(line), field)) {
		struct disk *d;

		if (strcmp(field[1], "-") == 0)
			continue;
		snprintf(settings, sizeof(settings), "kernel=%s %s", field[0],
		    strcmp(field[1], "none") == 0 ? "" : field[1]);
		d = disk_on(settings);
		if (strcmp(get(d, field[2]), field[3]) != 0)
			fail_msg("%s: %s reads %s, not %s", settings, field[2],
			    get(d, field[2]), field[3]);
		disk_free(d);
		rows++;
	}
	fclose(f);
	assert_true(rows > 900);
}

static void
refuses_blocks_of_no_size(void **state)
{
	(void)state;
	assert_refused("blocksize=0",
	    "blocksize: 0: allowed: a power of two from 512 to 4096");
	assert_refused("blocksize=1000",
	    "blocksize: 1000: allowed: a power of two from 512 to 4096");
}

static void
names_the_attribute_the_value_and_what_is_allowed(void **state)
{
	(void)state;
	assert_refused("queue_mode=1",
	    "queue_mode: 1: the legacy path is no longer available; allowed: "
	    "0 (bio), 2 (mq)");
	assert_refused(
	    "hw_queue_depth=0", "hw_queue_depth: 0: allowed: 1 to 10240");
	assert_refused("max_sectors=7",
	    "max_sectors: 7: allowed: 0, or at least 8 (a page and a block)");
	assert_refused("max_sectors_kb=3",
	    "queue/max_sectors_kb: 3: allowed: 4 to 127 (max_hw_sectors_kb)");
	assert_refused("max_sectors_kb=128",
	    "queue/max_sectors_kb: 128: allowed: 4 to 127 "
	    "(max_hw_sectors_kb)");
	assert_refused("max_segment_size=4095",
	    "queue/max_segment_size: 4095: allowed: 0, or at least 4096 (a "
	    "page)");
	assert_refused("seg_boundary_mask=4096",
	    "queue/seg_boundary_mask: 4096: allowed: a power of two less one");
	assert_refused("physical_block_size=1000",
	    "queue/physical_block_size: 1000: allowed: a power of two");
	assert_refused("blocksize=4096 chunk_sectors=9",
	    "queue/chunk_sectors: 9: allowed: a multiple of 8 (a block)");
	assert_refused("write_zeroes_max_bytes=511",
	    "queue/write_zeroes_max_bytes: 511: allowed: 0, or at least a "
	    "block (512)");
	assert_refused("memory_backed=1 discard=1 discard_granularity=1000",
	    "queue/discard_granularity: 1000: allowed: a multiple of 512 (a "
	    "block)");
	assert_refused("memory_backed=1 discard=1 blocksize=4096 "
		       "discard_max_bytes=512",
	    "queue/discard_max_bytes: 512: allowed: 0, or at least the "
	    "granularity (4096)");
	assert_refused("fill=disk.img",
	    "fill: \"disk.img\": allowed: none, unless memory_backed");
	assert_refused("backing=disk.img",
	    "backing: \"disk.img\": allowed: none, unless memory_backed");
	assert_refused("memory_backed=1 backing=disk.img zoned=1",
	    "backing: \"disk.img\": allowed: none, as zoned is set: a file "
	    "keeps no zones");
	assert_refused("memory_backed=1 backing=disk.img fill=other.img",
	    "fill: \"other.img\": allowed: none, as backing is set: copy the "
	    "image there");
	assert_refused("nr_requests=65",
	    "queue/nr_requests: 65: allowed: at most hw_queue_depth (64)");
}

static void
takes_255_sectors_alone_but_254_when_written_in_kib(void **state)
{
	struct disk *d = disk_on("");

	(void)state;
	assert_int_equal(d->queue->limits.max_sectors, 255);
	assert_string_equal(get(d, "max_sectors_kb"), "127");
	disk_free(d);
	d = disk_on("max_sectors_kb=127");
	assert_int_equal(d->queue->limits.max_sectors, 254);
	assert_string_equal(get(d, "max_sectors_kb"), "127");
	disk_free(d);
	d = disk_on("blocksize=4096");
	assert_int_equal(d->queue->limits.max_sectors, 248);
	disk_free(d);
	d = disk_on("max_sectors=100000");
	assert_int_equal(d->queue->limits.max_sectors, 2560);
	disk_free(d);
	d = disk_on("max_sectors=100000 max_sectors_kb=50000");
	assert_int_equal(d->queue->limits.max_sectors, 100000);
	disk_free(d);
}

static void
gives_the_queue_its_limits(void **state)
{
	struct disk *d =
	    disk_on("memory_backed=1 size=64 discard=1 "
		    "virt_boundary=1 physical_block_size=4096 "
		    "chunk_sectors=128 max_segments=7 rotational=1 "
		    "write_zeroes_max_bytes=1000000 "
		    "max_discard_segments=4");
	const struct limits *lim = &d->queue->limits;

	(void)state;
	assert_int_equal(lim->logical_block_size, 512);
	assert_int_equal(lim->physical_block_size, 4096);
	assert_int_equal(lim->max_segments, 7);
	assert_int_equal(lim->max_segment_size, UINT32_MAX);
	assert_int_equal(lim->seg_boundary_mask, UINT32_MAX);
	assert_int_equal(lim->virt_boundary_mask, 4095);
	assert_int_equal(lim->chunk_sectors, 128);
	assert_int_equal(lim->max_discard_sectors, UINT32_MAX >> 9);
	assert_int_equal(lim->discard_granularity, 4096);
	assert_int_equal(lim->max_discard_segments, 4);
	assert_int_equal(lim->max_write_zeroes_sectors, 1000000 / 512);
	assert_true(lim->rotational);
	assert_false(lim->write_cache);
	disk_free(d);
	d = disk_on("virt_boundary=1 max_segment_size=8192");
	assert_int_equal(d->queue->limits.max_segment_size, 8192);
	disk_free(d);
}

static void
gives_the_queue_its_tags_and_modes(void **state)
{
	struct disk *d = disk_on("hw_queue_depth=20000 submit_queues=9 "
				 "nr_requests=100 nomerges=1 iostats=0");

	(void)state;
	assert_int_equal(d->queue->conf.depth, 10240);
	assert_int_equal(d->queue->conf.nr_requests, 100);
	assert_int_equal(d->queue->conf.nr_hw_queues, NR_CPUS);
	assert_int_equal(d->queue->conf.nomerges, 1);
	assert_false(d->queue->conf.iostats);
	assert_true(d->queue->conf.multipage);
	disk_free(d);
	d = disk_on("nr_requests=1");
	assert_int_equal(d->queue->conf.nr_requests, 4);
	disk_free(d);
	d = disk_on("hw_queue_depth=2 nr_requests=1");
	assert_int_equal(d->queue->conf.nr_requests, 2);
	disk_free(d);
	d = disk_on("kernel=4.14 queue_mode=0");
	assert_true(d->queue->conf.bio_based);
	assert_false(d->queue->conf.multipage);
	assert_ptr_equal(d->queue->conf.profile, profile_find("4.14"));
	disk_free(d);
	d = disk_on("kernel=4.14 multipage_bvec=1");
	assert_true(d->queue->conf.multipage);
	disk_free(d);
	d = disk_on("multipage_bvec=0");
	assert_false(d->queue->conf.multipage);
	disk_free(d);
}

static void
serves_any_size_in_whole_blocks(void **state)
{
	struct disk *d = disk_on("size=0 memory_backed=1");

	(void)state;
	assert_int_equal(disk_size(d), 0);
	disk_free(d);
	d = disk_on("size=10000B blocksize=4096 memory_backed=1");
	assert_int_equal(disk_size(d), 8192);
	disk_free(d);
	d = disk_on("size=9223372036854775296B memory_backed=1");
	assert_int_equal(disk_size(d), INT64_MAX - 511);
	disk_free(d);
}

static void
keeps_what_was_set_apart_from_what_is_in_force(void **state)
{
	struct disk *d = disk_new("nullb0", machine, pool);

	(void)state;
	attr_set(disk_attrs, &d->set, "irqmode", "3", false, err, sizeof(err));
	assert_string_equal(get(d, "irqmode"), "3");
	assert_int_equal(disk_power_on(d, 5, err, sizeof(err)), 0);
	assert_int_equal(disk_power_on(d, 9, err, sizeof(err)), 0); /* on */
	assert_string_equal(get(d, "irqmode"), "2");
	assert_string_equal(get(d, "nr_requests"), "64");
	assert_true(d->conf.power);
	assert_int_equal(d->on_ns, 5);
	assert_int_equal(d->set.irqmode, 3);
	assert_int_equal(d->set.nr_requests, 0);
	disk_free(d);
	disk_free(NULL);
}

/* Change it while it is on: 0 or -errno once it has settled. */
static int
change(struct disk *d, const char *name, const char *value)
{
	int ret = disk_set(d, name, value, 100, err, sizeof(err));

	return ret == -EINPROGRESS ? disk_settle(d, 101, err, sizeof(err))
				   : ret;
}

static void
changes_what_is_live_while_it_is_on(void **state)
{
	struct disk *d = disk_on("description=stays");

	(void)state;
	assert_int_equal(change(d, "scheduler", "mq-deadline"), 0);
	assert_string_equal(get(d, "scheduler"), "mq-deadline");
	assert_string_equal(get(d, "nr_requests"), "128");
	assert_string_equal(get(d, "async_depth"), "128");
	assert_non_null(d->queue->elevator);
	assert_int_equal(change(d, "nr_requests", "2048"), 0);
	assert_int_equal(d->queue->conf.nr_requests, 2048);
	assert_int_equal(change(d, "nr_requests", "2049"), -EINVAL);
	assert_int_equal(change(d, "iosched/fifo_batch", "3"), 0);
	assert_int_equal(d->queue->conf.deadline.fifo_batch, 3);
	assert_int_equal(change(d, "scheduler", "none"), 0);
	assert_null(d->queue->elevator);
	assert_string_equal(get(d, "nr_requests"), "64");
	assert_int_equal(change(d, "nomerges", "2"), 0);
	assert_int_equal(d->queue->conf.nomerges, 2);
	assert_int_equal(change(d, "max_sectors_kb", "64"), 0);
	assert_int_equal(d->queue->limits.max_sectors, 128);
	assert_int_equal(change(d, "plug", "call"), 0);
	assert_int_equal(d->queue->conf.plug_mode, PLUG_CALL);
	assert_int_equal(change(d, "irqmode", "3"), 0);
	assert_string_equal(get(d, "irqmode"), "2");
	assert_int_equal(change(d, "completion_nsec", "77"), 0);
	assert_int_equal(d->conf.completion_nsec, 77);
	assert_int_equal(change(d, "hw_queue_depth", "8"), -EBUSY);
	assert_int_equal(change(d, "scheduler", "bfq"), -EINVAL);
	assert_int_equal(change(d, "nope", "0"), -ENOENT);
	assert_string_equal(d->conf.description, "stays");
	assert_true(d->conf.power);
	disk_free(d);
}

static void
end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	bio_release(bio, cpu);
	*(bool *)bio->priv = true;
}

static void
gives_a_change_up_when_requests_do_not_end(void **state)
{
	struct disk *d = disk_on("irqmode=2 completion_nsec=60000000000");
	struct cpu *cpu = &machine->cpu[0];
	bool ended = false;
	struct bio bio;

	(void)state;
	bio_init(&bio, REQ_OP_READ, 0, NULL, 0);
	bio_add(&bio, true, 4096, NULL, 4096);
	bio.end_io = end_io;
	bio.priv = &ended;
	assert_int_equal(queue_submit(d->queue, cpu, NULL, &bio, 1000), 0);
	cpu_run(cpu, 1000);
	assert_int_equal(
	    disk_set(d, "nomerges", "1", 2000, err, sizeof(err)), -EINPROGRESS);
	assert_int_equal(
	    disk_set(d, "nomerges", "2", 2000, err, sizeof(err)), -EBUSY);
	assert_int_equal(disk_settle(d, 3000, err, sizeof(err)), -EINPROGRESS);
	assert_int_equal(
	    disk_settle(d, 2000 + DISK_SETTLE_NS, err, sizeof(err)), -EBUSY);
	assert_string_equal(
	    err, "nomerges: \"1\": requests have been in flight for 10 s");
	assert_string_equal(get(d, "nomerges"), "0");
	/* the device goes on, and a change works when it is idle */
	cpu_expire(cpu, 0, 4000);
	assert_true(ended);
	assert_int_equal(change(d, "nomerges", "1"), 0);
	assert_string_equal(get(d, "nomerges"), "1");
	disk_free(d);
}

/* A change takes the settings over with the texts they have. */
static void
no_live_attribute_is_a_text(void **state)
{
	(void)state;
	for (const struct attr *a = disk_attrs; a->name != NULL; a++)
		if (a->live)
			assert_true(
			    a->type != ATTR_TEXT && a->type != ATTR_LIST);
}

static unsigned
extent(struct disk *d, uint64_t pos, uint64_t *len)
{
	unsigned steps = 1000, found;

	*len = d->conf.size - pos;
	epoch_enter(&machine->epoch, 0);
	found = disk_extent(d, &machine->cpu[0], pos, len, &steps);
	epoch_leave(&machine->epoch, 0);
	assert_true(steps < 1000);
	return found;
}

static void
tells_data_from_holes_by_the_block(void **state)
{
	struct disk *d = disk_on("size=1 memory_backed=1");
	char data[512] = { 1 };
	uint64_t len;

	(void)state;
	epoch_enter(&machine->epoch, 0);
	assert_int_equal(
	    store_write(d->store, &machine->cpu[0], 1024, data, 512), 0);
	epoch_leave(&machine->epoch, 0);
	assert_int_equal(extent(d, 0, &len), DISK_HOLE | DISK_ZERO);
	assert_int_equal(len, 1024);
	assert_int_equal(extent(d, 1024, &len), 0);
	assert_int_equal(len, 512);
	disk_free(d);
	d = disk_on("size=1");
	assert_int_equal(extent(d, 0, &len), DISK_HOLE | DISK_ZERO);
	assert_int_equal(len, 1 << 20);
	disk_free(d);
}

static void
does_not_call_zeros_what_is_beyond_a_write_pointer(void **state)
{
	struct disk *d = disk_on("size=8 memory_backed=1 zoned=1 zone_size=4");
	uint64_t len;

	(void)state;
	assert_int_equal(extent(d, 1 << 20, &len), DISK_HOLE);
	assert_int_equal(len, 3 << 20);
	disk_free(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_data_from_holes_by_the_block),
		cmocka_unit_test(
		    does_not_call_zeros_what_is_beyond_a_write_pointer),
		cmocka_unit_test(makes_of_settings_what_null_blk_makes_of_them),
		cmocka_unit_test(shows_the_queue_that_sysfs_shows),
		cmocka_unit_test(refuses_blocks_of_no_size),
		cmocka_unit_test(
		    names_the_attribute_the_value_and_what_is_allowed),
		cmocka_unit_test(
		    takes_255_sectors_alone_but_254_when_written_in_kib),
		cmocka_unit_test(gives_the_queue_its_limits),
		cmocka_unit_test(gives_the_queue_its_tags_and_modes),
		cmocka_unit_test(serves_any_size_in_whole_blocks),
		cmocka_unit_test(
		    keeps_what_was_set_apart_from_what_is_in_force),
		cmocka_unit_test(changes_what_is_live_while_it_is_on),
		cmocka_unit_test(gives_a_change_up_when_requests_do_not_end),
		cmocka_unit_test(no_live_attribute_is_a_text),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
