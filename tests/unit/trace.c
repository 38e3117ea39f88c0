/* SPDX-License-Identifier: MIT */
#include "pipe/harness.h"

#include <pthread.h>
#include <sched.h>

#define NR_CPUS 2u

static struct harness h;
static struct ctx *ctx;
static struct trace_event out[64];

static void
open_queue(void)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	static const struct queue_ops ops; /* nothing is issued */

	memset(&h, 0, sizeof(h));
	h.machine = machine_new(NR_CPUS, NULL, NULL);
	h.cpu = &h.machine->cpu[0];
	assert_int_equal(queue_new(&h.queue, h.machine, &ops, &h, &conf), 0);
	ctx = queue_ctx(h.queue, 0);
}

static void
close_queue(void)
{
	queue_free(h.queue);
	machine_free(h.machine);
}

static struct bio
bio_at(sector_t sector)
{
	struct bio bio;

	bio_init(&bio, REQ_OP_WRITE, sector * SECTOR_SIZE, NULL, 0);
	bio.bytes = 4096;
	bio.task = 7;
	bio.flags = REQ_SYNC;
	return bio;
}

/* An event whose sector is `sector`, at `now`. */
static void
event(struct ctx *at, sector_t sector, uint64_t now)
{
	struct bio bio = bio_at(sector);

	trace_bio(at, TRACE_QUEUE, &bio, now);
}

static size_t
take(unsigned cpu)
{
	return trace_take(h.queue, cpu, out, ARRAY_SIZE(out));
}

static void
tells_nothing_while_nobody_traces(void **state)
{
	(void)state;
	open_queue();
	assert_false(trace_is_on(ctx));
	event(ctx, 1, 1);
	assert_int_equal(take(0), 0);
	assert_int_equal(trace_dropped(h.queue), 0);
	assert_int_equal(trace_start(h.queue, 8), 0);
	assert_true(trace_is_on(ctx));
	assert_int_equal(take(0), 0);
	close_queue();
}

static void
tells_what_a_bio_is(void **state)
{
	struct bio bio = bio_at(100), rest = bio_at(108);

	(void)state;
	open_queue();
	trace_start(h.queue, 8);
	trace_bio(ctx, TRACE_BACKMERGE, &bio, 1000);
	trace_split(ctx, &bio, &rest, 1001);
	assert_int_equal(take(0), 2);
	assert_int_equal(out[0].ns, 1000);
	assert_int_equal(out[0].sector, 100);
	assert_int_equal(out[0].extra, 0);
	assert_int_equal(out[0].bytes, 4096);
	assert_int_equal(out[0].task, 7);
	assert_int_equal(out[0].cpu, 0);
	assert_int_equal(out[0].flags, REQ_SYNC);
	assert_int_equal(out[0].action, TRACE_BACKMERGE);
	assert_int_equal(out[0].op, REQ_OP_WRITE);
	assert_false(out[0].request);
	assert_int_equal(out[0].error, 0);
	assert_int_equal(out[1].action, TRACE_SPLIT);
	assert_int_equal(out[1].sector, 100);
	assert_int_equal(out[1].bytes, 4096);
	assert_int_equal(out[1].extra, 108);
	close_queue();
}

static void
tells_what_a_request_is(void **state)
{
	struct bio bio = bio_at(100);
	struct request rq = {
		.op = REQ_OP_WRITE,
		.flags = REQ_FUA,
		.pos = 96 * SECTOR_SIZE,
		.bytes = 8192,
		.error = -EIO,
		.bios = STAILQ_HEAD_INITIALIZER(rq.bios),
	};

	(void)state;
	open_queue();
	trace_start(h.queue, 8);
	trace_rq(ctx, TRACE_ISSUE, &rq, 1); /* a flush of flush.c: no bio */
	STAILQ_INSERT_TAIL(&rq.bios, &bio, link);
	trace_rq(ctx, TRACE_ISSUE, &rq, 2);
	trace_rq(ctx, TRACE_COMPLETE, &rq, 3);
	trace_plug(ctx, TRACE_PLUG, &rq, 0, 4);
	trace_plug(ctx, TRACE_UNPLUG, &rq, 5, 5);
	assert_int_equal(take(0), 5);
	assert_int_equal(out[0].task, 0);
	assert_int_equal(out[1].task, 7);
	assert_int_equal(out[1].sector, 96);
	assert_int_equal(out[1].bytes, 8192);
	assert_int_equal(out[1].flags, REQ_FUA);
	assert_int_equal(out[1].error, 0);
	assert_true(out[1].request);
	assert_int_equal(out[2].error, -EIO);
	/* P and U have neither place nor size */
	assert_int_equal(out[3].sector, 0);
	assert_int_equal(out[3].bytes, 0);
	assert_int_equal(out[3].task, 7);
	assert_false(out[3].request);
	assert_int_equal(out[4].extra, 5);
	assert_int_equal(out[4].action, TRACE_UNPLUG);
	close_queue();
}

static void
clips_a_size_that_has_no_room(void **state)
{
	struct bio bio = bio_at(0);

	(void)state;
	open_queue();
	trace_start(h.queue, 8);
	bio.bytes = UINT64_C(1) << 33;
	trace_bio(ctx, TRACE_QUEUE, &bio, 1);
	assert_int_equal(take(0), 1);
	assert_int_equal(out[0].bytes, UINT32_MAX);
	close_queue();
}

static void
drops_and_counts_what_finds_no_room(void **state)
{
	unsigned i;

	(void)state;
	open_queue();
	trace_start(h.queue, 5); /* rounded up: 8 */
	for (i = 0; i < 11; i++)
		event(ctx, i, i);
	assert_int_equal(trace_dropped(h.queue), 3);
	assert_int_equal(trace_take(h.queue, 0, out, 2), 2);
	assert_int_equal(out[0].sector, 0);
	assert_int_equal(out[1].sector, 1);
	for (i = 20; i < 23; i++)
		event(ctx, i, i);
	assert_int_equal(trace_dropped(h.queue), 4);
	assert_int_equal(take(0), 8);
	for (i = 0; i < 6; i++)
		assert_int_equal(out[i].sector, i + 2);
	assert_int_equal(out[6].sector, 20);
	assert_int_equal(out[7].sector, 21);
	close_queue();
}

static void
goes_around_in_order(void **state)
{
	unsigned i, next = 0, nr, want = 0;

	(void)state;
	open_queue();
	trace_start(h.queue, 8);
	while (want < 1000) {
		for (i = 0; i < 1 + want % 8; i++, next++)
			event(ctx, next, next);
		nr = (unsigned)take(0);
		assert_int_equal(nr, i);
		for (i = 0; i < nr; i++)
			assert_int_equal(out[i].sector, want++);
	}
	assert_int_equal(trace_dropped(h.queue), 0);
	close_queue();
}

static void
keeps_the_cpus_apart(void **state)
{
	(void)state;
	open_queue();
	trace_start(h.queue, 8);
	event(queue_ctx(h.queue, 1), 11, 5);
	event(queue_ctx(h.queue, 0), 10, 3);
	assert_int_equal(take(0), 1);
	assert_int_equal(out[0].sector, 10);
	assert_int_equal(out[0].cpu, 0);
	assert_int_equal(take(1), 1);
	assert_int_equal(out[0].sector, 11);
	assert_int_equal(out[0].cpu, 1);
	close_queue();
}

static void
lets_each_event_of_a_cpu_be_later_than_the_last(void **state)
{
	(void)state;
	open_queue();
	trace_start(h.queue, 8);
	event(ctx, 1, 1000);
	event(ctx, 2, 900);
	event(ctx, 3, 1001);
	event(ctx, 5, 2000);
	event(queue_ctx(h.queue, 1), 4, 500); /* has its own */
	assert_int_equal(take(0), 4);
	assert_int_equal(out[0].ns, 1000);
	assert_int_equal(out[1].ns, 1001);
	assert_int_equal(out[2].ns, 1002);
	assert_int_equal(out[3].ns, 2000);
	assert_int_equal(take(1), 1);
	assert_int_equal(out[0].ns, 500);
	close_queue();
}

static void
is_one_at_a_time(void **state)
{
	(void)state;
	open_queue();
	assert_int_equal(trace_start(h.queue, 8), 0);
	event(ctx, 1, 1);
	assert_int_equal(trace_start(h.queue, 8), -EBUSY);
	assert_int_equal(take(0), 1); /* nothing was lost by that */
	trace_stop(h.queue);
	assert_int_equal(trace_start(h.queue, 8), 0);
	close_queue();
}

static void
leaves_what_was_not_taken_until_the_next_start(void **state)
{
	unsigned i;

	(void)state;
	open_queue();
	trace_start(h.queue, 4);
	for (i = 0; i < 6; i++)
		event(ctx, i, i);
	trace_stop(h.queue);
	event(ctx, 100, 100);
	assert_false(trace_is_on(ctx));
	assert_int_equal(trace_take(h.queue, 0, out, 1), 1);
	assert_int_equal(trace_dropped(h.queue), 2);

	assert_int_equal(trace_start(h.queue, 4), 0);
	assert_int_equal(trace_dropped(h.queue), 0);
	assert_int_equal(take(0), 0);
	for (i = 0; i < 5; i++)
		event(ctx, 50 + i, i);
	assert_int_equal(trace_dropped(h.queue), 1);
	assert_int_equal(take(0), 4);
	assert_int_equal(out[0].sector, 50);
	close_queue();
}

static void
has_the_room_that_each_start_asks_for(void **state)
{
	static const unsigned sizes[] = { 4, 32, 2, 64, 16 };
	unsigned i, j;

	(void)state;
	open_queue();
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		assert_int_equal(trace_start(h.queue, sizes[i]), 0);
		for (j = 0; j < 100; j++)
			event(ctx, j, j);
		assert_int_equal(trace_dropped(h.queue), 100 - sizes[i]);
		assert_int_equal(take(0), sizes[i]);
		assert_int_equal(out[0].sector, 0);
		trace_stop(h.queue);
	}
	close_queue();
}

/* ---- a cpu's thread writes while another takes, stops and starts */

#define NR_EVENTS 200000u
#define NR_TRACES 200u

struct writer {
	_Atomic bool over;
	_Atomic uint64_t nr;
};

static void *
write_events(void *arg)
{
	struct writer *w = arg;
	uint64_t nr;

	for (nr = 1; !w->over; nr++) {
		event(ctx, nr, nr);
		w->nr = nr;
	}
	return NULL;
}

/* Take until `until` was written; each number is larger than the last. */
static uint64_t
take_all(struct writer *w, uint64_t until, uint64_t *last)
{
	uint64_t taken = 0;
	size_t i, nr;

	do {
		nr = take(0);
		for (i = 0; i < nr; i++) {
			assert_true(out[i].sector > *last);
			*last = out[i].sector;
		}
		taken += nr;
		if (nr == 0)
			sched_yield();
	} while (nr > 0 || w->nr < until);
	return taken;
}

static void
loses_nothing_between_two_threads(void **state)
{
	struct writer w = {};
	uint64_t last = 0, taken;
	pthread_t thread;

	(void)state;
	open_queue();
	trace_start(h.queue, 1024);
	pthread_create(&thread, NULL, write_events, &w);
	taken = take_all(&w, NR_EVENTS, &last);
	w.over = true;
	pthread_join(thread, NULL);
	taken += take_all(&w, 0, &last);
	assert_int_equal(taken + trace_dropped(h.queue), w.nr);
	close_queue();
}

static void
may_stop_and_start_while_a_cpu_writes(void **state)
{
	struct writer w = {};
	uint64_t last = 0;
	pthread_t thread;
	unsigned i;

	(void)state;
	open_queue();
	pthread_create(&thread, NULL, write_events, &w);
	for (i = 0; i < NR_TRACES; i++) {
		assert_int_equal(trace_start(h.queue, 2u << i % 8), 0);
		take_all(&w, w.nr + 20, &last);
		trace_stop(h.queue);
		/* one more may be on its way, so take once only */
		take(0);
	}
	w.over = true;
	pthread_join(thread, NULL);
	close_queue();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_nothing_while_nobody_traces),
		cmocka_unit_test(tells_what_a_bio_is),
		cmocka_unit_test(tells_what_a_request_is),
		cmocka_unit_test(clips_a_size_that_has_no_room),
		cmocka_unit_test(drops_and_counts_what_finds_no_room),
		cmocka_unit_test(goes_around_in_order),
		cmocka_unit_test(keeps_the_cpus_apart),
		cmocka_unit_test(
		    lets_each_event_of_a_cpu_be_later_than_the_last),
		cmocka_unit_test(is_one_at_a_time),
		cmocka_unit_test(
		    leaves_what_was_not_taken_until_the_next_start),
		cmocka_unit_test(has_the_room_that_each_start_asks_for),
		cmocka_unit_test(loses_nothing_between_two_threads),
		cmocka_unit_test(may_stop_and_start_while_a_cpu_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
