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
 *
 * A reply is simple, or, where that was agreed on, chunks:
 *
 *	simple    |16|-- data --|
 *	chunks    |20|8|-- data --||20|12 a hole||20|8|-- data --|
 *	extended  the same with headers of 32
 */
#include "nbd/session.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_IOVECS 64u
#define KEPT_IOVECS  1024u /* of a table, when all was sent */

#define OFFSET_DATA_SIZE 8u   /* before the data: u64 offset */
#define OFFSET_HOLE_SIZE 12u  /* u64 offset, u32 length */
#define MAX_ERROR_TEXT   160u /* far below NBD_MAX_STRING (N133) */
#define MAX_ERROR_CHUNK  (6 + MAX_ERROR_TEXT + 8)
#define MAX_CHUNK_FRONT  (NBD_EXT_REPLY_SIZE + MAX_ERROR_CHUNK)

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
	if (s->aborted || s->hangs_up || len == 0)
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

/* Where it lies from then on. */
static char *
block_add(struct nbd_session *s, struct block *b, const void *data, size_t len)
{
	char *at = b->data + b->used;

	memcpy(at, data, len);
	b->used += (unsigned)len;
	out_add(s, at, len);
	b->end = s->appended;
	return at;
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

void
out_check_end(struct nbd_session *s)
{
	if (s->hangs_up && !s->aborted && s->sent == s->appended)
		session_fail(s, -ECONNABORTED, "the device hangs up");
}

void
out_end(struct nbd_session *s, uint64_t to)
{
	struct command *c;
	struct iovec *last;
	struct block *b;
	size_t n;

	if (s->aborted || s->hangs_up)
		return;
	assert(to >= s->sent);
	for (; s->appended > to; s->appended -= n) {
		last = &s->iov[s->iov_len - 1];
		n = s->appended - to;
		if (n >= last->iov_len) {
			n = last->iov_len;
			s->iov_len--;
		}
		last->iov_len -= n;
	}
	for (b = s->first_block; b != NULL; b = b->next)
		if (b->end > to)
			b->end = to;
	STAILQ_FOREACH(c, &s->unsent, link)
		if (c->sent_at > to)
			c->sent_at = to;
	s->hangs_up = true;
	out_check_end(s);
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
	case EOPNOTSUPP: return NBD_ENOTSUP;
	case ESHUTDOWN: return NBD_ESHUTDOWN;
	}
	/* what a device fails with, EOVERFLOW, too: that is for reads (N121) */
	return NBD_EIO;
}

/* The kernel's errors of zones, whose texts are about something else. */
static const char *
describe(int error)
{
	switch (-error) {
	case ETOOMANYREFS: return "Too many open zones";
	case EOVERFLOW: return "Too many active zones";
	}
	return strerrordesc_np(-error);
}

static bool
has_chunks(const struct nbd_session *s)
{
	return s->structured || s->extended;
}

static size_t
chunk_header_size(const struct nbd_session *s)
{
	return s->extended ? NBD_EXT_REPLY_SIZE : NBD_CHUNK_HEADER_SIZE;
}

/* All but what chunk_finish() tells.  Returns where its contents begin. */
static char *
chunk_put(char *p, const struct nbd_session *s, const struct wire_request *req,
    uint16_t type)
{
	p = put_be32(p, s->extended ? NBD_EXT_REPLY_MAGIC : NBD_CHUNK_MAGIC);
	p = put_be16(p, 0);
	p = put_be16(p, type);
	p = put_be64(p, req->cookie);
	if (!s->extended)
		return put_be32(p, 0);
	p = put_be64(p, req->offset); /* N171 */
	return put_be64(p, 0);
}

char *
chunk_begin(struct nbd_session *s, const struct wire_request *req,
    uint16_t type, const void *data, size_t len)
{
	char front[MAX_CHUNK_FRONT], *p = front;
	struct block *b;

	assert(len <= MAX_ERROR_CHUNK);
	if (s->aborted)
		return NULL;
	b = block_get(s, sizeof(front));
	if (b == NULL)
		return NULL;
	p = chunk_put(p, s, req, type);
	if (len > 0)
		p = (char *)memcpy(p, data, len) + len;
	return block_add(s, b, front, (size_t)(p - front));
}

void
chunk_finish(const struct nbd_session *s, char *chunk, uint64_t len, bool last)
{
	if (chunk == NULL)
		return;
	put_be16(chunk + 4, last ? NBD_CHUNK_DONE : 0);
	if (s->extended)
		put_be64(chunk + 24, len);
	else
		put_be32(chunk + 16, (uint32_t)len);
}

/* ---- replies without data */

static void
simple_put(char *p, uint64_t cookie, uint32_t error)
{
	p = put_be32(p, NBD_SIMPLE_REPLY_MAGIC);
	p = put_be32(p, error);
	put_be64(p, cookie);
}

static void
reply_simple(struct nbd_session *s, uint64_t cookie, int error)
{
	char header[NBD_SIMPLE_REPLY_SIZE];
	struct block *b;

	if (s->aborted)
		return;
	b = block_get(s, sizeof(header));
	if (b == NULL)
		return;
	simple_put(header, cookie, error != 0 ? wire_error(error) : 0);
	block_add(s, b, header, sizeof(header));
}

static size_t
error_text(char out[MAX_ERROR_TEXT], const struct wire_request *req, int error,
    const char *why)
{
	const char *name = command_name(req->type);
	int n;

	if (why == NULL)
		why = describe(error);
	if (name == NULL)
		n = snprintf(
		    out, MAX_ERROR_TEXT, "command %u: %s", req->type, why);
	else
		n = snprintf(out, MAX_ERROR_TEXT,
		    "%s of %llu bytes at %llu: %s", name,
		    (unsigned long long)req->length,
		    (unsigned long long)req->offset, why);
	assert(n > 0);
	return n < (int)MAX_ERROR_TEXT ? (size_t)n : MAX_ERROR_TEXT - 1;
}

/* `at`: where it went wrong; NULL: nowhere in particular (N133). */
static void
reply_error(struct nbd_session *s, const struct wire_request *req, int error,
    const char *why, const uint64_t *at)
{
	char data[MAX_ERROR_CHUNK], text[MAX_ERROR_TEXT], *p = data;
	size_t len = error_text(text, req, error, why);
	uint16_t type = at != NULL ? NBD_CHUNK_ERROR_OFFSET : NBD_CHUNK_ERROR;

	p = put_be32(p, wire_error(error));
	p = put_be16(p, (uint16_t)len);
	p = (char *)memcpy(p, text, len) + len;
	if (at != NULL)
		p = put_be64(p, *at);
	len = (size_t)(p - data);
	chunk_finish(s, chunk_begin(s, req, type, data, len), len, true);
}

void
reply_plain(struct nbd_session *s, const struct wire_request *req, int error,
    const char *why)
{
	bool chunk = s->extended;

	/* a success without data may be simple, which is shorter (N77) */
	if (s->structured && (error != 0 || req->type == NBD_CMD_READ))
		chunk = true;
	if (!chunk)
		reply_simple(s, req->cookie, error);
	else if (error != 0)
		reply_error(s, req, error, why, NULL);
	else
		chunk_finish(
		    s, chunk_begin(s, req, NBD_CHUNK_NONE, NULL, 0), 0, true);
}

/* The device, or we, could not do it. */
static void
reply_failed(struct command *c)
{
	bool fast_zero = (c->req.flags & NBD_CMD_FLAG_FAST_ZERO) != 0;
	struct nbd_session *s = c->session;

	if (c->error == -EOPNOTSUPP && !fast_zero)
		c->error = -EINVAL; /* N121, N145 */
	/* N134: all but a flush, whatever its length says (N140) */
	if (has_chunks(s) && c->req.type != NBD_CMD_FLUSH)
		reply_error(s, &c->req, c->error, NULL, &c->error_pos);
	else
		reply_plain(s, &c->req, c->error, NULL);
	command_free(c);
}

/* ---- reads */

size_t
reply_read_header(const struct nbd_session *s)
{
	return has_chunks(s) ? chunk_header_size(s) + OFFSET_DATA_SIZE
			     : NBD_SIMPLE_REPLY_SIZE;
}

/* A run of data, or a hole, of a reply in chunks. */
struct run {
	bool skips; /* holes are told, not sent */
	bool hole;
	char *chunk; /* NULL: there is none yet */
	uint64_t pos, len;
};

static void
run_begin(struct run *run, const struct command *c, bool hole)
{
	char data[OFFSET_HOLE_SIZE];

	put_be32(put_be64(data, run->pos), 0);
	run->hole = hole;
	run->len = 0;
	if (hole)
		run->chunk = chunk_begin(c->session, &c->req,
		    NBD_CHUNK_OFFSET_HOLE, data, OFFSET_HOLE_SIZE);
	else
		run->chunk = chunk_begin(c->session, &c->req,
		    NBD_CHUNK_OFFSET_DATA, data, OFFSET_DATA_SIZE);
}

static void
run_end(struct run *run, const struct command *c, bool last)
{
	const struct nbd_session *s = c->session;
	char *chunk = run->chunk;

	if (chunk == NULL)
		return;
	if (run->hole) {
		put_be32(chunk + chunk_header_size(s) + 8, (uint32_t)run->len);
		chunk_finish(s, chunk, OFFSET_HOLE_SIZE, last);
	} else {
		chunk_finish(s, chunk, OFFSET_DATA_SIZE + run->len, last);
	}
	run->pos += run->len;
	run->chunk = NULL;
}

static bool
is_hole(const struct nbd_export *e, const struct iovec *iov)
{
	const char *base = iov->iov_base;

	return e->zeros != NULL && base >= e->zeros &&
	       base < e->zeros + e->zeros_size;
}

/* Data of a read, wherever the driver has it.  run NULL: no chunks. */
static void
add_pieces(const struct command *c, const struct bio *bio, struct run *run)
{
	const struct nbd_export *e = c->session->export;
	bool hole = false;
	unsigned i;

	for (i = 0; i < bio->nr_iov; i++) {
		const struct iovec *iov = &bio->iov[i];

		if (run != NULL) {
			hole = run->skips && is_hole(e, iov);
			if (run->chunk == NULL || hole != run->hole) {
				run_end(run, c, false);
				run_begin(run, c, hole);
			}
			run->len += iov->iov_len;
		}
		if (!hole)
			out_add(c->session, iov->iov_base, iov->iov_len);
	}
}

static void
add_data(const struct command *c, struct run *run)
{
	const struct part *p;
	const struct bio *piece;

	for (p = &c->first; p != NULL; p = p->next) {
		STAILQ_FOREACH(piece, &p->bio.pieces, link_piece)
			add_pieces(c, piece, run);
		add_pieces(c, &p->bio, run);
	}
}

static void
reply_pinned(struct command *c)
{
	struct nbd_session *s = c->session;
	struct run run = {
		.skips = (c->req.flags & NBD_CMD_FLAG_DF) == 0, /* N131 */
		.pos = c->req.offset,
	};
	uint64_t start;

	if (has_chunks(s)) {
		add_data(c, &run);
		run_end(&run, c, true);
		assert(s->aborted || run.pos == c->req.offset + c->req.length);
		return;
	}
	reply_simple(s, c->req.cookie, 0);
	start = s->appended;
	add_data(c, NULL);
	/* N125: the length of the data is not up to us any more */
	assert(s->aborted || s->appended - start == c->req.length);
}

/* Did the device hold nothing there? */
static bool
found_nothing(const struct command *c)
{
	const struct part *p;
	const struct bio *piece;

	for (p = &c->first; p != NULL; p = p->next) {
		if (!p->bio.hole)
			return false;
		STAILQ_FOREACH(piece, &p->bio.pieces, link_piece)
			if (!piece->hole)
				return false;
	}
	return true;
}

/* The data lies behind the room for its header. */
static void
reply_copied(struct command *c)
{
	struct nbd_session *s = c->session;
	size_t header = reply_read_header(s);
	bool skips = (c->req.flags & NBD_CMD_FLAG_DF) == 0;
	struct run run = { .pos = c->req.offset };

	if (!has_chunks(s)) {
		simple_put(c->reply, c->req.cookie, 0);
	} else if (skips && s->export->zeros != NULL && found_nothing(c)) {
		run_begin(&run, c, true);
		run.len = c->req.length;
		run_end(&run, c, true);
		return;
	} else {
		put_be64(chunk_put(c->reply, s, &c->req, NBD_CHUNK_OFFSET_DATA),
		    c->req.offset);
		chunk_finish(
		    s, c->reply, OFFSET_DATA_SIZE + c->req.length, true);
	}
	out_add(s, c->reply, header + c->req.length);
}

void
reply_keep(struct command *c)
{
	c->sent_at = c->session->appended;
	STAILQ_INSERT_TAIL(&c->session->unsent, c, link);
}

static void
reply_append(struct command *c)
{
	if (c->error != 0) {
		reply_failed(c);
		return;
	}
	if (c->req.type != NBD_CMD_READ) {
		reply_plain(c->session, &c->req, 0, NULL);
		command_free(c);
		return;
	}
	if (c->reply != NULL)
		reply_copied(c);
	else
		reply_pinned(c);
	reply_keep(c);
}

/* How much of a reply of `len` bytes goes out before it hangs up. */
static uint64_t
told(enum bio_hang_up when, uint64_t len)
{
	switch (when) {
	case HANG_UP_NEVER: break;
	case HANG_UP_BEFORE: return 0;
	case HANG_UP_EARLY: return NBD_SIMPLE_REPLY_SIZE / 2;
	case HANG_UP_HALFWAY: return len / 2;
	}
	return len;
}

void
reply_command(struct command *c)
{
	struct nbd_session *s = c->session;
	enum bio_hang_up when = c->hang_up;
	uint64_t start = s->appended;

	reply_append(c);
	if (when != HANG_UP_NEVER)
		out_end(s, start + told(when, s->appended - start));
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
	out_check_end(s);
	session_unblock(s);
	if (s->stalled && !out_full(s))
		session_wake(s); /* a BLOCK_STATUS may have waited for it */
}

unsigned
nbd_in_flight(const struct nbd_session *s)
{
	return s->nr_started;
}

unsigned
nbd_requests(const struct nbd_session *s)
{
	return s->nr_commands;
}
