/* SPDX-License-Identifier: MIT */
/*
 * An NBD client made of raw bytes: whatever a test wants to send, in whatever
 * pieces, and replies taken apart and checked for their form.
 *
 * A batch is sent and received at the same time, so a server that stops
 * reading while its replies are not taken cannot block it.
 */
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_CHUNK (256u * MiB) /* more is certainly out of step */

static struct wire *wires;

/* ---------------------------------------------------------------- helpers */

uint64_t
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

void
sleep_ms(int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

void *
xmalloc(size_t n)
{
	void *p = malloc(n ? n : 1);

	if (!p)
		abort();
	return p;
}

/* splitmix64 */
uint64_t
rng_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

uint64_t
rng_below(uint64_t *state, uint64_t n)
{
	return rng_next(state) % n;
}

uint64_t
wire_seed(void)
{
	const char *env = getenv("NULLB_SEED");
	uint64_t seed =
	    env ? strtoull(env, NULL, 0) : now_ns() / 1000 % 1000000;

	print_message("seed: NULLB_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

void
fill(void *data, size_t n, uint64_t seed)
{
	uint8_t *p = data;
	uint64_t v;

	for (; n >= 8; p += 8, n -= 8) {
		v = rng_next(&seed);
		memcpy(p, &v, 8);
	}
	v = rng_next(&seed);
	memcpy(p, &v, n);
}

bool
all_zero(const void *data, size_t n)
{
	const uint8_t *p = data;

	return !n || (!p[0] && !memcmp(p, p + 1, n - 1));
}

void
assert_same(const void *got, const void *want, size_t n, const char *what)
{
	const uint8_t *g = got, *w = want;
	size_t i = 0, wrong = 0;

	if (!memcmp(got, want, n))
		return;
	while (g[i] == w[i])
		i++;
	for (size_t k = i; k < n; k++)
		wrong += g[k] != w[k];
	wire_fail("%s: %zu of %zu bytes differ, the first at %zu: "
		  "got 0x%02x, want 0x%02x",
	    what, wrong, n, i, g[i], w[i]);
}

void
wire_fail(const char *format, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	print_error("%s\n", text);
	daemon_explain();
	_fail("tests/wire", 0);
	abort();
}

/* ------------------------------------------------------------ connections */

static struct wire *
wire_new(int fd)
{
	struct wire *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	w->fd = fd;
	w->next_cookie = 1;
	w->next = wires;
	wires = w;
	return w;
}

static int
connect_unix(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(sun.sun_path))
		abort();
	memcpy(sun.sun_path, path, strlen(path));
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun))) {
		int saved = errno;

		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

struct wire *
wire_unix(const char *path)
{
	int fd = connect_unix(path);

	if (fd < 0)
		wire_fail("connect to %s: %s", path, strerror(errno));
	return wire_new(fd);
}

bool
wire_can_connect(const char *path)
{
	int fd = connect_unix(path);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static socklen_t
tcp_address(const char *host, int port, struct sockaddr_storage *ss)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (inet_pton(AF_INET6, host, &sin6->sin6_addr) == 1) {
		sin6->sin6_family = AF_INET6;
		sin6->sin6_port = htons((uint16_t)port);
		return sizeof(*sin6);
	}
	sin->sin_family = AF_INET;
	sin->sin_port = htons((uint16_t)port);
	if (inet_pton(AF_INET, host, &sin->sin_addr) != 1)
		abort();
	return sizeof(*sin);
}

/* It may not be ready yet: tries for a while. */
struct wire *
wire_tcp(const char *host, int port)
{
	uint64_t end = now_ns() + WIRE_TIMEOUT_MS * 1000000ULL;
	struct sockaddr_storage ss;
	socklen_t len = tcp_address(host, port, &ss);
	int one = 1, fd;

	for (;;) {
		fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0)
			abort();
		if (!connect(fd, (struct sockaddr *)&ss, len))
			break;
		close(fd);
		if (now_ns() > end)
			wire_fail("connect to %s port %d: %s", host, port,
			    strerror(errno));
		sleep_ms(5);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return wire_new(fd);
}

int
wire_free_port(const char *host)
{
	struct sockaddr_storage ss;
	socklen_t len = tcp_address(host, 0, &ss);
	int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int port = -1;

	if (fd < 0)
		return -1;
	if (!bind(fd, (struct sockaddr *)&ss, len) &&
	    !getsockname(fd, (struct sockaddr *)&ss, &len))
		port = ss.ss_family == AF_INET6
			   ? ntohs(((struct sockaddr_in6 *)&ss)->sin6_port)
			   : ntohs(((struct sockaddr_in *)&ss)->sin_port);
	close(fd);
	return port;
}

/* NULL: all of them. */
void
wire_close(struct wire *w)
{
	struct wire **link = &wires;

	while (*link) {
		struct wire *x = *link;

		if (w && x != w) {
			link = &x->next;
			continue;
		}
		*link = x->next;
		close(x->fd);
		free(x);
	}
}

void
wire_reset(struct wire *w)
{
	struct linger linger = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	wire_close(w);
}

void
wire_half_close(struct wire *w)
{
	shutdown(w->fd, SHUT_WR);
}

static int
left_ms(uint64_t end_ns)
{
	uint64_t now = now_ns();

	return now >= end_ns ? 0 : (int)((end_ns - now + 999999) / 1000000);
}

/* Wait for an event: false when the time is over. */
static bool
wait_for(struct wire *w, short events, uint64_t end_ns)
{
	struct pollfd p = { .fd = w->fd, .events = events };

	return poll(&p, 1, left_ms(end_ns)) > 0;
}

size_t
wire_try_send(struct wire *w, const void *data, size_t n, int ms)
{
	uint64_t end = now_ns() + (uint64_t)ms * 1000000;
	const uint8_t *p = data;
	size_t sent = 0;

	while (sent < n) {
		ssize_t k = send(
		    w->fd, p + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (k > 0)
			sent += (size_t)k;
		else if (errno != EAGAIN && errno != EINTR)
			break;
		else if (!wait_for(w, POLLOUT, end))
			break;
	}
	return sent;
}

void
wire_send(struct wire *w, const void *data, size_t n)
{
	size_t sent = wire_try_send(w, data, n, WIRE_TIMEOUT_MS);

	if (sent != n)
		wire_fail("sent %zu of %zu bytes, then: %s", sent, n,
		    strerror(errno));
}

void
wire_send_pieces(struct wire *w, const void *data, size_t n, size_t piece)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i += piece)
		wire_send(w, p + i, n - i < piece ? n - i : piece);
}

size_t
wire_drain(struct wire *w, void *data, size_t max, int ms, bool *eof)
{
	uint64_t end = now_ns() + (uint64_t)ms * 1000000;
	uint8_t *p = data;
	size_t got = 0;

	*eof = false;
	while (got < max) {
		ssize_t k = recv(w->fd, p + got, max - got, MSG_DONTWAIT);

		if (k > 0) {
			got += (size_t)k;
		} else if (!k || (errno != EAGAIN && errno != EINTR)) {
			*eof = true;
			break;
		} else if (!wait_for(w, POLLIN, end)) {
			break;
		}
	}
	return got;
}

void
wire_recv(struct wire *w, void *data, size_t n)
{
	bool eof;
	size_t got = wire_drain(w, data, n, WIRE_TIMEOUT_MS, &eof);

	if (got != n)
		wire_fail("expected %zu bytes, got %zu and then %s", n, got,
		    eof ? "the end" : "nothing more");
}

void
wire_expect_eof(struct wire *w)
{
	uint8_t buf[64];
	bool eof;
	size_t got = wire_drain(w, buf, sizeof(buf), WIRE_TIMEOUT_MS, &eof);

	if (got)
		wire_fail("expected the end, got %zu bytes (%02x %02x...)", got,
		    buf[0], buf[1]);
	if (!eof)
		wire_fail("expected the end, but the connection stays open");
}

void
wire_expect_silence(struct wire *w, int ms)
{
	uint8_t buf[64];
	bool eof;
	size_t got = wire_drain(w, buf, sizeof(buf), ms, &eof);

	if (got || eof)
		wire_fail("expected silence, got %zu bytes%s", got,
		    eof ? " and the end" : "");
}

/* ------------------------------------------------------------------ bytes */

uint8_t *
put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
	return p + 2;
}

uint8_t *
put32(uint8_t *p, uint32_t v)
{
	return put16(put16(p, (uint16_t)(v >> 16)), (uint16_t)v);
}

uint8_t *
put64(uint8_t *p, uint64_t v)
{
	return put32(put32(p, (uint32_t)(v >> 32)), (uint32_t)v);
}

uint16_t
get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

uint32_t
get32(const uint8_t *p)
{
	return (uint32_t)get16(p) << 16 | get16(p + 2);
}

uint64_t
get64(const uint8_t *p)
{
	return (uint64_t)get32(p) << 32 | get32(p + 4);
}

uint8_t *
put_option(uint8_t *p, uint32_t option, const void *data, uint32_t len)
{
	p = put32(put32(put64(p, MAGIC_IHAVEOPT), option), len);
	if (len)
		memcpy(p, data, len);
	return p + len;
}

uint8_t *
put_request(uint8_t *p, uint16_t flags, uint16_t type, uint64_t cookie,
    uint64_t offset, uint32_t length)
{
	p = put16(put16(put32(p, MAGIC_REQUEST), flags), type);
	return put32(put64(put64(p, cookie), offset), length);
}

uint8_t *
put_ext_request(uint8_t *p, uint16_t flags, uint16_t type, uint64_t cookie,
    uint64_t offset, uint64_t length)
{
	p = put16(put16(put32(p, MAGIC_EXT), flags), type);
	return put64(put64(put64(p, cookie), offset), length);
}

uint32_t
put_info(uint8_t *p, const char *name, const uint16_t *infos, uint16_t nr_infos)
{
	uint8_t *start = p;
	size_t len = strlen(name);

	p = put32(p, (uint32_t)len);
	memcpy(p, name, len);
	p = put16(p + len, nr_infos);
	for (uint16_t i = 0; i < nr_infos; i++)
		p = put16(p, infos[i]);
	return (uint32_t)(p - start);
}

uint32_t
put_meta(uint8_t *p, const char *name, const char *const *queries, uint32_t n)
{
	uint8_t *start = p;
	size_t len = strlen(name);

	p = put32(p, (uint32_t)len);
	memcpy(p, name, len);
	p = put32(p + len, n);
	for (uint32_t i = 0; i < n; i++) {
		len = strlen(queries[i]);
		p = put32(p, (uint32_t)len);
		memcpy(p, queries[i], len);
		p += len;
	}
	return (uint32_t)(p - start);
}

/* -------------------------------------------------------------- handshake */

void
wire_greeting(struct wire *w)
{
	uint8_t buf[18];

	wire_recv(w, buf, sizeof(buf));
	if (get64(buf) != MAGIC_NBD || get64(buf + 8) != MAGIC_IHAVEOPT)
		wire_fail("the greeting's magic words are wrong");
	w->hs_flags = get16(buf + 16);
}

void
wire_flags(struct wire *w, uint32_t flags)
{
	uint8_t buf[4];

	put32(buf, flags);
	wire_send(w, buf, sizeof(buf));
}

void
wire_option(struct wire *w, uint32_t option, const void *data, uint32_t len)
{
	uint8_t *buf = xmalloc(OPT_HEADER + len);
	size_t n = (size_t)(put_option(buf, option, data, len) - buf);

	wire_send(w, buf, n);
	free(buf);
}

void
wire_opt_reply(struct wire *w, uint32_t option, struct opt_reply *r)
{
	uint8_t head[OPT_REPLY_HEADER];

	wire_recv(w, head, sizeof(head));
	if (get64(head) != MAGIC_OPT_REPLY)
		wire_fail("option 0x%x: the reply's magic is wrong", option);
	r->option = get32(head + 8);
	r->type = get32(head + 12);
	r->len = get32(head + 16);
	if (r->option != option)
		wire_fail(
		    "the reply names option 0x%x, not 0x%x", r->option, option);
	if (r->len > sizeof(r->data))
		wire_fail("option 0x%x: a reply of %u bytes", option, r->len);
	wire_recv(w, r->data, r->len);
}

/* N17, N138: UTF-8, as far as its bytes go. */
bool
is_utf8(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned more = p[i] < 0x80       ? 0
				: p[i] >> 5 == 6  ? 1
				: p[i] >> 4 == 14 ? 2
				: p[i] >> 3 == 30 ? 3
						  : 9;

		if (more == 9 || !p[i])
			return false;
		for (; more; more--)
			if (++i >= n || p[i] >> 6 != 2)
				return false;
	}
	return true;
}

static void
check_server_reply(const struct opt_reply *r)
{
	uint32_t len;

	if (r->len < 4)
		wire_fail("REP_SERVER of %u bytes", r->len);
	len = get32(r->data);
	if (len > r->len - 4 || len > MAX_STRING)
		wire_fail("REP_SERVER: name of %u bytes in %u", len, r->len);
	if (!is_utf8(r->data + 4, r->len - 4))
		wire_fail("REP_SERVER: not UTF-8");
}

/* One context: N100, N101, N106, N107. */
static void
take_context(struct wire *w, uint32_t option, const struct opt_reply *r)
{
	struct context *c = &w->context[w->nr_contexts];

	if (r->len < 4 + 3 || r->len - 4 > MAX_STRING)
		wire_fail("META_CONTEXT of %u bytes", r->len);
	if (!is_utf8(r->data + 4, r->len - 4) ||
	    !memchr(r->data + 5, ':', r->len - 6))
		wire_fail("META_CONTEXT: its name is no namespace:leaf");
	if (w->nr_contexts == MAX_CONTEXTS)
		wire_fail("META_CONTEXT: more than %u", MAX_CONTEXTS);
	c->id = get32(r->data);
	snprintf(c->name, sizeof(c->name), "%.*s", (int)(r->len - 4),
	    (const char *)r->data + 4);
	if (option == OPT_LIST_META && c->id)
		wire_fail("N101: LIST tells %s with id %u", c->name, c->id);
	for (unsigned i = 0; i < w->nr_contexts; i++) {
		if (option == OPT_SET_META && w->context[i].id == c->id)
			wire_fail("N100: two contexts have the id %u", c->id);
		if (!strcmp(w->context[i].name, c->name))
			wire_fail("N100: %s is there twice", c->name);
	}
	w->nr_contexts++;
}

static void
take_info(struct wire *w, const struct opt_reply *r)
{
	const uint8_t *p = r->data;

	if (r->len < 2)
		wire_fail("REP_INFO of %u bytes", r->len);
	switch (get16(p)) {
	case INFO_EXPORT:
		if (r->len != 12)
			wire_fail("INFO_EXPORT of %u bytes", r->len);
		w->size = get64(p + 2);
		w->tx_flags = get16(p + 10);
		return;
	case INFO_NAME:
	case INFO_DESCRIPTION:
		if (r->len - 2 > MAX_STRING || !is_utf8(p + 2, r->len - 2))
			wire_fail("INFO_NAME or DESCRIPTION is no text");
		return;
	case INFO_BLOCK_SIZE:
		if (r->len != 14)
			wire_fail("INFO_BLOCK_SIZE of %u bytes", r->len);
		w->min = get32(p + 2);
		w->pref = get32(p + 6);
		w->max = get32(p + 10);
		return;
	default: wire_fail("INFO type %u", get16(p));
	}
}

uint32_t
wire_option_result(
    struct wire *w, uint32_t option, const void *data, uint32_t len)
{
	struct opt_reply *r = xmalloc(sizeof(*r));
	uint32_t type;

	wire_option(w, option, data, len);
	if (option == OPT_SET_META || option == OPT_LIST_META)
		w->nr_contexts = 0;
	for (;;) {
		wire_opt_reply(w, option, r);
		if (r->type == REP_SERVER && option == OPT_LIST)
			check_server_reply(r);
		else if (r->type == REP_INFO &&
			 (option == OPT_INFO || option == OPT_GO))
			take_info(w, r);
		else if (r->type == REP_META_CONTEXT &&
			 (option == OPT_SET_META || option == OPT_LIST_META))
			take_context(w, option, r);
		else
			break;
	}
	type = r->type;
	if (type == REP_ACK && r->len)
		wire_fail("option 0x%x: an ACK with %u bytes", option, r->len);
	if (type != REP_ACK && type < 0x80000000)
		wire_fail("option 0x%x: a reply of type %u", option, type);
	if (type != REP_ACK &&
	    (r->len > MAX_STRING || !is_utf8(r->data, r->len)))
		wire_fail("option 0x%x: the error's text is no text", option);
	if (type == REP_ACK && option == OPT_EXTENDED_HEADERS)
		w->mode = WIRE_EXTENDED;
	if (type == REP_ACK && option == OPT_STRUCTURED_REPLY && !w->mode)
		w->mode = WIRE_STRUCTURED;
	if (type != REP_ACK && option == OPT_SET_META)
		w->nr_contexts = 0;
	free(r);
	return type;
}

void
wire_assert_options_in_step(struct wire *w)
{
	uint32_t type = wire_option_result(w, OPT_LIST, NULL, 0);

	if (type != REP_ACK)
		wire_fail("LIST is answered with 0x%x, not ACK", type);
}

uint32_t
wire_info(struct wire *w, uint32_t option, const char *name,
    const uint16_t *infos, uint16_t nr_infos)
{
	uint8_t *data = xmalloc(6 + strlen(name) + 2u * nr_infos);
	uint32_t len = put_info(data, name, infos, nr_infos);
	uint32_t type;

	w->size = 0;
	w->tx_flags = 0;
	w->min = w->pref = w->max = 0;
	type = wire_option_result(w, option, data, len);
	free(data);
	if (type == REP_ACK && !(w->tx_flags & TX_HAS_FLAGS))
		wire_fail(
		    "option %u: an ACK without a good INFO_EXPORT", option);
	if (type != REP_ACK && w->tx_flags)
		wire_fail("option %u: INFO_EXPORT before an error", option);
	return type;
}

void
wire_go(struct wire *w, const char *name, bool block_size)
{
	static const uint16_t info = INFO_BLOCK_SIZE;
	uint32_t type;

	wire_greeting(w);
	wire_flags(w, HS_FIXED | HS_NO_ZEROES);
	type = wire_info(w, OPT_GO, name, &info, block_size ? 1 : 0);
	if (type != REP_ACK)
		wire_fail("GO \"%s\" is answered with 0x%x", name, type);
}

struct wire *
wire_open(struct daemon *d, const char *name, bool block_size)
{
	struct wire *w = wire_unix(d->sock);

	wire_go(w, name, block_size);
	return w;
}

uint32_t
wire_meta(struct wire *w, uint32_t option, const char *name,
    const char *const *queries, uint32_t n)
{
	size_t max = 8 + strlen(name);
	uint32_t len, type;
	uint8_t *data;

	for (uint32_t i = 0; i < n; i++)
		max += 4 + strlen(queries[i]);
	data = xmalloc(max);
	len = put_meta(data, name, queries, n);
	type = wire_option_result(w, option, data, len);
	free(data);
	return type;
}

const char *
wire_mode_name(enum wire_mode mode)
{
	return mode == WIRE_EXTENDED     ? "extended headers"
	       : mode == WIRE_STRUCTURED ? "structured replies"
					 : "simple replies";
}

struct wire *
wire_negotiate(struct daemon *d, enum wire_mode mode)
{
	struct wire *w = wire_unix(d->sock);
	uint32_t type = REP_ACK;

	wire_greeting(w);
	wire_flags(w, HS_FIXED | HS_NO_ZEROES);
	if (mode == WIRE_STRUCTURED)
		type = wire_option_result(w, OPT_STRUCTURED_REPLY, NULL, 0);
	else if (mode == WIRE_EXTENDED)
		type = wire_option_result(w, OPT_EXTENDED_HEADERS, NULL, 0);
	if (type != REP_ACK)
		wire_fail(
		    "%s are answered with 0x%x", wire_mode_name(mode), type);
	return w;
}

struct wire *
wire_open_mode(
    struct daemon *d, const char *name, enum wire_mode mode, unsigned want)
{
	static const char *const allocation = "base:allocation";
	static const uint16_t info = INFO_BLOCK_SIZE;
	struct wire *w = wire_negotiate(d, mode);
	uint32_t type;

	if (want & WANT_STATUS) {
		type = wire_meta(w, OPT_SET_META, name, &allocation, 1);
		if (type != REP_ACK || w->nr_contexts != 1)
			wire_fail("SET_META \"%s\": 0x%x, %u contexts", name,
			    type, w->nr_contexts);
	}
	type =
	    wire_info(w, OPT_GO, name, &info, want & WANT_BLOCK_SIZE ? 1 : 0);
	if (type != REP_ACK)
		wire_fail("GO \"%s\" is answered with 0x%x", name, type);
	if (!(want & WANT_BLOCK_SIZE))
		w->min = w->pref = w->max = 0;
	return w;
}

/* ----------------------------------------------------------- transmission */

static size_t
request_size(const struct wire *w)
{
	return w->mode == WIRE_EXTENDED ? EXT_REQUEST_SIZE : REQUEST_SIZE;
}

/* As the connection has it: WRITE says that there is a payload. */
static uint8_t *
put_any_request(const struct wire *w, uint8_t *p, uint16_t flags, uint16_t type,
    uint64_t cookie, uint64_t offset, uint64_t length)
{
	if (w->mode != WIRE_EXTENDED)
		return put_request(
		    p, flags, type, cookie, offset, (uint32_t)length);
	if (type == CMD_WRITE)
		flags |= CMD_PAYLOAD_LEN;
	return put_ext_request(p, flags, type, cookie, offset, length);
}

void
wire_request(struct wire *w, uint16_t flags, uint16_t type, uint64_t cookie,
    uint64_t offset, uint64_t length)
{
	uint8_t buf[EXT_REQUEST_SIZE];

	put_any_request(w, buf, flags, type, cookie, offset, length);
	wire_send(w, buf, request_size(w));
}

bool
is_legal_error(uint32_t error)
{
	static const uint32_t legal[] = { 0, E_PERM, E_IO, E_NOMEM, E_INVAL,
		E_NOSPC, E_OVERFLOW, E_NOTSUP, E_SHUTDOWN };

	for (size_t i = 0; i < sizeof(legal) / sizeof(*legal); i++)
		if (error == legal[i])
			return true;
	return false;
}

/* How long the header is that begins so. */
static size_t
head_size(const struct wire *w, const uint8_t *p)
{
	switch (get32(p)) {
	case MAGIC_SIMPLE: return REPLY_SIZE;
	case MAGIC_CHUNK:
		if (w->mode == WIRE_STRUCTURED)
			return CHUNK_SIZE;
		break;
	case MAGIC_EXT_CHUNK:
		if (w->mode == WIRE_EXTENDED)
			return EXT_CHUNK_SIZE;
		break;
	default: break;
	}
	wire_fail("%s: a reply with magic 0x%08x: out of step",
	    wire_mode_name(w->mode), get32(p));
}

static void
parse_head(const uint8_t *p, struct chunk *c)
{
	*c = (struct chunk){ .simple = get32(p) == MAGIC_SIMPLE };
	c->cookie = get64(p + 8);
	if (c->simple) {
		c->error = get32(p + 4);
		if (!is_legal_error(c->error))
			wire_fail("a reply with error %u", c->error);
		return;
	}
	c->flags = get16(p + 4);
	c->type = get16(p + 6);
	if (get32(p) == MAGIC_EXT_CHUNK) {
		c->offset = get64(p + 16);
		c->length = get64(p + 24);
	} else {
		c->length = get32(p + 16);
	}
	if (c->length > MAX_CHUNK)
		wire_fail(
		    "a chunk of %llu bytes", (unsigned long long)c->length);
}

/* The next header on the wire. */
static void
recv_head(struct wire *w, struct chunk *c)
{
	uint8_t head[EXT_CHUNK_SIZE];

	wire_recv(w, head, 4);
	wire_recv(w, head + 4, head_size(w, head) - 4);
	parse_head(head, c);
}

uint32_t
wire_reply(struct wire *w, uint64_t cookie)
{
	struct chunk c;

	recv_head(w, &c);
	if (!c.simple)
		wire_fail("a chunk where a simple reply is due");
	if (c.cookie != cookie)
		wire_fail("a reply with cookie 0x%llx instead of 0x%llx",
		    (unsigned long long)c.cookie, (unsigned long long)cookie);
	return c.error;
}

static void
take(struct wire *w, struct answer *a, const struct chunk *c)
{
	const char *fault = answer_take(a, c);

	if (fault)
		wire_fail("%s: command %u, flags 0x%x, offset 0x%llx, length "
			  "0x%llx, chunk %zu (type 0x%x, %llu bytes): %s",
		    wire_mode_name(w->mode), a->type, a->flags,
		    (unsigned long long)a->offset,
		    (unsigned long long)a->length, a->nr_chunks, c->type,
		    (unsigned long long)c->length, fault);
}

uint32_t
wire_answer(struct wire *w, struct answer *a)
{
	while (!a->done) {
		struct chunk c;
		uint8_t *data;

		recv_head(w, &c);
		data = xmalloc(c.length);
		wire_recv(w, data, c.length);
		c.data = data;
		take(w, a, &c);
		free(data);
	}
	if (a->simple && a->type == CMD_READ && !a->error && a->length) {
		uint8_t *data = a->got ? a->got : xmalloc(a->length);

		wire_recv(w, data, a->length);
		if (data != a->got)
			free(data);
	}
	return a->error;
}

uint32_t
wire_ask(struct wire *w, uint16_t flags, uint16_t type, uint64_t offset,
    uint64_t length, const void *payload, void *got, struct answer *a)
{
	uint64_t cookie = w->next_cookie++;

	answer_init(a, w, flags, type, cookie, offset, length);
	a->got = got;
	wire_request(w, flags, type, cookie, offset, length);
	if (payload)
		wire_send(w, payload, length);
	return wire_answer(w, a);
}

/* And nobody wants to know more of it than the error. */
static uint32_t
ask(struct wire *w, uint16_t flags, uint16_t type, uint64_t offset,
    uint64_t length, const void *payload, void *got)
{
	struct answer a;
	uint32_t error =
	    wire_ask(w, flags, type, offset, length, payload, got, &a);

	answer_fini(&a);
	return error;
}

uint32_t
wire_status(struct wire *w, uint16_t flags, uint64_t offset, uint64_t length,
    struct answer *a)
{
	return wire_ask(
	    w, flags, CMD_BLOCK_STATUS, offset, length, NULL, NULL, a);
}

uint32_t
wire_read(struct wire *w, void *data, uint64_t offset, uint32_t length)
{
	return ask(w, 0, CMD_READ, offset, length, NULL, data);
}

uint32_t
wire_write(struct wire *w, const void *data, uint64_t offset, uint32_t length)
{
	return ask(w, 0, CMD_WRITE, offset, length, data, NULL);
}

uint32_t
wire_cmd(struct wire *w, uint16_t flags, uint16_t type, uint64_t offset,
    uint64_t length)
{
	return ask(w, flags, type, offset, length, NULL, NULL);
}

void
wire_assert_served(struct wire *w, uint64_t offset)
{
	static uint64_t seed;
	uint8_t want[4096], got[4096];
	uint32_t error;

	fill(want, sizeof(want), ++seed);
	error = wire_write(w, want, offset, sizeof(want));
	if (error)
		wire_fail("a plain write fails with %u", error);
	error = wire_read(w, got, offset, sizeof(got));
	if (error)
		wire_fail("a plain read fails with %u", error);
	assert_same(got, want, sizeof(want), "a plain write and read");
}

/* ---------------------------------------------------------------- batches */

/* What arrives: a header, then perhaps a body: the data of a read, or what is
 * in a chunk. */
struct intake {
	uint8_t head[EXT_CHUNK_SIZE];
	size_t have; /* of head */
	struct chunk chunk;
	struct op *op; /* whose body is being received */
	uint8_t *body;
	size_t need, got; /* of it */
	size_t answered;
};

static struct op *
op_of(struct op *ops, size_t n, uint64_t cookie)
{
	size_t i = (size_t)(cookie - ops[0].cookie);

	if (i >= n)
		wire_fail("a reply to cookie 0x%llx, which was not sent",
		    (unsigned long long)cookie);
	if (ops[i].answered)
		wire_fail("request %zu is answered twice", i);
	if (ops[i].type == CMD_DISC)
		wire_fail("a reply to DISC");
	return &ops[i];
}

static void
op_answered(struct intake *in, struct op *op, uint32_t error)
{
	op->answered = true;
	op->error = error;
	op->done_ns = now_ns();
	in->answered++;
}

static void
op_forget(struct op *op)
{
	if (!op->answer)
		return;
	answer_fini(op->answer);
	free(op->answer);
	op->answer = NULL;
}

/* The chunk is whole, but for the data of a simple reply. */
static void
intake_chunk(struct intake *in, struct wire *w, struct op *op)
{
	if (!op->answer) {
		op->answer = xmalloc(sizeof(*op->answer));
		answer_init(op->answer, w, op->flags, op->type, op->cookie,
		    op->offset, op->length);
		op->answer->got = op->got;
	}
	take(w, op->answer, &in->chunk);
	if (!op->answer->done)
		return;
	op_answered(in, op, op->answer->error);
	op_forget(op);
}

static void
intake_head(struct intake *in, struct wire *w, struct op *ops, size_t n)
{
	struct op *op;

	parse_head(in->head, &in->chunk);
	op = op_of(ops, n, in->chunk.cookie);
	in->have = 0;
	in->got = 0;
	in->need = in->chunk.length;
	if (in->chunk.simple) {
		intake_chunk(in, w, op);
		if (op->type == CMD_READ && !op->error)
			in->need = op->length;
		in->body = op->got;
	} else if (in->need) {
		in->chunk.data = in->body = xmalloc(in->need);
	} else {
		intake_chunk(in, w, op);
	}
	in->op = in->need ? op : NULL;
}

static void
intake_body(struct intake *in, struct wire *w)
{
	if (!in->chunk.simple) {
		intake_chunk(in, w, in->op);
		free(in->body);
	}
	in->op = NULL;
}

/* Receive what is there: false at the end. */
static bool
intake_receive(struct intake *in, struct wire *w, struct op *ops, size_t n)
{
	size_t size = in->have < 4 ? 4 : head_size(w, in->head);
	uint8_t *to = in->op ? in->body + in->got : in->head + in->have;
	size_t want = in->op ? in->need - in->got : size - in->have;
	ssize_t k = recv(w->fd, to, want, MSG_DONTWAIT);

	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (k <= 0)
		return false;
	if (in->op) {
		in->got += (size_t)k;
		if (in->got == in->need)
			intake_body(in, w);
		return true;
	}
	in->have += (size_t)k;
	if (in->have > 4 && in->have == size)
		intake_head(in, w, ops, n);
	return true;
}

/* Is it in the middle of a reply? */
static bool
intake_is_partial(const struct intake *in, const struct op *ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ops[i].answer)
			return true;
	return in->have || in->op;
}

/* Make one stream of them; their cookies are consecutive. */
static uint8_t *
batch_stream(struct wire *w, struct op *ops, size_t n, size_t *len)
{
	uint8_t *out, *p;

	*len = n * request_size(w);
	for (size_t i = 0; i < n; i++)
		if (ops[i].type == CMD_WRITE)
			*len += ops[i].length;
	p = out = xmalloc(*len);
	for (size_t i = 0; i < n; i++) {
		struct op *op = &ops[i];

		op->cookie = w->next_cookie++;
		op->answered = false;
		op->error = 0;
		op->answer = NULL;
		p = put_any_request(w, p, op->flags, op->type, op->cookie,
		    op->offset, op->length);
		if (op->type == CMD_WRITE) {
			memcpy(p, op->data, op->length);
			p += op->length;
		}
	}
	return out;
}

static size_t
nr_expected(const struct op *ops, size_t n)
{
	size_t expected = 0;

	for (size_t i = 0; i < n; i++)
		expected += ops[i].type != CMD_DISC;
	return expected;
}

void
batch_run(struct wire *w, struct op *ops, size_t n, size_t piece)
{
	struct intake in = { 0 };
	size_t len, sent = 0, expected = nr_expected(ops, n);
	uint8_t *out = batch_stream(w, ops, n, &len);
	uint64_t end = now_ns() + WIRE_TIMEOUT_MS * 1000000ULL;

	while (sent < len || in.answered < expected || in.op) {
		struct pollfd p = { .fd = w->fd, .events = POLLIN };
		size_t k = len - sent;

		if (sent < len)
			p.events |= POLLOUT;
		if (poll(&p, 1, left_ms(end)) <= 0)
			wire_fail("a batch of %zu: after %d ms %zu of %zu bytes"
				  " are sent, %zu of %zu are answered",
			    n, WIRE_TIMEOUT_MS, sent, len, in.answered,
			    expected);
		if (p.revents & (POLLIN | POLLHUP | POLLERR)) {
			if (!intake_receive(&in, w, ops, n))
				wire_fail("a batch of %zu: the end after %zu "
					  "answers",
				    n, in.answered);
			end = now_ns() + WIRE_TIMEOUT_MS * 1000000ULL;
		}
		if (!(p.revents & POLLOUT))
			continue;
		if (piece && k > piece)
			k = piece;
		ssize_t m =
		    send(w->fd, out + sent, k, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (m > 0) {
			sent += (size_t)m;
			end = now_ns() + WIRE_TIMEOUT_MS * 1000000ULL;
		} else if (m < 0 && errno != EAGAIN && errno != EINTR) {
			wire_fail("a batch of %zu: %s after %zu answers", n,
			    strerror(errno), in.answered);
		}
	}
	free(out);
}

void
batch_send(struct wire *w, struct op *ops, size_t n)
{
	size_t len;
	uint8_t *out = batch_stream(w, ops, n, &len);

	wire_send(w, out, len);
	free(out);
}

/* Until all are answered, or the end: how many were. */
static size_t
collect(struct wire *w, struct op *ops, size_t n, bool to_the_end, bool *eof)
{
	struct intake in = { 0 };
	size_t expected = nr_expected(ops, n);
	uint64_t end = now_ns() + WIRE_TIMEOUT_MS * 1000000ULL;

	*eof = false;
	while (in.answered < expected || in.op || to_the_end) {
		if (!wait_for(w, POLLIN, end))
			wire_fail("%zu of %zu requests are answered after %d ms"
				  "%s",
			    in.answered, expected, WIRE_TIMEOUT_MS,
			    to_the_end ? ", and the connection is open" : "");
		if (!intake_receive(&in, w, ops, n)) {
			if (intake_is_partial(&in, ops, n))
				wire_fail("the end in the middle of a reply");
			*eof = true;
			break;
		}
		end = now_ns() + WIRE_TIMEOUT_MS * 1000000ULL;
	}
	return in.answered;
}

void
batch_collect(struct wire *w, struct op *ops, size_t n)
{
	bool eof;
	size_t answered = collect(w, ops, n, false, &eof);

	if (eof)
		wire_fail(
		    "the end after %zu answers to %zu requests", answered, n);
}

size_t
batch_collect_eof(struct wire *w, struct op *ops, size_t n)
{
	bool eof;

	return collect(w, ops, n, true, &eof);
}

void
batch_assert_ok(const struct op *ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (ops[i].type != CMD_DISC &&
		    (!ops[i].answered || ops[i].error))
			wire_fail("request %zu of %zu (command %u): %s %u", i,
			    n, ops[i].type,
			    ops[i].answered ? "error" : "not answered",
			    ops[i].error);
}
