/* SPDX-License-Identifier: MIT */
/*
 * Lines are read byte by byte into a buffer of fixed size: whatever the file
 * is (a device, a directory), it takes no more memory than that.
 */
#include "ctl/source.h"

#include <errno.h>
#include <string.h>

void
source_attach(struct source *s, const char *path, FILE *file, FILE *errors)
{
	s->path = path;
	s->file = file;
	s->errors = errors;
	s->line = s->next_line = 1;
	s->nr_errors = 0;
}

int
source_open(struct source *s, const char *path, FILE *errors)
{
	int ret;

	source_attach(s, path, fopen(path, "re"), errors);
	if (s->file != NULL)
		return 0;
	ret = -errno;
	fprintf(errors, "%s: %s\n", path, strerror(-ret));
	s->nr_errors++;
	return ret;
}

void
source_close(struct source *s)
{
	fclose(s->file);
}

void
source_complain(struct source *s, const char *what)
{
	fprintf(s->errors, "%s:%u: %s\n", s->path, s->line, what);
	s->nr_errors++;
}

static char *
too_long(struct source *s)
{
	char what[64];

	snprintf(
	    what, sizeof(what), "a line longer than %u bytes", SOURCE_MAX_LINE);
	source_complain(s, what);
	return NULL;
}

/* There was no byte: the file ends, or cannot be read. */
static bool
failed(struct source *s)
{
	int err = errno;

	if (!ferror(s->file))
		return false;
	fprintf(s->errors, "%s: cannot be read: %s\n", s->path, strerror(err));
	s->nr_errors++;
	return true;
}

char *
source_line(struct source *s, bool joins)
{
	size_t len = 0;
	int c;

	s->line = s->next_line;
	while ((c = getc(s->file)) != EOF) {
		if (c == '\n') {
			s->next_line++;
			if (!joins || len == 0 || s->text[len - 1] != '\\')
				break;
			len--;
			continue;
		}
		if (len == SOURCE_MAX_LINE)
			return too_long(s);
		s->text[len++] = (char)c;
	}
	if (c == EOF && (failed(s) || len == 0))
		return NULL;
	s->text[len] = '\0';
	if (strlen(s->text) != len) {
		source_complain(s, "a byte 0 in the line");
		s->text[0] = '\0';
	}
	return s->text;
}
