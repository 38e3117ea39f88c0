/* SPDX-License-Identifier: MIT */
/* The worked examples are in tests/pipe; here are the corners. */
#include "pipe/harness.h"

static struct harness h;

static uint64_t
fits(const struct bio *bio, unsigned *segs, enum split_cause *cause)
{
	return bio_fits(bio, h.queue, segs, cause);
}

static struct queue_conf
conf_of(const char *kernel)
{
	return h_conf(profile_find(kernel));
}

static void
says_why_it_splits(void **state)
{
	struct queue_conf conf = conf_of("6.12");
	enum split_cause cause;
	struct bio *bio;
	unsigned segs;

	(void)state; /* 2.3 */
	conf.limits.max_sectors = 16;
	conf.limits.max_segments = 4;
	conf.limits.virt_boundary_mask = 4095;
	h_open(&h, &conf);
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_pages(&h, bio, 0x100000, PAGE_SIZE, 24);
	assert_int_equal(fits(bio, &segs, &cause), 16 * 512);
	assert_int_equal(cause, SPLIT_SIZE);
	free(bio->priv);

	bio = h_bio(&h, REQ_OP_READ, 0);
	add_pages(&h, bio, 0x100000, 0x10000, 8);
	bio_add(bio, true, 0x900200, NULL, 512);
	assert_int_equal(fits(bio, &segs, &cause), 8 * 512);
	assert_int_equal(cause, SPLIT_GAP);
	free(bio->priv);
	h_close(&h);

	conf.limits.chunk_sectors = 12; /* 2.2: of 16, 12 are left, then 8 */
	h_open(&h, &conf);
	bio = h_bio(&h, REQ_OP_READ, 4);
	add_pages(&h, bio, 0x100000, PAGE_SIZE, 24);
	assert_int_equal(fits(bio, &segs, &cause), 8 * 512);
	assert_int_equal(cause, SPLIT_CHUNK);
	free(bio->priv);
	h_close(&h);
	conf.limits.chunk_sectors = 16; /* and 16 is no less than the size */
	h_open(&h, &conf);
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_pages(&h, bio, 0x100000, PAGE_SIZE, 24);
	assert_int_equal(fits(bio, &segs, &cause), 16 * 512);
	assert_int_equal(cause, SPLIT_SIZE);
	free(bio->priv);
	h_close(&h);
	conf.limits.chunk_sectors = 0;

	conf.limits.virt_boundary_mask = 0;
	conf.limits.max_sectors = 2560;
	h_open(&h, &conf);
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_pages(&h, bio, 0x100000, 0x10000, 64);
	assert_int_equal(fits(bio, &segs, &cause), 32 * 512);
	assert_int_equal(segs, 4);
	assert_int_equal(cause, SPLIT_SEGMENTS);
	free(bio->priv);
	h_close(&h);
}

static void
never_makes_a_piece_that_touches_more_sectors_than_the_limit(void **state)
{
	struct queue_conf conf = conf_of("6.12");
	enum split_cause cause;
	struct bio *bio;
	uint64_t bytes;
	unsigned segs;

	(void)state; /* positions are bytes: a client may begin anywhere */
	conf.limits.max_sectors = 8;
	h_open(&h, &conf);
	bio = h_bio(&h, REQ_OP_READ, 0);
	bio->pos = 100;
	add_pages(&h, bio, 0x100000, PAGE_SIZE, 32);
	bytes = fits(bio, &segs, &cause);
	assert_int_equal(bytes, 8 * 512 - 100);
	free(bio->priv);
	h_close(&h);
}

static void
cuts_a_discard_at_its_granularity(void **state)
{
	struct queue_conf conf = conf_of("6.12");
	enum split_cause cause;
	struct bio *bio;
	unsigned segs;

	(void)state; /* 2.6 */
	conf.limits.max_discard_sectors = 100;
	conf.limits.discard_granularity = 8 * 512;
	h_open(&h, &conf);
	bio = h_bio(&h, REQ_OP_DISCARD, 3);
	bio->bytes = 300 * 512;
	/* 96 from 3 would end at 99: back to 96 */
	assert_int_equal(fits(bio, &segs, &cause), 93 * 512);
	assert_int_equal(segs, 1);
	bio->bytes = 96 * 512;
	assert_int_equal(fits(bio, &segs, &cause), 96 * 512);
	free(bio->priv);
	h_close(&h);
}

static void
counts_no_segment_for_zeroes_except_in_4_14(void **state)
{
	static const char *const kernel[] = { "4.14", "5.4", "6.1", "6.12" };
	enum split_cause cause;
	unsigned segs, i;

	(void)state; /* 2.6 */
	for (i = 0; i < ARRAY_SIZE(kernel); i++) {
		struct queue_conf conf = conf_of(kernel[i]);
		struct bio *bio;

		conf.limits.max_write_zeroes_sectors = 64;
		h_open(&h, &conf);
		bio = h_bio(&h, REQ_OP_WRITE_ZEROES, 0);
		bio->bytes = 100 * 512;
		assert_int_equal(fits(bio, &segs, &cause), 64 * 512);
		assert_int_equal(segs, i == 0 ? 1 : 0);
		free(bio->priv);
		h_close(&h);
	}
}

static void
finds_gaps_as_each_age_defines_them(void **state)
{
	const struct bvec page = { 0x10000, NULL, 4096 };
	const struct bvec half = { 0x20800, NULL, 2048 };
	struct queue_conf conf = conf_of("6.12");

	(void)state; /* 2.3: 4.14 takes any offset for a gap */
	conf.limits.virt_boundary_mask = 2047;
	h_open(&h, &conf);
	assert_false(bvec_gap(h.queue, &page, &half));
	h_close(&h);
	conf = conf_of("4.14");
	conf.limits.virt_boundary_mask = 2047;
	h_open(&h, &conf);
	assert_true(bvec_gap(h.queue, &page, &half));
	h_close(&h);
	conf.limits.virt_boundary_mask = 0;
	h_open(&h, &conf);
	assert_false(bvec_gap(h.queue, &page, &half));
	h_close(&h);
}

static void
joins_physically_only_within_a_boundary_window(void **state)
{
	struct limits lim;
	const struct bvec a = { 0xf000, NULL, 4096 },
			  b = { 0x10000, NULL, 512 };
	const struct bvec c = { 0x10200, NULL, 512 };

	(void)state; /* 2.7 */
	limits_init(&lim);
	assert_true(bvec_phys_mergeable(&lim, &a, &b));
	lim.seg_boundary_mask = 0xffff;
	assert_false(bvec_phys_mergeable(&lim, &a, &b));
	assert_true(bvec_phys_mergeable(&lim, &b, &c));
	assert_false(bvec_phys_mergeable(&lim, &c, &b));
	assert_int_equal(segment_max(&lim, 0xfe00), 512);
	assert_int_equal(segment_max(&lim, 0x10000), 65536);
}

static void
has_the_defaults_of_section_2_1(void **state)
{
	struct limits lim;

	(void)state;
	limits_init(&lim);
	assert_int_equal(lim.max_sectors, 255);
	assert_int_equal(lim.max_segments, 128);
	assert_int_equal(lim.max_segment_size, 65536);
	assert_int_equal(lim.seg_boundary_mask, 0xffffffff);
	assert_int_equal(lim.max_discard_segments, 1);
	assert_int_equal(lim.max_discard_sectors, 0);
	assert_int_equal(lim.max_write_zeroes_sectors, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(says_why_it_splits),
		cmocka_unit_test(
		    never_makes_a_piece_that_touches_more_sectors_than_the_limit),
		cmocka_unit_test(cuts_a_discard_at_its_granularity),
		cmocka_unit_test(counts_no_segment_for_zeroes_except_in_4_14),
		cmocka_unit_test(finds_gaps_as_each_age_defines_them),
		cmocka_unit_test(
		    joins_physically_only_within_a_boundary_window),
		cmocka_unit_test(has_the_defaults_of_section_2_1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
