/* SPDX-License-Identifier: MIT */
/* What a trace shows of where the I/O went, and when. */
#include "compare/heat.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "ctl/ctl.h"

static void
map_io(struct heat *h, const struct iolog_io *io, double per_column,
    double per_row)
{
	unsigned column = (unsigned)((double)io->ns / 1e9 / per_column);
	unsigned row = (unsigned)((double)io->pos / per_row);

	if (column >= HEAT_COLUMNS)
		column = HEAT_COLUMNS - 1;
	if (row >= HEAT_ROWS)
		row = HEAT_ROWS - 1;
	h->count[row][column] += io->bytes;
}

static struct heat *
heat_of(const struct iolog *log)
{
	struct heat *h = calloc(1, sizeof(*h));
	const struct iolog_io *io;
	size_t i;

	if (h == NULL) {
		fputs("out of memory\n", stderr);
		return NULL;
	}
	for (i = 0; i < log->nr; i++) {
		io = &log->io[i];
		if (io->pos + io->bytes > h->bytes)
			h->bytes = io->pos + io->bytes;
		if ((double)io->ns / 1e9 > h->seconds)
			h->seconds = (double)io->ns / 1e9;
	}
	for (i = 0; i < log->nr && h->bytes > 0 && h->seconds > 0; i++)
		map_io(h, &log->io[i], h->seconds / HEAT_COLUMNS,
		    (double)h->bytes / HEAT_ROWS);
	return h;
}

struct heat *
heat_read(const char *path)
{
	struct iolog *log = iolog_read(path, NULL, log_errors());
	struct heat *h = log != NULL ? heat_of(log) : NULL;

	iolog_free(log);
	return h;
}
