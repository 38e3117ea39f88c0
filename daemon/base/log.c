/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <ctype.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINE 1024u

static const char *log_program = "nullbd";
static bool log_verbose;

void
log_init(const char *program, bool verbose)
{
	log_program = program;
	log_verbose = verbose;
}

/*
 * One write a line, so that the lines of several threads do not mix; and none
 * that would block: who does not read our log must not stop our service.
 */
static void
say(const char *level, const char *fmt, va_list ap)
{
	struct pollfd out = { .fd = STDERR_FILENO, .events = POLLOUT };
	char line[MAX_LINE];
	int len, more;

	len = snprintf(line, sizeof(line) - 1, "%s: %s", log_program, level);
	more = vsnprintf(line + len, sizeof(line) - 1 - (size_t)len, fmt, ap);
	len += more > 0 ? more : 0;
	if ((size_t)len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	/* a pipe that polls as writable takes PIPE_BUF bytes */
	if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0)
		(void)!write(STDERR_FILENO, line, (size_t)len);
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

/* ---- what is wrong */

/* "nullbd.conf:12: ..." */
static bool
has_place(const char *line, size_t len)
{
	const char *p = memchr(line, ':', len), *end = line + len;

	if (p == NULL || ++p == end || !isdigit((unsigned char)*p))
		return false;
	while (p < end && isdigit((unsigned char)*p))
		p++;
	return p < end && *p == ':';
}

/* Of a stream that has lines as its buffer. */
static ssize_t
write_errors(void *cookie, const char *text, size_t size)
{
	static bool inside; /* a line that is longer than the buffer */
	size_t at, len;

	(void)cookie;
	for (at = 0; at < size; at += len) {
		const char *end = memchr(text + at, '\n', size - at);

		len = end != NULL ? (size_t)(end + 1 - text) - at : size - at;
		if (!inside && !has_place(text + at, len))
			fprintf(stderr, "%s: ", log_program);
		fwrite(text + at, 1, len, stderr);
		inside = end == NULL;
	}
	return (ssize_t)size;
}

FILE *
log_errors(void)
{
	static FILE *errors;

	if (errors == NULL) {
		errors = fopencookie(NULL, "w",
		    (cookie_io_functions_t){ .write = write_errors });
		if (errors == NULL)
			return stderr;
		setvbuf(errors, NULL, _IOLBF, BUFSIZ);
	}
	return errors;
}
