/* SPDX-License-Identifier: MIT */
/*
 * The checker of replies (tests/lib/answer.c) finds the mistakes that it is
 * for: each is made here, by a server that is a few lines of a table.  What is
 * right, it lets pass.
 */
#include "../lib/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR(a)     (sizeof(a) / sizeof(*(a)))
#define SIZE      (1 * MiB)
#define AT        8192u /* where requests begin */
#define ID        77u   /* of the context */
#define MAX_STEPS 4

/* A chunk, its numbers written down; `text` repeats to fill what has a text. */
struct step {
	uint16_t type;
	uint16_t flags;
	uint64_t offset; /* of DATA, HOLE, ERROR_OFFSET; context of STATUS */
	uint32_t length; /* of DATA, HOLE; the text's; descriptors of STATUS */
	uint32_t error;
	struct extent extent[3];
	int extra;       /* bytes more, or less, than there should be */
	const char *raw; /* instead of a text */
	bool simple;
};

#define DATA(at, n)                                               \
	{                                                         \
		.type = CHUNK_DATA, .offset = (at), .length = (n) \
	}
#define LAST(at, n)                                                      \
	{                                                                \
		.type = CHUNK_DATA, .flags = CHUNK_DONE, .offset = (at), \
		.length = (n)                                            \
	}
#define HOLE(at, n)                                               \
	{                                                         \
		.type = CHUNK_HOLE, .offset = (at), .length = (n) \
	}
#define NONE                                            \
	{                                               \
		.type = CHUNK_NONE, .flags = CHUNK_DONE \
	}
#define STATUS(n, ...)                                                   \
	{                                                                \
		.type = CHUNK_STATUS, .flags = CHUNK_DONE, .offset = ID, \
		.length = (n), .extent = {                               \
			__VA_ARGS__                                      \
		}                                                        \
	}
#define SIMPLE(e)                            \
	{                                    \
		.simple = true, .error = (e) \
	}
#define ERROR(e, n)                                                     \
	{                                                               \
		.type = CHUNK_ERROR, .flags = CHUNK_DONE, .error = (e), \
		.length = (n)                                           \
	}
#define FAULT(e, at)                                                      \
	{                                                                 \
		.type = CHUNK_ERROR_OFFSET, .error = (e), .offset = (at), \
		.length = 3                                               \
	}

struct reply {
	const char *item; /* "": nothing is wrong */
	uint16_t type;
	uint16_t flags;
	uint32_t length;
	unsigned nr;
	struct step step[MAX_STEPS];
};

static const struct reply replies[] = {
	/* what is right */
	{ "", CMD_READ, 0, 4096, 1, { LAST(AT, 4096) } },
	{ "", CMD_READ, 0, 4096, 2, { DATA(AT + 512, 3584), LAST(AT, 512) } },
	{ "", CMD_READ, 0, 4096, 3,
	    { HOLE(AT, 512), DATA(AT + 512, 3584), NONE } },
	{ "", CMD_READ, 0, 0, 1, { NONE } },
	{ "", CMD_READ, 0, 4096, 1, { ERROR(E_INVAL, 5) } },
	{ "", CMD_READ, 0, 4096, 1, { ERROR(E_INVAL, 0) } },
	{ "", CMD_READ, 0, 4096, 3,
	    { DATA(AT, 512), FAULT(E_IO, AT + 100), NONE } },
	{ "", CMD_READ, 0, 4096, 3,
	    { FAULT(E_IO, AT), FAULT(E_IO, AT + 4095), NONE } },
	{ "", CMD_READ, CMD_DF, 4096, 1, { LAST(AT, 4096) } },
	{ "", CMD_READ, 0, 700, 1, { LAST(AT, 700) } },
	{ "", CMD_WRITE, 0, 4096, 1, { NONE } },
	{ "", CMD_FLUSH, 0, 0, 1, { ERROR(E_IO, 4096) } },
	{ "", CMD_BLOCK_STATUS, 0, 4096, 1, { STATUS(1, { 4096, 3 }) } },
	{ "", CMD_BLOCK_STATUS, 0, 4096, 1,
	    { STATUS(2, { 512, 0 }, { 99 * 512, 3 }) } },
	{ "", CMD_BLOCK_STATUS, 0, 4096, 1, { STATUS(1, { SIZE - AT, 0 }) } },
	{ "", CMD_BLOCK_STATUS, CMD_REQ_ONE, 4096, 1,
	    { STATUS(1, { 512, 0 }) } },
	{ "", CMD_BLOCK_STATUS, 0, 4096, 1, { ERROR(E_INVAL, 2) } },

	/* one mistake each */
	{ "N127", CMD_READ, 0, 4096, 2, { LAST(AT, 4096), NONE } },
	{ "N127", CMD_WRITE, 0, 4096, 2, { NONE, NONE } },
	{ "N127", CMD_WRITE, 0, 4096, 1, { { .type = CHUNK_NONE } } },
	{ "N127", CMD_WRITE, 0, 4096, 1,
	    { { .type = CHUNK_NONE, .flags = CHUNK_DONE, .extra = 1 } } },
	{ "N127", CMD_WRITE, 0, 4096, 1,
	    { { .type = CHUNK_NONE, .flags = CHUNK_DONE | 2 } } },
	{ "N127", CMD_WRITE, 0, 4096, 1,
	    { { .type = 4, .flags = CHUNK_DONE } } },
	{ "N127", CMD_WRITE, 0, 4096, 1,
	    { { .type = 0x8000, .flags = CHUNK_DONE } } },
	{ "N128", CMD_READ, 0, 4096, 1, { NONE } },
	{ "N128", CMD_READ, 0, 4096, 1, { LAST(AT, 3584) } },
	{ "N128", CMD_READ, 0, 4096, 1, { LAST(AT, 4608) } },
	{ "N128", CMD_READ, 0, 4096, 1, { LAST(AT - 512, 512) } },
	{ "N128", CMD_READ, 0, 4096, 1, { LAST(AT + 4096, 512) } },
	{ "N128", CMD_READ, 0, 4096, 1, { LAST(0 - 512ULL, 4096) } },
	{ "N128", CMD_READ, 0, 4096, 1, { LAST(AT, 0) } },
	{ "N128", CMD_READ, 0, 0, 1, { LAST(AT, 1) } },
	{ "N128", CMD_READ, 0, 4096, 2, { DATA(AT, 4096), LAST(AT, 512) } },
	{ "N128", CMD_READ, 0, 4096, 2,
	    { DATA(AT + 512, 1024), LAST(AT, 1024) } },
	{ "N128", CMD_READ, 0, 4096, 2, { DATA(AT, 4096), HOLE(AT, 512) } },
	{ "N128", CMD_READ, 0, 4096, 2,
	    { FAULT(E_IO, AT + 5), LAST(AT, 4096) } },
	{ "N128", CMD_WRITE, 0, 4096, 1, { LAST(AT, 4096) } },
	{ "N128", CMD_BLOCK_STATUS, 0, 4096, 1, { HOLE(AT, 4096) } },
	{ "N129", CMD_READ, 0, 4096, 1, { HOLE(AT, 0) } },
	{ "N129", CMD_READ, 0, 4096, 1,
	    { { .type = CHUNK_HOLE,
		.offset = AT,
		.length = 512,
		.extra = 1 } } },
	{ "N129", CMD_READ, 0, 4096, 1,
	    { { .type = CHUNK_HOLE,
		.offset = AT,
		.length = 512,
		.extra = -1 } } },
	{ "N130", CMD_READ, 0, 4096, 1, { DATA(AT, 100) } },
	{ "N130", CMD_READ, 0, 4096, 1, { HOLE(AT + 100, 412) } },
	{ "N131", CMD_READ, CMD_DF, 4096, 2,
	    { DATA(AT, 512), LAST(AT + 512, 3584) } },
	{ "N131", CMD_READ, CMD_DF, 4096, 1, { HOLE(AT, 4096) } },
	{ "N135", CMD_READ, 0, 128 * KiB, 1, { LAST(AT, 128 * KiB) } },
	{ "N133", CMD_READ, 0, 4096, 1, { ERROR(0, 3) } },
	{ "N121", CMD_READ, 0, 4096, 1, { ERROR(2, 3) } },
	{ "N133", CMD_READ, 0, 4096, 1, { ERROR(E_IO, 4097) } },
	{ "N133", CMD_READ, 0, 4096, 1,
	    { { .type = CHUNK_ERROR,
		.error = E_IO,
		.length = 3,
		.extra = 1 } } },
	{ "N133", CMD_READ, 0, 4096, 1,
	    { { .type = CHUNK_ERROR,
		.error = E_IO,
		.length = 3,
		.extra = -1 } } },
	{ "N133", CMD_READ, 0, 4096, 1,
	    { { .type = CHUNK_ERROR, .error = E_IO, .extra = -1 } } },
	{ "N133", CMD_READ, 0, 4096, 1,
	    { { .type = CHUNK_ERROR_OFFSET,
		.error = E_IO,
		.offset = AT,
		.extra = -8 } } },
	{ "N133", CMD_READ, 0, 4096, 1, { FAULT(E_IO, AT - 1) } },
	{ "N133", CMD_READ, 0, 4096, 1, { FAULT(E_IO, AT + 4096) } },
	{ "N133", CMD_READ, 0, 4096, 2,
	    { { .type = CHUNK_ERROR, .error = E_IO }, ERROR(E_IO, 1) } },
	{ "N133", CMD_READ, 0, 4096, 2, { FAULT(E_IO, AT), ERROR(E_IO, 1) } },
	{ "N134", CMD_FLUSH, 0, 0, 1, { FAULT(E_IO, AT) } },
	{ "N138", CMD_READ, 0, 4096, 1,
	    { { .type = CHUNK_ERROR,
		.error = E_IO,
		.length = 2,
		.raw = "a\xc3" } } },
	{ "N146", CMD_BLOCK_STATUS, 0, 4096, 1, { STATUS(0) } },
	{ "N146", CMD_BLOCK_STATUS, 0, 4096, 1,
	    { { .type = CHUNK_STATUS,
		.offset = ID,
		.length = 1,
		.extent = { { 512, 0 } },
		.extra = 4 } } },
	{ "N146", CMD_BLOCK_STATUS, 0, 4096, 1,
	    { { .type = CHUNK_STATUS,
		.offset = ID + 1,
		.length = 1,
		.extent = { { 512, 0 } } } } },
	{ "N146", CMD_BLOCK_STATUS, 0, 4096, 2,
	    { { .type = CHUNK_STATUS,
		  .offset = ID,
		  .length = 1,
		  .extent = { { 512, 0 } } },
		STATUS(1, { 512, 0 }) } },
	{ "N146", CMD_BLOCK_STATUS, 0, 4096, 1, { NONE } },
	{ "N146", CMD_READ, 0, 4096, 1, { STATUS(1, { 4096, 0 }) } },
	{ "N146", CMD_BLOCK_STATUS, 0, 4096, 1, { STATUS(1, { 0, 0 }) } },
	{ "N147", CMD_BLOCK_STATUS, CMD_REQ_ONE, 4096, 1,
	    { STATUS(2, { 512, 0 }, { 512, 3 }) } },
	{ "N147", CMD_BLOCK_STATUS, CMD_REQ_ONE, 4096, 1,
	    { STATUS(1, { 4608, 0 }) } },
	{ "N148", CMD_BLOCK_STATUS, 0, 4096, 1,
	    { STATUS(2, { 4096, 0 }, { 512, 3 }) } },
	{ "N148", CMD_BLOCK_STATUS, 0, 4096, 1,
	    { STATUS(1, { SIZE - AT + 512, 0 }) } },
	{ "N151", CMD_BLOCK_STATUS, 0, 4096, 1,
	    { STATUS(2, { 512, 3 }, { 512, 3 }) } },
	{ "N151", CMD_BLOCK_STATUS, 0, 4096, 1,
	    { STATUS(2, { 100, 3 }, { 412, 0 }) } },
	{ "N155", CMD_BLOCK_STATUS, 0, 4096, 1, { STATUS(1, { 4096, 4 }) } },
	{ "N155", CMD_BLOCK_STATUS, 0, 4096, 1,
	    { STATUS(1, { 4096, 1u << 31 }) } },
};

/* The bytes of a chunk behind its header: how many. */
static size_t
body_of(const struct step *s, enum wire_mode mode, uint8_t *p)
{
	uint8_t *start = p;

	switch (s->type) {
	case CHUNK_DATA:
		p = put64(p, s->offset);
		memset(p, 'd', s->length);
		p += s->length;
		break;
	case CHUNK_HOLE: p = put32(put64(p, s->offset), s->length); break;
	case CHUNK_STATUS:
		p = put32(p, (uint32_t)s->offset);
		if (mode == WIRE_EXTENDED)
			p = put32(p, s->length);
		for (uint32_t i = 0; i < s->length; i++) {
			const struct extent *e = &s->extent[i];

			p = mode == WIRE_EXTENDED
				? put64(put64(p, e->length), e->state)
				: put32(put32(p, (uint32_t)e->length),
				      (uint32_t)e->state);
		}
		break;
	case CHUNK_ERROR:
	case CHUNK_ERROR_OFFSET:
		p = put16(put32(p, s->error), (uint16_t)s->length);
		memset(p, 't', s->length);
		if (s->raw)
			memcpy(p, s->raw, s->length);
		p += s->length;
		if (s->type == CHUNK_ERROR_OFFSET)
			p = put64(p, s->offset);
		break;
	default: break;
	}
	return (size_t)(p - start) + (size_t)s->extra;
}

static void
start_reply(struct answer *a, const struct reply *r, enum wire_mode mode)
{
	const struct wire w = {
		.mode = mode,
		.size = SIZE,
		.min = 512,
		.max = 64 * KiB,
		.context = { { .id = ID } },
		.nr_contexts = 1,
	};

	answer_init(a, &w, r->flags, r->type, 5, AT, r->length);
}

/* What is said of a reply, or "". */
static const char *
judge(const struct reply *r, enum wire_mode mode)
{
	static uint8_t body[256 * KiB];
	const char *fault = NULL;
	struct answer a;

	start_reply(&a, r, mode);
	for (unsigned i = 0; i < r->nr && !fault; i++) {
		const struct step *s = &r->step[i];
		struct chunk c = {
			.simple = s->simple,
			.flags = s->flags,
			.type = s->type,
			.error = s->error,
			.cookie = 5,
			.offset = AT,
			.data = body,
		};

		memset(body, 0, 64);
		c.length = body_of(s, mode, body);
		if (c.type == CHUNK_STATUS && mode == WIRE_EXTENDED)
			c.type = CHUNK_STATUS_EXT;
		fault = answer_take(&a, &c);
	}
	if (!fault && !*r->item)
		assert_true(a.done);
	answer_fini(&a);
	return fault ? fault : "";
}

static void
finds_each_mistake(void **state)
{
	(void)state;
	for (int mode = WIRE_STRUCTURED; mode <= WIRE_EXTENDED; mode++) {
		for (size_t i = 0; i < NR(replies); i++) {
			const struct reply *r = &replies[i];
			const char *said = judge(r, (enum wire_mode)mode);

			if (strncmp(said, r->item, *r->item ? 4 : 1))
				wire_fail("%s, reply %zu: \"%s\", want \"%s\"",
				    wire_mode_name((enum wire_mode)mode), i,
				    said, r->item);
		}
	}
}

/* What only one kind of header can have wrong. */
static void
finds_what_headers_have_wrong(void **state)
{
	static const struct {
		const char *item;
		enum wire_mode mode;
		uint16_t type;
		struct chunk chunk;
	} rows[] = {
		{ "", WIRE_SIMPLE, CMD_READ, { .simple = true, .cookie = 5 } },
		{ "", WIRE_STRUCTURED, CMD_WRITE,
		    { .simple = true, .cookie = 5, .error = E_NOSPC } },
		{ "", WIRE_STRUCTURED, CMD_BLOCK_STATUS,
		    { .simple = true, .cookie = 5, .error = E_INVAL } },
		{ "N126", WIRE_STRUCTURED, CMD_READ,
		    { .simple = true, .cookie = 5 } },
		{ "N126", WIRE_STRUCTURED, CMD_READ,
		    { .simple = true, .cookie = 5, .error = E_INVAL } },
		{ "N126", WIRE_STRUCTURED, CMD_BLOCK_STATUS,
		    { .simple = true, .cookie = 5 } },
		{ "N121", WIRE_STRUCTURED, CMD_WRITE,
		    { .simple = true, .cookie = 5, .error = 122 } },
		{ "N170", WIRE_EXTENDED, CMD_WRITE,
		    { .simple = true, .cookie = 5 } },
		{ "N123", WIRE_SIMPLE, CMD_WRITE,
		    { .flags = CHUNK_DONE, .cookie = 5 } },
		{ "N109", WIRE_STRUCTURED, CMD_WRITE,
		    { .flags = CHUNK_DONE, .cookie = 6 } },
		{ "N171", WIRE_EXTENDED, CMD_WRITE,
		    { .flags = CHUNK_DONE, .cookie = 5, .offset = AT + 1 } },
		{ "", WIRE_STRUCTURED, CMD_WRITE,
		    { .flags = CHUNK_DONE, .cookie = 5, .offset = AT + 1 } },
		{ "N174", WIRE_EXTENDED, CMD_BLOCK_STATUS,
		    { .flags = CHUNK_DONE,
			.cookie = 5,
			.offset = AT,
			.type = CHUNK_STATUS,
			.length = 12 } },
		{ "N174", WIRE_STRUCTURED, CMD_BLOCK_STATUS,
		    { .flags = CHUNK_DONE,
			.cookie = 5,
			.offset = AT,
			.type = CHUNK_STATUS_EXT,
			.length = 24 } },
		{ "N174", WIRE_EXTENDED, CMD_BLOCK_STATUS, /* says 2, has 1 */
		    { .flags = CHUNK_DONE,
			.cookie = 5,
			.offset = AT,
			.type = CHUNK_STATUS_EXT,
			.length = 24 } },
	};
	uint8_t data[64] = { 0 };

	(void)state;
	put32(put32(data, ID), 2);
	for (size_t i = 0; i < NR(rows); i++) {
		const struct reply r = { .type = rows[i].type, .length = 512 };
		struct chunk c = rows[i].chunk;
		const char *said;
		struct answer a;

		c.data = data;
		start_reply(&a, &r, rows[i].mode);
		said = answer_take(&a, &c);
		said = said ? said : "";
		if (strncmp(said, rows[i].item, *rows[i].item ? 4 : 1))
			wire_fail("row %zu: \"%s\", want \"%s\"", i, said,
			    rows[i].item);
		answer_fini(&a);
	}
}

/* What came is where it belongs, holes as zeros. */
static void
puts_content_where_it_belongs(void **state)
{
	static const struct reply r = { "", CMD_READ, 0, 4096, 3,
		{ DATA(AT + 1024, 3072), HOLE(AT, 512), LAST(AT + 512, 512) } };
	static uint8_t body[8192];
	uint8_t got[4096 + 2];
	struct answer a;

	(void)state;
	memset(got, 'x', sizeof(got));
	start_reply(&a, &r, WIRE_STRUCTURED);
	a.got = got + 1;
	for (unsigned i = 0; i < r.nr; i++) {
		struct chunk c = { .flags = r.step[i].flags,
			.type = r.step[i].type,
			.cookie = 5,
			.data = body };

		c.length = body_of(&r.step[i], WIRE_STRUCTURED, body);
		assert_null(answer_take(&a, &c));
	}
	assert_true(a.done);
	assert_true(answer_has_hole(&a, AT, 512));
	assert_false(answer_has_hole(&a, AT, 513));
	assert_int_equal(got[0], 'x');
	assert_true(all_zero(got + 1, 512));
	for (size_t i = 513; i < 4097; i++)
		assert_int_equal(got[i], 'd');
	assert_int_equal(got[4097], 'x');
	answer_fini(&a);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("framing", "the checker finds each mistake in a reply",
		    finds_each_mistake),
		CASE("framing", "and those in its headers",
		    finds_what_headers_have_wrong),
		CASE("framing", "content goes where it belongs",
		    puts_content_where_it_belongs),
	};

	return cmocka_run_group_tests_name("framing", tests, NULL, NULL);
}
