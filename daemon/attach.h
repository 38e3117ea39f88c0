/* SPDX-License-Identifier: MIT */
/*
 * A device as a block device of this machine's kernel: what nbd-client(8) is
 * asked for, and what /sys/block says of it.  Single-threaded; a call may take
 * as long as the program does that it runs, ATTACH_SEC at most.
 */
#ifndef ATTACH_H
#define ATTACH_H

#include <sys/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATTACH_SEC      10u /* so long the kernel, or nbd-client, may take */
#define ATTACH_MAX_CONN 64u
#define ATTACH_DEVICE   32u  /* bytes of "/dev/nbdN" */
#define PERSIST_SEC     300u /* so long requests wait for a connection */

struct place;

struct attach {
	const char *name;          /* the export */
	const struct place *place; /* where it is: a UNIX socket, or TCP */
	unsigned connections;      /* 1 to ATTACH_MAX_CONN */
	unsigned timeout;          /* seconds a request may take; 0: any */
	unsigned block_size;       /* bytes: 512, 1024, 2048, 4096 */
	bool persist; /* lost connections are replaced, requests wait */
	bool raw;     /* no merging, splitting or sorting in this kernel */
};

/* Is it the path of one, "/dev/nbd" and a number? */
bool attach_is_device(const char *path);

/*
 * Attach.  `device` is a path, or "": then it becomes that of the first one
 * that is free.  0; or -errno, with a sentence that says what is wrong in err:
 * -EPERM, -ENODEV: no driver or no such device; -EBUSY: not free; -ENOENT: no
 * nbd-client; -EIO: nbd-client or the kernel refused.
 */
int
attach_device(const struct attach *a, char *device, char *err, size_t errlen);

/*
 * The device that a process has attached, into `device`: 0; or -ENOENT.  By
 * netlink it is the process that made the connections.
 */
int attach_find(pid_t pid, char *device);

/*
 * Detach it, unless it is in use.  0; or -errno, and a sentence: as above,
 * -EBUSY: mounted, swap or part of another device; -ENOTCONN: not attached;
 * -ETIMEDOUT.
 */
int detach_device(const char *device, char *err, size_t errlen);

/* Is it attached?  Its size in bytes. */
bool attach_is_there(const char *device);
uint64_t attach_size(const char *device);

/* ------------------------------------------------------------- persist.c */

/*
 * One that will keep a device attached: made before, so that it hears of all
 * connections that are lost.  NULL, with a sentence in err.  `a` outlives it.
 */
struct keeper *persist_new(const struct attach *a, char *err, size_t errlen);
void persist_free(struct keeper *k);
/*
 * A process of its own that does so until the device is detached.  0, or
 * -errno with a sentence.
 */
int
persist_start(struct keeper *k, const char *device, char *err, size_t errlen);

#endif
