/* SPDX-License-Identifier: MIT */
/*
 * The settings of a disk, a row each.  null_blk's bear its names and its
 * defaults, and are parsed as its configfs does; those of the queue bear the
 * names of /sys/block/X/queue; the rest is our own.  What must fit together
 * is checked at power-on (disk.c).
 */
#include "dev/dev.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define KIB(sectors) ((sectors) / 2)
#define NBD_MAX_TEXT 4096 /* bytes of a string of the NBD protocol (N17) */

const struct attr_group null_blk = {
	.title = "attributes of null_blk",
};

static const struct attr_group queue = {
	.title = "attributes of /sys/block/X/queue",
	.prefix = "queue/",
};

static const struct attr_group iosched = {
	.title = "attributes of /sys/block/X/queue/iosched with mq-deadline",
	.prefix = "queue/iosched/",
};

static const struct attr_group own = {
	.title = "attributes that only nullbd has",
	.prints_names = true,
};

static const struct unit mib_a_second = { .name = "MiB/s", .scale = 1 };

static const struct attr_choice irqmodes[] = {
	{ "none", NULL_IRQ_NONE, "completes inside the submission" },
	{ "softirq", NULL_IRQ_SOFTIRQ, "completes at the end of the turn" },
	{ "timer", NULL_IRQ_TIMER, "completes completion_nsec later" },
	{},
};

static const struct attr_choice queue_modes[] = {
	{ "bio", NULL_Q_BIO,
	    "no requests: neither split, merged nor counted (up to kernel 6.1; "
	    "becomes mq in 6.12)" },
	{ "rq", NULL_Q_RQ, "one queue under one lock: refused at power-on" },
	{ "mq", NULL_Q_MQ, "requests over hardware queues" },
	{},
};

static const struct attr_choice nomerges[] = {
	{ "all", 0, "merges wherever the kernel does" },
	{ "simple", 1, "only the cheap ones: no search in the scheduler" },
	{ "off", 2, "merges nothing" },
	{},
};

static const struct attr_choice plugs[] = {
	{ "plug", PLUG_TASK, "a plug of the client's own (kernel 2.6.39 on)" },
	{ "call", PLUG_CALL,
	    "gathers on the queue, which is run once a call (2.6.33 to "
	    "2.6.38)" },
	{ "each", PLUG_EACH, "each I/O is started by itself (before 2.6.33)" },
	{},
};

static const struct attr_choice multipage[] = {
	{ "0", 0, "a bvec is at most a page" },
	{ "1", 1, "a bvec is a run of contiguous pages" },
	{ "auto", MULTIPAGE_AUTO, "as the kernel has it: 1 from 5.4 on" },
	{},
};

static int
scheduler_check(const char *value, char *err, size_t errlen)
{
	const struct elevator_type *e = elevator_find(value);

	if (e != NULL && e->available)
		return 0;
	return refuse(err, errlen, -EINVAL,
	    "queue/scheduler: \"%s\": %s; allowed: none, mq-deadline", value,
	    e != NULL ? e->help : "no such scheduler");
}

/* ---- what sysfs shows beside the settings */

static void
show_blocksize(const void *conf, FILE *out)
{
	fprintf(out, "%" PRIu32, ((const struct disk_conf *)conf)->blocksize);
}

static void
show_physical(const void *conf, FILE *out)
{
	const struct disk_conf *c = conf;

	fprintf(out, "%" PRIu32, c->physical_block_size);
}

static void
show_max_hw_sectors_kb(const void *conf, FILE *out)
{
	fprintf(out, "%" PRIu32, KIB(disk_max_hw_sectors(conf)));
}

static void
show_discard_max_hw_bytes(const void *conf, FILE *out)
{
	const struct disk_conf *c = conf;

	fprintf(out, "%" PRIu64, c->discard ? DISCARD_MAX_BYTES : 0);
}

static void
show_virt_boundary_mask(const void *conf, FILE *out)
{
	const struct disk_conf *c = conf;

	fprintf(out, "%u", c->virt_boundary ? PAGE_SIZE - 1 : 0);
}

static void
show_rotational(const void *conf, FILE *out)
{
	fputc(((const struct disk_conf *)conf)->rotational ? '1' : '0', out);
}

static bool
has_cache(const struct disk_conf *c)
{
	return c->memory_backed && (c->cache_size > 0 || c->backing != NULL);
}

static void
show_write_cache(const void *conf, FILE *out)
{
	fputs(has_cache(conf) ? "write back" : "write through", out);
}

static void
show_fua(const void *conf, FILE *out)
{
	const struct disk_conf *c = conf;

	fputc(has_cache(c) && c->fua ? '1' : '0', out);
}

static void
show_zoned(const void *conf, FILE *out)
{
	const struct disk_conf *c = conf;

	fputs(c->zoned ? "host-managed" : "none", out);
}

static void
show_nr_zones(const void *conf, FILE *out)
{
	fprintf(out, "%" PRIu32, disk_nr_zones(conf));
}

static void
show_max_open_zones(const void *conf, FILE *out)
{
	const struct disk_conf *c = conf;

	fprintf(out, "%" PRIu32, c->zoned ? c->zone_max_open : 0);
}

static void
show_max_active_zones(const void *conf, FILE *out)
{
	const struct disk_conf *c = conf;

	fprintf(out, "%" PRIu32, c->zoned ? c->zone_max_active : 0);
}

static void
show_zone_append_max_bytes(const void *conf, FILE *out)
{
	const struct disk_conf *c = conf;
	uint64_t max = c->zoned ? disk_max_append_sectors(c) : 0;

	fprintf(out, "%" PRIu64, max << SECTOR_SHIFT);
}

static void
show_zone_write_granularity(const void *conf, FILE *out)
{
	const struct disk_conf *c = conf;

	fprintf(out, "%" PRIu32, c->zoned ? c->blocksize : 0);
}

/* ---- the table */

#define NULL_BLK(f) ATTR_FIELD(struct disk_conf, f), .group = &null_blk
#define QUEUE(f)    ATTR_FIELD(struct disk_conf, f), .group = &queue
#define IOSCHED(n, f)                                                  \
	ATTR_NAMED(n, struct disk_conf, iosched.f), .group = &iosched, \
						    .live = true
#define OWN(f) ATTR_FIELD(struct disk_conf, f), .group = &own
#define OBJECT(n, obj, in)                                                 \
	.name = #n, .offset = offsetof(struct disk_conf, n),               \
	.type = ATTR_OBJECT, .object = (obj), .group = (in), .live = true, \
	.at_once = true
#define FAULT_ATTR(n) OBJECT(n, &fault_##n##_object, &null_blk)
#define LATENCY(n)                                                           \
	.name = "latency." #n,                                               \
	.offset = offsetof(struct disk_conf, latency_##n),                   \
	.type = ATTR_OBJECT, .object = &latency_##n##_object, .group = &own, \
	.live = true, .at_once = true
#define PART(n, f)  ATTR_NAMED(n, struct disk_conf, parts.f), .group = &own
#define SHOWN(n, f) .name = #n, .type = ATTR_SHOWN, .group = &queue, .show = f

const struct attr disk_attrs[] = {
	{ NULL_BLK(size), .def = "256000", .unit = &unit_mib,
	    .max = STORE_MAX_SIZE, .alias = { "gb", &unit_gib },
	    .help = "capacity, rounded down to whole blocks" },
	{ NULL_BLK(blocksize), .def = "512", .unit = &unit_bytes,
	    .alias = { "bs" },
	    .help = "logical block size, a power of two from 512 to 4096" },
	{ NULL_BLK(max_sectors), .def = "0", .unit = &unit_sectors,
	    .help = "largest request, at least 8 and a block; 0 for the "
		    "kernel's default, 255" },
	{ NULL_BLK(queue_mode), .def = "2", .choices = queue_modes,
	    .help = "how the driver takes its I/O; above 2 counts as 2" },
	{ NULL_BLK(irqmode), .def = "1", .choices = irqmodes, .live = true,
	    .help = "how a request completes; above 2 counts as 2" },
	{ NULL_BLK(completion_nsec), .def = "10000", .unit = &unit_ns,
	    .live = true,
	    .help = "time from the data's move to completion, with irqmode 2" },
	{ NULL_BLK(submit_queues), .def = "1", .live = true,
	    .help =
		"hardware queues; 0 counts as 1, more than there are workers "
		"as that many; while it is on these are refused" },
	{ NULL_BLK(poll_queues), .def = "1", .live = true,
	    .help = "of no effect: nothing is polled over NBD; above 1 counts "
		    "as 1, and is refused while it is on" },
	{ NULL_BLK(use_per_node_hctx), .def = "0",
	    .help = "a hardware queue for each NUMA node, of which there is "
		    "one: submit_queues becomes 1" },
	{ NULL_BLK(home_node), .def = "4294967295",
	    .help = "of no effect: the NUMA node of its memory" },
	{ NULL_BLK(shared_tags), .def = "0",
	    .help = "of no effect: null_blk's devices with it have their tags "
		    "in common" },
	{ NULL_BLK(shared_tag_bitmap), .def = "0",
	    .help = "hw_queue_depth is that of the device, and not of each "
		    "hardware queue" },
	{ NULL_BLK(hw_queue_depth), .def = "64",
	    .help = "tags of a hardware queue: requests in flight, at most "
		    "10240" },
	{ NULL_BLK(mbps), .def = "0", .unit = &mib_a_second, .live = true,
	    .at_once = true,
	    .help = "most that is read, written and discarded; above 40960 "
		    "counts as 40960; 0 for no limit" },
	{ NULL_BLK(cache_size), .def = "0", .unit = &unit_mib, .live = true,
	    .max = UINT64_MAX,
	    .help = "volatile cache: what is in it and was not flushed is lost "
		    "when the power is cut (nullbctl power-cut); 0 for none; "
		    "reset to 0 unless memory_backed; may take five times as "
		    "much memory" },
	{ .name = "badblocks",
	    .offset = offsetof(struct disk_conf, badblocks),
	    .type = ATTR_OBJECT,
	    .object = &badblocks_object,
	    .group = &null_blk,
	    .live = true,
	    .at_once = true,
	    .help = "sectors of 512 bytes whose I/O fails: +START-END adds "
		    "some, -START-END removes; may be repeated" },
	{ NULL_BLK(badblocks_once), .def = "0", .live = true, .at_once = true,
	    .help = "bad blocks are good again once they were hit: all of the "
		    "range that badblocks shows" },
	{ NULL_BLK(badblocks_partial_io), .def = "0", .live = true,
	    .at_once = true,
	    .help = "what is before the first bad sector is written, in whole "
		    "blocks" },
	{ FAULT_ATTR(timeout),
	    .help = "requests that are dropped and then fail with ETIMEDOUT: "
		    "INTERVAL,PROBABILITY,SPACE,TIMES, four numbers, or some "
		    "of them: times=1" },
	{ FAULT_ATTR(requeue),
	    .help = "requests that the driver takes only the second time; the "
		    "same" },
	{ FAULT_ATTR(init_hctx),
	    .help = "hardware queues that fail when the power comes on; the "
		    "same" },
	{ NULL_BLK(zoned), .def = "0",
	    .help = "host-managed zones: all but the conventional ones are "
		    "written in sequence, and a trim of a whole zone resets "
		    "it" },
	{ NULL_BLK(zone_size), .def = "256", .unit = &unit_mib,
	    .max = STORE_MAX_SIZE,
	    .help = "length of a zone, a power of two from 4 KiB to 1 TiB; the "
		    "last one may be short" },
	{ NULL_BLK(zone_capacity), .def = "0", .unit = &unit_mib,
	    .max = STORE_MAX_SIZE,
	    .help = "what may be written of a zone; 0 for all of it" },
	{ NULL_BLK(zone_nr_conv), .def = "0",
	    .help = "conventional zones, which come first; at least one is "
		    "not" },
	{ NULL_BLK(zone_max_open), .def = "0",
	    .help = "zones that may be open at a time; 0, or as many as there "
		    "are, for no limit" },
	{ NULL_BLK(zone_max_active), .def = "0",
	    .help = "zones that may be open or closed, but not empty or full, "
		    "at a time; the same" },
	{ NULL_BLK(zone_append_max_sectors), .def = "2147483647",
	    .unit = &unit_sectors,
	    .help = "largest zone append, in whole blocks, at most the "
		    "capacity; for the record, as NBD has none" },
	{ NULL_BLK(zone_full), .def = "0",
	    .help = "zones are full when the power comes on, not empty" },
	{ .name = "zone_readonly",
	    .offset = offsetof(struct disk_conf, zone_readonly),
	    .type = ATTR_OBJECT,
	    .object = &zone_readonly_object,
	    .group = &null_blk,
	    .live = true,
	    .at_once = true,
	    .help = "make the zone of a sector read-only; a second time, "
		    "empty: only while the device is on" },
	{ .name = "zone_offline",
	    .offset = offsetof(struct disk_conf, zone_offline),
	    .type = ATTR_OBJECT,
	    .object = &zone_offline_object,
	    .group = &null_blk,
	    .live = true,
	    .at_once = true,
	    .help = "the same, so that it can neither be written nor read" },
	{ NULL_BLK(memory_backed), .def = "0",
	    .help = "keep the data; else writes are dropped and reads are "
		    "zeros" },
	{ NULL_BLK(discard), .def = "0",
	    .help = "offer discard; reset to 0 unless memory_backed" },
	{ NULL_BLK(no_sched), .def = "0", .help = "no scheduler but none" },
	{ NULL_BLK(virt_boundary), .def = "0",
	    .help = "no gaps inside a request: split where data does not fill "
		    "pages" },
	{ NULL_BLK(fua), .def = "1",
	    .help = "force unit access, if there is a cache to pass by" },
	{ NULL_BLK(rotational), .def = "0",
	    .help = "say that it is a rotating disk" },
	{ NULL_BLK(blocking), .def = "0",
	    .help = "the driver may sleep; 1 whenever memory_backed: up to "
		    "kernel 6.1 a worker then runs the hardware queue" },
	{ NULL_BLK(index), .def = "0",
	    .help = "number of the disk, given in order; writes are ignored" },
	{ NULL_BLK(power), .def = "1",
	    .help = "on: the disk exists and is served; nullbctl power changes "
		    "it" },

	{ QUEUE(scheduler), .def = "none", ATTR_ROWS(elevators), .live = true,
	    .check = scheduler_check, .help = "I/O scheduler" },
	{ QUEUE(nomerges), .def = "0", .choices = nomerges, .max = 2,
	    .live = true, .help = "which merges are tried" },
	{ QUEUE(nr_requests), .def = "0", .max = BLK_MAX_DEPTH, .live = true,
	    .help =
		"requests of a hardware queue, at least 4: with the scheduler "
		"none the tags in use, else up to 2048; 0 for all tags, or "
		"twice as many (at most 256)" },
	{ QUEUE(max_sectors_kb), .def = "0", .unit = &unit_kib,
	    .max = UINT32_MAX / 2, .live = true,
	    .help = "largest request, from 4 to max_hw_sectors_kb; 0 for what "
		    "the hardware takes, but at most 1280" },
	{ QUEUE(max_segments), .def = "128", .min = 1, .max = UINT16_MAX,
	    .help = "most segments of a request" },
	{ QUEUE(max_segment_size), .def = "0", .unit = &unit_bytes,
	    .help =
		"largest segment, at least a page; 0 for 65536, or no limit "
		"with virt_boundary" },
	{ QUEUE(seg_boundary_mask), .def = "4294967295", .min = PAGE_SIZE - 1,
	    .help = "address bits within which a segment stays, a power of two "
		    "less one" },
	{ QUEUE(chunk_sectors), .def = "0", .unit = &unit_sectors,
	    .help =
		"no request crosses a multiple of it, which is whole blocks; "
		"0 for none" },
	{ QUEUE(physical_block_size), .def = "0", .unit = &unit_bytes,
	    .max = 1 << 20,
	    .help = "what the disk writes at once, a power of two; at least a "
		    "blocksize" },
	{ QUEUE(discard_max_bytes), .def = "4294966784", .unit = &unit_bytes,
	    .max = DISCARD_MAX_BYTES, .live = true,
	    .help = "largest discard, if there is discard; 0 for none" },
	{ QUEUE(discard_granularity), .def = "0", .unit = &unit_bytes,
	    .max = 1 << 30,
	    .help =
		"discards are whole multiples of it, which is whole blocks; "
		"at least the physical_block_size" },
	{ QUEUE(max_discard_segments), .def = "1", .min = 1, .max = UINT16_MAX,
	    .help = "ranges of one discard" },
	{ QUEUE(write_zeroes_max_bytes), .def = "0", .unit = &unit_bytes,
	    .max = DISCARD_MAX_BYTES,
	    .help =
		"largest write-zeroes command; 0: zeros are written as data, "
		"as null_blk has it" },
	{ QUEUE(iostats), .def = "1", .live = true, .help = "count I/O" },
	{ SHOWN(logical_block_size, show_blocksize),
	    .help = "smallest I/O: the blocksize" },
	{ SHOWN(hw_sector_size, show_blocksize), .help = "the same" },
	{ SHOWN(minimum_io_size, show_physical),
	    .help = "smallest I/O that does not read first" },
	{ SHOWN(max_hw_sectors_kb, show_max_hw_sectors_kb),
	    .help = "largest request that the driver takes" },
	{ SHOWN(discard_max_hw_bytes, show_discard_max_hw_bytes),
	    .help = "largest discard that the driver takes" },
	{ SHOWN(virt_boundary_mask, show_virt_boundary_mask),
	    .help = "address bits of the virtual boundary" },
	{ SHOWN(rotational, show_rotational), .help = "is it a rotating disk" },
	{ SHOWN(write_cache, show_write_cache),
	    .help = "is there a volatile cache" },
	{ SHOWN(fua, show_fua), .help = "does FUA pass it by" },
	{ SHOWN(zoned, show_zoned), .help = "has it zones: host-managed" },
	{ SHOWN(nr_zones, show_nr_zones), .help = "how many" },
	{ SHOWN(max_open_zones, show_max_open_zones),
	    .help = "that may be open; 0 for no limit" },
	{ SHOWN(max_active_zones, show_max_active_zones),
	    .help = "that may be open or closed; 0 for no limit" },
	{ SHOWN(zone_append_max_bytes, show_zone_append_max_bytes),
	    .help = "largest zone append" },
	{ SHOWN(zone_write_granularity, show_zone_write_granularity),
	    .help = "what a zone is written in: the blocksize" },

	{ IOSCHED("read_expire", read_expire_ms), .def = "500",
	    .unit = &unit_msec, .max = INT32_MAX,
	    .help = "how long a read waits until a batch begins with it" },
	{ IOSCHED("write_expire", write_expire_ms), .def = "5000",
	    .unit = &unit_msec, .max = INT32_MAX,
	    .help = "the same for a write or a discard" },
	{ IOSCHED("writes_starved", writes_starved), .def = "2",
	    .max = INT32_MAX,
	    .help = "batches of reads before one of writes, if both wait" },
	{ IOSCHED("fifo_batch", fifo_batch), .def = "16", .max = INT32_MAX,
	    .help = "requests of a batch" },
	{ IOSCHED("front_merges", front_merges), .def = "1",
	    .help = "look for a request that begins where an I/O ends" },
	{ IOSCHED("async_depth", async_depth), .def = "0", .max = INT32_MAX,
	    .help =
		"requests that others than reads may take (kernel 6.1 on); 0 "
		"for nr_requests" },
	{ IOSCHED("prio_aging_expire", prio_aging_expire_ms), .def = "10000",
	    .unit = &unit_msec, .max = INT32_MAX,
	    .help =
		"how long a request of a lower priority class waits for those "
		"above (kernel 6.1 on)" },

	{ OWN(kernel), .def = "6.12", ATTR_ROWS(profiles),
	    .help = "whose block layer is simulated" },
	{ OWN(multipage_bvec), .def = "auto", .choices = multipage, .max = 2,
	    .help = "may a bvec hold more than a page" },
	{ OWN(page_order), .def = "0", .max = 9,
	    .help = "the pages of a payload are contiguous in runs of "
		    "2^page_order" },
	{ OWN(plug), .def = "plug", .choices = plugs, .max = 2, .live = true,
	    .help = "how the I/O of a batch gathers before it goes on" },
	{ OWN(plug_nsec), .def = "0", .unit = &unit_ns,
	    .help =
		"how long a plug may stay open to gather more; 0: until what "
		"was read is consumed" },
	{ OWN(memory_limit), .def = "0", .unit = &unit_bytes, .live = true,
	    .help = "most memory for the data, then writes fail with ENOSPC; 0 "
		    "for none" },
	{ OBJECT(faults, &faults_object, &own),
	    .help =
		"a rule that makes requests fail, as nullbd.conf(5) "
		"explains: op=READ,start=8,status=MEDIUM; may be repeated" },
	{ OWN(timeout_nsec), .def = "5000000000", .unit = &unit_ns,
	    .live = true, .at_once = true,
	    .help =
		"how long a request that timeout has dropped takes to fail; "
		"0: until it is released" },
	{ LATENCY(read),
	    .help =
		"how long a read takes, as nullbd.conf(5) explains: lognormal "
		"p50=80us p99=400us + 1us/4k; whatever irqmode is; nothing: "
		"as irqmode and completion_nsec have it" },
	{ LATENCY(write),
	    .help = "the same of a write, and of zeros that are written" },
	{ LATENCY(discard), .help = "the same of a discard" },
	{ LATENCY(flush),
	    .help = "the same of a flush, which comes to the device if it has "
		    "a cache_size" },
	{ LATENCY(spike),
	    .help =
		"stalls, as of garbage collection: how many requests begin "
		"one, and how long it is, 0.01% 5ms; that one and those that "
		"come until it is over begin then" },
	{ PART("lanes", lanes), .def = "0", .max = 1024,
	    .help = "how many things the device does at once, each as long as "
		    "latency.* says; the rest waits; 0 for any number" },
	{ PART("lanes.stripe", stripe), .def = "0", .unit = &unit_bytes,
	    .max = 1 << 30,
	    .help =
		"data lies on the lanes in turn, in pieces of so many bytes, "
		"which take their time each; 0: a request takes any free "
		"lane" },
	{ PART("link.mbps", link_mbps), .def = "0", .unit = &mib_a_second,
	    .max = 1 << 20,
	    .help = "how fast the data of all requests together moves to and "
		    "from the device; 0 for no limit" },
	{ PART("link.read", link_read_ns), .def = "0", .unit = &unit_ns,
	    .max = UINT64_C(3600000000000),
	    .help = "what each read takes on top, while others go on: "
		    "firmware, a network" },
	{ PART("link.write", link_write_ns), .def = "0", .unit = &unit_ns,
	    .max = UINT64_C(3600000000000),
	    .help = "the same of any other request" },
	{ PART("wbuf.size", wbuf_size), .def = "0", .unit = &unit_bytes,
	    .max = UINT64_C(1) << 44,
	    .help =
		"a buffer of so many bytes takes writes, in latency.write, "
		"until it is full; flushes (of a disk with a cache_size) and "
		"FUA wait for it; 0 for none" },
	{ PART("wbuf.drain", wbuf_drain), .def = "0", .unit = &mib_a_second,
	    .max = 1 << 20,
	    .help = "how fast it empties, and takes writes when it is full" },
	{ PART("cap.iops", cap_iops), .def = "0",
	    .help = "most requests a second; 0 for any number" },
	{ PART("cap.mbps", cap_mbps), .def = "0", .unit = &mib_a_second,
	    .max = 1 << 20,
	    .help = "most data a second, later than mbps; 0 for any amount" },
	{ PART("burst.iops", burst_iops), .def = "0",
	    .help = "the same as cap.iops while there are credits" },
	{ PART("burst.ios", burst_ios), .def = "0", .max = UINT64_C(1) << 40,
	    .help =
		"most credits, each for a request: there at power-on, used up, "
		"and saved up with what cap.iops grants and nobody takes" },
	{ PART("burst.mbps", burst_mbps), .def = "0", .unit = &mib_a_second,
	    .max = 1 << 20,
	    .help = "the same as cap.mbps while there are credits" },
	{ PART("burst.bytes", burst_bytes), .def = "0", .unit = &unit_bytes,
	    .max = UINT64_C(1) << 50,
	    .help = "most credits, in bytes, for burst.mbps" },
	{ PART("hdd.rpm", hdd.rpm), .def = "0",
	    .help = "turns a minute of a rotating disk, 1000 to 30000, whose "
		    "arm moves as the rest of hdd.* says; 0: it is none" },
	{ PART("hdd.track", hdd.track_ns), .def = "1000000", .unit = &unit_ns,
	    .max = UINT64_C(10000000000), .help = "its shortest seek" },
	{ PART("hdd.seek", hdd.seek_ns), .def = "8500000", .unit = &unit_ns,
	    .max = UINT64_C(10000000000),
	    .help = "a seek over a third of all tracks: what data sheets call "
		    "the average" },
	{ PART("hdd.stroke", hdd.stroke_ns), .def = "18000000",
	    .unit = &unit_ns, .max = UINT64_C(10000000000),
	    .help = "a seek over all tracks" },
	{ PART("hdd.mbps", hdd.mbps), .def = "200", .unit = &mib_a_second,
	    .min = 1, .max = 1 << 20,
	    .help = "how fast data passes at its beginning" },
	{ PART("hdd.inner", hdd.inner_mbps), .def = "100",
	    .unit = &mib_a_second, .min = 1, .max = 1 << 20,
	    .help = "and at its end: zones in between" },
	{ PART("hdd.cache", hdd.cache), .def = "1048576", .unit = &unit_bytes,
	    .max = 1 << 30,
	    .help = "what it reads ahead when it has nothing else to do; 0 for "
		    "nothing" },
	{ PART("hdd.queue", hdd.queue), .def = "32", .min = 1, .max = 1024,
	    .help = "requests from which its arm chooses the next, as NCQ "
		    "does; 1: as they come" },
	{ OWN(seed), .def = "0",
	    .help =
		"what faults and latencies draw follows from it, so that a run "
		"can be repeated; 0 for any, chosen when the power comes on" },
	{ OWN(ro), .def = "0", .help = "read only" },
	{ OWN(tls_only), .def = "0",
	    .help = "for clients in TLS alone: others are not told of it" },
	{ OWN(description), .max = NBD_MAX_TEXT,
	    .help = "text that clients may show" },
	{ OWN(export_names), .max = NBD_MAX_TEXT,
	    .help = "a name under which it is served, too, besides that of the "
		    "device; may be repeated" },
	{ OWN(fill), .max = 1024,
	    .help =
		"the data of this file or block device is there when the power "
		"comes on for the first time, if it is memory_backed; nothing "
		"if empty" },
	{ OWN(backing), .max = 1024,
	    .help =
		"the file that keeps its data, if it is memory_backed: what "
		"was flushed is there when the power, or the daemon, comes "
		"back; memfd for memory that a service manager keeps while "
		"the daemon restarts; none if empty" },
	{ OWN(crash_log), .max = 1024,
	    .help =
		"from power-on record writes, discards, flushes and marks in "
		"this file, as dm-log-writes does, for nullb-replay --until; "
		"if it is memory_backed; none if empty" },
	{ OWN(trace), .max = 1024,
	    .help = "from power-on write a trace for blkparse(1) to the files "
		    "TRACE.blktrace.N, a path of its own; none if empty" },
	{ OWN(trace_buffer), .def = "2097152", .unit = &unit_bytes, .min = 4096,
	    .max = 1 << 30,
	    .help =
		"memory a worker for what a trace has not written yet, rounded "
		"up; what finds no room is dropped" },
	{},
};

static int
by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool
disk_attr_is_file(const struct attr *a)
{
	return a->group == &null_blk && a->object != &fault_timeout_object &&
	       a->object != &fault_requeue_object &&
	       a->object != &fault_init_hctx_object;
}

void
disk_features(FILE *out)
{
	size_t nr = 0, i;
	const char **names =
	    calloc(attr_count(disk_attrs), sizeof(const char *));

	if (names == NULL)
		return;
	for (const struct attr *a = disk_attrs; a->name != NULL; a++)
		if (disk_attr_is_file(a))
			names[nr++] = a->name;
	qsort(names, nr, sizeof(const char *), by_name);
	for (i = 0; i < nr; i++)
		fprintf(out, "%s%c", names[i], i + 1 < nr ? ',' : '\n');
	free(names);
}
