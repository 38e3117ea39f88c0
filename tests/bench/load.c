/* SPDX-License-Identifier: MIT */
/*
 * load: a load generator that costs less than the servers it measures.
 *
 *     fill: requests for all free slots -> one sendmsg
 *     recv: as much as there is         -> replies checked, slots freed
 *
 * Raw NBD (fixed newstyle, GO, simple replies), one blocking thread a
 * connection, a fixed depth. New requests go out when a batch of slots is free:
 * the whole depth unless --batch says otherwise, as fio does with
 * iodepth_batch (report A's job). With a quarter of it a server never runs
 * dry; README.md says what that changes.
 *
 * A send never blocks, for a server may wait for us to take its replies before
 * it reads on: what does not fit waits in poll, beside the replies.
 */
#include <assert.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>

#include "hist.h"
#include "proc.h"
#include "wire.h"

enum {
	MAX_CONNECTIONS = 4096,
	MAX_DEPTH = 512, /* two iovecs a request, IOV_MAX is 1024 */
	RECV_BYTES = 256 << 10,
	PREFILL_BYTES = 256 << 10,
	PREFILL_DEPTH = 8,
	SILENCE_SECONDS = 20, /* then the server counts as hung */
	THREAD_STACK = 128 << 10,
};

enum phase {
	PHASE_WARM,
	PHASE_MEASURE,
	PHASE_STOP
};

enum order {
	ORDER_RANDOM,
	ORDER_SEQUENTIAL
};

/* What every connection does. */
struct job {
	unsigned read_percent;
	enum order order;
	uint32_t bs;
	unsigned depth;
	unsigned batch;
	uint64_t nr_requests; /* of all connections; 0: until PHASE_STOP */
	bool once;            /* instead: each connection its slice, once */
	bool verify;
	bool pattern; /* writes carry the pattern of their offset */
	uint64_t seed;
};

struct load {
	const char *unix_path;
	const char *tcp;
	const char *export;
	unsigned nr_devices; /* 0: the export's name as it stands */
	unsigned nr_connections;
	unsigned nr_idle;
	uint64_t area; /* bytes used; 0: the export's size */
	double seconds;
	double warm_seconds;
	int64_t spin_ns; /* polls so long for a reply before it sleeps */
	bool prefill;
	pid_t server_pid;
	struct job job;

	_Atomic int phase; /* enum phase */
	_Atomic bool failed;
	struct conn *conns;
	int *idle_fds;
};

struct slot {
	uint64_t cookie;
	uint64_t offset;
	int64_t sent_ns;
	unsigned char *data; /* bs bytes, only with a pattern */
	bool is_read;
	bool in_flight;
};

struct conn {
	struct load *load;
	const struct job *job;
	pthread_t thread;
	unsigned index;
	int fd;
	uint64_t export_size;
	uint64_t random;

	/* sequential: next runs from start to end, over and over */
	uint64_t start;
	uint64_t end;
	uint64_t next;
	uint64_t nr_blocks; /* random: of the whole area */

	struct slot slots[MAX_DEPTH];
	uint16_t free[MAX_DEPTH]; /* indexes of slots, a stack */
	unsigned nr_free;
	uint64_t left; /* requests to send; UINT64_MAX: no limit */
	uint64_t nr_sent;

	/* the batch being sent */
	struct nbd_request headers[MAX_DEPTH];
	struct iovec iov[2 * MAX_DEPTH];
	struct msghdr msg;

	/* the stream of replies */
	unsigned char *in;
	struct nbd_reply header;
	size_t header_have;
	struct slot *reading; /* the reply whose payload is coming */
	size_t payload_left;

	unsigned char *data; /* bs bytes to write, then the slots' */
	int64_t now;

	/* of PHASE_MEASURE */
	enum phase phase;
	int64_t start_ns;
	int64_t stop_ns;
	uint64_t nr_reads;
	uint64_t nr_writes;
	uint64_t nr_sends;
	uint64_t nr_receives;
	struct hist latency;
};

static int64_t
clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* splitmix64 */
static uint64_t
random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* The 8 bytes that belong at an offset; each seed has its own pattern. */
static uint64_t
pattern_word(uint64_t offset, uint64_t seed)
{
	uint64_t z = (offset / 8 + 1 + (seed << 40)) * 0x9e3779b97f4a7c15ULL;

	return z ^ (z >> 29);
}

static void
pattern_fill(unsigned char *data, uint64_t offset, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = pattern_word(offset + i, seed);

		memcpy(data + i, &word, sizeof(word));
	}
}

/* Returns how many bytes are right before the first wrong word. */
static size_t
pattern_check(
    const unsigned char *data, uint64_t offset, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = pattern_word(offset + i, seed);

		if (memcmp(data + i, &word, sizeof(word)) != 0)
			return i;
	}
	return len;
}

static bool __attribute__((format(printf, 2, 3)))
conn_fail(struct conn *c, const char *format, ...)
{
	va_list ap;
	char text[256];

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	warnx("conn %u: %s", c->index, text);
	atomic_store(&c->load->failed, true);
	return false;
}

static void
conn_count_from_zero(struct conn *c)
{
	c->start_ns = c->now;
	c->nr_reads = 0;
	c->nr_writes = 0;
	c->nr_sends = 0;
	c->nr_receives = 0;
	hist_reset(&c->latency);
}

/* One step of the phases; counting starts and ends here. */
static void
conn_phase(struct conn *c, enum phase phase)
{
	if (phase == PHASE_MEASURE) {
		conn_count_from_zero(c);
	} else if (phase == PHASE_STOP) {
		c->stop_ns = c->now;
		c->left = 0;
	}
	c->phase = phase;
}

static uint64_t
conn_offset(struct conn *c)
{
	const struct job *job = c->job;

	if (job->order == ORDER_RANDOM)
		return random_next(&c->random) % c->nr_blocks * job->bs;

	uint64_t offset = c->next;

	c->next += job->bs;
	if (c->next + job->bs > c->end)
		c->next = c->start;
	return offset;
}

/* Makes requests for all free slots. */
static void
conn_fill(struct conn *c)
{
	const struct job *job = c->job;
	struct iovec *v = c->iov - 1;
	unsigned n = c->nr_free < c->left ? c->nr_free : (unsigned)c->left;

	for (unsigned i = 0; i < n; i++) {
		unsigned index = c->free[--c->nr_free];
		struct slot *slot = &c->slots[index];
		struct nbd_request *rq = &c->headers[i];

		slot->cookie = ++c->nr_sent << 16 | index;
		slot->offset = conn_offset(c);
		slot->sent_ns = c->now;
		slot->in_flight = true;
		slot->is_read =
		    job->read_percent == 100 ||
		    (job->read_percent > 0 &&
			random_next(&c->random) % 100 < job->read_percent);
		*rq = (struct nbd_request){
			.magic = htobe32(NBD_REQUEST_MAGIC),
			.type = htobe16(
			    slot->is_read ? NBD_CMD_READ : NBD_CMD_WRITE),
			.cookie = slot->cookie,
			.offset = htobe64(slot->offset),
			.length = htobe32(job->bs),
		};

		/* Headers without a payload between them are one piece. */
		if (i > 0 && (char *)v->iov_base + v->iov_len == (char *)rq)
			v->iov_len += sizeof(*rq);
		else
			*++v = (struct iovec){ rq, sizeof(*rq) };
		if (slot->is_read)
			continue;
		if (job->pattern)
			pattern_fill(
			    slot->data, slot->offset, job->bs, job->seed);
		*++v = (struct iovec){ job->pattern ? slot->data : c->data,
			job->bs };
	}
	if (c->left != UINT64_MAX)
		c->left -= n;
	c->msg = (struct msghdr){ .msg_iov = c->iov,
		.msg_iovlen = (size_t)(v + 1 - c->iov) };
}

static bool
conn_send(struct conn *c)
{
	ssize_t n = sendmsg(c->fd, &c->msg, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0) {
		if (errno == EAGAIN || errno == EINTR)
			return true;
		return conn_fail(c, "send: %s", strerror(errno));
	}
	c->nr_sends++;
	for (size_t left = (size_t)n; c->msg.msg_iovlen > 0;) {
		struct iovec *v = c->msg.msg_iov;

		if (left < v->iov_len) {
			v->iov_base = (char *)v->iov_base + left;
			v->iov_len -= left;
			break;
		}
		left -= v->iov_len;
		c->msg.msg_iov++;
		c->msg.msg_iovlen--;
	}
	return true;
}

static bool
conn_complete(struct conn *c, struct slot *slot)
{
	const struct job *job = c->job;

	if (slot->is_read && job->verify) {
		size_t right =
		    pattern_check(slot->data, slot->offset, job->bs, job->seed);

		if (right < job->bs)
			return conn_fail(c,
			    "read of %u at %ju: wrong data at "
			    "byte %zu",
			    job->bs, (uintmax_t)slot->offset, right);
	}
	hist_add(&c->latency, (uint64_t)(c->now - slot->sent_ns));
	if (slot->is_read)
		c->nr_reads++;
	else
		c->nr_writes++;
	slot->in_flight = false;
	c->free[c->nr_free++] = (uint16_t)(slot - c->slots);
	return true;
}

/* Every reply is checked: magic, a cookie in flight, no error. */
static bool
conn_reply(struct conn *c, const struct nbd_reply *reply)
{
	struct slot *slot = &c->slots[(reply->cookie & 0xffff) % MAX_DEPTH];

	if (reply->magic != htobe32(NBD_REPLY_MAGIC))
		return conn_fail(
		    c, "reply: magic is %#x", be32toh(reply->magic));
	if (!slot->in_flight || slot->cookie != reply->cookie)
		return conn_fail(c, "reply: cookie %#jx is not in flight",
		    (uintmax_t)reply->cookie);
	if (reply->error)
		return conn_fail(c, "%s of %u at %ju: error %u",
		    slot->is_read ? "read" : "write", c->job->bs,
		    (uintmax_t)slot->offset, be32toh(reply->error));
	if (!slot->is_read)
		return conn_complete(c, slot);
	c->reading = slot;
	c->payload_left = c->job->bs;
	return true;
}

/* Takes what it can of a read's payload; returns how much. */
static size_t
conn_payload(struct conn *c, const unsigned char *p, size_t len)
{
	size_t n = len < c->payload_left ? len : c->payload_left;

	if (c->job->verify)
		memcpy(c->reading->data + c->job->bs - c->payload_left, p, n);
	c->payload_left -= n;
	return n;
}

/* Replies and payloads may be cut anywhere. */
static bool
conn_parse(struct conn *c, const unsigned char *p, size_t len)
{
	while (len > 0) {
		size_t n;

		if (c->payload_left > 0) {
			n = conn_payload(c, p, len);
			if (c->payload_left == 0 &&
			    !conn_complete(c, c->reading))
				return false;
		} else if (c->header_have == 0 && len >= sizeof(c->header)) {
			n = sizeof(c->header);
			if (!conn_reply(c, (const struct nbd_reply *)p))
				return false;
		} else {
			n = sizeof(c->header) - c->header_have;
			if (n > len)
				n = len;
			memcpy((char *)&c->header + c->header_have, p, n);
			c->header_have += n;
			if (c->header_have == sizeof(c->header)) {
				c->header_have = 0;
				if (!conn_reply(c, &c->header))
					return false;
			}
		}
		p += n;
		len -= n;
	}
	return true;
}

/* Sleeps until there is something, after polling for --spin. */
static ssize_t
conn_recv(struct conn *c)
{
	int64_t spin_ns = c->load->spin_ns;

	for (int64_t until = spin_ns ? clock_ns() + spin_ns : 0; until;) {
		ssize_t n = recv(c->fd, c->in, RECV_BYTES, MSG_DONTWAIT);

		if (n >= 0 || errno != EAGAIN)
			return n;
		if (clock_ns() >= until)
			break;
		/* The server may need this CPU. */
		sched_yield();
	}
	return recv(c->fd, c->in, RECV_BYTES, 0);
}

static bool
conn_receive(struct conn *c)
{
	ssize_t n = conn_recv(c);

	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EAGAIN)
		return conn_fail(c, "no reply for %d s", SILENCE_SECONDS);
	if (n < 0)
		return conn_fail(c, "recv: %s", strerror(errno));
	if (n == 0)
		return conn_fail(c, "the server closed the connection");
	c->nr_receives++;
	c->now = clock_ns();
	return conn_parse(c, c->in, (size_t)n);
}

/* Waits until the rest of a batch may go out or a reply is there. */
static bool
conn_wait(struct conn *c, bool *readable)
{
	struct pollfd pfd = { .fd = c->fd, .events = POLLIN | POLLOUT };
	int rc = poll(&pfd, 1, SILENCE_SECONDS * 1000);

	if (rc == 0)
		return conn_fail(
		    c, "the server took nothing for %d s", SILENCE_SECONDS);
	*readable = rc > 0 && (pfd.revents & (POLLIN | POLLERR | POLLHUP));
	return true;
}

static void *
conn_main(void *arg)
{
	struct conn *c = arg;
	const struct job *job = c->job;
	bool ok = true;

	c->now = clock_ns();
	c->start_ns = c->now;
	while (ok) {
		enum phase phase = (enum phase)atomic_load_explicit(
		    &c->load->phase, memory_order_relaxed);
		bool readable = true;

		if (phase != c->phase)
			conn_phase(c, phase);
		if (c->msg.msg_iovlen == 0 && c->nr_free >= job->batch &&
		    c->left > 0)
			conn_fill(c);
		if (c->nr_free == job->depth)
			break;
		if (c->msg.msg_iovlen > 0)
			ok = conn_send(c);
		if (ok && c->msg.msg_iovlen > 0)
			ok = conn_wait(c, &readable);
		if (ok && readable)
			ok = conn_receive(c);
	}
	if (c->phase != PHASE_STOP)
		c->stop_ns = c->now;
	return NULL;
}

static void
conn_start(struct conn *c, const struct job *job)
{
	struct load *load = c->load;
	unsigned nr_devices = load->nr_devices ? load->nr_devices : 1;
	unsigned device = c->index % nr_devices;
	unsigned slice = c->index / nr_devices;
	unsigned nr_slices =
	    (load->nr_connections - device + nr_devices - 1) / nr_devices;
	bool each = job->pattern || job->verify;

	assert(nr_slices > 0);
	c->job = job;
	c->random = job->seed * 1000003 + c->index;
	c->nr_blocks = load->area / job->bs;
	c->start = c->nr_blocks * slice / nr_slices * job->bs;
	c->end = c->nr_blocks * (slice + 1) / nr_slices * job->bs;
	c->next = c->start;
	c->left = UINT64_MAX;
	if (job->once) {
		c->left = (c->end - c->start) / job->bs;
	} else if (job->nr_requests) {
		c->left = job->nr_requests / load->nr_connections;
		if (c->index < job->nr_requests % load->nr_connections)
			c->left++;
	}

	free(c->data);
	c->data = malloc((size_t)job->bs * (each ? job->depth : 1));
	if (!c->data)
		err(1, "malloc");
	if (!each)
		pattern_fill(c->data, 0, job->bs, job->seed);
	for (unsigned i = 0; i < job->depth; i++) {
		c->free[i] = (uint16_t)(job->depth - 1 - i);
		c->slots[i].data = each ? c->data + (size_t)i * job->bs : NULL;
	}
	c->nr_free = job->depth;
	c->phase = PHASE_WARM;
	conn_count_from_zero(c);
}

static int
load_connect(const struct load *load)
{
	if (load->unix_path) {
		struct sockaddr_un sun;
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			err(1, "socket");
		if (unix_address(&sun, load->unix_path))
			errx(1, "%s: path too long", load->unix_path);
		if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)))
			err(1, "%s", load->unix_path);
		return fd;
	}

	struct addrinfo *ai = tcp_address(load->tcp, 0);
	int one = 1, fd = -1;

	for (struct addrinfo *a = ai; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) {
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(ai);
	if (fd < 0)
		err(1, "%s", load->tcp);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void
receive_or_exit(int fd, void *buf, size_t len)
{
	errno = 0;
	if (!recv_all(fd, buf, len))
		errx(1, "handshake: %s",
		    errno ? strerror(errno)
			  : "the server closed the connection");
}

/* Reads the replies to GO up to the ACK; returns the export's size. */
static uint64_t
handshake_replies(int fd, const char *name)
{
	unsigned char data[2 * NBD_MAX_STRING];
	uint64_t size = 0;

	for (;;) {
		struct nbd_option_reply reply;

		receive_or_exit(fd, &reply, sizeof(reply));

		uint32_t type = be32toh(reply.type);
		uint32_t len = be32toh(reply.length);

		if (reply.magic != htobe64(NBD_REPLY_OPTION) ||
		    reply.option != htobe32(NBD_OPT_GO) || len > sizeof(data))
			errx(1, "handshake: not a reply to GO");
		receive_or_exit(fd, data, len);
		if (type == NBD_REP_ACK)
			return size;
		if (type != NBD_REP_INFO)
			errx(1, "export '%s': the server answers %#x", name,
			    type);
		if (len == 12 && data[0] == 0 && data[1] == NBD_INFO_EXPORT) {
			memcpy(&size, data + 2, sizeof(size));
			size = be64toh(size);
		}
	}
}

/* Returns a socket in transmission and the export's size. */
static int
load_open(const struct load *load, unsigned index, uint64_t *size)
{
	struct {
		struct nbd_option option;
		uint32_t name_len;
		char rest[NBD_MAX_STRING + 4];
	} __attribute__((packed)) go;
	struct nbd_greeting greeting;
	struct timeval silence = { .tv_sec = SILENCE_SECONDS };
	uint32_t flags = htobe32(NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES);
	uint16_t infos[2] = { htobe16(1), htobe16(NBD_INFO_BLOCK_SIZE) };
	int fd = load_connect(load);
	int len = load->nr_devices
		      ? snprintf(go.rest, NBD_MAX_STRING, "%s%u", load->export,
			    index % load->nr_devices)
		      : snprintf(go.rest, NBD_MAX_STRING, "%s", load->export);

	if (len >= (int)NBD_MAX_STRING)
		errx(2, "--export: name too long");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
	receive_or_exit(fd, &greeting, sizeof(greeting));
	if (greeting.magic != htobe64(NBD_MAGIC) ||
	    greeting.ihaveopt != htobe64(NBD_IHAVEOPT))
		errx(1, "handshake: not a newstyle NBD server");
	flags &= htobe32(be16toh(greeting.flags));

	uint32_t data_len =
	    (uint32_t)(sizeof(go.name_len) + sizeof(infos)) + (uint32_t)len;

	go.option = (struct nbd_option){ .magic = htobe64(NBD_IHAVEOPT),
		.option = htobe32(NBD_OPT_GO),
		.length = htobe32(data_len) };
	go.name_len = htobe32((uint32_t)len);
	memcpy(go.rest + len, infos, sizeof(infos));
	if (!send_all(fd, &flags, sizeof(flags)) ||
	    !send_all(fd, &go, sizeof(go.option) + data_len))
		err(1, "handshake");
	*size = handshake_replies(fd, load->export);
	return fd;
}

static void
load_open_all(struct load *load)
{
	uint64_t size;

	load->conns = calloc(load->nr_connections, sizeof(*load->conns));
	load->idle_fds = calloc(load->nr_idle + 1, sizeof(*load->idle_fds));
	if (!load->conns || !load->idle_fds)
		err(1, "calloc");
	for (unsigned i = 0; i < load->nr_idle; i++)
		load->idle_fds[i] = load_open(load, i, &size);
	for (unsigned i = 0; i < load->nr_connections; i++) {
		struct conn *c = &load->conns[i];

		c->load = load;
		c->index = i;
		c->fd = load_open(load, i, &c->export_size);
		c->in = malloc(RECV_BYTES);
		if (!c->in)
			err(1, "malloc");
		if (!load->area)
			load->area = c->export_size;
		if (load->area > c->export_size)
			errx(1, "--size: the export has only %ju bytes",
			    (uintmax_t)c->export_size);
	}
}

static void
load_close_all(struct load *load)
{
	struct nbd_request disc = { .magic = htobe32(NBD_REQUEST_MAGIC),
		.type = htobe16(NBD_CMD_DISC) };

	for (unsigned i = 0; i < load->nr_connections; i++) {
		send_all(load->conns[i].fd, &disc, sizeof(disc));
		close(load->conns[i].fd);
		free(load->conns[i].in);
		free(load->conns[i].data);
	}
	for (unsigned i = 0; i < load->nr_idle; i++) {
		send_all(load->idle_fds[i], &disc, sizeof(disc));
		close(load->idle_fds[i]);
	}
	free(load->conns);
	free(load->idle_fds);
}

static void
sleep_seconds(double seconds)
{
	struct timespec ts = { .tv_sec = (time_t)seconds };

	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* What is read at the start and at the end of the measured time. */
struct sample {
	struct rusage client;
	struct proc_use server;
};

static void
load_sample(const struct load *load, struct sample *sample)
{
	if (load->server_pid && !proc_use(load->server_pid, &sample->server))
		errx(1, "server %d is gone", (int)load->server_pid);
	getrusage(RUSAGE_SELF, &sample->client);
}

/* Runs a job on all connections; exits when one of them fails. */
static void
load_run(struct load *load, const struct job *job, struct sample sample[2])
{
	pthread_attr_t attr;
	bool timed = job->nr_requests == 0 && !job->once;

	for (unsigned i = 0; i < load->nr_connections; i++)
		conn_start(&load->conns[i], job);
	atomic_store(&load->phase, PHASE_WARM);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	if (!timed)
		load_sample(load, &sample[0]);
	for (unsigned i = 0; i < load->nr_connections; i++) {
		int rc = pthread_create(
		    &load->conns[i].thread, &attr, conn_main, &load->conns[i]);

		if (rc)
			errx(1, "pthread_create: %s", strerror(rc));
	}
	pthread_attr_destroy(&attr);
	if (timed) {
		sleep_seconds(load->warm_seconds);
		load_sample(load, &sample[0]);
		atomic_store(&load->phase, PHASE_MEASURE);
		sleep_seconds(load->seconds);
		load_sample(load, &sample[1]);
		atomic_store(&load->phase, PHASE_STOP);
	}
	for (unsigned i = 0; i < load->nr_connections; i++)
		pthread_join(load->conns[i].thread, NULL);
	if (atomic_load(&load->failed))
		exit(1);
	if (!timed)
		load_sample(load, &sample[1]);
}

/*
 * One sequential write pass over the area of every device that has a
 * connection: reads then find stored data.
 */
static void
load_prefill(struct load *load)
{
	struct sample sample[2];
	struct job job = {
		.order = ORDER_SEQUENTIAL,
		.bs = PREFILL_BYTES,
		.depth = PREFILL_DEPTH,
		.batch = 1,
		.once = true,
		.pattern = true,
		.seed = load->job.seed,
	};

	while (
	    load->area % job.bs || load->area / load->nr_connections < job.bs)
		job.bs /= 2;
	if (job.bs < 512)
		errx(2, "--prefill: the area is not a multiple of 512 bytes");
	load_run(load, &job, sample);
}

static double
timeval_diff(struct timeval a, struct timeval b)
{
	return (double)(b.tv_sec - a.tv_sec) +
	       (double)(b.tv_usec - a.tv_usec) / 1e6;
}

static void
print_server(const struct proc_use *a, const struct proc_use *b)
{
	printf(",\"server_user_s\":%.3f,\"server_sys_s\":%.3f"
	       ",\"server_cpu_s\":%.6f,\"server_rss_kib\":%ju",
	    b->user_s - a->user_s, b->sys_s - a->sys_s, b->cpu_s - a->cpu_s,
	    (uintmax_t)b->rss_kib);
	printf(",\"server_voluntary_switches\":%ju",
	    (uintmax_t)(b->voluntary - a->voluntary));
}

/* One flat object on one line, so that awk reads it as well as jq. */
static void
load_report(const struct load *load, const struct sample sample[2])
{
	static const struct {
		const char *name;
		double share;
	} percentiles[] = {
		{ "lat_p50_us", 0.5 },
		{ "lat_p90_us", 0.9 },
		{ "lat_p99_us", 0.99 },
		{ "lat_p999_us", 0.999 },
		{ "lat_p9999_us", 0.9999 },
		{},
	};
	const struct job *job = &load->job;
	int64_t start = INT64_MAX, stop = 0;
	uint64_t reads = 0, writes = 0, sends = 0, receives = 0;
	struct hist *latency = calloc(1, sizeof(*latency));

	if (!latency)
		err(1, "calloc");
	for (unsigned i = 0; i < load->nr_connections; i++) {
		const struct conn *c = &load->conns[i];

		start = c->start_ns < start ? c->start_ns : start;
		stop = c->stop_ns > stop ? c->stop_ns : stop;
		reads += c->nr_reads;
		writes += c->nr_writes;
		sends += c->nr_sends;
		receives += c->nr_receives;
		hist_merge(latency, &c->latency);
	}

	double seconds = (double)(stop - start) / 1e9;
	double requests = (double)(reads + writes);
	const struct rusage *a = &sample[0].client, *b = &sample[1].client;

	if (reads + writes == 0 || seconds <= 0)
		errx(1, "no request was answered in the measured time");
	printf("{\"connections\":%u,\"depth\":%u,\"batch\":%u,\"bs\":%u"
	       ",\"read_percent\":%u,\"order\":\"%s\",\"transport\":\"%s\"",
	    load->nr_connections, job->depth, job->batch, job->bs,
	    job->read_percent,
	    job->order == ORDER_RANDOM ? "random" : "sequential",
	    load->unix_path ? "unix" : "tcp");
	printf(",\"area\":%ju,\"devices\":%u,\"idle\":%u,\"verify\":%s"
	       ",\"seed\":%ju",
	    (uintmax_t)load->area, load->nr_devices, load->nr_idle,
	    job->verify ? "true" : "false", (uintmax_t)job->seed);
	printf(
	    ",\"seconds\":%.6f,\"requests\":%ju,\"reads\":%ju,\"writes\":%ju",
	    seconds, (uintmax_t)(reads + writes), (uintmax_t)reads,
	    (uintmax_t)writes);
	printf(",\"iops\":%.1f,\"mb_per_s\":%.2f,\"lat_mean_us\":%.2f",
	    requests / seconds, requests * job->bs / seconds / 1e6,
	    hist_mean(latency) / 1e3);
	for (size_t i = 0; percentiles[i].name; i++)
		printf(",\"%s\":%.2f", percentiles[i].name,
		    hist_percentile(latency, percentiles[i].share) / 1e3);
	printf(",\"requests_per_send\":%.2f,\"replies_per_recv\":%.2f",
	    requests / (double)sends, requests / (double)receives);
	printf(",\"client_user_s\":%.6f,\"client_sys_s\":%.6f",
	    timeval_diff(a->ru_utime, b->ru_utime),
	    timeval_diff(a->ru_stime, b->ru_stime));
	if (load->server_pid)
		print_server(&sample[0].server, &sample[1].server);
	puts("}");
	free(latency);
}

static void
raise_file_limit(void)
{
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

enum {
	OPT_UNIX,
	OPT_TCP,
	OPT_EXPORT,
	OPT_DEVICES,
	OPT_CONNECTIONS,
	OPT_IDLE,
	OPT_DEPTH,
	OPT_BATCH,
	OPT_BS,
	OPT_RW,
	OPT_READ_PERCENT,
	OPT_RANDOM,
	OPT_SEQUENTIAL,
	OPT_SIZE,
	OPT_SECONDS,
	OPT_WARM,
	OPT_SPIN,
	OPT_REQUESTS,
	OPT_PREFILL,
	OPT_VERIFY,
	OPT_SEED,
	OPT_SERVER_PID,
	OPT_HELP,
};

static const struct {
	struct option option;
	const char *help;
} options[] = {
	{ { "unix", 1, NULL, OPT_UNIX }, "PATH: the server's socket" },
	{ { "tcp", 1, NULL, OPT_TCP }, "HOST:PORT: the server's address" },
	{ { "export", 1, NULL, OPT_EXPORT }, "NAME (default: the empty name)" },
	{ { "devices", 1, NULL, OPT_DEVICES },
	    "N: connection i uses the export NAME followed by i modulo N" },
	{ { "connections", 1, NULL, OPT_CONNECTIONS }, "N, a thread each (1)" },
	{ { "idle", 1, NULL, OPT_IDLE },
	    "N silent connections beside them (0)" },
	{ { "depth", 1, NULL, OPT_DEPTH }, "requests in flight each (1)" },
	{ { "batch", 1, NULL, OPT_BATCH },
	    "free slots that make it send (the depth)" },
	{ { "bs", 1, NULL, OPT_BS }, "bytes a request (4k)" },
	{ { "rw", 1, NULL, OPT_RW }, "read, write or mixed (read)" },
	{ { "read-percent", 1, NULL, OPT_READ_PERCENT },
	    "reads among mixed requests (70)" },
	{ { "random", 0, NULL, OPT_RANDOM }, "random offsets (the default)" },
	{ { "sequential", 0, NULL, OPT_SEQUENTIAL },
	    "each connection runs through its own slice" },
	{ { "size", 1, NULL, OPT_SIZE }, "bytes used (the export's size)" },
	{ { "seconds", 1, NULL, OPT_SECONDS }, "measured time (1)" },
	{ { "warm", 1, NULL, OPT_WARM }, "seconds before it (0.05)" },
	{ { "spin", 1, NULL, OPT_SPIN },
	    "microseconds to poll for a reply before sleeping (0)" },
	{ { "requests", 1, NULL, OPT_REQUESTS },
	    "so many of all connections instead of a time" },
	{ { "prefill", 0, NULL, OPT_PREFILL },
	    "writes the pattern over the area first" },
	{ { "verify", 0, NULL, OPT_VERIFY },
	    "writes carry the pattern of their offset, reads must: prefill, "
	    "or write with the same seed, before reading" },
	{ { "seed", 1, NULL, OPT_SEED }, "of offsets and of the pattern (1)" },
	{ { "server-pid", 1, NULL, OPT_SERVER_PID },
	    "PID: report CPU time of it and of its children" },
	{ { "help", 0, NULL, OPT_HELP }, "this" },
	{},
};

static void
usage(FILE *to)
{
	fputs("usage: load --unix PATH | --tcp HOST:PORT [OPTION]...\n", to);
	for (size_t i = 0; options[i].help; i++)
		fprintf(to, "  --%-13s %s\n", options[i].option.name,
		    options[i].help);
}

static double
parse_seconds(const char *what, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= 0) || value > 86400)
		errx(2, "%s: '%s' is not a number of seconds", what, text);
	return value;
}

static void
load_option(struct load *load, int o, const char *arg)
{
	struct job *job = &load->job;

	switch (o) {
	case OPT_UNIX: load->unix_path = arg; break;
	case OPT_TCP: load->tcp = arg; break;
	case OPT_EXPORT: load->export = arg; break;
	case OPT_DEVICES:
		load->nr_devices =
		    (unsigned)parse_number("--devices", arg, 1, 1 << 16);
		break;
	case OPT_CONNECTIONS:
		load->nr_connections = (unsigned)parse_number(
		    "--connections", arg, 1, MAX_CONNECTIONS);
		break;
	case OPT_IDLE:
		load->nr_idle =
		    (unsigned)parse_number("--idle", arg, 0, 1 << 20);
		break;
	case OPT_DEPTH:
		job->depth =
		    (unsigned)parse_number("--depth", arg, 1, MAX_DEPTH);
		break;
	case OPT_BATCH:
		job->batch =
		    (unsigned)parse_number("--batch", arg, 1, MAX_DEPTH);
		break;
	case OPT_BS: {
		uint64_t bs = parse_size("--bs", arg);

		if (bs < 8 || bs % 8 || bs > NBD_MAX_PAYLOAD)
			errx(2,
			    "--bs: %s is not a multiple of 8 within "
			    "8..32M",
			    arg);
		job->bs = (uint32_t)bs;
		break;
	}
	case OPT_RW:
		if (strcmp(arg, "read") == 0)
			job->read_percent = 100;
		else if (strcmp(arg, "write") == 0)
			job->read_percent = 0;
		else if (strcmp(arg, "mixed") == 0)
			job->read_percent = 70;
		else
			errx(2, "--rw: '%s' is not read, write or mixed", arg);
		break;
	case OPT_READ_PERCENT:
		job->read_percent =
		    (unsigned)parse_number("--read-percent", arg, 0, 100);
		break;
	case OPT_RANDOM: job->order = ORDER_RANDOM; break;
	case OPT_SEQUENTIAL: job->order = ORDER_SEQUENTIAL; break;
	case OPT_SIZE: load->area = parse_size("--size", arg); break;
	case OPT_SECONDS:
		load->seconds = parse_seconds("--seconds", arg);
		break;
	case OPT_WARM: load->warm_seconds = parse_seconds("--warm", arg); break;
	case OPT_SPIN:
		load->spin_ns =
		    1000 * (int64_t)parse_number("--spin", arg, 0, 1000000);
		break;
	case OPT_REQUESTS:
		job->nr_requests =
		    parse_number("--requests", arg, 1, UINT64_MAX - 1);
		break;
	case OPT_PREFILL: load->prefill = true; break;
	case OPT_VERIFY: job->verify = job->pattern = true; break;
	case OPT_SEED:
		job->seed = parse_number("--seed", arg, 0, UINT64_MAX);
		break;
	case OPT_SERVER_PID:
		load->server_pid =
		    (pid_t)parse_number("--server-pid", arg, 1, INT32_MAX);
		break;
	case OPT_HELP: usage(stdout); exit(0);
	default: usage(stderr); exit(2);
	}
}

static void
load_parse(struct load *load, int argc, char **argv)
{
	struct option longs[sizeof(options) / sizeof(options[0])];

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		longs[i] = options[i].option;
	for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		load_option(load, o, optarg);
	if (optind < argc)
		errx(2, "'%s': load takes only options", argv[optind]);
	if (!load->unix_path == !load->tcp)
		errx(2, "one of --unix and --tcp is needed");

	struct job *job = &load->job;

	if (!job->batch)
		job->batch = job->depth;
	if (job->batch > job->depth)
		errx(2, "--batch: more than the depth");
}

int
main(int argc, char **argv)
{
	static struct load load = {
		.export = "",
		.nr_connections = 1,
		.seconds = 1,
		.warm_seconds = 0.05,
		.job = { .read_percent = 100,
		    .bs = 4096,
		    .depth = 1,
		    .seed = 1 },
	};
	struct sample sample[2];

	load_parse(&load, argc, argv);
	raise_file_limit();
	load_open_all(&load);
	if (load.area / load.nr_connections < load.job.bs)
		errx(2, "--size: less than a block a connection");
	if (load.prefill)
		load_prefill(&load);
	load_run(&load, &load.job, sample);
	load_report(&load, sample);
	load_close_all(&load);
	return 0;
}
