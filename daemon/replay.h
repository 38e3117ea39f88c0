/* SPDX-License-Identifier: MIT */
/*
 * A recording told to the simulated block layer, with a clock that moves only
 * when something is due.
 */
#ifndef REPLAY_H
#define REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "ctl/ctl.h"

struct replay_conf {
	const struct disk_conf *disk;
	unsigned batch;    /* I/Os that a plug is opened around */
	const char *trace; /* write a trace to that base; NULL: none */
	bool closed; /* no recorded times: a batch waits for the one before */
};

/*
 * Submit every I/O of the recording to a disk and wait for their end.  *out
 * are the counters then, and how long it took; `stat`: they also go there as
 * /sys/block/X/stat has them, or NULL.  0, or -errno with a sentence: -EINVAL,
 * the settings are refused; others, an I/O cannot be done or has failed.
 */
int replay_run(const struct iolog *log, const struct replay_conf *conf,
    struct sample *out, FILE *stat, char *err, size_t errlen);

#endif
