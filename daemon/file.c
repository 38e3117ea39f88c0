/* SPDX-License-Identifier: MIT */
/* Files that the data of devices goes to. */
#include "daemon.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int
refuse_path(const char *attr, const char *path, int error, const char *why,
    char *err, size_t errlen)
{
	return refuse(
	    err, errlen, error, "%s: \"%.200s\": %s", attr, path, why);
}

int
file_open_alone(const char *attr, const char *path, const char *allowed,
    char *err, size_t errlen)
{
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct stat st;
	int fd, ret;

	/* who reads a FIFO need not be there */
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0 || fstat(fd, &st) != 0)
		ret = refuse_path(
		    attr, path, -errno, strerror(errno), err, errlen);
	else if (!S_ISREG(st.st_mode))
		ret = refuse_path(attr, path, -EINVAL, allowed, err, errlen);
	else if (fcntl(fd, F_OFD_SETLK, &all) != 0)
		ret = refuse_path(attr, path, -errno,
		    errno == EAGAIN || errno == EACCES
			? "in use by another device, or another program"
			: strerror(errno),
		    err, errlen);
	else
		return fd;
	if (fd >= 0)
		close(fd);
	return ret;
}

/* What a write left over of the first piece. */
static int
write_rest(int fd, const struct iovec *iov, size_t done, uint64_t pos)
{
	const char *base = iov->iov_base;
	ssize_t n;

	for (; done < iov->iov_len; done += (size_t)n, pos += (uint64_t)n) {
		n = pwrite(fd, base + done, iov->iov_len - done, (off_t)pos);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n < 0)
			n = 0;
	}
	return 0;
}

int
file_write_all(int fd, const struct iovec *iov, unsigned nr, uint64_t pos)
{
	ssize_t n;
	size_t done;
	int ret = 0;

	while (ret == 0 && nr > 0) {
		n = pwritev(fd, iov, (int)nr, (off_t)pos);
		if (n < 0 && errno != EINTR)
			return -errno;
		done = n > 0 ? (size_t)n : 0;
		pos += done;
		for (; nr > 0 && done >= iov->iov_len; iov++, nr--)
			done -= iov->iov_len;
		if (done == 0)
			continue;
		ret = write_rest(fd, iov, done, pos);
		pos += iov->iov_len - done;
		iov++;
		nr--;
	}
	return ret;
}
