/* SPDX-License-Identifier: MIT */
/*
 * A device that is made at run time, as mkdir in null_blk's configfs does it:
 * from what [defaults] says, as there from the module's parameters.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* An attribute: a string; or several, for one that may be repeated. */
static int
set_all(
    struct device *d, const char *name, json_t *value, char *err, size_t errlen)
{
	json_t *item;
	size_t i;
	int ret = 0;

	if (json_is_string(value))
		return device_set(
		    d, name, json_string_value(value), err, errlen);
	if (!json_is_array(value))
		return refuse(err, errlen, -EINVAL,
		    "%.60s: allowed: a string, or an array of strings", name);
	json_array_foreach(value, i, item)
		if (ret == 0)
			ret = json_is_string(item)
				  ? set_all(d, name, item, err, errlen)
				  : refuse(err, errlen, -EINVAL,
					"%.60s: allowed: strings", name);
	return ret;
}

/* Is it served under a name that another device has? */
static int
check_names(
    const struct config *c, const struct device *d, char *err, size_t errlen)
{
	char **s = d->conf.export_names;
	const struct device *other;

	STAILQ_FOREACH(other, &c->devices, link) {
		if (other == d)
			continue;
		if (device_is_served_as(other, d->name))
			return refuse(err, errlen, -EEXIST,
			    "is a name of %s already", other->name);
	}
	for (; s != NULL && *s != NULL; s++)
		STAILQ_FOREACH(other, &c->devices, link)
			if (other != d && device_is_served_as(other, *s))
				return refuse(err, errlen, -EEXIST,
				    "export_names: \"%.60s\": is a name of %s "
				    "already",
				    *s, other->name);
	return 0;
}

int
config_create(struct config *c, const char *name, json_t *attributes,
    struct device **out, char *err, size_t errlen)
{
	struct device *d;
	const char *attribute;
	json_t *value;
	int ret = 0;

	if (config_find(c, name) != NULL)
		return refuse(err, errlen, -EEXIST, "there is one already");
	d = config_add(c, name, "control", err, errlen);
	if (d == NULL)
		return -EINVAL;
	d->at_run_time = true;
	json_object_foreach(attributes, attribute, value)
		if (ret == 0)
			ret = set_all(d, attribute, value, err, errlen);
	if (ret == 0 && device_take_defaults(d, &c->defaults) != 0)
		ret = refuse(err, errlen, -ENOMEM, "out of memory");
	if (ret == 0)
		ret = check_names(c, d, err, errlen);
	if (ret != 0)
		config_drop(c, d);
	else
		*out = d;
	return ret;
}

/* What is a device's own, or cannot be another's as well. */
static bool
is_its_own(const struct attr *a)
{
	static const char *const own[] = { "index", "export_names", "fill",
		"backing", "crash_log", "trace", NULL };
	unsigned i = 0;

	while (own[i] != NULL && strcmp(a->name, own[i]) != 0)
		i++;
	return own[i] != NULL;
}

int
config_snapshot(struct config *c, const char *name, const struct disk *of,
    struct device **out, char *err, size_t errlen)
{
	struct device *d;
	int ret = 0;

	if (config_find(c, name) != NULL)
		return refuse(err, errlen, -EEXIST, "there is one already");
	d = config_add(c, name, "control", err, errlen);
	if (d == NULL)
		return -EINVAL;
	d->at_run_time = true;
	for (const struct attr *a = disk_attrs; ret == 0 && a->name; a++)
		if (!is_its_own(a))
			ret = attr_copy_one(a, &d->conf, &of->set);
	if (ret != 0)
		refuse(err, errlen, ret, "out of memory");
	else
		ret = check_names(c, d, err, errlen);
	if (ret != 0)
		config_drop(c, d);
	else
		*out = d;
	return ret;
}
