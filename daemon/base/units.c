/* SPDX-License-Identifier: MIT */
/* Numbers as people write them. */
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#define SHORT_BELOW 10000u /* what is less reads well without a suffix */

static const struct suffix sizes[] = {
	{ "B", 1 },
	{ "K", UINT64_C(1) << 10 },
	{ "KiB", UINT64_C(1) << 10 },
	{ "M", UINT64_C(1) << 20 },
	{ "MiB", UINT64_C(1) << 20 },
	{ "G", UINT64_C(1) << 30 },
	{ "GiB", UINT64_C(1) << 30 },
	{ "T", UINT64_C(1) << 40 },
	{ "TiB", UINT64_C(1) << 40 },
	{ "P", UINT64_C(1) << 50 },
	{ "PiB", UINT64_C(1) << 50 },
	{ "E", UINT64_C(1) << 60 },
	{ "EiB", UINT64_C(1) << 60 },
	{},
};

static const struct suffix times[] = {
	{ "ns", 1 },
	{ "us", 1000 },
	{ "ms", 1000000 },
	{ "s", 1000000000 },
	{},
};

const struct unit unit_bytes = { "bytes", 1, sizes };
const struct unit unit_mib = { "MiB", UINT64_C(1) << 20, sizes };
const struct unit unit_gib = { "GiB", UINT64_C(1) << 30, sizes };
const struct unit unit_ns = { "ns", 1, times };
const struct unit unit_kib = { "KiB", 1, NULL };
const struct unit unit_sectors = { "sectors of 512 bytes", 1, NULL };
const struct unit unit_usec = { "microseconds", 1, NULL };
const struct unit unit_msec = { "milliseconds", 1, NULL };
const struct unit unit_seconds = { "seconds", 1, NULL };

static unsigned
digit(char c)
{
	if (isdigit((unsigned char)c))
		return (unsigned)(c - '0');
	if (isxdigit((unsigned char)c))
		return (unsigned)(tolower((unsigned char)c) - 'a' + 10);
	return UINT32_MAX;
}

/* _parse_integer_fixup_radix(): 0x wants a hexadecimal digit behind it. */
static unsigned
radix(const char **s)
{
	if ((*s)[0] != '0')
		return 10;
	if (tolower((unsigned char)(*s)[1]) != 'x' ||
	    !isxdigit((unsigned char)(*s)[2]))
		return 8;
	*s += 2;
	return 16;
}

/* The factor for what stands behind the number; -EINVAL for junk. */
static int
suffix_parse(const char *s, const struct unit *unit, uint64_t *factor)
{
	size_t len = strlen(s);

	if (len > 0 && s[len - 1] == '\n')
		len--;
	if (len == 0) {
		*factor = unit != NULL ? unit->scale : 1;
		return 0;
	}
	if (unit == NULL || unit->suffixes == NULL)
		return -EINVAL;
	for (const struct suffix *x = unit->suffixes; x->name != NULL; x++)
		if (strlen(x->name) == len &&
		    strncasecmp(x->name, s, len) == 0) {
			*factor = x->factor;
			return 0;
		}
	return -EINVAL;
}

int
uint_parse(const char *s, const struct unit *unit, uint64_t *out)
{
	uint64_t v = 0, factor;
	unsigned base;
	int err = 0, ret;

	if (*s == '+')
		s++;
	base = radix(&s);
	if (digit(*s) >= base)
		return -EINVAL;
	/* all digits are eaten first: too large comes before junk */
	for (; digit(*s) < base; s++)
		if (__builtin_mul_overflow(v, base, &v) ||
		    __builtin_add_overflow(v, digit(*s), &v))
			err = -ERANGE;
	if (err != 0)
		return err;
	ret = suffix_parse(s, unit, &factor);
	if (ret != 0)
		return ret;
	if (__builtin_mul_overflow(v, factor, &v))
		return -ERANGE;
	*out = v;
	return 0;
}

int
int_parse(const char *s, int64_t *out)
{
	bool minus = *s == '-';
	uint64_t v;
	int ret;

	if (minus && s[1] == '+')
		return -EINVAL;
	ret = uint_parse(s + minus, NULL, &v);
	if (ret != 0)
		return ret;
	if (v > (uint64_t)INT32_MAX + minus)
		return -ERANGE;
	*out = minus ? -(int64_t)v : (int64_t)v;
	return 0;
}

void
uint_print(uint64_t v, const struct unit *unit, FILE *out)
{
	uint64_t scale = unit != NULL ? unit->scale : 1;

	if (v % scale == 0)
		fprintf(out, "%" PRIu64, v / scale);
	else
		fprintf(out, "%" PRIu64 "%s", v, unit->suffixes[0].name);
}

/* The largest that leaves a whole number; NULL: none does. */
static const struct suffix *
suffix_of(uint64_t v, const struct suffix *of)
{
	const struct suffix *best = NULL;

	for (; of != NULL && of->name != NULL; of++)
		if (strchr(of->name, 'i') == NULL && v % of->factor == 0)
			best = of;
	return best;
}

void
uint_print_short(uint64_t v, const struct unit *unit, FILE *out)
{
	const struct suffix *s = NULL;

	if (unit != NULL && v / unit->scale >= SHORT_BELOW)
		s = suffix_of(v, unit->suffixes);
	if (s != NULL && s->factor > unit->scale)
		fprintf(out, "%" PRIu64 "%s", v / s->factor, s->name);
	else
		uint_print(v, unit, out);
}

int
bool_parse(const char *s, bool *out)
{
	switch (tolower((unsigned char)s[0])) {
	case 'y':
	case 't':
	case '1': *out = true; return 0;
	case 'n':
	case 'f':
	case '0': *out = false; return 0;
	case 'o': break;
	default: return -EINVAL;
	}
	switch (tolower((unsigned char)s[1])) {
	case 'n': *out = true; return 0;
	case 'f': *out = false; return 0;
	default: return -EINVAL;
	}
}

/* The bytes that follow the first of a UTF-8 sequence; -1: not a first one. */
static int
utf8_tail(unsigned char c)
{
	if (c < 0x80)
		return 0;
	if (c >= 0xc2 && c <= 0xdf)
		return 1;
	if (c >= 0xe0 && c <= 0xef)
		return 2;
	if (c >= 0xf0 && c <= 0xf4)
		return 3;
	return -1;
}

bool
text_valid(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	while (*s != '\0') {
		unsigned char first = *s++;
		int tail = utf8_tail(first);

		if (tail < 0 || first < 0x20 || first == 0x7f)
			return false;
		/* overlong forms, surrogates, beyond U+10FFFF */
		if ((first == 0xe0 && *s < 0xa0) ||
		    (first == 0xed && *s > 0x9f) ||
		    (first == 0xf0 && *s < 0x90) ||
		    (first == 0xf4 && *s > 0x8f))
			return false;
		/* C1 control characters: U+0080 to U+009F */
		if (first == 0xc2 && *s < 0xa0)
			return false;
		for (; tail > 0; tail--, s++)
			if ((*s & 0xc0) != 0x80)
				return false;
	}
	return true;
}
