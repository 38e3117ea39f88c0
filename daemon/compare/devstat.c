/* SPDX-License-Identifier: MIT */
/*
 * What the devices did in a run: their counters, as /sys/block/X/stat has them,
 * and what became of bvecs and requests, added up over all devices.  All
 * figures are there in each run, 0 or not, or samples would not be comparable.
 */
#include "compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_name[] = { "read", "write", "discard", "flush",
	NULL };
static const char *const op_member[] = { "ios", "merges", "sectors", "ticks_ms",
	NULL };
static const char *const split_name[] = { "size", "chunk", "segments", "gap",
	NULL };
static const char *const refusal_name[] = { "size", "chunk", "segments", "gap",
	"closed", "priority", NULL };

static void
add(struct adding *a, const char *group, const char *name, const char *unit,
    double value)
{
	figures_put(
	    a, unit, BETTER_NEITHER, false, value, "%s.%s", group, name);
}

/* Of the objects that the answers have at that path: the sum of a member. */
static double
sum(const json_t *devices, const char *answer, const char *object,
    const char *inner, const char *member)
{
	const json_t *device, *o;
	double total = 0;
	size_t i;

	json_array_foreach(devices, i, device) {
		o = json_object_get(device, answer);
		o = json_object_get(o, object);
		if (inner != NULL)
			o = json_object_get(o, inner);
		total += json_number_value(json_object_get(o, member));
	}
	return total;
}

static void
add_operation(struct adding *a, const json_t *devices, const char *op)
{
	double value[4] = {}, bios;
	char group[64];
	unsigned i;

	snprintf(group, sizeof(group), "stat.%s", op);
	for (i = 0; op_member[i] != NULL; i++) {
		value[i] = sum(devices, "stat", "sample", op, op_member[i]);
		add(a, group, op_member[i], "", value[i]);
	}
	bios = value[0] + value[1];
	add(a, group, "merge_share", "%", bios > 0 ? 100 * value[1] / bios : 0);
	add(a, group, "kib_per_request", "KiB",
	    value[0] > 0 ? value[2] / 2 / value[0] : 0);
}

/* A histogram's mean. */
static void
add_mean(struct adding *a, const json_t *devices, const char *name)
{
	double nr = sum(devices, "segments", "segments", name, "count");
	double total = sum(devices, "segments", "segments", name, "sum");

	add(a, "segments", name, "", nr > 0 ? total / nr : 0);
}

static void
add_counts(struct adding *a, const json_t *devices, const char *group,
    const char *const *name)
{
	for (; *name != NULL; name++)
		add(a, group, *name, "",
		    sum(devices, "segments", "segments", group, *name));
}

/* [{"from": 8, "to": 15, "count": 26423}, ...] */
static int
read_buckets(struct buckets *b, const json_t *devices, const char *name)
{
	const json_t *device, *list, *bucket;
	size_t i, k;
	int ret;

	json_array_foreach(devices, i, device) {
		list = json_object_get(device, "segments");
		list = json_object_get(list, "segments");
		list = json_object_get(json_object_get(list, name), "buckets");
		json_array_foreach(list, k, bucket) {
			ret = buckets_add(b,
			    json_number_value(json_object_get(bucket, "to")),
			    (uint64_t)json_integer_value(
				json_object_get(bucket, "count")));
			if (ret != 0)
				return ret;
		}
	}
	return 0;
}

int
devstat_read(const json_t *devices, struct figures *f, struct run *run)
{
	struct adding a = { .figures = f, .side = run->side };
	unsigned i;
	int ret;

	for (i = 0; op_name[i] != NULL; i++)
		add_operation(&a, devices, op_name[i]);
	add(&a, "stat", "io_ticks_ms", "",
	    sum(devices, "stat", "sample", NULL, "io_ticks_ms"));
	add(&a, "stat", "in_queue_ms", "",
	    sum(devices, "stat", "sample", NULL, "in_queue_ms"));
	add_mean(&a, devices, "bvecs_per_bio");
	add_mean(&a, devices, "segments_per_request");
	add_mean(&a, devices, "sectors_per_request");
	add_counts(&a, devices, "splits", split_name);
	add_counts(&a, devices, "refused_merges", refusal_name);
	if (a.ret != 0)
		return a.ret;
	ret = read_buckets(&run->sectors, devices, "sectors_per_request");
	if (ret == 0)
		ret = read_buckets(
		    &run->segments, devices, "segments_per_request");
	return ret;
}
