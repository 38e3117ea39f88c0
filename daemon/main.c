/* SPDX-License-Identifier: MIT */
/*
 * nullbd: simulated block devices over NBD.  Options, disks, the start.  The
 * rest of the daemon is loops (loop.c), and its end (shutdown.c).
 */
#include "daemon.h"

#include <sys/prctl.h>
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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LEAKS_ARE_LOOKED_FOR true
#else
#define LEAKS_ARE_LOOKED_FOR false
#endif

/* What the command line asks for besides the configuration. */
struct options {
	const char *run; /* --run COMMAND */
	bool places;     /* where to listen */
	bool check;
	bool print_uri;
	bool exit_with_parent;
	bool verbose;
};

/* --------------------------------------------------------------- options */

enum {
	OPT_SETTING = 256, /* of the daemon, by its name */
	OPT_LISTEN,
	OPT_RUN,
	OPT_PRINT_URI,
	OPT_EXIT_WITH_PARENT,
	OPT_CHECK,
	OPT_MODPROBE,
	OPT_MAN_DEVICES,
	OPT_MAN_DAEMON
};

#define SHORT_OPTIONS "c:U:p:a:vhV"

static const struct option long_options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "unix", required_argument, NULL, 'U' },
	{ "port", required_argument, NULL, 'p' },
	{ "address", required_argument, NULL, 'a' },
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "control", required_argument, NULL, OPT_SETTING },
	{ "sysfs", required_argument, NULL, OPT_SETTING },
	{ "metrics", required_argument, NULL, OPT_SETTING },
	{ "workers", required_argument, NULL, OPT_SETTING },
	{ "run", required_argument, NULL, OPT_RUN },
	{ "print-uri", no_argument, NULL, OPT_PRINT_URI },
	{ "pidfile", required_argument, NULL, OPT_SETTING },
	{ "exit-with-parent", no_argument, NULL, OPT_EXIT_WITH_PARENT },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "modprobe", required_argument, NULL, OPT_MODPROBE },
	{ "tls", required_argument, NULL, OPT_SETTING },
	{ "tls-certificates", required_argument, NULL, OPT_SETTING },
	{ "tls-psk", required_argument, NULL, OPT_SETTING },
	{ "tls-verify-peer", no_argument, NULL, OPT_SETTING },
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
	    "  -U, --unix PATH      listen on a UNIX socket; - makes a private "
	    "one\n"
	    "  -p, --port PORT      listen on TCP; 0 takes any free port\n"
	    "  -a, --address HOST   ... on this address (127.0.0.1), with -p "
	    "or "
	    "no place\n"
	    "      --listen PLACE   listen there, as `listen` of "
	    "nullbd.conf(5) "
	    "says it,\n"
	    "                       such as vsock:PORT\n"
	    "      --control PATH   listen for nullbctl(1) on a UNIX socket\n"
	    "      --sysfs DIR      mount the devices there as files, as in "
	    "configfs\n"
	    "                       and /sys/block\n"
	    "      --metrics ADDRESS:PORT\n"
	    "                       serve metrics there for Prometheus, over "
	    "HTTP\n"
	    "      --tls MODE       off, allowed or required\n"
	    "      --tls-certificates DIR\n"
	    "                       where server-cert.pem, server-key.pem and, "
	    "for\n"
	    "                       --tls-verify-peer, ca-cert.pem are\n"
	    "      --tls-psk FILE   shared keys, as psktool(1) makes them\n"
	    "      --tls-verify-peer\n"
	    "                       clients need a certificate of ca-cert.pem\n"
	    "      --workers N      loops, which play CPUs; 0: one a core\n"
	    "      --run COMMAND    run a shell command with $uri, "
	    "$unixsocket, $port\n"
	    "                       and more set; end with it\n"
	    "      --print-uri      print the URIs of the devices to standard "
	    "output\n"
	    "      --pidfile FILE   write our process id there once all "
	    "sockets "
	    "accept\n"
	    "      --exit-with-parent\n"
	    "                       end when the process that started us does\n"
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

_Noreturn static void
bad_device(const char *text)
{
	fprintf(stderr, "nullbd: command line: %s\n", text);
	exit(EXIT_USAGE);
}

static void
set(struct config *c, const char *name, const char *value)
{
	char err[MAX_ERROR] = "";

	check(config_set(c, name, value, err, sizeof(err)), err);
	check(config_remember(c, ORIGIN_SETTING, name, value), "out of memory");
}

/* An option that is a setting: --tls-psk is tls_psk. */
static void
set_long(struct config *c, const struct option *o)
{
	char name[32], *p = name;
	const char *from;

	for (from = o->name; *from != '\0' && p < name + sizeof(name) - 1;
	     from++)
		*p++ = *from == '-' ? '_' : *from;
	*p = '\0';
	set(c, name, optarg != NULL ? optarg : "1");
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
	char *value = NULL;

	check(asprintf(&value, "unix:%s", path) < 0, "out of memory");
	set(c, "listen", value);
	free(value);
}

/* A place of the command line takes the place of those of all files. */
static void
begin_place(struct config *c, struct options *o)
{
	if (o->places)
		return;
	o->places = true;
	set(c, "listen", "");
	set(c, "port", "0");
}

/* Where to listen: after everything else was read. */
static void
parse_places(struct config *c, struct options *o, int argc, char **argv)
{
	bool any_port = false;
	int opt;

	optind = 1;
	while ((opt = getopt_long(
		    argc, argv, SHORT_OPTIONS, long_options, NULL)) != -1) {
		if (opt == 'a')
			set(c, "address", optarg);
		if (opt != 'U' && opt != 'p' && opt != OPT_LISTEN)
			continue;
		begin_place(c, o);
		if (opt == 'U')
			set_unix(c, optarg);
		if (opt == OPT_LISTEN)
			set(c, "listen", optarg);
		if (opt == 'p') {
			set(c, "port", optarg);
			any_port = c->daemon.port == 0;
		}
	}
	if (any_port)
		set_any_port(c);
}

static void
parse_options(struct config *c, struct options *o, int argc, char **argv)
{
	char err[MAX_ERROR] = "";
	int opt, index = 0;

	while ((opt = getopt_long(
		    argc, argv, SHORT_OPTIONS, long_options, &index)) != -1) {
		switch (opt) {
		case 'c':
			if (config_ini(c, optarg, log_errors()) != 0)
				exit(EXIT_USAGE);
			break;
		case OPT_MODPROBE:
			if (config_modprobe(c, optarg, log_errors()) != 0)
				exit(EXIT_USAGE);
			break;
		case 'U':
		case 'p':
		case 'a':
		case OPT_LISTEN: break; /* parse_places() */
		case OPT_SETTING: set_long(c, &long_options[index]); break;
		case OPT_RUN: o->run = optarg; break;
		case OPT_PRINT_URI: o->print_uri = true; break;
		case OPT_EXIT_WITH_PARENT: o->exit_with_parent = true; break;
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
	parse_places(c, o, argc, argv);
	for (; optind < argc; optind++)
		if (config_spec(c, argv[optind], err, sizeof(err)) != 0)
			bad_device(err);
}

/* ----------------------------------------------------------------- disks */

static void
make_disks(struct daemon *d, struct config *c)
{
	char err[MAX_ERROR] = "";
	struct device *dev;

	d->ctl = (struct ctl){
		.trace = ctlconn_trace,
		.settle = waiter_settle,
		.clients = ctlconn_clients,
		.kick = ctlconn_kick,
		.places = ctlconn_places,
		.config = d->config,
		.create = waiter_create,
		.snapshot = waiter_snapshot,
		.power = waiter_power,
		.cut = waiter_cut,
		.remove = waiter_remove,
		.await = ctlconn_await,
		.sweep = waiter_sweep,
		.changed = waiter_changed,
		.watch = ctlconn_watch,
		.state = ctlconn_state,
	};
	STAILQ_FOREACH(dev, &c->devices, link)
		if (device_add(d, dev, NULL, err, sizeof(err)) != 0) {
			fprintf(log_errors(), "%s: %s: %s\n", dev->where,
			    dev->name, err);
			exit(EXIT_FAULT);
		}
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

/* log_fatal() once there are files of ours: they are removed first. */
_Noreturn static void __attribute__((format(printf, 2, 3)))
give_up(struct daemon *d, const char *fmt, ...)
{
	char text[MAX_ERROR];
	va_list ap;

	listen_close_all(d);
	sysfs_stop(d);
	if (d->has_pidfile)
		pidfile_remove(d->conf.pidfile);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_fatal("%s", text);
}

static int
listen_at(struct daemon *d, const struct endpoint *ep, char *err, size_t errlen)
{
	if (strcmp(ep->path, DAEMON_PRIVATE) == 0)
		return listen_private(d, err, errlen);
	if (ep->path[0] != '\0')
		return listen_unix(d, ep->path, false, err, errlen);
	if (ep->vsock)
		return listen_vsock(d, ep->cid, ep->port, err, errlen);
	return listen_tcp(
	    d, ep->host[0] != '\0' ? ep->host : NULL, ep->port, err, errlen);
}

/* Where metrics are served. */
static int
listen_metrics(struct daemon *d, char *err, size_t errlen)
{
	unsigned first = d->nr_listeners;
	struct endpoint ep;
	int ret = metrics_endpoint(d->conf.metrics, &ep, err, errlen);

	if (ret != 0)
		return ret;
	d->http = http_new(d);
	if (d->http == NULL)
		return refuse(err, errlen, -ENOMEM,
		    "metrics: out of memory, or of descriptors");
	ret = listen_tcp(
	    d, ep.host[0] != '\0' ? ep.host : NULL, ep.port, err, errlen);
	for (; first < d->nr_listeners; first++) {
		struct listener *ln = &d->listener[first];
		bool v6 = ln->family == AF_INET6;

		ln->metrics = true;
		log_info("metrics at http://%s%s%s:%u/metrics", v6 ? "[" : "",
		    ln->host, v6 ? "]" : "", ln->port);
	}
	return ret;
}

/* Sockets that were passed, or those that the configuration asks for. */
static void
make_listeners(struct daemon *d)
{
	struct endpoint ep[DAEMON_MAX_LISTENERS];
	char err[MAX_ERROR] = "";
	int nr = 0, i;
	unsigned first;

	if (systemd_listen(d, err, sizeof(err)) != 0)
		goto fail;
	/* first: who finds a device's socket finds this one as well */
	if (d->conf.control != NULL &&
	    listen_unix(d, d->conf.control, true, err, sizeof(err)) != 0)
		goto fail;
	if (d->conf.metrics != NULL && listen_metrics(d, err, sizeof(err)) != 0)
		goto fail;
	if (!systemd_passes_nbd(&d->systemd))
		nr = daemon_endpoints(&d->conf, ep, err, sizeof(err));
	if (nr < 0)
		goto fail;
	for (i = 0; i < nr; i++) {
		first = d->nr_listeners;
		if (listen_at(d, &ep[i], err, sizeof(err)) != 0)
			goto fail;
		while (first < d->nr_listeners)
			d->listener[first++].tls = ep[i].tls;
	}
	return;
fail:
	give_up(d, "%s", err);
}

static void
start_sysfs(struct daemon *d)
{
	char err[MAX_ERROR] = "";

	if (d->conf.sysfs != NULL && sysfs_start(d, err, sizeof(err)) != 0)
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

	for (i = 0; i < d->nr_disks; i++)
		if (device_trace(d, d->disk[i], err, sizeof(err)) != 0)
			give_up(d, "%s: trace: %s", d->disk[i]->name, err);
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
		ret = snapshot_settled(d, disk, ret, err, sizeof(err));
		export_offer_trim(d, disk);
		watch_settled(d, disk, ret == 0);
		waiter_settled(d, disk, ret, err);
	}
	if (!more)
		ev_timer_stop(ev, w);
}

void
daemon_state(struct daemon *d, struct daemon_state *out)
{
	*out = (struct daemon_state){
		.nr_connections = atomic_load(&d->nr_conns),
		.nr_requests = client_requests(d),
		.memory = page_pool_used(d->pages),
		.memory_limit = page_pool_limit(d->pages),
	};
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

bool
daemon_may_log(struct daemon *d)
{
	uint64_t second = clock_ns() / 1000000000u;

	if (atomic_exchange(&d->log_second, second) != second)
		atomic_store(&d->log_lines, 0);
	return atomic_fetch_add(&d->log_lines, 1) < MAX_CLIENT_LINES;
}

/* What ends the life of others is an error of ours. */
static void
ignore_signals(void)
{
	signal(SIGPIPE, SIG_IGN); /* N33 */
	signal(SIGXFSZ, SIG_IGN); /* a trace that is too large is an error */
}

static void
start_workers(struct daemon *d)
{
	unsigned i;
	int err;

	for (i = 0; i < d->nr_workers; i++)
		if ((err = loop_start(&d->worker[i])) != 0)
			give_up(d, "worker %u: %s", i, strerror(-err));
}

static void
tear_down(struct daemon *d)
{
	unsigned i;

	for (i = 0; i < d->nr_workers; i++)
		loop_tell(&d->worker[i], LOOP_STOP);
	for (i = 0; i < d->nr_workers; i++)
		loop_join(&d->worker[i]);
	shutdown_traces(d);
	if (d->has_pidfile)
		pidfile_remove(d->conf.pidfile);
	if (!LEAKS_ARE_LOOKED_FOR) { /* 20 GiB take 18 s, page by page */
		fflush(NULL);
		_exit(d->exit_status);
	}
	for (i = 0; i < d->nr_workers; i++) /* none can be woken any more */
		loop_fini(&d->worker[i]);
	fill_fini(d);
	power_fini(d);
	for (i = 0; i < d->nr_disks; i++) {
		struct backing *b = d->disk[i]->backing;

		crashlog_end(d->disk[i]);
		disk_free(d->disk[i]);
		backing_close(b);
	}
	backing_leave(d);
	free(d->disk);
	export_fini(d);
	watch_fini(d);
	free(d->worker);
	loop_fini(&d->main);
	tls_free(d->tls);
	page_pool_free(d->pages);
	machine_free(d->machine);
	pthread_mutex_destroy(&d->clients_lock);
	systemd_fini(&d->systemd);
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

/* Is there what the devices begin with?  All that is wrong is told. */
static int
check_images(const struct config *c, unsigned nr_cpus)
{
	char err[MAX_ERROR];
	struct device *d;
	int ret = 0;

	STAILQ_FOREACH(d, &c->devices, link)
		if (d->conf.power &&
		    fill_check(&d->conf, nr_cpus, err, sizeof(err)) != 0) {
			fprintf(log_errors(), "%s: %s: %s\n", d->where, d->name,
			    err);
			ret = -EINVAL;
		}
	return ret;
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

/* Sockets that are passed take the place of those that a setting names. */
static void
choose_places(struct config *c, const struct options *o, const struct daemon *d)
{
	static const char both[] = "%s: allowed: a %s, or a socket that is "
				   "passed for it (LISTEN_FDS), not both";
	bool passed = systemd_passes_nbd(&d->systemd);
	char text[MAX_ERROR];

	snprintf(text, sizeof(text), both, "listen, port, address",
	    "place to listen");
	check(passed && config_names_place(c), text);
	snprintf(text, sizeof(text), both, "control", "path");
	check(c->daemon.control != NULL && systemd_passes_control(&d->systemd),
	    text);
	/* a command is told where, nobody else needs to know */
	if (o->run != NULL && !passed && !config_names_place(c))
		set(c, "listen", "unix:" DAEMON_PRIVATE);
}

/* The signal comes only of an end that is yet to come. */
static void
follow_parent(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
		log_fatal("--exit-with-parent: %s", strerror(errno));
	if (parent == 1 || getppid() != parent)
		log_fatal("--exit-with-parent: the parent has ended already");
}

/* All sockets accept: tell those who wait for it. */
static void
announce(struct daemon *d, const struct options *o)
{
	char err[MAX_ERROR] = "";
	int ret;

	if (d->conf.pidfile != NULL &&
	    pidfile_write(d->conf.pidfile, err, sizeof(err)) != 0)
		give_up(d, "%s", err);
	d->has_pidfile = d->conf.pidfile != NULL;
	uri_log_all(d);
	ret = o->print_uri ? uri_print_all(d, stdout) : 0;
	if (ret != 0)
		log_warn("--print-uri: %s", strerror(-ret));
	systemd_ready(d);
	ret = o->run != NULL ? run_start(d, o->run) : 0;
	if (ret != 0)
		give_up(d, "--run: %s", strerror(-ret));
}

int
main(int argc, char **argv)
{
	static struct daemon d;
	pid_t parent = getppid();
	struct options o = { 0 };
	struct config c;
	char err[MAX_ERROR] = "";

	open_standard_files();
	argv[0] = program_invocation_short_name; /* as getopt() has it */
	log_init("nullbd", false);
	if (systemd_init(&d.systemd, err, sizeof(err)) != 0)
		log_fatal("%s", err);
	TAILQ_INIT(&d.waiters);
	TAILQ_INIT(&d.tracers);
	TAILQ_INIT(&d.clients);
	TAILQ_INIT(&d.fills);
	TAILQ_INIT(&d.snapshots);
	TAILQ_INIT(&d.departures);
	pthread_mutex_init(&d.clients_lock, NULL);
	if (config_init(&c) != 0)
		log_fatal("out of memory");
	parse_options(&c, &o, argc, argv);
	log_init("nullbd", o.verbose);
	if (o.exit_with_parent)
		follow_parent(parent);
	if (config_finish(&c) != 0)
		log_fatal("out of memory");
	if (!o.check)
		choose_places(&c, &o, &d);
	d.config = &c;
	d.conf = c.daemon;
	check(host_choose_cpus(&d, err, sizeof(err)), err);
	if (config_check(&c, d.nr_workers, log_errors()) != 0 ||
	    check_images(&c, d.nr_workers) != 0)
		exit(EXIT_USAGE);
	if (daemon_wants_tls(&d.conf)) {
		d.tls = tls_new(&d.conf, log_errors());
		if (d.tls == NULL)
			exit(EXIT_USAGE);
	}
	if (o.check) {
		config_print(&c, d.nr_workers, stdout);
		tls_free(d.tls);
		config_fini(&c);
		return EXIT_OK;
	}

	host_raise_files();
	if (d.conf.memory_limit == MEMORY_LIMIT_AUTO)
		d.conf.memory_limit = memory_limit_auto();
	d.machine = machine_new(d.nr_workers, wake_cpu, &d);
	d.pages = d.machine != NULL
		      ? page_pool_new(d.machine, d.conf.memory_limit)
		      : NULL;
	if (d.pages == NULL)
		log_fatal("out of memory");
	take_limits(&d);
	export_init(&d);
	make_disks(&d, &c);
	make_loops(&d);
	ignore_signals();
	ctlconn_init(&d);
	power_init(&d);
	watch_init(&d);
	shutdown_watch(&d);
	reload_watch(&d);
	make_listeners(&d);
	start_traces(&d);
	start_sysfs(&d);
	start_workers(&d);
	announce(&d, &o);
	loop_run(&d.main);
	tear_down(&d);
	config_fini(&c);
	return d.exit_status;
}
