/* SPDX-License-Identifier: MIT */
/*
 * Recordings, as nullb-replay takes them: what blkparse prints, what blktrace
 * writes, fio's iologs.
 *
 *	| choice 1 | the file ...
 *
 * What can be read is put in sequence; and a short one is replayed: all of its
 * sectors arrive at the device.
 */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "replay.h"

#define MAX_IOS   256u        /* of a replay */
#define MAX_BYTES (16u << 20) /* the same, in all */

/* The bits of the choice. */
enum {
	KERNEL = 3 << 0,
	CLOSED = 1 << 2,
	BATCHES = 1 << 3,
	MEMORY = 1 << 4,
	OTHER_DEVICE = 1 << 5,
	SCHEDULER = 1 << 6,
};

static void
set(struct disk_conf *conf, const char *name, const char *value)
{
	char err[CTL_MAX_ERROR];

	CHECK(attr_set(
		  disk_attrs, conf, name, value, false, err, sizeof(err)) == 0,
	    "%s", err);
}

static void
settings(struct disk_conf *conf, unsigned choice)
{
	static const char *const kernels[] = { "4.14", "5.4", "6.1", "6.12" };

	CHECK(attr_init(disk_attrs, conf) == 0, "out of memory");
	set(conf, "size", "9223372036854775296B");
	set(conf, "kernel", kernels[choice & KERNEL]);
	if (choice & SCHEDULER)
		set(conf, "scheduler", "mq-deadline");
	if (choice & MEMORY) {
		set(conf, "memory_backed", "1");
		set(conf, "discard", "1");
		set(conf, "irqmode", "2");
		set(conf, "hw_queue_depth", "3");
	}
}

static uint64_t
bytes_of(const struct iolog *log)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < log->nr; i++)
		sum += log->io[i].bytes;
	return sum;
}

static void
replay(const struct iolog *log, unsigned choice)
{
	struct disk_conf conf;
	struct replay_conf how = {
		.disk = &conf,
		.batch = choice & BATCHES ? 32 : 1,
		.closed = (choice & CLOSED) != 0,
	};
	char err[2 * CTL_MAX_ERROR] = "";
	struct sample s;
	uint64_t sectors = 0;
	int ret;

	settings(&conf, choice);
	ret = replay_run(log, &how, &s, NULL, err, sizeof(err));
	attr_fini(disk_attrs, &conf);
	CHECK((ret == 0) == (err[0] == '\0'), "%d: %s", ret, err);
	CHECK(ret != -EDEADLK, "%s", err);
	fuzz_saw(err, strlen(err));
	if (ret != 0)
		return;
	for (unsigned i = 0; i < STAT_NR; i++)
		sectors += s.stat.sectors[i];
	CHECK(sectors == bytes_of(log) / SECTOR_SIZE,
	    "%llu sectors of %llu bytes", (unsigned long long)sectors,
	    (unsigned long long)bytes_of(log));
	CHECK(s.stat.in_flight == 0, "%llu in flight",
	    (unsigned long long)s.stat.in_flight);
	fuzz_saw(s.stat.ios, sizeof(s.stat.ios));
	fuzz_saw(s.stat.merges, sizeof(s.stat.merges));
	fuzz_saw(&s.now_ns, sizeof(s.now_ns));
}

static void
check_io(const struct iolog *log, size_t i)
{
	const struct iolog_io *io = &log->io[i];

	CHECK(io->op < REQ_OP_NR, "operation %u", io->op);
	CHECK(io->bytes <= IOLOG_MAX_BYTES, "%llu bytes",
	    (unsigned long long)io->bytes);
	CHECK(io->pos <= INT64_MAX && io->bytes <= INT64_MAX - io->pos,
	    "it ends at 2^63 or later");
	CHECK((io->bytes == 0) == (io->op == REQ_OP_FLUSH),
	    "operation %u of %llu bytes", io->op,
	    (unsigned long long)io->bytes);
	CHECK(io->ns <= IOLOG_MAX_NS, "%llu ns", (unsigned long long)io->ns);
	CHECK(i == 0 || io->ns >= log->io[i - 1].ns, "back in time");
	fuzz_saw(&io->pos, sizeof(io->pos));
	fuzz_saw(&io->bytes, sizeof(io->bytes));
	fuzz_saw(&io->ns, sizeof(io->ns));
}

/* A line says what is wrong, unless nothing is. */
static struct iolog *
read_log(const uint8_t *data, size_t size, const char *device)
{
	struct iolog *log;
	char *said = NULL;
	size_t len = 0;
	FILE *errors = open_memstream(&said, &len);

	CHECK(errors != NULL, "out of memory");
	log = iolog_read(fuzz_file(data, size), device, errors);
	CHECK(fclose(errors) == 0, "out of memory");
	CHECK((log == NULL) == (len > 0), "%s", said);
	CHECK(len == 0 || (said[len - 1] == '\n' && len > 1), "%s", said);
	fuzz_saw(said, len);
	free(said);
	return log;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *device = NULL;
	struct iolog *log;

	if (size < 1)
		return -1;
	if (data[0] & OTHER_DEVICE)
		device = data[0] & MEMORY ? "8,16" : "/dev/sdb";
	log = read_log(data + 1, size - 1, device);
	if (log == NULL)
		return 0;
	CHECK(log->nr > 0 && log->device != NULL, "nothing in it");
	CHECK(log->io[0].ns == 0, "it begins later");
	for (size_t i = 0; i < log->nr; i++)
		check_io(log, i);
	if (log->nr <= MAX_IOS && bytes_of(log) <= MAX_BYTES)
		replay(log, data[0]);
	iolog_free(log);
	return 0;
}
