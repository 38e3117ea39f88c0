/* SPDX-License-Identifier: MIT */
/*
 * The devices that `modprobe null_blk` makes: lines like
 *
 *	options null_blk nr_devices=2 gb=4 bs=4096 memory_backed
 *
 * as they stand in modprobe.d, parsed as modprobe and the kernel do.  The
 * parameters of the module are not the attributes of configfs: they have
 * names, types and checks of their own (params[]); what passes is set as an
 * attribute.
 */
#include "ctl/ctl.h"
#include "ctl/source.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MODULE "null_blk"

/* How the module takes a parameter. */
enum param_type {
	PARAM_BOOL, /* may stand alone: yes */
	PARAM_INT,
	PARAM_UINT,
	PARAM_ULONG,
	PARAM_MODE, /* 0, 1 or 2, checked when the module is loaded */
	PARAM_TEXT,
};

/* An attribute has this name, or this alias. */
struct param {
	const char *name;
	enum param_type type;
};

static const struct param params[] = {
	{ .name = "nr_devices", .type = PARAM_UINT },
	{ .name = "gb", .type = PARAM_INT },
	{ .name = "bs", .type = PARAM_INT },
	{ .name = "max_sectors", .type = PARAM_INT },
	{ .name = "queue_mode", .type = PARAM_MODE },
	{ .name = "irqmode", .type = PARAM_MODE },
	{ .name = "completion_nsec", .type = PARAM_ULONG },
	{ .name = "submit_queues", .type = PARAM_INT },
	{ .name = "hw_queue_depth", .type = PARAM_INT },
	{ .name = "memory_backed", .type = PARAM_BOOL },
	{ .name = "discard", .type = PARAM_BOOL },
	{ .name = "no_sched", .type = PARAM_INT },
	{ .name = "virt_boundary", .type = PARAM_BOOL },
	{ .name = "fua", .type = PARAM_BOOL },
	{ .name = "rotational", .type = PARAM_BOOL },
	{ .name = "blocking", .type = PARAM_BOOL },
	{ .name = "cache_size", .type = PARAM_ULONG },
	{ .name = "home_node", .type = PARAM_INT },
	{ .name = "init_hctx", .type = PARAM_TEXT },
	{ .name = "mbps", .type = PARAM_UINT },
	{ .name = "poll_queues", .type = PARAM_INT },
	{ .name = "requeue", .type = PARAM_TEXT },
	{ .name = "shared_tag_bitmap", .type = PARAM_BOOL },
	{ .name = "shared_tags", .type = PARAM_BOOL },
	{ .name = "timeout", .type = PARAM_TEXT },
	{ .name = "use_per_node_hctx", .type = PARAM_BOOL },
	{ .name = "zone_append_max_sectors", .type = PARAM_INT },
	{ .name = "zone_capacity", .type = PARAM_ULONG },
	{ .name = "zone_full", .type = PARAM_BOOL },
	{ .name = "zone_max_active", .type = PARAM_UINT },
	{ .name = "zone_max_open", .type = PARAM_UINT },
	{ .name = "zone_nr_conv", .type = PARAM_UINT },
	{ .name = "zone_size", .type = PARAM_ULONG },
	{ .name = "zoned", .type = PARAM_BOOL },
	{},
};

struct reader {
	struct source source;
	uint64_t nr_devices;
	struct device *template; /* what every device will be */
};

/* ---- values */

/* parameq(): a dash is an underscore. */
static bool
same_name(const char *a, const char *b)
{
	for (; *a != '\0' && *b != '\0'; a++, b++)
		if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b))
			return false;
	return *a == *b;
}

static const struct param *
param_find(const char *name)
{
	for (const struct param *p = params; p->name != NULL; p++)
		if (same_name(p->name, name))
			return p;
	return NULL;
}

/* An int, uint or ulong, as kstrto* and the type's range have it. */
static int
number_parse(enum param_type type, const char *text, int64_t *out)
{
	bool negative = *text == '-';
	uint64_t v = 0, most = INT64_MAX;
	int ret;

	if (negative && type != PARAM_INT)
		return -EINVAL;
	ret = uint_parse(text + negative, NULL, &v);
	if (ret != 0)
		return ret;
	if (type == PARAM_INT)
		most = INT_MAX;
	if (type == PARAM_UINT)
		most = UINT_MAX;
	if (v > most)
		return -ERANGE;
	*out = negative ? -(int64_t)v : (int64_t)v;
	return 0;
}

/* The value as the module keeps it; 0, -EINVAL or -ERANGE. */
static int
param_parse(enum param_type type, const char *text, int64_t *out)
{
	bool yes = false;
	int ret;

	switch (type) {
	case PARAM_BOOL:
		ret = bool_parse(text, &yes);
		*out = yes;
		return ret;
	case PARAM_MODE:
		*out = *text - '0';
		return *out >= 0 && *out <= 2 && text[1] == '\0' ? 0 : -EINVAL;
	case PARAM_TEXT: *out = *text != '\0'; return 0;
	case PARAM_INT:
	case PARAM_UINT:
	case PARAM_ULONG: break;
	}
	return number_parse(type, text, out);
}

/* An int in the module, and unsigned in configfs; there is one node, 0. */
static int64_t
home_node(struct reader *r, int64_t v)
{
	if (v > 0) {
		fprintf(r->source.errors,
		    "%s:%u: note: home_node: %lld: there is no such node; -1 "
		    "taken\n",
		    r->source.path, r->source.line, (long long)v);
		v = -1;
	}
	return (uint32_t)v;
}

static void
take_value(struct reader *r, const struct param *p, int64_t v)
{
	char err[CTL_MAX_ERROR], text[32];

	if (strcmp(p->name, "no_sched") == 0)
		v = v != 0; /* an int in the module, a bool in configfs */
	if (strcmp(p->name, "home_node") == 0)
		v = home_node(r, v);
	if (strcmp(p->name, "bs") == 0 && v > PAGE_SIZE) {
		fprintf(r->source.errors,
		    "%s:%u: note: bs: %lld: more than a page; %u taken\n",
		    r->source.path, r->source.line, (long long)v, PAGE_SIZE);
		v = PAGE_SIZE;
	}
	snprintf(text, sizeof(text), "%lld", (long long)v);
	if (device_set(r->template, p->name, text, err, sizeof(err)) != 0)
		source_complain(&r->source, err);
}

/* The same where it is no number. */
static void
take_text(struct reader *r, const struct param *p, const char *text)
{
	char err[CTL_MAX_ERROR];

	if (device_set(r->template, p->name, text, err, sizeof(err)) != 0)
		source_complain(&r->source, err);
}

static void
set_param(struct reader *r, const char *name, const char *value)
{
	const struct param *p = param_find(name);
	char err[CTL_MAX_ERROR];
	int64_t v = 0;
	int ret;

	if (p == NULL) {
		snprintf(err, sizeof(err), "%s: unknown parameter '%.60s'",
		    MODULE, name);
		source_complain(&r->source, err);
		return;
	}
	if (value == NULL && p->type == PARAM_BOOL)
		value = "1";
	ret = value != NULL ? param_parse(p->type, value, &v) : -EINVAL;
	if (ret != 0) {
		snprintf(err, sizeof(err),
		    "%s: '%.60s' invalid for parameter "
		    "'%s' (%s)",
		    MODULE, value != NULL ? value : "", p->name,
		    strerrorname_np(-ret));
		source_complain(&r->source, err);
		return;
	}
	if (strcmp(p->name, "nr_devices") == 0)
		r->nr_devices = (uint64_t)v;
	else if (p->type == PARAM_TEXT)
		take_text(r, p, value);
	else
		take_value(r, p, v);
}

/* ---- lines */

/* The next word, cut off in place; double quotes hold it together and go. */
static char *
next_word(char **rest)
{
	char *from = *rest, *word, *to;
	bool quoted = false;

	while (isspace((unsigned char)*from))
		from++;
	word = to = from;
	if (*from == '\0')
		return NULL;
	for (; *from != '\0' && (quoted || !isspace((unsigned char)*from));
	     from++) {
		if (*from == '"')
			quoted = !quoted;
		else
			*to++ = *from;
	}
	*rest = *from != '\0' ? from + 1 : from;
	*to = '\0';
	return word;
}

/* options MODULE name[=value]...; other commands and modules pass. */
static void
parse_line(struct reader *r, char *text)
{
	char *word = next_word(&text), *value;

	if (word == NULL || *word == '#' || strcmp(word, "options") != 0)
		return;
	word = next_word(&text);
	if (word == NULL) {
		source_complain(&r->source, "options of which module?");
		return;
	}
	if (!same_name(word, MODULE))
		return;
	while ((word = next_word(&text)) != NULL) {
		value = strchr(word, '=');
		if (value != NULL)
			*value++ = '\0';
		set_param(r, word, value);
	}
}

/* ---- devices */

static int
make_device(struct reader *r, struct config *c, const char *name)
{
	char err[CTL_MAX_ERROR];
	const char *path = r->source.path;
	struct device *d = config_add(c, name, path, err, sizeof(err));

	if (d == NULL) {
		fprintf(r->source.errors, "%s: %s\n", path, err);
		return -EINVAL;
	}
	if (attr_copy(disk_attrs, &d->conf, &r->template->conf) != 0)
		return -ENOMEM;
	memcpy(d->given, r->template->given,
	    attr_count(disk_attrs) * sizeof(*d->given));
	return 0;
}

static int
make_devices(struct reader *r, struct config *c)
{
	char name[DISK_NAME_LEN];
	int ret = 0;

	if (r->nr_devices == 0)
		c->wants_none = true;
	for (uint64_t i = 0; i < r->nr_devices && ret == 0; i++) {
		snprintf(
		    name, sizeof(name), "nullb%llu", (unsigned long long)i);
		ret = make_device(r, c, name);
	}
	return ret;
}

int
config_modprobe(struct config *c, const char *path, FILE *errors)
{
	struct reader r = { .nr_devices = 1 };
	struct config scratch;
	char *text;
	int ret = source_open(&r.source, path, errors);

	if (ret != 0)
		return ret;
	ret = config_remember(c, ORIGIN_MODPROBE, path, NULL);
	if (ret == 0)
		ret = config_init(&scratch);
	if (ret == 0) {
		r.template = &scratch.defaults;
		while ((text = source_line(&r.source, true)) != NULL)
			parse_line(&r, text);
		ret = r.source.nr_errors > 0 ? -EINVAL : make_devices(&r, c);
		config_fini(&scratch);
	}
	source_close(&r.source);
	if (ret == -ENOMEM)
		fprintf(errors, "%s: out of memory\n", path);
	return ret;
}
