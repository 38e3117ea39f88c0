/* SPDX-License-Identifier: MIT */
/* latency.*, in simulated time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dist.h"
#include "unit/host.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

static char memory[1 << 20];
static struct machine *machine;
static struct page_pool *pool;
static struct disk *disk;
static uint64_t now;

struct io {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	bool ended;
	uint64_t ended_ns;
};

/* Models have blanks in them: "a=1;latency.read=constant 80us". */
static void
open_disk(const char *settings)
{
	char *copy = strdup(settings), *rest = copy, *name, *value, err[512];

	machine = host_new(2);
	pool = page_pool_new(machine, 0);
	epoch_enter(&machine->epoch, 0);
	epoch_enter(&machine->epoch, 1);
	disk = disk_new("nullb0", machine, pool);
	while ((value = strsep(&rest, ";")) != NULL && *value != '\0') {
		name = strsep(&value, "=");
		if (attr_set(disk_attrs, &disk->set, name, value, false, err,
			sizeof(err)) != 0)
			fail_msg("%s", err);
	}
	free(copy);
	if (disk_power_on(disk, 1000000, err, sizeof(err)) != 0)
		fail_msg("%s", err);
	now = 10 * MS;
}

static void
close_disk(void)
{
	disk_free(disk);
	epoch_leave(&machine->epoch, 0);
	epoch_leave(&machine->epoch, 1);
	page_pool_free(pool);
	machine_free(machine);
}

static void
set_live(const char *name, const char *value)
{
	char err[512];

	if (disk_set(disk, name, value, now, err, sizeof(err)) != 0)
		fail_msg("%s", err);
}

static void
io_ended(struct bio *bio, struct cpu *cpu, uint64_t when)
{
	struct io *io = bio->priv;

	(void)cpu;
	io->ended = true;
	io->ended_ns = when;
}

static struct io *
submit(unsigned cpu, enum req_op op, uint64_t pos, uint64_t len)
{
	struct io *io = calloc(1, sizeof(*io));

	bio_init(&io->bio, op, pos, io->bv, BIO_MAX_VECS);
	io->bio.end_io = io_ended;
	io->bio.priv = io;
	if (op == REQ_OP_READ || op == REQ_OP_WRITE)
		assert_int_equal(bio_add_payload(&io->bio, true,
				     UINT64_C(1) << 40, 9, 0, memory, len),
		    len);
	else
		io->bio.bytes = len;
	if (op == REQ_OP_FLUSH)
		io->bio.flags = REQ_PREFLUSH;
	assert_int_equal(
	    queue_submit(disk->queue, &machine->cpu[cpu], NULL, &io->bio, now),
	    0);
	return io;
}

/* When it ended, after now; the time is then that. */
static uint64_t
finish(struct io *io)
{
	uint64_t start = now, ns;

	while (!io->ended) {
		uint64_t a = cpu_run(&machine->cpu[0], now);
		uint64_t b = cpu_run(&machine->cpu[1], now);

		if (io->ended)
			break;
		if (b < a)
			a = b;
		assert_int_not_equal(a, CPU_NO_DEADLINE);
		now = a;
	}
	ns = io->ended_ns - start;
	assert_int_equal(io->bio.error, 0);
	bio_release(&io->bio, io->bio.cpu);
	free(io);
	return ns;
}

static uint64_t
time_of(enum req_op op, uint64_t len)
{
	return finish(submit(0, op, 0, len));
}

static void
each_operation_takes_what_its_model_says(void **state)
{
	(void)state;
	open_disk("memory_backed=1;discard=1;cache_size=1;size=8;irqmode=0;"
		  "latency.read=constant 80us;latency.write=20us;"
		  "latency.discard=constant 1ms;latency.flush=constant 5ms");
	assert_int_equal(time_of(REQ_OP_READ, 4096), 80 * US);
	assert_int_equal(time_of(REQ_OP_WRITE, 4096), 20 * US);
	assert_int_equal(time_of(REQ_OP_DISCARD, 4096), MS);
	assert_int_equal(time_of(REQ_OP_WRITE, 4096), 20 * US);
	assert_int_equal(time_of(REQ_OP_FLUSH, 0), 5 * MS);
	close_disk();
}

static void
without_a_model_irqmode_decides(void **state)
{
	(void)state;
	open_disk("irqmode=2;completion_nsec=7us;latency.read=constant 80us");
	assert_int_equal(time_of(REQ_OP_READ, 4096), 80 * US);
	assert_int_equal(time_of(REQ_OP_WRITE, 4096), 7 * US);
	close_disk();
	open_disk("irqmode=0;latency.write=constant 80us");
	assert_int_equal(time_of(REQ_OP_READ, 4096), 0);
	assert_int_equal(time_of(REQ_OP_WRITE, 4096), 80 * US);
	close_disk();
}

static void
bytes_take_time_of_their_own(void **state)
{
	(void)state;
	open_disk("max_sectors=256;latency.read=constant 80us + 2us/4k");
	assert_int_equal(time_of(REQ_OP_READ, 4096), 82 * US);
	assert_int_equal(time_of(REQ_OP_READ, 65536), 112 * US);
	assert_int_equal(time_of(REQ_OP_READ, 512), 80250);
	close_disk();
}

static void
a_change_is_in_force_for_the_next_request(void **state)
{
	struct io *io;

	(void)state;
	open_disk("irqmode=0");
	assert_int_equal(time_of(REQ_OP_READ, 4096), 0);
	set_live("latency.read", "constant 80us");
	io = submit(0, REQ_OP_READ, 0, 4096);
	cpu_run(&machine->cpu[0], now);
	for (unsigned i = 0; i < 100; i++) { /* predecessors go */
		set_live("latency.read", "constant 3us");
		epoch_enter(&machine->epoch, 0);
		epoch_enter(&machine->epoch, 1);
	}
	assert_int_equal(finish(io), 80 * US);
	assert_int_equal(time_of(REQ_OP_READ, 4096), 3 * US);
	set_live("latency.read", "");
	assert_int_equal(time_of(REQ_OP_READ, 4096), 0);
	close_disk();
}

/* Times of some reads and writes in turn, on both cpus. */
static void
draw_some(const char *settings, uint64_t *out, unsigned nr)
{
	open_disk(settings);
	for (unsigned i = 0; i < nr; i++)
		out[i] = finish(submit(i / 2 % 2,
		    i % 2 == 0 ? REQ_OP_READ : REQ_OP_WRITE, 0, 4096));
	close_disk();
}

static void
the_same_seed_gives_the_same_times(void **state)
{
	static const char *const models =
	    "latency.read=lognormal p50=80us p99=400us;"
	    "latency.write=exponential mean=30us;latency.spike=1% 5ms";
	uint64_t a[400], b[400];
	char settings[300];

	(void)state;
	snprintf(settings, sizeof(settings), "seed=42;%s", models);
	draw_some(settings, a, 400);
	draw_some(settings, b, 400);
	assert_memory_equal(a, b, sizeof(a));
	snprintf(settings, sizeof(settings), "seed=43;%s", models);
	draw_some(settings, b, 400);
	assert_memory_not_equal(a, b, sizeof(a));
	/* nor do two cpus, or two operations, draw the same */
	assert_int_not_equal(a[0], a[2]);
}

static void
power_off_and_on_draws_anew(void **state)
{
	uint64_t a[20], b[20];
	char err[200];

	(void)state;
	open_disk("seed=5;latency.read=exponential mean=1ms");
	for (unsigned i = 0; i < 20; i++)
		a[i] = time_of(REQ_OP_READ, 4096);
	disk_power_drop(disk);
	assert_int_equal(disk_power_on(disk, now, err, sizeof(err)), 0);
	for (unsigned i = 0; i < 20; i++)
		b[i] = time_of(REQ_OP_READ, 4096);
	assert_memory_equal(a, b, sizeof(a));
	close_disk();
}

static int
by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* As many as should, up to some quantiles; tests/unit/dist.c looks closer. */
static void
requests_complete_when_it_was_drawn(void **state)
{
	enum {
		NR = 20000
	};
	uint64_t *ns = malloc(NR * sizeof(*ns));
	static const double share[] = { 0.1, 0.5, 0.9, 0.99 };
	struct dist d;
	char err[200];

	(void)state;
	open_disk("seed=7;latency.read=lognormal p50=2ms p99=9ms");
	for (unsigned i = 0; i < NR; i++)
		ns[i] = time_of(REQ_OP_READ, 4096);
	qsort(ns, NR, sizeof(*ns), by_value);
	assert_int_equal(
	    dist_parse(&d, "d", "lognormal p50=2ms p99=9ms", err, sizeof(err)),
	    0);
	for (unsigned i = 0; i < 4; i++) {
		uint64_t want = dist_at(&d, share[i]);
		unsigned below = 0;

		while (below < NR && ns[below] <= want)
			below++;
		/* three deviations of a binomial, and more, for all shares */
		assert_in_range(below, (unsigned)(share[i] * NR) - 230,
		    (unsigned)(share[i] * NR) + 230);
	}
	free(ns);
	close_disk();
}

static void
a_stall_holds_up_those_that_come_during_it(void **state)
{
	struct io *first, *second;

	(void)state;
	open_disk("latency.read=constant 80us;latency.spike=100% 5ms");
	first = submit(0, REQ_OP_READ, 0, 4096);
	cpu_run(&machine->cpu[0], now);
	set_live("latency.spike", "0.000001% 5ms"); /* so nearly none */
	now += MS;
	second = submit(1, REQ_OP_READ, 1 << 20, 4096);
	cpu_run(&machine->cpu[1], now);
	now -= MS;
	assert_int_equal(finish(first), 5 * MS + 80 * US);
	now = 11 * MS;
	assert_int_equal(finish(second), 4 * MS + 80 * US);
	now = 20 * MS;
	assert_int_equal(time_of(REQ_OP_READ, 4096), 80 * US);
	close_disk();
}

static void
stalls_come_as_often_as_they_should(void **state)
{
	unsigned stalled = 0;

	(void)state;
	open_disk("seed=3;latency.read=constant 80us;latency.spike=2% 5ms");
	for (unsigned i = 0; i < 20000; i++)
		stalled += time_of(REQ_OP_READ, 4096) > MS;
	assert_in_range(stalled, 300, 500);
	close_disk();
}

/* A cpu that has requests until it is told to stop. */
struct drawer {
	unsigned cpu;
	atomic_bool stop;
	_Atomic uint64_t drawn;
	uint64_t odd_ns;
};

static void *
draw_on(void *arg)
{
	struct drawer *w = arg;
	struct request rq = { .op = REQ_OP_READ, .bytes = 4096 };
	uint64_t ns;

	while (!atomic_load(&w->stop)) {
		epoch_enter(&machine->epoch, w->cpu);
		if (!timing_after(disk, &rq, &machine->cpu[w->cpu], 1, &ns))
			continue;
		w->drawn++;
		if (ns != 80 * US && ns != 3 * US)
			w->odd_ns = ns;
	}
	return NULL;
}

static void
models_change_while_others_draw(void **state)
{
	static const char *const models[] = { "constant 80us", "",
		"table 1=3us 99=3us" };
	struct drawer w[2] = { { .cpu = 0 }, { .cpu = 1 } };
	pthread_t thread[2];

	(void)state;
	open_disk("latency.write=constant 1s");
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(
		    pthread_create(&thread[i], NULL, draw_on, &w[i]), 0);
	for (unsigned i = 0; i < 3000 || w[0].drawn < 1000 || w[1].drawn < 1000;
	     i++)
		set_live("latency.read", models[i % 3]);
	for (unsigned i = 0; i < 2; i++) {
		atomic_store(&w[i].stop, true);
		pthread_join(thread[i], NULL);
		assert_int_equal(w[i].odd_ns, 0);
	}
	close_disk();
}

static void
a_fault_s_delay_comes_on_top(void **state)
{
	(void)state;
	open_disk("latency.read=constant 80us;"
		  "faults=op=READ,delay=1ms");
	assert_int_equal(time_of(REQ_OP_READ, 4096), MS + 80 * US);
	close_disk();
}

static void
check_text(const char *name, const char *in, const char *want)
{
	struct disk_conf c, copy;
	char err[500], *text = NULL;
	size_t len;
	FILE *out;

	assert_int_equal(attr_init(disk_attrs, &c), 0);
	assert_int_equal(attr_init(disk_attrs, &copy), 0);
	if (attr_set(disk_attrs, &c, name, in, false, err, sizeof(err)) != 0)
		fail_msg("%s", err);
	out = open_memstream(&text, &len);
	attr_get(attr_find(disk_attrs, name), &c, out);
	fclose(out);
	assert_string_equal(text, want);
	free(text);
	assert_int_equal(
	    attr_copy_one(attr_find(disk_attrs, name), &copy, &c), 0);
	assert_true(attr_same(attr_find(disk_attrs, name), &c, &copy));
	attr_fini(disk_attrs, &c);
	attr_fini(disk_attrs, &copy);
}

static void
values_are_printed_as_they_are_written(void **state)
{
	(void)state;
	check_text("latency.read", "80us\n", "constant 80us");
	check_text("latency.flush", " \n", "");
	check_text("latency.write", "normal mean=1ms stddev=1000ns + 2us/4k",
	    "normal mean=1ms stddev=1us + 2us/4k");
	check_text("latency.spike", "0.010% lognormal p50=5ms p99=20ms",
	    "0.01% lognormal p50=5ms p99=20ms");
}

static void
refuses_what_makes_no_sense(void **state)
{
	static const struct {
		const char *name, *value, *says;
	} bad[] = {
		{ "latency.read", "fast", "latency.read: \"fast\": allowed: " },
		{ "latency.flush", "normal 3us", "mean=100us stddev=10us" },
		{ "latency.spike", "5ms", "0.01% 5ms" },
		{ "latency.spike", "101% 5ms", "latency.spike: \"101% 5ms\"" },
		{ "latency.spike", "1%", "latency.spike: \"\": allowed" },
	};
	struct disk_conf c;
	char err[500];

	(void)state;
	assert_int_equal(attr_init(disk_attrs, &c), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_not_equal(attr_set(disk_attrs, &c, bad[i].name,
					 bad[i].value, false, err, sizeof(err)),
		    0);
		if (strstr(err, bad[i].says) == NULL)
			fail_msg("%s", err);
	}
	attr_fini(disk_attrs, &c);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_operation_takes_what_its_model_says),
		cmocka_unit_test(without_a_model_irqmode_decides),
		cmocka_unit_test(bytes_take_time_of_their_own),
		cmocka_unit_test(a_change_is_in_force_for_the_next_request),
		cmocka_unit_test(the_same_seed_gives_the_same_times),
		cmocka_unit_test(power_off_and_on_draws_anew),
		cmocka_unit_test(requests_complete_when_it_was_drawn),
		cmocka_unit_test(a_stall_holds_up_those_that_come_during_it),
		cmocka_unit_test(stalls_come_as_often_as_they_should),
		cmocka_unit_test(models_change_while_others_draw),
		cmocka_unit_test(a_fault_s_delay_comes_on_top),
		cmocka_unit_test(values_are_printed_as_they_are_written),
		cmocka_unit_test(refuses_what_makes_no_sense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
