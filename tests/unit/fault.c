/* SPDX-License-Identifier: MIT */
/* Faults: what each action does, what each selector picks, and repeatability.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/host.h"

#define KIB    1024u
#define MIB    (1024u * KIB)
#define SECTOR 512u
#define MEMORY \
	"size=64 memory_backed=1 discard=1 write_zeroes_max_bytes=1048576"

static struct machine *machine;
static struct cpu *cpu;
static struct page_pool *pool;
static struct disk *disk;
static uint64_t now;
static char err[512];

struct io {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	bool ended;
	uint64_t ended_ns;
};

static void
open_disk(const char *settings)
{
	machine = host_new(1);
	cpu = &machine->cpu[0];
	turn(cpu);
	pool = page_pool_new(machine, 256 * MIB);
	disk = host_disk(machine, pool, settings);
	now = 2000000;
}

static void
close_disk(void)
{
	disk_free(disk);
	rest(pool, cpu);
	page_pool_free(pool);
	machine_free(machine);
}

static int
live(const char *name, const char *value)
{
	err[0] = '\0';
	return disk_set(disk, name, value, now, err, sizeof(err));
}

/* A rule that replaces all there were. */
static void
rule(const char *text)
{
	live("faults", "removeall");
	if (live("faults", text) != 0)
		fail_msg("%s", err);
}

static struct fault_info
info(size_t i)
{
	struct fault_info in;

	assert_true(faults_info(disk->conf.faults, i, &in));
	return in;
}

static char *
log_text(void)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	faults_log(disk->conf.faults, out);
	fclose(out);
	return text;
}

static void
expect_log(const char *wanted)
{
	char *text = log_text();

	assert_string_equal(text, wanted);
	free(text);
}

static void
io_ended(struct bio *bio, struct cpu *c, uint64_t when)
{
	struct io *io = bio->priv;

	(void)c;
	io->ended = true;
	io->ended_ns = when;
}

/* In sectors; all at once, as one bio. */
static struct io *
submit(enum req_op op, uint64_t sector, uint64_t nr, void *base)
{
	struct io *io = calloc(1, sizeof(*io));

	bio_init(&io->bio, op, sector * SECTOR, io->bv, BIO_MAX_VECS);
	io->bio.end_io = io_ended;
	io->bio.priv = io;
	if (op == REQ_OP_READ || op == REQ_OP_WRITE)
		assert_int_equal(
		    bio_add_payload(&io->bio, true, UINT64_C(1) << 40, 9, 0,
			base, nr * SECTOR),
		    nr * SECTOR);
	else
		io->bio.bytes = nr * SECTOR;
	assert_int_equal(
	    queue_submit(disk->queue, cpu, NULL, &io->bio, now), 0);
	return io;
}

/* As far as it goes by itself. */
static void
run(void)
{
	uint64_t next;

	while ((next = cpu_run(cpu, now)) != CPU_NO_DEADLINE)
		now = next > now ? next : now;
}

static int
io_end(struct io *io)
{
	int error;

	run();
	assert_true(io->ended);
	error = io->bio.error;
	bio_release(&io->bio, cpu);
	free(io);
	return error;
}

static int
doio(enum req_op op, uint64_t sector, uint64_t nr, void *base)
{
	return io_end(submit(op, sector, nr, base));
}

static int
write_byte(uint64_t sector, uint64_t nr, char byte)
{
	char *data = malloc(nr * SECTOR);
	int error;

	memset(data, byte, nr * SECTOR);
	error = doio(REQ_OP_WRITE, sector, nr, data);
	free(data);
	return error;
}

static int
read_sectors(uint64_t sector, uint64_t nr)
{
	char *data = malloc(nr * SECTOR);
	int error = doio(REQ_OP_READ, sector, nr, data);

	free(data);
	return error;
}

static void
assert_holds(uint64_t sector, uint64_t nr, char byte)
{
	char *data = malloc(nr * SECTOR);

	(void)store_read(disk->store, cpu, sector * SECTOR, data, nr * SECTOR);
	for (uint64_t i = 0; i < nr * SECTOR; i++)
		if (data[i] != byte)
			fail_msg("sector %llu holds 0x%x, not 0x%x",
			    (unsigned long long)(sector + i / SECTOR),
			    (unsigned char)data[i], (unsigned char)byte);
	free(data);
}

/* ------------------------------------------------------------- selectors */

static void
picks_by_op_and_range(void **state)
{
	(void)state;
	open_disk(MEMORY);
	rule("op=WRITE|DISCARD,start=8,nr_sectors=8,status=NOSPC");
	assert_int_equal(write_byte(0, 8, 1), 0);
	assert_int_equal(write_byte(16, 8, 1), 0);
	assert_int_equal(write_byte(15, 2, 1), -ENOSPC);
	assert_int_equal(write_byte(7, 2, 1), -ENOSPC);
	assert_int_equal(write_byte(0, 64, 1), -ENOSPC);
	assert_int_equal(doio(REQ_OP_DISCARD, 8, 1, NULL), -ENOSPC);
	assert_int_equal(doio(REQ_OP_WRITE_ZEROES, 8, 1, NULL), 0);
	assert_int_equal(read_sectors(8, 8), 0);
	assert_holds(16, 8, 1); /* an error writes nothing */
	assert_holds(7, 1, 1);
	assert_holds(24, 40, 0);
	close_disk();
}

static void
counts_after_every_times(void **state)
{
	char got[65] = "";

	(void)state;
	open_disk("size=64");
	rule("op=READ,after=3,every=2,times=3");
	for (int i = 0; i < 14; i++)
		strcat(got, read_sectors(0, 1) == 0 ? "." : "x");
	assert_string_equal(got, "....x.x.x.....");
	assert_int_equal(info(0).hits, 3);
	assert_true(info(0).spent);
	assert_int_equal(info(0).seen, 9); /* spent, it looks at none */
	expect_log("5 READ 0+1 id=1 error EIO\n7 READ 0+1 id=1 error EIO\n"
		   "9 READ 0+1 id=1 error EIO\n");
	close_disk();
}

static void
hits_as_often_as_it_should(void **state)
{
	static const struct {
		const char *rule;
		unsigned min, max;
	} of[] = { { "chance=10", 900, 1100 }, { "probability=25", 2350, 2650 },
		{ "probability=0", 0, 0 }, { "probability=100", 10000, 10000 },
		{ "probability=0.5", 30, 75 },
		{ "probability=50,chance=2", 2350, 2650 } };

	(void)state;
	open_disk("size=64 seed=42");
	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
		rule(of[i].rule);
		for (unsigned n = 0; n < 10000; n++)
			read_sectors(n, 1);
		assert_in_range(info(0).hits, of[i].min, of[i].max);
	}
	close_disk();
}

static void
the_newest_that_fires_decides(void **state)
{
	(void)state;
	open_disk("size=64");
	rule("op=READ,status=IOERR");
	assert_int_equal(live("faults", "add,start=8,nr_sectors=8,"
					"status=MEDIUM,times=1"),
	    0);
	assert_int_equal(faults_last_id(disk->conf.faults), 2);
	assert_int_equal(read_sectors(0, 1), -EIO);
	assert_int_equal(read_sectors(8, 1), -ENODATA);
	assert_int_equal(read_sectors(8, 1), -EIO);
	assert_int_equal(info(0).id, 2);
	assert_int_equal(info(1).id, 1);
	assert_string_equal(info(1).rule, "op=READ,status=IOERR");
	assert_int_equal(info(1).hits, 2);
	assert_int_equal(live("faults", "remove,id=1"), 0);
	assert_int_equal(read_sectors(8, 1), 0);
	assert_int_equal(live("faults", "remove,id=1"), -ENOENT);
	assert_string_equal(err, "faults: \"remove,id=1\": no such rule");
	assert_int_equal(live("faults", "remove"), -EINVAL);
	assert_string_equal(err, "faults: \"remove\": allowed: remove,id=N");
	assert_true(atomic_load(&disk->has_faults));
	assert_int_equal(live("faults", "removeall"), 0);
	assert_false(atomic_load(&disk->has_faults));
	close_disk();
}

static void
has_so_many_rules(void **state)
{
	struct fault_info in;

	(void)state;
	open_disk("size=64");
	for (int i = 0; i < 256; i++)
		assert_int_equal(live("faults", "op=READ"), 0);
	assert_int_equal(live("faults", "op=READ"), -ENOSPC);
	assert_string_equal(err, "faults: there are 256 rules already, "
				 "allowed: no more");
	assert_int_equal(live("faults", "op=READ,nonsense=1"), -EINVAL);
	assert_false(faults_info(disk->conf.faults, 256, &in));
	close_disk();
}

/* The device of a queue that has a volatile cache. */
static void
a_flush_only_when_it_is_named(void **state)
{
	(void)state;
	open_disk("size=64 memory_backed=1");
	disk->queue->limits.write_cache = true;
	rule("status=IOERR");
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, NULL), 0);
	rule("op=READ|FLUSH,start=0,status=IOERR");
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, NULL), 0);
	rule("op=READ|FLUSH,status=NOSPC");
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, NULL), -ENOSPC);
	rule("op=FLUSH,action=lost");
	assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, NULL), 0);
	assert_int_equal(info(0).hits, 1);
	close_disk();
}

/* --------------------------------------------------------------- actions */

static void
delays_whatever_irqmode_is(void **state)
{
	static const struct {
		const char *settings;
		uint64_t ns;
	} of[] = { { "irqmode=0", 5000000 }, { "irqmode=1", 5000000 },
		{ "irqmode=2 completion_nsec=1000", 5001000 } };

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct io *io;
		uint64_t start;

		open_disk(of[i].settings);
		rule("op=READ,delay=5ms");
		start = now;
		io = submit(REQ_OP_READ, 0, 8, NULL);
		run();
		assert_int_equal(io->ended_ns - start, of[i].ns);
		assert_int_equal(io_end(io), 0);
		rule("op=READ,delay=5ms,status=TIMEOUT");
		start = now;
		assert_int_equal(doio(REQ_OP_READ, 0, 8, NULL), -ETIMEDOUT);
		assert_int_equal(now - start, of[i].ns);
		close_disk();
	}
}

static void
hang_and_release(const char *settings)
{
	struct io *a, *b, *c;
	char data[SECTOR];

	open_disk(settings);
	memset(data, 7, sizeof(data));
	rule("op=WRITE,action=hang");
	live("faults", "op=READ,action=hang,status=MEDIUM,times=1");
	a = submit(REQ_OP_WRITE, 0, 1, data);
	b = submit(REQ_OP_WRITE, 8, 1, data);
	c = submit(REQ_OP_READ, 16, 1, NULL);
	run();
	assert_false(a->ended || b->ended || c->ended);
	assert_holds(0, 1, 7); /* it moves as that of any request */
	assert_int_equal(info(1).hung, 2);
	assert_int_equal(info(0).hung, 1);
	assert_int_equal(live("faults", "release,id=2"), 0);
	run();
	assert_false(a->ended || b->ended);
	assert_int_equal(io_end(c), -ENODATA);
	assert_int_equal(live("faults", "release,id=7"), -ENOENT);
	assert_int_equal(live("faults", "release"), 0);
	assert_int_equal(io_end(a), 0);
	assert_int_equal(io_end(b), 0);
	a = submit(REQ_OP_WRITE, 0, 1, data); /* the rule is still there */
	run();
	assert_false(a->ended);
	assert_int_equal(live("faults", "remove,id=1"), 0);
	assert_int_equal(io_end(a), 0);
	close_disk();
}

static void
hangs_until_it_is_released(void **state)
{
	static const char *const settings[] = { "size=64 memory_backed=1",
		"size=64 memory_backed=1 scheduler=mq-deadline",
		"size=64 memory_backed=1 kernel=6.1 queue_mode=0",
		"size=64 memory_backed=1 irqmode=2 kernel=4.14" };

	(void)state;
	for (int i = 0; i < 4; i++)
		hang_and_release(settings[i]);
}

/* Between the verdict and the deed: mbps holds it back. */
static void
counts_what_hangs_when_it_does(void **state)
{
	uint64_t hits = 9;
	char *data = calloc(1, 64 * KIB);
	struct io *io;

	(void)state;
	open_disk("size=64 memory_backed=1 mbps=1");
	rule("op=WRITE,action=hang");
	io = submit(REQ_OP_WRITE, 0, 128, data);
	cpu_run(cpu, now);
	assert_int_equal(info(0).hits, 1);
	assert_true(faults_hits(disk->conf.faults, 1, &hits));
	assert_int_equal(hits, 0); /* to release it would miss it */
	run();
	assert_false(io->ended);
	assert_true(faults_hits(disk->conf.faults, 1, &hits));
	assert_int_equal(hits, 1);
	live("faults", "release");
	assert_int_equal(io_end(io), 0);
	io = submit(REQ_OP_WRITE, 0, 128, data);
	cpu_run(cpu, now);
	live("faults", "removeall"); /* nobody could release it */
	assert_false(io->ended);
	assert_false(faults_hits(disk->conf.faults, 1, &hits));
	assert_int_equal(io_end(io), 0);
	close_disk();
	free(data);
}

static void
ends_what_hangs_when_it_is_given_up(void **state)
{
	static atomic_bool gone, here;
	struct io *a, *b, *c;

	(void)state;
	atomic_store(&gone, false);
	open_disk("size=64");
	rule("action=hang");
	a = submit(REQ_OP_READ, 0, 1, NULL);
	a->bio.given_up = &gone;
	b = submit(REQ_OP_READ, 8, 1, NULL);
	b->bio.given_up = &here;
	queue_abandon(disk->queue);
	run();
	assert_false(a->ended || b->ended);
	atomic_store(&gone, true);
	queue_abandon(disk->queue);
	assert_int_equal(io_end(a), -ESHUTDOWN);
	assert_false(b->ended);
	c = calloc(1, sizeof(*c)); /* one that comes when it is too late */
	bio_init(&c->bio, REQ_OP_READ, 0, c->bv, BIO_MAX_VECS);
	c->bio.end_io = io_ended;
	c->bio.priv = c;
	c->bio.given_up = &gone;
	bio_add_payload(&c->bio, true, UINT64_C(1) << 40, 9, 0, NULL, SECTOR);
	assert_int_equal(queue_submit(disk->queue, cpu, NULL, &c->bio, now), 0);
	assert_int_equal(io_end(c), -ESHUTDOWN);
	disk_hurry(disk, now); /* the end */
	assert_int_equal(io_end(b), -ESHUTDOWN);
	assert_int_equal(read_sectors(0, 1), -ESHUTDOWN);
	close_disk();
}

/* The bits in which they differ; *at: the first byte that does. */
static unsigned
differing(const char *a, const char *b, size_t len, size_t *at)
{
	unsigned bits = 0;

	*at = len;
	for (size_t i = 0; i < len; i++) {
		if (a[i] != b[i] && *at == len)
			*at = i;
		bits +=
		    (unsigned)__builtin_popcount((unsigned char)(a[i] ^ b[i]));
	}
	return bits;
}

static size_t
read_pinned(uint64_t sector, uint64_t nr, char *to)
{
	struct io *io = submit(REQ_OP_READ, sector, nr, NULL);
	const struct bio *piece;
	size_t len = 0;

	run();
	assert_true(io->ended);
	assert_int_equal(io->bio.error, 0);
	STAILQ_FOREACH(piece, &io->bio.pieces, link_piece)
		for (unsigned i = 0; i < piece->nr_iov; i++) {
			memcpy(to + len, piece->iov[i].iov_base,
			    piece->iov[i].iov_len);
			len += piece->iov[i].iov_len;
		}
	for (unsigned i = 0; i < io->bio.nr_iov; i++) {
		memcpy(
		    to + len, io->bio.iov[i].iov_base, io->bio.iov[i].iov_len);
		len += io->bio.iov[i].iov_len;
	}
	io_end(io);
	return len;
}

static void
corrupts_what_is_read_and_not_the_store(void **state)
{
	static const char *const settings[] = { MEMORY, "size=64",
		MEMORY " kernel=4.14" };
	char *was = calloc(1, 64 * KIB), *got = calloc(1, 64 * KIB);
	size_t at;

	(void)state;
	for (int s = 0; s < 3; s++) {
		open_disk(settings[s]);
		if (disk->store != NULL)
			write_byte(0, 128, 0x33);
		doio(REQ_OP_READ, 0, 128, was);
		/* in memory of the reader's, and in the store's */
		rule("op=READ,action=corrupt,offset=12345,bit=3,times=1");
		assert_int_equal(doio(REQ_OP_READ, 0, 128, got), 0);
		assert_int_equal(differing(was, got, 64 * KIB, &at), 1);
		assert_int_equal(at, 12345);
		assert_int_equal(was[at] ^ got[at], 1 << 3);
		rule("op=READ,action=corrupt,offset=60000,bit=0,times=1");
		assert_int_equal(read_pinned(0, 128, got), 64 * KIB);
		assert_int_equal(differing(was, got, 64 * KIB, &at), 1);
		assert_int_equal(at, 60000);
		doio(REQ_OP_READ, 0, 128, got);
		assert_memory_equal(was, got, 64 * KIB);
		/* anywhere */
		rule("op=READ,action=corrupt");
		for (int i = 0; i < 20; i++) {
			read_pinned(0, 128, got);
			assert_int_equal(differing(was, got, 64 * KIB, &at), 1);
		}
		/* it is about requests that have that byte */
		rule("op=READ,action=corrupt,offset=512");
		doio(REQ_OP_READ, 0, 1, got);
		assert_int_equal(info(0).seen, 0);
		/* what is not there is no hole any more */
		rule("op=READ,action=corrupt,offset=0");
		struct io *io = submit(REQ_OP_READ, 20000, 1, got);
		run();
		assert_false(io->bio.hole);
		io_end(io);
		close_disk();
	}
	free(was);
	free(got);
}

static void
corrupts_what_is_written_and_not_the_writers_memory(void **state)
{
	char *data = malloc(64 * KIB), *got = malloc(64 * KIB);
	size_t at;

	(void)state;
	open_disk(MEMORY);
	memset(data, 0x33, 64 * KIB);
	rule("op=WRITE,action=corrupt,offset=5000,bit=7");
	assert_int_equal(doio(REQ_OP_WRITE, 3, 100, data), 0);
	for (size_t i = 0; i < 64 * KIB; i++)
		assert_int_equal(data[i], 0x33);
	assert_int_equal(doio(REQ_OP_READ, 3, 100, got), 0);
	assert_int_equal(differing(data, got, 100 * SECTOR, &at), 1);
	assert_int_equal(at, 5000);
	expect_log("1 WRITE 3+100 id=1 corrupt byte 5000 bit 7\n");
	close_disk();
	free(data);
	free(got);
}

static void
loses_misdirects_and_tears(void **state)
{
	(void)state;
	open_disk(MEMORY);
	write_byte(0, 64, 1);
	rule("action=lost");
	assert_int_equal(write_byte(0, 8, 2), 0);
	assert_int_equal(doio(REQ_OP_DISCARD, 0, 8, NULL), 0);
	assert_int_equal(doio(REQ_OP_WRITE_ZEROES, 0, 8, NULL), 0);
	assert_holds(0, 64, 1);
	rule("action=misdirected,shift=9");
	assert_int_equal(write_byte(8, 8, 3), 0);
	assert_holds(0, 17, 1);
	assert_holds(17, 8, 3);
	assert_holds(25, 39, 1);
	rule("action=misdirected,shift=-8,op=READ|DISCARD");
	assert_int_equal(doio(REQ_OP_DISCARD, 48, 8, NULL), 0);
	assert_holds(40, 8, 0);
	assert_holds(48, 8, 1);
	char data[SECTOR];
	assert_int_equal(doio(REQ_OP_READ, 25, 1, data), 0);
	assert_int_equal(data[0], 3);
	assert_int_equal(doio(REQ_OP_READ, 7, 1, data), 0); /* no such place */
	assert_int_equal(info(0).hits, 2);
	rule("action=torn,keep=3,times=1");
	assert_int_equal(write_byte(0, 8, 4), 0);
	assert_holds(0, 3, 4);
	assert_holds(3, 5, 1);
	rule("action=torn,keep=0,status=IOERR,times=1");
	assert_int_equal(write_byte(0, 8, 5), -EIO);
	assert_holds(0, 3, 4);
	rule("action=torn,keep=4,status=IOERR");
	assert_int_equal(write_byte(0, 8, 5), -EIO);
	assert_holds(0, 4, 5);
	assert_holds(4, 4, 1);
	assert_int_equal(write_byte(0, 4, 6), 0); /* nothing to tear */
	rule("action=torn");
	for (int i = 0; i < 10; i++) {
		write_byte(1000, 8, 9);
		assert_holds(1007, 1, 0);
	}
	close_disk();
}

static void
marks_where_to_hang_up(void **state)
{
	struct io *io;

	(void)state;
	open_disk(MEMORY);
	rule("action=drop,at=mid-reply,op=READ,start=300,nr_sectors=1");
	io = submit(REQ_OP_READ, 0, 1024, NULL); /* it is split */
	run();
	assert_int_equal(io->bio.hang_up, HANG_UP_EARLY);
	io_end(io);
	io = submit(REQ_OP_READ, 0, 8, NULL);
	run();
	assert_int_equal(io->bio.hang_up, HANG_UP_NEVER);
	io_end(io);
	close_disk();
}

/* The rest of the stages sees what it makes of it. */
static void
goes_together_with_what_puts_it_off(void **state)
{
	(void)state;
	open_disk(MEMORY " mbps=1 badblocks=+100-100");
	rule("action=misdirected,shift=8");
	for (int i = 0; i < 100; i++)
		assert_int_equal(write_byte(1000, 8, (char)i), 0);
	assert_holds(1008, 8, 99);
	assert_int_equal(info(0).hits, 100); /* once each */
	assert_int_equal(write_byte(92, 8, 1), -EIO);
	rule("action=torn,keep=2");
	for (int i = 0; i < 100; i++)
		assert_int_equal(write_byte(2000, 8, (char)i), 0);
	assert_holds(2000, 2, 99);
	assert_holds(2002, 6, 0);
	close_disk();
}

/* --------------------------------------------------- null_blk's own faults */

static void
times_out(void **state)
{
	struct io *io;
	uint64_t start;

	(void)state;
	open_disk("size=64 memory_backed=1 timeout=1,100,0,2");
	start = now;
	assert_int_equal(write_byte(0, 8, 1), -ETIMEDOUT);
	assert_in_range(now - start, 5000000000u, 5000001000u);
	assert_holds(0, 8, 0);
	assert_int_equal(live("timeout_nsec", "1ms"), 0);
	start = now;
	assert_int_equal(write_byte(0, 8, 1), -ETIMEDOUT);
	assert_int_equal(now - start, 1000000);
	assert_int_equal(write_byte(0, 8, 1), 0);
	assert_int_equal(live("timeout_nsec", "0"), 0);
	assert_int_equal(live("timeout", "1,100,0,1"), 0);
	io = submit(REQ_OP_READ, 0, 8, NULL);
	run();
	assert_false(io->ended);
	assert_int_equal(live("faults", "release"), 0);
	assert_int_equal(io_end(io), -ETIMEDOUT);
	expect_log("1 WRITE 0+8 timeout\n2 WRITE 0+8 timeout\n"
		   "4 READ 0+8 timeout\n");
	close_disk();
}

static void
requeues_once_in_two_ways(void **state)
{
	uint64_t start;

	(void)state; /* the block layer asks again, or is told when to */
	open_disk("size=64 memory_backed=1 requeue=1,100,0,-1");
	for (int i = 0; i < 4; i++) {
		start = now;
		assert_int_equal(write_byte(0, 8, 1), 0);
		assert_in_range(now - start, 0, BLK_MQ_RESOURCE_DELAY);
	}
	expect_log("1 WRITE 0+8 requeue\n2 WRITE 0+8 requeue\n"
		   "3 WRITE 0+8 requeue\n4 WRITE 0+8 requeue\n");
	assert_holds(0, 8, 1);
	close_disk();
}

static void
fails_to_power_on(void **state)
{
	(void)state;
	open_disk("power=1");
	close_disk();
	machine = host_new(2);
	cpu = &machine->cpu[0];
	turn(cpu);
	pool = page_pool_new(machine, 256 * MIB);
	disk = disk_new("nullb0", machine, pool);
	assert_int_equal(live("submit_queues", "2"), 0);
	assert_int_equal(live("init_hctx", "2,100,0,1"), 0);
	assert_int_equal(disk_power_on(disk, now, err, sizeof(err)), -EFAULT);
	assert_string_equal(
	    err, "init_hctx: hardware queue 1 fails, as it was asked to");
	assert_null(disk->queue);
	assert_int_equal(disk_power_on(disk, now, err, sizeof(err)), 0);
	close_disk();
}

/* ----------------------------------------------------------- repeatability */

static char *
log_of_a_run(const char *seed)
{
	char settings[256];

	snprintf(settings, sizeof(settings),
	    "%s seed=%s timeout=1,5,0,-1 timeout_nsec=1000 requeue=1,5,0,-1 "
	    "faults=probability=10 faults=op=READ,action=corrupt,chance=7 "
	    "faults=action=torn,chance=5",
	    MEMORY, seed);
	open_disk(settings);
	for (unsigned i = 0; i < 1000; i++) {
		if (i % 3 == 0)
			write_byte(i * 7 % 1000, 8, 1);
		else
			read_sectors(i * 13 % 1000, 16);
	}
	char *text = log_text();
	close_disk();
	return text;
}

static void
the_same_seed_gives_the_same_faults(void **state)
{
	char *a = log_of_a_run("7"), *b = log_of_a_run("7"),
	     *c = log_of_a_run("8");

	(void)state;
	assert_true(strlen(a) > 5000);
	assert_string_equal(a, b);
	assert_string_not_equal(a, c);
	free(a);
	free(b);
	free(c);
}

static void
a_seed_of_0_is_one_that_can_be_read(void **state)
{
	uint64_t first;

	(void)state;
	open_disk("size=64");
	first = disk->conf.seed;
	assert_true(first != 0);
	assert_int_equal(live("queue/nomerges", "1"), -EINPROGRESS);
	assert_int_equal(
	    disk_settle(disk, now, err, sizeof(err)), -EINPROGRESS);
	while (disk_settle(disk, now, err, sizeof(err)) == -EINPROGRESS) {
		rest(pool, cpu);
		turn(cpu);
	}
	assert_int_equal(disk->conf.seed, first);
	close_disk();
}

static void
the_log_has_the_last_hits(void **state)
{
	char *text;

	(void)state;
	open_disk("size=64");
	rule("op=READ");
	for (int i = 0; i < 1500; i++)
		read_sectors(0, 1);
	text = log_text();
	assert_memory_equal(text, "477 READ 0+1 id=1 error EIO\n", 28);
	free(text);
	close_disk();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(picks_by_op_and_range),
		cmocka_unit_test(counts_after_every_times),
		cmocka_unit_test(hits_as_often_as_it_should),
		cmocka_unit_test(the_newest_that_fires_decides),
		cmocka_unit_test(has_so_many_rules),
		cmocka_unit_test(a_flush_only_when_it_is_named),
		cmocka_unit_test(delays_whatever_irqmode_is),
		cmocka_unit_test(hangs_until_it_is_released),
		cmocka_unit_test(counts_what_hangs_when_it_does),
		cmocka_unit_test(ends_what_hangs_when_it_is_given_up),
		cmocka_unit_test(corrupts_what_is_read_and_not_the_store),
		cmocka_unit_test(
		    corrupts_what_is_written_and_not_the_writers_memory),
		cmocka_unit_test(loses_misdirects_and_tears),
		cmocka_unit_test(marks_where_to_hang_up),
		cmocka_unit_test(goes_together_with_what_puts_it_off),
		cmocka_unit_test(times_out),
		cmocka_unit_test(requeues_once_in_two_ways),
		cmocka_unit_test(fails_to_power_on),
		cmocka_unit_test(the_same_seed_gives_the_same_faults),
		cmocka_unit_test(a_seed_of_0_is_one_that_can_be_read),
		cmocka_unit_test(the_log_has_the_last_hits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
