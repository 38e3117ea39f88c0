/* SPDX-License-Identifier: MIT */
/*
 * Zones, as null_blk's: a disk is cut into zones of one size.  Those in front
 * may be conventional; the others are written in sequence, from their write
 * pointer on, and only so many may be open, or active (open or closed), at a
 * time.
 *
 *	 written          may be written       not to be used
 *	|----------------|--------------------|--------------|
 *	start            write pointer        start+capacity start+length
 *
 * A zone has a lock that whoever does I/O in it keeps until the data has
 * moved: writers alone, readers together.  What zones have in common (their
 * conditions, and how many there are of each) has another, taken after it.
 * Who reset a zone on a thread that is no cpu leaves its data behind, stale:
 * nobody sees it, for the write pointer hides it, and the next one with the
 * lock and a cpu gives it back.
 */
#include "dev/dev.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NR_LOCKS 64u /* zones share them, modulo */
#define NO_WP    UINT64_MAX
struct zone {
	_Atomic uint64_t wp;  /* bytes from its start on */
	_Atomic uint8_t cond; /* enum zone_cond */
	bool busy;            /* a write is under way */
	atomic_bool stale;    /* its data is to be given back */
};

struct zones {
	uint64_t size;
	uint64_t capacity; /* of a zone that is not short */
	unsigned shift;    /* a zone is as long as 1 << shift */
	unsigned nr, nr_conv;
	unsigned max_open, max_active; /* 0: as many as there are */
	bool has_data;                 /* memory-backed */
	_Atomic unsigned nr_stale;
	_Atomic unsigned next_sweep;     /* where the search for one begins */
	pthread_rwlock_t lock[NR_LOCKS]; /* of zones: write pointers, data */
	pthread_mutex_t common;          /* conditions, and those below */
	unsigned nr_imp_open, nr_exp_open, nr_closed;
	unsigned next_close; /* where the search for one begins */
	struct zone zone[];
};

/* ------------------------------------------------------------ life cycle */

struct zones *
zones_new(const struct disk_conf *c)
{
	unsigned nr = disk_nr_zones(c);
	struct zones *z = calloc(1, sizeof(*z) + nr * sizeof(z->zone[0]));
	pthread_rwlockattr_t attr;

	if (z == NULL)
		return NULL;
	z->size = c->size;
	z->capacity = c->zone_capacity;
	z->shift = (unsigned)__builtin_ctzll(c->zone_size);
	z->nr = nr;
	z->nr_conv = c->zone_nr_conv;
	z->max_open = c->zone_max_open;
	z->max_active = c->zone_max_active;
	z->has_data = c->memory_backed;
	z->next_close = z->nr_conv;
	z->next_sweep = z->nr_conv;
	pthread_rwlockattr_init(&attr);
	/* readers that come and go must not keep a writer out */
	pthread_rwlockattr_setkind_np(
	    &attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	for (unsigned i = 0; i < NR_LOCKS; i++)
		pthread_rwlock_init(&z->lock[i], &attr);
	pthread_rwlockattr_destroy(&attr);
	pthread_mutex_init(&z->common, NULL);
	for (unsigned i = 0; i < nr; i++) {
		struct zone_info info;

		z->zone[i].cond = i < z->nr_conv ? ZONE_NOT_WP : ZONE_EMPTY;
		zones_info(z, i, &info);
		if (i >= z->nr_conv && c->zone_full) {
			z->zone[i].cond = ZONE_FULL;
			z->zone[i].wp = info.capacity;
		}
	}
	return z;
}

void
zones_free(struct zones *z)
{
	if (z == NULL)
		return;
	for (unsigned i = 0; i < NR_LOCKS; i++)
		pthread_rwlock_destroy(&z->lock[i]);
	pthread_mutex_destroy(&z->common);
	free(z);
}

/* ---------------------------------------------------------------- layout */

unsigned
zones_at(const struct zones *z, uint64_t pos)
{
	return (unsigned)(pos >> z->shift);
}

static uint64_t
start_of(const struct zones *z, unsigned i)
{
	return (uint64_t)i << z->shift;
}

/* The last one may be short. */
static uint64_t
len_of(const struct zones *z, unsigned i)
{
	uint64_t left = z->size - start_of(z, i);
	uint64_t len = UINT64_C(1) << z->shift;

	return left < len ? left : len;
}

/* Of a conventional one it is its length. */
static uint64_t
capacity_of(const struct zones *z, unsigned i)
{
	uint64_t len = len_of(z, i);

	return i < z->nr_conv || len < z->capacity ? len : z->capacity;
}

static bool
is_conv(const struct zones *z, uint64_t pos)
{
	return zones_at(z, pos) < z->nr_conv;
}

static enum zone_cond
cond_of(const struct zone *zone)
{
	return atomic_load_explicit(&zone->cond, memory_order_relaxed);
}

static uint64_t
wp_of(const struct zone *zone)
{
	return atomic_load_explicit(&zone->wp, memory_order_relaxed);
}

static pthread_rwlock_t *
lock_of(struct zones *z, unsigned i)
{
	return &z->lock[i % NR_LOCKS];
}

unsigned
zones_nr(const struct zones *z)
{
	return z->nr;
}

void
zones_info(struct zones *z, unsigned i, struct zone_info *out)
{
	const struct zone *zone = &z->zone[i];

	assert(i < z->nr);
	out->start = start_of(z, i);
	out->len = len_of(z, i);
	out->capacity = capacity_of(z, i);
	pthread_mutex_lock(&z->common);
	out->cond = cond_of(zone);
	out->wp = out->start + wp_of(zone);
	pthread_mutex_unlock(&z->common);
	if (out->cond == ZONE_NOT_WP)
		out->wp = out->start + out->len;
	if (out->cond == ZONE_READONLY || out->cond == ZONE_OFFLINE)
		out->wp = NO_WP;
}

/* ----------------------------------------- conditions, under their lock */

/* Those that are counted. */
static unsigned *
count_of(struct zones *z, enum zone_cond cond)
{
	switch (cond) {
	case ZONE_IMP_OPEN: return &z->nr_imp_open;
	case ZONE_EXP_OPEN: return &z->nr_exp_open;
	case ZONE_CLOSED: return &z->nr_closed;
	case ZONE_NOT_WP:
	case ZONE_EMPTY:
	case ZONE_READONLY:
	case ZONE_FULL:
	case ZONE_OFFLINE: break;
	}
	return NULL;
}

static void
become(struct zones *z, struct zone *zone, enum zone_cond cond)
{
	unsigned *count = count_of(z, cond_of(zone));

	if (count != NULL)
		(*count)--;
	count = count_of(z, cond);
	if (count != NULL)
		(*count)++;
	zone->cond = (uint8_t)cond;
}

/*
 * null_close_imp_open_zone(): the next one that is open only because somebody
 * writes to it.  If he does so right now it is not empty for long.
 */
static void
close_one(struct zones *z)
{
	struct zone *zone;

	assert(z->nr_imp_open > 0);
	do {
		zone = &z->zone[z->next_close];
		if (++z->next_close == z->nr)
			z->next_close = z->nr_conv;
	} while (cond_of(zone) != ZONE_IMP_OPEN);
	become(z, zone,
	    wp_of(zone) == 0 && !zone->busy ? ZONE_EMPTY : ZONE_CLOSED);
}

static bool
may_be_active(const struct zones *z)
{
	return z->max_active == 0 ||
	       z->nr_imp_open + z->nr_exp_open + z->nr_closed < z->max_active;
}

/*
 * null_check_zone_resources(): may a zone that is empty or closed be opened?
 * It may have closed another one for it.
 */
static int
check_resources(struct zones *z, const struct zone *zone)
{
	if (cond_of(zone) == ZONE_EMPTY && !may_be_active(z))
		return -EOVERFLOW;
	if (z->max_open == 0 || z->nr_imp_open + z->nr_exp_open < z->max_open)
		return 0;
	if (z->nr_imp_open == 0 || !may_be_active(z))
		return -ETOOMANYREFS;
	close_one(z);
	return 0;
}

static int
open_zone(struct zones *z, struct zone *zone)
{
	int ret = 0;

	switch (cond_of(zone)) {
	case ZONE_EXP_OPEN: return 0;
	case ZONE_IMP_OPEN: break;
	case ZONE_EMPTY:
	case ZONE_CLOSED: ret = check_resources(z, zone); break;
	case ZONE_NOT_WP:
	case ZONE_READONLY:
	case ZONE_FULL:
	case ZONE_OFFLINE: return -EIO;
	}
	if (ret == 0)
		become(z, zone, ZONE_EXP_OPEN);
	return ret;
}

static int
close_zone(struct zones *z, struct zone *zone)
{
	switch (cond_of(zone)) {
	case ZONE_CLOSED: return 0;
	case ZONE_IMP_OPEN:
	case ZONE_EXP_OPEN:
		become(z, zone, wp_of(zone) == 0 ? ZONE_EMPTY : ZONE_CLOSED);
		return 0;
	case ZONE_EMPTY:
	case ZONE_NOT_WP:
	case ZONE_READONLY:
	case ZONE_FULL:
	case ZONE_OFFLINE: break;
	}
	return -EIO;
}

/* All of it can be read then, beyond the capacity, too. */
static int
finish_zone(struct zones *z, struct zone *zone)
{
	int ret = 0;

	switch (cond_of(zone)) {
	case ZONE_FULL: return 0;
	case ZONE_IMP_OPEN:
	case ZONE_EXP_OPEN: break;
	case ZONE_EMPTY:
	case ZONE_CLOSED: ret = check_resources(z, zone); break;
	case ZONE_NOT_WP:
	case ZONE_READONLY:
	case ZONE_OFFLINE: return -EIO;
	}
	if (ret != 0)
		return ret;
	become(z, zone, ZONE_FULL);
	zone->wp = len_of(z, (unsigned)(zone - z->zone));
	return 0;
}

static void
empty_zone(struct zones *z, struct zone *zone)
{
	become(z, zone, ZONE_EMPTY);
	zone->wp = 0;
	if (z->has_data && !zone->stale) {
		zone->stale = true;
		z->nr_stale++;
	}
}

static int
reset_zone(struct zones *z, struct zone *zone)
{
	switch (cond_of(zone)) {
	case ZONE_EMPTY: return 0;
	case ZONE_IMP_OPEN:
	case ZONE_EXP_OPEN:
	case ZONE_CLOSED:
	case ZONE_FULL: empty_zone(z, zone); return 0;
	case ZONE_NOT_WP:
	case ZONE_READONLY:
	case ZONE_OFFLINE: break;
	}
	return -EIO;
}

/* null_set_zone_cond(): a second time it is a zone like others, and empty. */
static int
mark_zone(struct zones *z, struct zone *zone, enum zone_cond cond)
{
	if (cond_of(zone) == cond)
		empty_zone(z, zone);
	else
		become(z, zone, cond);
	return 0;
}

/* ------------------------------------------------------------ management */

static int (*const ops[])(struct zones *z, struct zone *zone) = {
	[ZONE_OPEN] = open_zone,
	[ZONE_CLOSE] = close_zone,
	[ZONE_FINISH] = finish_zone,
	[ZONE_RESET] = reset_zone,
};

static int
manage_one(struct zones *z, enum zone_op op, unsigned i)
{
	int ret;

	pthread_mutex_lock(&z->common);
	ret = ops[op](z, &z->zone[i]);
	pthread_mutex_unlock(&z->common);
	return ret;
}

static int
manage_locked(struct zones *z, enum zone_op op, unsigned i)
{
	int ret;

	pthread_rwlock_wrlock(lock_of(z, i));
	ret = manage_one(z, op, i);
	pthread_rwlock_unlock(lock_of(z, i));
	return ret;
}

/* blkdev_zone_reset_all(): REQ_OP_ZONE_RESET_ALL passes over those that can't
 */
static void
reset_all(struct zones *z)
{
	for (unsigned i = z->nr_conv; i < z->nr; i++)
		(void)manage_locked(z, ZONE_RESET, i);
}

int
zones_manage(struct zones *z, enum zone_op op, uint64_t pos, uint64_t len)
{
	uint64_t mask = (UINT64_C(1) << z->shift) - 1;
	int ret = 0, error;

	if (len == 0 || pos >= z->size || len > z->size - pos)
		return -EINVAL;
	if ((pos & mask) != 0 || ((len & mask) != 0 && pos + len != z->size))
		return -EINVAL;
	if (op == ZONE_RESET && len == z->size) {
		reset_all(z);
		return 0;
	}
	for (unsigned i = zones_at(z, pos); i <= zones_at(z, pos + len - 1);
	     i++) {
		error = manage_locked(z, op, i);
		if (ret == 0)
			ret = error;
	}
	return ret;
}

/* ------------------------------------------------------------ stale data */

/* With the lock of the zone, as a writer.  A reset is not undone by a power
 * cut.
 */
static void
give_back(struct disk *d, unsigned i, struct cpu *cpu)
{
	struct zones *z = d->zones;
	struct zone *zone = &z->zone[i];

	if (!zone->stale)
		return;
	if (d->store != NULL) {
		(void)store_discard(
		    d->store, cpu, start_of(z, i), len_of(z, i));
		cache_pass(d, cpu, start_of(z, i), len_of(z, i));
	}
	zone->stale = false;
	z->nr_stale--;
}

bool
zones_stale(const struct zones *z)
{
	return atomic_load(&z->nr_stale) > 0;
}

/* The next one that is, from where the search ended last; or nr. */
static unsigned
find_stale(struct zones *z)
{
	unsigned nr = z->nr - z->nr_conv, i = z->next_sweep;

	for (; nr > 0 && !z->zone[i].stale; nr--)
		if (++i == z->nr)
			i = z->nr_conv;
	z->next_sweep = i;
	return nr > 0 ? i : z->nr;
}

bool
zones_sweep(struct disk *d, struct cpu *cpu)
{
	struct zones *z = d->zones;
	unsigned i = zones_stale(z) ? find_stale(z) : z->nr;

	if (i == z->nr)
		return false;
	pthread_rwlock_wrlock(lock_of(z, i));
	give_back(d, i, cpu);
	pthread_rwlock_unlock(lock_of(z, i));
	return zones_stale(z);
}

/* For I/O: nothing stale is there then. */
static void
lock_zone(struct disk *d, unsigned i, bool alone, struct cpu *cpu)
{
	pthread_rwlock_t *lock = lock_of(d->zones, i);

	for (;;) {
		if (alone)
			pthread_rwlock_wrlock(lock);
		else
			pthread_rwlock_rdlock(lock);
		if (!d->zones->zone[i].stale)
			return;
		if (!alone) {
			pthread_rwlock_unlock(lock);
			pthread_rwlock_wrlock(lock);
		}
		give_back(d, i, cpu);
		if (alone)
			return;
		pthread_rwlock_unlock(lock);
	}
}

/* ---------------------------------------------------------- what it tells */

uint64_t
zones_readable(const struct zones *z, uint64_t pos, uint64_t len)
{
	uint64_t done = 0, at, end, n;

	while (done < len) {
		unsigned i = zones_at(z, pos + done);
		enum zone_cond cond = cond_of(&z->zone[i]);

		at = pos + done - start_of(z, i);
		end = wp_of(&z->zone[i]);
		if (cond == ZONE_NOT_WP || cond == ZONE_READONLY)
			end = len_of(z, i);
		if (at >= end)
			break;
		n = end - at < len - done ? end - at : len - done;
		done += n;
		if (end < len_of(z, i))
			break;
	}
	return done;
}

uint32_t
zones_status(struct zones *z, uint64_t pos, uint64_t *len)
{
	unsigned i = zones_at(z, pos);
	struct zone_info info;
	uint32_t status;
	uint64_t end;

	zones_info(z, i, &info);
	status = (uint32_t)info.cond;
	end = info.start + info.len;
	if (i % 2 != 0)
		status |= ZONE_STATUS_ODD;
	if (info.cond != ZONE_NOT_WP)
		status |= ZONE_STATUS_SEQUENTIAL;
	if (info.cond == ZONE_NOT_WP || info.wp == NO_WP) {
		/* there is no pointer to tell */
	} else if (pos < info.wp) {
		status |= ZONE_STATUS_WRITTEN;
		end = info.wp;
	} else if (pos < info.start + info.capacity) {
		end = info.start + info.capacity;
	}
	if (pos >= info.start + info.capacity)
		status |= ZONE_STATUS_BEYOND;
	else if (end > info.start + info.capacity)
		end = info.start + info.capacity;
	if (end - pos < *len)
		*len = end - pos;
	return status;
}

/* --------------------------------------------------------------- the I/O */

static enum verdict
end_with(struct request *rq, int error)
{
	rq->error = error;
	return STAGE_END;
}

/* Does the request leave the zone it begins in?  Only where nothing is split.
 */
static unsigned
last_zone(const struct zones *z, const struct request *rq)
{
	return zones_at(z, rq->pos + rq->bytes - 1);
}

static enum verdict
begin_read(struct disk *d, struct request *rq, struct cpu *cpu)
{
	struct zones *z = d->zones;
	unsigned first = zones_at(z, rq->pos), i;

	if (!is_conv(z, rq->pos))
		lock_zone(d, first, false, cpu);
	for (i = first; i <= last_zone(z, rq); i++)
		if (cond_of(&z->zone[i]) == ZONE_OFFLINE) {
			if (!is_conv(z, rq->pos))
				pthread_rwlock_unlock(lock_of(z, first));
			return end_with(rq, -EIO);
		}
	return STAGE_NEXT;
}

/* null_zone_write(), up to the data. */
static int
admit_write(
    const struct disk *d, struct zones *z, unsigned i, const struct request *rq)
{
	struct zone *zone = &z->zone[i];
	uint64_t at = rq->pos - start_of(z, i);
	int ret = 0;

	if ((rq->flags & REQ_APPEND) != 0)
		at = wp_of(zone);
	if (((rq->pos | rq->bytes) & (d->conf.blocksize - 1)) != 0)
		return -EINVAL;
	if (cond_of(zone) == ZONE_READONLY || cond_of(zone) == ZONE_OFFLINE ||
	    at != wp_of(zone) || at + rq->bytes > capacity_of(z, i))
		return -EIO;
	pthread_mutex_lock(&z->common);
	if (cond_of(zone) == ZONE_EMPTY || cond_of(zone) == ZONE_CLOSED) {
		ret = check_resources(z, zone);
		if (ret == 0)
			become(z, zone, ZONE_IMP_OPEN);
	}
	zone->busy = ret == 0;
	pthread_mutex_unlock(&z->common);
	return ret;
}

static enum verdict
begin_write(struct disk *d, struct request *rq, struct cpu *cpu)
{
	struct zones *z = d->zones;
	unsigned i = zones_at(z, rq->pos);
	int ret;

	if (is_conv(z, rq->pos)) {
		if (last_zone(z, rq) >= z->nr_conv ||
		    (rq->flags & REQ_APPEND) != 0)
			return end_with(rq, -EIO);
		return STAGE_NEXT;
	}
	lock_zone(d, i, true, cpu);
	ret = admit_write(d, z, i, rq);
	if (ret == 0 && (rq->flags & REQ_APPEND) != 0) {
		rq->pos += wp_of(&z->zone[i]);
		STAILQ_FIRST(&rq->bios)->pos = rq->pos;
	}
	if (ret == 0)
		return STAGE_NEXT;
	pthread_rwlock_unlock(lock_of(z, i));
	return end_with(rq, ret);
}

/*
 * null_blk has no discard in zones; NBD has nothing but a trim to say that a
 * zone is to be reset.  Of a whole zone it is; it may be of a zone's part only
 * where there is no order to keep.
 */
static enum verdict
begin_discard(struct disk *d, struct request *rq, struct cpu *cpu)
{
	struct zones *z = d->zones;
	unsigned i = zones_at(z, rq->pos);
	int ret;

	if (last_zone(z, rq) < z->nr_conv)
		return STAGE_NEXT;
	if (rq->pos != start_of(z, i) || rq->bytes != len_of(z, i))
		return end_with(rq, -EINVAL);
	pthread_rwlock_wrlock(lock_of(z, i));
	ret = manage_one(z, ZONE_RESET, i);
	give_back(d, i, cpu);
	pthread_rwlock_unlock(lock_of(z, i));
	return end_with(rq, ret);
}

/* The checks of zones come before those of bad blocks, as in null_blk. */
bool
zone_is_on(const struct disk *d)
{
	return d->zones != NULL;
}

enum verdict
zone_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)now;
	if (rq->bytes == 0)
		return STAGE_NEXT;
	if (rq->op == REQ_OP_READ)
		return begin_read(d, rq, cpu);
	if (rq->op == REQ_OP_WRITE)
		return begin_write(d, rq, cpu);
	if (rq->op == REQ_OP_DISCARD)
		return begin_discard(d, rq, cpu);
	return STAGE_NEXT;
}

/* null_zone_write(), from the data on. */
static void
end_write(struct zones *z, unsigned i, uint64_t moved)
{
	struct zone *zone = &z->zone[i];

	pthread_mutex_lock(&z->common);
	zone->busy = false;
	zone->wp += moved;
	if (wp_of(zone) == capacity_of(z, i))
		become(z, zone, ZONE_FULL);
	else if (wp_of(zone) == 0 && cond_of(zone) == ZONE_CLOSED)
		become(z, zone, ZONE_EMPTY); /* closed meanwhile */
	pthread_mutex_unlock(&z->common);
}

void
zone_done(struct disk *d, struct request *rq, uint64_t moved)
{
	struct zones *z = d->zones;
	unsigned i;

	if (rq->bytes == 0 || is_conv(z, rq->pos))
		return;
	i = zones_at(z, rq->pos);
	if (rq->op == REQ_OP_WRITE)
		end_write(z, i, moved);
	if (rq->op == REQ_OP_WRITE || rq->op == REQ_OP_READ)
		pthread_rwlock_unlock(lock_of(z, i));
}

/* ------------------------------------- as text: zone_readonly, zone_offline */

/* What a write to one of them goes to: the zones of a disk that is on. */
struct zone_marks {
	_Atomic(struct zones *) zones; /* NULL: off, or not zoned */
};

void
zone_marks_attach(struct zone_marks *m, struct zones *z)
{
	atomic_store(&m->zones, z);
}

static void *
marks_new(void)
{
	return calloc(1, sizeof(struct zone_marks));
}

static void
marks_free(void *obj)
{
	free(obj);
}

static void *
marks_copy(const void *obj)
{
	(void)obj; /* another disk's */
	return marks_new();
}

static bool
marks_same(const void *x, const void *y)
{
	(void)x;
	(void)y;
	return true; /* there is nothing that could be set before */
}

static bool
marks_item(const void *obj, size_t i, FILE *out)
{
	(void)obj;
	(void)i;
	(void)out;
	return false;
}

/* nullb_device_zone_readonly_store(), and the like of it */
static int
marks_set(const struct zone_marks *m, const char *name, enum zone_cond cond,
    const char *value, char *err, size_t errlen)
{
	struct zones *z = atomic_load(&m->zones);
	uint64_t sector, pos;
	unsigned i;
	int ret;

	if (z == NULL)
		return refuse(err, errlen, -EINVAL,
		    "%s: \"%.60s\": allowed: while a device with zoned=1 is on",
		    name, value);
	ret = uint_parse(value, NULL, &sector);
	if (ret == 0 && sector >= z->size >> SECTOR_SHIFT)
		ret = -EINVAL;
	pos = ret == 0 ? sector << SECTOR_SHIFT : 0;
	if (ret != 0)
		return refuse(err, errlen, ret,
		    "%s: \"%.60s\": allowed: a sector of the device, up to "
		    "%" PRIu64,
		    name, value, (z->size >> SECTOR_SHIFT) - 1);
	if (is_conv(z, pos))
		return refuse(err, errlen, -EINVAL,
		    "%s: \"%.60s\": allowed: no conventional zone, so from "
		    "%" PRIu64 " on",
		    name, value, start_of(z, z->nr_conv) >> SECTOR_SHIFT);
	i = zones_at(z, pos);
	pthread_rwlock_wrlock(lock_of(z, i));
	pthread_mutex_lock(&z->common);
	ret = mark_zone(z, &z->zone[i], cond);
	pthread_mutex_unlock(&z->common);
	pthread_rwlock_unlock(lock_of(z, i));
	return ret;
}

/* null_blk's cannot be read; here it shows the first sector of each. */
static void
marks_show(const struct zone_marks *m, enum zone_cond cond, FILE *out)
{
	const struct zones *z = atomic_load(&m->zones);
	const char *newline = "";

	for (unsigned i = 0; z != NULL && i < z->nr; i++)
		if (cond_of(&z->zone[i]) == cond) {
			fprintf(out, "%s%" PRIu64, newline,
			    start_of(z, i) >> SECTOR_SHIFT);
			newline = "\n";
		}
}

static int
readonly_set(void *obj, const char *value, char *err, size_t errlen)
{
	return marks_set(
	    obj, "zone_readonly", ZONE_READONLY, value, err, errlen);
}

static void
readonly_show(const void *obj, FILE *out)
{
	marks_show(obj, ZONE_READONLY, out);
}

static int
offline_set(void *obj, const char *value, char *err, size_t errlen)
{
	return marks_set(obj, "zone_offline", ZONE_OFFLINE, value, err, errlen);
}

static void
offline_show(const void *obj, FILE *out)
{
	marks_show(obj, ZONE_OFFLINE, out);
}

const struct attr_object zone_readonly_object = {
	.new = marks_new,
	.free = marks_free,
	.copy = marks_copy,
	.same = marks_same,
	.set = readonly_set,
	.show = readonly_show,
	.item = marks_item,
};

const struct attr_object zone_offline_object = {
	.new = marks_new,
	.free = marks_free,
	.copy = marks_copy,
	.same = marks_same,
	.set = offline_set,
	.show = offline_show,
	.item = marks_item,
};
