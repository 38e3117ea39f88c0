/* SPDX-License-Identifier: MIT */
/*
 * Keys that clients and the daemon share, from the file that psktool(1)
 * writes: a line each, USER:HEXKEY.  A user whose name is "#" and hexadecimal
 * digits is the bytes that they stand for, as GnuTLS has it.
 */
#include "ctl/ctl.h"
#include "ctl/source.h"

#include <stdlib.h>
#include <string.h>

#define MAX_COMPLAINTS 10u /* then it is no such file at all */

struct psk_file {
	struct psk *psk; /* by user */
	size_t nr, max;
};

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* How many bytes of out[max] a text of hexadecimal digits gives; 0: bad. */
static size_t
hex_parse(const char *text, unsigned char *out, size_t max)
{
	size_t len = strlen(text) / 2, i;
	int high, low;

	if (strlen(text) % 2 != 0 || len > max)
		return 0;
	for (i = 0; i < len; i++) {
		high = hex_digit(text[2 * i]);
		low = hex_digit(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return 0;
		out[i] = (unsigned char)(high << 4 | low);
	}
	return len;
}

static size_t
user_parse(const char *text, size_t len, unsigned char *out, size_t max)
{
	if (*text == '#')
		return hex_parse(text + 1, out, max);
	if (len > max)
		return 0;
	memcpy(out, text, len);
	return len;
}

/* NULL, or what is wrong with it. */
static const char *
psk_parse(struct psk *psk, char *line)
{
	char *key = strrchr(line, ':');

	if (key == NULL)
		return "no key; allowed: USER:HEXKEY";
	*key++ = '\0';
	psk->user_len = user_parse(
	    line, (size_t)(key - 1 - line), psk->user, sizeof(psk->user));
	if (psk->user_len == 0)
		return "bad user; allowed: 1 to 128 bytes, or # and their "
		       "hexadecimal digits";
	psk->key_len = hex_parse(key, psk->key, sizeof(psk->key));
	if (psk->key_len == 0)
		return "bad key; allowed: hexadecimal digits of 1 to 512 bytes";
	return NULL;
}

static int
compare(const void *a, const void *b)
{
	const struct psk *x = a, *y = b;

	if (x->user_len != y->user_len)
		return x->user_len < y->user_len ? -1 : 1;
	return memcmp(x->user, y->user, x->user_len);
}

/* Room for one more. */
static struct psk *
psk_add(struct psk_file *f)
{
	size_t max = f->max > 0 ? 2 * f->max : 16;
	struct psk *psk;

	if (f->nr == f->max) { /* no key stays in memory that is given back */
		psk = calloc(max, sizeof(*psk));
		if (psk == NULL)
			return NULL;
		if (f->nr > 0) {
			memcpy(psk, f->psk, f->nr * sizeof(*psk));
			explicit_bzero(f->psk, f->nr * sizeof(*psk));
		}
		free(f->psk);
		f->psk = psk;
		f->max = max;
	}
	psk = &f->psk[f->nr++];
	*psk = (struct psk){};
	return psk;
}

static void
read_lines(struct psk_file *f, struct source *s)
{
	const char *wrong;
	struct psk *psk;
	char *line;

	while (s->nr_errors < MAX_COMPLAINTS &&
	       (line = source_line(s, false)) != NULL) {
		if (*line == '\0')
			continue;
		psk = f->nr < PSK_MAX_KEYS ? psk_add(f) : NULL;
		if (psk == NULL) {
			source_complain(s, "too many keys");
			return;
		}
		psk->line = s->line;
		wrong = psk_parse(psk, line);
		if (wrong != NULL)
			source_complain(s, wrong);
	}
}

/* Sort them; who is there twice could have either key. */
static void
sort(struct psk_file *f, struct source *s)
{
	const struct psk *a, *b;
	char what[64];

	qsort(f->psk, f->nr, sizeof(*f->psk), compare);
	for (size_t i = 1; i < f->nr; i++) {
		a = &f->psk[i - 1];
		b = &f->psk[i];
		if (compare(a, b) != 0)
			continue;
		s->line = a->line > b->line ? a->line : b->line;
		snprintf(what, sizeof(what), "the same user as in line %u",
		    a->line < b->line ? a->line : b->line);
		source_complain(s, what);
	}
}

struct psk_file *
psk_read(const char *path, FILE *errors)
{
	struct psk_file *f = calloc(1, sizeof(*f));
	struct source *s = malloc(sizeof(*s));
	bool good = false;

	if (f == NULL || s == NULL) {
		fprintf(errors, "%s: out of memory\n", path);
		goto out;
	}
	if (source_open(s, path, errors) != 0)
		goto out;
	read_lines(f, s);
	if (s->nr_errors == 0 && f->nr > 0)
		sort(f, s);
	if (s->nr_errors == 0 && f->nr == 0)
		fprintf(errors, "%s: no key in it\n", path);
	good = s->nr_errors == 0 && f->nr > 0;
	source_close(s);
	explicit_bzero(s->text, sizeof(s->text));
out:
	free(s);
	if (good)
		return f;
	psk_free(f);
	return NULL;
}

void
psk_free(struct psk_file *f)
{
	if (f == NULL)
		return;
	if (f->psk != NULL)
		explicit_bzero(f->psk, f->max * sizeof(*f->psk));
	free(f->psk);
	free(f);
}

const struct psk *
psk_find(const struct psk_file *f, const void *user, size_t len)
{
	struct psk wanted = { .user_len = len };

	if (len > sizeof(wanted.user))
		return NULL;
	memcpy(wanted.user, user, len);
	return bsearch(&wanted, f->psk, f->nr, sizeof(*f->psk), compare);
}
