/* SPDX-License-Identifier: MIT */
/*
 * What a process and its children used so far, from /proc: nbd-server forks a
 * child a connection, so one process is not the whole server.
 */
#ifndef BENCH_PROC_H
#define BENCH_PROC_H

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct proc_use {
	double user_s; /* in clock ticks, usually 10 ms */
	double sys_s;
	double cpu_s; /* user and system, to the ns where the kernel tells */
	uint64_t voluntary; /* context switches of the live threads */
	uint64_t rss_kib;
};

struct proc_stat {
	int ppid;
	double user_s;
	double sys_s;
	uint64_t rss_kib;
};

/* Reads a small file whole; returns false when it is not there. */
static inline bool
proc_read(const char *path, char *text, size_t room)
{
	FILE *f = fopen(path, "re");

	if (!f)
		return false;

	size_t n = fread(text, 1, room - 1, f);

	text[n] = '\0';
	fclose(f);
	return n > 0;
}

static inline bool
proc_stat(pid_t pid, struct proc_stat *s)
{
	char path[64], text[1024];
	unsigned long user, sys;
	long pages;
	double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (!proc_read(path, text, sizeof(text)))
		return false;

	/* The name, field 2, may hold anything; it ends at the last ')'. */
	char *p = strrchr(text, ')');

	if (!p ||
	    sscanf(p + 1,
		" %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d"
		" %*d %*d %*d %*d %*u %*u %ld",
		&s->ppid, &user, &sys, &pages) != 4)
		return false;
	s->user_s = (double)user * tick;
	s->sys_s = (double)sys * tick;
	s->rss_kib = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
	return true;
}

/* Adds up over the threads; false when the kernel has no schedstat. */
static inline bool
proc_threads(pid_t pid, double *cpu_s, uint64_t *voluntary)
{
	char path[300], text[4096];
	bool exact = true;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);

	DIR *dir = opendir(path);

	if (!dir)
		return false;
	for (struct dirent *d; (d = readdir(dir));) {
		unsigned long long ns = 0, n = 0;

		if (!isdigit((unsigned char)d->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat",
		    (int)pid, d->d_name);
		if (proc_read(path, text, sizeof(text)) &&
		    sscanf(text, "%llu", &ns) == 1)
			*cpu_s += (double)ns / 1e9;
		else
			exact = false;
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status",
		    (int)pid, d->d_name);
		if (!proc_read(path, text, sizeof(text)))
			continue;

		char *line = strstr(text, "\nvoluntary_ctxt_switches:");

		if (line && sscanf(line, " %*s %llu", &n) == 1)
			*voluntary += n;
	}
	closedir(dir);
	return exact;
}

static inline void
proc_add(pid_t pid, const struct proc_stat *s, struct proc_use *use)
{
	double cpu_s = 0;

	use->user_s += s->user_s;
	use->sys_s += s->sys_s;
	use->rss_kib += s->rss_kib;
	if (!proc_threads(pid, &cpu_s, &use->voluntary))
		cpu_s = s->user_s + s->sys_s;
	use->cpu_s += cpu_s;
}

/* Returns false when there is no such process. */
static inline bool
proc_use(pid_t pid, struct proc_use *use)
{
	struct proc_stat s;

	*use = (struct proc_use){};
	if (!proc_stat(pid, &s))
		return false;
	proc_add(pid, &s, use);

	DIR *dir = opendir("/proc");

	if (!dir)
		return false;
	for (struct dirent *d; (d = readdir(dir));) {
		pid_t child = atoi(d->d_name);

		if (child > 0 && proc_stat(child, &s) && s.ppid == pid)
			proc_add(child, &s, use);
	}
	closedir(dir);
	return true;
}

#endif
