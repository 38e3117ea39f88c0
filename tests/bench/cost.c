/* SPDX-License-Identifier: MIT */
/*
 * The least that shows what a bio costs: so many bios of 4 KiB, half of them
 * reads, in batches of 32 under a plug, to null devices.  Nothing else is done,
 * so that instructions can be counted: tests/wire/cost.sh does.
 *
 *	cost BIOS [DEVICES [random|merging|N [ATTRIBUTE=VALUE]...]]
 *
 * With a number there are always so many in flight, whose time comes later
 * (irqmode=timer is among the attributes then), else none between batches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"

#define BATCH       32u
#define MAX_DEVICES 256u
#define BLOCKS      60000u

#define MAX_IN_FLIGHT 1000000u

static char payload[PAGE_SIZE];
static struct disk *disks[MAX_DEVICES];
static struct bio **spare; /* bios that are not in flight */
static uint64_t nr_spare, nr_ended;

static void
end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)now;
	bio_release(bio, cpu);
	spare[nr_spare++] = bio;
	nr_ended++;
}

/* 0 or -1. */
static int
spare_new(uint64_t nr)
{
	struct bio *bio = calloc(nr, sizeof(*bio));

	spare = calloc(nr, sizeof(*spare));
	if (bio == NULL || spare == NULL)
		return -1;
	while (nr_spare < nr)
		spare[nr_spare++] = bio++;
	return 0;
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

/* One batch to one device. */
static void
batch(struct disk *d, struct cpu *cpu, bool merging, uint64_t now)
{
	static uint64_t seed = 1, next;
	struct plug plug;
	struct bio *bio;
	uint64_t block;

	plug_init(&plug);
	for (unsigned i = 0; i < BATCH; i++) {
		bool read = merging ? now / 1000 % 2 != 0 : i % 2 != 0;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		block = merging ? next++ % BLOCKS : (seed >> 40) % BLOCKS;
		bio = spare[--nr_spare];
		bio_init(bio, read ? REQ_OP_READ : REQ_OP_WRITE,
		    block * PAGE_SIZE, NULL, 0);
		bio_add(bio, true, (uint64_t)(i + 1) << 20,
		    read ? NULL : payload, PAGE_SIZE);
		bio->end_io = end_io;
		if (queue_submit(d->queue, cpu, &plug, bio, now) != 0)
			abort();
	}
	plug_flush(&plug, cpu, now);
}

/* Until so many bios are spare.  Returns the time. */
static uint64_t
wait_for(struct cpu *cpu, uint64_t nr, uint64_t now)
{
	uint64_t next;

	while (next = cpu_run(cpu, now), nr_spare < nr) {
		if (next == CPU_NO_DEADLINE)
			abort();
		now = next;
	}
	return now;
}

static void
run(struct cpu *cpu, uint64_t nr_batches, uint64_t nr_disks, bool merging)
{
	uint64_t all = nr_spare, now = 1000, i;

	for (i = 0; i < nr_batches; i++) {
		now = wait_for(cpu, BATCH, now + 1000);
		batch(disks[i % nr_disks], cpu, merging, now);
	}
	wait_for(cpu, all, now);
}

int
main(int argc, char **argv)
{
	struct machine *m = machine_new(1, NULL, NULL);
	struct page_pool *pool = m != NULL ? page_pool_new(m, 0) : NULL;
	uint64_t nr = argc > 1 ? strtoull(argv[1], NULL, 10) / BATCH : 0, i;
	uint64_t nr_disks = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	const char *kind = argc > 3 ? argv[3] : "random";
	uint64_t in_flight = strtoull(kind, NULL, 10);
	int nr_settings = argc > 4 ? argc - 4 : 0;

	if (in_flight < BATCH)
		in_flight = BATCH;
	if (pool == NULL || nr_disks == 0 || nr_disks > MAX_DEVICES ||
	    in_flight > MAX_IN_FLIGHT || spare_new(in_flight) != 0)
		return 2;
	for (i = 0; i < nr_disks; i++) {
		disks[i] = disk_on(m, pool, nr_settings, argv + 4);
		if (disks[i] == NULL)
			return 2;
	}
	epoch_enter(&m->epoch, 0);
	run(&m->cpu[0], nr, nr_disks, strcmp(kind, "merging") == 0);
	epoch_leave(&m->epoch, 0);
	if (nr_ended != nr * BATCH)
		return 1;
	for (i = 0; i < nr_disks; i++)
		disk_free(disks[i]);
	page_pool_free(pool);
	machine_free(m);
	return 0;
}
