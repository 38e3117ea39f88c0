/* SPDX-License-Identifier: MIT */
/*
 * Report A's job as fio makes it (6.5):
 *
 *	--rw=randrw:2
 *	--bssplit=512/20:1k/16:2k/9:4k/12:8k/19:16k/10:32k/8:64k/4
 *
 * The direction is drawn for each I/O; every second I/O is at a random place,
 * the others continue at the end of the last I/O of their own direction.  The
 * shares add up to 98; fio sorts them and gives what is missing to the
 * largest, 512.
 */
#ifndef PIPE_FIO_JOB_H
#define PIPE_FIO_JOB_H

#include "harness.h"

#define JOB_SECTORS (250ull * 1000 * 1000 * 1000 / SECTOR_SIZE)

struct job {
	struct chance chance;
	sector_t end[2]; /* of the last read, the last write */
	unsigned nr;     /* I/Os so far */
};

struct job_io {
	enum req_op op;
	sector_t sector;
	unsigned nr_sectors;
};

static inline struct job_io
job_next(struct job *j)
{
	static const struct {
		unsigned sectors;
		unsigned percent;
	} split[] = { { 128, 4 }, { 64, 8 }, { 4, 9 }, { 32, 10 }, { 8, 12 },
		{ 2, 16 }, { 16, 19 }, { 1, 22 } };
	struct job_io io;
	uint64_t dice = chance_below(&j->chance, 100);
	unsigned i = 0;

	while (dice >= split[i].percent)
		dice -= split[i++].percent;
	io.nr_sectors = split[i].sectors;
	io.op = chance_below(&j->chance, 2) ? REQ_OP_WRITE : REQ_OP_READ;
	io.sector = j->end[io.op];
	if (j->nr++ % 2 == 0)
		io.sector = chance_below(&j->chance, JOB_SECTORS - 128);
	j->end[io.op] = io.sector + io.nr_sectors;
	return io;
}

/*
 * The size of a batch as report A's fio printed them (experiments.md): each
 * class up to its number, evenly within it.
 */
static inline unsigned
job_batch(struct job *j)
{
	static const struct {
		unsigned lo, hi;
		unsigned share; /* of 1003: the printed shares are rounded */
	} class[] = { { 1, 4, 58 }, { 5, 8, 100 }, { 9, 16, 150 },
		{ 17, 32, 180 }, { 33, 64, 515 } };
	uint64_t dice = chance_below(&j->chance, 1003);
	unsigned i = 0;

	while (dice >= class[i].share)
		dice -= class[i++].share;
	return (unsigned)chance_between(&j->chance, class[i].lo, class[i].hi);
}

#endif
