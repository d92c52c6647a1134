/*
 * The messages of control connections, as they are on the wire, and their checks.
 *
 *      all:   HELLO -> <- CHALLENGE, PROOF ->, <- WELCOME, or <- REJECT and the end
 *      child: from a rank to its leader, or a leader to the root or its parent in the tree:
 *             INFO both ways, JOIN -> ...; <- PLACE (from the root), <- ROSTER,
 *             <- ROSTER_PART ..., READY ->, <- GO; REJECT instead of any of these, once;
 *             then DEAD, LEFT, FAIL and BEAT both ways
 *             from a survivor to the lowest one: VIEW both ways, <- REJECT
 *      peer:  between processes: BLOB both ways; on one machine also REGION_GET -> <- REGION_IS,
 *             <- REGION_DEAD
 *      data:  from rank to rank: after the handshake the transport uses the socket
 *
 * One message is one packet: a header and the fixed fields of its type, little-endian, naturally
 * aligned, without padding. Between machines the messages form a stream, without descriptors, and
 * after the WELCOME each carries a MAC, and may be encrypted (frame_io.h).
 *
 * hoop_frame_check() accepts only messages whose length fits the type, with exactly the descriptors
 * that belong to it, every index below its limit, and every string terminated and free of control
 * characters. What depends on the comm (is this rank below n?) is checked where the field is used.
 * No message is larger than union hoop_frame.
 */
#ifndef HOOP_CONTROL_FRAME_H
#define HOOP_CONTROL_FRAME_H

#include "base/crypto.h"
#include "base/error.h"
#include "base/settings.h"
#include "base/sizes.h"
#include "net/address.h"
#include "runtime/wait.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOOP_FRAME_MAGIC 0x706f6f68u /* "hoop" */
#define HOOP_FRAME_VERSION 20u       /* also of the board's layout (exec/board.h) */
#define HOOP_FRAME_MAX_LANES 64u
#define HOOP_FRAME_MAX_SEGMENT_BYTES (1ull << 40)
#define HOOP_FRAME_MAX_MS 86400000ull /* a day */
#define HOOP_FRAME_BLOB_BYTES 128
#define HOOP_FRAME_WHY_BYTES 160
#define HOOP_FRAME_MAC_BYTES 16

/* Limits a time to what a message may carry. */
static inline uint64_t hoop_frame_ms(uint64_t ms)
{
    return ms < HOOP_FRAME_MAX_MS ? ms : HOOP_FRAME_MAX_MS;
}

enum hoop_frame_type {
    HOOP_FRAME_HELLO = 1,
    HOOP_FRAME_CHALLENGE,
    HOOP_FRAME_PROOF,
    HOOP_FRAME_WELCOME,
    HOOP_FRAME_REJECT,
    HOOP_FRAME_INFO,
    HOOP_FRAME_JOIN,
    HOOP_FRAME_PLACE,
    HOOP_FRAME_ROSTER,
    HOOP_FRAME_ROSTER_PART,
    HOOP_FRAME_READY,
    HOOP_FRAME_GO,
    HOOP_FRAME_DEAD,
    HOOP_FRAME_LEFT,
    HOOP_FRAME_FAIL,
    HOOP_FRAME_BEAT,
    HOOP_FRAME_BLOB,
    HOOP_FRAME_REGION_GET,
    HOOP_FRAME_REGION_IS,
    HOOP_FRAME_REGION_DEAD,
    HOOP_FRAME_VIEW,
    HOOP_FRAME_TYPE_COUNT
};

/* Without padding, whose bytes would be sent uninitialised. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

struct hoop_frame_header { /* WELCOME, READY and GO consist of it */
    uint32_t magic;
    uint16_t type;
    uint16_t version;
    uint32_t bytes; /* of the whole message */
    uint32_t reserved;
    uint8_t mac[HOOP_FRAME_MAC_BYTES]; /* over TCP, once the connection is open; else 0 */
};

enum hoop_hello_kind {
    HOOP_HELLO_RANK = 1,  /* from a rank to its leader */
    HOOP_HELLO_TO_ROOT,   /* from a leader to the root */
    HOOP_HELLO_TO_PARENT, /* from a leader to its parent in the tree */
    HOOP_HELLO_SURVIVOR,  /* from a rank to the one that leads the survivors (survivors.h) */
    HOOP_HELLO_PEER,      /* from a process to another */
    HOOP_HELLO_DATA,      /* from a rank to a rank: becomes a link's connection */
    HOOP_HELLO_KINDS
};

struct hoop_frame_hello {
    struct hoop_frame_header header;
    uint32_t kind;
    uint32_t lane;               /* for DATA; else 0 */
    uint64_t comm_id;            /* for PEER and DATA; else 0 */
    uint32_t from, to;           /* ranks; TO_PARENT: machines; RANK: to is 0 */
    struct hoop_address dialled; /* the server's, as the client dialled it; family 0: Unix socket */
    char rendezvous[HOOP_NAME_BYTES]; /* for the first four kinds */
    uint32_t encrypts; /* over TCP: the nonces are public keys of X25519, made for the connection */
    uint32_t reserved;
    uint8_t nonce[HOOP_NONCE_BYTES];
};

struct hoop_frame_challenge {
    struct hoop_frame_header header;
    uint8_t nonce[HOOP_NONCE_BYTES];
    uint8_t mac[HOOP_MAC_BYTES]; /* over the hello and the nonce */
};

struct hoop_frame_proof {
    struct hoop_frame_header header;
    uint8_t mac[HOOP_MAC_BYTES]; /* over the hello and the challenge */
};

/* REJECT and FAIL. rank -1: nobody is at fault. HOOP_IN_PROGRESS in a REJECT: come back later. */
struct hoop_frame_failure {
    struct hoop_frame_header header;
    int32_t code;
    int32_t rank;
    char text[HOOP_FAILURE_TEXT_BYTES];
};

struct hoop_frame_entry { /* a rank and its process */
    uint64_t process;
    uint64_t process_at; /* address of that number in its memory; 0: others do not read there */
    uint64_t start_time; /* of the process: hoop_process_start_time() */
    struct hoop_cpus cpus;
    int32_t pid;
    uint16_t machine;            /* machines are numbered by their lowest ranks; 0 in a JOIN */
    uint16_t has_fd;             /* 1: the receiver is on its machine and gets its wake fd */
    struct hoop_address address; /* where other machines reach its process; family 0: unknown */
    char host[HOOP_NAME_BYTES];
    char listener[HOOP_NAME_BYTES];
};

struct hoop_frame_join { /* with the rank's wake descriptor, on one machine */
    struct hoop_frame_header header;
    uint32_t rank, n;
    struct hoop_frame_entry who;
    uint32_t no_membarrier;
    uint32_t reserved;
    uint64_t timeout_ms;
    uint64_t left_ms; /* what is left of timeout_ms */
    uint64_t dead_after_ms;
    uint64_t segment_bytes;
    struct hoop_agreement agreed;
};

struct hoop_frame_roster { /* with the segment's descriptor, on one machine */
    struct hoop_frame_header header;
    uint64_t comm_id;
    uint32_t n;
    uint32_t machines; /* number of machines */
    uint64_t segment_bytes;
    uint64_t server;        /* hoop_process_id() of the leader's process */
    uint64_t dead_after_ms; /* the smallest of all ranks; sets the interval of BEATs */
    uint32_t need_fence;
    uint32_t no_rdma; /* 1: some rank has no RDMA */
    /* The comm's secret, if the leader of a comm on one machine drew one; 0: the rendezvous's. */
    uint8_t secret[HOOP_SECRET_BYTES];
};

struct hoop_frame_roster_part { /* with the wake descriptors of entries with has_fd, in order */
    struct hoop_frame_header header;
    uint32_t first, count;
    struct hoop_frame_entry entries[HOOP_MAX_FDS]; /* only count of them are sent */
};

/* DEAD: a rank was lost. LEFT: it said goodbye. */
struct hoop_frame_fate {
    struct hoop_frame_header header;
    uint32_t rank;
    uint32_t how; /* LEFT: 1: for good, else the comm in which it goes on; DEAD: 0 */
    char why[HOOP_FRAME_WHY_BYTES]; /* DEAD: completes "rank 3 (...)"; "": its connection ended */
};

struct hoop_frame_beat { /* a sign of life */
    struct hoop_frame_header header;
    uint64_t waited_ms; /* how long an operation on this side has waited; HOOP_NEVER: none waits */
};

struct hoop_frame_info { /* about the sender */
    struct hoop_frame_header header;
    struct hoop_address address; /* where other machines reach the sender; family 0: nowhere */
    uint64_t process;
    int32_t pid;
    uint32_t machine; /* the sender's number; 0 until it has one */
    char host[HOOP_NAME_BYTES];
};

struct hoop_frame_place { /* the receiver's place in the tree */
    struct hoop_frame_header header;
    uint32_t machine, machines; /* the receiver's number, and how many there are */
    struct hoop_address parent; /* machine (machine - 1) / 2; none for machine 0 */
};

struct hoop_frame_region { /* REGION_GET, REGION_DEAD */
    struct hoop_frame_header header;
    uint64_t comm_id; /* the asking rank's; 0 in REGION_DEAD */
    uint64_t id;
    uint32_t generation;
    uint32_t reserved;
};

struct hoop_frame_region_is { /* with the region's descriptor, if code is HOOP_OK */
    struct hoop_frame_header header;
    uint64_t comm_id;
    uint64_t id;
    uint32_t generation;
    uint32_t kind;
    uint64_t bytes;
    int32_t code;
    uint32_t reserved;
    char why[HOOP_FRAME_WHY_BYTES]; /* the code's sentence */
};

struct hoop_frame_blob {
    struct hoop_frame_header header;
    uint64_t comm_id;
    uint32_t from, to; /* ranks */
    uint32_t lane;
    uint32_t sending; /* 1 if it is from the link's sending end */
    uint32_t bytes;
    uint32_t reserved;
    uint8_t data[HOOP_FRAME_BLOB_BYTES];
};

/* A set of ranks as bits. */
struct hoop_rank_set {
    uint8_t bits[HOOP_MAX_RANKS / 8];
};

static inline bool hoop_rank_set_has(const struct hoop_rank_set *set, uint32_t rank)
{
    return (set->bits[rank / 8] >> (rank % 8) & 1u) != 0;
}
static inline void hoop_rank_set_add(struct hoop_rank_set *set, uint32_t rank)
{
    set->bits[rank / 8] |= (uint8_t)(1u << (rank % 8));
}

enum hoop_view_phase { HOOP_VIEW_MINE, HOOP_VIEW_AGREED, HOOP_VIEW_DONE, HOOP_VIEW_PHASES };

struct hoop_frame_view { /* which ranks are left; the connection has proved whose view it is */
    struct hoop_frame_header header;
    uint32_t phase;
    uint32_t exact;                  /* 1: no rank may be lost */
    uint64_t left_ms;                /* how long the sender goes on waiting */
    uint8_t nonce[HOOP_NONCE_BYTES]; /* AGREED: of the new rendezvous */
    struct hoop_rank_set out;        /* the ranks that are lost */
};

#pragma GCC diagnostic pop

union hoop_frame {
    struct hoop_frame_header header;
    struct hoop_frame_hello hello;
    struct hoop_frame_challenge challenge;
    struct hoop_frame_proof proof;
    struct hoop_frame_failure reject, fail;
    struct hoop_frame_join join;
    struct hoop_frame_roster roster;
    struct hoop_frame_roster_part part;
    struct hoop_frame_fate fate;
    struct hoop_frame_beat beat;
    struct hoop_frame_info info;
    struct hoop_frame_place place;
    struct hoop_frame_region region;
    struct hoop_frame_region_is region_is;
    struct hoop_frame_blob blob;
    struct hoop_frame_view view;
};

/* Clears a frame and fills in its header. The size is the type's; a roster part is empty. */
void hoop_frame_init(union hoop_frame *frame, enum hoop_frame_type type);

/* Sets first and count of a roster part, and its size. */
void hoop_frame_set_count(union hoop_frame *frame, uint32_t first, uint32_t count);

/* Makes a whole REJECT or FAIL from a failure (HOOP_AGAIN: come back later), and the reverse. */
void hoop_frame_from_failure(union hoop_frame *frame, enum hoop_frame_type type,
                             const struct hoop_failure *failure);
struct hoop_failure hoop_frame_to_failure(const struct hoop_frame_failure *frame);

/* Makes a whole BEAT: somebody has waited since since_ns (HOOP_NEVER: nobody waits). The reverse
 * gives that moment by the receiver's clock. */
void hoop_frame_make_beat(union hoop_frame *frame, uint64_t since_ns, uint64_t now_ns);
uint64_t hoop_frame_waiting_since(const struct hoop_frame_beat *beat, uint64_t now_ns);

/*
 * Checks a message of `bytes` bytes that came with fd_count descriptors. HOOP_MISMATCH: it is of
 * another version; HOOP_NOT_AUTHENTICATED: it is malformed. The thread's sentence says how.
 */
hoop_result_t hoop_frame_check(const union hoop_frame *frame, size_t bytes, uint32_t fd_count);
/* The same for a message from a network: no descriptors and no secrets. */
hoop_result_t hoop_frame_check_far(const union hoop_frame *frame, size_t bytes);
/* The same for a header alone. Its size is at most that of union hoop_frame. */
hoop_result_t hoop_frame_check_header(const struct hoop_frame_header *header);

/* "HELLO"; "unknown" for an unknown number. Static. */
const char *hoop_frame_name(uint32_t type);

#endif
