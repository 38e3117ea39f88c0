/* SPDX-License-Identifier: MIT */
/*
 * Who changes devices at run time: a control connection, or a process that
 * writes to a file of --sysfs.  What cannot be done at once is answered later,
 * when the queue has emptied or the device is off.
 */
#include "daemon.h"

#include <errno.h>
#include <string.h>

void
waiter_wait(struct waiter *w, struct disk *disk, bool departs)
{
	w->disk = disk;
	w->departs = departs;
	TAILQ_INSERT_TAIL(&w->daemon->waiters, w, link);
}

void
waiter_cancel(struct waiter *w)
{
	if (w->disk == NULL)
		return;
	TAILQ_REMOVE(&w->daemon->waiters, w, link);
	w->disk = NULL;
}

/* ---- for struct ctl */

void
waiter_settle(void *from, struct disk *disk)
{
	struct waiter *w = from;

	waiter_wait(w, disk, false);
	daemon_settle(w->daemon);
}

int
waiter_create(void *from, const struct device *dev, char *err, size_t errlen)
{
	struct waiter *w = from;
	struct daemon *d = w->daemon;
	int ret = device_introduce(d, dev, NULL, w->by, err, errlen);

	if (ret == -EINPROGRESS)
		waiter_wait(w, d->disk[d->nr_disks - 1], false);
	if (ret == 0)
		systemd_ready(d);
	return ret;
}

int
waiter_snapshot(
    void *from, struct disk *of, struct device *dev, char *err, size_t errlen)
{
	struct waiter *w = from;
	int ret = snapshot_begin(w->daemon, of, dev, w->by, err, errlen);

	if (ret == -EINPROGRESS)
		waiter_wait(w, of, false);
	return ret;
}

static int
depart(struct waiter *w, struct disk *disk, bool remove)
{
	int ret = power_off(w->daemon, disk, remove);

	if (ret == -EINPROGRESS)
		waiter_wait(w, disk, true);
	return ret;
}

int
waiter_power(void *from, struct disk *disk, bool on, char *err, size_t errlen)
{
	struct waiter *w = from;
	int ret;

	if (on) {
		ret = device_power_on(w->daemon, disk, err, errlen);
		if (ret == -EINPROGRESS)
			waiter_wait(w, disk, false);
		systemd_ready(w->daemon);
		return ret;
	}
	ret = depart(w, disk, false);
	if (ret != 0 && ret != -EINPROGRESS)
		refuse(err, errlen, ret, "power: %s", strerror(-ret));
	return ret;
}

int
waiter_cut(void *from, struct disk *disk, const struct cut_conf *c, char *err,
    size_t errlen)
{
	struct waiter *w = from;
	int ret = power_cut(w->daemon, disk, c, err, errlen);

	if (ret == -EINPROGRESS)
		waiter_wait(w, disk, true);
	return ret;
}

int
waiter_remove(void *from, struct disk *disk)
{
	return depart(from, disk, true);
}

void
waiter_sweep(void *from, struct disk *disk)
{
	struct waiter *w = from;

	(void)loop_sweep(&w->daemon->worker[0], disk);
}

void
waiter_changed(void *from, const struct disk *disk, const char *attribute,
    const char *value, bool settles)
{
	struct waiter *w = from;

	watch_set(w->daemon, w->by, disk, attribute, value, settles);
}

/* ---- it is done */

/* Each may be gone after that, or wait again, at the end. */
static void
wake(struct daemon *d, const struct disk *disk, bool departs, int error,
    const char *text)
{
	struct waiter *w, *next, *last = TAILQ_LAST(&d->waiters, waiter_list);

	for (w = TAILQ_FIRST(&d->waiters); w != NULL; w = next) {
		next = w != last ? TAILQ_NEXT(w, link) : NULL;
		if (w->disk != disk || w->departs != departs)
			continue;
		waiter_cancel(w);
		w->done(w, disk, error, text);
	}
}

void
waiter_settled(
    struct daemon *d, const struct disk *disk, int error, const char *text)
{
	wake(d, disk, false, error, text);
}

void
waiter_departed(struct daemon *d, const struct disk *disk)
{
	wake(d, disk, true, 0, NULL);
}
