/* SPDX-License-Identifier: MIT */
/*
 * The devices as the kernel's files show them, for scripts that were written
 * for null_blk:
 *
 *	config/nullb/features
 *	config/nullb/NAME/ATTRIBUTE	mkdir and rmdir; power brings it up
 *	config/nullb/NAME/timeout_inject/probability ...
 *	block/NAME/stat ...		while it is on
 *	block/NAME/queue/ATTRIBUTE
 *	block/NAME/queue/iosched/ATTRIBUTE
 *
 * Contents, modes and errors are the kernel's.  What makes files of it is
 * elsewhere; here a file is a number:
 *
 *	63 ......... 32  31 ........ 16  15 .. 12  11 ........ 0
 *	generation of    slot of the     kind      row of its
 *	the slot         device, + 1               table
 *
 * A slot is a device that was looked up; when it is gone, another may have it.
 * Fixed files have numbers below that.
 */
#include "ctl/ctl.h"

#include <sys/stat.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_SHIFT 16
#define KIND_SHIFT 12
#define ROW_MASK   ((1u << KIND_SHIFT) - 1)
#define FILE_BITS  4 /* of a row that has a directory's number above it */
#define FILE_MASK  ((1u << FILE_BITS) - 1)
#define MAX_SLOTS  0xfffeu

enum {
	INO_ROOT = TREE_ROOT,
	INO_CONFIG,
	INO_NULLB,
	INO_FEATURES,
	INO_BLOCK
};

enum kind {
	CONFIG_DIR,
	CONFIG_ATTR,
	BLOCK_DIR,
	BLOCK_FILE,
	QUEUE_DIR,
	QUEUE_ATTR,
	IOSCHED_DIR,
	IOSCHED_ATTR,
	INJECT_DIR,
	INJECT_FILE,
	QUEUE_FILE,
	NR_KINDS
};

struct slot {
	char name[DISK_NAME_LEN]; /* "": of no device */
	uint32_t generation;
	struct inject inject[NR_INJECTS];
};

struct tree {
	const struct ctl *ctl;
	struct slot *slot;
	unsigned nr_slots;
};

/* What a number means. */
struct node {
	struct slot *slot; /* NULL: a fixed file */
	struct disk *disk;
	enum kind kind;
	unsigned row;
};

struct tree *
tree_new(const struct ctl *ctl)
{
	struct tree *t = calloc(1, sizeof(*t));

	if (t != NULL)
		t->ctl = ctl;
	return t;
}

void
tree_free(struct tree *t)
{
	if (t != NULL)
		free(t->slot);
	free(t);
}

/* ---- what there is */

/* A text that is always the same; NULL: print_block() has it. */
struct file {
	const char *name, *text;
};

static const struct file block_files[] = {
	{ "alignment_offset", "0" },
	{ "capability", "0" },
	{ "discard_alignment", "0" },
	{ "hidden", "0" },
	{ "inflight", NULL },
	{ "queue", NULL },
	{ "removable", "0" },
	{ "ro", NULL },
	{ "size", NULL },
	{ "stat", NULL },
	{},
};

/* Of queue/ what is no attribute of ours, but true. */
static const struct file queue_files[] = {
	{ "add_random", "0" },
	{ "dax", "0" },
	{ "discard_zeroes_data", "0" },
	{ "max_integrity_segments", "0" },
	{ "optimal_io_size", "0" },
	{ "rq_affinity", "1" },
	{ "stable_writes", "0" },
	{ "write_same_max_bytes", "0" },
	{},
};
#define NR(table) ((unsigned)(sizeof(table) / sizeof((table)[0])) - 1)

/* Which table a kind's rows are in, by what stands before their names. */
static bool
is_in(enum kind kind, const struct attr *a)
{
	switch (kind) {
	case CONFIG_ATTR: return disk_attr_is_file(a);
	case QUEUE_ATTR: return strcmp(attr_prefix(a), "queue/") == 0;
	case IOSCHED_ATTR: return strcmp(attr_prefix(a), "queue/iosched/") == 0;
	default: return false;
	}
}

/* How many rows a kind has, at most. */
static unsigned
nr_rows(enum kind kind)
{
	switch (kind) {
	case CONFIG_ATTR:
	case QUEUE_ATTR:
	case IOSCHED_ATTR: return (unsigned)attr_count(disk_attrs);
	case BLOCK_FILE: return NR(block_files);
	case QUEUE_FILE: return NR(queue_files);
	case INJECT_DIR: return NR_INJECTS;
	case INJECT_FILE: return NR_INJECTS << FILE_BITS;
	default: return 1;
	}
}

/* ---- numbers */

static struct disk *
find_disk(const struct tree *t, const char *name)
{
	for (unsigned i = 0; i < t->ctl->nr_disks; i++)
		if (strcmp(t->ctl->disks[i]->name, name) == 0)
			return t->ctl->disks[i];
	return NULL;
}

static struct slot *
find_slot(const struct tree *t, const char *name)
{
	for (unsigned i = 0; i < t->nr_slots; i++)
		if (strcmp(t->slot[i].name, name) == 0)
			return &t->slot[i];
	return NULL;
}

static struct slot *
one_more_slot(struct tree *t)
{
	struct slot *s;

	if (t->nr_slots == MAX_SLOTS)
		return NULL;
	s = realloc(t->slot, (t->nr_slots + 1) * sizeof(*s));
	if (s == NULL)
		return NULL;
	t->slot = s;
	s = &s[t->nr_slots++];
	s->generation = 0;
	return s;
}

/* That of the name, or one of a device that is gone, or a new one. */
static struct slot *
slot_of(struct tree *t, const char *name)
{
	struct slot *s = find_slot(t, name);

	if (s != NULL)
		return s;
	s = find_slot(t, "");
	if (s == NULL)
		s = one_more_slot(t);
	if (s == NULL)
		return NULL;
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->generation++;
	for (unsigned i = 0; i < NR_INJECTS; i++)
		inject_init(&s->inject[i]);
	return s;
}

void
tree_forget(struct tree *t, const char *name)
{
	struct slot *s = find_slot(t, name);

	if (s != NULL)
		s->name[0] = '\0';
}

/* 0: there is no room for it. */
static uint64_t
ino_of(struct tree *t, const struct slot *s, enum kind kind, unsigned row)
{
	if (s == NULL)
		return 0;
	return (uint64_t)s->generation << 32 |
	       (uint64_t)(s - t->slot + 1) << SLOT_SHIFT |
	       (uint64_t)kind << KIND_SHIFT | row;
}

/* Is it there only while the device is on? */
static bool
needs_power(enum kind kind)
{
	switch (kind) {
	case CONFIG_DIR:
	case CONFIG_ATTR:
	case INJECT_DIR:
	case INJECT_FILE: return false;
	default: return true;
	}
}

/* False: it is gone, or there never was such a file. */
static bool
resolve(const struct tree *t, uint64_t ino, struct node *out)
{
	uint64_t slot = ino >> SLOT_SHIFT & 0xffff;

	*out = (struct node){};
	if (ino <= INO_BLOCK)
		return ino >= INO_ROOT;
	if (slot == 0 || slot > t->nr_slots)
		return false;
	out->slot = &t->slot[slot - 1];
	out->kind = ino >> KIND_SHIFT & 0xf;
	out->row = ino & ROW_MASK;
	out->disk = find_disk(t, out->slot->name);
	return out->slot->generation == ino >> 32 && out->kind < NR_KINDS &&
	       out->row < nr_rows(out->kind) && out->disk != NULL &&
	       (!needs_power(out->kind) || out->disk->queue != NULL);
}

/* ---- what is in a directory */

/* The nth attribute of such a directory: its row, or -1. */
static int
nth_row(enum kind kind, unsigned n)
{
	for (int row = 0; disk_attrs[row].name != NULL; row++)
		if (is_in(kind, &disk_attrs[row]) && n-- == 0)
			return row;
	return -1;
}

/* The nth device, or the nth that is on. */
static struct disk *
nth_disk(const struct tree *t, unsigned n, bool on)
{
	for (unsigned i = 0; i < t->ctl->nr_disks; i++) {
		struct disk *d = t->ctl->disks[i];

		if ((!on || d->queue != NULL) && n-- == 0)
			return d;
	}
	return NULL;
}

static bool
give(struct tree_entry *e, const char *name, uint64_t ino)
{
	e->name = name;
	e->ino = ino;
	return ino != 0;
}

static bool
give_disk(struct tree *t, struct disk *d, enum kind kind, struct tree_entry *e)
{
	return d != NULL &&
	       give(e, d->name, ino_of(t, slot_of(t, d->name), kind, 0));
}

static bool
give_row(struct tree *t, const struct node *dir, enum kind kind, unsigned n,
    struct tree_entry *e)
{
	int row = nth_row(kind, n);

	return row >= 0 && give(e, disk_attrs[row].name,
			       ino_of(t, dir->slot, kind, (unsigned)row));
}

/* A device has directories of fault injection first. */
static bool
give_config(
    struct tree *t, const struct node *dir, unsigned n, struct tree_entry *e)
{
	if (n >= NR_INJECTS)
		return give_row(t, dir, CONFIG_ATTR, n - NR_INJECTS, e);
	return give(
	    e, inject_directory(n), ino_of(t, dir->slot, INJECT_DIR, n));
}

static bool
give_inject(
    struct tree *t, const struct node *dir, unsigned n, struct tree_entry *e)
{
	return inject_file(n) != NULL && give(e, inject_file(n),
					     ino_of(t, dir->slot, INJECT_FILE,
						 dir->row << FILE_BITS | n));
}

/* queue/ has iosched/ first, if there is a scheduler. */
static bool
give_queue(
    struct tree *t, const struct node *dir, unsigned n, struct tree_entry *e)
{
	if (dir->disk->conf.scheduler->ops != NULL && n-- == 0)
		return give(e, "iosched", ino_of(t, dir->slot, IOSCHED_DIR, 0));
	if (n < NR(queue_files))
		return give(e, queue_files[n].name,
		    ino_of(t, dir->slot, QUEUE_FILE, n));
	n -= NR(queue_files);
	return give_row(t, dir, QUEUE_ATTR, n, e);
}

static bool
give_block(
    struct tree *t, const struct node *dir, unsigned n, struct tree_entry *e)
{
	const char *name = block_files[n].name;
	enum kind kind = BLOCK_FILE;

	if (name == NULL)
		return false;
	if (strcmp(name, "queue") == 0) {
		kind = QUEUE_DIR;
		n = 0;
	}
	return give(e, name, ino_of(t, dir->slot, kind, n));
}

static bool
give_fixed(struct tree *t, uint64_t dir, unsigned n, struct tree_entry *e)
{
	switch (dir) {
	case INO_ROOT:
		if (n == 0)
			return give(e, "block", INO_BLOCK);
		return n == 1 && give(e, "config", INO_CONFIG);
	case INO_CONFIG: return n == 0 && give(e, "nullb", INO_NULLB);
	case INO_NULLB:
		if (n == 0)
			return give(e, "features", INO_FEATURES);
		return give_disk(t, nth_disk(t, n - 1, false), CONFIG_DIR, e);
	case INO_BLOCK: return give_disk(t, nth_disk(t, n, true), BLOCK_DIR, e);
	default: return false;
	}
}

bool
tree_entry(struct tree *t, uint64_t dir, unsigned n, struct tree_entry *e)
{
	struct node node;

	if (!resolve(t, dir, &node))
		return false;
	if (node.slot == NULL)
		return give_fixed(t, dir, n, e);
	switch (node.kind) {
	case CONFIG_DIR: return give_config(t, &node, n, e);
	case INJECT_DIR: return give_inject(t, &node, n, e);
	case BLOCK_DIR: return give_block(t, &node, n, e);
	case QUEUE_DIR: return give_queue(t, &node, n, e);
	case IOSCHED_DIR: return give_row(t, &node, IOSCHED_ATTR, n, e);
	default: return false;
	}
}

/* The same as to look at all of them. */
static uint64_t
lookup_disk(struct tree *t, uint64_t dir, const char *name)
{
	struct disk *d = find_disk(t, name);
	struct tree_entry e;

	if (d == NULL || (dir == INO_BLOCK && d->queue == NULL) ||
	    !give_disk(t, d, dir == INO_BLOCK ? BLOCK_DIR : CONFIG_DIR, &e))
		return 0;
	return e.ino;
}

uint64_t
tree_lookup(struct tree *t, uint64_t dir, const char *name)
{
	struct tree_entry e;

	if (dir == INO_BLOCK ||
	    (dir == INO_NULLB && strcmp(name, "features") != 0))
		return lookup_disk(t, dir, name);
	for (unsigned n = 0; tree_entry(t, dir, n, &e); n++)
		if (strcmp(e.name, name) == 0)
			return e.ino;
	return 0;
}

/* ---- what a file is */

/* Of the kernel's attributes those that only a write has a meaning for. */
static bool
is_write_only(const struct attr *a)
{
	return strcmp(a->name, "zone_readonly") == 0 ||
	       strcmp(a->name, "zone_offline") == 0;
}

int
tree_mode(const struct tree *t, uint64_t ino, mode_t *out)
{
	struct node n;

	if (!resolve(t, ino, &n))
		return -ENOENT;
	if (n.slot == NULL) {
		*out = ino == INO_FEATURES ? S_IFREG | 0444 : S_IFDIR | 0755;
		return 0;
	}
	switch (n.kind) {
	case CONFIG_ATTR:
		*out =
		    S_IFREG | (is_write_only(&disk_attrs[n.row]) ? 0200 : 0644);
		break;
	case QUEUE_ATTR:
	case IOSCHED_ATTR:
		*out = S_IFREG | (disk_attrs[n.row].live ? 0644 : 0444);
		break;
	case INJECT_FILE: *out = S_IFREG | 0644; break;
	case QUEUE_FILE:
	case BLOCK_FILE: *out = S_IFREG | 0444; break;
	default: *out = S_IFDIR | 0755; break;
	}
	return 0;
}

/* elv_iosched_show(): all that there are. */
static void
print_schedulers(const struct disk_conf *conf, FILE *out)
{
	const struct elevator_type *e = &elevators[0];
	bool none = conf->scheduler == e,
	     first = conf->kernel->shows_none_first;

	if (conf->no_sched) {
		fprintf(out, "%s\n", e->name);
		return;
	}
	if (none || first)
		fprintf(out, none ? "[%s] " : "%s ", e->name);
	for (const struct elevator_type *other = e + 1; other->name != NULL;
	     other++)
		if (other->available)
			fprintf(out, other == conf->scheduler ? "[%s] " : "%s ",
			    other->name);
	fprintf(out, "%s\n", none || first ? "" : e->name);
}

/* A line; bad blocks are lines, perhaps none. */
static void
print_attr(const struct attr *a, const struct disk_conf *conf, FILE *out)
{
	long before = ftell(out);

	if (a->type == ATTR_ROW && a->rows == elevators) {
		print_schedulers(conf, out);
		return;
	}
	attr_get(a, conf, out);
	if (a->type != ATTR_OBJECT || ftell(out) != before)
		fputc('\n', out);
}

static void
print_block(struct disk *d, const struct file *file, uint64_t now, FILE *out)
{
	struct queue_stat st;

	if (file->text != NULL) {
		fprintf(out, "%s\n", file->text);
		return;
	}
	stat_read(d->queue, &st, now);
	if (strcmp(file->name, "stat") == 0)
		stat_show(d->queue, &st, out);
	else if (strcmp(file->name, "inflight") == 0)
		fprintf(out, "%8u %8u\n", (unsigned)st.inflight_rw[0],
		    (unsigned)st.inflight_rw[1]);
	else if (strcmp(file->name, "size") == 0)
		fprintf(out, "%" PRIu64 "\n", disk_size(d) >> SECTOR_SHIFT);
	else
		fprintf(out, "%d\n", d->conf.ro);
}

int
tree_read(const struct tree *t, uint64_t ino, uint64_t now, FILE *out)
{
	struct node n;
	unsigned i;

	if (!resolve(t, ino, &n))
		return -ENOENT;
	if (ino == INO_FEATURES) {
		disk_features(out);
		return 0;
	}
	if (n.slot == NULL)
		return -EISDIR;
	switch (n.kind) {
	case CONFIG_ATTR:
	case QUEUE_ATTR:
	case IOSCHED_ATTR:
		if (n.kind == CONFIG_ATTR && is_write_only(&disk_attrs[n.row]))
			return -EACCES;
		print_attr(&disk_attrs[n.row], disk_shown(n.disk), out);
		return 0;
	case BLOCK_FILE:
		print_block(n.disk, &block_files[n.row], now, out);
		return 0;
	case QUEUE_FILE:
		fprintf(out, "%s\n", queue_files[n.row].text);
		return 0;
	case INJECT_FILE:
		i = n.row >> FILE_BITS;
		inject_show(&n.slot->inject[i], i, n.row & FILE_MASK,
		    disk_shown(n.disk), out);
		return 0;
	default: return -EISDIR;
	}
}

struct disk *
tree_disk(const struct tree *t, uint64_t ino)
{
	struct node n;

	return resolve(t, ino, &n) ? n.disk : NULL;
}

/* ---- changes */

/* What null_blk lets change while the power is on (1.1). */
static bool
is_unlocked(const char *name)
{
	static const char *const names[] = { "power", "submit_queues",
		"poll_queues", "badblocks", "zone_readonly", "zone_offline" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/* It is parsed before it is refused. */
static int
refuse_locked(const struct attr *a, const char *value)
{
	struct disk_conf scratch;
	char err[1];
	int ret;

	if (attr_init(disk_attrs, &scratch) != 0)
		return -ENOMEM;
	ret = attr_set(
	    disk_attrs, &scratch, a->name, value, false, err, sizeof(err));
	attr_fini(disk_attrs, &scratch);
	return ret != 0 ? ret : -EBUSY;
}

/* sysfs has strstrip() for words; of numbers the parser takes one newline. */
static int
set(const struct tree *t, void *from, struct disk *d, const struct attr *a,
    const char *value, uint64_t now)
{
	char name[80], err[CTL_MAX_ERROR], *word = NULL;
	size_t len = strlen(value);
	int ret;

	snprintf(name, sizeof(name), "%s%s", attr_prefix(a), a->name);
	if (a->type == ATTR_ROW) {
		for (; isspace((unsigned char)*value); value++)
			len--;
		while (len > 0 && isspace((unsigned char)value[len - 1]))
			len--;
		value = word = strndup(value, len);
		if (word == NULL)
			return -ENOMEM;
	}
	ret = ctl_set(t->ctl, from, d, name, value, now, err, sizeof(err));
	free(word);
	return ret;
}

static int
write_inject(const struct tree *t, void *from, const struct node *n,
    const char *value, uint64_t now)
{
	unsigned i = n->row >> FILE_BITS;
	char text[80], err[CTL_MAX_ERROR];
	int ret = inject_write(
	    &n->slot->inject[i], n->row & FILE_MASK, value, text, sizeof(text));

	if (ret != 0 || text[0] == '\0')
		return ret;
	return ctl_set(t->ctl, from, n->disk, inject_attribute(i), text, now,
	    err, sizeof(err));
}

int
tree_write(const struct tree *t, void *from, uint64_t ino, const char *value,
    uint64_t now)
{
	const struct attr *a;
	struct node n;

	if (!resolve(t, ino, &n))
		return -ENOENT;
	if (n.slot != NULL && n.kind == INJECT_FILE)
		return write_inject(t, from, &n, value, now);
	if (n.slot == NULL || (n.kind != CONFIG_ATTR && n.kind != QUEUE_ATTR &&
				  n.kind != IOSCHED_ATTR))
		return -EACCES;
	a = &disk_attrs[n.row];
	if (n.kind != CONFIG_ATTR && !a->live)
		return -EACCES;
	if (n.kind == CONFIG_ATTR && n.disk->queue != NULL &&
	    !is_unlocked(a->name))
		return refuse_locked(a, value);
	return set(t, from, n.disk, a, value, now);
}

/* As in null_blk it is off (1.1). */
int
tree_mkdir(const struct tree *t, void *from, uint64_t dir, const char *name)
{
	char err[CTL_MAX_ERROR];
	json_t *attributes;
	int ret;

	if (dir != INO_NULLB)
		return -EPERM;
	if (strlen(name) >= DISK_NAME_LEN)
		return -ENAMETOOLONG;
	if (strcmp(name, "features") == 0)
		return -EEXIST;
	attributes = json_pack("{s:s}", "power", "0");
	if (attributes == NULL)
		return -ENOMEM;
	ret = ctl_create(t->ctl, from, name, attributes, err, sizeof(err));
	json_decref(attributes);
	return ret;
}

int
tree_rmdir(struct tree *t, void *from, uint64_t dir, const char *name)
{
	uint64_t ino = tree_lookup(t, dir, name);
	struct node n;

	if (ino == 0)
		return -ENOENT;
	if (dir != INO_NULLB || !resolve(t, ino, &n) || n.slot == NULL)
		return -EPERM;
	if (t->ctl->remove == NULL)
		return -EOPNOTSUPP;
	return t->ctl->remove(from, n.disk);
}
