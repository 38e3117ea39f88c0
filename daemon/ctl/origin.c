/* SPDX-License-Identifier: MIT */
/*
 * What a configuration was made of, step by step, so that it can be made again
 * when its files have changed.
 */
#include "ctl/ctl.h"

#include <sys/stat.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct origin {
	STAILQ_ENTRY(origin) link; /* in config.origins, in order */
	enum origin_kind kind;
	char *text;  /* a path, a device as on the command line, a name */
	char *value; /* of a setting; else NULL */
};

static void
origin_free(struct origin *o)
{
	if (o == NULL)
		return;
	free(o->text);
	free(o->value);
	free(o);
}

int
config_remember(struct config *c, enum origin_kind kind, const char *text,
    const char *value)
{
	struct origin *o = calloc(1, sizeof(*o));

	if (o == NULL)
		return -ENOMEM;
	o->kind = kind;
	o->text = strdup(text);
	o->value = value != NULL ? strdup(value) : NULL;
	if (o->text == NULL || (value != NULL && o->value == NULL)) {
		origin_free(o);
		return -ENOMEM;
	}
	STAILQ_INSERT_TAIL(&c->origins, o, link);
	return 0;
}

void
config_forget(struct config *c)
{
	struct origin *o;

	while ((o = STAILQ_FIRST(&c->origins)) != NULL) {
		STAILQ_REMOVE_HEAD(&c->origins, link);
		origin_free(o);
	}
}

bool
config_has_files(const struct config *c)
{
	const struct origin *o;

	STAILQ_FOREACH(o, &c->origins, link)
		if (o->kind == ORIGIN_INI || o->kind == ORIGIN_MODPROBE)
			return true;
	return false;
}

/* Once there are clients nothing may wait: a pipe was read when we began. */
static int
check_file(const char *path, FILE *errors)
{
	struct stat st;
	int ret = stat(path, &st) == 0 ? 0 : -errno;

	if (ret == 0 && !S_ISREG(st.st_mode))
		ret = -EINVAL;
	if (ret != 0)
		fprintf(errors, "%s: %s\n", path,
		    ret == -EINVAL ? "not a regular file" : strerror(-ret));
	return ret;
}

/* One step.  Not 0: it was complained about. */
static int
take(const struct origin *o, struct config *c, FILE *errors)
{
	char err[CTL_MAX_ERROR] = "";
	int ret = 0;

	switch (o->kind) {
	case ORIGIN_INI:
		ret = check_file(o->text, errors);
		return ret != 0 ? ret : config_ini(c, o->text, errors);
	case ORIGIN_MODPROBE:
		ret = check_file(o->text, errors);
		return ret != 0 ? ret : config_modprobe(c, o->text, errors);
	case ORIGIN_SPEC:
		ret = config_spec(c, o->text, err, sizeof(err));
		break;
	case ORIGIN_SETTING:
		ret = config_set(c, o->text, o->value, err, sizeof(err));
		break;
	}
	if (ret != 0)
		fprintf(errors, "%s\n", err);
	return ret;
}

int
config_again(const struct config *c, struct config *out, FILE *errors)
{
	const struct origin *o;
	int ret = config_init(out);

	if (ret != 0)
		return ret;
	STAILQ_FOREACH(o, &c->origins, link)
		if (take(o, out, errors) != 0)
			ret = -EINVAL;
	if (ret == 0)
		ret = config_finish(out);
	if (ret != 0)
		config_fini(out);
	return ret;
}
