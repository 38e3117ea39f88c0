/* SPDX-License-Identifier: MIT */
/*
 * What the wire tests share: a daemon that was started for a test, and a
 * client made of raw bytes.
 *
 * The numbers of the protocol stand here once more, taken from the spec and
 * not from daemon/nbd/proto.h: an error there must show.
 *
 * Everything here fails the running cmocka test by itself when something that
 * had to work did not, and then tells how the daemon is and prints the end of
 * its log.  Nothing waits longer than WIRE_TIMEOUT_MS.
 */
#ifndef TESTS_LIB_WIRE_H
#define TESTS_LIB_WIRE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#define WIRE_TIMEOUT_MS 10000 /* of one receive or send */
#define DAEMON_STOP_MS  5000  /* SIGTERM to exit */

#define MAGIC_NBD       0x4e42444d41474943ULL
#define MAGIC_IHAVEOPT  0x49484156454f5054ULL
#define MAGIC_OPT_REPLY 0x0003e889045565a9ULL
#define MAGIC_REQUEST   0x25609513u
#define MAGIC_SIMPLE    0x67446698u
#define MAGIC_CHUNK     0x668e33efu
#define MAGIC_EXT       0x21e41c71u /* a request with an extended header */
#define MAGIC_EXT_CHUNK 0x6e8a278cu

enum {
	HS_FIXED = 1,
	HS_NO_ZEROES = 2
};

enum {
	TX_HAS_FLAGS = 1 << 0,
	TX_READ_ONLY = 1 << 1,
	TX_FLUSH = 1 << 2,
	TX_FUA = 1 << 3,
	TX_ROTATIONAL = 1 << 4,
	TX_TRIM = 1 << 5,
	TX_WRITE_ZEROES = 1 << 6,
	TX_DF = 1 << 7,
	TX_MULTI_CONN = 1 << 8,
	TX_RESIZE = 1 << 9,
	TX_CACHE = 1 << 10,
	TX_FAST_ZERO = 1 << 11,
	TX_STATUS_PAYLOAD = 1 << 12,
};

enum {
	OPT_EXPORT_NAME = 1,
	OPT_ABORT = 2,
	OPT_LIST = 3,
	OPT_PEEK_EXPORT = 4,
	OPT_STARTTLS = 5,
	OPT_INFO = 6,
	OPT_GO = 7,
	OPT_STRUCTURED_REPLY = 8,
	OPT_LIST_META = 9,
	OPT_SET_META = 10,
	OPT_EXTENDED_HEADERS = 11,
};

#define REP_ACK            1u
#define REP_SERVER         2u
#define REP_INFO           3u
#define REP_META_CONTEXT   4u
#define REP_ERR_UNSUP      0x80000001u
#define REP_ERR_POLICY     0x80000002u
#define REP_ERR_INVALID    0x80000003u
#define REP_ERR_PLATFORM   0x80000004u
#define REP_ERR_TLS_REQD   0x80000005u
#define REP_ERR_UNKNOWN    0x80000006u
#define REP_ERR_SHUTDOWN   0x80000007u
#define REP_ERR_BLOCK_SIZE 0x80000008u
#define REP_ERR_TOO_BIG    0x80000009u
#define REP_ERR_EXT_HEADER 0x8000000au

enum {
	INFO_EXPORT,
	INFO_NAME,
	INFO_DESCRIPTION,
	INFO_BLOCK_SIZE
};

enum {
	CMD_READ,
	CMD_WRITE,
	CMD_DISC,
	CMD_FLUSH,
	CMD_TRIM,
	CMD_CACHE,
	CMD_WRITE_ZEROES,
	CMD_BLOCK_STATUS,
};

enum {
	CMD_FUA = 1 << 0,
	CMD_NO_HOLE = 1 << 1,
	CMD_DF = 1 << 2,
	CMD_REQ_ONE = 1 << 3,
	CMD_FAST_ZERO = 1 << 4,
	CMD_PAYLOAD_LEN = 1 << 5,
};

enum { /* chunks of a reply */
	CHUNK_NONE = 0,
	CHUNK_DATA = 1,
	CHUNK_HOLE = 2,
	CHUNK_STATUS = 5,
	CHUNK_STATUS_EXT = 6,
	CHUNK_ERROR = 0x8001,
	CHUNK_ERROR_OFFSET = 0x8002,
};
#define CHUNK_DONE 1u /* flag: the last one */

enum { /* base:allocation */
	STATE_HOLE = 1 << 0,
	STATE_ZERO = 1 << 1,
};

enum {
	E_PERM = 1,
	E_IO = 5,
	E_NOMEM = 12,
	E_INVAL = 22,
	E_NOSPC = 28,
	E_OVERFLOW = 75,
	E_NOTSUP = 95,
	E_SHUTDOWN = 108,
};

#define OPT_HEADER       16u
#define OPT_REPLY_HEADER 20u
#define REQUEST_SIZE     28u
#define REPLY_SIZE       16u
#define CHUNK_SIZE       20u
#define EXT_REQUEST_SIZE 32u
#define EXT_CHUNK_SIZE   32u
#define MAX_STRING       4096u
#define KiB              1024u
#define MiB              (1024u * 1024u)

/* A row of a program's table of cases: the items of spec/nbd-protocol.md that
 * it checks, and what it checks as a sentence. */
#define CASE(items, sentence, function)                             \
	{                                                           \
		.name = items ": " sentence, .test_func = function, \
		.teardown_func = wire_teardown                      \
	}

/* --------------------------------------------------------------- daemon.c */

struct daemon {
	pid_t pid;   /* 0: it has ended and was waited for */
	int status;  /* of waitpid, when pid is 0 */
	bool shared; /* of the whole group: wire_teardown() lets it live */
	char dir[72];
	char sock[96];    /* -U, if daemon_start() or the test says so */
	char control[96]; /* --control, likewise */
	char log[96];     /* stdout and stderr */
	/* Called in the new process before it becomes the daemon, when all its
	 * files but the standard ones are closed. */
	void (*before)(struct daemon *d);
	struct daemon *next;
};

/* A temporary directory and the names in it; nothing runs yet. */
struct daemon *daemon_new(void);
/* Run nullbd with exactly these arguments (NULL ends the list). */
void daemon_exec(struct daemon *d, const char *const args[]);
/* Write a configuration file into its directory: the file's name. */
const char *daemon_config(struct daemon *d, const char *text);
/* Wait until `sock` accepts. */
void daemon_ready(struct daemon *d, const char *sock);
/* All three: with -U and --control before the given arguments, NULL last. */
struct daemon *daemon_start(const char *arg, ...) __attribute__((sentinel));
/* SIGTERM; it must exit with 0 within DAEMON_STOP_MS and remove its sockets.
 * Returns how long that took in ms; `d` is gone afterwards. */
int daemon_stop(struct daemon *d);
/* The same, but the test has sent the signal. */
int daemon_ended(struct daemon *d);
/* SIGKILL, forget it; its files stay until daemon_free(). */
void daemon_kill(struct daemon *d);
void daemon_free(struct daemon *d);
/* Wait for it to end by itself: its exit status, -signal, or a failed test. */
int daemon_wait(struct daemon *d, int timeout_ms);
bool daemon_alive(struct daemon *d);
void daemon_assert_alive(struct daemon *d);

unsigned daemon_fds(struct daemon *d);
/* Wait until it has no more than so many open files again. */
void daemon_settle(struct daemon *d, unsigned fds);
uint64_t daemon_rss(struct daemon *d); /* bytes */
double daemon_cpu(struct daemon *d);   /* seconds used so far */
/* An ASan or TSan build: figures of time and memory mean little. */
bool daemon_sanitized(struct daemon *d);
long daemon_log_size(struct daemon *d);
bool daemon_log_has(struct daemon *d, const char *text);
/* A request of the control language and (the start of) its answer, a line
 * each; false: there is no answer. */
bool
daemon_ask(struct daemon *d, const char *request, char *answer, size_t max);
/* Set an attribute of a device; false: refused. */
bool daemon_set(struct daemon *d, const char *name, const char *attribute,
    const char *value);
/* The fields of /sys/block/NAME/stat: how many there are. */
#define STAT_FIELDS 17
unsigned
daemon_stats(struct daemon *d, const char *name, long long fields[STAT_FIELDS]);
/* One of them, counted from 1; -1: none. */
long long daemon_stat(struct daemon *d, const char *name, int field);
void daemon_explain(void); /* print how every daemon is, and its log */

const char *nullbd_path(void);

/* ----------------------------------------------------------------- wire.c */

/* How requests and replies look, as it was negotiated. */
enum wire_mode {
	WIRE_SIMPLE,
	WIRE_STRUCTURED,
	WIRE_EXTENDED
};

#define MAX_CONTEXTS 8u

struct context {
	uint32_t id;
	char name[64]; /* the start of it */
};

struct wire {
	int fd;
	enum wire_mode mode; /* follows the options that are acknowledged */
	struct context context[MAX_CONTEXTS]; /* the last SET's, or LIST's */
	unsigned nr_contexts;
	uint16_t hs_flags; /* the greeting's */
	uint16_t tx_flags; /* of the export, after GO or EXPORT_NAME */
	uint64_t size;
	uint32_t min, pref, max; /* INFO_BLOCK_SIZE, if it came; else 0 */
	uint64_t next_cookie;
	struct wire *next;
};

/* Connections.  All that are left are closed by wire_teardown(). */
struct wire *wire_unix(const char *path);
struct wire *wire_tcp(const char *host, int port); /* "127.0.0.1", "::1" */
bool wire_can_connect(const char *path);
void wire_close(struct wire *w);
void wire_reset(struct wire *w); /* with RST, where there is one (TCP) */
void wire_half_close(struct wire *w);
int wire_teardown(void **state);
int wire_free_port(const char *host); /* a port nobody listens on, or -1 */
_Noreturn void
wire_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

void wire_send(struct wire *w, const void *data, size_t n);
/* In pieces of `piece` bytes, each a segment of its own as far as can be. */
void wire_send_pieces(struct wire *w, const void *data, size_t n, size_t piece);
/* As much as the other side takes within `ms`: bytes sent.  Never fails. */
size_t wire_try_send(struct wire *w, const void *data, size_t n, int ms);
void wire_recv(struct wire *w, void *data, size_t n);
/* The other side closes (or resets) without a further byte. */
void wire_expect_eof(struct wire *w);
/* Not a byte, and no end, for so long. */
void wire_expect_silence(struct wire *w, int ms);
/* Read up to `max` bytes or the end or until `ms` passed: bytes read. */
size_t wire_drain(struct wire *w, void *data, size_t max, int ms, bool *eof);

/* Bytes, big-endian.  The put_ functions return the end of what they wrote. */
uint8_t *put16(uint8_t *p, uint16_t v);
uint8_t *put32(uint8_t *p, uint32_t v);
uint8_t *put64(uint8_t *p, uint64_t v);
uint16_t get16(const uint8_t *p);
uint32_t get32(const uint8_t *p);
uint64_t get64(const uint8_t *p);
uint8_t *
put_option(uint8_t *p, uint32_t option, const void *data, uint32_t len);
uint8_t *put_request(uint8_t *p, uint16_t flags, uint16_t type, uint64_t cookie,
    uint64_t offset, uint32_t length);
uint8_t *put_ext_request(uint8_t *p, uint16_t flags, uint16_t type,
    uint64_t cookie, uint64_t offset, uint64_t length);
/* The data of INFO and GO: its length. */
uint32_t put_info(
    uint8_t *p, const char *name, const uint16_t *infos, uint16_t nr_infos);
/* The data of LIST_META and SET_META, likewise. */
uint32_t
put_meta(uint8_t *p, const char *name, const char *const *queries, uint32_t n);

/* Handshake. */
struct opt_reply {
	uint32_t option;
	uint32_t type;
	uint32_t len;
	uint8_t data[64 * KiB];
};

void wire_greeting(struct wire *w);
void wire_flags(struct wire *w, uint32_t flags);
void
wire_option(struct wire *w, uint32_t option, const void *data, uint32_t len);
/* One reply; its magic and its option are checked. */
void wire_opt_reply(struct wire *w, uint32_t option, struct opt_reply *r);
/* Send an option and return the type of its final reply; what came before it
 * (SERVER, INFO, META_CONTEXT) is checked for its form, and remembered. */
uint32_t wire_option_result(
    struct wire *w, uint32_t option, const void *data, uint32_t len);
/* The server still answers LIST as it should: the session is in step. */
void wire_assert_options_in_step(struct wire *w);
/* INFO or GO: the final reply's type; fills size, flags and block sizes. */
uint32_t wire_info(struct wire *w, uint32_t option, const char *name,
    const uint16_t *infos, uint16_t nr_infos);
/* Greeting, both flags, GO: in transmission.  With block_size the client asks
 * for INFO_BLOCK_SIZE. */
void wire_go(struct wire *w, const char *name, bool block_size);
struct wire *wire_open(struct daemon *d, const char *name, bool block_size);
/* LIST_META or SET_META: the final reply's type; fills the contexts. */
uint32_t wire_meta(struct wire *w, uint32_t option, const char *name,
    const char *const *queries, uint32_t n);
/* Greeting, both flags, and the option of the mode: still negotiating. */
struct wire *wire_negotiate(struct daemon *d, enum wire_mode mode);
enum {
	WANT_BLOCK_SIZE = 1, /* INFO_BLOCK_SIZE, so requests are to align */
	WANT_STATUS = 2      /* base:allocation */
};
struct wire *wire_open_mode(
    struct daemon *d, const char *name, enum wire_mode mode, unsigned want);
const char *wire_mode_name(enum wire_mode mode);

/* Transmission, in any mode: one at a time. */
void wire_request(struct wire *w, uint16_t flags, uint16_t type,
    uint64_t cookie, uint64_t offset, uint64_t length);
/* The next simple reply's error; it has this cookie. */
uint32_t wire_reply(struct wire *w, uint64_t cookie);
uint32_t
wire_read(struct wire *w, void *data, uint64_t offset, uint32_t length);
uint32_t
wire_write(struct wire *w, const void *data, uint64_t offset, uint32_t length);
uint32_t wire_cmd(struct wire *w, uint16_t flags, uint16_t type,
    uint64_t offset, uint64_t length); /* not WRITE, READ only if it fails */
/* A write of a new pattern at `offset` reads back: served, in step. */
void wire_assert_served(struct wire *w, uint64_t offset);

/* Transmission: many at a time.  Replies may come in any order; each op is
 * answered once. */
struct op {
	uint16_t flags;
	uint16_t type;
	uint64_t offset;
	uint64_t length;
	const uint8_t *data; /* WRITE */
	uint8_t *got;        /* READ: where the data goes */
	uint64_t cookie;     /* given by the batch */
	bool answered;
	uint32_t error;
	uint64_t done_ns;      /* when the reply came */
	struct answer *answer; /* its chunks that came, while it is in flight */
};

/* Send all (in pieces of `piece` bytes, 0: as they fit) and receive at the
 * same time, until all but DISC are answered. */
void batch_run(struct wire *w, struct op *ops, size_t n, size_t piece);
void batch_send(struct wire *w, struct op *ops, size_t n);
void batch_collect(struct wire *w, struct op *ops, size_t n);
/* Until the other side closes: how many were answered. */
size_t batch_collect_eof(struct wire *w, struct op *ops, size_t n);
void batch_assert_ok(const struct op *ops, size_t n);

/* --------------------------------------------------------------- answer.c */

/*
 * The reply to one request, in chunks or simple.  Each chunk is checked as it
 * is taken, against what came before it and what was asked, and the whole when
 * it is done: whatever the protocol says of the form of replies is said here
 * once (N120, N126 to N135, N146 to N151, N155, N171, N174, N178).
 */

enum piece_kind {
	PIECE_DATA,
	PIECE_HOLE,
	PIECE_ERROR /* of one byte, where ERROR_OFFSET points */
};

struct piece {
	enum piece_kind kind;
	uint64_t offset;
	uint64_t length;
};

struct extent {
	uint64_t length;
	uint64_t state;
};

struct status {
	uint32_t id;
	struct extent *extent;
	size_t nr;
};

struct answer {
	enum wire_mode mode;
	uint16_t flags; /* of the request */
	uint16_t type;
	uint64_t cookie;
	uint64_t offset;
	uint64_t length;
	uint8_t *got;  /* READ: where the data goes, NULL: nowhere */
	uint64_t size; /* of the export */
	uint32_t min, max;
	uint32_t id[MAX_CONTEXTS]; /* contexts that are to be answered */
	unsigned nr_ids;

	bool done;
	bool simple;
	uint32_t error; /* the first */
	bool has_offset;
	uint64_t error_offset; /* of ERROR_OFFSET */
	char *text;            /* of an error, or NULL */
	size_t nr_chunks;
	uint64_t content; /* bytes of pieces that are no errors */
	uint64_t end;     /* of the piece that ends last */
	struct piece *piece;
	size_t nr_pieces;
	struct status status[MAX_CONTEXTS];
	unsigned nr_status;
};

/* One header of a reply, and what follows it. */
struct chunk {
	bool simple;
	uint16_t flags;
	uint16_t type;
	uint32_t error; /* of a simple reply */
	uint64_t cookie;
	uint64_t offset; /* of an extended header */
	uint64_t length;
	const uint8_t *data;
};

/* A request on this connection, of which nothing has come yet. */
void answer_init(struct answer *a, const struct wire *w, uint16_t flags,
    uint16_t type, uint64_t cookie, uint64_t offset, uint64_t length);
void answer_fini(struct answer *a);
/* NULL, or what is wrong with it: the item of the spec, then a sentence. */
const char *answer_take(struct answer *a, const struct chunk *c);
/* Does a chunk say that these bytes are a hole? */
bool answer_has_hole(const struct answer *a, uint64_t offset, uint64_t length);

/*
 * In wire.c: send a request (with a payload, if it is not NULL) and take the
 * whole reply, the data of a read to `got` if that is not NULL.  Returns the
 * error; the caller ends the answer with answer_fini().
 */
uint32_t
wire_ask(struct wire *w, uint16_t flags, uint16_t type, uint64_t offset,
    uint64_t length, const void *payload, void *got, struct answer *a);
/* Take the reply to what was sent as answer_init() was told: its error. */
uint32_t wire_answer(struct wire *w, struct answer *a);
/* BLOCK_STATUS of one context; as wire_ask(). */
uint32_t wire_status(struct wire *w, uint16_t flags, uint64_t offset,
    uint64_t length, struct answer *a);

/* ------------------------------------------------------------- recorded.c */

/*
 * A whole session as the bytes of its client: options of every kind, then
 * good and bad commands of every kind within RECORDED_REGION, then DISC.  To
 * be cut, fragmented and mutated.
 */
#define RECORDED_REGION  (16 * KiB)
#define RECORDED_OPTIONS 8
#define RECORDED_OPS     40

struct recorded {
	uint8_t bytes[16 * KiB];
	size_t len;
	size_t option_end[RECORDED_OPTIONS]; /* [0]: of the client's flags */
	uint32_t option[RECORDED_OPTIONS];   /* [0] is none */
	size_t nr_options;
	struct op ops[RECORDED_OPS]; /* their cookies are 1, 2, ... */
	size_t op_end[RECORDED_OPS];
	uint32_t want_error[RECORDED_OPS];
	size_t nr_ops; /* the last one is DISC */
	uint8_t payload[8 * KiB];
	uint8_t got[16 * KiB];
};

void recorded_make(struct recorded *r, const char *export);
/* How many options (flags among them) and commands are whole in `len`. */
size_t recorded_whole_options(const struct recorded *r, size_t len);
size_t recorded_whole_ops(const struct recorded *r, size_t len);
/* What the first n commands do to the region; what answered reads brought
 * must be what is there at their turn. */
void recorded_apply(struct recorded *r, size_t n, uint8_t *region);

/* Helpers. */
bool is_utf8(const uint8_t *p, size_t n);
bool is_legal_error(uint32_t error);
uint64_t now_ns(void);
void sleep_ms(int ms);
void *xmalloc(size_t n);
uint64_t rng_next(uint64_t *state);
uint64_t rng_below(uint64_t *state, uint64_t n);
uint64_t wire_seed(void); /* NULLB_SEED, or a new one; printed */
void fill(void *data, size_t n, uint64_t seed);
bool all_zero(const void *data, size_t n);
void assert_same(const void *got, const void *want, size_t n, const char *what);

#endif
