/* SPDX-License-Identifier: MIT */
/*
 * --sysfs DIR: the files of ctl/tree.c, with FUSE.  All of it is the main
 * loop's: what cannot be done at once (the power goes off, a queue has to
 * empty) is answered when it is, and meanwhile others are served.  Nothing is
 * cached, so that what is read is what is.
 */
#define FUSE_USE_VERSION 34

#include "daemon.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <limits.h>
#include <mntent.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define FILE_SIZE    4096 /* as sysfs has it, whatever is in it */
#define MAX_VALUE    4095 /* of a write, as configfs has it: the rest is next */
#define MAX_STALE    16   /* mounts of one place */
#define MAX_REQUESTS 16   /* a turn: others want theirs */

/* A write or an rmdir that takes its time. */
struct pending {
	struct waiter waiter;
	TAILQ_ENTRY(pending) link; /* in sysfs->pending */
	struct sysfs *sysfs;
	fuse_req_t req;
	size_t written; /* 0: it was no write */
	fuse_ino_t ino; /* of a write, */
	char *value;    /* and what it is; NULL: no write */
	bool queued;    /* it waits for another's change, to begin then */
	bool again;     /* which has settled */
};
TAILQ_HEAD(pending_list, pending);

struct sysfs {
	struct daemon *daemon;
	struct tree *tree;
	struct fuse_session *session;
	struct fuse_buf buf;
	ev_io io;
	struct pending_list pending;
	TAILQ_HEAD(file_list, file) files; /* open; not all are released */
	ev_timer again;                    /* 0 s: what was queued may begin */
};

/* What cat shows, or ls, as of when it was read from the beginning. */
struct file {
	TAILQ_ENTRY(file) link; /* in sysfs->files */
	char *text;
	size_t len;
	struct entry *entry; /* of a directory, whose names the text is */
	size_t nr_entries;
};

struct entry {
	size_t name; /* where it begins */
	struct stat st;
};

static struct sysfs *
sysfs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* ---- what there is */

static int
get_stat(const struct sysfs *s, fuse_ino_t ino, struct stat *st)
{
	int ret;

	*st = (struct stat){
		.st_ino = ino,
		.st_nlink = 1,
		.st_uid = geteuid(),
		.st_gid = getegid(),
	};
	ret = tree_mode(s->tree, ino, &st->st_mode);
	if (ret == 0 && S_ISREG(st->st_mode))
		st->st_size = FILE_SIZE;
	return ret;
}

static void
reply_entry(fuse_req_t req, uint64_t ino)
{
	struct fuse_entry_param e = { .ino = ino };

	if (ino == 0 || get_stat(sysfs_of(req), ino, &e.attr) != 0)
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_entry(req, &e);
}

static void
on_lookup(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	reply_entry(req, tree_lookup(sysfs_of(req)->tree, dir, name));
}

static void
on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (get_stat(sysfs_of(req), ino, &st) != 0)
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_attr(req, &st, 0);
}

/* "echo 1 >file" wants it empty first: so it is. */
static void
on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
    struct fuse_file_info *fi)
{
	(void)attr;
	if (to_set &
	    (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		fuse_reply_err(req, EPERM);
	else
		on_getattr(req, ino, fi);
}

/* ---- open files */

static void
file_forget(struct file *file)
{
	free(file->text);
	free(file->entry);
	file->text = NULL;
	file->entry = NULL;
	file->len = file->nr_entries = 0;
}

static void
file_free(struct sysfs *s, struct file *file)
{
	TAILQ_REMOVE(&s->files, file, link);
	file_forget(file);
	free(file);
}

static void
open_file(fuse_req_t req, struct fuse_file_info *fi)
{
	struct sysfs *s = sysfs_of(req);
	struct file *file = calloc(1, sizeof(*file));

	if (file == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	TAILQ_INSERT_TAIL(&s->files, file, link);
	fi->fh = (uintptr_t)file;
	fi->direct_io = 1;
	if (fuse_reply_open(req, fi) != 0) /* nobody will release it */
		file_free(s, file);
}

static struct file *
file_of(const struct fuse_file_info *fi)
{
	return (struct file *)(uintptr_t)fi->fh;
}

static void
on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	file_free(sysfs_of(req), file_of(fi));
	fuse_reply_err(req, 0);
}

/* ---- reading */

/* The kernel asks what an open is for before root is let through. */
static bool
may_open(mode_t mode, int flags)
{
	int how = flags & O_ACCMODE;

	return (how == O_WRONLY || (mode & 0444) != 0) &&
	       (how == O_RDONLY || (mode & 0222) != 0);
}

static void
on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	mode_t mode;
	int ret = tree_mode(sysfs_of(req)->tree, ino, &mode);

	if (ret == 0 && !may_open(mode, fi->flags))
		ret = -EACCES;
	if (ret != 0)
		fuse_reply_err(req, -ret);
	else
		open_file(req, fi);
}

static int
fill(struct sysfs *s, fuse_ino_t ino, struct file *file)
{
	FILE *out;
	int ret;

	file_forget(file);
	out = open_memstream(&file->text, &file->len);
	if (out == NULL)
		return -ENOMEM;
	ret = tree_read(s->tree, ino, clock_ns(), out);
	if (fclose(out) != 0 && ret == 0)
		ret = -ENOMEM;
	return ret;
}

static void
on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t from,
    struct fuse_file_info *fi)
{
	struct file *file = file_of(fi);
	int ret = 0;

	if (from == 0 || file->text == NULL)
		ret = fill(sysfs_of(req), ino, file);
	if (ret != 0) {
		fuse_reply_err(req, -ret);
		return;
	}
	if ((size_t)from > file->len)
		from = (off_t)file->len;
	if (size > file->len - (size_t)from)
		size = file->len - (size_t)from;
	fuse_reply_buf(req, file->text + from, size);
}

/* ---- listing */

static void
on_opendir(fuse_req_t req, fuse_ino_t dir, struct fuse_file_info *fi)
{
	(void)dir;
	open_file(req, fi);
}

static int
list_one(
    struct file *file, FILE *names, const char *name, const struct stat *st)
{
	struct entry *more =
	    reallocarray(file->entry, file->nr_entries + 1, sizeof(*more));

	if (more == NULL)
		return -ENOMEM;
	file->entry = more;
	more[file->nr_entries++] = (struct entry){ (size_t)ftell(names), *st };
	fwrite(name, strlen(name) + 1, 1, names);
	return 0;
}

/* All at once: devices that come and go must not hide others from who looks. */
static int
list(struct sysfs *s, fuse_ino_t dir, struct file *file)
{
	struct stat st = { .st_ino = dir, .st_mode = S_IFDIR };
	struct tree_entry e;
	FILE *names;
	int ret;

	file_forget(file);
	names = open_memstream(&file->text, &file->len);
	if (names == NULL)
		return -ENOMEM;
	ret = list_one(file, names, ".", &st);
	if (ret == 0)
		ret = list_one(file, names, "..", &st);
	for (unsigned n = 0; ret == 0 && tree_entry(s->tree, dir, n, &e); n++)
		if (get_stat(s, e.ino, &st) == 0)
			ret = list_one(file, names, e.name, &st);
	if (fclose(names) != 0 && ret == 0)
		ret = -ENOMEM;
	return ret;
}

static void
reply_list(fuse_req_t req, const struct file *file, size_t size, size_t from)
{
	char *buf = malloc(size);
	size_t used = 0, len;

	if (buf == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	for (; from < file->nr_entries; from++) {
		const struct entry *e = &file->entry[from];

		len = fuse_add_direntry(req, buf + used, size - used,
		    file->text + e->name, &e->st, (off_t)from + 1);
		if (len > size - used)
			break;
		used += len;
	}
	fuse_reply_buf(req, buf, used);
	free(buf);
}

static void
on_readdir(fuse_req_t req, fuse_ino_t dir, size_t size, off_t from,
    struct fuse_file_info *fi)
{
	struct file *file = file_of(fi);
	int ret = 0;

	if (from == 0 || file->text == NULL)
		ret = list(sysfs_of(req), dir, file);
	if (ret != 0)
		fuse_reply_err(req, -ret);
	else
		reply_list(req, file, size, (size_t)from);
}

/* ---- changes */

static void
reply_changed(fuse_req_t req, int ret, size_t written)
{
	if (ret == 0 && written > 0)
		fuse_reply_write(req, written);
	else
		fuse_reply_err(req, -ret);
}

static void
pending_end(struct sysfs *s, struct pending *p, int ret)
{
	TAILQ_REMOVE(&s->pending, p, link);
	reply_changed(p->req, ret, p->written);
	free(p->value);
	free(p);
}

static void
on_done(struct waiter *w, const struct disk *disk, int error, const char *text)
{
	struct pending *p = container_of(w, struct pending, waiter);

	(void)disk;
	(void)text; /* there is no room for a sentence in an errno */
	if (!p->queued) {
		pending_end(p->sysfs, p, error);
		return;
	}
	/* not now: the disk may be about to be gone */
	p->queued = false;
	p->again = true;
	if (!ev_is_active(&p->sysfs->again)) {
		ev_timer_set(&p->sysfs->again, 0., 0.);
		ev_timer_start(p->sysfs->daemon->main.ev, &p->sysfs->again);
	}
}

static struct pending *
pending_new(fuse_req_t req, size_t written)
{
	struct sysfs *s = sysfs_of(req);
	struct pending *p = malloc(sizeof(*p));

	if (p == NULL) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	*p = (struct pending){
		.waiter = { .daemon = s->daemon,
		    .by = "sysfs",
		    .done = on_done },
		.sysfs = s,
		.req = req,
		.written = written,
	};
	TAILQ_INSERT_TAIL(&s->pending, p, link);
	return p;
}

/*
 * In the kernel who writes waits for the lock: for who changes the same device,
 * or takes its power away.
 */
static void
write_value(struct pending *p)
{
	struct tree *t = p->sysfs->tree;
	struct disk *disk;
	int ret = tree_write(t, &p->waiter, p->ino, p->value, clock_ns());

	if (ret == -EINPROGRESS)
		return;
	disk = ret == -EBUSY ? tree_disk(t, p->ino) : NULL;
	if (disk != NULL && (disk->change != NULL || disk->powering_down)) {
		p->queued = true;
		waiter_wait(&p->waiter, disk, disk->powering_down);
		return;
	}
	pending_end(p->sysfs, p, ret);
}

static void
on_again(struct ev_loop *ev, ev_timer *w, int revents)
{
	struct sysfs *s = w->data;
	struct pending *p, *next;

	(void)ev;
	(void)revents;
	for (p = TAILQ_FIRST(&s->pending); p != NULL; p = next) {
		next = TAILQ_NEXT(p, link);
		if (!p->again)
			continue;
		p->again = false;
		write_value(p);
	}
}

/* A write is a value, whatever the offset, up to its first NUL. */
static void
on_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size,
    off_t from, struct fuse_file_info *fi)
{
	struct pending *p;

	(void)from;
	(void)fi;
	if (size > MAX_VALUE)
		size = MAX_VALUE;
	p = pending_new(req, size);
	if (p == NULL)
		return;
	p->ino = ino;
	p->value = strndup(data, size);
	if (p->value == NULL)
		pending_end(p->sysfs, p, -ENOMEM);
	else
		write_value(p);
}

static void
on_mkdir(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode)
{
	struct sysfs *s = sysfs_of(req);
	struct waiter w = { .daemon = s->daemon, .by = "sysfs" };
	int ret = tree_mkdir(s->tree, &w, dir, name);

	(void)mode;
	if (ret != 0)
		fuse_reply_err(req, -ret);
	else
		reply_entry(req, tree_lookup(s->tree, dir, name));
}

static void
on_rmdir(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	struct pending *p = pending_new(req, 0);
	int ret;

	if (p == NULL)
		return;
	ret = tree_rmdir(p->sysfs->tree, &p->waiter, dir, name);
	if (ret != -EINPROGRESS)
		pending_end(p->sysfs, p, ret);
}

/* ---- what the kernel's directories refuse as well */

static void
on_create(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode,
    struct fuse_file_info *fi)
{
	(void)dir;
	(void)name;
	(void)mode;
	(void)fi;
	fuse_reply_err(req, EACCES);
}

static void
on_mknod(
    fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, dev_t dev)
{
	(void)dir;
	(void)name;
	(void)mode;
	(void)dev;
	fuse_reply_err(req, EPERM);
}

static void
on_symlink(fuse_req_t req, const char *to, fuse_ino_t dir, const char *name)
{
	(void)to;
	(void)dir;
	(void)name;
	fuse_reply_err(req, EPERM);
}

static void
on_unlink(fuse_req_t req, fuse_ino_t dir, const char *name)
{
	(void)dir;
	(void)name;
	fuse_reply_err(req, EPERM);
}

static void
on_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t dir, const char *name)
{
	(void)ino;
	on_unlink(req, dir, name);
}

static void
on_rename(fuse_req_t req, fuse_ino_t dir, const char *name, fuse_ino_t to_dir,
    const char *to, unsigned flags)
{
	(void)to_dir;
	(void)to;
	(void)flags;
	on_unlink(req, dir, name);
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = on_lookup,
	.getattr = on_getattr,
	.setattr = on_setattr,
	.open = on_open,
	.read = on_read,
	.release = on_release,
	.opendir = on_opendir,
	.readdir = on_readdir,
	.releasedir = on_release,
	.write = on_write,
	.mkdir = on_mkdir,
	.rmdir = on_rmdir,
	.create = on_create,
	.mknod = on_mknod,
	.symlink = on_symlink,
	.unlink = on_unlink,
	.link = on_link,
	.rename = on_rename,
};

/* ---- the session */

static void
on_readable(struct ev_loop *ev, ev_io *w, int revents)
{
	struct sysfs *s = w->data;
	int n;

	(void)revents;
	for (unsigned i = 0; i < MAX_REQUESTS; i++) {
		n = fuse_session_receive_buf(s->session, &s->buf);
		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0) {
			log_warn("%s: is not mounted any more",
			    s->daemon->conf.sysfs);
			ev_io_stop(ev, w);
			return;
		}
		fuse_session_process_buf(s->session, &s->buf);
	}
}

static void
fuse_says(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[MAX_ERROR];

	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	if (level <= FUSE_LOG_WARNING)
		log_warn("%s", text);
	else
		log_debug("%s", text);
}

/* The type of what is mounted at a path, on top; "": nothing.  To be freed. */
static char *
mounted_type(const char *path)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *m;
	char *type = strdup("");

	while (mounts != NULL && (m = getmntent(mounts)) != NULL)
		if (strcmp(m->mnt_dir, path) == 0) {
			free(type);
			type = strdup(m->mnt_type);
		}
	if (mounts != NULL)
		endmntent(mounts);
	return type;
}

static void
unmount(const char *path)
{
	char program[] = "fusermount3", options[] = "-uqz", end[] = "--";
	char *argv[] = { program, options, end, (char *)path, NULL };
	pid_t pid;

	if (umount2(path, MNT_DETACH) == 0 || geteuid() == 0)
		return;
	if (posix_spawnp(&pid, program, NULL, NULL, argv, environ) == 0)
		waitpid(pid, NULL, 0);
}

/* Where it is, also if nobody answers there.  False: nowhere. */
static bool
real_path(const char *dir, char *path, size_t len)
{
	char link[64];
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, len - 1);
	path[n > 0 ? n : 0] = '\0';
	close(fd);
	return n > 0;
}

/* What daemons left behind that were killed. */
static void
clear_stale(const char *dir)
{
	char path[PATH_MAX], *type;
	struct stat st;

	for (unsigned i = 0; i < MAX_STALE; i++) {
		if (stat(dir, &st) == 0 || errno != ENOTCONN ||
		    !real_path(dir, path, sizeof(path)))
			return;
		type = mounted_type(path);
		if (type != NULL && strcmp(type, "fuse.nullbd") == 0)
			unmount(path);
		free(type);
	}
}

/* Another daemon's, perhaps, which would unmount ours when it ends. */
static bool
is_mount_point(const char *dir, const struct stat *st)
{
	char *parent = NULL;
	struct stat up;
	bool is;

	if (asprintf(&parent, "%s/..", dir) < 0)
		return false;
	is = stat(parent, &up) == 0 && up.st_dev != st->st_dev;
	free(parent);
	return is;
}

static int
check_place(const char *dir, char *err, size_t errlen)
{
	struct stat st;

	clear_stale(dir);
	if (stat(dir, &st) != 0)
		return refuse(
		    err, errlen, -errno, "sysfs: %s: %s", dir, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return refuse(
		    err, errlen, -ENOTDIR, "sysfs: %s: not a directory", dir);
	if (is_mount_point(dir, &st))
		return refuse(err, errlen, -EBUSY,
		    "sysfs: %s: something is mounted there already", dir);
	return 0;
}

static int
mount_at(struct sysfs *s, const char *dir, char *err, size_t errlen)
{
	char *argv[] = { "nullbd", "-o", "fsname=nullbd,subtype=nullbd", "-o",
		geteuid() == 0 ? "allow_other,default_permissions"
			       : "default_permissions",
		NULL };
	struct fuse_args args = FUSE_ARGS_INIT(5, argv);
	int ret = check_place(dir, err, errlen);

	if (ret != 0)
		return ret;
	fuse_set_log_func(fuse_says);
	s->session = fuse_session_new(&args, &ops, sizeof(ops), s);
	fuse_opt_free_args(&args);
	if (s->session == NULL)
		return refuse(err, errlen, -ENOMEM, "sysfs: no FUSE session");
	if (fuse_session_mount(s->session, dir) != 0) {
		fuse_session_destroy(s->session);
		s->session = NULL;
		return refuse(err, errlen, -EIO,
		    "sysfs: %s: cannot be mounted (is there /dev/fuse, and, "
		    "but for root, fusermount3?)",
		    dir);
	}
	return 0;
}

int
sysfs_start(struct daemon *d, char *err, size_t errlen)
{
	struct sysfs *s = calloc(1, sizeof(*s));
	int fd, ret;

	if (s == NULL)
		return refuse(err, errlen, -ENOMEM, "sysfs: out of memory");
	s->daemon = d;
	TAILQ_INIT(&s->pending);
	TAILQ_INIT(&s->files);
	ev_timer_init(&s->again, on_again, 0., 0.);
	s->again.data = s;
	s->tree = tree_new(&d->ctl);
	ret = s->tree != NULL ? mount_at(s, d->conf.sysfs, err, errlen)
			      : refuse(err, errlen, -ENOMEM, "sysfs: memory");
	if (ret != 0) {
		tree_free(s->tree);
		free(s);
		return ret;
	}
	fd = fuse_session_fd(s->session);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	ev_io_init(&s->io, on_readable, fd, EV_READ);
	s->io.data = s;
	ev_io_start(d->main.ev, &s->io);
	d->sysfs = s;
	return 0;
}

void
sysfs_forget(struct daemon *d, const struct disk *disk)
{
	if (d->sysfs != NULL)
		tree_forget(d->sysfs->tree, disk->name);
}

void
sysfs_stop(struct daemon *d)
{
	struct sysfs *s = d->sysfs;
	struct pending *p, *next_p;
	struct file *file, *next_file;

	if (s == NULL)
		return;
	d->sysfs = NULL;
	ev_io_stop(d->main.ev, &s->io);
	ev_timer_stop(d->main.ev, &s->again);
	for (p = TAILQ_FIRST(&s->pending); p != NULL; p = next_p) {
		next_p = TAILQ_NEXT(p, link);
		waiter_cancel(&p->waiter);
		pending_end(s, p, -ESHUTDOWN);
	}
	for (file = TAILQ_FIRST(&s->files); file != NULL; file = next_file) {
		next_file = TAILQ_NEXT(file, link);
		file_free(s, file);
	}
	fuse_session_unmount(s->session);
	fuse_session_destroy(s->session);
	free(s->buf.mem);
	tree_free(s->tree);
	free(s);
}
