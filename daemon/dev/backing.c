/* SPDX-License-Identifier: MIT */
/*
 * A file that has what would be there after a power cut.  The store has all
 * that reads see, and is read from the file when the power comes on; from then
 * on only writing goes there, through the hooks of whoever has the file:
 *
 *	no cache          a write, and a discard, are in the file before they
 *	                  are answered
 *	a volatile cache  it remembers which pages the file has not; a flush,
 *	                  or want of room, writes them
 *	flush, FUA        and then whoever has the file makes it safe, which
 *	                  may take long: the request ends later
 *
 * What goes to the file is never a request's data but what the store holds
 * there by then, under a lock: of writes that overlap the file ends with the
 * one that the store ended with.  The lock costs little, as a kernel has one a
 * file, too.  A write is a copy to the page cache, which a daemon that is
 * killed leaves behind.
 *
 * Not a mapping of the file as the store's pages: a page that is shown in
 * replies is replaced by another, not changed (store.c), while a page of a
 * mapping has its place; and a full disk would be a SIGBUS.
 */
#include "dev/dev.h"

#include <errno.h>

#define MAX_PIECES 64u /* of a writev */

void
backing_init(struct backing *b, const struct backing_ops *ops, void *file)
{
	b->ops = ops;
	b->file = file;
	pthread_mutex_init(&b->lock, NULL);
}

void
backing_fini(struct backing *b)
{
	pthread_mutex_destroy(&b->lock);
}

static bool
is_hole(const struct iovec *iov)
{
	const char *zeros = store_zeros(), *base = iov->iov_base;

	return base >= zeros && base < zeros + STORE_ZEROS_SIZE;
}

/* All of a kind go together. */
static int
put_pieces(
    struct backing *b, const struct iovec *iov, unsigned nr, uint64_t pos)
{
	unsigned i = 0, first;
	uint64_t len;
	bool hole;
	int ret = 0;

	for (; ret == 0 && i < nr; pos += len) {
		first = i;
		hole = is_hole(&iov[first]);
		for (len = 0; i < nr && is_hole(&iov[i]) == hole; i++)
			len += iov[i].iov_len;
		ret = hole
			  ? b->ops->punch(b->file, pos, len)
			  : b->ops->write(b->file, iov + first, i - first, pos);
	}
	return ret;
}

/* Its page is shown in thousands of replies already. */
static int
put_copy(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t *len)
{
	uint64_t room = PAGE_SIZE - pos % PAGE_SIZE;
	char copy[PAGE_SIZE];
	struct iovec iov = { .iov_base = copy };

	if (*len > room)
		*len = room;
	iov.iov_len = *len;
	(void)store_read(d->store, cpu, pos, copy, *len);
	return d->backing->ops->write(d->backing->file, &iov, 1, pos);
}

int
backing_put(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t len)
{
	struct backing *b = d->backing;
	struct iovec iov[MAX_PIECES];
	uint64_t end = pos + len, done;
	unsigned nr;
	int ret = 0;

	pthread_mutex_lock(&b->lock);
	for (; ret == 0 && pos < end; pos += done) {
		nr = store_pin(
		    d->store, cpu, pos, end - pos, iov, MAX_PIECES, &done);
		if (nr > 0) {
			ret = put_pieces(b, iov, nr, pos);
			store_unpin(d->pool, cpu, iov, nr);
		} else {
			done = end - pos;
			ret = put_copy(d, cpu, pos, &done);
		}
	}
	pthread_mutex_unlock(&b->lock);
	return ret;
}

int
backing_put_page(struct disk *d, uint64_t pos, const void *page, uint64_t len)
{
	struct iovec iov = { (void *)page, len };
	struct backing *b = d->backing;
	int ret;

	pthread_mutex_lock(&b->lock);
	ret = page != NULL ? b->ops->write(b->file, &iov, 1, pos)
			   : b->ops->punch(b->file, pos, len);
	pthread_mutex_unlock(&b->lock);
	return ret;
}

/* ---- the stage: the data has moved */

bool
backing_is_on(const struct disk *d)
{
	return d->backing != NULL;
}

static int
put_bios(struct disk *d, const struct request *rq, struct cpu *cpu)
{
	bool held = rq->op == REQ_OP_WRITE && (rq->flags & REQ_FUA) == 0 &&
		    (cache_is_on(d) || rq->rq_flags & RQF_HELD);
	const struct bio *bio;
	int ret = 0;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		if (ret != 0)
			break;
		ret = held ? cache_spill(d, cpu, bio->pos, bio->bytes)
			   : backing_put(d, cpu, bio->pos, bio->bytes);
	}
	return ret;
}

/*
 * It ends once it is safe.  What a fault is about ends as that has it, so the
 * cpu waits: few do, and whoever asks for faults knows of them.
 */
static enum verdict
make_safe(struct disk *d, struct request *rq)
{
	struct backing *b = d->backing;

	if (rq->priv == NULL)
		return STAGE_HELD;
	rq->error = b->ops->sync(b->file);
	return rq->error != 0 ? STAGE_END : STAGE_NEXT;
}

enum verdict
backing_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)now;
	switch ((enum req_op)rq->op) {
	case REQ_OP_WRITE:
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES:
		rq->error = put_bios(d, rq, cpu);
		if (rq->error != 0)
			return STAGE_END;
		return rq->flags & REQ_FUA ? make_safe(d, rq) : STAGE_NEXT;
	case REQ_OP_FLUSH: return make_safe(d, rq);
	case REQ_OP_READ:
	case REQ_OP_NR: break;
	}
	return STAGE_NEXT;
}
