/* SPDX-License-Identifier: MIT */
/*
 * Numbers as people write them.  The kernel's attributes are parsed by
 * kstrtoull() and kstrtobool(); these two are read here as it reads them, and
 * a number may bear a suffix where its unit has some.
 */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A suffix and what it multiplies with. */
struct suffix {
	const char *name; /* in any case */
	uint64_t factor;
};

/* What a number counts. */
struct unit {
	const char *name; /* for the reader: "MiB" */
	uint64_t scale; /* what a number without a suffix is multiplied with */
	const struct suffix *suffixes; /* ends with {}; NULL: none are taken */
};

/* Sizes are kept in bytes; what a bare number counts is in the name. */
extern const struct unit unit_bytes;
extern const struct unit unit_mib;
extern const struct unit unit_gib;
/* Times are kept in nanoseconds. */
extern const struct unit unit_ns;
/* Plain counts of something: no suffix. */
extern const struct unit unit_kib;
extern const struct unit unit_sectors;
extern const struct unit unit_usec;
extern const struct unit unit_msec;
extern const struct unit unit_seconds;

/*
 * kstrtoull(s, 0): decimal, 0x or a leading 0, at most one newline behind it;
 * then times the unit's scale, or a suffix's factor.  `unit` may be NULL.  0,
 * -EINVAL (a minus, junk, nothing) or -ERANGE (does not fit); *out is changed
 * on success only.
 */
int uint_parse(const char *s, const struct unit *unit, uint64_t *out);

/* kstrtoint(s, 0): the same of an int, which may have a minus. */
int int_parse(const char *s, int64_t *out);

/* Print so that uint_parse() reads the same: "256000", or "1000B". */
void uint_print(uint64_t v, const struct unit *unit, FILE *out);
/* The same, and a long number with a suffix where that is exact: "64M". */
void uint_print_short(uint64_t v, const struct unit *unit, FILE *out);

/* kstrtobool(): the first letters decide.  0 or -EINVAL. */
int bool_parse(const char *s, bool *out);

/* Is it UTF-8, and free of control characters? */
bool text_valid(const char *s);

#endif
