/* SPDX-License-Identifier: MIT */
/*
 * A picture of a trace, apart from compare.h: who makes it knows the daemon's
 * floors, too, and their names.
 */
#ifndef COMPARE_HEAT_H
#define COMPARE_HEAT_H

#include <stdint.h>

/* What a traced run touched: a map of LBA (rows) and time (columns). */
#define HEAT_ROWS    64u
#define HEAT_COLUMNS 96u
struct heat {
	double seconds;                          /* that the columns are */
	uint64_t bytes;                          /* that the rows are */
	uint64_t count[HEAT_ROWS][HEAT_COLUMNS]; /* bytes touched */
};

/*
 * From what blktrace or nullbctl has written (daemon/heat.c); the caller frees
 * it.  NULL: it cannot be read, and why was said to standard error.
 */
struct heat *heat_read(const char *path);

#endif
