/* SPDX-License-Identifier: MIT */
#include "pipe/harness.h"

static char memory[16 * PAGE_SIZE];

static void
joins_adjacent_pages_in_multipage_mode_only(void **state)
{
	struct bio bio;

	(void)state; /* 1.1, 1.2 */
	bio_init(&bio, REQ_OP_WRITE, 0, NULL, 0);
	assert_true(bio_add(&bio, true, 0x10000, memory, 4096));
	assert_true(bio_add(&bio, true, 0x11000, memory + 4096, 4096));
	assert_int_equal(bio.nr_bv, 1);
	assert_int_equal(bio.bv[0].len, 8192);
	assert_true(bio_add(&bio, true, 0x20000, memory + 8192, 512));
	assert_int_equal(bio.nr_bv, 2);
	assert_int_equal(bio.bytes, 8704);

	bio_init(&bio, REQ_OP_WRITE, 0, NULL, 0);
	assert_true(bio_add(&bio, false, 0x10000, memory, 4096));
	assert_true(bio_add(&bio, false, 0x11000, memory + 4096, 4096));
	assert_int_equal(bio.nr_bv, 2);
}

static void
joins_pieces_of_one_page_in_both_modes(void **state)
{
	struct bio bio;
	unsigned i;

	(void)state; /* T15 */
	for (i = 0; i < 2; i++) {
		bool multipage = i == 1;
		uint32_t off;

		bio_init(&bio, REQ_OP_WRITE, 0, NULL, 0);
		for (off = 0; off < 4096; off += 512)
			assert_true(bio_add(
			    &bio, multipage, 0x10000 + off, memory + off, 512));
		assert_int_equal(bio.nr_bv, 1);
		assert_int_equal(bio.bv[0].len, 4096);
	}
}

static void
keeps_apart_what_lies_apart_in_real_memory(void **state)
{
	struct bio bio;

	(void)state;
	bio_init(&bio, REQ_OP_WRITE, 0, NULL, 0);
	assert_true(bio_add(&bio, true, 0x10000, memory, 4096));
	assert_true(bio_add(&bio, true, 0x11000, memory + 8192, 4096));
	assert_int_equal(bio.nr_bv, 2);
}

static void
refuses_what_the_table_or_a_size_has_no_room_for(void **state)
{
	struct bio bio;
	unsigned i;

	(void)state;
	bio_init(&bio, REQ_OP_WRITE, 0, NULL, 0);
	for (i = 0; i < BIO_INLINE_VECS; i++)
		assert_true(bio_add(&bio, true, 0x100000 * (i + 1), memory, 1));
	assert_false(bio_add(&bio, true, 0x9900000, memory, 1));
	assert_int_equal(bio.bytes, BIO_INLINE_VECS);

	bio_init(&bio, REQ_OP_READ, 0, NULL, 0); /* 1.2 rule 4: UINT_MAX */
	assert_true(bio_add(&bio, true, 0x1000, NULL, UINT32_MAX));
	assert_false(bio_add(&bio, true, 0x1000 + (1ull << 32) - 1, NULL, 1));
}

static void
lays_pages_out_in_runs_that_do_not_touch(void **state)
{
	unsigned order;
	uint64_t i;

	(void)state;
	for (order = 0; order <= 9; order++) {
		uint64_t run = 1u << order;

		for (i = 1; i < 4 * run; i++) {
			uint64_t a = pages_phys(0, order, i - 1);
			uint64_t b = pages_phys(0, order, i);

			if (i % run != 0)
				assert_int_equal(b, a + PAGE_SIZE);
			else
				assert_true(b > a + PAGE_SIZE);
			if (i % run == 0) /* naturally aligned */
				assert_int_equal(b % (run * PAGE_SIZE), 0);
		}
		assert_true(pages_span(order, 4 * run) >
			    pages_phys(0, order, 4 * run - 1));
	}
}

static void
adds_a_payload_run_by_run_or_page_by_page(void **state)
{
	struct bvec bv[BIO_MAX_VECS];
	struct bio bio;

	(void)state;
	bio_init(&bio, REQ_OP_READ, 0, bv, BIO_MAX_VECS);
	assert_int_equal(
	    bio_add_payload(&bio, true, 0, 2, 0, NULL, 10 * PAGE_SIZE + 100),
	    10 * PAGE_SIZE + 100);
	assert_int_equal(bio.nr_bv, 3); /* 4 + 4 + 3 pages */
	assert_int_equal(bio.bv[2].len, 2 * PAGE_SIZE + 100);

	bio_init(&bio, REQ_OP_READ, 0, bv, BIO_MAX_VECS);
	assert_int_equal(
	    bio_add_payload(&bio, false, 0, 2, 0, NULL, 10 * PAGE_SIZE + 100),
	    10 * PAGE_SIZE + 100);
	assert_int_equal(bio.nr_bv, 11);

	/* T11: 2 MiB of single pages: 256 bvecs, and the rest is left over */
	bio_init(&bio, REQ_OP_READ, 0, bv, BIO_MAX_VECS);
	assert_int_equal(
	    bio_add_payload(&bio, false, 0, 9, 0, NULL, 512 * PAGE_SIZE),
	    256 * PAGE_SIZE);
}

static unsigned nr_ended;
static int ended_with;

static void
on_end(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	(void)cpu;
	(void)now;
	nr_ended++;
	ended_with = bio->error;
}

static void
ends_once_after_its_last_piece_with_the_first_error(void **state)
{
	struct machine *m = machine_new(1, NULL, NULL);
	struct bvec_iter it = { 0 };
	struct bio bio, *a, *b;
	struct bvec bv;

	(void)state;
	nr_ended = 0;
	bio_init(&bio, REQ_OP_WRITE, 1000 * 512, NULL, 0);
	bio.end_io = on_end;
	bio_add(&bio, true, 0x10000, memory, 3 * PAGE_SIZE);
	a = bio_split(&bio, 512, &m->cpu[0]);
	b = bio_split(&bio, PAGE_SIZE, &m->cpu[0]);
	assert_int_equal(a->pos, 1000 * 512);
	assert_int_equal(a->bytes, 512);
	assert_true(a->flags & REQ_NOMERGE); /* 2.5 */
	assert_int_equal(b->pos, 1001 * 512);
	assert_int_equal(bio.pos, 1009 * 512);
	assert_int_equal(bio.bytes, 3 * PAGE_SIZE - 512 - PAGE_SIZE);
	assert_false(bio.flags & REQ_NOMERGE);
	assert_true(bio_next_bvec(b, &it, &bv)); /* they share the table */
	assert_ptr_equal(bv.base, memory + 512);
	assert_int_equal(bv.len, PAGE_SIZE);
	assert_false(bio_next_bvec(b, &it, &bv));
	it = (struct bvec_iter){ 0 };
	assert_true(bio_next_bvec(&bio, &it, &bv));
	assert_ptr_equal(bv.base, memory + 512 + PAGE_SIZE);

	assert_false(bio_moved(&bio));
	atomic_store(&bio.moved, true);
	atomic_store(&a->moved, true);
	assert_false(bio_moved(&bio));
	atomic_store(&b->moved, true);
	assert_true(bio_moved(&bio));

	bio_endio(&bio, 0, &m->cpu[0], 0);
	bio_endio(b, -ENOSPC, &m->cpu[0], 0);
	assert_int_equal(nr_ended, 0);
	bio_endio(a, -EIO, &m->cpu[0], 0);
	assert_int_equal(nr_ended, 1);
	assert_int_equal(ended_with, -ENOSPC);
	bio_release(&bio, &m->cpu[0]);
	assert_true(STAILQ_EMPTY(&bio.pieces));
	machine_free(m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joins_adjacent_pages_in_multipage_mode_only),
		cmocka_unit_test(joins_pieces_of_one_page_in_both_modes),
		cmocka_unit_test(keeps_apart_what_lies_apart_in_real_memory),
		cmocka_unit_test(
		    refuses_what_the_table_or_a_size_has_no_room_for),
		cmocka_unit_test(lays_pages_out_in_runs_that_do_not_touch),
		cmocka_unit_test(adds_a_payload_run_by_run_or_page_by_page),
		cmocka_unit_test(
		    ends_once_after_its_last_piece_with_the_first_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
