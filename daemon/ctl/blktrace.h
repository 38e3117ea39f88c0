/* SPDX-License-Identifier: MIT */
/*
 * blktrace's binary format (section 7 of the notes on the block layer): a
 * stream of records in the host's byte order, each a header and pdu_len bytes
 * of payload.  The numbers in a payload are big-endian.
 */
#ifndef CTL_BLKTRACE_H
#define CTL_BLKTRACE_H

#include <stdint.h>

#define BLKTRACE_MAGIC      0x65617400u
#define BLKTRACE_MAGIC_MASK 0xffffff00u
#define BLKTRACE_VERSION    7u

struct blktrace_record {
	uint32_t magic;    /* BLKTRACE_MAGIC | version */
	uint32_t sequence; /* of its cpu, from 1 on; 0 of a note */
	uint64_t time;     /* ns */
	uint64_t sector;
	uint32_t bytes;
	uint32_t action; /* a code, and bits of BLKTRACE_* above it */
	uint32_t pid;
	uint32_t device; /* major << 20 | minor */
	uint32_t cpu;
	uint16_t error;
	uint16_t pdu_len;
};
_Static_assert(sizeof(struct blktrace_record) == 48, "as the kernel has it");

#define BLKTRACE_CODE(action) ((action)&0xffffu)
#define BLKTRACE_CGROUP       0x100u /* in the code: an id begins the payload */

/* Categories: the high half of an action. */
enum {
	BLKTRACE_READ = 0x1 << 16,
	BLKTRACE_WRITE = 0x2 << 16,
	BLKTRACE_FLUSH = 0x4 << 16,
	BLKTRACE_SYNC = 0x8 << 16,
	BLKTRACE_QUEUE = 0x10 << 16,
	BLKTRACE_REQUEUE = 0x20 << 16,
	BLKTRACE_ISSUE = 0x40 << 16,
	BLKTRACE_COMPLETE = 0x80 << 16,
	BLKTRACE_FS = 0x100 << 16,
	BLKTRACE_PC = 0x200 << 16,
	BLKTRACE_NOTIFY = 0x400 << 16,
	BLKTRACE_AHEAD = 0x800 << 16,
	BLKTRACE_META = 0x1000 << 16,
	BLKTRACE_DISCARD = 0x2000 << 16,
	BLKTRACE_DRV_DATA = 0x4000 << 16,
	BLKTRACE_FUA = (int)(0x8000u << 16),
};

/* Codes of a note (BLKTRACE_NOTIFY). */
enum {
	BLKTRACE_NOTE_PROCESS = 0, /* payload: a comm of 16 bytes */
	BLKTRACE_NOTE_TIME = 1,    /* two u32 of the host: seconds, ns */
	BLKTRACE_NOTE_MESSAGE = 2, /* text */
};

#endif
