/* SPDX-License-Identifier: MIT */
/*
 * The words of the attribute tables as a dictionary of libFuzzer's: a setting
 * that is new is fuzzed, too.
 */
#include <stdio.h>

#include "ctl/ctl.h"

static void
word(const char *prefix, const char *s)
{
	putchar('"');
	fputs(prefix, stdout);
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			putchar('\\');
		putchar(*s);
	}
	puts("\"");
}

static void
words_of(const struct attr *a)
{
	const char *row = a->rows;

	word(attr_prefix(a), a->name);
	if (a->alias.name != NULL)
		word("", a->alias.name);
	for (const struct attr_choice *c = a->choices;
	     c != NULL && c->name != NULL; c++)
		word("", c->name);
	for (; row != NULL && *(const char *const *)(const void *)row != NULL;
	     row += a->row_size)
		word("", *(const char *const *)(const void *)row);
	if (a->unit == NULL || a->unit->suffixes == NULL)
		return;
	for (const struct suffix *s = a->unit->suffixes; s->name != NULL; s++)
		word("1", s->name);
}

int
main(void)
{
	for (const struct attr *a = daemon_attrs; a->name != NULL; a++)
		words_of(a);
	for (const struct attr *a = disk_attrs; a->name != NULL; a++)
		words_of(a);
	return 0;
}
