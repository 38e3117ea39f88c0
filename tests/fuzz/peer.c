/* SPDX-License-Identifier: MIT */
#include "fuzz/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nbd/session.h"

#define START_NS   1000000000u
#define MAX_IOV    64
#define BUDGET     (512u << 10) /* bytes of a turn, as conn.c has it */
#define MAX_TURNS  1000000u     /* until something that waits has moved */
#define STILL      4u           /* turns in which nothing moves */
#define RETRIES    4u           /* in a turn, as loop.c has it */
#define MAX_REPLY  (20u << 10)  /* of 1024 extents, or in chunks of a page */
#define LEND_AHEAD (256u << 10) /* command.c: pages come so much early */

/* ------------------------------------------------- pages that were lent */

static unsigned
lend_pages(struct queue *q, struct cpu *cpu, void **page, unsigned nr)
{
	struct peer *p = cpu->machine->wake_arg;

	nr = p->driver->lend_pages(q, cpu, page, nr);
	p->nr_lent += nr;
	return nr;
}

static void
return_pages(struct queue *q, struct cpu *cpu, void *const *page, unsigned nr)
{
	struct peer *p = cpu->machine->wake_arg;

	CHECK(nr <= p->nr_lent, "more pages than were lent");
	p->nr_lent -= nr;
	p->driver->return_pages(q, cpu, page, nr);
}

/* -------------------------------------------------------------- the disk */

/*
 * What sessions of a thread use again and again, here for good: a buffer of
 * 256 KiB that is new for each input would cost more than most inputs do.
 */
static struct nbd_pool *
pool(void)
{
	static struct nbd_pool *kept;

	if (kept == NULL)
		kept = nbd_pool_new();
	CHECK(kept != NULL, "out of memory");
	return kept;
}

void
peer_init(struct peer *p, const struct peer_setting *settings)
{
	char err[256] = "";

	*p = (struct peer){ .now = START_NS };
	p->machine = machine_new(1, NULL, p);
	CHECK(p->machine != NULL, "out of memory");
	p->cpu = &p->machine->cpu[0];
	p->pages = page_pool_new(p->machine, 0);
	p->disk = disk_new("disk", p->machine, p->pages);
	p->pool = pool();
	CHECK(p->disk != NULL, "out of memory");
	for (; settings->name != NULL; settings++)
		CHECK(attr_set(disk_attrs, &p->disk->set, settings->name,
			  settings->value, false, err, sizeof(err)) == 0,
		    "%s", err);
	CHECK(disk_power_on(p->disk, p->now, err, sizeof(err)) == 0, "%s", err);
	p->driver = p->disk->queue->ops;
	p->ops = *p->driver;
	if (p->ops.lend_pages != NULL) {
		p->ops.lend_pages = lend_pages;
		p->ops.return_pages = return_pages;
	}
	p->disk->queue->ops = &p->ops;
}

static uint32_t
allocation(const struct nbd_export *e, struct cpu *cpu, uint64_t pos,
    uint64_t *len, unsigned *steps)
{
	struct disk *d = e->driver;

	if (d->store == NULL) {
		(*steps)--;
		return NBD_STATE_HOLE | NBD_STATE_ZERO;
	}
	return store_extent(d->store, cpu, pos, len, steps)
		   ? 0
		   : NBD_STATE_HOLE | NBD_STATE_ZERO;
}

static const struct nbd_context contexts[] = {
	{ "base:allocation", allocation },
	{},
};

/* As daemon/export.c has it. */
struct nbd_export *
peer_export(struct peer *p, const char *name, const char *description)
{
	const struct disk_conf *c = &p->disk->conf;
	const struct limits *lim = &p->disk->queue->limits;
	struct nbd_export *e = &p->export[p->nr_exports];

	CHECK(p->nr_exports < PEER_MAX_EXPORTS, "too many exports");
	p->nr_exports++;
	*e = (struct nbd_export){
		.name = name,
		.description = description,
		.queue = p->disk->queue,
		.size = disk_size(p->disk),
		.read_only = c->ro,
		.can_trim = lim->max_discard_sectors > 0,
		.can_zero = lim->max_write_zeroes_sectors > 0,
		.min_block = lim->logical_block_size,
		.pref_block = PAGE_SIZE,
		.page_order = c->page_order,
		.plug_nsec = c->plug_nsec,
		.contexts = contexts,
		.driver = p->disk,
	};
	if (p->disk->store != NULL) {
		e->zeros = store_zeros();
		e->zeros_size = STORE_ZEROS_SIZE;
	}
	return e;
}

static const struct nbd_export *
list(void *arg, unsigned i)
{
	struct peer *p = arg;

	return i < p->nr_exports ? &p->export[i] : NULL;
}

static const struct nbd_export *
lookup(void *arg, const char *name)
{
	struct peer *p = arg;

	for (unsigned i = 0; i < p->nr_exports; i++)
		if (name[0] == '\0' || strcmp(name, p->export[i].name) == 0)
			return &p->export[i];
	return NULL;
}

static void
wake(void *arg)
{
	struct peer *p = arg;

	p->woken = true;
}

void
peer_connect(struct peer *p, const uint8_t *cuts)
{
	for (unsigned i = 0; i < p->nr_exports; i++) {
		const struct nbd_export *e = &p->export[i];

		p->known[i] = (struct oracle_export){
			.name = e->name,
			.size = e->size,
			.min_block = e->min_block,
			.read_only = e->read_only,
			.can_trim = e->can_trim,
			.can_zero = e->can_zero,
			.keeps_data = p->disk->store != NULL,
			.may_fill = p->disk->conf.memory_limit > 0,
		};
	}
	nbd_limits_init(&p->limits);
	p->host = (struct nbd_host){ lookup, list, p, &p->limits };
	oracle_init(&p->oracle, p->known, p->nr_exports);
	p->cuts = cuts;
	p->session = nbd_session_new(&p->host, wake, p);
	CHECK(p->session != NULL, "out of memory");
}

/* -------------------------------------------------------------- the loop */

/* Bytes that the next read or write moves: few, but of much a part. */
static size_t
cut(unsigned choice, size_t left)
{
	static const size_t steps[8] = { SIZE_MAX, 1, 3, 16, 27, 29, 600,
		5000 };
	size_t step = steps[choice % 8];

	return step > left / 32 ? step : left / 32;
}

/* What it holds is bounded, and goes with what came. */
static void
check_bounds(const struct peer *p)
{
	const struct nbd_session *s = p->session;
	const struct nbd_limits *l = &p->limits;
	uint64_t lent = p->nr_lent << PAGE_SHIFT;

	CHECK(s->nr_commands <= l->max_requests, "%u requests", s->nr_commands);
	CHECK(s->held <= l->max_bytes + NBD_MAX_PAYLOAD + 4 * NBD_CHUNK,
	    "%zu bytes held", s->held);
	/* replies that were no more to be asked for, as those in flight */
	CHECK(s->nr_blocks * sizeof(struct block) <=
		  NBD_MAX_UNSENT + l->max_requests * MAX_REPLY + (64u << 10),
	    "%u blocks of replies", s->nr_blocks);
	CHECK(
	    lent <= p->nr_taken + p->nr_taken / 4 + LEND_AHEAD + 2 * PAGE_SIZE,
	    "%llu bytes lent for %llu", (unsigned long long)lent,
	    (unsigned long long)p->nr_taken);
}

static void
got(struct peer *p, size_t n, bool more)
{
	p->woken = false;
	p->error = nbd_got(p->session, n, more, p->now);
	check_bounds(p);
	if (p->error != 0)
		peer_abort(p);
}

/* One read.  True: there may be more at once, and there is budget. */
static bool
read_once(struct peer *p, size_t step, int max, size_t *budget)
{
	size_t left = bytes_left(&p->out), n, done = 0, room;
	const uint8_t *from = bytes_at(&p->out);
	struct iovec iov[MAX_IOV];
	int nr = nbd_want(p->session, iov, max);
	bool more;

	room = iov_bytes(iov, nr);
	n = left < room ? left : room;
	if (n > step)
		n = step;
	for (int i = 0; done < n; i++) {
		size_t part =
		    iov[i].iov_len < n - done ? iov[i].iov_len : n - done;

		memcpy(iov[i].iov_base, from + done, part);
		done += part;
	}
	if (n > 0)
		oracle_sent(&p->oracle, from, n);
	p->out.pos += n;
	p->nr_taken += n;
	more = n > 0 && n == room && n < *budget;
	*budget -= more ? n : 0;
	got(p, n, more);
	return more && !p->broken;
}

static void
read_some(struct peer *p, unsigned choice)
{
	size_t budget = BUDGET, step = cut(choice, bytes_left(&p->out));
	int max = choice & 8 ? MAX_IOV : 1 + (int)(choice % 3);

	while (read_once(p, step, max, &budget))
		;
	bytes_trim(&p->out);
}

/* What the socket takes of the output, in a few writes. */
static void
write_some(struct peer *p, unsigned choice)
{
	struct iovec iov[MAX_IOV];
	size_t step, sent, n;
	int nr, max = choice & 8 ? MAX_IOV : 1 + (int)(choice % 3);

	for (unsigned i = 0; i < 8 && !p->deaf && !p->broken; i++) {
		nr = nbd_out(p->session, iov, max);
		if (nr == 0)
			return;
		step = cut(choice, iov_bytes(iov, nr));
		sent = 0;
		for (int k = 0; k < nr && sent < step; k++) {
			n = iov[k].iov_len < step - sent ? iov[k].iov_len
							 : step - sent;
			oracle_got(&p->oracle, iov[k].iov_base, n);
			sent += n;
		}
		nbd_sent(p->session, sent);
		p->nr_got += sent;
	}
}

/* The main loop hands it over to a worker. */
static void
hand_over(struct peer *p)
{
	if (p->attached || p->broken || !nbd_in_transmission(p->session))
		return;
	nbd_attach(p->session, p->cpu, p->pool);
	p->attached = true;
	got(p, 0, false);
}

static void
settle_change(struct peer *p)
{
	char err[256] = "";
	int ret;

	if (p->disk->change == NULL)
		return;
	ret = disk_settle(p->disk, p->now, err, sizeof(err));
	CHECK(ret == 0 || ret == -EINPROGRESS || (ret == -EBUSY && *err != 0),
	    "a change: %d: %s", ret, err);
}

/* Nothing of the store is held any more. */
static void
rest(struct peer *p)
{
	epoch_leave(&p->machine->epoch, p->cpu->id);
	while (page_pool_idle(p->pages, p->cpu))
		;
}

/* A turn of the loop.  False: nothing has moved. */
static bool
turn(struct peer *p, bool reads)
{
	unsigned choice = p->cuts[p->nr_cuts++ % PEER_CUTS], flying, i;
	uint64_t moved = p->nr_taken + p->nr_got, next = CPU_NO_DEADLINE;
	bool changing = p->disk->change != NULL, woken = p->woken;

	flying = nbd_in_flight(p->session);
	epoch_enter(&p->machine->epoch, p->cpu->id);
	if (reads && !p->broken)
		read_some(p, choice & 15);
	for (i = 0; i < RETRIES; i++) {
		if (p->woken || changing || nbd_next(p->session) <= p->now)
			got(p, 0, false);
		next = cpu_run(p->cpu, p->now);
		if (!p->woken && !cpu_tag_freed(p->cpu))
			break;
	}
	write_some(p, choice >> 4);
	hand_over(p);
	check_bounds(p);
	rest(p);
	settle_change(p);
	p->next = next;
	if (nbd_next(p->session) != NBD_STALLED &&
	    nbd_next(p->session) < p->next)
		p->next = nbd_next(p->session);
	/* as in loop.c: after so many retries others come first */
	return i == RETRIES || p->nr_taken + p->nr_got != moved || woken ||
	       p->woken || nbd_in_flight(p->session) != flying ||
	       changing != (p->disk->change != NULL);
}

void
peer_push(struct peer *p, unsigned nr)
{
	while (nr-- > 0 && bytes_left(&p->out) > 0 && !p->broken)
		turn(p, true);
}

/*
 * Turns until nothing moves, and then to the next deadline, and on.  A loop
 * that is busy for ever is a bug.
 */
static void
run(struct peer *p, bool reads)
{
	unsigned still = 0;

	for (unsigned i = 0; !nbd_done(p->session); i++) {
		CHECK(i < MAX_TURNS, "the loop spins");
		if (turn(p, reads && bytes_left(&p->out) > 0)) {
			still = 0;
			continue;
		}
		if (++still < STILL)
			continue;
		if (p->next == CPU_NO_DEADLINE)
			return;
		still = 0;
		if (p->next > p->now)
			p->now = p->next;
	}
}

void
peer_push_all(struct peer *p)
{
	run(p, true);
}

void
peer_settle(struct peer *p)
{
	run(p, false);
}

/* --------------------------------------------------------------- its end */

void
peer_shutdown(struct peer *p)
{
	p->oracle.shutting_down = true;
	nbd_shutdown(p->session);
}

void
peer_expire(struct peer *p)
{
	if (!p->oracle.shutting_down)
		peer_shutdown(p);
	epoch_enter(&p->machine->epoch, p->cpu->id);
	if (!p->broken)
		nbd_expire(p->session, p->now);
	cpu_expire(p->cpu, -ESHUTDOWN, p->now);
	rest(p);
}

void
peer_abort(struct peer *p)
{
	if (p->broken)
		return;
	p->broken = true;
	epoch_enter(&p->machine->epoch, p->cpu->id);
	nbd_abort(p->session, p->now);
}

void
peer_eof(struct peer *p)
{
	p->out.pos = p->out.len;
	if (p->broken || nbd_done(p->session))
		return;
	epoch_enter(&p->machine->epoch, p->cpu->id);
	nbd_eof(p->session, p->now);
	rest(p);
}

void
peer_set(struct peer *p, const char *name, const char *value)
{
	char err[256] = "";
	int ret = disk_set(p->disk, name, value, p->now, err, sizeof(err));

	CHECK(ret == -EINPROGRESS || (ret < 0 && err[0] != '\0'),
	    "%s=%s: %d: %s", name, value, ret, err);
}

/* Whoever is gone, a change goes on. */
static void
finish_change(struct peer *p)
{
	for (unsigned i = 0; i < STILL && p->disk->change != NULL; i++) {
		epoch_enter(&p->machine->epoch, p->cpu->id);
		cpu_run(p->cpu, p->now);
		rest(p);
		settle_change(p);
	}
}

/* Everything is given back. */
static void
release(struct peer *p)
{
	CHECK(nbd_in_flight(p->session) == 0, "bios in flight");
	nbd_session_free(p->session);
	rest(p);
	finish_change(p);
	CHECK(p->disk->change == NULL, "a change that does not settle");
	CHECK(queue_tags_in_use(p->disk->queue) == 0, "tags in use");
	CHECK(p->nr_lent == 0, "%llu pages are still lent",
	    (unsigned long long)p->nr_lent);
	CHECK(page_pool_used(p->pages) ==
		  (p->disk->store != NULL ? store_memory(p->disk->store) : 0),
	    "%llu bytes of pages",
	    (unsigned long long)page_pool_used(p->pages));
	disk_free(p->disk);
	rest(p);
	CHECK(page_pool_used(p->pages) == 0, "%llu bytes of pages",
	    (unsigned long long)page_pool_used(p->pages));
	page_pool_free(p->pages);
	machine_free(p->machine);
	oracle_fini(&p->oracle);
	bytes_free(&p->out);
}

void
peer_finish(struct peer *p)
{
	p->deaf = false;
	peer_push_all(p);
	peer_eof(p);
	peer_settle(p);
	CHECK(nbd_done(p->session), "it does not end");
	if (p->error == 0 && !p->broken) {
		CHECK(!p->oracle.must_end, "it goes on after a fault");
		oracle_finish(&p->oracle);
		CHECK(p->session->held == 0, "%zu bytes are held",
		    p->session->held);
	}
	CHECK(p->error == 0 || oracle_may_end(&p->oracle),
	    "it hangs up for no reason: %s", nbd_error(p->session));
	release(p);
}
