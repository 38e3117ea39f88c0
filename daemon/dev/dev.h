/* SPDX-License-Identifier: MIT */
/*
 * The simulated device: a queue_ops driver that decides for each request
 * whether, when and how it completes, and keeps the data.
 */
#ifndef DEV_H
#define DEV_H

#include <sys/uio.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "blk/blk.h"

/* ---------------------------------------------------------------- page.c */

/*
 * The memory that stores live in: pages of 4 KiB, for all disks of a machine
 * together, up to a limit.  Each cpu keeps some at hand (4 MiB at most), so
 * that a page costs no lock.  A page that was given up is used again only when
 * no cpu can still be looking at it (base/epoch.h); until then it is retired,
 * and the limit does not count it.
 */
struct page_pool;

/* The state of a page, beside it (page_meta); store.c says what it means. */
typedef _Atomic uint32_t page_meta_t;

/* limit in bytes, 0 for none.  NULL when out of memory. */
struct page_pool *page_pool_new(struct machine *m, uint64_t limit);
/* No store is left, and no piece is pinned.  NULL is fine. */
void page_pool_free(struct page_pool *p);

enum {                        /* flags of page_alloc() */
	PAGE_ZEROED = 1 << 0, /* else its contents are unknown */
	PAGE_EXEMPT = 1 << 1, /* the limit does not refuse it */
};

/*
 * A page, its meta word 0; NULL: the limit, or no memory.  Any thread may call
 * this and page_free() without a cpu, NULL: that takes a lock each time.
 */
void *page_alloc(struct page_pool *p, struct cpu *cpu, unsigned flags);
/* Give a page back at once: nobody else can see it. */
void page_free(struct page_pool *p, struct cpu *cpu, void *page);
/*
 * Give pages back, all of which are unlinked and count no more: they are used
 * again once no cpu can see them any more.  Their meta words must not be 0:
 * that is how clean pages are known.  Any thread without a cpu, NULL: a lock.
 */
void page_retire(
    struct page_pool *p, struct cpu *cpu, void *const *page, unsigned nr);

/*
 * Pages that are not in use yet, contents unknown, to receive data into: the
 * limit does not count them.  Returns how many of `nr` there are: fewer, and
 * page[] beyond is not set, when out of memory.  Its meta word is 0, and
 * whoever has it may use it.  A page becomes one in use by page_charge().
 */
unsigned
page_lend(struct page_pool *p, struct cpu *cpu, void **page, unsigned nr);
/*
 * Give them back, on any cpu, but those that are in use by now: their entry is
 * NULL.
 */
void page_return(
    struct page_pool *p, struct cpu *cpu, void *const *page, unsigned nr);
/*
 * Count one more page as in use.  False: the limit refuses it; it may pass for
 * an instant while it does.
 */
bool page_charge(struct page_pool *p, unsigned flags);
void page_uncharge(struct page_pool *p);
page_meta_t *page_meta(const void *page);

/*
 * For a cpu that may sleep, after epoch_leave(): of the retired pages it kept
 * those that are safe by now are at its hand, and what is too much to keep
 * (2 MiB) becomes everyone's.  True: call again before you sleep, there is more
 * (1 GiB takes 0.3 s in all, so other work may go first).  Costs two loads
 * when there is nothing to do.
 */
bool page_pool_idle(struct page_pool *p, struct cpu *cpu);

/* Pages in use (retired ones are not), in bytes; and the limit. */
uint64_t page_pool_used(const struct page_pool *p);
uint64_t page_pool_limit(const struct page_pool *p);

/* --------------------------------------------------------------- store.c */

/*
 * The data of a disk: sparse, in bytes.  What was never written, or was
 * discarded, reads as zeros.  Every cpu may call at any time, without a lock:
 * accesses that overlap give per byte the one or the other.  A cpu calls
 * between epoch_enter() and epoch_leave().
 */
struct store;

#define STORE_MAX_SIZE (INT64_MAX - 511) /* 2^63 - 512 */
#define STORE_MAX_CPUS 1022              /* of the machine */

/*
 * A store of `size` bytes, in blocks of `blocksize` (a power of two, 512 to
 * 4096), that uses at most `limit` bytes of the pool (0: the pool's limit
 * alone).  NULL when out of memory.
 */
struct store *store_new(
    struct page_pool *pool, uint64_t size, uint32_t blocksize, uint64_t limit);
/*
 * Nobody uses it; pinned pieces stay until they are unpinned.  NULL is fine.
 * Without a cpu (NULL) any thread may call, while cpus run; 1 GiB takes some
 * tens of ms.
 */
void store_free(struct store *s, struct cpu *cpu);
/*
 * Nobody uses it.  What lies beyond a size that is smaller stays, and is there
 * again when it grows; of blocks that are larger, those with any data are full.
 * No limit counts.  0; or -ENOMEM, and nothing has changed that can be seen.
 * Any thread.
 */
int store_resize(struct store *s, uint64_t size, uint32_t blocksize);
/*
 * Another store with the same data, which costs no memory but nodes (1/512 of
 * it) until one of them is written: each has pages of its own then.  Of a page
 * that both have, each store's limit counts all, the pool's once.  Nobody
 * writes meanwhile; but others may read.  0; -ENOSPC or -ENOMEM; -EBUSY: of
 * some page there are thousands already.  10 to 20 ms a GiB.  Any thread.
 */
int store_snapshot(struct store *of, struct store **out);
/* The same limit as store_new()'s.  Nobody writes. */
void store_limit(struct store *s, uint64_t limit);

/*
 * The range lies within the size (asserted).  Write: 0, or -ENOSPC when
 * memory is refused: then a prefix may have been written, each block whole or
 * not at all.
 */
int store_write(struct store *s, struct cpu *cpu, uint64_t pos,
    const char *data, uint64_t len);
/*
 * The same with data in pages that the store's pool lent, as those of the store
 * lie: page[i] holds, at its place in there, what goes to page pos / 4096 + i.
 * Those that are written whole become the store's and their entries NULL, and
 * so may those that are written by several calls for their parts, which may be
 * made at once.  It is so for a prefix when memory is refused.
 */
int store_write_pages(
    struct store *s, struct cpu *cpu, uint64_t pos, void **page, uint64_t len);
/* False: there is not even a page that was written to: all of it is zeros. */
bool store_read(
    struct store *s, struct cpu *cpu, uint64_t pos, char *data, uint64_t len);

/*
 * Read without a copy: where the data lies, in at most `max` pieces; pieces
 * adjacent in memory are joined.  Pages are pinned: a later write or discard
 * replaces them and does not change them.  Returns the pieces used; *done is
 * how much of `len` they cover: all of it when max >= len / 4096 + 2, except
 * that a page which thousands have pinned already ends it early (perhaps at
 * 0): the caller reads the rest with store_read().
 */
unsigned store_pin(struct store *s, struct cpu *cpu, uint64_t pos, uint64_t len,
    struct iovec *iov, unsigned max, uint64_t *done);
/*
 * The pieces as store_pin() gave them, or cut at page boundaries.  Any cpu;
 * also after store_free() of the store they came from.
 */
void store_unpin(struct page_pool *pool, struct cpu *cpu,
    const struct iovec *iov, unsigned nr);

/* Zeros from here on: 1 MiB that any piece of store_pin() may point into. */
const void *store_zeros(void);
#define STORE_ZEROS_SIZE (1u << 20)

/*
 * Give blocks back: those that the range covers whole; the bytes of the
 * blocks at its ends are zeroed (all of the range reads as zeros after it).
 * 0, or -ENOSPC: part of a page would have had to change that is pinned, and
 * there was no memory for its successor; that part is left as it was.
 */
int store_discard(struct store *s, struct cpu *cpu, uint64_t pos, uint64_t len);

/*
 * Make the range read as zeros but keep (or take) its blocks: 0 or -ENOSPC.
 */
int store_zero(struct store *s, struct cpu *cpu, uint64_t pos, uint64_t len);

/*
 * Is there data at pos?  *len: for how many bytes that answer holds, at most
 * what it was on entry (at least 1), and at least 1.  It looks at *steps pages
 * (at least 1) or holes between them at most, some 25 ns each, and takes off
 * what it looked at: where they end the answer may.
 */
bool store_extent(struct store *s, struct cpu *cpu, uint64_t pos, uint64_t *len,
    unsigned *steps);

/*
 * What lies at pos will be read or written soon: have the way there in the
 * cache, and then, with `data`, its first lines.  The lines took an eighth off
 * reads of 4 KiB at random in 256 MiB (4 gain less, 64 no more), the way before
 * them a tenth or more off batches of 32 in 1 GiB.
 */
void store_prefetch(struct store *s, uint64_t pos, bool data);

/*
 * Blocks that hold data, and bytes of memory used (pages and the tree's, not
 * pages that were replaced or discarded but are still pinned or waited for:
 * those are only the pool's).  Exact while nobody writes.
 */
uint64_t store_blocks(const struct store *s);
uint64_t store_memory(const struct store *s);

/*
 * An image is what a page was at some time: a volatile cache keeps what would
 * be there after a power cut.  What is written from then on is written
 * elsewhere.  NULL: a hole.  0, or -ENOMEM.
 */
int store_keep(struct store *s, struct cpu *cpu, uint64_t index, void **image);
/* Any cpu; NULL is fine. */
void store_unkeep(struct page_pool *pool, struct cpu *cpu, void *image);
/*
 * These bytes of the image, which lie in its page, become what the store holds
 * now.  The caller is the only one who uses it.  0, or -ENOMEM and it is as it
 * was.
 */
int store_amend(
    struct store *s, struct cpu *cpu, uint64_t pos, unsigned len, void **image);
/* The same, what another image of that page holds; NULL: a hole. */
int store_amend_from(struct store *s, struct cpu *cpu, uint64_t pos,
    unsigned len, const void *from, void **image);
/*
 * The page becomes what the image is, which is not kept any more.  Nobody else
 * uses the store.  0; or -ENOMEM, it is kept, and the page is as it was.
 */
int store_revert(struct store *s, struct cpu *cpu, uint64_t index, void *image);

/* --------------------------------------------------------------- attrs.c */

enum {
	NULL_Q_BIO,
	NULL_Q_RQ,
	NULL_Q_MQ
};
enum {
	NULL_IRQ_NONE,
	NULL_IRQ_SOFTIRQ,
	NULL_IRQ_TIMER
};

#define MULTIPAGE_AUTO 2u
#define BACKING_MEMFD  "memfd" /* no path: memory that outlives the daemon */
#define DISCARD_MAX_BYTES                                  \
	(UINT64_C(0xffffffff) >> 9 << 9) /* of one command \
					  */

struct badblocks;
struct fault_attr;
struct faults;
struct disk;
struct parts;
struct timing;
struct timing_cpu;
struct timing_model;
struct zone_marks;
struct zones;

/* A rotating disk (hdd.c); rates in MiB/s. */
struct hdd_conf {
	uint32_t rpm;       /* 0: it is none */
	uint64_t track_ns;  /* a seek: the shortest, */
	uint64_t seek_ns;   /* over a third of all tracks, */
	uint64_t stroke_ns; /* and over all */
	uint32_t mbps;      /* at its beginning: outside */
	uint32_t inner_mbps;
	uint64_t cache; /* bytes read ahead; 0: none */
	uint32_t queue; /* requests that the arm chooses from */
};

/* What requests have to share (parts.c); 0: there is no such part. */
struct parts_conf {
	uint32_t lanes;
	uint64_t stripe;    /* bytes; 0: any lane that is free */
	uint32_t link_mbps; /* MiB/s, as the others */
	uint64_t link_read_ns, link_write_ns; /* on top: latency alone */
	uint64_t wbuf_size;                   /* bytes */
	uint32_t wbuf_drain;
	uint32_t cap_iops, cap_mbps;
	uint32_t burst_iops, burst_mbps;
	uint64_t burst_ios, burst_bytes; /* credits */
	struct hdd_conf hdd;
};

/* Every setting of a disk; disk_attrs[] describes each field. */
struct disk_conf {
	/* null_blk's, by its names */
	uint64_t size; /* bytes */
	uint32_t blocksize;
	uint32_t max_sectors;
	uint32_t queue_mode;
	uint32_t irqmode;
	uint64_t completion_nsec;
	uint32_t submit_queues;
	uint32_t poll_queues;
	uint32_t home_node;
	uint32_t hw_queue_depth;
	uint32_t index;
	uint32_t mbps;       /* MiB/s; 0: no limit */
	uint64_t cache_size; /* bytes; 0: none */
	struct badblocks *badblocks;
	bool badblocks_once;
	bool badblocks_partial_io;
	struct fault_attr *timeout;
	struct fault_attr *requeue;
	struct fault_attr *init_hctx;
	bool zoned;
	uint64_t zone_size;     /* bytes */
	uint64_t zone_capacity; /* bytes; 0: all of the zone */
	uint32_t zone_nr_conv;
	uint32_t zone_max_open;   /* 0: no limit */
	uint32_t zone_max_active; /* the same */
	uint32_t zone_append_max_sectors;
	bool zone_full;
	struct zone_marks *zone_readonly;
	struct zone_marks *zone_offline;
	bool memory_backed;
	bool discard;
	bool no_sched;
	bool use_per_node_hctx;
	bool shared_tags;
	bool shared_tag_bitmap;
	bool blocking;
	bool virt_boundary;
	bool fua;
	bool rotational;
	bool power;

	/* /sys/block/X/queue's, by its names */
	const struct elevator_type *scheduler;
	uint32_t nomerges;
	uint32_t nr_requests;    /* 0: all tags */
	uint32_t max_sectors_kb; /* 0: what the hardware takes */
	uint32_t max_segments;
	uint32_t max_segment_size; /* 0: the kernel's default */
	uint64_t seg_boundary_mask;
	uint32_t chunk_sectors;
	uint32_t physical_block_size; /* 0: the blocksize */
	uint64_t discard_max_bytes;
	uint32_t discard_granularity; /* 0: the blocksize */
	uint32_t max_discard_segments;
	uint64_t write_zeroes_max_bytes;
	bool iostats;
	struct deadline_conf iosched; /* queue/iosched/: mq-deadline's */

	/* our own */
	const struct profile *kernel;
	uint32_t multipage_bvec; /* 0, 1, or MULTIPAGE_AUTO */
	uint32_t page_order;
	uint32_t plug; /* enum plug_mode */
	uint64_t plug_nsec;
	uint64_t memory_limit; /* bytes; 0: none */
	struct faults *faults;
	uint64_t timeout_nsec;             /* of timeout; 0: for ever */
	struct timing_model *latency_read; /* as set; disk_timing() counts */
	struct timing_model *latency_write;
	struct timing_model *latency_discard;
	struct timing_model *latency_flush;
	struct timing_model *latency_spike;
	struct parts_conf parts;
	uint64_t seed; /* of what is drawn; 0: any, chosen when on */
	bool ro;
	bool tls_only;
	char *description;   /* NULL: none */
	char **export_names; /* besides its own; NULL: none */
	char *fill;          /* path of what it begins with; NULL: nothing */
	char *backing;       /* path of what keeps its data, or BACKING_MEMFD */
	char *crash_log;     /* path; NULL: none */
	char *trace;         /* path of its files; NULL: none */
	uint64_t trace_buffer; /* bytes a cpu */
};

extern const struct attr disk_attrs[];
extern const struct attr_group null_blk; /* those of its configfs */
/*
 * Has null_blk's configfs a file of that name?  For timeout, requeue and
 * init_hctx it has directories.
 */
bool disk_attr_is_file(const struct attr *a);
/*
 * Those, in the form of its configfs' "features":
 * alphabetical, commas between, a newline at the end.
 */
void disk_features(FILE *out);

/* ------------------------------------------------------------ throttle.c */

#define THROTTLE_MAX_MBPS 40960u

/* A disk's budget (mbps). */
struct throttle {
	_Atomic uint32_t mbps; /* 0: none, and nothing else is looked at */
	pthread_mutex_t lock;  /* of the rest */
	uint64_t charged;      /* bytes: what requests have tickets for, */
	uint64_t granted;      /* and what may have gone by now */
	uint64_t tick_ns;      /* when it grew last */
};

/* No limit. */
void throttle_init(struct throttle *t);
void throttle_fini(struct throttle *t);
/*
 * From now on so many MiB/s, for those that wait, too: queue_restart() lets
 * them look.  Any thread.
 */
void throttle_set(struct throttle *t, uint32_t mbps, uint64_t now);

/* --------------------------------------------------------------- cache.c */

/*
 * A disk's volatile cache.  The store has what reads see; of each write that
 * was not flushed the cache knows what was there before it.
 */
struct cache {
	_Atomic bool is_on;         /* else nothing more is looked at */
	_Atomic uint64_t max_pages; /* 0: it is to go off */
	pthread_mutex_t lock;       /* of the rest */
	struct dirty_page *dirty;   /* by index, the oldest first */
	TAILQ_HEAD(image_order, image) order; /* all of them, the same */
	uint64_t nr_images;
	uint64_t nr_writes; /* there ever were, of those it was to hold */
};

/* Of a request: the cache has held it, and its ticket is its number there. */
#define RQF_HELD RQF_DRIVER

/* Which writes that were not flushed are there after a power cut. */
enum cut_lose {
	CUT_ALL,    /* none */
	CUT_RANDOM, /* each by itself, or not */
	CUT_ORDERED /* the first ones: as many as are drawn */
};

/* How the power is cut. */
struct cut_conf {
	enum cut_lose lose;
	uint32_t tear; /* bytes: of a write in flight, whole units; 0: none */
	uint64_t seed;
	uint64_t at; /* with this request, not counting reads; 0: now */
	bool on;     /* for its owner: then it comes on again */
};

/* What came of it. */
struct cut_report {
	uint64_t writes; /* that were not flushed; of them */
	uint64_t lost;   /* all of them, */
	uint64_t torn;   /* or some */
	uint64_t seed;
	int error; /* of cache_cut() */
};

/* No cache. */
void cache_init(struct cache *c);
/* It is empty. */
void cache_fini(struct cache *c);
/*
 * From now on it has room for so many bytes of the store.  What it holds
 * beyond counts as written.  Any thread, but no request is under way.
 */
void cache_resize(struct cache *c, uint64_t bytes);
/* What it holds, in bytes.  Any thread. */
uint64_t cache_used(struct cache *c);
/*
 * All that was written before is there after a power cut.  Any cpu; or any
 * thread, without one, while no request is under way.
 */
void cache_flush(struct cache *c, struct page_pool *pool, struct cpu *cpu);
/*
 * The same of a disk with a backing: its file gets what it has not.  0, or
 * -errno of the file, and the cache keeps what did not get there.
 */
int cache_write_back(struct disk *d, struct cpu *cpu);
/*
 * The range of a disk with a backing was written: what of it the cache does not
 * hold, as somebody has just flushed it, goes to the file.  0 or -errno of the
 * file.
 */
int cache_spill(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t len);
/*
 * The range, at least a byte, was written or discarded past the cache: what the
 * store has there now is there after a power cut.  Any cpu; or any thread,
 * without one, while no request is under way.
 */
void cache_pass(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t len);
/*
 * A write will be made that is lost if the power is cut now.  The cache holds
 * it even if it is off.  0, or -errno of the file: a full cache could not be
 * written.
 */
int cache_hold(struct disk *d, struct request *rq, struct cpu *cpu);
/* The power was cut before this request ended, which it has held. */
void cache_in_flight(struct cache *c, const struct request *rq);
/*
 * The power is cut: of what was not flushed the store has, and the file of a
 * backing, what is not lost; the cache is empty.  No request is under way; any
 * thread.  0; -ENOMEM: of some pages nothing is lost; or -errno of the file: it
 * has not all that was not.
 */
int
cache_cut(struct disk *d, const struct cut_conf *conf, struct cut_report *r);

/* ------------------------------------------------------------- backing.c */

/*
 * What whoever has the file does with it; any thread, and often a cpu, which
 * waits.  0 or -errno.
 */
struct backing_ops {
	int (*write)(
	    void *file, const struct iovec *iov, unsigned nr, uint64_t pos);
	/* Zeros, which take no room. */
	int (*punch)(void *file, uint64_t pos, uint64_t len);
	/* All that was written before survives the machine's power cut. */
	int (*sync)(void *file);
	/*
	 * The same for a request, which then gets rq->error and goes to
	 * rq_complete_posted(), perhaps before this returns.  Nobody waits.
	 */
	void (*hold)(void *file, struct request *rq);
};

/* What of a disk survives, kept in a file. */
struct backing {
	const struct backing_ops *ops;
	void *file;           /* theirs */
	pthread_mutex_t lock; /* what the store holds goes there, in order */
};

void backing_init(struct backing *b, const struct backing_ops *ops, void *file);
void backing_fini(struct backing *b);
/*
 * The file has in this range what the store has.  0 or -errno of the file.  Any
 * cpu; or any thread, without one, while no request is under way.
 */
int backing_put(struct disk *d, struct cpu *cpu, uint64_t pos, uint64_t len);
/* The same, what an image of a page holds; NULL: zeros.  Any thread. */
int
backing_put_page(struct disk *d, uint64_t pos, const void *page, uint64_t len);

/* ------------------------------------------------------------ crashlog.c */

/*
 * A record of what changes a disk (crashlog.h); any thread, and often a cpu,
 * writes there and waits.
 */
struct crash_log {
	int (*write)(
	    void *file, const struct iovec *iov, unsigned nr, uint64_t pos);
	void *file;           /* theirs */
	pthread_mutex_t lock; /* of the rest, and of their order */
	uint64_t nr;          /* entries */
	uint64_t end;         /* where the next one goes */
	int error;            /* of a write: nothing goes there any more */
};

/* In a file that is empty.  0 or -errno of write(). */
int crash_log_init(struct crash_log *l,
    int (*write)(
	void *file, const struct iovec *iov, unsigned nr, uint64_t pos),
    void *file);
void crash_log_fini(struct crash_log *l);
/*
 * From now on the disk, which has a store, is recorded there, or, with NULL,
 * nowhere.  The thread that sets; no request is under way.
 */
void disk_log_crash(struct disk *d, struct crash_log *l);
/*
 * A mark: a text at this place in its record.  0; -ENOENT: there is none;
 * -EINVAL: it is too long, or empty; or -errno of write(), with a sentence.
 * The thread that sets.
 */
int disk_mark(struct disk *d, const char *text, char *err, size_t errlen);

/* ----------------------------------------------------------- badblocks.c */

/* Those of a disk.  Any thread. */
struct badblocks *badblocks_new(void); /* NULL: no memory */
void badblocks_free(struct badblocks *b);
/* badblocks_once, badblocks_partial_io */
void badblocks_mode(struct badblocks *b, bool once, bool partial);
/*
 * "+START-END" or "-START-END": 0; -EINVAL, -ERANGE (no such sectors), -ENOMEM
 * with a sentence, and nothing has changed.
 */
int
badblocks_set(struct badblocks *b, const char *text, char *err, size_t errlen);
/*
 * Is the block at pos bad, which it is with any of its sectors?  *len: for how
 * many bytes that holds, at most what it was on entry, and at least 1.
 */
bool badblocks_extent(
    struct badblocks *b, uint32_t blocksize, uint64_t pos, uint64_t *len);

extern const struct attr_object badblocks_object;

/* ----------------------------------------------------------- faultattr.c */

extern const struct attr_object fault_timeout_object;
extern const struct attr_object fault_requeue_object;
extern const struct attr_object fault_init_hctx_object;

/* --------------------------------------------------------------- fault.c */

/* Rules: set() takes one, or remove,id=N, removeall, release[,id=N]. */
extern const struct attr_object faults_object;

/* A rule, as it is now. */
struct fault_info {
	uint64_t id;
	uint64_t seen, hits; /* requests it was about; those it hit */
	unsigned hung;       /* of them, now */
	bool spent;          /* it hits no more */
	char rule[512];
};
/* The i-th in the order in which they are looked at.  False: no more. */
bool faults_info(const struct faults *f, size_t i, struct fault_info *info);
/*
 * How often a rule has hit; what is to hang does.  False: there is none of that
 * id.
 */
bool faults_hits(const struct faults *f, uint64_t id, uint64_t *hits);
/* A hit, for who is told of it; its texts are constants. */
struct fault_seen {
	uint64_t id; /* of the rule */
	uint64_t sector, nr_sectors;
	const char *op, *action;
};
/*
 * Call hook(arg, ...) whenever that has become more, from the thread in which
 * it did, who waits for it.  Before the power comes on.
 */
void faults_watch(struct faults *f,
    void (*hook)(
	void *arg, const struct disk *d, const struct fault_seen *seen),
    void *arg);
/* Of the rule that was added last. */
uint64_t faults_last_id(const struct faults *f);
/*
 * The last hits (1,024), a line each: no times, so that the same seed and the
 * same requests give the same bytes.  Returns how many there were before.
 */
uint64_t faults_log(const struct faults *f, FILE *out);

/* -------------------------------------------------------------- timing.c */

extern const struct attr_object latency_read_object;
extern const struct attr_object latency_write_object;
extern const struct attr_object latency_discard_object;
extern const struct attr_object latency_flush_object;
extern const struct attr_object latency_spike_object;

/*
 * The models (latency.*) may have changed: they are in force for requests that
 * come to the device from now on.  The thread that sets, d->conf being settled
 * and seeded.  0, or -ENOMEM: what was in force is.
 */
int timing_choose(struct disk *d);
/* No request is under way: there is none, and draws begin anew. */
void timing_fini(struct disk *d);

/* --------------------------------------------------------------- parts.c */

/* Do its settings fit together?  0, or -EINVAL with a sentence. */
int parts_check(const struct disk_conf *d, char *err, size_t errlen);
/*
 * At power-on: d->parts, all of them idle and credits full, if d->conf has any;
 * 0 or -ENOMEM.  At power-off: nothing is under way; none is fine.
 */
int parts_attach(struct disk *d);
void parts_detach(struct disk *d);

/* ----------------------------------------------------------------- hdd.c */

/* What it has read ahead, or will have if it is left alone. */
struct hdd_ahead {
	bool on;
	uint64_t first; /* byte that it has */
	uint64_t from;  /* it was here */
	uint64_t ns;    /* at that time, and goes on */
	uint64_t limit; /* up to here: the buffer is full */
};

struct hdd {
	struct hdd_conf conf;
	uint64_t size; /* bytes */
	uint64_t turn_ns;
	uint64_t pos;     /* where its arm is, unless it reads ahead, */
	uint64_t free_ns; /* since then */
	struct hdd_ahead ahead;
};

/* A disk of so many bytes, at rest at its beginning. */
void hdd_init(struct hdd *h, const struct hdd_conf *c, uint64_t size);
/* From one byte to another: ns. */
uint64_t hdd_seek(const struct hdd *h, uint64_t from, uint64_t to);
/*
 * Begin with a request at `at`, h->free_ns or later: when it is done, and the
 * arm is free.  A copy of *h tells what it would be.
 */
uint64_t
hdd_serve(struct hdd *h, uint64_t at, bool reads, uint64_t pos, uint64_t bytes);

/* --------------------------------------------------------------- zones.c */

#define ZONES_MAX (1u << 20) /* of a disk: 16 MiB for their states */

/* What a zone is like: numbers as the kernel's, enum blk_zone_cond. */
enum zone_cond {
	ZONE_NOT_WP = 0, /* conventional */
	ZONE_EMPTY = 1,
	ZONE_IMP_OPEN = 2, /* because somebody wrote to it */
	ZONE_EXP_OPEN = 3,
	ZONE_CLOSED = 4,
	ZONE_READONLY = 13,
	ZONE_FULL = 14,
	ZONE_OFFLINE = 15,
};

enum zone_op {
	ZONE_OPEN,
	ZONE_CLOSE,
	ZONE_FINISH,
	ZONE_RESET,
};

struct zone_info {
	uint64_t start, len; /* bytes, as all here */
	uint64_t capacity;   /* what may be written of it */
	/* Conventional: its end; read-only or offline: UINT64_MAX. */
	uint64_t wp;
	enum zone_cond cond;
};

/* From settings that disk_check() has passed.  NULL: no memory. */
struct zones *zones_new(const struct disk_conf *c);
/* No I/O is under way.  NULL is fine. */
void zones_free(struct zones *z);
unsigned zones_nr(const struct zones *z);
/* Which one a byte lies in. */
unsigned zones_at(const struct zones *z, uint64_t pos);
/* The i-th zone, as it is now.  Any thread. */
void zones_info(struct zones *z, unsigned i, struct zone_info *out);

/*
 * Open, close, finish or reset the zones of a range, each by itself: 0, or the
 * first error, as null_blk's: -EIO (not in this condition), -ETOOMANYREFS (no
 * more may be open), -EOVERFLOW (nor active); or -EINVAL, and nothing was done:
 * not whole zones of the device.  A reset of all of it passes over those that
 * cannot be reset.  Any thread; it waits for I/O that moves data there.  Who
 * resets a zone leaves its data to zones_sweep().
 */
int zones_manage(struct zones *z, enum zone_op op, uint64_t pos, uint64_t len);

/* Is there data of zones that were reset?  Any thread. */
bool zones_stale(const struct zones *z);
/*
 * Give that of one zone back; true: there is more.  Any cpu; or any thread,
 * without one, while no request is under way.
 */
bool zones_sweep(struct disk *d, struct cpu *cpu);

/*
 * How many bytes of a read come from the store; what lies behind is beyond a
 * write pointer and reads as 0xff.  A cpu that does I/O there; or anybody, for
 * whom it may have changed by now.
 */
uint64_t zones_readable(const struct zones *z, uint64_t pos, uint64_t len);

/*
 * What there is to know of a zone at pos: its condition in the lower four
 * bits, and some of these.  *len: for how many bytes that holds, at most what
 * it was on entry, and at least 1.
 */
#define ZONE_STATUS_SEQUENTIAL (1u << 4)
#define ZONE_STATUS_WRITTEN    (1u << 5) /* below the write pointer */
#define ZONE_STATUS_BEYOND     (1u << 6) /* the capacity */
#define ZONE_STATUS_ODD        (1u << 7) /* so no two zones look like one */
uint32_t zones_status(struct zones *z, uint64_t pos, uint64_t *len);

/* Where writes to zone_readonly and zone_offline go; NULL: nowhere. */
void zone_marks_attach(struct zone_marks *m, struct zones *z);

extern const struct attr_object zone_readonly_object;
extern const struct attr_object zone_offline_object;

/* ----------------------------------------------------------- power.c, state */

/* A power cut that was asked for. */
struct power_cut {
	struct cut_conf conf;
	atomic_bool is_armed; /* it comes with a request */
	atomic_bool is_dead;  /* it is gone: nothing is done any more */
	pthread_mutex_t lock; /* of the next two, and of both at once */
	uint64_t left;        /* requests until then */
	void (*hook)(void *arg, struct disk *d); /* then called; any thread */
	void *arg;
	/* when it last went off, by a cut or not */
	struct cut_report report;
};

/* ---------------------------------------------------------------- disk.c */

#define DISK_NAME_LEN 32 /* with its NUL */

struct disk {
	char name[DISK_NAME_LEN];
	struct disk_conf set;  /* as it was set; owns its texts */
	struct disk_conf conf; /* in force while on; borrows them */
	struct machine *machine;
	struct page_pool *pool;
	struct queue *queue; /* NULL while the power is off */
	struct store *store; /* while on; NULL: not memory-backed */
	struct store *kept; /* its data, on or off; NULL: there never was any */
	/* What keeps it, while on: of whoever powers it on.  NULL: nothing */
	struct backing *backing;
	bool powering_down; /* nothing is set any more */
	bool filling;       /* nor while an image is read for it */
	bool leaves;  /* for good: what it holds need not be put in order */
	bool hurried; /* nor does mbps hold anything back */
	struct zones *zones; /* NULL: not zoned, or off */
	struct throttle throttle;
	struct cache cache;
	struct power_cut cut;
	struct crash_log *crash_log; /* of whoever powers it on; NULL: none */
	atomic_bool has_faults;      /* else no request is looked at for them */
	_Atomic unsigned stages_on;  /* a bit each; the others are passed by */
	struct faults *faults; /* while on: who has no request may look here */
	uint64_t on_ns;        /* when the power came on */
	_Atomic(struct timing *) timing; /* NULL: no models */
	struct timing *timing_retired;   /* until no cpu looks at them */
	struct timing_cpu *timing_cpu;   /* NULL: no model was ever there */
	_Atomic uint64_t stalled_until;  /* ns; before now: it is not */
	struct parts *parts;             /* while on; NULL: it has none */
	struct disk_change *change;      /* under way, or NULL */
	struct store *snapshot;          /* made, and not taken yet */
};

/*
 * A disk with null_blk's defaults, off.  The name has 1 to 31 bytes.  NULL
 * when out of memory.  Its settings go to d->set: attr_set(disk_attrs,
 * &d->set, ...), or attr_copy().
 */
struct disk *
disk_new(const char *name, struct machine *m, struct page_pool *pool);
/* Nothing is in flight.  NULL is fine. */
void disk_free(struct disk *d);

/*
 * What null_blk and the block layer do with settings at power-on: *conf is
 * what is in force then (settings that were left to the kernel are filled
 * in), *queue what the queue is made from.  As in null_blk, hw_queue_depth
 * and max_sectors still read as they were set; *queue has them clamped.  0,
 * or -errno with a sentence in `err` that names the attribute, the value and
 * what is allowed.
 */
int disk_check(const struct disk_conf *set, unsigned nr_cpus,
    struct disk_conf *conf, struct queue_conf *queue, char *err, size_t errlen);

/* max_hw_sectors: what the driver takes, in whole blocks. */
uint32_t disk_max_hw_sectors(const struct disk_conf *conf);
/* The largest zone append; 0 is left to the block layer, which has no limit. */
uint32_t disk_max_append_sectors(const struct disk_conf *conf);
/* Zones that its settings make, 0 if they make none; the last may be short. */
uint32_t disk_nr_zones(const struct disk_conf *conf);

/*
 * Power on: d->set is checked, d->conf holds what is in force, and the queue
 * and the store are made.  0, or -errno with a sentence in `err`: it stays off,
 * with its settings.  On when on: 0.
 */
int disk_power_on(struct disk *d, uint64_t now, char *err, size_t errlen);

#define DISK_SETTLE_NS 10000000000u /* then a change is given up */

/*
 * Set an attribute.  Off: as attr_set() does it.  On: only rows that are live,
 * and all must fit together; the queue is frozen first, as the kernel does it,
 * so -EINPROGRESS means that disk_settle()
 * goes on with it; until then another set is refused with -EBUSY.  Else -errno
 * with a sentence, and nothing has changed.  Any thread, one at a time.
 */
int disk_set(struct disk *d, const char *name, const char *value, uint64_t now,
    char *err, size_t errlen);
/*
 * What disk_set() began, again and again while tasks close their plugs and
 * requests end: 0, it is in force; -EINPROGRESS; or -EBUSY with a sentence:
 * after DISK_SETTLE_NS requests were still in flight, and nothing has changed.
 */
int disk_settle(struct disk *d, uint64_t now, char *err, size_t errlen);

/*
 * A snapshot of its data, for disk_take_snapshot(): of all that reads see, also
 * of what a cache has not written.  0; -EINPROGRESS, it is on, and
 * disk_settle() goes on with it, as with a change; or -errno with a sentence.
 */
int disk_snapshot(struct disk *d, uint64_t now, char *err, size_t errlen);
/* The caller's; NULL: it has no data. */
struct store *disk_take_snapshot(struct disk *d);

enum {                      /* disk_extent() */
	DISK_HOLE = 1 << 0, /* nothing is held there */
	DISK_ZERO = 1 << 1, /* it reads as zeros */
};
/*
 * What is at pos, of a disk that is on, by the block: DISK_*, 0 is data.  A
 * disk without memory holds nothing: all that was written there reads as
 * zeros.  What is beyond a write pointer is a hole that does not.  The rest as
 * store_extent().
 */
unsigned disk_extent(struct disk *d, struct cpu *cpu, uint64_t pos,
    uint64_t *len, unsigned *steps);

/*
 * The power is to go off, or the daemon to end: what mbps holds back goes at
 * once.  Any thread.
 */
void disk_hurry(struct disk *d, uint64_t now);

/* ---------------------------------------------------------------- power.c */

/*
 * The power is about to go off: nothing may be set any more, and what mbps
 * holds back goes at once.  Whoever uses the disk is to end.
 */
void disk_power_down(struct disk *d, uint64_t now);
/*
 * Power off, when nobody uses it (nothing comes; what is in flight may still
 * end).  0: it is off.  -EINPROGRESS: call again, in a moment.  -EBUSY: a
 * change is under way, which has to settle first.  Data, bad blocks and
 * settings stay until disk_free(), as in null_blk (1.1), but not what a cache
 * held that was not flushed.  The thread that sets.
 */
int disk_power_off(struct disk *d);
/* The same, at once: no cpu runs, or none has seen its queue yet. */
void disk_power_drop(struct disk *d);

/* Could it be cut so?  0, or -EINVAL, -EOPNOTSUPP with a sentence. */
int disk_can_cut(
    const struct disk *d, const struct cut_conf *c, char *err, size_t errlen);
/*
 * Cut the power of a disk that is on: at once, or with a request to come, and
 * then hook(arg, d) is called in the thread that has it.  From that moment
 * nothing is done any more, all requests end with -ENOMEDIUM, which nobody is
 * to be told, and disk_power_off() is to be called, after which what was not
 * flushed is lost as `c` has it.  Another call takes the place of one that has
 * not come yet.  The thread that sets.
 */
void disk_cut(struct disk *d, const struct cut_conf *c,
    void (*hook)(void *arg, struct disk *d), void *arg);
/* One that has not come yet never comes.  False: there is none. */
bool disk_cut_cancel(struct disk *d);
/* Has it come, and the disk is on as far as its owner knows? */
static inline bool
disk_is_dead(const struct power_cut *c)
{
	return atomic_load(&c->is_dead);
}
/*
 * A step of disk_power_on(): d->store and d->zones, if it is to have them.  The
 * data of before is in the store, by the byte, as far as the size reaches; what
 * lies beyond comes back with a larger size.  0, or -ENOMEM with a sentence and
 * there is neither.
 */
int disk_attach_media(struct disk *d, char *err, size_t errlen);
/* There is no queue; neither is an error. */
void disk_detach_media(struct disk *d);
/*
 * What it is to have as its data, and what keeps it (NULL: nothing; not the
 * disk's).  It is off, and has none.  One that is kept has to be given anew
 * each time before the power comes on: after a power cut the file has it.
 */
void disk_give_store(struct disk *d, struct store *s, struct backing *backing);
/*
 * Its data, for store_free(), which may take long; or NULL.  It is off, and
 * d->backing is not its any more.
 */
struct store *disk_take_store(struct disk *d);

/* What its attributes read as: in force while on, as set while off. */
static inline const struct disk_conf *
disk_shown(const struct disk *d)
{
	return d->queue != NULL ? &d->conf : &d->set;
}

/* Its size in bytes, while it is on. */
static inline uint64_t
disk_size(const struct disk *d)
{
	return d->conf.size;
}

/* --------------------------------------------------------------- model.c */

/* What a stage says of a request. */
enum verdict {
	STAGE_NEXT,    /* the next stage may have it */
	STAGE_END,     /* it ends with rq->error */
	STAGE_CUT,     /* so it does, but the next may have rq->cut bytes */
	STAGE_ALTERED, /* the next see what fault_alter() makes of it */
	STAGE_REQUEUE, /* not now: come back */
	STAGE_LOST,    /* never complete it */
	STAGE_HELD,    /* its data has moved; backing_ops' hold() ends it */
};

struct stage {
	const char *name;
	/* Has it anything to do?  NULL: always. */
	bool (*is_on)(const struct disk *d);
	enum verdict (*run)(
	    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
	/*
	 * Those behind it have had the request, if it let them: so many bytes
	 * of it have moved.  In reverse order; NULL: it does not care.  Only
	 * disks with zones have any that does.
	 */
	void (*done)(struct disk *d, struct request *rq, uint64_t moved);
};

bool fault_is_on(const struct disk *d);
bool throttle_is_on(const struct disk *d);
bool zone_is_on(const struct disk *d);
bool badblocks_is_on(const struct disk *d);
bool power_may_go(const struct disk *d);
bool cache_is_on(const struct disk *d);
bool crash_log_is_on(const struct disk *d);
bool backing_is_on(const struct disk *d);
enum verdict
fault_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
enum verdict badblocks_stage(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
enum verdict throttle_stage(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
enum verdict
power_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
/* Before the data moves, and after. */
enum verdict
cache_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
enum verdict cache_through_stage(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
enum verdict crash_log_stage(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
/* Instead, where the store had no memory: some of it may have moved. */
void
crash_log_failed(struct disk *d, const struct request *rq, struct cpu *cpu);
enum verdict backing_stage(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
enum verdict
zone_stage(struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now);
void zone_done(struct disk *d, struct request *rq, uint64_t moved);

extern const struct stage stages[]; /* the order of the physics; ends with {} */
/*
 * What they have to do may have changed: requests that come to the device from
 * now on pass through those that have anything.  The thread that sets.
 */
void stages_choose(struct disk *d);
extern const struct queue_ops disk_queue_ops;
extern const struct queue_ops disk_store_queue_ops; /* of one with memory */

/*
 * The data of a read that was answered with pins, in memory that is the bio's
 * alone.  False: no memory.
 */
bool read_unshare(struct bio *bio, struct cpu *cpu);

/* --------------------------------------------------------- timing.c, for it */

/* The models in force, for a cpu between epoch_enter() and _leave(), or NULL.
 */
static inline const struct timing *
disk_timing(const struct disk *d)
{
	return atomic_load_explicit(&d->timing, memory_order_acquire);
}

/*
 * How long a request, or so many bytes of it, takes on a device that has
 * nothing else to do; without a model for its operation (or any: t is NULL)
 * that is completion_nsec, or 0, as irqmode has it.  Each call draws once.
 */
uint64_t timing_of(const struct disk *d, const struct timing *t,
    const struct request *rq, struct cpu *cpu, uint64_t bytes);
/*
 * When a request that comes now can begin: now, or at the end of a stall, which
 * it may itself have begun (latency.spike).  Once a request.
 */
uint64_t timing_begin(
    struct disk *d, const struct timing *t, struct cpu *cpu, uint64_t now);
/*
 * Both: *delay_ns is by how much later than now it completes.  False: no model
 * has it, and irqmode decides.
 */
bool timing_after(struct disk *d, const struct request *rq, struct cpu *cpu,
    uint64_t now, uint64_t *delay_ns);

/* ---------------------------------------------------------- parts.c, for it */

/*
 * The disk has parts (d->parts): it completes when they have had it, and
 * extra_ns later.
 */
void parts_serve(struct disk *d, struct request *rq, struct cpu *cpu,
    uint64_t now, uint64_t extra_ns);
/* A request that was marked has ended, and the power is gone (power.c). */
void power_ended(struct disk *d, struct request *rq);

/* It has ended: if it had the arm, that is free for the next. */
void
parts_ended(struct parts *p, struct request *rq, struct cpu *cpu, uint64_t now);

/* ------------------------------------------------- fault.c, for these two */

/*
 * Before the power is on, d->conf being settled: seed all that is drawn.  0,
 * or -EFAULT with a sentence: init_hctx has it so.
 */
int fault_power_on(struct disk *d, uint64_t now, char *err, size_t errlen);
/* Rules, timeout or requeue may have changed: are there any? */
void fault_arm(struct disk *d);
/* What hangs ends with ESHUTDOWN, and nothing hangs any more.  Any thread. */
void fault_hurry(struct disk *d);
/* What hangs and was given up ends.  Any thread. */
void fault_abandon(struct disk *d);
/*
 * STAGE_ALTERED: make it what the next stages are to see, 0 or -ENOMEM; and,
 * in any case, what it was.
 */
int fault_alter(struct request *rq);
void fault_restore(struct request *rq);
/*
 * The data of a request with rq->priv has moved (rq_moved()).  False: it hangs,
 * and is no longer the caller's.  Else *delay_ns is by how much later it ends.
 */
bool fault_end(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t *delay_ns);

#endif
