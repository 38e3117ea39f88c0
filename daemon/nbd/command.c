/* SPDX-License-Identifier: MIT */
/*
 * Requests of a client in transmission: how they are framed, which of them
 * are refused, and the bios that the others become.
 *
 *	|-- header 28 --|------ payload of a write ------|-- header ...
 *
 * A payload stays where it was received: in the chunk, or, when it is large
 * and not wholly there, in pages that the driver lends, which may become the
 * device's, or else in a chunk of its own.  Whatever is wrong with a
 * request, its payload is skipped, so that the next one is found (N111).
 */
#include "nbd/session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* -------------------------------------------------------------- commands */

static void
part_fini(struct nbd_session *s, struct part *p)
{
	bio_release(&p->bio, s->cpu);
	pool_put(s->pool, POOL_TABLE, p->table);
}

static void
part_free(struct nbd_session *s, struct part *p)
{
	part_fini(s, p);
	pool_put(s->pool, POOL_PART, p);
}

/* So many bytes are ignored before this is answered. */
static void
drain(struct nbd_session *s, uint64_t bytes, const struct wire_request *req,
    int error, const char *why)
{
	s->drain = bytes;
	s->drain_req = *req;
	s->drain_error = error;
	s->drain_why = why;
}

/*
 * The driver's pages for a payload.  They come as it does, so many bytes ahead:
 * a header alone must not take 32 MiB.
 */
#define LEND_AHEAD (256u << 10)

/* None yet.  NULL when out of memory. */
static struct lent *
lent_new(const struct command *c)
{
	uint64_t first = c->req.offset >> PAGE_SHIFT;
	uint64_t last = (c->req.offset + c->req.length - 1) >> PAGE_SHIFT;
	unsigned max = (unsigned)(last - first + 1);
	struct lent *lent = malloc(sizeof(*lent) + max * sizeof(lent->page[0]));

	if (lent != NULL)
		*lent = (struct lent){ .max = max };
	return lent;
}

/* For the bytes up to `end`, or to the payload's.  False: out of memory. */
static bool
lent_reach(struct command *c, uint64_t end)
{
	struct queue *q = c->session->export->queue;
	struct lent *lent = c->lent;
	uint64_t pages =
	    (c->req.offset % PAGE_SIZE + end + PAGE_SIZE - 1) >> PAGE_SHIFT;
	unsigned nr = pages < lent->max ? (unsigned)pages : lent->max;

	unsigned more = 0;

	if (nr > lent->nr)
		more = q->ops->lend_pages(
		    q, c->session->cpu, lent->page + lent->nr, nr - lent->nr);
	lent->nr += more;
	c->held += (size_t)more << PAGE_SHIFT;
	session_hold(c->session, (size_t)more << PAGE_SHIFT);
	return lent->nr >= nr;
}

static void
lent_free(struct command *c)
{
	struct queue *q = c->session->export->queue;

	if (c->lent == NULL)
		return;
	q->ops->return_pages(q, c->session->cpu, c->lent->page, c->lent->nr);
	free(c->lent);
	c->lent = NULL;
}

/* The iovecs from byte `done` to `end`, as far as `max` of them go. */
static int
payload_iov(const struct command *c, uint32_t done, uint32_t end,
    struct iovec *iov, int max)
{
	uint64_t at = c->req.offset % PAGE_SIZE + done;
	uint64_t left = end - done;
	size_t off = at % PAGE_SIZE, room;
	struct iovec *last = iov;
	char *behind = NULL, *page;
	void **next;

	if (c->lent == NULL) {
		*iov = (struct iovec){ c->chunk->data + done, left };
		return 1;
	}
	next = &c->lent->page[at >> PAGE_SHIFT];
	for (; left > 0; left -= room, off = 0) {
		room = PAGE_SIZE - off < left ? PAGE_SIZE - off : left;
		page = *next++;
		/* one run of pages is one iovec */
		if (behind != NULL && page == behind) {
			last->iov_len += room;
		} else {
			if (behind != NULL && ++last == iov + max)
				return max;
			*last = (struct iovec){ page + off, room };
		}
		behind = page + PAGE_SIZE;
	}
	return (int)(last - iov) + 1;
}

int
command_want(struct command *c, uint32_t done, struct iovec *iov, int max)
{
	struct nbd_session *s = c->session;
	uint32_t end = (uint32_t)c->req.length;

	if (c->lent != NULL && end - done > LEND_AHEAD)
		end = done + LEND_AHEAD;
	if (c->lent != NULL && !lent_reach(c, end)) {
		drain(s, c->req.length - done, &c->req, -ENOMEM, NULL);
		s->big = NULL;
		command_free(c);
		return 0;
	}
	return payload_iov(c, done, end, iov, max);
}

/* The start of a payload, from where it was received. */
static void
payload_begin(const struct command *c, const char *data, uint32_t len)
{
	struct iovec iov;
	uint32_t done, n;

	for (done = 0; done < len; done += n) {
		payload_iov(c, done, len, &iov, 1);
		n = (uint32_t)iov.iov_len;
		memcpy(iov.iov_base, data + done, n);
	}
}

void
command_free(struct command *c)
{
	struct nbd_session *s = c->session;
	struct part *p;

	while ((p = c->first.next) != NULL) {
		c->first.next = p->next;
		part_free(s, p);
	}
	if (c->first.bio.priv != NULL)
		part_fini(s, &c->first);
	if (c->chunk != NULL)
		session_unref(s, c->chunk);
	lent_free(c);
	session_release(s, c->held);
	s->nr_commands--;
	pool_put(s->pool, POOL_COMMAND, c);
}

void
command_put(struct command *c)
{
	struct nbd_session *s = c->session;

	if (--c->nr_parts > 0 || c->step_pos < c->step_end)
		return;
	if (s->aborted)
		command_free(c);
	else
		reply_command(c);
	session_unblock(s);
}

void
command_stop(struct command *c)
{
	if (c->step_pos == c->step_end)
		return;
	c->step_pos = c->step_end;
	STAILQ_REMOVE(&c->session->stepping, c, command, link);
}

void
command_give_up(struct command *c)
{
	c->nr_parts++; /* those it had may all have ended */
	if (c->error == 0)
		c->error = -ESHUTDOWN;
	command_stop(c);
	command_put(c);
}

/* A bio is the session's again. */
static void
part_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct part *p = (struct part *)bio;
	struct command *c = bio->priv;
	struct nbd_session *s = c->session;

	(void)cpu;
	(void)now;
	order_remove(&s->order, p);
	if (p->started)
		s->nr_started--;
	if (bio->error != 0 && c->error == 0) {
		c->error = bio->error;
		c->error_pos = p->pos;
	}
	if (bio->hang_up > c->hang_up)
		c->hang_up = bio->hang_up;
	if (bio->error == -ENOMEDIUM) /* it has no power: nobody answers */
		c->hang_up = HANG_UP_BEFORE;
	if (c->error != 0 || s->aborted)
		command_stop(c);
	if (c->step_end > 0 && p != &c->first)
		part_free(s, p); /* there may be thousands of it */
	/* in a later turn the session goes on, or ends */
	if (s->stalled || c->step_pos < c->step_end ||
	    (s->aborted && s->nr_started == 0))
		session_wake(s);
	command_put(c);
}

/*
 * An empty bio.  Its bvecs are p->table's, or, when that is NULL, the bio's
 * own.
 */
static void
part_init(struct part *p, struct command *c, enum req_op op, uint64_t pos)
{
	struct bvec *bv = p->table != NULL ? p->table->bv : NULL;

	bio_init(&p->bio, op, pos, bv, BIO_MAX_VECS);
	p->bio.task = c->session->task;
	p->bio.given_up = &c->session->given_up;
	p->bio.end_io = part_end;
	p->bio.priv = c;
	if (c->lent != NULL) {
		p->bio.lent = c->lent->page;
		p->bio.first_page = c->req.offset >> PAGE_SHIFT;
	}
	if ((c->req.flags & NBD_CMD_FLAG_FUA) != 0 && op != REQ_OP_READ &&
	    op != REQ_OP_FLUSH)
		p->bio.flags |= REQ_FUA;
	p->next = NULL;
	p->pos = pos;
	p->end = pos;
	p->started = false;
	p->tracked = false;
}

/* The bio is complete. */
static void
part_queue(struct part *p, struct command *c)
{
	p->end = p->pos + p->bio.bytes;
	c->nr_parts++;
	STAILQ_INSERT_TAIL(&c->session->pending, &p->bio, link);
}

/* All its bios are.  Several are submitted under a plug in any case. */
static void
command_queue(struct command *c)
{
	struct nbd_session *s = c->session;
	struct part *p;

	for (p = &c->first; p != NULL; p = p->next)
		part_queue(p, c);
	if (c->nr_parts > 1 || c->step_pos < c->step_end)
		s->batch += s->export->queue->profile->aio_plug_min;
	else
		s->batch++;
}

/* The same for a payload of a page at most, as most are. */
static void
add_page(struct command *c, enum req_op op, char *base)
{
	struct nbd_session *s = c->session;
	struct bio *bio = &c->first.bio;

	c->first.table = NULL;
	part_init(&c->first, c, op, c->req.offset);
	if (op == REQ_OP_WRITE)
		bio->flags |= REQ_SYNC; /* as direct I/O has it */
	bio->bv[0] = (struct bvec){ s->phys, base, (uint32_t)c->req.length };
	bio->nr_bv = 1;
	bio->bytes = c->req.length;
	s->phys += pages_span(s->export->page_order, 1);
	command_queue(c);
}

/*
 * The bios of a payload at `base`, or in pages that the driver lent, or of a
 * read that takes what the driver has.  One whose table is full is followed by
 * another (T11).
 */
static int
add_payload(struct command *c, enum req_op op, char *base)
{
	struct nbd_session *s = c->session;
	const struct nbd_export *e = s->export;
	bool multipage = e->queue->conf.multipage;
	uint64_t pages =
	    (c->req.length + (uint64_t)PAGE_SIZE - 1) >> PAGE_SHIFT;
	uint64_t nr_bv = pages, done = 0;
	struct part *p = &c->first, *last = NULL;

	if (pages == 1) {
		add_page(c, op, base);
		return 0;
	}
	if (multipage)
		nr_bv = (pages + (1u << e->page_order) - 1) >> e->page_order;
	while (done < c->req.length) {
		if (last != NULL)
			p = pool_get(s->pool, POOL_PART);
		if (p == NULL)
			return -ENOMEM;
		p->table = NULL;
		if (nr_bv > BIO_INLINE_VECS)
			p->table = pool_get(s->pool, POOL_TABLE);
		part_init(p, c, op, c->req.offset + done);
		if (last != NULL)
			last->next = p;
		if (nr_bv > BIO_INLINE_VECS && p->table == NULL)
			return -ENOMEM;
		if (op == REQ_OP_WRITE)
			p->bio.flags |= REQ_SYNC; /* as direct I/O has it */
		done += bio_add_payload(&p->bio, multipage, s->phys,
		    e->page_order, done >> PAGE_SHIFT,
		    base != NULL ? base + done : NULL, c->req.length - done);
		last = p;
	}
	s->phys += pages_span(e->page_order, pages);
	command_queue(c);
	return 0;
}

static int
start_read(struct command *c, char *payload)
{
	struct nbd_session *s = c->session;
	size_t header = reply_read_header(s);
	char *base = NULL;

	(void)payload;
	if (c->req.length < NBD_READ_COPY) {
		c->reply = session_reply(s, header + c->req.length, &c->chunk);
		if (c->reply == NULL)
			return -ENOMEM;
		base = c->reply + header;
	} else {
		c->held = c->req.length;
		session_hold(s, c->held);
	}
	return add_payload(c, REQ_OP_READ, base);
}

static int
start_write(struct command *c, char *payload)
{
	return add_payload(c, REQ_OP_WRITE, payload);
}

static int
start_flush(struct command *c, char *payload)
{
	(void)payload;
	part_init(&c->first, c, REQ_OP_FLUSH, 0);
	command_queue(c);
	return 0;
}

/* One bio without data for all of it. */
static void
start_whole(struct command *c, enum req_op op, uint16_t flags)
{
	part_init(&c->first, c, op, c->req.offset);
	c->first.bio.flags |= flags;
	c->first.bio.bytes = c->req.length;
	command_queue(c);
}

/*
 * A zeroing that the device does not offer is written: pages of zeros, all
 * the same one (blkdev_issue_zeroout()), so none is adjacent to another.
 */
static char zero_page[PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));

static struct bvec zero_bvecs[BIO_MAX_VECS] = {
	[0 ... BIO_MAX_VECS - 1] = {
		.phys = 0,
		.base = zero_page,
		.len = PAGE_SIZE,
	},
};

/* Make the part its next bio. */
static void
step_init(struct part *p, struct command *c)
{
	uint64_t left = c->step_end - c->step_pos;

	p->table = NULL;
	part_init(p, c, c->step_op, c->step_pos);
	p->bio.flags |= c->step_flags;
	p->bio.bytes = left < c->step_bytes ? left : c->step_bytes;
	if (c->step_op == REQ_OP_WRITE) {
		p->bio.bv = zero_bvecs;
		p->bio.nr_bv =
		    (unsigned)((p->bio.bytes + PAGE_SIZE - 1) >> PAGE_SHIFT);
		p->bio.max_bv = p->bio.nr_bv;
	}
	p->end = p->pos + p->bio.bytes;
	c->step_pos = p->end;
}

struct part *
command_step(struct command *c)
{
	struct part *p = pool_get(c->session->pool, POOL_PART);

	if (p == NULL) {
		c->error = -ENOMEM;
		c->error_pos = c->step_pos;
		command_stop(c);
		return NULL;
	}
	step_init(p, c);
	c->nr_parts++;
	if (c->step_pos == c->step_end)
		STAILQ_REMOVE(&c->session->stepping, c, command, link);
	return p;
}

/* Bios of `bytes` at most, a few at a time: others have a turn. */
static void
start_steps(struct command *c, enum req_op op, uint16_t flags, uint32_t bytes)
{
	c->step_op = (uint8_t)op;
	c->step_flags = flags;
	c->step_bytes = bytes;
	c->step_pos = c->req.offset;
	c->step_end = c->req.offset + c->req.length;
	step_init(&c->first, c);
	if (c->step_pos < c->step_end)
		STAILQ_INSERT_TAIL(&c->session->stepping, c, link);
	command_queue(c);
}

/* What gives memory back takes no time: one bio, as far as one goes. */
static void
start_range(struct command *c, enum req_op op, uint16_t flags)
{
	if (c->req.length <= UINT32_MAX)
		start_whole(c, op, flags);
	else
		start_steps(c, op, flags, NBD_BIO_BYTES);
}

static int
start_trim(struct command *c, char *payload)
{
	(void)payload;
	/* as blkdev_issue_discard() has it; but zones are not cut */
	if (c->session->export->zone_bytes != 0)
		start_whole(c, REQ_OP_DISCARD, REQ_SYNC);
	else
		start_range(c, REQ_OP_DISCARD, REQ_SYNC);
	return 0;
}

static int
start_write_zeroes(struct command *c, char *payload)
{
	bool offered = c->session->export->can_zero;

	(void)payload;
	if (!offered && (c->req.flags & NBD_CMD_FLAG_FAST_ZERO) != 0)
		return -EOPNOTSUPP; /* N145 */
	/* where it takes memory, it goes piece by piece */
	if (!offered)
		start_steps(c, REQ_OP_WRITE, 0, NBD_ZERO_BYTES);
	else if ((c->req.flags & NBD_CMD_FLAG_NO_HOLE) != 0)
		start_steps(
		    c, REQ_OP_WRITE_ZEROES, REQ_NOUNMAP, NBD_ZERO_BYTES);
	else
		start_range(c, REQ_OP_WRITE_ZEROES, 0);
	return 0;
}

/*
 * It is no bio, but comes in its turn as if it were: what overlaps it and came
 * before has happened when it is answered.
 */
static int
start_block_status(struct command *c, char *payload)
{
	(void)payload;
	start_whole(c, REQ_OP_READ, 0);
	return 0;
}

/* -------------------------------------------------------------- requests */

/* What a command may look like, and what it does. */
struct command_type {
	const char *name;
	uint16_t flags;   /* legal ones, beside FUA (N114, N115) */
	uint16_t needs;   /* the transmission flag that allows it (N122) */
	bool has_payload; /* `length` bytes follow the header */
	bool moves_data;  /* `length` is bounded by the maximum payload */
	bool changes;     /* not on a read-only export (N118) */
	bool has_range;   /* offset and length lie within the export */
	int range_error;  /* if they don't (N117) */
	/* Make its bios: 0 or -errno.  NULL: it does nothing. */
	int (*start)(struct command *c, char *payload);
};

static const struct command_type command_types[] = {
	[NBD_CMD_READ] = {
		.name = "READ",
		.moves_data = true,
		.has_range = true,
		.range_error = -EINVAL,
		.start = start_read,
	},
	[NBD_CMD_WRITE] = {
		.name = "WRITE",
		.has_payload = true,
		.moves_data = true,
		.changes = true,
		.has_range = true,
		.range_error = -ENOSPC,
		.start = start_write,
	},
	[NBD_CMD_FLUSH] = {
		.name = "FLUSH",
		.needs = NBD_FLAG_SEND_FLUSH,
		.start = start_flush,
	},
	[NBD_CMD_TRIM] = {
		.name = "TRIM",
		.needs = NBD_FLAG_SEND_TRIM,
		.changes = true,
		.has_range = true,
		.range_error = -EINVAL,
		.start = start_trim,
	},
	[NBD_CMD_CACHE] = { /* advice, which nobody needs here (N143) */
		.name = "CACHE",
		.needs = NBD_FLAG_SEND_CACHE,
		.has_range = true,
		.range_error = -EINVAL,
	},
	[NBD_CMD_WRITE_ZEROES] = {
		.name = "WRITE_ZEROES",
		.flags = NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO,
		.needs = NBD_FLAG_SEND_WRITE_ZEROES,
		.changes = true,
		.has_range = true,
		.range_error = -ENOSPC,
		.start = start_write_zeroes,
	},
	[NBD_CMD_BLOCK_STATUS] = {
		.name = "BLOCK_STATUS",
		.flags = NBD_CMD_FLAG_REQ_ONE,
		.has_range = true,
		.range_error = -EINVAL,
		.start = start_block_status,
	},
};

/* NULL for those that are unknown (N112, N159). */
static const struct command_type *
type_find(uint16_t type)
{
	if (type > NBD_CMD_BLOCK_STATUS || type == NBD_CMD_DISC)
		return NULL;
	return &command_types[type];
}

const char *
command_name(uint16_t type)
{
	const struct command_type *t = type_find(type);

	return t != NULL ? t->name : NULL;
}

/* Bytes that follow the header, whatever is wrong with it (N111, N172). */
static uint64_t
payload_len(const struct nbd_session *s, const struct command_type *type,
    const struct wire_request *req)
{
	if (type != NULL && type->has_payload)
		return req
		    ->length; /* with PAYLOAD_LEN or not, as qemu has it */
	if (s->extended && (req->flags & NBD_CMD_FLAG_PAYLOAD_LEN) != 0)
		return req->length;
	return 0;
}

static bool
has_status_payload(const struct wire_request *req)
{
	return req->type == NBD_CMD_BLOCK_STATUS && req->payload > 0;
}

/* May it have these flags, on this connection? */
static bool
flags_legal(const struct nbd_session *s, const struct command_type *type,
    const struct wire_request *req)
{
	unsigned odd = req->flags & ~(type->flags | NBD_CMD_FLAG_FUA);

	if (odd == 0)
		return true;
	if (req->type == NBD_CMD_READ && (s->flags & NBD_FLAG_SEND_DF) != 0)
		odd &= ~(unsigned)NBD_CMD_FLAG_DF;
	if (type->has_payload ? s->extended
			      : req->type == NBD_CMD_BLOCK_STATUS &&
				    (s->flags & NBD_FLAG_BLOCK_STATUS_PAYLOAD))
		odd &= ~(unsigned)NBD_CMD_FLAG_PAYLOAD_LEN;
	return odd == 0;
}

/* -errno, and why a client is told so. */
static int
because(const char **why, const char *text, int error)
{
	*why = text;
	return error;
}

/* Does it lie where it may?  0, or -errno with a reason. */
static int
range_check(const struct nbd_session *s, const struct command_type *type,
    const struct wire_request *req, const char **why)
{
	const struct nbd_export *e = s->export;
	uint64_t mask = s->agreed ? e->min_block - 1 : 0;

	if (req->offset > e->size || req->length > e->size - req->offset)
		return because(
		    why, "not within the export", type->range_error); /* N116 */
	if (((req->offset | req->length) & mask) != 0)
		return because(why, "not in whole blocks", -EINVAL); /* N88 */
	if (type->moves_data && req->length > NBD_MAX_PAYLOAD)
		return because(
		    why, "longer than the maximum payload", -EINVAL); /* N90 */
	if (req->type != NBD_CMD_BLOCK_STATUS)
		return 0;
	if (s->contexts == 0)
		return because(
		    why, "no contexts were agreed on", -EINVAL); /* N153 */
	if (req->length == 0)
		return because(
		    why, "nothing to tell about no bytes", -EINVAL); /* N119 */
	return 0;
}

/* 0, or -errno with a reason: it is refused. */
static int
request_check(const struct nbd_session *s, const struct command_type *type,
    const struct wire_request *req, const char **why)
{
	if (s->shutdown)
		return because(
		    why, "the server is shutting down", -ESHUTDOWN); /* N162 */
	if (type == NULL)
		return because(why, "no such command", -EINVAL);
	if (!flags_legal(s, type, req))
		return because(why, "a flag that it cannot have", -EINVAL);
	if (type->changes && s->export->read_only)
		return because(why, "the export is read-only", -EPERM);
	if ((type->needs & ~s->flags) != 0)
		return because(why, "not offered", -EINVAL);
	if (!type->has_range)
		return 0;
	/* what a payload says is looked at when it has come */
	if (!has_status_payload(req))
		return range_check(s, type, req, why);
	if (req->payload > CONTEXT_MAX_PAYLOAD)
		return because(why, "more contexts than there can be", -EINVAL);
	return 0;
}

/* Make its bios; or it is answered at once. */
static void
command_start(struct command *c, char *payload)
{
	const struct command_type *type = type_find(c->req.type);

	c->error = type->start(c, payload);
	if (c->error != 0)
		reply_command(c);
}

static struct command *
command_new(struct nbd_session *s, const struct wire_request *req)
{
	struct command *c = pool_get(s->pool, POOL_COMMAND);

	if (c == NULL)
		return NULL;
	c->session = s;
	c->req = *req;
	c->nr_parts = 0;
	c->error = 0;
	c->error_pos = req->offset;
	c->hang_up = HANG_UP_NEVER;
	c->chunk = NULL;
	c->lent = NULL;
	c->reply = NULL;
	c->held = 0;
	c->contexts = s->contexts;
	c->step_pos = 0;
	c->step_end = 0;
	c->first.table = NULL;
	c->first.next = NULL;
	c->first.bio.priv = NULL; /* not a bio yet */
	s->nr_commands++;
	return c;
}

void
command_received(struct nbd_session *s)
{
	struct command *c = s->big;

	assert(s->big_done == c->req.length);
	s->big = NULL;
	command_start(c, c->lent != NULL ? NULL : c->chunk->data);
}

/* Bytes to ignore: have they all come?  Then the request is answered. */
static bool
drained(struct nbd_session *s)
{
	size_t n = session_avail(s);

	if (n > s->drain)
		n = s->drain;
	s->in_pos += n;
	s->drain -= n;
	if (s->drain > 0)
		return false;
	reply_plain(s, &s->drain_req, s->drain_error, s->drain_why);
	return true;
}

/* Answer a request that is refused, once its payload has gone by. */
static void
request_refuse(struct nbd_session *s, const struct wire_request *req, int error,
    const char *why)
{
	s->in_pos += s->request_size;
	if (req->payload > 0)
		drain(s, req->payload, req, error, why);
	else
		reply_plain(s, req, error, why);
}

/*
 * A write whose payload is only partly there.  A small one waits for the
 * rest in this chunk, or in another one if that has little room left.
 */
static int
await_small(struct nbd_session *s, const struct wire_request *req)
{
	size_t size = s->request_size + (size_t)req->length;

	if (s->in->size - s->in_len < NBD_CHUNK / 4)
		size = NBD_CHUNK;
	return session_room(s, size);
}

/* Memory for a large payload, of which `have` bytes are there.  False: none. */
static bool
payload_new(struct command *c, uint32_t have)
{
	struct nbd_session *s = c->session;

	if (s->export->queue->ops->lend_pages != NULL)
		c->lent = lent_new(c);
	if (c->lent != NULL && lent_reach(c, have > 0 ? have : 1))
		return true;
	lent_free(c);
	c->chunk = session_chunk(s, c->req.length);
	return c->chunk != NULL;
}

/* A large one gets memory of its own, into which the rest is read. */
static int
await_big(struct nbd_session *s, const struct wire_request *req)
{
	uint32_t have = (uint32_t)(session_avail(s) - s->request_size);
	struct command *c = NULL;

	if (session_may_hold(s, req->length))
		c = command_new(s, req);
	if (c == NULL || !payload_new(c, have)) {
		if (c != NULL)
			command_free(c);
		request_refuse(s, req, -ENOMEM, NULL);
		return 0;
	}
	payload_begin(c, session_input(s) + s->request_size, have);
	s->in_pos = s->in_len;
	s->big = c;
	s->big_done = have;
	return 0;
}

/* The payload of a BLOCK_STATUS: it is about that length and those contexts. */
static int
status_pick(const struct nbd_session *s, const struct command_type *type,
    struct wire_request *req, const char *payload, uint32_t *contexts,
    const char **why)
{
	int error =
	    context_pick(s, payload, req->payload, &req->length, contexts, why);

	return error != 0 ? error : range_check(s, type, req, why);
}

/* All of it is there. */
static void
request_accept(struct nbd_session *s, const struct command_type *type,
    struct wire_request *req)
{
	char *payload = s->in->data + s->in_pos + s->request_size;
	uint32_t contexts = s->contexts;
	const char *why = NULL;
	struct command *c;
	int error = 0;

	if (has_status_payload(req))
		error = status_pick(s, type, req, payload, &contexts, &why);
	if (error != 0) {
		request_refuse(s, req, error, why);
		return;
	}
	if (type->start == NULL || (type->has_range && req->length == 0)) {
		s->in_pos += s->request_size;
		reply_plain(s, req, 0, NULL); /* N119 */
		return;
	}
	c = command_new(s, req);
	if (c == NULL) {
		request_refuse(s, req, -ENOMEM, NULL);
		return;
	}
	c->contexts = contexts;
	s->in_pos += s->request_size + req->payload;
	if (type->has_payload) {
		c->chunk = s->in;
		c->chunk->refs++;
	}
	command_start(c, payload);
}

/* The header of a request is there.  *partial: its payload is not. */
static int
request_parse(struct nbd_session *s, bool *partial)
{
	const char *p = session_input(s), *why = NULL;
	struct wire_request req = {
		.flags = get_be16(p + 4),
		.type = get_be16(p + 6),
		.cookie = get_be64(p + 8),
		.offset = get_be64(p + 16),
		.length = s->extended ? get_be64(p + 24) : get_be32(p + 24),
	};
	const struct command_type *type = type_find(req.type);
	uint64_t payload = payload_len(s, type, &req);
	int error;

	if (get_be32(p) !=
	    (s->extended ? NBD_EXT_REQUEST_MAGIC : NBD_REQUEST_MAGIC))
		return session_fail(s, -EPROTO, "request magic 0x%08x",
		    get_be32(p)); /* N108, N170 */
	if (req.type == NBD_CMD_DISC) {
		s->closing = true; /* N156 to N158 */
		return 0;
	}
	if (payload > NBD_MAX_DRAIN)
		return session_fail(s, -EPROTO, "a payload of %llu bytes",
		    (unsigned long long)payload);
	req.payload = (uint32_t)payload;
	s->was_big = payload >= NBD_BIG_PAYLOAD;
	error = request_check(s, type, &req, &why);
	if (error != 0) {
		request_refuse(s, &req, error, why);
		return 0;
	}
	if (session_avail(s) - s->request_size >= payload) {
		request_accept(s, type, &req);
		return 0;
	}
	if (payload >= NBD_BIG_PAYLOAD)
		return await_big(s, &req);
	*partial = true;
	return await_small(s, &req);
}

int
command_parse(struct nbd_session *s)
{
	bool partial = false;
	int err = 0;

	s->blocked = false;
	while (err == 0 && !partial && !s->closing && s->big == NULL) {
		if (session_full(s)) {
			s->blocked = true;
			break;
		}
		if (s->drain > 0 && !drained(s))
			break;
		if (session_avail(s) < s->request_size)
			break;
		err = request_parse(s, &partial);
	}
	return err;
}
