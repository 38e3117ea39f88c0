/* SPDX-License-Identifier: MIT */
/*
 * How far one name is from another: letters that are wrong, missing, too many,
 * or two that have changed places.  A part of a name is near to it.
 */
#include "base/nearest.h"

#include <ctype.h>
#include <string.h>

#define MAX_NAME 48u /* letters; longer ones are near to nothing */
#define MIN_PART 3u  /* letters of a part that says something */
#define SHARE    3u  /* one in so many letters may be wrong */

static char
plain(char c)
{
	return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

static unsigned
least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Rows of the usual table: row[j] is the beginning of a to the first j of b. */
static unsigned
distance(const char *a, const char *b)
{
	unsigned rows[3][MAX_NAME + 1], *before = rows[0], *last = rows[1];
	unsigned *row = rows[2], *free, i, j, len = (unsigned)strlen(b);

	for (j = 0; j <= len; j++)
		before[j] = last[j] = j;
	for (i = 1; a[i - 1] != '\0'; i++) {
		row[0] = i;
		for (j = 1; j <= len; j++) {
			char x = plain(a[i - 1]), y = plain(b[j - 1]);

			row[j] = least(last[j], row[j - 1]) + 1;
			row[j] = least(row[j], last[j - 1] + (x != y));
			if (i > 1 && j > 1 && x == plain(b[j - 2]) &&
			    y == plain(a[i - 2]))
				row[j] = least(row[j], before[j - 2] + 1);
		}
		free = before;
		before = last;
		last = row;
		row = free;
	}
	return last[len];
}

void
nearest_try(struct nearest *n, const char *name)
{
	size_t len = strlen(n->given);
	unsigned off;

	if (len > MAX_NAME || strlen(name) > MAX_NAME)
		return;
	off = distance(n->given, name);
	if (len >= MIN_PART && strcasestr(name, n->given) != NULL)
		off = 1;
	if (off > len / SHARE || (n->name != NULL && off >= n->off))
		return;
	n->name = name;
	n->off = off;
}
