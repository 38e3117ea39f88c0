/* SPDX-License-Identifier: MIT */
/*
 * The block layer, as a machine without I/O:
 *
 *	bio -> split -> plug, merge -> request -> elevator -> tag -> driver
 *
 * It knows no device model, no NBD, no event loop, and never asks for the
 * time: `now` comes in (ns, CLOCK_MONOTONIC or a test's own).  The driver is
 * a struct queue_ops.  The rules are those of the Linux block layer in four
 * ages (struct profile); comments name the section of the notes on it, or the
 * kernel's function.
 *
 * Threads: a struct cpu belongs to one thread (a loop plays a CPU).  A
 * function that takes a cpu is called on that cpu's thread only, unless it
 * says otherwise.
 *
 * What the files of this floor have between them alone is in internal.h.
 */
#ifndef BLK_H
#define BLK_H

#include <bsd/sys/tree.h>
#include <sys/queue.h>
#include <sys/uio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/epoch.h"
#include "base/heap.h"
#include "base/hist.h"
#include "base/latency.h"
#include "base/util.h"

#define SECTOR_SHIFT 9
#define SECTOR_SIZE  512u
#define PAGE_SHIFT   12
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096u
#endif

#define BIO_MAX_VECS           256u /* bvecs in one bio (1.1, 1.2) */
#define BIO_INLINE_VECS        4u
#define BLK_MAX_DEPTH          10240u /* BLK_MQ_MAX_DEPTH */
#define BLK_MAX_HW_QUEUES      64u
#define BLK_DEFAULT_RQ         128u  /* BLKDEV_DEFAULT_RQ */
#define BLK_MAX_SCHED_RQ       2048u /* MAX_SCHED_RQ: with an elevator */
#define BLK_PLUG_FLUSH_SIZE    (128u * 1024) /* 4.1 */
#define BLK_SW_QUEUE_LOOK_BACK 8u            /* blk_bio_list_merge */
#define BLK_MQ_RESOURCE_DELAY  3000000u      /* ns */
#define BLK_SAFE_MAX_SECTORS   255u
#define BLK_DEF_MAX_SECTORS    2560u

typedef uint64_t sector_t;

struct bio;
struct cpu;
struct ctx;
struct elevator;
struct elevator_type;
struct hctx;
struct machine;
struct plug;
struct queue;
struct request;
struct trace;
struct trace_ring;

enum req_op {
	REQ_OP_READ,
	REQ_OP_WRITE,
	REQ_OP_FLUSH,
	REQ_OP_DISCARD,
	REQ_OP_WRITE_ZEROES,
	REQ_OP_NR
};

enum { /* flags of a bio, handed on to its request */
	REQ_FUA = 1 << 0,
	REQ_PREFLUSH = 1 << 1,
	REQ_NOMERGE = 1 << 2,
	REQ_NOUNMAP = 1 << 3, /* write zeroes: keep the blocks allocated */
	REQ_SYNC = 1 << 4,    /* for traces only */
	/*
	 * A write to the write pointer of the zone that begins at its pos:
	 * where it went is its pos when it has moved (REQ_OP_ZONE_APPEND).
	 */
	REQ_APPEND = 1 << 5,
};

/* How the submitter is to break off, instead of telling what became of a bio.
 */
enum bio_hang_up {
	HANG_UP_NEVER,
	HANG_UP_BEFORE, /* without a word */
	HANG_UP_EARLY,  /* when it has begun to tell */
	HANG_UP_HALFWAY /* when it has told half of it, data included */
};

/* I/O priority classes, best first; 0 is none and counts as best effort. */
enum {
	IOPRIO_NONE,
	IOPRIO_RT,
	IOPRIO_BE,
	IOPRIO_IDLE
};

/* ------------------------------------------------------------- profile.c */

enum plug_order {
	PLUG_FIFO,
	PLUG_SORTED,          /* by ctx and sector */
	PLUG_SORTED_IF_MULTI, /* more than 2 requests of several queues */
	PLUG_NEWEST_FIRST,    /* when issued directly */
};
enum plug_limited {
	PLUG_FULL,
	PLUG_LIMITED,
	PLUG_LIMITED_NONROT
};
/* Where mq-deadline's batch goes on (5). */
enum deadline_next {
	DEADLINE_NEXT_OF_LAST, /* at the successor of the last one served */
	DEADLINE_NEXT_OF_EACH, /* the same, remembered for each direction */
	DEADLINE_NEXT_BY_POS,  /* at or above the sector served last */
};
enum flush_test {
	FLUSH_TESTS_NEWEST,
	FLUSH_TESTS_OLDEST
};
enum io_ticks {
	IO_TICKS_SAMPLED,
	IO_TICKS_START_ADDS_ONE,
	IO_TICKS_PRECISE
};

/* One age of the Linux block layer: the table of switches (section 10). */
struct profile {
	const char *name;         /* "6.12" */
	bool multipage;           /* a bvec is a run, not a page (1.1, 1.2) */
	unsigned plug_max;        /* requests in a plug (4.1) */
	unsigned plug_max_multi;  /* the same with several queues in it */
	bool plug_count_by_queue; /* plug_max counts those of this queue */
	bool plug_scan_all;       /* merge with any request in the plug (3.6) */
	enum flush_test plug_flush_test; /* whose size is tested (4.1) */
	bool plug_flush_heeds_nomerges;  /* nomerges=2: no size flush */
	enum plug_order plug_order;      /* in which it is handed on (4.1) */
	bool plug_search_oldest; /* of several queues: from the head (3.6) */
	enum plug_limited
	    plug_limited;      /* several hw queues: one request (4.1) */
	bool plug_takes_fua;   /* FUA goes through the plug, unmerged (T21) */
	unsigned aio_plug_min; /* a batch of at least so many opens one (4.2) */
	bool write_opens_plug; /* a write alone: blkdev_write_iter() */
	bool bio_opens_plug;   /* any bio alone: __submit_bio() */
	bool ioprio_must_match;       /* to merge (3.2) */
	bool split_to_physical_block; /* 2.2 */
	bool split_skips_one_page; /* one bvec in one page: 1 segment (2.3) */
	bool gap_any_offset; /* 4.14: an offset is a gap, mask or not (2.3) */
	bool worker_runs_blocking; /* hw queues of drivers that may sleep */
	bool request_merges_count; /* as merges[], and in traces (3.5) */
	bool seam_saves_segment;   /* of two requests that merge (3.5) */
	bool deadline_classes; /* mq-deadline heeds priority, async_depth (5) */
	enum deadline_next deadline_next;
	bool discard_is_write; /* in the statistics (6.1) */
	unsigned stat_fields;  /* 11, 15, 17 */
	unsigned hz;           /* of jiffies: io_ticks, and 4.14's times */
	bool ticks_in_jiffies; /* request times, too */
	bool in_queue_sampled; /* time_in_queue as 4.14 has it (6.2) */
	enum io_ticks io_ticks;
	bool inflight_started_only; /* field 9 counts what the driver has */
	bool write_zeroes_segment;  /* counts as a segment, as in 4.14 (2.6) */
	bool discard_adds_segments; /* a merge of discards does (3.4) */
	bool bio_queue_mode;        /* null_blk's queue_mode=0 exists */
	bool shows_none_first;      /* before a scheduler that is in use */
};

extern const struct profile profiles[]; /* ends with {} */

/* By name ("4.14"); NULL when there is none. */
const struct profile *profile_find(const char *name);

/* ----------------------------------------------------------------- bio.c */

/* A piece of data, contiguous in (synthetic) physical memory. */
struct bvec {
	uint64_t phys; /* decides what is contiguous */
	char *base;    /* real memory; NULL: the bio says where the data is */
	uint32_t len;
};

/*
 * One I/O as its submitter sees it.  It and its pages belong to the submitter
 * until queue_submit() took it, then to the queue until end_io, then to the
 * submitter again, who calls bio_release().
 *
 * Positions are bytes: a client that agreed to no block size may send any.
 */
struct bio {
	STAILQ_ENTRY(bio) link;       /* in its request; else the submitter's */
	STAILQ_ENTRY(bio) link_piece; /* in its parent's pieces */
	uint8_t op;                   /* enum req_op */
	uint8_t prio;                 /* IOPRIO_* */
	uint16_t flags;               /* REQ_* */
	uint32_t task;                /* whose it is: the pid of traces */
	uint64_t pos;
	uint64_t bytes;
	unsigned nr_segs; /* counted by the split */
	struct cpu *cpu;  /* the submitter's: it ends there */

	/* The data: `bytes` from `skip` bytes into bv[0] on. */
	struct bvec *bv;
	unsigned nr_bv;
	unsigned max_bv;
	uint32_t skip;

	/*
	 * A read whose bvecs have no memory: where the driver says its data
	 * is.  Filled at dispatch; `unpin` is called by bio_release().
	 */
	struct iovec *iov;
	unsigned nr_iov;
	void (*unpin)(struct bio *bio, struct cpu *cpu);
	/* A read whose bvecs have memory: the driver holds nothing there. */
	bool hole;
	uint8_t hang_up; /* enum bio_hang_up: the driver's; largest of its
			    pieces' */
	/*
	 * Becomes true when the submitter no longer wants to know, who calls
	 * queue_abandon() then.  It lasts as long as the bio; may be NULL.
	 */
	const atomic_bool *given_up;

	/*
	 * A write whose bvecs have no memory: its data lies in pages of the
	 * driver's (lend_pages) as it will on the device, whose page
	 * first_page + i gets what is in lent[i].  The driver sets the entries
	 * of those that it keeps to NULL.  NULL: the bvecs have memory.
	 */
	void **lent;
	uint64_t first_page;

	int error;          /* 0 or -errno: the first of its pieces' */
	int mail_error;     /* cpu_post_bio(): what it is to end with */
	unsigned remaining; /* pieces that have not ended, itself included */
	struct bio *parent; /* of a piece that was split off the front */
	STAILQ_HEAD(bio_list, bio) pieces; /* split off, in order of pos */
	struct bio *waits; /* the piece that found no tag (or the bio itself) */
	atomic_bool moved; /* its data has moved: rq_moved() */

	void (*end_io)(struct bio *bio, struct cpu *cpu, uint64_t now);
	void *priv; /* the submitter's */
	struct bvec inline_bv[BIO_INLINE_VECS];
};

/*
 * Make an empty bio.  `bv` is a table of `max_bv` entries that outlives the
 * bio; NULL takes the inline one.
 */
void bio_init(struct bio *bio, enum req_op op, uint64_t pos, struct bvec *bv,
    unsigned max_bv);

/*
 * bio_add_page: add data at the end.  Multipage: joins the last bvec when it
 * is physically adjacent (1.2); single-page: only within one page (1.1), and
 * `len` must not leave the page.  False: the table is full, or bytes would
 * exceed UINT_MAX; nothing was added.
 */
bool bio_add(
    struct bio *bio, bool multipage, uint64_t phys, void *base, uint32_t len);

/*
 * Add as much of `len` bytes at `base` as the table takes, as a payload whose
 * pages are contiguous in runs of 2^order pages: page `first` of a layout
 * that starts at `phys` (pages_phys).  base may be NULL.  Returns the bytes
 * added.
 */
uint64_t bio_add_payload(struct bio *bio, bool multipage, uint64_t phys,
    unsigned order, uint64_t first_page, char *base, uint64_t len);

/*
 * Synthetic physical address of page `i` of a layout at `phys`: runs of
 * 2^order pages, each naturally aligned, no two of them adjacent.
 */
uint64_t pages_phys(uint64_t phys, unsigned order, uint64_t i);

/* Bytes of address space that a layout of `pages` pages takes. */
uint64_t pages_span(unsigned order, uint64_t pages);

/*
 * Give back what a bio that has ended holds: pinned memory, pieces that were
 * split off, its iov.  The bvec table stays the submitter's.
 */
void bio_release(struct bio *bio, struct cpu *cpu);

/* Has the data of all of it moved?  On the submitter's cpu. */
bool bio_moved(const struct bio *bio);

/* One piece (or bio) is done; the last one calls the submitter's end_io. */
void bio_endio(struct bio *bio, int error, struct cpu *cpu, uint64_t now);

/* The bvecs of a bio, clipped: call until it returns false; start at {}. */
struct bvec_iter {
	unsigned idx;
	uint64_t done;
};
static inline bool
bio_next_bvec(const struct bio *bio, struct bvec_iter *it, struct bvec *out)
{
	const struct bvec *bv = &bio->bv[it->idx];
	uint32_t off = it->idx == 0 ? bio->skip : 0;
	uint64_t left = bio->bytes - it->done;

	if (left == 0 || it->idx == bio->nr_bv)
		return false;
	out->phys = bv->phys + off;
	out->base = bv->base != NULL ? bv->base + off : NULL;
	out->len = bv->len - off < left ? bv->len - off : (uint32_t)left;
	it->idx++;
	it->done += out->len;
	return true;
}
/* The same for its last bvec.  The bio has data. */
void bio_last_bvec(const struct bio *bio, struct bvec *out);

/* --------------------------------------------------------------- split.c */

/* Limits of a queue; names as in /sys/block/X/queue, sectors of 512 bytes. */
struct limits {
	uint32_t logical_block_size; /* bytes */
	uint32_t physical_block_size;
	uint32_t max_sectors;
	uint32_t max_segments;
	uint32_t max_segment_size; /* bytes */
	uint64_t seg_boundary_mask;
	uint64_t virt_boundary_mask;  /* 0: off */
	uint32_t chunk_sectors;       /* 0: off */
	uint32_t max_discard_sectors; /* 0: no discard */
	uint32_t max_discard_segments;
	uint32_t discard_granularity;      /* bytes */
	uint32_t discard_alignment;        /* bytes */
	uint32_t max_write_zeroes_sectors; /* 0: not offered */
	bool write_cache; /* volatile: flush and FUA mean something */
	bool fua;
	bool rotational;
	bool zoned; /* chunks are zones: writes keep their order */
	uint32_t max_append_sectors; /* of a zone append */
};

/* What is usual when a driver says nothing (2.1). */
void limits_init(struct limits *lim);

/* Why a bio was split. */
enum split_cause {
	SPLIT_SIZE,
	SPLIT_CHUNK, /* of size: what is left of a chunk */
	SPLIT_SEGMENTS,
	SPLIT_GAP,
	SPLIT_NR
};

/* --------------------------------------------------------------- queue.c */

enum {                          /* rq_flags */
	RQF_STARTED = 1 << 0,   /* on its way to the driver, or there */
	RQF_IO_STAT = 1 << 1,   /* counted when it was set up */
	RQF_MOVED = 1 << 2,     /* rq_moved() was called */
	RQF_COMPLETE = 1 << 3,  /* done, but not ended yet */
	RQF_FLUSH_SEQ = 1 << 4, /* flush.c takes it through its steps */
	RQF_FLUSH = 1 << 5,     /* a flush that flush.c sends */
	RQF_ELV = 1 << 6,       /* it went through the elevator */
	RQF_HASHED = 1 << 7,    /* it is found there by its end */
	RQF_TELL = 1 << 8,      /* the driver hears of its end */
	RQF_DRIVER = 1 << 9,    /* the driver's own */
};

/*
 * One I/O as the device sees it: adjacent bios under one tag.  One owner at a
 * time: a plug, an elevator, a software queue, a dispatch list, flush.c, the
 * driver, a cpu's lists of what is to end.
 */
struct request {
	TAILQ_ENTRY(request) link; /* of its one owner */
	struct bio_list bios;      /* in order of pos; discards as they came */
	struct ctx *ctx;           /* submitted here, ends here */
	struct hctx *hctx;
	uint8_t op;
	uint8_t prio;
	uint16_t flags;    /* REQ_* */
	uint16_t rq_flags; /* RQF_* */
	uint64_t pos;
	uint64_t bytes;
	unsigned nr_segs; /* nr_phys_segments */
	int tag;          /* the driver's; -1: none yet */
	int internal_tag; /* with an elevator: from its allocation on; or -1 */
	int error;        /* 0 or -errno */
	uint8_t flush_steps; /* behind it: flush.c */
	uint64_t start_ns;   /* set up */
	uint64_t delay_ns;   /* rq_complete_after() */
	uint64_t ticket;     /* the driver's own, 0 when it is set up; */
	uint64_t cut;        /* and another, */
	void *priv;          /* and one more, NULL when it is set up */
	union {
		struct heap_node due; /* in cpu->deadlines */
		struct {              /* while it is the elevator's */
			RB_ENTRY(request) by_pos;
			LIST_ENTRY(request) by_end;
			uint64_t serial;  /* of its insertion */
			uint64_t fifo_ns; /* its deadline */
		} elv;
	};
};
TAILQ_HEAD(request_list, request);

/* mq-deadline's tunables, /sys/block/X/queue/iosched/ (5). */
struct deadline_conf {
	uint32_t read_expire_ms, write_expire_ms;
	uint32_t prio_aging_expire_ms;
	uint32_t writes_starved;
	uint32_t fifo_batch;
	uint32_t async_depth; /* 0: nr_requests */
	bool front_merges;
};

/* What a driver gives the block layer. */
struct queue_ops {
	/*
	 * Serve a request: 0, and the driver ends it now or later
	 * (rq_complete...); or -EBUSY: it has no room, the block layer keeps
	 * the request and comes back (queue_run, or after a while, unless
	 * hctx_stop() says when).  The driver calls rq_moved() once the data
	 * has moved.
	 */
	int (*queue_rq)(struct request *rq, struct cpu *cpu, uint64_t now);
	/* The last of a batch has been queued; may be NULL. */
	void (*commit)(struct hctx *hctx, struct cpu *cpu, uint64_t now);
	/*
	 * Memory for the data of writes, in pages (of PAGE_SIZE, aligned, with
	 * anything in them) that it may then keep instead of copying them
	 * (bio->lent): returns how many of `nr` it has; page[] beyond is not
	 * set.  And take back those it has not kept, whose entries are not
	 * NULL, on any cpu.  Both or none are NULL.
	 */
	unsigned (*lend_pages)(
	    struct queue *q, struct cpu *cpu, void **page, unsigned nr);
	void (*return_pages)(
	    struct queue *q, struct cpu *cpu, void *const *page, unsigned nr);
	/*
	 * This one comes soon in a batch, or it is the next: have its memory
	 * on the way while the ones before are served.  All of a batch come
	 * soon before any of them is next.  May be NULL.
	 */
	void (*prepare)(const struct request *rq, bool next);
	/*
	 * Bios may have been given up: of those the driver keeps none for
	 * ever.  Any thread; may be NULL.
	 */
	void (*abandon)(struct queue *q);
	/*
	 * One that the driver has marked (RQF_TELL) is done, and about to end:
	 * on the cpu where it is, at its deadline or as all deadlines expire.
	 * NULL if it marks none.
	 */
	void (*ended)(struct request *rq, struct cpu *cpu, uint64_t now);
};

/* How bios gather before they go on: the three ages of report C (4.2). */
enum plug_mode {
	PLUG_TASK, /* in the task's own plug: since 2.6.39 */
	PLUG_CALL, /* on the queue, which is run once a call: 2.6.33 */
	PLUG_EACH, /* not at all: each is started by itself */
};

struct queue_conf {
	const struct profile *profile;
	struct limits limits;
	unsigned nr_hw_queues;
	unsigned depth; /* tags of a hardware queue */
	/*
	 * Requests of a hardware queue: of its tags with the elevator none (0:
	 * all of them), else up to BLK_MAX_SCHED_RQ (0: twice the tags, or
	 * BLK_DEFAULT_RQ).
	 */
	unsigned nr_requests;
	const struct elevator_type *elevator; /* NULL: none */
	struct deadline_conf deadline;
	enum plug_mode plug_mode;
	unsigned nomerges; /* 0, 1, 2 (3.6) */
	bool multipage;
	bool shared_tags; /* of all hardware queues: BLK_MQ_F_TAG_HCTX_SHARED */
	bool blocking;    /* the driver may sleep: BLK_MQ_F_BLOCKING */
	bool bio_based;   /* null_blk's queue_mode=0: no split, merge, count */
	bool iostats;
};

/* How a queue freezes: each step waits until no cpu is where it was. */
enum freeze_step {
	FREEZE_SEEN,    /* every cpu sees it, so nothing comes in */
	FREEZE_DRAINED, /* all has ended, and who ended it has moved on */
	FREEZE_DONE,
};

/* A request queue: one a disk. */
struct queue {
	const struct queue_ops *ops;
	void *driver; /* struct disk, or a test's own */
	struct machine *machine;
	struct queue_conf conf;
	const struct profile *profile; /* conf.profile */
	struct limits limits;          /* in use */
	struct ctx **ctx;              /* by cpu */
	struct hctx **hctx;
	struct elevator *elevator;  /* NULL: none */
	struct disk_stat *stat;     /* what the ctxs share (stat.c) */
	_Atomic unsigned nr_queued; /* requests in the elevator */
	_Atomic unsigned nr_waits;  /* bios that wait, or did, for a tag */
	atomic_bool freezing;       /* no bio comes in any more */
	atomic_bool leaving;        /* no cpu is to keep anything of it, */
	unsigned leave_call;        /* once it has heard of this one */
	_Atomic int expires;        /* 0, or what deadlines end with: -errno */
	enum freeze_step freeze;    /* the freezer's: how far it has come, */
	uint64_t freeze_stamp;      /* and the epoch that it waits for */
	struct trace *trace;        /* who fetches what they tell (trace.c) */
};

/* Counters of one cpu; written by it, read by anyone (stat.c). */
enum stat_group {
	STAT_READ,
	STAT_WRITE,
	STAT_DISCARD,
	STAT_FLUSH,
	STAT_NR
};

/*
 * Why a bio did not join a request that it would have fitted: adjacent (or a
 * further range of a discard), of the same operation, and it was tried: a bio
 * that merges with nothing is not, so it is refused nothing.
 */
enum refusal {
	REFUSED_SIZE,
	REFUSED_CHUNK, /* of size: what is left of a chunk */
	REFUSED_SEGMENTS,
	REFUSED_GAP,
	REFUSED_CLOSED, /* the request never merges, or no longer (3.7) */
	REFUSED_PRIORITY,
	REFUSED_NR
};

struct ctx_stat {
	_Atomic uint64_t ios[STAT_NR];
	_Atomic uint64_t merges[STAT_NR];
	_Atomic uint64_t sectors[STAT_NR];
	_Atomic uint64_t ticks_ns[STAT_NR];
	_Atomic uint64_t begun[2], ended[2]; /* in flight: read, write */
	_Atomic uint64_t absorbed[2];        /* by others; any cpu counts it */
	_Atomic uint64_t issued[2], completed[2]; /* in the driver */
	_Atomic uint64_t splits[SPLIT_NR];
	_Atomic uint64_t refused[REFUSED_NR];
	struct hist bvecs;    /* of bios, as they were submitted */
	struct hist segments; /* of requests that ended, and their size: */
	struct hist request_sectors;
};

/* What one CPU owns of a queue. */
struct ctx {
	struct queue *queue;
	struct cpu *cpu;
	struct hctx *hctx;
	_Atomic(struct trace_ring *) ring; /* NULL: nobody traces */
	struct latency *latency;           /* of what ended, by stat_group */
	_Alignas(64) struct ctx_stat stat;
	_Alignas(
	    64) pthread_mutex_t lock; /* of the list: any cpu takes from it */
	struct request_list list;     /* software queue, oldest first */
	_Atomic unsigned nr_queued;
};

/* What makes a cpu run a hardware queue again; one a cpu in each hctx. */
struct hctx_rerun {
	STAILQ_ENTRY(hctx_rerun) link; /* in cpu->rerun or ->later */
	struct hctx *hctx;
	uint64_t at_ns; /* in cpu->later: its time, */
	bool stopped;   /* or when the driver starts it again */
	bool queued;    /* in cpu->rerun, */
	bool later;     /* or in cpu->later */
};

/* The requests of a hardware queue, and their tags. */
struct rq_pool {
	struct request *rqs;     /* by internal_tag, or by tag */
	struct tags *sched_tags; /* internal ones; NULL without an elevator */
};

/* A hardware queue. */
struct hctx {
	struct queue *queue;
	unsigned index;
	bool shares_tags;          /* with all other hardware queues */
	struct tags *tags;         /* the driver's (tag.c) */
	struct rq_pool pool;       /* its requests */
	struct flush_queue *flush; /* flush.c */
	_Atomic uint64_t
	    waiters;           /* cpus that found no tag, a bit each (mod 64) */
	_Atomic unsigned busy; /* moving average, as hctx->dispatch_busy */
	_Atomic uint64_t stopped_ns; /* until then nothing goes to the driver */
	pthread_mutex_t lock;        /* of the dispatch list */
	struct request_list dispatch; /* the driver was busy */
	_Atomic unsigned nr_dispatch;
	_Atomic unsigned nr_waiting; /* there, and in the software queues */
	struct hctx_rerun *rerun;    /* by cpu */
	_Atomic unsigned next_ctx;   /* whose turn it is: round robin */
	/* counted here when it was a cpu of another hctx that did so (stat.c)
	 */
	_Atomic uint64_t issued[2], completed[2];
};

/* 0 and *out, or -ENOMEM, -EINVAL.  conf is copied. */
int queue_new(struct queue **out, struct machine *m,
    const struct queue_ops *ops, void *driver, const struct queue_conf *conf);
/*
 * Nothing is in flight, and no cpu runs, or queue_left() is true.  NULL is
 * fine.
 */
void queue_free(struct queue *q);

static inline struct ctx *
queue_ctx(const struct queue *q, unsigned cpu)
{
	return q->ctx[cpu];
}

/*
 * submit_bio(): split, merge or make a request, plug it or issue it.  `plug`
 * may be NULL.  0: the bio is the queue's until end_io (which may be called
 * from here).  -EAGAIN: no tag is free, or the queue is being frozen, or the
 * rest of a write to a zone waits for what was split off it; the plug was
 * flushed, the bio is the caller's, who calls again, with nothing about it
 * changed, in a later turn: the cpu's wake comes when a tag was freed
 * elsewhere.
 */
int queue_submit(struct queue *q, struct cpu *cpu, struct plug *plug,
    struct bio *bio, uint64_t now);

/*
 * A bio that queue_submit() did not take (-EAGAIN) is given up: it ends with
 * the error, once those of its pieces that are on their way have ended.
 */
void queue_drop(
    struct queue *q, struct cpu *cpu, struct bio *bio, int error, uint64_t now);

/* The hardware queues whose tags are all of them: the first ones. */
static inline unsigned
queue_nr_bitmaps(const struct queue *q)
{
	return q->conf.shared_tags ? 1 : q->conf.nr_hw_queues;
}
/* For a submitter that has given up bios.  Any thread. */
static inline void
queue_abandon(struct queue *q)
{
	if (q->ops->abandon != NULL)
		q->ops->abandon(q);
}

/* Requests that exist: for tests, ctl. */
unsigned queue_tags_in_use(const struct queue *q);

/*
 * blk_mq_freeze_queue(): from now on queue_submit() answers -EAGAIN, but for
 * bios that wait for a tag.  Then queue_frozen() becomes true, and stays so,
 * when every request that was in it has ended; the caller sees to it that
 * tasks close their plugs.  queue_thaw() ends it and wakes all cpus.  One
 * thread at a time, any.
 */
void queue_freeze(struct queue *q);
bool queue_frozen(struct queue *q);
void queue_thaw(struct queue *q);
static inline bool
queue_freezing(const struct queue *q)
{
	return atomic_load(&q->freezing); /* in order with the epoch's */
}
/*
 * While it is frozen: take over from `conf` limits, elevator and its settings,
 * nr_requests, nomerges, plug_mode and iostats, which nobody may look at
 * meanwhile; all else in it is as it was.
 * 0; or -ENOMEM, -EINVAL: nothing was changed.
 */
int queue_update(struct queue *q, const struct queue_conf *conf);

/*
 * While it is frozen and cpus run: each is to forget what it has kept of it
 * (hardware queues that it would run again), and is woken for it.  Once
 * queue_left() is true, none has anything, and the queue may be freed, or its
 * hardware queues made anew.  The thread that froze it.
 */
void queue_leave(struct queue *q);
static inline bool
queue_leaving(const struct queue *q)
{
	return atomic_load(&q->leaving);
}
bool queue_left(const struct queue *q);
/*
 * After that: give it so many hardware queues, 1 to BLK_MAX_HW_QUEUES.  0; or
 * -ENOMEM, -EINVAL: it has as many as before.
 */
int queue_resize(struct queue *q, unsigned nr_hw_queues);
/*
 * From now on no request of it waits for its deadline: it ends with this error,
 * -errno.  Any thread; for good.
 */
void queue_expire(struct queue *q, int error);

/*
 * Issue what waits: because tags or the driver were busy, or (PLUG_CALL) for
 * the end of the call.
 */
void queue_run(struct queue *q, struct cpu *cpu, uint64_t now);

/*
 * For the driver, from a queue_rq that then answers -EBUSY: it has no room
 * before `until`, so that nothing of this hardware queue is offered to it until
 * then (blk_mq_stop_hw_queue()); of two times the earlier one counts.
 * queue_restart() lets all hardware queues go on at once; any thread calls it.
 */
void hctx_stop(struct hctx *hctx, uint64_t until, uint64_t now);
void queue_restart(struct queue *q);

/* For the driver, from queue_rq: the data of the request has moved. */
void rq_moved(struct request *rq, struct cpu *cpu);

/*
 * For the driver: the request is done, with rq->error.  rq_complete() ends it
 * now, _softirq() at the cpu's next cpu_run(), _after() delay_ns after the
 * `now` of the next cpu_run() (the data has moved by then: null_blk starts
 * its timer after the copy).  Called on any cpu; it ends on that of its ctx.
 */
void rq_complete(struct request *rq, struct cpu *cpu, uint64_t now);
void rq_complete_softirq(struct request *rq, struct cpu *cpu);
void rq_complete_after(struct request *rq, struct cpu *cpu, uint64_t delay_ns);
/* Has nobody who waits for it any use for it?  Of one that the driver has. */
bool rq_given_up(const struct request *rq);
/* The same after rq_moved(), from a thread that need not be a cpu's. */
void rq_complete_posted(struct request *rq);

static inline sector_t
rq_sector(const struct request *rq)
{
	return rq->pos >> SECTOR_SHIFT;
}

/* ---------------------------------------------------------------- plug.c */

/*
 * How many bios a call must bring for a plug to be opened; 0: none ever is.
 * This and the next: not of a queue that is being frozen.
 */
unsigned queue_plug_min(const struct queue *q);
/* Does one bio of `op` that comes alone have a plug, for its pieces? */
bool queue_plugs_alone(const struct queue *q, enum req_op op);
/* Does a plug hold one request of this queue only (4.1)? */
bool plugs_limited(const struct queue *q);

/*
 * What a task gathers before it hands on (section 4).  The task's own; empty
 * when the task moves to another cpu.
 */
struct plug {
	struct request_list list; /* oldest first */
	unsigned nr;
	bool multiple_queues;
	struct queue *to_run; /* PLUG_CALL: what was gathered is there */
};

void plug_init(struct plug *plug);
static inline bool
plug_is_empty(const struct plug *plug)
{
	return plug->nr == 0 && plug->to_run == NULL;
}
/* blk_finish_plug(): hand everything on, in the profile's order. */
void plug_flush(struct plug *plug, struct cpu *cpu, uint64_t now);
/*
 * The same of one bio of `op` that came alone (queue_plugs_alone()).  The task
 * of a discard sleeps until it has ended, and only then closes its plug.
 */
void plug_flush_alone(
    struct plug *plug, enum req_op op, struct cpu *cpu, uint64_t now);

/* ----------------------------------------------------------------- tag.c */

/* Those of a hardware queue that are taken.  Any thread. */
struct tags;
unsigned tags_in_use(const struct tags *t);

/* ------------------------------------------------------------ elevator.c */

struct elevator_ops; /* one file each: internal.h */

/* What /sys/block/X/queue/scheduler may name. */
struct elevator_type {
	const char *name;
	bool available;
	const char *help;               /* or why it is not available */
	const struct elevator_ops *ops; /* NULL: none, no elevator at all */
};
extern const struct elevator_type elevators[]; /* ends with {} */
const struct elevator_type *elevator_find(const char *name);

/* ---------------------------------------------------------------- stat.c */

/* /sys/block/X/stat: times in ms; a sum over the cpus. */
struct queue_stat {
	uint64_t ios[STAT_NR], merges[STAT_NR], sectors[STAT_NR];
	uint64_t ticks_ms[STAT_NR];
	uint64_t in_flight;      /* field 9 */
	uint64_t inflight_rw[2]; /* /sys/block/X/inflight */
	uint64_t io_ticks_ms, in_queue_ms;
	uint64_t splits[SPLIT_NR];
	uint64_t refused[REFUSED_NR];
	struct hist bvecs;    /* of bios, as they were submitted */
	struct hist segments; /* of requests that ended, and their size: */
	struct hist request_sectors;
};

void stat_read(struct queue *q, struct queue_stat *out, uint64_t now);
/*
 * The same of one hardware queue: of the cpus that map to it.  io_ticks (and
 * in_queue, where that is sampled) is the disk's alone, and 0 here.
 */
void stat_read_hctx(const struct hctx *hctx, struct queue_stat *out);
/* How long requests took, from when they were set up until they ended. */
void
stat_latency(const struct queue *q, enum stat_group g, struct latency *out);
/*
 * The fields of /sys/block/X/stat as the profile has them (11, 15 or 17), in
 * its format: right-aligned, blanks between, a newline at the end.
 */
void stat_show(const struct queue *q, const struct queue_stat *st, FILE *out);

/* --------------------------------------------------------------- trace.c */

/* What is told of a bio or a request: blktrace's action codes (section 7). */
enum trace_action {
	TRACE_QUEUE = 1,      /* Q: a bio was submitted */
	TRACE_BACKMERGE = 2,  /* M: it (or a request, 6.1) joined one's end */
	TRACE_FRONTMERGE = 3, /* F: its front */
	TRACE_GETRQ = 4,      /* G: it got a request of its own */
	TRACE_REQUEUE = 6,    /* R: the driver had no room */
	TRACE_ISSUE = 7,      /* D: the driver has it */
	TRACE_COMPLETE = 8,   /* C */
	TRACE_PLUG = 9,       /* P: the first one in an empty plug */
	TRACE_UNPLUG = 10,    /* U: the plug is emptied */
	TRACE_UNPLUG_TIMER = 11, /* T: the same, as the task goes to sleep */
	TRACE_INSERT = 12,       /* I: into the elevator or a software queue */
	TRACE_SPLIT = 13,        /* X: its head was split off */
};

struct trace_event {
	uint64_t ns; /* each event of a cpu is later than the last */
	uint64_t sector;
	uint64_t extra; /* U, T: requests; X: where the remainder starts */
	uint32_t bytes;
	uint32_t task;  /* bio->task */
	uint16_t cpu;   /* where it happened */
	uint16_t flags; /* REQ_* */
	uint8_t action; /* enum trace_action */
	uint8_t op;     /* enum req_op */
	bool request;   /* of a request, not of a bio */
	int error;      /* C: 0 or -errno */
};

/*
 * Begin to trace: each cpu keeps up to `nr` events (rounded up to a power of
 * two) until trace_take() fetches them; more are dropped and counted.  0;
 * -EBUSY: it is traced already; -ENOMEM.  Any thread, one at a time.
 */
int trace_start(struct queue *q, unsigned nr);
/* What was not taken stays until the next start.  Any thread, likewise. */
void trace_stop(struct queue *q);
/*
 * The oldest events of a cpu: how many of out[max] are used.  The thread that
 * traces, and only it, calls this; also after trace_stop().
 */
size_t
trace_take(struct queue *q, unsigned cpu, struct trace_event *out, size_t max);
/* Events dropped since the start, of all cpus. */
uint64_t trace_dropped(const struct queue *q);

/* ----------------------------------------------------------------- cpu.c */

/* What a loop is to the core. */
struct cpu {
	_Alignas(64) struct machine *machine;
	unsigned id;
	struct request_list softirq; /* to end at the next cpu_run() */
	struct request_list unarmed; /* to end delay_ns after it */
	struct heap deadlines;       /* by due */
	STAILQ_HEAD(rerun_list, hctx_rerun) rerun; /* hctxs to run again */
	struct rerun_list later;   /* the same, each at its time */
	bool tag_freed;            /* since the last cpu_run() */
	_Atomic unsigned heard;    /* of machine->calls */
	struct bio_list free_bios; /* of pieces */
	unsigned nr_free_bios;
	pthread_mutex_t mail_lock;
	struct request_list mail;  /* ended elsewhere, to end here */
	struct bio_list mail_bios; /* the same, of requests of other cpus */
	_Atomic bool has_mail;
};

/* The whole simulated host: its CPUs, and how to wake one. */
struct machine {
	unsigned nr_cpus;
	struct cpu *cpu;
	struct epoch epoch; /* a reader a cpu */
	/* Make this cpu run cpu_run() soon; any thread calls it; may be NULL */
	void (*wake)(void *arg, unsigned cpu);
	void *wake_arg;
	_Atomic unsigned calls; /* machine_call() */
};

/* NULL when out of memory. */
struct machine *
machine_new(unsigned nr_cpus, void (*wake)(void *, unsigned), void *arg);
/* No queue is left.  NULL is fine. */
void machine_free(struct machine *m);

#define CPU_NO_DEADLINE UINT64_MAX

/*
 * End what is due: the softirq list, deadlines up to `now`, requests that
 * other cpus posted; run the hardware queues that need it.  Bios end from
 * here.  Returns the next deadline (ns), or CPU_NO_DEADLINE.  Call it after
 * anything was submitted, and when the deadline has come.
 */
uint64_t cpu_run(struct cpu *cpu, uint64_t now);

/* End what waits for its deadline now, with an error (the daemon ends). */
void cpu_expire(struct cpu *cpu, int error, uint64_t now);

/* Since the last such call: was a tag freed, so that stalled tasks may try
 * again? */
bool cpu_tag_freed(struct cpu *cpu);

#endif
