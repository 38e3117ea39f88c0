/* SPDX-License-Identifier: MIT */
/*
 * A text file that people write: its lines, with their numbers, and what is
 * wrong with them.
 */
#ifndef CTL_SOURCE_H
#define CTL_SOURCE_H

#include <stdbool.h>
#include <stdio.h>

#define SOURCE_MAX_LINE 16384u /* bytes of a line, without its newline */

struct source {
	const char *path;
	FILE *file;
	FILE *errors;       /* where it is complained to */
	unsigned line;      /* of the file: where the last line began */
	unsigned next_line; /* and where the next one does */
	unsigned nr_errors;
	char text[SOURCE_MAX_LINE + 1];
};

/* Open it.  0, or -errno of the file, complained about. */
int source_open(struct source *s, const char *path, FILE *errors);
/* The same of a file that is open already; source_close() closes it. */
void
source_attach(struct source *s, const char *path, FILE *file, FILE *errors);
void source_close(struct source *s);

/*
 * The next line, in s->text, without its newline; `joins`: and with those
 * that a backslash at its end joins to it.  NULL at the end; also, complained
 * about, when the file cannot be read or the line is too long.  A line with a
 * byte 0 in it is complained about and comes as an empty one.
 */
char *source_line(struct source *s, bool joins);

/* Something is wrong with the last line: "PATH:LINE: what". */
void source_complain(struct source *s, const char *what);

#endif
