/* SPDX-License-Identifier: MIT */
/*
 * nullbd: simulated block devices over NBD.  Options, disks, exports; start
 * and stop.  The rest of the daemon is loops (loop.c).
 */
#include "daemon.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define MAX_ERROR       512
#define DEVICES_PRINTED 4u /* the first few get ready-to-paste lines */

enum exit_status {
	EXIT_OK = 0,
	EXIT_FAULT = 1,
	EXIT_USAGE = 2
};

/* What the command line asks for besides the configuration. */
struct options {
	const char *run; /* --run COMMAND */
	bool any_port;   /* --port 0 */
	bool check;
	bool verbose;
};

/* --------------------------------------------------------------- options */

enum {
	OPT_CONTROL = 256,
	OPT_WORKERS,
	OPT_RUN,
	OPT_CHECK,
	OPT_MODPROBE,
	OPT_MAN_DEVICES,
	OPT_MAN_DAEMON
};

static const struct option long_options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "unix", required_argument, NULL, 'U' },
	{ "port", required_argument, NULL, 'p' },
	{ "address", required_argument, NULL, 'a' },
	{ "control", required_argument, NULL, OPT_CONTROL },
	{ "workers", required_argument, NULL, OPT_WORKERS },
	{ "run", required_argument, NULL, OPT_RUN },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "modprobe", required_argument, NULL, OPT_MODPROBE },
	{ "man-devices", no_argument, NULL, OPT_MAN_DEVICES },
	{ "man-daemon", no_argument, NULL, OPT_MAN_DAEMON },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{},
};

static void
help(void)
{
	puts(
	    "nullbd: simulated block devices over NBD\n"
	    "\n"
	    "usage: nullbd [OPTION]... [DEVICE]...\n"
	    "\n"
	    "DEVICE is NAME[:attribute=value[,attribute=value]...], such as\n"
	    "  nullb0:size=4G,memory_backed=1,irqmode=2,completion_nsec=80us\n"
	    "With none, nullbd is `modprobe null_blk`: nullb0, 250 GiB.\n"
	    "\n"
	    "  -c, --config FILE    read a configuration file, nullbd.conf(5)\n"
	    "      --modprobe FILE  take the `options null_blk` lines of FILE\n"
	    "  -U, --unix PATH      listen on a UNIX socket\n"
	    "  -p, --port PORT      listen on TCP; 0 takes any free port\n"
	    "  -a, --address HOST   ... on this address (127.0.0.1)\n"
	    "      --control PATH   listen for nullbctl(1) on a UNIX socket\n"
	    "      --workers N      loops, which play CPUs; 0: one a core\n"
	    "      --run COMMAND    run a shell command with $uri, "
	    "$unixsocket\n"
	    "                       and $port set; end with it\n"
	    "      --check          print the effective configuration\n"
	    "  -v, --verbose        log details\n"
	    "  -h, --help           print this\n"
	    "  -V, --version        print the version\n"
	    "\n"
	    "Attributes of a device:\n");
	attr_usage(disk_attrs, stdout);
}

static void
check(int err, const char *text)
{
	if (err == 0)
		return;
	fprintf(stderr, "nullbd: %s\n", text);
	exit(EXIT_USAGE);
}

static void
set(struct config *c, const char *name, const char *value)
{
	char err[MAX_ERROR] = "";

	check(config_set(c, name, value, err, sizeof(err)), err);
}

/* Port 0 in a configuration is none; on the command line any free one. */
static void
set_any_port(struct config *c)
{
	const char *host = c->daemon.address;
	bool v6 = host != NULL && strchr(host, ':') != NULL;
	char value[300];

	snprintf(value, sizeof(value), "%s%s%s:0", v6 ? "[" : "",
	    host != NULL ? host : "", v6 ? "]" : "");
	set(c, "listen", value);
}

static void
set_unix(struct config *c, const char *path)
{
	char value[DAEMON_MAX_PATH + 16];

	if (strlen(path) > DAEMON_MAX_PATH) {
		fprintf(stderr,
		    "nullbd: --unix: '%s' is longer than %d bytes\n", path,
		    DAEMON_MAX_PATH);
		exit(EXIT_USAGE);
	}
	snprintf(value, sizeof(value), "unix:%s", path);
	set(c, "listen", value);
}

static void
parse_options(struct config *c, struct options *o, int argc, char **argv)
{
	char err[MAX_ERROR] = "";
	int opt;

	while ((opt = getopt_long(
		    argc, argv, "c:U:p:a:vhV", long_options, NULL)) != -1) {
		switch (opt) {
		case 'c':
			if (config_ini(c, optarg, stderr) != 0)
				exit(EXIT_USAGE);
			break;
		case OPT_MODPROBE:
			if (config_modprobe(c, optarg, stderr) != 0)
				exit(EXIT_USAGE);
			break;
		case 'U': set_unix(c, optarg); break;
		case 'p':
			o->any_port = strcmp(optarg, "0") == 0;
			if (!o->any_port)
				set(c, "port", optarg);
			break;
		case 'a': set(c, "address", optarg); break;
		case OPT_CONTROL: set(c, "control", optarg); break;
		case OPT_WORKERS: set(c, "workers", optarg); break;
		case OPT_RUN: o->run = optarg; break;
		case OPT_CHECK: o->check = true; break;
		case OPT_MAN_DEVICES:
			attr_man(disk_attrs, stdout);
			exit(EXIT_OK);
		case OPT_MAN_DAEMON:
			attr_man(daemon_attrs, stdout);
			exit(EXIT_OK);
		case 'v': o->verbose = true; break;
		case 'h': help(); exit(EXIT_OK);
		case 'V': puts("nullbd " NULLBD_VERSION); exit(EXIT_OK);
		default: fputs("Try nullbd --help\n", stderr); exit(EXIT_USAGE);
		}
	}
	if (o->any_port)
		set_any_port(c);
	for (; optind < argc; optind++)
		check(config_spec(c, argv[optind], err, sizeof(err)), err);
}

/* ------------------------------------------------------- disks and exports */

/* The number that follows `key` at the start of a line of a file. */
static bool
number_in(const char *path, const char *key, uint64_t *out)
{
	FILE *f = fopen(path, "r");
	bool found = false;
	char line[128], *end;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		*out = strtoull(line + strlen(key), &end, 10);
		found = end != line + strlen(key); /* "max" is none */
	}
	if (f != NULL)
		fclose(f);
	return found;
}

/*
 * What stores may take when nothing is said: what is free now, less an eighth
 * of the machine, so that a full device is ENOSPC and no work for the OOM
 * killer.
 */
static uint64_t
memory_limit(const struct daemon_conf *conf)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
	uint64_t avail = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
	uint64_t max, used, rest, kib;

	if (conf->memory_limit != MEMORY_LIMIT_AUTO)
		return conf->memory_limit;
	if (number_in("/proc/meminfo", "MemAvailable:", &kib))
		avail = kib * 1024;
	/* in a container the machine's memory is not all ours */
	if (number_in("/sys/fs/cgroup/memory.max", "", &max) && max < total) {
		if (!number_in("/sys/fs/cgroup/memory.current", "", &used))
			used = 0;
		total = max;
		rest = used < max ? max - used : 0;
		if (rest < avail)
			avail = rest;
	}
	return avail > total / 4 ? avail - total / 8 : avail / 2;
}

/*
 * base:allocation: what the store holds, by the block.  A disk without memory
 * holds nothing: all that was written there reads as zeros.
 */
static uint32_t
allocation(const struct nbd_export *e, struct cpu *cpu, uint64_t pos,
    uint64_t *len, unsigned *steps)
{
	struct disk *d = e->driver;

	if (d->store == NULL) {
		(*steps)--;
		return NBD_STATE_HOLE | NBD_STATE_ZERO;
	}
	return store_extent(d->store, cpu, pos, len, steps)
		   ? 0
		   : NBD_STATE_HOLE | NBD_STATE_ZERO;
}

static const struct nbd_context disk_contexts[] = {
	{ "base:allocation", allocation },
	{},
};

static void
make_export(struct nbd_export *e, struct disk *d)
{
	const struct limits *lim = &d->queue->limits;
	uint32_t pref = lim->physical_block_size;

	*e = (struct nbd_export){
		.name = d->name,
		.description = d->conf.description,
		.queue = d->queue,
		.size = disk_size(d),
		.read_only = d->conf.ro,
		.rotational = lim->rotational,
		.can_trim = lim->max_discard_sectors > 0,
		.can_zero = lim->max_write_zeroes_sectors > 0,
		.min_block = lim->logical_block_size,
		.pref_block = pref > PAGE_SIZE ? pref : PAGE_SIZE,
		.page_order = d->conf.page_order,
		.plug_nsec = d->conf.plug_nsec,
		.contexts = disk_contexts,
		.driver = d,
	};
	/* a read of a disk without memory moves its bytes, as it would there */
	if (d->store != NULL) {
		e->zeros = store_zeros();
		e->zeros_size = STORE_ZEROS_SIZE;
	}
}

/* Make and power on all devices; the first is the default export, too. */
static void
make_disks(struct daemon *d, struct config *c)
{
	char err[MAX_ERROR] = "";
	struct device *dev;

	d->disk = calloc(c->nr_devices + 1, sizeof(*d->disk));
	d->export = calloc(c->nr_devices + 1, sizeof(*d->export));
	if (d->disk == NULL || d->export == NULL)
		log_fatal("out of memory");
	STAILQ_FOREACH(dev, &c->devices, link) {
		struct disk *disk = disk_new(dev->name, d->machine, d->pages);

		if (disk == NULL ||
		    attr_copy(disk_attrs, &disk->set, &dev->conf) != 0)
			log_fatal("%s: out of memory", dev->name);
		d->disk[d->nr_disks++] = disk;
		if (!dev->conf.power)
			continue;
		if (disk_power_on(disk, clock_ns(), err, sizeof(err)) != 0)
			log_fatal("%s: %s", dev->where, err);
		make_export(&d->export[d->nr_exports++], disk);
	}
	d->ctl =
	    (struct ctl){ d->disk, d->nr_disks, ctlconn_trace, ctlconn_settle };
}

static const struct nbd_export *
lookup_export(void *arg, const char *name)
{
	struct daemon *d = arg;
	unsigned i;

	if (name[0] == '\0')
		return d->nr_exports > 0 ? &d->export[0] : NULL;
	for (i = 0; i < d->nr_exports; i++)
		if (strcmp(d->export[i].name, name) == 0)
			return &d->export[i];
	return NULL;
}

static const struct nbd_export *
list_exports(void *arg, unsigned i)
{
	struct daemon *d = arg;

	return i < d->nr_exports ? &d->export[i] : NULL;
}

/* ------------------------------------------------------------- its parts */

static void
wake_cpu(void *arg, unsigned cpu)
{
	struct daemon *d = arg;

	loop_wake(&d->worker[cpu]);
}

struct loop *
daemon_least_loaded(struct daemon *d)
{
	struct loop *best = &d->worker[0];
	unsigned i;

	for (i = 1; i < d->nr_workers; i++)
		if (atomic_load(&d->worker[i].nr_conns) <
		    atomic_load(&best->nr_conns))
			best = &d->worker[i];
	return best;
}

static void
make_loops(struct daemon *d)
{
	unsigned i;
	int err;

	d->worker = calloc(d->nr_workers, sizeof(*d->worker));
	err = d->worker == NULL ? -ENOMEM : loop_init(&d->main, d, NULL);
	if (err != 0)
		log_fatal("the main loop: %s", strerror(-err));
	for (i = 0; i < d->nr_workers; i++) {
		err = loop_init(&d->worker[i], d, &d->machine->cpu[i]);
		if (err != 0)
			log_fatal("worker %u: %s", i, strerror(-err));
	}
}

/* log_fatal() once there are sockets: their files are removed first. */
_Noreturn static void __attribute__((format(printf, 2, 3)))
give_up(struct daemon *d, const char *fmt, ...)
{
	char text[MAX_ERROR];
	va_list ap;

	listen_close_all(d);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_fatal("%s", text);
}

static void
make_listeners(struct daemon *d)
{
	struct endpoint ep[DAEMON_MAX_LISTENERS];
	char err[MAX_ERROR] = "";
	int nr = daemon_endpoints(&d->conf, ep, err, sizeof(err)), i, res;

	if (nr < 0)
		log_fatal("%s", err);
	for (i = 0; i < nr; i++) {
		if (ep[i].path[0] != '\0')
			res =
			    listen_unix(d, ep[i].path, false, err, sizeof(err));
		else
			res = listen_tcp(d,
			    ep[i].host[0] != '\0' ? ep[i].host : NULL,
			    ep[i].port, err, sizeof(err));
		if (res != 0)
			goto fail;
	}
	if (d->conf.control == NULL ||
	    listen_unix(d, d->conf.control, true, err, sizeof(err)) == 0)
		return;
fail:
	give_up(d, "%s", err);
}

/*
 * Those whose attribute says so.  Once the sockets are ours: the files of a
 * daemon that has them already are not to be touched.
 */
static void
start_traces(struct daemon *d)
{
	char err[MAX_ERROR] = "";
	unsigned i;

	for (i = 0; i < d->nr_disks; i++) {
		struct disk *disk = d->disk[i];

		if (disk->queue != NULL && disk->conf.trace != NULL &&
		    tracer_start(d, disk, err, sizeof(err)) != 0)
			give_up(d, "%s: trace: %s", disk->name, err);
	}
}

/* Nothing happens any more, or nobody waits for it. */
static void
end_traces(struct daemon *d)
{
	tracer_end_files(d);
	ctlconn_end_traces(d);
}

/* One connection a descriptor: take as many as we may have. */
static void
raise_fd_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) != 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
}

/* Percent-encode what a URI, or a shell, would take for its own. */
static void
uri_encode(char *out, size_t len, const char *text, const char *also)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-._~";
	char *end = out + len - 1;

	for (; *text != '\0' && end - out >= 3; text++) {
		if (strchr(plain, *text) != NULL || strchr(also, *text) != NULL)
			*out++ = *text;
		else
			out += sprintf(out, "%%%02X", (unsigned char)*text);
	}
	*out = '\0';
}

/* The NBD URI of an export at a listener (N182). */
static void
make_uri(char *out, size_t len, const struct listener *ln, const char *export)
{
	bool v6 = strchr(ln->host, ':') != NULL;
	char name[3 * DISK_NAME_LEN], path[3 * sizeof(ln->path)];

	uri_encode(name, sizeof(name), export, "");
	uri_encode(path, sizeof(path), ln->path, "/");
	if (ln->path[0] != '\0')
		snprintf(out, len, "nbd+unix:///%s?socket=%s", name, path);
	else
		snprintf(out, len, "nbd://%s%s%s:%u/%s", v6 ? "[" : "",
		    ln->host, v6 ? "]" : "", ln->port, name);
}

/* There is always one: daemon_endpoints() sees to it. */
static const struct listener *
first_nbd_listener(const struct daemon *d)
{
	const struct listener *ln = d->listener;

	while (ln->control)
		ln++;
	assert(ln < d->listener + d->nr_listeners);
	return ln;
}

static void
print_device(const struct listener *ln, const struct disk *disk)
{
	char uri[512];

	make_uri(uri, sizeof(uri), ln, disk->name);
	log_info("%s: %s", disk->name, uri);
	if (ln->path[0] != '\0')
		log_info("  nbd-client -unix '%s' -N '%s' /dev/nbd0", ln->path,
		    disk->name);
	else
		log_info("  nbd-client %s %u -N '%s' /dev/nbd0", ln->host,
		    ln->port, disk->name);
	log_info("  fio --name=%s --ioengine=nbd --uri='%s' --rw=randrw "
		 "--iodepth=32 --time_based --runtime=10",
	    disk->name, uri);
}

static void
print_devices(const struct daemon *d)
{
	const struct listener *ln = first_nbd_listener(d);
	unsigned i, printed = 0;

	for (i = 0; i < d->nr_disks; i++) {
		if (d->disk[i]->queue == NULL)
			continue;
		if (printed++ == DEVICES_PRINTED) {
			log_info("and more: %u devices in all", d->nr_exports);
			return;
		}
		print_device(ln, d->disk[i]);
	}
}

/* ------------------------------------------------------------ the end of it */

static void
on_too_late(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct daemon *d = w->data;

	(void)ev;
	(void)revents;
	log_warn("%u connections did not end in %g s: dropped",
	    atomic_load(&d->nr_conns), SHUTDOWN_SEC);
	end_traces(d);
	fflush(NULL);
	_exit(d->exit_status); /* threads may be anywhere: no tidying up */
}

static void
on_grace_over(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct daemon *d = w->data;
	unsigned i;

	(void)ev;
	(void)revents;
	for (i = 0; i < d->nr_workers; i++)
		loop_tell(&d->worker[i], LOOP_EXPIRE);
}

/* N162: what is in flight is finished or answered, then all ends. */
static void
begin_shutdown(struct daemon *d)
{
	struct conn *c;
	unsigned i;

	if (d->shutting_down)
		return;
	d->shutting_down = true;
	listen_close_all(d);
	ctlconn_close_all(d);
	TAILQ_FOREACH(c, &d->main.conns, link)
		conn_shutdown(c);
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

static void
on_signal(struct ev_loop *ev, ev_signal *w, int revents)
{
	struct daemon *d = w->data;

	(void)ev;
	(void)revents;
	if (d->shutting_down) {
		log_warn("a second signal: ends at once");
		_exit(EXIT_FAULT);
	}
	log_info("%s: shutting down", strsignal(w->signum));
	if (ev_is_active(&d->command))
		kill(d->command.pid, SIGTERM);
	begin_shutdown(d);
}

/* To who attaches from now on: what is offered is agreed on in handshakes. */
static void
offer_trim(struct daemon *d, const struct disk *disk)
{
	for (unsigned i = 0; i < d->nr_exports; i++)
		if (d->export[i].queue == disk->queue)
			d->export[i].can_trim =
			    disk->queue->limits.max_discard_sectors > 0;
}

/* Every now and then: has a queue become empty, so that its disk changes? */
static void
on_settle(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct daemon *d = w->data;
	char err[CTL_MAX_ERROR];
	bool more = false;
	int ret;

	(void)revents;
	for (unsigned i = 0; i < d->nr_disks; i++) {
		struct disk *disk = d->disk[i];

		if (disk->change == NULL)
			continue;
		ret = disk_settle(disk, clock_ns(), err, sizeof(err));
		if (ret == -EINPROGRESS) {
			more = true;
			continue;
		}
		offer_trim(d, disk);
		ctlconn_settled(d, disk, ret, err);
	}
	if (!more)
		ev_timer_stop(ev, w);
}

void
daemon_settle(struct daemon *d)
{
	for (unsigned i = 0; i < d->nr_workers; i++)
		loop_tell(&d->worker[i], LOOP_RETRY);
	if (ev_is_active(&d->settle))
		return;
	ev_timer_init(&d->settle, on_settle, 0., SETTLE_SEC);
	d->settle.data = d;
	ev_timer_start(d->main.ev, &d->settle);
}

static void
on_conn_closed(struct ev_loop *ev, ev_async *w, int revents)
{
	struct daemon *d = w->data;

	(void)ev;
	(void)revents;
	if (!d->shutting_down)
		listen_resume(d);
	else if (atomic_load(&d->nr_conns) == 0)
		loop_tell(&d->main, LOOP_STOP);
}

bool
daemon_may_log(struct daemon *d)
{
	uint64_t second = clock_ns() / 1000000000u;

	if (atomic_exchange(&d->log_second, second) != second)
		atomic_store(&d->log_lines, 0);
	return atomic_fetch_add(&d->log_lines, 1) < MAX_CLIENT_LINES;
}

void
daemon_conn_closed(struct daemon *d)
{
	atomic_fetch_sub(&d->nr_conns, 1);
	if (atomic_load(&d->accept_paused) || atomic_load(&d->shutting_down))
		ev_async_send(d->main.ev, &d->conn_closed);
}

/* --run: the command's end is ours, and its status. */
static void
on_command_ended(struct ev_loop *ev, ev_child *w, int revents)
{
	struct daemon *d = w->data;

	(void)revents;
	ev_child_stop(ev, w);
	d->exit_status = WIFEXITED(w->rstatus) ? WEXITSTATUS(w->rstatus)
					       : 128 + WTERMSIG(w->rstatus);
	begin_shutdown(d);
}

static void
run_command(struct daemon *d, const char *command)
{
	const struct listener *ln = first_nbd_listener(d);
	char uri[512], port[16];
	pid_t pid;

	make_uri(
	    uri, sizeof(uri), ln, d->nr_exports > 0 ? d->export[0].name : "");
	snprintf(port, sizeof(port), "%u", ln->port);
	pid = fork();
	if (pid < 0)
		give_up(d, "--run: %s", strerror(errno));
	if (pid == 0) {
		signal(SIGPIPE, SIG_DFL);
		signal(SIGXFSZ, SIG_DFL);
		setenv("uri", uri, 1);
		setenv("unixsocket", ln->path, 1);
		setenv("port", ln->path[0] == '\0' ? port : "", 1);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	ev_child_init(&d->command, on_command_ended, pid, 0);
	d->command.data = d;
	ev_child_start(d->main.ev, &d->command);
}

static void
watch_signals(struct daemon *d)
{
	ev_signal_init(&d->sigterm, on_signal, SIGTERM);
	ev_signal_init(&d->sigint, on_signal, SIGINT);
	d->sigterm.data = d->sigint.data = d;
	ev_signal_start(d->main.ev, &d->sigterm);
	ev_signal_start(d->main.ev, &d->sigint);
	ev_async_init(&d->conn_closed, on_conn_closed);
	d->conn_closed.data = d;
	ev_async_start(d->main.ev, &d->conn_closed);
	signal(SIGPIPE, SIG_IGN); /* N33 */
	signal(SIGXFSZ, SIG_IGN); /* a trace that is too large is an error */
}

/* Signals go to the main thread: the others are made with them blocked. */
static void
start_workers(struct daemon *d)
{
	sigset_t all, old;
	unsigned i;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (i = 0; i < d->nr_workers; i++)
		if (loop_start(&d->worker[i]) != 0)
			give_up(d, "worker %u: no thread", i);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void
tear_down(struct daemon *d)
{
	unsigned i;

	for (i = 0; i < d->nr_workers; i++)
		loop_tell(&d->worker[i], LOOP_STOP);
	for (i = 0; i < d->nr_workers; i++)
		loop_join(&d->worker[i]);
	end_traces(d);
	for (i = 0; i < d->nr_workers; i++) /* none can be woken any more */
		loop_fini(&d->worker[i]);
	for (i = 0; i < d->nr_disks; i++)
		disk_free(d->disk[i]);
	free(d->disk);
	free(d->export);
	free(d->worker);
	loop_fini(&d->main);
	page_pool_free(d->pages);
	machine_free(d->machine);
}

static unsigned
nr_cores(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? (unsigned)n : 1;
}

/* Else a socket might get the number of a file that was closed for us. */
static void
open_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* What clients may ask of us. */
static void
take_limits(struct daemon *d)
{
	nbd_limits_init(&d->limits);
	d->limits.max_options = d->conf.max_options;
	d->limits.max_requests = d->conf.max_requests;
	d->limits.max_bytes = d->conf.max_bytes;
	d->limits.max_total = d->conf.max_total_bytes;
}

int
main(int argc, char **argv)
{
	static struct daemon d;
	struct options o = { 0 };
	struct config c;

	open_standard_files();
	log_init("nullbd", false);
	TAILQ_INIT(&d.ctlconns);
	TAILQ_INIT(&d.tracers);
	if (config_init(&c) != 0)
		log_fatal("out of memory");
	parse_options(&c, &o, argc, argv);
	log_init("nullbd", o.verbose);
	if (config_finish(&c) != 0)
		log_fatal("out of memory");
	d.nr_cores = nr_cores();
	d.conf = c.daemon;
	d.nr_workers = d.conf.workers > 0 ? d.conf.workers : d.nr_cores;
	if (config_check(&c, d.nr_workers, stderr) != 0)
		return EXIT_USAGE;
	if (o.check) {
		config_print(&c, d.nr_workers, stdout);
		config_fini(&c);
		return EXIT_OK;
	}

	raise_fd_limit();
	d.machine = machine_new(d.nr_workers, wake_cpu, &d);
	d.pages = d.machine != NULL
		      ? page_pool_new(d.machine, memory_limit(&d.conf))
		      : NULL;
	if (d.pages == NULL)
		log_fatal("out of memory");
	take_limits(&d);
	d.host =
	    (struct nbd_host){ lookup_export, list_exports, &d, &d.limits };
	make_disks(&d, &c);
	make_loops(&d);
	watch_signals(&d);
	make_listeners(&d);
	start_traces(&d);
	start_workers(&d);
	print_devices(&d);
	if (o.run != NULL)
		run_command(&d, o.run);
	loop_run(&d.main);
	tear_down(&d);
	config_fini(&c);
	return d.exit_status;
}
