/* SPDX-License-Identifier: MIT */
/* What nullbctl prints again and again: iostat, latency, top. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>
#include <stdint.h>

/* [NAME] [INTERVAL [COUNT]] */
struct repeat {
	const char *name; /* NULL: all devices */
	double interval;  /* seconds; 0: none was given */
	uint64_t count;   /* of reports; UINT64_MAX: no end */
};

/* Says what is wrong, and is the end then. */
struct repeat repeat_parse(const char *command, int argc, char **argv);

/* The first report is of the time since power-on, the next of an interval. */
void report_iostat(const struct repeat *r, bool extended);
/* Of one device. */
void report_latency(const struct repeat *r);
/* Each second, if no interval was given; each report is of one. */
void report_top(const struct repeat *r);

#endif
