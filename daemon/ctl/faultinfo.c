/* SPDX-License-Identifier: MIT */
/*
 * The rules of a disk's faults and what they hit: as JSON over the control
 * socket, and as text.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

static json_t *
pack(const struct fault_info *i)
{
	return json_pack("{s:I, s:s, s:I, s:I, s:i, s:b}", "id",
	    (json_int_t)i->id, "rule", i->rule, "hits", (json_int_t)i->hits,
	    "seen", (json_int_t)i->seen, "hung", (int)i->hung, "spent",
	    i->spent);
}

json_t *
faults_pack(const struct disk *d)
{
	json_t *list = json_array();
	struct fault_info info;

	for (size_t i = 0; faults_info(d->set.faults, i, &info); i++)
		if (json_array_append_new(list, pack(&info)) != 0) {
			json_decref(list);
			return NULL;
		}
	return json_pack("{s:I, s:o}", "seed", (json_int_t)disk_shown(d)->seed,
	    "rules", list);
}

json_t *
faults_pack_log(const struct disk *d)
{
	char *text = NULL;
	json_t *json = NULL;
	uint64_t before = 0;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (out == NULL)
		return NULL;
	before = faults_log(d->set.faults, out);
	if (fclose(out) == 0)
		json = json_pack("{s:I, s:I, s:s}", "seed",
		    (json_int_t)disk_shown(d)->seed, "before",
		    (json_int_t)before, "lines", text);
	free(text);
	return json;
}

static int
print_rule(json_t *json, FILE *out)
{
	json_int_t id, hits, seen;
	const char *rule;
	int hung, spent;

	if (json_unpack(json, "{s:I, s:s, s:I, s:I, s:i, s:b}", "id", &id,
		"rule", &rule, "hits", &hits, "seen", &seen, "hung", &hung,
		"spent", &spent) != 0)
		return -EINVAL;
	fprintf(out,
	    "%4" JSON_INTEGER_FORMAT " %10" JSON_INTEGER_FORMAT
	    " %10" JSON_INTEGER_FORMAT " %5d %5s %s\n",
	    id, hits, seen, hung, spent ? "yes" : "no", rule);
	return 0;
}

int
faults_print(json_t *json, FILE *out)
{
	json_t *rules = json_object_get(json, "rules"), *rule;
	size_t i;

	if (!json_is_array(rules))
		return -EINVAL;
	if (json_array_size(rules) == 0)
		return 0;
	fprintf(out, "%4s %10s %10s %5s %5s %s\n", "ID", "HITS", "SEEN", "HUNG",
	    "SPENT", "RULE");
	json_array_foreach(rules, i, rule)
		if (print_rule(rule, out) != 0)
			return -EINVAL;
	return 0;
}

int
faults_print_log(json_t *json, FILE *out)
{
	const char *lines = json_string_value(json_object_get(json, "lines"));

	if (lines == NULL)
		return -EINVAL;
	fputs(lines, out);
	return 0;
}
