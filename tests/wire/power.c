/* SPDX-License-Identifier: MIT */
/*
 * Devices that come and go while the daemon runs: whoever uses one that goes is
 * told so in time, and nobody else notices.
 */
#include "../lib/wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NR(a)       (sizeof(a) / sizeof(*(a)))
#define GRACE_MS    2000 /* then what is in flight ends, as at SIGTERM */
#define SHUTDOWN_MS 4000 /* then whoever is still there is hung up on */
#define SLACK_MS    2500 /* of a machine that has more to do */
#define HOUR        "3600000000000"
#define NR_SAFE     8 /* of the changes: they disturb nobody */

/* ---- asking */

static char answer[64 * KiB];

/* Send a request, whose answer is for later. */
static int
begin(struct daemon *d, const char *request)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t len = strlen(request);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", d->control);
	if (fd < 0 || connect(fd, (void *)&sa, sizeof(sa)) != 0 ||
	    send(fd, request, len, MSG_NOSIGNAL) != (ssize_t)len ||
	    send(fd, "\n", 1, MSG_NOSIGNAL) != 1)
		wire_fail("control: %s", strerror(errno));
	return fd;
}

/* It has come, whole: ok? */
static bool
finish(int fd)
{
	size_t n = 0;
	ssize_t got = 1;

	while (got > 0 && (n == 0 || answer[n - 1] != '\n')) {
		got = recv(fd, answer + n, sizeof(answer) - 1 - n, 0);
		n += got > 0 ? (size_t)got : 0;
	}
	answer[n] = '\0';
	close(fd);
	return strstr(answer, "\"ok\":true") != NULL;
}

static bool
ask(struct daemon *d, const char *request)
{
	return finish(begin(d, request));
}

/* A command for a device. */
static const char *
command(const char *name, const char *device)
{
	static char request[256];

	snprintf(request, sizeof(request),
	    "{\"command\":\"%s\",\"name\":\"%s\"}", name, device);
	return request;
}

static const char *
power(const char *device, const char *value)
{
	static char request[256];

	snprintf(request, sizeof(request),
	    "{\"command\":\"power\",\"name\":\"%s\",\"value\":\"%s\"}", device,
	    value);
	return request;
}

/* `attributes` are JSON: "\"size\":\"1M\"". */
static bool
create(struct daemon *d, const char *device, const char *attributes)
{
	char request[512];

	snprintf(request, sizeof(request),
	    "{\"command\":\"create\",\"name\":\"%s\",\"attributes\":{%s}}",
	    device, attributes);
	return ask(d, request);
}

static void
must(bool ok)
{
	if (!ok)
		wire_fail("refused: %s", answer);
}

static void
must_not(bool ok, const char *error, const char *text)
{
	if (ok || !strstr(answer, error) || !strstr(answer, text))
		wire_fail("not %s, %s: %s", error, text, answer);
}

static unsigned
ms_since(uint64_t start_ns)
{
	return (unsigned)((now_ns() - start_ns) / 1000000);
}

/* Is there such an export?  The connection may go on. */
static bool
is_served(struct daemon *d, const char *name)
{
	struct wire *w = wire_unix(d->sock);
	uint32_t type;

	wire_greeting(w);
	wire_flags(w, HS_FIXED | HS_NO_ZEROES);
	type = wire_info(w, OPT_INFO, name, NULL, 0);
	wire_close(w);
	if (type != REP_ACK && type != REP_ERR_UNKNOWN)
		wire_fail("INFO of %s: %x", name, type);
	return type == REP_ACK;
}

/* ---- one by one */

static void
comes_and_goes(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M", NULL);
	uint8_t data[512], zeros[512] = { 0 };
	struct wire *w;
	unsigned fds;

	(void)state;
	assert_false(is_served(d, "new"));
	fds = daemon_fds(d);
	for (int i = 0; i < 3; i++) {
		must(create(d, "new",
		    "\"size\":\"16M\",\"memory_backed\":\"1\","
		    "\"export_names\":[\"a\",\"b\"]"));
		must_not(create(d, "new", ""), "EEXIST", "there is one");
		must_not(create(d, "b", ""), "EEXIST", "is a name of new");
		w = wire_open(d, "b", true);
		assert_int_equal(w->size, 16 * MiB);
		assert_int_equal(wire_read(w, data, 4096, 512), 0);
		assert_same(data, zeros, 512, "a new device");
		wire_assert_served(w, 4096);
		must(ask(d, command("remove", "new")));
		wire_expect_eof(w);
		wire_close(w);
		assert_false(is_served(d, "new"));
		assert_false(is_served(d, "a"));
		must_not(ask(d, command("remove", "new")), "ENODEV",
		    "no such device");
		must_not(
		    ask(d, command("stat", "new")), "ENODEV", "no such device");
	}
	daemon_settle(d, fds);
	must(create(d, "off", "\"power\":\"0\",\"size\":\"1M\""));
	assert_false(is_served(d, "off"));
	must(ask(d, "{\"command\":\"list\"}"));
	assert_non_null(strstr(answer, "\"name\":\"off\",\"power\":false"));
	must(ask(d, command("remove", "off")));
	daemon_stop(d);
}

static void
makes_nothing_of_what_is_refused(void **state)
{
	struct daemon *d = daemon_start("nullb0:size=64M", NULL);

	(void)state;
	must_not(create(d, "x", "\"blocksize\":\"1000\""), "EINVAL",
	    "x: blocksize: 1000: allowed");
	must_not(create(d, "x", "\"nope\":\"1\""), "ENOENT", "nope");
	must_not(create(d, "a/b", ""), "EINVAL", "bad name");
	must_not(create(d, "nullb0", ""), "EEXIST", "there is one");
	must_not(ask(d, "{\"command\":\"create\"}"), "EINVAL", "name");
	must_not(ask(d, "{\"command\":\"create\",\"name\":\"x\","
			"\"attributes\":1}"),
	    "EINVAL", "attributes: not an object");
	must_not(ask(d, power("nullb0", "2")), "EINVAL", "allowed: 0, 1");
	must_not(ask(d, command("power", "nullb0")), "EINVAL", "value");
	must_not(ask(d, power("x", "1")), "ENODEV", "no such device");
	must(create(d, "x", "\"size\":\"1M\""));
	daemon_stop(d);
}

static void
goes_off_and_on_with_its_data(void **state)
{
	struct daemon *d =
	    daemon_start("nullb0:size=64M,memory_backed=1,badblocks=+16-23",
		"other:size=1M", NULL);
	uint8_t data[4096], got[4096];
	struct wire *w = wire_open(d, "nullb0", true);

	(void)state;
	fill(data, sizeof(data), 7);
	assert_int_equal(wire_write(w, data, 32 * MiB, sizeof(data)), 0);
	must(ask(d, power("nullb0", "on"))); /* 1->1 */
	must(ask(d, power("nullb0", "off")));
	wire_expect_eof(w);
	wire_close(w);
	must(ask(d, power("nullb0", "0"))); /* 0->0 */
	assert_false(is_served(d, "nullb0"));
	assert_true(is_served(d, "")); /* the next is the default now */
	must_not(ask(d, command("stat", "nullb0")), "ENODEV", "power is off");
	assert_true(daemon_set(d, "nullb0", "blocksize", "1000"));
	must_not(ask(d, power("nullb0", "on")), "EINVAL",
	    "nullb0: blocksize: 1000: allowed");
	assert_true(daemon_set(d, "nullb0", "blocksize", "4096"));
	assert_true(daemon_set(d, "nullb0", "size", "128"));
	assert_true(daemon_set(d, "nullb0", "power", "1"));
	w = wire_open(d, "", true); /* the first one again */
	assert_int_equal(w->size, 128 * MiB);
	assert_int_equal(w->min, 4096);
	assert_int_equal(wire_read(w, got, 32 * MiB, sizeof(got)), 0);
	assert_same(got, data, sizeof(got), "what was there before");
	assert_int_equal(wire_read(w, got, 16 * 512, 4096), E_IO);
	wire_assert_served(w, 127 * MiB);
	assert_true(daemon_set(d, "nullb0", "power", "0"));
	wire_expect_eof(w);
	daemon_stop(d);
}

/* A page of it, each with a fill() of its own. */
static void
put_page(struct wire *w, uint16_t flags, unsigned page, uint64_t seed)
{
	static uint8_t data[4096];
	struct op op = {
		.type = CMD_WRITE,
		.flags = flags,
		.offset = page * 4096ul,
		.length = sizeof(data),
		.data = data,
	};

	fill(data, sizeof(data), seed);
	batch_run(w, &op, 1, 0);
	batch_assert_ok(&op, 1);
}

/* seed 0: zeros */
static void
page_is(struct wire *w, unsigned page, uint64_t seed, const char *what)
{
	uint8_t want[4096] = { 0 }, got[4096];

	if (seed != 0)
		fill(want, sizeof(want), seed);
	assert_int_equal(wire_read(w, got, page * 4096ul, sizeof(got)), 0);
	assert_same(got, want, sizeof(want), what);
}

/* Off, at once or when its client is gone, and on again. */
static struct wire *
cut_the_power(struct daemon *d, struct wire *w, bool connected)
{
	int fd;

	if (!connected) {
		wire_request(w, 0, CMD_DISC, 0, 0, 0);
		wire_expect_eof(w);
	}
	fd = begin(d, power("cached", "off"));
	if (connected)
		wire_expect_eof(w);
	must(finish(fd));
	wire_close(w);
	must(ask(d, power("cached", "on")));
	return wire_open(d, "cached", false);
}

static void
loses_what_was_not_flushed(void **state)
{
	struct daemon *d = daemon_start("--workers", "2",
	    "cached:size=16M,memory_backed=1,discard=1,cache_size=1M,"
	    "write_zeroes_max_bytes=1M",
	    NULL);
	struct wire *w = wire_open(d, "cached", false), *other;

	(void)state;
	assert_true((w->tx_flags & TX_FLUSH) != 0);
	assert_true((w->tx_flags & TX_FUA) != 0);
	for (unsigned round = 0; round < 2; round++) {
		uint64_t s = round * 100;

		other = wire_open(d, "cached", false);
		put_page(w, 0, 0, s + 1);
		put_page(w, 0, 1, s + 2);
		put_page(other, 0, 2, s + 3);
		/* of all clients (multi-conn) */
		assert_int_equal(wire_cmd(other, 0, CMD_FLUSH, 0, 0), 0);
		wire_close(other);
		put_page(w, 0, 1, s + 4);
		put_page(w, 0, 3, s + 5);
		put_page(w, CMD_FUA, 4, s + 6);
		put_page(w, 0, 5, s + 7);
		put_page(w, CMD_FUA, 5, s + 8);
		put_page(w, 0, 5, s + 9);
		assert_int_equal(wire_cmd(w, 0, CMD_TRIM, 0, 4096), 0);
		page_is(w, 1, s + 4, "before the cut");
		w = cut_the_power(d, w, round == 0);
		page_is(w, 0, 0, "trimmed: no cut undoes it");
		page_is(w, 1, s + 2, "flushed, the rest lost");
		page_is(w, 2, s + 3, "flushed by another");
		page_is(w, 3, 0, "never flushed");
		page_is(w, 4, s + 6, "written with FUA");
		page_is(
		    w, 5, s + 8, "the same, what came before and after lost");
	}
	/* none any more: nothing is lost */
	assert_true(daemon_set(d, "cached", "cache_size", "0"));
	put_page(w, 0, 3, 5);
	w = cut_the_power(d, w, true);
	page_is(w, 3, 5, "without a cache");
	daemon_stop(d);
}

/* Reads of 512 bytes, on their way. */
static void
send_reads(struct wire *w, struct op *ops, size_t nr)
{
	static uint8_t got[512];

	memset(ops, 0, nr * sizeof(*ops));
	for (size_t i = 0; i < nr; i++) {
		ops[i].type = CMD_READ;
		ops[i].offset = i * 4096;
		ops[i].length = 512;
		ops[i].got = got;
	}
	batch_send(w, ops, nr);
}

static void
in_flight(struct daemon *d, const char *name, long long nr)
{
	for (int i = 0; i < 1000; i++) {
		if (daemon_stat(d, name, 9) >= nr)
			return;
		sleep_ms(5);
	}
	wire_fail("%s has not %lld in flight", name, nr);
}

static void
finishes_what_is_in_flight(void **state)
{
	struct daemon *d = daemon_start("--workers", "2",
	    "a:size=64M,irqmode=2,completion_nsec=500000000", NULL);
	struct wire *w = wire_open(d, "a", false);
	uint64_t start = now_ns();
	struct op ops[8];
	int fd;

	(void)state;
	send_reads(w, ops, NR(ops));
	in_flight(d, "a", NR(ops));
	fd = begin(d, power("a", "off"));
	assert_int_equal(batch_collect_eof(w, ops, NR(ops)), NR(ops));
	batch_assert_ok(ops, NR(ops));
	must(finish(fd));
	assert_in_range(ms_since(start), 500, GRACE_MS);
	daemon_stop(d);
}

/* So many clients are as `text` has it. */
static void
has_sent(struct daemon *d, unsigned nr, const char *text)
{
	for (int i = 0; i < 1000; i++) {
		const char *at = answer;
		unsigned found = 0;

		must(ask(d, "{\"command\":\"clients\"}"));
		while ((at = strstr(at, text)) != NULL) {
			at += strlen(text);
			found++;
		}
		if (found == nr)
			return;
		sleep_ms(5);
	}
	wire_fail("not %u clients with %s: %s", nr, text, answer);
}

/* With a device like that: all are answered ESHUTDOWN, after the grace. */
static void
expire_on(const char *device)
{
	struct daemon *d =
	    daemon_start("--workers", "3", device, "b:size=64M", NULL);
	struct wire *other = wire_open(d, "b", false), *w[3];
	static struct op ops[3][100];
	uint64_t start;
	int fd;

	for (size_t i = 0; i < NR(w); i++) {
		w[i] = wire_open(d, "a", false);
		send_reads(w[i], ops[i], NR(ops[i]));
	}
	/* what the daemon has not read yet is answered by nobody */
	has_sent(d, NR(w), "\"requests\":100,");
	start = now_ns();
	fd = begin(d, command("remove", "a"));
	for (size_t i = 0; i < NR(w); i++) {
		assert_int_equal(
		    batch_collect_eof(w[i], ops[i], NR(ops[i])), NR(ops[i]));
		for (size_t k = 0; k < NR(ops[i]); k++)
			assert_int_equal(ops[i][k].error, E_SHUTDOWN);
	}
	must(finish(fd));
	assert_in_range(ms_since(start), GRACE_MS - 100, GRACE_MS + SLACK_MS);
	assert_int_equal(wire_cmd(other, 0, CMD_FLUSH, 0, 0), 0);
	must(create(d, "a", "\"size\":\"1M\""));
	for (size_t i = 0; i < NR(w); i++)
		wire_close(w[i]);
	daemon_stop(d);
}

static void
answers_what_does_not_end(void **state)
{
	(void)state;
	expire_on("a:size=64M,irqmode=2,completion_nsec=" HOUR);
}

static void
answers_what_waits_for_tags(void **state)
{
	(void)state;
	expire_on("a:size=64M,irqmode=2,hw_queue_depth=1,submit_queues=2,"
		  "shared_tag_bitmap=1,completion_nsec=" HOUR);
}

static void
answers_what_waits_in_a_scheduler(void **state)
{
	(void)state;
	expire_on("a:size=64M,irqmode=2,hw_queue_depth=2,scheduler=mq-deadline,"
		  "nomerges=2,completion_nsec=" HOUR);
}

static void
does_not_wait_for_mbps(void **state)
{
	struct daemon *d = daemon_start(
	    "a:size=64M,mbps=1,max_sectors=2560", "b:size=1M", NULL);
	struct wire *w = wire_open(d, "a", false);
	uint64_t start = now_ns();
	static uint8_t got[MiB];
	struct op ops[32] = { 0 };
	int fd;

	(void)state;
	for (size_t i = 0; i < NR(ops); i++) {
		ops[i].type = CMD_READ;
		ops[i].offset = i * MiB;
		ops[i].length = MiB;
		ops[i].got = got;
	}
	batch_send(w, ops, NR(ops)); /* half a minute's */
	in_flight(d, "a", 4);
	fd = begin(d, power("a", "off"));
	batch_collect_eof(w, ops, NR(ops));
	must(finish(fd));
	assert_in_range(ms_since(start), 0, SLACK_MS);
	daemon_stop(d);
}

static void
hangs_up_on_who_does_not_end(void **state)
{
	struct daemon *d = daemon_start(
	    "a:size=64M,memory_backed=1", "b:size=64M,memory_backed=1", NULL);
	struct wire *half = wire_open(d, "a", false),
		    *deaf = wire_open(d, "a", false),
		    *idle = wire_open(d, "a", false),
		    *other = wire_open(d, "b", false);
	uint8_t *buf = xmalloc(64 * REQUEST_SIZE), *p = buf;
	uint64_t start;
	int fd;

	(void)state;
	wire_request(half, 0, CMD_WRITE, 1, 0, 1 * MiB);
	wire_send(half, buf, 100); /* half a payload */
	for (uint64_t i = 0; i < 64; i++)
		p = put_request(p, 0, CMD_READ, i, 0, 1 * MiB);
	wire_try_send(deaf, buf, 64 * REQUEST_SIZE, 50); /* reads nothing */
	sleep_ms(50);
	start = now_ns();
	fd = begin(d, power("a", "off"));
	wire_expect_eof(idle); /* at once: it had nothing to say */
	assert_in_range(ms_since(start), 0, GRACE_MS - 500);
	must_not(ask(d, power("a", "on")), "EBUSY", "going off");
	must_not(ask(d, "{\"command\":\"set\",\"name\":\"a\",\"attribute\":"
			"\"mbps\",\"value\":\"1\"}"),
	    "EBUSY", "the power is going off");
	must_not(ask(d, command("trace", "a")), "EBUSY", "going off");
	must_not(create(d, "a", ""), "EEXIST", "there is one");
	must(ask(d, command("iostat", "a")));
	must(ask(d, command("queue", "a")));
	must(ask(d, "{\"command\":\"clients\"}"));
	assert_non_null(strstr(answer, "\"phase\":\"closing\""));
	wire_assert_served(other, 0);
	must(finish(fd));
	assert_in_range(
	    ms_since(start), SHUTDOWN_MS - 100, SHUTDOWN_MS + SLACK_MS);
	wire_assert_served(other, 4096);
	must(ask(d, power("a", "on")));
	wire_assert_served(wire_open(d, "a", false), 0);
	free(buf);
	daemon_stop(d);
}

static void
lets_who_negotiates_go_on(void **state)
{
	static const char *const query[] = { "base:allocation" };
	struct daemon *d =
	    daemon_start("a:size=64M,memory_backed=1", "b:size=1M", NULL);
	struct wire *w = wire_negotiate(d, WIRE_STRUCTURED);

	(void)state;
	assert_int_equal(wire_meta(w, OPT_SET_META, "a", query, 1), REP_ACK);
	assert_int_equal(wire_info(w, OPT_INFO, "a", NULL, 0), REP_ACK);
	must(ask(d, power("a", "off")));
	assert_int_equal(wire_info(w, OPT_GO, "a", NULL, 0), REP_ERR_UNKNOWN);
	assert_int_equal(
	    wire_meta(w, OPT_SET_META, "a", query, 1), REP_ERR_UNKNOWN);
	assert_int_equal(wire_meta(w, OPT_SET_META, "b", query, 1), REP_ACK);
	must(ask(d, power("a", "on")));
	assert_int_equal(wire_meta(w, OPT_SET_META, "a", query, 1), REP_ACK);
	must(ask(d, power("a", "off")));
	must(ask(d, power("a", "on")));
	/* what was chosen was of an export that is no more */
	assert_int_equal(wire_info(w, OPT_GO, "a", NULL, 0), REP_ACK);
	assert_int_equal(wire_cmd(w, 0, CMD_BLOCK_STATUS, 0, 4096), E_INVAL);
	wire_assert_served(w, 0);
	daemon_stop(d);
}

/* A trace ends when its device goes off, with a last message. */
static void
ends_traces(void **state)
{
	struct daemon *d = daemon_start("a:size=64M", NULL);
	struct wire *w = wire_open(d, "a", false);
	int fd = begin(d, command("trace", "a"));
	size_t nr = 0;
	ssize_t n;

	(void)state;
	do /* the answer */
		n = recv(fd, answer + nr++, 1, 0);
	while (n == 1 && answer[nr - 1] != '\n');
	assert_int_equal(wire_cmd(w, 0, CMD_FLUSH, 0, 0), 0);
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(wire_read(w, answer, i * 4096, 512), 0);
	must(ask(d, power("a", "off")));
	nr = 0;
	while ((n = recv(fd, answer + nr, sizeof(answer) - nr, 0)) > 0)
		nr += (size_t)n;
	assert_int_equal(n, 0);
	assert_non_null(memmem(answer, nr, " events, 0 dropped", 18));
	close(fd);
	/* and one that nobody reads does not keep it */
	must(ask(d, power("a", "on")));
	fd = begin(d, command("trace", "a"));
	w = wire_open(d, "a", false);
	for (uint64_t i = 0; i < 20000; i++)
		assert_int_equal(wire_read(w, answer, i % 1000 * 4096, 512), 0);
	must(ask(d, command("remove", "a")));
	close(fd);
	daemon_stop(d);
}

static void
ends_in_time_while_a_device_goes(void **state)
{
	struct daemon *d =
	    daemon_start("--workers", "2", "a:size=64M,memory_backed=1",
		"b:size=1M,irqmode=2,completion_nsec=" HOUR, NULL);
	struct wire *w = wire_open(d, "a", false),
		    *b = wire_open(d, "b", false);
	uint8_t half[100] = { 0 };
	int fd[2];

	(void)state;
	if (!daemon_sanitized(d)) { /* which takes a second more to exit */
		wire_request(w, 0, CMD_WRITE, 1, 0, 1 * MiB);
		wire_send(w, half, sizeof(half));
	}
	wire_request(b, 0, CMD_READ, 1, 0, 512);
	in_flight(d, "b", 1);
	fd[0] = begin(d, command("remove", "a"));
	fd[1] = begin(d, power("b", "off"));
	sleep_ms(100);
	daemon_stop(d);
	close(fd[0]);
	close(fd[1]);
}

/* The answer waits for it, and for nothing else. */
static void
frees_much_data_without_a_pause(void **state)
{
	struct daemon *d =
	    daemon_start("a:size=1G,memory_backed=1", "b:size=1M", NULL);
	struct wire *w = wire_open(d, "a", false), *b;
	uint8_t *data = xmalloc(MiB);
	unsigned longest = 0, ms;
	uint64_t start, rss;
	int fd;

	(void)state;
	fill(data, MiB, 1);
	for (uint64_t i = 0; i < 256; i++)
		assert_int_equal(wire_write(w, data, i * MiB, MiB), 0);
	rss = daemon_rss(d);
	b = wire_open(d, "b", false);
	fd = begin(d, command("remove", "a"));
	for (int i = 0; i < 50; i++) {
		start = now_ns();
		assert_int_equal(wire_read(b, answer, 0, 512), 0);
		must(ask(d, "{\"command\":\"clients\"}"));
		ms = ms_since(start);
		longest = ms > longest ? ms : longest;
	}
	must(finish(fd));
	if (!daemon_sanitized(d)) {
		assert_in_range(longest, 0, 250);
		assert_true(daemon_rss(d) + 128 * MiB < rss);
	}
	free(data);
	daemon_stop(d);
}

static void
reload(struct daemon *d, const char *text, const char *said)
{
	daemon_config(d, text);
	kill(d->pid, SIGHUP);
	for (int i = 0; i < 1000; i++) {
		if (daemon_log_has(d, said))
			return;
		sleep_ms(5);
	}
	wire_fail("SIGHUP: it does not say '%s'", said);
}

static void
gets_along_with_files_that_are_read_again(void **state)
{
	struct daemon *d = daemon_new();
	const char *conf =
	    daemon_config(d, "[defaults]\nsize = 2M\n[a]\n[b]\n");

	(void)state;
	daemon_exec(d, (const char *const[]){ "-c", conf, "-U", d->sock,
			   "--control", d->control, NULL });
	daemon_ready(d, d->sock);
	must(create(d, "made", ""));
	must(ask(d, "{\"command\":\"get\",\"name\":\"made\","
		    "\"attribute\":\"size\"}"));
	assert_non_null(strstr(answer, "\"value\":\"2\"")); /* [defaults] */
	must(ask(d, command("remove", "a")));
	/* what is gone and in the files is made anew; what was made stays */
	reload(d, "[defaults]\nsize = 2M\n[a]\n[b]\n[c]\n",
	    "read again: 2 new devices, 0 differences");
	assert_true(is_served(d, "a"));
	assert_true(is_served(d, "made"));
	must_not(create(d, "c", ""), "EEXIST", "there is one");
	must(ask(d, power("b", "off")));
	reload(d, "[defaults]\nsize = 2M\n[a]\n[b]\n[c]\n[d]\n",
	    "read again: 1 new devices, 0 differences");
	assert_false(is_served(d, "b"));
	daemon_stop(d);
}

/* ---- all at once */

/* Whatever happens to its connection is fine. */
_Noreturn static void
use(struct daemon *d, uint64_t seed)
{
	uint8_t out[4096], in[16384], *p;
	char name[8];

	alarm(60);
	for (;;) {
		struct wire *w = wire_unix(d->sock);
		uint64_t nr = rng_below(&seed, 60);
		bool eof;

		snprintf(
		    name, sizeof(name), "s%u", (unsigned)rng_below(&seed, 4));
		wire_drain(w, in, 18, 2000, &eof);
		p = put32(out, 3);
		p = put_option(p, OPT_EXPORT_NAME, name, 2);
		wire_try_send(w, out, (size_t)(p - out), 500);
		if (!eof)
			wire_drain(w, in, 10, 2000, &eof);
		for (uint64_t i = 0; i < nr && !eof; i++) {
			p = out;
			for (int k = 0; k < 8; k++)
				p = put_request(p, 0, CMD_READ, i,
				    rng_below(&seed, 200) * 4096, 1024);
			if (rng_below(&seed, 4) == 0) {
				p = put_request(p, 0, CMD_WRITE, i, 8192, 2048);
				p += rng_below(&seed, 2) * 2048;
			}
			wire_try_send(w, out, (size_t)(p - out), 500);
			wire_drain(w, in,
			    rng_below(&seed, 3) ? 8 * (REPLY_SIZE + 1024) : 100,
			    50, &eof);
		}
		wire_close(w);
	}
}

static void
change_something(struct daemon *d, uint64_t *seed)
{
	static const char *const made_of[] = {
		"\"size\":\"1M\"",
		"\"size\":\"1M\",\"memory_backed\":\"1\",\"irqmode\":\"2\","
		"\"completion_nsec\":\"100000\"",
		"\"size\":\"2M\",\"memory_backed\":\"1\",\"submit_queues\":"
		"\"2\",\"hw_queue_depth\":\"3\",\"shared_tag_bitmap\":\"1\","
		"\"irqmode\":\"2\",\"completion_nsec\":\"300000\"",
		"\"size\":\"1M\",\"scheduler\":\"mq-deadline\","
		"\"hw_queue_depth\":\"2\",\"mbps\":\"20\"",
		"\"size\":\"1M\",\"power\":\"0\",\"kernel\":\"6.1\","
		"\"memory_backed\":\"1\"",
	};
	static const char *const set[][2] = {
		{ "submit_queues", "1" },
		{ "submit_queues", "2" },
		{ "submit_queues", "3" },
		{ "irqmode", "0" },
		{ "irqmode", "2" },
		{ "completion_nsec", "50000" },
		{ "scheduler", "none" },
		{ "scheduler", "mq-deadline" },
		{ "mbps", "5" },
		{ "mbps", "0" },
		{ "memory_limit", "65536" },
		{ "badblocks", "+8-8" },
		{ "badblocks", "-0-100" },
		{ "size", "2M" }, /* while it is off */
		{ "size", "1M" },
		{ "blocksize", "1024" },
		{ "blocksize", "512" },
	};
	static const char *const look[] = { "list", "iostat", "clients",
		"diskstats" };
	size_t i = rng_below(seed, NR(set));
	char name[8], all[64];

	snprintf(name, sizeof(name), "s%u", (unsigned)rng_below(seed, 4));
	switch (rng_below(seed, 10)) {
	case 0:
	case 1: create(d, name, made_of[rng_below(seed, NR(made_of))]); break;
	case 2: ask(d, command("remove", name)); break;
	case 3: ask(d, power(name, "off")); break;
	case 4: ask(d, power(name, "on")); break;
	case 5: kill(d->pid, SIGHUP); break;
	case 6: ask(d, command("queue", name)); break;
	case 7:
		snprintf(all, sizeof(all), "{\"command\":\"%s\"}",
		    look[rng_below(seed, NR(look))]);
		must(ask(d, all));
		break;
	case 8: /* what is in use all the time stays in use */
		i %= NR_SAFE;
		daemon_set(d, "stays", set[i][0], set[i][1]);
		break;
	default: daemon_set(d, name, set[i][0], set[i][1]); break;
	}
}

/* What a device tells of itself while it changes. */
_Noreturn static void
look_at_status(struct daemon *d)
{
	static const char *const query[] = { "base:allocation",
		"x-nullb:badblocks" };
	struct wire *w = wire_negotiate(d, WIRE_STRUCTURED);

	alarm(60);
	wire_meta(w, OPT_SET_META, "stays", query, 2);
	wire_info(w, OPT_GO, "stays", NULL, 0);
	for (;;)
		wire_cmd(w, 0, CMD_BLOCK_STATUS, 0, 1 * MiB);
}

/* Changes, by several who know nothing of each other. */
_Noreturn static void
change(struct daemon *d, uint64_t seed)
{
	alarm(60);
	for (;;)
		change_something(d, &seed);
}

static void
storms_disturb_nobody_else(void **state)
{
	struct daemon *d = daemon_new();
	const char *conf = daemon_config(d,
	    "[stays]\nsize = 64M\nmemory_backed = 1\n"
	    "[s0]\nsize = 1M\n[s1]\nsize = 1M\nmemory_backed = 1\n");
	uint64_t end, seed = wire_seed();
	unsigned nr = 0, fds;
	struct wire *w;
	pid_t child[9];
	int status;

	(void)state;
	daemon_exec(d, (const char *const[]){ "-c", conf, "-U", d->sock,
			   "--control", d->control, "--workers", "3", NULL });
	daemon_ready(d, d->sock);
	w = wire_open(d, "stays", false);
	fds = daemon_fds(d);
	end =
	    now_ns() + (getenv("NULLB_LONG") != NULL ? 40 : 6) * 1000000000ull;
	fflush(NULL);
	for (size_t i = 0; i < NR(child); i++) {
		child[i] = fork();
		if (child[i] == 0 && i < 5)
			use(d, seed + i);
		if (child[i] == 0 && i == 5)
			look_at_status(d);
		if (child[i] == 0)
			change(d, seed + i);
	}
	while (now_ns() < end) {
		wire_assert_served(w, nr++ % 1024 * 4096);
		sleep_ms(1);
	}
	for (size_t i = 0; i < NR(child); i++) {
		if (waitpid(child[i], &status, WNOHANG) != 0)
			wire_fail("a child has ended: %d", status);
		kill(child[i], SIGKILL);
		waitpid(child[i], &status, 0);
	}
	print_message("%u times served meanwhile\n", nr);
	for (int i = 0; i < 4; i++) { /* all of them can go */
		char name[8];

		snprintf(name, sizeof(name), "s%d", i);
		if (!ask(d, command("remove", name)))
			must_not(false, "ENODEV", "no such device");
		must(create(d, name, "\"size\":\"1M\""));
		must(ask(d, command("remove", name)));
	}
	daemon_settle(d, fds);
	wire_assert_served(w, 0);
	daemon_stop(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("power", "a device comes and goes", comes_and_goes),
		CASE("power", "makes nothing of what is refused",
		    makes_nothing_of_what_is_refused),
		CASE("power", "goes off and on with its data",
		    goes_off_and_on_with_its_data),
		CASE("power cache", "loses what was not flushed",
		    loses_what_was_not_flushed),
		CASE("power N162", "finishes what is in flight",
		    finishes_what_is_in_flight),
		CASE("power N162", "answers what does not end",
		    answers_what_does_not_end),
		CASE("power N162", "answers what waits for tags",
		    answers_what_waits_for_tags),
		CASE("power N162", "answers what waits in a scheduler",
		    answers_what_waits_in_a_scheduler),
		CASE("power", "does not wait for mbps", does_not_wait_for_mbps),
		CASE("power", "hangs up on who does not end",
		    hangs_up_on_who_does_not_end),
		CASE("power", "lets who negotiates go on",
		    lets_who_negotiates_go_on),
		CASE("power", "ends traces", ends_traces),
		CASE("power", "the daemon ends in time while a device goes",
		    ends_in_time_while_a_device_goes),
		CASE("power", "frees much data without a pause",
		    frees_much_data_without_a_pause),
		CASE("power reload",
		    "gets along with files that are read again",
		    gets_along_with_files_that_are_read_again),
		CASE("power", "storms of changes disturb nobody else",
		    storms_disturb_nobody_else),
	};

	return cmocka_run_group_tests_name("power", tests, NULL, NULL);
}
