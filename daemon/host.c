/* SPDX-License-Identifier: MIT */
/*
 * The machine that we run on: what it has, and what of it we may use.
 */
#include "daemon.h"

#include <sys/resource.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

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

int
host_start_thread(pthread_t *thread, const pthread_attr_t *attr,
    void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}
