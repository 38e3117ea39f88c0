/* SPDX-License-Identifier: MIT */
/*
 * What a program says to the one who runs it: one line an event, lower case,
 * the subject first.  Only the edges (daemon/, the tools) log; the core
 * returns errors.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdio.h>

/* The program's name before each line; debug lines only when verbose. */
void log_init(const char *program, bool verbose);

/*
 * stderr, for what is wrong with a file or an argument: lines that begin with a
 * place ("nullbd.conf:12: ") stay as they are, others get the program's name.
 * It is nobody's to close.
 */
FILE *log_errors(void);

/* Any thread.  log_fatal() exits with status 1. */
_Noreturn void
log_fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
