/* SPDX-License-Identifier: MIT */
/*
 * The runs of a figure, as the lkp tools plot them:
 *
 *	                  fio.write.iops
 *	  2800 ++-------------------------------------+
 *	       |  O    O    O    O    O    O    O     O
 *	  2400 ++                                     |
 *	       *    *    *    *    *    *    *    *   |
 *	  2000 ++-------------------------------------+
 *
 * The axis has round numbers, as many as there is room for.  Long doubles, in
 * which the distance of any two doubles is finite.
 */
#include "compare/compare.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIN_WIDTH   24u
#define MAX_WIDTH   400u
#define MIN_HEIGHT  4u
#define MAX_HEIGHT  100u
#define MIN_LABEL   11u /* columns of the numbers at the axis */
#define MIN_COLUMNS 8u
#define ROWS_A_TICK 3u
#define MAX_DIGITS  15
#define NUMBER_SIZE 32
#define BASE_MARK   '*'
#define OTHER_MARK  'O'
#define BOTH_MARK   '#'

/* A grid of characters; row 0 is on top. */
struct plot {
	long double low;
	long double high;
	long double step; /* between numbers at the axis */
	unsigned label_width;
	unsigned columns;
	unsigned rows;
	size_t nr_runs;
	char cell[MAX_HEIGHT][MAX_WIDTH];
};

/* ---- the axis */

/* 1, 2 or 5 times a power of ten, at least x. */
static long double
round_step(long double x)
{
	long double power = powl(10, floorl(log10l(x)));

	for (unsigned i = 0; i < 3; i++) {
		static const long double step[] = { 1, 2, 5 };

		if (step[i] * power >= x)
			return step[i] * power;
	}
	return 10 * power;
}

static void
set_axis(struct plot *p, long double min, long double max)
{
	long double least = fmaxl(fabsl(min), fabsl(max));
	unsigned steps;

	if (least == 0)
		least = 1;
	/* nothing to tell apart: a little of its size around it */
	if (max - min <= 1e-12L * least) {
		min -= least / 20;
		max += least / 20;
	}
	steps = (p->rows - 1) / ROWS_A_TICK;
	p->step = round_step((max - min) / steps);
	p->low = floorl(min / p->step) * p->step;
	p->high = ceill(max / p->step) * p->step;
}

static unsigned
row_of(const struct plot *p, long double y)
{
	long double at = (p->high - y) / (p->high - p->low) * (p->rows - 1);

	return (unsigned)lroundl(fminl(fmaxl(at, 0), p->rows - 1));
}

/* So many digits that neighbours at the axis are not the same. */
static int
digits_of(const struct plot *p)
{
	long double size = fmaxl(fabsl(p->low), fabsl(p->high));
	int digits = (int)ceill(log10l(size / p->step)) + 1;

	return digits < 4 ? 4 : digits > MAX_DIGITS ? MAX_DIGITS : digits;
}

/* The number beside a row; false: there is none. */
static bool
label_of(const struct plot *p, unsigned row, char text[NUMBER_SIZE])
{
	unsigned nr = (unsigned)lroundl((p->high - p->low) / p->step);
	long double y;

	for (unsigned i = 0; i <= nr; i++) {
		y = p->low + i * p->step;
		if (row_of(p, y) != row)
			continue;
		/* not -1e-17, which steps up to 0 may end at */
		if (fabsl(y) < p->step / 2)
			y = 0;
		snprintf(text, NUMBER_SIZE, "%.*Lg", digits_of(p), y);
		return true;
	}
	return false;
}

/* What the longest number leaves. */
static void
set_columns(struct plot *p, unsigned width)
{
	char label[NUMBER_SIZE];

	p->label_width = MIN_LABEL;
	for (unsigned row = 0; row < p->rows; row++)
		if (label_of(p, row, label) && strlen(label) > p->label_width)
			p->label_width = (unsigned)strlen(label);
	p->columns = width > p->label_width + 1 + MIN_COLUMNS
			 ? width - p->label_width - 1
			 : MIN_COLUMNS;
}

/* ---- the runs */

static unsigned
column_of(const struct plot *p, size_t run)
{
	if (p->nr_runs < 2)
		return p->columns / 2;
	return (unsigned)(run * (p->columns - 1) / (p->nr_runs - 1));
}

static void
mark(struct plot *p, const struct sample *s, char with, char against)
{
	char *cell;

	for (size_t i = 0; i < s->nr; i++) {
		if (!isfinite(s->value[i]))
			continue;
		cell = &p->cell[row_of(p, s->value[i])][column_of(p, i)];
		*cell =
		    *cell == against || *cell == BOTH_MARK ? BOTH_MARK : with;
	}
}

static void
draw_frame(struct plot *p)
{
	for (unsigned row = 0; row < p->rows; row++)
		for (unsigned column = 0; column < p->columns; column++)
			p->cell[row][column] =
			    column == 0 || column == p->columns - 1 ? '|'
			    : row == 0 || row == p->rows - 1        ? '-'
								    : ' ';
}

/* ---- what is printed */

static unsigned
within(unsigned x, unsigned min, unsigned max)
{
	return x < min ? min : x > max ? max : x;
}

static void
print_title(FILE *out, const struct figure *f, unsigned width)
{
	size_t len =
	    strlen(f->name) + (f->unit[0] != '\0' ? strlen(f->unit) + 3 : 0);
	size_t indent = len < width ? (width - len) / 2 : 0;
	const char *at;

	fprintf(out, "%*s", (int)indent, "");
	for (at = f->name; *at != '\0'; at++)
		fputc(iscntrl((unsigned char)*at) ? '?' : *at, out);
	if (f->unit[0] != '\0')
		fprintf(out, " (%s)", f->unit);
	fputc('\n', out);
}

static void
print_row(FILE *out, struct plot *p, unsigned row)
{
	char label[NUMBER_SIZE] = "", *cell = p->cell[row];

	if (label_of(p, row, label)) {
		if (cell[0] == '|')
			cell[0] = '+';
		if (cell[p->columns - 1] == '|')
			cell[p->columns - 1] = '+';
	}
	fprintf(out, "%*s %.*s\n", (int)p->label_width, label, (int)p->columns,
	    cell);
}

/* The least and the largest of both sides; false: there is none. */
static bool
range_of(const struct figure *f, double *min, double *max)
{
	double value;

	*min = INFINITY;
	*max = -INFINITY;
	for (unsigned side = 0; side < NR_SIDES; side++)
		for (size_t i = 0; i < f->side[side].nr; i++) {
			value = f->side[side].value[i];
			if (!isfinite(value))
				continue;
			*min = fmin(*min, value);
			*max = fmax(*max, value);
		}
	return *min <= *max;
}

void
plot_print(FILE *out, const struct figure *f, unsigned width, unsigned height)
{
	const struct sample *base = &f->side[SIDE_BASE];
	const struct sample *other = &f->side[SIDE_OTHER];
	struct plot p = {};
	double min, max;

	width = within(width, MIN_WIDTH, MAX_WIDTH);
	p.rows = within(height, MIN_HEIGHT, MAX_HEIGHT);
	p.nr_runs = base->nr > other->nr ? base->nr : other->nr;
	print_title(out, f, width);
	if (!range_of(f, &min, &max)) {
		fprintf(out, "%*s no run has a value\n", (int)MIN_LABEL, "");
		return;
	}
	set_axis(&p, min, max);
	set_columns(&p, width);
	draw_frame(&p);
	mark(&p, base, BASE_MARK, BASE_MARK - 1);
	mark(&p, other, OTHER_MARK, BASE_MARK);
	for (unsigned row = 0; row < p.rows; row++)
		print_row(out, &p, row);
	fprintf(out, "%*s * base  O other  # both\n", (int)p.label_width, "");
}
