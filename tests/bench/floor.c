/* SPDX-License-Identifier: MIT */
/*
 * floor: the least NBD server there can be, to measure others against. It
 * parses requests and answers them from memory; there is no block layer.
 *
 *     recv -> parse all there is: copy writes in, point at reads -> sendmsg
 *
 * A plain blocking thread a connection, one recv and one sendmsg a batch, one
 * memory for all connections. The rest of a write that came only partly is
 * received straight into its place.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "wire.h"

/*
 * Found by measuring variants in turn, medians of 5 to 7 rounds of 0.15 to
 * 0.25 s over UNIX sockets, on 2 cores that were also compiling: differences
 * below 10% mean nothing. "One core" is with client and server under taskset.
 * Larger socket buffers gave nothing that stayed, so they are the system's;
 * huge pages for the memory: 4 KiB reads +19% (one core).
 */
enum {
	/* 64 KiB for OUT: 4 KiB depth 128 reads -14%; for IN: writes -17%. */
	IN_BYTES = 256 << 10,
	OUT_BYTES = 256 << 10,
	/* Reads up to this size are copied beside their header. Pointing at
	 * them instead: 512 B reads -46%; 4 KiB reads -13% (one core), on two
	 * cores between -24% and nothing. */
	COPY_MAX = 4096,
	/* After a write of this size whose end was still to come, only a header
	 * is received behind it, so that the next payload too goes straight to
	 * its place. 64 KiB writes, one connection: +25% on two cores, but -30%
	 * on one; 1 MiB +7 to 11%. From 32 KiB on: 32 KiB writes -34%. */
	DIRECT_MIN = 64 << 10,
	MAX_IOV = 1024,
	BACKLOG = 1024,
	THREAD_STACK = 64 << 10,
};

struct store {
	unsigned char *memory;
	uint64_t size; /* bytes, of one device */
	uint64_t nr_devices;
};

struct conn {
	int fd;
	unsigned char *disk;
	uint64_t size;
	const struct store *store;

	unsigned char in[IN_BYTES];
	size_t have; /* bytes in in[] */
	size_t room; /* bytes to receive there */

	/* the write whose payload is not all here */
	struct nbd_reply pending;
	unsigned char *payload; /* where it goes on, NULL: nowhere */
	size_t payload_left;

	/* replies not sent; headers and copied data are in out[] */
	unsigned char out[OUT_BYTES];
	size_t out_used;
	struct iovec iov[MAX_IOV];
	size_t nr_iov;
};

static bool
conn_flush(struct conn *c)
{
	struct msghdr msg = { .msg_iov = c->iov, .msg_iovlen = c->nr_iov };

	while (msg.msg_iovlen > 0) {
		ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		for (size_t left = (size_t)n; msg.msg_iovlen > 0;) {
			struct iovec *v = msg.msg_iov;

			if (left < v->iov_len) {
				v->iov_base = (char *)v->iov_base + left;
				v->iov_len -= left;
				break;
			}
			left -= v->iov_len;
			msg.msg_iov++;
			msg.msg_iovlen--;
		}
	}
	c->nr_iov = 0;
	c->out_used = 0;
	return true;
}

/* Adds to the batch; bytes that follow those before them share their iovec. */
static void
conn_add(struct conn *c, unsigned char *base, size_t len)
{
	struct iovec *last = c->nr_iov ? &c->iov[c->nr_iov - 1] : NULL;

	if (last && (unsigned char *)last->iov_base + last->iov_len == base)
		last->iov_len += len;
	else
		c->iov[c->nr_iov++] = (struct iovec){ base, len };
}

static bool
conn_reply(
    struct conn *c, struct nbd_reply reply, unsigned char *data, size_t len)
{
	size_t copied = len <= COPY_MAX ? len : 0;

	if (c->nr_iov + 2 > MAX_IOV ||
	    c->out_used + sizeof(reply) + copied > OUT_BYTES) {
		if (!conn_flush(c))
			return false;
	}

	unsigned char *out = c->out + c->out_used;

	memcpy(out, &reply, sizeof(reply));
	if (copied)
		memcpy(out + sizeof(reply), data, copied);
	c->out_used += sizeof(reply) + copied;
	conn_add(c, out, sizeof(reply) + copied);
	if (len > copied)
		conn_add(c, data, len);
	return true;
}

/* Takes one request (and what is there of its payload) from p. */
static bool
conn_request(struct conn *c, unsigned char **p, const unsigned char *end)
{
	struct nbd_request *rq = (struct nbd_request *)*p;
	uint16_t type = be16toh(rq->type);
	uint64_t offset = be64toh(rq->offset);
	uint32_t length = be32toh(rq->length);
	bool valid = offset <= c->size && length <= c->size - offset;
	uint32_t error = type == NBD_CMD_WRITE ? ENOSPC : EINVAL;
	struct nbd_reply reply = {
		.magic = htobe32(NBD_REPLY_MAGIC),
		.error = valid ? 0 : htobe32(error),
		.cookie = rq->cookie,
	};

	if (rq->magic != htobe32(NBD_REQUEST_MAGIC))
		return false;
	*p += sizeof(*rq);
	c->room = IN_BYTES;
	switch (type) {
	case NBD_CMD_READ:
		return conn_reply(c, reply, valid ? c->disk + offset : NULL,
		    valid ? length : 0);
	case NBD_CMD_WRITE: {
		size_t there = (size_t)(end - *p);

		if (there > length)
			there = length;
		if (valid)
			memcpy(c->disk + offset, *p, there);
		*p += there;
		if (there == length)
			break;
		c->room = length < DIRECT_MIN ? IN_BYTES : sizeof(*rq);
		c->pending = reply;
		c->payload = valid ? c->disk + offset + there : NULL;
		c->payload_left = length - there;
		return true;
	}
	case NBD_CMD_DISC: conn_flush(c); return false;
	case NBD_CMD_WRITE_ZEROES:
		if (valid)
			memset(c->disk + offset, 0, length);
		break;
	case NBD_CMD_FLUSH:
	case NBD_CMD_TRIM: break;
	default: reply.error = htobe32(EINVAL);
	}
	return conn_reply(c, reply, NULL, 0);
}

/*
 * One receive. The rest of a pending write goes straight to its place, what
 * follows it to in[].
 */
static bool
conn_receive(struct conn *c)
{
	unsigned char *in = c->in + c->have;
	size_t room = c->room - c->have;

	if (c->payload_left == 0) {
		ssize_t n = recv(c->fd, in, room, 0);

		if (n > 0)
			c->have += (size_t)n;
		return n > 0 || (n < 0 && errno == EINTR);
	}

	/* have is 0 here: all that came before belonged to the payload. */
	struct iovec iov[2] = {
		{ c->payload, c->payload_left },
		{ c->in, c->room },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	if (!c->payload) {
		iov[0] = (struct iovec){ c->in, c->payload_left < IN_BYTES
						    ? c->payload_left
						    : IN_BYTES };
		msg.msg_iovlen = 1;
	}

	ssize_t n = recvmsg(c->fd, &msg, 0);

	if (n <= 0)
		return n < 0 && errno == EINTR;
	if ((size_t)n < c->payload_left) {
		c->payload_left -= (size_t)n;
		if (c->payload)
			c->payload += n;
		return true;
	}
	c->have = (size_t)n - c->payload_left;
	c->payload_left = 0;
	return conn_reply(c, c->pending, NULL, 0);
}

static void
conn_serve(struct conn *c)
{
	c->room = IN_BYTES;
	while (conn_receive(c)) {
		unsigned char *p = c->in;
		unsigned char *end = c->in + c->have;

		while ((size_t)(end - p) >= sizeof(struct nbd_request)) {
			if (!conn_request(c, &p, end))
				return;
		}
		c->have = (size_t)(end - p);
		memmove(c->in, p, c->have);
		if (c->nr_iov && !conn_flush(c))
			return;
	}
}

/* A name's number picks the device: nullb3 is the fourth. */
static void
conn_open(struct conn *c, const unsigned char *name, size_t len)
{
	uint64_t n = 0;

	for (size_t i = 0; i < len; i++)
		n = isdigit(name[i]) ? n * 10 + name[i] - '0' : 0;
	c->size = c->store->size;
	c->disk = c->store->memory + n % c->store->nr_devices * c->size;
}

static const uint16_t export_flags =
    NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA |
    NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_CAN_MULTI_CONN;

static bool
send_option_reply(
    int fd, uint32_t option, uint32_t type, const void *data, uint32_t len)
{
	struct nbd_option_reply reply = {
		.magic = htobe64(NBD_REPLY_OPTION),
		.option = htobe32(option),
		.type = htobe32(type),
		.length = htobe32(len),
	};

	return send_all(fd, &reply, sizeof(reply)) && send_all(fd, data, len);
}

/* GO and INFO; sets *go when transmission may start. */
static bool
conn_go(struct conn *c, uint32_t option, const unsigned char *data,
    uint32_t len, bool *go)
{
	uint32_t name_len;

	if (len < 6)
		return send_option_reply(
		    c->fd, option, NBD_REP_ERR_INVALID, NULL, 0);
	memcpy(&name_len, data, sizeof(name_len));
	name_len = be32toh(name_len);
	if (name_len > len - 6)
		return send_option_reply(
		    c->fd, option, NBD_REP_ERR_INVALID, NULL, 0);
	conn_open(c, data + 4, name_len);

	struct {
		uint16_t type;
		uint64_t size;
		uint16_t flags;
	} __attribute__((packed)) info = {
		.type = htobe16(NBD_INFO_EXPORT),
		.size = htobe64(c->size),
		.flags = htobe16(export_flags),
	};

	*go = option == NBD_OPT_GO;
	return send_option_reply(
		   c->fd, option, NBD_REP_INFO, &info, sizeof(info)) &&
	       send_option_reply(c->fd, option, NBD_REP_ACK, NULL, 0);
}

static bool
conn_export_name(struct conn *c, const unsigned char *data, uint32_t len,
    uint32_t client_flags)
{
	struct {
		uint64_t size;
		uint16_t flags;
		char zeroes[124];
	} __attribute__((packed)) reply = {
		.flags = htobe16(export_flags),
	};

	conn_open(c, data, len);
	reply.size = htobe64(c->size);
	return send_all(
	    c->fd, &reply, client_flags & NBD_NO_ZEROES ? 10 : sizeof(reply));
}

/* Returns true when transmission starts. */
static bool
conn_handshake(struct conn *c)
{
	struct nbd_greeting greeting = {
		.magic = htobe64(NBD_MAGIC),
		.ihaveopt = htobe64(NBD_IHAVEOPT),
		.flags = htobe16(NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES),
	};
	unsigned char *data = c->in;
	uint32_t client_flags;
	bool go = false;

	if (!send_all(c->fd, &greeting, sizeof(greeting)) ||
	    !recv_all(c->fd, &client_flags, sizeof(client_flags)))
		return false;
	client_flags = be32toh(client_flags);

	while (!go) {
		struct nbd_option opt;

		if (!recv_all(c->fd, &opt, sizeof(opt)))
			return false;

		uint32_t option = be32toh(opt.option);
		uint32_t len = be32toh(opt.length);
		bool ok;

		if (opt.magic != htobe64(NBD_IHAVEOPT) || len > IN_BYTES ||
		    !recv_all(c->fd, data, len))
			return false;
		switch (option) {
		case NBD_OPT_EXPORT_NAME:
			return conn_export_name(c, data, len, client_flags);
		case NBD_OPT_ABORT:
			send_option_reply(c->fd, option, NBD_REP_ACK, NULL, 0);
			return false;
		case NBD_OPT_LIST: {
			uint32_t empty = 0;

			ok = send_option_reply(c->fd, option, NBD_REP_SERVER,
				 &empty, sizeof(empty)) &&
			     send_option_reply(
				 c->fd, option, NBD_REP_ACK, NULL, 0);
			break;
		}
		case NBD_OPT_INFO:
		case NBD_OPT_GO: ok = conn_go(c, option, data, len, &go); break;
		default:
			ok = send_option_reply(
			    c->fd, option, NBD_REP_ERR_UNSUP, NULL, 0);
		}
		if (!ok)
			return false;
	}
	return true;
}

static void *
conn_main(void *arg)
{
	struct conn *c = arg;

	if (conn_handshake(c))
		conn_serve(c);
	close(c->fd);
	munmap(c, sizeof(*c));
	return NULL;
}

static void
accept_conn(int listener, const struct store *store, const pthread_attr_t *attr)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	int one = 1;
	pthread_t thread;

	if (fd < 0) {
		warn("accept");
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

	/* Fresh pages: an idle connection costs only what it touched. */
	struct conn *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (c == MAP_FAILED) {
		warn("mmap");
		close(fd);
		return;
	}
	c->fd = fd;
	c->store = store;

	int rc = pthread_create(&thread, attr, conn_main, c);

	if (rc) {
		warnx("pthread_create: %s", strerror(rc));
		close(fd);
		munmap(c, sizeof(*c));
	}
}

static int
listen_unix(const char *path)
{
	struct sockaddr_un sun;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		err(1, "socket");
	if (unix_address(&sun, path))
		errx(1, "%s: path too long", path);
	if (bind(fd, (struct sockaddr *)&sun, sizeof(sun)) ||
	    listen(fd, BACKLOG))
		err(1, "%s", path);
	return fd;
}

static int
listen_tcp(const char *host_port)
{
	struct addrinfo *ai = tcp_address(host_port, AI_PASSIVE);
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;

	if (fd < 0)
		err(1, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, BACKLOG))
		err(1, "%s", host_port);
	freeaddrinfo(ai);
	return fd;
}

static _Noreturn void
usage(void)
{
	fputs("usage: floor --unix PATH | --tcp HOST:PORT "
	      "[--size BYTES] [--devices N]\n",
	    stderr);
	exit(2);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "unix", required_argument, NULL, 'u' },
		{ "tcp", required_argument, NULL, 't' },
		{ "size", required_argument, NULL, 's' },
		{ "devices", required_argument, NULL, 'd' },
		{},
	};
	struct store store = { .size = 1ULL << 30, .nr_devices = 1 };
	int listener = -1;

	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (o) {
		case 'u': listener = listen_unix(optarg); break;
		case 't': listener = listen_tcp(optarg); break;
		case 's': store.size = parse_size("--size", optarg); break;
		case 'd':
			store.nr_devices =
			    parse_number("--devices", optarg, 1, 1 << 16);
			break;
		default: usage();
		}
	}
	if (listener < 0 || optind < argc)
		usage();
	if (store.size > SIZE_MAX / store.nr_devices)
		errx(2, "--size: too large");

	size_t bytes = (size_t)(store.size * store.nr_devices);

	store.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (store.memory == MAP_FAILED)
		err(1, "memory of %zu bytes", bytes);
	madvise(store.memory, bytes, MADV_HUGEPAGE);

	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);

	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	for (;;)
		accept_conn(listener, &store, &attr);
}
