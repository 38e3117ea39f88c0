/* SPDX-License-Identifier: MIT */
/*
 * Report A's job, generated in-process: a million I/Os, a fixed seed, and the
 * share of them that merge (experiments.md; 6.5 of the notes).  The shares
 * tell the ages of the plug apart; multipage bvecs do not change them.
 */
#include "fio_job.h"

#define NR_IOS 1000000u
#define DEPTH  64u
#define MAX_IO (64u * 1024)

static char memory[MAX_IO];

struct task;

/* fio's 64 I/Os: each has its buffer, and is used again when it has ended. */
struct unit {
	struct task *task;
	struct bio bio;
	struct bvec bv[MAX_IO / PAGE_SIZE];
	unsigned nr; /* of the buffer */
};

struct task {
	struct queue *queue;
	struct cpu *cpu;
	struct plug plug;
	struct plug *open;
	struct unit unit[DEPTH];
	struct unit *idle[DEPTH];
	unsigned nr_idle;
	unsigned order; /* of the buffers' pages */
	uint64_t now;
};

static int
null_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	rq_moved(rq, cpu);
	rq_complete(rq, cpu, now);
	return 0;
}

static const struct queue_ops null_ops = { .queue_rq = null_queue_rq };

static void
unit_end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct unit *u = bio->priv;
	struct task *t = u->task;

	(void)now;
	assert_int_equal(bio->error, 0);
	bio_release(bio, cpu);
	t->idle[t->nr_idle++] = u;
}

static void
task_submit(struct task *t, const struct job_io *io)
{
	uint64_t len = io->nr_sectors * SECTOR_SIZE;
	struct unit *u;
	int res;

	assert_true(t->nr_idle > 0);
	u = t->idle[--t->nr_idle];
	bio_init(&u->bio, io->op, io->sector * SECTOR_SIZE, u->bv,
	    ARRAY_SIZE(u->bv));
	assert_int_equal(bio_add_payload(&u->bio, t->queue->conf.multipage,
			     1ull << 32, t->order, u->nr * (MAX_IO / PAGE_SIZE),
			     io->op == REQ_OP_READ ? NULL : memory, len),
	    len);
	u->bio.end_io = unit_end_io;
	u->bio.priv = u;
	t->now += 1000;
	res = queue_submit(t->queue, t->cpu, t->open, &u->bio, t->now);
	assert_int_equal(res, 0);
}

struct counts {
	uint64_t ios[2], merges[2], sectors[2];
};

struct run {
	const char *profile;
	bool multipage;
	unsigned order;
	bool histogram;       /* else batches of 64 */
	unsigned flush_every; /* I/Os; 0: never */
};

static struct counts
run_job(const struct run *run)
{
	struct job job = { .chance = { 20180615 } };
	struct queue_conf conf = h_conf(profile_find(run->profile));
	struct machine *m;
	struct task *t = calloc(1, sizeof(*t));
	struct job_io io;
	struct queue_stat st;
	struct counts c = {};
	unsigned i, batch;

	assert_non_null(t);
	conf.limits.max_sectors = 255;
	conf.depth = DEPTH;
	conf.multipage = run->multipage;
	m = machine_new(1, NULL, NULL);
	assert_non_null(m);
	t->cpu = &m->cpu[0];
	t->order = run->order;
	t->now = 1000000000;
	assert_int_equal(queue_new(&t->queue, m, &null_ops, NULL, &conf), 0);
	plug_init(&t->plug);
	for (i = 0; i < DEPTH; i++) {
		t->unit[i].nr = i;
		t->unit[i].task = t;
		t->idle[t->nr_idle++] = &t->unit[i];
	}

	while (job.nr < NR_IOS) {
		batch = run->histogram ? job_batch(&job) : 64;
		if (batch > NR_IOS - job.nr)
			batch = NR_IOS - job.nr;
		if (batch >= conf.profile->aio_plug_min)
			t->open = &t->plug;
		for (i = 0; i < batch; i++) {
			io = job_next(&job);
			if (run->flush_every && job.nr % run->flush_every == 0)
				plug_flush(&t->plug, t->cpu, t->now);
			task_submit(t, &io);
			c.sectors[io.op] += io.nr_sectors;
		}
		plug_flush(&t->plug, t->cpu, t->now);
		t->open = NULL;
		cpu_run(t->cpu, t->now);
		assert_int_equal(t->nr_idle, DEPTH);
	}

	stat_read(t->queue, &st, t->now);
	for (i = 0; i < 2; i++) {
		c.ios[i] = st.ios[i];
		c.merges[i] = st.merges[i];
		assert_int_equal(st.sectors[i], c.sectors[i]);
	}
	/* nothing is split: 64 KiB is below every limit (property b) */
	assert_int_equal(
	    c.ios[0] + c.ios[1] + c.merges[0] + c.merges[1], NR_IOS);
	assert_int_equal(queue_tags_in_use(t->queue), 0);
	queue_free(t->queue);
	machine_free(m);
	free(t);
	return c;
}

static double
merge_share(const struct counts *c, unsigned rw)
{
	return 100.0 * (double)c->merges[rw] /
	       (double)(c->ios[rw] + c->merges[rw]);
}

/* The share of reads and of writes that merge, with either kind of bvec. */
static void
expect_share(struct run run, double share, double tolerance)
{
	struct counts c, other;
	unsigned i;

	run.multipage = false;
	c = run_job(&run);
	for (i = 0; i < 2; i++) {
		print_message("  %s %s: %.2f%% of the %s merge\n", run.profile,
		    run.flush_every ? "switches"
		    : run.histogram ? "histogram"
				    : "64",
		    merge_share(&c, i), i == REQ_OP_READ ? "reads" : "writes");
		assert_true(merge_share(&c, i) > share - tolerance);
		assert_true(merge_share(&c, i) < share + tolerance);
	}
	run.multipage = true;
	other = run_job(&run);
	assert_memory_equal(&c, &other, sizeof(c));
	run.order = 4; /* each buffer contiguous: one bvec */
	other = run_job(&run);
	assert_memory_equal(&c, &other, sizeof(c));
}

static void
histogram_414(void **state)
{
	(void)state;
	expect_share(
	    (struct run){ .profile = "4.14", .histogram = true }, 46, 1);
}

/* 10.: the rules that count here are those of 4.14 */
static void
histogram_54(void **state)
{
	(void)state;
	expect_share(
	    (struct run){ .profile = "5.4", .histogram = true }, 46, 1);
}

static void
histogram_61(void **state)
{
	(void)state;
	expect_share(
	    (struct run){ .profile = "6.1", .histogram = true }, 24.2, 1);
}

static void
histogram_612(void **state)
{
	(void)state;
	expect_share(
	    (struct run){ .profile = "6.12", .histogram = true }, 24.2, 1);
}

/* 6.5: a context switch in 105 I/Os empties the plug: the report's 45.08% */
static void
context_switches(void **state)
{
	(void)state;
	expect_share(
	    (struct run){
		.profile = "4.14", .histogram = true, .flush_every = 105 },
	    45.0, 0.7);
}

static void
batches_414(void **state)
{
	(void)state;
	expect_share((struct run){ .profile = "4.14" }, 47.1, 0.5);
}

static void
batches_612(void **state)
{
	(void)state;
	expect_share((struct run){ .profile = "6.12" }, 24.6, 0.5);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		{ "merges 46% of report A's job in 4.14", histogram_414, NULL,
		    NULL, NULL },
		{ "merges 46% of report A's job in 5.4", histogram_54, NULL,
		    NULL, NULL },
		{ "merges 24.2% of report A's job in 6.1", histogram_61, NULL,
		    NULL, NULL },
		{ "merges 24.2% of report A's job in 6.12", histogram_612, NULL,
		    NULL, NULL },
		{ "merges 45.0% in 4.14 when context switches flush",
		    context_switches, NULL, NULL, NULL },
		{ "merges 47.1% of batches of 64 in 4.14", batches_414, NULL,
		    NULL, NULL },
		{ "merges 24.6% of batches of 64 in 6.12", batches_612, NULL,
		    NULL, NULL },
	};

	return cmocka_run_group_tests_name("report A", tests, NULL, NULL);
}
