/* SPDX-License-Identifier: MIT */
/*
 * A load of files that are fsynced, and what of it has to be there after a
 * power cut.
 *
 *	fsync-load make DIRECTORY           what has to be there before it
 *	fsync-load run DIRECTORY STATE SEED until the device fails, which it
 *	                                    has to; then STATE, which is to lie
 *	                                    elsewhere, tells what was promised
 *	fsync-load check DIRECTORY STATE    exit status 1: it is not there
 *
 * Each thread has files that it replaces (write another, fsync, rename, fsync
 * the directory) or unlinks; one that it appends to (fdatasync); and one whose
 * pages it writes over in place (the same).  All of it says what it is, by the
 * sector.  A step is promised once its last fsync has returned; of the one that
 * was under way both outcomes are right, in a page of each sector.
 */
#include <sys/stat.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECTOR     512u
#define PAGE       4096u
#define NR_THREADS 4u
#define NR_FILES   8u
#define NR_PAGES   64u
#define MAX_PAGES  6u /* of a file that is replaced */

enum kind {
	KIND_FILE,
	KIND_APPENDED,
	KIND_PAGE
};

/* What each sector says; its check is over all of it. */
struct sector {
	uint32_t check;
	uint32_t kind, thread, number; /* which file, record or page */
	uint32_t version;
	uint32_t index, nr; /* of the sectors of that */
	uint32_t noise[SECTOR / 4 - 7];
};

struct file {
	uint32_t version; /* promised; 0: it never was there */
	bool present;
	bool changes; /* to this, as version + 1 */
	bool to_present;
};

struct thread {
	pthread_t id;
	uint32_t number;
	unsigned seed;
	int dir;
	int error; /* that ended it */
	uint64_t steps;
	struct file file[NR_FILES];
	uint32_t appended; /* pages */
	uint32_t page[NR_PAGES];
	int page_changes; /* -1: none */
};

static struct thread threads[NR_THREADS];
static unsigned lost;

__attribute__((noreturn, format(printf, 1, 2))) static void
die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("fsync-load: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(2);
}

/* ---- sectors */

static uint32_t
check_of(const struct sector *s)
{
	const unsigned char *p = (const unsigned char *)s;
	uint32_t sum = 2166136261u;

	for (size_t i = sizeof(s->check); i < sizeof(*s); i++)
		sum = (sum ^ p[i]) * 16777619u;
	return sum;
}

static void
fill(struct sector *s, enum kind kind, uint32_t thread, uint32_t number,
    uint32_t version, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t noise = thread * 7919 + number * 104729 + version + i;

		s[i].kind = kind;
		s[i].thread = thread;
		s[i].number = number;
		s[i].version = version;
		s[i].index = i;
		s[i].nr = nr;
		for (size_t k = 0; k < sizeof(s->noise) / 4; k++)
			s[i].noise[k] = noise = noise * 1664525u + 1013904223u;
		s[i].check = check_of(&s[i]);
	}
}

/* Is it this sector of that?  Then its version; else UINT32_MAX. */
static uint32_t
version_of(const struct sector *s, enum kind kind, uint32_t thread,
    uint32_t number, uint32_t index)
{
	if (s->check != check_of(s) || s->kind != kind || s->thread != thread ||
	    s->number != number || s->index != index)
		return UINT32_MAX;
	return s->version;
}

/* ---- files: 0 or -errno */

static int
write_all(int fd, const void *data, size_t len, off_t pos)
{
	ssize_t n;

	for (size_t done = 0; done < len; done += (size_t)n) {
		n = pwrite(fd, (const char *)data + done, len - done,
		    pos + (off_t)done);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
	}
	return 0;
}

static int
open_at(const struct thread *t, const char *what, unsigned number, int flags)
{
	char name[64];

	snprintf(name, sizeof(name), "%s-%u-%u", what, t->number, number);
	return openat(t->dir, name, flags, 0644);
}

static int
sync_and_close(int fd, int ret)
{
	if (ret == 0 && fsync(fd) != 0)
		ret = -errno;
	if (close(fd) != 0 && ret == 0)
		ret = -errno;
	return ret;
}

static int
write_file(
    const struct thread *t, const char *what, unsigned number, uint32_t version)
{
	static _Thread_local struct sector data[MAX_PAGES * PAGE / SECTOR];
	uint32_t nr =
	    1 + (version * 31 + number * 7) % (MAX_PAGES * PAGE / SECTOR);
	int fd = open_at(t, what, number, O_WRONLY | O_CREAT | O_TRUNC);

	if (fd < 0)
		return -errno;
	fill(data, KIND_FILE, t->number, number, version, nr);
	return sync_and_close(fd, write_all(fd, data, nr * SECTOR, 0));
}

/* ---- steps */

static int
replace(struct thread *t, unsigned number)
{
	char from[64], to[64];
	int ret = write_file(t, "new", number, t->file[number].version + 1);

	snprintf(from, sizeof(from), "new-%u-%u", t->number, number);
	snprintf(to, sizeof(to), "file-%u-%u", t->number, number);
	if (ret == 0 && renameat(t->dir, from, t->dir, to) != 0)
		ret = -errno;
	return ret;
}

static int
take_away(struct thread *t, unsigned number)
{
	char name[64];

	snprintf(name, sizeof(name), "file-%u-%u", t->number, number);
	return unlinkat(t->dir, name, 0) == 0 ? 0 : -errno;
}

static int
change_file(struct thread *t)
{
	unsigned number = (unsigned)rand_r(&t->seed) % NR_FILES;
	struct file *f = &t->file[number];
	int ret;

	f->to_present = !f->present || rand_r(&t->seed) % 4 != 0;
	f->changes = true;
	ret = f->to_present ? replace(t, number) : take_away(t, number);
	if (ret == 0 && fsync(t->dir) != 0)
		ret = -errno;
	if (ret != 0)
		return ret;
	f->version++;
	f->present = f->to_present;
	f->changes = false;
	return 0;
}

static int
append(struct thread *t)
{
	struct sector page[PAGE / SECTOR];
	int fd = open_at(t, "log", 0, O_WRONLY), ret;

	if (fd < 0)
		return -errno;
	fill(page, KIND_APPENDED, t->number, t->appended, 1, PAGE / SECTOR);
	ret = write_all(fd, page, PAGE, (off_t)t->appended * PAGE);
	if (ret == 0 && fdatasync(fd) != 0)
		ret = -errno;
	ret = sync_and_close(fd, ret);
	if (ret == 0)
		t->appended++;
	return ret;
}

static int
write_page(struct thread *t)
{
	int number = rand_r(&t->seed) % (int)NR_PAGES, ret;
	struct sector page[PAGE / SECTOR];
	int fd = open_at(t, "pages", 0, O_WRONLY);

	if (fd < 0)
		return -errno;
	t->page_changes = number;
	fill(page, KIND_PAGE, t->number, (uint32_t)number, t->page[number] + 1,
	    PAGE / SECTOR);
	ret = write_all(fd, page, PAGE, (off_t)number * PAGE);
	if (ret == 0 && fdatasync(fd) != 0)
		ret = -errno;
	ret = sync_and_close(fd, ret);
	if (ret != 0)
		return ret;
	t->page[number]++;
	t->page_changes = -1;
	return 0;
}

static void *
run_thread(void *arg)
{
	struct thread *t = arg;
	int ret = 0, what;

	for (; ret == 0; t->steps++) {
		what = rand_r(&t->seed) % 8;
		ret = what < 4   ? change_file(t)
		      : what < 6 ? append(t)
				 : write_page(t);
	}
	t->error = ret;
	return NULL;
}

/* ---- what there is to be */

static void missing(const struct thread *t, const char *what, unsigned number,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void
missing(const struct thread *t, const char *what, unsigned number,
    const char *fmt, ...)
{
	va_list ap;

	lost++;
	if (lost > 20)
		return;
	printf("%s-%u-%u: ", what, t->number, number);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

/* Its version; 0: there is none of that name; UINT32_MAX: it is not whole. */
static uint32_t
version_there(const struct thread *t, unsigned number)
{
	static struct sector data[MAX_PAGES * PAGE / SECTOR + 1];
	int fd = open_at(t, "file", number, O_RDONLY);
	uint32_t version;
	ssize_t len;

	if (fd < 0)
		return errno == ENOENT ? 0 : UINT32_MAX;
	len = pread(fd, data, sizeof(data), 0);
	close(fd);
	if (len < (ssize_t)SECTOR || data[0].nr * SECTOR != (size_t)len)
		return UINT32_MAX;
	version = version_of(data, KIND_FILE, t->number, number, 0);
	for (uint32_t i = 1; i < data[0].nr; i++)
		if (version_of(&data[i], KIND_FILE, t->number, number, i) !=
		    version)
			return UINT32_MAX;
	return version;
}

static void
check_file(const struct thread *t, unsigned number)
{
	const struct file *f = &t->file[number];
	uint32_t there = version_there(t, number);

	if (there == (f->present ? f->version : 0))
		return;
	if (f->changes && there == (f->to_present ? f->version + 1 : 0))
		return;
	if (there == UINT32_MAX)
		missing(t, "file", number, "is not whole");
	else
		missing(t, "file", number,
		    "%sversion %" PRIu32 " was promised, there is %" PRIu32,
		    f->present ? "" : "the end of ", f->version, there);
}

static void
check_appended(const struct thread *t)
{
	int fd = open_at(t, "log", 0, O_RDONLY);
	struct sector page[PAGE / SECTOR];

	if (fd < 0) {
		missing(t, "log", 0, "%s", strerror(errno));
		return;
	}
	for (uint32_t n = 0; n < t->appended; n++) {
		bool whole = pread(fd, page, PAGE, (off_t)n * PAGE) == PAGE;

		for (uint32_t i = 0; whole && i < PAGE / SECTOR; i++)
			whole = version_of(&page[i], KIND_APPENDED, t->number,
				    n, i) == 1;
		if (!whole)
			missing(t, "log", 0, "record %" PRIu32 " of %" PRIu32,
			    n, t->appended);
	}
	close(fd);
}

static void
check_pages(const struct thread *t)
{
	int fd = open_at(t, "pages", 0, O_RDONLY);
	struct sector page[PAGE / SECTOR];

	if (fd < 0) {
		missing(t, "pages", 0, "%s", strerror(errno));
		return;
	}
	for (uint32_t n = 0; n < NR_PAGES; n++) {
		if (pread(fd, page, PAGE, (off_t)n * PAGE) != PAGE)
			memset(page, 0, sizeof(page));
		for (uint32_t i = 0; i < PAGE / SECTOR; i++) {
			uint32_t there =
			    version_of(&page[i], KIND_PAGE, t->number, n, i);

			if (there == t->page[n] || ((int)n == t->page_changes &&
						       there == t->page[n] + 1))
				continue;
			missing(t, "pages", 0,
			    "page %" PRIu32 ", sector %" PRIu32
			    ": version %" PRIu32
			    " was promised, there is %" PRIu32,
			    n, i, t->page[n], there);
		}
	}
	close(fd);
}

/* ---- commands */

static void
make(void)
{
	struct sector page[PAGE / SECTOR];
	int fd;

	for (unsigned i = 0; i < NR_THREADS; i++) {
		const struct thread *t = &threads[i];

		fd = open_at(t, "log", 0, O_WRONLY | O_CREAT | O_TRUNC);
		if (fd < 0 || sync_and_close(fd, 0) != 0)
			die("log: %s", strerror(errno));
		fd = open_at(t, "pages", 0, O_WRONLY | O_CREAT | O_TRUNC);
		for (uint32_t n = 0; fd >= 0 && n < NR_PAGES; n++) {
			fill(page, KIND_PAGE, t->number, n, 0, PAGE / SECTOR);
			if (write_all(fd, page, PAGE, (off_t)n * PAGE) != 0)
				die("pages: no room");
		}
		if (fd < 0 || sync_and_close(fd, 0) != 0)
			die("pages: %s", strerror(errno));
		if (fsync(t->dir) != 0)
			die("directory: %s", strerror(errno));
	}
}

static void
run(const char *state, unsigned seed)
{
	uint64_t steps = 0;
	FILE *out;

	for (unsigned i = 0; i < NR_THREADS; i++) {
		threads[i].seed = seed * NR_THREADS + i;
		threads[i].page_changes = -1;
		if (pthread_create(
			&threads[i].id, NULL, run_thread, &threads[i]) != 0)
			die("no thread");
	}
	for (unsigned i = 0; i < NR_THREADS; i++) {
		pthread_join(threads[i].id, NULL);
		steps += threads[i].steps;
	}
	out = fopen(state, "w");
	if (out == NULL || fwrite(threads, sizeof(threads), 1, out) != 1 ||
	    fclose(out) != 0)
		die("%s: %s", state, strerror(errno));
	printf("%" PRIu64 " steps, then: %s\n", steps,
	    strerror(-threads[0].error));
}

static int
check(const char *state)
{
	FILE *in = fopen(state, "r");
	int dir = threads[0].dir;

	if (in == NULL || fread(threads, sizeof(threads), 1, in) != 1)
		die("%s: not what run has left", state);
	fclose(in);
	for (unsigned i = 0; i < NR_THREADS; i++) {
		threads[i].dir = dir;
		for (unsigned n = 0; n < NR_FILES; n++)
			check_file(&threads[i], n);
		check_appended(&threads[i]);
		check_pages(&threads[i]);
	}
	printf("%u lost\n", lost);
	return lost > 0;
}

int
main(int argc, char **argv)
{
	int dir = argc > 2 ? open(argv[2], O_RDONLY | O_DIRECTORY) : -1;

	if (dir < 0)
		die("make|run|check DIRECTORY [STATE [SEED]]");
	for (unsigned i = 0; i < NR_THREADS; i++) {
		threads[i].number = i;
		threads[i].dir = dir;
	}
	if (argc == 3 && strcmp(argv[1], "make") == 0)
		make();
	else if (argc == 5 && strcmp(argv[1], "run") == 0)
		run(argv[3], (unsigned)strtoul(argv[4], NULL, 10));
	else if (argc == 4 && strcmp(argv[1], "check") == 0)
		return check(argv[3]);
	else
		die("make|run|check DIRECTORY [STATE [SEED]]");
	return 0;
}
