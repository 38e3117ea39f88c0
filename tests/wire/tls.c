/* SPDX-License-Identifier: MIT */
/*
 * TLS: how it begins, who is let in, what nobody may do before it, and that
 * all of NBD goes through it.  The keys are made for the run.
 */
#include "../lib/tls.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NR(a)  (sizeof(a) / sizeof(*(a)))
#define DEVICE "nullb0:size=64M,memory_backed=1"
#define SECRET "secret:size=8M,memory_backed=1,tls_only=1"
#define TLS12  "NORMAL:-VERS-ALL:+VERS-TLS1.2"
#define TLS13  "NORMAL:-VERS-ALL:+VERS-TLS1.3"
#define PSK    "NORMAL:-KX-ALL:+ECDHE-PSK:+DHE-PSK:+PSK"
#define PSK12  "NORMAL:-VERS-ALL:+VERS-TLS1.2:-KX-ALL:+ECDHE-PSK"
#define PSK13  "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK"

#define OTHER_KEY "ffeeddccbbaa99887766554433221100"

static const struct tls_as anybody;

/* Files of its own, then the daemon with TLS as `mode` says. */
static struct daemon *
start(const char *mode, const char *option, const char *value)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-v", "-U", d->sock, "--control", d->control,
		"--tls", mode, "--tls-certificates", d->dir, DEVICE, SECRET,
		"--workers", "3", option, value, NULL };

	pki_write(d->dir);
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	return d;
}

/* One with shared keys alone. */
static struct daemon *
start_psk(void)
{
	struct daemon *d = daemon_new();
	char keys[128];
	const char *args[] = { "-U", d->sock, "--control", d->control, "--tls",
		"required", "--tls-psk", keys, DEVICE, NULL };

	pki_write(d->dir);
	snprintf(keys, sizeof(keys), "%s/keys.psk", d->dir);
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	return d;
}

static void
go(struct tls *t, const char *name)
{
	assert_int_equal(wire_info(t->wire, OPT_GO, name, NULL, 0), REP_ACK);
}

/* A client that does everything right is served. */
static void
assert_serves(struct daemon *d, const struct tls_as *as)
{
	struct tls *t = tls_open(d->sock, as);

	go(t, "nullb0");
	wire_assert_served(t->wire, 0);
	tls_free(t);
}

/* Greeting and flags, in plaintext. */
static struct wire *
negotiating(struct daemon *d)
{
	struct wire *w = wire_unix(d->sock);

	wire_greeting(w);
	wire_flags(w, HS_FIXED | HS_NO_ZEROES);
	return w;
}

/*
 * A client is refused in its handshake, or, as TLS 1.3 has it, with what it
 * receives next: GnuTLS's error.  It gets no byte of NBD.
 */
static int
refused(struct daemon *d, const struct tls_as *as)
{
	struct tls *t = tls_new(tls_connect(d->sock), as);
	int ret = tls_handshake(t);
	uint8_t buf[64];

	if (!ret) {
		put_option(buf, OPT_LIST, NULL, 0);
		gnutls_record_send(t->session, buf, OPT_HEADER);
		ret = (int)gnutls_record_recv(t->session, buf, sizeof(buf));
		if (ret >= 0)
			wire_fail("it is let in: %d", ret);
	}
	if (ret == GNUTLS_E_FATAL_ALERT_RECEIVED)
		ret = -1000 - (int)gnutls_alert_get(t->session);
	tls_free(t);
	return ret;
}

#define ALERT(a) (-1000 - (a))

/* ---------------------------------------------------------------- handshake */

static void
serves_both_versions(void **state)
{
	static const char *const modes[] = { "allowed", "required" };
	static const char *const versions[] = { NULL, TLS12, TLS13 };

	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct daemon *d = start(modes[i], NULL, NULL);

		for (size_t k = 0; k < NR(versions); k++) {
			struct tls_as as = { .priority = versions[k] };

			assert_serves(d, &as);
		}
		assert_true(daemon_log_has(d, "TLS1.2"));
		assert_true(daemon_log_has(d, "TLS1.3"));
		daemon_stop(d);
	}
}

static void
serves_tcp(void **state)
{
	struct daemon *d = daemon_new();
	char port[16];
	const char *args[] = { "-p", port, "-a", "127.0.0.1", "--tls",
		"required", "--tls-certificates", d->dir, DEVICE, NULL };
	struct wire *w;
	struct tls *t;

	(void)state;
	pki_write(d->dir);
	snprintf(port, sizeof(port), "%d", wire_free_port("127.0.0.1"));
	daemon_exec(d, args);
	w = wire_tcp("127.0.0.1", atoi(port));
	wire_greeting(w);
	wire_flags(w, HS_FIXED);
	tls_upgrade(w);
	t = tls_new(w, &anybody);
	assert_int_equal(tls_handshake(t), 0);
	tls_tunnel(t);
	go(t, "");
	wire_assert_served(t->wire, 1 * MiB);
	tls_free(t);
	assert_true(daemon_log_has(d, "nbds://127.0.0.1:"));
	daemon_stop(d);
}

static void
refuses_old_versions(void **state)
{
	static const char *const old[] = {
		"NORMAL:-VERS-ALL:+VERS-TLS1.1:+SHA1:+SIGN-ALL",
		"NORMAL:-VERS-ALL:+VERS-TLS1.0:+SHA1:+SIGN-ALL",
	};
	struct daemon *d = start("required", NULL, NULL);

	(void)state;
	for (size_t i = 0; i < NR(old); i++) {
		struct tls_as as = { .priority = old[i] };

		assert_int_equal(
		    refused(d, &as), ALERT(GNUTLS_A_PROTOCOL_VERSION));
	}
	assert_true(daemon_log_has(d, "TLS: "));
	assert_serves(d, &anybody);
	daemon_stop(d);
}

static void
takes_a_priority_string(void **state)
{
	struct tls_as as12 = { .priority = TLS12 },
		      as13 = { .priority = TLS13 };
	struct daemon *d = daemon_new();
	const char *args[] = { "-c", NULL, NULL };
	char conf[600];

	(void)state;
	pki_write(d->dir);
	snprintf(conf, sizeof(conf),
	    "[nullbd]\nlisten = %s\ntls = required\ntls_certificates = %s\n"
	    "tls_priority = NORMAL:-VERS-ALL:+VERS-TLS1.3\n[nullb0]\n"
	    "memory_backed = 1\n",
	    d->sock, d->dir);
	args[1] = daemon_config(d, conf);
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	assert_serves(d, &as13);
	assert_true(refused(d, &as12) <= ALERT(0));
	daemon_stop(d);
}

static void
reassembles_single_bytes(void **state)
{
	static const char *const versions[] = { TLS12, TLS13 };
	struct daemon *d = start("required", NULL, NULL);

	(void)state;
	for (size_t i = 0; i < NR(versions); i++) {
		struct tls_as as = { .priority = versions[i], .piece = 1 };
		struct tls *t = tls_open(d->sock, &as);

		t->as.record = 1;
		go(t, "nullb0");
		wire_assert_served(t->wire, 0);
		tls_free(t);
	}
	daemon_stop(d);
}

/* N48: a client that has not read the ACK cannot be in TLS. */
static void
takes_nothing_sent_with_starttls(void **state)
{
	static const char *const modes[] = { "allowed", "required" };

	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct daemon *d = start(modes[i], NULL, NULL);
		unsigned fds = daemon_fds(d);

		for (size_t behind = 1; behind <= OPT_HEADER; behind += 15) {
			struct wire *w = negotiating(d);
			uint8_t buf[2 * OPT_HEADER], *p = buf;

			p = put_option(p, OPT_STARTTLS, NULL, 0);
			put_option(p, OPT_ABORT, NULL, 0);
			wire_send(w, buf, OPT_HEADER + behind);
			wire_expect_eof(w);
			wire_close(w);
		}
		daemon_settle(d, fds);
		assert_serves(d, &anybody);
		daemon_stop(d);
	}
}

/* After the ACK there is no way back to plaintext. */
static void
ends_when_the_handshake_fails(void **state)
{
	struct daemon *d = start("allowed", NULL, NULL);
	unsigned fds = daemon_fds(d);
	uint8_t buf[1024], got[64];
	bool eof;

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct wire *w = tls_connect(d->sock);
		size_t n = sizeof(buf);

		fill(buf, n, 7 + (uint64_t)i);
		if (i == 0)
			n = (size_t)(put_option(buf, OPT_LIST, NULL, 0) - buf);
		if (i == 1)
			memcpy(buf, "\x16\x03\x01\xff\xff", 5);
		if (i == 2)
			memset(buf, 0, n);
		wire_try_send(w, buf, n, 1000);
		n = wire_drain(w, got, sizeof(got), WIRE_TIMEOUT_MS, &eof);
		assert_true(eof);
		if (n) { /* an alert, no reply */
			assert_int_equal(got[0], 21);
			assert_true(n < OPT_REPLY_HEADER);
		}
		wire_close(w);
	}
	daemon_settle(d, fds);
	assert_true(daemon_log_has(d, "TLS: "));
	assert_serves(d, &anybody);
	daemon_stop(d);
}

/* The bytes of a client's first flight. */
static size_t
client_hello(struct daemon *d, uint8_t *out, size_t max)
{
	int pair[2];
	struct wire fake = { 0 };
	struct tls *t;
	ssize_t n;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	fake.fd = pair[0];
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	t = tls_new(&fake, &anybody);
	gnutls_handshake_set_timeout(t->session, 0);
	assert_int_equal(gnutls_handshake(t->session), GNUTLS_E_AGAIN);
	n = recv(pair[1], out, max, MSG_DONTWAIT);
	assert_true(n > 100);
	t->wire = wire_unix(d->sock); /* to be closed with it */
	tls_free(t);
	close(pair[0]);
	close(pair[1]);
	return (size_t)n;
}

static void
half_a_handshake_costs_nothing(void **state)
{
	struct daemon *d = start("allowed", NULL, NULL);
	uint8_t hello[2048];
	size_t n = client_hello(d, hello, sizeof(hello)), i;
	unsigned fds;

	(void)state;
	daemon_settle(d, 0 + daemon_fds(d));
	assert_serves(d, &anybody);
	fds = daemon_fds(d);
	for (i = 0; i < n; i += i < 64 ? 1 : 37) {
		struct wire *w = tls_connect(d->sock);

		wire_send(w, hello, i);
		if (i % 2)
			wire_close(w);
	}
	wire_close(NULL);
	daemon_settle(d, fds);
	assert_serves(d, &anybody);
	daemon_stop(d);
}

static void
cuts_off_who_does_not_go_on(void **state)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-c", NULL, NULL };
	uint8_t hello[2048], buf[4096];
	struct wire *w[4];
	char conf[600];
	double cpu;
	size_t n;
	bool eof;

	(void)state;
	pki_write(d->dir);
	snprintf(conf, sizeof(conf),
	    "[nullbd]\nlisten = %s\ntls = required\ntls_certificates = %s\n"
	    "handshake_seconds = 2\n[nullb0]\nmemory_backed = 1\n",
	    d->sock, d->dir);
	args[1] = daemon_config(d, conf);
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	n = client_hello(d, hello, sizeof(hello));
	assert_serves(d, &anybody);
	cpu = daemon_cpu(d);
	for (size_t i = 0; i < NR(w); i++) {
		w[i] = tls_connect(d->sock);
		wire_send(w[i], hello, n * i / (NR(w) - 1));
	}
	for (size_t i = 0; i < NR(w); i++) {
		wire_drain(w[i], buf, sizeof(buf), WIRE_TIMEOUT_MS, &eof);
		assert_true(eof);
	}
	if (daemon_cpu(d) - cpu > 1.0)
		wire_fail("waiting took %g s of CPU", daemon_cpu(d) - cpu);
	assert_serves(d, &anybody);
	daemon_stop(d);
}

/* ------------------------------------------------------------ who is let in */

static void
lets_in_who_has_the_key(void **state)
{
	static const char *const how[] = { PSK, PSK12, PSK13 };
	struct daemon *d = start_psk();

	(void)state;
	for (size_t i = 0; i < NR(how); i++) {
		struct tls_as as = { how[i], .user = PSK_USER, .key = PSK_KEY };

		assert_serves(d, &as);
	}
	daemon_stop(d);
}

/* And who it is that has none is not told. */
static void
refuses_who_has_not(void **state)
{
	static const char *const how[] = { PSK12, PSK13 };
	struct daemon *d = start_psk();

	(void)state;
	for (size_t i = 0; i < NR(how); i++) {
		struct tls_as wrong = { how[i], .user = PSK_USER,
			.key = OTHER_KEY };
		struct tls_as nobody = { how[i], .user = "bob",
			.key = OTHER_KEY };
		struct tls_as none = { .priority = NULL };

		assert_true(refused(d, &wrong) < 0);
		assert_int_equal(refused(d, &wrong), refused(d, &nobody));
		assert_true(refused(d, &none) < 0);
	}
	assert_serves(
	    d, &(struct tls_as){ PSK, .user = PSK_USER, .key = PSK_KEY });
	daemon_stop(d);
}

static void
has_forward_secrecy_with_shared_keys(void **state)
{
	struct daemon *d = start_psk();
	struct tls_as as = { PSK, .user = PSK_USER, .key = PSK_KEY };
	struct tls *t = tls_new(tls_connect(d->sock), &as);
	gnutls_kx_algorithm_t kx;

	(void)state;
	assert_int_equal(tls_handshake(t), 0);
	kx = gnutls_kx_get(t->session);
	if (kx != GNUTLS_KX_ECDHE_PSK && kx != GNUTLS_KX_DHE_PSK)
		wire_fail("key exchange %s", gnutls_kx_get_name(kx));
	tls_free(t);
	as.priority = "NORMAL:-KX-ALL:+PSK";
	assert_true(refused(d, &as) < 0);
	daemon_stop(d);
}

static void
certificates_and_shared_keys_go_together(void **state)
{
	struct daemon *d = daemon_new();
	char keys[128];
	const char *args[] = { "-U", d->sock, "--control", d->control, "--tls",
		"required", "--tls-psk", keys, "--tls-certificates", d->dir,
		"--tls-verify-peer", DEVICE, NULL };

	(void)state;
	pki_write(d->dir);
	snprintf(keys, sizeof(keys), "%s/keys.psk", d->dir);
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	assert_serves(
	    d, &(struct tls_as){ PSK, .user = PSK_USER, .key = PSK_KEY });
	assert_serves(d, &(struct tls_as){ .who = PKI_CLIENT });
	assert_true(refused(d, &anybody) < 0);
	daemon_stop(d);
}

static void
verifies_its_peers(void **state)
{
	static const char *const versions[] = { TLS12, TLS13 };
	static const enum pki bad[] = { PKI_NOBODY, PKI_SERVER, PKI_STRANGER,
		PKI_EXPIRED, PKI_REVOKED };
	struct daemon *d = start("required", "--tls-verify-peer", NULL);

	(void)state;
	for (size_t v = 0; v < NR(versions); v++) {
		struct tls_as as = { .priority = versions[v],
			.who = PKI_CLIENT };

		assert_serves(d, &as);
		for (size_t i = 0; i < NR(bad); i++) {
			as.who = bad[i];
			refused(d, &as);
		}
	}
	assert_true(daemon_log_has(d, "TLS: No certificate was found: "));
	assert_true(daemon_log_has(d, "match the intended purpose"));
	assert_true(daemon_log_has(d, "issuer is unknown"));
	assert_true(daemon_log_has(d, "expired"));
	assert_true(daemon_log_has(d, "revoked"));
	daemon_stop(d);
}

static void
asks_nobody_for_certificates_unless_told(void **state)
{
	struct daemon *d = start("required", NULL, NULL);

	(void)state;
	for (int who = PKI_NOBODY; who < PKI_COUNT; who++)
		assert_serves(d, &(struct tls_as){ .who = (enum pki)who });
	daemon_stop(d);
}

/* --------------------------------------------------------- what NBD makes of
 * it */

static void
everything_waits_for_tls(void **state)
{
	static const uint32_t options[] = { OPT_LIST, OPT_INFO, OPT_GO,
		OPT_STRUCTURED_REPLY, OPT_LIST_META, OPT_SET_META,
		OPT_EXTENDED_HEADERS, OPT_PEEK_EXPORT, 99, 0xffffffff };
	struct daemon *d = start("required", NULL, NULL);
	struct wire *w = negotiating(d);
	uint8_t data[100 * KiB];
	uint32_t len = put_info(data, "nullb0", NULL, 0);
	struct opt_reply *r = xmalloc(sizeof(*r));

	(void)state;
	memset(data + len, 0, sizeof(data) - len);
	for (size_t i = 0; i < NR(options); i++)
		for (int k = 0; k < 3; k++) {
			wire_option(w, options[i], data,
			    k == 0   ? 0
			    : k == 1 ? len
				     : sizeof(data));
			wire_opt_reply(w, options[i], r); /* the only one */
			assert_int_equal(r->type, REP_ERR_TLS_REQD);
		}
	assert_int_equal(
	    wire_option_result(w, OPT_STARTTLS, "x", 1), REP_ERR_INVALID);
	assert_int_equal(wire_option_result(w, OPT_ABORT, NULL, 0), REP_ACK);
	wire_expect_eof(w);
	free(r);
	daemon_stop(d);
}

static void
expect_no_export(struct daemon *d, const char *name)
{
	struct wire *w = negotiating(d);

	wire_option(w, OPT_EXPORT_NAME, name, (uint32_t)strlen(name));
	wire_expect_eof(w);
	wire_close(w);
}

static void
export_name_without_tls_ends_it(void **state)
{
	struct daemon *d = start("required", NULL, NULL);

	(void)state;
	expect_no_export(d, "nullb0");
	expect_no_export(d, "");
	daemon_stop(d);
	d = start("allowed", NULL, NULL);
	expect_no_export(d, "secret");
	daemon_stop(d);
}

static void
export_name_in_tls(void **state)
{
	struct daemon *d = start("required", NULL, NULL);
	struct tls *t = tls_open(d->sock, &anybody);
	uint8_t buf[10];

	(void)state;
	wire_option(t->wire, OPT_EXPORT_NAME, "secret", 6);
	wire_recv(t->wire, buf, sizeof(buf));
	assert_true(get64(buf) == 8 * MiB);
	wire_assert_served(t->wire, 0);
	tls_free(t);
	daemon_stop(d);
}

/* How many exports LIST has. */
static unsigned
count_listed(struct wire *w)
{
	struct opt_reply *r = xmalloc(sizeof(*r));
	unsigned nr = 0;

	wire_option(w, OPT_LIST, NULL, 0);
	for (;; nr++) {
		wire_opt_reply(w, OPT_LIST, r);
		if (r->type != REP_SERVER)
			break;
	}
	assert_int_equal(r->type, REP_ACK);
	free(r);
	return nr;
}

static void
tells_of_secrets_in_tls_alone(void **state)
{
	struct daemon *d = start("allowed", NULL, NULL);
	struct wire *w = negotiating(d);
	struct tls *t;

	(void)state;
	for (uint32_t option = OPT_INFO; option <= OPT_GO; option++) {
		assert_int_equal(
		    wire_info(w, option, "secret", NULL, 0), REP_ERR_TLS_REQD);
		assert_int_equal(
		    wire_info(w, option, "none", NULL, 0), REP_ERR_TLS_REQD);
	}
	assert_int_equal(count_listed(w), 1);
	assert_int_equal(wire_option_result(w, 99, NULL, 0), REP_ERR_UNSUP);
	assert_int_equal(wire_info(w, OPT_INFO, "nullb0", NULL, 0), REP_ACK);

	tls_upgrade(w);
	t = tls_new(w, &anybody);
	assert_int_equal(tls_handshake(t), 0);
	tls_tunnel(t);
	assert_int_equal(count_listed(w), 2);
	assert_int_equal(
	    wire_info(w, OPT_GO, "none", NULL, 0), REP_ERR_UNKNOWN);
	go(t, "secret");
	wire_assert_served(w, 0);
	tls_free(t);

	/* and who wants none goes without */
	w = wire_open(d, "nullb0", false);
	wire_assert_served(w, 0);
	daemon_stop(d);
}

static void
begins_once(void **state)
{
	struct daemon *d = start("allowed", NULL, NULL);
	struct tls *t = tls_open(d->sock, &anybody);

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(
		    wire_option_result(t->wire, OPT_STARTTLS, NULL, 0),
		    REP_ERR_INVALID);
	assert_int_equal(
	    wire_option_result(t->wire, OPT_STARTTLS, "x", 1), REP_ERR_INVALID);
	wire_assert_options_in_step(t->wire);
	go(t, "");
	wire_assert_served(t->wire, 0);
	tls_free(t);
	daemon_stop(d);
}

static void
asks_for_tls_no_more(void **state)
{
	static const char *const modes[] = { "allowed", "required" };

	(void)state;
	for (size_t i = 0; i < NR(modes); i++) {
		struct daemon *d = start(modes[i], NULL, NULL);
		struct tls *t = tls_open(d->sock, &anybody);
		uint8_t data[64];
		uint32_t len = put_info(data, "no such", NULL, 0);

		for (uint32_t option = 3; option < 20; option++) {
			assert_int_not_equal(
			    wire_option_result(t->wire, option, NULL, 0),
			    REP_ERR_TLS_REQD);
			assert_int_not_equal(
			    wire_option_result(t->wire, option, data, len),
			    REP_ERR_TLS_REQD);
		}
		tls_free(t);
		daemon_stop(d);
	}
}

/* What was agreed on in plaintext, a man in the middle may have said. */
static void
forgets_what_was_agreed_before(void **state)
{
	struct daemon *d = start("allowed", NULL, NULL);
	struct wire *w = negotiating(d);
	uint8_t data[4096];
	struct tls *t;

	(void)state;
	wire_option_result(w, OPT_STRUCTURED_REPLY, NULL, 0);
	wire_option_result(w, OPT_EXTENDED_HEADERS, NULL, 0);
	tls_upgrade(w);
	t = tls_new(w, &anybody);
	assert_int_equal(tls_handshake(t), 0);
	tls_tunnel(t);
	go(t, "nullb0");
	assert_false(w->tx_flags & TX_DF);
	assert_int_equal(wire_read(w, data, 0, sizeof(data)), 0); /* simple */
	tls_free(t);
	daemon_stop(d);
}

static void
needs_fixed_newstyle(void **state)
{
	struct daemon *d = start("allowed", NULL, NULL);
	struct wire *w = wire_unix(d->sock);

	(void)state;
	wire_greeting(w);
	wire_flags(w, HS_NO_ZEROES);
	assert_int_equal(
	    wire_option_result(w, OPT_STARTTLS, NULL, 0), REP_ERR_POLICY);
	wire_option(w, OPT_EXPORT_NAME, "secret", 6);
	wire_expect_eof(w);
	wire_close(w);
	daemon_stop(d);
	/* where nothing goes without TLS there is nothing for it */
	d = start("required", NULL, NULL);
	w = wire_unix(d->sock);
	wire_greeting(w);
	wire_flags(w, HS_NO_ZEROES);
	wire_expect_eof(w);
	wire_close(w);
	daemon_stop(d);
}

static void
each_socket_has_its_own_mode(void **state)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-c", NULL, NULL };
	char conf[800], names[3][100];
	struct wire *w;

	(void)state;
	pki_write(d->dir);
	for (int i = 0; i < 3; i++)
		snprintf(names[i], sizeof(names[i]), "%s/%d", d->dir, i);
	snprintf(conf, sizeof(conf),
	    "[nullbd]\nlisten = %s\nlisten = %s tls=off\n"
	    "listen = %s tls=required\ntls = allowed\ntls_certificates = %s\n"
	    "[nullb0]\nmemory_backed = 1\n[secret]\nsize = 8M\n"
	    "memory_backed = 1\ntls_only = 1\n",
	    names[0], names[1], names[2], d->dir);
	args[1] = daemon_config(d, conf);
	daemon_exec(d, args);
	for (int i = 0; i < 3; i++)
		daemon_ready(d, names[i]);

	for (int i = 0; i < 3; i++) {
		w = wire_unix(names[i]);
		wire_greeting(w);
		wire_flags(w, HS_FIXED);
		assert_int_equal(wire_info(w, OPT_INFO, "nullb0", NULL, 0),
		    i < 2 ? REP_ACK : REP_ERR_TLS_REQD);
		assert_int_equal(wire_info(w, OPT_INFO, "secret", NULL, 0),
		    i == 1 ? REP_ERR_UNKNOWN : REP_ERR_TLS_REQD);
		assert_int_equal(wire_option_result(w, OPT_STARTTLS, NULL, 0),
		    i == 1 ? REP_ERR_POLICY : REP_ACK);
		wire_close(w);
	}
	daemon_stop(d);
}

/* ------------------------------------------------------------------ the data
 */

/* Writes and reads of many sizes at once; what is read is what was written. */
static void
exchange(struct wire *w, uint64_t base, uint64_t seed)
{
	static const uint32_t sizes[] = { 1, 512, 4096, 16384, 16385, 65536,
		100001, 1 * MiB, 3 * MiB + 7, 4096, 8 * MiB };
	struct op ops[NR(sizes)] = { 0 };
	uint8_t *want = xmalloc(16 * MiB), *got = xmalloc(16 * MiB);
	size_t at = 0;

	fill(want, 16 * MiB, seed);
	for (int reads = 0; reads < 2; reads++, at = 0) {
		memset(ops, 0, sizeof(ops));
		for (size_t i = 0; i < NR(sizes); at += sizes[i++]) {
			ops[i].type = reads ? CMD_READ : CMD_WRITE;
			ops[i].offset = base + at;
			ops[i].length = sizes[i];
			ops[i].data = reads ? NULL : want + at;
			ops[i].got = reads ? got + at : NULL;
		}
		assert_true(at <= 16 * MiB);
		batch_run(w, ops, NR(sizes), 0);
		batch_assert_ok(ops, NR(sizes));
		at = 0;
		for (size_t i = 0; reads && i < NR(sizes); i++)
			at += sizes[i];
		assert_same(got, want, at, "what was read");
	}
	free(want);
	free(got);
}

static void
data_goes_through_unharmed(void **state)
{
	static const struct tls_as how[] = {
		{ .priority = TLS12 },
		{ .priority = TLS13 },
		{ .record = 1000 },
		{ .record = 28 },
	};
	struct daemon *d = start("required", NULL, NULL);

	(void)state;
	for (size_t i = 0; i < NR(how); i++) {
		struct tls *t = tls_open(d->sock, &how[i]);

		go(t, "nullb0");
		exchange(t->wire, 0, i);
		tls_free(t);
	}
	daemon_stop(d);
}

/* All of them are in flight before any is collected: several loops work. */
static void
connections_do_not_mix(void **state)
{
	struct daemon *d = start("required", NULL, NULL);
	struct op ops[8][64] = { 0 };
	uint8_t *want = xmalloc(8 * MiB), *got = xmalloc(8 * MiB);
	struct tls *t[8];

	(void)state;
	fill(want, 8 * MiB, 5);
	for (size_t i = 0; i < NR(t); i++) {
		t[i] = tls_open(d->sock, &anybody);
		go(t[i], "nullb0");
	}
	for (int reads = 0; reads < 2; reads++) {
		for (size_t i = 0; i < NR(t); i++) {
			for (size_t k = 0; k < NR(ops[i]); k++) {
				size_t at = i * MiB + k * 16 * KiB;

				ops[i][k] = (struct op){
					.type = reads ? CMD_READ : CMD_WRITE,
					.offset = at,
					.length = 16 * KiB,
					.data = reads ? NULL : want + at,
					.got = reads ? got + at : NULL,
				};
			}
			batch_send(t[i]->wire, ops[i], NR(ops[i]));
		}
		for (size_t i = 0; i < NR(t); i++) {
			batch_collect(t[i]->wire, ops[i], NR(ops[i]));
			batch_assert_ok(ops[i], NR(ops[i]));
		}
	}
	assert_same(got, want, 8 * MiB, "what was read");
	for (size_t i = 0; i < NR(t); i++)
		tls_free(t[i]);
	free(want);
	free(got);
	daemon_stop(d);
}

/* A request alone, on a session without a tunnel. */
static void
request(struct tls *t, uint16_t type, uint64_t cookie, uint64_t offset,
    uint32_t length)
{
	uint8_t buf[REQUEST_SIZE];

	put_request(buf, 0, type, cookie, offset, length);
	tls_send(t, buf, sizeof(buf));
}

/* A client that is in transmission, without a tunnel. */
static struct tls *
transmitting(struct daemon *d, const struct tls_as *as)
{
	struct tls *t = tls_new(tls_connect(d->sock), as);
	uint8_t data[64], buf[128];
	uint32_t len = put_info(data, "nullb0", NULL, 0);
	uint8_t *end = put_option(buf, OPT_GO, data, len);

	assert_int_equal(tls_handshake(t), 0);
	tls_send(t, buf, (size_t)(end - buf));
	tls_recv(t, buf, OPT_REPLY_HEADER + 12 + OPT_REPLY_HEADER);
	assert_int_equal(get32(buf + 12), REP_INFO);
	return t;
}

/*
 * Far more replies than a socket holds wait for a client that does not read:
 * the session stops listening with requests of it in TLS's hands, a record is
 * interrupted again and again, keys change meanwhile.
 */
static void
who_reads_late_gets_everything(void **state)
{
	static const struct tls_as how[] = { { .priority = TLS12 },
		{ .priority = TLS13 } };
	enum {
		READS = 3000,
		SIZE = 16 * KiB,
		BATCH = 100 /* requests in a record: the end of one waits */
	};
	uint8_t requests[BATCH * REQUEST_SIZE], *p;
	struct daemon *d = start("required", NULL, NULL);
	uint8_t *want = xmalloc(SIZE), *got = xmalloc(SIZE);
	bool *seen = calloc(READS + 1, sizeof(*seen));
	struct wire *w;

	(void)state;
	fill(want, SIZE, 11);
	w = tls_open(d->sock, &anybody)->wire;
	assert_int_equal(wire_info(w, OPT_GO, "", NULL, 0), REP_ACK);
	assert_int_equal(wire_write(w, want, 0, SIZE), 0);
	for (size_t v = 0; v < NR(how); v++) {
		struct tls *t = transmitting(d, &how[v]);

		memset(seen, 0, READS + 1);
		for (uint64_t i = 1; i <= READS; i += BATCH) {
			p = requests;
			for (uint64_t k = 0; k < BATCH; k++)
				p = put_request(p, 0, CMD_READ, i + k, 0, SIZE);
			tls_send(t, requests, sizeof(requests));
			if (v == 1 && i % 500 == 1)
				gnutls_session_key_update(
				    t->session, GNUTLS_KU_PEER);
		}
		sleep_ms(200); /* it does what it can do */
		for (int i = 0; i < READS; i++) {
			uint8_t head[REPLY_SIZE];
			uint64_t cookie;

			tls_recv(t, head, sizeof(head));
			assert_int_equal(get32(head), MAGIC_SIMPLE);
			assert_int_equal(get32(head + 4), 0);
			cookie = get64(head + 8);
			assert_in_range(cookie, 1, READS);
			assert_false(seen[cookie]);
			seen[cookie] = true;
			tls_recv(t, got, SIZE);
			assert_same(got, want, SIZE, "a read");
		}
		tls_free(t);
	}
	free(seen);
	free(want);
	free(got);
	daemon_stop(d);
}

/* ------------------------------------------------------------------ the end */

/* The next thing that comes is close_notify. */
static void
expect_bye(struct tls *t)
{
	uint8_t c;
	ssize_t k = gnutls_record_recv(t->session, &c, 1);

	if (k)
		wire_fail("no close_notify: %s",
		    k > 0 ? "a byte" : gnutls_strerror((int)k));
	wire_expect_eof(t->wire);
}

static void
says_goodbye(void **state)
{
	static const struct tls_as how[] = { { .priority = TLS12 },
		{ .priority = TLS13 } };
	struct daemon *d = start("required", NULL, NULL);
	uint8_t buf[OPT_REPLY_HEADER];

	(void)state;
	for (size_t v = 0; v < NR(how); v++) {
		struct tls *t = transmitting(d, &how[v]);

		request(t, CMD_DISC, 1, 0, 0);
		expect_bye(t);
		tls_free(t);

		t = tls_new(tls_connect(d->sock), &how[v]);
		assert_int_equal(tls_handshake(t), 0);
		put_option(buf, OPT_ABORT, NULL, 0);
		tls_send(t, buf, OPT_HEADER);
		tls_recv(t, buf, OPT_REPLY_HEADER);
		assert_int_equal(get32(buf + 12), REP_ACK);
		expect_bye(t);
		tls_free(t);
	}
	daemon_stop(d);
}

/* What came before is answered, whichever way the client ends. */
static void
ends_with_the_client(void **state)
{
	static const struct tls_as how[] = { { .priority = TLS12 },
		{ .priority = TLS13 } };
	struct daemon *d = start("required", NULL, NULL);
	unsigned fds = daemon_fds(d);
	uint8_t head[REPLY_SIZE + 512];
	double cpu = daemon_cpu(d);

	(void)state;
	for (size_t i = 0; i < 8; i++) {
		struct tls *t = transmitting(d, &how[i % 2]);

		request(t, CMD_READ, 1, 0, 512);
		if (i / 2 == 0) /* close_notify, but the socket stays open */
			gnutls_bye(t->session, GNUTLS_SHUT_WR);
		if (i / 2 == 1) /* no close_notify */
			shutdown(t->fd, SHUT_WR);
		if (i / 2 < 2) {
			tls_recv(t, head, sizeof(head));
			assert_int_equal(get32(head + 4), 0);
			expect_bye(t);
		}
		if (i / 2 == 3) { /* half a record */
			send(t->fd, "\x17\x03\x03\x01", 4, MSG_NOSIGNAL);
		}
		tls_free(t); /* or neither, with an answer under way */
	}
	daemon_settle(d, fds);
	sleep_ms(300);
	if (daemon_cpu(d) - cpu > 2.0)
		wire_fail("it spins: %g s of CPU", daemon_cpu(d) - cpu);
	assert_false(daemon_log_has(d, "TLS: The"));
	assert_serves(d, &anybody);
	daemon_stop(d);
}

static void
broken_records_end_it(void **state)
{
	static const struct tls_as how[] = { { .priority = TLS12 },
		{ .priority = TLS13 } };
	struct daemon *d = start("required", NULL, NULL);
	unsigned fds = daemon_fds(d);
	uint8_t buf[64] = { 0x17, 0x03, 0x03, 0, 59 };
	bool eof;

	(void)state;
	for (size_t i = 0; i < NR(how); i++) {
		struct tls *t = transmitting(d, &how[i]);
		uint8_t got[4096];

		assert_int_equal(
		    send(t->fd, buf, sizeof(buf), MSG_NOSIGNAL), sizeof(buf));
		wire_drain(t->wire, got, sizeof(got), WIRE_TIMEOUT_MS, &eof);
		assert_true(eof);
		tls_free(t);
	}
	daemon_settle(d, fds);
	assert_serves(d, &anybody);
	daemon_stop(d);
}

static void
shakes_hands_once(void **state)
{
	struct daemon *d = start("required", NULL, NULL);
	struct tls_as as = { .priority = TLS12 };
	struct tls *t = transmitting(d, &as);

	(void)state;
	assert_true(tls_handshake(t) < 0);
	tls_free(t);
	assert_serves(d, &as);
	daemon_stop(d);
}

static void
ends_on_sigterm(void **state)
{
	static const char *const device =
	    "slow:memory_backed=1,size=8M,irqmode=2,completion_nsec=300000000";
	struct daemon *d = start("required", device, NULL);
	uint8_t hello[2048], buf[REPLY_SIZE + 512];
	size_t n = client_hello(d, hello, sizeof(hello));
	struct wire *begins = tls_connect(d->sock);
	struct tls *idle = transmitting(d, &anybody);
	struct tls *busy = tls_open(d->sock, &anybody);
	struct op ops[16];

	(void)state;
	wire_send(begins, hello, n / 2);
	go(busy, "slow");
	memset(ops, 0, sizeof(ops));
	for (size_t i = 0; i < NR(ops); i++)
		ops[i] = (struct op){ .type = CMD_FLUSH };
	ops[0] = (struct op){ .type = CMD_READ, .length = 512, .got = buf };
	batch_send(busy->wire, ops, NR(ops));
	while (daemon_stat(d, "slow", 9) == 0)
		sleep_ms(1);
	kill(d->pid, SIGTERM);
	batch_collect_eof(busy->wire, ops, NR(ops));
	assert_true(ops[0].answered);
	assert_int_equal(ops[0].error, 0);
	expect_bye(idle);
	wire_expect_eof(begins);
	pthread_join(busy->thread, NULL);
	busy->tunnel = false;
	assert_true(busy->bye);
	assert_in_range(daemon_ended(d), 0, 3000);
}

/* -------------------------------------------------------------- bad settings
 */

/* It does not start, and says why. */
static void
expect_no_start(struct daemon *d, const char *const args[], const char *says)
{
	daemon_exec(d, args);
	assert_int_equal(daemon_wait(d, 5000), 2);
	if (!daemon_log_has(d, says))
		wire_fail("it does not say: %s", says);
}

static void
says_what_is_wrong_with_its_files(void **state)
{
	static const struct {
		const char *file, *content; /* NULL: it is missing */
		const char *says;
	} bad[] = {
		{ "ca-cert.pem", NULL, "/ca-cert.pem: No such file" },
		{ "ca-cert.pem", "", "/ca-cert.pem: " },
		{ "ca-crl.pem", "x", "/ca-crl.pem: " },
		{ "server-cert.pem", NULL, "/server-cert.pem: No such file" },
		{ "server-cert.pem", "x", "/server-cert.pem: " },
		{ "server-key.pem", NULL, "/server-key.pem: No such file" },
		{ "server-key.pem", "x", "/server-key.pem: " },
		{ "server-key.pem", "another-key.pem",
		    "/server-key.pem: not the key of server-cert.pem" },
		{ "keys.psk", NULL, "tls_psk: " },
		{ "keys.psk", NULL, "/keys.psk: No such file" },
		{ "keys.psk", "alice", "/keys.psk:1: no key" },
	};

	(void)state;
	for (size_t i = 0; i < NR(bad); i++) {
		struct daemon *d = daemon_new();
		char keys[128], path[128], other[128];
		const char *args[] = { "-U", d->sock, "--tls=allowed",
			"--tls-certificates", d->dir, "--tls-psk", keys,
			"--tls-verify-peer", "--check", NULL };
		FILE *f;

		pki_write(d->dir);
		snprintf(keys, sizeof(keys), "%s/keys.psk", d->dir);
		snprintf(path, sizeof(path), "%s/%s", d->dir, bad[i].file);
		daemon_exec(d, args);
		assert_int_equal(daemon_wait(d, 5000), 0);
		unlink(path);
		if (bad[i].content && strstr(bad[i].content, ".pem")) {
			snprintf(other, sizeof(other), "%s/%s", d->dir,
			    bad[i].content);
			assert_int_equal(rename(other, path), 0);
		} else if (bad[i].content) {
			f = fopen(path, "w");
			fputs(bad[i].content, f);
			fclose(f);
		}
		expect_no_start(d, args, bad[i].says);
		args[8] = NULL;
		expect_no_start(d, args, bad[i].says);
		assert_false(wire_can_connect(d->sock));
		daemon_free(d);
	}
}

static void
says_what_is_wrong_with_its_settings(void **state)
{
	static const struct {
		const char *args[8];
		const char *says;
	} bad[] = {
		{ { "--tls=maybe" }, "off, allowed, required" },
		{ { "--tls=required" }, "tls_certificates or tls_psk" },
		{ { "--tls=required", "--tls-certificates=/no/such" },
		    "/no/such/server-cert.pem" },
		{ { "--tls=allowed", "--tls-psk=/tmp", "--tls-verify-peer" },
		    "tls_verify_peer" },
		{ { "-U", "/tmp/x tls=allowed" },
		    "tls_certificates or tls_psk" },
		{ { "-U", "/tmp/x tls=yes" }, "off, allowed, required" },
	};

	(void)state;
	for (size_t i = 0; i < NR(bad); i++) {
		struct daemon *d = daemon_new();

		expect_no_start(d, bad[i].args, bad[i].says);
		daemon_free(d);
	}
}

static void
warns_of_what_nobody_can_reach(void **state)
{
	struct daemon *d = daemon_start(DEVICE, SECRET, NULL);
	struct wire *w = negotiating(d);

	(void)state;
	for (int i = 0; i < 500; i++) {
		if (daemon_log_has(d, "secret: tls_only"))
			break;
		sleep_ms(10);
	}
	assert_true(daemon_log_has(d, "secret: tls_only"));
	assert_int_equal(
	    wire_info(w, OPT_GO, "secret", NULL, 0), REP_ERR_UNKNOWN);
	assert_int_equal(count_listed(w), 1);
	daemon_stop(d);
}

static int
make_keys(void **state)
{
	(void)state;
	pki_make();
	return 0;
}

static int
free_keys(void **state)
{
	(void)state;
	pki_free();
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N44 N57", "serves TLS 1.2 and 1.3", serves_both_versions),
		CASE(
		    "N44", "serves TLS on TCP, and prints its URI", serves_tcp),
		CASE("N57", "refuses TLS 1.0 and 1.1", refuses_old_versions),
		CASE("N57", "a priority string says what is allowed",
		    takes_a_priority_string),
		CASE("N44", "bytes may come one by one",
		    reassembles_single_bytes),
		CASE("N48", "takes nothing that was sent with STARTTLS",
		    takes_nothing_sent_with_starttls),
		CASE("N46", "ends when the handshake fails",
		    ends_when_the_handshake_fails),
		CASE("N46", "half a handshake leaves nothing behind",
		    half_a_handshake_costs_nothing),
		CASE("N46 N23", "cuts off who does not finish its handshake",
		    cuts_off_who_does_not_go_on),
		CASE("N44", "lets in who has the shared key",
		    lets_in_who_has_the_key),
		CASE("N46", "refuses who has another key, or is not known",
		    refuses_who_has_not),
		CASE("N57", "shared keys have forward secrecy",
		    has_forward_secrecy_with_shared_keys),
		CASE("N44", "certificates and shared keys go together",
		    certificates_and_shared_keys_go_together),
		CASE("N46", "verifies the certificates of its clients",
		    verifies_its_peers),
		CASE("N44", "asks nobody for a certificate unless told to",
		    asks_nobody_for_certificates_unless_told),
		CASE("N34 N43 N49 N51", "everything but ABORT waits for TLS",
		    everything_waits_for_tls),
		CASE("N50 N54", "EXPORT_NAME without TLS ends the connection",
		    export_name_without_tls_ends_it),
		CASE("N24 N50 N54", "EXPORT_NAME works in TLS",
		    export_name_in_tls),
		CASE("N40 N53 N55", "tells of exports for TLS in TLS alone",
		    tells_of_secrets_in_tls_alone),
		CASE("N45", "begins once", begins_once),
		CASE("N52", "asks for TLS no more inside it",
		    asks_for_tls_no_more),
		CASE("N47 N169", "forgets what was agreed on before",
		    forgets_what_was_agreed_before),
		CASE("N6", "needs fixed newstyle", needs_fixed_newstyle),
		CASE("N42 N53 N56", "each socket has its own mode",
		    each_socket_has_its_own_mode),
		CASE("N44", "data goes through unharmed",
		    data_goes_through_unharmed),
		CASE("N44", "connections do not mix", connections_do_not_mix),
		CASE("N44 N165", "who reads late gets everything",
		    who_reads_late_gets_everything),
		CASE("N58", "says goodbye", says_goodbye),
		CASE("N58 N164", "ends with the client, however that ends",
		    ends_with_the_client),
		CASE("N46", "broken records end the connection",
		    broken_records_end_it),
		CASE("N56", "shakes hands once", shakes_hands_once),
		CASE("N58 N162", "ends on SIGTERM", ends_on_sigterm),
		CASE("tls", "says what is wrong with its files",
		    says_what_is_wrong_with_its_files),
		CASE("tls", "says what is wrong with its settings",
		    says_what_is_wrong_with_its_settings),
		CASE("N42 N53", "warns of a device that nobody can reach",
		    warns_of_what_nobody_can_reach),
	};

	return cmocka_run_group_tests_name("tls", tests, make_keys, free_keys);
}
