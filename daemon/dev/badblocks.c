/* SPDX-License-Identifier: MIT */
/*
 * Bad blocks: sectors whose reads, writes and discards fail, as in null_blk and
 * the kernel's block/badblocks.c.  A table has 512 records of at most 512
 * sectors, sorted, none over another; what is added joins the records that it
 * touches as far as their length allows.
 *
 * A change is made beside the table and takes its place, or does not fit and
 * changes nothing.
 */
#include "dev/dev.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define MAX_RECORDS 512u
#define MAX_LEN     512u
#define LEN_SHIFT   9
#define MAX_SECTOR  ((UINT64_C(1) << 54) - 1) /* bytes have 63 bits */

struct badblocks {
	_Atomic unsigned nr; /* 0: nothing else is looked at */
	atomic_bool once;
	atomic_bool partial;
	pthread_mutex_t lock;
	uint64_t *record; /* |start: 55|length - 1: 9|; NULL: never any */
};

/* Records as they come about. */
struct draft {
	unsigned nr;
	bool full; /* one more did not fit */
	uint64_t record[MAX_RECORDS];
};

static uint64_t
start_of(uint64_t record)
{
	return record >> LEN_SHIFT;
}

static uint64_t
len_of(uint64_t record)
{
	return record % MAX_LEN + 1;
}

static uint64_t
end_of(uint64_t record)
{
	return start_of(record) + len_of(record);
}

/* ------------------------------------------------------------ life cycle */

struct badblocks *
badblocks_new(void)
{
	struct badblocks *b = calloc(1, sizeof(*b));

	if (b != NULL)
		pthread_mutex_init(&b->lock, NULL);
	return b;
}

void
badblocks_free(struct badblocks *b)
{
	if (b == NULL)
		return;
	pthread_mutex_destroy(&b->lock);
	free(b->record);
	free(b);
}

void
badblocks_mode(struct badblocks *b, bool once, bool partial)
{
	atomic_store(&b->once, once);
	atomic_store(&b->partial, partial);
}

/* ------------------------------------------------------------ the table */

static void
put(struct draft *to, uint64_t start, uint64_t end)
{
	assert(start < end);
	assert(end - start <= MAX_LEN);
	if (to->nr == MAX_RECORDS) {
		to->full = true;
		return;
	}
	to->record[to->nr++] = start << LEN_SHIFT | (end - start - 1);
}

/* The same, as part of the last record if that ends there and has room. */
static void
join(struct draft *to, uint64_t start, uint64_t end)
{
	uint64_t *last = to->nr > 0 ? &to->record[to->nr - 1] : NULL;

	if (last != NULL && end_of(*last) == start &&
	    end - start_of(*last) <= MAX_LEN)
		*last += end - start;
	else
		put(to, start, end);
}

/* What of [pos, end) goes into one record: the last one, or the next. */
static uint64_t
piece_end(const struct draft *to, uint64_t pos, uint64_t end)
{
	uint64_t last = to->nr > 0 ? to->record[to->nr - 1] : 0;

	if (to->nr > 0 && end_of(last) == pos && len_of(last) < MAX_LEN)
		return least(end, start_of(last) + MAX_LEN);
	return least(end, pos + MAX_LEN);
}

/* badblocks_set() */
static void
draft_add(struct draft *to, const uint64_t *record, unsigned nr, uint64_t start,
    uint64_t end)
{
	uint64_t pos = start, stop;
	unsigned i;

	for (i = 0; i < nr && start_of(record[i]) <= start; i++) {
		put(to, start_of(record[i]), end_of(record[i]));
		if (end_of(record[i]) > pos)
			pos = end_of(record[i]);
	}
	while (pos < end && !to->full) {
		stop = i < nr ? least(end, start_of(record[i])) : end;
		if (pos < stop) {
			stop = piece_end(to, pos, stop);
			join(to, pos, stop);
			pos = stop;
		}
		/* those it reaches */
		for (; i < nr && start_of(record[i]) == pos; i++) {
			join(to, pos, end_of(record[i]));
			pos = end_of(record[i]);
		}
	}
	for (; i < nr; i++)
		put(to, start_of(record[i]), end_of(record[i]));
}

/* badblocks_clear() */
static void
draft_remove(struct draft *to, const uint64_t *record, unsigned nr,
    uint64_t start, uint64_t end)
{
	for (unsigned i = 0; i < nr; i++) {
		uint64_t s = start_of(record[i]), e = end_of(record[i]);

		if (s < least(e, start))
			put(to, s, least(e, start));
		if (e > end)
			put(to, s > end ? s : end, e);
	}
}

/* Under the lock. */
static void
take_over(struct badblocks *b, const struct draft *draft)
{
	memcpy(b->record, draft->record, draft->nr * sizeof(*b->record));
	atomic_store(&b->nr, draft->nr);
}

static int
change(struct badblocks *b, bool add, uint64_t start, uint64_t end)
{
	struct draft draft = { .nr = 0 };
	int ret = 0;

	pthread_mutex_lock(&b->lock);
	if (b->record == NULL)
		b->record = calloc(MAX_RECORDS, sizeof(*b->record));
	if (b->record == NULL)
		ret = -ENOMEM;
	else if (add)
		draft_add(&draft, b->record, b->nr, start, end);
	else
		draft_remove(&draft, b->record, b->nr, start, end);
	if (draft.full)
		ret = -EINVAL; /* as null_blk since 6.15 */
	if (ret == 0)
		take_over(b, &draft);
	pthread_mutex_unlock(&b->lock);
	return ret;
}

/* ------------------------------------------------- as text: an attribute */

/* "+START-END" or "-START-END", blanks around it. */
static int
parse(const char *text, bool *add, uint64_t *start, uint64_t *end)
{
	char copy[64], *dash;
	size_t len;
	int ret;

	while (isspace((unsigned char)*text))
		text++;
	len = strlen(text);
	while (len > 0 && isspace((unsigned char)text[len - 1]))
		len--;
	if (len >= sizeof(copy) || (*text != '+' && *text != '-'))
		return -EINVAL;
	*add = *text == '+';
	memcpy(copy, text + 1, len - 1);
	copy[len - 1] = '\0';
	dash = strchr(copy, '-');
	if (dash == NULL)
		return -EINVAL;
	*dash = '\0';
	ret = uint_parse(copy, NULL, start);
	if (ret == 0)
		ret = uint_parse(dash + 1, NULL, end);
	if (ret == 0 && *start > *end)
		ret = -EINVAL;
	return ret;
}

int
badblocks_set(struct badblocks *b, const char *text, char *err, size_t errlen)
{
	uint64_t start = 0, end = 0;
	bool add = false;
	int ret = parse(text, &add, &start, &end);

	if (ret == 0 && add && end > MAX_SECTOR)
		ret = -ERANGE;
	if (ret != 0)
		return refuse(err, errlen, ret,
		    "badblocks: \"%.60s\": %sallowed: +START-END to add or "
		    "-START-END to remove sectors of 512 bytes, up to %" PRIu64,
		    text, ret == -ERANGE ? "out of range, " : "", MAX_SECTOR);
	/* what is beyond all disks is not there to be removed */
	ret = change(
	    b, add, least(start, MAX_SECTOR + 1), least(end, MAX_SECTOR) + 1);
	if (ret == -EINVAL)
		return refuse(err, errlen, ret,
		    "badblocks: \"%.60s\": does not fit, allowed: %u ranges of "
		    "at most %u sectors",
		    text, MAX_RECORDS, MAX_LEN);
	if (ret != 0)
		return refuse(err, errlen, ret, "badblocks: no memory");
	return 0;
}

/* Look at the table: how many records it has. */
static unsigned
copy_records(const struct badblocks *b, uint64_t record[MAX_RECORDS])
{
	struct badblocks *mutable = (struct badblocks *)b; /* its lock is */
	unsigned nr;

	pthread_mutex_lock(&mutable->lock);
	nr = atomic_load(&mutable->nr);
	if (nr > 0)
		memcpy(record, b->record, nr * sizeof(*record));
	pthread_mutex_unlock(&mutable->lock);
	return nr;
}

static void
object_show(const void *obj, FILE *out)
{
	uint64_t record[MAX_RECORDS];
	unsigned nr = copy_records(obj, record);

	for (unsigned i = 0; i < nr; i++)
		fprintf(out, "%s%" PRIu64 " %" PRIu64, i > 0 ? "\n" : "",
		    start_of(record[i]), len_of(record[i]));
}

/* Records that touch are one. */
static bool
object_item(const void *obj, size_t i, FILE *out)
{
	uint64_t record[MAX_RECORDS], end;
	unsigned nr = copy_records(obj, record), k, next;

	for (k = 0; k < nr; k = next) {
		end = end_of(record[k]);
		for (next = k + 1; next < nr; next++) {
			if (start_of(record[next]) != end)
				break;
			end = end_of(record[next]);
		}
		if (i-- > 0)
			continue;
		fprintf(
		    out, "+%" PRIu64 "-%" PRIu64, start_of(record[k]), end - 1);
		return true;
	}
	return false;
}

static bool
object_same(const void *x, const void *y)
{
	uint64_t a[MAX_RECORDS], b[MAX_RECORDS];
	unsigned nr = copy_records(x, a);

	return copy_records(y, b) == nr && memcmp(a, b, nr * sizeof(*a)) == 0;
}

static void *
object_new(void)
{
	return badblocks_new();
}

static void
object_free(void *obj)
{
	badblocks_free(obj);
}

static void *
object_copy(const void *obj)
{
	struct badblocks *b = badblocks_new();
	struct draft draft;

	if (b == NULL)
		return NULL;
	draft.nr = copy_records(obj, draft.record);
	if (draft.nr == 0)
		return b;
	b->record = calloc(MAX_RECORDS, sizeof(*b->record));
	if (b->record == NULL) {
		badblocks_free(b);
		return NULL;
	}
	take_over(b, &draft);
	return b;
}

static int
object_set(void *obj, const char *value, char *err, size_t errlen)
{
	return badblocks_set(obj, value, err, errlen);
}

const struct attr_object badblocks_object = {
	.new = object_new,
	.free = object_free,
	.copy = object_copy,
	.same = object_same,
	.set = object_set,
	.show = object_show,
	.item = object_item,
};

/* ---------------------------------------------------------- what it does */

/* Under the lock: the first record that ends behind a sector, or nr. */
static unsigned
find(const struct badblocks *b, uint64_t sector)
{
	unsigned from = 0, to = b->nr, mid;

	while (from < to) {
		mid = (from + to) / 2;
		if (end_of(b->record[mid]) > sector)
			to = mid;
		else
			from = mid + 1;
	}
	return from;
}

/*
 * badblocks_check() of [pos, pos + bytes): is one bad?  *bad is then where the
 * record begins that was hit, which may be before pos.
 */
static bool
hits(struct badblocks *b, uint64_t pos, uint64_t bytes, uint64_t *bad)
{
	uint64_t end = (pos + bytes + SECTOR_SIZE - 1) >> SECTOR_SHIFT;
	struct draft draft = { .nr = 0 };
	uint64_t record;
	unsigned i;
	bool hit;

	pthread_mutex_lock(&b->lock);
	i = find(b, pos >> SECTOR_SHIFT);
	hit = i < b->nr && start_of(b->record[i]) < end;
	if (hit) {
		record = b->record[i];
		*bad = start_of(record) << SECTOR_SHIFT;
		if (atomic_load(&b->once)) {
			draft_remove(&draft, b->record, b->nr, start_of(record),
			    end_of(record));
			take_over(b, &draft);
		}
	}
	pthread_mutex_unlock(&b->lock);
	return hit;
}

bool
badblocks_extent(
    struct badblocks *b, uint32_t blocksize, uint64_t pos, uint64_t *len)
{
	uint64_t block = pos - pos % blocksize, start, end;
	bool bad = false;
	unsigned i;

	if (atomic_load(&b->nr) == 0)
		return false;
	pthread_mutex_lock(&b->lock);
	i = find(b, block >> SECTOR_SHIFT);
	if (i < b->nr) {
		start = start_of(b->record[i]) << SECTOR_SHIFT;
		end = end_of(b->record[i]) << SECTOR_SHIFT;
		start -= start % blocksize;
		bad = start <= pos;
		if (bad)
			end += (blocksize - end % blocksize) % blocksize;
		*len = least(*len, (bad ? end : start) - pos);
	}
	pthread_mutex_unlock(&b->lock);
	return bad;
}

bool
badblocks_is_on(const struct disk *d)
{
	return atomic_load(&d->conf.badblocks->nr) != 0;
}

/*
 * Any bad sector fails all of the request.  With badblocks_partial_io what is
 * before it goes on, in whole blocks; not of a read, for an answer that says
 * EIO has no data.
 */
enum verdict
badblocks_stage(
    struct disk *d, struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct badblocks *b = d->conf.badblocks;
	uint64_t bad;
	struct bio *bio;

	(void)cpu;
	(void)now;
	if (atomic_load_explicit(&b->nr, memory_order_relaxed) == 0)
		return STAGE_NEXT;
	rq->cut = 0;
	STAILQ_FOREACH(bio, &rq->bios, link) {
		if (bio->bytes > 0 && hits(b, bio->pos, bio->bytes, &bad))
			break;
		rq->cut += bio->bytes;
	}
	if (bio == NULL)
		return STAGE_NEXT;
	bad -= bad % d->conf.blocksize;
	if (bad > bio->pos)
		rq->cut += bad - bio->pos;
	if (!atomic_load(&b->partial) || rq->op == REQ_OP_READ)
		rq->cut = 0;
	rq->error = -EIO;
	return rq->cut > 0 ? STAGE_CUT : STAGE_END;
}
