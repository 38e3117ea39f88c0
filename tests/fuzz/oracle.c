/* SPDX-License-Identifier: MIT */
#include "fuzz/oracle.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------- numbers, as the text has them */

#define GREETING_MAGIC  UINT64_C(0x4e42444d41474943)
#define OPTION_MAGIC    UINT64_C(0x49484156454f5054)
#define REPLY_MAGIC     UINT64_C(0x0003e889045565a9)
#define REQUEST_MAGIC   0x25609513u
#define EXT_MAGIC       0x21e41c71u
#define SIMPLE_MAGIC    0x67446698u
#define CHUNK_MAGIC     0x668e33efu
#define EXT_CHUNK_MAGIC 0x6e8a278cu

#define MAX_STRING 4096u
/* of our own choice: */
#define MAX_OPTIONS      1024u
#define MAX_OPTION       (64u << 10) /* bytes: more is TOO_BIG */
#define MAX_OPTION_DRAIN (64u << 20)
#define MAX_PAYLOAD      (64u << 20) /* advertised */
#define MAX_DRAIN        (128u << 20)

enum {
	OPT_EXPORT_NAME = 1,
	OPT_ABORT = 2,
	OPT_LIST = 3,
	OPT_STARTTLS = 5,
	OPT_INFO = 6,
	OPT_GO = 7,
	OPT_STRUCTURED_REPLY = 8,
	OPT_LIST_META = 9,
	OPT_SET_META = 10,
	OPT_EXTENDED_HEADERS = 11,
};

enum {
	REP_ACK = 1,
	REP_SERVER = 2,
	REP_INFO = 3,
	REP_META_CONTEXT = 4,
	REP_LAST = 4,
};
#define REP_IS_ERROR   0x80000000u
#define REP_UNSUP      (REP_IS_ERROR + 1)
#define REP_INVALID    (REP_IS_ERROR + 3)
#define REP_UNKNOWN    (REP_IS_ERROR + 6)
#define REP_SHUTDOWN   (REP_IS_ERROR + 7)
#define REP_TOO_BIG    (REP_IS_ERROR + 9)
#define REP_EXT_REQD   (REP_IS_ERROR + 10)
#define REP_LAST_ERROR REP_EXT_REQD

enum {
	INFO_EXPORT,
	INFO_NAME,
	INFO_DESCRIPTION,
	INFO_BLOCK_SIZE
};

enum {
	SENDS_FLAGS = 1 << 0,
	SENDS_READ_ONLY = 1 << 1,
	SENDS_TRIM = 1 << 5,
	SENDS_DF = 1 << 7,
};

enum {
	CMD_READ,
	CMD_WRITE,
	CMD_DISC,
	CMD_FLUSH,
	CMD_TRIM,
	CMD_CACHE,
	CMD_WRITE_ZEROES,
	CMD_BLOCK_STATUS,
	CMD_NR
};

enum {
	FLAG_FUA = 1 << 0,
	FLAG_NO_HOLE = 1 << 1,
	FLAG_DF = 1 << 2,
	FLAG_REQ_ONE = 1 << 3,
	FLAG_FAST_ZERO = 1 << 4,
	FLAG_PAYLOAD_LEN = 1 << 5,
};

#define CHUNK_DONE 1u
enum {
	CHUNK_NONE = 0,
	CHUNK_DATA = 1,
	CHUNK_HOLE = 2,
	CHUNK_STATUS = 5,
	CHUNK_STATUS_EXT = 6,
	CHUNK_ERROR = 0x8001,
	CHUNK_ERROR_OFFSET = 0x8002,
};

#define STATUS_HOLE 1u
#define STATUS_ZERO 2u

/* Errors of the wire, a bit each; no other is legal. */
enum {
	MAY_EPERM = 1 << 0,
	MAY_EIO = 1 << 1,
	MAY_ENOMEM = 1 << 2,
	MAY_EINVAL = 1 << 3,
	MAY_ENOSPC = 1 << 4,
	MAY_EOVERFLOW = 1 << 5,
	MAY_ENOTSUP = 1 << 6,
	MAY_ESHUTDOWN = 1 << 7,
	MAY_SUCCEED = 1 << 8,
};

static const struct {
	uint32_t error;
	unsigned bit;
} errors[] = {
	{ 0, MAY_SUCCEED },
	{ 1, MAY_EPERM },
	{ 5, MAY_EIO },
	{ 12, MAY_ENOMEM },
	{ 22, MAY_EINVAL },
	{ 28, MAY_ENOSPC },
	{ 75, MAY_EOVERFLOW },
	{ 95, MAY_ENOTSUP },
	{ 108, MAY_ESHUTDOWN },
};

/* ------------------------------------------------------------ the model */

/* What is known of a byte. */
enum known {
	KNOWN,
	KNOWN_OR_ZERO, /* it was trimmed */
	UNKNOWN,
	SEEN, /* of a read: a chunk has brought it */
};

static bool
all_known(const uint8_t *known, uint64_t len)
{
	return len == 0 ||
	       (known[0] == KNOWN && memcmp(known, known + 1, len - 1) == 0);
}

#define MODEL_PAGE 4096u

/* One disk at a time.  Only what was touched is cleared for the next. */
static uint8_t model_data[ORACLE_MAX_SIZE];
static uint8_t model_known[ORACLE_MAX_SIZE];
static bool model_touched[ORACLE_MAX_SIZE / MODEL_PAGE];

static void
model_touch(uint64_t pos, uint64_t len)
{
	CHECK(pos + len <= ORACLE_MAX_SIZE, "beyond the model");
	for (uint64_t page = pos / MODEL_PAGE; page * MODEL_PAGE < pos + len;
	     page++)
		model_touched[page] = true;
}

static void
model_clear(void)
{
	for (size_t i = 0; i < ORACLE_MAX_SIZE / MODEL_PAGE; i++) {
		if (!model_touched[i])
			continue;
		memset(model_data + i * MODEL_PAGE, 0, MODEL_PAGE);
		memset(model_known + i * MODEL_PAGE, KNOWN, MODEL_PAGE);
		model_touched[i] = false;
	}
}

static void
model_write(uint64_t pos, uint64_t len, const uint8_t *data)
{
	model_touch(pos, len);
	memcpy(model_data + pos, data, len);
	memset(model_known + pos, KNOWN, len);
}

static void
model_zero(uint64_t pos, uint64_t len)
{
	model_touch(pos, len);
	memset(model_data + pos, 0, len);
	memset(model_known + pos, KNOWN, len);
}

/* N141: a hint; and it may shrink to whole blocks. */
static void
model_trim(uint64_t pos, uint64_t len)
{
	model_touch(pos, len);
	for (uint64_t i = pos; i < pos + len; i++)
		if (model_known[i] == KNOWN)
			model_known[i] = KNOWN_OR_ZERO;
}

static void
model_forget(uint64_t pos, uint64_t len)
{
	model_touch(pos, len);
	memset(model_known + pos, UNKNOWN, len);
}

/* -------------------------------------------------------------- requests */

/* Of a BLOCK_STATUS so much is compared with the model. */
#define MAX_STATUS_COMPARED (64u << 10)

struct oracle_request {
	TAILQ_ENTRY(oracle_request) link;
	uint64_t cookie;
	uint64_t offset;
	uint64_t length;
	uint16_t type;
	uint16_t flags;
	unsigned may;      /* MAY_* */
	uint8_t *data;     /* of a READ: what it is to bring, */
	uint8_t *known;    /* and how sure that is */
	uint64_t compared; /* bytes of both */
	uint64_t brought;  /* by chunks */
	unsigned nr_content;
	uint32_t contexts_told; /* bits */
	bool failed;            /* an error chunk came */
};

static void
request_free(struct oracle *o, struct oracle_request *r)
{
	TAILQ_REMOVE(&o->requests, r, link);
	o->nr_requests--;
	free(r->data);
	free(r->known);
	free(r);
}

/* What it must read as is what is there now. */
static void
request_expects(struct oracle *o, struct oracle_request *r, uint64_t len)
{
	r->compared = len;
	r->data = malloc(len + 1);
	r->known = malloc(len + 1);
	CHECK(r->data != NULL && r->known != NULL, "out of memory");
	memcpy(r->data, model_data + r->offset, len);
	memcpy(r->known, model_known + r->offset, len);
	if (o->shutting_down)
		memset(r->known, UNKNOWN, len);
}

/* Flags that are legal (N113 to N115). */
static uint16_t
flags_allowed(const struct oracle *o, uint16_t type)
{
	bool chunks = o->structured || o->extended;

	switch (type) {
	case CMD_READ: return FLAG_FUA | (chunks ? FLAG_DF : 0);
	case CMD_WRITE: return FLAG_FUA | (o->extended ? FLAG_PAYLOAD_LEN : 0);
	case CMD_WRITE_ZEROES: return FLAG_FUA | FLAG_NO_HOLE | FLAG_FAST_ZERO;
	case CMD_BLOCK_STATUS: return FLAG_FUA | FLAG_REQ_ONE;
	default: return FLAG_FUA;
	}
}

static bool
has_range(uint16_t type)
{
	return type == CMD_READ || type == CMD_WRITE || type == CMD_TRIM ||
	       type == CMD_CACHE || type == CMD_WRITE_ZEROES ||
	       type == CMD_BLOCK_STATUS;
}

static bool
changes(uint16_t type)
{
	return type == CMD_WRITE || type == CMD_TRIM ||
	       type == CMD_WRITE_ZEROES;
}

/* The errors that it deserves; 0: it is right. */
static unsigned
faults(const struct oracle *o, const struct oracle_request *r)
{
	const struct oracle_export *e = o->export;
	uint64_t mask = o->agreed ? e->min_block - 1 : 0;
	bool contexts = o->nr_contexts > 0 && o->contexts_of == e;
	unsigned may = 0;

	if (r->type >= CMD_NR || r->type == CMD_DISC)
		return MAY_EINVAL; /* N112, N159 */
	if ((r->flags & ~flags_allowed(o, r->type)) != 0)
		may |= MAY_EINVAL;
	if (e->read_only && changes(r->type))
		may |= MAY_EPERM; /* N118 */
	if (r->type == CMD_TRIM && !e->can_trim)
		may |= MAY_EINVAL; /* N122 */
	if (r->type == CMD_BLOCK_STATUS && (!contexts || r->length == 0))
		may |= MAY_EINVAL; /* N153, N119 */
	if (!has_range(r->type))
		return may;
	if (r->offset > e->size || r->length > e->size - r->offset)
		may |= r->type == CMD_WRITE || r->type == CMD_WRITE_ZEROES
			   ? MAY_ENOSPC
			   : MAY_EINVAL; /* N116, N117 */
	if (((r->offset | r->length) & mask) != 0)
		may |= MAY_EINVAL; /* N88 */
	if ((r->type == CMD_READ || r->type == CMD_WRITE) &&
	    r->length > MAX_PAYLOAD)
		may |= MAY_EINVAL | MAY_EOVERFLOW; /* N90, N177 */
	return may;
}

/* What may come of one that is right. */
static unsigned
outcomes(const struct oracle *o, const struct oracle_request *r)
{
	const struct oracle_export *e = o->export;
	unsigned may = MAY_SUCCEED;

	if (has_range(r->type) && r->length == 0)
		return may | MAY_EINVAL | MAY_ENOSPC; /* N119 */
	if (e->may_fill && changes(r->type))
		may |= MAY_ENOSPC;
	if ((r->flags & FLAG_FAST_ZERO) != 0 && !e->can_zero)
		may = MAY_ENOTSUP; /* N145 */
	return may;
}

/* It changes the model, or is told what to expect of it. */
static void
request_applies(
    struct oracle *o, struct oracle_request *r, const uint8_t *payload)
{
	bool forget = o->shutting_down || (r->may & ~MAY_SUCCEED) != 0;

	if (r->length == 0 || r->may == MAY_ENOTSUP || !has_range(r->type))
		return;
	if (r->type == CMD_READ)
		request_expects(o, r, r->length);
	if (r->type == CMD_BLOCK_STATUS)
		request_expects(o, r,
		    r->length < MAX_STATUS_COMPARED ? r->length
						    : MAX_STATUS_COMPARED);
	if (!o->export->keeps_data || !changes(r->type))
		return;
	if (forget)
		model_forget(r->offset, r->length);
	else if (r->type == CMD_WRITE)
		model_write(r->offset, r->length, payload);
	else if (r->type == CMD_WRITE_ZEROES)
		model_zero(r->offset, r->length);
	else
		model_trim(r->offset, r->length);
}

static void
request_add(
    struct oracle *o, const struct oracle_request *said, const uint8_t *payload)
{
	struct oracle_request *r = malloc(sizeof(*r));

	CHECK(r != NULL, "out of memory");
	*r = *said;
	r->may = faults(o, r);
	if (r->may == 0) {
		r->may = outcomes(o, r);
		request_applies(o, r, payload);
	}
	TAILQ_INSERT_TAIL(&o->requests, r, link);
	o->nr_requests++;
}

/* Bytes that follow a header (N111, N172, N173). */
static uint64_t
payload_of(struct oracle *o, const struct oracle_request *r)
{
	bool flagged = o->extended && (r->flags & FLAG_PAYLOAD_LEN) != 0;

	/* what of these a server does is left to it */
	if (flagged && r->type != CMD_WRITE)
		o->vague = true;
	if (o->extended && r->type == CMD_WRITE && !flagged)
		o->vague = true;
	return r->type == CMD_WRITE || flagged ? r->length : 0;
}

/* The next request that was sent whole.  False: there is none. */
static bool
request_sent(struct oracle *o)
{
	unsigned size = o->extended ? 32 : 28;
	const uint8_t *p = bytes_at(&o->sent);
	struct oracle_request r = { 0 };
	uint64_t payload;

	if (bytes_left(&o->sent) < size || o->phase == ORACLE_OVER || o->vague)
		return false;
	if (be(p, 4) != (o->extended ? EXT_MAGIC : REQUEST_MAGIC)) {
		o->must_end = true; /* N108 */
		o->phase = ORACLE_OVER;
		return false;
	}
	r.flags = (uint16_t)be(p + 4, 2);
	r.type = (uint16_t)be(p + 6, 2);
	r.cookie = be(p + 8, 8);
	r.offset = be(p + 16, 8);
	r.length = be(p + 24, size - 24);
	payload = payload_of(o, &r);
	if (r.type == CMD_DISC && !o->vague) {
		o->phase = ORACLE_OVER; /* N156 to N158 */
		return false;
	}
	if (o->vague || bytes_left(&o->sent) - size < payload)
		return false;
	o->sent.pos += size + payload;
	request_add(o, &r, p + size);
	return true;
}

/* ------------------------------------------------------------ handshake */

/* The option that was sent whole and has not been answered yet. */
struct option {
	uint32_t nr, len;
	const uint8_t *data;
};

static struct option
option_now(const struct oracle *o)
{
	const uint8_t *p = bytes_at(&o->sent);

	return (struct option){ (uint32_t)be(p + 8, 4), (uint32_t)be(p + 12, 4),
		p + 16 };
}

static const struct oracle_export *
export_find(const struct oracle *o, const uint8_t *name, size_t len)
{
	if (len == 0)
		return o->nr_exports > 0 ? &o->exports[0] : NULL;
	for (unsigned i = 0; i < o->nr_exports && len <= MAX_STRING; i++)
		if (strlen(o->exports[i].name) == len &&
		    memcmp(o->exports[i].name, name, len) == 0)
			return &o->exports[i];
	return NULL;
}

/* What INFO and GO ask for (N59). */
struct info {
	bool well_formed;
	bool wants_block_size;
	const struct oracle_export *export;
};

static struct info
info_now(const struct oracle *o)
{
	struct option opt = option_now(o);
	struct info info = { 0 };
	uint64_t name_len, count;
	const uint8_t *p = opt.data;

	if (opt.len < 6)
		return info;
	name_len = be(p, 4);
	if (name_len > opt.len - 6 || name_len > MAX_STRING ||
	    memchr(p + 4, '\0', name_len) != NULL)
		return info;
	info.export = export_find(o, p + 4, name_len);
	p += 4 + name_len;
	count = be(p, 2);
	info.well_formed = opt.len == 4 + name_len + 2 + 2 * count;
	for (uint64_t i = 0; info.well_formed && i < count; i++)
		if (be(p + 2 + 2 * i, 2) == INFO_BLOCK_SIZE)
			info.wants_block_size = true;
	return info;
}

/* A client's flags, an option or a request, as far as they have come whole. */
static bool
look_at_sent(struct oracle *o)
{
	const uint8_t *p = bytes_at(&o->sent);

	switch (o->phase) {
	case ORACLE_OVER: return false;
	case ORACLE_FLAGS:
		if (bytes_left(&o->sent) < 4)
			return false;
		o->must_end = (be(p, 4) & ~UINT64_C(3)) != 0; /* N4 */
		o->no_zeroes = (be(p, 4) & 2) != 0;
		o->sent.pos += 4;
		o->phase = o->must_end ? ORACLE_OVER : ORACLE_OPTIONS;
		return true;
	case ORACLE_OPTIONS:
		if (o->in_option || bytes_left(&o->sent) < 16)
			return false;
		if (be(p, 8) != OPTION_MAGIC) {
			o->must_end = true; /* N12 */
			o->phase = ORACLE_OVER;
			return false;
		}
		if (bytes_left(&o->sent) - 16 < be(p + 12, 4))
			return false;
		o->in_option = true;
		o->nr_options++;
		o->option_nr = (uint32_t)be(p + 8, 4);
		o->nr_infos = 0;
		o->nr_listed = 0;
		if (o->option_nr == OPT_SET_META)
			o->nr_contexts = 0; /* N102, also when it fails */
		return true;
	case ORACLE_TRANSMISSION: return request_sent(o);
	}
	return false;
}

/* It is answered. */
static void
option_end(struct oracle *o, enum oracle_phase phase)
{
	o->sent.pos += 16 + option_now(o).len;
	o->in_option = false;
	o->phase = phase;
}

static uint16_t
flags_wanted(const struct oracle *o, const struct oracle_export *e)
{
	return (uint16_t)(SENDS_FLAGS | (e->read_only ? SENDS_READ_ONLY : 0) |
			  (e->can_trim ? SENDS_TRIM : 0) |
			  (o->structured || o->extended ? SENDS_DF : 0));
}

/* Of the transmission flags those that we know of (N79). */
static void
check_export(const struct oracle *o, const struct oracle_export *e,
    uint64_t size, uint64_t flags)
{
	unsigned known = SENDS_FLAGS | SENDS_READ_ONLY | SENDS_TRIM | SENDS_DF;

	CHECK(e != NULL, "an export that is not there");
	CHECK(size == e->size, "size %llu", (unsigned long long)size);
	CHECK((flags & known) == flags_wanted(o, e), "flags 0x%llx",
	    (unsigned long long)flags);
}

static void
begin_transmission(struct oracle *o, const struct oracle_export *e, bool agreed)
{
	o->export = e;
	o->agreed = agreed;
	option_end(o, ORACLE_TRANSMISSION);
}

/* What an EXPORT_NAME is answered with has no header (N24). */
static bool
take_export_name(struct oracle *o)
{
	static const uint8_t zeroes[124];
	const uint8_t *p = bytes_at(&o->got);
	struct option opt = option_now(o);
	const struct oracle_export *e = export_find(o, opt.data, opt.len);
	size_t len = o->no_zeroes ? 10 : 10 + sizeof(zeroes);

	CHECK(e != NULL, "an export of an unknown name");
	if (bytes_left(&o->got) < len)
		return false;
	check_export(o, e, be(p, 8), be(p + 8, 2));
	CHECK(o->no_zeroes || memcmp(p + 10, zeroes, sizeof(zeroes)) == 0,
	    "bytes that are to be zeroes");
	o->got.pos += len;
	begin_transmission(o, e, false);
	return true;
}

static bool
text_is_utf8(const uint8_t *p, size_t len)
{
	static const struct {
		uint8_t mask, bits;
		unsigned tail;
	} firsts[] = {
		{ 0x80, 0x00, 0 },
		{ 0xe0, 0xc0, 1 },
		{ 0xf0, 0xe0, 2 },
		{ 0xf8, 0xf0, 3 },
	};
	const uint8_t *end = p + len;

	while (p < end) {
		unsigned i = 0;

		while (i < 4 && (*p & firsts[i].mask) != firsts[i].bits)
			i++;
		if (i == 4 || (size_t)(end - p) <= firsts[i].tail)
			return false;
		p++;
		for (unsigned n = firsts[i].tail; n > 0; n--)
			if ((*p++ & 0xc0) != 0x80)
				return false;
	}
	return true;
}

static void
check_text(const uint8_t *p, uint64_t len)
{
	CHECK(len <= MAX_STRING, "a string of %llu bytes",
	    (unsigned long long)len);
	CHECK(memchr(p, '\0', len) == NULL, "a string with a NUL");
	CHECK(text_is_utf8(p, len), "a string that is not UTF-8");
}

static void
take_server(struct oracle *o, const uint8_t *p, uint32_t len)
{
	uint64_t name_len;

	CHECK(o->option_nr == OPT_LIST, "SERVER for option %u", o->option_nr);
	CHECK(len >= 4, "SERVER of %u bytes", len);
	name_len = be(p, 4);
	CHECK(name_len <= len - 4, "a name longer than the reply");
	check_text(p + 4, name_len);
	check_text(p + 4 + name_len, len - 4 - name_len);
	o->nr_listed++;
}

static void
take_info(struct oracle *o, const uint8_t *p, uint32_t len)
{
	const struct oracle_export *e = info_now(o).export;
	uint64_t min, preferred, max;

	CHECK(o->option_nr == OPT_INFO || o->option_nr == OPT_GO,
	    "INFO for option %u", o->option_nr);
	CHECK(len >= 2, "INFO of %u bytes", len);
	switch (be(p, 2)) {
	case INFO_EXPORT:
		CHECK(len == 12, "INFO_EXPORT of %u bytes", len);
		check_export(o, e, be(p + 2, 8), be(p + 10, 2));
		o->nr_infos++;
		return;
	case INFO_NAME:
	case INFO_DESCRIPTION: check_text(p + 2, len - 2); return;
	case INFO_BLOCK_SIZE:
		CHECK(len == 14, "INFO_BLOCK_SIZE of %u bytes", len);
		min = be(p + 2, 4);
		preferred = be(p + 6, 4);
		max = be(p + 10, 4);
		CHECK(min == e->min_block, "minimum %u", (unsigned)min);
		CHECK(preferred >= min && preferred >= 512 &&
			  (preferred & (preferred - 1)) == 0,
		    "preferred %u", (unsigned)preferred); /* N83 */
		CHECK(max >= preferred && max >= 1u << 20, "maximum %u",
		    (unsigned)max); /* N84 */
		return;
	default: CHECK(false, "INFO of type %u", (unsigned)be(p, 2));
	}
}

static void
take_context(struct oracle *o, const uint8_t *p, uint32_t len)
{
	uint64_t id;

	CHECK(o->option_nr == OPT_LIST_META || o->option_nr == OPT_SET_META,
	    "META_CONTEXT for option %u", o->option_nr);
	CHECK(len >= 4, "META_CONTEXT of %u bytes", len);
	check_text(p + 4, len - 4);
	id = be(p, 4);
	if (o->option_nr == OPT_LIST_META)
		return;
	for (unsigned i = 0; i < o->nr_contexts; i++)
		CHECK(o->context[i] != id, "id %llu again",
		    (unsigned long long)id); /* N100 */
	CHECK(o->nr_contexts < ORACLE_MAX_CONTEXTS, "too many contexts");
	o->context[o->nr_contexts++] = (uint32_t)id;
}

/* The name in a SET_META_CONTEXT that was accepted. */
static const struct oracle_export *
contexts_export(const struct oracle *o)
{
	struct option opt = option_now(o);
	uint64_t name_len;

	CHECK(opt.len >= 8, "a SET_META_CONTEXT of %u bytes", opt.len);
	name_len = be(opt.data, 4);
	CHECK(name_len <= opt.len - 8, "a name longer than the option");
	return export_find(o, opt.data + 4, name_len);
}

static void
take_ack(struct oracle *o)
{
	struct option opt = option_now(o);
	struct info info;

	switch (o->option_nr) {
	case OPT_ABORT: option_end(o, ORACLE_OVER); return;
	case OPT_LIST:
		CHECK(opt.len == 0, "a LIST with data");
		CHECK(o->nr_listed == o->nr_exports, "%u of %u exports listed",
		    o->nr_listed, o->nr_exports);
		break;
	case OPT_INFO:
	case OPT_GO:
		info = info_now(o);
		CHECK(info.well_formed, "an option that is malformed");
		CHECK(info.export != NULL, "an export that is unknown");
		CHECK(o->nr_infos == 1, "%u INFO_EXPORT", o->nr_infos);
		if (o->option_nr == OPT_GO) {
			begin_transmission(
			    o, info.export, info.wants_block_size);
			return;
		}
		break;
	case OPT_STRUCTURED_REPLY: o->structured = true; break;
	case OPT_EXTENDED_HEADERS: o->extended = true; break;
	case OPT_LIST_META: break;
	case OPT_SET_META: o->contexts_of = contexts_export(o); break;
	default: CHECK(false, "ACK to option %u", o->option_nr);
	}
	option_end(o, ORACLE_OPTIONS);
}

/* Is the refusal one that the option deserves? */
static void
take_refusal(struct oracle *o, uint32_t type)
{
	struct option opt = option_now(o);
	struct info info;

	CHECK(type <= REP_LAST_ERROR, "error 0x%x", type);
	CHECK(o->shutting_down || type != REP_SHUTDOWN, "SHUTDOWN");
	if (o->option_nr == OPT_SET_META)
		o->nr_contexts = 0;
	if (type == REP_SHUTDOWN) {
		option_end(o, ORACLE_OPTIONS);
		return;
	}
	switch (o->option_nr) {
	case OPT_ABORT: CHECK(false, "ABORT refused"); break;
	case OPT_LIST: CHECK(opt.len > 0, "LIST refused"); break;
	case OPT_INFO:
	case OPT_GO:
		if (opt.len > MAX_OPTION) {
			CHECK(type == REP_TOO_BIG, "error 0x%x", type);
			break;
		}
		info = info_now(o);
		CHECK(!info.well_formed || info.export == NULL,
		    "error 0x%x for a good option", type);
		CHECK(type == (info.well_formed ? REP_UNKNOWN : REP_INVALID),
		    "error 0x%x", type);
		break;
	case OPT_STARTTLS:
	case OPT_STRUCTURED_REPLY:
	case OPT_LIST_META:
	case OPT_SET_META:
	case OPT_EXTENDED_HEADERS: break;
	default: CHECK(type == REP_UNSUP, "error 0x%x", type); /* N14 */
	}
	option_end(o, ORACLE_OPTIONS);
}

/* N13, N17 */
static bool
take_option_reply(struct oracle *o)
{
	const uint8_t *p = bytes_at(&o->got);
	uint32_t type, len;

	if (bytes_left(&o->got) < 20)
		return false;
	CHECK(be(p, 8) == REPLY_MAGIC, "no option reply");
	CHECK(be(p + 8, 4) == o->option_nr, "a reply to option %u, not %u",
	    (unsigned)be(p + 8, 4), o->option_nr);
	type = (uint32_t)be(p + 12, 4);
	len = (uint32_t)be(p + 16, 4);
	CHECK(len <= 2 * MAX_STRING + 4, "a reply of %u bytes", len);
	if (bytes_left(&o->got) - 20 < len)
		return false;
	p += 20;
	o->got.pos += 20 + len;
	switch (type) {
	case REP_ACK:
		CHECK(len == 0, "ACK of %u bytes", len);
		take_ack(o);
		return true;
	case REP_SERVER: take_server(o, p, len); return true;
	case REP_INFO: take_info(o, p, len); return true;
	case REP_META_CONTEXT: take_context(o, p, len); return true;
	default: break;
	}
	CHECK((type & REP_IS_ERROR) != 0, "a reply of type %u", type);
	check_text(p, len);
	take_refusal(o, type);
	return true;
}

static bool
take_greeting(struct oracle *o)
{
	const uint8_t *p = bytes_at(&o->got);

	if (bytes_left(&o->got) < 18)
		return false;
	CHECK(be(p, 8) == GREETING_MAGIC && be(p + 8, 8) == OPTION_MAGIC &&
		  be(p + 16, 2) == 3,
	    "the greeting"); /* N1 to N3 */
	o->got.pos += 18;
	o->greeted = true;
	return true;
}

/* -------------------------------------------------------------- replies */

/*
 * The request that is answered: the oldest of the cookie.  Whoever has several
 * in flight, and what they are answered with differs, is not understood any
 * more.
 */
static struct oracle_request *
request_find(struct oracle *o, uint64_t cookie)
{
	struct oracle_request *r, *found = NULL;

	TAILQ_FOREACH(r, &o->requests, link) {
		if (r->cookie != cookie)
			continue;
		if (found == NULL)
			found = r;
		else if (r->type != found->type || r->may != found->may ||
			 r->data != NULL)
			o->vague = true;
	}
	CHECK(found != NULL, "a reply to cookie 0x%llx, which nobody awaits",
	    (unsigned long long)cookie);
	return found;
}

static void
check_error(
    const struct oracle *o, const struct oracle_request *r, uint32_t error)
{
	unsigned may = r->may, i = 0;

	if (o->shutting_down)
		may |= MAY_ESHUTDOWN; /* N162 */
	if (o->trim_may_fail && r->type == CMD_TRIM)
		may |= MAY_EINVAL;
	while (i < sizeof(errors) / sizeof(*errors) && errors[i].error != error)
		i++;
	CHECK(i < sizeof(errors) / sizeof(*errors), "error %u is none", error);
	CHECK((may & errors[i].bit) != 0,
	    "command %u, flags 0x%x, %llu bytes at %llu: error %u, allowed "
	    "0x%x",
	    r->type, r->flags, (unsigned long long)r->length,
	    (unsigned long long)r->offset, error, may);
}

/* Data at `at` of a request; NULL: zeros. */
static void
check_data(
    struct oracle_request *r, uint64_t at, const uint8_t *data, uint64_t len)
{
	if (data != NULL && all_known(r->known + at, len) &&
	    memcmp(data, r->data + at, len) == 0) { /* as it nearly always is */
		memset(r->known + at, SEEN, len);
		return;
	}
	for (uint64_t i = at; i < at + len; i++) {
		uint8_t is = data != NULL ? data[i - at] : 0;

		CHECK(r->known[i] != SEEN, "byte %llu twice",
		    (unsigned long long)i);
		CHECK(is == r->data[i] || r->known[i] == UNKNOWN ||
			  (is == 0 && r->known[i] == KNOWN_OR_ZERO),
		    "byte %llu of %llu at %llu is 0x%02x, not 0x%02x",
		    (unsigned long long)i, (unsigned long long)r->length,
		    (unsigned long long)r->offset, is, r->data[i]);
		r->known[i] = SEEN;
	}
}

static void
request_end(struct oracle *o, struct oracle_request *r)
{
	o->nr_answered++;
	request_free(o, r);
}

static bool
take_simple(struct oracle *o)
{
	const uint8_t *p = bytes_at(&o->got);
	struct oracle_request *r;
	uint64_t len = 0;
	uint32_t error;

	if (bytes_left(&o->got) < 16)
		return false;
	error = (uint32_t)be(p + 4, 4);
	r = request_find(o, be(p + 8, 8));
	if (o->vague)
		return false;
	CHECK(!o->extended, "a simple reply to extended headers"); /* N170 */
	CHECK(!o->structured || r->type != CMD_READ,
	    "a simple reply to a READ"); /* N126 */
	CHECK(r->nr_content == 0 && !r->failed, "a simple reply after chunks");
	check_error(o, r, error);
	if (r->type == CMD_READ && error == 0)
		len = r->length; /* N123, N124 */
	if (bytes_left(&o->got) - 16 < len)
		return false;
	if (len > 0)
		check_data(r, 0, p + 16, len);
	o->got.pos += 16 + len;
	request_end(o, r);
	return true;
}

/* ---------------------------------------------------------------- chunks */

struct chunk {
	uint16_t flags, type;
	uint64_t length;
	const uint8_t *data;
};

/* N128, N129, N131 */
static void
take_content(struct oracle_request *r, const struct chunk *c)
{
	bool hole = c->type == CHUNK_HOLE;
	uint64_t at, len;

	CHECK(r->type == CMD_READ, "data for command %u", r->type);
	CHECK(hole ? c->length == 12 : c->length >= 9, "%llu bytes",
	    (unsigned long long)c->length);
	len = hole ? be(c->data + 8, 4) : c->length - 8;
	at = be(c->data, 8) - r->offset;
	CHECK(len > 0, "an empty hole");
	CHECK(be(c->data, 8) >= r->offset && at <= r->length &&
		  len <= r->length - at,
	    "content out of range");
	CHECK(r->data != NULL, "content for a request that is wrong");
	check_data(r, at, hole ? NULL : c->data + 8, len);
	r->brought += len;
	r->nr_content++;
	if (r->flags & FLAG_DF)
		CHECK(!hole && r->nr_content == 1, "a fragment despite DF");
}

/* N133 */
static void
take_error(
    const struct oracle *o, struct oracle_request *r, const struct chunk *c)
{
	bool has_offset = c->type == CHUNK_ERROR_OFFSET;
	uint64_t text_len, offset, rest = has_offset ? 14 : 6;

	CHECK(c->length >= rest, "an error of %llu bytes",
	    (unsigned long long)c->length);
	text_len = be(c->data + 4, 2);
	CHECK(text_len == c->length - rest, "its text has %llu bytes",
	    (unsigned long long)text_len);
	check_text(c->data + 6, text_len);
	CHECK(be(c->data, 4) != 0, "an error of 0");
	CHECK(!r->failed, "an error twice");
	check_error(o, r, (uint32_t)be(c->data, 4));
	r->failed = true;
	if (!has_offset)
		return;
	offset = be(c->data + 6 + text_len, 8);
	CHECK(offset >= r->offset && offset - r->offset < r->length,
	    "an error at %llu", (unsigned long long)offset);
}

/* What is said to be zeros has to read as such (N155). */
static void
check_zeros(const struct oracle_request *r, uint64_t at, uint64_t len)
{
	for (uint64_t i = at; i < at + len && i < r->compared; i++)
		CHECK(r->known[i] != KNOWN || r->data[i] == 0,
		    "byte %llu is 0x%02x, not a zero", (unsigned long long)i,
		    r->data[i]);
}

/* N146 to N151, N174 */
static void
check_extents(const struct oracle *o, const struct oracle_request *r,
    const uint8_t *p, uint64_t nr)
{
	unsigned half = o->extended ? 8 : 4;
	uint64_t end = o->export->size - r->offset, at = 0, len, status;
	uint64_t last = UINT64_MAX;

	CHECK(nr > 0, "no extent");
	CHECK((r->flags & FLAG_REQ_ONE) == 0 || nr == 1, "%llu extents",
	    (unsigned long long)nr);
	for (uint64_t i = 0; i < nr; i++, p += 2 * half) {
		len = be(p, half);
		status = be(p + half, half);
		CHECK(at < r->length, "an extent behind the request");
		CHECK(len > 0 && len <= end - at, "an extent of %llu bytes",
		    (unsigned long long)len);
		CHECK((r->flags & FLAG_REQ_ONE) == 0 || len <= r->length,
		    "more than was asked for");
		CHECK((status & ~(uint64_t)(STATUS_HOLE | STATUS_ZERO)) == 0,
		    "status 0x%llx", (unsigned long long)status);
		CHECK(status != last, "twice the same status in a row");
		last = status;
		if (status & STATUS_ZERO)
			check_zeros(r, at, len);
		at += len;
	}
}

static void
take_status(
    const struct oracle *o, struct oracle_request *r, const struct chunk *c)
{
	unsigned head = o->extended ? 8 : 4, each = o->extended ? 16 : 8, i = 0;

	CHECK(r->type == CMD_BLOCK_STATUS, "status for command %u", r->type);
	CHECK(c->type == (o->extended ? CHUNK_STATUS_EXT : CHUNK_STATUS),
	    "chunk type %u", c->type);
	CHECK(c->length > head && (c->length - head) % each == 0,
	    "status of %llu bytes", (unsigned long long)c->length);
	while (i < o->nr_contexts && o->context[i] != be(c->data, 4))
		i++;
	CHECK(i < o->nr_contexts, "context %u", (unsigned)be(c->data, 4));
	CHECK((r->contexts_told >> i & 1) == 0, "a context twice");
	CHECK(r->data != NULL, "status for a request that is wrong");
	r->contexts_told |= 1u << i;
	CHECK(!o->extended || be(c->data + 4, 4) == (c->length - head) / each,
	    "count %u", (unsigned)be(c->data + 4, 4));
	check_extents(o, r, c->data + head, (c->length - head) / each);
}

/* N127: the last chunk; all must be there. */
static void
take_done(struct oracle *o, struct oracle_request *r)
{
	uint32_t all = (uint32_t)((UINT64_C(1) << o->nr_contexts) - 1);

	if (!r->failed) {
		check_error(o, r, 0);
		CHECK(r->type != CMD_READ || r->brought == r->length,
		    "%llu of %llu bytes", (unsigned long long)r->brought,
		    (unsigned long long)r->length);
		CHECK(r->type != CMD_BLOCK_STATUS || r->contexts_told == all,
		    "contexts 0x%x of 0x%x", r->contexts_told, all);
	}
	request_end(o, r);
}

static void
take_chunk_of(struct oracle *o, struct oracle_request *r, struct chunk *c)
{
	switch (c->type) {
	case CHUNK_NONE:
		CHECK(c->length == 0 && (c->flags & CHUNK_DONE) != 0,
		    "NONE with data, or not the last");
		break;
	case CHUNK_DATA:
	case CHUNK_HOLE: take_content(r, c); break;
	case CHUNK_STATUS:
	case CHUNK_STATUS_EXT: take_status(o, r, c); break;
	case CHUNK_ERROR:
	case CHUNK_ERROR_OFFSET: take_error(o, r, c); break;
	default: CHECK(false, "a chunk of type %u", c->type);
	}
	if (c->flags & CHUNK_DONE)
		take_done(o, r);
}

static bool
take_chunk(struct oracle *o)
{
	const uint8_t *p = bytes_at(&o->got);
	unsigned size = o->extended ? 32 : 20;
	struct oracle_request *r;
	struct chunk c;

	if (bytes_left(&o->got) < size)
		return false;
	CHECK(o->extended || o->structured, "a chunk that nobody agreed on");
	c.flags = (uint16_t)be(p + 4, 2);
	c.type = (uint16_t)be(p + 6, 2);
	c.length = o->extended ? be(p + 24, 8) : be(p + 16, 4);
	c.data = p + size;
	CHECK((c.flags & ~CHUNK_DONE) == 0, "chunk flags 0x%x", c.flags);
	CHECK(c.length <= MAX_PAYLOAD + 8, "a chunk of %llu bytes",
	    (unsigned long long)c.length); /* N135, N92 */
	if (bytes_left(&o->got) - size < c.length)
		return false;
	r = request_find(o, be(p + 8, 8));
	if (o->vague)
		return false;
	CHECK(!o->extended || be(p + 16, 8) == r->offset,
	    "the offset of a chunk"); /* N171 */
	o->got.pos += size + c.length;
	take_chunk_of(o, r, &c);
	return true;
}

static bool
take_reply(struct oracle *o)
{
	const uint8_t *p = bytes_at(&o->got);

	if (bytes_left(&o->got) < 4)
		return false;
	switch (be(p, 4)) {
	case SIMPLE_MAGIC: return take_simple(o);
	case CHUNK_MAGIC:
		CHECK(!o->extended, "a chunk with a short header");
		return take_chunk(o);
	case EXT_CHUNK_MAGIC:
		CHECK(o->extended, "a chunk with a long header");
		return take_chunk(o);
	default: CHECK(false, "reply magic 0x%08x", (unsigned)be(p, 4));
	}
	return false;
}

/* --------------------------------------------------------------- streams */

static bool
look_at_got(struct oracle *o)
{
	if (bytes_left(&o->got) == 0)
		return false;
	if (!o->greeted)
		return take_greeting(o);
	switch (o->phase) {
	case ORACLE_FLAGS: break;
	case ORACLE_OPTIONS:
		if (!o->in_option)
			break;
		if (o->option_nr == OPT_EXPORT_NAME)
			return take_export_name(o);
		return take_option_reply(o);
	case ORACLE_TRANSMISSION: return take_reply(o);
	case ORACLE_OVER:
		if (o->export != NULL)
			return take_reply(o);
		break;
	}
	CHECK(false, "bytes that nobody asked for");
	return false;
}

/* What came decides on how to read what was sent, and the other way round. */
static void
look(struct oracle *o)
{
	do
		while (!o->vague && look_at_sent(o))
			;
	while (!o->vague && look_at_got(o));
	if (o->vague) {
		o->sent.pos = o->sent.len;
		o->got.pos = o->got.len;
	}
	bytes_trim(&o->sent);
	bytes_trim(&o->got);
}

void
oracle_sent(struct oracle *o, const uint8_t *data, size_t len)
{
	bytes_add(&o->sent, data, len);
	look(o);
}

void
oracle_got(struct oracle *o, const void *data, size_t len)
{
	fuzz_saw(data, len);
	bytes_add(&o->got, data, len);
	look(o);
}

void
oracle_init(struct oracle *o, const struct oracle_export *exports, unsigned nr)
{
	*o = (struct oracle){ .exports = exports, .nr_exports = nr };
	TAILQ_INIT(&o->requests);
}

/* Does an option that was sent, with `left` bytes, make a server hang up? */
static bool
option_may_end(const struct oracle *o, const uint8_t *p, uint64_t left)
{
	uint64_t len = be(p + 12, 4);

	if (be(p, 8) != OPTION_MAGIC)
		return true; /* N12 */
	if (be(p + 8, 4) != OPT_EXPORT_NAME)
		return len > MAX_OPTION_DRAIN; /* N16 */
	if (len > MAX_STRING)
		return true; /* N27 */
	return left - 16 >= len &&
	       (o->shutting_down || export_find(o, p + 16, len) == NULL);
}

/* Who hangs up does not send what it has, so an answer or two may be missing.
 */
static bool
options_may_end(const struct oracle *o)
{
	const uint8_t *p = bytes_at(&o->sent);
	uint64_t left = bytes_left(&o->sent), len;
	unsigned nr = o->nr_options - o->in_option;

	for (; left >= 16; p += len, left -= len) {
		if (++nr > MAX_OPTIONS || option_may_end(o, p, left))
			return true;
		len = 16 + be(p + 12, 4);
		if (len > left)
			return false;
		if (be(p + 8, 4) == OPT_GO || be(p + 8, 4) == OPT_EXPORT_NAME)
			return true; /* did it begin transmission? */
	}
	return false;
}

bool
oracle_may_end(const struct oracle *o)
{
	const uint8_t *p = bytes_at(&o->sent);

	if (o->must_end || o->vague)
		return true;
	if (o->phase == ORACLE_OPTIONS)
		return options_may_end(o);
	if (o->phase == ORACLE_TRANSMISSION &&
	    bytes_left(&o->sent) >= (o->extended ? 32 : 28))
		return be(p + 6, 2) == CMD_WRITE &&
		       be(p + 24, o->extended ? 8 : 4) > MAX_DRAIN; /* N89 */
	return false;
}

void
oracle_finish(const struct oracle *o)
{
	const struct oracle_request *r = TAILQ_FIRST(&o->requests);

	if (o->vague)
		return;
	CHECK(r == NULL,
	    "%u requests have no answer; the first is command %u, %llu bytes "
	    "at %llu",
	    o->nr_requests, r->type, (unsigned long long)r->length,
	    (unsigned long long)r->offset);
	CHECK(bytes_left(&o->got) == 0, "half an answer");
	CHECK(!o->in_option, "option %u has no answer", o->option_nr);
}

void
oracle_fini(struct oracle *o)
{
	struct oracle_request *r;

	while ((r = TAILQ_FIRST(&o->requests)) != NULL)
		request_free(o, r);
	bytes_free(&o->sent);
	bytes_free(&o->got);
	model_clear();
}
