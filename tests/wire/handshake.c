/* SPDX-License-Identifier: MIT */
/* The greeting and the client's flags: section 1 of the spec. */
#include "../lib/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct daemon *nullbd;
static int port;

static int
start(void **state)
{
	char text[16];

	(void)state;
	port = wire_free_port("127.0.0.1");
	snprintf(text, sizeof(text), "%d", port);
	nullbd = daemon_start("-p", text, "-a", "127.0.0.1",
	    "nullb0:size=64M,memory_backed=1", NULL);
	nullbd->shared = true;
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	daemon_stop(nullbd);
	return 0;
}

static void
speaks_first(void **state)
{
	struct wire *w = wire_unix(nullbd->sock);

	(void)state;
	wire_greeting(w);
	wire_expect_silence(w, 200);
	wire_flags(w, HS_FIXED);
	wire_assert_options_in_step(w);

	w = wire_tcp("127.0.0.1", port);
	wire_greeting(w);
	wire_expect_silence(w, 200);
}

static void
announces_two_flags(void **state)
{
	struct wire *w = wire_unix(nullbd->sock);

	(void)state;
	wire_greeting(w);
	assert_int_equal(w->hs_flags, HS_FIXED | HS_NO_ZEROES);
	w = wire_tcp("127.0.0.1", port);
	wire_greeting(w);
	assert_int_equal(w->hs_flags, HS_FIXED | HS_NO_ZEROES);
}

static void
drops_unknown_flags(void **state)
{
	(void)state;
	for (int bit = 2; bit < 32; bit++) {
		for (uint32_t known = 0; known < 4; known++) {
			struct wire *w = wire_unix(nullbd->sock);

			wire_greeting(w);
			wire_flags(w, 1u << bit | known);
			wire_expect_eof(w);
			wire_close(w);
		}
	}
	wire_assert_served(wire_open(nullbd, "", false), 0);
}

/* The length of the reply to EXPORT_NAME: 10 or 134 bytes. */
static void
enter_by_name(uint32_t flags, unsigned zeroes)
{
	struct wire *w = wire_unix(nullbd->sock);
	uint8_t buf[134];

	wire_greeting(w);
	wire_flags(w, flags);
	wire_option(w, OPT_EXPORT_NAME, "nullb0", 6);
	wire_recv(w, buf, 10 + zeroes);
	assert_int_equal(get64(buf), 64 * MiB);
	assert_true(get16(buf + 8) & TX_HAS_FLAGS);
	assert_true(all_zero(buf + 10, zeroes));
	wire_assert_served(w, 0);
	wire_close(w);
}

static void
serves_plain_newstyle(void **state)
{
	(void)state;
	enter_by_name(0, 124);
}

/* The spec permits an answer, INVALID and a disconnect; not silence. */
static void
plain_newstyle_never_hangs(void **state)
{
	static const uint32_t options[] = { OPT_LIST, OPT_INFO, OPT_GO,
		OPT_ABORT, OPT_STARTTLS, 99 };

	(void)state;
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		struct wire *w = wire_unix(nullbd->sock);
		uint8_t buf[4096];
		uint8_t data[16];
		uint32_t len = 0;
		bool eof;
		size_t n;

		wire_greeting(w);
		wire_flags(w, 0);
		if (options[i] == OPT_INFO || options[i] == OPT_GO)
			len = put_info(data, "nullb0", NULL, 0);
		wire_option(w, options[i], data, len);
		n = wire_drain(w, buf, OPT_REPLY_HEADER, 3000, &eof);
		if (n == OPT_REPLY_HEADER) {
			assert_true(get64(buf) == MAGIC_OPT_REPLY);
			assert_int_equal(get32(buf + 8), options[i]);
			assert_int_not_equal(get32(buf + 12), REP_ERR_TLS_REQD);
		} else {
			assert_int_equal(n, 0);
			assert_true(eof);
		}
		wire_close(w);
	}
}

static void
honours_no_zeroes(void **state)
{
	(void)state;
	enter_by_name(HS_NO_ZEROES, 0);
	enter_by_name(HS_FIXED | HS_NO_ZEROES, 0);
	enter_by_name(HS_FIXED, 124);
}

static void
refuses_tls_without_fixed(void **state)
{
	struct wire *w = wire_unix(nullbd->sock);
	uint8_t buf[64];
	bool eof;
	size_t n;

	(void)state;
	wire_greeting(w);
	wire_flags(w, HS_NO_ZEROES);
	wire_option(w, OPT_STARTTLS, NULL, 0);
	n = wire_drain(w, buf, OPT_REPLY_HEADER, 3000, &eof);
	if (n)
		assert_true(get32(buf + 12) >= 0x80000000);
	else
		assert_true(eof);
}

static void
reassembles_flags(void **state)
{
	static const uint8_t flags[4] = { 0, 0, 0, 3 };
	struct wire *w = wire_tcp("127.0.0.1", port);

	(void)state;
	wire_greeting(w);
	for (int i = 0; i < 4; i++) {
		wire_send(w, flags + i, 1);
		wire_expect_silence(w, 20);
	}
	wire_assert_options_in_step(w);
}

/* Flags that come before the greeting was read, with the options behind. */
static void
takes_flags_with_options(void **state)
{
	struct wire *w = wire_unix(nullbd->sock);
	uint8_t buf[64], *p;

	(void)state;
	p = put32(buf, HS_FIXED);
	p = put_option(p, OPT_EXPORT_NAME, "nullb0", 6);
	wire_send(w, buf, (size_t)(p - buf));
	wire_greeting(w);
	wire_recv(w, buf, 10);
}

static void
survives_early_closes(void **state)
{
	static const uint8_t flags[4] = { 0, 0, 0, 3 };
	struct wire *other = wire_open(nullbd, "", false);
	unsigned fds = daemon_fds(nullbd);
	long log = daemon_log_size(nullbd);
	const int rounds = 400;

	(void)state;
	for (int i = 0; i < rounds; i++) {
		struct wire *w = i & 4 ? wire_tcp("127.0.0.1", port)
				       : wire_unix(nullbd->sock);

		if (i & 8)
			wire_greeting(w);
		wire_send(w, flags, i % 4);
		if (i & 16)
			wire_reset(w);
		else
			wire_close(w);
		if (i % 50 == 0)
			wire_assert_served(other, 4096);
	}
	wire_assert_served(other, 4096);
	daemon_settle(nullbd, fds);
	/* one line an event, and it is short */
	assert_in_range(daemon_log_size(nullbd) - log, 0, rounds * 400);
}

static void
drops_garbage(void **state)
{
	static const char *garbage[] = {
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"SSH-2.0-OpenSSH_9.2\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"IHAVEOPT",
		"\xff\xff\xff\xff\xff\xff\xff\xff",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(garbage) / sizeof(*garbage); i++) {
		struct wire *w = wire_tcp("127.0.0.1", port);

		wire_greeting(w);
		wire_send(w, garbage[i], strlen(garbage[i]));
		wire_expect_eof(w);
		wire_close(w);
	}
	wire_assert_served(wire_open(nullbd, "", false), 0);
}

/* Our peer's end of a connection, taken out of the daemon. */
static int
peer_of(struct wire *w)
{
	struct sockaddr_in mine = { 0 }, his;
	socklen_t len = sizeof(mine);
	int pidfd = (int)syscall(SYS_pidfd_open, nullbd->pid, 0);

	getsockname(w->fd, (struct sockaddr *)&mine, &len);
	for (int i = 0; pidfd >= 0 && i < 1024; i++) {
		int fd = (int)syscall(SYS_pidfd_getfd, pidfd, i, 0);

		if (fd < 0 && errno == EBADF)
			continue;
		if (fd < 0)
			break;
		len = sizeof(his);
		if (!getpeername(fd, (struct sockaddr *)&his, &len) &&
		    his.sin_family == AF_INET &&
		    his.sin_port == mine.sin_port) {
			close(pidfd);
			return fd;
		}
		close(fd);
	}
	close(pidfd);
	return -1;
}

static void
sets_nodelay(void **state)
{
	struct wire *w = wire_tcp("127.0.0.1", port);
	int fd, on = 0;
	socklen_t len = sizeof(on);

	(void)state;
	wire_go(w, "", false);
	fd = peer_of(w);
	if (fd < 0) {
		print_message("pidfd_getfd: %s\n", strerror(errno));
		skip();
	}
	assert_int_equal(
	    getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
	close(fd);
	assert_int_not_equal(on, 0);
}

/* Small replies come at once: Nagle and delayed ACKs would make it 40 ms. */
static void
answers_small_requests_at_once(void **state)
{
	struct wire *w = wire_tcp("127.0.0.1", port);
	uint8_t buf[512];
	uint64_t start_ns, took_ms;

	(void)state;
	wire_go(w, "", false);
	start_ns = now_ns();
	for (int i = 0; i < 200; i++)
		assert_int_equal(wire_read(w, buf, 0, sizeof(buf)), 0);
	took_ms = (now_ns() - start_ns) / 1000000;
	assert_in_range(took_ms, 0, 2000);
}

/* How long a silent client is borne is the server's affair; the others are
 * served all the while, and one who goes on in time is too. */
static void
bears_a_silent_client(void **state)
{
	struct wire *silent = wire_unix(nullbd->sock);
	struct wire *slow = wire_unix(nullbd->sock);
	struct wire *other = wire_open(nullbd, "", false);

	(void)state;
	wire_greeting(silent);
	wire_greeting(slow);
	for (int i = 0; i < 5; i++) {
		sleep_ms(100);
		wire_assert_served(other, 0);
	}
	wire_flags(slow, HS_FIXED);
	wire_assert_options_in_step(slow);
}

static struct daemon *
impatient(const char *config)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-U", d->sock, "--control", d->control, "-c",
		daemon_config(d, config), "nullb0:size=64M,memory_backed=1",
		NULL };

	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	return d;
}

/* Silent at every stage, and one that says a byte now and then. */
static void
a_handshake_has_a_deadline(void **state)
{
	struct daemon *d = impatient("[nullbd]\nhandshake_seconds = 1\n");
	struct wire *done = wire_open(d, "", false);
	unsigned fds = daemon_fds(d);
	struct wire *w[6];
	uint64_t start_ns = now_ns(), took_ms;
	uint8_t option[200], data[100] = { 0 }, *p;
	bool eof = false;

	(void)state;
	for (int i = 0; i < 6; i++) {
		w[i] = wire_unix(d->sock);
		if (i)
			wire_greeting(w[i]);
	}
	wire_send(w[2], "\0\0", 2);
	wire_flags(w[3], 3);
	wire_flags(w[4], 3);
	wire_assert_options_in_step(w[4]);
	wire_send(w[4], "IHAVE", 5);
	wire_flags(w[5], 3);
	p = put_option(option, 99, data, sizeof(data));
	for (size_t i = 0; i < (size_t)(p - option) && !eof; i++) {
		uint8_t junk;

		wire_try_send(w[5], option + i, 1, 0);
		wire_drain(w[5], &junk, 1, 50, &eof);
	}
	if (!eof)
		wire_fail("a byte now and then puts the deadline off");
	wire_greeting(w[0]);
	for (int i = 0; i < 5; i++)
		wire_expect_eof(w[i]);
	took_ms = (now_ns() - start_ns) / 1000000;
	assert_in_range(took_ms, 500, 4000);
	daemon_settle(d, fds);
	/* in transmission silence is fine */
	wire_assert_served(done, 0);
	wire_close(done);
	daemon_stop(d);
}

static void
connections_are_limited(void **state)
{
	struct daemon *d = impatient("[nullbd]\nmax_connections = 8\n");
	struct wire *w[8], *more[20];

	(void)state;
	for (int i = 0; i < 8; i++)
		w[i] = wire_open(d, "", false);
	/* refused, shut again or left waiting; those before are served */
	for (int i = 0; i < 20; i++) {
		uint8_t buf[18];
		bool eof;

		more[i] = wire_unix(d->sock);
		if (wire_drain(more[i], buf, 18, 50, &eof) == 18 && !eof)
			wire_fail("connection %d of 8 is greeted", 9 + i);
	}
	for (uint64_t i = 0; i < 8; i++)
		wire_assert_served(w[i], i * 4096);
	for (int i = 0; i < 20; i++)
		wire_close(more[i]);
	for (int i = 0; i < 4; i++)
		wire_close(w[i]);
	for (int try = 0; try < 100; try++) { /* when it has noticed */
		uint8_t buf[18];
		bool eof;

		more[0] = wire_unix(d->sock);
		if (wire_drain(more[0], buf, 18, 1000, &eof) == 18)
			break;
		wire_close(more[0]);
		sleep_ms(20);
		if (try == 99)
			wire_fail("nobody is let in after four have left");
	}
	for (uint64_t i = 4; i < 8; i++)
		wire_assert_served(w[i], i * 4096);
	wire_close(NULL);
	daemon_stop(d);
}

/* Those that say nothing lose their place to who comes, the oldest first. */
static void
silent_clients_keep_nobody_out(void **state)
{
	struct daemon *d = impatient("[nullbd]\nhandshake_seconds = 60\n"
				     "max_handshakes = 4\n");
	struct wire *old = wire_open(d, "", false), *w[12];

	(void)state;
	for (int i = 0; i < 12; i++) {
		w[i] = wire_unix(d->sock);
		wire_greeting(w[i]);
		if (i >= 4)
			wire_expect_eof(w[i - 4]);
		wire_assert_served(old, 0);
	}
	for (int i = 8; i < 12; i++) {
		wire_flags(w[i], 3);
		wire_assert_options_in_step(w[i]);
	}
	wire_close(old);
	daemon_stop(d);
}

/* A limit in the configuration is one on the wire. */
static void
limits_are_settings(void **state)
{
	struct daemon *d = impatient("[nullbd]\nmax_options = 16\n"
				     "max_requests = 2\n"
				     "max_bytes = 65536\n"
				     "max_total_bytes = 65536\n");
	struct wire *w = wire_unix(d->sock);
	uint8_t option[16], *p, data[4096];

	(void)state;
	wire_greeting(w);
	wire_flags(w, 3);
	p = put_option(option, 99, NULL, 0);
	for (int i = 0; i < 16; i++) {
		assert_int_equal(
		    wire_option_result(w, 99, NULL, 0), REP_ERR_UNSUP);
	}
	wire_send(w, option, (size_t)(p - option));
	wire_expect_eof(w);
	/* what waits is served in the end, if not at once */
	w = wire_open(d, "", false);
	for (uint64_t i = 0; i < 100; i++)
		wire_request(w, 0, CMD_READ, i, i * 4096, 4096);
	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(wire_reply(w, i), 0);
		wire_recv(w, data, sizeof(data));
	}
	wire_close(w);
	daemon_stop(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N1 N11", "speaks first, 18 bytes of newstyle, then waits",
		    speaks_first),
		CASE("N2 N3", "announces FIXED_NEWSTYLE and NO_ZEROES only",
		    announces_two_flags),
		CASE("N4", "drops a client with unknown flags, without a reply",
		    drops_unknown_flags),
		CASE("N5", "serves a plain newstyle client by EXPORT_NAME",
		    serves_plain_newstyle),
		CASE("N5",
		    "other options of a plain newstyle client never hang",
		    plain_newstyle_never_hangs),
		CASE("N3 N24",
		    "leaves out the zeroes for who asks, and only then",
		    honours_no_zeroes),
		CASE("N6", "refuses TLS to a client without FIXED_NEWSTYLE",
		    refuses_tls_without_fixed),
		CASE("N7", "reassembles flags sent one byte at a time",
		    reassembles_flags),
		CASE("N7", "takes flags and an option in one segment",
		    takes_flags_with_options),
		CASE("N8", "early closes leave no files, no flood in the log",
		    survives_early_closes),
		CASE("N9", "drops garbage in place of flags", drops_garbage),
		CASE("N23", "silent clients lose their place to who comes",
		    silent_clients_keep_nobody_out),
		CASE("N22", "limits are settings", limits_are_settings),
		CASE("N10", "sets TCP_NODELAY on accepted sockets",
		    sets_nodelay),
		CASE("N10 N75", "answers small requests over TCP at once",
		    answers_small_requests_at_once),
		CASE("N23", "a silent client does not keep others from service",
		    bears_a_silent_client),
		CASE("N23 N8",
		    "a handshake has a deadline that bytes do not move",
		    a_handshake_has_a_deadline),
		CASE("N23",
		    "connections are limited, and their places free"
		    " again",
		    connections_are_limited),
	};

	return cmocka_run_group_tests_name("handshake", tests, start, stop);
}
