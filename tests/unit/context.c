/* SPDX-License-Identifier: MIT */
/* Metadata contexts: how they are picked, and what is said of them. */
#include "client.h"

/* What the exports have: data in the second half of each 64 KiB; stripes. */
static uint32_t
allocation(const struct nbd_export *e, struct cpu *cpu, uint64_t pos,
    uint64_t *len, unsigned *steps)
{
	uint64_t left = 32768 - pos % 32768;

	(void)e;
	(void)cpu;
	(*steps)--;
	if (*len > left)
		*len = left;
	return pos % 65536 < 32768 ? 3 : 0;
}

/* The same everywhere, but it does not look far. */
static uint32_t
short_sighted(const struct nbd_export *e, struct cpu *cpu, uint64_t pos,
    uint64_t *len, unsigned *steps)
{
	(void)e;
	(void)cpu;
	(void)pos;
	(*steps)--;
	if (*len > 512)
		*len = 512;
	return 77;
}

static uint32_t
all_the_same(const struct nbd_export *e, struct cpu *cpu, uint64_t pos,
    uint64_t *len, unsigned *steps)
{
	(void)e;
	(void)cpu;
	(void)pos;
	(void)len;
	(*steps)--;
	return 3;
}

static const struct nbd_context contexts[] = {
	{ "base:allocation", allocation },
	{ "x-test:far", all_the_same },
	{ "x-test:near", short_sighted },
	{},
};

static struct client *
options_begin(bool structured)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };

	c->export[0].contexts = contexts;
	c->export[1] = c->export[0];
	c->export[1].name = "other";
	c->nr_exports = 2;
	bytes_be(&b, 3, 4);
	if (structured)
		add_option(&b, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
	client_send(c, &b);
	expect_greeting(c);
	if (structured)
		expect_ack(c, NBD_OPT_STRUCTURED_REPLY);
	return c;
}

static void
expect_context(struct client *c, uint32_t nr, uint32_t id, const char *name)
{
	uint32_t len;
	const char *p = expect_option(c, nr, NBD_REP_META_CONTEXT, &len);

	assert_int_equal(get_be32(p), id);
	assert_int_equal(len, 4 + strlen(name));
	assert_memory_equal(p + 4, name, len - 4);
}

static void
expect_only_error(struct client *c, uint32_t nr, uint32_t type)
{
	expect_error(c, nr, type);
	expect_no_more(c);
}

static void
test_lists(void **state)
{
	struct client *c = options_begin(false);
	struct bytes b = { 0 };

	(void)state;
	add_contexts(&b, NBD_OPT_LIST_META_CONTEXT, "disk", NULL);
	add_contexts(
	    &b, NBD_OPT_LIST_META_CONTEXT, "", "x-test:", "base:", NULL);
	add_contexts(&b, NBD_OPT_LIST_META_CONTEXT, "", "x-test:far", "x-test",
	    "x-test:fa", "", ":", "qemu:", "base:nothing", "x-test:far", NULL);
	client_send(c, &b);
	expect_context(c, NBD_OPT_LIST_META_CONTEXT, 0, "base:allocation");
	expect_context(c, NBD_OPT_LIST_META_CONTEXT, 0, "x-test:far");
	expect_context(c, NBD_OPT_LIST_META_CONTEXT, 0, "x-test:near");
	expect_ack(c, NBD_OPT_LIST_META_CONTEXT);
	expect_context(c, NBD_OPT_LIST_META_CONTEXT, 0, "base:allocation");
	expect_context(c, NBD_OPT_LIST_META_CONTEXT, 0, "x-test:far");
	expect_context(c, NBD_OPT_LIST_META_CONTEXT, 0, "x-test:near");
	expect_ack(c, NBD_OPT_LIST_META_CONTEXT);
	expect_context(c, NBD_OPT_LIST_META_CONTEXT, 0, "x-test:far");
	expect_ack(c, NBD_OPT_LIST_META_CONTEXT);
	expect_no_more(c);
	client_free(c);
}

static void
test_sets(void **state)
{
	struct client *c = options_begin(true);
	struct bytes b = { 0 };

	(void)state;
	add_contexts(&b, NBD_OPT_SET_META_CONTEXT, "", "x-test:near",
	    "base:", "base:allocation", "x-test:near", "what?", NULL);
	client_send(c, &b);
	expect_context(c, NBD_OPT_SET_META_CONTEXT, 1, "base:allocation");
	expect_context(c, NBD_OPT_SET_META_CONTEXT, 3, "x-test:near");
	expect_ack(c, NBD_OPT_SET_META_CONTEXT);
	expect_no_more(c);
	assert_int_equal(context_chosen(c->session, &c->export[0]), 5);
	assert_int_equal(context_chosen(c->session, &c->export[1]), 0);
	add_contexts(&b, NBD_OPT_SET_META_CONTEXT, "other", "base:", NULL);
	client_send(c, &b);
	expect_ack(c, NBD_OPT_SET_META_CONTEXT);
	assert_int_equal(context_chosen(c->session, &c->export[0]), 0);
	client_free(c);
}

static void
test_failing_set_clears(void **state)
{
	struct client *c = options_begin(true);
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++) {
		add_contexts(
		    &b, NBD_OPT_SET_META_CONTEXT, "", "base:allocation", NULL);
		client_send(c, &b);
		expect_context(
		    c, NBD_OPT_SET_META_CONTEXT, 1, "base:allocation");
		expect_ack(c, NBD_OPT_SET_META_CONTEXT);
		assert_int_equal(context_chosen(c->session, &c->export[0]), 1);
		if (i == 0)
			add_contexts(
			    &b, NBD_OPT_SET_META_CONTEXT, "nope", NULL);
		if (i == 1)
			add_option(&b, NBD_OPT_SET_META_CONTEXT, "abc", 3);
		if (i == 2)
			add_contexts(&b, NBD_OPT_SET_META_CONTEXT, "", NULL);
		client_send(c, &b);
		if (i == 2)
			expect_ack(c, NBD_OPT_SET_META_CONTEXT);
		else
			expect_only_error(c, NBD_OPT_SET_META_CONTEXT,
			    i == 0 ? NBD_REP_ERR_UNKNOWN : NBD_REP_ERR_INVALID);
		assert_int_equal(context_chosen(c->session, &c->export[0]), 0);
	}
	client_free(c);
}

static void
test_malformed(void **state)
{
	struct client *c = options_begin(true);
	static const struct {
		const char *data;
		size_t len;
	} bad[] = {
		{ "", 0 },
		{ "\0\0\0", 3 },
		{ "\0\0\0\0", 4 },
		{ "\0\0\0\0\0\0\0", 7 },
		{ "\xff\xff\xff\xff\0\0\0\0", 8 },
		{ "\0\0\0\5disk\0\0\0\0", 12 },
		{ "\0\0\0\4d\0sk\0\0\0\0", 12 },
		{ "\0\0\0\0\xff\xff\xff\xff", 8 },
		{ "\0\0\0\0\0\0\0\1", 8 },
		{ "\0\0\0\0\0\0\0\1\0\0\0", 11 },
		{ "\0\0\0\0\0\0\0\1\0\0\3\350base:", 17 },
		{ "\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
		  "base:",
		    17 },
		{ "\0\0\0\0\0\0\0\0x", 9 },
		{ "\0\0\0\0\0\0\0\1\0\0\0\1xy", 14 },
	};
	struct bytes b = { 0 }, d = { 0 };
	unsigned i, nr;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (nr = 9; nr <= 10; nr++) {
			add_option(&b, nr, bad[i].data, bad[i].len);
			client_send(c, &b);
			expect_only_error(c, nr, NBD_REP_ERR_INVALID);
		}
	bytes_be(&d, 0, 4); /* N94 */
	bytes_be(&d, 1, 4);
	bytes_be(&d, 4097, 4);
	bytes_fill(&d, 'q', 4097);
	add_option(&b, NBD_OPT_LIST_META_CONTEXT, d.p, d.len);
	client_send(c, &b);
	expect_only_error(c, NBD_OPT_LIST_META_CONTEXT, NBD_REP_ERR_INVALID);
	bytes_free(&d);
	client_free(c);
}

static void
test_needs_structured(void **state)
{
	struct client *c = options_begin(false);
	struct bytes b = { 0 };

	(void)state;
	add_contexts(&b, NBD_OPT_SET_META_CONTEXT, "", "base:allocation", NULL);
	client_send(c, &b);
	expect_only_error(c, NBD_OPT_SET_META_CONTEXT, NBD_REP_ERR_INVALID);
	add_option(&b, NBD_OPT_EXTENDED_HEADERS, NULL, 0);
	add_contexts(&b, NBD_OPT_SET_META_CONTEXT, "", "base:allocation", NULL);
	client_send(c, &b);
	expect_ack(c, NBD_OPT_EXTENDED_HEADERS);
	expect_context(c, NBD_OPT_SET_META_CONTEXT, 1, "base:allocation");
	expect_ack(c, NBD_OPT_SET_META_CONTEXT);
	client_free(c);
}

/* ----------------------------------------------------------- BLOCK_STATUS */

static struct client *
status_begin(const char *context, uint64_t size)
{
	struct client *c = client_new(NULL);

	c->export[0].contexts = contexts;
	c->export[0].size = size;
	client_speak(c, context);
	return c;
}

/* The next descriptor. */
static void
expect_extent(const char **p, uint64_t len, uint64_t status)
{
	bool extended = (speaks & NBD_FEATURE_EXTENDED) != 0;
	unsigned width = extended ? 8 : 4;

	assert_true((extended ? get_be64(*p) : get_be32(*p)) == len);
	*p += width;
	assert_true((extended ? get_be64(*p) : get_be32(*p)) == status);
	*p += width;
}

/* The chunk of a context with so many descriptors. */
static const char *
expect_status(
    struct client *c, uint64_t offset, uint32_t id, unsigned nr, bool last)
{
	bool extended = (speaks & NBD_FEATURE_EXTENDED) != 0;
	uint64_t len;
	const char *p = expect_chunk(c, 7, offset,
	    extended ? NBD_CHUNK_BLOCK_STATUS_EXT : NBD_CHUNK_BLOCK_STATUS,
	    last, &len);

	assert_int_equal(get_be32(p), id);
	if (extended) {
		assert_int_equal(get_be32(p + 4), nr);
		assert_int_equal(len, 8 + 16 * nr);
		return p + 8;
	}
	assert_int_equal(len, 4 + 8 * nr);
	return p + 4;
}

static void
status_in_turn(void)
{
	struct client *c = status_begin("base:allocation", FAKE_SIZE);
	const char *p;

	assert_int_equal(nbd_features(c->session) & NBD_FEATURE_CONTEXTS,
	    NBD_FEATURE_CONTEXTS);
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 1024, 131072);
	p = expect_status(c, 1024, 1, 5, true);
	expect_extent(&p, 32768 - 1024, 3);
	expect_extent(&p, 32768, 0);
	expect_extent(&p, 32768, 3);
	expect_extent(&p, 32768, 0);
	expect_extent(&p, 1024, 3);
	client_request(
	    c, NBD_CMD_BLOCK_STATUS, NBD_CMD_FLAG_REQ_ONE, 7, 1024, 131072);
	p = expect_status(c, 1024, 1, 1, true);
	expect_extent(&p, 32768 - 1024, 3);
	client_request(
	    c, NBD_CMD_BLOCK_STATUS, NBD_CMD_FLAG_REQ_ONE, 7, 0, 512);
	p = expect_status(c, 0, 1, 1, true);
	expect_extent(&p, 512, 3);
	/* N154: the last sector */
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, FAKE_SIZE - 512, 512);
	p = expect_status(c, FAKE_SIZE - 512, 1, 1, true);
	expect_extent(&p, 512, 0);
	expect_no_more(c);
	assert_int_equal(c->session->held, 0);
	client_free(c);
}

static void
test_status(void **state)
{
	(void)state;
	in_both(status_in_turn);
}

static void
status_is_bounded(void)
{
	struct client *c = status_begin("base:allocation", UINT64_C(1) << 40);
	const char *p;
	unsigned i;

	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 1 << 30);
	p = expect_status(c, 0, 1, NBD_MAX_EXTENTS, true);
	for (i = 0; i < NBD_MAX_EXTENTS; i++)
		expect_extent(&p, 32768, i % 2 ? 0 : 3);
	expect_no_more(c);
	client_free(c);
	/* a context that looks nearer than its extents are is asked on */
	c = status_begin("x-test:near", UINT64_C(1) << 40);
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 1 << 30);
	p = expect_status(c, 0, 3, 1, true);
	expect_extent(&p, NBD_STATUS_STEPS * 512, 77);
	client_free(c);
}

static void
test_bounds(void **state)
{
	(void)state;
	in_both(status_is_bounded);
}

static void
test_near_4g(void **state)
{
	static const uint64_t lens[] = { 0xffffffff, 0xfffffe00, 0xfffff000,
		0xffffffff };
	struct client *c;
	const char *p;
	unsigned i;

	(void)state;
	speaks = NBD_FEATURE_STRUCTURED;
	c = status_begin("x-test:far", UINT64_C(1) << 40);
	for (i = 0; i < 4; i++) {
		uint64_t from = i == 3 ? (UINT64_C(1) << 33) + 512 : 0;

		client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, from, lens[i]);
		p = expect_status(c, from, 2, 1, true);
		expect_extent(&p, lens[i] & ~UINT64_C(511), 3); /* N152 */
	}
	client_free(c);
	c = status_begin("x-test:far", UINT64_C(0xffffffff));
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 0xffffffff);
	p = expect_status(c, 0, 2, 1, true);
	expect_extent(&p, 0xffffffff, 3); /* the end is where it is */
	client_free(c);
	speaks = NBD_FEATURE_EXTENDED; /* N176 */
	c = status_begin("x-test:far", INT64_MAX);
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, UINT64_C(1) << 32);
	p = expect_status(c, 0, 2, 1, true);
	expect_extent(&p, UINT64_C(1) << 32, 3);
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, INT64_MAX);
	p = expect_status(c, 0, 2, 1, true);
	expect_extent(&p, INT64_MAX, 3);
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 512, UINT64_MAX);
	expect_failure(c, 7, 512, NBD_EINVAL, NULL);
	client_free(c);
	speaks = 0;
}

static void
status_refused(void)
{
	struct client *c = status_begin("base:allocation", FAKE_SIZE);

	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 0);
	expect_failure(c, 7, 0, NBD_EINVAL, NULL); /* N119 */
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, FAKE_SIZE, 512);
	expect_failure(c, 7, FAKE_SIZE, NBD_EINVAL, NULL); /* N117 */
	client_request(c, NBD_CMD_BLOCK_STATUS, NBD_CMD_FLAG_NO_HOLE, 7, 0, 1);
	expect_failure(c, 7, 0, NBD_EINVAL, NULL);
	client_free(c);
	c = status_begin(NULL, FAKE_SIZE);
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 512);
	expect_failure(c, 7, 0, NBD_EINVAL, NULL); /* N153 */
	client_free(c);
}

static void
test_refused(void **state)
{
	(void)state;
	in_both(status_refused);
}

static void
test_other_export(void **state)
{
	struct client *c = options_begin(true);
	struct bytes b = { 0 };
	uint32_t len;

	(void)state;
	speaks = NBD_FEATURE_STRUCTURED;
	add_contexts(
	    &b, NBD_OPT_SET_META_CONTEXT, "other", "base:allocation", NULL);
	add_info(&b, NBD_OPT_GO, "disk", -1);
	client_send(c, &b);
	expect_context(c, NBD_OPT_SET_META_CONTEXT, 1, "base:allocation");
	expect_ack(c, NBD_OPT_SET_META_CONTEXT);
	expect_option(c, NBD_OPT_GO, NBD_REP_INFO, &len);
	expect_ack(c, NBD_OPT_GO);
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 512);
	expect_failure(c, 7, 0, NBD_EINVAL, NULL);
	client_free(c);
	speaks = 0;
}

/* N30: by EXPORT_NAME, too */
static void
test_export_name(void **state)
{
	struct client *c = options_begin(true);
	struct bytes b = { 0 };

	(void)state;
	speaks = NBD_FEATURE_STRUCTURED;
	add_contexts(
	    &b, NBD_OPT_SET_META_CONTEXT, "other", "base:allocation", NULL);
	add_option(&b, NBD_OPT_EXPORT_NAME, "other", 5);
	client_send(c, &b);
	expect_context(c, NBD_OPT_SET_META_CONTEXT, 1, "base:allocation");
	expect_ack(c, NBD_OPT_SET_META_CONTEXT);
	expect_bytes(c, 10);
	client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 512);
	expect_status(c, 0, 1, 1, true);
	client_free(c);
	speaks = 0;
}

/* It says what is there after the writes that came before it. */
static void
test_waits_for_writes(void **state)
{
	struct client *c;
	struct bytes b = { 0 };

	(void)state;
	speaks = NBD_FEATURE_STRUCTURED;
	c = status_begin("base:allocation", FAKE_SIZE);
	c->fake.end = FAKE_HELD;
	c->fake.moves_later = true;
	add_write(&b, 1, 4096, 4096, 'w');
	add_request(&b, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 32768);
	client_send(c, &b);
	expect_no_more(c);
	fake_release(c, 1);
	client_settle(c);
	expect_reply(c, 1, 0, 0);
	expect_status(c, 0, 1, 1, true);
	/* dropped with its session while it waits */
	add_write(&b, 1, 4096, 4096, 'w');
	add_request(&b, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 32768);
	client_send(c, &b);
	client_free(c);
	speaks = 0;
}

/* Many of them at once: they are answered, a part in each call. */
static void
test_many(void **state)
{
	struct client *c;
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	speaks = NBD_FEATURE_STRUCTURED;
	c = status_begin("x-test:near", UINT64_C(1) << 40);
	c->deaf = true;
	for (i = 0; i < 100; i++)
		add_request(&b, NBD_CMD_BLOCK_STATUS, 0, 7, i * 4096, 1 << 30);
	client_push(c, b.p, b.len);
	c->deaf = false;
	client_settle(c);
	for (i = 0; i < 100; i++)
		expect_status(c, i * 4096, 3, 1, true);
	expect_no_more(c);
	assert_true(c->nr_wakes >= 99); /* each took all the steps */
	bytes_free(&b);
	client_free(c);
	speaks = 0;
}

/* Nobody reads the answers: those that would come wait. */
static void
test_deaf(void **state)
{
	struct client *c;
	struct bytes b = { 0 };
	unsigned i;

	(void)state;
	speaks = NBD_FEATURE_STRUCTURED;
	c = status_begin("base:allocation", UINT64_C(1) << 40);
	c->deaf = true;
	for (i = 0; i < 500; i++)
		add_request(&b, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 1 << 30);
	client_push(c, b.p, b.len);
	assert_true(c->session->nr_blocks * sizeof(struct block) <=
		    NBD_MAX_UNSENT + (16 << 10));
	c->deaf = false;
	client_settle(c);
	for (i = 0; i < 500; i++)
		expect_status(c, 0, 1, NBD_MAX_EXTENTS, true);
	expect_no_more(c);
	assert_int_equal(c->session->held, 0);
	bytes_free(&b);
	client_free(c);
	speaks = 0;
}

/* |u64 length|u32 id|...  of the contexts 1 and 3 (N175) */
static void
add_picked(struct bytes *b, uint64_t offset, uint64_t length,
    const uint32_t *ids, unsigned nr)
{
	unsigned i;

	add_request(b, NBD_CMD_BLOCK_STATUS, NBD_CMD_FLAG_PAYLOAD_LEN, 7,
	    offset, 8 + 4 * nr);
	bytes_be(b, length, 8);
	for (i = 0; i < nr; i++)
		bytes_be(b, ids[i], 4);
}

static void
test_picks(void **state)
{
	static const uint32_t both[] = { 3, 1 }, twice[] = { 1, 1 },
			      wrong[] = { 2 }, none[] = { 0 },
			      many[64] = { 1, 3 };
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };
	const char *p;
	uint32_t len;
	unsigned step;

	(void)state;
	c->export[0].contexts = contexts;
	bytes_be(&b, 3, 4);
	add_option(&b, NBD_OPT_EXTENDED_HEADERS, NULL, 0);
	add_contexts(&b, NBD_OPT_SET_META_CONTEXT, "", "base:allocation",
	    "x-test:near", NULL);
	add_info(&b, NBD_OPT_GO, "", -1);
	client_send(c, &b);
	expect_greeting(c);
	expect_ack(c, NBD_OPT_EXTENDED_HEADERS);
	expect_context(c, NBD_OPT_SET_META_CONTEXT, 1, "base:allocation");
	expect_context(c, NBD_OPT_SET_META_CONTEXT, 3, "x-test:near");
	expect_ack(c, NBD_OPT_SET_META_CONTEXT);
	p = expect_option(c, NBD_OPT_GO, NBD_REP_INFO, &len);
	assert_true(get_be16(p + 10) & NBD_FLAG_BLOCK_STATUS_PAYLOAD);
	expect_ack(c, NBD_OPT_GO);
	speaks = NBD_FEATURE_EXTENDED;
	for (step = 1; step < 60; step += 7) {
		c->step = step;
		client_request(c, NBD_CMD_BLOCK_STATUS, 0, 7, 0, 512);
		expect_status(c, 0, 1, 1, false);
		expect_status(c, 0, 3, 1, true);
		add_picked(&b, 512, 512, both, 2);
		add_picked(&b, 512, 512, both, 1);
		client_send(c, &b);
		expect_status(c, 512, 1, 1, false);
		expect_status(c, 512, 3, 1, true);
		expect_status(c, 512, 3, 1, true);
		add_picked(&b, 512, 512, twice, 2);
		add_picked(&b, 512, 512, wrong, 1);
		add_picked(&b, 512, 512, none, 1);
		add_picked(&b, 512, 512, none, 0);
		add_picked(&b, 512, 0, both, 2);
		add_picked(&b, 512, UINT64_MAX, both, 2);
		add_picked(&b, 512, 512, many, 64);
		add_request(&b, NBD_CMD_BLOCK_STATUS, NBD_CMD_FLAG_PAYLOAD_LEN,
		    7, 512, 13);
		bytes_fill(&b, 1, 13);
		add_request(&b, NBD_CMD_TRIM, NBD_CMD_FLAG_PAYLOAD_LEN, 7, 512,
		    1000); /* N173 */
		bytes_fill(&b, 1, 1000);
		client_send(c, &b);
		for (unsigned i = 0; i < 9; i++)
			expect_failure(c, 7, 512, NBD_EINVAL, NULL);
		expect_no_more(c);
		assert_int_equal(c->session->held, 0);
	}
	client_free(c);
	speaks = 0;
}

#define CASE(sentence, function)                     \
	{                                            \
		sentence, function, NULL, NULL, NULL \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("lists all, a namespace, or those named (N96, N97, N99, "
		     "N101)",
		    test_lists),
		CASE("sets those named, each once (N98 to N100)", test_sets),
		CASE("forgets the choice when another fails (N102)",
		    test_failing_set_clears),
		CASE("refuses what is malformed, in step (N93, N94)",
		    test_malformed),
		CASE("sets none without structured replies (N95)",
		    test_needs_structured),
		CASE("tells what is there, extent by extent (N146 to N148, "
		     "N151, N154, N174)",
		    test_status),
		CASE("tells no more than a bound, and less than asked "
		     "(N149, N150)",
		    test_bounds),
		CASE("stays below 2^32 where lengths have 32 bits (N152, N176)",
		    test_near_4g),
		CASE("refuses what cannot be told (N117, N119, N153)",
		    test_refused),
		CASE("knows no context of another export (N103)",
		    test_other_export),
		CASE(
		    "keeps the choice for EXPORT_NAME (N30)", test_export_name),
		CASE("tells it after the writes that came before",
		    test_waits_for_writes),
		CASE("lets others have a turn between many", test_many),
		CASE("waits for a client that does not read (N165)", test_deaf),
		CASE("takes a payload that picks contexts (N173, N175)",
		    test_picks),
	};

	return RUN_BOTH_WAYS(tests);
}
