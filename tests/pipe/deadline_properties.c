/* SPDX-License-Identifier: MIT */
/*
 * mq-deadline on random I/Os, under each profile:
 *
 *   - what leaves it, in which order and merged how, is what a model does that
 *     is written from section 5 and 3.5, 3.6 of the notes alone;
 *   - what holds for every sequence (section 9) holds with splits, flushes,
 *     busy drivers, and settings that change while the disk lives;
 *   - nothing starves.
 *
 * A sequence is made from the seed and its number alone:
 *
 *	NULLB_SEED=n	another seed (it is printed)
 *	NULLB_ONLY=n	only sequence n
 *	NULLB_LONG=1	a million sequences a profile
 */
#include "elevator.h"

#define SEED         20252u
#define NR_SEQUENCES 3000u
#define NR_LONG      1000000u

/* Which sequence this is, for the one who wants to see it again. */
static struct {
	uint64_t seed;
	uint64_t number;
	const char *profile;
} where;

static inline void
hold(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	print_error("NULLB_SEED=%llu NULLB_ONLY=%llu, profile %s: %s\n",
	    (unsigned long long)where.seed, (unsigned long long)where.number,
	    where.profile, what);
	_fail(file, line);
}

/* Cheaper than assert_true(), and it names the sequence. */
#define HOLDS(ok) hold((ok), #ok, __FILE__, __LINE__)

static struct chance
chance_of_sequence(uint64_t number, uint64_t what)
{
	struct chance c = { where.seed ^ what << 56 };

	c.state = chance_next(&c) + number;
	c.state = chance_next(&c);
	return c;
}

/* Call `play` for each sequence, or for the one that is asked for. */
static void
for_sequences(const struct profile *p, unsigned divisor,
    void (*play)(const struct profile *, uint64_t))
{
	uint64_t only = env_number("NULLB_ONLY", UINT64_MAX), i;
	uint64_t nr = env_number("NULLB_LONG", 0) ? NR_LONG : NR_SEQUENCES;

	where.profile = p->name;
	for (i = 0; i < nr / divisor; i++) {
		if (only != UINT64_MAX && only != i)
			continue;
		where.number = i;
		play(p, i);
	}
}

static uint32_t
one_of(struct chance *c, const uint32_t *values, size_t nr)
{
	return values[chance_below(c, nr)];
}

#define ONE_OF(c, ...)                                 \
	one_of((c), (const uint32_t[]){ __VA_ARGS__ }, \
	    sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

static void
random_tunables(struct chance *c, struct queue_conf *conf)
{
	struct deadline_conf *d = &conf->deadline;

	d->read_expire_ms = ONE_OF(c, 500, 500, 20, 0, 3000);
	d->write_expire_ms = ONE_OF(c, 5000, 5000, 50, 0);
	d->prio_aging_expire_ms = ONE_OF(c, 10000, 10000, 100, 0);
	d->writes_starved = ONE_OF(c, 2, 2, 0, 1, 5);
	d->fifo_batch = ONE_OF(c, 16, 1, 2, 3);
	d->front_merges = chance_of(c, 75);
	conf->nomerges = ONE_OF(c, 0, 0, 0, 1, 2);
}

/* ----------------------------------------------------------- a model of it */

#define MAX_MODEL 512

struct model_rq {
	enum req_op op;
	uint8_t prio;
	unsigned class; /* 0: the best */
	unsigned dir;   /* 1: write */
	sector_t sector;
	uint64_t nr;
	unsigned nr_bios;
	bool nomerge;
	bool queued;       /* in the FIFO and the tree */
	uint64_t place;    /* in the FIFO */
	uint64_t deadline; /* ns */
};

/* One direction of one class: its tree, in order. */
struct model_dir {
	struct model_rq *rq[MAX_MODEL];
	unsigned nr;
	struct model_rq *next; /* up to 6.1: the successor of the last */
	sector_t latest;       /* 6.12: its sector */
};

struct model {
	enum age age;
	const struct queue_conf *conf;
	struct model_rq pool[MAX_MODEL];
	unsigned nr_pool;
	struct model_dir dir[3][2];
	unsigned nr_in_flight[3]; /* left, not ended */
	struct model_rq *cache;
	unsigned starved;
	unsigned batching;
	unsigned last_dir;
	uint64_t nr_places;
	struct model_rq *waits; /* left, found no tag */
	unsigned nr_tags;       /* free */
	struct model_rq *out[MAX_MODEL];
	unsigned nr_out;
	unsigned bio_merges;
	unsigned request_merges;
};

static uint64_t
model_end(const struct model_rq *rq)
{
	return rq->sector + rq->nr;
}

static bool
model_mergeable(const struct model_rq *rq)
{
	return rq->op != REQ_OP_WRITE_ZEROES && !rq->nomerge;
}

static uint64_t
model_expire(const struct model *m, unsigned dir)
{
	const struct deadline_conf *d = &m->conf->deadline;

	return MS * (dir ? d->write_expire_ms : d->read_expire_ms);
}

static struct model_dir *
model_dir(struct model *m, const struct model_rq *rq)
{
	return &m->dir[rq->class][rq->dir];
}

static unsigned
model_index(const struct model_dir *d, const struct model_rq *rq)
{
	unsigned i;

	for (i = 0; i < d->nr; i++)
		if (d->rq[i] == rq)
			return i;
	HOLDS(false);
	return 0;
}

static struct model_rq *
model_latter(const struct model_dir *d, const struct model_rq *rq)
{
	unsigned i = model_index(d, rq) + 1;

	return i < d->nr ? d->rq[i] : NULL;
}

static void
model_tree_add(struct model_dir *d, struct model_rq *rq)
{
	unsigned i = d->nr++;

	for (; i > 0 && d->rq[i - 1]->sector > rq->sector; i--)
		d->rq[i] = d->rq[i - 1];
	d->rq[i] = rq;
}

static void
model_tree_del(struct model_dir *d, const struct model_rq *rq)
{
	unsigned i = model_index(d, rq);

	d->nr--;
	for (; i < d->nr; i++)
		d->rq[i] = d->rq[i + 1];
}

/* deadline_remove_request() */
static void
model_remove(struct model *m, struct model_rq *rq)
{
	struct model_dir *d = model_dir(m, rq);

	if (rq->queued) {
		if (d->next == rq)
			d->next = model_latter(d, rq);
		model_tree_del(d, rq);
	}
	rq->queued = false;
	if (m->cache == rq)
		m->cache = NULL;
}

/* By its end, in whatever class and direction. */
static struct model_rq *
model_by_end(struct model *m, sector_t end)
{
	struct model_rq *rq;
	unsigned i;

	for (i = 0; i < m->nr_pool; i++) {
		rq = &m->pool[i];
		if (rq->queued && model_mergeable(rq) && model_end(rq) == end)
			return rq;
	}
	return NULL;
}

/* 3.4: what a request that starts here may have; a segment is 8 sectors. */
static bool
model_fits(const struct model *m, enum req_op op, sector_t sector, uint64_t nr)
{
	const struct limits *lim = &m->conf->limits;

	if (op == REQ_OP_DISCARD)
		return nr <= lim->max_discard_sectors;
	if (nr > lim->max_sectors || nr / 8 > lim->max_segments)
		return false;
	return lim->chunk_sectors == 0 ||
	       nr <= lim->chunk_sectors - sector % lim->chunk_sectors;
}

static bool
model_alike(
    const struct model *m, const struct model_rq *a, const struct model_rq *b)
{
	return model_mergeable(a) && model_mergeable(b) && a->op == b->op &&
	       (m->age == P414 || a->prio == b->prio);
}

/* 3.5: attempt_merge() */
static bool
model_merge_requests(
    struct model *m, struct model_rq *rq, struct model_rq *next)
{
	if (!model_alike(m, rq, next) || model_end(rq) != next->sector)
		return false;
	if (!model_fits(m, rq->op, rq->sector, rq->nr + next->nr))
		return false;
	/* blk_rq_get_max_segments(): one of each, and one may be */
	if (rq->op == REQ_OP_DISCARD && m->age >= P61)
		return false;
	rq->nr += next->nr;
	rq->nr_bios += next->nr_bios;
	if (rq->queued && next->queued && next->deadline < rq->deadline) {
		rq->deadline = next->deadline;
		rq->place = next->place;
	}
	model_remove(m, next);
	m->cache = rq;
	m->request_merges++;
	return true;
}

static bool
model_merge_into(
    struct model *m, struct model_rq *rq, const struct model_rq *bio, bool back)
{
	struct model_dir *d = model_dir(m, rq);
	struct model_rq *other;
	unsigned i;

	if (!model_fits(
		m, rq->op, back ? rq->sector : bio->sector, rq->nr + bio->nr)) {
		rq->nomerge = true; /* req_set_nomerge() */
		if (m->cache == rq)
			m->cache = NULL;
		return false;
	}
	m->bio_merges++;
	rq->nr += bio->nr;
	rq->nr_bios++;
	i = model_index(d, rq);
	if (back) {
		other = i + 1 < d->nr ? d->rq[i + 1] : NULL;
		if (other == NULL || !model_merge_requests(m, rq, other))
			m->cache = rq;
		return true;
	}
	rq->sector = bio->sector;
	other = i > 0 ? d->rq[i - 1] : NULL;
	if (other != NULL && model_merge_requests(m, other, rq))
		return true;
	model_tree_del(d, rq);
	model_tree_add(d, rq);
	m->cache = rq;
	return true;
}

/* 3.6: elv_merge() */
static bool
model_merge_bio(struct model *m, const struct model_rq *bio)
{
	const struct model_dir *d = model_dir(m, bio);
	struct model_rq *rq = m->cache;
	unsigned i;

	if (m->conf->nomerges == 2 || !model_mergeable(bio))
		return false;
	if (rq != NULL && model_alike(m, rq, bio)) {
		if (model_end(rq) == bio->sector)
			return model_merge_into(m, rq, bio, true);
		if (model_end(bio) == rq->sector)
			return model_merge_into(m, rq, bio, false);
	}
	if (m->conf->nomerges == 1)
		return false;
	rq = model_by_end(m, bio->sector);
	if (rq != NULL && model_alike(m, rq, bio))
		return model_merge_into(m, rq, bio, true);
	for (i = 0; m->conf->deadline.front_merges && i < d->nr; i++)
		if (d->rq[i]->sector == model_end(bio))
			return model_alike(m, d->rq[i], bio) &&
			       model_merge_into(m, d->rq[i], bio, false);
	return false;
}

/* 3.5: elv_attempt_insert_merge() */
static bool
model_merge_at_insertion(struct model *m, struct model_rq *rq)
{
	struct model_rq *into;
	bool merged = false;

	if (m->conf->nomerges == 2)
		return false;
	if (m->cache != NULL && model_merge_requests(m, m->cache, rq))
		return true;
	if (m->conf->nomerges == 1)
		return false;
	for (;; rq = into, merged = true) {
		into = model_by_end(m, rq->sector);
		if (into == NULL || !model_merge_requests(m, into, rq))
			return merged;
	}
}

static void
model_insert(struct model *m, const struct model_rq *bio, uint64_t now)
{
	struct model_rq *rq = &m->pool[m->nr_pool++];

	HOLDS(m->nr_pool <= MAX_MODEL);
	*rq = *bio;
	if (model_merge_at_insertion(m, rq))
		return;
	model_tree_add(model_dir(m, rq), rq);
	rq->queued = true;
	rq->place = m->nr_places++;
	rq->deadline = now + model_expire(m, rq->dir);
	if (m->cache == NULL && model_mergeable(rq))
		m->cache = rq;
}

/* ------------------------------------------------ and of what it dispatches */

static struct model_rq *
model_head(const struct model_dir *d)
{
	struct model_rq *head = NULL;
	unsigned i;

	for (i = 0; i < d->nr; i++)
		if (head == NULL || d->rq[i]->place < head->place)
			head = d->rq[i];
	return head;
}

static struct model_rq *
model_next(const struct model *m, const struct model_dir *d)
{
	unsigned i;

	if (m->age != P612)
		return d->next;
	for (i = 0; i < d->nr; i++)
		if (d->rq[i]->sector >= d->latest)
			return d->rq[i];
	return NULL;
}

/* 5a: the request that goes on with the batch. */
static struct model_rq *
model_batch(const struct model *m, const struct model_dir dir[2])
{
	struct model_rq *rq;

	if (m->age >= P61)
		return model_next(m, &dir[m->last_dir]);
	rq = dir[1].next;
	return rq != NULL ? rq : dir[0].next;
}

/* 5a to 5d; only one that has waited for `aging` at least. */
static struct model_rq *
model_take_class(struct model *m, unsigned class, uint64_t now, uint64_t aging)
{
	struct model_dir *dir = m->dir[class], *d;
	struct model_rq *rq = model_batch(m, dir);
	unsigned which;

	if (rq == NULL || m->batching >= m->conf->deadline.fifo_batch) {
		if (dir[0].nr == 0 && dir[1].nr == 0)
			return NULL;
		which = dir[0].nr == 0;
		if (dir[0].nr > 0 && dir[1].nr > 0 &&
		    m->starved++ >= m->conf->deadline.writes_starved)
			which = 1;
		if (which == 1)
			m->starved = 0;
		rq = model_next(m, &dir[which]);
		if (rq == NULL || model_head(&dir[which])->deadline <= now)
			rq = model_head(&dir[which]);
		m->last_dir = which;
		m->batching = 0;
	}
	if (rq->deadline - model_expire(m, rq->dir) + aging > now)
		return NULL;
	m->batching++;
	d = &dir[rq->dir];
	if (m->age <= P54)
		dir[0].next = dir[1].next = NULL;
	d->next = model_latter(d, rq);
	d->latest = rq->sector;
	model_remove(m, rq);
	m->nr_in_flight[class]++;
	return rq;
}

static unsigned
model_queued(const struct model *m, unsigned class)
{
	return m->dir[class][0].nr + m->dir[class][1].nr +
	       m->nr_in_flight[class];
}

/* 5(1), 5(2) */
static struct model_rq *
model_take(struct model *m, uint64_t now)
{
	uint64_t aging = MS * m->conf->deadline.prio_aging_expire_ms;
	struct model_rq *rq;
	unsigned i, nr = 0;

	for (i = 0; i < 3; i++)
		nr += model_queued(m, i) > 0;
	for (i = 1; nr >= 2 && i < 3; i++) {
		rq = model_take_class(m, i, now, aging);
		if (rq != NULL)
			return rq;
	}
	for (i = 0; i < 3; i++) {
		rq = model_take_class(m, i, now, 0);
		if (rq != NULL)
			return rq;
		if (model_queued(m, i) > 0)
			break;
	}
	return NULL;
}

/* What has a tag goes to the driver; one more leaves and waits for one. */
static void
model_run(struct model *m, uint64_t now)
{
	for (;;) {
		if (m->waits == NULL)
			m->waits = model_take(m, now);
		if (m->waits == NULL || m->nr_tags == 0)
			return;
		m->out[m->nr_out++] = m->waits;
		m->waits = NULL;
		m->nr_tags--;
	}
}

/* ---------------------------------------------------- the two, side by side */

#define SLOT      8u /* sectors */
#define NR_SLOTS  96u
#define NR_PLUGS  4u
#define MAX_PLAY  160u
#define MAX_PLACE 3u /* slots of a bio */

struct pair {
	struct chance chance;
	struct harness h;
	struct model m;
	struct plug plug[NR_PLUGS]; /* tasks, a bio each */
	struct model_rq plugged[NR_PLUGS];
	bool used[NR_SLOTS];
	unsigned nr_completed; /* in the order of seen[] */
	unsigned percent_reads;
	bool many_ops;
	bool many_prios;
};

/* The bio that has a slot; bios in flight never overlap. */
struct pair_bio {
	struct pair *pair;
	unsigned first, nr;
};

static void
pair_end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct pair_bio *pb = bio->priv;
	unsigned i;

	(void)now;
	HOLDS(bio->error == 0);
	for (i = 0; i < pb->nr; i++) {
		HOLDS(pb->pair->used[pb->first + i]);
		pb->pair->used[pb->first + i] = false;
	}
	pb->pair->h.nr_ended++;
	bio_release(bio, cpu);
	free(bio->bv == bio->inline_bv ? NULL : bio->bv);
	free(bio);
	free(pb);
}

/* A bio that overlaps none; NULL: there was no room where the dice fell. */
static struct bio *
pair_bio(struct pair *p, struct model_rq *as)
{
	struct chance *c = &p->chance;
	const struct limits *lim = &p->m.conf->limits;
	unsigned first = (unsigned)chance_below(c, NR_SLOTS), nr, i;
	struct pair_bio *pb;
	struct bio *bio;

	nr = (unsigned)chance_between(c, 1, MAX_PLACE);
	for (i = 0; i < nr; i++) {
		if (first + i >= NR_SLOTS || p->used[first + i])
			return NULL;
		if (i > 0 && lim->chunk_sectors > 0 &&
		    (first + i) * SLOT % lim->chunk_sectors == 0)
			return NULL;
	}
	*as = (struct model_rq){
		.sector = first * SLOT,
		.nr = nr * SLOT,
		.nr_bios = 1,
		.op =
		    chance_of(c, p->percent_reads) ? REQ_OP_READ : REQ_OP_WRITE,
	};
	if (p->many_ops && p->percent_reads < 100 && chance_of(c, 30))
		as->op =
		    chance_of(c, 70) ? REQ_OP_DISCARD : REQ_OP_WRITE_ZEROES;
	if (p->many_prios)
		as->prio = (uint8_t)chance_between(c, IOPRIO_NONE, IOPRIO_IDLE);
	as->dir = as->op != REQ_OP_READ;
	if (p->m.age >= P61)
		as->class = as->prio == IOPRIO_NONE ? 1u : as->prio - 1u;
	pb = calloc(1, sizeof(*pb));
	bio = calloc(1, sizeof(*bio));
	assert_non_null(pb);
	assert_non_null(bio);
	*pb = (struct pair_bio){ p, first, nr };
	bio_init(bio, as->op, as->sector * SECTOR_SIZE, NULL, 0);
	bio->max_bv = BIO_INLINE_VECS;
	bio->prio = as->prio;
	bio->end_io = pair_end_io;
	bio->priv = pb;
	if (as->op == REQ_OP_READ || as->op == REQ_OP_WRITE)
		add_scat(&p->h, bio, as->nr);
	else
		bio->bytes = as->nr * SECTOR_SIZE;
	for (i = 0; i < nr; i++)
		p->used[first + i] = true;
	return bio;
}

static void
pair_submit(struct pair *p)
{
	unsigned task = (unsigned)chance_below(&p->chance, NR_PLUGS);
	struct model_rq as;
	struct bio *bio = pair_bio(p, &as);
	bool plugged = chance_of(&p->chance, 40);

	if (bio == NULL)
		return;
	plugged = plugged && plug_is_empty(&p->plug[task]);
	p->h.open = plugged ? &p->plug[task] : NULL;
	h_submit(&p->h, bio);
	p->h.open = NULL;
	if (model_merge_bio(&p->m, &as)) {
		if (plugged)
			HOLDS(plug_is_empty(&p->plug[task]));
		return;
	}
	if (plugged) {
		HOLDS(p->plug[task].nr == 1);
		p->plugged[task] = as;
	} else {
		model_insert(&p->m, &as, p->h.now);
	}
}

static void
pair_flush(struct pair *p, unsigned task)
{
	if (plug_is_empty(&p->plug[task]))
		return;
	plug_flush(&p->plug[task], p->h.cpu, p->h.now);
	model_insert(&p->m, &p->plugged[task], p->h.now);
}

/* The driver ends the oldest it has. */
static void
pair_complete(struct pair *p)
{
	if (p->h.nr_held == 0)
		return;
	p->m.nr_in_flight[p->m.out[p->nr_completed++]->class]--;
	p->m.nr_tags++;
	e_end(&p->h);
}

static void
pair_compare(struct pair *p)
{
	struct harness *h = &p->h;
	const struct model_rq *m;
	const struct seen *s;
	unsigned i;

	cpu_run(h->cpu, h->now);
	queue_run(h->queue, h->cpu, h->now);
	model_run(&p->m, h->now);
	HOLDS(h->nr_seen == p->m.nr_out);
	for (i = p->nr_completed; i < h->nr_seen; i++) {
		s = &h->seen[i];
		m = p->m.out[i];
		HOLDS(s->op == m->op);
		HOLDS(s->sector == m->sector);
		HOLDS(s->nr_sectors == m->nr);
		HOLDS(s->nr_bios == m->nr_bios);
	}
}

static void
pair_step(struct pair *p)
{
	static const uint64_t ms[] = { 0, 1, 20, 500, 5000, 10000 };
	struct chance *c = &p->chance;
	uint64_t dice = chance_below(c, 100);

	p->h.now += 1 + chance_below(c, 1000);
	if (dice < 50)
		pair_submit(p);
	else if (dice < 65)
		pair_flush(p, (unsigned)chance_below(c, NR_PLUGS));
	else if (dice < 92)
		pair_complete(p);
	else
		p->h.now += ms[chance_below(c, ARRAY_SIZE(ms))] * MS;
	pair_compare(p);
}

static void
play_pair(const struct profile *profile, uint64_t number)
{
	static struct pair p; /* large */
	struct chance c = chance_of_sequence(number, 1);
	struct queue_conf conf = e_conf(profile);
	struct queue_stat st;
	uint64_t merges = 0, ios = 0;
	unsigned i, steps;

	memset(&p, 0, sizeof(p));
	random_tunables(&c, &conf);
	conf.depth = (unsigned)chance_between(&c, 1, 3);
	conf.limits.max_sectors = ONE_OF(&c, 2560, 2560, 32, 48);
	conf.limits.max_segments = ONE_OF(&c, 128, 128, 4, 6);
	conf.limits.chunk_sectors = ONE_OF(&c, 0, 0, 64);
	conf.limits.max_discard_sectors = ONE_OF(&c, 1u << 20, 32);
	p.many_ops = conf.limits.max_segments == 128 && chance_of(&c, 50);
	p.many_prios = chance_of(&c, 40);
	/*
	 * The look for the aged chooses a direction and begins a batch even if
	 * it takes nothing: with both directions it would depend on how often
	 * a queue is run.
	 */
	p.percent_reads = 50;
	if (p.many_prios)
		p.percent_reads = chance_of(&c, 50) ? 100 : 0;
	h_open(&p.h, &conf);
	p.h.hold = true;
	p.chance = c;
	p.m.age = age(profile);
	p.m.conf = &conf;
	p.m.last_dir = 1;
	p.m.nr_tags = conf.depth;
	for (i = 0; i < NR_PLUGS; i++)
		plug_init(&p.plug[i]);
	steps = (unsigned)chance_between(&c, 10, 2 * MAX_PLAY);
	for (i = 0; i < steps; i++)
		pair_step(&p);
	for (i = 0; i < NR_PLUGS; i++) {
		pair_flush(&p, i);
		pair_compare(&p);
	}
	while (p.h.nr_held > 0) {
		pair_complete(&p);
		pair_compare(&p);
	}
	HOLDS(p.h.nr_ended == p.h.nr_submitted);
	HOLDS(queue_tags_in_use(p.h.queue) == 0);
	st = h_stat(&p.h);
	for (i = 0; i < STAT_NR; i++) {
		ios += st.ios[i];
		merges += st.merges[i];
	}
	HOLDS(ios == p.h.nr_seen);
	HOLDS(merges ==
	      p.m.bio_merges + (p.m.age >= P61 ? p.m.request_merges : 0));
	h_close(&p.h);
}

static void
follows_the_model(void **state)
{
	for_sequences(*state, 1, play_pair);
}

/* ------------------------------------------------------ what always holds */

#define MAX_IO_PAGES 12u
#define MAX_REFUSED  4u
#define MAX_DRIVER   64u

struct play {
	struct chance chance;
	const struct profile *profile;
	struct machine *machine;
	struct cpu *cpu;
	struct queue *queue;
	struct queue_conf conf;
	struct plug plug[2];
	struct bio *refused[MAX_REFUSED];
	unsigned nr_refused;
	struct request *held[MAX_DRIVER];
	unsigned nr_held;
	bool tag_used[MAX_DRIVER];
	unsigned busy_percent;
	unsigned drop_percent;
	uint64_t now;
	uint64_t phys;
	uint64_t nr_submitted, nr_ended, nr_dropped;
	uint64_t nr_requests, nr_bios; /* of them */
	uint64_t sectors_in, sectors_out;
	uint64_t edge[6]; /* pages where something began or ended lately */
	bool with_flush;
};

struct play_bio {
	struct bio bio;
	struct play *play;
	bool ended;
	struct bvec bv[MAX_IO_PAGES];
};

/* What happened at all, of all sequences: a test of nothing proves nothing. */
static struct {
	uint64_t refused, dropped, busy, switches, merges;
	uint64_t request_merges; /* or what was not counted of them */
} happened;

static void
play_end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct play_bio *pb = bio->priv;

	(void)now;
	HOLDS(!pb->ended);
	pb->ended = true;
	HOLDS(bio->error == 0 || bio->error == -EINTR);
	pb->play->nr_ended++;
	bio_release(bio, cpu);
	free(pb);
}

static const struct bio *
play_owner(const struct bio *bio)
{
	while (bio->parent != NULL)
		bio = bio->parent;
	return bio;
}

/* 3.2, 3.7: what may share a request; its memory has no gap. */
static unsigned
check_bios(const struct play *p, const struct request *rq)
{
	const struct limits *lim = &p->conf.limits;
	bool anywhere =
	    rq->op == REQ_OP_DISCARD && lim->max_discard_segments > 1;
	bool alone = p->conf.nomerges == 2 || rq->op == REQ_OP_WRITE_ZEROES;
	const struct bio *bio, *first = STAILQ_FIRST(&rq->bios);
	uint64_t pos = rq->pos, bytes = 0, mask = lim->virt_boundary_mask;
	struct bvec bv, prev = {};
	struct bvec_iter it;
	unsigned nr = 0;

	STAILQ_FOREACH(bio, &rq->bios, link) {
		HOLDS(bio->op == rq->op);
		HOLDS(anywhere || bio->pos == pos);
		HOLDS(age(p->profile) == P414 || bio->prio == first->prio);
		if (bio->parent != NULL) /* the head of a split (2.5) */
			alone = true;
		if (lim->write_cache &&
		    play_owner(bio)->flags & (REQ_FUA | REQ_PREFLUSH))
			alone = true;
		it = (struct bvec_iter){};
		while (rq->op <= REQ_OP_WRITE && bio_next_bvec(bio, &it, &bv)) {
			if (prev.len > 0 && prev.phys + prev.len != bv.phys) {
				HOLDS(((prev.phys + prev.len) & mask) == 0);
				HOLDS((bv.phys & mask) == 0);
			}
			prev = bv;
		}
		pos += bio->bytes;
		bytes += bio->bytes;
		nr++;
	}
	HOLDS(bytes == rq->bytes);
	HOLDS(nr == 1 || !alone);
	return nr;
}

static void
check_limits(const struct play *p, const struct request *rq, unsigned nr_bios)
{
	const struct limits *lim = &p->conf.limits;
	uint64_t nr = rq->bytes / SECTOR_SIZE, chunk = lim->chunk_sectors;

	switch (rq->op) {
	case REQ_OP_DISCARD:
		HOLDS(nr <= lim->max_discard_sectors);
		if (lim->max_discard_segments > 1)
			HOLDS(nr_bios <= lim->max_discard_segments);
		break;
	case REQ_OP_WRITE_ZEROES:
		HOLDS(nr <= lim->max_write_zeroes_sectors);
		break;
	default:
		HOLDS(nr <= lim->max_sectors);
		HOLDS(rq->nr_segs <= lim->max_segments);
		HOLDS(rq_sg_entries(rq) <= rq->nr_segs);
		if (chunk > 0)
			HOLDS(rq_sector(rq) / chunk ==
			      (rq_sector(rq) + nr - 1) / chunk);
		break;
	}
}

static struct play *playing; /* the driver's */

static void
play_complete(struct play *p, struct request *rq)
{
	HOLDS(p->tag_used[rq->tag]);
	p->tag_used[rq->tag] = false;
	if (chance_of(&p->chance, 30))
		rq_complete_softirq(rq, p->cpu);
	else if (chance_of(&p->chance, 30))
		rq_complete_after(rq, p->cpu, chance_below(&p->chance, 5000));
	else
		rq_complete(rq, p->cpu, p->now);
}

static int
play_queue_rq(struct request *rq, struct cpu *cpu, uint64_t now)
{
	struct play *p = playing;
	unsigned nr;

	(void)now;
	if (chance_of(&p->chance, p->busy_percent)) {
		happened.busy++;
		return -EBUSY;
	}
	HOLDS(rq->tag >= 0);
	HOLDS((unsigned)rq->tag < p->conf.depth);
	HOLDS(!p->tag_used[rq->tag]);
	p->tag_used[rq->tag] = true;
	if (rq->op != REQ_OP_FLUSH) {
		nr = check_bios(p, rq);
		check_limits(p, rq, nr);
		p->nr_requests++;
		p->nr_bios += nr;
		p->sectors_out += rq->bytes / SECTOR_SIZE;
	}
	rq_moved(rq, cpu);
	if (chance_of(&p->chance, 80))
		p->held[p->nr_held++] = rq;
	else
		play_complete(p, rq);
	return 0;
}

static const struct queue_ops play_ops = { .queue_rq = play_queue_rq };

static void
play_submit(struct play *p, struct plug *plug, struct bio *bio)
{
	int err;

	p->now += 1 + chance_below(&p->chance, 1000);
	err = queue_submit(p->queue, p->cpu, plug, bio, p->now);
	if (err == 0)
		return;
	HOLDS(err == -EAGAIN);
	HOLDS(plug == NULL || plug_is_empty(plug));
	happened.refused++;
	if (chance_of(&p->chance, p->drop_percent)) {
		p->nr_dropped++;
		queue_drop(p->queue, p->cpu, bio, -EINTR, p->now);
		return;
	}
	p->refused[p->nr_refused++] = bio;
}

/* Those that were refused try again, each once. */
static void
play_again(struct play *p)
{
	struct bio *bio[MAX_REFUSED];
	unsigned i, nr = p->nr_refused;

	memcpy(bio, p->refused, sizeof(bio));
	p->nr_refused = 0;
	for (i = 0; i < nr; i++)
		play_submit(p, NULL, bio[i]);
}

static void
play_turn(struct play *p, unsigned percent)
{
	unsigned i, nr = p->nr_held;
	struct request *rq;

	for (; nr > 0; nr--) {
		if (!chance_of(&p->chance, percent))
			continue;
		i = (unsigned)chance_below(&p->chance, p->nr_held);
		rq = p->held[i];
		p->held[i] = p->held[--p->nr_held];
		play_complete(p, rq);
	}
	p->now += 1 + chance_below(&p->chance, 10000);
	cpu_run(p->cpu, p->now);
	if (chance_of(&p->chance, 30)) {
		p->now += BLK_MQ_RESOURCE_DELAY;
		cpu_run(p->cpu, p->now);
	}
	play_again(p);
}

static struct bio *
play_bio(struct play *p)
{
	static const uint8_t ops[] = { REQ_OP_READ, REQ_OP_READ, REQ_OP_READ,
		REQ_OP_WRITE, REQ_OP_WRITE, REQ_OP_WRITE, REQ_OP_DISCARD,
		REQ_OP_WRITE_ZEROES, REQ_OP_FLUSH };
	struct chance *c = &p->chance;
	struct play_bio *pb = calloc(1, sizeof(*pb));
	enum req_op op = (enum req_op)ops[chance_below(c, ARRAY_SIZE(ops))];
	unsigned i, pages = (unsigned)chance_between(c, 1, 3);
	uint64_t at;

	assert_non_null(pb);
	if (op == REQ_OP_FLUSH && !p->with_flush)
		op = REQ_OP_READ;
	if (chance_of(c, 10))
		pages = MAX_IO_PAGES;
	/* beside the others, or somewhere, also on top of them */
	if (chance_of(c, 30))
		at = chance_below(c, 200);
	else if (chance_of(c, 50))
		at = p->edge[chance_below(c, ARRAY_SIZE(p->edge))];
	else
		at = p->edge[chance_below(c, ARRAY_SIZE(p->edge))] - pages;
	at %= 4096;
	p->edge[p->nr_submitted % ARRAY_SIZE(p->edge)] =
	    at + (chance_of(c, 50) ? pages : 0);
	bio_init(&pb->bio, op, at * PAGE_SIZE, pb->bv, MAX_IO_PAGES);
	pb->play = p;
	pb->bio.end_io = play_end_io;
	pb->bio.priv = pb;
	if (chance_of(c, 15))
		pb->bio.prio =
		    (uint8_t)chance_between(c, IOPRIO_RT, IOPRIO_IDLE);
	if (op == REQ_OP_WRITE && chance_of(c, 8))
		pb->bio.flags |= REQ_FUA;
	if (op == REQ_OP_WRITE && p->with_flush && chance_of(c, 5))
		pb->bio.flags |= REQ_PREFLUSH;
	if (op == REQ_OP_FLUSH)
		pb->bio.pos = 0;
	else if (op > REQ_OP_WRITE)
		pb->bio.bytes = pages * PAGE_SIZE;
	p->phys += PAGE_SIZE;
	for (i = 0; op <= REQ_OP_WRITE && i < pages; i++) {
		HOLDS(bio_add(&pb->bio, p->conf.multipage, p->phys,
		    op == REQ_OP_READ ? NULL : h_memory + i * PAGE_SIZE,
		    PAGE_SIZE));
		p->phys += PAGE_SIZE * chance_between(c, 1, 2);
	}
	p->nr_submitted++;
	p->sectors_in += pb->bio.bytes / SECTOR_SIZE;
	return &pb->bio;
}

static void
play_random_conf(struct play *p)
{
	struct chance *c = &p->chance;
	struct limits *lim = &p->conf.limits;

	random_tunables(c, &p->conf);
	p->conf.elevator =
	    elevator_find(chance_of(c, 80) ? "mq-deadline" : "none");
	p->conf.nr_requests = ONE_OF(c, 0, 1, 2, 5, 40);
	if (p->conf.elevator->ops == NULL &&
	    p->conf.nr_requests > p->conf.depth)
		p->conf.nr_requests = p->conf.depth;
	p->conf.deadline.async_depth = ONE_OF(c, 0, 0, 1, 3);
	p->conf.plug_mode = (enum plug_mode)ONE_OF(
	    c, PLUG_TASK, PLUG_TASK, PLUG_CALL, PLUG_EACH);
	lim->max_sectors = ONE_OF(c, 2560, 2560, 16, 40);
	lim->max_segments = ONE_OF(c, 128, 128, 2, 5);
	lim->chunk_sectors = ONE_OF(c, 0, 0, 32);
	lim->virt_boundary_mask = ONE_OF(c, 0, 4095);
	lim->max_discard_sectors = ONE_OF(c, 1u << 20, 64);
	lim->max_discard_segments = ONE_OF(c, 1, 4);
	lim->max_write_zeroes_sectors = ONE_OF(c, 1u << 16, 40);
}

static void
play_flush(struct play *p)
{
	unsigned i;

	for (i = 0; i < ARRAY_SIZE(p->plug); i++)
		plug_flush(&p->plug[i], p->cpu, p->now);
}

/* Freeze, have all plugs closed, let all end, change, thaw. */
static void
play_switch(struct play *p)
{
	unsigned turn;

	happened.switches++;
	queue_freeze(p->queue);
	play_flush(p);
	for (turn = 0; !queue_frozen(p->queue); turn++) {
		HOLDS(turn < 1000);
		play_turn(p, 70);
		p->now += 100 * MS;
	}
	HOLDS(p->nr_held == 0);
	HOLDS(queue_tags_in_use(p->queue) == 0);
	HOLDS(p->nr_ended + p->nr_refused == p->nr_submitted);
	play_random_conf(p);
	HOLDS(queue_update(p->queue, &p->conf) == 0);
	queue_thaw(p->queue);
}

static void
play_drain(struct play *p)
{
	unsigned turn;

	p->busy_percent = 0;
	play_flush(p);
	for (turn = 0; p->nr_ended < p->nr_submitted; turn++) {
		HOLDS(turn < 1000);
		play_turn(p, 70);
		p->now += 100 * MS; /* a lower class may have to age */
	}
}

static void
play_check(struct play *p)
{
	struct queue_stat st;
	uint64_t merges = 0, sectors = 0, ios = 0;
	unsigned i;

	HOLDS(p->nr_ended == p->nr_submitted);
	HOLDS(queue_tags_in_use(p->queue) == 0);
	stat_read(p->queue, &st, p->now);
	HOLDS(st.in_flight == 0);
	HOLDS(st.inflight_rw[0] == 0);
	HOLDS(st.inflight_rw[1] == 0);
	for (i = 0; i < STAT_FLUSH; i++) {
		ios += st.ios[i];
		merges += st.merges[i];
		sectors += st.sectors[i];
	}
	HOLDS(sectors == p->sectors_out);
	if (p->nr_dropped == 0)
		HOLDS(p->sectors_in == p->sectors_out);
	/* 3.5: bios = ios + merges, and the merges of requests up to 5.4 */
	HOLDS(p->nr_bios >= p->nr_requests + merges);
	if (age(p->profile) >= P61)
		HOLDS(p->nr_bios == p->nr_requests + merges);
	if (!p->with_flush)
		HOLDS(ios == p->nr_requests);
	happened.merges += merges;
	happened.request_merges += p->nr_bios - p->nr_requests - merges;
}

static void
play_properties(const struct profile *profile, uint64_t number)
{
	static struct play p;
	uint64_t dice;
	unsigned steps;

	memset(&p, 0, sizeof(p));
	playing = &p;
	p.chance = chance_of_sequence(number, 2);
	p.profile = profile;
	p.conf = e_conf(profile);
	p.conf.depth = (unsigned)chance_between(&p.chance, 1, 8);
	p.with_flush = chance_of(&p.chance, 30);
	p.conf.limits.write_cache = p.with_flush;
	p.conf.limits.fua = chance_of(&p.chance, 50);
	p.busy_percent = ONE_OF(&p.chance, 0, 0, 20, 60);
	p.drop_percent = ONE_OF(&p.chance, 0, 0, 20);
	play_random_conf(&p);
	p.now = 1000000000;
	p.phys = 1ull << 32;
	p.machine = machine_new(1, NULL, NULL);
	assert_non_null(p.machine);
	p.cpu = &p.machine->cpu[0];
	HOLDS(queue_new(&p.queue, p.machine, &play_ops, NULL, &p.conf) == 0);
	plug_init(&p.plug[0]);
	plug_init(&p.plug[1]);
	steps = (unsigned)chance_between(&p.chance, 10, 150);
	while (steps-- > 0) {
		dice = chance_below(&p.chance, 100);
		if (dice < 60 && p.nr_refused < MAX_REFUSED)
			play_submit(&p, dice < 40 ? &p.plug[dice % 2] : NULL,
			    play_bio(&p));
		else if (dice < 75)
			plug_flush(&p.plug[dice % 2], p.cpu, p.now);
		else if (dice < 97)
			play_turn(&p, 40);
		else if (dice < 99)
			p.now += 1000 * MS;
		else
			play_switch(&p);
	}
	play_drain(&p);
	play_check(&p);
	queue_free(p.queue);
	machine_free(p.machine);
}

static void
properties(void **state)
{
	memset(&happened, 0, sizeof(happened));
	for_sequences(*state, 1, play_properties);
	if (getenv("NULLB_ONLY") != NULL)
		return;
	HOLDS(happened.refused > 0);
	HOLDS(happened.busy > 0);
	HOLDS(happened.switches > 0);
	HOLDS(happened.merges > 0);
	HOLDS((happened.request_merges > 0) == (age(*state) <= P54));
}

/* --------------------------------------------------- that nothing starves */

#define NR_WAITING 24u

/* A bio that waits: since how many requests is it too late? */
struct late_bio {
	bool used;
	bool late;
	uint64_t deadline;
	unsigned seen;
};

static struct late_bio waiting[NR_WAITING];
static unsigned nr_waiting;

static void
late_end_io(struct bio *bio, struct cpu *cpu, uint64_t now)
{
	struct late_bio *lb = bio->priv;

	(void)now;
	lb->used = false;
	nr_waiting--;
	bio_release(bio, cpu);
	free(bio);
}

static void
late_submit(struct harness *h, struct chance *c, struct late_bio *lb,
    sector_t *stream, const struct deadline_conf *conf)
{
	struct bio *bio = calloc(1, sizeof(*bio));
	enum req_op op = chance_of(c, 60) ? REQ_OP_READ : REQ_OP_WRITE;
	sector_t sector = chance_below(c, 1000) * 16;

	assert_non_null(bio);
	/* most of them go on where the last were: a batch never ends */
	if (chance_of(c, 85))
		sector = *stream += 16;
	bio_init(bio, op, sector * SECTOR_SIZE, NULL, 0);
	bio->max_bv = BIO_INLINE_VECS;
	bio->end_io = late_end_io;
	bio->priv = lb;
	add_contig(h, bio, 8);
	*lb = (struct late_bio){ .used = true };
	nr_waiting++;
	HOLDS(h_try_submit(h, bio) == 0);
	lb->deadline =
	    h->now + MS * (op == REQ_OP_READ ? conf->read_expire_ms
					     : conf->write_expire_ms);
}

/*
 * Of those before it in the FIFO each batch of its direction serves one; reads
 * come again after a batch of writes, writes after writes_starved of reads.
 */
static void
play_starvation(const struct profile *profile, uint64_t number)
{
	static struct harness h;
	struct chance c = chance_of_sequence(number, 3);
	struct queue_conf conf = e_conf(profile);
	struct late_bio *lb;
	sector_t stream = 1u << 20;
	unsigned i, steps, bound;

	conf.deadline.read_expire_ms = ONE_OF(&c, 5, 20, 100);
	conf.deadline.write_expire_ms = ONE_OF(&c, 5, 50, 200);
	conf.deadline.writes_starved = ONE_OF(&c, 1, 2, 5);
	conf.deadline.fifo_batch = ONE_OF(&c, 1, 4, 16);
	bound = (NR_WAITING + 1) * (conf.deadline.writes_starved + 1) *
		conf.deadline.fifo_batch;
	memset(waiting, 0, sizeof(waiting));
	nr_waiting = 0;
	h_open(&h, &conf);
	h.hold = true;
	for (steps = 0; steps < 3000; steps++) {
		for (i = 0; i < NR_WAITING; i++) {
			lb = &waiting[i];
			if (!lb->used)
				late_submit(
				    &h, &c, lb, &stream, &conf.deadline);
			if (!lb->late && h.now >= lb->deadline) {
				lb->late = true;
				lb->seen = h.nr_seen;
			}
			if (lb->late)
				HOLDS(h.nr_seen - lb->seen <= bound);
		}
		h.now += MS;
		e_end(&h);
	}
	while (h.nr_held > 0)
		e_end(&h);
	HOLDS(nr_waiting == 0);
	h_close(&h);
}

static void
starves_nothing(void **state)
{
	for_sequences(*state, 100, play_starvation);
}

static const struct example examples[] = {
	{ "5, 3.5, 3.6: dispatches and merges as a model of it",
	    follows_the_model },
	{ "(a, b, c, f) hold while the disk's settings change", properties },
	{ "5: what has expired leaves within a bound", starves_nothing }, {}
};

int
main(void)
{
	where.seed = env_number("NULLB_SEED", SEED);
	print_message("NULLB_SEED=%llu\n", (unsigned long long)where.seed);
	return run_examples("mq-deadline at random", examples);
}
