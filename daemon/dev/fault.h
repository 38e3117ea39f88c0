/* SPDX-License-Identifier: MIT */
/*
 * What the files of fault injection share: a rule, and null_blk's own
 * attributes.
 */
#ifndef DEV_FAULT_H
#define DEV_FAULT_H

#include <sys/queue.h>

#include "base/rng.h"
#include "dev/dev.h"

/* ----------------------------------------------------------- faultrule.c */

enum fault_action {
	FAULT_ERROR,
	FAULT_DELAY,
	FAULT_HANG,
	FAULT_DROP, /* the connection */
	FAULT_CORRUPT,
	FAULT_LOST,
	FAULT_MISDIRECTED,
	FAULT_TORN,
};

#define FAULT_ALWAYS 100000000u /* a probability: millionths of a percent */
#define FAULT_RANDOM UINT64_MAX /* of keep, offset and bit: drawn each time */

/* A rule; the kernel's words (block/error-injection.c), and ours. */
struct fault_rule {
	TAILQ_ENTRY(fault_rule) link; /* in faults->rules */
	uint64_t id;

	/* which requests */
	uint32_t ops;   /* bits, 1 << enum req_op */
	uint64_t start; /* sectors; the last one is in it */
	uint64_t last;
	bool has_range;
	uint64_t chance; /* one of so many */
	uint64_t probability;
	uint64_t every; /* each so many-th */
	uint64_t after; /* the first ones are let by */
	uint64_t times; /* then it is spent; 0: never */

	/* what becomes of them */
	enum fault_action action;
	const struct fault_status *status; /* NULL: success */
	uint64_t delay_ns;
	enum bio_hang_up at;
	uint64_t offset; /* of the byte in the request, */
	uint64_t bit;    /* and of the bit in it */
	int64_t shift;   /* sectors */
	uint64_t keep;   /* sectors that are written */

	uint64_t seen; /* requests that it is about, */
	uint64_t hits; /* those it hit, */
	uint64_t done; /* and of them those that hang, if they are to */
	struct rng rng;
};

/* A blk_status_t of the kernel. */
struct fault_status {
	const char *name; /* BLK_STS_name */
	int error;
};

/*
 * Fill it in from "op=READ,status=IOERR".  `what` is the whole of it, for the
 * sentence.  0 or -EINVAL, -ERANGE.
 */
int fault_rule_parse(struct fault_rule *r, const char *what, const char *text,
    char *err, size_t errlen);
/* So that parsing it gives the same rule. */
void fault_rule_print(const struct fault_rule *r, FILE *out);
bool fault_rule_same(const struct fault_rule *a, const struct fault_rule *b);

const char *fault_op_name(uint8_t op);
const char *fault_action_name(enum fault_action action);

/* Begin to count, and to draw from the seed. */
void fault_rule_begin(struct fault_rule *r, uint64_t seed);

/* -------------------------------------------------------------- faults.c */

/* What was decided about a request: rq->priv from then on. */
struct fault_hit {
	TAILQ_ENTRY(fault_hit) link; /* in faults->hung */
	struct request *rq;
	uint64_t id;  /* of the rule; 0: of none */
	bool returns; /* requeue: it goes back once, */
	bool at_once; /* and comes again at once */
	bool acts;    /* the rest means something */
	enum fault_action action;
	int error;
	enum bio_hang_up at;
	uint64_t delay_ns;
	uint64_t start, last; /* sectors */
	uint64_t cut;         /* bytes that are written */
	uint64_t byte;        /* of the request, whose bit is flipped */
	unsigned bit;
	int64_t shift;                   /* bytes */
	struct fault_original *original; /* before fault_alter() */
};

/* What else than an action the log may tell of a hit. */
enum {
	FAULT_ENTRY_TIMEOUT = 100,
	FAULT_ENTRY_REQUEUE
};

struct faults {
	pthread_mutex_t lock;
	TAILQ_HEAD(rule_list, fault_rule) rules; /* the newest first */
	unsigned nr_rules;
	uint64_t last_id;
	uint64_t seed;
	uint64_t seq;        /* requests judged */
	uint64_t timeout_ns; /* 0: for ever */
	unsigned requeues;
	bool hurry; /* nothing hangs any more */
	/* faults_watch(), or NULL */
	void (*hook)(
	    void *arg, const struct disk *d, const struct fault_seen *seen);
	void *hook_arg;
	TAILQ_HEAD(hit_list, fault_hit) hung;
	struct fault_entry *log; /* a ring; NULL: no hit yet */
	uint64_t nr_log;         /* entries there ever were */
};

/* It changes, also of a constant one.  Returns the same. */
static inline struct faults *
faults_lock(const struct faults *f)
{
	struct faults *mutable = (struct faults *)f;

	pthread_mutex_lock(&mutable->lock);
	return mutable;
}

static inline void
faults_unlock(struct faults *f)
{
	pthread_mutex_unlock(&f->lock);
}

/* Under the lock: the rule of that id, or NULL. */
struct fault_rule *faults_find(struct faults *f, uint64_t id);
/*
 * What hangs by a rule ends, or by any, 0; with `error`, or 0: as was decided.
 * Without the lock.
 */
void faults_let_go(struct faults *f, uint64_t id, int error);
/* What was given up ends with -ESHUTDOWN.  The same. */
void faults_let_go_given_up(struct faults *f);
/* Under the lock: `action` is enum fault_action, or above. */
void faults_log_hit(struct faults *f, const struct request *rq,
    const struct fault_hit *hit, uint8_t action);

/* ----------------------------------------------------------- faultattr.c */

/* The kernel's struct fault_attr. */
struct fault_attr {
	pthread_mutex_t lock;
	_Atomic uint64_t probability; /* percent; 0: nothing else matters */
	bool is_set;
	uint64_t interval;
	int64_t space, times;
	uint64_t count; /* for the interval */
	uint64_t hits;
	struct rng rng;
};

/* should_fail(): is this one to fail? */
bool fault_attr_hits(struct fault_attr *a);
/* Draw from this on, and begin to count. */
void fault_attr_seed(struct fault_attr *a, struct rng rng);

#endif
