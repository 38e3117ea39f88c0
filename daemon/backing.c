/* SPDX-License-Identifier: MIT */
/*
 * Files that keep the data of devices (dev/backing.c), and make it safe.
 *
 *	off -> opened, locked, made as large as the device
 *	    -> read into its store (fill.c) -> on, and written
 *	    -> off: closed
 *
 * fdatasync() may take long, so a thread a file does it; requests that come
 * while it is at it share the next one.  A memfd has no name, so that it has to
 * stay open: in a list while the daemon lives, and with the service manager
 * while it is started anew (systemd.c).
 */
#include "daemon.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

struct backing_file {
	struct backing core; /* what the disk has; its file is this */
	int fd;
	bool is_memory; /* a memfd: another has the descriptor, too */
	bool has_thread;
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t has_work;
	struct request_list held; /* they wait for the next fdatasync() */
	bool ends;
};

/* Memory of a device that is not removed, whether it is on or off. */
struct memory_file {
	SLIST_ENTRY(memory_file) link; /* in daemon->memory_files */
	char name[DISK_NAME_LEN];      /* of the device */
	int fd;
};

/* ---- what the core does with it */

static int
write_zeros(struct backing_file *f, uint64_t pos, uint64_t len)
{
	uint64_t n;
	ssize_t ret;

	for (; len > 0; pos += n, len -= n) {
		n = len < STORE_ZEROS_SIZE ? len : STORE_ZEROS_SIZE;
		ret = pwrite(f->fd, store_zeros(), n, (off_t)pos);
		if (ret < 0 && errno != EINTR)
			return -errno;
		n = ret > 0 ? (uint64_t)ret : 0;
	}
	return 0;
}

/* Where a file system knows no holes, zeros are written. */
static int
file_punch(void *file, uint64_t pos, uint64_t len)
{
	struct backing_file *f = file;
	int ret;

	do
		ret =
		    fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			(off_t)pos, (off_t)len);
	while (ret != 0 && errno == EINTR);
	if (ret != 0 && errno == EOPNOTSUPP)
		return write_zeros(f, pos, len);
	return ret == 0 ? 0 : -errno;
}

static int
file_write(void *file, const struct iovec *iov, unsigned nr, uint64_t pos)
{
	const struct backing_file *f = file;

	return file_write_all(f->fd, iov, nr, pos);
}

static int
file_sync(void *file)
{
	const struct backing_file *f = file;

	if (f->is_memory) /* no power cut of the machine leaves it */
		return 0;
	return fdatasync(f->fd) == 0 ? 0 : -errno;
}

static void
file_hold(void *file, struct request *rq)
{
	struct backing_file *f = file;

	pthread_mutex_lock(&f->lock);
	TAILQ_INSERT_TAIL(&f->held, rq, link);
	pthread_cond_signal(&f->has_work);
	pthread_mutex_unlock(&f->lock);
}

static const struct backing_ops ops = {
	.write = file_write,
	.punch = file_punch,
	.sync = file_sync,
	.hold = file_hold,
};

/* ---- its thread */

/* All that wait by now.  False: it is to end. */
static bool
wait_for_work(struct backing_file *f, struct request_list *work)
{
	bool ends;

	pthread_mutex_lock(&f->lock);
	while (TAILQ_EMPTY(&f->held) && !f->ends)
		pthread_cond_wait(&f->has_work, &f->lock);
	TAILQ_CONCAT(work, &f->held, link);
	ends = f->ends;
	pthread_mutex_unlock(&f->lock);
	return !TAILQ_EMPTY(work) || !ends;
}

static void *
sync_thread(void *arg)
{
	struct request_list work = TAILQ_HEAD_INITIALIZER(work);
	struct backing_file *f = arg;
	struct request *rq;
	int ret;

	while (wait_for_work(f, &work)) {
		ret = file_sync(f);
		while ((rq = TAILQ_FIRST(&work)) != NULL) {
			TAILQ_REMOVE(&work, rq, link);
			rq->error = ret;
			rq_complete_posted(rq);
		}
	}
	return NULL;
}

static int
start_thread(struct backing_file *f)
{
	int ret = host_start_thread(&f->thread, NULL, sync_thread, f);

	f->has_thread = ret == 0;
	return ret;
}

/* ---- the file */

static int
refuse_file(const struct disk *disk, int error, const char *why, char *err,
    size_t errlen)
{
	return refuse(err, errlen, error, "backing: \"%.200s\": %s",
	    disk->set.backing, why);
}

static struct memory_file *
find_memory(const struct daemon *d, const char *name)
{
	struct memory_file *m;

	SLIST_FOREACH(m, &d->memory_files, link)
		if (strcmp(m->name, name) == 0)
			return m;
	return NULL;
}

/* What the manager has kept, or else what it is to keep from now on. */
static int
open_memory(struct daemon *d, const struct disk *disk, char *err, size_t errlen)
{
	struct memory_file *m = find_memory(d, disk->name);

	if (m != NULL)
		return m->fd;
	m = calloc(1, sizeof(*m));
	if (m == NULL)
		return refuse_file(
		    disk, -ENOMEM, strerror(ENOMEM), err, errlen);
	memcpy(m->name, disk->name, sizeof(m->name));
	m->fd = systemd_take(&d->systemd, disk->name);
	if (m->fd < 0) {
		m->fd = memfd_create(disk->name, MFD_CLOEXEC);
		if (m->fd < 0) {
			free(m);
			return refuse_file(
			    disk, -errno, strerror(errno), err, errlen);
		}
		if (!systemd_keep(&d->systemd, disk->name, m->fd))
			log_warn("%s: backing: \"memfd\": no service manager "
				 "keeps it: its data ends with the daemon",
			    disk->name);
	}
	SLIST_INSERT_HEAD(&d->memory_files, m, link);
	return m->fd;
}

/* It grows with the device; what it has beyond, nobody throws away. */
static int
fit(const struct disk *disk, int fd, uint64_t size, char *err, size_t errlen)
{
	struct stat st;

	if (fstat(fd, &st) != 0 ||
	    ((uint64_t)st.st_size < size && ftruncate(fd, (off_t)size) != 0))
		return refuse_file(disk, -errno, strerror(errno), err, errlen);
	if ((uint64_t)st.st_size > size)
		return refuse(err, errlen, -EFBIG,
		    "backing: \"%.200s\": %jd bytes: allowed: at most the size "
		    "(%" PRIu64 ")",
		    disk->set.backing, (intmax_t)st.st_size, size);
	return 0;
}

int
backing_open(struct daemon *d, const struct disk *disk, uint64_t size,
    struct backing **out, char *err, size_t errlen)
{
	struct backing_file *f = calloc(1, sizeof(*f));
	int ret;

	if (f == NULL)
		return refuse_file(
		    disk, -ENOMEM, strerror(ENOMEM), err, errlen);
	f->is_memory = strcmp(disk->set.backing, BACKING_MEMFD) == 0;
	f->fd = f->is_memory ? open_memory(d, disk, err, errlen)
			     : file_open_alone("backing", disk->set.backing,
				   "allowed: a file, or memfd", err, errlen);
	if (f->fd < 0) {
		ret = f->fd;
		free(f);
		return ret;
	}
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->has_work, NULL);
	TAILQ_INIT(&f->held);
	backing_init(&f->core, &ops, f);
	ret = fit(disk, f->fd, size, err, errlen);
	if (ret == 0 && (ret = start_thread(f)) != 0)
		refuse_file(disk, ret, strerror(-ret), err, errlen);
	if (ret != 0)
		backing_close(&f->core);
	else
		*out = &f->core;
	return ret;
}

int
backing_fd(const struct backing *b)
{
	const struct backing_file *f = b->file;

	return fcntl(f->fd, F_DUPFD_CLOEXEC, 0);
}

void
backing_close(struct backing *b)
{
	struct backing_file *f;

	if (b == NULL)
		return;
	f = b->file;
	if (f->has_thread) {
		pthread_mutex_lock(&f->lock);
		f->ends = true;
		pthread_cond_signal(&f->has_work);
		pthread_mutex_unlock(&f->lock);
		pthread_join(f->thread, NULL);
	}
	backing_fini(&f->core);
	pthread_cond_destroy(&f->has_work);
	pthread_mutex_destroy(&f->lock);
	if (!f->is_memory)
		close(f->fd);
	free(f);
}

static void
free_memory(struct daemon *d, struct memory_file *m)
{
	SLIST_REMOVE(&d->memory_files, m, memory_file, link);
	close(m->fd);
	free(m);
}

void
backing_forget(struct daemon *d, const struct disk *disk)
{
	struct memory_file *m = find_memory(d, disk->name);

	if (m == NULL)
		return;
	systemd_drop(&d->systemd, disk->name);
	free_memory(d, m);
}

void
backing_leave(struct daemon *d)
{
	while (!SLIST_EMPTY(&d->memory_files))
		free_memory(d, SLIST_FIRST(&d->memory_files));
}
