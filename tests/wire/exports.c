/* SPDX-License-Identifier: MIT */
/*
 * Under which names devices are served, what the empty one means, and what
 * clients are told of each: descriptions, read only.
 */
#include "../lib/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR(a) (sizeof(a) / sizeof(*(a)))

static struct wire *
negotiating(struct daemon *d)
{
	struct wire *w = wire_unix(d->sock);

	wire_greeting(w);
	wire_flags(w, 3);
	return w;
}

/* What LIST has of `name`: how often, and the description of the last. */
static int
listed(struct daemon *d, const char *name, char *description, size_t max)
{
	struct opt_reply *r = xmalloc(sizeof(*r));
	struct wire *w = negotiating(d);
	size_t len = strlen(name);
	int nr = 0;

	wire_option(w, OPT_LIST, NULL, 0);
	for (;;) {
		wire_opt_reply(w, OPT_LIST, r);
		if (r->type != REP_SERVER)
			break;
		assert_in_range(r->len, 4, sizeof(r->data) - 1);
		assert_in_range(get32(r->data), 0, r->len - 4);
		if (get32(r->data) != len || memcmp(r->data + 4, name, len))
			continue;
		nr++;
		r->data[r->len] = '\0';
		snprintf(description, max, "%s", (char *)r->data + 4 + len);
	}
	assert_int_equal(r->type, REP_ACK);
	free(r);
	wire_close(w);
	return nr;
}

/* What INFO says of `name`, as a string: its NAME or its DESCRIPTION. */
static uint32_t
told(struct daemon *d, const char *name, uint16_t what, char *text, size_t max)
{
	struct opt_reply *r = xmalloc(sizeof(*r));
	struct wire *w = negotiating(d);
	uint8_t data[5000];
	uint32_t type;

	text[0] = '\0';
	wire_option(w, OPT_INFO, data, put_info(data, name, &what, 1));
	do {
		wire_opt_reply(w, OPT_INFO, r);
		r->data[r->len] = '\0';
		if (r->type == REP_INFO && get16(r->data) == what)
			snprintf(text, max, "%s", (char *)r->data + 2);
	} while (r->type == REP_INFO);
	type = r->type;
	free(r);
	wire_close(w);
	return type;
}

static void
serves_a_device_under_all_its_names(void **state)
{
	static const char *const names[] = { "nullb0", "boot disk",
		"\xce\xb4\xce\xaf\xcf\x83\xce\xba\xce\xbf\xcf\x82", "/dev/x" };
	struct daemon *d = daemon_start("nullb0:size=64M,memory_backed=1,"
					"description=the first,"
					"export_names=boot disk,"
					"export_names=\xce\xb4\xce\xaf\xcf\x83"
					"\xce\xba\xce\xbf\xcf\x82,"
					"export_names=/dev/x",
	    "b:size=1M,export_names=second", "off:power=0,export_names=dark",
	    NULL);
	char text[64];
	uint8_t data[512], got[512];

	(void)state;
	for (size_t i = 0; i < NR(names); i++) {
		struct wire *w, *first;

		assert_int_equal(listed(d, names[i], text, sizeof(text)), 1);
		assert_string_equal(text, "the first");
		/* N64: whatever it was called, the canonical name */
		assert_int_equal(
		    told(d, names[i], INFO_NAME, text, sizeof(text)), REP_ACK);
		assert_string_equal(text, "nullb0");
		/* one store behind them */
		w = wire_open(d, names[i], true);
		first = wire_open(d, "nullb0", false);
		fill(data, sizeof(data), i);
		assert_int_equal(wire_write(w, data, i * 512, 512), 0);
		assert_int_equal(wire_read(first, got, i * 512, 512), 0);
		assert_same(got, data, 512, "through another name");
		wire_close(w);
		wire_close(first);
	}
	assert_int_equal(listed(d, "second", text, sizeof(text)), 1);
	assert_string_equal(text, "");
	assert_int_equal(
	    told(d, "second", INFO_NAME, text, sizeof(text)), REP_ACK);
	assert_string_equal(text, "b");
	/* without power it is served under none */
	assert_int_equal(listed(d, "off", text, sizeof(text)), 0);
	assert_int_equal(listed(d, "dark", text, sizeof(text)), 0);
	assert_int_equal(
	    told(d, "dark", INFO_NAME, text, sizeof(text)), REP_ERR_UNKNOWN);
	daemon_stop(d);
}

/* The client's oldest way, which has no answer but an end. */
static bool
attaches_by_export_name(struct daemon *d, const char *name, uint64_t size)
{
	struct wire *w = negotiating(d);
	uint8_t answer[10];
	bool eof;

	wire_option(w, OPT_EXPORT_NAME, name, (uint32_t)strlen(name));
	if (wire_drain(w, answer, sizeof(answer), 4000, &eof) == 0) {
		assert_true(eof);
		wire_close(w);
		return false;
	}
	assert_int_equal(get64(answer), size);
	wire_close(w);
	return true;
}

static void
the_default_export_is_the_one_that_is_named(void **state)
{
	static const struct {
		const char *setting, *name; /* NULL: none */
		uint64_t size;
	} cases[] = {
		{ "", "a", 1 * MiB },
		{ "default_export = b\n", "b", 2 * MiB },
		{ "default_export = alias of c\n", "c", 3 * MiB },
		{ "default_export = none\n", NULL, 0 },
	};
	char conf[512], text[64];

	(void)state;
	for (size_t i = 0; i < NR(cases); i++) {
		struct daemon *d = daemon_new();
		const char *args[] = { "-c", NULL, "-U", d->sock, "--control",
			d->control, NULL };
		struct wire *w;

		snprintf(conf, sizeof(conf),
		    "[nullbd]\n%s[a]\nsize=1M\n[b]\nsize=2M\n"
		    "[c]\nsize=3M\nexport_names = alias of c\n",
		    cases[i].setting);
		args[1] = daemon_config(d, conf);
		daemon_exec(d, args);
		daemon_ready(d, d->sock);
		assert_int_equal(told(d, "", INFO_NAME, text, sizeof(text)),
		    cases[i].name ? REP_ACK : REP_ERR_UNKNOWN);
		assert_string_equal(text, cases[i].name ? cases[i].name : "");
		assert_int_equal(attaches_by_export_name(d, "", cases[i].size),
		    cases[i].name != NULL);
		/* those with names are as they were */
		assert_true(attaches_by_export_name(d, "a", 1 * MiB));
		assert_true(attaches_by_export_name(d, "alias of c", 3 * MiB));
		w = wire_open(d, "b", false);
		assert_int_equal(w->size, 2 * MiB);
		wire_close(w);
		daemon_stop(d);
	}
}

static void
refuses_names_that_are_taken(void **state)
{
	static const struct {
		const char *conf, *said;
	} cases[] = {
		{ "[a]\nexport_names = x\n[b]\nexport_names = x\n",
		    "conf:3: b: export_names: \"x\": is a name of a already" },
		{ "[a]\nexport_names = b\n[b]\n",
		    "conf:1: a: export_names: \"b\": is a name of b already" },
		{ "[a]\nexport_names = a\n",
		    "conf:1: a: export_names: \"a\": is a name of a already" },
		{ "[defaults]\nexport_names = x\n[a]\n[b]\n",
		    "export_names: \"x\": is a name of a already" },
		{ "[a]\nexport_names = \xff\n",
		    "conf:2: export_names: \"\xff\": allowed: UTF-8" },
		{ "[nullbd]\ndefault_export = x\n[a]\n",
		    "default_export: \"x\": no such device" },
	};

	(void)state;
	for (size_t i = 0; i < NR(cases); i++) {
		struct daemon *d = daemon_new();
		const char *args[] = { "-c", daemon_config(d, cases[i].conf),
			"-U", d->sock, NULL };

		daemon_exec(d, args);
		assert_int_equal(daemon_wait(d, 5000), 2);
		if (!daemon_log_has(d, cases[i].said))
			wire_fail("it does not say '%s'", cases[i].said);
		daemon_free(d);
	}
}

/* N17, N41: 4096 bytes of UTF-8, none more, whole on the wire. */
static void
strings_are_as_long_as_they_may_be(void **state)
{
	char *conf = xmalloc(32 * KiB), *name = xmalloc(4097);
	char *text = xmalloc(8 * KiB);

	(void)state;
	for (int i = 0; i < 4096; i += 2)
		memcpy(name + i, "\xc3\xa9", 3);
	for (int more = 0; more < 2; more++) {
		struct daemon *d = daemon_new();
		const char *args[] = { "-c", NULL, "-U", d->sock, "--control",
			d->control, NULL };

		snprintf(conf, 32 * KiB,
		    "[a]\nsize = 1M\ndescription = %s%s\nexport_names = %s%s\n",
		    name, more ? "x" : "", name, more ? "x" : "");
		args[1] = daemon_config(d, conf);
		daemon_exec(d, args);
		if (more) {
			assert_int_equal(daemon_wait(d, 5000), 2);
			assert_true(daemon_log_has(d, "conf:3: description: "));
			assert_true(daemon_log_has(d, "at most 4096 bytes"));
			assert_true(
			    daemon_log_has(d, "conf:4: export_names: "));
			continue;
		}
		daemon_ready(d, d->sock);
		assert_int_equal(listed(d, name, text, 8 * KiB), 1);
		assert_string_equal(text, name);
		assert_int_equal(
		    told(d, name, INFO_DESCRIPTION, text, 8 * KiB), REP_ACK);
		assert_string_equal(text, name);
		wire_close(wire_open(d, name, true));
		assert_true(attaches_by_export_name(d, name, 1 * MiB));
		daemon_stop(d);
	}
	free(conf);
	free(name);
	free(text);
}

static void
a_read_only_export_takes_no_changes(void **state)
{
	static const uint16_t changes[] = { CMD_TRIM, CMD_WRITE_ZEROES };
	struct daemon *d = daemon_start("nullb0:size=1M,memory_backed=1,"
					"discard=1,ro=1,export_names=alias",
	    "rw:size=1M,memory_backed=1,discard=1", NULL);
	const char *names[] = { "nullb0", "alias" };
	uint8_t data[512], got[512];

	(void)state;
	fill(data, sizeof(data), 1);
	for (size_t i = 0; i < NR(names); i++) {
		struct wire *w = wire_open(d, names[i], true);

		assert_true(w->tx_flags & TX_READ_ONLY);
		assert_int_equal(wire_write(w, data, 0, 512), E_PERM);
		for (size_t k = 0; k < NR(changes); k++)
			assert_int_equal(
			    wire_cmd(w, 0, changes[k], 0, 512), E_PERM);
		assert_int_equal(wire_read(w, got, 0, 512), 0);
		assert_true(all_zero(got, 512));
		assert_int_equal(wire_cmd(w, 0, CMD_FLUSH, 0, 0), 0);
		wire_close(w);
	}
	/* it is the export's, not the daemon's */
	struct wire *w = wire_open(d, "rw", true);

	assert_false(w->tx_flags & TX_READ_ONLY);
	wire_assert_served(w, 0);
	daemon_stop(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N35 N64", "serves a device under all its names",
		    serves_a_device_under_all_its_names),
		CASE("N38", "the default export is the one that is named",
		    the_default_export_is_the_one_that_is_named),
		CASE("exports", "refuses names that are taken, or none",
		    refuses_names_that_are_taken),
		CASE("N17 N41", "strings are as long as they may be",
		    strings_are_as_long_as_they_may_be),
		CASE("exports", "a read-only export takes no changes",
		    a_read_only_export_takes_no_changes),
	};

	return cmocka_run_group_tests_name("exports", tests, NULL, NULL);
}
