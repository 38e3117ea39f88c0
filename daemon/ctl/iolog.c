/* SPDX-License-Identifier: MIT */
/*
 * Recordings of I/O.  The first byte tells which reader takes one, for that
 * much can be pushed back into a pipe; the reader checks the rest:
 *
 *	fio version 2 iolog		fiolog.c
 *	  8,0    1        1 ...		blkparse.c
 *	\7tae, or eat\7			blkread.c
 *
 * What the last two found of several devices and CPUs is put in sequence here.
 */
#include "ctl/iolog.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 1024u
#define MAX_CPUS   UINT16_MAX /* files of a recording of blktrace */
#define MAX_PATH   4096u

/* ---- what the readers share */

void
iolog_where(
    const struct iolog *log, const struct iolog_io *io, char *out, size_t len)
{
	unsigned long long line = io->line;

	if (!log->binary)
		snprintf(out, len, "%s:%llu", log->path, line);
	else if (!log->split)
		snprintf(out, len, "%s: record %llu at byte %llu", log->path,
		    line, (unsigned long long)io->offset);
	else
		snprintf(out, len, "%s.blktrace.%u: record %llu at byte %llu",
		    log->path, io->file, line, (unsigned long long)io->offset);
}

static int
grow(struct iolog *log)
{
	size_t max = log->max > 0 ? 2 * log->max : FIRST_ROOM;
	struct iolog_io *io = realloc(log->io, max * sizeof(*io));

	if (io == NULL)
		return -ENOMEM;
	log->io = io;
	log->max = max;
	return 0;
}

int
iolog_add(
    struct iolog *log, const struct iolog_io *io, char *err, size_t errlen)
{
	if (io->bytes > IOLOG_MAX_BYTES)
		return refuse(err, errlen, -ERANGE,
		    "%llu bytes: allowed: at most %u",
		    (unsigned long long)io->bytes, IOLOG_MAX_BYTES);
	if (io->pos > INT64_MAX || io->bytes > INT64_MAX - io->pos)
		return refuse(err, errlen, -ERANGE,
		    "%llu bytes at %llu: allowed: an end below 2^63",
		    (unsigned long long)io->bytes, (unsigned long long)io->pos);
	if (io->ns > IOLOG_MAX_NS)
		return refuse(err, errlen, -ERANGE,
		    "time: %llu ns: allowed: at most %llu",
		    (unsigned long long)io->ns,
		    (unsigned long long)IOLOG_MAX_NS);
	if (log->nr == IOLOG_MAX_IOS)
		return refuse(
		    err, errlen, -E2BIG, "more than %u I/Os", IOLOG_MAX_IOS);
	if (log->nr == log->max && grow(log) != 0)
		return refuse(err, errlen, -ENOMEM, "out of memory");
	log->io[log->nr++] = *io;
	return 0;
}

bool
iolog_number(const char **p, uint64_t *out)
{
	const char *s = *p;
	uint64_t v = 0;

	for (; isdigit((unsigned char)*s); s++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return false;
	if (s == *p)
		return false;
	*p = s;
	*out = v;
	return true;
}

/* ---- one sequence */

static int
by_time(const void *a, const void *b)
{
	const struct iolog_io *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns < y->ns ? -1 : 1;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

/* "MAJOR,MINOR"; false: it is not. */
static bool
device_parse(const char *text, uint32_t *out)
{
	uint64_t major, minor;

	if (!iolog_number(&text, &major) || *text++ != ',' ||
	    !iolog_number(&text, &minor) || *text != '\0')
		return false;
	if (major > 0xfff || minor > 0xfffff)
		return false;
	*out = (uint32_t)(major << 20 | minor);
	return true;
}

/* Keep those of the device that is wanted, or of the first one's. */
static int
pick_device(struct iolog *log, const char *wanted, FILE *errors)
{
	uint32_t device = log->nr > 0 ? log->io[0].device : 0;
	size_t kept = 0;

	if (wanted != NULL && !device_parse(wanted, &device)) {
		fprintf(errors,
		    "%s: device: \"%.60s\": allowed: MAJOR,MINOR as in 8,0\n",
		    log->path, wanted);
		return -EINVAL;
	}
	for (size_t i = 0; i < log->nr; i++)
		if (log->io[i].device == device)
			log->io[kept++] = log->io[i];
	log->nr_ignored = log->nr - kept;
	log->nr = kept;
	if (asprintf(&log->device, "%u,%u", device >> 20, device & 0xfffff) <
	    0) {
		log->device = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* Each CPU's events are in order; those of several are not. */
static int
sequence(struct iolog *log, const char *device, FILE *errors)
{
	log->timed = true;
	if (log->nr > 0)
		qsort(log->io, log->nr, sizeof(*log->io), by_time);
	return pick_device(log, device, errors);
}

/* ---- which reader */

static int
read_fio(struct iolog *log, FILE *f, const char *device, FILE *errors)
{
	struct source s;

	if (log->service) {
		fprintf(errors,
		    "%s: an iolog does not tell how long I/O took; allowed: "
		    "what blkparse prints, a file of blktrace, fio's JSON\n",
		    log->path);
		return -EINVAL;
	}
	source_attach(&s, log->path, f, errors);
	return fio_read(log, &s, device);
}

static int
read_blkparse(struct iolog *log, FILE *f, const char *device, FILE *errors)
{
	struct source s;
	int ret;

	source_attach(&s, log->path, f, errors);
	ret = blkparse_read(log, &s);
	return ret == 0 ? sequence(log, device, errors) : ret;
}

static int
read_binary(struct iolog *log, FILE *f, const char *device, FILE *errors)
{
	int ret;

	log->binary = true;
	ret = blktrace_read(log, f, 0, errors);
	return ret == 0 ? sequence(log, device, errors) : ret;
}

/*
 * A magic begins with the version or, the other way round, with an e; blkparse
 * begins with a device, or with what it says of its files.
 */
static int
read_open(struct iolog *log, FILE *f, const char *device, FILE *errors)
{
	int c = getc(f);

	if (c == EOF) {
		fprintf(errors, "%s: %s\n", log->path,
		    ferror(f) ? strerror(errno) : "empty");
		return -EINVAL;
	}
	ungetc(c, f);
	if (c == 'e' || c < '\t')
		return read_binary(log, f, device, errors);
	if (c == 'f')
		return read_fio(log, f, device, errors);
	if (isdigit(c) || isspace(c) || strchr("#CIT", c) != NULL)
		return read_blkparse(log, f, device, errors);
	fprintf(errors, "%s: not a recording; %s\n", log->path, IOLOG_FORMATS);
	return -EINVAL;
}

/* NULL: there is none, errno says why. */
static FILE *
open_nth(const struct iolog *log, unsigned n)
{
	char path[MAX_PATH];
	int len = snprintf(path, sizeof(path), "%s.blktrace.%u", log->path, n);

	if (len < 0 || (size_t)len >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	return fopen(path, "re");
}

/* blktrace's files of each CPU, as blkparse finds them: up to one missing. */
static int
read_files(struct iolog *log, FILE *f, const char *device, FILE *errors)
{
	unsigned n = 0;
	int ret = 0;

	log->binary = true;
	log->split = true;
	while (f != NULL) {
		ret = blktrace_read(log, f, n, errors);
		fclose(f);
		if (ret != 0 || ++n == MAX_CPUS)
			break;
		f = open_nth(log, n);
		if (f == NULL && errno != ENOENT) {
			ret = -EINVAL;
			fprintf(errors, "%s.blktrace.%u: %s\n", log->path, n,
			    strerror(errno));
		}
	}
	return ret == 0 ? sequence(log, device, errors) : ret;
}

static int
read_path(struct iolog *log, const char *device, FILE *errors)
{
	FILE *f;
	int ret;

	if (strcmp(log->path, "-") == 0)
		return read_open(log, stdin, device, errors);
	f = fopen(log->path, "re");
	if (f != NULL) {
		ret = read_open(log, f, device, errors);
		fclose(f);
		return ret;
	}
	ret = -errno;
	f = ret == -ENOENT ? open_nth(log, 0) : NULL;
	if (f != NULL)
		return read_files(log, f, device, errors);
	fprintf(errors, "%s: %s\n", log->path, strerror(-ret));
	return ret;
}

/* The clock begins with the first I/O. */
static int
check_found(struct iolog *log, const char *device, FILE *errors)
{
	uint64_t first;

	if (log->nr == 0) {
		fprintf(errors, "%s: no I/O in it%s%s\n", log->path,
		    device != NULL ? " of the device " : "",
		    device != NULL ? device : "");
		return -EINVAL;
	}
	first = log->io[0].ns;
	for (size_t i = 0; i < log->nr; i++)
		log->io[i].ns -= first;
	return 0;
}

static struct iolog *
read_log(const char *path, const char *device, bool service, FILE *errors)
{
	struct iolog *log = calloc(1, sizeof(*log));
	int ret = -ENOMEM;

	if (log != NULL) {
		log->path = path;
		log->service = service;
		ret = read_path(log, device, errors);
	}
	if (ret == 0)
		ret = check_found(log, device, errors);
	if (ret == -ENOMEM)
		fprintf(errors, "%s: out of memory\n", path);
	if (ret == 0)
		return log;
	iolog_free(log);
	return NULL;
}

struct iolog *
iolog_read(const char *path, const char *device, FILE *errors)
{
	return read_log(path, device, false, errors);
}

struct iolog *
iolog_read_service(const char *path, const char *device, FILE *errors)
{
	return read_log(path, device, true, errors);
}

void
iolog_free(struct iolog *log)
{
	if (log == NULL)
		return;
	free(log->io);
	free(log->device);
	free(log);
}
