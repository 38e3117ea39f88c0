/* SPDX-License-Identifier: MIT */
/*
 * A target without libFuzzer, so that `make check` needs no clang: it is given
 * files, or finds those that are kept for it, tests/fuzz/regress/TARGET and
 * tests/fuzz/corpus/TARGET.  Each runs twice: what comes out is the same.
 */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATH 4096

static unsigned nr_files;

static void
read_file(const char *path, struct bytes *out)
{
	FILE *f = fopen(path, "re");
	char buf[4096];
	size_t n;

	CHECK(f != NULL, "%s: cannot be opened", path);
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
		bytes_add(out, buf, n);
	CHECK(!ferror(f), "%s: cannot be read", path);
	fclose(f);
}

/* In memory of its very size: a look beyond it is seen. */
static uint64_t
run(const struct bytes *b)
{
	uint8_t *copy = malloc(b->len);

	CHECK(copy != NULL || b->len == 0, "out of memory");
	if (b->len > 0)
		memcpy(copy, b->p, b->len);
	fuzz_digest();
	LLVMFuzzerTestOneInput(copy, b->len);
	free(copy);
	return fuzz_digest();
}

static void
run_file(const char *path)
{
	struct bytes b = { 0 };
	uint64_t digest;

	printf("[ RUN      ] %s\n", path);
	fflush(stdout);
	read_file(path, &b);
	digest = run(&b);
	CHECK(run(&b) == digest, "%s: the second time it comes out otherwise",
	    path);
	bytes_free(&b);
	printf("[       OK ] %s\n", path);
	nr_files++;
}

/* Files are not hidden; a folder may be missing. */
static int
is_file(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static void
run_folder(const char *folder, const char *target)
{
	char path[MAX_PATH];
	struct dirent **list;
	int nr;

	snprintf(path, sizeof(path), "tests/fuzz/%s/%s", folder, target);
	nr = scandir(path, &list, is_file, alphasort);
	for (int i = 0; i < nr; i++) {
		snprintf(path, sizeof(path), "tests/fuzz/%s/%s/%s", folder,
		    target, list[i]->d_name);
		run_file(path);
		free(list[i]);
	}
	if (nr >= 0)
		free(list);
}

int
main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');
	const char *target = slash != NULL ? slash + 1 : argv[0];

	for (int i = 1; i < argc; i++)
		run_file(argv[i]);
	if (argc == 1) {
		run_folder("regress", target);
		run_folder("corpus", target);
	}
	CHECK(nr_files > 0, "%s: no files for it here", target);
	return 0;
}
