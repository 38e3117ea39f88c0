/* SPDX-License-Identifier: MIT */
/*
 * A power cut as it is asked for, and what is said of it then:
 *
 *	{"command":"power_cut","name":"nullb0","lose":"random","tear":"512"}
 *	{"ok":true,"cut":{"writes":12,"lost":7,"torn":1,"seed":4072}}
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/rng.h"

static const struct word {
	const char *name;
	uint32_t value;
} loses[] = {
	{ "all", CUT_ALL },
	{ "random", CUT_RANDOM },
	{ "ordered", CUT_ORDERED },
	{},
}, tears[] = {
	{ "none", 0 },
	{ "512", 512 },
	{ "4096", 4096 },
	{},
};

/* A member that is one of some words; absent, it is the first. */
static int
word_of(json_t *request, const char *member, const struct word *words,
    uint32_t *out, char *err, size_t errlen)
{
	json_t *json = json_object_get(request, member);
	const char *text = json_string_value(json);
	const struct word *w = words;
	char allowed[64] = "";

	if (json == NULL)
		text = words->name;
	for (; w->name != NULL; w++) {
		if (text != NULL && strcmp(w->name, text) == 0) {
			*out = w->value;
			return 0;
		}
		strcat(allowed, w != words ? ", " : "");
		strcat(allowed, w->name);
	}
	if (text == NULL)
		return refuse(err, errlen, -EINVAL,
		    "%s: not a string; allowed: %s", member, allowed);
	return refuse(err, errlen, -EINVAL, "%s: \"%.60s\": allowed: %s",
	    member, text, allowed);
}

/* One that is a number from 1 on; absent, it is 0. */
static int
number_of(json_t *request, const char *member, uint64_t *out, char *err,
    size_t errlen)
{
	json_t *json = json_object_get(request, member);

	*out = (uint64_t)json_integer_value(json);
	if (json == NULL || (json_is_integer(json) && (int64_t)*out > 0))
		return 0;
	return refuse(err, errlen, -EINVAL,
	    "%s: allowed: a number from 1 to %" PRId64, member, INT64_MAX);
}

static int
bool_of(
    json_t *request, const char *member, bool *out, char *err, size_t errlen)
{
	json_t *json = json_object_get(request, member);

	*out = json_is_true(json);
	if (json == NULL || json_is_boolean(json))
		return 0;
	return refuse(err, errlen, -EINVAL, "%s: allowed: true, false", member);
}

int
cut_parse(struct json_t *request, uint64_t now, struct cut_conf *c, char *err,
    size_t errlen)
{
	uint32_t lose = 0;
	int ret;

	*c = (struct cut_conf){};
	ret = word_of(request, "lose", loses, &lose, err, errlen);
	if (ret == 0)
		ret = word_of(request, "tear", tears, &c->tear, err, errlen);
	if (ret == 0)
		ret = number_of(request, "seed", &c->seed, err, errlen);
	if (ret == 0)
		ret = number_of(request, "at", &c->at, err, errlen);
	if (ret == 0)
		ret = bool_of(request, "on", &c->on, err, errlen);
	c->lose = lose;
	if (ret == 0 && c->seed == 0)
		c->seed = rng_stream(now, 0).state >> 32 | 1;
	return ret;
}

struct json_t *
cut_pack(const struct cut_report *r)
{
	const char *error = r->error != 0 ? strerror(-r->error) : NULL;

	return json_pack("{s:I, s:I, s:I, s:I, s:s*}", "writes",
	    (json_int_t)r->writes, "lost", (json_int_t)r->lost, "torn",
	    (json_int_t)r->torn, "seed", (json_int_t)r->seed, "error", error);
}
