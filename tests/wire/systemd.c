/* SPDX-License-Identifier: MIT */
/*
 * A service manager's side: sockets that are passed (sd_listen_fds(3)), and
 * what the daemon tells (sd_notify(3)).
 */
#include "../lib/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define NR(a)  (sizeof(a) / sizeof(*(a)))
#define DEVICE "nullb0:size=64M,memory_backed=1"

/* What the next daemon finds: descriptors from 3 on, in this order. */
static struct {
	const char *kinds; /* a letter each, see make_fd() */
	const char *fds;   /* LISTEN_FDS; NULL: as many as there are */
	const char *names; /* LISTEN_FDNAMES; NULL: not set */
	const char *notify;
	int pid; /* LISTEN_PID; 0: its own */
} passed;

static int
bind_unix(const char *path, int type)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(sun);
	int fd = socket(AF_UNIX, type, 0);

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	if (*path == '@') {
		sun.sun_path[0] = '\0';
		len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				  strlen(path));
	}
	if (fd < 0 || bind(fd, (void *)&sun, len))
		return -1;
	return fd;
}

static int
bind_tcp(int type)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	int fd = socket(AF_INET, type, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (void *)&in, sizeof(in)))
		return -1;
	return fd;
}

/* In the child: each takes the lowest number that is free, from 3 on. */
static void
make_fd(struct daemon *d, char kind)
{
	char name[160];
	int fd = -1, pair[2];

	snprintf(name, sizeof(name), "@%s", d->sock);
	switch (kind) {
	case 'u': fd = bind_unix(d->sock, SOCK_STREAM); break;
	case 'c': fd = bind_unix(d->control, SOCK_STREAM); break;
	case 'a': fd = bind_unix(name, SOCK_STREAM); break;
	case 't': fd = bind_tcp(SOCK_STREAM); break;
	case 'q': fd = bind_unix(d->sock, SOCK_SEQPACKET); break;
	/* and what is none of them */
	case 'D': fd = bind_tcp(SOCK_DGRAM); break;
	case 'B': bind_tcp(SOCK_STREAM); return; /* it does not listen */
	case 'F': open("/dev/null", O_RDWR); return;
	case 'P': (void)!pipe(pair); return;
	case 'S': socketpair(AF_UNIX, SOCK_STREAM, 0, pair); return;
	}
	if (fd < 0 || (kind != 'D' && listen(fd, 10)))
		_exit(126);
}

static void
pass(struct daemon *d)
{
	char number[24];

	for (const char *k = passed.kinds; *k; k++)
		make_fd(d, *k);
	snprintf(number, sizeof(number), "%d",
	    passed.pid ? passed.pid : (int)getpid());
	setenv("LISTEN_PID", number, 1);
	snprintf(number, sizeof(number), "%zu", strlen(passed.kinds));
	setenv("LISTEN_FDS", passed.fds ? passed.fds : number, 1);
	if (passed.names)
		setenv("LISTEN_FDNAMES", passed.names, 1);
	if (passed.notify)
		setenv("NOTIFY_SOCKET", passed.notify, 1);
}

static int
pass_nothing(void **state)
{
	(void)state;
	memset(&passed, 0, sizeof(passed));
	return 0;
}

static struct daemon *
start(const char *kinds, const char *names, const char *const args[])
{
	struct daemon *d = daemon_new();

	passed.kinds = kinds;
	passed.names = names;
	d->before = pass;
	daemon_exec(d, args);
	return d;
}

/* It must end at once, with a status, and say this. */
static void
assert_refused(struct daemon *d, int status, const char *said)
{
	assert_int_equal(daemon_wait(d, 5000), status);
	if (!daemon_log_has(d, said))
		wire_fail("it does not say '%s'", said);
	daemon_free(d);
}

/* The TCP port in what --print-uri has printed, and how many URIs that is. */
static int
printed_port(struct daemon *d, int *nr)
{
	char line[512];
	FILE *f = fopen(d->log, "r");
	int port = -1;

	*nr = 0;
	while (f && fgets(line, sizeof(line), f)) {
		*nr += strncmp(line, "nbd:", 4) == 0 ||
		       strncmp(line, "nbd+", 4) == 0;
		if (strncmp(line, "nbd://127.0.0.1:", 16) == 0)
			port = atoi(line + 16);
	}
	if (f)
		fclose(f);
	return port;
}

static void
serve_once(struct wire *w)
{
	wire_go(w, "nullb0", false);
	wire_assert_served(w, 0);
	wire_close(w);
}

static void
serves_sockets_that_are_passed(void **state)
{
	static const char *const args[] = { "--print-uri", DEVICE, NULL };
	struct daemon *d = start("utc", "nbd:other:control", args);
	struct stat st;
	int port, nr;

	(void)state;
	daemon_ready(d, d->sock);
	serve_once(wire_unix(d->sock));
	/* the one called control speaks the other language */
	assert_true(daemon_stat(d, "nullb0", 1) >= 0);
	port = printed_port(d, &nr);
	assert_int_equal(nr, 2); /* no other listener was made */
	serve_once(wire_tcp("127.0.0.1", port));

	/* its files are the manager's */
	kill(d->pid, SIGTERM);
	assert_int_equal(daemon_wait(d, DAEMON_STOP_MS), 0);
	assert_int_equal(stat(d->sock, &st), 0);
	assert_int_equal(stat(d->control, &st), 0);
}

/* A client that came before the daemon did is served. */
static void
serves_who_waited(void **state)
{
	static const char *const args[] = { DEVICE, NULL };
	struct daemon *d = start("u", NULL, args);

	(void)state;
	daemon_ready(d, d->sock);
	for (int i = 0; i < 3; i++)
		serve_once(wire_unix(d->sock));
	/* it was left blocking: a client that is gone again must not matter */
	for (int i = 0; i < 50; i++)
		wire_close(wire_unix(d->sock));
	serve_once(wire_unix(d->sock));
	daemon_assert_alive(d);
}

static void
names_an_abstract_socket(void **state)
{
	static const char *const args[] = { "--print-uri", DEVICE, NULL };
	struct daemon *d = start("au", NULL, args);
	char uri[160];

	(void)state;
	daemon_ready(d, d->sock);
	snprintf(
	    uri, sizeof(uri), "nbd+unix:///nullb0?socket=%%00%s\n", d->sock);
	serve_once(wire_unix(d->sock)); /* it has printed by then */
	assert_true(daemon_log_has(d, uri));
}

static void
listens_itself_when_only_control_is_passed(void **state)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-U", d->sock, DEVICE, NULL };

	(void)state;
	passed.kinds = "c";
	passed.names = "control";
	d->before = pass;
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	daemon_ready(d, d->control);
	assert_true(daemon_stat(d, "nullb0", 1) >= 0);
	serve_once(wire_unix(d->sock));
}

/* They were inherited, and are meant for somebody else. */
static void
ignores_what_is_not_for_it(void **state)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-U", d->sock, "--print-uri", DEVICE, NULL };
	int nr;

	(void)state;
	passed.kinds = "t";
	passed.fds = "1000000";
	passed.pid = (int)getpid();
	d->before = pass;
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	serve_once(wire_unix(d->sock));
	printed_port(d, &nr);
	assert_int_equal(nr, 1);
	daemon_stop(d);
}

static void
refuses_numbers_that_cannot_be(void **state)
{
	static const char *const bad[] = { "1000000", "-1", "x", "", "0", "65",
		"1x", " 1", "18446744073709551617", "4294967297" };
	static const char *const args[] = { DEVICE, NULL };
	char said[128];

	(void)state;
	for (size_t i = 0; i < NR(bad); i++) {
		passed.fds = bad[i];
		snprintf(said, sizeof(said),
		    "LISTEN_FDS: \"%s\": allowed: a number from 1 to 64",
		    bad[i]);
		assert_refused(start("u", NULL, args), 1, said);
	}
}

static void
refuses_what_is_no_socket_that_listens(void **state)
{
	static const struct {
		const char *kinds, *fds, *said;
	} cases[] = {
		{ "u", "2", "descriptor 4: Bad file descriptor" },
		{ "", "1", "descriptor 3: Bad file descriptor" },
		{ "uF", NULL, "descriptor 4: not a socket" },
		{ "P", "1", "descriptor 3: not a socket" },
		{ "D", NULL, "descriptor 3: not a stream socket" },
		{ "q", NULL, "descriptor 3: not a stream socket" },
		{ "tB", NULL, "descriptor 4: a socket that does not listen" },
		{ "S", "1", "descriptor 3: a socket that does not listen" },
	};
	static const char *const args[] = { DEVICE, NULL };

	(void)state;
	for (size_t i = 0; i < NR(cases); i++) {
		passed.fds = cases[i].fds;
		assert_refused(
		    start(cases[i].kinds, NULL, args), 1, cases[i].said);
	}
}

static void
refuses_names_of_another_number(void **state)
{
	static const char *const bad[] = { "a", "a:b:c", "", "control" };
	static const char *const args[] = { DEVICE, NULL };

	(void)state;
	for (size_t i = 0; i < NR(bad); i++)
		assert_refused(start("uc", bad[i], args), 1, "LISTEN_FDNAMES:");
}

/* As nbdkit does: which of them was meant? */
static void
refuses_to_listen_elsewhere_too(void **state)
{
	static const char *const both[][4] = {
		{ "-U", "/nowhere/sock", DEVICE, NULL },
		{ "-U", "-", DEVICE, NULL },
		{ "-p", "0", DEVICE, NULL },
		{ "-p", "10809", DEVICE, NULL },
		{ "-a", "::1", DEVICE, NULL },
		{ "--listen", "vsock:1", DEVICE, NULL },
	};
	static const char *const control[] = { "--control", "/nowhere/c",
		DEVICE, NULL };

	(void)state;
	for (size_t i = 0; i < NR(both); i++)
		assert_refused(start("u", NULL, both[i]), 2,
		    "listen, port, address: allowed: a place to listen, or a "
		    "socket that is passed for it (LISTEN_FDS), not both");
	assert_refused(start("uc", "nbd:control", control), 2,
	    "control: allowed: a path, or a socket");
}

/* What a command of --run inherits: neither variables nor sockets. */
static void
keeps_it_all_from_its_command(void **state)
{
	static const char *const args[] = { "--run",
		"env | grep -e LISTEN_ -e NOTIFY_; ls -l /proc/self/fd | "
		"grep socket:; echo so it is",
		DEVICE, NULL };
	struct daemon *d;

	(void)state;
	passed.notify = "/nowhere/notify";
	d = start("uc", "nbd:control", args);
	assert_int_equal(daemon_wait(d, 10000), 0);
	assert_true(daemon_log_has(d, "so it is"));
	assert_false(daemon_log_has(d, "LISTEN_"));
	assert_false(daemon_log_has(d, "NOTIFY_SOCKET="));
	assert_false(daemon_log_has(d, "socket:["));
}

/* ---- what the manager is told */

static int
open_notify(const char *where)
{
	struct timeval limit = { .tv_sec = 15 };
	int fd = bind_unix(where, SOCK_DGRAM);

	if (fd < 0)
		wire_fail("%s: %s", where, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static void
expect_message(int fd, char text[512])
{
	ssize_t n = recv(fd, text, 511, 0);

	if (n <= 0)
		wire_fail("no message: %s", strerror(errno));
	text[n] = '\0';
}

static void
tells_when_it_is_ready_and_when_it_ends(void **state)
{
	char where[128], text[512], want[160];

	(void)state;
	for (int abstract = 0; abstract < 2; abstract++) {
		struct daemon *d = daemon_new();
		const char *args[] = { "-U", d->sock, "--control", d->control,
			DEVICE, "b:size=1M", "off:power=0", NULL };
		int fd;

		snprintf(where, sizeof(where), "%s%s/notify",
		    abstract ? "@" : "", d->dir);
		fd = open_notify(where);
		passed.kinds = "";
		passed.pid = 1;
		passed.notify = where;
		d->before = pass;
		daemon_exec(d, args);
		expect_message(fd, text);
		/* from now on it accepts */
		serve_once(wire_unix(d->sock));
		assert_true(daemon_stat(d, "nullb0", 1) >= 0);
		snprintf(want, sizeof(want),
		    "READY=1\nSTATUS=2 devices at nbd+unix:///?socket=%s",
		    d->sock);
		assert_string_equal(text, want);
		kill(d->pid, SIGTERM);
		expect_message(fd, text);
		assert_string_equal(text, "STOPPING=1\nSTATUS=shutting down");
		daemon_ended(d);
		close(fd);
	}
}

static void
bears_a_manager_that_cannot_be_told(void **state)
{
	static const char *const bad[] = { "", "/", "@", "relative",
		"/nowhere/notify", "@nobody",
		"/0123456789012345678901234567890123456789012345678901234567890"
		"12345678901234567890123456789012345678901234567890" };

	(void)state;
	for (size_t i = 0; i < NR(bad); i++) {
		struct daemon *d = daemon_new();
		const char *args[] = { "-U", d->sock, DEVICE, NULL };

		passed.kinds = "";
		passed.pid = 1;
		passed.notify = bad[i];
		d->before = pass;
		daemon_exec(d, args);
		daemon_ready(d, d->sock);
		serve_once(wire_unix(d->sock));
		assert_true(daemon_log_has(d, "warning: NOTIFY_SOCKET:"));
		daemon_stop(d);
	}
}

/* Its socket is full: that costs a second, no service. */
static void
does_not_wait_for_a_manager_that_is_deaf(void **state)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-U", d->sock, DEVICE, NULL };
	char where[96];
	int fd, from = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	(void)state;
	snprintf(where, sizeof(where), "%s/notify", d->dir);
	fd = open_notify(where);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", where);
	while (
	    sendto(from, "x", 1, MSG_DONTWAIT, (void *)&sun, sizeof(sun)) == 1)
		;
	assert_int_equal(errno, EAGAIN);
	passed.kinds = "";
	passed.pid = 1;
	passed.notify = where;
	d->before = pass;
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	serve_once(wire_unix(d->sock));
	daemon_stop(d);
	close(from);
	close(fd);
}

int
main(void)
{
	struct CMUnitTest tests[] = {
		CASE("systemd", "serves sockets that are passed to it",
		    serves_sockets_that_are_passed),
		CASE("systemd", "makes them its own, not blocking",
		    serves_who_waited),
		CASE("systemd N182", "names an abstract socket in its URI",
		    names_an_abstract_socket),
		CASE("systemd", "listens itself when only control is passed",
		    listens_itself_when_only_control_is_passed),
		CASE("systemd", "ignores sockets for another process",
		    ignores_what_is_not_for_it),
		CASE("systemd", "refuses a number of sockets that cannot be",
		    refuses_numbers_that_cannot_be),
		CASE("systemd", "refuses what is no socket that listens",
		    refuses_what_is_no_socket_that_listens),
		CASE("systemd", "refuses another number of names",
		    refuses_names_of_another_number),
		CASE("systemd", "refuses to listen elsewhere, too",
		    refuses_to_listen_elsewhere_too),
		CASE("systemd", "keeps variables and sockets from --run",
		    keeps_it_all_from_its_command),
		CASE("systemd", "tells when it is ready and when it ends",
		    tells_when_it_is_ready_and_when_it_ends),
		CASE("systemd", "bears a manager that cannot be told",
		    bears_a_manager_that_cannot_be_told),
		CASE("systemd", "does not wait for a manager that is deaf",
		    does_not_wait_for_a_manager_that_is_deaf),
	};

	for (size_t i = 0; i < NR(tests); i++)
		tests[i].setup_func = pass_nothing;
	return cmocka_run_group_tests_name("systemd", tests, NULL, NULL);
}
