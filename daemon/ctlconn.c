/* SPDX-License-Identifier: MIT */
/*
 * One connection of the control socket: a request a line, an answer a line,
 * in order.  It runs on the main loop, and is answered at once, but for what
 * takes its time: changes that settle, power, devices that come and go, and who
 * waits for a fault.  After the answer to
 * "trace" come the records of that trace, until the client ends its side; what
 * it says besides is not heard any more.  So it is after that to "watch", of
 * events.
 */
#include "daemon.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

struct ctlconn {
	struct daemon *daemon;
	int fd;
	ev_io rd, wr;
	TAILQ_ENTRY(ctlconn) link;
	struct tracer *tracer; /* its records are sent; NULL: none */
	size_t nr_in;
	bool ended; /* it sends nothing more; close after the answers */
	struct waiter waiter; /* of its request, if that is answered later */
	struct disk *awaits;  /* waits until a rule of it, */
	uint64_t rule, hits;  /* of this id, has hit so often; or NULL */
	bool watches;         /* it is told of events */
	char watched[DISK_NAME_LEN]; /* of this device; "": of all */
	uint64_t lost;     /* that it was not, and the last one's seq */
	uint64_t lost_seq; /* and when it was */
	uint64_t lost_ns;
	char *out; /* answers not sent */
	size_t nr_out, sent;
	char in[CTL_MAX_LINE];
};

static void
unwatch(struct ctlconn *c)
{
	if (c->watches)
		watch_end(c->daemon);
	c->watches = false;
}

static void
ctlconn_free(struct ctlconn *c)
{
	if (c->awaits != NULL)
		atomic_fetch_sub(&c->daemon->nr_awaits, 1);
	unwatch(c);
	tracer_free(c->tracer);
	waiter_cancel(&c->waiter);
	ev_io_stop(c->daemon->main.ev, &c->rd);
	ev_io_stop(c->daemon->main.ev, &c->wr);
	TAILQ_REMOVE(&c->daemon->ctlconns, c, link);
	c->daemon->nr_ctlconns--;
	close(c->fd);
	free(c->out);
	free(c);
}

/* Add an answer; false when out of memory. */
static bool
answer(struct ctlconn *c, const char *line, size_t len)
{
	char *out;

	if (c->sent > 0)
		memmove(c->out, c->out + c->sent, c->nr_out - c->sent);
	c->nr_out -= c->sent;
	c->sent = 0;
	out = realloc(c->out, c->nr_out + len);
	if (out == NULL)
		return false;
	memcpy(out + c->nr_out, line, len);
	c->out = out;
	c->nr_out += len;
	return true;
}

/* One line of input, without its newline. */
static bool
request(struct ctlconn *c, const char *line, size_t len)
{
	char *text =
	    ctl_request(&c->daemon->ctl, &c->waiter, line, len, clock_ns());
	bool ok;

	if (waiter_waits(&c->waiter))
		return true;
	if (atomic_load(&c->daemon->nr_awaits) > 0) /* a rule may be gone */
		ev_async_send(c->daemon->main.ev, &c->daemon->fault_hit);
	if (c->awaits != NULL)
		return true;
	if (text == NULL)
		return false;
	ok = answer(c, text, strlen(text));
	free(text);
	return ok;
}

/*
 * Serve one line, if a whole one is there; what is left moves to the front.
 * One at a time: the main loop has others to serve, and answers that nobody
 * reads are bounded so.  False: hang up.
 */
static bool
take_line(struct ctlconn *c)
{
	char *nl = memchr(c->in, '\n', c->nr_in);
	size_t len;

	if (nl == NULL)
		return c->nr_in < sizeof(c->in);
	len = (size_t)(nl - c->in);
	if (!request(c, c->in, len))
		return false;
	c->nr_in -= len + 1;
	memmove(c->in, nl + 1, c->nr_in);
	return true;
}

/* 1: all is sent; 0: later; -1: the client is gone. */
static int
flush(struct ctlconn *c)
{
	ssize_t n;

	while (c->sent < c->nr_out) {
		n = send(c->fd, c->out + c->sent, c->nr_out - c->sent,
		    MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		c->sent += (size_t)n;
	}
	return 1;
}

/*
 * Events that it was not told of, once at most so much waits to be sent; false:
 * nothing.
 */
static bool
report_lost(struct ctlconn *c, size_t waiting)
{
	struct event e = {
		.kind = EVENT_DROPPED,
		.seq = c->lost_seq,
		.ns = c->lost_ns,
		.id = c->lost,
	};
	char *line;
	bool ok;

	if (c->lost == 0 || c->nr_out - c->sent > waiting)
		return false;
	line = event_line(&e);
	ok = line != NULL && answer(c, line, strlen(line));
	free(line);
	if (ok)
		c->lost = 0;
	return ok;
}

/* Send what there is; then the next line, in a later turn. */
static void
go_on(struct ctlconn *c)
{
	struct ev_loop *ev = c->daemon->main.ev;
	bool more = memchr(c->in, '\n', c->nr_in) != NULL;
	int sent = flush(c);

	if (waiter_waits(&c->waiter)) { /* its answer is the next thing */
		ev_io_stop(ev, &c->rd);
		ev_io_stop(ev, &c->wr);
		return;
	}
	if (c->awaits != NULL && c->ended) {
		ctlconn_free(c);
		return;
	}
	if (c->awaits != NULL) { /* the same, if it is still there then */
		ev_io_stop(ev, &c->wr);
		ev_io_start(ev, &c->rd);
		return;
	}
	if (sent < 0 || (sent > 0 && c->ended && !more)) {
		ctlconn_free(c);
		return;
	}
	if (sent > 0 && !more) {
		ev_io_stop(ev, &c->wr);
		ev_io_start(ev, &c->rd);
	} else { /* writable when there is room, or at once */
		ev_io_stop(ev, &c->rd);
		ev_io_start(ev, &c->wr);
	}
}

/* The same of one that watches: what it says is not heard any more. */
static void
send_events(struct ctlconn *c)
{
	struct ev_loop *ev = c->daemon->main.ev;
	int sent = flush(c);

	c->nr_in = 0;
	if (sent > 0)
		sent = report_lost(c, 0) ? flush(c) : sent;
	if (sent < 0 || c->ended) {
		ctlconn_free(c);
		return;
	}
	ev_io_start(ev, &c->rd); /* does it end? */
	if (sent == 0)
		ev_io_start(ev, &c->wr);
	else
		ev_io_stop(ev, &c->wr);
}

static void
serve(struct ctlconn *c)
{
	if (c->sent == c->nr_out && !take_line(c)) {
		if (daemon_may_log(c->daemon))
			log_info("control: a request of more than %u bytes, "
				 "or no memory: closed",
			    CTL_MAX_LINE);
		ctlconn_free(c);
		return;
	}
	if (c->tracer != NULL)
		ctlconn_stream(c);
	else if (c->watches)
		send_events(c);
	else
		go_on(c);
}

/* ---- what struct ctl asks of it */

static struct ctlconn *
conn_of(void *from)
{
	return container_of(from, struct ctlconn, waiter);
}

/* The answer to a request that took its time. */
static void
on_done(struct waiter *w, const struct disk *disk, int error, const char *text)
{
	struct ctlconn *c = conn_of(w);
	char *line = w->departs && error == 0 ? ctl_departed(disk)
					      : ctl_settled(disk, error, text);

	if (line == NULL || !answer(c, line, strlen(line)))
		ctlconn_free(c);
	else
		go_on(c);
	free(line);
}

/* ---- events of the daemon */

int
ctlconn_watch(void *from, const struct disk *disk)
{
	struct ctlconn *c = conn_of(from);
	int ret = watch_begin(c->daemon);

	if (ret != 0)
		return ret;
	c->watches = true;
	if (disk != NULL)
		memcpy(c->watched, disk->name, sizeof(c->watched));
	return 0;
}

static bool
is_for(const struct ctlconn *c, const struct event *e)
{
	return c->watches &&
	       (c->watched[0] == '\0' || e->kind == EVENT_SHUTDOWN ||
		   e->kind == EVENT_DROPPED ||
		   strcmp(c->watched, e->device) == 0);
}

static void
lose(struct ctlconn *c, const struct event *e)
{
	c->lost += e->kind == EVENT_DROPPED ? e->id : 1;
	c->lost_seq = e->seq;
	c->lost_ns = e->ns;
}

/* There is always room for the end, and for what was lost before it. */
static void
tell_end(struct ctlconn *c, const char *line)
{
	report_lost(c, SIZE_MAX);
	if (line != NULL)
		answer(c, line, strlen(line));
}

/* What it has no room for it loses, and then everything until it has read. */
static void
tell(struct ctlconn *c, const struct event *e, const char *line)
{
	size_t len = line != NULL ? strlen(line) : 0;

	if (e->kind == EVENT_SHUTDOWN) {
		tell_end(c, line);
		return;
	}
	report_lost(c, MAX_CTL_EVENTS / 2);
	if (line == NULL || c->lost > 0 || e->kind == EVENT_DROPPED ||
	    c->nr_out - c->sent + len > MAX_CTL_EVENTS || !answer(c, line, len))
		lose(c, e);
}

void
ctlconn_tell(struct daemon *d, const struct event *e)
{
	char *line = event_line(e);
	struct ctlconn *c;

	TAILQ_FOREACH(c, &d->ctlconns, link)
		if (is_for(c, e))
			tell(c, e, line);
	free(line);
}

void
ctlconn_told(struct daemon *d)
{
	struct ctlconn *c, *next;

	for (c = TAILQ_FIRST(&d->ctlconns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->watches)
			send_events(c);
	}
}

/* ---- faults */

/* Any thread. */
static void
on_hit(void *arg, const struct disk *disk, const struct fault_seen *seen)
{
	struct daemon *d = arg;

	watch_fault(d, disk, seen);
	if (atomic_load(&d->nr_awaits) > 0)
		ev_async_send(d->main.ev, &d->fault_hit);
}

void
ctlconn_watch_faults(struct daemon *d, struct disk *disk)
{
	faults_watch(disk->set.faults, on_hit, d);
}

/* What it waits for may have happened before it was counted: look again. */
void
ctlconn_await(void *from, struct disk *disk, uint64_t id, uint64_t hits)
{
	struct ctlconn *c = conn_of(from);

	c->awaits = disk;
	c->rule = id;
	c->hits = hits;
	atomic_fetch_add(&c->daemon->nr_awaits, 1);
}

static void
answer_await(struct ctlconn *c, const char *line)
{
	c->awaits = NULL;
	atomic_fetch_sub(&c->daemon->nr_awaits, 1);
	if (!answer(c, line, strlen(line)))
		ctlconn_free(c);
	else
		go_on(c);
}

static void
on_fault_hit(struct ev_loop *ev, ev_async *w, int revents)
{
	struct daemon *d = w->data;
	struct ctlconn *c, *next;
	char *line;

	(void)ev;
	(void)revents;
	for (c = TAILQ_FIRST(&d->ctlconns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		line = c->awaits != NULL
			   ? ctl_awaited(c->awaits, c->rule, c->hits)
			   : NULL;
		if (line == NULL)
			continue;
		answer_await(c, line);
		free(line);
	}
}

void
ctlconn_forget(struct daemon *d, const struct disk *disk)
{
	struct ctlconn *c, *next;
	char *line;

	for (c = TAILQ_FIRST(&d->ctlconns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->awaits != disk)
			continue;
		line = ctl_settled(disk, -ENODEV, "it is gone");
		if (line == NULL)
			ctlconn_free(c);
		else
			answer_await(c, line);
		free(line);
	}
}

void
ctlconn_init(struct daemon *d)
{
	TAILQ_INIT(&d->ctlconns);
	ev_async_init(&d->fault_hit, on_fault_hit);
	d->fault_hit.data = d;
	ev_async_start(d->main.ev, &d->fault_hit);
}

/* ---- clients */

int
ctlconn_clients(void *from, struct client **out)
{
	struct ctlconn *c = conn_of(from);

	return client_list(c->daemon, out);
}

int
ctlconn_kick(void *from, uint64_t id)
{
	struct ctlconn *c = conn_of(from);

	return client_kick(c->daemon, id);
}

int
ctlconn_places(void *from, const struct disk *disk, struct place **out)
{
	struct ctlconn *c = conn_of(from);

	return uri_places(c->daemon, disk, out);
}

void
ctlconn_state(void *from, struct daemon_state *out)
{
	daemon_state(conn_of(from)->daemon, out);
}

/* ---- traces */

int
ctlconn_trace(void *from, struct disk *disk)
{
	struct ctlconn *c = conn_of(from);

	return tracer_attach(c->daemon, disk, c, &c->tracer);
}

size_t
ctlconn_room(const struct ctlconn *c)
{
	size_t waiting = c->nr_out - c->sent;

	return waiting < MAX_CTL_OUT ? MAX_CTL_OUT - waiting : 0;
}

int
ctlconn_put(struct ctlconn *c, const char *data, size_t len)
{
	return answer(c, data, len) ? 0 : -ENOMEM;
}

/* All of the trace is in the output: what follows is as after an answer. */
static void
stream_end(struct ctlconn *c)
{
	tracer_free(c->tracer);
	c->tracer = NULL;
	go_on(c); /* the client has ended: closes, now or when all is sent */
}

void
ctlconn_end_trace(struct ctlconn *c, bool at_once)
{
	c->ended = true;
	if (at_once)
		ctlconn_free(c);
	else
		ctlconn_stream(c);
}

void
ctlconn_stream(struct ctlconn *c)
{
	struct ev_loop *ev = c->daemon->main.ev;
	int res = c->ended ? tracer_end(c->tracer) : tracer_drain(c->tracer);
	int sent;

	c->nr_in = 0;
	if (res > 0) {
		stream_end(c);
		return;
	}
	sent = flush(c);
	if (res < 0 || sent < 0) {
		ctlconn_free(c);
		return;
	}
	if (c->ended)
		ev_io_stop(ev, &c->rd);
	else
		ev_io_start(ev, &c->rd);
	if (sent == 0 || c->ended) /* there is more, here or in the rings */
		ev_io_start(ev, &c->wr);
	else
		ev_io_stop(ev, &c->wr);
}

/* ---- events */

/* It waits: what it says is for later.  Who ends it waits no more. */
static void
await_more(struct ctlconn *c)
{
	if (c->ended)
		ctlconn_free(c);
	else if (c->nr_in == sizeof(c->in))
		ev_io_stop(c->daemon->main.ev, &c->rd);
}

static void
on_readable(struct ev_loop *ev, ev_io *w, int revents)
{
	struct ctlconn *c = w->data;
	ssize_t n;

	(void)ev;
	(void)revents;
	n = recv(
	    c->fd, c->in + c->nr_in, sizeof(c->in) - c->nr_in, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		ctlconn_free(c);
		return;
	}
	if (n == 0)
		c->ended = true;
	if (c->awaits != NULL) {
		c->nr_in += (size_t)n;
		await_more(c);
		return;
	}
	if (c->tracer != NULL) {
		ctlconn_stream(c);
		return;
	}
	if (c->watches) {
		send_events(c);
		return;
	}
	c->nr_in += (size_t)n;
	serve(c);
}

static void
on_writable(struct ev_loop *ev, ev_io *w, int revents)
{
	struct ctlconn *c = w->data;

	(void)ev;
	(void)revents;
	if (c->tracer != NULL)
		ctlconn_stream(c);
	else if (c->watches)
		send_events(c);
	else
		serve(c);
}

void
ctlconn_new(struct daemon *d, int fd)
{
	struct ctlconn *c = NULL;

	if (d->nr_ctlconns < MAX_CTL_CONNS)
		c = calloc(1, sizeof(*c));
	if (c == NULL) {
		if (daemon_may_log(d))
			log_warn("control: too many connections: refused");
		close(fd);
		return;
	}
	c->daemon = d;
	c->waiter = (struct waiter){
		.daemon = d,
		.by = "control",
		.done = on_done,
	};
	c->fd = fd;
	ev_io_init(&c->rd, on_readable, fd, EV_READ);
	ev_io_init(&c->wr, on_writable, fd, EV_WRITE);
	c->rd.data = c->wr.data = c;
	d->nr_ctlconns++;
	TAILQ_INSERT_TAIL(&d->ctlconns, c, link);
	ev_io_start(d->main.ev, &c->rd);
}

/* Nothing more is heard; what was said is sent, and not cut in a line. */
static void
hang_up(struct ctlconn *c)
{
	unwatch(c);
	c->ended = true;
	c->nr_in = 0;
	if (waiter_waits(&c->waiter))
		ctlconn_free(c);
	else
		go_on(c);
}

void
ctlconn_close_all(struct daemon *d)
{
	struct ctlconn *c, *next;

	for (c = TAILQ_FIRST(&d->ctlconns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		if (c->tracer == NULL)
			hang_up(c);
	}
}

/* Send, on all connections that are left, as if their clients had ended. */
static void
end_all(struct daemon *d)
{
	struct ctlconn *c, *next;

	for (c = TAILQ_FIRST(&d->ctlconns); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		c->ended = true;
		if (c->tracer != NULL)
			ctlconn_stream(c);
		else
			go_on(c);
	}
}

void
ctlconn_end_traces(struct daemon *d)
{
	unsigned ms;

	for (ms = 0; ms < TRACE_END_MS; ms++) {
		end_all(d);
		if (TAILQ_EMPTY(&d->ctlconns))
			return;
		poll(NULL, 0, 1);
	}
	while (!TAILQ_EMPTY(&d->ctlconns))
		ctlconn_free(TAILQ_FIRST(&d->ctlconns));
}
