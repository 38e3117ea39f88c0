/* SPDX-License-Identifier: MIT */
/*
 * What happens, for the control connections that watch.  Any thread posts an
 * event to a ring; the main loop takes it from there to who watches.  Of what
 * the ring has no room for, and of what a watcher does not read, it is told how
 * much that was.  While nobody watches there is no ring, and an event costs a
 * load.
 */
#include "daemon.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RING_SIZE 1024u /* events, some 700 KiB */

/* A change of an attribute that has to settle. */
struct watched_change {
	TAILQ_ENTRY(watched_change) link; /* in watching.changes */
	const struct disk *disk;
	struct event event;
};

static uint64_t
wall_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static bool
is_watched(struct daemon *d)
{
	return atomic_load_explicit(&d->watching.nr, memory_order_relaxed) > 0;
}

/* ---- in: any thread */

static void
post(struct daemon *d, struct event *e)
{
	struct watching *w = &d->watching;

	pthread_mutex_lock(&w->lock);
	if (w->ring == NULL) { /* the last one has just gone */
		pthread_mutex_unlock(&w->lock);
		return;
	}
	e->ns = wall_ns();
	e->seq = ++w->seq;
	/* once one is lost, all are until the ring is empty: what is told of
	   them has one place */
	if (w->lost > 0 || w->nr_events == RING_SIZE)
		w->lost++;
	else
		w->ring[(w->first + w->nr_events++) % RING_SIZE] = *e;
	pthread_mutex_unlock(&w->lock);
	ev_async_send(d->main.ev, &w->posted);
}

static struct event
event_of(enum event_kind kind, const struct disk *disk)
{
	struct event e = { .kind = kind };

	if (disk != NULL)
		memcpy(e.device, disk->name, sizeof(e.device));
	return e;
}

void
watch_device(struct daemon *d, enum event_kind kind, const struct disk *disk,
    const char *by)
{
	struct event e;

	if (!is_watched(d))
		return;
	e = event_of(kind, disk);
	e.by = by;
	e.on = disk->queue != NULL;
	e.cut = disk->cut.report;
	post(d, &e);
}

void
watch_client(struct daemon *d, enum event_kind kind, const struct conn *c)
{
	struct event e;

	if (!is_watched(d))
		return;
	e = event_of(kind, c->export != NULL ? c->export->driver : NULL);
	e.id = c->id;
	event_text(e.name, sizeof(e.name), c->peer);
	if (c->export != NULL)
		event_text(e.text, sizeof(e.text), c->export->name);
	post(d, &e);
}

void
watch_fault(
    struct daemon *d, const struct disk *disk, const struct fault_seen *seen)
{
	struct event e;

	if (!is_watched(d))
		return;
	e = event_of(EVENT_FAULT, disk);
	e.id = seen->id;
	e.op = seen->op;
	e.action = seen->action;
	e.sector = seen->sector;
	e.nr_sectors = seen->nr_sectors;
	post(d, &e);
}

/* ---- attributes */

/* `echo` ends a value with a newline. */
static void
trim(char *text)
{
	size_t len = strlen(text);

	while (len > 0 && isspace((unsigned char)text[len - 1]))
		text[--len] = '\0';
}

void
watch_set(struct daemon *d, const char *by, const struct disk *disk,
    const char *attribute, const char *value, bool settles)
{
	const struct attr *a = attr_find(disk_attrs, attribute);
	struct watched_change *c;
	char name[EVENT_NAME];
	struct event e;

	if (!is_watched(d))
		return;
	e = event_of(EVENT_SET, disk);
	e.by = by;
	snprintf(name, sizeof(name), "%s%s", a != NULL ? attr_prefix(a) : "",
	    a != NULL ? a->name : attribute);
	event_text(e.name, sizeof(e.name), name);
	event_text(e.text, sizeof(e.text), value);
	trim(e.text);
	if (!settles) {
		post(d, &e);
		return;
	}
	c = malloc(sizeof(*c));
	if (c == NULL)
		return;
	c->disk = disk;
	c->event = e;
	TAILQ_INSERT_TAIL(&d->watching.changes, c, link);
}

void
watch_settled(struct daemon *d, const struct disk *disk, bool done)
{
	struct watched_change *c, *next;

	for (c = TAILQ_FIRST(&d->watching.changes); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->disk != disk)
			continue;
		TAILQ_REMOVE(&d->watching.changes, c, link);
		if (done && is_watched(d))
			post(d, &c->event);
		free(c);
	}
}

/* ---- out: the main loop */

/* The next one; when there are no more, what was lost behind them. */
static bool
take(struct watching *w, struct event *e)
{
	bool any = true;

	pthread_mutex_lock(&w->lock);
	if (w->nr_events > 0) {
		*e = w->ring[w->first];
		w->first = (w->first + 1) % RING_SIZE;
		w->nr_events--;
	} else if (w->lost > 0) {
		*e = (struct event){
			.kind = EVENT_DROPPED,
			.ns = wall_ns(),
			.seq = w->seq,
			.id = w->lost,
		};
		w->lost = 0;
	} else {
		any = false;
	}
	pthread_mutex_unlock(&w->lock);
	return any;
}

static void
drain(struct daemon *d)
{
	struct event e;
	unsigned nr = 0;

	while (nr++ < RING_SIZE && take(&d->watching, &e))
		ctlconn_tell(d, &e);
	ctlconn_told(d);
	if (nr > RING_SIZE) /* the others come first */
		ev_async_send(d->main.ev, &d->watching.posted);
}

static void
on_posted(struct ev_loop *ev, ev_async *w, int revents)
{
	(void)ev;
	(void)revents;
	drain(w->data);
}

void
watch_shutdown(struct daemon *d)
{
	struct event e = event_of(EVENT_SHUTDOWN, NULL);

	if (!is_watched(d))
		return;
	drain(d); /* the ring may be full: it does not go that way */
	e.ns = wall_ns();
	pthread_mutex_lock(&d->watching.lock);
	e.seq = ++d->watching.seq;
	pthread_mutex_unlock(&d->watching.lock);
	ctlconn_tell(d, &e);
	ctlconn_told(d);
}

int
watch_begin(struct daemon *d)
{
	struct watching *w = &d->watching;
	struct event *ring = NULL;

	if (w->ring == NULL) {
		ring = calloc(RING_SIZE, sizeof(*ring));
		if (ring == NULL)
			return -ENOMEM;
	}
	pthread_mutex_lock(&w->lock);
	if (ring != NULL) {
		w->ring = ring;
		w->first = w->nr_events = 0;
		w->lost = 0;
	}
	pthread_mutex_unlock(&w->lock);
	atomic_fetch_add(&w->nr, 1);
	return 0;
}

void
watch_end(struct daemon *d)
{
	struct watching *w = &d->watching;

	if (atomic_fetch_sub(&w->nr, 1) > 1)
		return;
	pthread_mutex_lock(&w->lock);
	free(w->ring);
	w->ring = NULL;
	w->nr_events = 0;
	w->lost = 0;
	pthread_mutex_unlock(&w->lock);
}

void
watch_init(struct daemon *d)
{
	struct watching *w = &d->watching;

	pthread_mutex_init(&w->lock, NULL);
	TAILQ_INIT(&w->changes);
	ev_async_init(&w->posted, on_posted);
	w->posted.data = d;
	ev_async_start(d->main.ev, &w->posted);
}

void
watch_fini(struct daemon *d)
{
	struct watched_change *c;

	while ((c = TAILQ_FIRST(&d->watching.changes)) != NULL) {
		TAILQ_REMOVE(&d->watching.changes, c, link);
		free(c);
	}
	pthread_mutex_destroy(&d->watching.lock);
}
