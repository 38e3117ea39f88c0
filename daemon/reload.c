/* SPDX-License-Identifier: MIT */
/*
 * SIGHUP: the configuration files are read again.  Devices that are new in them
 * are made and served.  Whatever else is otherwise is told, and left as it is:
 * nothing that is in use changes under its clients.  Files with a fault change
 * nothing at all.
 */
#include "daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* What was said, a line each. */
static void
log_lines(char *text)
{
	char *line;

	while ((line = strsep(&text, "\n")) != NULL)
		if (*line != '\0')
			log_warn("%s", line);
}

static void
add(struct daemon *d, struct config *next, struct device *dev)
{
	char err[MAX_ERROR] = "";
	int ret = device_introduce(d, dev, NULL, "reload", err, sizeof(err));

	if (ret != 0 && ret != -EINPROGRESS) {
		log_warn("%s: %s: %s: not served", dev->where, dev->name, err);
		return;
	}
	config_adopt(d->config, next, dev);
}

/* Those that `next` has and we do not.  How many that is now. */
static unsigned
add_all(struct daemon *d, struct config *next)
{
	struct device *dev, *after;
	unsigned before = d->nr_disks;

	for (dev = STAILQ_FIRST(&next->devices); dev != NULL; dev = after) {
		after = STAILQ_NEXT(dev, link);
		if (config_find(d->config, dev->name) == NULL)
			add(d, next, dev);
	}
	return d->nr_disks - before;
}

/* A configuration that may take effect; not 0: it has faults. */
static int
read_again(const struct daemon *d, struct config *next, FILE *said)
{
	if (config_again(d->config, next, said) != 0)
		return -EINVAL;
	if (config_check(next, d->nr_workers, said) == 0 &&
	    config_check_new(d->config, next, said) == 0)
		return 0;
	config_fini(next);
	return -EINVAL;
}

static void
reload(struct daemon *d)
{
	struct config next;
	char *text = NULL;
	size_t len;
	FILE *said = open_memstream(&text, &len);
	unsigned nr_other = 0, nr_new;
	int ret;

	if (said == NULL) {
		log_warn("SIGHUP: out of memory");
		return;
	}
	ret = read_again(d, &next, said);
	if (ret == 0)
		nr_other = config_compare(d->config, &next, said);
	fclose(said);
	log_lines(text);
	free(text);
	if (ret != 0) {
		log_warn("SIGHUP: the configuration has faults: "
			 "nothing is changed");
		return;
	}
	nr_new = add_all(d, &next);
	config_fini(&next);
	log_info("SIGHUP: the configuration was read again: %u new devices, "
		 "%u differences that need a restart",
	    nr_new, nr_other);
}

static void
on_sighup(struct ev_loop *ev, ev_signal *w, int revents)
{
	struct daemon *d = w->data;

	(void)ev;
	(void)revents;
	if (d->shutting_down)
		return;
	systemd_notify(&d->systemd, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
	    clock_ns() / NSEC_PER_USEC);
	if (config_has_files(d->config))
		reload(d);
	else
		log_info("SIGHUP: no configuration file was given: "
			 "nothing to read again");
	systemd_ready(d);
}

void
reload_watch(struct daemon *d)
{
	ev_signal_init(&d->sighup, on_sighup, SIGHUP);
	d->sighup.data = d;
	ev_signal_start(d->main.ev, &d->sighup);
}
