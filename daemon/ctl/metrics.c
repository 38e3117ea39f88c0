/* SPDX-License-Identifier: MIT */
/*
 * What the daemon and its disks have counted, as OpenMetrics text, which
 * Prometheus scrapes.  A family of metrics is a row of a table; the samples of
 * a family stand together, so all disks are looked at before the first line.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/*
 * Bounds of the durations: 2^10 ns (1 us) to 2^34 ns (17 s), which are bounds
 * of struct latency's buckets as well: nothing is guessed.
 */
#define FIRST_LOG 10u
#define NR_BOUNDS 25u
#define NR_CONDS  (ZONE_OFFLINE + 1u)

struct durations {
	uint64_t count[NR_BOUNDS + 1]; /* by bound, and of what is longer */
	uint64_t sum_ns;
};

/* A disk, as it is just now. */
struct sight {
	const struct disk *disk;
	const struct disk_conf *conf;
	uint64_t on, size, memory, cache;
	struct queue_stat stat; /* the rest is of one that is on */
	struct durations durations[STAT_NR];
	uint64_t zones[NR_CONDS];
};

static const char *const cond_names[NR_CONDS] = {
	[ZONE_NOT_WP] = "not_wp",
	[ZONE_EMPTY] = "empty",
	[ZONE_IMP_OPEN] = "implicit_open",
	[ZONE_EXP_OPEN] = "explicit_open",
	[ZONE_CLOSED] = "closed",
	[ZONE_READONLY] = "read_only",
	[ZONE_FULL] = "full",
	[ZONE_OFFLINE] = "offline",
};

/* ---- what is seen */

/* The first bound that a bucket's times do not pass. */
static unsigned
bound_of(unsigned bucket)
{
	uint64_t from = latency_from(bucket);
	unsigned i = 0;

	while (i < NR_BOUNDS && from >> (FIRST_LOG + i) != 0)
		i++;
	return i;
}

static void
see_durations(struct sight *s, struct latency *l)
{
	for (unsigned g = 0; g < STAT_NR; g++) {
		struct durations *d = &s->durations[g];

		stat_latency(s->disk->queue, g, l);
		for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
			if (latency_get(l, i) != 0)
				d->count[bound_of(i)] += latency_get(l, i);
		d->sum_ns = latency_sum(l);
	}
}

static void
see_zones(struct sight *s)
{
	struct zone_info z;

	for (unsigned i = 0; i < zones_nr(s->disk->zones); i++) {
		zones_info(s->disk->zones, i, &z);
		s->zones[z.cond]++;
	}
}

/* `l` is for the work in between. */
static void
see(struct sight *s, struct disk *d, struct latency *l, uint64_t now)
{
	*s = (struct sight){ .disk = d, .conf = disk_shown(d) };
	s->size = s->conf->size;
	if (d->kept != NULL)
		s->memory = store_memory(d->kept);
	if (d->queue == NULL)
		return;
	s->on = 1;
	s->cache = cache_used(&d->cache);
	stat_read(d->queue, &s->stat, now);
	see_durations(s, l);
	if (d->zones != NULL)
		see_zones(s);
}

/* ---- how it is written */

enum scale {
	PLAIN,
	SECTORS, /* as bytes */
	MSEC     /* as seconds */
};

struct family {
	const char *name;
	const char *type;
	const char *unit; /* OpenMetrics'; NULL: none */
	const char *help;
	/* Values of a struct sight: uint64_t each, by the value of a label. */
	size_t offset;
	unsigned nr; /* 0: one, without a label */
	const char *label;
	const char *const *values; /* NULL: there is none of that number */
	enum scale in;
	/* or what writes them */
	void (*print)(const struct family *f, const struct sight *s, FILE *out);
	bool (*has)(const struct sight *s); /* NULL: every disk */
};

/* In the form of a label's value. */
static void
print_escaped(const char *text, FILE *out)
{
	for (; *text != '\0'; text++)
		if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else
			fputc(*text, out);
}

static void
print_label(const char *name, const char *value, FILE *out)
{
	fprintf(out, "%s=\"", name);
	print_escaped(value, out);
	fputc('"', out);
}

/* NAME_SUFFIX{device="nullb0": more labels may follow. */
static void
open_sample(const struct family *f, const char *suffix, const struct sight *s,
    FILE *out)
{
	fprintf(out, "%s%s{", f->name, suffix);
	print_label("device", s->disk->name, out);
}

static void
print_number(enum scale in, uint64_t n, FILE *out)
{
	switch (in) {
	case PLAIN: fprintf(out, "%" PRIu64, n); break;
	case SECTORS: fprintf(out, "%" PRIu64, n << SECTOR_SHIFT); break;
	case MSEC:
		fprintf(out, "%" PRIu64 ".%03" PRIu64, n / 1000, n % 1000);
		break;
	}
}

static void
print_values(const struct family *f, const struct sight *s, FILE *out)
{
	const char *suffix = f->type[0] == 'c' ? "_total" : "";
	const uint64_t *n =
	    (const uint64_t *)(const void *)((const char *)s + f->offset);

	for (unsigned i = 0; i == 0 || i < f->nr; i++) {
		if (f->nr > 0 && f->values[i] == NULL)
			continue;
		open_sample(f, suffix, s, out);
		if (f->nr > 0) {
			fputc(',', out);
			print_label(f->label, f->values[i], out);
		}
		fputs("} ", out);
		print_number(f->in, n[i], out);
		fputc('\n', out);
	}
}

static void
print_info(const struct family *f, const struct sight *s, FILE *out)
{
	const struct disk_conf *c = s->conf;

	open_sample(f, "_info", s, out);
	fprintf(out,
	    ",kernel=\"%s\",scheduler=\"%s\",queue_mode=\"%" PRIu32
	    "\",irqmode=\"%" PRIu32 "\",blocksize=\"%" PRIu32
	    "\",memory_backed=\"%d\",zoned=\"%d\"} 1\n",
	    c->kernel->name, c->scheduler->name, c->queue_mode, c->irqmode,
	    c->blocksize, c->memory_backed, c->zoned);
}

/* Seconds, as they are written: 0.000001024. */
static void
print_bound(unsigned i, FILE *out)
{
	uint64_t ns = UINT64_C(1) << (FIRST_LOG + i);
	char text[32];
	int len = snprintf(text, sizeof(text), "%" PRIu64 ".%09" PRIu64,
	    ns / 1000000000, ns % 1000000000);

	while (text[len - 1] == '0' && text[len - 2] != '.')
		len--;
	fprintf(out, "%.*s", len, text);
}

static void
open_duration(const struct family *f, const char *suffix, const struct sight *s,
    unsigned g, FILE *out)
{
	open_sample(f, suffix, s, out);
	fputc(',', out);
	print_label("op", group_names[g], out);
}

static void
print_durations(const struct family *f, const struct sight *s, FILE *out)
{
	for (unsigned g = 0; g < STAT_NR; g++) {
		const struct durations *d = &s->durations[g];
		uint64_t nr = 0;

		for (unsigned i = 0; i <= NR_BOUNDS; i++) {
			open_duration(f, "_bucket", s, g, out);
			fputs(",le=\"", out);
			if (i < NR_BOUNDS)
				print_bound(i, out);
			else
				fputs("+Inf", out);
			nr += d->count[i];
			fprintf(out, "\"} %" PRIu64 "\n", nr);
		}
		open_duration(f, "_count", s, g, out);
		fprintf(out, "} %" PRIu64 "\n", nr);
		open_duration(f, "_sum", s, g, out);
		fprintf(out, "} %" PRIu64 ".%09" PRIu64 "\n",
		    d->sum_ns / 1000000000, d->sum_ns % 1000000000);
	}
}

static void
print_faults(const struct family *f, const struct sight *s, FILE *out)
{
	struct fault_info info;

	for (size_t i = 0; faults_info(s->disk->set.faults, i, &info); i++) {
		open_sample(f, "_total", s, out);
		fprintf(out, ",id=\"%" PRIu64 "\"} %" PRIu64 "\n", info.id,
		    info.hits);
	}
}

static bool
is_on(const struct sight *s)
{
	return s->on != 0;
}

static bool
is_zoned(const struct sight *s)
{
	return s->on != 0 && s->disk->zones != NULL;
}

static bool
has_rules(const struct sight *s)
{
	struct fault_info info;

	return faults_info(s->disk->set.faults, 0, &info);
}

#define SEEN(f)    .offset = offsetof(struct sight, f), .print = print_values
#define COUNTED(f) SEEN(stat.f), .has = is_on
#define BY_OP(f)   COUNTED(f), .nr = STAT_NR, .label = "op", .values = group_names

static const struct family families[] = {
	{ "nullbd_device", "info", NULL, "What a device is like.",
	    .print = print_info },
	{ "nullbd_device_on", "gauge", NULL, "Whether its power is on.",
	    SEEN(on) },
	{ "nullbd_device_size_bytes", "gauge", "bytes", "Its capacity.",
	    SEEN(size) },
	{ "nullbd_device_memory_bytes", "gauge", "bytes",
	    "Memory that its data takes.", SEEN(memory) },
	{ "nullbd_device_cache_bytes", "gauge", "bytes",
	    "What its volatile cache holds that was not flushed.", SEEN(cache),
	    .has = is_on },
	{ "nullbd_device_ios", "counter", NULL, "Requests that have ended.",
	    BY_OP(ios) },
	{ "nullbd_device_merges", "counter", NULL,
	    "I/Os that were merged into another's request.", BY_OP(merges) },
	{ "nullbd_device_io_bytes", "counter", "bytes",
	    "Data of the requests that have ended.", BY_OP(sectors),
	    .in = SECTORS },
	{ "nullbd_device_io_time_seconds", "counter", "seconds",
	    "How long requests have taken, added up.", BY_OP(ticks_ms),
	    .in = MSEC },
	{ "nullbd_device_busy_seconds", "counter", "seconds",
	    "How long the device was not idle.", COUNTED(io_ticks_ms),
	    .in = MSEC },
	{ "nullbd_device_queue_time_seconds", "counter", "seconds",
	    "Time times requests in flight.", COUNTED(in_queue_ms),
	    .in = MSEC },
	{ "nullbd_device_in_flight", "gauge", NULL,
	    "Requests that have not ended.", COUNTED(in_flight) },
	{ "nullbd_device_in_driver", "gauge", NULL,
	    "Those of them that the driver has.", COUNTED(inflight_rw), .nr = 2,
	    .label = "op", .values = group_names },
	{ "nullbd_request_duration_seconds", "histogram", "seconds",
	    "How long requests took, from when they were set up until they "
	    "ended.",
	    .print = print_durations, .has = is_on },
	{ "nullbd_device_splits", "counter", NULL,
	    "Bios that were split, by the limit.", COUNTED(splits),
	    .nr = SPLIT_NR, .label = "cause", .values = split_names },
	{ "nullbd_device_refused_merges", "counter", NULL,
	    "Merges that were refused, by why.", COUNTED(refused),
	    .nr = REFUSED_NR, .label = "cause", .values = refusal_names },
	{ "nullbd_device_zones", "gauge", NULL,
	    "Its zones, by their condition.", SEEN(zones), .nr = NR_CONDS,
	    .label = "condition", .values = cond_names, .has = is_zoned },
	{ "nullbd_fault_hits", "counter", NULL,
	    "Requests that a rule of faults has hit, by its id.",
	    .print = print_faults, .has = has_rules },
	{},
};

static void
print_head(const char *name, const char *type, const char *unit,
    const char *help, FILE *out)
{
	fprintf(out, "# TYPE %s %s\n", name, type);
	if (unit != NULL)
		fprintf(out, "# UNIT %s %s\n", name, unit);
	fprintf(out, "# HELP %s %s\n", name, help);
}

/* A family without a sample is left out. */
static void
print_family(
    const struct family *f, const struct sight *sights, unsigned nr, FILE *out)
{
	unsigned i = 0;

	while (i < nr && f->has != NULL && !f->has(&sights[i]))
		i++;
	if (i == nr)
		return;
	print_head(f->name, f->type, f->unit, f->help, out);
	for (; i < nr; i++)
		if (f->has == NULL || f->has(&sights[i]))
			f->print(f, &sights[i], out);
}

/* ---- the daemon */

static void
print_gauge(const char *name, const char *unit, const char *help,
    uint64_t value, FILE *out)
{
	print_head(name, "gauge", unit, help, out);
	fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void
print_daemon(const struct daemon_state *s, FILE *out)
{
	print_head("nullbd_build", "info", NULL, "Which nullbd it is.", out);
	fprintf(out, "nullbd_build_info{version=\"%s\"} 1\n", NULLBD_VERSION);
	print_gauge("nullbd_connections", NULL, "NBD connections.",
	    s->nr_connections, out);
	print_gauge("nullbd_requests_in_flight", NULL,
	    "Requests of NBD clients that are not answered.", s->nr_requests,
	    out);
	print_gauge("nullbd_memory_bytes", "bytes",
	    "Memory that the data of all devices takes.", s->memory, out);
	print_head("nullbd_memory_limit_bytes", "gauge", "bytes",
	    "The most that it may take.", out);
	if (s->memory_limit != 0)
		fprintf(out, "nullbd_memory_limit_bytes %" PRIu64 "\n",
		    s->memory_limit);
	else
		fputs("nullbd_memory_limit_bytes +Inf\n", out);
}

/* ---- all of it */

static int
print_all(struct disk *const *disks, unsigned nr,
    const struct daemon_state *state, uint64_t now, FILE *out)
{
	struct sight *sights = calloc(nr > 0 ? nr : 1, sizeof(*sights));
	struct latency *l = malloc(sizeof(*l));
	int ret = sights != NULL && l != NULL ? 0 : -ENOMEM;

	for (unsigned i = 0; ret == 0 && i < nr; i++)
		see(&sights[i], disks[i], l, now);
	if (ret == 0) {
		print_daemon(state, out);
		for (const struct family *f = families; f->name != NULL; f++)
			print_family(f, sights, nr, out);
		fputs("# EOF\n", out);
	}
	free(l);
	free(sights);
	return ret;
}

int
metrics_text(struct disk *const *disks, unsigned nr,
    const struct daemon_state *state, uint64_t now, char **text, size_t *len)
{
	FILE *out = open_memstream(text, len);
	int ret;

	if (out == NULL)
		return -ENOMEM;
	ret = print_all(disks, nr, state, now, out);
	if (fclose(out) != 0 && ret == 0)
		ret = -ENOMEM;
	if (ret == 0)
		return 0;
	free(*text);
	*text = NULL;
	return ret;
}
