/* SPDX-License-Identifier: MIT */
/*
 * Attributes: one table describes every setting of an object, a row each.
 * Whatever reads, prints or explains a setting (configuration file, command
 * line, control socket, manual page) does it through the table, so that a new
 * setting is a field of the object and a row: two places.
 */
#ifndef BASE_ATTR_H
#define BASE_ATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/units.h"

enum attr_type {
	ATTR_BOOL,
	ATTR_U32,
	ATTR_U64,
	ATTR_TEXT, /* char *, NULL when empty: the object's own */
	ATTR_LIST, /* char **, up to a NULL: each set adds one, "" empties it */
	ATTR_ROW,  /* a row of another table, by its name */
	ATTR_OBJECT, /* a pointer to what has a form of its own (attr_object) */
	ATTR_SHOWN,  /* no field: show() prints it, none can set it */
};

/* A named value of a number; the list ends with {}. */
struct attr_choice {
	const char *name;
	uint64_t value;
	const char *help;
};

/*
 * What a value of the type ATTR_OBJECT is: it is made once, and each set
 * changes it in place, also while others look at it, which is its own business.
 */
struct attr_object {
	void *(*new)(void); /* NULL: no memory */
	void (*free)(void *obj);
	void *(*copy)(const void *obj); /* NULL: no memory */
	bool (*same)(const void *x, const void *y);
	/* 0, or -errno with a sentence, and it is as it was. */
	int (*set)(void *obj, const char *value, char *err, size_t errlen);
	void (*show)(const void *obj, FILE *out);
	/*
	 * The i-th of the values that, set on a new one, make it do the same;
	 * false: no more.
	 */
	bool (*item)(const void *obj, size_t i, FILE *out);
};

/* Attributes that belong together. */
struct attr_group {
	const char *title;  /* heading in help and manual */
	const char *prefix; /* of the full name: "queue/"; optional on input */
	bool prints_names;  /* of choices; else their numbers */
};

struct attr {
	const char *name;
	enum attr_type type;
	size_t offset;                  /* of the field in the object */
	const struct attr_group *group; /* may be NULL */
	const struct unit *unit;        /* NULL: a plain number */
	uint64_t min,
	    max;         /* of a number (max 0: the field's); bytes of a text */
	const char *def; /* the default, as one would write it */
	const struct attr_choice *choices;
	const void *rows; /* ATTR_ROW: a table, */
	size_t row_size;  /* whose first field is the name; ends with {} */
	const struct attr_object *object; /* ATTR_OBJECT */
	struct {
		const char *name;        /* a second name, on input only */
		const struct unit *unit; /* NULL: the same */
	} alias;
	/* Anything else about a value, as it was written; may be NULL. */
	int (*check)(const char *value, char *err, size_t errlen);
	bool live;    /* it may change while the object is in use, */
	bool at_once; /* and nothing under way has to end before */
	void (*show)(const void *obj, FILE *out);
	const char *help; /* one line, no full stop */
};

/* Name, place and type of a row from the field it describes. */
#define ATTR_FIELD(object, field) ATTR_NAMED(#field, object, field)

/* The same where the field is called otherwise. */
#define ATTR_NAMED(text, object, field) \
	.name = (text), .offset = offsetof(object, field),                     \
	.type = _Generic(((object *)0)->field,                                 \
	    bool: ATTR_BOOL,                                                   \
	    uint32_t: ATTR_U32,                                                \
	    uint64_t: ATTR_U64,                                                \
	    char *: ATTR_TEXT,                                                 \
	    char **: ATTR_LIST,                                                \
	    default: ATTR_ROW)

/* The table that an ATTR_ROW points into. */
#define ATTR_ROWS(table) .rows = (table), .row_size = sizeof((table)[0])

/*
 * The row of a name, an alias, or a full name, which may lack folders at its
 * front ("queue/iosched/x", "iosched/x"); NULL when there is none.
 */
const struct attr *attr_find(const struct attr *tab, const char *name);
/* The name that somebody may have meant by another; NULL: none is near. */
const char *attr_nearest(const struct attr *tab, const char *name);
/* Says that there is no such row, and what there is: -ENOENT. */
int attr_missing(
    const struct attr *tab, const char *name, char *err, size_t errlen);
/* How many rows. */
size_t attr_count(const struct attr *tab);
/* What stands before its name: "queue/", or "". */
const char *attr_prefix(const struct attr *a);

/* Every attribute at its default; what it held is overwritten.  0, -ENOMEM. */
int attr_init(const struct attr *tab, void *obj);
/* Free what the object owns. */
void attr_fini(const struct attr *tab, void *obj);
/* Take over one attribute, or all, from an object, which keeps its own. */
int attr_copy_one(const struct attr *a, void *to, const void *from);
int attr_copy(const struct attr *tab, void *to, const void *from);

/*
 * Set an attribute from text.  `live`: the object is in use, so only rows that
 * are live may change.  0, or -errno as null_blk would answer (-EINVAL,
 * -ERANGE, -EBUSY; -ENOENT: no such attribute; -EACCES: read only) with a
 * sentence in `err` that names the attribute, the value and what is allowed;
 * the object is then as it was.
 */
int attr_set(const struct attr *tab, void *obj, const char *name,
    const char *value, bool live, char *err, size_t errlen);

/* Is it the same in both objects? */
bool attr_same(const struct attr *a, const void *x, const void *y);
/* Print the value, as null_blk would: no name, no newline at the end. */
void attr_get(const struct attr *a, const void *obj, FILE *out);

/* All rows (or one) for --help, and as man(7) for the manual page. */
void attr_usage(const struct attr *tab, FILE *out);
void attr_usage_one(const struct attr *a, FILE *out);
void attr_man(const struct attr *tab, FILE *out);

/* Print a sentence into `err` (errlen may be 0); returns `error`. */
int refuse(char *err, size_t errlen, int error, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
