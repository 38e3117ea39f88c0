/* SPDX-License-Identifier: MIT */
/*
 * One NBD conversation: its life, its limits, and the memory that its bytes
 * are read into.
 *
 *	in     [ parsed, perhaps writes | in_pos: rest of a request | free ]
 *	big    [ payload that has come | rest, read first ]
 *	head   [ what follows that, or the start of a request ]
 *
 * A session that has nothing partial has no chunk: an idle connection costs
 * no buffer.
 */
#include "nbd/session.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"

#define HANDSHAKE_CHUNK 4096u
#define CROWDED_NSEC    1000000u /* so often it is looked for room */

void
nbd_limits_init(struct nbd_limits *l)
{
	l->max_options = 1024;
	l->max_requests = 1024;
	l->max_bytes = 64u << 20;
	l->max_total = 0;
	atomic_init(&l->total, 0);
}

static void
greet(struct nbd_session *s)
{
	char buf[18], *p = buf;

	p = put_be64(p, NBD_MAGIC);
	p = put_be64(p, NBD_IHAVEOPT);
	put_be16(p, NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES);
	out_copy(s, buf, sizeof(buf)); /* N1 */
}

struct nbd_session *
nbd_session_new(const struct nbd_host *host, void (*wake)(void *arg), void *arg)
{
	struct nbd_session *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->host = host;
	s->wake = wake;
	s->wake_arg = arg;
	s->limits = host->limits;
	s->request_size = NBD_REQUEST_SIZE;
	option_reset(s);
	STAILQ_INIT(&s->pending);
	STAILQ_INIT(&s->stepping);
	STAILQ_INIT(&s->unsent);
	plug_init(&s->plug);
	order_init(&s->order);
	s->woken = true; /* the caller is here anyway */
	greet(s);
	if (s->aborted) {
		nbd_session_free(s);
		return NULL;
	}
	return s;
}

void
nbd_set_task(struct nbd_session *s, uint32_t task)
{
	s->task = task;
}

void
nbd_set_tls(struct nbd_session *s, enum nbd_tls tls)
{
	assert(s->phase == PHASE_FLAGS);
	s->tls = tls;
}

static void
in_drop(struct nbd_session *s)
{
	if (s->in != NULL)
		session_unref(s, s->in);
	s->in = NULL;
	s->in_pos = 0;
	s->in_len = 0;
}

/* What came of a request that will not be finished. */
static void
partial_drop(struct nbd_session *s)
{
	in_drop(s);
	s->nr_head = 0;
	s->drain = 0;
	s->in_option = false;
	if (s->big != NULL)
		command_free(s->big);
	s->big = NULL;
}

/* Nobody waits any more for what the device has. */
static void
give_up(struct nbd_session *s)
{
	if (s->cpu == NULL || atomic_load(&s->given_up))
		return;
	atomic_store(&s->given_up, true);
	queue_abandon(s->export->queue);
}

/* All that the block layer does not have. */
static void
drop(struct nbd_session *s, uint64_t now)
{
	s->aborted = true;
	partial_drop(s);
	submit_drop(s, now);
	out_drop(s);
	give_up(s);
}

void
nbd_abort(struct nbd_session *s, uint64_t now)
{
	s->woken = false;
	s->now = now;
	drop(s, now);
}

void
nbd_session_free(struct nbd_session *s)
{
	if (s == NULL)
		return;
	s->woken = true; /* who frees it is not to come again */
	drop(s, s->now);
	assert(s->nr_started == 0);
	assert(s->nr_commands == 0);
	assert(s->held == 0);
	free(s->iov);
	free(s);
}

void
nbd_attach(struct nbd_session *s, struct cpu *cpu, struct nbd_pool *pool)
{
	assert(s->phase == PHASE_TRANSMISSION);
	assert(s->cpu == NULL);
	s->cpu = cpu;
	s->pool = pool;
}

void
nbd_forget(struct nbd_session *s, const struct nbd_export *e)
{
	if (s->phase == PHASE_TRANSMISSION || s->contexts_of != e)
		return;
	s->contexts_of = NULL;
	s->contexts = 0;
}

bool
nbd_in_transmission(const struct nbd_session *s)
{
	return s->phase == PHASE_TRANSMISSION;
}

const struct nbd_export *
nbd_session_export(const struct nbd_session *s)
{
	return s->export;
}

unsigned
nbd_features(const struct nbd_session *s)
{
	unsigned features = 0;

	if (s->no_zeroes)
		features |= NBD_FEATURE_NO_ZEROES;
	if (s->agreed)
		features |= NBD_FEATURE_BLOCK_SIZE;
	if (s->structured)
		features |= NBD_FEATURE_STRUCTURED;
	if (s->extended)
		features |= NBD_FEATURE_EXTENDED;
	if (s->contexts != 0)
		features |= NBD_FEATURE_CONTEXTS;
	if (s->in_tls)
		features |= NBD_FEATURE_TLS;
	return features;
}

bool
nbd_wants_tls(const struct nbd_session *s)
{
	return s->tls_next && !s->aborted && s->sent == s->appended;
}

void
nbd_tls_begun(struct nbd_session *s)
{
	assert(nbd_wants_tls(s));
	assert(session_avail(s) == 0);
	s->tls_next = false;
	s->in_tls = true;
	option_reset(s);
}

int
session_fail(struct nbd_session *s, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->text, sizeof(s->text), fmt, ap);
	va_end(ap);
	s->error = err;
	s->aborted = true;
	session_wake(s);
	return err;
}

const char *
nbd_error(const struct nbd_session *s)
{
	return s->text;
}

void
session_wake(struct nbd_session *s)
{
	if (s->woken)
		return;
	s->woken = true;
	s->wake(s->wake_arg);
}

/* ---------------------------------------------------------------- limits */

/* Do all together hold as much as they may? */
static bool
is_crowded(const struct nbd_session *s)
{
	const struct nbd_limits *l = s->limits;

	return l->max_total > 0 && atomic_load_explicit(&l->total,
				       memory_order_relaxed) >= l->max_total;
}

bool
session_full(struct nbd_session *s)
{
	unsigned others = s->nr_commands - (s->big != NULL);

	s->crowded = false;
	if (out_full(s))
		return true;
	if (others == 0)
		return false; /* one alone is let in whatever it takes */
	if (s->nr_commands >= s->limits->max_requests ||
	    s->held >= s->limits->max_bytes)
		return true;
	s->crowded = is_crowded(s);
	return s->crowded;
}

void
session_hold(struct nbd_session *s, size_t bytes)
{
	s->held += bytes;
	if (s->limits->max_total > 0)
		atomic_fetch_add_explicit(
		    &s->limits->total, bytes, memory_order_relaxed);
}

void
session_release(struct nbd_session *s, size_t bytes)
{
	s->held -= bytes;
	if (s->limits->max_total > 0 && bytes > 0)
		atomic_fetch_sub_explicit(
		    &s->limits->total, bytes, memory_order_relaxed);
}

bool
session_may_hold(const struct nbd_session *s, size_t bytes)
{
	const struct nbd_limits *l = s->limits;
	size_t others;

	if (l->max_total == 0)
		return true;
	others =
	    atomic_load_explicit(&l->total, memory_order_relaxed) - s->held;
	return others == 0 || others + bytes <= 2 * l->max_total;
}

void
session_unblock(struct nbd_session *s)
{
	if (s->blocked && !session_full(s))
		session_wake(s);
}

struct chunk *
session_chunk(struct nbd_session *s, size_t size)
{
	struct chunk *c = chunk_new(s->pool, size);

	if (c != NULL)
		session_hold(s, c->size);
	return c;
}

void
session_unref(struct nbd_session *s, struct chunk *c)
{
	c->refs--;
	if (c == s->out && c->refs == 1) { /* nobody but us: no reply in it */
		s->out = NULL;
		c->refs--;
	}
	if (c->refs > 0)
		return;
	session_release(s, c->size);
	chunk_free(s->pool, c);
}

char *
session_reply(struct nbd_session *s, size_t size, struct chunk **chunk)
{
	struct chunk *full = s->out;
	char *room;

	if (full == NULL || full->size - s->out_used < size) {
		s->out = session_chunk(s, NBD_CHUNK);
		s->out_used = 0;
		if (full != NULL)
			session_unref(s, full);
		if (s->out == NULL)
			return NULL;
	}
	room = s->out->data + s->out_used;
	s->out_used += size;
	s->out->refs++;
	*chunk = s->out;
	return room;
}

/* ----------------------------------------------------------------- input */

int
session_room(struct nbd_session *s, size_t size)
{
	size_t len = session_avail(s);
	struct chunk *c = s->in;

	if (c->size - s->in_pos >= size)
		return 0;
	if (c->refs > 1 || c->size < size) {
		c = session_chunk(s, size);
		if (c == NULL)
			return session_fail(s, -ENOMEM, "out of memory");
	}
	memmove(c->data, session_input(s), len);
	if (c != s->in)
		session_unref(s, s->in);
	s->in = c;
	s->in_pos = 0;
	s->in_len = len;
	return 0;
}

/* A chunk to read into, with the start of a request if there is one. */
static bool
in_new(struct nbd_session *s)
{
	bool handshake = s->phase != PHASE_TRANSMISSION;

	s->in = session_chunk(s, handshake ? HANDSHAKE_CHUNK : NBD_CHUNK);
	if (s->in == NULL) {
		session_fail(s, -ENOMEM, "out of memory");
		return false;
	}
	memcpy(s->in->data, s->head, s->nr_head);
	s->in_pos = 0;
	s->in_len = s->nr_head;
	s->nr_head = 0;
	return true;
}

bool
nbd_listens(struct nbd_session *s)
{
	if (s->aborted || s->closing || s->eof || s->tls_next || s->hangs_up)
		return false;
	if (s->phase == PHASE_TRANSMISSION && s->cpu == NULL)
		return false;
	s->blocked = s->blocked || session_full(s);
	return !s->blocked;
}

int
nbd_want(struct nbd_session *s, struct iovec *iov, int max)
{
	size_t room, left;
	int nr = 0;

	if (max <= 0 || !nbd_listens(s))
		return 0;
	if (s->big != NULL) {
		assert(s->in == NULL && s->nr_head == 0);
		left = s->big->req.length - s->big_done;
		nr = command_want(s->big, s->big_done, iov, max);
	}
	if (nr > 0) {
		if (nr < max && iov_bytes(iov, nr) == left)
			iov[nr++] = (struct iovec){ s->head, s->request_size };
		return nr;
	}
	if (s->in == NULL && !in_new(s))
		return 0;
	room = s->in->size - s->in_len;
	/* after a large write: what follows it may be another one's */
	if (s->was_big && s->drain == 0 && room > s->request_size)
		room = s->request_size;
	*iov = (struct iovec){ s->in->data + s->in_len, room };
	return 1;
}

/* `n` bytes are where nbd_want() said. */
static void
take(struct nbd_session *s, size_t n)
{
	size_t rest;

	if (s->closing || s->eof)
		return;
	if (s->big != NULL) {
		rest = s->big->req.length - s->big_done;
		if (rest > n)
			rest = n;
		s->big_done += (uint32_t)rest;
		s->nr_head = (unsigned)(n - rest);
		if (s->big_done == s->big->req.length)
			command_received(s);
		return;
	}
	assert(n == 0 || (s->in != NULL && n <= s->in->size - s->in_len));
	s->in_len += n;
}

/* Keep no more than a later call needs. */
static void
tidy(struct nbd_session *s)
{
	bool attached = s->phase != PHASE_TRANSMISSION || s->cpu != NULL;
	size_t n = session_avail(s);

	if (s->closing || (s->eof && !s->blocked && attached)) {
		partial_drop(s);
		return;
	}
	if (s->phase == PHASE_TRANSMISSION && n < s->request_size && n > 0) {
		memcpy(s->head, session_input(s), n);
		s->nr_head = (unsigned)n;
		n = 0;
	}
	if (n == 0)
		in_drop(s);
}

/* Is the rest of a request on its way? */
static bool
awaits_more(struct nbd_session *s)
{
	return nbd_listens(s) && (s->big != NULL || s->drain > 0 ||
				     s->nr_head > 0 || s->in != NULL);
}

int
nbd_got(struct nbd_session *s, size_t n, bool more, uint64_t now)
{
	int err = s->error;

	s->woken = false;
	s->now = now;
	if (!s->aborted) {
		take(s, n);
		if (s->phase != PHASE_TRANSMISSION)
			err = option_parse(s);
		if (err == 0 && s->big == NULL &&
		    s->nr_head == s->request_size && !in_new(s))
			err = s->error;
		if (err == 0 && s->cpu != NULL)
			err = command_parse(s);
	}
	if (s->aborted) {
		nbd_abort(s, now);
		return s->error;
	}
	tidy(s);
	if (s->cpu != NULL && !more)
		submit_pending(s, awaits_more(s), now);
	if (s->closing || s->eof)
		give_up(s); /* a request that hangs would keep it for ever */
	return err;
}

/*
 * Of a client that may be gone nothing is done for days: a zeroing of 2^62
 * bytes fails where it is.
 */
static void
steps_shorten(struct nbd_session *s)
{
	struct command *c, *next;

	for (c = STAILQ_FIRST(&s->stepping); c != NULL; c = next) {
		next = STAILQ_NEXT(c, link);
		if ((c->step_end - c->step_pos) / c->step_bytes <
		    NBD_LAST_STEPS)
			continue;
		command_give_up(c);
	}
}

void
nbd_eof(struct nbd_session *s, uint64_t now)
{
	s->eof = true;
	steps_shorten(s);
	nbd_got(s, 0, false, now);
}

void
nbd_shutdown(struct nbd_session *s)
{
	s->shutdown = true;
	session_wake(s);
}

void
nbd_expire(struct nbd_session *s, uint64_t now)
{
	if (s->cpu != NULL && !s->aborted)
		submit_drop(s, now);
}

uint64_t
nbd_next(const struct nbd_session *s)
{
	if (s->aborted)
		return NBD_NEVER;
	if (s->stalled || s->woken)
		return NBD_STALLED;
	if (s->has_steps)
		return s->now + 1;    /* in the next turn, not in this one */
	if (s->blocked && s->crowded) /* nobody tells it that others ended */
		return s->now + CROWDED_NSEC;
	return s->plug_open ? s->plug_until : NBD_NEVER;
}

bool
nbd_done(const struct nbd_session *s)
{
	bool partial = session_avail(s) > 0 || s->nr_head > 0 || s->drain > 0 ||
		       s->in_option;

	if (s->aborted)
		return s->nr_started == 0;
	if (s->nr_commands > 0 || s->sent < s->appended || s->blocked)
		return false;
	if (s->closing)
		return true;
	return (s->eof || s->shutdown) && !partial;
}
