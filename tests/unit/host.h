/* SPDX-License-Identifier: MIT */
/* What tests of memory share: a host of CPUs, and whether memory is ours. */
#ifndef TESTS_UNIT_HOST_H
#define TESTS_UNIT_HOST_H

#include <stdio.h>
#include <unistd.h>

#include "dev/dev.h"

#ifdef __has_feature /* clang's way to tell; gcc defines the macros */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define THREADS_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifdef __SANITIZE_THREAD__
#define THREADS_SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0 /* else time and the heap are not what they are */
#endif
#ifndef THREADS_SANITIZED
#define THREADS_SANITIZED 0 /* else one thread alone has nothing to show */
#endif

static inline struct machine *
host_new(unsigned nr_cpus)
{
	struct machine *m = machine_new(nr_cpus, NULL, NULL);

	assert_non_null(m);
	return m;
}

/* Memory of the process that is there, in bytes. */
static inline uint64_t
resident(void)
{
	unsigned long total, here = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu %lu", &total, &here), 2);
	fclose(f);
	return (uint64_t)here * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A disk with settings "a=1 b=2", which is on. */
static inline struct disk *
host_disk(struct machine *m, struct page_pool *p, const char *settings)
{
	struct disk *d = disk_new("nullb0", m, p);
	char *copy = strdup(settings), *rest = copy, *name, *value, err[256];

	while ((value = strsep(&rest, " ")) != NULL && *value != '\0') {
		name = strsep(&value, "=");
		if (attr_set(disk_attrs, &d->set, name, value, false, err,
			sizeof(err)) != 0)
			fail_msg("%s", err);
	}
	free(copy);
	if (disk_power_on(d, 1000000, err, sizeof(err)) != 0)
		fail_msg("%s", err);
	return d;
}

static inline void
turn(struct cpu *cpu)
{
	epoch_enter(&cpu->machine->epoch, cpu->id);
}

/* What a loop does before it sleeps. */
static inline void
rest(struct page_pool *p, struct cpu *cpu)
{
	epoch_leave(&cpu->machine->epoch, cpu->id);
	while (page_pool_idle(p, cpu))
		;
}

#endif
