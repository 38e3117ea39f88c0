/* SPDX-License-Identifier: MIT */
/*
 * The power of devices at run time, and devices that go.
 *
 *	withdrawn -> its connections end -> its traces end -> its queue goes
 *	         -> off; or its data is freed, and it is gone
 *
 * Connections end as at SIGTERM: what is in flight is finished or answered with
 * ESHUTDOWN once GRACE_SEC are over, and whoever is still there SHUTDOWN_SEC
 * after the beginning is hung up on.  All of it is the main loop's, which looks
 * every SETTLE_SEC what is done; nobody waits for it but who asked for it.
 */
#include "daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* A disk on its way off. */
struct departure {
	TAILQ_ENTRY(departure) link; /* in daemon->departures */
	struct daemon *daemon;
	struct disk *disk;
	struct export_list exports; /* withdrawn, but perhaps in use */
	enum conn_end how;          /* its connections were told so */
	uint64_t since_ns;          /* when it began, */
	uint64_t unused_ns;         /* and when the last of them had ended */
	bool remove;                /* then it is to be gone, too */
	bool sweeps;                /* data of zones is being given back */
	struct store *store;        /* which takes a thread of its own, */
	struct backing *backing;    /* as to close this may */
	pthread_t thread;
	atomic_bool freed;
};

static uint64_t
ns(double seconds)
{
	return (uint64_t)(seconds * 1e9);
}

static struct departure *
find(const struct daemon *d, const struct disk *disk)
{
	struct departure *dep;

	TAILQ_FOREACH(dep, &d->departures, link)
		if (dep->disk == disk)
			return dep;
	return NULL;
}

/* ---- its clients */

/* Ever harder, until nobody uses it. */
static void
press(struct departure *dep, uint64_t now)
{
	uint64_t passed = now - dep->since_ns;

	if (passed >= ns(SHUTDOWN_SEC)) {
		if (dep->how != CONN_ABORTS)
			log_warn("%s: connections that did not end in %g s: "
				 "dropped",
			    dep->disk->name, SHUTDOWN_SEC);
		dep->how = CONN_ABORTS;
	} else if (passed >= ns(GRACE_SEC)) {
		if (dep->how != CONN_EXPIRES)
			queue_expire(dep->disk->queue, -ESHUTDOWN);
		dep->how = CONN_EXPIRES;
	}
	/* what comes meanwhile of requests that had begun is to end as well */
	if (dep->how != CONN_ENDS)
		client_end(dep->daemon, dep->disk, dep->how);
}

/* Does any connection, or trace, still use it? */
static bool
is_used(struct departure *dep, uint64_t now)
{
	bool hang_up;

	if (export_is_used(&dep->exports)) {
		press(dep, now);
		return true;
	}
	if (dep->unused_ns == 0) {
		dep->unused_ns = now;
		export_forget(dep->daemon, &dep->exports);
	}
	hang_up = now - dep->unused_ns >= ns(TRACE_END_MS / 1000.);
	tracer_end_disk(dep->daemon, dep->disk, hang_up);
	return tracer_has(dep->daemon, dep->disk);
}

/* ---- its data */

/* What the cache knows of its pages goes first. */
static void *
free_store(void *arg)
{
	struct departure *dep = arg;
	struct disk *disk = dep->disk;

	cache_flush(&disk->cache, disk->pool, NULL);
	store_free(dep->store, NULL);
	backing_close(dep->backing);
	atomic_store(&dep->freed, true);
	return NULL;
}

/*
 * What is much would keep the main loop from others: to remove a device with
 * 1 GiB took 26 to 73 ms (2 cores of a virtual machine, others at work).
 */
static void
begin_to_free(struct departure *dep)
{
	sigset_t all, old;
	int err;

	dep->backing = dep->disk->backing;
	dep->store = disk_take_store(dep->disk);
	if (dep->store == NULL) {
		dep->freed = true;
		return;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&dep->thread, NULL, free_store, dep);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err == 0)
		return;
	free_store(dep);
	dep->store = NULL;
}

/* Is a worker giving back that of zones, which else we would have to? */
static bool
is_swept(const struct departure *dep)
{
	return dep->sweeps && !dep->remove && zones_stale(dep->disk->zones);
}

/* ---- the steps */

/* One that can be made now; true: it has arrived. */
static bool
step(struct departure *dep, uint64_t now)
{
	struct disk *disk = dep->disk;

	if (disk->queue != NULL) {
		if (is_used(dep, now) || is_swept(dep))
			return false;
		loop_sweep_no_more(&dep->daemon->worker[0], disk);
		disk->leaves = dep->remove;
		if (disk_power_off(disk) != 0)
			return false;
		log_info("%s: the power is off", disk->name);
		watch_device(dep->daemon, EVENT_POWER, disk, NULL);
	}
	if (dep->remove && fill_cancel(dep->daemon, disk))
		return false;
	/* what a file keeps is read from there the next time */
	if (!dep->remove && disk->backing == NULL && dep->store == NULL)
		return true;
	if (dep->store == NULL && !atomic_load(&dep->freed))
		begin_to_free(dep);
	return atomic_load(&dep->freed);
}

static void
departure_free(struct daemon *d, struct departure *dep)
{
	TAILQ_REMOVE(&d->departures, dep, link);
	if (dep->store != NULL)
		pthread_join(dep->thread, NULL);
	export_forget(d, &dep->exports);
	free(dep);
}

static void
arrive(struct daemon *d, struct departure *dep)
{
	struct disk *disk = dep->disk;
	bool remove = dep->remove;

	departure_free(d, dep);
	waiter_departed(d, disk); /* what they ask next is for a later turn */
	if (remove) {
		log_info("%s: removed", disk->name);
		device_remove(d, disk);
	}
	systemd_ready(d);
}

static void
on_tick(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct daemon *d = w->data;
	struct departure *dep, *next;

	(void)revents;
	for (dep = TAILQ_FIRST(&d->departures); dep != NULL; dep = next) {
		next = TAILQ_NEXT(dep, link);
		if (step(dep, clock_ns()))
			arrive(d, dep);
	}
	if (TAILQ_EMPTY(&d->departures))
		ev_timer_stop(ev, w);
}

/* ---- for others */

int
power_on(struct daemon *d, struct disk *disk, char *err, size_t errlen)
{
	int ret;

	if (find(d, disk) != NULL)
		return refuse(
		    err, errlen, -EBUSY, "power: it is just going off");
	if (disk->queue != NULL)
		return 0;
	ret = fill_disk(d, disk, err, errlen);
	if (ret != 0)
		return ret;
	ret = disk_power_on(disk, clock_ns(), err, errlen);
	if (ret != 0)
		return ret;
	if (export_add(d, disk) != 0) {
		disk_power_cut(disk);
		return refuse(err, errlen, -ENOMEM, "power: out of memory");
	}
	if (atomic_load(&disk->has_faults))
		log_info("%s: faults: seed=%" PRIu64 " repeats this run",
		    disk->name, disk->conf.seed);
	return 0;
}

int
power_off(struct daemon *d, struct disk *disk, bool remove)
{
	struct departure *dep = find(d, disk);

	if (dep != NULL) {
		dep->remove |= remove;
		return -EINPROGRESS;
	}
	(void)fill_cancel(d, disk);
	if (disk->queue == NULL && !remove)
		return 0;
	dep = calloc(1, sizeof(*dep));
	if (dep == NULL)
		return -ENOMEM;
	*dep = (struct departure){
		.daemon = d,
		.disk = disk,
		.how = CONN_ENDS,
		.since_ns = clock_ns(),
		.remove = remove,
	};
	STAILQ_INIT(&dep->exports);
	if (disk->queue != NULL) {
		export_withdraw(d, disk, &dep->exports);
		disk_power_down(disk, dep->since_ns);
		if (disk->zones != NULL && zones_stale(disk->zones))
			dep->sweeps = loop_sweep(&d->worker[0], disk);
		client_end(d, disk, CONN_ENDS);
	}
	if (TAILQ_EMPTY(&d->departures)) {
		ev_timer_init(&d->depart, on_tick, 0., SETTLE_SEC);
		d->depart.data = d;
		ev_timer_start(d->main.ev, &d->depart);
	}
	TAILQ_INSERT_TAIL(&d->departures, dep, link);
	return -EINPROGRESS;
}

bool
power_removes(const struct daemon *d, const struct disk *disk)
{
	const struct departure *dep = find(d, disk);

	return dep != NULL && dep->remove;
}

void
power_fini(struct daemon *d)
{
	struct departure *dep;

	while ((dep = TAILQ_FIRST(&d->departures)) != NULL)
		departure_free(d, dep);
}
