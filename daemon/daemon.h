/* SPDX-License-Identifier: MIT */
/*
 * The edge: the only floor with sockets, threads, libev and a clock.
 *
 *	main.c     options, disks, start
 *	shutdown.c the end
 *	reload.c   configuration files, read again
 *	device.c   from a configured device to a disk that is served
 *	fill.c     a device that begins with the data of an image
 *	backing.c  files that keep their data
 *	crashlog.c files that record what changes it
 *	file.c     what both do with them
 *	power.c    devices that go: their clients, their queue, their data
 *	snapshot.c devices that begin with the data of another
 *	export.c   what NBD sees of the disks, and under which names
 *	loop.c     a thread that plays a CPU: turn() runs the whole pipeline
 *	listen.c   sockets that accept
 *	conn.c     one NBD connection: bytes between a socket and a session
 *	tls.c      how they go through TLS
 *	client.c   who is connected
 *	waiter.c   who changes a device, and waits until it is done
 *	ctlconn.c  one connection of the control socket
 *	watch.c    events, on their way to those
 *	sysfs.c    the devices as files
 *	http.c     what was counted, over HTTP
 *	tracer.c   a trace on its way to files, or to such a connection
 *	uri.c      where a device is served
 *	host.c     what the machine has for us
 *	systemd.c  sockets from a service manager, and messages to it
 *	run.c      --run
 *	pidfile.c  --pidfile
 *
 * The main loop accepts and does handshakes; a connection in transmission
 * belongs to one of the workers.
 */
#ifndef DAEMON_H
#define DAEMON_H

#include <ev.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "blk/blk.h"
#include "ctl/ctl.h"
#include "dev/dev.h"
#include "nbd/nbd.h"

#define GRACE_SEC        2.0 /* from SIGTERM on: what is in flight may finish */
#define SHUTDOWN_SEC     4.0 /* then it ends, whoever is still connected */
#define ACCEPTS_A_TURN   64
#define MAX_IOV          1024 /* iovecs a sendmsg (UIO_MAXIOV) */
#define EMFILE_PAUSE_SEC 0.25
#define MAX_CLIENT_LINES 10 /* of log a second */
#define MAX_CTL_CONNS    64
#define SETTLE_SEC       0.001 /* so often a queue that empties is looked at */
#define MAX_CTL_OUT      (4u << 20) /* bytes of a trace that wait for a client */
#define MAX_CTL_EVENTS   (256u << 10) /* bytes of events that do */
#define SAME_SIGNAL_NS   10000000u    /* after the first: no second one */
#define TRACE_END_MS     500u         /* at the end clients may still read */
#define NSEC_PER_USEC    1000u
#define MAX_ERROR        512u

enum exit_status {
	EXIT_OK = 0,
	EXIT_FAULT = 1,
	EXIT_USAGE = 2
};

struct conn;
struct daemon;
struct http;
struct loop;
struct sysfs;
struct tracer;
TAILQ_HEAD(departure_list, departure);
TAILQ_HEAD(fill_list, fill);
TAILQ_HEAD(snapshot_list, snapshot);
TAILQ_HEAD(conn_list, conn);
TAILQ_HEAD(ctlconn_list, ctlconn);
TAILQ_HEAD(tracer_list, tracer);
TAILQ_HEAD(waiter_list, waiter);
TAILQ_HEAD(watched_change_list, watched_change);

static inline uint64_t
clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---------------------------------------------------------------- loop.c */

enum loop_order {
	LOOP_TAKE = 1,     /* look into the inbox */
	LOOP_SHUTDOWN = 2, /* all sessions are to end */
	LOOP_EXPIRE = 4,   /* what has not ended by now ends with ESHUTDOWN */
	LOOP_STOP = 8,     /* leave loop_run() */
	LOOP_RETRY = 16,   /* a queue is being frozen: close plugs */
	LOOP_KICK = 32,    /* hang up on those that are to be kicked */
	LOOP_END = 64,     /* end those whose device goes */
	LOOP_SWEEP = 128,  /* give back data of zones that were reset */
	/* done in one turn; the others hold */
	LOOP_ONCE = LOOP_TAKE | LOOP_RETRY | LOOP_KICK | LOOP_END | LOOP_SWEEP,
};

/* A thread with a libev loop.  The main loop is one without a cpu. */
struct loop {
	struct daemon *daemon;
	struct ev_loop *ev;
	struct cpu *cpu; /* NULL: the main loop */
	struct nbd_pool *pool;
	pthread_t thread;
	ev_async wake;    /* something was posted, or a cpu is to run */
	ev_io timer;      /* on timer_fd */
	int timer_fd;     /* CLOCK_MONOTONIC, absolute */
	uint64_t armed;   /* what it is set to; 0: not set */
	uint64_t late_ns; /* how late it wakes us, learned */
	bool polls;       /* counts among daemon->nr_polling */
	bool worked;      /* answered something since it last lingered */
	uint64_t linger_until;
	_Atomic uint64_t active_until; /* others look at it */
	bool again; /* a session has more to do in this turn */

	struct conn_list conns;    /* all of this loop */
	struct conn_list readable; /* collected by watchers */
	struct conn_list stalled;  /* want nbd_got() without bytes */
	struct conn_list dirty;    /* may have output, or have ended */

	pthread_mutex_t inbox_lock;
	struct conn_list inbox;                /* handed over to this loop */
	STAILQ_HEAD(sweep_list, sweep) sweeps; /* LOOP_SWEEP, the same lock */
	_Atomic unsigned orders;   /* enum loop_order: what others want of it */
	_Atomic unsigned nr_conns; /* its load */
};

/* 0 or -errno.  cpu NULL makes the main loop's. */
int loop_init(struct loop *l, struct daemon *d, struct cpu *cpu);
void loop_fini(struct loop *l);
/* Run until LOOP_STOP: watchers collect, then turn(). */
void loop_run(struct loop *l);
int loop_start(struct loop *l); /* in a thread of its own; 0 or -errno */
void loop_join(struct loop *l); /* after LOOP_STOP */
/* Any thread: */
void loop_wake(struct loop *l);
void loop_tell(struct loop *l, enum loop_order order);
void loop_post(struct loop *l, struct conn *c);
/*
 * zones_sweep(), on a cpu.  False, without memory: it does not come to it, and
 * who next uses those zones does it.
 */
bool loop_sweep(struct loop *l, struct disk *disk);
/* The same no more: once its cpu has been called (queue_leave()). */
void loop_sweep_no_more(struct loop *l, const struct disk *disk);

/* ----------------------------------------------------------------- tls.c */

/* Keys, certificates and what is allowed: the same for all connections. */
struct tls;
/*
 * Read the files that the configuration names.  NULL when anything is wrong
 * with one, a line each to `errors`.
 */
struct tls *tls_new(const struct daemon_conf *conf, FILE *errors);
void tls_free(struct tls *t); /* NULL is fine */

/* TLS on a connected socket, which stays the caller's and does not block. */
struct tlsconn;
struct tlsconn *tlsconn_new(struct tls *tls, int fd); /* NULL: no memory */
void tlsconn_free(struct tlsconn *t);                 /* NULL is fine */
/*
 * 0: it is made; -EAGAIN: call again when the socket is writable, or readable;
 * -EPROTO: it has failed; or -errno of the socket, or of a client that is gone.
 */
int tlsconn_handshake(struct tlsconn *t);
bool tlsconn_wants_write(const struct tlsconn *t);
/*
 * As recvmsg() and sendmsg(), with EPROTO where what came is no TLS.  Fewer
 * bytes than there is room for are all that there is, or enough for a time.
 * After EAGAIN send the same bytes, or more behind them.
 */
ssize_t tlsconn_recv(struct tlsconn *t, const struct iovec *iov, int nr);
ssize_t tlsconn_send(struct tlsconn *t, const struct iovec *iov, int nr);
/* Is there something to receive of which the socket knows no more? */
bool tlsconn_pending(const struct tlsconn *t);
/* Say that no more comes (N58), if the socket takes it now. */
void tlsconn_bye(struct tlsconn *t);
/* In words: why it has failed; what was agreed on.  Until the next call. */
const char *tlsconn_error(struct tlsconn *t);
const char *tlsconn_describe(struct tlsconn *t);

/* ---------------------------------------------------------------- conn.c */

enum conn_on {
	CONN_READABLE = 1,
	CONN_STALLED = 2,
	CONN_DIRTY = 4
};

/* What is to become of a connection whose device goes: ever more. */
enum conn_end {
	CONN_STAYS,
	CONN_ENDS,    /* as at SIGTERM, */
	CONN_EXPIRES, /* when its grace is over, */
	CONN_ABORTS   /* and whatever it does */
};

struct conn {
	struct loop *loop;
	struct nbd_session *session;
	struct tlsconn *tls; /* NULL: none (yet) */
	bool tls_begins;     /* its handshake is under way */
	int fd;
	unsigned id; /* for the log and traces; not 0 */
	sa_family_t family;
	char peer[CLIENT_PEER];
	ev_io rd, wr;
	ev_timer handshake;     /* on the main loop only */
	unsigned on;            /* enum conn_on: the lists it is on */
	bool broken;            /* the socket is gone */
	uint64_t next;          /* nbd_next() */
	TAILQ_ENTRY(conn) link; /* in loop->conns or an inbox */
	TAILQ_ENTRY(conn) readable, stalled, dirty;

	/* For client.c; but for the atomics the main loop's own. */
	TAILQ_ENTRY(conn) client;        /* in daemon->clients */
	struct loop *home;               /* whose it is, or is about to be */
	const struct nbd_export *export; /* held; NULL in the handshake */
	unsigned features;               /* enum nbd_feature */
	uint64_t since_ns;
	int64_t pid, uid;
	_Atomic unsigned nr_requests; /* after its last turn */
	atomic_bool kicked;           /* its loop is to hang up */
	_Atomic unsigned end;         /* enum conn_end: the same */
};

/* Take over an accepted socket.  On failure it is closed. */
void conn_new(struct loop *main_loop, int fd, const struct sockaddr *peer,
    enum tls_mode tls);
/*
 * Clients that connect and say nothing must not keep others out: of those that
 * have not negotiated the oldest goes when a limit is reached.  False: there
 * is none of that age.
 */
bool conn_make_room(struct loop *main_loop, const char *limit, uint64_t age_ns);
/* Start it on the loop that it was posted to. */
void conn_attach(struct conn *c, struct loop *l, uint64_t now);
/* Read once, parse, submit. */
void conn_read(struct conn *c, uint64_t now);
/* Time has passed, or a tag was freed: did it get anything to the device? */
bool conn_retry(struct conn *c, uint64_t now);
/* Send what there is; close or hand over when it is time. */
void conn_finish(struct conn *c);
void conn_mark(struct conn *c, enum conn_on list);
void conn_shutdown(struct conn *c);
/* What is not in flight is answered with ESHUTDOWN. */
void conn_expire(struct conn *c, uint64_t now);
/* Whatever is in flight: hang up. */
void conn_abort(struct conn *c, uint64_t now);
/* The same, if it is to be kicked; and the client sees it at once. */
void conn_kick(struct conn *c, uint64_t now);
/* What c->end says. */
void conn_end(struct conn *c, uint64_t now);

/* -------------------------------------------------------------- client.c */

/* A connection has come, on the main loop; is gone, on any. */
void client_add(struct conn *c);
void client_remove(struct conn *c);
/* The main loop is about to hand it over. */
void client_moves(struct conn *c, struct loop *to);
/* What its loop tells others. */
void client_publish(struct conn *c);
/* All of them, an array to be freed: how many, or -ENOMEM.  Main loop. */
int client_list(struct daemon *d, struct client **out);
/* 0 or -ENOENT.  Main loop. */
int client_kick(struct daemon *d, uint64_t id);
/* Requests of all of them that are not answered.  Any thread. */
uint64_t client_requests(struct daemon *d);
/* All that are attached to a disk.  Main loop. */
void client_end(struct daemon *d, const struct disk *disk, enum conn_end how);

/* -------------------------------------------------------------- listen.c */

struct listener {
	struct daemon *daemon;
	ev_io io;
	int fd;
	bool control; /* the control socket, not NBD */
	bool metrics; /* the same: HTTP */
	enum tls_mode tls;
	sa_family_t family; /* AF_UNIX, AF_INET, AF_INET6 or AF_VSOCK */
	char path[109];     /* of a UNIX socket; else "" */
	bool abstract;      /* the path is a name in the abstract space */
	bool has_file;      /* it is ours to remove, */
	bool has_directory; /* and its directory, too */
	dev_t dev;          /* what we bound, so that we remove no other */
	ino_t ino;
	char host[64]; /* of a TCP socket, */
	unsigned cid;  /* or of vsock; */
	unsigned port; /* with the port it got */
};

static inline bool
listener_is_nbd(const struct listener *ln)
{
	return !ln->control && !ln->metrics;
}

/*
 * Listen on a UNIX socket, or on every address that host:port means.  A
 * socket file that nobody answers on is replaced, a live one never.  0, or
 * -errno with a sentence in err.
 */
int listen_unix(
    struct daemon *d, const char *path, bool control, char *err, size_t errlen);
int listen_tcp(struct daemon *d, const char *host, unsigned port, char *err,
    size_t errlen);
/* On a UNIX socket in a new directory that only we may enter. */
int listen_private(struct daemon *d, char *err, size_t errlen);
/* cid VSOCK_ANY: at each of ours. */
int listen_vsock(
    struct daemon *d, unsigned cid, unsigned port, char *err, size_t errlen);
/* On a socket that was passed to us, if it is one that listens. */
int
listen_passed(struct daemon *d, int fd, bool control, char *err, size_t errlen);
/* Stop accepting; remove the socket files that are still ours. */
void listen_close_all(struct daemon *d);
/* A connection was closed: accepting may go on. */
void listen_resume(struct daemon *d);

/* -------------------------------------------------------------- waiter.c */

/* Who asks for a change, and may have to wait until it is made. */
struct waiter {
	TAILQ_ENTRY(waiter) link; /* in daemon->waiters, while it does */
	struct daemon *daemon;
	struct disk *disk; /* of the change; NULL: it does not wait */
	bool departs;      /* not for a change, but that it is off */
	const char *by;    /* what it is, for events: "control", "sysfs" */
	/* It is done; or refused, -errno with a sentence.  May free it. */
	void (*done)(struct waiter *w, const struct disk *disk, int error,
	    const char *text);
};

static inline bool
waiter_waits(const struct waiter *w)
{
	return w->disk != NULL;
}

/* For the change that is under way, or until the disk is off. */
void waiter_wait(struct waiter *w, struct disk *disk, bool departs);
/* It is about to be gone; fine if it does not wait. */
void waiter_cancel(struct waiter *w);
/* for struct ctl, whose `from` is the waiter */
void waiter_settle(void *from, struct disk *disk);
int
waiter_create(void *from, const struct device *dev, char *err, size_t errlen);
int waiter_snapshot(
    void *from, struct disk *of, struct device *dev, char *err, size_t errlen);
int
waiter_power(void *from, struct disk *disk, bool on, char *err, size_t errlen);
int waiter_cut(void *from, struct disk *disk, const struct cut_conf *c,
    char *err, size_t errlen);
int waiter_remove(void *from, struct disk *disk);
void waiter_sweep(void *from, struct disk *disk);
void waiter_changed(void *from, const struct disk *disk, const char *attribute,
    const char *value, bool settles);
/* The change of a disk has settled: who asked for it is told. */
void waiter_settled(
    struct daemon *d, const struct disk *disk, int error, const char *text);
/* It is off, and perhaps about to be gone: the same. */
void waiter_departed(struct daemon *d, const struct disk *disk);

/* ------------------------------------------------------------- ctlconn.c */

/* The main loop is there. */
void ctlconn_init(struct daemon *d);
void ctlconn_new(struct daemon *d, int fd);
/*
 * The daemon is to end.  Those stay until it does that are traced to, or have
 * something left to read.
 */
void ctlconn_close_all(struct daemon *d);
/* It does: they get it, as far as they read it in TRACE_END_MS. */
void ctlconn_end_traces(struct daemon *d);
/* for daemon->ctl, whose `from` is their waiter */
int ctlconn_trace(void *from, struct disk *disk);
int ctlconn_clients(void *from, struct client **out);
int ctlconn_kick(void *from, uint64_t id);
int ctlconn_places(void *from, const struct disk *disk, struct place **out);
void ctlconn_state(void *from, struct daemon_state *out);
int ctlconn_watch(void *from, const struct disk *disk);
/* An event: all that watch it get a line; and then send what they have. */
void ctlconn_tell(struct daemon *d, const struct event *e);
void ctlconn_told(struct daemon *d);
/* The disk that it is traced goes off: no more comes; or hang up on it. */
void ctlconn_end_trace(struct ctlconn *c, bool at_once);
void ctlconn_await(void *from, struct disk *disk, uint64_t id, uint64_t hits);
/* A disk that is not on yet: who waits for its rules is to be answered. */
void ctlconn_watch_faults(struct daemon *d, struct disk *disk);
/* It is about to be gone: they are told. */
void ctlconn_forget(struct daemon *d, const struct disk *disk);
/* For its tracer: bytes that it takes now; take some: 0 or -ENOMEM; */
size_t ctlconn_room(const struct ctlconn *c);
int ctlconn_put(struct ctlconn *c, const char *data, size_t len);
/* send what is there.  This may free it, and the tracer. */
void ctlconn_stream(struct ctlconn *c);

/* --------------------------------------------------------------- watch.c */

struct watching {
	_Atomic unsigned nr;  /* connections that watch; 0: nothing is kept */
	pthread_mutex_t lock; /* of the ring, which they read together: */
	struct event *ring;   /* NULL: nobody does */
	unsigned first, nr_events;
	uint64_t lost; /* for want of room, after those in the ring */
	uint64_t seq;  /* the last one's */
	ev_async posted;
	struct watched_change_list changes; /* not settled; the main loop's */
};

/* The main loop is there. */
void watch_init(struct daemon *d);
void watch_fini(struct daemon *d);
/* One more watches: 0 or -ENOMEM; one less.  Main loop. */
int watch_begin(struct daemon *d);
void watch_end(struct daemon *d);
/* The daemon is to end: all are told, after what there is.  Main loop. */
void watch_shutdown(struct daemon *d);
/*
 * Something has happened; any thread.  To a device (by whom; or NULL), a
 * client; a hit.
 */
void watch_device(struct daemon *d, enum event_kind kind,
    const struct disk *disk, const char *by);
void watch_client(struct daemon *d, enum event_kind kind, const struct conn *c);
void watch_fault(
    struct daemon *d, const struct disk *disk, const struct fault_seen *seen);
/* An attribute was set, or will be when it has settled.  Main loop. */
void watch_set(struct daemon *d, const char *by, const struct disk *disk,
    const char *attribute, const char *value, bool settles);
/* It has, and it was `done`; or its disk is about to be gone. */
void watch_settled(struct daemon *d, const struct disk *disk, bool done);

/* --------------------------------------------------------------- sysfs.c */

/*
 * Mount the files of the devices at d->conf.sysfs; the main loop serves them.
 * 0, or -errno with a sentence.
 */
int sysfs_start(struct daemon *d, char *err, size_t errlen);
/* Unmount them, if they are; who waits for an answer gets ESHUTDOWN. */
void sysfs_stop(struct daemon *d);
/* A disk is about to be gone, and its files with it. */
void sysfs_forget(struct daemon *d, const struct disk *disk);

/* ---------------------------------------------------------------- http.c */

/* On the main loop.  NULL: no memory, or no descriptors. */
struct http *http_new(struct daemon *d);
void http_free(struct http *h); /* NULL is fine; its connections end */
/* Take over an accepted socket; on failure it is closed. */
void http_new_conn(
    struct http *h, int fd, const struct sockaddr *peer, socklen_t len);

/* -------------------------------------------------------------- tracer.c */

/*
 * Trace a disk that is on, to the files that its attribute says.  0, or -errno
 * with a sentence.
 */
int tracer_start(struct daemon *d, struct disk *disk, char *err, size_t errlen);
/* The same to a control connection, which owns it: 0, -EBUSY or -ENOMEM. */
int tracer_attach(struct daemon *d, struct disk *disk, struct ctlconn *c,
    struct tracer **out);
/* Hand on what there is, if there is room for it.  0 or -errno. */
int tracer_drain(struct tracer *t);
/*
 * Trace no more and hand on the rest: 1; 0: there is no room for all of it,
 * call again; or -errno.
 */
int tracer_end(struct tracer *t);
void tracer_free(struct tracer *t); /* NULL is fine */
/* Is it traced? */
bool tracer_has(const struct daemon *d, const struct disk *disk);
/*
 * A disk goes off: end that of it.  If it still has one, there are events for a
 * client (which is hung up on, with `hang_up`): call again.
 */
void tracer_end_disk(struct daemon *d, const struct disk *disk, bool hang_up);
/* End and free those to files. */
void tracer_end_files(struct daemon *d);

/* -------------------------------------------------------------- export.c */

struct export_name;
STAILQ_HEAD(export_list, export_name);

/* Set d->host. */
void export_init(struct daemon *d);
void export_fini(struct daemon *d);
/*
 * Serve a disk that is on, to who attaches from now on, under all its names.
 * 0 or -ENOMEM.
 */
int export_add(struct daemon *d, struct disk *disk);
/*
 * Serve it no more: nobody attaches from now on.  Its names are put on a list,
 * for export_forget() once they are not used any more.
 */
void export_withdraw(
    struct daemon *d, const struct disk *disk, struct export_list *out);
bool export_is_used(const struct export_list *list);
void export_forget(struct daemon *d, struct export_list *list);
/* A connection is attached to it, on the main loop; is no more, on any. */
void export_hold(const struct nbd_export *e);
void export_put(const struct nbd_export *e);
/* A change of a disk has settled: what is offered in handshakes changes. */
void export_offer_trim(struct daemon *d, const struct disk *disk);
/* What a client gets who names none; NULL: nothing. */
const struct nbd_export *export_default(const struct daemon *d);

/* -------------------------------------------------------------- device.c */

/*
 * Make a disk of it, the last one, with this data (NULL: none; the disk's in
 * any case), power it on, and serve it.  0; -EINPROGRESS: there is one, and the
 * rest is as fill_disk() has it, and if that fails there is none any more; or
 * -errno with a sentence.
 */
int device_add(struct daemon *d, const struct device *dev, struct store *data,
    char *err, size_t errlen);
/*
 * The same of a daemon that runs: it is traced, and announced in the log, too,
 * and to who watches, with by whom.
 */
int device_introduce(struct daemon *d, const struct device *dev,
    struct store *data, const char *by, char *err, size_t errlen);
/* The power of one comes on, likewise. */
int
device_power_on(struct daemon *d, struct disk *disk, char *err, size_t errlen);
/* One that is off, and its data freed, is forgotten: it is no device any more.
 */
void device_remove(struct daemon *d, struct disk *disk);
/* Trace it, if its attribute says so.  The same. */
int device_trace(struct daemon *d, struct disk *disk, char *err, size_t errlen);

/* ---------------------------------------------------------------- fill.c */

/*
 * Before its power comes on: if it is to have the data of an image, and has
 * none yet, see to it.  0: it has.  -EINPROGRESS: once it has, it goes on, and
 * waiter_settled() is called; before there is a main loop it is done at once.
 * Else -errno with a sentence.
 */
int fill_disk(struct daemon *d, struct disk *disk, char *err, size_t errlen);
/*
 * Can it begin with the image that it names, if it names one?  0, or -errno
 * with a sentence: it is not there, is no file, cannot be read, is too large.
 */
int fill_check(
    const struct disk_conf *set, unsigned nr_cpus, char *err, size_t errlen);
/* After -EINPROGRESS: if that fails it is to be no device any more. */
void fill_or_remove(struct daemon *d, const struct disk *disk);
/* It is not to go on any more.  True: call again, its image is still read. */
bool fill_cancel(struct daemon *d, const struct disk *disk);
/* The main loop has ended, but is still there. */
void fill_fini(struct daemon *d);

/* ------------------------------------------------------------- backing.c */

/*
 * The file that keeps the data of a disk that is off, as its attribute says:
 * ours alone, made if it is not there, and grown to the size.  0, or -errno
 * with a sentence.  Main loop.
 */
int backing_open(struct daemon *d, const struct disk *disk, uint64_t size,
    struct backing **out, char *err, size_t errlen);
/* A descriptor of it, to read from and to be closed; or -1 and errno. */
int backing_fd(const struct backing *b);
/* No disk that is on has it.  Any thread; NULL is fine. */
void backing_close(struct backing *b);
/* It is no device any more: memory that was kept for it goes.  Main loop. */
void backing_forget(struct daemon *d, const struct disk *disk);
/* The daemon ends: to its service manager it stays. */
void backing_leave(struct daemon *d);

/* ---------------------------------------------------------------- file.c */

/*
 * Made if it is not there, and ours alone: a descriptor, or -errno with a
 * sentence that begins with the attribute; of what is no file it ends with
 * what is `allowed`.
 */
int file_open_alone(const char *attr, const char *path, const char *allowed,
    char *err, size_t errlen);
/* All of it, at pos: 0 or -errno.  Any thread. */
int file_write_all(int fd, const struct iovec *iov, unsigned nr, uint64_t pos);

/* ------------------------------------------------------------ crashlog.c */

/*
 * The power of a disk has come on, which is to have a crash_log, and nobody has
 * used it: it is recorded from now on.  0, or -errno with a sentence.
 */
int crashlog_begin(struct disk *disk, char *err, size_t errlen);
/* It is off.  Fine if there is none. */
void crashlog_end(struct disk *disk);

/* --------------------------------------------------------------- power.c */

/*
 * It is on, and served: 0.  -EINPROGRESS: as fill_disk() has it.  Else -errno
 * with a sentence.
 */
int power_on(struct daemon *d, struct disk *disk, char *err, size_t errlen);
/*
 * It goes off, and with `remove` is a device no more.  0: it was off already.
 * -EINPROGRESS: when it has happened, waiter_departed() is called.  -ENOMEM.
 */
int power_off(struct daemon *d, struct disk *disk, bool remove);
/*
 * It is cut, which it can (disk_can_cut()): 0, with a request to come.
 * -EINPROGRESS: as power_off().  Else -errno with a sentence.
 */
int power_cut(struct daemon *d, struct disk *disk, const struct cut_conf *c,
    char *err, size_t errlen);
void power_init(struct daemon *d);
/* Is it on its way to be no device any more? */
bool power_removes(const struct daemon *d, const struct disk *disk);
/* The daemon ends, and no worker runs any more. */
void power_fini(struct daemon *d);

/* ------------------------------------------------------------ snapshot.c */

/*
 * Make a disk of a device, with the data of another.  0; -EINPROGRESS: the
 * other is being frozen, and when it has settled, the device is served, or
 * dropped; or -errno with a sentence.  Main loop.
 */
int snapshot_begin(struct daemon *d, struct disk *of, struct device *dev,
    const char *by, char *err, size_t errlen);
/*
 * A disk has settled, with that error: what comes of it, if it was for a
 * snapshot.  0, or -errno with a sentence.
 */
int snapshot_settled(
    struct daemon *d, struct disk *of, int error, char *err, size_t errlen);

/* -------------------------------------------------------------- reload.c */

/* From now on SIGHUP reads the files again. */
void reload_watch(struct daemon *d);

/* ----------------------------------------------------------------- uri.c */

/* The NBD URI of an export (for TLS alone?) at a listener, in PLACE_URI bytes.
 */
void uri_make(char *out, size_t len, const struct listener *ln,
    const char *export, bool tls_only);
/* The first listener that is for NBD, if need be with TLS if there is one. */
const struct listener *uri_listener(const struct daemon *d, bool tls_only);
/* A disk that is on, for who reads the log: its URI, lines to paste. */
void uri_log(const struct daemon *d, const struct disk *disk);
void uri_log_all(const struct daemon *d); /* the first few */
/* Where a disk is served, as an array to be freed: how many, or -ENOMEM. */
int
uri_places(const struct daemon *d, const struct disk *disk, struct place **out);
/* All URIs, a line each.  0 or -errno. */
int uri_print_all(const struct daemon *d, FILE *out);

/* ---------------------------------------------------------------- host.c */

/* One connection a descriptor: take as many as we may have. */
void host_raise_files(void);
/*
 * From d->conf: how many workers there are to be, where they are pinned, how
 * many cores that is.  0, or -EINVAL with a sentence.
 */
int host_choose_cpus(struct daemon *d, char *err, size_t errlen);
/*
 * Start a thread that gets no signals: they are the main thread's.  attr may be
 * NULL.  0 or -errno.
 */
int host_start_thread(pthread_t *thread, const pthread_attr_t *attr,
    void *(*run)(void *), void *arg);

/* ------------------------------------------------------------- systemd.c */

struct systemd {
	char *notify;    /* $NOTIFY_SOCKET; NULL: nobody wants to know */
	unsigned nr_fds; /* sockets that were passed */
	bool is_control[DAEMON_MAX_LISTENERS]; /* by socket */
	/* and whose memory it is: "", none; it is a socket, or was taken */
	char kept[DAEMON_MAX_LISTENERS][DISK_NAME_LEN];
	bool is_kept[DAEMON_MAX_LISTENERS];
};

/*
 * Take what is meant for us out of the environment.  Before anything opens a
 * file, which could get the number of a socket that was not passed after all.
 * 0, or -errno with a sentence.
 */
int systemd_init(struct systemd *s, char *err, size_t errlen);
void systemd_fini(struct systemd *s);
bool systemd_passes_nbd(const struct systemd *s);
bool systemd_passes_control(const struct systemd *s);
/* Listen on all that was passed.  0, or -errno with a sentence. */
int systemd_listen(struct daemon *d, char *err, size_t errlen);
/*
 * Memory of a device (backing=memfd), in the manager's store of descriptors: it
 * is kept from now on, false: nobody does; it was kept, for who takes it, or
 * -1; no more.
 */
bool systemd_keep(const struct systemd *s, const char *device, int fd);
int systemd_take(struct systemd *s, const char *device);
void systemd_drop(const struct systemd *s, const char *device);
/* Lines for sd_notify(3): "READY=1\nSTATUS=...". */
void systemd_notify(const struct systemd *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The service is up, and what it serves. */
void systemd_ready(const struct daemon *d);

/* ----------------------------------------------------------------- run.c */

/* Start the command of --run; when it ends, we do.  0 or -errno. */
int run_start(struct daemon *d, const char *command);
bool run_lasts(const struct daemon *d);
/* Send it a signal, if it lasts. */
void run_kill(struct daemon *d, int sig);

/* ------------------------------------------------------------- pidfile.c */

/* 0, or -errno with a sentence. */
int pidfile_write(const char *path, char *err, size_t errlen);
/* If it is there, and ours. */
void pidfile_remove(const char *path);

/* ------------------------------------------------------------ shutdown.c */

/* Signals end us from now on. */
void shutdown_watch(struct daemon *d);
void shutdown_begin(struct daemon *d);
/* All traces end. */
void shutdown_traces(struct daemon *d);
/* A connection is gone; any thread. */
void daemon_conn_closed(struct daemon *d);

/* ---------------------------------------------------------------- main.c */

#define MAX_METRICS 4u /* addresses that a name may have */
/* and the control's */
#define MAX_LISTENERS (DAEMON_MAX_LISTENERS + MAX_METRICS + 1)

struct daemon {
	struct config *config; /* all that was asked for, and served since */
	struct daemon_conf conf;
	struct systemd systemd;
	struct tls *tls; /* NULL: no listener has it */
	struct machine *machine;
	struct page_pool *pages;
	struct disk **disk;           /* more are added by a reload */
	struct export_name **exports; /* the same */
	unsigned nr_disks;
	unsigned nr_exports; /* names under which disks are served */
	struct nbd_host host;
	struct nbd_limits limits;
	struct ctl ctl;

	struct loop main;
	struct loop *worker;
	unsigned nr_workers;
	unsigned nr_cores;             /* for the workers */
	unsigned pin[DAEMON_MAX_CPUS]; /* worker i runs on pin[i % nr_pins] */
	unsigned nr_pins;              /* 0: where the kernel likes */
	_Atomic unsigned nr_polling;   /* loops that poll for a deadline */

	struct listener listener[MAX_LISTENERS];
	unsigned nr_listeners;
	atomic_bool accept_paused;
	bool limit_told; /* in the log, since one was accepted */
	ev_timer accept_again;
	_Atomic unsigned nr_conns;
	unsigned next_conn_id;
	pthread_mutex_t clients_lock;
	struct conn_list clients; /* of all loops */
	struct ctlconn_list ctlconns;
	struct sysfs *sysfs;        /* NULL: not mounted */
	struct http *http;          /* NULL: no metrics */
	struct waiter_list waiters; /* for a change, or that a device is off */
	unsigned nr_ctlconns;
	_Atomic unsigned nr_awaits; /* of them, that wait for a rule's hit; */
	ev_async fault_hit;         /* there was one, perhaps */
	ev_async power_gone;        /* of a disk, the same */
	struct watching watching;
	struct tracer_list tracers;
	ev_timer trace_tick;         /* while there are any */
	_Atomic uint64_t log_second; /* of the lines that clients cause */
	_Atomic unsigned log_lines;  /* in it */
	atomic_bool shutting_down;
	uint64_t signalled_ns; /* when that had begun, if by a signal */
	int exit_status;
	ev_signal sigterm, sigint, sighup;
	ev_async conn_closed;
	ev_timer grace, too_late; /* of a shutdown */
	ev_timer settle;          /* while a disk's change is under way */
	SLIST_HEAD(memory_file_list, memory_file) memory_files; /* backing.c */
	struct snapshot_list snapshots;   /* of disks that are being frozen */
	struct fill_list fills;           /* of disks that are to go on */
	struct departure_list departures; /* of disks that go off */
	ev_timer depart;                  /* while there are any */
	bool has_pidfile;
	ev_child command;       /* --run */
	bool command_has_group; /* a process group of its own */
};

/* The worker with the fewest connections. */
struct loop *daemon_least_loaded(struct daemon *d);
/* May a client cause one line more in the log?  A few a second.  Any thread. */
bool daemon_may_log(struct daemon *d);
/* What metrics tell of it.  Main thread. */
void daemon_state(struct daemon *d, struct daemon_state *out);
/* A disk_set() is under way: see to it that it settles.  Main thread. */
void daemon_settle(struct daemon *d);

#endif
