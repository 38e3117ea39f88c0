/* SPDX-License-Identifier: MIT */
/*
 * Configuration and control: what people and programs say to the daemon, and
 * what it answers.  Everything goes through the attribute tables: disk_attrs
 * for a disk, daemon_attrs for the daemon itself.  No sockets here: main
 * carries the lines.
 */
#ifndef CTL_H
#define CTL_H

#include <sys/queue.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/dist.h"
#include "dev/dev.h"

struct json_t; /* jansson's */

#define CTL_MAX_ERROR 512u /* bytes of a sentence that says what is wrong */

/* -------------------------------------------------------------- daemon.c */

#define DAEMON_PORT          10809 /* where nothing else is said */
#define MEMORY_LIMIT_AUTO    UINT64_MAX
#define DAEMON_MAX_PATH      107 /* sun_path, without its NUL */
#define DAEMON_MAX_PLACE     320 /* bytes of an item of `listen` */
#define DAEMON_MAX_LISTENERS 64
#define DAEMON_PRIVATE       "-" /* a path: in a directory of its own */
#define DAEMON_NO_DEFAULT    "none"
#define DAEMON_MAX_CPU       1023
#define DAEMON_MAX_CPUS      256 /* of a list, as many as workers */
#define VSOCK_ANY            UINT32_MAX
#define DAEMON_TLS_PRIORITY  "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* What clients of a listener may have. */
enum tls_mode {
	TLS_OFF,
	TLS_ALLOWED,
	TLS_REQUIRED,
	TLS_UNSAID, /* in `listen`: what the setting `tls` says */
};

/* Every setting of the daemon; daemon_attrs[] describes each field. */
struct daemon_conf {
	char **listen;        /* where, in words; see daemon_endpoints() */
	char *address;        /* of the TCP listener that `port` asks for */
	uint32_t port;        /* 0: none */
	char *control;        /* path of the control socket; NULL: none */
	char *sysfs;          /* where files are mounted; NULL: nowhere */
	char *metrics;        /* where HTTP is served; NULL: nowhere */
	uint32_t workers;     /* loops; 0: one a core, or a CPU of `affinity` */
	char *affinity;       /* their CPUs, see cpu_list_parse(); NULL: any */
	char *default_export; /* what "" means; NULL: the first */
	char *pidfile;        /* NULL: none */
	uint64_t memory_limit; /* bytes, or MEMORY_LIMIT_AUTO; 0: none */
	uint32_t spin_usec;
	uint32_t max_connections;
	uint32_t max_handshakes;
	uint32_t handshake_seconds;
	uint32_t max_options;
	uint32_t max_requests; /* of a connection, */
	uint64_t max_bytes;    /* in flight */
	uint64_t max_total_bytes;
	uint32_t tls;           /* enum tls_mode */
	char *tls_certificates; /* path of a directory; NULL: none */
	char *tls_psk;          /* path of a file; NULL: none */
	bool tls_verify_peer;
	char *tls_priority; /* GnuTLS's; NULL: DAEMON_TLS_PRIORITY */
};

extern const struct attr daemon_attrs[];

/* A place to listen at: a UNIX socket (path), TCP (host, port), or vsock. */
struct endpoint {
	char path[DAEMON_MAX_PATH + 1]; /* "": no UNIX socket */
	char host[256]; /* a name or an address; "": every address */
	bool vsock;
	uint32_t cid;  /* of vsock; VSOCK_ANY: every one of ours */
	uint32_t port; /* 0: any that is free */
	enum tls_mode tls;
};

/*
 * "unix:PATH", "/PATH", "unix:-" (a private one), "HOST:PORT", "[V6]:PORT",
 * ":PORT", "HOST", "vsock:PORT" or "vsock:CID:PORT", and perhaps " tls=MODE"
 * behind it.
 */
int endpoint_parse(
    const char *text, struct endpoint *out, char *err, size_t errlen);

/*
 * Where to listen, with nothing said the loopback address.  Returns how many
 * of out[DAEMON_MAX_LISTENERS] are used, or -EINVAL with a sentence.
 */
int daemon_endpoints(const struct daemon_conf *conf, struct endpoint *out,
    char *err, size_t errlen);

/*
 * conf->metrics, "HOST:PORT", "[V6]:PORT" or ":PORT".  0, or -EINVAL with a
 * sentence.
 */
int metrics_endpoint(
    const char *text, struct endpoint *out, char *err, size_t errlen);

/*
 * "0-3,8": the numbers in their order, in cpu[DAEMON_MAX_CPUS].  How many, or
 * -EINVAL with a sentence.
 */
int cpu_list_parse(const char *text, unsigned *cpu, char *err, size_t errlen);

/* Is TLS to be had anywhere? */
bool daemon_wants_tls(const struct daemon_conf *conf);
/* Does what is said of TLS fit together?  0, or -EINVAL with a sentence. */
int daemon_check_tls(const struct daemon_conf *conf, char *err, size_t errlen);

/* -------------------------------------------------------------- memory.c */

/*
 * What stores may take when nothing is said (MEMORY_LIMIT_AUTO): what is free
 * now, less an eighth of the machine, so that a full device is ENOSPC and no
 * work for the OOM killer.  Bytes.  It reads /proc and /sys.
 */
uint64_t memory_limit_auto(void);

/* ----------------------------------------------------------------- psk.c */

#define PSK_MAX_KEYS 65536u

/* A key that a client and we share. */
struct psk {
	unsigned char user[128];
	unsigned char key[512];
	size_t user_len, key_len;
	unsigned line;
};

/*
 * Read a file of USER:HEXKEY lines, as psktool(1) makes it; NULL when anything
 * is wrong with it, a line each to `errors`.
 */
struct psk_file;
struct psk_file *psk_read(const char *path, FILE *errors);
void psk_free(struct psk_file *f); /* NULL is fine */
/* NULL: no such user. */
const struct psk *
psk_find(const struct psk_file *f, const void *user, size_t len);

/* -------------------------------------------------------------- config.c */

#define CONFIG_MAX_DEVICES 4096u

/* A device that was asked for. */
struct device {
	STAILQ_ENTRY(device) link; /* in config.devices, in order */
	char name[DISK_NAME_LEN];
	char *where; /* "nullbd.conf:12": for messages */
	struct disk_conf conf;
	bool *given;      /* by row of disk_attrs: set for this device */
	bool at_run_time; /* no file, nor the command line, asked for it */
};

/* All that was asked for, by whatever means. */
struct config {
	struct daemon_conf daemon;
	bool *given;            /* by row of daemon_attrs */
	struct device defaults; /* [defaults]: for all devices */
	STAILQ_HEAD(device_list, device) devices;
	unsigned nr_devices;
	bool wants_none; /* nr_devices=0: not even the usual nullb0 */
	STAILQ_HEAD(origin_list, origin) origins; /* what it was made of */
};

/* 0 or -ENOMEM. */
int config_init(struct config *c);
void config_fini(struct config *c);

/*
 * Add a device.  NULL with a sentence when the name is bad (-EINVAL), taken
 * (-EEXIST), or there are too many (-ENOSPC).
 */
struct device *config_add(struct config *c, const char *name, const char *where,
    char *err, size_t errlen);
struct device *config_find(const struct config *c, const char *name);
/* The device that is served under a name: its own, or of its export_names. */
struct device *config_find_export(const struct config *c, const char *name);
/* Was a place to listen at asked for? */
bool config_names_place(const struct config *c);

/*
 * attr_set() of a disk that is off, where what names a file (fit_attribute())
 * becomes what is in it.  0 or -errno with a sentence.
 */
int disk_conf_set(struct disk_conf *c, const char *name, const char *value,
    char *err, size_t errlen);
/*
 * attr_set(), and disk_conf_set(), remembering that it was said.  0 or -errno
 * with a sentence.
 */
int config_set(struct config *c, const char *name, const char *value, char *err,
    size_t errlen);
int device_set(struct device *d, const char *name, const char *value, char *err,
    size_t errlen);
/* What [defaults] says and the device does not.  0 or -ENOMEM. */
int device_take_defaults(struct device *d, const struct device *defaults);
/* Is it its own name, or one of its export_names? */
bool device_is_served_as(const struct device *d, const char *name);
/* Forget a device, which is freed. */
void config_drop(struct config *c, struct device *d);

/*
 * Everything was read: make nullb0 if no device was asked for, give each what
 * [defaults] says and it does not, and number them.  0 or -ENOMEM.
 */
int config_finish(struct config *c);

/*
 * After config_finish(): what power-on would refuse of devices whose power is
 * to be on, names that two devices
 * have, a default_export that is none; a line each to `errors`
 * ("nullbd.conf:12: nullb0: blocksize: ...").  0 or -EINVAL.
 */
int config_check(const struct config *c, unsigned nr_cpus, FILE *errors);

/*
 * After config_check(): what is in force, as a configuration file.  What
 * nobody asked for is a comment, so that read back it stays nobody's wish.
 */
void config_print(const struct config *c, unsigned nr_cpus, FILE *out);

/*
 * "text" in double quotes, where \ takes away a character's meaning, becomes
 * text, in place; anything else stays.  False: a quote is not closed, or
 * something follows it.
 */
bool unquote(char *text);

/* -------------------------------------------------------------- create.c */

/*
 * After config_finish(): add a device at run time.  `attributes`: an object of
 * strings, or arrays of strings where an attribute is set more than once; NULL:
 * none.  0 and *out; or -errno with a sentence, and there is none.
 */
int config_create(struct config *c, const char *name, struct json_t *attributes,
    struct device **out, char *err, size_t errlen);

/*
 * The same with the settings that a disk has by now, but for what is its own
 * (its index and other names) and files (fill, backing, trace).
 */
int config_snapshot(struct config *c, const char *name, const struct disk *of,
    struct device **out, char *err, size_t errlen);

/* -------------------------------------------------------------- origin.c */

enum origin_kind {
	ORIGIN_INI,
	ORIGIN_MODPROBE,
	ORIGIN_SPEC,
	ORIGIN_SETTING, /* of the command line: config_set() */
};

/*
 * Remember a step that the configuration is made of; config_ini(),
 * config_modprobe() and config_spec() do so themselves.  0 or -ENOMEM.
 */
int config_remember(struct config *c, enum origin_kind kind, const char *text,
    const char *value);
void config_forget(struct config *c);
/* Are there files among them? */
bool config_has_files(const struct config *c);
/*
 * Take all steps again, and finish: *out is what the configuration is by now.
 * 0; or -EINVAL or -ENOMEM, complained about, and there is no *out.
 */
int config_again(const struct config *c, struct config *out, FILE *errors);

/* ------------------------------------------------------------- compare.c */

/*
 * What `next` says otherwise of the daemon and of the devices of `now`, and
 * which of them it has no more: a line each.  How many.
 */
unsigned
config_compare(const struct config *now, const struct config *next, FILE *out);
/*
 * May the devices that only `next` has be served beside those of `now`?  0, or
 * -errno with a line each.
 */
int config_check_new(
    const struct config *now, const struct config *next, FILE *errors);
/* Move one of them over. */
void config_adopt(struct config *now, struct config *next, struct device *d);

/* ----------------------------------------------------------------- ini.c */

/*
 * Read a configuration file; every error is a line to `errors`, with file and
 * line.  0, or -errno of the file, or -EINVAL.
 */
int config_ini(struct config *c, const char *path, FILE *errors);

/* ---------------------------------------------------------------- spec.c */

/* A device of the command line: NAME[:attribute=value[,...]]. */
int config_spec(struct config *c, const char *spec, char *err, size_t errlen);

/* ------------------------------------------------------------ modprobe.c */

/*
 * The devices that `modprobe null_blk` would make with the options lines of a
 * modprobe.d file.  Errors and notes as config_ini().
 */
int config_modprobe(struct config *c, const char *path, FILE *errors);

/* -------------------------------------------------------------- iostat.c */

/* A device's counters, and when they were read. */
struct sample {
	uint64_t now_ns;
	struct queue_stat stat;
};

/* What lies between two samples, as iostat prints it: -x, or the short form. */
void iostat_header(bool extended, FILE *out);
void iostat_line(bool extended, const char *name, const struct sample *from,
    const struct sample *to, FILE *out);
/* The columns of -x by their names; NULL when out of memory. */
struct json_t *iostat_json(const struct sample *from, const struct sample *to);

/*
 * fio's line in "Disk stats (read/write):", without a newline: as up to 3.35,
 * or with sectors as since 3.36.
 */
void fio_line(bool sectors, const char *name, const struct sample *from,
    const struct sample *to, FILE *out);

/* A sample over the control socket.  NULL: no memory; -EINVAL: not one. */
struct json_t *sample_pack(const struct sample *s);
int sample_unpack(struct json_t *json, struct sample *out);

/* ------------------------------------------------------------ blktrace.c */

#define BLKTRACE_MAJOR     259u  /* of our devices: blkext, anybody's */
#define BLKTRACE_MAX_CPUS  1024u /* in a trace that is read */
#define BLKTRACE_MAX_EVENT 128u  /* bytes that an event takes at most */
#define BLKTRACE_MAX_TEXT  200u  /* bytes of a message */
#define BLKTRACE_TASKS     1024u

struct blktrace_record;

/* Makes blktrace records of events. */
struct blktrace {
	const char *who; /* tasks are called that, and their number */
	uint32_t device;
	unsigned nr_cpus;
	uint32_t *sequence; /* by cpu: the last one's */
	/* Who was introduced, by task modulo; more of them are so again. */
	uint64_t introduced[BLKTRACE_TASKS];
};

/* 0 or -ENOMEM. */
int blktrace_init(struct blktrace *b, const char *who, unsigned major,
    unsigned minor, unsigned nr_cpus);
void blktrace_fini(struct blktrace *b);

/*
 * The record of an event; before the first one of a task a note, which names
 * it: "conn 7".  Returns the bytes used of out[BLKTRACE_MAX_EVENT].
 */
size_t
blktrace_event(struct blktrace *b, const struct trace_event *e, char *out);
/* A message, clipped to BLKTRACE_MAX_TEXT; out[] is that much larger. */
size_t blktrace_message(
    struct blktrace *b, unsigned cpu, uint64_t ns, const char *text, char *out);

/* Is a record that was read one of ours: magic, version, a cpu in range? */
bool blktrace_valid(const struct blktrace_record *r);

/* A trace as blktrace writes it: BASE.blktrace.CPU, a file each cpu. */
struct tracefile;
/*
 * Make all of the files, also those that stay empty: blkparse(1) stops at the
 * first that is missing.  For the same reason files of more cpus that an
 * earlier trace has left are removed.  NULL with a sentence in err: one cannot
 * be made, or another trace is writing to it.
 */
struct tracefile *
tracefile_new(const char *base, unsigned nr_cpus, char *err, size_t errlen);
/* Records of one cpu (less than nr_cpus), buffered.  0 or -errno. */
int tracefile_write(
    struct tracefile *t, unsigned cpu, const void *data, size_t len);
/* All that was written is in the files.  0 or -errno. */
int tracefile_flush(struct tracefile *t);
/* NULL is fine. */
void tracefile_free(struct tracefile *t);
/* ------------------------------------------------------------ segments.c */

/* Why bios are split and merges refused, in a word. */
extern const char *const split_names[SPLIT_NR];
extern const char *const refusal_names[REFUSED_NR];

/*
 * What became of bvecs on a disk that is on: raw numbers.  NULL when out of
 * memory.
 */
struct json_t *segments_pack(const struct disk *d, uint64_t now);
/* Its counters alone, into an object.  Not 0: no memory. */
int segments_add(struct json_t *json, const struct queue_stat *st);
/* The same as tables; 0, or -EINVAL when it is something else. */
int segments_print(struct json_t *json, FILE *out);

/* ------------------------------------------------------------- latency.c */

extern const char *const group_names[STAT_NR]; /* "read", "write", ... */

/* How long requests of a disk that is on took.  NULL when out of memory. */
struct json_t *latency_pack(const struct disk *d);
/* Those of a group; 0, or -EINVAL when it is something else. */
int latency_unpack(struct json_t *json, enum stat_group g, struct latency *out);
/* Their percentiles, as fio prints them. */
void latency_print(enum stat_group g, const struct latency *l, FILE *out);

/* ----------------------------------------------------------- queueinfo.c */

/* The queue of a disk that is on: its limits, rules, tags and counts. */
struct json_t *queueinfo_pack(const struct disk *d);
int queueinfo_print(struct json_t *json, FILE *out);
/* -------------------------------------------------------------- zoneinfo.c */

#define ZONEINFO_MAX 1024u /* zones in an answer */

/*
 * Zones of a disk that has some, an array, sectors as numbers: `count` of them
 * from the i-th on, but at most ZONEINFO_MAX.  NULL when out of memory.
 */
struct json_t *zoneinfo_pack(const struct disk *d, unsigned i, unsigned count);
/* The same as blkzone(8) prints it; 0, or -EINVAL: something else. */
int zoneinfo_print(struct json_t *json, FILE *out);
/*
 * What a client asks for: "action", and which zones by "sector", "count" or
 * "sectors", or "all".  The whole answer; NULL when out of memory.
 */
struct json_t *zoneinfo_run(struct disk *d, struct json_t *request);

/* --------------------------------------------------------------- iolog.c */

#define IOLOG_MAX_IOS   (1u << 25)
#define IOLOG_MAX_BYTES UINT32_MAX       /* of an I/O, as blktrace has it */
#define IOLOG_MAX_NS    (UINT64_MAX / 4) /* 146 years */

/* One I/O of a recording. */
struct iolog_io {
	uint64_t ns;  /* when it was submitted, from the first one on */
	uint64_t pos; /* bytes; it ends below 2^63 */
	uint64_t bytes;
	uint64_t line;   /* of a text; of a binary file the record, from 1 on */
	uint64_t offset; /* of that record in its file, in bytes */
	uint32_t task;   /* the pid; 0 in fio's */
	uint32_t device; /* major << 20 | minor; 0 in fio's */
	uint16_t flags;  /* REQ_* */
	uint16_t file;   /* FILE.blktrace.N */
	uint8_t op;      /* enum req_op */
	bool ended;      /* of iolog_read_service(): it is a C, not a D */
	bool first;      /* fio waited before it: it begins a batch */
	bool alone;      /* fio's sync or trim: it comes when all before it has
			    ended, and the next one when it has */
};

/* A recording: I/Os in the order of their submission. */
struct iolog {
	const char *path; /* the caller's */
	struct iolog_io *io;
	size_t nr, max;
	bool service; /* iolog_read_service() */
	bool timed;   /* else ns are but fio's waits, added up */
	bool binary;
	bool split;   /* binary, and each CPU has a file: path.blktrace.N */
	char *device; /* whose I/Os these are: "8,0", or a file's name */
	uint64_t nr_ignored; /* I/Os of others */
};

/*
 * Read what blkparse printed, what blktrace wrote (one file, or FILE where
 * there are FILE.blktrace.0, .1, ...), or an iolog of fio, version 2 or 3: its
 * content tells.  path "-" is the standard input.  `device` picks whose I/Os;
 * NULL: the first one's.  NULL: the recording is bad, or none, and a line to
 * `errors` says why.
 */
struct iolog *iolog_read(const char *path, const char *device, FILE *errors);
/*
 * The same of what the device did: when it got requests (D) and when they ended
 * (C), instead of I/Os as they were submitted.  An iolog of fio tells neither,
 * and is refused.
 */
struct iolog *
iolog_read_service(const char *path, const char *device, FILE *errors);
void iolog_free(struct iolog *log);

/* Where an I/O stands: "FILE:12", or "FILE: record 3 at byte 144". */
void iolog_where(
    const struct iolog *log, const struct iolog_io *io, char *out, size_t len);

/* ------------------------------------------------------------- measure.c */

/* How long requests of one kind and size took on a device. */
struct measured {
	enum stat_group group;
	uint64_t bytes; /* of each */
	uint64_t nr;
	unsigned nr_points;
	struct dist_point point[DIST_MAX_POINTS]; /* both ascend */
};

/* All that a file tells, by group, then by bytes. */
struct measurement {
	struct measured *of;
	size_t nr;
};

/*
 * Read what fio printed with --output-format=json, or json+, or a trace of
 * blktrace or blkparse, of which `device` picks a device as iolog_read() has
 * it: its content tells.  fio's is completion latency (clat), with the average
 * size of a job's I/O; a trace gives the time from D to C.  NULL: it is bad, or
 * there is nothing in it, and a line to `errors` says why.
 */
struct measurement *
measure_read(const char *path, const char *device, FILE *errors);
void measure_free(struct measurement *m);
/* All of it so much later or, with a minus, sooner; not below 0. */
void measure_shift(struct measurement *m, enum stat_group g, int64_t ns);

/* ----------------------------------------------------------------- fit.c */

#define FIT_NR 4u /* percentiles that a fit is judged at: 50 to 99.9 */
/* An error that is small enough to be taken: measuring again adds to it. */
#define FIT_GOOD 0.05

extern const double fit_percent[FIT_NR];

/* A model of what was measured. */
struct fit {
	struct dist dist;
	uint64_t measured_ns[FIT_NR], model_ns[FIT_NR];
	double error[FIT_NR]; /* relative; NAN: too few to tell */
	double worst;
};

/*
 * The model of that kind ("lognormal") that is nearest, or of the simplest one
 * that is near enough (NULL), for the `nr` of one group, ascending in size:
 * where sizes differ it has a time by the byte.  The shape is that of the size
 * of which there were most.  0; or -EINVAL: the kind cannot, or none is known.
 */
int fit_model(
    const struct measured *of, size_t nr, const char *kind, struct fit *out);

/*
 * The value of an attribute latency.* that names a file, "fio PATH" or "trace
 * PATH", with "read", "write", "discard" or "flush" behind if it is not to be
 * its own: what it is with a table instead.  *text is to be freed; NULL: it is
 * of no file, and as it is.  0, or -errno with a sentence.
 */
int fit_attribute(
    const char *name, const char *value, char **text, char *err, size_t errlen);

/* ------------------------------------------------------------- clients.c */

#define CLIENT_NOBODY   (-1)
#define CLIENT_PEER     64u
#define CLIENT_FEATURES 16u

/* Who is connected for NBD. */
struct client {
	unsigned id;
	char peer[CLIENT_PEER]; /* an address, or "unix" */
	int64_t pid, uid;       /* of who has connected; or CLIENT_NOBODY */
	const char *export;     /* NULL: none was chosen yet */
	int loop;               /* CLIENT_NOBODY: the main loop */
	const char *phase;      /* handshake, transmission, closing */
	unsigned nr_requests;   /* not answered */
	uint64_t since_ns;      /* when it came */
	const char *feature[CLIENT_FEATURES]; /* NULL after the last */
};

/* NULL when out of memory. */
struct json_t *clients_pack(const struct client *c, unsigned nr, uint64_t now);
/* The same as a table; 0, or -EINVAL when it is something else. */
int clients_print(struct json_t *json, FILE *out);

/* ----------------------------------------------------------- faultinfo.c */

/* The rules of a disk, and its log of hits.  NULL when out of memory. */
struct json_t *faults_pack(const struct disk *d);
struct json_t *faults_pack_log(const struct disk *d);
/* The same as text; 0, or -EINVAL when it is something else. */
int faults_print(struct json_t *json, FILE *out);
int faults_print_log(struct json_t *json, FILE *out);

/* ------------------------------------------------------------- metrics.c */

#define METRICS_TYPE \
	"application/openmetrics-text; version=1.0.0; charset=utf-8"

/* What metrics tell of the daemon itself. */
struct daemon_state {
	unsigned nr_connections;
	uint64_t nr_requests;  /* of them all, not answered */
	uint64_t memory;       /* bytes in use of the pool */
	uint64_t memory_limit; /* 0: none */
};

/*
 * Everything that was counted, as METRICS_TYPE: *text is to be freed.  0 or
 * -ENOMEM.
 */
int metrics_text(struct disk *const *disks, unsigned nr,
    const struct daemon_state *state, uint64_t now, char **text, size_t *len);

/* --------------------------------------------------------------- event.c */

#define EVENT_NAME 80u
#define EVENT_TEXT 512u

enum event_kind {
	EVENT_CREATED, /* a device; by whom */
	EVENT_REMOVED,
	EVENT_POWER,      /* on or off */
	EVENT_POWER_CUT,  /* before it: what was lost */
	EVENT_SET,        /* an attribute: name, text its value; by whom */
	EVENT_CONNECTED,  /* a client: id, name its peer */
	EVENT_NEGOTIATED, /* the same, of a device: text its export */
	EVENT_GONE,
	EVENT_KICKED,
	EVENT_FAULT,    /* a rule has hit: id and what follows it */
	EVENT_SHUTDOWN, /* the daemon ends */
	EVENT_DROPPED,  /* id: so many, up to seq, are not told */
	EVENT_NR
};

/* Something that has happened. */
struct event {
	enum event_kind kind;
	uint64_t seq;               /* from 1 on */
	uint64_t ns;                /* CLOCK_REALTIME */
	char device[DISK_NAME_LEN]; /* "": of none */
	char name[EVENT_NAME];
	char text[EVENT_TEXT];
	const char *by; /* "control", "sysfs", "reload": a constant, as those */
	const char *op, *action;
	bool on;
	uint64_t id;
	uint64_t sector, nr_sectors;
	struct cut_report cut;
};

/* Copy as much of a text as there is room for. */
void event_text(char *out, size_t size, const char *text);
/* As JSON, with a newline, to be freed; NULL: no memory. */
char *event_line(const struct event *e);
/* The same for a person; 0, or -EINVAL when it is something else. */
int event_print(struct json_t *json, FILE *out);

/* ------------------------------------------------------------- control.c */

#define PLACE_URI 512u

/* Where a device is served: by its URI, and by what nbd-client takes. */
struct place {
	char uri[PLACE_URI];
	char path[109]; /* of a UNIX socket that has a file; else "" */
	char host[64];  /* of TCP; else "" */
	unsigned port;
	bool tls; /* nobody gets it there without */
};

#define CTL_MAX_LINE 65536u /* bytes of a request, with its newline */
#define CTL_SOCKET   "/run/nullbd.sock"

/* What the control socket speaks about. */
struct ctl {
	struct disk *const *disks;
	unsigned nr_disks;
	/*
	 * Begin to trace a disk that is on; the records follow the answer to
	 * `from`.  0, -EBUSY or -ENOMEM.  NULL: nobody can.
	 */
	int (*trace)(void *from, struct disk *d);
	/*
	 * `from` has begun a change that will settle: its answer is to be
	 * ctl_settled()'s.  NULL: nobody can.
	 */
	void (*settle)(void *from, struct disk *d);
	/*
	 * All clients, as an array to be freed: how many, or -ENOMEM.  NULL:
	 * there are none to be known.
	 */
	int (*clients)(void *from, struct client **out);
	/* Hang up on one: 0, or -ENOENT when there is none of that id. */
	int (*kick)(void *from, uint64_t id);
	/* Where it is served, as an array to be freed: how many, or -ENOMEM. */
	int (*places)(void *from, const struct disk *d, struct place **out);
	/* Where devices that are made are added.  NULL: none can be. */
	struct config *config;
	/*
	 * Make a disk of such a device, on if it says so: 0; -EINPROGRESS: it
	 * is there, and `from` gets its answer of ctl_settled() when it is on,
	 * or is gone again; or -errno with a sentence.
	 */
	int (*create)(
	    void *from, const struct device *dev, char *err, size_t errlen);
	/*
	 * The same with the data that a disk has: -EINPROGRESS: the disk is
	 * frozen, and whoever does that sees to the device.  NULL: nobody can.
	 */
	int (*snapshot)(void *from, struct disk *of, struct device *dev,
	    char *err, size_t errlen);
	/*
	 * Power on or off: 0; -EINPROGRESS: `from` gets its answer of
	 * ctl_settled(); or -errno with a sentence.  NULL: nobody can.
	 */
	int (*power)(
	    void *from, struct disk *d, bool on, char *err, size_t errlen);
	/*
	 * Cut its power, which is on: 0, it comes with a request (disk_cut());
	 * -EINPROGRESS: likewise, of ctl_departed(); or -errno with a
	 * sentence.  NULL: nobody can.
	 */
	int (*cut)(void *from, struct disk *d, const struct cut_conf *c,
	    char *err, size_t errlen);
	/* Off, and forgotten: -EINPROGRESS, likewise; or -ENOMEM. */
	int (*remove)(void *from, struct disk *d);
	/*
	 * `from` waits for a rule of a disk to have hit so often: its answer
	 * is to be ctl_awaited()'s.  NULL: nobody can.
	 */
	void (*await)(void *from, struct disk *d, uint64_t id, uint64_t hits);
	/*
	 * Zones of a disk were reset: a cpu is to give their data back
	 * (zones_sweep()).  NULL: who next uses them does.
	 */
	void (*sweep)(void *from, struct disk *d);
	/*
	 * An attribute was set; or, with `settles`, will be unless that fails.
	 * NULL: nobody wants to know.
	 */
	void (*changed)(void *from, const struct disk *d, const char *attribute,
	    const char *value, bool settles);
	/*
	 * Events follow the answer to `from`, of one device or, with NULL, of
	 * all.  0 or -ENOMEM.  NULL: nobody can.
	 */
	int (*watch)(void *from, const struct disk *d);
	/* For metrics.  NULL: there is no daemon to tell of. */
	void (*state)(void *from, struct daemon_state *out);
};

/*
 * Answer a request of `len` bytes (a newline at its end or not) that came from
 * `from`: one line of JSON with its newline, which the caller frees.  A line
 * longer than CTL_MAX_LINE is refused.  NULL when out of memory; or after
 * ctl->settle() or ctl->await() was called, or ctl->create(), ctl->power() or
 * ctl->remove() said -EINPROGRESS: the answer comes later, as ctl_settled() or
 * ctl_awaited() has it.
 *
 *	{"command":"get","name":"nullb0","attribute":"size"}
 *	{"ok":true,"value":"256000"}
 *	{"ok":false,"errno":"ENODEV","error":"nullb7: no such device"}
 */
char *ctl_request(const struct ctl *ctl, void *from, const char *line,
    size_t len, uint64_t now);
/*
 * The answer to a request that has settled: disk_settle() of that disk said
 * `error` and, if that is not 0, `text`.  NULL when out of memory.
 */
char *ctl_settled(const struct disk *disk, int error, const char *text);
/* The same to one that has waited until it was off: what became of its data. */
char *ctl_departed(const struct disk *disk);

/*
 * The same as "set" and "create" without JSON around: 0; -EINPROGRESS: it will
 * settle, and ctl->settle(), ->create() or ->power() knows who waits; or -errno
 * with a sentence.
 */
int ctl_set(const struct ctl *ctl, void *from, struct disk *d,
    const char *attribute, const char *value, uint64_t now, char *err,
    size_t errlen);
int ctl_create(const struct ctl *ctl, void *from, const char *name,
    struct json_t *attributes, char *err, size_t errlen);
/* The answer to one that waits for a rule; NULL: not yet, or no memory. */
char *ctl_awaited(const struct disk *disk, uint64_t id, uint64_t hits);

/* An attribute as null_blk prints it, a string; NULL when out of memory. */
struct json_t *ctl_value(const struct attr *a, const struct disk_conf *conf);

/* ----------------------------------------------------------------- cut.c */

/*
 * How the power is to be cut, as the members of a request say it; without a
 * seed there is one, from `now`.  0, or -EINVAL with a sentence.
 */
int cut_parse(struct json_t *request, uint64_t now, struct cut_conf *c,
    char *err, size_t errlen);
/* What came of it, an object; NULL when out of memory. */
struct json_t *cut_pack(const struct cut_report *r);

/* -------------------------------------------------------------- inject.c */

#define NR_INJECTS   3u
#define INJECT_INERT 4u

/* What such a directory has that is of no effect here. */
struct inject {
	uint64_t inert[INJECT_INERT];
};

void inject_init(struct inject *inject);
/* The directories, the attributes behind them, their files; NULL: no more. */
const char *inject_directory(unsigned i);
const char *inject_attribute(unsigned i);
const char *inject_file(unsigned file);
/* What cat shows. */
void inject_show(const struct inject *inject, unsigned i, unsigned file,
    const struct disk_conf *conf, FILE *out);
/*
 * echo: 0, or -errno as the kernel has it.  What the attribute is to be set to
 * is in out, or nothing: "".
 */
int inject_write(struct inject *inject, unsigned file, const char *value,
    char *out, size_t len);

/* ---------------------------------------------------------------- tree.c */

/*
 * The devices as files, as configfs and sysfs of the kernel have them: a file
 * is a number, which stays until its device is gone.  One thread.
 */
struct tree;

#define TREE_ROOT 1u

struct tree_entry {
	const char *name; /* until something else is done */
	uint64_t ino;
};

/* NULL: no memory.  It looks into `ctl` each time. */
struct tree *tree_new(const struct ctl *ctl);
void tree_free(struct tree *t); /* NULL is fine */
/* A device is gone: one that gets its name has other numbers. */
void tree_forget(struct tree *t, const char *name);
/* The nth entry of a directory; false: there are fewer, or it is none. */
bool tree_entry(struct tree *t, uint64_t dir, unsigned n, struct tree_entry *e);
/* 0: there is none of that name. */
uint64_t tree_lookup(struct tree *t, uint64_t dir, const char *name);
/* Its type and permissions; 0 or -ENOENT: it is gone. */
int tree_mode(const struct tree *t, uint64_t ino, mode_t *out);
/* Whose file it is; NULL: it is gone, or of no device. */
struct disk *tree_disk(const struct tree *t, uint64_t ino);
/* What cat shows: 0, or -errno. */
int tree_read(const struct tree *t, uint64_t ino, uint64_t now, FILE *out);
/*
 * echo, mkdir, rmdir: 0, -errno as the kernel has it, or -EINPROGRESS: as
 * ctl_set() has it.
 */
int tree_write(const struct tree *t, void *from, uint64_t ino,
    const char *value, uint64_t now);
int
tree_mkdir(const struct tree *t, void *from, uint64_t dir, const char *name);
int tree_rmdir(struct tree *t, void *from, uint64_t dir, const char *name);

#endif
