/* SPDX-License-Identifier: MIT */
/*
 * One run of a load: a daemon of its own, fio, and what both say.  Whatever
 * goes wrong is said to standard error, and is the end (die()); then, as at any
 * other end, kill -9 too, nothing that was started goes on, and no file is
 * left.
 */
#ifndef BENCH_H
#define BENCH_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "compare/compare.h"

#define BENCH_MAX_DEVICES 256u

/* Where things are. */
extern struct bench {
	char nullbd[4096]; /* the programs */
	char nullbctl[4096];
	char dir[64]; /* private files; "": none yet */
	char socket[80];
	char control[80];
	bool keeps; /* the files stay */
} bench;

/* Not 0: ^C, or the like.  What runs is ended, and bench_run() is false. */
extern volatile sig_atomic_t bench_stopped;

/* A configuration, and the job as it is for it. */
struct bench_side {
	const char *conf; /* path */
	char *device[BENCH_MAX_DEVICES];
	char *uri[BENCH_MAX_DEVICES];
	size_t nr_devices;
	char *job; /* path */
};

/* Find the programs ($NULLBD, neighbours of this one, $PATH), make the files.
 */
void bench_init(void);
/* A path of a private file, which the caller frees. */
char *bench_path(const char *name);
/* Start the daemon once: is the configuration right, what devices has it? */
void bench_devices(struct bench_side *s);
void bench_side_fini(struct bench_side *s);
/* fio's version, which the caller frees. */
char *bench_fio_version(void);

/*
 * Run it: figures are added, and what pictures need to `run`, whose side is
 * set.  `tick` is called some times a second with the seconds since it began.
 * False: it was stopped, and nothing was added.
 */
bool bench_run(const struct bench_side *s, struct figures *f, struct run *run,
    void (*tick)(void *arg, double seconds), void *arg);
/*
 * Run it for some seconds at most, and trace the first device that the job
 * uses.  NULL: it was stopped, or failed, and why was said to standard error.
 */
struct heat *
bench_trace(const struct bench_side *s, const char *device, unsigned seconds);

#endif
