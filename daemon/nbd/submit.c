/* SPDX-License-Identifier: MIT */
/*
 * From the session to the block layer: a session is a task, what one call
 * brought is a batch, as an io_submit() is.  Bios go in the order in which
 * they came; one that has to wait, for a tag or for one that it overlaps,
 * holds back those behind it.
 *
 * A zeroing that has to be written, or a very long trim, is many bios.  They
 * are made a few at a time, and other commands pass it, if they don't overlap
 * what is left.
 */
#include "nbd/session.h"

#include <errno.h>

/* Do both the same, so that it does not matter who is first? */
static bool
same_steps(const struct command *a, const struct command *b)
{
	return a->step_end > 0 && a->step_op == b->step_op &&
	       a->step_flags == b->step_flags;
}

/* Has an earlier command still steps to make there? */
static bool
awaits_steps(const struct nbd_session *s, const struct part *p)
{
	const struct command *c, *own = p->bio.priv;

	STAILQ_FOREACH(c, &s->stepping, link) {
		if (c == own || !c->first.started)
			break; /* it came later, as do those after it */
		if (order_overlap(&s->order, p, c->step_pos, c->step_end) &&
		    !same_steps(own, c))
			return true;
	}
	return false;
}

static bool
may_go(struct nbd_session *s, const struct part *p)
{
	return !awaits_steps(s, p) && order_allows(&s->order, p);
}

/* A BLOCK_STATUS, in its turn.  0 or -EBUSY: others come first. */
static int
submit_status(struct nbd_session *s, struct command *c, uint64_t now)
{
	if (!may_go(s, &c->first))
		plug_flush(&s->plug, s->cpu, now);
	if (!may_go(s, &c->first))
		return -EBUSY;
	if (out_full(s)) /* nbd_sent() wakes it */
		return -EBUSY;
	if (s->status_steps == 0) { /* enough for this time */
		session_wake(s);
		return -EBUSY;
	}
	context_reply(c);
	return 0;
}

/* 0: the block layer has it.  -EAGAIN: no tag; -EBUSY: others come first. */
static int
submit(struct nbd_session *s, struct part *p, uint64_t now)
{
	struct queue *q = s->export->queue;
	enum req_op op = p->bio.op; /* the bio may end in here */
	bool alone =
	    !s->plug_open && !queue_freezing(q) && queue_plugs_alone(q, op);
	struct plug *plug = s->plug_open || alone ? &s->plug : NULL;
	int err;

	if (!p->started) {
		if (!may_go(s, p)) {
			plug_flush(&s->plug, s->cpu, now);
			if (!may_go(s, p))
				return -EBUSY;
		}
		order_add(&s->order, p);
		p->started = true;
		s->nr_started++;
	}
	err = queue_submit(q, s->cpu, plug, &p->bio, now);
	if (alone)
		plug_flush_alone(&s->plug, op, s->cpu, now);
	return err;
}

/* Take the first off the list: its link is the block layer's while there. */
static int
submit_first(struct nbd_session *s, uint64_t now)
{
	struct bio *bio = STAILQ_FIRST(&s->pending);
	struct command *c = bio->priv;
	int err;

	STAILQ_REMOVE_HEAD(&s->pending, link);
	if (c->req.type == NBD_CMD_BLOCK_STATUS)
		err = submit_status(s, c, now);
	else
		err = submit(s, (struct part *)bio, now);
	if (err != 0)
		STAILQ_INSERT_HEAD(&s->pending, bio, link);
	return err;
}

/* The command that can make a step, or NULL. */
static struct command *
stepping_first(const struct nbd_session *s)
{
	struct command *c = STAILQ_FIRST(&s->stepping);

	if (c == NULL || !c->first.started || c->nr_parts >= NBD_STEP_BIOS)
		return NULL;
	return c;
}

/* A step of it: one bio more, which goes before what is pending. */
static int
submit_step(struct nbd_session *s, struct command *c, uint64_t now)
{
	struct part *p = command_step(c);
	int err;

	if (p == NULL) {
		c->nr_parts++; /* those before it may all have ended */
		command_put(c);
		return 0;
	}
	err = submit(s, p, now);
	if (err != 0)
		STAILQ_INSERT_HEAD(&s->pending, &p->bio, link);
	return err;
}

static void
submit_all(struct nbd_session *s, uint64_t now)
{
	unsigned budget = NBD_STEP_BIOS;
	struct command *c;
	int err = 0;

	do {
		while (err == 0 && !STAILQ_EMPTY(&s->pending))
			err = submit_first(s, now);
		s->stalled = err != 0;
		c = stepping_first(s);
		if (err == -EAGAIN || c == NULL)
			return;
		err = submit_step(s, c, now);
	} while (err == 0 && --budget > 0);
	s->stalled = !STAILQ_EMPTY(&s->pending);
	s->has_steps = err == 0 && stepping_first(s) != NULL;
}

/* The plug has been open long enough, or holds nothing. */
static void
close_plug(struct nbd_session *s, uint64_t now)
{
	plug_flush(&s->plug, s->cpu, now);
	s->plug_open = false;
}

void
submit_pending(struct nbd_session *s, bool more, uint64_t now)
{
	const struct nbd_export *e = s->export;
	/* while the queue is frozen its rules are not to be looked at */
	unsigned min = queue_freezing(e->queue) ? 0 : queue_plug_min(e->queue);
	uint64_t wait = more ? NBD_PARTIAL_NSEC : 0;

	s->status_steps = NBD_STATUS_STEPS;
	s->has_steps = false;
	if (wait < e->plug_nsec && !s->blocked && !s->closing && !s->eof &&
	    !s->shutdown)
		wait = e->plug_nsec;
	if (min == 0)
		wait = 0;
	if (s->plug_open && now >= s->plug_until)
		close_plug(s, now);
	if (!STAILQ_EMPTY(&s->pending) || !STAILQ_EMPTY(&s->stepping)) {
		if (!s->plug_open && min > 0 && (wait > 0 || s->batch >= min)) {
			s->plug_open = true;
			s->plug_since = now;
		}
		submit_all(s, now);
		if (STAILQ_EMPTY(&s->pending))
			s->batch = 0;
	}
	if (!s->plug_open)
		return;
	s->plug_until = s->plug_since + wait;
	if (s->plug_until < wait)
		s->plug_until = NBD_NEVER - 1; /* in 584 years */
	if (now >= s->plug_until || plug_is_empty(&s->plug) || s->stalled)
		close_plug(s, now);
}

void
submit_drop(struct nbd_session *s, uint64_t now)
{
	struct command *c;
	struct bio *bio;

	s->stalled = false;
	s->has_steps = false;
	s->batch = 0;
	while ((c = STAILQ_FIRST(&s->stepping)) != NULL)
		command_give_up(c);
	while ((bio = STAILQ_FIRST(&s->pending)) != NULL) {
		STAILQ_REMOVE_HEAD(&s->pending, link);
		queue_drop(s->export->queue, s->cpu, bio, -ESHUTDOWN, now);
	}
	if (s->plug_open)
		close_plug(s, now);
}
