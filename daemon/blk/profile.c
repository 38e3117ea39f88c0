/* SPDX-License-Identifier: MIT */
/*
 * The ages of the Linux block layer, one row each: where they differ, the row
 * says how, and the code asks the row.  Sections are those of the block layer
 * notes; 4.14 is what report A ran, 5.4 the first age of multipage bvecs, 6.1
 * and 6.12 are Debian's.
 */
#include "blk/internal.h"

#include <string.h>

const struct profile profiles[] = {
	{
	    .name = "4.14",
	    .multipage = false,
	    .plug_max = 16,
	    .plug_max_multi = 16,
	    .plug_count_by_queue = true,
	    .plug_scan_all = true,
	    .plug_flush_test = FLUSH_TESTS_NEWEST,
	    .plug_order = PLUG_SORTED,
	    .plug_limited = PLUG_LIMITED,
	    .aio_plug_min = 1,
	    .write_opens_plug = true,
	    .worker_runs_blocking = true,
	    .seam_saves_segment = true,
	    .gap_any_offset = true,
	    .discard_is_write = true,
	    .write_zeroes_segment = true,
	    .discard_adds_segments = true,
	    .stat_fields = 11,
	    .hz = 100, /* report A's times are all multiples of 10 ms */
	    .ticks_in_jiffies = true,
	    .in_queue_sampled = true,
	    .io_ticks = IO_TICKS_SAMPLED,
	    .inflight_started_only = true,
	    .bio_queue_mode = true,
	},
	{
	    .name = "5.4",
	    .multipage = true,
	    .plug_max = 16,
	    .plug_max_multi = 16,
	    .plug_scan_all = true,
	    .plug_flush_test = FLUSH_TESTS_NEWEST,
	    .plug_order = PLUG_SORTED_IF_MULTI,
	    .plug_limited = PLUG_LIMITED_NONROT,
	    .aio_plug_min = 3,
	    .write_opens_plug = true,
	    .worker_runs_blocking = true,
	    .ioprio_must_match = true,
	    .split_to_physical_block = true,
	    .discard_adds_segments = true,
	    .stat_fields = 15,
	    .hz = 250,
	    .io_ticks = IO_TICKS_START_ADDS_ONE,
	    .bio_queue_mode = true,
	},
	{
	    .name = "6.1",
	    .multipage = true,
	    .plug_max = 32,
	    .plug_max_multi = 64,
	    .plug_flush_test = FLUSH_TESTS_NEWEST,
	    .plug_flush_heeds_nomerges = true,
	    .plug_order = PLUG_NEWEST_FIRST,
	    .aio_plug_min = 3,
	    .write_opens_plug = true,
	    .worker_runs_blocking = true,
	    .deadline_classes = true,
	    .deadline_next = DEADLINE_NEXT_OF_EACH,
	    .ioprio_must_match = true,
	    .split_to_physical_block = true,
	    .request_merges_count = true,
	    .stat_fields = 17,
	    .hz = 250,
	    .io_ticks = IO_TICKS_PRECISE,
	    .bio_queue_mode = true,
	},
	{
	    .name = "6.12",
	    .multipage = true,
	    .plug_max = 32,
	    .plug_max_multi = 64,
	    .plug_flush_test = FLUSH_TESTS_OLDEST,
	    .plug_flush_heeds_nomerges = true,
	    .plug_order = PLUG_FIFO,
	    .plug_search_oldest = true,
	    .plug_takes_fua = true,
	    .aio_plug_min = 3,
	    .bio_opens_plug = true,
	    .deadline_classes = true,
	    .deadline_next = DEADLINE_NEXT_BY_POS,
	    .ioprio_must_match = true,
	    .split_to_physical_block = true,
	    .split_skips_one_page = true,
	    .request_merges_count = true,
	    .stat_fields = 17,
	    .hz = 250,
	    .io_ticks = IO_TICKS_PRECISE,
	    .shows_none_first = true,
	},
	{},
};

const struct profile *
profile_find(const char *name)
{
	const struct profile *p;

	for (p = profiles; p->name != NULL; p++)
		if (strcmp(p->name, name) == 0)
			return p;
	return NULL;
}
