/* SPDX-License-Identifier: MIT */
/*
 * Of many names the one that somebody may have meant who wrote another:
 *
 *	struct nearest n = { .given = "memory_backd" };
 *
 *	nearest_try(&n, "memory_limit"); and so on, then n.name
 */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

struct nearest {
	const char *given;
	const char *name; /* the nearest so far; NULL: none is near */
	unsigned off;     /* letters that it is off */
};

/* One more; the first of those that are equally near is kept. */
void nearest_try(struct nearest *n, const char *name);

#endif
