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

#include "base/rng.h"
#include "dev/dev.h"
#include "host.h"

#define MIB (UINT64_C(1) << 20)

/* One cpu, inside; one store. */
struct bench {
	struct machine *m;
	struct cpu *cpu;
	struct page_pool *p;
	struct store *s;
};

static struct bench
bench_new(uint64_t size, uint32_t blocksize, uint64_t limit)
{
	struct bench b;

	b.m = host_new(1);
	b.cpu = b.m->cpu;
	b.p = page_pool_new(b.m, 0);
	assert_non_null(b.p);
	b.s = store_new(b.p, size, blocksize, limit);
	assert_non_null(b.s);
	turn(b.cpu);
	return b;
}

/* Everything must come home. */
static void
bench_free(struct bench *b)
{
	store_free(b->s, b->cpu);
	rest(b->p, b->cpu);
	assert_int_equal(page_pool_used(b->p), 0);
	page_pool_free(b->p);
	machine_free(b->m);
}

/* These pieces show these bytes. */
static void
assert_pieces(
    const struct iovec *iov, unsigned nr, const char *want, uint64_t len)
{
	unsigned i;

	for (i = 0; i < nr; i++) {
		assert_memory_equal(iov[i].iov_base, want, iov[i].iov_len);
		want += iov[i].iov_len;
		len -= iov[i].iov_len;
	}
	assert_int_equal(len, 0);
}

/* The store has these bytes at pos: by a copy, and pinned. */
static void
assert_bytes(struct bench *b, uint64_t pos, const char *want, uint64_t len)
{
	unsigned max = (unsigned)(len / PAGE_SIZE + 2), nr;
	struct iovec *iov = calloc(max, sizeof(*iov));
	char *got = malloc(len + 1);
	uint64_t done;

	assert_non_null(iov);
	assert_non_null(got);
	store_read(b->s, b->cpu, pos, got, len);
	assert_memory_equal(got, want, len);

	nr = store_pin(b->s, b->cpu, pos, len, iov, max, &done);
	assert_true(nr <= max);
	assert_int_equal(done, len);
	assert_pieces(iov, nr, want, len);
	store_unpin(b->p, b->cpu, iov, nr);
	free(got);
	free(iov);
}

/* store_extent() with no end of steps. */
static bool
extent(struct store *s, struct cpu *cpu, uint64_t pos, uint64_t *len)
{
	unsigned steps = UINT32_MAX;

	return store_extent(s, cpu, pos, len, &steps);
}

static void
assert_extent(
    struct bench *b, uint64_t pos, uint64_t max, bool data, uint64_t len)
{
	uint64_t got = max;

	assert_int_equal(extent(b->s, b->cpu, pos, &got), data);
	assert_int_equal(got, len);
}

static uint32_t
roll(uint64_t *rnd, uint32_t below)
{
	*rnd ^= *rnd << 13;
	*rnd ^= *rnd >> 7;
	*rnd ^= *rnd << 17;
	return (uint32_t)(*rnd >> 20) % below;
}

/* ------------------------------------------------------ lent pages */

#define MAX_LENT 32u

/* A write as it is received. */
struct lent {
	uint64_t pos, len;
	unsigned nr;
	void *page[MAX_LENT];
};

/* Returns false without memory. */
static bool
lent_new(struct lent *l, struct page_pool *p, struct cpu *cpu, uint64_t pos,
    const char *data, uint64_t len)
{
	uint64_t done, n;
	char **page = (char **)l->page;

	l->pos = pos;
	l->len = len;
	l->nr = (unsigned)((pos + len - 1) / PAGE_SIZE - pos / PAGE_SIZE + 1);
	if (l->nr > MAX_LENT || page_lend(p, cpu, l->page, l->nr) != l->nr)
		return false;
	for (done = 0; done < len; done += n, pos += n, page++) {
		n = PAGE_SIZE - pos % PAGE_SIZE;
		if (n > len - done)
			n = len - done;
		memset(*page, '?', PAGE_SIZE); /* what else is in there */
		memcpy(*page + pos % PAGE_SIZE, data + done, n);
	}
	return true;
}

/* Write the part from `from` to `to`, counted from its start. */
static int
lent_write(struct lent *l, struct store *s, struct cpu *cpu, uint64_t from,
    uint64_t to)
{
	uint64_t at = l->pos + from, skip = at / PAGE_SIZE - l->pos / PAGE_SIZE;

	return store_write_pages(s, cpu, at, l->page + skip, to - from);
}

/* In up to four parts, in any order, as a request that was split. */
static int
write_in_parts(struct store *s, struct page_pool *p, struct cpu *cpu,
    uint64_t pos, const char *data, uint64_t len, uint64_t *rnd)
{
	uint64_t cut[5] = { 0, 0, 0, 0, len };
	unsigned i, first, err = 0;
	struct lent l;

	if (!lent_new(&l, p, cpu, pos, data, len))
		return -ENOMEM;
	for (i = 1; i < 4; i++) {
		cut[i] =
		    cut[i - 1] + roll(rnd, (uint32_t)(len - cut[i - 1]) + 1);
		if (roll(rnd, 2) == 0 &&
		    (pos + cut[i]) % 512 <= cut[i] - cut[i - 1])
			cut[i] -= (pos + cut[i]) % 512;
	}
	first = roll(rnd, 4);
	for (i = first; i < first + 4; i++)
		if (cut[i % 4] < cut[i % 4 + 1])
			err |= (unsigned)lent_write(
			    &l, s, cpu, cut[i % 4], cut[i % 4 + 1]);
	page_return(p, cpu, l.page, l.nr);
	return (int)err;
}

/* ------------------------------------------- one cpu against an array */

#define NR_OPS       (THREADS_SANITIZED ? 500u : SANITIZED ? 10000u : 100000u)
#define MODEL_SIZE   (40 * PAGE_SIZE + 1536) /* ends in the midst of a page */
#define MODEL_MAX_IO (3 * PAGE_SIZE)
#define NR_HELD      16u

/* Pieces on their way to a client, and what they must show. */
struct held {
	unsigned nr;
	struct iovec iov[MODEL_MAX_IO / PAGE_SIZE + 2];
	uint64_t len;
	char want[MODEL_MAX_IO];
};

struct model {
	struct bench b;
	uint32_t blocksize;
	uint64_t rnd;
	char bytes[MODEL_SIZE];
	bool valid[MODEL_SIZE / 512]; /* by block */
	struct held held[NR_HELD];
};

static uint64_t
model_blocks(const struct model *m)
{
	return (MODEL_SIZE + m->blocksize - 1) / m->blocksize;
}

static void
model_set(struct model *m, uint64_t pos, const char *data, uint64_t len)
{
	uint64_t i;

	for (i = pos; i < pos + len; i++) {
		m->bytes[i] = data != NULL ? data[i - pos] : 0;
		m->valid[i / m->blocksize] = true;
	}
}

static void
model_discard(struct model *m, uint64_t pos, uint64_t len)
{
	uint64_t end = pos + len, i, from, to;

	memset(m->bytes + pos, 0, len);
	for (i = 0; i < model_blocks(m); i++) {
		from = i * m->blocksize;
		to = from + m->blocksize;
		if (to > MODEL_SIZE)
			to = MODEL_SIZE;
		if (from >= pos && to <= end)
			m->valid[i] = false;
	}
}

static void
model_release(struct model *m, struct held *h)
{
	assert_pieces(h->iov, h->nr, h->want, h->len);
	store_unpin(m->b.p, m->b.cpu, h->iov, h->nr);
	*h = (struct held){};
}

static void
model_hold(struct model *m, uint64_t pos, uint64_t len)
{
	struct held *h = &m->held[roll(&m->rnd, NR_HELD)];

	model_release(m, h);
	h->nr = store_pin(m->b.s, m->b.cpu, pos, len, h->iov,
	    MODEL_MAX_IO / PAGE_SIZE + 2, &h->len);
	assert_int_equal(h->len, len);
	memcpy(h->want, m->bytes + pos, len);
}

/* Every extent, and their sum, and the memory. */
static void
model_check_extents(struct model *m)
{
	uint64_t pos, end, len, nr_pages = 0, nr_valid = 0, i,
				last = UINT64_MAX;
	bool data;

	for (pos = 0; pos < MODEL_SIZE; pos = end) {
		data = m->valid[pos / m->blocksize];
		for (end = pos; end < MODEL_SIZE; end++) {
			if (m->valid[end / m->blocksize] != data)
				break;
		}
		len = MODEL_SIZE - pos;
		assert_int_equal(extent(m->b.s, m->b.cpu, pos, &len), data);
		assert_int_equal(len, end - pos);
	}
	for (i = 0; i < model_blocks(m); i++) {
		if (!m->valid[i])
			continue;
		nr_valid++;
		if (i * m->blocksize / PAGE_SIZE != last)
			nr_pages++;
		last = i * m->blocksize / PAGE_SIZE;
	}
	assert_int_equal(store_blocks(m->b.s), nr_valid);
	if (nr_pages > 0)
		nr_pages++; /* the node */
	assert_int_equal(store_memory(m->b.s), nr_pages * PAGE_SIZE);
}

static void
model_step(struct model *m)
{
	static char data[MODEL_MAX_IO];
	uint64_t len = 1 + roll(&m->rnd, MODEL_MAX_IO);
	uint64_t pos = roll(&m->rnd, MODEL_SIZE);
	struct store *s = m->b.s;
	struct cpu *cpu = m->b.cpu;
	unsigned seed, i;
	int err;

	if (roll(&m->rnd, 4) == 0) { /* whole blocks */
		len = (len + 4095) / 4096 * 4096;
		pos = pos / 512 * 512;
	}
	if (len > MODEL_SIZE - pos)
		len = MODEL_SIZE - pos;

	switch (roll(&m->rnd, 8)) {
	case 0:
	case 1:
		seed = roll(&m->rnd, 256);
		for (i = 0; i < len; i++)
			data[i] = (char)(seed + i * 31 + i / 256);
		if (seed % 2 == 0)
			err = store_write(s, cpu, pos, data, len);
		else
			err = write_in_parts(
			    s, m->b.p, cpu, pos, data, len, &m->rnd);
		assert_int_equal(err, 0);
		model_set(m, pos, data, len);
		break;
	case 2:
		assert_int_equal(store_zero(s, cpu, pos, len), 0);
		model_set(m, pos, NULL, len);
		break;
	case 3:
	case 4:
		assert_int_equal(store_discard(s, cpu, pos, len), 0);
		model_discard(m, pos, len);
		break;
	case 5:
	case 6: model_hold(m, pos, len); break;
	default: turn(cpu); break;
	}
	assert_bytes(&m->b, pos, m->bytes + pos, len);
}

static void
agrees_with_an_array(uint32_t blocksize)
{
	struct model *m = calloc(1, sizeof(*m));
	unsigned i;

	assert_non_null(m);
	m->b = bench_new(MODEL_SIZE, blocksize, 0);
	m->blocksize = blocksize;
	m->rnd = blocksize;
	for (i = 0; i < NR_OPS; i++) {
		model_step(m);
		if (i % 50 == 0)
			model_check_extents(m);
	}
	for (i = 0; i < NR_HELD; i++)
		model_release(m, &m->held[i]);
	assert_int_equal(store_discard(m->b.s, m->b.cpu, 0, MODEL_SIZE), 0);
	assert_int_equal(store_memory(m->b.s), 0);
	assert_int_equal(store_blocks(m->b.s), 0);
	bench_free(&m->b);
	free(m);
}

static void
agrees_with_an_array_in_blocks_of_512(void **state)
{
	(void)state;
	agrees_with_an_array(512);
}

static void
agrees_with_an_array_in_blocks_of_1024(void **state)
{
	(void)state;
	agrees_with_an_array(1024);
}

static void
agrees_with_an_array_in_blocks_of_4096(void **state)
{
	(void)state;
	agrees_with_an_array(4096);
}

/* ------------------------------------------------------------- sizes */

static void
a_device_of_the_largest_size_works_from_end_to_end(void **state)
{
	const uint64_t size = STORE_MAX_SIZE;
	const uint64_t at[] = { 0, UINT64_C(1) << 32, UINT64_C(1) << 41,
		size - 1 };
	struct bench b = bench_new(size, 512, 0);
	uint64_t before;
	unsigned i;

	(void)state;
	assert_int_equal(store_memory(b.s), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(store_write(b.s, b.cpu, at[i], "x", 1), 0);
	for (i = 0; i < 4; i++)
		assert_bytes(&b, at[i], "x", 1);
	assert_bytes(&b, at[1] - 2, "\0\0x\0", 4);
	assert_int_equal(store_blocks(b.s), 4);

	assert_extent(&b, 0, size, true, 512);
	assert_extent(&b, 512, size - 512, false, at[1] - 512);
	assert_extent(&b, at[2] + 512, size - at[2] - 512, false,
	    size - 512 - at[2] - 512);
	assert_extent(&b, size - 512, 512, true, 512);
	assert_extent(&b, size - 1, 1, true, 1);

	before = store_memory(b.s);
	assert_true(before <= 4 * 7 * PAGE_SIZE);
	assert_int_equal(store_discard(b.s, b.cpu, at[2], 512), 0);
	assert_true(store_memory(b.s) < before);
	assert_int_equal(store_discard(b.s, b.cpu, 1, size - 1), 0);
	assert_int_equal(store_blocks(b.s), 1);
	assert_int_equal(store_discard(b.s, b.cpu, 0, size), 0);
	assert_int_equal(store_memory(b.s), 0);
	assert_extent(&b, 0, size, false, size);
	bench_free(&b);
}

static void
a_device_of_any_small_size_works_up_to_its_end(void **state)
{
	const uint64_t sizes[] = { 512, 4096, 4608, 512 * 4096,
		512 * 4096 + 512 };
	struct bench b;
	unsigned i;

	(void)state;
	for (i = 0; i < 5; i++) {
		b = bench_new(sizes[i], 4096, 0);
		assert_int_equal(
		    store_write(b.s, b.cpu, sizes[i] - 4, "last", 4), 0);
		assert_bytes(&b, sizes[i] - 4, "last", 4);
		assert_int_equal(store_blocks(b.s), 1);
		assert_int_equal(
		    store_discard(b.s, b.cpu, sizes[i] - 512, 512), 0);
		assert_bytes(&b, sizes[i] - 4, "\0\0\0", 4);
		assert_int_equal(store_discard(b.s, b.cpu, 0, sizes[i]), 0);
		assert_int_equal(store_memory(b.s), 0);
		bench_free(&b);
	}
}

static void
nothing_costs_nothing(void **state)
{
	struct bench b = bench_new(1 << 30, 512, 0);
	uint64_t done = 1;

	(void)state;
	assert_int_equal(store_write(b.s, b.cpu, 1 << 30, NULL, 0), 0);
	assert_int_equal(store_zero(b.s, b.cpu, 1 << 30, 0), 0);
	assert_int_equal(store_discard(b.s, b.cpu, 1 << 30, 0), 0);
	assert_int_equal(store_discard(b.s, b.cpu, 0, 1 << 30), 0);
	assert_int_equal(store_pin(b.s, b.cpu, 1 << 30, 0, NULL, 0, &done), 0);
	assert_int_equal(done, 0);
	assert_int_equal(store_memory(b.s), 0);
	bench_free(&b);
}

/* -------------------------------------------------------------- pins */

static void
what_is_pinned_stays_as_it_was(void **state)
{
	struct bench b = bench_new(1 << 20, 512, 0);
	struct iovec first[3], second[3];
	static char a[8192], z[8192], half[8192];
	unsigned nr_first, nr_second;
	uint64_t done;

	(void)state;
	memset(a, 'a', sizeof(a));
	memset(z, 'z', sizeof(z));
	memcpy(half, z, sizeof(half));
	memset(half + 100, 0, 8000);
	assert_int_equal(store_write(b.s, b.cpu, 4096, a, 8192), 0);
	nr_first = store_pin(b.s, b.cpu, 4096, 8192, first, 3, &done);

	assert_int_equal(store_write(b.s, b.cpu, 4096, z, 8192), 0);
	assert_pieces(first, nr_first, a, 8192);
	assert_bytes(&b, 4096, z, 8192);
	assert_int_equal(store_memory(b.s), 3 * PAGE_SIZE);

	nr_second = store_pin(b.s, b.cpu, 4096, 8192, second, 3, &done);
	assert_int_equal(done, 8192);
	assert_int_equal(store_discard(b.s, b.cpu, 4096 + 100, 8000), 0);
	assert_bytes(&b, 4096, half, 8192);
	assert_int_equal(store_discard(b.s, b.cpu, 4096, 8192), 0);
	assert_int_equal(store_memory(b.s), 0);
	assert_pieces(first, nr_first, a, 8192);
	assert_pieces(second, nr_second, z, 8192);

	store_unpin(b.p, b.cpu, second, nr_second);
	store_unpin(b.p, b.cpu, first, nr_first);
	bench_free(&b);
}

static void
what_is_pinned_outlives_the_store(void **state)
{
	struct bench b = bench_new(1 << 20, 512, 0);
	struct iovec iov[4];
	static char a[8192];
	uint64_t done;
	unsigned nr;

	(void)state;
	memset(a, 'a', sizeof(a));
	assert_int_equal(store_write(b.s, b.cpu, 0, a, 8192), 0);
	nr = store_pin(b.s, b.cpu, 0, 8192, iov, 4, &done);
	store_free(b.s, b.cpu);
	b.s = NULL;
	assert_int_equal(page_pool_used(b.p), 2 * PAGE_SIZE);
	assert_pieces(iov, nr, a, 8192);
	store_unpin(b.p, b.cpu, iov, nr);
	bench_free(&b);
}

static void
what_lies_together_is_shown_in_few_pieces(void **state)
{
	struct bench b = bench_new(64 * MIB, 4096, 0);
	char *data = malloc(MIB);
	struct iovec iov[MIB / PAGE_SIZE + 2];
	uint64_t done;
	unsigned nr;

	(void)state;
	assert_non_null(data);
	memset(data, 1, MIB);
	assert_int_equal(store_write(b.s, b.cpu, 0, data, MIB), 0);
	nr = store_pin(b.s, b.cpu, 0, MIB, iov, MIB / PAGE_SIZE + 2, &done);
	assert_int_equal(done, MIB);
	assert_true(nr <= 4);
	store_unpin(b.p, b.cpu, iov, nr);
	free(data);
	bench_free(&b);
}

static void
holes_are_shown_as_the_zeros(void **state)
{
	const char *zeros = store_zeros();
	struct bench b = bench_new(UINT64_C(1) << 40, 4096, 0);
	struct iovec iov[8];
	uint64_t done;
	unsigned nr, i;

	(void)state;
	assert_int_equal(store_write(b.s, b.cpu, 3 * MIB, "x", 1), 0);

	/* 2.5 MiB from the midst of a page on, cut by nothing but the 1 MiB */
	nr = store_pin(b.s, b.cpu, MIB / 2 + 7, 5 * MIB / 2 - 7, iov, 8, &done);
	assert_int_equal(nr, 3);
	assert_int_equal(done, 5 * MIB / 2 - 7);
	for (i = 0; i < nr; i++) {
		assert_ptr_equal(iov[i].iov_base, zeros);
		assert_true(iov[i].iov_len <= STORE_ZEROS_SIZE);
	}
	store_unpin(b.p, b.cpu, iov, nr);

	/* a page between two holes */
	nr = store_pin(b.s, b.cpu, 3 * MIB - 5, 4106, iov, 8, &done);
	assert_int_equal(nr, 3);
	assert_int_equal(iov[0].iov_len, 5);
	assert_int_equal(iov[1].iov_len, 4096);
	assert_int_equal(iov[2].iov_len, 5);
	assert_ptr_equal(iov[2].iov_base, zeros);
	store_unpin(b.p, b.cpu, iov, nr);

	for (i = 0; i < STORE_ZEROS_SIZE; i++)
		assert_int_equal(zeros[i], 0);
	bench_free(&b);
}

static void
pins_as_much_as_there_are_pieces_for(void **state)
{
	struct bench b = bench_new(MIB, 512, 0);
	struct iovec iov[2];
	uint64_t done;
	unsigned nr, i;

	(void)state;
	for (i = 0; i < 16; i += 2) /* page, hole, page, hole, ... */
		store_write(b.s, b.cpu, i * PAGE_SIZE, "x", 1);
	nr = store_pin(b.s, b.cpu, 1, 60000, iov, 2, &done);
	assert_int_equal(nr, 2);
	assert_int_equal(done, 8191);
	store_unpin(b.p, b.cpu, iov, nr);
	nr = store_pin(b.s, b.cpu, 0, 60000, iov, 0, &done);
	assert_int_equal(nr, 0);
	assert_int_equal(done, 0);
	bench_free(&b);
}

static void
a_page_that_too_many_have_pinned_is_left_to_copies(void **state)
{
	struct bench b = bench_new(MIB, 512, 0);
	static struct iovec iov[20000];
	uint64_t done = 1;
	unsigned nr = 0;
	struct iovec one;

	(void)state;
	store_write(b.s, b.cpu, 0, "old", 3);
	while (
	    nr < 20000 && store_pin(b.s, b.cpu, 0, 3, &iov[nr], 1, &done) == 1)
		nr++;
	assert_true(nr > 4000);
	assert_true(nr < 20000);
	assert_int_equal(done, 0);

	/* still it can be written, and its successor pinned */
	assert_int_equal(store_write(b.s, b.cpu, 0, "new", 3), 0);
	assert_int_equal(store_pin(b.s, b.cpu, 0, 3, &one, 1, &done), 1);
	assert_memory_equal(one.iov_base, "new", 3);
	assert_memory_equal(iov[0].iov_base, "old", 3);
	store_unpin(b.p, b.cpu, &one, 1);
	store_unpin(b.p, b.cpu, iov, nr);
	bench_free(&b);
}

/* ------------------------------------------------------------ memory */

static void
the_tree_goes_with_the_data(void **state)
{
	struct bench b = bench_new(UINT64_C(1) << 50, 4096, 0);
	uint64_t pos, round;

	(void)state;
	for (round = 0; round < 50; round++) {
		for (pos = 0; pos < UINT64_C(1) << 49; pos = pos * 5 + 9999)
			assert_int_equal(
			    store_write(b.s, b.cpu, pos, "x", 1), 0);
		assert_true(store_memory(b.s) > 10 * PAGE_SIZE);
		for (pos = 0; pos < UINT64_C(1) << 49; pos = pos * 5 + 9999)
			assert_int_equal(store_discard(b.s, b.cpu,
					     pos & ~UINT64_C(4095), 4096),
			    0);
		assert_int_equal(store_memory(b.s), 0);
		assert_int_equal(store_blocks(b.s), 0);
		turn(b.cpu);
	}
	rest(b.p, b.cpu);
	assert_int_equal(page_pool_used(b.p), 0);
	bench_free(&b);
}

static void
parts_that_are_discarded_add_up_to_a_page(void **state)
{
	struct bench b = bench_new(MIB, 512, 0);
	static char a[4096];
	unsigned i;

	(void)state;
	memset(a, 'a', sizeof(a));
	assert_int_equal(store_write(b.s, b.cpu, 8192, a, 4096), 0);
	for (i = 0; i < 8; i++) {
		assert_int_equal(store_blocks(b.s), 8 - i);
		assert_int_equal(store_memory(b.s), 2 * PAGE_SIZE);
		assert_int_equal(
		    store_discard(b.s, b.cpu, 8192 + i * 5 % 8 * 512, 512), 0);
	}
	assert_int_equal(store_memory(b.s), 0);

	/* halves of blocks are zeroed, but stay */
	assert_int_equal(store_write(b.s, b.cpu, 8192, a, 1024), 0);
	assert_int_equal(store_discard(b.s, b.cpu, 8192 + 256, 512), 0);
	assert_int_equal(store_blocks(b.s), 2);
	memset(a + 256, 0, 512);
	assert_bytes(&b, 8192, a, 1024);
	bench_free(&b);
}

static void
zeroing_takes_blocks_and_discarding_gives_them_back(void **state)
{
	struct bench b = bench_new(MIB, 512, 0);

	(void)state;
	assert_int_equal(store_zero(b.s, b.cpu, 1000, 10000), 0);
	assert_extent(&b, 512, MIB - 512, true, 10752);
	assert_int_equal(store_blocks(b.s), 21);
	assert_int_equal(store_discard(b.s, b.cpu, 0, MIB), 0);
	assert_extent(&b, 0, MIB, false, MIB);
	bench_free(&b);
}

static void
a_full_store_refuses_new_blocks_and_nothing_else(void **state)
{
	/* a node and 8 pages */
	struct bench b = bench_new(MIB, 4096, 9 * PAGE_SIZE);
	static char a[65536], z[65536];
	struct iovec iov[20];
	uint64_t done;
	unsigned nr;

	(void)state;
	memset(a, 'a', sizeof(a));
	assert_int_equal(store_write(b.s, b.cpu, 100, a, sizeof(a)), -ENOSPC);
	memset(z, 0, 100);
	memset(z + 100, 'a', 8 * 4096 - 100);
	assert_bytes(&b, 0, z, sizeof(z)); /* block 8 has not half of it */
	assert_int_equal(store_blocks(b.s), 8);
	assert_int_equal(store_memory(b.s), 9 * PAGE_SIZE);
	assert_int_equal(store_zero(b.s, b.cpu, 65536, 1), -ENOSPC);

	/* what is there may change, pinned or not */
	assert_int_equal(store_write(b.s, b.cpu, 0, a, 8 * 4096), 0);
	nr = store_pin(b.s, b.cpu, 0, 8 * 4096, iov, 20, &done);
	assert_int_equal(store_zero(b.s, b.cpu, 50, 8 * 4096 - 50), 0);
	assert_pieces(iov, nr, a, 8 * 4096);
	assert_int_equal(store_memory(b.s), 9 * PAGE_SIZE);
	store_unpin(b.p, b.cpu, iov, nr);

	/* what is given back may be used elsewhere, at once */
	assert_int_equal(store_discard(b.s, b.cpu, 4096, 8192), 0);
	assert_int_equal(store_write(b.s, b.cpu, 500000, "x", 1), 0);
	assert_int_equal(store_write(b.s, b.cpu, 600000, "x", 1), 0);
	assert_int_equal(store_write(b.s, b.cpu, 700000, "x", 1), -ENOSPC);
	bench_free(&b);
}

static void
a_refused_write_leaves_no_part_of_a_tree(void **state)
{
	/* needs six nodes and a page */
	struct bench b = bench_new(STORE_MAX_SIZE, 512, 6 * PAGE_SIZE);

	(void)state;
	assert_int_equal(store_write(b.s, b.cpu, 1, "x", 1), -ENOSPC);
	assert_int_equal(store_memory(b.s), 0);
	assert_int_equal(store_blocks(b.s), 0);
	assert_int_equal(page_pool_used(b.p), 0);
	bench_free(&b);
}

static void
stores_share_what_the_pool_may_have(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 8 * PAGE_SIZE);
	struct store *a = store_new(p, MIB, 512, 0);
	struct store *b = store_new(p, MIB, 512, 4 * PAGE_SIZE);
	static char data[65536];

	(void)state;
	memset(data, 1, sizeof(data));
	turn(m->cpu);
	assert_int_equal(store_write(b, m->cpu, 0, data, 65536), -ENOSPC);
	assert_int_equal(store_memory(b), 4 * PAGE_SIZE);
	assert_int_equal(store_write(a, m->cpu, 0, data, 65536), -ENOSPC);
	assert_int_equal(store_memory(a), 4 * PAGE_SIZE);
	assert_int_equal(store_discard(b, m->cpu, 0, MIB), 0);
	turn(m->cpu); /* the pool has it when nobody can look any more */
	assert_int_equal(store_write(a, m->cpu, 3 * PAGE_SIZE, data, 8192), 0);
	assert_int_equal(page_pool_used(p), 6 * PAGE_SIZE);
	store_free(a, m->cpu);
	store_free(b, m->cpu);
	rest(p, m->cpu);
	assert_int_equal(page_pool_used(p), 0);
	page_pool_free(p);
	machine_free(m);
}

static void
whole_pages_are_kept_and_not_copied(void **state)
{
	struct bench b = bench_new(MIB, 512, 0);
	static char data[10 * PAGE_SIZE];
	void *page[MAX_LENT];
	struct iovec iov;
	uint64_t used, done;
	struct lent l;
	unsigned i, round, nr;

	(void)state;
	for (round = 0; round < 3; round++) { /* in a hole, and over pages */
		memset(data, 'a' + (int)round, sizeof(data));
		assert_true(
		    lent_new(&l, b.p, b.cpu, 1000, data, 9 * PAGE_SIZE));
		memcpy(page, l.page, sizeof(page));
		assert_int_equal(
		    lent_write(&l, b.s, b.cpu, 0, 9 * PAGE_SIZE), 0);
		assert_ptr_equal(l.page[0], page[0]); /* a part */
		for (i = 1; i < 9; i++)
			assert_null(l.page[i]);
		assert_ptr_equal(l.page[9], page[9]);
		page_return(b.p, b.cpu, l.page, l.nr);

		assert_bytes(&b, 1000, data, 9 * PAGE_SIZE);
		for (i = 1; i < 9; i++) {
			nr = store_pin(b.s, b.cpu, i * PAGE_SIZE, PAGE_SIZE,
			    &iov, 1, &done);
			assert_ptr_equal(iov.iov_base, page[i]);
			store_unpin(b.p, b.cpu, &iov, nr);
		}
		used = page_pool_used(b.p);
		assert_int_equal(used, 11 * PAGE_SIZE);
		assert_int_equal(store_memory(b.s), used);
		assert_int_equal(store_blocks(b.s), 9 * 8 + 1);
		turn(b.cpu);
	}
	bench_free(&b);
}

static void
parts_of_a_page_are_kept_when_it_is_whole(void **state)
{
	struct bench b = bench_new(MIB, 512, 0);
	static char data[2 * PAGE_SIZE], want[2 * PAGE_SIZE];
	struct lent l;
	void *page;

	(void)state;
	memset(data, 'd', sizeof(data));
	assert_true(lent_new(&l, b.p, b.cpu, 0, data, sizeof(data)));
	page = l.page[1];
	assert_int_equal(lent_write(&l, b.s, b.cpu, 0, 5120), 0);
	assert_null(l.page[0]);
	assert_ptr_equal(l.page[1], page);

	/* somebody else is faster with a part, and with one that comes yet */
	assert_int_equal(store_write(b.s, b.cpu, 4096 + 512, "x", 1), 0);
	assert_int_equal(store_write(b.s, b.cpu, 4096 + 2048, "y", 1), 0);
	assert_int_equal(lent_write(&l, b.s, b.cpu, 7168, 8192), 0);
	assert_non_null(l.page[1]);
	assert_int_equal(lent_write(&l, b.s, b.cpu, 5120, 7168), 0);
	assert_null(l.page[1]);
	memcpy(want, data, sizeof(want));
	want[4096 + 512] = 'x';
	assert_bytes(&b, 0, want, sizeof(want));
	assert_int_equal(store_blocks(b.s), 16);
	page_return(b.p, b.cpu, l.page, l.nr);

	/* a discard between the parts takes what was written */
	assert_true(lent_new(&l, b.p, b.cpu, 8192, data, PAGE_SIZE));
	assert_int_equal(lent_write(&l, b.s, b.cpu, 0, 2048), 0);
	assert_int_equal(store_discard(b.s, b.cpu, 8192, 4096), 0);
	assert_int_equal(lent_write(&l, b.s, b.cpu, 2048, 4096), 0);
	memset(want, 0, 2048);
	memset(want + 2048, 'd', 2048);
	assert_bytes(&b, 8192, want, 4096);
	assert_int_equal(store_blocks(b.s), 16 + 4);
	page_return(b.p, b.cpu, l.page, l.nr);
	bench_free(&b);
}

static void
what_is_pinned_stays_when_a_page_takes_its_place(void **state)
{
	struct bench b = bench_new(MIB, 512, 0);
	static char a[2 * PAGE_SIZE], z[2 * PAGE_SIZE];
	struct iovec iov[3];
	struct lent l;
	uint64_t done;
	unsigned nr;

	(void)state;
	memset(a, 'a', sizeof(a));
	memset(z, 'z', sizeof(z));
	assert_int_equal(store_write(b.s, b.cpu, 0, a, sizeof(a)), 0);
	nr = store_pin(b.s, b.cpu, 0, sizeof(a), iov, 3, &done);
	assert_true(lent_new(&l, b.p, b.cpu, 0, z, sizeof(z)));
	assert_int_equal(lent_write(&l, b.s, b.cpu, 0, 6144), 0);
	assert_int_equal(lent_write(&l, b.s, b.cpu, 6144, 8192), 0);
	page_return(b.p, b.cpu, l.page, l.nr);
	assert_pieces(iov, nr, a, sizeof(a));
	assert_bytes(&b, 0, z, sizeof(z));
	turn(b.cpu); /* and in the turns that follow */
	assert_int_equal(store_write(b.s, b.cpu, 500000, z, sizeof(z)), 0);
	assert_pieces(iov, nr, a, sizeof(a));
	store_unpin(b.p, b.cpu, iov, nr);
	bench_free(&b);
}

static void
a_full_store_takes_pages_for_those_it_has(void **state)
{
	/* a node and 8 pages */
	struct bench b = bench_new(MIB, 4096, 9 * PAGE_SIZE);
	static char a[20 * PAGE_SIZE], z[20 * PAGE_SIZE];
	struct lent l;
	unsigned i;

	(void)state;
	memset(a, 'a', sizeof(a));
	assert_true(lent_new(&l, b.p, b.cpu, 0, a, sizeof(a)));
	assert_int_equal(lent_write(&l, b.s, b.cpu, 0, sizeof(a)), -ENOSPC);
	for (i = 0; i < 20; i++)
		assert_int_equal(l.page[i] == NULL, i < 8);
	page_return(b.p, b.cpu, l.page, l.nr);
	memset(z, 0, sizeof(z));
	memset(z, 'a', 8 * PAGE_SIZE);
	assert_bytes(&b, 0, z, sizeof(z));
	assert_int_equal(store_memory(b.s), 9 * PAGE_SIZE);
	assert_int_equal(page_pool_used(b.p), 9 * PAGE_SIZE);
	assert_int_equal(store_blocks(b.s), 8);

	memset(a, 'b', sizeof(a));
	for (i = 0; i < 3; i++) { /* over and over */
		assert_true(lent_new(&l, b.p, b.cpu, 0, a, 8 * PAGE_SIZE));
		assert_int_equal(
		    lent_write(&l, b.s, b.cpu, 0, 8 * PAGE_SIZE), 0);
		page_return(b.p, b.cpu, l.page, l.nr);
		assert_bytes(&b, 0, a, 8 * PAGE_SIZE);
		assert_int_equal(store_memory(b.s), 9 * PAGE_SIZE);
		assert_int_equal(page_pool_used(b.p), 9 * PAGE_SIZE);
	}
	bench_free(&b);
}

static void
what_was_discarded_may_be_written_at_once_in_a_full_pool(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 101 * PAGE_SIZE); /* a node */
	struct store *s = store_new(p, MIB, 512, 0);
	static char data[100 * PAGE_SIZE];
	unsigned i;

	(void)state;
	memset(data, 1, sizeof(data));
	turn(m->cpu); /* and never another */
	assert_int_equal(store_write(s, m->cpu, 0, data, sizeof(data)), 0);
	assert_int_equal(
	    store_write(s, m->cpu, sizeof(data), data, 1), -ENOSPC);
	for (i = 0; i < 20; i++) {
		assert_int_equal(store_discard(s, m->cpu, 0, sizeof(data)), 0);
		assert_int_equal(page_pool_used(p), 0);
		assert_int_equal(
		    store_write(s, m->cpu, 0, data, sizeof(data)), 0);
		assert_int_equal(page_pool_used(p), 101 * PAGE_SIZE);
	}
	store_free(s, m->cpu);
	rest(p, m->cpu);
	assert_int_equal(page_pool_used(p), 0);
	page_pool_free(p);
	machine_free(m);
}

static void
discarding_gives_memory_back_to_the_system(void **state)
{
	struct bench b;
	uint64_t full, gone = 0, pos, rnd = 1;
	static char data[65536];

	(void)state;
	if (SANITIZED)
		skip();
	b = bench_new(256 * MIB, 512, 0);
	memset(data, 1, sizeof(data));
	for (pos = 0; pos < 256 * MIB; pos += 65536)
		assert_int_equal(store_write(b.s, b.cpu, pos, data, 65536), 0);
	full = resident();
	assert_true(full > 256 * MIB);

	while (gone < 128 * MIB) { /* at random, in pieces of 64 KiB */
		uint64_t len = 65536;

		pos = (uint64_t)roll(&rnd, 256 * MIB / 65536) * 65536;
		if (!extent(b.s, b.cpu, pos, &len))
			continue;
		assert_int_equal(store_discard(b.s, b.cpu, pos, 65536), 0);
		gone += 65536;
		turn(b.cpu);
	}
	rest(b.p, b.cpu);
	assert_true(resident() < full - 96 * MIB);
	turn(b.cpu);
	assert_int_equal(store_discard(b.s, b.cpu, 0, 256 * MIB), 0);
	rest(b.p, b.cpu);
	assert_true(resident() < full - 240 * MIB);
	bench_free(&b);
}

static void
reading_what_was_never_written_takes_no_memory(void **state)
{
	struct bench b;
	uint64_t before, done, i;
	struct iovec iov[3];
	char *data;
	unsigned nr;

	(void)state;
	if (SANITIZED)
		skip();
	b = bench_new(STORE_MAX_SIZE, 512, 0);
	data = malloc(MIB);
	assert_non_null(data);
	store_read(b.s, b.cpu, 0, data, MIB);
	before = resident();
	nr = store_pin(b.s, b.cpu, 123 * MIB, MIB, iov, 3, &done);
	for (i = 0; i < MIB; i += 512)
		assert_int_equal(((const char *)iov[0].iov_base)[i], 0);
	assert_true(resident() < before + MIB / 4);
	store_unpin(b.p, b.cpu, iov, nr);
	free(data);
	bench_free(&b);
}

/* ------------------------------------------------------------ threads */

/*
 * Two regions.  In the first everybody does everything, and each byte must be
 * one that somebody wrote, or zero.  The second is cut in stripes that are no
 * multiple of a block or page, each thread's own in turn: pages and even
 * blocks are shared, bytes are not, and each thread knows what its bytes are.
 */

#define NR_THREADS 4u
#define NR_STEPS   (SANITIZED ? 3000u : 30000u)
#define COMMON     (24u * PAGE_SIZE)
#define STRIPE     1300u
#define NR_STRIPES 32u /* a thread's */
#define PRIVATE    (NR_THREADS * NR_STRIPES * STRIPE)

struct crowd {
	struct machine *m;
	struct page_pool *p;
	struct store *s;
	_Atomic unsigned next, nr_errors;
};

/* Pinned by a worker some steps ago. */
struct kept {
	struct iovec iov[5];
	unsigned nr;
	uint64_t len;
	char want[STRIPE]; /* of the second region */
};

struct worker {
	struct crowd *crowd;
	struct cpu *cpu;
	uint64_t rnd;
	char own[NR_STRIPES][STRIPE];
	struct kept common, private;
};

/* Threads must not assert_...(): cmocka jumps. */
static void
expect(struct worker *w, bool ok)
{
	if (!ok)
		w->crowd->nr_errors++;
}

/* As a thread writes them: its capital or its small letter. */
static bool
is_common_byte(char c)
{
	return c == 0 || (c >= 'A' && c < 'A' + (int)NR_THREADS) ||
	       (c >= 'a' && c < 'a' + (int)NR_THREADS);
}

static void
check_common(struct worker *w, const char *data, uint64_t len)
{
	uint64_t i;

	for (i = 0; i < len; i++)
		expect(w, is_common_byte(data[i]));
}

static void
let_go(struct worker *w, struct kept *k)
{
	uint64_t at = 0;
	unsigned i;

	for (i = 0; i < k->nr; i++) {
		if (k == &w->common)
			check_common(w, k->iov[i].iov_base, k->iov[i].iov_len);
		else
			expect(w, memcmp(k->iov[i].iov_base, k->want + at,
				      k->iov[i].iov_len) == 0);
		at += k->iov[i].iov_len;
	}
	expect(w, at == k->len);
	store_unpin(w->crowd->p, w->cpu, k->iov, k->nr);
	*k = (struct kept){};
}

static void
step_common(struct worker *w)
{
	static const char letters[2] = { 'A', 'a' };
	struct store *s = w->crowd->s;
	char data[3 * PAGE_SIZE];
	uint64_t len = 1 + roll(&w->rnd, sizeof(data));
	uint64_t pos = roll(&w->rnd, COMMON), n;

	if (roll(&w->rnd, 2) == 0)
		pos = pos / PAGE_SIZE * PAGE_SIZE;
	if (len > COMMON - pos)
		len = COMMON - pos;
	switch (roll(&w->rnd, 6)) {
	case 0:
	case 1:
		memset(data, letters[roll(&w->rnd, 2)] + (int)w->cpu->id, len);
		if (roll(&w->rnd, 2) == 0)
			expect(w, store_write(s, w->cpu, pos, data, len) == 0);
		else
			expect(w, write_in_parts(s, w->crowd->p, w->cpu, pos,
				      data, len, &w->rnd) == 0);
		break;
	case 2: expect(w, store_zero(s, w->cpu, pos, len) == 0); break;
	case 3: expect(w, store_discard(s, w->cpu, pos, len) == 0); break;
	case 4:
		let_go(w, &w->common);
		w->common.nr = store_pin(
		    s, w->cpu, pos, len, w->common.iov, 5, &w->common.len);
		expect(w, w->common.len == len);
		break;
	default:
		store_read(s, w->cpu, pos, data, len);
		check_common(w, data, len);
		n = len;
		extent(s, w->cpu, pos, &n);
		expect(w, n > 0 && n <= len);
		break;
	}
}

static void
step_private(struct worker *w)
{
	struct store *s = w->crowd->s;
	unsigned stripe = roll(&w->rnd, NR_STRIPES);
	unsigned from = roll(&w->rnd, STRIPE), i;
	unsigned len = 1 + roll(&w->rnd, STRIPE - from);
	uint64_t pos = COMMON + from +
		       ((uint64_t)stripe * NR_THREADS + w->cpu->id) * STRIPE;
	char *own = w->own[stripe] + from, data[STRIPE];

	switch (roll(&w->rnd, 5)) {
	case 0:
		for (i = 0; i < len; i++)
			own[i] = (char)roll(&w->rnd, 256);
		expect(w, store_write(s, w->cpu, pos, own, len) == 0);
		break;
	case 1:
		memset(own, 0, len);
		expect(w, store_zero(s, w->cpu, pos, len) == 0);
		break;
	case 2:
		memset(own, 0, len);
		expect(w, store_discard(s, w->cpu, pos, len) == 0);
		break;
	case 3:
		let_go(w, &w->private);
		w->private.nr = store_pin(
		    s, w->cpu, pos, len, w->private.iov, 5, &w->private.len);
		expect(w, w->private.len == len);
		memcpy(w->private.want, own, len);
		break;
	default:
		store_read(s, w->cpu, pos, data, len);
		expect(w, memcmp(data, own, len) == 0);
		break;
	}
}

static void *
work(void *arg)
{
	struct worker *w = arg;
	unsigned i;

	for (i = 0; i < NR_STEPS; i++) {
		if (i % 4 == 0)
			turn(w->cpu);
		if (i % 500 == 0) {
			rest(w->crowd->p, w->cpu);
			turn(w->cpu);
		}
		step_common(w);
		step_private(w);
	}
	let_go(w, &w->common);
	let_go(w, &w->private);
	rest(w->crowd->p, w->cpu);
	return NULL;
}

/*
 * As the last part of the page, or pages: all of the rest is said to be
 * written already, though it is others' that change it meanwhile.
 */
static int
write_last_part(struct worker *w, uint64_t pos, const char *data)
{
	struct lent l;
	unsigned i;
	int err;

	if (!lent_new(&l, w->crowd->p, w->cpu, pos, data, STRIPE))
		return -ENOMEM;
	for (i = 0; i < l.nr; i++)
		*page_meta(l.page[i]) = 0x7f800000u; /* all valid */
	err = lent_write(&l, w->crowd->s, w->cpu, 0, STRIPE);
	page_return(w->crowd->p, w->cpu, l.page, l.nr);
	return err;
}

/*
 * All want the same two pages: some write in place, some in a copy, some bring
 * a page that is to take its place.
 */
static void *
fight(void *arg)
{
	struct worker *w = arg;
	struct store *s = w->crowd->s;
	uint64_t pos = COMMON + w->cpu->id * STRIPE;
	char data[STRIPE];
	unsigned i;
	int err;

	for (i = 0; i < 3 * NR_STEPS; i++) {
		turn(w->cpu);
		memset(w->own[0], (int)(i % 255 + 1), STRIPE);
		if (i % 3 != 0)
			err = store_write(s, w->cpu, pos, w->own[0], STRIPE);
		else
			err = write_last_part(w, pos, w->own[0]);
		expect(w, err == 0);
		store_read(s, w->cpu, pos, data, STRIPE);
		expect(w, memcmp(data, w->own[0], STRIPE) == 0);

		let_go(w, &w->private);
		if (i % 2 != 0)
			continue;
		w->private.nr = store_pin(
		    s, w->cpu, pos, STRIPE, w->private.iov, 5, &w->private.len);
		memcpy(w->private.want, w->own[0], STRIPE);
	}
	let_go(w, &w->private);
	rest(w->crowd->p, w->cpu);
	return NULL;
}

/*
 * One request of 16 pages, split: each thread writes every fourth of its parts
 * of 1536 bytes, so that pages get theirs from two or three cpus at once.
 */
#define SHARED_PAGES 16u
#define SHARED_PART  1536u

static struct lent shared;
static pthread_barrier_t shared_ready, shared_done;

static void *
share(void *arg)
{
	static char data[SHARED_PAGES * PAGE_SIZE];
	struct worker *w = arg;
	struct crowd *c = w->crowd;
	uint64_t at, end;
	unsigned i, j;

	for (i = 0; i < (SANITIZED ? 100 : 300); i++) {
		turn(w->cpu);
		if (w->cpu->id == 0) {
			for (j = 0; j < sizeof(data); j++)
				data[j] = (char)(i + j / 512);
			expect(w, lent_new(&shared, c->p, w->cpu, 0, data,
				      sizeof(data)));
		}
		pthread_barrier_wait(&shared_ready);
		for (j = w->cpu->id; j * SHARED_PART < sizeof(data);
		     j += NR_THREADS) {
			at = j * SHARED_PART;
			end = at + SHARED_PART;
			if (end > sizeof(data))
				end = sizeof(data);
			expect(
			    w, lent_write(&shared, c->s, w->cpu, at, end) == 0);
		}
		pthread_barrier_wait(&shared_done);
		if (w->cpu->id != 0)
			continue;
		page_return(c->p, w->cpu, shared.page, shared.nr);
		store_read(c->s, w->cpu, 0, data, sizeof(data));
		for (j = 0; j < sizeof(data); j++)
			expect(w, data[j] == (char)(i + j / 512));
		expect(w, store_blocks(c->s) == sizeof(data) / 512);
		expect(w, page_pool_used(c->p) == sizeof(data) + PAGE_SIZE);
	}
	rest(c->p, w->cpu);
	return NULL;
}

/* In a pool that has room for one page more than there are. */
#define FULL_PAGES 256u

static void *
fill(void *arg)
{
	static char data[NR_THREADS][FULL_PAGES * PAGE_SIZE];
	struct worker *w = arg;
	struct crowd *c = w->crowd;
	char *mine = data[w->cpu->id];
	struct lent l;
	unsigned i, j;

	for (i = 0; i < (SANITIZED ? 200 : 500); i++) {
		turn(w->cpu);
		if (i % 8 == 0)
			rest(c->p, w->cpu), turn(w->cpu);
		if (w->cpu->id == 0) { /* the one that takes it, and gives it */
			expect(
			    w, store_write(c->s, w->cpu, FULL_PAGES * PAGE_SIZE,
				   mine, PAGE_SIZE) == 0);
			expect(w, store_discard(c->s, w->cpu,
				      FULL_PAGES * PAGE_SIZE, PAGE_SIZE) == 0);
			continue;
		}
		for (j = 0; j < FULL_PAGES; j += MAX_LENT) {
			expect(w, lent_new(&l, c->p, w->cpu, j * PAGE_SIZE,
				      mine, MAX_LENT * PAGE_SIZE));
			expect(w, lent_write(&l, c->s, w->cpu, 0, l.len) == 0);
			page_return(c->p, w->cpu, l.page, l.nr);
		}
	}
	rest(c->p, w->cpu);
	return NULL;
}

static void
check_accounts(struct crowd *c)
{
	uint64_t pos, len, nr_bytes = 0, size = COMMON + PRIVATE;
	uint64_t nr_pages = 1, page, whole;
	struct cpu *cpu = c->m->cpu;

	for (pos = 0; pos < size; pos += len) {
		len = size - pos;
		if (extent(c->s, cpu, pos, &len))
			nr_bytes += (len + 511) / 512 * 512;
	}
	assert_int_equal(store_blocks(c->s) * 512, nr_bytes);
	for (page = 0; page * PAGE_SIZE < size; page++) {
		len = PAGE_SIZE;
		if (len > size - page * PAGE_SIZE)
			len = size - page * PAGE_SIZE;
		whole = len;
		/* data at its start, or behind a hole */
		nr_pages +=
		    extent(c->s, cpu, page * PAGE_SIZE, &len) || len < whole;
	}
	assert_int_equal(store_memory(c->s), nr_pages * PAGE_SIZE);
}

/*
 * Let them all do it, where `first` bytes are written already, the pool has
 * this limit.  The store stays, for a look at what they left.
 */
static struct worker *
crowd_run_limited(struct crowd *c, uint64_t size, uint64_t first,
    uint64_t limit, void *(*job)(void *))
{
	struct worker *w = calloc(NR_THREADS, sizeof(*w));
	pthread_t thread[NR_THREADS];
	unsigned i;

	assert_non_null(w);
	*c = (struct crowd){ .m = host_new(NR_THREADS) };
	c->p = page_pool_new(c->m, limit);
	c->s = store_new(c->p, size, 512, 0);
	turn(c->m->cpu);
	assert_int_equal(store_zero(c->s, c->m->cpu, 0, first), 0);
	rest(c->p, c->m->cpu);
	for (i = 0; i < NR_THREADS; i++) {
		w[i].crowd = c;
		w[i].cpu = &c->m->cpu[i];
		w[i].rnd = 1000 + i;
		pthread_create(&thread[i], NULL, job, &w[i]);
	}
	for (i = 0; i < NR_THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(c->nr_errors, 0);
	turn(c->m->cpu);
	return w;
}

static struct worker *
crowd_run(struct crowd *c, uint64_t size, void *(*job)(void *))
{
	return crowd_run_limited(c, size, 0, 0, job);
}

/* Nothing is left in the store. */
static void
crowd_free(struct crowd *c, struct worker *w)
{
	assert_int_equal(store_memory(c->s), 0);
	assert_int_equal(store_blocks(c->s), 0);
	store_free(c->s, c->m->cpu);
	rest(c->p, c->m->cpu);
	assert_int_equal(page_pool_used(c->p), 0);
	page_pool_free(c->p);
	machine_free(c->m);
	free(w);
}

static void
many_cpus_at_once_lose_no_byte(void **state)
{
	struct crowd c;
	struct worker *w = crowd_run(&c, COMMON + PRIVATE, work);
	char data[STRIPE];
	unsigned i;

	(void)state;
	for (i = 0; i < NR_THREADS * NR_STRIPES; i++) {
		store_read(c.s, c.m->cpu, COMMON + i * STRIPE, data, STRIPE);
		assert_memory_equal(
		    data, w[i % NR_THREADS].own[i / NR_THREADS], STRIPE);
	}
	check_accounts(&c);
	assert_int_equal(store_discard(c.s, c.m->cpu, 0, COMMON + PRIVATE), 0);
	crowd_free(&c, w);
}

static void
many_cpus_in_one_page_lose_no_byte(void **state)
{
	struct crowd c;
	struct worker *w = crowd_run(&c, COMMON + PRIVATE, fight);

	(void)state;
	check_accounts(&c);
	assert_int_equal(store_discard(c.s, c.m->cpu, 0, COMMON + PRIVATE), 0);
	crowd_free(&c, w);
}

static void
many_cpus_write_parts_of_the_same_pages(void **state)
{
	struct crowd c;
	struct worker *w;

	(void)state;
	pthread_barrier_init(&shared_ready, NULL, NR_THREADS);
	pthread_barrier_init(&shared_done, NULL, NR_THREADS);
	w = crowd_run(&c, SHARED_PAGES * PAGE_SIZE, share);
	pthread_barrier_destroy(&shared_ready);
	pthread_barrier_destroy(&shared_done);
	assert_int_equal(
	    store_discard(c.s, c.m->cpu, 0, SHARED_PAGES * PAGE_SIZE), 0);
	crowd_free(&c, w);
}

/* Pages that take the place of others are not counted twice, nor late. */
static void
pages_that_are_replaced_do_not_fill_a_pool(void **state)
{
	uint64_t size = (FULL_PAGES + 1) * PAGE_SIZE;
	struct crowd c;
	struct worker *w;

	(void)state;
	w = crowd_run_limited(&c, size, FULL_PAGES * PAGE_SIZE,
	    (FULL_PAGES + 2) * PAGE_SIZE, fill);
	assert_int_equal(page_pool_used(c.p), (FULL_PAGES + 1) * PAGE_SIZE);
	assert_int_equal(store_blocks(c.s), FULL_PAGES * 8);
	assert_int_equal(store_discard(c.s, c.m->cpu, 0, size), 0);
	crowd_free(&c, w);
}

/*
 * Few pages, far apart: whole branches of the tree come and go while others
 * want to grow in them.
 */
#define NR_SPOTS 6u

static uint64_t
spot(unsigned i)
{
	return (uint64_t)i * i * i << 33 | (uint64_t)i << 21;
}

static void *
come_and_go(void *arg)
{
	struct worker *w = arg;
	char mine = (char)('A' + w->cpu->id), got;
	unsigned i;
	uint64_t pos;

	for (i = 0; i < NR_STEPS; i++) {
		if (i % 4 == 0)
			turn(w->cpu);
		pos = spot(roll(&w->rnd, NR_SPOTS)) + w->cpu->id * 512;
		expect(w, store_write(w->crowd->s, w->cpu, pos, &mine, 1) == 0);
		store_read(w->crowd->s, w->cpu, pos, &got, 1);
		expect(w, got == mine);
		expect(w, store_discard(w->crowd->s, w->cpu, pos, 512) == 0);
		store_read(w->crowd->s, w->cpu, pos, &got, 1);
		expect(w, got == 0);
	}
	rest(w->crowd->p, w->cpu);
	return NULL;
}

static void
branches_come_and_go_under_many_cpus(void **state)
{
	struct crowd c;
	struct worker *w = crowd_run(&c, STORE_MAX_SIZE, come_and_go);

	(void)state;
	crowd_free(&c, w);
}

/* An answer ends where its steps do, and says what it took (N149). */
static void
an_extent_takes_a_step_a_page(void **state)
{
	struct bench b = bench_new(1 << 20, 4096, 0);
	uint64_t len = 1 << 20;
	unsigned steps = 4, i;
	char data[4096] = "x";

	(void)state;
	for (i = 0; i < 10; i++)
		assert_int_equal(
		    store_write(b.s, b.cpu, i * PAGE_SIZE, data, 4096), 0);
	assert_true(store_extent(b.s, b.cpu, 0, &len, &steps));
	assert_int_equal(len, 4 * PAGE_SIZE);
	assert_int_equal(steps, 0);
	len = 1 << 20;
	steps = 100;
	assert_true(store_extent(b.s, b.cpu, 0, &len, &steps));
	assert_int_equal(len, 10 * PAGE_SIZE);
	assert_in_range(steps, 85, 90);
	bench_free(&b);
}

/* Does a read find anything that was written? */
static void
a_read_tells_a_hole_from_data(void **state)
{
	struct bench b = bench_new(1 << 20, 4096, 0);
	char data[8192] = "x";

	(void)state;
	assert_false(store_read(b.s, b.cpu, 0, data, 8192));
	assert_int_equal(store_write(b.s, b.cpu, 4096, data, 4096), 0);
	assert_true(store_read(b.s, b.cpu, 0, data, 8192));
	assert_false(store_read(b.s, b.cpu, 0, data, 4096));
	assert_false(store_read(b.s, b.cpu, 8192, data, 4096));
	bench_free(&b);
}

static void
is_of_another_size_and_keeps_what_fits(void **state)
{
	static const uint64_t sizes[] = { 4096, 1 << 20, 3ull << 30, 1ull << 40,
		STORE_MAX_SIZE, 512, 1ull << 40, 8192 };
	struct bench b = bench_new(1 << 20, 512, 0);
	uint64_t len;

	(void)state;
	store_write(b.s, b.cpu, 0, "first", 5);
	store_write(b.s, b.cpu, 4096, "second", 6);
	store_write(b.s, b.cpu, (1 << 20) - 4, "last", 4);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_int_equal(store_resize(b.s, sizes[i], 512), 0);
		assert_bytes(&b, 0, "first", 5);
		if (sizes[i] >= 8192)
			assert_bytes(&b, 4096, "second", 6);
		if (sizes[i] <= 1 << 20)
			continue;
		assert_bytes(&b, (1 << 20) - 4, "last", 4);
		assert_extent(&b, 1 << 20, sizes[i] - (1 << 20), false,
		    sizes[i] - (1 << 20));
		len = sizes[i] - 512;
		assert_int_equal(store_write(b.s, b.cpu, len, "x", 1), 0);
		assert_bytes(&b, len, "x", 1);
		assert_int_equal(store_discard(b.s, b.cpu, len, 512), 0);
	}
	bench_free(&b);
}

static void
grows_while_it_holds_nothing(void **state)
{
	struct bench b = bench_new(4096, 512, 0);

	(void)state;
	assert_int_equal(store_resize(b.s, 1ull << 40, 4096), 0);
	assert_int_equal(store_memory(b.s), 0);
	store_write(b.s, b.cpu, (1ull << 40) - 2, "z", 1);
	assert_bytes(&b, (1ull << 40) - 2, "z", 1);
	bench_free(&b);
}

static void
grows_at_its_limit(void **state)
{
	struct bench b = bench_new(4096, 512, 4096);

	(void)state;
	store_write(b.s, b.cpu, 0, "data", 4);
	assert_int_equal(store_resize(b.s, 1 << 30, 512), 0);
	assert_bytes(&b, 0, "data", 4);
	assert_int_equal(store_write(b.s, b.cpu, 0, "more", 4), 0);
	assert_int_equal(store_write(b.s, b.cpu, 4096, "x", 1), -ENOSPC);
	bench_free(&b);
}

static void
larger_blocks_are_full_with_any_data_in_them(void **state)
{
	struct bench b = bench_new(1 << 20, 512, 0);

	(void)state;
	store_write(b.s, b.cpu, 512, "x", 1);
	store_write(b.s, b.cpu, 8192 + 4095, "y", 1);
	assert_int_equal(store_blocks(b.s), 2);
	assert_int_equal(store_resize(b.s, 1 << 20, 2048), 0);
	assert_int_equal(store_blocks(b.s), 2);
	assert_extent(&b, 0, 1 << 20, true, 2048);
	assert_extent(&b, 2048, 65536, false, 8192);
	assert_extent(&b, 8192 + 2048, 65536, true, 2048);
	assert_int_equal(store_resize(b.s, 1 << 20, 512), 0);
	assert_int_equal(store_blocks(b.s), 8);
	assert_int_equal(store_discard(b.s, b.cpu, 0, 1024), 0);
	assert_extent(&b, 0, 1 << 20, false, 1024);
	assert_extent(&b, 1024, 65536, true, 1024);
	bench_free(&b);
}

static void
changes_its_limit(void **state)
{
	struct bench b = bench_new(1 << 20, 512, 0);
	char page[PAGE_SIZE] = "x";

	(void)state;
	assert_int_equal(store_write(b.s, b.cpu, 0, page, PAGE_SIZE), 0);
	store_limit(b.s, 4096);
	assert_int_equal(
	    store_write(b.s, b.cpu, 8192, page, PAGE_SIZE), -ENOSPC);
	store_limit(b.s, 1 << 20);
	assert_int_equal(store_write(b.s, b.cpu, 8192, page, PAGE_SIZE), 0);
	bench_free(&b);
}

static void
is_freed_by_who_is_no_cpu(void **state)
{
	struct machine *m = host_new(1);
	struct page_pool *p = page_pool_new(m, 0);
	struct store *s = store_new(p, 64 << 20, 512, 0);
	char page[PAGE_SIZE] = "x";

	(void)state;
	turn(m->cpu);
	for (unsigned i = 0; i < 4000; i++)
		store_write(s, m->cpu, i * PAGE_SIZE, page, PAGE_SIZE);
	store_free(s, NULL);
	assert_int_equal(page_pool_used(p), 0);
	s = store_new(p, 64 << 20, 512, 0);
	for (unsigned i = 0; i < 4000; i++)
		store_write(s, m->cpu, i * PAGE_SIZE, page, PAGE_SIZE);
	store_free(s, m->cpu);
	rest(p, m->cpu);
	page_pool_free(p);
	machine_free(m);
}

/* ---- snapshots */

#define SNAPS      4u
#define SNAP_PAGES 40u
#define SNAP_SIZE  (SNAP_PAGES * PAGE_SIZE)

static struct {
	struct store *s[SNAPS];
	char want[SNAPS][SNAP_SIZE];
} family;

static void
change_one(struct bench *b, unsigned i, struct rng *rng)
{
	static char data[SNAP_SIZE];
	struct store *s = family.s[i];
	uint64_t pos = rng_below(rng, SNAP_SIZE / 512) * 512;
	uint64_t len = 512 * (1 + rng_below(rng, 24));
	void *page[8];
	unsigned nr;

	if (len > SNAP_SIZE - pos)
		len = SNAP_SIZE - pos;
	memset(data, (int)(1 + rng_below(rng, 200)), len);
	switch (rng_below(rng, 4)) {
	case 0:
		memset(data, 0, len);
		assert_int_equal(store_discard(s, b->cpu, pos, len), 0);
		break;
	case 1:
		nr = (unsigned)((pos + len - 1) / PAGE_SIZE - pos / PAGE_SIZE +
				1);
		assert_int_equal(page_lend(b->p, b->cpu, page, nr), nr);
		for (uint64_t at = pos; at < pos + len; at += 512)
			memcpy((char *)page[at / PAGE_SIZE - pos / PAGE_SIZE] +
				   at % PAGE_SIZE,
			    data, 512);
		assert_int_equal(
		    store_write_pages(s, b->cpu, pos, page, len), 0);
		page_return(b->p, b->cpu, page, nr);
		break;
	default: assert_int_equal(store_write(s, b->cpu, pos, data, len), 0);
	}
	memcpy(family.want[i] + pos, data, len);
}

/* One takes the place of another, whichever came first. */
static void
replace_one(struct bench *b, struct rng *rng)
{
	unsigned from = (unsigned)rng_below(rng, SNAPS);
	unsigned to = (unsigned)rng_below(rng, SNAPS);

	if (from == to)
		return;
	store_free(family.s[to], rng_below(rng, 2) ? b->cpu : NULL);
	assert_int_equal(store_snapshot(family.s[from], &family.s[to]), 0);
	memcpy(family.want[to], family.want[from], SNAP_SIZE);
	assert_int_equal(
	    store_blocks(family.s[to]), store_blocks(family.s[from]));
	assert_int_equal(
	    store_memory(family.s[to]), store_memory(family.s[from]));
}

static void
snapshots_of_snapshots_are_each_their_own(void **state)
{
	struct bench b = bench_new(SNAP_SIZE, 512, 0);
	struct rng rng = rng_stream(20, 26);
	struct store *mine = b.s;

	(void)state;
	memset(&family, 0, sizeof(family));
	for (unsigned i = 0; i < SNAPS; i++)
		family.s[i] = store_new(b.p, SNAP_SIZE, 512, 0);
	for (unsigned n = 0; n < (THREADS_SANITIZED ? 500 : 20000); n++) {
		change_one(&b, (unsigned)rng_below(&rng, SNAPS), &rng);
		if (n % 16 != 0)
			continue;
		replace_one(&b, &rng);
		rest(b.p, b.cpu);
		turn(b.cpu);
		for (unsigned i = 0; i < SNAPS; i++) {
			b.s = family.s[i];
			assert_bytes(&b, 0, family.want[i], SNAP_SIZE);
		}
	}
	for (unsigned i = 0; i < SNAPS; i++)
		store_free(family.s[i], b.cpu);
	b.s = mine;
	bench_free(&b); /* all pages come home */
}

static void
a_snapshot_takes_no_memory_for_data(void **state)
{
	struct bench b = bench_new(64 * PAGE_SIZE, 512, 0);
	char data[PAGE_SIZE];
	struct store *s;
	uint64_t before;

	(void)state;
	memset(data, 'a', sizeof(data));
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(
		    store_write(b.s, b.cpu, i * PAGE_SIZE, data, PAGE_SIZE), 0);
	before = page_pool_used(b.p);
	assert_int_equal(store_snapshot(b.s, &s), 0);
	assert_int_equal(page_pool_used(b.p), before + PAGE_SIZE); /* a node */
	assert_int_equal(store_memory(s), store_memory(b.s));
	memset(data, 'b', sizeof(data));
	assert_int_equal(store_write(s, b.cpu, 10, data, 10), 0);
	assert_int_equal(page_pool_used(b.p), before + 2 * PAGE_SIZE);
	store_read(b.s, b.cpu, 0, data, PAGE_SIZE);
	assert_int_equal(data[10], 'a');
	store_free(s, b.cpu);
	assert_int_equal(page_pool_used(b.p), before);
	bench_free(&b);
}

/* Not exempt as what is pinned: there is no bound on what is shared. */
static void
a_full_pool_refuses_a_page_of_ones_own(void **state)
{
	char data[PAGE_SIZE] = "";
	struct store *s;
	struct bench b;
	void *page[1];

	(void)state;
	b.m = host_new(1);
	b.cpu = b.m->cpu;
	b.p = page_pool_new(b.m, 66 * PAGE_SIZE);
	b.s = store_new(b.p, 64 * PAGE_SIZE, 512, 0);
	turn(b.cpu);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(
		    store_write(b.s, b.cpu, i * PAGE_SIZE, data, PAGE_SIZE), 0);
	assert_int_equal(store_snapshot(b.s, &s), 0);
	assert_int_equal(store_write(s, b.cpu, 10, "x", 1), -ENOSPC);
	assert_int_equal(page_lend(b.p, b.cpu, page, 1), 1);
	assert_int_equal(
	    store_write_pages(s, b.cpu, 0, page, PAGE_SIZE), -ENOSPC);
	page_return(b.p, b.cpu, page, 1);
	store_free(b.s, b.cpu); /* what was shared is its own, to be replaced */
	rest(b.p, b.cpu);
	turn(b.cpu);
	assert_int_equal(store_write(s, b.cpu, 10, "x", 1), 0);
	b.s = s;
	bench_free(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_an_array_in_blocks_of_512),
		cmocka_unit_test(agrees_with_an_array_in_blocks_of_1024),
		cmocka_unit_test(agrees_with_an_array_in_blocks_of_4096),
		cmocka_unit_test(
		    a_device_of_the_largest_size_works_from_end_to_end),
		cmocka_unit_test(
		    a_device_of_any_small_size_works_up_to_its_end),
		cmocka_unit_test(nothing_costs_nothing),
		cmocka_unit_test(what_is_pinned_stays_as_it_was),
		cmocka_unit_test(what_is_pinned_outlives_the_store),
		cmocka_unit_test(what_lies_together_is_shown_in_few_pieces),
		cmocka_unit_test(holes_are_shown_as_the_zeros),
		cmocka_unit_test(pins_as_much_as_there_are_pieces_for),
		cmocka_unit_test(
		    a_page_that_too_many_have_pinned_is_left_to_copies),
		cmocka_unit_test(the_tree_goes_with_the_data),
		cmocka_unit_test(parts_that_are_discarded_add_up_to_a_page),
		cmocka_unit_test(
		    zeroing_takes_blocks_and_discarding_gives_them_back),
		cmocka_unit_test(
		    a_full_store_refuses_new_blocks_and_nothing_else),
		cmocka_unit_test(a_refused_write_leaves_no_part_of_a_tree),
		cmocka_unit_test(stores_share_what_the_pool_may_have),
		cmocka_unit_test(
		    what_was_discarded_may_be_written_at_once_in_a_full_pool),
		cmocka_unit_test(whole_pages_are_kept_and_not_copied),
		cmocka_unit_test(parts_of_a_page_are_kept_when_it_is_whole),
		cmocka_unit_test(
		    what_is_pinned_stays_when_a_page_takes_its_place),
		cmocka_unit_test(a_full_store_takes_pages_for_those_it_has),
		cmocka_unit_test(discarding_gives_memory_back_to_the_system),
		cmocka_unit_test(
		    reading_what_was_never_written_takes_no_memory),
		cmocka_unit_test(an_extent_takes_a_step_a_page),
		cmocka_unit_test(a_read_tells_a_hole_from_data),
		cmocka_unit_test(many_cpus_at_once_lose_no_byte),
		cmocka_unit_test(many_cpus_in_one_page_lose_no_byte),
		cmocka_unit_test(many_cpus_write_parts_of_the_same_pages),
		cmocka_unit_test(pages_that_are_replaced_do_not_fill_a_pool),
		cmocka_unit_test(branches_come_and_go_under_many_cpus),
		cmocka_unit_test(is_of_another_size_and_keeps_what_fits),
		cmocka_unit_test(grows_while_it_holds_nothing),
		cmocka_unit_test(grows_at_its_limit),
		cmocka_unit_test(larger_blocks_are_full_with_any_data_in_them),
		cmocka_unit_test(changes_its_limit),
		cmocka_unit_test(is_freed_by_who_is_no_cpu),
		cmocka_unit_test(snapshots_of_snapshots_are_each_their_own),
		cmocka_unit_test(a_snapshot_takes_no_memory_for_data),
		cmocka_unit_test(a_full_pool_refuses_a_page_of_ones_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
