/* SPDX-License-Identifier: MIT */
/*
 * The power of a disk goes on and off: what of it stays (the data, bad blocks,
 * its settings) and how its queue goes while cpus run.
 */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
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
	disk_power_drop(d);
	return 0;
}

/* How it goes if nobody has cut it: as a cut, with nothing under way. */
static const struct cut_conf plain_cut = { .lose = CUT_ALL };

void
disk_power_drop(struct disk *d)
{
	struct power_cut *c = &d->cut;
	const struct cut_conf *conf = disk_is_dead(c) ? &c->conf : &plain_cut;

	queue_free(d->queue);
	d->queue = NULL;
	c->report = (struct cut_report){ .seed = conf->seed };
	while (!d->leaves && d->zones != NULL && zones_sweep(d, NULL))
		;
	/* without memory to lose it what was not flushed is still there */
	if (!d->leaves && d->store != NULL)
		c->report.error = cache_cut(d, conf, &c->report);
	atomic_store(&c->is_armed, false);
	disk_detach_media(d);
	atomic_store(&c->is_dead, false);
	d->set.power = false;
	d->powering_down = false;
}

/* ---- it is cut */

int
disk_can_cut(
    const struct disk *d, const struct cut_conf *c, char *err, size_t errlen)
{
	if (d->zones != NULL)
		return refuse(err, errlen, -EOPNOTSUPP,
		    "power-cut: not with zoned set: as in null_blk all zones "
		    "would be empty again");
	if (c->tear != 0 && c->tear < d->conf.blocksize)
		return refuse(err, errlen, -EINVAL,
		    "tear: \"%" PRIu32 "\": allowed: none, %" PRIu32
		    " (blocksize)%s",
		    c->tear, d->conf.blocksize,
		    d->conf.blocksize < PAGE_SIZE ? ", 4096" : "");
	return 0;
}

void
disk_cut(struct disk *d, const struct cut_conf *conf,
    void (*hook)(void *arg, struct disk *d), void *arg)
{
	struct power_cut *c = &d->cut;

	assert(d->queue != NULL);
	(void)disk_cut_cancel(d);
	pthread_mutex_lock(&c->lock);
	c->conf = *conf;
	c->hook = hook;
	c->arg = arg;
	c->left = conf->at;
	pthread_mutex_unlock(&c->lock);
	if (conf->at == 0)
		atomic_store(&c->is_dead, true);
	else
		atomic_store(&c->is_armed, true);
	stages_choose(d);
}

bool
disk_cut_cancel(struct disk *d)
{
	struct power_cut *c = &d->cut;
	bool was;

	pthread_mutex_lock(&c->lock); /* or it comes, though it was cancelled */
	was = atomic_exchange(&c->is_armed, false);
	pthread_mutex_unlock(&c->lock);
	stages_choose(d);
	return was;
}

bool
power_may_go(const struct disk *d)
{
	return atomic_load(&d->cut.is_armed) || disk_is_dead(&d->cut);
}

/*
 * The request that it comes with has begun: it may be there, or half of it, or
 * it is lost, as those that were not flushed.
 */
static enum verdict
go_with(struct disk *d, struct request *rq, struct cpu *cpu)
{
	if (rq->op == REQ_OP_WRITE && d->store != NULL) {
		rq->flags &= (uint16_t)~REQ_FUA;
		rq->error = cache_hold(d, rq, cpu);
	} else {
		rq->error = -ENOMEDIUM;
	}
	return rq->error != 0 ? STAGE_END : STAGE_NEXT;
}

/* Is this the one? */
static bool
is_due(struct power_cut *c)
{
	bool due;

	pthread_mutex_lock(&c->lock);
	due = atomic_load(&c->is_armed) && --c->left == 0;
	if (due) {
		atomic_store(&c->is_armed, false);
		atomic_store(&c->is_dead, true);
	}
	pthread_mutex_unlock(&c->lock);
	return due;
}

/* What passes is marked: if the power goes before it ends, nobody is told. */
enum verdict
power_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct power_cut *c = &d->cut;
	enum verdict v;

	(void)now;
	if (rq->op != REQ_OP_READ && is_due(c)) {
		v = go_with(d, rq, cpu);
		c->hook(c->arg, d);
		return v;
	}
	if (!disk_is_dead(c)) {
		rq->rq_flags |= RQF_TELL;
		return STAGE_NEXT;
	}
	rq->error = -ENOMEDIUM;
	return STAGE_END;
}

void
power_ended(struct disk *d, struct request *rq)
{
	if (rq->rq_flags & RQF_HELD)
		cache_in_flight(&d->cache, rq);
	rq->error = -ENOMEDIUM;
}

/* ---- what it keeps */

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
