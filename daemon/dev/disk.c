/* SPDX-License-Identifier: MIT */
/*
 * A disk: its settings, and what null_blk and the block layer make of them
 * when the power comes on.  As there, a value is parsed when it is set and
 * refused or clamped at power-on, together with the others.
 */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MIN_BLOCKSIZE   512u
#define MAX_BLOCKSIZE   4096u
#define MIN_NR_REQUESTS 4u   /* BLKDEV_MIN_RQ */
#define BIO_NR_REQUESTS 128u /* what sysfs shows where there are no tags */
#define ZONE_MAX_SIZE   (UINT64_C(1) << 40) /* its sectors have 32 bits */
#define PAGE_SECTORS    (PAGE_SIZE >> SECTOR_SHIFT)
#define MAX_POLL_QUEUES 1u /* the module parameter, at its default */

static uint32_t
min(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t
max(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static bool
is_power_of_two(uint64_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

/* At least 1, so that settings not yet checked can be shown. */
static uint32_t
block_sectors(const struct disk_conf *c)
{
	return max(c->blocksize >> SECTOR_SHIFT, 1);
}

uint32_t
disk_max_hw_sectors(const struct disk_conf *c)
{
	uint32_t hw = c->max_sectors;

	if (hw == 0)
		hw = BLK_SAFE_MAX_SECTORS;
	return hw - hw % block_sectors(c);
}

uint32_t
disk_max_append_sectors(const struct disk_conf *c)
{
	uint32_t most = disk_max_hw_sectors(c);
	uint64_t zone = c->zone_size >> SECTOR_SHIFT;

	if (most > zone)
		most = (uint32_t)zone;
	if (c->zone_append_max_sectors == 0)
		return most;
	return min(most, c->zone_append_max_sectors);
}

uint32_t
disk_nr_zones(const struct disk_conf *c)
{
	uint64_t nr;

	if (!c->zoned || c->zone_size == 0)
		return 0;
	nr = c->size / c->zone_size + (c->size % c->zone_size != 0);
	return nr < UINT32_MAX ? (uint32_t)nr : UINT32_MAX;
}

/* ---- what power-on checks, a step each: 0, or refuse() */

/*
 * A file has the data of a disk, and nothing but that: not where the write
 * pointers of zones were.
 */
static int
check_backing(const struct disk_conf *c, char *err, size_t errlen)
{
	if (!c->memory_backed)
		return refuse(err, errlen, -EINVAL,
		    "backing: \"%.200s\": allowed: none, unless memory_backed",
		    c->backing);
	if (c->zoned)
		return refuse(err, errlen, -EINVAL,
		    "backing: \"%.200s\": allowed: none, as zoned is set: a "
		    "file keeps no zones",
		    c->backing);
	if (c->fill != NULL)
		return refuse(err, errlen, -EINVAL,
		    "fill: \"%.200s\": allowed: none, as backing is set: copy "
		    "the image there",
		    c->fill);
	return 0;
}

/* What is recorded is read from the store; resets of zones are not in it. */
static int
check_crash_log(const struct disk_conf *c, char *err, size_t errlen)
{
	if (!c->memory_backed)
		return refuse(err, errlen, -EINVAL,
		    "crash_log: \"%.200s\": allowed: none, unless "
		    "memory_backed",
		    c->crash_log);
	if (c->zoned)
		return refuse(err, errlen, -EINVAL,
		    "crash_log: \"%.200s\": allowed: none, as zoned is set",
		    c->crash_log);
	return 0;
}

/* null_validate_conf() */
static int
check_driver(struct disk_conf *c, unsigned nr_cpus, char *err, size_t errlen)
{
	int ret = 0;

	if (c->queue_mode == NULL_Q_RQ)
		return refuse(err, errlen, -EINVAL,
		    "queue_mode: 1: the legacy path is no longer available; "
		    "allowed: 0 (bio), 2 (mq)");
	/* 6.12 dropped the clamp together with the bio path: 3 stays 3 */
	if (c->kernel->bio_queue_mode)
		c->queue_mode = min(c->queue_mode, NULL_Q_MQ);
	else if (c->queue_mode == NULL_Q_BIO)
		c->queue_mode = NULL_Q_MQ;
	c->irqmode = min(c->irqmode, NULL_IRQ_TIMER);
	c->mbps = min(c->mbps, THROTTLE_MAX_MBPS);
	c->submit_queues =
	    min(max(c->submit_queues, 1), min(nr_cpus, BLK_MAX_HW_QUEUES));
	if (c->use_per_node_hctx)
		c->submit_queues = 1; /* the machine that we play is one node */
	c->poll_queues = min(c->poll_queues, MAX_POLL_QUEUES);
	if (c->memory_backed)
		c->blocking = true;
	else
		c->discard = false;
	if (!c->memory_backed)
		c->cache_size = 0;
	if (c->fill != NULL && !c->memory_backed)
		return refuse(err, errlen, -EINVAL,
		    "fill: \"%.200s\": allowed: none, unless memory_backed",
		    c->fill);
	if (c->backing != NULL)
		ret = check_backing(c, err, errlen);
	if (ret == 0 && c->crash_log != NULL)
		ret = check_crash_log(c, err, errlen);
	if (ret == 0 && c->hw_queue_depth == 0)
		return refuse(err, errlen, -EINVAL,
		    "hw_queue_depth: 0: allowed: 1 to %u", BLK_MAX_DEPTH);
	return ret;
}

/*
 * Blocks.  A blocksize of 0 is 512 to the block layer of 6.12 and stays 0 in
 * its null_blk, whose loops then do not end; 6.1 refuses it, and so do we.
 */
static int
check_blocks(struct disk_conf *c, char *err, size_t errlen)
{
	if (!is_power_of_two(c->blocksize) || c->blocksize < MIN_BLOCKSIZE ||
	    c->blocksize > MAX_BLOCKSIZE)
		return refuse(err, errlen, -EINVAL,
		    "blocksize: %" PRIu32
		    ": allowed: a power of two from %u to %u",
		    c->blocksize, MIN_BLOCKSIZE, MAX_BLOCKSIZE);
	c->size -= c->size % c->blocksize;
	if (c->physical_block_size == 0)
		c->physical_block_size = c->blocksize;
	if (!is_power_of_two(c->physical_block_size))
		return refuse(err, errlen, -EINVAL,
		    "queue/physical_block_size: %" PRIu32
		    ": allowed: a power of two",
		    c->physical_block_size);
	c->physical_block_size = max(c->physical_block_size, c->blocksize);
	if (c->chunk_sectors % block_sectors(c) != 0)
		return refuse(err, errlen, -EINVAL,
		    "queue/chunk_sectors: %" PRIu32
		    ": allowed: a multiple of %" PRIu32 " (a block)",
		    c->chunk_sectors, block_sectors(c));
	return 0;
}

/* null_init_zoned_dev(): how large zones are. */
static int
check_zone_sizes(const struct disk_conf *c, char *err, size_t errlen)
{
	if (!is_power_of_two(c->zone_size) || c->zone_size < PAGE_SIZE ||
	    c->zone_size > ZONE_MAX_SIZE)
		return refuse(err, errlen, -EINVAL,
		    "zone_size: %" PRIu64
		    " bytes: allowed: a power of two from 4 KiB to 1 TiB",
		    c->zone_size);
	if (c->zone_size > c->size)
		return refuse(err, errlen, -EINVAL,
		    "zone_size: %" PRIu64
		    " bytes: allowed: at most the size (%" PRIu64 ")",
		    c->zone_size, c->size);
	if (disk_nr_zones(c) > ZONES_MAX)
		return refuse(err, errlen, -EINVAL,
		    "zone_size: %" PRIu64 " bytes: allowed: at most %u zones",
		    c->zone_size, ZONES_MAX);
	if (c->zone_capacity > c->zone_size ||
	    c->zone_capacity % c->blocksize != 0)
		return refuse(err, errlen, -EINVAL,
		    "zone_capacity: %" PRIu64
		    " bytes: allowed: whole blocks, at most the zone_size "
		    "(%" PRIu64 ")",
		    c->zone_capacity, c->zone_size);
	if (c->zone_capacity != 0 && c->zone_capacity != c->zone_size &&
	    c->size % c->zone_size != 0)
		return refuse(err, errlen, -EINVAL,
		    "zone_capacity: %" PRIu64
		    " bytes: allowed: 0 or the zone_size (%" PRIu64
		    "), as the last zone is shorter",
		    c->zone_capacity, c->zone_size);
	return 0;
}

/* The rest of it: how many there may be of each kind. */
static void
limit_zones(struct disk_conf *c)
{
	uint32_t nr = disk_nr_zones(c), append = c->zone_append_max_sectors;
	uint32_t sequential;

	if (c->zone_capacity == 0)
		c->zone_capacity = c->zone_size;
	c->zone_nr_conv = min(c->zone_nr_conv, nr - 1);
	sequential = nr - c->zone_nr_conv;
	append -= append % block_sectors(c);
	c->zone_append_max_sectors =
	    min(append, (uint32_t)(c->zone_capacity >> SECTOR_SHIFT));
	/* a limit that none can reach is none */
	if (c->zone_max_active >= sequential)
		c->zone_max_active = 0;
	if (c->zone_max_active != 0)
		c->zone_max_open = min(c->zone_max_open, c->zone_max_active);
	else if (c->zone_max_open >= sequential)
		c->zone_max_open = 0;
}

/* Zones are chunks: no request crosses from one into another. */
static int
check_zones(struct disk_conf *c, char *err, size_t errlen)
{
	uint32_t chunk = (uint32_t)(c->zone_size >> SECTOR_SHIFT);
	int ret;

	if (!c->zoned)
		return 0;
	ret = check_zone_sizes(c, err, errlen);
	if (ret != 0)
		return ret;
	if (c->chunk_sectors != 0 && c->chunk_sectors != chunk)
		return refuse(err, errlen, -EINVAL,
		    "queue/chunk_sectors: %" PRIu32 ": allowed: 0 or %" PRIu32
		    " (a zone), as zoned is set",
		    c->chunk_sectors, chunk);
	limit_zones(c);
	c->chunk_sectors = chunk;
	c->discard = false;
	c->write_zeroes_max_bytes = 0; /* zeros are written, at the pointer */
	return 0;
}

/* max_sectors is the driver's limit, max_sectors_kb the user's below it. */
static int
check_max_sectors(struct disk_conf *c, char *err, size_t errlen)
{
	uint32_t hw, soft, least = max(PAGE_SECTORS, block_sectors(c));

	if (c->max_sectors != 0 && c->max_sectors < least)
		return refuse(err, errlen, -EINVAL,
		    "max_sectors: %" PRIu32 ": allowed: 0, or at least %" PRIu32
		    " (a page and a block)",
		    c->max_sectors, least);
	hw = disk_max_hw_sectors(c);
	if (c->max_sectors_kb != 0 &&
	    (c->max_sectors_kb < least / 2 || c->max_sectors_kb > hw / 2))
		return refuse(err, errlen, -EINVAL,
		    "queue/max_sectors_kb: %" PRIu32 ": allowed: %" PRIu32
		    " to %" PRIu32 " (max_hw_sectors_kb)",
		    c->max_sectors_kb, least / 2, hw / 2);
	if (c->max_sectors_kb != 0)
		soft = c->max_sectors_kb * 2;
	else
		soft = min(hw, BLK_DEF_MAX_SECTORS);
	soft -= soft % block_sectors(c);
	c->max_sectors_kb = soft / 2;
	return 0;
}

static int
check_segments(struct disk_conf *c, char *err, size_t errlen)
{
	if (c->max_segment_size == 0)
		c->max_segment_size = c->virt_boundary ? UINT32_MAX : 65536;
	if (c->max_segment_size < PAGE_SIZE)
		return refuse(err, errlen, -EINVAL,
		    "queue/max_segment_size: %" PRIu32
		    ": allowed: 0, or at least %u (a page)",
		    c->max_segment_size, PAGE_SIZE);
	if ((c->seg_boundary_mask & (c->seg_boundary_mask + 1)) != 0)
		return refuse(err, errlen, -EINVAL,
		    "queue/seg_boundary_mask: %" PRIu64
		    ": allowed: a power of two less one",
		    c->seg_boundary_mask);
	return 0;
}

static int
check_discard(struct disk_conf *c, char *err, size_t errlen)
{
	uint64_t zeroes = c->write_zeroes_max_bytes;

	if (zeroes != 0 && zeroes < c->blocksize)
		return refuse(err, errlen, -EINVAL,
		    "queue/write_zeroes_max_bytes: %" PRIu64
		    ": allowed: 0, or at least a block (%" PRIu32 ")",
		    zeroes, c->blocksize);
	c->write_zeroes_max_bytes -= zeroes % c->blocksize;
	if (!c->discard) {
		c->discard_max_bytes = 0;
		c->discard_granularity = 0;
		return 0;
	}
	if (c->discard_granularity % c->blocksize != 0)
		return refuse(err, errlen, -EINVAL,
		    "queue/discard_granularity: %" PRIu32
		    ": allowed: a multiple of %" PRIu32 " (a block)",
		    c->discard_granularity, c->blocksize);
	c->discard_granularity =
	    max(c->discard_granularity, c->physical_block_size);
	if (c->discard_max_bytes != 0 &&
	    c->discard_max_bytes < c->discard_granularity)
		return refuse(err, errlen, -EINVAL,
		    "queue/discard_max_bytes: %" PRIu64
		    ": allowed: 0, or at least the granularity (%" PRIu32 ")",
		    c->discard_max_bytes, c->discard_granularity);
	c->discard_max_bytes -= c->discard_max_bytes % SECTOR_SIZE;
	return 0;
}

/* Tags and the scheduler; a bio path has neither, and counts nothing. */
static int
check_tags(struct disk_conf *c, char *err, size_t errlen)
{
	uint32_t depth = min(c->hw_queue_depth, BLK_MAX_DEPTH);
	bool sched = c->scheduler->ops != NULL;
	uint32_t most = sched ? BLK_MAX_SCHED_RQ : depth;

	if (c->queue_mode == NULL_Q_BIO && sched)
		return refuse(err, errlen, -EINVAL,
		    "queue/scheduler: %s: allowed: none, as queue_mode is 0 "
		    "(bio)",
		    c->scheduler->name);
	if (c->queue_mode == NULL_Q_BIO) {
		c->nr_requests = BIO_NR_REQUESTS;
		c->iostats = false;
		return 0;
	}
	if (c->no_sched && strcmp(c->scheduler->name, "none") != 0)
		return refuse(err, errlen, -EINVAL,
		    "queue/scheduler: %s: allowed: none, as no_sched is set",
		    c->scheduler->name);
	if (c->nr_requests == 0)
		c->nr_requests = sched ? 2 * min(depth, BLK_DEFAULT_RQ) : depth;
	c->nr_requests = max(c->nr_requests, min(MIN_NR_REQUESTS, most));
	if (c->nr_requests > most)
		return refuse(err, errlen, -EINVAL,
		    "queue/nr_requests: %" PRIu32
		    ": allowed: at most %s (%" PRIu32 ")",
		    c->nr_requests, sched ? "MAX_SCHED_RQ" : "hw_queue_depth",
		    most);
	if (c->iosched.async_depth == 0)
		c->iosched.async_depth = c->nr_requests;
	return 0;
}

/* ---- what is made of them */

static void
fill_limits(
    const struct disk_conf *set, const struct disk_conf *c, struct limits *lim)
{
	limits_init(lim);
	lim->logical_block_size = c->blocksize;
	lim->physical_block_size = c->physical_block_size;
	/* left alone it may be odd, 255; written as KiB it never is */
	lim->max_sectors = c->max_sectors_kb * 2;
	if (set->max_sectors_kb == 0)
		lim->max_sectors =
		    min(disk_max_hw_sectors(c), BLK_DEF_MAX_SECTORS);
	lim->max_segments = c->max_segments;
	lim->max_segment_size = c->max_segment_size;
	lim->seg_boundary_mask = c->seg_boundary_mask;
	lim->virt_boundary_mask = c->virt_boundary ? PAGE_SIZE - 1 : 0;
	lim->chunk_sectors = c->chunk_sectors;
	lim->max_discard_sectors =
	    (uint32_t)(c->discard_max_bytes >> SECTOR_SHIFT);
	lim->max_discard_segments = c->max_discard_segments;
	lim->discard_granularity = c->discard_granularity;
	lim->max_write_zeroes_sectors =
	    (uint32_t)(c->write_zeroes_max_bytes >> SECTOR_SHIFT);
	/* the kernel's page cache is one, so clients flush */
	lim->write_cache = c->cache_size > 0 || c->backing != NULL;
	lim->fua = c->fua;
	lim->rotational = c->rotational;
	lim->zoned = c->zoned;
	if (!c->zoned)
		return;
	/* a trim of a zone resets it (zones.c) */
	lim->max_discard_sectors = c->chunk_sectors;
	lim->max_append_sectors = disk_max_append_sectors(c);
}

static void
fill_queue(const struct disk_conf *set, const struct disk_conf *c,
    struct queue_conf *queue)
{
	*queue = (struct queue_conf){
		.profile = c->kernel,
		.nr_hw_queues = c->submit_queues,
		.depth = min(c->hw_queue_depth, BLK_MAX_DEPTH),
		.nr_requests = c->nr_requests,
		.elevator = c->scheduler,
		.deadline = c->iosched,
		.plug_mode = c->plug,
		.nomerges = c->nomerges,
		.multipage = c->multipage_bvec == MULTIPAGE_AUTO
				 ? c->kernel->multipage
				 : c->multipage_bvec != 0,
		.bio_based = c->queue_mode == NULL_Q_BIO,
		.shared_tags = c->shared_tag_bitmap,
		.blocking = c->blocking,
		.iostats = c->iostats,
	};
	if (queue->bio_based) {
		queue->nr_requests = 0;
		queue->elevator = NULL;
	}
	fill_limits(set, c, &queue->limits);
}

int
disk_check(const struct disk_conf *set, unsigned nr_cpus,
    struct disk_conf *conf, struct queue_conf *queue, char *err, size_t errlen)
{
	int ret;

	*conf = *set;
	ret = check_driver(conf, nr_cpus, err, errlen);
	if (ret == 0)
		ret = check_blocks(conf, err, errlen);
	if (ret == 0)
		ret = check_zones(conf, err, errlen);
	if (ret == 0)
		ret = check_max_sectors(conf, err, errlen);
	if (ret == 0)
		ret = check_segments(conf, err, errlen);
	if (ret == 0)
		ret = check_discard(conf, err, errlen);
	if (ret == 0)
		ret = check_tags(conf, err, errlen);
	if (ret == 0)
		ret = parts_check(conf, err, errlen);
	if (ret == 0)
		fill_queue(set, conf, queue);
	return ret;
}

/* ---- a change while it is on */

/* What it will be when the queue is empty. */
struct disk_change {
	struct disk_conf set; /* with the texts of d->set: none is live */
	struct disk_conf conf;
	struct queue_conf queue;
	bool snapshot; /* that is all */
	char what[96]; /* "queue/scheduler: \"mq-deadline\"", for messages */
	uint64_t give_up_ns;
};

/* In force from now on. */
static void
take_over(struct disk *d)
{
	d->set = d->change->set;
	d->change->conf.seed = d->conf.seed;
	d->conf = d->change->conf;
	d->conf.power = true;
	if (d->store != NULL)
		store_limit(d->store, d->conf.memory_limit);
}

/* What is in force elsewhere than in the queue: workers look at it there. */
static void
apply(struct disk *d, uint64_t now)
{
	throttle_set(&d->throttle, d->hurried ? 0 : d->conf.mbps, now);
	badblocks_mode(d->conf.badblocks, d->conf.badblocks_once,
	    d->conf.badblocks_partial_io);
	cache_resize(&d->cache, d->conf.cache_size);
	fault_arm(d);
	stages_choose(d);
}

void
disk_hurry(struct disk *d, uint64_t now)
{
	d->hurried = true;
	throttle_set(&d->throttle, 0, now);
	fault_hurry(d);
	if (d->queue != NULL)
		queue_restart(d->queue);
}

/*
 * A row that is in force at once, whatever is in flight, and whatever other
 * change waits for that.
 */
static int
set_at_once(struct disk *d, const struct attr *a, const char *name,
    const char *value, uint64_t now, char *err, size_t errlen)
{
	struct disk_conf set = d->set, conf;
	struct queue_conf queue;
	int ret;

	ret = attr_set(disk_attrs, &set, name, value, true, err, errlen);
	if (a->type == ATTR_OBJECT) { /* it has changed in place */
		fault_arm(d);
		stages_choose(d);
		if (ret == 0 && timing_choose(d) != 0)
			ret =
			    refuse(err, errlen, -ENOMEM, "%s: no memory", name);
		return ret;
	}
	if (ret == 0)
		ret = disk_check(
		    &set, d->machine->nr_cpus, &conf, &queue, err, errlen);
	if (ret != 0)
		return ret;
	attr_copy_one(a, &d->set, &set);
	attr_copy_one(a, &d->conf, &conf);
	if (d->change != NULL) {
		attr_copy_one(a, &d->change->set, &set);
		attr_copy_one(a, &d->change->conf, &conf);
	}
	apply(d, now);
	queue_restart(d->queue);
	return 0;
}

/* nullb_update_nr_hw_queues(): while on, they are refused, and not clamped. */
static int
check_queues(const struct attr *a, const struct disk_conf *set,
    unsigned nr_cpus, char *err, size_t errlen)
{
	unsigned most = min(nr_cpus, BLK_MAX_HW_QUEUES);
	uint32_t submit = set->submit_queues, poll = set->poll_queues;

	if (set->use_per_node_hctx)
		most = 1;
	if (strcmp(a->name, "submit_queues") == 0 &&
	    (submit == 0 || submit > most))
		return refuse(err, errlen, -EINVAL,
		    "submit_queues: %" PRIu32
		    ": allowed while it is on: 1 to %u, the %s",
		    submit, most, set->use_per_node_hctx ? "nodes" : "workers");
	if (strcmp(a->name, "poll_queues") == 0 && poll > MAX_POLL_QUEUES)
		return refuse(err, errlen, -EINVAL,
		    "poll_queues: %" PRIu32
		    ": allowed while it is on: at most %u",
		    poll, MAX_POLL_QUEUES);
	return 0;
}

int
disk_set(struct disk *d, const char *name, const char *value, uint64_t now,
    char *err, size_t errlen)
{
	const struct attr *a = attr_find(disk_attrs, name);
	struct disk_change *c;
	int ret;

	if (d->filling)
		return refuse(
		    err, errlen, -EBUSY, "%s: its data is being read", name);
	if (d->queue == NULL)
		return attr_set(
		    disk_attrs, &d->set, name, value, false, err, errlen);
	if (d->powering_down)
		return refuse(
		    err, errlen, -EBUSY, "%s: the power is going off", name);
	if (a != NULL && a->at_once)
		return set_at_once(d, a, name, value, now, err, errlen);
	if (d->change != NULL)
		return refuse(err, errlen, -EBUSY,
		    "%s: another change is being made", name);
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return refuse(err, errlen, -ENOMEM, "%s: no memory", name);
	c->set = d->set;
	ret = attr_set(disk_attrs, &c->set, name, value, true, err, errlen);
	if (ret == 0) {
		assert(a != NULL); /* it was set */
		ret =
		    check_queues(a, &c->set, d->machine->nr_cpus, err, errlen);
	}
	/* elevator_switch(): a scheduler begins with the requests it likes */
	if (ret == 0 && c->set.scheduler != d->set.scheduler)
		c->set.nr_requests = 0;
	if (ret == 0)
		ret = disk_check(&c->set, d->machine->nr_cpus, &c->conf,
		    &c->queue, err, errlen);
	if (ret != 0) {
		free(c);
		return ret;
	}
	snprintf(c->what, sizeof(c->what), "%.40s: \"%.40s\"", name, value);
	c->give_up_ns = now + DISK_SETTLE_NS;
	d->change = c;
	queue_freeze(d->queue);
	return -EINPROGRESS;
}

/*
 * The queue is frozen: make the change.  -EINPROGRESS: cpus have something of
 * hardware queues that are about to go.
 */
static int
change_queue(struct disk *d)
{
	const struct queue_conf *to = &d->change->queue;
	struct queue *q = d->queue;
	unsigned before = q->conf.nr_hw_queues;
	int ret = 0;

	if (to->nr_hw_queues != before) {
		if (!queue_leaving(q))
			queue_leave(q);
		if (!queue_left(q))
			return -EINPROGRESS;
		ret = queue_resize(q, to->nr_hw_queues);
	}
	if (ret != 0)
		return ret;
	ret = queue_update(q, to);
	/* nothing has changed then: fewer need no memory, more were asked for
	 */
	if (ret != 0 && q->conf.nr_hw_queues > before)
		(void)queue_resize(q, before);
	return ret;
}

/* Nobody writes. */
static int
share_data(struct disk *d)
{
	assert(d->snapshot == NULL);
	if (d->kept == NULL)
		return 0;
	return store_snapshot(d->kept, &d->snapshot);
}

int
disk_snapshot(struct disk *d, uint64_t now, char *err, size_t errlen)
{
	int ret;

	if (d->filling || d->powering_down || d->change != NULL)
		return refuse(err, errlen, -EBUSY,
		    "snapshot: a change is being made, or the power going on "
		    "or off");
	if (disk_shown(d)->zoned)
		return refuse(err, errlen, -EINVAL,
		    "snapshot: allowed: none, as zoned is set");
	if (d->queue == NULL && d->set.backing != NULL)
		return refuse(err, errlen, -EINVAL,
		    "snapshot: \"%.200s\" (backing) has its data while it is "
		    "off; allowed: while it is on",
		    d->set.backing);
	if (d->queue == NULL) {
		ret = share_data(d);
		return ret == 0 ? 0
				: refuse(err, errlen, ret, "snapshot: %s",
				      strerror(-ret));
	}
	d->change = calloc(1, sizeof(*d->change));
	if (d->change == NULL)
		return refuse(err, errlen, -ENOMEM, "snapshot: no memory");
	d->change->set = d->set; /* what is set at once goes there, too */
	d->change->conf = d->conf;
	d->change->snapshot = true;
	snprintf(d->change->what, sizeof(d->change->what), "snapshot");
	d->change->give_up_ns = now + DISK_SETTLE_NS;
	queue_freeze(d->queue);
	return -EINPROGRESS;
}

struct store *
disk_take_snapshot(struct disk *d)
{
	struct store *s = d->snapshot;

	d->snapshot = NULL;
	return s;
}

int
disk_settle(struct disk *d, uint64_t now, char *err, size_t errlen)
{
	struct disk_change *c = d->change;
	int ret = 0;

	assert(c != NULL);
	if (queue_frozen(d->queue)) {
		ret = c->snapshot ? share_data(d) : change_queue(d);
		if (ret == -EINPROGRESS)
			return ret;
		if (ret == 0 && !c->snapshot) {
			take_over(d);
			apply(d, now);
		} else if (ret != 0)
			refuse(err, errlen, ret, "%s: %s", c->what,
			    strerror(-ret));
	} else if (now < c->give_up_ns) {
		return -EINPROGRESS;
	} else {
		ret = refuse(err, errlen, -EBUSY,
		    "%s: requests have been in flight for %u s", c->what,
		    (unsigned)(DISK_SETTLE_NS / 1000000000u));
	}
	queue_thaw(d->queue);
	d->change = NULL;
	free(c);
	return ret;
}

/* ---- the disk */

struct disk *
disk_new(const char *name, struct machine *m, struct page_pool *pool)
{
	struct disk *d = calloc(1, sizeof(*d));

	assert(name[0] != '\0');
	assert(strlen(name) < sizeof(d->name));
	if (d == NULL)
		return NULL;
	memcpy(d->name, name, strlen(name) + 1);
	d->machine = m;
	d->pool = pool;
	throttle_init(&d->throttle);
	cache_init(&d->cache);
	pthread_mutex_init(&d->cut.lock, NULL);
	if (attr_init(disk_attrs, &d->set) != 0) {
		free(d);
		return NULL;
	}
	return d;
}

void
disk_free(struct disk *d)
{
	if (d == NULL)
		return;
	free(d->change);
	queue_free(d->queue);
	disk_detach_media(d);
	timing_fini(d);
	cache_flush(&d->cache, d->pool, NULL);
	cache_fini(&d->cache);
	pthread_mutex_destroy(&d->cut.lock);
	store_free(d->kept, NULL);
	store_free(d->snapshot, NULL);
	attr_fini(disk_attrs, &d->set);
	throttle_fini(&d->throttle);
	free(d);
}

int
disk_power_on(struct disk *d, uint64_t now, char *err, size_t errlen)
{
	struct queue_conf queue;
	int ret;

	if (d->queue != NULL)
		return 0;
	ret = disk_check(
	    &d->set, d->machine->nr_cpus, &d->conf, &queue, err, errlen);
	if (ret == 0)
		ret = fault_power_on(d, now, err, errlen);
	timing_fini(d);
	if (ret == 0 && timing_choose(d) != 0)
		ret = refuse(
		    err, errlen, -ENOMEM, "latency: no memory for its models");
	if (ret == 0)
		ret = disk_attach_media(d, err, errlen);
	if (ret != 0)
		return ret;
	ret = queue_new(&d->queue, d->machine,
	    d->store != NULL ? &disk_store_queue_ops : &disk_queue_ops, d,
	    &queue);
	if (ret != 0) {
		d->queue = NULL;
		disk_detach_media(d);
		return refuse(err, errlen, ret,
		    "hw_queue_depth: %" PRIu32 ": no memory for its requests",
		    d->conf.hw_queue_depth);
	}
	d->set.power = true;
	d->conf.power = true;
	d->on_ns = now;
	d->hurried = false;
	apply(d, now);
	return 0;
}

/* ---- what it holds */

/* d->conf is not looked at: who sets may just change it. */
static unsigned
extent_zoned(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t *len,
    unsigned *steps)
{
	struct zone_info z;
	uint64_t readable, end;

	zones_info(d->zones, zones_at(d->zones, pos), &z);
	readable = zones_readable(d->zones, pos, z.start + z.len - pos);
	end = readable > 0 ? pos + readable : z.start + z.len;
	if (end - pos < *len)
		*len = end - pos;
	if (readable > 0)
		return store_extent(d->store, cpu, pos, len, steps)
			   ? 0
			   : DISK_HOLE | DISK_ZERO;
	(*steps)--;
	return DISK_HOLE;
}

unsigned
disk_extent(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t *len,
    unsigned *steps)
{
	if (d->store == NULL) {
		(*steps)--;
		return DISK_HOLE | DISK_ZERO;
	}
	if (d->zones != NULL)
		return extent_zoned(d, cpu, pos, len, steps);
	return store_extent(d->store, cpu, pos, len, steps)
		   ? 0
		   : DISK_HOLE | DISK_ZERO;
}
