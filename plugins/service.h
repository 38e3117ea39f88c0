/* SPDX-License-Identifier: MIT */
/*
 * The simulated machine for programs whose threads are not its CPUs, as those
 * of nbdkit are not: one thread plays its only CPU.
 *
 *	thread: service_io() ---> inbox --+            one turn:
 *	thread: service_io() ---> inbox --+--> bios -> plug -> driver -> ends
 *	thread: ... sleeps until it ended <------------------------------+
 *
 * What is found in the inbox at once is a batch, as an io_submit() is, so that
 * I/Os of different threads merge; with plug_nsec what comes a little later is
 * of it, too.  All who use a disk are one task.
 */
#ifndef SERVICE_H
#define SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctl/ctl.h"
#include "dev/dev.h"

struct service;
struct task; /* of a disk */

struct service_conf {
	uint64_t memory_limit; /* bytes, of all disks; 0: none */
	uint64_t spin_ns;      /* for how long the CPU looks before it sleeps */
	/*
	 * Is there nobody any more who wants an answer?  Asked in a thread that
	 * waits for one, now and then.  NULL: there always is.
	 */
	bool (*is_gone)(void);
};

/* NULL when out of memory. */
struct service *service_new(const struct service_conf *conf);
/*
 * A disk more, with its power on.  NULL, with a sentence in err.  Before
 * service_start().
 */
struct task *service_add(
    struct service *s, const struct device *dev, char *err, size_t errlen);
/* Start the CPU: after the program has forked for the last time.  0, -errno. */
int service_start(struct service *s);
/* Nobody calls service_io() any more.  Fine if it was not started. */
void service_stop(struct service *s);
/* It is stopped.  NULL is fine. */
void service_free(struct service *s);

/* CLOCK_MONOTONIC, ns. */
uint64_t service_now(void);
/* It lasts as long as the service, which is the only one that changes it. */
struct disk *task_disk(const struct task *t);

/*
 * Any thread but the CPU's, which sleeps meanwhile; the CPU is started.
 *
 * An I/O, and all of it: 0 or -errno.  data: of a read or a write.  flags:
 * REQ_*.  The range lies within the disk.  What nobody waited for any more
 * (is_gone()), or should have broken the connection, ends with -ESHUTDOWN.
 */
int service_io(struct task *t, enum req_op op, unsigned flags, uint64_t pos,
    uint64_t bytes, void *data);

/* A range that is all data, or all the same kind of hole. */
struct service_extent {
	uint64_t bytes;
	unsigned kind; /* DISK_* */
};
/*
 * What is at pos, in at most `max` extents, each other than the one before;
 * returns how many, at least one, and they may end before `bytes` do.
 */
unsigned service_extents(struct task *t, uint64_t pos, uint64_t bytes,
    struct service_extent *out, unsigned max);

#endif
