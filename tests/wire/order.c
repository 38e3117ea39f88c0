/* SPDX-License-Identifier: MIT */
/*
 * Many requests in flight.  The rule that everything here leans on (DESIGN,
 * Invariants): what overlapping requests of one connection do to the data,
 * they do in the order of their arrival.  So a model that applies them one
 * after the other knows what each read must bring, whatever the latency, the
 * profile and the order of the replies.
 */
#include "../lib/wire.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NR(a)  (sizeof(a) / sizeof(*(a)))
#define REGION (64 * KiB) /* small: nearly everything overlaps */
#define MAX_IO (24 * KiB)

static struct daemon *nullbd;
static uint64_t seed;

static const char *const kernels[] = { "4.14", "5.4", "6.1", "6.12" };
static char devices[12][128];

/*
 * Devices that take few requests at a time, so that the others wait in the
 * scheduler.  With sets of its tunables that favour anything: long and short
 * batches, writes, reads, requests that have waited for a while.
 */
static const char *const plugs[] = { "plug", "call", "each" };
static const char *const tunables[] = {
	"hw_queue_depth=1,nr_requests=16,fifo_batch=1,writes_starved=0",
	"hw_queue_depth=2,nr_requests=8,fifo_batch=16,writes_starved=4",
	"hw_queue_depth=4,nr_requests=64,fifo_batch=4,writes_starved=1,"
	"read_expire=1,write_expire=1,submit_queues=2",
	"hw_queue_depth=2,nr_requests=32,fifo_batch=64,front_merges=0,"
	"async_depth=4",
};
static char scheduled[12][256];

static const char *
device_name(int kernel, int irqmode)
{
	static char name[16];

	snprintf(name, sizeof(name), "k%di%d", kernel, irqmode);
	return name;
}

/* Each kernel and plug with a different set of tunables. */
static const char *
scheduled_name(int kernel, int plug)
{
	static char name[16];

	snprintf(name, sizeof(name), "s%d%s", kernel, plugs[plug]);
	return name;
}

static int
start(void **state)
{
	int n = 0;

	(void)state;
	for (int i = 0; i < 12; i++)
		snprintf(scheduled[i], sizeof(scheduled[0]),
		    "%s:size=64M,memory_backed=1,discard=1,kernel=%s,"
		    "scheduler=mq-deadline,plug=%s,irqmode=2,"
		    "completion_nsec=100000,%s",
		    scheduled_name(i / 3, i % 3), kernels[i / 3], plugs[i % 3],
		    tunables[(i / 3 + i % 3) % 4]);
	seed = wire_seed();
	for (int k = 0; k < 4; k++)
		for (int irq = 0; irq < 3; irq++)
			snprintf(devices[n++], sizeof(devices[0]),
			    "%s:size=64M,memory_backed=1,discard=1,"
			    "kernel=%s,irqmode=%d,completion_nsec=50000",
			    device_name(k, irq), kernels[k], irq);
	nullbd = daemon_start("--workers", "2", devices[0], devices[1],
	    devices[2], devices[3], devices[4], devices[5], devices[6],
	    devices[7], devices[8], devices[9], devices[10], devices[11],
	    "one:size=64M,memory_backed=1,discard=1,hw_queue_depth=1,"
	    "irqmode=2,completion_nsec=100000",
	    "two:size=64M,memory_backed=1,hw_queue_depth=2,irqmode=1",
	    "tags1:size=64M,memory_backed=1,hw_queue_depth=1,irqmode=0,"
	    "submit_queues=2",
	    "slow:size=64M,memory_backed=1,irqmode=2,"
	    "completion_nsec=5000000",
	    "odd:size=64M,memory_backed=1,discard=1,blocksize=4096,"
	    "irqmode=2,completion_nsec=20000,max_sectors=16,"
	    "virt_boundary=1",
	    "runs:size=64M,memory_backed=1,discard=1,page_order=4,"
	    "chunk_sectors=64,irqmode=2,completion_nsec=20000",
	    "zero:size=64M,memory_backed=1,discard=1,irqmode=2,"
	    "completion_nsec=30000,write_zeroes_max_bytes=4K,"
	    "discard_max_bytes=4K",
	    "plug:size=64M,memory_backed=1,discard=1,nomerges=2,"
	    "plug_nsec=200000,submit_queues=2",
	    scheduled[0], scheduled[1], scheduled[2], scheduled[3],
	    scheduled[4], scheduled[5], scheduled[6], scheduled[7],
	    scheduled[8], scheduled[9], scheduled[10], scheduled[11],
	    /* nr_requests as it comes: what one scheduler may have, the other
	     * may not */
	    "toggled0:size=64M,memory_backed=1,discard=1,kernel=4.14,"
	    "irqmode=2,completion_nsec=20000,hw_queue_depth=4",
	    "toggled1:size=64M,memory_backed=1,discard=1,kernel=6.1,"
	    "irqmode=1,hw_queue_depth=2,fifo_batch=2,plug=call",
	    "toggled2:size=64M,memory_backed=1,discard=1,kernel=6.12,"
	    "irqmode=2,completion_nsec=20000,hw_queue_depth=8,"
	    "submit_queues=2,plug_nsec=100000",
	    NULL);
	nullbd->shared = true;
	return 0;
}

static int
stop(void **state)
{
	(void)state;
	daemon_stop(nullbd);
	return 0;
}

/* ------------------------------------------------------------- the model */

/* A random program of requests, and what its reads must bring. */
struct program {
	struct op *ops;
	uint8_t *bytes; /* payloads, expected data, received data */
	uint8_t *want;  /* as big as the region */
	size_t n;
	uint64_t base; /* of the region on the device */
};

struct kind {
	uint32_t align;      /* of offsets and lengths */
	uint32_t trim_align; /* TRIM gives up whole blocks */
	uint32_t max_io;
	bool trim;
	uint32_t region;
};

static uint32_t
pick(uint64_t *rng, uint32_t max, uint32_t align)
{
	return (uint32_t)rng_below(rng, max / align + 1) * align;
}

/* `disk` is the region as it is before; it is what it will be after. */
static void
program_make(struct program *p, uint64_t *rng, size_t n, uint8_t *disk,
    uint64_t base, const struct kind *kind)
{
	uint8_t *at;

	p->n = n;
	p->base = base;
	p->ops = calloc(n, sizeof(*p->ops));
	p->bytes = at = xmalloc(n * 2 * kind->max_io);
	for (size_t i = 0; i < n; i++, at += 2 * (size_t)kind->max_io) {
		struct op *op = &p->ops[i];
		uint64_t dice = rng_below(rng, 100);
		uint32_t align = kind->align, offset, length;

		op->type = dice < 45   ? CMD_WRITE
			   : dice < 88 ? CMD_READ
			   : dice < 94 ? CMD_WRITE_ZEROES
				       : CMD_TRIM;
		if (op->type == CMD_TRIM && !kind->trim)
			op->type = CMD_WRITE;
		if (op->type == CMD_TRIM)
			align = kind->trim_align;
		/* half of them within one block, so that many are the same */
		length = pick(rng,
		    rng_below(rng, 2) && kind->max_io > 4096 ? 4096
							     : kind->max_io,
		    align);
		if (!length)
			length = align;
		offset = rng_below(rng, 3)
			     ? pick(rng, kind->region - length, align)
			     : 0;
		op->offset = base + offset;
		op->length = length;
		op->data = at;
		op->got = at + kind->max_io;
		switch (op->type) {
		case CMD_WRITE:
			fill(at, length, rng_next(rng));
			memcpy(disk + offset, at, length);
			break;
		case CMD_READ: memcpy(at, disk + offset, length); break;
		default: memset(disk + offset, 0, length); break;
		}
	}
}

static void
program_check(struct program *p, const char *what)
{
	for (size_t i = 0; i < p->n; i++) {
		struct op *op = &p->ops[i];
		char text[128];

		if (!op->answered || op->error)
			wire_fail("%s: request %zu, command %u: error %u", what,
			    i, op->type, op->error);
		if (op->type != CMD_READ)
			continue;
		snprintf(text, sizeof(text), "%s: read %zu of %u at +%u", what,
		    i, (uint32_t)op->length, (uint32_t)(op->offset - p->base));
		assert_same(op->got, op->data, op->length, text);
	}
	free(p->ops);
	free(p->bytes);
}

static void
run_programs(const char *name, size_t depth, int rounds, size_t piece,
    const struct kind *kind, uint64_t *rng)
{
	struct wire *w = wire_open(nullbd, name, false);
	uint8_t *disk = xmalloc(kind->region);

	assert_int_equal(wire_read(w, disk, 8192, kind->region), 0);
	for (int i = 0; i < rounds; i++) {
		struct program p;

		program_make(&p, rng, depth, disk, 8192, kind);
		batch_run(w, p.ops, p.n, piece);
		program_check(&p, name);
	}
	wire_close(w);
	free(disk);
}

static const struct kind sectors = { 512, 512, MAX_IO, true, REGION };
static const struct kind bytes = { 1, 512, MAX_IO, true, REGION };
static const struct kind block = { 4096, 4096, 4096, true, REGION };

/* ------------------------------------------------------------------ cases */

static void
order_of_arrival(void **state)
{
	uint64_t rng = seed;

	(void)state;
	for (int k = 0; k < 4; k++)
		for (int irq = 0; irq < 3; irq++)
			run_programs(
			    device_name(k, irq), 64, 25, 0, &sectors, &rng);
}

static void
order_of_arrival_in_bytes(void **state)
{
	uint64_t rng = seed + 1;

	(void)state;
	for (int k = 0; k < 4; k++)
		for (int irq = 0; irq < 3; irq++)
			run_programs(
			    device_name(k, irq), 64, 20, 0, &bytes, &rng);
}

static void
order_of_one_block(void **state)
{
	uint64_t rng = seed + 2;

	(void)state;
	for (int k = 0; k < 4; k++)
		for (int irq = 0; irq < 3; irq++)
			run_programs(
			    device_name(k, irq), 64, 15, 0, &block, &rng);
}

/* A writes, B writes, read, C writes, read...: all on one sector. */
static void
each_read_sees_the_write_before_it(void **state)
{
	enum {
		N = 64
	};
	uint8_t *data = xmalloc(N * 4096), *got = xmalloc(N * 4096);

	(void)state;
	for (int d = 0; d < 12; d++) {
		struct wire *w =
		    wire_open(nullbd, device_name(d / 3, d % 3), false);

		for (uint32_t round = 0; round < 8; round++) {
			struct op ops[N] = { { 0 } };
			uint32_t len = round & 1 ? 4096 : 512;

			for (uint32_t i = 0; i < N; i++) {
				memset(
				    data + i * 4096, (int)(i / 2 + round), len);
				ops[i].type = i % 2 ? CMD_READ : CMD_WRITE;
				ops[i].offset = 1 * MiB;
				ops[i].length = len;
				ops[i].data = data + i * 4096;
				ops[i].got = got + i * 4096;
			}
			batch_run(w, ops, N, round & 2 ? 700 : 0);
			batch_assert_ok(ops, N);
			for (uint32_t i = 1; i < N; i += 2)
				assert_same(got + i * 4096, data + i * 4096,
				    len, "the read after a write");
		}
		wire_close(w);
	}
	free(got);
	free(data);
}

static void
order_without_tags(void **state)
{
	static const char *const names[] = { "one", "two", "tags1" };
	uint64_t rng = seed + 3;

	(void)state;
	for (size_t i = 0; i < NR(names); i++) {
		struct kind kind = sectors;

		kind.trim = !strcmp(names[i], "one");
		run_programs(names[i], 64, 12, 0, &kind, &rng);
		run_programs(names[i], 1024, 1, 0, &kind, &rng);
	}
}

static void
order_with_odd_limits(void **state)
{
	struct kind kind = { 1, 4096, MAX_IO, true, REGION };
	uint64_t rng = seed + 4;

	(void)state;
	run_programs("odd", 64, 20, 0, &kind, &rng);
	kind.align = 512;
	run_programs("odd", 64, 20, 0, &kind, &rng);
	run_programs("runs", 64, 20, 0, &sectors, &rng);
	run_programs("runs", 64, 20, 0, &bytes, &rng);
	run_programs("zero", 64, 20, 0, &sectors, &rng);
	run_programs("zero", 64, 20, 0, &bytes, &rng);
	run_programs("plug", 64, 20, 0, &sectors, &rng);
	run_programs("plug", 64, 20, 0, &bytes, &rng);
}

static void
order_in_any_fragmentation(void **state)
{
	static const size_t pieces[] = { 1, 7, 27, 28, 29, 513, 4096, 5000,
		65536, 100000 };
	uint64_t rng = seed + 5;

	(void)state;
	for (size_t i = 0; i < NR(pieces); i++) {
		struct kind kind = sectors;

		if (pieces[i] < 20)
			kind.max_io = 512;
		run_programs("k3i1", pieces[i] < 20 ? 16 : 64, 4, pieces[i],
		    &kind, &rng);
		run_programs("k0i2", pieces[i] < 20 ? 16 : 64, 4, pieces[i],
		    &kind, &rng);
	}
}

/* Up to 3 MiB each: 64 of them are more than may be in flight. */
static void
order_of_large_requests(void **state)
{
	static const struct kind large = { 512, 512, 3 * MiB, true, 8 * MiB };
	uint64_t rng = seed + 7;

	(void)state;
	for (int d = 0; d < 12; d += 4) {
		const char *name = device_name(d / 3, d % 3);

		run_programs(name, 64, 3, 0, &large, &rng);
		run_programs(name, 64, 1, 300001, &large, &rng);
	}
}

static void
pipelines_of_a_thousand(void **state)
{
	uint64_t rng = seed + 6;

	(void)state;
	for (int d = 0; d < 12; d += 5) {
		const char *name = device_name(d / 3, d % 3);

		run_programs(name, 1024, 2, 0, &sectors, &rng);
		run_programs(name, 3000, 1, 0, &bytes, &rng);
	}
}

/* Deep in small reads, all answered once: more than the server allows. */
static void
pipelines_of_ten_thousand_reads(void **state)
{
	enum {
		N = 10000
	};
	struct op *ops = calloc(N, sizeof(*ops));
	uint8_t *want = xmalloc(1 * MiB), *got = xmalloc(N * 512);

	(void)state;
	for (int d = 0; d < 12; d += 4) {
		struct wire *w =
		    wire_open(nullbd, device_name(d / 3, d % 3), false);

		fill(want, 1 * MiB, (uint64_t)d);
		assert_int_equal(wire_write(w, want, 0, 1 * MiB), 0);
		for (uint32_t i = 0; i < N; i++) {
			ops[i].type = CMD_READ;
			ops[i].offset = i * 7919ull % 2048 * 512;
			ops[i].length = 512;
			ops[i].got = got + i * 512;
		}
		batch_run(w, ops, N, 0);
		batch_assert_ok(ops, N);
		for (uint32_t i = 0; i < N; i++)
			assert_same(ops[i].got, want + ops[i].offset, 512,
			    "a deep read");
		wire_close(w);
	}
	free(got);
	free(want);
	free(ops);
}

/* They overlap in time: 64 of 5 ms take 5 ms and not 320. */
static void
slow_requests_overlap(void **state)
{
	struct wire *w = wire_open(nullbd, "slow", false);
	struct wire *other = wire_open(nullbd, "k3i1", false);
	struct op ops[64] = { { 0 } };
	uint8_t *got = xmalloc(64 * 4096);
	uint64_t start_ns, took_us, best_us = ~0ULL;

	(void)state;
	for (int try = 0; try < 5; try++) {
		for (uint32_t i = 0; i < 64; i++) {
			/* apart, so that they are not merged */
			ops[i].type = CMD_READ;
			ops[i].offset = i * 65536;
			ops[i].length = 4096;
			ops[i].got = got + i * 4096;
		}
		start_ns = now_ns();
		batch_send(w, ops, 64);
		wire_assert_served(other, 0);
		batch_collect(w, ops, 64);
		took_us = (now_ns() - start_ns) / 1000;
		batch_assert_ok(ops, 64);
		if (took_us < best_us)
			best_us = took_us;
	}
	assert_in_range(best_us, 5000, 40000);
	free(got);
}

/* --------------------------------------------------------- many of them */

/* A client in a process of its own: programs in its own region. */
static pid_t
client_fork(const char *name, uint64_t base, uint64_t rng, int rounds)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;

	/* a failed assertion must end the child, not run on in it */
	setenv("CMOCKA_TEST_ABORT", "1", 1);

	struct wire *w = wire_open(nullbd, name, false);
	uint8_t *disk = xmalloc(REGION);

	if (wire_read(w, disk, base, REGION))
		_exit(1);
	for (int i = 0; i < rounds; i++) {
		struct program p;

		program_make(&p, &rng, 64, disk, base, &sectors);
		batch_run(w, p.ops, p.n, 0);
		program_check(&p, name);
	}
	_exit(0);
}

static void
children_wait(pid_t *pids, size_t n)
{
	size_t failed = 0;
	int status;

	for (size_t i = 0; i < n; i++)
		failed += waitpid(pids[i], &status, 0) != pids[i] || status;
	if (failed)
		wire_fail("%zu of %zu clients fail", failed, n);
}

static void
many_connections_side_by_side(void **state)
{
	pid_t pids[48];

	(void)state;
	for (size_t i = 0; i < NR(pids); i++)
		pids[i] = client_fork(device_name((int)i / 12, (int)i % 3),
		    i * 256 * KiB, seed + 100 + i, 6);
	children_wait(pids, NR(pids));
}

static void
four_connections_on_one_tag(void **state)
{
	pid_t pids[4];

	(void)state;
	for (size_t i = 0; i < NR(pids); i++)
		pids[i] = client_fork("one", i * 1 * MiB, seed + 200 + i, 4);
	children_wait(pids, NR(pids));
}

static void
a_hundred_connections_at_once(void **state)
{
	struct wire *w[100];
	unsigned fds = daemon_fds(nullbd);
	uint8_t data[512], got[512];

	(void)state;
	for (uint64_t i = 0; i < NR(w); i++) {
		w[i] = wire_open(
		    nullbd, device_name((int)i % 4, (int)i % 3), false);
		fill(data, sizeof(data), i);
		assert_int_equal(wire_write(w[i], data, i * 512, 512), 0);
	}
	for (uint64_t i = 0; i < NR(w); i++) {
		fill(data, sizeof(data), i);
		assert_int_equal(wire_read(w[i], got, i * 512, 512), 0);
		assert_same(got, data, 512, "of one of 100 connections");
	}
	for (size_t i = 0; i < NR(w); i++)
		wire_close(w[i]);
	daemon_settle(nullbd, fds);
}

/* Byte by byte it is the one or the other; what does not overlap is exact. */
static void
overlapping_writes_of_several_connections(void **state)
{
	enum {
		C = 4,
		LEN = 96 * KiB,
		STEP = 16 * KiB
	};
	enum {
		ALL = (C - 1) * STEP + LEN
	};
	uint8_t *data = xmalloc(C * LEN), *got = xmalloc(ALL);
	struct wire *w[C];

	(void)state;
	for (int d = 0; d < 12; d++) {
		const char *name = device_name(d / 3, d % 3);

		for (int c = 0; c < C; c++)
			w[c] = wire_open(nullbd, name, false);
		for (int round = 0; round < 10; round++) {
			struct op ops[C] = { { 0 } };

			for (int c = 0; c < C; c++) {
				memset(data + c * LEN, round * C + c + 1, LEN);
				ops[c].type = CMD_WRITE;
				ops[c].offset = (uint64_t)c * STEP;
				ops[c].length = LEN;
				ops[c].data = data + c * LEN;
				batch_send(w[c], &ops[c], 1);
			}
			for (int c = 0; c < C; c++) {
				batch_collect(w[c], &ops[c], 1);
				batch_assert_ok(&ops[c], 1);
			}
			assert_int_equal(wire_read(w[0], got, 0, ALL), 0);
			for (int i = 0; i < ALL; i++) {
				int c = got[i] - round * C - 1;

				if (c < 0 || c >= C || i < c * STEP ||
				    i >= c * STEP + LEN)
					wire_fail("%s: byte %d is 0x%02x", name,
					    i, got[i]);
			}
		}
		for (int c = 0; c < C; c++)
			wire_close(w[c]);
	}
	free(got);
	free(data);
}

/* ---------------------------------------------------------- the scheduler */

static int
by_time(const void *a, const void *b)
{
	const struct op *x = a, *y = b;

	return x->done_ns < y->done_ns ? -1 : x->done_ns > y->done_ns;
}

/*
 * Each read is 21 places above the last or 11 below it.  How often is one
 * answered right after a near one below it?
 */
static int
nr_sorted(struct wire *w, uint8_t *got)
{
	enum {
		N = 32
	};
	struct op ops[N] = { { 0 } };
	int sorted = 0;

	for (uint32_t i = 0; i < N; i++) {
		ops[i].type = CMD_READ;
		ops[i].offset = i * 21 % N * 64 * KiB;
		ops[i].length = 512;
		ops[i].got = got + i * 512;
	}
	batch_run(w, ops, N, 0);
	batch_assert_ok(ops, N);
	qsort(ops, N, sizeof(*ops), by_time);
	for (uint32_t i = 1; i < N; i++)
		sorted += ops[i].offset > ops[i - 1].offset &&
			  ops[i].offset - ops[i - 1].offset < 11 * 64 * KiB;
	return sorted;
}

/* If nothing waited there, the cases below would show nothing. */
static void
the_scheduler_sorts(void **state)
{
	uint8_t *got = xmalloc(32 * 512);

	(void)state;
	for (int d = 0; d < 12; d++) {
		const char *name = scheduled_name(d / 3, d % 3);
		struct wire *w = wire_open(nullbd, name, false);
		int sorted, best = 0;

		for (int try = 0; try < 10 && best < 6; try++) {
			sorted = nr_sorted(w, got);
			if (sorted > best)
				best = sorted;
		}
		if (best < 6)
			wire_fail("%s: only %d of 32 are sorted", name, best);
		wire_close(w);
	}
	free(got);
}

static void
order_under_a_scheduler(void **state)
{
	uint64_t rng = seed + 8;

	(void)state;
	for (int d = 0; d < 12; d++) {
		const char *name = scheduled_name(d / 3, d % 3);

		run_programs(name, 64, 10, 0, &sectors, &rng);
		run_programs(name, 64, 5, 0, &bytes, &rng);
		run_programs(name, 64, 5, 0, &block, &rng);
		run_programs(name, 64, 2, 5000, &sectors, &rng);
		run_programs(name, 1024, 1, 0, &sectors, &rng);
	}
}

/* Both workers bring requests that wait in the same scheduler. */
static void
connections_share_a_scheduler(void **state)
{
	pid_t pids[36];

	(void)state;
	for (size_t i = 0; i < NR(pids); i++)
		pids[i] =
		    client_fork(scheduled_name((int)i % 4, (int)i / 4 % 3),
			i * 256 * KiB, seed + 300 + i, 6);
	children_wait(pids, NR(pids));
}

static const char *const toggled[] = { "toggled0", "toggled1", "toggled2" };

/* Set the scheduler of all of them, again and again, until the pipe ends. */
static pid_t
toggler_fork(const int until[2])
{
	static const char *const schedulers[] = { "mq-deadline", "none" };
	struct pollfd p = { .fd = until[0], .events = POLLIN };
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;

	close(until[1]);
	for (int i = 0; !poll(&p, 1, 1) || i < 10; i++)
		for (size_t d = 0; d < NR(toggled); d++)
			if (!daemon_set(nullbd, toggled[d], "scheduler",
				schedulers[i & 1]))
				_exit(1);
	_exit(0);
}

static void
order_while_the_scheduler_changes(void **state)
{
	uint64_t rng = seed + 9;
	pid_t pids[7];
	int until[2];

	(void)state;
	assert_int_equal(pipe(until), 0);
	pids[0] = toggler_fork(until);
	for (size_t i = 1; i < NR(pids); i++)
		pids[i] = client_fork(toggled[i % 3], 1 * MiB + i * 256 * KiB,
		    seed + 400 + i, 20);
	for (size_t d = 0; d < NR(toggled); d++) {
		run_programs(toggled[d], 64, 20, 0, &sectors, &rng);
		run_programs(toggled[d], 64, 10, 0, &bytes, &rng);
		run_programs(toggled[d], 1024, 1, 0, &sectors, &rng);
	}
	children_wait(pids + 1, NR(pids) - 1);
	close(until[1]);
	children_wait(pids, 1);
	close(until[0]);
}

static void
replies_come_when_they_are_ready(void **state)
{
	/* out of order is allowed, waiting for the slow is not */
	struct wire *slow = wire_open(nullbd, "slow", false);
	struct wire *fast = wire_open(nullbd, "k3i0", false);
	uint8_t got[512];

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct op op = { .type = CMD_READ, .length = 512, .got = got };
		uint64_t fast_ns;

		batch_send(slow, &op, 1);
		wire_assert_served(fast, 0);
		fast_ns = now_ns();
		batch_collect(slow, &op, 1);
		batch_assert_ok(&op, 1);
		if (op.done_ns > fast_ns)
			return;
	}
	wire_fail("a fast device always waits for a slow one");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N139", "64 in flight: each read sees what came before it",
		    order_of_arrival),
		CASE("N139 N87", "the same at any byte",
		    order_of_arrival_in_bytes),
		CASE("N139", "the same in whole blocks", order_of_one_block),
		CASE("N139", "writes and reads of one block in turn",
		    each_read_sees_the_write_before_it),
		CASE("N139", "the order holds when tags run out",
		    order_without_tags),
		CASE("N139", "the order holds under odd queue limits",
		    order_with_odd_limits),
		CASE("N110 N139", "the order holds in any fragmentation",
		    order_in_any_fragmentation),
		CASE("N139 N165", "the order holds for large requests",
		    order_of_large_requests),
		CASE("N139 N165", "pipelines of 1024 and 3000",
		    pipelines_of_a_thousand),
		CASE("N109 N123", "10000 reads in flight, each answered once",
		    pipelines_of_ten_thousand_reads),
		CASE("order", "a scheduler sorts what waits in it",
		    the_scheduler_sorts),
		CASE("N139", "the order holds under a scheduler",
		    order_under_a_scheduler),
		CASE("N139 N160", "connections share a scheduler",
		    connections_share_a_scheduler),
		CASE("N139 N160", "the order holds while the scheduler changes",
		    order_while_the_scheduler_changes),
		CASE("N137", "slow requests overlap in time",
		    slow_requests_overlap),
		CASE("N137", "a fast device does not wait for a slow one",
		    replies_come_when_they_are_ready),
		CASE("N160 N161", "48 connections side by side",
		    many_connections_side_by_side),
		CASE("N160 N161", "4 connections share one tag",
		    four_connections_on_one_tag),
		CASE("N160 N161", "100 connections are open at once",
		    a_hundred_connections_at_once),
		CASE("N166", "overlapping writes of several connections",
		    overlapping_writes_of_several_connections),
	};

	return cmocka_run_group_tests_name("order", tests, start, stop);
}
