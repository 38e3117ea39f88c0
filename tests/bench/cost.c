/* SPDX-License-Identifier: MIT */
/*
 * The least that shows what a bio costs: so many bios of 4 KiB, half of them
 * reads, in batches of 32 under a plug, to null devices.  Nothing else is done,
 * so that instructions can be counted: tests/wire/cost.sh does.
 *
 *	cost BIOS [DEVICES [random|merging [ATTRIBUTE=VALUE]...]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"

#define BATCH       32u
#define MAX_DEVICES 256u
#define BLOCKS      60000u

static char payload[PAGE_SIZE];
static struct disk *disks[MAX_DEVICES];
static uint64_t nr_ended;

static void
end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	bio_release(bio, cpu);
	nr_ended++;
}

static struct disk *
disk_on(struct machine *m, struct page_pool *pool, int nr, char **settings)
{
	struct disk *d = disk_new("cost", m, pool);
	char err[512], name[64];
	int i;

	for (i = 0; d != NULL && i < nr; i++) {
		size_t len = strcspn(settings[i], "=");

		snprintf(name, sizeof(name), "%.*s", (int)len, settings[i]);
		if (settings[i][len] == '\0' ||
		    attr_set(disk_attrs, &d->set, name, settings[i] + len + 1,
			false, err, sizeof(err)) != 0)
			return NULL;
	}
	if (d == NULL || disk_power_on(d, 1000, err, sizeof(err)) != 0)
		return NULL;
	return d;
}

/* One batch to one device, and its end. */
static void
batch(struct disk *d, struct cpu *cpu, bool merging, uint64_t now)
{
	static struct bio bio[BATCH];
	static uint64_t seed = 1, next;
	struct plug plug;
	uint64_t block;

	plug_init(&plug);
	for (unsigned i = 0; i < BATCH; i++) {
		bool read = merging ? now / 1000 % 2 != 0 : i % 2 != 0;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		block = merging ? next++ % BLOCKS : (seed >> 40) % BLOCKS;
		bio_init(&bio[i], read ? REQ_OP_READ : REQ_OP_WRITE,
		    block * PAGE_SIZE, NULL, 0);
		bio_add(&bio[i], true, (uint64_t)(i + 1) << 20,
		    read ? NULL : payload, PAGE_SIZE);
		bio[i].end_io = end_io;
		if (queue_submit(d->queue, cpu, &plug, &bio[i], now) != 0)
			abort();
	}
	plug_flush(&plug, cpu, now);
	cpu_run(cpu, now);
}

int
main(int argc, char **argv)
{
	struct machine *m = machine_new(1, NULL, NULL);
	struct page_pool *pool = m != NULL ? page_pool_new(m, 0) : NULL;
	uint64_t nr = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, i;
	uint64_t nr_disks = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	bool merging = argc > 3 && strcmp(argv[3], "merging") == 0;
	int nr_settings = argc > 4 ? argc - 4 : 0;

	if (pool == NULL || nr_disks == 0 || nr_disks > MAX_DEVICES)
		return 2;
	for (i = 0; i < nr_disks; i++) {
		disks[i] = disk_on(m, pool, nr_settings, argv + 4);
		if (disks[i] == NULL)
			return 2;
	}
	epoch_enter(&m->epoch, 0);
	for (i = 0; i < nr / BATCH; i++)
		batch(
		    disks[i % nr_disks], &m->cpu[0], merging, 2000 + i * 1000);
	epoch_leave(&m->epoch, 0);
	if (nr_ended != nr / BATCH * BATCH)
		return 1;
	for (i = 0; i < nr_disks; i++)
		disk_free(disks[i]);
	page_pool_free(pool);
	machine_free(m);
	return 0;
}
