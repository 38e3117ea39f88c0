/* SPDX-License-Identifier: MIT */
/*
 * Sockets that accept.  A UNIX socket leaves a file: a stale one (nobody
 * answers) is replaced, a live one never; on exit only the file that we made
 * is removed, and a private socket's directory with it.  Sockets that a service
 * manager has passed were bound by it: their files are its own.
 */
#include "daemon.h"

#include <libgen.h>
#include <linux/vm_sockets.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define BACKLOG      1024
#define SILENT_NS    1000000000u /* so long a handshake may take in need */
#define LOCK_TRIES   20
#define LOCK_MS      100      /* between two of them */
#define PRIVATE_NAME "socket" /* in the directory of a private one */

static void
pause_all(struct daemon *d, bool control_too)
{
	unsigned i;

	d->accept_paused = true;
	for (i = 0; i < d->nr_listeners; i++)
		if (control_too || listener_is_nbd(&d->listener[i]))
			ev_io_stop(d->main.ev, &d->listener[i].io);
}

void
listen_resume(struct daemon *d)
{
	unsigned i;

	if (!d->accept_paused || d->shutting_down)
		return;
	d->accept_paused = false;
	ev_timer_stop(d->main.ev, &d->accept_again);
	for (i = 0; i < d->nr_listeners; i++)
		ev_io_start(d->main.ev, &d->listener[i].io);
}

static void
on_accept_again(struct ev_loop *ev, ev_timer *w, int revents)
{
	(void)ev;
	(void)revents;
	listen_resume(w->data);
}

static void
look_again(struct daemon *d)
{
	ev_timer_stop(d->main.ev, &d->accept_again);
	ev_timer_init(&d->accept_again, on_accept_again, EMFILE_PAUSE_SEC, 0.);
	d->accept_again.data = d;
	ev_timer_start(d->main.ev, &d->accept_again);
}

/* No descriptor or memory for one more: don't spin on the ready socket. */
static void
pause_for_a_while(struct daemon *d, int err)
{
	if (daemon_may_log(d))
		log_warn("accept: %s: paused", strerror(err));
	conn_make_room(&d->main, "what the system allows", SILENT_NS);
	pause_all(d, true);
	look_again(d);
}

static bool
is_transient(int err)
{
	return err == EAGAIN || err == EINTR || err == ECONNABORTED ||
	       err == EPROTO || err == ENETDOWN || err == EHOSTUNREACH;
}

/*
 * No more connections until one is closed, or one has said nothing for a
 * while: until then it may be negotiating.
 */
static void
wait_for_room(struct daemon *d)
{
	bool gone = conn_make_room(&d->main, "max_connections", SILENT_NS);

	if (!gone && !d->limit_told)
		log_warn("max_connections (%u) reached: accepting is paused",
		    d->conf.max_connections);
	d->limit_told = true;
	pause_all(d, false);
	/* one may have been closed just before the pause */
	if (atomic_load(&d->nr_conns) < d->conf.max_connections)
		listen_resume(d);
	else if (atomic_load(&d->main.nr_conns) > 0)
		look_again(d);
}

static void
on_connection(struct ev_loop *ev, ev_io *w, int revents)
{
	struct listener *ln = w->data;
	struct daemon *d = ln->daemon;
	struct sockaddr_storage ss;
	socklen_t len;
	unsigned i;
	int fd;

	(void)ev;
	(void)revents;
	for (i = 0; i < ACCEPTS_A_TURN; i++) {
		if (listener_is_nbd(ln) &&
		    atomic_load(&d->nr_conns) >= d->conf.max_connections) {
			wait_for_room(d);
			return;
		}
		len = sizeof(ss);
		fd = accept4(ln->fd, (struct sockaddr *)&ss, &len,
		    SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (!is_transient(errno))
				pause_for_a_while(d, errno);
			return;
		}
		d->limit_told = false;
		if (ln->control)
			ctlconn_new(d, fd);
		else if (ln->metrics)
			http_new_conn(d->http, fd, (struct sockaddr *)&ss, len);
		else
			conn_new(&d->main, fd, (struct sockaddr *)&ss, ln->tls);
	}
}

/* Ours among the hosts of vsock; where there is no telling, the loopback's. */
static unsigned
local_cid(void)
{
	int fd = open("/dev/vsock", O_RDONLY | O_CLOEXEC);
	unsigned cid = VMADDR_CID_LOCAL;

	if (fd < 0)
		return cid;
	if (ioctl(fd, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) != 0 ||
	    cid == VMADDR_CID_ANY)
		cid = VMADDR_CID_LOCAL;
	close(fd);
	return cid;
}

/* Clients have another directory; if the whole path is too long, they must. */
static void
make_absolute(char *path, size_t len)
{
	char whole[PATH_MAX];

	if (realpath(path, whole) != NULL && strlen(whole) < len)
		strcpy(path, whole);
}

/* Where it is, as the kernel says: the port that it chose, when we let it. */
static void
locate(struct listener *ln)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
		struct sockaddr_vm vm;
	} sa = { 0 };
	socklen_t len = sizeof(sa);
	const char *path = sa.un.sun_path;
	size_t path_len;

	if (getsockname(ln->fd, &sa.any, &len) != 0)
		return;
	ln->family = sa.any.sa_family;
	switch (ln->family) {
	case AF_UNIX:
		path_len = len - offsetof(struct sockaddr_un, sun_path);
		ln->abstract = path_len > 0 && *path == '\0';
		path_len -= ln->abstract;
		memcpy(ln->path, path + ln->abstract,
		    path_len < sizeof(ln->path) ? path_len
						: sizeof(ln->path) - 1);
		if (!ln->abstract)
			make_absolute(ln->path, sizeof(ln->path));
		return;
	case AF_VSOCK:
		ln->cid = sa.vm.svm_cid;
		if (ln->cid == VMADDR_CID_ANY)
			ln->cid = local_cid();
		ln->port = sa.vm.svm_port;
		return;
	case AF_INET: ln->port = ntohs(sa.in.sin_port); break;
	case AF_INET6: ln->port = ntohs(sa.in6.sin6_port); break;
	}
	getnameinfo(
	    &sa.any, len, ln->host, sizeof(ln->host), NULL, 0, NI_NUMERICHOST);
}

static struct listener *
listener_add(struct daemon *d, int fd)
{
	struct listener *ln = &d->listener[d->nr_listeners++];

	*ln = (struct listener){
		.daemon = d,
		.fd = fd,
		.tls = (enum tls_mode)d->conf.tls,
	};
	locate(ln);
	ev_io_init(&ln->io, on_connection, fd, EV_READ);
	ln->io.data = ln;
	ev_io_start(d->main.ev, &ln->io);
	return ln;
}

/* 0 when nobody listens there any more and the file was removed. */
static int
remove_stale(const struct sockaddr_un *sun)
{
	struct stat st;
	int fd, err = 0;

	if (lstat(sun->sun_path, &st) != 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) == 0 ||
	    errno != ECONNREFUSED)
		err = -EADDRINUSE; /* somebody answers, or may */
	close(fd);
	if (err == 0 && unlink(sun->sun_path) != 0)
		err = -errno;
	return err;
}

/*
 * Of two daemons that find the same stale socket only one may replace it: they
 * take turns by a lock on its directory.  Returns the lock, or -1.
 */
static int
lock_directory(const char *path)
{
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int fd, i;

	snprintf(dir, sizeof(dir), "%s", path);
	fd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* who keeps it longer is no daemon that starts, and holds nobody up */
	for (i = 0; fd >= 0 && i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			break;
		poll(NULL, 0, LOCK_MS);
	}
	return fd;
}

/* Bind and listen, in place of a stale socket if there is one. */
static int
bind_unix(int fd, const struct sockaddr_un *sun)
{
	int lock = lock_directory(sun->sun_path), err = 0;
	bool replaced = false;

	if (bind(fd, (const struct sockaddr *)sun, sizeof(*sun)) != 0) {
		err = -errno;
		if (err == -EADDRINUSE)
			err = remove_stale(sun);
		replaced = err == 0;
		if (replaced &&
		    bind(fd, (const struct sockaddr *)sun, sizeof(*sun)) != 0)
			err = -errno;
	}
	/* only one that listens is seen to be alive */
	if (err == 0 && listen(fd, BACKLOG) != 0) {
		err = -errno;
		unlink(sun->sun_path);
	}
	if (lock >= 0)
		close(lock);
	if (err == 0 && replaced)
		log_info("%s: a stale socket was replaced", sun->sun_path);
	return err;
}

static const char *
unix_error(int err)
{
	switch (-err) {
	case EADDRINUSE: return "another server listens there";
	case EEXIST: return "exists and is not a socket";
	case ENAMETOOLONG: return "longer than the 107 bytes of a socket path";
	case ENOSPC: return "too many listeners";
	}
	return strerror(-err);
}

int
listen_unix(
    struct daemon *d, const char *path, bool control, char *err, size_t errlen)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct listener *ln;
	struct stat st;
	int fd = -1, res = -ENOSPC;

	if (d->nr_listeners == MAX_LISTENERS)
		goto fail;
	res = -ENAMETOOLONG;
	if (strlen(path) >= sizeof(sun.sun_path))
		goto fail;
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	res = -errno;
	if (fd < 0)
		goto fail;
	res = bind_unix(fd, &sun);
	if (res != 0)
		goto fail;
	if (stat(path, &st) != 0) {
		res = -errno;
		unlink(path);
		goto fail;
	}
	ln = listener_add(d, fd);
	ln->control = control;
	ln->has_file = true;
	ln->dev = st.st_dev;
	ln->ino = st.st_ino;
	return 0;
fail:
	if (fd >= 0)
		close(fd);
	snprintf(err, errlen, "%s: %s", path, unix_error(res));
	return res;
}

int
listen_private(struct daemon *d, char *err, size_t errlen)
{
	const char *tmp = getenv("TMPDIR");
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	char path[sizeof(dir) + sizeof(PRIVATE_NAME)];
	int res;

	if (tmp == NULL || *tmp != '/')
		tmp = "/tmp";
	if (snprintf(dir, sizeof(dir), "%s/nullbd-XXXXXX", tmp) >=
	    (int)sizeof(dir))
		return refuse(err, errlen, -ENAMETOOLONG,
		    "$TMPDIR: too long for the path of a socket");
	if (mkdtemp(dir) == NULL) /* 0700 */
		return refuse(err, errlen, -errno,
		    "a directory for a private socket: %s: %s", dir,
		    strerror(errno));
	snprintf(path, sizeof(path), "%s/%s", dir, PRIVATE_NAME);
	res = listen_unix(d, path, false, err, errlen);
	if (res != 0)
		rmdir(dir);
	else
		d->listener[d->nr_listeners - 1].has_directory = true;
	return res;
}

int
listen_vsock(
    struct daemon *d, unsigned cid, unsigned port, char *err, size_t errlen)
{
	struct sockaddr_vm vm = {
		.svm_family = AF_VSOCK,
		.svm_cid = cid, /* VSOCK_ANY is VMADDR_CID_ANY */
		.svm_port = port != 0 ? port : VMADDR_PORT_ANY,
	};
	int fd = -1, res = -ENOSPC;

	if (d->nr_listeners == MAX_LISTENERS)
		goto fail;
	fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&vm, sizeof(vm)) != 0 ||
	    listen(fd, BACKLOG) != 0) {
		res = -errno;
		goto fail;
	}
	listener_add(d, fd);
	return 0;
fail:
	if (fd >= 0)
		close(fd);
	return refuse(err, errlen, res, "vsock, port %u: %s", port,
	    res == -ENOSPC ? "too many listeners" : strerror(-res));
}

/* What is wrong with a descriptor that should be a socket which listens. */
static const char *
passed_error(int fd)
{
	int type = 0, listens = 0, family = 0;
	socklen_t len = sizeof(int);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0)
		return errno == ENOTSOCK ? "not a socket" : strerror(errno);
	if (type != SOCK_STREAM)
		return "not a stream socket";
	len = sizeof(int);
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
	if (family != AF_UNIX && family != AF_INET && family != AF_INET6 &&
	    family != AF_VSOCK)
		return "neither UNIX, nor TCP, nor vsock";
	len = sizeof(int);
	getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len);
	return listens ? NULL : "a socket that does not listen";
}

int
listen_passed(struct daemon *d, int fd, bool control, char *err, size_t errlen)
{
	const char *wrong = passed_error(fd);

	if (wrong == NULL && d->nr_listeners == MAX_LISTENERS)
		wrong = "too many listeners";
	if (wrong != NULL)
		return refuse(err, errlen, -EINVAL,
		    "LISTEN_FDS: descriptor %d: %s; allowed: stream sockets "
		    "that listen",
		    fd, wrong);
	listener_add(d, fd)->control = control;
	return 0;
}

static int
listen_addr(struct daemon *d, const struct addrinfo *ai)
{
	int fd, one = 1, res;

	if (d->nr_listeners == MAX_LISTENERS)
		return -ENOSPC;
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
	    ai->ai_protocol);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 ||
	    listen(fd, BACKLOG) != 0) {
		res = -errno;
		close(fd);
		return res;
	}
	listener_add(d, fd);
	return 0;
}

int
listen_tcp(
    struct daemon *d, const char *host, unsigned port, char *err, size_t errlen)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
	};
	struct addrinfo *list, *ai;
	char service[16];
	unsigned nr = 0;
	int res;

	snprintf(service, sizeof(service), "%u", port);
	res = getaddrinfo(host, service, &hints, &list);
	if (res != 0) {
		snprintf(err, errlen, "address '%s', port %u: %s", host, port,
		    gai_strerror(res));
		return -EADDRNOTAVAIL;
	}
	for (ai = list; ai != NULL; ai = ai->ai_next) {
		res = listen_addr(d, ai);
		/* a machine without IPv6 may still name ::1 */
		if (res == -EADDRNOTAVAIL || res == -EAFNOSUPPORT)
			continue;
		if (res != 0)
			break;
		nr++;
		if (port == 0)
			break; /* two families would get two ports */
	}
	freeaddrinfo(list);
	if (nr > 0 && (ai == NULL || port == 0))
		return 0;
	snprintf(err, errlen, "address '%s', port %u: %s", host, port,
	    strerror(-res));
	return res;
}

/* A file that another server has put there is not ours. */
static void
remove_file(struct listener *ln)
{
	struct stat st;

	if (ln->has_file && stat(ln->path, &st) == 0 && st.st_dev == ln->dev &&
	    st.st_ino == ln->ino)
		unlink(ln->path);
	if (ln->has_directory) /* whoever has taken the file away */
		rmdir(dirname(ln->path));
}

void
listen_close_all(struct daemon *d)
{
	unsigned i;

	for (i = 0; i < d->nr_listeners; i++) {
		ev_io_stop(d->main.ev, &d->listener[i].io);
		remove_file(&d->listener[i]);
		close(d->listener[i].fd);
	}
	d->nr_listeners = 0;
}
