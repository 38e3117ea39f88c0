/* SPDX-License-Identifier: MIT */
/*
 * The configuration file:
 *
 *	[nullbd]		the daemon
 *	[defaults]		all devices
 *	[nullb0]		a device; its name is the section's
 *	size = 4G		an attribute; "in quotes" if need be
 *
 * libinih reads it, but tells neither the line, nor of a section without
 * settings, and cuts what is too long.  So the reader that feeds it counts
 * the lines, opens the sections, and finds out what it did not like: a line
 * that should have come back as a setting, and didn't, is none.
 */
#include "ctl/ctl.h"
#include "ctl/source.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE SOURCE_MAX_LINE /* as libinih gets it: escapes count twice */

struct reader {
	struct config *config;
	struct source source;
	bool expects_setting;  /* of the line handed out last */
	bool in_daemon;        /* else in `device` */
	struct device *device; /* NULL: in no section, or one that is bad */
};

static void
complain_length(struct reader *r, size_t len, size_t max)
{
	char err[80];

	snprintf(err, sizeof(err), "a line of %zu bytes; allowed: at most %zu",
	    len, max);
	source_complain(&r->source, err);
}

/* ---- sections */

static void
open_section(struct reader *r, const char *name)
{
	char err[CTL_MAX_ERROR], *where;

	r->in_daemon = strcmp(name, "nullbd") == 0;
	if (r->in_daemon)
		return;
	if (strcmp(name, "defaults") == 0) {
		r->device = &r->config->defaults;
		return;
	}
	if (asprintf(&where, "%s:%u", r->source.path, r->source.line) < 0) {
		source_complain(&r->source, "out of memory");
		return;
	}
	r->device = config_add(r->config, name, where, err, sizeof(err));
	if (r->device == NULL)
		source_complain(&r->source, err);
	free(where);
}

/* "[name]", and behind it at most a comment. */
static void
parse_section(struct reader *r, char *text)
{
	char *end = strchr(text, ']');

	r->device = NULL;
	r->in_daemon = false;
	if (end == NULL) {
		source_complain(&r->source, "a section without ]");
		return;
	}
	if (end[1 + strspn(end + 1, " \t")] != '\0' &&
	    strchr(";#", end[1 + strspn(end + 1, " \t")]) == NULL) {
		source_complain(
		    &r->source, "something follows the ] of a section");
		return;
	}
	*end = '\0';
	open_section(r, text + 1);
}

/* ---- settings */

static void
set(struct reader *r, const char *name, char *value)
{
	char err[CTL_MAX_ERROR];
	struct disk_conf scratch;
	int ret;

	if (!unquote(value)) {
		source_complain(&r->source,
		    "a quote that is not closed, or not at the end");
		return;
	}
	if (r->in_daemon) {
		ret = config_set(r->config, name, value, err, sizeof(err));
	} else if (r->device != NULL) {
		ret = device_set(r->device, name, value, err, sizeof(err));
	} else {
		/* in a section that is bad: find what else is wrong */
		if (attr_init(disk_attrs, &scratch) != 0)
			return;
		ret = disk_conf_set(&scratch, name, value, err, sizeof(err));
		attr_fini(disk_attrs, &scratch);
	}
	if (ret != 0)
		source_complain(&r->source, err);
}

/* libinih found a setting in the line that it got last. */
static int
handle(void *user, const char *section, const char *name, const char *value)
{
	struct reader *r = user;
	char *copy = strdup(value);

	r->expects_setting = false;
	if (*section == '\0')
		source_complain(&r->source,
		    "a setting before the first section, "
		    "such as [nullbd] or [nullb0]");
	else if (*name == '\0')
		source_complain(&r->source, "a setting without a name");
	else if (copy == NULL)
		source_complain(&r->source, "out of memory");
	else
		set(r, name, copy);
	free(copy);
	return 1;
}

/* ---- lines */

static void
check_last(struct reader *r)
{
	if (r->expects_setting)
		source_complain(&r->source,
		    "neither [section], nor name = value, nor comment");
	r->expects_setting = false;
}

/* The line without blanks around it. */
static char *
trim(struct reader *r, char *s)
{
	size_t len;

	if (r->source.line == 1 && strncmp(s, "\xef\xbb\xbf", 3) == 0)
		s += 3;
	while (isspace((unsigned char)*s))
		s++;
	len = strlen(s);
	while (len > 0 && isspace((unsigned char)s[len - 1]))
		s[--len] = '\0';
	return s;
}

/*
 * Copy a line.  To libinih a semicolon behind a blank begins a comment even
 * in quotes; with a backslash before it, which unquote() takes away, it does
 * not.  False: no room.
 */
static bool
copy_line(char *to, size_t room, const char *s)
{
	const char *value = s + strcspn(s, "=:");
	bool quoted = false, escaped = false;

	value += *value != '\0';
	value += strspn(value, " \t");
	for (; *s != '\0' && room > 3; s++, room--) {
		if (*s == '"' && (s == value || (quoted && !escaped)))
			quoted = !quoted;
		if (*s == ';' && quoted && !escaped) {
			*to++ = '\\';
			room--;
		}
		escaped = *s == '\\' && quoted && !escaped;
		*to++ = *s;
	}
	memcpy(to, "\n", 2);
	return *s == '\0';
}

/*
 * Feed libinih, as fgets() would.  Blanks in front are taken away: to it they
 * would mean that the line before goes on.
 */
static char *
read_line(char *buf, int size, void *stream)
{
	struct reader *r = stream;
	char *s;

	check_last(r);
	s = source_line(&r->source, false);
	if (s == NULL)
		return NULL;
	s = trim(r, s);
	if (*s == '[') {
		parse_section(r, s);
		snprintf(buf, (size_t)size, "[x]\n");
		return buf;
	}
	if (!copy_line(buf, (size_t)size, s)) {
		complain_length(r, strlen(s), (size_t)size - 3);
		snprintf(buf, (size_t)size, "\n");
		return buf;
	}
	r->expects_setting = *s != '\0' && strchr(";#", *s) == NULL;
	return buf;
}

int
config_ini(struct config *c, const char *path, FILE *errors)
{
	struct reader r = { .config = c };
	int ret = source_open(&r.source, path, errors);

	if (ret != 0)
		return ret;
	if (config_remember(c, ORIGIN_INI, path, NULL) != 0)
		source_complain(&r.source, "out of memory");
	ini_max_line = MAX_LINE + 3; /* "\r\n" and a NUL */
	/* above 0 is a line, and we have seen for ourselves */
	if (ini_parse_stream(read_line, &r, handle, &r) < 0)
		source_complain(&r.source, "out of memory");
	source_close(&r.source);
	return r.source.nr_errors > 0 ? -EINVAL : 0;
}
