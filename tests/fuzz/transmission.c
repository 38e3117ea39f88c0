/* SPDX-License-Identifier: MIT */
/*
 * Requests, in any order and of any sense, to a disk of any kind.
 *
 *	| cuts 8 | world 6 | operations ...
 *
 * The world is how the client gets to transmission, and what the disk is; see
 * make_disk().  An operation is a request in a few bytes, so that a mutation
 * makes another request and not just a header that is wrong; or raw bytes; or
 * something that happens: time passes, a setting changes, the client does not
 * read, the daemon is to end.
 */
#include "fuzz/peer.h"

#include <string.h>

#define MAX_MOVED (640u << 10) /* bytes that an input may read and write, */
#define MAX_OTHER (6u << 20)   /* and zero, trim, or ask about */
#define MAX_RAW   64u

enum way {
	BY_EXPORT_NAME,
	BY_GO,
	BY_GO_WITH_SIZES,
	STRUCTURED,
	WITH_CONTEXTS,
	EXTENDED,
	NR_WAYS
};

struct client {
	struct peer p;
	struct input in;
	uint64_t size;             /* of the disk */
	uint64_t may_move, may_do; /* bytes: what is left of MAX_* */
	uint64_t cookie;
	bool aborted;
};

/* ------------------------------------------------------------- the world */

struct choice {
	const char *name;
	const char *const *values;
	unsigned nr; /* a power of two: so many bits choose */
};

#define VALUES(...)                                     \
	.values = (const char *const[]){ __VA_ARGS__ }, \
	.nr = sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)

/* Each takes its bits of the world, from the lowest of the first byte on. */
static const struct choice choices[] = {
	{ "size", VALUES("1M", "2560K", "66048B", "512B") },
	{ "memory_backed", VALUES("1", "0") },
	{ "ro", VALUES("0", "1") },
	{ "discard", VALUES("1", "0") },
	{ "blocksize", VALUES("512", "4096") },
	{ "irqmode", VALUES("0", "1", "2", "2") },
	{ "kernel", VALUES("6.12", "6.1", "5.4", "4.14") },
	{ "queue/scheduler", VALUES("none", "mq-deadline") },
	{ "memory_limit", VALUES("0", "0", "0", "65536") },
	{ "queue/write_zeroes_max_bytes", VALUES("0", "1M") },
	{ "page_order", VALUES("0", "1", "4", "9") },
	{ "plug_nsec", VALUES("0", "0", "5us", "2ms") },
	{ "hw_queue_depth", VALUES("64", "1", "2", "5") },
	{ "queue/max_sectors_kb", VALUES("0", "4", "64", "8") },
	{ "queue/nomerges", VALUES("0", "1", "2", "0") },
	{ "plug", VALUES("plug", "call", "each", "plug") },
	{ "virt_boundary", VALUES("0", "1") },
	{ "queue/chunk_sectors", VALUES("0", "64") },
	{ "queue/max_segments", VALUES("128", "1") },
	{ "multipage_bvec", VALUES("auto", "0", "1", "auto") },
	{ "completion_nsec", VALUES("10us", "1ms", "0", "10us") },
};
#define NR_CHOICES (sizeof(choices) / sizeof(*choices))

/* Those that change while the disk is on. */
static const struct choice live[] = {
	{ "queue/scheduler", VALUES("none", "mq-deadline") },
	{ "queue/nomerges", VALUES("0", "2") },
	{ "queue/nr_requests", VALUES("4", "64") },
	{ "queue/max_sectors_kb", VALUES("4", "64") },
	{ "queue/iostats", VALUES("0", "1") },
	{ "plug", VALUES("call", "plug") },
	{ "queue/discard_max_bytes", VALUES("0", "8192") },
	{ "queue/iosched/fifo_batch", VALUES("1", "16") },
};
#define NR_LIVE (sizeof(live) / sizeof(*live))

static uint64_t
take_bits(uint64_t *from, unsigned nr)
{
	uint64_t v = *from % nr;

	*from /= nr;
	return v;
}

static void
make_disk(struct client *c)
{
	struct peer_setting settings[NR_CHOICES + 1] = { 0 };
	uint64_t world = 0;

	for (unsigned i = 0; i < 5; i++)
		world |= (uint64_t)input_u8(&c->in) << 8 * i;
	for (unsigned i = 0; i < NR_CHOICES; i++)
		settings[i] = (struct peer_setting){
			choices[i].name,
			choices[i].values[take_bits(&world, choices[i].nr)],
		};
	peer_init(&c->p, settings);
	peer_export(&c->p, "disk", "for all to use");
	c->size = disk_size(c->p.disk);
}

static void
option(struct client *c, uint32_t nr, const void *data, size_t len)
{
	bytes_be(&c->p.out, NBD_IHAVEOPT, 8);
	bytes_be(&c->p.out, nr, 4);
	bytes_be(&c->p.out, len, 4);
	bytes_add(&c->p.out, data, len);
}

#define CONTEXT "base:allocation"

/* Whether these are understood or not, GO is. */
static void
ask_for_more(struct client *c, enum way way)
{
	static const char contexts[] = "\0\0\0\0\0\0\0\1\0\0\0\xf" CONTEXT;

	if (way == STRUCTURED || way == WITH_CONTEXTS)
		option(c, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
	if (way == EXTENDED)
		option(c, NBD_OPT_EXTENDED_HEADERS, NULL, 0);
	if (way == WITH_CONTEXTS || way == EXTENDED)
		option(c, NBD_OPT_SET_META_CONTEXT, contexts,
		    sizeof(contexts) - 1);
}

static void
shake_hands(struct client *c, enum way way)
{
	bytes_be(&c->p.out, 3, 4);
	ask_for_more(c, way);
	if (way == BY_EXPORT_NAME)
		option(c, NBD_OPT_EXPORT_NAME, "disk", 4);
	else if (way == BY_GO_WITH_SIZES)
		option(c, NBD_OPT_GO, "\0\0\0\4disk\0\1\0\3", 12);
	else
		option(c, NBD_OPT_GO, "\0\0\0\0\0\0", 6);
	peer_push_all(&c->p);
	CHECK(c->p.attached, "no transmission: %s", nbd_error(c->p.session));
	CHECK(c->p.oracle.phase == ORACLE_TRANSMISSION, "the client lags");
}

/* ------------------------------------------------------------ operations */

/* The low half of an operation's first byte. */
enum op {
	OP_REQUEST, /* 0 to 7: of that type */
	OP_OTHER_TYPE = 8,
	OP_RAW,
	OP_PUSH,
	OP_TIME,
	OP_DEAF,
	OP_SETTLE,
	OP_LIVE,
	OP_END,
};

/* The high half of a request's. */
enum {
	HAS_FLAGS = 0x10, /* a byte of them follows */
	ODD = 0x20,       /* offset and length are not whole sectors */
	LARGE = 0x40, /* the length counts in 2 KiB, or what moves no data in
			 8, not in sectors */
	WILD = 0x80,  /* the offset is one of those that are out of range */
};

static uint64_t
wild_offset(unsigned choice, uint64_t size)
{
	switch (choice % 8) {
	case 0: return size;
	case 1: return size - 1;
	case 2: return UINT64_MAX;
	case 3: return UINT64_MAX - 511;
	case 4: return UINT64_C(1) << 63;
	case 5: return UINT64_C(1) << 32;
	case 6: return size - 512;
	default: return size + 1;
	}
}

static void
header(struct client *c, uint16_t flags, uint16_t type, uint64_t offset,
    uint64_t length)
{
	struct bytes *out = &c->p.out;
	bool extended = c->p.oracle.extended;

	bytes_be(out, extended ? 0x21e41c71 : NBD_REQUEST_MAGIC, 4);
	bytes_be(out, flags, 2);
	bytes_be(out, type, 2);
	bytes_be(out, c->cookie++, 8);
	bytes_be(out, offset, 8);
	bytes_be(out, length, extended ? 8 : 4);
}

#define PATTERN_SIZE (64u << 10)
#define MAX_PAYLOAD  (1u << 20)

/* No byte of it is a zero, and hardly any two payloads are the same. */
static void
payload(struct client *c, uint64_t len)
{
	static uint8_t pattern[PATTERN_SIZE + MAX_PAYLOAD];
	uint32_t x = 1;

	for (size_t i = 0; pattern[sizeof(pattern) - 1] == 0; i++) {
		x = x * 1664525 + 1013904223;
		pattern[i] = (uint8_t)(1 + (x >> 24) % 255);
	}
	CHECK(len <= MAX_PAYLOAD, "a payload of %llu bytes",
	    (unsigned long long)len);
	bytes_add(&c->p.out, pattern + c->cookie * 4099 % PATTERN_SIZE, len);
}

static bool
moves_data(uint16_t type)
{
	return type == NBD_CMD_READ || type == NBD_CMD_WRITE;
}

/* So much may be asked for, or sent. */
static uint64_t
afford(struct client *c, uint16_t type, uint64_t len)
{
	uint64_t *budget = moves_data(type) ? &c->may_move : &c->may_do;

	if (len > *budget)
		len = *budget < 512 ? *budget : 512;
	*budget -= len;
	return len;
}

static void
request(struct client *c, uint8_t first, uint16_t type)
{
	uint16_t flags = first & HAS_FLAGS ? input_u8(&c->in) : 0;
	uint16_t place = input_u16(&c->in);
	uint64_t length = input_u8(&c->in);
	uint64_t offset = (uint64_t)place * 512 % (c->size + 512);

	if (first & LARGE)
		length *= moves_data(type) ? 2048 : 8192;
	else
		length *= 512;
	if (first & ODD) {
		offset += place % 509;
		length += place % 13;
	}
	if (first & WILD)
		offset = wild_offset(place, c->size);
	if (type == NBD_CMD_WRITE || offset + length <= c->size)
		length = afford(c, type, length);
	if (type == NBD_CMD_WRITE && c->p.oracle.extended)
		flags |= 0x20;
	header(c, flags, type, offset, length);
	if (type == NBD_CMD_WRITE)
		payload(c, length);
}

static void
raw(struct client *c)
{
	const uint8_t *bytes;
	size_t nr = input_u8(&c->in) % MAX_RAW;

	nr = input_bytes(&c->in, nr, &bytes);
	bytes_add(&c->p.out, bytes, nr);
}

static void
change(struct client *c, unsigned choice)
{
	const struct choice *l = &live[choice % NR_LIVE];

	if (strstr(l->name, "discard") != NULL)
		c->p.oracle.trim_may_fail = true;
	peer_set(&c->p, l->name, l->values[choice >> 3 & 1]);
}

/* The client or the daemon ends it. */
static void
end(struct client *c, unsigned choice)
{
	switch (choice % 4) {
	case 0: peer_shutdown(&c->p); break;
	case 1: peer_expire(&c->p); break;
	case 2:
		peer_abort(&c->p);
		c->aborted = true;
		break;
	default: peer_eof(&c->p); break;
	}
}

static void
operate(struct client *c)
{
	uint8_t first = input_u8(&c->in);
	unsigned more = first >> 4;

	switch (first & 0xf) {
	case OP_OTHER_TYPE: request(c, first, input_u16(&c->in)); break;
	case OP_RAW: raw(c); break;
	case OP_PUSH: peer_push(&c->p, more + 1); break;
	case OP_TIME: c->p.now += UINT64_C(250) << more; break;
	case OP_DEAF: c->p.deaf = more & 1; break;
	case OP_SETTLE: peer_settle(&c->p); break;
	case OP_LIVE: change(c, more); break;
	case OP_END: end(c, more); break;
	default: request(c, first, first & 7); break;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client c = {
		.in = input_of(data, size),
		.may_move = MAX_MOVED,
		.may_do = MAX_OTHER,
		.cookie = 0x1000,
	};
	const uint8_t *cuts;
	enum way way;

	if (size < PEER_CUTS + 6)
		return -1;
	input_bytes(&c.in, PEER_CUTS, &cuts);
	way = input_u8(&c.in) % NR_WAYS;
	make_disk(&c);
	peer_connect(&c.p, cuts);
	shake_hands(&c, way);
	while (input_left(&c.in) > 0 && !c.aborted)
		operate(&c);
	peer_finish(&c.p);
	return 0;
}
