/* SPDX-License-Identifier: MIT */
/*
 * The memory of the machine that we run on, and what of it we may use.
 */
#include "ctl/ctl.h"

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
memory_limit_auto(void)
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
