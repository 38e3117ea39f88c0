/* SPDX-License-Identifier: MIT */
/* A client's end of the control socket. */
#include "ask.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct asking asking = { .fd = -1 };

void
die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(EXIT_REFUSED);
}

/* 0 or -errno. */
static int
connect_it(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int err;

	if (strlen(asking.control) >= sizeof(addr.sun_path))
		die("%s: a path of more than %zu bytes", asking.control,
		    sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, asking.control, strlen(asking.control) + 1);
	asking.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (asking.fd < 0)
		die("socket: %s", strerror(errno));
	if (connect(asking.fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		err = errno;
		close(asking.fd);
		asking.fd = -1;
		return -err;
	}
	asking.answers = fdopen(asking.fd, "r");
	if (asking.answers == NULL)
		die("fdopen: %s", strerror(errno));
	return 0;
}

bool
ask_try_connect(void)
{
	int ret = connect_it();

	if (ret != 0 && ret != -ENOENT && ret != -ECONNREFUSED)
		die("%s: %s", asking.control, strerror(-ret));
	return ret == 0;
}

void
ask_connect(void)
{
	if (!ask_try_connect())
		die("no daemon is listening at %s (--control says where)",
		    asking.control);
}

void
ask_disconnect(void)
{
	if (asking.fd < 0)
		return;
	fclose(asking.answers);
	asking.fd = -1;
}

static void
send_line(const char *line, size_t len)
{
	ssize_t n;

	while (len > 0) {
		n = send(asking.fd, line, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die("%s: %s", asking.control, strerror(errno));
		line += n;
		len -= (size_t)n;
	}
}

json_t *
ask_next(void)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t len = getline(&line, &size, asking.answers);
	json_error_t why;
	json_t *answer;

	if (len <= 0) {
		free(line);
		return NULL;
	}
	if (line[len - 1] != '\n')
		die("%s: the daemon hung up in the middle of an answer",
		    asking.control);
	if (asking.json)
		fwrite(line, 1, (size_t)len, stdout);
	answer = json_loadb(line, (size_t)len, 0, &why);
	free(line);
	if (!json_is_object(answer))
		die("%s: an answer that is not JSON: %s", asking.control,
		    why.text);
	return answer;
}

/* One line, however long the daemon makes it. */
static json_t *
read_answer(void)
{
	json_t *answer = ask_next();

	if (answer == NULL)
		die("%s: the daemon hung up", asking.control);
	return answer;
}

void
ask_send(const char *command, json_t *request)
{
	char *line;

	line = request != NULL ? json_dumps(request, JSON_COMPACT) : NULL;
	if (line == NULL)
		die("%s: not UTF-8, or out of memory", command);
	json_decref(request);
	if (asking.fd < 0)
		ask_connect();
	send_line(line, strlen(line));
	send_line("\n", 1);
	free(line);
}

json_t *
ask_take(void)
{
	const char *error = "no reason given";
	json_t *answer = read_answer();

	if (!json_is_true(json_object_get(answer, "ok"))) {
		json_unpack(answer, "{s:s}", "error", &error);
		die("%s", error);
	}
	return answer;
}

json_t *
ask_with(const char *command, json_t *request)
{
	ask_send(command, request);
	return ask_take();
}

json_t *
ask_if_there(const char *command, const char *name)
{
	json_t *answer;

	ask_send(
	    command, json_pack("{s:s, s:s}", "command", command, "name", name));
	answer = read_answer();
	if (json_is_true(json_object_get(answer, "ok")))
		return answer;
	json_decref(answer);
	return NULL;
}

json_t *
ask_to_set(const char *command, const char *name, const char *attribute,
    const char *value)
{
	return ask_with(
	    command, json_pack("{s:s, s:s*, s:s*, s:s*}", "command", command,
			 "name", name, "attribute", attribute, "value", value));
}

json_t *
ask(const char *command, const char *name, const char *attribute)
{
	return ask_to_set(command, name, attribute, NULL);
}

const char *
ask_string(json_t *object, const char *member)
{
	const char *s = json_string_value(json_object_get(object, member));

	if (s == NULL)
		die("%s: an answer without %s", asking.control, member);
	return s;
}
