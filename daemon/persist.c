/* SPDX-License-Identifier: MIT */
/*
 * nullbctl attach --persist: a process that gives an attached device a new
 * connection for each that was lost, as soon as the daemon is there again;
 * meanwhile the kernel keeps the requests.  (nbd-client 3.24 -persist does not:
 * it takes the end of its ioctl for the end of the device.)
 *
 *	kernel: NBD_CMD_LINK_DEAD -> connect, handshake -> NBD_CMD_RECONFIGURE
 */
#include "attach.h"

#include <arpa/inet.h>
#include <linux/nbd-netlink.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "base/attr.h"
#include "ctl/ctl.h"

#define HANDSHAKE_SEC 5
#define RETRY_MS      200 /* between two attempts, and looks at the device */

/* Of the protocol (N9 to N16, N41), what one option takes. */
#define NBDMAGIC        0x4e42444d41474943u
#define IHAVEOPT        0x49484156454f5054u
#define OPT_EXPORT_NAME 1u
#define FLAG_FIXED      1u
#define FLAG_NO_ZEROES  2u

struct keeper {
	const struct attach *attach;
	char device[ATTACH_DEVICE];
	uint32_t index; /* N of /dev/nbdN */
	int family;
	struct nl_sock *orders, *events;
	unsigned nr_dead; /* connections to replace */
};

/* --------------------------------------------------------------- netlink */

/* A message of the nbd family: that one of our connections is dead? */
static int
on_event(struct nl_msg *msg, void *arg)
{
	struct keeper *k = arg;
	struct genlmsghdr *header = nlmsg_data(nlmsg_hdr(msg));
	struct nlattr *attr[NBD_ATTR_MAX + 1];

	if (header->cmd == NBD_CMD_LINK_DEAD &&
	    genlmsg_parse(nlmsg_hdr(msg), 0, attr, NBD_ATTR_MAX, NULL) == 0 &&
	    attr[NBD_ATTR_INDEX] != NULL &&
	    nla_get_u32(attr[NBD_ATTR_INDEX]) == k->index)
		k->nr_dead++;
	return NL_OK;
}

/* Tell the kernel of a socket, or with -1 how long requests may wait for one.
 */
static int
reconfigure(struct keeper *k, int fd)
{
	struct nl_msg *msg = nlmsg_alloc();
	struct nlattr *sockets, *item;
	int ret = -NLE_NOMEM;

	if (msg == NULL)
		return ret;
	if (genlmsg_put(msg, NL_AUTO_PORT, NL_AUTO_SEQ, k->family, 0, 0,
		NBD_CMD_RECONFIGURE, 0) == NULL)
		goto out;
	nla_put_u32(msg, NBD_ATTR_INDEX, k->index);
	if (fd < 0) {
		nla_put_u64(msg, NBD_ATTR_DEAD_CONN_TIMEOUT, PERSIST_SEC);
	} else {
		sockets = nla_nest_start(msg, NBD_ATTR_SOCKETS);
		item =
		    sockets != NULL ? nla_nest_start(msg, NBD_SOCK_ITEM) : NULL;
		if (item == NULL)
			goto out;
		nla_put_u32(msg, NBD_SOCK_FD, (uint32_t)fd);
		nla_nest_end(msg, item);
		nla_nest_end(msg, sockets);
	}
	ret = nl_send_sync(k->orders, msg); /* which frees it */
	msg = NULL;
out:
	nlmsg_free(msg);
	return ret;
}

static struct nl_sock *
netlink_open(void)
{
	struct nl_sock *s = nl_socket_alloc();

	if (s != NULL && genl_connect(s) != 0) {
		nl_socket_free(s);
		s = NULL;
	}
	return s;
}

struct keeper *
persist_new(const struct attach *a, char *err, size_t errlen)
{
	struct keeper *k = calloc(1, sizeof(*k));
	int group;

	if (k == NULL)
		goto fail;
	k->attach = a;
	k->orders = netlink_open();
	k->events = netlink_open();
	if (k->orders == NULL || k->events == NULL)
		goto fail;
	k->family = genl_ctrl_resolve(k->orders, NBD_GENL_FAMILY_NAME);
	group = genl_ctrl_resolve_grp(
	    k->orders, NBD_GENL_FAMILY_NAME, NBD_GENL_MCAST_GROUP_NAME);
	if (k->family < 0 || group < 0 ||
	    nl_socket_add_membership(k->events, group) != 0)
		goto fail;
	nl_socket_disable_seq_check(k->events);
	nl_socket_set_nonblocking(k->events);
	nl_socket_modify_cb(k->events, NL_CB_VALID, NL_CB_CUSTOM, on_event, k);
	return k;
fail:
	persist_free(k);
	refuse(err, errlen, -EIO,
	    "--persist: the nbd driver does not answer by netlink");
	return NULL;
}

void
persist_free(struct keeper *k)
{
	if (k == NULL)
		return;
	nl_socket_free(k->orders);
	nl_socket_free(k->events);
	free(k);
}

/* ------------------------------------------------------ another connection */

static int
connect_unix(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%.*s",
	    (int)sizeof(sun.sun_path) - 1, path);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static int
connect_tcp(const char *host, unsigned port)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
	};
	struct addrinfo *ai;
	char service[16];
	int fd, one = 1;

	snprintf(service, sizeof(service), "%u", port);
	if (getaddrinfo(host, service, &hints, &ai) != 0)
		return -1;
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, ai->ai_addr, ai->ai_addrlen) != 0) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(ai);
	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static bool
get(int fd, void *to, size_t len)
{
	return recv(fd, to, len, MSG_WAITALL) == (ssize_t)len;
}

static bool
put(int fd, const void *from, size_t len)
{
	return send(fd, from, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Up to the transmission; the export is to be what it was. */
static bool
shake_hands(int fd, const char *name, uint64_t size)
{
	struct __attribute__((packed)) {
		uint64_t magic, version;
		uint16_t flags;
	} hello;
	struct __attribute__((packed)) {
		uint32_t flags;
		uint64_t version;
		uint32_t option, len;
	} ask = {
		htobe32(FLAG_FIXED | FLAG_NO_ZEROES),
		htobe64(IHAVEOPT),
		htobe32(OPT_EXPORT_NAME),
		htobe32((uint32_t)strlen(name)),
	};
	struct __attribute__((packed)) {
		uint64_t size;
		uint16_t flags;
	} export;

	return get(fd, &hello, sizeof(hello)) &&
	       be64toh(hello.magic) == NBDMAGIC &&
	       be64toh(hello.version) == IHAVEOPT &&
	       (be16toh(hello.flags) & FLAG_NO_ZEROES) != 0 &&
	       put(fd, &ask, sizeof(ask)) && put(fd, name, strlen(name)) &&
	       get(fd, &export, sizeof(export)) && be64toh(export.size) == size;
}

/* A connection in transmission, or -1: not yet. */
static int
connect_again(const struct keeper *k)
{
	const struct place *p = k->attach->place;
	struct timeval limit = { .tv_sec = HANDSHAKE_SEC }, none = { 0 };
	int fd = p->path[0] != '\0' ? connect_unix(p->path)
				    : connect_tcp(p->host, p->port);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (!shake_hands(fd, k->attach->name, attach_size(k->device))) {
		close(fd);
		return -1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none));
	return fd;
}

/* One dead connection the less. */
static void
replace_one(struct keeper *k)
{
	int fd = connect_again(k), ret;

	if (fd < 0)
		return;
	ret = reconfigure(k, fd);
	close(fd); /* the kernel's now, or nobody's */
	k->nr_dead--;
	if (ret == 0)
		syslog(LOG_INFO, "%s: connected again", k->device);
	else
		syslog(LOG_ERR, "%s: the kernel takes no connection: %s",
		    k->device, nl_geterror(ret));
}

/* ------------------------------------------------------------- the process */

/* Nothing of who has started it. */
static void
detach_self(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	if (chdir("/") != 0)
		syslog(LOG_WARNING, "/: %s", strerror(errno));
	for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	openlog("nullbctl", LOG_PID, LOG_DAEMON);
}

_Noreturn static void
keep(struct keeper *k)
{
	struct pollfd event = { .fd = nl_socket_get_fd(k->events),
		.events = POLLIN };

	detach_self();
	while (attach_is_there(k->device)) {
		if (poll(&event, 1, RETRY_MS) > 0)
			nl_recvmsgs_default(k->events);
		if (k->nr_dead > 0)
			replace_one(k);
	}
	_exit(0);
}

int
persist_start(struct keeper *k, const char *device, char *err, size_t errlen)
{
	int ret;

	snprintf(k->device, sizeof(k->device), "%s", device);
	k->index = (uint32_t)strtoul(device + strlen("/dev/nbd"), NULL, 10);
	ret = reconfigure(k, -1);
	if (ret != 0)
		return refuse(err, errlen, -EIO, "%s: --persist: %s", device,
		    nl_geterror(ret));
	switch (fork()) {
	case -1:
		return refuse(
		    err, errlen, -errno, "--persist: %s", strerror(errno));
	case 0: keep(k);
	default: return 0;
	}
}
