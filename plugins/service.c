/* SPDX-License-Identifier: MIT */
/*
 * A turn takes all that has come, submits it under a plug a task, and runs the
 * CPU; between two of them it sleeps until somebody rings or something is due.
 */
#include "service.h"

#include <sys/prctl.h>
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NSEC_PER_SEC 1000000000u
#define MAX_RETRIES  4u         /* of tasks that wait for a tag, in a turn */
#define PATIENCE_NS  200000000u /* so often a waiting thread asks is_gone() */
#define EXTENT_STEPS 32768u     /* pages looked at for an answer: 1 ms */

struct part {
	struct bio bio;
	struct io *io;
};

/* What a thread asks for; it lies on that thread's stack. */
struct io {
	STAILQ_ENTRY(io) link; /* in service->inbox */
	TAILQ_ENTRY(io) open;  /* in service->open */
	struct task *task;
	struct part *part; /* its bios, */
	unsigned nr_parts;
	unsigned nr_left;      /* of which so many have not ended */
	struct part first;     /* and that is the only one of most */
	struct status *status; /* not NULL: no bios, but this question */
	int error;             /* 0 or -errno: the first */
	atomic_bool given_up;  /* nobody wants to know any more */
	atomic_bool has_ended;
	sem_t done;
};
STAILQ_HEAD(io_list, io);

/* service_extents() */
struct status {
	uint64_t pos, bytes;
	struct service_extent *out;
	unsigned nr, max;
};

struct task {
	STAILQ_ENTRY(task) link;  /* in service->tasks */
	TAILQ_ENTRY(task) active; /* in service->active */
	struct service *service;
	struct disk *disk;
	_Atomic uint64_t phys; /* of the next payload */
	/* of the CPU: */
	bool is_active;          /* there is something pending or plugged */
	struct bio_list pending; /* not taken by the queue yet */
	unsigned batch;          /* how many of them came at once */
	bool stalled;            /* the first one found no tag */
	struct plug plug;
	bool plug_open;
	uint64_t plug_since, plug_until;
};

struct service {
	struct service_conf conf;
	struct machine *machine;
	struct cpu *cpu;
	struct page_pool *pages;
	STAILQ_HEAD(task_list, task) tasks;
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* of what is asked of the CPU: */
	pthread_cond_t bell;
	struct io_list inbox;
	bool sleeps;
	bool stops;
	atomic_bool rung;         /* written with the lock held */
	atomic_bool any_given_up; /* among what is open */

	/* of the CPU: */
	TAILQ_HEAD(open_list, io) open;
	TAILQ_HEAD(active_list, task) active;
	bool worked;      /* something came or ended since it slept */
	bool hurried;     /* mbps holds nothing back, as all have gone */
	uint64_t late_ns; /* so much later than it wants it wakes */
};

uint64_t
service_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

struct disk *
task_disk(const struct task *t)
{
	return t->disk;
}

/* The CPU has something to do.  The lock is held. */
static void
ring(struct service *s)
{
	atomic_store(&s->rung, true);
	if (s->sleeps)
		pthread_cond_signal(&s->bell);
}

/* for struct machine */
static void
on_wake(void *arg, unsigned cpu)
{
	struct service *s = arg;

	(void)cpu;
	pthread_mutex_lock(&s->lock);
	ring(s);
	pthread_mutex_unlock(&s->lock);
}

/* ---- the submitting threads */

static void
io_init(struct io *io, struct task *t)
{
	io->task = t;
	io->part = &io->first;
	io->nr_parts = 1;
	io->nr_left = 1;
	io->status = NULL;
	io->error = 0;
	atomic_init(&io->given_up, false);
	atomic_init(&io->has_ended, false);
	sem_init(&io->done, 0, 0);
}

static void
io_fini(struct io *io)
{
	if (io->part != &io->first)
		free(io->part);
	sem_destroy(&io->done);
}

/* Who waits for it may go on, and then it is gone. */
static void
io_end(struct io *io)
{
	atomic_store(&io->has_ended, true);
	sem_post(&io->done);
}

/*
 * False: it was too long.  That the semaphore orders what came before is plain
 * to all but TSan, which does not know sem_clockwait(): for it there is a flag.
 */
static bool
await(struct io *io, uint64_t ns)
{
	uint64_t until = service_now() + ns;
	struct timespec ts = {
		.tv_sec = (time_t)(until / NSEC_PER_SEC),
		.tv_nsec = (long)(until % NSEC_PER_SEC),
	};

	while (sem_clockwait(&io->done, CLOCK_MONOTONIC, &ts) != 0)
		if (errno != EINTR)
			return false;
	return atomic_load(&io->has_ended);
}

/* Hand it over, and sleep until it has ended. */
static int
io_run(struct io *io)
{
	struct service *s = io->task->service;

	pthread_mutex_lock(&s->lock);
	STAILQ_INSERT_TAIL(&s->inbox, io, link);
	ring(s);
	pthread_mutex_unlock(&s->lock);
	while (!await(io, PATIENCE_NS)) {
		if (atomic_load(&io->given_up) || s->conf.is_gone == NULL ||
		    !s->conf.is_gone())
			continue;
		atomic_store(&io->given_up, true);
		atomic_store(&s->any_given_up, true);
		on_wake(s, 0);
	}
	return io->error;
}

/* Entries of a table that so many bytes of a payload take. */
static size_t
table_size(const struct disk *d, uint64_t bytes)
{
	uint64_t pages = (bytes + PAGE_SIZE - 1) >> PAGE_SHIFT;
	unsigned order = d->conf.page_order;

	if (!d->queue->conf.multipage)
		return pages;
	return (pages + (1u << order) - 1) >> order;
}

static void
part_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct part *p = bio->priv;
	struct io *io = p->io;
	struct service *s = io->task->service;

	(void)now;
	/* an answer is all that can be withheld here */
	if (io->error == 0 && bio->hang_up != HANG_UP_NEVER)
		io->error = -ESHUTDOWN;
	if (io->error == 0)
		io->error = bio->error;
	bio_release(bio, cpu);
	if (--io->nr_left > 0)
		return;
	TAILQ_REMOVE(&s->open, io, open);
	s->worked = true;
	io_end(io);
}

static void
part_init(struct part *p, struct io *io, enum req_op op, unsigned flags,
    uint64_t pos, struct bvec *bv)
{
	bio_init(&p->bio, op, pos, bv, bv != NULL ? BIO_MAX_VECS : 0);
	p->bio.flags = (uint16_t)flags;
	p->bio.given_up = &io->given_up;
	p->bio.end_io = part_end;
	p->bio.priv = p;
	p->io = io;
}

/* A table is full: the next bio goes on (T11). */
static int
add_payload(struct io *io, enum req_op op, unsigned flags, uint64_t pos,
    char *data, uint64_t bytes)
{
	struct task *t = io->task;
	unsigned order = t->disk->conf.page_order;
	bool multipage = t->disk->queue->conf.multipage;
	size_t nr_bv = table_size(t->disk, bytes);
	uint64_t done = 0, phys;
	struct bvec *bv = NULL;
	struct part *p;

	if (nr_bv > BIO_INLINE_VECS) {
		io->nr_parts =
		    (unsigned)((nr_bv + BIO_MAX_VECS - 1) / BIO_MAX_VECS);
		p = malloc(
		    io->nr_parts * (sizeof(*p) + BIO_MAX_VECS * sizeof(*bv)));
		if (p == NULL)
			return -ENOMEM;
		io->part = p;
		io->nr_left = io->nr_parts;
		bv = (struct bvec *)(p + io->nr_parts);
	}
	phys = atomic_fetch_add(
	    &t->phys, pages_span(order, (bytes + PAGE_SIZE - 1) >> PAGE_SHIFT));
	for (unsigned i = 0; i < io->nr_parts; i++) {
		p = &io->part[i];
		part_init(p, io, op, flags, pos + done,
		    bv != NULL ? bv + (size_t)i * BIO_MAX_VECS : NULL);
		done += bio_add_payload(&p->bio, multipage, phys, order,
		    done >> PAGE_SHIFT, data + done, bytes - done);
	}
	assert(done == bytes);
	return 0;
}

int
service_io(struct task *t, enum req_op op, unsigned flags, uint64_t pos,
    uint64_t bytes, void *data)
{
	struct io io;
	int err = 0;

	io_init(&io, t);
	if (op == REQ_OP_WRITE)
		flags |= REQ_SYNC; /* as direct I/O has it */
	if (op == REQ_OP_READ || op == REQ_OP_WRITE)
		err = add_payload(&io, op, flags, pos, data, bytes);
	else
		part_init(&io.first, &io, op, flags, pos, NULL);
	if (data == NULL)
		io.first.bio.bytes = bytes;
	if (err == 0)
		err = io_run(&io);
	io_fini(&io);
	return err;
}

unsigned
service_extents(struct task *t, uint64_t pos, uint64_t bytes,
    struct service_extent *out, unsigned max)
{
	struct status st = { pos, bytes, out, 0, max };
	struct io io;

	assert(max > 0);
	assert(bytes > 0);
	io_init(&io, t);
	io.status = &st;
	io_run(&io);
	io_fini(&io);
	return st.nr;
}

/* ---- a task, on the CPU */

static void
close_plug(struct task *t, uint64_t now)
{
	plug_flush(&t->plug, t->service->cpu, now);
	t->plug_open = false;
}

/* As a session does it (nbd/submit.c).  0 or -EAGAIN. */
static int
submit(struct task *t, struct bio *bio, uint64_t now)
{
	struct queue *q = t->disk->queue;
	struct cpu *cpu = t->service->cpu;
	enum req_op op = bio->op; /* the bio may end in here */
	bool alone = !t->plug_open && queue_plugs_alone(q, op);
	struct plug *plug = t->plug_open || alone ? &t->plug : NULL;
	int err = queue_submit(q, cpu, plug, bio, now);

	if (alone)
		plug_flush_alone(&t->plug, op, cpu, now);
	return err;
}

static void
submit_all(struct task *t, uint64_t now)
{
	struct bio *bio;

	t->stalled = false;
	while (!t->stalled && (bio = STAILQ_FIRST(&t->pending)) != NULL) {
		/* its link is the queue's while it is there */
		STAILQ_REMOVE_HEAD(&t->pending, link);
		if (submit(t, bio, now) == 0)
			continue;
		STAILQ_INSERT_HEAD(&t->pending, bio, link);
		t->stalled = true;
	}
	if (!t->stalled)
		t->batch = 0;
}

/* What is pending goes to the queue; the plug stays open for plug_nsec. */
static void
task_submit(struct task *t, uint64_t now)
{
	unsigned min = queue_plug_min(t->disk->queue);
	uint64_t wait = min > 0 ? t->disk->conf.plug_nsec : 0;

	if (t->plug_open && now >= t->plug_until)
		close_plug(t, now);
	if (!STAILQ_EMPTY(&t->pending)) {
		if (!t->plug_open && min > 0 && (wait > 0 || t->batch >= min)) {
			t->plug_open = true;
			t->plug_since = now;
		}
		submit_all(t, now);
	}
	if (!t->plug_open)
		return;
	t->plug_until = t->plug_since + wait;
	if (t->plug_until < wait)
		t->plug_until = CPU_NO_DEADLINE - 1; /* in 584 years */
	if (now >= t->plug_until || plug_is_empty(&t->plug) || t->stalled)
		close_plug(t, now);
}

/* It is to be looked at in this turn, and as long as it has something. */
static void
task_activate(struct task *t)
{
	if (!t->is_active)
		TAILQ_INSERT_TAIL(&t->service->active, t, active);
	t->is_active = true;
}

/* What was given up before the driver has seen it. */
static void
let_go_pending(struct task *t, uint64_t now)
{
	struct bio_list keep = STAILQ_HEAD_INITIALIZER(keep);
	struct bio *bio;

	while ((bio = STAILQ_FIRST(&t->pending)) != NULL) {
		STAILQ_REMOVE_HEAD(&t->pending, link);
		if (atomic_load(bio->given_up))
			queue_drop(t->disk->queue, t->service->cpu, bio,
			    -ESHUTDOWN, now);
		else
			STAILQ_INSERT_TAIL(&keep, bio, link);
	}
	STAILQ_CONCAT(&t->pending, &keep);
	if (t->plug_open)
		close_plug(t, now);
}

/* ---- the CPU */

static void
answer(struct status *st, struct disk *d, struct cpu *cpu)
{
	unsigned steps = EXTENT_STEPS, kind;
	struct service_extent *last = NULL;
	uint64_t done = 0, len;

	while (done < st->bytes && steps > 0) {
		len = st->bytes - done;
		kind = disk_extent(d, cpu, st->pos + done, &len, &steps);
		if (last != NULL && last->kind == kind) {
			last->bytes += len;
		} else if (st->nr < st->max) {
			last = &st->out[st->nr++];
			*last = (struct service_extent){ len, kind };
		} else {
			break;
		}
		done += len;
	}
}

static void
take(struct service *s, struct io *io)
{
	struct task *t = io->task;

	if (io->status != NULL) {
		answer(io->status, t->disk, s->cpu);
		io_end(io);
		return;
	}
	TAILQ_INSERT_TAIL(&s->open, io, open);
	/* several of one are submitted under a plug in any case */
	t->batch +=
	    io->nr_parts > 1 ? t->disk->queue->profile->aio_plug_min : 1;
	for (unsigned i = 0; i < io->nr_parts; i++)
		STAILQ_INSERT_TAIL(&t->pending, &io->part[i].bio, link);
	task_activate(t);
}

/* False: it is to stop. */
static bool
take_inbox(struct service *s)
{
	struct io_list in = STAILQ_HEAD_INITIALIZER(in);
	struct io *io;
	bool stops;

	pthread_mutex_lock(&s->lock);
	STAILQ_CONCAT(&in, &s->inbox);
	atomic_store(&s->rung, false);
	stops = s->stops;
	pthread_mutex_unlock(&s->lock);
	while ((io = STAILQ_FIRST(&in)) != NULL) {
		STAILQ_REMOVE_HEAD(&in, link);
		s->worked = true;
		take(s, io);
	}
	return !stops;
}

/* Have all gone who wait for anything?  *any: has one? */
static bool
all_given_up(struct service *s, bool *any)
{
	bool all = true;
	struct io *io;

	*any = false;
	TAILQ_FOREACH(io, &s->open, open) {
		if (atomic_load(&io->given_up)) {
			*any = true;
			task_activate(io->task);
		} else {
			all = false;
		}
	}
	return all;
}

/* Nobody waits: what mbps holds back goes, and nothing waits for its time. */
static void
hurry(struct service *s, uint64_t now)
{
	struct task *t;

	cpu_expire(s->cpu, -ESHUTDOWN, now);
	if (s->hurried)
		return;
	s->hurried = true;
	TAILQ_FOREACH(t, &s->active, active) {
		throttle_set(&t->disk->throttle, 0, now);
		queue_restart(t->disk->queue);
	}
}

/* There is somebody again. */
static void
hurry_no_more(struct service *s, uint64_t now)
{
	struct task *t;

	s->hurried = false;
	STAILQ_FOREACH(t, &s->tasks, link)
		throttle_set(&t->disk->throttle, t->disk->conf.mbps, now);
}

/*
 * Those who have gone keep nothing.  Where nobody is left all ends, for so
 * does a server.  True: there is more to end.
 */
static bool
let_go(struct service *s, uint64_t now)
{
	bool any, all;
	struct task *t;

	if (!atomic_exchange(&s->any_given_up, false))
		return false;
	all = all_given_up(s, &any);
	if (!any)
		return false;
	atomic_store(&s->any_given_up, true);
	TAILQ_FOREACH(t, &s->active, active) {
		let_go_pending(t, now);
		queue_abandon(t->disk->queue);
	}
	if (all)
		hurry(s, now);
	return all;
}

/* *next: when a plug is to close, if that is earlier.  Is a task stalled? */
static bool
submit_tasks(struct service *s, uint64_t now, uint64_t *next)
{
	struct task *t, *after;
	bool stalled = false;

	for (t = TAILQ_FIRST(&s->active); t != NULL; t = after) {
		after = TAILQ_NEXT(t, active);
		task_submit(t, now);
		stalled |= t->stalled;
		if (t->plug_open && t->plug_until < *next)
			*next = t->plug_until;
		if (t->plug_open || !STAILQ_EMPTY(&t->pending))
			continue;
		TAILQ_REMOVE(&s->active, t, active);
		t->is_active = false;
	}
	return stalled;
}

/* The whole path of an I/O, once; returns the next deadline. */
static uint64_t
turn(struct service *s)
{
	uint64_t now = service_now(), next = now, plug = now;
	bool stalled, ends = let_go(s, now);
	unsigned i;

	for (i = 0; i < MAX_RETRIES; i++) {
		plug = CPU_NO_DEADLINE;
		stalled = submit_tasks(s, now, &plug);
		next = cpu_run(s->cpu, service_now());
		/* a freed tag lets those who wait go on, in this same turn */
		if (!cpu_tag_freed(s->cpu) || !stalled)
			break;
	}
	/* before anybody else comes in */
	if (s->hurried && TAILQ_EMPTY(&s->open))
		hurry_no_more(s, now);
	if (i < MAX_RETRIES && !(ends && next != CPU_NO_DEADLINE))
		return plug < next ? plug : next;
	return now; /* there is more to do, but others come first */
}

/* ---- sleep */

/* Look until then whether somebody rings: true; false: nobody does. */
static bool
poll_until(struct service *s, uint64_t at)
{
	while (!atomic_load_explicit(&s->rung, memory_order_relaxed)) {
		if (service_now() >= at)
			return false;
		sched_yield(); /* who is to ring may want this very core */
	}
	return true;
}

/* A sleeping thread wakes late: learn how late. */
static void
learn(struct service *s, uint64_t wanted)
{
	uint64_t now = service_now(), late = now > wanted ? now - wanted : 0;

	/* up at once, down slowly: to wake late is worse than to poll a bit */
	if (late > s->late_ns)
		s->late_ns += (late - s->late_ns) / 2;
	else
		s->late_ns -= (s->late_ns - late) / 16;
}

/* Until somebody rings, or then (CPU_NO_DEADLINE: for good). */
static void
sleep_until(struct service *s, uint64_t at)
{
	struct timespec ts = { (time_t)(at / NSEC_PER_SEC),
		(long)(at % NSEC_PER_SEC) };
	int err = 0;

	pthread_mutex_lock(&s->lock);
	s->sleeps = true;
	while (!atomic_load(&s->rung) && err != ETIMEDOUT) {
		if (at == CPU_NO_DEADLINE)
			pthread_cond_wait(&s->bell, &s->lock);
		else
			err = pthread_cond_timedwait(&s->bell, &s->lock, &ts);
	}
	s->sleeps = false;
	pthread_mutex_unlock(&s->lock);
	if (err == ETIMEDOUT)
		learn(s, at);
}

/* Until somebody rings or it is time; who has just worked looks first. */
static void
wait(struct service *s, uint64_t next)
{
	uint64_t spin = s->conf.spin_ns, now = service_now();
	uint64_t early = s->late_ns < spin ? s->late_ns : spin;

	if (next <= now)
		return;
	if (s->worked && spin > 0) {
		s->worked = false;
		if (poll_until(s, next - now < spin ? next : now + spin))
			return;
		now = service_now();
	}
	if (next == CPU_NO_DEADLINE) {
		sleep_until(s, next);
		return;
	}
	if (next > now + early)
		sleep_until(s, next - early);
	poll_until(s, next);
}

static void *
service_thread(void *arg)
{
	struct service *s = arg;
	uint64_t next;
	bool goes_on;

	prctl(PR_SET_TIMERSLACK, 1UL);
	pthread_setname_np(pthread_self(), "nullb");
	do {
		epoch_enter(&s->machine->epoch, s->cpu->id);
		goes_on = take_inbox(s);
		next = turn(s);
		epoch_leave(&s->machine->epoch, s->cpu->id);
		/* memory that was given up comes home before we sleep */
		if (page_pool_idle(s->pages, s->cpu))
			next = 0;
		if (goes_on)
			wait(s, next);
	} while (goes_on);
	assert(TAILQ_EMPTY(&s->open));
	return NULL;
}

/* ---- the whole */

struct service *
service_new(const struct service_conf *conf)
{
	struct service *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;

	if (s == NULL)
		return NULL;
	s->conf = *conf;
	STAILQ_INIT(&s->tasks);
	STAILQ_INIT(&s->inbox);
	TAILQ_INIT(&s->open);
	TAILQ_INIT(&s->active);
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->bell, &attr);
	pthread_condattr_destroy(&attr);
	s->machine = machine_new(1, on_wake, s);
	if (s->machine != NULL)
		s->pages = page_pool_new(s->machine, conf->memory_limit);
	if (s->machine == NULL || s->pages == NULL) {
		service_free(s);
		return NULL;
	}
	s->cpu = &s->machine->cpu[0];
	return s;
}

static void
task_free(struct task *t)
{
	if (t != NULL)
		disk_free(t->disk);
	free(t);
}

struct task *
service_add(
    struct service *s, const struct device *dev, char *err, size_t errlen)
{
	struct task *t = calloc(1, sizeof(*t));

	if (t != NULL)
		t->disk = disk_new(dev->name, s->machine, s->pages);
	if (t == NULL || t->disk == NULL ||
	    attr_copy(disk_attrs, &t->disk->set, &dev->conf) != 0) {
		refuse(err, errlen, -ENOMEM, "out of memory");
		goto fail;
	}
	if (disk_power_on(t->disk, service_now(), err, errlen) != 0)
		goto fail;
	t->service = s;
	STAILQ_INIT(&t->pending);
	plug_init(&t->plug);
	STAILQ_INSERT_TAIL(&s->tasks, t, link);
	return t;
fail:
	task_free(t);
	return NULL;
}

int
service_start(struct service *s)
{
	sigset_t all, before;
	int err;

	/* signals are for those who expect them */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&s->thread, NULL, service_thread, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	s->started = err == 0;
	return -err;
}

void
service_stop(struct service *s)
{
	if (!s->started)
		return;
	pthread_mutex_lock(&s->lock);
	s->stops = true;
	ring(s);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	s->started = false;
}

void
service_free(struct service *s)
{
	struct task *t;

	if (s == NULL)
		return;
	while ((t = STAILQ_FIRST(&s->tasks)) != NULL) {
		STAILQ_REMOVE_HEAD(&s->tasks, link);
		task_free(t);
	}
	page_pool_free(s->pages);
	machine_free(s->machine);
	pthread_cond_destroy(&s->bell);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
