/* SPDX-License-Identifier: MIT */
/*
 * A client's end of the control socket: a request is a line, and so is its
 * answer.  Whatever goes wrong is said to standard error, and is the end.
 */
#ifndef ASK_H
#define ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum {
	EXIT_DONE,
	EXIT_REFUSED,
	EXIT_USAGE
};

extern struct asking {
	const char *control; /* the path of the socket */
	bool json;           /* print answers as they come */
	int fd;              /* -1: not connected yet */
	FILE *answers;       /* what comes from it */
} asking;

void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Connect; asking does it when it has not been done. */
void ask_connect(void);
/* False: nobody listens, or not yet. */
bool ask_try_connect(void);
void ask_disconnect(void);
/*
 * Ask, and take the answer, which the caller gives up; the daemon has not
 * refused.  The request is given up.
 */
void ask_send(const char *command, json_t *request);
json_t *ask_take(void);
/* A line that follows it; NULL: no more comes. */
json_t *ask_next(void);
/* The first two. */
json_t *ask_with(const char *command, json_t *request);
/* The same with members that may be NULL: they are left out. */
json_t *ask_to_set(const char *command, const char *name, const char *attribute,
    const char *value);
json_t *ask(const char *command, const char *name, const char *attribute);
/* Of a device that may be gone by now: NULL when the daemon refuses. */
json_t *ask_if_there(const char *command, const char *name);
/* A member that must be text. */
const char *ask_string(json_t *object, const char *member);

#endif
