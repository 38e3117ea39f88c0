/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

#define ON_NS    UINT64_C(1000000000)
#define NOW_NS   UINT64_C(3000000000)
#define NR_DISKS 3u

static struct machine *machine;
static struct page_pool *pool;
static struct disk *disks[NR_DISKS];
static struct ctl ctl = { .disks = disks, .nr_disks = NR_DISKS };

/* nullb0 is new, "old" plays 4.14, "off" has no power. */
static int
setup(void **state)
{
	static const char *names[] = { "nullb0", "old", "off" };
	char err[256];

	(void)state;
	machine = machine_new(1, NULL, NULL);
	pool = page_pool_new(machine, 0);
	for (unsigned i = 0; i < NR_DISKS; i++)
		disks[i] = disk_new(names[i], machine, pool);
	attr_set(disk_attrs, &disks[0]->set, "memory_backed", "1", false, err,
	    sizeof(err));
	attr_set(disk_attrs, &disks[1]->set, "kernel", "4.14", false, err,
	    sizeof(err));
	attr_set(
	    disk_attrs, &disks[1]->set, "index", "1", false, err, sizeof(err));
	for (unsigned i = 0; i < 2; i++)
		if (disk_power_on(disks[i], ON_NS, err, sizeof(err)) != 0)
			return 1;
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < NR_DISKS; i++)
		disk_free(disks[i]);
	page_pool_free(pool);
	machine_free(machine);
	return 0;
}

static json_t *
ask(const char *request)
{
	char *line = ctl_request(&ctl, &ctl, request, strlen(request), NOW_NS);
	json_t *answer;

	assert_non_null(line);
	assert_int_equal(line[strlen(line) - 1], '\n');
	assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
	answer = json_loads(line, 0, NULL);
	assert_true(json_is_object(answer));
	free(line);
	return answer;
}

/* Ask for what is refused. */
static void
assert_refused(const char *request, const char *name, const char *sentence)
{
	json_t *answer = ask(request);

	assert_true(json_is_false(json_object_get(answer, "ok")));
	assert_string_equal(
	    json_string_value(json_object_get(answer, "errno")), name);
	if (sentence != NULL)
		assert_string_equal(
		    json_string_value(json_object_get(answer, "error")),
		    sentence);
	json_decref(answer);
}

/* Ask for one string. */
static void
assert_answer(const char *request, const char *member, const char *value)
{
	json_t *answer = ask(request);

	assert_true(json_is_true(json_object_get(answer, "ok")));
	assert_string_equal(
	    json_string_value(json_object_get(answer, member)), value);
	json_decref(answer);
}

static void
gets_one_attribute_as_null_blk_prints_it(void **state)
{
	(void)state;
	assert_answer("{\"command\":\"get\",\"name\":\"nullb0\","
		      "\"attribute\":\"size\"}",
	    "value", "256000");
	assert_answer("{\"command\":\"get\",\"name\":\"nullb0\","
		      "\"attribute\":\"queue/max_sectors_kb\"}\n",
	    "value", "127");
	assert_answer("{\"command\":\"get\",\"name\":\"off\","
		      "\"attribute\":\"irqmode\"}",
	    "value", "1");
	assert_answer("{\"command\":\"get\",\"name\":\"old\","
		      "\"attribute\":\"kernel\"}",
	    "value", "4.14");
}

static void
gets_all_attributes_in_the_order_of_the_table(void **state)
{
	json_t *answer = ask("{\"command\":\"get\",\"name\":\"nullb0\"}");
	json_t *all = json_object_get(answer, "attributes"), *value;
	const struct attr *a = disk_attrs;
	const char *name;
	char full[64];

	(void)state;
	json_object_foreach(all, name, value) {
		snprintf(full, sizeof(full), "%s%s", attr_prefix(a), a->name);
		assert_string_equal(name, full);
		assert_true(json_is_string(value));
		a++;
	}
	assert_null(a->name);
	json_decref(answer);
}

static void
lists_devices_that_are_on_and_off(void **state)
{
	json_t *answer = ask("{\"command\":\"list\"}");
	json_t *list = json_object_get(answer, "devices"), *d;

	(void)state;
	assert_int_equal(json_array_size(list), NR_DISKS);
	d = json_array_get(list, 0);
	assert_string_equal(
	    json_string_value(json_object_get(d, "name")), "nullb0");
	assert_true(json_is_true(json_object_get(d, "power")));
	assert_int_equal(json_integer_value(json_object_get(d, "size")),
	    INT64_C(256000) << 20);
	d = json_array_get(list, 2);
	assert_true(json_is_false(json_object_get(d, "power")));
	json_decref(answer);
}

static unsigned
fields_of(const char *request)
{
	json_t *answer = ask(request);
	const char *s = json_string_value(json_object_get(answer, "stat"));
	unsigned n = 0;

	assert_null(strchr(s, '\n'));
	while (*(s += strspn(s, " ")) != '\0') {
		s += strcspn(s, " ");
		n++;
	}
	json_decref(answer);
	return n;
}

static void
shows_as_many_fields_of_stat_as_the_kernel(void **state)
{
	(void)state;
	assert_int_equal(
	    fields_of("{\"command\":\"stat\",\"name\":\"nullb0\"}"), 17);
	assert_int_equal(
	    fields_of("{\"command\":\"stat\",\"name\":\"old\"}"), 11);
	assert_refused("{\"command\":\"stat\",\"name\":\"off\"}", "ENODEV",
	    "off: the power is off");
}

static void
shows_the_lines_of_diskstats_and_fio(void **state)
{
	json_t *answer = ask("{\"command\":\"diskstats\",\"name\":\"old\"}");
	json_t *list = json_object_get(answer, "devices"),
	       *d = json_array_get(list, 0);

	(void)state;
	assert_int_equal(json_array_size(list), 1);
	assert_string_equal(json_string_value(json_object_get(d, "diskstats")),
	    "   0       1 old 0 0 0 0 0 0 0 0 0 0 0");
	assert_string_equal(json_string_value(json_object_get(d, "fio")),
	    "  old: ios=0/0, merge=0/0, ticks=0/0, in_queue=0, util=0.00%");
	assert_string_equal(
	    json_string_value(json_object_get(d, "fio_sectors")),
	    "  old: ios=0/0, sectors=0/0, merge=0/0, ticks=0/0, in_queue=0, "
	    "util=0.00%");
	json_decref(answer);
}

static void
shows_what_is_in_flight(void **state)
{
	(void)state; /* as sysfs does: "%8u %8u" */
	assert_answer("{\"command\":\"inflight\",\"name\":\"nullb0\"}",
	    "inflight", "       0        0");
	assert_refused("{\"command\":\"inflight\",\"name\":\"off\"}", "ENODEV",
	    "off: the power is off");
}

/* A command whose answer has an object of the same name. */
static void
assert_object(const char *command)
{
	char request[80];
	json_t *answer;

	snprintf(request, sizeof(request),
	    "{\"command\":\"%s\",\"name\":\"old\"}", command);
	answer = ask(request);
	assert_string_equal(json_string_value(json_object_get(
				json_object_get(answer, command), "kernel")),
	    "4.14");
	json_decref(answer);
	snprintf(request, sizeof(request),
	    "{\"command\":\"%s\",\"name\":\"off\"}", command);
	assert_refused(request, "ENODEV", "off: the power is off");
	snprintf(request, sizeof(request), "{\"command\":\"%s\"}", command);
	assert_refused(request, "EINVAL", NULL);
}

static void
looks_into_a_queue(void **state)
{
	json_t *answer;

	(void)state; /* what is in the objects: unit/segments, queueinfo */
	assert_object("segments");
	assert_object("queue");
	answer = ask("{\"command\":\"latency\",\"name\":\"old\"}");
	assert_int_equal(
	    json_integer_value(json_object_get(answer, "on_ns")), ON_NS);
	assert_true(json_is_object(
	    json_object_get(json_object_get(answer, "latency"), "flush")));
	json_decref(answer);
	assert_refused("{\"command\":\"latency\",\"name\":\"off\"}", "ENODEV",
	    "off: the power is off");
}

static void
gives_samples_of_all_devices_that_are_on(void **state)
{
	json_t *answer = ask("{\"command\":\"iostat\"}");
	json_t *list = json_object_get(answer, "devices"), *d;
	struct sample s;
	size_t i;

	(void)state;
	assert_int_equal(json_array_size(list), 2);
	json_array_foreach(list, i, d) {
		assert_int_equal(
		    sample_unpack(json_object_get(d, "sample"), &s), 0);
		assert_int_equal(s.now_ns, NOW_NS);
		assert_int_equal(
		    json_integer_value(json_object_get(d, "on_ns")), ON_NS);
		assert_non_null(json_object_get(
		    json_object_get(d, "since_power_on"), "%util"));
	}
	json_decref(answer);
}

static void
refuses_with_a_name_and_a_sentence(void **state)
{
	(void)state;
	assert_refused("{\"command\":\"get\",\"name\":\"x\"}", "ENODEV",
	    "x: no such device");
	assert_refused("{\"command\":\"get\",\"name\":\"nullb0\","
		       "\"attribute\":\"x\"}",
	    "ENOENT", "x: no such attribute (nullbctl help lists them)");
	assert_refused("{\"command\":\"get\",\"name\":\"nullb0\","
		       "\"attribute\":\"queue/nr_request\"}",
	    "ENOENT",
	    "queue/nr_request: no such attribute; is it nr_requests?");
	assert_refused("{\"command\":\"get\"}", "EINVAL",
	    "get: of which device? \"name\" is missing");
	assert_refused("{\"command\":\"reboot\"}", "EINVAL",
	    "reboot: no such command (nullbd-control(7) lists them)");
	assert_refused("{\"command\":\"iostats\"}", "EINVAL",
	    "iostats: no such command; is it iostat?");
	assert_refused("{\"command\":\"iostat\",\"name\":\"off\"}", "ENODEV",
	    "off: the power is off");
	assert_refused(
	    "{\"command\":\"diskstats\",\"name\":\"\"}", "ENODEV", NULL);
}

/* What the daemon does for "trace": only notes who asked. */
static struct disk *traced;
static int trace_error;

static int
fake_trace(void *from, struct disk *d)
{
	assert_ptr_equal(from, &ctl);
	traced = d;
	return trace_error;
}

static void
lets_the_daemon_trace_what_is_on(void **state)
{
	json_t *answer;

	(void)state;
	assert_refused("{\"command\":\"trace\",\"name\":\"old\"}", "EOPNOTSUPP",
	    "old: cannot be traced");
	ctl.trace = fake_trace;
	answer = ask("{\"command\":\"trace\",\"name\":\"old\"}");
	assert_true(json_is_true(json_object_get(answer, "ok")));
	assert_int_equal(
	    json_integer_value(json_object_get(answer, "cpus")), 1);
	json_decref(answer);
	assert_ptr_equal(traced, disks[1]);
	trace_error = -EBUSY;
	assert_refused("{\"command\":\"trace\",\"name\":\"old\"}", "EBUSY",
	    "old: is being traced already");
	trace_error = -ENOMEM;
	assert_refused("{\"command\":\"trace\",\"name\":\"old\"}", "ENOMEM",
	    "old: no memory for a trace");
	assert_refused("{\"command\":\"trace\",\"name\":\"off\"}", "ENODEV",
	    "off: the power is off");
	assert_refused("{\"command\":\"trace\",\"name\":\"nope\"}", "ENODEV",
	    "nope: no such device");
	assert_refused("{\"command\":\"trace\"}", "EINVAL", NULL);
	ctl.trace = NULL;
}

/* What the daemon hears of changes. */
static char changed[256];

static void
fake_changed(void *from, const struct disk *d, const char *attribute,
    const char *value, bool settles)
{
	assert_ptr_equal(from, &ctl);
	snprintf(changed, sizeof(changed), "%s %s=%s%s", d->name, attribute,
	    value, settles ? " settles" : "");
}

static void
fake_settle(void *from, struct disk *d)
{
	char err[256];

	assert_ptr_equal(from, &ctl);
	while (disk_settle(d, NOW_NS, err, sizeof(err)) == -EINPROGRESS)
		cpu_run(machine->cpu, NOW_NS);
}

/* Told once; nothing is told of what is refused. */
static void
assert_changed(const char *request, const char *want)
{
	char *line;

	changed[0] = '\0';
	line = ctl_request(&ctl, &ctl, request, strlen(request), NOW_NS);
	free(line);
	assert_string_equal(changed, want);
}

static void
tells_the_daemon_of_changes(void **state)
{
	(void)state;
	ctl.changed = fake_changed;
	ctl.settle = fake_settle;
	assert_changed("{\"command\":\"set\",\"name\":\"off\","
		       "\"attribute\":\"bs\",\"value\":\"4096\"}",
	    "off bs=4096");
	assert_changed("{\"command\":\"set\",\"name\":\"off\","
		       "\"attribute\":\"bs\",\"value\":\"x\"}",
	    "");
	assert_changed("{\"command\":\"set\",\"name\":\"nullb0\","
		       "\"attribute\":\"nomerges\",\"value\":\"1\"}",
	    "nullb0 nomerges=1 settles");
	assert_changed("{\"command\":\"set\",\"name\":\"nullb0\","
		       "\"attribute\":\"size\",\"value\":\"1\"}",
	    "");
	assert_changed("{\"command\":\"fault_add\",\"name\":\"off\","
		       "\"value\":\"op=READ\"}",
	    "off faults=add,op=READ");
	assert_changed("{\"command\":\"fault_remove\",\"name\":\"off\"}",
	    "off faults=removeall");
	assert_changed("{\"command\":\"fault_remove\",\"name\":\"off\","
		       "\"id\":9}",
	    "");
	assert_changed("{\"command\":\"set\",\"name\":\"nullb0\","
		       "\"attribute\":\"nomerges\",\"value\":\"0\"}",
	    "nullb0 nomerges=0 settles");
	assert_changed("{\"command\":\"set\",\"name\":\"off\","
		       "\"attribute\":\"bs\",\"value\":\"512\"}",
	    "off bs=512");
	ctl.changed = NULL;
	ctl.settle = NULL;
}

static const struct disk *watched;
static int watch_result;

static int
fake_watch(void *from, const struct disk *d)
{
	assert_ptr_equal(from, &ctl);
	watched = d;
	return watch_result;
}

static void
lets_clients_watch(void **state)
{
	static const char all[] = "{\"command\":\"watch\"}";
	json_t *answer;

	(void)state;
	assert_refused(all, "EOPNOTSUPP", "watch: there are no events here");
	ctl.watch = fake_watch;
	watched = disks[0];
	answer = ask(all);
	assert_true(json_is_true(json_object_get(answer, "ok")));
	assert_null(watched);
	json_decref(answer);
	answer = ask("{\"command\":\"watch\",\"name\":\"off\"}");
	assert_true(json_is_true(json_object_get(answer, "ok")));
	assert_ptr_equal(watched, disks[2]);
	json_decref(answer);
	assert_refused("{\"command\":\"watch\",\"name\":\"x\"}", "ENODEV",
	    "x: no such device");
	watch_result = -ENOMEM;
	assert_refused(all, "ENOMEM", "watch: no memory");
	ctl.watch = NULL;
}

static void
fake_state(void *from, struct daemon_state *out)
{
	assert_ptr_equal(from, &ctl);
	*out = (struct daemon_state){ .nr_connections = 42 };
}

static void
tells_metrics(void **state)
{
	json_t *answer;
	const char *text;

	(void)state;
	ctl.state = fake_state;
	answer = ask("{\"command\":\"metrics\"}");
	assert_true(json_is_true(json_object_get(answer, "ok")));
	text = json_string_value(json_object_get(answer, "metrics"));
	assert_non_null(strstr(text, "\nnullbd_connections 42\n"));
	assert_non_null(strstr(text, "\nnullbd_device_on{device=\"off\"} 0\n"));
	assert_string_equal(text + strlen(text) - 6, "# EOF\n");
	json_decref(answer);
	ctl.state = NULL;
}

/* What the daemon knows of clients: two of them, or no memory. */
static int nr_fake_clients = 2;
static uint64_t kicked;

static int
fake_clients(void *from, struct client **out)
{
	assert_ptr_equal(from, &ctl);
	if (nr_fake_clients < 0)
		return nr_fake_clients;
	*out = calloc(2, sizeof(**out));
	(*out)[0] = (struct client){ .id = 1, .phase = "handshake" };
	(*out)[1] = (struct client){ .id = 2, .phase = "closing" };
	return nr_fake_clients;
}

static int
fake_kick(void *from, uint64_t id)
{
	assert_ptr_equal(from, &ctl);
	if (id != 2)
		return -ENOENT;
	kicked = id;
	return 0;
}

static void
lets_the_daemon_tell_of_clients_and_kick_them(void **state)
{
	json_t *answer = ask("{\"command\":\"clients\"}"), *list;

	(void)state;
	assert_int_equal(
	    json_array_size(json_object_get(answer, "clients")), 0);
	json_decref(answer);
	assert_refused("{\"command\":\"kick\",\"id\":2}", "ENOENT",
	    "kick: 2: no such client");
	ctl.clients = fake_clients;
	ctl.kick = fake_kick;
	answer = ask("{\"command\":\"clients\"}");
	list = json_object_get(answer, "clients");
	assert_int_equal(json_array_size(list), 2);
	assert_string_equal(json_string_value(json_object_get(
				json_array_get(list, 1), "phase")),
	    "closing");
	json_decref(answer);
	nr_fake_clients = -ENOMEM;
	assert_refused(
	    "{\"command\":\"clients\"}", "ENOMEM", "clients: no memory");

	json_decref(ask("{\"command\":\"kick\",\"id\":2}"));
	assert_int_equal(kicked, 2);
	assert_refused("{\"command\":\"kick\",\"id\":3}", "ENOENT",
	    "kick: 3: no such client");
	assert_refused("{\"command\":\"kick\"}", "EINVAL",
	    "kick: whom? \"id\" is missing");
	assert_refused("{\"command\":\"kick\",\"id\":\"2\"}", "EINVAL",
	    "id: allowed: a number from 1 on");
	assert_refused("{\"command\":\"kick\",\"id\":0}", "EINVAL", NULL);
	assert_refused("{\"command\":\"kick\",\"id\":-1}", "EINVAL", NULL);
	assert_refused("{\"command\":\"kick\",\"id\":1.5}", "EINVAL", NULL);
	ctl.clients = NULL;
	ctl.kick = NULL;
}

/* Where the daemon serves a device: two places, or no memory. */
static int nr_fake_places = 2;

static int
fake_places(void *from, const struct disk *d, struct place **out)
{
	assert_ptr_equal(from, &ctl);
	assert_string_equal(d->name, "nullb0");
	if (nr_fake_places < 0)
		return nr_fake_places;
	*out = calloc(2, sizeof(**out));
	(*out)[0] = (struct place){ .uri = "nbds://[::1]:1/nullb0",
		.host = "::1",
		.port = 1,
		.tls = true };
	(*out)[1] = (struct place){ .uri = "nbd+unix:///nullb0?socket=/s",
		.path = "/s" };
	return nr_fake_places;
}

static void
tells_where_a_device_is_served(void **state)
{
	static const char request[] =
	    "{\"command\":\"uri\",\"name\":\"nullb0\"}";
	json_t *answer, *places;

	(void)state;
	assert_refused("{\"command\":\"uri\"}", "EINVAL", NULL);
	assert_refused("{\"command\":\"uri\",\"name\":\"nope\"}", "ENODEV",
	    "nope: no such device");
	answer = ask(request);
	assert_int_equal(json_array_size(json_object_get(answer, "places")), 0);
	json_decref(answer);

	ctl.places = fake_places;
	answer = ask(request);
	assert_int_equal(
	    json_integer_value(json_object_get(answer, "blocksize")), 512);
	places = json_loads(
	    "[{\"uri\":\"nbds://[::1]:1/nullb0\",\"path\":null,"
	    "\"host\":\"::1\",\"port\":1,\"tls\":true},"
	    "{\"uri\":\"nbd+unix:///nullb0?socket=/s\",\"path\":\"/s\","
	    "\"host\":null,\"port\":null,\"tls\":false}]",
	    0, NULL);
	assert_true(json_equal(json_object_get(answer, "places"), places));
	json_decref(places);
	json_decref(answer);

	nr_fake_places = -ENOMEM;
	assert_null(ctl_request(&ctl, &ctl, request, strlen(request), 0));
	ctl.places = NULL;
}

/* ---- devices that come and go: what the daemon was asked */

static char asked[64];
static int says;

static int
fake_power(void *from, struct disk *d, bool on, char *err, size_t errlen)
{
	assert_ptr_equal(from, &ctl);
	snprintf(asked, sizeof(asked), "%s %s", d->name, on ? "on" : "off");
	return says == 0 || says == -EINPROGRESS
		   ? says
		   : refuse(err, errlen, says, "power: no");
}

static int
fake_remove(void *from, struct disk *d)
{
	assert_ptr_equal(from, &ctl);
	snprintf(asked, sizeof(asked), "remove %s", d->name);
	return says;
}

static int
fake_create(void *from, const struct device *dev, char *err, size_t errlen)
{
	assert_ptr_equal(from, &ctl);
	snprintf(asked, sizeof(asked), "create %s %llu", dev->name,
	    (unsigned long long)dev->conf.size);
	return says == 0 ? 0 : refuse(err, errlen, says, "size: no");
}

/* The answer is for later. */
static void
assert_waits(const char *request)
{
	assert_null(ctl_request(&ctl, &ctl, request, strlen(request), NOW_NS));
}

static void
lets_the_daemon_change_the_power(void **state)
{
	static const char off[] =
	    "{\"command\":\"power\",\"name\":\"nullb0\",\"value\":\"off\"}";
	static const char set[] = "{\"command\":\"set\",\"name\":\"off\","
				  "\"attribute\":\"power\",\"value\":\"1\"}";

	(void)state;
	assert_refused(off, "EOPNOTSUPP", "nullb0: its power cannot change");
	ctl.power = fake_power;
	says = -EINPROGRESS;
	assert_waits(off);
	assert_string_equal(asked, "nullb0 off");
	says = 0;
	json_decref(ask(set));
	assert_string_equal(asked, "off on");
	says = -ENOMEM;
	assert_refused(set, "ENOMEM", "off: power: no");
	assert_refused(
	    "{\"command\":\"power\",\"name\":\"nope\",\"value\":\"1\"}",
	    "ENODEV", "nope: no such device");
	assert_refused("{\"command\":\"power\",\"name\":\"off\"}", "EINVAL",
	    "power: \"value\" is missing");
	assert_refused(
	    "{\"command\":\"power\",\"name\":\"off\",\"value\":\"2\"}",
	    "EINVAL", "off: power: \"2\": allowed: 0, 1, on, off");
	ctl.power = NULL;
}

static void
lets_the_daemon_remove_a_device(void **state)
{
	static const char old[] = "{\"command\":\"remove\",\"name\":\"old\"}";

	(void)state;
	assert_refused(old, "EOPNOTSUPP", "old: cannot be removed");
	ctl.remove = fake_remove;
	says = -EINPROGRESS;
	assert_waits(old);
	assert_string_equal(asked, "remove old");
	says = -ENOMEM;
	assert_refused(old, "ENOMEM", NULL);
	assert_refused("{\"command\":\"remove\",\"name\":\"nope\"}", "ENODEV",
	    "nope: no such device");
	ctl.remove = NULL;
}

static void
lets_the_daemon_make_a_device(void **state)
{
	static const char new[] = "{\"command\":\"create\",\"name\":\"new\","
				  "\"attributes\":{\"size\":\"4096B\"}}";
	struct config config;

	(void)state;
	assert_refused(new, "EOPNOTSUPP", "new: no device can be made");
	assert_int_equal(config_init(&config), 0);
	ctl.config = &config;
	ctl.create = fake_create;
	says = -EINVAL;
	assert_refused(new, "EINVAL", "new: size: no");
	assert_null(config_find(&config, "new"));
	says = -EINPROGRESS; /* it is there; what becomes of it is for later */
	assert_waits("{\"command\":\"create\",\"name\":\"filled\"}");
	assert_non_null(config_find(&config, "filled"));
	says = 0;
	json_decref(ask(new));
	assert_string_equal(asked, "create new 4096");
	assert_non_null(config_find(&config, "new"));
	assert_refused(new, "EEXIST", "new: there is one already");
	assert_refused("{\"command\":\"create\",\"name\":\"x\","
		       "\"attributes\":[]}",
	    "EINVAL", "attributes: not an object");
	assert_refused(
	    "{\"command\":\"create\",\"name\":\"a/b\"}", "EINVAL", NULL);
	ctl.config = NULL;
	ctl.create = NULL;
	config_fini(&config);
}

static void
adds_lists_and_removes_faults(void **state)
{
	json_t *answer, *rules;

	(void)state;
	for (int i = 0; i < 2; i++) {
		answer = ask("{\"command\":\"fault_add\",\"name\":\"nullb0\","
			     "\"value\":\"add,op=READ,status=MEDIUM\"}");
		assert_int_equal(
		    json_integer_value(json_object_get(answer, "id")), i + 1);
		json_decref(answer);
	}
	answer = ask("{\"command\":\"fault_add\",\"name\":\"off\","
		     "\"value\":\"op=WRITE\"}");
	assert_true(json_is_true(json_object_get(answer, "ok")));
	json_decref(answer);
	json_decref(ask("{\"command\":\"fault_remove\",\"name\":\"nullb0\","
			"\"id\":1}"));
	answer = ask("{\"command\":\"faults\",\"name\":\"nullb0\"}");
	rules = json_object_get(json_object_get(answer, "faults"), "rules");
	assert_int_equal(json_array_size(rules), 1);
	assert_string_equal(json_string_value(json_object_get(
				json_array_get(rules, 0), "rule")),
	    "op=READ,status=MEDIUM");
	json_decref(answer);
	assert_refused("{\"command\":\"fault_add\",\"name\":\"nullb0\","
		       "\"value\":\"removeall\"}",
	    "EINVAL", NULL);
	assert_refused("{\"command\":\"fault_add\",\"name\":\"nullb0\"}",
	    "EINVAL", "fault_add: \"value\", a rule, is missing");
	assert_refused("{\"command\":\"fault_remove\",\"name\":\"nullb0\","
		       "\"id\":9}",
	    "ENOENT", "nullb0: faults: \"remove,id=9\": no such rule");
	assert_refused("{\"command\":\"fault_release\",\"name\":\"x\"}",
	    "ENODEV", "x: no such device");
	assert_refused("{\"command\":\"fault_log\"}", "EINVAL", NULL);
	assert_refused("{\"command\":\"fault_wait\",\"name\":\"nullb0\","
		       "\"id\":9}",
	    "ENOENT", "nullb0: fault 9: no such rule");
	assert_refused("{\"command\":\"fault_wait\",\"name\":\"nullb0\","
		       "\"id\":2,\"hits\":0}",
	    "EINVAL", "hits: allowed: a number from 1 on");
	assert_refused("{\"command\":\"fault_wait\",\"name\":\"nullb0\"}",
	    "EINVAL", "fault_wait: \"id\", of a rule, is missing");
	assert_refused("{\"command\":\"fault_wait\",\"name\":\"nullb0\","
		       "\"id\":2}",
	    "EOPNOTSUPP", "fault_wait: nobody can wait here");
	assert_null(ctl_awaited(disks[0], 2, 1)); /* not yet */
	for (int i = 0; i < 2; i++) {
		answer = ask(i == 0 ? "{\"command\":\"fault_release\",\"name\":"
				      "\"nullb0\"}"
				    : "{\"command\":\"fault_remove\",\"name\":"
				      "\"nullb0\"}");
		assert_true(json_is_true(json_object_get(answer, "ok")));
		json_decref(answer);
	}
	answer = ask("{\"command\":\"fault_log\",\"name\":\"nullb0\"}");
	assert_string_equal(json_string_value(json_object_get(
				json_object_get(answer, "log"), "lines")),
	    "");
	json_decref(answer);
}

static void
trusts_no_request(void **state)
{
	static const char *bad[] = { "", "\n", "{", "[]", "null", "1", "\"a\"",
		"{}", "{\"command\":1}", "{\"command\":null}",
		"{\"command\":\"get\",\"name\":[]}",
		"{\"command\":\"list\",\"command\":\"list\"}",
		"{\"command\":\"list\"} x", "\xff\xfe",
		"{\"command\":\"\xff\"}", "{\"command\":\"li\\u0000st\"}" };
	static const char quoted[] = "{\"command\":\"a\\n\\\"b\"}";
	char *deep, *line;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_refused(bad[i], "EINVAL", NULL);
	deep = malloc(CTL_MAX_LINE + 2);
	memset(deep, '[', CTL_MAX_LINE + 1);
	deep[CTL_MAX_LINE + 1] = '\0';
	assert_refused(deep, "E2BIG",
	    "a request of 65537 bytes; allowed: at "
	    "most 65536");
	deep[CTL_MAX_LINE] = '\0';
	assert_refused(deep, "EINVAL", NULL);
	free(deep);
	/* what is echoed is escaped */
	line = ctl_request(&ctl, NULL, quoted, strlen(quoted), 0);
	assert_string_equal(line,
	    "{\"ok\":false,\"errno\":\"EINVAL\",\"error\":\"a\\n\\\"b: no such "
	    "command (nullbd-control(7) lists them)\"}\n");
	free(line);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gets_one_attribute_as_null_blk_prints_it),
		cmocka_unit_test(gets_all_attributes_in_the_order_of_the_table),
		cmocka_unit_test(lists_devices_that_are_on_and_off),
		cmocka_unit_test(shows_as_many_fields_of_stat_as_the_kernel),
		cmocka_unit_test(shows_the_lines_of_diskstats_and_fio),
		cmocka_unit_test(shows_what_is_in_flight),
		cmocka_unit_test(looks_into_a_queue),
		cmocka_unit_test(gives_samples_of_all_devices_that_are_on),
		cmocka_unit_test(refuses_with_a_name_and_a_sentence),
		cmocka_unit_test(lets_the_daemon_trace_what_is_on),
		cmocka_unit_test(tells_metrics),
		cmocka_unit_test(tells_the_daemon_of_changes),
		cmocka_unit_test(lets_clients_watch),
		cmocka_unit_test(lets_the_daemon_tell_of_clients_and_kick_them),
		cmocka_unit_test(tells_where_a_device_is_served),
		cmocka_unit_test(lets_the_daemon_change_the_power),
		cmocka_unit_test(lets_the_daemon_remove_a_device),
		cmocka_unit_test(lets_the_daemon_make_a_device),
		cmocka_unit_test(adds_lists_and_removes_faults),
		cmocka_unit_test(trusts_no_request),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
