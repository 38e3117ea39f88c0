/* SPDX-License-Identifier: MIT */
/* A recorded session: the bytes of a client that uses all there is. */
#include "wire.h"

#include <string.h>

static void
record_option(
    struct recorded *r, uint32_t option, const void *data, uint32_t len)
{
	uint8_t *p = r->bytes + r->len;

	r->len = (size_t)(put_option(p, option, data, len) - r->bytes);
	r->option[r->nr_options] = option;
	r->option_end[r->nr_options++] = r->len;
}

struct row {
	uint16_t flags;
	uint16_t type;
	uint64_t offset;
	uint32_t length;
	uint32_t error;
};

#define FAR (1ULL << 62)

static const struct row rows[] = {
	{ 0, CMD_WRITE, 0, 512, 0 },
	{ 0, CMD_READ, 0, 512, 0 },
	{ CMD_FUA, CMD_WRITE, 4096, 700, 0 },
	{ 0, CMD_READ, 4000, 900, 0 },
	{ 0, CMD_FLUSH, 0, 0, 0 },
	{ 0, CMD_WRITE, 512, 64, 0 },
	{ 0, CMD_WRITE_ZEROES, 600, 100, 0 },
	{ 0, CMD_READ, 0, 1024, 0 },
	{ 0x40, CMD_WRITE, 0, 60, E_INVAL },
	{ 0, CMD_READ, 300, 1, 0 },
	{ 0, CMD_READ, FAR, 512, E_INVAL },
	{ 0, CMD_WRITE, FAR, 30, E_NOSPC },
	{ CMD_NO_HOLE, CMD_WRITE_ZEROES, 8192, 4096, 0 },
	{ 0, CMD_WRITE, 8191, 3, 0 },
	{ 0, CMD_WRITE, 8192, 1, 0 },
	{ 0, CMD_TRIM, 4096, 512, 0 },
	{ 0, CMD_READ, 4096, 1024, 0 },
	{ 0, 99, 0, 4096, E_INVAL },
	{ 0, CMD_BLOCK_STATUS, 0, 4096, E_INVAL },
	{ CMD_DF, CMD_READ, 0, 512, E_INVAL },
	{ 0, CMD_WRITE, 12 * KiB, 300, 0 },
	{ 0, CMD_READ, 12 * KiB - 100, 500, 0 },
	{ 0, CMD_READ, 0, 0, 0 },
	{ 0, CMD_WRITE, 100, 0, 0 },
	{ CMD_FUA, CMD_FLUSH, 0, 0, 0 },
	{ 0, CMD_READ, 8000, 400, 0 },
	{ 0, CMD_DISC, 0, 0, 0 },
};

void
recorded_make(struct recorded *r, const char *export)
{
	static const uint16_t infos[] = { INFO_BLOCK_SIZE, INFO_NAME,
		INFO_DESCRIPTION, INFO_EXPORT };
	uint8_t info[128], *payload = r->payload, *got = r->got;
	uint32_t len;

	memset(r, 0, sizeof(*r));
	fill(r->payload, sizeof(r->payload), 42);
	put32(r->bytes, HS_FIXED | HS_NO_ZEROES);
	r->len = 4;
	r->option_end[r->nr_options++] = 4;
	record_option(r, OPT_LIST, NULL, 0);
	record_option(r, 0x7654321, r->payload, 40);
	record_option(r, OPT_STRUCTURED_REPLY, r->payload, 4);
	len = put_info(info, export, infos, 4);
	record_option(r, OPT_INFO, info, len);
	record_option(r, OPT_LIST, info, 4);
	record_option(r, OPT_GO, info, len - 1);
	/* no BLOCK_SIZE: served to the byte */
	len = put_info(info, export, infos + 1, 3);
	record_option(r, OPT_GO, info, len);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct op *op = &r->ops[i];
		uint8_t *p = r->bytes + r->len;

		op->flags = rows[i].flags;
		op->type = rows[i].type;
		op->offset = rows[i].offset;
		op->length = rows[i].length;
		op->cookie = i + 1;
		op->got = got;
		p = put_request(p, op->flags, op->type, op->cookie, op->offset,
		    (uint32_t)op->length);
		if (op->type == CMD_WRITE) {
			op->data = payload;
			memcpy(p, payload, op->length);
			payload += op->length;
			p += op->length;
		}
		if (op->type == CMD_READ)
			got += op->length;
		r->len = (size_t)(p - r->bytes);
		r->op_end[i] = r->len;
		r->want_error[i] = rows[i].error;
		r->nr_ops++;
	}
}

size_t
recorded_whole_options(const struct recorded *r, size_t len)
{
	size_t n = 0;

	while (n < r->nr_options && r->option_end[n] <= len)
		n++;
	return n;
}

size_t
recorded_whole_ops(const struct recorded *r, size_t len)
{
	size_t n = 0;

	while (n < r->nr_ops && r->op_end[n] <= len)
		n++;
	return n;
}

/* Reads are checked against the region as it is at their turn. */
void
recorded_apply(struct recorded *r, size_t n, uint8_t *region)
{
	for (size_t i = 0; i < n; i++) {
		struct op *op = &r->ops[i];

		if (r->want_error[i])
			continue;
		if (op->type == CMD_READ && op->answered)
			assert_same(op->got, region + op->offset, op->length,
			    "a recorded read");
		if (op->type == CMD_WRITE)
			memcpy(region + op->offset, op->data, op->length);
		if (op->type == CMD_TRIM || op->type == CMD_WRITE_ZEROES)
			memset(region + op->offset, 0, op->length);
	}
}
