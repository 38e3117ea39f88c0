/* SPDX-License-Identifier: MIT */
/*
 * What blkparse prints by default: an event a line, then a summary.
 *
 *	254,0  1  4  0.000859679  211  Q  WS 126490 + 16 [fio]
 *	device cpu seq  time      pid  action, RWBS, sector + sectors, command
 *
 * Only Q events are I/Os as they were submitted, and only D and C what the
 * device did; of the others it is checked that they are events.
 */
#include "ctl/iolog.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define NSEC_PER_SEC 1000000000u
#define NSEC_DIGITS  9

/* How the lines begin that are no events. */
static const char *const other_lines[] = {
	"#",
	"CPU",
	"Total",
	"Input file",
	"Reads ",
	"Read ",
	"PC Reads ",
	"PC Read ",
	"IO unplugs:",
	"Throughput ",
	"Events ",
	"Skips:",
	NULL,
};

static const char *
skip_blanks(const char *p)
{
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

static bool
is_event(const char *text)
{
	text = skip_blanks(text);
	if (*text == '\0')
		return false;
	for (const char *const *o = other_lines; *o != NULL; o++)
		if (strncmp(text, *o, strlen(*o)) == 0)
			return false;
	return true;
}

/* A number between blanks. */
static bool
column(const char **p, uint64_t max, uint64_t *out)
{
	*p = skip_blanks(*p);
	return iolog_number(p, out) && *out <= max &&
	       (isspace((unsigned char)**p) || **p == '\0');
}

/* "254,0" */
static bool
device_column(const char **p, uint32_t *out)
{
	uint64_t major, minor;

	*p = skip_blanks(*p);
	if (!iolog_number(p, &major) || *(*p)++ != ',' || major > 0xfff)
		return false;
	if (isspace((unsigned char)**p) || !column(p, 0xfffff, &minor))
		return false;
	*out = (uint32_t)(major << 20 | minor);
	return true;
}

/* "12.000859679" */
static bool
time_column(const char **p, uint64_t *out)
{
	uint64_t seconds, ns;
	const char *fraction;

	*p = skip_blanks(*p);
	if (!iolog_number(p, &seconds) || *(*p)++ != '.' ||
	    seconds > IOLOG_MAX_NS / NSEC_PER_SEC - 1)
		return false;
	fraction = *p;
	if (isspace((unsigned char)*fraction) || !column(p, UINT64_MAX, &ns) ||
	    *p - fraction != NSEC_DIGITS)
		return false;
	*out = seconds * NSEC_PER_SEC + ns;
	return true;
}

/* Everything up to the action, which *p is left at. */
static bool
head(const char **p, struct iolog_io *io)
{
	uint64_t cpu, sequence, pid;

	if (!device_column(p, &io->device) || !column(p, UINT32_MAX, &cpu) ||
	    !column(p, UINT64_MAX, &sequence) || !time_column(p, &io->ns) ||
	    !column(p, UINT32_MAX, &pid))
		return false;
	io->task = (uint32_t)pid;
	*p = skip_blanks(*p);
	return isupper((unsigned char)**p) || **p == 'm';
}

/* The letter of the operation; N, or none, is a flush if an F was before. */
static bool
operation(char c, bool flush, uint8_t *op)
{
	switch (c) {
	case 'R': *op = REQ_OP_READ; return true;
	case 'W': *op = REQ_OP_WRITE; return true;
	case 'D': *op = REQ_OP_DISCARD; return true;
	default: *op = REQ_OP_FLUSH; return c == 'N' || flush;
	}
}

/* RWBS: "WS", "FWFS", "FN", ...  An F in front is a preflush, behind FUA. */
static bool
rwbs(const char **p, struct iolog_io *io)
{
	bool flush;

	*p = skip_blanks(*p);
	flush = **p == 'F';
	if (flush)
		(*p)++;
	if (!operation(**p, flush, &io->op))
		return false;
	if (flush)
		io->flags |= REQ_PREFLUSH;
	if (!isspace((unsigned char)**p))
		(*p)++;
	for (; isupper((unsigned char)**p); (*p)++) {
		if (**p == 'F' && io->op == REQ_OP_WRITE)
			io->flags |= REQ_FUA;
		if (**p == 'S')
			io->flags |= REQ_SYNC;
	}
	return isspace((unsigned char)**p);
}

/* "126490 + 16"; a command's "36 (12 00 ..)" and nothing at all move nothing */
static bool
range(const char **p, struct iolog_io *io)
{
	uint64_t sector, sectors;

	*p = skip_blanks(*p);
	if (**p == '[' || **p == '\0')
		return true;
	if (!column(p, UINT64_MAX >> SECTOR_SHIFT, &sector))
		return false;
	*p = skip_blanks(*p);
	if (**p == '(')
		return true;
	if (**p != '+')
		return false;
	(*p)++;
	if (!column(p, UINT32_MAX, &sectors))
		return false;
	io->pos = sector << SECTOR_SHIFT;
	io->bytes = sectors << SECTOR_SHIFT;
	return true;
}

/* What moves no data is a flush, or no I/O at all. */
static bool
is_io(struct iolog_io *io)
{
	if (io->bytes > 0)
		return io->op != REQ_OP_FLUSH;
	if ((io->flags & REQ_PREFLUSH) == 0)
		return false;
	io->op = REQ_OP_FLUSH;
	return true;
}

static int
complain(struct source *s, const char *what)
{
	char err[CTL_MAX_ERROR];

	snprintf(err, sizeof(err), "%s: \"%.120s\"", what, s->text);
	source_complain(s, err);
	return -EINVAL;
}

static int
take_event(struct iolog *log, struct source *s)
{
	struct iolog_io io = { .line = s->line };
	const char *p = s->text;
	char err[CTL_MAX_ERROR];
	int ret;

	if (!head(&p, &io))
		return complain(s, "not an event as blkparse prints it");
	if (strchr(log->service ? "DC" : "Q", p[0]) == NULL ||
	    isupper((unsigned char)p[1]))
		return 0;
	io.ended = *p++ == 'C';
	if (!rwbs(&p, &io))
		return complain(s, "not what such an event does (RWBS)");
	if (!range(&p, &io))
		return complain(s, "not a sector + sectors");
	if (!is_io(&io))
		return 0;
	if (io.op != REQ_OP_WRITE)
		io.flags &= (uint16_t)~REQ_PREFLUSH;
	ret = iolog_add(log, &io, err, sizeof(err));
	if (ret != 0)
		source_complain(s, err);
	return ret;
}

int
blkparse_read(struct iolog *log, struct source *s)
{
	int ret = 0;

	while (ret == 0 && s->nr_errors == 0 && source_line(s, false) != NULL)
		if (is_event(s->text))
			ret = take_event(log, s);
	return s->nr_errors > 0 ? -EINVAL : ret;
}
