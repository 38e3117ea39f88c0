/* SPDX-License-Identifier: MIT */
/*
 * What the tests of recordings share: bytes that become a file, are read, and
 * what was complained about, with the file's path as FILE.
 */
#ifndef UNIT_RECORDING_H
#define UNIT_RECORDING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/blktrace.h"
#include "ctl/iolog.h"

static char rec_path[64];   /* of the file that a test writes */
static char rec_said[1024]; /* what was complained about, or "" */

static inline void
rec_write(const char *path, const void *bytes, size_t len)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, len, f), len);
	fclose(f);
}

/* Say FILE wherever the path stands. */
static inline void
rec_hide_path(const char *said)
{
	size_t len = strlen(rec_path), n = 0;

	while (*said != '\0' && n < sizeof(rec_said) - 8)
		if (strncmp(said, rec_path, len) == 0) {
			memcpy(rec_said + n, "FILE", 4);
			n += 4;
			said += len;
		} else {
			rec_said[n++] = *said++;
		}
	rec_said[n] = '\0';
}

static inline struct iolog *
rec_read_path(const char *path, const char *device)
{
	struct iolog *log;
	FILE *errors;
	char *said;
	size_t n;

	errors = open_memstream(&said, &n);
	log = iolog_read(path, device, errors);
	fclose(errors);
	rec_hide_path(said);
	free(said);
	assert_int_equal(log == NULL, rec_said[0] != '\0');
	return log;
}

static inline struct iolog *
rec_read(const void *bytes, size_t len, const char *device)
{
	struct iolog *log;

	snprintf(
	    rec_path, sizeof(rec_path), "/tmp/nullbd-recording-%d", getpid());
	rec_write(rec_path, bytes, len);
	log = rec_read_path(rec_path, device);
	unlink(rec_path);
	return log;
}

static inline struct iolog *
rec_read_text(const char *text)
{
	return rec_read(text, strlen(text), NULL);
}

/* It is refused, with these words and a newline. */
static inline void
rec_refuses(const void *bytes, size_t len, const char *said)
{
	struct iolog *log = rec_read(bytes, len, NULL);

	assert_null(log);
	assert_string_equal(rec_said, said);
}

static inline void
rec_refuses_text(const char *text, const char *said)
{
	rec_refuses(text, strlen(text), said);
}

/* These and no other I/Os: op, pos, bytes, ns, flags, task; the rest as is. */
static inline void
rec_expect(struct iolog *log, size_t nr, const struct iolog_io *want)
{
	if (log == NULL)
		fail_msg("%s", rec_said);
	assert_int_equal(log->nr, nr);
	for (size_t i = 0; i < nr; i++) {
		assert_int_equal(log->io[i].op, want[i].op);
		assert_int_equal(log->io[i].pos, want[i].pos);
		assert_int_equal(log->io[i].bytes, want[i].bytes);
		assert_int_equal(log->io[i].ns, want[i].ns);
		assert_int_equal(log->io[i].flags, want[i].flags);
		assert_int_equal(log->io[i].task, want[i].task);
		assert_int_equal(log->io[i].first, want[i].first);
		assert_int_equal(log->io[i].alone, want[i].alone);
	}
}

#define REC_EXPECT(log, ...)                             \
	rec_expect(log,                                  \
	    sizeof((struct iolog_io[]){ __VA_ARGS__ }) / \
		sizeof(struct iolog_io),                 \
	    (struct iolog_io[]){ __VA_ARGS__ })

/*
 * Whatever of a recording is missing, and whichever byte of it is another, it
 * is read or refused.
 */
static inline void
rec_mutate(const void *valid, size_t len)
{
	unsigned char *bytes = malloc(len);

	assert_non_null(bytes);
	memcpy(bytes, valid, len);
	for (size_t i = 0; i < len; i++)
		iolog_free(rec_read(bytes, i, NULL));
	for (size_t i = 0; i < len; i++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			bytes[i] ^= (unsigned char)(1u << bit);
			iolog_free(rec_read(bytes, len, NULL));
			bytes[i] ^= (unsigned char)(1u << bit);
		}
		bytes[i] ^= 0xff;
		iolog_free(rec_read(bytes, len, NULL));
		bytes[i] ^= 0xff;
	}
	free(bytes);
}

#endif
