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
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "attach.h"
#include "base/nearest.h"
#include "ctl/blktrace.h"
#include "ctl/ctl.h"
#include "report.h"

#define ALL_SECTORS "0-18446744073709551615"

struct args;

static void bad_command(const struct args *) __attribute__((noreturn));

/* ---- commands */

struct args {
	const struct command *command;
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

/* None but its own? */
static bool
takes_letters(const char *letters, const struct args *args)
{
	for (char letter = 1; letter < CHAR_MAX; letter++)
		if (given(args, letter) && strchr(letters, letter) == NULL)
			return false;
	return true;
}

static void
run_list(const struct args *args)
{
	json_t *answer = ask("list", NULL, NULL), *d;
	size_t i;

	(void)args;
	if (asking.json)
		return;
	printf("%-31s %5s %20s %9s %13s %12s %s\n", "NAME", "POWER", "SIZE",
	    "BLOCKSIZE", "MEMORY_BACKED", "MEMORY", "KERNEL");
	json_array_foreach(json_object_get(answer, "devices"), i, d)
		printf("%-31s %5s %20" PRIu64 " %9d %13d %12" PRIu64 " %s\n",
		    ask_string(d, "name"),
		    json_is_true(json_object_get(d, "power")) ? "on" : "off",
		    (uint64_t)json_integer_value(json_object_get(d, "size")),
		    (int)json_integer_value(json_object_get(d, "blocksize")),
		    json_is_true(json_object_get(d, "memory_backed")),
		    (uint64_t)json_integer_value(json_object_get(d, "memory")),
		    ask_string(d, "kernel"));
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
	if (asking.json)
		return;
	if (args->argc > 1)
		printf("%s\n", ask_string(answer, "value"));
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
		bad_command(args);
	if (args->argc == 2)
		*value++ = '\0';
	json_decref(ask_to_set("set", args->argv[0], attribute, value));
}

/* One more value of an attribute: the second makes an array of them. */
static void
add_value(json_t *attributes, const char *name, const char *value)
{
	json_t *text = json_string(value), *had, *list;

	if (text == NULL)
		die("create: %s: not UTF-8", name);
	had = json_object_get(attributes, name);
	if (had == NULL) {
		json_object_set_new(attributes, name, text);
		return;
	}
	if (json_is_array(had)) {
		json_array_append_new(had, text);
		return;
	}
	list = json_pack("[O, o]", had, text);
	json_object_set_new(attributes, name, list);
}

static void
run_create(const struct args *args)
{
	json_t *attributes = json_object();

	for (int i = 1; i < args->argc; i++) {
		char *name = args->argv[i], *value = strchr(name, '=');

		if (value == NULL) {
			fprintf(stderr,
			    "nullbctl: create: \"%.60s\": allowed: "
			    "ATTRIBUTE=VALUE\n",
			    name);
			exit(EXIT_USAGE);
		}
		*value++ = '\0';
		add_value(attributes, name, value);
	}
	json_decref(ask_with(
	    "create", json_pack("{s:s, s:s, s:o}", "command", "create", "name",
			  args->argv[0], "attributes", attributes)));
}

static void
run_remove(const struct args *args)
{
	json_decref(ask("remove", args->argv[0], NULL));
}

/* Spelled out: for the kernel "of" is off, and clients would be gone. */
static void
run_snapshot(const struct args *args)
{
	json_decref(ask_with(
	    "snapshot", json_pack("{s:s, s:s, s:s}", "command", "snapshot",
			    "name", args->argv[0], "new", args->argv[1])));
}

static void
run_power(const struct args *args)
{
	static const char *const words[] = { "on", "off", "1", "0", NULL };
	const char *const *word = words;

	while (*word != NULL && strcmp(*word, args->argv[1]) != 0)
		word++;
	if (*word == NULL) {
		fprintf(stderr, "nullbctl: power: \"%s\": allowed: on, off\n",
		    args->argv[1]);
		exit(EXIT_USAGE);
	}
	json_decref(ask_to_set("power", args->argv[0], NULL, args->argv[1]));
}

static void
run_mark(const struct args *args)
{
	json_decref(ask_to_set("mark", args->argv[0], NULL, args->argv[1]));
}

/* Long options only: their letters are nobody else's. */
#define LOSE   'L'
#define TEAR   'T'
#define SEED   'S'
#define AT     'A'
#define ON     'O'
#define CANCEL 'X'

static json_t *
pack_count(const struct args *args, char letter, const char *what)
{
	const char *text = args->option[(int)letter];
	uint64_t n = 0;

	if (text == NULL)
		return NULL;
	if (uint_parse(text, NULL, &n) == 0 && n > 0 && n <= INT64_MAX)
		return json_integer((json_int_t)n);
	fprintf(stderr,
	    "nullbctl: power-cut: %s: \"%.60s\": allowed: 1 to %" PRId64 "\n",
	    what, text, INT64_MAX);
	exit(EXIT_USAGE);
}

static json_t *
pack_cut(const struct args *args)
{
	if (given(args, CANCEL))
		return json_pack("{s:s, s:s, s:b}", "command", "power_cut",
		    "name", args->argv[0], "cancel", 1);
	return json_pack("{s:s, s:s, s:s*, s:s*, s:o*, s:o*, s:b}", "command",
	    "power_cut", "name", args->argv[0], "lose", args->option[LOSE],
	    "tear", args->option[TEAR], "seed",
	    pack_count(args, SEED, "--seed"), "at",
	    pack_count(args, AT, "--at"), "on", given(args, ON));
}

static uint64_t
member(const json_t *object, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(object, name));
}

static void
print_cut(const char *name, const json_t *cut)
{
	const char *error = json_string_value(json_object_get(cut, "error"));

	printf("%s: %" PRIu64 " writes not flushed, %" PRIu64 " lost, %" PRIu64
	       " torn; seed=%" PRIu64 "\n",
	    name, member(cut, "writes"), member(cut, "lost"),
	    member(cut, "torn"), member(cut, "seed"));
	if (error != NULL)
		fprintf(stderr,
		    "nullbctl: %s: %s: not all is there that was to stay, or "
		    "lost that was to be lost\n",
		    name, error);
}

static void
run_power_cut(const struct args *args)
{
	const char *name = args->argv[0];
	const json_t *cut;
	json_t *answer;

	if (given(args, CANCEL) && !takes_letters("jX", args))
		bad_command(args);
	answer = ask_with("power_cut", pack_cut(args));
	cut = json_object_get(answer, "cut");
	if (asking.json || given(args, CANCEL))
		return;
	if (cut == NULL && json_object_get(answer, "seed") == NULL)
		printf("%s: removed meanwhile\n", name);
	else if (cut == NULL)
		printf("%s: armed; seed=%" PRIu64 "\n", name,
		    member(answer, "seed"));
	else
		print_cut(name, cut);
	json_decref(answer);
}

static void
run_features(const struct args *args)
{
	(void)args;
	disk_features(stdout);
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
			bad_command(args);
		for (int i = 2; i < args->argc; i++)
			change_badblocks(name, add ? '+' : '-', args->argv[i]);
		return;
	}
	if (args->argc > 2)
		bad_command(args);
	if (strcmp(what, "clear") == 0) {
		change_badblocks(name, '-', ALL_SECTORS);
		return;
	}
	if (strcmp(what, "list") != 0)
		bad_command(args);
	answer = ask("get", name, "badblocks");
	value = ask_string(answer, "value");
	if (!asking.json && *value != '\0')
		printf("%s\n", value);
	json_decref(answer);
}

/* An answer that is one object, which `print` knows how to show. */
static void
show(const char *command, const char *name,
    int (*print)(json_t *json, FILE *out))
{
	json_t *answer = ask(command, name, NULL);

	if (!asking.json &&
	    print(json_object_get(answer, command), stdout) != 0)
		die("%s: an answer without what %s is about", asking.control,
		    command);
	json_decref(answer);
}

/* ---- fault */

static uint64_t
fault_number(const char *what, const char *text)
{
	uint64_t n;

	if (uint_parse(text, NULL, &n) == 0 && n > 0 && n <= INT64_MAX)
		return n;
	fprintf(stderr,
	    "nullbctl: fault: %s: \"%.60s\": allowed: a number from 1 on\n",
	    what, text);
	exit(EXIT_USAGE);
}

/* Of a rule, or of all: `id` NULL. */
static json_t *
ask_fault(const char *command, const char *name, const char *id)
{
	json_t *request =
	    json_pack("{s:s, s:s}", "command", command, "name", name);

	if (id != NULL)
		json_object_set_new(request, "id",
		    json_integer((json_int_t)fault_number("ID", id)));
	return ask_with(command, request);
}

static void
fault_add(const struct args *args)
{
	json_t *answer =
	    ask_to_set("fault_add", args->argv[0], NULL, args->argv[2]);

	if (!asking.json)
		printf("%" JSON_INTEGER_FORMAT "\n",
		    json_integer_value(json_object_get(answer, "id")));
	json_decref(answer);
}

static void
fault_list(const struct args *args)
{
	show("faults", args->argv[0], faults_print);
}

static void
fault_log(const struct args *args)
{
	json_t *answer = ask("fault_log", args->argv[0], NULL);

	if (!asking.json &&
	    faults_print_log(json_object_get(answer, "log"), stdout) != 0)
		die("%s: an answer without a log", asking.control);
	json_decref(answer);
}

static void
fault_remove(const struct args *args)
{
	const char *id = args->argv[2];

	if (strcmp(id, "all") == 0)
		id = NULL;
	json_decref(ask_fault("fault_remove", args->argv[0], id));
}

static void
fault_release(const struct args *args)
{
	const char *id = args->argc > 2 ? args->argv[2] : NULL;

	if (id != NULL && strcmp(id, "all") == 0)
		id = NULL;
	json_decref(ask_fault("fault_release", args->argv[0], id));
}

/* Die unless an answer begins to come in so many seconds. */
static void
await_answer(const char *name, const char *id, const char *seconds)
{
	uint64_t limit = fault_number("--timeout", seconds);
	struct pollfd p = { .fd = asking.fd, .events = POLLIN };
	int ms = limit < INT_MAX / 1000 ? (int)limit * 1000 : INT_MAX;

	if (poll(&p, 1, ms) == 0)
		die("%s: fault %s: not hit so often in %s s", name, id,
		    seconds);
}

static void
fault_wait(const struct args *args)
{
	const char *name = args->argv[0], *id = args->argv[2];
	json_t *request = json_pack("{s:s, s:s, s:I}", "command", "fault_wait",
	    "name", name, "id", (json_int_t)fault_number("ID", id));

	if (given(args, 'n'))
		json_object_set_new(request, "hits",
		    json_integer(
			(json_int_t)fault_number("--hits", args->option['n'])));
	ask_send("fault_wait", request);
	if (given(args, 't'))
		await_answer(name, id, args->option['t']);
	json_decref(ask_take());
}

/* What `nullbctl fault NAME` may go on with, and how many words that takes. */
static const struct {
	const char *name;
	int min_args, max_args;
	void (*run)(const struct args *args);
	const char *options;
} fault_commands[] = {
	{ "list", 1, 2, fault_list, "j" },
	{ "add", 3, 3, fault_add, "j" },
	{ "remove", 3, 3, fault_remove, "j" },
	{ "release", 2, 3, fault_release, "j" },
	{ "wait", 3, 3, fault_wait, "nt" },
	{ "log", 2, 2, fault_log, "j" },
	{},
};

static void
run_fault(const struct args *args)
{
	const char *what = args->argc > 1 ? args->argv[1] : "list";

	for (int i = 0; fault_commands[i].name != NULL; i++) {
		if (strcmp(fault_commands[i].name, what) != 0 ||
		    args->argc < fault_commands[i].min_args ||
		    args->argc > fault_commands[i].max_args ||
		    !takes_letters(fault_commands[i].options, args))
			continue;
		fault_commands[i].run(args);
		return;
	}
	bad_command(args);
}

/* ---- zone */

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
		if (!asking.json &&
		    zoneinfo_print(json_object_get(answer, "zones"), stdout) !=
			0)
			die("%s: an answer without zones", asking.control);
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
		bad_command(args);
	if (given(args, 'a') &&
	    (given(args, 'o') || given(args, 'c') || given(args, 'l')))
		bad_command(args);
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

	if (!asking.json)
		printf("%s\n", ask_string(answer, command));
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

/* Until the daemon ends. */
static void
run_watch(const struct args *args)
{
	bool ends = false;
	json_t *event;

	setvbuf(stdout, NULL, _IOLBF, 0);
	json_decref(ask("watch", args->argc > 0 ? args->argv[0] : NULL, NULL));
	while (!ends && (event = ask_next()) != NULL) {
		if (!asking.json && event_print(event, stdout) != 0)
			die("%s: what comes is no event", asking.control);
		ends = strcmp(ask_string(event, "event"), "shutdown") == 0;
		json_decref(event);
	}
	if (!ends)
		die("%s: the daemon hung up", asking.control);
}

static void
run_metrics(const struct args *args)
{
	json_t *answer = ask("metrics", NULL, NULL);

	(void)args;
	if (!asking.json)
		fputs(ask_string(answer, "metrics"), stdout);
	json_decref(answer);
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
	if (!asking.json)
		json_array_foreach(json_object_get(answer, "devices"), i, d)
			printf("%s\n", ask_string(d, form));
	json_decref(answer);
}

/* Every row that bears the name: memory_limit is in both tables. */
static void
help_attribute(const char *name)
{
	const struct attr *of_disk = attr_find(disk_attrs, name);
	const struct attr *of_daemon = attr_find(daemon_attrs, name);
	char err[CTL_MAX_ERROR];

	if (of_disk == NULL && of_daemon == NULL) {
		bool near_disk = attr_nearest(disk_attrs, name) != NULL;

		attr_missing(near_disk ? disk_attrs : daemon_attrs, name, err,
		    sizeof(err));
		fprintf(stderr, "nullbctl: %s\n", err);
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

/* ---- what repeats */

static void
run_iostat(const struct args *args)
{
	struct repeat r = repeat_parse("iostat", args->argc, args->argv);

	report_iostat(&r, given(args, 'x'));
}

static void
run_latency(const struct args *args)
{
	struct repeat r =
	    repeat_parse("latency", args->argc - 1, args->argv + 1);

	if (r.name != NULL) {
		fputs("nullbctl: latency: an interval is seconds, "
		      "more than 0\n",
		    stderr);
		exit(EXIT_USAGE);
	}
	r.name = args->argv[0];
	report_latency(&r);
}

static void
run_top(const struct args *args)
{
	struct repeat r = repeat_parse("top", args->argc, args->argv);

	report_top(&r);
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
	shutdown(asking.fd, SHUT_WR);
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
			die("%s: what comes is not a trace", asking.control);
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
		n = read(asking.fd, t->in + t->nr_in, sizeof(t->in) - t->nr_in);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die("%s: %s", asking.control, strerror(errno));
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

	ask_connect();
	/* nothing of what follows the answer may stay in a buffer */
	setvbuf(asking.answers, NULL, _IONBF, 0);
	stop_on(SIGINT);
	stop_on(SIGTERM);
	stop_on(SIGALRM);
	answer = ask("trace", name, NULL);
	t.nr_cpus =
	    (unsigned)json_integer_value(json_object_get(answer, "cpus"));
	json_decref(answer);
	if (t.nr_cpus == 0 || t.nr_cpus > BLKTRACE_MAX_CPUS)
		die("%s: an answer without cpus", asking.control);
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

	if (!asking.json)
		json_array_foreach(json_object_get(answer, "places"), i, p)
			printf("%s\n", ask_string(p, "uri"));
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
	{ "create", "NAME [ATTRIBUTE=VALUE]...",
	    "make a device, on unless power=0", 1, INT_MAX, run_create, "j" },
	{ "remove", "NAME", "power it off, and forget it and its data", 1, 1,
	    run_remove, "j" },
	{ "power", "NAME on|off", "the same as set NAME power 1|0", 2, 2,
	    run_power, "j" },
	{ "power-cut", "NAME [OPTION]...",
	    "off without a word: what was not flushed is lost", 1, 1,
	    run_power_cut, "jLTSAOX" },
	{ "mark", "NAME TEXT", "in its crash_log, for nullb-replay --until", 2,
	    2, run_mark, "j" },
	{ "snapshot", "NAME NEW",
	    "make a device with the data of another, which they share", 2, 2,
	    run_snapshot, "j" },
	{ "badblocks", "NAME [list|clear|add|remove [RANGE]...]",
	    "bad blocks, as sectors 8-15", 1, INT_MAX, run_badblocks, "j" },
	{ "fault", "NAME [list|add|remove|release|wait|log] ...",
	    "rules that make requests fail", 1, 3, run_fault, "jnt" },
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
	{ "latency", "NAME [INTERVAL [COUNT]]",
	    "percentiles, as fio prints them: likewise", 1, 3, run_latency,
	    "j" },
	{ "top", "[NAME] [INTERVAL [COUNT]]",
	    "IOPS, MB/s, merges, depth, latency, live", 0, 3, run_top, "j" },
	{ "diskstats", "[-s] [NAME]", "fio's \"Disk stats\" line", 0, 1,
	    run_diskstats, "sj" },
	{ "segments", "NAME", "bvecs, segments, splits, refused merges", 1, 1,
	    run_segments, "j" },
	{ "queue", "NAME", "limits, the plug's rules, tags, hardware queues", 1,
	    1, run_queue, "j" },
	{ "trace", "NAME [-o FILE] [-w SECONDS]",
	    "trace to FILE.blktrace.N, for blkparse; - is standard output", 1,
	    1, run_trace, "ow" },
	{ "metrics", "", "all that was counted, as Prometheus reads it", 0, 0,
	    run_metrics, "j" },
	{ "watch", "[NAME]", "what happens, a line each, until it ends", 0, 1,
	    run_watch, "j" },
	{ "clients", "", "who is connected", 0, 0, run_clients, "j" },
	{ "kick", "ID", "hang up on one of them", 1, 1, run_kick, "j" },
	{ "uri", "NAME", "where it is served, an NBD URI a line", 1, 1, run_uri,
	    "j" },
	{ "attach", "[OPTION]... NAME [/dev/nbdN]",
	    "make it this, or the first free, block device: printed", 1, 2,
	    run_attach, "Ctbpr" },
	{ "detach", "NAME | /dev/nbdN", "undo that, if it is not in use", 1, 1,
	    run_detach, "" },
	{ "features", "",
	    "null_blk's attributes that there are; asks no daemon", 0, 0,
	    run_features, "" },
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
	    "  -n, --hits N, -t, --timeout SECONDS   of fault NAME wait ID: "
	    "until it has\n"
	    "                  hit N times, else 1; for so long, else "
	    "for ever\n"
	    "  --lose all|random|ordered, --tear none|512|4096   of power-cut: "
	    "writes that\n"
	    "                  were not flushed: which are lost (else all), "
	    "and "
	    "by what\n"
	    "                  units those in flight are torn (else not at "
	    "all)\n"
	    "  --seed N, --at N, --on, --cancel   of power-cut: of what is "
	    "drawn; with the\n"
	    "                  Nth request that is no read; on again by "
	    "itself; not to come\n"
	    "  --help, --version\n"
	    "\n"
	    "Exit status: 0 done; 1 no daemon there, or it refused; 2 wrong "
	    "usage.\n",
	    CTL_SOCKET);
}

_Noreturn static void
bad_usage(void)
{
	usage(stderr);
	exit(EXIT_USAGE);
}

static void
bad_command(const struct args *args)
{
	const struct command *c = args->command;

	fprintf(stderr, "usage: nullbctl %s%s%s\n(nullbctl --help says more)\n",
	    c->name, *c->args != '\0' ? " " : "", c->args);
	exit(EXIT_USAGE);
}

static void
run(const char *name, struct args *args)
{
	struct nearest n = { .given = name };

	for (const struct command *c = commands; c->name != NULL; c++) {
		if (strcmp(c->name, name) != 0)
			continue;
		args->command = c;
		if (args->argc < c->min_args || args->argc > c->max_args ||
		    !takes_letters(c->options, args))
			bad_command(args);
		c->run(args);
		return;
	}
	for (const struct command *c = commands; c->name != NULL; c++)
		nearest_try(&n, c->name);
	if (n.name != NULL)
		fprintf(stderr, "nullbctl: %s: no such command; is it %s?\n",
		    name, n.name);
	else
		fprintf(stderr,
		    "nullbctl: %s: no such command (nullbctl --help lists "
		    "them)\n",
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
		{ "hits", required_argument, NULL, 'n' },
		{ "persist", no_argument, NULL, 'p' },
		{ "raw", no_argument, NULL, 'r' },
		{ "offset", required_argument, NULL, 'o' },
		{ "count", required_argument, NULL, 'c' },
		{ "length", required_argument, NULL, 'l' },
		{ "all", no_argument, NULL, 'a' },
		{ "lose", required_argument, NULL, LOSE },
		{ "tear", required_argument, NULL, TEAR },
		{ "seed", required_argument, NULL, SEED },
		{ "at", required_argument, NULL, AT },
		{ "on", no_argument, NULL, ON },
		{ "cancel", no_argument, NULL, CANCEL },
		{ "help", no_argument, NULL, OPT_HELP },
		{ "version", no_argument, NULL, OPT_VERSION },
		{},
	};
	struct args args = {};
	int opt;

	argv[0] = program_invocation_short_name; /* as getopt() has it */
	asking.control = getenv("NULLBD_CONTROL");
	if (asking.control == NULL)
		asking.control = CTL_SOCKET;
	while ((opt = getopt_long(
		    argc, argv, "xso:w:C:t:b:n:prc:l:a", options, NULL)) != -1)
		switch (opt) {
		case OPT_CONTROL: asking.control = optarg; break;
		case OPT_JSON:
			args.option['j'] = "";
			asking.json = true;
			break;
		case 'x':
		case 's':
		case 'p':
		case 'a':
		case ON:
		case CANCEL:
		case 'r': args.option[opt] = ""; break;
		case 'o':
		case 'c':
		case 'l':
		case 'w':
		case 'C':
		case 't':
		case 'n':
		case LOSE:
		case TEAR:
		case SEED:
		case AT:
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
	if (asking.answers != NULL)
		fclose(asking.answers);
	if (fflush(stdout) != 0)
		die("standard output: %s", strerror(errno));
	return EXIT_DONE;
}
