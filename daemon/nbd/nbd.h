/* SPDX-License-Identifier: MIT */
/*
 * The NBD protocol without sockets: bytes in, bios out; completions in, bytes
 * out.  Four calls move the bytes: nbd_want() says which memory to read into,
 * nbd_got() that so many bytes came, nbd_out() what to write, nbd_sent() that
 * so many went.  No file descriptor, so tests and fuzzers drive it with
 * arrays.
 *
 * A session belongs to one thread at a time: the main loop's during the
 * handshake (cpu NULL), then that of the cpu that nbd_attach() named.
 */
#ifndef NBD_H
#define NBD_H

#include <sys/uio.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "blk/blk.h"
#include "nbd/proto.h"

#define NBD_MAX_PAYLOAD      (64u << 20)  /* advertised; N89, F9 */
#define NBD_MAX_DRAIN        (128u << 20) /* more: hard disconnect, N89 */
#define NBD_MAX_OPTION       (64u << 10) /* option data kept; more is drained */
#define NBD_MAX_OPTION_DRAIN (64u << 20) /* more: hard disconnect, N16 */
#define NBD_MAX_CONTEXTS     32u         /* of an export */
#define NBD_MAX_EXTENTS      1024u       /* told in a reply, a context */

/* How much clients may ask of us, and when they have to wait. */
struct nbd_limits {
	unsigned max_options;  /* of a handshake: then hang up (N22) */
	unsigned max_requests; /* of a connection, in flight: then it waits */
	size_t max_bytes;      /* its payload and replies: the same */
	/*
	 * That of all connections together (0: no limit): then each has one
	 * request at a time.  One that would take it beyond twice the limit
	 * fails with ENOMEM.
	 */
	size_t max_total;
	_Atomic size_t total; /* of all sessions; any thread */
};
/* 1024 options, 1024 requests, 64 MiB, no limit for all. */
void nbd_limits_init(struct nbd_limits *l);

struct nbd_export;

/* A metadata context of an export (N106). */
struct nbd_context {
	const char *name; /* "base:allocation" */
	/*
	 * What is at `pos`.  *len: for how many bytes that holds, at most what
	 * it was on entry and at least 1.  *steps, which is not 0, is how much
	 * there may be looked at (25 ns each); what it took is taken off.  On
	 * the thread of the cpu.
	 */
	uint32_t (*status)(const struct nbd_export *e, struct cpu *cpu,
	    uint64_t pos, uint64_t *len, unsigned *steps);
};

/*
 * What may be attached.  Filled from a disk by main; lives as long as a session
 * is attached to it, and none that negotiates was not told to forget it.
 */
struct nbd_export {
	const char *name;
	const char *description; /* NULL: none */
	struct queue *queue;
	uint64_t size; /* bytes */
	bool read_only;
	bool rotational;
	bool tls_only; /* nobody else is told of it */
	bool can_trim;
	bool can_zero;                  /* without writing zeros */
	uint32_t min_block, pref_block; /* advertised in INFO_BLOCK_SIZE */
	unsigned page_order;            /* of payloads: bio_add_payload() */
	uint64_t plug_nsec;             /* a plug may stay open that long */
	uint64_t zone_bytes; /* changes keep their order in each; 0: no zones */
	/* At most NBD_MAX_CONTEXTS, ended by {}.  NULL: none. */
	const struct nbd_context *contexts;
	/*
	 * Memory that a read is answered with where the device holds nothing:
	 * to who understands it, it is told as a hole.  NULL: never.
	 */
	const char *zeros;
	size_t zeros_size;
	void *driver; /* for the contexts */
};

/* How a client may have TLS: the same for all of a connection (N56). */
enum nbd_tls {
	NBD_TLS_OFF,      /* NOTLS, in the words of the protocol */
	NBD_TLS_ALLOWED,  /* SELECTIVETLS */
	NBD_TLS_REQUIRED, /* FORCEDTLS */
};

/* What a session asks of its surroundings. */
struct nbd_host {
	/* The export of that name ("" is the default one), or NULL. */
	const struct nbd_export *(*lookup)(void *arg, const char *name);
	/* The i-th export, or NULL after the last. */
	const struct nbd_export *(*list)(void *arg, unsigned i);
	void *arg;
	struct nbd_limits *limits; /* outlive the sessions */
};

/* ---------------------------------------------------------------- pool.c */

/* Memory that the sessions of one thread share: receive buffers, commands. */
struct nbd_pool;
/* NULL when out of memory. */
struct nbd_pool *nbd_pool_new(void);
/* No session uses it.  NULL is fine. */
void nbd_pool_free(struct nbd_pool *p);

/* ------------------------------------------------------------- session.c */

struct nbd_session;

/*
 * A session that is about to greet its client: nbd_out() has the greeting.
 * NULL when out of memory.
 *
 * `wake` is called, on the session's thread, when there is something to do
 * for it that no bytes of the client's bring about: output after there was
 * none, input that a limit had held back, the next bios of a long zeroing,
 * the end.  The caller remembers it, and in its next turn calls nbd_got(s, 0,
 * false, now), then nbd_out().  It may be called from within any function
 * below, and from the end of a bio; it must not call any of them.
 */
struct nbd_session *nbd_session_new(
    const struct nbd_host *host, void (*wake)(void *arg), void *arg);

/*
 * Who it is in traces: its bios' task, 0 if nobody says so.  Before the first
 * nbd_got().
 */
void nbd_set_task(struct nbd_session *s, uint32_t task);

/* NBD_TLS_OFF if nobody says so.  Before the first nbd_got(). */
void nbd_set_tls(struct nbd_session *s, enum nbd_tls tls);

/*
 * An export is about to be no more.  What a session that negotiates has chosen
 * for it is forgotten; one in transmission is left alone.
 */
void nbd_forget(struct nbd_session *s, const struct nbd_export *e);

/* Nothing of it is in flight (nbd_in_flight() is 0).  NULL is fine. */
void nbd_session_free(struct nbd_session *s);

/*
 * The session is in transmission and from now on this cpu's.  Before it, it
 * submits nothing.  Call nbd_got(s, 0, false, now) after it: requests may be
 * there.
 */
void nbd_attach(struct nbd_session *s, struct cpu *cpu, struct nbd_pool *pool);

bool nbd_in_transmission(const struct nbd_session *s);
/* What it is attached to, once it is in transmission. */
const struct nbd_export *nbd_session_export(const struct nbd_session *s);

/* What client and server agreed on in the handshake. */
enum nbd_feature {
	NBD_FEATURE_NO_ZEROES = 1 << 0,  /* the short answer to EXPORT_NAME */
	NBD_FEATURE_BLOCK_SIZE = 1 << 1, /* it knows the block sizes */
	NBD_FEATURE_STRUCTURED = 1 << 2, /* replies */
	NBD_FEATURE_EXTENDED = 1 << 3,   /* headers */
	NBD_FEATURE_CONTEXTS = 1 << 4,   /* at least one is selected */
	NBD_FEATURE_TLS = 1 << 5,
};
unsigned nbd_features(const struct nbd_session *s);

/*
 * The client was told to go on in TLS (N44).  Once this is true, all bytes
 * either way are TLS's; the session listens to none until the caller has made
 * the handshake and says so.  Then all that was negotiated before is forgotten
 * (N47).
 */
bool nbd_wants_tls(const struct nbd_session *s);
void nbd_tls_begun(struct nbd_session *s);

/*
 * Is input wanted?  No: a limit is reached (wake is called when it is not any
 * more), or nothing is wanted ever again.
 */
bool nbd_listens(struct nbd_session *s);

/*
 * Where to read to, when there is something to read: up to `max` iovecs, 0 if
 * input is not wanted.  It takes a buffer, which the nbd_got() that follows
 * gives back, if nothing partial is in it.
 */
int nbd_want(struct nbd_session *s, struct iovec *iov, int max);

/*
 * `n` bytes were read there (0 is fine: time has passed, a tag was freed).
 * Complete requests become bios and are submitted under the session's plug,
 * but with `more`: then you read again at once, and they are one batch with
 * what that brings, or does not bring.  0; or -errno, for good: the client
 * broke the protocol (-EPROTO), asked for an export that is not there
 * (-ENOENT), and so on.  Then the session is aborted; nbd_error() says why, for
 * the log.
 */
int nbd_got(struct nbd_session *s, size_t n, bool more, uint64_t now);
/* "" when nothing was wrong. */
const char *nbd_error(const struct nbd_session *s);

/* The client will send nothing more: answer what came, then end (N164). */
void nbd_eof(struct nbd_session *s, uint64_t now);
/*
 * Answer nothing any more: the client is gone, or is to be got rid of.  What
 * was not submitted is dropped; what is in flight ends silently.
 */
void nbd_abort(struct nbd_session *s, uint64_t now);
/*
 * N162: finish what is in flight, answer what comes later with ESHUTDOWN (in
 * a handshake: ERR_SHUTDOWN), end when nothing is left: no bio, no reply, no
 * half of a request.
 */
void nbd_shutdown(struct nbd_session *s);

/*
 * After nbd_shutdown(): what has not reached the block layer is answered with
 * ESHUTDOWN now.
 */
void nbd_expire(struct nbd_session *s, uint64_t now);

/*
 * When nbd_got(s, 0, false, now) wants to be called without any bytes: the time
 * at which a plug closes (ns); NBD_NEVER; or NBD_STALLED: in each turn in which
 * a tag was freed or a request moved, so in any.
 */
#define NBD_NEVER   UINT64_MAX
#define NBD_STALLED 0
uint64_t nbd_next(const struct nbd_session *s);

/* Everything is answered and sent, and nothing will come: close it. */
bool nbd_done(const struct nbd_session *s);

/* --------------------------------------------------------------- reply.c */

/*
 * What to write: the iovecs used, 0 when there is nothing.  They hold until
 * nbd_sent().
 */
int nbd_out(struct nbd_session *s, struct iovec *iov, int max);
/* The first `n` bytes of it went. */
void nbd_sent(struct nbd_session *s, size_t n);

/* Bios that the block layer has. */
unsigned nbd_in_flight(const struct nbd_session *s);
/* Requests of the client that have not been answered. */
unsigned nbd_requests(const struct nbd_session *s);

#endif
