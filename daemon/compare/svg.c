/* SPDX-License-Identifier: MIT */
/*
 * Pictures in a page: SVG that has no colours of its own, but classes, so that
 * the page's style makes it light or dark.
 *
 *	+-- width x height ----------------+
 *	|     title is for who cannot see  |
 *	|  y +-------------------------+   |
 *	|    |  left, top, w, h        |   |
 *	|    +-------------------------+   |
 *	|                 x                |
 *	+----------------------------------+
 */
#include "compare/compare.h"

#include <math.h>
#include <string.h>

#define MAX_TICKS    12
#define TICK_SIZE    32
#define LABEL_HEIGHT 12.0
#define MIN_APART    .8 /* pixels: of points that are drawn */

/* ---- text */

/*
 * How many bytes the character at s has; 0: it is not UTF-8, or none that may
 * be in a page (RFC 3629; controls, surrogates, U+FFFE and U+FFFF may not).
 */
static unsigned
character_bytes(const unsigned char *s)
{
	unsigned nr = s[0] < 0x80   ? 1
		      : s[0] < 0xc2 ? 0
		      : s[0] < 0xe0 ? 2
		      : s[0] < 0xf0 ? 3
		      : s[0] < 0xf5 ? 4
				    : 0;

	for (unsigned i = 1; i < nr; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xe0 && s[1] < 0xa0) ||
	    (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xef && s[1] == 0xbf && s[2] > 0xbd) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return nr;
}

void
svg_text(FILE *out, const char *text)
{
	unsigned nr;

	for (; text != NULL && *text != '\0'; text += nr) {
		nr = 1;
		switch (*text) {
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '&': fputs("&amp;", out); break;
		case '"': fputs("&quot;", out); break;
		case '\'': fputs("&#39;", out); break;
		case '\n':
		case '\t': fputc(*text, out); break;
		default:
			nr = character_bytes((const unsigned char *)text);
			/* no other control character may be in a page */
			if (nr == 0 || (unsigned char)*text < 0x20 ||
			    *text == 0x7f)
				fputc('?', out);
			else
				fwrite(text, 1, nr, out);
			nr = nr == 0 ? 1 : nr;
		}
	}
}

/* 950, 1.5k, 20M: as short as an axis needs it */
static void
short_number(double v, char text[TICK_SIZE])
{
	static const char *const unit[] = { "", "k", "M", "G", "T", "P" };
	unsigned i = 0;

	while (fabs(v) >= 999.5 && i < 5) {
		v /= 1000;
		i++;
	}
	snprintf(text, TICK_SIZE, "%.3g%s", v, unit[i]);
}

/* 800 ns, 1.5 us, 20 ms, 3 s */
static void
short_time(double ns, char text[TICK_SIZE])
{
	static const char *const unit[] = { "ns", "us", "ms", "s" };
	unsigned i = 0;

	while (ns >= 999.5 && i < 3) {
		ns /= 1000;
		i++;
	}
	snprintf(text, TICK_SIZE, "%.3g %s", ns, unit[i]);
}

static void
tick_text(const struct svg_axis *a, double v, char text[TICK_SIZE])
{
	if (a->is_time)
		short_time(v, text);
	else
		short_number(v, text);
}

/* ---- places */

/* 0 to 1 along the axis; what lies beyond is at its end. */
static double
along(const struct svg_axis *a, double v)
{
	double from = a->from, to = a->to;

	if (a->is_log) {
		from = log10(from);
		to = log10(to);
		v = log10(fmax(v, a->from));
	}
	if (!isfinite(v) || to <= from)
		return 0;
	return fmin(fmax((v - from) / (to - from), 0), 1);
}

static double
place_x(const struct svg *s, double v)
{
	return s->left + s->width * along(&s->x, v);
}

static double
place_y(const struct svg *s, double v)
{
	return s->top + s->height * (1 - along(&s->y, v));
}

/* 1, 2 or 5 times a power of ten, so that some five steps fill it. */
static double
nice_step(double range)
{
	double power = pow(10, floor(log10(range / 5))), n = range / 5 / power;

	return power * (n < 1.5 ? 1 : n < 3.5 ? 2 : n < 7.5 ? 5 : 10);
}

/* Powers of ten, and 2 and 5 times that where there are few. */
static unsigned
log_ticks(const struct svg_axis *a, double tick[MAX_TICKS])
{
	static const double factor[] = { 1, 2, 5 };
	bool few = a->to / a->from < 150;
	double v = pow(10, floor(log10(a->from)));
	unsigned nr = 0, i;

	for (; v <= a->to && nr < MAX_TICKS; v *= 10)
		for (i = 0; i < (few ? 3 : 1) && nr < MAX_TICKS; i++)
			if (v * factor[i] >= a->from &&
			    v * factor[i] <= a->to * 1.0001)
				tick[nr++] = v * factor[i];
	return nr;
}

static unsigned
ticks(const struct svg_axis *a, double tick[MAX_TICKS])
{
	double step = nice_step(a->to - a->from), v;
	unsigned nr = 0;

	if (a->is_log)
		return log_ticks(a, tick);
	for (v = ceil(a->from / step - 1e-9) * step;
	     v <= a->to + step * 1e-6 && nr < MAX_TICKS; v += step)
		tick[nr++] = fabs(v) < step * 1e-9 ? 0 : v;
	return nr;
}

/* ---- what is drawn */

void
svg_axis_fit(struct svg_axis *a, double from, double to)
{
	if (!isfinite(from) || !isfinite(to) || from > to) {
		from = 0;
		to = 1;
	}
	if (a->is_log) {
		from = fmax(from, 1);
		to = fmax(to, from * 1.2);
	} else if (to - from <= fabs(to) * 1e-9) { /* one value */
		from -= fabs(from) * .05 + .5;
		to += fabs(to) * .05 + .5;
	}
	a->from = from;
	a->to = to;
}

void
svg_begin(const struct svg *s, double width, double height, const char *title)
{
	fprintf(s->out,
	    "<svg role=\"img\" viewBox=\"0 0 %g %g\" "
	    "xmlns=\"http://www.w3.org/2000/svg\"><title>",
	    width, height);
	svg_text(s->out, title);
	fputs("</title>\n", s->out);
}

void
svg_end(const struct svg *s)
{
	fputs("</svg>\n", s->out);
}

void
svg_label(const struct svg *s, double x, double y, const char *anchor,
    const char *text)
{
	fprintf(s->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y,
	    anchor);
	svg_text(s->out, text);
	fputs("</text>\n", s->out);
}

static void
line(const struct svg *s, const char *class, double x1, double y1, double x2,
    double y2)
{
	fprintf(s->out, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n",
	    class, x1, y1, x2, y2);
}

void
svg_axis_y(const struct svg *s, const char *label)
{
	double tick[MAX_TICKS];
	unsigned nr = ticks(&s->y, tick), i;
	char text[TICK_SIZE];
	double y;

	for (i = 0; i < nr; i++) {
		y = place_y(s, tick[i]);
		line(s, "grid", s->left, y, s->left + s->width, y);
		tick_text(&s->y, tick[i], text);
		svg_label(s, s->left - 6, y + 4, "end", text);
	}
	svg_label(s, s->left, s->top - 8, "start", label);
}

void
svg_tick_x(const struct svg *s, double v, const char *text)
{
	double x = place_x(s, v), bottom = s->top + s->height;

	line(s, "grid", x, s->top, x, bottom);
	svg_label(s, x, bottom + LABEL_HEIGHT + 4, "middle", text);
}

void
svg_axis_x(const struct svg *s, const char *label)
{
	double tick[MAX_TICKS];
	unsigned nr = ticks(&s->x, tick), i;
	char text[TICK_SIZE];

	for (i = 0; i < nr; i++) {
		tick_text(&s->x, tick[i], text);
		svg_tick_x(s, tick[i], text);
	}
	if (label != NULL)
		svg_label(s, s->left + s->width,
		    s->top + s->height + 2 * LABEL_HEIGHT + 12, "end", label);
}

void
svg_line(const struct svg *s, const char *class, const double *x,
    const double *y, size_t nr)
{
	double px, py, last_x = -1e9, last_y = -1e9;
	bool any = false;
	size_t i;

	for (i = 0; i < nr; i++) {
		if (!isfinite(x[i]) || !isfinite(y[i]))
			continue;
		px = place_x(s, x[i]);
		py = place_y(s, y[i]);
		/* what is drawn on the last one is left out, but for the end */
		if (fabs(px - last_x) < MIN_APART &&
		    fabs(py - last_y) < MIN_APART && i + 1 < nr)
			continue;
		if (!any)
			fprintf(s->out, "<path class=\"line %s\" d=\"M", class);
		fprintf(s->out, "%s%.1f %.1f", any ? "L" : "", px, py);
		any = true;
		last_x = px;
		last_y = py;
	}
	if (any)
		fputs("\"/>\n", s->out);
}

void
svg_bar(
    const struct svg *s, const char *class, double x, double width, double to)
{
	double y = place_y(s, to);

	fprintf(s->out,
	    "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
	    "height=\"%.1f\"/>\n",
	    class, x, y, width, s->top + s->height - y);
}

/* Whiskers to the ends, a box of the middle half, the median; and all values.
 */
void
svg_box(
    const struct svg *s, const char *class, const struct sample *v, double y)
{
	double q[5], at;
	size_t i;

	if (v->nr == 0)
		return;
	for (i = 0; i < 5; i++)
		q[i] = place_x(s, sample_quantile(v, (double)i / 4));
	line(s, "axis", q[0], y, q[4], y);
	fprintf(s->out,
	    "<rect class=\"box %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
	    "height=\"20\"/>\n",
	    class, q[1], y - 10, fmax(q[3] - q[1], .5));
	line(s, "median", q[2], y - 10, q[2], y + 10);
	for (i = 0; i < v->nr; i++) {
		if (!isfinite(v->value[i]))
			continue;
		at = place_x(s, v->value[i]);
		/* apart, in the order of the runs */
		fprintf(s->out,
		    "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" "
		    "r=\"2.5\"/>\n",
		    class, at, y - 8 + 16 * ((double)i + .5) / (double)v->nr);
	}
}

/* A step of darkness has a path; neighbours in a row are one piece of it. */
void
svg_heat(const struct svg *s, const struct heat *h)
{
	double w = s->width / HEAT_COLUMNS, height = s->height / HEAT_ROWS;
	unsigned level, row, column, begin;
	uint64_t max = 0;

	for (row = 0; row < HEAT_ROWS; row++)
		for (column = 0; column < HEAT_COLUMNS; column++)
			if (h->count[row][column] > max)
				max = h->count[row][column];
	for (level = 1; level <= SVG_HEAT_LEVELS && max > 0; level++) {
		fprintf(s->out, "<path class=\"heat%u\" d=\"", level);
		for (row = 0; row < HEAT_ROWS; row++) {
			for (column = 0; column < HEAT_COLUMNS; column++) {
				begin = column;
				while (column < HEAT_COLUMNS &&
				       svg_heat_level(
					   h->count[row][column], max) == level)
					column++;
				if (column == begin)
					continue;
				fprintf(s->out, "M%.1f %.1fh%.1fv%.1fh%.1fz",
				    s->left + begin * w,
				    s->top + s->height - (row + 1) * height,
				    (column - begin) * w, height,
				    -((column - begin) * w));
			}
		}
		fputs("\"/>\n", s->out);
	}
}

unsigned
svg_heat_level(uint64_t count, uint64_t max)
{
	/* by the root: a hot spot must not hide the rest */
	if (count == 0)
		return 0;
	return (unsigned)ceil(
	    SVG_HEAT_LEVELS * sqrt((double)count / (double)max));
}
