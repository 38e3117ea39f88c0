/* SPDX-License-Identifier: MIT */
/*
 * Quiescent-state reclamation.  A reader (a CPU) is inside while it may hold
 * pointers that it found in a shared structure; between two turns it is
 * outside.  What was unlinked at some epoch may be freed or used again once
 * every reader has been outside since, so that readers need no lock and no
 * count at all.
 */
#ifndef BASE_EPOCH_H
#define BASE_EPOCH_H

#include <stdatomic.h>
#include <stdint.h>

struct epoch_reader {
	_Alignas(64) _Atomic uint64_t seen; /* 0: outside */
};

struct epoch {
	_Alignas(64) _Atomic uint64_t now; /* starts at 1 */
	unsigned nr;
	struct epoch_reader *reader;
};

/* 0 or -ENOMEM. */
int epoch_init(struct epoch *e, unsigned nr_readers);
void epoch_fini(struct epoch *e);

/* Reader i goes inside, or passes a quiescent point while inside. */
static inline void
epoch_enter(struct epoch *e, unsigned i)
{
	uint64_t now = atomic_load_explicit(&e->now, memory_order_acquire);

	/* the only fence a turn pays: loads after this must not pass it */
	if (atomic_load_explicit(&e->reader[i].seen, memory_order_relaxed) !=
	    now)
		atomic_store(&e->reader[i].seen, now);
}

/* Reader i holds nothing any more (before it sleeps). */
static inline void
epoch_leave(struct epoch *e, unsigned i)
{
	atomic_store_explicit(&e->reader[i].seen, 0, memory_order_release);
}

/*
 * Stamp something that has just been unlinked: it may be reused when
 * epoch_safe() is beyond the stamp.  Any thread.
 */
uint64_t epoch_retire(struct epoch *e);

/* Stamps below this are safe: no reader is inside since then.  Any thread. */
uint64_t epoch_safe(struct epoch *e);

#endif
