/* SPDX-License-Identifier: MIT */
/*
 * What a service manager and its service tell each other: it passes sockets
 * that listen already (sd_listen_fds(3)), we tell it how we are (sd_notify(3)).
 * Both are a few variables of the environment and a datagram, so libsystemd,
 * which a machine without systemd may lack, is not needed for them.
 */
#include "daemon.h"

#include <sys/un.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define FIRST_FD    3
#define MAX_MESSAGE 1024u
#define KEPT        "backing-" /* and a device: what its memory is called */
#define SEND_SEC    1 /* a manager that does not listen is not waited for */

/* ---- sockets */

/* The descriptors are open: let them be ours alone. */
static int
take_fds(struct systemd *s, unsigned nr, char *err, size_t errlen)
{
	for (unsigned i = 0; i < nr; i++) {
		int fd = FIRST_FD + (int)i, flags = fcntl(fd, F_GETFL);

		if (flags < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
		    fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
			return refuse(err, errlen, -EBADF,
			    "LISTEN_FDS: %u: descriptor %d: %s", nr, fd,
			    strerror(errno));
	}
	s->nr_fds = nr;
	return 0;
}

/* What is at `name` for so many bytes is the i-th descriptor's. */
static void
take_name(struct systemd *s, unsigned i, const char *name, size_t len)
{
	size_t prefix = strlen(KEPT);

	s->is_control[i] = len == 7 && strncmp(name, "control", 7) == 0;
	if (len <= prefix || len - prefix >= DISK_NAME_LEN ||
	    strncmp(name, KEPT, prefix) != 0)
		return;
	memcpy(s->kept[i], name + prefix, len - prefix);
	s->is_kept[i] = true;
}

/*
 * A name for each, colons between them; "control" is the control socket,
 * "backing-NAME" the memory of a device.
 */
static int
take_names(struct systemd *s, const char *names, char *err, size_t errlen)
{
	unsigned nr = 0;
	size_t len;

	if (names == NULL)
		return 0;
	for (;; names += len + 1) {
		len = strcspn(names, ":");
		if (nr < s->nr_fds)
			take_name(s, nr, names, len);
		nr++;
		if (names[len] == '\0')
			break;
	}
	if (nr == s->nr_fds)
		return 0;
	return refuse(err, errlen, -EINVAL,
	    "LISTEN_FDNAMES: %u names; allowed: as many as LISTEN_FDS says, %u",
	    nr, s->nr_fds);
}

/* Were they passed to us, or to somebody we inherited the variables from? */
static bool
are_for_us(const char *pid)
{
	uint64_t number;

	return pid != NULL && uint_parse(pid, NULL, &number) == 0 &&
	       number == (uint64_t)getpid();
}

static int
take_sockets(struct systemd *s, char *err, size_t errlen)
{
	const char *fds = getenv("LISTEN_FDS");
	uint64_t nr;

	if (fds == NULL || !are_for_us(getenv("LISTEN_PID")))
		return 0;
	if (uint_parse(fds, NULL, &nr) != 0 || nr == 0 ||
	    nr > DAEMON_MAX_LISTENERS)
		return refuse(err, errlen, -EINVAL,
		    "LISTEN_FDS: \"%.60s\": allowed: a number from 1 to %d",
		    fds, DAEMON_MAX_LISTENERS);
	if (take_fds(s, (unsigned)nr, err, errlen) != 0)
		return -EBADF;
	return take_names(s, getenv("LISTEN_FDNAMES"), err, errlen);
}

int
systemd_init(struct systemd *s, char *err, size_t errlen)
{
	static const char *const names[] = { "LISTEN_PID", "LISTEN_FDS",
		"LISTEN_FDNAMES", "NOTIFY_SOCKET" };
	const char *notify = getenv("NOTIFY_SOCKET");
	int ret = take_sockets(s, err, errlen);

	if (ret == 0 && notify != NULL)
		s->notify = strdup(notify);
	/* a command that we run is not the service that they are meant for */
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unsetenv(names[i]);
	return ret;
}

void
systemd_fini(struct systemd *s)
{
	free(s->notify);
}

bool
systemd_passes_nbd(const struct systemd *s)
{
	for (unsigned i = 0; i < s->nr_fds; i++)
		if (!s->is_control[i] && !s->is_kept[i])
			return true;
	return false;
}

bool
systemd_passes_control(const struct systemd *s)
{
	for (unsigned i = 0; i < s->nr_fds; i++)
		if (s->is_control[i])
			return true;
	return false;
}

int
systemd_listen(struct daemon *d, char *err, size_t errlen)
{
	const struct systemd *s = &d->systemd;
	int ret = 0;

	for (unsigned i = 0; i < s->nr_fds && ret == 0; i++)
		if (!s->is_kept[i])
			ret = listen_passed(d, FIRST_FD + (int)i,
			    s->is_control[i], err, errlen);
	return ret;
}

/* ---- states */

/* "/path", or "@name" of an abstract one.  Its length; 0: neither, too long. */
static socklen_t
notify_address(const char *where, struct sockaddr_un *sun)
{
	size_t len = strlen(where);

	*sun = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if ((*where != '/' && *where != '@') || len < 2 ||
	    len >= sizeof(sun->sun_path))
		return 0;
	memcpy(sun->sun_path, where, len);
	if (*where == '@')
		sun->sun_path[0] = '\0';
	else
		len++; /* and its NUL */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

/* With a descriptor, or without, -1. */
static int
send_message(const char *where, const char *text, int passed)
{
	const struct timeval limit = { .tv_sec = SEND_SEC };
	struct iovec iov = { (void *)text, strlen(text) };
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))] = { 0 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cmsg;
	struct sockaddr_un sun;
	int fd, err = 0;

	msg.msg_name = &sun;
	msg.msg_namelen = notify_address(where, &sun);
	if (msg.msg_namelen == 0)
		return -EINVAL;
	if (passed >= 0) {
		msg.msg_control = room;
		msg.msg_controllen = sizeof(room);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &passed, sizeof(int));
	}
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (sendmsg(fd, &msg, MSG_NOSIGNAL) < 0)
		err = -errno;
	close(fd);
	return err;
}

/* False: nobody wants to know, or it did not get there, which is told. */
static bool
tell(const struct systemd *s, const char *text, int fd)
{
	int err;

	if (s->notify == NULL)
		return false;
	err = send_message(s->notify, text, fd);
	if (err != 0)
		log_warn("NOTIFY_SOCKET: \"%s\": %s", s->notify,
		    err == -EINVAL ? "allowed: a path, or @ and a name"
				   : strerror(-err));
	return err == 0;
}

void
systemd_notify(const struct systemd *s, const char *fmt, ...)
{
	char text[MAX_MESSAGE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)tell(s, text, -1);
}

/* ---- memory */

/* FDPOLL=0: it never hangs up, and must not go because it seems to. */
bool
systemd_keep(const struct systemd *s, const char *device, int fd)
{
	char text[MAX_MESSAGE];

	/* which would end the name in the manager's list */
	if (strchr(device, ':') != NULL)
		return false;
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=" KEPT "%s\nFDPOLL=0",
	    device);
	return tell(s, text, fd);
}

int
systemd_take(struct systemd *s, const char *device)
{
	for (unsigned i = 0; i < s->nr_fds; i++) {
		if (!s->is_kept[i] || strcmp(s->kept[i], device) != 0)
			continue;
		s->kept[i][0] = '\0';
		return FIRST_FD + (int)i;
	}
	return -1;
}

void
systemd_drop(const struct systemd *s, const char *device)
{
	systemd_notify(s, "FDSTOREREMOVE=1\nFDNAME=" KEPT "%s", device);
}

void
systemd_ready(const struct daemon *d)
{
	unsigned nr = 0;
	char uri[PLACE_URI];

	for (unsigned i = 0; i < d->nr_disks; i++)
		nr += d->disk[i]->queue != NULL;
	uri_make(uri, sizeof(uri), uri_listener(d, false), "", false);
	systemd_notify(
	    &d->systemd, "READY=1\nSTATUS=%u devices at %s", nr, uri);
}
