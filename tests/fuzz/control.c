/* SPDX-License-Identifier: MIT */
/*
 * Lines to the control socket, to disks that are on and off.  Each is answered
 * by one line of JSON, and the disks are what they say they are.
 */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

#define ON_NS    UINT64_C(1000000000)
#define TICK_NS  UINT64_C(1000000)
#define NR_DISKS 3u
#define MAX_WAIT 8u /* ticks until a change settles: nothing is in flight */

struct host {
	struct machine *machine;
	struct page_pool *pages;
	struct disk *disks[NR_DISKS];
	struct ctl ctl;
	uint64_t now;
	struct config config;  /* where devices are made */
	struct disk *settling; /* the answer is its ctl_settled() */
	bool goes;             /* when it is off */
	unsigned nr_traces;
};

/* ---- the daemon's part */

static int
trace(void *from, struct disk *d)
{
	struct host *h = from;

	CHECK(d->queue != NULL, "%s is to be traced and is off", d->name);
	return h->nr_traces++ % 2 == 0 ? 0 : -EBUSY;
}

static void
settle(void *from, struct disk *d)
{
	struct host *h = from;

	CHECK(h->settling == NULL, "a change within a change");
	h->settling = d;
}

/* A turn of its one loop. */
static void
tick(struct host *h)
{
	epoch_enter(&h->machine->epoch, 0);
	cpu_run(&h->machine->cpu[0], h->now);
	epoch_leave(&h->machine->epoch, 0);
	h->now += TICK_NS;
}

static void
switch_off(struct host *h, struct disk *d)
{
	int ret;

	disk_power_down(d, h->now);
	for (unsigned i = 0; (ret = disk_power_off(d)) == -EINPROGRESS; i++) {
		CHECK(i < MAX_WAIT, "%s: does not go off", d->name);
		tick(h);
	}
	CHECK(ret == 0 && d->queue == NULL, "%s: %d", d->name, ret);
}

static int
power(void *from, struct disk *d, bool on, char *err, size_t errlen)
{
	struct host *h = from;

	if (on)
		return disk_power_on(d, h->now, err, errlen);
	if (d->queue == NULL)
		return 0;
	h->settling = d;
	h->goes = true;
	return -EINPROGRESS;
}

/* No request ever comes that it could come with. */
static void
on_last(void *arg, struct disk *d)
{
	(void)arg;
	CHECK(false, "%s: a request has come", d->name);
}

static int
cut(void *from, struct disk *d, const struct cut_conf *c, char *err,
    size_t errlen)
{
	struct host *h = from;

	(void)err;
	(void)errlen;
	CHECK(d->queue != NULL, "%s is to be cut and is off", d->name);
	CHECK(c->seed != 0, "%s: a cut without a seed", d->name);
	disk_cut(d, c, on_last, NULL);
	if (c->at != 0)
		return 0;
	h->settling = d;
	h->goes = true;
	return -EINPROGRESS;
}

/* It is off then, but stays: there are as many disks as there were. */
static int
remove_disk(void *from, struct disk *d)
{
	struct host *h = from;

	h->settling = d;
	h->goes = true;
	return -EINPROGRESS;
}

static int
create(void *from, const struct device *dev, char *err, size_t errlen)
{
	struct host *h = from;

	CHECK(config_find(&h->config, dev->name) == dev, "%s: is not there",
	    dev->name);
	if (h->nr_traces++ % 2 == 0)
		return 0;
	return refuse(err, errlen, -ENOMEM, "no memory");
}

static char *
settled(struct host *h)
{
	struct disk *d = h->settling;
	char err[CTL_MAX_ERROR] = "";
	int ret = -EINPROGRESS;

	h->settling = NULL;
	if (h->goes) {
		h->goes = false;
		switch_off(h, d);
		return ctl_departed(d);
	}
	for (unsigned i = 0; ret == -EINPROGRESS; i++) {
		CHECK(i < MAX_WAIT, "%s: a change does not settle", d->name);
		tick(h);
		ret = disk_settle(d, h->now, err, sizeof(err));
	}
	return ctl_settled(d, ret, err);
}

static void
make_disk(struct host *h, unsigned i, const char *name, const char *attr,
    const char *value, bool on)
{
	struct disk *d = disk_new(name, h->machine, h->pages);
	char err[CTL_MAX_ERROR], index[8];

	CHECK(d != NULL, "out of memory");
	snprintf(index, sizeof(index), "%u", i);
	CHECK(attr_set(disk_attrs, &d->set, attr, value, false, err,
		  sizeof(err)) == 0 &&
		  attr_set(disk_attrs, &d->set, "index", index, false, err,
		      sizeof(err)) == 0 &&
		  attr_set(disk_attrs, &d->set, "power", on ? "1" : "0", false,
		      err, sizeof(err)) == 0,
	    "%s", err);
	if (on)
		CHECK(
		    disk_power_on(d, ON_NS, err, sizeof(err)) == 0, "%s", err);
	h->disks[i] = d;
}

/* One client, who is still there after each kick. */
static int
clients(void *from, struct client **out)
{
	(void)from;
	*out = calloc(1, sizeof(**out));
	CHECK(*out != NULL, "out of memory");
	**out =
	    (struct client){ .id = 7, .peer = "unix", .phase = "handshake" };
	return 1;
}

static int
kick(void *from, uint64_t id)
{
	(void)from;
	return id == 7 ? 0 : -ENOENT;
}

static void
host_init(struct host *h)
{
	*h = (struct host){ .now = ON_NS };
	h->machine = machine_new(1, NULL, NULL);
	CHECK(h->machine != NULL, "out of memory");
	h->pages = page_pool_new(h->machine, 0);
	CHECK(h->pages != NULL, "out of memory");
	make_disk(h, 0, "a", "memory_backed", "1", true);
	make_disk(h, 1, "b", "kernel", "4.14", true);
	make_disk(h, 2, "off", "size", "1G", false);
	h->ctl = (struct ctl){
		.disks = h->disks,
		.nr_disks = NR_DISKS,
		.trace = trace,
		.settle = settle,
		.clients = clients,
		.kick = kick,
		.config = &h->config,
		.create = create,
		.power = power,
		.cut = cut,
		.remove = remove_disk,
	};
	CHECK(config_init(&h->config) == 0 && config_finish(&h->config) == 0,
	    "out of memory");
}

static void
host_fini(struct host *h)
{
	config_fini(&h->config);
	for (unsigned i = 0; i < NR_DISKS; i++)
		disk_free(h->disks[i]);
	page_pool_free(h->pages);
	machine_free(h->machine);
}

/* ---- answers */

static void
check_answer(const char *line)
{
	size_t len = strlen(line);
	json_t *json, *ok;
	json_error_t why;

	CHECK(len > 0 && strchr(line, '\n') == line + len - 1,
	    "not one line: %s", line);
	json = json_loads(line, JSON_REJECT_DUPLICATES, &why);
	CHECK(json_is_object(json), "not an object: %s: %s", why.text, line);
	ok = json_object_get(json, "ok");
	CHECK(json_is_boolean(ok), "neither ok nor not: %s", line);
	if (!json_is_true(ok)) {
		const char *error =
		    json_string_value(json_object_get(json, "error"));

		CHECK(error != NULL && error[0] != '\0', "no word: %s", line);
		CHECK(json_is_string(json_object_get(json, "errno")),
		    "no errno: %s", line);
	}
	json_decref(json);
}

static void
ask(struct host *h, const char *line, size_t len)
{
	char *answer = ctl_request(&h->ctl, h, line, len, h->now);

	CHECK((answer == NULL) == (h->settling != NULL), "no answer");
	if (answer == NULL)
		answer = settled(h);
	CHECK(answer != NULL, "out of memory");
	fuzz_saw(answer, strlen(answer));
	check_answer(answer);
	free(answer);
	h->now += TICK_NS;
}

/* ---- the disks */

struct text {
	char *p;
	size_t len;
};

/* All values, each with a NUL at its end. */
static struct text
values_of(const struct disk_conf *conf)
{
	struct text t = { 0 };
	FILE *out = open_memstream(&t.p, &t.len);

	CHECK(out != NULL, "out of memory");
	for (const struct attr *a = disk_attrs; a->name != NULL; a++) {
		attr_get(a, conf, out);
		fputc('\0', out);
	}
	CHECK(fclose(out) == 0, "out of memory");
	return t;
}

/* Those that can be set, or all, are the same. */
static void
check_same(const struct disk *d, const struct disk_conf *a,
    const struct disk_conf *b, bool all)
{
	struct text x = values_of(a), y = values_of(b);
	const char *i = x.p, *k = y.p;

	for (const struct attr *row = disk_attrs; row->name != NULL; row++) {
		bool may_differ = row->type == ATTR_SHOWN ||
				  row->type == ATTR_OBJECT; /* in its form */

		CHECK(strcmp(i, k) == 0 || (!all && may_differ),
		    "%s: %s is %s, and not %s", d->name, row->name, i, k);
		i += strlen(i) + 1;
		k += strlen(k) + 1;
	}
	free(x.p);
	free(y.p);
}

/* One that has a form of its own: each of the values that make it. */
static void
set_items(const struct disk *d, const struct attr *a, struct disk_conf *copy)
{
	const char *field = (const char *)disk_shown(d) + a->offset;
	const void *object = *(void *const *)field;
	char err[CTL_MAX_ERROR];
	bool more = true;

	for (size_t i = 0; more; i++) {
		char *value = NULL;
		size_t len;
		FILE *out = open_memstream(&value, &len);

		CHECK(out != NULL, "out of memory");
		more = a->object->item(object, i, out);
		fclose(out);
		CHECK(!more || attr_set(disk_attrs, copy, a->name, value, false,
				   err, sizeof(err)) == 0,
		    "%s: %s", d->name, err);
		free(value);
	}
}

/* What `get` prints, `set` takes, and it is the same. */
static void
check_texts(const struct disk *d)
{
	struct text t = values_of(disk_shown(d));
	char err[CTL_MAX_ERROR], *value = t.p;
	struct disk_conf copy;

	CHECK(attr_init(disk_attrs, &copy) == 0, "out of memory");
	for (const struct attr *a = disk_attrs; a->name != NULL; a++) {
		if (a->type == ATTR_OBJECT)
			set_items(d, a, &copy);
		CHECK(a->type == ATTR_SHOWN || a->type == ATTR_OBJECT ||
			  attr_set(disk_attrs, &copy, a->name, value, false,
			      err, sizeof(err)) == 0,
		    "%s: %s", d->name, err);
		value += strlen(value) + 1;
	}
	check_same(d, disk_shown(d), &copy, false);
	attr_fini(disk_attrs, &copy);
	free(t.p);
}

/* What is in force is what would be made of its settings. */
static void
check_in_force(const struct disk *d)
{
	const struct queue *q = d->queue;
	struct queue_conf wanted;
	struct disk_conf conf;
	char err[CTL_MAX_ERROR];

	CHECK(d->change == NULL && !queue_freezing(q), "%s: frozen", d->name);
	CHECK(disk_check(&d->set, 1, &conf, &wanted, err, sizeof(err)) == 0,
	    "%s: on, and its settings are bad: %s", d->name, err);
	if (d->set.seed == 0)
		conf.seed = d->conf.seed; /* chosen when the power came on */
	check_same(d, &d->conf, &conf, true);
	CHECK(q->limits.max_sectors == wanted.limits.max_sectors &&
		  q->limits.max_discard_sectors ==
		      wanted.limits.max_discard_sectors &&
		  q->conf.nomerges == wanted.nomerges &&
		  q->conf.plug_mode == wanted.plug_mode &&
		  q->conf.iostats == wanted.iostats &&
		  (q->elevator != NULL) ==
		      (wanted.elevator != NULL && wanted.elevator->ops != NULL),
	    "%s: the queue has other settings", d->name);
}

struct io {
	struct bio bio;
	unsigned nr_ended;
	int error;
};

static void
io_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct io *io = bio->priv;

	(void)cpu;
	(void)now;
	io->nr_ended++;
	io->error = bio->error;
}

static void
do_io(struct host *h, struct disk *d, enum req_op op, char *page)
{
	struct cpu *cpu = &h->machine->cpu[0];
	struct io io = { .nr_ended = 0 };
	uint64_t next;

	bio_init(&io.bio, op, 0, NULL, 0);
	io.bio.end_io = io_end;
	io.bio.priv = &io;
	CHECK(bio_add(&io.bio, d->queue->conf.multipage, 0, page, PAGE_SIZE),
	    "a page");
	epoch_enter(&h->machine->epoch, 0);
	CHECK(queue_submit(d->queue, cpu, NULL, &io.bio, h->now) == 0,
	    "%s takes no I/O", d->name);
	while ((next = cpu_run(cpu, h->now)) != CPU_NO_DEADLINE)
		h->now = next;
	epoch_leave(&h->machine->epoch, 0);
	CHECK(io.nr_ended == 1 && io.error == 0, "%s: ended %u times: %d",
	    d->name, io.nr_ended, io.error);
	bio_release(&io.bio, cpu);
}

/* Does it have a page that is good, and an end of its I/O, and may be told so?
 */
static bool
may_serve(const struct disk *d)
{
	const struct disk_conf *c = &d->conf;
	uint64_t len = PAGE_SIZE;

	return !d->powering_down && d->zones == NULL &&
	       disk_size(d) >= PAGE_SIZE && c->memory_limit == 0 &&
	       !badblocks_extent(c->badblocks, c->blocksize, 0, &len) &&
	       len == PAGE_SIZE && c->completion_nsec < ON_NS;
}

/* Nothing that it was told makes its I/O fail any more. */
static void
heal(struct host *h, struct disk *d)
{
	static const char *const how[][2] = { { "faults", "removeall" },
		{ "timeout", "" }, { "requeue", "" } };
	char err[CTL_MAX_ERROR];

	for (unsigned i = 0; i < 3; i++)
		CHECK(disk_set(d, how[i][0], how[i][1], h->now, err,
			  sizeof(err)) == 0,
		    "%s: %s", d->name, err);
}

static void
check_serves(struct host *h, struct disk *d)
{
	_Alignas(PAGE_SIZE) static char page[PAGE_SIZE];

	heal(h, d);
	memset(page, 'w', sizeof(page));
	do_io(h, d, REQ_OP_WRITE, page);
	memset(page, 'r', sizeof(page));
	do_io(h, d, REQ_OP_READ, page);
	CHECK(page[0] == (d->store != NULL ? 'w' : 0) && page[0] == page[4095],
	    "%s: 0x%02x was read", d->name, (unsigned char)page[0]);
	CHECK(queue_tags_in_use(d->queue) == 0, "%s: tags", d->name);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *line = (const char *)data, *end = line + size, *next;
	struct host h;

	host_init(&h);
	for (; line < end; line = next) {
		next = memchr(line, '\n', (size_t)(end - line));
		next = next != NULL ? next + 1 : end;
		ask(&h, line, (size_t)(next - line));
	}
	for (unsigned i = 0; i < NR_DISKS; i++) {
		struct disk *d = h.disks[i];

		check_texts(d);
		if (d->queue == NULL)
			continue;
		check_in_force(d);
		if (may_serve(d))
			check_serves(&h, d);
	}
	host_fini(&h);
	return 0;
}
