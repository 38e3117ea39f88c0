/* SPDX-License-Identifier: MIT */
/*
 * Traces for blkparse(1), btt(1) and iowatcher(1): records of blktrace's
 * binary format (section 7), and the files they are kept in.
 */
#include "ctl/blktrace.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/ctl.h"

#define MINOR_BITS  20
#define COMM_LEN    16
#define FILE_BUFFER 65536u

/* ---- records */

int
blktrace_init(struct blktrace *b, const char *who, unsigned major,
    unsigned minor, unsigned nr_cpus)
{
	*b = (struct blktrace){
		.who = who,
		.device = major << MINOR_BITS | minor,
		.nr_cpus = nr_cpus,
		.sequence = calloc(nr_cpus, sizeof(uint32_t)),
	};
	return b->sequence != NULL ? 0 : -ENOMEM;
}

void
blktrace_fini(struct blktrace *b)
{
	free(b->sequence);
}

/* The category that an action belongs to; none for X. */
static const uint32_t category[] = {
	[TRACE_QUEUE] = BLKTRACE_QUEUE,
	[TRACE_BACKMERGE] = BLKTRACE_QUEUE,
	[TRACE_FRONTMERGE] = BLKTRACE_QUEUE,
	[TRACE_GETRQ] = BLKTRACE_QUEUE,
	[TRACE_REQUEUE] = BLKTRACE_REQUEUE,
	[TRACE_ISSUE] = BLKTRACE_ISSUE,
	[TRACE_COMPLETE] = BLKTRACE_COMPLETE,
	[TRACE_PLUG] = BLKTRACE_QUEUE,
	[TRACE_UNPLUG] = BLKTRACE_QUEUE,
	[TRACE_UNPLUG_TIMER] = BLKTRACE_QUEUE,
	[TRACE_INSERT] = BLKTRACE_QUEUE,
	[TRACE_SPLIT] = 0,
};

/*
 * What kind of I/O it is.  A flush is a write without data that asks for one
 * (blkdev_issue_flush()), but the request that the device gets for it
 * (REQ_OP_FLUSH) is not a write: op_is_write().
 */
static uint32_t
direction(const struct trace_event *e)
{
	switch ((enum req_op)e->op) {
	case REQ_OP_READ:
	case REQ_OP_NR: break;
	case REQ_OP_FLUSH:
		return BLKTRACE_FLUSH |
		       (e->request ? BLKTRACE_READ : BLKTRACE_WRITE);
	case REQ_OP_DISCARD: return BLKTRACE_WRITE | BLKTRACE_DISCARD;
	case REQ_OP_WRITE:
	case REQ_OP_WRITE_ZEROES: return BLKTRACE_WRITE;
	}
	return BLKTRACE_READ;
}

static uint32_t
action(const struct trace_event *e)
{
	uint32_t bits = e->action | category[e->action] | direction(e);

	if (e->request)
		bits |= BLKTRACE_FS;
	if (e->flags & REQ_SYNC)
		bits |= BLKTRACE_SYNC;
	if (e->flags & REQ_PREFLUSH)
		bits |= BLKTRACE_FLUSH;
	if (e->flags & REQ_FUA)
		bits |= (uint32_t)BLKTRACE_FUA;
	return bits;
}

static bool
has_payload(const struct trace_event *e)
{
	return e->action == TRACE_UNPLUG || e->action == TRACE_UNPLUG_TIMER ||
	       e->action == TRACE_SPLIT;
}

/* A note has no number in the sequence. */
static size_t
put_note(const struct blktrace *b, uint32_t kind, uint32_t task, unsigned cpu,
    uint64_t ns, const void *payload, size_t len, char *out)
{
	struct blktrace_record r = {
		.magic = BLKTRACE_MAGIC | BLKTRACE_VERSION,
		.time = ns,
		.action = kind | BLKTRACE_NOTIFY,
		.pid = task,
		.device = b->device,
		.cpu = cpu,
		.pdu_len = (uint16_t)len,
	};

	memcpy(out, &r, sizeof(r));
	memcpy(out + sizeof(r), payload, len);
	return sizeof(r) + len;
}

/* Who is the task?  Once, or when another has taken its place since. */
static size_t
introduce(struct blktrace *b, const struct trace_event *e, char *out)
{
	uint64_t *known = &b->introduced[e->task % BLKTRACE_TASKS];
	char comm[COMM_LEN] = "nullbd"; /* a flush that no task sent */

	if (*known == e->task + UINT64_C(1))
		return 0;
	*known = e->task + UINT64_C(1);
	if (e->task != 0)
		snprintf(comm, sizeof(comm), "%s %" PRIu32, b->who, e->task);
	return put_note(b, BLKTRACE_NOTE_PROCESS, e->task, e->cpu, e->ns, comm,
	    sizeof(comm), out);
}

size_t
blktrace_event(struct blktrace *b, const struct trace_event *e, char *out)
{
	size_t len = introduce(b, e, out);
	uint64_t payload = htobe64(e->extra);
	struct blktrace_record r = {
		.magic = BLKTRACE_MAGIC | BLKTRACE_VERSION,
		.sequence = ++b->sequence[e->cpu],
		.time = e->ns,
		.sector = e->sector,
		.bytes = e->bytes,
		.action = action(e),
		.pid = e->task,
		.device = b->device,
		.cpu = e->cpu,
		.error = (uint16_t)-e->error,
		.pdu_len = has_payload(e) ? sizeof(payload) : 0,
	};

	memcpy(out + len, &r, sizeof(r));
	len += sizeof(r);
	memcpy(out + len, &payload, r.pdu_len);
	return len + r.pdu_len;
}

size_t
blktrace_message(
    struct blktrace *b, unsigned cpu, uint64_t ns, const char *text, char *out)
{
	return put_note(b, BLKTRACE_NOTE_MESSAGE, 0, cpu, ns, text,
	    strnlen(text, BLKTRACE_MAX_TEXT), out);
}

bool
blktrace_valid(const struct blktrace_record *r)
{
	return r->magic == (BLKTRACE_MAGIC | BLKTRACE_VERSION) &&
	       r->cpu < BLKTRACE_MAX_CPUS;
}

/* ---- files */

struct tracefile {
	char *base;
	unsigned nr_cpus;
	FILE *file[]; /* by cpu */
};

/* An empty file that no other trace writes to.  A descriptor, or -errno. */
static int
claim(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	struct stat st;
	int err;

	if (fd < 0)
		return -errno;
	/* where there are no locks there is at least a file */
	if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
		goto fail;
	if (fstat(fd, &st) != 0 ||
	    (S_ISREG(st.st_mode) && ftruncate(fd, 0) != 0))
		goto fail;
	return fd;
fail:
	err = errno;
	close(fd);
	return -err;
}

static char *
path_of(const char *base, unsigned cpu)
{
	char *path;

	if (asprintf(&path, "%s.blktrace.%u", base, cpu) < 0)
		return NULL;
	return path;
}

/* 0, or -errno with a sentence. */
static int
open_one(struct tracefile *t, unsigned cpu, char *err, size_t errlen)
{
	char *path = path_of(t->base, cpu);
	int fd = path != NULL ? claim(path) : -ENOMEM;

	if (fd >= 0)
		t->file[cpu] = fdopen(fd, "w");
	if (fd >= 0 && t->file[cpu] == NULL) {
		close(fd);
		fd = -ENOMEM;
	}
	if (fd == -EWOULDBLOCK)
		refuse(err, errlen, fd, "%s: another trace is writing to it",
		    path);
	else if (fd < 0)
		refuse(err, errlen, fd, "%s: %s", path != NULL ? path : t->base,
		    strerror(-fd));
	else
		setvbuf(t->file[cpu], NULL, _IOFBF, FILE_BUFFER);
	free(path);
	return fd < 0 ? fd : 0;
}

static void
remove_others(const struct tracefile *t)
{
	unsigned cpu = t->nr_cpus;
	bool found = true;
	char *path;

	while (found && cpu < BLKTRACE_MAX_CPUS) {
		path = path_of(t->base, cpu++);
		found = path != NULL && unlink(path) == 0;
		free(path);
	}
}

struct tracefile *
tracefile_new(const char *base, unsigned nr_cpus, char *err, size_t errlen)
{
	struct tracefile *t =
	    calloc(1, sizeof(*t) + nr_cpus * sizeof(t->file[0]));
	unsigned cpu;

	if (t == NULL || (t->base = strdup(base)) == NULL) {
		refuse(err, errlen, -ENOMEM, "out of memory");
		goto fail;
	}
	t->nr_cpus = nr_cpus;
	for (cpu = 0; cpu < nr_cpus; cpu++)
		if (open_one(t, cpu, err, errlen) != 0)
			goto fail;
	remove_others(t);
	return t;
fail:
	tracefile_free(t);
	return NULL;
}

int
tracefile_write(struct tracefile *t, unsigned cpu, const void *data, size_t len)
{
	return fwrite(data, 1, len, t->file[cpu]) == len ? 0 : -errno;
}

int
tracefile_flush(struct tracefile *t)
{
	unsigned cpu;

	for (cpu = 0; cpu < t->nr_cpus; cpu++)
		if (fflush(t->file[cpu]) != 0)
			return -errno;
	return 0;
}

void
tracefile_free(struct tracefile *t)
{
	unsigned cpu;

	if (t == NULL)
		return;
	for (cpu = 0; cpu < t->nr_cpus; cpu++)
		if (t->file[cpu] != NULL)
			fclose(t->file[cpu]);
	free(t->base);
	free(t);
}
