/* SPDX-License-Identifier: MIT */
/* Crash logs: to read them, and to replay them onto an image. */
#ifndef CTL_CRASHREAD_H
#define CTL_CRASHREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a reader is. */
struct crash_reader {
	int fd;
	const char *path; /* the caller's */
	uint64_t size;
	uint64_t nr_entries; /* that there are to be, */
	uint64_t nr;         /* and that were read */
	uint32_t sectorsize;
	uint64_t pos; /* of the next one */
};

struct crash_entry {
	uint64_t nr;       /* from 1 on */
	uint64_t pos, len; /* bytes of the device */
	uint64_t flags;    /* CRASH_*; none: a write */
	uint64_t data;     /* where it lies in the file */
	uint64_t mark_len;
	char mark[4096]; /* with its NUL: a kernel's has a sector for it */
};

/*
 * 0, or -errno with a sentence: it cannot be read, or is no crash log that we
 * know (-EINVAL).
 */
int crashread_open(
    struct crash_reader *r, const char *path, char *err, size_t errlen);
void crashread_close(struct crash_reader *r); /* again is fine */
/*
 * 1: *e is the next entry.  0: there is no more.  Or -errno with a sentence:
 * -EINVAL: what is there is none.
 */
int crashread_next(
    struct crash_reader *r, struct crash_entry *e, char *err, size_t errlen);

/* How far to go: whatever comes first. */
struct crash_until {
	uint64_t entries;
	uint64_t flushes; /* 0: however many */
	const char *mark; /* of this text; NULL: none */
};

/*
 * N, flush:N, a mark's text, mark:TEXT, or end.  0, or -EINVAL with a sentence.
 */
int crash_until_parse(
    const char *text, struct crash_until *u, char *err, size_t errlen);
/*
 * Do to an image what the entries up to there did, the last one included; it
 * grows as need be.  0; or -errno with a sentence, and what came before is
 * done: -EINVAL, the log is damaged, or ends in an entry; -ENOENT, it ends
 * before; else of the image.  r->nr says how many it did.
 */
int crashread_replay(struct crash_reader *r, const struct crash_until *until,
    int image, char *err, size_t errlen);

#endif
