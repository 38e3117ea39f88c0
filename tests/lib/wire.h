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
#define REP_ERR_UNSUP      0x80000001u
#define REP_ERR_POLICY     0x80000002u
#define REP_ERR_INVALID    0x80000003u
#define REP_ERR_PLATFORM   0x80000004u
#define REP_ERR_TLS_REQD   0x80000005u
#define REP_ERR_UNKNOWN    0x80000006u
#define REP_ERR_SHUTDOWN   0x80000007u
#define REP_ERR_BLOCK_SIZE 0x80000008u
#define REP_ERR_TOO_BIG    0x80000009u

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

struct wire {
	int fd;
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
/* The data of INFO and GO: its length. */
uint32_t put_info(
    uint8_t *p, const char *name, const uint16_t *infos, uint16_t nr_infos);

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
 * (SERVER, INFO) is passed over, but checked for its form. */
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

/* Transmission: one at a time. */
void wire_request(struct wire *w, uint16_t flags, uint16_t type,
    uint64_t cookie, uint64_t offset, uint32_t length);
/* The next simple reply's error; it has this cookie. */
uint32_t wire_reply(struct wire *w, uint64_t cookie);
uint32_t
wire_read(struct wire *w, void *data, uint64_t offset, uint32_t length);
uint32_t
wire_write(struct wire *w, const void *data, uint64_t offset, uint32_t length);
uint32_t wire_cmd(struct wire *w, uint16_t flags, uint16_t type,
    uint64_t offset, uint32_t length); /* not WRITE, READ only if it fails */
/* A write of a new pattern at `offset` reads back: served, in step. */
void wire_assert_served(struct wire *w, uint64_t offset);

/* Transmission: many at a time.  Replies may come in any order; each op is
 * answered once. */
struct op {
	uint16_t flags;
	uint16_t type;
	uint64_t offset;
	uint32_t length;
	const uint8_t *data; /* WRITE */
	uint8_t *got;        /* READ: where the data goes */
	uint64_t cookie;     /* given by the batch */
	bool answered;
	uint32_t error;
	uint64_t done_ns; /* when the reply came */
};

/* Send all (in pieces of `piece` bytes, 0: as they fit) and receive at the
 * same time, until all but DISC are answered. */
void batch_run(struct wire *w, struct op *ops, size_t n, size_t piece);
void batch_send(struct wire *w, struct op *ops, size_t n);
void batch_collect(struct wire *w, struct op *ops, size_t n);
/* Until the other side closes: how many were answered. */
size_t batch_collect_eof(struct wire *w, struct op *ops, size_t n);
void batch_assert_ok(const struct op *ops, size_t n);

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
