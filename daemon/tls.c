/* SPDX-License-Identifier: MIT */
/*
 * TLS, as GnuTLS makes it; no other file knows GnuTLS.
 *
 *	session <- nbd_want() <- tlsconn_recv <- records <- socket
 *	session -> nbd_out() --> tlsconn_send -> records -> socket
 *
 * Nothing waits here: what cannot go on says -EAGAIN, and is called again when
 * the socket is ready.  GnuTLS may hold what it has read already, for which no
 * readable event will come: tlsconn_pending().
 */
#include "daemon.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <sys/uio.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

#define MAX_RECORD  16384u /* bytes that a record carries */
#define MAX_RECORDS 256u   /* read in one call, however small they are */
#define AHEAD       4096u  /* bytes read beyond those that GnuTLS wants */
#define MAX_CHAIN   16u    /* certificates in server-cert.pem */
#define KX_OF_PSK   ":+ECDHE-PSK:+DHE-PSK" /* not +PSK: no forward secrecy */

struct tls {
	gnutls_certificate_credentials_t x509; /* NULL: none */
	gnutls_psk_server_credentials_t shared;
	struct psk_file *psk; /* of `shared` */
	gnutls_priority_t priority;
	bool verify_peer;
	gnutls_typed_vdata_st purpose; /* of clients' certificates */
};

struct tlsconn {
	struct tls *tls;
	gnutls_session_t session;
	int fd;
	bool eof;   /* the socket's; */
	bool ended; /* nothing more comes */
	bool made;  /* the handshake */
	int error;  /* GnuTLS's: why it has failed */
	char *rest; /* of a record, the last one, that was to be sent, */
	size_t rest_len;
	size_t unsent; /* and how much it carries */
	char text[256];
	size_t ahead_pos, ahead_len;
	char ahead[AHEAD]; /* from the socket, for GnuTLS */
};

/* ------------------------------------------------------- keys, certificates */

struct pem {
	char path[PATH_MAX];
	gnutls_datum_t data;
};

static void
pem_free(struct pem *p)
{
	if (p->data.data != NULL)
		explicit_bzero(p->data.data, p->data.size);
	gnutls_free(p->data.data);
	*p = (struct pem){};
}

/* 0, or -errno, complained about unless it may be missing. */
static int
pem_load(struct pem *p, const char *dir, const char *name, bool may_be_missing,
    FILE *errors)
{
	int err;

	*p = (struct pem){};
	snprintf(p->path, sizeof(p->path), "%s/%s", dir, name);
	errno = 0;
	if (gnutls_load_file(p->path, &p->data) == 0)
		return 0;
	err = errno != 0 ? errno : EIO;
	if (!may_be_missing || err != ENOENT)
		fprintf(errors, "tls_certificates: %s: %s\n", p->path,
		    strerror(err));
	return -err;
}

static int
complain(FILE *errors, const struct pem *p, int ret)
{
	fprintf(errors, "tls_certificates: %s: %s\n", p->path,
	    ret < 0 ? gnutls_strerror(ret) : "nothing in it");
	return -EINVAL;
}

/* The chain and its key, which must be each other's. */
static int
set_key(
    struct tls *t, const struct pem *cert, const struct pem *key, FILE *errors)
{
	gnutls_x509_crt_t chain[MAX_CHAIN];
	gnutls_x509_privkey_t private;
	unsigned nr = MAX_CHAIN;
	int ret;

	ret = gnutls_x509_crt_list_import(
	    chain, &nr, &cert->data, GNUTLS_X509_FMT_PEM, 0);
	if (ret <= 0)
		return complain(errors, cert, ret);
	ret = gnutls_x509_privkey_init(&private);
	if (ret == 0) {
		ret = gnutls_x509_privkey_import2(
		    private, &key->data, GNUTLS_X509_FMT_PEM, NULL, 0);
		if (ret == 0)
			ret = gnutls_certificate_set_x509_key(
			    t->x509, chain, (int)nr, private);
		gnutls_x509_privkey_deinit(private);
	}
	while (nr > 0)
		gnutls_x509_crt_deinit(chain[--nr]);
	if (ret == GNUTLS_E_CERTIFICATE_KEY_MISMATCH) {
		fprintf(errors,
		    "tls_certificates: %s: not the key of server-cert.pem\n",
		    key->path);
		return -EINVAL;
	}
	return ret < 0 ? complain(errors, key, ret) : 0;
}

static int
load_key(struct tls *t, const char *dir, FILE *errors)
{
	struct pem cert, key = {};
	int ret;

	ret = pem_load(&cert, dir, "server-cert.pem", false, errors);
	if (ret == 0)
		ret = pem_load(&key, dir, "server-key.pem", false, errors);
	if (ret == 0)
		ret = set_key(t, &cert, &key, errors);
	pem_free(&cert);
	pem_free(&key);
	return ret;
}

/* Whose certificates clients may have. */
static int
load_authority(struct tls *t, const char *dir, FILE *errors)
{
	struct pem pem;
	int ret;

	ret = pem_load(&pem, dir, "ca-cert.pem", false, errors);
	if (ret != 0)
		return ret;
	ret = gnutls_certificate_set_x509_trust_mem(
	    t->x509, &pem.data, GNUTLS_X509_FMT_PEM);
	ret = ret <= 0 ? complain(errors, &pem, ret) : 0;
	pem_free(&pem);
	if (ret != 0)
		return ret;

	ret = pem_load(&pem, dir, "ca-crl.pem", true, errors);
	if (ret != 0)
		return ret == -ENOENT ? 0 : ret;
	ret = gnutls_certificate_set_x509_crl_mem(
	    t->x509, &pem.data, GNUTLS_X509_FMT_PEM);
	ret = ret <= 0 ? complain(errors, &pem, ret) : 0;
	pem_free(&pem);
	return ret;
}

static int
load_certificates(struct tls *t, const struct daemon_conf *conf, FILE *errors)
{
	int ret;

	if (gnutls_certificate_allocate_credentials(&t->x509) != 0)
		return -ENOMEM;
	gnutls_certificate_set_known_dh_params(
	    t->x509, GNUTLS_SEC_PARAM_MEDIUM);
	ret = load_key(t, conf->tls_certificates, errors);
	if (ret == 0 && t->verify_peer)
		ret = load_authority(t, conf->tls_certificates, errors);
	return ret;
}

/*
 * 1: there is no such user.  GnuTLS goes on with a key that nobody has, so
 * that nobody can find out who there is.
 */
static int
give_psk(
    gnutls_session_t session, const gnutls_datum_t *user, gnutls_datum_t *key)
{
	const struct tlsconn *t = gnutls_session_get_ptr(session);
	const struct psk *psk = psk_find(t->tls->psk, user->data, user->size);

	if (psk == NULL)
		return 1;
	key->data = gnutls_malloc(psk->key_len);
	if (key->data == NULL)
		return -1;
	memcpy(key->data, psk->key, psk->key_len);
	key->size = (unsigned)psk->key_len;
	return 0;
}

static int
load_psk(struct tls *t, const struct daemon_conf *conf, FILE *errors)
{
	if (gnutls_psk_allocate_server_credentials(&t->shared) != 0)
		return -ENOMEM;
	gnutls_psk_set_server_known_dh_params(
	    t->shared, GNUTLS_SEC_PARAM_MEDIUM);
	gnutls_psk_set_server_credentials_function2(t->shared, give_psk);
	if (access(conf->tls_psk, R_OK) != 0) {
		fprintf(errors, "tls_psk: %s: %s\n", conf->tls_psk,
		    strerror(errno));
		return -EINVAL;
	}
	t->psk = psk_read(conf->tls_psk, errors);
	return t->psk != NULL ? 0 : -EINVAL;
}

static int
load_priority(struct tls *t, const struct daemon_conf *conf, FILE *errors)
{
	const char *said = conf->tls_priority, *at = "";
	char text[1100];
	int ret;

	snprintf(text, sizeof(text), "%s%s",
	    said != NULL ? said : DAEMON_TLS_PRIORITY,
	    conf->tls_psk != NULL ? KX_OF_PSK : "");
	ret = gnutls_priority_init2(&t->priority, text, &at, 0);
	if (ret == 0)
		return 0;
	fprintf(errors,
	    "tls_priority: \"%s\": %s: allowed: what \"gnutls-cli "
	    "--priority-list\" lists\n",
	    at, gnutls_strerror(ret));
	return -EINVAL;
}

struct tls *
tls_new(const struct daemon_conf *conf, FILE *errors)
{
	struct tls *t = calloc(1, sizeof(*t));
	int ret = -ENOMEM;

	if (t != NULL) {
		t->verify_peer = conf->tls_verify_peer;
		t->purpose.type = GNUTLS_DT_KEY_PURPOSE_OID;
		t->purpose.data = (void *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT;
		ret = load_priority(t, conf, errors);
	}
	if (ret == 0 && conf->tls_certificates != NULL)
		ret = load_certificates(t, conf, errors);
	if (ret == 0 && conf->tls_psk != NULL)
		ret = load_psk(t, conf, errors);
	if (ret == 0)
		return t;
	if (ret == -ENOMEM)
		fprintf(errors, "tls: out of memory\n");
	tls_free(t);
	return NULL;
}

void
tls_free(struct tls *t)
{
	if (t == NULL)
		return;
	if (t->x509 != NULL)
		gnutls_certificate_free_credentials(t->x509);
	if (t->shared != NULL)
		gnutls_psk_free_server_credentials(t->shared);
	if (t->priority != NULL)
		gnutls_priority_deinit(t->priority);
	psk_free(t->psk);
	free(t);
}

/* ------------------------------------------------------------- connections */

/* What was read ahead: how much of it there is, up to `len`. */
static size_t
take_ahead(struct tlsconn *t, void *data, size_t len)
{
	size_t n = t->ahead_len - t->ahead_pos;

	if (n > len)
		n = len;
	memcpy(data, t->ahead + t->ahead_pos, n);
	t->ahead_pos += n;
	return n;
}

/*
 * GnuTLS asks for the head of a record, then for the rest; requests are small
 * and come many at a time.  To read ahead takes a read of 512 bytes, of 32 at a
 * time, from 5.6 to 2.1 us of CPU time, and a write of 4 KiB from 12.5 to 7.8.
 *
 * To GnuTLS the end of the socket is but silence: else it would send no more,
 * not even what the client still waits for (N164).
 */
static ssize_t
pull(gnutls_transport_ptr_t arg, void *data, size_t len)
{
	struct tlsconn *t = arg;
	struct iovec iov[2] = { { data, len }, { t->ahead, AHEAD } };
	size_t had = take_ahead(t, data, len);
	ssize_t n;

	if (had > 0)
		return (ssize_t)had;
	n = readv(t->fd, iov, 2);
	if (n > 0) {
		t->ahead_pos = 0;
		t->ahead_len = (size_t)n > len ? (size_t)n - len : 0;
		return n - (ssize_t)t->ahead_len;
	}
	t->eof = n == 0;
	gnutls_transport_set_errno(t->session, n == 0 ? EAGAIN : errno);
	return -1;
}

/* What of iov[nr] the socket takes: bytes, or -1 with errno. */
static ssize_t
send_now(struct tlsconn *t, const struct iovec *iov, int nr)
{
	struct msghdr msg = {
		.msg_iov = (struct iovec *)(uintptr_t)iov,
		.msg_iovlen = (size_t)nr,
	};
	ssize_t n = sendmsg(t->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : n;
}

/* Keep what is behind the first `skip` bytes. */
static int
keep(struct tlsconn *t, const struct iovec *iov, int nr, size_t skip)
{
	char *p = realloc(t->rest, t->rest_len + iov_bytes(iov, nr) - skip);
	size_t n;

	if (p == NULL)
		return -ENOMEM;
	t->rest = p;
	for (; nr > 0; nr--, iov++) {
		n = skip < iov->iov_len ? skip : iov->iov_len;
		skip -= n;
		memcpy(p + t->rest_len, (char *)iov->iov_base + n,
		    iov->iov_len - n);
		t->rest_len += iov->iov_len - n;
	}
	return 0;
}

/*
 * For GnuTLS the socket takes everything: what it does not take now is ours to
 * send.  GnuTLS itself is not good at it: when keys are renewed while part of a
 * record has gone, it fails (seen with 3.7.9).
 */
static ssize_t
push(gnutls_transport_ptr_t arg, const giovec_t *iov, int nr)
{
	struct tlsconn *t = arg;
	size_t len = iov_bytes(iov, nr);
	ssize_t n = t->rest_len == 0 ? send_now(t, iov, nr) : 0;

	if (n >= 0 && (size_t)n < len && keep(t, iov, nr, (size_t)n) != 0) {
		errno = ENOMEM;
		n = -1;
	}
	if (n >= 0)
		return (ssize_t)len;
	gnutls_transport_set_errno(t->session, errno);
	return -1;
}

/* Send what was kept.  0, -EAGAIN, or -errno of the socket. */
static int
flush(struct tlsconn *t)
{
	struct iovec iov = { t->rest, t->rest_len };
	ssize_t n;

	if (t->rest_len == 0)
		return 0;
	n = send_now(t, &iov, 1);
	if (n < 0)
		return -errno;
	t->rest_len -= (size_t)n;
	if (t->rest_len > 0) {
		memmove(t->rest, t->rest + n, t->rest_len);
		return -EAGAIN;
	}
	free(t->rest);
	t->rest = NULL;
	return 0;
}

struct tlsconn *
tlsconn_new(struct tls *tls, int fd)
{
	struct tlsconn *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->tls = tls;
	t->fd = fd;
	if (gnutls_init(&t->session, GNUTLS_SERVER | GNUTLS_NONBLOCK |
					 GNUTLS_NO_SIGNAL |
					 GNUTLS_NO_TICKETS) != 0)
		goto fail;
	gnutls_session_set_ptr(t->session, t);
	gnutls_transport_set_ptr(t->session, t);
	gnutls_transport_set_pull_function(t->session, pull);
	gnutls_transport_set_vec_push_function(t->session, push);
	if (gnutls_priority_set(t->session, tls->priority) != 0)
		goto fail;
	if (tls->x509 != NULL && gnutls_credentials_set(t->session,
				     GNUTLS_CRD_CERTIFICATE, tls->x509) != 0)
		goto fail;
	if (tls->shared != NULL && gnutls_credentials_set(t->session,
				       GNUTLS_CRD_PSK, tls->shared) != 0)
		goto fail;
	if (tls->verify_peer) {
		gnutls_certificate_server_set_request(
		    t->session, GNUTLS_CERT_REQUIRE);
		gnutls_session_set_verify_cert2(
		    t->session, &tls->purpose, 1, 0);
	}
	return t;
fail:
	tlsconn_free(t);
	return NULL;
}

void
tlsconn_free(struct tlsconn *t)
{
	if (t == NULL)
		return;
	if (t->session != NULL)
		gnutls_deinit(t->session);
	free(t->rest);
	free(t);
}

/* What was wrong with a certificate, in GnuTLS's words. */
static void
print_verification(gnutls_session_t session, char *out, size_t len)
{
	unsigned status = gnutls_session_get_verify_cert_status(session);
	gnutls_datum_t text;

	if (gnutls_certificate_verification_status_print(status,
		gnutls_certificate_type_get2(session, GNUTLS_CTYPE_PEERS),
		&text, 0) != 0)
		return;
	snprintf(out, len, "%s", text.data);
	gnutls_free(text.data);
}

const char *
tlsconn_error(struct tlsconn *t)
{
	const char *name;
	size_t len;

	snprintf(t->text, sizeof(t->text), "%s", gnutls_strerror(t->error));
	if (t->error == GNUTLS_E_FATAL_ALERT_RECEIVED) {
		name = gnutls_alert_get_name(gnutls_alert_get(t->session));
		snprintf(t->text, sizeof(t->text), "the client's alert: %s",
		    name != NULL ? name : "unknown");
	}
	if (t->error == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
		print_verification(t->session, t->text, sizeof(t->text));
	len = strlen(t->text);
	while (len > 0 && strchr(" .", t->text[len - 1]) != NULL)
		t->text[--len] = '\0';
	return t->text;
}

const char *
tlsconn_describe(struct tlsconn *t)
{
	char *text = gnutls_session_get_desc(t->session);

	snprintf(t->text, sizeof(t->text), "%s", text != NULL ? text : "");
	gnutls_free(text);
	return t->text;
}

static bool
is_over_soon(ssize_t ret)
{
	return ret == GNUTLS_E_AGAIN || ret == GNUTLS_E_INTERRUPTED;
}

/* It will not go on: no byte comes any more. */
static void
end(struct tlsconn *t, ssize_t ret)
{
	t->ended = true;
	/* N58: many a client closes without close_notify */
	if (ret == 0 || is_over_soon(ret))
		return;
	t->error = (int)ret;
	/* it may help who sits there; a second handshake is refused so, too */
	if (ret != GNUTLS_E_PULL_ERROR && ret != GNUTLS_E_PUSH_ERROR)
		gnutls_alert_send_appropriate(t->session, t->error);
}

/* Why it has ended: the socket's fault, or that of what came? */
static int
end_errno(const struct tlsconn *t)
{
	switch (t->error) {
	case 0:
	case GNUTLS_E_PULL_ERROR:
	case GNUTLS_E_PUSH_ERROR: return ECONNRESET;
	}
	return EPROTO;
}

int
tlsconn_handshake(struct tlsconn *t)
{
	int ret = GNUTLS_E_SUCCESS;
	unsigned records;

	for (records = 0; !t->made && records < MAX_RECORDS; records++) {
		ret = gnutls_handshake(t->session);
		t->made = ret == GNUTLS_E_SUCCESS;
		if (ret != GNUTLS_E_WARNING_ALERT_RECEIVED)
			break;
	}
	if (!t->made && (!is_over_soon(ret) || t->eof)) {
		end(t, ret);
		return -end_errno(t);
	}
	ret = flush(t);
	return ret == 0 && !t->made ? -EAGAIN : ret;
}

bool
tlsconn_wants_write(const struct tlsconn *t)
{
	return t->rest_len > 0;
}

bool
tlsconn_pending(const struct tlsconn *t)
{
	return t->ended || t->ahead_pos < t->ahead_len ||
	       gnutls_record_check_pending(t->session) > 0;
}

/* Records, until there is no more, or no room. */
static size_t
read_records(struct tlsconn *t, const struct iovec *iov, int nr)
{
	size_t done = 0, at = 0;
	unsigned records;
	ssize_t n;

	for (records = 0; nr > 0 && records < MAX_RECORDS; records++) {
		n = gnutls_record_recv(
		    t->session, (char *)iov->iov_base + at, iov->iov_len - at);
		if (n == GNUTLS_E_WARNING_ALERT_RECEIVED)
			continue;
		if (n <= 0 && (!is_over_soon(n) || t->eof))
			end(t, n);
		if (n <= 0)
			break;
		done += (size_t)n;
		at += (size_t)n;
		if (at == iov->iov_len) {
			at = 0;
			iov++;
			nr--;
		}
	}
	return done;
}

ssize_t
tlsconn_recv(struct tlsconn *t, const struct iovec *iov, int nr)
{
	size_t done = 0;

	if (!t->ended)
		done = read_records(t, iov, nr);
	if (done > 0 || (t->ended && t->error == 0))
		return (ssize_t)done; /* with bytes, the end is for later */
	errno = t->ended ? end_errno(t) : EAGAIN;
	return -1;
}

/* Bytes of a table of iovecs, a record at a time. */
struct cursor {
	const struct iovec *iov;
	int nr;
	size_t at; /* in the first of them */
};

static void
cursor_skip(struct cursor *c, size_t n)
{
	size_t left;

	while (n > 0) {
		left = c->iov->iov_len - c->at;
		if (n < left) {
			c->at += n;
			return;
		}
		n -= left;
		c->at = 0;
		c->iov++;
		c->nr--;
	}
}

/*
 * The next record, of at most `max` bytes: where it lies; in `buf`, if it lies
 * in several places.
 */
static const void *
cursor_gather(const struct cursor *c, char *buf, size_t max, size_t *len)
{
	const char *first = (const char *)c->iov->iov_base + c->at;
	struct cursor next = *c;
	size_t n = c->iov->iov_len - c->at;

	*len = n < max ? n : max;
	if (n >= max || c->nr == 1)
		return first;
	for (*len = 0; next.nr > 0 && *len < max; *len += n) {
		n = next.iov->iov_len - next.at;
		if (n > max - *len)
			n = max - *len;
		memcpy(buf + *len, (char *)next.iov->iov_base + next.at, n);
		cursor_skip(&next, n);
	}
	return buf;
}

/*
 * A record, or the rest of one of which the socket has not taken all; that one
 * counts as sent when it is.  Bytes, or -1 with errno.
 */
static ssize_t
send_record(struct tlsconn *t, const void *data, size_t len)
{
	ssize_t n = (ssize_t)t->unsent;
	int err;

	if (t->unsent == 0)
		n = gnutls_record_send(t->session, data, len);
	if (n <= 0) {
		end(t, n);
		errno = end_errno(t);
		return -1;
	}
	t->unsent = (size_t)n;
	err = flush(t);
	if (err == 0) {
		t->unsent = 0;
		return n;
	}
	errno = -err;
	return -1;
}

/* Small pieces are gathered: a record is a system call. */
ssize_t
tlsconn_send(struct tlsconn *t, const struct iovec *iov, int nr)
{
	size_t max = gnutls_record_get_max_size(t->session);
	struct cursor c = { iov, nr, 0 };
	size_t done = 0, len = 0;
	char buf[MAX_RECORD];
	const void *data = NULL;
	ssize_t n = 0;

	if (max > MAX_RECORD)
		max = MAX_RECORD;
	while (c.nr > 0) {
		if (t->unsent == 0)
			data = cursor_gather(&c, buf, max, &len);
		n = send_record(t, data, len);
		if (n <= 0)
			break;
		cursor_skip(&c, (size_t)n);
		done += (size_t)n;
	}
	/* what went wrong will do so again */
	return done > 0 ? (ssize_t)done : n;
}

void
tlsconn_bye(struct tlsconn *t)
{
	if (t->made && t->error == 0 && t->rest_len == 0)
		gnutls_bye(t->session, GNUTLS_SHUT_WR);
}
