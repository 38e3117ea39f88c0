/* SPDX-License-Identifier: MIT */
/*
 * What nullbctl prints again and again.  The daemon says what it has counted
 * since power-on; what lies between two answers is worked out here.
 */
#include "report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "ctl/ctl.h"

#define HOME_AND_CLEAR "\033[H\033[J" /* of a terminal (ECMA-48) */

/* ---- the arguments */

static bool
is_number(const char *s)
{
	char *end;

	strtod(s, &end);
	return end != s && *end == '\0';
}

static void
bad(const char *command, const char *why)
{
	fprintf(stderr, "nullbctl: %s: %s\n", command, why);
	exit(EXIT_USAGE);
}

struct repeat
repeat_parse(const char *command, int argc, char **argv)
{
	struct repeat r = { .count = 1 };
	int i = 0;

	if (i < argc && !is_number(argv[i]))
		r.name = argv[i++];
	if (i < argc) {
		r.interval = strtod(argv[i], NULL);
		r.count = UINT64_MAX;
		if (!is_number(argv[i]) ||
		    !(r.interval > 0 && r.interval <= 1e6))
			bad(command, "an interval is seconds, more than 0");
		i++;
	}
	if (i < argc &&
	    (uint_parse(argv[i++], NULL, &r.count) != 0 || r.count == 0))
		bad(command, "a count is a number, at least 1");
	if (i < argc)
		bad(command, "more than an interval and a count");
	return r;
}

static void
pause_for(double interval)
{
	struct timespec pause = {
		.tv_sec = (time_t)interval,
		.tv_nsec = (long)((interval - (double)(time_t)interval) * 1e9),
	};

	fflush(stdout);
	nanosleep(&pause, NULL);
}

/* ---- iostat */

static json_t *
device_of(json_t *answer, const char *name)
{
	json_t *d;
	size_t i;

	json_array_foreach(json_object_get(answer, "devices"), i, d)
		if (strcmp(ask_string(d, "name"), name) == 0)
			return d;
	return NULL;
}

/* A device now, and in the report before, or when its power came on. */
static void
samples_of(
    json_t *device, json_t *before, struct sample *from, struct sample *to)
{
	*from = (struct sample){};
	if (sample_unpack(json_object_get(device, "sample"), to) != 0 ||
	    (before != NULL &&
		sample_unpack(json_object_get(before, "sample"), from) != 0))
		die("%s: an answer without counters", asking.control);
	if (before == NULL)
		from->now_ns = (uint64_t)json_integer_value(
		    json_object_get(device, "on_ns"));
}

/* Was it off meanwhile?  Then it has counted anew. */
static json_t *
since(json_t *device, json_t *before)
{
	json_t *was = device_of(before, ask_string(device, "name"));

	if (was == NULL ||
	    json_integer_value(json_object_get(was, "on_ns")) !=
		json_integer_value(json_object_get(device, "on_ns")))
		return NULL;
	return was;
}

static void
print_iostat(json_t *answer, json_t *before, bool extended)
{
	struct sample from, to;
	json_t *d;
	size_t i;

	iostat_header(extended, stdout);
	json_array_foreach(json_object_get(answer, "devices"), i, d) {
		samples_of(d, since(d, before), &from, &to);
		iostat_line(
		    extended, ask_string(d, "name"), &from, &to, stdout);
	}
	putchar('\n');
}

void
report_iostat(const struct repeat *r, bool extended)
{
	json_t *before = NULL, *answer;

	for (uint64_t n = 0; n < r->count; n++) {
		if (n > 0)
			pause_for(r->interval);
		answer = ask("iostat", r->name, NULL);
		if (!asking.json)
			print_iostat(answer, before, extended);
		json_decref(before);
		before = answer;
	}
	json_decref(before);
}

/* ---- latency */

/* All groups of a device, as far as it has counted. */
struct latencies {
	json_int_t on_ns;
	struct latency group[STAT_NR];
};

static void
unpack_latencies(json_t *answer, struct latencies *out)
{
	json_t *latency = json_object_get(answer, "latency");

	out->on_ns = json_integer_value(json_object_get(answer, "on_ns"));
	for (unsigned g = 0; g < STAT_NR; g++)
		if (latency_unpack(latency, g, &out->group[g]) != 0)
			die("%s: an answer without latencies", asking.control);
	json_decref(answer);
}

/* What came since: `now` becomes that, and `before` what it was. */
static void
take_before(struct latencies *now, struct latencies *before)
{
	struct latencies all = *now;

	for (unsigned g = 0; all.on_ns == before->on_ns && g < STAT_NR; g++)
		latency_take(&now->group[g], &before->group[g]);
	*before = all;
}

void
report_latency(const struct repeat *r)
{
	struct latencies now, before = {};

	for (uint64_t n = 0; n < r->count; n++) {
		if (n > 0)
			pause_for(r->interval);
		unpack_latencies(ask("latency", r->name, NULL), &now);
		if (asking.json)
			continue;
		take_before(&now, &before);
		printf("%s:\n", r->name);
		for (unsigned g = 0; g < STAT_NR; g++)
			if (latency_count(&now.group[g]) > 0)
				latency_print(g, &now.group[g], stdout);
	}
}

/* ---- top */

/* A device that top has seen. */
struct seen {
	struct seen *next;
	char *name;
	struct latencies before;
	bool is_there;
};

static struct seen *
see(struct seen **list, const char *name)
{
	struct seen *s = *list;

	while (s != NULL && strcmp(s->name, name) != 0)
		s = s->next;
	if (s == NULL) {
		s = calloc(1, sizeof(*s));
		if (s == NULL || (s->name = strdup(name)) == NULL)
			die("out of memory");
		s->next = *list;
		*list = s;
	}
	s->is_there = true;
	return s;
}

static void
forget_gone(struct seen **list)
{
	struct seen **at = list, *s;

	while ((s = *at) != NULL) {
		if (s->is_there) {
			s->is_there = false;
			at = &s->next;
			continue;
		}
		*at = s->next;
		free(s->name);
		free(s);
	}
}

/* What it has counted until now: false if it is gone. */
static bool
look_at(struct seen *s, struct latencies *now)
{
	json_t *answer = ask_if_there("latency", s->name);

	*now = (struct latencies){};
	if (answer == NULL)
		return false;
	unpack_latencies(answer, now);
	return true;
}

/* Of all its requests in the interval, in microseconds. */
static void
print_percentiles(struct seen *s)
{
	static const double percent[] = { 50, 99, 99.9 };
	static struct latencies now;
	static struct latency all;

	if (look_at(s, &now))
		take_before(&now, &s->before);
	all = (struct latency){};
	for (unsigned g = 0; g < STAT_NR; g++)
		latency_merge(&all, &now.group[g]);
	for (size_t i = 0; i < 3; i++)
		printf(" %9.1f",
		    (double)latency_percentile(&all, percent[i]) / 1000);
	putchar('\n');
}

/* Those that are there before the first interval. */
static void
see_all(json_t *answer, struct seen **seen)
{
	struct seen *s;
	json_t *d;
	size_t i;

	json_array_foreach(json_object_get(answer, "devices"), i, d) {
		s = see(seen, ask_string(d, "name"));
		look_at(s, &s->before);
	}
}

static double
a_second(uint64_t from, uint64_t to, double seconds)
{
	return to > from ? (double)(to - from) / seconds : 0;
}

static void
print_rates(
    const char *name, const struct sample *from, const struct sample *to)
{
	const struct queue_stat *a = &from->stat, *b = &to->stat;
	double s = (double)(to->now_ns - from->now_ns) / 1e9;
	double merges = 0;

	if (s <= 0)
		s = 1;
	for (unsigned g = 0; g < STAT_NR; g++)
		merges += a_second(a->merges[g], b->merges[g], s);
	printf("%-15.31s %9.0f %9.0f %9.2f %9.2f %8.0f %7.2f %5" PRIu64
	       " %5.1f",
	    name, a_second(a->ios[STAT_READ], b->ios[STAT_READ], s),
	    a_second(a->ios[STAT_WRITE], b->ios[STAT_WRITE], s),
	    a_second(a->sectors[STAT_READ], b->sectors[STAT_READ], s) * 512 /
		1e6,
	    a_second(a->sectors[STAT_WRITE], b->sectors[STAT_WRITE], s) * 512 /
		1e6,
	    merges, a_second(a->in_queue_ms, b->in_queue_ms, s) / 1000,
	    b->in_flight, a_second(a->io_ticks_ms, b->io_ticks_ms, s) / 10);
}

static void
print_top(json_t *answer, json_t *before, struct seen **seen)
{
	struct sample from, to;
	json_t *d, *was;
	size_t i;

	printf("%-15s %9s %9s %9s %9s %8s %7s %5s %5s %9s %9s %9s\n", "NAME",
	    "r/s", "w/s", "rMB/s", "wMB/s", "merges/s", "aqu-sz", "infl",
	    "%util", "p50 us", "p99 us", "p99.9 us");
	json_array_foreach(json_object_get(answer, "devices"), i, d) {
		const char *name = ask_string(d, "name");

		was = since(d, before);
		samples_of(d, was, &from, &to);
		print_rates(name, &from, &to);
		print_percentiles(see(seen, name));
	}
	forget_gone(seen);
}

void
report_top(const struct repeat *r)
{
	bool terminal = isatty(STDOUT_FILENO) && !asking.json;
	double interval = r->interval > 0 ? r->interval : 1;
	uint64_t count = r->interval > 0 ? r->count : UINT64_MAX;
	json_t *before = ask("iostat", r->name, NULL), *answer;
	struct seen *seen = NULL;

	if (!asking.json)
		see_all(before, &seen);
	for (uint64_t n = 0; n < count; n++) {
		pause_for(interval);
		answer = ask("iostat", r->name, NULL);
		if (terminal)
			fputs(HOME_AND_CLEAR, stdout);
		if (!asking.json)
			print_top(answer, before, &seen);
		json_decref(before);
		before = answer;
	}
	json_decref(before);
	forget_gone(&seen);
	forget_gone(&seen);
}
