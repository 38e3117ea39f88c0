/* SPDX-License-Identifier: MIT */
/*
 * The sockets of the daemon: stale ones replaced, live ones left alone, both
 * families and several of them at once.
 */
#include "../lib/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE "nullb0:size=64M,memory_backed=1"

static void
serve_once(struct wire *w)
{
	wire_go(w, "nullb0", false);
	wire_assert_served(w, 0);
	wire_close(w);
}

static bool
exists(const char *path)
{
	struct stat st;

	return !lstat(path, &st);
}

static void
replaces_a_stale_socket(void **state)
{
	struct daemon *d = daemon_start(DEVICE, NULL);
	const char *args[] = { "-U", d->sock, "--control", d->control, DEVICE,
		NULL };

	(void)state;
	for (int i = 0; i < 3; i++) {
		daemon_kill(d);
		assert_true(exists(d->sock));
		assert_false(wire_can_connect(d->sock));
		daemon_exec(d, args);
		daemon_ready(d, d->sock);
		serve_once(wire_unix(d->sock));
		assert_int_equal(daemon_stat(d, "nullb0", 9), 0);
	}
	daemon_stop(d);
}

static void
leaves_a_live_socket_alone(void **state)
{
	struct daemon *d = daemon_start(DEVICE, NULL);
	struct daemon *second = daemon_new(), *third = daemon_new();
	const char *args[] = { "-U", d->sock, DEVICE, NULL };
	const char *control[] = { "-U", third->sock, "--control", d->control,
		DEVICE, NULL };
	struct wire *w = wire_open(d, "", false);

	(void)state;
	daemon_exec(second, args);
	assert_int_not_equal(daemon_wait(second, 5000), 0);
	assert_true(daemon_log_has(second, d->sock)); /* it says which */
	serve_once(wire_unix(d->sock));
	wire_assert_served(w, 0);

	daemon_exec(third, control);
	assert_int_not_equal(daemon_wait(third, 5000), 0);
	assert_false(exists(third->sock));
	assert_int_equal(daemon_stat(d, "nullb0", 9), 0);
	serve_once(wire_unix(d->sock));
	wire_close(w);
	daemon_stop(d);
}

/* What is no socket is somebody's file. */
static void
leaves_other_files_alone(void **state)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-U", d->sock, DEVICE, NULL };
	char text[16] = "";
	int fd;

	(void)state;
	fd = open(d->sock, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_int_equal(write(fd, "precious", 8), 8);
	close(fd);
	daemon_exec(d, args);
	assert_int_not_equal(daemon_wait(d, 5000), 0);
	fd = open(d->sock, O_RDONLY);
	assert_int_equal(read(fd, text, sizeof(text)), 8);
	close(fd);
	assert_string_equal(text, "precious");

	unlink(d->sock);
	assert_int_equal(mkdir(d->sock, 0700), 0);
	daemon_exec(d, args);
	assert_int_not_equal(daemon_wait(d, 5000), 0);
	assert_int_equal(rmdir(d->sock), 0);
}

static void
refuses_paths_that_cannot_be(void **state)
{
	struct daemon *d = daemon_new();
	char path[256];
	const char *args[] = { "-U", path, DEVICE, NULL };

	(void)state;
	snprintf(path, sizeof(path), "%s/none/sock", d->dir);
	daemon_exec(d, args);
	assert_int_not_equal(daemon_wait(d, 5000), 0);
	snprintf(path, sizeof(path), "%s/%0150d", d->dir, 0);
	daemon_exec(d, args);
	assert_int_not_equal(daemon_wait(d, 5000), 0);
	assert_true(daemon_log_size(d) > 0);
}

static void
listens_on_tcp_loopback(void **state)
{
	struct daemon *d = daemon_new();
	int port = wire_free_port("127.0.0.1");
	char text[16];
	const char *args[] = { "-p", text, "-a", "127.0.0.1", DEVICE, NULL };
	const char *by_default[] = { "-p", text, DEVICE, NULL };

	(void)state;
	snprintf(text, sizeof(text), "%d", port);
	daemon_exec(d, args);
	serve_once(wire_tcp("127.0.0.1", port));
	kill(d->pid, SIGTERM);
	assert_int_equal(daemon_wait(d, DAEMON_STOP_MS), 0);

	/* at once on the same port (connections linger), loopback unasked */
	daemon_exec(d, by_default);
	serve_once(wire_tcp("127.0.0.1", port));
	daemon_stop(d);
}

/* Loopback by default: the port is not open on every address. */
static void
default_address_is_loopback(void **state)
{
	struct daemon *d = daemon_new();
	int port = wire_free_port("127.0.0.1");
	char text[16], line[512], any4[32], any6[64];
	const char *args[] = { "-p", text, DEVICE, NULL };
	bool open = false;

	(void)state;
	snprintf(text, sizeof(text), "%d", port);
	daemon_exec(d, args);
	serve_once(wire_tcp("127.0.0.1", port));
	snprintf(any4, sizeof(any4), " 00000000:%04X ", port);
	snprintf(any6, sizeof(any6), " %032d:%04X ", 0, port);
	for (int i = 0; i < 2; i++) {
		FILE *f = fopen(i ? "/proc/net/tcp6" : "/proc/net/tcp", "r");

		while (f && fgets(line, sizeof(line), f))
			open = open || strstr(line, i ? any6 : any4);
		if (f)
			fclose(f);
	}
	assert_false(open);
	daemon_stop(d);
}

static void
listens_on_ipv6(void **state)
{
	struct daemon *d;
	int port = wire_free_port("::1");
	char text[16];

	(void)state;
	if (port < 0) {
		print_message("no ::1 on this machine\n");
		skip();
	}
	snprintf(text, sizeof(text), "%d", port);
	d = daemon_start("-p", text, "-a", "::1", DEVICE, NULL);
	serve_once(wire_tcp("::1", port));
	serve_once(wire_unix(d->sock));
	daemon_stop(d);
}

static void
a_port_in_use_is_refused(void **state)
{
	int port = wire_free_port("127.0.0.1");
	struct daemon *d, *second = daemon_new();
	char text[16];
	const char *args[] = { "-U", second->sock, "-p", text, "-a",
		"127.0.0.1", DEVICE, NULL };

	(void)state;
	snprintf(text, sizeof(text), "%d", port);
	d = daemon_start("-p", text, "-a", "127.0.0.1", DEVICE, NULL);
	serve_once(wire_tcp("127.0.0.1", port));
	daemon_exec(second, args);
	assert_int_not_equal(daemon_wait(second, 5000), 0);
	assert_false(exists(second->sock));
	serve_once(wire_tcp("127.0.0.1", port));
	daemon_stop(d);
}

static void
ports_that_cannot_be_are_refused(void **state)
{
	static const char *const bad[] = { "65536", "-1", "x", "", "10809x",
		"99999999999999999999" };
	struct daemon *d = daemon_new();

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		const char *args[] = { "-U", d->sock, "-p", bad[i], DEVICE,
			NULL };

		daemon_exec(d, args);
		assert_int_not_equal(daemon_wait(d, 5000), 0);
		assert_false(exists(d->sock));
	}
}

/* `nullbd --help`: 0 takes any free port.  The log tells the URI. */
static int
port_in_log(struct daemon *d)
{
	char line[512];
	FILE *f = fopen(d->log, "r");
	int port = -1;

	while (f && port < 0 && fgets(line, sizeof(line), f)) {
		const char *uri = strstr(line, "nbd://127.0.0.1:");

		if (uri)
			port = atoi(uri + strlen("nbd://127.0.0.1:"));
	}
	if (f)
		fclose(f);
	return port;
}

static void
port_zero_is_any_free_port(void **state)
{
	static const char *const args[] = { "-p", "0", "-a", "127.0.0.1",
		DEVICE, NULL };
	struct daemon *d[2];
	int port[2] = { -1, -1 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		d[i] = daemon_new();
		daemon_exec(d[i], args);
		for (int k = 0; k < 500 && port[i] < 0; k++) {
			if (!daemon_alive(d[i]))
				wire_fail("it does not start on port 0");
			sleep_ms(10);
			port[i] = port_in_log(d[i]);
		}
		serve_once(wire_tcp("127.0.0.1", port[i]));
	}
	assert_int_not_equal(port[0], port[1]);
	assert_int_not_equal(port[0], 10809);
	daemon_stop(d[0]);
	serve_once(wire_tcp("127.0.0.1", port[1]));
	daemon_stop(d[1]);
}

/* Everything at once, one store behind it. */
static void
several_listeners_serve_one_device(void **state)
{
	int port = wire_free_port("127.0.0.1");
	struct daemon *d = daemon_new();
	char text[16], sock2[128];
	const char *args[] = { "-U", d->sock, "-U", sock2, "-p", text, "-a",
		"127.0.0.1", "--control", d->control, "--workers", "3", DEVICE,
		"other:size=8M,memory_backed=1", NULL };
	struct wire *w[3];
	uint8_t data[4096], got[4096];

	(void)state;
	snprintf(text, sizeof(text), "%d", port);
	snprintf(sock2, sizeof(sock2), "%s/sock2", d->dir);
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	daemon_ready(d, sock2);
	w[0] = wire_unix(d->sock);
	w[1] = wire_unix(sock2);
	w[2] = wire_tcp("127.0.0.1", port);
	for (int i = 0; i < 3; i++)
		wire_go(w[i], "nullb0", i & 1);
	for (uint64_t i = 0; i < 9; i++) {
		fill(data, sizeof(data), i);
		assert_int_equal(wire_write(w[i % 3], data, i * 4096, 4096), 0);
		assert_int_equal(
		    wire_read(w[(i + 1) % 3], got, i * 4096, 4096), 0);
		assert_same(got, data, 4096, "through another listener");
	}
	daemon_stop(d);
	assert_false(exists(sock2));
}

/* Two daemons of one directory do not disturb each other. */
static void
two_daemons_side_by_side(void **state)
{
	struct daemon *a = daemon_start(DEVICE, NULL);
	struct daemon *b = daemon_start(DEVICE, NULL);
	struct wire *wa = wire_open(a, "", false);
	struct wire *wb = wire_open(b, "", false);
	uint8_t data[512], got[512];

	(void)state;
	fill(data, sizeof(data), 1);
	assert_int_equal(wire_write(wa, data, 0, 512), 0);
	assert_int_equal(wire_read(wb, got, 0, 512), 0);
	assert_true(all_zero(got, 512));
	wire_close(wa);
	daemon_stop(a);
	wire_assert_served(wb, 0);
	wire_close(wb);
	daemon_stop(b);
}

/* A backlog of clients that come at the same time. */
static void
many_clients_come_at_once(void **state)
{
	struct daemon *d = daemon_start(DEVICE, NULL);
	struct wire *w[200];

	(void)state;
	for (int i = 0; i < 200; i++)
		w[i] = wire_unix(d->sock);
	for (int i = 0; i < 200; i++)
		wire_greeting(w[i]);
	for (int i = 199; i >= 0; i--) {
		wire_flags(w[i], 3);
		assert_int_equal(wire_info(w[i], OPT_GO, "", NULL, 0), REP_ACK);
	}
	for (int i = 0; i < 200; i++)
		wire_assert_served(w[i], 4096ull * (unsigned)i);
	for (int i = 0; i < 200; i++)
		wire_close(w[i]);
	daemon_stop(d);
}

/* No more file descriptors: it waits without spinning, and recovers. */
static void
out_of_files(void **state)
{
	struct daemon *d = daemon_start(DEVICE, NULL);
	struct wire *w = wire_open(d, "", false), *more[64];
	struct rlimit limit = { .rlim_cur = daemon_fds(d) + 16 };
	double cpu;

	(void)state;
	limit.rlim_max = limit.rlim_cur;
	assert_int_equal(prlimit(d->pid, RLIMIT_NOFILE, &limit, NULL), 0);
	for (int i = 0; i < 64; i++)
		more[i] = wire_unix(d->sock);
	sleep_ms(50);
	cpu = daemon_cpu(d);
	sleep_ms(500);
	cpu = daemon_cpu(d) - cpu;
	if (cpu > 0.25)
		wire_fail(
		    "out of files it spins: %.2f s in half a second", cpu);
	wire_assert_served(w, 0);
	assert_in_range(daemon_log_size(d), 0, 64 * KiB);
	for (int i = 0; i < 64; i++)
		wire_close(more[i]);
	serve_once(wire_unix(d->sock));
	wire_assert_served(w, 0);
	wire_close(w);
	daemon_stop(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("listeners", "a stale socket is replaced",
		    replaces_a_stale_socket),
		CASE("listeners",
		    "a live socket is left alone, the second refused",
		    leaves_a_live_socket_alone),
		CASE("listeners", "files that are no sockets are left alone",
		    leaves_other_files_alone),
		CASE("listeners", "paths that cannot be are refused",
		    refuses_paths_that_cannot_be),
		CASE("N11", "listens on TCP, again at once",
		    listens_on_tcp_loopback),
		CASE("listeners", "listens on loopback unless told otherwise",
		    default_address_is_loopback),
		CASE("listeners", "listens on IPv6", listens_on_ipv6),
		CASE("listeners", "a port in use is refused",
		    a_port_in_use_is_refused),
		CASE("listeners", "ports that cannot be are refused",
		    ports_that_cannot_be_are_refused),
		CASE("listeners", "port 0 is any free port",
		    port_zero_is_any_free_port),
		CASE("N160", "several listeners serve one device",
		    several_listeners_serve_one_device),
		CASE("listeners", "two daemons side by side",
		    two_daemons_side_by_side),
		CASE("N23", "200 clients come at the same time",
		    many_clients_come_at_once),
		CASE("listeners", "out of files it neither spins nor dies",
		    out_of_files),
	};

	return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
