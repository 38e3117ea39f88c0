/* SPDX-License-Identifier: MIT */
/*
 * Traces that run: each takes the events of a disk from its rings, on the
 * main loop, and hands them on as blktrace records: to files (the attribute
 * trace), or to a control connection (nullbctl trace).  What the sink has no
 * room for stays in the rings, and is dropped there once they are full.
 */
#include "daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define DRAIN_SEC    0.01
#define MAX_EVENTS   (1u << 17) /* in a turn: the main loop has other work */
#define LANE_EVENTS  128u
#define OUT_BYTES    32768u
#define MAX_RECORDS  512u /* bytes that a step may add to it */
#define CPU_IS_EMPTY UINT64_MAX

/* Events of a cpu that were taken and not handed on. */
struct lane {
	unsigned pos, nr;
	struct trace_event event[LANE_EVENTS];
};

/*
 * Events are handed on in the order of their times, over all cpus, but for
 * those that a cpu tells late: so blkparse can read them as they come.
 */
struct tracer {
	TAILQ_ENTRY(tracer) link; /* in daemon->tracers */
	struct daemon *daemon;
	struct disk *disk;
	struct tracefile *file; /* one of these two */
	struct ctlconn *conn;
	struct blktrace records;
	uint64_t nr_events; /* handed on */
	uint64_t last_ns;
	struct lane *lane; /* by cpu */
	uint64_t *next_ns; /* by cpu: of its first event, or CPU_IS_EMPTY */
	size_t nr_out;     /* records on their way to the connection */
	char out[OUT_BYTES];
};

static void on_tick(struct ev_loop *ev, ev_timer *w, int revents);

static struct tracer *
tracer_new(struct daemon *d, struct disk *disk)
{
	unsigned nr_cpus = d->machine->nr_cpus;
	struct tracer *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->lane = calloc(nr_cpus, sizeof(*t->lane));
	t->next_ns = calloc(nr_cpus, sizeof(*t->next_ns));
	if (t->lane == NULL || t->next_ns == NULL ||
	    blktrace_init(&t->records, "conn", BLKTRACE_MAJOR, disk->conf.index,
		nr_cpus) != 0) {
		free(t->lane);
		free(t->next_ns);
		free(t);
		return NULL;
	}
	t->daemon = d;
	t->disk = disk;
	if (TAILQ_EMPTY(&d->tracers)) {
		ev_timer_init(&d->trace_tick, on_tick, DRAIN_SEC, DRAIN_SEC);
		d->trace_tick.data = d;
		ev_timer_start(d->main.ev, &d->trace_tick);
	}
	TAILQ_INSERT_TAIL(&d->tracers, t, link);
	return t;
}

void
tracer_free(struct tracer *t)
{
	struct daemon *d;

	if (t == NULL)
		return;
	d = t->daemon;
	trace_stop(t->disk->queue);
	TAILQ_REMOVE(&d->tracers, t, link);
	if (TAILQ_EMPTY(&d->tracers))
		ev_timer_stop(d->main.ev, &d->trace_tick);
	tracefile_free(t->file);
	blktrace_fini(&t->records);
	free(t->lane);
	free(t->next_ns);
	free(t);
}

bool
tracer_has(const struct daemon *d, const struct disk *disk)
{
	const struct tracer *t;

	TAILQ_FOREACH(t, &d->tracers, link)
		if (t->disk == disk)
			return true;
	return false;
}

/* 0, -EBUSY or -ENOMEM. */
static int
begin(struct daemon *d, struct disk *disk, struct tracer **out)
{
	uint64_t nr = disk->conf.trace_buffer / sizeof(struct trace_event);
	struct tracer *t;
	int err;

	/* one that has been stopped may still have events to hand on */
	if (tracer_has(d, disk))
		return -EBUSY;
	t = tracer_new(d, disk);
	if (t == NULL)
		return -ENOMEM;
	err = trace_start(disk->queue, (unsigned)nr);
	if (err != 0) {
		tracer_free(t);
		return err;
	}
	*out = t;
	return 0;
}

int
tracer_attach(
    struct daemon *d, struct disk *disk, struct ctlconn *c, struct tracer **out)
{
	int err = begin(d, disk, out);

	if (err == 0)
		(*out)->conn = c;
	return err;
}

/* ---- handing on */

/* Look at the cpu's next event, if there is one. */
static void
look(struct tracer *t, unsigned cpu)
{
	struct lane *l = &t->lane[cpu];

	if (l->pos == l->nr) {
		l->pos = 0;
		l->nr = (unsigned)trace_take(
		    t->disk->queue, cpu, l->event, LANE_EVENTS);
	}
	t->next_ns[cpu] = l->nr > 0 ? l->event[l->pos].ns : CPU_IS_EMPTY;
}

/* The cpu whose next event is the first of all. */
static unsigned
first_cpu(const struct tracer *t)
{
	unsigned cpu, first = 0;

	for (cpu = 1; cpu < t->daemon->machine->nr_cpus; cpu++)
		if (t->next_ns[cpu] < t->next_ns[first])
			first = cpu;
	return first;
}

/* Bytes that the sink takes now. */
static size_t
room(const struct tracer *t)
{
	size_t room;

	if (t->conn == NULL)
		return SIZE_MAX;
	room = ctlconn_room(t->conn);
	return room > t->nr_out ? room - t->nr_out : 0;
}

static int
flush(struct tracer *t)
{
	size_t len = t->nr_out;

	t->nr_out = 0;
	if (t->conn == NULL)
		return tracefile_flush(t->file);
	return len > 0 ? ctlconn_put(t->conn, t->out, len) : 0;
}

/* The `len` bytes at the end of what is in out[].  0 or -errno. */
static int
put(struct tracer *t, unsigned cpu, size_t len)
{
	if (t->conn == NULL)
		return tracefile_write(t->file, cpu, t->out, len);
	t->nr_out += len;
	return t->nr_out + MAX_RECORDS > sizeof(t->out) ? flush(t) : 0;
}

static int
hand_on(struct tracer *t, unsigned cpu)
{
	struct lane *l = &t->lane[cpu];
	const struct trace_event *e = &l->event[l->pos++];

	t->nr_events++;
	t->last_ns = e->ns;
	return put(t, cpu, blktrace_event(&t->records, e, t->out + t->nr_out));
}

/*
 * What there is, as far as there is room and time for it: how many events, or
 * -errno.
 */
static int
drain(struct tracer *t)
{
	unsigned cpu, nr;
	int err;

	for (cpu = 0; cpu < t->daemon->machine->nr_cpus; cpu++)
		look(t, cpu);
	for (nr = 0; nr < MAX_EVENTS && room(t) >= MAX_RECORDS; nr++) {
		cpu = first_cpu(t);
		if (t->next_ns[cpu] == CPU_IS_EMPTY)
			break;
		err = hand_on(t, cpu);
		if (err != 0)
			return err;
		look(t, cpu);
	}
	err = nr > 0 ? flush(t) : 0;
	return err != 0 ? err : (int)nr;
}

int
tracer_drain(struct tracer *t)
{
	int nr = drain(t);

	return nr < 0 ? nr : 0;
}

/* The last record says what became of the others.  0 or -errno. */
static int
put_message(struct tracer *t)
{
	uint64_t dropped = trace_dropped(t->disk->queue);
	char text[BLKTRACE_MAX_TEXT];
	size_t len;
	int err;

	snprintf(text, sizeof(text), "%" PRIu64 " events, %" PRIu64 " dropped",
	    t->nr_events, dropped);
	len = blktrace_message(
	    &t->records, 0, t->last_ns, text, t->out + t->nr_out);
	err = put(t, 0, len);
	if (err == 0)
		err = flush(t);
	if (err == 0 && t->file != NULL)
		log_info("%s: trace: %s", t->disk->name, text);
	return err;
}

int
tracer_end(struct tracer *t)
{
	int nr, err;

	trace_stop(t->disk->queue);
	do
		nr = drain(t);
	while (nr > 0);
	if (nr < 0)
		return nr;
	if (room(t) < MAX_RECORDS)
		return 0;
	err = put_message(t);
	return err != 0 ? err : 1;
}

/* ---- traces to files */

int
tracer_start(struct daemon *d, struct disk *disk, char *err, size_t errlen)
{
	struct tracefile *file =
	    tracefile_new(disk->conf.trace, d->machine->nr_cpus, err, errlen);
	struct tracer *t;
	int ret;

	if (file == NULL)
		return -EIO;
	ret = begin(d, disk, &t);
	if (ret != 0) {
		tracefile_free(file);
		return refuse(err, errlen, ret, "%s", strerror(-ret));
	}
	t->file = file;
	log_info("%s: traced to %s.blktrace.*", disk->name, disk->conf.trace);
	return 0;
}

/* A full disk, say: the daemon lives on, the trace does not. */
static void
give_up(struct tracer *t, int err)
{
	log_warn("%s: trace: %s: %s: stopped", t->disk->name,
	    t->disk->conf.trace, strerror(-err));
	tracer_free(t);
}

static void
on_tick(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct daemon *d = w->data;
	struct tracer *t, *next;
	int err;

	(void)ev;
	(void)revents;
	for (t = TAILQ_FIRST(&d->tracers); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->conn != NULL) {
			ctlconn_stream(t->conn); /* may free it, and t */
			continue;
		}
		err = tracer_drain(t);
		if (err != 0)
			give_up(t, err);
	}
}

void
tracer_end_files(struct daemon *d)
{
	struct tracer *t, *next;
	int err;

	for (t = TAILQ_FIRST(&d->tracers); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->file == NULL)
			continue;
		err = tracer_end(t);
		if (err < 0)
			give_up(t, err);
		else
			tracer_free(t);
	}
}

void
tracer_end_disk(struct daemon *d, const struct disk *disk, bool hang_up)
{
	struct tracer *t, *next;
	int err;

	for (t = TAILQ_FIRST(&d->tracers); t != NULL; t = next) {
		next = TAILQ_NEXT(t, link);
		if (t->disk != disk)
			continue;
		if (t->conn != NULL) {
			ctlconn_end_trace(t->conn, hang_up); /* may free t */
			continue;
		}
		err = tracer_end(t);
		if (err < 0)
			give_up(t, err);
		else
			tracer_free(t);
	}
}
