/* SPDX-License-Identifier: MIT */
/*
 * What the files of daemon/nbd share: the session, its commands, the memory
 * they use.
 *
 *	nbd_got -> option_parse -> command_parse -> pending -> submit_pending
 *	nbd_out <- iovecs <- reply_command <- command ends <- its bios end
 */
#ifndef NBD_SESSION_H
#define NBD_SESSION_H

#include "nbd/nbd.h"

#include <endian.h>
#include <string.h>

/* Of a receive buffer. */
#define NBD_CHUNK (256u << 10)
/* From this on a payload that has not wholly come gets memory of its own. */
#define NBD_BIG_PAYLOAD (32u << 10)
/* What is read after such a request: what follows may be another one's. */
#define NBD_PEEK NBD_REQUEST_SIZE
/*
 * Shorter reads are copied into one run of replies: 64 iovecs a sendmsg cost
 * more than the copies of 32 reads of 4 KiB (15% less CPU time so).
 */
#define NBD_READ_COPY (32u << 10)
/* So long a plug waits for the rest of a request. */
#define NBD_PARTIAL_NSEC 1000000u
/* Bios of a zeroing at a time, and in one call. */
#define NBD_ZERO_BIOS  2u         /* of a zeroing, at a time: 2 MiB take 1 ms */
#define NBD_ZERO_BYTES (1u << 20) /* of such a bio */
/* Replies (without the data of reads), then wait until they were sent. */
#define NBD_MAX_UNSENT (64u << 10)

/* ---------------------------------------------------------------- pool.c */

/* Bytes received.  Held by the session, and by the writes that lie in it. */
struct chunk {
	struct chunk *next; /* of the pool's free ones */
	size_t size;        /* of data */
	unsigned refs;
	_Alignas(64) char data[];
};

/* Bytes to send. */
#define OUT_BLOCK 4096u
struct block {
	struct block *next; /* of the session's, oldest first */
	uint64_t end;       /* where in the stream its last byte is */
	unsigned used;
	char data[OUT_BLOCK - 24];
};

struct table {
	struct bvec bv[BIO_MAX_VECS];
};

/* Objects of one size; chunks have lists of their own. */
enum pool_kind {
	POOL_COMMAND,
	POOL_PART,
	POOL_TABLE,
	POOL_BLOCK,
	POOL_KINDS
};

struct pool_item {
	struct pool_item *next;
};

struct pool_list {
	struct pool_item *first;
	unsigned nr;
};

#define POOL_CLASSES 10 /* of chunks: 128 KiB to 64 MiB */

struct nbd_pool {
	struct pool_list free[POOL_KINDS];
	struct chunk *chunks[POOL_CLASSES]; /* free ones */
	size_t chunk_bytes;                 /* in them */
};

/*
 * NULL when out of memory.  `p` may be NULL (in a handshake): then they come
 * from the heap.
 */
void *pool_get(struct nbd_pool *p, enum pool_kind kind);
void pool_put(struct nbd_pool *p, enum pool_kind kind, void *obj);

/* A chunk of at least `size` bytes, with one reference; NULL likewise. */
struct chunk *chunk_new(struct nbd_pool *p, size_t size);
void chunk_free(struct nbd_pool *p, struct chunk *c);

/* --------------------------------------------------------------- order.c */

/* A bio of a command. */
struct part {
	struct bio bio;      /* its priv is the command */
	struct part *next;   /* of the same command, in order of pos */
	struct table *table; /* of bvecs, if they don't fit into the bio */
	uint64_t pos, end;   /* what the bio was before it was split */
	bool started;        /* queue_submit() has seen it */
	bool tracked;        /* it is on the list of an order */
	TAILQ_ENTRY(part) link;
};

#define ORDER_BITS 4096u

/*
 * The parts of a session whose data may not have moved yet: what overlaps
 * them waits.
 */
struct order {
	TAILQ_HEAD(, part) parts; /* oldest first */
	unsigned nr_changes;      /* of them, no reads */
	unsigned nr_marks;        /* parts marked since the bits were made */
	unsigned max_marks;       /* then they are made anew */
	uint64_t bits[ORDER_BITS / 64]; /* pages with such parts, modulo */
};

void order_init(struct order *o);
/* Does nothing that is tracked keep it from going? */
bool order_allows(struct order *o, const struct part *p);
/* It goes. */
void order_add(struct order *o, struct part *p);
/* It has ended.  One that is not tracked is left alone. */
void order_remove(struct order *o, struct part *p);

/* ------------------------------------------------------------- command.c */

/*
 * Memory of the driver's for the payload of a write, in pages as they lie on
 * the device: those that it keeps are not copied.
 */
struct lent {
	unsigned nr, max; /* pages there, and needed for all of it */
	void *page[];
};

/* A request of the client that is being served. */
struct command {
	struct part first;
	struct nbd_session *session;
	STAILQ_ENTRY(command) link; /* in zeroing; then, or else, in unsent */
	uint64_t cookie;
	uint64_t offset;
	uint32_t length;
	uint16_t flags;
	uint16_t type;
	unsigned nr_parts;   /* that have not ended */
	int error;           /* of the first that failed */
	struct chunk *chunk; /* holds the payload of a write, or `reply` */
	struct lent *lent;   /* or this holds the payload */
	char *reply;         /* of a read that is copied: header, data */
	size_t held;         /* lent pages, all of them; a read until sent */
	uint64_t sent_at;    /* so much of the stream sent: it was sent */
	uint64_t zero_pos, zero_end; /* of a zeroing: not in a bio yet */
};
STAILQ_HEAD(command_list, command);

/* Requests, as far as they have come.  0, or -errno: hang up. */
int command_parse(struct nbd_session *s);
/* The payload of s->big has come. */
void command_received(struct nbd_session *s);
/*
 * Where the rest of s->big's payload goes, or the next part of it: how many
 * iovecs that takes.  0: out of memory, it is drained instead.
 */
int command_want(struct command *c, uint32_t done, struct iovec *iov, int max);
/* The next bio of a zeroing.  NULL when out of memory. */
struct part *command_zero_part(struct command *c);
/* Write no more of a zeroing. */
void command_stop(struct command *c);
/* A part less that must end before the command does. */
void command_put(struct command *c);
/* It, its parts, its memory. */
void command_free(struct command *c);

/* -------------------------------------------------------------- submit.c */

/* Hand on what is pending.  `more`: the rest of a request is on its way. */
void submit_pending(struct nbd_session *s, bool more, uint64_t now);
/* End what is pending, and empty the plug. */
void submit_drop(struct nbd_session *s, uint64_t now);

/* --------------------------------------------------------------- reply.c */

/* Append to the output: a copy; or bytes that stay where they are. */
void out_copy(struct nbd_session *s, const void *data, size_t len);
void out_add(struct nbd_session *s, const void *data, size_t len);
/* Is so much unsent that no more should be asked for? */
bool out_full(const struct nbd_session *s);
/* Forget it all. */
void out_drop(struct nbd_session *s);

/* A reply without data.  error: 0 or -errno. */
void reply_simple(struct nbd_session *s, uint64_t cookie, int error);
/* The reply of a command that has ended, which is freed, now or when sent. */
void reply_command(struct command *c);

/* -------------------------------------------------------------- option.c */

struct option;

/* Client flags and options, as far as they have come.  0 or -errno. */
int option_parse(struct nbd_session *s);

/* ------------------------------------------------------------- session.c */

enum phase {
	PHASE_FLAGS, /* of the client */
	PHASE_OPTIONS,
	PHASE_TRANSMISSION
};

struct nbd_session {
	const struct nbd_export *export;
	struct cpu *cpu; /* NULL until it is attached */
	struct nbd_pool *pool;
	enum phase phase;
	uint32_t task; /* of its bios */
	bool aborted;  /* nothing is answered any more */
	bool closing;  /* ABORT or DISC came: what follows is ignored */
	bool eof;      /* nothing will come */
	bool shutdown;
	bool agreed;    /* the client knows the block sizes (N88) */
	bool blocked;   /* a limit keeps input from being looked at */
	bool stalled;   /* what is pending waits for a tag or for others */
	bool woken;     /* wake() was called, and nobody has come yet */
	uint16_t flags; /* transmission flags */

	/* Input: of `in`, [in_pos, in_len) has not been parsed. */
	struct chunk *in;
	size_t in_pos, in_len;
	char head[NBD_REQUEST_SIZE]; /* a request, or its start, */
	unsigned nr_head;            /* while there is no chunk */
	bool was_big;        /* the last payload: the next one may be, too */
	struct command *big; /* its payload comes, to where it belongs */
	uint32_t big_done;
	uint64_t drain;        /* bytes to ignore, */
	uint64_t drain_cookie; /* and what is answered after them */
	int drain_error;

	/* What is bounded. */
	size_t held; /* bytes: chunks, reads not sent */
	unsigned nr_commands;
	unsigned nr_started; /* parts that the block layer has */

	/* On the way to the block layer. */
	struct bio_list pending;
	unsigned batch;              /* commands pending, for aio_plug_min */
	struct command_list zeroing; /* with zero_pos < zero_end */
	struct plug plug;
	bool plug_open;
	uint64_t plug_since;
	uint64_t plug_until;
	uint64_t phys; /* of the next payload */
	uint64_t now;  /* of the last call that told it */
	struct order order;

	/* Output: of a stream of bytes, [sent, appended). */
	uint64_t sent, appended;
	struct iovec *iov; /* of them [iov_pos, iov_len) */
	unsigned iov_pos, iov_len, iov_max;
	struct block *first_block, *last_block;
	unsigned nr_blocks;
	struct command_list unsent; /* reads whose data is in the stream */
	struct chunk *out; /* replies of copied reads, one after another */
	size_t out_used;

	/* The handshake. */
	const struct nbd_host *host;
	bool no_zeroes;
	bool in_option; /* its header has come: */
	uint32_t option_nr, option_len;
	const struct option *option; /* NULL: unknown */
	unsigned nr_options, max_options;

	void (*wake)(void *arg);
	void *wake_arg;
	int error; /* why it was broken off; and in words: */
	char text[160];
};

/* Break off: returns err.  What is in flight ends silently. */
int session_fail(struct nbd_session *s, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Let the caller come, with nbd_got() and nbd_out(). */
void session_wake(struct nbd_session *s);
/* Must input wait? */
bool session_full(const struct nbd_session *s);
/* Something that is bounded has become less. */
void session_unblock(struct nbd_session *s);
/* Make `size` bytes from in_pos on fit into the chunk.  0 or -ENOMEM. */
int session_room(struct nbd_session *s, size_t size);
/* A chunk that counts, and the end of one. */
struct chunk *session_chunk(struct nbd_session *s, size_t size);
void session_unref(struct nbd_session *s, struct chunk *c);
/*
 * Room for the reply of a read, right behind that of the one before.  *chunk
 * gets a reference of it.  NULL when out of memory.
 */
char *session_reply(struct nbd_session *s, size_t size, struct chunk **chunk);

/* Bytes of input, and where they are. */
static inline size_t
session_avail(const struct nbd_session *s)
{
	return s->in_len - s->in_pos;
}

static inline const char *
session_input(const struct nbd_session *s)
{
	return s->in->data + s->in_pos;
}

/* Numbers on the wire are big-endian, and aligned to nothing. */
static inline uint16_t
get_be16(const char *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return be16toh(v);
}

static inline uint32_t
get_be32(const char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static inline uint64_t
get_be64(const char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static inline char *
put_be16(char *p, uint16_t v)
{
	v = htobe16(v);
	return (char *)memcpy(p, &v, sizeof(v)) + sizeof(v);
}

static inline char *
put_be32(char *p, uint32_t v)
{
	v = htobe32(v);
	return (char *)memcpy(p, &v, sizeof(v)) + sizeof(v);
}

static inline char *
put_be64(char *p, uint64_t v)
{
	v = htobe64(v);
	return (char *)memcpy(p, &v, sizeof(v)) + sizeof(v);
}

#endif
