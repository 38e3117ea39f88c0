/* SPDX-License-Identifier: MIT */
/*
 * The rules of a disk, as the attribute `faults`: they are added, removed and
 * shown while requests are looked at (fault.c); what hangs by them; and the
 * log of what they hit.
 */
#include "dev/fault.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES 256u
#define LOG_SIZE  1024u /* hits that are remembered */

/* A hit, for the log. */
struct fault_entry {
	uint64_t seq; /* the how-many-th request */
	uint64_t sector, nr_sectors;
	uint64_t id;
	uint64_t detail[2]; /* of the action */
	int error;
	uint8_t op;
	uint8_t action; /* enum fault_action, or */
};

/* ------------------------------------------------------------ life cycle */

static void *
object_new(void)
{
	struct faults *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	pthread_mutex_init(&f->lock, NULL);
	TAILQ_INIT(&f->rules);
	TAILQ_INIT(&f->hung);
	return f;
}

/* Under the lock, but when nobody else has it. */
static void
free_rules(struct faults *f)
{
	struct fault_rule *r, *next;

	for (r = TAILQ_FIRST(&f->rules); r != NULL; r = next) {
		next = TAILQ_NEXT(r, link);
		free(r);
	}
	TAILQ_INIT(&f->rules);
	f->nr_rules = 0;
}

static void
object_free(void *obj)
{
	struct faults *f = obj;

	if (f == NULL)
		return;
	assert(TAILQ_EMPTY(&f->hung));
	free_rules(f);
	pthread_mutex_destroy(&f->lock);
	free(f->log);
	free(f);
}

static void *
object_copy(const void *obj)
{
	struct faults *from = faults_lock(obj), *f = object_new();
	struct fault_rule *r, *copy = NULL;

	if (f != NULL)
		f->last_id = from->last_id;
	TAILQ_FOREACH(r, &from->rules, link) {
		copy = f != NULL ? malloc(sizeof(*copy)) : NULL;
		if (copy == NULL)
			break;
		*copy = *r;
		fault_rule_begin(copy, f->seed);
		TAILQ_INSERT_TAIL(&f->rules, copy, link);
		f->nr_rules++;
	}
	faults_unlock(from);
	if (r == NULL)
		return f;
	object_free(f);
	return NULL;
}

static bool
object_same(const void *x, const void *y)
{
	struct faults *a, *b;
	struct fault_rule *r, *s;

	if (x == y)
		return true;
	a = faults_lock(x);
	b = faults_lock(y);
	r = TAILQ_FIRST(&a->rules);
	s = TAILQ_FIRST(&b->rules);
	while (r != NULL && s != NULL && fault_rule_same(r, s)) {
		r = TAILQ_NEXT(r, link);
		s = TAILQ_NEXT(s, link);
	}
	faults_unlock(a);
	faults_unlock(b);
	return r == NULL && s == NULL;
}

/* --------------------------------------------------------- commands: text */

static int
add(struct faults *f, const char *what, const char *text, char *err,
    size_t errlen)
{
	struct fault_rule *r = malloc(sizeof(*r));
	int ret;

	if (r == NULL)
		return refuse(err, errlen, -ENOMEM, "faults: no memory");
	ret = fault_rule_parse(r, what, text, err, errlen);
	faults_lock(f);
	if (ret == 0 && f->nr_rules == MAX_RULES)
		ret = refuse(err, errlen, -ENOSPC,
		    "faults: there are %u rules already, allowed: no more",
		    MAX_RULES);
	if (ret == 0) {
		r->id = ++f->last_id;
		fault_rule_begin(r, f->seed);
		TAILQ_INSERT_HEAD(&f->rules, r, link);
		f->nr_rules++;
		r = NULL;
	}
	faults_unlock(f);
	free(r);
	return ret;
}

/* Out of the list of what hangs, onto another, go those that are meant. */
static void
take_hung(struct faults *f, uint64_t id, bool given_up, struct hit_list *list)
{
	struct fault_hit *hit, *next;

	faults_lock(f);
	for (hit = TAILQ_FIRST(&f->hung); hit != NULL; hit = next) {
		next = TAILQ_NEXT(hit, link);
		if ((id != 0 && hit->id != id) ||
		    (given_up && !rq_given_up(hit->rq)))
			continue;
		TAILQ_REMOVE(&f->hung, hit, link);
		TAILQ_INSERT_TAIL(list, hit, link);
	}
	faults_unlock(f);
}

static void
end_hung(struct hit_list *list, int error)
{
	struct fault_hit *hit, *next;

	for (hit = TAILQ_FIRST(list); hit != NULL; hit = next) {
		next = TAILQ_NEXT(hit, link);
		if (error != 0)
			hit->rq->error = error;
		rq_complete_posted(hit->rq);
		free(hit);
	}
}

void
faults_let_go(struct faults *f, uint64_t id, int error)
{
	struct hit_list list = TAILQ_HEAD_INITIALIZER(list);

	take_hung(f, id, false, &list);
	end_hung(&list, error);
}

void
faults_let_go_given_up(struct faults *f)
{
	struct hit_list list = TAILQ_HEAD_INITIALIZER(list);

	take_hung(f, 0, true, &list);
	end_hung(&list, -ESHUTDOWN);
}

struct fault_rule *
faults_find(struct faults *f, uint64_t id)
{
	struct fault_rule *r;

	TAILQ_FOREACH(r, &f->rules, link)
		if (r->id == id)
			return r;
	return NULL;
}

static void
remove_all(struct faults *f)
{
	faults_lock(f);
	free_rules(f);
	faults_unlock(f);
	faults_let_go(f, 0, 0);
}

/* "id=N": a rule that there is. */
static int
parse_id(struct faults *f, const char *what, const char *text, uint64_t *id,
    char *err, size_t errlen)
{
	bool known;

	if (strncmp(text, "id=", 3) != 0 || uint_parse(text + 3, NULL, id) != 0)
		return refuse(err, errlen, -EINVAL,
		    "faults: \"%.60s\": allowed: %.*s,id=N", what,
		    (int)strcspn(what, ","), what);
	faults_lock(f);
	known = faults_find(f, *id) != NULL;
	faults_unlock(f);
	if (!known)
		return refuse(err, errlen, -ENOENT,
		    "faults: \"%.60s\": no such rule", what);
	return 0;
}

static int
set_remove(struct faults *f, const char *what, const char *rest, char *err,
    size_t errlen)
{
	struct fault_rule *r;
	uint64_t id = 0;
	int ret = parse_id(f, what, rest, &id, err, errlen);

	if (ret != 0)
		return ret;
	faults_lock(f);
	r = faults_find(f, id);
	TAILQ_REMOVE(&f->rules, r, link);
	f->nr_rules--;
	faults_unlock(f);
	free(r);
	faults_let_go(f, id, 0);
	return 0;
}

static int
set_release(struct faults *f, const char *what, const char *rest, char *err,
    size_t errlen)
{
	uint64_t id = 0;
	int ret = 0;

	if (*rest != '\0')
		ret = parse_id(f, what, rest, &id, err, errlen);
	if (ret == 0)
		faults_let_go(f, id, 0);
	return ret;
}

/* As the kernel has it, nothing goes with it. */
static int
set_remove_all(struct faults *f, const char *what, const char *rest, char *err,
    size_t errlen)
{
	if (*rest != '\0')
		return refuse(err, errlen, -EINVAL,
		    "faults: \"%.60s\": allowed: removeall", what);
	remove_all(f);
	return 0;
}

static const struct {
	const char *name;
	int (*set)(struct faults *f, const char *what, const char *rest,
	    char *err, size_t errlen);
} verbs[] = {
	{ "add", add },
	{ "remove", set_remove },
	{ "removeall", set_remove_all },
	{ "release", set_release },
	{},
};

/* VERB, or VERB,REST; or a rule without a word. */
static int
object_set(void *obj, const char *value, char *err, size_t errlen)
{
	size_t len = strcspn(value, ",");
	const char *rest = value + len + (value[len] == ',');

	if (*value == '\0')
		return refuse(err, errlen, -EINVAL,
		    "faults: \"\": allowed: a rule, remove,id=N, removeall, "
		    "release[,id=N]");
	for (unsigned i = 0; verbs[i].name != NULL; i++)
		if (strlen(verbs[i].name) == len &&
		    strncmp(verbs[i].name, value, len) == 0)
			return verbs[i].set(obj, value, rest, err, errlen);
	return add(obj, value, value, err, errlen);
}

static unsigned
nr_hung(const struct faults *f, uint64_t id)
{
	const struct fault_hit *hit;
	unsigned nr = 0;

	TAILQ_FOREACH(hit, &f->hung, link)
		nr += hit->id == id;
	return nr;
}

static void
object_show(const void *obj, FILE *out)
{
	struct faults *f = faults_lock(obj);
	const struct fault_rule *r;
	const char *before = "";

	TAILQ_FOREACH(r, &f->rules, link) {
		fprintf(out,
		    "%sid=%" PRIu64 ",hits=%" PRIu64 ",seen=%" PRIu64
		    ",hung=%u ",
		    before, r->id, r->hits, r->seen, nr_hung(f, r->id));
		fault_rule_print(r, out);
		before = "\n";
	}
	faults_unlock(f);
}

/* The oldest first: that is how they are added. */
static bool
object_item(const void *obj, size_t i, FILE *out)
{
	struct faults *f = faults_lock(obj);
	const struct fault_rule *r;

	TAILQ_FOREACH_REVERSE(r, &f->rules, rule_list, link)
		if (i-- == 0)
			break;
	if (r != NULL) {
		fputs("add,", out);
		fault_rule_print(r, out);
	}
	faults_unlock(f);
	return r != NULL;
}

const struct attr_object faults_object = {
	.new = object_new,
	.free = object_free,
	.copy = object_copy,
	.same = object_same,
	.set = object_set,
	.show = object_show,
	.item = object_item,
};

bool
faults_info(const struct faults *faults, size_t i, struct fault_info *info)
{
	struct faults *f = faults_lock(faults);
	const struct fault_rule *r;
	FILE *out = NULL;

	TAILQ_FOREACH(r, &f->rules, link)
		if (i-- == 0)
			break;
	if (r != NULL) {
		*info = (struct fault_info){
			.id = r->id,
			.hits = r->hits,
			.seen = r->seen,
			.hung = nr_hung(f, r->id),
			.spent = r->times > 0 && r->hits >= r->times,
		};
		out = fmemopen(info->rule, sizeof(info->rule), "w");
	}
	if (out != NULL) {
		fault_rule_print(r, out);
		fclose(out);
	}
	faults_unlock(f);
	return r != NULL;
}

bool
faults_hits(const struct faults *faults, uint64_t id, uint64_t *hits)
{
	struct faults *f = faults_lock(faults);
	const struct fault_rule *r = faults_find(f, id);

	if (r != NULL)
		*hits = r->done;
	faults_unlock(f);
	return r != NULL;
}

void
faults_watch(struct faults *f,
    void (*hook)(
	void *arg, const struct disk *d, const struct fault_seen *seen),
    void *arg)
{
	f->hook = hook;
	f->hook_arg = arg;
}

uint64_t
faults_last_id(const struct faults *faults)
{
	struct faults *f = faults_lock(faults);
	uint64_t id = f->last_id;

	faults_unlock(f);
	return id;
}

/* ---------------------------------------------------------------- the log */

/* Under the lock. */
void
faults_log_hit(struct faults *f, const struct request *rq,
    const struct fault_hit *hit, uint8_t action)
{
	struct fault_entry *e;

	if (f->log == NULL)
		f->log = calloc(LOG_SIZE, sizeof(*f->log));
	if (f->log == NULL)
		return;
	e = &f->log[f->nr_log++ % LOG_SIZE];
	*e = (struct fault_entry){
		.seq = f->seq,
		.op = rq->op,
		.sector = rq->pos >> SECTOR_SHIFT,
		.nr_sectors = rq->bytes >> SECTOR_SHIFT,
		.id = hit->id,
		.error = hit->error,
		.action = action,
	};
	if (action == FAULT_CORRUPT) {
		e->detail[0] = hit->byte;
		e->detail[1] = hit->bit;
	} else if (action == FAULT_TORN) {
		e->detail[0] = hit->cut;
	} else if (action == FAULT_MISDIRECTED) {
		e->detail[0] = (rq->pos + (uint64_t)hit->shift) >> SECTOR_SHIFT;
	}
}

static void
print_entry(const struct fault_entry *e, FILE *out)
{
	fprintf(out, "%" PRIu64 " %s %" PRIu64 "+%" PRIu64, e->seq,
	    fault_op_name(e->op), e->sector, e->nr_sectors);
	if (e->action == FAULT_ENTRY_TIMEOUT ||
	    e->action == FAULT_ENTRY_REQUEUE) {
		fputs(
		    e->action == FAULT_ENTRY_TIMEOUT ? " timeout" : " requeue",
		    out);
		return;
	}
	fprintf(out, " id=%" PRIu64 " %s", e->id, fault_action_name(e->action));
	if (e->action == FAULT_CORRUPT)
		fprintf(out, " byte %" PRIu64 " bit %" PRIu64, e->detail[0],
		    e->detail[1]);
	if (e->action == FAULT_TORN)
		fprintf(out, " after %" PRIu64 " bytes", e->detail[0]);
	if (e->action == FAULT_MISDIRECTED)
		fprintf(out, " to %" PRIu64, e->detail[0]);
	if (e->error != 0)
		fprintf(out, " %s", strerrorname_np(-e->error));
}

uint64_t
faults_log(const struct faults *faults, FILE *out)
{
	struct faults *f = faults_lock(faults);
	uint64_t first = f->nr_log > LOG_SIZE ? f->nr_log - LOG_SIZE : 0;

	for (uint64_t i = first; i < f->nr_log; i++) {
		print_entry(&f->log[i % LOG_SIZE], out);
		fputc('\n', out);
	}
	faults_unlock(f);
	return first;
}
