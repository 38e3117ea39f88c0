/* SPDX-License-Identifier: MIT */
/*
 * What goes to the client: a stream of bytes, as a list of iovecs.  Headers
 * lie in blocks, one after the other, so that the replies of a batch of writes
 * are one iovec; the data of a read stays where the driver said it is.
 *
 *	         sent                              appended
 *	stream ...|16|16|16|16|--- data ---|16|-- data --|
 *	iov        [----------][----------][--][--------]
 *
 * What an iovec points to is given back when the stream was sent as far as
 * that: a command's data at its sent_at, a block at its end.
 */
#include "nbd/session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define FIRST_IOVECS 64u
#define KEPT_IOVECS  1024u /* of a table, when all was sent */

/* Room for one iovec more. */
static bool
iov_grow(struct nbd_session *s)
{
	unsigned nr = s->iov_len - s->iov_pos, max;
	struct iovec *iov = s->iov;

	if (s->iov_pos > s->iov_max / 2) {
		memmove(iov, iov + s->iov_pos, nr * sizeof(*iov));
	} else {
		max = s->iov_max > 0 ? 2 * s->iov_max : FIRST_IOVECS;
		iov = malloc(max * sizeof(*iov));
		if (iov == NULL)
			return false;
		if (nr > 0)
			memcpy(iov, s->iov + s->iov_pos, nr * sizeof(*iov));
		free(s->iov);
		s->iov = iov;
		s->iov_max = max;
	}
	s->iov_pos = 0;
	s->iov_len = nr;
	return true;
}

/* Do the bytes follow those of the last iovec? */
static bool
iov_extend(struct nbd_session *s, const char *data, size_t len)
{
	struct iovec *last;

	if (s->iov_len == s->iov_pos)
		return false;
	last = &s->iov[s->iov_len - 1];
	if ((char *)last->iov_base + last->iov_len != data)
		return false;
	last->iov_len += len;
	return true;
}

void
out_add(struct nbd_session *s, const void *data, size_t len)
{
	if (s->aborted || len == 0)
		return;
	if (s->sent == s->appended)
		session_wake(s);
	s->appended += len;
	if (iov_extend(s, data, len))
		return;
	if (s->iov_len == s->iov_max && !iov_grow(s)) {
		session_fail(s, -ENOMEM, "out of memory");
		return;
	}
	s->iov[s->iov_len++] = (struct iovec){ (void *)(uintptr_t)data, len };
}

/* A block with room. */
static struct block *
block_get(struct nbd_session *s, size_t room)
{
	struct block *b = s->last_block;

	if (b != NULL && sizeof(b->data) - b->used >= room)
		return b;
	b = pool_get(s->pool, POOL_BLOCK);
	if (b == NULL) {
		session_fail(s, -ENOMEM, "out of memory");
		return NULL;
	}
	b->next = NULL;
	b->used = 0;
	if (s->last_block != NULL)
		s->last_block->next = b;
	else
		s->first_block = b;
	s->last_block = b;
	s->nr_blocks++;
	return b;
}

static void
block_add(struct nbd_session *s, struct block *b, const void *data, size_t len)
{
	char *at = b->data + b->used;

	memcpy(at, data, len);
	b->used += (unsigned)len;
	out_add(s, at, len);
	b->end = s->appended;
}

void
out_copy(struct nbd_session *s, const void *data, size_t len)
{
	const char *p = data;
	struct block *b;
	size_t n;

	while (len > 0 && !s->aborted) {
		b = block_get(s, 1);
		if (b == NULL)
			return;
		n = sizeof(b->data) - b->used;
		if (n > len)
			n = len;
		block_add(s, b, p, n);
		p += n;
		len -= n;
	}
}

bool
out_full(const struct nbd_session *s)
{
	return s->nr_blocks * sizeof(struct block) >= NBD_MAX_UNSENT;
}

/* Free the blocks that were sent. */
static void
blocks_free(struct nbd_session *s)
{
	struct block *b;

	while ((b = s->first_block) != NULL && b->end <= s->sent) {
		if (b->next == NULL && s->sent < s->appended)
			return; /* data behind it: there will be more of it */
		s->first_block = b->next;
		if (b->next == NULL)
			s->last_block = NULL;
		s->nr_blocks--;
		pool_put(s->pool, POOL_BLOCK, b);
	}
}

/* Free what the stream no longer needs. */
static void
free_sent(struct nbd_session *s)
{
	struct command *c;

	while (
	    (c = STAILQ_FIRST(&s->unsent)) != NULL && c->sent_at <= s->sent) {
		STAILQ_REMOVE_HEAD(&s->unsent, link);
		command_free(c);
	}
	blocks_free(s);
	if (s->sent == s->appended && s->iov_max > KEPT_IOVECS) {
		free(s->iov);
		s->iov = NULL;
		s->iov_max = 0;
	}
}

void
out_drop(struct nbd_session *s)
{
	s->sent = s->appended;
	s->iov_pos = 0;
	s->iov_len = 0;
	free_sent(s);
}

/* --------------------------------------------------------------- replies */

/* The NBD error, chosen here and nowhere else. */
static uint32_t
wire_error(int error)
{
	switch (-error) {
	case 0: return 0;
	case EPERM:
	case EACCES:
	case EROFS: return NBD_EPERM;
	case ENOMEM: return NBD_ENOMEM;
	case EINVAL: return NBD_EINVAL;
	case ENOSPC:
	case EDQUOT:
	case EFBIG: return NBD_ENOSPC;
	case EOVERFLOW: return NBD_EOVERFLOW;
	case EOPNOTSUPP: return NBD_ENOTSUP;
	case ESHUTDOWN: return NBD_ESHUTDOWN;
	}
	return NBD_EIO; /* what a device fails with (N121) */
}

static void
header_put(char *p, uint64_t cookie, uint32_t error)
{
	p = put_be32(p, NBD_SIMPLE_REPLY_MAGIC);
	p = put_be32(p, error);
	put_be64(p, cookie);
}

void
reply_simple(struct nbd_session *s, uint64_t cookie, int error)
{
	char header[NBD_SIMPLE_REPLY_SIZE];
	struct block *b;

	if (s->aborted)
		return;
	b = block_get(s, sizeof(header));
	if (b == NULL)
		return;
	header_put(header, cookie, wire_error(error));
	block_add(s, b, header, sizeof(header));
}

static void
add_pieces(struct nbd_session *s, const struct bio *bio)
{
	unsigned i;

	for (i = 0; i < bio->nr_iov; i++)
		out_add(s, bio->iov[i].iov_base, bio->iov[i].iov_len);
}

/* The data of a read, wherever the driver has it. */
static void
add_data(struct nbd_session *s, const struct command *c)
{
	const struct part *p;
	const struct bio *piece;

	for (p = &c->first; p != NULL; p = p->next) {
		STAILQ_FOREACH(piece, &p->bio.pieces, link_piece)
			add_pieces(s, piece);
		add_pieces(s, &p->bio);
	}
}

void
reply_command(struct command *c)
{
	struct nbd_session *s = c->session;
	bool fast_zero = (c->flags & NBD_CMD_FLAG_FAST_ZERO) != 0;
	uint64_t start = s->appended;

	if (c->error == -EOPNOTSUPP && !fast_zero)
		c->error = -EINVAL; /* N121, N145 */
	if (c->type != NBD_CMD_READ || c->error != 0) {
		reply_simple(s, c->cookie, c->error);
		command_free(c);
		return;
	}
	if (c->reply != NULL) {
		header_put(c->reply, c->cookie, 0);
		out_add(s, c->reply, NBD_SIMPLE_REPLY_SIZE + c->length);
	} else {
		reply_simple(s, c->cookie, 0);
		add_data(s, c);
	}
	/* N125: the length of the data is not up to us any more */
	assert(s->aborted ||
	       s->appended - start == NBD_SIMPLE_REPLY_SIZE + c->length);
	c->sent_at = s->appended;
	STAILQ_INSERT_TAIL(&s->unsent, c, link);
}

/* ------------------------------------------------------- for the caller */

int
nbd_out(struct nbd_session *s, struct iovec *iov, int max)
{
	unsigned nr = s->iov_len - s->iov_pos;

	s->woken = false;
	if (s->aborted || max <= 0)
		return 0;
	if (nr > (unsigned)max)
		nr = (unsigned)max;
	if (nr > 0)
		memcpy(iov, &s->iov[s->iov_pos], nr * sizeof(*iov));
	return (int)nr;
}

void
nbd_sent(struct nbd_session *s, size_t n)
{
	struct iovec *iov;

	if (s->aborted)
		return;
	assert(n <= s->appended - s->sent);
	s->sent += n;
	while (n > 0 && n >= s->iov[s->iov_pos].iov_len)
		n -= s->iov[s->iov_pos++].iov_len;
	if (n > 0) {
		iov = &s->iov[s->iov_pos];
		iov->iov_base = (char *)iov->iov_base + n;
		iov->iov_len -= n;
	}
	if (s->sent == s->appended) {
		s->iov_pos = 0;
		s->iov_len = 0;
	}
	free_sent(s);
	session_unblock(s);
}

unsigned
nbd_in_flight(const struct nbd_session *s)
{
	return s->nr_started;
}
