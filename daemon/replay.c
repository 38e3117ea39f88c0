/* SPDX-License-Identifier: MIT */
/*
 * The drive of nullb-replay: a machine of one CPU, a disk, and the I/Os of a
 * recording in batches, as an io_submit() each.
 *
 *	batch: [plug  io io io  flush] -> cpu_run() ... at each deadline
 *
 * Open loop: an I/O comes at its recorded time, or as soon as there is a tag.
 * Closed loop: a batch comes when the one before has ended.
 */
#include "replay.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_NS     1000000000u /* where the clock starts: 0 is no time */
#define MAX_ORDER    9u          /* of page_order */
#define MAX_IDLE     1000000u    /* deadlines in which nothing ends */
#define MEMORY_SHARE 2u          /* of the machine's, for the data: half */
#define TRACE_EVENTS (1u << 18)  /* of one I/O, and all that ends with it */

struct replay {
	const struct iolog *log;
	const struct replay_conf *conf;
	struct machine *machine;
	struct cpu *cpu;
	struct page_pool *pages;
	struct disk *disk;
	struct plug plug;
	struct tracefile *trace; /* NULL: none */
	struct blktrace records;
	int trace_error; /* 0 or -errno of the file */
	uint64_t now;
	uint64_t phys;    /* of the next payload */
	uint64_t nr_open; /* bios that have not ended */
	unsigned nr_idle; /* deadlines since one did, or a tag was freed */
	const struct iolog_io *failed; /* the first I/O that has */
	int error;                     /* and how */
};

/* A bio of an I/O, with its table. */
struct part {
	struct bio bio;
	struct replay *replay;
	const struct iolog_io *io;
	struct bvec bv[];
};

/*
 * Recordings have no data: it is all here, contiguous as far as the longest
 * run of pages, for a bvec has one base.
 */
static char memory[PAGE_SIZE << MAX_ORDER];

/* ---- traces */

/* What has happened since goes to the file. */
static void
take_trace(struct replay *r)
{
	char out[BLKTRACE_MAX_EVENT];
	struct trace_event e[64];
	size_t i, nr, len;

	if (r->trace == NULL)
		return;
	do {
		nr = trace_take(r->disk->queue, 0, e, sizeof(e) / sizeof(*e));
		for (i = 0; i < nr && r->trace_error == 0; i++) {
			len = blktrace_event(&r->records, &e[i], out);
			r->trace_error = tracefile_write(r->trace, 0, out, len);
		}
	} while (nr > 0);
}

static int
begin_trace(struct replay *r, char *err, size_t errlen)
{
	const char *base = r->conf->trace;

	if (base == NULL)
		return 0;
	if (blktrace_init(&r->records, "task", BLKTRACE_MAJOR, 0, 1) != 0 ||
	    trace_start(r->disk->queue, TRACE_EVENTS) != 0)
		return refuse(err, errlen, -ENOMEM, "out of memory");
	r->trace = tracefile_new(base, 1, err, errlen);
	return r->trace != NULL ? 0 : -EIO;
}

static int
end_trace(struct replay *r, char *err, size_t errlen)
{
	uint64_t dropped;
	int ret;

	if (r->trace == NULL)
		return 0;
	take_trace(r);
	ret = r->trace_error;
	if (ret == 0)
		ret = tracefile_flush(r->trace);
	if (ret != 0)
		return refuse(
		    err, errlen, ret, "%s: %s", r->conf->trace, strerror(-ret));
	dropped = trace_dropped(r->disk->queue);
	if (dropped > 0)
		return refuse(err, errlen, -ENOBUFS,
		    "%s: one I/O makes too many events: %" PRIu64
		    " were dropped",
		    r->conf->trace, dropped);
	return 0;
}

/* ---- time */

/*
 * End what is due by now.  Returns the next deadline: where nothing has ended,
 * that of something in flight, for until then a driver that is busy is asked
 * in vain.
 */
static uint64_t
turn(struct replay *r)
{
	uint64_t before = r->nr_open, next = cpu_run(r->cpu, r->now);
	struct heap *due = &r->cpu->deadlines;

	take_trace(r);
	if (r->nr_open == before && !heap_empty(due))
		return heap_first_key(due);
	return next;
}

/* Let the time pass, with all that is due until then. */
static void
advance(struct replay *r, uint64_t to)
{
	uint64_t next;

	if (to <= r->now)
		return;
	while ((next = turn(r)) <= to)
		r->now = next;
	r->now = to;
}

/*
 * Go on to where something ends.  0; -EDEADLK: nothing ever will.  A driver
 * that is busy is asked again and again, so there may be deadlines for ever.
 */
static int
step(struct replay *r)
{
	uint64_t before = r->nr_open, next = turn(r);

	if (cpu_tag_freed(r->cpu) || r->nr_open < before) {
		r->nr_idle = 0;
		return 0;
	}
	if (next == CPU_NO_DEADLINE || r->nr_idle++ == MAX_IDLE)
		return -EDEADLK;
	r->now = next;
	return 0;
}

/* All that was submitted ends. */
static int
finish(struct replay *r)
{
	int err = 0;

	while (err == 0 && r->nr_open > 0)
		err = step(r);
	return err;
}

/* Between two batches nothing of the store is held. */
static void
rest(struct replay *r)
{
	epoch_leave(&r->machine->epoch, r->cpu->id);
	while (page_pool_idle(r->pages, r->cpu))
		;
	epoch_enter(&r->machine->epoch, r->cpu->id);
}

/* ---- bios */

static bool
has_data(const struct iolog_io *io)
{
	return io->op == REQ_OP_READ || io->op == REQ_OP_WRITE;
}

/* Entries of a table that so many bytes of a payload take. */
static uint64_t
table_size(const struct replay *r, uint64_t bytes)
{
	uint64_t pages = (bytes + PAGE_SIZE - 1) >> PAGE_SHIFT;
	unsigned order = r->disk->conf.page_order;

	if (!r->disk->queue->conf.multipage)
		return pages;
	return (pages + (1u << order) - 1) >> order;
}

static void
part_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct part *p = bio->priv;
	struct replay *r = p->replay;

	(void)now;
	if (bio->error != 0 && r->failed == NULL) {
		r->failed = p->io;
		r->error = bio->error;
	}
	r->nr_open--;
	bio_release(bio, cpu);
	free(p);
}

/* The payload from `done` bytes on, as far as the table goes: run by run. */
static void
add_data(struct replay *r, struct part *p, uint64_t done)
{
	unsigned order = r->disk->conf.page_order;
	uint64_t run = UINT64_C(1) << order, page, step, added;
	char *base = NULL;

	do {
		page = done >> PAGE_SHIFT;
		step = (run - (page & (run - 1))) << PAGE_SHIFT;
		if (step > p->io->bytes - done)
			step = p->io->bytes - done;
		if (p->io->op == REQ_OP_WRITE)
			base = memory + ((page & (run - 1)) << PAGE_SHIFT);
		added = bio_add_payload(&p->bio, r->disk->queue->conf.multipage,
		    r->phys, order, page, base, step);
		done += added;
	} while (added == step && done < p->io->bytes);
}

/* The bio of an I/O from `done` bytes on; NULL when out of memory. */
static struct part *
part_new(struct replay *r, const struct iolog_io *io, uint64_t done)
{
	uint64_t max = has_data(io) ? table_size(r, io->bytes - done) : 0;
	struct part *p;

	if (max > BIO_MAX_VECS)
		max = BIO_MAX_VECS;
	p = malloc(sizeof(*p) + max * sizeof(p->bv[0]));
	if (p == NULL)
		return NULL;
	bio_init(&p->bio, io->op, io->pos + done, p->bv, (unsigned)max);
	p->bio.flags = io->flags;
	p->bio.task = io->task;
	p->bio.end_io = part_end;
	p->bio.priv = p;
	p->replay = r;
	p->io = io;
	if (has_data(io))
		add_data(r, p, done);
	else
		p->bio.bytes = io->bytes;
	return p;
}

/* ---- I/Os */

/* A tag will be free once something has ended. */
static int
submit_part(struct replay *r, struct plug *plug, struct part *p)
{
	int err;

	r->nr_open++;
	while ((err = queue_submit(r->disk->queue, r->cpu, plug, &p->bio,
		    r->now)) == -EAGAIN) {
		err = step(r);
		if (err != 0)
			break;
	}
	return err;
}

/* One whose table is full is followed by another (T11). */
static int
submit_io(struct replay *r, struct plug *plug, const struct iolog_io *io)
{
	bool alone = plug == NULL && queue_plugs_alone(r->disk->queue, io->op);
	uint64_t done = 0;
	struct part *p;
	int err;

	if (alone)
		plug = &r->plug;
	do {
		p = part_new(r, io, done);
		if (p == NULL)
			return -ENOMEM;
		done += p->bio.bytes;
		err = submit_part(r, plug, p);
	} while (err == 0 && done < io->bytes);
	if (alone)
		plug_flush_alone(plug, io->op, r->cpu, r->now);
	take_trace(r);
	if (has_data(io))
		r->phys += pages_span(r->disk->conf.page_order,
		    (io->bytes + PAGE_SIZE - 1) >> PAGE_SHIFT);
	return err;
}

/* A batch that is too small opens no plug, but I/Os of several bios do. */
static bool
opens_plug(const struct replay *r, const struct iolog_io *io, size_t nr)
{
	unsigned min = queue_plug_min(r->disk->queue);

	if (min == 0)
		return false;
	if (nr >= min)
		return true;
	for (size_t i = 0; i < nr; i++)
		if (has_data(&io[i]) &&
		    table_size(r, io[i].bytes) > BIO_MAX_VECS)
			return true;
	return false;
}

static int
submit_batch(struct replay *r, const struct iolog_io *io, size_t nr)
{
	struct plug *plug = opens_plug(r, io, nr) ? &r->plug : NULL;
	int err = 0;

	/* all of it at once, as a call brings it */
	if (!r->conf->closed)
		advance(r, START_NS + io->ns);
	for (size_t i = 0; i < nr && err == 0; i++)
		err = submit_io(r, plug, &io[i]);
	plug_flush(&r->plug, r->cpu, r->now);
	turn(r);
	if (err == 0 && io->alone)
		err = finish(r);
	return err != 0 ? err : r->error;
}

/* A plug is a task's, and what waits is in no batch with what it waits for. */
static size_t
batch_size(const struct replay *r, size_t first)
{
	const struct iolog_io *io = &r->log->io[first];
	size_t nr = 1, max = r->log->nr - first;

	if (max > r->conf->batch)
		max = r->conf->batch;
	if (io->alone)
		return 1;
	while (nr < max && !io[nr].alone && !io[nr].first &&
	       io[nr].task == io->task)
		nr++;
	return nr;
}

static int
drive(struct replay *r)
{
	bool closed = r->conf->closed || !r->log->timed;
	const struct iolog_io *io;
	int err = 0, stuck;
	size_t nr;

	epoch_enter(&r->machine->epoch, r->cpu->id);
	for (size_t i = 0; i < r->log->nr && err == 0; i += nr) {
		io = &r->log->io[i];
		nr = batch_size(r, i);
		if (closed || io->alone)
			err = finish(r);
		if (err == 0)
			err = submit_batch(r, io, nr);
		rest(r);
	}
	stuck = finish(r);
	epoch_leave(&r->machine->epoch, r->cpu->id);
	if (err == 0)
		err = stuck;
	return err != 0 ? err : r->error;
}

/* ---- what an I/O may be */

static const char *const op_names[REQ_OP_NR] = {
	[REQ_OP_READ] = "read",
	[REQ_OP_WRITE] = "write",
	[REQ_OP_FLUSH] = "flush",
	[REQ_OP_DISCARD] = "discard",
	[REQ_OP_WRITE_ZEROES] = "write zeroes",
};

/* "FILE:12: write of 4096 bytes at 512: what" */
static int
refuse_io(const struct replay *r, const struct iolog_io *io, int error,
    const char *what, char *err, size_t errlen)
{
	char where[CTL_MAX_ERROR];

	iolog_where(r->log, io, where, sizeof(where));
	return refuse(err, errlen, error,
	    "%s: %s of %" PRIu64 " bytes at %" PRIu64 ": %s", where,
	    op_names[io->op], io->bytes, io->pos, what);
}

/* What the kernel refuses before it is a bio, so that no part of it is done. */
static int
check_io(
    const struct replay *r, const struct iolog_io *io, char *err, size_t errlen)
{
	const struct disk_conf *c = &r->disk->conf;
	char what[128];

	if (io->op == REQ_OP_FLUSH)
		return 0;
	if (io->pos > c->size || io->bytes > c->size - io->pos) {
		snprintf(what, sizeof(what),
		    "beyond the end of the device, %" PRIu64
		    " bytes; --set size= makes it larger",
		    c->size);
		return refuse_io(r, io, -ENOSPC, what, err, errlen);
	}
	if ((io->pos | io->bytes) % c->blocksize != 0) {
		snprintf(what, sizeof(what),
		    "allowed: whole blocks of %" PRIu32 " bytes (blocksize)",
		    c->blocksize);
		return refuse_io(r, io, -EIO, what, err, errlen);
	}
	if (c->ro && io->op != REQ_OP_READ)
		return refuse_io(
		    r, io, -EPERM, "the device is read only (ro)", err, errlen);
	if (io->op == REQ_OP_DISCARD && c->discard_max_bytes == 0)
		return refuse_io(r, io, -EOPNOTSUPP,
		    "the device offers none; --set memory_backed=1 --set "
		    "discard=1 does",
		    err, errlen);
	return 0;
}

static int
check_ios(const struct replay *r, char *err, size_t errlen)
{
	int ret = 0;

	for (size_t i = 0; i < r->log->nr && ret == 0; i++)
		ret = check_io(r, &r->log->io[i], err, errlen);
	return ret;
}

/* ---- the whole */

static uint64_t
memory_limit(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

	if (pages <= 0 || size <= 0)
		return 0;
	return (uint64_t)pages * (uint64_t)size / MEMORY_SHARE;
}

static int
set_up(struct replay *r, char *err, size_t errlen)
{
	r->machine = machine_new(1, NULL, NULL);
	if (r->machine == NULL)
		return refuse(err, errlen, -ENOMEM, "out of memory");
	r->cpu = &r->machine->cpu[0];
	r->pages = page_pool_new(r->machine, memory_limit());
	if (r->pages != NULL)
		r->disk = disk_new("replay", r->machine, r->pages);
	if (r->disk == NULL ||
	    attr_copy(disk_attrs, &r->disk->set, r->conf->disk) != 0)
		return refuse(err, errlen, -ENOMEM, "out of memory");
	return disk_power_on(r->disk, r->now, err, errlen);
}

/* What never ends stays, and the disk that has it. */
static void
tear_down(struct replay *r)
{
	tracefile_free(r->trace);
	blktrace_fini(&r->records);
	if (r->nr_open > 0)
		return;
	disk_free(r->disk);
	page_pool_free(r->pages);
	machine_free(r->machine);
}

/* A sentence for what drive() came to. */
static int
explain(const struct replay *r, int error, char *err, size_t errlen)
{
	if (r->failed != NULL)
		return refuse_io(
		    r, r->failed, error, strerror(-error), err, errlen);
	if (error == -EDEADLK)
		return refuse(err, errlen, error,
		    "%" PRIu64 " bios wait for what never completes",
		    r->nr_open);
	return refuse(err, errlen, error, "%s", strerror(-error));
}

int
replay_run(const struct iolog *log, const struct replay_conf *conf,
    struct sample *out, FILE *stat, char *err, size_t errlen)
{
	struct replay r = {
		.log = log,
		.conf = conf,
		.now = START_NS,
	};
	int ret;

	plug_init(&r.plug);
	ret = set_up(&r, err, errlen);
	if (ret == 0)
		ret = check_ios(&r, err, errlen);
	if (ret == 0)
		ret = begin_trace(&r, err, errlen);
	if (ret == 0) {
		assert(r.disk->conf.page_order <= MAX_ORDER);
		ret = drive(&r);
		if (ret != 0)
			ret = explain(&r, ret, err, errlen);
	}
	if (ret == 0)
		ret = end_trace(&r, err, errlen);
	if (ret == 0) {
		out->now_ns = r.now - START_NS;
		stat_read(r.disk->queue, &out->stat, r.now);
		if (stat != NULL)
			stat_show(r.disk->queue, &out->stat, stat);
	}
	tear_down(&r);
	return ret;
}
