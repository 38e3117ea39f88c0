/* SPDX-License-Identifier: MIT */
/*
 * A bio and its data: a table of bvecs, which pieces that are split off share.
 *
 *	bv[0]      bv[1]          bv[2]
 *	|--skip----|--------------|-----|
 *	     |<------- bytes ------->|
 */
#include "blk/internal.h"

#include <assert.h>
#include <stdlib.h>

#define MAX_FREE_BIOS 1024u /* kept by a cpu for the next splits */

void
bio_init(struct bio *bio, enum req_op op, uint64_t pos, struct bvec *bv,
    unsigned max_bv)
{
	bio->op = (uint8_t)op;
	bio->prio = IOPRIO_NONE;
	bio->flags = 0;
	bio->task = 0;
	bio->pos = pos;
	bio->bytes = 0;
	bio->nr_segs = 0;
	bio->cpu = NULL;
	bio->bv = bv != NULL ? bv : bio->inline_bv;
	bio->nr_bv = 0;
	bio->max_bv = bv != NULL ? max_bv : BIO_INLINE_VECS;
	bio->skip = 0;
	bio->iov = NULL;
	bio->nr_iov = 0;
	bio->unpin = NULL;
	bio->hole = false;
	bio->hang_up = HANG_UP_NEVER;
	bio->given_up = NULL;
	bio->lent = NULL;
	bio->error = 0;
	bio->mail_error = 0;
	bio->remaining = 1;
	bio->parent = NULL;
	STAILQ_INIT(&bio->pieces);
	bio->waits = NULL;
	atomic_init(&bio->moved, false);
	bio->end_io = NULL;
	bio->priv = NULL;
}

/* May data at phys grow the bvec, rather than take one of its own? */
static bool
bvec_extends(
    const struct bvec *bv, bool multipage, uint64_t phys, const char *base)
{
	uint64_t end = bv->phys + bv->len;

	if (end != phys)
		return false;
	if ((bv->base == NULL) != (base == NULL))
		return false;
	if (base != NULL && bv->base + bv->len != base)
		return false; /* one bvec is one piece of real memory, too */
	return multipage || (end & (PAGE_SIZE - 1)) != 0;
}

bool
bio_add(
    struct bio *bio, bool multipage, uint64_t phys, void *base, uint32_t len)
{
	struct bvec *last;

	assert(len > 0);
	assert(bio->skip == 0);
	assert(multipage || (phys & (PAGE_SIZE - 1)) + len <= PAGE_SIZE);
	if (bio->bytes + len > UINT32_MAX)
		return false;
	if (bio->nr_bv > 0) {
		last = &bio->bv[bio->nr_bv - 1];
		if (bvec_extends(last, multipage, phys, base)) {
			last->len += len;
			bio->bytes += len;
			return true;
		}
	}
	if (bio->nr_bv == bio->max_bv)
		return false;
	bio->bv[bio->nr_bv++] = (struct bvec){ phys, base, len };
	bio->bytes += len;
	return true;
}

uint64_t
pages_phys(uint64_t phys, unsigned order, uint64_t i)
{
	uint64_t in_run = i & ((1u << order) - 1);

	/* twice the room of a run: the other half keeps runs apart */
	return phys + ((((i >> order) << (order + 1)) | in_run) << PAGE_SHIFT);
}

uint64_t
pages_span(unsigned order, uint64_t pages)
{
	uint64_t runs = (pages + (1u << order) - 1) >> order;

	return (runs << (order + 1)) << PAGE_SHIFT;
}

uint64_t
bio_add_payload(struct bio *bio, bool multipage, uint64_t phys, unsigned order,
    uint64_t first_page, char *base, uint64_t len)
{
	uint64_t done = 0, page = first_page, step;
	uint64_t pages = multipage ? 1u << order : 1;

	while (done < len) {
		step = (pages - (page & (pages - 1))) << PAGE_SHIFT;
		if (step > len - done)
			step = len - done;
		if (!bio_add(bio, multipage, pages_phys(phys, order, page),
			base != NULL ? base + done : NULL, (uint32_t)step))
			break;
		done += step;
		page += step >> PAGE_SHIFT;
	}
	return done;
}

void
bio_last_bvec(const struct bio *bio, struct bvec *out)
{
	struct bvec_iter it = { 0 };

	while (bio_next_bvec(bio, &it, out))
		;
}

static struct bio *
piece_get(struct cpu *cpu)
{
	struct bio *bio = STAILQ_FIRST(&cpu->free_bios);

	if (bio == NULL)
		return malloc(sizeof(*bio));
	STAILQ_REMOVE_HEAD(&cpu->free_bios, link);
	cpu->nr_free_bios--;
	return bio;
}

static void
piece_put(struct cpu *cpu, struct bio *bio)
{
	if (cpu->nr_free_bios == MAX_FREE_BIOS) {
		free(bio);
		return;
	}
	STAILQ_INSERT_HEAD(&cpu->free_bios, bio, link);
	cpu->nr_free_bios++;
}

/* Drop `bytes` from the front, which a piece has taken over. */
static void
bio_advance(struct bio *bio, uint64_t bytes)
{
	uint64_t skip = bio->skip + bytes;

	bio->pos += bytes;
	bio->bytes -= bytes;
	if (bio->nr_bv == 0)
		return; /* a discard has no data */
	while (skip >= bio->bv->len && bio->nr_bv > 1) {
		skip -= bio->bv->len;
		bio->bv++;
		bio->nr_bv--;
	}
	bio->skip = (uint32_t)skip;
}

struct bio *
bio_split(struct bio *bio, uint64_t bytes, struct cpu *cpu)
{
	struct bio *piece;

	assert(bytes > 0);
	assert(bytes < bio->bytes);
	piece = piece_get(cpu);
	if (piece == NULL)
		return NULL;
	bio_init(piece, bio->op, bio->pos, bio->bv, bio->max_bv);
	piece->prio = bio->prio;
	piece->flags = bio->flags | REQ_NOMERGE;
	piece->task = bio->task;
	piece->cpu = bio->cpu;
	piece->bytes = bytes;
	piece->nr_bv = bio->nr_bv;
	piece->skip = bio->skip;
	piece->lent = bio->lent;
	piece->first_page = bio->first_page;
	piece->given_up = bio->given_up;
	piece->parent = bio;
	STAILQ_INSERT_TAIL(&bio->pieces, piece, link_piece);
	bio->remaining++;
	bio_advance(bio, bytes);
	return piece;
}

bool
bio_moved(const struct bio *bio)
{
	const struct bio *piece;

	if (!atomic_load_explicit(&bio->moved, memory_order_acquire))
		return false;
	STAILQ_FOREACH(piece, &bio->pieces, link_piece)
		if (!atomic_load_explicit(&piece->moved, memory_order_acquire))
			return false;
	return true;
}

void
bio_endio(struct bio *bio, int error, struct cpu *cpu, uint64_t now)
{
	if (error != 0 && bio->error == 0)
		bio->error = error;
	if (--bio->remaining > 0)
		return;
	if (bio->parent == NULL) {
		bio->end_io(bio, cpu, now);
		return;
	}
	if (bio->hang_up > bio->parent->hang_up)
		bio->parent->hang_up = bio->hang_up;
	bio_endio(bio->parent, bio->error, cpu, now);
}

void
bio_release(struct bio *bio, struct cpu *cpu)
{
	struct bio *piece;

	while ((piece = STAILQ_FIRST(&bio->pieces)) != NULL) {
		STAILQ_REMOVE_HEAD(&bio->pieces, link_piece);
		if (piece->unpin != NULL)
			piece->unpin(piece, cpu);
		piece_put(cpu, piece);
	}
	if (bio->unpin != NULL)
		bio->unpin(bio, cpu);
	bio->unpin = NULL;
	bio->iov = NULL;
	bio->nr_iov = 0;
}
