/* SPDX-License-Identifier: MIT */
/*
 * The handshake: the client's flags, then options until one of them leads to
 * transmission.  Whatever is wrong with an option, its data is consumed, so
 * that the next one is found; only what is needed of it is kept.
 */
#include "nbd/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define OPTION_HEADER      16u
#define OPTIONS_PER_EXPORT 8u /* more of them, once exports were listed */

struct option {
	uint32_t nr;
	enum {
		NO_DATA,
		IGNORED_DATA,
		SOME_DATA
	} data;
	bool while_shutdown; /* answered even then (N21) */
	bool before_tls;     /* even where nothing is without TLS (N49) */
	/* 0 or -errno: hang up.  `data` is NULL unless SOME_DATA. */
	int (*run)(struct nbd_session *s, const char *data, uint32_t len);
};

/* --------------------------------------------------------------- replies */

void
option_reply(struct nbd_session *s, uint32_t type, size_t len)
{
	char buf[20], *p = buf;

	p = put_be64(p, NBD_REP_MAGIC);
	p = put_be32(p, s->option_nr);
	p = put_be32(p, type);
	put_be32(p, (uint32_t)len);
	out_copy(s, buf, sizeof(buf));
}

void
option_refuse(struct nbd_session *s, uint32_t type, const char *fmt, ...)
{
	char text[QUOTED_SIZE + 128]; /* far below NBD_MAX_STRING (N17) */
	va_list ap;
	size_t len;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	len = strlen(text);
	option_reply(s, type, len);
	out_copy(s, text, len);
}

const char *
option_quote(char out[QUOTED_SIZE], const char *s)
{
	char *p = out;
	unsigned i;

	for (i = 0; i < MAX_QUOTED && s[i] != '\0'; i++) {
		if (s[i] >= ' ' && s[i] <= '~')
			*p++ = s[i];
		else
			p += sprintf(p, "\\x%02x", (unsigned char)s[i]);
	}
	strcpy(p, s[i] != '\0' ? "..." : "");
	return out;
}

/* Bytes of a string of ours that may be sent: whole characters. */
static size_t
string_len(const char *s)
{
	size_t len = strnlen(s, NBD_MAX_STRING + 1);

	if (len <= NBD_MAX_STRING)
		return len;
	for (len = NBD_MAX_STRING; (s[len] & 0xc0) == 0x80; len--)
		;
	return len;
}

/* --------------------------------------------------------------- exports */

static uint16_t
export_flags(const struct nbd_session *s, const struct nbd_export *e)
{
	unsigned flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH |
			 NBD_FLAG_SEND_FUA | NBD_FLAG_SEND_WRITE_ZEROES |
			 NBD_FLAG_CAN_MULTI_CONN | NBD_FLAG_SEND_CACHE |
			 NBD_FLAG_SEND_FAST_ZERO;

	if (e->read_only)
		flags |= NBD_FLAG_READ_ONLY;
	if (e->rotational)
		flags |= NBD_FLAG_ROTATIONAL;
	if (e->can_trim)
		flags |= NBD_FLAG_SEND_TRIM;
	if (s->structured || s->extended)
		flags |= NBD_FLAG_SEND_DF; /* N79 */
	if (s->extended && context_chosen(s, e) != 0)
		flags |= NBD_FLAG_BLOCK_STATUS_PAYLOAD; /* N175 */
	return (uint16_t)flags;
}

bool
option_name(char name[NBD_MAX_STRING + 1], const char *data, uint32_t len)
{
	if (len > NBD_MAX_STRING || memchr(data, '\0', len) != NULL)
		return false;
	memcpy(name, data, len);
	name[len] = '\0';
	return true;
}

/* May the client know of it? */
static bool
export_shown(const struct nbd_session *s, const struct nbd_export *e)
{
	return s->in_tls || !e->tls_only;
}

const struct nbd_export *
option_export(const struct nbd_session *s, const char *name)
{
	const struct nbd_export *e = s->host->lookup(s->host->arg, name);

	return e != NULL && export_shown(s, e) ? e : NULL;
}

/*
 * Should a client that asks for what option_export() does not find come back in
 * TLS?  Where there are exports for TLS alone, whatever name it has: the
 * answer is not to tell those that exist from those that don't (N53, N55).
 */
static bool
may_need_tls(const struct nbd_session *s)
{
	const struct nbd_export *e;
	unsigned i;

	if (s->tls == NBD_TLS_OFF || s->in_tls || !s->fixed)
		return false;
	for (i = 0; (e = s->host->list(s->host->arg, i)) != NULL; i++)
		if (e->tls_only)
			return true;
	return false;
}

static void
transmission_begin(
    struct nbd_session *s, const struct nbd_export *e, bool agreed)
{
	s->export = e;
	s->order.zone_bytes = e->zone_bytes;
	s->flags = export_flags(s, e);
	s->contexts = context_chosen(s, e);
	s->request_size = s->extended ? NBD_EXT_REQUEST_SIZE : NBD_REQUEST_SIZE;
	s->agreed = agreed;
	s->phase = PHASE_TRANSMISSION;
}

/* No error can be expressed here but to hang up (N25). */
static int
run_export_name(struct nbd_session *s, const char *data, uint32_t len)
{
	char name[NBD_MAX_STRING + 1], buf[10 + 124] = { 0 }, *p = buf;
	const struct nbd_export *e;
	char quoted[QUOTED_SIZE];

	if (s->shutdown)
		return session_fail(s, -ESHUTDOWN, "shutting down");
	if (s->tls == NBD_TLS_REQUIRED && !s->in_tls) /* N50 */
		return session_fail(s, -EPROTO, "no export without TLS");
	if (s->extended)
		return session_fail(
		    s, -EPROTO, "EXPORT_NAME with extended headers"); /* N28 */
	if (!option_name(name, data, len))
		return session_fail(s, -EPROTO, "export name malformed");
	e = option_export(s, name); /* N54 */
	if (e == NULL)
		return session_fail(s, -ENOENT, "export \"%s\" unknown",
		    option_quote(quoted, name));
	p = put_be64(p, e->size);
	put_be16(p, export_flags(s, e));
	out_copy(s, buf, s->no_zeroes ? 10 : sizeof(buf)); /* N24 */
	transmission_begin(s, e, false);
	return 0;
}

static int
run_abort(struct nbd_session *s, const char *data, uint32_t len)
{
	(void)data;
	(void)len;
	option_reply(s, NBD_REP_ACK, 0);
	s->closing = true;
	return 0;
}

static int
run_list(struct nbd_session *s, const char *data, uint32_t len)
{
	const struct nbd_export *e;
	size_t name_len, text_len;
	char buf[4];
	unsigned i;

	(void)data;
	(void)len;
	for (i = 0; (e = s->host->list(s->host->arg, i)) != NULL; i++) {
		if (!export_shown(s, e))
			continue; /* N40 */
		name_len = string_len(e->name);
		text_len = e->description ? string_len(e->description) : 0;
		option_reply(
		    s, NBD_REP_SERVER, sizeof(buf) + name_len + text_len);
		put_be32(buf, (uint32_t)name_len);
		out_copy(s, buf, sizeof(buf));
		out_copy(s, e->name, name_len);
		out_copy(s, e->description, text_len);
	}
	option_reply(s, NBD_REP_ACK, 0);
	s->max_options = s->limits->max_options + OPTIONS_PER_EXPORT * i;
	return 0;
}

static int
run_starttls(struct nbd_session *s, const char *data, uint32_t len)
{
	(void)data;
	(void)len;
	if (s->in_tls) { /* N45 */
		option_refuse(s, NBD_REP_ERR_INVALID, "TLS has begun already");
		return 0;
	}
	if (s->tls == NBD_TLS_OFF || !s->fixed) { /* N42, N6 */
		option_refuse(s, NBD_REP_ERR_POLICY, "TLS is not offered");
		return 0;
	}
	/* N48: nothing that came in plaintext is to pass for TLS's */
	if (session_avail(s) > 0)
		return session_fail(s, -EPROTO, "plaintext behind STARTTLS");
	option_reply(s, NBD_REP_ACK, 0);
	s->tls_next = true;
	return 0;
}

static int
run_structured_reply(struct nbd_session *s, const char *data, uint32_t len)
{
	(void)data;
	(void)len;
	if (s->extended) { /* N80 */
		option_refuse(s, NBD_REP_ERR_EXT_HEADER_REQD,
		    "extended headers are in use");
		return 0;
	}
	if (s->structured) { /* N19 */
		option_refuse(
		    s, NBD_REP_ERR_INVALID, "structured replies are in use");
		return 0;
	}
	s->structured = true;
	option_reply(s, NBD_REP_ACK, 0);
	return 0;
}

static int
run_extended_headers(struct nbd_session *s, const char *data, uint32_t len)
{
	(void)data;
	(void)len;
	if (s->extended) {
		option_refuse(
		    s, NBD_REP_ERR_INVALID, "extended headers are in use");
		return 0;
	}
	s->extended = true;
	option_reply(s, NBD_REP_ACK, 0);
	return 0;
}

/* ------------------------------------------------------------ INFO and GO */

/* What they ask for. */
struct info_request {
	char name[NBD_MAX_STRING + 1];
	bool wants[NBD_INFO_BLOCK_SIZE + 1]; /* by type; others are ignored */
};

/* |u32 length|name|u16 count|u16 type|...  NULL, or what is wrong (N59). */
static const char *
info_parse(struct info_request *req, const char *data, uint32_t len)
{
	uint32_t name_len, count, i;
	uint16_t type;

	if (len < 6)
		return "option too short";
	name_len = get_be32(data);
	if (name_len > len - 6)
		return "name longer than the option";
	if (!option_name(req->name, data + 4, name_len))
		return "name too long, or with a NUL in it";
	data += 4 + name_len;
	count = get_be16(data);
	if (len - 6 - name_len != 2 * count)
		return "number of infos does not fit the option";
	memset(req->wants, 0, sizeof(req->wants));
	for (i = 0; i < count; i++) {
		type = get_be16(data + 2 + 2 * i);
		if (type <= NBD_INFO_BLOCK_SIZE)
			req->wants[type] = true; /* N63 */
	}
	return NULL;
}

static void
reply_info_string(struct nbd_session *s, uint16_t type, const char *text)
{
	size_t len = string_len(text);
	char buf[2];

	option_reply(s, NBD_REP_INFO, sizeof(buf) + len);
	put_be16(buf, type);
	out_copy(s, buf, sizeof(buf));
	out_copy(s, text, len);
}

static void
reply_info_export(struct nbd_session *s, const struct nbd_export *e)
{
	char buf[12], *p = buf;

	option_reply(s, NBD_REP_INFO, sizeof(buf));
	p = put_be16(p, NBD_INFO_EXPORT);
	p = put_be64(p, e->size);
	put_be16(p, export_flags(s, e));
	out_copy(s, buf, sizeof(buf));
}

static void
reply_info_block_size(struct nbd_session *s, const struct nbd_export *e)
{
	char buf[14], *p = buf;

	option_reply(s, NBD_REP_INFO, sizeof(buf));
	p = put_be16(p, NBD_INFO_BLOCK_SIZE);
	p = put_be32(p, e->min_block);
	p = put_be32(p, e->pref_block);
	put_be32(p, NBD_MAX_PAYLOAD);
	out_copy(s, buf, sizeof(buf));
}

static int
run_info_or_go(struct nbd_session *s, const char *data, uint32_t len)
{
	struct info_request req;
	const struct nbd_export *e;
	const char *wrong = info_parse(&req, data, len);
	char quoted[QUOTED_SIZE];

	if (wrong != NULL) {
		option_refuse(s, NBD_REP_ERR_INVALID, "%s", wrong);
		return 0;
	}
	e = option_export(s, req.name);
	if (e == NULL && may_need_tls(s)) {
		option_refuse(s, NBD_REP_ERR_TLS_REQD,
		    "export \"%s\" is not known without TLS",
		    option_quote(quoted, req.name));
		return 0;
	}
	if (e == NULL) {
		option_refuse(s, NBD_REP_ERR_UNKNOWN,
		    "export \"%s\" is unknown", option_quote(quoted, req.name));
		return 0;
	}
	reply_info_export(s, e); /* asked for or not (N61) */
	if (req.wants[NBD_INFO_NAME])
		reply_info_string(s, NBD_INFO_NAME, e->name);
	if (req.wants[NBD_INFO_DESCRIPTION] && e->description != NULL)
		reply_info_string(s, NBD_INFO_DESCRIPTION, e->description);
	if (req.wants[NBD_INFO_BLOCK_SIZE])
		reply_info_block_size(s, e);
	option_reply(s, NBD_REP_ACK, 0);
	if (s->option_nr == NBD_OPT_GO)
		transmission_begin(s, e, req.wants[NBD_INFO_BLOCK_SIZE]);
	return 0;
}

/* --------------------------------------------------------------- framing */

/* Every other option is unknown (N14). */
static const struct option options[] = {
	{
	    .nr = NBD_OPT_EXPORT_NAME,
	    .data = SOME_DATA,
	    .while_shutdown = true, /* it cannot be refused */
	    .before_tls = true,
	    .run = run_export_name,
	},
	{
	    .nr = NBD_OPT_ABORT,
	    .data = IGNORED_DATA, /* N32 */
	    .while_shutdown = true,
	    .before_tls = true, /* N34 */
	    .run = run_abort,
	},
	{
	    .nr = NBD_OPT_LIST,
	    .data = NO_DATA,
	    .run = run_list,
	},
	{
	    .nr = NBD_OPT_STARTTLS,
	    .data = NO_DATA,
	    .before_tls = true,
	    .run = run_starttls,
	},
	{
	    .nr = NBD_OPT_INFO,
	    .data = SOME_DATA,
	    .run = run_info_or_go,
	},
	{
	    .nr = NBD_OPT_GO,
	    .data = SOME_DATA,
	    .run = run_info_or_go,
	},
	{
	    .nr = NBD_OPT_STRUCTURED_REPLY,
	    .data = NO_DATA, /* N76 */
	    .run = run_structured_reply,
	},
	{
	    .nr = NBD_OPT_LIST_META_CONTEXT,
	    .data = SOME_DATA,
	    .run = context_run_list,
	},
	{
	    .nr = NBD_OPT_SET_META_CONTEXT,
	    .data = SOME_DATA,
	    .run = context_run_set,
	},
	{
	    .nr = NBD_OPT_EXTENDED_HEADERS,
	    .data = NO_DATA, /* N168 */
	    .run = run_extended_headers,
	},
	{},
};

static const struct option *
option_find(uint32_t nr)
{
	const struct option *o;

	for (o = options; o->run != NULL; o++)
		if (o->nr == nr)
			return o;
	return NULL;
}

/* Is its data needed?  Else it goes by. */
static bool
keeps_data(const struct nbd_session *s)
{
	return s->option != NULL && s->option->data == SOME_DATA &&
	       s->option_len <= NBD_MAX_OPTION;
}

/* An option has come, with all its data. */
static int
option_run(struct nbd_session *s, const char *data)
{
	const struct option *o = s->option;

	if (s->shutdown && (o == NULL || !o->while_shutdown)) {
		option_refuse(s, NBD_REP_ERR_SHUTDOWN, "shutting down");
		return 0;
	}
	if (s->tls == NBD_TLS_REQUIRED && !s->in_tls &&
	    (o == NULL || !o->before_tls)) { /* N49 */
		option_refuse(s, NBD_REP_ERR_TLS_REQD, "STARTTLS comes first");
		return 0;
	}
	if (o == NULL) {
		option_refuse(
		    s, NBD_REP_ERR_UNSUP, "option %u is unknown", s->option_nr);
		return 0;
	}
	if (o->data == NO_DATA && s->option_len > 0) {
		option_refuse(s, NBD_REP_ERR_INVALID, "option takes no data");
		return 0;
	}
	if (o->data == SOME_DATA && data == NULL) {
		option_refuse(s, NBD_REP_ERR_TOO_BIG, "option of %u bytes",
		    s->option_len);
		return 0;
	}
	return o->run(s, data, s->option_len);
}

static int
flags_parse(struct nbd_session *s)
{
	uint32_t flags = get_be32(session_input(s));

	if ((flags &
		~(uint32_t)(NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES)) != 0)
		return session_fail(s, -EPROTO, "client flags 0x%x", flags);
	s->fixed = (flags & NBD_FLAG_FIXED_NEWSTYLE) != 0;
	if (s->tls == NBD_TLS_REQUIRED && !s->fixed) /* N6, N42 */
		return session_fail(s, -EPROTO,
		    "TLS is required, and a client without fixed newstyle "
		    "cannot have it");
	s->no_zeroes = (flags & NBD_FLAG_NO_ZEROES) != 0;
	s->in_pos += 4;
	s->phase = PHASE_OPTIONS;
	return 0;
}

static int
header_parse(struct nbd_session *s)
{
	const char *p = session_input(s);

	if (get_be64(p) != NBD_IHAVEOPT)
		return session_fail(s, -EPROTO, "option magic 0x%016llx",
		    (unsigned long long)get_be64(p)); /* N12 */
	s->option_nr = get_be32(p + 8);
	s->option_len = get_be32(p + 12);
	s->option = option_find(s->option_nr);
	if (++s->nr_options > s->max_options)
		return session_fail(
		    s, -EPROTO, "%u options", s->nr_options); /* N22 */
	if (s->option_len > NBD_MAX_OPTION_DRAIN)
		return session_fail(s, -EPROTO, "option %u of %u bytes",
		    s->option_nr, s->option_len); /* N16 */
	if (s->option_nr == NBD_OPT_EXPORT_NAME &&
	    s->option_len > NBD_MAX_STRING)
		return session_fail(s, -EPROTO, "export name of %u bytes",
		    s->option_len); /* N27 */
	s->in_option = true;
	s->in_pos += OPTION_HEADER;
	s->drain = keeps_data(s) ? 0 : s->option_len;
	return 0;
}

/* Data that is not kept goes by; the option is run after it. */
static int
data_drain(struct nbd_session *s)
{
	size_t n = session_avail(s);

	if (n > s->drain)
		n = s->drain;
	s->in_pos += n;
	s->drain -= n;
	if (s->drain > 0)
		return 0;
	s->in_option = false;
	return option_run(s, NULL);
}

static int
data_run(struct nbd_session *s)
{
	const char *data = s->option_len > 0 ? session_input(s) : "";

	s->in_pos += s->option_len;
	s->in_option = false;
	return option_run(s, data);
}

/* Bytes that the next step takes: one of them is enough to drain some. */
static size_t
bytes_needed(const struct nbd_session *s)
{
	if (s->phase == PHASE_FLAGS)
		return 4;
	if (!s->in_option)
		return OPTION_HEADER;
	if (keeps_data(s))
		return s->option_len;
	return s->drain > 0 ? 1 : 0;
}

static int
step(struct nbd_session *s)
{
	if (s->phase == PHASE_FLAGS)
		return flags_parse(s);
	if (!s->in_option)
		return header_parse(s);
	return keeps_data(s) ? data_run(s) : data_drain(s);
}

/* Room follows what has come, whatever length was announced. */
static int
await(struct nbd_session *s, size_t needed)
{
	size_t have = session_avail(s);

	if (s->in == NULL || s->in_len < s->in->size)
		return 0;
	return session_room(s, needed < 2 * have ? needed : 2 * have);
}

void
option_reset(struct nbd_session *s)
{
	s->nr_options = 0;
	s->max_options = s->limits->max_options;
	s->structured = false;
	s->extended = false;
	s->contexts = 0;
	s->contexts_of = NULL;
}

int
option_parse(struct nbd_session *s)
{
	size_t needed;
	int err;

	s->blocked = false;
	while (s->phase != PHASE_TRANSMISSION && !s->closing && !s->tls_next) {
		if (session_full(s)) {
			s->blocked = true;
			return 0;
		}
		needed = bytes_needed(s);
		if (session_avail(s) < needed)
			return await(s, needed);
		err = step(s);
		if (err != 0)
			return err;
	}
	return 0;
}
