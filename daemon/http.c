/* SPDX-License-Identifier: MIT */
/*
 * GET /metrics, for Prometheus.  libmicrohttpd knows HTTP; our listeners accept
 * for it, and it runs on the main loop, where disks come and go: an answer is
 * made at once, of disks that are there.
 *
 * Whoever may connect may be hostile: there are MAX_HTTP_CONNS connections at a
 * time, for one more the oldest is hung up on, and so is one after
 * HTTP_SECONDS, whatever it does.  A connection gets one answer; of answers
 * that are not read HTTP_MAX_BYTES are kept.
 */
#include "daemon.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define MAX_HTTP_CONNS 64u
#define HTTP_SECONDS   5u
#define HTTP_MEMORY    (8u << 10) /* bytes of a connection, for its request */
#define HTTP_TICK_SEC  0.5
#define HTTP_REUSE     4u
#define HTTP_MAX_BYTES (64u << 20) /* of answers that are not sent yet */

/* A connection. */
struct http_conn {
	TAILQ_ENTRY(http_conn) link; /* in http->conns, the oldest first */
	int fd;                      /* libmicrohttpd's */
	uint64_t since_ns;
	size_t bytes; /* of its answer */
	bool ended;   /* it was hung up on */
};

struct http {
	struct daemon *daemon;
	struct MHD_Daemon *mhd;
	ev_io io;      /* on its epoll descriptor */
	ev_timer tick; /* while there are connections */
	ev_idle more;  /* it has more to do */
	TAILQ_HEAD(http_conn_list, http_conn) conns;
	/* that were not hung up on, and their answers */
	unsigned nr_conns;
	size_t bytes;
	struct MHD_Response *last; /* made last; NULL: none */
	size_t last_len;
	uint64_t fresh_until;
};

static void
hang_up(struct http *h, struct http_conn *c)
{
	if (c->ended)
		return;
	c->ended = true;
	h->nr_conns--;
	h->bytes -= c->bytes;
	shutdown(c->fd, SHUT_RDWR); /* libmicrohttpd sees it, and closes */
}

static void
hang_up_on_oldest(struct http *h)
{
	struct http_conn *c;

	TAILQ_FOREACH(c, &h->conns, link)
		if (!c->ended)
			break;
	if (c != NULL)
		hang_up(h, c);
}

/* Do what there is to do, and see to it that we come again. */
static void
run(struct http *h)
{
	struct ev_loop *ev = h->daemon->main.ev;
	MHD_UNSIGNED_LONG_LONG ms;

	MHD_run(h->mhd);
	if (MHD_get_timeout(h->mhd, &ms) == MHD_YES && ms == 0)
		ev_idle_start(ev, &h->more);
	else
		ev_idle_stop(ev, &h->more);
	if (TAILQ_EMPTY(&h->conns))
		ev_timer_stop(ev, &h->tick);
	else if (!ev_is_active(&h->tick))
		ev_timer_again(ev, &h->tick);
}

/* ---- answers */

static struct MHD_Response *
response_new(
    char *text, size_t len, enum MHD_ResponseMemoryMode mode, const char *type)
{
	struct MHD_Response *r =
	    MHD_create_response_from_buffer(len, text, mode);

	if (r == NULL) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return NULL;
	}
	if (MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) ==
		MHD_YES &&
	    MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close") ==
		MHD_YES)
		return r;
	MHD_destroy_response(r);
	return NULL;
}

/* A sentence; without memory for it: it is hung up on. */
static enum MHD_Result
refuse_with(struct MHD_Connection *conn, unsigned status, const char *text)
{
	struct MHD_Response *r = response_new((char *)(uintptr_t)text,
	    strlen(text), MHD_RESPMEM_PERSISTENT, "text/plain; charset=utf-8");
	enum MHD_Result ret = MHD_NO;

	if (r == NULL)
		return MHD_NO;
	if (status != MHD_HTTP_METHOD_NOT_ALLOWED ||
	    MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET") == MHD_YES)
		ret = MHD_queue_response(conn, status, r);
	MHD_destroy_response(r);
	return ret;
}

/* That of our thread: it does not grow while others have the core. */
static uint64_t
cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void
forget(struct http *h)
{
	if (h->last != NULL)
		MHD_destroy_response(
		    h->last); /* those that it is sent to keep it */
	h->last = NULL;
}

/*
 * What was made last, for HTTP_REUSE times as long as that took (some 0.15 ms a
 * device): whoever asks, and however often, the loop has time for others.
 * False: no memory.
 */
static bool
refresh(struct http *h)
{
	struct daemon *d = h->daemon;
	uint64_t begin = cpu_ns();
	struct daemon_state state;
	char *text;

	if (h->last != NULL && clock_ns() < h->fresh_until)
		return true;
	forget(h);
	daemon_state(d, &state);
	if (metrics_text(d->disk, d->nr_disks, &state, clock_ns(), &text,
		&h->last_len) != 0)
		return false;
	h->last = response_new(
	    text, h->last_len, MHD_RESPMEM_MUST_FREE, METRICS_TYPE);
	h->fresh_until = clock_ns() + HTTP_REUSE * (cpu_ns() - begin);
	return h->last != NULL;
}

/* Count an answer; those of others have to go if it is too much. */
static void
hold(struct http *h, struct http_conn *c, size_t len)
{
	if (c == NULL || c->ended)
		return;
	c->bytes = len;
	h->bytes += len;
	while (h->bytes > HTTP_MAX_BYTES && h->bytes > len)
		hang_up_on_oldest(h);
}

static enum MHD_Result
answer_metrics(struct http *h, struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	if (!refresh(h))
		return refuse_with(
		    conn, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n");
	hold(h, info->socket_context, h->last_len);
	return MHD_queue_response(conn, MHD_HTTP_OK, h->last);
}

/* The head of a request is there; what it sends behind that is not read. */
static enum MHD_Result
on_request(void *arg, struct MHD_Connection *conn, const char *path,
    const char *method, const char *version, const char *data, size_t *len,
    void **request)
{
	struct http *h = arg;

	(void)version;
	(void)data;
	(void)len;
	(void)request;
	if (strcmp(path, "/metrics") != 0)
		return refuse_with(
		    conn, MHD_HTTP_NOT_FOUND, "there is only /metrics\n");
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
		return refuse_with(
		    conn, MHD_HTTP_METHOD_NOT_ALLOWED, "allowed: GET\n");
	return answer_metrics(h, conn);
}

/* ---- connections */

static void
conn_begins(struct http *h, struct MHD_Connection *conn, void **context)
{
	struct http_conn *c = calloc(1, sizeof(*c));
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);

	*context = c;
	if (c == NULL) { /* nobody would see how long it lasts */
		shutdown(info->connect_fd, SHUT_RDWR);
		return;
	}
	c->fd = info->connect_fd;
	c->since_ns = clock_ns();
	h->nr_conns++;
	TAILQ_INSERT_TAIL(&h->conns, c, link);
}

static void
on_conn(void *arg, struct MHD_Connection *conn, void **context,
    enum MHD_ConnectionNotificationCode what)
{
	struct http *h = arg;
	struct http_conn *c = *context;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		conn_begins(h, conn, context);
		return;
	}
	if (c == NULL)
		return;
	if (!c->ended) {
		h->nr_conns--;
		h->bytes -= c->bytes;
	}
	TAILQ_REMOVE(&h->conns, c, link);
	free(c);
}

void
http_new_conn(
    struct http *h, int fd, const struct sockaddr *peer, socklen_t len)
{
	if (h->nr_conns >= MAX_HTTP_CONNS) {
		hang_up_on_oldest(h);
		MHD_run(h->mhd); /* it is closed */
	}
	/* what cannot be taken over was closed, too */
	if (MHD_add_connection(h->mhd, fd, peer, len) != MHD_YES)
		log_debug(
		    "metrics: a connection was dropped: %s", strerror(errno));
	run(h);
}

/* ---- events */

static void
on_ready(struct ev_loop *ev, ev_io *w, int revents)
{
	(void)ev;
	(void)revents;
	run(w->data);
}

static void
on_more(struct ev_loop *ev, ev_idle *w, int revents)
{
	(void)ev;
	(void)revents;
	run(w->data);
}

static void
on_tick(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct http *h = w->data;
	uint64_t now = clock_ns();
	struct http_conn *c;

	(void)ev;
	(void)revents;
	TAILQ_FOREACH(c, &h->conns, link)
		if (now - c->since_ns >= HTTP_SECONDS * UINT64_C(1000000000))
			hang_up(h, c);
	run(h);
}

/* ---- life cycle */

struct http *
http_new(struct daemon *d)
{
	struct http *h = calloc(1, sizeof(*h));
	const union MHD_DaemonInfo *info;

	if (h == NULL)
		return NULL;
	h->daemon = d;
	TAILQ_INIT(&h->conns);
	/* those hung up on count until it has closed them */
	h->mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0,
	    NULL, NULL, on_request, h, MHD_OPTION_NOTIFY_CONNECTION, on_conn, h,
	    MHD_OPTION_CONNECTION_LIMIT, 2 * MAX_HTTP_CONNS,
	    MHD_OPTION_CONNECTION_TIMEOUT, HTTP_SECONDS,
	    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_MEMORY,
	    MHD_OPTION_END);
	if (h->mhd == NULL) {
		free(h);
		return NULL;
	}
	info = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	ev_io_init(&h->io, on_ready, info->epoll_fd, EV_READ);
	ev_timer_init(&h->tick, on_tick, 0., HTTP_TICK_SEC);
	ev_idle_init(&h->more, on_more);
	h->io.data = h->tick.data = h->more.data = h;
	ev_io_start(d->main.ev, &h->io);
	return h;
}

void
http_free(struct http *h)
{
	struct ev_loop *ev;

	if (h == NULL)
		return;
	ev = h->daemon->main.ev;
	ev_io_stop(ev, &h->io);
	ev_timer_stop(ev, &h->tick);
	ev_idle_stop(ev, &h->more);
	MHD_stop_daemon(h->mhd);
	forget(h);
	free(h);
}
