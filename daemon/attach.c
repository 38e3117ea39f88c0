/* SPDX-License-Identifier: MIT */
/*
 * Attaching with nbd-client, which configures the kernel by netlink and ends.
 */
#include "attach.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl.h"

#define MAX_ARGS    32u
#define MAX_TEXT    256u
#define MAX_DEVICES 4096u /* that are looked at */
#define POLL_MS     20u
#define POLLS       (ATTACH_SEC * 1000 / POLL_MS)

/* ------------------------------------------------------------- /sys/block */

/* /sys/block/nbdN/FILE */
static void
sys_path(char *out, size_t len, const char *device, const char *file)
{
	snprintf(out, len, "/sys/block/%s/%s", device + strlen("/dev/"), file);
}

/* What the file says, a number; -1: it is not there. */
static long long
sys_number(const char *device, const char *file)
{
	char path[MAX_TEXT];
	long long number = -1;
	FILE *f;

	sys_path(path, sizeof(path), device, file);
	f = fopen(path, "re");
	if (f == NULL)
		return -1;
	if (fscanf(f, "%lld", &number) != 1)
		number = -1;
	fclose(f);
	return number;
}

static int
sys_write(const char *device, const char *file, const char *value)
{
	char path[MAX_TEXT];
	int fd, err = 0;

	sys_path(path, sizeof(path), device, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		err = -errno;
	close(fd);
	return err;
}

static bool
exists(const char *device)
{
	return sys_number(device, "size") >= 0;
}

/* Its pid is there as long as it is connected. */
bool
attach_is_there(const char *device)
{
	return sys_number(device, "pid") >= 0;
}

uint64_t
attach_size(const char *device)
{
	return (uint64_t)sys_number(device, "size") * 512;
}

bool
attach_is_device(const char *path)
{
	size_t len = strlen("/dev/nbd");

	return strncmp(path, "/dev/nbd", len) == 0 && path[len] != '\0' &&
	       strlen(path) < ATTACH_DEVICE &&
	       strspn(path + len, "0123456789") == strlen(path + len);
}

/* The first that is there and not in use. */
static int
find_free(char *device, char *err, size_t errlen)
{
	unsigned i;

	for (i = 0; i < MAX_DEVICES; i++) {
		snprintf(device, ATTACH_DEVICE, "/dev/nbd%u", i);
		if (!exists(device))
			break;
		if (!attach_is_there(device) && sys_number(device, "size") == 0)
			return 0;
	}
	return refuse(err, errlen, -EBUSY,
	    "all of /dev/nbd0 to /dev/nbd%u are in use: the nbd module's "
	    "nbds_max says how many there are",
	    i - 1);
}

/* May we, and could the kernel? */
static int
check_machine(char *err, size_t errlen)
{
	if (!exists("/dev/nbd0"))
		return refuse(err, errlen, -ENODEV,
		    "this machine's kernel has no nbd driver loaded: modprobe "
		    "nbd (kernels made for clouds and containers often have "
		    "none)");
	if (geteuid() != 0)
		return refuse(err, errlen, -EPERM,
		    "only root may attach a device, or detach it");
	return 0;
}

int
attach_find(pid_t pid, char *device)
{
	for (unsigned i = 0; i < MAX_DEVICES; i++) {
		snprintf(device, ATTACH_DEVICE, "/dev/nbd%u", i);
		if (!exists(device))
			break;
		if (sys_number(device, "pid") == pid)
			return 0;
	}
	return -ENOENT;
}

/* -------------------------------------------------------------- nbd-client */

/* A running nbd-client, and what it has said. */
struct nbd_client {
	pid_t pid;
	int output; /* a file in memory: nobody has to read it, or to wait */
};

/* In the child: does not return. */
_Noreturn static void
become(char *const *argv, int output)
{
	int null = open("/dev/null", O_RDONLY);

	setsid(); /* it may outlive the terminal */
	dup2(null, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	execvp(argv[0], argv);
	if (errno == ENOENT) /* root without its usual PATH */
		execv("/usr/sbin/nbd-client", argv);
	_exit(errno == ENOENT ? 127 : 126);
}

static int
client_start(struct nbd_client *c, char *const *argv, char *err, size_t errlen)
{
	c->output = memfd_create("nbd-client", MFD_CLOEXEC);
	if (c->output < 0)
		return refuse(
		    err, errlen, -errno, "memfd_create: %s", strerror(errno));
	c->pid = fork();
	if (c->pid == 0)
		become(argv, c->output);
	if (c->pid > 0)
		return 0;
	refuse(err, errlen, -errno, "fork: %s", strerror(errno));
	close(c->output);
	return -EAGAIN;
}

/* The last line of what it said. */
static void
last_line(const struct nbd_client *c, char *out, size_t len)
{
	char text[4096], *line;
	off_t size = lseek(c->output, 0, SEEK_END);
	off_t from = size < (off_t)sizeof(text) ? 0 : size - sizeof(text) + 1;
	ssize_t n = pread(c->output, text, sizeof(text) - 1, from);

	while (n > 0 && strchr("\r\n ", text[n - 1]) != NULL)
		n--;
	text[n > 0 ? n : 0] = '\0';
	for (char *p = text; *p != '\0'; p++) /* it rewrites its line */
		if (*p == '\r')
			*p = '\n';
	line = strrchr(text, '\n');
	snprintf(
	    out, len, "%.*s", (int)len - 1, line != NULL ? line + 1 : text);
}

/* It has ended: is all as it should be? */
static int
client_verdict(const struct nbd_client *c, int status, char *err, size_t errlen)
{
	char text[MAX_TEXT];

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return refuse(err, errlen, -ENOENT,
		    "nbd-client is not installed (it is Debian's package "
		    "nbd-client)");
	last_line(c, text, sizeof(text));
	return refuse(err, errlen, -EIO, "nbd-client: %s",
	    text[0] != '\0' ? text : "it failed, and does not say why");
}

/* Until it has ended.  If that is not in time, it is ended: -ETIMEDOUT. */
static int
client_wait(struct nbd_client *c, char *err, size_t errlen)
{
	int status;

	for (unsigned i = 0; i < POLLS; i++) {
		if (waitpid(c->pid, &status, WNOHANG) == c->pid)
			return client_verdict(c, status, err, errlen);
		usleep(POLL_MS * 1000);
	}
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	return refuse(err, errlen, -ETIMEDOUT,
	    "nbd-client did not finish within %u s", ATTACH_SEC);
}

static int
client_run(char *const *argv, char *err, size_t errlen)
{
	struct nbd_client c = { .output = -1 };
	int ret = client_start(&c, argv, err, errlen);

	if (ret != 0)
		return ret;
	ret = client_wait(&c, err, errlen);
	close(c.output);
	return ret;
}

/* ------------------------------------------------------------------ attach */

static bool
has_size(const char *device)
{
	return attach_is_there(device) && sys_number(device, "size") > 0;
}

static int
run_attach(const struct attach *a, char *device, char *err, size_t errlen)
{
	char port[16], conns[16], block[16], timeout[16];
	const char *argv[MAX_ARGS];
	unsigned n = 0;

	snprintf(port, sizeof(port), "%u", a->place->port);
	snprintf(conns, sizeof(conns), "%u", a->connections);
	snprintf(block, sizeof(block), "%u", a->block_size);
	snprintf(timeout, sizeof(timeout), "%u", a->timeout);
	argv[n++] = "nbd-client";
	if (a->place->path[0] != '\0') {
		argv[n++] = "-unix";
		argv[n++] = a->place->path;
	} else {
		argv[n++] = a->place->host;
		argv[n++] = port;
	}
	argv[n++] = device;
	argv[n++] = "-name";
	argv[n++] = a->name;
	argv[n++] = "-connections";
	argv[n++] = conns;
	argv[n++] = "-block-size";
	argv[n++] = block;
	if (a->timeout > 0) {
		argv[n++] = "-timeout";
		argv[n++] = timeout;
	}
	argv[n] = NULL;
	return client_run((char *const *)argv, err, errlen);
}

/* All that this kernel would do to a bio before it sends it. */
static int
make_raw(const char *device, char *err, size_t errlen)
{
	char largest[24];
	const char *const settings[][2] = {
		{ "queue/scheduler", "none" },
		{ "queue/nomerges", "2" },
		{ "queue/max_sectors_kb", largest },
	};

	snprintf(largest, sizeof(largest), "%lld",
	    sys_number(device, "queue/max_hw_sectors_kb"));
	for (unsigned i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const char *file = settings[i][0], *value = settings[i][1];
		int ret = sys_write(device, file, value);

		if (ret != 0)
			return refuse(err, errlen, ret, "%s: %s = %s: %s",
			    device, file, value, strerror(-ret));
	}
	return 0;
}

/* What is left to do once it is attached; a failure is all of attach's. */
static int
finish_attach(const struct attach *a, struct keeper *k, const char *device,
    char *err, size_t errlen)
{
	char ignored[MAX_TEXT];
	int ret = 0;

	if (!has_size(device))
		ret = refuse(err, errlen, -EIO,
		    "%s: nbd-client is content, but the device has no size",
		    device);
	if (ret == 0 && a->raw)
		ret = make_raw(device, err, errlen);
	if (ret == 0 && k != NULL)
		ret = persist_start(k, device, err, errlen);
	if (ret != 0)
		detach_device(device, ignored, sizeof(ignored));
	return ret;
}

int
attach_device(const struct attach *a, char *device, char *err, size_t errlen)
{
	struct keeper *k = NULL;
	int ret = check_machine(err, errlen);

	if (ret == 0 && device[0] == '\0')
		ret = find_free(device, err, errlen);
	if (ret != 0)
		return ret;
	if (!exists(device))
		return refuse(err, errlen, -ENODEV,
		    "%s: no such device: the nbd module's nbds_max says how "
		    "many there are",
		    device);
	if (attach_is_there(device))
		return refuse(err, errlen, -EBUSY,
		    "%s: is attached already, by process %lld", device,
		    sys_number(device, "pid"));
	if (a->persist && (k = persist_new(a, err, errlen)) == NULL)
		return -EIO;
	ret = run_attach(a, device, err, errlen);
	if (ret == 0)
		ret = finish_attach(a, k, device, err, errlen);
	persist_free(k);
	return ret;
}

/* ------------------------------------------------------------------ detach */

int
detach_device(const char *device, char *err, size_t errlen)
{
	const char *const argv[] = { "nbd-client", "-d", device, NULL };
	int fd, ret = check_machine(err, errlen);

	if (ret != 0)
		return ret;
	if (!exists(device) || !attach_is_there(device))
		return refuse(
		    err, errlen, -ENOTCONN, "%s: is not attached", device);
	/* who has it mounted, or in a device of its own, has it exclusively */
	fd = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (fd < 0 && errno == EBUSY)
		return refuse(err, errlen, -EBUSY,
		    "%s: is in use: mounted, swap, or part of another device "
		    "(nbd-client -d detaches it all the same)",
		    device);
	if (fd >= 0)
		close(fd);
	ret = client_run((char *const *)argv, err, errlen);
	for (unsigned i = 0; ret == 0 && attach_is_there(device); i++) {
		if (i == POLLS)
			return refuse(err, errlen, -ETIMEDOUT,
			    "%s: is still attached after %u s", device,
			    ATTACH_SEC);
		usleep(POLL_MS * 1000);
	}
	return ret;
}
