/* SPDX-License-Identifier: MIT */
/*
 * Why a stamp works.  An unlinker unlinks, then takes the time that it is as
 * its stamp and moves time on.  A reader takes the time as its mark, then
 * looks for pointers.  A mark beyond the stamp means that the reader came
 * after the unlinking and cannot find what was unlinked; one that is not
 * beyond it might, until it marks anew or leaves.
 *
 * All this is sequentially consistent, and so must be the unlinking and the
 * loads that look for pointers (on x86-64 those are plain loads).
 */
#include "base/epoch.h"

#include <errno.h>
#include <stdlib.h>

int
epoch_init(struct epoch *e, unsigned nr_readers)
{
	unsigned i;

	atomic_init(&e->now, 1);
	e->nr = nr_readers;
	e->reader = aligned_alloc(
	    _Alignof(struct epoch_reader), nr_readers * sizeof(*e->reader));
	if (e->reader == NULL)
		return -ENOMEM;
	for (i = 0; i < nr_readers; i++)
		atomic_init(&e->reader[i].seen, 0);
	return 0;
}

void
epoch_fini(struct epoch *e)
{
	free(e->reader);
	e->reader = NULL;
}

uint64_t
epoch_retire(struct epoch *e)
{
	return atomic_fetch_add(&e->now, 1);
}

uint64_t
epoch_safe(struct epoch *e)
{
	uint64_t safe = atomic_load(&e->now);
	uint64_t seen;
	unsigned i;

	for (i = 0; i < e->nr; i++) {
		seen = atomic_load(&e->reader[i].seen);
		if (seen != 0 && seen < safe)
			safe = seen;
	}
	return safe;
}
