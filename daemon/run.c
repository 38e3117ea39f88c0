/* SPDX-License-Identifier: MIT */
/*
 * --run: a shell command for whose time we are there.  Its end is ours and its
 * status, too; ours is its end.
 */
#include "daemon.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void
on_ended(struct ev_loop *ev, ev_child *w, int revents)
{
	struct daemon *d = w->data;

	(void)revents;
	ev_child_stop(ev, w);
	/* a signal to us ends it, too: that it was not done must be seen */
	d->exit_status = WIFEXITED(w->rstatus) ? WEXITSTATUS(w->rstatus)
					       : 128 + WTERMSIG(w->rstatus);
	if (d->shutting_down) /* is it all now? */
		ev_async_send(ev, &d->conn_closed);
	else
		shutdown_begin(d);
}

/* nbdkit's variables; $nbd is what qemu understood before there were URIs. */
static void
set_environment(const struct daemon *d)
{
	const struct nbd_export *e = export_default(d);
	bool tls_only = e != NULL && e->tls_only;
	const struct listener *ln = uri_listener(d, tls_only);
	const char *name = e != NULL         ? e->name
			   : d->nr_disks > 0 ? d->disk[0]->name
					     : "";
	bool v6 = ln->family == AF_INET6;
	char text[PLACE_URI];

	uri_make(text, sizeof(text), ln, name, tls_only);
	setenv("uri", text, 1);
	setenv("exportname", name, 1);
	setenv("unixsocket", ln->path, 1);
	snprintf(text, sizeof(text), "%u", ln->port);
	setenv("port", ln->family == AF_UNIX ? "" : text, 1);
	switch (ln->family) {
	case AF_UNIX:
		snprintf(text, sizeof(text), "nbd:unix:%s:exportname=%s",
		    ln->path, name);
		break;
	case AF_VSOCK: text[0] = '\0'; break;
	default:
		snprintf(text, sizeof(text), "nbd:%s%s%s:%u:exportname=%s",
		    v6 ? "[" : "", ln->host, v6 ? "]" : "", ln->port, name);
	}
	setenv("nbd", text, 1);
}

_Noreturn static void
become(const struct daemon *d, const char *command, pid_t parent)
{
	/* whatever ends us, SIGKILL too; or has by now */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(127);
	if (d->command_has_group)
		setpgid(0, 0);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	set_environment(d);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

int
run_start(struct daemon *d, const char *command)
{
	pid_t parent = getpid(), pid;

	/*
	 * A group of its own, so that all that the shell starts can be ended,
	 * but where it may read from a terminal: that is for the terminal's.
	 */
	d->command_has_group = !isatty(STDIN_FILENO);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become(d, command, parent);
	if (d->command_has_group)
		setpgid(pid, pid); /* whoever is first */
	ev_child_init(&d->command, on_ended, pid, 0);
	d->command.data = d;
	ev_child_start(d->main.ev, &d->command);
	return 0;
}

bool
run_lasts(const struct daemon *d)
{
	return ev_is_active(&d->command);
}

void
run_kill(struct daemon *d, int sig)
{
	if (run_lasts(d))
		kill(d->command_has_group ? -d->command.pid : d->command.pid,
		    sig);
}
