/* SPDX-License-Identifier: MIT */
/*
 * A client whose bytes the input decides, and a loop with a virtual clock that
 * serves it from a disk, as daemon/loop.c and conn.c would:
 *
 *	peer_send() -> nbd_want/nbd_got -> block layer -> disk
 *	     |                                             |
 *	  oracle  <--  nbd_out/nbd_sent  <-----------------'
 *
 * How the bytes are cut into reads and writes is the input's choice, too.
 */
#ifndef FUZZ_PEER_H
#define FUZZ_PEER_H

#include "dev/dev.h"
#include "fuzz/oracle.h"
#include "nbd/nbd.h"

#define PEER_MAX_EXPORTS 8u
#define PEER_CUTS        8u

struct peer {
	struct machine *machine;
	struct cpu *cpu;
	struct page_pool *pages;
	struct disk *disk;
	const struct queue_ops *driver; /* the disk's; the queue's are: */
	struct queue_ops ops;
	uint64_t nr_lent; /* pages that the driver has lent */

	struct nbd_export export[PEER_MAX_EXPORTS];
	struct oracle_export known[PEER_MAX_EXPORTS];
	unsigned nr_exports;
	struct nbd_host host;
	struct nbd_limits limits;
	struct nbd_pool *pool;
	struct nbd_session *session;
	struct oracle oracle;

	uint64_t now;
	uint64_t next; /* when the loop would wake up */
	bool woken;
	bool attached;
	bool broken;               /* the session was aborted */
	bool deaf;                 /* nothing is read of what comes */
	int error;                 /* of the session */
	struct bytes out;          /* not taken by the session yet */
	uint64_t nr_taken, nr_got; /* bytes, since the beginning */
	const uint8_t *cuts;       /* PEER_CUTS of them, used over and over */
	unsigned nr_cuts;
};

/* A setting of the disk. */
struct peer_setting {
	const char *name, *value;
};

/* A disk that is on.  The settings end with {}. */
void peer_init(struct peer *p, const struct peer_setting *settings);
/* An export of it; the first is the default one, too. */
struct nbd_export *
peer_export(struct peer *p, const char *name, const char *description);
/* Once there are all exports: a session.  `cuts` as above. */
void peer_connect(struct peer *p, const uint8_t *cuts);

/* Up to `nr` turns of the loop, each with a read of what is in p->out. */
void peer_push(struct peer *p, unsigned nr);
/* All of p->out, as far as the session takes it. */
void peer_push_all(struct peer *p);
/* Let the time pass until nothing moves any more. */
void peer_settle(struct peer *p);

void peer_shutdown(struct peer *p);
/* After a shutdown: all ends now. */
void peer_expire(struct peer *p);
void peer_abort(struct peer *p);
/* The client says no more: what was not taken of p->out is never sent. */
void peer_eof(struct peer *p);
/* Change a setting while the disk is on. */
void peer_set(struct peer *p, const char *name, const char *value);

/*
 * The client sends the rest, reads all, and goes: all that has to be answered
 * is, and everything is given back.
 */
void peer_finish(struct peer *p);

#endif
