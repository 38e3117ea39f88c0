/* SPDX-License-Identifier: MIT */
#include "recording.h"

#define DEVICE (254u << 20)
#define OTHER  (8u << 20 | 1)

/* A stream of records, in either byte order. */
struct stream {
	unsigned char bytes[4096];
	size_t len;
	bool swapped;
};

static void
swap_record(struct blktrace_record *r)
{
	r->magic = __builtin_bswap32(r->magic);
	r->sequence = __builtin_bswap32(r->sequence);
	r->time = __builtin_bswap64(r->time);
	r->sector = __builtin_bswap64(r->sector);
	r->bytes = __builtin_bswap32(r->bytes);
	r->action = __builtin_bswap32(r->action);
	r->pid = __builtin_bswap32(r->pid);
	r->device = __builtin_bswap32(r->device);
	r->cpu = __builtin_bswap32(r->cpu);
	r->error = __builtin_bswap16(r->error);
	r->pdu_len = __builtin_bswap16(r->pdu_len);
}

static void
put(struct stream *s, struct blktrace_record r)
{
	size_t payload = r.pdu_len;

	if (r.magic == 0)
		r.magic = BLKTRACE_MAGIC | BLKTRACE_VERSION;
	if (s->swapped)
		swap_record(&r);
	memcpy(s->bytes + s->len, &r, sizeof(r));
	s->len += sizeof(r);
	memset(s->bytes + s->len, 7, payload);
	s->len += payload;
}

#define Q   (TRACE_QUEUE | BLKTRACE_QUEUE)
#define W   (Q | BLKTRACE_WRITE)
#define FUA ((uint32_t)BLKTRACE_FUA)

static void
make(struct stream *s, bool swapped)
{
	*s = (struct stream){ .swapped = swapped };
	put(s,
	    (struct blktrace_record){
		.action = BLKTRACE_NOTIFY | BLKTRACE_NOTE_TIME, .pdu_len = 8 });
	put(s, (struct blktrace_record){ .time = 5000,
		   .sector = 8,
		   .bytes = 4096,
		   .action = Q | BLKTRACE_READ,
		   .pid = 7,
		   .device = DEVICE });
	put(s, (struct blktrace_record){ .time = 5001,
		   .sector = 8,
		   .bytes = 4096,
		   .action = TRACE_GETRQ | BLKTRACE_QUEUE | BLKTRACE_READ,
		   .pid = 7,
		   .device = DEVICE });
	put(s, (struct blktrace_record){ .time = 6000,
		   .sector = 16,
		   .bytes = 512,
		   .action = W | BLKTRACE_SYNC | BLKTRACE_FLUSH | FUA |
			     BLKTRACE_CGROUP,
		   .pid = 8,
		   .device = DEVICE,
		   .pdu_len = 8 });
	put(s, (struct blktrace_record){ .time = 6500,
		   .sector = 1,
		   .bytes = 512,
		   .action = W,
		   .pid = 9,
		   .device = OTHER });
	put(s, (struct blktrace_record){ .time = 7000,
		   .action = W | BLKTRACE_FLUSH,
		   .pid = 7,
		   .device = DEVICE });
	put(s, (struct blktrace_record){
		   .time = 7001, .action = W, .pid = 7, .device = DEVICE });
	put(s, (struct blktrace_record){ .time = 7002,
		   .bytes = 36,
		   .action = Q | BLKTRACE_PC,
		   .device = DEVICE,
		   .pdu_len = 16 });
	put(s, (struct blktrace_record){ .time = 8000,
		   .sector = 64,
		   .bytes = 65536,
		   .action = W | BLKTRACE_DISCARD,
		   .pid = 7,
		   .device = DEVICE });
	put(s, (struct blktrace_record){ .time = 8001,
		   .action = TRACE_UNPLUG | BLKTRACE_QUEUE,
		   .device = DEVICE,
		   .pdu_len = 8 });
}

static void
expect_stream(struct iolog *log)
{
	REC_EXPECT(log,
	    { .op = REQ_OP_READ, .pos = 4096, .bytes = 4096, .task = 7 },
	    { .op = REQ_OP_WRITE,
		.pos = 8192,
		.bytes = 512,
		.ns = 1000,
		.flags = REQ_PREFLUSH | REQ_FUA | REQ_SYNC,
		.task = 8 },
	    { .op = REQ_OP_FLUSH, .ns = 2000, .task = 7 },
	    { .op = REQ_OP_DISCARD,
		.pos = 32768,
		.bytes = 65536,
		.ns = 3000,
		.task = 7 });
	assert_true(log->timed);
	assert_string_equal(log->device, "254,0");
	assert_int_equal(log->nr_ignored, 1);
}

static void
reads_what_was_submitted(void **state)
{
	struct iolog *log;
	struct stream s;
	char where[128];

	(void)state;
	make(&s, false);
	log = rec_read(s.bytes, s.len, NULL);
	expect_stream(log);
	iolog_where(log, &log->io[1], where, sizeof(where));
	rec_hide_path(where);
	assert_string_equal(rec_said, "FILE: record 4 at byte 152");
	iolog_free(log);
}

static void
reads_the_other_byte_order(void **state)
{
	struct iolog *log;
	struct stream s;

	(void)state;
	make(&s, true);
	log = rec_read(s.bytes, s.len, NULL);
	expect_stream(log);
	iolog_free(log);
}

static void
picks_a_device(void **state)
{
	struct iolog *log;
	struct stream s;

	(void)state;
	make(&s, false);
	log = rec_read(s.bytes, s.len, "8,1");
	REC_EXPECT(
	    log, { .op = REQ_OP_WRITE, .pos = 512, .bytes = 512, .task = 9 });
	assert_int_equal(log->nr_ignored, 4);
	iolog_free(log);
}

static void
write_nth(const char *base, unsigned n, const struct stream *s)
{
	char path[128];

	snprintf(path, sizeof(path), "%s.blktrace.%u", base, n);
	rec_write(path, s->bytes, s->len);
}

static void
unlink_nth(const char *base, unsigned n)
{
	char path[128];

	snprintf(path, sizeof(path), "%s.blktrace.%u", base, n);
	unlink(path);
}

/* Of CPU 0, 1 and 2; 1 had nothing to do. */
static void
merges_the_files_of_cpus_by_time(void **state)
{
	struct stream s[3] = {};
	struct iolog *log;
	char where[128];
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++)
		put(&s[i % 2 * 2],
		    (struct blktrace_record){ .time = 1000 * (i / 2 * 2),
			.sector = i,
			.bytes = 512,
			.action = W,
			.pid = i,
			.device = DEVICE });
	snprintf(
	    rec_path, sizeof(rec_path), "/tmp/nullbd-recording-%d", getpid());
	for (i = 0; i < 3; i++)
		write_nth(rec_path, i, &s[i]);
	log = rec_read_path(rec_path, NULL);
	REC_EXPECT(log,
	    { .op = REQ_OP_WRITE, .pos = 0, .bytes = 512, .task = 0 },
	    { .op = REQ_OP_WRITE, .pos = 512, .bytes = 512, .task = 1 },
	    { .op = REQ_OP_WRITE,
		.pos = 1024,
		.bytes = 512,
		.task = 2,
		.ns = 2000 },
	    { .op = REQ_OP_WRITE,
		.pos = 1536,
		.bytes = 512,
		.task = 3,
		.ns = 2000 });
	iolog_where(log, &log->io[3], where, sizeof(where));
	rec_hide_path(where);
	assert_string_equal(rec_said, "FILE.blktrace.2: record 2 at byte 48");
	iolog_free(log);

	s[2].len--;
	write_nth(rec_path, 2, &s[2]);
	assert_null(rec_read_path(rec_path, NULL));
	assert_string_equal(rec_said,
	    "FILE.blktrace.2: record 2 at byte 48: cut off: 47 bytes of the "
	    "48 of its header\n");
	for (i = 0; i < 3; i++)
		unlink_nth(rec_path, i);
}

static void
believes_no_length(void **state)
{
	struct stream s = {};

	(void)state;
	put(&s, (struct blktrace_record){
		    .bytes = 512, .action = W, .device = DEVICE });
	rec_refuses(s.bytes, 20,
	    "FILE: record 1 at byte 0: cut off: 20 bytes of the 48 of its "
	    "header\n");
	put(&s,
	    (struct blktrace_record){
		.bytes = 512, .action = W, .device = DEVICE, .pdu_len = 40 });
	rec_refuses(s.bytes, s.len - 1,
	    "FILE: record 2 at byte 48: cut off: 39 bytes of the 40 of its "
	    "payload\n");
	s.bytes[48 + 46] = s.bytes[48 + 47] = 0xff;
	rec_refuses(s.bytes, s.len,
	    "FILE: record 2 at byte 48: cut off: 40 bytes of the 65535 of its "
	    "payload\n");
}

static void
names_what_is_wrong_with_a_record(void **state)
{
	struct stream s = {};
	unsigned char magic[48] = { 7, 't', 'a', 'x' };

	(void)state;
	rec_refuses(magic, sizeof(magic),
	    "FILE: record 1 at byte 0: magic: 0x78617407: allowed: "
	    "0x65617407, in either byte order\n");
	put(&s, (struct blktrace_record){
		    .magic = BLKTRACE_MAGIC | 6, .bytes = 512, .action = W });
	rec_refuses(s.bytes, s.len,
	    "FILE: record 1 at byte 0: magic: 0x65617406: allowed: "
	    "0x65617407, in either byte order\n");
	s.len = 0;
	put(&s, (struct blktrace_record){
		    .sector = UINT64_C(1) << 55, .bytes = 512, .action = W });
	rec_refuses(s.bytes, s.len,
	    "FILE: record 1 at byte 0: sector: allowed: below 2^55\n");
	s.len = 0;
	put(&s, (struct blktrace_record){
		    .sector = UINT64_C(1) << 54, .bytes = 512, .action = W });
	rec_refuses(s.bytes, s.len,
	    "FILE: record 1 at byte 0: 512 bytes at 9223372036854775808: "
	    "allowed: an end below 2^63\n");
	s.len = 0;
	put(&s, (struct blktrace_record){
		    .time = UINT64_MAX, .bytes = 512, .action = W });
	rec_refuses(s.bytes, s.len,
	    "FILE: record 1 at byte 0: time: 18446744073709551615 ns: "
	    "allowed: at most 4611686018427387903\n");
	s.len = 0;
	put(&s, (struct blktrace_record){ .action = BLKTRACE_NOTIFY });
	rec_refuses(s.bytes, s.len, "FILE: no I/O in it\n");
}

static void
bears_every_change(void **state)
{
	struct stream s;

	(void)state;
	make(&s, false);
	rec_mutate(s.bytes, s.len);
	make(&s, true);
	rec_mutate(s.bytes, s.len);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_what_was_submitted),
		cmocka_unit_test(reads_the_other_byte_order),
		cmocka_unit_test(picks_a_device),
		cmocka_unit_test(merges_the_files_of_cpus_by_time),
		cmocka_unit_test(believes_no_length),
		cmocka_unit_test(names_what_is_wrong_with_a_record),
		cmocka_unit_test(bears_every_change),
	};

	return cmocka_run_group_tests_name("blkread", tests, NULL, NULL);
}
