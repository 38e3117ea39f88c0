/* SPDX-License-Identifier: MIT */
/* The order of effects: who waits for whom. */
#include "client.h"

#define NR 600u

static struct part parts[NR];

static struct part *
part_at(unsigned i, enum req_op op, uint64_t pos, uint64_t bytes)
{
	struct part *p = &parts[i];

	memset(p, 0, sizeof(*p));
	bio_init(&p->bio, op, pos, NULL, 0);
	p->bio.bytes = bytes;
	p->pos = pos;
	p->end = pos + bytes;
	return p;
}

static void
move(struct part *p)
{
	atomic_store(&p->bio.moved, true);
}

static void
test_overlap_waits(void **state)
{
	struct order o;

	(void)state;
	order_init(&o);
	order_add(&o, part_at(0, REQ_OP_WRITE, 1000, 100));
	assert_false(order_allows(&o, part_at(1, REQ_OP_READ, 1099, 1)));
	assert_false(order_allows(&o, part_at(1, REQ_OP_WRITE, 0, 1001)));
	assert_false(order_allows(&o, part_at(1, REQ_OP_DISCARD, 0, 1 << 30)));
	assert_true(order_allows(&o, part_at(1, REQ_OP_WRITE, 0, 1000)));
	assert_true(order_allows(&o, part_at(1, REQ_OP_WRITE, 1100, 100)));
	assert_true(order_allows(&o, part_at(1, REQ_OP_FLUSH, 0, 0)));
	move(&parts[0]);
	assert_true(order_allows(&o, part_at(1, REQ_OP_READ, 1099, 1)));
	assert_false(parts[0].tracked);
	order_remove(&o, &parts[0]); /* no harm */
}

static void
test_reads_pass(void **state)
{
	struct order o;

	(void)state;
	order_init(&o);
	order_add(&o, part_at(0, REQ_OP_READ, 4096, 4096));
	assert_true(order_allows(&o, part_at(1, REQ_OP_READ, 4096, 4096)));
	assert_false(order_allows(&o, part_at(1, REQ_OP_WRITE, 8191, 1)));
	order_add(&o, part_at(2, REQ_OP_WRITE, 1 << 20, 4096));
	assert_true(order_allows(&o, part_at(1, REQ_OP_READ, 4096, 4096)));
	order_remove(&o, &parts[0]);
	assert_true(order_allows(&o, part_at(1, REQ_OP_WRITE, 8191, 1)));
}

/* Changes of one zone have an order, whatever part of it they are about. */
static void
test_zones(void **state)
{
	uint64_t zone = 1 << 20;
	struct order o;

	(void)state;
	order_init(&o);
	o.zone_bytes = zone;
	order_add(&o, part_at(0, REQ_OP_WRITE, 5 * zone + 4096, 4096));
	assert_false(
	    order_allows(&o, part_at(1, REQ_OP_WRITE, 5 * zone + 8192, 4096)));
	assert_false(order_allows(
	    &o, part_at(1, REQ_OP_DISCARD, 6 * zone - 4096, zone)));
	assert_true(order_allows(&o, part_at(1, REQ_OP_WRITE, 6 * zone, 512)));
	assert_true(
	    order_allows(&o, part_at(1, REQ_OP_WRITE, 5 * zone - 512, 512)));
	/* a read is where it is */
	assert_true(order_allows(&o, part_at(1, REQ_OP_READ, 5 * zone, 4096)));
	assert_false(order_allows(&o, part_at(1, REQ_OP_READ, 5 * zone, 4097)));
	order_add(&o, part_at(2, REQ_OP_READ, 7 * zone, 512));
	assert_true(
	    order_allows(&o, part_at(1, REQ_OP_WRITE, 7 * zone + 512, 512)));
	assert_false(
	    order_allows(&o, part_at(1, REQ_OP_WRITE, 7 * zone + 511, 512)));
	assert_true(order_allows(&o, part_at(1, REQ_OP_FLUSH, 0, 0)));
	move(&parts[0]);
	assert_true(
	    order_allows(&o, part_at(1, REQ_OP_WRITE, 5 * zone + 8192, 4096)));
}

/* Pages that share a bit are told apart; a long range has them all. */
static void
test_exact(void **state)
{
	uint64_t alias = (uint64_t)ORDER_BITS << PAGE_SHIFT;
	struct order o;

	(void)state;
	order_init(&o);
	order_add(&o, part_at(0, REQ_OP_WRITE, 0, 4096));
	assert_true(order_allows(&o, part_at(1, REQ_OP_WRITE, alias, 4096)));
	assert_true(
	    order_allows(&o, part_at(1, REQ_OP_WRITE, 4096, 4 * alias)));
	order_add(&o, part_at(2, REQ_OP_DISCARD, 10 * alias, 4 * alias));
	assert_true(order_allows(&o, part_at(1, REQ_OP_WRITE, 8192, 4096)));
	assert_false(
	    order_allows(&o, part_at(1, REQ_OP_WRITE, 14 * alias - 1, 4096)));
	/* the end of the largest device */
	order_add(
	    &o, part_at(3, REQ_OP_WRITE, (UINT64_C(1) << 63) - 1024, 512));
	assert_false(order_allows(
	    &o, part_at(1, REQ_OP_WRITE, (UINT64_C(1) << 63) - 513, 1)));
}

/* Against the definition, with parts that come, move and end at random. */
static void
test_random(void **state)
{
	static bool there[NR], moved[NR];
	uint32_t seed = 42, i, j, n;
	struct order o;
	bool allowed;

	(void)state;
	order_init(&o);
	for (n = 0; n < 200000; n++) {
		seed = seed * 1664525 + 1013904223;
		i = (seed >> 8) % (NR - 1);
		if (there[i] && !moved[i] && seed >> 31) {
			move(&parts[i]);
			moved[i] = true;
			continue;
		}
		if (there[i]) {
			order_remove(&o, &parts[i]);
			there[i] = false;
			continue;
		}
		seed = seed * 1664525 + 1013904223;
		part_at(i, seed >> 30 == 0 ? REQ_OP_READ : REQ_OP_WRITE,
		    (uint64_t)(seed >> 8) % 50000 * 512,
		    1 + (seed >> 4) % 9000);
		allowed = true;
		for (j = 0; j < NR - 1; j++)
			if (there[j] && !moved[j] &&
			    (parts[i].bio.op != REQ_OP_READ ||
				parts[j].bio.op != REQ_OP_READ) &&
			    parts[i].pos < parts[j].end &&
			    parts[j].pos < parts[i].end)
				allowed = false;
		assert_int_equal(order_allows(&o, &parts[i]), allowed);
		if (!allowed)
			continue;
		order_add(&o, &parts[i]);
		there[i] = true;
		moved[i] = false;
	}
}

/* Bits that are stale don't pile up while something is always in flight. */
static void
test_bits_are_renewed(void **state)
{
	struct order o;
	unsigned i;

	(void)state;
	order_init(&o);
	order_add(&o, part_at(NR - 1, REQ_OP_WRITE, 1 << 30, 512));
	for (i = 0; i < 100000; i++) {
		struct part *p =
		    part_at(i % 100, REQ_OP_WRITE, (uint64_t)i << 13, 4096);

		if (i == 1 << 17)
			continue;
		order_add(&o, p);
		move(p);
		order_remove(&o, p);
		assert_true(o.nr_marks <= 512);
	}
}

#define CASE(sentence, function)                     \
	{                                            \
		sentence, function, NULL, NULL, NULL \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE("lets what overlaps wait until the data has moved",
		    test_overlap_waits),
		CASE("lets reads pass reads", test_reads_pass),
		CASE("keeps the order of changes of a zone", test_zones),
		CASE("is exact, however long or far", test_exact),
		CASE("agrees with the definition", test_random),
		CASE("renews its bits", test_bits_are_renewed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
