/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

static char err[512];

static void
every_row_has_a_help_line_and_takes_its_default(void **state)
{
	struct daemon_conf c;

	(void)state;
	assert_int_equal(attr_init(daemon_attrs, &c), 0);
	for (const struct attr *a = daemon_attrs; a->name != NULL; a++) {
		assert_true(strlen(a->help) > 5);
		assert_int_not_equal(a->help[strlen(a->help) - 1], '.');
		assert_ptr_equal(attr_find(daemon_attrs, a->name), a);
		if (a->def != NULL)
			assert_int_equal(attr_set(daemon_attrs, &c, a->name,
					     a->def, false, err, sizeof(err)),
			    0);
	}
	assert_int_equal(c.spin_usec, 50);
	assert_int_equal(c.handshake_seconds, 10);
	assert_int_equal(c.memory_limit, MEMORY_LIMIT_AUTO);
	attr_fini(daemon_attrs, &c);
}

static void
knows_the_ways_to_name_a_place(void **state)
{
	static const struct {
		const char *text, *path, *host;
		unsigned port;
		bool vsock;
		uint32_t cid;
	} good[] = {
		{ "/run/nullbd.sock", "/run/nullbd.sock", "", 0, false, 0 },
		{ "./s", "./s", "", 0, false, 0 },
		{ "unix:s", "s", "", 0, false, 0 },
		{ "localhost", "", "localhost", 10809, false, 0 },
		{ "127.0.0.1:10810", "", "127.0.0.1", 10810, false, 0 },
		{ ":10810", "", "", 10810, false, 0 },
		{ "[::1]", "", "::1", 10809, false, 0 },
		{ "[::1]:0", "", "::1", 0, false, 0 },
		{ "unix:-", "-", "", 0, false, 0 },
		{ "vsock:10809", "", "", 10809, true, VSOCK_ANY },
		{ "vsock:0", "", "", 0, true, VSOCK_ANY },
		{ "vsock:1:4294967294", "", "", 4294967294, true, 1 },
		{ "vsock:4294967295:1", "", "", 1, true, VSOCK_ANY },
	};
	static const char *bad[] = { "", "unix:", "10809", "::1", "a:b",
		"a:", "a:65536", "[::1", "[]:1", "[::1]x", "a:1 ",
		"vsock:", "vsock::1", "vsock:1:", "vsock:a", "vsock:a:1",
		"vsock:1:2:3", "vsock:-1", "vsock:4294967295",
		"vsock:4294967296:1", " tls=off", "unix: tls=off",
		"a:1 tls=", "a:1 tls=on", "a:1 tls=off ",
		"a:1 tls=required x" };
	struct endpoint e;
	char path[400];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_int_equal(
		    endpoint_parse(good[i].text, &e, err, sizeof(err)), 0);
		assert_string_equal(e.path, good[i].path);
		assert_string_equal(e.host, good[i].host);
		assert_int_equal(e.port, good[i].port);
		assert_int_equal(e.vsock, good[i].vsock);
		assert_int_equal(e.cid, good[i].cid);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(
		    endpoint_parse(bad[i], &e, err, sizeof(err)), -EINVAL);
	/* what is longer than `listen` takes */
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(endpoint_parse(path, &e, err, sizeof(err)), -EINVAL);
	/* sun_path: 107 bytes and a NUL */
	memset(path, 'a', sizeof(path));
	path[0] = '/';
	path[107] = '\0';
	assert_int_equal(endpoint_parse(path, &e, err, sizeof(err)), 0);
	path[107] = 'a';
	path[108] = '\0';
	assert_int_equal(endpoint_parse(path, &e, err, sizeof(err)), -EINVAL);
}

static void
listens_at_all_places_and_at_loopback_when_there_is_none(void **state)
{
	struct endpoint e[DAEMON_MAX_LISTENERS];
	struct daemon_conf c;

	(void)state;
	attr_init(daemon_attrs, &c);
	assert_int_equal(daemon_endpoints(&c, e, err, sizeof(err)), 1);
	assert_string_equal(e[0].host, "127.0.0.1");
	assert_int_equal(e[0].port, DAEMON_PORT);

	attr_set(daemon_attrs, &c, "socket", "/a", false, err, sizeof(err));
	attr_set(daemon_attrs, &c, "listen", ":1", false, err, sizeof(err));
	assert_int_equal(daemon_endpoints(&c, e, err, sizeof(err)), 2);
	assert_string_equal(e[0].path, "/a");
	assert_int_equal(e[1].port, 1);

	attr_set(daemon_attrs, &c, "port", "7", false, err, sizeof(err));
	attr_set(daemon_attrs, &c, "address", "::1", false, err, sizeof(err));
	assert_int_equal(daemon_endpoints(&c, e, err, sizeof(err)), 3);
	assert_string_equal(e[2].host, "::1");
	assert_int_equal(e[2].port, 7);

	for (int i = 0; i < DAEMON_MAX_LISTENERS; i++)
		attr_set(
		    daemon_attrs, &c, "listen", "/b", false, err, sizeof(err));
	assert_int_equal(daemon_endpoints(&c, e, err, sizeof(err)), -EINVAL);
	attr_fini(daemon_attrs, &c);
}

static void
a_place_may_say_how_it_has_tls(void **state)
{
	static const struct {
		const char *text, *path, *host;
		enum tls_mode tls;
	} places[] = {
		{ "a:1", "", "a", TLS_UNSAID },
		{ "a:1 tls=off", "", "a", TLS_OFF },
		{ "a:1 tls=allowed", "", "a", TLS_ALLOWED },
		{ "[::1]:1   tls=required", "", "::1", TLS_REQUIRED },
		{ "/a b tls=required", "/a b", "", TLS_REQUIRED },
		{ "unix:a tls=x tls=off", "a tls=x", "", TLS_OFF },
		{ "/a tls", "/a tls", "", TLS_UNSAID },
		{ "/a,tls=off", "/a,tls=off", "", TLS_UNSAID },
	};
	struct endpoint e;

	(void)state;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		assert_int_equal(
		    endpoint_parse(places[i].text, &e, err, sizeof(err)), 0);
		assert_string_equal(e.path, places[i].path);
		assert_string_equal(e.host, places[i].host);
		assert_int_equal(e.tls, places[i].tls);
	}
	assert_int_equal(
	    endpoint_parse("a:1 tls=on", &e, err, sizeof(err)), -EINVAL);
	assert_string_equal(err,
	    "listen: \"a:1 tls=on\": tls: allowed: off, allowed, required");
}

static void
set(struct daemon_conf *c, const char *name, const char *value)
{
	assert_int_equal(
	    attr_set(daemon_attrs, c, name, value, false, err, sizeof(err)), 0);
}

static void
tls_is_as_the_place_says_or_else_the_setting(void **state)
{
	struct endpoint e[DAEMON_MAX_LISTENERS];
	struct daemon_conf c;

	(void)state;
	attr_init(daemon_attrs, &c);
	assert_int_equal(daemon_endpoints(&c, e, err, sizeof(err)), 1);
	assert_int_equal(e[0].tls, TLS_OFF);
	assert_false(daemon_wants_tls(&c));

	set(&c, "listen", "/a");
	set(&c, "listen", "/b tls=off");
	set(&c, "port", "7");
	set(&c, "tls", "required");
	assert_int_equal(daemon_endpoints(&c, e, err, sizeof(err)), 3);
	assert_int_equal(e[0].tls, TLS_REQUIRED);
	assert_int_equal(e[1].tls, TLS_OFF);
	assert_int_equal(e[2].tls, TLS_REQUIRED);
	assert_true(daemon_wants_tls(&c));

	set(&c, "tls", "off");
	assert_false(daemon_wants_tls(&c));
	set(&c, "listen", "/c tls=allowed");
	assert_true(daemon_wants_tls(&c));
	assert_int_not_equal(
	    attr_set(daemon_attrs, &c, "tls", "3", false, err, sizeof(err)), 0);
	attr_fini(daemon_attrs, &c);
}

static void
tls_needs_something_that_tells_who_is_who(void **state)
{
	struct daemon_conf c;

	(void)state;
	attr_init(daemon_attrs, &c);
	assert_int_equal(daemon_check_tls(&c, err, sizeof(err)), 0);
	set(&c, "tls_verify_peer", "1"); /* who says so does not want none */
	assert_int_equal(daemon_check_tls(&c, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "tls: off: but there is tls_verify_peer"));
	set(&c, "tls", "allowed");
	assert_int_equal(daemon_check_tls(&c, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "tls_certificates or tls_psk"));
	set(&c, "tls_psk", "/keys");
	assert_int_equal(daemon_check_tls(&c, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "tls_verify_peer"));
	set(&c, "tls_verify_peer", "0");
	assert_int_equal(daemon_check_tls(&c, err, sizeof(err)), 0);
	set(&c, "tls_psk", "");
	set(&c, "tls_certificates", "/pki");
	set(&c, "tls_verify_peer", "1");
	assert_int_equal(daemon_check_tls(&c, err, sizeof(err)), 0);
	attr_fini(daemon_attrs, &c);
}

static void
refuses_a_bad_place_when_it_is_set(void **state)
{
	struct daemon_conf c;

	(void)state;
	attr_init(daemon_attrs, &c);
	assert_int_equal(attr_set(daemon_attrs, &c, "listen", "10809", false,
			     err, sizeof(err)),
	    -EINVAL);
	assert_string_equal(err,
	    "listen: \"10809\": allowed: unix:PATH, /PATH, HOST:PORT, "
	    "[V6]:PORT, :PORT, HOST, vsock:PORT, vsock:CID:PORT");
	assert_null(c.listen);
	attr_fini(daemon_attrs, &c);
}

static void
reads_lists_of_cpus_in_their_order(void **state)
{
	static const struct {
		const char *text;
		int nr;
		unsigned first, last;
	} good[] = {
		{ "0", 1, 0, 0 },
		{ "0-3", 4, 0, 3 },
		{ "0-3,8", 5, 0, 8 },
		{ "8,0-3", 5, 8, 3 },
		{ "1,1", 2, 1, 1 },
		{ "7-7", 1, 7, 7 },
		{ "768-1023", 256, 768, 1023 },
	};
	static const char *bad[] = { "", ",", "0,", ",0", "0,,1", "3-0", "-1",
		"0-", "0-1-2", "a", "0 ", " 0", "0x1", "1024", "0-1024",
		"99999999999999999999", "0-256", "0-255,0" };
	unsigned cpu[DAEMON_MAX_CPUS];
	struct daemon_conf c;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		int nr = cpu_list_parse(good[i].text, cpu, err, sizeof(err));

		assert_int_equal(nr, good[i].nr);
		assert_int_equal(cpu[0], good[i].first);
		assert_int_equal(cpu[nr - 1], good[i].last);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(
		    cpu_list_parse(bad[i], cpu, err, sizeof(err)), -EINVAL);
	attr_init(daemon_attrs, &c);
	assert_int_equal(attr_set(daemon_attrs, &c, "affinity", "0-x", false,
			     err, sizeof(err)),
	    -EINVAL);
	assert_string_equal(err,
	    "affinity: \"0-x\": allowed: CPUs from 0 to 1023, such as 0-3,8");
	assert_int_equal(
	    attr_set(daemon_attrs, &c, "affinity", "", false, err, sizeof(err)),
	    0);
	attr_fini(daemon_attrs, &c);
}

static void
metrics_are_at_an_address_and_a_port(void **state)
{
	static const struct {
		const char *text, *host;
		unsigned port;
	} good[] = {
		{ "127.0.0.1:9809", "127.0.0.1", 9809 },
		{ "[::1]:0", "::1", 0 },
		{ ":65535", "", 65535 },
		{ "localhost:1", "localhost", 1 },
	};
	static const char *bad[] = { "", "9809", "localhost", "/tmp/x",
		"unix:/tmp/x", "::1", "::1:80", "[::1]", "a:", "a:65536", "a:x",
		"a:1 tls=off", "vsock:1:2" };
	struct daemon_conf c;
	struct endpoint e;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_int_equal(
		    metrics_endpoint(good[i].text, &e, err, sizeof(err)), 0);
		assert_string_equal(e.host, good[i].host);
		assert_int_equal(e.port, good[i].port);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(
		    metrics_endpoint(bad[i], &e, err, sizeof(err)), -EINVAL);
	assert_string_equal(err,
	    "metrics: \"vsock:1:2\": allowed: HOST:PORT, [V6]:PORT, :PORT");
	attr_init(daemon_attrs, &c);
	assert_null(c.metrics);
	attr_fini(daemon_attrs, &c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    every_row_has_a_help_line_and_takes_its_default),
		cmocka_unit_test(knows_the_ways_to_name_a_place),
		cmocka_unit_test(
		    listens_at_all_places_and_at_loopback_when_there_is_none),
		cmocka_unit_test(a_place_may_say_how_it_has_tls),
		cmocka_unit_test(tls_is_as_the_place_says_or_else_the_setting),
		cmocka_unit_test(tls_needs_something_that_tells_who_is_who),
		cmocka_unit_test(refuses_a_bad_place_when_it_is_set),
		cmocka_unit_test(metrics_are_at_an_address_and_a_port),
		cmocka_unit_test(reads_lists_of_cpus_in_their_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
