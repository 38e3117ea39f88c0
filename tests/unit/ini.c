/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/ctl.h"

static char path[64]; /* of the file that a test writes */

static int
setup(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/tmp/nullbd-ini-%d.conf", getpid());
	return 0;
}

/* Take "PATH:" out of a text wherever it stands. */
static void
forget_path(char *text)
{
	char *to = text;
	size_t len = strlen(path);

	while (*text != '\0')
		if (strncmp(text, path, len) == 0 && text[len] == ':')
			text += len + 1;
		else
			*to++ = *text++;
	*to = '\0';
}

/* Read `len` bytes as a file; what was complained about, without the path. */
static char *
read_bytes(struct config *c, const char *text, size_t len, int want)
{
	FILE *f = fopen(path, "w"), *errors;
	char *said;
	size_t n;

	assert_int_equal(fwrite(text, 1, len, f), len);
	fclose(f);
	errors = open_memstream(&said, &n);
	assert_int_equal(config_init(c), 0);
	if (config_ini(c, path, errors) != want) {
		fclose(errors);
		fail_msg("%s", said);
	}
	fclose(errors);
	unlink(path);
	forget_path(said);
	return said;
}

static char *
read_text(struct config *c, const char *text, int want)
{
	return read_bytes(c, text, strlen(text), want);
}

static void
reads_sections_in_order(void **state)
{
	struct config c;
	struct device *d;
	char *said = read_text(&c,
	    "; a comment\n"
	    "# another\n"
	    "[nullbd]\n"
	    "listen = /run/nullbd.sock\n"
	    "listen = 127.0.0.1:10809\n"
	    "workers=2\n"
	    "\n"
	    "[defaults]\n"
	    "memory_backed = yes\n"
	    "[nullb0]\n"
	    "[ssd] ; behind it a comment\n"
	    "size: 4G\n"
	    "  queue/nomerges = 2 ; no continuation\n"
	    "description = \"one ; two\" ; three",
	    0);

	(void)state;
	assert_string_equal(said, "");
	assert_string_equal(c.daemon.listen[1], "127.0.0.1:10809");
	assert_int_equal(c.daemon.workers, 2);
	assert_int_equal(c.nr_devices, 2);
	d = STAILQ_FIRST(&c.devices);
	assert_string_equal(d->name, "nullb0");
	forget_path(d->where);
	assert_string_equal(d->where, "10");
	d = STAILQ_NEXT(d, link);
	assert_string_equal(d->name, "ssd");
	assert_int_equal(d->conf.size, UINT64_C(4) << 30);
	assert_int_equal(d->conf.nomerges, 2);
	assert_string_equal(d->conf.description, "one ; two");
	assert_true(c.defaults.conf.memory_backed);
	free(said);
	config_fini(&c);
}

static void
reports_every_error_with_its_line(void **state)
{
	struct config c;
	char *said = read_text(&c,
	    "size = 1\n" /* 1 */
	    "[nullb0]\n"
	    "size = big\n"       /* 3 */
	    "colour = red\n"     /* 4 */
	    "nonsense\n"         /* 5 */
	    "[nullb0]\n"         /* 6 */
	    "blocksize = huge\n" /* 7 */
	    "[broken\n"          /* 8 */
	    "[nullbd] x\n"       /* 9 */
	    "[a/b]\n"            /* 10 */
	    "[ok]\n"
	    "page_order = 10\n"      /* 12 */
	    "description = \"open\n" /* 13 */
	    "= 5\n"                  /* 14 */
	    "last\n",                /* 15 */
	    -EINVAL);

	(void)state;
	assert_string_equal(said,
	    "1: a setting before the first section, such as "
	    "[nullbd] or [nullb0]\n"
	    "3: size: \"big\": allowed: a number of MiB from 0 to "
	    "8796093022207, or with a suffix: B K M G T P E\n"
	    "4: colour: no such attribute (nullbctl help lists them)\n"
	    "5: neither [section], nor name = value, nor comment\n"
	    "6: nullb0: there is one already, from 2\n"
	    "7: blocksize: \"huge\": allowed: a number of bytes, or with a "
	    "suffix: B K M G T P E\n"
	    "8: a section without ]\n"
	    "9: something follows the ] of a section\n"
	    "10: \"a/b\": bad name; allowed: UTF-8 without '/', ']', ',', "
	    "control "
	    "characters, blanks at its ends\n"
	    "12: page_order: \"10\": out of range, allowed: a number from 0 to "
	    "9\n"
	    "13: a quote that is not closed, or not at the end\n"
	    "14: a setting without a name\n"
	    "15: neither [section], nor name = value, nor comment\n");
	free(said);
	config_fini(&c);
}

static void
cuts_no_line_in_silence(void **state)
{
	char *text = calloc(1, 3 * 16384), *said;
	struct config c;
	size_t len;

	(void)state; /* in quotes a semicolon takes two bytes of libinih's */
	len = (size_t)sprintf(text, "[nullb0]\ndescription = \"");
	memset(text + len, ';', 8192);
	strcpy(text + len + 8192, "\"\nsize = 5\n");
	said = read_text(&c, text, -EINVAL);
	assert_string_equal(
	    said, "2: a line of 8208 bytes; allowed: at most 16384\n");
	assert_int_equal(STAILQ_FIRST(&c.devices)->conf.size, 5 << 20);
	free(said);
	config_fini(&c);

	/* one that is longer than anything */
	len = (size_t)sprintf(text, "[nullb0]\nsize = 5\ndescription = ");
	memset(text + len, 'x', 16384);
	strcpy(text + len + 16384, "\n");
	said = read_text(&c, text, -EINVAL);
	assert_string_equal(said, "3: a line longer than 16384 bytes\n");
	free(said);
	config_fini(&c);

	/* a name of a section that is longer than libinih keeps */
	memset(text, 'y', 600);
	text[0] = '[';
	strcpy(text + 60, "]\n");
	said = read_text(&c, text, -EINVAL);
	assert_non_null(strstr(said, "a name of 59 bytes"));
	free(said);
	config_fini(&c);
	free(text);
}

static void
takes_the_longest_texts_there_may_be(void **state)
{
	char *text = calloc(1, 32768), *to, *said;
	struct config c;
	struct device *d;

	(void)state; /* N17: strings of NBD have at most 4096 bytes */
	to = text + sprintf(text, "[nullb0]\ndescription = ");
	memset(to, 'x', 4096);
	to += 4096;
	/* each character escaped, in quotes */
	to += sprintf(to, "\nexport_names = \"");
	for (int i = 0; i < 4096; i++)
		to += sprintf(to, "\\;");
	sprintf(to, "\"\nsize = 5\n");
	said = read_text(&c, text, 0);
	d = STAILQ_FIRST(&c.devices);
	assert_int_equal(strlen(d->conf.description), 4096);
	assert_int_equal(strlen(d->conf.export_names[0]), 4096);
	assert_int_equal(d->conf.size, 5 << 20);
	free(said);
	config_fini(&c);
	free(text);
}

static void
bears_bytes_that_are_no_text(void **state)
{
	static const char text[] = "\xef\xbb\xbf[nullb0]\r\nsize = 5\r\n"
				   "si\0ze = 7\n\xff\xfe = \x01\n[\xff]\n";
	struct config c;
	char *said = read_bytes(&c, text, sizeof(text) - 1, -EINVAL);

	(void)state;
	assert_int_equal(STAILQ_FIRST(&c.devices)->conf.size, 5 << 20);
	assert_non_null(strstr(said, "3: a byte 0 in the line\n"));
	assert_non_null(strstr(said, "4: "));
	assert_non_null(strstr(said, "5: "));
	free(said);
	config_fini(&c);
}

static void
gives_up_on_a_line_without_end(void **state)
{
	static char zeros[5000];
	struct config c;
	char *said;
	size_t n;
	FILE *errors = open_memstream(&said, &n);

	(void)state;
	config_init(&c);
	assert_int_equal(config_ini(&c, "/dev/zero", errors), -EINVAL);
	fclose(errors);
	assert_string_equal(
	    said, "/dev/zero:1: a line longer than 16384 bytes\n");
	free(said);
	config_fini(&c);

	said = read_bytes(&c, zeros, sizeof(zeros), -EINVAL);
	assert_string_equal(said, "1: a byte 0 in the line\n");
	free(said);
	config_fini(&c);
}

static void
says_why_a_file_cannot_be_read(void **state)
{
	struct config c;
	char *said;
	size_t n;
	FILE *errors = open_memstream(&said, &n);

	(void)state;
	config_init(&c);
	assert_int_equal(config_ini(&c, "/nowhere/at.all", errors), -ENOENT);
	assert_int_not_equal(config_ini(&c, "/tmp", errors), 0);
	fclose(errors);
	assert_string_equal(said, "/nowhere/at.all: No such file or directory\n"
				  "/tmp: cannot be read: Is a directory\n");
	free(said);
	config_fini(&c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_sections_in_order),
		cmocka_unit_test(reports_every_error_with_its_line),
		cmocka_unit_test(cuts_no_line_in_silence),
		cmocka_unit_test(takes_the_longest_texts_there_may_be),
		cmocka_unit_test(bears_bytes_that_are_no_text),
		cmocka_unit_test(gives_up_on_a_line_without_end),
		cmocka_unit_test(says_why_a_file_cannot_be_read),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
