/* SPDX-License-Identifier: MIT */
/*
 * All that was asked for: the daemon's settings, and devices in their order.
 * Files and the command line put it in; config_finish() makes it whole.
 */
#include "ctl/ctl.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- devices */

static int
device_init(struct device *d, const char *name, const char *where)
{
	*d = (struct device){};
	snprintf(d->name, sizeof(d->name), "%s", name);
	d->where = strdup(where);
	d->given = calloc(attr_count(disk_attrs), sizeof(*d->given));
	if (d->where == NULL || d->given == NULL)
		return -ENOMEM;
	return attr_init(disk_attrs, &d->conf);
}

static void
device_fini(struct device *d)
{
	attr_fini(disk_attrs, &d->conf);
	free(d->given);
	free(d->where);
}

/* "irqmode=2": somebody has forgotten the name. */
static bool
is_a_setting(const char *name)
{
	size_t len = strcspn(name, "=");
	char attribute[DISK_NAME_LEN];

	if (name[len] == '\0')
		return false;
	snprintf(attribute, sizeof(attribute), "%.*s", (int)len, name);
	return attr_find(disk_attrs, attribute) != NULL ||
	       strcmp(attribute, "nr_devices") == 0;
}

/* It must fit into a disk's name, an export's, and a section's. */
static int
check_name(const char *name, char *err, size_t errlen)
{
	size_t len = strlen(name);

	if (len == 0)
		return refuse(err, errlen, -EINVAL, "a device without a name");
	if (len >= DISK_NAME_LEN)
		return refuse(err, errlen, -EINVAL,
		    "\"%.60s\": a name of %zu bytes; allowed: at most %d", name,
		    len, DISK_NAME_LEN - 1);
	if (is_a_setting(name))
		return refuse(err, errlen, -EINVAL,
		    "\"%s\": a setting, of which device? allowed: "
		    "NAME:ATTRIBUTE=VALUE, as in nullb0:%s",
		    name, name);
	if (!text_valid(name) || strpbrk(name, "/],") != NULL ||
	    isspace((unsigned char)name[0]) ||
	    isspace((unsigned char)name[len - 1]) || strcmp(name, ".") == 0 ||
	    strcmp(name, "..") == 0)
		return refuse(err, errlen, -EINVAL,
		    "\"%s\": bad name; allowed: UTF-8 without '/', ']', ',', "
		    "control characters, blanks at its ends",
		    name);
	if (strcmp(name, "nullbd") == 0 || strcmp(name, "defaults") == 0)
		return refuse(err, errlen, -EINVAL,
		    "%s: no name for a device: it is a section of its own",
		    name);
	return 0;
}

struct device *
config_find(const struct config *c, const char *name)
{
	struct device *d;

	STAILQ_FOREACH(d, &c->devices, link)
		if (strcmp(d->name, name) == 0)
			return d;
	return NULL;
}

bool
device_is_served_as(const struct device *d, const char *name)
{
	char **s = d->conf.export_names;

	if (strcmp(d->name, name) == 0)
		return true;
	for (; s != NULL && *s != NULL; s++)
		if (strcmp(*s, name) == 0)
			return true;
	return false;
}

struct device *
config_find_export(const struct config *c, const char *name)
{
	struct device *d;

	STAILQ_FOREACH(d, &c->devices, link)
		if (device_is_served_as(d, name))
			return d;
	return NULL;
}

struct device *
config_add(struct config *c, const char *name, const char *where, char *err,
    size_t errlen)
{
	struct device *d;

	if (check_name(name, err, errlen) != 0)
		return NULL;
	d = config_find(c, name);
	if (d != NULL) {
		refuse(err, errlen, -EEXIST,
		    "%s: there is one already, from %s", name, d->where);
		return NULL;
	}
	if (c->nr_devices == CONFIG_MAX_DEVICES) {
		refuse(err, errlen, -ENOSPC, "%s: allowed: at most %u devices",
		    name, CONFIG_MAX_DEVICES);
		return NULL;
	}
	d = calloc(1, sizeof(*d));
	if (d == NULL || device_init(d, name, where) != 0) {
		refuse(err, errlen, -ENOMEM, "%s: out of memory", name);
		goto fail;
	}
	STAILQ_INSERT_TAIL(&c->devices, d, link);
	c->nr_devices++;
	return d;

fail:
	if (d != NULL)
		device_fini(d);
	free(d);
	return NULL;
}

void
config_drop(struct config *c, struct device *d)
{
	STAILQ_REMOVE(&c->devices, d, device, link);
	c->nr_devices--;
	device_fini(d);
	free(d);
}

int
disk_conf_set(struct disk_conf *c, const char *name, const char *value,
    char *err, size_t errlen)
{
	char *text = NULL;
	int ret;

	ret = fit_attribute(name, value, &text, err, errlen);
	if (ret == 0)
		ret = attr_set(disk_attrs, c, name, text != NULL ? text : value,
		    false, err, errlen);
	free(text);
	return ret;
}

int
device_set(struct device *d, const char *name, const char *value, char *err,
    size_t errlen)
{
	int ret = disk_conf_set(&d->conf, name, value, err, errlen);

	if (ret == 0)
		d->given[attr_find(disk_attrs, name) - disk_attrs] = true;
	return ret;
}

/* ---- the whole */

int
config_init(struct config *c)
{
	*c = (struct config){};
	STAILQ_INIT(&c->devices);
	STAILQ_INIT(&c->origins);
	c->given = calloc(attr_count(daemon_attrs), sizeof(*c->given));
	if (c->given == NULL || attr_init(daemon_attrs, &c->daemon) != 0 ||
	    device_init(&c->defaults, "", "") != 0) {
		config_fini(c);
		return -ENOMEM;
	}
	return 0;
}

void
config_fini(struct config *c)
{
	struct device *d;

	while ((d = STAILQ_FIRST(&c->devices)) != NULL) {
		STAILQ_REMOVE_HEAD(&c->devices, link);
		device_fini(d);
		free(d);
	}
	config_forget(c);
	device_fini(&c->defaults);
	attr_fini(daemon_attrs, &c->daemon);
	free(c->given);
}

int
config_set(struct config *c, const char *name, const char *value, char *err,
    size_t errlen)
{
	int ret;

	ret =
	    attr_set(daemon_attrs, &c->daemon, name, value, false, err, errlen);
	if (ret == 0)
		c->given[attr_find(daemon_attrs, name) - daemon_attrs] = true;
	return ret;
}

static bool
is_given(const struct config *c, const char *name)
{
	return c->given[attr_find(daemon_attrs, name) - daemon_attrs];
}

bool
config_names_place(const struct config *c)
{
	return is_given(c, "listen") || is_given(c, "port") ||
	       is_given(c, "address");
}

int
device_take_defaults(struct device *d, const struct device *defaults)
{
	size_t n = attr_count(disk_attrs);
	int ret = 0;

	for (size_t i = 0; i < n && ret == 0; i++) {
		if (!defaults->given[i] || d->given[i])
			continue;
		ret = attr_copy_one(&disk_attrs[i], &d->conf, &defaults->conf);
		d->given[i] = true;
	}
	return ret;
}

int
config_finish(struct config *c)
{
	char err[CTL_MAX_ERROR];
	struct device *d;
	uint32_t index = 0;

	if (c->nr_devices == 0 && !c->wants_none &&
	    config_add(c, "nullb0", "nothing", err, sizeof(err)) == NULL)
		return -ENOMEM;
	STAILQ_FOREACH(d, &c->devices, link) {
		if (device_take_defaults(d, &c->defaults) != 0)
			return -ENOMEM;
		d->conf.index = index++;
	}
	return 0;
}

/* ---- what does not fit together */

/* A name under which a device is served. */
struct served {
	const char *name;
	const struct device *device;
};

static int
by_name(const void *a, const void *b)
{
	const struct served *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	if (order != 0)
		return order;
	return x->device->conf.index < y->device->conf.index ? -1 : 1;
}

static size_t
nr_names(const struct device *d)
{
	size_t nr = 1;

	for (char **s = d->conf.export_names; s != NULL && *s != NULL; s++)
		nr++;
	return nr;
}

/* All names of all devices, sorted, to find those that there are twice. */
static struct served *
list_names(const struct config *c, size_t *nr)
{
	struct served *list, *to;
	struct device *d;

	*nr = 0;
	STAILQ_FOREACH(d, &c->devices, link)
		*nr += nr_names(d);
	to = list = calloc(*nr + 1, sizeof(*list));
	if (list == NULL)
		return NULL;
	STAILQ_FOREACH(d, &c->devices, link) {
		*to++ = (struct served){ d->name, d };
		for (size_t i = 0; i + 1 < nr_names(d); i++)
			*to++ = (struct served){ d->conf.export_names[i], d };
	}
	qsort(list, *nr, sizeof(*list), by_name);
	return list;
}

/* Two of a name: names of devices differ, so one is of export_names. */
static void
complain_name(const struct served *a, const struct served *b, FILE *errors)
{
	const struct served *by = b->name == b->device->name ? a : b;
	const struct served *other = by == a ? b : a;

	fprintf(errors,
	    "%s: %s: export_names: \"%.60s\": is a name of %s already\n",
	    by->device->where, by->device->name, by->name, other->device->name);
}

static int
check_names(const struct config *c, FILE *errors)
{
	size_t nr;
	struct served *list = list_names(c, &nr);
	int ret = 0;

	if (list == NULL) {
		fprintf(errors, "out of memory\n");
		return -ENOMEM;
	}
	for (size_t i = 1; i < nr; i++)
		if (strcmp(list[i - 1].name, list[i].name) == 0) {
			complain_name(&list[i - 1], &list[i], errors);
			ret = -EINVAL;
		}
	free(list);
	return ret;
}

static int
check_default(const struct config *c, FILE *errors)
{
	const char *name = c->daemon.default_export;
	const struct device *d;

	if (name == NULL || strcmp(name, DAEMON_NO_DEFAULT) == 0)
		return 0;
	d = config_find_export(c, name);
	if (d != NULL && d->conf.power)
		return 0;
	fprintf(errors,
	    "default_export: \"%.60s\": %s; allowed: the name of a device, "
	    "none\n",
	    name, d == NULL ? "no such device" : "the power is off");
	return -EINVAL;
}

int
config_check(const struct config *c, unsigned nr_cpus, FILE *errors)
{
	struct endpoint endpoints[DAEMON_MAX_LISTENERS];
	struct queue_conf queue;
	struct disk_conf conf;
	char err[CTL_MAX_ERROR];
	struct device *d;
	int ret = 0;

	if (daemon_endpoints(&c->daemon, endpoints, err, sizeof(err)) < 0) {
		fprintf(errors, "%s\n", err);
		ret = -EINVAL;
	}
	if (check_names(c, errors) != 0 || check_default(c, errors) != 0)
		ret = -EINVAL;
	if (daemon_check_tls(&c->daemon, err, sizeof(err)) != 0) {
		fprintf(errors, "%s\n", err);
		ret = -EINVAL;
	}
	STAILQ_FOREACH(d, &c->devices, link)
		if (d->conf.power && disk_check(&d->conf, nr_cpus, &conf,
					 &queue, err, sizeof(err)) != 0) {
			fprintf(errors, "%s: %s: %s\n", d->where, d->name, err);
			ret = -EINVAL;
		}
	return ret;
}

/* ---- printing */

bool
unquote(char *text)
{
	char *to = text, *from = text + 1;

	if (*text != '"')
		return true;
	for (; *from != '"'; *to++ = *from++) {
		if (*from == '\\')
			from++;
		if (*from == '\0')
			return false;
	}
	*to = '\0';
	return from[1] == '\0';
}

/* Would the reader of INI files take it for anything else as it is? */
static bool
needs_quotes(const char *s)
{
	size_t len = strlen(s);

	if (len == 0 || *s == '"' || isspace((unsigned char)*s) ||
	    isspace((unsigned char)s[len - 1]) || *s == ';')
		return true;
	return strstr(s, " ;") != NULL;
}

static void
print_value(const char *s, FILE *out)
{
	if (!needs_quotes(s)) {
		fputs(s, out);
		return;
	}
	fputc('"', out);
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', out);
		fputc(*s, out);
	}
	fputc('"', out);
}

static void
print_line(const struct attr *a, const char *value, bool given, FILE *out)
{
	fprintf(out, "%s%s%s = ", given ? "" : "; ", attr_prefix(a), a->name);
	print_value(value, out);
	fputc('\n', out);
}

static void
print_list(const struct attr *a, const void *obj, FILE *out)
{
	char **list = *(char **const *)((const char *)obj + a->offset);

	if (list == NULL || *list == NULL) /* which was emptied */
		print_line(a, "", true, out);
	for (; list != NULL && *list != NULL; list++)
		print_line(a, *list, true, out);
}

static void
print_object(const struct attr *a, const void *obj, FILE *out)
{
	const void *object =
	    *(const void *const *)((const char *)obj + a->offset);
	bool more = true;
	char *value;
	size_t len;
	FILE *text;

	for (size_t i = 0; more; i++) {
		value = NULL;
		text = open_memstream(&value, &len);
		if (text == NULL)
			return;
		more = a->object->item(object, i, text);
		if (fclose(text) == 0 && more)
			print_line(a, value, true, out);
		free(value);
	}
}

static void
print_attr(const struct attr *a, const void *obj, bool given, FILE *out)
{
	char *value = NULL;
	size_t len;
	FILE *text;

	if (a->type == ATTR_SHOWN)
		return;
	if (a->type == ATTR_LIST && given) {
		print_list(a, obj, out);
		return;
	}
	if (a->type == ATTR_OBJECT && given) {
		print_object(a, obj, out);
		return;
	}
	text = open_memstream(&value, &len);
	if (text == NULL)
		return;
	attr_get(a, obj, text);
	if (fclose(text) == 0)
		print_line(a, value, given, out);
	free(value);
}

static void
print_daemon(const struct config *c, FILE *out)
{
	fputs("[nullbd]\n", out);
	for (size_t i = 0; daemon_attrs[i].name != NULL; i++)
		print_attr(&daemon_attrs[i], &c->daemon, c->given[i], out);
}

/*
 * As it is in force.  A value that left the choice to the kernel, and was
 * given, is so no more than one that was not: what was chosen need not be the
 * same when it is given (255 sectors are 127 KiB, which are 254).
 */
static void
print_device(const struct device *d, unsigned nr_cpus, FILE *out)
{
	struct disk_conf plain, conf;
	struct queue_conf queue;
	char err[1];

	conf = d->conf; /* one that is off is as it was set */
	if (d->conf.power)
		disk_check(&d->conf, nr_cpus, &conf, &queue, err, sizeof(err));
	if (attr_init(disk_attrs, &plain) != 0)
		return;
	fprintf(out, "\n[%s]\n", d->name);
	for (size_t i = 0; disk_attrs[i].name != NULL; i++) {
		const struct attr *a = &disk_attrs[i];
		bool chosen = attr_same(a, &d->conf, &plain) &&
			      !attr_same(a, &d->conf, &conf);

		print_attr(a, &conf, d->given[i] && !chosen, out);
	}
	attr_fini(disk_attrs, &plain);
}

void
config_print(const struct config *c, unsigned nr_cpus, FILE *out)
{
	struct device *d;

	print_daemon(c, out);
	STAILQ_FOREACH(d, &c->devices, link)
		print_device(d, nr_cpus, out);
}
