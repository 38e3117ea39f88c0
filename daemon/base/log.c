/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_LINE 1024u

static const char *log_program = "nullbd";
static bool log_verbose;

void
log_init(const char *program, bool verbose)
{
	log_program = program;
	log_verbose = verbose;
}

/* One write a line, so that the lines of several threads do not mix. */
static void
say(const char *level, const char *fmt, va_list ap)
{
	char text[MAX_LINE];

	vsnprintf(text, sizeof(text), fmt, ap);
	fprintf(stderr, "%s: %s%s\n", log_program, level, text);
}

void
log_fatal(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("", fmt, ap);
	va_end(ap);
	exit(1);
}

void
log_warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("warning: ", fmt, ap);
	va_end(ap);
}

void
log_info(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("", fmt, ap);
	va_end(ap);
}

void
log_debug(const char *fmt, ...)
{
	va_list ap;

	if (!log_verbose)
		return;
	va_start(ap, fmt);
	say("debug: ", fmt, ap);
	va_end(ap);
}
