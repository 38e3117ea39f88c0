/* SPDX-License-Identifier: MIT */
/*
 * From a device of the configuration to a disk that is served.
 */
#include "daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* As null_blk numbers its disks: the lowest that is free. */
static uint32_t
free_index(const struct daemon *d)
{
	unsigned next = 0, before;

	do {
		before = next;
		for (unsigned i = 0; i < d->nr_disks; i++)
			if (d->disk[i]->set.index == next)
				next++;
	} while (next != before);
	return next;
}

int
device_add(struct daemon *d, const struct device *dev, struct store *data,
    char *err, size_t errlen)
{
	struct disk *disk = disk_new(dev->name, d->machine, d->pages);
	int ret = -ENOMEM;

	if (disk != NULL)
		disk_give_store(disk, data, NULL);
	else
		store_free(data, NULL);
	if (disk == NULL || make_room(d) != 0 ||
	    attr_copy(disk_attrs, &disk->set, &dev->conf) != 0) {
		refuse(err, errlen, ret, "out of memory");
		goto fail;
	}
	ctlconn_watch_faults(d, disk);
	disk->set.index = free_index(d);
	disk->set.power = false;
	ret = dev->conf.power ? power_on(d, disk, err, errlen) : 0;
	if (ret != 0 && ret != -EINPROGRESS)
		goto fail;
	if (ret != 0)
		fill_or_remove(d, disk);
	d->disk[d->nr_disks++] = disk;
	d->ctl.nr_disks = d->nr_disks;
	return ret;
fail:
	disk_free(disk);
	return ret;
}

void
device_remove(struct daemon *d, struct disk *disk)
{
	unsigned i = 0;

	while (d->disk[i] != disk)
		i++;
	d->nr_disks--;
	memmove(d->disk + i, d->disk + i + 1,
	    (d->nr_disks - i) * sizeof(struct disk *));
	d->ctl.nr_disks = d->nr_disks;
	ctlconn_forget(d, disk);
	sysfs_forget(d, disk);
	watch_settled(d, disk, false);
	watch_device(d, EVENT_REMOVED, disk, NULL);
	config_drop(d->config, config_find(d->config, disk->name));
	backing_forget(d, disk);
	disk_free(disk);
}

/* It is on, by now: have it traced if it is to be, and say where it is. */
static void
present(struct daemon *d, struct disk *disk)
{
	char err[MAX_ERROR] = "";

	if (disk->queue == NULL)
		return;
	watch_device(d, EVENT_POWER, disk, NULL);
	if (device_trace(d, disk, err, sizeof(err)) != 0)
		log_warn("%s: trace: %s", disk->name, err);
	uri_log(d, disk);
}

int
device_introduce(struct daemon *d, const struct device *dev, struct store *data,
    const char *by, char *err, size_t errlen)
{
	int ret = device_add(d, dev, data, err, errlen);

	if (ret != 0 && ret != -EINPROGRESS)
		return ret;
	watch_device(d, EVENT_CREATED, d->disk[d->nr_disks - 1], by);
	present(d, d->disk[d->nr_disks - 1]);
	return ret;
}

int
device_power_on(struct daemon *d, struct disk *disk, char *err, size_t errlen)
{
	bool was_on = disk->queue != NULL;
	int ret = power_on(d, disk, err, errlen);

	if (ret == 0 && !was_on)
		present(d, disk);
	return ret;
}

int
device_trace(struct daemon *d, struct disk *disk, char *err, size_t errlen)
{
	if (disk->queue == NULL || disk->conf.trace == NULL)
		return 0;
	return tracer_start(d, disk, err, errlen);
}
