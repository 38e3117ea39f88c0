/* SPDX-License-Identifier: MIT */
/*
 * What real kernels counted: tests/data/workloads.txt, the I/O that was
 * submitted, and counters.tsv, a row a device that it was submitted to; and
 * model.tsv, the same of a model of kernels that were not recorded.  For those
 * who tell it again, in-process or over a wire.
 */
#ifndef TESTS_LIB_COUNTED_H
#define TESTS_LIB_COUNTED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct io {
	char op; /* R, W, D, F */
	uint64_t sector;
	unsigned nr_sectors;
	bool last; /* of its batch */
};

struct workload {
	char name[64];
	bool fua; /* all its writes */
	unsigned nr;
	struct io *io;
};

/* ios, merges and sectors of reads, writes and discards; ios of flushes */
#define NR_COUNTERS 10u
extern const char *const counter_names[NR_COUNTERS];

struct row {
	char setting[128];  /* kernel, scheduler, nomerges, sectors, device */
	char kernel[16];    /* "6.12" */
	char scheduler[64]; /* "mq-deadline,fifo_batch=1" */
	unsigned nomerges;
	unsigned max_sectors; /* 255: nobody has set it */
	char device[16];      /* mem, null, cache */
	char workload[64];
	uint64_t want[NR_COUNTERS];
};

/* A file of tests/data; exits if there is none. */
FILE *data_open(const char *name);
/* All of workloads.txt is read the first time; a test fails without it. */
const struct workload *workload_find(const char *name);
/* All rows, those of one setting one after the other. */
const struct row *counted_rows(unsigned *nr);
/* How many of the counters are not as wanted; each is printed. */
unsigned counted_wrong(const struct row *row, const uint64_t got[NR_COUNTERS]);

#endif
