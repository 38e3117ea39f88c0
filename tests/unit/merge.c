/* SPDX-License-Identifier: MIT */
/* Directions and limits are in tests/pipe's worked examples; here: who may. */
#include "pipe/harness.h"

static struct harness h;

/* Two adjacent bios in one plug: did they become one request? */
static bool
merges(const char *kernel, enum req_op op, void (*change)(struct bio *),
    unsigned nomerges)
{
	struct queue_conf conf = h_conf(profile_find(kernel));
	struct bio *bio;
	bool merged;

	conf.nomerges = nomerges;
	conf.limits.max_discard_sectors = 1 << 20;
	conf.limits.max_write_zeroes_sectors = 1 << 20;
	conf.limits.write_cache = true;
	conf.limits.fua = true;
	h_open(&h, &conf);
	h_plug(&h);
	if (op == REQ_OP_READ || op == REQ_OP_WRITE) {
		rw(&h, op, 0, 8);
		bio = h_bio(&h, op, 8);
		add_contig(&h, bio, 8);
	} else {
		range(&h, op, 0, 8);
		bio = h_bio(&h, op, 8);
		bio->bytes = 8 * 512;
	}
	if (change != NULL)
		change(bio);
	h_submit(&h, bio);
	h_finish(&h);
	merged = h.nr_seen == 1;
	h_close(&h);
	return merged;
}

/* expect_refused() while something is in flight */
static void
expect_refused_now(enum refusal cause, uint64_t nr)
{
	struct queue_stat st;

	stat_read(h.queue, &st, h.now);
	assert_int_equal(st.refused[cause], nr);
}

static void
set_fua(struct bio *bio)
{
	bio->flags |= REQ_FUA;
}

static void
set_nomerge(struct bio *bio)
{
	bio->flags |= REQ_NOMERGE;
}

static void
set_rt(struct bio *bio)
{
	bio->prio = IOPRIO_RT;
}

static void
merges_what_3_2_allows(void **state)
{
	static const char *const kernel[] = { "4.14", "5.4", "6.1", "6.12" };
	unsigned i;

	(void)state; /* 3.2, 3.7 */
	for (i = 0; i < ARRAY_SIZE(kernel); i++) {
		const char *k = kernel[i];

		assert_true(merges(k, REQ_OP_READ, NULL, 0));
		assert_true(merges(k, REQ_OP_WRITE, NULL, 0));
		assert_true(merges(k, REQ_OP_DISCARD, NULL, 0));
		assert_false(merges(k, REQ_OP_WRITE_ZEROES, NULL, 0));
		assert_false(merges(k, REQ_OP_WRITE, set_fua, 0));
		assert_false(merges(k, REQ_OP_WRITE, set_nomerge, 0));
		assert_true(merges(k, REQ_OP_WRITE, NULL, 1)); /* 3.6 */
		assert_false(merges(k, REQ_OP_WRITE, NULL, 2));
		/* T31: since 5.0 priorities must match */
		assert_int_equal(merges(k, REQ_OP_WRITE, set_rt, 0), i == 0);
	}
}

static void
leaves_the_better_priority_after_a_merge_in_4_14(void **state)
{
	struct queue_conf conf = h_conf(profile_find("4.14"));
	struct bio *bio;

	(void)state; /* T31 */
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 8);
	bio = h_bio(&h, REQ_OP_WRITE, 8);
	add_contig(&h, bio, 8);
	bio->prio = IOPRIO_RT;
	h_submit(&h, bio);
	bio = h_bio(&h, REQ_OP_WRITE, 16);
	add_contig(&h, bio, 8);
	bio->prio = IOPRIO_IDLE;
	h_submit(&h, bio);
	h_finish(&h);
	assert_int_equal(h.nr_seen, 1);
	assert_int_equal(h.seen[0].prio, IOPRIO_RT);
	h_close(&h);
}

static void
refuses_a_gap_at_the_seam_but_not_for_ever(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));
	struct bio *bio;

	(void)state; /* 3.4: the gap test is not sticky */
	conf.limits.virt_boundary_mask = 4095;
	h_open(&h, &conf);
	h_plug(&h);
	bio = h_bio(&h, REQ_OP_WRITE, 0);
	assert_true(bio_add(bio, true, 0x100000, h_memory, 4096));
	h_submit(&h, bio);
	bio = h_bio(&h, REQ_OP_WRITE, 16); /* elsewhere: its offset is a gap */
	assert_true(bio_add(bio, true, 0x300200, h_memory, 512));
	h_submit(&h, bio);
	h_flush(&h);
	assert_int_equal(h.nr_seen, 2);

	h_plug(&h);
	bio = h_bio(&h, REQ_OP_WRITE, 100);
	assert_true(bio_add(bio, true, 0x500000, h_memory, 4096));
	h_submit(&h, bio);
	bio = h_bio(&h, REQ_OP_WRITE, 108); /* adjacent, but begins mid-page */
	assert_true(bio_add(bio, true, 0x600200, h_memory, 512));
	h_submit(&h, bio);
	h_flush(&h);
	assert_int_equal(h.nr_seen, 4);
	assert_int_equal(h.seen[2].flags & REQ_NOMERGE, 0);
	h_drain(&h);
	expect_refused(&h, REFUSED_GAP, 1);
	h_close(&h);
}

/* What the second of two bios is refused for, `sector` being where it is. */
static void
assert_refused(const char *kernel, enum req_op op, sector_t sector,
    void (*change)(struct bio *), enum refusal cause, unsigned nr)
{
	struct queue_conf conf = h_conf(profile_find(kernel));
	struct bio *bio;

	conf.limits.write_cache = true;
	conf.limits.fua = true;
	conf.limits.max_write_zeroes_sectors = 1 << 20;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 100, 8);
	bio = h_bio(&h, op, sector);
	add_contig(&h, bio, 8);
	if (change != NULL)
		change(bio);
	h_submit(&h, bio);
	h_finish(&h);
	expect_refused(&h, cause, nr);
	h_close(&h);
}

static void
says_which_rule_refused_what_is_adjacent(void **state)
{
	(void)state; /* 3.2, 3.7 */
	for (unsigned i = 0; profiles[i].name != NULL; i++) {
		const char *k = profiles[i].name;
		bool prio = profiles[i].ioprio_must_match;

		/* what never merges is not tried, so not refused */
		assert_refused(
		    k, REQ_OP_WRITE, 108, set_fua, REFUSED_CLOSED, 0);
		assert_refused(
		    k, REQ_OP_WRITE, 92, set_nomerge, REFUSED_CLOSED, 0);
		assert_refused(
		    k, REQ_OP_WRITE, 108, set_rt, REFUSED_PRIORITY, prio);
		/* it merges; it is not adjacent; it is another operation */
		assert_refused(k, REQ_OP_WRITE, 108, NULL, REFUSED_CLOSED, 0);
		assert_refused(
		    k, REQ_OP_WRITE, 109, set_fua, REFUSED_CLOSED, 0);
		assert_refused(k, REQ_OP_READ, 108, NULL, REFUSED_CLOSED, 0);
		assert_refused(k, REQ_OP_READ, 108, set_rt, REFUSED_CLOSED, 0);
	}
}

static void
says_that_the_pieces_of_a_split_are_closed(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));

	(void)state; /* 2.5: but the rest is not */
	conf.limits.max_sectors = 16;
	h_open(&h, &conf);
	h_plug(&h);
	rw(&h, REQ_OP_WRITE, 0, 36); /* 16, 16, 4: only the last is tried */
	expect_refused_now(REFUSED_CLOSED, 1);
	rw(&h, REQ_OP_WRITE, 36, 8);
	expect_refused_now(REFUSED_CLOSED, 1);
	h_finish(&h);
	assert_int_equal(h.nr_seen, 3);
	h_close(&h);
}

static void
says_which_limit_refused_a_range_of_a_discard(void **state)
{
	struct queue_conf conf = h_conf(profile_find("6.12"));

	(void)state; /* 3.4: ranges need not be adjacent */
	conf.limits.max_discard_sectors = 24;
	conf.limits.max_discard_segments = 2;
	h_open(&h, &conf);
	h_plug(&h);
	range(&h, REQ_OP_DISCARD, 0, 8);
	range(&h, REQ_OP_DISCARD, 100, 8);
	range(&h, REQ_OP_DISCARD, 200, 8);
	expect_refused_now(REFUSED_SEGMENTS, 1);
	h_finish(&h);
	h_close(&h);

	h_open(&h, &conf);
	h_plug(&h);
	range(&h, REQ_OP_DISCARD, 0, 16);
	range(&h, REQ_OP_DISCARD, 100, 16);
	expect_refused_now(REFUSED_SIZE, 1);
	h_finish(&h);
	h_close(&h);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merges_what_3_2_allows),
		cmocka_unit_test(
		    leaves_the_better_priority_after_a_merge_in_4_14),
		cmocka_unit_test(refuses_a_gap_at_the_seam_but_not_for_ever),
		cmocka_unit_test(says_which_rule_refused_what_is_adjacent),
		cmocka_unit_test(says_that_the_pieces_of_a_split_are_closed),
		cmocka_unit_test(says_which_limit_refused_a_range_of_a_discard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
