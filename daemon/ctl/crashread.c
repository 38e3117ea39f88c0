/* SPDX-License-Identifier: MIT */
/*
 * Crash logs, as dm-log-writes and we write them (dev/crashlog.h), read and
 * replayed onto an image.  What a file says is never believed: each length is
 * held against what is there.
 */
#include "ctl/crashread.h"

#include <sys/stat.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "base/util.h"
#include "dev/crashlog.h"

#define CHUNK      (1u << 20)
#define MAX_SECTOR 65536u /* of entries */

/* All of it: 0, -errno, or -ENODATA: the file ends before. */
static int
read_at(int fd, void *data, size_t len, uint64_t pos)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = pread(
		    fd, (char *)data + done, len - done, (off_t)(pos + done));
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -ENODATA;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int
check_super(struct crash_reader *r, const char *path, char *err, size_t errlen)
{
	struct crash_log_super s;
	int ret = read_at(r->fd, &s, sizeof(s), 0);

	if (ret != 0 && ret != -ENODATA)
		return refuse(err, errlen, ret, "%s: %s", path, strerror(-ret));
	if (ret != 0 || le64toh(s.magic) != CRASH_LOG_MAGIC)
		return refuse(
		    err, errlen, -EINVAL, "%s: not a crash log", path);
	if (le64toh(s.version) != CRASH_LOG_VERSION)
		return refuse(err, errlen, -EINVAL,
		    "%s: a crash log of version %" PRIu64 "; allowed: %u", path,
		    le64toh(s.version), CRASH_LOG_VERSION);
	r->nr_entries = le64toh(s.nr_entries);
	r->sectorsize = le32toh(s.sectorsize);
	if (r->sectorsize < CRASH_LOG_SECTOR || r->sectorsize > MAX_SECTOR ||
	    (r->sectorsize & (r->sectorsize - 1)) != 0)
		return refuse(err, errlen, -EINVAL,
		    "%s: sectors of %" PRIu32 " bytes; allowed: a power of "
		    "two, 512 to %u",
		    path, r->sectorsize, MAX_SECTOR);
	r->pos = r->sectorsize;
	return 0;
}

int
crashread_open(
    struct crash_reader *r, const char *path, char *err, size_t errlen)
{
	struct stat st;
	int ret;

	*r = (struct crash_reader){ .path = path };
	r->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (r->fd < 0 || fstat(r->fd, &st) != 0) {
		ret = refuse(
		    err, errlen, -errno, "%s: %s", path, strerror(errno));
		crashread_close(r);
		return ret;
	}
	r->size = (uint64_t)st.st_size;
	if (S_ISBLK(st.st_mode)) /* dm-log-writes has a device */
		r->size = (uint64_t)lseek(r->fd, 0, SEEK_END);
	ret = check_super(r, path, err, errlen);
	if (ret != 0)
		crashread_close(r);
	return ret;
}

void
crashread_close(struct crash_reader *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

/* Bytes of so many sectors; false: no device has that many. */
static bool
bytes_of(const struct crash_reader *r, uint64_t sectors, uint64_t *bytes)
{
	return !__builtin_mul_overflow(sectors, r->sectorsize, bytes) &&
	       *bytes <= INT64_MAX;
}

/* What of it there should be, behind its first sector. */
static bool
fits(const struct crash_reader *r, struct crash_entry *e)
{
	uint64_t end;

	if (__builtin_add_overflow(e->pos, e->len, &end) || end > INT64_MAX)
		return false;
	if (e->flags & CRASH_MARK)
		return e->len == 0 && e->mark_len < sizeof(e->mark) &&
		       e->mark_len <=
			   r->sectorsize - sizeof(struct crash_log_entry);
	if (e->flags & CRASH_DISCARD)
		return true;
	return e->len <= r->size - e->data;
}

static int
bad_entry(const struct crash_reader *r, char *err, size_t errlen)
{
	return refuse(err, errlen, -EINVAL,
	    "%s: entry %" PRIu64 " of %" PRIu64 " is damaged, or the file ends "
	    "in it",
	    r->path, r->nr + 1, r->nr_entries);
}

int
crashread_next(
    struct crash_reader *r, struct crash_entry *e, char *err, size_t errlen)
{
	struct crash_log_entry le;
	bool ok;
	int ret;

	if (r->nr == r->nr_entries)
		return 0;
	*e = (struct crash_entry){ .nr = r->nr + 1 };
	if (r->size < r->sectorsize || r->pos > r->size - r->sectorsize)
		return bad_entry(r, err, errlen);
	ret = read_at(r->fd, &le, sizeof(le), r->pos);
	if (ret != 0 && ret != -ENODATA)
		return refuse(
		    err, errlen, ret, "%s: %s", r->path, strerror(-ret));
	e->data = r->pos + r->sectorsize;
	e->flags = le64toh(le.flags);
	e->mark_len = le64toh(le.data_len);
	ok = ret == 0 && bytes_of(r, le64toh(le.sector), &e->pos) &&
	     bytes_of(r, le64toh(le.nr_sectors), &e->len) && fits(r, e);
	if (ok && e->flags & CRASH_MARK)
		ok = read_at(
			 r->fd, e->mark, e->mark_len, r->pos + sizeof(le)) == 0;
	if (!ok)
		return bad_entry(r, err, errlen);
	r->pos = e->data;
	if (!(e->flags & (CRASH_DISCARD | CRASH_MARK)))
		r->pos += e->len;
	r->nr++;
	return 1;
}

/* ---- where to stop */

int
crash_until_parse(
    const char *text, struct crash_until *u, char *err, size_t errlen)
{
	static const char flush[] = "flush:", mark[] = "mark:";

	*u = (struct crash_until){ .entries = UINT64_MAX };
	if (strcmp(text, "end") == 0 ||
	    uint_parse(text, NULL, &u->entries) == 0)
		return 0;
	if (strncmp(text, flush, strlen(flush)) == 0 &&
	    uint_parse(text + strlen(flush), NULL, &u->flushes) == 0 &&
	    u->flushes > 0)
		return 0;
	u->flushes = 0;
	if (strncmp(text, mark, strlen(mark)) == 0)
		u->mark = text + strlen(mark);
	else if (strncmp(text, flush, strlen(flush)) != 0)
		u->mark = text;
	if (u->mark != NULL && *u->mark != '\0')
		return 0;
	return refuse(err, errlen, -EINVAL,
	    "--until: \"%.60s\": allowed: a number of entries, flush:N from 1 "
	    "on, the text of a mark (or mark:TEXT), end",
	    text);
}

/* Was this the last one? */
static bool
reached(struct crash_until *u, const struct crash_entry *e)
{
	if (e->flags & CRASH_FLUSH && u->flushes > 0 && --u->flushes == 0)
		return true;
	return u->mark != NULL && e->flags & CRASH_MARK &&
	       strcmp(e->mark, u->mark) == 0;
}

/* ---- onto an image */

static int
copy_data(const struct crash_reader *r, const struct crash_entry *e, int image,
    char *buf)
{
	uint64_t done, n;
	ssize_t put;
	int ret;

	for (done = 0; done < e->len; done += n) {
		n = least(CHUNK, e->len - done);
		ret = read_at(r->fd, buf, n, e->data + done);
		if (ret != 0)
			return ret;
		put = pwrite(image, buf, n, (off_t)(e->pos + done));
		if (put <= 0)
			return put < 0 ? -errno : -ENOSPC;
		n = (uint64_t)put;
	}
	return 0;
}

static int
write_zeros(const struct crash_entry *e, int image, char *buf)
{
	uint64_t done, n;
	ssize_t put;

	memset(buf, 0, CHUNK);
	for (done = 0; done < e->len; done += n) {
		n = least(CHUNK, e->len - done);
		put = pwrite(image, buf, n, (off_t)(e->pos + done));
		if (put <= 0)
			return put < 0 ? -errno : -ENOSPC;
		n = (uint64_t)put;
	}
	return 0;
}

/* As large as what was written or discarded; block devices are what they are.
 */
static int
cover(int image, uint64_t end)
{
	struct stat st;

	if (fstat(image, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size >= end)
		return 0;
	return ftruncate(image, (off_t)end) == 0 ? 0 : -errno;
}

static int
apply(const struct crash_reader *r, const struct crash_entry *e, int image,
    char *buf)
{
	int ret;

	if (e->len == 0)
		return 0;
	ret = cover(image, e->pos + e->len);
	if (ret != 0 || !(e->flags & CRASH_DISCARD))
		return ret != 0 ? ret : copy_data(r, e, image, buf);
	if (fallocate(image, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		(off_t)e->pos, (off_t)e->len) == 0)
		return 0;
	return errno == EOPNOTSUPP ? write_zeros(e, image, buf) : -errno;
}

/* There was something to be reached, and the log has ended before. */
static int
not_reached(const struct crash_reader *r, const struct crash_until *u,
    char *err, size_t errlen)
{
	if (u->mark != NULL)
		return refuse(err, errlen, -ENOENT,
		    "%s: %" PRIu64 " entries, and no mark \"%.200s\"", r->path,
		    r->nr, u->mark);
	if (u->flushes > 0)
		return refuse(err, errlen, -ENOENT,
		    "%s: %" PRIu64 " entries, and %" PRIu64
		    " flushes fewer than that",
		    r->path, r->nr, u->flushes);
	if (u->entries != UINT64_MAX && r->nr < u->entries)
		return refuse(err, errlen, -ENOENT,
		    "%s: there are %" PRIu64 " entries", r->path, r->nr);
	return 0;
}

/* It would be written over while it is read. */
static bool
is_same_file(const struct crash_reader *r, int image)
{
	struct stat log, st;

	return fstat(r->fd, &log) == 0 && fstat(image, &st) == 0 &&
	       log.st_dev == st.st_dev && log.st_ino == st.st_ino;
}

int
crashread_replay(struct crash_reader *r, const struct crash_until *until,
    int image, char *err, size_t errlen)
{
	struct crash_until u = *until;
	struct crash_entry e;
	int ret = 0, more;
	char *buf;

	if (is_same_file(r, image))
		return refuse(err, errlen, -EINVAL,
		    "%s: the image is to be another file than the log",
		    r->path);
	buf = malloc(CHUNK);
	if (buf == NULL)
		return refuse(err, errlen, -ENOMEM, "out of memory");
	while (ret == 0 && r->nr < u.entries) {
		more = crashread_next(r, &e, err, errlen);
		if (more <= 0) {
			ret =
			    more != 0 ? more : not_reached(r, &u, err, errlen);
			break;
		}
		ret = apply(r, &e, image, buf);
		if (ret != 0)
			refuse(err, errlen, ret,
			    "entry %" PRIu64 ", %" PRIu64 " bytes at %" PRIu64
			    ": the image: %s",
			    e.nr, e.len, e.pos, strerror(-ret));
		if (reached(&u, &e))
			break;
	}
	free(buf);
	return ret;
}
