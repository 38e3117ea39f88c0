/* SPDX-License-Identifier: MIT */
/* Real threads and a real clock: nothing here depends on how fast they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "service.h"

#define NR_THREADS 8
#define ROUNDS     200
#define MIB        (1u << 20)

static struct config config;
static struct service *service;
static struct task *task;
static atomic_bool gone;

static bool
is_gone(void)
{
	return atomic_load(&gone);
}

/* A service with the devices of these specs, NULL last; task is the first. */
static void
start(const char *spec, ...)
{
	struct service_conf conf = { .is_gone = is_gone, .spin_ns = 50000 };
	char err[CTL_MAX_ERROR] = "";
	struct device *d;
	struct task *t;
	va_list ap;

	atomic_store(&gone, false);
	assert_int_equal(config_init(&config), 0);
	va_start(ap, spec);
	for (; spec != NULL; spec = va_arg(ap, const char *))
		if (config_spec(&config, spec, err, sizeof(err)) != 0)
			fail_msg("%s", err);
	va_end(ap);
	assert_int_equal(config_finish(&config), 0);
	service = service_new(&conf);
	assert_non_null(service);
	task = NULL;
	STAILQ_FOREACH(d, &config.devices, link) {
		t = service_add(service, d, err, sizeof(err));
		if (t == NULL)
			fail_msg("%s", err);
		if (task == NULL)
			task = t;
	}
	assert_int_equal(service_start(service), 0);
}

static void
stop(void)
{
	service_stop(service);
	service_free(service);
	config_fini(&config);
}

static void
counters(struct queue_stat *st)
{
	stat_read(task_disk(task)->queue, st, service_now());
}

static void
reads_what_was_written(void **state)
{
	char *data = malloc(3 * MIB), *got = malloc(3 * MIB);

	(void)state;
	start("a:size=16M,memory_backed=1", NULL);
	for (size_t i = 0; i < 3 * MIB; i++)
		data[i] = (char)(i * 7 + i / 4096);
	/* of several bios, in the middle of a page */
	assert_int_equal(
	    service_io(task, REQ_OP_WRITE, 0, 12345, 3 * MIB, data), 0);
	assert_int_equal(
	    service_io(task, REQ_OP_READ, 0, 12345, 3 * MIB, got), 0);
	assert_memory_equal(data, got, 3 * MIB);
	assert_int_equal(service_io(task, REQ_OP_READ, 0, 12346, 1, got), 0);
	assert_int_equal(got[0], data[1]);
	assert_int_equal(service_io(task, REQ_OP_FLUSH, 0, 0, 0, NULL), 0);
	stop();
	free(data);
	free(got);
}

static void *
write_and_read(void *arg)
{
	unsigned char data[4096], got[4096];
	uint64_t at = (uintptr_t)arg * sizeof(data);

	for (unsigned i = 0; i < ROUNDS; i++) {
		memset(data, (int)(at / sizeof(data) + i), sizeof(data));
		if (service_io(task, REQ_OP_WRITE, 0, at, sizeof(data), data) !=
			0 ||
		    service_io(task, REQ_OP_READ, 0, at, sizeof(got), got) !=
			0 ||
		    memcmp(data, got, sizeof(data)) != 0)
			return (void *)"differs";
	}
	return NULL;
}

static void
many_threads(void *(*fn)(void *))
{
	pthread_t thread[NR_THREADS];
	void *result;

	for (uintptr_t i = 0; i < NR_THREADS; i++)
		assert_int_equal(
		    pthread_create(&thread[i], NULL, fn, (void *)i), 0);
	for (unsigned i = 0; i < NR_THREADS; i++) {
		pthread_join(thread[i], &result);
		assert_null(result);
	}
}

static void
serves_many_threads(void **state)
{
	static const char *const specs[] = {
		"a:size=16M,memory_backed=1",
		"a:size=16M,memory_backed=1,irqmode=2,completion_nsec=10000",
		"a:size=16M,memory_backed=1,irqmode=1,hw_queue_depth=1",
		"a:size=16M,memory_backed=1,scheduler=mq-deadline,kernel=4.14",
		"a:size=16M,memory_backed=1,plug_nsec=100000,plug=call",
	};
	struct queue_stat st;

	(void)state;
	for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
		start(specs[i], NULL);
		many_threads(write_and_read);
		counters(&st);
		assert_int_equal(st.sectors[STAT_READ],
		    NR_THREADS * ROUNDS * 4096 / SECTOR_SIZE);
		assert_int_equal(st.sectors[STAT_WRITE],
		    NR_THREADS * ROUNDS * 4096 / SECTOR_SIZE);
		assert_int_equal(st.in_flight, 0);
		stop();
	}
}

static void *
write_one(void *arg)
{
	static char data[4096];

	return service_io(task, REQ_OP_WRITE, 0, (uintptr_t)arg * sizeof(data),
		   sizeof(data), data) != 0
		   ? (void *)"failed"
		   : NULL;
}

static void
merges_what_different_threads_ask_for(void **state)
{
	struct queue_stat st;

	(void)state;
	/* time for all to come; this age merges them in whatever order */
	start("a:size=16M,memory_backed=1,plug_nsec=400ms,kernel=4.14", NULL);
	many_threads(write_one);
	counters(&st);
	assert_int_equal(
	    st.ios[STAT_WRITE] + st.merges[STAT_WRITE], NR_THREADS);
	assert_true(st.merges[STAT_WRITE] >= NR_THREADS / 2);
	stop();
}

static void
tells_data_from_holes(void **state)
{
	struct service_extent e[4];
	char data[4096] = "x";

	(void)state;
	start("a:size=1M,memory_backed=1", NULL);
	assert_int_equal(
	    service_io(task, REQ_OP_WRITE, 0, 8192, 4096, data), 0);
	assert_int_equal(service_extents(task, 0, MIB, e, 4), 3);
	assert_int_equal(e[0].bytes, 8192);
	assert_int_equal(e[0].kind, DISK_HOLE | DISK_ZERO);
	assert_int_equal(e[1].bytes, 4096);
	assert_int_equal(e[1].kind, 0);
	assert_int_equal(e[2].bytes, MIB - 12288);
	/* as many as there is room for */
	assert_int_equal(service_extents(task, 0, MIB, e, 1), 1);
	assert_int_equal(e[0].bytes, 8192);
	stop();
}

static void
hands_on_errors(void **state)
{
	char data[4096] = "";

	(void)state;
	start("a:size=1M,memory_backed=1,badblocks=+8-15,memory_limit=8192",
	    "b:size=1M", NULL);
	assert_int_equal(
	    service_io(task, REQ_OP_READ, 0, 4096, 4096, data), -EIO);
	for (unsigned i = 0; i < 3; i++)
		(void)service_io(
		    task, REQ_OP_WRITE, 0, 16384 + i * 4096, 4096, data);
	assert_int_equal(
	    service_io(task, REQ_OP_WRITE, 0, 65536, 4096, data), -ENOSPC);
	stop();
}

static void *
leave(void *arg)
{
	usleep(20000);
	atomic_store(&gone, true);
	return arg;
}

/* It would take an hour, or for ever. */
static void
keeps_nobody_who_has_gone(void **state)
{
	static const char *const specs[] = {
		"a:size=1M,irqmode=2,completion_nsec=3600s",
		"a:size=1M,faults=\"op=WRITE,action=hang\"",
		"a:size=1M,plug_nsec=3600s",
		"a:size=1M,timeout=\"1,100,0,-1\",timeout_nsec=0",
	};
	pthread_t thread;
	char data[4096] = "";
	int err;

	(void)state;
	for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
		start(specs[i], NULL);
		assert_int_equal(pthread_create(&thread, NULL, leave, NULL), 0);
		err = service_io(task, REQ_OP_WRITE, 0, 0, 4096, data);
		/* what has only waited in a plug is done */
		assert_true(err == 0 || err == -ESHUTDOWN);
		pthread_join(thread, NULL);
		stop();
	}
}

static void
holds_back_no_data_of_those_who_have_gone(void **state)
{
	pthread_t thread;
	char *data = calloc(1, 8 * MIB);

	(void)state;
	start("a:size=64M,memory_backed=1,mbps=1", NULL);
	assert_int_equal(pthread_create(&thread, NULL, leave, NULL), 0);
	/* 8 s */
	(void)service_io(task, REQ_OP_WRITE, 0, 0, 8 * MIB, data);
	pthread_join(thread, NULL);
	/* and then there is a limit again */
	atomic_store(&gone, false);
	assert_int_equal(service_io(task, REQ_OP_WRITE, 0, 0, 4096, data), 0);
	assert_int_equal(atomic_load(&task_disk(task)->throttle.mbps), 1);
	stop();
	free(data);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_what_was_written),
		cmocka_unit_test(serves_many_threads),
		cmocka_unit_test(merges_what_different_threads_ask_for),
		cmocka_unit_test(tells_data_from_holes),
		cmocka_unit_test(hands_on_errors),
		cmocka_unit_test(keeps_nobody_who_has_gone),
		cmocka_unit_test(holds_back_no_data_of_those_who_have_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
