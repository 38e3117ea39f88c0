/* SPDX-License-Identifier: MIT */
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

#include "unit/host.h"

#define KIB    1024u
#define MIB    (1024u * KIB)
#define SECTOR 512u

static struct machine *machine;
static struct cpu *cpu;
static struct page_pool *pool;
static struct disk *disk; /* NULL: off */
static char err[256];

struct io {
	struct bio bio;
	struct bvec bv[BIO_MAX_VECS];
	struct cpu *cpu;
	bool ended;
};

static void
open_host(unsigned nr_cpus)
{
	machine = host_new(nr_cpus);
	cpu = &machine->cpu[0];
	epoch_enter(&machine->epoch, 0);
	pool = page_pool_new(machine, 256 * MIB);
	disk = NULL;
}

static void
open_disk(const char *settings)
{
	open_host(1);
	disk = host_disk(machine, pool, settings);
}

static void
close_disk(void)
{
	disk_free(disk);
	epoch_leave(&machine->epoch, 0);
	page_pool_free(pool);
	machine_free(machine);
}

static void
io_ended(struct bio *bio, struct cpu *c, uint64_t now)
{
	(void)c;
	(void)now;
	((struct io *)bio->priv)->ended = true;
}

/* As one bio, of sectors.  base NULL: of a read the driver says where. */
static struct io *
io_new(enum req_op op, uint64_t sector, uint64_t nr, void *base)
{
	struct io *io = calloc(1, sizeof(*io));

	io->cpu = cpu;
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
	return io;
}

static int
io_finish(struct io *io, uint64_t now)
{
	uint64_t next;
	int error;

	while (!io->ended) {
		next = cpu_run(io->cpu, now);
		if (next != CPU_NO_DEADLINE && next > now)
			now = next;
	}
	error = io->bio.error;
	bio_release(&io->bio, io->cpu);
	free(io);
	return error;
}

static int
doio(enum req_op op, uint64_t sector, uint64_t nr, void *base)
{
	struct io *io = io_new(op, sector, nr, base);

	assert_int_equal(queue_submit(disk->queue, cpu, NULL, &io->bio, 1), 0);
	return io_finish(io, 1);
}

static int
write_byte(uint64_t sector, uint64_t nr, int byte)
{
	char *data = malloc(nr * SECTOR);
	int error;

	memset(data, byte, nr * SECTOR);
	error = doio(REQ_OP_WRITE, sector, nr, data);
	free(data);
	return error;
}

static int
read_into(uint64_t sector, uint64_t nr, unsigned char *data)
{
	memset(data, 0xaa, nr * SECTOR);
	return doio(REQ_OP_READ, sector, nr, data);
}

/* The same where the driver says where the data is. */
static int
read_where(uint64_t sector, uint64_t nr, unsigned char *data)
{
	struct io *io = io_new(REQ_OP_READ, sector, nr, NULL);
	size_t at = 0;

	memset(data, 0xaa, nr * SECTOR);
	assert_int_equal(queue_submit(disk->queue, cpu, NULL, &io->bio, 1), 0);
	while (!io->ended)
		cpu_run(cpu, 1);
	for (unsigned i = 0; i < io->bio.nr_iov; i++) {
		memcpy(
		    data + at, io->bio.iov[i].iov_base, io->bio.iov[i].iov_len);
		at += io->bio.iov[i].iov_len;
	}
	if (io->bio.error == 0 && STAILQ_EMPTY(&io->bio.pieces))
		assert_int_equal(at, nr * SECTOR);
	return io_finish(io, 1);
}

static int
set(const char *name, const char *value)
{
	err[0] = '\0';
	return disk_set(disk, name, value, 1, err, sizeof(err));
}

static int
manage(enum zone_op op, uint64_t sector, uint64_t nr)
{
	return zones_manage(disk->zones, op, sector * SECTOR, nr * SECTOR);
}

static const char *const cond_names[16] = {
	[ZONE_NOT_WP] = "NOT_WP",
	[ZONE_EMPTY] = "EMPTY",
	[ZONE_IMP_OPEN] = "IMP_OPEN",
	[ZONE_EXP_OPEN] = "EXP_OPEN",
	[ZONE_CLOSED] = "CLOSED",
	[ZONE_READONLY] = "READONLY",
	[ZONE_FULL] = "FULL",
	[ZONE_OFFLINE] = "OFFLINE",
};

/* As the recording has it: but those that are empty or conventional. */
static const char *
report(uint64_t from, unsigned max)
{
	static char text[4096];
	struct zone_info z;
	size_t at = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < zones_nr(disk->zones); i++) {
		zones_info(disk->zones, i, &z);
		if (z.start + z.len <= from * SECTOR || max-- == 0)
			continue;
		if (z.cond == ZONE_NOT_WP ||
		    (z.cond == ZONE_EMPTY && z.wp == z.start))
			continue;
		at += (size_t)snprintf(text + at, sizeof(text) - at,
		    "%s%u:S/%s/", at > 0 ? " " : "", i, cond_names[z.cond]);
		if (z.wp == UINT64_MAX)
			at += (size_t)snprintf(
			    text + at, sizeof(text) - at, "inv");
		else
			at += (size_t)snprintf(text + at, sizeof(text) - at,
			    "%llu",
			    (unsigned long long)(z.wp - z.start) / SECTOR);
		at += (size_t)snprintf(text + at, sizeof(text) - at, "/%llu",
		    (unsigned long long)z.capacity / SECTOR);
	}
	return at > 0 ? text : "(all empty)";
}

static void
assert_report(const char *wanted)
{
	assert_string_equal(report(0, UINT32_MAX), wanted);
}

/* ----------------------------------------------------- what kernels answered
 */

/* "OK data=5a+ff": which bytes there are. */
static const char *
describe(int error, const unsigned char *data, size_t len)
{
	static char text[64];
	bool has[256] = { false };
	size_t at;

	if (error != 0)
		return strerrorname_np(-error);
	for (size_t i = 0; i < len; i++)
		has[data[i]] = true;
	at = (size_t)snprintf(text, sizeof(text), "OK data=");
	for (unsigned i = 0, nr = 0; i < 256; i++)
		if (has[i])
			at += (size_t)snprintf(text + at, sizeof(text) - at,
			    "%s%02x", nr++ > 0 ? "+" : "", i);
	return text;
}

static const char *
error_name(int error)
{
	return error == 0 ? "OK" : strerrorname_np(-error);
}

static int
run_set(char *setting)
{
	char *value = setting, *name = strsep(&value, "=");
	struct disk *off;
	int ret;

	if (disk != NULL)
		return set(name, value);
	off = disk_new("nullb0", machine, pool);
	ret = disk_set(off, name, value, 1, err, sizeof(err));
	disk_free(off);
	return ret;
}

static unsigned nr_managed; /* requests to manage that Linux would have made */

static int
run_manage(enum zone_op op, uint64_t sector, uint64_t nr)
{
	int error = manage(op, sector, nr);
	bool all = op == ZONE_RESET && nr * SECTOR == disk_size(disk);

	if (error != -EINVAL)
		nr_managed += all ? 1 : (unsigned)(nr / 8192);
	return error;
}

/* What is managed here is no I/O; there each zone is a write of nothing. */
static const char *
run_stat(void)
{
	static char text[128];
	struct queue_stat st;

	stat_read(disk->queue, &st, 1);
	snprintf(text, sizeof(text), "%lu %lu %lu %lu", st.ios[STAT_READ],
	    st.sectors[STAT_READ], st.ios[STAT_WRITE] + nr_managed,
	    st.sectors[STAT_WRITE]);
	return text;
}

/* One row: what it says here. */
static const char *
run_row(const char *command, char *operands)
{
	static unsigned char data[64 * SECTOR];
	static const struct {
		const char *name;
		enum zone_op op;
	} managing[] = { { "open", ZONE_OPEN }, { "close", ZONE_CLOSE },
		{ "finish", ZONE_FINISH }, { "reset", ZONE_RESET } };
	unsigned long a = 0, b = 0;

	if (strcmp(command, "off") == 0) {
		disk_free(disk);
		disk = NULL;
		return "OK";
	}
	if (strcmp(command, "disk") == 0) {
		disk = host_disk(machine, pool, operands);
		nr_managed = 0;
		return "OK";
	}
	if (strcmp(command, "stat") == 0)
		return run_stat();
	if (strcmp(command, "set") == 0)
		return error_name(run_set(operands));
	assert_int_equal(sscanf(operands, "%lu %lu", &a, &b), 2);
	if (strcmp(command, "report") == 0)
		return report(a, (unsigned)b);
	if (strcmp(command, "read") == 0) {
		int error = read_into(a, b, data);

		return describe(error, data, b * SECTOR);
	}
	for (size_t i = 0; i < sizeof(managing) / sizeof(*managing); i++)
		if (strcmp(command, managing[i].name) == 0)
			return error_name(run_manage(managing[i].op, a, b));
	return error_name(
	    write_byte(a, b, strcmp(command, "zero") == 0 ? 0 : 0x5a));
}

static void
answers_as_the_kernel_does(void **state)
{
	FILE *f = fopen("tests/data/zones.tsv", "r");
	char line[1024], *rest, *command, *operands;
	const char *answer;
	int rows = 0, nr = 0;

	(void)state;
	assert_non_null(f);
	open_host(1);
	while (fgets(line, sizeof(line), f) != NULL) {
		nr++;
		if (*line == '#')
			continue;
		line[strcspn(line, "\n")] = '\0';
		rest = line;
		command = strsep(&rest, "\t");
		operands = strsep(&rest, "\t");
		answer = run_row(command, operands);
		/* without memory it is zeros, not what was in the buffer */
		if (strcmp(rest, "OK data=aa") == 0)
			strcpy(rest, "OK data=00");
		if (strcmp(rest, "-") != 0 && strcmp(answer, rest) != 0)
			fail_msg("line %d: %s: %s, not %s", nr, command, answer,
			    rest);
		rows++;
	}
	fclose(f);
	assert_true(rows > 450);
	close_disk();
}

/* ------------------------------------------------- each op, each condition */

#define ZONE 8192u /* sectors */
#define WP   16u   /* where the pointer is, unless it is empty or full */

/* Zone 1 comes into a condition. */
static void
bring_to(enum zone_cond cond)
{
	char sector[16];

	snprintf(sector, sizeof(sector), "%u", ZONE);
	if (cond == ZONE_EMPTY)
		return;
	if (cond == ZONE_FULL) {
		assert_int_equal(manage(ZONE_FINISH, ZONE, ZONE), 0);
		return;
	}
	assert_int_equal(write_byte(ZONE, WP, 0x11), 0);
	if (cond == ZONE_EXP_OPEN)
		assert_int_equal(manage(ZONE_OPEN, ZONE, ZONE), 0);
	if (cond == ZONE_CLOSED)
		assert_int_equal(manage(ZONE_CLOSE, ZONE, ZONE), 0);
	if (cond == ZONE_READONLY)
		assert_int_equal(set("zone_readonly", sector), 0);
	if (cond == ZONE_OFFLINE)
		assert_int_equal(set("zone_offline", sector), 0);
}

static void
assert_cond(unsigned i, enum zone_cond cond, uint64_t wp)
{
	struct zone_info z;

	zones_info(disk->zones, i, &z);
	if (z.cond != cond || (wp != UINT64_MAX && z.wp != z.start + wp))
		fail_msg("zone %u: %s at %llu", i, cond_names[z.cond],
		    (unsigned long long)(z.wp - z.start));
}

static int
append(uint64_t zone_sector, uint64_t nr, uint64_t *sector)
{
	static char data[255 * SECTOR];
	struct io *io = io_new(REQ_OP_WRITE, zone_sector, nr, data);

	memset(data, 0x44, sizeof(data));
	io->bio.flags |= REQ_APPEND;
	assert_int_equal(queue_submit(disk->queue, cpu, NULL, &io->bio, 1), 0);
	while (!io->ended)
		cpu_run(cpu, 1);
	if (sector != NULL)
		*sector = io->bio.pos / SECTOR;
	return io_finish(io, 1);
}

/* What may be done to it. */
enum deed {
	APPEND,
	WRITE_AT_WP,
	WRITE_BELOW,
	WRITE_ABOVE,
	WRITE_REST, /* of the capacity */
	WRITE_TOO_MUCH,
	DO_OPEN,
	DO_CLOSE,
	DO_FINISH,
	DO_RESET,
	DO_RESET_ALL,
	DO_TRIM,
	DO_READ,
	DEEDS
};

static int
perform(enum deed deed, uint64_t wp)
{
	static unsigned char data[16 * SECTOR];
	uint64_t pos = ZONE + wp, cap = 6144; /* sectors: of 8192 */
	uint64_t left = wp < cap ? cap - wp : 0, n;
	int error = 0;

	switch (deed) {
	case APPEND: return append(ZONE, 8, NULL);
	case WRITE_AT_WP: return write_byte(pos, 8, 1);
	case WRITE_BELOW: return write_byte(wp > 0 ? pos - 8 : pos + 8, 8, 1);
	case WRITE_ABOVE: return write_byte(pos + 8, 8, 1);
	case WRITE_REST:
		for (; error == 0 && (left > 0 || wp >= cap); left -= n) {
			n = left > 2048 ? 2048 : left;
			if (n == 0)
				return write_byte(pos, 8, 1);
			error = write_byte(ZONE + cap - left, n, 1);
		}
		return error;
	case WRITE_TOO_MUCH:
		for (; left > 8 && error == 0; left -= n) {
			n = left - 8 > 2048 ? 2048 : left - 8;
			error = write_byte(ZONE + cap - left, n, 1);
		}
		return error != 0 ? error
				  : write_byte(ZONE + cap - left, 16, 1);
	case DO_OPEN: return manage(ZONE_OPEN, ZONE, ZONE);
	case DO_CLOSE: return manage(ZONE_CLOSE, ZONE, ZONE);
	case DO_FINISH: return manage(ZONE_FINISH, ZONE, ZONE);
	case DO_RESET: return manage(ZONE_RESET, ZONE, ZONE);
	case DO_RESET_ALL: return manage(ZONE_RESET, 0, 4 * ZONE);
	case DO_TRIM: return doio(REQ_OP_DISCARD, ZONE, ZONE, NULL);
	case DO_READ: return read_into(ZONE, 16, data);
	case DEEDS: break;
	}
	return 0;
}

/* The table of the notes, 1.8. */
static void
does_in_each_condition_what_null_blk_does(void **state)
{
	static const enum zone_cond conds[] = { ZONE_EMPTY, ZONE_IMP_OPEN,
		ZONE_EXP_OPEN, ZONE_CLOSED, ZONE_FULL, ZONE_READONLY,
		ZONE_OFFLINE };
	/* the condition after it; 0: it fails and stays */
	static const int after[DEEDS][7] = {
		[APPEND] = { 2, 2, 3, 2, 0, 0, 0 },
		[WRITE_AT_WP] = { 2, 2, 3, 2, 0, 0, 0 },
		[WRITE_BELOW] = { 0, 0, 0, 0, 0, 0, 0 },
		[WRITE_ABOVE] = { 0, 0, 0, 0, 0, 0, 0 },
		[WRITE_REST] = { 14, 14, 14, 14, 0, 0, 0 },
		[WRITE_TOO_MUCH] = { -2, -2, -3, -2, 0, 0, 0 },
		[DO_OPEN] = { 3, 3, 3, 3, 0, 0, 0 },
		[DO_CLOSE] = { 0, 4, 4, 4, 0, 0, 0 },
		[DO_FINISH] = { 14, 14, 14, 14, 14, 0, 0 },
		[DO_RESET] = { 1, 1, 1, 1, 1, 0, 0 },
		[DO_RESET_ALL] = { 1, 1, 1, 1, 1, 13, 15 },
		[DO_TRIM] = { 1, 1, 1, 1, 1, 0, 0 },
		[DO_READ] = { 1, 2, 3, 4, 14, 13, 0 },
	};
	uint64_t wp;
	int ret;

	(void)state;
	for (unsigned deed = 0; deed < DEEDS; deed++)
		for (unsigned k = 0; k < 7; k++) {
			int then = after[deed][k];

			open_disk("zoned=1 size=16 zone_size=4 "
				  "zone_capacity=3 memory_backed=1 "
				  "zone_max_open=2 zone_max_active=3");
			bring_to(conds[k]);
			wp = conds[k] == ZONE_EMPTY  ? 0
			     : conds[k] == ZONE_FULL ? 6144
						     : WP;
			ret = perform(deed, wp);
			if (ret != (then > 0 ? 0 : -EIO))
				fail_msg("deed %u of %s: %d", deed,
				    cond_names[conds[k]], ret);
			if (then == 0)
				then = (int)conds[k];
			assert_cond(1, (enum zone_cond)abs(then), UINT64_MAX);
			assert_cond(0, ZONE_EMPTY, 0);
			close_disk();
		}
}

static void
moves_the_pointer_where_null_blk_moves_it(void **state)
{
	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 zone_capacity=3 "
		  "memory_backed=1");
	bring_to(ZONE_IMP_OPEN);
	assert_cond(1, ZONE_IMP_OPEN, WP * SECTOR);
	assert_int_equal(perform(WRITE_REST, WP), 0);
	assert_cond(1, ZONE_FULL, 3 * MIB); /* by writing: the capacity */
	assert_int_equal(perform(DO_RESET, 0), 0);
	assert_cond(1, ZONE_EMPTY, 0);
	assert_int_equal(perform(DO_FINISH, 0), 0);
	assert_cond(1, ZONE_FULL, 4 * MIB); /* finished: its length */
	assert_int_equal(perform(DO_RESET, 0), 0);
	assert_int_equal(perform(DO_OPEN, 0), 0);
	assert_int_equal(perform(DO_CLOSE, 0), 0);
	assert_cond(1, ZONE_EMPTY, 0); /* nothing was written: not closed */
	close_disk();
	open_disk("zoned=1 size=16 zone_size=4 zone_capacity=3 zone_full=1 "
		  "zone_nr_conv=1");
	assert_cond(0, ZONE_NOT_WP, 4 * MIB);
	assert_cond(1, ZONE_FULL, 3 * MIB);
	assert_cond(3, ZONE_FULL, 3 * MIB);
	close_disk();
}

static void
conventional_zones_are_written_anywhere_and_not_managed(void **state)
{
	unsigned char data[16 * SECTOR];

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 zone_nr_conv=2 "
		  "memory_backed=1");
	assert_int_equal(write_byte(100, 8, 1), 0);
	assert_int_equal(write_byte(8, 8, 2), 0);
	assert_int_equal(write_byte(ZONE - 8, 16, 3), 0); /* across */
	assert_int_equal(read_into(96, 16, data), 0);
	assert_string_equal(describe(0, data, 16 * SECTOR), "OK data=00+01");
	for (enum zone_op op = ZONE_OPEN; op <= ZONE_RESET; op++)
		assert_int_equal(manage(op, 0, ZONE), -EIO);
	/* the others of a range are managed all the same */
	assert_int_equal(manage(ZONE_OPEN, 0, 3 * ZONE), -EIO);
	assert_report("2:S/EXP_OPEN/0/8192");
	/* a trim gives memory back, wherever it is */
	assert_int_equal(doio(REQ_OP_DISCARD, ZONE - 8, 12, NULL), 0);
	assert_int_equal(read_into(ZONE - 8, 16, data), 0);
	assert_string_equal(describe(0, data, 16 * SECTOR), "OK data=00+03");
	assert_int_equal(doio(REQ_OP_DISCARD, 0, 2 * ZONE, NULL), 0);
	assert_int_equal(store_blocks(disk->store), 0);
	close_disk();
}

static void
an_append_goes_to_the_pointer_and_says_where(void **state)
{
	unsigned char data[24 * SECTOR];
	uint64_t sector;

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 zone_nr_conv=1 "
		  "memory_backed=1 zone_append_max_sectors=16");
	assert_int_equal(write_byte(ZONE, 8, 0x11), 0);
	assert_int_equal(append(ZONE, 8, &sector), 0);
	assert_int_equal(sector, ZONE + 8);
	assert_int_equal(append(ZONE, 16, &sector), 0);
	assert_int_equal(sector, ZONE + 16);
	assert_report("1:S/IMP_OPEN/32/8192");
	assert_int_equal(read_into(ZONE + 8, 24, data), 0);
	assert_string_equal(describe(0, data, 24 * SECTOR), "OK data=44");
	/* blk_check_zone_append() */
	assert_int_equal(append(ZONE, 17, NULL), -EIO);    /* too large */
	assert_int_equal(append(ZONE + 8, 8, NULL), -EIO); /* no zone's start */
	assert_int_equal(append(0, 8, NULL), -EIO);        /* conventional */
	assert_report("1:S/IMP_OPEN/32/8192");
	close_disk();
	open_disk("size=16");
	assert_int_equal(append(0, 8, NULL), -EOPNOTSUPP);
	close_disk();
}

static void
refuses_what_is_not_whole_zones(void **state)
{
	(void)state;
	open_disk("zoned=1 size=15 zone_size=4"); /* the last one has 3 */
	assert_int_equal(zones_nr(disk->zones), 4);
	assert_int_equal(manage(ZONE_RESET, 8, ZONE), -EINVAL);
	assert_int_equal(manage(ZONE_RESET, 0, ZONE / 2), -EINVAL);
	assert_int_equal(manage(ZONE_RESET, 0, 0), -EINVAL);
	assert_int_equal(manage(ZONE_RESET, 0, 4 * ZONE), -EINVAL);
	assert_int_equal(manage(ZONE_RESET, 4 * ZONE, ZONE), -EINVAL);
	assert_int_equal(manage(ZONE_RESET, UINT64_MAX / SECTOR, 8), -EINVAL);
	assert_int_equal(manage(ZONE_FINISH, 3 * ZONE, 6144), 0);
	assert_report("3:S/FULL/6144/6144");
	assert_int_equal(manage(ZONE_RESET, 2 * ZONE, ZONE + 6144), 0);
	assert_report("(all empty)");
	close_disk();
}

/* Whole blocks, also of who agreed to none. */
static void
refuses_writes_of_parts_of_blocks(void **state)
{
	struct io *io;
	char data[SECTOR] = "";

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 blocksize=4096");
	assert_int_equal(write_byte(0, 1, 1), -EINVAL);
	io = io_new(REQ_OP_WRITE, 0, 1, data);
	io->bio.bytes = 100;
	assert_int_equal(queue_submit(disk->queue, cpu, NULL, &io->bio, 1), 0);
	assert_int_equal(io_finish(io, 1), -EINVAL);
	assert_report("(all empty)");
	close_disk();
}

/* ---------------------------------------------------------------- resources */

static void
closes_zones_in_turn_that_writers_opened(void **state)
{
	(void)state;
	open_disk("zoned=1 size=32 zone_size=4 zone_max_open=2");
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(write_byte(i * ZONE, 8, 1), 0);
	assert_report("0:S/CLOSED/8/8192 1:S/IMP_OPEN/8/8192 "
		      "2:S/IMP_OPEN/8/8192");
	assert_int_equal(write_byte(8, 8, 1), 0); /* 0 again, in place of 1 */
	assert_report("0:S/IMP_OPEN/16/8192 1:S/CLOSED/8/8192 "
		      "2:S/IMP_OPEN/8/8192");
	assert_int_equal(write_byte(3 * ZONE, 8, 1), 0); /* 2 is next */
	assert_report("0:S/IMP_OPEN/16/8192 1:S/CLOSED/8/8192 "
		      "2:S/CLOSED/8/8192 3:S/IMP_OPEN/8/8192");
	assert_int_equal(manage(ZONE_OPEN, 3 * ZONE, ZONE), 0);
	assert_int_equal(manage(ZONE_OPEN, 4 * ZONE, ZONE), 0);
	assert_report("0:S/CLOSED/16/8192 1:S/CLOSED/8/8192 "
		      "2:S/CLOSED/8/8192 3:S/EXP_OPEN/8/8192 "
		      "4:S/EXP_OPEN/0/8192");
	assert_int_equal(write_byte(5 * ZONE, 8, 1), -ETOOMANYREFS);
	assert_int_equal(manage(ZONE_OPEN, 5 * ZONE, ZONE), -ETOOMANYREFS);
	assert_int_equal(manage(ZONE_FINISH, 5 * ZONE, ZONE), -ETOOMANYREFS);
	close_disk();
}

static void
a_zone_read_only_or_offline_frees_what_it_held(void **state)
{
	(void)state;
	open_disk("zoned=1 size=32 zone_size=4 zone_max_active=2");
	assert_int_equal(write_byte(0, 8, 1), 0);
	assert_int_equal(write_byte(ZONE, 8, 1), 0);
	assert_int_equal(manage(ZONE_CLOSE, ZONE, ZONE), 0);
	assert_int_equal(write_byte(2 * ZONE, 8, 1), -EOVERFLOW);
	assert_int_equal(set("zone_offline", "8192"), 0); /* a closed one */
	assert_int_equal(write_byte(2 * ZONE, 8, 1), 0);
	assert_int_equal(set("zone_readonly", "7"), 0); /* an open one */
	assert_int_equal(write_byte(3 * ZONE, 8, 1), 0);
	assert_int_equal(write_byte(4 * ZONE, 8, 1), -EOVERFLOW);
	assert_int_equal(set("zone_readonly", "0"), 0); /* and back */
	assert_report("1:S/OFFLINE/inv/8192 2:S/IMP_OPEN/8/8192 "
		      "3:S/IMP_OPEN/8/8192");
	assert_int_equal(write_byte(0, 8, 1), -EOVERFLOW);
	close_disk();
}

static void
says_what_zone_readonly_takes(void **state)
{
	struct disk *off;

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 zone_nr_conv=1");
	assert_int_equal(set("zone_readonly", "x"), -EINVAL);
	assert_int_equal(set("zone_readonly", "32768"), -EINVAL);
	assert_string_equal(err,
	    "zone_readonly: \"32768\": allowed: a sector of the device, up to "
	    "32767");
	assert_int_equal(set("zone_offline", "0"), -EINVAL);
	assert_string_equal(err,
	    "zone_offline: \"0\": allowed: no conventional zone, so from 8192 "
	    "on");
	off = disk_new("off", machine, pool);
	assert_int_equal(
	    disk_set(off, "zone_offline", "0", 1, err, sizeof(err)), -EINVAL);
	assert_string_equal(err,
	    "zone_offline: \"0\": allowed: while a device with zoned=1 is on");
	disk_free(off);
	close_disk();
	open_disk("size=16");
	assert_int_equal(set("zone_readonly", "0"), -EINVAL);
	close_disk();
}

/* ---------------------------------------------------------- data, bad blocks
 */

static void
reads_ones_beyond_the_pointer_wherever_it_cuts(void **state)
{
	static unsigned char data[2048 * SECTOR];

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 memory_backed=1 "
		  "max_sectors=4096 max_segments=1024");
	assert_int_equal(write_byte(0, 13, 0x11), 0);
	for (unsigned from = 0; from < 20; from++)
		for (unsigned nr = 1; nr < 40; nr += nr < 20 ? 1 : 17) {
			unsigned mine = from < 13 ? 13 - from : 0;

			for (unsigned way = 0; way < 2; way++) {
				assert_int_equal(
				    way ? read_where(from, nr, data)
					: read_into(from, nr, data),
				    0);
				for (unsigned i = 0; i < nr * SECTOR; i++)
					if (data[i] !=
					    (i < mine * SECTOR ? 0x11 : 0xff))
						fail_msg("%u+%u: byte %u is "
							 "0x%x",
						    from, nr, i, data[i]);
			}
		}
	assert_int_equal(read_where(0, 2048, data), 0);
	assert_int_equal(data[13 * SECTOR - 1], 0x11);
	assert_int_equal(data[13 * SECTOR], 0xff);
	assert_int_equal(data[2048 * SECTOR - 1], 0xff);
	close_disk();
}

/* In memory of the reader's, and in what is not the store's to unpin. */
static void
a_bit_may_flip_beyond_the_pointer(void **state)
{
	unsigned char data[16 * SECTOR];
	char rule[64];

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 memory_backed=1");
	assert_int_equal(write_byte(0, 8, 0x11), 0);
	for (unsigned at = 0; at < sizeof(data); at += SECTOR)
		for (unsigned way = 0; way < 2; way++) {
			snprintf(rule, sizeof(rule),
			    "op=READ,action=corrupt,offset=%u,bit=1", at);
			assert_int_equal(set("faults", "removeall"), 0);
			assert_int_equal(set("faults", rule), 0);
			assert_int_equal(way ? read_where(0, 16, data)
					     : read_into(0, 16, data),
			    0);
			for (unsigned i = 0; i < sizeof(data); i++)
				assert_int_equal(data[i] ^ (i == at ? 2 : 0),
				    i < 8 * SECTOR ? 0x11 : 0xff);
		}
	close_disk();
}

static void
a_changed_append_says_where_it_went(void **state)
{
	unsigned char data[16 * SECTOR];
	uint64_t sector;

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 memory_backed=1");
	assert_int_equal(write_byte(0, 8, 0x11), 0);
	assert_int_equal(
	    set("faults", "op=WRITE,action=corrupt,offset=0,bit=0,times=1"), 0);
	assert_int_equal(append(0, 8, &sector), 0);
	assert_int_equal(sector, 8);
	assert_int_equal(read_into(0, 16, data), 0);
	assert_int_equal(data[8 * SECTOR], 0x45);
	close_disk();
}

/* It goes past the cache, whoever does it. */
static void
no_power_cut_undoes_a_reset(void **state)
{
	unsigned char data[8 * SECTOR];

	(void)state;
	for (int way = 0; way < 3; way++) {
		open_disk("zoned=1 size=16 zone_size=4 memory_backed=1 "
			  "cache_size=1");
		assert_int_equal(write_byte(0, 8, 0x11), 0);
		assert_int_equal(doio(REQ_OP_FLUSH, 0, 0, NULL), 0);
		assert_int_equal(write_byte(8, 4, 0x22), 0);
		if (way == 0)
			assert_int_equal(
			    doio(REQ_OP_DISCARD, 0, ZONE, NULL), 0);
		else
			assert_int_equal(manage(ZONE_RESET, 0, ZONE), 0);
		/* way 2: nobody has given it back yet */
		if (way == 1)
			assert_false(zones_sweep(disk, cpu));
		disk_power_drop(disk);
		assert_int_equal(set("zoned", "0"), 0);
		assert_int_equal(disk_power_on(disk, 1, err, sizeof(err)), 0);
		assert_int_equal(store_blocks(disk->store), 0);
		assert_int_equal(read_into(0, 8, data), 0);
		assert_string_equal(
		    describe(0, data, sizeof(data)), "OK data=00");
		close_disk();
	}
}

static void
gives_the_data_of_a_zone_back_when_it_is_reset(void **state)
{
	static unsigned char data[16 * SECTOR];

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 memory_backed=1");
	/* by a trim: at once */
	assert_int_equal(write_byte(0, 16, 0x11), 0);
	assert_int_equal(doio(REQ_OP_DISCARD, 0, ZONE, NULL), 0);
	assert_int_equal(store_blocks(disk->store), 0);
	/* by who is no cpu: when one sweeps, */
	assert_int_equal(write_byte(0, 16, 0x11), 0);
	assert_int_equal(manage(ZONE_RESET, 0, ZONE), 0);
	assert_true(zones_stale(disk->zones));
	assert_false(zones_sweep(disk, cpu));
	assert_false(zones_stale(disk->zones));
	assert_int_equal(store_blocks(disk->store), 0);
	/* or looks */
	assert_int_equal(write_byte(0, 16, 0x11), 0);
	assert_int_equal(manage(ZONE_RESET, 0, ZONE), 0);
	assert_int_equal(manage(ZONE_FINISH, 0, ZONE), 0);
	assert_int_equal(read_into(0, 16, data), 0);
	assert_string_equal(describe(0, data, 16 * SECTOR), "OK data=00");
	assert_false(zones_stale(disk->zones));
	/* or writes */
	assert_int_equal(manage(ZONE_RESET, 0, ZONE), 0);
	assert_int_equal(write_byte(0, 16, 0x11), 0);
	assert_int_equal(manage(ZONE_RESET, 0, ZONE), 0);
	assert_int_equal(write_byte(0, 8, 0x22), 0);
	assert_int_equal(manage(ZONE_FINISH, 0, ZONE), 0);
	assert_int_equal(read_into(0, 16, data), 0);
	assert_string_equal(describe(0, data, 16 * SECTOR), "OK data=00+22");
	/* a zone that is no longer read-only is empty */
	assert_int_equal(set("zone_readonly", "0"), 0);
	assert_int_equal(read_into(0, 16, data), 0);
	assert_string_equal(describe(0, data, 16 * SECTOR), "OK data=00+22");
	assert_int_equal(set("zone_readonly", "0"), 0);
	(void)zones_sweep(disk, cpu);
	assert_int_equal(store_blocks(disk->store), 0);
	/* one at a time */
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(write_byte(i * ZONE, 8, 1), 0);
	assert_int_equal(manage(ZONE_RESET, 0, 4 * ZONE), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(zones_sweep(disk, cpu), i < 3);
	assert_false(zones_sweep(disk, cpu));
	assert_int_equal(store_blocks(disk->store), 0);
	close_disk();
}

static void
a_trim_of_less_than_a_zone_is_refused(void **state)
{
	(void)state;
	open_disk("zoned=1 size=15 zone_size=4 zone_nr_conv=1 "
		  "memory_backed=1");
	for (unsigned i = 1; i < 4; i++)
		assert_int_equal(write_byte(i * ZONE, 8, 1), 0);
	assert_int_equal(doio(REQ_OP_DISCARD, ZONE, ZONE / 2, NULL), -EINVAL);
	assert_int_equal(doio(REQ_OP_DISCARD, ZONE + 8, ZONE, NULL), -EINVAL);
	assert_int_equal(doio(REQ_OP_DISCARD, ZONE - 8, 16, NULL), -EINVAL);
	assert_report("1:S/IMP_OPEN/8/8192 2:S/IMP_OPEN/8/8192 "
		      "3:S/IMP_OPEN/8/6144");
	/* of several, each is reset that is whole */
	assert_int_equal(
	    doio(REQ_OP_DISCARD, ZONE, 2 * ZONE + 8, NULL), -EINVAL);
	assert_report("3:S/IMP_OPEN/8/6144");
	assert_int_equal(doio(REQ_OP_DISCARD, 2 * ZONE, ZONE + 6144, NULL), 0);
	assert_report("(all empty)");
	close_disk();
}

/* Longer than the kernel's bios are: it is cut between zones. */
static void
a_trim_of_all_is_cut_between_zones(void **state)
{
	static const unsigned at[] = { 0, 511, 512, 1023 };

	(void)state;
	open_disk("zoned=1 size=16G zone_size=16M");
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(write_byte(at[i] * 32768, 8, 1), 0);
	assert_int_equal(doio(REQ_OP_DISCARD, 0, 16u << 21, NULL), 0);
	assert_report("(all empty)");
	close_disk();
}

static void
zone_checks_come_before_those_of_bad_blocks(void **state)
{
	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 memory_backed=1 "
		  "zone_max_open=1 badblocks=+8-8 badblocks=+8192-8192");
	/* after the check of resources: open, but nothing moves */
	assert_int_equal(write_byte(0, 16, 1), -EIO);
	assert_report("0:S/IMP_OPEN/0/8192");
	assert_int_equal(write_byte(0, 8, 1), 0);
	assert_int_equal(write_byte(ZONE, 8, 1), -EIO);
	assert_report("0:S/CLOSED/8/8192 1:S/IMP_OPEN/0/8192");
	/* before it: which bad blocks do not notice */
	assert_int_equal(set("badblocks_once", "1"), 0);
	assert_int_equal(write_byte(ZONE - 8, 8, 1), -EIO);
	assert_int_equal(write_byte(8, 8, 1), -EIO);
	assert_int_equal(write_byte(8, 8, 1), 0);
	/* a reset is none of their business */
	assert_int_equal(doio(REQ_OP_DISCARD, ZONE, ZONE, NULL), 0);
	close_disk();
}

static void
in_part_the_pointer_goes_as_far_as_the_data(void **state)
{
	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 memory_backed=1 "
		  "badblocks=+20-21 badblocks_partial_io=1");
	assert_int_equal(write_byte(0, 32, 1), -EIO);
	assert_report("0:S/IMP_OPEN/20/8192");
	assert_int_equal(write_byte(20, 8, 1), -EIO);
	assert_report("0:S/IMP_OPEN/20/8192");
	assert_int_equal(set("badblocks", "-20-21"), 0);
	assert_int_equal(write_byte(20, 8, 1), 0);
	assert_report("0:S/IMP_OPEN/28/8192");
	close_disk();
}

static void
no_memory_leaves_the_pointer_where_it_was(void **state)
{
	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 memory_backed=1 "
		  "memory_limit=64K");
	assert_int_equal(write_byte(0, 255, 1), -ENOSPC);
	assert_report("0:S/IMP_OPEN/0/8192");
	close_disk();
}

/* ------------------------------------------------------- what clients see */

static void
tells_conditions_pointers_and_capacities_as_extents(void **state)
{
	static const struct {
		uint64_t pos, len;
		uint32_t status;
	} extents[] = {
		{ 0, 4 * MIB, ZONE_NOT_WP },
		{ 4 * MIB, 8 * KIB,
		    ZONE_IMP_OPEN | ZONE_STATUS_SEQUENTIAL |
			ZONE_STATUS_WRITTEN | ZONE_STATUS_ODD },
		{ 4 * MIB + 8 * KIB, 3 * MIB - 8 * KIB,
		    ZONE_IMP_OPEN | ZONE_STATUS_SEQUENTIAL | ZONE_STATUS_ODD },
		{ 7 * MIB, MIB,
		    ZONE_IMP_OPEN | ZONE_STATUS_SEQUENTIAL |
			ZONE_STATUS_BEYOND | ZONE_STATUS_ODD },
		{ 8 * MIB, 3 * MIB,
		    ZONE_FULL | ZONE_STATUS_SEQUENTIAL | ZONE_STATUS_WRITTEN },
		{ 11 * MIB, MIB,
		    ZONE_FULL | ZONE_STATUS_SEQUENTIAL | ZONE_STATUS_WRITTEN |
			ZONE_STATUS_BEYOND },
		{ 12 * MIB, 3 * MIB,
		    ZONE_READONLY | ZONE_STATUS_SEQUENTIAL | ZONE_STATUS_ODD },
		{ 15 * MIB, MIB,
		    ZONE_READONLY | ZONE_STATUS_SEQUENTIAL |
			ZONE_STATUS_BEYOND | ZONE_STATUS_ODD },
		{ 16 * MIB, 3 * MIB, ZONE_EMPTY | ZONE_STATUS_SEQUENTIAL },
		{ 19 * MIB, MIB,
		    ZONE_EMPTY | ZONE_STATUS_SEQUENTIAL | ZONE_STATUS_BEYOND },
	};
	uint64_t len;

	(void)state;
	open_disk("zoned=1 size=20 zone_size=4 zone_capacity=3 zone_nr_conv=1");
	assert_int_equal(write_byte(ZONE, 16, 1), 0);
	assert_int_equal(manage(ZONE_FINISH, 2 * ZONE, ZONE), 0);
	assert_int_equal(set("zone_readonly", "24576"), 0);
	for (size_t i = 0; i < sizeof(extents) / sizeof(*extents); i++) {
		len = UINT64_MAX;
		assert_int_equal(
		    zones_status(disk->zones, extents[i].pos, &len),
		    extents[i].status);
		assert_int_equal(len, extents[i].len);
		len = 100;
		assert_int_equal(
		    zones_status(disk->zones, extents[i].pos + 7, &len),
		    extents[i].status);
		assert_int_equal(len, 100);
	}
	close_disk();
}

/* -------------------------------------------------------- limits, power-on */

static void
refused(const char *settings, const char *wanted)
{
	struct disk *d = disk_new("nullb0", machine, pool);
	char *copy = strdup(settings), *rest = copy, *name, *value;

	while ((value = strsep(&rest, " ")) != NULL) {
		name = strsep(&value, "=");
		assert_int_equal(
		    disk_set(d, name, value, 1, err, sizeof(err)), 0);
	}
	free(copy);
	assert_int_equal(disk_power_on(d, 1, err, sizeof(err)), -EINVAL);
	assert_string_equal(err, wanted);
	disk_free(d);
}

static void
names_what_does_not_fit(void **state)
{
	(void)state;
	open_host(1);
	refused("zoned=1 size=64 zone_size=3",
	    "zone_size: 3145728 bytes: allowed: a power of two from 4 KiB to "
	    "1 TiB");
	refused("zoned=1 size=64",
	    "zone_size: 268435456 bytes: allowed: at most the size "
	    "(67108864)");
	refused("zoned=1 size=8T zone_size=4M",
	    "zone_size: 4194304 bytes: allowed: at most 1048576 zones");
	refused("zoned=1 size=64 zone_size=4 zone_capacity=5",
	    "zone_capacity: 5242880 bytes: allowed: whole blocks, at most the "
	    "zone_size (4194304)");
	refused("zoned=1 size=66 zone_size=4 zone_capacity=3",
	    "zone_capacity: 3145728 bytes: allowed: 0 or the zone_size "
	    "(4194304), as the last zone is shorter");
	refused("zoned=1 size=64 zone_size=4 chunk_sectors=64",
	    "queue/chunk_sectors: 64: allowed: 0 or 8192 (a zone), as zoned "
	    "is set");
	close_disk();
}

static void
no_request_crosses_zones_nor_do_writes_wait_in_a_plug(void **state)
{
	static char data[2][16 * SECTOR];
	struct queue_stat st;
	struct io *io[2];
	struct plug plug;

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 zone_nr_conv=1");
	plug_init(&plug);
	for (unsigned i = 0; i < 2; i++) {
		io[i] = io_new(REQ_OP_WRITE, ZONE - 16 + i * 16, 16, data[i]);
		assert_int_equal(
		    queue_submit(disk->queue, cpu, &plug, &io[i]->bio, 1), 0);
		assert_true(bio_moved(&io[i]->bio));
	}
	plug_flush(&plug, cpu, 1);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(io_finish(io[i], 1), 0);
	stat_read(disk->queue, &st, 1);
	assert_int_equal(st.ios[STAT_WRITE], 2);
	assert_int_equal(st.merges[STAT_WRITE], 0);
	close_disk();
}

/* Halves that would have merged into a zone are halves. */
static void
trims_do_not_merge(void **state)
{
	struct io *io[2];
	struct plug plug;

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4");
	assert_int_equal(write_byte(0, 8, 1), 0);
	plug_init(&plug);
	for (unsigned i = 0; i < 2; i++) {
		io[i] = io_new(REQ_OP_DISCARD, i * ZONE / 2, ZONE / 2, NULL);
		assert_int_equal(
		    queue_submit(disk->queue, cpu, &plug, &io[i]->bio, 1), 0);
	}
	plug_flush(&plug, cpu, 1);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(io_finish(io[i], 1), -EINVAL);
	assert_report("0:S/IMP_OPEN/8/8192");
	close_disk();
}

/* In the bio path nothing is split: a write stays in its zone all the same. */
static void
the_bio_path_keeps_to_zones(void **state)
{
	static unsigned char data[32 * SECTOR];

	(void)state;
	open_disk("zoned=1 size=16 zone_size=4 zone_nr_conv=2 queue_mode=0 "
		  "kernel=6.1 memory_backed=1");
	assert_int_equal(write_byte(ZONE - 16, 32, 1), 0);
	assert_int_equal(write_byte(2 * ZONE - 16, 32, 1), -EIO);
	assert_int_equal(write_byte(2 * ZONE, 16, 2), 0);
	assert_int_equal(write_byte(3 * ZONE, 16, 3), 0);
	assert_int_equal(write_byte(3 * ZONE - 16, 32, 1), -EIO);
	assert_int_equal(read_into(2 * ZONE - 8, 32, data), 0);
	assert_string_equal(describe(0, data, 32 * SECTOR), "OK data=00+02+ff");
	assert_int_equal(set("zone_offline", "24576"), 0);
	assert_int_equal(read_into(3 * ZONE - 16, 32, data), -EIO);
	assert_int_equal(read_into(3 * ZONE - 16, 16, data), 0);
	close_disk();
}

/* ------------------------------------------------------------- several cpus */

/* Even where nothing says that the first piece moves before the second. */
static void
the_pieces_of_a_write_keep_their_order(void **state)
{
	static const char *const settings[] = {
		"zoned=1 size=16 zone_size=4 mbps=4 kernel=6.1",
		"zoned=1 size=16 zone_size=4 mbps=4 scheduler=mq-deadline",
		"zoned=1 size=16 zone_size=4 hw_queue_depth=1 irqmode=2",
	};
	static char data[2048 * SECTOR];
	uint64_t now, next, waited;
	struct io *io;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		open_disk(settings[i]);
		io = io_new(REQ_OP_WRITE, 0, 2048, data);
		waited = 0;
		now = 1;
		while (
		    queue_submit(disk->queue, cpu, NULL, &io->bio, now) != 0) {
			next = cpu_run(cpu, now);
			if (next != CPU_NO_DEADLINE)
				now = next;
			assert_true(++waited < 1000);
		}
		assert_int_equal(io_finish(io, now), 0);
		assert_true(waited > 3);
		assert_report("0:S/IMP_OPEN/2048/8192");
		close_disk();
	}
}

struct hammer {
	pthread_t thread;
	struct cpu *cpu;
	unsigned seed;
	unsigned written; /* zones of its own, to their end */
};

/* Writes its zones in order while others do so with theirs, and read them. */
static void *
hammer(void *arg)
{
	static const unsigned mine = 4, nr = 16; /* zones of 64 KiB */
	struct hammer *h = arg;
	char buf[16 * KIB];

	for (unsigned round = 0; round < 200; round++) {
		unsigned zone = h->cpu->id * mine + round % mine;
		unsigned other = (unsigned)rand_r(&h->seed) % nr;

		epoch_enter(&machine->epoch, h->cpu->id);
		for (unsigned i = 0; i < 4; i++) {
			struct bio bio;

			bio_init(&bio, REQ_OP_WRITE,
			    zone * 64 * KIB + i * sizeof(buf), NULL, 0);
			memset(buf, (int)round, sizeof(buf));
			bio_add_payload(&bio, true, UINT64_C(1) << 40, 2, 0,
			    buf, sizeof(buf));
			bio.end_io = io_ended;
			struct io done = { .ended = false };

			bio.priv = &done;
			if (queue_submit(disk->queue, h->cpu, NULL, &bio, 1) !=
			    0)
				return NULL;
			while (!done.ended)
				cpu_run(h->cpu, 1);
			h->written += bio.error == 0;
			bio_release(&bio, h->cpu);
		}
		(void)zones_readable(disk->zones, other * 64 * KIB, 64 * KIB);
		(void)zones_manage(
		    disk->zones, ZONE_RESET, zone * 64 * KIB, 64 * KIB);
		epoch_leave(&machine->epoch, h->cpu->id);
		while (page_pool_idle(pool, h->cpu))
			;
	}
	return NULL;
}

static void
several_cpus_write_their_zones_under_a_limit(void **state)
{
	struct hammer h[4] = {};

	(void)state;
	open_host(4);
	epoch_leave(&machine->epoch, 0);
	disk = host_disk(machine, pool,
	    "zoned=1 size=1 zone_size=64K zone_max_open=2 memory_backed=1 "
	    "submit_queues=4");
	for (unsigned i = 0; i < 4; i++) {
		h[i].cpu = &machine->cpu[i];
		h[i].seed = i;
		pthread_create(&h[i].thread, NULL, hammer, &h[i]);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(h[i].thread, NULL);
		/* another's takes its place, but it stays active: none fails */
		assert_int_equal(h[i].written, 800);
	}
	assert_report("(all empty)");
	close_disk();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_as_the_kernel_does),
		cmocka_unit_test(does_in_each_condition_what_null_blk_does),
		cmocka_unit_test(moves_the_pointer_where_null_blk_moves_it),
		cmocka_unit_test(
		    conventional_zones_are_written_anywhere_and_not_managed),
		cmocka_unit_test(an_append_goes_to_the_pointer_and_says_where),
		cmocka_unit_test(refuses_what_is_not_whole_zones),
		cmocka_unit_test(refuses_writes_of_parts_of_blocks),
		cmocka_unit_test(closes_zones_in_turn_that_writers_opened),
		cmocka_unit_test(
		    a_zone_read_only_or_offline_frees_what_it_held),
		cmocka_unit_test(says_what_zone_readonly_takes),
		cmocka_unit_test(
		    reads_ones_beyond_the_pointer_wherever_it_cuts),
		cmocka_unit_test(a_bit_may_flip_beyond_the_pointer),
		cmocka_unit_test(a_changed_append_says_where_it_went),
		cmocka_unit_test(no_power_cut_undoes_a_reset),
		cmocka_unit_test(
		    gives_the_data_of_a_zone_back_when_it_is_reset),
		cmocka_unit_test(a_trim_of_less_than_a_zone_is_refused),
		cmocka_unit_test(a_trim_of_all_is_cut_between_zones),
		cmocka_unit_test(zone_checks_come_before_those_of_bad_blocks),
		cmocka_unit_test(in_part_the_pointer_goes_as_far_as_the_data),
		cmocka_unit_test(no_memory_leaves_the_pointer_where_it_was),
		cmocka_unit_test(
		    tells_conditions_pointers_and_capacities_as_extents),
		cmocka_unit_test(names_what_does_not_fit),
		cmocka_unit_test(
		    no_request_crosses_zones_nor_do_writes_wait_in_a_plug),
		cmocka_unit_test(trims_do_not_merge),
		cmocka_unit_test(the_bio_path_keeps_to_zones),
		cmocka_unit_test(the_pieces_of_a_write_keep_their_order),
		cmocka_unit_test(several_cpus_write_their_zones_under_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
