/* SPDX-License-Identifier: MIT */
/* The schedulers that a queue may be asked for. */
#include "blk/blk.h"

#include <string.h>

const struct elevator_type elevators[] = {
	{
	    .name = "none",
	    .available = true,
	    .help = "no sorting: requests go to the device as they come",
	},
	{
	    .name = "mq-deadline",
	    .help = "sorted by sector in batches, with deadlines: not built "
		    "into this version",
	},
	{
	    .name = "kyber",
	    .help = "token depths from latency targets: not simulated",
	},
	{
	    .name = "bfq",
	    .help = "budget fair queueing: not simulated",
	},
	{},
};

const struct elevator_type *
elevator_find(const char *name)
{
	const struct elevator_type *e;

	for (e = elevators; e->name != NULL; e++)
		if (strcmp(e->name, name) == 0)
			return e;
	return NULL;
}
