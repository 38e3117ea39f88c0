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
/*
 * Shorter reads are copied into one run of replies: 64 iovecs a sendmsg cost
 * more than the copies of 32 reads of 4 KiB (15% less CPU time so).
 */
#define NBD_READ_COPY (32u << 10)
/* So long a plug waits for the rest of a request. */
#define NBD_PARTIAL_NSEC 1000000u
/* Bios of a command that goes step by step, at a time, and in one call. */
#define NBD_STEP_BIOS 2u /* on new memory 1 MiB takes 10 ms */
/* So many may be left when the client has ended: it may be gone. */
#define NBD_LAST_STEPS 65536u
#define NBD_ZERO_BYTES (256u << 10) /* of a bio that makes zeros */
/* Of any bio: whole pages in what the kernel's bi_size can say. */
#define NBD_BIO_BYTES (UINT32_MAX & ~(PAGE_SIZE - 1))
/* What may be looked at for BLOCK_STATUS in one call, at some 25 ns each. */
#define NBD_STATUS_STEPS 32768u
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
	uint64_t zone_bytes; /* changes to the same zone overlap; 0: no zones */
	uint64_t bits[ORDER_BITS / 64]; /* pages with such parts, modulo */
};

void order_init(struct order *o);
/* Does nothing that is tracked keep it from going? */
bool order_allows(struct order *o, const struct part *p);
/*
 * Would a change of [pos, end) and a part overlap, by bytes, or, if the part
 * changes something, by zones?
 */
bool order_overlap(
    const struct order *o, const struct part *p, uint64_t pos, uint64_t end);
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

/* What its header says. */
struct wire_request {
	uint64_t cookie;
	uint64_t offset;
	uint64_t length;  /* of the effect, which may be to write the payload */
	uint32_t payload; /* bytes that follow the header */
	uint16_t flags;
	uint16_t type;
};

/* A request of the client that is being served. */
struct command {
	struct part first;
	struct nbd_session *session;
	STAILQ_ENTRY(command) link; /* in stepping; then, or else, in unsent */
	struct wire_request req;
	unsigned nr_parts;   /* that have not ended */
	int error;           /* of the first that failed, */
	uint64_t error_pos;  /* and where that was */
	uint8_t hang_up;     /* enum bio_hang_up: the largest of theirs */
	struct chunk *chunk; /* holds the payload of a write, or `reply` */
	struct lent *lent;   /* or this holds the payload */
	char *reply;         /* of a read that is copied: header, data */
	size_t held;         /* lent pages; what is not sent */
	uint64_t sent_at;    /* so much of the stream sent: it was sent */
	uint32_t contexts;   /* that a BLOCK_STATUS asks for */
	/* What goes step by step: [step_pos, step_end) is in no bio yet. */
	uint64_t step_pos, step_end;
	uint32_t step_bytes; /* of a bio */
	uint8_t step_op;     /* enum req_op */
	uint16_t step_flags; /* REQ_* */
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
/* The next bio of one that goes step by step.  NULL when out of memory. */
struct part *command_step(struct command *c);
/* Let it take no more steps. */
void command_stop(struct command *c);
/* The same, and it has failed with ESHUTDOWN.  It may be freed. */
void command_give_up(struct command *c);
/* "READ", or NULL. */
const char *command_name(uint16_t type);
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
/* Send no more than the first `to` bytes of the stream, then hang up. */
void out_end(struct nbd_session *s, uint64_t to);
/* Was all sent, and it is to hang up?  Then it does. */
void out_check_end(struct nbd_session *s);
/* Is so much unsent that no more should be asked for? */
bool out_full(const struct nbd_session *s);
/* Forget it all. */
void out_drop(struct nbd_session *s);

/*
 * A reply without data.  error: 0 or -errno; `why`, or else the error's own
 * name, goes to a client that takes texts.
 */
void reply_plain(struct nbd_session *s, const struct wire_request *req,
    int error, const char *why);
/* The reply of a command that has ended, which is freed, now or when sent. */
void reply_command(struct command *c);
/* It is freed when all that the output has now was sent. */
void reply_keep(struct command *c);
/* Bytes before the data of a read, when all of it is one chunk. */
size_t reply_read_header(const struct nbd_session *s);
/*
 * The start of a chunk of `len` bytes besides its header.  Returns where it
 * lies, for chunk_finish(); NULL when the session has ended.
 */
char *chunk_begin(struct nbd_session *s, const struct wire_request *req,
    uint16_t type, const void *data, size_t len);
/* What was not known yet: bytes besides the header, and is it the last? */
void
chunk_finish(const struct nbd_session *s, char *chunk, uint64_t len, bool last);

/* -------------------------------------------------------------- option.c */

struct option;

/* Client flags and options, as far as they have come.  0 or -errno. */
int option_parse(struct nbd_session *s);
/* The answer to an option: its header, and data that follows. */
void option_reply(struct nbd_session *s, uint32_t type, size_t len);
/* An error, with a text. */
void option_refuse(struct nbd_session *s, uint32_t type, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A client's string for a text of ours: printable, and not too long. */
#define MAX_QUOTED  64u                  /* bytes of it */
#define QUOTED_SIZE (4 * MAX_QUOTED + 4) /* with "..." and a NUL */
const char *option_quote(char out[QUOTED_SIZE], const char *s);
/* A name as C has it.  False: no such name can exist. */
bool option_name(char name[NBD_MAX_STRING + 1], const char *data, uint32_t len);
/* Nothing was negotiated: at the start, and when TLS begins (N47). */
void option_reset(struct nbd_session *s);
/* The export of that name, if there is one for this client; or NULL. */
const struct nbd_export *
option_export(const struct nbd_session *s, const char *name);

/* ------------------------------------------------------------- context.c */

/* The options LIST_META_CONTEXT and SET_META_CONTEXT. */
int context_run_list(struct nbd_session *s, const char *data, uint32_t len);
int context_run_set(struct nbd_session *s, const char *data, uint32_t len);
/* Bytes of a BLOCK_STATUS's payload: a length and ids. */
#define CONTEXT_MAX_PAYLOAD (8 + 4 * NBD_MAX_CONTEXTS)
/* Those that may be used with this export (N103). */
uint32_t
context_chosen(const struct nbd_session *s, const struct nbd_export *e);
/*
 * The payload of a BLOCK_STATUS: the length it is about, and the contexts
 * that it picks.  0, or -EINVAL with a reason.
 */
int context_pick(const struct nbd_session *s, const char *payload,
    uint64_t payload_len, uint64_t *length, uint32_t *contexts,
    const char **why);
/* Answer a BLOCK_STATUS: chunks about what is there now (N146). */
void context_reply(struct command *c);

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
	bool hangs_up;        /* what is in the output is the last of it */
	atomic_bool given_up; /* nobody waits for what the device has */
	bool agreed;          /* the client knows the block sizes (N88) */
	bool structured;      /* replies: N77 */
	bool extended;        /* headers: N170 */
	bool blocked;         /* a limit keeps input from being looked at */
	bool stalled;      /* what is pending waits for a tag or for others */
	bool woken;        /* wake() was called, and nobody has come yet */
	bool crowded;      /* it waits for what other sessions hold */
	uint16_t flags;    /* transmission flags */
	uint32_t contexts; /* chosen: bits of the table of */
	const struct nbd_export *contexts_of;
	unsigned request_size; /* of a header */

	/* Input: of `in`, [in_pos, in_len) has not been parsed. */
	struct chunk *in;
	size_t in_pos, in_len;
	char head[NBD_EXT_REQUEST_SIZE]; /* a request, or its start, */
	unsigned nr_head;                /* while there is no chunk */
	bool was_big;        /* the last payload: the next one may be, too */
	struct command *big; /* its payload comes, to where it belongs */
	uint32_t big_done;
	uint64_t drain;                /* bytes to ignore, */
	struct wire_request drain_req; /* and what is answered after them */
	int drain_error;
	const char *drain_why;

	/* What is bounded. */
	size_t held; /* bytes: chunks, what is not sent of reads and extents */
	unsigned nr_commands;
	unsigned nr_started; /* parts that the block layer has */

	/* On the way to the block layer. */
	struct bio_list pending;
	unsigned batch;               /* commands pending, for aio_plug_min */
	struct command_list stepping; /* with step_pos < step_end */
	struct plug plug;
	bool plug_open;
	uint64_t plug_since;
	uint64_t plug_until;
	uint64_t phys; /* of the next payload */
	uint64_t now;  /* of the last call that told it */
	struct order order;
	unsigned status_steps; /* that BLOCK_STATUS may still take */
	bool has_steps;        /* to make, when others had their turn */

	/* Output: of a stream of bytes, [sent, appended). */
	uint64_t sent, appended;
	struct iovec *iov; /* of them [iov_pos, iov_len) */
	unsigned iov_pos, iov_len, iov_max;
	struct block *first_block, *last_block;
	unsigned nr_blocks;
	struct command_list unsent; /* those whose data is in the stream */
	struct chunk *out; /* replies of copied reads, one after another */
	size_t out_used;

	/* The handshake. */
	const struct nbd_host *host;
	enum nbd_tls tls;
	bool tls_next; /* STARTTLS was acknowledged; then */
	bool in_tls;
	bool fixed; /* the client speaks fixed newstyle */
	bool no_zeroes;
	bool in_option; /* its header has come: */
	uint32_t option_nr, option_len;
	const struct option *option; /* NULL: unknown */
	unsigned nr_options, max_options;
	struct nbd_limits *limits;

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
bool session_full(struct nbd_session *s);
/* Something that is bounded has become less. */
void session_unblock(struct nbd_session *s);
/* Make `size` bytes from in_pos on fit into the chunk.  0 or -ENOMEM. */
int session_room(struct nbd_session *s, size_t size);
/* Bytes that count, and those that no longer do. */
void session_hold(struct nbd_session *s, size_t bytes);
void session_release(struct nbd_session *s, size_t bytes);
/* May it hold so much more, beside what all hold? */
bool session_may_hold(const struct nbd_session *s, size_t bytes);
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
