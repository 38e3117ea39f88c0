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

struct bench bench;
volatile sig_atomic_t bench_stopped;

/* What runs now, and is ended with this; 0: nothing. */
static struct running {
	pid_t daemon;
	pid_t fio; /* and a process group */
	pid_t tracer;
} running;

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

/* Ends it at once, and what it has started, when it leads a group. */
static void
kill_and_wait(pid_t *pid, bool group)
{
	if (*pid <= 0)
		return;
	kill(group ? -*pid : *pid, SIGKILL);
	while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
		;
	*pid = 0;
}

static void
end_all(void)
{
	kill_and_wait(&running.fio, true);
	kill_and_wait(&running.tracer, false);
	kill_and_wait(&running.daemon, false);
}

static void
at_exit(void)
{
	end_all();
	if (bench.dir[0] == '\0')
		return;
	if (bench.keeps)
		fprintf(stderr, "files: %s\n", bench.dir);
	else
		nftw(bench.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
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
		setpgid(pid, pid); /* here too: it may be killed at once */
		free(path);
		return pid;
	}
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_REFUSED);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		_exit(EXIT_REFUSED);
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

/* Its control socket accepts; or it has ended, and why. */
static void
wait_until_ready(const char *conf)
{
	double end = seconds_now() + READY_S;

	while (!ask_try_connect()) {
		if (waitpid(running.daemon, NULL, WNOHANG) > 0) {
			running.daemon = 0;
			show_log("nullbd.log");
			die("%s: the daemon does not start with it", conf);
		}
		if (bench_stopped)
			exit(EXIT_REFUSED);
		if (seconds_now() > end)
			die("%s: the daemon was not ready in %u s", conf,
			    READY_S);
		poll(NULL, 0, 5);
	}
}

static void
daemon_start(const char *conf)
{
	const char *argv[] = { bench.nullbd, "-c", conf, "-U", bench.socket,
		"--control", bench.control, "--pidfile", "", NULL };

	running.daemon = spawn(argv, "nullbd.log");
	wait_until_ready(conf);
}

static void
daemon_stop(void)
{
	ask_disconnect();
	kill(running.daemon, SIGTERM);
	if (wait_for(&running.daemon, READY_S, NULL, NULL) < 0)
		kill_and_wait(&running.daemon, false);
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

static void
keep_uri(struct bench_side *s, const char *name)
{
	if (s->nr_devices == BENCH_MAX_DEVICES)
		die("%s: more than %u devices", s->conf, BENCH_MAX_DEVICES);
	s->device[s->nr_devices] = strdup(name);
	if (s->device[s->nr_devices] == NULL ||
	    asprintf(&s->uri[s->nr_devices], "nbd+unix:///%s?socket=%s", name,
		bench.socket) < 0)
		die("out of memory");
	s->nr_devices++;
}

void
bench_devices(struct bench_side *s)
{
	json_t *answer, *device;
	size_t i;

	daemon_start(s->conf);
	answer = ask("list", NULL, NULL);
	json_array_foreach(json_object_get(answer, "devices"), i, device) {
		if (json_is_true(json_object_get(device, "power")))
			keep_uri(s, ask_string(device, "name"));
	}
	json_decref(answer);
	daemon_stop();
	if (s->nr_devices == 0)
		die("%s: no device is on", s->conf);
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
	if (ret != 0)
		die("fio's log of IOPS: %s", strerror(-ret));
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
		kill_and_wait(&running.fio, true);
		return -1;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		show_log("fio.log");
		show_log("fio.json");
		die("fio failed with %s: exit status %d", s->conf,
		    WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	}
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

	daemon_start(s->conf);
	cpu = daemon_cpu();
	begin = seconds_now();
	if (run_fio(s, 0, tick, arg) != 0) {
		kill_and_wait(&running.daemon, false);
		ask_disconnect();
		return false;
	}
	seconds = seconds_now() - begin;
	cpu = daemon_cpu() - cpu;
	devices = ask_devices(s);
	daemon_stop();

	json = read_json("fio.json");
	if (json == NULL) {
		show_log("fio.log");
		die("fio has printed no JSON");
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
	daemon_start(s->conf);
	running.tracer = spawn(argv, "trace.log");
	run_fio(s, seconds + .5, NULL, NULL); /* it may well take longer */
	kill(running.tracer, SIGINT);         /* or it was done before */
	status = wait_for(&running.tracer, 5, NULL, NULL);
	kill_and_wait(&running.tracer, false);
	if (bench_stopped) {
		end_all();
		ask_disconnect();
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

static void
find_program(char *out, size_t len, const char *variable, const char *argv0,
    const char *const *places, const char *name)
{
	const char *slash = strrchr(argv0, '/');
	const char *set = getenv(variable);
	int dir = slash != NULL ? (int)(slash - argv0) + 1 : 0;

	if (set != NULL && *set != '\0') {
		snprintf(out, len, "%s", set);
		return;
	}
	for (; *places != NULL && dir > 0; places++) {
		snprintf(out, len, "%.*s%s%s", dir, argv0, *places, name);
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
bench_init(const char *argv0)
{
	static const char *const places[] = { "", "../sbin/", NULL };
	struct sigaction sa = { .sa_handler = on_signal,
		.sa_flags = (int)SA_RESETHAND };
	const char *tmp = getenv("TMPDIR");

	find_program(bench.nullbd, sizeof(bench.nullbd), "NULLBD", argv0,
	    places, "nullbd");
	find_program(bench.nullbctl, sizeof(bench.nullbctl), "NULLBCTL", argv0,
	    places, "nullbctl");
	if (snprintf(bench.dir, sizeof(bench.dir), "%s/nullb-compare-XXXXXX",
		tmp != NULL ? tmp : "/tmp") >= (int)sizeof(bench.dir))
		die("$TMPDIR: \"%s\": a socket there would have too long a "
		    "path",
		    tmp);
	if (mkdtemp(bench.dir) == NULL) {
		fprintf(stderr, "%s: %s\n", bench.dir, strerror(errno));
		bench.dir[0] = '\0';
		exit(EXIT_REFUSED);
	}
	atexit(at_exit);
	snprintf(bench.socket, sizeof(bench.socket), "%s/sock", bench.dir);
	snprintf(bench.control, sizeof(bench.control), "%s/ctl", bench.dir);
	asking.control = bench.control;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}
