/* SPDX-License-Identifier: MIT */
/*
 * The worked examples of the notes on the block layer (section 9, T1 to T35),
 * each under every profile: single-page bvecs under 4.14, multipage ones
 * under 5.4, 6.1 and 6.12.  T19 and half of T20 need mq-deadline and are
 * tested with it.  Between them stand cases for the rules of sections 2 to 4
 * that no example shows.
 *
 * [s,n) is "start at sector s, n sectors", NM a request that bears
 * REQ_NOMERGE.
 */
#include "harness.h"
#include "fio_job.h"

enum age {
	P414,
	P54,
	P61,
	P612
};

static enum age
age(const struct profile *p)
{
	static const char *const name[] = { "4.14", "5.4", "6.1", "6.12" };
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(name); i++)
		if (strcmp(p->name, name[i]) == 0)
			return (enum age)i;
	fail_msg("an unknown profile: %s", p->name);
	return P612;
}

static void
open_default(struct harness *h, void **state)
{
	struct queue_conf conf = h_conf(*state);

	h_open(h, &conf);
}

static bool
single_page(const struct harness *h)
{
	return age(h->profile) == P414;
}

/* The newest request of the plug. */
static struct request *
plug_newest(struct harness *h)
{
	return TAILQ_LAST(&h->plug.list, request_list);
}

/* ------------------------------------------- bvecs and splitting, T1-T15 */

static void
t1(void **state)
{
	struct harness h;
	struct bio *bio;

	open_default(&h, state);
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_contig(&h, bio, 128);
	assert_int_equal(bio->nr_bv, single_page(&h) ? 16 : 1);
	h_submit(&h, bio);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 128, 1, MERGEABLE });
	expect_counts(&h, STAT_READ, 1, 0);
	h_close(&h);
}

static void
t2(void **state)
{
	struct harness h;
	struct bio *bio;

	open_default(&h, state);
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_contig(&h, bio, 256);
	assert_int_equal(bio->nr_bv, single_page(&h) ? 32 : 1);
	h_submit(&h, bio);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 256, 2, MERGEABLE });
	h_close(&h);
}

static void
t3(void **state)
{
	struct harness h;
	struct bio *bio;

	open_default(&h, state);
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_scat(&h, bio, 128);
	assert_int_equal(bio->nr_bv, 16);
	h_submit(&h, bio);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 128, 16, MERGEABLE });
	h_close(&h);
}

static void
t4(void **state)
{
	struct harness h;
	struct bio *bio;

	open_default(&h, state);
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_contig(&h, bio, 32);
	add_contig(&h, bio, 32);
	assert_int_equal(bio->nr_bv, single_page(&h) ? 8 : 2);
	h_submit(&h, bio);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 64, 2, MERGEABLE });
	h_close(&h);
}

static void
t5(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	int segs;

	conf.limits.max_sectors = 255;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_READ, 0, 2048);
	h_finish(&h);
	segs = single_page(&h) ? 3 : 2;
	EXPECT_REQUESTS(&h, { 0, 255, segs, NM }, { 255, 255, segs, NM },
	    { 510, 255, segs, NM }, { 765, 255, segs, NM },
	    { 1020, 255, segs, NM }, { 1275, 255, segs, NM },
	    { 1530, 255, segs, NM }, { 1785, 255, 2, NM },
	    { 2040, 8, 1, MERGEABLE });
	expect_counts(&h, STAT_READ, 9, 0);
	expect_splits(&h, 8, 0, 0);
	h_close(&h);
}

static void
t6(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_sectors = 255;
	conf.limits.logical_block_size = 4096;
	conf.limits.physical_block_size = 4096;
	h_open(&h, &conf);
	rw(&h, REQ_OP_READ, 0, 2048);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 248, 2, NM }, { 248, 248, 2, NM },
	    { 496, 248, 2, NM }, { 744, 248, 2, NM }, { 992, 248, 2, NM },
	    { 1240, 248, 2, NM }, { 1488, 248, 2, NM }, { 1736, 248, 2, NM },
	    { 1984, 64, 1, MERGEABLE });
	expect_splits(&h, 8, 0, 0);
	h_close(&h);
}

static void
t7(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_sectors = 256;
	conf.limits.physical_block_size = 4096;
	h_open(&h, &conf);
	rw(&h, REQ_OP_READ, 1, 600);
	h_finish(&h);
	if (single_page(&h))
		EXPECT_REQUESTS(&h, { 1, 256, 2, NM }, { 257, 256, 2, NM },
		    { 513, 88, 1, MERGEABLE });
	else
		EXPECT_REQUESTS(&h, { 1, 255, 2, NM }, { 256, 256, 2, NM },
		    { 512, 89, 1, MERGEABLE });
	expect_splits(&h, 2, 0, 0);
	h_close(&h);
}

static void
t8(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.chunk_sectors = 128;
	h_open(&h, &conf);
	rw(&h, REQ_OP_READ, 100, 64);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 100, 28, single_page(&h) ? 2 : 1, NM },
	    { 128, 36, 1, MERGEABLE });
	expect_splits(&h, 0, 0, 0);
	expect_chunk_splits(&h, 1);
	h_close(&h);
}

/* Three pages apart; each holds `len` bytes from `offset` on. */
static void
submit_three(struct harness *h, const unsigned offset[3], const unsigned len[3])
{
	struct bio *bio = h_bio(h, REQ_OP_READ, 0);
	uint64_t phys;
	unsigned i;

	for (i = 0; i < 3; i++) {
		phys = h_new_phys(h);
		assert_true(bio_add(bio, h->queue->conf.multipage,
		    phys + offset[i], NULL, len[i]));
	}
	assert_int_equal(bio->nr_bv, 3);
	h_submit(h, bio);
}

static void
t9(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.virt_boundary_mask = 4095;
	h_open(&h, &conf);
	submit_three(
	    &h, (unsigned[]){ 0, 512, 0 }, (unsigned[]){ 4096, 3584, 512 });
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 8, 1, NM }, { 8, 8, 2, MERGEABLE });
	expect_splits(&h, 0, 0, 1);
	h_close(&h);
}

static void
t10(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.virt_boundary_mask = 4095;
	h_open(&h, &conf);
	submit_three(
	    &h, (unsigned[]){ 512, 0, 0 }, (unsigned[]){ 3584, 4096, 512 });
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 16, 3, MERGEABLE });
	expect_splits(&h, 0, 0, 0);
	h_close(&h);
}

static void
t11(void **state)
{
	const uint64_t huge = 2u << 20;
	struct harness h;
	struct bio *bio;
	uint64_t phys, done = 0, added;
	unsigned nr_bios = 0;

	open_default(&h, state);
	phys = h_new_phys(&h);
	h_plug(&h);
	while (done < huge) {
		bio = h_bio(&h, REQ_OP_READ, done / SECTOR_SIZE);
		added = bio_add_payload(bio, h.profile->multipage, phys, 9,
		    done / PAGE_SIZE, NULL, huge - done);
		assert_int_equal(bio->bytes, added);
		assert_int_equal(added, single_page(&h) ? huge / 2 : huge);
		assert_int_equal(bio->nr_bv, single_page(&h) ? 256 : 1);
		h_submit(&h, bio);
		done += added;
		nr_bios++;
	}
	h_finish(&h);
	assert_int_equal(nr_bios, single_page(&h) ? 2 : 1);
	if (single_page(&h))
		EXPECT_REQUESTS(
		    &h, { 0, 2048, 16, NM }, { 2048, 2048, 16, MERGEABLE });
	else
		EXPECT_REQUESTS(
		    &h, { 0, 2560, 20, NM }, { 2560, 1536, 12, MERGEABLE });
	h_close(&h);
}

static void
t12(void **state)
{
	struct harness h;

	open_default(&h, state);
	rw_scat(&h, REQ_OP_READ, 0, 2048);
	h_finish(&h);
	EXPECT_REQUESTS(
	    &h, { 0, 1024, 128, NM }, { 1024, 1024, 128, MERGEABLE });
	expect_splits(&h, 0, 1, 0);
	h_close(&h);
}

static void
t13(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;

	conf.limits.seg_boundary_mask = 0xffff;
	h_open(&h, &conf);
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_pages(&h, bio, 0x10f000, PAGE_SIZE, 32);
	assert_int_equal(bio->nr_bv, single_page(&h) ? 4 : 1);
	h_submit(&h, bio);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 32, 2, MERGEABLE });
	h_close(&h);
}

static void
t14(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;

	conf.limits.max_segment_size = 4096;
	conf.limits.max_segments = 4;
	h_open(&h, &conf);
	bio = h_bio(&h, REQ_OP_READ, 0);
	add_contig(&h, bio, 64);
	assert_int_equal(bio->nr_bv, single_page(&h) ? 8 : 1);
	h_submit(&h, bio);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 32, 4, NM }, { 32, 32, 4, MERGEABLE });
	expect_splits(&h, 0, 1, 0);
	h_close(&h);
}

static void
t15(void **state)
{
	struct harness h;
	struct bio *bio;
	uint64_t phys;
	unsigned i;

	open_default(&h, state);
	bio = h_bio(&h, REQ_OP_READ, 0);
	phys = h_new_phys(&h);
	for (i = 0; i < 8; i++)
		assert_true(bio_add(
		    bio, h.profile->multipage, phys + 512 * i, NULL, 512));
	assert_int_equal(bio->nr_bv, 1);
	h_submit(&h, bio);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 8, 1, MERGEABLE });
	h_close(&h);
}

/*
 * 1.1, 1.2: a full table takes no new bvec, but the last one is tried first; a
 * bio stays below 4 GiB.
 */
static void
full_table(void **state)
{
	const struct profile *p = *state;
	const uint64_t phys = 1ull << 40;
	struct bvec bv[2];
	struct bio bio;

	bio_init(&bio, REQ_OP_READ, 0, bv, 2);
	assert_true(bio_add(&bio, p->multipage, phys, NULL, PAGE_SIZE));
	assert_true(
	    bio_add(&bio, p->multipage, phys + 2 * PAGE_SIZE, NULL, 512));
	assert_false(
	    bio_add(&bio, p->multipage, phys + 8 * PAGE_SIZE, NULL, 512));
	assert_int_equal(bio.bytes, PAGE_SIZE + 512);
	assert_int_equal(bio.nr_bv, 2);
	/* the rest of the page */
	assert_true(bio_add(
	    &bio, p->multipage, phys + 2 * PAGE_SIZE + 512, NULL, 3584));
	assert_int_equal(bio.nr_bv, 2);
	/* and the next page */
	assert_int_equal(
	    bio_add(&bio, p->multipage, phys + 3 * PAGE_SIZE, NULL, PAGE_SIZE),
	    age(p) != P414);
	assert_int_equal(bio.nr_bv, 2);
	if (age(p) == P414)
		return;

	bio_init(&bio, REQ_OP_READ, 0, bv, 2);
	assert_true(bio_add(&bio, true, phys, NULL, 0xfffff000));
	assert_false(bio_add(&bio, true, phys + 0xfffff000, NULL, PAGE_SIZE));
	assert_int_equal(bio.bytes, 0xfffff000);
	assert_true(bio_add(&bio, true, phys + 0xfffff000, NULL, 4095));
	assert_int_equal(bio.nr_bv, 1);
}

/* The layout of a payload: aligned runs, of which no two are adjacent. */
static void
layout_of_runs(void **state)
{
	const struct profile *p = *state;
	const uint64_t start = 1ull << 32;
	struct bvec bv[BIO_MAX_VECS];
	struct bio bio;
	uint64_t i, run, phys, prev, len;
	unsigned order;

	for (order = 0; order <= 9; order++) {
		run = 1ull << order;
		for (i = 0; i < 4 * run; i++) {
			phys = pages_phys(start, order, i);
			assert_int_equal(phys % PAGE_SIZE, 0);
			if (i % run == 0)
				assert_int_equal(phys % (run * PAGE_SIZE), 0);
			if (i > 0) {
				prev = pages_phys(start, order, i - 1);
				assert_int_equal(
				    phys == prev + PAGE_SIZE, i % run != 0);
			}
			assert_true(phys >= start);
			assert_true(phys + PAGE_SIZE <=
				    start + pages_span(order, 4 * run));
		}
		/* three pages from the middle of a run and one byte more */
		len = 3 * PAGE_SIZE + 1;
		bio_init(&bio, REQ_OP_READ, 0, bv, BIO_MAX_VECS);
		assert_int_equal(bio_add_payload(&bio, p->multipage, start,
				     order, run / 2, NULL, len),
		    len);
		assert_int_equal(bio.bytes, len);
		assert_int_equal(bv[0].phys, pages_phys(start, order, run / 2));
		if (age(p) == P414 || order == 0)
			assert_int_equal(bio.nr_bv, 4);
		else if (order >= 3)
			assert_int_equal(bio.nr_bv, 1);
	}
}

/* 2.6: granularity 8, at most 30 sectors: each cut at a multiple of 8. */
static void
discard_cuts(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_discard_sectors = 30;
	conf.limits.discard_granularity = 4096;
	h_open(&h, &conf);
	range(&h, REQ_OP_DISCARD, 5, 100);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 5, 19, ANY, NM }, { 24, 24, ANY, NM },
	    { 48, 24, ANY, NM }, { 72, 24, ANY, NM },
	    { 96, 9, ANY, MERGEABLE });
	h_close(&h);
}

/* 2.6: the same where the granules start at sector 3. */
static void
discard_alignment(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_discard_sectors = 30;
	conf.limits.discard_granularity = 4096;
	conf.limits.discard_alignment = 3 * SECTOR_SIZE;
	h_open(&h, &conf);
	range(&h, REQ_OP_DISCARD, 5, 100);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 5, 22, ANY, NM }, { 27, 24, ANY, NM },
	    { 51, 24, ANY, NM }, { 75, 24, ANY, NM },
	    { 99, 6, ANY, MERGEABLE });
	h_close(&h);
}

/* 2.6: write zeroes are cut at their own limit. */
static void
write_zeroes_cuts(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_write_zeroes_sectors = 100;
	h_open(&h, &conf);
	range(&h, REQ_OP_WRITE_ZEROES, 0, 250);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 100, ANY, NM }, { 100, 100, ANY, NM },
	    { 200, 50, ANY, MERGEABLE });
	h_close(&h);
}

/* ----------------------------------------------------- merging, T16-T25 */

/* W[0,8) W[8,8), in adjacent pages or not. */
static void
two_writes(struct harness *h, bool adjacent)
{
	uint64_t phys = h_new_phys(h);
	struct bio *bio;

	h_plug(h);
	bio = h_bio(h, REQ_OP_WRITE, 0);
	add_pages(h, bio, phys, PAGE_SIZE, 8);
	h_submit(h, bio);
	bio = h_bio(h, REQ_OP_WRITE, 8);
	add_pages(h, bio, phys + PAGE_SIZE * (adjacent ? 1 : 2), PAGE_SIZE, 8);
	h_submit(h, bio);
	h_finish(h);
}

static void
t16(void **state)
{
	struct harness h;

	open_default(&h, state);
	two_writes(&h, true);
	EXPECT_REQUESTS(&h, { 0, 16, 2, MERGEABLE });
	assert_int_equal(h.seen[0].nr_sg, 1);
	assert_int_equal(h.seen[0].nr_bios, 2);
	expect_counts(&h, STAT_WRITE, 1, 1);
	h_close(&h);

	open_default(&h, state);
	two_writes(&h, false);
	EXPECT_REQUESTS(&h, { 0, 16, 2, MERGEABLE });
	assert_int_equal(h.seen[0].nr_sg, 2);
	h_close(&h);
}

static void
t17(void **state)
{
	struct harness h;

	open_default(&h, state);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 8, 8);
	rw(&h, REQ_OP_WRITE, 0, 8);
	/* a front merge: the second bio is the first of the request */
	assert_int_equal(STAILQ_FIRST(&plug_newest(&h)->bios)->pos, 0);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 16, 2, MERGEABLE });
	expect_counts(&h, STAT_WRITE, 1, 1);
	h_close(&h);
}

static void
t18(void **state)
{
	struct harness h;

	open_default(&h, state);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 8);
	rw(&h, REQ_OP_WRITE, 16, 8);
	rw(&h, REQ_OP_WRITE, 8, 8);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 8, 1, MERGEABLE }, { 8, 16, 2, MERGEABLE });
	expect_counts(&h, STAT_WRITE, 2, 1);
	h_close(&h);
}

static void
t20(void **state)
{
	struct harness h;

	open_default(&h, state);
	h_plug(&h);
	rw(&h, REQ_OP_READ, 0, 8);
	rw(&h, REQ_OP_WRITE, 100, 8);
	rw(&h, REQ_OP_READ, 8, 8);
	rw(&h, REQ_OP_WRITE, 108, 8);
	h_finish(&h);
	if (age(h.profile) <= P54) {
		EXPECT_REQUESTS(
		    &h, { 0, 16, 2, MERGEABLE }, { 100, 16, 2, MERGEABLE });
		expect_counts(&h, STAT_READ, 1, 1);
		expect_counts(&h, STAT_WRITE, 1, 1);
	} else {
		EXPECT_REQUESTS(&h, { 0, 8, 1, MERGEABLE },
		    { 8, 8, 1, MERGEABLE }, { 100, 8, 1, MERGEABLE },
		    { 108, 8, 1, MERGEABLE });
		expect_counts(&h, STAT_READ, 2, 0);
		expect_counts(&h, STAT_WRITE, 2, 0);
	}
	h_close(&h);
}

/* W[0,8) W+FUA[8,8) W[16,8) */
static void
fua_in_the_middle(struct harness *h)
{
	struct bio *bio;

	h_plug(h);
	rw(h, REQ_OP_WRITE, 0, 8);
	bio = h_bio(h, REQ_OP_WRITE, 8);
	bio->flags |= REQ_FUA;
	add_contig(h, bio, 8);
	h_submit(h, bio);
	rw(h, REQ_OP_WRITE, 16, 8);
	h_finish(h);
}

static void
t21_fua(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.write_cache = true;
	conf.limits.fua = true;
	h_open(&h, &conf);
	fua_in_the_middle(&h);
	EXPECT_REQUESTS(
	    &h, { 0, 8, 1, ANY }, { 8, 8, 1, ANY }, { 16, 8, 1, ANY });
	expect_counts(&h, STAT_WRITE, 3, 0);
	if (age(h.profile) == P612) {
		EXPECT_ORDER(&h, 0, 8, 16);
		EXPECT_BURSTS(&h, 3);
		assert_true(h.seen[1].flags & REQ_FUA);
	} else {
		/* outside the plug: ahead of what waits in it */
		assert_int_equal(h.seen[0].sector, 8);
		assert_true(h.seen[0].flags & REQ_FUA);
		EXPECT_BURSTS(&h, 1, 2);
	}
	h_close(&h);
}

static void
t21_post_flush(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	unsigned i, nr_writes = 0, fua_at = 0, flush_at = 0;

	conf.limits.write_cache = true;
	conf.limits.fua = false;
	h_open(&h, &conf);
	fua_in_the_middle(&h);
	for (i = 0; i < h.nr_seen; i++) {
		/* the device could not do it */
		assert_false(h.seen[i].flags & REQ_FUA);
		if (h.seen[i].op == REQ_OP_FLUSH) {
			assert_int_equal(flush_at, 0);
			flush_at = i + 1;
			continue;
		}
		assert_int_equal(h.seen[i].op, REQ_OP_WRITE);
		assert_int_equal(h.seen[i].nr_sectors, 8);
		nr_writes++;
		if (h.seen[i].sector == 8)
			fua_at = i + 1;
	}
	assert_int_equal(nr_writes, 3);
	assert_int_not_equal(fua_at, 0);
	assert_true(flush_at > fua_at);
	expect_counts(&h, STAT_WRITE, 3, 0);
	assert_int_equal(h_stat(&h).ios[STAT_FLUSH], 1);
	h_close(&h);
}

static void
t21_no_cache(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.write_cache = false;
	h_open(&h, &conf);
	fua_in_the_middle(&h);
	EXPECT_REQUESTS(&h, { 0, 24, 3, MERGEABLE });
	assert_false(h.seen[0].flags & REQ_FUA);
	expect_counts(&h, STAT_WRITE, 1, 2);
	h_close(&h);
}

/* 3.7: without a volatile cache an empty flush completes at once. */
static void
flush_without_cache(void **state)
{
	struct harness h;

	open_default(&h, state);
	range(&h, REQ_OP_FLUSH, 0, 0);
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h.nr_seen, 0);
	assert_int_equal(h.error, 0);
	h_close(&h);
}

/*
 * 6.2: with one it is sent.  It counts as a flush where there is such a field
 * and, as its submitter's, as one write of no sectors: the recordings
 * c-cache-flush.txt of 6.1 and 6.12, "stat after 1 fdatasync".
 */
static void
flush_with_cache(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct queue_stat st;

	conf.limits.write_cache = true;
	conf.limits.fua = true;
	h_open(&h, &conf);
	range(&h, REQ_OP_FLUSH, 0, 0);
	h_finish(&h);
	assert_int_equal(h.nr_seen, 1);
	assert_int_equal(h.seen[0].op, REQ_OP_FLUSH);
	st = h_stat(&h);
	assert_int_equal(st.ios[STAT_WRITE], 1);
	assert_int_equal(st.sectors[STAT_WRITE], 0);
	if (h.profile->stat_fields == 17)
		assert_int_equal(st.ios[STAT_FLUSH], 1);
	h_close(&h);
}

static void
t22(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_sectors = 255;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 248);
	rw(&h, REQ_OP_WRITE, 248, 16);
	rw(&h, REQ_OP_WRITE, 264, 8);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 248, ANY, NM }, { 248, 24, ANY, MERGEABLE });
	expect_counts(&h, STAT_WRITE, 2, 1);
	expect_refused(&h, REFUSED_SIZE, 1);
	h_close(&h);
}

static void
t23(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_segments = 4;
	h_open(&h, &conf);
	h_plug(&h);
	rw_scat(&h, REQ_OP_WRITE, 0, 24);
	rw_scat(&h, REQ_OP_WRITE, 24, 16);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 24, 3, NM }, { 24, 16, 2, MERGEABLE });
	expect_counts(&h, STAT_WRITE, 2, 0);
	expect_refused(&h, REFUSED_SEGMENTS, 1);
	h_close(&h);
}

/* Discards were writes to the statistics of 4.14 (6.1). */
static enum stat_group
discard_group(const struct harness *h)
{
	return age(h->profile) == P414 ? STAT_WRITE : STAT_DISCARD;
}

/* D[0,8) D[100,8) D[50,8) */
static void
three_discards(struct harness *h)
{
	h_plug(h);
	range(h, REQ_OP_DISCARD, 0, 8);
	range(h, REQ_OP_DISCARD, 100, 8);
	range(h, REQ_OP_DISCARD, 50, 8);
	h_finish(h);
}

static void
t24_single(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_discard_sectors = 1u << 20;
	conf.limits.max_discard_segments = 1;
	h_open(&h, &conf);
	three_discards(&h);
	EXPECT_REQUESTS(&h, { 0, 8, ANY, MERGEABLE }, { 50, 8, ANY, MERGEABLE },
	    { 100, 8, ANY, MERGEABLE });
	expect_counts(&h, discard_group(&h), 3, 0);
	h_close(&h);
}

static void
t24_multi(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_discard_sectors = 1u << 20;
	conf.limits.max_discard_segments = 256;
	h_open(&h, &conf);
	three_discards(&h);
	EXPECT_REQUESTS(&h, { 0, 24, ANY, MERGEABLE });
	assert_int_equal(h.seen[0].nr_bios, 3);
	expect_counts(&h, discard_group(&h), 1, 2);
	h_close(&h);
}

/* 3.3, 3.4: a single-range discard merges where it is adjacent. */
static void
discards_adjacent(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_discard_sectors = 1u << 20;
	h_open(&h, &conf);
	h_plug(&h);
	range(&h, REQ_OP_DISCARD, 8, 8);
	range(&h, REQ_OP_DISCARD, 16, 8);
	range(&h, REQ_OP_DISCARD, 0, 8);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 24, ANY, MERGEABLE });
	if (age(h.profile) == P612)
		assert_int_equal(h.seen[0].nr_segs, 1);
	expect_counts(&h, discard_group(&h), 1, 2);
	h_close(&h);
}

/* 3.4: no more ranges than the device takes; the request stays refused. */
static void
discard_ranges(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_discard_sectors = 1u << 20;
	conf.limits.max_discard_segments = 2;
	h_open(&h, &conf);
	three_discards(&h);
	EXPECT_REQUESTS(&h, { 0, 16, ANY, NM }, { 50, 8, ANY, MERGEABLE });
	expect_counts(&h, discard_group(&h), 2, 1);
	h_close(&h);
}

/* 3.4: the ranges of a discard together are limited, too. */
static void
discard_total(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_discard_sectors = 20;
	conf.limits.max_discard_segments = 256;
	h_open(&h, &conf);
	three_discards(&h);
	EXPECT_REQUESTS(&h, { 0, 16, ANY, NM }, { 50, 8, ANY, MERGEABLE });
	expect_counts(&h, discard_group(&h), 2, 1);
	h_close(&h);
}

static void
t25(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	int segs;

	conf.limits.max_write_zeroes_sectors = 1u << 16;
	h_open(&h, &conf);
	h_plug(&h);
	range(&h, REQ_OP_WRITE_ZEROES, 0, 8);
	range(&h, REQ_OP_WRITE_ZEROES, 8, 8);
	h_finish(&h);
	segs = age(h.profile) == P414 ? 1 : 0; /* 2.6 */
	EXPECT_REQUESTS(&h, { 0, 8, segs, ANY }, { 8, 8, segs, ANY });
	expect_counts(&h, STAT_WRITE, 2, 0);
	h_close(&h);
}

/* ------------------------------------------- plugs and the rest, T26-T35 */

static void
t26(void **state)
{
	struct harness h;
	unsigned i;

	open_default(&h, state);
	h_plug(&h);
	for (i = 0; i < 40; i++)
		rw(&h, REQ_OP_WRITE, 1000 * i, 8);
	h_finish(&h);
	assert_int_equal(h.nr_seen, 40);
	expect_counts(&h, STAT_WRITE, 40, 0);
	if (age(h.profile) <= P54)
		EXPECT_BURSTS(&h, 16, 16, 8);
	else
		EXPECT_BURSTS(&h, 32, 8);
	h_close(&h);
}

static void
t27(void **state)
{
	struct harness h;

	open_default(&h, state);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 256);
	assert_int_equal(h.nr_seen, 0);
	rw(&h, REQ_OP_WRITE, 9000, 8);
	assert_int_equal(h.nr_seen, 1);
	rw(&h, REQ_OP_WRITE, 20000, 8);
	assert_int_equal(h.nr_seen, 1);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 256, 2, MERGEABLE }, { 9000, 8, 1, MERGEABLE },
	    { 20000, 8, 1, MERGEABLE });
	EXPECT_BURSTS(&h, 1, 2);
	h_close(&h);
}

static void
t28(void **state)
{
	struct harness h;
	bool early;

	open_default(&h, state);
	early = age(h.profile) != P612;
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 9000, 8);
	rw(&h, REQ_OP_WRITE, 0, 256);
	assert_int_equal(h.nr_seen, 0);
	rw(&h, REQ_OP_WRITE, 20000, 8);
	assert_int_equal(h.nr_seen, early ? 2 : 0);
	h_finish(&h);
	if (early)
		EXPECT_BURSTS(&h, 2, 1);
	else
		EXPECT_BURSTS(&h, 3);
	h_close(&h);
}

static void
t29(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	int segs;

	conf.limits.max_sectors = 255;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_READ, 0, 2048);
	rw(&h, REQ_OP_READ, 2048, 8);
	h_finish(&h);
	segs = single_page(&h) ? 3 : 2;
	EXPECT_REQUESTS(&h, { 0, 255, segs, NM }, { 255, 255, segs, NM },
	    { 510, 255, segs, NM }, { 765, 255, segs, NM },
	    { 1020, 255, segs, NM }, { 1275, 255, segs, NM },
	    { 1530, 255, segs, NM }, { 1785, 255, 2, NM },
	    { 2040, 16, 2, MERGEABLE });
	expect_counts(&h, STAT_READ, 9, 1);
	h_close(&h);
}

static void
t30(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.nomerges = 2;
	h_open(&h, &conf);
	two_writes(&h, true);
	EXPECT_REQUESTS(&h, { 0, 8, 1, ANY }, { 8, 8, 1, ANY });
	expect_counts(&h, STAT_WRITE, 2, 0);
	h_close(&h);

	conf.nomerges = 1;
	h_open(&h, &conf);
	two_writes(&h, true);
	EXPECT_REQUESTS(&h, { 0, 16, 2, MERGEABLE });
	assert_int_equal(h.seen[0].nr_sg, 1);
	expect_counts(&h, STAT_WRITE, 1, 1);
	h_close(&h);
}

static void
t31(void **state)
{
	struct harness h;
	struct bio *bio;

	open_default(&h, state);
	h_plug(&h);
	bio = h_bio(&h, REQ_OP_WRITE, 0);
	bio->prio = IOPRIO_BE;
	add_contig(&h, bio, 8);
	h_submit(&h, bio);
	bio = h_bio(&h, REQ_OP_WRITE, 8);
	bio->prio = IOPRIO_RT;
	add_contig(&h, bio, 8);
	h_submit(&h, bio);
	h_finish(&h);
	if (age(h.profile) == P414) {
		EXPECT_REQUESTS(&h, { 0, 16, 2, MERGEABLE });
		assert_int_equal(h.seen[0].prio, IOPRIO_RT);
		expect_counts(&h, STAT_WRITE, 1, 1);
	} else {
		EXPECT_REQUESTS(
		    &h, { 0, 8, 1, MERGEABLE }, { 8, 8, 1, MERGEABLE });
		expect_counts(&h, STAT_WRITE, 2, 0);
	}
	h_close(&h);
}

/*
 * W[120,16) is split at the chunk's end before anything can merge (3.1), so
 * that a queue refuses it in another way than the example says: its head is
 * NM.  The refusal for size and its stickiness show in the merge itself.
 */
static void
t32_refused(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct request *rq;
	struct bio *bio;

	conf.limits.chunk_sectors = 128;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 96, 24);
	rq = plug_newest(&h);
	bio = h_bio(&h, REQ_OP_WRITE, 120);
	add_contig(&h, bio, 16);
	bio->nr_segs = 1;
	assert_int_equal(
	    rq_attempt_merge(rq, bio, queue_ctx(h.queue, 0), h.now),
	    MERGE_FAILED);
	assert_true(rq->flags & REQ_NOMERGE);
	free(bio->priv);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 96, 24, 1, NM });
	expect_refused(&h, REFUSED_CHUNK, 1);
	h_close(&h);

	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 96, 24);
	rw(&h, REQ_OP_WRITE, 120, 16);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 96, 24, 1, MERGEABLE }, { 120, 8, ANY, NM },
	    { 128, 8, 1, MERGEABLE });
	expect_counts(&h, STAT_WRITE, 3, 0);
	h_close(&h);
}

static void
t32_merges(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.chunk_sectors = 128;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 96, 24);
	rw(&h, REQ_OP_WRITE, 120, 8);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 96, 32, 2, MERGEABLE });
	expect_counts(&h, STAT_WRITE, 1, 1);
	expect_refused(&h, REFUSED_CHUNK, 0);
	h_close(&h);
}

/*
 * The driver is busy: the first request waits in the dispatch list, ten more
 * in the software queue, w0 to w9 at 1000 * i.  Then a bio comes that is
 * adjacent to w<nth>.
 */
static void
software_queue(void **state, unsigned nth, bool merges)
{
	struct harness h;
	unsigned i;

	open_default(&h, state);
	h.busy = true;
	rw(&h, REQ_OP_WRITE, 500000, 8);
	cpu_run(h.cpu, h.now);
	for (i = 0; i < 10; i++) {
		rw(&h, REQ_OP_WRITE, 1000 * i, 8);
		cpu_run(h.cpu, h.now);
	}
	assert_int_equal(h.nr_seen, 0);
	assert_true(h.nr_busy > 0);
	rw(&h, REQ_OP_WRITE, 1000 * nth + 8, 8);
	assert_int_equal(queue_tags_in_use(h.queue), merges ? 11 : 12);
	h_finish(&h);
	assert_int_equal(h.nr_seen, merges ? 11 : 12);
	expect_counts(&h, STAT_WRITE, merges ? 11 : 12, merges ? 1 : 0);
	h_close(&h);
}

static void
t33_out_of_sight(void **state)
{
	software_queue(state, 0, false);
}

static void
t33_in_sight(void **state)
{
	software_queue(state, 3, true);
}

/* The eighth newest is the last that is looked at (3.6). */
static void
t33_border(void **state)
{
	software_queue(state, 2, true);
	software_queue(state, 1, false);
}

/* 3.6: nomerges=1 leaves the software queue's merging, 2 does not. */
static void
software_queue_nomerges(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	unsigned nomerges, merges;

	for (nomerges = 1; nomerges <= 2; nomerges++) {
		merges = nomerges == 1 ? 1 : 0;
		conf.nomerges = nomerges;
		h_open(&h, &conf);
		h.busy = true;
		rw(&h, REQ_OP_WRITE, 500000, 8);
		rw(&h, REQ_OP_WRITE, 0, 8);
		rw(&h, REQ_OP_WRITE, 8, 8);
		h_finish(&h);
		expect_counts(&h, STAT_WRITE, 3 - merges, merges);
		h_close(&h);
	}
}

/* io_submit() of `nr` adjacent 4 KiB direct I/Os (4.2). */
static void
io_submit(struct harness *h, unsigned nr)
{
	unsigned i;

	if (nr >= h->profile->aio_plug_min)
		h_plug(h);
	for (i = 0; i < nr; i++)
		rw(h, REQ_OP_WRITE, 8 * i, 8);
	h_finish(h);
}

static void
t34_two(void **state)
{
	struct harness h;

	open_default(&h, state);
	io_submit(&h, 2);
	if (age(h.profile) == P414) {
		EXPECT_REQUESTS(&h, { 0, 16, 2, MERGEABLE });
		expect_counts(&h, STAT_WRITE, 1, 1);
	} else {
		EXPECT_REQUESTS(
		    &h, { 0, 8, 1, MERGEABLE }, { 8, 8, 1, MERGEABLE });
		expect_counts(&h, STAT_WRITE, 2, 0);
	}
	h_close(&h);
}

static void
t34_three(void **state)
{
	struct harness h;

	open_default(&h, state);
	io_submit(&h, 3);
	EXPECT_REQUESTS(&h, { 0, 24, 3, MERGEABLE });
	expect_counts(&h, STAT_WRITE, 1, 2);
	h_close(&h);
}

/*
 * 100,000 I/Os of report A's job; report_a.c has the long run.  With a flush
 * at each context switch, one in 105 I/Os, whole-plug merging gives 45.0%.
 */
static void
t35(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct job job = { .chance = { 35 } };
	struct harness h;
	struct job_io io;
	struct queue_stat st;
	unsigned left, nr, done;
	double share, ios, merges;
	bool whole_plug;

	conf.limits.max_sectors = 255;
	conf.depth = 64;
	h_open(&h, &conf);
	whole_plug = age(h.profile) <= P54;
	for (done = 0; done < 100000; done += nr) {
		nr = job_batch(&job);
		if (nr >= h.profile->aio_plug_min)
			h_plug(&h);
		for (left = nr; left > 0; left--) {
			io = job_next(&job);
			if (whole_plug && job.nr % 105 == 0 && h.open != NULL)
				plug_flush(h.open, h.cpu, h.now);
			rw_scat(&h, io.op, io.sector, io.nr_sectors);
		}
		h_finish(&h);
		h.nr_seen = 0;
		h.nr_bursts = 0;
	}
	st = h_stat(&h);
	ios = (double)(st.ios[STAT_READ] + st.ios[STAT_WRITE]);
	merges = (double)(st.merges[STAT_READ] + st.merges[STAT_WRITE]);
	assert_int_equal(ios + merges, job.nr);
	share = 100 * merges / (ios + merges);
	if (whole_plug)
		assert_true(share > 44.3 && share < 45.7);
	else
		assert_true(share > 23.2 && share < 25.2);
	h_close(&h);
}

/* -------------------------------------- rules of section 4 and its tables */

/* 4.1: the order in which a plug is handed on, one hardware queue. */
static void
plug_order(void **state)
{
	struct harness h;

	open_default(&h, state);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 3000, 8);
	rw(&h, REQ_OP_WRITE, 1000, 8);
	rw(&h, REQ_OP_WRITE, 4000, 8);
	rw(&h, REQ_OP_WRITE, 2000, 8);
	h_finish(&h);
	switch (age(h.profile)) {
	case P414: EXPECT_ORDER(&h, 1000, 2000, 3000, 4000); break;
	case P61: EXPECT_ORDER(&h, 2000, 4000, 1000, 3000); break;
	default: EXPECT_ORDER(&h, 3000, 1000, 4000, 2000); break;
	}
	EXPECT_BURSTS(&h, 4);
	h_close(&h);
}

/* 3.6: from 5.16 on nomerges=2 disables the flush at 128 KiB as well. */
static void
nomerges_and_size(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.nomerges = 2;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 256);
	rw(&h, REQ_OP_WRITE, 9000, 8);
	rw(&h, REQ_OP_WRITE, 20000, 8);
	h_finish(&h);
	if (age(h.profile) <= P54)
		EXPECT_BURSTS(&h, 1, 2);
	else
		EXPECT_BURSTS(&h, 3);
	h_close(&h);
}

/*
 * 4.1: 4.14 holds one request back where there are several hw queues; so does
 * 5.4, unless the driver has a commit or the disk rotates.
 */
static void
limited_plug(void **state)
{
	static const struct queue_ops bare = { .queue_rq = h_queue_rq };
	static const struct {
		bool commit, rotational;
	} kinds[] = { { false, false }, { false, true }, { true, false } };
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct queue *q;
	unsigned i;
	bool limited;

	conf.nr_hw_queues = 2;
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		conf.limits.rotational = kinds[i].rotational;
		h_open(&h, &conf);
		if (!kinds[i].commit) {
			assert_int_equal(
			    queue_new(&q, h.machine, &bare, &h, &conf), 0);
			queue_free(h.queue);
			h.queue = q;
		}
		limited =
		    age(h.profile) == P414 || (age(h.profile) == P54 && i == 0);
		h_plug(&h);
		rw(&h, REQ_OP_WRITE, 0, 8);
		rw(&h, REQ_OP_WRITE, 8, 8);
		assert_int_equal(h.nr_seen, 0);
		rw(&h, REQ_OP_WRITE, 1000, 8);
		assert_int_equal(h.nr_seen, limited ? 1 : 0);
		rw(&h, REQ_OP_WRITE, 2000, 8);
		assert_int_equal(h.nr_seen, limited ? 2 : 0);
		h_finish(&h);
		EXPECT_REQUESTS(&h, { 0, 16, 2, MERGEABLE },
		    { 1000, 8, 1, MERGEABLE }, { 2000, 8, 1, MERGEABLE });
		h_close(&h);
	}
}

/* A second disk for the task; its driver writes into the same book. */
static struct queue *
second_queue(struct harness *h, const struct queue_conf *conf)
{
	struct queue *q;

	assert_int_equal(queue_new(&q, h->machine, &h_ops, h, conf), 0);
	return q;
}

static void
rw_on(struct harness *h, struct queue *q, enum req_op op, sector_t sector)
{
	struct queue *own = h->queue;

	h->queue = q;
	rw(h, op, sector, 8);
	h->queue = own;
}

/*
 * 4.1: two disks in turn.  4.14 counts the requests of each, 5.4 all; later
 * ones allow twice as many when there are several queues.
 */
static void
plug_two_queues(void **state)
{
	static const unsigned max[] = { 32, 16, 64, 64 };
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct queue *other;
	unsigned i, nr;

	h_open(&h, &conf);
	other = second_queue(&h, &conf);
	nr = max[age(h.profile)];
	h_plug(&h);
	for (i = 0; i < nr; i++)
		rw_on(&h, i % 2 ? other : h.queue, REQ_OP_WRITE, 1000 * i);
	assert_int_equal(h.nr_seen, 0);
	assert_int_equal(h.plug.nr, nr);
	rw_on(&h, h.queue, REQ_OP_WRITE, 1000000);
	assert_int_equal(h.nr_seen, nr);
	assert_int_equal(h.plug.nr, 1);
	h_flush(&h);
	h_drain(&h);
	assert_int_equal(h.nr_seen, nr + 1);
	queue_free(other);
	h_close(&h);
}

/*
 * 3.6: the newest request is another disk's.  The old kernels look at all;
 * 6.1 tries the newest of the bio's own queue, 6.12 the oldest, once.
 */
static void
plug_merge_two_queues(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct queue *other;
	enum age a;

	h_open(&h, &conf);
	a = age(h.profile);
	other = second_queue(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 8);
	rw(&h, REQ_OP_WRITE, 100, 8);
	rw_on(&h, other, REQ_OP_WRITE, 0);
	rw(&h, REQ_OP_WRITE, 108, 8); /* follows the newest */
	h_flush(&h);
	h_drain(&h);
	expect_counts(&h, STAT_WRITE, a == P612 ? 3 : 2, a == P612 ? 0 : 1);
	queue_free(other);
	h_close(&h);

	h_open(&h, &conf);
	other = second_queue(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 8);
	rw(&h, REQ_OP_WRITE, 100, 8);
	rw_on(&h, other, REQ_OP_WRITE, 0);
	rw(&h, REQ_OP_WRITE, 8, 8); /* follows the oldest */
	h_flush(&h);
	h_drain(&h);
	expect_counts(&h, STAT_WRITE, a == P61 ? 3 : 2, a == P61 ? 0 : 1);
	queue_free(other);
	h_close(&h);
}

/*
 * 3.6: a positional match that fails its limits does not end the search of
 * the old kernels' plug: W[0,250) is refused W[250,8), which then merges in
 * front of W[258,8).
 */
static void
plug_goes_on(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_sectors = 255;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 258, 8);
	rw(&h, REQ_OP_WRITE, 0, 250);
	rw(&h, REQ_OP_WRITE, 250, 8);
	h_finish(&h);
	if (age(h.profile) <= P54)
		EXPECT_REQUESTS(
		    &h, { 0, 250, ANY, NM }, { 250, 16, 2, MERGEABLE });
	else
		EXPECT_REQUESTS(&h, { 0, 250, ANY, NM },
		    { 250, 8, 1, MERGEABLE }, { 258, 8, 1, MERGEABLE });
	h_close(&h);
}

/* 3.4: a gap at the seam refuses, but not for good. */
static void
gap_at_the_seam(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;

	conf.limits.virt_boundary_mask = 4095;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 8);
	bio = h_bio(&h, REQ_OP_WRITE, 8);
	assert_true(bio_add(
	    bio, h.profile->multipage, h_new_phys(&h) + 512, h_memory, 512));
	bio->nr_segs = 1;
	assert_int_not_equal(rq_attempt_merge(plug_newest(&h), bio,
				 queue_ctx(h.queue, 0), h.now),
	    MERGE_OK);
	free(bio->priv);
	rw(&h, REQ_OP_WRITE, 8, 8); /* on a page: no gap */
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 16, 2, MERGEABLE });
	h_close(&h);
}

/* A write of `bytes` at `sector` whose memory is at `phys`. */
static void
write_at(struct harness *h, sector_t sector, uint64_t phys, uint32_t bytes)
{
	struct bio *bio = h_bio(h, REQ_OP_WRITE, sector);

	assert_true(bio_add(bio, h->profile->multipage, phys, h_memory, bytes));
	h_submit(h, bio);
}

/* 3.4: what touches physically is no gap, wherever it is. */
static void
no_gap_in_a_page(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	uint64_t phys;

	conf.limits.virt_boundary_mask = 4095;
	h_open(&h, &conf);
	phys = h_new_phys(&h);
	h_plug(&h);
	write_at(&h, 0, phys, 512);
	write_at(&h, 1, phys + 512, 512);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 2, 2, MERGEABLE });
	assert_int_equal(h.seen[0].nr_sg, 1);
	h_close(&h);
}

/* 3.4: a request that starts within a page takes none at its end. */
static void
misaligned_first(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.virt_boundary_mask = 4095;
	h_open(&h, &conf);
	h_plug(&h);
	write_at(&h, 0, h_new_phys(&h) + 512, 3584);
	write_at(&h, 7, h_new_phys(&h), 4096);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 7, 1, MERGEABLE }, { 7, 8, 1, MERGEABLE });
	h_close(&h);
}

/* 2.3: to 4.14 any offset was a gap, whatever the mask. */
static void
any_offset(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.virt_boundary_mask = 511;
	h_open(&h, &conf);
	submit_three(
	    &h, (unsigned[]){ 0, 512, 0 }, (unsigned[]){ 4096, 3584, 512 });
	h_finish(&h);
	if (age(h.profile) == P414)
		EXPECT_REQUESTS(&h, { 0, 8, 1, NM }, { 8, 8, 2, MERGEABLE });
	else
		EXPECT_REQUESTS(&h, { 0, 16, 3, MERGEABLE });
	h_close(&h);
}

/* 3.6: in a software queue a refusal ends the search. */
static void
software_queue_refusal(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;

	conf.limits.max_sectors = 255;
	h_open(&h, &conf);
	h.busy = true;
	rw(&h, REQ_OP_WRITE, 500000, 8);
	rw(&h, REQ_OP_WRITE, 258, 8);
	rw(&h, REQ_OP_WRITE, 0, 250);
	rw(&h, REQ_OP_WRITE, 250, 8);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 250, ANY, NM }, { 250, 8, 1, MERGEABLE },
	    { 258, 8, 1, MERGEABLE }, { 500000, 8, 1, MERGEABLE });
	h_close(&h);
}

/*
 * 4.1: several disks in one plug.  5.4 sorts then, too; 6.1 groups them and
 * restores their order.
 */
static void
plug_order_two_queues(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct queue *other;
	sector_t own[3];
	unsigned i, nr = 0;

	h_open(&h, &conf);
	other = second_queue(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 3000, 8);
	rw_on(&h, other, REQ_OP_WRITE, 500);
	rw(&h, REQ_OP_WRITE, 1000, 8);
	rw(&h, REQ_OP_WRITE, 2000, 8);
	h_flush(&h);
	h_drain(&h);
	assert_int_equal(h.nr_seen, 4);
	for (i = 0; i < 4; i++)
		if (h.seen[i].queue == h.queue)
			own[nr++] = h.seen[i].sector;
	assert_int_equal(nr, 3);
	if (age(h.profile) <= P54)
		assert_memory_equal(
		    own, ((sector_t[]){ 1000, 2000, 3000 }), sizeof(own));
	else
		assert_memory_equal(
		    own, ((sector_t[]){ 3000, 1000, 2000 }), sizeof(own));
	queue_free(other);
	h_close(&h);
}

/* Without a free tag the plug is emptied, and the bio comes again (4.1). */
static void
waits_for_a_tag(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct bio *bio;

	conf.depth = 2;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 1000, 8);
	rw(&h, REQ_OP_WRITE, 2000, 8);
	rw(&h, REQ_OP_WRITE, 2008, 8); /* merges: needs no tag */
	assert_int_equal(h.nr_seen, 0);
	assert_int_equal(queue_tags_in_use(h.queue), 2);
	bio = h_bio(&h, REQ_OP_WRITE, 3000);
	add_contig(&h, bio, 8);
	h.busy = true; /* no tag comes back */
	h.nr_submitted++;
	assert_int_equal(h_try_submit(&h, bio), -EAGAIN);
	assert_int_equal(h.plug.nr, 0);
	assert_true(h.nr_busy > 0);
	h.busy = false;
	queue_run(h.queue, h.cpu, h.now);
	cpu_run(h.cpu, h.now);
	assert_true(cpu_tag_freed(h.cpu));
	assert_int_equal(h.nr_ended, 3);
	assert_int_equal(h_try_submit(&h, bio), 0);
	h_finish(&h);
	EXPECT_REQUESTS(
	    &h, { 1000, 8, 1, ANY }, { 2000, 16, 2, ANY }, { 3000, 8, 1, ANY });
	h_close(&h);
}

/* 6.2: what waits in the plug is in flight, but not in the driver. */
static void
counts_in_flight(void **state)
{
	struct harness h;
	struct queue_stat st;

	open_default(&h, state);
	h_plug(&h);
	rw(&h, REQ_OP_READ, 0, 8);
	rw(&h, REQ_OP_WRITE, 100, 8);
	rw(&h, REQ_OP_WRITE, 200, 8);
	rw(&h, REQ_OP_WRITE, 208, 8); /* merged: no more in flight */
	stat_read(h.queue, &st, h.now);
	if (age(h.profile) != P54) /* of which the notes say nothing */
		assert_int_equal(st.in_flight, age(h.profile) == P414 ? 0 : 3);
	assert_int_equal(st.inflight_rw[0], 0);
	assert_int_equal(st.inflight_rw[1], 0);
	h_finish(&h);
	assert_int_equal(h_stat(&h).in_flight, 0);
	h_close(&h);
}

/*
 * 6.2: a request's time runs from its first bio on, in the plug as well.  20
 * ms are whole jiffies at any usual HZ.
 */
static void
times_a_request(void **state)
{
	struct harness h;
	struct queue_stat st;

	open_default(&h, state);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 8);
	h.now += 20000000;
	h_finish(&h);
	st = h_stat(&h);
	assert_int_equal(st.ticks_ms[STAT_WRITE], 20);
	if (age(h.profile) >= P61) {
		assert_int_equal(st.io_ticks_ms, 20);
		assert_int_equal(st.in_queue_ms, 20);
	}
	h_close(&h);
}

/*
 * 6.2: two writes, 40 ms in the driver.  4.14 samples what the driver has when
 * it is read; 5.4 adds a jiffy at each start and the time since the last stamp
 * at each end; later the time is what it is.
 */
static void
times_the_driver(void **state)
{
	struct harness h;
	struct queue_stat st;

	open_default(&h, state);
	h.hold = true;
	rw(&h, REQ_OP_WRITE, 0, 8);
	h.now -= 1000; /* in the same jiffy, whatever HZ is */
	rw(&h, REQ_OP_WRITE, 1000, 8);
	assert_int_equal(h.nr_held, 2);
	h.now += 40000000;
	stat_read(h.queue, &st, h.now);
	assert_int_equal(st.in_flight, 2);
	assert_int_equal(st.inflight_rw[0], 0);
	assert_int_equal(st.inflight_rw[1], 2);
	if (age(h.profile) == P414) {
		assert_int_equal(st.io_ticks_ms, 40);
		assert_int_equal(st.in_queue_ms, 80);
	}
	h_finish(&h);
	st = h_stat(&h);
	assert_int_equal(st.ticks_ms[STAT_WRITE], 80);
	switch (age(h.profile)) {
	case P414:
		assert_int_equal(st.io_ticks_ms, 40);
		assert_int_equal(st.in_queue_ms, 80);
		break;
	case P54:
		assert_int_equal(st.io_ticks_ms, 40 + 1000 / h.profile->hz);
		assert_int_equal(st.in_queue_ms, 80);
		break;
	default:
		assert_int_equal(st.io_ticks_ms, 40);
		assert_int_equal(st.in_queue_ms, 80);
		break;
	}
	h_close(&h);
}

/* 6.1: 11, 15 or 17 fields, blanks between, each at least 8 wide. */
static void
shows_its_fields(void **state)
{
	static const unsigned nr_fields[] = { 11, 15, 17, 17 };
	struct harness h;
	struct queue_stat st;
	unsigned long long field[17] = {};
	unsigned i, nr = 0;
	char *line = NULL, *at, *end;
	size_t size;
	FILE *f;

	open_default(&h, state);
	h_plug(&h);
	rw(&h, REQ_OP_READ, 0, 8);
	rw(&h, REQ_OP_WRITE, 100, 16);
	rw(&h, REQ_OP_WRITE, 116, 8);
	h_finish(&h);
	st = h_stat(&h);
	f = open_memstream(&line, &size);
	assert_non_null(f);
	stat_show(h.queue, &st, f);
	fclose(f);
	for (at = line; nr < 17; at = end, nr++) {
		field[nr] = strtoull(at, &end, 10);
		if (end == at)
			break;
		assert_true(end - at >= (nr == 0 ? 8 : 9));
	}
	assert_int_equal(nr, nr_fields[age(h.profile)]);
	assert_string_equal(at, "\n");
	assert_int_equal(field[0], 1); /* reads: ios, merges, sectors */
	assert_int_equal(field[1], 0);
	assert_int_equal(field[2], 8);
	assert_int_equal(field[4], 1); /* writes */
	assert_int_equal(field[5], 1);
	assert_int_equal(field[6], 24);
	for (i = 11; i < 17; i++)
		assert_int_equal(field[i], 0);
	free(line);
	h_close(&h);
}

/* 2.5: a bio ends with its last piece, and with the first of their errors. */
static void
error_of_a_piece(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	unsigned i;

	conf.limits.max_sectors = 8;
	h_open(&h, &conf);
	h.hold = true;
	rw(&h, REQ_OP_WRITE, 0, 32);
	assert_int_equal(h.nr_held, 4);
	h.held[1]->error = -ENOSPC;
	h.held[2]->error = -EIO;
	for (i = 0; i < 4; i++) {
		assert_int_equal(h.nr_ended, 0);
		rq_complete(h.held[i], h.cpu, h.now);
		cpu_run(h.cpu, h.now);
	}
	h.nr_held = 0;
	assert_int_equal(h.nr_ended, 1);
	assert_int_equal(h.error, -ENOSPC);
	expect_counts(&h, STAT_WRITE, 4, 0); /* failed ones count (6.2) */
	h_close(&h);
}

/* A disk may go while a cpu still means to look at it again. */
static void
queue_goes(void **state)
{
	struct queue_conf conf = h_conf(*state);
	struct harness h;
	struct queue *other;

	h_open(&h, &conf);
	other = second_queue(&h, &conf);
	h.busy = true;
	rw_on(&h, other, REQ_OP_WRITE, 0);
	rw_on(&h, other, REQ_OP_WRITE, 1000);
	h.busy = false;
	queue_run(other, h.cpu, h.now); /* one ends while the other waits */
	assert_int_equal(h.nr_ended, 2);
	queue_free(other);
	cpu_run(h.cpu, h.now);
	rw(&h, REQ_OP_WRITE, 0, 8);
	h_close(&h);
}

/* 3.2: reads and writes, though adjacent, keep apart; so do overlaps. */
static void
never_merged(void **state)
{
	struct harness h;

	open_default(&h, state);
	h_plug(&h);
	rw(&h, REQ_OP_READ, 0, 8);
	rw(&h, REQ_OP_WRITE, 8, 8);
	rw(&h, REQ_OP_WRITE, 12, 8);
	h_finish(&h);
	EXPECT_REQUESTS(&h, { 0, 8, 1, MERGEABLE }, { 8, 8, 1, MERGEABLE },
	    { 12, 8, 1, MERGEABLE });
	h_close(&h);
}

static const struct example examples[] = {
	{ "T1 reads 16 contiguous pages as one segment", t1 },
	{ "T2 cuts 32 contiguous pages at the segment size", t2 },
	{ "T3 counts a segment a page when none are adjacent", t3 },
	{ "T4 counts a segment for each of two runs", t4 },
	{ "T5 splits 1 MiB at 255 sectors into nine requests", t5 },
	{ "T6 splits at whole 4 KiB blocks", t6 },
	{ "T7 ends the pieces on physical blocks from 5.4 on", t7 },
	{ "T8 splits at the end of a chunk", t8 },
	{ "T9 splits before a bvec that leaves a gap", t9 },
	{ "T10 sees no gap where pages end and start full", t10 },
	{ "T11 carries a huge page in two bios or in one", t11 },
	{ "T12 splits at 128 segments", t12 },
	{ "T13 cuts a segment at the boundary window", t13 },
	{ "T14 splits at four segments of a page each", t14 },
	{ "T15 joins pieces of one page in one bvec", t15 },
	{ "1.2 tries the last bvec before the table", full_table },
	{ "lays a payload out in runs", layout_of_runs },
	{ "2.6 cuts discards at the granularity", discard_cuts },
	{ "2.6 cuts discards at granules that start elsewhere",
	    discard_alignment },
	{ "2.6 cuts write zeroes at their own limit", write_zeroes_cuts },
	{ "T16 merges a write at the end of another", t16 },
	{ "T17 merges a write in front of another", t17 },
	{ "T18 merges in front of the newest of the plug", t18 },
	{ "T20 scans the whole plug up to 5.4, then its newest", t20 },
	{ "T21 merges nothing with FUA", t21_fua },
	{ "T21 flushes after FUA where the device has none", t21_post_flush },
	{ "T21 strips FUA where no cache is", t21_no_cache },
	{ "3.7 ends an empty flush at once where no cache is",
	    flush_without_cache },
	{ "6.2 sends and counts a flush where a cache is", flush_with_cache },
	{ "T22 refuses a merge for size, and for good", t22 },
	{ "T23 refuses a merge for segments, and for good", t23 },
	{ "T24 leaves discards of one range apart", t24_single },
	{ "T24 gathers discards in one request of many ranges", t24_multi },
	{ "3.4 merges adjacent discards of one range", discards_adjacent },
	{ "3.4 takes no more ranges than there may be", discard_ranges },
	{ "3.4 takes no more sectors than a discard may have", discard_total },
	{ "T25 never merges write zeroes", t25 },
	{ "T26 unplugs at 16 or at 32 requests", t26 },
	{ "T27 unplugs when a 128 KiB request stands first", t27 },
	{ "T28 unplugs when a 128 KiB request is the newest", t28 },
	{ "T29 merges with what a split left over", t29 },
	{ "T30 heeds nomerges", t30 },
	{ "T31 merges different priorities in 4.14 alone", t31 },
	{ "T32 refuses a merge across a chunk's end", t32_refused },
	{ "T32 merges up to a chunk's end", t32_merges },
	{ "T33 does not see the tenth newest of a software queue",
	    t33_out_of_sight },
	{ "T33 merges with the seventh newest of a software queue",
	    t33_in_sight },
	{ "T33 looks at eight requests of a software queue", t33_border },
	{ "3.6 heeds nomerges in the software queue", software_queue_nomerges },
	{ "T34 opens no plug for two I/Os from 5.0 on", t34_two },
	{ "T34 merges three I/Os of one io_submit", t34_three },
	{ "T35 merges report A's job as its kernel did", t35 },
	{ "4.1 hands a plug on in the order of its age", plug_order },
	{ "3.6 keeps large requests plugged with nomerges=2",
	    nomerges_and_size },
	{ "4.1 holds one request of a multi-queue disk up to 5.4",
	    limited_plug },
	{ "4.1 counts the requests of two disks", plug_two_queues },
	{ "3.6 finds a request of the same disk behind another's",
	    plug_merge_two_queues },
	{ "3.6 goes on after a refusal when it scans the whole plug",
	    plug_goes_on },
	{ "3.4 refuses a gap at the seam, but not for good", gap_at_the_seam },
	{ "3.4 sees no gap where memory touches", no_gap_in_a_page },
	{ "3.4 appends nothing to a request that starts in mid-page",
	    misaligned_first },
	{ "2.3 takes any offset for a gap in 4.14 alone", any_offset },
	{ "3.6 ends the search of a software queue at a refusal",
	    software_queue_refusal },
	{ "4.1 hands on the requests of two disks", plug_order_two_queues },
	{ "4.1 empties the plug when no tag is free", waits_for_a_tag },
	{ "6.2 counts what is plugged as in flight", counts_in_flight },
	{ "6.2 times a request from its first bio on", times_a_request },
	{ "6.2 times what the driver has as its age did", times_the_driver },
	{ "6.1 shows as many fields as its age has", shows_its_fields },
	{ "2.5 ends a bio with the first error of its pieces",
	    error_of_a_piece },
	{ "frees a disk that a cpu means to look at again", queue_goes },
	{ "3.2 merges neither reads with writes nor overlaps", never_merged },
	{}
};

int
main(void)
{
	return run_examples("worked examples", examples);
}
