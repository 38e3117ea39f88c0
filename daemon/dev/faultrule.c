/* SPDX-License-Identifier: MIT */
/*
 * A rule as text: what it is about, and what happens, as the kernel's
 * error_injection has it (Documentation/block/error-injection.rst), and more:
 *
 *	add,op=READ|WRITE,start=2048,nr_sectors=8,chance=10,status=MEDIUM
 *	add,op=WRITE,after=100,times=1,action=torn,keep=1
 *
 * Keys and actions are tables.  A rule that has anything wrong is none.
 */
#include "dev/fault.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULE 1024u /* bytes of its text */
#define MAX_KEYS 256u  /* of all names of keys */
#define MAX_DELAY_NS                                             \
	600000000000u /* a typo is not to keep a client for days \
		       */

#define OP(name) (1u << REQ_OP_##name)
#define CHANGES  (OP(WRITE) | OP(DISCARD) | OP(WRITE_ZEROES))

/* ------------------------------------------------------------------ names */

static const struct {
	const char *name;
	uint8_t op;
} ops[] = {
	{ "READ", REQ_OP_READ },
	{ "WRITE", REQ_OP_WRITE },
	{ "FLUSH", REQ_OP_FLUSH },
	{ "DISCARD", REQ_OP_DISCARD },
	{ "WRITE_ZEROES", REQ_OP_WRITE_ZEROES },
	{},
};

/* blk_errors[] of the kernel; several mean EIO here and there. */
static const struct fault_status statuses[] = {
	{ "IOERR", -EIO },
	{ "NOTSUPP", -EOPNOTSUPP },
	{ "TIMEOUT", -ETIMEDOUT },
	{ "NOSPC", -ENOSPC },
	{ "TRANSPORT", -ENOLINK },
	{ "TARGET", -EREMOTEIO },
	{ "RESV_CONFLICT", -EBADE },
	{ "MEDIUM", -ENODATA },
	{ "PROTECTION", -EILSEQ },
	{ "RESOURCE", -ENOMEM },
	{ "AGAIN", -EAGAIN },
	{ "DEV_RESOURCE", -EBUSY },
	{ "ZONE_OPEN_RESOURCE", -ETOOMANYREFS },
	{ "ZONE_ACTIVE_RESOURCE", -EOVERFLOW },
	{ "OFFLINE", -ENODEV },
	{ "DURATION_LIMIT", -ETIME },
	{ "INVAL", -EINVAL },
	/* what NBD has a name for, and the kernel has not */
	{ "EPERM", -EPERM },
	{ "ESHUTDOWN", -ESHUTDOWN },
	{},
};

/* What an action is about, and which keys it takes besides. */
enum {
	TAKES_STATUS = 1 << 0,
	TAKES_DELAY = 1 << 1,
	TAKES_AT = 1 << 2,
	TAKES_BIT = 1 << 3,
	TAKES_SHIFT = 1 << 4,
	TAKES_KEEP = 1 << 5
};

#define ANY     (OP(READ) | CHANGES)
#define FLUSHES (ANY | OP(FLUSH))

static const struct action {
	const char *name;
	unsigned takes;
	uint32_t ops;         /* that it can be about, */
	uint32_t default_ops; /* and is when nothing is said */
} actions[] = {
	[FAULT_ERROR] = { "error", TAKES_STATUS | TAKES_DELAY, FLUSHES, ANY },
	[FAULT_DELAY] = { "delay", TAKES_STATUS | TAKES_DELAY, FLUSHES, ANY },
	[FAULT_HANG] = { "hang", TAKES_STATUS, FLUSHES, ANY },
	[FAULT_DROP] = { "drop", TAKES_AT | TAKES_DELAY, ANY, ANY },
	[FAULT_CORRUPT] = { "corrupt", TAKES_BIT | TAKES_DELAY,
	    OP(READ) | OP(WRITE), OP(READ) | OP(WRITE) },
	[FAULT_LOST] = { "lost", TAKES_DELAY, CHANGES | OP(FLUSH), CHANGES },
	[FAULT_MISDIRECTED] = { "misdirected", TAKES_SHIFT | TAKES_DELAY, ANY,
	    OP(WRITE) },
	[FAULT_TORN] = { "torn", TAKES_STATUS | TAKES_KEEP | TAKES_DELAY,
	    CHANGES, OP(WRITE) },
	{},
};

static const struct {
	const char *name;
	enum bio_hang_up at;
} places[] = {
	{ "reply", HANG_UP_BEFORE },
	{ "mid-reply", HANG_UP_EARLY },
	{ "mid-payload", HANG_UP_HALFWAY },
	{},
};

const char *
fault_op_name(uint8_t op)
{
	for (unsigned i = 0; ops[i].name != NULL; i++)
		if (ops[i].op == op)
			return ops[i].name;
	return "?";
}

const char *
fault_action_name(enum fault_action action)
{
	return actions[action].name;
}

/* ----------------------------------------------------------------- parsing */

/* A rule as it comes about. */
struct draft {
	struct fault_rule *rule;
	const char *what; /* all that was written, for sentences */
	unsigned keys;    /* bits, by their place in the table */
	unsigned takes;   /* of those that not every action has */
	bool has_action;
	char *err;
	size_t errlen;
};

static int
number(const char *value, const struct unit *unit, uint64_t min, uint64_t max,
    uint64_t *out)
{
	uint64_t n = 0;
	int ret = uint_parse(value, unit, &n);

	if (ret == 0 && (n < min || n > max))
		ret = -ERANGE;
	if (ret == 0)
		*out = n;
	return ret;
}

static int
set_op(struct fault_rule *r, const char *value)
{
	char copy[MAX_RULE + 1], *rest = copy, *name;
	unsigned i;

	snprintf(copy, sizeof(copy), "%s", value);
	while ((name = strsep(&rest, "|")) != NULL) {
		for (i = 0; ops[i].name != NULL; i++)
			if (strcmp(ops[i].name, name) == 0)
				break;
		if (ops[i].name == NULL)
			return -EINVAL;
		r->ops |= 1u << ops[i].op;
	}
	return 0;
}

static int
set_start(struct fault_rule *r, const char *value)
{
	return number(value, NULL, 0, UINT64_MAX, &r->start);
}

/* As the kernel has it: 0 is all that follows.  Until the end of parsing. */
static int
set_nr_sectors(struct fault_rule *r, const char *value)
{
	return number(value, NULL, 0, UINT64_MAX, &r->last);
}

static int
set_chance(struct fault_rule *r, const char *value)
{
	return number(value, NULL, 1, UINT32_MAX, &r->chance);
}

/* Percent, with up to six decimals. */
static int
set_probability(struct fault_rule *r, const char *value)
{
	uint64_t whole = 0, part = 0;
	char copy[24], *dot;
	size_t len = strlen(value);

	if (len > 0 && value[len - 1] == '%')
		len--;
	if (len == 0 || len >= sizeof(copy))
		return -EINVAL;
	memcpy(copy, value, len);
	copy[len] = '\0';
	if (strspn(copy, "0123456789.") != len)
		return -EINVAL;
	dot = strchr(copy, '.');
	if (dot != NULL) {
		*dot++ = '\0';
		if (strlen(dot) == 0 || strlen(dot) > 6 ||
		    strchr(dot, '.') != NULL)
			return -EINVAL;
		part = strtoull(dot, NULL, 10);
		for (len = strlen(dot); len < 6; len++)
			part *= 10;
	}
	whole = strtoull(copy, NULL, 10);
	if (whole > 100)
		return -ERANGE;
	r->probability = whole * (FAULT_ALWAYS / 100) + part;
	return r->probability <= FAULT_ALWAYS ? 0 : -ERANGE;
}

static int
set_every(struct fault_rule *r, const char *value)
{
	return number(value, NULL, 1, UINT64_MAX, &r->every);
}

static int
set_after(struct fault_rule *r, const char *value)
{
	return number(value, NULL, 0, UINT64_MAX, &r->after);
}

static int
set_times(struct fault_rule *r, const char *value)
{
	return number(value, NULL, 1, UINT64_MAX, &r->times);
}

static int
set_action(struct fault_rule *r, const char *value)
{
	for (unsigned i = 0; actions[i].name != NULL; i++)
		if (strcmp(actions[i].name, value) == 0) {
			r->action = i;
			return 0;
		}
	return -EINVAL;
}

/* By the kernel's name, or by that of the errno. */
static int
set_status(struct fault_rule *r, const char *value)
{
	for (const struct fault_status *s = statuses; s->name != NULL; s++)
		if (strcmp(s->name, value) == 0 ||
		    strcmp(strerrorname_np(-s->error), value) == 0) {
			r->status = s;
			return 0;
		}
	return -EINVAL;
}

static int
set_delay(struct fault_rule *r, const char *value)
{
	return number(value, &unit_ns, 1, MAX_DELAY_NS, &r->delay_ns);
}

static int
set_at(struct fault_rule *r, const char *value)
{
	for (unsigned i = 0; places[i].name != NULL; i++)
		if (strcmp(places[i].name, value) == 0) {
			r->at = places[i].at;
			return 0;
		}
	return -EINVAL;
}

static int
set_offset(struct fault_rule *r, const char *value)
{
	return number(value, NULL, 0, UINT32_MAX, &r->offset);
}

static int
set_bit(struct fault_rule *r, const char *value)
{
	return number(value, NULL, 0, 7, &r->bit);
}

static int
set_shift(struct fault_rule *r, const char *value)
{
	bool back = *value == '-';
	uint64_t n = 0;
	int ret = number(value + back, NULL, 1, INT64_MAX / SECTOR_SIZE, &n);

	r->shift = back ? -(int64_t)n : (int64_t)n;
	return ret;
}

static int
set_keep(struct fault_rule *r, const char *value)
{
	return number(value, NULL, 0, UINT32_MAX, &r->keep);
}

static const char OP_WORDS[] =
    "READ, WRITE, FLUSH, DISCARD, WRITE_ZEROES, or several with | between";
static const char STATUS_WORDS[] =
    "IOERR, MEDIUM, NOSPC, TIMEOUT and the other BLK_STS_ names, or an errno "
    "like EIO, ENOSPC, ENOMEM, EPERM, ESHUTDOWN";

static const struct key {
	const char *name;
	int (*set)(struct fault_rule *r, const char *value);
	unsigned takes; /* only actions that take it */
	const char *allowed;
} keys[] = {
	{ "op", set_op, 0, OP_WORDS },
	{ "start", set_start, 0, "a sector" },
	{ "nr_sectors", set_nr_sectors, 0,
	    "a number of sectors; 0: all that follow" },
	{ "chance", set_chance, 0, "a number from 1 on: one in so many" },
	{ "probability", set_probability, 0,
	    "percent, 0 to 100, with up to 6 decimals" },
	{ "every", set_every, 0, "a number from 1 on" },
	{ "after", set_after, 0, "a number" },
	{ "times", set_times, 0, "a number from 1 on" },
	{ "action", set_action, 0,
	    "error, delay, hang, drop, corrupt, lost, misdirected, torn" },
	{ "status", set_status, TAKES_STATUS, STATUS_WORDS },
	{ "errno", set_status, TAKES_STATUS, STATUS_WORDS },
	{ "delay", set_delay, TAKES_DELAY, "a time, 1 ns to 600 s" },
	{ "at", set_at, TAKES_AT, "reply, mid-reply, mid-payload" },
	{ "offset", set_offset, TAKES_BIT, "a byte of the request" },
	{ "bit", set_bit, TAKES_BIT, "0 to 7" },
	{ "shift", set_shift, TAKES_SHIFT, "a number of sectors, or -sectors" },
	{ "keep", set_keep, TAKES_KEEP, "a number of sectors" },
	{},
};

static int
complain_key(const struct draft *d, const char *name)
{
	char list[MAX_KEYS] = "";
	size_t len = 0;

	for (unsigned i = 0; keys[i].name != NULL; i++)
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
		    i > 0 ? ", " : "", keys[i].name);
	assert(len < sizeof(list));
	return refuse(d->err, d->errlen, -EINVAL,
	    "faults: \"%.200s\": %.40s: no such key; allowed: %s", d->what,
	    name, list);
}

static int
complain(const struct draft *d, const char *what, int error)
{
	return refuse(
	    d->err, d->errlen, error, "faults: \"%.200s\": %s", d->what, what);
}

static int
parse_key(struct draft *d, const char *name, const char *value)
{
	unsigned i;
	int ret;

	for (i = 0; keys[i].name != NULL; i++)
		if (strcmp(keys[i].name, name) == 0)
			break;
	if (keys[i].name == NULL)
		return complain_key(d, name);
	if ((d->keys & 1u << i) != 0)
		return refuse(d->err, d->errlen, -EINVAL,
		    "faults: \"%.200s\": %s: given twice", d->what, name);
	if (value == NULL)
		return refuse(d->err, d->errlen, -EINVAL,
		    "faults: \"%.200s\": %s: allowed: %s=VALUE", d->what, name,
		    name);
	d->keys |= 1u << i;
	d->takes |= keys[i].takes;
	if (keys[i].set == set_action)
		d->has_action = true;
	ret = keys[i].set(d->rule, value);
	if (ret == 0)
		return 0;
	return refuse(d->err, d->errlen, ret,
	    "faults: \"%.200s\": %s: \"%.40s\": %sallowed: %s", d->what, name,
	    value, ret == -ERANGE ? "out of range, " : "", keys[i].allowed);
}

static bool
was_given(const struct draft *d, const char *name)
{
	for (unsigned i = 0; keys[i].name != NULL; i++)
		if (strcmp(keys[i].name, name) == 0)
			return (d->keys & 1u << i) != 0;
	return false;
}

/* Only keys that its action has, and those that it must have. */
static int
check_keys(struct draft *d)
{
	struct fault_rule *r = d->rule;
	const struct action *a;

	if (!d->has_action && r->delay_ns > 0)
		r->action = FAULT_DELAY;
	a = &actions[r->action];
	for (unsigned i = 0; keys[i].name != NULL; i++)
		if ((d->keys & 1u << i) != 0 &&
		    (keys[i].takes & ~a->takes) != 0)
			return refuse(d->err, d->errlen, -EINVAL,
			    "faults: \"%.200s\": %s: not with action=%s",
			    d->what, keys[i].name, a->name);
	if (was_given(d, "status") && was_given(d, "errno"))
		return complain(d, "allowed: one of status and errno", -EINVAL);
	if (r->action == FAULT_DELAY && r->delay_ns == 0)
		return complain(d, "action=delay needs delay=TIME", -EINVAL);
	if (r->action == FAULT_DROP && !was_given(d, "at"))
		r->at = HANG_UP_BEFORE;
	if (r->action == FAULT_MISDIRECTED && r->shift == 0)
		return complain(
		    d, "action=misdirected needs shift=SECTORS", -EINVAL);
	if (r->action == FAULT_ERROR && r->status == NULL)
		r->status = &statuses[0];
	return 0;
}

static int
check_ops(struct draft *d)
{
	const struct action *a = &actions[d->rule->action];
	struct fault_rule *r = d->rule;
	uint32_t odd = r->ops & ~a->ops;

	if (r->ops == 0)
		r->ops = a->default_ops;
	for (unsigned i = 0; ops[i].name != NULL; i++)
		if ((odd & 1u << ops[i].op) != 0)
			return refuse(d->err, d->errlen, -EINVAL,
			    "faults: \"%.200s\": op: %s: not with action=%s",
			    d->what, ops[i].name, a->name);
	if (r->has_range && r->ops == OP(FLUSH))
		return complain(d, "a FLUSH has no range", -EINVAL);
	return 0;
}

static int
check_range(struct draft *d)
{
	struct fault_rule *r = d->rule;
	uint64_t nr = r->last;

	r->has_range = was_given(d, "start") || was_given(d, "nr_sectors");
	if (nr > 0 && nr - 1 > UINT64_MAX - r->start)
		return complain(
		    d, "start, nr_sectors: beyond all sectors", -ERANGE);
	r->last = nr > 0 ? r->start + (nr - 1) : UINT64_MAX;
	return 0;
}

int
fault_rule_parse(struct fault_rule *r, const char *what, const char *text,
    char *err, size_t errlen)
{
	struct draft d = {
		.rule = r,
		.what = what,
		.err = err,
		.errlen = errlen,
	};
	char copy[MAX_RULE + 1], *rest = copy, *name, *value;
	int ret = 0;

	*r = (struct fault_rule){
		.chance = 1,
		.probability = FAULT_ALWAYS,
		.every = 1,
		.offset = FAULT_RANDOM,
		.bit = FAULT_RANDOM,
		.keep = FAULT_RANDOM,
	};
	if (strlen(text) > MAX_RULE)
		return refuse(err, errlen, -EINVAL,
		    "faults: a rule of %zu bytes; allowed: at most %u",
		    strlen(text), MAX_RULE);
	memcpy(copy, text, strlen(text) + 1);
	while (ret == 0 && (value = strsep(&rest, ",")) != NULL) {
		if (*value == '\0')
			continue; /* as the kernel has it */
		name = strsep(&value, "=");
		ret = parse_key(&d, name, value);
	}
	if (ret == 0)
		ret = check_range(&d);
	if (ret == 0)
		ret = check_keys(&d);
	if (ret == 0)
		ret = check_ops(&d);
	return ret;
}

/* ---------------------------------------------------------------- printing */

static void
print_ops(uint32_t set, FILE *out)
{
	const char *before = "op=";

	for (unsigned i = 0; ops[i].name != NULL; i++)
		if ((set & 1u << ops[i].op) != 0) {
			fprintf(out, "%s%s", before, ops[i].name);
			before = "|";
		}
}

static void
print_number(const char *name, uint64_t n, uint64_t usual, FILE *out)
{
	if (n != usual)
		fprintf(out, ",%s=%" PRIu64, name, n);
}

static void
print_probability(uint64_t p, FILE *out)
{
	uint64_t part = p % 1000000u;
	int digits = 6;

	if (p == FAULT_ALWAYS)
		return;
	fprintf(out, ",probability=%" PRIu64, p / 1000000u);
	if (part == 0)
		return;
	for (; part % 10 == 0; part /= 10)
		digits--;
	fprintf(out, ".%0*" PRIu64, digits, part);
}

static void
print_range(const struct fault_rule *r, FILE *out)
{
	if (!r->has_range)
		return;
	fprintf(out, ",start=%" PRIu64, r->start);
	if (r->last != UINT64_MAX)
		fprintf(out, ",nr_sectors=%" PRIu64, r->last - r->start + 1);
}

void
fault_rule_print(const struct fault_rule *r, FILE *out)
{
	print_ops(r->ops, out);
	print_range(r, out);
	print_number("chance", r->chance, 1, out);
	print_probability(r->probability, out);
	print_number("every", r->every, 1, out);
	print_number("after", r->after, 0, out);
	print_number("times", r->times, 0, out);
	if (r->action != FAULT_ERROR)
		fprintf(out, ",action=%s", actions[r->action].name);
	if (r->status != NULL)
		fprintf(out, ",status=%s", r->status->name);
	if (r->delay_ns > 0)
		fputs(",delay=", out);
	if (r->delay_ns > 0)
		uint_print(r->delay_ns, &unit_ns, out);
	for (unsigned i = 0; places[i].name != NULL; i++)
		if (r->at == places[i].at)
			fprintf(out, ",at=%s", places[i].name);
	print_number("offset", r->offset, FAULT_RANDOM, out);
	print_number("bit", r->bit, FAULT_RANDOM, out);
	if (r->shift != 0)
		fprintf(out, ",shift=%" PRId64, r->shift);
	print_number("keep", r->keep, FAULT_RANDOM, out);
}

bool
fault_rule_same(const struct fault_rule *a, const struct fault_rule *b)
{
	return a->ops == b->ops && a->start == b->start && a->last == b->last &&
	       a->has_range == b->has_range && a->chance == b->chance &&
	       a->probability == b->probability && a->every == b->every &&
	       a->after == b->after && a->times == b->times &&
	       a->action == b->action && a->status == b->status &&
	       a->delay_ns == b->delay_ns && a->at == b->at &&
	       a->offset == b->offset && a->bit == b->bit &&
	       a->shift == b->shift && a->keep == b->keep;
}

void
fault_rule_begin(struct fault_rule *r, uint64_t seed)
{
	r->seen = 0;
	r->hits = 0;
	r->done = 0;
	r->rng = rng_stream(seed, r->id);
}
