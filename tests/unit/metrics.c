/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "host.h"

static const struct daemon_state state = {
	.nr_connections = 3,
	.nr_requests = 5,
	.memory = 8192,
	.memory_limit = 1048576,
};

static void
on_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	bio_release(bio, cpu);
	*(bool *)bio->priv = true;
}

/* One that takes 50 us. */
static void
do_write(struct disk *d, struct cpu *cpu, uint64_t now)
{
	static char data[4096];
	bool ended = false;
	struct bio bio;

	bio_init(&bio, REQ_OP_WRITE, 0, NULL, 0);
	bio_add(&bio, true, 4096, data, sizeof(data));
	bio.end_io = on_end;
	bio.priv = &ended;
	assert_int_equal(queue_submit(d->queue, cpu, NULL, &bio, now), 0);
	cpu_run(cpu, now);
	if (!ended)
		cpu_run(cpu, now + 50000);
	assert_true(ended);
}

static char *
text_of(struct disk *const *disks, unsigned nr)
{
	char *text = NULL;
	size_t len = 0;

	assert_int_equal(
	    metrics_text(disks, nr, &state, 3000000000, &text, &len), 0);
	assert_int_equal(strlen(text), len);
	return text;
}

/* The whole of a file, and our version where it says so. */
static char *
wanted(const char *path)
{
	static const char here[] = "@version@";
	char *text = NULL, line[256], *at;
	FILE *in = fopen(path, "r"), *out;
	size_t len;

	if (in == NULL)
		fail_msg("%s: %s", path, strerror(errno));
	out = open_memstream(&text, &len);
	while (fgets(line, sizeof(line), in) != NULL) {
		at = strstr(line, here);
		if (at == NULL)
			fputs(line, out);
		else
			fprintf(out, "%.*s%s%s", (int)(at - line), line,
			    NULLBD_VERSION, at + strlen(here));
	}
	fclose(in);
	fclose(out);
	return text;
}

/* ---- a grammar of OpenMetrics, as far as we use it */

#define NAME   "[a-zA-Z_:][a-zA-Z0-9_:]*"
#define VALUE  "\"([^\"\\]|\\\\[n\"\\])*\""
#define LABELS "\\{(" NAME "=" VALUE "(," NAME "=" VALUE ")*)?\\}"
#define NUMBER "([0-9]+(\\.[0-9]+)?|\\+Inf)"

static const char *const line_forms[] = {
	"^# TYPE " NAME " (gauge|counter|histogram|info)$",
	"^# UNIT " NAME " (seconds|bytes)$",
	"^# HELP " NAME " [A-Z].*\\.$",
	"^" NAME "(" LABELS ")? " NUMBER "$",
	"^# EOF$",
	NULL,
};

/* What may stand behind the name of a family of a type. */
static const struct {
	const char *type;
	const char *suffix;
} suffixes[] = {
	{ "gauge", "" },
	{ "counter", "_total" },
	{ "info", "_info" },
	{ "histogram", "_bucket" },
	{ "histogram", "_count" },
	{ "histogram", "_sum" },
	{},
};

static bool
has_form(const char *line)
{
	bool fits = false;
	regex_t re;

	for (size_t i = 0; line_forms[i] != NULL && !fits; i++) {
		assert_int_equal(
		    regcomp(&re, line_forms[i], REG_EXTENDED | REG_NOSUB), 0);
		fits = regexec(&re, line, 0, NULL, 0) == 0;
		regfree(&re);
	}
	return fits;
}

struct reading {
	char family[128], type[16];
	char seen[64][128]; /* families */
	unsigned nr_seen, nr_samples;
	bool ended;
};

static bool
is_of_family(const struct reading *r, const char *line)
{
	size_t len = strlen(r->family), end = strcspn(line, "{ ");

	if (end < len || strncmp(line, r->family, len) != 0)
		return false;
	for (size_t i = 0; suffixes[i].type != NULL; i++)
		if (strcmp(suffixes[i].type, r->type) == 0 &&
		    strlen(suffixes[i].suffix) == end - len &&
		    strncmp(line + len, suffixes[i].suffix, end - len) == 0)
			return true;
	return false;
}

/* A family begins with its type, once; what follows is its own. */
static void
read_line(struct reading *r, const char *line)
{
	char what[8], name[128];

	if (!has_form(line) || r->ended)
		fail_msg("\"%s\"", line);
	if (strcmp(line, "# EOF") == 0) {
		r->ended = true;
		return;
	}
	if (line[0] != '#') {
		if (!is_of_family(r, line))
			fail_msg("\"%s\" among those of %s", line, r->family);
		r->nr_samples++;
		return;
	}
	assert_int_equal(sscanf(line, "# %7s %127s", what, name), 2);
	if (strcmp(what, "TYPE") != 0) {
		assert_string_equal(name, r->family);
		return;
	}
	sscanf(line, "# TYPE %127s %15s", r->family, r->type);
	for (unsigned i = 0; i < r->nr_seen; i++)
		assert_string_not_equal(name, r->seen[i]);
	assert_true(r->nr_seen < 64);
	strcpy(r->seen[r->nr_seen++], name);
}

static unsigned
assert_openmetrics(char *text)
{
	static struct reading r;
	char *rest = text, *line;

	r = (struct reading){};
	assert_int_equal(text[strlen(text) - 1], '\n');
	text[strlen(text) - 1] = '\0';
	while ((line = strsep(&rest, "\n")) != NULL)
		read_line(&r, line);
	assert_true(r.ended);
	return r.nr_samples;
}

/* ---- */

static struct machine *machine;
static struct page_pool *pool;

static int
setup(void **unused)
{
	(void)unused;
	machine = host_new(1);
	pool = page_pool_new(machine, 0);
	turn(machine->cpu);
	return 0;
}

static int
teardown(void **unused)
{
	(void)unused;
	rest(pool, machine->cpu);
	page_pool_free(pool);
	machine_free(machine);
	return 0;
}

static void
tells_what_a_disk_has_counted(void **unused)
{
	struct disk *d = host_disk(machine, pool,
	    "size=1 memory_backed=1 irqmode=2 completion_nsec=50000 "
	    "faults=op=READ faults=op=WRITE,every=10,action=lost");
	char *text, *want = wanted("tests/data/metrics.txt");

	(void)unused;
	for (unsigned i = 0; i < 20; i++)
		do_write(d, machine->cpu, 2000000 + 100000 * i);
	text = text_of(&d, 1);
	assert_string_equal(text, want);
	free(text);
	free(want);
	disk_free(d);
}

static void
keeps_each_family_together(void **unused)
{
	struct disk *d[] = {
		host_disk(machine, pool, "size=16 zoned=1 zone_size=1"),
		host_disk(machine, pool, "size=1 kernel=4.14"),
		disk_new("off", machine, pool),
	};
	char *text = text_of(d, 3);

	(void)unused;
	assert_non_null(strstr(text, "nullbd_device_on{device=\"off\"} 0\n"));
	assert_null(strstr(text, "nullbd_device_ios_total{device=\"off\""));
	assert_non_null(strstr(text,
	    "nullbd_device_zones{device=\"nullb0\",condition=\"empty\"} 16\n"));
	assert_null(strstr(text, "nullbd_fault"));
	assert_in_range(assert_openmetrics(text), 300, 400);
	free(text);
	for (unsigned i = 0; i < 3; i++)
		disk_free(d[i]);
}

static void
escapes_what_a_label_has(void **unused)
{
	struct disk *d = disk_new("a\"b\\c\nd\xc3\xa9", machine, pool);
	char *text = text_of(&d, 1);

	(void)unused;
	assert_non_null(strstr(
	    text, "nullbd_device_on{device=\"a\\\"b\\\\c\\nd\xc3\xa9\"} 0\n"));
	assert_openmetrics(text);
	free(text);
	disk_free(d);
}

static void
tells_of_a_daemon_without_disks_or_limit(void **unused)
{
	struct daemon_state none = {};
	char *text;
	size_t len;

	(void)unused;
	assert_int_equal(metrics_text(NULL, 0, &none, 1, &text, &len), 0);
	assert_non_null(strstr(text, "\nnullbd_memory_limit_bytes +Inf\n"));
	assert_int_equal(assert_openmetrics(text), 5);
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_what_a_disk_has_counted),
		cmocka_unit_test(keeps_each_family_together),
		cmocka_unit_test(escapes_what_a_label_has),
		cmocka_unit_test(tells_of_a_daemon_without_disks_or_limit),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
