/* SPDX-License-Identifier: MIT */
/*
 * A fio job file, for devices that are served over NBD.  Lines that say where
 * the I/O goes, and how, are left out, and each job says both at its end; the
 * others stay as they are, in their order.
 */
#include "compare.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE   4095u /* fio reads no more of one */
#define MAX_TARGET 256u  /* that one file names */

/* What fio's engines do with a file or a device, nbd does too. */
static const char *const file_engines[] = { "sync", "psync", "vsync", "pvsync",
	"pvsync2", "libaio", "posixaio", "io_uring", "io_uring_cmd", "mmap",
	"splice", "sg", "windowsaio", "solarisaio", "nbd", NULL };
/* These have nothing to do with it. */
static const char *const other_engines[] = { "cpuio", "exec", "null", NULL };

/* Options that only those engines have, or that are about files. */
static const char *const dropped[] = { "cmdprio", "cmdprio_bssplit",
	"cmdprio_class", "cmdprio_percentage", "cmd_type", "directory",
	"fallocate", "filename_format", "file_service_type", "filesize",
	"fixedbufs", "force_async", "hipri", "hipri_percentage",
	"md_per_io_size", "nonvectored", "nowait", "nrfiles", "nr_files",
	"opendir", "openfiles", "readfua", "registerfiles", "sg_write_mode",
	"sqthread_poll", "sqthread_poll_cpu", "stream_id", "thp", "uncached",
	"unlink", "unlink_each_loop", "userspace_reap", "writefua", NULL };

/* Options of the log of IOPS, which is read after each run. */
static const char *const log_options[] = { "log_alternate_epoch",
	"log_alternate_epoch_clock_id", "log_avg_msec", "log_max_value",
	"log_store_compressed", "log_unix_epoch", "log_window_value",
	"per_job_logs", "write_iops_log", NULL };

/* A name of the file, and the target that stands for it. */
struct place {
	char *name;
	const struct target *target;
};

/* What holds for a job: its own, or the last [global]'s. */
struct where {
	char *engine;   /* NULL: fio's own choice */
	char *filename; /* as it stands there; NULL: none */
	char *uri;
};

struct rewrite {
	const struct target *target;
	size_t nr_targets;
	struct comparison *notes; /* NULL: nobody wants them */
	unsigned runtime_s;
	char **error;
	FILE *out;
	struct where global;
	struct place place[MAX_TARGET];
	size_t nr_places;
};

/* A section: its lines are those from its header to the next. */
struct section {
	char name[MAX_LINE + 1];
	struct where where;
	FILE *body; /* the lines that stay */
	char *text;
	size_t len;
};

static bool
is_among(const char *const *names, const char *name)
{
	for (; *names != NULL; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

/* Each once: several jobs say the same. */
__attribute__((format(printf, 2, 3))) static int
note(struct rewrite *r, const char *fmt, ...)
{
	char *text;
	va_list ap;
	size_t i;
	int ret;

	if (r->notes == NULL)
		return 0;
	va_start(ap, fmt);
	ret = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (ret < 0)
		return -ENOMEM;
	for (i = 0; i < r->notes->nr_notes; i++)
		if (strcmp(r->notes->notes[i], text) == 0)
			break;
	ret =
	    i == r->notes->nr_notes ? comparison_note(r->notes, "%s", text) : 0;
	free(text);
	return ret;
}

static void
where_fini(struct where *w)
{
	free(w->engine);
	free(w->filename);
	free(w->uri);
}

/* ---- which device is meant */

/* fio replaces ${NAME}; an unset one stays as it is. */
static char *
expand(const char *text)
{
	char name[256], *out = NULL;
	const char *end, *value;
	size_t len = 0;
	FILE *f = open_memstream(&out, &len);

	if (f == NULL)
		return NULL;
	while (*text != '\0') {
		end = strncmp(text, "${", 2) == 0 ? strchr(text, '}') : NULL;
		value = NULL;
		if (end != NULL && (size_t)(end - text - 2) < sizeof(name)) {
			memcpy(name, text + 2, (size_t)(end - text - 2));
			name[end - text - 2] = '\0';
			value = getenv(name);
		}
		if (value != NULL) {
			fputs(value, f);
			text = end + 1;
		} else {
			fputc(*text++, f);
		}
	}
	if (fclose(f) != 0) {
		free(out);
		return NULL;
	}
	return out;
}

static const struct target *
target_named(const struct rewrite *r, const char *name)
{
	size_t i;

	for (i = 0; i < r->nr_targets; i++)
		if (strcmp(r->target[i].name, name) == 0)
			return &r->target[i];
	return NULL;
}

static bool
is_null_blk(const char *name)
{
	return strncmp(name, "nullb", 5) == 0 &&
	       isdigit((unsigned char)name[5]);
}

/* "nullb0, nullb1": the caller frees it. */
static char *
all_targets(const struct rewrite *r)
{
	char *out = NULL;
	size_t len = 0, i;
	FILE *f = open_memstream(&out, &len);

	if (f == NULL)
		return NULL;
	for (i = 0; i < r->nr_targets; i++)
		fprintf(f, "%s%s", i > 0 ? ", " : "", r->target[i].name);
	return fclose(f) == 0 ? out : NULL;
}

static int
refuse_place(struct rewrite *r, const char *name, const char *why)
{
	char *all = all_targets(r);
	int ret;

	if (all == NULL)
		return -ENOMEM;
	ret = compare_error(
	    r->error, "%s: %s; the devices are: %s", name, why, all);
	free(all);
	return ret;
}

/* The first target that no other name stands for. */
static const struct target *
target_left(const struct rewrite *r)
{
	size_t i, k;

	for (i = 0; i < r->nr_targets; i++) {
		for (k = 0; k < r->nr_places; k++)
			if (r->place[k].target == &r->target[i])
				break;
		if (k == r->nr_places)
			return &r->target[i];
	}
	return NULL;
}

/* Of a device or a file: one of that name, or the next that is left. */
static int
place_of(struct rewrite *r, const char *name, const struct target **out)
{
	const char *slash = strrchr(name, '/');
	const char *base = slash != NULL ? slash + 1 : name;
	size_t i;

	for (i = 0; i < r->nr_places; i++) {
		if (strcmp(r->place[i].name, name) == 0) {
			*out = r->place[i].target;
			return 0;
		}
	}
	*out = target_named(r, base);
	if (*out == NULL && is_null_blk(base))
		return refuse_place(r, name, "no such device");
	if (*out == NULL)
		*out = target_left(r);
	if (*out == NULL || r->nr_places == MAX_TARGET)
		return refuse_place(
		    r, name, "no device is left to stand for it");
	r->place[r->nr_places].name = strdup(name);
	if (r->place[r->nr_places].name == NULL)
		return -ENOMEM;
	r->place[r->nr_places++].target = *out;
	if (strcmp(name, (*out)->name) == 0)
		return 0;
	return note(r, "%s is the device %s", name, (*out)->name);
}

/* The next of fio's list, whose colons a backslash guards.  NULL: no more. */
static char *
next_name(char **list)
{
	char *begin = *list, *in = begin, *out = begin;

	if (*in == '\0')
		return NULL;
	while (*in != '\0' && *in != ':') {
		if (*in == '\\' && in[1] == ':')
			in++;
		*out++ = *in++;
	}
	*list = *in == ':' ? in + 1 : in;
	*out = '\0';
	return begin;
}

static bool
is_list(const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text == ':')
			return true;
		text += *text == '\\' && text[1] != '\0';
	}
	return false;
}

/* %20 is a blank; what is not of that form stays as it is. */
static void
decode(char *text)
{
	char hex[3] = "", *out = text;

	for (; *text != '\0'; text++) {
		if (*text == '%' && isxdigit((unsigned char)text[1]) &&
		    isxdigit((unsigned char)text[2])) {
			memcpy(hex, text + 1, 2);
			*out++ = (char)strtoul(hex, NULL, 16);
			text += 2;
		} else {
			*out++ = *text;
		}
	}
	*out = '\0';
}

/* nbd://HOST/NAME, nbd+unix:///NAME?socket=PATH: what its export is called. */
static char *
export_of(const char *uri)
{
	const char *p = strstr(uri, "://");
	char *name;

	p = p != NULL ? strchr(p + 3, '/') : NULL;
	name = p != NULL ? strndup(p + 1, strcspn(p + 1, "?#")) : strdup("");
	if (name != NULL)
		decode(name);
	return name;
}

/* ---- lines */

/*
 * Without a comment, which begins at any ; or #, and blanks around it; what was
 * there is cut off at its end.
 */
static char *
strip(char *text)
{
	size_t len;

	text[strcspn(text, ";#")] = '\0';
	while (isspace((unsigned char)*text))
		text++;
	len = strlen(text);
	while (len > 0 && isspace((unsigned char)text[len - 1]))
		text[--len] = '\0';
	return text;
}

static int
keep(char **field, const char *value)
{
	char *copy = strdup(value);

	if (copy == NULL)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

/* "ioengine=libaio" has said where the I/O goes: 1, it does not stay. */
static int
take_option(struct rewrite *r, struct section *s, char *key, const char *value)
{
	char **field = NULL;
	int ret;

	if (strcmp(key, "ioengine") == 0)
		field = &s->where.engine;
	else if (strcmp(key, "filename") == 0)
		field = &s->where.filename;
	else if (strcmp(key, "uri") == 0)
		field = &s->where.uri;
	if (field != NULL) {
		ret = keep(field, value);
		return ret != 0 ? ret : 1;
	}
	if (r->runtime_s > 0 &&
	    (strcmp(key, "runtime") == 0 || strcmp(key, "timeout") == 0 ||
		strcmp(key, "time_based") == 0))
		return 1;
	if (is_among(dropped, key))
		ret = note(r,
		    "%s is left out: it has no meaning for ioengine=nbd", key);
	else if (is_among(log_options, key))
		ret = note(r,
		    "%s is left out: the log of IOPS is made for "
		    "the comparison",
		    key);
	else
		return 0;
	return ret != 0 ? ret : 1;
}

static int
take_line(struct rewrite *r, struct section *s, const char *line)
{
	char *copy = expand(line), *key, *value;
	int ret = 0;

	if (copy == NULL)
		return -ENOMEM;
	key = strip(copy);
	value = strchr(key, '=');
	if (value != NULL)
		*value++ = '\0';
	if (strncmp(key, "include", 7) == 0 && isspace((unsigned char)key[7]))
		ret = compare_error(r->error, "%s: the file is not read", key);
	else if (*key != '\0')
		ret = take_option(
		    r, s, strip(key), value != NULL ? strip(value) : "");
	free(copy);
	if (ret == 0)
		fprintf(s->body, "%s\n", line);
	return ret < 0 ? ret : 0;
}

/* ---- sections */

static int
section_begin(struct section *s, const char *name)
{
	memset(s, 0, sizeof(*s));
	memcpy(s->name, name, strlen(name) + 1);
	s->body = open_memstream(&s->text, &s->len);
	return s->body != NULL ? 0 : -ENOMEM;
}

static void
section_fini(struct section *s)
{
	if (s->body != NULL)
		fclose(s->body);
	free(s->text);
	where_fini(&s->where);
}

/* On one device; `name` tells jobs apart that were one. */
static void
write_job(struct rewrite *r, const struct section *s, const char *suffix,
    const struct target *t)
{
	if (suffix != NULL)
		fprintf(r->out, "[%s.%s]\n", s->name, suffix);
	else
		fprintf(r->out, "[%s]\n", s->name);
	fputs(s->text, r->out);
	fprintf(r->out, "ioengine=nbd\nuri=%s\n", t->uri);
}

/* A list of files is one job's in turn; over NBD each has a job. */
static int
write_jobs(struct rewrite *r, const struct section *s, char *list)
{
	bool several = is_list(list);
	const struct target *t;
	char *name;
	int ret;

	while ((name = next_name(&list)) != NULL) {
		if (*name == '\0')
			continue;
		ret = place_of(r, name, &t);
		if (ret != 0)
			return ret;
		write_job(r, s, several ? t->name : NULL, t);
	}
	if (!several)
		return 0;
	return note(r,
	    "job %s has several files: each has a job of its own, "
	    "and what the job says of depth and size is each one's",
	    s->name);
}

static const char *
either(const char *own, const char *global)
{
	return own != NULL ? own : global;
}

static int
section_write_job(struct rewrite *r, struct section *s)
{
	const char *engine = either(s->where.engine, r->global.engine);
	const char *filename = either(s->where.filename, r->global.filename);
	const char *uri = either(s->where.uri, r->global.uri);
	char *list;
	int ret;

	if (engine != NULL && is_among(other_engines, engine)) {
		fprintf(
		    r->out, "[%s]\n%sioengine=%s\n", s->name, s->text, engine);
		return 0;
	}
	if (engine != NULL && !is_among(file_engines, engine))
		return compare_error(r->error,
		    "job %s: ioengine=%s does no I/O on a block "
		    "device, or this does not know it",
		    s->name, engine);
	if (engine == NULL || strcmp(engine, "nbd") != 0) {
		ret = note(r, "ioengine=%s%s became nbd",
		    engine != NULL ? engine : "psync",
		    engine != NULL ? ""
				   : ", which fio takes when none is named,");
		if (ret != 0)
			return ret;
		uri = NULL;
	}
	if (uri != NULL)
		list = export_of(uri);
	else
		list = strdup(filename != NULL ? filename : "");
	if (list == NULL)
		return -ENOMEM;
	if (*list == '\0') { /* fio makes a file then; NBD has a default, too */
		write_job(r, s, NULL, &r->target[0]);
		ret = filename != NULL || uri != NULL
			  ? 0
			  : note(r, "job %s names no file: it is on %s",
				s->name, r->target[0].name);
	} else {
		ret = write_jobs(r, s, list);
	}
	free(list);
	return ret;
}

static void
replace(char **old, char **new)
{
	if (*new == NULL)
		return;
	free(*old);
	*old = *new;
	*new = NULL;
}

static int
section_end(struct rewrite *r, struct section *s)
{
	int ret = 0;

	ret = fclose(s->body) == 0 ? 0 : -ENOMEM;
	s->body = NULL;
	if (ret != 0)
		return ret;
	if (s->name[0] == '\0') { /* before the first */
		fputs(s->text, r->out);
		return 0;
	}
	if (strncmp(s->name, "global", 6) != 0)
		return section_write_job(r, s);
	fprintf(r->out, "[%s]\n%s", s->name, s->text);
	replace(&r->global.engine, &s->where.engine);
	replace(&r->global.filename, &s->where.filename);
	replace(&r->global.uri, &s->where.uri);
	return 0;
}

/* "[name]", as fio reads it: false, it is something else. */
static bool
is_header(const char *line, char *name)
{
	char copy[MAX_LINE + 1], *text;
	size_t len;

	memcpy(copy, line, strlen(line) + 1);
	text = strip(copy);
	len = strlen(text);
	if (*text != '[' || strchr(text, ']') == NULL || len < 3)
		return false;
	memcpy(name, text + 1, len - 2); /* ] may be in it, and is its end */
	name[len - 2] = '\0';
	return true;
}

static int
rewrite_lines(struct rewrite *r, const char *text)
{
	char line[MAX_LINE + 1], name[MAX_LINE + 1];
	struct section s;
	unsigned nr = 0, jobs = 0;
	size_t len;
	int ret = section_begin(&s, "");

	while (ret == 0 && *text != '\0') {
		nr++;
		len = strcspn(text, "\n");
		if (len > MAX_LINE) {
			ret = compare_error(r->error,
			    "line %u: more than %u bytes", nr, MAX_LINE);
			break;
		}
		memcpy(line, text, len);
		line[len] = '\0';
		text += len + (text[len] == '\n');
		if (!is_header(line, name)) {
			ret = take_line(r, &s, line);
			continue;
		}
		ret = section_end(r, &s);
		section_fini(&s);
		if (ret != 0)
			return ret;
		jobs += strncmp(name, "global", 6) != 0;
		ret = section_begin(&s, name);
	}
	if (ret == 0)
		ret = section_end(r, &s);
	section_fini(&s);
	if (ret == 0 && jobs == 0)
		ret = compare_error(
		    r->error, "no job: a line such as [name] begins one");
	return ret;
}

int
jobfile_rewrite(const char *text, const struct target *target, size_t nr,
    unsigned runtime_s, char **out, struct comparison *notes, char **error)
{
	struct rewrite *r = calloc(1, sizeof(*r));
	size_t len = 0, i;
	int ret;

	*out = *error = NULL;
	if (r == NULL)
		return -ENOMEM;
	*r = (struct rewrite){
		.target = target,
		.nr_targets = nr,
		.notes = notes,
		.runtime_s = runtime_s,
		.error = error,
		.out = open_memstream(out, &len),
	};
	ret = r->out != NULL ? 0 : -ENOMEM;
	if (ret == 0 && runtime_s > 0)
		fprintf(
		    r->out, "[global]\ntime_based=1\nruntime=%u\n", runtime_s);
	if (ret == 0)
		ret = rewrite_lines(r, text);
	if (r->out != NULL && fclose(r->out) != 0 && ret == 0)
		ret = -ENOMEM;
	if (ret != 0) {
		free(*out);
		*out = NULL;
	}
	for (i = 0; i < r->nr_places; i++)
		free(r->place[i].name);
	where_fini(&r->global);
	free(r);
	return ret;
}
