/* SPDX-License-Identifier: MIT */
/*
 * The machine that we run on: what it has, and what of it we may use.
 */
#include "daemon.h"

#include <sys/resource.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number that follows `key` at the start of a line of a file. */
static bool
number_in(const char *path, const char *key, uint64_t *out)
{
	FILE *f = fopen(path, "r");
	bool found = false;
	char line[128], *end;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		*out = strtoull(line + strlen(key), &end, 10);
		found = end != line + strlen(key); /* "max" is none */
	}
	if (f != NULL)
		fclose(f);
	return found;
}

uint64_t
host_memory_limit(void)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
	uint64_t avail = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
	uint64_t max, used, rest, kib;

	if (number_in("/proc/meminfo", "MemAvailable:", &kib))
		avail = kib * 1024;
	/* in a container the machine's memory is not all ours */
	if (number_in("/sys/fs/cgroup/memory.max", "", &max) && max < total) {
		if (!number_in("/sys/fs/cgroup/memory.current", "", &used))
			used = 0;
		total = max;
		rest = used < max ? max - used : 0;
		if (rest < avail)
			avail = rest;
	}
	return avail > total / 4 ? avail - total / 8 : avail / 2;
}

void
host_raise_files(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
}

/* How many CPUs of a list there are, each counted once. */
static unsigned
nr_different(const unsigned *cpu, unsigned nr)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (unsigned i = 0; i < nr; i++)
		CPU_SET(cpu[i], &set);
	return (unsigned)CPU_COUNT(&set);
}

static int
check_available(const unsigned *cpu, unsigned nr, char *err, size_t errlen)
{
	cpu_set_t ours;

	if (sched_getaffinity(0, sizeof(ours), &ours) != 0)
		return refuse(
		    err, errlen, -errno, "affinity: %s", strerror(errno));
	for (unsigned i = 0; i < nr; i++)
		if (!CPU_ISSET(cpu[i], &ours))
			return refuse(err, errlen, -EINVAL,
			    "affinity: CPU %u: is not there, or not for us",
			    cpu[i]);
	return 0;
}

int
host_choose_cpus(struct daemon *d, char *err, size_t errlen)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int nr;

	d->nr_cores = cores > 0 ? (unsigned)cores : 1;
	if (d->conf.affinity != NULL) {
		nr = cpu_list_parse(d->conf.affinity, d->pin, err, errlen);
		if (nr < 0 ||
		    check_available(d->pin, (unsigned)nr, err, errlen) != 0)
			return -EINVAL;
		d->nr_pins = (unsigned)nr;
		d->nr_cores = nr_different(d->pin, d->nr_pins);
	}
	d->nr_workers = d->conf.workers;
	if (d->nr_workers == 0)
		d->nr_workers = d->nr_pins > 0 ? d->nr_pins : d->nr_cores;
	return 0;
}
