/* SPDX-License-Identifier: MIT */
/*
 * A device that begins with the data that another has at that moment, and with
 * its settings.
 *
 *	the other's queue is frozen -> its pages are shared -> it goes on
 *	                                   '-> the new one comes on
 *
 * It freezes as for a change of an attribute, so it is the main loop that looks
 * when it is done (main.c); who asked waits for the other until then.
 */
#include "daemon.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

struct snapshot {
	TAILQ_ENTRY(snapshot) link; /* in daemon->snapshots */
	const struct disk *of;      /* which is being frozen */
	struct device *dev;         /* what is to be */
	const char *by;             /* for events */
};

/* The data is there.  0, or -errno with a sentence. */
static int
branch(struct daemon *d, struct disk *of, const struct device *dev,
    const char *by, char *err, size_t errlen)
{
	struct store *data = disk_take_snapshot(of);
	int ret = device_introduce(d, dev, data, by, err, errlen);

	if (ret == 0)
		log_info("%s: a snapshot of %s", dev->name, of->name);
	return ret;
}

int
snapshot_begin(struct daemon *d, struct disk *of, struct device *dev,
    const char *by, char *err, size_t errlen)
{
	struct snapshot *s;
	int ret;

	s = malloc(sizeof(*s));
	if (s == NULL)
		return refuse(err, errlen, -ENOMEM, "snapshot: out of memory");
	ret = disk_snapshot(of, clock_ns(), err, errlen);
	if (ret == 0)
		ret = branch(d, of, dev, by, err, errlen);
	if (ret != -EINPROGRESS) {
		free(s);
		return ret;
	}
	*s = (struct snapshot){ .of = of, .dev = dev, .by = by };
	TAILQ_INSERT_TAIL(&d->snapshots, s, link);
	daemon_settle(d);
	return ret;
}

int
snapshot_settled(
    struct daemon *d, struct disk *of, int error, char *err, size_t errlen)
{
	struct snapshot *s;

	TAILQ_FOREACH(s, &d->snapshots, link)
		if (s->of == of)
			break;
	if (s == NULL)
		return error;
	TAILQ_REMOVE(&d->snapshots, s, link);
	if (error == 0)
		error = branch(d, of, s->dev, s->by, err, errlen);
	if (error != 0)
		config_drop(d->config, s->dev);
	free(s);
	return error;
}
