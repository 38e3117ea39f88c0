/* SPDX-License-Identifier: MIT */
/*
 * The simulated devices inside nbdkit, which has the sockets, NBD, TLS and
 * filters.
 *
 *	parameters -> config -> get_ready: disks -> after_fork: their CPU
 *	a thread of a client: pread, ... -> service_io() -> an errno
 *
 * nbdkit gives its callbacks no argument, so there is one global object.
 */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "service.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

#define MAX_REQUEST   (64u << 20) /* nbdkit's own limit */
#define MAX_PREFERRED (32u << 20) /* NBD's for a preferred block size */
#define ZERO_STEP     (1u << 20)  /* what takes memory goes piece by piece */
#define MAX_EXTENTS   1024u

/* A name under which a disk is served. */
struct export
{
	const char *name; /* the disk's, or its settings' */
	struct task *task;
	bool canonical; /* the disk's own */
};

static struct {
	bool has_config; /* it was initialised */
	struct config config;
	struct device *device; /* of parameters that follow; NULL: of all */
	const char *chosen;    /* its name, when there was one */
	bool has_files;        /* which say what devices there are */
	char *stats_path;
	FILE *stats;
	char *help;
	struct service *service;
	struct task **tasks;
	unsigned nr_tasks;
	struct export *exports;
	unsigned nr_exports;
} self;

/* ---- parameters */

/* What was printed about errors, a line each. */
struct complaints {
	char *text;
	size_t len;
	FILE *out;
};

static int
complaints_begin(struct complaints *c)
{
	c->text = NULL;
	c->out = open_memstream(&c->text, &c->len);
	if (c->out == NULL)
		nbdkit_error("out of memory");
	return c->out != NULL ? 0 : -1;
}

/* Tell nbdkit; returns what a callback is to return for `ret`. */
static int
complaints_end(struct complaints *c, int ret)
{
	char *rest, *line;

	if (fclose(c->out) != 0)
		ret = -ENOMEM;
	rest = c->text;
	while (rest != NULL && (line = strsep(&rest, "\n")) != NULL) {
		if (*line == '\0')
			continue;
		if (ret != 0)
			nbdkit_error("%s", line);
		else
			nbdkit_debug("%s", line);
	}
	free(c->text);
	return ret != 0 ? -1 : 0;
}

/* config=FILE, modprobe=FILE */
static int
read_file(
    int (*reader)(struct config *, const char *, FILE *), const char *path)
{
	struct complaints c;

	if (complaints_begin(&c) != 0)
		return -1;
	self.has_files = true;
	return complaints_end(&c, reader(&self.config, path, c.out));
}

/*
 * device=NAME[:attribute=value...]: parameters that follow are its.  Files say
 * which devices there are; where none was read each name makes one.
 */
static int
choose_device(const char *spec)
{
	char err[CTL_MAX_ERROR] = "", name[DISK_NAME_LEN];
	size_t len = strcspn(spec, ":");

	snprintf(name, sizeof(name), "%.*s", (int)len, spec);
	self.device =
	    len < sizeof(name) ? config_find(&self.config, name) : NULL;
	if (self.device == NULL && self.has_files && spec[len] == '\0') {
		nbdkit_error("device: \"%.60s\": the files have none of that "
			     "name",
		    spec);
		return -1;
	}
	if (self.device == NULL || spec[len] != '\0') {
		if (config_spec(&self.config, spec, err, sizeof(err)) != 0) {
			nbdkit_error("device: %s", err);
			return -1;
		}
		self.device = config_find(&self.config, name);
	}
	if (self.chosen == NULL)
		self.chosen = self.device->name;
	return 0;
}

static int
choose_stats(const char *path)
{
	free(self.stats_path);
	self.stats_path = nbdkit_absolute_path(path);
	return self.stats_path != NULL ? 0 : -1;
}

static int
read_ini(const char *path)
{
	return read_file(config_ini, path);
}

static int
read_modprobe(const char *path)
{
	return read_file(config_modprobe, path);
}

static int
set_default_export(const char *name)
{
	char err[CTL_MAX_ERROR] = "";

	if (config_set(
		&self.config, "default_export", name, err, sizeof(err)) == 0)
		return 0;
	nbdkit_error("%s", err);
	return -1;
}

/* Parameters that are no attribute of a device. */
static const struct parameter {
	const char *name;
	int (*set)(const char *value);
	const char *help;
} parameters[] = {
	{ "config", read_ini, "FILE  devices as nullbd.conf(5) has them" },
	{ "modprobe", read_modprobe,
	    "FILE  devices as options of null_blk in modprobe.d" },
	{ "device", choose_device,
	    "NAME  the parameters that follow are of this device" },
	{ "default_export", set_default_export,
	    "NAME  what a client gets who names none; none: nothing" },
	{ "stats", choose_stats, "FILE  write the counters there at the end" },
	{},
};

static int
nullb_config(const char *key, const char *value)
{
	struct device *dev =
	    self.device != NULL ? self.device : &self.config.defaults;
	char err[CTL_MAX_ERROR] = "";

	for (const struct parameter *p = parameters; p->name != NULL; p++)
		if (strcmp(key, p->name) == 0)
			return p->set(value);
	if (device_set(dev, key, value, err, sizeof(err)) == 0)
		return 0;
	nbdkit_error("%s", err);
	return -1;
}

/* What of the settings has no meaning in nbdkit. */
static int
check_devices(void)
{
	const struct device *d;
	unsigned nr_on = 0;

	STAILQ_FOREACH(d, &self.config.devices, link) {
		nr_on += d->conf.power;
		if (d->conf.fill != NULL) {
			nbdkit_error("%s: fill: this plugin reads none; nullbd "
				     "does",
			    d->name);
			return -1;
		}
		if (d->conf.backing != NULL) {
			nbdkit_error("%s: backing: this plugin keeps none; "
				     "nullbd does",
			    d->name);
			return -1;
		}
		if (d->conf.crash_log != NULL) {
			nbdkit_error("%s: crash_log: this plugin writes none; "
				     "nullbd does",
			    d->name);
			return -1;
		}
		if (d->conf.trace == NULL)
			continue;
		nbdkit_error(
		    "%s: trace: this plugin writes none; nullbd does", d->name);
		return -1;
	}
	if (nr_on > 0)
		return 0;
	nbdkit_error("there is no device whose power is on");
	return -1;
}

static int
nullb_config_complete(void)
{
	struct complaints c;

	if (complaints_begin(&c) != 0)
		return -1;
	if (complaints_end(&c, config_finish(&self.config)) != 0)
		return -1;
	if (complaints_begin(&c) != 0)
		return -1;
	if (complaints_end(&c, config_check(&self.config, 1, c.out)) != 0)
		return -1;
	return check_devices();
}

static void
nullb_dump_plugin(void)
{
	printf("nullb_version=%s\nnullb_profiles=", NULLBD_VERSION);
	for (const struct profile *p = profiles; p->name != NULL; p++)
		printf("%s%s", p == profiles ? "" : " ", p->name);
	printf("\nnullb_schedulers=");
	for (const struct elevator_type *e = elevators; e->name != NULL; e++)
		if (e->available)
			printf("%s%s", e == elevators ? "" : " ", e->name);
	printf("\nnullb_parameters=");
	for (const struct parameter *p = parameters; p->name != NULL; p++)
		printf("%s%s", p == parameters ? "" : " ", p->name);
	printf("\nnullb_attributes=");
	for (const struct attr *a = disk_attrs; a->name != NULL; a++)
		if (a->type != ATTR_SHOWN)
			printf("%s%s", a == disk_attrs ? "" : " ", a->name);
	putchar('\n');
}

/* ---- life */

static int
add_export(const char *name, struct task *task, bool canonical)
{
	struct export *more =
	    reallocarray(self.exports, self.nr_exports + 1, sizeof(*more));

	if (more == NULL) {
		nbdkit_error("out of memory");
		return -1;
	}
	self.exports = more;
	more[self.nr_exports++] = (struct export){ name, task, canonical };
	return 0;
}

static int
add_disk(const struct device *dev)
{
	char err[CTL_MAX_ERROR] = "", **name;
	struct task *t = service_add(self.service, dev, err, sizeof(err));

	if (t == NULL) {
		nbdkit_error("%s: %s", dev->name, err);
		return -1;
	}
	self.tasks[self.nr_tasks++] = t;
	if (add_export(task_disk(t)->name, t, true) != 0)
		return -1;
	for (name = task_disk(t)->conf.export_names;
	     name != NULL && *name != NULL; name++)
		if (add_export(*name, t, false) != 0)
			return -1;
	return 0;
}

/* nbdkit says why, in the log. */
static bool
is_gone(void)
{
	return nbdkit_nanosleep(0, 1) != 0;
}

static int
nullb_get_ready(void)
{
	const struct daemon_conf *conf = &self.config.daemon;
	struct service_conf service = {
		.memory_limit = conf->memory_limit != MEMORY_LIMIT_AUTO
				    ? conf->memory_limit
				    : memory_limit_auto(),
		.spin_ns = (uint64_t)conf->spin_usec * 1000,
		.is_gone = is_gone,
	};
	const struct device *dev;

	/* its directory may be another one later */
	if (self.stats_path != NULL) {
		self.stats = fopen(self.stats_path, "we");
		if (self.stats == NULL) {
			nbdkit_error("stats: %s: %m", self.stats_path);
			return -1;
		}
	}
	self.service = service_new(&service);
	self.tasks = calloc(self.config.nr_devices + 1, sizeof(struct task *));
	if (self.service == NULL || self.tasks == NULL) {
		nbdkit_error("out of memory");
		return -1;
	}
	STAILQ_FOREACH(dev, &self.config.devices, link)
		if (dev->conf.power && add_disk(dev) != 0)
			return -1;
	return 0;
}

static int
nullb_after_fork(void)
{
	int err = service_start(self.service);

	if (err != 0)
		nbdkit_error("cannot start a thread: %s", strerror(-err));
	return err != 0 ? -1 : 0;
}

/* The line of /sys/block/X/stat, then what it has no field for. */
static void
report(struct disk *d, FILE *out)
{
	struct queue_stat st;
	struct latency l;

	stat_read(d->queue, &st, service_now());
	fprintf(out, "%s:\n", d->name);
	stat_show(d->queue, &st, out);
	fprintf(out,
	    "  splits: size=%" PRIu64 " chunk=%" PRIu64 " segments=%" PRIu64
	    " gap=%" PRIu64 "\n",
	    st.splits[SPLIT_SIZE], st.splits[SPLIT_CHUNK],
	    st.splits[SPLIT_SEGMENTS], st.splits[SPLIT_GAP]);
	for (enum stat_group g = 0; g < STAT_NR; g++) {
		stat_latency(d->queue, g, &l);
		if (latency_count(&l) > 0)
			latency_print(g, &l, out);
	}
}

/* The clients have gone. */
static void
nullb_cleanup(void)
{
	if (self.service == NULL)
		return;
	service_stop(self.service);
	if (self.stats == NULL)
		return;
	for (unsigned i = 0; i < self.nr_tasks; i++)
		report(task_disk(self.tasks[i]), self.stats);
	if (fflush(self.stats) != 0)
		nbdkit_error("stats: %s: %m", self.stats_path);
}

static void
nullb_unload(void)
{
	if (self.service != NULL)
		service_stop(self.service);
	service_free(self.service);
	if (self.stats != NULL)
		fclose(self.stats);
	if (self.has_config)
		config_fini(&self.config);
	free(self.exports);
	free(self.tasks);
	free(self.stats_path);
	free(self.help);
}

/* ---- exports */

static const struct export *
find_export(const char *name)
{
	for (unsigned i = 0; i < self.nr_exports; i++)
		if (strcmp(self.exports[i].name, name) == 0)
			return &self.exports[i];
	return NULL;
}

/* What a client gets who names none: as configured, chosen, or the first. */
static const char *
nullb_default_export(int readonly, int is_tls)
{
	const char *name = self.config.daemon.default_export;

	(void)readonly;
	(void)is_tls;
	if (name != NULL)
		return strcmp(name, DAEMON_NO_DEFAULT) != 0 ? name : NULL;
	if (self.chosen != NULL && find_export(self.chosen) != NULL)
		return self.chosen;
	return self.exports[0].name;
}

static int
nullb_list_exports(int readonly, int is_tls, struct nbdkit_exports *exports)
{
	(void)readonly;
	for (unsigned i = 0; i < self.nr_exports; i++) {
		const struct export *e = &self.exports[i];
		const struct disk *d = task_disk(e->task);

		if (d->conf.tls_only && !is_tls)
			continue;
		if (nbdkit_add_export(exports, e->name, d->conf.description) !=
		    0)
			return -1;
	}
	return 0;
}

static void *
nullb_open(int readonly)
{
	const char *name = nbdkit_export_name();
	const struct export *e;

	if (name != NULL && *name == '\0')
		name = nullb_default_export(readonly, nbdkit_is_tls());
	e = name != NULL ? find_export(name) : NULL;
	if (e == NULL) {
		nbdkit_error("%s%s%s", name != NULL ? name : "no export named",
		    name != NULL ? ": " : "",
		    name != NULL ? "no such export" : ", and no default");
		nbdkit_set_error(ENOENT);
		return NULL;
	}
	if (task_disk(e->task)->conf.tls_only && !nbdkit_is_tls()) {
		nbdkit_error("%s: for TLS only", name);
		nbdkit_set_error(EACCES);
		return NULL;
	}
	return e->task;
}

static const char *
nullb_export_description(void *handle)
{
	return task_disk(handle)->conf.description;
}

static const struct limits *
limits_of(void *handle)
{
	return &task_disk(handle)->queue->limits;
}

static int64_t
nullb_get_size(void *handle)
{
	return (int64_t)disk_size(task_disk(handle));
}

static int
nullb_block_size(
    void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
	const struct limits *lim = limits_of(handle);
	uint32_t physical = lim->physical_block_size;

	if (physical < PAGE_SIZE)
		physical = PAGE_SIZE;
	*minimum = lim->logical_block_size;
	*preferred = physical < MAX_PREFERRED ? physical : MAX_PREFERRED;
	*maximum = MAX_REQUEST;
	return 0;
}

static int
nullb_can_write(void *handle)
{
	return !task_disk(handle)->conf.ro;
}

static int
nullb_is_rotational(void *handle)
{
	return limits_of(handle)->rotational;
}

static int
nullb_can_trim(void *handle)
{
	return limits_of(handle)->max_discard_sectors > 0;
}

/* Else nbdkit writes zeros, as blkdev_issue_zeroout() does. */
static int
nullb_can_zero(void *handle)
{
	return limits_of(handle)->max_write_zeroes_sectors > 0;
}

static int
yes(void *handle)
{
	(void)handle;
	return 1;
}

static int
nullb_can_fua(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

static int
nullb_can_cache(void *handle)
{
	(void)handle;
	return NBDKIT_CACHE_NATIVE;
}

/* ---- I/O */

static const char *const op_names[REQ_OP_NR] = {
	[REQ_OP_READ] = "read",
	[REQ_OP_WRITE] = "write",
	[REQ_OP_FLUSH] = "flush",
	[REQ_OP_DISCARD] = "trim",
	[REQ_OP_WRITE_ZEROES] = "zero",
};

/* What NBD has no name for is EIO, and not, as nbdkit has it, EINVAL. */
static int
nbd_errno(int err)
{
	static const int known[] = { EPERM, EACCES, EROFS, ENOMEM, EINVAL,
		ENOSPC, EDQUOT, EFBIG, EOPNOTSUPP, ESHUTDOWN };

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (err == known[i])
			return err;
	return EIO;
}

static int
io(void *handle, enum req_op op, unsigned flags, uint64_t pos, uint32_t bytes,
    void *data)
{
	int err = -service_io(handle, op, flags, pos, bytes, data);

	if (err == 0)
		return 0;
	nbdkit_error("%s: %s of %" PRIu32 " bytes at %" PRIu64 ": %s",
	    task_disk(handle)->name, op_names[op], bytes, pos, strerror(err));
	nbdkit_set_error(nbd_errno(err));
	return -1;
}

static unsigned
fua(uint32_t flags)
{
	return (flags & NBDKIT_FLAG_FUA) != 0 ? REQ_FUA : 0;
}

static int
nullb_pread(
    void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)flags;
	return io(handle, REQ_OP_READ, 0, offset, count, buf);
}

static int
nullb_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset,
    uint32_t flags)
{
	/* a write only reads it */
	return io(handle, REQ_OP_WRITE, fua(flags), offset, count,
	    (void *)(uintptr_t)buf);
}

static int
nullb_flush(void *handle, uint32_t flags)
{
	(void)flags;
	return io(handle, REQ_OP_FLUSH, 0, 0, 0, NULL);
}

static int
nullb_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	return io(
	    handle, REQ_OP_DISCARD, REQ_SYNC | fua(flags), offset, count, NULL);
}

static int
nullb_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	uint32_t done, n;

	if ((flags & NBDKIT_FLAG_MAY_TRIM) != 0)
		return io(handle, REQ_OP_WRITE_ZEROES, fua(flags), offset,
		    count, NULL);
	for (done = 0; done < count; done += n) {
		n = count - done < ZERO_STEP ? count - done : ZERO_STEP;
		if (io(handle, REQ_OP_WRITE_ZEROES, REQ_NOUNMAP | fua(flags),
			offset + done, n, NULL) != 0)
			return -1;
	}
	return 0;
}

/* Advice, which nobody needs here: all of it is in memory. */
static int
nullb_cache(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle;
	(void)count;
	(void)offset;
	(void)flags;
	return 0;
}

static int
nullb_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags,
    struct nbdkit_extents *extents)
{
	unsigned max = (flags & NBDKIT_FLAG_REQ_ONE) != 0 ? 1 : MAX_EXTENTS;
	struct service_extent *list = calloc(max, sizeof(*list));
	unsigned nr;
	int ret = 0;

	if (list == NULL) {
		nbdkit_error("out of memory");
		nbdkit_set_error(ENOMEM);
		return -1;
	}
	nr = service_extents(handle, offset, count, list, max);
	for (unsigned i = 0; i < nr && ret == 0; i++) {
		ret = nbdkit_add_extent(extents, offset, list[i].bytes,
		    (list[i].kind & DISK_HOLE ? NBDKIT_EXTENT_HOLE : 0) |
			(list[i].kind & DISK_ZERO ? NBDKIT_EXTENT_ZERO : 0));
		offset += list[i].bytes;
	}
	free(list);
	return ret;
}

/* ---- registration */

static struct nbdkit_plugin plugin = {
	.name = "nullb",
	.longname = "nullbd's simulated block devices",
	.version = NULLBD_VERSION,
	.description = "Linux null_blk behind the Linux block layer",
	.magic_config_key = "size",
	.errno_is_preserved = 0,
	.unload = nullb_unload,
	.config = nullb_config,
	.config_complete = nullb_config_complete,
	.dump_plugin = nullb_dump_plugin,
	.get_ready = nullb_get_ready,
	.after_fork = nullb_after_fork,
	.cleanup = nullb_cleanup,
	.list_exports = nullb_list_exports,
	.default_export = nullb_default_export,
	.export_description = nullb_export_description,
	.open = nullb_open,
	.get_size = nullb_get_size,
	.block_size = nullb_block_size,
	.can_write = nullb_can_write,
	.can_flush = yes,
	.is_rotational = nullb_is_rotational,
	.can_trim = nullb_can_trim,
	.can_zero = nullb_can_zero,
	.can_fast_zero = yes,
	.can_extents = yes,
	.can_fua = nullb_can_fua,
	.can_multi_conn = yes,
	.can_cache = nullb_can_cache,
	.pread = nullb_pread,
	.pwrite = nullb_pwrite,
	.flush = nullb_flush,
	.trim = nullb_trim,
	.zero = nullb_zero,
	.cache = nullb_cache,
	.extents = nullb_extents,
};

/* nbdkit copies the object before it calls anything else: so early. */
static __attribute__((constructor)) void
prepare(void)
{
	size_t len;
	FILE *out = open_memstream(&self.help, &len);

	self.has_config = config_init(&self.config) == 0;
	if (out == NULL)
		return;
	for (const struct parameter *p = parameters; p->name != NULL; p++)
		fprintf(out, "%s=%s\n", p->name, p->help);
	fputs("Attributes of a device, each a parameter:\n", out);
	attr_usage(disk_attrs, out);
	if (fclose(out) == 0)
		plugin.config_help = self.help;
}

NBDKIT_REGISTER_PLUGIN(plugin)
