/* SPDX-License-Identifier: MIT */
/*
 * Files of crash logs (dev/crashlog.c).  One begins when the power comes on;
 * that of the time before is the one to look at after a power cut, and is kept
 * as FILE.old.
 */
#include "daemon.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "dev/crashlog.h"

struct log_file {
	struct crash_log core; /* what the disk has; its file is this */
	char *path;
	int fd;
};

/* That it ended is told here alone: whoever writes gets an error of its own. */
static int
log_write(void *file, const struct iovec *iov, unsigned nr, uint64_t pos)
{
	const struct log_file *f = file;
	int ret = file_write_all(f->fd, iov, nr, pos);

	if (ret != 0)
		log_warn("crash_log: \"%s\": %s: it ends, and writes fail from "
			 "now on",
		    f->path, strerror(-ret));
	return ret;
}

/* Nothing, or what such a file begins with? */
static bool
is_log(int fd)
{
	uint64_t magic;
	ssize_t n = pread(fd, &magic, sizeof(magic), 0);

	return n == 0 ||
	       (n == sizeof(magic) && le64toh(magic) == CRASH_LOG_MAGIC);
}

/* A descriptor of one that nobody else uses, or -errno with a sentence. */
static int
open_log(const char *path, char *err, size_t errlen)
{
	int fd =
	    file_open_alone("crash_log", path, "allowed: a file", err, errlen);

	if (fd < 0 || is_log(fd))
		return fd;
	close(fd);
	return refuse(err, errlen, -EINVAL,
	    "crash_log: \"%.200s\": not a crash log; allowed: one, which is "
	    "kept as FILE.old, or a new file",
	    path);
}

/* No other's is lost for it: 0, or -errno with a sentence. */
static int
keep_old(const char *path, char *err, size_t errlen)
{
	char old[PATH_MAX];
	int fd, ret = 0;

	snprintf(old, sizeof(old), "%s.old", path);
	fd = open_log(old, err, errlen);
	if (fd < 0)
		return fd;
	if (rename(path, old) != 0)
		ret = refuse(err, errlen, -errno, "crash_log: \"%.200s\": %s",
		    old, strerror(errno));
	close(fd);
	return ret;
}

/* A descriptor of a file that is empty, or -errno with a sentence. */
static int
open_empty(const char *path, char *err, size_t errlen)
{
	int fd = open_log(path, err, errlen), ret;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0 || st.st_size == 0)
		return fd;
	close(fd);
	ret = keep_old(path, err, errlen);
	return ret != 0 ? ret : open_log(path, err, errlen);
}

int
crashlog_begin(struct disk *disk, char *err, size_t errlen)
{
	struct log_file *f = calloc(1, sizeof(*f));
	int ret;

	if (f != NULL)
		f->path = strdup(disk->conf.crash_log);
	if (f == NULL || f->path == NULL) {
		free(f);
		return refuse(err, errlen, -ENOMEM, "crash_log: no memory");
	}
	ret = f->fd = open_empty(f->path, err, errlen);
	if (ret < 0) {
		free(f->path);
		free(f);
		return ret;
	}
	ret = crash_log_init(&f->core, log_write, f);
	disk_log_crash(disk, &f->core);
	if (ret == 0)
		return 0;
	crashlog_end(disk);
	return refuse(err, errlen, ret, "crash_log: \"%.200s\": %s",
	    disk->conf.crash_log, strerror(-ret));
}

void
crashlog_end(struct disk *disk)
{
	struct log_file *f;

	if (disk->crash_log == NULL)
		return;
	f = disk->crash_log->file;
	disk_log_crash(disk, NULL);
	crash_log_fini(&f->core);
	close(f->fd);
	free(f->path);
	free(f);
}
