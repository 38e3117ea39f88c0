/* SPDX-License-Identifier: MIT */
/*
 * Attributes.  A value is parsed into a struct value, then checked, then
 * stored: nothing touches the object before nothing can fail.
 */
#include "base/attr.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"

#define VALUE_SHOWN 60 /* bytes of a value that an error quotes */
#define USAGE_WIDTH 28 /* columns of the name in attr_usage() */

struct value {
	uint64_t number;
	const void *row;
	char *text;
	char **list;
	void *object;
};

int
refuse(char *err, size_t errlen, int error, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, errlen, fmt, ap);
	va_end(ap);
	return error;
}

/* ---- finding */

const char *
attr_prefix(const struct attr *a)
{
	if (a->group == NULL || a->group->prefix == NULL)
		return "";
	return a->group->prefix;
}

static bool
answers_to(const struct attr *a, const char *name)
{
	size_t folders, len = strlen(a->name), given = strlen(name);
	const char *prefix = attr_prefix(a), *from;

	if (given >= len && strcmp(name + given - len, a->name) == 0) {
		folders = given - len;
		if (folders > strlen(prefix))
			return false;
		from = prefix + strlen(prefix) - folders;
		return strncmp(name, from, folders) == 0 &&
		       (from == prefix || from[-1] == '/');
	}
	return a->alias.name != NULL && strcmp(name, a->alias.name) == 0;
}

const struct attr *
attr_find(const struct attr *tab, const char *name)
{
	for (; tab->name != NULL; tab++)
		if (answers_to(tab, name))
			return tab;
	return NULL;
}

const char *
attr_nearest(const struct attr *tab, const char *name)
{
	const char *slash = strrchr(name, '/');
	struct nearest n = { .given = slash != NULL ? slash + 1 : name };

	for (; tab->name != NULL; tab++) {
		nearest_try(&n, tab->name);
		if (tab->alias.name != NULL)
			nearest_try(&n, tab->alias.name);
	}
	return n.name;
}

int
attr_missing(const struct attr *tab, const char *name, char *err, size_t errlen)
{
	const char *near = attr_nearest(tab, name);

	return refuse(err, errlen, -ENOENT, "%.*s: no such attribute%s%s%s",
	    VALUE_SHOWN, name, near != NULL ? "; is it " : "",
	    near != NULL ? near : " (nullbctl help lists them)",
	    near != NULL ? "?" : "");
}

size_t
attr_count(const struct attr *tab)
{
	size_t n = 0;

	while (tab[n].name != NULL)
		n++;
	return n;
}

static const char *
row_name(const void *row)
{
	return *(const char *const *)row;
}

/* The next row of the table that `a` points into; NULL after the last. */
static const void *
next_row(const struct attr *a, const void *row)
{
	row = row == NULL ? a->rows : (const char *)row + a->row_size;
	return row_name(row) != NULL ? row : NULL;
}

/* ---- loading and storing */

static void
load(const struct attr *a, const void *obj, struct value *v)
{
	const char *field = (const char *)obj + a->offset;

	switch (a->type) {
	case ATTR_BOOL: v->number = *(const bool *)field; return;
	case ATTR_U32: v->number = *(const uint32_t *)field; return;
	case ATTR_U64: v->number = *(const uint64_t *)field; return;
	case ATTR_TEXT: v->text = *(char *const *)field; return;
	case ATTR_LIST: v->list = *(char **const *)field; return;
	case ATTR_ROW: v->row = *(const void *const *)field; return;
	case ATTR_OBJECT: v->object = *(void *const *)field; return;
	case ATTR_SHOWN: return;
	}
}

static void
store(const struct attr *a, void *obj, const struct value *v)
{
	char *field = (char *)obj + a->offset;

	switch (a->type) {
	case ATTR_BOOL: *(bool *)field = v->number != 0; return;
	case ATTR_U32: *(uint32_t *)field = (uint32_t)v->number; return;
	case ATTR_U64: *(uint64_t *)field = v->number; return;
	case ATTR_TEXT: *(char **)field = v->text; return;
	case ATTR_LIST: *(char ***)field = v->list; return;
	case ATTR_ROW: *(const void **)field = v->row; return;
	case ATTR_OBJECT: *(void **)field = v->object; return;
	case ATTR_SHOWN: return;
	}
}

/* Free what a value of this type owns. */
static void
value_fini(const struct attr *a, struct value *v)
{
	if (a->type == ATTR_TEXT)
		free(v->text);
	if (a->type == ATTR_OBJECT && v->object != NULL)
		a->object->free(v->object);
	if (a->type != ATTR_LIST || v->list == NULL)
		return;
	for (char **s = v->list; *s != NULL; s++)
		free(*s);
	free(v->list);
}

/* A copy of the list, with one more text unless that is NULL. */
static char **
list_copy(char *const *list, const char *more)
{
	size_t n = 0, i;
	char **copy;

	while (list != NULL && list[n] != NULL)
		n++;
	copy = calloc(n + 2, sizeof(*copy));
	if (copy == NULL)
		return NULL;
	for (i = 0; i < n + (more != NULL); i++) {
		copy[i] = strdup(i < n ? list[i] : more);
		if (copy[i] == NULL)
			goto fail;
	}
	return copy;

fail:
	while (i-- > 0)
		free(copy[i]);
	free(copy);
	return NULL;
}

/* Make the value its own owner of what it points to. */
static int
value_own(const struct attr *a, struct value *v)
{
	if (a->type == ATTR_TEXT && v->text != NULL) {
		v->text = strdup(v->text);
		return v->text != NULL ? 0 : -ENOMEM;
	}
	if (a->type == ATTR_LIST && v->list != NULL) {
		v->list = list_copy(v->list, NULL);
		return v->list != NULL ? 0 : -ENOMEM;
	}
	if (a->type == ATTR_OBJECT) {
		v->object = a->object->copy(v->object);
		return v->object != NULL ? 0 : -ENOMEM;
	}
	return 0;
}

/* ---- parsing */

static uint64_t
number_max(const struct attr *a)
{
	if (a->max != 0)
		return a->max;
	return a->type == ATTR_U32 ? UINT32_MAX : UINT64_MAX;
}

static int
parse_number(const struct attr *a, const struct unit *unit, const char *text,
    uint64_t *out)
{
	uint64_t v;
	int ret;

	for (const struct attr_choice *c = a->choices;
	     c != NULL && c->name != NULL; c++)
		if (strcasecmp(c->name, text) == 0) {
			*out = c->value;
			return 0;
		}
	ret = uint_parse(text, unit, &v);
	if (ret != 0)
		return ret;
	if (v < a->min || v > number_max(a))
		return -ERANGE;
	*out = v;
	return 0;
}

static int
parse_text(const struct attr *a, const char *text)
{
	if (!text_valid(text))
		return -EINVAL;
	return a->max != 0 && strlen(text) > a->max ? -ERANGE : 0;
}

static int
parse_row(const struct attr *a, const char *text, const void **out)
{
	const void *row = NULL;

	while ((row = next_row(a, row)) != NULL)
		if (strcmp(row_name(row), text) == 0) {
			*out = row;
			return 0;
		}
	return -EINVAL;
}

/* A list's new value is the old one with the text added; "" empties it. */
static int
parse_item(
    const struct attr *a, const void *obj, const char *text, struct value *v)
{
	int ret = parse_text(a, text);

	if (ret != 0 || *text == '\0')
		return ret;
	load(a, obj, v);
	v->list = list_copy(v->list, text);
	return v->list != NULL ? 0 : -ENOMEM;
}

static int
parse(const struct attr *a, const struct unit *unit, const void *obj,
    const char *text, struct value *v)
{
	bool b = false;
	int ret = 0;

	switch (a->type) {
	case ATTR_BOOL:
		ret = bool_parse(text, &b);
		v->number = b;
		return ret;
	case ATTR_U32:
	case ATTR_U64: return parse_number(a, unit, text, &v->number);
	case ATTR_TEXT:
		ret = parse_text(a, text);
		if (ret != 0 || *text == '\0')
			return ret;
		v->text = strdup(text);
		return v->text != NULL ? 0 : -ENOMEM;
	case ATTR_LIST: return parse_item(a, obj, text, v);
	case ATTR_ROW: return parse_row(a, text, &v->row);
	case ATTR_OBJECT: break; /* attr_set() */
	case ATTR_SHOWN: return -EACCES;
	}
	return -EINVAL;
}

/* ---- what is allowed, in words */

static bool
row_allowed(const struct attr *a, const void *row)
{
	char err[1];

	return a->check == NULL ||
	       a->check(row_name(row), err, sizeof(err)) == 0;
}

static void
print_rows(const struct attr *a, FILE *out)
{
	const char *comma = "";
	const void *row = NULL;

	while ((row = next_row(a, row)) != NULL)
		if (row_allowed(a, row)) {
			fprintf(out, "%s%s", comma, row_name(row));
			comma = ", ";
		}
}

static void
print_choices(const struct attr *a, FILE *out)
{
	const char *comma = "";

	for (const struct attr_choice *c = a->choices; c->name != NULL; c++) {
		fprintf(out, "%s%s", comma, c->name);
		if (a->group == NULL || !a->group->prints_names)
			fprintf(out, " (%" PRIu64 ")", c->value);
		comma = ", ";
	}
}

/* Its ends as they are written without a suffix, so both within the range. */
static void
print_range(const struct attr *a, const struct unit *unit, FILE *out)
{
	uint64_t scale = unit != NULL ? unit->scale : 1;

	fputs("a number", out);
	if (unit != NULL)
		fprintf(out, " of %s", unit->name);
	if (a->max != 0 || a->min != 0) {
		fputs(" from ", out);
		uint_print_short(
		    (a->min + scale - 1) / scale * scale, unit, out);
		fputs(" to ", out);
		uint_print_short(number_max(a) / scale * scale, unit, out);
	}
	if (unit == NULL || unit->suffixes == NULL)
		return;
	fputs(", or with a suffix:", out);
	for (const struct suffix *s = unit->suffixes; s->name != NULL; s++)
		if (s == unit->suffixes || strchr(s->name, 'i') == NULL)
			fprintf(out, " %s", s->name);
}

/* What may be written: "none (0), softirq (1), timer (2)". */
static void
print_allowed(const struct attr *a, const struct unit *unit, FILE *out)
{
	switch (a->type) {
	case ATTR_BOOL: fputs("0 or 1", out); return;
	case ATTR_U32:
	case ATTR_U64:
		if (a->choices != NULL) {
			print_choices(a, out);
			if (a->max == 0 && unit != NULL)
				fputs(", or ", out);
		}
		if (a->choices == NULL || (a->max == 0 && unit != NULL))
			print_range(a, unit, out);
		return;
	case ATTR_ROW: print_rows(a, out); return;
	case ATTR_TEXT:
	case ATTR_LIST:
		fputs("UTF-8 without control characters", out);
		if (a->max != 0)
			fprintf(out, ", at most %" PRIu64 " bytes", a->max);
		return;
	case ATTR_OBJECT: return; /* it explains itself */
	case ATTR_SHOWN: fputs("nothing, it is read only", out); return;
	}
}

/* The sentence for a value that did not parse. */
static int
explain(const struct attr *a, const struct unit *unit, const char *value,
    int error, char *err, size_t errlen)
{
	const char *range = error == -ERANGE ? "out of range, " : "";
	char *allowed = NULL;
	size_t len;
	FILE *out = open_memstream(&allowed, &len);

	if (out != NULL) {
		print_allowed(a, unit, out);
		fclose(out);
	}
	refuse(err, errlen, error, "%s%s: \"%.*s\": %sallowed: %s",
	    attr_prefix(a), a->name, VALUE_SHOWN, value, range,
	    allowed != NULL ? allowed : "something else");
	free(allowed);
	return error;
}

/* ---- setting and getting */

/* Put the new value in place. */
static void
assign(const struct attr *a, void *obj, struct value *new)
{
	struct value old = {};

	load(a, obj, &old);
	store(a, obj, new);
	value_fini(a, &old);
}

static int
is_locked(const struct attr *a, char *err, size_t errlen)
{
	return refuse(err, errlen, -EBUSY,
	    "%s%s: cannot change while the device is on: power it off before",
	    attr_prefix(a), a->name);
}

int
attr_set(const struct attr *tab, void *obj, const char *name, const char *value,
    bool live, char *err, size_t errlen)
{
	const struct attr *a = attr_find(tab, name);
	const struct unit *unit;
	struct value new = {};
	int ret;

	if (a == NULL)
		return attr_missing(tab, name, err, errlen);
	if (a->type == ATTR_SHOWN)
		return refuse(err, errlen, -EACCES, "%s%s: read only",
		    attr_prefix(a), a->name);
	if (a->type == ATTR_OBJECT) {
		if (live && !a->live)
			return is_locked(a, err, errlen);
		load(a, obj, &new);
		return a->object->set(new.object, value, err, errlen);
	}
	unit = a->unit;
	if (a->alias.unit != NULL && strcmp(name, a->alias.name) == 0)
		unit = a->alias.unit;
	ret = parse(a, unit, obj, value, &new);
	if (ret != 0)
		return explain(a, unit, value, ret, err, errlen);
	ret = a->check != NULL ? a->check(value, err, errlen) : 0;
	/* in this order, as null_blk's NULLB_DEVICE_ATTR */
	if (ret == 0 && live && !a->live)
		ret = is_locked(a, err, errlen);
	if (ret != 0) {
		value_fini(a, &new);
		return ret;
	}
	assign(a, obj, &new);
	return 0;
}

static void
print_number(const struct attr *a, uint64_t v, FILE *out)
{
	if (a->choices != NULL && a->group != NULL && a->group->prints_names)
		for (const struct attr_choice *c = a->choices; c->name != NULL;
		     c++)
			if (c->value == v) {
				fputs(c->name, out);
				return;
			}
	uint_print(v, a->unit, out);
}

void
attr_get(const struct attr *a, const void *obj, FILE *out)
{
	struct value v = {};

	load(a, obj, &v);
	switch (a->type) {
	case ATTR_BOOL: fputc(v.number ? '1' : '0', out); return;
	case ATTR_U32:
	case ATTR_U64: print_number(a, v.number, out); return;
	case ATTR_TEXT: fputs(v.text != NULL ? v.text : "", out); return;
	case ATTR_LIST:
		for (char **s = v.list; s != NULL && *s != NULL; s++)
			fprintf(out, "%s%s", s == v.list ? "" : " ", *s);
		return;
	case ATTR_ROW: fputs(row_name(v.row), out); return;
	case ATTR_OBJECT: a->object->show(v.object, out); return;
	case ATTR_SHOWN: a->show(obj, out); return;
	}
}

static bool
same_text(const char *x, const char *y)
{
	return x == NULL || y == NULL ? x == y : strcmp(x, y) == 0;
}

static bool
same_list(char **x, char **y)
{
	static char *none[] = { NULL };

	x = x != NULL ? x : none;
	y = y != NULL ? y : none;
	for (; *x != NULL && *y != NULL; x++, y++)
		if (strcmp(*x, *y) != 0)
			return false;
	return *x == *y;
}

bool
attr_same(const struct attr *a, const void *x, const void *y)
{
	struct value v = {}, w = {};

	load(a, x, &v);
	load(a, y, &w);
	if (a->type == ATTR_OBJECT)
		return a->object->same(v.object, w.object);
	return v.number == w.number && v.row == w.row &&
	       same_text(v.text, w.text) && same_list(v.list, w.list);
}

/* ---- whole objects */

int
attr_init(const struct attr *tab, void *obj)
{
	for (const struct attr *a = tab; a->name != NULL; a++)
		store(a, obj, &(struct value){});
	for (const struct attr *a = tab; a->name != NULL; a++) {
		struct value v = {};
		int ret = 0;

		if (a->def != NULL)
			ret = parse(a, a->unit, obj, a->def, &v);
		if (a->type == ATTR_OBJECT) {
			v.object = a->object->new ();
			ret = v.object != NULL ? 0 : -ENOMEM;
		}
		if (ret == -ENOMEM) {
			attr_fini(tab, obj);
			return ret;
		}
		assert(ret == 0); /* the table refuses its own default */
		if (a->def != NULL || a->type == ATTR_OBJECT)
			store(a, obj, &v);
	}
	return 0;
}

void
attr_fini(const struct attr *tab, void *obj)
{
	for (; tab->name != NULL; tab++) {
		struct value v = {};

		load(tab, obj, &v);
		value_fini(tab, &v);
		if (tab->type == ATTR_TEXT || tab->type == ATTR_LIST ||
		    tab->type == ATTR_OBJECT)
			store(tab, obj, &(struct value){});
	}
}

int
attr_copy_one(const struct attr *a, void *to, const void *from)
{
	struct value v = {};
	int ret;

	load(a, from, &v);
	ret = value_own(a, &v);
	if (ret != 0)
		return ret;
	assign(a, to, &v);
	return 0;
}

int
attr_copy(const struct attr *tab, void *to, const void *from)
{
	int ret = 0;

	for (; tab->name != NULL && ret == 0; tab++)
		ret = attr_copy_one(tab, to, from);
	return ret;
}

/* ---- for the reader */

static void
usage_value(const char *name, const char *help, FILE *out)
{
	fprintf(out, "      %-*s %s\n", USAGE_WIDTH - 4, name, help);
}

void
attr_usage_one(const struct attr *a, FILE *out)
{
	char name[80];

	snprintf(name, sizeof(name), "%s%s%s%s", attr_prefix(a), a->name,
	    a->def != NULL ? "=" : "", a->def != NULL ? a->def : "");
	fprintf(out, "  %-*s ", USAGE_WIDTH, name);
	if (strlen(name) > USAGE_WIDTH)
		fprintf(out, "\n  %-*s ", USAGE_WIDTH, "");
	fputs(a->help, out);
	if (a->unit != NULL)
		fprintf(out, " (%s)", a->unit->name);
	if (a->type == ATTR_SHOWN)
		fputs(" (read only)", out);
	if (a->live)
		fputs(" (live)", out);
	fputc('\n', out);
	for (const struct attr_choice *c = a->choices;
	     c != NULL && c->name != NULL; c++) {
		snprintf(
		    name, sizeof(name), "%" PRIu64 " %s", c->value, c->name);
		if (a->group != NULL && a->group->prints_names)
			snprintf(name, sizeof(name), "%s", c->name);
		usage_value(name, c->help, out);
	}
	if (a->type == ATTR_ROW) {
		fputs("      one of ", out);
		print_rows(a, out);
		fputc('\n', out);
	}
	if (a->alias.unit != NULL)
		fprintf(out, "      %s: the same in %s\n", a->alias.name,
		    a->alias.unit->name);
	else if (a->alias.name != NULL)
		fprintf(out, "      %s: the same\n", a->alias.name);
}

void
attr_usage(const struct attr *tab, FILE *out)
{
	const struct attr_group *group = NULL;

	for (; tab->name != NULL; tab++) {
		if (tab->group != NULL && tab->group != group)
			fprintf(out, "%s%s:\n", group != NULL ? "\n" : "",
			    tab->group->title);
		group = tab->group;
		attr_usage_one(tab, out);
	}
}

/* Text as roff wants it: a backslash, or a dot that leads, would command. */
static void
man_text(const char *s, FILE *out)
{
	if (*s == '.' || *s == '\'')
		fputs("\\&", out);
	for (; *s != '\0'; s++)
		if (*s == '\\')
			fputs("\\e", out);
		else if (*s == '-')
			fputs("\\-", out);
		else
			fputc(*s, out);
}

/* A help line as a sentence. */
static void
man_sentence(const char *help, FILE *out)
{
	fputc(toupper((unsigned char)help[0]), out);
	man_text(help + 1, out);
	fputs(".\n", out);
}

/* What stands for the value behind "name=". */
static const char *
man_value(const struct attr *a)
{
	switch (a->type) {
	case ATTR_BOOL: return "0|1";
	case ATTR_U32:
	case ATTR_U64: return a->choices != NULL ? "value" : "number";
	case ATTR_TEXT:
	case ATTR_LIST: return "text";
	case ATTR_ROW: return "name";
	case ATTR_OBJECT: return "change";
	case ATTR_SHOWN: break;
	}
	return NULL;
}

static void
man_choices(const struct attr *a, FILE *out)
{
	bool numbers = a->group == NULL || !a->group->prints_names;

	fputs(".RS\n", out);
	for (const struct attr_choice *c = a->choices; c->name != NULL; c++) {
		fputs(".TP\n.BR ", out);
		if (numbers)
			fprintf(out, "%" PRIu64 " \", \" ", c->value);
		man_text(c->name, out);
		fputc('\n', out);
		man_sentence(c->help, out);
	}
	fputs(".RE\n", out);
}

/* Is there more to say of its values than that they are numbers? */
static bool
is_bounded(const struct attr *a)
{
	if (a->choices != NULL || a->type == ATTR_BOOL)
		return false;
	return a->unit != NULL || a->min != 0 || a->max != 0 ||
	       a->type == ATTR_ROW;
}

static void
man_one(const struct attr *a, FILE *out)
{
	const char *value = man_value(a);

	fprintf(out, ".TP\n\\fB%s%s\\fP", attr_prefix(a), a->name);
	if (value != NULL)
		fprintf(out, "=\\fI%s\\fP", value);
	fputc('\n', out);
	man_sentence(a->help, out);
	if (a->type == ATTR_SHOWN)
		fputs("Read only.\n", out);
	if (a->live)
		fputs("Changes while the device is on, too.\n", out);
	if (is_bounded(a)) {
		fputs("Allowed: ", out);
		print_allowed(a, a->unit, out);
		fputs(".\n", out);
	}
	if (a->def != NULL) {
		fputs("The default is ", out);
		man_text(a->def, out);
		fputs(".\n", out);
	}
	if (a->alias.name != NULL)
		fprintf(out, "\\fB%s\\fP is the same%s%s.\n", a->alias.name,
		    a->alias.unit != NULL ? " in " : "",
		    a->alias.unit != NULL ? a->alias.unit->name : "");
	if (a->choices != NULL)
		man_choices(a, out);
}

void
attr_man(const struct attr *tab, FILE *out)
{
	const struct attr_group *group = NULL;

	for (; tab->name != NULL; tab++) {
		if (tab->group != NULL && tab->group != group)
			fprintf(out, ".SS \"%s\"\n", tab->group->title);
		group = tab->group;
		man_one(tab, out);
	}
}
