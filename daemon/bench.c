/* SPDX-License-Identifier: MIT */
/*
 * One run of a load.  Each has a daemon of its own, begun just before it and
 * ended after it: all runs begin with the same empty devices, counters are of
 * the run alone, and no other daemon polls or holds memory meanwhile.
 */
#include "bench.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"

#define READY_S    60u /* a daemon may have much to fill */
#define TICK_MS    200
#define LOG_MSEC   200u /* between two points of IOPS over time */
#define TAIL_BYTES 2000 /* of a log, when something went wrong */
#define MAX_JOBS   4096u
#define MAX_FIO    (64u << 20) /* bytes of its JSON */
#define MAX_PASSES 1000 /* until all that was killed is gone, 1 ms each */

/* In the environment of all that is started: the path of its log. */
#define MARK "NULLB_COMPARE_LOG"

struct bench bench;
volatile sig_atomic_t bench_stopped;

/* What runs now, and is ended with this; 0: nothing. */
static struct running {
	pid_t daemon;
	pid_t fio;
	pid_t tracer;
} running;

/* Ends all of it, and removes the files, when this process is killed. */
static struct keeper {
	pid_t pid; /* 0: none */
	int fd;    /* a pipe: a byte says that there is nothing to do */
} keeper;

/* ---- files */

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

char *
bench_path(const char *name)
{
	char *path;

	if (asprintf(&path, "%s/%s", bench.dir, name) < 0)
		die("out of memory");
	return path;
}

/* The end of a log, to standard error. */
static void
show_log(const char *name)
{
	char *path = bench_path(name), text[TAIL_BYTES + 1];
	FILE *f = fopen(path, "r");
	size_t len;

	free(path);
	if (f == NULL)
		return;
	if (fseek(f, -TAIL_BYTES, SEEK_END) != 0)
		rewind(f);
	len = fread(text, 1, TAIL_BYTES, f);
	fwrite(text, 1, len, stderr);
	fclose(f);
}

/* ---- processes */

static void
kill_and_wait(pid_t *pid)
{
	if (*pid <= 0)
		return;
	kill(*pid, SIGKILL);
	while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
		;
	*pid = 0;
}

/* Is it one whose mark begins so? */
static bool
is_marked(const char *pid, const char *mark)
{
	char path[64], *entry = NULL;
	bool found = false;
	size_t size = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.16s/environ", pid);
	f = fopen(path, "r");
	if (f == NULL)
		return false;
	while (!found && getdelim(&entry, &size, '\0', f) > 0)
		found = strncmp(entry, mark, strlen(mark)) == 0;
	free(entry);
	fclose(f);
	return found;
}

/* False: there was none. */
static bool
kill_marked(const char *mark)
{
	DIR *all = opendir("/proc");
	const struct dirent *e;
	bool any = false;

	while (all != NULL && (e = readdir(all)) != NULL) {
		if (!isdigit((unsigned char)e->d_name[0]) ||
		    !is_marked(e->d_name, mark))
			continue;
		kill((pid_t)strtol(e->d_name, NULL, 10), SIGKILL);
		any = true;
	}
	if (all != NULL)
		closedir(all);
	return any;
}

/*
 * All that has this log, or with "" any.  fio's jobs lead sessions of their own
 * and outlive it when it is killed: neither a process group nor a parent's
 * death reaches them, but what is in their environment tells whose they are.
 */
static void
end_marked(const char *log)
{
	char mark[sizeof(MARK) + sizeof(bench.dir) + 64];
	unsigned i;

	snprintf(mark, sizeof(mark), MARK "=%s/%s", bench.dir, log);
	for (i = 0; i < MAX_PASSES && kill_marked(mark); i++)
		poll(NULL, 0, 1);
}

static void
end_fio(void)
{
	kill_and_wait(&running.fio);
	end_marked("fio.log");
}

static void
clean_up(void)
{
	end_marked("");
	if (!bench.keeps)
		nftw(bench.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void
at_exit(void)
{
	kill_and_wait(&running.fio);
	kill_and_wait(&running.tracer);
	kill_and_wait(&running.daemon);
	clean_up();
	if (bench.keeps)
		fprintf(stderr, "files: %s\n", bench.dir);
	if (write(keeper.fd, "", 1) == 1)
		waitpid(keeper.pid, NULL, 0);
}

/* For ^C that comes twice, kill -9, and what else leaves at_exit() no time. */
static void
keeper_start(void)
{
	int fd[2], null;
	char byte;

	if (pipe2(fd, O_CLOEXEC) != 0)
		die("pipe: %s", strerror(errno));
	keeper.fd = fd[1];
	keeper.pid = fork();
	if (keeper.pid < 0)
		die("fork: %s", strerror(errno));
	if (keeper.pid > 0) {
		close(fd[0]);
		return;
	}
	setsid();
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, 0); /* nobody is to wait for what it would print */
	dup2(null, 1);
	dup2(null, 2);
	close(fd[1]);
	if (read(fd[0], &byte, 1) == 0)
		clean_up();
	_exit(EXIT_DONE);
}

/*
 * A process with standard output and error in a file of that name, which ends
 * with this one, and in a group of its own, so that ^C does not reach it.
 */
static pid_t
spawn(const char *const *argv, const char *log)
{
	char *path = bench_path(log);
	pid_t parent = getpid(), pid = fork();
	int fd;

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid > 0) {
		free(path);
		return pid;
	}
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_REFUSED);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0 ||
	    setenv(MARK, path, 1) != 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		_exit(EXIT_REFUSED);
	}
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		dup2(fd, 0);
	execvp(argv[0], (char *const *)(uintptr_t)argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static double
seconds_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/*
 * Wait for its end, so long at most (0: for ever); its status, or -1 when it
 * did not end: it was stopped, or that took too long.
 */
static int
wait_for(pid_t *pid, double seconds, void (*tick)(void *, double), void *arg)
{
	double begin = seconds_now(), passed;
	int fd = (int)syscall(SYS_pidfd_open, *pid, 0), status;
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	if (fd < 0)
		die("pidfd_open: %s", strerror(errno));
	for (;;) {
		passed = seconds_now() - begin;
		if (tick != NULL)
			tick(arg, passed);
		if (poll(&pfd, 1, TICK_MS) > 0)
			break;
		if (bench_stopped || (seconds > 0 && passed > seconds)) {
			close(fd);
			return -1;
		}
	}
	close(fd);
	if (waitpid(*pid, &status, 0) < 0)
		die("waitpid: %s", strerror(errno));
	*pid = 0;
	return status;
}

/* ---- the daemon */

/* "exit status 1", "killed by signal 9": of a process that has ended. */
static const char *
how_it_ended(int status)
{
	static char text[64];

	if (WIFEXITED(status))
		snprintf(
		    text, sizeof(text), "exit status %d", WEXITSTATUS(status));
	else
		snprintf(text, sizeof(text), "killed by signal %d",
		    WTERMSIG(status));
	return text;
}

/* If the daemon has ended by itself, that is the end, and this says why. */
static void
check_daemon(const char *conf, const char *what)
{
	int status;

	if (waitpid(running.daemon, &status, WNOHANG) <= 0)
		return;
	running.daemon = 0;
	show_log("nullbd.log");
	die("%s: the daemon %s: %s", conf, what, how_it_ended(status));
}

/* Its control socket accepts; false: it was stopped. */
static bool
wait_until_ready(const char *conf)
{
	double end = seconds_now() + READY_S;

	while (!bench_stopped && !ask_try_connect()) {
		check_daemon(conf, "does not start with it");
		if (seconds_now() > end)
			die("%s: the daemon was not ready in %u s", conf,
			    READY_S);
		poll(NULL, 0, 5);
	}
	return !bench_stopped;
}

static void
daemon_kill(void)
{
	ask_disconnect();
	kill_and_wait(&running.daemon);
}

/*
 * It listens on our sockets alone, without TLS, and is nowhere else to be seen,
 * whatever the configuration says: it may be one that is in use.  False: it was
 * stopped, and does not run.
 */
static bool
daemon_start(const char *conf)
{
	char listen[sizeof(bench.socket) + 16];
	const char *argv[] = { bench.nullbd, "-c", conf, "--listen", listen,
		"--control", bench.control, "--pidfile", "", "--metrics", "",
		"--sysfs", "", NULL };

	snprintf(listen, sizeof(listen), "unix:%s tls=off", bench.socket);
	running.daemon = spawn(argv, "nullbd.log");
	if (wait_until_ready(conf))
		return true;
	daemon_kill();
	return false;
}

static void
daemon_stop(void)
{
	ask_disconnect();
	kill(running.daemon, SIGTERM);
	if (wait_for(&running.daemon, READY_S, NULL, NULL) < 0)
		kill_and_wait(&running.daemon);
}

/* All CPU time that it used so far, in seconds. */
static double
daemon_cpu(void)
{
	struct timespec ts;
	clockid_t clock;

	if (clock_getcpuclockid(running.daemon, &clock) != 0 ||
	    clock_gettime(clock, &ts) != 0)
		die("the daemon's CPU time: %s", strerror(errno));
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* One that is not served there, as tls_only ones are not, is left out. */
static void
keep_device(struct bench_side *s, const char *name)
{
	json_t *answer = ask("uri", name, NULL);
	json_t *place = json_array_get(json_object_get(answer, "places"), 0);

	if (place != NULL && s->nr_devices == BENCH_MAX_DEVICES)
		die("%s: more than %u devices", s->conf, BENCH_MAX_DEVICES);
	if (place != NULL) {
		s->device[s->nr_devices] = strdup(name);
		s->uri[s->nr_devices] = strdup(ask_string(place, "uri"));
		if (s->device[s->nr_devices] == NULL ||
		    s->uri[s->nr_devices] == NULL)
			die("out of memory");
		s->nr_devices++;
	}
	json_decref(answer);
}

void
bench_devices(struct bench_side *s)
{
	json_t *answer, *device;
	size_t i;

	if (!daemon_start(s->conf))
		die("stopped before a run was done");
	answer = ask("list", NULL, NULL);
	json_array_foreach(json_object_get(answer, "devices"), i, device) {
		if (json_is_true(json_object_get(device, "power")))
			keep_device(s, ask_string(device, "name"));
	}
	json_decref(answer);
	daemon_stop();
	if (s->nr_devices == 0)
		die("%s: no device is on, and not tls_only", s->conf);
}

void
bench_side_fini(struct bench_side *s)
{
	size_t i;

	for (i = 0; i < s->nr_devices; i++) {
		free(s->device[i]);
		free(s->uri[i]);
	}
	free(s->job);
}

/* ---- fio */

/* fio puts its warnings before the JSON, even in a file. */
static json_t *
read_json(const char *name)
{
	char *path = bench_path(name), *text = NULL, *begin;
	FILE *f = fopen(path, "r");
	json_error_t why;
	json_t *json = NULL;
	size_t len = 0;

	if (f != NULL)
		text = malloc(MAX_FIO + 1);
	if (text != NULL) {
		len = fread(text, 1, MAX_FIO, f);
		text[len] = '\0';
		begin = strstr(text, "{\n");
		if (begin != NULL)
			json = json_loads(begin, JSON_DISABLE_EOF_CHECK, &why);
	}
	free(text);
	if (f != NULL)
		fclose(f);
	free(path);
	return json;
}

static void
read_logs(struct run *run)
{
	char name[64], *path;
	unsigned i;
	FILE *f;
	int ret = 0;

	for (i = 1; i <= MAX_JOBS && ret == 0; i++) {
		snprintf(name, sizeof(name), "iops_iops.%u.log", i);
		path = bench_path(name);
		f = fopen(path, "r");
		free(path);
		if (f == NULL)
			return;
		ret = fiojson_iops_log(f, LOG_MSEC / 1e3, &run->iops);
		fclose(f);
	}
	if (ret == -ENOMEM)
		die("out of memory");
	if (ret != 0) { /* it is too long, say: no reason to lose the run */
		fprintf(stderr, "fio's log of IOPS: %s: it is not shown\n",
		    strerror(-ret));
		series_fini(&run->iops);
	}
}

/* Of a job that failed, where fio itself had nothing to say. */
static void
show_error(void)
{
	json_t *json = read_json("fio.json");
	struct figures f = {};
	struct run run = {};
	char *error = NULL;

	if (json != NULL && fiojson_read(json, &f, &run, &error) == -EINVAL)
		fprintf(stderr, "%s\n", error);
	free(error);
	run_fini(&run);
	figures_fini(&f);
	json_decref(json);
}

__attribute__((noreturn)) static void
fio_failed(const struct bench_side *s, int status)
{
	check_daemon(s->conf, "has ended in the middle of a run");
	show_log("fio.log");
	show_error();
	die("fio failed with %s: %s", s->conf, how_it_ended(status));
}

/* 0, or -1: it was stopped; what fio complains of is the end. */
static int
run_fio(const struct bench_side *s, double seconds,
    void (*tick)(void *, double), void *arg)
{
	char *out = bench_path("fio.json"), *log = bench_path("iops"), *o, *l;
	const char *argv[] = { "fio", "--output-format=json+", NULL, NULL, NULL,
		s->job, NULL };
	char msec[32];
	int status;

	if (asprintf(&o, "--output=%s", out) < 0 ||
	    asprintf(&l, "--write_iops_log=%s", log) < 0)
		die("out of memory");
	snprintf(msec, sizeof(msec), "--log_avg_msec=%u", LOG_MSEC);
	argv[2] = o;
	argv[3] = l;
	argv[4] = msec;
	running.fio = spawn(argv, "fio.log");
	free(o);
	free(l);
	free(out);
	free(log);
	status = wait_for(&running.fio, seconds, tick, arg);
	if (status < 0) {
		end_fio();
		return -1;
	}
	if (status != 0)
		fio_failed(s, status);
	return 0;
}

char *
bench_fio_version(void)
{
	static const char *const argv[] = { "fio", "--version", NULL };
	char *path, line[64] = "";
	FILE *f;
	int status;

	running.fio = spawn(argv, "version.log");
	status = wait_for(&running.fio, 10, NULL, NULL);
	path = bench_path("version.log");
	f = fopen(path, "r");
	free(path);
	if (status != 0 || f == NULL || fgets(line, sizeof(line), f) == NULL)
		die("fio cannot be run");
	fclose(f);
	line[strcspn(line, "\n")] = '\0';
	return strdup(line);
}

/* ---- a run */

/* What the daemon says of each device. */
static json_t *
ask_devices(const struct bench_side *s)
{
	json_t *all = json_array(), *one;
	size_t i;

	for (i = 0; i < s->nr_devices; i++) {
		one = json_object();
		if (json_object_set_new(
			one, "stat", ask("stat", s->device[i], NULL)) != 0 ||
		    json_object_set_new(one, "segments",
			ask("segments", s->device[i], NULL)) != 0 ||
		    json_array_append_new(all, one) != 0)
			die("out of memory");
	}
	return all;
}

static void
add(struct figures *f, const struct run *run, const char *name,
    const char *unit, double value)
{
	if (figures_add(f, run->side, name, unit, BETTER_LOWER, false, value) !=
	    0)
		die("out of memory");
}

bool
bench_run(const struct bench_side *s, struct figures *f, struct run *run,
    void (*tick)(void *, double), void *arg)
{
	double cpu, begin, seconds;
	json_t *json, *devices;
	char *error;
	int ret;

	if (!daemon_start(s->conf))
		return false;
	cpu = daemon_cpu();
	begin = seconds_now();
	if (run_fio(s, 0, tick, arg) != 0) {
		daemon_kill();
		return false;
	}
	seconds = seconds_now() - begin;
	cpu = daemon_cpu() - cpu;
	devices = ask_devices(s);
	daemon_stop();

	json = read_json("fio.json");
	if (json == NULL) {
		show_log("fio.log");
		die("fio has printed no JSON, or no room is left in %s",
		    bench.dir);
	}
	ret = fiojson_read(json, f, run, &error);
	if (ret == -EINVAL)
		die("%s", error);
	if (ret == 0)
		ret = devstat_read(devices, f, run);
	if (ret != 0)
		die("out of memory");
	add(f, run, "nullbd.cpu", "%", 100 * cpu / seconds);
	add(f, run, "nullbd.cpu_per_io", "us", 1e6 * cpu / run->ios);
	read_logs(run);
	json_decref(json);
	json_decref(devices);
	return true;
}

/* ---- a trace */

struct heat *
bench_trace(const struct bench_side *s, const char *device, unsigned seconds)
{
	char *path = bench_path("trace"), length[16];
	const char *argv[] = { bench.nullbctl, "--control", bench.control,
		"trace", "-o", path, "-w", length, device, NULL };
	struct heat *h = NULL;
	int status;

	snprintf(length, sizeof(length), "%u", seconds);
	if (!daemon_start(s->conf)) {
		free(path);
		return NULL;
	}
	running.tracer = spawn(argv, "trace.log");
	run_fio(s, seconds + .5, NULL, NULL); /* it may well take longer */
	kill(running.tracer, SIGINT);         /* or it was done before */
	status = wait_for(&running.tracer, 5, NULL, NULL);
	kill_and_wait(&running.tracer);
	if (bench_stopped) {
		daemon_kill();
		free(path);
		return NULL;
	}
	daemon_stop();
	if (status == 0)
		h = heat_read(path);
	else
		show_log("trace.log");
	free(path);
	return h;
}

/* ---- where things are */

/* Beside this one, wherever the shell has found it. */
static void
find_program(char *out, size_t len, const char *variable,
    const char *const *places, const char *name)
{
	const char *set = getenv(variable), *slash;
	char self[4000];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (set != NULL && *set != '\0') {
		snprintf(out, len, "%s", set);
		return;
	}
	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	for (; slash != NULL && *places != NULL; places++) {
		snprintf(out, len, "%.*s/%s%s", (int)(slash - self), self,
		    *places, name);
		if (access(out, X_OK) == 0)
			return;
	}
	snprintf(out, len, "%s", name); /* $PATH has it */
}

static void
on_signal(int signum)
{
	bench_stopped = signum;
}

void
bench_init(void)
{
	static const char *const places[] = { "", "../sbin/", NULL };
	struct sigaction sa = { .sa_handler = on_signal,
		.sa_flags = (int)SA_RESETHAND };
	const char *tmp = getenv("TMPDIR");

	if (tmp == NULL || *tmp == '\0')
		tmp = "/tmp";
	find_program(
	    bench.nullbd, sizeof(bench.nullbd), "NULLBD", places, "nullbd");
	find_program(bench.nullbctl, sizeof(bench.nullbctl), "NULLBCTL", places,
	    "nullbctl");
	if (snprintf(bench.dir, sizeof(bench.dir), "%s/nullb-compare-XXXXXX",
		tmp) >= (int)sizeof(bench.dir))
		die("$TMPDIR: \"%s\": a socket there would have too long a "
		    "path",
		    tmp);
	if (mkdtemp(bench.dir) == NULL) {
		fprintf(stderr, "%s: %s\n", bench.dir, strerror(errno));
		bench.dir[0] = '\0';
		exit(EXIT_REFUSED);
	}
	keeper_start();
	atexit(at_exit);
	snprintf(bench.socket, sizeof(bench.socket), "%s/sock", bench.dir);
	snprintf(bench.control, sizeof(bench.control), "%s/ctl", bench.dir);
	asking.control = bench.control;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	if (signal(SIGHUP, SIG_DFL) != SIG_IGN)
		sigaction(SIGHUP, &sa, NULL);
	else
		signal(SIGHUP, SIG_IGN); /* nohup(1) */
	signal(SIGPIPE, SIG_IGN);
}
