/* SPDX-License-Identifier: MIT */
/*
 * The settings of the daemon: the section [nullbd] of a configuration file,
 * and most options of the command line.
 */
#include "ctl/ctl.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct attr_group daemon_group = {
	.title = "settings of the daemon: section [nullbd]",
	.prints_names = true,
};

static const struct attr_choice memory_limits[] = {
	{ "auto", MEMORY_LIMIT_AUTO, "leave the machine some of its memory" },
	{},
};

static const struct attr_choice tls_modes[] = {
	{ "off", TLS_OFF, "no TLS" },
	{ "allowed", TLS_ALLOWED, "for clients that ask for it" },
	{ "required", TLS_REQUIRED, "for every client" },
	{},
};

static int
listen_check(const char *value, char *err, size_t errlen)
{
	struct endpoint e;

	if (*value == '\0')
		return 0; /* the list is emptied */
	return endpoint_parse(value, &e, err, errlen);
}

static int
affinity_check(const char *value, char *err, size_t errlen)
{
	unsigned cpu[DAEMON_MAX_CPUS];
	int nr;

	if (*value == '\0')
		return 0;
	nr = cpu_list_parse(value, cpu, err, errlen);
	return nr < 0 ? nr : 0;
}

static int
metrics_check(const char *value, char *err, size_t errlen)
{
	struct endpoint e;

	if (*value == '\0')
		return 0;
	return metrics_endpoint(value, &e, err, errlen);
}

#define DAEMON(f) ATTR_FIELD(struct daemon_conf, f), .group = &daemon_group

const struct attr daemon_attrs[] = {
	{ DAEMON(listen), .max = DAEMON_MAX_PLACE, .alias = { "socket" },
	    .check = listen_check,
	    .help = "where to listen, may be repeated: /PATH or unix:PATH, "
		    "HOST:PORT, [V6]:PORT, or :PORT for every address; "
		    "vsock:PORT or vsock:CID:PORT; unix:- for a socket in a "
		    "new directory of its own; \" tls=MODE\" behind it: not as "
		    "`tls` says" },
	{ DAEMON(port), .def = "0", .max = UINT16_MAX,
	    .help =
		"listen at this TCP port of `address`, too; 0 for none, but "
		"10809 of 127.0.0.1 where nothing is said" },
	{ DAEMON(address), .def = "127.0.0.1", .max = 255,
	    .help = "address of `port`" },
	{ DAEMON(control), .max = DAEMON_MAX_PATH,
	    .help = "path of the control socket; none if empty" },
	{ DAEMON(sysfs), .max = 4095,
	    .help = "directory to mount the devices on as files, as null_blk's "
		    "configfs and /sys/block have them (FUSE); none if empty" },
	{ DAEMON(metrics), .max = DAEMON_MAX_PLACE, .check = metrics_check,
	    .help = "where to serve metrics for Prometheus over HTTP: "
		    "HOST:PORT, [V6]:PORT, or :PORT for every address; nowhere "
		    "if empty" },
	{ DAEMON(workers), .def = "0", .max = 256,
	    .help = "loops, each a CPU to the block layer; 0: one a core, or "
		    "one for each CPU of `affinity`" },
	{ DAEMON(affinity), .max = 1024, .check = affinity_check,
	    .help = "CPUs to pin the workers to, one after the other, such as "
		    "0-3,8; not pinned if empty" },
	{ DAEMON(default_export), .max = 4096,
	    .help = "the device that clients get who name none; `none`: they "
		    "are refused; the first if empty" },
	{ DAEMON(pidfile), .max = 4095,
	    .help = "file to write the process id to, once all sockets accept; "
		    "none if empty" },
	{ DAEMON(memory_limit), .def = "auto", .unit = &unit_bytes,
	    .choices = memory_limits,
	    .help = "most memory for the data of all disks; 0 for no limit" },
	{ DAEMON(spin_usec), .def = "50", .unit = &unit_usec, .max = 10000,
	    .help =
		"poll so long at most, before a deadline and after work; 0: "
		"never" },
	{ DAEMON(max_connections), .def = "1024", .min = 1, .max = 65536,
	    .help = "connections at a time" },
	{ DAEMON(handshake_seconds), .def = "10", .unit = &unit_seconds,
	    .min = 1, .max = 3600,
	    .help = "a client that has not negotiated by then is cut off" },
	{ DAEMON(max_handshakes), .def = "256", .min = 1, .max = 65536,
	    .help = "connections at a time that have not negotiated; for one "
		    "more the oldest of them is cut off" },
	{ DAEMON(max_options), .def = "1024", .min = 16, .max = 1000000,
	    .help =
		"options that a client may send (and 8 for each export that it "
		"has listed), then it is cut off" },
	{ DAEMON(max_requests), .def = "1024", .min = 1, .max = 65536,
	    .help = "requests of a connection in flight; further ones wait "
		    "in its socket" },
	{ DAEMON(max_bytes), .def = "64M", .unit = &unit_bytes, .min = 65536,
	    .max = UINT64_C(1) << 40, .help = "their data; the same" },
	{ DAEMON(max_total_bytes), .def = "1G", .unit = &unit_bytes,
	    .max = UINT64_C(1) << 50,
	    .help = "that of all connections: beyond it each has one request "
		    "at a time, and a write that would double it fails with "
		    "ENOMEM; 0 for no limit" },
	{ DAEMON(tls), .def = "off", .choices = tls_modes, .max = TLS_REQUIRED,
	    .help = "TLS for clients; needs tls_certificates or tls_psk" },
	{ DAEMON(tls_certificates), .max = 1024,
	    .help = "directory of server-cert.pem and server-key.pem; of "
		    "ca-cert.pem and perhaps ca-crl.pem for tls_verify_peer" },
	{ DAEMON(tls_psk), .max = 1024,
	    .help = "file of shared keys, USER:HEXKEY, as psktool(1) makes" },
	{ DAEMON(tls_verify_peer), .def = "0",
	    .help = "clients without a shared key need a certificate that "
		    "ca-cert.pem vouches for" },
	{ DAEMON(tls_priority), .def = DAEMON_TLS_PRIORITY, .max = 1024,
	    .help = "versions and ciphers, as GnuTLS writes them" },
	{},
};

static int
parse_path(const char *path, struct endpoint *out, char *err, size_t errlen)
{
	if (*path == '\0' || strlen(path) > DAEMON_MAX_PATH)
		return refuse(err, errlen, -EINVAL,
		    "listen: \"%s\": allowed: a path of at most %d bytes", path,
		    DAEMON_MAX_PATH);
	memcpy(out->path, path, strlen(path) + 1);
	return 0;
}

/* What follows "vsock:". */
static int
parse_vsock(const char *text, struct endpoint *out, char *err, size_t errlen)
{
	const char *port = strchr(text, ':');
	uint64_t cid = VSOCK_ANY, number;
	char *copy = strndup(text, port != NULL ? (size_t)(port - text) : 0);
	int ret;

	if (copy == NULL)
		return refuse(err, errlen, -ENOMEM, "listen: out of memory");
	ret = port != NULL ? uint_parse(copy, NULL, &cid) : 0;
	free(copy);
	if (ret != 0 || cid > VSOCK_ANY ||
	    uint_parse(port != NULL ? port + 1 : text, NULL, &number) != 0 ||
	    number >= UINT32_MAX)
		return refuse(err, errlen, -EINVAL,
		    "listen: \"vsock:%.60s\": allowed: vsock:PORT, "
		    "vsock:CID:PORT, numbers below 2^32",
		    text);
	out->vsock = true;
	out->cid = (uint32_t)cid;
	out->port = (uint32_t)number;
	return 0;
}

/* Find where the host ends; *port is behind it, NULL if there is none. */
static int
split_host(const char *text, const char **host, size_t *len, const char **port)
{
	const char *end;

	*host = text;
	if (*text == '[') {
		*host = text + 1;
		end = strchr(text, ']');
		if (end == NULL || (end[1] != ':' && end[1] != '\0'))
			return -EINVAL;
		*len = (size_t)(end - *host);
		*port = end[1] == ':' ? end + 2 : NULL;
		return *len > 0 ? 0 : -EINVAL;
	}
	end = strchr(text, ':');
	if (end != NULL && strchr(end + 1, ':') != NULL)
		return -EINVAL; /* an IPv6 address wants brackets */
	*len = end != NULL ? (size_t)(end - text) : strlen(text);
	*port = end != NULL ? end + 1 : NULL;
	return 0;
}

/* Cut " tls=MODE" off its end.  False: no such mode. */
static bool
cut_tls(char *text, enum tls_mode *out)
{
	static const char key[] = " tls=";
	char *mode = NULL, *next = text;
	const struct attr_choice *c = tls_modes;

	*out = TLS_UNSAID;
	while ((next = strstr(next, key)) != NULL)
		mode = next++;
	if (mode == NULL)
		return true;
	while (c->name != NULL && strcmp(c->name, mode + strlen(key)) != 0)
		c++;
	if (c->name == NULL)
		return false;
	while (mode > text && mode[-1] == ' ')
		mode--;
	*mode = '\0';
	*out = (enum tls_mode)c->value;
	return true;
}

static int
parse_place(const char *text, struct endpoint *out, char *err, size_t errlen)
{
	const char *host, *port;
	uint64_t number = DAEMON_PORT;
	size_t len;

	if (strncmp(text, "unix:", 5) == 0)
		return parse_path(text + 5, out, err, errlen);
	if (strncmp(text, "vsock:", 6) == 0)
		return parse_vsock(text + 6, out, err, errlen);
	if (*text == '/' || *text == '.')
		return parse_path(text, out, err, errlen);
	if (*text == '\0' || split_host(text, &host, &len, &port) != 0 ||
	    len >= sizeof(out->host))
		goto bad;
	/* a bare number would be taken for an address: 0.0.42.57 */
	if (port == NULL && strspn(host, "0123456789") == len)
		goto bad;
	if (port != NULL &&
	    (uint_parse(port, NULL, &number) != 0 || number > UINT16_MAX))
		goto bad;
	memcpy(out->host, host, len);
	out->port = (uint32_t)number;
	return 0;

bad:
	return refuse(err, errlen, -EINVAL,
	    "listen: \"%.60s\": allowed: unix:PATH, /PATH, HOST:PORT, "
	    "[V6]:PORT, :PORT, HOST, vsock:PORT, vsock:CID:PORT",
	    text);
}

int
endpoint_parse(const char *text, struct endpoint *out, char *err, size_t errlen)
{
	char place[DAEMON_MAX_PLACE + 1];

	*out = (struct endpoint){};
	if (strlen(text) > DAEMON_MAX_PLACE)
		return refuse(err, errlen, -EINVAL,
		    "listen: \"%.60s\": allowed: at most %d bytes", text,
		    DAEMON_MAX_PLACE);
	strcpy(place, text);
	if (!cut_tls(place, &out->tls))
		return refuse(err, errlen, -EINVAL,
		    "listen: \"%s\": tls: allowed: off, allowed, required",
		    text);
	return parse_place(place, out, err, errlen);
}

int
metrics_endpoint(
    const char *text, struct endpoint *out, char *err, size_t errlen)
{
	const char *host, *port;
	uint64_t number;
	size_t len;

	*out = (struct endpoint){};
	if (*text == '/' || *text == '.' ||
	    split_host(text, &host, &len, &port) != 0 || port == NULL ||
	    len >= sizeof(out->host) || uint_parse(port, NULL, &number) != 0 ||
	    number > UINT16_MAX)
		return refuse(err, errlen, -EINVAL,
		    "metrics: \"%.60s\": allowed: HOST:PORT, [V6]:PORT, :PORT",
		    text);
	memcpy(out->host, host, len);
	out->port = (uint32_t)number;
	return 0;
}

int
daemon_endpoints(const struct daemon_conf *conf, struct endpoint *out,
    char *err, size_t errlen)
{
	int nr = 0, ret;

	for (char **s = conf->listen; s != NULL && *s != NULL; s++) {
		if (nr == DAEMON_MAX_LISTENERS - 1)
			return refuse(err, errlen, -EINVAL,
			    "listen: allowed: at most %d places",
			    DAEMON_MAX_LISTENERS - 1);
		ret = endpoint_parse(*s, &out[nr], err, errlen);
		if (ret != 0)
			return ret;
		if (out[nr].tls == TLS_UNSAID)
			out[nr].tls = (enum tls_mode)conf->tls;
		nr++;
	}
	if (conf->port == 0 && nr > 0)
		return nr;
	out[nr] = (struct endpoint){
		.port = conf->port != 0 ? conf->port : DAEMON_PORT,
		.tls = (enum tls_mode)conf->tls,
	};
	if (conf->address != NULL)
		strncpy(out[nr].host, conf->address, sizeof(out[nr].host) - 1);
	return nr + 1;
}

/* "3" or "0-3"; *end is what follows.  False: neither. */
static bool
parse_cpus(const char *text, unsigned *first, unsigned *last, const char **end)
{
	unsigned long n[2];
	char *rest = (char *)(uintptr_t)text;
	int i;

	for (i = 0; i < 2; i++) {
		if (!isdigit((unsigned char)*rest))
			return false;
		n[i] = strtoul(rest, &rest, 10);
		if (n[i] > DAEMON_MAX_CPU)
			return false;
		if (*rest != '-')
			break;
		rest++;
	}
	if (i == 2) /* "0-1-" */
		return false;
	*first = (unsigned)n[0];
	*last = (unsigned)n[i];
	*end = rest;
	return *first <= *last;
}

int
cpu_list_parse(const char *text, unsigned *cpu, char *err, size_t errlen)
{
	unsigned first, last, nr = 0;
	const char *at = text;

	for (;; at++) {
		if (!parse_cpus(at, &first, &last, &at) ||
		    (*at != ',' && *at != '\0'))
			return refuse(err, errlen, -EINVAL,
			    "affinity: \"%.60s\": allowed: CPUs from 0 to %d, "
			    "such as 0-3,8",
			    text, DAEMON_MAX_CPU);
		if (last - first >= DAEMON_MAX_CPUS - nr)
			return refuse(err, errlen, -EINVAL,
			    "affinity: \"%.60s\": allowed: at most %d CPUs",
			    text, DAEMON_MAX_CPUS);
		while (first <= last)
			cpu[nr++] = first++;
		if (*at == '\0')
			return (int)nr;
	}
}

bool
daemon_wants_tls(const struct daemon_conf *conf)
{
	struct endpoint ep[DAEMON_MAX_LISTENERS];
	int nr = daemon_endpoints(conf, ep, NULL, 0);

	while (nr-- > 0)
		if (ep[nr].tls != TLS_OFF)
			return true;
	return conf->tls != TLS_OFF;
}

int
daemon_check_tls(const struct daemon_conf *conf, char *err, size_t errlen)
{
	if (!daemon_wants_tls(conf)) {
		if (conf->tls_certificates == NULL && conf->tls_psk == NULL &&
		    !conf->tls_verify_peer)
			return 0;
		return refuse(err, errlen, -EINVAL,
		    "tls: off: but there is %s, which would be of no use; "
		    "allowed: required, allowed",
		    conf->tls_certificates != NULL ? "tls_certificates"
		    : conf->tls_psk != NULL        ? "tls_psk"
						   : "tls_verify_peer");
	}
	if (conf->tls_certificates == NULL && conf->tls_psk == NULL)
		return refuse(err, errlen, -EINVAL,
		    "tls: there is nothing that tells who we are; needed: "
		    "tls_certificates or tls_psk");
	if (conf->tls_verify_peer && conf->tls_certificates == NULL)
		return refuse(err, errlen, -EINVAL,
		    "tls_verify_peer: there is nothing to verify with; needed: "
		    "tls_certificates");
	return 0;
}
