/* SPDX-License-Identifier: MIT */
#include "fuzz/fuzz.h"

#include <sys/mman.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void
fuzz_fail(const char *file, int line, const char *cond, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%d: does not hold: %s\n    ", file, line, cond);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

/* ---- what came out: FNV-1a, a word at a time */

#define FNV_START UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static uint64_t digest = FNV_START;

void
fuzz_saw(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t word;
	size_t n;

	for (; len > 0; p += n, len -= n) {
		n = len < sizeof(word) ? len : sizeof(word);
		word = len;
		memcpy(&word, p, n);
		digest = (digest ^ word) * FNV_PRIME;
		digest ^= digest >> 32;
	}
}

uint64_t
fuzz_digest(void)
{
	uint64_t d = digest;

	digest = FNV_START;
	return d;
}

/* ---- a file */

const char *
fuzz_file(const void *data, size_t len)
{
	static char path[32];
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	CHECK(fd >= 0, "no memory file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(ftruncate(fd, 0) == 0, "cannot empty the file");
	CHECK(pwrite(fd, data, len, 0) == (ssize_t)len, "cannot write it");
	return path;
}

/* ---- bytes */

/*
 * Buffers that were given back are used again, for a large one that is new
 * costs page faults.
 */
#define MAX_KEPT 4u

static struct bytes kept[MAX_KEPT];
static unsigned nr_kept;

uint8_t *
bytes_room(struct bytes *b, size_t len)
{
	if (b->p == NULL && nr_kept > 0)
		*b = kept[--nr_kept];
	if (b->len + len > b->max) {
		b->max = 2 * (b->len + len);
		b->p = realloc(b->p, b->max);
		CHECK(b->p != NULL, "out of memory");
	}
	b->len += len;
	return b->p + b->len - len;
}

void
bytes_add(struct bytes *b, const void *data, size_t len)
{
	if (len > 0)
		memcpy(bytes_room(b, len), data, len);
}

void
bytes_be(struct bytes *b, uint64_t v, unsigned size)
{
	uint8_t *p = bytes_room(b, size);

	while (size-- > 0) {
		p[size] = (uint8_t)v;
		v >>= 8;
	}
}

void
bytes_trim(struct bytes *b)
{
	if (b->pos == 0 || (b->pos < b->len / 2 && b->pos < b->len))
		return; /* moving would cost more than it gives */
	memmove(b->p, b->p + b->pos, b->len - b->pos);
	b->len -= b->pos;
	b->pos = 0;
}

void
bytes_free(struct bytes *b)
{
	b->len = 0;
	b->pos = 0;
	if (b->p != NULL && nr_kept < MAX_KEPT)
		kept[nr_kept++] = *b;
	else
		free(b->p);
	*b = (struct bytes){ 0 };
}
