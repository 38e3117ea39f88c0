/* SPDX-License-Identifier: MIT */
/* The handshake: greeting, flags, options (N1 to N92 as far as offered). */
#include "client.h"

static struct client *
options_begin(uint32_t flags)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };

	bytes_be(&b, flags, 4);
	client_send(c, &b);
	expect_greeting(c);
	return c;
}

/* The session still knows where an option begins, and ends well. */
static void
expect_in_step(struct client *c)
{
	struct bytes b = { 0 };
	uint32_t len;

	expect_no_more(c);
	add_option(&b, NBD_OPT_LIST, NULL, 0);
	add_option(&b, NBD_OPT_ABORT, NULL, 0);
	client_send(c, &b);
	expect_option(c, NBD_OPT_LIST, NBD_REP_SERVER, &len);
	expect_ack(c, NBD_OPT_LIST);
	expect_ack(c, NBD_OPT_ABORT);
	expect_no_more(c);
	assert_int_equal(c->error, 0);
	assert_true(nbd_done(c->session));
}

/* ----------------------------------------------------- greeting and flags */

static void
test_greets_first(void **state)
{
	struct client *c = client_new(NULL);

	(void)state;
	client_receive(c);
	expect_greeting(c);
	expect_no_more(c);
	assert_false(nbd_done(c->session));
	client_free(c);
}

static void
test_flags_byte_by_byte(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };

	(void)state;
	c->step = 1;
	bytes_be(&b, 3, 4);
	client_send(c, &b);
	expect_greeting(c);
	expect_in_step(c);
	client_free(c);
}

static void
test_unknown_flags(void **state)
{
	static const uint32_t flags[] = { 4, 7, 0x80000000, 0x47455420 };
	unsigned i;

	(void)state;
	for (i = 0; i < 4; i++) {
		struct client *c = client_new(NULL);
		struct bytes b = { 0 };

		bytes_be(&b, flags[i], 4);
		client_send(c, &b);
		assert_int_equal(c->error, -EPROTO);
		assert_true(nbd_done(c->session));
		assert_non_null(strstr(nbd_error(c->session), "client flags"));
		client_free(c);
	}
}

static void
test_plain_newstyle(void **state)
{
	struct client *c = options_begin(0);
	struct bytes b = { 0 };
	const char *p;

	(void)state;
	add_option(&b, NBD_OPT_EXPORT_NAME, "disk", 4);
	client_send(c, &b);
	p = expect_bytes(c, 134);
	assert_int_equal(get_be64(p), FAKE_SIZE);
	expect_data(p + 10, 0, 124);
	expect_no_more(c);
	client_free(c);
}

/* ---------------------------------------------------------------- framing */

static void
test_wrong_magic(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };

	(void)state;
	bytes_be(&b, NBD_IHAVEOPT + 1, 8);
	bytes_be(&b, NBD_OPT_LIST, 4);
	bytes_be(&b, 0, 4);
	client_send(c, &b);
	assert_int_equal(c->error, -EPROTO);
	expect_no_more(c);
	client_free(c);
}

static void
test_unknown_options(void **state)
{
	static const uint32_t nrs[] = { 0, 4, 12, 99, 0x7654321, 0xffffffff };
	static const size_t lens[] = { 0, 4, 100 << 10, 3 << 20 };
	unsigned i, j;
	struct bytes data = { 0 };

	(void)state;
	bytes_fill(&data, 'x', 3 << 20);
	for (i = 0; i < 6; i++) {
		struct client *c = options_begin(3);

		for (j = 0; j < 4; j++) {
			struct bytes b = { 0 };

			add_option(&b, nrs[i], data.p, lens[j]);
			client_send(c, &b);
			expect_error(c, nrs[i], NBD_REP_ERR_UNSUP);
		}
		expect_in_step(c);
		assert_true(c->max_held <= 4096);
		client_free(c);
	}
	bytes_free(&data);
}

static void
test_oversized(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 }, data = { 0 };

	(void)state;
	bytes_fill(&data, 'x', NBD_MAX_OPTION + 1);
	add_option(&b, NBD_OPT_GO, data.p, data.len);
	add_option(&b, NBD_OPT_INFO, data.p, data.len);
	add_option(&b, NBD_OPT_LIST, data.p, data.len);
	client_send(c, &b);
	expect_error(c, NBD_OPT_GO, NBD_REP_ERR_TOO_BIG);
	expect_error(c, NBD_OPT_INFO, NBD_REP_ERR_TOO_BIG);
	expect_error(c, NBD_OPT_LIST, NBD_REP_ERR_INVALID);
	assert_true(c->max_held <= 4096);
	expect_in_step(c);
	client_free(c);
	bytes_free(&data);
}

static void
test_monstrous(void **state)
{
	static const uint32_t lens[] = { NBD_MAX_OPTION_DRAIN + 1, 0xffffffff };
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct client *c = options_begin(3);
		struct bytes b = { 0 };

		bytes_be(&b, NBD_IHAVEOPT, 8);
		bytes_be(&b, NBD_OPT_GO, 4);
		bytes_be(&b, lens[i], 4);
		client_send(c, &b);
		assert_int_equal(c->error, -EPROTO);
		assert_true(c->max_held <= 4096);
		client_free(c);
	}
}

/* A length is a promise: memory follows only what has come. */
static void
test_memory_follows_data(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };

	(void)state;
	bytes_be(&b, NBD_IHAVEOPT, 8);
	bytes_be(&b, NBD_OPT_GO, 4);
	bytes_be(&b, NBD_MAX_OPTION, 4);
	bytes_fill(&b, 0, 1000);
	client_send(c, &b);
	assert_true(c->session->held <= 4096);
	bytes_fill(&b, 0, 10000);
	client_send(c, &b);
	assert_true(c->session->held <= 4 * 11000);
	bytes_fill(&b, 0, NBD_MAX_OPTION - 11000);
	client_send(c, &b);
	expect_error(c, NBD_OPT_GO, NBD_REP_ERR_INVALID);
	expect_in_step(c);
	client_free(c);
}

static void
test_pipelined(void **state)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };
	uint32_t len;

	(void)state;
	bytes_be(&b, 3, 4);
	add_option(&b, 77, "abc", 3);
	add_option(&b, NBD_OPT_LIST, NULL, 0);
	add_info(&b, NBD_OPT_INFO, "disk", -1);
	add_info(&b, NBD_OPT_GO, "nope", -1);
	client_send(c, &b);
	expect_greeting(c);
	expect_error(c, 77, NBD_REP_ERR_UNSUP);
	expect_option(c, NBD_OPT_LIST, NBD_REP_SERVER, &len);
	expect_ack(c, NBD_OPT_LIST);
	expect_option(c, NBD_OPT_INFO, NBD_REP_INFO, &len);
	expect_ack(c, NBD_OPT_INFO);
	expect_error(c, NBD_OPT_GO, NBD_REP_ERR_UNKNOWN);
	expect_in_step(c);
	client_free(c);
}

static void
test_number_is_bounded(void **state)
{
	struct client *c = options_begin(3);
	unsigned i;

	(void)state;
	for (i = 0; i < c->limits.max_options; i++) {
		struct bytes b = { 0 };

		add_info(&b, NBD_OPT_INFO, "disk", -1);
		client_send(c, &b);
		assert_int_equal(c->error, 0);
		assert_int_equal(c->session->held, 0);
	}
	for (i = 0; i < 1; i++) {
		struct bytes b = { 0 };

		add_option(&b, 99, NULL, 0);
		client_send(c, &b);
	}
	assert_int_equal(c->error, -EPROTO);
	client_free(c);
}

static void
test_shutdown(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 }, rest = { 0 };

	(void)state;
	assert_false(nbd_done(c->session));
	add_info(&b, NBD_OPT_GO, "disk", -1);
	bytes_add(&rest, b.p + 7, b.len - 7);
	b.len = 7;
	client_send(c, &b);
	nbd_shutdown(c->session);
	client_settle(c);
	assert_false(nbd_done(c->session)); /* half of an option is there */
	add_option(&rest, 99, "x", 1);
	add_option(&rest, NBD_OPT_LIST, NULL, 0);
	add_option(&rest, NBD_OPT_ABORT, NULL, 0);
	client_send(c, &rest);
	expect_error(c, NBD_OPT_GO, NBD_REP_ERR_SHUTDOWN);
	expect_error(c, 99, NBD_REP_ERR_SHUTDOWN);
	expect_error(c, NBD_OPT_LIST, NBD_REP_ERR_SHUTDOWN);
	expect_ack(c, NBD_OPT_ABORT);
	expect_no_more(c);
	assert_true(nbd_done(c->session));
	client_free(c);

	c = options_begin(3);
	nbd_shutdown(c->session);
	assert_true(nbd_done(c->session)); /* nothing is left */
	add_option(&b, NBD_OPT_EXPORT_NAME, "disk", 4);
	client_send(c, &b);
	assert_int_equal(c->error, -ESHUTDOWN);
	expect_no_more(c);
	client_free(c);
}

/* ------------------------------------------------------------ EXPORT_NAME */

static void
test_export_name(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };
	const char *p;

	(void)state;
	add_option(&b, NBD_OPT_EXPORT_NAME, NULL, 0); /* the default */
	client_send(c, &b);
	p = expect_bytes(c, 10);
	assert_int_equal(get_be64(p), FAKE_SIZE);
	assert_int_equal(get_be16(p + 8), 0xd6d);
	expect_no_more(c);
	assert_true(nbd_in_transmission(c->session));
	assert_ptr_equal(nbd_session_export(c->session), &c->export[0]);
	client_request(c, NBD_CMD_READ, 0, 1, 0, 512);
	expect_reply(c, 1, 0, 512);
	client_free(c);
}

static void
test_export_name_refused(void **state)
{
	char name[4097];
	static const struct {
		size_t len;
		int error;
	} cases[] = { { 4, -ENOENT }, { 4096, -ENOENT }, { 4097, -EPROTO } };
	unsigned i;

	(void)state;
	memset(name, 'x', sizeof(name));
	for (i = 0; i < 4; i++) {
		struct client *c = options_begin(3);
		struct bytes b = { 0 };

		if (i < 3)
			add_option(&b, NBD_OPT_EXPORT_NAME, name, cases[i].len);
		else
			add_option(&b, NBD_OPT_EXPORT_NAME, "disk\0x", 6);
		client_send(c, &b);
		assert_int_equal(c->error, i < 3 ? cases[i].error : -EPROTO);
		expect_no_more(c);
		client_free(c);
	}
}

static void
test_names_are_not_paths(void **state)
{
	static char name[4097];
	struct client *c = options_begin(1);
	struct bytes b = { 0 };

	(void)state;
	memset(name, '/', 4096);
	memcpy(name, "/../\xc3\xa9 a b/", 11);
	c->export[0].name = name;
	add_option(&b, NBD_OPT_EXPORT_NAME, name, 4096);
	client_send(c, &b);
	expect_bytes(c, 134);
	expect_no_more(c);
	client_free(c);
}

/* ------------------------------------------------------------ ABORT, LIST */

static void
test_abort(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };

	(void)state;
	add_option(&b, NBD_OPT_ABORT, "ignored", 7);
	add_option(&b, NBD_OPT_LIST, NULL, 0); /* is ignored, too */
	client_send(c, &b);
	expect_ack(c, NBD_OPT_ABORT);
	expect_no_more(c);
	assert_true(nbd_done(c->session));
	assert_false(nbd_listens(c->session));
	client_free(c);
}

static void
test_abort_is_done_when_sent(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };

	(void)state;
	c->deaf = true;
	add_option(&b, NBD_OPT_ABORT, NULL, 0);
	client_send(c, &b);
	assert_false(nbd_done(c->session));
	c->deaf = false;
	client_receive(c);
	assert_true(nbd_done(c->session));
	client_free(c);
}

static void
test_list(void **state)
{
	static char text[5000];
	struct client *c = options_begin(3);
	struct bytes b = { 0 };
	const char *p;
	uint32_t len;
	unsigned i;

	(void)state;
	/* a character of two bytes lies across the limit */
	memset(text, 'd', sizeof(text) - 1);
	memcpy(text + 4095, "\xc3\xa9", 2);
	c->export[1] = c->export[0];
	c->export[1].name = "";
	c->export[1].description = NULL;
	c->export[2] = c->export[0];
	c->export[2].name = "long";
	c->export[2].description = text;
	c->nr_exports = 3;
	for (i = 0; i < 2; i++) { /* N39 */
		add_option(&b, NBD_OPT_LIST, NULL, 0);
		client_send(c, &b);
		p = expect_option(c, NBD_OPT_LIST, NBD_REP_SERVER, &len);
		assert_int_equal(len, 4 + 4 + 6);
		assert_memory_equal(p, "\0\0\0\4diska fake", 14);
		p = expect_option(c, NBD_OPT_LIST, NBD_REP_SERVER, &len);
		assert_int_equal(len, 4);
		assert_memory_equal(p, "\0\0\0\0", 4);
		p = expect_option(c, NBD_OPT_LIST, NBD_REP_SERVER, &len);
		assert_int_equal(len, 4 + 4 + 4095);
		expect_ack(c, NBD_OPT_LIST);
	}
	c->nr_exports = 0; /* N38 */
	add_option(&b, NBD_OPT_LIST, NULL, 0);
	add_option(&b, NBD_OPT_LIST, "data", 4); /* N36 */
	client_send(c, &b);
	expect_ack(c, NBD_OPT_LIST);
	expect_error(c, NBD_OPT_LIST, NBD_REP_ERR_INVALID);
	c->nr_exports = 1;
	expect_in_step(c);
	client_free(c);
}

static void
test_slow_reader_of_list(void **state)
{
	struct client *c = options_begin(3);
	static char text[4001];
	struct bytes b = { 0 };
	unsigned i, answered = 0;
	uint32_t len;
	size_t done;

	(void)state;
	memset(text, 't', sizeof(text) - 1);
	c->export[0].description = text;
	c->deaf = true;
	for (i = 0; i < 500; i++)
		add_option(&b, NBD_OPT_LIST, NULL, 0);
	done = client_push(c, b.p, b.len);
	assert_true(done < b.len); /* it stopped listening */
	assert_false(nbd_listens(c->session));
	assert_true(c->session->nr_blocks * 4096 <= NBD_MAX_UNSENT + 8192);
	c->deaf = false;
	c->out_step = 777;
	while (done < b.len || answered < 500) {
		client_settle(c);
		done += client_push(c, b.p + done, b.len - done);
		while (c->in.len - c->in_pos >= 20 + 4008 + 20) {
			expect_option(c, NBD_OPT_LIST, NBD_REP_SERVER, &len);
			expect_ack(c, NBD_OPT_LIST);
			answered++;
		}
	}
	bytes_free(&b);
	expect_in_step(c);
	client_free(c);
}

/* --------------------------------------------------------------- refused */

static void
test_starttls(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };

	(void)state;
	add_option(&b, NBD_OPT_STARTTLS, NULL, 0);
	add_option(&b, NBD_OPT_STARTTLS, "x", 1);
	client_send(c, &b);
	expect_error(c, NBD_OPT_STARTTLS, NBD_REP_ERR_POLICY);
	expect_error(c, NBD_OPT_STARTTLS, NBD_REP_ERR_INVALID);
	expect_in_step(c);
	client_free(c);
}

/* ---------------------------------------------------- TLS where it is there */

/* Exports "disk" and "secret", the second one for TLS alone. */
static struct client *
tls_begin(enum nbd_tls tls, uint32_t flags)
{
	struct client *c = client_new(NULL);
	struct bytes b = { 0 };

	c->export[1] = c->export[0];
	c->export[1].name = "secret";
	c->export[1].tls_only = true;
	c->nr_exports = 2;
	nbd_set_tls(c->session, tls);
	bytes_be(&b, flags, 4);
	client_send(c, &b);
	expect_greeting(c);
	return c;
}

/* What the caller does with the bytes meanwhile is not the session's. */
static void
start_tls(struct client *c)
{
	struct bytes b = { 0 };

	add_option(&b, NBD_OPT_STARTTLS, NULL, 0);
	client_send(c, &b);
	expect_ack(c, NBD_OPT_STARTTLS);
	expect_no_more(c);
	assert_true(nbd_wants_tls(c->session));
	nbd_tls_begun(c->session);
	assert_false(nbd_wants_tls(c->session));
	assert_true(nbd_listens(c->session));
}

/* One option, alone: the type of its only reply. */
static uint32_t
answer(struct client *c, uint32_t nr, const void *data, size_t len)
{
	struct bytes b = { 0 };
	uint32_t type, reply_len;

	add_option(&b, nr, data, len);
	client_send(c, &b);
	assert_true(c->in.len - c->in_pos >= 20);
	type = get_be32(c->in.p + c->in_pos + 12);
	expect_option(c, nr, type, &reply_len);
	expect_no_more(c);
	return type;
}

/* The same of INFO and GO of a name, which must agree. */
static uint32_t
answer_to_name(struct client *c, const char *name)
{
	static const uint32_t nrs[] = { NBD_OPT_INFO, NBD_OPT_GO };
	uint32_t type[2];
	char data[64];
	unsigned i;

	for (i = 0; i < 2; i++) {
		put_be32(data, (uint32_t)strlen(name));
		memcpy(data + 4, name, strlen(name));
		put_be16(data + 4 + strlen(name), 0);
		type[i] = answer(c, nrs[i], data, 6 + strlen(name));
	}
	assert_int_equal(type[0], type[1]);
	return type[0];
}

/* The names that LIST has. */
static unsigned
count_listed(struct client *c)
{
	struct bytes b = { 0 };
	unsigned nr = 0;
	uint32_t len;

	add_option(&b, NBD_OPT_LIST, NULL, 0);
	client_send(c, &b);
	while (get_be32(c->in.p + c->in_pos + 12) == NBD_REP_SERVER) {
		expect_option(c, NBD_OPT_LIST, NBD_REP_SERVER, &len);
		nr++;
	}
	expect_ack(c, NBD_OPT_LIST);
	expect_no_more(c);
	return nr;
}

static void
test_tls_begins(void **state)
{
	static const enum nbd_tls modes[] = { NBD_TLS_ALLOWED,
		NBD_TLS_REQUIRED };
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct client *c = tls_begin(modes[i], 3);

		assert_int_equal(
		    answer(c, NBD_OPT_STARTTLS, "x", 1), NBD_REP_ERR_INVALID);
		start_tls(c);
		assert_int_equal(
		    answer(c, NBD_OPT_STARTTLS, NULL, 0), NBD_REP_ERR_INVALID);
		assert_int_equal(
		    answer(c, NBD_OPT_STARTTLS, "x", 1), NBD_REP_ERR_INVALID);
		assert_int_equal(count_listed(c), 2);
		assert_int_equal(
		    answer(c, NBD_OPT_ABORT, NULL, 0), NBD_REP_ACK);
		assert_true(nbd_done(c->session));
		client_free(c);
	}
}

static void
test_tls_waits_for_the_ack(void **state)
{
	struct client *c = tls_begin(NBD_TLS_ALLOWED, 3);
	struct bytes b = { 0 };
	struct iovec iov[2];

	(void)state;
	c->out_step = 1;
	c->deaf = true;
	add_option(&b, NBD_OPT_STARTTLS, NULL, 0);
	client_send(c, &b);
	assert_false(nbd_wants_tls(c->session));
	assert_false(nbd_listens(c->session));
	assert_int_equal(nbd_out(c->session, iov, 2), 1);
	nbd_sent(c->session, iov[0].iov_len - 1);
	assert_false(nbd_wants_tls(c->session));
	assert_int_equal(nbd_out(c->session, iov, 2), 1);
	nbd_sent(c->session, 1);
	assert_true(nbd_wants_tls(c->session));
	assert_false(nbd_listens(c->session));
	assert_int_equal(nbd_want(c->session, iov, 2), 0);
	assert_false(nbd_done(c->session));
	client_free(c);
}

static void
test_tls_ends_with_shutdown(void **state)
{
	struct client *c = tls_begin(NBD_TLS_ALLOWED, 3);
	struct bytes b = { 0 };

	(void)state;
	add_option(&b, NBD_OPT_STARTTLS, NULL, 0);
	client_send(c, &b);
	assert_true(nbd_wants_tls(c->session));
	nbd_shutdown(c->session);
	assert_true(nbd_done(c->session));
	client_free(c);

	c = tls_begin(NBD_TLS_REQUIRED, 3);
	nbd_shutdown(c->session);
	assert_int_equal(
	    answer(c, NBD_OPT_STARTTLS, NULL, 0), NBD_REP_ERR_SHUTDOWN);
	assert_false(nbd_wants_tls(c->session));
	client_free(c);
}

/* INFO's flags of the default export. */
static uint16_t
info_flags(struct client *c)
{
	struct bytes b = { 0 };
	uint32_t len;
	uint16_t flags;

	add_info(&b, NBD_OPT_INFO, "", -1);
	client_send(c, &b);
	flags =
	    get_be16(expect_option(c, NBD_OPT_INFO, NBD_REP_INFO, &len) + 10);
	expect_ack(c, NBD_OPT_INFO);
	return flags;
}

static void
test_tls_resets(void **state)
{
	struct client *c = tls_begin(NBD_TLS_ALLOWED, 3);
	unsigned i;

	(void)state;
	assert_int_equal(count_listed(c), 1);
	assert_true(c->session->max_options > c->limits.max_options);
	start_tls(c);
	assert_int_equal(c->session->max_options, c->limits.max_options);
	assert_int_equal(c->session->nr_options, 0);
	for (i = 0; i < c->limits.max_options; i++)
		assert_int_equal(answer(c, 99, NULL, 0), NBD_REP_ERR_UNSUP);
	client_free(c);
}

static uint32_t
no_status(const struct nbd_export *e, struct cpu *cpu, uint64_t pos,
    uint64_t *len, unsigned *steps)
{
	(void)e;
	(void)cpu;
	(void)pos;
	(void)len;
	(*steps)--;
	return 0;
}

/* CVE-2021-3716: what plaintext has agreed on is not agreed on in TLS. */
static void
test_tls_forgets_agreements(void **state)
{
	static const struct nbd_context contexts[] = {
		{ "base:allocation", no_status },
		{},
	};
	struct client *c = tls_begin(NBD_TLS_ALLOWED, 3);
	struct bytes b = { 0 };
	uint32_t len;

	(void)state;
	c->export[0].contexts = contexts;
	assert_int_equal(
	    answer(c, NBD_OPT_STRUCTURED_REPLY, NULL, 0), NBD_REP_ACK);
	assert_int_equal(
	    answer(c, NBD_OPT_EXTENDED_HEADERS, NULL, 0), NBD_REP_ACK);
	add_contexts(&b, NBD_OPT_SET_META_CONTEXT, "", "base:allocation", NULL);
	client_send(c, &b);
	expect_option(c, NBD_OPT_SET_META_CONTEXT, NBD_REP_META_CONTEXT, &len);
	expect_ack(c, NBD_OPT_SET_META_CONTEXT);
	assert_int_equal(context_chosen(c->session, &c->export[0]), 1);
	start_tls(c);
	assert_int_equal(context_chosen(c->session, &c->export[0]), 0);
	assert_false(info_flags(c) & NBD_FLAG_SEND_DF);
	assert_int_equal(
	    answer(c, NBD_OPT_STRUCTURED_REPLY, NULL, 0), NBD_REP_ACK);
	client_free(c);
}

static void
test_tls_injection(void **state)
{
	static const enum nbd_tls modes[] = { NBD_TLS_ALLOWED,
		NBD_TLS_REQUIRED };
	size_t behind;
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++)
		for (behind = 1; behind <= 16; behind += 15) {
			struct client *c = tls_begin(modes[i], 3);
			struct bytes b = { 0 };

			add_option(&b, NBD_OPT_STARTTLS, NULL, 0);
			add_option(&b, NBD_OPT_ABORT, NULL, 0);
			b.len -= 16 - behind;
			client_send(c, &b);
			assert_int_equal(c->error, -EPROTO);
			assert_non_null(
			    strstr(nbd_error(c->session), "STARTTLS"));
			expect_no_more(c);
			assert_false(nbd_wants_tls(c->session));
			assert_true(nbd_done(c->session));
			client_free(c);
		}
}

static void
test_tls_required(void **state)
{
	static const uint32_t nrs[] = { NBD_OPT_LIST, NBD_OPT_INFO, NBD_OPT_GO,
		NBD_OPT_STRUCTURED_REPLY, NBD_OPT_LIST_META_CONTEXT,
		NBD_OPT_SET_META_CONTEXT, NBD_OPT_EXTENDED_HEADERS, 4, 99,
		0xffffffff };
	static const size_t lens[] = { 0, 7, 100 << 10 };
	struct client *c = tls_begin(NBD_TLS_REQUIRED, 3);
	struct bytes data = { 0 };
	unsigned i, j;

	(void)state;
	bytes_fill(&data, 'x', 100 << 10);
	for (i = 0; i < sizeof(nrs) / sizeof(*nrs); i++)
		for (j = 0; j < 3; j++)
			assert_int_equal(answer(c, nrs[i], data.p, lens[j]),
			    NBD_REP_ERR_TLS_REQD);
	assert_int_equal(answer_to_name(c, "disk"), NBD_REP_ERR_TLS_REQD);
	assert_int_equal(answer_to_name(c, "none"), NBD_REP_ERR_TLS_REQD);
	assert_int_equal(
	    answer(c, NBD_OPT_ABORT, "bye", 3), NBD_REP_ACK); /* N34 */
	assert_true(nbd_done(c->session));
	client_free(c);
	bytes_free(&data);
}

/* An export whose name nobody may use ends the session without a byte. */
static void
expect_hang_up(struct client *c, const char *name)
{
	struct bytes b = { 0 };

	add_option(&b, NBD_OPT_EXPORT_NAME, name, strlen(name));
	client_send(c, &b);
	assert_int_not_equal(c->error, 0);
	expect_no_more(c);
	assert_false(nbd_in_transmission(c->session));
	assert_true(nbd_done(c->session));
	client_free(c);
}

static void
test_tls_export_name(void **state)
{
	static const enum nbd_tls modes[] = { NBD_TLS_ALLOWED,
		NBD_TLS_REQUIRED };
	struct bytes b = { 0 };
	struct client *c;
	unsigned i;

	(void)state;
	expect_hang_up(tls_begin(NBD_TLS_REQUIRED, 3), "disk");
	expect_hang_up(tls_begin(NBD_TLS_ALLOWED, 3), "secret");
	expect_hang_up(tls_begin(NBD_TLS_ALLOWED, 0), "secret");
	expect_hang_up(tls_begin(NBD_TLS_OFF, 3), "secret");
	for (i = 0; i < 2; i++) {
		c = tls_begin(modes[i], 3);
		start_tls(c);
		add_option(&b, NBD_OPT_EXPORT_NAME, "secret", 6);
		client_send(c, &b);
		assert_int_equal(get_be64(expect_bytes(c, 10)), FAKE_SIZE);
		assert_true(nbd_in_transmission(c->session));
		client_free(c);
	}
}

static void
test_tls_never_required_inside(void **state)
{
	static const enum nbd_tls modes[] = { NBD_TLS_ALLOWED,
		NBD_TLS_REQUIRED };
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct client *c = tls_begin(modes[i], 3);

		start_tls(c);
		assert_int_equal(answer(c, 99, "x", 1), NBD_REP_ERR_UNSUP);
		assert_int_equal(
		    answer_to_name(c, "none"), NBD_REP_ERR_UNKNOWN);
		assert_int_equal(count_listed(c), 2);
		client_free(c);
	}
}

static void
test_tls_only_exports(void **state)
{
	struct client *c = tls_begin(NBD_TLS_ALLOWED, 3);
	struct bytes b = { 0 };
	uint32_t len;

	(void)state;
	assert_int_equal(count_listed(c), 1);
	assert_int_equal(answer_to_name(c, "secret"), NBD_REP_ERR_TLS_REQD);
	assert_int_equal(answer_to_name(c, "none"), NBD_REP_ERR_TLS_REQD);
	assert_int_equal(answer(c, 99, "x", 1), NBD_REP_ERR_UNSUP);
	add_info(&b, NBD_OPT_INFO, "disk", -1);
	client_send(c, &b);
	expect_option(c, NBD_OPT_INFO, NBD_REP_INFO, &len);
	expect_ack(c, NBD_OPT_INFO);
	start_tls(c);
	assert_int_equal(count_listed(c), 2);
	add_info(&b, NBD_OPT_GO, "secret", -1);
	client_send(c, &b);
	expect_option(c, NBD_OPT_GO, NBD_REP_INFO, &len);
	expect_ack(c, NBD_OPT_GO);
	assert_true(nbd_in_transmission(c->session));
	client_free(c);

	/* the default export is one like the others */
	c = tls_begin(NBD_TLS_ALLOWED, 3);
	c->export[0].tls_only = true;
	assert_int_equal(answer_to_name(c, ""), NBD_REP_ERR_TLS_REQD);
	assert_int_equal(count_listed(c), 0);
	client_free(c);

	/* where there is no secret, what is not there is not there */
	c = tls_begin(NBD_TLS_ALLOWED, 3);
	c->export[1].tls_only = false;
	assert_int_equal(answer_to_name(c, "none"), NBD_REP_ERR_UNKNOWN);
	client_free(c);
}

static void
test_tls_only_without_tls(void **state)
{
	struct client *c = tls_begin(NBD_TLS_OFF, 3);

	(void)state;
	assert_int_equal(count_listed(c), 1);
	assert_int_equal(answer_to_name(c, "secret"), NBD_REP_ERR_UNKNOWN);
	assert_int_equal(answer_to_name(c, "none"), NBD_REP_ERR_UNKNOWN);
	assert_int_equal(
	    answer(c, NBD_OPT_STARTTLS, NULL, 0), NBD_REP_ERR_POLICY);
	expect_in_step(c);
	client_free(c);
}

static void
test_tls_needs_fixed_newstyle(void **state)
{
	struct client *c = tls_begin(NBD_TLS_ALLOWED, 2);
	struct bytes b = { 0 };

	(void)state;
	assert_int_equal(
	    answer(c, NBD_OPT_STARTTLS, NULL, 0), NBD_REP_ERR_POLICY);
	assert_false(nbd_wants_tls(c->session));
	assert_int_equal(answer_to_name(c, "secret"), NBD_REP_ERR_UNKNOWN);
	expect_in_step(c);
	client_free(c);

	/* there is nothing for it where nothing goes without TLS */
	c = client_new(NULL);
	nbd_set_tls(c->session, NBD_TLS_REQUIRED);
	client_receive(c);
	expect_greeting(c);
	bytes_be(&b, 0, 4);
	client_send(c, &b);
	assert_int_equal(c->error, -EPROTO);
	expect_no_more(c);
	client_free(c);
}

/* ------------------------------------------------------------ INFO and GO */

static void
test_info_malformed(void **state)
{
	static const struct {
		const char *data;
		size_t len;
	} cases[] = {
		{ "", 0 }, { "\0\0\0\0\0", 5 },
		{ "\0\0\0\1\0\0", 6 }, /* name longer than the option */
		{ "\xff\xff\xff\xff\0\0", 6 },
		{ "\xff\xff\xff\xfa\0\0\0\0", 8 },
		{ "\0\0\0\4disk\0\1", 10 }, /* an info is missing */
		{ "\0\0\0\4disk\xff\xff\0\0", 12 },
		{ "\0\0\0\4disk\0\0x", 11 }, /* more than announced */
		{ "\0\0\0\4disk\0\1\0\3\0\3", 14 },
		{ "\0\0\0\5di\0sk\0\0", 11 }, /* NUL */
	};
	static char longest[4 + 4097 + 2];
	struct client *c = options_begin(3);
	uint32_t nr;
	unsigned i;

	(void)state;
	memset(longest, 'n', sizeof(longest));
	put_be32(longest, 4097);
	put_be16(longest + 4 + 4097, 0);
	for (nr = NBD_OPT_INFO; nr <= NBD_OPT_GO; nr++) {
		struct bytes b = { 0 };

		for (i = 0; i < 10; i++)
			add_option(&b, nr, cases[i].data, cases[i].len);
		add_option(&b, nr, longest, sizeof(longest));
		client_send(c, &b);
		for (i = 0; i < 11; i++)
			expect_error(c, nr, NBD_REP_ERR_INVALID);
	}
	expect_in_step(c);
	client_free(c);
}

/* What INFO tells, GO tells, too (N69). */
static void
test_info_and_go(void **state)
{
	struct client *c = options_begin(1);
	struct bytes b = { 0 };
	const char *p;
	uint32_t len, nr;

	(void)state;
	for (nr = NBD_OPT_INFO; nr <= NBD_OPT_GO; nr++) {
		/* unknown and repeated types are let pass (N63) */
		add_info(&b, nr, "", NBD_INFO_NAME, NBD_INFO_DESCRIPTION,
		    NBD_INFO_BLOCK_SIZE, 0x7fff, NBD_INFO_NAME, -1);
		client_send(c, &b);
		p = expect_option(c, nr, NBD_REP_INFO, &len);
		assert_int_equal(len, 12);
		assert_int_equal(get_be16(p), NBD_INFO_EXPORT);
		assert_int_equal(get_be64(p + 2), FAKE_SIZE);
		assert_int_equal(get_be16(p + 10), 0xd6d);
		p = expect_option(c, nr, NBD_REP_INFO, &len);
		assert_int_equal(len, 6);
		assert_memory_equal(p, "\0\1disk", 6); /* canonical (N64) */
		p = expect_option(c, nr, NBD_REP_INFO, &len);
		assert_int_equal(len, 8);
		assert_memory_equal(p, "\0\2a fake", 8);
		p = expect_option(c, nr, NBD_REP_INFO, &len);
		assert_int_equal(len, 14);
		assert_int_equal(get_be16(p), NBD_INFO_BLOCK_SIZE);
		assert_int_equal(get_be32(p + 2), 512);
		assert_int_equal(get_be32(p + 6), 4096);
		assert_int_equal(get_be32(p + 10), NBD_MAX_PAYLOAD);
		expect_ack(c, nr);
		expect_no_more(c); /* no padding after GO (N71) */
		assert_int_equal(
		    nbd_in_transmission(c->session), nr == NBD_OPT_GO);
	}
	client_free(c);
}

static void
test_info_without_description(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };
	uint32_t len;

	(void)state;
	c->export[0].description = NULL;
	add_info(&b, NBD_OPT_INFO, "disk", NBD_INFO_DESCRIPTION, -1);
	client_send(c, &b);
	expect_option(c, NBD_OPT_INFO, NBD_REP_INFO, &len);
	expect_ack(c, NBD_OPT_INFO);
	expect_in_step(c);
	client_free(c);
}

static void
test_flags_follow_the_export(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };
	const char *p;
	uint32_t len;

	(void)state;
	c->export[0].can_trim = false;
	c->export[0].read_only = true;
	c->export[0].rotational = true;
	add_info(&b, NBD_OPT_INFO, "disk", -1);
	client_send(c, &b);
	p = expect_option(c, NBD_OPT_INFO, NBD_REP_INFO, &len);
	assert_int_equal(get_be16(p + 10), 0xd5f);
	client_free(c);
}

static void
test_unknown_export(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };
	char name[4097];
	const char *p;
	uint32_t len;

	(void)state;
	memset(name, '\xff', 4096);
	name[4096] = '\0';
	add_info(&b, NBD_OPT_GO, "no\nsuch", NBD_INFO_BLOCK_SIZE, -1);
	add_info(&b, NBD_OPT_INFO, name, -1);
	client_send(c, &b);
	p = expect_option(c, NBD_OPT_GO, NBD_REP_ERR_UNKNOWN, &len);
	assert_memory_equal(p, "export \"no\\x0asuch\" is unknown", len);
	p = expect_option(c, NBD_OPT_INFO, NBD_REP_ERR_UNKNOWN, &len);
	assert_true(len < 400);
	while (len-- > 0)
		assert_in_range(p[len], ' ', '~');
	assert_false(nbd_in_transmission(c->session)); /* N72 */
	expect_in_step(c);
	client_free(c);
}

static void
test_no_default_export(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };

	(void)state;
	c->nr_exports = 0;
	add_info(&b, NBD_OPT_GO, "", -1);
	client_send(c, &b);
	expect_error(c, NBD_OPT_GO, NBD_REP_ERR_UNKNOWN);
	c->nr_exports = 1;
	expect_in_step(c);
	client_free(c);
}

static void
test_command_behind_go(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };
	uint32_t len;

	(void)state;
	add_info(&b, NBD_OPT_GO, "disk", -1);
	add_write(&b, 1, 4096, 20000, 'w'); /* more than the first buffer */
	add_request(&b, NBD_CMD_READ, 0, 2, 4096, 20000);
	add_request(&b, NBD_CMD_DISC, 0, 3, 0, 0);
	client_send(c, &b);
	expect_option(c, NBD_OPT_GO, NBD_REP_INFO, &len);
	expect_ack(c, NBD_OPT_GO);
	expect_reply(c, 1, 0, 0);
	expect_data(expect_reply(c, 2, 0, 20000), 'w', 20000);
	expect_no_more(c);
	assert_true(nbd_done(c->session));
	client_free(c);
}

static void
test_nothing_is_served_before_attach(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };
	struct iovec iov[2];

	(void)state;
	add_info(&b, NBD_OPT_GO, "disk", -1);
	add_request(&b, NBD_CMD_READ, 0, 2, 0, 512);
	assert_int_equal(nbd_want(c->session, iov, 2), 1);
	memcpy(iov[0].iov_base, b.p, b.len);
	assert_int_equal(nbd_got(c->session, b.len, false, c->now), 0);
	assert_true(nbd_in_transmission(c->session));
	assert_int_equal(nbd_want(c->session, iov, 2), 0);
	nbd_eof(c->session, c->now);
	assert_false(nbd_done(c->session)); /* a request is there */
	client_receive(c);
	assert_int_equal(c->in.len - c->in_pos, 20 + 12 + 20);
	c->in_pos = c->in.len;
	nbd_attach(c->session, c->cpu, c->pool);
	client_got(c, 0);
	client_settle(c);
	expect_reply(c, 2, 0, 512);
	assert_true(nbd_done(c->session));
	bytes_free(&b);
	client_free(c);
}

/* ------------------------------------------------- the form of transmission */

static void
test_structured(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };

	(void)state;
	assert_false(info_flags(c) & NBD_FLAG_SEND_DF);
	add_option(&b, NBD_OPT_STRUCTURED_REPLY, "data", 4);
	client_send(c, &b);
	expect_error(c, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_INVALID);
	assert_false(info_flags(c) & NBD_FLAG_SEND_DF);
	add_option(&b, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
	add_option(&b, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
	client_send(c, &b);
	expect_ack(c, NBD_OPT_STRUCTURED_REPLY);
	expect_error(c, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_INVALID);
	assert_true(info_flags(c) & NBD_FLAG_SEND_DF);
	expect_in_step(c);
	client_free(c);
	/* N29 */
	c = options_begin(3);
	add_option(&b, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
	add_option(&b, NBD_OPT_EXPORT_NAME, NULL, 0);
	client_send(c, &b);
	expect_ack(c, NBD_OPT_STRUCTURED_REPLY);
	assert_true(get_be16(expect_bytes(c, 10) + 8) & NBD_FLAG_SEND_DF);
	assert_int_equal(nbd_features(c->session),
	    NBD_FEATURE_STRUCTURED | NBD_FEATURE_NO_ZEROES);
	client_free(c);
}

static void
test_extended(void **state)
{
	struct client *c = options_begin(3);
	struct bytes b = { 0 };
	uint16_t flags;

	(void)state;
	add_option(&b, NBD_OPT_EXTENDED_HEADERS, "data", 4);
	add_option(&b, NBD_OPT_EXTENDED_HEADERS, NULL, 0);
	add_option(&b, NBD_OPT_EXTENDED_HEADERS, NULL, 0);
	add_option(&b, NBD_OPT_STRUCTURED_REPLY, NULL, 0);
	client_send(c, &b);
	expect_error(c, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_INVALID);
	expect_ack(c, NBD_OPT_EXTENDED_HEADERS);
	expect_error(c, NBD_OPT_EXTENDED_HEADERS, NBD_REP_ERR_INVALID);
	expect_error(c, NBD_OPT_STRUCTURED_REPLY, NBD_REP_ERR_EXT_HEADER_REQD);
	flags = info_flags(c);
	assert_true(flags & NBD_FLAG_SEND_DF);
	assert_false(flags & NBD_FLAG_BLOCK_STATUS_PAYLOAD);
	add_option(&b, NBD_OPT_EXPORT_NAME, NULL, 0);
	client_send(c, &b);
	assert_int_equal(c->error, -EPROTO); /* N28 */
	expect_no_more(c);
	client_free(c);
}

#define CASE(sentence, function)                     \
	{                                            \
		sentence, function, NULL, NULL, NULL \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("speaks first: magic, magic, flags (N1, N2)",
		    test_greets_first),
		CASE("reassembles the client's flags (N7)",
		    test_flags_byte_by_byte),
		CASE("hangs up on unknown client flags (N4, N9)",
		    test_unknown_flags),
		CASE("serves plain newstyle, padded (N5, N24)",
		    test_plain_newstyle),
		CASE(
		    "hangs up on a wrong option magic (N12)", test_wrong_magic),
		CASE("answers unknown options UNSUP, in step (N13 to N15)",
		    test_unknown_options),
		CASE("drains an option that is too big (N16)", test_oversized),
		CASE("hangs up on a monstrous option (N16)", test_monstrous),
		CASE("takes memory for what came, not for what was announced "
		     "(N16)",
		    test_memory_follows_data),
		CASE("serves pipelined options in order (N18, N75)",
		    test_pipelined),
		CASE("bounds the number of options; 1000 INFO leave nothing "
		     "(N22, N70)",
		    test_number_is_bounded),
		CASE("answers ERR_SHUTDOWN while shutting down (N21)",
		    test_shutdown),
		CASE("enters transmission by EXPORT_NAME (N24, N26)",
		    test_export_name),
		CASE("hangs up on an EXPORT_NAME it cannot serve (N25, N27)",
		    test_export_name_refused),
		CASE("takes a name for a name, 4096 bytes of it (N26, N27)",
		    test_names_are_not_paths),
		CASE("acknowledges ABORT, whatever its data (N31, N32)",
		    test_abort),
		CASE("has ended once ABORT's reply was sent (N31)",
		    test_abort_is_done_when_sent),
		CASE("lists exports, again and again (N35 to N41)", test_list),
		CASE("waits for a slow reader of pipelined LISTs",
		    test_slow_reader_of_list),
		CASE("refuses STARTTLS by policy (N42, N43)", test_starttls),
		CASE("goes on in TLS once STARTTLS is acknowledged (N43 to "
		     "N45)",
		    test_tls_begins),
		CASE("listens to nothing between STARTTLS and TLS (N44)",
		    test_tls_waits_for_the_ack),
		CASE("does not begin TLS while shutting down (N21)",
		    test_tls_ends_with_shutdown),
		CASE("forgets what was before TLS (N47)", test_tls_resets),
		CASE("agrees on nothing by what was said before TLS (N47)",
		    test_tls_forgets_agreements),
		CASE("hangs up on plaintext behind STARTTLS (N48)",
		    test_tls_injection),
		CASE("wants TLS before anything but ABORT where it is required "
		     "(N34, N49, N51)",
		    test_tls_required),
		CASE("hangs up on an EXPORT_NAME that needs TLS (N50, N54)",
		    test_tls_export_name),
		CASE("asks for TLS no more inside TLS (N52)",
		    test_tls_never_required_inside),
		CASE("shows exports for TLS alone in TLS alone (N40, N53, N55)",
		    test_tls_only_exports),
		CASE("knows no exports for TLS where there is none (N42)",
		    test_tls_only_without_tls),
		CASE("offers no TLS to plain newstyle (N6)",
		    test_tls_needs_fixed_newstyle),
		CASE("refuses malformed INFO and GO, in step (N59, N60)",
		    test_info_malformed),
		CASE("answers INFO and GO alike (N61 to N66, N69, N71, N74, "
		     "N81 to N86)",
		    test_info_and_go),
		CASE("sends no description where there is none (N65)",
		    test_info_without_description),
		CASE("derives transmission flags from the export (N62)",
		    test_flags_follow_the_export),
		CASE("answers UNKNOWN, quoting the name safely (N67, N72)",
		    test_unknown_export),
		CASE("has no default export where there is none (N74)",
		    test_no_default_export),
		CASE("takes bytes behind GO for commands (N73)",
		    test_command_behind_go),
		CASE("agrees on structured replies, once (N19, N29, N76, N77, "
		     "N79)",
		    test_structured),
		CASE("agrees on extended headers, once (N28, N80, N168)",
		    test_extended),
		CASE("serves nothing before it is attached",
		    test_nothing_is_served_before_attach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
