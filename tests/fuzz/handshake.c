/* SPDX-License-Identifier: MIT */
/*
 * Whatever a client sends from its first byte on.
 *
 *	| cuts 8 | exports 1 | bytes of the client ...
 *
 * Once it gets to transmission it is served from a small disk.  Mutations heed
 * that there are options, each with a length.
 */
#include "fuzz/peer.h"

#include <string.h>

#define HEADER (PEER_CUTS + 1)

enum {
	NO_EXPORTS = 1 << 0,
	MANY_EXPORTS = 1 << 1,
	SHUTDOWN = 1 << 2, /* after a few turns */
	DEAF = 1 << 3,     /* at first */
};

#define LONG_TEXT 5000u

/* Of strings 4096 bytes may be sent, and whole characters. */
static char longest_name[4096 + 1], too_long_name[LONG_TEXT + 1];
static char long_description[LONG_TEXT + 2];

static void
make_texts(void)
{
	memset(longest_name, 'n', sizeof(longest_name) - 1);
	memset(too_long_name, 'm', sizeof(too_long_name) - 1);
	/* two bytes a character, and an odd one first */
	for (size_t i = 0; i < LONG_TEXT; i += 2)
		memcpy(long_description + 1 + i, "\xc3\xa9", 2);
	long_description[0] = 'x';
}

static void
make_exports(struct peer *p, unsigned choice)
{
	if (choice & NO_EXPORTS)
		return;
	peer_export(p, "disk", NULL);
	if ((choice & MANY_EXPORTS) == 0)
		return;
	peer_export(p,
	    "gr\xc3\xbc\xc3\x9f"
	    "e",
	    "a description");
	peer_export(p, "d", long_description)->read_only = true;
	peer_export(p, longest_name, NULL)->can_trim = false;
	peer_export(p, too_long_name, "never found");
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct peer_setting settings[] = {
		{ "size", "1M" },
		{ "memory_backed", "1" },
		{ "discard", "1" },
		{},
	};
	unsigned choice;
	struct peer p;

	if (size < HEADER)
		return -1;
	if (longest_name[0] == '\0')
		make_texts();
	choice = data[PEER_CUTS];
	peer_init(&p, settings);
	make_exports(&p, choice);
	peer_connect(&p, data);
	bytes_add(&p.out, data + HEADER, size - HEADER);
	p.deaf = (choice & DEAF) != 0;
	if (choice & (DEAF | SHUTDOWN))
		peer_push(&p, choice >> 4);
	if (choice & SHUTDOWN)
		peer_shutdown(&p);
	peer_finish(&p);
	return 0;
}

/* ---- mutations: messages as a whole, and lengths that fit */

#define MAX_MESSAGES 64u

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
    __attribute__((weak)); /* libFuzzer's; standalone has none */
size_t LLVMFuzzerCustomMutator(
    uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* The messages that the bytes are: flags, options, then anything. */
static unsigned
find_messages(const uint8_t *data, size_t size, size_t start[MAX_MESSAGES + 1])
{
	size_t at = HEADER + 4;
	unsigned nr = 0;

	while (nr < MAX_MESSAGES && at + 16 <= size) {
		uint64_t len = be(data + at + 12, 4);

		start[nr++] = at;
		if (len > size - at - 16)
			len = size - at - 16;
		at += 16 + len;
	}
	start[nr] = at < size ? at : size;
	return nr;
}

/* Say of the i-th that it is as long as it is. */
static void
mend(uint8_t *data, const size_t *start, unsigned i)
{
	size_t len = start[i + 1] - start[i] - 16;

	for (unsigned k = 0; k < 4; k++)
		data[start[i] + 12 + k] = (uint8_t)(len >> (24 - 8 * k));
}

/* A copy of one before another one. */
static size_t
repeat(uint8_t *data, size_t size, size_t max_size, const size_t *start,
    unsigned from, unsigned to)
{
	static uint8_t copy[1 << 16];
	size_t len = start[from + 1] - start[from];

	if (len > sizeof(copy) || size + len > max_size)
		return size;
	memcpy(copy, data + start[from], len);
	memmove(data + start[to] + len, data + start[to], size - start[to]);
	memcpy(data + start[to], copy, len);
	return size + len;
}

static size_t
drop(uint8_t *data, size_t size, const size_t *start, unsigned i)
{
	memmove(data + start[i], data + start[i + 1], size - start[i + 1]);
	return size - (start[i + 1] - start[i]);
}

/* Another content of one, whose length fits it. */
static size_t
change(uint8_t *data, size_t size, size_t max_size, size_t *start, unsigned i)
{
	static uint8_t rest[1 << 16];
	size_t end = start[i + 1], nr_rest = size - end;
	size_t at = start[i] + 16, len;

	if (nr_rest > sizeof(rest) || at + nr_rest >= max_size)
		return size;
	memcpy(rest, data + end, nr_rest);
	len = LLVMFuzzerMutate(data + at, end - at, max_size - at - nr_rest);
	memcpy(data + at + len, rest, nr_rest);
	start[i + 1] = at + len;
	mend(data, start, i);
	return at + len + nr_rest;
}

size_t
LLVMFuzzerCustomMutator(
    uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	size_t start[MAX_MESSAGES + 1];
	unsigned nr, i, k;

	if (size < HEADER + 4 || seed % 2 == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	nr = find_messages(data, size, start);
	if (nr == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	i = (seed >> 8) % nr;
	k = (seed >> 16) % nr;
	switch (seed >> 1 & 3) {
	case 0: return repeat(data, size, max_size, start, i, k);
	case 1: return drop(data, size, start, i);
	case 2: return change(data, size, max_size, start, i);
	default: mend(data, start, i); return size;
	}
}
