/* SPDX-License-Identifier: MIT */
/*
 * What NBD sees of the disks: an export each, under the name of the disk and
 * those of its export_names.  Sessions keep pointers to exports: once made they
 * stay where they are, and what is withdrawn stays until no connection uses it.
 * All of it is the main loop's, but for the count of who does.
 */
#include "daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define NULLB_STATE_BAD 1u /* of x-nullb:badblocks */

/*
 * A name in the list of exports; several may lead to the same export, whose
 * name is the canonical one (N64).
 */
struct export_name {
	struct nbd_export listed;       /* under this name */
	struct export_name *export;     /* of the disk */
	struct badblocks *badblocks;    /* of the disk */
	_Atomic unsigned users;         /* connections attached to it */
	STAILQ_ENTRY(export_name) link; /* once it was withdrawn */
};

/* base:allocation: what the store holds, by the block. */
static uint32_t
allocation(const struct nbd_export *e, struct cpu *cpu, uint64_t pos,
    uint64_t *len, unsigned *steps)
{
	unsigned extent = disk_extent(e->driver, cpu, pos, len, steps);

	return (extent & DISK_HOLE ? NBD_STATE_HOLE : 0) |
	       (extent & DISK_ZERO ? NBD_STATE_ZERO : 0);
}

/* x-nullb:badblocks: is the block bad? */
static uint32_t
badblocks(const struct nbd_export *e, struct cpu *cpu, uint64_t pos,
    uint64_t *len, unsigned *steps)
{
	const struct export_name *n =
	    container_of(e, struct export_name, listed);

	(void)cpu;
	(*steps)--;
	/* d->conf is the main loop's to change */
	return badblocks_extent(n->badblocks, e->min_block, pos, len)
		   ? NULLB_STATE_BAD
		   : 0;
}

/* x-nullb:zones: ZONE_STATUS_* */
static uint32_t
zones(const struct nbd_export *e, struct cpu *cpu, uint64_t pos, uint64_t *len,
    unsigned *steps)
{
	const struct disk *d = e->driver;

	(void)cpu;
	(*steps)--;
	return zones_status(d->zones, pos, len);
}

static const struct nbd_context contexts[] = {
	{ "base:allocation", allocation },
	{ "x-nullb:badblocks", badblocks },
	{},
};

static const struct nbd_context contexts_zoned[] = {
	{ "base:allocation", allocation },
	{ "x-nullb:badblocks", badblocks },
	{ "x-nullb:zones", zones },
	{},
};

static void
fill(struct nbd_export *e, struct disk *d, const char *name)
{
	const struct limits *lim = &d->queue->limits;
	uint32_t pref = lim->physical_block_size;

	*e = (struct nbd_export){
		.name = name,
		.description = d->conf.description,
		.queue = d->queue,
		.size = disk_size(d),
		.read_only = d->conf.ro,
		.tls_only = d->conf.tls_only,
		.rotational = lim->rotational,
		.can_trim = lim->max_discard_sectors > 0,
		.can_zero = lim->max_write_zeroes_sectors > 0,
		.min_block = lim->logical_block_size,
		.pref_block = pref > PAGE_SIZE ? pref : PAGE_SIZE,
		.page_order = d->conf.page_order,
		.plug_nsec = d->conf.plug_nsec,
		.zone_bytes = d->zones != NULL ? d->conf.zone_size : 0,
		.contexts = d->zones != NULL ? contexts_zoned : contexts,
		.driver = d,
	};
	/* a read of a disk without memory moves its bytes, as it would there */
	if (d->store != NULL) {
		e->zeros = store_zeros();
		e->zeros_size = STORE_ZEROS_SIZE;
	}
}

/* Where a disk stands in the order of the disks; a new one is the last. */
static unsigned
rank(const struct daemon *d, const struct disk *disk)
{
	unsigned i = 0;

	while (i < d->nr_disks && d->disk[i] != disk)
		i++;
	return i;
}

/* Names are in the order of the disks, whenever their power came on. */
static unsigned
place_of(const struct daemon *d, const struct disk *disk)
{
	unsigned place = d->nr_exports, of_disk = rank(d, disk);

	if (of_disk == d->nr_disks)
		return place;
	while (place > 0 &&
	       rank(d, d->exports[place - 1]->listed.driver) > of_disk)
		place--;
	return place;
}

/* The first one that is added of a disk is `canonical`. */
static struct export_name *
add(struct daemon *d, struct disk *disk, const char *name,
    struct export_name *canonical)
{
	struct export_name **more, *n = calloc(1, sizeof(*n));
	unsigned place = place_of(d, disk);

	more = reallocarray(d->exports, d->nr_exports + 1, sizeof(*more));
	if (more != NULL)
		d->exports = more;
	if (n == NULL || more == NULL) {
		free(n);
		return NULL;
	}
	fill(&n->listed, disk, name);
	n->badblocks = disk->conf.badblocks;
	n->export = canonical != NULL ? canonical : n;
	memmove(d->exports + place + 1, d->exports + place,
	    (d->nr_exports - place) * sizeof(struct export_name *));
	d->exports[place] = n;
	d->nr_exports++;
	return n;
}

void
export_withdraw(
    struct daemon *d, const struct disk *disk, struct export_list *out)
{
	unsigned i, nr = 0;

	for (i = 0; i < d->nr_exports; i++) {
		struct export_name *n = d->exports[i];

		if (n->listed.driver == disk)
			STAILQ_INSERT_TAIL(out, n, link);
		else
			d->exports[nr++] = n;
	}
	d->nr_exports = nr;
}

bool
export_is_used(const struct export_list *list)
{
	const struct export_name *n;

	STAILQ_FOREACH(n, list, link)
		if (atomic_load(&n->users) > 0)
			return true;
	return false;
}

void
export_forget(struct daemon *d, struct export_list *list)
{
	struct export_name *n;
	struct conn *c;

	while ((n = STAILQ_FIRST(list)) != NULL) {
		STAILQ_REMOVE_HEAD(list, link);
		TAILQ_FOREACH(c, &d->main.conns, link)
			nbd_forget(c->session, &n->listed);
		free(n);
	}
}

static _Atomic unsigned *
users_of(const struct nbd_export *e)
{
	return &container_of(e, struct export_name, listed)->users;
}

void
export_hold(const struct nbd_export *e)
{
	atomic_fetch_add(users_of(e), 1);
}

void
export_put(const struct nbd_export *e)
{
	atomic_fetch_sub(users_of(e), 1);
}

int
export_add(struct daemon *d, struct disk *disk)
{
	struct export_list made = STAILQ_HEAD_INITIALIZER(made);
	char **name = disk->conf.export_names;
	struct export_name *first = add(d, disk, disk->name, NULL);
	bool added = first != NULL;

	for (; added && name != NULL && *name != NULL; name++)
		added = add(d, disk, *name, first) != NULL;
	if (added)
		return 0;
	export_withdraw(d, disk, &made);
	export_forget(d, &made);
	return -ENOMEM;
}

void
export_offer_trim(struct daemon *d, const struct disk *disk)
{
	for (unsigned i = 0; i < d->nr_exports; i++)
		if (d->exports[i]->listed.queue == disk->queue)
			d->exports[i]->listed.can_trim =
			    disk->queue->limits.max_discard_sectors > 0;
}

static const struct nbd_export *
find(const struct daemon *d, const char *name)
{
	for (unsigned i = 0; i < d->nr_exports; i++)
		if (strcmp(d->exports[i]->listed.name, name) == 0)
			return &d->exports[i]->export->listed;
	return NULL;
}

const struct nbd_export *
export_default(const struct daemon *d)
{
	const char *name = d->conf.default_export;

	if (name == NULL)
		return d->nr_exports > 0 ? &d->exports[0]->export->listed
					 : NULL;
	return strcmp(name, DAEMON_NO_DEFAULT) != 0 ? find(d, name) : NULL;
}

static const struct nbd_export *
lookup(void *arg, const char *name)
{
	return name[0] != '\0' ? find(arg, name) : export_default(arg);
}

static const struct nbd_export *
list(void *arg, unsigned i)
{
	struct daemon *d = arg;

	return i < d->nr_exports ? &d->exports[i]->listed : NULL;
}

void
export_init(struct daemon *d)
{
	d->host = (struct nbd_host){ lookup, list, d, &d->limits };
}

void
export_fini(struct daemon *d)
{
	while (d->nr_exports > 0)
		free(d->exports[--d->nr_exports]);
	free(d->exports);
}
