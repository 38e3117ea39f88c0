/* SPDX-License-Identifier: MIT */
/*
 * A loop plays a CPU.  Watchers only collect; turn() runs the pipeline:
 *
 *	read -> parse -> bios -> plug -> driver -> completions -> replies
 *
 * Its deadline (the first timer of the device, or a plug that is to close) is
 * a timerfd.  A sleeping thread wakes late, so the loop learns how late,
 * sleeps until that much earlier, and polls the rest; and it lingers a little
 * before it sleeps at all.
 */
#include "daemon.h"

#include <sys/timerfd.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define NSEC_PER_SEC 1000000000u
#define ACTIVE_NS    1000000u /* after its last answer a loop counts as active */
#define MAX_RETRIES  4u       /* of those that wait, in a turn */

/* A disk with zones that were reset. */
struct sweep {
	STAILQ_ENTRY(sweep) link;
	struct disk *disk;
};

static void
on_wake(struct ev_loop *ev, ev_async *w, int revents)
{
	(void)ev;
	(void)w;
	(void)revents; /* the turn that follows looks everywhere */
}

static void
on_timer(struct ev_loop *ev, ev_io *w, int revents)
{
	struct loop *l = w->data;
	uint64_t expirations, now, late;

	(void)ev;
	(void)revents;
	if (read(l->timer_fd, &expirations, sizeof(expirations)) < 0)
		return;
	now = clock_ns();
	late = now > l->armed ? now - l->armed : 0;
	l->armed = 0;
	/* up at once, down slowly: to wake late is worse than to poll a bit */
	if (late > l->late_ns)
		l->late_ns += (late - l->late_ns) / 2;
	else
		l->late_ns -= (l->late_ns - late) / 16;
}

int
loop_init(struct loop *l, struct daemon *d, struct cpu *cpu)
{
	int err;

	*l = (struct loop){ .daemon = d, .cpu = cpu, .timer_fd = -1 };
	errno = 0;
	TAILQ_INIT(&l->conns);
	TAILQ_INIT(&l->readable);
	TAILQ_INIT(&l->stalled);
	TAILQ_INIT(&l->dirty);
	TAILQ_INIT(&l->inbox);
	STAILQ_INIT(&l->sweeps);
	pthread_mutex_init(&l->inbox_lock, NULL);
	/*
	 * libev leaves a stopped descriptor in its epoll set.  The main loop
	 * hands connections over: asleep, it would keep their sockets open
	 * after the worker has closed them (seen with Linux 6.18), so it polls.
	 */
	l->ev = cpu == NULL ? ev_default_loop(EVBACKEND_POLL)
			    : ev_loop_new(EVFLAG_AUTO);
	if (l->ev != NULL)
		l->timer_fd =
		    timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (l->timer_fd >= 0)
		l->pool = nbd_pool_new();
	if (l->pool == NULL) {
		err = errno != 0 ? errno : ENOMEM;
		loop_fini(l);
		return -err;
	}
	ev_async_init(&l->wake, on_wake);
	ev_async_start(l->ev, &l->wake);
	ev_io_init(&l->timer, on_timer, l->timer_fd, EV_READ);
	l->timer.data = l;
	ev_set_priority(&l->timer, EV_MAXPRI); /* before sockets: lateness */
	ev_io_start(l->ev, &l->timer);
	return 0;
}

void
loop_fini(struct loop *l)
{
	struct sweep *s;

	while ((s = STAILQ_FIRST(&l->sweeps)) != NULL) {
		STAILQ_REMOVE_HEAD(&l->sweeps, link);
		free(s);
	}
	nbd_pool_free(l->pool);
	if (l->timer_fd >= 0)
		close(l->timer_fd);
	if (l->ev != NULL)
		ev_loop_destroy(l->ev);
	pthread_mutex_destroy(&l->inbox_lock);
}

void
loop_wake(struct loop *l)
{
	ev_async_send(l->ev, &l->wake);
}

void
loop_post(struct loop *l, struct conn *c)
{
	pthread_mutex_lock(&l->inbox_lock);
	TAILQ_INSERT_TAIL(&l->inbox, c, link);
	pthread_mutex_unlock(&l->inbox_lock);
	loop_tell(l, LOOP_TAKE);
}

bool
loop_sweep(struct loop *l, struct disk *disk)
{
	struct sweep *s = malloc(sizeof(*s));

	if (s == NULL)
		return false;
	s->disk = disk;
	pthread_mutex_lock(&l->inbox_lock);
	STAILQ_INSERT_TAIL(&l->sweeps, s, link);
	pthread_mutex_unlock(&l->inbox_lock);
	loop_tell(l, LOOP_SWEEP);
	return true;
}

void
loop_sweep_no_more(struct loop *l, const struct disk *disk)
{
	struct sweep *s;

	pthread_mutex_lock(&l->inbox_lock);
	STAILQ_FOREACH(s, &l->sweeps, link)
		if (s->disk == disk)
			s->disk = NULL;
	pthread_mutex_unlock(&l->inbox_lock);
}

void
loop_tell(struct loop *l, enum loop_order order)
{
	atomic_fetch_or(&l->orders, order);
	loop_wake(l);
}

/* ------------------------------------------------------------------ turn */

/* Connections that another loop handed over. */
static void
take_inbox(struct loop *l, uint64_t now)
{
	struct conn_list in = TAILQ_HEAD_INITIALIZER(in);
	struct conn *c;

	pthread_mutex_lock(&l->inbox_lock);
	TAILQ_CONCAT(&in, &l->inbox, link);
	pthread_mutex_unlock(&l->inbox_lock);
	while ((c = TAILQ_FIRST(&in)) != NULL) {
		TAILQ_REMOVE(&in, c, link);
		conn_attach(c, l, now);
	}
}

/* One zone a turn: others have a turn, too. */
static void
sweep_zones(struct loop *l)
{
	struct disk *disk = NULL;
	struct sweep *s;
	bool more;

	pthread_mutex_lock(&l->inbox_lock);
	s = STAILQ_FIRST(&l->sweeps);
	if (s != NULL)
		disk = s->disk;
	pthread_mutex_unlock(&l->inbox_lock);
	if (s == NULL)
		return;
	more = disk != NULL && zones_sweep(disk, l->cpu);
	pthread_mutex_lock(&l->inbox_lock);
	if (!more || s->disk == NULL) {
		STAILQ_REMOVE_HEAD(&l->sweeps, link);
		free(s);
	}
	more = !STAILQ_EMPTY(&l->sweeps);
	pthread_mutex_unlock(&l->inbox_lock);
	if (more)
		loop_tell(l, LOOP_SWEEP);
}

/* The daemon is to end: N162. */
static void
obey(struct loop *l, unsigned orders, uint64_t now)
{
	struct conn *c;

	if (orders & LOOP_SHUTDOWN)
		TAILQ_FOREACH(c, &l->conns, link)
			conn_shutdown(c);
	if ((orders & LOOP_EXPIRE) == 0 || l->cpu == NULL)
		return;
	TAILQ_FOREACH(c, &l->conns, link)
		conn_expire(c, now);
	cpu_expire(l->cpu, -ESHUTDOWN, now);
}

/*
 * A queue is being frozen: tasks that hold requests of it in a plug let them
 * go, in retry_all(), however long the plug might have stayed open.
 */
static void
retry_conns(struct loop *l)
{
	struct conn *c;

	TAILQ_FOREACH(c, &l->conns, link) {
		c->next = NBD_STALLED;
		conn_mark(c, CONN_STALLED);
	}
}

static void
kick_conns(struct loop *l, uint64_t now)
{
	struct conn *c;

	TAILQ_FOREACH(c, &l->conns, link)
		conn_kick(c, now);
}

static void
end_conns(struct loop *l, uint64_t now)
{
	struct conn *c;

	TAILQ_FOREACH(c, &l->conns, link)
		conn_end(c, now);
}

static void
read_all(struct loop *l, uint64_t now)
{
	struct conn *c;

	while ((c = TAILQ_FIRST(&l->readable)) != NULL) {
		TAILQ_REMOVE(&l->readable, c, readable);
		c->on &= ~(unsigned)CONN_READABLE;
		conn_read(c, now);
	}
}

/*
 * Those that wait for a tag or for data to move, or whose plug is to close.
 * Who got nothing this time is before those who did the next time: else one
 * that wants all the tags would get all of them.
 */
static void
retry_all(struct loop *l, uint64_t now)
{
	struct conn_list list = TAILQ_HEAD_INITIALIZER(list);
	struct conn_list got = TAILQ_HEAD_INITIALIZER(got);
	struct conn *c;

	TAILQ_CONCAT(&list, &l->stalled, stalled);
	while ((c = TAILQ_FIRST(&list)) != NULL) {
		TAILQ_REMOVE(&list, c, stalled);
		c->on &= ~(unsigned)CONN_STALLED;
		if (c->next > now) {
			conn_mark(c, CONN_STALLED);
			continue;
		}
		if (!conn_retry(c, now) || (c->on & CONN_STALLED) == 0)
			continue;
		TAILQ_REMOVE(&l->stalled, c, stalled);
		TAILQ_INSERT_TAIL(&got, c, stalled);
	}
	TAILQ_CONCAT(&l->stalled, &got, stalled);
}

static void
finish_all(struct loop *l)
{
	struct conn *c;

	while ((c = TAILQ_FIRST(&l->dirty)) != NULL) {
		TAILQ_REMOVE(&l->dirty, c, dirty);
		c->on &= ~(unsigned)CONN_DIRTY;
		conn_finish(c);
	}
}

/* When the next plug is to close, or CPU_NO_DEADLINE. */
static uint64_t
next_plug(const struct loop *l)
{
	const struct conn *c;
	uint64_t next = CPU_NO_DEADLINE;

	TAILQ_FOREACH(c, &l->stalled, stalled)
		if (c->next != NBD_STALLED && c->next < next)
			next = c->next;
	return next;
}

/* The whole path of an I/O, once; returns the next deadline. */
static uint64_t
turn(struct loop *l, unsigned orders)
{
	uint64_t now = clock_ns(), next = CPU_NO_DEADLINE, plug;
	unsigned i;

	if (orders & LOOP_TAKE)
		take_inbox(l, now);
	if (orders & (LOOP_SHUTDOWN | LOOP_EXPIRE))
		obey(l, orders, now);
	if (orders & LOOP_RETRY)
		retry_conns(l);
	if (orders & LOOP_KICK)
		kick_conns(l, now);
	if (orders & LOOP_END)
		end_conns(l, now);
	if (orders & LOOP_SWEEP)
		sweep_zones(l);
	read_all(l, now);
	for (i = 0; i < MAX_RETRIES; i++) {
		l->again = false;
		retry_all(l, now);
		if (l->cpu != NULL)
			next = cpu_run(l->cpu, clock_ns());
		/* a freed tag lets those who wait go on, in this same turn */
		if (!l->again && (l->cpu == NULL || !cpu_tag_freed(l->cpu) ||
				     TAILQ_EMPTY(&l->stalled)))
			break;
	}
	finish_all(l);
	if ((orders & LOOP_EXPIRE) && next != CPU_NO_DEADLINE)
		return now; /* what was let in since must end, too */
	if (l->again || i == MAX_RETRIES)
		return now; /* there is more to do, but others come first */
	plug = next_plug(l);
	return plug < next ? plug : next;
}

/* ----------------------------------------------------------------- sleep */

static void
set_timer(struct loop *l, uint64_t at)
{
	struct itimerspec its = {
		.it_value = { (time_t)(at / NSEC_PER_SEC),
		    (long)(at % NSEC_PER_SEC) },
	};

	if (l->armed != 0 && l->armed <= at)
		return; /* it wakes early enough; the turn then sets it anew */
	timerfd_settime(l->timer_fd, TFD_TIMER_ABSTIME, &its, NULL);
	l->armed = at;
}

/* One loop fewer than there are cores may poll at a time. */
static bool
may_poll(struct loop *l)
{
	struct daemon *d = l->daemon;
	unsigned nr, max = d->nr_cores - 1;

	if (l->polls)
		return true;
	nr = atomic_load_explicit(&d->nr_polling, memory_order_relaxed);
	while (nr < max)
		if (atomic_compare_exchange_weak(&d->nr_polling, &nr, nr + 1))
			return l->polls = true;
	return false;
}

static void
poll_no_more(struct loop *l)
{
	if (!l->polls)
		return;
	l->polls = false;
	atomic_fetch_sub(&l->daemon->nr_polling, 1);
}

/* Loops that have work these days, this one included. */
static unsigned
nr_active(const struct daemon *d, uint64_t now)
{
	unsigned i, nr = 0;

	for (i = 0; i < d->nr_workers; i++)
		nr += atomic_load_explicit(&d->worker[i].active_until,
			  memory_order_relaxed) > now;
	return nr;
}

/*
 * A loop that has just worked looks at its sockets for a while before it
 * sleeps: a client that waits for these replies will soon send more, and to be
 * woken costs more than that (on an idle 2-core virtual machine a read of
 * 4 KiB at depth 1 takes 30 us instead of 103, and costs less CPU time).  Only
 * where there is a core for each active loop and one for its client: with two
 * clients on those two cores it would take a fifth off their IOPS.
 */
static bool
may_linger(struct loop *l, uint64_t now, uint64_t spin)
{
	const struct daemon *d = l->daemon;

	if (l->worked) {
		l->worked = false;
		atomic_store_explicit(
		    &l->active_until, now + ACTIVE_NS, memory_order_relaxed);
		l->linger_until =
		    2 * nr_active(d, now) <= d->nr_cores ? now + spin : 0;
	}
	return now < l->linger_until && may_poll(l);
}

/* Sleep until something happens or shortly before `next`; or just look. */
static void
wait(struct loop *l, uint64_t next)
{
	uint64_t spin = (uint64_t)l->daemon->conf.spin_usec * NSEC_PER_USEC;
	uint64_t early = l->late_ns < spin ? l->late_ns : spin;
	uint64_t now = clock_ns();
	bool due = next <= now;
	bool soon =
	    !due && next != CPU_NO_DEADLINE && next - now <= early + early / 4;

	if (due || (soon && may_poll(l))) {
		ev_run(l->ev, EVRUN_NOWAIT);
		return;
	}
	if (spin > 0 && may_linger(l, now, spin)) {
		sched_yield(); /* the client may want this very core */
		ev_run(l->ev, EVRUN_NOWAIT);
		return;
	}
	poll_no_more(l);
	if (next != CPU_NO_DEADLINE)
		set_timer(l, next - now > early ? next - early : next);
	ev_run(l->ev, EVRUN_ONCE);
}

void
loop_run(struct loop *l)
{
	struct epoch *epoch =
	    l->cpu != NULL ? &l->daemon->machine->epoch : NULL;
	unsigned orders;
	uint64_t next;

	do {
		/* what comes later is of the next turn, which is woken */
		orders = atomic_fetch_and(&l->orders, ~(unsigned)LOOP_ONCE);
		if (epoch != NULL)
			epoch_enter(epoch, l->cpu->id);
		next = turn(l, orders);
		if (epoch != NULL)
			epoch_leave(epoch, l->cpu->id);
		/* memory that was given up comes home before we sleep */
		if (epoch != NULL && page_pool_idle(l->daemon->pages, l->cpu))
			next = 0;
		if ((orders & LOOP_STOP) == 0)
			wait(l, next);
	} while ((orders & LOOP_STOP) == 0);
	poll_no_more(l);
}

static void *
loop_thread(void *arg)
{
	loop_run(arg);
	return NULL;
}

int
loop_start(struct loop *l)
{
	const struct daemon *d = l->daemon;
	pthread_attr_t attr;
	cpu_set_t set;
	int err = pthread_attr_init(&attr);

	if (err != 0)
		return -err;
	if (d->nr_pins > 0) {
		CPU_ZERO(&set);
		CPU_SET(d->pin[l->cpu->id % d->nr_pins], &set);
		err = pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
	}
	err = err != 0 ? -err
		       : host_start_thread(&l->thread, &attr, loop_thread, l);
	pthread_attr_destroy(&attr);
	return err;
}

void
loop_join(struct loop *l)
{
	pthread_join(l->thread, NULL);
}
