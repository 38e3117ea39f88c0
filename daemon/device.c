/* SPDX-License-Identifier: MIT */
/*
 * From a device of the configuration to a disk that is served.
 */
#include "daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"

/* Room for one more among the disks, which the control language looks at. */
static int
make_room(struct daemon *d)
{
	struct disk **more;

	more = reallocarray(d->disk, d->nr_disks + 1, sizeof(struct disk *));
	if (more == NULL)
		return -ENOMEM;
	d->disk = more;
	d->ctl.disks = more;
	return 0;
}

static int
power_on(
    struct daemon *d, struct disk *disk, bool power, char *err, size_t errlen)
{
	int ret;

	if (!power)
		return 0;
	ret = disk_power_on(disk, clock_ns(), err, errlen);
	if (ret == 0 && export_add(d, disk) != 0)
		ret = refuse(err, errlen, -ENOMEM, "out of memory");
	if (ret == 0 && atomic_load(&disk->has_faults))
		log_info("%s: faults: seed=%" PRIu64 " repeats this run",
		    disk->name, disk->conf.seed);
	return ret;
}

int
device_add(struct daemon *d, const struct device *dev, char *err, size_t errlen)
{
	struct disk *disk = disk_new(dev->name, d->machine, d->pages);
	int ret = -ENOMEM;

	if (disk == NULL || make_room(d) != 0 ||
	    attr_copy(disk_attrs, &disk->set, &dev->conf) != 0) {
		refuse(err, errlen, ret, "out of memory");
		goto fail;
	}
	ctlconn_watch_faults(d, disk);
	disk->set.index = d->nr_disks; /* whatever was removed from the files */
	ret = power_on(d, disk, dev->conf.power, err, errlen);
	if (ret != 0)
		goto fail;
	d->disk[d->nr_disks++] = disk;
	d->ctl.nr_disks = d->nr_disks;
	return 0;
fail:
	disk_free(disk);
	return ret;
}

int
device_trace(struct daemon *d, struct disk *disk, char *err, size_t errlen)
{
	if (disk->queue == NULL || disk->conf.trace == NULL)
		return 0;
	return tracer_start(d, disk, err, errlen);
}
