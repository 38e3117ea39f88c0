/* SPDX-License-Identifier: MIT */
/*
 * Metadata contexts: what there is to know of an export besides its data.  A
 * client picks some by name in the handshake, and asks for ranges later.
 *
 *	|u32 length|name of the export|u32 count|u32 length|query|...
 *
 * Which contexts an export has, and what they say, is the export's.
 */
#include "nbd/session.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ------------------------------------------------------------ the options */

/* What an option asks for: the queries have not been looked at. */
struct context_request {
	char name[NBD_MAX_STRING + 1];
	uint32_t nr_queries;
	const char *queries, *end;
};

/* |u32 length|bytes of it|  The rest of [*p, end) is behind it; or false. */
static bool
string_take(const char **p, const char *end, const char **str, uint32_t *len)
{
	if (end - *p < 4)
		return false;
	*len = get_be32(*p);
	*p += 4;
	if (*len > (size_t)(end - *p))
		return false;
	*str = *p;
	*p += *len;
	return true;
}

/* NULL, or what is wrong (N93). */
static const char *
request_parse(struct context_request *req, const char *data, uint32_t len)
{
	const char *p = data, *end = data + len, *str;
	uint32_t n, i;

	if (!string_take(&p, end, &str, &n))
		return "name longer than the option";
	if (!option_name(req->name, str, n))
		return "name too long, or with a NUL in it";
	if (end - p < 4)
		return "option too short";
	req->nr_queries = get_be32(p);
	p += 4;
	req->queries = p;
	req->end = end;
	for (i = 0; i < req->nr_queries; i++) {
		if (!string_take(&p, end, &str, &n))
			return "query longer than the option";
		if (n > NBD_MAX_STRING)
			return "query longer than 4096 bytes"; /* N94 */
	}
	return p == end ? NULL : "more than the queries it counts";
}

/* In a list an empty leaf means all of the namespace (N97, N106). */
static bool
query_matches(const char *query, uint32_t len, const char *name, bool list)
{
	size_t name_len = strlen(name);

	if (len == name_len)
		return memcmp(query, name, len) == 0;
	return list && len > 0 && len < name_len && query[len - 1] == ':' &&
	       memcmp(query, name, len) == 0;
}

/* Those of the export that any query names; others are nobody's (N99). */
static uint32_t
contexts_find(const struct context_request *req,
    const struct nbd_context *contexts, bool list)
{
	const char *p = req->queries, *query;
	uint32_t found = 0, len, i;
	unsigned k;

	for (i = 0; i < req->nr_queries; i++) {
		if (!string_take(&p, req->end, &query, &len))
			break; /* request_parse() has seen them all */
		for (k = 0; contexts[k].name != NULL; k++)
			if (query_matches(query, len, contexts[k].name, list))
				found |= UINT32_C(1) << k; /* N100: once */
	}
	if (list && req->nr_queries == 0)
		found = UINT32_MAX;
	return found;
}

/* What a BLOCK_STATUS will call it; not 0, which is none. */
static uint32_t
context_id(unsigned k)
{
	return k + 1;
}

static void
reply_contexts(struct nbd_session *s, const struct nbd_context *contexts,
    uint32_t found, bool list)
{
	char id[4];
	size_t len;
	unsigned k;

	for (k = 0; contexts[k].name != NULL; k++) {
		if ((found & UINT32_C(1) << k) == 0)
			continue;
		len = strlen(contexts[k].name);
		put_be32(id, list ? 0 : context_id(k)); /* N101 */
		option_reply(s, NBD_REP_META_CONTEXT, sizeof(id) + len);
		out_copy(s, id, sizeof(id));
		out_copy(s, contexts[k].name, len);
	}
	option_reply(s, NBD_REP_ACK, 0);
}

static int
run(struct nbd_session *s, const char *data, uint32_t len, bool list)
{
	static const struct nbd_context none[] = { {} };
	const struct nbd_context *contexts;
	const struct nbd_export *e;
	struct context_request req;
	const char *wrong = request_parse(&req, data, len);
	char quoted[QUOTED_SIZE];
	uint32_t found;

	if (wrong == NULL && !list && !s->structured && !s->extended)
		wrong = "structured replies come first"; /* N95 */
	if (wrong != NULL) {
		option_refuse(s, NBD_REP_ERR_INVALID, "%s", wrong);
		return 0;
	}
	e = option_export(s, req.name);
	if (e == NULL) {
		option_refuse(s, NBD_REP_ERR_UNKNOWN,
		    "export \"%s\" is unknown",
		    option_quote(quoted, req.name)); /* N105 */
		return 0;
	}
	contexts = e->contexts != NULL ? e->contexts : none;
	found = contexts_find(&req, contexts, list);
	if (!list) {
		s->contexts = found;
		s->contexts_of = e;
	}
	reply_contexts(s, contexts, found, list);
	return 0;
}

int
context_run_list(struct nbd_session *s, const char *data, uint32_t len)
{
	return run(s, data, len, true); /* even without chunks: N96 */
}

int
context_run_set(struct nbd_session *s, const char *data, uint32_t len)
{
	s->contexts = 0; /* whatever comes of it (N102) */
	s->contexts_of = NULL;
	return run(s, data, len, false);
}

uint32_t
context_chosen(const struct nbd_session *s, const struct nbd_export *e)
{
	return s->contexts_of == e ? s->contexts : 0;
}

/* ----------------------------------------------------------- BLOCK_STATUS */

/* |u64 length|u32 id|u32 id|...  (N175) */
int
context_pick(const struct nbd_session *s, const char *payload,
    uint64_t payload_len, uint64_t *length, uint32_t *contexts,
    const char **why)
{
	const char *p, *end = payload + payload_len;
	uint32_t picked = 0, bit;
	unsigned k;

	*why = "no length and ids of contexts";
	if (payload_len < 12 || payload_len % 4 != 0)
		return -EINVAL;
	for (p = payload + 8; p < end; p += 4) {
		k = get_be32(p) - context_id(0);
		bit = k < NBD_MAX_CONTEXTS ? UINT32_C(1) << k : 0;
		*why = "a context that was not agreed on";
		if ((s->contexts & bit) == 0)
			return -EINVAL;
		*why = "a context twice";
		if ((picked & bit) != 0)
			return -EINVAL;
		picked |= bit;
	}
	*length = get_be64(payload);
	*contexts = picked;
	return 0;
}

struct extent {
	uint64_t len;
	uint32_t status;
};

/*
 * Where an answer ends: with what was asked, but in whole blocks, as far as
 * that leaves anything (N151, N152: a length of 2^32-1 has no such end).
 */
static uint64_t
status_end(const struct nbd_export *e, const struct wire_request *req)
{
	uint64_t end = req->offset + req->length;
	uint64_t whole = end - end % e->min_block;

	return end == e->size || whole <= req->offset ? end : whole;
}

/*
 * What a context says: extents that differ from each other, at least one.
 * Fewer bytes than were asked for are fine (N149): the client goes on there.
 */
static unsigned
extents_find(const struct command *c, const struct nbd_context *context,
    struct extent ext[NBD_MAX_EXTENTS], unsigned *steps)
{
	const struct nbd_export *e = c->session->export;
	bool one = (c->req.flags & NBD_CMD_FLAG_REQ_ONE) != 0; /* N147 */
	unsigned max = one ? 1 : NBD_MAX_EXTENTS, nr = 0;
	uint64_t pos = c->req.offset, end = status_end(e, &c->req), len;
	uint32_t status;

	while (*steps > 0 && pos < end) {
		len = end - pos;
		status = context->status(e, c->session->cpu, pos, &len, steps);
		assert(len > 0);
		assert(len <= end - pos);
		if (nr > 0 && ext[nr - 1].status == status) {
			ext[nr - 1].len += len;
		} else {
			if (nr == max)
				break;
			ext[nr++] = (struct extent){ len, status };
		}
		pos += len;
	}
	assert(nr > 0);
	return nr;
}

/* |u32 id|u32 length|u32 status|...  or, with extended headers (N174) */
/* |u32 id|u32 count|u64 length|u64 status|... */
static void
reply_extents(struct command *c, unsigned k, const struct extent *ext,
    unsigned nr, bool last)
{
	struct nbd_session *s = c->session;
	char buf[16], *p = put_be32(buf, context_id(k)), *chunk;
	uint64_t len;
	unsigned i;

	if (s->extended)
		p = put_be32(p, nr);
	len = (uint64_t)(p - buf);
	chunk = chunk_begin(s, &c->req,
	    s->extended ? NBD_CHUNK_BLOCK_STATUS_EXT : NBD_CHUNK_BLOCK_STATUS,
	    buf, len);
	len += (s->extended ? 16u : 8u) * (uint64_t)nr;
	chunk_finish(s, chunk, len, last);
	for (i = 0; i < nr; i++) {
		if (s->extended)
			p = put_be64(put_be64(buf, ext[i].len), ext[i].status);
		else
			p = put_be32(
			    put_be32(buf, (uint32_t)ext[i].len), ext[i].status);
		out_copy(s, buf, (size_t)(p - buf));
	}
}

void
context_reply(struct command *c)
{
	struct nbd_session *s = c->session;
	const struct nbd_context *contexts = s->export->contexts;
	struct extent ext[NBD_MAX_EXTENTS];
	uint32_t left = c->contexts;
	unsigned steps, nr, k;
	uint64_t start = s->appended;

	c->nr_parts = 0;
	for (k = 0; left != 0; k++) {
		if ((left & UINT32_C(1) << k) == 0)
			continue;
		left &= ~(UINT32_C(1) << k);
		steps = s->status_steps; /* each may use it up */
		nr = extents_find(c, &contexts[k], ext, &steps);
		reply_extents(c, k, ext, nr, left == 0);
		if (left == 0)
			s->status_steps = steps;
	}
	c->held = s->appended - start;
	session_hold(s, c->held);
	reply_keep(c);
}
