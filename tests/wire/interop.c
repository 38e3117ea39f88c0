/* SPDX-License-Identifier: MIT */
/*
 * libnbd as a client: another reading of the protocol than ours in
 * tests/lib/wire.c, by its own connections, state machine and checks.
 */
#include "../lib/wire.h"

#include <errno.h>
#include <libnbd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (64ull * MiB)

static struct daemon *nullbd;
static int port;

static int
start(void **state)
{
	char text[16];

	(void)state;
	port = wire_free_port("127.0.0.1");
	snprintf(text, sizeof(text), "%d", port);
	nullbd = daemon_start("-p", text, "-a", "127.0.0.1",
	    "nullb0:size=64M,memory_backed=1,discard=1",
	    "timer:size=64M,memory_backed=1,irqmode=2,completion_nsec=20000",
	    "big:size=64M,memory_backed=1,discard=1,blocksize=4096", NULL);
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

/* Whatever libnbd thinks of a call. */
static void
good(int result, const char *what)
{
	if (result < 0)
		wire_fail("%s: %s", what, nbd_get_error());
}
#define GOOD(call) good(call, #call)

static void
expect_errno(int result, int want, const char *what)
{
	if (result != -1 || nbd_get_errno() != want)
		wire_fail("%s: errno %d, want %d", what, nbd_get_errno(), want);
}
#define EXPECT_ERRNO(call, want) expect_errno(call, want, #call)

static struct nbd_handle *
nbd_open(const char *export, bool tcp)
{
	struct nbd_handle *nbd = nbd_create();
	char text[16];

	if (!nbd)
		abort();
	snprintf(text, sizeof(text), "%d", port);
	GOOD(nbd_set_export_name(nbd, export));
	if (tcp)
		GOOD(nbd_connect_tcp(nbd, "127.0.0.1", text));
	else
		GOOD(nbd_connect_unix(nbd, nullbd->sock));
	return nbd;
}

static int
count_export(void *user, const char *name, const char *description)
{
	int *n = user;

	(void)description;
	*n += !strcmp(name, "nullb0") || !strcmp(name, "timer") ||
	      !strcmp(name, "big");
	return 0;
}

static void
negotiates(void **state)
{
	struct nbd_handle *nbd = nbd_create();
	int n = 0;
	nbd_list_callback list = { .callback = count_export, .user_data = &n };

	(void)state;
	GOOD(nbd_set_opt_mode(nbd, true));
	GOOD(nbd_connect_unix(nbd, nullbd->sock));
	GOOD(nbd_opt_list(nbd, list));
	assert_int_equal(n, 3);
	GOOD(nbd_set_export_name(nbd, "none such"));
	assert_int_equal(nbd_opt_info(nbd), -1);
	assert_int_equal(nbd_opt_go(nbd), -1);
	GOOD(nbd_set_export_name(nbd, "big"));
	GOOD(nbd_opt_info(nbd));
	assert_int_equal(nbd_get_size(nbd), (int64_t)SIZE);
	GOOD(nbd_opt_go(nbd));
	assert_string_equal(nbd_get_protocol(nbd), "newstyle-fixed");
	assert_int_equal(nbd_get_structured_replies_negotiated(nbd), 1);
	assert_int_equal(nbd_get_block_size(nbd, LIBNBD_SIZE_MINIMUM), 4096);
	assert_int_equal(
	    nbd_get_block_size(nbd, LIBNBD_SIZE_MAXIMUM), 64 * MiB);
	assert_int_equal(nbd_can_multi_conn(nbd), 1);
	assert_int_equal(nbd_can_trim(nbd), 1);
	assert_int_equal(nbd_is_read_only(nbd), 0);
	GOOD(nbd_shutdown(nbd, 0));
	nbd_close(nbd);

	nbd = nbd_create();
	GOOD(nbd_set_opt_mode(nbd, true));
	GOOD(nbd_connect_unix(nbd, nullbd->sock));
	GOOD(nbd_opt_abort(nbd));
	nbd_close(nbd);
}

static void
all_commands(void **state)
{
	uint8_t want[65536], got[65536];

	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct nbd_handle *nbd = nbd_open("nullb0", tcp);

		fill(want, sizeof(want), (uint64_t)tcp);
		GOOD(nbd_pwrite(nbd, want, sizeof(want), 4096, 0));
		if (nbd_can_fua(nbd) > 0)
			GOOD(nbd_pwrite(
			    nbd, want, 512, 4096, LIBNBD_CMD_FLAG_FUA));
		if (nbd_can_flush(nbd) > 0)
			GOOD(nbd_flush(nbd, 0));
		GOOD(nbd_pread(nbd, got, sizeof(got), 4096, 0));
		assert_same(got, want, sizeof(got), "through libnbd");
		GOOD(nbd_trim(nbd, 4096, 4096, 0));
		memset(want, 0, 4096);
		if (nbd_can_zero(nbd) > 0) {
			GOOD(nbd_zero(
			    nbd, 8192, 12288, LIBNBD_CMD_FLAG_NO_HOLE));
			memset(want + 8192, 0, 8192);
		}
		if (nbd_can_cache(nbd) > 0)
			GOOD(nbd_cache(nbd, 4096, 4096, 0));
		GOOD(nbd_pread(nbd, got, sizeof(got), 4096, 0));
		assert_same(got, want, sizeof(got), "through libnbd");

		/* against its own advice */
		GOOD(nbd_set_strict_mode(nbd, 0));
		EXPECT_ERRNO(nbd_pread(nbd, got, 512, SIZE, 0), EINVAL);
		EXPECT_ERRNO(nbd_pwrite(nbd, got, 512, SIZE, 0), ENOSPC);
		EXPECT_ERRNO(nbd_trim(nbd, 512, SIZE, 0), EINVAL);
		EXPECT_ERRNO(nbd_zero(nbd, 512, SIZE, 0), ENOSPC);
		GOOD(nbd_pread(nbd, got, 512, 4096, LIBNBD_CMD_FLAG_DF));
		GOOD(nbd_pread(nbd, got, 512, 4096, 0));
		GOOD(nbd_shutdown(nbd, 0));
		nbd_close(nbd);
	}
}

static int
count_completion(void *user, int *error)
{
	int *n = user;

	*n += !*error;
	return 1;
}

static void
a_thousand_in_flight(void **state)
{
	enum {
		N = 1000,
		LEN = 8192
	};
	uint8_t *want = xmalloc(N * LEN), *got = xmalloc(N * LEN);

	(void)state;
	for (int d = 0; d < 4; d++) {
		struct nbd_handle *nbd =
		    nbd_open(d & 1 ? "timer" : "nullb0", d & 2);
		int done = 0;
		nbd_completion_callback callback = {
			.callback = count_completion, .user_data = &done
		};

		fill(want, N * LEN, (uint64_t)d);
		memset(got, 0, N * LEN);
		/* each is read while its write is still in flight */
		for (size_t i = 0; i < N; i++) {
			if (nbd_aio_pwrite(nbd, want + i * LEN, LEN, i * LEN,
				callback, 0) < 0 ||
			    nbd_aio_pread(nbd, got + i * LEN, LEN, i * LEN,
				callback, 0) < 0)
				wire_fail("aio: %s", nbd_get_error());
		}
		while (nbd_aio_in_flight(nbd) > 0)
			if (nbd_poll(nbd, 5000) <= 0)
				wire_fail("poll: %s", nbd_get_error());
		assert_int_equal(done, 2 * N);
		assert_same(got, want, N * LEN, "1000 in flight");
		GOOD(nbd_shutdown(nbd, 0));
		nbd_close(nbd);
	}
	free(got);
	free(want);
}

static void
uris(void **state)
{
	char uri[256];
	uint8_t got[512];

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct nbd_handle *nbd = nbd_create();

		if (i < 2)
			snprintf(uri, sizeof(uri), "nbd+unix:///%s?socket=%s",
			    i ? "timer" : "", nullbd->sock);
		else
			snprintf(uri, sizeof(uri), "nbd://127.0.0.1:%d/%s",
			    port, i & 1 ? "timer" : "");
		GOOD(nbd_connect_uri(nbd, uri));
		GOOD(nbd_pread(nbd, got, sizeof(got), 0, 0));
		GOOD(nbd_shutdown(nbd, 0));
		nbd_close(nbd);
	}
}

/* What the daemon prints for each device: odd names, an odd path. */
static void
printed_uris(void **state)
{
	struct daemon *d = daemon_new();
	char odd[96], line[1024];
	const char *args[] = { "-U", odd, "nullb0:size=1M", "a b:size=2M",
		"c&d=e:size=3M", "u%41?x#\xc3\xbc+:size=4M", NULL };
	int found = 0;
	FILE *f;

	(void)state;
	snprintf(odd, sizeof(odd), "%s/s o&c%%k+#", d->dir);
	daemon_exec(d, args);
	daemon_ready(d, odd);
	for (int i = 0; i < 500 && !daemon_log_has(d, "3Fx"); i++)
		sleep_ms(10);
	f = fopen(d->log, "r");
	while (f && fgets(line, sizeof(line), f)) {
		struct nbd_handle *nbd;
		char *uri = strstr(line, ": nbd+unix:");

		if (!uri)
			continue;
		uri += 2;
		uri[strcspn(uri, " \r\n")] = 0;
		nbd = nbd_create();
		GOOD(nbd_connect_uri(nbd, uri));
		assert_int_equal(nbd_get_size(nbd), ++found * (int)MiB);
		GOOD(nbd_shutdown(nbd, 0));
		nbd_close(nbd);
	}
	if (f)
		fclose(f);
	assert_int_equal(found, 4);
	assert_int_equal(kill(d->pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(d, DAEMON_STOP_MS), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N31 N35 N66 N67 N70", "libnbd negotiates", negotiates),
		CASE("N117 N139 N140 N141 N143 N144",
		    "libnbd uses every command", all_commands),
		CASE("N109 N139", "libnbd with 2000 requests in flight",
		    a_thousand_in_flight),
		CASE("N182", "libnbd connects to URIs", uris),
		CASE("N182 N26", "libnbd connects to the URIs that are printed",
		    printed_uris),
	};

	return cmocka_run_group_tests_name("interop", tests, start, stop);
}
