/* SPDX-License-Identifier: MIT */
/*
 * A CPU of the simulated host: what it has to end, now or at a deadline, and
 * what other CPUs post to it.
 */
#include "blk/internal.h"

#include <assert.h>
#include <stdlib.h>

#include "base/util.h"

struct machine *
machine_new(unsigned nr_cpus, void (*wake)(void *, unsigned), void *arg)
{
	struct machine *m;
	unsigned i;

	assert(nr_cpus > 0);
	m = aligned_calloc(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	m->wake = wake;
	m->wake_arg = arg;
	m->cpu = aligned_calloc(nr_cpus, sizeof(*m->cpu));
	if (m->cpu == NULL || epoch_init(&m->epoch, nr_cpus) != 0) {
		free(m->cpu);
		free(m);
		return NULL;
	}
	m->nr_cpus = nr_cpus;
	for (i = 0; i < nr_cpus; i++) {
		struct cpu *cpu = &m->cpu[i];

		cpu->machine = m;
		cpu->id = i;
		TAILQ_INIT(&cpu->softirq);
		TAILQ_INIT(&cpu->unarmed);
		heap_init(&cpu->deadlines);
		STAILQ_INIT(&cpu->rerun);
		STAILQ_INIT(&cpu->later);
		STAILQ_INIT(&cpu->free_bios);
		pthread_mutex_init(&cpu->mail_lock, NULL);
		TAILQ_INIT(&cpu->mail);
		STAILQ_INIT(&cpu->mail_bios);
	}
	return m;
}

void
machine_free(struct machine *m)
{
	struct bio *bio;
	unsigned i;

	if (m == NULL)
		return;
	for (i = 0; i < m->nr_cpus; i++) {
		struct cpu *cpu = &m->cpu[i];

		assert(heap_empty(&cpu->deadlines));
		assert(TAILQ_EMPTY(&cpu->mail));
		assert(STAILQ_EMPTY(&cpu->mail_bios));
		heap_fini(&cpu->deadlines);
		while ((bio = STAILQ_FIRST(&cpu->free_bios)) != NULL) {
			STAILQ_REMOVE_HEAD(&cpu->free_bios, link);
			free(bio);
		}
		pthread_mutex_destroy(&cpu->mail_lock);
	}
	epoch_fini(&m->epoch);
	free(m->cpu);
	free(m);
}

void
cpu_wake(struct cpu *cpu)
{
	if (cpu->machine->wake != NULL)
		cpu->machine->wake(cpu->machine->wake_arg, cpu->id);
}

unsigned
machine_call(struct machine *m)
{
	unsigned call = atomic_fetch_add(&m->calls, 1) + 1;

	for (unsigned i = 0; i < m->nr_cpus; i++)
		cpu_wake(&m->cpu[i]);
	return call;
}

bool
machine_heard(const struct machine *m, unsigned call)
{
	for (unsigned i = 0; i < m->nr_cpus; i++)
		if ((int)(atomic_load(&m->cpu[i].heard) - call) < 0)
			return false;
	return true;
}

/* What to post goes in between the two: the first one wakes the cpu. */
static bool
mail_begin(struct cpu *to)
{
	pthread_mutex_lock(&to->mail_lock);
	return !atomic_exchange(&to->has_mail, true);
}

static void
mail_end(struct cpu *to, bool was_empty)
{
	pthread_mutex_unlock(&to->mail_lock);
	if (was_empty)
		cpu_wake(to);
}

void
cpu_post(struct cpu *to, struct request *rq)
{
	bool was_empty = mail_begin(to);

	TAILQ_INSERT_TAIL(&to->mail, rq, link);
	mail_end(to, was_empty);
}

void
cpu_post_bio(struct bio *bio, int error)
{
	struct cpu *to = bio->cpu;
	bool was_empty;

	/* its pieces may be ending there just now: error is that cpu's */
	bio->mail_error = error;
	was_empty = mail_begin(to);
	STAILQ_INSERT_TAIL(&to->mail_bios, bio, link);
	mail_end(to, was_empty);
}

void
cpu_rerun_cancel(struct cpu *cpu, struct hctx *hctx)
{
	struct hctx_rerun *r = &hctx->rerun[cpu->id];

	if (r->queued)
		STAILQ_REMOVE(&cpu->rerun, r, hctx_rerun, link);
	if (r->later)
		STAILQ_REMOVE(&cpu->later, r, hctx_rerun, link);
	r->queued = false;
	r->later = false;
}

void
cpu_rerun(struct cpu *cpu, struct hctx *hctx)
{
	struct hctx_rerun *r = &hctx->rerun[cpu->id];

	if (r->queued)
		return;
	cpu_rerun_cancel(cpu, hctx);
	r->queued = true;
	STAILQ_INSERT_TAIL(&cpu->rerun, r, link);
}

void
cpu_rerun_later(struct cpu *cpu, struct hctx *hctx, uint64_t now)
{
	struct hctx_rerun *r = &hctx->rerun[cpu->id];
	uint64_t until = atomic_load(&hctx->stopped_ns);
	bool stopped = now < until;
	uint64_t at = stopped ? until : now + BLK_MQ_RESOURCE_DELAY;

	if (r->queued)
		return;
	if (!r->later || at < r->at_ns) {
		r->at_ns = at;
		r->stopped = stopped;
	}
	if (r->later)
		return;
	r->later = true;
	STAILQ_INSERT_TAIL(&cpu->later, r, link);
}

/* Those whose time has come.  They are few: a hctx of a busy driver each. */
static void
take_later(struct cpu *cpu, uint64_t now)
{
	struct hctx_rerun *r, *next;

	for (r = STAILQ_FIRST(&cpu->later); r != NULL; r = next) {
		next = STAILQ_NEXT(r, link);
		if (now >= r->at_ns ||
		    (r->stopped && atomic_load(&r->hctx->stopped_ns) == 0))
			cpu_rerun(cpu, r->hctx);
	}
}

static uint64_t
first_later(const struct cpu *cpu)
{
	uint64_t first = CPU_NO_DEADLINE;
	const struct hctx_rerun *r;

	STAILQ_FOREACH(r, &cpu->later, link)
		if (r->at_ns < first)
			first = r->at_ns;
	return first;
}

static void
take_mail(struct cpu *cpu, uint64_t now)
{
	struct request_list list = TAILQ_HEAD_INITIALIZER(list);
	struct bio_list bios = STAILQ_HEAD_INITIALIZER(bios);
	struct request *rq;
	struct bio *bio;

	if (!atomic_load_explicit(&cpu->has_mail, memory_order_acquire))
		return;
	pthread_mutex_lock(&cpu->mail_lock);
	TAILQ_CONCAT(&list, &cpu->mail, link);
	STAILQ_CONCAT(&bios, &cpu->mail_bios);
	atomic_store_explicit(&cpu->has_mail, false, memory_order_relaxed);
	pthread_mutex_unlock(&cpu->mail_lock);
	while ((rq = TAILQ_FIRST(&list)) != NULL) {
		TAILQ_REMOVE(&list, rq, link);
		rq_end(rq, cpu, now);
	}
	while ((bio = STAILQ_FIRST(&bios)) != NULL) {
		STAILQ_REMOVE_HEAD(&bios, link);
		bio_endio(bio, bio->mail_error, cpu, now);
	}
}

bool
cpu_run_softirq(struct cpu *cpu, uint64_t now)
{
	struct request *rq;
	bool ran = !TAILQ_EMPTY(&cpu->softirq);

	while ((rq = TAILQ_FIRST(&cpu->softirq)) != NULL) {
		TAILQ_REMOVE(&cpu->softirq, rq, link);
		rq_complete(rq, cpu, now);
	}
	return ran;
}

/* Is it to end now, whatever its deadline?  Then it has its error. */
static bool
expires(struct request *rq)
{
	int error = atomic_load_explicit(
	    &rq->ctx->queue->expires, memory_order_relaxed);

	if (error != 0)
		rq->error = error;
	return error != 0;
}

/* Start the timers of what was issued: its data has moved by now. */
static void
arm(struct cpu *cpu, uint64_t now)
{
	struct request *rq;
	uint64_t due;

	while ((rq = TAILQ_FIRST(&cpu->unarmed)) != NULL) {
		TAILQ_REMOVE(&cpu->unarmed, rq, link);
		due = now + rq->delay_ns;
		if (due < now)
			due = CPU_NO_DEADLINE - 1; /* in 584 years */
		if (expires(rq) || rq->delay_ns == 0 ||
		    heap_push(&cpu->deadlines, &rq->due, due) != 0)
			rq_complete(rq, cpu, now); /* early beats never */
	}
}

/* Take out the request whose deadline is the first. */
static struct request *
first_due(struct cpu *cpu)
{
	struct heap_node *n = heap_first(&cpu->deadlines);

	heap_remove(&cpu->deadlines, n);
	return container_of(n, struct request, due);
}

static void
run_deadlines(struct cpu *cpu, uint64_t now)
{
	while (!heap_empty(&cpu->deadlines) &&
	       heap_first_key(&cpu->deadlines) <= now)
		rq_complete(first_due(cpu), cpu, now);
}

void
cpu_expire(struct cpu *cpu, int error, uint64_t now)
{
	struct request *rq;

	do {
		while (!heap_empty(&cpu->deadlines)) {
			rq = first_due(cpu);
			rq->error = error;
			rq_complete(rq, cpu, now);
		}
		arm(cpu, now); /* drivers may have had more (queue_ops.ended) */
	} while (!heap_empty(&cpu->deadlines));
}

/* Of queues that are leaving. */
static void
forget_reruns(struct cpu *cpu, struct rerun_list *list)
{
	struct hctx_rerun *r, *next;

	for (r = STAILQ_FIRST(list); r != NULL; r = next) {
		next = STAILQ_NEXT(r, link);
		if (atomic_load(&r->hctx->queue->leaving))
			cpu_rerun_cancel(cpu, r->hctx);
	}
}

/* Those that wait for their deadline, of queues in which none is to. */
static void
expire_deadlines(struct cpu *cpu, uint64_t now)
{
	struct request_list list = TAILQ_HEAD_INITIALIZER(list);
	const struct heap *h = &cpu->deadlines;
	struct request *rq;

	for (size_t i = 0; i < h->nr; i++) {
		rq = container_of(h->entry[i].node, struct request, due);
		if (expires(rq))
			TAILQ_INSERT_TAIL(&list, rq, link);
	}
	while ((rq = TAILQ_FIRST(&list)) != NULL) {
		TAILQ_REMOVE(&list, rq, link);
		heap_remove(&cpu->deadlines, &rq->due);
		rq_complete(rq, cpu, now);
	}
}

/* machine_call() */
static void
hear(struct cpu *cpu, unsigned calls, uint64_t now)
{
	forget_reruns(cpu, &cpu->rerun);
	forget_reruns(cpu, &cpu->later);
	expire_deadlines(cpu, now);
	atomic_store(&cpu->heard, calls);
}

bool
cpu_run_hctxs(struct cpu *cpu, uint64_t now)
{
	struct rerun_list list = STAILQ_HEAD_INITIALIZER(list);
	struct hctx_rerun *r;
	bool ran = false;

	STAILQ_CONCAT(&list, &cpu->rerun);
	while ((r = STAILQ_FIRST(&list)) != NULL) {
		STAILQ_REMOVE_HEAD(&list, link);
		r->queued = false;
		hctx_run(r->hctx, cpu, now);
		ran = true;
	}
	return ran;
}

uint64_t
cpu_run(struct cpu *cpu, uint64_t now)
{
	unsigned calls = atomic_load(&cpu->machine->calls);
	uint64_t next;

	if (atomic_load_explicit(&cpu->heard, memory_order_relaxed) != calls)
		hear(cpu, calls, now);
	take_later(cpu, now);
	do {
		take_mail(cpu, now);
		cpu_run_softirq(cpu, now);
		arm(cpu, now);
		run_deadlines(cpu, now);
	} while (cpu_run_hctxs(cpu, now) || !TAILQ_EMPTY(&cpu->softirq) ||
		 !TAILQ_EMPTY(&cpu->unarmed));
	next = first_later(cpu);
	if (!heap_empty(&cpu->deadlines) &&
	    heap_first_key(&cpu->deadlines) < next)
		next = heap_first_key(&cpu->deadlines);
	return next;
}

bool
cpu_tag_freed(struct cpu *cpu)
{
	bool freed = cpu->tag_freed;

	cpu->tag_freed = false;
	return freed;
}
