/* SPDX-License-Identifier: MIT */
/*
 * The power of devices at run time, and devices that go.
 *
 *	withdrawn -> its connections end -> its traces end -> its queue goes
 *	         -> off; or its data is freed, and it is gone
 *
 * Connections end as at SIGTERM: what is in flight is finished or answered with
 * ESHUTDOWN once GRACE_SEC are over, and whoever is still there SHUTDOWN_SEC
 * after the beginning is hung up on; or, when the power is cut, at once, and
 * nothing is answered.  All of it is the main loop's, which looks every
 * SETTLE_SEC what is done; nobody waits for it but who asked for it.
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
	bool cut;                   /* nobody is waited for */
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

	if (dep->cut) {
		client_end(dep->daemon, dep->disk, CONN_ABORTS);
		return;
	}
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
	dep->backing = dep->disk->backing;
	dep->store = disk_take_store(dep->disk);
	if (dep->store == NULL) {
		dep->freed = true;
		return;
	}
	if (host_start_thread(&dep->thread, NULL, free_store, dep) == 0)
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

static void
tell_of(const struct departure *dep)
{
	const struct cut_report *r = &dep->disk->cut.report;
	const char *name = dep->disk->name;

	if (r->error != 0)
		log_warn("%s: at power-off: %s: not all is there that was to "
			 "stay, or lost that was to be lost",
		    name, strerror(-r->error));
	if (!dep->cut)
		log_info("%s: the power is off", name);
	else
		log_info("%s: the power was cut: %" PRIu64
			 " writes not flushed, %" PRIu64 " lost, %" PRIu64
			 " torn; seed=%" PRIu64,
		    name, r->writes, r->lost, r->torn, r->seed);
}

/* One that can be made now; true: it has arrived. */
static bool
step(struct departure *dep, uint64_t now)
{
	struct disk *disk = dep->disk;

	disk->leaves = dep->remove;
	if (disk->queue != NULL) {
		if (is_used(dep, now) || is_swept(dep))
			return false;
		loop_sweep_no_more(&dep->daemon->worker[0], disk);
		if (disk_power_off(disk) != 0)
			return false;
		crashlog_end(disk);
		tell_of(dep);
		if (dep->cut)
			watch_device(dep->daemon, EVENT_POWER_CUT, disk, NULL);
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
	bool remove = dep->remove, on = dep->cut && disk->cut.conf.on;
	char err[CTL_MAX_ERROR] = "";
	int ret = 0;

	departure_free(d, dep);
	waiter_departed(d, disk); /* what they ask next is for a later turn */
	if (remove) {
		log_info("%s: removed", disk->name);
		device_remove(d, disk);
	} else if (on) {
		ret = device_power_on(d, disk, err, sizeof(err));
	}
	if (ret != 0 && ret != -EINPROGRESS)
		log_warn("%s: %s", disk->name, err);
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
	if (disk->conf.crash_log != NULL)
		ret = crashlog_begin(disk, err, errlen);
	if (ret == 0 && export_add(d, disk) != 0)
		ret = refuse(err, errlen, -ENOMEM, "power: out of memory");
	if (ret != 0) {
		disk_power_drop(disk);
		crashlog_end(disk);
		return ret;
	}
	if (atomic_load(&disk->has_faults))
		log_info("%s: faults: seed=%" PRIu64 " repeats this run",
		    disk->name, disk->conf.seed);
	return 0;
}

/* -EINPROGRESS, or -ENOMEM. */
static int
depart(struct daemon *d, struct disk *disk, bool remove, bool cut)
{
	struct departure *dep = calloc(1, sizeof(*dep));

	if (dep == NULL)
		return -ENOMEM;
	*dep = (struct departure){
		.daemon = d,
		.disk = disk,
		.how = cut ? CONN_ABORTS : CONN_ENDS,
		.since_ns = clock_ns(),
		.remove = remove,
		.cut = cut,
	};
	STAILQ_INIT(&dep->exports);
	if (disk->queue != NULL) {
		export_withdraw(d, disk, &dep->exports);
		disk_power_down(disk, dep->since_ns);
		if (disk->zones != NULL && zones_stale(disk->zones))
			dep->sweeps = loop_sweep(&d->worker[0], disk);
		if (cut)
			queue_expire(disk->queue, -ENOMEDIUM);
		client_end(d, disk, dep->how);
	}
	if (TAILQ_EMPTY(&d->departures)) {
		ev_timer_init(&d->depart, on_tick, 0., SETTLE_SEC);
		d->depart.data = d;
		ev_timer_start(d->main.ev, &d->depart);
	}
	TAILQ_INSERT_TAIL(&d->departures, dep, link);
	return -EINPROGRESS;
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
	return depart(d, disk, remove, false);
}

/* ---- a cut */

/* Any thread: a request has come that it was to come with. */
static void
on_last_request(void *arg, struct disk *disk)
{
	struct daemon *d = arg;

	(void)disk;
	ev_async_send(d->main.ev, &d->power_gone);
}

/* Its connections were to end in peace: nobody is waited for any more. */
static void
hasten(struct departure *dep)
{
	dep->cut = true;
	queue_expire(dep->disk->queue, -ENOMEDIUM);
}

/* Whose power is gone, and nobody has seen to it? */
static void
on_power_gone(struct ev_loop *ev, ev_async *w, int revents)
{
	struct daemon *d = w->data;

	(void)ev;
	(void)revents;
	for (unsigned i = 0; i < d->nr_disks; i++) {
		struct disk *disk = d->disk[i];
		struct departure *dep = find(d, disk);

		if (!disk_is_dead(&disk->cut))
			continue;
		if (dep != NULL)
			hasten(dep); /* it was just going off */
		else if (depart(d, disk, false, true) == -ENOMEM)
			log_warn("%s: the power is gone, and there is no "
				 "memory to end its connections",
			    disk->name);
	}
}

int
power_cut(struct daemon *d, struct disk *disk, const struct cut_conf *c,
    char *err, size_t errlen)
{
	int ret;

	if (find(d, disk) != NULL || disk->queue == NULL)
		return refuse(
		    err, errlen, -EBUSY, "power-cut: it is just going off");
	disk_cut(disk, c, on_last_request, d);
	if (c->at != 0)
		return 0;
	ret = depart(d, disk, false, true);
	if (ret != -EINPROGRESS)
		return refuse(err, errlen, ret, "power-cut: no memory");
	return ret;
}

void
power_init(struct daemon *d)
{
	ev_async_init(&d->power_gone, on_power_gone);
	d->power_gone.data = d;
	ev_async_start(d->main.ev, &d->power_gone);
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
