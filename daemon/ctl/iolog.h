/* SPDX-License-Identifier: MIT */
/*
 * What the readers of recordings share: each adds the I/Os that it finds to a
 * struct iolog, and stops at the first thing that is wrong.
 */
#ifndef CTL_IOLOG_H
#define CTL_IOLOG_H

#include "ctl/ctl.h"
#include "ctl/source.h"

#define IOLOG_FORMATS                                                        \
	"allowed: what blkparse prints, a file of blktrace, fio's iolog of " \
	"version 2 or 3"

/* One more I/O: 0, or -errno with a sentence. */
int iolog_add(
    struct iolog *log, const struct iolog_io *io, char *err, size_t errlen);

/* A decimal number at *p, which moves behind it.  False: none, or too large. */
bool iolog_number(const char **p, uint64_t *out);

/* -------------------------------------------------------------- fiolog.c */

/* `device`: as iolog_read().  0, or -errno, complained about. */
int fio_read(struct iolog *log, struct source *s, const char *device);

/* ------------------------------------------------------------ blkparse.c */

/* 0, or -errno, complained about. */
int blkparse_read(struct iolog *log, struct source *s);

/* ------------------------------------------------------------- blkread.c */

/*
 * A file of blktrace's: the Nth of a recording, or the only one.  0, or -errno,
 * complained about to `errors`.
 */
int blktrace_read(struct iolog *log, FILE *f, unsigned file, FILE *errors);

#endif
