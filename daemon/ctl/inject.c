/* SPDX-License-Identifier: MIT */
/*
 * null_blk's directories of fault injection (1.9), which are the kernel's
 * lib/fault-inject.c: four of their files are an attribute of ours, the other
 * four are about the kernel's log and its tasks.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name, *attribute;
} directories[NR_INJECTS + 1] = {
	{ "init_hctx_fault_inject", "init_hctx" },
	{ "requeue_inject", "requeue" },
	{ "timeout_inject", "timeout" },
};

enum type {
	WORD, /* unsigned long */
	UINT,
	INT,
	BOOL
};

static const struct {
	const char *name;
	enum type type;
	unsigned field;   /* of the attribute; or, if it is */
	bool inert;       /* of no effect, of struct inject */
	uint64_t initial; /* then; times are those of 1 kHz kernels */
} files[] = {
	{ .name = "interval", .type = WORD, .field = 0 },
	{ .name = "probability", .type = WORD, .field = 1 },
	{ .name = "space", .type = INT, .field = 2 },
	{ .name = "task-filter", .type = BOOL, .inert = true },
	{ .name = "times", .type = INT, .field = 3 },
	{ .name = "verbose",
	    .type = WORD,
	    .inert = true,
	    .field = 1,
	    .initial = 2 },
	{ .name = "verbose_ratelimit_burst",
	    .type = UINT,
	    .inert = true,
	    .field = 2,
	    .initial = 10 },
	{ .name = "verbose_ratelimit_interval_ms",
	    .type = UINT,
	    .inert = true,
	    .field = 3,
	    .initial = 5000 },
	{},
};

void
inject_init(struct inject *inject)
{
	for (unsigned i = 0; files[i].name != NULL; i++)
		if (files[i].inert)
			inject->inert[files[i].field] = files[i].initial;
}

const char *
inject_directory(unsigned i)
{
	return directories[i].name;
}

const char *
inject_attribute(unsigned i)
{
	return directories[i].attribute;
}

const char *
inject_file(unsigned file)
{
	return files[file].name;
}

/* A field of the attribute; what was never set is as the kernel has it. */
static void
show_field(unsigned i, unsigned field, const struct disk_conf *conf, FILE *out)
{
	char text[128] = "", *rest = text, *word = text;
	FILE *all = fmemopen(text, sizeof(text) - 1, "w");

	if (all == NULL)
		return;
	attr_get(attr_find(disk_attrs, directories[i].attribute), conf, all);
	fclose(all);
	if (text[0] == '\0')
		strcpy(text, "1,0,0,1");
	for (unsigned f = 0; f <= field; f++)
		word = strsep(&rest, ",");
	fprintf(out, "%s\n", word);
}

void
inject_show(const struct inject *inject, unsigned i, unsigned file,
    const struct disk_conf *conf, FILE *out)
{
	if (files[file].inert)
		fprintf(out, "%" PRIu64 "\n", inject->inert[files[file].field]);
	else
		show_field(i, files[file].field, conf, out);
}

static int
parse(enum type type, const char *value, int64_t *out)
{
	uint64_t n = 0;
	bool on = false;
	int ret;

	if (type == INT)
		return int_parse(value, out);
	if (type == BOOL) {
		ret = bool_parse(value, &on);
		*out = on;
		return ret;
	}
	ret = uint_parse(value, NULL, &n);
	if (ret == 0 && type == UINT && n > UINT32_MAX)
		ret = -ERANGE;
	*out = (int64_t)n; /* of a word all bits */
	return ret;
}

int
inject_write(struct inject *inject, unsigned file, const char *value, char *out,
    size_t len)
{
	enum type type = files[file].type;
	int64_t n;
	int ret = parse(type, value, &n);

	out[0] = '\0';
	if (ret != 0)
		return ret;
	/* No task has make-it-fail: nothing would ever be hit. */
	if (type == BOOL && n != 0)
		return -EOPNOTSUPP;
	if (files[file].inert)
		inject->inert[files[file].field] = (uint64_t)n;
	else if (type == INT)
		snprintf(out, len, "%s=%" PRId64, files[file].name, n);
	else
		snprintf(
		    out, len, "%s=%" PRIu64, files[file].name, (uint64_t)n);
	return 0;
}
