/* SPDX-License-Identifier: MIT */
/*
 * Who is connected, as `nullbctl clients` tells it, whatever loop serves them.
 * The list has a lock; of a connection on it the main loop reads only what it
 * has written itself, and atomics.
 */
#include "daemon.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static const struct {
	unsigned feature; /* enum nbd_feature */
	const char *name;
} feature_names[] = {
	{ NBD_FEATURE_NO_ZEROES, "no_zeroes" },
	{ NBD_FEATURE_BLOCK_SIZE, "block_size" },
	{ NBD_FEATURE_STRUCTURED, "structured" },
	{ NBD_FEATURE_EXTENDED, "extended" },
	{ NBD_FEATURE_CONTEXTS, "contexts" },
	{ NBD_FEATURE_TLS, "tls" },
	{},
};

void
client_add(struct conn *c)
{
	struct daemon *d = c->loop->daemon;
	struct ucred cred;
	socklen_t len = sizeof(cred);

	c->home = c->loop;
	c->since_ns = clock_ns();
	c->pid = CLIENT_NOBODY;
	c->uid = CLIENT_NOBODY;
	if (c->family == AF_UNIX &&
	    getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0) {
		c->pid = cred.pid;
		c->uid = cred.uid;
	}
	pthread_mutex_lock(&d->clients_lock);
	TAILQ_INSERT_TAIL(&d->clients, c, client);
	pthread_mutex_unlock(&d->clients_lock);
}

void
client_remove(struct conn *c)
{
	struct daemon *d = c->loop->daemon;

	pthread_mutex_lock(&d->clients_lock);
	TAILQ_REMOVE(&d->clients, c, client);
	pthread_mutex_unlock(&d->clients_lock);
}

void
client_moves(struct conn *c, struct loop *to)
{
	c->home = to;
	c->export = nbd_session_export(c->session);
	export_hold(c->export);
	c->features = nbd_features(c->session);
}

void
client_publish(struct conn *c)
{
	atomic_store_explicit(
	    &c->nr_requests, nbd_requests(c->session), memory_order_relaxed);
}

static bool
is_closing(const struct conn *c)
{
	return atomic_load(&c->kicked) || atomic_load(&c->end) != CONN_STAYS;
}

static void
describe(const struct conn *c, struct client *out)
{
	const struct daemon *d = c->home->daemon;
	bool chosen = c->export != NULL;
	unsigned nr = 0;

	*out = (struct client){
		.id = c->id,
		.pid = c->pid,
		.uid = c->uid,
		.export = chosen ? c->export->name : NULL,
		.loop = chosen ? (int)(c->home - d->worker) : CLIENT_NOBODY,
		.phase = is_closing(c) ? "closing"
			 : chosen      ? "transmission"
				       : "handshake",
		.nr_requests =
		    atomic_load_explicit(&c->nr_requests, memory_order_relaxed),
		.since_ns = c->since_ns,
	};
	memcpy(out->peer, c->peer, sizeof(out->peer));
	for (size_t i = 0; feature_names[i].name != NULL; i++)
		if (c->features & feature_names[i].feature)
			out->feature[nr++] = feature_names[i].name;
}

int
client_list(struct daemon *d, struct client **out)
{
	struct conn *c;
	/* those that come meanwhile are for the next time */
	unsigned max = atomic_load(&d->nr_conns) + 1, nr = 0;

	*out = calloc(max, sizeof(**out));
	if (*out == NULL)
		return -ENOMEM;
	pthread_mutex_lock(&d->clients_lock);
	TAILQ_FOREACH(c, &d->clients, client)
		if (nr < max)
			describe(c, &(*out)[nr++]);
	pthread_mutex_unlock(&d->clients_lock);
	return (int)nr;
}

int
client_kick(struct daemon *d, uint64_t id)
{
	struct loop *home = NULL;
	struct conn *c;

	pthread_mutex_lock(&d->clients_lock);
	TAILQ_FOREACH(c, &d->clients, client)
		if (c->id == id) {
			atomic_store(&c->kicked, true);
			watch_client(d, EVENT_KICKED, c);
			home = c->home;
		}
	pthread_mutex_unlock(&d->clients_lock);
	if (home == NULL)
		return -ENOENT;
	log_info("conn %u: kicked", (unsigned)id);
	loop_tell(home, LOOP_KICK);
	return 0;
}

uint64_t
client_requests(struct daemon *d)
{
	struct conn *c;
	uint64_t nr = 0;

	pthread_mutex_lock(&d->clients_lock);
	TAILQ_FOREACH(c, &d->clients, client)
		nr +=
		    atomic_load_explicit(&c->nr_requests, memory_order_relaxed);
	pthread_mutex_unlock(&d->clients_lock);
	return nr;
}

void
client_end(struct daemon *d, const struct disk *disk, enum conn_end how)
{
	struct conn *c;

	pthread_mutex_lock(&d->clients_lock);
	TAILQ_FOREACH(c, &d->clients, client) {
		if (c->export == NULL || c->export->driver != disk)
			continue;
		atomic_store(&c->end, how);
		loop_tell(c->home, LOOP_END);
	}
	pthread_mutex_unlock(&d->clients_lock);
}
