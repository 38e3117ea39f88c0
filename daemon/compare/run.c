/* SPDX-License-Identifier: MIT */
/* What a comparison holds, and its end. */
#include "compare/compare.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

void
series_fini(struct series *s)
{
	free(s->at);
	free(s->value);
	*s = (struct series){};
}

void
run_fini(struct run *r)
{
	for (unsigned op = 0; op < NR_RUN_OPS; op++)
		buckets_fini(&r->clat_ns[op]);
	series_fini(&r->iops);
	buckets_fini(&r->sectors);
	buckets_fini(&r->segments);
}

void
comparison_fini(struct comparison *c)
{
	for (unsigned side = 0; side < NR_SIDES; side++) {
		free(c->label[side]);
		free(c->config[side]);
		free(c->heat[side]);
	}
	free(c->job_name);
	free(c->job);
	free(c->date);
	free(c->machine);
	free(c->versions);
	for (size_t i = 0; i < c->nr_notes; i++)
		free(c->notes[i]);
	free(c->notes);
	for (size_t i = 0; i < c->nr_runs; i++)
		run_fini(&c->run[i]);
	free(c->run);
	figures_fini(&c->figures);
	*c = (struct comparison){};
}

int
comparison_note(struct comparison *c, const char *fmt, ...)
{
	char **notes, *note;
	va_list ap;
	int len;

	notes = reallocarray(c->notes, c->nr_notes + 1, sizeof(*notes));
	if (notes == NULL)
		return -ENOMEM;
	c->notes = notes;
	va_start(ap, fmt);
	len = vasprintf(&note, fmt, ap);
	va_end(ap);
	if (len < 0)
		return -ENOMEM;
	c->notes[c->nr_notes++] = note;
	return 0;
}

int
compare_error(char **error, const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(error, fmt, ap);
	va_end(ap);
	if (len >= 0)
		return -EINVAL;
	*error = NULL;
	return -ENOMEM;
}
