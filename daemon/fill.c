/* SPDX-License-Identifier: MIT */
/*
 * A device that begins with the data of an image, or of the file that keeps its
 * data (backing.c).  It is read while the device
 * is still off, into a store that nobody else knows, and by a thread of its
 * own: the main loop has others to serve.
 *
 *	off -> the image is read -> on
 *	                  '-> off, without data; or gone, if it was made for it
 *
 * What is a hole in a file is one in the store.  Where nobody tells of holes
 * (block devices) pages of zeros are left out.
 */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define CHUNK (1u << 20) /* read at a time, and then it may be called off */

struct fill {
	TAILQ_ENTRY(fill) link; /* in daemon->fills */
	struct daemon *daemon;
	struct disk *disk;
	bool is_new; /* the disk was made with it */
	atomic_bool cancelled;
	pthread_t thread;
	ev_async done; /* the thread has come to its end: */
	int error;     /* 0 or -errno, */
	char text[MAX_ERROR];
	struct store *store; /* NULL if it failed */
	/* the file, until it is the disk's; NULL: it is an image */
	struct backing *backing;

	/* the thread's */
	const char *attr; /* whose value the path is */
	char *path;
	int fd;
	uint64_t size;  /* of the device */
	bool has_holes; /* it is told where they are */
	char *buf;      /* of a CHUNK */
};

static void
fill_free(struct fill *f)
{
	if (f == NULL)
		return;
	store_free(f->store, NULL);
	backing_close(f->backing);
	free(f->path);
	free(f);
}

static struct fill *
fill_new(struct disk *disk, const struct disk_conf *conf)
{
	struct fill *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->disk = disk;
	f->size = conf->size;
	f->attr = conf->backing != NULL ? "backing" : "fill";
	f->path = strdup(conf->backing != NULL ? conf->backing : conf->fill);
	f->store = store_new(
	    disk->pool, conf->size, conf->blocksize, conf->memory_limit);
	if (f->path != NULL && f->store != NULL)
		return f;
	fill_free(f);
	return NULL;
}

/* ---- the image */

static int
failed(struct fill *f, int error, const char *why)
{
	return refuse(f->text, sizeof(f->text), error, "%s: \"%.200s\": %s",
	    f->attr, f->path, why);
}

/* 0 and its size, or an error. */
static int
image_open(struct fill *f, uint64_t *size)
{
	struct stat st;
	off_t end;

	/* who writes to a FIFO need not be there */
	f->fd = f->backing != NULL
		    ? backing_fd(f->backing)
		    : open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (f->fd < 0 || fstat(f->fd, &st) != 0)
		return failed(f, -errno, strerror(errno));
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return failed(f, S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL,
		    "allowed: a file, or a block device");
	end = lseek(f->fd, 0, SEEK_END);
	if (end < 0)
		return failed(f, -errno, strerror(errno));
	if ((uint64_t)end > f->size)
		return refuse(f->text, sizeof(f->text), -EFBIG,
		    "fill: \"%.200s\": %jd bytes: allowed: at most the size "
		    "(%" PRIu64 ")",
		    f->path, (intmax_t)end, f->size);
	*size = (uint64_t)end;
	return 0;
}

/*
 * Data from pos on: *data is where it begins, *end where it ends, at most
 * `size`.  0, or an error.
 */
static int
next_data(
    struct fill *f, uint64_t pos, uint64_t size, uint64_t *data, uint64_t *end)
{
	off_t from = (off_t)pos, at = lseek(f->fd, from, SEEK_DATA);

	*data = *end = size;
	if (at < 0 && errno == ENXIO)
		return 0;
	f->has_holes = at >= 0;
	if (at < 0 && errno != EINVAL && errno != EOPNOTSUPP)
		return failed(f, -errno, strerror(errno));
	*data = at < 0 ? pos : (uint64_t)at;
	at = at < 0 ? at : lseek(f->fd, at, SEEK_HOLE);
	if (at > (off_t)*data && (uint64_t)at < size)
		*end = (uint64_t)at;
	return 0;
}

static int
put(struct fill *f, uint64_t pos, const char *data, uint64_t len)
{
	if (store_write(f->store, NULL, pos, data, len) == 0)
		return 0;
	return failed(
	    f, -ENOSPC, "no memory for its data, or no more is allowed");
}

/* The same, but for pages of zeros; pos is the beginning of one. */
static int
put_sparse(struct fill *f, uint64_t pos, const char *data, uint64_t len)
{
	const void *zeros = store_zeros();
	uint64_t at, n;
	int ret = 0;

	for (at = 0; ret == 0 && at < len; at += n) {
		n = len - at < PAGE_SIZE ? len - at : PAGE_SIZE;
		if (memcmp(data + at, zeros, n) != 0)
			ret = put(f, pos + at, data + at, n);
	}
	return ret;
}

static int
copy(struct fill *f, uint64_t pos, uint64_t end)
{
	ssize_t n;
	int ret;

	for (; pos < end; pos += (uint64_t)n) {
		if (atomic_load(&f->cancelled))
			return failed(f, -ECANCELED, "called off");
		n = pread(f->fd, f->buf, end - pos < CHUNK ? end - pos : CHUNK,
		    (off_t)pos);
		if (n < 0 && errno == EINTR) {
			n = 0;
			continue;
		}
		if (n <= 0)
			return failed(f, n < 0 ? -errno : -EIO,
			    n < 0 ? strerror(errno)
				  : "became shorter while it was read");
		ret = f->has_holes ? put(f, pos, f->buf, (uint64_t)n)
				   : put_sparse(f, pos, f->buf, (uint64_t)n);
		if (ret != 0)
			return ret;
	}
	return 0;
}

static int
image_read(struct fill *f)
{
	uint64_t pos, data, end, size = 0;
	int ret = image_open(f, &size);

	f->buf = malloc(CHUNK);
	if (ret == 0 && f->buf == NULL)
		ret = failed(f, -ENOMEM, strerror(ENOMEM));
	for (pos = 0; ret == 0 && pos < size; pos = end) {
		ret = next_data(f, pos, size, &data, &end);
		if (ret == 0)
			ret = copy(f, data, end);
	}
	free(f->buf);
	if (f->fd >= 0)
		close(f->fd);
	if (ret != 0) {
		store_free(f->store, NULL);
		f->store = NULL;
	}
	return ret;
}

/* ---- its thread */

static void *
fill_thread(void *arg)
{
	struct fill *f = arg;

	f->error = image_read(f);
	ev_async_send(f->daemon->main.ev, &f->done);
	return NULL;
}

/* Main loop: the thread has ended, or is about to. */
static void
fill_end(struct daemon *d, struct fill *f)
{
	pthread_join(f->thread, NULL);
	ev_async_stop(d->main.ev, &f->done);
	TAILQ_REMOVE(&d->fills, f, link);
	f->disk->filling = false;
}

/* What was read is the disk's, which goes on.  0, or -errno with a sentence. */
static int
go_on(struct fill *f)
{
	struct disk *disk = f->disk;
	int ret = f->error;

	if (ret == 0 && atomic_load(&f->cancelled))
		ret = failed(f, -ECANCELED, "called off");
	if (ret != 0)
		return ret;
	disk_give_store(disk, f->store, f->backing);
	ret = device_power_on(f->daemon, disk, f->text, sizeof(f->text));
	if (ret != 0) { /* the next time it is read again */
		f->store = disk_take_store(disk);
		return ret;
	}
	f->store = NULL;
	f->backing = NULL;
	return 0;
}

static void
on_done(struct ev_loop *ev, ev_async *w, int revents)
{
	struct fill *f = w->data;
	struct daemon *d = f->daemon;
	struct disk *disk = f->disk;
	int ret;

	(void)ev;
	(void)revents;
	fill_end(d, f);
	ret = go_on(f);
	if (ret != 0)
		log_warn("%s: %s", disk->name, f->text);
	waiter_settled(d, disk, ret, f->text);
	if (ret != 0 && f->is_new && !power_removes(d, disk))
		device_remove(d, disk);
	fill_free(f);
	systemd_ready(d);
}

static int
fill_start(struct daemon *d, struct fill *f)
{
	int ret;

	f->daemon = d;
	ev_async_init(&f->done, on_done);
	f->done.data = f;
	ev_async_start(d->main.ev, &f->done);
	ret = host_start_thread(&f->thread, NULL, fill_thread, f);
	if (ret != 0) {
		ev_async_stop(d->main.ev, &f->done);
		return ret;
	}
	TAILQ_INSERT_TAIL(&d->fills, f, link);
	f->disk->filling = true;
	return 0;
}

static struct fill *
find(const struct daemon *d, const struct disk *disk)
{
	struct fill *f;

	TAILQ_FOREACH(f, &d->fills, link)
		if (f->disk == disk)
			return f;
	return NULL;
}

/* ---- for others */

/* Nobody is served yet. */
static int
fill_now(struct fill *f, char *err, size_t errlen)
{
	int ret = image_read(f);

	if (ret != 0)
		return refuse(err, errlen, ret, "%s", f->text);
	disk_give_store(f->disk, f->store, f->backing);
	f->store = NULL;
	f->backing = NULL;
	return 0;
}

int
fill_disk(struct daemon *d, struct disk *disk, char *err, size_t errlen)
{
	struct queue_conf queue;
	struct disk_conf conf;
	struct fill *f;
	int ret;

	f = find(d, disk);
	if (f != NULL && atomic_load(&f->cancelled))
		return refuse(
		    err, errlen, -EBUSY, "power: it is just going off");
	if (f != NULL)
		return -EINPROGRESS;
	if (disk->kept != NULL ||
	    (disk->set.fill == NULL && disk->set.backing == NULL))
		return 0;
	ret = disk_check(
	    &disk->set, d->machine->nr_cpus, &conf, &queue, err, errlen);
	if (ret != 0 || conf.size == 0)
		return ret;
	f = fill_new(disk, &conf);
	if (f == NULL)
		return refuse(err, errlen, -ENOMEM, "fill: out of memory");
	if (conf.backing != NULL)
		ret =
		    backing_open(d, disk, conf.size, &f->backing, err, errlen);
	if (ret != 0) {
		fill_free(f);
		return ret;
	}
	if (d->main.ev == NULL) {
		ret = fill_now(f, err, errlen);
		fill_free(f);
		return ret;
	}
	ret = fill_start(d, f);
	if (ret == 0)
		return -EINPROGRESS;
	fill_free(f);
	return refuse(err, errlen, ret, "fill: %s", strerror(-ret));
}

int
fill_check(
    const struct disk_conf *set, unsigned nr_cpus, char *err, size_t errlen)
{
	struct fill f = { .attr = "fill", .path = set->fill, .fd = -1 };
	struct queue_conf queue;
	struct disk_conf conf;
	uint64_t size;
	int ret;

	if (set->fill == NULL || set->backing != NULL)
		return 0;
	ret = disk_check(set, nr_cpus, &conf, &queue, err, errlen);
	if (ret != 0 || conf.size == 0)
		return ret;
	f.size = conf.size;
	ret = image_open(&f, &size);
	if (f.fd >= 0)
		close(f.fd);
	return ret != 0 ? refuse(err, errlen, ret, "%s", f.text) : 0;
}

void
fill_or_remove(struct daemon *d, const struct disk *disk)
{
	find(d, disk)->is_new = true;
}

bool
fill_cancel(struct daemon *d, const struct disk *disk)
{
	struct fill *f = find(d, disk);

	if (f != NULL)
		atomic_store(&f->cancelled, true);
	return f != NULL;
}

void
fill_fini(struct daemon *d)
{
	struct fill *f;

	while ((f = TAILQ_FIRST(&d->fills)) != NULL) {
		atomic_store(&f->cancelled, true);
		/* it leaves the list, NOLINTNEXTLINE(*-unix.Malloc) */
		fill_end(d, f);
		fill_free(f);
	}
}
