/* SPDX-License-Identifier: MIT */
/*
 * nullbctl: ask a running nullbd.  A command is a request over the control
 * socket and a way to print its answer; help needs no daemon, for the tables
 * of the attributes are here, too.
 *
 * Exit status: 0 done; 1 no daemon there, or it refused; 2 wrong usage.
 */
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attach.h"
#include "ctl/blktrace.h"
#include "ctl/ctl.h"

#define ALL_SECTORS "0-18446744073709551615"

enum {
	EXIT_DONE,
	EXIT_REFUSED,
	EXIT_USAGE
};

static struct {
	const char *control;
	bool json;     /* print answers as they come */
	int fd;        /* -1: not connected yet */
	FILE *answers; /* what comes from it */
} client = { .fd = -1 };

/* ---- talking to the daemon */

static void
die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void
die(const char *fmt, ...)
{
	va_list ap;

	fputs("nullbctl: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(EXIT_REFUSED);
}

static void
connect_daemon(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	if (strlen(client.control) >= sizeof(addr.sun_path))
		die("%s: a path of more than %zu bytes", client.control,
		    sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, client.control, strlen(client.control) + 1);
	client.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (client.fd < 0)
		die("socket: %s", strerror(errno));
	if (connect(client.fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			die("no daemon is listening at %s (--control says "
			    "where)",
			    client.control);
		die("%s: %s", client.control, strerror(errno));
	}
	client.answers = fdopen(client.fd, "r");
	if (client.answers == NULL)
		die("fdopen: %s", strerror(errno));
}

static void
send_line(const char *line, size_t len)
{
	ssize_t n;

	while (len > 0) {
		n = send(client.fd, line, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die("%s: %s", client.control, strerror(errno));
		line += n;
		len -= (size_t)n;
	}
}

/* One line, however long the daemon makes it. */
static json_t *
read_answer(void)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t len = getline(&line, &size, client.answers);
	json_error_t why;
	json_t *answer;

	if (len <= 0)
		die("%s: the daemon hung up", client.control);
	if (client.json)
		fwrite(line, 1, (size_t)len, stdout);
	answer = json_loadb(line, (size_t)len, 0, &why);
	free(line);
	if (!json_is_object(answer))
		die("%s: an answer that is not JSON: %s", client.control,
		    why.text);
	return answer;
}

/* Ask; does not return when the daemon refuses.  The request is given up. */
static json_t *
ask_with(const char *command, json_t *request)
{
	const char *error = "no reason given";
	json_t *answer;
	char *line;

	line = request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;
	if (line == NULL)
		die("%s: not UTF-8, or out of memory", command);
	json_decref(request);
	if (client.fd < 0)
		connect_daemon();
	send_line(line, strlen(line));
	send_line("\n", 1);
	free(line);
	answer = read_answer();
	if (!json_is_true(json_object_get(answer, "ok"))) {
		json_unpack(answer, "{s:s}", "error", &error);
		die("%s", error);
	}
	return answer;
}

static json_t *
ask_to_set(const char *command, const char *name, const char *attribute,
    const char *value)
{
	return ask_with(
	    command, json_pack("{s:s, s:s*, s:s*, s:s*}", "command", command,
			 "name", name, "attribute", attribute, "value", value));
}

static json_t *
ask(const char *command, const char *name, const char *attribute)
{
	return ask_to_set(command, name, attribute, NULL);
}

static const char *
string_of(json_t *object, const char *member)
{
	const char *s = json_string_value(json_object_get(object, member));

	if (s == NULL)
		die("%s: an answer without %s", client.control, member);
	return s;
}

static void bad_usage(void) __attribute__((noreturn));

/* ---- commands */

struct args {
	char **argv;
	int argc;
	/* by its letter: what an option was given; NULL: it was not */
	const char *option[CHAR_MAX + 1];
};

static bool
given(const struct args *args, char letter)
{
	return args->option[(int)letter] != NULL;
}

static void
run_list(const struct args *args)
{
	json_t *answer = ask("list", NULL, NULL), *d;
	size_t i;

	(void)args;
	if (client.json)
		return;
	printf("%-31s %5s %20s %9s %13s %12s %s\n", "NAME", "POWER", "SIZE",
	    "BLOCKSIZE", "MEMORY_BACKED", "MEMORY", "KERNEL");
	json_array_foreach(json_object_get(answer, "devices"), i, d)
		printf("%-31s %5s %20" PRIu64 " %9d %13d %12" PRIu64 " %s\n",
		    string_of(d, "name"),
		    json_is_true(json_object_get(d, "power")) ? "on" : "off",
		    (uint64_t)json_integer_value(json_object_get(d, "size")),
		    (int)json_integer_value(json_object_get(d, "blocksize")),
		    json_is_true(json_object_get(d, "memory_backed")),
		    (uint64_t)json_integer_value(json_object_get(d, "memory")),
		    string_of(d, "kernel"));
	json_decref(answer);
}

/* A value may have several lines. */
static void
print_attribute(const char *name, const char *value)
{
	size_t len;

	do {
		len = strcspn(value, "\n");
		printf("%-30s %.*s\n", name, (int)len, value);
		value += len;
		name = "";
	} while (*value++ != '\0');
}

static void
run_get(const struct args *args)
{
	json_t *answer, *value;
	const char *name;

	answer =
	    ask("get", args->argv[0], args->argc > 1 ? args->argv[1] : NULL);
	if (client.json)
		return;
	if (args->argc > 1)
		printf("%s\n", string_of(answer, "value"));
	else
		json_object_foreach(
		    json_object_get(answer, "attributes"), name, value)
			print_attribute(name, json_string_value(value));
	json_decref(answer);
}

/* ATTRIBUTE VALUE, or ATTRIBUTE=VALUE as everywhere else. */
static void
run_set(const struct args *args)
{
	char *attribute = args->argv[1], *value;

	value = args->argc > 2 ? args->argv[2] : strchr(attribute, '=');
	if (value == NULL)
		bad_usage();
	if (args->argc == 2)
		*value++ = '\0';
	json_decref(ask_to_set("set", args->argv[0], attribute, value));
}

/* A range of sectors, "8-15" or "8", with a sign. */
static void
change_badblocks(const char *name, char sign, const char *range)
{
	bool one = strchr(range, '-') == NULL;
	char *value;

	if (asprintf(&value, "%c%s%s%s", sign, range, one ? "-" : "",
		one ? range : "") < 0)
		die("out of memory");
	json_decref(ask_to_set("set", name, "badblocks", value));
	free(value);
}

/* NAME [list], NAME clear, NAME add|remove RANGE... */
static void
run_badblocks(const struct args *args)
{
	const char *name = args->argv[0];
	const char *what = args->argc > 1 ? args->argv[1] : "list";
	bool add = strcmp(what, "add") == 0;
	const char *value;
	json_t *answer;

	if (add || strcmp(what, "remove") == 0) {
		if (args->argc < 3)
			bad_usage();
		for (int i = 2; i < args->argc; i++)
			change_badblocks(name, add ? '+' : '-', args->argv[i]);
		return;
	}
	if (args->argc > 2)
		bad_usage();
	if (strcmp(what, "clear") == 0) {
		change_badblocks(name, '-', ALL_SECTORS);
		return;
	}
	if (strcmp(what, "list") != 0)
		bad_usage();
	answer = ask("get", name, "badblocks");
	value = string_of(answer, "value");
	if (!client.json && *value != '\0')
		printf("%s\n", value);
	json_decref(answer);
}

/* A number of an option; absent, it is not in the request. */
static void
add_number(
    json_t *request, const struct args *args, char letter, const char *member)
{
	uint64_t number;

	if (!given(args, letter))
		return;
	if (uint_parse(args->option[(int)letter], NULL, &number) != 0 ||
	    number > INT64_MAX) {
		fprintf(stderr,
		    "nullbctl: -%c: \"%.60s\": allowed: a number of %s\n",
		    letter, args->option[(int)letter],
		    letter == 'c' ? "zones" : "sectors");
		exit(EXIT_USAGE);
	}
	json_object_set_new(request, member, json_integer((json_int_t)number));
}

/* Many zones come in several answers: each says where the next one begins. */
static void
report_zones(json_t *request)
{
	json_t *answer, *next;

	for (; request != NULL; request = next) {
		answer = ask_with("zone", request);
		if (!client.json &&
		    zoneinfo_print(json_object_get(answer, "zones"), stdout) !=
			0)
			die("%s: an answer without zones", client.control);
		next = json_incref(json_object_get(answer, "next"));
		json_decref(answer);
	}
}

/* report|reset|open|close|finish NAME: as blkzone(8), which names it first */
static void
run_zone(const struct args *args)
{
	const char *action = args->argv[0];
	json_t *request = json_pack("{s:s, s:s, s:s}", "command", "zone",
	    "name", args->argv[1], "action", action);

	if (given(args, 'c') && given(args, 'l'))
		bad_usage();
	if (given(args, 'a') &&
	    (given(args, 'o') || given(args, 'c') || given(args, 'l')))
		bad_usage();
	add_number(request, args, 'o', "sector");
	add_number(request, args, 'c', "count");
	add_number(request, args, 'l', "sectors");
	if (given(args, 'a'))
		json_object_set_new(request, "all", json_true());
	if (strcmp(action, "report") == 0)
		report_zones(request);
	else
		json_decref(ask_with("zone", request));
}

/* An answer that has a line of text, by the name of the command. */
static void
print_line(const char *command, const struct args *args)
{
	json_t *answer = ask(command, args->argv[0], NULL);

	if (!client.json)
		printf("%s\n", string_of(answer, command));
	json_decref(answer);
}

static void
run_stat(const struct args *args)
{
	print_line("stat", args);
}

static void
run_inflight(const struct args *args)
{
	print_line("inflight", args);
}

/* An answer that is one object, which `print` knows how to show. */
static void
show(const char *command, const char *name,
    int (*print)(json_t *json, FILE *out))
{
	json_t *answer = ask(command, name, NULL);

	if (!client.json &&
	    print(json_object_get(answer, command), stdout) != 0)
		die("%s: an answer without what %s is about", client.control,
		    command);
	json_decref(answer);
}

static void
run_segments(const struct args *args)
{
	show("segments", args->argv[0], segments_print);
}

static void
run_queue(const struct args *args)
{
	show("queue", args->argv[0], queueinfo_print);
}

static void
run_clients(const struct args *args)
{
	(void)args;
	show("clients", NULL, clients_print);
}

static void
run_kick(const struct args *args)
{
	uint64_t id;

	if (uint_parse(args->argv[0], NULL, &id) != 0 || id == 0 ||
	    id > UINT32_MAX) {
		fprintf(stderr,
		    "nullbctl: kick: \"%.60s\": an ID is a number, "
		    "as clients shows it\n",
		    args->argv[0]);
		exit(EXIT_USAGE);
	}
	json_decref(ask_with("kick",
	    json_pack("{s:s, s:I}", "command", "kick", "id", (json_int_t)id)));
}

static void
run_diskstats(const struct args *args)
{
	const char *form = given(args, 's') ? "fio_sectors" : "fio";
	json_t *answer, *d;
	size_t i;

	answer = ask("diskstats", args->argc > 0 ? args->argv[0] : NULL, NULL);
	if (!client.json)
		json_array_foreach(json_object_get(answer, "devices"), i, d)
			printf("%s\n", string_of(d, form));
	json_decref(answer);
}

/* Every row that bears the name: memory_limit is in both tables. */
static void
help_attribute(const char *name)
{
	const struct attr *of_disk = attr_find(disk_attrs, name);
	const struct attr *of_daemon = attr_find(daemon_attrs, name);

	if (of_disk == NULL && of_daemon == NULL) {
		fprintf(stderr, "nullbctl: %s: no such attribute\n", name);
		exit(EXIT_USAGE);
	}
	if (of_disk != NULL)
		attr_usage_one(of_disk, stdout);
	if (of_daemon != NULL)
		attr_usage_one(of_daemon, stdout);
}

static void
run_help(const struct args *args)
{
	if (args->argc > 0) {
		help_attribute(args->argv[0]);
		return;
	}
	attr_usage(disk_attrs, stdout);
	putchar('\n');
	attr_usage(daemon_attrs, stdout);
}

/* ---- iostat */

static json_t *
device_of(json_t *answer, const char *name)
{
	json_t *d;
	size_t i;

	json_array_foreach(json_object_get(answer, "devices"), i, d)
		if (strcmp(string_of(d, "name"), name) == 0)
			return d;
	return NULL;
}

/* A device's line: since the report before, or since its power came on. */
static void
print_report(json_t *device, json_t *before, bool extended)
{
	struct sample from = {}, to;

	if (sample_unpack(json_object_get(device, "sample"), &to) != 0 ||
	    (before != NULL &&
		sample_unpack(json_object_get(before, "sample"), &from) != 0))
		die("%s: an answer without counters", client.control);
	if (before == NULL)
		from.now_ns = (uint64_t)json_integer_value(
		    json_object_get(device, "on_ns"));
	iostat_line(extended, string_of(device, "name"), &from, &to, stdout);
}

/* A report now, and if there is an interval one each time it has passed. */
static void
report(
    const struct args *args, const char *name, double interval, uint64_t count)
{
	bool extended = given(args, 'x');
	json_t *before = NULL, *answer, *d;
	struct timespec pause = {
		.tv_sec = (time_t)interval,
		.tv_nsec = (long)((interval - (double)(time_t)interval) * 1e9),
	};
	size_t i;

	for (uint64_t n = 0; n < count; n++) {
		if (n > 0)
			nanosleep(&pause, NULL);
		answer = ask("iostat", name, NULL);
		if (!client.json) {
			iostat_header(extended, stdout);
			json_array_foreach(
			    json_object_get(answer, "devices"), i, d)
				print_report(d,
				    device_of(before, string_of(d, "name")),
				    extended);
			putchar('\n');
		}
		fflush(stdout);
		json_decref(before);
		before = answer;
	}
	json_decref(before);
}

static bool
is_number(const char *s)
{
	char *end;

	strtod(s, &end);
	return end != s && *end == '\0';
}

static void
run_iostat(const struct args *args)
{
	const char *name = NULL;
	double interval = 0;
	uint64_t count = 1;
	int i = 0;

	if (i < args->argc && !is_number(args->argv[i]))
		name = args->argv[i++];
	if (i < args->argc) {
		interval = strtod(args->argv[i++], NULL);
		count = UINT64_MAX;
		if (!(interval > 0 && interval <= 1e6)) {
			fprintf(stderr, "nullbctl: iostat: an interval is "
					"seconds, more than 0\n");
			exit(EXIT_USAGE);
		}
	}
	if (i < args->argc &&
	    (uint_parse(args->argv[i++], NULL, &count) != 0 || count == 0)) {
		fprintf(stderr, "nullbctl: iostat: a count is a number, at "
				"least 1\n");
		exit(EXIT_USAGE);
	}
	report(args, name, interval, count);
}

/* ---- trace */

#define TRACE_BUFFER (2u * (sizeof(struct blktrace_record) + UINT16_MAX))

/* A trace that comes in, and where it goes. */
struct tracing {
	struct tracefile *file; /* NULL: standard output */
	unsigned nr_cpus;
	char in[TRACE_BUFFER]; /* the first part of a record, or records */
	size_t nr_in;
	char last[UINT16_MAX + 1]; /* message */
};

/* Say that we are done; what is left still comes. */
static void
on_stop(int sig)
{
	(void)sig;
	shutdown(client.fd, SHUT_WR);
}

/* The second signal of a kind ends us, whatever the daemon does. */
static void
stop_on(int sig)
{
	struct sigaction sa = {
		.sa_handler = on_stop,
		.sa_flags = (int)(SA_RESTART | SA_RESETHAND),
	};

	sigaction(sig, &sa, NULL);
}

/* When to stop; never, if nothing is said. */
static struct itimerval
parse_seconds(const char *text)
{
	struct itimerval timer = {};
	char *end;
	double seconds;

	if (text == NULL)
		return timer;
	seconds = strtod(text, &end);
	if (end == text || *end != '\0' ||
	    !(seconds >= 0.001 && seconds <= 1e9)) {
		fprintf(stderr, "nullbctl: trace: --seconds is more than 0\n");
		exit(EXIT_USAGE);
	}
	timer.it_value.tv_sec = (time_t)seconds;
	timer.it_value.tv_usec =
	    (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6);
	return timer;
}

static void
write_record(struct tracing *t, const struct blktrace_record *r,
    const char *data, size_t len)
{
	int err = 0;

	if (r->action == (BLKTRACE_NOTIFY | BLKTRACE_NOTE_MESSAGE)) {
		memcpy(t->last, data + sizeof(*r), r->pdu_len);
		t->last[r->pdu_len] = '\0';
	}
	if (t->file != NULL)
		err = tracefile_write(t->file, r->cpu, data, len);
	else if (fwrite(data, 1, len, stdout) != len)
		err = -errno;
	if (err != 0)
		die("trace: %s", strerror(-err));
}

/* Whole records go where they belong; the rest moves to the front. */
static void
take_records(struct tracing *t)
{
	struct blktrace_record r;
	size_t pos = 0, len;

	while (t->nr_in - pos >= sizeof(r)) {
		memcpy(&r, t->in + pos, sizeof(r));
		if (!blktrace_valid(&r) || r.cpu >= t->nr_cpus)
			die("%s: what comes is not a trace", client.control);
		len = sizeof(r) + r.pdu_len;
		if (t->nr_in - pos < len)
			break;
		write_record(t, &r, t->in + pos, len);
		pos += len;
	}
	t->nr_in -= pos;
	memmove(t->in, t->in + pos, t->nr_in);
}

static void
flush_records(struct tracing *t)
{
	int err = t->file != NULL       ? tracefile_flush(t->file)
		  : fflush(stdout) != 0 ? -errno
					: 0;

	if (err != 0)
		die("trace: %s", strerror(-err));
}

/* All that comes, until the daemon closes. */
static void
receive(struct tracing *t)
{
	ssize_t n;

	for (;;) {
		n = read(client.fd, t->in + t->nr_in, sizeof(t->in) - t->nr_in);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die("%s: %s", client.control, strerror(errno));
		if (n == 0)
			return;
		t->nr_in += (size_t)n;
		take_records(t);
		flush_records(t);
	}
}

static void
run_trace(const struct args *args)
{
	static struct tracing t;
	const char *name = args->argv[0];
	const char *base = given(args, 'o') ? args->option['o'] : name;
	struct itimerval timer = parse_seconds(args->option['w']);
	char err[CTL_MAX_ERROR] = "";
	json_t *answer;

	connect_daemon();
	/* nothing of what follows the answer may stay in a buffer */
	setvbuf(client.answers, NULL, _IONBF, 0);
	stop_on(SIGINT);
	stop_on(SIGTERM);
	stop_on(SIGALRM);
	answer = ask("trace", name, NULL);
	t.nr_cpus =
	    (unsigned)json_integer_value(json_object_get(answer, "cpus"));
	json_decref(answer);
	if (t.nr_cpus == 0 || t.nr_cpus > BLKTRACE_MAX_CPUS)
		die("%s: an answer without cpus", client.control);
	if (strcmp(base, "-") != 0) {
		t.file = tracefile_new(base, t.nr_cpus, err, sizeof(err));
		if (t.file == NULL)
			die("trace: %s", err);
	}
	setitimer(ITIMER_REAL, &timer, NULL);
	receive(&t);
	tracefile_free(t.file);
	if (t.last[0] == '\0' || t.nr_in > 0)
		die("%s: the daemon hung up: the trace is not complete", name);
	fprintf(stderr, "%s: %s\n", name, t.last);
}

/* ---- uri, attach, detach */

static void
run_uri(const struct args *args)
{
	json_t *answer = ask("uri", args->argv[0], NULL), *p;
	size_t i;

	if (!client.json)
		json_array_foreach(json_object_get(answer, "places"), i, p)
			printf("%s\n", string_of(p, "uri"));
	json_decref(answer);
}

/* Can nbd-client get it there?  (It can't tell TLS where its files are.) */
static bool
place_unpack(json_t *json, struct place *p)
{
	const char *path = json_string_value(json_object_get(json, "path"));
	const char *host = json_string_value(json_object_get(json, "host"));

	*p = (struct place){ 0 };
	if (json_is_true(json_object_get(json, "tls")) ||
	    (path == NULL && host == NULL))
		return false;
	snprintf(p->path, sizeof(p->path), "%s", path != NULL ? path : "");
	snprintf(p->host, sizeof(p->host), "%s", host != NULL ? host : "");
	p->port = (unsigned)json_integer_value(json_object_get(json, "port"));
	return true;
}

/* The best there is: a UNIX socket tells us later who has connected. */
static struct place
choose_place(json_t *answer, const char *name)
{
	struct place p, best = { 0 };
	json_t *json;
	size_t i;

	json_array_foreach(json_object_get(answer, "places"), i, json)
		if (place_unpack(json, &p) &&
		    (best.port == 0 || p.path[0] != '\0') &&
		    best.path[0] == '\0')
			best = p;
	if (best.path[0] == '\0' && best.host[0] == '\0')
		die("%s: no place that nbd-client gets to without TLS "
		    "(nullbctl uri %s shows where it is)",
		    name, name);
	return best;
}

/* An option's number; `none` without it. */
static unsigned
number_of(const struct args *args, char letter, const char *what, unsigned min,
    unsigned max, unsigned none)
{
	uint64_t number;

	if (!given(args, letter))
		return none;
	if (uint_parse(args->option[(int)letter], NULL, &number) != 0 ||
	    number < min || number > max) {
		fprintf(stderr,
		    "nullbctl: attach: %s: \"%.60s\": allowed: %u to %u\n",
		    what, args->option[(int)letter], min, max);
		exit(EXIT_USAGE);
	}
	return (unsigned)number;
}

static void
check_device(const char *command, const char *device)
{
	if (attach_is_device(device))
		return;
	fprintf(stderr,
	    "nullbctl: %s: \"%.60s\": allowed: /dev/nbd and a number\n",
	    command, device);
	exit(EXIT_USAGE);
}

static void
check_block_size(unsigned size)
{
	if (size >= 512 && size <= 4096 && (size & (size - 1)) == 0)
		return;
	fprintf(stderr,
	    "nullbctl: attach: --block-size: %u: allowed: 512, 1024, 2048, "
	    "4096\n",
	    size);
	exit(EXIT_USAGE);
}

static void
run_attach(const struct args *args)
{
	const char *name = args->argv[0];
	char device[ATTACH_DEVICE] = "", err[CTL_MAX_ERROR] = "";
	struct attach a = {
		.name = name,
		.connections = number_of(
		    args, 'C', "--connections", 1, ATTACH_MAX_CONN, 0),
		.timeout = number_of(args, 't', "--timeout", 1, 86400, 0),
		.block_size = number_of(args, 'b', "--block-size", 1, 4096, 0),
		.persist = given(args, 'p'),
		.raw = given(args, 'r'),
	};
	int block_size = 0, cpus = 0;
	struct place place;
	json_t *answer;

	if (given(args, 'b'))
		check_block_size(a.block_size);
	if (args->argc > 1) {
		check_device("attach", args->argv[1]);
		snprintf(device, sizeof(device), "%s", args->argv[1]);
	}
	answer = ask("uri", name, NULL);
	json_unpack(
	    answer, "{s:i, s:i}", "blocksize", &block_size, "cpus", &cpus);
	place = choose_place(answer, name);
	a.place = &place;
	if (a.connections == 0)
		a.connections = cpus < 1 ? 1 : (unsigned)cpus;
	if (a.connections > ATTACH_MAX_CONN)
		a.connections = ATTACH_MAX_CONN;
	if (a.block_size == 0)
		a.block_size = (unsigned)block_size;
	if (a.block_size < (unsigned)block_size)
		die("%s: --block-size: %u: allowed: at least its blocksize, "
		    "%d",
		    name, a.block_size, block_size);
	json_decref(answer);
	if (attach_device(&a, device, err, sizeof(err)) != 0)
		die("%s: %s", name, err);
	printf("%s\n", device);
}

/* The one device that a client of the export has attached. */
static void
find_attached(const char *name, char *device)
{
	json_t *answer = ask("clients", NULL, NULL), *c;
	char other[ATTACH_DEVICE];
	size_t i;

	device[0] = '\0';
	json_array_foreach(json_object_get(answer, "clients"), i, c) {
		json_t *pid = json_object_get(c, "pid");
		const char *export =
		    json_string_value(json_object_get(c, "export"));

		if (export == NULL || strcmp(export, name) != 0 ||
		    !json_is_integer(pid) ||
		    attach_find((pid_t)json_integer_value(pid), other) != 0)
			continue;
		if (device[0] != '\0' && strcmp(device, other) != 0)
			die("%s: is attached as %s and %s: say which", name,
			    device, other);
		snprintf(device, ATTACH_DEVICE, "%s", other);
	}
	json_decref(answer);
	if (device[0] == '\0')
		die("%s: no device is known to be it; if there is one, say "
		    "which: nullbctl detach /dev/nbdN",
		    name);
}

static void
run_detach(const struct args *args)
{
	char device[ATTACH_DEVICE], err[CTL_MAX_ERROR] = "";

	if (args->argv[0][0] == '/') {
		check_device("detach", args->argv[0]);
		snprintf(device, sizeof(device), "%s", args->argv[0]);
	} else {
		find_attached(args->argv[0], device);
	}
	if (detach_device(device, err, sizeof(err)) != 0)
		die("%s", err);
}

static const struct command {
	const char *name;
	const char *args;
	const char *help;
	int min_args, max_args;
	void (*run)(const struct args *args);
	const char *options; /* the letters it takes; j is --json */
} commands[] = {
	{ "list", "", "the devices", 0, 0, run_list, "j" },
	{ "get", "NAME [ATTRIBUTE]", "its settings, or the value of one", 1, 2,
	    run_get, "j" },
	{ "set", "NAME ATTRIBUTE VALUE", "change one that is live", 2, 3,
	    run_set, "j" },
	{ "badblocks", "NAME [list|clear|add|remove [RANGE]...]",
	    "bad blocks, as sectors 8-15", 1, INT_MAX, run_badblocks, "j" },
	{ "zone", "ACTION NAME [-o SECTOR] [-c COUNT|-l SECTORS|-a]",
	    "report, open, close, finish, reset zones", 2, 2, run_zone,
	    "jocla" },
	{ "stat", "NAME", "the fields of /sys/block/NAME/stat", 1, 1, run_stat,
	    "j" },
	{ "inflight", "NAME", "those of /sys/block/NAME/inflight", 1, 1,
	    run_inflight, "j" },
	{ "iostat", "[-x] [NAME] [INTERVAL [COUNT]]",
	    "what iostat prints: first since power-on, then in each interval",
	    0, 3, run_iostat, "xj" },
	{ "diskstats", "[-s] [NAME]", "fio's \"Disk stats\" line", 0, 1,
	    run_diskstats, "sj" },
	{ "segments", "NAME", "bvecs, segments, splits, refused merges", 1, 1,
	    run_segments, "j" },
	{ "queue", "NAME", "limits, the plug's rules, tags, hardware queues", 1,
	    1, run_queue, "j" },
	{ "trace", "NAME [-o FILE] [-w SECONDS]",
	    "trace to FILE.blktrace.N, for blkparse; - is standard output", 1,
	    1, run_trace, "ow" },
	{ "clients", "", "who is connected", 0, 0, run_clients, "j" },
	{ "kick", "ID", "hang up on one of them", 1, 1, run_kick, "j" },
	{ "uri", "NAME", "where it is served, an NBD URI a line", 1, 1, run_uri,
	    "j" },
	{ "attach", "[OPTION]... NAME [/dev/nbdN]",
	    "make it this, or the first free, block device: printed", 1, 2,
	    run_attach, "Ctbpr" },
	{ "detach", "NAME | /dev/nbdN", "undo that, if it is not in use", 1, 1,
	    run_detach, "" },
	{ "help", "[ATTRIBUTE]", "what the attributes are; asks no daemon", 0,
	    1, run_help, "" },
	{},
};

/* ---- the command line */

static void
usage(FILE *out)
{
	fputs("usage: nullbctl [--control PATH] [--json] COMMAND ...\n\n", out);
	for (const struct command *c = commands; c->name != NULL; c++)
		fprintf(out, "  %-10s %-32s %s\n", c->name, c->args, c->help);
	fprintf(out,
	    "\n"
	    "  --control PATH  where the daemon listens: else $NULLBD_CONTROL, "
	    "else\n"
	    "                  %s\n"
	    "  --json          print the answer as it comes\n"
	    "  -x, --extended  of iostat: the columns of iostat -x\n"
	    "  -s, --sectors   of diskstats: with sectors=, as fio has it "
	    "since 3.36\n"
	    "  -o, --output FILE, -w, --seconds N   of trace: else NAME, until "
	    "^C\n"
	    "  -o, --offset SECTOR, -c, --count N, -l, --length SECTORS, -a, "
	    "--all\n"
	    "                  of zone: which ones, as of blkzone; -a: all but "
	    "conventional\n"
	    "  -C, --connections N, -t, --timeout SECONDS, -b, --block-size "
	    "BYTES,\n"
	    "  -p, --persist, -r, --raw   of attach: connections to the daemon "
	    "(one\n"
	    "                  a loop), how long a request may take, the "
	    "device's block,\n"
	    "                  requests wait for a daemon that is gone, and: "
	    "nothing is\n"
	    "                  merged or split in this machine's kernel\n"
	    "  --help, --version\n"
	    "\n"
	    "Exit status: 0 done; 1 no daemon there, or it refused; 2 wrong "
	    "usage.\n",
	    CTL_SOCKET);
}

static void
bad_usage(void)
{
	usage(stderr);
	exit(EXIT_USAGE);
}

/* None but its own? */
static bool
takes_options(const struct command *c, const struct args *args)
{
	for (char letter = 1; letter < CHAR_MAX; letter++)
		if (given(args, letter) && strchr(c->options, letter) == NULL)
			return false;
	return true;
}

static void
bad_command(const struct command *c)
{
	fprintf(stderr, "usage: nullbctl %s %s\n(nullbctl --help says more)\n",
	    c->name, c->args);
	exit(EXIT_USAGE);
}

static void
run(const char *name, struct args *args)
{
	for (const struct command *c = commands; c->name != NULL; c++) {
		if (strcmp(c->name, name) != 0)
			continue;
		if (args->argc < c->min_args || args->argc > c->max_args ||
		    !takes_options(c, args))
			bad_command(c);
		c->run(args);
		return;
	}
	fprintf(stderr,
	    "nullbctl: %s: no such command (nullbctl --help lists them)\n",
	    name);
	exit(EXIT_USAGE);
}

int
main(int argc, char **argv)
{
	enum {
		OPT_CONTROL = 256,
		OPT_JSON,
		OPT_HELP,
		OPT_VERSION
	};
	static const struct option options[] = {
		{ "control", required_argument, NULL, OPT_CONTROL },
		{ "json", no_argument, NULL, OPT_JSON },
		{ "output", required_argument, NULL, 'o' },
		{ "seconds", required_argument, NULL, 'w' },
		{ "extended", no_argument, NULL, 'x' },
		{ "sectors", no_argument, NULL, 's' },
		{ "connections", required_argument, NULL, 'C' },
		{ "timeout", required_argument, NULL, 't' },
		{ "block-size", required_argument, NULL, 'b' },
		{ "persist", no_argument, NULL, 'p' },
		{ "raw", no_argument, NULL, 'r' },
		{ "offset", required_argument, NULL, 'o' },
		{ "count", required_argument, NULL, 'c' },
		{ "length", required_argument, NULL, 'l' },
		{ "all", no_argument, NULL, 'a' },
		{ "help", no_argument, NULL, OPT_HELP },
		{ "version", no_argument, NULL, OPT_VERSION },
		{},
	};
	struct args args = {};
	int opt;

	client.control = getenv("NULLBD_CONTROL");
	if (client.control == NULL)
		client.control = CTL_SOCKET;
	while ((opt = getopt_long(
		    argc, argv, "xso:w:C:t:b:prc:l:a", options, NULL)) != -1)
		switch (opt) {
		case OPT_CONTROL: client.control = optarg; break;
		case OPT_JSON:
			args.option['j'] = "";
			client.json = true;
			break;
		case 'x':
		case 's':
		case 'p':
		case 'a':
		case 'r': args.option[opt] = ""; break;
		case 'o':
		case 'c':
		case 'l':
		case 'w':
		case 'C':
		case 't':
		case 'b': args.option[opt] = optarg; break;
		case OPT_HELP: usage(stdout); return EXIT_DONE;
		case OPT_VERSION:
			printf("nullbctl %s\n", NULLBD_VERSION);
			return EXIT_DONE;
		default:
			if (isdigit(optopt))
				fputs("nullbctl: an operand that begins with - "
				      "goes behind --\n",
				    stderr);
			bad_usage();
		}
	if (optind == argc)
		bad_usage();
	args.argv = argv + optind + 1;
	args.argc = argc - optind - 1;
	run(argv[optind], &args);
	if (client.answers != NULL)
		fclose(client.answers);
	if (fflush(stdout) != 0)
		die("standard output: %s", strerror(errno));
	return EXIT_DONE;
}
