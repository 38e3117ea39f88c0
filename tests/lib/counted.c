/* SPDX-License-Identifier: MIT */
/*
 * The files are read once each, and kept to the end of the program.
 */
#include "counted.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FIELDS 16u

const char *const counter_names[NR_COUNTERS] = { "read ios", "read merges",
	"read sectors", "write ios", "write merges", "write sectors",
	"discard ios", "discard merges", "discard sectors", "flush ios" };

static struct workload *workloads;
static unsigned nr_workloads;
static struct row *rows;
static unsigned nr_rows;

FILE *
data_open(const char *name)
{
	const char *dir = getenv("NULLB_DATA");
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir != NULL ? dir : "tests/data",
	    name);
	f = fopen(path, "r");
	if (f == NULL) {
		fprintf(stderr, "%s: %s (run from the top folder)\n", path,
		    strerror(errno));
		exit(1);
	}
	return f;
}

/* Room for one more. */
static void *
grown(void *array, unsigned nr, size_t size)
{
	array = realloc(array, (nr + 1) * size);
	if (array == NULL)
		abort();
	memset((char *)array + nr * size, 0, size);
	return array;
}

static void
free_all(void)
{
	while (nr_workloads > 0)
		free(workloads[--nr_workloads].io);
	free(workloads);
	free(rows);
}

static void
free_at_exit(void)
{
	static bool registered;

	if (!registered)
		registered = atexit(free_all) == 0;
}

/* ------------------------------------------------------------- workloads */

static void
add_io(struct workload *w, const struct io *io, unsigned batch)
{
	w->io = grown(w->io, w->nr, sizeof(*w->io));
	w->io[w->nr++] = *io;
	if (batch > 0 && w->nr % batch == 0)
		w->io[w->nr - 1].last = true;
}

/* "W 512 8", or "W 512 8 64": so many that follow, upwards or down. */
static void
add_line(struct workload *w, const char *line, unsigned batch)
{
	unsigned long long sector = 0;
	unsigned nr_sectors = 0;
	struct io io = {};
	int count = 1;

	if (line[0] == '-') {
		w->io[w->nr - 1].last = true;
		return;
	}
	assert_true(sscanf(line, "%c %llu %u %d", &io.op, &sector, &nr_sectors,
			&count) >= 1);
	if (strchr("RWDF", io.op) == NULL)
		fail_msg("workloads.txt: operation %c", io.op);
	io.sector = sector;
	io.nr_sectors = nr_sectors;
	for (int i = 0; i < abs(count); i++) {
		add_io(w, &io, batch);
		io.sector += count > 0 ? nr_sectors : -(uint64_t)nr_sectors;
	}
}

/* "= NAME N", perhaps with "fua". */
static struct workload *
add_workload(const char *line, unsigned *batch)
{
	struct workload *w;
	char fua[8] = "";

	workloads = grown(workloads, nr_workloads, sizeof(*workloads));
	w = &workloads[nr_workloads++];
	assert_true(sscanf(line, "= %63s %u %7s", w->name, batch, fua) >= 2);
	w->fua = strcmp(fua, "fua") == 0;
	return w;
}

static void
load_workloads(void)
{
	FILE *f = data_open("workloads.txt");
	struct workload *w = NULL;
	unsigned batch = 0;
	char line[512];

	free_at_exit();
	while (fgets(line, sizeof(line), f) != NULL) {
		if (line[0] == '=')
			w = add_workload(line, &batch);
		else if (line[0] != '#' && w != NULL)
			add_line(w, line, batch);
	}
	fclose(f);
	for (unsigned i = 0; i < nr_workloads; i++)
		workloads[i].io[workloads[i].nr - 1].last = true;
}

const struct workload *
workload_find(const char *name)
{
	if (nr_workloads == 0)
		load_workloads();
	for (unsigned i = 0; i < nr_workloads; i++)
		if (strcmp(workloads[i].name, name) == 0)
			return &workloads[i];
	fail_msg("workloads.txt: no %s", name);
	return NULL;
}

/* ------------------------------------------------------------------ rows */

static void
parse_row(struct row *row, char *line)
{
	char *field[MAX_FIELDS], *rest = line;
	unsigned i;

	for (i = 0; i < MAX_FIELDS; i++) {
		field[i] = strsep(&rest, "\t\n");
		if (field[i] == NULL)
			abort();
	}
	snprintf(row->kernel, sizeof(row->kernel), "%s", field[0]);
	snprintf(row->scheduler, sizeof(row->scheduler), "%s", field[1]);
	row->nomerges = (unsigned)atoi(field[2]);
	row->max_sectors = (unsigned)atoi(field[3]);
	snprintf(row->device, sizeof(row->device), "%s", field[4]);
	snprintf(row->workload, sizeof(row->workload), "%s", field[5]);
	snprintf(row->setting, sizeof(row->setting),
	    "%s, %s, nomerges %s, %s sectors, %s", field[0], field[1], field[2],
	    field[3], field[4]);
	for (i = 0; i < NR_COUNTERS; i++)
		row->want[i] = strtoull(field[6 + i], NULL, 10);
}

static void
load_rows(const char *name)
{
	FILE *f = data_open(name);
	char line[512];

	while (fgets(line, sizeof(line), f) != NULL) {
		if (line[0] == '#')
			continue;
		rows = grown(rows, nr_rows, sizeof(*rows));
		parse_row(&rows[nr_rows++], line);
	}
	fclose(f);
}

const struct row *
counted_rows(unsigned *nr)
{
	if (nr_rows == 0) {
		free_at_exit();
		load_rows("counters.tsv");
		load_rows("model.tsv");
	}
	*nr = nr_rows;
	return rows;
}

unsigned
counted_wrong(const struct row *row, const uint64_t got[NR_COUNTERS])
{
	unsigned nr = 0;

	for (unsigned i = 0; i < NR_COUNTERS; i++) {
		if (got[i] == row->want[i])
			continue;
		print_error("%s: %s: %s %llu, the kernel's %llu\n",
		    row->setting, row->workload, counter_names[i],
		    (unsigned long long)got[i],
		    (unsigned long long)row->want[i]);
		nr++;
	}
	return nr;
}
