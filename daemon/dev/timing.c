/* SPDX-License-Identifier: MIT */
/*
 * How long requests take: the models of latency.*, and stalls.
 *
 * The attributes are objects that change under a lock of their own.  What
 * workers look at is made of them all when one changes: a struct timing, which
 * never changes, found through d->timing without a lock.  Its predecessor is
 * freed when no cpu can be looking at it any more (base/epoch.h).  Each cpu
 * draws from numbers of its own, one sequence an operation, so that reads do
 * not change what writes get.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/dist.h"
#include "base/rng.h"
#include "dev/dev.h"

/* Of the seed's generators: what faults draw has 1 << 63 and few bits. */
#define STREAM(cpu, what) (UINT64_C(3) << 62 | (uint64_t)(cpu) << 8 | (what))

enum {
	READ,
	WRITE,
	DISCARD,
	FLUSH,
	NR_MODELS,
	SPIKE = NR_MODELS,
	NR_STREAMS
};

/* The value of an attribute. */
struct timing_model {
	pthread_mutex_t lock; /* of the rest */
	uint32_t percent;     /* of requests: a spike's */
	struct dist dist;     /* no kind: nothing was set */
};

struct timing_cpu {
	_Alignas(64) struct rng rng[NR_STREAMS];
};

struct timing {
	struct timing *next;    /* older, retired, too */
	uint64_t stamp;         /* of its retirement */
	struct timing_cpu *cpu; /* the disk's */
	uint64_t spike;         /* of 2^64 requests; 0: none stalls */
	struct dist dist[NR_STREAMS];
};

/* ---- the attributes */

static void *
object_new(void)
{
	struct timing_model *m = calloc(1, sizeof(*m));

	if (m != NULL)
		pthread_mutex_init(&m->lock, NULL);
	return m;
}

static void
object_free(void *obj)
{
	struct timing_model *m = obj;

	if (m == NULL)
		return;
	pthread_mutex_destroy(&m->lock);
	free(m);
}

/* What it is now; its lock changes, also of a constant one. */
static uint32_t
value_of(const void *obj, struct dist *dist)
{
	struct timing_model *m = (struct timing_model *)obj;
	uint32_t percent;

	pthread_mutex_lock(&m->lock);
	*dist = m->dist;
	percent = m->percent;
	pthread_mutex_unlock(&m->lock);
	return percent;
}

static void
replace(struct timing_model *m, uint32_t percent, const struct dist *dist)
{
	pthread_mutex_lock(&m->lock);
	m->percent = percent;
	m->dist = *dist;
	pthread_mutex_unlock(&m->lock);
}

static void *
object_copy(const void *obj)
{
	struct timing_model *m = object_new();
	struct dist dist;
	uint32_t percent = value_of(obj, &dist);

	if (m != NULL)
		replace(m, percent, &dist);
	return m;
}

static bool
object_same(const void *x, const void *y)
{
	struct dist a, b;

	return value_of(x, &a) == value_of(y, &b) && dist_same(&a, &b);
}

/* Nothing, or blanks, is none; a newline may follow, as of echo. */
static bool
is_empty(const char *value)
{
	return value[strspn(value, " \t\n")] == '\0';
}

static int
model_set(
    const char *name, void *obj, const char *value, char *err, size_t errlen)
{
	struct dist dist = {};
	char text[DIST_MAX_TEXT + 2];
	int ret = 0;

	snprintf(text, sizeof(text), "%s", value);
	text[strcspn(text, "\n")] = '\0';
	if (!is_empty(value))
		ret = dist_parse(&dist, name, text, err, errlen);
	if (ret == 0)
		replace(obj, 0, &dist);
	return ret;
}

static int
read_set(void *obj, const char *value, char *err, size_t errlen)
{
	return model_set("latency.read", obj, value, err, errlen);
}

static int
write_set(void *obj, const char *value, char *err, size_t errlen)
{
	return model_set("latency.write", obj, value, err, errlen);
}

static int
discard_set(void *obj, const char *value, char *err, size_t errlen)
{
	return model_set("latency.discard", obj, value, err, errlen);
}

static int
flush_set(void *obj, const char *value, char *err, size_t errlen)
{
	return model_set("latency.flush", obj, value, err, errlen);
}

/* "0.01% lognormal p50=5ms p99=20ms" */
static int
spike_set(void *obj, const char *value, char *err, size_t errlen)
{
	char text[DIST_MAX_TEXT + 2], *rest;
	struct dist dist = {};
	uint32_t percent = 0;
	int ret;

	if (is_empty(value)) {
		replace(obj, 0, &dist);
		return 0;
	}
	snprintf(text, sizeof(text), "%s", value);
	text[strcspn(text, "\n")] = '\0';
	rest = strchr(text, '%');
	if (rest != NULL)
		*rest++ = '\0';
	ret = rest != NULL ? dist_percent(text, &percent) : -EINVAL;
	if (ret != 0)
		return refuse(err, errlen, ret,
		    "latency.spike: \"%.60s\": allowed: how many requests, "
		    "0%% to 100%%, and how long: 0.01%% 5ms",
		    value);
	ret = dist_parse(&dist, "latency.spike", rest, err, errlen);
	if (ret == 0)
		replace(obj, percent, &dist);
	return ret;
}

static void
object_show(const void *obj, FILE *out)
{
	struct dist dist;

	(void)value_of(obj, &dist);
	dist_print(&dist, out);
}

static void
spike_show(const void *obj, FILE *out)
{
	struct dist dist;
	uint32_t percent = value_of(obj, &dist);

	if (dist.kind == NULL)
		return;
	dist_print_percent(percent, out);
	fputs("% ", out);
	dist_print(&dist, out);
}

static bool
is_set(const void *obj)
{
	struct dist dist;

	(void)value_of(obj, &dist);
	return dist.kind != NULL;
}

static bool
object_item(const void *obj, size_t i, FILE *out)
{
	if (i > 0 || !is_set(obj))
		return false;
	object_show(obj, out);
	return true;
}

static bool
spike_item(const void *obj, size_t i, FILE *out)
{
	if (i > 0 || !is_set(obj))
		return false;
	spike_show(obj, out);
	return true;
}

#define OBJECT(f, s, i)                                                      \
	{                                                                    \
		.new = object_new, .free = object_free, .copy = object_copy, \
		.same = object_same, .set = (f), .show = (s), .item = (i)    \
	}

const struct attr_object latency_read_object =
    OBJECT(read_set, object_show, object_item);
const struct attr_object latency_write_object =
    OBJECT(write_set, object_show, object_item);
const struct attr_object latency_discard_object =
    OBJECT(discard_set, object_show, object_item);
const struct attr_object latency_flush_object =
    OBJECT(flush_set, object_show, object_item);
const struct attr_object latency_spike_object =
    OBJECT(spike_set, spike_show, spike_item);

/* ---- what is in force */

static void
seed_cpus(struct timing_cpu *cpu, unsigned nr_cpus, uint64_t seed)
{
	for (unsigned i = 0; i < nr_cpus; i++)
		for (unsigned what = 0; what < NR_STREAMS; what++)
			cpu[i].rng[what] = rng_stream(seed, STREAM(i, what));
}

/* The disk's generators, made when the first model is. */
static struct timing_cpu *
cpus_of(struct disk *d)
{
	unsigned nr = d->machine->nr_cpus;

	if (d->timing_cpu != NULL)
		return d->timing_cpu;
	d->timing_cpu = aligned_alloc(
	    _Alignof(struct timing_cpu), nr * sizeof(*d->timing_cpu));
	if (d->timing_cpu != NULL)
		seed_cpus(d->timing_cpu, nr, d->conf.seed);
	return d->timing_cpu;
}

/* How many of 2^64. */
static uint64_t
chance(uint32_t percent)
{
	if (percent >= 100 * DIST_PERCENT)
		return UINT64_MAX;
	return (uint64_t)(((unsigned __int128)percent << 64) /
			  (100 * DIST_PERCENT));
}

/* *out: what the attributes make; NULL: nothing.  0 or -ENOMEM. */
static int
timing_new(struct disk *d, struct timing **out)
{
	const struct disk_conf *c = &d->conf;
	const struct timing_model *model[NR_STREAMS] = {
		[READ] = c->latency_read,
		[WRITE] = c->latency_write,
		[DISCARD] = c->latency_discard,
		[FLUSH] = c->latency_flush,
		[SPIKE] = c->latency_spike,
	};
	struct timing *t = calloc(1, sizeof(*t));
	bool any = false;

	*out = NULL;
	if (t == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < NR_STREAMS; i++) {
		uint32_t percent = value_of(model[i], &t->dist[i]);

		if (i == SPIKE)
			t->spike = chance(percent);
		any |= t->dist[i].kind != NULL;
	}
	if (!any) {
		free(t);
		return 0;
	}
	t->cpu = cpus_of(d);
	if (t->cpu == NULL) {
		free(t);
		return -ENOMEM;
	}
	*out = t;
	return 0;
}

/* Free what was retired before `stamp`. */
static void
free_retired(struct disk *d, uint64_t stamp)
{
	struct timing **at = &d->timing_retired, *t;

	while ((t = *at) != NULL)
		if (t->stamp < stamp) {
			*at = t->next;
			free(t);
		} else {
			at = &t->next;
		}
}

int
timing_choose(struct disk *d)
{
	struct epoch *e = &d->machine->epoch;
	struct timing *t, *old;
	int ret;

	ret = timing_new(d, &t);
	if (ret != 0)
		return ret;
	old = atomic_exchange(&d->timing, t);
	if (old != NULL) {
		old->stamp = epoch_retire(e);
		old->next = d->timing_retired;
		d->timing_retired = old;
	}
	if (d->timing_retired != NULL)
		free_retired(d, epoch_safe(e));
	return 0;
}

void
timing_fini(struct disk *d)
{
	free(atomic_exchange(&d->timing, NULL));
	free_retired(d, UINT64_MAX);
	free(d->timing_cpu);
	d->timing_cpu = NULL;
	atomic_store(&d->stalled_until, 0);
}

/* ---- requests */

static unsigned
model_of(const struct request *rq)
{
	switch ((enum req_op)rq->op) {
	case REQ_OP_READ: return READ;
	case REQ_OP_DISCARD: return DISCARD;
	case REQ_OP_FLUSH: return FLUSH;
	case REQ_OP_WRITE:
	case REQ_OP_WRITE_ZEROES:
	case REQ_OP_NR: break;
	}
	return WRITE;
}

uint64_t
timing_of(const struct disk *d, const struct timing *t,
    const struct request *rq, struct cpu *cpu, uint64_t bytes)
{
	unsigned model = model_of(rq);
	const struct dist *dist = t != NULL ? &t->dist[model] : NULL;

	if (dist == NULL || dist->kind == NULL)
		return d->conf.irqmode == NULL_IRQ_TIMER
			   ? d->conf.completion_nsec
			   : 0;
	return dist_draw(dist, &t->cpu[cpu->id].rng[model]) +
	       dist_bytes(dist, bytes);
}

/* One more stall begins when those before it are over. */
static void
stall(struct disk *d, uint64_t length_ns, uint64_t now)
{
	uint64_t until = atomic_load(&d->stalled_until), begin;

	do
		begin = until > now ? until : now;
	while (!atomic_compare_exchange_weak(
	    &d->stalled_until, &until, begin + length_ns));
}

uint64_t
timing_begin(
    struct disk *d, const struct timing *t, struct cpu *cpu, uint64_t now)
{
	struct rng *r = &t->cpu[cpu->id].rng[SPIKE];
	uint64_t until;

	if (t->spike == 0)
		return now;
	if (rng_next(r) < t->spike)
		stall(d, dist_draw(&t->dist[SPIKE], r), now);
	until = atomic_load_explicit(&d->stalled_until, memory_order_relaxed);
	return until > now ? until : now;
}

/* The device is a unit of its own for each request: none waits for another. */
bool
timing_after(struct disk *d, const struct request *rq, struct cpu *cpu,
    uint64_t now, uint64_t *delay_ns)
{
	const struct timing *t = disk_timing(d);
	uint64_t begin;

	if (t == NULL)
		return false;
	begin = timing_begin(d, t, cpu, now);
	if (begin == now && t->dist[model_of(rq)].kind == NULL)
		return false;
	*delay_ns = begin - now + timing_of(d, t, rq, cpu, rq->bytes);
	return true;
}
