/* SPDX-License-Identifier: MIT */
/*
 * The table of clients: as JSON over the control socket, and as text.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>

#define NSEC_PER_SEC 1000000000u

static json_t *
pack_features(const struct client *c)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < CLIENT_FEATURES && c->feature[i] != NULL; i++)
		if (json_array_append_new(list, json_string(c->feature[i]))) {
			json_decref(list);
			return NULL;
		}
	return list;
}

/* A number, or null for what there is not. */
static json_t *
pack_number(int64_t number)
{
	return number == CLIENT_NOBODY ? json_null() : json_integer(number);
}

static json_t *
pack(const struct client *c, uint64_t now)
{
	uint64_t age = now > c->since_ns ? now - c->since_ns : 0;

	return json_pack("{s:I, s:s, s:o, s:o, s:s?, s:o, s:s, s:I, s:I, s:o}",
	    "id", (json_int_t)c->id, "peer", c->peer, "pid",
	    pack_number(c->pid), "uid", pack_number(c->uid), "export",
	    c->export, "loop", pack_number(c->loop), "phase", c->phase,
	    "requests", (json_int_t)c->nr_requests, "age_ns", (json_int_t)age,
	    "features", pack_features(c));
}

json_t *
clients_pack(const struct client *c, unsigned nr, uint64_t now)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < nr; i++)
		if (json_array_append_new(list, pack(&c[i], now)) != 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static void
print_peer(const char *peer, json_t *pid, json_t *uid, FILE *out)
{
	char text[CLIENT_PEER + 64];

	if (json_is_integer(pid) && json_is_integer(uid))
		snprintf(text, sizeof(text),
		    "%s, pid %" JSON_INTEGER_FORMAT
		    ", uid %" JSON_INTEGER_FORMAT,
		    peer, json_integer_value(pid), json_integer_value(uid));
	else
		snprintf(text, sizeof(text), "%s", peer);
	fprintf(out, " %-28s", text);
}

static void
print_features(json_t *features, FILE *out)
{
	json_t *name;
	size_t i;

	if (json_array_size(features) == 0)
		fputs(" -", out);
	json_array_foreach(features, i, name)
		fprintf(
		    out, "%s%s", i == 0 ? " " : ",", json_string_value(name));
	fputc('\n', out);
}

static int
print(json_t *c, FILE *out)
{
	json_int_t id, requests, age;
	json_t *pid, *uid, *export, *loop, *features;
	const char *peer, *phase;

	if (json_unpack(c, "{s:I, s:s, s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:o}",
		"id", &id, "peer", &peer, "pid", &pid, "uid", &uid, "export",
		&export, "loop", &loop, "phase", &phase, "requests", &requests,
		"age_ns", &age, "features", &features) != 0)
		return -EINVAL;
	fprintf(out, "%-6" JSON_INTEGER_FORMAT, id);
	print_peer(peer, pid, uid, out);
	fprintf(out, " %-15s",
	    json_is_string(export) ? json_string_value(export) : "-");
	if (json_is_integer(loop))
		fprintf(
		    out, " %4" JSON_INTEGER_FORMAT, json_integer_value(loop));
	else
		fputs(" main", out);
	fprintf(out, " %-12s %8" JSON_INTEGER_FORMAT " %9.1f", phase, requests,
	    (double)age / NSEC_PER_SEC);
	print_features(features, out);
	return 0;
}

int
clients_print(json_t *list, FILE *out)
{
	json_t *c;
	size_t i;

	if (!json_is_array(list))
		return -EINVAL;
	fprintf(out, "%-6s %-28s %-15s %4s %-12s %8s %9s %s\n", "ID", "PEER",
	    "EXPORT", "LOOP", "PHASE", "REQUESTS", "AGE", "FEATURES");
	json_array_foreach(list, i, c)
		if (print(c, out) != 0)
			return -EINVAL;
	return 0;
}
