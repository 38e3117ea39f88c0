/* SPDX-License-Identifier: MIT */
/*
 * What the fuzz targets share.  A target is a LLVMFuzzerTestOneInput(): it
 * makes all it needs, does what the input says, checks, and frees everything.
 * Nothing is carried from one input to the next.  libFuzzer drives it, or
 * standalone.c, which feeds it files.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---------------------------------------------------------------- fuzz.c */

/*
 * What has to hold, whatever NDEBUG says; with a printf() of what was seen
 * instead.
 */
#define CHECK(cond, ...) \
	((cond) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #cond, __VA_ARGS__))

_Noreturn void fuzz_fail(const char *file, int line, const char *cond,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* What came out: the same input gives the same again (standalone.c). */
void fuzz_saw(const void *data, size_t len);
/* A digest of what was seen since the last such call. */
uint64_t fuzz_digest(void);

/*
 * The path of a file in memory with these bytes: one and the same file, so
 * the last call's are there.
 */
const char *fuzz_file(const void *data, size_t len);

/* ----------------------------------------------------------------- input */

/* Bytes that decide; after the last one, zeros do. */
struct input {
	const uint8_t *at, *end;
};

static inline struct input
input_of(const uint8_t *data, size_t size)
{
	return (struct input){ data, data + size };
}

static inline size_t
input_left(const struct input *in)
{
	return (size_t)(in->end - in->at);
}

static inline uint8_t
input_u8(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static inline uint16_t
input_u16(struct input *in)
{
	uint16_t high = input_u8(in);

	return (uint16_t)(high << 8 | input_u8(in));
}

/* Up to `max` bytes: how many. */
static inline size_t
input_bytes(struct input *in, size_t max, const uint8_t **out)
{
	size_t n = input_left(in) < max ? input_left(in) : max;

	*out = in->at;
	in->at += n;
	return n;
}

/* ----------------------------------------------------------------- bytes */

/* A stream: what came in, and how far it was looked at. */
struct bytes {
	uint8_t *p;
	size_t len, max, pos;
};

/* Room for `len` bytes more at the end; the caller fills them. */
uint8_t *bytes_room(struct bytes *b, size_t len);
void bytes_add(struct bytes *b, const void *data, size_t len);
/* A number of `size` bytes, big-endian. */
void bytes_be(struct bytes *b, uint64_t v, unsigned size);
/* Forget what was looked at. */
void bytes_trim(struct bytes *b);
void bytes_free(struct bytes *b);

static inline size_t
bytes_left(const struct bytes *b)
{
	return b->len - b->pos;
}

/* What was not looked at yet. */
static inline const uint8_t *
bytes_at(const struct bytes *b)
{
	return b->p != NULL ? b->p + b->pos : (const uint8_t *)"";
}

static inline uint64_t
be(const uint8_t *p, unsigned size)
{
	uint64_t v = 0;

	while (size-- > 0)
		v = v << 8 | *p++;
	return v;
}

#endif
