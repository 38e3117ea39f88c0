/* SPDX-License-Identifier: MIT */
/*
 * A queue as it is now: the limits in force, the plug's rules, and a line a
 * hardware queue.  As JSON over the control socket, and from that as text.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* ---- to JSON */

/*
 * What /sys/block/X/queue shows: the rows of the table that are its.  The
 * folder iosched is there when there is a scheduler.
 */
static json_t *
limits_pack(const struct disk *d)
{
	static const char queue[] = "queue/", iosched[] = "queue/iosched/";
	json_t *json = json_object();
	char name[80];
	int bad = 0;

	for (const struct attr *a = disk_attrs; a->name != NULL; a++) {
		const char *prefix = attr_prefix(a);

		if (strncmp(prefix, queue, strlen(queue)) != 0 ||
		    (strcmp(prefix, iosched) == 0 &&
			d->queue->elevator == NULL))
			continue;
		snprintf(name, sizeof(name), "%s%s", prefix + strlen(queue),
		    a->name);
		bad |= json_object_set_new(
		    json, name, ctl_value(a, disk_shown(d)));
	}
	if (bad == 0)
		return json;
	json_decref(json);
	return NULL;
}

static const char *
plug_order(const struct queue *q)
{
	if (plugs_limited(q))
		return "as the next one comes: there are several hardware "
		       "queues";
	switch (q->profile->plug_order) {
	case PLUG_FIFO: return "oldest first";
	case PLUG_SORTED: return "sorted by cpu and sector";
	case PLUG_SORTED_IF_MULTI:
		return "oldest first; of several queues sorted";
	case PLUG_NEWEST_FIRST: return "newest first";
	}
	return "";
}

static const char *
plug_merges(const struct queue *q)
{
	if (q->conf.nomerges == 2)
		return "nothing: nomerges is 2";
	if (q->profile->plug_scan_all)
		return "any of its requests, the newest first";
	if (q->profile->plug_search_oldest)
		return "its newest request; of several queues, the oldest of "
		       "the same";
	return "its newest request; of several queues, the newest of the same";
}

/* How many requests it holds; with `several` queues in it, too (4.1). */
static int
plug_max(const struct queue *q, bool several)
{
	if (plugs_limited(q))
		return q->conf.nomerges == 2 ? 0 : 1;
	return (
	    int)(several ? q->profile->plug_max_multi : q->profile->plug_max);
}

/* How large a request makes the next one empty the plug; 0: none does (4.1). */
static int
plug_flush_bytes(const struct queue *q)
{
	if (q->profile->plug_flush_heeds_nomerges && q->conf.nomerges == 2)
		return 0;
	return plugs_limited(q) ? 0 : (int)BLK_PLUG_FLUSH_SIZE;
}

/* What holds for a plug with requests of this queue; null without requests. */
static json_t *
plug_pack(const struct queue *q)
{
	const struct profile *p = q->profile;

	if (q->conf.bio_based)
		return json_null();
	return json_pack("{s:i, s:i, s:i, s:b, s:i, s:s, s:s, s:s, s:i}",
	    "mode", (int)q->conf.plug_mode, "max_requests", plug_max(q, false),
	    "max_requests_of_several", plug_max(q, true),
	    "counts_this_queue_only", p->plug_count_by_queue, "flush_bytes",
	    plug_flush_bytes(q), "flush_tests",
	    p->plug_flush_test == FLUSH_TESTS_OLDEST ? "oldest" : "newest",
	    "order", plug_order(q), "merges_with", plug_merges(q), "min_batch",
	    (int)queue_plug_min(q));
}

static json_t *
cpus_pack(const struct hctx *hctx, unsigned *nr_queued)
{
	const struct queue *q = hctx->queue;
	json_t *cpus = json_array();

	*nr_queued = 0;
	for (unsigned i = 0; i < q->machine->nr_cpus; i++) {
		if (q->ctx[i]->hctx != hctx)
			continue;
		*nr_queued += atomic_load(&q->ctx[i]->nr_queued);
		if (json_array_append_new(cpus, json_integer(i)) != 0) {
			json_decref(cpus);
			return NULL;
		}
	}
	return cpus;
}

static json_t *
by_group(const uint64_t counts[STAT_NR])
{
	return json_pack("{s:I, s:I, s:I, s:I}", "read",
	    (json_int_t)counts[STAT_READ], "write",
	    (json_int_t)counts[STAT_WRITE], "discard",
	    (json_int_t)counts[STAT_DISCARD], "flush",
	    (json_int_t)counts[STAT_FLUSH]);
}

static json_t *
hctx_pack(const struct hctx *hctx)
{
	struct queue_stat st;
	unsigned nr_queued;
	json_t *cpus = cpus_pack(hctx, &nr_queued);

	stat_read_hctx(hctx, &st);
	return json_pack("{s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:[I,I]}", "cpus",
	    cpus, "tags_in_use", (json_int_t)tags_in_use(hctx->tags),
	    "software_queues", (json_int_t)nr_queued, "dispatch_list",
	    (json_int_t)atomic_load(&hctx->nr_dispatch), "ios",
	    by_group(st.ios), "merges", by_group(st.merges), "sectors",
	    by_group(st.sectors), "inflight", (json_int_t)st.inflight_rw[0],
	    (json_int_t)st.inflight_rw[1]);
}

/*
 * With the scheduler none a request is a tag of the driver's; with another it
 * gets one when it is dispatched.
 */
static json_t *
scheduler_pack(const struct disk *d)
{
	const struct queue *q = d->queue;
	unsigned nr = queue_nr_bitmaps(q), in_use = 0;
	bool sched = q->elevator != NULL;

	for (unsigned i = 0; i < nr; i++)
		in_use += tags_in_use(q->hctx[i]->tags);
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name",
	    d->conf.scheduler->name, "requests_in_use",
	    (json_int_t)queue_tags_in_use(q), "requests",
	    (json_int_t)q->conf.nr_requests * nr, "queued",
	    (json_int_t)atomic_load(&q->nr_queued), "tags_in_use",
	    (json_int_t)in_use, "tags",
	    (json_int_t)(sched ? q->conf.depth : q->conf.nr_requests) * nr);
}

json_t *
queueinfo_pack(const struct disk *d)
{
	const struct queue *q = d->queue;
	json_t *hctxs = json_array();

	for (unsigned i = 0; i < q->conf.nr_hw_queues; i++)
		if (json_array_append_new(hctxs, hctx_pack(q->hctx[i])) != 0) {
			json_decref(hctxs);
			return NULL;
		}
	return json_pack("{s:s, s:s, s:o, s:I, s:o, s:o, s:o}", "name", d->name,
	    "kernel", q->profile->name, "scheduler", scheduler_pack(d),
	    "max_sectors", (json_int_t)q->limits.max_sectors, "limits",
	    limits_pack(d), "plug", plug_pack(q), "hardware_queues", hctxs);
}

/* ---- to a person */

static int
plug_print(json_t *plug, const char *kernel, FILE *out)
{
	int mode, max, max_multi, own, flush_bytes, min_batch;
	const char *tests, *order, *merges;

	if (json_is_null(plug)) {
		fprintf(out, "\nno plug: queue_mode 0 makes no requests\n");
		return 0;
	}
	if (json_unpack(plug, "{s:i, s:i, s:i, s:b, s:i, s:s, s:s, s:s, s:i}",
		"mode", &mode, "max_requests", &max, "max_requests_of_several",
		&max_multi, "counts_this_queue_only", &own, "flush_bytes",
		&flush_bytes, "flush_tests", &tests, "order", &order,
		"merges_with", &merges, "min_batch", &min_batch) != 0)
		return -EINVAL;
	if (mode == PLUG_EACH) {
		fprintf(out, "\nno plug: each I/O is started by itself\n");
		return 0;
	}
	if (mode == PLUG_CALL) {
		fprintf(out,
		    "\nno plug: I/O gathers on the queue, which is run once a "
		    "call\n");
		return 0;
	}
	fprintf(out, "\nthe plug of %s\n", kernel);
	fprintf(out, "  opens for      a batch of at least %d\n", min_batch);
	fprintf(out, "  holds          requests%s, at most %d",
	    own ? " of a queue" : "", max);
	if (max_multi != max)
		fprintf(out, "; of several queues %d", max_multi);
	fprintf(out, "\n  merges with    %s\n", merges);
	if (flush_bytes > 0)
		fprintf(out, "  emptied when   the %s has %d bytes\n", tests,
		    flush_bytes);
	fprintf(out, "  handed on      %s\n", order);
	return 0;
}

/* Reads, writes and discards; a flush is counted as a write, too (6.2). */
static uint64_t
sum_of(json_t *hctx, const char *member)
{
	json_int_t read = 0, write = 0, discard = 0;

	json_unpack(hctx, "{s:{s:I, s:I, s:I}}", member, "read", &read, "write",
	    &write, "discard", &discard);
	return (uint64_t)read + (uint64_t)write + (uint64_t)discard;
}

/* As the kernel prints lists of cpus: 0-3,8 */
static void
cpus_print(json_t *cpus, FILE *out)
{
	size_t nr = json_array_size(cpus), i, last;

	for (i = 0; i < nr; i = last + 1) {
		json_int_t cpu = json_integer_value(json_array_get(cpus, i));

		for (last = i; last + 1 < nr; last++)
			if (json_integer_value(json_array_get(cpus,
				last + 1)) != cpu + (json_int_t)(last + 1 - i))
				break;
		fprintf(out, "%s%" PRId64, i > 0 ? "," : "", (int64_t)cpu);
		if (last > i)
			fprintf(out, "-%" PRId64,
			    (int64_t)cpu + (int64_t)(last - i));
	}
}

static int
hctx_print(json_t *hctx, size_t index, FILE *out)
{
	json_int_t tags, software, dispatch, in[2];
	json_t *cpus;

	if (json_unpack(hctx, "{s:o, s:I, s:I, s:I, s:[I,I]}", "cpus", &cpus,
		"tags_in_use", &tags, "software_queues", &software,
		"dispatch_list", &dispatch, "inflight", &in[0], &in[1]) != 0)
		return -EINVAL;
	fprintf(out,
	    "%4zu %5" PRId64 " %8" PRId64 " %8" PRId64 " %8" PRId64
	    "/%-5" PRId64 " %10" PRIu64 " %10" PRIu64 " %12" PRIu64 " ",
	    index, (int64_t)tags, (int64_t)software, (int64_t)dispatch,
	    (int64_t)in[0], (int64_t)in[1], sum_of(hctx, "ios"),
	    sum_of(hctx, "merges"), sum_of(hctx, "sectors"));
	cpus_print(cpus, out);
	fputc('\n', out);
	return 0;
}

static int
scheduler_print(json_t *scheduler, FILE *out)
{
	json_int_t in_use, requests, queued, tags_in_use, tags;
	const char *name;

	if (json_unpack(scheduler, "{s:s, s:I, s:I, s:I, s:I, s:I}", "name",
		&name, "requests_in_use", &in_use, "requests", &requests,
		"queued", &queued, "tags_in_use", &tags_in_use, "tags",
		&tags) != 0)
		return -EINVAL;
	fprintf(out, "\nscheduler %s, ", name);
	if (strcmp(name, "none") != 0)
		fprintf(out,
		    "%" PRId64 " of %" PRId64 " requests in use, %" PRId64
		    " of them queued; ",
		    (int64_t)in_use, (int64_t)requests, (int64_t)queued);
	fprintf(out, "%" PRId64 " of %" PRId64 " tags in use\n\n",
	    (int64_t)tags_in_use, (int64_t)tags);
	return 0;
}

int
queueinfo_print(json_t *json, FILE *out)
{
	const char *name, *kernel, *attribute;
	json_t *scheduler, *limits, *plug, *hctxs, *value;
	json_int_t max_sectors;
	size_t i;
	int ret;

	if (json_unpack(json, "{s:s, s:s, s:o, s:I, s:o, s:o, s:o}", "name",
		&name, "kernel", &kernel, "scheduler", &scheduler,
		"max_sectors", &max_sectors, "limits", &limits, "plug", &plug,
		"hardware_queues", &hctxs) != 0)
		return -EINVAL;
	fprintf(out, "/sys/block/%s/queue\n", name);
	json_object_foreach(limits, attribute, value)
		fprintf(
		    out, "  %-22s %s\n", attribute, json_string_value(value));
	fprintf(out, "  a request has at most %" PRId64 " sectors\n",
	    (int64_t)max_sectors);
	ret = plug_print(plug, kernel, out);
	if (ret == 0)
		ret = scheduler_print(scheduler, out);
	if (ret != 0)
		return ret;
	fprintf(out, "%4s %5s %8s %8s %14s %10s %10s %12s %s\n", "HCTX", "TAGS",
	    "SOFTWARE", "DISPATCH", "INFLIGHT (R/W)", "IOS", "MERGES",
	    "SECTORS", "CPUS");
	json_array_foreach(hctxs, i, value) {
		ret = hctx_print(value, i, out);
		if (ret != 0)
			return ret;
	}
	return 0;
}
