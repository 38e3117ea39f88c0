/* SPDX-License-Identifier: MIT */
/*
 * What people write down.  The input is one or more parts, a form feed between
 * two; the first byte of each says what it is:
 *
 *	i	a configuration file, config_ini()
 *	m	a file of modprobe.d, config_modprobe()
 *	s	devices of the command line, a line each, config_spec()
 *
 * Whatever comes of it can be printed, and read back it is the same.
 */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

#define NR_CPUS     4u
#define MAX_DEVICES 64u /* more of them are not read back: it takes long */

struct text {
	char *p;
	size_t len;
	FILE *out;
};

static void
text_open(struct text *t)
{
	t->out = open_memstream(&t->p, &t->len);
	CHECK(t->out != NULL, "out of memory");
}

static void
text_close(struct text *t)
{
	CHECK(fclose(t->out) == 0, "out of memory");
	fuzz_saw(t->p, t->len);
}

/* ---- reading */

/* "PATH:12: note: ..." */
static bool
is_note(const char *line, const char *path)
{
	if (strncmp(line, path, strlen(path)) != 0)
		return false;
	line += strlen(path);
	line += strspn(line, ":0123456789");
	return strncmp(line, " note: ", 7) == 0;
}

/* A refusal says why, a line each; what is taken is no more than noted. */
static void
check_said(const struct text *said, const char *path, int ret)
{
	const char *line = said->p;
	bool complains = false;

	for (; *line != '\0'; line = strchr(line, '\n') + 1) {
		CHECK(strchr(line, '\n') > line, "an empty line");
		if (!is_note(line, path))
			complains = true;
	}
	CHECK(complains == (ret != 0), "%d: %s", ret, said->p);
}

static void
read_file(struct config *c, const char *bytes, size_t len,
    int (*reads)(struct config *c, const char *path, FILE *errors))
{
	const char *path = fuzz_file(bytes, len);
	struct text said;
	int ret;

	text_open(&said);
	ret = reads(c, path, said.out);
	text_close(&said);
	check_said(&said, path, ret);
	free(said.p);
}

static void
read_specs(struct config *c, char *text)
{
	char err[CTL_MAX_ERROR], *spec;
	int ret;

	while ((spec = strsep(&text, "\n")) != NULL) {
		err[0] = '\0';
		ret = config_spec(c, spec, err, sizeof(err));
		CHECK((ret != 0) == (err[0] != '\0'), "%d: %s", ret, err);
	}
}

static void
read_part(struct config *c, const char *part, size_t len)
{
	char *text;

	if (len == 0)
		return;
	text = strndup(part + 1, len - 1);
	CHECK(text != NULL, "out of memory");
	switch (part[0]) {
	case 'i': read_file(c, part + 1, len - 1, config_ini); break;
	case 'm': read_file(c, part + 1, len - 1, config_modprobe); break;
	case 's': read_specs(c, text); break;
	default: break;
	}
	free(text);
}

/* ---- what is in force */

/* All that a disk would be, also what nobody asked for. */
static void
print_device(const struct device *d, FILE *out)
{
	struct queue_conf q;
	struct disk_conf conf;
	char err[1];

	fprintf(out, "%s:", d->name);
	if (disk_check(&d->conf, NR_CPUS, &conf, &q, err, sizeof(err)) != 0)
		return;
	for (const struct attr *a = disk_attrs; a->name != NULL; a++) {
		fprintf(out, " %s=", a->name);
		attr_get(a, &conf, out);
	}
	fprintf(out, " depth=%u nr_requests=%u max_sectors=%u segments=%u*%u\n",
	    q.depth, q.nr_requests, q.limits.max_sectors, q.limits.max_segments,
	    q.limits.max_segment_size);
}

static void
print_all(const struct config *c, struct text *t)
{
	struct device *d;

	text_open(t);
	for (const struct attr *a = daemon_attrs; a->name != NULL; a++) {
		fprintf(t->out, "%s=", a->name);
		attr_get(a, &c->daemon, t->out);
		fputc('\n', t->out);
	}
	STAILQ_FOREACH(d, &c->devices, link)
		print_device(d, t->out);
	text_close(t);
}

static void
print_config(const struct config *c, struct text *t)
{
	text_open(t);
	config_print(c, NR_CPUS, t->out);
	text_close(t);
}

static bool
passes(const struct config *c)
{
	struct text said;
	int ret;

	text_open(&said);
	ret = config_check(c, NR_CPUS, said.out);
	text_close(&said);
	CHECK(ret == 0 || said.len > 0, "refused without a word");
	free(said.p);
	return ret == 0;
}

static void
check_same(struct text *a, struct text *b)
{
	CHECK(
	    strcmp(a->p, b->p) == 0, "---- first\n%s---- then\n%s", a->p, b->p);
	free(a->p);
	free(b->p);
}

static void
check_read_back(const struct config *c)
{
	struct text printed, again, all, all_again;
	struct config back;

	print_config(c, &printed);
	print_all(c, &all);
	CHECK(config_init(&back) == 0, "out of memory");
	read_file(&back, printed.p, printed.len, config_ini);
	CHECK(config_finish(&back) == 0, "out of memory");
	print_config(&back, &again);
	print_all(&back, &all_again);
	CHECK(passes(&back), "what was printed does not pass:\n%s", printed.p);
	check_same(&printed, &again);
	check_same(&all, &all_again);
	config_fini(&back);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *part = (const char *)data, *end = part + size, *next;
	struct config c;

	CHECK(config_init(&c) == 0, "out of memory");
	for (; part < end; part = next + 1) {
		next = memchr(part, '\f', (size_t)(end - part));
		if (next == NULL)
			next = end;
		read_part(&c, part, (size_t)(next - part));
	}
	CHECK(config_finish(&c) == 0, "out of memory");
	/* no file can say "no device", only nr_devices=0 */
	if (passes(&c) && c.nr_devices > 0 && c.nr_devices <= MAX_DEVICES)
		check_read_back(&c);
	config_fini(&c);
	return 0;
}
