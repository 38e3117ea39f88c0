/* SPDX-License-Identifier: MIT */
/*
 * The end of the daemon (N162): what is in flight is finished or answered,
 * within a stated time; a second signal does not wait for it.
 */
#include "daemon.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* Nothing happens any more, or nobody waits for it. */
void
shutdown_traces(struct daemon *d)
{
	tracer_end_files(d);
	ctlconn_end_traces(d);
}

/* Threads may be anywhere: no tidying up, but of what others would see. */
_Noreturn static void
end_now(struct daemon *d, int status)
{
	run_kill(d, SIGKILL);
	if (d->has_pidfile)
		pidfile_remove(d->conf.pidfile);
	_exit(status);
}

static void
on_too_late(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct daemon *d = w->data;

	(void)ev;
	(void)revents;
	if (atomic_load(&d->nr_conns) > 0)
		log_warn("%u connections did not end in %g s: dropped",
		    atomic_load(&d->nr_conns), SHUTDOWN_SEC);
	if (run_lasts(d))
		log_warn("the command of --run did not end in %g s: killed",
		    SHUTDOWN_SEC);
	shutdown_traces(d);
	fflush(NULL);
	end_now(d, d->exit_status);
}

static void
on_grace_over(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct daemon *d = w->data;
	struct conn *c;
	unsigned i;

	(void)ev;
	(void)revents;
	TAILQ_FOREACH(c, &d->main.conns, link) /* half an option is nothing */
		conn_abort(c, clock_ns());
	for (i = 0; i < d->nr_workers; i++)
		loop_tell(&d->worker[i], LOOP_EXPIRE);
}

void
shutdown_begin(struct daemon *d)
{
	struct conn *c;
	unsigned i;

	if (d->shutting_down)
		return;
	d->shutting_down = true;
	systemd_notify(&d->systemd, "STOPPING=1\nSTATUS=shutting down");
	listen_close_all(d);
	watch_shutdown(d);
	ctlconn_close_all(d);
	sysfs_stop(d);
	http_free(d->http);
	d->http = NULL;
	ev_timer_stop(d->main.ev, &d->depart); /* all go, at this one's pace */
	TAILQ_FOREACH(c, &d->main.conns, link)
		conn_shutdown(c);
	for (i = 0; i < d->nr_disks; i++)
		disk_hurry(d->disk[i], clock_ns());
	for (i = 0; i < d->nr_workers; i++)
		loop_tell(&d->worker[i], LOOP_SHUTDOWN);
	ev_timer_init(&d->grace, on_grace_over, GRACE_SEC, 0.);
	d->grace.data = d;
	ev_timer_start(d->main.ev, &d->grace);
	ev_timer_init(&d->too_late, on_too_late, SHUTDOWN_SEC, 0.);
	d->too_late.data = d;
	ev_timer_start(d->main.ev, &d->too_late);
	ev_async_send(d->main.ev, &d->conn_closed);
}

/*
 * timeout(1) signals its child, and then the child's group: that is one signal,
 * not somebody's second thought.
 */
static bool
is_same_signal(const struct daemon *d)
{
	return clock_ns() - d->signalled_ns < SAME_SIGNAL_NS;
}

static void
on_signal(struct ev_loop *ev, ev_signal *w, int revents)
{
	struct daemon *d = w->data;

	(void)ev;
	(void)revents;
	if (d->shutting_down && is_same_signal(d))
		return;
	if (d->shutting_down) {
		log_warn("a second signal: ends at once");
		end_now(d, EXIT_FAULT);
	}
	log_info("%s: shutting down", strsignal(w->signum));
	run_kill(d, SIGTERM);
	shutdown_begin(d);
	d->signalled_ns = clock_ns();
}

static void
on_conn_closed(struct ev_loop *ev, ev_async *w, int revents)
{
	struct daemon *d = w->data;

	(void)ev;
	(void)revents;
	if (!d->shutting_down)
		listen_resume(d);
	else if (atomic_load(&d->nr_conns) == 0 && !run_lasts(d))
		loop_tell(&d->main, LOOP_STOP);
}

void
daemon_conn_closed(struct daemon *d)
{
	atomic_fetch_sub(&d->nr_conns, 1);
	if (atomic_load(&d->accept_paused) || atomic_load(&d->shutting_down))
		ev_async_send(d->main.ev, &d->conn_closed);
}

void
shutdown_watch(struct daemon *d)
{
	ev_signal_init(&d->sigterm, on_signal, SIGTERM);
	ev_signal_init(&d->sigint, on_signal, SIGINT);
	d->sigterm.data = d->sigint.data = d;
	ev_signal_start(d->main.ev, &d->sigterm);
	ev_signal_start(d->main.ev, &d->sigint);
	ev_async_init(&d->conn_closed, on_conn_closed);
	d->conn_closed.data = d;
	ev_async_start(d->main.ev, &d->conn_closed);
}
