/* SPDX-License-Identifier: MIT */
/*
 * What fio writes (--write_iolog):
 *
 *	fio version 2 iolog
 *	/dev/nullb0 write 4096 512
 *
 * an action on a file a line; version 3 has the time in front, in us.
 */
#include "ctl/iolog.h"

#include <errno.h>
#include <string.h>

#define NSEC_PER_USEC 1000u

enum act {
	ACT_NONE, /* no I/O of its own */
	ACT_IO,
	ACT_FLUSH,
	ACT_WAIT,
};

static const struct action {
	const char *name;
	enum act act;
	enum req_op op;
	unsigned min, max; /* numbers behind it */
} actions[] = {
	{ "add", ACT_NONE, .max = 0 },
	{ "open", ACT_NONE, .max = 0 },
	{ "close", ACT_NONE, .max = 0 },
	{ "read", ACT_IO, REQ_OP_READ, 2, 2 },
	{ "write", ACT_IO, REQ_OP_WRITE, 2, 2 },
	{ "trim", ACT_IO, REQ_OP_DISCARD, 2, 2 },
	{ "sync", ACT_FLUSH, REQ_OP_FLUSH, 0, 2 },
	{ "datasync", ACT_FLUSH, REQ_OP_FLUSH, 0, 2 },
	/* writes back what direct I/O never leaves behind */
	{ "sync_file_range", ACT_NONE, .max = 2 },
	{ "wait", ACT_WAIT, .min = 1, .max = 2 },
	{},
};

#define MAX_WORDS 5u /* time, file, action, offset, length */

struct fio {
	struct iolog *log;
	struct source *source;
	unsigned version;
	uint64_t ns; /* of the last line; the waits so far */
	bool waited; /* since the last I/O */
	char *word[MAX_WORDS + 1];
	char **rest; /* the words from the file's name on */
	unsigned nr; /* of them */
};

static int
complain(
    struct fio *f, const char *what, const char *value, const char *allowed)
{
	char err[CTL_MAX_ERROR];

	snprintf(err, sizeof(err), "%s: \"%.60s\": allowed: %s", what, value,
	    allowed);
	source_complain(f->source, err);
	return -EINVAL;
}

static int
number(struct fio *f, const char *what, const char *word, uint64_t *out)
{
	const char *p = word;

	if (iolog_number(&p, out) && *p == '\0')
		return 0;
	return complain(f, what, word, "a decimal number below 2^64");
}

static const struct action *
action_find(const char *name)
{
	for (const struct action *a = actions; a->name != NULL; a++)
		if (strcmp(a->name, name) == 0)
			return a;
	return NULL;
}

/* Cut the line into words; one too many tells that there are more. */
static void
split_words(struct fio *f, char *text)
{
	char *save;

	f->nr = 0;
	for (char *w = strtok_r(text, " \t\r", &save);
	     w != NULL && f->nr <= MAX_WORDS;
	     w = strtok_r(NULL, " \t\r", &save))
		f->word[f->nr++] = w;
	f->rest = f->word;
}

/* fio, too, takes a time that goes back as no time passed. */
static int
take_time(struct fio *f)
{
	uint64_t us;
	int ret = number(f, "time", f->word[0], &us);

	if (ret != 0)
		return ret;
	if (us > IOLOG_MAX_NS / NSEC_PER_USEC)
		return complain(f, "time", f->word[0], "at most 146 years");
	if (us * NSEC_PER_USEC > f->ns)
		f->ns = us * NSEC_PER_USEC;
	f->rest++;
	f->nr--;
	return 0;
}

static int
take_wait(struct fio *f)
{
	uint64_t us;
	int ret = number(f, "wait", f->rest[2], &us);

	if (ret != 0)
		return ret;
	if (f->version > 2)
		return complain(f, "action", "wait", "only in version 2");
	if (us > (IOLOG_MAX_NS - f->ns) / NSEC_PER_USEC)
		return complain(f, "wait", f->rest[2], "146 years in all");
	f->ns += us * NSEC_PER_USEC;
	f->waited = true;
	return 0;
}

/* Is the I/O one of those that are wanted?  By default the first one's are. */
static int
picks(struct fio *f, bool *out)
{
	struct iolog *log = f->log;

	if (log->device == NULL)
		log->device = strdup(f->rest[0]);
	if (log->device == NULL)
		return -ENOMEM;
	*out = strcmp(log->device, f->rest[0]) == 0;
	if (!*out)
		log->nr_ignored++;
	return 0;
}

static int
take_range(struct fio *f, struct iolog_io *io)
{
	int ret = number(f, "offset", f->rest[2], &io->pos);

	if (ret == 0)
		ret = number(f, "length", f->rest[3], &io->bytes);
	if (ret == 0 && io->bytes == 0)
		ret = complain(f, "length", "0", "at least 1");
	return ret;
}

static int
take_io(struct fio *f, const struct action *a)
{
	struct iolog_io io = {
		.op = (uint8_t)a->op,
		/* as direct I/O has it */
		.flags = a->op != REQ_OP_READ ? REQ_SYNC : 0,
		.ns = f->ns,
		.line = f->source->line,
		.first = f->waited,
		.alone = a->op == REQ_OP_FLUSH || a->op == REQ_OP_DISCARD,
	};
	char err[CTL_MAX_ERROR];
	bool wanted;
	int ret = 0;

	if (a->act == ACT_IO)
		ret = take_range(f, &io);
	if (ret == 0)
		ret = picks(f, &wanted);
	if (ret != 0 || !wanted)
		return ret;
	f->waited = false;
	ret = iolog_add(f->log, &io, err, sizeof(err));
	if (ret != 0)
		source_complain(f->source, err);
	return ret;
}

static int
take_line(struct fio *f, char *text)
{
	const struct action *a;
	int ret = 0;

	split_words(f, text);
	if (f->nr == 0)
		return 0;
	if (f->version > 2)
		ret = take_time(f);
	if (ret != 0)
		return ret;
	a = f->nr >= 2 ? action_find(f->rest[1]) : NULL;
	if (a == NULL)
		return complain(f, "action", f->nr >= 2 ? f->rest[1] : "",
		    "add, open, close, read, write, trim, sync, datasync, "
		    "sync_file_range, wait");
	if (f->nr - 2 < a->min || f->nr - 2 > a->max) {
		source_complain(f->source,
		    a->max == 0 ? "a file and an action: no numbers follow"
				: "a file and an action: an offset and a "
				  "length follow, and no more");
		return -EINVAL;
	}
	switch (a->act) {
	case ACT_NONE: return 0;
	case ACT_WAIT: return take_wait(f);
	case ACT_IO:
	case ACT_FLUSH: break;
	}
	return take_io(f, a);
}

static int
take_version(struct fio *f)
{
	const char *text = source_line(f->source, false);

	if (text != NULL && strcmp(text, "fio version 2 iolog") == 0)
		f->version = 2;
	else if (text != NULL && strcmp(text, "fio version 3 iolog") == 0)
		f->version = 3;
	else if (f->source->nr_errors == 0)
		source_complain(f->source, "not a recording; " IOLOG_FORMATS);
	return f->version != 0 ? 0 : -EINVAL;
}

int
fio_read(struct iolog *log, struct source *s, const char *device)
{
	struct fio f = { .log = log, .source = s };
	int ret = take_version(&f);
	char *text;

	if (device != NULL) {
		log->device = strdup(device);
		if (log->device == NULL)
			return -ENOMEM;
	}
	log->timed = f.version > 2;
	while (ret == 0 && (text = source_line(s, false)) != NULL)
		ret = s->nr_errors == 0 ? take_line(&f, text) : -EINVAL;
	return s->nr_errors > 0 ? -EINVAL : ret;
}
