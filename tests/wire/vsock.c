/* SPDX-License-Identifier: MIT */
/*
 * Listening on AF_VSOCK, between virtual machines and their host.  Serving can
 * be tested where the kernel has the loopback (vsock_loopback), listening where
 * it has vsock at all.
 */
#include "../lib/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#define DEVICE "nullb0:size=64M,memory_backed=1"

static unsigned
own_cid(void)
{
	unsigned cid = VMADDR_CID_LOCAL;
	int fd = open("/dev/vsock", O_RDONLY);

	if (fd < 0)
		return cid;
	if (ioctl(fd, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) ||
	    cid == VMADDR_CID_ANY)
		cid = VMADDR_CID_LOCAL;
	close(fd);
	return cid;
}

static int
vsock_connect(unsigned cid, unsigned port)
{
	struct sockaddr_vm vm = {
		.svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port
	};
	struct timeval limit = { .tv_sec = 5 };
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0), err;

	setsockopt(
	    fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &limit, sizeof(limit));
	if (!connect(fd, (void *)&vm, sizeof(vm)))
		return fd;
	err = errno;
	close(fd);
	errno = err;
	return -1;
}

/* With a listener of our own: does the kernel connect us to ourselves? */
static bool
has_loopback(void)
{
	struct sockaddr_vm vm = { .svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_LOCAL,
		.svm_port = VMADDR_PORT_ANY };
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
	bool has = !bind(fd, (void *)&vm, sizeof(vm));

	close(fd);
	return has;
}

/* The port in "nbd+vsock://CID:PORT/nullb0"; -1: there is none. */
static long
printed_port(struct daemon *d, unsigned cid)
{
	char line[512], want[64];
	FILE *f = fopen(d->log, "r");
	long port = -1;

	snprintf(want, sizeof(want), "nbd+vsock://%u:", cid);
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, want, strlen(want)) &&
		    strstr(line, "/nullb0\n"))
			port = strtol(line + strlen(want), NULL, 10);
	if (f)
		fclose(f);
	return port;
}

static void
tells_where_it_listens(void **state)
{
	struct daemon *d =
	    daemon_start("--print-uri", "--listen", "vsock:0", DEVICE, NULL);
	struct wire *w = wire_open(d, "", false);

	(void)state;
	wire_assert_served(w, 0);
	assert_in_range(printed_port(d, own_cid()), 1, UINT32_MAX - 1);
	daemon_stop(d);
}

static void
refuses_a_port_that_is_taken(void **state)
{
	struct sockaddr_vm vm = { .svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_ANY,
		.svm_port = VMADDR_PORT_ANY };
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
	struct daemon *d = daemon_new();
	socklen_t len = sizeof(vm);
	char place[32], said[64];
	const char *args[] = { "-U", d->sock, "--listen", place, DEVICE, NULL };

	(void)state;
	assert_int_equal(bind(fd, (void *)&vm, sizeof(vm)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (void *)&vm, &len), 0);
	snprintf(place, sizeof(place), "vsock:%u", vm.svm_port);
	daemon_exec(d, args);
	assert_int_equal(daemon_wait(d, 5000), 1);
	snprintf(said, sizeof(said), "vsock, port %u: Address already in use",
	    vm.svm_port);
	assert_true(daemon_log_has(d, said));
	assert_int_not_equal(access(d->sock, F_OK), 0);
	close(fd);
	/* another machine's address is none of ours */
	snprintf(place, sizeof(place), "vsock:12345678:0");
	daemon_exec(d, args);
	assert_int_equal(daemon_wait(d, 5000), 1);
	assert_true(daemon_log_has(d, "Cannot assign requested address"));
}

static void
serves_through_the_loopback(void **state)
{
	struct daemon *d;
	struct wire *w;
	long port;
	int fd;

	(void)state;
	if (!has_loopback()) {
		print_message("this kernel has no vsock_loopback\n");
		skip();
	}
	d = daemon_start("--print-uri", "--listen", "vsock:1:0", DEVICE, NULL);
	wire_assert_served(wire_open(d, "", false), 0);
	port = printed_port(d, VMADDR_CID_LOCAL);
	assert_in_range(port, 1, UINT32_MAX - 1);
	fd = vsock_connect(VMADDR_CID_LOCAL, (unsigned)port);
	if (fd < 0)
		wire_fail("vsock:1:%ld: %s", port, strerror(errno));
	/* in place of a connection of the library's */
	w = wire_unix(d->sock);
	dup2(fd, w->fd);
	close(fd);
	wire_go(w, "nullb0", true);
	for (uint64_t i = 0; i < 16; i++)
		wire_assert_served(w, i * 4096);
	wire_close(w);
	daemon_stop(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("N182", "tells where on vsock it listens",
		    tells_where_it_listens),
		CASE("listeners", "refuses a port of vsock that is taken",
		    refuses_a_port_that_is_taken),
		CASE("listeners", "serves through the loopback of vsock",
		    serves_through_the_loopback),
	};
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0);

	if (fd < 0) {
		printf(
		    "skipped: the kernel has no vsock: %s\n", strerror(errno));
		return 77;
	}
	close(fd);
	return cmocka_run_group_tests_name("vsock", tests, NULL, NULL);
}
