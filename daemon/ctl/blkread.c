/* SPDX-License-Identifier: MIT */
/*
 * A file that blktrace wrote: records in the byte order of its host, which
 * the magic tells.  Only Q events of the file system's I/O are I/Os as they
 * were submitted; what the device did are D and C.  What a record says of its
 * length is only believed as far as there are bytes.
 */
#include "ctl/blktrace.h"
#include "ctl/iolog.h"

#include <errno.h>
#include <string.h>

enum {
	ACTION_QUEUE = 1,
	ACTION_ISSUE = TRACE_ISSUE,
	ACTION_COMPLETE = TRACE_COMPLETE,
};

struct reader {
	struct iolog *log;
	FILE *file;
	FILE *errors;
	struct iolog_io io; /* of the record at hand */
};

static int
complain(const struct reader *r, const char *what)
{
	char where[CTL_MAX_ERROR];

	iolog_where(r->log, &r->io, where, sizeof(where));
	fprintf(r->errors, "%s: %s\n", where, what);
	return -EINVAL;
}

/* There are fewer bytes than there should be. */
static int
cut_off(const struct reader *r, const char *what, size_t have, size_t want)
{
	char err[CTL_MAX_ERROR];

	if (ferror(r->file))
		return complain(r, strerror(errno));
	snprintf(err, sizeof(err), "cut off: %zu bytes of the %zu of its %s",
	    have, want, what);
	return complain(r, err);
}

static void
swap(struct blktrace_record *rec)
{
	rec->magic = __builtin_bswap32(rec->magic);
	rec->time = __builtin_bswap64(rec->time);
	rec->sector = __builtin_bswap64(rec->sector);
	rec->bytes = __builtin_bswap32(rec->bytes);
	rec->action = __builtin_bswap32(rec->action);
	rec->pid = __builtin_bswap32(rec->pid);
	rec->device = __builtin_bswap32(rec->device);
	rec->pdu_len = __builtin_bswap16(rec->pdu_len);
}

static int
check_magic(const struct reader *r, struct blktrace_record *rec)
{
	uint32_t wanted = BLKTRACE_MAGIC | BLKTRACE_VERSION;
	char err[CTL_MAX_ERROR];

	if (rec->magic == __builtin_bswap32(wanted))
		swap(rec);
	if (rec->magic == wanted)
		return 0;
	snprintf(err, sizeof(err),
	    "magic: 0x%08x: allowed: 0x%08x, in either byte order", rec->magic,
	    wanted);
	return complain(r, err);
}

/* 1: there is one; 0: the file ends here; or -errno. */
static int
next_record(struct reader *r, struct blktrace_record *rec)
{
	size_t n = fread(rec, 1, sizeof(*rec), r->file);
	int ret;

	r->io.line++;
	if (n == 0 && !ferror(r->file))
		return 0;
	if (n < sizeof(*rec))
		return cut_off(r, "header", n, sizeof(*rec));
	ret = check_magic(r, rec);
	return ret == 0 ? 1 : ret;
}

static int
skip_payload(struct reader *r, size_t len)
{
	char buf[UINT16_MAX];
	size_t n = fread(buf, 1, len, r->file);

	return n == len ? 0 : cut_off(r, "payload", n, len);
}

/* What moves no data is a flush, or no I/O at all. */
static bool
is_io(const struct iolog *log, const struct blktrace_record *rec)
{
	uint32_t code = BLKTRACE_CODE(rec->action) & ~BLKTRACE_CGROUP;

	if ((rec->action & (BLKTRACE_NOTIFY | BLKTRACE_PC)) != 0)
		return false;
	if (log->service && code != ACTION_ISSUE && code != ACTION_COMPLETE)
		return false;
	if (!log->service && code != ACTION_QUEUE)
		return false;
	return rec->bytes > 0 || (rec->action & BLKTRACE_FLUSH) != 0;
}

static enum req_op
op_of(const struct blktrace_record *rec)
{
	if (rec->bytes == 0)
		return REQ_OP_FLUSH;
	if ((rec->action & BLKTRACE_DISCARD) != 0)
		return REQ_OP_DISCARD;
	return (rec->action & BLKTRACE_WRITE) != 0 ? REQ_OP_WRITE : REQ_OP_READ;
}

static uint16_t
flags_of(const struct blktrace_record *rec)
{
	uint16_t flags = 0;

	if ((rec->action & BLKTRACE_SYNC) != 0)
		flags |= REQ_SYNC;
	if (op_of(rec) != REQ_OP_WRITE)
		return flags;
	if ((rec->action & BLKTRACE_FLUSH) != 0)
		flags |= REQ_PREFLUSH;
	if ((rec->action & (uint32_t)BLKTRACE_FUA) != 0)
		flags |= REQ_FUA;
	return flags;
}

static int
take_io(struct reader *r, const struct blktrace_record *rec)
{
	char err[CTL_MAX_ERROR];
	int ret;

	if (rec->sector > UINT64_MAX >> SECTOR_SHIFT)
		return complain(r, "sector: allowed: below 2^55");
	r->io.ns = rec->time;
	r->io.pos = rec->bytes > 0 ? rec->sector << SECTOR_SHIFT : 0;
	r->io.bytes = rec->bytes;
	r->io.task = rec->pid;
	r->io.device = rec->device;
	r->io.op = (uint8_t)op_of(rec);
	r->io.flags = flags_of(rec);
	r->io.ended =
	    (BLKTRACE_CODE(rec->action) & ~BLKTRACE_CGROUP) == ACTION_COMPLETE;
	ret = iolog_add(r->log, &r->io, err, sizeof(err));
	return ret == 0 ? 0 : complain(r, err);
}

int
blktrace_read(struct iolog *log, FILE *f, unsigned file, FILE *errors)
{
	struct reader r = { .log = log, .file = f, .errors = errors };
	struct blktrace_record rec;
	int ret;

	r.io.file = (uint16_t)file;
	while ((ret = next_record(&r, &rec)) > 0) {
		ret = skip_payload(&r, rec.pdu_len);
		if (ret == 0 && is_io(r.log, &rec))
			ret = take_io(&r, &rec);
		if (ret != 0)
			return ret;
		r.io.offset += sizeof(rec) + rec.pdu_len;
	}
	return ret;
}
