/* SPDX-License-Identifier: MIT */
/*
 * Where a device is served, in the words of clients: NBD URIs (N182), and lines
 * to paste.
 */
#include "daemon.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define DEVICES_LOGGED 4u /* the first few get lines to paste */

/* Percent-encode what a URI, or a shell, would take for its own. */
static void
encode(char *out, size_t len, const char *text, const char *also)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-._~";
	char *end = out + len - 1;

	for (; *text != '\0' && end - out >= 3; text++) {
		if (strchr(plain, *text) != NULL || strchr(also, *text) != NULL)
			*out++ = *text;
		else
			out += sprintf(out, "%%%02X", (unsigned char)*text);
	}
	*out = '\0';
}

/* Does a client need TLS there? */
static bool
needs_tls(const struct listener *ln, bool tls_only)
{
	return ln->tls == TLS_REQUIRED || (ln->tls == TLS_ALLOWED && tls_only);
}

void
uri_make(char *out, size_t len, const struct listener *ln, const char *export,
    bool tls_only)
{
	const char *scheme = needs_tls(ln, tls_only) ? "nbds" : "nbd";
	bool v6 = strchr(ln->host, ':') != NULL;
	char name[3 * DISK_NAME_LEN], path[3 * sizeof(ln->path)];

	encode(name, sizeof(name), export, "");
	encode(path, sizeof(path), ln->path, "/");
	switch (ln->family) {
	case AF_UNIX:
		snprintf(out, len, "%s+unix:///%s?socket=%s%s", scheme, name,
		    ln->abstract ? "%00" : "", path);
		return;
	case AF_VSOCK:
		snprintf(out, len, "%s+vsock://%u:%u/%s", scheme, ln->cid,
		    ln->port, name);
		return;
	default:
		snprintf(out, len, "%s://%s%s%s:%u/%s", scheme, v6 ? "[" : "",
		    ln->host, v6 ? "]" : "", ln->port, name);
	}
}

/* There is always a listener: main sees to it. */
const struct listener *
uri_listener(const struct daemon *d, bool tls_only)
{
	const struct listener *ln, *first = NULL;

	for (ln = d->listener; ln < d->listener + d->nr_listeners; ln++) {
		if (!listener_is_nbd(ln))
			continue;
		if (!tls_only || ln->tls != TLS_OFF)
			return ln;
		if (first == NULL)
			first = ln;
	}
	assert(first != NULL);
	return first;
}

void
uri_log(const struct daemon *d, const struct disk *disk)
{
	bool tls_only = disk->conf.tls_only;
	const struct listener *ln = uri_listener(d, tls_only);
	const char *tls = needs_tls(ln, tls_only) ? " -x" : "";
	char uri[PLACE_URI];

	if (tls_only && ln->tls == TLS_OFF)
		log_warn("%s: tls_only, but no socket has TLS: nobody can "
			 "attach it",
		    disk->name);
	uri_make(uri, sizeof(uri), ln, disk->name, tls_only);
	log_info("%s: %s", disk->name, uri);
	if (ln->family == AF_UNIX && !ln->abstract)
		log_info("  nbd-client -unix '%s' -N '%s'%s /dev/nbd0",
		    ln->path, disk->name, tls);
	if (ln->family == AF_INET || ln->family == AF_INET6)
		log_info("  nbd-client %s %u -N '%s'%s /dev/nbd0", ln->host,
		    ln->port, disk->name, tls);
	log_info("  fio --name=%s --ioengine=nbd --uri='%s' --rw=randrw "
		 "--iodepth=32 --time_based --runtime=10",
	    disk->name, uri);
}

/* Where else: a port that the kernel has chosen is not known otherwise. */
static void
log_others(const struct daemon *d)
{
	const struct listener *ln, *first = uri_listener(d, false);
	char uri[PLACE_URI];

	for (ln = d->listener; ln < d->listener + d->nr_listeners; ln++) {
		if (!listener_is_nbd(ln) || ln == first)
			continue;
		uri_make(uri, sizeof(uri), ln, "", false);
		log_info("listening at %s, too", uri);
	}
}

void
uri_log_all(const struct daemon *d)
{
	unsigned i, nr = 0;

	for (i = 0; i < d->nr_disks; i++) {
		if (d->disk[i]->queue == NULL)
			continue;
		if (nr++ < DEVICES_LOGGED)
			uri_log(d, d->disk[i]);
	}
	if (nr > DEVICES_LOGGED)
		log_info("and more: %u devices in all", nr);
	log_others(d);
}

/* Is it served there? */
static bool
is_at(const struct disk *disk, const struct listener *ln)
{
	if (disk->queue == NULL || !listener_is_nbd(ln))
		return false;
	return !disk->conf.tls_only || ln->tls != TLS_OFF;
}

int
uri_places(const struct daemon *d, const struct disk *disk, struct place **out)
{
	const struct listener *ln;
	bool tls_only = disk->conf.tls_only;
	struct place *p = calloc(d->nr_listeners, sizeof(*p));
	int nr = 0;

	*out = p;
	if (p == NULL)
		return -ENOMEM;
	for (ln = d->listener; ln < d->listener + d->nr_listeners; ln++) {
		if (!is_at(disk, ln))
			continue;
		uri_make(p->uri, sizeof(p->uri), ln, disk->name, tls_only);
		p->tls = needs_tls(ln, tls_only);
		if (ln->family == AF_UNIX && !ln->abstract)
			snprintf(p->path, sizeof(p->path), "%s", ln->path);
		if (ln->family == AF_INET || ln->family == AF_INET6)
			snprintf(p->host, sizeof(p->host), "%s", ln->host);
		p->port = ln->port;
		p++;
		nr++;
	}
	return nr;
}

/* Of the devices each, at the listeners each. */
int
uri_print_all(const struct daemon *d, FILE *out)
{
	unsigned i;

	for (i = 0; i < d->nr_disks; i++) {
		struct place *p;
		int nr = uri_places(d, d->disk[i], &p);

		for (int k = 0; k < nr; k++)
			fprintf(out, "%s\n", p[k].uri);
		free(p);
		if (nr < 0)
			return nr;
	}
	return fflush(out) == 0 ? 0 : -errno;
}
