/* SPDX-License-Identifier: MIT */
/* Zones over the control socket: requests as clients send them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "unit/host.h"

#define MIB (1024u * 1024u)

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disks[2];
static unsigned nr_sweeps;

static void
sweep(void *from, struct disk *d)
{
	(void)from;
	assert_ptr_equal(d, disks[0]);
	nr_sweeps++;
}

static const struct ctl ctl = {
	.disks = disks,
	.nr_disks = 2,
	.sweep = sweep,
};

static void
open_disks(const char *settings)
{
	machine = host_new(1);
	pool = page_pool_new(machine, 0);
	disks[0] = host_disk(machine, pool, settings);
	disks[1] = host_disk(machine, pool, "size=16");
	strcpy(disks[1]->name, "flat");
	nr_sweeps = 0;
}

static void
close_disks(void)
{
	disk_free(disks[0]);
	disk_free(disks[1]);
	page_pool_free(pool);
	machine_free(machine);
}

/* The answer to "zone", with these members besides. */
static json_t *
ask(const char *name, const char *action, const char *members)
{
	char line[512], *text;
	json_t *answer;

	snprintf(line, sizeof(line),
	    "{\"command\":\"zone\",\"name\":\"%s\",\"action\":\"%s\"%s%s}",
	    name, action, *members != '\0' ? "," : "", members);
	text = ctl_request(&ctl, NULL, line, strlen(line), 1);
	assert_non_null(text);
	answer = json_loads(text, 0, NULL);
	free(text);
	assert_non_null(answer);
	return answer;
}

static void
done(const char *action, const char *members)
{
	json_t *answer = ask("nullb0", action, members);

	if (!json_is_true(json_object_get(answer, "ok")))
		fail_msg("%s %s: %s", action, members,
		    json_string_value(json_object_get(answer, "error")));
	json_decref(answer);
}

static void
refused(const char *name, const char *action, const char *members,
    const char *error, const char *text)
{
	json_t *answer = ask(name, action, members);

	assert_false(json_is_true(json_object_get(answer, "ok")));
	assert_string_equal(
	    json_string_value(json_object_get(answer, "error")), text);
	assert_string_equal(
	    json_string_value(json_object_get(answer, "errno")), error);
	json_decref(answer);
}

/* As nullbctl prints them. */
static void
prints(const char *members, const char *wanted)
{
	json_t *answer = ask("nullb0", "report", members);
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(
	    zoneinfo_print(json_object_get(answer, "zones"), out), 0);
	fclose(out);
	assert_string_equal(text, wanted);
	free(text);
	json_decref(answer);
}

static void
conds(const char *wanted)
{
	char text[64] = "";
	struct zone_info z;

	for (unsigned i = 0; i < zones_nr(disks[0]->zones); i++) {
		zones_info(disks[0]->zones, i, &z);
		sprintf(
		    text + strlen(text), "%s%d", i > 0 ? " " : "", (int)z.cond);
	}
	assert_string_equal(text, wanted);
}

#define LINE(start, cap, wptr, cond, type)                                     \
	"  start: 0x00000" start ", len 0x002000, cap 0x00" cap ", wptr " wptr \
	" reset:0 non-seq:0, zcond:" cond " [type: " type "]\n"

/* As recorded of blkzone with null_blk of 6.12. */
static void
prints_zones_as_blkzone_does(void **state)
{
	char err[128];

	(void)state;
	open_disks("zoned=1 size=64 zone_size=4 zone_nr_conv=2");
	prints("\"count\":4",
	    LINE("0000", "2000", "0x000000", " 0(nw)", "1(CONVENTIONAL)")
		LINE("2000", "2000", "0x000000", " 0(nw)", "1(CONVENTIONAL)")
		    LINE("4000", "2000", "0x000000", " 1(em)",
			"2(SEQ_WRITE_REQUIRED)") LINE("6000", "2000",
			"0x000000", " 1(em)", "2(SEQ_WRITE_REQUIRED)"));
	close_disks();
	open_disks("zoned=1 size=64 zone_size=4 zone_capacity=3");
	done("open", "\"sector\":8192,\"count\":1");
	done("finish", "\"sector\":16384,\"count\":1");
	assert_int_equal(
	    disk_set(disks[0], "zone_offline", "24576", 1, err, sizeof(err)),
	    0);
	prints("\"sector\":8200,\"sectors\":16385", /* parts of three */
	    LINE("2000", "1800", "0x000000", " 3(oe)", "2(SEQ_WRITE_REQUIRED)")
		LINE("4000", "1800", "0x002000", "14(fu)",
		    "2(SEQ_WRITE_REQUIRED)") LINE("6000", "1800",
		    "0xffffffffffff9fff", "15(of)", "2(SEQ_WRITE_REQUIRED)"));
	close_disks();
}

static void
an_answer_says_how_to_go_on(void **state)
{
	json_t *answer, *next;
	unsigned nr = 0;
	char *line, *text;

	(void)state;
	open_disks("zoned=1 size=10 zone_size=4K");
	answer = ask("nullb0", "report", "\"sector\":17,\"count\":2500");
	for (;;) {
		nr +=
		    (unsigned)json_array_size(json_object_get(answer, "zones"));
		next = json_object_get(answer, "next");
		if (next == NULL)
			break;
		line = json_dumps(next, 0);
		json_decref(answer);
		text = ctl_request(&ctl, NULL, line, strlen(line), 1);
		answer = json_loads(text, 0, NULL);
		free(line);
		free(text);
	}
	json_decref(answer);
	assert_int_equal(nr, 2501); /* it begins and ends within one */
	close_disks();
}

static void
manages_ranges_as_blkzone_has_them(void **state)
{
	(void)state;
	open_disks("zoned=1 size=16 zone_size=4 zone_nr_conv=1 "
		   "zone_max_open=2 memory_backed=1");
	done("open", "\"sector\":8192,\"count\":1");
	done("open", "\"sector\":16384,\"sectors\":8192");
	conds("0 3 3 1");
	refused("nullb0", "open", "\"sector\":24576", "ETOOMANYREFS",
	    "nullb0: zone open: zone_max_open: 2: no more may be open");
	refused("nullb0", "close", "\"sector\":0", "EIO",
	    "nullb0: zone close: sectors 0 to 32767: a zone there is not in a "
	    "condition for it");
	conds("0 1 1 1"); /* those that were */
	assert_int_equal(nr_sweeps, 0);
	done("finish", "\"sector\":8192,\"count\":99"); /* no more than there */
	conds("0 14 14 14");
	done("reset", "\"sector\":8192,\"count\":1");
	conds("0 1 14 14");
	assert_int_equal(nr_sweeps, 1);
	done("reset", ""); /* all of the device */
	conds("0 1 1 1");
	done("open", "\"sector\":8192,\"count\":1");
	done("close", "\"all\":true");
	conds("0 1 1 1");
	done("finish", "\"all\":true");
	conds("0 14 14 14");
	done("reset", "\"all\":true");
	conds("0 1 1 1");
	close_disks();
	open_disks("zoned=1 size=16 zone_size=4 zone_max_active=1");
	done("open", "\"count\":1");
	refused("nullb0", "open", "\"sector\":8192,\"count\":1", "EOVERFLOW",
	    "nullb0: zone open: zone_max_active: 1: no more may be open or "
	    "closed");
	close_disks();
}

static void
says_what_is_wrong(void **state)
{
	char line[] = "{\"command\":\"zone\",\"name\":\"nullb0\"}", *text;

	(void)state;
	open_disks("zoned=1 size=16 zone_size=4");
	refused("flat", "report", "", "ENOTTY", "flat: has no zones");
	refused("none", "report", "", "ENODEV", "none: no such device");
	refused("nullb0", "erase", "", "EINVAL",
	    "zone: \"erase\": allowed: report, open, close, finish, reset");
	refused("nullb0", "reset", "\"sector\":8", "EINVAL",
	    "nullb0: zone reset: sectors 8 to 32767: allowed: whole zones, of "
	    "8192 sectors");
	refused("nullb0", "reset", "\"sectors\":8", "EINVAL",
	    "nullb0: zone reset: sectors 0 to 7: allowed: whole zones, of "
	    "8192 sectors");
	refused("nullb0", "reset", "\"sector\":32768", "EINVAL",
	    "nullb0: zone reset: sector: allowed: a number within the device "
	    "(32768 sectors)");
	refused("nullb0", "reset", "\"count\":0", "EINVAL",
	    "nullb0: zone reset: count: allowed: a number within the device "
	    "(32768 sectors)");
	refused("nullb0", "reset", "\"sectors\":\"x\"", "EINVAL",
	    "nullb0: zone reset: sectors: allowed: a number within the device "
	    "(32768 sectors)");
	refused("nullb0", "reset", "\"sector\":-1", "EINVAL",
	    "nullb0: zone reset: sector: allowed: a number within the device "
	    "(32768 sectors)");
	text = ctl_request(&ctl, NULL, line, strlen(line), 1);
	assert_non_null(strstr(text, "zone: which? \\\"action\\\" is missing"));
	free(text);
	assert_int_equal(zoneinfo_print(NULL, stdout), -EINVAL);
	close_disks();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prints_zones_as_blkzone_does),
		cmocka_unit_test(an_answer_says_how_to_go_on),
		cmocka_unit_test(manages_ranges_as_blkzone_has_them),
		cmocka_unit_test(says_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
