/* SPDX-License-Identifier: MIT */
/*
 * Figures that something else has measured, a line a value:
 *
 *	SIDE FIGURE VALUE [UNIT] [higher|lower]
 *
 * where blanks are between words, and # begins a comment.  Those of which it is
 * said what is better are headlines.
 */
#include "compare/compare.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE  4096
#define MAX_WORDS 5u

static unsigned
split(char *line, char *word[MAX_WORDS + 1])
{
	char *at = NULL, *w;
	unsigned nr = 0;

	for (w = strtok_r(line, " \t\r\n", &at); w != NULL && *w != '#';
	     w = strtok_r(NULL, " \t\r\n", &at)) {
		word[nr++] = w;
		if (nr > MAX_WORDS)
			break;
	}
	return nr;
}

/* "KiB/s higher", either alone, or neither */
static enum better
better_of(char *const *word, unsigned nr, const char **unit)
{
	enum better b = BETTER_NEITHER;
	unsigned i;

	*unit = "";
	for (i = 3; i < nr; i++) {
		if (strcmp(word[i], "higher") == 0)
			b = BETTER_HIGHER;
		else if (strcmp(word[i], "lower") == 0)
			b = BETTER_LOWER;
		else
			*unit = word[i];
	}
	return b;
}

static int
take(struct figures *f, char *text, unsigned line, char **error)
{
	char *word[MAX_WORDS + 1], *end;
	unsigned nr = split(text, word);
	enum better better;
	const char *unit;
	enum side side;
	double value;

	if (nr == 0)
		return 0;
	if (nr < 3 || nr > MAX_WORDS)
		return compare_error(error,
		    "line %u: needed: base or other, a figure, its value, and "
		    "perhaps a "
		    "unit, and higher or lower",
		    line);
	if (strcmp(word[0], "base") == 0)
		side = SIDE_BASE;
	else if (strcmp(word[0], "other") == 0)
		side = SIDE_OTHER;
	else
		return compare_error(error,
		    "line %u: \"%s\": allowed: base, other", line, word[0]);
	value = strtod(word[2], &end);
	if (end == word[2] || *end != '\0' || !isfinite(value))
		return compare_error(error,
		    "line %u: %s: \"%s\" is not a number", line, word[1],
		    word[2]);
	better = better_of(word, nr, &unit);
	return figures_add(
	    f, side, word[1], unit, better, better != BETTER_NEITHER, value);
}

int
values_read(FILE *in, struct figures *f, char **error)
{
	char text[MAX_LINE];
	unsigned line = 0;
	int ret;

	*error = NULL;
	while (fgets(text, sizeof(text), in) != NULL) {
		line++;
		if (strlen(text) == sizeof(text) - 1)
			return compare_error(error,
			    "line %u: more than %d bytes", line, MAX_LINE - 2);
		ret = take(f, text, line, error);
		if (ret != 0)
			return ret;
	}
	if (ferror(in))
		return -errno;
	if (f->nr == 0)
		return compare_error(error, "no value in it");
	return 0;
}
