/* SPDX-License-Identifier: MIT */
/*
 * A client that speaks TLS, for tests/wire/tls.c: certificates made for the
 * run, GnuTLS on a connection of wire.h, and a tunnel through which all of
 * wire.h goes on as if there were no TLS.
 */
#ifndef TESTS_LIB_TLS_H
#define TESTS_LIB_TLS_H

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>

#include "wire.h"

/* ------------------------------------------------------------------- keys */

/* Whose certificates there are. */
enum pki {
	PKI_NOBODY,
	PKI_CLIENT,
	PKI_SERVER,
	PKI_STRANGER, /* of another authority */
	PKI_EXPIRED,
	PKI_REVOKED,
	PKI_COUNT
};

#define PSK_USER "alice"
#define PSK_KEY  "00112233445566778899aabbccddeeff"

/* Once; it takes some milliseconds. */
void pki_make(void);
/* ca-cert.pem, ca-crl.pem, server-cert.pem, server-key.pem, keys.psk. */
void pki_write(const char *dir);
void pki_free(void);

/* --------------------------------------------------------------- a client */

/* Who it is and how it speaks. */
struct tls_as {
	const char *priority; /* NULL: GnuTLS's NORMAL */
	enum pki who;
	const char *user, *key; /* NULL: no shared key */
	size_t piece;           /* bytes a send(); 0: as they come */
	size_t record;          /* bytes a record, in a tunnel; 0: likewise */
};

struct tls {
	gnutls_session_t session;
	gnutls_certificate_credentials_t x509;
	gnutls_psk_client_credentials_t psk;
	struct tls_as as;
	struct wire *wire;
	int fd; /* of the socket */

	/* A tunnel: */
	bool tunnel;
	pthread_t thread;
	int inner; /* its end of what wire->fd is now */
	bool bye;  /* close_notify came */
	int error; /* GnuTLS's, of what ended it */
};

/* On a connection on which STARTTLS was acknowledged. */
struct tls *tls_new(struct wire *w, const struct tls_as *as);
/* GnuTLS's result. */
int tls_handshake(struct tls *t);
/* Bytes alone, which must go, and come. */
void tls_send(struct tls *t, const void *data, size_t n);
void tls_recv(struct tls *t, void *data, size_t n);
/* From now on what the wire sends and receives goes through it. */
void tls_tunnel(struct tls *t);
/* End it, also its tunnel; the connection is gone, too. */
void tls_free(struct tls *t);

/* Greeting, flags, STARTTLS: the next bytes are TLS's. */
struct wire *tls_connect(const char *sock);
void tls_upgrade(struct wire *w);
/* All of it, and a tunnel: options are next. */
struct tls *tls_open(const char *sock, const struct tls_as *as);

#endif
