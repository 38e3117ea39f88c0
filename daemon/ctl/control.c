/* SPDX-License-Identifier: MIT */
/*
 * The control protocol: a JSON object a line, answered by one.  Requests come
 * from anyone who may open the socket: they are bounded, and every member is
 * checked for its type before it is used.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"

/* A request. */
struct call {
	const struct ctl *ctl;
	void *from;
	uint64_t now;
	const char *command;
	const char *name;      /* of a device; NULL: none given */
	const char *attribute; /* NULL: none given */
	const char *value;     /* the same */
	json_t *attributes;    /* an object; the same */
	json_int_t id;         /* of a client, of a rule; 0: none given */
	json_int_t hits;       /* of a rule; 0: none given */
	json_t *request;       /* for those with members of their own */
};

/* ---- answers */

static json_t *
fail(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* An answer that refuses.  What comes from the request is UTF-8, and short. */
static json_t *
fail(int error, const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	json_t *why = NULL;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) >= 0)
		why = json_string(text);
	va_end(ap);
	free(text);
	if (why == NULL)
		why = json_string("refused");
	return json_pack("{s:b, s:s, s:o}", "ok", 0, "errno",
	    strerrorname_np(error), "error", why);
}

/* A member whose value is text that `print` writes. */
static json_t *
text_of(void (*print)(const void *arg, FILE *out), const void *arg)
{
	char *text = NULL;
	json_t *json = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (out == NULL)
		return NULL;
	print(arg, out);
	if (fclose(out) == 0)
		json = json_string(text);
	free(text);
	return json;
}

static struct disk *
find_disk(const struct call *call)
{
	for (unsigned i = 0; i < call->ctl->nr_disks; i++)
		if (strcmp(call->ctl->disks[i]->name, call->name) == 0)
			return call->ctl->disks[i];
	return NULL;
}

/*
 * ---- commands: each returns its answer; NULL when out of memory, or when the
 * answer is to come later (ctl->settle)
 */

static json_t *
run_list(struct call *call)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < call->ctl->nr_disks; i++) {
		const struct disk *d = call->ctl->disks[i];
		const struct disk_conf *c = disk_shown(d);
		uint64_t memory = 0;

		if (d->kept != NULL)
			memory = store_memory(d->kept);
		if (json_array_append_new(list,
			json_pack("{s:s, s:b, s:I, s:i, s:b, s:I, s:s, s:s}",
			    "name", d->name, "power", d->queue != NULL, "size",
			    (json_int_t)c->size, "blocksize", (int)c->blocksize,
			    "memory_backed", c->memory_backed, "memory",
			    (json_int_t)memory, "scheduler", c->scheduler->name,
			    "kernel", c->kernel->name)) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{s:b, s:o}", "ok", 1, "devices", list);
}

struct attr_of {
	const struct attr *attr;
	const struct disk_conf *conf;
};

static void
print_attr(const void *arg, FILE *out)
{
	const struct attr_of *of = arg;

	attr_get(of->attr, of->conf, out);
}

json_t *
ctl_value(const struct attr *a, const struct disk_conf *conf)
{
	struct attr_of of = { a, conf };

	return text_of(print_attr, &of);
}

static json_t *
run_get_all(const struct disk_conf *conf)
{
	json_t *all = json_object();
	char name[80];

	for (const struct attr *a = disk_attrs; a->name != NULL; a++) {
		snprintf(name, sizeof(name), "%s%s", attr_prefix(a), a->name);
		if (json_object_set_new(all, name, ctl_value(a, conf)) != 0) {
			json_decref(all);
			return NULL;
		}
	}
	return json_pack("{s:b, s:o}", "ok", 1, "attributes", all);
}

static json_t *
run_get(struct call *call)
{
	struct disk *d = find_disk(call);
	const struct attr *a;
	char err[CTL_MAX_ERROR];

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (call->attribute == NULL)
		return run_get_all(disk_shown(d));
	a = attr_find(disk_attrs, call->attribute);
	if (a == NULL) {
		attr_missing(disk_attrs, call->attribute, err, sizeof(err));
		return fail(ENOENT, "%s", err);
	}
	return json_pack(
	    "{s:b, s:o}", "ok", 1, "value", ctl_value(a, disk_shown(d)));
}

/* ---- changes; an answer of NULL comes later */

static int
set_power(const struct ctl *ctl, void *from, struct disk *d, const char *value,
    char *err, size_t errlen)
{
	bool on;

	if (bool_parse(value, &on) != 0)
		return refuse(err, errlen, -EINVAL,
		    "power: \"%s\": allowed: 0, 1, on, off", value);
	if (ctl->power == NULL)
		return refuse(
		    err, errlen, -EOPNOTSUPP, "its power cannot change");
	return ctl->power(from, d, on, err, errlen);
}

static bool
is_power(const char *attribute)
{
	const struct attr *a = attr_find(disk_attrs, attribute);

	return a != NULL && strcmp(a->name, "power") == 0;
}

/* Were zones reset?  We are no cpu that could give their data back. */
static void
sweep(const struct ctl *ctl, void *from, struct disk *d)
{
	if (d->zones != NULL && zones_stale(d->zones) && ctl->sweep != NULL)
		ctl->sweep(from, d);
}

static void
tell_change(const struct ctl *ctl, void *from, const struct disk *d,
    const char *attribute, const char *value, bool settles)
{
	if (ctl->changed != NULL)
		ctl->changed(from, d, attribute, value, settles);
}

int
ctl_set(const struct ctl *ctl, void *from, struct disk *d,
    const char *attribute, const char *value, uint64_t now, char *err,
    size_t errlen)
{
	char *text = NULL;
	int ret;

	if (is_power(attribute))
		return set_power(ctl, from, d, value, err, errlen);
	if (d->queue != NULL && ctl->settle == NULL)
		return refuse(err, errlen, -ENOTSUP, "is on");
	ret = fit_attribute(attribute, value, &text, err, errlen);
	if (ret == 0)
		ret = disk_set(d, attribute, text != NULL ? text : value, now,
		    err, errlen);
	free(text);
	if (ret == 0 || ret == -EINPROGRESS)
		tell_change(ctl, from, d, attribute, value, ret != 0);
	if (ret == -EINPROGRESS)
		ctl->settle(from, d);
	else if (ret == 0)
		sweep(ctl, from, d);
	return ret;
}

static json_t *
set(struct call *call, struct disk *d, const char *attribute)
{
	char err[CTL_MAX_ERROR] = "";
	int ret = ctl_set(call->ctl, call->from, d, attribute, call->value,
	    call->now, err, sizeof(err));

	if (ret == -EINPROGRESS)
		return NULL;
	if (ret != 0)
		return fail(-ret, "%s: %s", d->name, err);
	return json_pack("{s:b}", "ok", 1);
}

static json_t *
run_power(struct call *call)
{
	struct disk *d = find_disk(call);

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (call->value == NULL)
		return fail(EINVAL, "power: \"value\" is missing");
	return set(call, d, "power");
}

int
ctl_create(const struct ctl *ctl, void *from, const char *name,
    json_t *attributes, char *err, size_t errlen)
{
	struct device *dev;
	int ret;

	if (ctl->config == NULL || ctl->create == NULL)
		return refuse(
		    err, errlen, -EOPNOTSUPP, "no device can be made");
	ret = config_create(ctl->config, name, attributes, &dev, err, errlen);
	if (ret != 0)
		return ret;
	ret = ctl->create(from, dev, err, errlen);
	if (ret != 0 && ret != -EINPROGRESS)
		config_drop(ctl->config, dev);
	return ret;
}

static json_t *
cancel_cut(struct disk *d)
{
	if (!disk_cut_cancel(d))
		return fail(ENOENT, "%s: power-cut: none is to come", d->name);
	return json_pack("{s:b}", "ok", 1);
}

static json_t *
run_power_cut(struct call *call, struct disk *d)
{
	const struct ctl *ctl = call->ctl;
	char err[CTL_MAX_ERROR] = "";
	struct cut_conf c;
	int ret;

	if (ctl->cut == NULL)
		return fail(EOPNOTSUPP, "%s: its power cannot be cut", d->name);
	if (json_is_true(json_object_get(call->request, "cancel")))
		return cancel_cut(d);
	ret = cut_parse(call->request, call->now, &c, err, sizeof(err));
	if (ret == 0)
		ret = disk_can_cut(d, &c, err, sizeof(err));
	if (ret == 0)
		ret = ctl->cut(call->from, d, &c, err, sizeof(err));
	if (ret == -EINPROGRESS)
		return NULL;
	if (ret != 0)
		return fail(-ret, "%s: %s", d->name, err);
	return json_pack("{s:b, s:I}", "ok", 1, "seed", (json_int_t)c.seed);
}

static json_t *
run_mark(struct call *call, struct disk *d)
{
	char err[CTL_MAX_ERROR];
	int ret;

	if (call->value == NULL)
		return fail(EINVAL, "mark: \"value\", a text, is missing");
	ret = disk_mark(d, call->value, err, sizeof(err));
	if (ret != 0)
		return fail(-ret, "%s: %s", d->name, err);
	return json_pack("{s:b}", "ok", 1);
}

static json_t *
run_create(struct call *call)
{
	char err[CTL_MAX_ERROR] = "";
	int ret = ctl_create(call->ctl, call->from, call->name,
	    call->attributes, err, sizeof(err));

	if (ret == -EINPROGRESS)
		return NULL;
	if (ret != 0)
		return fail(-ret, "%s: %s", call->name, err);
	return json_pack("{s:b}", "ok", 1);
}

static json_t *
run_snapshot(struct call *call)
{
	struct disk *d = find_disk(call);
	const struct ctl *ctl = call->ctl;
	const char *name =
	    json_string_value(json_object_get(call->request, "new"));
	char err[CTL_MAX_ERROR] = "";
	struct device *dev;
	int ret;

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (name == NULL)
		return fail(EINVAL, "snapshot: \"new\" is missing");
	if (ctl->config == NULL || ctl->snapshot == NULL)
		return fail(EOPNOTSUPP, "no device can be made");
	ret = config_snapshot(ctl->config, name, d, &dev, err, sizeof(err));
	if (ret != 0)
		return fail(-ret, "%s: %s", name, err);
	ret = ctl->snapshot(call->from, d, dev, err, sizeof(err));
	if (ret == -EINPROGRESS)
		return NULL;
	if (ret == 0)
		return json_pack("{s:b}", "ok", 1);
	config_drop(ctl->config, dev);
	return fail(-ret, "%s: %s", d->name, err);
}

static json_t *
run_remove(struct call *call)
{
	struct disk *d = find_disk(call);
	int ret;

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (call->ctl->remove == NULL)
		return fail(EOPNOTSUPP, "%s: cannot be removed", d->name);
	ret = call->ctl->remove(call->from, d);
	if (ret != -EINPROGRESS)
		return fail(-ret, "%s: remove: no memory", d->name);
	return NULL;
}

static json_t *
run_set(struct call *call)
{
	struct disk *d = find_disk(call);

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (call->attribute == NULL || call->value == NULL)
		return fail(EINVAL, "set: \"%s\" is missing",
		    call->attribute == NULL ? "attribute" : "value");
	return set(call, d, call->attribute);
}

static json_t *
run_zone(struct call *call, struct disk *d)
{
	json_t *answer = zoneinfo_run(d, call->request);

	sweep(call->ctl, call->from, d);
	return answer;
}

/* What stat_show() needs. */
struct stat_of {
	const struct disk *disk;
	struct sample now, on; /* and when the power came on */
};

static void
stat_init(struct stat_of *of, const struct disk *d, uint64_t now)
{
	*of = (struct stat_of){
		.disk = d,
		.now.now_ns = now,
		.on.now_ns = d->on_ns,
	};
	stat_read(d->queue, &of->now.stat, now);
}

/* The fields alone, a blank between two: as in /proc/diskstats. */
static void
print_fields(const struct stat_of *of, FILE *out)
{
	char *text = NULL, *rest, *field;
	const char *blank = "";
	size_t len;
	FILE *line = open_memstream(&text, &len);

	if (line == NULL)
		return;
	stat_show(of->disk->queue, &of->now.stat, line);
	if (fclose(line) == 0) {
		rest = text;
		while ((field = strtok_r(rest, " \n", &rest)) != NULL) {
			fprintf(out, "%s%s", blank, field);
			blank = " ";
		}
	}
	free(text);
}

/* As the kernel's diskstats_show(); no major number is ours: 0. */
static void
print_diskstats(const void *arg, FILE *out)
{
	const struct stat_of *of = arg;

	fprintf(out, "%4d %7" PRIu32 " %s ", 0, of->disk->conf.index,
	    of->disk->name);
	print_fields(of, out);
}

static void
print_stat(const void *arg, FILE *out)
{
	const struct stat_of *of = arg;
	char *text = NULL;
	size_t len;
	FILE *line = open_memstream(&text, &len);

	if (line == NULL)
		return;
	stat_show(of->disk->queue, &of->now.stat, line);
	if (fclose(line) == 0)
		fprintf(out, "%.*s", (int)strcspn(text, "\n"), text);
	free(text);
}

static void
print_fio(const void *arg, FILE *out)
{
	const struct stat_of *of = arg;

	fio_line(false, of->disk->name, &of->on, &of->now, out);
}

static void
print_fio_sectors(const void *arg, FILE *out)
{
	const struct stat_of *of = arg;

	fio_line(true, of->disk->name, &of->on, &of->now, out);
}

/* /sys/block/X/inflight: what the driver has of reads and writes */
static void
print_inflight(const void *arg, FILE *out)
{
	const struct queue_stat *st = &((const struct stat_of *)arg)->now.stat;

	fprintf(out, "%8u %8u", (unsigned)st->inflight_rw[0],
	    (unsigned)st->inflight_rw[1]);
}

static json_t *
run_stat(struct call *call, struct disk *d)
{
	struct stat_of of;

	stat_init(&of, d, call->now);
	return json_pack("{s:b, s:o, s:o}", "ok", 1, "stat",
	    text_of(print_stat, &of), "sample", sample_pack(&of.now));
}

static json_t *
run_inflight(struct call *call, struct disk *d)
{
	struct stat_of of;

	stat_init(&of, d, call->now);
	return json_pack(
	    "{s:b, s:o}", "ok", 1, "inflight", text_of(print_inflight, &of));
}

static json_t *
run_segments(struct call *call, struct disk *d)
{
	return json_pack(
	    "{s:b, s:o}", "ok", 1, "segments", segments_pack(d, call->now));
}

static json_t *
run_latency(struct call *call, struct disk *d)
{
	(void)call;
	return json_pack("{s:b, s:I, s:o}", "ok", 1, "on_ns",
	    (json_int_t)d->on_ns, "latency", latency_pack(d));
}

static json_t *
run_queue(struct call *call, struct disk *d)
{
	(void)call;
	return json_pack("{s:b, s:o}", "ok", 1, "queue", queueinfo_pack(d));
}

static json_t *
one_iostat(const struct stat_of *of)
{
	return json_pack("{s:s, s:I, s:o, s:o}", "name", of->disk->name,
	    "on_ns", (json_int_t)of->on.now_ns, "sample", sample_pack(&of->now),
	    "since_power_on", iostat_json(&of->on, &of->now));
}

static json_t *
one_diskstats(const struct stat_of *of)
{
	return json_pack("{s:s, s:o, s:o, s:o}", "name", of->disk->name,
	    "diskstats", text_of(print_diskstats, of), "fio",
	    text_of(print_fio, of), "fio_sectors",
	    text_of(print_fio_sectors, of));
}

/* The named device, or all that are on: `one` makes each one's part. */
static json_t *
each_device(struct call *call, json_t *(*one)(const struct stat_of *of))
{
	const struct ctl *ctl = call->ctl;
	json_t *list;

	if (call->name != NULL && find_disk(call) == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (call->name != NULL && find_disk(call)->queue == NULL)
		return fail(ENODEV, "%s: the power is off", call->name);
	list = json_array();
	for (unsigned i = 0; i < ctl->nr_disks; i++) {
		const struct disk *d = ctl->disks[i];
		struct stat_of of;

		if (d->queue == NULL ||
		    (call->name != NULL && strcmp(d->name, call->name) != 0))
			continue;
		stat_init(&of, d, call->now);
		if (json_array_append_new(list, one(&of)) != 0) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{s:b, s:o}", "ok", 1, "devices", list);
}

static json_t *
run_iostat(struct call *call)
{
	return each_device(call, one_iostat);
}

static json_t *
run_diskstats(struct call *call)
{
	return each_device(call, one_diskstats);
}

static json_t *
run_trace(struct call *call, struct disk *d)
{
	int err;

	if (call->ctl->trace == NULL)
		return fail(EOPNOTSUPP, "%s: cannot be traced", d->name);
	err = call->ctl->trace(call->from, d);
	if (err == -EBUSY)
		return fail(EBUSY, "%s: is being traced already", d->name);
	if (err != 0)
		return fail(-err, "%s: no memory for a trace", d->name);
	return json_pack(
	    "{s:b, s:i}", "ok", 1, "cpus", (int)d->queue->machine->nr_cpus);
}

static json_t *
run_metrics(struct call *call)
{
	const struct ctl *ctl = call->ctl;
	struct daemon_state state = {};
	char *text = NULL;
	json_t *json;
	size_t len;

	if (ctl->state != NULL)
		ctl->state(call->from, &state);
	if (metrics_text(
		ctl->disks, ctl->nr_disks, &state, call->now, &text, &len) != 0)
		return fail(ENOMEM, "metrics: no memory");
	json = json_stringn(text, len);
	free(text);
	return json_pack("{s:b, s:o}", "ok", 1, "metrics", json);
}

static json_t *
run_watch(struct call *call)
{
	struct disk *d = call->name != NULL ? find_disk(call) : NULL;

	if (call->name != NULL && d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (call->ctl->watch == NULL)
		return fail(EOPNOTSUPP, "watch: there are no events here");
	if (call->ctl->watch(call->from, d) != 0)
		return fail(ENOMEM, "watch: no memory");
	return json_pack("{s:b}", "ok", 1);
}

static json_t *
run_clients(struct call *call)
{
	struct client *list = NULL;
	json_t *answer;
	int nr = 0;

	if (call->ctl->clients != NULL)
		nr = call->ctl->clients(call->from, &list);
	if (nr < 0)
		return fail(-nr, "clients: no memory");
	answer = json_pack("{s:b, s:o}", "ok", 1, "clients",
	    clients_pack(list, (unsigned)nr, call->now));
	free(list);
	return answer;
}

static json_t *
run_kick(struct call *call)
{
	if (call->id <= 0)
		return fail(EINVAL, "kick: whom? \"id\" is missing");
	if (call->ctl->kick == NULL ||
	    call->ctl->kick(call->from, (uint64_t)call->id) != 0)
		return fail(
		    ENOENT, "kick: %lld: no such client", (long long)call->id);
	return json_pack("{s:b}", "ok", 1);
}

static json_t *
run_faults(struct call *call)
{
	struct disk *d = find_disk(call);

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	return json_pack("{s:b, s:o}", "ok", 1, "faults", faults_pack(d));
}

static json_t *
run_fault_log(struct call *call)
{
	struct disk *d = find_disk(call);

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	return json_pack("{s:b, s:o}", "ok", 1, "log", faults_pack_log(d));
}

/* A value of the attribute faults, "VERB" or "VERB,REST". */
static json_t *
change_faults(
    struct call *call, struct disk *d, const char *verb, const char *rest)
{
	char err[CTL_MAX_ERROR], *value = NULL;
	int ret;

	if (asprintf(&value, "%s%s%s", verb, *rest != '\0' ? "," : "", rest) <
	    0)
		return NULL;
	ret = disk_set(d, "faults", value, call->now, err, sizeof(err));
	if (ret == 0)
		tell_change(call->ctl, call->from, d, "faults", value, false);
	free(value);
	if (ret != 0)
		return fail(-ret, "%s: %s", d->name, err);
	return json_pack("{s:b}", "ok", 1);
}

static json_t *
run_fault_add(struct call *call)
{
	struct disk *d = find_disk(call);
	const char *rule = call->value;
	json_t *answer;

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (rule == NULL)
		return fail(EINVAL, "fault_add: \"value\", a rule, is missing");
	if (strncmp(rule, "add,", 4) == 0) /* as one writes it to the kernel */
		rule += 4;
	answer = change_faults(call, d, "add", rule);
	if (answer != NULL && json_is_true(json_object_get(answer, "ok")))
		json_object_set_new(answer, "id",
		    json_integer((json_int_t)faults_last_id(d->set.faults)));
	return answer;
}

/* Of one rule, or, without "id", of all. */
static json_t *
change_rules(struct call *call, const char *one, const char *all)
{
	struct disk *d = find_disk(call);
	char id[32];

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (call->id == 0)
		return change_faults(call, d, all, "");
	snprintf(id, sizeof(id), "id=%" JSON_INTEGER_FORMAT, call->id);
	return change_faults(call, d, one, id);
}

/* It has hit so often, or it never will; NULL: not yet. */
static json_t *
awaited(const struct disk *d, uint64_t id, uint64_t wanted)
{
	uint64_t hits = 0;

	if (!faults_hits(d->set.faults, id, &hits))
		return fail(
		    ENOENT, "%s: fault %" PRIu64 ": no such rule", d->name, id);
	if (hits < wanted)
		return NULL;
	return json_pack("{s:b, s:I}", "ok", 1, "hits", (json_int_t)hits);
}

static json_t *
run_fault_wait(struct call *call)
{
	uint64_t id = (uint64_t)call->id, hits = (uint64_t)call->hits;
	struct disk *d = find_disk(call);
	json_t *answer;

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (id == 0)
		return fail(
		    EINVAL, "fault_wait: \"id\", of a rule, is missing");
	if (hits == 0)
		hits = 1;
	answer = awaited(d, id, hits);
	if (answer != NULL)
		return answer;
	if (call->ctl->await == NULL)
		return fail(EOPNOTSUPP, "fault_wait: nobody can wait here");
	call->ctl->await(call->from, d, id, hits);
	return NULL;
}

static json_t *
run_fault_remove(struct call *call)
{
	return change_rules(call, "remove", "removeall");
}

static json_t *
run_fault_release(struct call *call)
{
	return change_rules(call, "release", "release");
}

static json_t *
pack_place(const struct place *p)
{
	bool unix_socket = p->path[0] != '\0', tcp = p->host[0] != '\0';

	return json_pack("{s:s, s:s?, s:s?, s:o, s:b}", "uri", p->uri, "path",
	    unix_socket ? p->path : NULL, "host", tcp ? p->host : NULL, "port",
	    tcp ? json_integer(p->port) : json_null(), "tls", p->tls);
}

static json_t *
run_uri(struct call *call, struct disk *d)
{
	json_t *list = json_array();
	struct place *places = NULL;
	int nr = 0;

	if (call->ctl->places != NULL)
		nr = call->ctl->places(call->from, d, &places);
	for (int i = 0; i < nr; i++)
		if (json_array_append_new(list, pack_place(&places[i])) != 0)
			nr = -ENOMEM;
	free(places);
	if (nr < 0) {
		json_decref(list);
		return NULL;
	}
	return json_pack("{s:b, s:i, s:i, s:o}", "ok", 1, "blocksize",
	    (int)d->conf.blocksize, "cpus", (int)d->queue->machine->nr_cpus,
	    "places", list);
}

static const struct command {
	const char *name;
	json_t *(*run)(struct call *call);
	json_t *(*run_on)(struct call *call, struct disk *d); /* of that name */
	bool needs_name;
} commands[] = {
	{ "list", .run = run_list },
	{ "get", .run = run_get, .needs_name = true },
	{ "set", .run = run_set, .needs_name = true },
	{ "create", .run = run_create, .needs_name = true },
	{ "remove", .run = run_remove, .needs_name = true },
	{ "power", .run = run_power, .needs_name = true },
	{ "power_cut", .run_on = run_power_cut },
	{ "mark", .run_on = run_mark },
	{ "snapshot", .run = run_snapshot, .needs_name = true },
	{ "stat", .run_on = run_stat },
	{ "inflight", .run_on = run_inflight },
	{ "segments", .run_on = run_segments },
	{ "latency", .run_on = run_latency },
	{ "queue", .run_on = run_queue },
	{ "zone", .run_on = run_zone },
	{ "iostat", .run = run_iostat },
	{ "diskstats", .run = run_diskstats },
	{ "trace", .run_on = run_trace },
	{ "metrics", .run = run_metrics },
	{ "watch", .run = run_watch },
	{ "clients", .run = run_clients },
	{ "kick", .run = run_kick },
	{ "uri", .run_on = run_uri },
	{ "faults", .run = run_faults, .needs_name = true },
	{ "fault_add", .run = run_fault_add, .needs_name = true },
	{ "fault_remove", .run = run_fault_remove, .needs_name = true },
	{ "fault_release", .run = run_fault_release, .needs_name = true },
	{ "fault_wait", .run = run_fault_wait, .needs_name = true },
	{ "fault_log", .run = run_fault_log, .needs_name = true },
	{},
};

/* ---- requests */

/* A command for a device that is on. */
static json_t *
run_on(const struct command *c, struct call *call)
{
	struct disk *d = find_disk(call);

	if (d == NULL)
		return fail(ENODEV, "%s: no such device", call->name);
	if (d->queue == NULL)
		return fail(ENODEV, "%s: the power is off", d->name);
	if (d->powering_down &&
	    (c->run_on == run_trace || c->run_on == run_zone ||
		c->run_on == run_power_cut))
		return fail(EBUSY, "%s: the power is going off", d->name);
	return c->run_on(call, d);
}

static json_t *
dispatch(struct call *call)
{
	struct nearest n = { .given = call->command };

	for (const struct command *c = commands; c->name != NULL; c++) {
		nearest_try(&n, c->name);
		if (strcmp(c->name, call->command) != 0)
			continue;
		if ((c->needs_name || c->run_on != NULL) && call->name == NULL)
			return fail(EINVAL,
			    "%s: of which device? \"name\" is "
			    "missing",
			    c->name);
		return c->run_on != NULL ? run_on(c, call) : c->run(call);
	}
	if (n.name != NULL)
		return fail(EINVAL, "%s: no such command; is it %s?",
		    call->command, n.name);
	return fail(EINVAL,
	    "%s: no such command (nullbd-control(7) lists them)",
	    call->command);
}

/* A member that is absent or a string; anything else makes *bad its name. */
static const char *
string_of(json_t *request, const char *member, const char **bad)
{
	json_t *value = json_object_get(request, member);

	if (value == NULL)
		return NULL;
	if (!json_is_string(value))
		*bad = member;
	return json_string_value(value);
}

/* The same of a number from 1 on; absent, it is 0. */
static json_int_t
number_of(json_t *request, const char *member, const char **bad)
{
	json_t *value = json_object_get(request, member);

	if (value != NULL &&
	    (!json_is_integer(value) || json_integer_value(value) <= 0))
		*bad = member;
	return json_integer_value(value);
}

static json_t *
answer_object(const struct ctl *ctl, void *from, json_t *request, uint64_t now)
{
	const char *bad = NULL;
	struct call call = {
		.ctl = ctl,
		.from = from,
		.now = now,
		.request = request,
		.command = string_of(request, "command", &bad),
		.name = string_of(request, "name", &bad),
		.attribute = string_of(request, "attribute", &bad),
		.value = string_of(request, "value", &bad),
	};

	if (bad != NULL)
		return fail(EINVAL, "%s: not a string", bad);
	call.attributes = json_object_get(request, "attributes");
	if (call.attributes != NULL && !json_is_object(call.attributes))
		return fail(EINVAL, "attributes: not an object");
	call.id = number_of(request, "id", &bad);
	call.hits = number_of(request, "hits", &bad);
	if (bad != NULL)
		return fail(EINVAL, "%s: allowed: a number from 1 on", bad);
	if (call.command == NULL)
		return fail(EINVAL, "a request without \"command\"");
	return dispatch(&call);
}

static json_t *
answer_line(const struct ctl *ctl, void *from, const char *line, size_t len,
    uint64_t now)
{
	json_t *request, *answer;
	json_error_t why;

	if (len > CTL_MAX_LINE)
		return fail(E2BIG,
		    "a request of %zu bytes; allowed: at most "
		    "%u",
		    len, CTL_MAX_LINE);
	request = json_loadb(line, len, JSON_REJECT_DUPLICATES, &why);
	if (request == NULL)
		return fail(EINVAL, "not JSON: %s", why.text);
	if (json_is_object(request))
		answer = answer_object(ctl, from, request, now);
	else
		answer = fail(EINVAL, "not a JSON object");
	json_decref(request);
	return answer;
}

/* As a line; the object is given up. */
static char *
line_of(json_t *answer)
{
	char *text, *out = NULL;

	if (answer == NULL)
		return NULL;
	text = json_dumps(answer, JSON_COMPACT);
	json_decref(answer);
	if (text != NULL && asprintf(&out, "%s\n", text) < 0)
		out = NULL;
	free(text);
	return out;
}

char *
ctl_request(const struct ctl *ctl, void *from, const char *line, size_t len,
    uint64_t now)
{
	return line_of(answer_line(ctl, from, line, len, now));
}

char *
ctl_awaited(const struct disk *disk, uint64_t id, uint64_t hits)
{
	return line_of(awaited(disk, id, hits));
}

char *
ctl_settled(const struct disk *disk, int error, const char *text)
{
	if (error != 0)
		return line_of(fail(-error, "%s: %s", disk->name, text));
	return line_of(json_pack("{s:b}", "ok", 1));
}

char *
ctl_departed(const struct disk *disk)
{
	if (disk->leaves) /* with all that it had */
		return ctl_settled(disk, 0, NULL);
	return line_of(json_pack(
	    "{s:b, s:o}", "ok", 1, "cut", cut_pack(&disk->cut.report)));
}
