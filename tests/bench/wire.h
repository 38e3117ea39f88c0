/* SPDX-License-Identifier: MIT */
/*
 * What load and floor share: the few words of the NBD protocol that a benchmark
 * needs, and plain blocking helpers. Nothing of the daemon is used here, so
 * that a fault of its protocol code cannot hide in the tool that measures it.
 */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include <ctype.h>
#include <endian.h>
#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NBD_MAGIC         0x4e42444d41474943ULL
#define NBD_IHAVEOPT      0x49484156454f5054ULL
#define NBD_REPLY_OPTION  0x0003e889045565a9ULL
#define NBD_REQUEST_MAGIC 0x25609513U
#define NBD_REPLY_MAGIC   0x67446698U
#define NBD_MAX_STRING    4096U
#define NBD_MAX_PAYLOAD   (32U << 20)

enum {
	NBD_FIXED_NEWSTYLE = 1,
	NBD_NO_ZEROES = 2
};

enum {
	NBD_OPT_EXPORT_NAME = 1,
	NBD_OPT_ABORT = 2,
	NBD_OPT_LIST = 3,
	NBD_OPT_INFO = 6,
	NBD_OPT_GO = 7,
};

enum {
	NBD_REP_ACK = 1,
	NBD_REP_SERVER = 2,
	NBD_REP_INFO = 3
};

#define NBD_REP_ERR_UNSUP   0x80000001U
#define NBD_REP_ERR_INVALID 0x80000003U

enum {
	NBD_INFO_EXPORT = 0,
	NBD_INFO_BLOCK_SIZE = 3
};

enum {
	NBD_FLAG_HAS_FLAGS = 1 << 0,
	NBD_FLAG_SEND_FLUSH = 1 << 2,
	NBD_FLAG_SEND_FUA = 1 << 3,
	NBD_FLAG_SEND_TRIM = 1 << 5,
	NBD_FLAG_SEND_WRITE_ZEROES = 1 << 6,
	NBD_FLAG_CAN_MULTI_CONN = 1 << 8,
};

enum {
	NBD_CMD_READ = 0,
	NBD_CMD_WRITE = 1,
	NBD_CMD_DISC = 2,
	NBD_CMD_FLUSH = 3,
	NBD_CMD_TRIM = 4,
	NBD_CMD_WRITE_ZEROES = 6,
};

struct nbd_greeting {
	uint64_t magic;
	uint64_t ihaveopt;
	uint16_t flags;
} __attribute__((packed));

struct nbd_option {
	uint64_t magic;
	uint32_t option;
	uint32_t length;
} __attribute__((packed));

struct nbd_option_reply {
	uint64_t magic;
	uint32_t option;
	uint32_t type;
	uint32_t length;
} __attribute__((packed));

struct nbd_request {
	uint32_t magic;
	uint16_t flags;
	uint16_t type;
	uint64_t cookie;
	uint64_t offset;
	uint32_t length;
} __attribute__((packed));

struct nbd_reply {
	uint32_t magic;
	uint32_t error;
	uint64_t cookie;
} __attribute__((packed));

/* Returns false at the end of the stream or after an error (see errno). */
static inline bool
recv_all(int fd, void *buf, size_t len)
{
	for (unsigned char *p = buf; len > 0;) {
		ssize_t n = recv(fd, p, len, MSG_WAITALL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static inline bool
send_all(int fd, const void *buf, size_t len)
{
	for (const unsigned char *p = buf; len > 0;) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

/* "4096", "4k", "1M", "2g": a number of bytes; exits when it is not one. */
static inline uint64_t
parse_size(const char *what, const char *text)
{
	static const char units[] = "kmgt";
	char *end;

	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	unsigned shift = 0;

	if (errno || end == text || *text == '-')
		errx(2, "%s: '%s' is not a size", what, text);
	if (*end) {
		const char *unit = strchr(units, tolower((unsigned char)*end));

		if (!unit || end[1])
			errx(2, "%s: '%s' is not a size", what, text);
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (value > UINT64_MAX >> shift)
		errx(2, "%s: '%s' is too large", what, text);
	return value << shift;
}

static inline uint64_t
parse_number(const char *what, const char *text, uint64_t min, uint64_t max)
{
	char *end;

	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);

	if (errno || end == text || *end || *text == '-')
		errx(2, "%s: '%s' is not a number", what, text);
	if (value < min || value > max)
		errx(2, "%s: %llu is not within %llu..%llu", what, value,
		    (unsigned long long)min, (unsigned long long)max);
	return value;
}

static inline int
unix_address(struct sockaddr_un *sun, const char *path)
{
	*sun = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(sun->sun_path))
		return -ENAMETOOLONG;
	strcpy(sun->sun_path, path);
	return 0;
}

/* Resolves "HOST:PORT"; exits when it cannot. The caller frees the result. */
static inline struct addrinfo *
tcp_address(const char *host_port, int flags)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
		.ai_flags = flags };
	struct addrinfo *ai;
	const char *colon = strrchr(host_port, ':');

	if (!colon || colon == host_port)
		errx(2, "'%s' is not HOST:PORT", host_port);

	char *host = strndup(host_port, (size_t)(colon - host_port));

	if (!host)
		err(1, "strndup");

	int rc = getaddrinfo(host, colon + 1, &hints, &ai);

	free(host);
	if (rc)
		errx(1, "%s: %s", host_port, gai_strerror(rc));
	return ai;
}

#endif
