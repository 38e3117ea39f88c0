/* SPDX-License-Identifier: MIT */
/*
 * null_blk's own faults (1.9): an attribute of four numbers,
 * <interval>,<probability>,<space>,<times>, read and decided upon as in the
 * kernel's lib/fault-inject.c, but that a seed decides what is drawn.  One of
 * them alone is set as probability=50, which is a write to a file there.
 */
#include "dev/fault.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 79u /* null_blk's string[80] */

enum {
	INTERVAL = 1,
	PROBABILITY = 2,
	SPACE = 4,
	TIMES = 8,
	ALL = 15
};

/* What it takes, beside what it counts. */
struct numbers {
	bool is_set;
	uint64_t interval, probability;
	int64_t space, times;
};

static void *
object_new(void)
{
	struct fault_attr *a = calloc(1, sizeof(*a));

	if (a != NULL)
		pthread_mutex_init(&a->lock, NULL);
	return a;
}

static void
object_free(void *obj)
{
	struct fault_attr *a = obj;

	if (a == NULL)
		return;
	pthread_mutex_destroy(&a->lock);
	free(a);
}

static struct numbers
numbers_of(const void *obj)
{
	struct fault_attr *a = (struct fault_attr *)obj; /* its lock changes */
	struct numbers n;

	pthread_mutex_lock(&a->lock);
	n = (struct numbers){
		.is_set = a->is_set,
		.interval = a->interval,
		.probability = atomic_load(&a->probability),
		.space = a->space,
		.times = a->times,
	};
	pthread_mutex_unlock(&a->lock);
	return n;
}

/* Some of them; the others are as they are, or as the kernel begins. */
static void
take_over(struct fault_attr *a, const struct numbers *n, unsigned which)
{
	pthread_mutex_lock(&a->lock);
	if (!a->is_set)
		a->interval = a->times = 1;
	a->is_set = n->is_set;
	if (which & INTERVAL)
		a->interval = n->interval;
	if (which & SPACE)
		a->space = n->space;
	if (which & TIMES)
		a->times = n->times;
	if (which == ALL)
		a->count = 0;
	if (which & PROBABILITY)
		atomic_store(&a->probability, n->probability);
	pthread_mutex_unlock(&a->lock);
}

static void *
object_copy(const void *obj)
{
	struct numbers n = numbers_of(obj);
	struct fault_attr *a = object_new();

	if (a != NULL)
		take_over(a, &n, ALL);
	return a;
}

static bool
object_same(const void *x, const void *y)
{
	struct numbers a = numbers_of(x), b = numbers_of(y);

	return a.is_set == b.is_set && a.interval == b.interval &&
	       a.probability == b.probability && a.space == b.space &&
	       a.times == b.times;
}

/* All four, in null_blk's order. */
static int
parse_all(char *text, struct numbers *n)
{
	char *rest = text, *field[4];

	for (unsigned i = 0; i < 4; i++)
		field[i] = strsep(&rest, ",");
	if (field[3] == NULL || rest != NULL)
		return -EINVAL;
	if (uint_parse(field[0], NULL, &n->interval) != 0 ||
	    uint_parse(field[1], NULL, &n->probability) != 0 ||
	    int_parse(field[2], &n->space) != 0 ||
	    int_parse(field[3], &n->times) != 0)
		return -EINVAL;
	return 0;
}

static int
parse_one(
    const char *name, const char *text, struct numbers *n, unsigned *which)
{
	if (strcmp(name, "interval") == 0) {
		*which |= INTERVAL;
		return uint_parse(text, NULL, &n->interval);
	}
	if (strcmp(name, "probability") == 0) {
		*which |= PROBABILITY;
		return uint_parse(text, NULL, &n->probability);
	}
	if (strcmp(name, "space") == 0) {
		*which |= SPACE;
		return int_parse(text, &n->space);
	}
	if (strcmp(name, "times") == 0) {
		*which |= TIMES;
		return int_parse(text, &n->times);
	}
	return -EINVAL;
}

/* Some of them, by the names of the kernel's files. */
static int
parse_some(char *text, struct numbers *n, unsigned *which)
{
	char *word, *name;
	int ret = 0;

	*which = 0;
	while (ret == 0 && (word = strsep(&text, ",")) != NULL) {
		name = strsep(&word, "=");
		ret = word == NULL ? -EINVAL : parse_one(name, word, n, which);
	}
	return ret;
}

static int
parse(const char *value, struct numbers *n, unsigned *which)
{
	char copy[MAX_TEXT + 1];
	size_t len = strlen(value);

	*n = (struct numbers){ .is_set = true };
	*which = ALL;
	while (len > 0 && isspace((unsigned char)value[len - 1]))
		len--;
	if (len == 0) { /* as null_blk: nothing is none */
		n->is_set = false;
		return 0;
	}
	if (len > MAX_TEXT)
		return -EINVAL;
	memcpy(copy, value, len);
	copy[len] = '\0';
	return strchr(copy, '=') != NULL ? parse_some(copy, n, which)
					 : parse_all(copy, n);
}

static int
set(const char *name, void *obj, const char *value, char *err, size_t errlen)
{
	struct numbers n;
	unsigned which;
	int ret = parse(value, &n, &which);

	if (ret != 0)
		return refuse(err, errlen, ret,
		    "%s: \"%.80s\": allowed: INTERVAL,PROBABILITY,SPACE,TIMES, "
		    "four numbers: each so many-th, percent, requests before "
		    "the first, and how often (-1: without end); or some of "
		    "them: times=1",
		    name, value);
	take_over(obj, &n, which);
	return 0;
}

static int
timeout_set(void *obj, const char *value, char *err, size_t errlen)
{
	return set("timeout", obj, value, err, errlen);
}

static int
requeue_set(void *obj, const char *value, char *err, size_t errlen)
{
	return set("requeue", obj, value, err, errlen);
}

static int
init_hctx_set(void *obj, const char *value, char *err, size_t errlen)
{
	return set("init_hctx", obj, value, err, errlen);
}

static void
object_show(const void *obj, FILE *out)
{
	struct numbers n = numbers_of(obj);

	if (n.is_set)
		fprintf(out, "%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRId64,
		    n.interval, n.probability, n.space, n.times);
}

static bool
object_item(const void *obj, size_t i, FILE *out)
{
	if (i > 0 || !numbers_of(obj).is_set)
		return false;
	object_show(obj, out);
	return true;
}

#define OBJECT(f)                                                            \
	{                                                                    \
		.new = object_new, .free = object_free, .copy = object_copy, \
		.same = object_same, .set = (f), .show = object_show,        \
		.item = object_item                                          \
	}

const struct attr_object fault_timeout_object = OBJECT(timeout_set);
const struct attr_object fault_requeue_object = OBJECT(requeue_set);
const struct attr_object fault_init_hctx_object = OBJECT(init_hctx_set);

void
fault_attr_seed(struct fault_attr *a, struct rng rng)
{
	pthread_mutex_lock(&a->lock);
	a->rng = rng;
	a->count = 0;
	a->hits = 0;
	pthread_mutex_unlock(&a->lock);
}

/* Under the lock, in the order of should_fail_ex(). */
static bool
should_fail(struct fault_attr *a)
{
	uint64_t probability = atomic_load(&a->probability);

	if (probability == 0 || a->times == 0)
		return false;
	if (a->space > 1) {
		a->space--;
		return false;
	}
	if (a->interval > 1 && ++a->count % a->interval != 0)
		return false;
	if (probability <= rng_below(&a->rng, 100))
		return false;
	a->hits++;
	if (a->times > 0)
		a->times--;
	return true;
}

bool
fault_attr_hits(struct fault_attr *a)
{
	bool hit;

	if (atomic_load_explicit(&a->probability, memory_order_relaxed) == 0)
		return false;
	pthread_mutex_lock(&a->lock);
	hit = should_fail(a);
	pthread_mutex_unlock(&a->lock);
	return hit;
}
