/* SPDX-License-Identifier: MIT */
/*
 *	test <-> wire.h <-> socketpair <-> tunnel (a thread), GnuTLS <-> daemon
 */
#include <pthread.h>

#include "tls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DAY (24 * 60 * 60)

#define must(call)                                                      \
	do {                                                            \
		int ret_ = (call);                                      \
		if (ret_ < 0)                                           \
			wire_fail(#call ": %s", gnutls_strerror(ret_)); \
	} while (0)

/* ------------------------------------------------------------------- keys */

struct identity {
	gnutls_x509_crt_t cert;
	gnutls_x509_privkey_t key;
};

static struct identity authority, other_authority, people[PKI_COUNT];
static gnutls_x509_crl_t crl;

/* Signed by `by`, or by itself: an authority. */
static void
identity_make(struct identity *who, const char *name, const struct identity *by,
    const char *purpose, time_t until)
{
	static uint32_t serial;
	uint32_t number = htobe32(++serial);
	gnutls_x509_crt_t crt;
	unsigned usage = GNUTLS_KEY_DIGITAL_SIGNATURE;

	must(gnutls_x509_privkey_init(&who->key));
	must(gnutls_x509_privkey_generate(who->key, GNUTLS_PK_ECDSA,
	    GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0));
	must(gnutls_x509_crt_init(&who->cert));
	crt = who->cert;
	must(gnutls_x509_crt_set_version(crt, 3));
	must(gnutls_x509_crt_set_serial(crt, &number, sizeof(number)));
	must(gnutls_x509_crt_set_activation_time(crt, until - 2 * DAY));
	must(gnutls_x509_crt_set_expiration_time(crt, until));
	must(gnutls_x509_crt_set_dn_by_oid(
	    crt, GNUTLS_OID_X520_COMMON_NAME, 0, name, (unsigned)strlen(name)));
	must(gnutls_x509_crt_set_key(crt, who->key));
	if (by == NULL) {
		must(gnutls_x509_crt_set_ca_status(crt, 1));
		usage = GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN;
		by = who;
	} else {
		must(gnutls_x509_crt_set_key_purpose_oid(crt, purpose, 0));
		must(gnutls_x509_crt_set_subject_alt_name(crt,
		    GNUTLS_SAN_DNSNAME, "localhost", strlen("localhost"),
		    GNUTLS_FSAN_SET));
	}
	must(gnutls_x509_crt_set_key_usage(crt, usage));
	must(gnutls_x509_crt_sign2(
	    crt, by->cert, by->key, GNUTLS_DIG_SHA256, 0));
}

static void
identity_free(struct identity *who)
{
	gnutls_x509_crt_deinit(who->cert);
	gnutls_x509_privkey_deinit(who->key);
}

void
pki_make(void)
{
	const char *client = GNUTLS_KP_TLS_WWW_CLIENT;
	time_t now = time(NULL);

	identity_make(&authority, "authority", NULL, NULL, now + DAY);
	identity_make(&other_authority, "another", NULL, NULL, now + DAY);
	identity_make(
	    &people[PKI_CLIENT], "client", &authority, client, now + DAY);
	identity_make(&people[PKI_SERVER], "server", &authority,
	    GNUTLS_KP_TLS_WWW_SERVER, now + DAY);
	identity_make(&people[PKI_STRANGER], "stranger", &other_authority,
	    client, now + DAY);
	identity_make(
	    &people[PKI_EXPIRED], "expired", &authority, client, now - DAY);
	identity_make(
	    &people[PKI_REVOKED], "revoked", &authority, client, now + DAY);
	must(gnutls_x509_crl_init(&crl));
	must(gnutls_x509_crl_set_version(crl, 2));
	must(gnutls_x509_crl_set_this_update(crl, now - DAY));
	must(gnutls_x509_crl_set_next_update(crl, now + DAY));
	must(gnutls_x509_crl_set_crt(crl, people[PKI_REVOKED].cert, now - DAY));
	must(gnutls_x509_crl_sign2(
	    crl, authority.cert, authority.key, GNUTLS_DIG_SHA256, 0));
}

void
pki_free(void)
{
	for (int i = PKI_CLIENT; i < PKI_COUNT; i++)
		identity_free(&people[i]);
	identity_free(&authority);
	identity_free(&other_authority);
	gnutls_x509_crl_deinit(crl);
}

static void
write_file(const char *dir, const char *name, const void *data, size_t n)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	if (!f || fwrite(data, 1, n, f) != n || fclose(f))
		wire_fail("%s: %s", path, strerror(errno));
}

static void
write_pem(const char *dir, const char *name, gnutls_datum_t *pem)
{
	write_file(dir, name, pem->data, pem->size);
	gnutls_free(pem->data);
}

void
pki_write(const char *dir)
{
	static const char psk[] = PSK_USER ":" PSK_KEY "\n";
	const struct identity *server = &people[PKI_SERVER];
	gnutls_datum_t pem;

	must(
	    gnutls_x509_crt_export2(authority.cert, GNUTLS_X509_FMT_PEM, &pem));
	write_pem(dir, "ca-cert.pem", &pem);
	must(gnutls_x509_crl_export2(crl, GNUTLS_X509_FMT_PEM, &pem));
	write_pem(dir, "ca-crl.pem", &pem);
	must(gnutls_x509_crt_export2(server->cert, GNUTLS_X509_FMT_PEM, &pem));
	write_pem(dir, "server-cert.pem", &pem);
	must(gnutls_x509_privkey_export2(
	    server->key, GNUTLS_X509_FMT_PEM, &pem));
	write_pem(dir, "server-key.pem", &pem);
	must(gnutls_x509_privkey_export2(
	    people[PKI_CLIENT].key, GNUTLS_X509_FMT_PEM, &pem));
	write_pem(dir, "another-key.pem", &pem);
	write_file(dir, "keys.psk", psk, strlen(psk));
}

/* --------------------------------------------------------------- a client */

static ssize_t
push(gnutls_transport_ptr_t arg, const void *data, size_t n)
{
	struct tls *t = arg;
	ssize_t k;

	if (t->as.piece && n > t->as.piece)
		n = t->as.piece;
	k = send(t->fd, data, n, MSG_NOSIGNAL);
	if (k < 0)
		gnutls_transport_set_errno(t->session, errno);
	return k;
}

static ssize_t
pull(gnutls_transport_ptr_t arg, void *data, size_t n)
{
	struct tls *t = arg;
	ssize_t k = recv(t->fd, data, n, 0);

	if (k < 0)
		gnutls_transport_set_errno(t->session, errno);
	return k;
}

static int
pull_timeout(gnutls_transport_ptr_t arg, unsigned ms)
{
	struct pollfd p = { .fd = ((struct tls *)arg)->fd, .events = POLLIN };

	return poll(&p, 1, (int)ms);
}

struct tls *
tls_new(struct wire *w, const struct tls_as *as)
{
	struct tls *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	t->as = *as;
	t->wire = w;
	t->fd = w->fd;
	must(
	    gnutls_init(&t->session, GNUTLS_CLIENT | GNUTLS_FORCE_CLIENT_CERT));
	gnutls_transport_set_ptr(t->session, t);
	gnutls_transport_set_push_function(t->session, push);
	gnutls_transport_set_pull_function(t->session, pull);
	gnutls_transport_set_pull_timeout_function(t->session, pull_timeout);
	gnutls_handshake_set_timeout(t->session, WIRE_TIMEOUT_MS);
	gnutls_record_set_timeout(t->session, WIRE_TIMEOUT_MS);
	must(gnutls_set_default_priority(t->session));
	if (as->priority)
		must(
		    gnutls_priority_set_direct(t->session, as->priority, NULL));
	must(gnutls_certificate_allocate_credentials(&t->x509));
	must(gnutls_certificate_set_x509_trust(t->x509, &authority.cert, 1));
	if (as->who)
		must(gnutls_certificate_set_x509_key(
		    t->x509, &people[as->who].cert, 1, people[as->who].key));
	must(gnutls_credentials_set(
	    t->session, GNUTLS_CRD_CERTIFICATE, t->x509));
	gnutls_session_set_verify_cert(t->session, "localhost", 0);
	if (as->user) {
		gnutls_datum_t key = { (void *)(uintptr_t)as->key,
			(unsigned)strlen(as->key) };

		must(gnutls_psk_allocate_client_credentials(&t->psk));
		must(gnutls_psk_set_client_credentials(
		    t->psk, as->user, &key, GNUTLS_PSK_KEY_HEX));
		must(
		    gnutls_credentials_set(t->session, GNUTLS_CRD_PSK, t->psk));
	}
	return t;
}

int
tls_handshake(struct tls *t)
{
	int ret;

	do
		ret = gnutls_handshake(t->session);
	while (ret < 0 && !gnutls_error_is_fatal(ret));
	return ret;
}

void
tls_send(struct tls *t, const void *data, size_t n)
{
	const uint8_t *p = data;
	ssize_t k;

	for (; n; p += k, n -= (size_t)k) {
		do
			k = gnutls_record_send(t->session, p, n);
		while (k == GNUTLS_E_AGAIN || k == GNUTLS_E_INTERRUPTED);
		must((int)k);
	}
}

void
tls_recv(struct tls *t, void *data, size_t n)
{
	uint8_t *p = data;
	ssize_t k;

	for (; n; p += k, n -= (size_t)k) {
		do
			k = gnutls_record_recv(t->session, p, n);
		while (k == GNUTLS_E_AGAIN || k == GNUTLS_E_INTERRUPTED);
		if (k == GNUTLS_E_FATAL_ALERT_RECEIVED)
			wire_fail(
			    "the alert %s", gnutls_alert_get_name(
						gnutls_alert_get(t->session)));
		must((int)k);
		if (!k)
			wire_fail("close_notify, %zu bytes too early", n);
	}
}

/* ----------------------------------------------------------------- tunnel */

/* Bytes on their way in one direction. */
struct flow {
	uint8_t data[32 * KiB];
	size_t pos, len;
	bool ended; /* nothing more comes */
};

static bool
again(ssize_t k)
{
	return k == GNUTLS_E_AGAIN || k == GNUTLS_E_INTERRUPTED;
}

/* From the test to the daemon.  False: it takes no more. */
static bool
go_up(struct tls *t, struct flow *f)
{
	ssize_t k;
	size_t n;

	if (f->pos == f->len && !f->ended) {
		k = recv(t->inner, f->data, sizeof(f->data), MSG_DONTWAIT);
		f->pos = 0;
		f->len = k > 0 ? (size_t)k : 0;
		f->ended = !k || (k < 0 && errno != EAGAIN);
		if (f->ended) {
			gnutls_bye(t->session, GNUTLS_SHUT_WR);
			shutdown(t->fd, SHUT_WR);
		}
	}
	while (f->pos < f->len) {
		n = f->len - f->pos;
		if (t->as.record && n > t->as.record)
			n = t->as.record;
		k = gnutls_record_send(t->session, f->data + f->pos, n);
		if (again(k))
			return true;
		if (k < 0)
			return false;
		f->pos += (size_t)k;
	}
	return true;
}

/* And back.  False: nothing will come any more. */
static bool
go_down(struct tls *t, struct flow *f)
{
	ssize_t k;

	if (f->pos == f->len && !f->ended) {
		k = gnutls_record_recv(t->session, f->data, sizeof(f->data));
		if (again(k))
			return true;
		f->pos = 0;
		f->len = k > 0 ? (size_t)k : 0;
		f->ended = k <= 0;
		t->bye = !k;
		t->error = k < 0 ? (int)k : 0;
	}
	while (f->pos < f->len) {
		k = send(t->inner, f->data + f->pos, f->len - f->pos,
		    MSG_DONTWAIT | MSG_NOSIGNAL);
		if (k < 0)
			return errno == EAGAIN;
		f->pos += (size_t)k;
	}
	return !f->ended;
}

static void *
tunnel(void *arg)
{
	struct tls *t = arg;
	struct flow *up = xmalloc(sizeof(*up)), *down = xmalloc(sizeof(*down));

	up->pos = up->len = down->pos = down->len = 0;
	up->ended = down->ended = false;
	while (go_down(t, down)) {
		struct pollfd p[2] = { { .fd = t->inner }, { .fd = t->fd } };

		if (!go_up(t, up)) {
			up->ended = true;
			up->pos = up->len = 0;
		}
		if (up->pos < up->len)
			p[1].events |= POLLOUT;
		else if (!up->ended)
			p[0].events |= POLLIN;
		if (down->pos < down->len)
			p[0].events |= POLLOUT;
		else
			p[1].events |= POLLIN;
		if (gnutls_record_check_pending(t->session) > 0 &&
		    down->pos == down->len)
			continue;
		if (!p[0].events) /* a hang-up would be told at once */
			p[0].fd = -1;
		if (poll(p, 2, up->ended ? WIRE_TIMEOUT_MS : -1) == 0) {
			t->error = GNUTLS_E_TIMEDOUT;
			break;
		}
	}
	shutdown(t->inner, SHUT_RDWR);
	free(up);
	free(down);
	return NULL;
}

void
tls_tunnel(struct tls *t)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		wire_fail("socketpair: %s", strerror(errno));
	fcntl(t->fd, F_SETFL, fcntl(t->fd, F_GETFL) | O_NONBLOCK);
	gnutls_record_set_timeout(t->session, 0);
	t->inner = pair[0];
	t->wire->fd = pair[1];
	t->wire->mode = WIRE_SIMPLE; /* nothing is agreed on in TLS yet: N47 */
	t->tunnel = true;
	if (pthread_create(&t->thread, NULL, tunnel, t))
		wire_fail("pthread_create");
}

void
tls_free(struct tls *t)
{
	int fd = t->fd;

	if (t->tunnel)
		shutdown(t->wire->fd, SHUT_WR);
	if (t->tunnel)
		pthread_join(t->thread, NULL);
	wire_close(t->wire);
	if (t->tunnel) {
		close(t->inner);
		close(fd);
	}
	gnutls_deinit(t->session);
	gnutls_certificate_free_credentials(t->x509);
	if (t->psk)
		gnutls_psk_free_client_credentials(t->psk);
	free(t);
}

void
tls_upgrade(struct wire *w)
{
	uint32_t type = wire_option_result(w, OPT_STARTTLS, NULL, 0);

	if (type != REP_ACK)
		wire_fail("STARTTLS is answered 0x%x", type);
}

struct wire *
tls_connect(const char *sock)
{
	struct wire *w = wire_unix(sock);

	wire_greeting(w);
	wire_flags(w, HS_FIXED | HS_NO_ZEROES);
	tls_upgrade(w);
	return w;
}

struct tls *
tls_open(const char *sock, const struct tls_as *as)
{
	struct tls *t = tls_new(tls_connect(sock), as);
	int ret = tls_handshake(t);

	if (ret)
		wire_fail("the handshake fails: %s", gnutls_strerror(ret));
	tls_tunnel(t);
	return t;
}
