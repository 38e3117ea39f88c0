/* SPDX-License-Identifier: MIT */
/*
 * A connection: bytes between a socket and a session.  Watchers put it on a
 * list of its loop; turn() does the work.
 */
#include "daemon.h"

#include <arpa/inet.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/uio.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define READ_BUDGET (512u << 10) /* bytes of a connection, in a turn */

void
conn_mark(struct conn *c, enum conn_on list)
{
	struct loop *l = c->loop;

	if (c->on & list)
		return;
	c->on |= list;
	switch (list) {
	case CONN_READABLE: TAILQ_INSERT_TAIL(&l->readable, c, readable); break;
	case CONN_STALLED: TAILQ_INSERT_TAIL(&l->stalled, c, stalled); break;
	case CONN_DIRTY: TAILQ_INSERT_TAIL(&l->dirty, c, dirty); break;
	}
}

static void
unmark_all(struct conn *c)
{
	struct loop *l = c->loop;

	if (c->on & CONN_READABLE)
		TAILQ_REMOVE(&l->readable, c, readable);
	if (c->on & CONN_STALLED)
		TAILQ_REMOVE(&l->stalled, c, stalled);
	if (c->on & CONN_DIRTY)
		TAILQ_REMOVE(&l->dirty, c, dirty);
	c->on = 0;
}

static void
on_readable(struct ev_loop *ev, ev_io *w, int revents)
{
	(void)ev;
	(void)revents;
	conn_mark(w->data, CONN_READABLE);
}

static void
on_writable(struct ev_loop *ev, ev_io *w, int revents)
{
	struct conn *c = w->data;

	(void)revents;
	ev_io_stop(ev, w);
	conn_mark(c, c->tls_begins ? CONN_READABLE : CONN_DIRTY);
}

/* Something is to be done that no bytes bring about: in this same turn. */
static void
on_session_wake(void *arg)
{
	struct conn *c = arg;

	c->next = NBD_STALLED;
	c->loop->again = true;
	conn_mark(c, CONN_STALLED);
	conn_mark(c, CONN_DIRTY);
}

static void
on_handshake_late(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct conn *c = w->data;

	(void)ev;
	(void)revents;
	if (daemon_may_log(c->loop->daemon))
		log_info("conn %u: no export chosen in time: closed", c->id);
	conn_abort(c, clock_ns());
}

/* The peer for the log: an address; nothing useful of a UNIX socket. */
static void
peer_name(char *out, size_t len, const struct sockaddr *sa)
{
	char addr[INET6_ADDRSTRLEN] = "?";
	const struct sockaddr_in6 *in6 = (const void *)sa;
	const struct sockaddr_in *in = (const void *)sa;
	const struct sockaddr_vm *vm = (const void *)sa;

	switch (sa->sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &in->sin_addr, addr, sizeof(addr));
		snprintf(out, len, "%s:%u", addr, ntohs(in->sin_port));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &in6->sin6_addr, addr, sizeof(addr));
		snprintf(out, len, "[%s]:%u", addr, ntohs(in6->sin6_port));
		break;
	case AF_VSOCK:
		snprintf(out, len, "vsock:%u:%u", vm->svm_cid, vm->svm_port);
		break;
	default: snprintf(out, len, "unix"); break;
	}
}

static void
start_watchers(struct conn *c)
{
	ev_io_init(&c->rd, on_readable, c->fd, EV_READ);
	ev_io_init(&c->wr, on_writable, c->fd, EV_WRITE);
	c->rd.data = c->wr.data = c;
	ev_io_start(c->loop->ev, &c->rd);
}

static void
stop_watchers(struct conn *c)
{
	ev_io_stop(c->loop->ev, &c->rd);
	ev_io_stop(c->loop->ev, &c->wr);
	if (c->loop->cpu == NULL)
		ev_timer_stop(c->loop->ev, &c->handshake);
}

bool
conn_make_room(struct loop *main_loop, const char *limit, uint64_t age_ns)
{
	struct conn *c;

	TAILQ_FOREACH(c, &main_loop->conns, link)
		if (!c->broken)
			break;
	if (c == NULL || clock_ns() - c->since_ns < age_ns)
		return false;
	if (daemon_may_log(main_loop->daemon))
		log_info("conn %u: no export chosen, and %s reached: closed",
		    c->id, limit);
	conn_abort(c, clock_ns());
	return true;
}

/* 0 is nobody, also when the numbers begin anew. */
static unsigned
new_id(struct daemon *d)
{
	if (++d->next_conn_id == 0)
		d->next_conn_id = 1;
	return d->next_conn_id;
}

static const enum nbd_tls nbd_tls[] = {
	[TLS_OFF] = NBD_TLS_OFF,
	[TLS_ALLOWED] = NBD_TLS_ALLOWED,
	[TLS_REQUIRED] = NBD_TLS_REQUIRED,
};

void
conn_new(struct loop *main_loop, int fd, const struct sockaddr *peer,
    enum tls_mode tls)
{
	struct daemon *d = main_loop->daemon;
	struct conn *c = calloc(1, sizeof(*c));
	int one = 1;

	if (c == NULL)
		goto fail;
	c->loop = main_loop;
	c->fd = fd;
	c->id = new_id(d);
	c->next = NBD_NEVER;
	c->family = peer->sa_family;
	peer_name(c->peer, sizeof(c->peer), peer);
	if (c->family == AF_INET || c->family == AF_INET6) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		/* N10; and a peer that is gone gives its place back */
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	}
	c->session = nbd_session_new(&d->host, on_session_wake, c);
	if (c->session == NULL)
		goto fail;
	nbd_set_task(c->session, c->id);
	nbd_set_tls(c->session, nbd_tls[tls]);
	log_debug("conn %u: from %s", c->id, c->peer);
	atomic_fetch_add(&d->nr_conns, 1);
	atomic_fetch_add(&main_loop->nr_conns, 1);
	TAILQ_INSERT_TAIL(&main_loop->conns, c, link);
	client_add(c);
	watch_client(d, EVENT_CONNECTED, c);
	start_watchers(c);
	ev_timer_init(&c->handshake, on_handshake_late,
	    (double)d->conf.handshake_seconds, 0.);
	c->handshake.data = c;
	ev_timer_start(main_loop->ev, &c->handshake);
	conn_mark(c, CONN_DIRTY); /* the greeting */
	if (atomic_load(&main_loop->nr_conns) > d->conf.max_handshakes)
		conn_make_room(main_loop, "max_handshakes", 0);
	return;
fail:
	if (daemon_may_log(d))
		log_warn("connection dropped: out of memory");
	free(c);
	close(fd);
}

/* Out of every list; its socket closed, its session freed. */
static void
conn_free(struct conn *c)
{
	struct loop *l = c->loop;
	struct daemon *d = l->daemon;

	log_debug("conn %u: closed", c->id);
	unmark_all(c);
	stop_watchers(c);
	TAILQ_REMOVE(&l->conns, c, link);
	atomic_fetch_sub(&l->nr_conns, 1);
	if (c->tls != NULL && !c->broken)
		tlsconn_bye(c->tls);
	tlsconn_free(c->tls);
	nbd_session_free(c->session);
	client_remove(c);
	watch_client(d, EVENT_GONE, c);
	close(c->fd);
	if (c->export != NULL)
		export_put(c->export); /* the device may go now */
	free(c);
	daemon_conn_closed(d);
}

/* The handshake is over: from now on a worker's. */
static void
hand_over(struct conn *c)
{
	struct loop *l = c->loop, *to = daemon_least_loaded(l->daemon);

	log_debug("conn %u: export '%s'", c->id,
	    nbd_session_export(c->session)->name);
	unmark_all(c);
	stop_watchers(c);
	TAILQ_REMOVE(&l->conns, c, link);
	atomic_fetch_sub(&l->nr_conns, 1);
	atomic_fetch_add(&to->nr_conns, 1);
	client_moves(c, to);
	watch_client(l->daemon, EVENT_NEGOTIATED, c);
	loop_post(to, c);
}

/* What the session wants next of its loop. */
static void
follow(struct conn *c)
{
	c->next = nbd_next(c->session);
	if (c->next != NBD_NEVER)
		conn_mark(c, CONN_STALLED);
}

static void
fail(struct conn *c, uint64_t now)
{
	if (!c->broken && daemon_may_log(c->loop->daemon))
		log_info("conn %u: %s: %s: closed", c->id, c->peer,
		    nbd_error(c->session));
	conn_abort(c, now);
}

void
conn_attach(struct conn *c, struct loop *l, uint64_t now)
{
	c->loop = l;
	TAILQ_INSERT_TAIL(&l->conns, c, link);
	start_watchers(c);
	nbd_attach(c->session, l->cpu, l->pool);
	conn_mark(c, CONN_DIRTY); /* the end of the handshake may be unsent */
	/* what came with the last option needs no readable event (N73) */
	conn_retry(c, now);
}

bool
conn_retry(struct conn *c, uint64_t now)
{
	unsigned before = nbd_in_flight(c->session);

	/* a broken one is called, too: its session may wake us again then */
	if (nbd_got(c->session, 0, false, now) != 0) {
		fail(c, now);
		return false;
	}
	follow(c);
	conn_mark(c, CONN_DIRTY); /* it may listen again */
	return nbd_in_flight(c->session) > before;
}

/*
 * The socket has failed, as errno says.  N33: a client that does not wait for
 * its answer is normal; one that breaks TLS is not.
 */
static void
lost(struct conn *c, uint64_t now)
{
	if (c->tls == NULL || errno != EPROTO)
		log_debug("conn %u: %s", c->id, strerror(errno));
	else if (daemon_may_log(c->loop->daemon))
		log_info("conn %u: %s: TLS: %s: closed", c->id, c->peer,
		    tlsconn_error(c->tls));
	conn_abort(c, now);
}

/* ------------------------------------------------------------------- TLS */

/* The client has read that TLS is next: what it sends from now on is TLS's. */
static void
tls_begin(struct conn *c)
{
	struct daemon *d = c->loop->daemon;

	c->tls = tlsconn_new(d->tls, c->fd);
	if (c->tls == NULL) {
		if (daemon_may_log(d))
			log_warn("conn %u: TLS: out of memory", c->id);
		conn_abort(c, clock_ns());
		return;
	}
	c->tls_begins = true;
	ev_io_start(c->loop->ev, &c->rd);
}

/* As far as it goes without waiting, then wait for what it needs. */
static void
tls_go_on(struct conn *c, uint64_t now)
{
	struct ev_loop *ev = c->loop->ev;
	int err = tlsconn_handshake(c->tls);
	bool writes = err == -EAGAIN && tlsconn_wants_write(c->tls);

	if (err != 0 && err != -EAGAIN) { /* N46 */
		errno = -err;
		lost(c, now);
		return;
	}
	if (writes) {
		ev_io_stop(ev, &c->rd);
		ev_io_start(ev, &c->wr);
	} else {
		ev_io_start(ev, &c->rd);
	}
	if (err != 0)
		return;
	log_debug("conn %u: TLS: %s", c->id, tlsconn_describe(c->tls));
	c->tls_begins = false;
	nbd_tls_begun(c->session);
	conn_mark(c, CONN_DIRTY); /* it listens again */
}

/* ------------------------------------------------------------------ bytes */

static ssize_t
receive(struct conn *c, struct iovec *iov, int nr)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)nr };

	if (c->tls != NULL)
		return tlsconn_recv(c->tls, iov, nr);
	return recvmsg(c->fd, &msg, MSG_DONTWAIT);
}

static ssize_t
transmit(struct conn *c, struct iovec *iov, int nr)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)nr };

	if (c->tls != NULL)
		return tlsconn_send(c->tls, iov, nr);
	return sendmsg(c->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Not only has it ended its side: it reads no answers either. */
static bool
is_gone(int fd)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

/* One read.  True: there may be more at once, and there is budget. */
static bool
read_once(struct conn *c, size_t *budget, uint64_t now)
{
	struct iovec iov[MAX_IOV];
	int nr = nbd_want(c->session, iov, MAX_IOV);
	ssize_t n = -1;
	bool more;

	errno = EAGAIN;
	if (nr == 0)
		ev_io_stop(c->loop->ev, &c->rd);
	else
		n = receive(c, iov, nr);
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		lost(c, now);
		return false;
	}
	if (n == 0) { /* fio never says DISC: no fault, no noise */
		ev_io_stop(c->loop->ev, &c->rd);
		nbd_eof(c->session, now);
		if (is_gone(c->fd))
			conn_abort(c, now);
		return false;
	}
	if (n < 0)
		n = 0;
	more = n > 0 && (size_t)n == iov_bytes(iov, nr) && (size_t)n < *budget;
	*budget -= more ? (size_t)n : 0;
	if (nbd_got(c->session, (size_t)n, more, now) == 0)
		return more;
	fail(c, now);
	return false;
}

void
conn_read(struct conn *c, uint64_t now)
{
	size_t budget = READ_BUDGET;

	if (c->broken) {
		ev_io_stop(c->loop->ev, &c->rd);
		return;
	}
	if (c->tls_begins) {
		tls_go_on(c, now);
		return;
	}
	while (read_once(c, &budget, now))
		;
	if (c->broken)
		return;
	follow(c);
	conn_mark(c, CONN_DIRTY); /* what it listens for may have changed */
}

/* Send until there is nothing, or the socket is full. */
static void
conn_write(struct conn *c)
{
	struct iovec iov[MAX_IOV];
	ssize_t n;
	int nr;

	while (!c->broken && (nr = nbd_out(c->session, iov, MAX_IOV)) > 0) {
		n = transmit(c, iov, nr);
		if (n >= 0) {
			nbd_sent(c->session, (size_t)n);
			c->loop->worked = c->loop->cpu != NULL;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno == EAGAIN) {
			ev_io_start(c->loop->ev, &c->wr);
			return;
		}
		lost(c, clock_ns());
	}
}

/* Watch for input, or don't. */
static void
listen_or_not(struct conn *c)
{
	if (!nbd_listens(c->session)) {
		ev_io_stop(c->loop->ev, &c->rd);
		return;
	}
	ev_io_start(c->loop->ev, &c->rd);
	if (c->tls == NULL || !tlsconn_pending(c->tls))
		return;
	conn_mark(c, CONN_READABLE); /* no event tells of what TLS has read */
	c->loop->again = true;
}

void
conn_finish(struct conn *c)
{
	conn_write(c);
	if (nbd_done(c->session)) {
		conn_free(c);
		return;
	}
	client_publish(c);
	if (c->broken)
		return; /* until the last bio has ended */
	if (c->loop->cpu == NULL && nbd_in_transmission(c->session)) {
		hand_over(c);
		return;
	}
	if (c->tls == NULL && nbd_wants_tls(c->session))
		tls_begin(c);
	else if (!c->tls_begins)
		listen_or_not(c);
}

void
conn_shutdown(struct conn *c)
{
	nbd_shutdown(c->session);
	conn_mark(c, CONN_DIRTY);
}

void
conn_expire(struct conn *c, uint64_t now)
{
	nbd_expire(c->session, now);
	conn_mark(c, CONN_DIRTY);
}

void
conn_abort(struct conn *c, uint64_t now)
{
	conn_mark(c, CONN_DIRTY); /* freed at the end of the turn, or later */
	if (c->broken)
		return;
	c->broken = true;
	shutdown(c->fd, SHUT_RDWR); /* the last bio may take its time */
	stop_watchers(c);
	nbd_abort(c->session, now);
}

void
conn_kick(struct conn *c, uint64_t now)
{
	if (!atomic_load(&c->kicked) || c->broken)
		return;
	conn_abort(c, now);
}

void
conn_end(struct conn *c, uint64_t now)
{
	unsigned how = atomic_load(&c->end);

	if (how == CONN_STAYS || c->broken)
		return;
	if (how == CONN_ABORTS) {
		conn_abort(c, now);
		return;
	}
	conn_shutdown(c);
	if (how == CONN_EXPIRES)
		conn_expire(c, now);
}
