/* SPDX-License-Identifier: MIT */
/* The path of a bio: split, refused, ended at once; freezing. */
#include "unit/holding.h"
#include "unit/host.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static void
goes_on_in_the_middle_of_a_split_bio(void **state)
{
	struct bio *bio;
	struct queue_stat st;

	(void)state; /* 2.5: pieces in ascending order, none twice */
	open_holding(1, 1, "6.12");
	bio = write_bio(0, 2560 * 2 + 8);
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(rq_sector(held[0]), 0);
	let_go(h.cpu, h.now);
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(rq_sector(held[0]), 2560);
	let_go(h.cpu, h.now);
	assert_int_equal(h.nr_ended, 0);
	assert_int_equal(h_try_submit(&h, bio), 0);
	assert_int_equal(rq_sector(held[0]), 5120);
	assert_int_equal(held[0]->bytes, 8 * 512);
	let_go(h.cpu, h.now);
	assert_int_equal(h.nr_ended, 1);
	stat_read(h.queue, &st, h.now);
	assert_int_equal(st.ios[STAT_WRITE], 3);
	assert_int_equal(st.sectors[STAT_WRITE], 5128);
	assert_int_equal(st.splits[SPLIT_SIZE], 2);
	close_holding();
}

static void
ends_flushes_and_strips_fua_without_a_volatile_cache(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct bio *bio;

	(void)state; /* 3.7 */
	h_open(&h, &conf);
	h_submit(&h, h_bio(&h, REQ_OP_FLUSH, 0));
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h.nr_seen, 0);
	bio = h_bio(&h, REQ_OP_WRITE, 0);
	bio->flags = REQ_FUA;
	add_contig(&h, bio, 8);
	h_submit(&h, bio);
	assert_int_equal(h.nr_seen, 1);
	assert_int_equal(h.seen[0].flags & REQ_FUA, 0);
	h_close(&h);
}

static void
refuses_what_the_device_does_not_offer(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));

	(void)state; /* 2.1: max_discard_sectors 0 = no discard */
	h_open(&h, &conf);
	range(&h, REQ_OP_DISCARD, 0, 8);
	assert_int_equal(h.error, -EOPNOTSUPP);
	h.error = 0;
	range(&h, REQ_OP_WRITE_ZEROES, 0, 8);
	assert_int_equal(h.error, -EOPNOTSUPP);
	assert_int_equal(h.nr_seen, 0);
	h_close(&h);
}

static void
neither_splits_merges_nor_counts_on_the_bio_path(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.1"));
	struct queue_stat st;

	(void)state; /* null_blk's queue_mode=0 */
	conf.bio_based = true;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 4000);
	rw(&h, REQ_OP_WRITE, 4000, 8);
	assert_int_equal(h.nr_seen, 2);
	assert_int_equal(h.seen[0].nr_sectors, 4000);
	h_finish(&h);
	stat_read(h.queue, &st, h.now);
	assert_int_equal(st.ios[STAT_WRITE], 0);
	assert_int_equal(st.merges[STAT_WRITE], 0);
	h_close(&h);
}

static void
refuses_a_configuration_that_makes_no_sense(void **state)
{
	struct queue_conf good = h_conf(profile_find("6.12")), conf;
	struct machine *m = machine_new(1, NULL, NULL);
	struct queue *q = NULL;

	(void)state;
	conf = good;
	conf.depth = 0;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
	conf = good;
	conf.depth = BLK_MAX_DEPTH + 1;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
	conf = good;
	conf.nr_hw_queues = 0;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
	conf = good;
	conf.nr_requests = conf.depth + 1;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), -EINVAL);
	assert_null(q);
	queue_free(NULL);
	machine_free(m);
}

static bool freezes_early;

/* A piece has ended, the next one is to come. */
static void
look_at_the_freeze(struct hctx *hctx, struct cpu *cpu, uint64_t now)
{
	(void)cpu;
	(void)now;
	if (queue_freezing(hctx->queue) && h.nr_ended < h.nr_submitted)
		freezes_early |= queue_frozen(hctx->queue);
}

static void
is_not_frozen_in_the_middle_of_a_bio(void **state)
{
	static const struct queue_ops ops = {
		.queue_rq = h_queue_rq,
		.commit = look_at_the_freeze,
	};
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct bio *bio;

	(void)state;
	conf.depth = 1;
	conf.limits.max_sectors = 8;
	h_open(&h, &conf);
	queue_free(h.queue);
	assert_int_equal(queue_new(&h.queue, h.machine, &ops, &h, &conf), 0);
	h.hold = true;
	rw(&h, REQ_OP_WRITE, 1000, 8);
	bio = h_bio(&h, REQ_OP_WRITE, 0);
	add_contig(&h, bio, 24); /* three pieces */
	h.nr_submitted++;
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	queue_freeze(h.queue);
	assert_false(queue_frozen(h.queue));
	h.hold = false;
	rq_complete(h.held[0], h.cpu, h.now);
	h.nr_held = 0;
	assert_false(queue_frozen(h.queue));
	freezes_early = false;
	assert_int_equal(h_try_submit(&h, bio), 0); /* it is let through */
	assert_int_equal(h.nr_ended, 2);
	assert_false(freezes_early);
	assert_true(queue_frozen(h.queue));
	assert_true(queue_frozen(h.queue)); /* and stays so */
	queue_thaw(h.queue);
	h_close(&h);
}

#define NR_THREADS   2u
#define NR_IN_FLIGHT 16u
#define NR_SWITCHES  (THREADS_SANITIZED || !SANITIZED ? 300u : 100u)

/* A cpu that submits, and a driver that takes its time. */
struct submitter {
	pthread_t thread;
	struct cpu *cpu;
	struct bio bio[NR_IN_FLIGHT];
	bool busy[NR_IN_FLIGHT];
	uint64_t nr_ended;
	unsigned nr_strangers; /* that ended on another cpu */
};

static struct queue *shared;
static atomic_bool over;
static atomic_bool keeps_running; /* then, too, without submitting */
static atomic_uint nr_busy;       /* bios in flight, of all cpus */

static int
slow_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	(void)now;
	rq_moved(rq, cpu);
	rq_complete_after(rq, cpu, 5000);
	return 0;
}

static void
submitted_ends(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct submitter *s = bio->priv;

	(void)now;
	s->nr_strangers += cpu != s->cpu;
	bio_release(bio, cpu);
	s->busy[bio - s->bio] = false;
	atomic_fetch_sub(&nr_busy, 1);
	s->nr_ended++;
}

/* A few bios, which fit those of the other cpu now and then. */
static void
submit_some(struct submitter *s, struct plug *plug, uint64_t now)
{
	struct bio *bio;

	for (unsigned i = 0; i < NR_IN_FLIGHT; i++) {
		if (s->busy[i])
			continue;
		bio = &s->bio[i];
		bio_init(bio, REQ_OP_READ,
		    (now / 1000 * 7 + i * 2 + s->cpu->id) % 64 * PAGE_SIZE,
		    NULL, 0);
		bio_add(bio, true, (uint64_t)(i + 1) << 20, NULL, PAGE_SIZE);
		bio->end_io = submitted_ends;
		bio->priv = s;
		s->busy[i] = true;
		atomic_fetch_add(&nr_busy, 1);
		if (queue_submit(shared, s->cpu, plug, bio, now) != 0) {
			queue_drop(shared, s->cpu, bio, -EIO, now);
			break;
		}
	}
	plug_flush(plug, s->cpu, now);
}

/*
 * Until nobody waits: a bio that joined another cpu's request ends when that
 * cpu runs.
 */
static void *
submits(void *arg)
{
	struct submitter *s = arg;
	struct epoch *epoch = &s->cpu->machine->epoch;
	uint64_t now = 1000;
	struct plug plug;

	plug_init(&plug);
	while (!atomic_load(&over) || atomic_load(&nr_busy) > 0 ||
	       atomic_load(&keeps_running)) {
		epoch_enter(epoch, s->cpu->id);
		if (!atomic_load(&over))
			submit_some(s, &plug, now);
		now += 1000;
		cpu_run(s->cpu, now);
		epoch_leave(epoch, s->cpu->id);
	}
	return NULL;
}

static void
switch_while_cpus_submit(bool shared_tags)
{
	static const struct queue_ops ops = { .queue_rq = slow_queue_rq };
	static struct submitter submitter[NR_THREADS];
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct machine *m = machine_new(NR_THREADS, NULL, NULL);
	uint64_t nr_ended = 0;
	unsigned i;

	conf.depth = 8;
	conf.shared_tags = shared_tags;
	atomic_store(&over, false);
	assert_int_equal(queue_new(&shared, m, &ops, NULL, &conf), 0);
	for (i = 0; i < NR_THREADS; i++) {
		submitter[i] = (struct submitter){ .cpu = &m->cpu[i] };
		pthread_create(
		    &submitter[i].thread, NULL, submits, &submitter[i]);
	}
	for (i = 0; i < NR_SWITCHES; i++) {
		conf.elevator =
		    elevator_find(i % 2 == 0 ? "mq-deadline" : "none");
		conf.nr_requests = i % 2 == 0 ? 4 + i % 50 : 0;
		conf.nomerges = i % 3;
		conf.limits.max_sectors = 8 << i % 4;
		conf.nr_hw_queues = 1 + i / 3 % 3;
		queue_freeze(shared);
		while (!queue_frozen(shared))
			sched_yield();
		queue_leave(shared);
		while (!queue_left(shared))
			sched_yield();
		assert_int_equal(queue_resize(shared, conf.nr_hw_queues), 0);
		assert_int_equal(queue_update(shared, &conf), 0);
		queue_thaw(shared);
		assert_false(queue_leaving(shared));
		usleep(100);
	}
	atomic_store(&over, true);
	for (i = 0; i < NR_THREADS; i++) {
		pthread_join(submitter[i].thread, NULL);
		assert_int_equal(submitter[i].nr_strangers, 0);
		nr_ended += submitter[i].nr_ended;
	}
	assert_int_not_equal(nr_ended, 0);
	assert_int_equal(queue_tags_in_use(shared), 0);
	queue_free(shared);
	machine_free(m);
}

static void
switches_while_cpus_submit(void **state)
{
	(void)state;
	switch_while_cpus_submit(false);
}

static void
switches_while_cpus_submit_with_one_bitmap_of_tags(void **state)
{
	(void)state;
	switch_while_cpus_submit(true);
}

/* Threads of a machine that serve a queue, and go on when it is gone. */
static void
goes_while_cpus_run(void **state)
{
	static const struct queue_ops ops = { .queue_rq = slow_queue_rq };
	static struct submitter submitter[NR_THREADS];
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct machine *m = machine_new(NR_THREADS, NULL, NULL);
	unsigned i;

	(void)state;
	conf.depth = 2; /* so that hardware queues are run again later */
	conf.nr_hw_queues = 2;
	for (unsigned n = 0; n < 50; n++) {
		atomic_store(&over, false);
		assert_int_equal(queue_new(&shared, m, &ops, NULL, &conf), 0);
		for (i = 0; i < NR_THREADS; i++) {
			submitter[i] = (struct submitter){ .cpu = &m->cpu[i] };
			pthread_create(
			    &submitter[i].thread, NULL, submits, &submitter[i]);
		}
		usleep(500);
		atomic_store(&keeps_running, true);
		atomic_store(&over, true);
		queue_freeze(shared);
		while (!queue_frozen(shared))
			sched_yield();
		queue_leave(shared);
		while (!queue_left(shared))
			sched_yield();
		queue_free(shared);
		atomic_store(&keeps_running, false);
		for (i = 0; i < NR_THREADS; i++)
			pthread_join(submitter[i].thread, NULL);
	}
	machine_free(m);
}

static void
ends_what_waits_for_its_deadline(void **state)
{
	static const struct queue_ops ops = { .queue_rq = slow_queue_rq };
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct queue *other;

	(void)state;
	h_open(&h, &conf);
	assert_int_equal(queue_new(&other, h.machine, &ops, &h, &conf), 0);
	queue_free(h.queue);
	assert_int_equal(queue_new(&h.queue, h.machine, &ops, &h, &conf), 0);
	rw(&h, REQ_OP_WRITE, 0, 8);
	cpu_run(h.cpu, h.now);
	assert_int_equal(h.nr_ended, 0);
	queue_expire(other, -EIO); /* it is another's business */
	assert_int_equal(cpu_run(h.cpu, h.now), h.now + 5000);
	assert_int_equal(h.nr_ended, 0);
	queue_expire(h.queue, -ESHUTDOWN);
	cpu_run(h.cpu, h.now);
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h.error, -ESHUTDOWN);
	h.error = 0;
	rw(&h, REQ_OP_WRITE, 8, 8); /* what comes later does not wait either */
	cpu_run(h.cpu, h.now);
	assert_int_equal(h.nr_ended, 2);
	assert_int_equal(h.error, -ESHUTDOWN);
	queue_free(other);
	h_close(&h);
}

static void
has_as_many_tags_as_a_bitmap_of_all_hardware_queues(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct machine *m = machine_new(3, NULL, NULL);
	struct queue *q;

	(void)state;
	conf.depth = 4;
	conf.nr_hw_queues = 3;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), 0);
	assert_int_equal(queue_nr_bitmaps(q), 3);
	assert_ptr_not_equal(q->hctx[0]->tags, q->hctx[2]->tags);
	queue_free(q);
	conf.shared_tags = true;
	assert_int_equal(queue_new(&q, m, &h_ops, NULL, &conf), 0);
	assert_int_equal(queue_nr_bitmaps(q), 1);
	assert_ptr_equal(q->hctx[0]->tags, q->hctx[2]->tags);
	for (int i = 0; i < 4; i++)
		assert_int_equal(tags_get(q->hctx[i % 3]->tags), i);
	assert_int_equal(tags_get(q->hctx[1]->tags), -1);
	assert_int_equal(queue_tags_in_use(q), 4);
	for (int i = 0; i < 4; i++)
		tags_put(q->hctx[0]->tags, i);
	queue_free(q);
	machine_free(m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goes_on_in_the_middle_of_a_split_bio),
		cmocka_unit_test(
		    ends_flushes_and_strips_fua_without_a_volatile_cache),
		cmocka_unit_test(refuses_what_the_device_does_not_offer),
		cmocka_unit_test(
		    neither_splits_merges_nor_counts_on_the_bio_path),
		cmocka_unit_test(refuses_a_configuration_that_makes_no_sense),
		cmocka_unit_test(is_not_frozen_in_the_middle_of_a_bio),
		cmocka_unit_test(switches_while_cpus_submit),
		cmocka_unit_test(
		    switches_while_cpus_submit_with_one_bitmap_of_tags),
		cmocka_unit_test(goes_while_cpus_run),
		cmocka_unit_test(ends_what_waits_for_its_deadline),
		cmocka_unit_test(
		    has_as_many_tags_as_a_bitmap_of_all_hardware_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
