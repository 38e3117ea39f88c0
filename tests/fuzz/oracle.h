/* SPDX-License-Identifier: MIT */
/*
 * What a client of NBD may rely on, from the text of the protocol alone
 * (doc/proto.md of the NBD project; N1 and so on are its items): it is told
 * all bytes that went to the server and all that came from it, and fails at
 * the first that is wrong.
 *
 *	client -- oracle_sent() --> options, requests: what must come of them
 *	server -- oracle_got()  --> replies: is it that?
 *
 * It keeps a model of the disk: what a read must bring is known when the read
 * is sent, for effects of one connection come in the order of its requests.
 */
#ifndef FUZZ_ORACLE_H
#define FUZZ_ORACLE_H

#include <sys/queue.h>

#include "fuzz/fuzz.h"

#define ORACLE_MAX_SIZE (5u << 19) /* of a disk, in bytes */

/* What is known of an export. */
struct oracle_export {
	const char *name;
	uint64_t size;
	uint32_t min_block;
	bool read_only;
	bool can_trim;
	bool can_zero;   /* fast */
	bool keeps_data; /* else it reads as zeros */
	bool may_fill;   /* writes may fail with ENOSPC */
};

/* How far the client has come. */
enum oracle_phase {
	ORACLE_FLAGS,
	ORACLE_OPTIONS,
	ORACLE_TRANSMISSION,
	ORACLE_OVER, /* ABORT or DISC was sent, or what ends it as surely */
};

struct oracle_request;
TAILQ_HEAD(oracle_requests, oracle_request);

#define ORACLE_MAX_CONTEXTS 32u

struct oracle {
	const struct oracle_export *exports; /* the first is the default */
	unsigned nr_exports;
	const struct oracle_export *export; /* in transmission */
	enum oracle_phase phase;
	struct bytes sent, got;

	/* It is the server's turn to end this: nothing else may follow. */
	bool must_end;
	/* What follows cannot be judged: two replies could be meant. */
	bool vague;
	/* The server is to end, so requests may fail, and effects be lost. */
	bool shutting_down;
	/* A limit of the device has changed: a trim may be refused. */
	bool trim_may_fail;

	/* The handshake. */
	bool greeted;
	bool no_zeroes;
	bool structured, extended;
	bool in_option; /* the one at sent.pos is complete, and not answered */
	uint32_t option_nr;
	unsigned nr_options;
	unsigned nr_infos; /* INFO_EXPORT among its replies */
	unsigned nr_listed;
	uint32_t context[ORACLE_MAX_CONTEXTS]; /* ids, */
	unsigned nr_contexts;
	const struct oracle_export *contexts_of; /* and of which export */

	/* Transmission. */
	bool agreed;                     /* on block sizes */
	struct oracle_requests requests; /* not answered yet, in order */
	unsigned nr_requests;
	uint64_t nr_answered;
};

void
oracle_init(struct oracle *o, const struct oracle_export *exports, unsigned nr);
/* May the server hang up, for what was sent? */
bool oracle_may_end(const struct oracle *o);
/* Of what was sent all that has to be answered was: fails if not. */
void oracle_finish(const struct oracle *o);
void oracle_fini(struct oracle *o);

/* These bytes are handed to the server. */
void oracle_sent(struct oracle *o, const uint8_t *data, size_t len);
/* These came from it. */
void oracle_got(struct oracle *o, const void *data, size_t len);

#endif
