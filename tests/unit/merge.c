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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
