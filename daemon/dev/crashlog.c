/* SPDX-License-Identifier: MIT */
/*
 * The record of all that changes a disk, in the order in which it took effect:
 * up to any entry it makes what the disk had then.  What is written there is
 * what the store holds by then, under a lock, so that of writes that overlap
 * the log ends with the one that the store ended with.
 *
 * An entry counts when the number in the first sector says so, which is written
 * after it: a daemon that is killed leaves whole ones.  When one cannot be
 * written it is the last: that request, and all that come, fail.  A write
 * that was refused memory half way is in it, for what the store has of it.
 */
#include "dev/crashlog.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/util.h"
#include "dev/dev.h"

#define MAX_PIECES 64u /* of a writev */

/* A sector with its first bytes. */
static void
put_sector(char sector[CRASH_LOG_SECTOR], const void *data, size_t len)
{
	memcpy(sector, data, len);
	memset(sector + len, 0, CRASH_LOG_SECTOR - len);
}

static int
put_super(struct crash_log *l)
{
	const struct crash_log_super super = {
		.magic = htole64(CRASH_LOG_MAGIC),
		.version = htole64(CRASH_LOG_VERSION),
		.nr_entries = htole64(l->nr),
		.sectorsize = htole32(CRASH_LOG_SECTOR),
	};
	char sector[CRASH_LOG_SECTOR];
	struct iovec iov = { sector, sizeof(sector) };

	put_sector(sector, &super, sizeof(super));
	return l->write(l->file, &iov, 1, 0);
}

int
crash_log_init(struct crash_log *l,
    int (*write)(
	void *file, const struct iovec *iov, unsigned nr, uint64_t pos),
    void *file)
{
	*l = (struct crash_log){
		.write = write,
		.file = file,
		.end = CRASH_LOG_SECTOR,
	};
	pthread_mutex_init(&l->lock, NULL);
	return put_super(l);
}

void
crash_log_fini(struct crash_log *l)
{
	pthread_mutex_destroy(&l->lock);
}

/* ---- under the lock */

/* The data of a write, of whole sectors: 0 and where it ends, or -errno. */
static int
put_data(
    struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t end, uint64_t *at)
{
	struct crash_log *l = d->crash_log;
	struct iovec iov[MAX_PIECES];
	char copy[CRASH_LOG_SECTOR];
	uint64_t done;
	unsigned nr;
	int ret = 0;

	for (; ret == 0 && pos < end; pos += done, *at += done) {
		nr = store_pin(
		    d->store, cpu, pos, end - pos, iov, MAX_PIECES, &done);
		if (nr > 0) {
			ret = l->write(l->file, iov, nr, *at);
			store_unpin(d->pool, cpu, iov, nr);
			continue;
		}
		/* thousands of replies show it already */
		done = sizeof(copy);
		(void)store_read(d->store, cpu, pos, copy, done);
		iov[0] = (struct iovec){ copy, done };
		ret = l->write(l->file, iov, 1, *at);
	}
	return ret;
}

/* len: bytes of a mark's text. */
static int
put_entry(struct disk *d, struct cpu *cpu, const struct crash_log_entry *e,
    const char *text, size_t len)
{
	const struct crash_log_entry le = {
		.sector = htole64(e->sector),
		.nr_sectors = htole64(e->nr_sectors),
		.flags = htole64(e->flags),
		.data_len = htole64(len),
	};
	struct crash_log *l = d->crash_log;
	char sector[CRASH_LOG_SECTOR];
	struct iovec iov = { sector, sizeof(sector) };
	uint64_t at = l->end + sizeof(sector);

	if (l->error != 0)
		return l->error;
	put_sector(sector, &le, sizeof(le));
	if (len > 0)
		memcpy(sector + sizeof(le), text, len);
	l->error = l->write(l->file, &iov, 1, l->end);
	if (l->error == 0 && e->nr_sectors > 0 && !(e->flags & CRASH_DISCARD))
		l->error = put_data(d, cpu, e->sector * CRASH_LOG_SECTOR,
		    (e->sector + e->nr_sectors) * CRASH_LOG_SECTOR, &at);
	if (l->error != 0)
		return l->error;
	l->nr++;
	l->end = at;
	l->error = put_super(l);
	return l->error;
}

/* ---- the stage: the data has moved */

bool
crash_log_is_on(const struct disk *d)
{
	return d->crash_log != NULL;
}

/*
 * Does it read as zeros there?  *len: for how long that holds, at most what it
 * was on entry, of whole sectors, as pos is.
 */
static bool
is_zeros(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t *len)
{
	unsigned steps = UINT_MAX;
	char data[PAGE_SIZE];

	if (!store_extent(d->store, cpu, pos, len, &steps))
		return true;
	*len = least(*len, PAGE_SIZE - pos % PAGE_SIZE);
	(void)store_read(d->store, cpu, pos, data, *len);
	return memcmp(data, store_zeros(), *len) == 0;
}

/*
 * But for what another cpu has written there since, and may have an entry
 * already; and for a hint that the store had no memory to take.  That is
 * written, as it is.
 */
static int
log_zeros(
    struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t end, uint64_t flags)
{
	struct crash_log_entry e;
	uint64_t next, len;
	bool zeros;
	int ret = 0;

	for (; ret == 0 && pos < end; pos = next) {
		len = end - pos;
		zeros = is_zeros(d, cpu, pos, &len);
		for (next = pos + len; next < end; next += len) {
			len = end - next;
			if (is_zeros(d, cpu, next, &len) != zeros)
				break;
		}
		e = (struct crash_log_entry){
			.sector = pos / CRASH_LOG_SECTOR,
			.nr_sectors = (next - pos) / CRASH_LOG_SECTOR,
			.flags = zeros ? flags | CRASH_DISCARD : flags,
		};
		ret = put_entry(d, cpu, &e, NULL, 0);
	}
	return ret;
}

/*
 * What is not of whole sectors is written, and takes along what the store has
 * beside it; so is a discard, as the zeros that are there then.
 */
static int
log_bio(struct disk *d, struct cpu *cpu, const struct bio *bio, uint64_t flags)
{
	uint64_t pos = bio->pos, end = pos + bio->bytes;
	struct crash_log_entry e = { .flags = flags };

	if (bio->op != REQ_OP_WRITE && (pos | end) % CRASH_LOG_SECTOR == 0)
		return log_zeros(d, cpu, pos, end, flags);
	e.sector = pos / CRASH_LOG_SECTOR;
	e.nr_sectors =
	    (end + CRASH_LOG_SECTOR - 1) / CRASH_LOG_SECTOR - e.sector;
	return put_entry(d, cpu, &e, NULL, 0);
}

static int
log_bios(
    struct disk *d, struct cpu *cpu, const struct request *rq, uint64_t flags)
{
	const struct bio *bio;
	int ret = 0;

	STAILQ_FOREACH(bio, &rq->bios, link)
		if (ret == 0)
			ret = log_bio(d, cpu, bio, flags);
	return ret;
}

static int
log_flush(struct disk *d, struct cpu *cpu)
{
	static const struct crash_log_entry flush = { .flags = CRASH_FLUSH };

	return put_entry(d, cpu, &flush, NULL, 0);
}

static int
log_request(struct disk *d, struct cpu *cpu, const struct request *rq)
{
	uint64_t fua = rq->flags & REQ_FUA ? CRASH_FUA : 0;

	switch ((enum req_op)rq->op) {
	case REQ_OP_WRITE:
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES: return log_bios(d, cpu, rq, fua);
	case REQ_OP_FLUSH: return log_flush(d, cpu);
	case REQ_OP_READ:
	case REQ_OP_NR: break;
	}
	return 0;
}

enum verdict
crash_log_stage(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct crash_log *l = d->crash_log;

	(void)now;
	if (rq->op == REQ_OP_READ)
		return STAGE_NEXT;
	pthread_mutex_lock(&l->lock);
	rq->error = log_request(d, cpu, rq);
	pthread_mutex_unlock(&l->lock);
	return rq->error != 0 ? STAGE_END : STAGE_NEXT;
}

/* With an error of its own it ends as one; that of the log is for the next. */
void
crash_log_failed(struct disk *d, const struct request *rq, struct cpu *cpu)
{
	struct crash_log *l = d->crash_log;

	if (l == NULL || rq->op == REQ_OP_READ)
		return;
	pthread_mutex_lock(&l->lock);
	(void)log_bios(d, cpu, rq, 0);
	pthread_mutex_unlock(&l->lock);
}

/* ---- for others */

void
disk_log_crash(struct disk *d, struct crash_log *l)
{
	d->crash_log = l;
	stages_choose(d);
}

int
disk_mark(struct disk *d, const char *text, char *err, size_t errlen)
{
	static const struct crash_log_entry mark = { .flags = CRASH_MARK };
	struct crash_log *l = d->crash_log;
	size_t len = strlen(text);
	int ret;

	if (l == NULL)
		return refuse(
		    err, errlen, -ENOENT, "mark: it has no crash_log");
	if (len == 0 || len > CRASH_MAX_MARK)
		return refuse(err, errlen, -EINVAL,
		    "mark: %zu bytes: allowed: 1 to %zu", len, CRASH_MAX_MARK);
	pthread_mutex_lock(&l->lock);
	ret = put_entry(d, NULL, &mark, text, len);
	pthread_mutex_unlock(&l->lock);
	if (ret != 0)
		return refuse(
		    err, errlen, ret, "mark: crash_log: %s", strerror(-ret));
	return 0;
}
