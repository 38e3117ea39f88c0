/* SPDX-License-Identifier: MIT */
/*
 * What happens, for who watches: an event as a line of JSON, and that as a
 * line for a person.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const names[EVENT_NR] = {
	[EVENT_CREATED] = "created",
	[EVENT_REMOVED] = "removed",
	[EVENT_POWER] = "power",
	[EVENT_POWER_CUT] = "power_cut",
	[EVENT_SET] = "set",
	[EVENT_CONNECTED] = "connected",
	[EVENT_NEGOTIATED] = "negotiated",
	[EVENT_GONE] = "gone",
	[EVENT_KICKED] = "kicked",
	[EVENT_FAULT] = "fault",
	[EVENT_SHUTDOWN] = "shutdown",
	[EVENT_DROPPED] = "dropped",
};

/* Clipped, and never in the middle of a character. */
void
event_text(char *out, size_t size, const char *text)
{
	size_t len = strnlen(text, size);

	if (len == size) {
		len--;
		while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
			len--;
	}
	memcpy(out, text, len);
	out[len] = '\0';
}

/* What is no UTF-8 is shown as far as it is ASCII. */
static json_t *
string_of(const char *text)
{
	json_t *json = json_string(text);
	char *copy;

	if (json != NULL)
		return json;
	copy = strdup(text);
	if (copy == NULL)
		return NULL;
	for (char *c = copy; *c != '\0'; c++)
		if ((*c & 0x80) != 0)
			*c = '?';
	json = json_string(copy);
	free(copy);
	return json;
}

/* What there is to tell of one of its kind, beside the device. */
static json_t *
details(const struct event *e)
{
	switch (e->kind) {
	case EVENT_CREATED: return json_pack("{s:s}", "by", e->by);
	case EVENT_POWER: return json_pack("{s:b}", "power", e->on);
	case EVENT_POWER_CUT: return cut_pack(&e->cut);
	case EVENT_SET:
		return json_pack("{s:o, s:o, s:s}", "attribute",
		    string_of(e->name), "value", string_of(e->text), "by",
		    e->by);
	case EVENT_CONNECTED:
	case EVENT_GONE:
	case EVENT_KICKED:
		return json_pack("{s:I, s:o}", "client", (json_int_t)e->id,
		    "peer", string_of(e->name));
	case EVENT_NEGOTIATED:
		return json_pack("{s:I, s:o, s:o}", "client", (json_int_t)e->id,
		    "peer", string_of(e->name), "export", string_of(e->text));
	case EVENT_FAULT:
		return json_pack("{s:I, s:s, s:I, s:I, s:s}", "id",
		    (json_int_t)e->id, "op", e->op, "sector",
		    (json_int_t)e->sector, "nr_sectors",
		    (json_int_t)e->nr_sectors, "action", e->action);
	case EVENT_DROPPED:
		return json_pack("{s:I}", "count", (json_int_t)e->id);
	case EVENT_REMOVED:
	case EVENT_SHUTDOWN:
	case EVENT_NR: break;
	}
	return json_object();
}

char *
event_line(const struct event *e)
{
	json_t *json = json_pack("{s:I, s:I, s:s}", "seq", (json_int_t)e->seq,
	    "time_ns", (json_int_t)e->ns, "event", names[e->kind]);
	json_t *more = details(e);
	char *text = NULL, *line = NULL;

	if (json != NULL && e->device[0] != '\0')
		json_object_set_new(json, "device", string_of(e->device));
	if (json != NULL && more != NULL && json_object_update(json, more) == 0)
		text = json_dumps(json, JSON_COMPACT);
	json_decref(more);
	json_decref(json);
	if (text != NULL && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}

/* ---- to a person */

/* UTC, and microseconds: what clocks are good for. */
static void
print_time(uint64_t ns, FILE *out)
{
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;
	char text[32];

	gmtime_r(&seconds, &tm);
	strftime(text, sizeof(text), "%FT%T", &tm);
	fprintf(out, "%s.%06" PRIu64 "Z", text, ns % 1000000000 / 1000);
}

/* Could it be taken for several, or does it steer a terminal? */
static bool
is_plain(const char *text)
{
	if (*text == '\0')
		return false;
	for (; *text != '\0'; text++)
		if ((unsigned char)*text <= ' ' || *text == '"' ||
		    *text == 0x7f)
			return false;
	return true;
}

static void
print_member(const char *name, json_t *value, FILE *out)
{
	if (json_is_integer(value))
		fprintf(out, " %s=%" JSON_INTEGER_FORMAT, name,
		    json_integer_value(value));
	else if (json_is_boolean(value))
		fprintf(out, " %s=%d", name, json_is_true(value));
	else if (json_is_string(value) && is_plain(json_string_value(value)))
		fprintf(out, " %s=%s", name, json_string_value(value));
	else if (json_is_string(value)) {
		fprintf(out, " %s=", name);
		json_dumpf(value, out, JSON_ENCODE_ANY);
	}
}

int
event_print(json_t *json, FILE *out)
{
	const char *event, *device = NULL, *name;
	json_int_t seq, ns;
	json_t *value;

	if (json_unpack(json, "{s:I, s:I, s:s, s?s}", "seq", &seq, "time_ns",
		&ns, "event", &event, "device", &device) != 0 ||
	    ns < 0)
		return -EINVAL;
	print_time((uint64_t)ns, out);
	fprintf(out, " %s", event);
	if (device != NULL)
		fprintf(out, " %s", device);
	json_object_foreach(json, name, value)
		if (strcmp(name, "seq") != 0 && strcmp(name, "time_ns") != 0 &&
		    strcmp(name, "event") != 0 && strcmp(name, "device") != 0)
			print_member(name, value, out);
	fputc('\n', out);
	return 0;
}
