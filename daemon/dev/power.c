/* SPDX-License-Identifier: MIT */
/*
 * The power of a disk goes on and off: what of it stays (the data, bad blocks,
 * its settings) and how its queue goes while cpus run.
 */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* The data of before is there again, as far as the size covers it. */
static int
reuse_store(struct disk *d, char *err, size_t errlen)
{
	const struct disk_conf *c = &d->conf;
	int ret = store_resize(d->kept, c->size, c->blocksize);

	if (ret != 0)
		return refuse(err, errlen, -ENOMEM,
		    "size: no memory for what leads to the data");
	store_limit(d->kept, c->memory_limit);
	return 0;
}

static int
attach_store(struct disk *d, char *err, size_t errlen)
{
	const struct disk_conf *c = &d->conf;
	int ret = 0;

	assert(d->store == NULL);
	if (!c->memory_backed || c->size == 0)
		return 0;
	if (c->backing != NULL && d->backing == NULL)
		return refuse(err, errlen, -EOPNOTSUPP,
		    "backing: \"%.200s\": nobody here keeps data in a file; "
		    "allowed: none",
		    c->backing);
	if (d->kept != NULL)
		ret = reuse_store(d, err, errlen);
	else
		d->kept =
		    store_new(d->pool, c->size, c->blocksize, c->memory_limit);
	if (d->kept == NULL)
		return refuse(
		    err, errlen, -ENOMEM, "size: no memory for the store");
	if (ret == 0)
		d->store = d->kept;
	return ret;
}

/* As in null_blk they are all empty again, or full (1.1). */
static int
attach_zones(struct disk *d, char *err, size_t errlen)
{
	if (!d->conf.zoned)
		return 0;
	d->zones = zones_new(&d->conf);
	if (d->zones == NULL)
		return refuse(
		    err, errlen, -ENOMEM, "zoned: no memory for the zones");
	zone_marks_attach(d->set.zone_readonly, d->zones);
	zone_marks_attach(d->set.zone_offline, d->zones);
	return 0;
}

int
disk_attach_media(struct disk *d, char *err, size_t errlen)
{
	int ret = attach_store(d, err, errlen);

	if (ret == 0)
		ret = attach_zones(d, err, errlen);
	if (ret == 0 && parts_attach(d) != 0)
		ret = refuse(err, errlen, -ENOMEM, "lanes: no memory for them");
	if (ret != 0)
		disk_detach_media(d);
	return ret;
}

void
disk_detach_media(struct disk *d)
{
	zone_marks_attach(d->set.zone_readonly, NULL);
	zone_marks_attach(d->set.zone_offline, NULL);
	zones_free(d->zones);
	d->zones = NULL;
	d->store = NULL;
	parts_detach(d);
}

void
disk_power_down(struct disk *d, uint64_t now)
{
	d->powering_down = true;
	disk_hurry(d, now);
}

int
disk_power_off(struct disk *d)
{
	if (d->queue == NULL)
		return 0;
	if (d->change != NULL)
		return -EBUSY;
	d->powering_down = true;
	if (!queue_freezing(d->queue))
		queue_freeze(d->queue);
	if (!queue_frozen(d->queue))
		return -EINPROGRESS;
	if (!queue_leaving(d->queue))
		queue_leave(d->queue);
	if (!queue_left(d->queue))
		return -EINPROGRESS;
	disk_power_cut(d);
	return 0;
}

void
disk_power_cut(struct disk *d)
{
	queue_free(d->queue);
	d->queue = NULL;
	while (!d->leaves && d->zones != NULL && zones_sweep(d, NULL))
		;
	/* the file has what is left; of a cache that was to go off, all */
	if (d->backing != NULL && atomic_load(&d->cache.max_pages) == 0)
		(void)cache_write_back(d, NULL);
	/* without memory to lose it what was not flushed is still there */
	if (d->backing == NULL && !d->leaves && d->store != NULL)
		(void)cache_cut(&d->cache, d->store, d->pool, NULL);
	if (d->backing != NULL)
		cache_flush(&d->cache, d->pool, NULL);
	disk_detach_media(d);
	d->set.power = false;
	d->powering_down = false;
}

void
disk_give_store(struct disk *d, struct store *s, struct backing *backing)
{
	assert(d->queue == NULL);
	assert(d->kept == NULL);
	d->kept = s;
	d->backing = backing;
}

struct store *
disk_take_store(struct disk *d)
{
	struct store *s = d->kept;

	assert(d->queue == NULL);
	d->kept = NULL;
	d->backing = NULL;
	return s;
}
