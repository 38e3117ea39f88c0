/* SPDX-License-Identifier: MIT */
/*
 * Zones over the control socket, as blkzone(8) has them: what they are like,
 * and what is done to them.  The ranges of a request mean what they mean there.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- what they are like */

struct json_t *
zoneinfo_pack(const struct disk *d, unsigned i, unsigned count)
{
	unsigned nr = zones_nr(d->zones);
	json_t *list = json_array();
	struct zone_info z;

	if (count > ZONEINFO_MAX)
		count = ZONEINFO_MAX;
	for (; i < nr && count > 0; i++, count--) {
		bool has_wp;

		zones_info(d->zones, i, &z);
		has_wp = z.wp != UINT64_MAX;
		if (json_array_append_new(list,
			json_pack("{s:I, s:I, s:I, s:o, s:i, s:b}", "start",
			    (json_int_t)(z.start >> SECTOR_SHIFT), "len",
			    (json_int_t)(z.len >> SECTOR_SHIFT), "cap",
			    (json_int_t)(z.capacity >> SECTOR_SHIFT), "wp",
			    has_wp ? json_integer(
					 (json_int_t)(z.wp >> SECTOR_SHIFT))
				   : json_null(),
			    "cond", (int)z.cond, "conventional",
			    z.cond == ZONE_NOT_WP)) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* As blkzone's condition_str. */
static const char *
cond_name(json_int_t cond)
{
	switch (cond) {
	case ZONE_NOT_WP: return "nw";
	case ZONE_EMPTY: return "em";
	case ZONE_IMP_OPEN: return "oi";
	case ZONE_EXP_OPEN: return "oe";
	case ZONE_CLOSED: return "cl";
	case ZONE_READONLY: return "ro";
	case ZONE_FULL: return "fu";
	case ZONE_OFFLINE: return "of";
	default: return "x?";
	}
}

static int
print_one(json_t *zone, FILE *out)
{
	json_int_t start, len, cap, cond;
	uint64_t wptr = 0;
	int conventional;
	json_t *wp;

	if (json_unpack(zone, "{s:I, s:I, s:I, s:o, s:I, s:b}", "start", &start,
		"len", &len, "cap", &cap, "wp", &wp, "cond", &cond,
		"conventional", &conventional) != 0)
		return -EINVAL;
	/* the kernel's pointer of a zone that has none is all ones */
	if (!conventional)
		wptr = (json_is_integer(wp) ? (uint64_t)json_integer_value(wp)
					    : UINT64_MAX) -
		       (uint64_t)start;
	fprintf(out,
	    "  start: 0x%09" PRIx64 ", len 0x%06" PRIx64 ", cap 0x%06" PRIx64
	    ", wptr 0x%06" PRIx64 " reset:0 non-seq:0, zcond:%2d(%s) "
	    "[type: %s]\n",
	    (uint64_t)start, (uint64_t)len, (uint64_t)cap, wptr, (int)cond,
	    cond_name(cond),
	    conventional ? "1(CONVENTIONAL)" : "2(SEQ_WRITE_REQUIRED)");
	return 0;
}

int
zoneinfo_print(json_t *list, FILE *out)
{
	json_t *zone;
	size_t i;

	if (!json_is_array(list))
		return -EINVAL;
	json_array_foreach(list, i, zone)
		if (print_one(zone, out) != 0)
			return -EINVAL;
	return 0;
}

/* ---- what is done to them */

struct range {
	uint64_t sector, end;
	uint64_t zone; /* sectors of one */
	uint64_t size; /* and of the device */
};

static json_t *
refused(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static json_t *
refused(int error, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return json_pack("{s:b, s:s, s:s}", "ok", 0, "errno",
	    strerrorname_np(error), "error", text);
}

/* A number from 0 on, if it is there.  False: it is something else. */
static bool
number_of(json_t *request, const char *member, uint64_t *out, bool *given)
{
	json_t *value = json_object_get(request, member);

	*given = value != NULL;
	if (value == NULL)
		return true;
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*out = (uint64_t)json_integer_value(value);
	return true;
}

/* NULL, or the member that is wrong. */
static const char *
range_of(const struct disk *d, json_t *request, struct range *r)
{
	uint64_t count = 0, sectors = 0;
	bool has_sector, has_count, has_sectors;

	*r = (struct range){
		.zone = d->conf.zone_size >> SECTOR_SHIFT,
		.size = d->conf.size >> SECTOR_SHIFT,
	};
	if (!number_of(request, "sector", &r->sector, &has_sector) ||
	    r->sector >= r->size)
		return "sector";
	if (!number_of(request, "count", &count, &has_count) ||
	    (has_count && count == 0))
		return "count";
	if (!number_of(request, "sectors", &sectors, &has_sectors) ||
	    (has_sectors && sectors == 0))
		return "sectors";
	r->end = r->size;
	if (has_count && count < (r->size - r->sector) / r->zone)
		r->end = r->sector + count * r->zone;
	else if (has_sectors && sectors < r->size - r->sector)
		r->end = r->sector + sectors;
	if (json_is_true(json_object_get(request, "all"))) {
		r->sector = d->conf.zone_nr_conv * r->zone;
		r->end = r->size;
	}
	return NULL;
}

/* With "next", what to ask for if there are more. */
static json_t *
report(const struct disk *d, const struct range *r)
{
	uint64_t i = r->sector / r->zone, end = (r->end - 1) / r->zone + 1;
	uint64_t next = (i + ZONEINFO_MAX) * r->zone;
	json_t *answer;

	answer = json_pack("{s:b, s:o}", "ok", 1, "zones",
	    zoneinfo_pack(d, (unsigned)i, (unsigned)(end - i)));
	if (answer == NULL || end - i <= ZONEINFO_MAX)
		return answer;
	if (json_object_set_new(answer, "next",
		json_pack("{s:s, s:s, s:s, s:I, s:I}", "command", "zone",
		    "name", d->name, "action", "report", "sector",
		    (json_int_t)next, "count",
		    (json_int_t)(end - i - ZONEINFO_MAX))) == 0)
		return answer;
	json_decref(answer);
	return NULL;
}

/* Why zones_manage() refused it. */
static json_t *
explain(
    const struct disk *d, const char *action, int error, const struct range *r)
{
	switch (-error) {
	case EINVAL:
		return refused(EINVAL,
		    "%s: zone %s: sectors %" PRIu64 " to %" PRIu64
		    ": allowed: whole zones, of %" PRIu64 " sectors",
		    d->name, action, r->sector, r->end - 1, r->zone);
	case ETOOMANYREFS:
		return refused(ETOOMANYREFS,
		    "%s: zone %s: zone_max_open: %" PRIu32
		    ": no more may be open",
		    d->name, action, d->conf.zone_max_open);
	case EOVERFLOW:
		return refused(EOVERFLOW,
		    "%s: zone %s: zone_max_active: %" PRIu32
		    ": no more may be open or closed",
		    d->name, action, d->conf.zone_max_active);
	}
	return refused(-error,
	    "%s: zone %s: sectors %" PRIu64 " to %" PRIu64
	    ": a zone there is not in a condition for it",
	    d->name, action, r->sector, r->end - 1);
}

static const struct {
	const char *name;
	enum zone_op op;
} actions[] = {
	{ "open", ZONE_OPEN },
	{ "close", ZONE_CLOSE },
	{ "finish", ZONE_FINISH },
	{ "reset", ZONE_RESET },
	{},
};

static json_t *
manage(struct disk *d, const char *action, struct range *r, bool all)
{
	unsigned i = 0;
	int error;

	while (actions[i].name != NULL && strcmp(actions[i].name, action) != 0)
		i++;
	if (actions[i].name == NULL)
		return refused(EINVAL,
		    "zone: \"%.40s\": allowed: report, open, close, finish, "
		    "reset",
		    action);
	if (all && actions[i].op == ZONE_RESET)
		r->sector = 0; /* REQ_OP_ZONE_RESET_ALL */
	error = zones_manage(d->zones, actions[i].op, r->sector << SECTOR_SHIFT,
	    (r->end - r->sector) << SECTOR_SHIFT);
	if (error != 0 && !(all && error == -EIO)) /* all that can be */
		return explain(d, action, error, r);
	return json_pack("{s:b}", "ok", 1);
}

json_t *
zoneinfo_run(struct disk *d, json_t *request)
{
	bool all = json_is_true(json_object_get(request, "all"));
	const char *action, *bad;
	struct range r;

	action = json_string_value(json_object_get(request, "action"));
	if (action == NULL)
		return refused(EINVAL, "zone: which? \"action\" is missing");
	if (d->zones == NULL)
		return refused(ENOTTY, "%s: has no zones", d->name);
	bad = range_of(d, request, &r);
	if (bad != NULL)
		return refused(EINVAL,
		    "%s: zone %.40s: %s: allowed: a number within the device "
		    "(%" PRIu64 " sectors)",
		    d->name, action, bad, r.size);
	if (strcmp(action, "report") == 0)
		return report(d, &r);
	return manage(d, action, &r, all);
}
