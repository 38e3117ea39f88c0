/* SPDX-License-Identifier: MIT */
/*
 * The file of a crash log is that of the kernel's dm-log-writes, of version 1:
 * a sector that says so, then entries, a sector each, that of a write with its
 * data behind it, that of a mark with its text in it.  Little-endian.
 */
#ifndef DEV_CRASHLOG_H
#define DEV_CRASHLOG_H

#include <stdint.h>

#define CRASH_LOG_MAGIC   UINT64_C(0x6a736677736872)
#define CRASH_LOG_VERSION 1u
#define CRASH_LOG_SECTOR  512u /* of those that we write */

struct crash_log_super {
	uint64_t magic;
	uint64_t version;
	uint64_t nr_entries;
	uint32_t sectorsize; /* bytes: of the entries, and of all in them */
};

/* flags */
enum {
	CRASH_FLUSH = 1 << 0,
	CRASH_FUA = 1 << 1,
	CRASH_DISCARD = 1 << 2, /* no data: it reads as zeros then */
	CRASH_MARK = 1 << 3,
	CRASH_METADATA = 1 << 4
};

struct crash_log_entry {
	uint64_t sector, nr_sectors;
	uint64_t flags;
	uint64_t data_len; /* of a mark's text, which follows */
};

/* Of a mark's text, with a NUL for who reads it as a string. */
#define CRASH_MAX_MARK (CRASH_LOG_SECTOR - sizeof(struct crash_log_entry) - 1)

#endif
