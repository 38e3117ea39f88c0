/* SPDX-License-Identifier: MIT */
/*
 * The load of report B, as vm-scalability's msync-mt has it: threads store into
 * one shared mapping of a sparse file, each into its own part, and msync the
 * whole of it after each CHUNK.  Prints KiB of memory touched a second.
 *
 *	msync-mt FILE MEBIBYTES THREADS SECONDS
 */
#include <sys/mman.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE        4096u
#define CHUNK       256u /* pages between two msyncs of a thread */
#define MAX_THREADS 64u

static char *map;
static size_t map_size;
static atomic_bool over;

struct worker {
	pthread_t thread;
	size_t first, nr; /* pages of its part */
	uint64_t touched; /* pages */
	int error;
};

static void *
work(void *arg)
{
	struct worker *w = arg;
	size_t i = 0;

	while (!atomic_load(&over) && w->error == 0) {
		map[(w->first + i % w->nr) * PAGE] += 1;
		w->touched++;
		if (++i % CHUNK == 0 && msync(map, map_size, MS_SYNC) != 0)
			w->error = errno;
	}
	return NULL;
}

static unsigned long
number(const char *text, unsigned long max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text != '\0' && *end == '\0' && n >= 1 && n <= max)
		return n;
	fprintf(stderr, "msync-mt: \"%s\": allowed: 1 to %lu\n", text, max);
	exit(2);
}

static void
die(const char *what)
{
	fprintf(stderr, "msync-mt: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int
main(int argc, char **argv)
{
	static struct worker worker[MAX_THREADS];
	unsigned long nr_threads, seconds, i;
	uint64_t touched = 0;
	double start;
	int fd;

	if (argc != 5) {
		fputs(
		    "usage: msync-mt FILE MEBIBYTES THREADS SECONDS\n", stderr);
		return 2;
	}
	map_size = number(argv[2], 1 << 20) << 20;
	nr_threads = number(argv[3], MAX_THREADS);
	seconds = number(argv[4], 3600);
	fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)map_size) != 0)
		die(argv[1]);
	map = mmap(NULL, map_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		die("mmap");
	start = now();
	for (i = 0; i < nr_threads; i++) {
		worker[i].nr = map_size / PAGE / nr_threads;
		worker[i].first = i * worker[i].nr;
		errno =
		    pthread_create(&worker[i].thread, NULL, work, &worker[i]);
		if (errno != 0)
			die("pthread_create");
	}
	sleep((unsigned)seconds);
	atomic_store(&over, true);
	for (i = 0; i < nr_threads; i++) {
		pthread_join(worker[i].thread, NULL);
		touched += worker[i].touched;
		errno = worker[i].error;
		if (errno != 0)
			die("msync");
	}
	printf("%.0f\n", (double)touched * (PAGE / 1024) / (now() - start));
	return 0;
}
