/* SPDX-License-Identifier: MIT */
/*
 * SIGHUP: devices that are new in the files appear, everything else is only
 * told, and nobody who is connected notices.
 */
#include "../lib/wire.h"

#include <sys/stat.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NR(a) (sizeof(a) / sizeof(*(a)))

static struct daemon *
start(const char *conf)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-c", daemon_config(d, conf), "-U", d->sock,
		"--control", d->control, "--workers", "2", NULL };

	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	return d;
}

/* How often a text is in the log. */
static unsigned
nr_logged(struct daemon *d, const char *text)
{
	char line[4096];
	unsigned nr = 0;
	FILE *f = fopen(d->log, "r");

	while (f && fgets(line, sizeof(line), f))
		nr += strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return nr;
}

/* SIGHUP, and wait until it says what came of it. */
static void
reload(struct daemon *d, const char *result)
{
	unsigned before = nr_logged(d, ": SIGHUP: "), same;

	same = nr_logged(d, result);
	kill(d->pid, SIGHUP);
	for (int i = 0; i < 2000; i++) {
		if (nr_logged(d, ": SIGHUP: ") > before) {
			if (nr_logged(d, result) == same)
				wire_fail("it does not say '%s'", result);
			return;
		}
		daemon_assert_alive(d);
		sleep_ms(5);
	}
	wire_fail("no word of SIGHUP");
}

static void
reload_with(struct daemon *d, const char *conf, const char *result)
{
	daemon_config(d, conf);
	reload(d, result);
}

/* Is it there under that name, and how large? */
static bool
serves(struct daemon *d, const char *name, uint64_t size)
{
	struct wire *w = wire_unix(d->sock);
	uint32_t type;

	wire_greeting(w);
	wire_flags(w, 3);
	type = wire_info(w, OPT_GO, name, NULL, 0);
	if (type == REP_ACK && w->size != size)
		wire_fail("%s: %llu bytes, not %llu", name,
		    (unsigned long long)w->size, (unsigned long long)size);
	wire_close(w);
	return type == REP_ACK;
}

static void
new_devices_appear(void **state)
{
	struct daemon *d = start("[nullb0]\nsize = 64M\nmemory_backed = 1\n");
	struct wire *w = wire_open(d, "", false), *fresh;
	char answer[4096];

	(void)state;
	wire_assert_served(w, 0);
	assert_false(serves(d, "b", 0));
	reload_with(d,
	    "[b]\nsize = 8M\nmemory_backed = 1\nexport_names = alias\n"
	    "[nullb0]\nsize = 64M\nmemory_backed = 1\n"
	    "[off]\npower = 0\n",
	    "read again: 2 new devices, 0 differences");
	assert_true(serves(d, "b", 8 * MiB));
	assert_true(serves(d, "alias", 8 * MiB));
	assert_false(serves(d, "off", 0));
	/* the default is what it was, whatever stands first by now */
	assert_true(serves(d, "", 64 * MiB));
	fresh = wire_open(d, "alias", true);
	for (uint64_t i = 0; i < 64; i++) {
		wire_assert_served(fresh, i * 4096);
		wire_assert_served(w, i * 4096);
	}
	/* the control socket knows them; no two have a number */
	assert_true(daemon_stat(d, "b", 1) >= 0);
	assert_true(daemon_set(d, "b", "nomerges", "2"));
	assert_true(daemon_ask(d, "{\"command\":\"list\"}", answer, 4096));
	assert_non_null(strstr(answer, "\"name\":\"nullb0\""));
	assert_non_null(strstr(answer, "\"name\":\"b\""));
	assert_non_null(strstr(answer, "\"name\":\"off\",\"power\":false"));
	assert_true(daemon_ask(d,
	    "{\"command\":\"get\",\"name\":\"b\",\"attribute\":\"index\"}",
	    answer, 4096));
	assert_non_null(strstr(answer, "\"value\":\"1\""));
	/* once more: there is nothing new */
	reload(d, "read again: 0 new devices, 0 differences");
	wire_close(w);
	wire_close(fresh);
	daemon_stop(d);
}

static void
changes_are_told_and_not_made(void **state)
{
	static const char *const told[] = {
		"conf:4: nullb0: size: was \"64\", is \"128\": needs a restart",
		"conf:4: nullb0: ro: was \"0\", is \"1\": needs a restart",
		"[nullbd]: handshake_seconds: was \"10\", is \"5\": needs a "
		"restart",
		"[nullbd]: max_options: was \"1024\", is \"99\": needs a "
		"restart",
		"b: is gone, but stays until a restart",
	};
	struct daemon *d = start("[nullb0]\nsize = 64M\nmemory_backed = 1\n"
				 "[b]\nsize = 8M\n");
	struct wire *w = wire_open(d, "", false);

	(void)state;
	for (unsigned n = 1; n <= 2; n++) {
		reload_with(d,
		    "[nullbd]\nhandshake_seconds = 5\nmax_options = 99\n"
		    "[nullb0]\nsize = 128M\nmemory_backed = 1\nro = 1\n",
		    "read again: 0 new devices, 5 differences");
		for (size_t i = 0; i < NR(told); i++)
			if (nr_logged(d, told[i]) != n)
				wire_fail("not %u times '%s'", n, told[i]);
	}
	wire_assert_served(w, 0);
	assert_true(serves(d, "", 64 * MiB));
	assert_true(serves(d, "b", 8 * MiB));
	/* as it was: nothing is told any more */
	reload_with(d,
	    "[nullb0]\nsize = 64M\nmemory_backed = 1\n[b]\nsize = 8M\n",
	    "read again: 0 new devices, 0 differences");
	wire_close(w);
	daemon_stop(d);
}

static void
faults_change_nothing(void **state)
{
	static const struct {
		const char *conf, *said;
	} cases[] = {
		{ "[nullb0]\nsize=64M\n[new]\nsize = big\n",
		    "conf:4: size: \"big\": allowed: " },
		{ "[nullb0]\nsize=64M\n[new]\ncolour = red\n",
		    "conf:4: colour: no such attribute" },
		{ "[nullb0]\nsize=64M\n[new\n", "conf:3: a section without ]" },
		{ "[nullb0]\nsize=64M\n[new]\nblocksize = 1000\n",
		    "conf:3: new: blocksize: 1000: allowed: " },
		{ "[nullb0]\nsize=64M\n[new]\n[new]\n",
		    "conf:4: new: there is" },
		{ "[nullb0]\nsize=64M\n[new]\nexport_names = nullb0\n",
		    "conf:3: new: export_names: \"nullb0\": is a name of" },
		{ "[nullbd]\nlisten = 1\n[nullb0]\nsize=64M\n[new]\n",
		    "conf:2: listen: \"1\": allowed: " },
		{ "[nullbd]\ndefault_export = x\n[nullb0]\nsize=64M\n[new]\n",
		    "default_export: \"x\": no such device" },
		/* a name of one that is gone, but stays */
		{ "[nullb0]\nsize=64M\n[new]\nexport_names = other\n",
		    "conf:3: new: export_names: \"other\": is a name of b" },
	};
	struct daemon *d = start("[nullb0]\nsize = 64M\n"
				 "[b]\nsize = 8M\nexport_names = other\n");
	struct wire *w = wire_open(d, "b", false);
	char path[128];

	(void)state;
	for (size_t i = 0; i < NR(cases); i++) {
		assert_false(daemon_log_has(d, cases[i].said));
		reload_with(d, cases[i].conf, "nothing is changed");
		if (!daemon_log_has(d, cases[i].said))
			wire_fail("it does not say '%s'", cases[i].said);
		assert_false(serves(d, "new", 0));
		assert_true(serves(d, "other", 8 * MiB));
	}
	snprintf(path, sizeof(path), "%s/conf", d->dir);
	unlink(path);
	reload(d, "nothing is changed");
	assert_true(daemon_log_has(d, "conf: No such file or directory"));
	/* nobody writes to it: who opened it would wait for ever */
	assert_int_equal(mkfifo(path, 0600), 0);
	reload(d, "nothing is changed");
	assert_true(daemon_log_has(d, "conf: not a regular file"));
	unlink(path);
	assert_int_equal(wire_cmd(w, 0, CMD_FLUSH, 0, 0), 0);
	/* mended, it is as if nothing had been */
	reload_with(d,
	    "[nullb0]\nsize = 64M\n[new]\nsize = 1M\n"
	    "[b]\nsize = 8M\nexport_names = other\n",
	    "read again: 1 new devices, 0 differences");
	assert_true(serves(d, "new", 1 * MiB));
	wire_close(w);
	daemon_stop(d);
}

static void
without_a_file_there_is_nothing_to_read(void **state)
{
	struct daemon *d =
	    daemon_start("nullb0:size=64M,memory_backed=1", NULL);
	struct wire *w = wire_open(d, "", false);

	(void)state;
	reload(d, "no configuration file was given: nothing to read again");
	wire_assert_served(w, 0);
	wire_close(w);
	daemon_stop(d);
}

/* All that it was made of counts: other files, the command line. */
static void
reads_modprobe_files_beside_the_command_line(void **state)
{
	struct daemon *d = daemon_new();
	char path[128];
	const char *args[] = { "--modprobe", path, "-U", d->sock, "--control",
		d->control, "mine:size=3M", NULL };

	(void)state;
	snprintf(path, sizeof(path), "%s",
	    daemon_config(d, "options null_blk nr_devices=1 gb=1\n"));
	daemon_exec(d, args);
	daemon_ready(d, d->sock);
	reload_with(d, "options null_blk nr_devices=3 gb=1\n",
	    "read again: 2 new devices, 0 differences");
	assert_true(serves(d, "nullb2", 1024 * (uint64_t)MiB));
	assert_true(serves(d, "mine", 3 * MiB));
	/* the name of a device of the command line */
	reload_with(d, "options null_blk nr_devices=1 gb=2\n",
	    "read again: 0 new devices, 3 differences");
	daemon_stop(d);
}

static void
a_new_device_is_traced_if_it_says_so(void **state)
{
	struct daemon *d = start("[nullb0]\nsize = 64M\n");
	char conf[512], path[160];
	FILE *f;

	(void)state;
	snprintf(conf, sizeof(conf),
	    "[nullb0]\nsize = 64M\n[b]\nsize = 1M\nmemory_backed = 1\n"
	    "trace = %s/t\n"
	    "[c]\nsize = 1M\ntrace = %s/t\n",
	    d->dir, d->dir);
	reload_with(d, conf, "read again: 2 new devices");
	/* two cannot write to the same files: the second is served without */
	assert_true(daemon_log_has(d, "c: trace: "));
	assert_true(serves(d, "c", 1 * MiB));
	wire_assert_served(wire_open(d, "b", false), 0);
	kill(d->pid, SIGTERM);
	assert_int_equal(daemon_wait(d, DAEMON_STOP_MS), 0);
	snprintf(path, sizeof(path), "%s/t.blktrace.0", d->dir);
	f = fopen(path, "r");
	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	assert_in_range(ftell(f), 48, 1 << 20);
	fclose(f);
}

/* A process that writes and reads back until it is killed; 1: it was wrong. */
_Noreturn static void
work(struct daemon *d, uint64_t base)
{
	struct wire *w = wire_open(d, "nullb0", false);

	alarm(60);
	for (uint64_t i = 0;; i++)
		wire_assert_served(w, base + i % 256 * 4096);
}

/* Again and again under load, each time with one more. */
static void
nobody_notices(void **state)
{
	struct daemon *d = start("[nullb0]\nsize = 64M\nmemory_backed = 1\n");
	char conf[4096] = "[nullb0]\nsize = 64M\nmemory_backed = 1\n", name[16];
	pid_t child[3];
	int status;

	(void)state;
	fflush(NULL);
	for (size_t i = 0; i < NR(child); i++) {
		child[i] = fork();
		if (child[i] == 0)
			work(d, i * 16 * MiB);
	}
	for (unsigned i = 0; i < 20; i++) {
		size_t len = strlen(conf);

		snprintf(conf + len, sizeof(conf) - len,
		    "[n%u]\nsize = 1M\nmemory_backed = 1\n"
		    "export_names = alias%u\n",
		    i, i);
		reload_with(
		    d, conf, "read again: 1 new devices, 0 differences");
		snprintf(name, sizeof(name), "alias%u", i);
		wire_assert_served(wire_open(d, name, true), 0);
		snprintf(name, sizeof(name), "n%u", i);
		assert_true(daemon_set(d, name, "nomerges", "1"));
		assert_true(daemon_set(d, "nullb0", "nomerges", "0"));
	}
	for (size_t i = 0; i < NR(child); i++) {
		assert_int_equal(waitpid(child[i], &status, WNOHANG), 0);
		kill(child[i], SIGKILL);
		waitpid(child[i], &status, 0);
	}
	/* signals in a row are served in a row, or as one */
	for (int i = 0; i < 100; i++)
		kill(d->pid, SIGHUP);
	assert_true(serves(d, "n19", 1 * MiB));
	wire_close(NULL);
	daemon_stop(d);
}

static void
expect_message(int fd, char text[512])
{
	ssize_t n = recv(fd, text, 511, 0);

	if (n <= 0)
		wire_fail("no message: %s", strerror(errno));
	text[n] = '\0';
}

static char notify_path[96];

static void
set_notify(struct daemon *d)
{
	(void)d;
	setenv("NOTIFY_SOCKET", notify_path, 1);
}

static void
tells_the_service_manager(void **state)
{
	struct daemon *d = daemon_new();
	const char *args[] = { "-c", daemon_config(d, "[a]\n"), "-U", d->sock,
		NULL };
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 15 };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	char text[512];
	uint64_t us;

	(void)state;
	snprintf(notify_path, sizeof(notify_path), "%s/notify", d->dir);
	memcpy(sun.sun_path, notify_path, sizeof(notify_path));
	assert_int_equal(bind(fd, (void *)&sun, sizeof(sun)), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	d->before = set_notify;
	daemon_exec(d, args);
	expect_message(fd, text);
	assert_non_null(strstr(text, "READY=1\nSTATUS=1 devices at "));
	for (int bad = 0; bad < 2; bad++) {
		daemon_config(d, bad ? "[a\n" : "[a]\n[b]\n");
		us = now_ns() / 1000;
		kill(d->pid, SIGHUP);
		expect_message(fd, text);
		assert_memory_equal(text, "RELOADING=1\nMONOTONIC_USEC=", 27);
		assert_in_range(
		    strtoull(text + 27, NULL, 10), us, now_ns() / 1000);
		expect_message(fd, text);
		assert_non_null(strstr(text, "READY=1\nSTATUS=2 devices at "));
	}
	kill(d->pid, SIGTERM);
	expect_message(fd, text);
	assert_string_equal(text, "STOPPING=1\nSTATUS=shutting down");
	daemon_ended(d);
	close(fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("reload", "new devices appear", new_devices_appear),
		CASE("reload", "changes are told and not made",
		    changes_are_told_and_not_made),
		CASE("reload", "files with a fault change nothing",
		    faults_change_nothing),
		CASE("reload", "without a file there is nothing to read",
		    without_a_file_there_is_nothing_to_read),
		CASE("reload", "reads modprobe.d beside the command line",
		    reads_modprobe_files_beside_the_command_line),
		CASE("reload", "a new device is traced if it says so",
		    a_new_device_is_traced_if_it_says_so),
		CASE("reload", "under load nobody notices", nobody_notices),
		CASE("reload systemd", "tells the service manager",
		    tells_the_service_manager),
	};

	return cmocka_run_group_tests_name("reload", tests, NULL, NULL);
}
