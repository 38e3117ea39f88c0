/* SPDX-License-Identifier: MIT */
/*
 * For the tests of daemon/nbd: a client in arrays, and below the session the
 * real block layer on a driver that keeps its data in an array, too.
 *
 *	test -> client_send -> nbd_want/nbd_got -> block layer -> fake
 *	test <- struct reply <- nbd_out/nbd_sent <-
 *
 * Time is client->now, which only the test moves.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nbd/session.h"

/* ------------------------------------------------------------ the driver */

#define FAKE_SIZE  (8u << 20) /* bytes that are kept; beyond are zeros */
#define FAKE_LOG   4096u
#define FAKE_SPARE 64u

enum fake_end {
	FAKE_NOW,     /* requests end as they are queued */
	FAKE_SOFTIRQ, /* at the next cpu_run() */
	FAKE_HELD,    /* when the test says so: fake_release() */
};

struct fake_entry {
	uint8_t op;
	uint16_t flags;
	uint64_t pos, bytes;
	unsigned nr_segs, nr_bios;
};

struct fake {
	char *data;
	enum fake_end end;
	bool busy;        /* say -EBUSY */
	bool moves_later; /* held requests move their data when released */
	int error;        /* what requests end with */
	enum bio_hang_up hang_up; /* the same of the bio at hang_up_pos */
	uint64_t hang_up_pos;
	unsigned piece; /* bytes of a piece of a read */
	bool sparse;    /* pieces, and short reads, that are 0 are holes */
	unsigned nr_pinned;
	struct request_list held;
	unsigned nr_held;
	unsigned max_lent, nr_lent; /* pages */
	unsigned nr_kept;
	void *spare[FAKE_SPARE]; /* a sanitizer's malloc() takes long */
	unsigned nr_spare;
	struct fake_entry log[FAKE_LOG];
	unsigned nr_log;
};

/* Do drivers lend pages for the data of writes? */
static bool fake_lends;

/* What a sparse one shows for a hole. */
static const char fake_zeros[65536];

static inline bool
is_zero(const char *p, size_t len)
{
	return len == 0 || (*p == 0 && memcmp(p, p + 1, len - 1) == 0);
}

static inline void
fake_unpin(struct bio *bio, struct cpu *cpu)
{
	struct fake *f = cpu->machine->wake_arg;

	f->nr_pinned--;
	free(bio->iov[bio->nr_iov].iov_base);
	free(bio->iov);
}

static inline void
fake_read(const struct fake *f, uint64_t pos, char *to, uint64_t len)
{
	uint64_t n = pos < FAKE_SIZE ? FAKE_SIZE - pos : 0;

	if (n > len)
		n = len;
	memcpy(to, f->data + (n > 0 ? pos : 0), n);
	memset(to + n, 0, len - n);
}

static inline void
fake_write(struct fake *f, uint64_t pos, const char *from, uint64_t len)
{
	if (pos < FAKE_SIZE)
		memcpy(f->data + pos, from,
		    len < FAKE_SIZE - pos ? len : FAKE_SIZE - pos);
}

/* A snapshot, as pages that are pinned would be, in several pieces. */
static inline void
fake_pin(struct fake *f, struct bio *bio)
{
	unsigned max = (unsigned)(bio->bytes / f->piece + 2), nr = 0;
	char *copy = malloc(bio->bytes);
	uint64_t i, n;

	bio->iov = calloc(max, sizeof(struct iovec));
	assert_non_null(copy);
	assert_non_null(bio->iov);
	fake_read(f, bio->pos, copy, bio->bytes);
	for (i = 0; i < bio->bytes; i += n) {
		n = f->piece < bio->bytes - i ? f->piece : bio->bytes - i;
		bio->iov[nr++] = (struct iovec){ copy + i, n };
		if (f->sparse && is_zero(copy + i, n))
			bio->iov[nr - 1].iov_base = (void *)fake_zeros;
	}
	bio->nr_iov = nr;
	bio->iov[nr].iov_base = copy;
	bio->unpin = fake_unpin;
	f->nr_pinned++;
}

/* Whoever looks at it later does not find data. */
static inline void
fake_free_page(struct fake *f, void *page)
{
	f->nr_lent--;
	memset(page, 0xdd, PAGE_SIZE);
	if (f->nr_spare < FAKE_SPARE)
		f->spare[f->nr_spare++] = page;
	else
		free(page);
}

/* From lent pages, which it "keeps" where they are written whole. */
static inline void
fake_write_pages(struct fake *f, struct bio *bio)
{
	uint64_t pos = bio->pos, end = pos + bio->bytes, n;
	void **page = bio->lent + (pos / PAGE_SIZE - bio->first_page);

	assert_null(bio->bv[0].base);
	for (; pos < end; pos += n, page++) {
		n = PAGE_SIZE - pos % PAGE_SIZE;
		if (n > end - pos)
			n = end - pos;
		fake_write(f, pos, (char *)*page + pos % PAGE_SIZE, n);
		if (n < PAGE_SIZE)
			continue;
		fake_free_page(f, *page);
		*page = NULL;
		f->nr_kept++;
	}
}

static inline void
fake_return_pages(
    struct queue *q, struct cpu *cpu, void *const *page, unsigned nr)
{
	struct fake *f = q->driver;
	unsigned i;

	(void)cpu;
	for (i = 0; i < nr; i++) {
		if (page[i] == NULL)
			continue;
		fake_free_page(f, page[i]);
	}
}

static inline unsigned
fake_lend_pages(struct queue *q, struct cpu *cpu, void **page, unsigned nr)
{
	struct fake *f = q->driver;
	unsigned i;

	(void)cpu;
	for (i = 0; i < nr && f->nr_lent < f->max_lent; i++) {
		page[i] = f->nr_spare > 0 ? f->spare[--f->nr_spare]
					  : aligned_alloc(PAGE_SIZE, PAGE_SIZE);
		if (page[i] == NULL)
			break;
		f->nr_lent++;
	}
	return i;
}

static inline void
fake_copy(struct fake *f, struct bio *bio)
{
	struct bvec_iter it = { 0 };
	struct bvec bv;
	uint64_t pos = bio->pos;

	if (bio->op == REQ_OP_READ && bio->bv[0].base == NULL) {
		fake_pin(f, bio);
		return;
	}
	if (bio->lent != NULL) {
		fake_write_pages(f, bio);
		return;
	}
	bio->hole = f->sparse && bio->op == REQ_OP_READ;
	for (; bio_next_bvec(bio, &it, &bv); pos += bv.len)
		if (bio->op == REQ_OP_READ) {
			fake_read(f, pos, bv.base, bv.len);
			bio->hole = bio->hole && is_zero(bv.base, bv.len);
		} else {
			fake_write(f, pos, bv.base, bv.len);
		}
	assert_int_equal(pos, bio->pos + bio->bytes);
}

static inline void
fake_move(struct fake *f, struct request *rq, struct cpu *cpu)
{
	struct bio *bio;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		if (rq->op == REQ_OP_READ || rq->op == REQ_OP_WRITE)
			fake_copy(f, bio);
		else if (bio->pos < FAKE_SIZE)
			memset(f->data + bio->pos, 0,
			    bio->bytes < FAKE_SIZE - bio->pos
				? bio->bytes
				: FAKE_SIZE - bio->pos);
	}
	rq_moved(rq, cpu);
}

static inline int
fake_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct fake *f = rq->hctx->queue->driver;
	struct fake_entry *e = &f->log[f->nr_log];
	struct bio *bio;

	if (f->busy)
		return -EBUSY;
	if (f->nr_log < FAKE_LOG) {
		f->nr_log++;
		*e = (struct fake_entry){ rq->op, rq->flags, rq->pos, rq->bytes,
			rq->nr_segs, 0 };
		STAILQ_FOREACH(bio, &rq->bios, link)
			e->nr_bios++;
	}
	STAILQ_FOREACH(bio, &rq->bios, link)
		if (bio->pos == f->hang_up_pos)
			bio->hang_up = (uint8_t)f->hang_up;
	rq->error = f->error;
	if (f->error == 0 && !(f->end == FAKE_HELD && f->moves_later))
		fake_move(f, rq, cpu);
	switch (f->end) {
	case FAKE_NOW: rq_complete(rq, cpu, now); break;
	case FAKE_SOFTIRQ: rq_complete_softirq(rq, cpu); break;
	case FAKE_HELD:
		TAILQ_INSERT_TAIL(&f->held, rq, link);
		f->nr_held++;
		break;
	}
	return 0;
}

static const struct queue_ops fake_ops = { .queue_rq = fake_queue_rq };
static const struct queue_ops fake_lending_ops = {
	.queue_rq = fake_queue_rq,
	.lend_pages = fake_lend_pages,
	.return_pages = fake_return_pages,
};

/* ------------------------------------------------------------ bytes out */

struct bytes {
	char *p;
	size_t len, max;
};

/* Room for `len` bytes more; where they go. */
static inline char *
bytes_room(struct bytes *b, size_t len)
{
	if (b->len + len > b->max) {
		b->max = 2 * (b->len + len);
		b->p = realloc(b->p, b->max);
		assert_non_null(b->p);
	}
	b->len += len;
	return b->p + b->len - len;
}

static inline void
bytes_add(struct bytes *b, const void *data, size_t len)
{
	if (len > 0)
		memcpy(bytes_room(b, len), data, len);
}

static inline void
bytes_be(struct bytes *b, uint64_t v, unsigned size)
{
	char buf[8];

	put_be64(buf, v);
	bytes_add(b, buf + 8 - size, size);
}

static inline void
bytes_fill(struct bytes *b, char c, size_t len)
{
	if (len > 0)
		memset(bytes_room(b, len), c, len);
}

static inline void
bytes_free(struct bytes *b)
{
	free(b->p);
	*b = (struct bytes){ 0 };
}

static inline void
add_option(struct bytes *b, uint32_t nr, const void *data, size_t len)
{
	bytes_be(b, NBD_IHAVEOPT, 8);
	bytes_be(b, nr, 4);
	bytes_be(b, len, 4);
	bytes_add(b, data, len);
}

/* INFO or GO; the infos end with -1. */
static inline void
add_info(struct bytes *b, uint32_t nr, const char *name, ...)
{
	struct bytes d = { 0 };
	unsigned count = 0;
	va_list ap;
	int i;

	bytes_be(&d, strlen(name), 4);
	bytes_add(&d, name, strlen(name));
	va_start(ap, name);
	while (va_arg(ap, int) >= 0)
		count++;
	va_end(ap);
	bytes_be(&d, count, 2);
	va_start(ap, name);
	while ((i = va_arg(ap, int)) >= 0)
		bytes_be(&d, (unsigned)i, 2);
	va_end(ap);
	add_option(b, nr, d.p, d.len);
	bytes_free(&d);
}

/* How the client of a test has agreed to speak: NBD_FEATURE_*. */
static unsigned speaks;

static inline void
add_request(struct bytes *b, uint16_t type, uint16_t flags, uint64_t cookie,
    uint64_t offset, uint64_t length)
{
	bool extended = (speaks & NBD_FEATURE_EXTENDED) != 0;

	if (extended && type == NBD_CMD_WRITE)
		flags |= NBD_CMD_FLAG_PAYLOAD_LEN;
	bytes_be(b, extended ? NBD_EXT_REQUEST_MAGIC : NBD_REQUEST_MAGIC, 4);
	bytes_be(b, flags, 2);
	bytes_be(b, type, 2);
	bytes_be(b, cookie, 8);
	bytes_be(b, offset, 8);
	bytes_be(b, length, extended ? 8 : 4);
}

static inline void
add_write(struct bytes *b, uint64_t cookie, uint64_t offset, uint32_t length,
    char fill)
{
	add_request(b, NBD_CMD_WRITE, 0, cookie, offset, length);
	bytes_fill(b, fill, length);
}

/* ------------------------------------------------------------ the client */

struct client {
	struct machine *machine;
	struct cpu *cpu;
	struct queue *queue;
	struct fake fake;
	struct nbd_export export[4];
	unsigned nr_exports;
	struct nbd_host host;
	struct nbd_limits limits;
	struct nbd_pool *pool;
	struct nbd_session *session;
	uint64_t now;
	unsigned nr_wakes;
	bool woken;
	bool eager;      /* reads again at once after a read that was filled */
	bool more;       /* it will */
	size_t step;     /* bytes a read brings at most */
	size_t out_step; /* bytes a write takes at most */
	bool deaf;       /* reads nothing */
	int error;       /* of nbd_got() */
	size_t max_held; /* the most that the session held */
	struct bytes in; /* what came from the session */
	size_t in_pos;   /* looked at */
};

static inline const struct nbd_export *
client_list(void *arg, unsigned i)
{
	struct client *c = arg;

	return i < c->nr_exports ? &c->export[i] : NULL;
}

static inline const struct nbd_export *
client_lookup(void *arg, const char *name)
{
	struct client *c = arg;
	unsigned i;

	for (i = 0; i < c->nr_exports; i++)
		if (name[0] == '\0' || strcmp(name, c->export[i].name) == 0)
			return &c->export[i];
	return NULL;
}

static inline void
client_wake(void *arg)
{
	struct client *c = arg;

	c->woken = true;
	c->nr_wakes++;
}

/* What a queue is made of; a test changes it before client_new(). */
struct world {
	const char *kernel;
	unsigned depth;
	unsigned page_order;
	bool single_page;
	struct limits limits;
};

static inline struct world
world_default(void)
{
	struct world w = { .kernel = "6.12", .depth = 256 };

	limits_init(&w.limits);
	w.limits.max_discard_sectors = UINT32_MAX >> SECTOR_SHIFT;
	return w;
}

static inline void
client_connect(struct client *c)
{
	c->session = nbd_session_new(&c->host, client_wake, c);
	assert_non_null(c->session);
	c->in.len = 0;
	c->in_pos = 0;
	c->error = 0;
	c->woken = false;
	c->nr_wakes = 0;
	c->max_held = 0;
}

static inline struct client *
client_new(const struct world *world)
{
	struct world w = world != NULL ? *world : world_default();
	struct client *c = calloc(1, sizeof(*c));
	struct queue_conf conf = {
		.profile = profile_find(w.kernel),
		.limits = w.limits,
		.nr_hw_queues = 1,
		.depth = w.depth,
		.multipage = !w.single_page,
		.iostats = true,
	};

	assert_non_null(c);
	c->machine = machine_new(1, NULL, &c->fake);
	assert_non_null(c->machine);
	c->cpu = &c->machine->cpu[0];
	c->fake.data = calloc(1, FAKE_SIZE);
	c->fake.piece = 4096;
	c->fake.max_lent = UINT32_MAX;
	TAILQ_INIT(&c->fake.held);
	assert_int_equal(
	    queue_new(&c->queue, c->machine,
		fake_lends ? &fake_lending_ops : &fake_ops, &c->fake, &conf),
	    0);
	c->export[0] = (struct nbd_export){
		.name = "disk",
		.description = "a fake",
		.queue = c->queue,
		.size = FAKE_SIZE,
		.can_trim = true,
		.can_zero = w.limits.max_write_zeroes_sectors > 0,
		.min_block = 512,
		.pref_block = 4096,
		.page_order = w.page_order,
	};
	c->nr_exports = 1;
	nbd_limits_init(&c->limits);
	c->host =
	    (struct nbd_host){ client_lookup, client_list, c, &c->limits };
	c->pool = nbd_pool_new();
	c->now = 1000000000;
	c->step = SIZE_MAX;
	c->out_step = SIZE_MAX;
	client_connect(c);
	return c;
}

static inline void fake_release(struct client *c, unsigned nr);

static inline void
client_disconnect(struct client *c)
{
	nbd_abort(c->session, c->now);
	c->fake.busy = false;
	fake_release(c, UINT32_MAX);
	cpu_run(c->cpu, c->now);
	fake_release(c, UINT32_MAX);
	assert_int_equal(nbd_in_flight(c->session), 0);
	nbd_session_free(c->session);
	c->session = NULL;
	assert_int_equal(c->fake.nr_pinned, 0);
	assert_int_equal(c->fake.nr_lent, 0);
	assert_int_equal(queue_tags_in_use(c->queue), 0);
}

static inline void
client_free(struct client *c)
{
	if (c->session != NULL)
		client_disconnect(c);
	nbd_pool_free(c->pool);
	queue_free(c->queue);
	machine_free(c->machine);
	while (c->fake.nr_spare > 0)
		free(c->fake.spare[--c->fake.nr_spare]);
	free(c->fake.data);
	bytes_free(&c->in);
	free(c);
}

/* Read what the session has to say. */
static inline void
client_receive(struct client *c)
{
	struct iovec iov[16];
	size_t sent, n;
	int nr, i;

	while (!c->deaf && (nr = nbd_out(c->session, iov, 16)) > 0) {
		for (i = 0, sent = 0; i < nr && sent < c->out_step; i++) {
			n = iov[i].iov_len;
			if (n > c->out_step - sent)
				n = c->out_step - sent;
			bytes_add(&c->in, iov[i].iov_base, n);
			sent += n;
		}
		nbd_sent(c->session, sent);
	}
}

static inline void
client_got(struct client *c, size_t n)
{
	int err = nbd_got(c->session, n, c->more, c->now);

	if (err != 0 && c->error == 0)
		c->error = err;
	if (c->session->held > c->max_held)
		c->max_held = c->session->held;
	if (nbd_in_transmission(c->session) && c->session->cpu == NULL &&
	    err == 0) {
		nbd_attach(c->session, c->cpu, c->pool);
		client_got(c, 0);
	}
}

/* A turn of the loop; true if something happened. */
static inline bool
client_turn(struct client *c)
{
	bool woken = c->woken;
	uint64_t next = nbd_next(c->session);

	c->woken = false;
	if (woken || next <= c->now || c->session->has_steps)
		client_got(c, 0);
	cpu_run(c->cpu, c->now);
	client_receive(c);
	return woken || c->woken || c->session->has_steps;
}

/* Turns until nothing moves any more. */
static inline void
client_settle(struct client *c)
{
	while (client_turn(c))
		;
}

/* One read of the socket; how much of it was taken. */
static inline size_t
client_read(struct client *c, const char *data, size_t len)
{
	struct iovec iov[5];
	int nr = nbd_want(c->session, iov, 5), i;
	size_t done = 0, n = 0;

	c->more = false;
	if (nr == 0)
		return 0;
	if (len > c->step)
		len = c->step;
	for (i = 0; i < nr && done < len; i++) {
		n = iov[i].iov_len < len - done ? iov[i].iov_len : len - done;
		memcpy(iov[i].iov_base, data + done, n);
		done += n;
	}
	c->more = c->eager && i == nr && iov[nr - 1].iov_len == n;
	client_got(c, done);
	return done;
}

/* Send bytes, as long as the session takes them; how many it took. */
static inline size_t
client_push(struct client *c, const char *data, size_t len)
{
	size_t done = 0, n;

	while (done < len && c->error == 0) {
		n = client_read(c, data + done, len - done);
		if (!c->more)
			client_settle(c);
		if (n == 0 && !nbd_listens(c->session))
			break;
		done += n;
	}
	if (c->more) {
		c->more = false;
		client_got(c, 0);
		client_settle(c);
	}
	return done;
}

/* Send all of it; it is taken, or the session has ended. */
static inline void
client_send(struct client *c, struct bytes *b)
{
	size_t done = client_push(c, b->p, b->len);

	if (c->error == 0 && !c->session->closing)
		assert_int_equal(done, b->len);
	bytes_free(b);
	client_settle(c);
}

/* End up to `nr` held requests, the oldest first. */
static inline void
fake_release(struct client *c, unsigned nr)
{
	struct request *rq;

	while (nr-- > 0 && (rq = TAILQ_FIRST(&c->fake.held)) != NULL) {
		TAILQ_REMOVE(&c->fake.held, rq, link);
		c->fake.nr_held--;
		if ((rq->rq_flags & RQF_MOVED) == 0 && rq->error == 0)
			fake_move(&c->fake, rq, c->cpu);
		rq_complete(rq, c->cpu, c->now);
	}
}

/* ---------------------------------------------------- what came from it */

static inline const char *
expect_bytes(struct client *c, size_t len)
{
	const char *p = c->in.p + c->in_pos;

	assert_true(c->in.len - c->in_pos >= len);
	c->in_pos += len;
	return p;
}

static inline void
expect_no_more(struct client *c)
{
	assert_int_equal(c->in.len - c->in_pos, 0);
}

static inline void
expect_greeting(struct client *c)
{
	const char *p = expect_bytes(c, 18);

	assert_true(get_be64(p) == NBD_MAGIC);
	assert_true(get_be64(p + 8) == NBD_IHAVEOPT);
	assert_int_equal(get_be16(p + 16), 3);
}

/* The reply to an option; its data is returned, its length in *len. */
static inline const char *
expect_option(struct client *c, uint32_t nr, uint32_t type, uint32_t *len)
{
	const char *p = expect_bytes(c, 20);

	assert_true(get_be64(p) == NBD_REP_MAGIC);
	assert_int_equal(get_be32(p + 8), nr);
	assert_int_equal(get_be32(p + 12), type);
	*len = get_be32(p + 16);
	if (type & 0x80000000u)
		assert_true(*len <= NBD_MAX_STRING);
	return expect_bytes(c, *len);
}

static inline void
expect_error(struct client *c, uint32_t nr, uint32_t type)
{
	uint32_t len;

	expect_option(c, nr, type, &len);
}

/* The same, without data. */
static inline void
expect_ack(struct client *c, uint32_t nr)
{
	uint32_t len;

	expect_option(c, nr, NBD_REP_ACK, &len);
	assert_int_equal(len, 0);
}

/* A simple reply; the data of a read follows when there is no error. */
static inline const char *
expect_reply(struct client *c, uint64_t cookie, uint32_t error, size_t len)
{
	const char *p = expect_bytes(c, 16);

	assert_int_equal(get_be32(p), NBD_SIMPLE_REPLY_MAGIC);
	assert_int_equal(get_be32(p + 4), error);
	assert_true(get_be64(p + 8) == cookie);
	return expect_bytes(c, error == 0 ? len : 0);
}

static inline void
expect_data(const char *data, char fill, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (data[i] != fill)
			fail_msg("byte %zu is %d, not %d", i, data[i], fill);
}

/* Flags, and GO with INFO_BLOCK_SIZE or without: in transmission. */
static inline void
client_go(struct client *c, bool agree)
{
	struct bytes b = { 0 };
	uint32_t len;

	bytes_be(&b, 3, 4);
	if (agree)
		add_info(&b, NBD_OPT_GO, "", NBD_INFO_BLOCK_SIZE, -1);
	else
		add_info(&b, NBD_OPT_GO, "", -1);
	client_send(c, &b);
	expect_greeting(c);
	expect_option(c, NBD_OPT_GO, NBD_REP_INFO, &len);
	if (agree)
		expect_option(c, NBD_OPT_GO, NBD_REP_INFO, &len);
	expect_ack(c, NBD_OPT_GO);
	expect_no_more(c);
	assert_true(nbd_in_transmission(c->session));
}

/* LIST or SET_META_CONTEXT of an export; the queries end with NULL. */
static inline void
add_contexts(struct bytes *b, uint32_t nr, const char *name, ...)
{
	struct bytes d = { 0 };
	const char *query;
	unsigned count = 0;
	va_list ap;

	bytes_be(&d, strlen(name), 4);
	bytes_add(&d, name, strlen(name));
	va_start(ap, name);
	while (va_arg(ap, const char *) != NULL)
		count++;
	va_end(ap);
	bytes_be(&d, count, 4);
	va_start(ap, name);
	while ((query = va_arg(ap, const char *)) != NULL) {
		bytes_be(&d, strlen(query), 4);
		bytes_add(&d, query, strlen(query));
	}
	va_end(ap);
	add_option(b, nr, d.p, d.len);
	bytes_free(&d);
}

/* In transmission, speaking as `speaks` says, with that context or none. */
static inline void
client_speak(struct client *c, const char *context)
{
	struct bytes b = { 0 };
	uint32_t len;

	bytes_be(&b, 3, 4);
	if (speaks & NBD_FEATURE_STRUCTURED)
		add_option(&b, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
	if (speaks & NBD_FEATURE_EXTENDED)
		add_option(&b, NBD_OPT_EXTENDED_HEADERS, NULL, 0);
	if (context != NULL)
		add_contexts(&b, NBD_OPT_SET_META_CONTEXT, "", context, NULL);
	add_info(&b, NBD_OPT_GO, "", -1);
	client_send(c, &b);
	expect_greeting(c);
	if (speaks & NBD_FEATURE_STRUCTURED)
		expect_ack(c, NBD_OPT_STRUCTURED_REPLY);
	if (speaks & NBD_FEATURE_EXTENDED)
		expect_ack(c, NBD_OPT_EXTENDED_HEADERS);
	if (context != NULL) {
		expect_option(
		    c, NBD_OPT_SET_META_CONTEXT, NBD_REP_META_CONTEXT, &len);
		expect_ack(c, NBD_OPT_SET_META_CONTEXT);
	}
	expect_option(c, NBD_OPT_GO, NBD_REP_INFO, &len);
	expect_ack(c, NBD_OPT_GO);
	expect_no_more(c);
}

/* A chunk of a reply, as `speaks` has it.  Its contents, and their length. */
static inline const char *
expect_chunk(struct client *c, uint64_t cookie, uint64_t offset, uint16_t type,
    bool last, uint64_t *len)
{
	bool extended = (speaks & NBD_FEATURE_EXTENDED) != 0;
	const char *p = expect_bytes(c, extended ? 32 : 20);

	assert_int_equal(
	    get_be32(p), extended ? NBD_EXT_REPLY_MAGIC : NBD_CHUNK_MAGIC);
	assert_int_equal(get_be16(p + 4), last ? NBD_CHUNK_DONE : 0);
	assert_int_equal(get_be16(p + 6), type);
	assert_true(get_be64(p + 8) == cookie);
	if (extended)
		assert_true(get_be64(p + 16) == offset); /* N171 */
	*len = extended ? get_be64(p + 24) : get_be32(p + 16);
	return expect_bytes(c, *len);
}

/* The end of a reply without data: where it may be simple, it is. */
static inline void
expect_success(struct client *c, uint64_t cookie, uint64_t offset)
{
	uint64_t len;

	if ((speaks & NBD_FEATURE_EXTENDED) == 0) {
		expect_reply(c, cookie, 0, 0);
		return;
	}
	expect_chunk(c, cookie, offset, NBD_CHUNK_NONE, true, &len);
	assert_int_equal(len, 0);
}

/* An error chunk; at: ERROR_OFFSET, there.  Its text, with a NUL. */
static inline const char *
expect_failure(struct client *c, uint64_t cookie, uint64_t offset,
    uint32_t error, const uint64_t *at)
{
	static char text[NBD_MAX_STRING + 1];
	uint64_t len;
	const char *p = expect_chunk(c, cookie, offset,
	    at != NULL ? NBD_CHUNK_ERROR_OFFSET : NBD_CHUNK_ERROR, true, &len);
	uint16_t n = get_be16(p + 4);

	assert_int_equal(get_be32(p), error);
	assert_int_equal(len, 6u + n + (at != NULL ? 8 : 0)); /* N133 */
	if (at != NULL)
		assert_true(get_be64(p + 6 + n) == *at);
	memcpy(text, p + 6, n);
	text[n] = '\0';
	return text;
}

/* A test of what both forms of chunks have. */
static inline void
in_both(void (*test)(void))
{
	speaks = NBD_FEATURE_STRUCTURED;
	test();
	speaks = NBD_FEATURE_EXTENDED;
	test();
	speaks = 0;
}

/* One request alone, sent and served. */
static inline void
client_request(struct client *c, uint16_t type, uint16_t flags, uint64_t cookie,
    uint64_t offset, uint64_t length)
{
	struct bytes b = { 0 };

	add_request(&b, type, flags, cookie, offset, length);
	client_send(c, &b);
}

static inline void
client_write(struct client *c, uint64_t cookie, uint64_t offset,
    uint32_t length, char fill)
{
	struct bytes b = { 0 };

	add_write(&b, cookie, offset, length, fill);
	client_send(c, &b);
}

/* -------------------------------------------------------------- the tests */

static inline int
fake_lends_now(void **state)
{
	(void)state;
	fake_lends = true;
	return 0;
}

/* All of them twice: the second time with a driver that lends pages. */
#define RUN_BOTH_WAYS(tests)                                      \
	(cmocka_run_group_tests_name(#tests, tests, NULL, NULL) + \
	    cmocka_run_group_tests_name(                          \
		#tests ", lending pages", tests, fake_lends_now, NULL))

#endif
