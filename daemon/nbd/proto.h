/* SPDX-License-Identifier: MIT */
/* Numbers of the NBD protocol (doc/proto.md of the NBD project). */
#ifndef NBD_PROTO_H
#define NBD_PROTO_H

#define NBD_MAGIC              0x4e42444d41474943ULL
#define NBD_IHAVEOPT           0x49484156454f5054ULL
#define NBD_REP_MAGIC          0x0003e889045565a9ULL
#define NBD_REQUEST_MAGIC      0x25609513u
#define NBD_SIMPLE_REPLY_MAGIC 0x67446698u
#define NBD_CHUNK_MAGIC        0x668e33efu /* of a structured reply */
#define NBD_EXT_REQUEST_MAGIC  0x21e41c71u /* extended headers */
#define NBD_EXT_REPLY_MAGIC    0x6e8a278cu
#define NBD_MAX_STRING         4096u

enum { /* handshake flags, both ways */
	NBD_FLAG_FIXED_NEWSTYLE = 1 << 0,
	NBD_FLAG_NO_ZEROES = 1 << 1,
};

enum { /* transmission flags */
	NBD_FLAG_HAS_FLAGS = 1 << 0,
	NBD_FLAG_READ_ONLY = 1 << 1,
	NBD_FLAG_SEND_FLUSH = 1 << 2,
	NBD_FLAG_SEND_FUA = 1 << 3,
	NBD_FLAG_ROTATIONAL = 1 << 4,
	NBD_FLAG_SEND_TRIM = 1 << 5,
	NBD_FLAG_SEND_WRITE_ZEROES = 1 << 6,
	NBD_FLAG_SEND_DF = 1 << 7,
	NBD_FLAG_CAN_MULTI_CONN = 1 << 8,
	NBD_FLAG_SEND_CACHE = 1 << 10,
	NBD_FLAG_SEND_FAST_ZERO = 1 << 11,
	NBD_FLAG_BLOCK_STATUS_PAYLOAD = 1 << 12,
};

enum { /* options */
	NBD_OPT_EXPORT_NAME = 1,
	NBD_OPT_ABORT = 2,
	NBD_OPT_LIST = 3,
	NBD_OPT_STARTTLS = 5,
	NBD_OPT_INFO = 6,
	NBD_OPT_GO = 7,
	NBD_OPT_STRUCTURED_REPLY = 8,
	NBD_OPT_LIST_META_CONTEXT = 9,
	NBD_OPT_SET_META_CONTEXT = 10,
	NBD_OPT_EXTENDED_HEADERS = 11,
};

#define NBD_REP_ERR(n) (0x80000000u + (n))
enum {
	NBD_REP_ACK = 1,
	NBD_REP_SERVER = 2,
	NBD_REP_INFO = 3,
	NBD_REP_META_CONTEXT = 4,
};
#define NBD_REP_ERR_UNSUP           NBD_REP_ERR(1)
#define NBD_REP_ERR_POLICY          NBD_REP_ERR(2)
#define NBD_REP_ERR_INVALID         NBD_REP_ERR(3)
#define NBD_REP_ERR_TLS_REQD        NBD_REP_ERR(5)
#define NBD_REP_ERR_UNKNOWN         NBD_REP_ERR(6)
#define NBD_REP_ERR_SHUTDOWN        NBD_REP_ERR(7)
#define NBD_REP_ERR_TOO_BIG         NBD_REP_ERR(9)
#define NBD_REP_ERR_EXT_HEADER_REQD NBD_REP_ERR(10)

enum {
	NBD_INFO_EXPORT,
	NBD_INFO_NAME,
	NBD_INFO_DESCRIPTION,
	NBD_INFO_BLOCK_SIZE
};

enum { /* commands */
	NBD_CMD_READ,
	NBD_CMD_WRITE,
	NBD_CMD_DISC,
	NBD_CMD_FLUSH,
	NBD_CMD_TRIM,
	NBD_CMD_CACHE,
	NBD_CMD_WRITE_ZEROES,
	NBD_CMD_BLOCK_STATUS,
};

enum { /* command flags */
	NBD_CMD_FLAG_FUA = 1 << 0,
	NBD_CMD_FLAG_NO_HOLE = 1 << 1,
	NBD_CMD_FLAG_DF = 1 << 2,
	NBD_CMD_FLAG_REQ_ONE = 1 << 3,
	NBD_CMD_FLAG_FAST_ZERO = 1 << 4,
	NBD_CMD_FLAG_PAYLOAD_LEN = 1 << 5, /* extended headers */
};

#define NBD_CHUNK_DONE 1u /* flag of the last chunk of a reply */
enum {                    /* types of chunks */
	NBD_CHUNK_NONE = 0,
	NBD_CHUNK_OFFSET_DATA = 1,
	NBD_CHUNK_OFFSET_HOLE = 2,
	NBD_CHUNK_BLOCK_STATUS = 5,
	NBD_CHUNK_BLOCK_STATUS_EXT = 6,
	NBD_CHUNK_ERROR = 0x8001,
	NBD_CHUNK_ERROR_OFFSET = 0x8002,
};

enum { /* status of base:allocation */
	NBD_STATE_HOLE = 1 << 0,
	NBD_STATE_ZERO = 1 << 1,
};

enum { /* errors: no other value is legal on the wire */
	NBD_EPERM = 1,
	NBD_EIO = 5,
	NBD_ENOMEM = 12,
	NBD_EINVAL = 22,
	NBD_ENOSPC = 28,
	NBD_EOVERFLOW = 75,
	NBD_ENOTSUP = 95,
	NBD_ESHUTDOWN = 108,
};

#define NBD_REQUEST_SIZE      28u
#define NBD_EXT_REQUEST_SIZE  32u
#define NBD_SIMPLE_REPLY_SIZE 16u
#define NBD_CHUNK_HEADER_SIZE 20u
#define NBD_EXT_REPLY_SIZE    32u /* header of a chunk */

#endif
