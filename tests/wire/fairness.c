/* SPDX-License-Identifier: MIT */
/*
 * No client, and nobody who asks for too much, keeps others from service:
 * each case is a way in which one once did.
 */
#include "../lib/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOG_DEPTH  512u
#define VICTIM_IOS 20

static void
long_zeroing_without_a_pause_ends(void **state)
{
	struct daemon *d =
	    daemon_start("nullb0:size=256M,memory_backed=1,irqmode=0", NULL);
	struct wire *w = wire_open(d, "", false);
	uint8_t byte = 1;

	(void)state;
	assert_int_equal(wire_write(w, &byte, 200 * MiB - 1, 1), 0);
	/* completed inside the submission, it went on only when woken */
	assert_int_equal(
	    wire_cmd(w, 0, CMD_WRITE_ZEROES, 0, (uint32_t)(200 * MiB)), 0);
	assert_int_equal(wire_read(w, &byte, 200 * MiB - 1, 1), 0);
	assert_int_equal(byte, 0);
	wire_close(w);
	daemon_stop(d);
}

static void
a_lone_request_may_end_within_its_submission(void **state)
{
	/* each has writes, or trims, that come alone and end at once */
	static const char *const devices[] = {
		"a:memory_backed=1,discard=1,queue_mode=0,irqmode=0,kernel=5.4",
		"a:memory_backed=1,discard=1,nomerges=2,irqmode=0,kernel=4.14",
		"a:memory_backed=1,discard=1,irqmode=0,plug=each",
		"a:memory_backed=1,discard=1,irqmode=0,scheduler=mq-deadline",
	};
	uint8_t data[4096], got[4096];

	(void)state;
	fill(data, sizeof(data), 7);
	for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++) {
		struct daemon *d = daemon_start(devices[i], NULL);
		struct wire *w = wire_open(d, "", false);

		assert_int_equal(wire_write(w, data, 0, sizeof(data)), 0);
		assert_int_equal(wire_read(w, got, 0, sizeof(got)), 0);
		assert_memory_equal(data, got, sizeof(data));
		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, 4096), 0);
		assert_int_equal(wire_read(w, got, 0, sizeof(got)), 0);
		assert_int_equal(got[0], 0);
		wire_close(w);
		daemon_stop(d);
	}
}

/* One client wants all the tags all the time, another has one request. */
static void
beside_a_hog(const char *device)
{
	struct daemon *d = daemon_start("--workers", "1", device, NULL);
	struct wire *hog = wire_open(d, "", false);
	struct wire *victim = wire_open(d, "", false);
	struct op *ops = calloc(4 * HOG_DEPTH, sizeof(*ops));
	uint64_t start, worst = 0, took;
	uint8_t got[512];

	assert_non_null(ops);
	for (unsigned i = 0; i < 4 * HOG_DEPTH; i++) {
		ops[i].type = CMD_READ;
		ops[i].offset = i * 8192ull;
		ops[i].length = 512;
		ops[i].got = calloc(1, 512);
	}
	/* as many as may be in flight, and as many again behind them */
	batch_send(hog, ops, 4 * HOG_DEPTH);
	for (int i = 0; i < VICTIM_IOS; i++) {
		start = now_ns();
		assert_int_equal(wire_read(victim, got, 0, 512), 0);
		took = now_ns() - start;
		if (took > worst)
			worst = took;
	}
	printf("%s: the victim waited %.1f ms at most\n", device,
	    (double)worst / 1e6);
	batch_collect(hog, ops, 4 * HOG_DEPTH);
	batch_assert_ok(ops, 4 * HOG_DEPTH);
	/* its fair share is every second tag; without it 2 s and more */
	assert_in_range(worst / 1000000, 0, 500);
	for (unsigned i = 0; i < 4 * HOG_DEPTH; i++)
		free(ops[i].got);
	free(ops);
	wire_close(hog);
	wire_close(victim);
	daemon_stop(d);
}

static void
one_that_wants_all_tags_gets_its_share(void **state)
{
	(void)state;
	beside_a_hog("nullb0:hw_queue_depth=1,irqmode=2,completion_nsec=1ms");
	beside_a_hog("nullb0:hw_queue_depth=16,irqmode=2,completion_nsec=10ms");
}

/* Take what descriptors there are, give some back, take them again. */
static void
descriptors_run_out_again_and_again(void **state)
{
	struct daemon *d = daemon_new();
	const char *const args[] = { "-U", d->sock, "--control", d->control,
		"--workers", "1", "nullb0:size=64M,memory_backed=1", NULL };
	char *real = realpath(nullbd_path(), NULL);
	char wrapper[] = "/tmp/nullbd-few-XXXXXX";
	struct wire *held[60], *w;
	double cpu;
	FILE *f;

	(void)state;
	assert_non_null(real);
	f = fdopen(mkstemp(wrapper), "w");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\nulimit -n 40\nexec '%s' \"$@\"\n", real);
	assert_int_equal(fchmod(fileno(f), 0700), 0);
	fclose(f);
	assert_int_equal(setenv("NULLBD", wrapper, 1), 0);
	daemon_exec(d, args);
	assert_int_equal(setenv("NULLBD", real, 1), 0);
	free(real);
	daemon_ready(d, d->sock);
	unlink(wrapper);
	for (int i = 0; i < 60; i++) {
		held[i] = wire_unix(d->sock);
		assert_non_null(held[i]);
	}
	/* each that leaves lets one in, and the next finds no descriptor */
	for (int i = 0; i < 5; i++) {
		wire_close(held[i]);
		usleep(20000);
	}
	/* one at the control socket, which cannot be let in: nothing spins */
	w = wire_unix(d->control);
	cpu = daemon_cpu(d);
	usleep(1000000);
	if (!daemon_sanitized(d))
		assert_true(daemon_cpu(d) - cpu < 0.3);
	assert_in_range(daemon_log_size(d), 0, 20000);
	daemon_assert_alive(d);
	for (int i = 5; i < 60; i++)
		wire_close(held[i]);
	wire_close(w);
	w = wire_open(d, "", false);
	wire_assert_served(w, 0);
	wire_close(w);
	daemon_stop(d);
}

/* Many control requests at once, and none of the answers read. */
static void
control_requests_that_nobody_reads(void **state)
{
	static const char request[] = "{\"command\":\"iostat\"}\n";
	static char names[100][32];
	struct daemon *d = daemon_new();
	const char *args[110] = { "-U", d->sock, "--control", d->control };
	struct wire *ctl, *w;
	uint64_t start, rss;

	(void)state;
	for (int i = 0; i < 100; i++) {
		snprintf(names[i], sizeof(names[i]), "nullb%d:size=64M", i);
		args[4 + i] = names[i];
	}
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	rss = daemon_rss(d);
	ctl = wire_unix(d->control);
	for (int i = 0; i < 3000; i++)
		if (wire_try_send(ctl, request, sizeof(request) - 1, 0) == 0)
			break;
	start = now_ns();
	w = wire_open(d, "", false);
	assert_int_equal(wire_cmd(w, 0, CMD_FLUSH, 0, 0), 0);
	assert_in_range((now_ns() - start) / 1000000, 0, 1000);
	if (!daemon_sanitized(d))
		assert_in_range(daemon_rss(d), 0, rss + 32 * MiB);
	wire_close(ctl);
	wire_close(w);
	daemon_stop(d);
}

static void
an_idle_daemon_sleeps(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M", NULL);
	struct wire *w = wire_open(d, "", false);
	uint8_t buf[512];
	double cpu;

	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(wire_read(w, buf, 0, sizeof(buf)), 0);
	usleep(100000);
	cpu = daemon_cpu(d);
	usleep(1000000);
	/* it lingers for spin_usec after work, and no longer */
	assert_true(daemon_cpu(d) - cpu < 0.02);
	wire_close(w);
	daemon_stop(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N144", "a long zeroing that never pauses ends",
		    long_zeroing_without_a_pause_ends),
		CASE("N165", "one that wants all tags gets its share only",
		    one_that_wants_all_tags_gets_its_share),
		CASE("N8", "descriptors run out again and again",
		    descriptors_run_out_again_and_again),
		CASE("N165", "a lone request ends within its submission",
		    a_lone_request_may_end_within_its_submission),
		CASE("N165", "an idle daemon sleeps", an_idle_daemon_sleeps),
		CASE("N165", "control requests whose answers nobody reads",
		    control_requests_that_nobody_reads),
	};

	return cmocka_run_group_tests_name("fairness", tests, NULL, NULL);
}
