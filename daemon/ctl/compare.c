/* SPDX-License-Identifier: MIT */
/*
 * A configuration that was read again beside the one in force: what of it is
 * otherwise, and so would be after a restart.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Given in order, so that a device in front of others moves them all. */
static bool
is_compared(const struct attr *a)
{
	return a->type != ATTR_SHOWN && strcmp(a->name, "index") != 0;
}

/* On one line. */
static void
print_value(const struct attr *a, const void *obj, FILE *out)
{
	char *text = NULL;
	size_t len;
	FILE *lines = open_memstream(&text, &len);

	if (lines == NULL)
		return;
	attr_get(a, obj, lines);
	if (fclose(lines) == 0)
		for (const char *c = text; *c != '\0'; c++)
			fputs(*c == '\n' ? ", " : (char[]){ *c, '\0' }, out);
	free(text);
}

static unsigned
compare(const char *where, const struct attr *tab, const void *now,
    const void *next, FILE *out)
{
	unsigned nr = 0;

	for (const struct attr *a = tab; a->name != NULL; a++) {
		if (!is_compared(a) || attr_same(a, now, next))
			continue;
		fprintf(
		    out, "%s: %s%s: was \"", where, attr_prefix(a), a->name);
		print_value(a, now, out);
		fputs("\", is \"", out);
		print_value(a, next, out);
		fputs("\": needs a restart\n", out);
		nr++;
	}
	return nr;
}

unsigned
config_compare(const struct config *now, const struct config *next, FILE *out)
{
	const struct device *d, *other;
	char where[CTL_MAX_ERROR];
	unsigned nr;

	nr =
	    compare("[nullbd]", daemon_attrs, &now->daemon, &next->daemon, out);
	STAILQ_FOREACH(d, &now->devices, link) {
		other = config_find(next, d->name);
		if (other == NULL && d->at_run_time)
			continue;
		if (other == NULL) {
			fprintf(out, "%s: is gone, but stays until a restart\n",
			    d->name);
			nr++;
			continue;
		}
		snprintf(where, sizeof(where), "%s: %s", other->where, d->name);
		nr += compare(where, disk_attrs, &d->conf, &other->conf, out);
	}
	return nr;
}

/* May it be served beside all that are? */
static int
check_new(const struct config *now, const struct device *d, FILE *errors)
{
	char **name = d->conf.export_names;
	const struct device *other = config_find_export(now, d->name);

	if (other != NULL) {
		fprintf(errors, "%s: %s: is a name of %s already\n", d->where,
		    d->name, other->name);
		return -EINVAL;
	}
	for (; name != NULL && *name != NULL; name++) {
		other = config_find_export(now, *name);
		if (other == NULL)
			continue;
		fprintf(errors,
		    "%s: %s: export_names: \"%.60s\": is a name of %s "
		    "already\n",
		    d->where, d->name, *name, other->name);
		return -EINVAL;
	}
	return 0;
}

int
config_check_new(
    const struct config *now, const struct config *next, FILE *errors)
{
	unsigned nr = now->nr_devices;
	const struct device *d;
	int ret = 0;

	STAILQ_FOREACH(d, &next->devices, link) {
		if (config_find(now, d->name) != NULL)
			continue;
		nr++;
		if (check_new(now, d, errors) != 0)
			ret = -EINVAL;
	}
	if (nr <= CONFIG_MAX_DEVICES)
		return ret;
	fprintf(errors,
	    "%u devices, with those that stay until a restart; allowed: at "
	    "most %u\n",
	    nr, CONFIG_MAX_DEVICES);
	return -ENOSPC;
}

void
config_adopt(struct config *now, struct config *next, struct device *d)
{
	STAILQ_REMOVE(&next->devices, d, device, link);
	next->nr_devices--;
	STAILQ_INSERT_TAIL(&now->devices, d, link);
	now->nr_devices++;
}
