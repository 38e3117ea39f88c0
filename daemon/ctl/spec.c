/* SPDX-License-Identifier: MIT */
/*
 * A device of the command line:
 *
 *	nullb0:size=4G,memory_backed=1,description="one, two"
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Cut off what stands before the next comma that is in no quotes. */
static char *
next_item(char **rest)
{
	char *item = *rest, *s;
	bool quoted = false;

	if (item == NULL)
		return NULL;
	for (s = item; *s != '\0' && (quoted || *s != ','); s++) {
		if (*s == '"')
			quoted = !quoted;
		if (*s == '\\' && quoted && s[1] != '\0')
			s++;
	}
	*rest = *s != '\0' ? s + 1 : NULL;
	*s = '\0';
	return item;
}

static int
set_item(struct device *d, char *item, char *err, size_t errlen)
{
	char *value = strchr(item, '=');

	if (value == NULL)
		return refuse(err, errlen, -EINVAL,
		    "\"%.60s\": allowed: attribute=value", item);
	*value++ = '\0';
	if (!unquote(value))
		return refuse(err, errlen, -EINVAL,
		    "%.60s: a quote that is not closed, or not at the end",
		    item);
	return device_set(d, item, value, err, errlen);
}

/* The first thing that is wrong, with the device's name before it. */
static int
add(struct config *c, char *spec, char *err, size_t errlen)
{
	char *rest = strchr(spec, ':'), *item, why[400];
	struct device *d;
	int ret = 0;

	if (rest != NULL)
		*rest++ = '\0';
	d = config_add(c, spec, "command line", err, errlen);
	if (d == NULL)
		return -EINVAL;
	while (ret == 0 && (item = next_item(&rest)) != NULL)
		ret = set_item(d, item, why, sizeof(why));
	if (ret != 0)
		refuse(err, errlen, ret, "%s: %s", spec, why);
	return ret;
}

int
config_spec(struct config *c, const char *spec, char *err, size_t errlen)
{
	char *copy = strdup(spec);
	int ret;

	if (copy == NULL || config_remember(c, ORIGIN_SPEC, spec, NULL) != 0)
		ret = refuse(err, errlen, -ENOMEM, "out of memory");
	else
		ret = add(c, copy, err, errlen);
	free(copy);
	return ret;
}
