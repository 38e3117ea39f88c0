/* SPDX-License-Identifier: MIT */
/*
 * The reply to one request, chunk by chunk, and whether it is as the protocol
 * has it.  Nothing here reads or fails by itself: tests/wire/framing.c feeds
 * it with every mistake that it is to find.
 */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#define SECTOR      512u
#define MAX_EXTENTS (1u << 20) /* N150 */

void
answer_init(struct answer *a, const struct wire *w, uint16_t flags,
    uint16_t type, uint64_t cookie, uint64_t offset, uint64_t length)
{
	*a = (struct answer){
		.mode = w->mode,
		.flags = flags,
		.type = type,
		.cookie = cookie,
		.offset = offset,
		.length = length,
		.size = w->size,
		.min = w->min,
		.max = w->max,
		.nr_ids = w->nr_contexts,
	};
	for (unsigned i = 0; i < w->nr_contexts; i++)
		a->id[i] = w->context[i].id;
}

void
answer_fini(struct answer *a)
{
	for (unsigned i = 0; i < a->nr_status; i++)
		free(a->status[i].extent);
	free(a->piece);
	free(a->text);
	*a = (struct answer){ 0 };
}

/* Bytes from `offset` on are within the request, `length` of them. */
static bool
is_within(const struct answer *a, uint64_t offset, uint64_t length)
{
	return offset >= a->offset && offset - a->offset <= a->length &&
	       length <= a->length - (offset - a->offset);
}

static bool
overlaps(const struct answer *a, uint64_t offset, uint64_t length)
{
	if (offset >= a->end)
		return false;
	for (size_t i = 0; i < a->nr_pieces; i++)
		if (a->piece[i].offset < offset + length &&
		    offset < a->piece[i].offset + a->piece[i].length)
			return true;
	return false;
}

static void
add_piece(
    struct answer *a, enum piece_kind kind, uint64_t offset, uint64_t length)
{
	size_t n = a->nr_pieces++;

	if (!(n & (n - 1))) /* it doubles */
		a->piece =
		    realloc(a->piece, (n ? 2 * n : 1) * sizeof(*a->piece));
	if (!a->piece)
		abort();
	a->piece[n] = (struct piece){ kind, offset, length };
	if (offset + length > a->end)
		a->end = offset + length;
}

/* Where the request does not end itself, pieces end at whole sectors. */
static bool
is_good_cut(const struct answer *a, uint64_t at)
{
	return at % SECTOR == 0 || at == a->offset ||
	       at == a->offset + a->length || at == a->size;
}

static const char *
take_content(struct answer *a, const struct chunk *c)
{
	bool hole = c->type == CHUNK_HOLE;
	uint64_t offset, length;

	if (a->type != CMD_READ)
		return "N128: content, but not of a READ";
	if (hole && c->length != 12)
		return "N129: an OFFSET_HOLE that is not 12 bytes long";
	if (c->length < 9)
		return "N128: an OFFSET_DATA without data";
	offset = get64(c->data);
	length = hole ? get32(c->data + 8) : c->length - 8;
	if (!length)
		return "N129: a hole of no bytes";
	if (!is_within(a, offset, length))
		return "N128: content outside the request";
	if (overlaps(a, offset, length))
		return "N128: content that overlaps an earlier chunk";
	if (a->flags & CMD_DF && a->content)
		return "N131: a second content chunk in spite of DF";
	if (a->flags & CMD_DF && hole)
		return "N131: a hole in spite of DF";
	if (!is_good_cut(a, offset) || !is_good_cut(a, offset + length))
		return "N130: content is cut within a sector";
	if (!hole && a->max && length > a->max)
		return "N135: more data than the maximum payload";
	add_piece(a, hole ? PIECE_HOLE : PIECE_DATA, offset, length);
	a->content += length;
	if (!a->got)
		return NULL;
	if (hole)
		memset(a->got + (offset - a->offset), 0, length);
	else
		memcpy(a->got + (offset - a->offset), c->data + 8, length);
	return NULL;
}

static const char *
take_error(struct answer *a, const struct chunk *c)
{
	bool has_offset = c->type == CHUNK_ERROR_OFFSET;
	uint32_t tail = has_offset ? 8 : 0, len;
	uint64_t offset = 0;

	if (c->length < 6 + tail)
		return "N133: an error chunk that is too short";
	len = get16(c->data + 4);
	if (c->length != 6 + tail + len)
		return "N133: the error's text does not fit its chunk";
	if (len > MAX_STRING)
		return "N133: a text of more than 4096 bytes";
	if (!get32(c->data))
		return "N133: an error chunk without an error";
	if (!is_legal_error(get32(c->data)))
		return "N121: an error that is none of the protocol's";
	if (!is_utf8(c->data + 6, len))
		return "N138: the error's text is not UTF-8";
	if (a->error && (!has_offset || !a->has_offset))
		return "N133: a second error, or ERROR beside ERROR_OFFSET";
	if (has_offset) {
		if (a->type == CMD_FLUSH || a->type == CMD_DISC ||
		    a->type > CMD_BLOCK_STATUS)
			return "N134: ERROR_OFFSET to a command without range";
		offset = get64(c->data + 6 + len);
		if (!is_within(a, offset, 1))
			return "N133: the error's offset is outside";
		add_piece(a, PIECE_ERROR, offset, 1);
	}
	if (a->error)
		return NULL;
	a->error = get32(c->data);
	a->has_offset = has_offset;
	a->error_offset = offset;
	a->text = strndup((const char *)c->data + 6, len);
	return NULL;
}

/* The descriptors of one context, from what precedes them on. */
static const char *
check_extents(const struct answer *a, const struct status *s)
{
	uint64_t at = a->offset, unit = a->min ? a->min : SECTOR;

	if (!s->nr)
		return "N146: no descriptor";
	if (s->nr > MAX_EXTENTS)
		return "N150: more than 2^20 descriptors";
	if (a->flags & CMD_REQ_ONE && s->nr > 1)
		return "N147: more than one descriptor in spite of REQ_ONE";
	for (size_t i = 0; i < s->nr; i++) {
		uint64_t length = s->extent[i].length, end = at + length;

		if (!length)
			return "N146: a descriptor of no bytes";
		if (at - a->offset >= a->length)
			return "N148: a descriptor behind the request";
		if (a->size && length > a->size - at)
			return "N148: a descriptor beyond the export";
		if (a->flags & CMD_REQ_ONE && length > a->length)
			return "N147: more than was asked in spite of REQ_ONE";
		if (end % unit && length % unit && end != a->size &&
		    end != a->offset + a->length)
			return "N151: a descriptor that ends within a block";
		if (i && s->extent[i].state == s->extent[i - 1].state)
			return "N151: two descriptors that are one";
		if (s->extent[i].state & ~(uint64_t)(STATE_HOLE | STATE_ZERO))
			return "N155: state bits that base:allocation has not";
		at = end;
	}
	return NULL;
}

static const char *
take_status(struct answer *a, const struct chunk *c)
{
	bool ext = c->type == CHUNK_STATUS_EXT;
	size_t head = ext ? 8 : 4, each = ext ? 16 : 8;
	struct status *s = &a->status[a->nr_status];
	const uint8_t *p = c->data + head;
	unsigned i = 0;

	if (ext != (a->mode == WIRE_EXTENDED))
		return "N174: the status chunk of the other headers";
	if (a->type != CMD_BLOCK_STATUS)
		return "N146: a status, but not of BLOCK_STATUS";
	if (c->length < head + each || (c->length - head) % each)
		return "N146: a status chunk that is not whole descriptors";
	while (i < a->nr_ids && a->id[i] != get32(c->data))
		i++;
	if (i == a->nr_ids)
		return "N146: the status of a context that was not selected";
	for (i = 0; i < a->nr_status; i++)
		if (a->status[i].id == get32(c->data))
			return "N146: two chunks of one context";
	s->id = get32(c->data);
	s->nr = (c->length - head) / each;
	if (ext && get32(c->data + 4) != s->nr)
		return "N174: the number of descriptors and the length differ";
	s->extent = calloc(s->nr, sizeof(*s->extent));
	if (!s->extent)
		abort();
	a->nr_status++;
	for (i = 0; i < s->nr; i++, p += each)
		s->extent[i] = ext ? (struct extent){ get64(p), get64(p + 8) }
				   : (struct extent){ get32(p), get32(p + 4) };
	return check_extents(a, s);
}

/* All has come: is it enough? */
static const char *
check_whole(const struct answer *a)
{
	if (a->error)
		return NULL;
	if (a->type == CMD_READ && a->content != a->length)
		return "N128: success, but not all was sent";
	if (a->type == CMD_BLOCK_STATUS && a->nr_status < a->nr_ids)
		return "N146: success, but not of each context";
	if (a->type == CMD_BLOCK_STATUS && !a->nr_ids)
		return "N153: success without a context";
	return NULL;
}

static const char *
take_simple(struct answer *a, const struct chunk *c)
{
	if (a->mode == WIRE_EXTENDED)
		return "N170: a simple reply in spite of extended headers";
	if (a->nr_chunks)
		return "N127: a simple reply after chunks";
	if (!is_legal_error(c->error))
		return "N121: an error that is none of the protocol's";
	if (a->mode == WIRE_STRUCTURED && a->type == CMD_READ)
		return "N126: a simple reply to READ";
	if (a->type == CMD_BLOCK_STATUS && !c->error)
		return "N126: a simple reply to BLOCK_STATUS";
	a->simple = true;
	a->done = true;
	a->error = c->error;
	return NULL;
}

const char *
answer_take(struct answer *a, const struct chunk *c)
{
	const char *fault;

	if (a->done)
		return "N127: something after DONE";
	if (c->cookie != a->cookie)
		return "N109: another cookie";
	if (c->simple)
		return take_simple(a, c);
	if (a->mode == WIRE_SIMPLE)
		return "N123: a chunk that was not negotiated";
	if (a->mode == WIRE_EXTENDED && c->offset != a->offset)
		return "N171: the header's offset is not the request's";
	if (c->flags & ~CHUNK_DONE)
		return "N127: flags that chunks have not";
	switch (c->type) {
	case CHUNK_NONE:
		fault = c->length ? "N127: a NONE with something in it"
			: c->flags & CHUNK_DONE ? NULL
						: "N127: a NONE without DONE";
		break;
	case CHUNK_DATA:
	case CHUNK_HOLE: fault = take_content(a, c); break;
	case CHUNK_STATUS:
	case CHUNK_STATUS_EXT: fault = take_status(a, c); break;
	case CHUNK_ERROR:
	case CHUNK_ERROR_OFFSET: fault = take_error(a, c); break;
	default: fault = "N127: a chunk of a type that there is not";
	}
	if (fault)
		return fault;
	a->nr_chunks++;
	a->done = c->flags & CHUNK_DONE;
	return a->done ? check_whole(a) : NULL;
}

bool
answer_has_hole(const struct answer *a, uint64_t offset, uint64_t length)
{
	for (size_t i = 0; i < a->nr_pieces; i++) {
		const struct piece *p = &a->piece[i];

		if (p->kind == PIECE_HOLE && offset >= p->offset &&
		    offset + length <= p->offset + p->length)
			return true;
	}
	return false;
}
