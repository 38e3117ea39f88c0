/* SPDX-License-Identifier: MIT */
/* The devices as files: what null_blk's configfs and sysfs show (1.1, 1.9). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

#define ON_NS     UINT64_C(1000000000)
#define NOW_NS    UINT64_C(3000000000)
#define MAX_DISKS 8u

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disks[MAX_DISKS];
static struct config config;
static struct ctl ctl;
static struct tree *tree;
static int (*removes)(struct disk *d); /* what plays the daemon's part */
static unsigned nr_settles;

static void
add_disk(const char *name)
{
	disks[ctl.nr_disks] = disk_new(name, machine, pool);
	assert_non_null(disks[ctl.nr_disks]);
	ctl.nr_disks++;
}

static struct disk *
disk_of(const char *name)
{
	for (unsigned i = 0; i < ctl.nr_disks; i++)
		if (strcmp(disks[i]->name, name) == 0)
			return disks[i];
	fail_msg("%s: no such device", name);
	return NULL;
}

static void
drop_disk(struct disk *d)
{
	unsigned i = 0;

	while (disks[i] != d)
		i++;
	ctl.nr_disks--;
	memmove(disks + i, disks + i + 1,
	    (ctl.nr_disks - i) * sizeof(struct disk *));
	tree_forget(tree, d->name);
	if (config_find(&config, d->name) != NULL)
		config_drop(&config, config_find(&config, d->name));
	disk_power_drop(d);
	disk_free(d);
}

static int
create(void *from, const struct device *dev, char *err, size_t errlen)
{
	(void)from;
	(void)err;
	(void)errlen;
	add_disk(dev->name);
	assert_false(dev->conf.power);
	assert_int_equal(
	    attr_copy(disk_attrs, &disks[ctl.nr_disks - 1]->set, &dev->conf),
	    0);
	return 0;
}

static int
power(void *from, struct disk *d, bool on, char *err, size_t errlen)
{
	(void)from;
	if (on)
		return disk_power_on(d, ON_NS, err, errlen);
	if (d->queue == NULL)
		return 0;
	disk_power_down(d, NOW_NS);
	return -EINPROGRESS;
}

static int
remove_later(struct disk *d)
{
	(void)d;
	return -EINPROGRESS;
}

static int
remove_now(struct disk *d)
{
	drop_disk(d);
	return 0;
}

static int
remove_disk(void *from, struct disk *d)
{
	(void)from;
	return removes(d);
}

static void
settle(void *from, struct disk *d)
{
	(void)from;
	(void)d;
	nr_settles++;
}

static int
setup(void **state)
{
	(void)state;
	machine = machine_new(2, NULL, NULL);
	pool = page_pool_new(machine, 0);
	ctl = (struct ctl){
		.disks = disks,
		.config = &config,
		.create = create,
		.power = power,
		.remove = remove_disk,
		.settle = settle,
	};
	removes = remove_now;
	nr_settles = 0;
	tree = tree_new(&ctl);
	add_disk("nullb0");
	return config_init(&config);
}

static int
teardown(void **state)
{
	(void)state;
	tree_free(tree);
	while (ctl.nr_disks > 0)
		disk_free(disks[--ctl.nr_disks]);
	config_fini(&config);
	page_pool_free(pool);
	machine_free(machine);
	return 0;
}

/* ---- by path */

/* 0: there is no such file. */
static uint64_t
at(const char *path)
{
	char copy[256], *rest = copy, *name;
	uint64_t ino = TREE_ROOT;

	snprintf(copy, sizeof(copy), "%s", path);
	while (ino != 0 && (name = strsep(&rest, "/")) != NULL)
		ino = tree_lookup(tree, ino, name);
	return ino;
}

static mode_t
mode(const char *path)
{
	mode_t mode = 0;

	assert_int_not_equal(at(path), 0);
	assert_int_equal(tree_mode(tree, at(path), &mode), 0);
	return mode;
}

/* What cat shows, or its errno in words. */
static const char *
cat_ino(uint64_t ino)
{
	static char text[4096];
	FILE *out = fmemopen(text, sizeof(text), "w");
	int ret;

	memset(text, 0, sizeof(text));
	ret = tree_read(tree, ino, NOW_NS, out);
	fclose(out);
	return ret != 0 ? strerrorname_np(-ret) : text;
}

static const char *
cat(const char *path)
{
	uint64_t ino = at(path);

	return ino != 0 ? cat_ino(ino) : "nothing there";
}

/* Every loop's turn, until a change of some disk has settled. */
static int
settled(void)
{
	char err[256];
	int ret = -EINPROGRESS;

	for (unsigned i = 0; i < ctl.nr_disks; i++)
		while (disks[i]->change != NULL) {
			for (unsigned c = 0; c < machine->nr_cpus; c++)
				cpu_run(&machine->cpu[c], NOW_NS);
			ret = disk_settle(disks[i], NOW_NS, err, sizeof(err));
		}
	return ret;
}

static int
echo(const char *value, const char *path)
{
	int ret;

	assert_int_not_equal(at(path), 0);
	ret = tree_write(tree, NULL, at(path), value, NOW_NS);
	return ret == -EINPROGRESS ? settled() : ret;
}

static int
make_dir(const char *name)
{
	return tree_mkdir(tree, NULL, at("config/nullb"), name);
}

static int
remove_dir(const char *in, const char *name)
{
	return tree_rmdir(tree, NULL, at(in), name);
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, a blank between two; each is what a lookup finds, too. */
static const char *
ls(const char *path)
{
	static char out[4096];
	uint64_t dir = path[0] != '\0' ? at(path) : TREE_ROOT;
	struct tree_entry e;
	char *name[256];
	size_t len = 0;
	unsigned nr = 0;

	while (tree_entry(tree, dir, nr, &e)) {
		name[nr++] = strdup(e.name);
		assert_int_equal(tree_lookup(tree, dir, name[nr - 1]), e.ino);
	}
	qsort(name, nr, sizeof(char *), compare_names);
	out[0] = '\0';
	for (unsigned i = 0; i < nr; i++) {
		if (i > 0)
			assert_string_not_equal(name[i - 1], name[i]);
		len += (size_t)snprintf(out + len, sizeof(out) - len, "%s%s",
		    i > 0 ? " " : "", name[i]);
	}
	for (unsigned i = 0; i < nr; i++)
		free(name[i]);
	return out;
}

static void
turn_on(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "config/nullb/%s/power", name);
	assert_int_equal(echo("1\n", path), 0);
	assert_non_null(disk_of(name)->queue);
}

/* As the daemon does it, a moment later. */
static void
turn_off(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "config/nullb/%s/power", name);
	assert_int_equal(echo("0\n", path), -EINPROGRESS);
	disk_power_drop(disk_of(name));
}

/* ---- what there is */

static void
has_the_directories_of_configfs_and_sysfs(void **state)
{
	(void)state;
	add_disk("other");
	assert_string_equal(ls(""), "block config");
	assert_string_equal(ls("config"), "nullb");
	assert_string_equal(ls("config/nullb"), "features nullb0 other");
	assert_string_equal(ls("block"), "");
	assert_int_equal(at("block/nullb0"), 0);
	assert_int_equal(at("config/nullb/third"), 0);
	assert_int_equal(at("config/nullb/features/size"), 0);
	turn_on("other");
	assert_string_equal(ls("block"), "other");
	assert_int_not_equal(at("block/other/stat"), 0);
	assert_int_equal(at("block/nullb0"), 0);
	turn_off("other");
	assert_string_equal(ls("block"), "");
}

/* Debian's 6.12.117; then what came with 6.4, 6.14 and 6.15. */
static void
a_device_has_the_files_that_null_blk_has(void **state)
{
	static const char *const newer[] = { "badblocks_once",
		"badblocks_partial_io", "init_hctx_fault_inject",
		"requeue_inject", "rotational", "timeout_inject" };
	char all[4096], *rest = all, *name;
	char left[4096] = "";

	(void)state;
	snprintf(all, sizeof(all), "%s", ls("config/nullb/nullb0"));
	while ((name = strsep(&rest, " ")) != NULL) {
		bool is_newer = false;

		for (size_t i = 0; i < sizeof(newer) / sizeof(*newer); i++)
			is_newer |= strcmp(name, newer[i]) == 0;
		if (!is_newer)
			strcat(strcat(left, name), " ");
	}
	assert_string_equal(left,
	    "badblocks blocking blocksize cache_size completion_nsec discard "
	    "fua home_node hw_queue_depth index irqmode max_sectors mbps "
	    "memory_backed no_sched poll_queues power queue_mode "
	    "shared_tag_bitmap shared_tags size submit_queues "
	    "use_per_node_hctx virt_boundary zone_append_max_sectors "
	    "zone_capacity zone_full zone_max_active zone_max_open "
	    "zone_nr_conv zone_offline zone_readonly zone_size zoned ");
	for (size_t i = 0; i < sizeof(newer) / sizeof(*newer); i++) {
		char path[80];

		snprintf(
		    path, sizeof(path), "config/nullb/nullb0/%s", newer[i]);
		assert_int_not_equal(at(path), 0);
	}
}

static void
features_are_the_files_of_a_device(void **state)
{
	char text[2048], *rest = text, *name, path[128];
	unsigned nr = 0;

	(void)state;
	snprintf(text, sizeof(text), "%s", cat("config/nullb/features"));
	assert_int_equal(text[strlen(text) - 1], '\n');
	text[strlen(text) - 1] = '\0';
	for (; (name = strsep(&rest, ",")) != NULL; nr++) {
		snprintf(path, sizeof(path), "config/nullb/nullb0/%s", name);
		assert_true(S_ISREG(mode(path)));
	}
	assert_int_equal(nr, 37); /* of 6.15 */
	assert_int_equal(echo("x", "config/nullb/features"), -EACCES);
}

static void
a_powered_device_has_what_sysfs_has(void **state)
{
	(void)state;
	turn_on("nullb0");
	assert_string_equal(ls("block/nullb0"),
	    "alignment_offset capability discard_alignment hidden inflight "
	    "queue removable ro size stat");
	assert_string_equal(cat("block/nullb0/size"), "524288000\n");
	assert_string_equal(cat("block/nullb0/ro"), "0\n");
	assert_string_equal(cat("block/nullb0/removable"), "0\n");
	assert_string_equal(cat("block/nullb0/capability"), "0\n");
	assert_string_equal(
	    cat("block/nullb0/inflight"), "       0        0\n");
	assert_string_equal(cat("block/nullb0/stat"),
	    "       0        0        0        0        0        0        0"
	    "        0        0        0        0        0        0        0"
	    "        0        0        0\n");
	assert_string_equal(cat("block/nullb0/queue/nr_requests"), "64\n");
	assert_string_equal(cat("block/nullb0/queue/add_random"), "0\n");
	assert_string_equal(
	    cat("block/nullb0/queue/write_cache"), "write through\n");
	assert_string_equal(cat("block/nullb0/queue"), "EISDIR");
	assert_string_equal(cat_ino(TREE_ROOT), "EISDIR");
	assert_int_equal(echo("1", "block/nullb0/ro"), -EACCES);
	assert_int_equal(echo("1", "block/nullb0/queue"), -EACCES);
	assert_int_equal(echo("1", "block/nullb0/queue/dax"), -EACCES);
}

static void
modes_are_the_kernels(void **state)
{
	(void)state;
	turn_on("nullb0");
	assert_int_equal(mode("config"), S_IFDIR | 0755);
	assert_int_equal(mode("config/nullb/features"), S_IFREG | 0444);
	assert_int_equal(mode("config/nullb/nullb0"), S_IFDIR | 0755);
	assert_int_equal(mode("config/nullb/nullb0/size"), S_IFREG | 0644);
	assert_int_equal(
	    mode("config/nullb/nullb0/zone_readonly"), S_IFREG | 0200);
	assert_int_equal(
	    mode("config/nullb/nullb0/zone_offline"), S_IFREG | 0200);
	assert_int_equal(
	    mode("config/nullb/nullb0/timeout_inject"), S_IFDIR | 0755);
	assert_int_equal(
	    mode("config/nullb/nullb0/timeout_inject/times"), S_IFREG | 0644);
	assert_int_equal(mode("block/nullb0/stat"), S_IFREG | 0444);
	assert_int_equal(mode("block/nullb0/queue"), S_IFDIR | 0755);
	assert_int_equal(mode("block/nullb0/queue/scheduler"), S_IFREG | 0644);
	assert_int_equal(mode("block/nullb0/queue/rotational"), S_IFREG | 0444);
	assert_int_equal(
	    mode("block/nullb0/queue/max_segments"), S_IFREG | 0444);
	assert_string_equal(cat("config/nullb/nullb0/zone_readonly"), "EACCES");
}

static void
a_scheduler_has_a_directory_while_it_is_in_use(void **state)
{
	(void)state;
	turn_on("nullb0");
	assert_string_equal(
	    cat("block/nullb0/queue/scheduler"), "[none] mq-deadline \n");
	assert_int_equal(at("block/nullb0/queue/iosched"), 0);
	assert_int_equal(
	    echo(" mq-deadline \n", "block/nullb0/queue/scheduler"), 0);
	assert_string_equal(
	    cat("block/nullb0/queue/scheduler"), "none [mq-deadline] \n");
	assert_string_equal(ls("block/nullb0/queue/iosched"),
	    "async_depth fifo_batch front_merges prio_aging_expire "
	    "read_expire write_expire writes_starved");
	assert_string_equal(
	    cat("block/nullb0/queue/iosched/fifo_batch"), "16\n");
	assert_int_equal(
	    echo("8\n", "block/nullb0/queue/iosched/fifo_batch"), 0);
	assert_string_equal(
	    cat("block/nullb0/queue/iosched/fifo_batch"), "8\n");
	assert_int_equal(nr_settles, 2);
	assert_int_equal(
	    echo("kyber", "block/nullb0/queue/scheduler"), -EINVAL);
	assert_int_equal(echo("none", "block/nullb0/queue/scheduler"), 0);
	assert_int_equal(at("block/nullb0/queue/iosched"), 0);
}

/* elv_iosched_show() up to 6.1, and without schedulers */
static void
schedulers_are_listed_as_the_kernel_lists_them(void **state)
{
	char err[256];

	(void)state;
	add_disk("old");
	attr_set(disk_attrs, &disk_of("old")->set, "kernel", "6.1", false, err,
	    sizeof(err));
	turn_on("old");
	assert_string_equal(
	    cat("block/old/queue/scheduler"), "[none] mq-deadline \n");
	assert_int_equal(echo("mq-deadline", "block/old/queue/scheduler"), 0);
	assert_string_equal(
	    cat("block/old/queue/scheduler"), "[mq-deadline] none\n");
	assert_int_equal(echo("1", "config/nullb/nullb0/no_sched"), 0);
	turn_on("nullb0");
	assert_string_equal(cat("block/nullb0/queue/scheduler"), "none\n");
}

/* ---- writes */

static void
what_is_written_is_read(void **state)
{
	(void)state;
	assert_string_equal(cat("config/nullb/nullb0/size"), "256000\n");
	assert_int_equal(echo("64\n", "config/nullb/nullb0/size"), 0);
	assert_string_equal(cat("config/nullb/nullb0/size"), "64\n");
	assert_int_equal(echo("0x10", "config/nullb/nullb0/size"), 0);
	assert_string_equal(cat("config/nullb/nullb0/size"), "16\n");
	assert_int_equal(echo("yes\n", "config/nullb/nullb0/memory_backed"), 0);
	assert_string_equal(cat("config/nullb/nullb0/memory_backed"), "1\n");
	assert_int_equal(echo("maybe", "config/nullb/nullb0/discard"), -EINVAL);
	assert_int_equal(echo("5\n\n", "config/nullb/nullb0/mbps"), -EINVAL);
	assert_int_equal(
	    echo("4294967296", "config/nullb/nullb0/mbps"), -ERANGE);
	assert_string_equal(cat("config/nullb/nullb0/badblocks"), "");
	assert_int_equal(echo("+8-23\n", "config/nullb/nullb0/badblocks"), 0);
	assert_string_equal(cat("config/nullb/nullb0/badblocks"), "8 16\n");
}

static void
is_parsed_before_it_is_locked(void **state)
{
	static const char *const locked[] = { "size", "blocksize", "irqmode",
		"completion_nsec", "mbps", "cache_size", "badblocks_once",
		"memory_backed", "index", "zoned", "hw_queue_depth" };
	char path[80];

	(void)state;
	turn_on("nullb0");
	for (size_t i = 0; i < sizeof(locked) / sizeof(*locked); i++) {
		snprintf(
		    path, sizeof(path), "config/nullb/nullb0/%s", locked[i]);
		assert_int_equal(echo("1\n", path), -EBUSY);
		assert_int_equal(echo("x\n", path), -EINVAL);
	}
	assert_int_equal(
	    echo("4294967296", "config/nullb/nullb0/mbps"), -ERANGE);
	assert_string_equal(cat("config/nullb/nullb0/mbps"), "0\n");
}

static void
six_are_not_locked(void **state)
{
	(void)state;
	turn_on("nullb0");
	assert_int_equal(echo("2", "config/nullb/nullb0/submit_queues"), 0);
	assert_string_equal(cat("config/nullb/nullb0/submit_queues"), "2\n");
	assert_int_equal(
	    echo("3", "config/nullb/nullb0/submit_queues"), -EINVAL);
	assert_int_equal(echo("1", "config/nullb/nullb0/poll_queues"), 0);
	assert_int_equal(echo("+1-2", "config/nullb/nullb0/badblocks"), 0);
	assert_int_equal(
	    echo("0", "config/nullb/nullb0/zone_readonly"), -EINVAL);
	assert_int_equal(
	    echo("0", "config/nullb/nullb0/zone_offline"), -EINVAL);
	assert_int_equal(echo("x", "config/nullb/nullb0/power"), -EINVAL);
	assert_int_equal(echo("1", "config/nullb/nullb0/power"), 0);
	assert_string_equal(cat("config/nullb/nullb0/power"), "1\n");
	turn_off("nullb0");
	assert_string_equal(cat("config/nullb/nullb0/power"), "0\n");
	assert_int_equal(echo("0", "config/nullb/nullb0/power"), 0);
}

static void
zones_are_marked_by_a_sector(void **state)
{
	(void)state;
	assert_int_equal(echo("64", "config/nullb/nullb0/size"), 0);
	assert_int_equal(echo("1", "config/nullb/nullb0/zoned"), 0);
	assert_int_equal(echo("4", "config/nullb/nullb0/zone_size"), 0);
	turn_on("nullb0");
	assert_int_equal(echo("0\n", "config/nullb/nullb0/zone_readonly"), 0);
	assert_int_equal(echo("8192", "config/nullb/nullb0/zone_offline"), 0);
	assert_int_equal(
	    echo("131072", "config/nullb/nullb0/zone_offline"), -EINVAL);
	assert_string_equal(cat("block/nullb0/queue/nr_zones"), "16\n");
	assert_string_equal(cat("block/nullb0/queue/zoned"), "host-managed\n");
}

static void
what_queue_has_of_the_driver_can_not_be_written(void **state)
{
	(void)state;
	turn_on("nullb0");
	assert_int_equal(
	    echo("64", "block/nullb0/queue/max_segments"), -EACCES);
	assert_int_equal(echo("1", "block/nullb0/queue/rotational"), -EACCES);
	assert_int_equal(echo("2\n", "block/nullb0/queue/nomerges"), 0);
	assert_string_equal(cat("block/nullb0/queue/nomerges"), "2\n");
}

/* ---- fault injection (1.9) */

static void
has_the_files_of_fault_injection(void **state)
{
	static const char *const dirs[] = { "timeout_inject", "requeue_inject",
		"init_hctx_fault_inject" };
	char path[128];

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "config/nullb/nullb0/%s", dirs[i]);
		assert_string_equal(ls(path),
		    "interval probability space task-filter times verbose "
		    "verbose_ratelimit_burst verbose_ratelimit_interval_ms");
	}
	/* FAULT_ATTR_INITIALIZER */
	assert_string_equal(
	    cat("config/nullb/nullb0/timeout_inject/interval"), "1\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/timeout_inject/probability"), "0\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/timeout_inject/space"), "0\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/timeout_inject/times"), "1\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/timeout_inject/verbose"), "2\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/timeout_inject/task-filter"), "0\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/timeout_inject/verbose_ratelimit_burst"),
	    "10\n");
}

/* What blktests block/014 writes. */
static void
a_fault_is_set_number_by_number(void **state)
{
	const char *dir = "config/nullb/nullb0/timeout_inject";
	char path[128];

	(void)state;
	for (int on = 0; on < 2; on++) {
		assert_int_equal(
		    echo("50\n",
			"config/nullb/nullb0/timeout_inject/probability"),
		    0);
		assert_int_equal(
		    echo("-1\n", "config/nullb/nullb0/timeout_inject/times"),
		    0);
		snprintf(path, sizeof(path), "%s/times", dir);
		assert_string_equal(cat(path), "-1\n");
		snprintf(path, sizeof(path), "%s/probability", dir);
		assert_string_equal(cat(path), "50\n");
		assert_string_equal(
		    cat("config/nullb/nullb0/requeue_inject/probability"),
		    "0\n");
		if (on == 0) {
			assert_int_equal(echo("0", path), 0);
			turn_on("nullb0");
			assert_false(disk_of("nullb0")->has_faults);
		}
	}
	assert_true(disk_of("nullb0")->has_faults);
	assert_int_equal(echo("0\n", path), 0);
	assert_false(disk_of("nullb0")->has_faults);
}

static void
numbers_of_faults_are_the_kernels(void **state)
{
	static const struct {
		const char *file, *value;
		int ret;
	} writes[] = {
		{ "times", "x", -EINVAL },
		{ "times", "2147483648", -ERANGE },
		{ "times", "-1", 0 },
		{ "space", "-2147483647\n", 0 },
		{ "interval", "-1", -EINVAL },
		{ "interval", "18446744073709551615", 0 },
		{ "interval", "18446744073709551616", -ERANGE },
		{ "interval", "0x10", 0 },
		{ "probability", "", -EINVAL },
		{ "probability", "1,2,3,4", -EINVAL },
		{ "verbose", "3", 0 },
		{ "verbose_ratelimit_burst", "4294967296", -ERANGE },
		{ "task-filter", "no", 0 },
		{ "task-filter", "2", -EINVAL },
		{ "task-filter", "1", -EOPNOTSUPP },
	};
	char path[128];

	(void)state;
	for (size_t i = 0; i < sizeof(writes) / sizeof(*writes); i++) {
		snprintf(path, sizeof(path),
		    "config/nullb/nullb0/requeue_inject/%s", writes[i].file);
		if (echo(writes[i].value, path) != writes[i].ret)
			fail_msg("%s: \"%s\"", path, writes[i].value);
	}
	assert_string_equal(
	    cat("config/nullb/nullb0/requeue_inject/interval"), "16\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/requeue_inject/space"), "-2147483647\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/requeue_inject/verbose"), "3\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/timeout_inject/verbose"), "2\n");
}

/* ---- devices come and go */

static void
mkdir_makes_a_device_that_is_off(void **state)
{
	(void)state;
	assert_int_equal(make_dir("x"), 0);
	assert_string_equal(ls("config/nullb"), "features nullb0 x");
	assert_string_equal(cat("config/nullb/x/power"), "0\n");
	assert_int_equal(at("block/x"), 0);
	assert_int_equal(make_dir("x"), -EEXIST);
	assert_int_equal(make_dir("features"), -EEXIST);
	assert_int_equal(make_dir("1234567890123456789012345678901"), 0);
	assert_int_equal(
	    make_dir("12345678901234567890123456789012"), -ENAMETOOLONG);
	assert_int_equal(tree_mkdir(tree, NULL, TREE_ROOT, "y"), -EPERM);
	assert_int_equal(tree_mkdir(tree, NULL, at("block"), "y"), -EPERM);
	assert_int_equal(
	    tree_mkdir(tree, NULL, at("config/nullb/x"), "y"), -EPERM);
}

static void
rmdir_removes_a_device_alone(void **state)
{
	(void)state;
	turn_on("nullb0");
	assert_int_equal(remove_dir("config/nullb", "y"), -ENOENT);
	assert_int_equal(remove_dir("config", "nullb"), -EPERM);
	assert_int_equal(remove_dir("block", "nullb0"), -EPERM);
	assert_int_equal(remove_dir("config/nullb", "features"), -EPERM);
	assert_int_equal(
	    remove_dir("config/nullb/nullb0", "timeout_inject"), -EPERM);
	removes = remove_later;
	assert_int_equal(remove_dir("config/nullb", "nullb0"), -EINPROGRESS);
	removes = remove_now;
	assert_int_equal(remove_dir("config/nullb", "nullb0"), 0);
	assert_string_equal(ls("config/nullb"), "features");
	ctl.remove = NULL;
	add_disk("nullb0");
	assert_int_equal(remove_dir("config/nullb", "nullb0"), -EOPNOTSUPP);
}

static void
a_number_means_no_other_device_than_its_own(void **state)
{
	uint64_t dir, size, times;
	mode_t ignored;

	(void)state;
	assert_int_equal(make_dir("x"), 0);
	dir = at("config/nullb/x");
	size = at("config/nullb/x/size");
	times = at("config/nullb/x/timeout_inject/verbose");
	assert_int_equal(tree_write(tree, NULL, times, "9", NOW_NS), 0);
	assert_int_equal(make_dir("y"), 0);
	assert_int_equal(at("config/nullb/x/size"), size);
	assert_int_not_equal(at("config/nullb/y/size"), size);
	assert_int_equal(remove_dir("config/nullb", "x"), 0);
	assert_string_equal(cat_ino(size), "ENOENT");
	assert_int_equal(tree_write(tree, NULL, size, "1", NOW_NS), -ENOENT);
	assert_int_equal(tree_mode(tree, dir, &ignored), -ENOENT);
	assert_int_equal(tree_lookup(tree, dir, "size"), 0);
	/* nor one that has its name, or its place */
	assert_int_equal(make_dir("x"), 0);
	assert_int_not_equal(at("config/nullb/x/size"), size);
	assert_string_equal(cat_ino(size), "ENOENT");
	assert_string_equal(
	    cat("config/nullb/x/timeout_inject/verbose"), "2\n");
	assert_int_equal(remove_dir("config/nullb", "x"), 0);
	assert_int_equal(make_dir("z"), 0);
	assert_int_not_equal(at("config/nullb/z"), dir);
	assert_int_equal(tree_mode(tree, dir, &ignored), -ENOENT);
}

static void
what_is_of_a_powered_device_goes_with_the_power(void **state)
{
	uint64_t size, stat;
	mode_t ignored;

	(void)state;
	turn_on("nullb0");
	stat = at("block/nullb0/stat");
	size = at("config/nullb/nullb0/size");
	turn_off("nullb0");
	assert_string_equal(cat_ino(stat), "ENOENT");
	assert_int_equal(tree_mode(tree, stat, &ignored), -ENOENT);
	assert_string_equal(cat_ino(size), "256000\n");
	assert_string_equal(
	    cat("config/nullb/nullb0/requeue_inject/times"), "1\n");
	turn_on("nullb0");
	assert_int_equal(at("block/nullb0/stat"), stat);
}

static void
places_of_devices_that_are_gone_are_used_again(void **state)
{
	char name[32];

	(void)state;
	for (unsigned i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		add_disk(name);
		assert_int_not_equal(
		    tree_lookup(tree, at("config/nullb"), name), 0);
		drop_disk(disk_of(name));
	}
}

/* Numbers that nobody was given. */
static void
numbers_that_are_none_are_refused(void **state)
{
	uint64_t ino = at("config/nullb/nullb0");
	struct tree_entry e;
	mode_t ignored;

	(void)state;
	turn_on("nullb0");
	for (unsigned kind = 0; kind < 16; kind++)
		for (unsigned slot = 0; slot < 3; slot++) {
			uint64_t n = ino >> 32 << 32 | slot << 16 | kind << 12;
			uint64_t max = n | 0xfff;

			if (tree_mode(tree, max, &ignored) == 0)
				fail_msg("%#lx", (unsigned long)max);
			assert_false(tree_entry(tree, max, 0, &e));
			assert_string_equal(cat_ino(max), "ENOENT");
			assert_int_equal(
			    tree_write(tree, NULL, max, "1", NOW_NS), -ENOENT);
		}
	assert_int_equal(tree_mode(tree, 0, &ignored), -ENOENT);
	assert_int_equal(tree_mode(tree, 6, &ignored), -ENOENT);
	assert_int_equal(tree_mode(tree, UINT64_MAX, &ignored), -ENOENT);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(has_the_directories_of_configfs_and_sysfs),
		CASE(a_device_has_the_files_that_null_blk_has),
		CASE(features_are_the_files_of_a_device),
		CASE(a_powered_device_has_what_sysfs_has),
		CASE(modes_are_the_kernels),
		CASE(a_scheduler_has_a_directory_while_it_is_in_use),
		CASE(schedulers_are_listed_as_the_kernel_lists_them),
		CASE(what_is_written_is_read),
		CASE(is_parsed_before_it_is_locked),
		CASE(six_are_not_locked),
		CASE(zones_are_marked_by_a_sector),
		CASE(what_queue_has_of_the_driver_can_not_be_written),
		CASE(has_the_files_of_fault_injection),
		CASE(a_fault_is_set_number_by_number),
		CASE(numbers_of_faults_are_the_kernels),
		CASE(mkdir_makes_a_device_that_is_off),
		CASE(rmdir_removes_a_device_alone),
		CASE(a_number_means_no_other_device_than_its_own),
		CASE(what_is_of_a_powered_device_goes_with_the_power),
		CASE(places_of_devices_that_are_gone_are_used_again),
		CASE(numbers_that_are_none_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
