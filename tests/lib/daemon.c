/* SPDX-License-Identifier: MIT */
/*
 * A daemon for a test: started in a directory of its own, asked how it is
 * through /proc, and stopped by its pid.  Only what was started here is ever
 * signalled; should the test itself die, the kernel ends the daemon.
 */
#include "wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ARGS  64
#define LOG_LINES 40 /* of a log that are shown */
#define READY_MS  15000

static struct daemon *daemons;

const char *
nullbd_path(void)
{
	const char *path = getenv("NULLBD");

	return path && *path ? path : "build/nullbd";
}

/* What a failed tear-down has left.  Forked clients do not come here: they
 * end with _exit() or abort(). */
static void
free_all(void)
{
	while (daemons)
		daemon_free(daemons);
}

struct daemon *
daemon_new(void)
{
	static bool registered;
	struct daemon *d = calloc(1, sizeof(*d));
	const char *tmp = getenv("TMPDIR");

	if (!registered)
		registered = !atexit(free_all);

	if (!d)
		abort();
	if (!tmp || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(d->dir, sizeof(d->dir), "%s/nullb-wire-XXXXXX", tmp);
	if (!mkdtemp(d->dir))
		fail_msg("mkdtemp %s: %s", d->dir, strerror(errno));
	snprintf(d->sock, sizeof(d->sock), "%s/sock", d->dir);
	snprintf(d->control, sizeof(d->control), "%s/control", d->dir);
	snprintf(d->log, sizeof(d->log), "%s/log", d->dir);
	d->next = daemons;
	daemons = d;
	return d;
}

void
daemon_exec(struct daemon *d, const char *const args[])
{
	const char *argv[MAX_ARGS];
	pid_t parent = getpid();
	int n = 0;

	argv[n++] = nullbd_path();
	for (int i = 0; args[i] && n < MAX_ARGS - 1; i++)
		argv[n++] = args[i];
	argv[n] = NULL;

	fflush(NULL);
	d->status = 0;
	d->pid = fork();
	if (d->pid < 0)
		fail_msg("fork: %s", strerror(errno));
	if (d->pid > 0)
		return;

	int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	int null = open("/dev/null", O_RDONLY);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	signal(SIGPIPE, SIG_DFL);
	dup2(null, 0);
	dup2(log, 1);
	dup2(log, 2);
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	if (d->before)
		d->before(d);
	execv(argv[0], (char *const *)(uintptr_t)argv);
	dprintf(2, "cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

bool
daemon_alive(struct daemon *d)
{
	if (d->pid && waitpid(d->pid, &d->status, WNOHANG) == d->pid)
		d->pid = 0;
	return d->pid != 0;
}

static void
show_log(struct daemon *d)
{
	char line[512];
	FILE *f = fopen(d->log, "r");
	int lines = 0;

	if (!f) {
		print_error("  (no log)\n");
		return;
	}
	while (fgets(line, sizeof(line), f))
		lines++;
	rewind(f);
	for (int i = 0; fgets(line, sizeof(line), f); i++)
		if (i >= lines - LOG_LINES)
			print_error(
			    "  | %s%s", line, strchr(line, '\n') ? "" : "\n");
	fclose(f);
}

void
daemon_explain(void)
{
	for (struct daemon *d = daemons; d; d = d->next) {
		int pid = (int)d->pid;

		if (daemon_alive(d))
			print_error("daemon %d is alive; its log:\n", pid);
		else if (WIFSIGNALED(d->status))
			print_error("DAEMON %d DIED of signal %d (%s); log:\n",
			    pid, WTERMSIG(d->status),
			    strsignal(WTERMSIG(d->status)));
		else
			print_error("daemon %d ended with status %d; log:\n",
			    pid, WEXITSTATUS(d->status));
		show_log(d);
	}
}

void
daemon_assert_alive(struct daemon *d)
{
	if (!daemon_alive(d))
		wire_fail("the daemon has died");
}

void
daemon_ready(struct daemon *d, const char *sock)
{
	uint64_t end = now_ns() + READY_MS * 1000000ULL;

	while (!wire_can_connect(sock)) {
		if (!daemon_alive(d))
			wire_fail("the daemon ended before it served %s", sock);
		if (now_ns() > end)
			wire_fail("the daemon does not serve %s", sock);
		sleep_ms(2);
	}
}

const char *
daemon_config(struct daemon *d, const char *text)
{
	static char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/conf", d->dir);
	f = fopen(path, "w");
	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	fputs(text, f);
	fclose(f);
	return path;
}

struct daemon *
daemon_start(const char *arg, ...)
{
	struct daemon *d = daemon_new();
	const char *args[MAX_ARGS];
	va_list ap;
	int n = 0;

	args[n++] = "-U";
	args[n++] = d->sock;
	args[n++] = "--control";
	args[n++] = d->control;
	va_start(ap, arg);
	for (; arg && n < MAX_ARGS - 1; arg = va_arg(ap, const char *))
		args[n++] = arg;
	va_end(ap);
	args[n] = NULL;
	daemon_exec(d, args);
	daemon_ready(d, d->sock); /* which is made after the other */
	return d;
}

int
daemon_wait(struct daemon *d, int timeout_ms)
{
	uint64_t end = now_ns() + (uint64_t)timeout_ms * 1000000;

	while (daemon_alive(d)) {
		if (now_ns() > end)
			wire_fail(
			    "the daemon did not end in %d ms", timeout_ms);
		sleep_ms(1);
	}
	return WIFSIGNALED(d->status) ? -WTERMSIG(d->status)
				      : WEXITSTATUS(d->status);
}

int
daemon_ended(struct daemon *d)
{
	uint64_t start = now_ns();
	int status = daemon_wait(d, DAEMON_STOP_MS);
	int ms = (int)((now_ns() - start) / 1000000);

	if (status)
		wire_fail("the daemon exits with %d, not 0", status);
	if (daemon_log_has(d, "runtime error:"))
		wire_fail("UBSan has something to say");
	if (getenv("PLUGIN")) /* nbdkit lets it lie */
		unlink(d->sock);
	if (!access(d->sock, F_OK) || !access(d->control, F_OK))
		wire_fail("the daemon has left its socket behind");
	daemon_free(d);
	return ms;
}

int
daemon_stop(struct daemon *d)
{
	if (!daemon_alive(d))
		wire_fail("the daemon has died before it was stopped");
	kill(d->pid, SIGTERM);
	return daemon_ended(d);
}

void
daemon_kill(struct daemon *d)
{
	if (!daemon_alive(d))
		return;
	kill(d->pid, SIGKILL);
	waitpid(d->pid, &d->status, 0);
	d->pid = 0;
}

void
daemon_free(struct daemon *d)
{
	struct daemon **link = &daemons;
	char path[PATH_MAX];
	struct dirent *e;
	DIR *dir;

	daemon_kill(d);
	dir = opendir(d->dir);
	while (dir && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", d->dir, e->d_name);
		unlink(path);
	}
	if (dir)
		closedir(dir);
	rmdir(d->dir);
	while (*link && *link != d)
		link = &(*link)->next;
	if (*link)
		*link = d->next;
	free(d);
}

/* After each test: its own daemons go, the group's must still be there. */
int
wire_teardown(void **state)
{
	struct daemon *next;
	int result = 0;

	(void)state;
	wire_close(NULL);
	for (struct daemon *d = daemons; d; d = next) {
		next = d->next;
		if (!d->shared) {
			daemon_free(d);
		} else if (!daemon_alive(d)) {
			daemon_explain();
			result = -1;
		}
	}
	return result;
}

unsigned
daemon_fds(struct daemon *d)
{
	char path[64];
	unsigned n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)d->pid);
	dir = opendir(path);
	if (!dir)
		wire_fail("%s: %s", path, strerror(errno));
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}

void
daemon_settle(struct daemon *d, unsigned fds)
{
	uint64_t end = now_ns() + 5000 * 1000000ULL;
	unsigned n;

	while ((n = daemon_fds(d)) > fds) {
		if (now_ns() > end)
			wire_fail(
			    "the daemon has %u files open, had %u", n, fds);
		sleep_ms(2);
	}
}

uint64_t
daemon_rss(struct daemon *d)
{
	unsigned long long size, rss = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)d->pid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%llu %llu", &size, &rss) != 2)
		wire_fail("%s cannot be read", path);
	fclose(f);
	return rss * (uint64_t)sysconf(_SC_PAGESIZE);
}

double
daemon_cpu(struct daemon *d)
{
	unsigned long user = 0, system = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)d->pid);
	f = fopen(path, "r");
	if (!f || fscanf(f,
		      "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u "
		      "%*u %*u %lu %lu",
		      &user, &system) != 2)
		wire_fail("%s cannot be read", path);
	fclose(f);
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

bool
daemon_sanitized(struct daemon *d)
{
	char path[64], line[512];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)d->pid);
	f = fopen(path, "r");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "libasan") || strstr(line, "libtsan") ||
			strstr(line, "valgrind");
	if (f)
		fclose(f);
	return found;
}

long
daemon_log_size(struct daemon *d)
{
	struct stat st;

	return stat(d->log, &st) ? 0 : (long)st.st_size;
}

bool
daemon_log_has(struct daemon *d, const char *text)
{
	char line[4096];
	bool found = false;
	FILE *f = fopen(d->log, "r");

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return found;
}

bool
daemon_ask(struct daemon *d, const char *request, char *answer, size_t max)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t len = strlen(request), n = 0;
	bool whole = false;
	char c;

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", d->control);
	if (fd < 0)
		wire_fail("socket: %s", strerror(errno));
	if (!connect(fd, (void *)&sa, sizeof(sa)) &&
	    send(fd, request, len, MSG_NOSIGNAL) == (ssize_t)len &&
	    send(fd, "\n", 1, MSG_NOSIGNAL) == 1) {
		FILE *f = fdopen(fd, "r");

		while (f && !whole && fread(&c, 1, 1, f) == 1) {
			whole = c == '\n';
			if (!whole && n < max - 1)
				answer[n++] = c;
		}
		if (f)
			fclose(f);
	} else {
		close(fd);
	}
	answer[n] = 0;
	return whole;
}

bool
daemon_set(struct daemon *d, const char *name, const char *attribute,
    const char *value)
{
	char request[512], answer[512];

	snprintf(request, sizeof(request),
	    "{\"command\":\"set\",\"name\":\"%s\",\"attribute\":\"%s\","
	    "\"value\":\"%s\"}",
	    name, attribute, value);
	return daemon_ask(d, request, answer, sizeof(answer)) &&
	       strstr(answer, "\"ok\":true");
}

unsigned
daemon_stats(struct daemon *d, const char *name, long long fields[STAT_FIELDS])
{
	char request[128], answer[1024], *text, *end;
	unsigned n = 0;

	snprintf(request, sizeof(request),
	    "{\"command\":\"stat\",\"name\":\"%s\"}", name);
	if (!daemon_ask(d, request, answer, sizeof(answer)))
		return 0;
	text = strstr(answer, "\"stat\":\"");
	if (!text)
		return 0;
	text += strlen("\"stat\":\"");
	while (n < STAT_FIELDS) {
		fields[n] = strtoll(text, &end, 10);
		if (end == text)
			break;
		text = end;
		n++;
	}
	return n;
}

long long
daemon_stat(struct daemon *d, const char *name, int field)
{
	long long fields[STAT_FIELDS];

	if (daemon_stats(d, name, fields) < (unsigned)field)
		return -1;
	return fields[field - 1];
}
