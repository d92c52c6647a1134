/*
 * The messages of control connections, as they lie on the wire, and their checks.
 *
 *      all:   HELLO -> <- CHALLENGE, PROOF ->, <- WELCOME, or <- REJECT and the end
 *      child: a rank of its leader; a leader of the root, and of its parent in the tree:
 *             INFO both ways, JOIN -> ...; <- PLACE (of the root), <- ROSTER,
 *             <- ROSTER_PART ..., READY ->, <- GO; REJECT instead of anything, once;
 *             then DEAD, LEFT, FAIL and BEAT both ways
 *             a survivor of the lowest that is left: VIEW both ways, <- REJECT
 *      peer:  a process of another: BLOB both ways; on one machine REGION_GET -> <- REGION_IS,
 *             <- REGION_DEAD, too
 *      data:  a rank of a rank: from here on what the transport says
 *
 * One message is one packet: a header and the fixed fields of its type, little-endian, naturally
 * aligned, no padding. Between machines the same messages travel without descriptors, as a stream,
 * and after the WELCOME each carries a MAC (frame_io.h).
 *
 * hoop_frame_check() is pure: what it lets through has the length that its type says, exactly the
 * descriptors that belong to it, every index below its limit and every string ended, without
 * control characters. What needs a comm to judge (is this rank below n?) the reader of the field
 * checks. No message is larger than union hoop_frame.
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
#define HOOP_FRAME_VERSION 17u       /* also of the board (exec/board.h) */
#define HOOP_FRAME_MAX_LANES 64u
#define HOOP_FRAME_MAX_SEGMENT_BYTES (1ull << 40)
#define HOOP_FRAME_MAX_MS 86400000ull /* a day */
#define HOOP_FRAME_BLOB_BYTES 128
#define HOOP_FRAME_WHY_BYTES 160

/* Of a time as much as a message may say. */
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

/* No padding in any of them: nobody would have written what goes over the wire. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

struct hoop_frame_header { /* all of WELCOME, READY and GO */
    uint32_t magic;
    uint16_t type;
    uint16_t version;
    uint32_t bytes; /* of the whole message */
    uint32_t reserved;
    uint64_t mac; /* over a network, once the connection is open; else 0 */
};

enum hoop_hello_kind {
    HOOP_HELLO_RANK = 1,  /* a rank, to its leader */
    HOOP_HELLO_TO_ROOT,   /* a leader, to the root */
    HOOP_HELLO_TO_PARENT, /* a leader, to its parent in the tree */
    HOOP_HELLO_SURVIVOR,  /* a rank, to the one that leads those who are left (survivors.h) */
    HOOP_HELLO_PEER,      /* a process, to another */
    HOOP_HELLO_DATA,      /* a rank, to a rank: the connection becomes a link's */
    HOOP_HELLO_KINDS
};

struct hoop_frame_hello {
    struct hoop_frame_header header;
    uint32_t kind;
    uint32_t lane;               /* data; else 0 */
    uint64_t comm_id;            /* peer, data; else 0 */
    uint32_t from, to;           /* ranks; to a parent: machines. A rank to its leader: to is 0 */
    struct hoop_address dialled; /* where the client believes it is; family 0: a Unix socket */
    char rendezvous[HOOP_NAME_BYTES]; /* of the first four kinds */
    uint8_t nonce[HOOP_NONCE_BYTES];
};

struct hoop_frame_challenge {
    struct hoop_frame_header header;
    uint8_t nonce[HOOP_NONCE_BYTES];
    uint8_t mac[HOOP_MAC_BYTES]; /* of the hello and the nonce */
};

struct hoop_frame_proof {
    struct hoop_frame_header header;
    uint8_t mac[HOOP_MAC_BYTES]; /* of the hello and the challenge */
};

/* REJECT, FAIL. rank -1: nobody's fault. HOOP_IN_PROGRESS in a REJECT: come back later. */
struct hoop_frame_failure {
    struct hoop_frame_header header;
    int32_t code;
    int32_t rank;
    char text[HOOP_FAILURE_TEXT_BYTES];
};

struct hoop_frame_entry { /* a rank and its process */
    uint64_t process;
    uint64_t process_at; /* where that number lies in its memory; 0: nobody is to read there */
    uint64_t start_time; /* of the process: hoop_process_start_time() */
    struct hoop_cpus cpus;
    int32_t pid;
    uint16_t machine; /* number of its machine, by the lowest rank on each; of a JOIN: 0 */
    uint16_t has_fd;  /* 1: its wake descriptor comes along: it is on the receiver's machine */
    struct hoop_address address; /* of its process, for other machines; none: not known */
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
    uint64_t left_ms; /* of it */
    uint64_t dead_after_ms;
    uint64_t segment_bytes;
    struct hoop_agreement agreed;
    char comm_name[HOOP_COMM_NAME_BYTES];
};

struct hoop_frame_roster { /* with the segment's descriptor, on one machine */
    struct hoop_frame_header header;
    uint64_t comm_id;
    uint32_t n;
    uint32_t machines; /* how many the ranks are on */
    uint64_t segment_bytes;
    uint64_t server;        /* hoop_process_id() where the leader is */
    uint64_t dead_after_ms; /* the smallest of all ranks: how often to give a sign of life */
    uint32_t need_fence;
    uint32_t no_rdma; /* some rank has none */
    /* Of a comm on one machine, where it was drawn; else 0: the rendezvous's is the comm's. */
    uint8_t secret[HOOP_SECRET_BYTES];
};

struct hoop_frame_roster_part { /* with the wake descriptors that the entries say, in order */
    struct hoop_frame_header header;
    uint32_t first, count;
    struct hoop_frame_entry entries[HOOP_MAX_FDS]; /* only count are sent */
};

/* What became of a rank. DEAD; LEFT: it said goodbye. */
struct hoop_frame_fate {
    struct hoop_frame_header header;
    uint32_t rank;
    uint32_t how; /* LEFT: 1, for good; else the number of the comm in which it goes on; else 0 */
    char why[HOOP_FRAME_WHY_BYTES]; /* DEAD: completes "rank 3 (...)"; "": its connection ended, and
                                       who can see its process knows better */
};

struct hoop_frame_beat { /* a sign of life */
    struct hoop_frame_header header;
    uint64_t waited_ms; /* an operation on this side, for others; HOOP_NEVER: none does */
};

struct hoop_frame_info { /* who is at this end */
    struct hoop_frame_header header;
    struct hoop_address address; /* where I may be reached from other machines; none: nowhere */
    uint64_t process;
    int32_t pid;
    uint32_t machine; /* my number; 0 before there is one */
    char host[HOOP_NAME_BYTES];
};

struct hoop_frame_place { /* of the receiver in the tree */
    struct hoop_frame_header header;
    uint32_t machine, machines; /* which one you are, of how many */
    struct hoop_address parent; /* of machine (i - 1) / 2; none for machine 0 */
};

struct hoop_frame_region { /* REGION_GET, REGION_DEAD */
    struct hoop_frame_header header;
    uint64_t comm_id; /* that of who asks; of what is dead 0 */
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
};

struct hoop_frame_blob {
    struct hoop_frame_header header;
    uint64_t comm_id;
    uint32_t from, to; /* ranks */
    uint32_t lane;
    uint32_t sending; /* 1: from the sender's end of the link */
    uint32_t bytes;
    uint32_t reserved;
    uint8_t data[HOOP_FRAME_BLOB_BYTES];
};

/* Ranks as bits. */
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

struct hoop_frame_view { /* which ranks are left; whose it is has been proved by the connection */
    struct hoop_frame_header header;
    uint32_t phase;
    uint32_t exact;                  /* 1: none may be lost */
    uint64_t left_ms;                /* how long I wait */
    uint8_t nonce[HOOP_NONCE_BYTES]; /* AGREED: of the place to meet */
    struct hoop_rank_set out;        /* who is left out */
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

/* Clears a frame and fills in its header: the size is that of its type (an empty roster part). */
void hoop_frame_init(union hoop_frame *frame, enum hoop_frame_type type);

/* Sets the size of a roster part to hold count entries. */
void hoop_frame_set_count(union hoop_frame *frame, uint32_t first, uint32_t count);

/* A whole REJECT or FAIL out of a failure (HOOP_AGAIN: come back later), and the other way. */
void hoop_frame_from_failure(union hoop_frame *frame, enum hoop_frame_type type,
                             const struct hoop_failure *failure);
struct hoop_failure hoop_frame_to_failure(const struct hoop_frame_failure *frame);

/* A whole BEAT: somebody has waited since then (HOOP_NEVER: nobody waits); and the other way, by
 * the receiver's clock. */
void hoop_frame_make_beat(union hoop_frame *frame, uint64_t since_ns, uint64_t now_ns);
uint64_t hoop_frame_waiting_since(const struct hoop_frame_beat *beat, uint64_t now_ns);

/*
 * Is this, of `bytes` bytes and with fd_count descriptors, a message? HOOP_MISMATCH: of another
 * version; HOOP_NOT_AUTHENTICATED: no; and the thread's sentence says how.
 */
hoop_result_t hoop_frame_check(const union hoop_frame *frame, size_t bytes, uint32_t fd_count);
/* The same for one that came over a network: without descriptors and secrets. */
hoop_result_t hoop_frame_check_far(const union hoop_frame *frame, size_t bytes);
/* The same when only the header is there; its size is at most that of union hoop_frame. */
hoop_result_t hoop_frame_check_header(const struct hoop_frame_header *header);

/* "HELLO"; "unknown" for a number that is no type. Static. */
const char *hoop_frame_name(uint32_t type);

#endif
