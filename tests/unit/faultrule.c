/* SPDX-License-Identifier: MIT */
/* Rules as text: the kernel's, ours, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/fault.h"

static char err[512];

static int
parse(struct fault_rule *r, const char *text)
{
	err[0] = '\0';
	return fault_rule_parse(r, text, text, err, sizeof(err));
}

static const char *
printed(const struct fault_rule *r)
{
	static char text[1024];
	FILE *out = fmemopen(text, sizeof(text), "w");

	fault_rule_print(r, out);
	fclose(out);
	return text;
}

static void
reads_as_it_was_written(void **state)
{
	static const char *const text[] = {
		/* the examples of the kernel's document, and defaults */
		"op=READ,start=0,status=IOERR,chance=10",
		"op=READ,start=0,chance=10,status=IOERR",
		"op=WRITE,status=MEDIUM",
		NULL,
		"start=8,nr_sectors=0x8,op=READ|WRITE,errno=ENOSPC",
		"op=READ|WRITE,start=8,nr_sectors=8,status=NOSPC",
		"nr_sectors=0,start=8", /* as there: to the end */
		"op=READ|WRITE|DISCARD|WRITE_ZEROES,start=8,status=IOERR",
		"nr_sectors=1",
		"op=READ|WRITE|DISCARD|WRITE_ZEROES,start=0,nr_sectors=1,"
		"status=IOERR",
		"",
		"op=READ|WRITE|DISCARD|WRITE_ZEROES,status=IOERR",
		",op=FLUSH,,status=EIO,",
		"op=FLUSH,status=IOERR",
		"op=FLUSH|READ,probability=0.000001%",
		"op=READ|FLUSH,probability=0.000001,status=IOERR",
		"op=READ,probability=100,every=1,after=0,chance=1",
		"op=READ,status=IOERR",
		"op=READ,probability=12.50,times=3",
		"op=READ,probability=12.5,times=3,status=IOERR",
		"op=READ,every=3,after=7,times=1,status=TIMEOUT",
		NULL,
		"op=READ,delay=5ms",
		"op=READ,action=delay,delay=5000000",
		"op=READ,delay=600s,status=ESHUTDOWN",
		"op=READ,action=delay,status=ESHUTDOWN,delay=600000000000",
		"op=FLUSH,action=hang",
		NULL,
		"op=FLUSH,action=hang,status=EPERM",
		NULL,
		"op=READ,action=drop",
		"op=READ,action=drop,at=reply",
		"op=READ,action=drop,at=mid-reply",
		NULL,
		"op=READ,action=drop,at=mid-payload",
		NULL,
		"action=corrupt",
		"op=READ|WRITE,action=corrupt",
		"op=READ,action=corrupt,offset=0,bit=7",
		NULL,
		"action=lost",
		"op=WRITE|DISCARD|WRITE_ZEROES,action=lost",
		"op=FLUSH,action=lost",
		NULL,
		"action=misdirected,shift=-8",
		"op=WRITE,action=misdirected,"
		"shift=-8",
		"op=READ,action=misdirected,shift=1",
		NULL,
		"action=torn",
		"op=WRITE,action=torn",
		"op=WRITE,action=torn,status=IOERR,keep=0",
		NULL,
	};
	struct fault_rule r, again;

	(void)state;
	for (size_t i = 0; i < sizeof(text) / sizeof(*text); i += 2) {
		const char *wanted = text[i + 1] ? text[i + 1] : text[i];

		if (parse(&r, text[i]) != 0)
			fail_msg("%s", err);
		assert_string_equal(printed(&r), wanted);
		assert_int_equal(parse(&again, printed(&r)), 0);
		assert_true(fault_rule_same(&r, &again));
	}
}

static void
refuses_what_is_wrong_and_says_what_is_allowed(void **state)
{
	static const struct {
		const char *text;
		int error;
		const char *says;
	} bad[] = {
		{ "op=read", -EINVAL, "op: \"read\": allowed: READ, WRITE" },
		{ "op=READ|", -EINVAL, "op: \"READ|\": allowed" },
		{ "op=", -EINVAL, "op: \"\": allowed" },
		{ "op", -EINVAL, "op: allowed: op=VALUE" },
		{ "op=READ,op=READ", -EINVAL, "op: given twice" },
		{ "opp=READ", -EINVAL,
		    "opp: no such key; allowed: op, start, " },
		{ "status=OOPS", -EINVAL, "status: \"OOPS\": allowed: IOERR" },
		{ "status=IOERR,errno=EIO", -EINVAL,
		    "one of status and errno" },
		{ "start=-1", -EINVAL, "start: \"-1\": allowed: a sector" },
		{ "start=1k", -EINVAL, "start: \"1k\": allowed" },
		{ "start=18446744073709551616", -ERANGE, "out of range" },
		{ "start=2,nr_sectors=18446744073709551615", -ERANGE,
		    "beyond all sectors" },
		{ "chance=0", -ERANGE, "chance: \"0\": out of range" },
		{ "every=0", -ERANGE, "every: \"0\"" },
		{ "times=0", -ERANGE, "times: \"0\"" },
		{ "probability=100.1", -ERANGE, "probability: \"100.1\"" },
		{ "probability=101", -ERANGE, "probability: \"101\"" },
		{ "probability=-1", -EINVAL, "probability: \"-1\"" },
		{ "probability=1.", -EINVAL, "probability: \"1.\"" },
		{ "probability=1.0000001", -EINVAL, "probability" },
		{ "probability=1.2.3", -EINVAL, "probability" },
		{ "probability=%", -EINVAL, "probability" },
		{ "action=explode", -EINVAL, "action: \"explode\": allowed" },
		{ "action=delay", -EINVAL, "needs delay=TIME" },
		{ "delay=601s", -ERANGE, "delay: \"601s\": out of range" },
		{ "delay=0", -ERANGE, "delay: \"0\"" },
		{ "action=hang,delay=1s", -EINVAL,
		    "delay: not with action=hang" },
		{ "action=drop,at=noon", -EINVAL,
		    "at: \"noon\": allowed: reply" },
		{ "at=reply", -EINVAL, "at: not with action=error" },
		{ "action=drop,status=IOERR", -EINVAL,
		    "status: not with action=drop" },
		{ "action=drop,op=FLUSH", -EINVAL,
		    "op: FLUSH: not with action=drop" },
		{ "action=corrupt,bit=8", -ERANGE, "bit: \"8\"" },
		{ "action=corrupt,op=DISCARD", -EINVAL, "op: DISCARD: not" },
		{ "action=lost,op=READ|WRITE", -EINVAL, "op: READ: not" },
		{ "action=misdirected", -EINVAL, "needs shift=SECTORS" },
		{ "action=misdirected,shift=0", -ERANGE, "shift: \"0\"" },
		{ "action=misdirected,shift=--1", -EINVAL, "shift: \"--1\"" },
		{ "action=torn,op=READ", -EINVAL, "op: READ: not" },
		{ "keep=1", -EINVAL, "keep: not with action=error" },
		{ "op=FLUSH,start=0", -EINVAL, "a FLUSH has no range" },
	};
	struct fault_rule r;
	char *long_one = malloc(5000);
	int ret;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		ret = parse(&r, bad[i].text);
		if (ret != bad[i].error || strstr(err, bad[i].says) == NULL ||
		    strncmp(err, "faults: \"", 9) != 0)
			fail_msg("%s: %d: %s", bad[i].text, ret, err);
	}
	memset(long_one, ',', 4999);
	long_one[4999] = '\0';
	assert_int_equal(parse(&r, long_one), -EINVAL);
	free(long_one);
}

static void
knows_all_of_the_kernels_status_names(void **state)
{
	static const char *const names[] = { "NOTSUPP", "TIMEOUT", "NOSPC",
		"TRANSPORT", "TARGET", "RESV_CONFLICT", "MEDIUM", "PROTECTION",
		"RESOURCE", "AGAIN", "DEV_RESOURCE", "ZONE_OPEN_RESOURCE",
		"ZONE_ACTIVE_RESOURCE", "OFFLINE", "DURATION_LIMIT", "INVAL",
		"IOERR", "EIO", "ENOSPC", "ENOMEM", "EPERM", "ESHUTDOWN",
		"EINVAL", "ETIMEDOUT" };
	struct fault_rule r;
	char text[64];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(text, sizeof(text), "status=%s", names[i]);
		assert_int_equal(parse(&r, text), 0);
		snprintf(text, sizeof(text), "errno=%s", names[i]);
		assert_int_equal(parse(&r, text), 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_as_it_was_written),
		cmocka_unit_test(
		    refuses_what_is_wrong_and_says_what_is_allowed),
		cmocka_unit_test(knows_all_of_the_kernels_status_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
